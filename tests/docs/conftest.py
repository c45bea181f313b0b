"""The tests of this folder run once, with the C engine if there is one."""

import pytest


@pytest.fixture(autouse=True)
def in_both_engines():
    """Replace the fixture of the folder above."""
