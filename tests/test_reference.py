"""bpe.py beyond the promises of test_bpe.py: bad input, workers, interrupts, files that must not be lost.

The tests run in Python. Those with an argument `engine` run with the engines of test_bpe.py: Python, the merge loop alone, and all of C.
"""

# ruff: noqa: F811 (arguments of tests have the names of fixtures)
import ast
import contextlib
import importlib.util
import itertools
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import types
import warnings
from collections import Counter
from pathlib import Path

import pytest
import regex

from shared import load_elsewhere, on_a_terminal, wait_for
from test_bpe import (  # noqa: F401 (fixtures)
    CORPUS,
    END,
    ENGINES,
    FIXTURE,
    HERE,
    PART,
    ROOT,
    TEXTBOOK,
    TRICKY,
    call_in_script,
    copy_sources,
    cut,
    engine,
    files_of,
    load_from,
    main,
    naive_split,
    naive_words,
    pairs,
    random_text,
    trained,
    with_merges,
    words_of_the_fixture,
)

# isort: split
import bpe
import bpe_more

pytestmark = pytest.mark.filterwarnings("ignore:.* single token")
is_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture(autouse=True)
def in_both_engines(monkeypatch):
    """Replace the fixture of the folder: only tests that ask for an engine have another one than Python."""
    monkeypatch.setattr(bpe, "find_engine", lambda: (None, "the C engine is not built"))


def test_every_function_of_bpe_py_runs_from_its_own_lines():
    kinds = types.FunctionType, types.MethodType
    for scope in (bpe, bpe.Tokenizer, bpe.Slice):
        for name, value in vars(scope).items():
            function = getattr(value, "__wrapped__", getattr(value, "__func__", getattr(value, "func", value)))
            if isinstance(function, kinds) and function.__module__ == "bpe" and name != "_make":
                assert function.__code__.co_filename == bpe.__file__ or name.startswith("_"), name


