"""The promises of bpe.py, one test for each. Run `pytest test_bpe.py`.

Expected values come from a hand calculation, a published example, another program, or from the oracle below.
`python test_bpe.py` writes the expected results in fixtures/ again, with the oracle.
"""

import array
import ast
import atexit
import bz2
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
import operator
import os
import pickle
import random
import shlex
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
from collections import Counter
from pathlib import Path

import pytest
import regex

# a shell's background jobs ignore SIGINT, and jobs under nohup SIGHUP; their children would too
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
HERE = Path(__file__).parent


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
    copy = Path(tempfile.mkdtemp(prefix="bpe-"))
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


def letters(word):
    """letters("ab") -> (b"a", b"b")"""
    return tuple(bytes([byte]) for byte in (word.encode() if isinstance(word, str) else word))


def pairs(text):
    r"""pairs("s t, e st") -> [(b"s", b"t"), (b"e", b"st")]; bytes as in Latin-1, "\xff" is b"\xff"."""
    return [tuple(token.encode("latin-1") for token in pair.split(" ")) for pair in text.split(", ")]


def with_merges(merges):
    """A vocabulary of all bytes and the tokens of merges."""
    tokens = [bytes([byte]) for byte in range(256)] + [token for pair in merges for token in (*pair, b"".join(pair))]
    return dict(enumerate(dict.fromkeys(tokens)))


def naive_words(text, special_tokens=(), pattern=GPT2):
    """{word as a tuple of one-byte tokens: count}."""
    longest_first = sorted(special_tokens, key=len, reverse=True)
    pieces = regex.split("|".join(regex.escape(token) for token in longest_first), text) if special_tokens else [text]
    return Counter(letters(match[0]) for piece in pieces for match in regex.finditer(pattern, piece))


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
    counts = Counter()
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


def naive_encoder(vocab, merges, special_tokens=(), pattern=GPT2):
    """Return a function that cuts text at special tokens and applies each merge in turn to every whole word."""
    ids = {token: token_id for token_id, token in vocab.items()}
    longest_first = sorted(special_tokens, key=len, reverse=True)
    specials = regex.compile(f"({'|'.join(map(regex.escape, longest_first)) or '(?!)'})")

    @functools.cache
    def encode_word(word):
        tokens = letters(word)
        for merge in merges:
            tokens = naive_merge(tokens, merge)
        return [ids[token] for token in tokens]

    def encode(text):
        encoded = []
        for number, piece in enumerate(specials.split(text)):
            if number % 2:
                encoded.append(ids[piece.encode()])
            else:
                encoded += itertools.chain.from_iterable(map(encode_word, regex.findall(pattern, piece)))
        return encoded

    return encode


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
        why = "the C engine is not built: python build_ffi.py builds one"
        monkeypatch.setattr(bpe, "find_engine", lambda: (None, why))
    elif C is None:
        reason = (BUILD_ERRORS.strip().splitlines() or [WHY_NO_C])[-1]
        if os.environ.get("BPE_REQUIRE_C"):
            pytest.fail(f"BPE_REQUIRE_C is set, but the C engine is missing: {reason}")
        pytest.skip(f"no C engine: {reason}")
    return request.param

# for tests of worker processes, and for tests in which no engine takes part
only_python = pytest.mark.parametrize("engine", ["python"], indirect=True)
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

BLOCKS = [
    (0, 0x250), (0x300, 0x520), (0x600, 0x6FF), (0x900, 0x97F), (0x2000, 0x206F), (0x3000, 0x30FF), (0x4E00, 0x4E80),
    (0xAC00, 0xAC40), (0x1F300, 0x1F680), (0xE0020, 0xE0040),
]  # fmt: skip
WIDE = "".join(chr(c) for low, high in BLOCKS for c in range(low, high))

TRICKY = [
    "a", "b", "Z", "s", "l", "'", " ", " ", "\t", "\n", "\r\n", "\r", "1", "9", ".", "!", "/", "\u00a0", "\u3000",
    "\u0301", "字", "é", "😀", "\u200d", "'ll", "<", "<|", "|>", "\x1c", "\x85", "\u2028",
]  # fmt: skip

SPECIAL_SETS = [
    [], ["\r\n"], ["<x>\r"], [END], ["a a"], ["<a>", "<a><b>"], [" \n", "\n\n"], ["aa", "a\n", "\r\n\r\n"], ["\n<x>"],
    ["字字", "1 1", " 's"], ["a\ufffd"],
]  # fmt: skip

BAD_UTF8 = [
    b"\xff", b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe5\xad", b"\x80", b"\xf8",
    b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xed\xbf\xbf", b"\xf0\x8f\xbf\xbf", b"\xf5\x80\x80\x80", b"\xe5", b"\xf0\x9f\x98",
]  # fmt: skip

TEXTS = [
    "", "a", " ", "\n", "  \n\n  ", "Hello, world! I'll say it's 1234567 times.", f"a{END}{END}b {END} c",
    "tab\t\ttab \r\n x", "don'T DON'T don't 'tis '' ' 'l 'll'll", "日本語 中文　한국어", "👨\u200d👩\u200d👧 🇵🇹 👍🏽",
    "e\u0301 \u00e9 ﬁ ß ſ", "x" * 300, " " * 300 + "x", "!?" * 99, "\x00\x01\x1c\x85\xa0\u2028\u3000 .",
    "a\u0300\u0301\u0302", "１２３ ²½ ٣٤ Ⅻ", "CamelCaseHTMLParser's/\n/", "...\n\n...  \n ...\r\n\t",
]

# `regex` follows Unicode faster than the packages it is compared with, so random text for them consists of characters
# in this Python's older Unicode; test_only_new_characters_are_left_out_of_random_text shows that nothing else is.
KNOWN = [c for c in map(chr, range(0x110000)) if unicodedata.category(c) not in ("Cn", "Cs")]


def random_text(rng, alphabet, length):
    return "".join(rng.choice(alphabet) for _ in range(length))


