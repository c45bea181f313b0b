"""The promises of bpe.py, one test for each. Run `pytest test_bpe.py`.

Expected values come from a hand calculation, a published example, another program, or from the oracle below.
`python test_bpe.py` writes the expected results in fixtures/ again, with the oracle.
"""

import array
import ast
import atexit
import bz2
import collections
import concurrent.futures
import contextlib
import copy
import functools
import gzip
import importlib
import importlib.machinery
import importlib.util
import io
import itertools
import json
import lzma
import multiprocessing
import os
import pathlib
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import tracemalloc
import types
import unicodedata
import warnings

import pytest
import regex

signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it, and their children would too
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it, and children would too
HERE = pathlib.Path(__file__).parent


def is_built():
    """Whether the C engine here is newer than its sources and loads without a warning."""
    library = HERE / f"_bpe_fast{importlib.machinery.EXTENSION_SUFFIXES[0]}"
    newest = max((HERE / name).stat().st_mtime for name in ("bpe_fast.c", "build_ffi.py"))
    if not library.exists() or library.stat().st_mtime <= newest:
        return False
    script = "import bpe; bpe.count_words(None, [], texts=['a'], engine='c')"
    # in another process, since a module is loaded only once
    result = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", script], capture_output=True, cwd=HERE)
    return result.returncode == 0


def prepare():
    """Return the folder to test, and why there is no C engine.

    It is this folder if its engine is up to date, else a copy in which one is built: testing leaves none behind.
    """
    if is_built():
        return HERE, ""
    copy = pathlib.Path(tempfile.mkdtemp(prefix="bpe-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    for name in ("bpe.py", "build_ffi.py", "bpe_fast.c"):
        shutil.copy(HERE / name, copy)
    built = subprocess.run([sys.executable, "build_ffi.py"], capture_output=True, text=True, cwd=copy)
    return HERE if built.returncode else copy, built.stderr


ROOT, BUILD_ERRORS = prepare()
sys.path.insert(0, str(ROOT))

import bpe  # noqa: E402 (the C engine is built first)

FIXTURES = HERE / "fixtures"
CORPUS = FIXTURES / "corpus.txt"
FIXTURE = CORPUS.read_bytes().decode()
END = "<|endoftext|>"
PART = END.join(FIXTURE.split(END)[3::7])  # 16 KB of many scripts, with line endings of both kinds
EXPECTED_SIZES = (300, 500, 2000)
CORPORA = os.environ.get("BPE_CORPORA")  # a folder with novels.txt, tinystories_2M.txt, ...: large real texts


# --- the oracle: slow, and obviously right ---------------------------------------------------------------------------

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def naive_words(text, special_tokens=(), pattern=GPT2):
    """{word as a tuple of one-byte tokens: count}."""
    longest_first = sorted(special_tokens, key=len, reverse=True)
    pieces = regex.split("|".join(regex.escape(token) for token in longest_first), text) if special_tokens else [text]
    matches = [match[0].encode() for piece in pieces for match in regex.finditer(pattern, piece)]
    return collections.Counter(tuple(bytes([byte]) for byte in word) for word in matches)


def naive_merge(word, pair):
    if pair[0] not in word:  # true for most words; makes the oracle three times faster
        return word
    merged, at = [], 0
    while at < len(word):
        if word[at : at + 2] == pair:
            merged.append(word[at] + word[at + 1])
            at += 2
        else:
            merged.append(word[at])
            at += 1
    return tuple(merged)


def naive_counts(words):
    """How often each pair of neighbors occurs."""
    counts = collections.Counter()
    for word, count in words.items():
        for pair in zip(word, word[1:]):
            counts[pair] += count
    return counts


def naive_train(words, vocab_size, special_tokens=()):
    """Recount every pair in every round and merge the greatest (count, left bytes, right bytes)."""
    vocab = [bytes([byte]) for byte in range(256)] + [token.encode() for token in special_tokens]
    merges = []
    while len(vocab) < vocab_size and (counts := naive_counts(words)):
        best = max(counts, key=lambda pair: (counts[pair], pair))
        words = {naive_merge(word, best): count for word, count in words.items()}
        merges.append(best)
        vocab.append(best[0] + best[1])
    return dict(enumerate(vocab)), merges


@functools.cache
def oracle(text, vocab_size, special_tokens=()):
    """The expected (vocab, merges) for text, computed once for both engines."""
    return naive_train(naive_words(text, special_tokens), vocab_size, special_tokens)


@functools.cache
def words_of_the_fixture():
    """{word: count} for the fixture, by the oracle."""
    return {b"".join(word): count for word, count in naive_words(FIXTURE, [END]).items()}


def naive_encode(word, vocab, merges):
    """Apply each merge in turn to the whole word."""
    tokens = tuple(bytes([byte]) for byte in word)
    for merge in merges:
        tokens = naive_merge(tokens, merge)
    ids = {token: token_id for token_id, token in vocab.items()}
    return [ids[token] for token in tokens]


def naive_files(vocab, merges):
    """GPT-2's vocab.json (as an object) and merges.txt (as text), from its published table of bytes."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    table = {byte: chr(byte) for byte in visible}
    for byte in range(256):
        table.setdefault(byte, chr(256 + len(table) - len(visible)))
    show = lambda token: "".join(table[byte] for byte in token)  # noqa: E731
    ids = {show(token): token_id for token_id, token in vocab.items()}
    return ids, "#version: 0.2\n" + "".join(f"{show(left)} {show(right)}\n" for left, right in merges)


def write_expected():
    for size in EXPECTED_SIZES:
        ids, merges = naive_files(*oracle(FIXTURE, size, (END,)))
        folder = FIXTURES / f"vocab{size}"
        folder.mkdir(exist_ok=True)
        with open(folder / "vocab.json", "w", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(ids, ensure_ascii=False, indent=0) + "\n")
        with open(folder / "merges.txt", "w", encoding="utf-8", newline="\n") as file:
            file.write(merges)


# --- helpers ---------------------------------------------------------------------------------------------------------

C, WHY_NO_C = bpe.find_engine()

ENGINES = ["python", "c"] if C or os.environ.get("BPE_REQUIRE_C") else ["python"]


@pytest.fixture(params=ENGINES, autouse=True)
def engine(request, monkeypatch):
    """Run every test twice, with the C engine and as if it were not built. Without one, the runs with C are skipped."""
    if request.param == "python":
        monkeypatch.setattr(bpe, "find_engine", lambda: (None, "the C engine is not built: python build_ffi.py builds one"))
    elif C is None:
        reason = (BUILD_ERRORS.strip().splitlines() or [WHY_NO_C])[-1]
        if os.environ.get("BPE_REQUIRE_C"):
            pytest.fail(f"BPE_REQUIRE_C is set, and there is no C engine: {reason}")
        pytest.skip(f"no C engine: {reason}")
    return request.param

only_python = pytest.mark.parametrize("engine", ["python"], indirect=True)  # tests of worker processes, or that no engine takes part in

only_c = pytest.mark.parametrize("engine", ["c"], indirect=True)

pytestmark = pytest.mark.filterwarnings("ignore:the pattern leaves out")  # tested once
needs_corpora = pytest.mark.skipif(not CORPORA, reason="BPE_CORPORA names no folder with large texts")


def need(name):
    """Import a package; if it is missing, the test is skipped, and in CI it fails."""
    if os.environ.get("BPE_REQUIRE_PACKAGES"):
        return importlib.import_module(name)
    return pytest.importorskip(name, reason=f"compares with {name}, which is not installed")


def summary(stderr):
    """{"read": "95 bytes, ...", ...}"""
    return {line[:14].strip(): line[15:] for line in stderr.splitlines()}

TEXTBOOK = "low low low low low\nlower lower widest widest widest\nnewest newest newest newest newest newest\n"

WIDE = "".join(
    chr(c) for low, high in [(0, 0x250), (0x300, 0x520), (0x600, 0x6FF), (0x900, 0x97F), (0x2000, 0x206F), (0x3000, 0x30FF),
                             (0x4E00, 0x4E80), (0xAC00, 0xAC40), (0x1F300, 0x1F680), (0xE0020, 0xE0040)]
    for c in range(low, high)
)  # fmt: skip

TRICKY = ["a", "b", "Z", "s", "l", "'", " ", " ", "\t", "\n", "\r\n", "\r", "1", "9", ".", "!", "/", "\u00a0", "\u3000", "\u0301",
          "字", "é", "😀", "\u200d", "'ll", "<", "<|", "|>", "\x1c", "\x85", "\u2028"]  # fmt: skip

SPECIAL_SETS = [[], ["\r\n"], ["<x>\r"], [END], ["a a"], ["<a>", "<a><b>"], [" \n", "\n\n"], ["aa", "a\n", "\r\n\r\n"], ["\n<x>"]]

BAD_UTF8 = [b"\xff", b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe5\xad", b"\x80", b"\xf8"]

TEXTS = [
    "", "a", " ", "\n", "  \n\n  ", "Hello, world! I'll say it's 1234567 times.", f"a{END}{END}b {END} c", "tab\t\ttab \r\n x",
    "don'T DON'T don't 'tis '' ' 'l 'll'll", "日本語 中文　한국어", "👨\u200d👩\u200d👧 🇵🇹 👍🏽", "e\u0301 \u00e9 ﬁ ß ſ", "x" * 300, " " * 300 + "x", "!?" * 99,
    "\x00\x01\x1c\x85\xa0\u2028\u3000 .", "a\u0300\u0301\u0302", "１２３ ²½ ٣٤ Ⅻ", "CamelCaseHTMLParser's/\n/", "...\n\n...  \n ...\r\n\t",
]

# `regex` follows Unicode faster than the packages it is compared with, so random text for them consists of characters in
# this Python's older Unicode; test_only_new_characters_are_left_out_of_random_text shows that nothing else is left out.
KNOWN = [c for c in map(chr, range(0x110000)) if unicodedata.category(c) not in ("Cn", "Cs")]


def random_text(rng, alphabet, length):
    return "".join(rng.choice(alphabet) for _ in range(length))


def nested(rng, special_tokens):
    """Random text in which special tokens touch, nest and overlap."""
    halves = [half for token in special_tokens for half in (token, token[: len(token) // 2], token[len(token) // 2 :])]
    return random_text(rng, [*TRICKY, *rng.choices(KNOWN, k=5), *halves, "the", " the", "'LL", "123", "x" * 70], rng.randint(0, 60))


def split_anywhere(rng, text):
    cuts = sorted(rng.choices(range(len(text) + 1), k=rng.randint(0, 12)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)])]


@pytest.fixture
def train(tmp_path):
    """train(text or bytes, vocab_size, special_tokens, **options) -> (vocab, merges), through a file."""

    def call(text, vocab_size, special_tokens=(), **options):
        path = tmp_path / "text.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return bpe.train_bpe(path, vocab_size, list(special_tokens), **options)

    return call


@pytest.fixture(scope="session")
def part(tmp_path_factory):
    """The path of PART, for tests of files and options that more text would not improve."""
    path = tmp_path_factory.mktemp("part") / "part.txt"
    path.write_bytes(PART.encode())
    return path


def trainer_of(words, vocab_size, special_tokens=(), **options):
    """A trainer for counted words, before its first merge."""
    return bpe.Trainer(bpe.Words(words), bpe.check_options(special_tokens, vocab_size=vocab_size, **options))


def steps(words, vocab_size, special_tokens=(), **options):
    """Train on counted words; returns [(left, right, count), ...]."""
    return list(trainer_of(words, vocab_size, special_tokens, **options))


@functools.cache
def trained(size, pattern="gpt2", like=None, special_tokens=(END,)):
    path = pathlib.Path(CORPORA) / "languages.txt" if CORPORA and size > 5000 else CORPUS
    return bpe.train_bpe(path, size, special_tokens, pattern=pattern, like=like)


def words_in(text, special_tokens=(), pattern="gpt2"):
    """{word: count} for text, with words as str."""
    counts = bpe.count_words(None, list(special_tokens), texts=[text], pattern=pattern)
    return {word.decode(): count for word, count in counts.items()}


def model_in(folder):
    """(vocab, merges) of the model in a folder."""
    tokenizer = bpe.Tokenizer.load(folder)
    return tokenizer.vocab, tokenizer.merges


def files_of(folder):
    return {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}


def edit(path, change):
    path.write_bytes(change(path.read_bytes()))


def read_ids(path, kind=None):
    """Read (kind, ids) from a .npy file or, given a kind ("u2" or "u4"), from bare bytes, without bpe.py or NumPy."""
    data = path.read_bytes()
    if kind is None:
        assert data[:10] == b"\x93NUMPY\x01\0v\0" and data[127:128] == b"\n"
        header, data = ast.literal_eval(data[10:128].decode()), data[128:]
        kind = header["descr"].lstrip("<>")
        assert header == {"descr": ("<" if sys.byteorder == "little" else ">") + kind, "fortran_order": False, "shape": (len(data) // int(kind[1]),)}
    return kind, array.array({"u2": "H", "u4": "I"}[kind], data).tolist()


@pytest.fixture
def small_slices(monkeypatch):
    """Cut every file into slices of a few bytes."""
    monkeypatch.setattr(bpe, "SLICE_BYTES", 7)
    monkeypatch.setattr(bpe, "WINDOW_BYTES", 11)


def wait_for(event, seconds=30):
    """Wait until event() is true, for a limited time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError):  # a temporary file that has just gone
            if event():
                return
        time.sleep(0.01)


def one_line(stderr):
    """Check that an error is one line without a traceback, and return it as str."""
    text = stderr.decode()
    assert text.count("\n") == 1 and "Traceback" not in text, text
    return text


def run(*arguments, cwd=None, **options):
    """Run the command line in this process or, with any option of subprocess.run, in another one."""
    arguments = list(map(str, arguments))
    if "--show" not in arguments:
        arguments += ["--engine", "c" if bpe.find_engine()[0] else "python"]
    if options:
        command = [sys.executable, str(ROOT / "bpe.py"), *arguments]
        return subprocess.run(command, input=options.pop("stdin", None), cwd=cwd, capture_output=True, timeout=60, **options)
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
    before, showwarning = os.getcwd(), warnings.showwarning
    try:
        os.chdir(cwd or before)
        with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
            status = bpe.main(arguments)
    except SystemExit as stop:  # --help
        status = stop.code
    finally:
        os.chdir(before)
        warnings.showwarning = showwarning
    return subprocess.CompletedProcess(arguments, status, *(stream.buffer.getvalue() for stream in streams))


@pytest.fixture
def words_txt(tmp_path, monkeypatch):
    """Make a temporary folder with the README's words.txt the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.txt").write_text(TEXTBOOK)
    return tmp_path


@pytest.fixture
def main(words_txt, monkeypatch, capsys):
    """main(*arguments) -> (exit status, standard output, standard error), in the folder of words.txt."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # main replaces it

    def call(*arguments):
        try:
            status = bpe.main([str(argument) for argument in arguments])
        except SystemExit as stop:
            status = stop.code
        return status, *capsys.readouterr()

    return call


@pytest.fixture
def error(main):
    """error(*arguments) -> the one line printed by a command line that fails with status 2."""

    def call(*arguments):
        status, _, stderr = main(*arguments)
        assert status == 2 and stderr.startswith("error: ") and stderr.count("\n") == 1, (status, stderr)
        return stderr.strip()

    return call


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shell(script, *arguments, **options):
    """Run a shell script in which "$@" is the command line of bpe.py with arguments."""
    command = [sys.executable, str(ROOT / "bpe.py"), *map(str, arguments)]
    return subprocess.run(["sh", "-c", script, "sh", *command], capture_output=True, timeout=60, **options)


def shells(script, *commands):
    """Call shell() for several command lines at the same time."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda arguments: shell(script, *arguments), commands))


def call_in_script(tmp_path, script):
    path = tmp_path / "script.py"
    path.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n" + textwrap.dedent(script))
    return subprocess.run([sys.executable, str(path)], capture_output=True, timeout=180)


def limit_files(n_bytes):
    """Limit the size of files, as a full disk would."""
    import resource

    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))


def limit_memory(n_bytes):
    import resource

    return lambda: resource.setrlimit(resource.RLIMIT_AS, (n_bytes, n_bytes))


def running():
    """{process id: parent process id} for all running processes."""
    if os.path.isdir("/proc/self"):
        stats = []
        for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it has just ended
                stats.append(f"{path.parent.name} {path.read_text().rpartition(')')[2]}".split()[:3])
    else:
        listed = subprocess.run(["ps", "-A", "-o", "pid=,stat=,ppid="], capture_output=True, text=True).stdout
        stats = map(str.split, listed.splitlines())
    return {int(pid): int(parent) for pid, state, parent in stats if state[0] not in "ZX"}


def children_of(pid):
    """The ids of the child processes of a process."""
    return [child for child, parent in running().items() if parent == pid]


def all_end(pids, seconds):
    """Whether the processes end within some seconds."""
    wait_for(lambda: running().keys().isdisjoint(pids), seconds)
    return running().keys().isdisjoint(pids)


# --- I. The lesson ---------------------------------------------------------------------------------------------------


@functools.cache
def lesson():
    """The functions of Part I, compiled from its source alone."""
    part = (ROOT / "bpe.py").read_text(encoding="utf-8").split("# I. The lesson", 1)[1].split("# II. ", 1)[0]
    names = {}
    exec("from __future__ import annotations\nimport collections, regex\n" + part.split("\n", 1)[1], names)
    return types.SimpleNamespace(**names)


def letters(word):
    """letters("ab") -> (b"a", b"b")"""
    return tuple(bytes([byte]) for byte in word.encode())


@only_python
def test_part_one_cuts_a_text_into_words():
    expected = {"It": 1, "'s": 1, " ": 1, " new": 1, "\n": 2, "x": 1, "1": 1, "!": 1}  # by hand, with GPT-2's pattern
    assert lesson().words_of("It's  new\n\nx1!") == {letters(word): count for word, count in expected.items()}
    assert lesson().words_of("字字") == {(b"\xe5", b"\xad", b"\x97", b"\xe5", b"\xad", b"\x97"): 1} and lesson().words_of("") == {}
    text = FIXTURE
    assert lesson().words_of(text) == naive_words(text)


@only_python
def test_part_one_counts_every_position():
    count_pairs = lesson().count_pairs
    assert count_pairs({letters("aaaa"): 1, letters("ab"): 5, letters("x"): 7}) == {(b"a", b"a"): 3, (b"a", b"b"): 5}
    assert count_pairs({(b"ab", b"a", b"b"): 2, letters("aab"): 1}) == {(b"ab", b"a"): 2, (b"a", b"b"): 3, (b"a", b"a"): 1}
    assert count_pairs({}) == {}


@only_python
@pytest.mark.parametrize("word, pair, merged", [
    ("a a a a", "a a", "aa aa"), ("a a a b", "a a", "aa a b"), ("a a a a a", "a a", "aa aa a"), ("a b a b", "a b", "ab ab"),
    ("a b a b", "b a", "a ba b"), ("ab a b", "a b", "ab ab"), ("a b c", "a c", "a b c"), ("ab", "a b", "ab"),
])  # fmt: skip
def test_part_one_merges_from_the_left_without_overlap(word, pair, merged):
    word, pair, merged = (tuple(token.encode() for token in tokens.split()) for tokens in (word, pair, merged))
    assert lesson().merge_pair(word, pair) == merged


@only_python
def test_part_one_trains():
    train_by_definition, words = lesson().train_by_definition, {letters(w): n for w, n in [("low", 5), ("lower", 2), ("widest", 3), ("newest", 6)]}
    merges = train_by_definition(words, 12)
    expected = "s t, e st, o w, l ow, w est, n e, ne west, w i, wi d, wid est, low e, lowe r"
    assert ", ".join(f"{left.decode()} {right.decode()}" for left, right in merges) == expected
    assert train_by_definition(words, 3) == merges[:3] and train_by_definition(words, 0) == []
    assert train_by_definition({letters("aaaa"): 1}, 10) == [(b"a", b"a"), (b"aa", b"aa")]  # no pair is left
    # pairs are compared, not the tokens they would make: (ab, a) is above (a, bz), although "abz" is above "aba"
    assert train_by_definition({(b"ab", b"a"): 1, (b"a", b"bz"): 1}, 1) == [(b"ab", b"a")]
    assert train_by_definition({letters("ab"): 1, letters("ac"): 1, (b"a", b"bb"): 1}, 3) == [(b"a", b"c"), (b"a", b"bb"), (b"a", b"b")]


@only_python
@pytest.mark.parametrize("word, merges, tokens", [
    ("abcd", "b c, a b, bc d", "a bcd"), ("newest", "s t, e st, o w, l ow, w est, n e", "ne west"), ("aaaaa", "a a, aa aa", "aaaa a"),
    ("abc", "a b, b c", "ab c"), ("abc", "b c, a b", "a bc"), ("abab", "a b, ab ab", "abab"), ("xyz", "a b", "x y z"), ("a", "a a", "a"),
])  # fmt: skip
def test_part_one_encodes_with_the_merges_in_their_order(word, merges, tokens):
    merges = [tuple(token.encode() for token in pair.split()) for pair in merges.split(", ")]
    expected = tokens.encode().split()
    assert list(lesson().encode_by_definition(letters(word), merges)) == expected
    vocab = dict(enumerate([bytes([byte]) for byte in range(256)] + [left + right for left, right in merges]))
    ids = bpe.Tokenizer(vocab, merges).encode(word)
    assert [vocab[token_id] for token_id in ids] == expected  # and so does Tokenizer


def test_the_examples_in_the_docstrings():
    import doctest

    assert doctest.testmod(bpe).failed == 0 and doctest.testmod(bpe).attempted > 3


# --- II. The same, fast ----------------------------------------------------------------------------------------------


def test_part_one_and_the_rest_learn_the_same(train):
    text = FIXTURE[:12_000].replace(END, "")
    merges = lesson().train_by_definition(lesson().words_of(text), 60)
    assert len(merges) == 60 and train(text, 256 + 60)[1] == merges


def test_encoding_makes_the_merges_in_their_order():
    vocab, merges = trained(1000)
    tokenizer = bpe.Tokenizer(vocab, merges)
    rng = random.Random(1)
    words = sorted(set(regex.findall(GPT2, FIXTURE)))
    for word in rng.sample(words, 200) + [random_text(rng, "aeinst", length) for length in (1, 2, 15, 16, 17, 40, 64, 65, 90, 200)]:
        assert tokenizer.encode(word) == naive_encode(word.encode(), vocab, merges), word


TRICKY_MERGES = [(b"ab", b"c"), (b"a", b"b")]  # "abc": rank gives ab c, then abc; replaying gives ab c


def with_merges(merges):
    """A vocabulary of bytes and the tokens of some merges."""
    tokens = dict.fromkeys([*(bytes([byte]) for byte in range(256)), *(token for pair in merges for token in (*pair, b"".join(pair)))])
    return dict(enumerate(tokens))


@only_python
def test_merges_in_an_impossible_order_are_an_error():
    with pytest.raises(ValueError, match=r"merge 1\b.*b'a'.*b'b'"):
        bpe.Tokenizer(with_merges(TRICKY_MERGES), TRICKY_MERGES)
    twice = [(b"a", b"b"), (b"b", b"c"), (b"ab", b"c"), (b"a", b"bc"), (b"abc", b"d")]  # no merge takes abc before both have made it
    assert bpe.Tokenizer(with_merges(twice), twice).encode("abcd") == [b for b, token in with_merges(twice).items() if token == b"abcd"]


def test_rank_and_replay_agree_for_every_list_of_merges_that_is_accepted():
    """Refused are only lists in which a merge makes a token that an earlier merge took."""
    rng, seen = random.Random(7), collections.Counter()
    words = [letters("".join(word)) for length in range(1, 7) for word in itertools.product("ab", repeat=length)]
    for _ in range(300):
        tokens, merges = [b"a", b"b"], []
        for _ in range(rng.randint(1, 6)):
            pair = rng.choice(tokens), rng.choice(tokens)
            if pair not in merges and len(b"".join(pair)) < 6:
                merges.append(pair)
                tokens.append(b"".join(pair))
        if rng.random() < 0.5:
            rng.shuffle(merges)
        taken = [token for pair in merges for token in pair]
        possible = all(left + right not in taken[: 2 * rank] for rank, (left, right) in enumerate(merges))
        seen[possible] += 1
        vocab = with_merges(merges)
        if not possible:
            pytest.raises(ValueError, bpe.Tokenizer, vocab, merges)
            continue
        tokenizer = bpe.Tokenizer(vocab, merges)
        for word in rng.sample(words, 20):
            ids = tokenizer.encode(b"".join(word).decode())
            assert tuple(vocab[token_id] for token_id in ids) == lesson().encode_by_definition(word, merges), (word, merges)
    assert min(seen.values()) > 30


# On characters, as in Sennrich et al. 2016: words are what stands between spaces, and their last character carries </w>.


def naive_characters(words, merges_wanted):
    """The merges of {word: count}, by the oracle."""
    spelled = {(*(c.encode() for c in word[:-1]), word[-1].encode() + b"</w>"): n for word, n in words.items() if n}
    return [(left.decode(), right.decode()) for left, right in naive_train(spelled, 256 + merges_wanted)[1]]


@only_python
def test_the_classic_example_on_characters():
    """Sennrich et al. 2016; the merges from s t</w> on were worked out by hand."""
    merges = bpe.learn_characters(collections.Counter(bpe.split_at_spaces(TEXTBOOK)), 12)
    expected = "s t</w>, e st</w>, l o, w est</w>, n e, ne west</w>, lo w</w>, w i, wi d, wid est</w>, w e, we r</w>"
    assert ", ".join(map(" ".join, merges)) == expected
    assert bpe.segment("lowest newest", merges) == ["lo", "west</w>", "newest</w>"]
    assert bpe.segment("low low", merges) == ["low</w>", "low</w>"]
    assert bpe.segment("", merges) == bpe.segment(" \n", merges) == [] and bpe.segment("x", []) == ["x</w>"]
    assert len(bpe.learn_characters({"low": 5}, 100)) == 2 and bpe.learn_characters({}, 5) == bpe.learn_characters({"ab": 1}, 0) == []


@only_python
def test_words_on_characters_are_between_spaces_and_line_endings():
    assert bpe.split_at_spaces("  low  lower\r\n\n \r new\ttoken a\rb\r \nx\u00a0y\v ") == ["low", "lower", "new\ttoken", "a\rb", "x\u00a0y\v"]
    rng = random.Random(3)
    for _ in range(300):
        text = random_text(rng, [*"ab   \n\r\t\v\u00a0\u2028", "\r\n"], rng.randint(0, 40))
        expected = [word for line in text.split("\n") for word in line.strip("\r\n ").split(" ") if word]
        assert bpe.split_at_spaces(text) == expected, text


@only_python
@pytest.mark.parametrize("seed", range(16))
def test_merges_of_characters_are_those_of_the_oracle(seed):
    rng = random.Random(seed)
    text = random_text(rng, [*rng.choices(WIDE, k=5), *"ab  \n\t\v\u00a0", "\r\n", "\r"], rng.randint(1, 250))
    words = collections.Counter(bpe.split_at_spaces(text))
    words["zero"] = 0  # as in Counters that were subtracted
    merges = bpe.learn_characters(words, 60)
    assert merges == naive_characters(words, 60)
    expected = []
    for word in bpe.split_at_spaces(text):
        tokens = (*word[:-1], word[-1] + "</w>")
        for pair in merges:
            tokens = naive_merge(tokens, pair)
        expected += tokens
    assert bpe.segment(text, merges) == expected


@only_python
@pytest.mark.parametrize("name", ["corpus.txt", "random", pytest.param("novels.txt", marks=needs_corpora)])
def test_merges_and_segments_of_characters_are_those_of_subword_nmt(name):
    need("subword_nmt")
    from subword_nmt import apply_bpe, learn_bpe

    rng, frequent = random.Random(name), 1 if name == "random" else 2
    if name == "random":  # in words it has no other whitespace, which subword-nmt takes for a space now and then
        texts = [random_text(rng, [*"abcé字 \n", " \r\n", "ab "], rng.randint(20, 200)) + " ab" for _ in range(60)]
    else:
        path = CORPUS if name == "corpus.txt" else pathlib.Path(CORPORA) / name
        texts = [path.read_bytes()[: 50_000 if path == CORPUS else 5_000_000].decode(errors="ignore").replace(END, "")]
    for text in texts:
        lines, codes = [line + "\n" for line in text.split("\n")], io.StringIO()
        learn_bpe.learn_bpe(lines, codes, {"random": 30, "corpus.txt": 300}.get(name, 800), min_frequency=frequent)
        theirs = [tuple(line.split(" ")) for line in codes.getvalue().split("\n")[1:-1]]
        merges = bpe.learn_characters(collections.Counter(bpe.split_at_spaces(text)), len(theirs))
        assert merges == theirs
        codes.seek(0)
        encoder = apply_bpe.BPE(codes)
        for start in range(0, 500, 50):
            segments = " ".join(encoder.segment(line.strip("\r\n ")) for line in lines[start : start + 50]).split(" ")
            undone = [part[:-2] if part.endswith("@@") else part + "</w>" for part in segments if part]
            assert bpe.segment("".join(lines[start : start + 50]), merges) == undone


@only_python
def test_bad_words_and_merges_of_characters_are_errors():
    with pytest.raises(ValueError, match=r"'a</w>b'"):
        bpe.learn_characters({"ab": 1, "a</w>b": 2}, 5)
    with pytest.raises(ValueError, match=r"'a</w>b'"):
        bpe.segment("x a</w>b", [("a", "b")])
    with pytest.raises(ValueError, match=r"'l', 'o'"):
        bpe.segment("low", [("l", "o"), ("lo", "w</w>"), ("l", "o")])


def test_one_long_word(train, engine):
    """A merge costs as much as it changes, however long a word is (2 MB in C, 100 KB in Python)."""
    rng = random.Random(8)
    text = "".join(rng.choices("abcdefghijkl", k=2_000_000 if engine == "c" else 100_000))
    start = time.process_time()
    merges = train(text, 1000)[1]
    assert len(merges) == 744 and time.process_time() - start < 5


@pytest.mark.parametrize("text", ["a" * 50_000, "ab" * 25_000, "the quick " * 2_000 + "x" * 50_000, " " * 50_000], ids=["a", "ab", "quick", "spaces"])
def test_long_words_do_not_take_quadratic_time(text):
    tokenizer = bpe.Tokenizer(*trained(2000), [END])
    start = time.process_time()
    ids = tokenizer.encode(text)
    assert list(tokenizer.encode_iterable(text)) == ids
    assert time.process_time() - start < 2 and tokenizer.decode(ids) == text


# --- III. Training: the rule -----------------------------------------------------------------------------------------


def test_the_small_example(train):
    vocab, merges = train("aa bb aa", 258)
    assert merges == [(b"a", b"a"), (b"b", b"b")]
    assert vocab == {**{byte: bytes([byte]) for byte in range(256)}, 256: b"aa", 257: b"bb"}


def test_the_textbook_example(train):
    """Worked by hand; the first six merges are in a published course handout."""
    _, merges = train(TEXTBOOK, 268, pattern=r"\S+")
    expected = "s t, e st, o w, l ow, w est, n e, ne west, w i, wi d, wid est, low e, lowe r"
    assert ", ".join(f"{left.decode()} {right.decode()}" for left, right in merges) == expected
    newest = tuple(bytes([byte]) for byte in b"newest")
    for pair in merges[:6]:
        newest = naive_merge(newest, pair)
    assert newest == (b"ne", b"west")


@pytest.mark.parametrize("words, merges", [
    ({"ab": 1, "cd": 1}, "c d"), ({"ba": 1, "bc": 1}, "b c"),  # by hand: the left bytes decide, then the right ones
    # not the concatenation: as pairs (ac, b) is above (a, cc), although "acc" > "acb"
    ({"cc": 100, "ac": 90, "acb": 5, "acc": 5}, "c c, a c, ac b"),
    # not GPT-2's printable characters: "z" (0x7a) is above " " (printable "Ġ", U+0120), 0xff ("ÿ") above 0xa0 ("ł")
    ({" q": 1, "zq": 1}, "z q"), ({"\xa0a": 1, "\xffa": 1}, "\xff a"),
])  # fmt: skip
def test_ties_go_to_the_greater_pair_of_bytes(words, merges):
    merges = [tuple(token.encode("latin-1") for token in pair.split()) for pair in merges.split(", ")]
    counts = {word.encode("latin-1"): count for word, count in words.items()}
    assert bpe.train_from_counts(counts, 256 + len(merges))[1] == merges


def test_runs_are_counted_by_position_and_replaced_from_the_left():
    assert steps({b"aaaa": 1}, 300) == [(b"a", b"a", 3), (b"aa", b"aa", 1)]
    assert steps({b"aaa": 5}, 300) == [(b"a", b"a", 10), (b"aa", b"a", 5)]
    assert steps({b"aaaaa": 1}, 300) == [(b"a", b"a", 4), (b"aa", b"aa", 1), (b"aaaa", b"a", 1)]


def test_ids_are_bytes_then_special_tokens_then_merges(train):
    vocab, merges = train("aa aa bb", 260, ["<one>", "<two>"])
    assert [vocab[i] for i in (0, 255, 256, 257, 258)] == [b"\0", b"\xff", b"<one>", b"<two>", b"aa"]
    assert list(vocab) == list(range(len(vocab)))
    assert [left + right for left, right in merges] == [vocab[i] for i in range(258, len(vocab))]


def test_no_token_contains_a_piece_of_a_special_token(train):
    text = f"Hello!{END}World" * 50
    vocab, merges = train(text, 300, [END])
    assert [token for token in vocab.values() if b"<|" in token] == [END.encode()]
    assert not any(b"<" in left + right or b"!W" in left + right for left, right in merges)


@pytest.mark.parametrize("special", ["a a", "[x]", "(.*)", "a|b", "\n", " \n ", "\\d+", "^", "é", "字字", "😀", "$$"])
def test_any_text_can_be_a_special_token(train, special):
    if len(special.encode()) == 1:
        pytest.raises(ValueError, train, "x", 300, [special])
        return
    text = f"some {special}{special}text {special} here a a a a a b"
    vocab, merges = train(text, 300, [special])
    assert (vocab, merges) == oracle(text, 300, (special,))


# --- III. Training: both engines against the oracle ------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_random_corpora_full_of_ties_and_runs(train, seed):
    rng = random.Random(seed)
    text = random_text(rng, "ab cd"[: rng.randint(2, 5)] + " ", rng.randint(0, 300))
    assert train(text, 330) == oracle(text, 330)


@pytest.mark.parametrize("seed", range(20))
def test_random_unicode(train, seed):
    rng = random.Random(seed)
    text = random_text(rng, rng.choices(WIDE, k=rng.randint(2, 60)) + TRICKY + [END], rng.randint(1, 600))
    assert train(text, 400, [END]) == oracle(text, 400, (END,))


@pytest.mark.parametrize("seed", range(10))
def test_long_words(train, seed):
    rng = random.Random(seed)
    text = random_text(rng, "ab" if seed % 2 else "abcdefg", 1500)
    assert train(text, 400) == oracle(text, 400)


@functools.cache
def words_of_all_kinds(seed):
    """Random words with counts, and the (vocab, merges) the oracle learns from them."""
    rng = random.Random(seed)
    letters = bytes(rng.choices(range(256), k=rng.randint(1, 5)))
    words = {bytes(rng.choices(letters, k=rng.randint(1, rng.choice([3, 12, 60])))): rng.randint(1, rng.choice([2, 5, 5000]))
             for _ in range(rng.randint(0, 60))}  # fmt: skip
    naive = collections.Counter({tuple(bytes([byte]) for byte in word): count for word, count in words.items()})
    return words, naive_train(naive, 400)


@pytest.mark.parametrize("seed", range(40))
def test_learners_agree_with_the_oracle_on_words_of_all_kinds(seed):
    words, expected = words_of_all_kinds(seed)
    assert bpe.train_from_counts(words, 400) == expected


def test_counts_near_the_limit_are_exact():
    words = {b"ab": 2**62, b"cd": 2**62 + 1, b"ef": 2**62 - 1, b"xef": 2**62}
    assert steps(words, 300) == [
        (b"e", b"f", 2**63 - 1), (b"c", b"d", 2**62 + 1), (b"x", b"ef", 2**62), (b"a", b"b", 2**62)
    ]  # fmt: skip


def fold(a, b):
    """The two halves of a product of two 64-bit numbers, xored: the hash of the C engine's tables."""
    return (a * b ^ a * b >> 64) & 2**64 - 1


def colliding_counts(n):
    """Counts below 2**46 that land close together in a table of the C engine whose seed is 0, not a secret.

    Multiples of `step`, which Euclid's algorithm finds, change only the lower bits of the hash.
    """
    first = fold(0x9E3779B97F4A7C15, 2 * 0x9E3779B97F4A7C15 & 2**64 - 1) | 1
    factor = fold(first ^ 0x9E3779B97F4A7C15, 3 * 0x9E3779B97F4A7C15 & 2**64 - 1 ^ first)
    (larger, above), (move, step) = (2**64, 0), (factor & ~1, 1)
    while larger // move * step + above < 2**32:
        quotient = larger // move
        (larger, above), (move, step) = (move, step), (larger % move, above + quotient * step)
    rng, low, counts, factor = random.Random(n), first & 2**46 - 1, set(), factor & ~1
    while len(counts) < n:
        start = rng.randrange(2**44)
        if fold(start ^ first, factor) >> 52 == 0:
            numbers = ((start ^ low) + step * i for i in range(4096))
            counts |= {x ^ low for x in numbers if x < 2**46 and fold(x ^ low ^ first, factor) >> 50 == 0}
    return sorted(counts)[:n]


def test_chosen_counts_cost_what_other_counts_cost():
    def seconds(counts):
        words, times = {b"%05d" % number: count for number, count in enumerate(counts)}, []
        for _ in range(3):
            start = time.process_time()  # CPU time, so other processes do not matter
            bpe.train_from_counts(words, 257)
            times.append(time.process_time() - start)
        return min(times)

    others = random.Random(1).sample(range(1, 2**46), 10_000)
    assert seconds(colliding_counts(10_000)) < 4 * seconds(others)


def test_the_fixture_live():
    assert bpe.train_bpe(CORPUS, 265, [END]) == oracle(FIXTURE, 265, (END,))


@pytest.mark.parametrize("size", EXPECTED_SIZES)
def test_the_fixture_as_stored(size, tmp_path):
    vocab, merges = bpe.train_bpe(CORPUS, size, [END], output_dir=tmp_path)
    folder = FIXTURES / f"vocab{size}"
    assert json.loads((tmp_path / "vocab.json").read_bytes()) == json.loads((folder / "vocab.json").read_bytes())
    assert (tmp_path / "merges.txt").read_bytes() == (folder / "merges.txt").read_bytes()
    assert model_in(folder) == (vocab, merges)


@only_python
def test_the_fixture_is_what_its_readme_says():
    data = CORPUS.read_bytes()
    assert 90_000 < len(data) < 120_000 and data.count(b"\r\n") > 10 and "\u200d".encode() in data
    assert all(word in data.decode() for word in ["मैं", "на", "的", "und", "العربية"[:2]])


def test_the_fixture_trains_in_under_one_and_a_half_seconds():
    start = time.process_time()
    bpe.train_bpe(CORPUS, 500, [END])
    assert time.process_time() - start < 1.5


# --- III. Training: properties ---------------------------------------------------------------------------------------


def test_fewer_merges_are_a_prefix_of_more(part):
    merges = bpe.train_bpe(part, 700, [END])[1]
    for size in (257, 258, 300, 431, 699):
        assert bpe.train_bpe(part, size, [END])[1] == merges[: size - 257]


def test_the_order_of_documents_changes_nothing(train, part):
    documents = PART.split(END)
    backwards = END.join(reversed(documents))
    assert train(backwards, 600, [END]) == bpe.train_bpe(part, 600, [END])


def test_counts_times_k_change_nothing(part):
    words = bpe.count_words(part, [END])
    once = [(left, right, 7 * count) for left, right, count in steps(words, 600)]
    assert steps({word: 7 * count for word, count in words.items()}, 600) == once


def test_both_sides_of_a_merge_are_in_the_vocabulary_before_it(part):
    vocab, merges = bpe.train_bpe(part, 800, [END])
    known = set(list(vocab.values())[:256])
    for left, right in merges:
        assert left in known and right in known
        known.add(left + right)


def test_a_trainer_keeps_the_number_of_tokens_up_to_date():
    trainer = trainer_of({b"aaaa": 2, b"ab": 1}, 300)
    learned = iter(trainer)
    assert trainer.n_tokens == 10
    assert next(learned) == (b"a", b"a", 6) and trainer.n_tokens == 6  # three pairs in each "aaaa", but two replacements
    assert next(learned) == (b"aa", b"aa", 2) and trainer.n_tokens == 4
    assert list(learned) == [(b"a", b"b", 1)] and trainer.n_tokens == 3


# --- III. Training: options ------------------------------------------------------------------------------------------


def test_min_frequency(train):
    merges = train("ab ab ab cd cd ef", 300, pattern=r"\S+", min_frequency=2)[1]
    assert merges == [(b"a", b"b"), (b"c", b"d")]


def test_max_token_length(train):
    text = FIXTURE[:6000]
    vocab, merges = train(text, 340, max_token_length=4)
    assert max(map(len, vocab.values())) == 4 and len(merges) == 84
    words = naive_words(text)
    for merge in merges:  # the oracle, with the limit
        counts = {pair: count for pair, count in naive_counts(words).items() if len(pair[0] + pair[1]) <= 4}
        assert merge == max(counts, key=lambda pair: (counts[pair], pair))
        words = {naive_merge(word, merge): count for word, count in words.items()}


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**64, 2**64 + 1, 2**80])
def test_numbers_of_any_size_mean_the_same_in_both_engines(number):
    words = {b"ab": 2**63 - 1, b"cd": 5}
    merges = bpe.train_from_counts(words, 300, [], min_frequency=number)[1]
    assert merges == ([(b"a", b"b")] if number < 2**63 else [])
    both = [(b"a", b"b"), (b"c", b"d")]
    assert bpe.train_from_counts(words, number)[1] == bpe.train_from_counts(words, 300, max_token_length=number)[1] == both


