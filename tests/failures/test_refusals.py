"""Systems that refuse something, for real: files that can't be replaced, no semaphores, no room for threads.

    pytest -q tests/failures

Some tests mount and change users, for which one must be root. BPE_REQUIRE_MOUNTS=1 makes them required.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

import bpe
from bpe_more import training
from bpe_more.tokenizer import Tokenizer
from shared import ENGINES
from test_bpe import CORPUS, END, need

HERE = Path(bpe.__file__).parent
numpy = need("numpy")
AS_ANOTHER_USER = ["setpriv", "--reuid=54321", "--clear-groups"]  # one without any process



def can_mount():
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


as_root = pytest.mark.skipif(
    not os.environ.get("BPE_REQUIRE_MOUNTS") and not (shutil.which("unshare") and can_mount()),
    reason="needs the right to mount files and to change users",
)


def with_mounts(mounts):
    """The beginning of a command that sees these mounts, and nobody else does."""
    return ["unshare", "-m", "sh", "-c", f'{mounts} && exec "$@"', "sh"]


@pytest.fixture(scope="module")
def refusing(tmp_path_factory):
    library = tmp_path_factory.mktemp("library") / "refusing.so"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, str(Path(__file__).parent / "refusing.c"), "-ldl", "-o", str(library)], check=True)
    return str(library)


@pytest.fixture
def folder():
    """A folder that other users can enter, with model, text.txt and the result of encoding it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "text.txt").write_bytes(CORPUS.read_bytes())
        Tokenizer.train(CORPUS, 400, [END]).save(folder / "model")
        tokenizer = Tokenizer.load(folder / "model")
        tokenizer.encode_files(CORPUS, folder / "expected.npy")
        assert numpy.load(folder / "expected.npy").tolist() == tokenizer.encode(CORPUS.read_bytes().decode())
        yield folder


def run(script, folder, *command, argument="", **variables):
    """Run a script with an argument in a folder, by way of a command that changes its rights."""
    path = folder / "script.py"
    path.write_text(f"import sys\nsys.path.insert(0, {str(HERE)!r})\n" + textwrap.dedent(script))
    program = [*command, sys.executable, "-B", str(path), argument]
    return subprocess.run(program, capture_output=True, text=True, cwd=folder, timeout=100, env={**os.environ, **variables})


# --- files that can't be replaced --------------------------------------------------------------------------------------

WORK = """
    from bpe_more import Tokenizer, command
    tokenizer = Tokenizer.load("model")
    for write in (lambda: tokenizer.encode_files(None, "ids.npy", texts=["low"]),
                  lambda: Tokenizer({}, []).save("model"),
                  lambda: command.main(["text.txt", "300", "--model", "model", "--quiet"]),
                  lambda: command.main(["text.txt", "--encode", "ids.npy", "--model", "model", "--quiet"])):
        try:
            print(write())
        except OSError as error:
            print(error)
"""


def files_of(folder):
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".py"}


@as_root
@pytest.mark.parametrize("how", ["mounted", "another user's", "immutable"])
def test_a_file_that_cannot_be_replaced_stays_and_the_finished_one_is_named(folder, how):
    (folder / "ids.npy").write_bytes(b"earlier")
    (folder / "hidden").write_bytes(b"earlier")
    command = []
    locked = [folder / "ids.npy", folder / "model" / "tokenizer.json"]
    if how == "mounted":
        command = with_mounts(f"mount --bind hidden {locked[0]} && mount --bind {locked[1]} {locked[1]}")
    elif how == "another user's":
        for place in (folder, folder / "model"):
            place.chmod(0o1777)
        command = AS_ANOTHER_USER
    else:
        if subprocess.run(["chattr", "+i", *locked], capture_output=True).returncode:
            pytest.skip("this file system has no immutable files")
    before = files_of(folder)
    try:
        result = run(WORK, folder, *command)
    finally:
        if how == "immutable":
            subprocess.run(["chattr", "-i", *locked], check=True)
    reason = "Device or resource busy" if how == "mounted" else "Operation not permitted"
    lines, errors = result.stdout.splitlines(), result.stderr.splitlines()
    assert len(lines) == 4 and lines[2:] == ["2", "2"] and len(errors) == 2, result
    after = files_of(folder)
    assert {path: after[path] for path in before} == before
    for line in (*lines[:2], *errors):
        assert "can't replace " in line and f": {reason}; the finished file" in line, result
    kept = {path for path in after if path.endswith(".bpe.tmp")}
    assert kept == {path for line in (*lines[:2], *errors) for path in re.findall(r"mv (\S+) ", line)}
    assert {numpy.load(path).tobytes() for path in kept if "ids.npy" in path} == {
        numpy.array(Tokenizer.load(folder / "model").encode(text), "u2").tobytes() for text in ("low", CORPUS.read_bytes().decode())
    }


# --- workers that can't start ------------------------------------------------------------------------------------------

