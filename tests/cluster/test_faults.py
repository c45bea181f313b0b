"""What can go wrong on a cluster, with real processes: killed workers and drivers, full memory, other versions, no C.

    pytest -q tests/cluster/test_faults.py
"""

import contextlib
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from engines import client_of

import bpe
from bpe_more import cluster
from bpe_more.cluster import dask, urls
from bpe_more.tokenizer import Tokenizer
from shared import read_ids, wait_for
from test_bpe import CORPUS, END, ROOT, need

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The fixture as four files: a pattern of paths."""
    folder = tmp_path_factory.mktemp("corpus")
    lines = CORPUS.read_bytes().splitlines(keepends=True)
    for number in range(4):
        (folder / f"{number}.txt").write_bytes(b"".join(lines[number::4]))
    return str(folder / "?.txt")


@pytest.fixture(scope="module")
def expected(corpus):
    return Tokenizer.train([corpus.replace("?", str(number)) for number in range(4)], 1000, [END], min_word_count=2)


def train(client, corpus, **options):
    return cluster.train(client, corpus, 1000, [END], buckets=3, task_bytes=1, min_word_count=2, **options)


@pytest.mark.parametrize("kept", [False, True], ids=["exchanged", "counts"])
def test_a_worker_that_is_killed_while_counting_and_adding_changes_nothing(client, corpus, expected, dies, tmp_path, kept):
    names = ["write_counts", "add_files"] if kept or client is None else ["count_files", "add"]
    flags = [dies(name) for name in names]
    found = train(client, corpus, counts=str(tmp_path / "counts") if kept else None)
    assert found.merges == expected.merges
    assert [len(flag.read_text()) > 1 for flag in flags] == [True, True]  # it ran again


def test_a_worker_that_is_killed_while_encoding_changes_nothing(client, corpus, expected, dies, tmp_path):
    flag = dies("encode_file")
    cluster.encode(client, corpus, expected, str(tmp_path / "ids"))
    assert flag.exists()
    for number in range(4):
        text = Path(corpus.replace("?", str(number))).read_bytes().decode()
        assert read_ids(tmp_path / "ids" / f"{number}.txt.npy")[1] == expected.encode(text)


STAGES = {  # what has to be said if a function is killed again and again
    "write_counts": r"counting \(.*\); if its worker ran out of memory, give smaller tasks \(task_bytes=, --task-bytes\)$",
    "add_files": r"adding \(.*\); if its worker ran out of memory, give more buckets \(buckets=, --buckets\)$",
}


@pytest.mark.parametrize("name", STAGES)
def test_a_worker_that_is_killed_again_and_again_is_an_error_with_a_way_out(client, name, corpus, dies, tmp_path):
    if name == "add_files" and client is not None:
        pytest.skip("takes long, since an engine starts many workers")
    dies(name, "die always")
    # a nanny of Dask gives up if its worker dies while it starts, so this client can't be used again
    is_dask = hasattr(client, "scatter")
    own = client_of("dask") if is_dask else contextlib.nullcontext(client)
    paths = corpus if is_dask else corpus.replace("?", "0")  # one task, which is killed four times
    with own as client, pytest.raises(RuntimeError, match=f"^a task failed 4 times while {STAGES[name]}"):
        train(client, paths, counts=str(tmp_path / "counts"))


def test_a_worker_whose_memory_is_full_is_an_error_with_a_way_out(client, tmp_path, dies):
    text = tmp_path / "text.txt"
    text.write_text(" ".join(map(str, range(10**6))))
    dies("write_counts", "fill")
    with pytest.raises(MemoryError, match="^out of memory.* give smaller tasks .*worker .*, process"):
        cluster.train(client, text, 1000, counts=str(tmp_path / "counts"))


DRIVER = """
    import sys
    import dying
    from bpe_more import cluster
    from engines import client_of

    if __name__ == "__main__":
        engine, corpus, counts, flag = sys.argv[1:]
        cluster.write_counts = dying.Dying("wait", "write_counts", flag)
        with client_of(engine) as client:
            cluster.train(client, corpus, 1000, ["<|endoftext|>"], buckets=3, task_bytes=1, counts=counts)