def test_a_changed_line_shows_when_it_is_run_with_everything_built(tmp_path):
    """Each of these functions gets a line that prints; each is reached from the command line."""
    commands = {
        f"{CORPUS} 300 --engine python": {"main", "count_slice", "learn_merges", "save"},
        f"{CORPUS} --encode ids.npy --engine python": {"main", "encode_word"},
    }
    copy_sources(tmp_path, "build_ffi.py", "bpe_more")
    for library in ROOT.glob("_bpe_fast*"):
        shutil.copy(library, tmp_path)
    tree = ast.parse((HERE / "bpe.py").read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in set.union(*commands.values()):
            node.body.insert(0, ast.parse(f"print('{node.name} runs', flush=True)").body[0])
    (tmp_path / "bpe.py").write_text(ast.unparse(tree), encoding="utf-8")
    for command, expected in commands.items():
        result = subprocess.run([sys.executable, "bpe.py", *command.split()], capture_output=True, text=True, cwd=tmp_path)
        assert set(regex.findall(r"(\w+) runs", result.stdout)) == expected, result.stderr


@pytest.mark.parametrize("special_tokens", [["a b"], ["<a>", "x<a>y"], [END], ["a a"], ["ab", "b\nc"]])
def test_a_cut_divides_no_special_token(special_tokens):
    rng = random.Random(8)
    halves = [half for token in special_tokens for half in (token, token[:2], token[2:])]
    n_cuts = 0
    for _ in range(300):
        text = random_text(rng, [*TRICKY, *halves], 60)
        if cut := bpe.last_cut(text, "gpt2", tuple(special_tokens)):
            n_cuts += 1
            assert naive_words(text, special_tokens) == naive_words(text[:cut], special_tokens) + naive_words(
                text[cut:], special_tokens
            )
    assert n_cuts > 30


@pytest.mark.parametrize("engine", [ENGINES[0], ENGINES[-1]], indirect=True)
def test_engine_c_is_an_error_where_python_would_be_used(engine):
    if engine == "python":
        with pytest.raises(ValueError, match="engine 'c' can't be used: the C engine is not built"):
            bpe.train_from_counts({b"ab": 1}, 257, engine="c")
    if engine == "c":
        with pytest.raises(ValueError, match="engine 'c' can't be used: "):
            bpe.count_words(texts=["ab"], pattern=r"(\w+)|\s", engine="c")  # C scans no groups
    with pytest.raises(ValueError, match="rust"):
        bpe.count_words(texts=["ab"], engine="rust")


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a.JSON", "a.txt.gz", "a.zst", os.devnull])
def test_a_file_that_is_not_plain_text_is_an_error_that_says_what_reads_it(tmp_path, name):
    if name != os.devnull:
        (tmp_path / name).write_text("{}")
    with pytest.raises(ValueError, match=f"{name}: bpe.py reads plain text files; `python -m bpe_more`, or `from bpe_more import"):
        bpe.train_bpe(tmp_path / name, 300)


def test_a_file_that_a_custom_pattern_cannot_cut_is_a_warning(tmp_path, monkeypatch):
    monkeypatch.setattr(bpe, "SLICE_BYTES", 1000)
    with pytest.warns(UserWarning, match="custom pattern"):
        assert bpe.count_words(CORPUS, pattern=r"\w+") == Counter(word.encode() for word in naive_split(FIXTURE, r"\w+"))


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A text that takes several seconds in Python."""
    path = tmp_path_factory.mktemp("large") / "large.txt"
    path.write_text((FIXTURE + "\n") * 300, encoding="utf-8")
    return path


def start_training(large, at_work=True):
    """Start a training run with two processes; return it when both are there, and by default at work."""
    command = [sys.executable, str(ROOT / "bpe.py"), str(large), "300", "--engine", "python", "--workers", "2"]
    run = subprocess.Popen(command, stderr=subprocess.PIPE, cwd=large.parent, start_new_session=True)
    children = []
    while len(children) < 2 or (at_work and not all(int((state_of(child) or [0] * 12)[11]) > 5 for child in children)):
        assert run.poll() is None
        time.sleep(0.002)
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    return run, children


def state_of(process):
    """What the system says of a process: its state, nine other things, and two times that it has used."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return None


def is_alive(process):
    """Whether a process runs; one that has ended may wait for its parent to ask."""
    state = state_of(process)
    return state is not None and state[0] != "Z"


def assert_ended(children):
    wait_for(lambda: not any(map(is_alive, children)), seconds=2)
    assert not any(map(is_alive, children))


@is_linux
@pytest.mark.parametrize("number, to_all", [(signal.SIGINT, True), (signal.SIGINT, False), (signal.SIGTERM, False)])
def test_ctrl_c_and_kill_end_workers_with_one_line_within_two_seconds(large, number, to_all):
    run, children = start_training(large)
    start = time.monotonic()
    (os.killpg if to_all else os.kill)(run.pid, number)
    _, stderr = run.communicate(timeout=20)
    assert (run.returncode, stderr) == (130, b"interrupted\n") and time.monotonic() - start < 2.5
    assert_ended(children)


@is_linux
def test_a_killed_worker_is_one_line_and_a_killed_parent_leaves_no_worker(large):
    run, children = start_training(large)
    os.kill(int(children[0]), signal.SIGKILL)
    _, stderr = run.communicate(timeout=20)
    assert run.returncode == 1 and regex.fullmatch(rb"error: [^\n]+\n", stderr)
    assert_ended(children)
    run, children = start_training(large)
    run.kill()
    run.communicate(timeout=20)
    assert_ended(children)


@is_linux
@pytest.mark.parametrize("to_the_group", [True, False])
def test_an_interrupt_while_workers_start_is_one_line(large, to_the_group):
    """A worker that has just been forked neither loses the signal that ends it, nor prints a traceback."""
    for _ in range(5):
        run, _ = start_training(large, at_work=False)
        (os.killpg if to_the_group else os.kill)(run.pid, signal.SIGINT)
        assert run.communicate(timeout=20)[1] == b"interrupted\n" and run.returncode == 130


def test_two_saves_at_once_in_one_process_give_the_whole_file_of_one_of_them(tmp_path):
    path = tmp_path / "vocab.json"
    with bpe.new_files([str(path)]) as [first]:
        first.write(b"a long file of the first thread")
        with bpe.new_files([str(path)]) as [second]:
            second.write(b"a short one")
        assert path.read_bytes() == b"a short one"
    assert path.read_bytes() == b"a long file of the first thread" and os.listdir(tmp_path) == ["vocab.json"]


@pytest.mark.parametrize("system", ["linux", "darwin"])  # macOS starts processes by spawn
def test_a_cell_of_a_notebook_has_no_file_and_trains_and_under_spawn_counts_in_one_process(tmp_path, system):
    """A pasted copy has no file from which processes could import it."""
    source = (ROOT / "bpe.py").read_text(encoding="utf-8").replace("from __future__ import annotations\n", "", 1)
    cell = f"""from __future__ import annotations\nimport sys; sys.platform = {system!r}\n{source}
SLICE_BYTES = 20_000
print(len(train_bpe({str(CORPUS)!r}, 300, workers=2)[1]), Tokenizer.train({str(CORPUS)!r}, 260).encode('a'))"""
    command = [sys.executable, "-c", "import sys; exec(compile(sys.stdin.read(), 'cell', 'exec'))"]
    result = subprocess.run(command, input=cell.encode(), capture_output=True, timeout=60, cwd=tmp_path)
    assert (result.stdout, result.stderr) == (b"44 [97]\n", b"")


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_processes_of_each_kind_count_alike(tmp_path, method):
    shutil.copy(ROOT / "bpe.py", tmp_path / "renamed.py")
    script = f"""
        import multiprocessing
        get_context = multiprocessing.get_context
        multiprocessing.get_context = lambda method=None: get_context({method!r})
        sys.path.insert(0, {str(tmp_path)!r})
        if __name__ == "__main__":
            import renamed
            renamed.SLICE_BYTES = 20_000
            assert renamed.count_words({str(CORPUS)!r}, workers=2) == renamed.count_words({str(CORPUS)!r}, workers=1)
            print("equal")
    """
    assert call_in_script(tmp_path, script).stdout == b"equal\n"


def test_a_stream_begins_early_and_takes_linear_time_without_a_place_to_cut():
    tokenizer = bpe.Tokenizer(*trained(400))
    read = []
    first = next(tokenizer.encode_iterable(read.append(line) or line for line in FIXTURE.splitlines(keepends=True)))
    assert first == tokenizer.encode(FIXTURE[:100])[0] and sum(map(len, read)) < 3000
    start = time.process_time()
    assert len(list(tokenizer.encode_iterable("====\n" for _ in range(80_000)))) > 1000
    assert time.process_time() - start < 20  # 44 s where each block was searched again


def test_an_output_is_never_an_input_and_an_error_leaves_the_old_file(tmp_path):
    tokenizer = bpe.Tokenizer(*trained(300))
    corpus, link, bad = tmp_path / "corpus.npy", tmp_path / "link.npy", tmp_path / "bad.txt"
    corpus.write_text(TEXTBOOK)
    link.symlink_to(corpus)
    bad.write_bytes(b"\xff")
    for output in (corpus, link, tmp_path / "." / "corpus.npy"):
        with pytest.raises(ValueError, match="is the same file as"):
            tokenizer.encode_files([corpus], output)
    tokenizer.encode_files(texts=["low"], output=tmp_path / "ids.npy")
    before = files_of(tmp_path)
    with pytest.raises(ValueError, match="not valid UTF-8"):
        tokenizer.encode_files([bad], tmp_path / "ids.npy")
    assert files_of(tmp_path) == before
    with pytest.raises(ValueError, match="the list of paths is empty"):
        tokenizer.encode_files([], tmp_path / "ids.npy")


@pytest.mark.parametrize("engine", [ENGINES[0], ENGINES[-1]], indirect=True)
@pytest.mark.parametrize("special_tokens", [
    ["<a>", "<a><b>", END, "<|end", "[x] y"], *[[special] for special in ("é é", "字", "\u00a0\u00a0x", "<début>字")],
], ids=str)  # fmt: skip
def test_special_tokens_that_touch_or_nest_or_are_not_ascii_are_the_same_in_other_tools(tmp_path, engine, special_tokens):
    rng = random.Random(3)
    tokenizer = bpe.Tokenizer.train(CORPUS, 500, special_tokens)
    tokenizer.save(tmp_path)
    theirs, encoding = load_elsewhere(tmp_path)
    for _ in range(200):
        text = random_text(rng, [*special_tokens, "a", " ", "<", "\n", "é"], rng.randint(0, 30))
        ids = tokenizer.encode(text)
        assert theirs.encode(text).ids == ids
        if "<a><b>" not in text and END not in text:  # tiktoken does not always take the longest
            assert encoding.encode(text, allowed_special="all") == ids


def test_a_special_token_that_could_be_bytes_in_a_file_is_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr(bpe, "count_slices", None)
    for special in ("é", "Ġlow", "ñandú"):
        with pytest.raises(ValueError, match="can't be saved"):
            bpe.Tokenizer.train(CORPUS, 300, [special])
        with pytest.raises(ValueError, match="can't be saved"):
            bpe.Tokenizer(*trained(300), [special]).save(tmp_path)
    bpe.Tokenizer(*trained(300), [END]).save(tmp_path)
    for special in ("é", "Ċ"):
        with pytest.raises(ValueError, match="looks like printable bytes"):
            bpe.Tokenizer.from_files(tmp_path / "vocab.json", tmp_path / "merges.txt", [special])


def test_from_files_reads_gpt2s_two_files_of_any_program(tmp_path):
    tokenizer = bpe.Tokenizer(*trained(600), [END])
    tokenizer.save(tmp_path)
    paths, ids = (tmp_path / "vocab.json", tmp_path / "merges.txt"), tokenizer.encode(PART)
    assert bpe.Tokenizer.from_files(*paths, [END]).encode(PART) == ids
    lines = paths[1].read_bytes().split(b"\n")[1:-1]
    for first in ([], [b"#version: 0.2"], [b"#version: 0.2 - Trained by `huggingface/tokenizers`"], [b"", b""]):
        for end in (b"\n", b"\r\n"):
            paths[1].write_bytes(end.join([*first, *lines, b""]))
            assert bpe.Tokenizer.from_files(*paths, special_tokens=[END]).encode(PART) == ids
    assert bpe.Tokenizer.from_files(*paths, [END], "o200k").pattern == "o200k"
    bpe.Tokenizer(with_merges(pairs("#v e")), pairs("#v e")).save(tmp_path)  # a merge may begin like the first line
    assert bpe.Tokenizer.from_files(*paths).merges == pairs("#v e")


@pytest.mark.parametrize("name, content, message", [
    *[("vocab.json", text, "vocab.json: not a byte-level BPE model") for text in ('{"a": 0, "b"', '["a"]')],
    *[("vocab.json", f'{{"a": {number}}}', "vocab.json: vocab maps ids") for number in (-1, 1.5)],
    ("vocab.json", '{"a": 0, "b": 0}', "vocab.json: two tokens have the same id"), ("vocab.json", '{"a": 0, "a": 1, "b": 2}', "'a'"),
    ("merges.txt", "a b\n", "'ab'"), ("merges.txt", "a\n", "merges.txt: merge 0"), ("merges.txt", "a x\n", "merges.txt: merge 0"),
    ("a pattern", "bad(", "pattern 'bad"),
])  # fmt: skip
def test_bad_files_are_errors_that_name_them(tmp_path, name, content, message):
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 1}')
    (tmp_path / "merges.txt").write_text("")
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=regex.escape(message)):
        bpe.Tokenizer.from_files(tmp_path / "vocab.json", tmp_path / "merges.txt", pattern=content if name == "a pattern" else "gpt2")


