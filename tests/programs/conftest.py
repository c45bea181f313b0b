"""The tests of this folder run once, with the C engine if there is one."""

from shared import in_both_engines  # noqa: F401 (replaces the fixture of the folder above)