def nested(rng, special_tokens):
    """Random text in which special tokens touch, nest and overlap."""
    halves = [half for token in special_tokens for half in (token, token[: len(token) // 2], token[len(token) // 2 :])]
    parts = [*TRICKY, *rng.choices(KNOWN, k=5), *halves, "the", " the", "'LL", "123", "x" * 70]
    return random_text(rng, parts, rng.randint(0, 60))


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


@functools.cache
def trained(size, pattern="gpt2", like=None):
    """(vocab, merges) of the fixture, or of a larger corpus; with GPT-2's pattern in place of a custom one."""
    path = Path(CORPORA) / "languages.txt" if CORPORA and size > 5000 else CORPUS
    return bpe.train_bpe(path, size, [END], pattern=pattern if pattern in bpe.PATTERNS else "gpt2", like=like)


def words_in(text, special_tokens=(), pattern="gpt2"):
    """{word: count} for text, with words as str."""
    counts = bpe.count_words(None, list(special_tokens), texts=[text], pattern=pattern)
    return {word.decode(): count for word, count in counts.items()}


def contents(tokenizer):
    """What a Tokenizer is made from."""
    return tokenizer.vocab, tokenizer.merges, tokenizer.special_ids, tokenizer.options.pattern


def model_in(folder):
    """(vocab, merges) of the model in a folder."""
    return contents(bpe.Tokenizer.load(folder))[:2]


def files_of(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}


def edit(path, change):
    path.write_bytes(change(path.read_bytes()))


def read_ids(path, kind=None):
    """Read (kind, ids) from a .npy file or, given a kind ("u2" or "u4"), from bare bytes, without bpe.py or NumPy."""
    data = path.read_bytes()
    if kind is None:
        assert data[:10] == b"\x93NUMPY\x01\0v\0" and data[127:128] == b"\n"
        header, data = ast.literal_eval(data[10:128].decode()), data[128:]
        kind = header["descr"].lstrip("<>")
        order, shape = "<" if sys.byteorder == "little" else ">", (len(data) // int(kind[1]),)
        assert header == {"descr": order + kind, "fortran_order": False, "shape": shape}
    return kind, array.array({"u2": "H", "u4": "I"}[kind], data).tolist()


@pytest.fixture
def cut(monkeypatch):
    """cut(slice_bytes, window_bytes): read in slices of this size, each cut in its last window."""

    def call(slice_bytes, window_bytes=bpe.WINDOW_BYTES):
        monkeypatch.setattr(bpe, "SLICE_BYTES", slice_bytes)
        monkeypatch.setattr(bpe, "WINDOW_BYTES", window_bytes)

    return call


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


def command(*arguments):
    """The command line of bpe.py, for another process."""
    return [sys.executable, str(ROOT / "bpe.py"), *map(str, arguments)]


def run(*arguments, stdin=None, **options):
    """Run the command line in another process, with the engine that is tested; stdin is bytes or a file."""
    arguments += "--engine", "c" if bpe.find_engine()[0] else "python"
    options["input" if isinstance(stdin, bytes) else "stdin"] = stdin
    return subprocess.run(command(*arguments), capture_output=True, timeout=60, **options)


@pytest.fixture
def words_txt(tmp_path, monkeypatch):
    """Make a temporary folder with the README's words.txt the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.txt").write_text(TEXTBOOK)
    return tmp_path


@pytest.fixture
def main(words_txt, monkeypatch):
    """main(*arguments) -> (exit status, standard output, standard error), in the folder of words.txt."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # main replaces it

    def call(*arguments):
        with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.redirect_stderr(io.StringIO()) as errors:
            try:
                status = bpe.main([str(argument) for argument in arguments])
            except SystemExit as stop:  # --help
                status = stop.code
        return status, output.getvalue(), errors.getvalue()

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
    return subprocess.run(["sh", "-c", script, "sh", *command(*arguments)], capture_output=True, timeout=60, **options)


def shells(script, *commands):
    """Call shell() for several command lines at the same time."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda arguments: shell(script, *arguments), commands))


def call_in_script(tmp_path, script):
    path = tmp_path / "script.py"
    path.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n" + textwrap.dedent(script))
    return subprocess.run([sys.executable, str(path)], capture_output=True, timeout=180)


def limit(name, n_bytes):
    """Limit what a child process may use: the size of files ("FSIZE"), as a full disk would, or memory ("AS")."""
    import resource

    number = getattr(resource, f"RLIMIT_{name}")
    return lambda: resource.setrlimit(number, (n_bytes, n_bytes))


class Tasks(concurrent.futures.Executor):
    """An executor that runs each task at once, and first calls before(the number of the task, from 1)."""

    def __init__(self, before=lambda number: None):
        self.before, self.n_tasks = before, 0

    def submit(self, task, *arguments):
        self.n_tasks += 1
        self.before(self.n_tasks)
        future = concurrent.futures.Future()
        try:
            future.set_result(task(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future


def running():
    """{process id: parent process id} for all running processes."""
    if os.path.isdir("/proc/self"):
        stats = []
        for path in Path("/proc").glob("[0-9]*/stat"):
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


@only_python
def test_part_one_cuts_a_text_into_words():
    expected = {"It": 1, "'s": 1, " ": 1, " new": 1, "\n": 2, "x": 1, "1": 1, "!": 1}  # by hand, with GPT-2's pattern
    assert lesson().words_of("It's  new\n\nx1!") == {letters(word): count for word, count in expected.items()}
    assert lesson().words_of("字") == {(b"\xe5", b"\xad", b"\x97"): 1} and lesson().words_of("") == {}
    assert lesson().words_of(FIXTURE) == naive_words(FIXTURE)


@only_python
def test_part_one_counts_every_position():
    count_pairs = lesson().count_pairs
    assert count_pairs({letters("aaaa"): 1, letters("ab"): 5, letters("x"): 7}) == {(b"a", b"a"): 3, (b"a", b"b"): 5}
    words = {(b"ab", b"a", b"b"): 2, letters("aab"): 1}
    assert count_pairs(words) == {(b"ab", b"a"): 2, (b"a", b"b"): 3, (b"a", b"a"): 1}
    assert count_pairs({}) == {}


@only_python
@pytest.mark.parametrize("word, pair, merged", [
    ("a a a a", "a a", "aa aa"), ("a a a b", "a a", "aa a b"), ("a a a a a", "a a", "aa aa a"), ("ab", "a b", "ab"),
    ("a b a b", "a b", "ab ab"), ("a b a b", "b a", "a ba b"), ("ab a b", "a b", "ab ab"), ("a b c", "a c", "a b c"),
])  # fmt: skip
def test_part_one_merges_from_the_left_without_overlap(word, pair, merged):
    word, pair, merged = (tuple(tokens.encode().split()) for tokens in (word, pair, merged))
    assert lesson().merge_pair(word, pair) == merged


def test_the_textbook_example(train):
    """Worked by hand; the first six merges are in a published course handout."""
    merges = pairs("s t, e st, o w, l ow, w est, n e, ne west, w i, wi d, wid est, low e, lowe r")
    assert train(TEXTBOOK, 268, pattern=r"\S+")[1] == merges
    words = {letters("low"): 5, letters("lower"): 2, letters("widest"): 3, letters("newest"): 6}
    for merges_wanted in (0, 3, 12):
        assert lesson().train_by_definition(words, merges_wanted) == merges[:merges_wanted]
    assert lesson().train_by_definition({letters("aaaa"): 1}, 10) == pairs("a a, aa aa")  # no pair is left


@pytest.mark.parametrize("words, merges", [
    ({"ab": 1, "cd": 1}, "c d"), ({"ba": 1, "bc": 1}, "b c"),  # by hand: the left bytes decide, then the right ones
    # not the concatenation: as pairs (ac, b) is above (a, cc), although "acc" > "acb"
    ({"cc": 100, "ac": 90, "acb": 5, "acc": 5}, "c c, a c, ac b"),
    # not GPT-2's printable characters: "z" (0x7a) is above " " (printable "Ġ", U+0120), 0xff ("ÿ") above 0xa0 ("ł")
    ({" q": 1, "zq": 1}, "z q"), ({"\xa0a": 1, "\xffa": 1}, "\xff a"),
])  # fmt: skip
def test_ties_go_to_the_greater_pair_of_bytes(words, merges):
    merges, counts = pairs(merges), {word.encode("latin-1"): count for word, count in words.items()}
    assert bpe.train_from_counts(counts, 256 + len(merges))[1] == merges
    spelled = {letters(word): count for word, count in counts.items()}
    assert lesson().train_by_definition(spelled, len(merges)) == merges


@only_python
@pytest.mark.parametrize("word, merges, tokens", [
    ("abcd", "b c, a b, bc d", "a bcd"), ("newest", "s t, e st, o w, l ow, w est, n e", "ne west"),
    ("aaaaa", "a a, aa aa", "aaaa a"), ("abc", "a b, b c", "ab c"), ("abc", "b c, a b", "a bc"), ("a", "a a", "a"),
    ("abab", "a b, ab ab", "abab"), ("xyz", "a b", "x y z"),
])  # fmt: skip
def test_part_one_encodes_with_the_merges_in_their_order(word, merges, tokens):
    merges, expected = pairs(merges), tokens.encode().split()
    assert list(lesson().encode_by_definition(letters(word), merges)) == expected
    vocab = with_merges(merges)
    assert [vocab[token_id] for token_id in bpe.Tokenizer(vocab, merges).encode(word)] == expected


def test_the_examples_in_the_docstrings():
    import doctest

    assert doctest.testmod(bpe).failed == 0 and doctest.testmod(bpe).attempted > 3


# --- II. The same, fast ----------------------------------------------------------------------------------------------


def test_rank_and_replay_agree_for_every_list_of_merges_that_is_accepted():
    """Refused are only lists in which a merge makes a token that an earlier merge took."""
    rng, seen = random.Random(7), Counter()
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
            tokens = tuple(map(vocab.get, tokenizer.encode(b"".join(word).decode())))
            assert tokens == lesson().encode_by_definition(word, merges), (word, merges)
    assert min(seen.values()) > 30


# On characters, as in Sennrich et al. 2016: words are separated by spaces, and their last character carries </w>.


def naive_characters(words, merges_wanted):
    """The merges of {word: count}, by the oracle."""
    spelled = {(*(c.encode() for c in word[:-1]), word[-1].encode() + b"</w>"): n for word, n in words.items() if n}
    return [(left.decode(), right.decode()) for left, right in naive_train(spelled, 256 + merges_wanted)[1]]


@only_python
def test_the_classic_example_on_characters():
    """Sennrich et al. 2016; the merges from s t</w> on were worked out by hand."""
    merges = bpe.learn_characters(Counter(bpe.split_at_spaces(TEXTBOOK)), 12)
    expected = "s t</w>, e st</w>, l o, w est</w>, n e, ne west</w>, lo w</w>, w i, wi d, wid est</w>, w e, we r</w>"
    assert ", ".join(map(" ".join, merges)) == expected
    assert bpe.segment("lowest newest", merges) == ["lo", "west</w>", "newest</w>"]
    assert bpe.segment("low low", merges) == ["low</w>", "low</w>"]
    assert bpe.segment("", merges) == bpe.segment(" \n", merges) == [] and bpe.segment("x", []) == ["x</w>"]
    assert len(bpe.learn_characters({"low": 5}, 100)) == 2
    assert bpe.learn_characters({}, 5) == bpe.learn_characters({"ab": 1}, 0) == []


@only_python
def test_words_on_characters_are_between_spaces_and_line_endings():
    words = ["low", "lower", "new\ttoken", "a\rb", "x\u00a0y\v"]
    assert bpe.split_at_spaces("  low  lower\r\n\n \r new\ttoken a\rb\r \nx\u00a0y\v ") == words
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
    words = Counter(bpe.split_at_spaces(text))
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
        path = CORPUS if name == "corpus.txt" else Path(CORPORA) / name
        texts = [path.read_bytes()[: 50_000 if path == CORPUS else 5_000_000].decode(errors="ignore").replace(END, "")]
    for text in texts:
        lines, codes = [line + "\n" for line in text.split("\n")], io.StringIO()
        learn_bpe.learn_bpe(lines, codes, {"random": 30, "corpus.txt": 300}.get(name, 800), min_frequency=frequent)
        theirs = [tuple(line.split(" ")) for line in codes.getvalue().split("\n")[1:-1]]
        merges = bpe.learn_characters(Counter(bpe.split_at_spaces(text)), len(theirs))
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


@pytest.mark.parametrize("piece, times", [("a", 50_000), ("ab", 25_000), ("x", 50_000), (" ", 50_000)])
def test_long_words_do_not_take_quadratic_time(piece, times):
    text = "the quick " * 2_000 + piece * times
    tokenizer = bpe.Tokenizer(*trained(2000), [END])
    start = time.process_time()
    ids = tokenizer.encode(text)
    assert list(tokenizer.encode_iterable(text)) == ids
    assert time.process_time() - start < 2 and tokenizer.decode(ids) == text


# --- III. Training: the rule -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text, n, log", [
    ("aaaa", 1, ["1\ta a -> aa\t3", "2\taa aa -> aaaa\t1"]),  # by hand: counted at three places, replaced at two
    ("aaa\n" * 5, 1, ["1\ta a -> aa\t10", "2\taa a -> aaa\t5"]),
    ("aaaaa", 1, ["1\ta a -> aa\t4", "2\taa aa -> aaaa\t1", "3\taaaa a -> aaaaa\t1"]),
    (TEXTBOOK, 4, ["4\tl ow -> low\t7", "8\tw i -> wi\t3", "12\tlowe r -> lower\t2"]),
])  # fmt: skip
def test_merges_are_logged_with_counts_of_every_position(main, text, n, log):
    Path("text.txt").write_text(text)
    status, stdout, _ = main("text.txt", 300, "--pattern", r"\S+", "--log-every", n)
    assert status == 0 and stdout.splitlines() == log


def test_ids_are_bytes_then_special_tokens_then_merges(train):
    vocab, merges = train("aa aa bb", 260, ["<one>", "<two>"])
    assert merges == pairs("a a, b b")
    tokens = [bytes([byte]) for byte in range(256)] + [b"<one>", b"<two>", b"aa", b"bb"]
    assert list(vocab.items()) == list(enumerate(tokens))


@pytest.mark.parametrize("special", ["a a", "[x]", "(.*)", "a|b", " \n ", "\\d+", "é", "字字", "😀", "$$"])
def test_any_text_can_be_a_special_token(train, special):
    text = f"some {special}{special}text {special} here a a a a a b"
    assert train(text, 300, [special]) == oracle(text, 300, (special,))


# --- III. Training: both engines against the oracle ------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_random_corpora_full_of_ties_and_runs(train, seed):
    rng = random.Random(seed)
    text = random_text(rng, "ab cd"[: rng.randint(2, 5)] + " ", rng.randint(0, 300))
    vocab, merges = train(text, 330)
    assert (vocab, merges) == oracle(text, 330)
    assert merges == lesson().train_by_definition(lesson().words_of(text), 330 - 256)


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
    alphabet, words = rng.choices(range(256), k=rng.randint(1, 5)), {}
    for _ in range(rng.randint(0, 60)):
        word = bytes(rng.choices(alphabet, k=rng.randint(1, rng.choice([3, 12, 60]))))
        words[word] = rng.randint(1, rng.choice([2, 5, 5000]))
    return words, naive_train({letters(word): count for word, count in words.items()}, 400)


@pytest.mark.parametrize("seed", range(40))
def test_learners_agree_with_the_oracle_on_words_of_all_kinds(seed):
    words, expected = words_of_all_kinds(seed)
    assert bpe.train_from_counts(words, 400) == expected


def test_counts_near_the_limit_are_exact():
    words = {b"ab": 2**62, b"cd": 2**62 + 1, b"ef": 2**62 - 1, b"xef": 2**62}
    assert bpe.train_from_counts(words, 300)[1] == pairs("e f, c d, x ef, a b")  # e f occurs 2**63 - 1 times


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


def test_training_on_the_fixture_takes_little_time(engine):
    times = []
    for _ in range(10 if engine == "c" else 1):
        start = time.process_time()  # CPU time, so other processes do not matter
        bpe.train_bpe(CORPUS, 500, [END])
        times.append(time.process_time() - start)
    assert min(times) < (0.03 if engine == "c" else 1.5)


# --- III. Training: options ------------------------------------------------------------------------------------------


def test_min_frequency_and_max_token_length(train):
    """With the limits, in every round the oracle chooses the merge that was made; in the end it finds none."""
    text = FIXTURE[:6000]
    merges = train(text, 10_000, min_frequency=9, max_token_length=4)[1]
    assert len(merges) > 20
    words = naive_words(text)
    for merge in [*merges, None]:
        counts = {pair: n for pair, n in naive_counts(words).items() if n >= 9 and len(pair[0] + pair[1]) <= 4}
        assert merge == max(counts, key=lambda pair: (counts[pair], pair), default=None)
        if merge:
            words = {naive_merge(word, merge): count for word, count in words.items()}


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**64, 2**64 + 1, 2**80])
def test_numbers_of_any_size_mean_the_same_in_both_engines(number):
    words = {b"ab": 2**63 - 1, b"cd": 5}
    merges = bpe.train_from_counts(words, 300, [], min_frequency=number)[1]
    assert merges == ([(b"a", b"b")] if number < 2**63 else [])
    both = [(b"a", b"b"), (b"c", b"d")]
    assert bpe.train_from_counts(words, number)[1] == both
    assert bpe.train_from_counts(words, 300, max_token_length=number)[1] == both


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
        for call, arguments in ((bpe.train_bpe, (part, 300)), (bpe.Tokenizer, trained(300))):
            with pytest.raises((TypeError, ValueError), match="special_tokens must be a list of strings"):
                call(*arguments, wrong)


@pytest.mark.parametrize("special_tokens", [[], None, ()])
def test_without_special_tokens_their_texts_are_ordinary_text(special_tokens):
    vocab, _ = bpe.train_bpe(None, 300, special_tokens, texts=[f"aa{END}bb"])
    assert vocab[256] != END.encode() and any(b"<|" in token for token in vocab.values())


@pytest.mark.parametrize("arguments, text", [
    ({"vocab_size": 100, "special_tokens": []}, r"size 100 is too small; the minimum is 256 \(256 bytes \+ 0 spe"),
    ({"vocab_size": 256}, r"size 256 is too small; the minimum is 257 \(256 bytes \+ 1 special token\)"),
    ({"vocab_size": 0}, "vocab_size must be a positive integer, not 0"),
    ({"vocab_size": -5}, "vocab_size must be a positive integer, not -5"),
    ({"vocab_size": "500"}, "vocab_size must be a positive integer, not '500'"),
    ({"vocab_size": 500.0}, "vocab_size must be a positive integer, not 500.0"),
    ({"vocab_size": None}, "vocab_size must be a positive integer, not None"),
    ({"special_tokens": ["<a>", ""]}, r"special token 2 \(''\) must be valid text of at least two bytes"),
    ({"special_tokens": ["<a>", "<b>", "<a>"]}, "duplicate special token: '<a>'"),
    ({"special_tokens": ["a"]}, r"special token 1 \('a'\) must be valid text of at least two bytes"),
    ({"special_tokens": [b"<a>"]}, r"special token 1 \(b'<a>'\) must be valid text"),
    ({"special_tokens": [["<a>"]]}, r"special token 1 \(\['<a>'\]\) must be valid text"),
    ({"special_tokens": ["\ud800x"]}, r"special token 1 \('\\ud800x'\) must be valid text"),
    ({"pattern": "(["}, r"pattern '\(\[' is not a valid regular expression: unterminated"),
    ({"pattern": "gtp2"}, r"unknown pattern 'gtp2'; use gpt2, cl100k, .* \(this one contains no operators\)"),
    ({"pattern": ""}, "gpt2, cl100k, o200k"), ({"pattern": None}, "pattern"), ({"pattern": ["gpt2"]}, "pattern"),
    ({"workers": 0}, "workers must be a positive integer, not 0"), ({"workers": 1.5}, "workers must be .* not 1.5"),
    ({"min_frequency": 0}, "min_frequency must be .* not 0"),
    ({"min_frequency": 1.5}, "min_frequency must be .* not 1.5"),
    ({"max_token_length": 0}, "max_token_length must be .* not 0"), ({"color": 1}, "unknown option 'color'"),
    ({"errors": "ignore"}, "errors must be .*'strict'.*'replace'.*'ignore'"),
    ({"newlines": "crlf"}, "newlines must be .*'crlf'"), ({"like": "hf"}, "like must be .*'hf'"),
    ({"like": "huggingface", "max_token_length": 5}, "like='huggingface'.* maximum token length"),
    ({"engine": "rust"}, "engine must be .*'rust'"), ({"progress": "yes"}, "progress must be .*'yes'"),
])  # fmt: skip
def test_bad_arguments_are_errors_that_show_them(arguments, text):
    with pytest.raises((ValueError, TypeError), match=text):
        bpe.train_bpe(CORPUS, **{"vocab_size": 300, "special_tokens": [END], **arguments})


def huggingface(pieces, size, special_tokens):
    """Train a tokenizer with tokenizers."""
    tokenizers = need("tokenizers")
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    options = {"initial_alphabet": theirs.pre_tokenizer.alphabet(), "show_progress": False}
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=size, special_tokens=special_tokens, **options)
    theirs.train_from_iterator(pieces, trainer)
    return theirs


def assert_like_huggingface(ours, pieces, size, special_tokens):
    ids, merges = naive_files(*ours)
    model = json.loads(huggingface(pieces, size, special_tokens).to_str())["model"]
    assert (ids, merges.splitlines()[1:]) == (model["vocab"], [" ".join(merge) for merge in model["merges"]])


@pytest.mark.parametrize("seed", range(20))
def test_like_huggingface_on_random_corpora_full_of_ties(train, seed):
    rng = random.Random(seed)
    text = random_text(rng, rng.choice(["ab ", "abc ", "aab\n' ", "字é a"]), rng.randint(0, 400))
    assert_like_huggingface(train(text, 400, [END], like="huggingface"), [text], 400, [END])


def test_like_huggingface_on_the_fixture():
    ours = bpe.train_bpe(CORPUS, 1500, [END, "<pad>"], like="huggingface")
    assert_like_huggingface(ours, FIXTURE.split(END), 1500, [END, "<pad>"])


@pytest.mark.parametrize("special", ["éé", "<début>", "é é", "字", "\u00a0", "«END»"])
def test_special_tokens_beyond_the_byte_alphabet_are_those_of_tokenizers(tmp_path, special):
    text = f"low lower café {special} newest"
    bpe.train_bpe(None, 280, [special], texts=[text], like="huggingface", output_dir=tmp_path)
    saved = need("tokenizers").Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ids = huggingface(text.split(special), 280, [special]).encode(text).ids
    assert bpe.Tokenizer.load(tmp_path).encode(text) == saved.encode(text).ids == ids


# --- III. Training: from texts and from counts -----------------------------------------------------------------------


def test_training_on_texts_takes_each_as_a_text_of_its_own():
    expected = naive_train(naive_words("ab  ") + naive_words(" ab ab") + naive_words("ab"), 262)
    assert bpe.train_bpe(vocab_size=262, texts=iter(["ab  ", " ab ab", "", "ab"])) == expected
    assert bpe.count_words(None, ["<x>"], texts=["a<x>b", "c"]) == {b"a": 1, b"b": 1, b"c": 1}
    assert bpe.count_words(None, [], texts=iter([])) == {}
    replaced = bpe.count_words(None, [], texts=["a\ud800", "\ud83d\ude00"], errors="replace")
    assert replaced == {b"a": 1, "\ufffd".encode(): 1, "😀".encode(): 1}


@pytest.mark.parametrize("arguments, text", [
    ({"texts": ["a\ud800"]}, r"texts\[0\].* position 1: surrogates not allowed"),
    *[({"texts": ["a", wrong, "b"]}, r"texts\[1\].* must be a str") for wrong in (b"b", None, 5)],
    ({"texts": "hello"}, "texts must be an iterable of strings"),
    ({"texts": ["a"], "input_path": CORPUS}, "pass either paths or texts"), ({}, "pass either paths or texts"),
])  # fmt: skip
def test_bad_texts_are_errors_with_their_place(arguments, text):
    with pytest.raises((TypeError, ValueError), match=text):
        bpe.train_bpe(vocab_size=300, **arguments)


def test_texts_from_an_iterable_are_counted_lazily(part, cut):
    cut(100)
    taken, taken_before_task = [], {}

    def stream():
        for document in PART.split(END):
            taken.append(document)
            yield document

    executor = Tasks(lambda number: taken_before_task.setdefault(number, len(taken)))
    assert bpe.count_words(None, [], texts=stream(), executor=executor) == bpe.count_words(part, [END], workers=1)
    assert taken_before_task[1] <= 2 and taken_before_task[3] <= 4 < len(taken)


def test_counts_of_parts_add_up_to_those_of_the_whole(part, tmp_path):
    """Parts can be counted on several machines and trained on together; counts can be used for several sizes."""
    for options in ({"pattern": "gpt2"}, {"pattern": "cl100k"}, {"pattern": r"\w+|\W"}):
        total = Counter()
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


# --- IV. The tokenizer and its files: words --------------------------------------------------------------------------


@pytest.mark.parametrize("text, special_tokens, pattern, words", [
    (f"Hello!{END}World", [END], "gpt2", ["Hello", "!", "World"]),  # a special token is a boundary, and not a word
    (f"a \n{END}b", [END], "gpt2", ["a", " \n", "b"]),  # the end of a piece, so `\s+(?!\S)` takes all whitespace,
    ("a \nb", [], "gpt2", ["a", " ", "\n", "b"]),  # while elsewhere it leaves the last character
    ("x<a><b>y<a>z", ["<a>", "<a><b>"], "gpt2", ["x", "y", "z"]),  # the longest special token wins
    ("1aab2", ["aab"], "gpt2", ["1", "2"]),
    ("I'll see  you", [], "gpt2", ["I", "'ll", " see", " ", " you"]),
    ("I'LL\n\nx", [], "gpt2", ["I", "'", "LL", "\n", "\n", "x"]),
    ("I'LL 1234!\n\nx", [], "cl100k", ["I", "'LL", " ", "123", "4", "!\n\n", "x"]),
    ("end  ", [], "cl100k", ["end", "  "]),
    ("HelloWorld it's/\n", [], "o200k", ["Hello", "World", " it's", "/\n"]),
    ("abab ab", [], r"(a)(b)|\s+", ["ab", "ab", " ", "ab"]),  # whole matches, not groups,
    ("aab", [], r"a*", ["aa"]),  # that are not empty
    ("hello hello", [], r"\d+", []),
])  # fmt: skip
def test_the_words_of_a_text(text, special_tokens, pattern, words):
    assert words_in(text, special_tokens, pattern) == Counter(words)


@pytest.mark.parametrize("name", [*bpe.PATTERNS, "r50k_base", "cl100k_base", "o200k_base"])  # and tiktoken's names
def test_the_words_of_a_named_pattern_are_those_of_its_expression(name):
    ours = {"r50k_base": "gpt2"}.get(name, name.removesuffix("_base"))
    assert words_in(FIXTURE, pattern=name) == Counter(regex.findall(bpe.PATTERNS[ours], FIXTURE))


# --- IV. The tokenizer and its files: encoding and decoding ----------------------------------------------------------


def test_a_worked_example_of_encoding():
    """From a published course handout: ids need not be contiguous, and bytes can have any ids."""
    vocab = {0: b" ", 1: b"a", 2: b"c", 3: b"e", 4: b"h", 5: b"t", 6: b"th", 7: b" c", 8: b" a", 9: b"the", 10: b" at"}
    tokenizer = bpe.Tokenizer(vocab, [(b"t", b"h"), (b" ", b"c"), (b" ", b"a"), (b"th", b"e"), (b" a", b"t")])
    assert tokenizer.encode("the cat ate") == [9, 7, 1, 5, 10, 3]
    assert tokenizer.decode([9, 7, 1, 5, 10, 3]) == "the cat ate"


SPECIALS = [[], [END], ["<a>", "<a><b>", "<a><b><c>", "b><"], [" \n\v", "\n\n\v", "ll'", "\r\n"], ["a a", "aa", "字"]]


@functools.cache
def texts_and_ids(pattern, special_tokens):
    """[(text, its ids by the oracle), ...] for a model of 400 tokens."""
    rng = random.Random(repr((pattern, special_tokens)))
    vocab, merges = trained(400, pattern)
    vocab = bpe.Tokenizer(vocab, merges, special_tokens).vocab
    encode = naive_encoder(vocab, merges, special_tokens, bpe.PATTERNS[pattern])
    texts = [*TEXTS, *(nested(rng, special_tokens) for _ in range(60))]
    texts += [random_text(rng, "aeinst", length) for length in (1, 2, 15, 16, 17, 40, 64, 65, 90, 200)]
    return [(text, encode(text)) for text in texts + [FIXTURE[:10_000]] * (not special_tokens)]


@pytest.mark.parametrize("pattern", bpe.PATTERNS)
@pytest.mark.parametrize("special_tokens", SPECIALS)
def test_encoding_replays_the_merges_in_every_word(pattern, special_tokens):
    tokenizer = bpe.Tokenizer(*trained(400, pattern), special_tokens, pattern)
    for text, ids in texts_and_ids(pattern, tuple(special_tokens)):
        assert tokenizer.encode(text) == ids, text


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
    ids = tokenizer.encode("😀")
    assert tokenizer.encode("\ud83d\ude00") == list(tokenizer.encode_iterable(["\ud83d", "\ude00"])) == ids


def test_ids_may_be_any_numbers(tmp_path):
    vocab, merges = trained(600)
    ids = random.Random(2).sample(range(2**31), 599) + [2**32 - 2]
    tokenizer = bpe.Tokenizer({ids[token_id]: token for token_id, token in vocab.items()}, merges, [END])
    text = FIXTURE[:20_000] + vocab[599].decode()
    expected = [ids[token_id] for token_id in bpe.Tokenizer(vocab, merges, [END]).encode(text)]
    assert tokenizer.encode(text) == expected and tokenizer.decode(expected) == text
    tokenizer.save(tmp_path)
    assert bpe.Tokenizer.load(tmp_path).encode(text) == expected and max(expected) == 2**32 - 2


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
@pytest.mark.parametrize("vocab, merges, special_tokens, text", [
    ({0: b"a", 1: b"a"}, "", [], "ids 0 and 1 have the same bytes"),
    ({0: b"a", 1: b"b"}, "a b", [], r"merge \(b'a', b'b'\) uses or creates a token that is not in the vocabulary"),
    ({0: b"a", 1: b"ab"}, "a b", [], r"merge \(b'a', b'b'\) uses or creates a token"),
    ({0: b"a", 1: b"aa"}, "a a, a a", [], r"merge 1 \(from 0\), \(b'a', b'a'\), is a duplicate"),
    # replaying gives ab c for "abc", and merging by rank gives abc
    (None, "ab c, a b", [], r"merge 1 \(from 0\), \(b'a', b'b'\), makes a token that an earlier merge takes"),
    *[({**dict(enumerate((b"a", b"b", b"c"))), 3: new, 4: b"ab"}, f"{merge}, a b", [], "merge 1 .* an earlier merge takes")
      for new, merge in ((b"abc", "ab c"), (b"cab", "c ab"))],  # the ids of the new tokens rise, but 3 is made of 4
    ({0: b"a"}, "", ["<x>", "<x>"], "duplicate special token: '<x>'"),
    # two ids would have the same bytes, and tokenizers can't load such a file
    (None, "a b, ab c", ["ab"], "special token 'ab' is also made by a merge"),
    (None, "a b, ab c", ["x y", "abc"], "special token 'abc' is also made by a merge"),
    ({b"a": 0}, "", [], "vocab maps ids to bytes"), ({0: "a"}, "", [], "vocab maps ids to bytes.*from_files"),
    ({"a": 0}, "", [], "vocab maps ids to bytes.*from_files"), ({1.5: b"a"}, "", [], "vocab maps ids to bytes.*1.5"),
    *[({0: b"a", bad: b"ab"}, "", [], f"the id of b'ab' .*{bad}") for bad in (-1, 2**32 - 1, 2**32, 2**40, 10**30)],
])  # fmt: skip
def test_a_vocabulary_and_merges_that_contradict_each_other(vocab, merges, special_tokens, text):
    merges = pairs(merges) if merges else []
    with pytest.raises((TypeError, ValueError), match=text):
        bpe.Tokenizer(vocab or with_merges(merges), merges, special_tokens)


@pytest.mark.parametrize("pattern, text, place", [
    (r"\w+", f"abc{END}de-", "character 18: '-'"), (r"\S+", "ab cd", "character 2: "),
    (r"(?r)\S+|\s+", "ab cd", "character 0: "), (r"(?r).", "ab", "character 0: "),
    (r"(?:.\K)?b|.", "ab cd", "character 0: "),
])  # fmt: skip
def test_a_pattern_that_skips_or_reorders_text_is_an_error_with_its_place(tmp_path, pattern, text, place):
    tokenizer = bpe.Tokenizer(with_merges([]), [], [END], pattern)
    for encode in (tokenizer.encode, lambda text: list(tokenizer.encode_iterable([text[:3], text[3:]]))):
        with pytest.raises(ValueError, match=f"the pattern skips or reorders text at {place}"):
            encode(text)
        assert tokenizer.decode(encode("aaa")) == "aaa"
    (tmp_path / "text.txt").write_text(text)
    with pytest.raises(ValueError, match=f"text.txt, bytes .*the pattern skips or reorders text at {place}"):
        tokenizer.encode_files(tmp_path / "text.txt", tmp_path / "ids.npy")
    assert os.listdir(tmp_path) == ["text.txt"]


def test_training_warns_of_text_that_a_custom_pattern_skips(main, recwarn):
    text = "low-low, low"
    for call, arguments in ((bpe.train_bpe, (None, 300)), (bpe.count_words, ())):
        with pytest.warns(UserWarning, match=r"\b3 bytes"):
            call(*arguments, texts=[text], pattern=r"\w+")
    recwarn.clear()
    bpe.train_bpe(None, 300, texts=["low"], pattern=r"\w+")
    assert not recwarn.list
    status, _, stderr = main("words.txt", 300, "--pattern", r"\w+", "--encode", "ids.npy")
    assert status == 2 and "--encode" in stderr.splitlines()[-1] and not list(Path().glob("bpeModel/*.json"))


def test_ids_of_numpy_are_ids(tmp_path):
    numpy = need("numpy")
    (vocab, merges), text = trained(300), f"the ferry{END}<new>"
    numbers = {numpy.uint16(token_id): token for token_id, token in vocab.items()}
    tokenizer = bpe.Tokenizer(numbers, merges, [END, "<new>"])
    ids = tokenizer.encode(text)
    assert ids == bpe.Tokenizer(vocab, merges, [END, "<new>"]).encode(text) and {type(n) for n in ids} == {int}
    assert tokenizer.decode(numpy.array(ids)) == text
    tokenizer.save(tmp_path)
    assert bpe.Tokenizer.load(tmp_path).encode(text) == ids


def test_anything_but_text_is_a_type_error():
    tokenizer = bpe.Tokenizer(*trained(300))
    for wrong in (b"abc", b"", None, 5, ["abc"]):
        with pytest.raises(TypeError, match=f"^text must be a str, not {type(wrong).__name__}$"):
            tokenizer.encode(wrong)
        with pytest.raises(TypeError, match=f"^text must be a str, not {type(wrong).__name__}$"):
            list(tokenizer.encode_iterable(["abc", wrong]))


@pytest.mark.parametrize("pattern", [*bpe.PATTERNS, r"\w+|\W"])
@pytest.mark.parametrize("special_tokens", SPECIALS)
def test_a_stream_is_encoded_like_the_whole(engine, pattern, special_tokens):
    tokenizer = bpe.Tokenizer(*trained(600, pattern), special_tokens, pattern)
    if engine == "python":  # compare words, since different words can have the same ids
        tokenizer._cached = tokenizer.encode_word = lambda word: [word]
    rng = random.Random(repr((pattern, special_tokens)))
    parts = [*TRICKY, *special_tokens, "'LL", "'v", "e", "ABCDEFGHIJKL", "中國", "ʰ", "don", "123", "\n\n", "!!", "ſ"]
    parts += ["<a>", "<b>", "<c>", "\ud83d", "\ude00"]
    texts = [*TEXTS, "中ABCDEFGHIJKLm", "e\u0301ABCDEFGHIJKLMNx"]
    texts += [random_text(rng, parts, rng.randint(0, 60)) for _ in range(60)]
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


def test_a_pair_of_surrogates_can_be_divided_in_a_stream():
    """Together they are one character, a letter here, and the word goes on."""
    tokens = [bytes([byte]) for byte in range(256)] + [b"x\xf0"]
    tokenizer = bpe.Tokenizer(dict(enumerate(tokens)), [(b"x", b"\xf0")], ["\U0001d400b c"])
    y = 30 * "y"
    whole = tokenizer.encode(f"x\U0001d400{y} \U0001d400b c{y}")
    assert whole == [256, 0x9D, 0x90, 0x80, *y.encode(), 32, 257, *y.encode()]
    pairs = f"x\ud835\udc00{y} \ud835\udc00b c{y}"
    for parts in [pairs], pairs, [pairs[:2], pairs[2:]]:
        assert list(tokenizer.encode_iterable(parts)) == whole
    assert list(tokenizer.encode_iterable(["x", "\ud835"])) == tokenizer.encode("x\ud835") == tokenizer.encode("x\ufffd")


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
def test_the_cache_of_words_is_bounded_and_has_no_long_words():
    tokenizer = bpe.Tokenizer(*trained(600))
    assert tokenizer._cached.cache_info().maxsize < 1_000_000
    assert len(tokenizer.encode("x" * 100)) == 100 and tokenizer._cached.cache_info().currsize == 0


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
    assert contents(tokenizer) == (vocab, merges, {END: 256}, "cl100k") and len(tokenizer) == 400
    assert repr(tokenizer) == "Tokenizer(400 tokens, 1 of them special, pattern 'cl100k')"
    tokenizer.save(tmp_path / "a" / "model")
    again = bpe.Tokenizer.load(tmp_path / "a" / "model")
    assert contents(again) == contents(tokenizer) and repr(again) == repr(tokenizer)
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


def test_a_folder_has_everything_about_a_model_and_nothing_of_an_earlier_one(main, part):
    text, names = f"I'LL 12345 theory\n\nHTMLParser's<x><y>{END}", set()
    for number in (0, 1, 2, 3, 4, 0):
        options = MODELS[number]
        vocab, merges = bpe.train_bpe(part, **options, output_dir="model")
        names = names or set(os.listdir("model"))
        assert set(os.listdir("model")) == names >= {"merges.txt", "tokenizer.json", "vocab.json"}
        tokenizer, arguments = bpe.Tokenizer.load("model"), (options["special_tokens"], options.get("pattern", "gpt2"))
        assert (tokenizer.vocab, tokenizer.merges) == (vocab, merges)
        assert (list(tokenizer.options.special_tokens), tokenizer.options.pattern) == arguments
        ids = tokenizer.encode(text)
        assert ids == bpe.Tokenizer(vocab, merges, *arguments).encode(text)
        assert main("--show", text, "--model", "model")[1].splitlines()[-2] == " ".join(map(str, ids))
        model = json.loads(Path("model/tokenizer.json").read_bytes())["model"]
        assert model["vocab"] == json.loads(Path("model/vocab.json").read_bytes())
        lines = Path("model/merges.txt").read_bytes().decode().split("\n")
        assert [" ".join(merge) for merge in model["merges"]] == lines[1:-1]


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
    bpe.Tokenizer(*trained(600)).save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    assert contents(bpe.Tokenizer.load(tmp_path)) == (*trained(600), {END: 256}, "gpt2")


def changed(folder, change):
    """Change the contents of a folder's tokenizer.json, a nested dict, with a function; returns its path."""
    path = Path(folder) / "tokenizer.json"
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


def with_change(*path):
    """with_change("model", "dropout", 0.1) sets content["model"]["dropout"] to 0.1."""
    *keys, last, value = path
    return lambda content: functools.reduce(operator.getitem, keys, content).__setitem__(last, value)


def with_token(text, **options):
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    token = {"id": 9999, "content": text, **flags, "special": True, **options}
    return lambda content: content["added_tokens"].append(token)


def with_added_tokens(content):
    n = len(content["model"]["vocab"])
    with_token("<mask>", id=n)(content)
    with_token("new word", id=n + 1, normalized=True, special=False)(content)


LOADED = {  # what other tools write that changes no id
    "as it is": lambda content: None,
    "GPT-2's shape": in_gpt2s_shape,
    "ByteLevel in a Sequence": with_change("pre_tokenizer", "pretokenizers", [
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]),
    "padding": with_change("padding", {
        "strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
        "pad_token": "!"}),
    "truncation": with_change("truncation", {
        "direction": "Right", "max_length": 10**6, "strategy": "LongestFirst", "stride": 0}),
    "a template that adds nothing": with_change("post_processor", {
        "type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {},
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]}),
    "added tokens": with_added_tokens,
    "an unknown token that is never needed": with_change("model", "unk_token", END),
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
    for place in (path, str(path), tmp_path / "model", tmp_path / "alone"):
        tokenizer = bpe.Tokenizer.load(place)
        assert tokenizer.encode(text) == expected and tokenizer.decode(expected) == text
        tokenizer.save(tmp_path / "again")
        assert bpe.Tokenizer.load(tmp_path / "again").encode(text) == expected


SPLIT = {"type": "Split", "pattern": {"Regex": r"\s+"}, "behavior": "Isolated", "invert": False}


def with_unknown_bytes(content):
    del content["model"]["vocab"]["a"]
    content["model"].update(unk_token=END, merges=[])


REFUSED = [
    (with_change("normalizer", {"type": "NFC"}), "normalizer"),
    (with_change("model", "ignore_merges", True), "ignore_merges"),
    (with_change("model", "byte_fallback", True), "byte_fallback"),
    (with_change("model", "dropout", 0.1), "dropout"),
    (with_change("model", "continuing_subword_prefix", "##"), "continuing_subword_prefix"),
    (with_change("model", "end_of_word_suffix", "</w>"), "end_of_word_suffix"),
    (with_change("model", "fuse_unk", True), "fuse_unk"),
    (with_unknown_bytes, "unk_token"),
    (with_change("model", "type", "WordPiece"), "WordPiece"),
    (with_change("model", {"type": "Unigram", "unk_id": 0, "vocab": [["a", 0.0]]}), "Unigram"),
    (with_change("pre_tokenizer", "pretokenizers", 1, "add_prefix_space", True), "add_prefix_space"),
    (with_change("pre_tokenizer", "pretokenizers", 1, "use_regex", True), "split|pre_tokenizer"),
    (lambda content: content["pre_tokenizer"]["pretokenizers"].insert(0, SPLIT), "split|pre_tokenizer"),
    (lambda content: content["pre_tokenizer"]["pretokenizers"].pop(), "pre_tokenizer"),
    (lambda content: content["pre_tokenizer"]["pretokenizers"].clear(), "pre_tokenizer"),
    (with_change("pre_tokenizer", {"type": "Whitespace"}), "pre_tokenizer"),
    (with_change("pre_tokenizer", "pretokenizers", 0, "invert", True), "pre_tokenizer|invert"),
    (with_change("pre_tokenizer", "pretokenizers", 0, "behavior", "Removed"), "pre_tokenizer|Removed"),
    (with_change("pre_tokenizer", "pretokenizers", 0, "pattern", {"String": " "}), "pre_tokenizer|String"),
    (with_change("decoder", {"type": "WordPiece", "prefix": "##", "cleanup": True}), "decoder"),
    (with_change("post_processor", {
        "type": "TemplateProcessing", "special_tokens": {END: {"id": END, "ids": [256], "tokens": [END]}},
        "single": [{"SpecialToken": {"id": END, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]}), "post_processor"),
    (with_token("<x>", single_word=True), "single_word.*<x>"),
    (with_token("<x>", lstrip=True), "lstrip.*<x>"), (with_token("<x>", rstrip=True), "rstrip.*<x>"),
    (with_token("text|><", normalized=True), "overlap"),  # tokenizers looks first for tokens that are not normalized
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
    changes = ("vocab.json", b"{", b'{"xyz": 999,'), ("vocab.json", b" 97", b" 9999"), ("merges.txt", b"\n", b"\na b\n")
    for name, old, new in changes:
        edit(tmp_path / name, lambda data: data.replace(old, new, 1))  # noqa: B023
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
def test_a_model_of_32000_tokens_loads_in_less_than_half_a_second(tmp_path, monkeypatch):
    monkeypatch.setattr(bpe, "read_gpt2_files", None)  # not called: their text shows that the files agree
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
    tokenizer = bpe.Tokenizer(*trained(600), [END])
    tokenizer.save(tmp_path)
    paths, ids = (tmp_path / "vocab.json", tmp_path / "merges.txt"), tokenizer.encode(PART)
    assert bpe.Tokenizer.from_files(*paths, [END]).encode(PART) == ids
    edit(paths[1], lambda data: data.split(b"\n", 1)[1] + b"\n")
    assert bpe.Tokenizer.from_files(*paths, special_tokens=[END]).encode(PART) == ids
    edit(paths[0], lambda data: data.replace(b'"~": 126,', b""))
    with pytest.raises(ValueError, match="no token for the byte b'~'"):
        bpe.Tokenizer.from_files(*paths)
    edit(paths[1], lambda data: data[:-4])  # cut off in the middle of a merge
    with pytest.raises(ValueError, match="not in the vocabulary|line 343 "):
        bpe.Tokenizer.from_files(*paths)


@only_python
@pytest.mark.parametrize("name", ["vocab.json", "merges.txt", "tokenizer.json"])
def test_a_folder_with_files_of_two_training_runs_is_refused(error, models, name):
    both, refused = Path("both"), 0
    both.mkdir()
    for old, new in itertools.permutations(models, 2):
        if old[1] == new[1]:  # only the pattern differs, and it is in one file only
            continue
        old, new = files_of(old[0]), files_of(new[0])
        for file, content in {**old, name: new[name]}.items():
            (both / file).write_bytes(content)
        if files_of(both) == old:  # this file is the same in both
            continue
        with pytest.raises(ValueError, match="^both: mixes files from different training runs"):
            bpe.Tokenizer.load(both)
        refused += 1
    assert refused > 12
    assert "both" in error("--show", "x", "--model", both)
    assert "both" in error("words.txt", "--encode", "ids.npy", "--model", both)


@only_python
@pytest.mark.parametrize("how", [OSError(28, "No space left on device"), KeyboardInterrupt(), "killed"])
@pytest.mark.parametrize("old, new", [(None, 0), (0, 1), (1, 0), (3, 2), (2, 4)])
def test_an_interruption_before_any_rename_leaves_either_model_or_is_noticed(tmp_path, models, how, old, new):
    folder, replace, seen = tmp_path / "model", os.replace, Counter()
    known = {number: bpe.Tokenizer.load(models[number][0]) for number in (old, new) if number is not None}

    def save_and_break(rename):
        renames = itertools.count()

        def stop(*arguments):
            if next(renames) == rename:
                if how == "killed":
                    os._exit(9)
                raise how
            replace(*arguments)

        os.replace = stop
        try:
            known[new].save(folder)
        finally:
            os.replace = replace

    for rename in range(len(os.listdir(models[0][0]))):
        shutil.rmtree(folder, ignore_errors=True)
        if old is None:
            folder.mkdir()
        else:
            shutil.copytree(models[old][0], folder)
        if how == "killed":
            child = multiprocessing.get_context("fork").Process(target=save_and_break, args=(rename,))
            child.start()
            child.join()
            assert child.exitcode == 9
        else:
            pytest.raises(type(how), save_and_break, rename)
            assert not list(folder.glob("*.tmp"))
        try:
            found = bpe.Tokenizer.load(folder)
            (state,) = (number for number, model in known.items() if contents(model) == contents(found))
            seen["old" if state == old else "new"] += 1
        except (ValueError, FileNotFoundError) as error:
            assert str(folder) in str(error)
            seen["refused"] += 1
    assert seen["refused" if old is None else "old"] > 0  # before the first rename


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

    def noted_fsync(number):
        flushed.add(os.fstat(number).st_ino)
        fsync(number)

    def noted_replace(old, new):
        renamed.append(os.stat(old).st_ino in flushed)
        replace(old, new)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    bpe.Tokenizer(*trained(300)).save(tmp_path)
    assert len(renamed) >= 3 and all(renamed)


@only_python
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("kind", ["fifo", "folder", "device"])
def test_only_regular_files_are_replaced_and_anything_else_is_an_error_before_any_work(error, kind):
    make = {"fifo": os.mkfifo, "folder": os.mkdir, "device": lambda path: os.symlink(os.devnull, path)}[kind]
    tokenizer = bpe.Tokenizer(*trained(300))
    for name in ("vocab.json", "merges.txt", "tokenizer.json"):
        path = os.path.join("model", name)
        tokenizer.save("model")
        os.remove(path)
        make(path)
        before = sorted(os.listdir("model"))
        for call in (lambda: bpe.train_bpe("missing.txt", 300, output_dir="model"), lambda: tokenizer.save("model")):
            with pytest.raises(ValueError, match=f"refusing to overwrite .*{name}: not a regular file"):
                call()
        assert "not a regular file" in error("words.txt", 300, "--model", "model")
        assert sorted(os.listdir("model")) == before and not os.path.isfile(path)
        shutil.rmtree("model")
    make("ids.npy")
    with pytest.raises(ValueError, match=r"refusing to overwrite .*ids\.npy: not a regular file"):
        tokenizer.encode_files("words.txt", "ids.npy")
    assert "not a regular file" in error("words.txt", 300, "--encode", "ids.npy")
    assert not os.path.isfile("ids.npy") and not list(Path().glob("**/*.tmp"))


@only_python
def test_a_special_token_that_the_files_write_like_another_token_is_an_error_before_any_work(tmp_path):
    printable = sorted(naive_files({byte: bytes([byte]) for byte in range(256)}, [])[0])
    for special in [*printable[94:], "Ġlow", "ĊĊ", "caf\u00e9", "Ã©"]:  # the first 94 are ASCII
        for options in ({"like": "huggingface"}, {"output_dir": tmp_path}):
            with pytest.raises(ValueError, match=f"special token '{special}'"):
                bpe.train_bpe("nowhere.txt", 300, [special], **options)
    vocab, merges = bpe.train_bpe(None, 300, ["é"], texts=["low"])
    assert vocab[256] == "é".encode()  # no problem until it is saved
    with pytest.raises(ValueError, match="special token 'é'"):
        bpe.Tokenizer(vocab, merges, ["é"]).save(tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("with_tokenizer_json", [True, False])
@pytest.mark.parametrize("name, change, text", [
    ("vocab.json", b"", r"vocab\.json: .*Expecting value"), ("vocab.json", b"[1]", r"vocab\.json: "),
    ("vocab.json", b'{"a": 1', r"vocab\.json: .*Expecting ',' delimiter: line 1"), ("vocab.json", b"{}", ""),
    ("vocab.json", b'{"a": -1}', "'a'"), ("vocab.json", b'{"a": "x"}', "'a'"), ("vocab.json", b'{"a": true}', "'a'"),
    ("vocab.json", b'{"a": 1, "b": 1}', r"vocab\.json: .*'b'"), ("vocab.json", b'{"a b": 1}', r"vocab\.json: .*'a b'"),
    ("vocab.json", b'{"\xff": 1}', r"vocab\.json"), ("vocab.json", b'{"a":' * 100_000, r"vocab\.json"),
    ("vocab.json", b'{"a": 1' + b"0" * 5000 + b"}", r"vocab\.json"),
    ("vocab.json", lambda data: data.replace(b": 256", b": 255"), r"vocab\.json"),
    ("merges.txt", b"", r"merges\.txt"), ("merges.txt", b"a b\nab\n", r"merges\.txt: line 2 "),
    ("merges.txt", b"#version: 0.2\na b c\n", r"merges\.txt: line 2 "),
    ("merges.txt", b"a b\n#version: 0.2\na  b", r"merges\.txt: line 3 "),
    ("merges.txt", lambda data: data + b"x \xff\n", r"merges\.txt: line 10 "),
    ("merges.txt", lambda data: data.replace(b"e st\n", b"e st\ne st\n"), ""),
    ("merges.txt", lambda data: data.replace(b"e st\n", b""), None),  # without a merge, they are another valid model
    ("merges.txt", lambda data: data[: data.rstrip().rindex(b"\n") + 1], None),
])  # fmt: skip
@only_python
def test_a_damaged_model_is_refused_with_its_place(error, name, change, text, with_tokenizer_json):
    bpe.train_bpe("words.txt", 265, [END], output_dir="model")
    edit(Path("model", name), change if callable(change) else lambda data: change)
    if not with_tokenizer_json:
        os.remove("model/tokenizer.json")
        if text is None:
            return
    for arguments in (["--show", "x"], ["words.txt", "--encode", "ids.npy"]):
        assert regex.search("model" if with_tokenizer_json else f"model.*{text}", error(*arguments, "--model", "model"))
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
    path = Path("model/tokenizer.json")
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
def texts_for_others(size):
    rng = random.Random(size)
    texts = [*TEXTS, FIXTURE if size > 5000 else PART]
    texts += [random_text(rng, rng.choices(KNOWN, k=40) + TRICKY + [END], rng.randint(0, 300)) for _ in range(60)]
    spaces = [c for c in map(chr, range(0x3001)) if c.isspace()]
    texts += [random_text(rng, [*spaces, "a", "1", "."], 60) for _ in range(60)]
    if CORPORA:
        texts += (Path(CORPORA) / "languages.txt").read_text(encoding="utf-8").split(END)[::7]
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
@pytest.mark.parametrize("size, pattern", [
    (300, "gpt2"), (2000, "gpt2"), (32_000, "gpt2"), (2000, "cl100k"), (2000, "o200k"), (300, "llama3"), (300, "qwen2"),
])  # fmt: skip
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
    paths = [str(tmp_path / name) for name in ("vocab.json", "merges.txt")]
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(*paths))
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


@contextlib.contextmanager
def fed_pipe(path, source):
    """The path of a new named pipe into which a process copies a file."""
    os.mkfifo(path)
    with subprocess.Popen(["sh", "-c", f"cat '{source}' > '{path}'"]):
        yield path
    os.remove(path)


def needs_named_pipes(*values):
    return pytest.param(*values, marks=pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here"))


@contextlib.contextmanager
def pipe_of(data):
    """The path of a pipe with data, which must fit into it."""
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb") as pipe:
        pipe.write(data)
    with os.fdopen(read_end, "rb"):
        yield f"/dev/fd/{read_end}"


@pytest.mark.parametrize("pattern", [*bpe.PATTERNS, r"\w+|\W", r"(a)(b)|\s+x", r"\S+|\s+"])
@pytest.mark.parametrize("newlines", ["keep", "lf"])
@pytest.mark.parametrize("errors", ["strict", "replace"])
def test_cuts_change_nothing(tmp_path, cut, pattern, newlines, errors):
    rng, path = random.Random(repr((pattern, newlines, errors))), tmp_path / "text.txt"
    options = {"pattern": pattern, "newlines": newlines, "errors": errors, "workers": 1}
    bad = [*BAD_UTF8, b"\x97", b"\xf0\x9f"] if errors == "replace" else []
    for specials in 2 * SPECIAL_SETS:
        parts = [part.encode() for part in TRICKY + 3 * specials + ["a ", "ab\n"]] + bad
        data = b"".join(rng.choices(parts, k=rng.randint(0, 200)))
        path.write_bytes(data)
        text = data.decode(errors=errors)
        text = text.replace("\r\n", "\n") if newlines == "lf" else text
        words = naive_words(text, specials, bpe.PATTERNS.get(pattern, pattern))
        expected = {b"".join(word): count for word, count in words.items() if word}
        sizes = rng.sample([(1, 1), (7, 11), (50, 13), (1 << 20, 64)], 2)  # of slices and windows
        with pipe_of(data) as pipe:
            for source, (slice_bytes, window_bytes) in zip((path, pipe), sizes):
                cut(slice_bytes, window_bytes)
                assert bpe.count_words(source, specials, **options) == expected, (data, specials)


def test_a_window_that_begins_inside_a_character_of_a_special_token(tmp_path, cut):
    """What is left of the character is no place outside: from there, each "é é" would be found one é late."""
    path = tmp_path / "text.txt"
    for n in range(12):
        text = n * "x" + 300 * "é "
        path.write_bytes(text.encode())
        expected = {b"".join(word): count for word, count in naive_words(text, ["é é"], bpe.GPT2).items()}
        cut(200, 20)
        assert bpe.count_words(path, ["é é"], workers=1) == expected


@pytest.mark.parametrize("text, pattern, specials, n_slices", [
    ("one two three four " * 10, "gpt2", [], 15), ("one two three four " * 10, "cl100k", [], 15),
    ("one two three four " * 10, r"\w+", ["three"], 9), ("one two three four " * 10, r"\w+", [], 1),
    ("a a" * 13, r"\w+|\W", ["a a"], 2),  # it overlaps itself: only between two of them, counted from the left
])  # fmt: skip
def test_the_tests_of_cutting_do_cut(tmp_path, cut, text, pattern, specials, n_slices):
    cut(7, 11)
    (tmp_path / "text.txt").write_text(text)
    tasks = Tasks()
    bpe.count_words(tmp_path / "text.txt", specials, pattern=pattern, executor=tasks)
    assert tasks.n_tasks >= n_slices


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
    (gzip.compress(b"hello", mtime=0), "looks compressed; try: zcat "),
    (bz2.compress(b"x"), "looks compressed; try: bzcat "), (lzma.compress(b"x"), "looks compressed; try: xzcat "),
    (b"\x28\xb5\x2f\xfd\x04\x00\xff", "looks compressed; try: zstdcat "),
    ("hello".encode("utf-16"), "UTF-16; try: iconv -f utf-16 -t utf-8 "),
    (b"\xfe\xff\x00a", "UTF-16; try: iconv -f utf-16 -t utf-8 "),
    ("héllo wörld, ça va".encode("utf-16-le"), "UTF-16.*iconv"),
    ("héllo wörld, ça va".encode("utf-16-be"), "UTF-16.*iconv"),
    ("un café crème, s'il vous plaît".encode("latin-1"), "iconv -f "),
    (b"PK\x03\x04\xff", "zip"), (b"PAR1\x15\x04\xff", "[Pp]arquet"),
    (b"\x7fELF\x02\x01\x01\0\xff", "looks|binary|ELF"), (b"word" + bytes(300) + b"\xff\xfe\x80", "looks|binary"),
    (b"name".ljust(257, b"\0") + b"ustar\0" + b"\xff", "tar"),
], ids=str)  # fmt: skip
def test_a_file_that_is_not_text_gets_a_hint(train, data, hint):
    with pytest.raises(ValueError, match=rf"text\.txt: .*({hint})") as caught:
        train(data, 300)
    assert "--errors replace" not in str(caught.value) or "latin" in str(caught.value).lower()


NOISE = random.Random(0).randbytes(4_000_000)


@pytest.mark.parametrize("head", [b"", b"\x1f\x8b\x08\x00", b"PK\x03\x04", b"one line"])
@pytest.mark.parametrize("by", ["file", "pipe", "command line"])
def test_a_corpus_that_is_not_text_is_an_error_at_once(words_txt, error, head, by):
    Path("data.bin").write_bytes(head + (NOISE.replace(b"\n", b"") if head == b"one line" else NOISE))
    start = time.process_time()
    if by == "command line":
        assert "data.bin" in error("data.bin", 300) and not os.path.exists("bpeModel/vocab.json")
    elif by == "file":
        for pattern, special_tokens in ("gpt2", [END]), (r"\w+|\W", []), ("o200k", ["a a", "aa"]):
            with pytest.raises(ValueError, match="not valid UTF-8 at byte |looks "):
                bpe.count_words("data.bin", special_tokens, pattern=pattern, workers=1)
    else:
        cat = subprocess.Popen(["cat", "data.bin"], stdout=subprocess.PIPE)
        with cat, pytest.raises(ValueError, match="not valid UTF-8 at byte |looks "):
            bpe.count_words(f"/dev/fd/{cat.stdout.fileno()}", [END], workers=1)
    assert time.process_time() - start < 0.5


@only_c
def test_places_to_cut_in_random_bytes_are_found_fast(tmp_path, cut):
    path, seconds = tmp_path / "data.bin", []
    path.write_bytes(NOISE[:2_000_000])
    for slice_bytes in (8 << 20, 100_000):  # whole, then cut
        cut(slice_bytes)
        start = time.process_time()
        bpe.count_words(path, [END], errors="replace", workers=1)
        with subprocess.Popen(["cat", path], stdout=subprocess.PIPE) as cat:
            bpe.count_words(f"/dev/fd/{cat.stdout.fileno()}", [END], errors="replace", workers=1)
        seconds.append(time.process_time() - start)
    assert seconds[1] < 1.5 * seconds[0]


@pytest.mark.parametrize("data, text", [
    (b"\0" * 6, "looks like .*binary data"), (b"\0", "looks like .*binary data"),
    ("low".encode("utf-16le"), "looks like .*iconv -f utf-16le"),
    ("low".encode("utf-16be"), "looks like .*iconv -f utf-16be"),
    ("\ufeffab".encode(), r"text\.txt: starts with a byte-order mark"),
], ids=str)  # fmt: skip
def test_bytes_that_are_odd_but_valid_stay_and_get_a_warning(train, data, text):
    with pytest.warns(UserWarning, match=text):
        vocab, _ = train(data, 300)
    assert not data.startswith(b"\xef") or "\ufeff".encode() in vocab.values()


@pytest.mark.parametrize("bad", BAD_UTF8)
@pytest.mark.parametrize("place", [0, 9000, None])
def test_bytes_that_are_not_utf8_are_named_by_file_and_offset(train, cut, bad, place):
    cut(9000)
    text = b"word and word. " * 2000
    data = text + bad if place is None else text[:place] + bad + text[place:] + b"\xff"  # the first one is reported
    workers = 2 if bad == b"\xff" else 1  # one case with workers, which take time to start
    with pytest.raises(UnicodeDecodeError) as expected:
        data.decode()
    with pytest.raises(ValueError, match=rf"text\.txt: not valid UTF-8 at byte {expected.value.start} "):
        train(data, 300, workers=workers)
    assert train(data, 300, errors="replace", workers=workers) == train(data.decode(errors="replace"), 300, workers=1)


def test_files_that_cannot_be_read_or_written(tmp_path):
    (tmp_path / "file").write_text("x")
    tokenizer, ids = bpe.Tokenizer(*trained(300)), tmp_path / "ids.npy"
    for call in (lambda paths: bpe.train_bpe(paths, 300, []), lambda paths: tokenizer.encode_files(paths, ids)):
        with pytest.raises(FileNotFoundError):
            call([CORPUS, tmp_path / "missing.txt"])
        with pytest.raises((ValueError, OSError), match=r"is a folder: give its files, .*/\*"):
            call(tmp_path)
        with pytest.raises(ValueError, match="no corpus file"):
            call([])
    with pytest.raises(ValueError, match="file is not a folder"):
        bpe.train_bpe(CORPUS, 300, [], output_dir=tmp_path / "file")
    with pytest.raises(ValueError, match="output_dir must not be empty"):
        bpe.train_bpe(CORPUS, 300, [], output_dir="")
    with pytest.raises(ValueError, match="must not be empty"):
        tokenizer.save("")
    with pytest.raises(ValueError, match="file is not a folder"):
        tokenizer.encode_files(CORPUS, tmp_path / "file" / "ids.npy")
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="needs another user's rights")
def test_no_permission(tmp_path):
    secret, locked = tmp_path / "secret.txt", tmp_path / "locked"
    secret.write_text("x")
    locked.mkdir()
    secret.chmod(0)
    locked.chmod(0o555)
    user = os.geteuid()
    for parent in (tmp_path, *tmp_path.parents[:2]):
        with contextlib.suppress(OSError):
            parent.chmod(0o755)
    try:
        os.seteuid(user or 65534)  # root may read and write everything
        with pytest.raises(PermissionError):
            bpe.train_bpe(secret, 300)
        with pytest.raises(PermissionError):
            bpe.train_bpe("nowhere.txt", 300, output_dir=locked / "x")
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("change", ["truncated", "replaced", "appended to", "changed in place"])
def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path, cut, change):
    cut(1000)
    path, text = tmp_path / "text.txt", b"low lower\n" * 1000
    path.write_bytes(text)
    os.utime(path, (1, 1))
    assert sum(bpe.count_words(path, [], executor=Tasks()).values()) == 3000

    def before(number):
        if number != 3:
            return
        if change == "truncated":
            os.truncate(path, 5000)
        elif change == "replaced":
            (tmp_path / "other").write_bytes(text.upper())
            (tmp_path / "other").replace(path)
        else:
            with open(path, "ab" if change == "appended to" else "r+b") as file:
                file.write(b"LOW")

    with pytest.raises(ValueError, match="text.txt: .*changed"):
        bpe.count_words(path, [], executor=Tasks(before))


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc here")
def test_a_file_that_does_not_know_its_size_is_read():
    assert os.path.getsize("/proc/self/status") == 0
    assert bpe.count_words("/proc/self/status", [])[b"Name"] == 1


def test_a_pipe_that_does_not_wait_is_read_to_its_end(words_txt):
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
        assert run("-", 300, "--model", "pipe", "--quiet", stdin=pipe).returncode == 0
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


def test_the_search_for_special_tokens_does_not_grow_with_their_number(tmp_path, engine):
    rng = random.Random(5)
    specials = ["".join(rng.choices("abcdefgh<>|", k=12)) for _ in range(5000)]
    repeats = 100_000 if engine == "c" else 40_000
    path = tmp_path / "text.txt"
    path.write_text("abc defg hab " * repeats + specials[0] + "bad")
    seconds = []
    for some in (specials[:1], specials):
        start = time.process_time()
        words = bpe.count_words(path, some, workers=1)
        seconds.append(time.process_time() - start)
        assert (words[b" defg"], words[b"bad"]) == (repeats, 1)
    assert seconds[1] < 10 * seconds[0] + 0.05


@pytest.mark.parametrize("special_tokens", [
    ["a a"], ["a a", *(f"a a{n}" for n in range(100))], ["a " * 10_000 + "b"], ["aa ", "a a"],
], ids=["one", "many", "long", "two"])  # fmt: skip
def test_special_tokens_that_overlap_take_linear_time(tmp_path, cut, special_tokens):
    path, text = tmp_path / "text.txt", "a " * 32_000
    path.write_text(text)
    tokenizer = bpe.Tokenizer({byte: bytes([byte]) for byte in range(256)}, [], special_tokens)
    cut(16_000)
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
@pytest.mark.parametrize("named_pipe", [False, needs_named_pipes(True)])
def test_the_number_of_workers_changes_nothing(tmp_path, cut, workers, named_pipe):
    cut(20_000)
    with fed_pipe(tmp_path / "pipe", CORPUS) if named_pipe else contextlib.nullcontext(CORPUS) as path:
        assert bpe.count_words(path, [END], workers=workers) == words_of_the_fixture()


def test_no_more_workers_than_cores_run_at_once(words_txt, monkeypatch, engine, cut):
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
    cut(20)
    monkeypatch.setattr(subprocess, "Popen", Process)
    assert bpe.count_words("words.txt", [], workers=100_000)[b" newest"] == 5
    assert max(most) <= max(os.cpu_count(), 2) and bool(started) == (engine == "python")


@pytest.mark.parametrize("kind", ["ThreadPoolExecutor", "ProcessPoolExecutor"])
def test_any_executor_counts_the_same(part, cut, kind):
    cut(5000)
    with getattr(concurrent.futures, kind)(2) as executor:
        for pattern in ("gpt2", "cl100k"):
            expected = bpe.count_words(part, [END], workers=1, pattern=pattern)
            assert bpe.count_words(part, [END], executor=executor, pattern=pattern) == expected
        assert bpe.count_words(None, [], texts=["a b", "a"], executor=executor) == {b"a": 2, b" b": 1}


def test_a_task_that_always_fails_is_an_error_with_its_path_and_range(monkeypatch, cut):
    def fail(piece, **options):
        raise OSError("disk on fire") if piece.start_byte else KeyError("first")

    cut(5000)
    monkeypatch.setattr(bpe, "count_slice", fail)
    with pytest.raises(RuntimeError, match=r"corpus\.txt, bytes 0 to \d+.*first"):
        bpe.count_words(CORPUS, [END], executor=Tasks())


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
            corpus, specials = {str(corpus)!r}, ["{END}"]
            expected = bpe.count_words(corpus, specials, workers=1)
            with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as local:
                with Client(local) as client:
                    client.run(lambda: __import__("sys").path.insert(0, {str(ROOT)!r}))
                    cluster = client.get_executor()
                    print(bpe.count_words(corpus, specials, executor=cluster) == expected)
                    pids = list(client.run(os.getpid).values())
                    threading.Timer(0.3, os.kill, (pids[0], signal.SIGKILL)).start()
                    start = time.time()
                    counts = bpe.count_words([corpus] * 4, specials, executor=cluster, engine="python")
                    print(counts == {{word: 4 * count for word, count in expected.items()}}, time.time() - start > 0.3)
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


COUNT = (
    'started = []; sys.addaudithook(lambda event, _: started.append(event) if event == "subprocess.Popen" else None); '
    'print(bpe.count_words("text.txt", [], workers=2, engine="python")[b" lower"], len(started) > 1)'
)


@only_python
def test_workers_start_alike_whatever_imports_the_module(tmp_path):
    """Workers never load the script, so it may lack a guard or come from standard input; it may even ignore SIGTERM."""
    (tmp_path / "text.txt").write_text("low lower\n" * 1000)
    by_path = f"""
        spec = importlib.util.spec_from_file_location("tokens_of_a_student", {str(ROOT / "bpe.py")!r})
        bpe = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(bpe)
    """
    for load, guard in (("import bpe", "True"), ("import bpe", '__name__ == "__main__"'), (by_path, "True")):
        script = f"import importlib.util, signal, sys\nsys.path.insert(0, {str(ROOT)!r})\n{textwrap.dedent(load)}\n"
        script += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        script += f"bpe.SLICE_BYTES = 6000\nif {guard}:\n    {COUNT}"
        (tmp_path / "script.py").write_text(script)
        for name, stdin in (("script.py", ""), ("-", script)):
            options = {"input": stdin, "capture_output": True, "text": True, "cwd": tmp_path, "timeout": 60}
            result = subprocess.run([sys.executable, name], **options)
            assert (result.returncode, result.stdout, result.stderr) == (0, "1000 True\n", "")  # no worker ran it again


@only_python
def test_workers_import_nothing_from_the_current_folder(tmp_path):
    (tmp_path / "text.txt").write_text("low lower\n" * 1000)
    for name in ("signal", "pickle", "json", "regex", "bpe", "importlib"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not this one')")
    # prints whether each worker gets -O, and what COUNT prints
    script = f"""
        import sys
        sys.path[:] = [path for path in sys.path if path] + [{str(ROOT)!r}]
        import bpe
        bpe.SLICE_BYTES = 6000
        say = lambda arguments: sys.stdout.write(f"{{'-O' in arguments}}\\n")
        sys.addaudithook(lambda event, rest: say(rest[1]) if event == "subprocess.Popen" else None)
        {COUNT}
    """
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    for options in ([], ["-O"], ["-I"]):
        command = [sys.executable, *options, "-c", textwrap.dedent(script)]
        result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60, env=environment)
        lines = result.stdout.split()
        assert lines[-2:] == ["1000", "True"] and set(lines[:-2]) == {str("-O" in options)}, result


# --- V. Large corpora: encoding files --------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", [*bpe.PATTERNS, r"\w+|\W"])
@pytest.mark.parametrize("special_tokens", SPECIALS)
def test_encoding_a_file_equals_encoding_its_text(words_txt, cut, pattern, special_tokens):
    rng = random.Random(repr((pattern, special_tokens)))
    tokenizer = bpe.Tokenizer(*trained(600, pattern), special_tokens, pattern)
    for _ in range(12):
        text, newlines = nested(rng, special_tokens) + " and " + nested(rng, special_tokens), rng.choice(["keep", "lf"])
        Path("words.txt").write_bytes(text.encode())
        cut(rng.choice([1, 7, 50]), rng.choice([1, 11, 64]))
        ids = tokenizer.encode(text.replace("\r\n", "\n") if newlines == "lf" else text)
        assert tokenizer.encode_files("words.txt", "ids.npy", workers=1, newlines=newlines) == len(ids)
        assert read_ids(Path("ids.npy")) == ("u2", ids)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("named_pipe", [False, needs_named_pipes(True)])
def test_the_number_of_workers_changes_no_id(tmp_path, part, cut, workers, named_pipe):
    other, text = tmp_path / "other.txt", "  one more text  "
    other.write_text(text)
    cut(7000)
    tokenizer = bpe.Tokenizer(*trained(2000), [END])
    ids = tokenizer.encode(PART) + tokenizer.encode(text) + tokenizer.encode(PART)
    for name, kind in (("ids.npy", None), ("ids.bin", "u2")):
        with fed_pipe(tmp_path / "pipe", part) if named_pipe else contextlib.nullcontext(part) as path:
            n_ids = tokenizer.encode_files(iter([path, other, str(part)]), tmp_path / name, workers=workers)
        assert read_ids(tmp_path / name, kind) == ("u2", ids) and n_ids == len(ids)
    assert sorted(os.listdir(tmp_path)) == ["ids.bin", "ids.npy", "other.txt"]


@pytest.mark.parametrize("kind", ["ThreadPoolExecutor", "ProcessPoolExecutor"])
@pytest.mark.parametrize("pattern", ["o200k", r"\w+|\W"])
def test_any_executor_encodes_the_same(tmp_path, part, cut, kind, pattern):
    cut(8000)
    tokenizer = bpe.Tokenizer(*trained(600), [END], pattern)
    with getattr(concurrent.futures, kind)(2) as executor:
        tokenizer.encode_files([part, part], tmp_path / "ids.npy", executor=executor)
    assert read_ids(tmp_path / "ids.npy") == ("u2", 2 * tokenizer.encode(PART))


@pytest.mark.parametrize("pattern", ["gpt2", r"\w+|\W"])
def test_texts_are_encoded_one_by_one_in_order(tmp_path, pattern):
    tokenizer = bpe.Tokenizer(*trained(300), [END], pattern)
    texts = ["low ", " low", "", f"lower{END}", "字"]
    n_ids = tokenizer.encode_files(None, tmp_path / "ids.bin", texts=iter(texts))
    ids = [token_id for text in texts for token_id in tokenizer.encode(text)]
    assert read_ids(tmp_path / "ids.bin", "u2") == ("u2", ids) and n_ids == len(ids)


def test_ids_take_two_bytes_where_all_fit(tmp_path, part):
    vocab, merges = trained(300)
    for largest, kind in ((2**16 - 1, "u2"), (2**16, "u4"), (2**32 - 2, "u4")):
        shifted = {token_id + largest - 299: token for token_id, token in vocab.items()}
        tokenizer = bpe.Tokenizer(shifted, merges, [END])
        for name in ("ids.npy", "ids.bin"):
            tokenizer.encode_files(part, tmp_path / name)
            ids = tokenizer.encode(PART)
            assert read_ids(tmp_path / name, kind if name == "ids.bin" else None) == (kind, ids) and max(ids) <= largest
    shifted = {token_id + 2**16 - 300: token for token_id, token in vocab.items()}
    with_new = bpe.Tokenizer(shifted, merges, ["<new>"])  # its id is 65536
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


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("pattern", ["gpt2", r"\w+|\W"])
def test_bad_utf8_in_the_middle_of_encoding_leaves_the_earlier_file(tmp_path, cut, workers, pattern):
    cut(9000)
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


def test_text_that_cannot_be_encoded_is_an_error_with_its_file(tmp_path, cut):
    cut(100)
    (tmp_path / "text.txt").write_text("ab ab" * 100 + " abx ab")
    tokenizer = bpe.Tokenizer({0: b"a", 1: b" ", 2: b"b"}, [])
    with pytest.raises(ValueError, match=r"text\.txt, bytes \d+ to \d+: .*no token for the byte b'x'"):
        tokenizer.encode_files(tmp_path / "text.txt", tmp_path / "ids.npy", workers=1)
    tokenizer = bpe.Tokenizer(*trained(300), [" ab "], r"\w+")
    with pytest.raises(ValueError, match=r"text\.txt, bytes \d+ to \d+: the pattern skips or reorders"):
        tokenizer.encode_files(tmp_path / "text.txt", tmp_path / "ids.npy")
    assert os.listdir(tmp_path) == ["text.txt"]


@pytest.mark.parametrize("break_at", [1, 5, "the rename"])
def test_an_interruption_while_encoding_leaves_the_earlier_file(tmp_path, monkeypatch, break_at, cut):
    def stop(*arguments):
        raise KeyboardInterrupt

    def texts():
        for number in range(6):
            yield "low lower\n" * 300 if number != break_at else stop()

    cut(3000)
    if break_at == "the rename":
        monkeypatch.setattr(os, "replace", stop)
    (tmp_path / "ids.npy").write_bytes(b"earlier")
    with pytest.raises(KeyboardInterrupt):
        bpe.Tokenizer(*trained(300)).encode_files(None, tmp_path / "ids.npy", texts=texts(), workers=1)
    assert files_of(tmp_path) == {"ids.npy": b"earlier"}


def test_ids_never_replace_one_of_their_inputs(tmp_path, error):
    """By whatever path or link."""
    tokenizer = bpe.Tokenizer(*trained(300), [END])
    tokenizer.save("bpeModel")
    text = Path("text.npy")
    text.write_text("low lower")
    os.symlink(text, "symbolic.npy")
    os.link(text, "hard.npy")
    roundabout = os.path.join("bpeModel", "..", "text.npy")
    for output in (text, text.absolute(), "./text.npy", "symbolic.npy", "hard.npy", roundabout):
        with pytest.raises(ValueError, match=r"\.npy"):
            tokenizer.encode_files(["words.txt", text], output)
        for size in ([], [300]):
            assert ".npy" in error("words.txt", text, *size, "--encode", output)
        assert text.read_text() == "low lower"
    tokenizer.encode_files(text, "other.npy")


@pytest.mark.parametrize("options, text", [
    *[({"output": name}, r"\.npy.*\.bin") for name in ("out.txt", "out", "out.npz", "")],
    ({"workers": 0}, "workers"), ({"errors": "ignore"}, "errors"), ({"newlines": "x"}, "newlines"),
    ({"like": "huggingface"}, "like"), ({"vocab_size": 300}, "vocab_size"), ({"color": 1}, "color"),
    ({"texts": ["a"]}, "pass either paths or texts"), ({"paths": None}, "pass either paths or texts"),
])  # fmt: skip
def test_bad_options_of_encode_files(words_txt, options, text):
    with pytest.raises((ValueError, TypeError), match=text):
        bpe.Tokenizer(*trained(300)).encode_files(**{"paths": "words.txt", "output": "ids.npy", **options})
    assert os.listdir() == ["words.txt"]


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


@pytest.mark.parametrize("corpus, size", [(CORPUS, 300), ("runs.txt", 260)], ids=["fixture", "runs"])
def test_the_command_line_writes_what_the_library_does_and_a_summary(main, corpus, size):
    Path("runs.txt").write_text("aaaaaaa aaaa aaa ab " * 3)
    status, stdout, stderr = main(corpus, size, "--model", "model")
    assert (status, stdout) == (0, "")
    vocab, merges = bpe.train_bpe(corpus, size, [END])
    assert model_in("model") == (vocab, merges)
    words = naive_words(Path(corpus).read_bytes().decode(), [END])
    lines, n_bytes = summary(stderr), sum(len(b"".join(word)) * count for word, count in words.items())
    assert lines["pre-tokens"] == f"{sum(words.values()):,}, {len(words):,} of them distinct"
    for merge in merges:
        words = Counter({naive_merge(word, merge): count for word, count in words.items()})
    tokens = sum(len(word) * count for word, count in words.items())
    assert lines["compression"] == f"{n_bytes / tokens:.2f} bytes per token on this corpus"
    assert lines["read"].startswith(f"{os.path.getsize(corpus):,} bytes, ") and " MB/s" in lines["read"]
    assert lines["vocabulary"] == f"{size} = 256 bytes + 1 special token + {size - 257} merges"
    assert lines["time"].startswith("counting ")


def test_options_may_stand_anywhere(main):
    arguments, options = ["words.txt", 265], ["--min-frequency", 5, "--quiet"]
    for order in ([*options, *arguments], [*arguments, *options], [arguments[0], *options, arguments[1]]):
        assert main(*order, "--model", "model") == (0, "", "")
        assert model_in("model") == bpe.train_bpe("words.txt", 265, [END], min_frequency=5)
        shutil.rmtree("model")


@pytest.mark.parametrize("options, special_tokens", [
    ("", [END]), ("--no-special-tokens", []), ("--special-token <x>", ["<x>"]),
    (f"--special-token <x> --special-token {END}", ["<x>", END]),
])  # fmt: skip
def test_special_tokens_on_the_command_line(main, options, special_tokens):
    Path("text.txt").write_text(f"aa<x>aa{END}aa")
    assert main("text.txt", 280, *options.split(), "--model", "model")[0] == 0
    assert model_in("model") == bpe.train_bpe("text.txt", 280, special_tokens)


def test_standard_input_is_read(words_txt):
    data = CORPUS.read_bytes()
    assert run("-", 500, stdin=data).returncode == 0
    assert Path("bpeModel/merges.txt").read_bytes() == (FIXTURES / "vocab500" / "merges.txt").read_bytes()
    assert "looks compressed; try: zcat" in one_line(run("-", 500, stdin=gzip.compress(data)).stderr)


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="file names are text there")
@only_python
def test_any_file_name_will_do(main):
    for name in ("two\nlines.txt", "\udcff.txt", "-.txt", " .txt", "é.txt"):
        shutil.copy("words.txt", name)
        assert main(f"./{name}", 262, "--model", f"./{name}.model")[0] == 0
        assert len(model_in(f"{name}.model")[1]) == 5


def test_a_copy_inside_a_package_trains_and_finds_a_library_next_to_it(tmp_path, engine):
    package = tmp_path / "course" / "basics"
    package.mkdir(parents=True)
    for file in [ROOT / "bpe.py"] + ([ROOT / "build_ffi.py", *ROOT.glob("_bpe_fast*.*")] if engine == "c" else []):
        shutil.copy(file, package)
    (tmp_path / "course" / "__init__.py").touch()
    (package / "__init__.py").touch()
    arguments = f"{str(CORPUS)!r}, 500, ['{END}'], engine={engine!r}"
    script = f"from course.basics.bpe import train_bpe; v, m = train_bpe({arguments}); print(len(v), len(m))"
    result = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, timeout=60)
    assert result.stdout.split() == [b"500", b"243"], result


# --- VII. The command line: its output -------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments, made_of, why_smaller", [
    ("262", "262 = 256 bytes + 1 special token + 5 merges", ""),
    ("32K", "273 = 256 bytes + 1 special token + 16 merges", "32,000 requested; every word is a single token now"),
    ("1k --no-special-tokens", "272 = 256 bytes + 0 special tokens + 16 merges",
     "1,000 requested; every word is a single token now"),
    ("264 --special-token <a> --special-token <b> --max-token-length 2 --min-frequency 9",
     "259 = 256 bytes + 2 special tokens + 1 merge", "264 requested; no pair is left within the given limits"),
])  # fmt: skip
def test_the_summary_says_what_the_vocabulary_is_made_of(main, arguments, made_of, why_smaller):
    status, _, stderr = main("words.txt", *arguments.split())
    lines = summary(stderr)
    assert status == 0 and lines["vocabulary"].startswith(made_of)
    assert lines["vocabulary"] == made_of + (f"; {why_smaller}" if why_smaller else "")
    assert " MB/s" in lines["read"]
    assert regex.fullmatch(r"[\d,]+ MB", lines.get("peak memory", "0 MB"))  # not available on Windows