def test_models_that_save_did_not_write_are_errors_that_name_what_loads_them(tmp_path):
    bpe.Tokenizer(*trained(300), [END]).save(tmp_path)
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_bytes())
    other_id = [{**content["added_tokens"][0], "id": 999}]
    for change in ({"normalizer": {"type": "NFC"}}, {"truncation": {"max_length": 8}}, {"added_tokens": other_id}):
        path.write_text(json.dumps({**content, **change}))
        with pytest.raises(ValueError, match=r"tokenizer\.json: save\(\) did not write this model.*from bpe_more import Tokenizer"):
            bpe.Tokenizer.load(tmp_path)
    path.write_text(json.dumps(content)[:5000])
    with pytest.raises(ValueError, match=r"tokenizer\.json: "):
        bpe.Tokenizer.load(path)


def test_saving_replaces_all_files_or_none(tmp_path, monkeypatch):
    """The disk is full at the second file: the old model stays, no temporary file does, and the error names a file."""
    tokenizer = bpe.Tokenizer(*trained(300), [END])
    tokenizer.save(tmp_path)
    (tmp_path / "vocab.json").chmod(0o664)
    before = files_of(tmp_path)
    calls = []

    def full_disk(descriptor):
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_disk)
        with pytest.raises(OSError, match="No space left on device: '.*json'"):
            bpe.Tokenizer(*trained(400), [END]).save(tmp_path)
    assert files_of(tmp_path) == before and len(before) == 3
    tokenizer.save(tmp_path)
    assert (tmp_path / "vocab.json").stat().st_mode & 0o777 == 0o664