def test_integers_of_numpy_are_numbers():
    numpy = need("numpy")
    counts = {b"ab": numpy.int64(2), b"cd": numpy.uint8(1)}
    options = {"min_frequency": numpy.int16(2), "max_token_length": numpy.uint64(2)}
    assert bpe.train_from_counts(counts, numpy.uint16(300), **options)[1] == [(b"a", b"b")]
    with pytest.raises(ValueError, match="vocab_size"):
        bpe.train_from_counts(counts, numpy.float64(300))


def test_special_tokens_are_a_list_and_not_a_set_or_a_dict(part):
    """The order of a set differs from run to run, and so would the ids."""
    expected = bpe.train_bpe(part, 300, ["<a>", END])
    for specials in (("<a>", END), (token for token in ("<a>", END))):
        assert bpe.train_bpe(part, 300, specials) == expected
    for wrong in ({"<a>", END}, frozenset(["<a>"]), {"<a>": 0}, "<a>", b"<a>"):
        with pytest.raises((TypeError, ValueError), match="special_tokens must be a list of strings"):
            bpe.train_bpe(part, 300, wrong)
        with pytest.raises((TypeError, ValueError), match="special_tokens must be a list of strings"):
            bpe.Tokenizer(*trained(300), wrong)
    with pytest.raises(ValueError, match=r"special token 1 \(\['<a>'\]\)"):
        bpe.train_bpe(part, 300, [["<a>"]])


@pytest.mark.parametrize("special_tokens", [[], None, ()])
def test_no_special_tokens(tmp_path, special_tokens):
    path = tmp_path / "text.txt"
    path.write_text(f"aa{END}bb")
    vocab, _ = bpe.train_bpe(path, 300, special_tokens)
    assert vocab[256] != END.encode() and any(b"<|" in token for token in vocab.values())


@pytest.mark.parametrize("arguments, text", [
    ((100, []), "vocabulary size 100 is too small; the minimum is 256 (256 bytes + 0 special tokens)"),
    ((256, [END]), "vocabulary size 256 is too small; the minimum is 257 (256 bytes + 1 special token)"),
    ((0, []), "vocab_size must be a positive integer, not 0"),
    ((-5, []), "vocab_size must be a positive integer, not -5"),
    (("500", []), "vocab_size must be a positive integer, not '500'"),
    ((500.0, []), "vocab_size must be a positive integer, not 500.0"),
    ((None, []), "vocab_size must be a positive integer, not None"),
    ((500, ["<a>", ""]), "special token 2 ('') must be valid text of at least two bytes"),
    ((500, ["<a>", "<b>", "<a>"]), "duplicate special token: '<a>'"),
    ((500, ["a"]), "special token 1 ('a') must be valid text of at least two bytes"),
    ((500, [b"<a>"]), "special token 1 (b'<a>') must be valid text"),
    ((500, ["\ud800x"]), r"special token 1 ('\ud800x') must be valid text"),
])  # fmt: skip
def test_bad_arguments(arguments, text):
    with pytest.raises(ValueError, match=regex.escape(text)):
        bpe.train_bpe(CORPUS, *arguments)


@pytest.mark.parametrize("options, text", [
    ({"pattern": "(["}, r"pattern '\(\[' is not a valid regular expression: unterminated"),
    ({"pattern": "gtp2"}, r"unknown pattern 'gtp2'; use gpt2, cl100k, o200k.* or a regular expression \(this one contains no operators\)"),
    ({"pattern": ""}, "gpt2, cl100k, o200k"), ({"pattern": None}, "pattern"), ({"pattern": ["gpt2"]}, "pattern"),
    ({"workers": 0}, "workers must be a positive integer, not 0"), ({"workers": 1.5}, "workers must be .* not 1.5"),
    ({"min_frequency": 0}, "min_frequency must be .* not 0"), ({"min_frequency": 1.5}, "min_frequency must be .* not 1.5"),
    ({"max_token_length": 0}, "max_token_length must be .* not 0"),
    ({"errors": "ignore"}, r"errors must be .*'strict'.*'replace'.*'ignore'"), ({"newlines": "crlf"}, "newlines must be .*'crlf'"),
    ({"like": "hf"}, "like must be .*'hf'"), ({"engine": "rust"}, "engine must be .*'rust'"), ({"progress": "yes"}, "progress must be .*'yes'"),
    ({"like": "huggingface", "max_token_length": 5}, "like='huggingface'.* maximum token length"), ({"color": 1}, "unknown option 'color'"),
])  # fmt: skip
def test_bad_options(options, text):
    with pytest.raises((ValueError, TypeError), match=text):
        bpe.train_bpe(CORPUS, 300, [END], **options)


def huggingface_train(pieces, size, special_tokens):
    """Train with tokenizers; returns its vocabulary and its merges, both in printable characters."""
    tokenizers = need("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size, special_tokens=special_tokens, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(pieces, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def printable(vocab, merges):
    return ({bpe.to_printable(token): token_id for token_id, token in vocab.items()},
            [(bpe.to_printable(left), bpe.to_printable(right)) for left, right in merges])  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_like_huggingface_on_random_corpora_full_of_ties(train, seed):
    rng = random.Random(seed)
    text = random_text(rng, rng.choice(["ab ", "abc ", "aab\n' ", "字é a"]), rng.randint(0, 400))
    assert printable(*train(text, 400, [END], like="huggingface")) == huggingface_train([text], 400, [END])


def test_like_huggingface_on_the_fixture():
    pieces = FIXTURE.split(END)
    ours = bpe.train_bpe(CORPUS, 1500, [END, "<pad>"], like="huggingface")
    assert printable(*ours) == huggingface_train(pieces, 1500, [END, "<pad>"])


@pytest.mark.parametrize("special", ["éé", "<début>", "é é", "字", "\u00a0", "«END»"])
def test_special_tokens_beyond_the_byte_alphabet_are_those_of_tokenizers(tmp_path, special):
    tokenizers = need("tokenizers")
    text = f"low lower café {special} newest"
    vocab, merges = bpe.train_bpe(None, 280, [special], texts=[text], like="huggingface", output_dir=tmp_path)
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    options = {"initial_alphabet": tokenizers.pre_tokenizers.ByteLevel.alphabet(), "show_progress": False}
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=280, special_tokens=[special], **options)
    theirs.train_from_iterator(text.split(special), trainer)
    saved = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert bpe.Tokenizer.load(tmp_path).encode(text) == saved.encode(text).ids == theirs.encode(text).ids


# --- III. Training: from texts and from counts -----------------------------------------------------------------------


def test_training_on_texts_takes_each_as_a_text_of_its_own():
    expected = naive_train(naive_words("ab  ") + naive_words(" ab ab") + naive_words("ab"), 262)
    assert bpe.train_bpe(None, 262, texts=iter(["ab  ", " ab ab", "", "ab"])) == expected
    for arguments in ({"input_path": None}, {"input_path": CORPUS, "texts": ["a"]}):
        with pytest.raises(ValueError, match="pass either paths or texts"):
            bpe.train_bpe(**arguments, vocab_size=300)


def test_texts_from_an_iterable_are_counted_lazily(part, monkeypatch):
    monkeypatch.setattr(bpe, "SLICE_BYTES", 100)
    documents = PART.split(END)
    taken = []

    def stream():
        for document in documents:
            taken.append(document)
            yield document

    assert bpe.count_words(None, [], texts=stream(), workers=1) == bpe.count_words(part, [END], workers=1)
    slices = bpe.slices_of_texts(stream(), bpe.Options())
    taken.clear()
    next(slices)
    assert len(taken) <= 2
    assert bpe.count_words(None, ["<x>"], texts=["a<x>b", "c"]) == {b"a": 1, b"b": 1, b"c": 1}
    assert bpe.count_words(None, [], texts=iter([])) == {}
    with pytest.raises(ValueError, match=r"texts\[0\].* position 1: surrogates not allowed"):
        bpe.count_words(None, [], texts=["a\ud800"])
    assert bpe.count_words(None, [], texts=["a\ud800", "\ud83d\ude00"], errors="replace") == {b"a": 1, "\ufffd".encode(): 1, "😀".encode(): 1}
    for texts in (["a", b"b"], ["a", None, "b"], ["a", 5]):
        with pytest.raises(ValueError, match=r"texts\[1\].* must be a str"):
            bpe.count_words(None, [], texts=texts)
    with pytest.raises(TypeError, match="texts must be an iterable of strings"):
        bpe.count_words(None, [], texts="hello")
    with pytest.raises(ValueError, match="pass either paths or texts"):
        bpe.count_words(part, [], texts=["a"])