@pytest.mark.parametrize("data", [b"", END.encode(), END.encode() * 3])
def test_a_corpus_without_a_word_is_an_error_on_the_command_line(main, error, data):
    """An empty pipe must not replace a good model; in Python it is a result (test_nothing_to_merge_is_a_result)."""
    assert main("words.txt", 262, "--quiet")[0] == 0
    before = files_of("bpeModel")
    Path("empty.txt").write_bytes(data)
    assert regex.search("no words|not a single word|nothing to learn from|is empty", error("empty.txt", 300))
    assert files_of("bpeModel") == before
    error("empty.txt", 300, "--model", "new")
    assert not list(Path().glob("new/*"))


def test_line_endings_of_two_bytes_are_noted(main):
    Path("text.txt").write_bytes(b"a b\r\nc d\r\n")
    assert r"lines end in \r\n, which is kept" in main("text.txt", 300)[2]
    assert r"\r\n" not in main("text.txt", 300, "--newlines", "lf")[2]
    assert r"\r\n" not in main("words.txt", 300)[2]


EXPLAINED = [
    ([3000], 8), ([3000, "--like", "huggingface"], 8), ([400, "--max-token-length", 2], 8),
    ([400, "--min-frequency", 55], 8), ([260], 8), ([400, "--pattern", "o200k"], 8),
    ([280], 20), ([280, "--like", "huggingface"], 20),  # the textbook example, with ties between new tokens
]  # fmt: skip