def test_fewer_tokens_than_asked_is_a_note_and_main_leaves_the_process_as_it_was(main):
    def handler(number, frame):
        pass

    before, show = signal.signal(signal.SIGTERM, handler), warnings.showwarning
    try:
        status, _, stderr = main("words.txt", "5000")
        assert status == 0 and regex.search(r"(?m)^note: 2\d\d tokens, not 5,000", stderr)
        assert signal.getsignal(signal.SIGTERM) is handler and warnings.showwarning is show
    finally:
        signal.signal(signal.SIGTERM, before)
    statuses = []
    thread = threading.Thread(target=lambda: statuses.append(bpe.main(["words.txt", "262", "--quiet"])))
    thread.start()
    thread.join()
    assert statuses == [0]  # only the main thread can have handlers of signals


def test_progress_is_shown_on_a_terminal_and_not_in_a_file(tmp_path):
    pytest.importorskip("pty")
    (tmp_path / "corpus.txt").write_text(FIXTURE * 5, encoding="utf-8")
    command = [sys.executable, str(ROOT / "bpe.py"), "corpus.txt", "300", "--engine", "python"]
    assert b"\r" not in subprocess.run(command, capture_output=True, cwd=tmp_path, timeout=60).stderr
    status, shown = on_a_terminal(command, cwd=tmp_path)
    assert status == 0 and regex.search(r"\rbytes counted: [\d,]+ of [\d,]+\r", shown)


