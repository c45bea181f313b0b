"""The tests of this folder run once: they start processes of their own."""

from shared import in_both_engines  # noqa: F401 (replaces the fixture of the folder above)