@pytest.mark.parametrize("options, rounds", EXPLAINED)
def test_an_explanation_is_of_the_merges_that_are_made(main, options, rounds):
    """The pairs and counts are checked against the oracle."""
    corpus = Path("words.txt")
    if rounds != 20:
        corpus.write_bytes(CORPUS.read_bytes()[:4000])  # English only
    status, stdout, _ = main(corpus, *options, "--explain", rounds, "--quiet", "--model", "model")
    assert status == 0
    merges = model_in("model")[1]
    words = naive_words(corpus.read_bytes().decode(), [END], bpe.PATTERNS["o200k" if "o200k" in options else "gpt2"])
    show = lambda token: token.decode(errors="backslashreplace").replace(" ", "␣")  # noqa: E731
    rule = "smaller ids" if "huggingface" in options else "greater bytes"
    expected = []
    for number, pair in enumerate(merges[:rounds], 1):
        counts = naive_counts(words)
        if "--max-token-length" in options:
            counts = {pair: count for pair, count in counts.items() if len(pair[0] + pair[1]) <= 2}
        count = counts[pair]
        ties = list(counts.values()).count(count)
        shown = " ".join(map(show, pair))
        first_line = f"round {number}: {shown} ({count:,} time{'s' * (count > 1)})"
        why = f" ({ties} pairs tie at {count:,}; the {rule} win)" if ties > 1 else ""
        expected.append((first_line, f"    merge {shown}{why}"))
        words = {naive_merge(word, pair): count for word, count in words.items()}
    found = regex.findall(r"(?m)^(round \d+: .+? times?\)).*\n(    merge .*)$", stdout)
    assert found == expected
    assert len(found) == min(rounds, len(merges)) > 0