def test_counts_of_parts_add_up_to_those_of_the_whole(part, tmp_path):
    """Parts can be counted on several machines and trained on together; counts can be used for several sizes."""
    for options in ({"pattern": "gpt2"}, {"pattern": "cl100k"}, {"pattern": r"\w+|\W"}):
        total = collections.Counter()
        for number in range(3):
            (tmp_path / "part.txt").write_bytes(END.join(PART.split(END)[number::3]).encode())
            total.update(bpe.count_words(tmp_path / "part.txt", [END], **options))
        assert total == bpe.count_words(part, [END], **options)
        for size in (300, 500):
            assert bpe.train_from_counts(total, size, [END], **options) == bpe.train_bpe(part, size, [END], **options)


def test_counts_may_be_zero_or_of_other_types_but_not_negative():
    """Zeros come from Counters that were subtracted; empty words are ignored."""
    words = {b"abcd": 0, b"ab": 5, b"cd": True, b"": 3}
    assert bpe.train_from_counts(words, 300, [])[1] == [(b"a", b"b"), (b"c", b"d")]
    with pytest.raises(ValueError, match="b'ab' must not be negative: -1"):
        bpe.train_from_counts({b"ab": -1}, 300, [])
    with pytest.raises(TypeError):
        bpe.train_from_counts({b"ab": 1.5}, 300, [])


@pytest.mark.parametrize("data, options", [
    ("", {}), (b"a", {}), (b"\n", {}), (b"\0", {}), (b" ", {}), ("a\nb\nc", {"pattern": r"\w"}), (f"{END}{END}", {}),
])  # fmt: skip
def test_nothing_to_merge_is_a_result(train, data, options):
    assert train(data, 500, [END], **options) == ({**{i: bytes([i]) for i in range(256)}, 256: END.encode()}, [])


def test_fewer_merges_than_asked_for_are_a_result(train):
    vocab, merges = train("aa bb aa", 10_000)
    assert len(vocab) == 256 + len(merges) < 300


# --- IV. The tokenizer and its files: words --------------------------------------------------------------------------


def test_special_tokens_are_boundaries():
    assert words_in(f"Hello!{END}World", [END]) == {"Hello": 1, "!": 1, "World": 1}
    # whitespace before a special token is at the end of its piece, so "\s+(?!\S)" takes all of it
    assert words_in(f"a \n{END}b", [END]) == {"a": 1, " \n": 1, "b": 1}
    assert words_in("a \nb") == {"a": 1, " ": 1, "\n": 1, "b": 1}


def test_the_longest_special_token_wins():
    assert words_in("x<a><b>y<a>z", ["<a>", "<a><b>"]) == {"x": 1, "y": 1, "z": 1}
    assert words_in("1aab2", ["aab"]) == {"1": 1, "2": 1}


@pytest.mark.parametrize("text, name, words", [
    ("I'll see  you", "gpt2", ["I", "'ll", " see", " ", " you"]),
    ("I'LL\n\nx", "gpt2", ["I", "'", "LL", "\n", "\n", "x"]),
    ("I'LL 1234!\n\nx", "cl100k", ["I", "'LL", " ", "123", "4", "!\n\n", "x"]),
    ("end  ", "cl100k", ["end", "  "]),
    ("HelloWorld it's/\n", "o200k", ["Hello", "World", " it's", "/\n"]),
])  # fmt: skip
def test_named_patterns(text, name, words):
    assert words_in(text, pattern=name) == collections.Counter(words)
    for theirs, ours in (("r50k_base", "gpt2"), ("cl100k_base", "cl100k"), ("o200k_base", "o200k")):  # tiktoken's names
        assert words_in(text, pattern=theirs) == words_in(text, pattern=ours)


@pytest.mark.parametrize("name", bpe.PATTERNS)
def test_the_words_of_a_named_pattern_are_those_of_its_expression(name):
    assert words_in(FIXTURE, pattern=name) == collections.Counter(regex.findall(bpe.PATTERNS[name], FIXTURE))


def test_custom_patterns_find_whole_matches_that_are_not_empty(train):
    assert words_in("abab ab", pattern=r"(a)(b)|\s+") == {"ab": 3, " ": 1}
    assert words_in("aab", pattern=r"a*") == {"aa": 1}
    vocab, merges = train("hello hello", 300, pattern=r"\d+")
    assert len(vocab) == 256 and merges == []


# --- IV. The tokenizer and its files: encoding and decoding ----------------------------------------------------------


def test_a_worked_example_of_encoding():
    """From a published course handout: ids need not be contiguous, and bytes can have any ids."""
    vocab = {0: b" ", 1: b"a", 2: b"c", 3: b"e", 4: b"h", 5: b"t", 6: b"th", 7: b" c", 8: b" a", 9: b"the", 10: b" at"}
    merges = [(b"t", b"h"), (b" ", b"c"), (b" ", b"a"), (b"th", b"e"), (b" a", b"t")]
    tokenizer = bpe.Tokenizer(vocab, merges)
    assert tokenizer.encode("the cat ate") == [9, 7, 1, 5, 10, 3] and tokenizer.decode([9, 7, 1, 5, 10, 3]) == "the cat ate"
    with pytest.raises(ValueError, match="no token for the byte b'x'"):
        tokenizer.encode("the x")


@pytest.mark.parametrize("pattern", bpe.PATTERNS)
def test_decoding_gives_back_every_text(pattern):
    vocab, merges = trained(600, pattern)
    tokenizer = bpe.Tokenizer(vocab, merges, [END], pattern)
    rng = random.Random(pattern)
    for text in TEXTS + [random_text(rng, [*WIDE, *TRICKY, END], rng.randint(0, 200)) for _ in range(200)]:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text and tokenizer.decode_bytes(ids) == text.encode()


def test_tokens_are_looked_up_by_bytes_text_or_id():
    tokenizer = bpe.Tokenizer({97: b"a", 98: b"b", 300: b"ab", 7: b"\xe5"}, [(b"a", b"b")], [END])
    assert tokenizer.vocab_size == len(tokenizer) == 5
    assert [tokenizer.token_to_id(token) for token in ("ab", b"ab", b"\xe5", END, "xy")] == [300, 300, 7, 301, None]
    assert [tokenizer.id_to_token(token_id) for token_id in (300, 301, 5)] == [b"ab", END.encode(), None]
    assert tokenizer.decode([301, 300, 301, 97]) == f"{END}ab{END}a"
    assert tokenizer.decode([301, 300, 301, 97], skip_special_tokens=True) == "aba"


def test_special_tokens_of_a_tokenizer():
    vocab, merges = trained(300)
    tokenizer = bpe.Tokenizer(vocab, merges, [END, "<new>", "<new><new>"])
    assert tokenizer.encode(f"{END}<new>") == [256, 300] and tokenizer.vocab[301] == b"<new><new>"
    assert tokenizer.encode("<new><new><new>") == [301, 300]  # the longest, from the left
    assert 256 not in bpe.Tokenizer(vocab, merges).encode(END)  # not passed as a special token, so ordinary text
    assert tokenizer.encode("") == [] == list(tokenizer.encode_iterable([])) and tokenizer.decode([]) == ""
    assert bpe.Tokenizer(vocab, merges).encode("") == []  # as the first text, too


def test_malformed_bytes_and_surrogates():
    tokenizer = bpe.Tokenizer(*trained(300))
    assert tokenizer.decode([0xE5, 97, 0xFF]) == "\ufffda\ufffd" and tokenizer.decode_bytes([0xE5]) == b"\xe5"
    assert tokenizer.encode("a\ud800b") == tokenizer.encode("a\ufffdb")
    assert tokenizer.encode("\ud83d\ude00") == tokenizer.encode("😀") == list(tokenizer.encode_iterable(["\ud83d", "\ude00"]))


def test_ids_may_be_any_numbers():
    vocab, merges = trained(600)
    rng = random.Random(2)
    ids = rng.sample(range(2**31), 599) + [2**32 - 2]
    tokenizer = bpe.Tokenizer({ids[token_id]: token for token_id, token in vocab.items()}, merges, [END])
    text = FIXTURE[:20_000]
    assert tokenizer.encode(text) == [ids[token_id] for token_id in bpe.Tokenizer(vocab, merges, [END]).encode(text)]


@only_python
def test_ids_that_are_not_in_the_vocabulary():
    tokenizer = bpe.Tokenizer(*trained(300))
    for bad in (300, -1, 10**9, "a"):
        with pytest.raises(ValueError, match=rf"^unknown token id '?{bad}'? at index 1$"):
            tokenizer.decode([65, bad])


def test_a_byte_without_a_token_is_named(engine):
    tokenizer = bpe.Tokenizer({0: b"a", 1: b" ", 2: b"b", 3: b"ab", 9: b"<x>"}, [(b"a", b"b")], ["<x>"])
    assert tokenizer.encode("ab aab<x>b") == [3, 1, 0, 3, 9, 2]
    for text in ("ab xab", "ab abx", "x", "a<x>x", "a" * 200 + "x"):
        with pytest.raises(ValueError, match="no token for the byte b'x', in "):
            tokenizer.encode(text)
        with pytest.raises(ValueError, match="no token for the byte b'x', in "):
            list(tokenizer.encode_iterable([text]))
    assert tokenizer.encode("ab") == [3]  # and the tokenizer still works


@only_python
@pytest.mark.parametrize("arguments, text", [
    (({0: b"a", 1: b"a"}, []), "ids 0 and 1 have the same bytes"),
    (({0: b"a", 1: b"b"}, [(b"a", b"b")]), "merge (b'a', b'b') uses or creates a token that is not in the vocabulary"),
    (({0: b"a", 1: b"ab"}, [(b"a", b"b")]), "merge (b'a', b'b') uses or creates a token"),
    (({0: b"a", 1: b"aa"}, [(b"a", b"a"), (b"a", b"a")]), "merge 1 (from 0), (b'a', b'a'), is a duplicate"),
    (({0: b"a"}, [], ["<x>", "<x>"]), "duplicate special token: '<x>'"),
    (({0: b"a"}, [], None, "gtp2"), "unknown pattern 'gtp2'"),
])  # fmt: skip
def test_a_vocabulary_and_merges_that_contradict_each_other(arguments, text):
    with pytest.raises(ValueError, match=regex.escape(text)):
        bpe.Tokenizer(*arguments)


def test_a_pattern_that_skips_text_is_an_error_with_its_place():
    tokenizer = bpe.Tokenizer(*trained(300), [END], r"\w+")
    for encode in (tokenizer.encode, lambda text: list(tokenizer.encode_iterable([text[:3], text[3:]]))):
        with pytest.raises(ValueError, match=r"at character 18: '-'"):
            encode(f"abc{END}de-")


@pytest.mark.parametrize("pattern", [r"(?r)\S+|\s+", r"(?r).", r"\S+", r"(?:.\K)?b|."])
def test_a_pattern_that_reorders_text_is_an_error(pattern, tmp_path):
    tokenizer = bpe.Tokenizer({byte: bytes([byte]) for byte in range(256)}, [], [], pattern)
    for encode in (tokenizer.encode, lambda text: list(tokenizer.encode_iterable([text]))):
        with pytest.raises(ValueError, match="the pattern .* at character"):
            encode("ab cd")
        assert tokenizer.decode(encode("aaa")) == "aaa"
    (tmp_path / "text.txt").write_text("ab cd")
    with pytest.raises(ValueError, match="text.txt"):
        tokenizer.encode_files(tmp_path / "text.txt", tmp_path / "ids.npy")
    assert os.listdir(tmp_path) == ["text.txt"]


def test_training_warns_of_text_that_a_custom_pattern_skips(main, recwarn):
    text = "low-low, low"
    for call in (bpe.train_bpe, bpe.count_words):
        with pytest.warns(UserWarning, match=r"\b3 bytes"):
            call(None, texts=[text], pattern=r"\w+", **({"vocab_size": 300} if call is bpe.train_bpe else {"special_tokens": []}))
    recwarn.clear()
    bpe.train_bpe(None, 300, texts=["low"], pattern=r"\w+")
    assert not recwarn.list
    status, _, stderr = main("words.txt", 300, "--pattern", r"\w+", "--encode", "ids.npy")
    assert status == 2 and "--encode" in stderr.splitlines()[-1] and not list(pathlib.Path().glob("bpeModel/*.json"))


@only_python
def test_a_special_token_that_a_merge_makes_is_an_error():
    """Two ids would have the same bytes; tokenizers can't load such a file."""
    merges = [(b"a", b"b"), (b"ab", b"c"), (b"abc", b"d")]
    for special in ("ab", "abc"):
        with pytest.raises(ValueError, match=f"special token '{special}'|'{special}'.* special token"):
            bpe.Tokenizer(with_merges(merges), merges, [special])
    assert bpe.Tokenizer(with_merges(merges), merges, ["abcde"]).encode("abcdabcde") == [258, 259]


@pytest.mark.parametrize("bad", [-1, 2**32, 2**32 - 1, 2**40, 10**30])
def test_ids_beyond_32_bits_are_errors_with_the_token_or_work(tmp_path, bad):
    vocab = {byte: bytes([byte]) for byte in range(256)} | {bad: b"ab"}
    try:
        tokenizer = bpe.Tokenizer(vocab, [(b"a", b"b")])
    except ValueError as error:
        assert "b'ab'" in str(error) and str(bad) in str(error)
        return
    assert tokenizer.encode("xab") == [120, bad] and tokenizer.decode([bad]) == "ab"
    tokenizer.save(tmp_path)
    assert bpe.Tokenizer.load(tmp_path).encode("xab") == [120, bad]


def test_ids_of_numpy_are_ids(tmp_path):
    numpy = need("numpy")
    vocab, merges = trained(300)
    tokenizer = bpe.Tokenizer({numpy.uint16(token_id): token for token_id, token in vocab.items()}, merges, [END, "<new>"])
    ids = tokenizer.encode(f"the ferry{END}<new>")
    assert ids == bpe.Tokenizer(vocab, merges, [END, "<new>"]).encode(f"the ferry{END}<new>") and all(type(n) is int for n in ids)
    assert tokenizer.decode(numpy.array(ids)) == f"the ferry{END}<new>"
    tokenizer.save(tmp_path)
    assert bpe.Tokenizer.load(tmp_path).encode(f"the ferry{END}<new>") == ids


@only_python
@pytest.mark.parametrize("vocab, text", [({b"a": 0}, ""), ({0: "a"}, "from_files"), ({"a": 0}, "from_files"), ({1.5: b"a"}, "1.5")])
def test_a_vocabulary_of_the_wrong_types_is_an_error(vocab, text):
    with pytest.raises((TypeError, ValueError), match=f"vocab (must map|maps) (token )?ids to bytes.*{text}"):
        bpe.Tokenizer(vocab, [])


def test_anything_but_text_is_a_type_error():
    tokenizer = bpe.Tokenizer(*trained(300))
    for wrong in (b"abc", b"", None, 5, ["abc"]):
        for call in (lambda: tokenizer.encode(wrong), lambda: list(tokenizer.encode_iterable(["abc", wrong]))):  # noqa: B023
            with pytest.raises(TypeError, match=f"^text must be a str, not {type(wrong).__name__}$"):
                call()


@pytest.mark.parametrize("pattern", [*bpe.PATTERNS, r"\w+|\W"])
@pytest.mark.parametrize("special_tokens", [[], [END], ["<a>", "<a><b>", "<a><b><c>"], [" \n\v", "\n\n\v", "ll'"], ["a a"]])
def test_a_stream_is_encoded_like_the_whole(engine, pattern, special_tokens):
    vocab, merges = trained(600, pattern if pattern in bpe.PATTERNS else "gpt2")
    tokenizer = bpe.Tokenizer(vocab, merges, special_tokens, pattern)
    if engine == "python":
        tokenizer._cached = tokenizer.encode_word = lambda word: [word]  # compare words, since different words can have the same ids
    rng = random.Random(repr((pattern, special_tokens)))
    parts = [*TRICKY, "'LL", "'v", "e", "ABCDEFGHIJKL", "中國", "ʰ", "don", "123", "\n\n", "!!", "<a>", "<b>", "<c>", *special_tokens, "\ud83d", "\ude00", "ſ"]
    texts = TEXTS + [random_text(rng, parts, rng.randint(0, 60)) for _ in range(60 if pattern in bpe.PATTERNS else 100)] + ["中ABCDEFGHIJKLm", "e\u0301ABCDEFGHIJKLMNx"]
    for text in texts:
        whole = tokenizer.encode(text)
        assert list(tokenizer.encode_iterable(text)) == whole, text  # one character at a time
        for _ in range(3):
            assert list(tokenizer.encode_iterable(split_anywhere(rng, text))) == whole, text


def test_a_stream_of_blocks_is_encoded_like_the_whole():
    text = PART + FIXTURE[:20_000]
    for pattern in bpe.PATTERNS:
        tokenizer = bpe.Tokenizer(*trained(600, pattern), [END], pattern)
        whole = tokenizer.encode(text)
        for block in (1000, 37):
            blocks = (text[at : at + block] for at in range(0, len(text), block))
            assert list(tokenizer.encode_iterable(blocks)) == whole
        assert list(tokenizer.encode_iterable(text.splitlines(keepends=True))) == whole


def test_a_stream_is_lazy_and_takes_little_memory():
    tokenizer = bpe.Tokenizer(*trained(600), [END])
    seen = []

    def endless():
        while True:
            seen.append(1)
            yield "some words and more words\n"

    ids = tokenizer.encode_iterable(endless())
    assert [next(ids) for _ in range(5)] and len(seen) < 4
    tracemalloc.start()
    for _ in itertools.islice(tokenizer.encode_iterable(endless()), 20_000):
        pass
    assert tracemalloc.get_traced_memory()[1] < 100_000  # the text alone, or a list of the ids, takes more
    tracemalloc.stop()


@pytest.mark.parametrize("size", [1000, 65_536])
def test_a_stream_with_a_custom_pattern_is_cut_at_the_next_special_token(size):
    """The search for a cut must not skip special tokens between two attempts."""
    tokenizer = bpe.Tokenizer({byte: bytes([byte]) for byte in range(256)}, [], [END], r"\w+|\W")
    text = ("ab cd " * 25_000 + END) * 5
    taken = []

    def blocks():
        for start in range(0, len(text), size):
            taken.append(size)
            yield text[start : start + size]

    most = max(len(taken) * size - number for number, _ in enumerate(tokenizer.encode_iterable(blocks())))
    assert most < 300_000


@only_python
def test_the_memory_of_words_is_bounded():
    tokenizer = bpe.Tokenizer(*trained(600))
    tokenizer._cached = functools.lru_cache(maxsize=10)(tokenizer.encode_word)
    text = FIXTURE[:5000]
    assert tokenizer.decode(tokenizer.encode(text)) == text and tokenizer._cached.cache_info().currsize == 10
    before = tokenizer._cached.cache_info()
    assert tokenizer.encode("x" * 100) == 100 * [120] and tokenizer._cached.cache_info() == before  # long words are not cached
    assert bpe.Tokenizer(*trained(600))._cached.cache_info().maxsize < 1_000_000


@pytest.mark.parametrize("pattern", ["gpt2", "o200k", r"\w+|\W"])
def test_a_tokenizer_can_be_pickled_and_copied(pattern):
    tokenizer = bpe.Tokenizer(*trained(600), [END, "<new>"], pattern)
    text = f"Some words{END}and <new> 字"
    ids = tokenizer.encode(text)
    for clone in (pickle.loads(pickle.dumps(tokenizer)), copy.deepcopy(tokenizer), copy.copy(tokenizer)):
        assert clone.encode(text) == ids and clone.vocab == tokenizer.vocab and repr(clone) == repr(tokenizer)


def test_threads_share_a_tokenizer():
    tokenizer = bpe.Tokenizer(*trained(2000), [END])
    texts = PART.split(END)
    expected = list(map(bpe.Tokenizer(*trained(2000), [END]).encode, texts))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(tokenizer.encode, texts * 5)) == expected * 5


# --- IV. The tokenizer and its files: saving and loading -------------------------------------------------------------


def test_train_save_load(tmp_path, part):
    tokenizer = bpe.Tokenizer.train(part, 400, [END], pattern="cl100k_base", max_token_length=4)
    vocab, merges = bpe.train_bpe(part, 400, [END], pattern="cl100k", max_token_length=4)
    assert (tokenizer.vocab, tokenizer.merges, len(tokenizer)) == (vocab, merges, 400)
    assert repr(tokenizer) == "Tokenizer(400 tokens, 1 of them special, pattern 'cl100k')"
    tokenizer.save(tmp_path / "a" / "model")
    again = bpe.Tokenizer.load(tmp_path / "a" / "model")
    assert (again.vocab, again.merges, repr(again), again.special_ids) == (vocab, merges, repr(tokenizer), {END: 256})
    assert bpe.Tokenizer.train([part], vocab_size=300).vocab == bpe.train_bpe(part, 300)[0]
    with_texts = bpe.Tokenizer.train(texts=["ab ab<x>", "ab"], vocab_size=259, special_tokens=["<x>"])
    assert with_texts.merges == [(b"a", b"b"), (b" ", b"ab")] and with_texts.encode(" ab<x>") == [258, 256]


@only_python
def test_save_then_load_is_the_identity_for_any_bytes(tmp_path):
    rng = random.Random(1)
    specials = [END, "two words", "字 \n\t"]
    tokens = [bytes([byte]) for byte in range(256)]
    merges = [(b"#", b"version"), (b"#", b"version:")]  # the first line of merges.txt looks like that
    tokens += [b"version", b"version:", b"#version", b"#version:"]
    while len(merges) < 2000:
        left, right = rng.choice(tokens), rng.choice(tokens)
        if len(left + right) < 12 and left + right not in tokens:
            merges.append((left, right))
            tokens.append(left + right)
    rng.shuffle(tokens)
    vocab = {3 * i: token for i, token in enumerate(tokens + [special.encode() for special in specials])}
    bpe.Tokenizer(vocab, merges, specials).save(tmp_path / "a" / "b")
    assert model_in(tmp_path / "a" / "b") == (vocab, merges)


@only_python
def test_the_table_of_printable_bytes_is_that_of_gpt2():
    ids, _ = naive_files({byte: bytes([byte]) for byte in range(256)}, [])
    assert {bpe.to_printable(bytes([byte])): byte for byte in range(256)} == ids
    assert {text: bpe.from_printable(text) for text in ids} == {text: bytes([byte]) for text, byte in ids.items()}
    assert bpe.to_printable(b" the\n") == "ĠtheĊ"

MODELS = [  # arguments of train_bpe
    {"vocab_size": 300, "special_tokens": [END]},
    {"vocab_size": 300, "special_tokens": [END], "pattern": "cl100k", "max_token_length": 3},
    {"vocab_size": 310, "special_tokens": [END], "like": "huggingface"},
    {"vocab_size": 300, "special_tokens": ["<y>", "<x>", "<x><y>"], "pattern": "o200k"},
    {"vocab_size": 290, "special_tokens": [], "pattern": r"\d|\p{L}+|[^\p{L}\d]"},
]


@pytest.fixture(scope="module")
def models(tmp_path_factory, part):
    """[(folder, (vocab, merges)), ...] for MODELS."""
    folders = [tmp_path_factory.mktemp("model") for _ in MODELS]
    return [(folder, bpe.train_bpe(part, **options, output_dir=folder)) for folder, options in zip(folders, MODELS)]


@only_python
def test_retraining_leaves_no_file_of_the_old_model(tmp_path, part):
    files = None
    for number in (0, 1, 2, 3, 4, 0):
        expected = bpe.train_bpe(part, **MODELS[number], output_dir=tmp_path)
        assert model_in(tmp_path) == expected and sorted(os.listdir(tmp_path)) == (files or sorted(os.listdir(tmp_path)))
        files = sorted(os.listdir(tmp_path))
        assert {"merges.txt", "tokenizer.json", "vocab.json"} <= set(files)
        tokenizer = json.loads((tmp_path / "tokenizer.json").read_bytes())
        assert tokenizer["model"]["vocab"] == json.loads((tmp_path / "vocab.json").read_bytes())
        lines = (tmp_path / "merges.txt").read_bytes().decode().split("\n")
        assert [" ".join(merge) for merge in tokenizer["model"]["merges"]] == lines[1:-1]


@pytest.mark.parametrize("number", range(len(MODELS)))
def test_loading_takes_everything_from_the_folder(tmp_path, part, number):
    options = MODELS[number]
    vocab, merges = bpe.train_bpe(part, **options, output_dir=tmp_path)
    pattern, special_tokens = options.get("pattern", "gpt2"), options["special_tokens"]
    tokenizer = bpe.Tokenizer.load(tmp_path)
    assert (tokenizer.vocab, tokenizer.merges) == (vocab, merges)
    assert (tokenizer.options.special_tokens, tokenizer.options.pattern) == (tuple(special_tokens), pattern)
    text = f"I'LL 12345 theory\n\nHTMLParser's<x><y>{END}"
    ids = bpe.Tokenizer(vocab, merges, special_tokens, pattern).encode(text)
    assert tokenizer.encode(text) == ids
    shown = run("--show", text, "--output-dir", tmp_path)
    assert shown.stdout.decode().splitlines()[-2] == " ".join(map(str, ids))