COUNT = f"""
import multiprocessing, threading, time
from bpe_more import Tokenizer, training, workers
from bpe_more.corpus import reading, slicing
workers.count_cores = lambda: 3
slicing.SLICE_BYTES = reading.SLICE_BYTES_IN_C = slicing.WINDOW_BYTES = 4000
def report():
    engine = sys.argv[1]
    counts = training.count_words(["text.txt"] * 3, [{END!r}], engine=engine, workers=3)
    Tokenizer.load("model").encode_files("text.txt", "ids.npy", engine=engine, workers=3)
    try:
        training.count_words(["text.txt", "bad.txt"], engine=engine, workers=3)
    except ValueError as error:
        print(sum(counts.values()), len(counts), error, flush=True)
"""
in_each_engine = pytest.mark.parametrize("engine", ENGINES)


@pytest.fixture
def check(folder):
    """check(engine, command, start of the report, ...): it gives the right counts, ids and error, in spite of what is refused."""
    (folder / "bad.txt").write_bytes(b"low " * 2500 + b"\xff" + b"low " * 9000 + b"\xfe")
    counts = training.count_words([CORPUS] * 3, [END], workers=1)
    expected = f"{sum(counts.values())} {len(counts)} bad.txt: not valid UTF-8 at byte 10000 (0xff, invalid start byte)\n"

    def call(engine, *command, before="", start="report()", **variables):
        result = run(before + COUNT + start, folder, *command, argument=engine, **variables)
        assert (result.returncode, result.stdout, result.stderr) == (0, expected, "")
        assert (folder / "ids.npy").read_bytes() == (folder / "expected.npy").read_bytes()

    return call


def test_without_semaphores_this_process_does_the_work(refusing, check):
    for number in ("38", "13", "2"):  # what Lambda, a container without rights, and one without /dev/shm say
        check("python", LD_PRELOAD=refusing, REFUSE_SEMAPHORES=number)


def test_without_the_module_for_semaphores_this_process_does_the_work(check):
    for name in ("_multiprocessing", "multiprocessing.synchronize"):
        check("python", before=f"sys.modules[{name!r}] = None\n")


@in_each_engine
def test_any_thread_may_be_refused(refusing, check, engine):
    for first in (1, 2, 3, 4, 7, 8, 9):
        check(engine, LD_PRELOAD=refusing, REFUSE_THREADS_FROM=str(first))


@as_root
@in_each_engine
def test_a_user_may_have_no_room_for_processes_and_threads(folder, check, engine):
    """Each limit is met at another place: threads, the second process, the pool's threads, those of processes."""
    folder.chmod(0o777)
    for most in (1, 2, 3, 4, 5, 6, 8, 9, 12):
        check(engine, "prlimit", f"--nproc={most}:{most}", *AS_ANOTHER_USER)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@in_each_engine
def test_a_daemon_process_may_have_no_children(check, engine, method):
    check(engine, start=f"""
if __name__ == "__main__":
    process = multiprocessing.get_context("{method}").Process(target=report, daemon=True)
    process.start()
    process.join()
""")


AFTER_THE_MAIN_THREAD = {
    "before": """
def work():
    threading.main_thread().join()
    time.sleep(0.2)
    report()
threading.Thread(target=work).start()
""",
    "in between": """
begun = threading.Event()
slices_of_plain_file = reading.slices_of_plain_file
def slow(*arguments):
    for number, part in enumerate(slices_of_plain_file(*arguments)):
        yield part
        if number == 6:
            begun.set()
            threading.main_thread().join()
            time.sleep(0.2)
reading.slices_of_plain_file = slow
threading.Thread(target=report).start()
begun.wait()
""",
}


@pytest.mark.parametrize("when", AFTER_THE_MAIN_THREAD)
@in_each_engine
def test_a_thread_that_outlives_the_main_thread_gets_its_results(check, engine, when):
    """Python's pools can't start any more then, and those that have started take no more tasks."""
    check(engine, start=AFTER_THE_MAIN_THREAD[when])


@as_root
def test_a_quota_of_a_container_is_read(tmp_path):
    (tmp_path / "cpu").mkdir()
    for files, n_cores in (
        ({"cpu.max": "100000 100000"}, 1), ({"cpu.max": "150000 100000"}, 2), ({"cpu.max": "max 100000"}, 8),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8), ({}, 8),
    ):  # fmt: skip
        for path in [*tmp_path.glob("cpu*/*"), *tmp_path.glob("cpu.*")]:
            path.unlink()
        for name, text in files.items():
            (tmp_path / name).write_text(text + "\n")
        script = "import os\nfrom bpe_more import workers\nos.sched_getaffinity = lambda process: set(range(8))\nprint(workers.count_cores())\n"
        result = run(script, tmp_path, *with_mounts(f"mount --bind {tmp_path} /sys/fs/cgroup"))
        assert (result.stdout, result.stderr) == (f"{n_cores}\n", ""), files