def test_the_progress_counts_each_item_and_its_line_is_cleared(monkeypatch, capsys):
    clock = itertools.count(1)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert list(bpe.with_progress("ab", "letters", 0)) == ["a", "b"]
    slices = [bpe.Slice("a.txt", 0, 1000), bpe.Slice("a.txt", 1000, 1500), bpe.Slice("", 0, 2, (b"abc", b"d"))]
    assert list(bpe.with_progress(slices, "bytes", 1504)) == slices
    expected = "letters: 1\rletters: 2\r\x1b[K\rbytes: 1,000 of 1,504\rbytes: 1,500 of 1,504\rbytes: 1,504 of 1,504\r\x1b[K"
    assert capsys.readouterr().err == f"\r{expected}"


@pytest.mark.parametrize("arguments", [
    "--show low --pattern cl100k", "--show low --special-token <a>", "--show low --workers 0", "--show low --encode ids.npy",
    "words.txt --encode ids.npy --pattern cl100k", "words.txt --encode ids.npy --no-special-tokens",
])  # fmt: skip
def test_options_of_training_are_refused_with_a_saved_model(main, arguments):
    assert main("words.txt", 262)[0] == 0
    status, _, stderr = main(*arguments.split())
    assert status == 2 and regex.fullmatch(r"error: --[a-z-]+ is not an option here\n", stderr)
    assert not os.path.exists("ids.npy")


@is_linux
@pytest.mark.parametrize("closed", ["2>&-", ">&-", "2>&- >&-"])
def test_a_closed_output_is_no_error(tmp_path, closed):
    (tmp_path / "words.txt").write_text(TEXTBOOK)
    command = f"{sys.executable} {ROOT / 'bpe.py'} words.txt 262 {closed} && {sys.executable} {ROOT / 'bpe.py'} --show low {closed}"
    assert subprocess.run(["sh", "-c", command], cwd=tmp_path).returncode == 0
    assert (tmp_path / "bpeModel/tokenizer.json").exists()


OPEN_AFTER_ERRORS = """
import contextlib, gc, os, sys, bpe
bpe.SLICE_BYTES = 20_000
tokenizer = bpe.Tokenizer({97: b"a"}, [])
gc.disable()
for _ in range(4):
    with contextlib.suppress(ValueError):
        tokenizer.encode_files(sys.argv[1], "ids.npy", workers=3, engine=sys.argv[2])
    print(len(os.listdir("/proc/self/fd")))
"""