def test_an_explanation_says_one_time(main):
    Path("c.txt").write_text("abc")
    assert main("c.txt", 258, "--explain", 2, "--quiet", "--no-special-tokens")[1] == (
        "round 1: b c (1 time), a b (1 time)\n    merge b c (2 pairs tie at 1; the greater bytes win)\n"
        "    a b c -> a bc (1 time)\n"
        "round 2: a bc (1 time)\n    merge a bc\n    a bc -> abc (1 time)\n"
    )


def test_an_explanation_without_a_folder_saves_nothing_and_says_so(main):
    assert main("words.txt", 265, "--quiet")[0] == 0
    before = files_of("bpeModel")
    status, stdout, stderr = main("words.txt", 262, "--explain", 6)
    assert status == 0 and "round 5" in stdout and summary(stderr)["saved"].startswith("nothing; --explain")
    assert files_of("bpeModel") == before and sorted(os.listdir()) == ["bpeModel", "words.txt"]


def test_the_summary_counts_the_memory_of_workers_and_names_the_engine_that_counted(main, monkeypatch, engine, cut):
    resource = pytest.importorskip("resource")
    usage = {resource.RUSAGE_SELF: 33_000, resource.RUSAGE_CHILDREN: 54_000}
    monkeypatch.setattr(resource, "getrusage", lambda who: types.SimpleNamespace(ru_maxrss=usage[who]))
    cut(20)
    lines = summary(main("words.txt", 300, "--workers", 2)[2])
    if engine == "python" and sys.platform != "darwin":
        assert lines["peak memory"] == "55 MB"  # getrusage counts in KiB
    assert lines["engine"].startswith("C" if engine == "c" else "Python")
    assert "Python" in summary(main("words.txt", 300, "--pattern", r"\w+|\W")[2])["engine"]