"""


def test_a_driver_that_is_killed_and_started_again_counts_only_what_is_missing(client, request, corpus, expected, tmp_path):
    (tmp_path / "driver.py").write_text(textwrap.dedent(DRIVER))
    counts, engine = tmp_path / "counts", request.node.callspec.params["client"]
    command = [sys.executable, "driver.py", engine, corpus, counts, tmp_path / "flag"]
    # the first task counts, and the others wait
    driver = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_for(lambda: list(counts.glob("*.counts")), 120)
    finally:
        driver.kill()
        driver.wait()
        with contextlib.suppress(ProcessLookupError):  # Java, and Ray's processes
            os.killpg(driver.pid, 9)
    [first] = counts.glob("*.counts")
    made = first.stat().st_mtime_ns
    assert train(client, corpus, counts=str(counts)).merges == expected.merges
    assert first.stat().st_mtime_ns == made and len(list(counts.glob("*.counts"))) == 4


def test_a_file_that_a_worker_lacks_is_one_error_with_the_file_and_the_worker(client, corpus, monkeypatch, tmp_path):
    files = [*urls.files_of(corpus), urls.File("/nowhere/x.txt", 5, "")]
    monkeypatch.setattr(urls, "files_of", lambda paths: files)
    for counts in None, str(tmp_path / "counts"):
        with pytest.raises(OSError, match=r"^No such file.*'/nowhere/x.txt' .worker .*, process \d+.$"):
            train(client, corpus, counts=counts)


def test_text_that_is_not_utf8_is_one_error_with_the_place(client, tmp_path):
    (tmp_path / "bad.txt").write_bytes(b"low \xff")
    with pytest.raises(ValueError, match=r"bad.txt: not valid UTF-8 at byte 4 .0xff, .*worker .*, process \d+.$"):
        cluster.train(client, tmp_path / "bad.txt", 300)


@contextlib.contextmanager
def dask_with(folder):
    """A cluster of Dask with one worker, which imports the bpe.py of a folder."""
    distributed = need("distributed")
    with distributed.LocalCluster(n_workers=0, dashboard_address=":0") as local, distributed.Client(local) as client:
        command = [sys.executable, "-m", "distributed.cli.dask_worker", local.scheduler_address, "--nthreads", "1", "--no-dashboard"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (folder, HERE)))}
        worker = subprocess.Popen([*command, "--no-nanny"], cwd=folder, env=environment, stderr=subprocess.DEVNULL)
        try:
            client.wait_for_workers(1, timeout=60)
            yield client
        finally:
            worker.kill()
            worker.wait()


def test_dask_whose_workers_are_gone_for_good_is_an_error_and_does_not_wait_forever(corpus, dies, tmp_path, monkeypatch):
    monkeypatch.setattr(dask, "NO_WORKER_SECONDS", 0.5)
    message = "^Dask has had no worker for 0.5 seconds while counting; start workers, then this command again$"
    with dask_with(ROOT) as client:
        for _ in range(2):  # the only worker dies, and nobody starts another one; then there is none from the beginning
            flag = dies("count_files")
            with pytest.raises(RuntimeError, match=message):
                train(client, corpus)
            assert flag.exists() and not client.nthreads()


def copy_of_the_source(folder):
    """Copy bpe.py and bpe_more, without the engine in C."""
    for name in ("bpe.py", "build_ffi.py", "bpe_fast.c"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "bpe_more", folder / "bpe_more", ignore=shutil.ignore_patterns("__pycache__"))


def test_a_worker_with_another_version_is_refused(corpus, tmp_path):
    copy_of_the_source(tmp_path)
    for name in ("bpe.py", "bpe_more/__init__.py"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(re.sub(rf'VERSION = "[^"]*"|__version__ = "{bpe.__version__}"', lambda match: match[0].replace(bpe.__version__, "9.9"), text), encoding="utf-8")
    with dask_with(tmp_path) as client, pytest.raises(ValueError, match=rf"^this worker has bpe.py 9.9, the driver bpe.py {bpe.__version__}; use the same everywhere .worker "):
        train(client, corpus)


def test_a_worker_without_bpe_more_is_refused(corpus, tmp_path):
    shutil.copy(ROOT / "bpe.py", tmp_path)
    (tmp_path / "bpe_more.py").write_text("raise ModuleNotFoundError('No module named \\'bpe_more\\'')")  # though it may be installed
    with dask_with(tmp_path) as client, pytest.raises(RuntimeError, match=r"No module named 'bpe_more'.*; all workers need the same bpe.py, with bpe_more$"):
        train(client, corpus)


def test_a_module_that_workers_lack_is_named_and_memory_is_not(client, corpus, tmp_path, monkeypatch):
    if client is None or hasattr(client, "scatter"):
        pytest.skip("processes of this machine have the modules of the driver; for Dask, see the test above")
    (tmp_path / "only_here.py").write_text("def count_files(job, paths): pass")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(cluster, "count_files", importlib.import_module("only_here").count_files)
    message = "^No module named 'only_here'; all workers need the same bpe.py, with bpe_more$"
    with pytest.raises(RuntimeError, match=message):
        train(client, corpus.replace("?", "0"))


def test_a_worker_without_c_gives_the_same_merges_and_says_so(corpus, expected, tmp_path):
    copy_of_the_source(tmp_path)
    with dask_with(tmp_path) as client, pytest.warns(UserWarning, match=r"^worker \S+ is slower, with the same result: the C engine is not built") as caught:
        assert train(client, corpus).merges == expected.merges
        n_ids = cluster.encode(client, corpus, expected, str(tmp_path / "ids"))
    assert len(caught) == 2  # once for each call
    assert n_ids == json.loads((tmp_path / "ids" / "index.json").read_text())["ids"]