@is_linux
@pytest.mark.parametrize("name", ["auto", "python"])  # "auto" is C if it is built
def test_an_error_of_a_worker_keeps_no_file_or_connection_open(tmp_path, name):
    """A variable with the error would keep its traceback, and so all that the call has, until garbage is collected.

    In a new process: packages that Dask imports put tracebacks into errors that come from another process.
    """
    command = [sys.executable, "-c", OPEN_AFTER_ERRORS, CORPUS, name]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    numbers = result.stdout.split()
    assert len(numbers) == 4 and len(set(numbers)) == 1, (numbers, result.stderr)


def test_a_corpus_that_cannot_be_read_is_named_and_not_the_output(tmp_path, monkeypatch):
    def fail(part):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(bpe.Slice, "read", fail)
    for call in (lambda: bpe.count_words(CORPUS), lambda: bpe.Tokenizer(*trained(300)).encode_files(CORPUS, tmp_path / "ids.npy")):
        with pytest.raises(OSError, match=r"corpus\.txt"):
            call()


def test_python_says_how_many_tokens_it_can_learn(monkeypatch):
    """Each token is a character, of which there are 1,114,112."""
    monkeypatch.setattr(sys, "maxunicode", 257)
    assert len(bpe.train_bpe(texts=["abc"], vocab_size=258)[1]) == 2
    with pytest.raises(OverflowError, match="^Python can't learn more than 258 tokens; the engine in C can$"):
        bpe.train_bpe(texts=["abcd"], vocab_size=259)