@only_python
def test_a_custom_pattern_is_saved_as_it_is(tmp_path):
    """Only cl100k's own {1,3}+ is rewritten for Oniguruma; elsewhere it could change the words."""
    vocab = {byte: bytes([byte]) for byte in range(256)} | {256: b"12", 257: b"125"}
    tokenizer = bpe.Tokenizer(vocab, [(b"1", b"2"), (b"12", b"5")], [], r"\p{N}{1,3}+5|[\s\S]")
    tokenizer.save(tmp_path)
    again = bpe.Tokenizer.load(tmp_path)
    assert again.options == tokenizer.options and again.encode("125") == tokenizer.encode("125") == [49, 50, 53]


@only_python
def test_gpt2s_two_files_alone_are_a_model(tmp_path):
    vocab, merges = trained(600)
    bpe.Tokenizer(vocab, merges).save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    tokenizer = bpe.Tokenizer.load(tmp_path)
    assert (tokenizer.vocab, tokenizer.merges, tokenizer.special_ids, tokenizer.options.pattern) == (vocab, merges, {END: 256}, "gpt2")


def changed(folder, change):
    """Change the contents of a folder's tokenizer.json, a nested dict, with a function; returns its path."""
    path = pathlib.Path(folder) / "tokenizer.json"
    content = json.loads(path.read_bytes())
    change(content)
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2), encoding="utf-8")
    return path


