"""Systems that refuse something, for real: files that can't be replaced, no fsync, no semaphores, no room for threads.

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
from bpe_more import choices, training
from bpe_more.tokenizer import Tokenizer
from test_bpe import CORPUS, END, need

HERE = Path(bpe.__file__).parent
numpy = need("numpy")
OTHER_USER = 54321  # one without any process
ENGINES = ["python", "c"] if choices.find_engine()[0] else ["python"]


def can_mount():
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


as_root = pytest.mark.skipif(
    not os.environ.get("BPE_REQUIRE_MOUNTS") and not (shutil.which("unshare") and can_mount()),
    reason="needs the right to mount files and to change users",
)


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
        Tokenizer.load(folder / "model").encode_files(CORPUS, folder / "expected.npy")
        yield folder


def run(script, folder, *command, **options):
    path = folder / "script.py"
    path.write_text(f"import sys\nsys.path.insert(0, {str(HERE)!r})\n" + textwrap.dedent(script))
    variables = {**os.environ, **options.pop("env", {})}
    program = [*command, sys.executable, "-B", str(path)]
    return subprocess.run(program, capture_output=True, text=True, cwd=folder, timeout=100, env=variables, **options)


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
    if how == "mounted":
        tokenizer_json = folder / "model" / "tokenizer.json"
        mounts = f"mount --bind hidden ids.npy && mount --bind {tokenizer_json} {tokenizer_json}"
        command = ["unshare", "-m", "sh", "-c", f'{mounts} && exec "$@"', "sh"]
    elif how == "another user's":
        for place in (folder, folder / "model"):
            place.chmod(0o1777)
        command = ["setpriv", f"--reuid={OTHER_USER}", "--clear-groups"]
    else:
        locked = [folder / "ids.npy", folder / "model" / "tokenizer.json"]
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


# --- fsync -------------------------------------------------------------------------------------------------------------

SAVE = """
    from bpe_more import Tokenizer
    tokenizer = Tokenizer.load("model")
    tokenizer.save("again")
    tokenizer.encode_files("text.txt", "ids.npy", workers=1)
"""


@pytest.mark.parametrize("number, of_files", [("22", "1"), ("38", "1"), ("95", "1"), ("9", "1"), ("22", "0"), ("5", "0")])
def test_a_file_system_without_fsync_gets_whole_files(refusing, folder, number, of_files):
    result = run(SAVE, folder, env={"LD_PRELOAD": refusing, "REFUSE_FSYNC": number, "REFUSE_FSYNC_OF_FILES": of_files})
    assert (result.returncode, result.stderr) == (0, "")
    assert (folder / "ids.npy").read_bytes() == (folder / "expected.npy").read_bytes()
    assert Tokenizer.load(folder / "again").merges == Tokenizer.load(folder / "model").merges


def test_lost_data_is_an_error(refusing, folder):
    result = run(SAVE, folder, env={"LD_PRELOAD": refusing, "REFUSE_FSYNC": "5", "REFUSE_FSYNC_OF_FILES": "1"})
    assert "Input/output error" in result.stderr and not list(folder.glob("again/*"))


# --- workers that can't start ------------------------------------------------------------------------------------------

COUNT = """
    import sys
    from bpe_more import Tokenizer, training, workers
    from bpe_more.corpus import reading, slicing
    workers.count_cores = lambda: 3
    slicing.SLICE_BYTES = reading.SLICE_BYTES_IN_C = slicing.WINDOW_BYTES = 4000
    def results(engine):
        counts = training.count_words(["text.txt"] * 3, [END], engine=engine, workers=3)
        tokenizer = Tokenizer.load("model")
        tokenizer.encode_files("text.txt", "ids.npy", engine=engine, workers=3)
        try:
            training.count_words(["text.txt", "bad.txt"], engine=engine, workers=3)
        except ValueError as error:
            return sum(counts.values()), len(counts), str(error)