@is_linux
def test_outputs_that_are_no_files_are_left_alone(tmp_path):
    tokenizer = bpe.Tokenizer(*trained(300))
    os.mkfifo(tmp_path / "ids.npy")
    with pytest.raises(ValueError, match=r"ids\.npy is not a regular file$"):
        tokenizer.encode_files(CORPUS, tmp_path / "ids.npy")
    tokenizer.save(tmp_path / "model")
    before = {name: (tmp_path / "model" / name).read_bytes() for name in ("tokenizer.json", "vocab.json")}
    (tmp_path / "model/merges.txt").unlink()
    (tmp_path / "model/merges.txt").mkdir()
    with pytest.raises(ValueError, match=r"merges\.txt is a folder$"):
        bpe.Tokenizer(*trained(400)).save(tmp_path / "model")
    assert {name: (tmp_path / "model" / name).read_bytes() for name in before} == before
    assert sorted(os.listdir(tmp_path / "model")) == ["merges.txt", "tokenizer.json", "vocab.json"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, processes start one by one")
@pytest.mark.parametrize("n_started", [0, 1])
def test_where_processes_are_refused_those_that_started_do_the_work(monkeypatch, cut, n_started):
    cut(5000)
    fork = os.fork
    forks = []

    def refuse():
        forks.append(1)
        if len(forks) > n_started:
            raise BlockingIOError("Resource temporarily unavailable")
        return fork()

    monkeypatch.setattr(os, "fork", refuse)
    assert bpe.count_words(CORPUS, [END], workers=3) == words_of_the_fixture()
    assert len(forks) == n_started + 1 and not multiprocessing.active_children()


def test_of_two_bad_places_the_first_is_named_whichever_worker_is_faster(tmp_path, cut):
    cut(2000)
    path = tmp_path / "text.txt"
    path.write_bytes(b"word and word. " * 400 + b"\xff" + b"word and word. " * 400 + b"\xff")
    for _ in range(10):
        with pytest.raises(ValueError, match="not valid UTF-8 at byte 6000 "):
            bpe.count_words(path, workers=2)


@is_linux
def test_a_worker_of_another_pool_counts_alone(cut):
    cut(20_000)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(bpe.count_words, [CORPUS], {"workers": 2}) == bpe.count_words(CORPUS, workers=1)


def test_a_stream_is_cut_at_special_tokens_that_are_far_apart(monkeypatch):
    """With a custom pattern, only there: memory holds some documents of 100 KB, and not the whole stream."""
    tokenizer = bpe.Tokenizer(dict(enumerate(bpe.BYTES)), [], [END], r"\w+|\s+")
    lengths = []
    monkeypatch.setattr(bpe.Tokenizer, "encode", lambda self, text: lengths.append(len(text)) or [])
    blocks = itertools.repeat("word " * 20_000 + END, 40)
    assert list(tokenizer.encode_iterable(block[at : at + 700] for block in blocks for at in range(0, len(block), 700))) == []
    assert sum(lengths) == 40 * len("word " * 20_000 + END) and max(lengths) < 500_000


def test_a_file_that_becomes_shorter_while_it_is_read_is_an_error(tmp_path, monkeypatch):
    path = tmp_path / "text.txt"
    path.write_bytes(b"low")
    with pytest.raises(OSError, match="became shorter"):
        bpe.count_slice(bpe.Slice(str(path), 0, 4), "gpt2", ())
    monkeypatch.setattr(os.path, "getsize", lambda path: 4)
    with pytest.raises(OSError, match=r"^[^\[]*text.txt became shorter while it was read$"):
        bpe.Tokenizer(*trained(300)).encode_files(path, tmp_path / "ids.npy")


def test_two_threads_that_start_workers_leave_none_after_a_kill(cut, monkeypatch):
    """While one thread starts its workers, the other waits: their connections would stay open in each other's."""
    order, lock = [], bpe.STARTING

    class Lock:
        def __enter__(self):
            lock.acquire()
            order.append("starts")

        def __exit__(self, *_):
            order.append("has started")
            lock.release()

    cut(20_000)
    monkeypatch.setattr(bpe, "STARTING", Lock())
    threads = [threading.Thread(target=bpe.count_words, args=[CORPUS], kwargs={"workers": 2}) for _ in range(2)]
    for call in (threading.Thread.start, threading.Thread.join):
        for thread in threads:
            call(thread)
    assert order == ["starts", "has started"] * 2


def test_the_help_fits_on_a_screen_and_names_every_option(main, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    status, stdout, _ = main("--help")
    assert status == 0 and stdout.count("\n") <= 20 and max(map(len, stdout.splitlines())) <= 90
    assert set(regex.findall(r"(?m)^  (?:-h, )?(--[a-z-]+)", stdout)) == {
        "--help", "--special-token", "--no-special-tokens", "--pattern", "--workers", "--engine", "--model", "--encode", "--show",
        "--quiet", "--version",
    }  # fmt: skip


@is_linux
def test_a_process_that_is_forked_while_workers_start_counts_on_its_own(cut):
    """The fork waits: a lock that another thread has would be held in it for ever."""
    cut(20_000)
    starts, expected = threading.Event(), bpe.count_words(CORPUS, workers=1)

    def hold():
        with bpe.STARTING:
            starts.set()
            time.sleep(0.3)

    def count():
        os._exit(bpe.count_words(CORPUS, workers=2) != expected)

    thread = threading.Thread(target=hold)
    thread.start()
    starts.wait()
    process = multiprocessing.get_context("fork").Process(target=count)
    process.start()
    process.join(60)
    status = process.exitcode
    process.kill()
    thread.join()
    assert status == 0


def test_a_module_that_another_one_replaced_or_without_an_entry_in_sys_modules_counts_alone():
    """Processes could not find its functions by name, and the pool would wait for them forever."""
    spec = importlib.util.spec_from_file_location("bpe_twice", ROOT / "bpe.py")
    first = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(first)
    first.SLICE_BYTES = 20_000
    try:
        for _ in range(2):
            assert first.count_words(CORPUS, workers=2, engine="python") == bpe.count_words(CORPUS, workers=1)
            assert load_from(ROOT, "bpe_twice") is not first
    finally:
        sys.modules.pop("bpe_twice", None)


def test_the_folder_has_the_version_of_bpe_or_says_so_when_a_public_name_is_used(tmp_path):
    """A bpe.py of another version, as an assignment's folder may have one, would fail later, and somewhere else."""
    assert bpe.__version__ == bpe_more.__version__
    path, environment = tmp_path / "bpe.py", {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    for text, found in (((ROOT / "bpe.py").read_text("utf-8").replace(bpe.__version__, "0.8.0"), "0.8.0"), ("", "without a version")):
        path.write_text(text, encoding="utf-8")
        expected = f"ImportError: bpe_more {bpe_more.__version__} needs bpe.py {bpe_more.__version__}, but `import bpe` finds {found}: {path}"
        for arguments in (["-c", "import bpe_more; bpe_more.train_bpe"], ["-c", "from bpe_more import Tokenizer"], ["-m", "bpe_more", "--version"]):
            result = subprocess.run([sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True)
            assert result.returncode == 1 and result.stderr.splitlines()[-1] == expected, (arguments, result.stderr)