def test_show(main, error, part, monkeypatch):
    assert main(part, 600, "--quiet")[0] == 0
    text = f"The ferry 字{END}"
    tokenizer = bpe.Tokenizer.load("bpeModel")
    ids, n_bytes = tokenizer.encode(text), len(text.encode())
    expected = "|".join(tokenizer.vocab[token_id].decode(errors="backslashreplace") for token_id in ids)
    expected += f"\n{' '.join(map(str, ids))}\n"
    expected += f"{len(ids)} tokens, {n_bytes} bytes, {n_bytes / len(ids):.2f} bytes per token\n"
    assert main("--show", text) == (0, expected, "") and "\\x" in expected
    assert run("--show", "-", stdin=text.encode()).stdout.decode() == expected


def test_control_characters_are_made_visible(main, error, words_txt):
    assert main("words.txt", 262, "--quiet")[0] == 0
    status, stdout, _ = main("--show", "a\x1b[31mb\rc\x07 \x9b")
    assert status == 0 and not set("\x1b\r\x07\x9b") & set(stdout) and "\\x1b" in stdout
    for name in ("no\x1b[31m.txt", "no\rway.txt"):
        assert not set("\x1b\r") & set(error(name, 300))


@only_python
@pytest.mark.parametrize("options", [
    "--pattern o200k", "--special-token <x>", "--no-special-tokens", "--encode ids.npy", "--like huggingface",
])  # fmt: skip
def test_show_takes_no_options_of_training(main, error, options):
    assert main("words.txt", 262, "--quiet")[0] == 0
    assert options.split()[0] in error("--show", "low", *options.split())


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
@pytest.mark.parametrize("name, typed", [("bpe.py", "python bpe.py"), ("/somewhere/bin/bpe-py", "bpe-py")])
def test_without_arguments_there_are_the_usage_and_examples(main, monkeypatch, name, typed):
    monkeypatch.setattr(sys, "argv", [name])
    status, _, stderr = main()
    assert status == 2 and f"usage: {typed.split()[-1]} CORPUS" in stderr
    assert stderr.count(f"\n  {typed} ") >= 2 and f"\n  {typed} corpus.txt " in stderr


