"""Engines for tasks, each with two worker processes. Those that aren't installed are skipped, and Spark without Java.

BPE_REQUIRE_CLUSTER=1 makes Dask and Ray required. The tests of this folder run once, with the C engine if there is one.
"""

import contextlib
import os
import sys
from pathlib import Path

import pytest

from test_bpe import ROOT

sys.path.insert(0, str(Path(__file__).parent))
from engines import PACKAGES, available, client_of

HERE = Path(__file__).parent
VARIABLES = {
    "PYTHONPATH": os.pathsep.join(map(str, (ROOT, HERE))),  # workers import bpe.py, and dying.py
    "PYSPARK_PYTHON": sys.executable,
    "RAY_AUTH_MODE": "disabled",
}


@pytest.fixture(autouse=True)
def in_both_engines(monkeypatch):
    """Replace the fixture of the folder above; processes that a test starts find what they import."""
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session", params=PACKAGES)
def client(request):
    """A client of each engine."""
    available(request.param)
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        for name, value in VARIABLES.items():
            patch.setenv(name, value)
        client = stack.enter_context(client_of(request.param))
        patch.undo()
        yield client


@pytest.fixture
def dies(tmp_path, monkeypatch):
    """dies(name) -> the worker that first runs this function of bpe_more.cluster is killed; returns the file it leaves."""
    import dying

    from bpe_more import cluster

    def arrange(name, kind="die"):
        flag = tmp_path / f"{name}.died"
        monkeypatch.setattr(cluster, name, dying.Dying(kind, name, str(flag)))
        return flag

    return arrange
