"""The tests of this folder look into the C engine: they run once, and are skipped if there is none."""

import os

import pytest

from shared import WHY_NO_C, C, in_both_engines  # noqa: F401 (replaces the fixture of the folder above)
from test_bpe import BUILD_ERRORS


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Skip a test if there is no C engine: here, not in a fixture, so that pytest prints one line for all of them."""
    if C is None:
        reason = (BUILD_ERRORS.strip().splitlines() or [WHY_NO_C])[-1]
        if os.environ.get("BPE_REQUIRE_C"):
            pytest.fail(f"BPE_REQUIRE_C is set, but the C engine is missing: {reason}")
        pytest.skip(f"no C engine: {reason}")