def test_the_progress_on_a_terminal(words_txt, monkeypatch, cut):
    clock = itertools.count(100, 0.15)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    cut(20)
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
def test_the_progress_wipes_its_line_after_an_error_too(monkeypatch, error, cut):
    def texts():
        yield from ["low lower"] * 3
        raise error

    cut(5)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with pytest.raises(error):
        bpe.train_bpe(None, 300, texts=texts(), progress=True, workers=1)
    assert sys.stderr.getvalue().endswith("\r\x1b[K")


@only_python
@pytest.mark.parametrize("seconds_between, at_once, speed", [(0.15, 1, 4), (1, 2, 1.2)])  # two workers may end together
def test_the_speed_in_the_progress_line_is_never_too_high(monkeypatch, seconds_between, at_once, speed, cut):
    seconds = 0

    def texts():
        nonlocal seconds
        for _ in range(6):
            seconds += seconds_between
            yield from ["x" * 600_000] * at_once

    monkeypatch.setattr(time, "monotonic", lambda: seconds)
    cut(600_000)
    monkeypatch.setattr(sys, "stderr", Terminal())
    bpe.count_words(None, [], texts=texts(), progress=True, workers=1)
    speeds = [float(part.split()[-1]) for part in sys.stderr.getvalue().split(" MB/s")[:-1]]
    assert len(speeds) > 1 and max(speeds) <= speed


# --- VII. The command line: encoding ---------------------------------------------------------------------------------


def test_encode_on_the_command_line(main, part):
    vocab, merges = bpe.train_bpe(part, 500, ["<x>", END], pattern="o200k", output_dir="model")
    text, path = f"Some 12345 words'LL<x>{END}x" * 20, Path("text.txt")
    path.write_text(text)
    expected = bpe.Tokenizer(vocab, merges, ["<x>", END], "o200k").encode(text)
    status, _, stderr = main(path, "--encode", "ids.npy", "--model", "model")
    assert status == 0 and read_ids(Path("ids.npy")) == ("u2", expected)
    encoded = rf"{len(text):,} bytes, \d+ MB/s: {len(expected)} tokens, {len(text) / len(expected):.2f} bytes per token"
    assert regex.fullmatch(encoded, summary(stderr)["encoded"]) and summary(stderr)["saved"] == "ids.npy"
    assert run("-", "--encode", "ids.bin", "--model", "model", stdin=text.encode()).returncode == 0
    assert read_ids(Path("ids.bin"), "u2") == ("u2", expected)
    # with a size, train first
    assert main(path, part, 400, "--encode", "both.npy", "--model", "new", "--quiet") == (0, "", "")
    tokenizer = bpe.Tokenizer(*bpe.train_bpe([path, part], 400, [END], workers=1), [END])
    assert model_in("new") == (tokenizer.vocab, tokenizer.merges)
    assert read_ids(Path("both.npy")) == ("u2", tokenizer.encode(text) + tokenizer.encode(PART))


@pytest.mark.parametrize("special_token, pattern", [("a b", "gpt2"), ("<x>", r"\w+ \w+|\w|\W")])
def test_encode_takes_everything_from_the_folder(main, part, cut, special_token, pattern):
    """This includes where text may be cut: if "a b" is a special token, not between a and b."""
    tokenizer, text = bpe.Tokenizer.train(part, 300, [special_token], pattern=pattern), "xa bx a bx a b" * 20
    tokenizer.save("bpeModel")
    Path("text.txt").write_text(text)
    cut(10, 8)
    assert main("text.txt", "--encode", "ids.npy", "--quiet", "--workers", "1")[0] == 0
    assert read_ids(Path("ids.npy")) == ("u2", tokenizer.encode(text))


@only_python
@pytest.mark.parametrize("arguments, text", [
    ("words.txt --pattern o200k", "bpeModel was trained with pattern='gpt2', not 'o200k'"),
    ("words.txt --special-token <y>", f"bpeModel was trained with special_tokens=('{END}',), not ('<y>',)"),
    ("words.txt --no-special-tokens", f"bpeModel was trained with special_tokens=('{END}',), not ()"),
    ("words.txt --model none", "no model in none: train one first, or name its folder with --model"),
    ("- 300", "- can't be read twice, to train on it and to encode it"),
    ("words.txt 300 --explain 1", "--explain and --encode require --model"),  # the ids would have no model
])  # fmt: skip
def test_encode_is_refused_before_any_work(main, error, arguments, text):
    assert main("words.txt", 262, "--quiet")[0] == 0
    before = files_of("bpeModel")
    assert text in error(*arguments.split(), "--encode", "ids.npy")
    assert sorted(os.listdir()) == ["bpeModel", "words.txt"] and files_of("bpeModel") == before


# --- VII. The command line: errors -----------------------------------------------------------------------------------


@only_python
@pytest.mark.parametrize("arguments, text", [
    ("c.txt", "give a corpus and, last, the vocabulary size: bpe.py corpus.txt 10000"),
    ("c.txt many", "give a corpus and, last, the vocabulary size"), ("c.txt 10kk", "10kk"),
    ("300", "not bpe.py 300"), ("300 c.txt", "not bpe.py 300 c.txt"),
    ("c.txt -10", "must be a positive integer, not -10"), ("c.txt 1,000", "'1,000' is not a size: write 1000 or 1k"),
    ("c.txt 1M", "'1M' is not a size"), ("c.txt 1e4", "'1e4' is not a size"),
    ("c.txt 10", r"vocabulary size 10 is too small; the minimum is 257 \(256 bytes \+ 1 special token\)"),
    ("c.txt --vocab-size 300", "unknown option --vocab-size: the size comes after the corpus"),
    ("c.txt 300 --special-tokens <x>", "unknown option --special-tokens: use --special-token"),
    ("c.txt 300 --colour", "--colour"), ("c.txt 300 --errors ignore", "ignore"),
    ("c.txt 300 --pattern ([", "regular expression"), ("c.txt 300 --pattern ''", "--pattern must"),
    ("c.txt 300 --workers 0", "--workers must be"), ("c.txt 300 --min-frequency 0", "--min-frequency must be"),
    ("c.txt 300 --max-token-length 0", "--max-token-length must be"), ("c.txt 300 --explain -3", "--explain must be"),
    ("c.txt 300 --log-every 0", "--log-every must be"), ("c.txt 300 --special-token \udcff", "special token"),
    ("c.txt 300 --special-token ''", r"special token 1 \(''\) must be valid text of at least two bytes"),
    ("c.txt 300 --special-token <x> --no-special-tokens", "not allowed with"), ("'' 300", "must not be empty"),
    ("c.txt 300 --model ''", "--model must not be empty"), ("--show x --model ''", "--model must not be empty"),
    ("c.txt --encode ''", "--encode.*must"), ("--encode ids.npy", "--encode requires a corpus"),
    ("--show x c.txt", "--show can't be combined with a corpus or a size: c.txt"),
    ("--show x", "no model in bpeModel: train one first, or name its folder with --model"),
    ("missing.txt 300", "No such file or directory: 'missing.txt'"), ("c.txt missing.txt 300", "'missing.txt'"),
    (". 300", r"\. is a folder: give its files, \./\*"), ("c.txt docs 300", r"docs is a folder: .*, docs/\*"),
    ("c.txt 300 --model c.txt", "c.txt is not a folder"), ("'my file.gz' 300", "zcat 'my file.gz' "),
    ("bad.txt 300", r"bad.txt: not valid UTF-8 at byte 3 \(0xff, invalid start byte\); "),
    ("c.gz 1000", r"looks compressed; try: zcat c.gz \| python bpe.py - 1000"),
])  # fmt: skip
def test_bad_command_lines_end_with_one_line_and_status_2(error, arguments, text):
    os.mkdir("docs")
    compressed = b"\x1f\x8b\x08\x00"
    for name, data in (("c.txt", b"hello"), ("bad.txt", b"abc\xff"), ("c.gz", compressed), ("my file.gz", compressed)):
        Path(name).write_bytes(data)
    message = error(*shlex.split(arguments))
    assert regex.search(text, message) and ("Errno" in message) == ("missing.txt" in arguments), message
    assert not list(Path().glob("bpeModel/*")) and os.listdir("docs") == []


@only_python
def test_text_in_place_of_a_path_is_an_error_that_does_not_repeat_it():
    with pytest.raises((OSError, ValueError)) as caught:
        bpe.Tokenizer.train("low lower " * 10_000, 300)
    assert len(str(caught.value)) < 500


@only_python
def test_a_missing_python_or_package_is_an_error_of_one_line(words_txt):
    script = f"import runpy, sys; sys.version_info = (3, 9, 18); runpy.run_path({str(HERE / 'bpe.py')!r})"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True)
    assert "Python 3.10 or later" in one_line(result.stderr)
    command = [sys.executable, "-I", "-S", ROOT / "bpe.py"]  # hides installed packages
    result = subprocess.run([*command, "words.txt", "300"], capture_output=True)
    assert result.returncode == 2 and "pip install regex" in one_line(result.stderr)
    result = subprocess.run([*command, "--help"], capture_output=True)
    assert (result.returncode, result.stderr) == (0, b"") and b"--special-token" in result.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit for the size of files")
def test_a_full_disk_is_an_error_with_a_name_and_leaves_everything_as_it_was(words_txt, part):
    assert run(part, 300, "--model", "model").returncode == 0
    for name in ("ids.npy", "ids.bin"):
        Path(name).write_bytes(b"earlier")
    before = files_of(".") | files_of("model")
    for arguments, name in ([500], ".json"), (["--encode", "ids.npy"], "ids.npy"), (["--encode", "ids.bin"], "ids.bin"):
        result = run(part, *arguments, "--model", "model", preexec_fn=limit("FSIZE", 3000))
        assert result.returncode == 2 and regex.search(f"File too large: '.*{name}'$", one_line(result.stderr)), result
        assert files_of(".") | files_of("model") == before
    assert run(part, 500, "--model", "new", preexec_fn=limit("FSIZE", 3000)).returncode == 2
    assert os.listdir("new") == []


