"""The tests of this folder run once: they start processes of their own."""

import pytest


@pytest.fixture(autouse=True)
def in_both_engines():
    """Replace the fixture of the folder above."""