def in_gpt2s_shape(content):
    """What GPT-2's own tokenizer.json has in other ways: no Split, merges as strings, no type, "" for null."""
    content["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    content["post_processor"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False}
    content["decoder"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}
    model = content["model"]
    model["merges"] = [" ".join(pair) for pair in model["merges"]]
    model.update(unk_token="", continuing_subword_prefix="", end_of_word_suffix="")
    for name in ("type", "byte_fallback", "ignore_merges"):
        del model[name]


def with_added_tokens(content):
    flags = {"single_word": False, "lstrip": False, "rstrip": False}
    n = len(content["model"]["vocab"])
    content["added_tokens"].append({"id": n, "content": "<mask>", **flags, "normalized": False, "special": True})
    content["added_tokens"].append({"id": n + 1, "content": "new word", **flags, "normalized": True, "special": False})


LOADED = {
    "as it is": lambda content: None,
    "GPT-2's shape": in_gpt2s_shape,
    "ByteLevel in a Sequence": lambda content: content["pre_tokenizer"].update(pretokenizers=[{"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]),
    "padding": lambda content: content.update(padding={"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "!"}),
    "truncation": lambda content: content.update(truncation={"direction": "Right", "max_length": 10**6, "strategy": "LongestFirst", "stride": 0}),
    "a template that adds nothing": lambda content: content.update(post_processor={
        "type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {},
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]}),
    "added tokens": with_added_tokens,
    "an unknown token that is never needed": lambda content: content["model"].update(unk_token=END),
}  # fmt: skip


@only_python
@pytest.mark.parametrize("change", LOADED.values(), ids=LOADED)
def test_a_tokenizer_json_of_other_tools_loads_and_gives_the_same_ids(tmp_path, change):
    tokenizers = need("tokenizers")
    bpe.Tokenizer(*trained(600), [END]).save(tmp_path / "model")
    path = changed(tmp_path / "model", change)
    theirs = tokenizers.Tokenizer.from_file(str(path))
    (tmp_path / "alone").mkdir()
    shutil.copy(path, tmp_path / "alone")
    text = f"{PART}{END} the <mask>new word'LL{END}"
    expected = theirs.encode(text, add_special_tokens=False).ids
    for place in (path, str(path), tmp_path / "model", tmp_path / "alone"):  # the file, or a folder with or without the others
        tokenizer = bpe.Tokenizer.load(place)
        assert tokenizer.encode(text) == expected and tokenizer.decode(expected) == text
        tokenizer.save(tmp_path / "again")
        assert bpe.Tokenizer.load(tmp_path / "again").encode(text) == expected


SPLIT = {"type": "Split", "pattern": {"Regex": r"\s+"}, "behavior": "Isolated", "invert": False}


def with_split(**options):
    return lambda content: content["pre_tokenizer"]["pretokenizers"][0].update(options)


def with_token(text, **flags):
    token = {"content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return lambda content: content["added_tokens"].append({"id": 9999, **token, **flags})


def with_unknown_bytes(content):
    del content["model"]["vocab"]["a"]
    content["model"].update(unk_token=END, merges=[])


REFUSED = [
    (lambda content: content.update(normalizer={"type": "NFC"}), "normalizer"),
    (lambda content: content["model"].update(ignore_merges=True), "ignore_merges"),
    (lambda content: content["model"].update(byte_fallback=True), "byte_fallback"),
    (lambda content: content["model"].update(dropout=0.1), "dropout"),
    (lambda content: content["model"].update(continuing_subword_prefix="##"), "continuing_subword_prefix"),
    (lambda content: content["model"].update(end_of_word_suffix="</w>"), "end_of_word_suffix"),
    (lambda content: content["model"].update(fuse_unk=True), "fuse_unk"),
    (with_unknown_bytes, "unk_token"),
    (lambda content: content["model"].update(type="WordPiece"), "WordPiece"),
    (lambda content: content.update(model={"type": "Unigram", "unk_id": 0, "vocab": [["a", 0.0]]}), "Unigram"),
    (lambda content: content["pre_tokenizer"]["pretokenizers"][-1].update(add_prefix_space=True), "add_prefix_space"),
    (lambda content: content["pre_tokenizer"]["pretokenizers"][-1].update(use_regex=True), "split|pre_tokenizer"),
    (lambda content: content["pre_tokenizer"]["pretokenizers"].insert(0, SPLIT), "split|pre_tokenizer"),
    (lambda content: content["pre_tokenizer"]["pretokenizers"].pop(), "pre_tokenizer"),
    (lambda content: content["pre_tokenizer"]["pretokenizers"].clear(), "pre_tokenizer"),
    (lambda content: content.update(pre_tokenizer={"type": "Whitespace"}), "pre_tokenizer"),
    (with_split(invert=True), "pre_tokenizer|invert"), (with_split(behavior="Removed"), "pre_tokenizer|Removed"),
    (with_split(pattern={"String": " "}), "pre_tokenizer|String"),
    (lambda content: content.update(decoder={"type": "WordPiece", "prefix": "##", "cleanup": True}), "decoder"),
    (lambda content: content.update(post_processor={
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": END, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {END: {"id": END, "ids": [256], "tokens": [END]}}}), "post_processor"),
    (with_token("<x>", single_word=True), "single_word.*<x>"), (with_token("<x>", lstrip=True), "lstrip.*<x>"), (with_token("<x>", rstrip=True), "rstrip.*<x>"),
    (with_token("text|><", normalized=True), r"overlap"),  # tokenizers looks for the tokens that are not normalized first
    (with_token("é"), "é"),  # the name of the byte E9
    (with_token(" t"), "same bytes"),  # a merge makes this token too
]  # fmt: skip


@only_python
@pytest.mark.parametrize("change, text", REFUSED)
def test_a_tokenizer_json_with_more_than_tokenizer_does_is_an_error_that_names_it(tmp_path, change, text):
    bpe.Tokenizer(*trained(600), [END]).save(tmp_path)
    path = changed(tmp_path, change)
    os.remove(tmp_path / "vocab.json")
    for place in (path, tmp_path):
        with pytest.raises(ValueError, match=rf"(?s){regex.escape(str(tmp_path))}.*({text})"):
            bpe.Tokenizer.load(place)


@only_python
def test_gpt2s_two_files_may_lack_added_tokens_but_must_agree(tmp_path):
    """transformers adds tokens to tokenizer.json only."""
    bpe.Tokenizer(*trained(300), [END]).save(tmp_path)
    changed(tmp_path, with_added_tokens)
    assert bpe.Tokenizer.load(tmp_path).encode("<mask>new word") == [300, 301]
    before = files_of(tmp_path)
    for name, change in [("vocab.json", lambda data: data.replace(b"{", b'{"xyz": 999,', 1)), ("merges.txt", lambda data: data + b"a b\n"),
                         ("vocab.json", lambda data: data.replace(b" 97", b" 9999"))]:  # fmt: skip
        edit(tmp_path / name, change)
        assert (tmp_path / name).read_bytes() != before[name]
        with pytest.raises(ValueError, match="mixes files from different training runs|" + regex.escape(name)):
            bpe.Tokenizer.load(tmp_path)
        (tmp_path / name).write_bytes(before[name])
    os.remove(tmp_path / "merges.txt")
    assert bpe.Tokenizer.load(tmp_path).encode("<mask>") == [300]


@only_python
def test_a_folder_without_a_model_is_an_error_with_its_name(tmp_path):
    for place in (tmp_path, tmp_path / "nowhere", tmp_path / "nowhere" / "tokenizer.json"):
        with pytest.raises((FileNotFoundError, ValueError), match=regex.escape(str(place))):
            bpe.Tokenizer.load(place)


@only_python
def test_a_model_of_32000_tokens_loads_in_less_than_half_a_second(tmp_path):
    pairs = [(bytes([left]), bytes([right])) for left in range(124) for right in range(256)]
    bpe.Tokenizer(with_merges(pairs), pairs).save(tmp_path)
    times = []
    for _ in range(3):
        start = time.process_time()
        assert len(bpe.Tokenizer.load(tmp_path)) == 32_000
        times.append(time.process_time() - start)
    assert min(times) < 0.5


@only_python
def test_from_files_reads_what_save_wrote_and_files_without_a_version_line(tmp_path):
    vocab, merges = trained(600)
    bpe.Tokenizer(vocab, merges, [END]).save(tmp_path)
    paths = tmp_path / "vocab.json", tmp_path / "merges.txt"
    ids = bpe.Tokenizer(vocab, merges, [END]).encode(PART)
    assert bpe.Tokenizer.from_files(*paths, [END]).encode(PART) == ids
    lines = paths[1].read_text(encoding="utf-8").split("\n", 1)[1]
    paths[1].write_text(lines + "\n", encoding="utf-8")
    assert bpe.Tokenizer.from_files(*paths, special_tokens=[END]).encode(PART) == ids
    paths[1].write_text(lines[:-3], encoding="utf-8")  # cut off in the middle of a merge
    with pytest.raises(ValueError, match=r"not in the vocabulary|line 343 "):
        bpe.Tokenizer.from_files(*paths)
    bpe.Tokenizer({token_id: token for token_id, token in vocab.items() if token != b"a"}, []).save(tmp_path)
    with pytest.raises(ValueError, match="no token for the byte b'a'"):
        bpe.Tokenizer.from_files(*paths)


@only_python
@pytest.mark.parametrize("name", ["vocab.json", "merges.txt", "tokenizer.json"])
def test_a_folder_with_files_of_two_training_runs_is_refused(tmp_path, models, name):
    both, refused = tmp_path / "both", 0
    both.mkdir()
    for old, new in itertools.permutations(models, 2):
        if old[1] == new[1]:  # only the pattern differs, and it is in one file only
            continue
        old, new = files_of(old[0]), files_of(new[0])
        for file, content in {**old, name: new[name]}.items():
            (both / file).write_bytes(content)
        if files_of(both) == old:  # this file is the same in both
            continue
        with pytest.raises(ValueError, match=regex.escape(str(both))):
            bpe.Tokenizer.load(both)
        refused += 1
    assert refused > 12
    for arguments in (["--show", "x", "--output-dir", both], [CORPUS, "--encode", both / "ids.npy", "--output-dir", both]):
        result = run(*arguments, cwd=tmp_path)
        assert result.returncode == 2 and str(both) in one_line(result.stderr)


@only_python
@pytest.mark.parametrize("how", [OSError(28, "No space left on device"), KeyboardInterrupt(), "killed"])
def test_an_interruption_before_any_rename_leaves_the_old_model_or_the_new_one_or_is_noticed(tmp_path, models, how):
    folder, seen = tmp_path / "model", collections.Counter()

    def save_and_break(new, rename):
        tokenizer, renames, replace = bpe.Tokenizer.load(models[new][0]), itertools.count(), os.replace

        def stop(*arguments):
            if next(renames) == rename:
                if how == "killed":
                    os._exit(9)
                raise how
            replace(*arguments)

        os.replace = stop
        try:
            tokenizer.save(folder)
        except (OSError, KeyboardInterrupt):
            assert how != "killed"
        finally:
            os.replace = replace

    for old, new in [(None, 0), (0, 1), (1, 0), (3, 2), (2, 4)]:
        for rename in range(len(os.listdir(models[0][0]))):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            if old is not None:
                shutil.copytree(models[old][0], folder, dirs_exist_ok=True)
            if how == "killed":
                child = multiprocessing.get_context("fork").Process(target=save_and_break, args=(new, rename))
                child.start()
                child.join()
                assert child.exitcode == 9
            else:
                save_and_break(new, rename)
                assert not list(folder.glob("*.tmp"))
            try:
                tokenizer = bpe.Tokenizer.load(folder)
                (state,) = [number for number in (old, new) if number is not None
                            and models[number][1] == (tokenizer.vocab, tokenizer.merges)
                            and tuple(MODELS[number]["special_tokens"]) == tokenizer.options.special_tokens
                            and MODELS[number].get("pattern", "gpt2") == tokenizer.options.pattern]  # fmt: skip
                seen["old" if state == old else "new"] += 1
            except (ValueError, FileNotFoundError) as error:
                assert str(folder) in str(error)
                seen["refused"] += 1
    assert seen["old"] >= 4 and seen["refused"] >= 4  # the old model before the first rename


@only_python
def test_threads_may_save_into_one_folder(tmp_path):
    tokenizer = bpe.Tokenizer({0: b"a"}, [])
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for saved in [pool.submit(tokenizer.save, tmp_path) for _ in range(60)]:
            saved.result()
    assert not list(tmp_path.glob("*.tmp")) and model_in(tmp_path) == ({0: b"a"}, [])


@only_python
def test_files_are_flushed_to_disk_before_they_are_renamed(tmp_path, monkeypatch):
    flushed, renamed, fsync, replace = set(), [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (flushed.add(os.fstat(file if isinstance(file, int) else file.fileno()).st_ino), fsync(file)))
    monkeypatch.setattr(os, "replace", lambda old, new: (renamed.append(os.stat(old).st_ino in flushed), replace(old, new)))
    bpe.Tokenizer(*trained(300)).save(tmp_path)
    assert len(renamed) >= 3 and all(renamed)


@only_python
def test_a_folder_where_a_file_should_be_is_refused_before_any_work(tmp_path):
    tokenizer = bpe.Tokenizer(*trained(300))
    for name in ("vocab.json", "merges.txt", "tokenizer.json"):
        folder = tmp_path / name[:3]
        tokenizer.save(folder)
        (folder / name).unlink()
        (folder / name).mkdir()
        before = sorted(os.listdir(folder))
        for call in (lambda: bpe.train_bpe(tmp_path / "missing.txt", 300, output_dir=folder), lambda: tokenizer.save(folder)):  # noqa: B023
            with pytest.raises(ValueError, match=rf"refusing to overwrite .*{name}: not a regular file"):
                call()
        assert sorted(os.listdir(folder)) == before

BYTE_ALPHABET = [chr(c) for c in [*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 256 + 68)]]


@only_python
def test_an_empty_folder_name_is_an_error(part):
    for call in (lambda: bpe.Tokenizer(*trained(300)).save(""), lambda: bpe.train_bpe(part, 300, output_dir="")):
        with pytest.raises(ValueError, match="must not be empty"):
            call()


@only_python
def test_a_special_token_that_the_files_write_like_another_token_is_an_error_before_any_work(tmp_path):
    assert len(BYTE_ALPHABET) == 256
    for special in [*BYTE_ALPHABET[94:], "Ġlow", "ĊĊ", "caf\u00e9", "Ã©"]:
        for options in ({"like": "huggingface"}, {"output_dir": tmp_path}):
            with pytest.raises(ValueError, match=f"special token '{special}'"):
                bpe.train_bpe("nowhere.txt", 300, [special], **options)
    vocab, merges = bpe.train_bpe(None, 300, ["é"], texts=["low"])
    assert vocab[256] == "é".encode()  # no problem until it is saved
    with pytest.raises(ValueError, match="special token 'é'"):
        bpe.Tokenizer(vocab, merges, ["é"]).save(tmp_path)
    assert os.listdir(tmp_path) == []


@only_python
def test_two_ids_with_the_same_bytes_are_refused():
    with pytest.raises(ValueError, match="256 and 257"):
        bpe.Tokenizer({256: b"ab", 257: b"ab"}, [])


@only_python
@pytest.mark.parametrize("vocab, text", [
    ('{"a": 1', r"vocab\.json: .*Expecting ',' delimiter: line 1"), ("[1]", r"vocab\.json: "), ('{"a": -1}', "'a'"), ('{"a": "x"}', "'a'"), ('{"a": true}', "'a'"),
    ('{"a": 1, "b": 1}', r"vocab\.json: .*'b'"), ('{"a b": 1}', r"vocab\.json: .*'a b'"), ("", r"vocab\.json: .*Expecting value"),
])  # fmt: skip
def test_a_malformed_vocabulary_is_named(tmp_path, vocab, text):
    (tmp_path / "vocab.json").write_text(vocab)
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    with pytest.raises(ValueError, match=text):
        bpe.Tokenizer.load(tmp_path)


@only_python
@pytest.mark.parametrize("merges, line", [("a b\nab\n", 2), ("#version: 0.2\na b c\n", 2), ("a b\n#version: 0.2\na  b", 3)])
def test_a_malformed_list_of_merges_is_named_by_line(tmp_path, merges, line):
    (tmp_path / "vocab.json").write_text("{}")
    (tmp_path / "merges.txt").write_text(merges)
    with pytest.raises(ValueError, match=rf"merges\.txt: line {line} "):
        bpe.Tokenizer.load(tmp_path)


@pytest.mark.parametrize("with_tokenizer_json", [True, False])
@pytest.mark.parametrize(
    "name, change, place",
    [
        ("merges.txt", lambda data: data + b"x \xff\n", "merges.txt: "),
        ("merges.txt", lambda data: data + b"a b c\n", "merges.txt: line 10"),
        ("merges.txt", lambda data: b"", "merges.txt"),
        ("merges.txt", lambda data: data.replace(b"e st\n", b"e st\ne st\n"), ""),
        ("merges.txt", lambda data: data.replace(b"e st\n", b""), None),
        ("merges.txt", lambda data: data[: data.rstrip().rindex(b"\n") + 1], None),
        ("vocab.json", lambda data: b'{"a":' * 100_000, "vocab.json"),
        ("vocab.json", lambda data: b'{"\xff": 1}', "vocab.json"),
        ("vocab.json", lambda data: b'{"a": 1' + b"0" * 5000 + b"}", "vocab.json"),
        ("vocab.json", lambda data: b"{}", ""),
        ("vocab.json", lambda data: b"", "vocab.json"),
        ("vocab.json", lambda data: data.replace(b": 256", b": 255"), "vocab.json"),
    ],
)
@only_python
def test_a_damaged_model_is_refused_with_its_place(words_txt, error, name, change, place, with_tokenizer_json):
    bpe.train_bpe("words.txt", 265, [END], output_dir="model")
    if not with_tokenizer_json:
        os.remove("model/tokenizer.json")
    edit(pathlib.Path("model", name), change)
    if place is None and not with_tokenizer_json:
        return  # without a merge, the two files are another valid model
    for arguments in (["--show", "x"], ["words.txt", "--encode", "ids.npy"]):
        text = error(*arguments, "--output-dir", "model")
        assert "model" in text and (with_tokenizer_json or place in text)
    assert not os.path.exists("ids.npy")


@pytest.mark.parametrize("change", [
    ('"content": "<|endoftext|>"', '"content": 5'), ('"content": "<|endoftext|>"', '"content": "\\ud800"'),
    ('"content": "<|endoftext|>"', '"text": ""'), ('"Regex": ', '"Regex": [], "": '), ('"Regex": ', '"": '),
    ('"added_tokens": [', '"added_tokens": [7,'), ('"pretokenizers": [', '"pretokenizers": [3,'), ("{", "[{"),
    "{}", "[]", "", '{"added_tokens": []}', '{"added_tokens": 5, "pre_tokenizer": {"pretokenizers": []}}',
    '{"added_tokens": [], "pre_tokenizer": null}',
])  # fmt: skip
@only_python
def test_an_odd_tokenizer_json_is_an_error_with_its_name(words_txt, change):
    bpe.train_bpe("words.txt", 265, [END], output_dir="model")
    path = pathlib.Path("model/tokenizer.json")
    text = path.read_text()
    assert '"Regex": ' in text
    path.write_text(text.replace(*change, 1) if isinstance(change, tuple) else change)
    with pytest.raises(ValueError, match=r"model"):
        bpe.Tokenizer.load("model")


@only_python
def test_half_a_character_as_a_special_token_is_an_error_with_its_file(tmp_path):
    bpe.train_bpe(None, 262, [], texts=["中中中"], output_dir=tmp_path)
    os.remove(tmp_path / "tokenizer.json")
    edit(tmp_path / "merges.txt", lambda data: data[: data.index(b"\n") + 1] + data.splitlines(keepends=True)[-1])
    with pytest.raises(ValueError, match=tmp_path.name) as caught:
        bpe.Tokenizer.load(tmp_path)
    assert type(caught.value) is ValueError


# --- IV. The tokenizer and its files: other tools --------------------------------------------------------------------


@functools.cache
def texts_for_others(seed):
    rng = random.Random(seed)
    texts = TEXTS + [random_text(rng, rng.choices(KNOWN, k=40) + TRICKY + [END], rng.randint(0, 300)) for _ in range(60)]
    spaces = [c for c in map(chr, range(0x3001)) if c.isspace()]
    texts += [random_text(rng, [*spaces, "a", "1", "."], 60) for _ in range(60)]
    texts += [FIXTURE if seed > 5000 else PART]
    if CORPORA:
        texts += (pathlib.Path(CORPORA) / "languages.txt").read_text(encoding="utf-8").split(END)[::7]
    return texts


def load_elsewhere(folder):
    """Load a folder in tokenizers, and in tiktoken by the recipe in the README."""
    tokenizers, tiktoken = need("tokenizers"), need("tiktoken")
    tokenizer = bpe.Tokenizer.load(folder)
    special_ids, pattern = tokenizer.special_ids, bpe.PATTERNS[tokenizer.options.pattern]
    ranks = {token: token_id for token_id, token in tokenizer.vocab.items() if token_id not in special_ids.values()}
    encoding = tiktoken.Encoding("mine", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special_ids)
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")), encoding


@only_c
@pytest.mark.parametrize("like", [None, "huggingface"])
@pytest.mark.parametrize("size, pattern", [(300, "gpt2"), (2000, "gpt2"), (32_000, "gpt2"), (2000, "cl100k"), (2000, "o200k"), (300, "llama3"), (300, "qwen2")])
def test_a_folder_encodes_the_same_in_other_tools(tmp_path, size, pattern, like):
    tokenizer = bpe.Tokenizer(*trained(size, pattern, like), [END], pattern)
    tokenizer.save(tmp_path)
    theirs, encoding = load_elsewhere(tmp_path)
    for text in texts_for_others(size):
        ids = tokenizer.encode(text)
        assert theirs.encode(text).ids == ids, text[:100]
        assert encoding.encode(text, allowed_special="all") == ids, text[:100]
        assert encoding.decode(ids) == text == theirs.decode(ids, skip_special_tokens=False)


def test_special_tokens_that_touch_or_nest_are_the_same_in_other_tools(tmp_path):
    special_tokens = ["<a>", "<a><b>", END, "<|end", "[x] y"]
    vocab, merges = bpe.train_bpe(CORPUS, 500, special_tokens, output_dir=tmp_path)
    tokenizer = bpe.Tokenizer(vocab, merges, special_tokens)
    theirs, encoding = load_elsewhere(tmp_path)
    rng = random.Random(3)
    for _ in range(500):
        text = random_text(rng, [*special_tokens, "a", " ", "<", "\n"], rng.randint(0, 30))
        ids = tokenizer.encode(text)
        assert theirs.encode(text).ids == ids
        if "<a><b>" not in text and END not in text:  # tiktoken does not always take the longest
            assert encoding.encode(text, allowed_special="all") == ids


@only_python
def test_gpt2s_two_files_load_in_tokenizers_as_they_are(tmp_path):
    tokenizers = need("tokenizers")
    tokenizer = bpe.Tokenizer(*trained(2000))
    tokenizer.save(tmp_path)
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt")))
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    text = FIXTURE.replace(END, "")
    assert theirs.encode(text).ids == tokenizer.encode(text)


@only_c
@pytest.mark.parametrize("pattern, like", [("gpt2", None), ("cl100k", "huggingface"), ("o200k", None)])
def test_transformers_loads_a_folder_and_writes_one_that_loads(tmp_path, pattern, like):
    transformers = need("transformers")
    tokenizer = bpe.Tokenizer(*trained(600, pattern, like), [END], pattern)
    tokenizer.save(tmp_path / "model")
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "model"))
    ids, text = tokenizer.encode(PART), f"Some new word, <pad>{END}!"
    assert theirs(PART)["input_ids"] == ids and theirs.decode(ids) == PART
    theirs.save_pretrained(str(tmp_path / "model"))  # over ours
    theirs.save_pretrained(str(tmp_path / "new"))
    for folder in ("model", "new"):
        again = bpe.Tokenizer.load(tmp_path / folder)
        assert (again.vocab, again.merges, again.options) == (tokenizer.vocab, tokenizer.merges, tokenizer.options)
    theirs.add_tokens(["new word"])
    theirs.add_special_tokens({"pad_token": "<pad>"})
    for folder in ("model", "more"):
        theirs.save_pretrained(str(tmp_path / folder))
        assert bpe.Tokenizer.load(tmp_path / folder).encode(text) == theirs(text)["input_ids"]
        assert bpe.Tokenizer.load(tmp_path / folder).encode(PART) == ids


@only_python
def test_only_new_characters_are_left_out_of_random_text():
    theirs = need("tokenizers").pre_tokenizers.ByteLevel(add_prefix_space=False)
    find = regex.compile(GPT2).finditer
    kinds = ["".join(group) for _, group in itertools.groupby(KNOWN, unicodedata.category)]
    # in runs of eight, which show whether a word ends inside
    runs = [kind[start : start + 8] for kind in kinds for start in range(0, len(kind), 8)]
    for start in range(0, len(runs), 100):
        text = "".join(f"a{run}1" for run in runs[start : start + 100])
        spans = [span for _, span in theirs.pre_tokenize_str(text)]
        assert spans == [match.span() for match in find(text)], hex(ord(runs[start][0]))


# --- V. Large corpora: where a text is cut ---------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", [*bpe.PATTERNS, r"\w+|\W", r"(a)(b)|\s+x"])
@pytest.mark.parametrize("newlines", ["keep", "lf"])
def test_cuts_change_nothing(tmp_path, monkeypatch, pattern, newlines):
    rng = random.Random(repr((pattern, newlines)))
    path = tmp_path / "text.txt"
    for specials in 3 * SPECIAL_SETS:
        text = random_text(rng, TRICKY + 3 * specials + ["a ", "ab\n"], rng.randint(0, 200))
        path.write_bytes(text.encode())
        read = text.replace("\r\n", "\n") if newlines == "lf" else text
        expression = bpe.PATTERNS.get(pattern, pattern)
        expected = {b"".join(word): n for word, n in naive_words(read, specials, expression).items() if word}
        for slice_bytes, window_bytes in rng.sample([(1, 1), (7, 11), (50, 13), (1 << 20, 64)], 2):
            monkeypatch.setattr(bpe, "SLICE_BYTES", slice_bytes)
            monkeypatch.setattr(bpe, "WINDOW_BYTES", window_bytes)
            counts = bpe.count_words(path, specials, pattern=pattern, newlines=newlines, workers=1)
            assert counts == expected, (text, specials)


def test_no_cut_where_a_special_token_vanishes_with_its_line_end(tmp_path, monkeypatch):
    path = tmp_path / "text.txt"
    for special, text in [("\r\n", "foo \r\nbar " * 20), ("<s>\r", "foo <s>\r\nbar " * 20), ("<s>\r", "foo <s>\rbar " * 20)]:
        path.write_bytes(text.encode())
        monkeypatch.setattr(bpe, "SLICE_BYTES", 20)
        monkeypatch.setattr(bpe, "WINDOW_BYTES", 16)
        words = naive_words(text.replace("\r\n", "\n"), [special], r"\S+|\s+")
        counts = bpe.count_words(path, [special], pattern=r"\S+|\s+", newlines="lf", workers=1)
        assert counts == {b"".join(word): count for word, count in words.items()}


def test_cuts_change_nothing_in_text_that_is_not_utf8(tmp_path, monkeypatch):
    rng = random.Random("replace")
    path = tmp_path / "text.txt"
    parts = [b"a", b"a ", b"\xff", b"\xe5\xad", b"\x97", b"\xf0\x9f", b" ", b"<|", b"|>", b"x", b"\r", b"\n", "字".encode()]
    for specials in [[], ["<||>"], ["a a"], ["a", "a\ufffd"][1:]]:
        for _ in range(30):
            data = b"".join(rng.choice(parts) for _ in range(rng.randint(0, 150)))
            path.write_bytes(data)
            expected = naive_words(data.decode(errors="replace"), specials)
            monkeypatch.setattr(bpe, "SLICE_BYTES", rng.choice([1, 5, 20]))
            monkeypatch.setattr(bpe, "WINDOW_BYTES", rng.choice([1, 9, 50]))
            counts = bpe.count_words(path, specials, errors="replace", workers=1)
            assert counts == {b"".join(word): n for word, n in expected.items()}


def test_the_tests_of_cutting_do_cut(tmp_path, small_slices):
    text = "one two three four five six seven eight nine ten " * 4
    path = tmp_path / "text.txt"
    path.write_text(text)
    for pattern, specials, least in [("gpt2", (), 15), ("cl100k", (), 15), (r"\w+", ("three",), 4), (r"\w+", (), 1)]:
        slices = list(bpe.slices_of_file(str(path), bpe.Options(specials, pattern)))
        assert len(slices) >= least
        assert [piece.start_byte for piece in slices[1:]] == [piece.end_byte for piece in slices[:-1]]
    # a special token that overlaps itself: only between two of them, counted from the left
    path.write_text("a a" * 13)
    starts = [piece.start_byte for piece in bpe.slices_of_file(str(path), bpe.Options(("a a",), r"\w+|\W"))]
    assert starts and all(start % 3 == 0 for start in starts)


def test_the_end_of_a_file_is_a_boundary_and_any_order_of_files_is_the_same(tmp_path):
    first, second = tmp_path / "1.txt", tmp_path / "2.txt"
    first.write_text("ab ab x")
    second.write_text("y ab")
    counts = bpe.count_words([first, second], [])
    assert counts == {b"ab": 1, b" ab": 2, b" x": 1, b"y": 1}
    trained = [bpe.train_bpe(paths, 300, [], workers=1) for paths in ([first, second], [str(second), str(first)])]
    assert trained[0] == trained[1]


# --- V. Large corpora: reading ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("data, hint", [
    (gzip.compress(b"hello", mtime=0), "looks compressed; try: zcat "), (bz2.compress(b"x"), "looks compressed; try: bzcat "),
    (lzma.compress(b"x"), "looks compressed; try: xzcat "), (b"\x28\xb5\x2f\xfd\x04\x00\xff", "looks compressed; try: zstdcat "),
    ("hello".encode("utf-16"), "UTF-16; try: iconv -f utf-16 -t utf-8 "), (b"\xfe\xff\x00a", "UTF-16; try: iconv -f utf-16 -t utf-8 "),
    ("héllo wörld, ça va".encode("utf-16-le"), "UTF-16.*iconv"), ("héllo wörld, ça va".encode("utf-16-be"), "UTF-16.*iconv"),
    ("un café crème, s'il vous plaît".encode("latin-1"), "iconv -f "), (b"PK\x03\x04\xff", "zip"), (b"PAR1\x15\x04\xff", "[Pp]arquet"),
    (b"\x7fELF\x02\x01\x01\0\xff", "looks|binary|ELF"), (b"word" + bytes(300) + b"\xff\xfe\x80", "looks|binary"),
    (b"name".ljust(257, b"\0") + b"ustar\0" + b"\xff", "tar"),
], ids=str)  # fmt: skip
def test_a_file_that_is_not_text_gets_a_hint(train, data, hint):
    with pytest.raises(ValueError, match=rf"text\.txt: .*({hint})") as caught:
        train(data, 300)
    assert "--errors replace" not in str(caught.value) or "latin" in str(caught.value).lower()


NOISE = random.Random(0).randbytes(4_000_000)


@pytest.mark.parametrize("data", [NOISE, gzip.compress(NOISE, 1, mtime=0), b"PK\x03\x04" + NOISE, NOISE.replace(b"\n", b"")], ids=["random", "gzip", "zip", "one line"])
@pytest.mark.parametrize("by", ["file", "pipe", "command line"])
def test_a_corpus_that_is_not_text_is_an_error_at_once(tmp_path, data, by, engine):
    path = tmp_path / "data.bin"
    path.write_bytes(data)
    start = time.process_time()
    if by == "command line":
        assert run(path, 300, cwd=tmp_path).returncode == 2 and not (tmp_path / "bpeModel" / "vocab.json").exists()
    else:
        with contextlib.ExitStack() as stack:
            if by == "pipe":
                cat = stack.enter_context(subprocess.Popen(["cat", path], stdout=subprocess.PIPE))
                path = f"/dev/fd/{cat.stdout.fileno()}"
            for pattern, special_tokens in [("gpt2", [END])] if by == "pipe" else [("gpt2", [END]), (r"\w+|\W", []), ("o200k", ["a a", "aa"])]:
                with pytest.raises(ValueError, match="not valid UTF-8 at byte |looks "):
                    bpe.count_words(path, special_tokens, pattern=pattern, workers=1)
    assert time.process_time() - start < 0.5


def test_places_to_cut_in_random_bytes_are_found_fast(tmp_path):
    (tmp_path / "data.bin").write_bytes(NOISE)
    start = time.process_time()
    assert len(list(bpe.slices_of_file(str(tmp_path / "data.bin"), bpe.Options((END,), errors="replace")))) <= 2
    slices = list(bpe.cut_stream([NOISE[at : at + 65536] for at in range(0, len(NOISE), 65536)], bpe.Options((END,), errors="replace"), 300_000))
    assert b"".join(slices) == NOISE and time.process_time() - start < 0.2 * 2  # 20 MB/s each


@pytest.mark.parametrize("data, hint", [(b"\0" * 6, "binary data"), (b"\0", "binary data"), ("low".encode("utf-16le"), "iconv -f utf-16le"), ("low".encode("utf-16be"), "iconv -f utf-16be")])
def test_nul_bytes_are_valid_and_warned_of(train, data, hint):
    with pytest.warns(UserWarning, match=f"looks like .*{hint}"):
        train(data, 300)


def test_a_byte_order_mark_stays_and_gets_a_warning(train):
    with pytest.warns(UserWarning, match=r"text\.txt: starts with a byte-order mark"):
        vocab, _ = train("\ufeffab", 300)
    assert "\ufeff".encode() in vocab.values()


@pytest.mark.parametrize("bad", BAD_UTF8)
@pytest.mark.parametrize("place", [0, 9000, None])
def test_bytes_that_are_not_utf8_are_named_by_file_and_offset(train, monkeypatch, bad, place):
    monkeypatch.setattr(bpe, "SLICE_BYTES", 9000)
    text = b"word and word. " * 2000
    place = len(text) if place is None else place
    data = text[:place] + bad + text[place:]
    workers = 2 if bad == b"\xff" else 1  # one case with workers, which take time to start
    with pytest.raises(UnicodeDecodeError) as expected:
        data.decode()
    with pytest.raises(ValueError, match=rf"text\.txt: not valid UTF-8 at byte {expected.value.start} "):
        train(data, 300, workers=workers)
    assert train(data, 300, errors="replace", workers=workers) == train(data.decode(errors="replace"), 300, workers=1)


def test_the_first_bad_byte_is_the_one_reported(train, monkeypatch):
    monkeypatch.setattr(bpe, "SLICE_BYTES", 1500)
    data = bytearray(b"word and word. " * 1500)
    data[9000] = data[2000] = 0xFF
    with pytest.raises(ValueError, match="byte 2000 "):
        train(bytes(data), 300, workers=2)


def test_newlines(train):
    text = "one\r\ntwo\r\n\r\nthree\rfour\n"
    assert train(text, 300, newlines="lf") == train(text.replace("\r\n", "\n"), 300)
    assert train(text, 300) == oracle(text, 300) != train(text, 300, newlines="lf")


def test_files_that_cannot_be_read_or_written(tmp_path):
    with pytest.raises(FileNotFoundError):
        bpe.train_bpe(tmp_path / "missing.txt", 300, [])
    with pytest.raises((ValueError, OSError), match=r"is a folder: give its files, .*/\*"):
        bpe.train_bpe(tmp_path, 300, [])
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="file is not a folder"):
        bpe.train_bpe(CORPUS, 300, [], output_dir=tmp_path / "file")
    with pytest.raises(ValueError, match="no corpus"):
        bpe.train_bpe([], 300, [])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork, to give up the rights of root")
def test_no_permission(tmp_path):
    secret, locked = tmp_path / "secret.txt", tmp_path / "locked"
    secret.write_text("x")
    locked.mkdir()
    secret.chmod(0)
    locked.chmod(0o555)
    os.chmod(tmp_path, 0o755)
    for parent in tmp_path.parents[:2]:
        with contextlib.suppress(OSError):
            os.chmod(parent, 0o755)

    def in_child():
        if os.geteuid() == 0:
            os.setuid(65534)
        for call in (lambda: bpe.train_bpe(secret, 300, []), lambda: bpe.train_bpe("nowhere.txt", 300, [], output_dir=locked / "x")):
            try:
                call()
                os._exit(1)
            except PermissionError:
                pass
        os._exit(0)

    child = multiprocessing.get_context("fork").Process(target=in_child)
    child.start()
    child.join()
    assert child.exitcode == 0


class AfterTasks(concurrent.futures.Executor):
    """Runs tasks immediately, and calls a function before the third one."""

    def __init__(self, call):
        self.call, self.tasks = call, itertools.count(1)

    def submit(self, task, *arguments):
        if next(self.tasks) == 3:
            self.call()
        future = concurrent.futures.Future()
        try:
            future.set_result(task(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.mark.parametrize("change", ["truncated", "replaced", "appended to", "changed in place"])
def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path, monkeypatch, change):
    monkeypatch.setattr(bpe, "SLICE_BYTES", 1000)
    path, text = tmp_path / "text.txt", b"low lower\n" * 1000
    path.write_bytes(text)
    os.utime(path, (1, 1))

    def make():
        if change == "truncated":
            os.truncate(path, 5000)
        elif change == "replaced":
            (tmp_path / "other").write_bytes(text.upper())
            (tmp_path / "other").replace(path)
        elif change == "appended to":
            with open(path, "ab") as file:
                file.write(text)
        else:
            with open(path, "r+b") as file:
                file.write(b"LOW")

    with pytest.raises(ValueError, match="text.txt: .*changed"):
        bpe.count_words(path, [], executor=AfterTasks(make))
    assert sum(bpe.count_words(path, [], executor=AfterTasks(lambda: None)).values()) > 0


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc here")
def test_a_file_that_does_not_know_its_size_is_read():
    assert os.path.getsize("/proc/self/status") == 0
    assert bpe.count_words("/proc/self/status", [])[b"Name"] == 1


def test_a_pipe_is_cut_like_a_file(small_slices, monkeypatch):
    rng = random.Random(5)
    for specials in SPECIAL_SETS:
        text = random_text(rng, TRICKY + 3 * specials + ["a "], 400)
        read_end, write_end = os.pipe()
        with os.fdopen(write_end, "wb") as pipe:
            pipe.write(text.encode())
        expected = {b"".join(word): n for word, n in naive_words(text, specials).items()}
        with os.fdopen(read_end, "rb"):
            assert bpe.count_words(f"/dev/fd/{read_end}", specials, workers=1) == expected


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_named_pipe_is_counted_by_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(bpe, "SLICE_BYTES", 40_000)
    os.mkfifo(tmp_path / "pipe")
    writer = subprocess.Popen(["sh", "-c", f"cat '{CORPUS}' > '{tmp_path}/pipe'"])
    assert bpe.count_words(tmp_path / "pipe", [END], workers=2) == bpe.count_words(CORPUS, [END], workers=1)
    writer.wait()


def test_a_pipe_that_does_not_wait_is_read_to_its_end(words_txt, engine):
    reading, writing = os.pipe()
    os.set_blocking(reading, False)

    def feed():
        with contextlib.suppress(BrokenPipeError), open(writing, "wb") as pipe:
            for line in TEXTBOOK.splitlines(keepends=True):
                time.sleep(0.3 if line.startswith("low ") else 0.05)
                pipe.write(line.encode())
                pipe.flush()

    thread = threading.Thread(target=feed)
    thread.start()
    with open(reading, "rb") as pipe:
        command = [sys.executable, ROOT / "bpe.py", "-", "300", "--output-dir", "pipe", "--quiet", "--engine", engine]
        assert subprocess.run(command, stdin=pipe, timeout=60).returncode == 0
    thread.join()
    assert model_in("pipe") == bpe.train_bpe("words.txt", 300, [END])


def test_many_special_tokens_cost_little(tmp_path, engine):
    specials = [f"<|special_{number}|>" for number in range(50_000)]
    vocab = {byte: bytes([byte]) for byte in range(256)}
    start = time.perf_counter()
    trained, _ = bpe.train_from_counts({b"ab": 3}, 60_000, specials)
    tokenizer = bpe.Tokenizer(vocab, [], specials)
    assert time.perf_counter() - start < 3
    assert len(trained) == 50_257 and tokenizer.special_ids[specials[-1]] == 50_255


@only_c
def test_the_search_for_special_tokens_does_not_grow_with_their_number(tmp_path):
    rng = random.Random(5)
    specials = ["".join(rng.choices("abcdefgh", k=12)) for _ in range(5000)]
    path = tmp_path / "text.txt"
    path.write_text("abc defg hab " * 100_000)
    seconds = []
    for few in (specials[:1], specials):
        start = time.process_time()
        words = bpe.count_words(path, few, workers=1)
        seconds.append(time.process_time() - start)
        assert words[b" defg"] == 100_000
    assert seconds[1] < 10 * seconds[0] + 0.05


@only_python
def test_thousands_of_special_tokens_are_found_fast_in_python_too():
    rng = random.Random(5)
    specials = ["".join(rng.choices("abcdefgh<>|", k=12)) for _ in range(5000)]
    text = "abc defg hab " * 40_000 + specials[7] + "bad"
    start = time.process_time()
    assert words_in(text, specials)["bad"] == 1
    assert time.process_time() - start < 1.5


@pytest.mark.parametrize("special_tokens", [["a a"], ["a a", *(f"a a{n}" for n in range(100))], ["a " * 10_000 + "b"], ["aa ", "a a"]], ids=["one", "many", "long", "two"])
def test_special_tokens_that_overlap_take_linear_time(tmp_path, monkeypatch, special_tokens):
    path, text = tmp_path / "text.txt", "a " * 32_000
    path.write_text(text)
    tokenizer = bpe.Tokenizer({byte: bytes([byte]) for byte in range(256)}, [], special_tokens)
    monkeypatch.setattr(bpe, "SLICE_BYTES", 16_000)
    start = time.process_time()
    counts = bpe.count_words(path, special_tokens, workers=1)
    ids, small = tokenizer.encode(text), [text[at : at + 1000] for at in range(0, 64_000, 1000)]
    assert list(tokenizer.encode_iterable([text])) == list(tokenizer.encode_iterable(small)) == ids
    assert time.process_time() - start < 1
    assert counts == {b"".join(word): count for word, count in naive_words(text, special_tokens).items()}


def test_hundreds_of_nested_special_tokens_are_found():
    specials = ["x" * n for n in range(2, 650)]
    tokenizer = bpe.Tokenizer({byte: bytes([byte]) for byte in range(256)}, [], specials)
    assert tokenizer.encode("x" * 1000 + "y") == [256 + 647, 256 + 349, 121]  # 649 and 351
    assert words_in("y" + "x" * 1000 + "yy", specials) == {"y": 1, "yy": 1}


def test_a_special_token_that_almost_matches_everywhere_costs_little():
    special = "a" * 15_999 + "b"
    tokenizer = bpe.Tokenizer(*trained(300), [special])
    start = time.process_time()
    assert len(tokenizer.encode("a" * 200_000)) == 200_000 and tokenizer.encode("x" + special) == [120, 300]
    assert time.process_time() - start < 2


# --- V. Large corpora: workers and executors -------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_the_number_of_workers_changes_nothing(monkeypatch, workers):
    monkeypatch.setattr(bpe, "SLICE_BYTES", 20_000)
    expected = words_of_the_fixture()
    assert bpe.count_words(CORPUS, [END], workers=workers) == expected


def test_no_more_workers_than_cores_run_at_once(words_txt, monkeypatch, engine):
    started, most = [], []

    class Process(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            started.append(self)
            most.append(sum(process.poll() is None for process in started))

    class Recorded(concurrent.futures.ThreadPoolExecutor):
        def __init__(self, workers, *arguments, **options):
            most.append(workers)
            super().__init__(workers, *arguments, **options)

    monkeypatch.setattr(concurrent.futures, "ThreadPoolExecutor", Recorded)
    monkeypatch.setattr(bpe, "SLICE_BYTES", 20)
    monkeypatch.setattr(subprocess, "Popen", Process)
    assert bpe.count_words("words.txt", [], workers=100_000)[b" newest"] == 5
    assert max(most) <= max(os.cpu_count(), 2) and bool(started) == (engine == "python")


@pytest.mark.parametrize("kind", ["ThreadPoolExecutor", "ProcessPoolExecutor"])
def test_any_executor_counts_the_same(part, monkeypatch, kind):
    monkeypatch.setattr(bpe, "SLICE_BYTES", 5000)
    with getattr(concurrent.futures, kind)(2) as executor:
        for pattern in ("gpt2", "cl100k"):
            expected = bpe.count_words(part, [END], workers=1, pattern=pattern)
            assert bpe.count_words(part, [END], executor=executor, pattern=pattern) == expected
        assert bpe.count_words(None, [], texts=["a b", "a"], executor=executor) == {b"a": 2, b" b": 1}


def test_a_task_that_always_fails_is_an_error_with_its_path_and_range(monkeypatch):
    def fail(piece, **options):
        raise OSError("disk on fire") if piece.start_byte else KeyError("first")

    monkeypatch.setattr(bpe, "SLICE_BYTES", 5000)
    monkeypatch.setattr(bpe, "count_slice", fail)
    with concurrent.futures.ThreadPoolExecutor(2) as executor, pytest.raises(RuntimeError, match=r"corpus\.txt, bytes 0 to \d+.*first"):
        bpe.count_words(CORPUS, [END], executor=executor)


@only_c
def test_a_dask_cluster_counts_the_same_also_when_a_worker_is_killed(tmp_path):
    if not importlib.util.find_spec("distributed"):  # the script imports it
        need("distributed")
    corpus = tmp_path / "corpus.txt"
    corpus.write_bytes(CORPUS.read_bytes() * 10)
    script = f"""
        import dask, os, signal, threading, time, bpe
        from distributed import Client, LocalCluster
        dask.config.set({{"distributed.comm.timeouts.connect": "5s"}})  # how long it waits for a killed worker
        bpe.SLICE_BYTES = 20_000
        if __name__ == "__main__":
            expected = bpe.count_words({str(corpus)!r}, ["{END}"], workers=1)
            with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
                with Client(cluster) as client:
                    client.run(lambda: __import__("sys").path.insert(0, {str(ROOT)!r}))
                    print(bpe.count_words({str(corpus)!r}, ["{END}"], executor=client.get_executor()) == expected)
                    pids = list(client.run(os.getpid).values())
                    threading.Timer(0.3, os.kill, (pids[0], signal.SIGKILL)).start()
                    start = time.time()
                    print(bpe.count_words([{str(corpus)!r}] * 4, ["{END}"], executor=client.get_executor(), engine="python")
                          == {{word: 4 * count for word, count in expected.items()}}, time.time() - start > 0.3)
    """
    for _ in range(3):  # distributed has a race in _cascade_future when a worker dies
        result = call_in_script(tmp_path, script)
        if b"_cascade_future" not in result.stderr:
            break
    assert result.stdout == b"True\nTrue True\n", result


@only_python
@pytest.mark.parametrize("mishap", ["bpe.count_slice = die", "pickle.dumps = leave_half", "pickle.dumps = lack_memory"])
def test_a_killed_worker_is_an_error_and_not_a_hang(tmp_path, mishap):
    (tmp_path / "worker.py").write_text(textwrap.dedent(f"""
        import os, pickle, signal
        def die(*arguments, **options):
            os.kill(os.getpid(), signal.SIGKILL)
        def leave_half(data, dumps=pickle.dumps):
            os.write(1, dumps(data)[:-20])
            die()
        def lack_memory(data, dumps=pickle.dumps):
            if not isinstance(data, MemoryError):
                raise MemoryError
            return dumps(data)
        {mishap}
    """))
    result = call_in_script(tmp_path, f"""
        import bpe
        bpe.SLICE_BYTES = 1000
        bpe.WORKER = bpe.WORKER.replace("bpe.work", "exec(open({str(tmp_path / "worker.py")!r}).read())\\nbpe.work")
        try:
            bpe.train_bpe({str(CORPUS)!r}, 300, [], workers=2, engine="python")
        except RuntimeError as error:
            print(error)
        except MemoryError:
            print("out of memory")
    """)
    if "lack_memory" in mishap:
        assert result.stdout == b"out of memory\n"
    else:
        assert b"worker process died" in result.stdout and b"corpus.txt, bytes 0 to " in result.stdout, result
    assert result.stderr == b""


@only_python
def test_workers_end_where_the_caller_ignores_sigterm(tmp_path):
    result = call_in_script(tmp_path, f"""
        import signal, bpe
        bpe.SLICE_BYTES = 60_000
        if __name__ == "__main__":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            print(len(bpe.count_words({str(CORPUS)!r}, ["{END}"], workers=2, engine="python")))
    """)
    assert result.stdout.strip().isdigit(), result


@only_python
def test_workers_do_not_outlive_a_parent_that_is_killed(tmp_path):
    corpus = tmp_path / "big.txt"
    corpus.write_bytes(CORPUS.read_bytes() * 600)
    command = [sys.executable, str(ROOT / "bpe.py"), str(corpus), "30000", "--workers", "2", "--engine", "python"]
    process = subprocess.Popen(command, cwd=tmp_path)
    wait_for(lambda: len(children_of(process.pid)) == 2)
    time.sleep(0.3)  # they are counting now
    workers = children_of(process.pid)
    process.kill()
    process.wait()
    assert len(workers) == 2 and all_end(workers, 0.5)


COUNT = (
    'started = []; sys.addaudithook(lambda event, _: started.append(event) if event == "subprocess.Popen" else None); '
    'print(bpe.count_words("text.txt", [], workers=2, engine="python")[b" lower"], len(started) > 1)'
)


@only_python
def test_workers_start_alike_whatever_imports_the_module(tmp_path):
    """Workers never load the script, so it may lack a guard or come from standard input."""
    (tmp_path / "text.txt").write_text("low lower\n" * 1000)
    by_path = f"""
        spec = importlib.util.spec_from_file_location("tokens_of_a_student", {str(ROOT / "bpe.py")!r})
        bpe = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(bpe)
    """
    for load, guard in (("import bpe", "True"), ("import bpe", '__name__ == "__main__"'), (by_path, "True")):
        script = f"import importlib.util, sys\nsys.path.insert(0, {str(ROOT)!r})\n{textwrap.dedent(load)}\nbpe.SLICE_BYTES = 6000\nif {guard}:\n    {COUNT}"
        (tmp_path / "script.py").write_text(script)
        for arguments, stdin in (["script.py"], ""), (["-"], script):
            result = subprocess.run([sys.executable, *arguments], input=stdin, capture_output=True, text=True, cwd=tmp_path, timeout=60)
            assert (result.returncode, result.stdout, result.stderr) == (0, "1000 True\n", "")  # no worker ran the script again


@only_python
def test_workers_import_nothing_from_the_current_folder(tmp_path):
    (tmp_path / "text.txt").write_text("low lower\n" * 1000)
    for name in ("signal", "pickle", "json", "regex", "bpe", "importlib"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not this one')")
    script = f"import sys; sys.path[:] = [p for p in sys.path if p] + [{str(ROOT)!r}]; import bpe; bpe.SLICE_BYTES = 6000; {COUNT}"
    for options in ([], ["-O"], ["-I"]):
        printed = 'sys.addaudithook(lambda event, arguments: sys.stdout.write(f"{\'-O\' in arguments[1]}\\n") if event == "subprocess.Popen" else None); '
        command = [sys.executable, *options, "-c", script.replace("started = []", printed + "started = []")]
        result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60, env={**os.environ, "PYTHONSAFEPATH": "1"})
        lines = result.stdout.split()
        assert lines[-2:] == ["1000", "True"] and set(lines[:-2]) == {str("-O" in options)}, result


@pytest.mark.skipif(sys.platform == "win32", reason="no groups of processes there")
@only_python
def test_ctrl_c_while_workers_start_prints_no_traceback(tmp_path):
    (tmp_path / "text.txt").write_text("low lower\n" * 1000)
    (tmp_path / "script.py").write_text(textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(ROOT)!r})
        import bpe
        bpe.SLICE_BYTES = 2000
        bpe.WORKER = "import sys, time; sys.stderr.write('starting\\\\n'); time.sleep(5)" + bpe.WORKER
        sys.exit(bpe.main(["text.txt", "300", "--engine", "python", "--quiet"]))
    """))
    command = [sys.executable, "script.py"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, cwd=tmp_path, start_new_session=True)
    assert [process.stderr.readline() for _ in range(2)] == [b"starting\n"] * 2
    os.killpg(process.pid, signal.SIGINT)
    start = time.time()
    _, stderr = process.communicate(timeout=30)
    assert (process.returncode, stderr.decode()) == (130, "interrupted\n")
    assert time.time() - start < 2


# --- V. Large corpora: encoding files --------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", [*bpe.PATTERNS, r"\w+|\W"])
def test_encoding_a_file_equals_encoding_its_text(tmp_path, monkeypatch, pattern):
    rng = random.Random(pattern)
    vocab, merges = trained(600, pattern if pattern in bpe.PATTERNS else "gpt2")
    path, output = tmp_path / "text.txt", tmp_path / "ids.npy"
    for special_tokens in ([], [END], ["a a"], ["<a>", "<a><b>"], [" \n\v", "\n\n\v", "\r\n"]):
        tokenizer = bpe.Tokenizer(vocab, merges, special_tokens, pattern)
        for _ in range(12):
            text = nested(rng, special_tokens) + " and " + nested(rng, special_tokens)
            path.write_bytes(text.encode())
            monkeypatch.setattr(bpe, "SLICE_BYTES", rng.choice([1, 7, 50]))
            monkeypatch.setattr(bpe, "WINDOW_BYTES", rng.choice([1, 11, 64]))
            newlines = rng.choice(["keep", "lf"])
            ids = tokenizer.encode(text.replace("\r\n", "\n") if newlines == "lf" else text)
            assert tokenizer.encode_files(path, output, workers=1, newlines=newlines) == len(ids)
            assert read_ids(output) == ("u2", ids)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_number_of_workers_changes_no_id(tmp_path, part, monkeypatch, workers):
    (tmp_path / "other.txt").write_text("  one more text  ")
    tokenizer = bpe.Tokenizer(*trained(2000), [END])
    ids = [token_id for path in (part, tmp_path / "other.txt", part) for token_id in tokenizer.encode(path.read_bytes().decode())]
    monkeypatch.setattr(bpe, "SLICE_BYTES", 7000)
    paths = [part, tmp_path / "other.txt", str(part)]
    assert tokenizer.encode_files(paths, tmp_path / "ids.npy", workers=workers) == len(ids)
    assert read_ids(tmp_path / "ids.npy") == ("u2", ids)
    assert tokenizer.encode_files(paths, tmp_path / "ids.bin", workers=workers) == len(ids)
    assert read_ids(tmp_path / "ids.bin", "u2") == ("u2", ids)
    assert sorted(os.listdir(tmp_path)) == ["ids.bin", "ids.npy", "other.txt"]


@pytest.mark.parametrize("kind", ["ThreadPoolExecutor", "ProcessPoolExecutor"])
@pytest.mark.parametrize("pattern", ["o200k", r"\w+|\W"])
def test_any_executor_encodes_the_same(tmp_path, part, monkeypatch, kind, pattern):
    monkeypatch.setattr(bpe, "SLICE_BYTES", 8000)
    tokenizer = bpe.Tokenizer(*trained(600), [END], pattern)
    with getattr(concurrent.futures, kind)(2) as executor:
        tokenizer.encode_files([part, part], tmp_path / "ids.npy", executor=executor)
    assert read_ids(tmp_path / "ids.npy") == ("u2", 2 * tokenizer.encode(PART))


@pytest.mark.parametrize("pattern", ["gpt2", r"\w+|\W"])
def test_texts_are_encoded_one_by_one_in_order(tmp_path, pattern):
    tokenizer = bpe.Tokenizer(*trained(300), [END], pattern)
    texts = ["low ", " low", "", f"lower{END}", "字"]
    n_ids = tokenizer.encode_files(None, tmp_path / "ids.bin", texts=(text for text in texts))
    ids = [token_id for text in texts for token_id in tokenizer.encode(text)]
    assert read_ids(tmp_path / "ids.bin", "u2") == ("u2", ids) and n_ids == len(ids)
    with pytest.raises(ValueError, match="pass either paths or texts"):
        tokenizer.encode_files("text.txt", tmp_path / "ids.bin", texts=["a"])


def test_the_files_to_encode_may_come_from_a_generator(tmp_path, part):
    tokenizer = bpe.Tokenizer(*trained(300))
    n_ids = tokenizer.encode_files((path for path in [part, part]), tmp_path / "ids.bin")
    ids = tokenizer.encode(PART)
    assert read_ids(tmp_path / "ids.bin", "u2") == ("u2", 2 * ids) and n_ids == 2 * len(ids)


def test_ids_take_two_bytes_where_all_fit(tmp_path, part):
    vocab, merges = trained(300)
    for largest, kind in ((2**16 - 1, "u2"), (2**16, "u4"), (2**32 - 2, "u4")):
        shifted = {token_id + largest - 299: token for token_id, token in vocab.items()}
        tokenizer = bpe.Tokenizer(shifted, merges, [END])
        for name in ("ids.npy", "ids.bin"):
            tokenizer.encode_files(part, tmp_path / name)
            ids = tokenizer.encode(PART)
            assert read_ids(tmp_path / name, kind if name == "ids.bin" else None) == (kind, ids) and max(ids) <= largest
    with_new = bpe.Tokenizer({token_id + 2**16 - 300: token for token_id, token in vocab.items()}, merges, ["<new>"])  # its id is 65536
    (tmp_path / "new.txt").write_text("<new>")
    with_new.encode_files(tmp_path / "new.txt", tmp_path / "ids.npy")
    assert read_ids(tmp_path / "ids.npy") == ("u4", [2**16])


@only_c
def test_numpy_opens_encoded_files(tmp_path):
    numpy = need("numpy")
    tokenizer = bpe.Tokenizer(*trained(600), [END])
    ids = tokenizer.encode(FIXTURE)
    for name, n in (("ids.npy", len(ids)), ("ids.bin", len(ids)), ("empty.npy", 0)):
        assert tokenizer.encode_files(CORPUS if n else os.devnull, tmp_path / name) == n
    data = numpy.load(tmp_path / "ids.npy", mmap_mode="r")
    assert data.dtype == numpy.uint16 and data.tolist() == ids and numpy.load(tmp_path / "empty.npy").shape == (0,)
    assert numpy.memmap(tmp_path / "ids.bin", dtype=numpy.uint16, mode="r").tolist() == ids


def test_nothing_to_encode_is_a_result(tmp_path):
    (tmp_path / "empty.txt").touch()
    tokenizer = bpe.Tokenizer(*trained(300))
    assert tokenizer.encode_files([tmp_path / "empty.txt"] * 2, tmp_path / "ids.npy") == 0
    assert tokenizer.encode_files(tmp_path / "empty.txt", tmp_path / "ids.bin") == 0
    assert read_ids(tmp_path / "ids.npy") == ("u2", []) and (tmp_path / "ids.bin").read_bytes() == b""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("workers", [1, 2])
def test_pipes_are_encoded_like_files(tmp_path, part, monkeypatch, workers):
    monkeypatch.setattr(bpe, "SLICE_BYTES", 6000)
    tokenizer = bpe.Tokenizer(*trained(600), [END])
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["sh", "-c", f"cat '{part}' > '{tmp_path}/pipe'"]):
        tokenizer.encode_files([tmp_path / "pipe", part], tmp_path / "ids.npy", workers=workers)
    assert read_ids(tmp_path / "ids.npy") == ("u2", 2 * tokenizer.encode(PART))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("pattern", ["gpt2", r"\w+|\W"])
def test_bad_utf8_in_the_middle_of_encoding_leaves_the_earlier_file(tmp_path, monkeypatch, workers, pattern):
    monkeypatch.setattr(bpe, "SLICE_BYTES", 9000)
    data = bytearray(b"word and word. " * 2000)
    data[20_000] = data[12_345] = 0xFF
    path, output = tmp_path / "text.txt", tmp_path / "ids.npy"
    path.write_bytes(data)
    output.write_bytes(b"earlier")
    tokenizer = bpe.Tokenizer(*trained(300), [END], pattern)
    with pytest.raises(ValueError, match=r"text\.txt: not valid UTF-8 at byte 12345 \(0xff"):
        tokenizer.encode_files(path, output, workers=workers)
    assert output.read_bytes() == b"earlier" and sorted(os.listdir(tmp_path)) == ["ids.npy", "text.txt"]
    tokenizer.encode_files(path, output, workers=workers, errors="replace")
    assert read_ids(output) == ("u2", tokenizer.encode(data.decode(errors="replace")))


def test_text_that_cannot_be_encoded_is_an_error_with_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(bpe, "SLICE_BYTES", 100)
    (tmp_path / "text.txt").write_text("ab ab" * 100 + " abx ab")
    tokenizer = bpe.Tokenizer({0: b"a", 1: b" ", 2: b"b"}, [])
    with pytest.raises(ValueError, match=r"text\.txt, bytes \d+ to \d+: .*no token for the byte b'x'"):
        tokenizer.encode_files(tmp_path / "text.txt", tmp_path / "ids.npy", workers=1)
    tokenizer = bpe.Tokenizer(*trained(300), [" ab "], r"\w+")
    with pytest.raises(ValueError, match=r"text\.txt, bytes \d+ to \d+: the pattern skips or reorders"):
        tokenizer.encode_files(tmp_path / "text.txt", tmp_path / "ids.npy")
    assert os.listdir(tmp_path) == ["text.txt"]


@pytest.mark.parametrize("break_at", ["the first ids", "the last ids", "the rename"])
def test_an_interruption_while_encoding_leaves_the_earlier_file(tmp_path, part, monkeypatch, break_at):
    monkeypatch.setattr(bpe, "SLICE_BYTES", 3000)
    calls = []

    def stop(*arguments):
        raise KeyboardInterrupt

    def advance(results, *rest):
        for result in results:
            calls.append(1)
            if len(calls) == (1 if break_at == "the first ids" else 5):
                raise KeyboardInterrupt
            yield result

    if break_at == "the rename":
        monkeypatch.setattr(os, "replace", stop)
    else:
        monkeypatch.setattr(bpe, "with_progress", advance)
    (tmp_path / "ids.npy").write_bytes(b"earlier")
    with pytest.raises(KeyboardInterrupt):
        bpe.Tokenizer(*trained(300), [END]).encode_files(part, tmp_path / "ids.npy", workers=1)
    assert (tmp_path / "ids.npy").read_bytes() == b"earlier" and os.listdir(tmp_path) == ["ids.npy"]


def test_ids_are_never_written_where_no_file_can_be(tmp_path, part):
    (tmp_path / "folder.npy").mkdir()
    (tmp_path / "file").touch()
    tokenizer = bpe.Tokenizer(*trained(300))
    with pytest.raises(ValueError, match=r"refusing to overwrite .*folder\.npy: not a regular file"):
        tokenizer.encode_files(part, tmp_path / "folder.npy")
    with pytest.raises(ValueError, match="file is not a folder"):
        tokenizer.encode_files(part, tmp_path / "file" / "ids.npy")
    os.symlink("/dev/null", tmp_path / "device.npy")
    with pytest.raises(ValueError, match="device.npy: not a regular file"):
        tokenizer.encode_files(part, tmp_path / "device.npy")
    assert sorted(os.listdir(tmp_path)) == ["device.npy", "file", "folder.npy"]


def test_ids_never_replace_one_of_their_inputs(tmp_path, error):
    """By whatever path or link."""
    tokenizer = bpe.Tokenizer(*trained(300), [END])
    tokenizer.save("bpeModel")
    text = pathlib.Path("text.npy")
    text.write_text("low lower")
    os.symlink(text, "symbolic.npy")
    os.link(text, "hard.npy")
    for output in (text, text.absolute(), "./text.npy", "symbolic.npy", "hard.npy", os.path.join("bpeModel", "..", "text.npy")):
        with pytest.raises(ValueError, match=r"\.npy"):
            tokenizer.encode_files(["words.txt", text], output)
        for size in ([], [300]):
            assert ".npy" in error("words.txt", text, *size, "--encode", output)
        assert text.read_text() == "low lower"
    tokenizer.encode_files(text, "other.npy")


def test_files_of_ids_are_npy_or_bin(tmp_path, part):
    for name in ("out.txt", "out", "out.npz", ""):
        with pytest.raises(ValueError, match=r"\.npy.*\.bin|must not be empty"):
            bpe.Tokenizer(*trained(300)).encode_files(part, tmp_path / name if name else "")
    assert os.listdir(tmp_path) == []


def test_bad_options_of_encode_files(tmp_path, part):
    tokenizer = bpe.Tokenizer(*trained(300))
    for options in ({"workers": 0}, {"errors": "ignore"}, {"newlines": "x"}, {"color": 1}, {"like": "huggingface"}, {"vocab_size": 300}):
        with pytest.raises((ValueError, TypeError), match=next(iter(options))):
            tokenizer.encode_files(part, tmp_path / "ids.npy", **options)
    with pytest.raises(FileNotFoundError):
        tokenizer.encode_files([part, tmp_path / "missing.txt"], tmp_path / "ids.npy")
    with pytest.raises(ValueError, match="no corpus file"):
        tokenizer.encode_files([], tmp_path / "ids.npy")
    assert os.listdir(tmp_path) == []


@only_c
@pytest.mark.skipif(sys.platform != "linux", reason="measures memory as Linux counts it")
def test_encoding_takes_little_memory(tmp_path):
    """The ids alone take 205 MB."""
    bpe.train_bpe(CORPUS, 2000, [END], output_dir=tmp_path / "model")
    (tmp_path / "text.txt").write_bytes(CORPUS.read_bytes() * 300)  # 32 MB
    result = call_in_script(tmp_path, f"""
        import bpe
        tokenizer = bpe.Tokenizer.load({str(tmp_path / "model")!r})
        n_ids = tokenizer.encode_files([{str(tmp_path / "text.txt")!r}] * 8, {str(tmp_path / "ids.bin")!r}, workers=2)
        print(n_ids, *[int(line.split()[1]) // 1000 for line in open("/proc/self/status") if line.startswith("VmHWM")])
    """)
    n_ids, megabytes = map(int, result.stdout.split())
    assert n_ids * 2 == (tmp_path / "ids.bin").stat().st_size > 200_000_000 and megabytes < 180
    (tmp_path / "ids.bin").unlink()


# --- VII. The command line: training ---------------------------------------------------------------------------------


def test_the_command_line_writes_what_the_library_does(tmp_path):
    result = run(CORPUS, 300, "--output-dir", tmp_path / "out")
    assert result.returncode == 0 and result.stdout == b""
    assert (tmp_path / "out" / "merges.txt").read_bytes() == (FIXTURES / "vocab300" / "merges.txt").read_bytes()
    text = result.stderr.decode()
    size = CORPUS.stat().st_size
    for part in (f"{size:,} bytes", "300 = 256 bytes + 1 special token + 43 merges\n", "bytes per token", "counting", "MB", "distinct"):
        assert part in text
    words = naive_words(FIXTURE, [END])
    for merge in model_in(tmp_path / "out")[1]:
        words = collections.Counter({naive_merge(word, merge): count for word, count in words.items()})
    in_words = sum(len(b"".join(word)) * count for word, count in words.items())
    tokens = sum(len(word) * count for word, count in words.items())
    assert f"{in_words / tokens:.2f} bytes per token" in text
    assert f"{sum(words.values()):,}, {len(words):,} of them distinct" in text


def test_options_may_stand_anywhere(tmp_path, part):
    expected = None
    arguments = [str(part), "400"]
    options = ["--output-dir", str(tmp_path), "--quiet"]
    for order in ([*options, *arguments], [*arguments, *options], [arguments[0], *options, arguments[1]]):
        result = run(*order)
        assert (result.returncode, result.stderr) == (0, b"")
        merges = (tmp_path / "merges.txt").read_bytes()
        expected = expected or merges
        assert merges == expected


def test_special_tokens_on_the_command_line(tmp_path):
    corpus = tmp_path / "c.txt"
    corpus.write_text(f"aa<x>aa{END}aa")
    cases = [([], [END]), (["--special-token", "<x>"], ["<x>"]), (["--no-special-tokens"], []),
             (["--special-token", "<x>", "--special-token", END], ["<x>", END])]  # fmt: skip
    for options, special_tokens in cases:
        assert run(corpus, 280, *options, "--output-dir", tmp_path).returncode == 0
        assert model_in(tmp_path) == bpe.train_bpe(corpus, 280, special_tokens)


def test_a_pipe_and_standard_input_are_read(tmp_path):
    data = CORPUS.read_bytes()
    assert run("-", 500, "--output-dir", tmp_path, stdin=data).returncode == 0
    assert (tmp_path / "merges.txt").read_bytes() == (FIXTURES / "vocab500" / "merges.txt").read_bytes()
    assert "looks compressed; try: zcat" in one_line(run("-", 500, "--output-dir", tmp_path, stdin=gzip.compress(data)).stderr)


@only_python
def test_sizes_may_be_given_in_thousands(main):
    for size, number in (("1k", "1,000"), ("32K", "32,000")):
        assert f"{number} requested" in main("words.txt", size)[2]


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="file names are text there")
@only_python
def test_any_file_name_will_do(main, error):
    for name in ("two\nlines.txt", "\udcff.txt", "-.txt", " .txt", "é.txt"):
        shutil.copy("words.txt", name)
        assert main(f"./{name}", 262, "--output-dir", f"./{name}.model")[0] == 0
        assert len(model_in(f"{name}.model")[1]) == 5
    assert "special token" in error("words.txt", 300, "--special-token", "\udcff")


@only_python
def test_a_copy_alone_inside_a_package(tmp_path):
    package = tmp_path / "course" / "basics"
    package.mkdir(parents=True)
    shutil.copy(ROOT / "bpe.py", package / "bpe.py")
    (tmp_path / "course" / "__init__.py").touch()
    (package / "__init__.py").touch()
    script = f"from course.basics.bpe import train_bpe; v, m = train_bpe({str(CORPUS)!r}, 500, ['{END}']); print(len(v), len(m))"
    result = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, timeout=60)
    assert result.stdout.split() == [b"500", b"243"], result


# --- VII. The command line: its output -------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments, made_of, why_smaller", [
    ("262", "262 = 256 bytes + 1 special token + 5 merges", ""),
    ("1000 --no-special-tokens", "272 = 256 bytes + 0 special tokens + 16 merges", "1,000 requested; every word is a single token now"),
    ("264 --special-token <a> --special-token <b> --max-token-length 2 --min-frequency 9",
     "259 = 256 bytes + 2 special tokens + 1 merge", "264 requested; no pair is left within the given limits"),
])  # fmt: skip
def test_the_summary_says_what_the_vocabulary_is_made_of(main, arguments, made_of, why_smaller):
    status, _, stderr = main("words.txt", *arguments.split())
    lines = summary(stderr)
    assert status == 0 and lines["vocabulary"].startswith(made_of)
    assert lines["vocabulary"] == made_of + (f"; {why_smaller}" if why_smaller else "")
    assert " MB/s" in lines["read"]
    assert regex.fullmatch(r"[\d,]+ MB(, and [\d,]+ MB in a worker process)?", lines.get("peak memory", "0 MB"))  # not available on Windows


@pytest.mark.parametrize("data", [b"", END.encode(), END.encode() * 3])
def test_a_corpus_without_a_word_is_an_error_on_the_command_line(main, error, data):
    """An empty pipe must not replace a good model; in Python it is a result (test_nothing_to_merge_is_a_result)."""
    assert main("words.txt", 262, "--quiet")[0] == 0
    before = files_of("bpeModel")
    pathlib.Path("empty.txt").write_bytes(data)
    assert regex.search("no words|not a single word|nothing to learn from|is empty", error("empty.txt", 300))
    assert files_of("bpeModel") == before
    error("empty.txt", 300, "--output-dir", "new")
    assert not list(pathlib.Path().glob("new/*"))


def test_line_endings_of_two_bytes_are_noted(main):
    pathlib.Path("text.txt").write_bytes(b"a b\r\nc d\r\n")
    assert r"lines end in \r\n, which is kept" in main("text.txt", 300)[2]
    assert r"\r\n" not in main("text.txt", 300, "--newlines", "lf")[2]
    assert r"\r\n" not in main("words.txt", 300)[2]


def test_log_every(tmp_path):
    path = tmp_path / "c.txt"
    path.write_text(TEXTBOOK)
    result = run(path, 268, "--no-special-tokens", "--pattern", r"\S+", "--log-every", 4, "--output-dir", tmp_path)
    lines = result.stdout.decode().splitlines()
    assert lines == ["4\tl ow -> low\t7", "8\tw i -> wi\t3", "12\tlowe r -> lower\t2"]


EXPLAINED = [
    ([3000], 8), ([3000, "--like", "huggingface"], 8), ([400, "--max-token-length", 2], 8), ([400, "--min-frequency", 55], 8),
    ([260], 8), ([400, "--pattern", "o200k"], 8), ([280], 20), ([280, "--like", "huggingface"], 20),  # 20 rounds: the textbook example, with ties between new tokens
]  # fmt: skip


@pytest.mark.parametrize("options, rounds", EXPLAINED)
def test_an_explanation_is_of_the_merges_that_are_made(tmp_path, options, rounds):
    """The pairs and counts are checked against the oracle."""
    corpus = tmp_path / "corpus.txt"
    corpus.write_bytes(TEXTBOOK.encode() if rounds == 20 else CORPUS.read_bytes()[:4000])  # English only
    result = run(corpus, *options, "--explain", rounds, "--quiet", "--output-dir", tmp_path)
    assert result.returncode == 0, result
    merges = model_in(tmp_path)[1]
    words = naive_words(corpus.read_bytes().decode(), [END], bpe.PATTERNS["o200k" if "o200k" in options else "gpt2"])
    show = lambda tokens: " ".join(t.decode(errors="backslashreplace").replace(" ", "␣") for t in tokens)  # noqa: E731
    expected = []
    for number, pair in enumerate(merges[:rounds], 1):
        counts = naive_counts(words)
        if "--max-token-length" in options:
            counts = {pair: count for pair, count in counts.items() if len(pair[0] + pair[1]) <= 2}
        ties = [count for count in counts.values() if count == counts[pair]]
        first_line = f"round {number}: {show(pair)} ({counts[pair]:,} time{'s' * (counts[pair] > 1)})"
        rule = "smaller ids" if "huggingface" in options else "greater bytes"
        expected.append((first_line, f"    merge {show(pair)}" + f" ({len(ties)} pairs tie at {counts[pair]:,}; the {rule} win)" * (len(ties) > 1)))
        words = {naive_merge(word, pair): count for word, count in words.items()}
    found = regex.findall(r"(?m)^(round \d+: .+? times?\)).*\n(    merge .*)$", result.stdout.decode())
    assert found == expected
    assert len(found) == min(rounds, len(merges)) > 0


def test_an_explanation_says_one_time(tmp_path):
    (tmp_path / "c.txt").write_text("abc")
    assert run("c.txt", 258, "--explain", 2, "--quiet", "--no-special-tokens", cwd=tmp_path).stdout.decode() == (
        "round 1: b c (1 time), a b (1 time)\n    merge b c (2 pairs tie at 1; the greater bytes win)\n    a b c -> a bc (1 time)\n"
        "round 2: a bc (1 time)\n    merge a bc\n    a bc -> abc (1 time)\n"
    )


def test_an_explanation_without_a_folder_saves_nothing_and_says_so(tmp_path, part):
    assert run(part, 400, "--quiet", cwd=tmp_path).returncode == 0
    before = files_of(tmp_path / "bpeModel")
    result = run(part, 262, "--explain", 6, cwd=tmp_path)
    assert result.returncode == 0 and b"round 5" in result.stdout and b"saved          nothing; --explain" in result.stderr
    assert files_of(tmp_path / "bpeModel") == before and os.listdir(tmp_path) == ["bpeModel"]


def test_the_summary_counts_the_memory_of_workers_and_names_the_engine_that_counted(main, monkeypatch, engine):
    resource = pytest.importorskip("resource")
    usage = {resource.RUSAGE_SELF: 33_000, resource.RUSAGE_CHILDREN: 54_000}
    monkeypatch.setattr(resource, "getrusage", lambda who: types.SimpleNamespace(ru_maxrss=usage[who]))
    monkeypatch.setattr(bpe, "SLICE_BYTES", 20)
    lines = summary(main("words.txt", 300, "--workers", 2)[2])
    workers = engine == "python" and sys.platform != "darwin"
    assert not workers or max(map(int, regex.findall(r"\d+", lines["peak memory"]))) >= 55  # MB; getrusage counts in KiB
    assert lines["engine"].startswith("C" if engine == "c" else "Python")
    assert "Python" in summary(main("words.txt", 300, "--pattern", r"\w+|\W")[2])["engine"]


def test_ids_of_a_model_that_is_not_saved_are_refused(error):
    message = error("words.txt", 300, "--explain", 1, "--encode", "ids.npy")
    assert "--explain and --encode require --model" in message and not os.path.exists("ids.npy")


def test_show(tmp_path, part):
    assert run(part, 600, "--output-dir", tmp_path).returncode == 0
    text = f"The ferry 字{END}"
    tokenizer = bpe.Tokenizer.from_files(tmp_path / "vocab.json", tmp_path / "merges.txt", [END])
    ids = tokenizer.encode(text)
    expected = "|".join(tokenizer.vocab[i].decode(errors="backslashreplace") for i in ids) + "\n" + " ".join(map(str, ids))
    expected += f"\n{len(ids)} tokens, {len(text.encode())} bytes, {len(text.encode()) / len(ids):.2f} bytes per token\n"
    for argument, options in ((text, {}), ("-", {"stdin": text.encode()})):
        result = run("--show", argument, "--output-dir", tmp_path, **options)
        assert result.stdout.decode() == expected and "\\x" in expected
    assert run("--show", "x", part, "--output-dir", tmp_path).returncode == 2


def test_control_characters_are_made_visible(main, error, words_txt):
    assert main("words.txt", 262, "--quiet")[0] == 0
    status, stdout, _ = main("--show", "a\x1b[31mb\rc\x07 \x9b")
    assert status == 0 and not set("\x1b\r\x07\x9b") & set(stdout) and "\\x1b" in stdout
    for name in ("no\x1b[31m.txt", "no\rway.txt"):
        assert not set("\x1b\r") & set(error(name, 300))


@pytest.mark.parametrize("options", [["--pattern", "o200k"], ["--special-token", "<x>"], ["--no-special-tokens"], ["--encode", "ids.npy"], ["--like", "huggingface"]])
def test_show_takes_no_options_of_training(main, error, options):
    assert main("words.txt", 262, "--quiet")[0] == 0
    assert options[0].strip("-").removeprefix("no-").rstrip("s") in error("--show", "low", *options)


@only_python
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_show_into_a_full_disk_is_an_error(main):
    assert main("words.txt", 262, "--quiet")[0] == 0
    result = shell('"$@" >/dev/full', "--show", "low")
    assert result.returncode != 0 and b"No space left" in result.stderr, result


def test_help_has_groups_and_ends_with_examples(main):
    status, stdout, _ = main("--help")
    assert status == 0 and "--special-token" in stdout
    examples = stdout.split("\nexamples:\n")[1].rstrip().splitlines()
    assert len(examples) >= 2 and all(line.startswith("  python bpe.py ") for line in examples)
    headings = [line for line in stdout.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == ["input:", "training:", "output:", "looking:", "examples:"]
    assert main("--version")[:2] == (0, f"bpe.py {bpe.__version__}\n")


@only_python
def test_without_arguments_there_are_the_usage_and_examples(main):
    status, _, stderr = main()
    assert status == 2 and "usage: bpe.py CORPUS" in stderr and stderr.count("\n  python bpe.py ") >= 2


def test_the_progress_on_a_terminal(words_txt, monkeypatch):
    clock = itertools.count(100, 0.15)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(bpe, "SLICE_BYTES", 20)
    expected = bpe.train_bpe("words.txt", 265)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert bpe.train_bpe("words.txt", 265, progress=True, workers=1) == expected
    counting, _, learning = sys.stderr.getvalue().partition("learning merges:")
    assert counting.startswith("counting words: preparing\r") and " MB/s" in counting and " s left" in counting
    assert learning.startswith(" preparing\r") and " merges/s" in learning and " s left" in learning
    assert counting.endswith("\r\x1b[K") and learning.endswith("\r\x1b[K")  # the line is erased
    assert "\n" not in counting + learning
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    bpe.train_bpe("words.txt", 265, progress=True, workers=1)
    assert sys.stderr.getvalue() == ""


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_the_progress_wipes_its_line_after_an_error_too(monkeypatch, error):
    def texts():
        yield from ["low lower"] * 3
        raise error

    monkeypatch.setattr(bpe, "SLICE_BYTES", 5)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with pytest.raises(error):
        bpe.train_bpe(None, 300, texts=texts(), progress=True, workers=1)
    assert sys.stderr.getvalue().endswith("\r\x1b[K")


@only_python
@pytest.mark.parametrize("seconds_between, at_once, speed", [(0.15, 1, 4), (1, 2, 1.2)])  # 2: two workers finish together
def test_the_speed_in_the_progress_line_is_never_too_high(monkeypatch, seconds_between, at_once, speed):
    seconds = 0

    def slices():
        nonlocal seconds
        for _ in range(6):
            seconds += seconds_between
            yield from [(bpe.Slice("", 0, 600_000), None)] * at_once

    monkeypatch.setattr(time, "monotonic", lambda: seconds)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert len(list(bpe.with_progress(slices(), "counting words", "MB", None, True))) == 6 * at_once
    speeds = [float(part.split()[-1]) for part in sys.stderr.getvalue().split(" MB/s")[:-1]]
    assert len(speeds) > 1 and max(speeds) <= speed


# --- VII. The command line: encoding ---------------------------------------------------------------------------------


def test_encode_on_the_command_line(tmp_path, part):
    vocab, merges = bpe.train_bpe(part, 500, ["<x>", END], pattern="o200k", output_dir=tmp_path / "model")
    (tmp_path / "text.txt").write_text(f"Some 12345 words'LL<x>{END}x" * 20)
    expected = bpe.Tokenizer(vocab, merges, ["<x>", END], "o200k").encode((tmp_path / "text.txt").read_text())
    result = run("text.txt", "--encode", "ids.npy", "--output-dir", "model", cwd=tmp_path)
    assert result.returncode == 0 and read_ids(tmp_path / "ids.npy") == ("u2", expected), result
    size = (tmp_path / "text.txt").stat().st_size
    encoded = rf"{size:,} bytes, \d+ MB/s: {len(expected):,} tokens, {size / len(expected):.2f} bytes per token\n"
    assert regex.search(encoded, result.stderr.decode()) and "ids.npy" in result.stderr.decode()
    assert run("-", "--encode", "ids.bin", "--output-dir", "model", cwd=tmp_path, stdin=(tmp_path / "text.txt").read_bytes()).returncode == 0
    assert read_ids(tmp_path / "ids.bin", "u2") == ("u2", expected)
    # with a size, train first
    result = run("text.txt", part, 400, "--encode", "both.npy", "--output-dir", "new", "--quiet", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, b"")
    tokenizer = bpe.Tokenizer(*bpe.train_bpe([tmp_path / "text.txt", part], 400, [END], workers=1), [END])
    assert model_in(tmp_path / "new") == (tokenizer.vocab, tokenizer.merges)
    both = [token_id for path in (tmp_path / "text.txt", part) for token_id in tokenizer.encode(path.read_bytes().decode())]
    assert read_ids(tmp_path / "both.npy") == ("u2", both)


def test_encode_takes_everything_from_the_folder(tmp_path, part, monkeypatch, engine):
    """This includes where text may be cut: if "a b" is a special token, not between a and b."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("xa bx a bx a b" * 20)
    for special_tokens, pattern in ((["a b"], "gpt2"), (["<x>"], r"\w+ \w+|\w|\W")):
        tokenizer = bpe.Tokenizer.train(part, 300, special_tokens, pattern=pattern)
        tokenizer.save("bpeModel")
        with monkeypatch.context() as small:
            small.setattr(bpe, "SLICE_BYTES", 10)
            small.setattr(bpe, "WINDOW_BYTES", 8)
            assert bpe.main(["text.txt", "--encode", "ids.npy", "--quiet", "--workers", "1", "--engine", engine]) == 0
        assert read_ids(tmp_path / "ids.npy") == ("u2", tokenizer.encode((tmp_path / "text.txt").read_text()))


@only_python
@pytest.mark.parametrize("options, text", [
    (["--pattern", "o200k"], "bpeModel was trained with pattern='gpt2', not 'o200k'"),
    (["--special-token", "<y>"], "bpeModel was trained with special_tokens=('<|endoftext|>',), not ('<y>',)"),
    (["--no-special-tokens"], "bpeModel was trained with special_tokens=('<|endoftext|>',), not ()"),
])  # fmt: skip
def test_encode_refuses_what_contradicts_the_folder(tmp_path, part, options, text):
    bpe.train_bpe(part, 300, [END], output_dir=tmp_path / "bpeModel")
    result = run(part, "--encode", "ids.npy", *options, cwd=tmp_path)
    assert result.returncode == 2 and text in one_line(result.stderr)
    assert os.listdir(tmp_path) == ["bpeModel"]


@only_python
def test_encode_is_refused_before_training(tmp_path):
    result = run("-", 300, "--encode", "ids.npy", cwd=tmp_path, stdin=b"ab")
    assert result.returncode == 2 and "read twice" in one_line(result.stderr) and os.listdir(tmp_path) == []


@only_python
def test_encode_without_a_model_says_so(tmp_path, part):
    result = run(part, "--encode", "ids.npy", cwd=tmp_path)
    assert result.returncode == 2 and "bpeModel" in one_line(result.stderr) and os.listdir(tmp_path) == []


# --- VII. The command line: errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments, text", [
    (["c.txt"], "give a corpus and, last, the vocabulary size: bpe.py corpus.txt 10000"),
    (["c.txt", "many"], "give a corpus and, last, the vocabulary size"),
    (["c.txt", "10kk"], "10kk"),
    (["300"], "not bpe.py 300"),
    (["300", "c.txt"], "not bpe.py 300 c.txt"),
    (["--show", "x", "c.txt"], "--show can't be combined with a corpus or a size: c.txt"),
    (["c.txt", "10"], "vocabulary size 10 is too small; the minimum is 257 (256 bytes + 1 special token)"),
    (["c.txt", "-10"], "must be a positive integer, not -10"),
    (["missing.txt", "300"], "No such file or directory: 'missing.txt'"),
    ([".", "300"], ". is a folder: give its files, ./*"),
    (["c.txt", "300", "--colour"], "--colour"),
    (["c.txt", "300", "--errors", "ignore"], "ignore"),
    (["c.txt", "300", "--workers", "0"], "workers must be"),
    (["c.txt", "300", "--pattern", "(["], "regular expression"),
    (["c.txt", "300", "--special-token", ""], "special token 1 ('') must be valid text of at least two bytes"),
    (["c.txt", "300", "--special-token", "<x>", "--no-special-tokens"], "not allowed with"),
    (["c.txt", "300", "--log-every", "0"], "--log-every must be"),
    (["c.txt", "300", "--output-dir", "c.txt"], "c.txt is not a folder"),
    (["bad.txt", "300"], "bad.txt: not valid UTF-8 at byte 3 (0xff, invalid start byte); "),
    (["c.gz", "1000"], "looks compressed; try: zcat c.gz | python bpe.py - 1000"),
])  # fmt: skip
def test_bad_command_lines_end_with_one_line_and_status_2(error, arguments, text):
    for name, data in (("c.txt", b"hello"), ("bad.txt", b"abc\xff"), ("c.gz", b"\x1f\x8b\x08\x00")):
        pathlib.Path(name).write_bytes(data)
    assert text in error(*arguments)
    assert not list(pathlib.Path().glob("bpeModel/*"))


@pytest.mark.parametrize("arguments, text, without", [
    (["c.txt", "300", "--output-dir", ""], "--(output-dir|model) must not be empty", ""), (["c.txt", "--encode", ""], "--encode.*must", ""),
    (["c.txt", "300", "--pattern", ""], "pattern", ""), (["", "300"], "''|empty", ""), (["--show", "x", "--output-dir", ""], "--(output-dir|model) must not be empty", ""),
    (["c.txt", "300", "--explain", "-3"], "--explain must be", ""),
    (["--encode", "ids.npy"], "corpus", "size"),
    (["c.txt", "1,000"], "'1,000' is not a size", ""), (["c.txt", "1M"], "'1M' is not a size", ""), (["c.txt", "1e4"], "'1e4' is not a size", ""),
    (["c.txt", "--vocab-size", "300"], "--vocab-size.*last|the size.*last|bpe.py corpus.txt 10000", ""), (["c.txt", "300", "--special-tokens", "<x>"], "--special-token\\b", ""),
    (["docs", "300"], r"docs is a folder.*docs/\*", ""), (["my file.gz", "300"], "zcat 'my file.gz' ", ""),
    (["c.txt", "300", "--workers", "0"], "--workers must be", "workers=0"), (["c.txt", "300", "--min-frequency", "0"], "--min-frequency must be", ""),
    (["c.txt", "300", "--max-token-length", "0"], "--max-token-length must be", ""),
    (["--show", "x"], "no model in bpeModel: train one first, or name its folder with --(output-dir|model)", "Errno"),
])  # fmt: skip
@only_python
def test_messages_name_what_was_typed_and_what_to_do(error, arguments, text, without):
    os.mkdir("docs")
    for name, data in (("c.txt", b"hello"), ("my file.gz", b"\x1f\x8b\x08\x00")):
        pathlib.Path(name).write_bytes(data)
    message = error(*arguments)
    assert regex.search(text, message) and (not without or without not in message), message
    assert not list(pathlib.Path().glob("bpeModel/*"))


@only_python
def test_messages_about_arguments_in_python(tmp_path, part, monkeypatch):
    with pytest.raises((OSError, ValueError)) as caught:
        bpe.Tokenizer.train("low lower " * 10_000, 300)
    assert len(str(caught.value)) < 500
    assert bpe.train_bpe(texts=["ab"], vocab_size=257)[1] == [(b"a", b"b")] == bpe.Tokenizer.train(texts=["ab"], vocab_size=257).merges
    monkeypatch.chdir(tmp_path)
    for name in ("h", "other"):
        bpe.train_bpe(part, 300 + len(name), output_dir=name)
    shutil.copy("other/merges.txt", "h")
    with pytest.raises(ValueError, match="^h: mixes files from different training runs"):
        bpe.Tokenizer.load("h")
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/bpe-py"])
    result = run()
    assert result.returncode == 2 and b"usage: bpe-py CORPUS" in result.stderr and b"\n  bpe-py corpus.txt " in result.stderr


def test_a_corpus_that_cannot_be_read_is_named(error):
    os.mkdir("folder")
    for name in ("folder", "nowhere.txt"):
        assert name in error("words.txt", name, 300)
    assert os.listdir("folder") == [] and not os.path.exists("bpeModel/vocab.json")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("kind", ["fifo", "folder", "device"])
def test_only_regular_files_are_replaced_and_anything_else_is_an_error_before_any_work(error, kind):
    def make(path):
        path.parent.mkdir(exist_ok=True)
        {"fifo": os.mkfifo, "folder": os.mkdir, "device": lambda path: os.symlink(os.devnull, path)}[kind](path)
        return path

    ids, part = map(make, map(pathlib.Path, ("ids.npy", "model/merges.txt")))
    for arguments in ([300, "--encode", ids], [300, "--output-dir", "model"]):
        assert "not a regular file" in error("words.txt", *arguments)
    assert not any(path.is_file() for path in (ids, part))


@only_python
def test_a_missing_python_or_package_is_an_error_of_one_line(words_txt):
    script = f"import runpy, sys; sys.version_info = (3, 9, 18); runpy.run_path({str(HERE / 'bpe.py')!r})"
    assert "Python 3.10 or later" in one_line(subprocess.run([sys.executable, "-c", script], capture_output=True).stderr)
    command = [sys.executable, "-I", "-S", ROOT / "bpe.py"]  # hides installed packages
    result = subprocess.run([*command, "words.txt", "300"], capture_output=True)
    assert result.returncode == 2 and "pip install regex" in one_line(result.stderr)
    result = subprocess.run([*command, "--help"], capture_output=True)
    assert (result.returncode, result.stderr) == (0, b"") and b"--special-token" in result.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit for the size of files")
def test_a_full_disk_is_an_error_with_a_name_and_leaves_everything_as_it_was(tmp_path, part):
    assert run(part, 300, "--output-dir", tmp_path / "model").returncode == 0
    for name in ("ids.npy", "ids.bin"):
        (tmp_path / name).write_bytes(b"earlier")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    for arguments, name in [([500], ".json"), (["--encode", tmp_path / "ids.npy"], "ids.npy"), (["--encode", tmp_path / "ids.bin"], "ids.bin")]:
        result = run(part, *arguments, "--output-dir", tmp_path / "model", preexec_fn=limit_files(3000))
        assert result.returncode == 2 and regex.search(rf"File too large: '.*{name}'$", one_line(result.stderr)), result
        assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before
    assert run(part, 500, "--output-dir", tmp_path / "new", preexec_fn=limit_files(3000)).returncode == 2
    assert os.listdir(tmp_path / "new") == []


@pytest.mark.skipif(sys.platform == "win32", reason="no limits for a process here")
def test_running_out_of_memory_is_an_error_of_one_line(words_txt, engine):
    command = [sys.executable, ROOT / "bpe.py", "-", "300", "--engine", engine]
    with open("/dev/zero", "rb") as endless:
        result = subprocess.run(command, stdin=endless, capture_output=True, timeout=60, preexec_fn=limit_memory(110_000_000))
    assert (result.returncode, one_line(result.stderr)) == (1, "error: out of memory\n")


@only_python
def test_a_closed_standard_input_is_an_error_of_one_line(words_txt):
    for result in shells('"$@" <&-', ["-", 300], ["words.txt", "-", 300], ["--show", "-"]):
        assert result.returncode == 2 and "standard input is closed" in one_line(result.stderr)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("redirection", ["<&-", "2>&-", ">&-", "2>/dev/full", "<&- >&- 2>&-", ">/dev/full 2>&1"])
@only_python
def test_a_closed_or_full_stream_does_not_cost_the_training(words_txt, redirection):
    commands = ["words.txt", 300, "--log-every", 1, "--output-dir", "model"], ["nowhere.txt", 300]
    result, failure = shells(f'"$@" {redirection}', *commands)
    assert result.returncode == 0, result.stderr
    assert (words_txt / "model" / "merges.txt").read_text().startswith("#version: 0.2\ns t\n")
    assert failure.returncode == 2


@only_python
def test_a_closed_pipe_does_not_cost_the_training(words_txt):
    for options in (["--log-every", "1"], ["--explain", "3"]):
        reading, writing = os.pipe()
        os.close(reading)  # as `head -1` does, only earlier
        command = [sys.executable, ROOT / "bpe.py", "words.txt", "300", "--output-dir", "model", *options]
        with open(writing, "wb") as pipe:
            result = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, timeout=60)
        assert result.returncode == 0 and b"roken pipe" not in result.stderr and b"saved" in result.stderr
        assert len((words_txt / "model" / "merges.txt").read_text().splitlines()) == 17
        shutil.rmtree(words_txt / "model")


@only_python
def test_main_prints_to_a_replaced_stream(part, tmp_path):
    stream = io.StringIO()
    with contextlib.redirect_stderr(stream):
        assert bpe.main([str(part), "300", "--output-dir", str(tmp_path)]) == 0
    assert "256 bytes + 1 special token + 43 merges" in stream.getvalue()


def test_ctrl_c_ends_within_a_second_and_leaves_nothing(tmp_path, engine):
    corpus = tmp_path / "big.txt"
    corpus.write_bytes(CORPUS.read_bytes() * 100)
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "bpe.py"), *[str(corpus)] * 400, "30000", "--workers", "2", "--output-dir", str(tmp_path / "out"),
         "--engine", engine], stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    wait_for((tmp_path / "out").exists)
    time.sleep(0.3)  # it is counting 4 GB now
    assert process.poll() is None
    workers = children_of(process.pid)
    os.killpg(process.pid, signal.SIGINT)  # to parent and workers, as a terminal does
    start = time.perf_counter()
    _, errors = process.communicate(timeout=20)
    assert time.perf_counter() - start < 1
    assert process.returncode == 130 and errors.decode() == "interrupted\n"
    assert os.listdir(tmp_path / "out") == []
    assert len(workers) == (2 if engine == "python" else 0) and all_end(workers, 2)


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_ctrl_c_while_learning_ends_within_a_second(tmp_path, engine):
    """One long word, so that a merge changes many places and no call into C is short by itself."""
    table = bytes(97 + byte % 26 for byte in range(256))
    (tmp_path / "text.txt").write_bytes(random.Random(1).randbytes(8_000_000 if engine == "c" else 1_000_000).translate(table))
    command = [sys.executable, ROOT / "bpe.py", "text.txt", "100000", "--log-every", "1", "--engine", engine]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, cwd=tmp_path) as process:
        try:
            assert process.stdout.readline()  # the first merge is made
            os.killpg(process.pid, signal.SIGINT)
            start = time.perf_counter()
            _, errors = process.communicate(timeout=20)
        finally:
            process.kill()
    assert time.perf_counter() - start < 1 and (process.returncode, errors.decode()) == (130, "interrupted\n")


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_while_encoding_ends_it_within_a_second_and_leaves_nothing(tmp_path, part, engine, name):
    bpe.train_bpe(part, 600, [END], output_dir=tmp_path / "model")
    (tmp_path / "text.txt").write_bytes(CORPUS.read_bytes() * 100)
    arguments = [*["text.txt"] * 400, "--encode", "ids.npy", "--output-dir", "model", "--workers", "2", "--engine", engine]
    # small slices, so that some ids are written early
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import bpe; bpe.SLICE_BYTES = 100_000; sys.exit(bpe.main())"
    command = [sys.executable, "-c", program, *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True, cwd=tmp_path) as process:
        try:
            wait_for(lambda: any(path.stat().st_size > 1000 for path in tmp_path.glob("ids*")))
            assert process.poll() is None
            os.killpg(process.pid, getattr(signal, name))
            start = time.perf_counter()
            _, errors = process.communicate(timeout=20)
        finally:
            process.kill()
    assert time.perf_counter() - start < 1 and process.returncode != 0
    assert name != "SIGINT" or (process.returncode, errors.decode()) == (130, "interrupted\n")
    assert sorted(os.listdir(tmp_path)) == ["model", "text.txt"]


