"""Fixtures for the tests in this folder: those of shared.py, and two that several files use."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from shared import ENGINES, choose_engine, cut, main, train, words_txt  # noqa: F401 (fixtures)
from test_bpe import PART


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk():
    """What fsync does shows only after a power cut; tests of its errors replace it once more."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(params=ENGINES)
def engine(request, monkeypatch):
    """Run a test twice, with the C engine and as if it were not built."""
    return choose_engine(request.param, monkeypatch)


@pytest.fixture(autouse=True)
def in_both_engines(engine):
    """Run every test of this folder twice. The folders in it, whose tests run once, replace this fixture."""


@pytest.fixture(scope="session")
def part(tmp_path_factory):
    """The path of PART, for tests of files and options that more text would not improve."""
    path = tmp_path_factory.mktemp("part") / "part.txt"
    path.write_bytes(PART.encode())
    return path


@pytest.fixture
def error(main):  # noqa: F811 (a fixture)
    """error(*arguments) -> the one line printed by a command line that fails with status 2."""

    def call(*arguments):
        status, _, stderr = main(*arguments)
        assert status == 2 and stderr.startswith("error: ") and stderr.count("\n") == 1, (status, stderr)
        return stderr.strip()

    return call