""".replace("END", repr(END))
REPORT = 'print(*results(sys.argv[1] if len(sys.argv) > 1 else "auto"))\n'


@pytest.fixture
def expected(folder):
    (folder / "bad.txt").write_bytes(b"low " * 2500 + b"\xff" + b"low " * 9000 + b"\xfe")
    counts = training.count_words([CORPUS] * 3, [END], workers=1)
    place = "bad.txt: not valid UTF-8 at byte 10000 (0xff, invalid start byte)"
    return f"{sum(counts.values())} {len(counts)} {place}\n"


def check(result, expected, folder):
    assert (result.returncode, result.stdout, result.stderr) == (0, expected, "")
    assert (folder / "ids.npy").read_bytes() == (folder / "expected.npy").read_bytes()


def script_for(engine, start=REPORT):
    return textwrap.dedent(COUNT) + start.replace('sys.argv[1] if len(sys.argv) > 1 else "auto"', repr(engine))


def test_without_semaphores_this_process_does_the_work(refusing, folder, expected):
    for number in ("38", "13", "2"):  # what Lambda, a container without rights, and one without /dev/shm say
        result = run(script_for("python"), folder, env={"LD_PRELOAD": refusing, "REFUSE_SEMAPHORES": number})
        check(result, expected, folder)


def test_without_the_module_for_semaphores_this_process_does_the_work(folder, expected):
    for name in ("_multiprocessing", "multiprocessing.synchronize"):
        result = run(f"sys.modules[{name!r}] = None\n{script_for('python')}", folder)
        check(result, expected, folder)


@pytest.mark.parametrize("engine", ENGINES)
def test_any_thread_may_be_refused(refusing, folder, expected, engine):
    for first in (1, 2, 3, 4, 7, 8, 9):
        result = run(script_for(engine), folder, env={"LD_PRELOAD": refusing, "REFUSE_THREADS_FROM": str(first)})
        check(result, expected, folder)


@as_root
@pytest.mark.parametrize("engine", ENGINES)
def test_a_user_may_have_no_room_for_processes_and_threads(folder, expected, engine):
    """Each limit is met at another place: threads, the second process, the pool's threads, those of processes."""
    folder.chmod(0o777)
    user = ["setpriv", f"--reuid={OTHER_USER}", "--clear-groups"]
    for most in (1, 2, 3, 4, 5, 6, 8, 9, 12):
        limited = ["prlimit", f"--nproc={most}:{most}", *user]
        result = run(script_for(engine), folder, *limited)
        check(result, expected, folder)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_daemon_process_may_have_no_children(folder, expected, engine, method):
    start = """
import multiprocessing
def work():
    print(*results("ENGINE"), flush=True)
if __name__ == "__main__":
    process = multiprocessing.get_context("METHOD").Process(target=work, daemon=True)
    process.start()
    process.join()
""".replace("ENGINE", engine).replace("METHOD", method)
    check(run(textwrap.dedent(COUNT) + start, folder), expected, folder)


@pytest.mark.parametrize("when", ["before", "in between"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_thread_that_outlives_the_main_thread_gets_its_results(folder, expected, engine, when):
    """Python's pools can't start any more then, and those that have started take no more tasks."""
    start = """
import threading, time
begun = threading.Event()
slices_of_file = reading.slices_of_file
def slow(*arguments):
    for number, part in enumerate(slices_of_file(*arguments)):
        yield part
        if number == 6:
            begun.set()
            threading.main_thread().join()
            time.sleep(0.2)
def work():
    threading.main_thread().join()
    time.sleep(0.2)
    print(*results("ENGINE"), flush=True)
if "WHEN" == "in between":
    reading.slices_of_file = slow
    work = lambda: print(*results("ENGINE"), flush=True)
threading.Thread(target=work).start()
"WHEN" == "in between" and begun.wait()
""".replace("ENGINE", engine).replace("WHEN", when)
    check(run(textwrap.dedent(COUNT) + start, folder), expected, folder)


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
        mounted = ["unshare", "-m", "sh", "-c", f'mount --bind {tmp_path} /sys/fs/cgroup && exec "$@"', "sh"]
        result = run(script, tmp_path, *mounted)
        assert (result.stdout, result.stderr) == (f"{n_cores}\n", ""), files


def test_the_arrays_of_these_tests_are_whole(folder):
    text = CORPUS.read_bytes().decode()
    assert numpy.load(folder / "expected.npy").tolist() == Tokenizer.load(folder / "model").encode(text)