# --- the C engine ----------------------------------------------------------------------------------------------------


@only_c
def test_the_c_engine_is_the_c_engine(train, monkeypatch):
    expected = oracle("low lower lowest low", 262)
    for name in ("count_texts", "learn_merges", "merge_in_words", "merge_by_rank", "find_words"):
        monkeypatch.setattr(bpe, name, None)  # leave no Python engine to fall back to
    vocab, merges = train("low lower lowest low", 262, engine="c")
    assert (vocab, merges) == expected
    assert bpe.Tokenizer(vocab, merges).encode("lowest") == naive_encode(b"lowest", vocab, merges)
    for pattern in ("cl100k", "o200k"):
        assert len(train("low lower lowest low", 262, pattern=pattern)[1]) == 6
    assert bpe.find_engine()[0] is bpe.find_engine()[0] is C  # loaded once


@only_c
@pytest.mark.parametrize("pattern", ["gpt2", "cl100k", "o200k"])
@pytest.mark.parametrize("like", [None, "huggingface"])
def test_both_engines_give_the_same_ids(monkeypatch, pattern, like):
    rng = random.Random(repr((pattern, like)))
    vocab, merges = trained(2000, pattern, like)
    for special_tokens in ([], [END], ["<a>", "<a><b>", "<a><b><c>", "b><"], [" \n\v", "\n\n\v", "ll'"], ["a a", "aa", "字"]):
        in_c, in_python = (bpe.Tokenizer(vocab, merges, special_tokens, pattern) for _ in range(2))
        in_python.__dict__["encoder"] = None
        assert in_c.encoder is not None
        for text in [*TEXTS, *(nested(rng, special_tokens) for _ in range(100))]:
            assert in_c.encode(text) == in_python.encode(text), text
    whole = FIXTURE
    assert in_c.encode(whole) == in_python.encode(whole)