@pytest.mark.skipif(sys.platform == "win32", reason="no limits for a process here")
def test_running_out_of_memory_is_an_error_of_one_line(words_txt):
    with open("/dev/zero", "rb") as endless:
        result = run("-", 300, stdin=endless, preexec_fn=limit("AS", 110_000_000))
    assert (result.returncode, one_line(result.stderr)) == (1, "error: out of memory\n")


@only_python
def test_a_closed_standard_input_is_an_error_of_one_line(words_txt):
    for result in shells('"$@" <&-', ["-", 300], ["words.txt", "-", 300], ["--show", "-"]):
        assert result.returncode == 2 and "standard input is closed" in one_line(result.stderr)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("redirection", ["<&-", "2>&-", ">&-", "2>/dev/full", "<&- >&- 2>&-", ">/dev/full 2>&1"])
@only_python
def test_a_closed_or_full_stream_does_not_cost_the_training(words_txt, redirection):
    commands = ["words.txt", 300, "--log-every", 1, "--model", "model"], ["nowhere.txt", 300]
    result, failure = shells(f'"$@" {redirection}', *commands)
    assert result.returncode == 0, result.stderr
    assert (words_txt / "model" / "merges.txt").read_text().startswith("#version: 0.2\ns t\n")
    assert failure.returncode == 2


@only_python
def test_a_closed_pipe_does_not_cost_the_training(words_txt):
    for options in (["--log-every", "1"], ["--explain", "3"]):
        reading, writing = os.pipe()
        os.close(reading)  # as `head -1` does, only earlier
        command = [sys.executable, ROOT / "bpe.py", "words.txt", "300", "--model", "model", *options]
        with open(writing, "wb") as pipe:
            result = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, timeout=60)
        assert result.returncode == 0 and b"roken pipe" not in result.stderr and b"saved" in result.stderr
        assert len((words_txt / "model" / "merges.txt").read_text().splitlines()) == 17
        shutil.rmtree(words_txt / "model")


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
@pytest.mark.parametrize("doing, name", [
    ("starting", "SIGINT"), ("counting", "SIGINT"), ("counting", "SIGKILL"), ("learning", "SIGINT"),
    ("encoding", "SIGINT"), ("encoding", "SIGTERM"), ("encoding", "SIGHUP"),
])  # fmt: skip
def test_a_signal_ends_a_run_within_a_second_and_leaves_nothing(tmp_path, part, engine, doing, name):
    text, settings, counts = CORPUS.read_bytes() * 100, "pass", doing in ("starting", "counting")
    if counts:
        arguments = [*["text.txt"] * 400, "30000", "--model", "out"]  # 4 GB
        begun = (tmp_path / "out").exists
        if doing == "starting":
            settings = "bpe.WORKER = 'import time; time.sleep(5)' + bpe.WORKER"
    elif doing == "learning":  # one long word: a merge changes many places, so no call into C is short by itself
        table = bytes(97 + byte % 26 for byte in range(256))
        text = random.Random(1).randbytes(8_000_000 if engine == "c" else 1_000_000).translate(table)
        arguments = ["text.txt", "100000", "--log-every", "1", "--model", "out"]
        begun = lambda: (tmp_path / "log").stat().st_size  # noqa: E731
    else:
        bpe.train_bpe(part, 600, [END], output_dir=tmp_path / "model")
        settings = "bpe.SLICE_BYTES = 100_000"  # so that the first ids are written early
        arguments = [*["text.txt"] * 400, "--encode", "ids.npy", "--model", "model"]
        begun = lambda: any(path.stat().st_size > 1000 for path in tmp_path.glob("ids*"))  # noqa: E731
    (tmp_path / "text.txt").write_bytes(text)
    (tmp_path / "log").touch()
    before = sorted(path for path in tmp_path.rglob("*.*") if path.is_file())
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import bpe; {settings}; sys.exit(bpe.main())"
    command = [sys.executable, "-c", program, *arguments, "--workers", "2", "--engine", engine]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.PIPE, start_new_session=True, cwd=tmp_path)
    try:
        wait_for(begun)
        time.sleep(0.3 * counts)  # until it has workers
        assert process.poll() is None
        workers = children_of(process.pid)
        os.killpg(process.pid, getattr(signal, name))  # to its group, as a terminal does
        start = time.perf_counter()
        _, errors = process.communicate(timeout=20)
        assert time.perf_counter() - start < 1
    finally:
        process.kill()
    assert process.returncode == 130 if name == "SIGINT" else process.returncode != 0
    assert name != "SIGINT" or errors.decode() == "interrupted\n"
    assert sorted(path for path in tmp_path.rglob("*.*") if path.is_file()) == before
    assert all_end(workers, 0.5 if name == "SIGKILL" else 2)
    assert not counts or len(workers) == (2 if engine == "python" else 0)


# --- the C engine ----------------------------------------------------------------------------------------------------


@only_c
@pytest.mark.parametrize("pattern", bpe.PATTERNS)
def test_the_c_engine_is_the_c_engine(train, monkeypatch, pattern):
    for name in ("count_texts", "learn_merges", "merge_in_words", "merge_by_rank", "find_words"):
        monkeypatch.setattr(bpe, name, None)  # leave no Python engine to fall back to
    vocab, merges = train("low lower lowest low", 262, pattern=pattern)
    assert (vocab, merges) == oracle("low lower lowest low", 262)
    tokenizer = bpe.Tokenizer(vocab, merges, [END], pattern)
    assert tokenizer.encode(f"lowest{END}") == naive_encoder(tokenizer.vocab, merges, [END])(f"lowest{END}")
    assert bpe.find_engine()[0] is bpe.find_engine()[0] is C  # loaded once
    assert bpe.Tokenizer(vocab, merges, [END], r"\w+|\W").encoder is None


BOUNDARY = "\ue000\ue001"


def assert_scanned_as_regex_does(texts):
    """Count the words of all texts at once, separated by a special token, and compare with regex on each."""
    expected = Counter(itertools.chain.from_iterable(map(regex.compile(GPT2).findall, texts)))
    assert words_in(BOUNDARY.join(texts), [BOUNDARY]) == expected


@only_c
def test_the_scanner_supports_every_code_point():
    points = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE002)  # except surrogates and BOUNDARY
    assert_scanned_as_regex_does([f"{point}a{point} {point}" for point in points[:0x3000]])
    # runs of up to eight neighbors of one kind: no word may end inside a run
    runs = regex.findall(r"\p{L}{1,8}|\p{N}{1,8}|\s{1,8}|[^\s\p{L}\p{N}]{1,8}", points)
    assert "".join(runs) == points
    assert_scanned_as_regex_does([f"{run}a{run}1{run}.{run} {run}" for run in runs])


@only_c
def test_the_scanner_on_all_short_strings_on_random_ones_and_around_the_end_of_a_window():
    alphabet, rng = "a1's l\t\n\u00a0\u3000\u0301字😀<", random.Random(4)
    for length in range(1, 5):
        assert_scanned_as_regex_does(list(map("".join, itertools.product(alphabet, repeat=length))))
    parts, texts = [*TRICKY, "'ve", "'re", "'t", "e", " "], []
    assert_scanned_as_regex_does([random_text(rng, parts, rng.randint(0, 40)) for _ in range(10_000)])
    for length, piece in itertools.product(range(40, 300), ["a", "1", " ", "\n", "\u3000", "字", ".", "é", "😀"]):
        run, tail = piece * length, random_text(rng, TRICKY, 6)
        texts += [run + tail, tail + run, " " + run, run[1:] + "'ll" + tail]
    assert_scanned_as_regex_does(texts)


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
@pytest.mark.parametrize("words", [
    {b"ab": 2**62, b"xab": 2**62}, {b"aaa": 2**62}, {b"ab": 2**63}, {b"ab": 2**63 - 1, b"abc": 1},
])  # fmt: skip
def test_an_overflow_is_reported_and_not_wrapped(words):
    with pytest.raises(OverflowError):
        bpe.train_from_counts(words, 300)


# --- the C engine: building and loading it ---------------------------------------------------------------------------


@only_python
def test_a_copy_without_the_library_says_so_and_works(tmp_path):
    shutil.copy(ROOT / "bpe.py", tmp_path)
    command = [sys.executable, tmp_path / "bpe.py", CORPUS, "300", "--model", tmp_path]
    result = subprocess.run([*command, "--engine", "c"], capture_output=True)
    assert result.returncode == 2
    assert "engine 'c' is not available: the files that build the C engine are not next to" in one_line(result.stderr)
    result = subprocess.run(command, capture_output=True)
    assert result.returncode == 0 and b"Python (the files that build the C engine are not next to" in result.stderr


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
    edit(Path("build_ffi.py"), lambda data: data.replace(b"\nVERSION = ", b"\nVERSION = 1"))
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
        Path(name).write_text("raise SystemError('stray')")
        assert summary(program(*TRAIN))["engine"].startswith("Python")


@only_c
def test_a_source_that_changed_since_the_build_is_noticed(program):
    assert "changed" not in program(*TRAIN)
    edit(Path("bpe_fast.c"), lambda data: data + b"/* */")
    assert "warning: bpe_fast.c has changed" in program(*TRAIN)
    assert "changed" not in program(*TRAIN, "--engine", "python")


@only_c
def test_a_build_without_a_compiler_fails_with_one_line():
    environment = {**os.environ, "CC": "no-such-compiler"}
    result = subprocess.run([sys.executable, ROOT / "build_ffi.py"], env=environment, capture_output=True, timeout=60)
    assert result.returncode != 0 and regex.search("a C compiler.*works without it", one_line(result.stderr))


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
    lib, tokenizer = C.lib, bpe.Tokenizer(with_merges([]), [])
    assert tokenizer.encoder  # without a cache yet

    class Failing:
        def __getattr__(self, name):
            fails = name in ("bpe_words_new", "bpe_cache_new")
            return (lambda *arguments: lib.BPE_NO_MEMORY) if fails else getattr(lib, name)

    with monkeypatch.context() as without_memory:
        without_memory.setattr(C, "lib", Failing())
        with pytest.raises(MemoryError):
            bpe.count_words(None, [], texts=["ab"])
        with pytest.raises(MemoryError):
            tokenizer.encode("ab")
    assert bpe.count_words(None, [], texts=["ab"]) == {b"ab": 1} and tokenizer.encode("ab") == [97, 98]


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
def test_a_vocabulary_that_c_cannot_hold_is_encoded_in_python(monkeypatch):
    monkeypatch.setattr(bpe, "MAX_ID", 2**40)  # else no vocabulary is too large except one of 2**21 tokens
    tokenizer = bpe.Tokenizer({**with_merges([]), 2**32: b"ab"}, [(b"a", b"b")])
    assert tokenizer.encoder is None and tokenizer.encode("cab") == [99, 2**32]


# --- large real texts, if BPE_CORPORA names a folder -----------------------------------------------------------------


@functools.cache
def words_of_a_large_text(name):
    pieces = (Path(CORPORA) / name).read_bytes().decode().split(END)
    counts = Counter(itertools.chain.from_iterable(map(regex.compile(GPT2).findall, pieces)))
    return {word.encode(): count for word, count in counts.items()}


@needs_corpora
@pytest.mark.parametrize("name", ["zh.txt", "languages.txt", "code.txt", "novels.txt"])
def test_workers_and_slices_of_large_texts_change_nothing(name, cut, engine):
    all_sizes = itertools.product((100_000, 3 << 20), (1, 2, 7))
    for slice_bytes, workers in all_sizes if engine == "c" else [(1 << 20, None)]:
        cut(slice_bytes)
        assert bpe.count_words(Path(CORPORA) / name, [END], workers=workers) == words_of_a_large_text(name)


@needs_corpora
@only_c
@pytest.mark.parametrize("name, size", [
    ("zh.txt", 500), ("code.txt", 32_000), ("languages.txt", 1000), ("novels.txt", 10_000),
])  # fmt: skip
def test_the_learners_agree_on_large_texts(name, size):
    words = words_of_a_large_text(name)
    in_python = bpe.train_from_counts(words, size, [END], engine="python")
    assert bpe.train_from_counts(words, size, [END], engine="c") == in_python


@needs_corpora
@pytest.mark.parametrize("name, size", [("tinystories_2M.txt", 3000), ("zh.txt", 1000), ("code.txt", 2000)])
def test_like_huggingface_on_large_texts(name, size, engine):
    text = (Path(CORPORA) / name).read_bytes().decode()
    pieces = (text if engine == "c" else text[:3_000_000]).split(END)
    assert_like_huggingface(bpe.train_bpe(None, size, [END], texts=pieces, like="huggingface"), pieces, size, [END])


@needs_corpora
def test_tinystories_trains_to_10000_in_under_three_seconds():
    start = time.perf_counter()
    vocab, _ = bpe.train_bpe(Path(CORPORA) / "tinystories_2M.txt", 10_000, [END])
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
    for path in (FIXTURES, ROOT / "bpe.py", ROOT / "build_ffi.py", ROOT / "bpe_fast.c", *ROOT.glob("_bpe_fast*.*")):
        (folder / path.name).symlink_to(path)
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
    has = lambda package: os.environ.get("BPE_REQUIRE_PACKAGES") or importlib.util.find_spec(package)  # noqa: E731
    found = [block for package, *block in readme_blocks(name) if not package or has(package)]
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


def train_with_smaller_pairs(words, n_merges):
    """train_by_definition, but the smaller pair wins a tie."""
    merges = []
    while len(merges) < n_merges and (counts := bpe.count_pairs(words)):
        merges.append(min(counts, key=lambda pair: (-counts[pair], pair)))
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
    counts = Counter()
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
    other = train_with_smaller_pairs(words, 200)
    first = next(number for number in range(200) if merges[number] != other[number])
    assert (merges[first], other[first]) == ((b"e", b"n"), (b" a", b"nd"))
    figures[1] = (first + 1, len(set(merges) & set(other)))
    tokens = [left + right for left, right in bpe.train_from_counts({text.encode(): 1}, 256 + 200)[1]]
    assert tokens[0] == b"e "
    figures[2] = (sum(b" " in token[1:] for token in tokens),)
    vocab = {bytes([byte]) for byte in range(256)} | {left + right for left, right in merges}
    ours = {word: bpe.encode_by_definition(word, merges) for word in words}
    theirs = {word: longest_first(word, vocab) for word in words}
    figures[3] = tuple(sum(len(tokens[word]) * count for word, count in words.items()) for tokens in (theirs, ours))
    figures[3] += (sum(ours[word] != theirs[word] for word in words), len(words))
    runs = bpe.words_of("aaa.aaa.ab.ab.ab")
    for counts, best in ((bpe.count_pairs(runs), (b"a", b"a")), (count_without_overlap(runs), (b"a", b"b"))):
        assert max(counts, key=counts.get) == best and counts[best] == (4 if best == (b"a", b"a") else 3)
    figures[5] = (len(set(whole)),)
    half = bpe.train_bpe(None, 256 + 200, texts=[text[:10_000]])[1]
    first = next(number for number in range(200) if merges[number] != half[number])
    figures[6] = (len(set(merges) & set(half)), first + 1)
    for name in ("README.md", "README.zh.md"):
        rows = dict(regex.findall(r"^\| (\d) (\|.*)$", (HERE / name).read_text(encoding="utf-8"), regex.MULTILINE))
        for number, values in figures.items():
            for value in values:
                assert regex.search(rf"(?<!\d){value:,}(?!\d)", rows[str(number)]), (name, number, values)


if __name__ == "__main__":
    write_expected()