@only_c
def test_only_custom_patterns_are_encoded_without_c(monkeypatch):
    for pattern in ("gpt2", "cl100k", "o200k"):
        tokenizer = bpe.Tokenizer(*trained(600, pattern), [END], pattern)
        monkeypatch.setattr(bpe, "find_words", None)
        assert tokenizer.decode(tokenizer.encode(f"some words{END}")) == f"some words{END}"
        monkeypatch.undo()
    assert bpe.Tokenizer(*trained(600), [END], r"\w+|\W").encoder is None


def scan(text, special_tokens=(), pattern="gpt2"):
    """Count the words of text (str or bytes) with the C scanner."""
    words = C.words(tuple(special_tokens), pattern)
    assert words.scan(text if isinstance(text, bytes) else text.encode("utf-8"))
    return words.to_dict()


def assert_scanned_as_regex_does(texts, boundary="\ue000\ue001"):
    """Scan all texts at once, separated by a special token, and compare with regex on each."""
    expected = collections.Counter(itertools.chain.from_iterable(map(regex.compile(GPT2).findall, texts)))
    counts = scan(boundary.join(texts), [boundary])
    assert counts == {word.encode(): count for word, count in expected.items()}


@only_c
def test_the_scanner_knows_every_code_point():
    # except surrogates and the boundary
    points = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE002)
    assert_scanned_as_regex_does([f"{point}a{point} {point}" for point in points[:0x3000]])
    # runs of up to eight neighbors of one kind: no word may end inside a run
    runs = regex.findall(r"\p{L}{1,8}|\p{N}{1,8}|\s{1,8}|[^\s\p{L}\p{N}]{1,8}", points)
    assert "".join(runs) == points
    assert_scanned_as_regex_does([f"{run}a{run}1{run}.{run} {run}" for run in runs])


@only_c
def test_the_scanner_on_all_short_strings():
    alphabet = "a1's l\t\n\u00a0\u3000\u0301字😀<"
    for length in range(1, 5):
        assert_scanned_as_regex_does(["".join(letters) for letters in itertools.product(alphabet, repeat=length)])


@only_c
def test_the_scanner_on_random_strings():
    rng = random.Random(4)
    parts = [*TRICKY, "'ve", "'re", "'t", "e", " "]
    assert_scanned_as_regex_does([random_text(rng, parts, rng.randint(0, 40)) for _ in range(10_000)])


@only_c
def test_the_scanner_where_words_end_at_the_end_of_a_window():
    rng = random.Random(5)
    texts = []
    for length in range(40, 300):
        for piece in ["a", "1", " ", "\n", "\u3000", "字", ".", "é", "😀"]:
            tail = random_text(rng, TRICKY, 6)
            texts += [piece * length + tail, tail + piece * length, " " + piece * length, piece * (length - 1) + "'ll" + tail]
    assert_scanned_as_regex_does(texts)


@only_c
@pytest.mark.parametrize("special_tokens", [*SPECIAL_SETS, ["<a>", "字字", "1 1", " 's"]])
def test_special_tokens_are_boundaries_for_the_scanner(special_tokens):
    rng = random.Random(repr(special_tokens))
    for _ in range(100):
        text = random_text(rng, TRICKY + 2 * special_tokens, rng.randint(0, 200))
        expected = {b"".join(word): count for word, count in naive_words(text, special_tokens).items()}
        assert scan(text, special_tokens) == expected


@only_c
def test_invalid_utf8_is_found_where_python_finds_it():
    rng = random.Random(6)
    bad = [*BAD_UTF8, b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xed\xbf\xbf", b"\xf0\x8f\xbf\xbf", b"\xf5\x80\x80\x80", b"\xe5", b"\xf0\x9f\x98"]
    good = ["a", " ", "字", "é", "😀", "\n", "word ", END]
    offset = C.ffi.new("size_t *")
    for _ in range(6000):
        parts = [rng.choice(bad) if rng.random() < 0.03 else rng.choice(good).encode() for _ in range(rng.randint(1, 60))]
        data = b"".join(parts)[: rng.choice([None, -1, -2])]
        status = C.lib.bpe_words_scan(C.words([END], "gpt2").table(), C.ffi.from_buffer("uint8_t[]", data), len(data), offset)
        try:
            data.decode()
            assert status == C.lib.BPE_OK
        except UnicodeDecodeError as error:
            assert (status, offset[0]) == (C.lib.BPE_BAD_UTF8, error.start), data


@only_c
def test_other_character_classes_give_a_warning_and_are_counted_with_regex(monkeypatch):
    expected = words_of_the_fixture()
    monkeypatch.setattr(regex, "__version__", "0.0")
    monkeypatch.delitem(vars(C), "patterns", raising=False)  # a cached property
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bpe.count_words(CORPUS, [END]) == expected  # another version with the same classes
    vars(C).pop("patterns")
    monkeypatch.setitem(C.check.__globals__, "class_digest", lambda: "other")
    monkeypatch.setattr(type(C), "words", None)
    with pytest.warns(UserWarning, match="the C engine was built with regex"):
        assert bpe.count_words(CORPUS, [END]) == expected
    vars(C).pop("patterns", None)


@only_c
@pytest.mark.parametrize("words", [{b"ab": 2**62, b"xab": 2**62}, {b"aaa": 2**62}, {b"ab": 2**63}, {b"ab": 2**63 - 1, b"abc": 1}])
def test_an_overflow_is_reported_and_not_wrapped(words):
    with pytest.raises(OverflowError):
        bpe.train_from_counts(words, 300)


@only_c
def test_sums_of_counts_are_exact_or_reported():
    words, both = C.words([], "gpt2"), {b"ab": 2**62, b"a word that is longer than fifteen bytes": 2**62}
    words.update(both)
    with pytest.raises(OverflowError):
        words.update(both)
    words = C.words([], "gpt2")
    words.update(dict.fromkeys([b"ab", b"cd", b"ef"], 2**63 - 1))
    assert words.totals() == (3, 3 * (2**63 - 1), 6 * (2**63 - 1))  # of all words, they need not fit


@only_c
def test_the_fixture_trains_in_under_thirty_milliseconds_in_c():
    times = []
    for _ in range(10):
        start = time.process_time()  # CPU time, so other processes do not matter
        bpe.train_bpe(CORPUS, 500, [END])
        times.append(time.process_time() - start)
    assert min(times) < 0.03


# --- the C engine: building and loading it ---------------------------------------------------------------------------


@only_python
def test_asking_for_c_where_it_is_not_built_names_the_command(train):
    with pytest.raises(ValueError, match=r"python build_ffi\.py"):
        train("x", 300, engine="c")


@only_python
def test_a_copy_without_the_library_says_so_and_works(tmp_path):
    shutil.copy(ROOT / "bpe.py", tmp_path)
    command = [sys.executable, tmp_path / "bpe.py", CORPUS, "300", "--output-dir", tmp_path]
    result = subprocess.run([*command, "--engine", "c"], capture_output=True)
    assert result.returncode == 2 and "engine 'c' is not available: the files that build the C engine are not next to" in one_line(result.stderr)
    result = subprocess.run(command, capture_output=True)
    assert result.returncode == 0 and b"Python (the files that build the C engine are not next to" in result.stderr


@only_c
def test_a_library_inside_a_package_is_found_next_to_the_file(tmp_path):
    package = tmp_path / "course"
    package.mkdir()
    (package / "__init__.py").touch()
    for file in [ROOT / "bpe.py", ROOT / "build_ffi.py", *ROOT.glob("_bpe_fast*.so"), *ROOT.glob("_bpe_fast*.pyd")]:
        shutil.copy(file, package)
    script = f"from course.bpe import train_bpe; print(len(train_bpe({str(CORPUS)!r}, 500, [], engine='c')[1]))"
    result = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True)
    assert result.stdout == b"244\n", result


@pytest.fixture
def program(words_txt):
    """program("-c", ...) runs Python in a folder with copies of the sources and the library."""
    library = f"_bpe_fast{importlib.machinery.EXTENSION_SUFFIXES[0]}"
    for name in ("bpe.py", "build_ffi.py", "bpe_fast.c", library):
        with contextlib.suppress(FileNotFoundError):
            shutil.copy(ROOT / name, words_txt)

    def call(*arguments):
        command = [sys.executable, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stderr

    call.library = words_txt / library
    return call

TRAIN = ["bpe.py", "words.txt", "300"]


@only_c
def test_the_summary_says_why_a_library_cannot_be_used(program):
    no_cffi = "import sys; sys.modules['_cffi_backend'] = None; import bpe; sys.exit(bpe.main(sys.argv[1:]))"
    assert "built, but cffi is missing: pip install cffi" in program("-c", no_cffi, *TRAIN[1:])
    assert "cffi is missing" in program("-c", no_cffi, *TRAIN[1:], "--engine", "c").splitlines()[0]
    assert summary(program(*TRAIN))["engine"] == "C"
    edit(pathlib.Path("build_ffi.py"), lambda data: data.replace(b"\nVERSION = ", b"\nVERSION = 1"))
    assert "another version: python build_ffi.py" in summary(program(*TRAIN))["engine"]
    program.library.write_bytes(b"")
    assert "does not load" in summary(program(*TRAIN))["engine"]
    program.library.unlink()
    assert "not built: python build_ffi.py" in summary(program(*TRAIN))["engine"]
    assert summary(program(*TRAIN, "--engine", "python"))["engine"] == "Python"


@only_python
def test_a_stray_module_does_not_stop_the_import(program):
    program.library.unlink(missing_ok=True)
    for name in ("_bpe_fast.py", "build_ffi.py"):
        pathlib.Path(name).write_text("raise SystemError('stray')")
        assert summary(program(*TRAIN))["engine"].startswith("Python")


@only_c
def test_a_source_that_changed_since_the_build_is_noticed(program):
    assert "changed" not in program(*TRAIN)
    edit(pathlib.Path("bpe_fast.c"), lambda data: data + b"/* */")
    assert "warning: bpe_fast.c has changed" in program(*TRAIN)
    assert "changed" not in program(*TRAIN, "--engine", "python")


@only_c
def test_a_build_without_a_compiler_fails_with_one_line():
    environment = {**os.environ, "CC": "no-such-compiler"}
    result = subprocess.run([sys.executable, ROOT / "build_ffi.py"], env=environment, capture_output=True, timeout=60)
    assert result.returncode != 0 and "a C compiler" in one_line(result.stderr) and "works without it" in one_line(result.stderr)


@only_python
def test_building_where_nothing_can_be_written_is_an_error_of_one_line(program):
    need("cffi")
    script = """
        import cffi, shutil, build_ffi

        def refuse(*paths):
            raise PermissionError(13, "Permission denied")

        cffi.FFI.compile = lambda self, tmpdir: "module.so"
        shutil.copy = refuse
        build_ffi.main()
    """
    stderr = program("-c", textwrap.dedent(script))
    assert one_line(stderr.encode()).endswith("can't be written to: Permission denied\n")


@only_c
def test_an_engine_without_memory_raises_and_works_again_afterwards(monkeypatch):
    """A failed allocation leaves no NULL handle that the next call would use."""
    engine = bpe.find_engine()[0]

    class Failing:
        def __getattr__(self, name):
            if name in ("bpe_words_new", "bpe_cache_new"):
                return lambda *arguments: engine_lib.BPE_NO_MEMORY
            return getattr(engine_lib, name)

    engine_lib, words = engine.lib, engine.words([], "gpt2")
    encoder = engine.encoder(bpe.Tokenizer({n: bytes([n]) for n in range(256)}, []))
    monkeypatch.setattr(engine, "lib", Failing())
    with pytest.raises(MemoryError):
        words.scan(b"ab")
    with pytest.raises(MemoryError):
        encoder.encode(b"ab")
    monkeypatch.setattr(engine, "lib", engine_lib)
    assert words.scan(b"ab") and words.to_dict() == {b"ab": 1}
    assert encoder.encode(b"ab").tolist() == [97, 98]


@only_c
def test_words_whose_addition_failed_are_used_up_and_not_counted_twice(monkeypatch):
    """Two threads have counts of 2**62 each: their sum is too large, and the tables are not used again."""
    engine = bpe.find_engine()[0]
    words = engine.words([], "gpt2")
    for _ in range(2):
        other = engine.words([], "gpt2")
        other.update({b"ab": 2**62})
        words.tables.append(other.handle())
    with pytest.raises(OverflowError):
        words.totals()
    for use in (words.to_dict, lambda: words.scan(b"ab") and words.totals(), lambda: words.update({b"a": 1})):
        with pytest.raises(ValueError, match="used up"):
            use()


@only_c
def test_a_thread_that_scans_after_the_tables_were_merged_gets_a_new_one():
    words = bpe.find_engine()[0].words([], "gpt2")
    assert words.scan(b"a b")
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        for total in (4, 6, 8):
            assert executor.submit(words.scan, b"a b").result()
            assert words.totals() == (2, total, total // 2 * 3)


@only_c
def test_a_vocabulary_that_c_cannot_hold_is_encoded_in_python():
    """Engine.encoder returns None for 2**21 tokens or more, and for ids of 2**32 or more."""
    options = types.SimpleNamespace(pattern="gpt2")
    for bytes_, merged in (([2**32, *range(1, 256)], []), (list(range(256)), range(256, 2**21))):
        ranks = {(n % 256, n): n for n in range(len(merged))}
        model = types.SimpleNamespace(id_of_byte=bytes_, ranks=ranks, merged=merged, special_ids={}, options=options)
        assert bpe.find_engine()[0].encoder(model) is None


# --- large real texts, if BPE_CORPORA names a folder -----------------------------------------------------------------


@needs_corpora
@pytest.mark.parametrize("name", ["zh.txt", "languages.txt", "code.txt"])
def test_large_texts_give_the_same_words_cut_or_whole(name, monkeypatch):
    path = pathlib.Path(CORPORA) / name
    text = path.read_bytes().decode()
    expected = collections.Counter()
    for piece in text.split(END):
        expected.update(regex.findall(GPT2, piece))
    monkeypatch.setattr(bpe, "SLICE_BYTES", 1 << 20)
    assert bpe.count_words(path, [END]) == {word.encode(): count for word, count in expected.items()}


@needs_corpora
@only_c
@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("name", ["zh.txt", "languages.txt", "code.txt", "novels.txt"])
def test_threads_and_slices_change_nothing(name, threads, monkeypatch):
    path = pathlib.Path(CORPORA) / name
    whole = scan(path.read_bytes(), [END])
    for slice_bytes in (100_000, 3 << 20):
        monkeypatch.setattr(bpe, "SLICE_BYTES", slice_bytes)
        assert bpe.count_words(path, [END], workers=threads) == whole


@needs_corpora
@only_c
@pytest.mark.parametrize("name, size", [("zh.txt", 500), ("code.txt", 32_000), ("languages.txt", 1000), ("novels.txt", 10_000)])
def test_the_learners_agree_on_large_texts(name, size):
    words = bpe.count_words(pathlib.Path(CORPORA) / name, [END])
    assert steps(words, size, [END], engine="c") == steps(words, size, [END], engine="python")


@needs_corpora
@pytest.mark.parametrize("name, size", [("tinystories_2M.txt", 3000), ("zh.txt", 1000), ("code.txt", 2000)])
def test_like_huggingface_on_large_texts(name, size, engine):
    text = (pathlib.Path(CORPORA) / name).read_bytes().decode()
    if engine == "python":
        text = text[:3_000_000]
    ours = bpe.train_bpe(None, size, [END], texts=text.split(END), like="huggingface")
    assert printable(*ours) == huggingface_train(text.split(END), size, [END])


@needs_corpora
def test_tinystories_trains_to_10000_in_under_three_seconds():
    start = time.perf_counter()
    vocab, _ = bpe.train_bpe(pathlib.Path(CORPORA) / "tinystories_2M.txt", 10_000, [END])
    assert len(vocab) == 10_000 and time.perf_counter() - start < 3


# --- the README: every block runs as printed, in order ---------------------------------------------------------------


def readme_blocks(name):
    """[(required package or None, language, code), ...] for a README."""
    text = (HERE / name).read_text(encoding="utf-8")
    found = regex.findall(r"(?:<!-- needs (\w+) -->\n)?```(\w+)\n(.*?)```\n", text, regex.DOTALL)
    return [(package or None, language, code) for package, language, code in found]

NOT_RUN = ("pip install", "python3 -m venv", "python build_ffi.py", "pytest")  # this test already runs in the result


def without_measurements(text):
    """Remove times, memory, speed and the engine, which differ between machines."""
    text = regex.sub(r"^(time|peak memory|engine)\b.*", r"\1", text, flags=regex.MULTILINE)
    return regex.sub(r"[\d,]+ MB/s", "", text).strip()


def what_runs(language, code):
    """Remove comments, and the commands in NOT_RUN."""
    if language == "python":
        return ast.unparse(ast.parse(code))
    return "".join(line for line in code.splitlines(keepends=True) if not line.startswith(NOT_RUN))


def statements(code):
    """[(statement, the comment after it), ...] for a block of Python."""
    lines = code.splitlines()
    found = ((ast.unparse(part), lines[part.end_lineno - 1][part.end_col_offset :]) for part in ast.parse(code).body)
    return [(statement, comment.strip().lstrip("#").strip()) for statement, comment in found]


def outputs_of_blocks(blocks, folder):
    """Run blocks of (language, code); returns what each prints or, in Python, the value of each expression."""
    for file in ("bpe.py", "build_ffi.py", "bpe_fast.c", "fixtures", *(path.name for path in ROOT.glob("_bpe_fast*.*"))):
        (folder / file).symlink_to(HERE / file if file == "fixtures" else ROOT / file)
    variables, outputs = {}, []
    for language, code in blocks:
        if language == "sh":
            result = subprocess.run(["sh", "-e", "-c", code], capture_output=True, text=True, timeout=60)
            assert result.returncode == 0, (code, result.stderr)
            outputs.append(result.stdout + result.stderr)
        elif "__main__" in code:  # a script with worker processes
            (folder / "block.py").write_text(code)
            result = subprocess.run([sys.executable, "block.py"], capture_output=True, text=True, timeout=60)
            assert result.returncode == 0, (code, result.stderr)
            outputs.append(result.stdout.split())
        else:
            values = []
            for statement, _ in statements(code):
                is_value = isinstance(ast.parse(statement).body[0], ast.Expr)
                values.append(repr(eval(statement, variables)) if is_value else exec(statement, variables))
            outputs.append(values)
    return outputs

OUTPUTS = {}  # blocks -> their outputs; two READMEs with the same code run it once


@pytest.mark.parametrize("engine", ENGINES[-1:], indirect=True)  # other tests show that both engines give the same
@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_every_block_of_the_readme_runs_and_prints_what_it_shows(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}")
    everything = bool(os.environ.get("BPE_REQUIRE_PACKAGES"))
    found = [block[1:] for block in readme_blocks(name) if not block[0] or everything or importlib.util.find_spec(block[0])]
    blocks = tuple((language, what_runs(language, code)) for language, code in found if language != "text")
    if blocks not in OUTPUTS:
        OUTPUTS[blocks] = outputs_of_blocks(blocks, tmp_path)
    outputs, printed = iter(OUTPUTS[blocks]), ""
    for language, code in found:
        if language == "text":
            assert without_measurements(printed) == without_measurements(code)
            continue
        output = next(outputs)
        if language == "sh":
            printed = output
        elif "__main__" in code:
            assert output == regex.findall(r"print\(.*# (.+)", code)
        else:
            for value, (statement, comment) in zip(output, statements(code)):
                assert value is None or not comment or value == comment, statement


# --- the exercises in the README: the source of their figures --------------------------------------------------------


def train_variant(words, n_merges, count=bpe.count_pairs, best=lambda counts: max(counts, key=lambda pair: (counts[pair], pair))):
    """train_by_definition with another way to count or choose."""
    merges = []
    while len(merges) < n_merges and (counts := count(words)):
        merges.append(best(counts))
        words = {bpe.merge_pair(word, merges[-1]): count for word, count in words.items()}
    return merges


def longest_first(word, vocab):
    """Cut a word into tokens, taking the longest possible one each time."""
    data, tokens = b"".join(word), []
    while data:
        tokens.append(next(data[:n] for n in range(len(data), 0, -1) if data[:n] in vocab))
        data = data[len(tokens[-1]) :]
    return tuple(tokens)


def count_without_overlap(words):
    counts = collections.Counter()
    for word, count in words.items():
        at = 0
        while at + 1 < len(word):
            counts[word[at : at + 2]] += count
            at += 2 if word[at] == word[at + 1] and word[at : at + 2] == word[at + 1 : at + 3] else 1
    return counts


@only_python
def test_the_figures_of_the_exercises():
    whole = FIXTURE
    text = whole[:20_000]
    words = bpe.words_of(text)
    merges = bpe.train_bpe(None, 256 + 200, texts=[text])[1]  # equal to those of train_by_definition
    figures = {}
    other = train_variant(words, 200, best=lambda counts: min(counts, key=lambda pair: (-counts[pair], pair)))
    first = next(number for number in range(200) if merges[number] != other[number])
    assert (merges[first], other[first]) == ((b"e", b"n"), (b" a", b"nd"))
    figures[1] = (first + 1, len(set(merges) & set(other)))
    tokens = [left + right for left, right in bpe.train_from_counts({text.encode(): 1}, 256 + 200)[1]]  # faster, with the same result
    assert tokens[0] == b"e "
    figures[2] = (sum(b" " in token[1:] for token in tokens),)
    vocab = {bytes([byte]) for byte in range(256)} | {left + right for left, right in merges}
    ours = {word: bpe.encode_by_definition(word, merges) for word in words}
    theirs = {word: longest_first(word, vocab) for word in words}
    figures[3] = tuple(sum(len(tokens[word]) * count for word, count in words.items()) for tokens in (theirs, ours))
    figures[3] += (sum(ours[word] != theirs[word] for word in words), len(words))
    runs = bpe.words_of("aaa.aaa.ab.ab.ab")
    counted = bpe.count_pairs(runs), count_without_overlap(runs)
    assert [max(counts.items(), key=lambda item: item[1]) for counts in counted] == [((b"a", b"a"), 4), ((b"a", b"b"), 3)]
    figures[5] = (len(set(whole)),)
    half = bpe.train_bpe(None, 256 + 200, texts=[text[:10_000]])[1]
    figures[6] = (len(set(merges) & set(half)), next(number for number in range(200) if merges[number] != half[number]) + 1)
    for name in ("README.md", "README.zh.md"):
        rows = dict(regex.findall(r"^\| (\d) (\|.*)$", (HERE / name).read_text(encoding="utf-8"), regex.MULTILINE))
        for number, values in figures.items():
            for value in values:
                assert regex.search(rf"(?<!\d){value:,}(?!\d)", rows[str(number)]), (name, number, values)


if __name__ == "__main__":
    write_expected()
