"""The promises of bpe.py, one test for each. Run `pytest test_bpe.py`.

Expected values come from a hand calculation, a published example, another program, or from the oracle below.
`python test_bpe.py` writes the expected results in fixtures/ again, with the oracle.
"""

import array
import ast
import atexit
import base64
import concurrent.futures
import contextlib
import copy
import dataclasses
import errno
import functools
import gc
import importlib
import importlib.machinery
import importlib.util
import inspect
import io
import itertools
import json
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
MANY = int(os.environ.get("BPE_TEXTS", 100))  # texts for each kind of model of other programs; CI takes 2000
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


def naive_split(text, pattern=GPT2):
    """The matches of a pattern, and the text between them."""
    words, end = [], 0
    for match in regex.finditer(pattern, text):
        words += [text[end : match.start()], match[0]]
        end = match.end()
    return [word for word in [*words, text[end:]] if word]


def naive_words(text, special_tokens=(), pattern=GPT2):
    """{word as a tuple of one-byte tokens: count}."""
    longest_first = sorted(special_tokens, key=len, reverse=True)
    pieces = regex.split("|".join(regex.escape(token) for token in longest_first), text) if special_tokens else [text]
    return Counter(letters(word) for piece in pieces for word in naive_split(piece, pattern))


def naive_merge(word, pair):
    """Take out the right token of each pair, from left to right, and lengthen the left one."""
    if pair[0] not in word:  # true for most words; makes the oracle three times faster
        return word
    tokens = list(word)
    index = 1
    while index < len(tokens):
        if (tokens[index - 1], tokens[index]) == pair:
            tokens[index - 1] += tokens.pop(index)
        index += 1
    return tuple(tokens)


def naive_counts(words):
    """How often each pair of neighbors occurs."""
    return Counter(number_counts(words.items()))


def number_counts(rows):
    """The same for rows of (sequence, how often it occurs)."""
    counts = {}
    for row, times in rows:
        for index in range(1, len(row)):
            pair = row[index - 1], row[index]
            counts[pair] = counts.get(pair, 0) + times
    return counts


def naive_train(words, vocab_size, special_tokens=()):
    """Train on lists of integers, which are changed in place: a token is its index in `tokens`.

    In every round, all pairs are counted again. Of those with the greatest count, the bytes decide.
    """
    vocab = [bytes([byte]) for byte in range(256)] + [token.encode() for token in special_tokens]
    tokens = sorted({token for word in words for token in word})
    rows = [([tokens.index(token) for token in word], times) for word, times in words.items()]
    merges = []
    while len(vocab) < vocab_size:
        counts = number_counts(rows)
        most = max(counts.values(), default=0)
        if not most:
            break
        tied = sorted((tokens[left], tokens[right], left, right) for (left, right), n in counts.items() if n == most)
        left_token, right_token, left, right = tied[-1]
        for row, _ in rows:
            if left in row:
                index = 0
                while index < len(row) - 1:
                    if row[index] == left and row[index + 1] == right:
                        row[index : index + 2] = [len(tokens)]
                    index += 1
        tokens.append(left_token + right_token)
        vocab.append(left_token + right_token)
        merges.append((left_token, right_token))
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
                encoded += itertools.chain.from_iterable(map(encode_word, naive_split(piece, pattern)))
        return encoded

    return encode


def naive_by_rank(word, merges):
    """Merge the leftmost of the pairs of lowest rank, one at a time, until no pair has a rank."""
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    tokens = list(word)
    while found := [(ranks[pair], at) for at, pair in enumerate(zip(tokens, tokens[1:])) if pair in ranks]:
        _, at = min(found)
        tokens[at : at + 2] = [tokens[at] + tokens[at + 1]]
    return tokens


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
needs_corpora = pytest.mark.skipif(not CORPORA, reason="BPE_CORPORA names no folder with large texts")


def need(name):
    """Import a package; if it is missing, the test is skipped, and in CI it fails."""
    if os.environ.get("BPE_REQUIRE_PACKAGES"):
        return importlib.import_module(name)
    return pytest.importorskip(name, reason=f"compares with {name}, which is not installed")


def summary(output):
    """{"read": "95 bytes", ...}, for lines of the time since the beginning, a name in 14 columns, and a text."""
    return {name.strip(): text for name, text in regex.findall(r"(?m)^ *[\d.]+ s  (.{14}) (.*)$", output)}


TEXTBOOK = "low low low low low\nlower lower widest widest widest\nnewest newest newest newest newest newest\n"

BLOCKS = [
    (0, 0x250), (0x300, 0x520), (0x600, 0x6FF), (0x900, 0x97F), (0x2000, 0x206F), (0x3000, 0x30FF), (0x4E00, 0x4E80),
    (0xAC00, 0xAC40), (0x1F300, 0x1F680), (0xE0020, 0xE0040),
]  # fmt: skip
WIDE = "".join(chr(c) for low, high in BLOCKS for c in range(low, high))

TRICKY = [
    "a", "b", "Z", "s", "l", "'", " ", " ", "\t", "\n", "\r\n", "\r", "1", "9", ".", "!", "/", "\u00a0", "\u3000",
    "\u0301", "字", "é", "😀", "\u200d", "'ll", "<", "<|", "|>", "\x1c", "\x85", "\u2028", "\ufffd",
]  # fmt: skip

SPECIAL_SETS = [
    [], ["\r\n"], ["<x>\r"], [END], ["a a"], ["<a>", "<a><b>"], [" \n", "\n\n"], ["aa", "a\n", "\r\n\r\n"], ["\n<x>"],
    ["字字", "1 1", " 's"], ["é é"], ["<a>", "x<a>y"], ["[x]", "(.*)", "a|b", "\\d+", "$$", "字", "😀"],
    ["x" * n for n in range(2, 30)],
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

CUSTOM = r"\w+|\s"  # leaves punctuation out, which becomes words between its matches
NOT_IN_C = r"(\w+)|\s"  # the same with a group

# `regex` follows Unicode faster than the packages it is compared with, so random text for them consists of characters
# in this Python's older Unicode.
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
def trained(size, pattern="gpt2"):
    """(vocab, merges) of the fixture, or of a larger corpus; with GPT-2's pattern in place of a custom one."""
    path = Path(CORPORA) / "languages.txt" if CORPORA and size > 5000 else CORPUS
    return bpe.train_bpe(path, size, [END], pattern=pattern if pattern in bpe.PATTERNS else "gpt2")


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


def train_and_save(folder, *arguments, **options):
    """Train a tokenizer, save it in a folder, and return (vocab, merges)."""
    tokenizer = bpe.Tokenizer.train(*arguments, **options)
    tokenizer.save(folder)
    return tokenizer.vocab, tokenizer.merges


def files_of(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}


def edit(path, change):
    path.write_bytes(change(path.read_bytes()))


def read_ids(path):
    """Read (kind, ids) from a .npy file, with kind "u2" or "u4", without bpe.py or NumPy."""
    data = Path(path).read_bytes()
    assert data[:10] == b"\x93NUMPY\x01\0v\0" and data[127:128] == b"\n"
    header, data = ast.literal_eval(data[10:128].decode()), data[128:]
    kind = header["descr"].lstrip("<>")
    order, shape = "<" if sys.byteorder == "little" else ">", (len(data) // int(kind[1]),)
    assert header == {"descr": order + kind, "fortran_order": False, "shape": shape}
    return kind, array.array({"u2": "H", "u4": "I"}[kind], data).tolist()


@pytest.fixture
def cut(monkeypatch):
    """cut(slice_bytes, window_bytes): read in slices of this size, each cut in its last window."""

    def call(slice_bytes, window_bytes=None):
        monkeypatch.setattr(bpe, "SLICE_BYTES", slice_bytes)
        monkeypatch.setattr(bpe, "SLICE_BYTES_IN_C", slice_bytes)
        monkeypatch.setattr(bpe, "WINDOW_BYTES", window_bytes or min(max(slice_bytes, 50), 64 << 10))

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


def call_in_script(tmp_path, script, **options):
    path = tmp_path / "script.py"
    path.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n" + textwrap.dedent(script))
    return subprocess.run([sys.executable, str(path)], capture_output=True, timeout=60, **options)


def limit(name, n_bytes):
    """Limit what a child process may use: the size of files ("FSIZE"), as a full disk would, or memory ("AS")."""
    import resource

    number = getattr(resource, f"RLIMIT_{name}")
    return lambda: resource.setrlimit(number, (n_bytes, n_bytes))


# --- what the project was asked for ----------------------------------------------------------------------------------


def test_the_small_fixture_is_trained_in_less_than_one_and_a_half_seconds(engine):
    """Recounting all pairs in every round, as the definition does, takes four times as long as allowed."""
    times = []
    for _ in range(3):
        start = time.process_time()
        vocab, _ = bpe.train_bpe(CORPUS, 500, [END], engine=engine)
        times.append(time.process_time() - start)
    assert len(vocab) == 500
    seconds = min(times)
    assert seconds < 1.5


@only_python
def test_the_command_python_bpe_py_corpus_txt_10000_writes_vocab_json_and_merges_txt(tmp_path):
    for name in ("bpe.py", "build_ffi.py"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copy(CORPUS, tmp_path / "corpus.txt")
    result = subprocess.run("python bpe.py corpus.txt 10000".replace("python", shlex.quote(sys.executable), 1),
                            shell=True, capture_output=True, timeout=60, cwd=tmp_path)  # fmt: skip
    assert result.returncode == 0, result.stderr
    vocab = json.loads((tmp_path / "bpeModel/vocab.json").read_bytes())
    merges = (tmp_path / "bpeModel/merges.txt").read_text(encoding="utf-8").splitlines()
    expected = (FIXTURES / "vocab500/merges.txt").read_text(encoding="utf-8").splitlines()
    assert merges[: len(expected)] == expected and len(vocab) == 257 + len(merges) - 1 <= 10_000


@only_python
def test_the_command_pytest_test_bpe_py_runs_the_tests():
    one = [sys.executable, "-m", "pytest", "-q", "test_bpe.py", "-k", "textbook", "-p", "no:cacheprovider"]
    result = subprocess.run(one, capture_output=True, timeout=60, cwd=HERE)
    assert result.returncode == 0 and b" passed" in result.stdout, result.stdout


@only_python
def test_bpe_py_alone_in_a_package_needs_only_regex(tmp_path):
    (tmp_path / "some_package").mkdir()
    (tmp_path / "some_package/__init__.py").touch()
    shutil.copy(ROOT / "bpe.py", tmp_path / "some_package")
    (tmp_path / "corpus.txt").write_text(TEXTBOOK)
    result = call_in_script(tmp_path, """
        import sys
        sys.path[0] = ""  # not the folder of bpe.py and its engine
        class OnlyRegex:
            def find_spec(self, name, path=None, target=None):
                top = name.split(".")[0]
                # Python's own copy.py asks for org, which is Jython's
                assert top in sys.stdlib_module_names or top in ("regex", "some_package", "org"), name
        sys.meta_path.insert(0, OnlyRegex())
        from some_package.bpe import Tokenizer, train_bpe
        vocab, merges = train_bpe("corpus.txt", 263, ["<|endoftext|>"])
        print(merges, Tokenizer(vocab, merges, ["<|endoftext|>"]).encode("lowest<|endoftext|>"))
    """, cwd=tmp_path)  # fmt: skip
    # the merges by hand: s t, e st, o w, l ow, w est, n e (the greatest of the pairs that occur 6 times)
    expected = "[(b's', b't'), (b'e', b'st'), (b'o', b'w'), (b'l', b'ow'), (b'w', b'est'), (b'n', b'e')] [260, 258, 256]"
    assert result.stdout.decode().strip() == expected, result.stderr


@only_python
def test_an_index_says_which_words_may_contain_a_pair(monkeypatch):
    """A merge looks at no other word: here the second one is not named, so it stays."""
    words, words_with = ["abc", "abc"], {"ab": {0}, "Xc": set()}
    assert bpe.merge_in_words(words, [2, 3], words_with, "ab", "X") == ({"bc": -2, "Xc": 2, "ab": -2}, 2)
    assert words == ["Xc", "abc"] and words_with == {"ab": {0}, "Xc": {0}}

    looked_at = []

    def merge(words, counts, words_with, pair, new, merge_in_words=bpe.merge_in_words):
        holders = {index for index, word in enumerate(words) if pair in word}
        assert holders <= words_with[pair]
        looked_at.append(len(words_with[pair]) / len(words))
        return merge_in_words(words, counts, words_with, pair, new)

    monkeypatch.setattr(bpe, "merge_in_words", merge)
    assert bpe.train_bpe(CORPUS, 300, [END]) == oracle(FIXTURE, 300, (END,))
    assert sum(looked_at) / len(looked_at) < 0.2  # of all words, at each merge


@only_c
def test_the_loop_in_c_makes_the_merges_of_the_loop_in_python():
    words = words_of_the_fixture()
    in_c = list(C.learn(words, 1000, 1))
    in_python = itertools.islice(bpe.learn_in_python(bpe.WordTable(words), 1000, 1), 1000)
    assert in_c == list(in_python) and len(in_c) == 1000


# --- I. The lesson ---------------------------------------------------------------------------------------------------


@functools.cache
def lesson():
    """The functions of Part I, compiled from its source alone."""
    part = (ROOT / "bpe.py").read_text(encoding="utf-8").split("# I. The lesson", 1)[1].split("# II. ", 1)[0]
    names = {}
    exec("from __future__ import annotations\nimport collections, regex\n" + part.split("\n", 1)[1], names)
    return types.SimpleNamespace(**names)


@only_python
def test_part_one_cuts_a_text_into_words_and_counts_every_position():
    expected = {"It": 1, "'s": 1, " ": 1, " new": 1, "\n": 2, "x": 1, "1": 1, "!": 1}  # by hand, with GPT-2's pattern
    assert lesson().words_of("It's  new\n\nx1!") == {letters(word): count for word, count in expected.items()}
    assert lesson().words_of("") == {} and lesson().words_of(FIXTURE) == naive_words(FIXTURE)
    words = {letters("aaaa"): 1, letters("ab"): 5, letters("x"): 7, (b"ab", b"a", b"b"): 2}
    assert lesson().count_pairs(words) == {(b"a", b"a"): 3, (b"a", b"b"): 7, (b"ab", b"a"): 2}


def test_the_textbook_example(train):
    """Worked by hand; the first six merges are in a published course handout."""
    merges = pairs("s t, e st, o w, l ow, w est, n e, ne west, w i, wi d, wid est, low e, lowe r")
    assert train(TEXTBOOK, 268, pattern=r"\S+|\s")[1] == merges
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


@pytest.mark.parametrize("seed", range(36))
def test_random_texts_of_ties_runs_long_words_and_all_scripts(train, seed):
    rng = random.Random(seed)
    text = [
        random_text(rng, "ab cd"[: rng.randint(2, 5)] + " ", rng.randint(0, 300)),
        random_text(rng, rng.choices(WIDE, k=rng.randint(2, 60)) + TRICKY + [END], rng.randint(1, 600)),
        random_text(rng, rng.choice(["ab", "abcdefg"]), 1500 if seed % 2 else 100),
    ][seed % 3]
    assert train(text, 400, [END]) == oracle(text, 400, (END,))
    if END not in text:
        assert oracle(text, 400)[1] == lesson().train_by_definition(lesson().words_of(text), 400 - 256)


@pytest.mark.parametrize("seed", range(24))
def test_learners_agree_with_the_oracle_on_words_of_all_kinds(seed):
    rng, words = random.Random(seed), {}
    alphabet = rng.choices(range(256), k=rng.randint(1, 5))
    for _ in range(rng.randint(1, 60)):
        word = bytes(rng.choices(alphabet, k=rng.randint(1, rng.choice([3, 12, 60]))))
        words[word] = rng.randint(1, rng.choice([2, 5, 5000]))
    expected = naive_train({letters(word): count for word, count in words.items()}, 400)
    assert bpe.train_from_counts(words, 400) == expected


def test_one_long_word(train, engine):
    """A merge costs as much as it changes, however long a word is (2 MB in C, 100 KB in Python)."""
    rng = random.Random(8)
    text = "".join(rng.choices("abcdefghijkl", k=2_000_000 if engine == "c" else 100_000))
    start = time.process_time()
    merges = train(text, 1000)[1]
    assert len(merges) == 744 and time.process_time() - start < 5


@pytest.mark.parametrize("size", EXPECTED_SIZES)
def test_the_fixture_as_stored(size, tmp_path):
    vocab, merges = train_and_save(tmp_path, CORPUS, size, [END])
    folder = FIXTURES / f"vocab{size}"
    assert json.loads((tmp_path / "vocab.json").read_bytes()) == json.loads((folder / "vocab.json").read_bytes())
    assert (tmp_path / "merges.txt").read_bytes() == (folder / "merges.txt").read_bytes()
    tokenizer = bpe.Tokenizer.from_files(folder / "vocab.json", folder / "merges.txt", [END])
    assert (tokenizer.vocab, tokenizer.merges) == (vocab, merges)


def test_any_list_is_merged_by_rank_and_those_that_check_merges_accepts_are_replayed():
    """Refused there are only lists in which a merge makes a token that an earlier merge took."""
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
        rules = [(left, right, left + right) for left, right in merges]
        if possible:
            bpe.check_merges(rules)
        else:
            pytest.raises(ValueError, bpe.check_merges, rules)
        tokenizer = bpe.Tokenizer(vocab, merges)
        for word in rng.sample(words, 20):
            tokens = tuple(map(vocab.get, tokenizer.encode(b"".join(word).decode())))
            assert tokens == tuple(naive_by_rank(word, merges)), (word, merges)
            assert not possible or tokens == lesson().encode_by_definition(word, merges), (word, merges)
    assert min(seen.values()) > 30


@pytest.mark.parametrize("piece, times", [("a", 50_000), ("ab", 25_000), ("x", 50_000), (" ", 50_000)])
def test_long_words_do_not_take_quadratic_time(piece, times):
    text = "the quick " * 2_000 + piece * times
    tokenizer = bpe.Tokenizer(*trained(2000), [END])
    start = time.process_time()
    ids = tokenizer.encode(text)
    assert list(tokenizer.encode_iterable(text)) == ids
    assert time.process_time() - start < 2 and tokenizer.decode(ids) == text


# --- III. Words ------------------------------------------------------------------------------------------------------


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
    # the words of a custom pattern are whole matches, not groups, and the text between them
    ("abab ab.", [], r"(a)(b)", ["ab", "ab", " ", "ab", "."]),
    ("hello hello", [], r"\d+", ["hello hello"]), ("low-low, low", [], r"\w+", ["low", "-", "low", ", ", "low"]),
    ("1, 2<a>, 3", ["<a>"], r"\d", ["1", ", ", "2", ", ", "3"]),
    ("aab", [], r"a*", ["aa", "b"]), ("bab", [], r"a*", ["b", "a", "b"]), ("bb", [], r"a*", ["b", "b"]),  # empty ones
    ("aBcDe", [], r"(?=[A-Z])", ["a", "Bc", "De"]), ("ab cd", [], r"\b", ["ab", " ", "cd"]),  # cut as well
    ("ab cd", [], r"(?:.\K)?b|.", ["a", "b", " ", "c", "d"]),
])  # fmt: skip
def test_the_words_of_a_text(text, special_tokens, pattern, words):
    assert words_in(text, special_tokens, pattern) == Counter(words)


@only_python
def test_a_pattern_whose_matches_are_not_in_order_is_refused():
    """(?r) searches backward: in "abbb ab" it finds the last b first."""
    with pytest.raises(ValueError, match="not in the order of the text"):
        bpe.find_words("abbb ab", "(?r)b+")
    for call in (lambda: bpe.count_words(texts=["abbb ab"], pattern="(?r)b+"), lambda: bpe.Tokenizer({}, [], None, "(?r)b+")):
        with pytest.raises(ValueError, match="searches backward"):
            call()


@pytest.mark.parametrize("pattern", [
    r"\d+", r"[a-z]+", r" ?[^\s\d]+", r"\n", r"(a)(b)", "a*", "1*|b", r"(?=[A-Z])", r"(?<=\s)", r"\b", r"\s*", "x?",
])  # fmt: skip
def test_a_custom_pattern_gives_the_words_of_a_split_with_isolated(pattern):
    tokenizers, rng = need("tokenizers"), random.Random(pattern)
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    for length in range(120):
        text = random_text(rng, "aab1x AB \n.é字", length % 40)
        expected = [text[start:end] for _, (start, end) in split.pre_tokenize_str(text)]
        assert words_in(text, pattern=pattern) == Counter(expected), text


def test_special_tokens_are_a_list_and_not_a_set_or_a_dict(part):
    """The order of a set differs from run to run, and so would the ids."""
    expected = bpe.train_bpe(part, 300, ["<a>", END])
    for specials in (("<a>", END), (token for token in ("<a>", END))):
        assert bpe.train_bpe(part, 300, specials) == expected
    for wrong in ({"<a>", END}, frozenset(["<a>"]), {"<a>": 0}, "<a>", b"<a>"):
        for call in (functools.partial(bpe.train_bpe, part, 300), functools.partial(bpe.Tokenizer, *trained(300))):
            with pytest.raises((TypeError, ValueError), match="special_tokens must be a list of strings"):
                call(wrong)


@only_python
@pytest.mark.parametrize("special, options, text", [
    ("x\ufffd", {}, "special token 2 "), ("\ufffd", {"errors": "replace"}, "special token 2 "),
])  # fmt: skip
def test_special_tokens_that_reading_could_change_are_refused(words_txt, special, options, text):
    """Bytes that are not UTF-8 become U+FFFD with errors="replace"."""
    with pytest.raises(ValueError, match=text):
        bpe.count_words("words.txt", ["<b>", special], **options)
    with pytest.raises(ValueError, match=text):
        bpe.train_bpe("words.txt", 300, ["<b>", special], **options)


@contextlib.contextmanager
def pipe_of(data):
    """The path of a pipe with data, which must fit into it."""
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb") as pipe:
        pipe.write(data)
    with os.fdopen(read_end, "rb"):
        yield f"/dev/fd/{read_end}"


@pytest.mark.parametrize("pattern", [*bpe.PATTERNS, CUSTOM, r"(a)(b)|\s+x", r"\S+|\s+", "\ufffd|a+|.", r"[^\n]*\n|[^\n]+"])
@pytest.mark.parametrize("errors", ["strict", "replace"])
def test_cuts_change_nothing(tmp_path, cut, pattern, errors):
    rng, path = random.Random(repr((pattern, errors))), tmp_path / "text.txt"
    options = {"pattern": pattern, "errors": errors, "workers": 1}
    bad = [*BAD_UTF8, b"\x97", b"\xf0\x9f"] if errors == "replace" else []
    for specials in 2 * SPECIAL_SETS:
        parts = [part.encode() for part in [*TRICKY, *specials[:9], *specials[:9], "a ", "ab\n", "\r\n"]] + bad
        data = b"".join(rng.choices(parts, k=rng.randint(0, 200)))
        if specials and rng.random() < 0.2:  # a window may begin inside one, or inside a character
            data = rng.randint(0, 12) * b"x" + specials[0][:2].encode() * rng.randint(0, 200)
        path.write_bytes(data)
        text = data.decode(errors=errors)
        words = naive_words(text, specials, bpe.PATTERNS.get(pattern, pattern))
        expected = {b"".join(word): count for word, count in words.items()}
        sizes = rng.sample([(1, 20), (7, 30), (50, 40), (100, 90), (1 << 20, 64)], 2)  # of slices and windows
        with pipe_of(data) as pipe:
            for source, (slice_bytes, window_bytes) in zip((path, pipe), sizes):
                cut(slice_bytes, window_bytes)
                assert bpe.count_words(source, specials, **options) == expected, (data, specials)


@pytest.mark.parametrize("text, pattern, specials, n_slices", [
    ("one two three four " * 10, "gpt2", [], 8), ("one two three four " * 10, "cl100k", [], 8),
    ("one two three four " * 10, r"\w+", ["three"], 4), ("one two three four " * 10, r"\w+", [], 1),
    ("a a" * 99, CUSTOM, ["a a"], 4),  # it overlaps itself: only between two of them, counted from the left
])  # fmt: skip
def test_the_tests_of_cutting_do_cut(tmp_path, monkeypatch, cut, text, pattern, specials, n_slices):
    cut(1, 20)
    (tmp_path / "text.txt").write_text(text)
    slices, kind = [], bpe.Slice
    monkeypatch.setattr(bpe, "Slice", lambda *fields: slices.append(fields) or kind(*fields))
    bpe.count_words(tmp_path / "text.txt", specials, pattern=pattern, workers=1)
    assert len(slices) >= n_slices


@only_python
def test_a_cut_is_the_last_place_and_slices_have_the_size_that_was_asked_for(tmp_path, cut):
    assert bpe.last_cut(b"one two three four", "gpt2", ()) == len("one two three")
    assert bpe.last_cut(b"xxxxxx<a>yyyy<a>zzzzzz", r"\w+", ("<a>",)) == len("xxxxxx<a>yyyy")
    cut(100, 40)
    (tmp_path / "text.txt").write_text("one two three four " * 100)
    slices = list(bpe.slices_of_file(str(tmp_path / "text.txt"), 100, bpe.Options()))
    sizes = [piece.end_byte - piece.start_byte for piece in slices]
    assert sum(sizes) == 1900 and max(sizes) <= 180 and min(sizes[:-1]) >= 100


@pytest.mark.parametrize("length", [1000, 10_000])
def test_a_long_special_token_that_almost_matches_everywhere_costs_little(length):
    """Version 0.4.0 tried every length from the longest down: 99 s for the longer one."""
    tokenizer = bpe.Tokenizer(with_merges([]), [], ["<|" + "y" * length, "<|", "<|y"])
    start = time.process_time()
    assert tokenizer.decode(tokenizer.encode("<|" * 10_000 + "<|yy")) == "<|" * 10_000 + "<|yy"
    assert tokenizer.encode("<|<|y<|" + "y" * length) == [257, 258, 256]
    assert time.process_time() - start < 2


@pytest.mark.parametrize("special_tokens, piece", [
    (["a a"], "a "), (["a a", *(f"a a{n}" for n in range(100))], "a "), (["aa ", "a a"], "a "),
], ids=["one", "many", "two"])  # fmt: skip
def test_special_tokens_that_overlap_take_linear_time(tmp_path, cut, special_tokens, piece):
    path, text = tmp_path / "text.txt", piece * 10_000
    path.write_text(text)
    tokenizer = bpe.Tokenizer(with_merges([]), [], special_tokens)
    cut(8000)
    start = time.process_time()
    counts = bpe.count_words(path, special_tokens, workers=1)
    ids, small = tokenizer.encode(text), [text[at : at + 1000] for at in range(0, 20_000, 1000)]
    assert list(tokenizer.encode_iterable([text])) == list(tokenizer.encode_iterable(small)) == ids
    assert time.process_time() - start < 1
    assert counts == {b"".join(word): count for word, count in naive_words(text, special_tokens).items()}


# --- IV. Training ----------------------------------------------------------------------------------------------------


def test_ids_are_bytes_then_special_tokens_then_merges(train):
    vocab, merges = train("aa aa bb", 260, ["<one>", "<two>"])
    assert merges == pairs("a a, b b")
    tokens = [bytes([byte]) for byte in range(256)] + [b"<one>", b"<two>", b"aa", b"bb"]
    assert list(vocab.items()) == list(enumerate(tokens))


def test_the_smallest_vocabulary_has_no_merges(main):
    expected = dict(enumerate([bytes([byte]) for byte in range(256)] + [b"<one>", b"<two>"])), []
    assert bpe.train_bpe(None, 258, ["<one>", "<two>"], texts=["aa aa"]) == expected
    assert bpe.train_from_counts({b"aa": 2}, 258, ["<one>", "<two>"]) == expected
    assert main("words.txt", 257, "--model", "model")[0] == 0 and model_in("model")[1] == []


@pytest.mark.parametrize("data, options", [
    ("", {}), (b"a", {}), (b"\n", {}), (b"\0", {}), (b" ", {}), ("a\nb\nc", {"pattern": r"\w"}), (f"{END}{END}", {}),
])  # fmt: skip
def test_nothing_to_merge_is_a_result(train, data, options):
    assert train(data, 500, [END], **options) == ({**{i: bytes([i]) for i in range(256)}, 256: END.encode()}, [])


def test_min_frequency(train):
    """With the limit, in every round the oracle chooses the merge that was made; in the end it finds none."""
    text = FIXTURE[:6000]
    merges = train(text, 10_000, min_frequency=9)[1]
    assert len(merges) > 20
    words = naive_words(text)
    for merge in [*merges, None]:
        counts = {pair: n for pair, n in naive_counts(words).items() if n >= 9}
        assert merge == max(counts, key=lambda pair: (counts[pair], pair), default=None)
        if merge:
            words = {naive_merge(word, merge): count for word, count in words.items()}


@pytest.mark.parametrize("least, merges", [(4, [(b"a", b"a")]), (5, [])])
def test_min_frequency_is_compared_with_the_count_and_not_with_what_was_replaced(least, merges):
    """Two words aaa: the pair a a counts 4, at overlapping places, but two are replaced."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert bpe.train_from_counts({b"aaa": 2}, 300, min_frequency=least)[1] == merges


def test_no_text_is_an_error_and_an_empty_one_is_not():
    used_up = (text for text in ["low"])
    bpe.train_bpe(None, 257, texts=used_up)
    for train in (bpe.train_bpe, bpe.Tokenizer.train):
        with pytest.raises(ValueError, match="no text: texts= is empty"):
            train(None, 257, texts=used_up)
    for words in ({}, [], iter(())):
        with pytest.raises(ValueError, match="no words to learn from"):
            bpe.train_from_counts(words, 257)
    for words in (None, 5):
        with pytest.raises(TypeError, match=rf"a mapping of words to counts, or pairs \(word, count\), not {words}$"):
            bpe.train_from_counts(words, 257)
    for call in (lambda: bpe.train_bpe([], 300), lambda: bpe.count_words([]),
                 lambda: bpe.Tokenizer({}, []).encode_files([], "ids.npy")):  # fmt: skip
        with pytest.raises(ValueError, match="no file: the list of paths is empty"):
            call()
    assert bpe.train_bpe(None, 256, texts=[""])[1] == [] and bpe.Tokenizer({}, []).encode_batch([]) == []


def test_fewer_tokens_than_requested_are_a_warning(words_txt, recwarn):
    calls = [
        lambda size: bpe.train_bpe("words.txt", size), lambda size: bpe.Tokenizer.train("words.txt", size),
        lambda size: bpe.train_from_counts(bpe.count_words("words.txt"), size),
    ]  # fmt: skip
    for call in calls:
        call(272)  # 256 bytes and 16 merges, see test_the_summary_says_what_the_vocabulary_is_made_of
        assert not recwarn.list
        call(273)
        assert "272 tokens, not 273: no other pair has a count of 1 or more" in str(recwarn.pop(UserWarning).message)


def test_json_is_a_warning_in_python_too(words_txt):
    Path("rows.jsonl").write_text('{"text": "low"}')
    with pytest.warns(UserWarning, match="JSON is read as plain text, with its braces"):
        bpe.train_bpe(["words.txt", "rows.jsonl"], 257)


@pytest.mark.parametrize("least", [1, 2, 3, 100, 2**80])
def test_rare_words_are_left_out_of_learning(main, least):
    text, size = FIXTURE[:8000], 400
    Path("text.txt").write_bytes(text.encode())
    words = naive_words(text, [END])
    kept = {word: count for word, count in words.items() if count >= least}
    expected = naive_train(kept, size, [END])
    assert bpe.train_bpe("text.txt", size, [END], min_word_count=least) == expected
    counts = {b"".join(word): count for word, count in words.items()}
    assert bpe.train_from_counts(counts, size, [END], min_word_count=least) == expected
    status, _, stderr = main("text.txt", size, "--min-word-count", least)
    if not kept:
        assert status == 2 and "no words" in stderr
        return
    assert status == 0 and model_in("bpeModel") == expected
    share = 1 - sum(kept.values()) / sum(words.values())
    left_out = f"{len(words) - len(kept):,} words, {share:.2%} of pre-tokens"
    assert summary(stderr).get("left out") == (left_out if least > 1 else None)


@pytest.mark.parametrize("number", [2**61, 2**61 + 1, 2**63, 2**64, 2**64 + 1, 2**80])
def test_numbers_of_any_size_mean_the_same_in_both_engines(number):
    words, both = {b"ab": 2**61, b"cd": 5}, [(b"a", b"b"), (b"c", b"d")]
    assert bpe.train_from_counts(words, 300, [], min_frequency=number)[1] == both[: number <= 2**61]
    if bpe.find_engine()[0]:
        assert bpe.train_from_counts(words, number)[1] == both
    else:  # at once, not after an hour
        with pytest.raises(ValueError, match="the Python engine has only 1,114,112 non-special ids"):
            bpe.train_from_counts(words, number)
    words = {b"ab": 2**59, b"cd": 2**59 + 1, b"ef": 2**59 - 1, b"xef": 2**59}
    assert bpe.train_from_counts(words, 300)[1] == pairs("e f, c d, x ef, a b")  # e f occurs 2**60 - 1 times


@only_c
def test_a_pattern_that_c_does_not_have_is_scanned_in_python_and_learned_in_c():
    options = bpe.Options(pattern=NOT_IN_C)
    assert bpe.engine_for(options, scanning=True) is None and bpe.engine_for(options) is not None
    assert C.pattern(NOT_IN_C)[1] == "("


@only_c
@pytest.mark.parametrize("words", [
    {b"ab": 2**61, b"xabc": 2**60}, {b"aaa": 2**62}, {b"a": 2**63}, {b"a": 2**63 - 1, b"b": 1}, {b"ab": 2**70},
])  # fmt: skip
def test_an_overflow_is_reported_and_not_wrapped(words):
    with pytest.raises(OverflowError):
        bpe.train_from_counts(words, 300)


@pytest.mark.parametrize("arguments, text", [
    ({"vocab_size": 100, "special_tokens": []}, r"size 100 is too small; the minimum is 256 \(256 bytes \+ 0 spe"),
    ({"vocab_size": 256}, r"size 256 is too small; the minimum is 257 \(256 bytes \+ 1 special token\)"),
    *[({"vocab_size": wrong}, f"vocab_size must be a positive integer, not {wrong!r}")
      for wrong in (0, -5, "500", 500.0, None)],
    ({"special_tokens": ["<a>", ""]}, r"special token 2 \(''\) must be"),
    ({"special_tokens": ["<a>", "<b>", "<a>"]}, "duplicate special token among .*'<a>'"),
    *[({"special_tokens": [wrong]}, r"special token 1 \(" + regex.escape(repr(wrong)) + r"\)")
      for wrong in ("a", b"<a>", ["<a>"])],
    *[({"special_tokens": [wrong]}, "surrogates not allowed") for wrong in ("\ud800x", "\ud83d\ude00")],
    ({"pattern": "(["}, r"pattern '\(\[' is not a valid regular expression: unterminated"),
    ({"pattern": "gtp2"}, r"unknown pattern 'gtp2'; the names are gpt2, cl100k, o200k, llama3, qwen2"),
    ({"pattern": ""}, "gpt2, cl100k, o200k"), ({"pattern": None}, "pattern"), ({"pattern": ["gpt2"]}, "pattern"),
    *[({name: wrong}, f"{name} must be a positive integer, not {wrong!r}")
      for name in ("workers", "min_frequency", "min_word_count") for wrong in (0, 1.5)],
    ({"color": 1}, r"^train_bpe\(\) got an unexpected keyword argument 'color'"),
    ({"errors": "ignore"}, "errors must be .*'strict'.*'replace'.*'ignore'"),
    ({"engine": "rust"}, "engine must be .*'rust'"), ({"progress": "yes"}, "progress must be .*'yes'"),
    ({"input_path": None, "texts": ["a\ud800"]}, "position 1: surrogates not allowed"),
    ({"input_path": None, "texts": ["a", "\ud83d"]}, r"texts\[1\]: .*surrogates not allowed; errors='replace' makes"),
    *[({"input_path": None, "texts": ["a", wrong, "b"]}, f"must be a str, not {type(wrong).__name__}")
      for wrong in (b"b", None, 5)],
    ({"input_path": None, "texts": "hello"}, "texts must be an iterable of strings"),
    ({"texts": ["a"]}, "pass either the path of a file or texts=..., and not both"), ({"input_path": None}, "pass either the path"),
    *[({"vocab_size": 300, name: True}, f"{name} must be a positive integer, not True") for name in ("workers", "min_frequency")],
    ({"min_frequency": 1.0}, "min_frequency must be a positive integer, not 1.0"),
])  # fmt: skip
def test_bad_arguments_are_errors_that_show_them(arguments, text):
    with pytest.raises((ValueError, TypeError), match=text):
        bpe.train_bpe(**{"input_path": CORPUS, "vocab_size": 300, "special_tokens": [END], **arguments})


TRAINING = {"vocab_size": 300, "min_word_count": 2, "min_frequency": 3}
RUNNING = {"engine": "python", "progress": True}
READING = {"errors": "replace", "workers": 2}
SPECIALS = {"special_tokens": ("<x>",)}
PASSED_ON = {  # call -> what it works on; its options, with values that aren't the defaults
    "train_bpe": ({"input_path": "words.txt"}, {**TRAINING, **RUNNING, **READING, **SPECIALS, "pattern": "o200k"}),
    "Tokenizer.train": ({"input_path": "words.txt"}, {**TRAINING, **RUNNING, **READING, **SPECIALS, "pattern": "o200k"}),
    "count_words": ({"paths": "words.txt"}, {**RUNNING, **READING, **SPECIALS, "pattern": "o200k"}),
    "train_from_counts": ({"words": {b"ab": 9}}, {**TRAINING, **RUNNING, **SPECIALS}),
    "tokenizer.encode_files": ({"paths": "words.txt", "output": "ids.npy"}, {**RUNNING, **READING, "end": "<t>"}),
    "tokenizer.encode_batch": ({"texts": ["a"]}, READING),
    "tokenizer.encode_arrays": ({"texts": ["a"]}, READING),
    "tokenizer.encode_iterable": ({"iterable": ["a"]}, {"errors": "replace"}),
}


@only_python
@pytest.mark.filterwarnings("ignore:.*no other pair")
@pytest.mark.parametrize("name", PASSED_ON)
def test_each_option_of_each_call_arrives(words_txt, monkeypatch, name):
    """A call that forgets to pass an option on would work, with its default."""
    tokenizer = bpe.Tokenizer(*trained(300), ["<t>"], "llama3")
    call = getattr(tokenizer if "tokenizer" in name else functools.reduce(getattr, name.split(".")[:-1], bpe), name.split(".")[-1])
    works_on, options = PASSED_ON[name]
    parameters = inspect.signature(call).parameters
    assert options.keys() == parameters.keys() - works_on.keys() - {"texts"}
    for option, value in options.items():
        assert parameters[option].default != value, option
    expected = vars(bpe.Options()) | options
    if name in ("tokenizer.encode_files", "tokenizer.encode_batch", "tokenizer.encode_arrays"):
        specials = () if "end" in options else ("<t>",)  # with `end`, they are plain text
        expected |= {"special_tokens": specials, "pattern": "llama3"}

    arrived = []
    monkeypatch.setattr(bpe.Options, "__post_init__", lambda self, check=bpe.Options.__post_init__: (check(self), arrived.append(self)))
    call(**works_on, **options)
    assert vars(arrived[0]) == expected
    if name == "Tokenizer.train":
        assert (arrived[-1].pattern, arrived[-1].special_tokens) == ("o200k", ("<x>",))  # of the new tokenizer


@only_python
def test_train_bpe_describes_each_option(words_txt):
    described = set(regex.findall(r"(?m)^ *(\w+)   ", bpe.train_bpe.__doc__))
    assert described == set(inspect.signature(bpe.train_bpe).parameters)
    assert described - {"input_path", "texts"} == {field.name for field in dataclasses.fields(bpe.Options)} - {
        "end", "kept", "normalized", "rest", "words_first"}  # fmt: skip
    for call in (bpe.count_words, bpe.train_from_counts, bpe.Tokenizer.train, bpe.Tokenizer.encode_files):
        assert regex.search(r"bpe\.train_bpe\b|Its docstring", call.__doc__), call


@only_python
@pytest.mark.parametrize("name, unknown", [
    ("count_words", "vocab_size"), ("count_words", "min_word_count"), ("train_from_counts", "pattern"),
    ("train_from_counts", "errors"), ("train_from_counts", "workers"), ("train_bpe", "executor"),
    ("Tokenizer.train", "patern"), ("Tokenizer.encode_files", "pattern"), ("Tokenizer.encode_files", "min_frequency"),
    ("Tokenizer.encode_batch", "engine"),
])  # fmt: skip
def test_an_option_that_has_no_effect_on_a_call_is_an_error(name, unknown):
    with pytest.raises(TypeError, match=rf"{name.split('.')[-1]}\(\) got an unexpected keyword argument '{unknown}'"):
        functools.reduce(getattr, name.split("."), bpe)(**{unknown: 1})


@only_python
def test_a_stream_is_cut_into_pieces_that_grow():
    """The first ids come at once; later pieces are larger, since each search for a cut takes time."""
    pieces = bpe.cut_stream([b"low lower "] * 4000, bpe.Options(), 1000, 8000)
    assert [round(len(piece), -3) for piece in pieces] == [1000, 2000, 4000, 8000, 8000, 8000, 8000, 1000]


@pytest.mark.parametrize("text", ["a\ud800", "\udfff\ud83d b", "x\ude00\ud83dy"])
def test_lone_surrogates_become_the_replacement_character_if_wanted(text):
    expected = regex.sub("[\ud800-\udfff]", "\ufffd", text)
    assert bpe.count_words(texts=[text], errors="replace") == bpe.count_words(texts=[expected])
    tokenizer = bpe.Tokenizer(*trained(300))
    assert list(tokenizer.encode_iterable(iter(text), errors="replace")) == tokenizer.encode(expected)
    assert tokenizer.encode_batch([text, "b"], errors="replace") == [tokenizer.encode(expected), [98]]
    for call in (tokenizer.encode_batch, lambda texts: list(tokenizer.encode_iterable(texts))):
        with pytest.raises(ValueError, match=r"^texts\[1\]: .*surrogates not allowed; errors='replace' makes it U\+FFFD"):
            call(["a", text])
    with pytest.raises(ValueError, match="errors must be one of .*'ignore'"):
        tokenizer.encode_iterable([text], errors="ignore")  # at the call, not at the first id


def test_two_surrogates_of_a_character_become_it_if_wanted():
    """As JSON decoders may leave them. In a stream, they may come in two strings, but in two texts they are two."""
    tokenizer, thumb = bpe.Tokenizer(*trained(300)), list("\U0001f44d".encode())
    assert tokenizer.encode_batch(["\ud83d\udc4d", "a\ud83d", "\udc4d"], errors="replace") == [
        thumb, tokenizer.encode("a\ufffd"), tokenizer.encode("\ufffd")]  # fmt: skip
    for strings, expected in [
        (["a\ud83d", "\udc4db"], "a\U0001f44db"), (["\ud83d", "\udc4d"], "\U0001f44d"), (["\ud83d"], "\ufffd"),
        (["\ud83d", "", "\udc4d"], "\U0001f44d"), (["\ud83d\ud83d", "x"], "\ufffd\ufffdx"), (["\udc4d\ud83d"], "\ufffd\ufffd"),
    ]:  # fmt: skip
        assert list(tokenizer.encode_iterable(strings, errors="replace")) == tokenizer.encode(expected)
    with pytest.raises(ValueError, match=r"^texts\[0\]: .*surrogates not allowed; errors='replace'"):
        list(tokenizer.encode_iterable(["a\ud83d", "\udc4d"]))
    with pytest.raises(ValueError, match=r"^texts\[1\]: text must be a str, not int"):
        list(tokenizer.encode_iterable(["a\ud83d", 5], errors="replace"))


LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 12345\n"


@pytest.mark.parametrize("pattern", ["gpt2", "o200k"])
def test_the_ranks_of_tiktoken_give_every_split_of_each_token(tmp_path, pattern):
    vocab, merges = trained(2000, pattern)
    ranks = [token for token in vocab.values() if token != END.encode()]  # bytes, then merges: the ids of tiktoken
    ranks.append(b"")  # as Whisper's has it, where it is spelled "="
    lines = [(base64.b64encode(token) or b"=") + b" %d\n" % rank for rank, token in enumerate(ranks)]
    path = tmp_path / "mine.tiktoken"
    by_rank = {token: rank for rank, token in enumerate(ranks)}
    splits = [(by_rank[token], by_rank[token[:n]], by_rank[token[n:]]) for token in ranks for n in range(1, len(token))
              if token[:n] in by_rank and token[n:] in by_rank]  # fmt: skip
    splits = [(ranks[left], ranks[right]) for _, left, right in sorted(splits)]
    for data in (b"".join(lines), b"\xef\xbb\xbf" + b"\n".join(lines) + b"\n"):  # a BOM, and empty lines
        path.write_bytes(data)
        assert bpe.read_tiktoken(path) == (dict(enumerate(ranks)), splits) and set(merges) <= set(splits)
    tokenizer = bpe.Tokenizer(*bpe.read_tiktoken(path), [END], pattern)
    theirs = need("tiktoken").Encoding("mine", pat_str=bpe.PATTERNS[pattern], mergeable_ranks=by_rank, special_tokens={})
    assert tokenizer.encode_ordinary(PART) == theirs.encode_ordinary(PART)
    assert (tokenizer.pattern, tokenizer.special_tokens, tokenizer.special_ids) == (pattern, (END,), {END: len(ranks)})
    with pytest.raises(ValueError, match="mine.tiktoken: not a byte-level BPE model .*read_tiktoken"):
        bpe.Tokenizer.load(path)
    with pytest.raises(ValueError, match=r"1 special token, too: \[' the'\]; leave them out of .*tiktoken file"):
        bpe.Tokenizer(*bpe.read_tiktoken(path), [" the"], pattern)
    a_line = "line 1 must be a token in base64 and its rank"
    for data, message in [(b"{}", a_line), (b"YQ==\n", a_line), (b"\x1f\x8b\x08", a_line), (b"YQ== x\n", "invalid literal"),
                          (b"YQ== 0\n\nYg==", "line 3 must be"), (b"", "the file is empty"), (b"\n\n", "the file is empty"),
                          (b"<!DOCTYPE html>\n<html>", "this looks like a web page"),
                          (LFS_POINTER, "this is a Git LFS pointer")]:  # fmt: skip
        path.write_bytes(data)
        with pytest.raises(ValueError, match=f"mine.tiktoken: {message}"):
            bpe.read_tiktoken(path)


def test_texts_need_no_path():
    texts = ["low lower", "lowest"]
    expected = bpe.train_bpe(None, 260, texts=texts)
    assert bpe.train_bpe(texts=texts, vocab_size=260) == expected
    assert contents(bpe.Tokenizer.train(texts=texts, vocab_size=260))[:2] == expected
    assert bpe.count_words(texts=texts) == {b"low": 1, b" lower": 1, b"lowest": 1}
    for call in (bpe.train_bpe, bpe.Tokenizer.train):
        with pytest.raises(ValueError, match="vocab_size must be a positive integer, not None"):
            call(texts=texts)


def test_texts_are_separate_and_used_as_they_come(tmp_path, cut):
    expected = naive_train(naive_words("ab  ") + naive_words(" ab ab") + naive_words("ab"), 262)
    assert bpe.train_bpe(None, 262, texts=iter(["ab  ", " ab ab", "", "ab"])) == expected
    assert bpe.count_words(None, ["<x>"], texts=["a<x>b", "c"]) == {b"a": 1, b"b": 1, b"c": 1}
    assert bpe.count_words(None, [], texts=iter([])) == {}
    cut(10_000)
    tokenizer = bpe.Tokenizer(*trained(600))
    texts = lambda: ("low " * 1000 for _ in range(200))  # noqa: E731 (800 KB)
    tracemalloc.start()
    assert bpe.count_words(None, [], texts=texts(), workers=1)[b" low"] == 200 * 999
    n_ids = tokenizer.encode_files(None, tmp_path / "ids.npy", texts=texts(), workers=1)
    assert tracemalloc.get_traced_memory()[1] < 500_000 and n_ids > 200_000
    tracemalloc.stop()


def test_counts_of_parts_add_up_to_those_of_the_whole(part, tmp_path):
    """Parts can be counted on several machines and trained on together; counts can be used for several sizes."""
    for options in ({"pattern": "gpt2"}, {"pattern": "cl100k"}, {"pattern": CUSTOM}):
        total = Counter()
        for number in range(3):
            (tmp_path / "part.txt").write_bytes(END.join(PART.split(END)[number::3]).encode())
            total.update(bpe.count_words(tmp_path / "part.txt", [END], **options))
        assert total == bpe.count_words(part, [END], **options)
        for size in (300, 500):
            assert bpe.train_from_counts(total, size, [END]) == bpe.train_bpe(part, size, [END], **options)


def test_counts_may_be_zero_or_of_other_types_but_not_negative_and_words_are_bytes():
    """Zeros come from Counters that were subtracted; empty words are ignored."""
    words = {b"abcd": 0, b"ab": 5, b"cd": True, b"": 3}
    assert bpe.train_from_counts(words, 300, [])[1] == [(b"a", b"b"), (b"c", b"d")]
    with pytest.raises(ValueError, match="counts not negative, not b'ab': -1"):
        bpe.train_from_counts({b"ab": -1}, 300, [])
    for count in (1.5, "2"):
        with pytest.raises(TypeError, match="as an integer"):
            bpe.train_from_counts({b"ab": count}, 300, [])
    for wrong in ({"ab": 2}, {b"ab": 1, "cd": 1}, {"": 1}, {"é": 0}, {("a", "b"): 2}):
        with pytest.raises(ValueError, match="words must be bytes"):
            bpe.train_from_counts(wrong, 300, [])


@pytest.mark.parametrize("n_words", [5, 25_000])  # some, and several batches of the C engine
def test_counts_may_be_pairs_and_those_of_a_word_that_comes_twice_are_added(n_words):
    rng = random.Random(n_words)
    pairs = [(bytes(rng.choices(b"abcd", k=rng.randint(0, 9))), rng.randint(0, 5)) for _ in range(n_words)]
    added = Counter()
    for word, count in pairs:
        added[word] += count
    options = {"vocab_size": 300, "special_tokens": [END], "min_word_count": 3}  # of the sums
    words = {letters(word): count for word, count in added.items() if count >= 3}
    expected = naive_train(words, 300, [END])
    for given in (added, pairs, iter(pairs), (list(pair) for pair in pairs), added.items(), zip(added, added.values())):
        assert bpe.train_from_counts(given, **options) == expected
    assert bpe.train_from_counts([(b"ab", 1), (b"cd", 2), (b"ab", 2)], 257)[1] == [(b"a", b"b")]


@pytest.mark.parametrize("bad, error, text", [
    (("ab", 2), ValueError, "words must be bytes and counts not negative, not 'ab': 2$"),
    ((b"ab", -1), ValueError, "words must be bytes and counts not negative, not b'ab': -1$"),
    ((b"ab", 1.5), TypeError, r"^\(b'ab', 1.5\) is not a pair \(word, count\): .* as an integer$"),
    ((b"ab", None), TypeError, r"^\(b'ab', None\) is not a pair"), ((b"ab",), TypeError, r"^\(b'ab',\) is not a pair"),
    ((b"ab", 1, 2), TypeError, r"^\(b'ab', 1, 2\) is not a pair"), (b"ab", ValueError, "must be bytes .* not 97: 98$"),
    (b"abc", TypeError, "^b'abc' is not a pair"), (5, TypeError, "^5 is not a pair"), (None, TypeError, "^None is not a"),
])  # fmt: skip
def test_an_error_names_the_pair(bad, error, text):
    """The pair is the first bad one, wherever it is, and the pairs are read no further."""
    for before in (0, 1, 12_000):
        pairs = iter([*[(b"low", 1)] * before, bad, "not read"])
        with pytest.raises(error, match=text):
            bpe.train_from_counts(pairs, 300)
        assert list(pairs) == ["not read"]


def test_an_error_of_the_callers_generator_stays_as_it_is():
    def words():
        yield b"low", 1
        raise TypeError("the caller's")

    with pytest.raises(TypeError, match="^the caller's$"):
        bpe.train_from_counts(words(), 300)


@only_c
def test_a_count_too_large_for_c_is_named():
    with pytest.raises(OverflowError, match=r"2\*\*64 occurrences of a word or more: \(b'cd', 18446744073709551616\)$"):
        bpe.train_from_counts([(b"ab", 1), (b"cd", 2**64)], 300)


def test_pairs_need_no_memory_of_python_in_c(engine):
    """A million pairs, each word twice: a dict of half a million words alone takes 40 MB."""
    tracemalloc.start()
    bpe.train_from_counts(((b"%d" % (n % 500_000), 1) for n in range(1_000_000)), 257)
    assert (tracemalloc.get_traced_memory()[1] < 10_000_000) == (engine == "c")
    tracemalloc.stop()


# --- V. The tokenizer ------------------------------------------------------------------------------------------------


def test_a_worked_example_of_encoding():
    """From a published course handout: ids need not be contiguous, and bytes can have any ids."""
    vocab = {0: b" ", 1: b"a", 2: b"c", 3: b"e", 4: b"h", 5: b"t", 6: b"th", 7: b" c", 8: b" a", 9: b"the", 10: b" at"}
    tokenizer = bpe.Tokenizer(vocab, [(b"t", b"h"), (b" ", b"c"), (b" ", b"a"), (b"th", b"e"), (b" a", b"t")])
    assert tokenizer.encode("the cat ate") == [9, 7, 1, 5, 10, 3]
    assert tokenizer.decode([9, 7, 1, 5, 10, 3]) == "the cat ate"


SPECIALS = [
    [], [END], ["<a>", "<a><b>", "<a><b><c>", "b><"], [" \n\v", "\n\n\v", "ll'", "\r\n"], ["a a", "aa", "字"],
    ["<a>", "x<a>y"],
]  # fmt: skip


@functools.cache
def texts_and_ids(pattern, special_tokens):
    """[(text, its ids by the oracle), ...] for a model of 400 tokens."""
    rng = random.Random(repr((pattern, special_tokens)))
    vocab, merges = trained(400, pattern)
    vocab = bpe.Tokenizer(vocab, merges, special_tokens).vocab
    encode = naive_encoder(vocab, merges, special_tokens, bpe.PATTERNS.get(pattern, pattern))
    texts = [*TEXTS, *(nested(rng, special_tokens) for _ in range(40))]
    texts += [random_text(rng, "aeinst", length) for length in (1, 2, 15, 16, 17, 40, 64, 65, 90, 200)]
    return [(text, encode(text)) for text in texts + [FIXTURE[:5000]] * (not special_tokens)]


@pytest.mark.parametrize("pattern", [*bpe.PATTERNS, CUSTOM, "(?=[A-Z])"])
@pytest.mark.parametrize("special_tokens", SPECIALS)
def test_encoding_replays_the_merges_in_every_word(pattern, special_tokens):
    tokenizer = bpe.Tokenizer(*trained(400, pattern), special_tokens, pattern)
    for text, ids in texts_and_ids(pattern, tuple(special_tokens)):
        assert tokenizer.encode(text) == ids, text


@pytest.mark.parametrize("pattern", ["gpt2", "o200k", CUSTOM])
@pytest.mark.parametrize("special_tokens", SPECIALS[1:])
def test_encode_ordinary_takes_special_tokens_for_text(pattern, special_tokens):
    tokenizer = bpe.Tokenizer(*trained(400, pattern), special_tokens, pattern)
    encode = naive_encoder(*trained(400, pattern), (), bpe.PATTERNS.get(pattern, pattern))
    for text, ids in texts_and_ids(pattern, tuple(special_tokens))[:50]:
        assert tokenizer.encode_ordinary(text) == encode(text), text
        assert tokenizer.encode(text) == ids and tokenizer.decode(tokenizer.encode_ordinary(text)) == text
    assert not set(tokenizer.special_ids.values()) & set(tokenizer.encode_ordinary("".join(special_tokens)))


def test_a_batch_gives_a_list_for_each_text_in_order():
    tokenizer = bpe.Tokenizer(*trained(600), [END])
    texts = [PART[at : at + at % 97] + END * (at % 2) for at in range(0, 15_000, 50)]  # several parts of 64 texts
    for workers in (None, 1, 2):
        assert tokenizer.encode_batch(iter(texts), workers=workers) == [tokenizer.encode(text) for text in texts]
        assert tokenizer.ordinary.encode_batch(texts, workers) == [tokenizer.encode_ordinary(text) for text in texts]
    assert tokenizer.encode_batch([]) == [] and tokenizer.ordinary.special_ids == {}
    for bad in (5, "\ud800", b"low"):
        with pytest.raises(ValueError, match=r"^texts\[201\]: "):
            tokenizer.encode_batch([*texts[:201], bad, *texts])
    with pytest.raises(ValueError, match="workers must be a positive integer, not 0"):
        tokenizer.encode_batch(texts, workers=0)


@only_c
def test_lists_share_the_numbers_of_ids_and_give_them_back():
    tokenizer = bpe.Tokenizer(*trained(600), [END])
    numbers = tokenizer.encoder.numbers
    before = [sys.getrefcount(number) for number in numbers]
    lists = [tokenizer.encode(PART) for _ in range(3)]
    assert {id(number) for ids in lists for number in ids} <= set(map(id, numbers))
    for token_id in (300, 400, 599):
        uses = sum(ids.count(token_id) for ids in lists)
        assert sys.getrefcount(numbers[token_id]) == before[token_id] + uses > before[token_id]
    del lists
    assert [sys.getrefcount(number) for number in itertools.islice(numbers, 300, None)] == before[300:]
    without_d = bpe.Tokenizer({number: bytes([number]) for number in range(256) if number != 100}, [])
    for _ in range(100):
        with pytest.raises(ValueError, match="the byte b'd'"):
            without_d.encode("abcd")
    assert len(without_d.encoder.calls) == 1
    ids = tokenizer.encode(PART)
    del tokenizer.__dict__["encoder"], tokenizer
    assert ids == bpe.PythonEncoder(bpe.Tokenizer(*trained(600), [END])).encode(PART.encode())  # lists outlive their encoder


@only_c
def test_texts_of_a_slice_are_encoded_in_one_call_like_each_alone():
    """No word reaches across the end of a text: "low" and "er" are not "lower", nor do halves make a special token."""
    tokenizer = bpe.Tokenizer(*trained(2000), [END])
    half = len(END) // 2
    texts = ["low", "er", "", END[:half], END[half:], END, "", "a" * 63, "字" * 30, PART[:5000], " ", "'", "s", "low " * 40]
    alone = [bpe.PythonEncoder(tokenizer).encode(text.encode()) for text in texts]
    assert tokenizer.encode_batch(texts) == tokenizer.encode_batch(texts) == alone
    rng = random.Random(1)
    for _ in range(300):
        order = rng.choices(range(len(texts)), k=rng.choice([1, 2, 70, 200]))
        assert tokenizer.encode_batch([texts[i] for i in order]) == [alone[i] for i in order]


def test_an_error_names_the_text_of_a_batch_and_leaves_the_collector_as_it_was(monkeypatch):
    monkeypatch.setattr(bpe, "BATCH_BYTES", 1000)
    tokenizer = bpe.Tokenizer({number: bytes([number]) for number in range(256) if number != 100}, [])
    texts = ["abc"] * 10_000
    for number in (0, 7, 9_999):
        bad = [*texts[:number], "abcd", *texts[number + 1 :]]
        for encode in (tokenizer.encode_batch, tokenizer.encode_arrays):
            for enabled in (True, False):
                (gc.enable if enabled else gc.disable)()
                try:
                    with pytest.raises(ValueError, match=rf"^texts\[{number}\]: the vocabulary has no token for the byte b'd'"):
                        encode(bad)
                    assert gc.isenabled() == enabled
                    assert len(tokenizer.encode_batch(texts)) == len(texts) and gc.isenabled() == enabled
                finally:
                    gc.enable()


def test_arrays_of_a_batch_are_the_lists_of_it():
    numpy = pytest.importorskip("numpy")
    for tokenizer, kind in (
        (bpe.Tokenizer(*trained(600), [END]), "uint16"), (bpe.Tokenizer({0: b"a", 70_000: b" ", 5: b"b"}, []), "uint32"),
    ):  # fmt: skip
        for texts in ([], [""], ["a b", "", "ab " * 500_000, "b"]):
            lists = [tokenizer.encode(text) for text in texts]
            ids, offsets = tokenizer.encode_arrays(iter(texts), workers=2)
            ids, offsets = numpy.asarray(ids), numpy.asarray(offsets)
            assert (ids.dtype, offsets.dtype, len(offsets)) == (kind, "uint64", len(texts) + 1)
            assert [ids[start:stop].tolist() for start, stop in zip(offsets, offsets[1:])] == lists


@pytest.mark.parametrize("engine", ["python", "c"])
def test_documents_cannot_forge_their_end(tmp_path, engine):
    if engine == "c" and not C:
        pytest.skip("no C engine")
    tokenizer = bpe.Tokenizer(*trained(600), [END])
    documents = [f"it quotes {END}", "", f"{END}{END}"]
    expected = []
    for text in documents:
        expected += [*tokenizer.encode_ordinary(text), tokenizer.special_ids[END]]
    paths = [tmp_path / str(number) for number in range(3)]
    for path, text in zip(paths, documents):
        path.write_text(text)
    for arguments in ({"paths": paths}, {"paths": None, "texts": documents}):
        n = tokenizer.encode_files(output=tmp_path / "ids.npy", end=END, engine=engine, **arguments)
        ids = array.array("H", (tmp_path / "ids.npy").read_bytes()[128:]).tolist()
        assert (n, ids) == (len(expected), expected)
    for end in ("<other>", 5):
        with pytest.raises(ValueError, match="end must be a special token"):
            tokenizer.encode_files(paths, tmp_path / "ids.npy", end=end)


@only_c
@pytest.mark.parametrize("seed", range(30))
def test_long_words_in_pieces_have_the_ids_of_python(seed):
    """C cuts a long word between characters that no token has within it: 今天天气很好 is 今天 | 天气 | 很好, for instance."""
    rng = random.Random(seed)
    characters = rng.sample("的一天气很好今是é字ñßя😀🎉𝒳abcd", rng.randint(3, 12))
    tokens = [bytes([byte]) for byte in sorted(set("".join(characters).encode()))]
    merges = []
    for _ in range(rng.choice([5, 40, 150])):  # in random order: some tokens are made twice
        pair = rng.choice(tokens), rng.choice(tokens)
        if pair not in merges and len(b"".join(pair)) <= 30:
            merges.append(pair)
            tokens.append(b"".join(pair))
    unused = set(range(256)) - set("".join(characters[1:]).encode()) - {byte for left, right in merges for byte in left + right}
    vocab = dict(enumerate(dict.fromkeys([*map(bytes, zip(range(256))), *tokens])))
    vocab = {number: token for number, token in vocab.items() if seed % 3 or token not in {bytes([b]) for b in unused}}
    try:
        tokenizer = bpe.Tokenizer(vocab, merges, ["".join(characters[:2]), "<|end|>"])
    except ValueError:  # this order is refused; the other seeds have others
        tokenizer = bpe.Tokenizer(vocab, [], ["<|end|>"])
    in_python = bpe.PythonEncoder(tokenizer)
    for _ in range(20):
        texts = ["".join(rng.choices(characters, k=rng.choice([1, 8, 30, 300]))).encode() for _ in range(10)]
        try:
            expected = in_python.encode_texts(texts)
        except ValueError as error:
            with pytest.raises(ValueError, match="no token for the byte") as found:
                tokenizer.encoder.encode_texts(texts)
            assert found.value.number == error.number
        else:
            assert tokenizer.encoder.encode_texts(texts) == expected


@only_c
def test_a_long_word_that_is_a_token_is_not_cut_and_its_pieces_are_not_words():
    """With ignore_merges, 今天天气很好 alone is one token, but " 今天天气很好" is merged, and so is the piece 天气."""
    bytes_of = {number: bytes([number]) for number in range(256)}
    vocab = bytes_of | {256: "今天天气很好".encode(), 257: "天气".encode()}
    tokenizer = bpe.Tokenizer(vocab, bpe.WordsFirst([]), [])
    for _ in range(2):
        assert tokenizer.encode_batch(["今天天气很好", "天气", " 今天天气很好"])[:2] == [[256], [257]]
        assert tokenizer.encode(" 今天天气很好") == list(" 今天天气很好".encode())
        assert tokenizer.encode("今天天气很好天气") == list("今天天气很好天气".encode())


@only_c
def test_encoding_takes_no_memory_that_stays():
    tokenizer, memory = bpe.Tokenizer(*trained(600), [END]), []
    tracemalloc.start()
    for n in (1000, 100_000):
        for _ in range(n):
            tokenizer.encode("low lower")
        memory.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert memory[1] < memory[0] + 1000


@only_c
def test_short_and_long_texts_have_the_same_ids_and_errors():
    """C has two ways to encode, for texts below 4,000 bytes and for others."""
    bytes_only = bpe.Tokenizer({number: bytes([number]) for number in range(256) if number != 100}, [])
    for n in (0, 1, 3997, 3998, 3999, 4000, 4001):
        text = "é" * (n // 2) + "a" * (n % 2)
        assert bytes_only.encode(text) == list(text.encode()), n
        with pytest.raises(ValueError, match=r"the byte b'd', in 'd'$"):
            bytes_only.encode(text + " d")
        with pytest.raises(UnicodeDecodeError):
            bytes_only.encoder.encode(text.encode() + b"\xff")
    with pytest.raises(TypeError):
        bytes_only.encoder.encode("no bytes")
    assert bytes_only.encoder.encode_short(b"a" * 3998) == [97] * 3998  # the short way is taken
    assert bytes_only.encoder.encode_short(b"a" * 3999) is None


@pytest.mark.parametrize("largest", [2**20 - 1, 2**20, 2**32 - 2])
def test_ids_of_any_size_are_encoded_alike(largest):
    vocab = {**with_merges([(b"a", b"b")]), largest: b"abc"}
    tokenizer = bpe.Tokenizer(vocab, [(b"a", b"b"), (b"ab", b"c")])
    assert tokenizer.encode("abcab" * 200) == [largest, 256] * 200


def test_special_tokens_and_decoding():
    tokenizer = bpe.Tokenizer({97: b"a", 98: b"b", 300: b"ab", 7: b"\xe5"}, [(b"a", b"b")], [END, "ab<x>"])
    assert len(tokenizer) == 6 and tokenizer.special_ids == {END: 301, "ab<x>": 302}
    assert tokenizer.encode(f"aabab<x>{END}{END}ab") == [97, 300, 302, 301, 301, 300]
    assert tokenizer.encode("") == [] == list(tokenizer.encode_iterable([])) and tokenizer.decode([]) == ""
    assert tokenizer.decode([301, 300, 301, 97]) == f"{END}ab{END}a"
    assert tokenizer.decode([301, 300, 301, 97], skip_special_tokens=True) == "aba"
    assert tokenizer.decode([7, 97, 7]) == "\ufffda\ufffd" and tokenizer.decode_bytes([7]) == b"\xe5"
    for bad in (303, -1, 10**9, "a"):
        with pytest.raises(ValueError, match=rf"^unknown token id '?{bad}'? at index 1$"):
            tokenizer.decode([97, bad])


def test_ids_that_are_no_ids_are_named():
    tokenizer = bpe.Tokenizer(*trained(300), [END])
    decoders = (tokenizer.decode, tokenizer.decode_bytes, lambda ids: list(tokenizer.decode_iterable(ids)))
    for decode in (*decoders, lambda ids: tokenizer.decode(ids, skip_special_tokens=True)):
        with pytest.raises(TypeError, match="ids must be an iterable of token ids, not 5"):
            decode(5)
        for ids, place in (([[1, 2]], r"\[1, 2\] at index 0"), ([1, 10**9], "1000000000 at index 1"), ([1, None], "None at index 1")):
            for kind in (list, iter):
                with pytest.raises(ValueError, match=f"unknown token id {place}"):
                    decode(kind(ids))

    def broken():
        yield 1
        raise TypeError("of the caller")

    for decode in decoders:
        with pytest.raises(TypeError, match="of the caller"):
            decode(broken())


def test_text_comes_as_soon_as_its_characters_are_complete():
    tokenizer = bpe.Tokenizer(*trained(600), [END])
    ids = [229, 164, 169, 97, 256, 229, 164]  # the bytes of 天, a, the special token, and a part of a character
    ids = [tokenizer.ids[bytes([byte])] if byte < 256 else 256 for byte in ids]
    given = []
    parts = tokenizer.decode_iterable(given.append(token_id) or token_id for token_id in ids)
    assert (next(parts), len(given)) == ("天", 3) and (next(parts), len(given)) == ("a", 4)
    assert list(parts) == [END, "\ufffd"]
    assert list(tokenizer.decode_iterable(ids, skip_special_tokens=True)) == ["天", "a", "\ufffd"]


@only_python
def test_ids_decoded_one_by_one_give_the_same_text():
    rng = random.Random(5)
    tokenizer = bpe.Tokenizer(*trained(600), [END, "<x>"], kept=["<x>"])
    broken = [tokenizer.ids[bytes([byte])] for byte in b"\xf0\x9f\x98\x80\xe5\xa4\xa9\xed\xa0\xc0\xff\xe1\x80a"]
    for _ in range(10_000):
        ids = [rng.choice(rng.choice([broken, range(601)])) for _ in range(rng.randint(0, 12))]
        for skip in (False, True):
            parts = list(tokenizer.decode_iterable(iter(ids), skip_special_tokens=skip))
            assert "".join(parts) == tokenizer.decode(ids, skip_special_tokens=skip) and "" not in parts


def test_ids_may_be_any_numbers(tmp_path):
    vocab, merges = trained(600)
    ids = random.Random(2).sample(range(2**31), 599) + [2**32 - 2]
    tokenizer = bpe.Tokenizer({ids[token_id]: token for token_id, token in vocab.items()}, merges, [END])
    text = FIXTURE[:20_000] + vocab[599].decode()
    expected = [ids[token_id] for token_id in bpe.Tokenizer(vocab, merges, [END]).encode(text)]
    assert tokenizer.encode(text) == expected and tokenizer.decode(expected) == text
    tokenizer.save(tmp_path)
    assert bpe.Tokenizer.load(tmp_path).encode(text) == expected and max(expected) == 2**32 - 2


def test_integers_of_numpy_are_numbers(tmp_path):
    numpy = need("numpy")
    options = {"min_frequency": numpy.int16(2), "min_word_count": numpy.uint64(2)}
    counts = {b"ab": numpy.int64(2), b"cd": numpy.uint8(1)}
    assert bpe.train_from_counts(counts, numpy.uint16(300), **options)[1] == [(b"a", b"b")]
    small = {b"ab": numpy.uint8(200), b"abc": numpy.uint8(100), b"xy": numpy.uint8(90)}  # 300 is too large for a uint8
    assert bpe.train_from_counts(small, 257)[1] == [(b"a", b"b")]
    small_characters = {"lolo": numpy.uint8(200), "lo": numpy.uint8(100)}  # the pair l o</w> occurs 300 times
    assert bpe.learn_characters(small_characters, 1) == [("l", "o</w>")]
    with pytest.raises(ValueError, match="vocab_size"):
        bpe.train_from_counts(counts, numpy.float64(300))
    (vocab, merges), text = trained(300), f"the ferry{END}<new>"
    tokenizer = bpe.Tokenizer({numpy.uint16(number): vocab[number] for number in vocab}, merges, [END, "<new>"])
    ids = tokenizer.encode(text)
    assert ids == bpe.Tokenizer(vocab, merges, [END, "<new>"]).encode(text) and {type(n) for n in ids} == {int}
    assert tokenizer.decode(numpy.array(ids)) == text
    tokenizer.save(tmp_path)
    assert bpe.Tokenizer.load(tmp_path).encode(text) == ids


def test_a_byte_without_a_token_is_named():
    tokenizer = bpe.Tokenizer({0: b"a", 1: b" ", 2: b"b", 3: b"ab", 9: b"<x>"}, [(b"a", b"b")], ["<x>"])
    assert tokenizer.encode("ab aab<x>b") == [3, 1, 0, 3, 9, 2]
    for text in ("ab xab", "ab abx", "x", "a<x>x", "a" * 200 + "x"):
        stream = lambda text: list(tokenizer.encode_iterable([text]))  # noqa: E731
        for encode in (tokenizer.encode, tokenizer.encode_ordinary, stream):
            with pytest.raises(ValueError, match="no token for the byte b'[x<]', in "):
                encode(text)
    assert tokenizer.encode("ab") == [3]  # and the tokenizer still works


@only_python
@pytest.mark.parametrize("vocab, merges, special_tokens, text", [
    ({0: b"a", 1: b"a"}, "", [], "the token b'a' has two ids, 0 and 1"),
    ({0: b"a", 1: b"b"}, "a b", [], "merge .* is not in the vocabulary"),
    ({0: b"a", 1: b"ab"}, "a b", [], "merge .* b'b'.* is not in the vocabulary"),
    ({0: b"a", 1: b"aa"}, "a a, a a", [], r"merge 1 \(from 0\).* repeats an earlier one"),
    ({0: b"a"}, "", ["<x>", "<x>"], "duplicate special token among .*'<x>'"),
    # two ids would have the same bytes, and tokenizers can't load such a file
    (None, "a b, ab c", ["ab"], "merge.*special token.*'ab'|special token 'ab'.*merge"),
    (None, "a b, ab c", ["x y", "abc"], "merge.*special token.*'abc'|special token 'abc'.*merge"),
    ({b"a": 0}, "", [], "vocab maps ids .* to bytes"), ({0: "a"}, "", [], "vocab maps ids from 0 to .* to bytes.*from_files"),
    ({"a": 0}, "", [], "vocab maps ids .* to bytes.*from_files"), ({1.5: b"a"}, "", [], "1.5|'float' object"),
    *[({0: b"a", bad: b"ab"}, "", [], f"vocab maps ids .* not {bad} to b'ab'") for bad in (-1, 2**32 - 1, 2**32, 2**40, 10**30)],
])  # fmt: skip
def test_a_vocabulary_and_merges_that_contradict_each_other(vocab, merges, special_tokens, text):
    merges = pairs(merges) if merges else []
    with pytest.raises((TypeError, ValueError), match=text):
        bpe.Tokenizer(vocab or with_merges(merges), merges, special_tokens)


def test_an_error_about_thousands_of_special_tokens_is_one_short_line():
    tokens = [f"<{number}>" for number in range(3700)]
    merges = [(token[:1].encode(), token[1:].encode()) for token in tokens]
    with pytest.raises(ValueError, match=r"^merges make 3,700 special tokens, too: \['<0>', '<1>'") as caught:
        bpe.Tokenizer(with_merges(merges), merges, tokens)
    assert len(str(caught.value)) < 300


@only_python
@pytest.mark.parametrize("merges", ["ab c, a b", "c ab, a b"])
def test_merges_that_cannot_be_replayed_are_named(merges):
    """Replaying gives ab c for "abc", and merging by rank gives abc."""
    with pytest.raises(ValueError, match=r"merge 1 \(from 0\).*b'a', b'b'.* an earlier one"):
        bpe.check_merges((left, right, left + right) for left, right in pairs(merges))
    with pytest.raises(ValueError, match=r"merge 1 \(from 0\).*'a', 'b'.* an earlier one"):
        bpe.segment("abc", [tuple(pair.split()) for pair in merges.split(", ")])


def test_anything_but_text_is_an_error():
    tokenizer = bpe.Tokenizer(*trained(300), [END])
    stream = lambda text: list(tokenizer.encode_iterable(["a", text]))  # noqa: E731
    for encode in (tokenizer.encode, tokenizer.encode_ordinary, stream):
        for wrong in (b"abc", b"", None, 5, ["abc"]):
            with pytest.raises((TypeError, ValueError), match=f"text must be a str, not {type(wrong).__name__}$"):
                encode(wrong)
        for wrong in ("\ud800", "a\udfffb", "\ud83d\ude00", END + "\ud83d"):
            with pytest.raises(ValueError, match="surrogates not allowed"):
                encode(wrong)
    with pytest.raises(ValueError):
        list(tokenizer.encode_iterable(["\ud83d", "\ude00"]))


@pytest.mark.parametrize("pattern", [*bpe.PATTERNS, CUSTOM])
@pytest.mark.parametrize("special_tokens", SPECIALS)
def test_a_stream_is_encoded_like_the_whole(engine, pattern, special_tokens):
    tokenizer = bpe.Tokenizer(*trained(600, pattern), special_tokens, pattern)
    if engine == "python":  # compare words, since different words can have the same ids
        encoder = bpe.PythonEncoder(tokenizer)
        encoder.cached = encoder.encode_word = lambda word: (word,)
    rng = random.Random(repr((pattern, special_tokens)))
    parts = [*TRICKY, *special_tokens, "'LL", "'v", "e", "ABCDEFGHIJKL", "中國", "ʰ", "don", "123", "\n\n", "!!", "ſ"]
    parts += ["<a>", "<b>", "<c>", "x", "y"]
    texts = [*TEXTS, "中ABCDEFGHIJKLm", "e\u0301ABCDEFGHIJKLMNx"]
    texts += [random_text(rng, parts, rng.randint(0, 60)) for _ in range(40)]
    for text in texts:
        whole = tokenizer.encode(text)
        assert list(tokenizer.encode_iterable(text)) == whole, text  # one character at a time
        for _ in range(3):
            assert list(tokenizer.encode_iterable(split_anywhere(rng, text))) == whole, text


def test_a_stream_of_blocks_is_encoded_like_the_whole():
    text = PART + FIXTURE[:20_000]
    for pattern in [*bpe.PATTERNS, CUSTOM]:
        tokenizer = bpe.Tokenizer(*trained(600, pattern), [END, "<a>", "x<a>y"], pattern)
        for block in (1000, 37):
            blocks = (text[at : at + block] for at in range(0, len(text), block))
            assert list(tokenizer.encode_iterable(blocks)) == tokenizer.encode(text)
        for parts in (["x<a>", "y"], ["x<a>x<a>", "y<a>"], ["zx", "<a>yx<a>", "y"]):  # a cut inside would be wrong
            assert list(tokenizer.encode_iterable(parts)) == tokenizer.encode("".join(parts))


def test_a_stream_is_lazy_and_takes_little_memory():
    tokenizer, seen = bpe.Tokenizer(*trained(600), [END]), []
    ids = tokenizer.encode_iterable(seen.append(1) or "some words and more words\n" for _ in itertools.count())
    assert [next(ids) for _ in range(5)] and len(seen) < 50  # about 1 KB
    tracemalloc.start()
    for _ in itertools.islice(ids, 1_000_000):
        pass
    assert tracemalloc.get_traced_memory()[1] < 2_500_000  # the text alone, or a list of the ids, takes more
    tracemalloc.stop()


@pytest.mark.parametrize("size", [1000, 65_536])
def test_a_stream_with_a_custom_pattern_is_cut_at_the_next_special_token(size):
    """The search for a cut must not skip special tokens between two attempts."""
    tokenizer, text, taken = bpe.Tokenizer(with_merges([]), [], [END], CUSTOM), ("ab cd " * 25_000 + END) * 5, []
    blocks = (taken.append(size) or text[start : start + size] for start in range(0, len(text), size))
    most = max(len(taken) * size - number for number, _ in enumerate(tokenizer.encode_iterable(blocks)))
    assert most < 300_000


@only_python
def test_the_cache_of_words_is_bounded_and_has_no_long_words():
    tokenizer = bpe.Tokenizer(with_merges([]), [])
    cached = tokenizer.encoder.cached
    assert cached.cache_info().maxsize < 1_000_000
    assert len(tokenizer.encode("x" * 100)) == 100 and cached.cache_info().currsize == 0
    assert len(tokenizer.encode("x y")) == 3 and cached.cache_info().currsize == 2


class OwnTokenizer(bpe.Tokenizer):
    pass


@pytest.mark.parametrize("kind", [bpe.Tokenizer, OwnTokenizer])
@pytest.mark.parametrize("pattern", ["gpt2", "o200k", CUSTOM])
def test_a_tokenizer_can_be_pickled_and_copied(pattern, kind):
    tokenizer = kind(*trained(600), [END, "<new>"], pattern)
    text = f"Some words{END}and <new> 字"
    ids = tokenizer.encode(text)
    for clone in (pickle.loads(pickle.dumps(tokenizer)), copy.deepcopy(tokenizer), copy.copy(tokenizer)):
        assert clone.encode(text) == ids and vars(clone.options) == vars(tokenizer.options)
        assert clone.vocab == tokenizer.vocab and clone.merges == tokenizer.merges
        assert type(clone) is kind


def test_threads_share_a_tokenizer_and_a_folder(tmp_path):
    tokenizer = bpe.Tokenizer(*trained(2000), [END])
    texts = PART.split(END)
    expected = list(map(bpe.Tokenizer(*trained(2000), [END]).encode, texts))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(tokenizer.encode, texts * 5)) == expected * 5
        assert list(pool.map(bpe.Tokenizer({0: b"a"}, []).save, [tmp_path] * 60)) == [None] * 60
    assert not list(tmp_path.glob("*.tmp")) and model_in(tmp_path) == ({0: b"a"}, [])


def test_a_signal_handler_that_encodes_does_not_change_the_call_that_it_interrupts():
    """A handler, or __del__, can run between any two lines; a trace function runs between all of them."""
    tokenizer, text = bpe.Tokenizer(*trained(2000), [END]), f"The ferry was late again.{END}"
    expected, interruptions, tracer = tokenizer.encode(text), [], sys.gettrace()

    def interrupt(frame, event, argument):
        if os.path.basename(frame.f_code.co_filename) not in ("bpe.py", "build_ffi.py"):
            return None
        interruptions.append(tokenizer.encode("12345 " * 20))
        return interrupt

    for encode in (tokenizer.encode, lambda text: list(tokenizer.encode_iterable([text]))):
        sys.settrace(interrupt)
        try:
            ids = encode(text)
        finally:
            sys.settrace(tracer)
        assert ids == expected and len(interruptions) > 3


@only_c
@pytest.mark.parametrize("batch", [False, True])
def test_ctrl_c_between_any_two_instructions_leaves_a_tokenizer_that_gives_the_same_ids(batch):
    """C never points to a cache that Python may free: the next short text would be looked up in freed memory."""
    tokenizer, texts, tracer = bpe.Tokenizer(*trained(2000), [END]), ["The ferry", PART[:5000]], sys.gettrace()
    expected = list(map(tokenizer.encode, texts))
    encoder = tokenizer.encoder
    interrupted = 0

    def interrupt(frame, event, argument):
        nonlocal left
        if os.path.basename(frame.f_code.co_filename) not in ("bpe.py", "build_ffi.py"):
            return None
        frame.f_trace_opcodes = True
        left -= event == "opcode"
        if not left:
            raise KeyboardInterrupt
        return interrupt

    for first in itertools.count(1):
        left = first
        try:
            sys.settrace(interrupt)
            tokenizer.encode_batch(texts) if batch else tokenizer.encode(texts[1])
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            sys.settrace(tracer)
        kept = [call.cache for call in encoder.calls]
        assert encoder.for_lists.cache in [C.ffi.NULL, *kept], f"instruction {first}"
        assert gc.isenabled(), f"instruction {first}"
        assert list(map(tokenizer.encode, texts)) == expected
        if left > 0:
            break
    assert interrupted > 100


# --- VI. Files of a model --------------------------------------------------------------------------------------------


@only_python
def test_save_then_load_is_the_identity_for_any_bytes(tmp_path):
    rng, specials = random.Random(1), [END, "two words", "字 \n\t"]
    merges = [(b"#", b"version"), (b"#", b"version:")]  # the first line of merges.txt looks like that
    merges += [(b"version"[:n], b"version:"[n : n + 1]) for n in range(1, 8)]
    tokens = [bytes([byte]) for byte in range(256)] + [b"#version", b"#version:", *(b"".join(pair) for pair in merges[2:])]
    while len(merges) < 2000:
        left, right = rng.choice(tokens), rng.choice(tokens)
        if len(left + right) < 12 and left + right not in tokens:
            merges.append((left, right))
            tokens.append(left + right)
    rng.shuffle(tokens)
    vocab = {3 * i: token for i, token in enumerate(tokens + [special.encode() for special in specials])}
    # only cl100k's own {1,3}+ is rewritten for Oniguruma; elsewhere it could change the words
    tokenizer = bpe.Tokenizer(vocab, merges, specials, r"\p{N}{1,3}+5|[\s\S]")
    tokenizer.save(tmp_path / "a" / "b")
    assert contents(bpe.Tokenizer.load(tmp_path / "a" / "b")) == contents(tokenizer)
    assert bpe.Tokenizer.from_files(tmp_path / "a/b/vocab.json", tmp_path / "a/b/merges.txt", specials).vocab == vocab


MODELS = [  # arguments of train_bpe
    {"vocab_size": 300, "special_tokens": [END]},
    {"vocab_size": 300, "special_tokens": [END], "pattern": "cl100k", "min_frequency": 3},
    {"vocab_size": 300, "special_tokens": ["<y>", "<x>", "<x><y>"], "pattern": "o200k"},
    {"vocab_size": 290, "special_tokens": [], "pattern": r"\d|\p{L}+"},
]


@pytest.fixture(scope="module")
def models(tmp_path_factory, part):
    """[(folder, (vocab, merges)), ...] for MODELS."""
    folders = [tmp_path_factory.mktemp("model") for _ in MODELS]
    return [(folder, train_and_save(folder, part, **options)) for folder, options in zip(folders, MODELS)]


def test_a_folder_has_everything_about_a_model_and_nothing_of_an_earlier_one(main, part):
    text, names = f"I'LL 12345 theory\n\nHTMLParser's<x><y>{END}", set()
    for number in (0, 1, 2, 3, 0):
        options = MODELS[number]
        vocab, merges = train_and_save("model", part, **options)
        names = names or set(os.listdir("model"))
        assert set(os.listdir("model")) == names >= {"merges.txt", "tokenizer.json", "vocab.json"}
        tokenizer, arguments = bpe.Tokenizer.load("model"), (options["special_tokens"], options.get("pattern", "gpt2"))
        assert (tokenizer.vocab, tokenizer.merges) == (vocab, merges) == bpe.train_bpe(part, **options)
        assert (list(tokenizer.options.special_tokens), tokenizer.options.pattern) == arguments
        ids = tokenizer.encode(text)
        assert ids == bpe.Tokenizer(vocab, merges, *arguments).encode(text)
        assert main("--show", text, "--model", "model")[1].splitlines()[-2] == " ".join(map(str, ids))
        model = json.loads(Path("model/tokenizer.json").read_bytes())["model"]
        assert model["vocab"] == json.loads(Path("model/vocab.json").read_bytes())
        lines = Path("model/merges.txt").read_bytes().decode().split("\n")
        assert [" ".join(merge) for merge in model["merges"]] == lines[1:-1]


@only_python
def test_tokenizer_json_has_the_spelling_of_gpt2s_pattern_that_other_programs_know(tmp_path):
    """Tokenizers 1.0 has no look-ahead of its own, and knows GPT-2's pattern by its exact spelling."""
    spelling = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"  # from GPT-2's encoder.py
    for pattern in ("gpt2", bpe.GPT2, spelling):
        tokenizer = bpe.Tokenizer(*trained(300), [END], pattern)
        tokenizer.save(tmp_path)
        split = json.loads((tmp_path / "tokenizer.json").read_bytes())["pre_tokenizer"]["pretokenizers"][0]
        assert split["pattern"] == {"Regex": spelling}
        assert tokenizer.options.pattern == bpe.Tokenizer.load(tmp_path).options.pattern == "gpt2"


@only_python
def test_roles_in_an_existing_tokenizer_config_are_kept(tmp_path):
    tokenizer, path = bpe.Tokenizer(*trained(300), [END]), tmp_path / "tokenizer_config.json"
    tokenizer.save(tmp_path)
    ours = json.loads(path.read_text())
    path.write_text(json.dumps({"eos_token": END, "tokenizer_class": "GPT2TokenizerFast"}))
    tokenizer.save(tmp_path)
    assert json.loads(path.read_text()) == {**ours, "eos_token": END, "tokenizer_class": "GPT2TokenizerFast"}
    for damaged in ("", "[1]", "nothing"):
        path.write_text(damaged)
        tokenizer.save(tmp_path)
        assert json.loads(path.read_text()) == ours


@only_python
def test_roles_and_a_template_are_written_and_stay(tmp_path):
    tokenizer = bpe.Tokenizer(*trained(300), [END, "<pad>", "<s>"])
    read = lambda name: (tmp_path / name).read_bytes().decode()  # noqa: E731
    config = lambda: json.loads(read("tokenizer_config.json"))  # noqa: E731
    template = "{% for m in messages %}{{ m.content }}\r\n{% endfor %}é"
    tokenizer.save(tmp_path, eos_token=END, chat_template=template)
    assert (config()["eos_token"], config()["chat_template"], read("chat_template.jinja")) == (END, template, template)
    assert "pad_token" not in config()
    before = files_of(tmp_path)
    bpe.Tokenizer.load(tmp_path).save(tmp_path)
    assert files_of(tmp_path) == before
    tokenizer.save(tmp_path, pad_token="<pad>", bos_token="<s>")
    roles = [config()[name] for name in ("eos_token", "pad_token", "bos_token")]
    assert roles == [END, "<pad>", "<s>"] and read("chat_template.jinja") == template
    for role in ("bos_token", "eos_token", "pad_token"):
        for wrong in ("<unk>", "", "a"):
            with pytest.raises(ValueError, match=f"{role}='{wrong}' must be one of the special tokens"):
                tokenizer.save(tmp_path, **{role: wrong})
    assert config()["eos_token"] == END
    # transformers 5: another class, and the template in its own file only
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "TokenizersBackend", "eos_token": "<s>"}))
    (tmp_path / "chat_template.jinja").write_text("{{ 5 }}\n", newline="")
    tokenizer.save(tmp_path)
    assert (config()["tokenizer_class"], config()["eos_token"], config()["chat_template"]) == ("PreTrainedTokenizerFast", "<s>", "{{ 5 }}\n")
    # transformers 4: several templates
    several = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": several}))
    tokenizer.save(tmp_path)
    assert config()["chat_template"] == several and not (tmp_path / "chat_template.jinja").exists()


@only_python
@pytest.mark.parametrize("specials", [[], [END], ["<y>", "<x> x", "é é"]])
@pytest.mark.parametrize("pattern", ["gpt2", "cl100k", CUSTOM])
def test_loading_and_saving_writes_the_same_bytes(tmp_path, specials, pattern):
    bpe.Tokenizer.train(CORPUS, 400, specials, pattern=pattern).save(tmp_path / "first")
    bpe.Tokenizer.load(tmp_path / "first").save(tmp_path / "second")
    assert files_of(tmp_path / "first") == files_of(tmp_path / "second")
    vocab = json.loads((tmp_path / "second/vocab.json").read_bytes())
    assert list(vocab.values()) == list(range(400)) and list(vocab)[256 : 256 + len(specials)] == specials


@only_c
def test_roles_and_template_in_transformers(tmp_path):
    transformers = need("transformers")
    need("jinja2")  # with which transformers applies a template, and which it does not bring
    tokenizer = bpe.Tokenizer(*trained(600), [END, "<pad>", "<s>"])
    template = "{{ bos_token }}{% for m in messages %}{{ m.content + eos_token }}{% endfor %}"
    tokenizer.save(tmp_path, bos_token="<s>", eos_token=END, pad_token="<pad>", chat_template=template)
    for _ in range(2):
        theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
        assert (theirs.bos_token, theirs.eos_token, theirs.pad_token, theirs.chat_template) == ("<s>", END, "<pad>", template)
        assert theirs.apply_chat_template([{"role": "user", "content": "low"}], tokenize=False) == f"<s>low{END}"
        assert theirs(PART, add_special_tokens=False)["input_ids"] == tokenizer.encode(PART)
        theirs.save_pretrained(str(tmp_path))
        bpe.Tokenizer.load(tmp_path).save(tmp_path)


def test_cl100k_in_tokenizer_json_has_nothing_that_javascript_reads_otherwise(tmp_path):
    """There, possessive quantifiers are dropped or an error, and $ is the end of any line."""
    bpe.Tokenizer(*trained(300), [], "cl100k").save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    split = content["pre_tokenizer"]["pretokenizers"][0]["pattern"]
    assert not regex.search(r"[+*?]\+|\d}\+|\$", split["Regex"])
    for text in [*TRICKY, PART, " \na", "a \n", " \n \n", "\n a\r\n\r\n  b  "]:
        assert regex.findall(split["Regex"], text) == regex.findall(bpe.TIKTOKEN_CL100K, text)
    assert bpe.Tokenizer.load(tmp_path).pattern == "cl100k"
    before = bpe.TIKTOKEN_CL100K.replace("{1,3}+", "{1,3}")  # in files of version 0.4.0
    assert bpe.Tokenizer({0: b"a"}, [], pattern=before).pattern == "cl100k"


@only_python
def test_the_expressions_of_tiktoken_have_our_names(monkeypatch):
    need("tiktoken")
    theirs = importlib.import_module("tiktoken_ext.openai_public")
    monkeypatch.setattr(theirs, "load_tiktoken_bpe", lambda *_, **__: {})  # no download
    for name in ("cl100k", "o200k"):
        expression = getattr(theirs, f"{name}_base")()["pat_str"]
        assert bpe.Tokenizer({0: b"a"}, [], pattern=expression).pattern == name


@only_python
def test_a_line_of_merges_that_is_not_two_tokens_is_named():
    assert bpe.read_merges("#version: 0.2\na b\n\nc d") == [["a", "b"], ["c", "d"]]
    for wrong in ("c", "c d e"):
        with pytest.raises(ValueError, match=f"line 3 must be two tokens .*'{wrong}'"):
            bpe.read_merges(f"a b\n\n{wrong}\n")


def test_tokenizer_json_alone_is_the_model(tmp_path):
    tokenizer = bpe.Tokenizer(*trained(600), [END])
    tokenizer.save(tmp_path)
    for change in (lambda path: path.write_bytes(b"something else"), os.remove):
        for name in ("vocab.json", "merges.txt", "tokenizer_config.json"):
            change(tmp_path / name)
        for place in (tmp_path, str(tmp_path / "tokenizer.json")):
            assert contents(bpe.Tokenizer.load(place)) == contents(tokenizer)
    tokenizer.save(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    for place in (tmp_path, tmp_path / "nowhere", tmp_path / "tokenizer.json"):
        with pytest.raises((FileNotFoundError, ValueError), match=regex.escape(str(place))):
            bpe.Tokenizer.load(place)


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


def with_token(text, id=600, **options):
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    token = {"id": id, "content": text, **flags, "special": True, **options}
    return lambda content: content["added_tokens"].append(token)


def with_added_tokens(content):
    n = len(content["model"]["vocab"])
    with_token("<mask>", id=n)(content)
    with_token("new word", id=n + 1, normalized=True, special=False)(content)
    with_token("|> t", id=n + 2, normalized=True)(content)  # END ends with its beginning, which changes nothing


SPLIT = {"type": "Split", "pattern": {"Regex": r"\s+"}, "behavior": "Isolated", "invert": False}


def with_unreachable_tokens(content):
    content["model"]["vocab"].update(zzz=600, zzzz=601)
    content["model"]["ignore_merges"] = True


LOADED = {  # what other tools write that Tokenizer does as well
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
    "words that are tokens": with_change("model", "ignore_merges", True),
    "unreachable tokens that are words": with_unreachable_tokens,
    "a template": with_change("post_processor", {
        "type": "TemplateProcessing", "special_tokens": {END: {"id": END, "ids": [256], "tokens": [END]}},
        "single": [{"SpecialToken": {"id": END, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]}),
    "GPT-2's pattern in the second step": with_change("pre_tokenizer", "pretokenizers", 1, "use_regex", True),
    "the same by default": lambda content: content["pre_tokenizer"]["pretokenizers"][1].pop("use_regex"),
    "two Splits": lambda content: content["pre_tokenizer"]["pretokenizers"].insert(0, SPLIT),
    "an added token with the bytes of another": with_token(" t"),
    "another custom pattern": with_change("pre_tokenizer", "pretokenizers", 0, "pattern", "Regex", r"\d+|[a-z]+|\b"),
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
        for again in (tokenizer, bpe.Tokenizer.load(tmp_path / "again"), pickle.loads(pickle.dumps(tokenizer))):
            assert again.encode(text) == expected  # below: added tokens that are not special stay
            assert again.decode(expected, skip_special_tokens=True) == theirs.decode(expected, skip_special_tokens=True)


@only_python
def test_entries_may_be_missing_if_no_id_depends_on_them(tmp_path):
    tokenizers = need("tokenizers")
    tokenizer = bpe.Tokenizer(*trained(600), [END])
    for number, entry in enumerate(["decoder", "added_tokens", "normalizer", "post_processor", "truncation", "padding"]):
        for change in (lambda content: content.__setitem__(entry, None), lambda content: content.pop(entry)):  # noqa: B023
            tokenizer.save(tmp_path)
            path = changed(tmp_path, change)
            loaded = bpe.Tokenizer.load(path)
            assert loaded.special_tokens == ((END,) if entry != "added_tokens" else ())
            assert loaded.decode(loaded.encode(PART)) == PART
            if number < 2:
                path.write_text(json.dumps({**json.loads(path.read_bytes()), entry: [] if number else None}))
                assert loaded.encode(PART) == tokenizers.Tokenizer.from_file(str(path)).encode(PART).ids


# The models that people have, rebuilt small. `pattern` is an expression, or a list of steps; the rest are entries.
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
OWN_PATTERN = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
EACH_DIGIT = {"type": "Digits", "individual_digits": True}
THREE_DIGITS, KANA = r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+"
DEEPSEEK = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
DEEPSEEK += r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def split_at(expression, behavior="Isolated"):
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": behavior, "invert": behavior == "Removed"}


def template(token):
    single = [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    specials = {token: {"id": token, "ids": [2000], "tokens": [token]}}
    pair = [*single, {"Sequence": {"id": "B", "type_id": 1}}]
    processor = {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": specials}
    return {"post_processor": {"type": "Sequence", "processors": [BYTE_LEVEL, processor]}}


def with_spaces(*, normalized):
    return [("<|padding|>", {}), *((" " * n, {"normalized": normalized, "special": False}) for n in range(2, 6))]


LLAMA = {"steps": [split_at(bpe.PATTERNS["llama3"]), BYTE_LEVEL], "all_splits": True, "ignore_merges": True}
QWEN = {"steps": [split_at(bpe.PATTERNS["qwen2"]), BYTE_LEVEL], "normalizer": {"type": "NFC"}}
KINDS = {
    "Llama 3": LLAMA,
    "Llama 3.1": {**LLAMA, **template("<|begin|>")},
    "Llama 3.2": {**LLAMA, **template("<|begin|>"), "truncation": {
        "direction": "Right", "max_length": 10**6, "strategy": "LongestFirst", "stride": 0}},
    "gpt-oss": {**LLAMA, "steps": [split_at(bpe.PATTERNS["o200k"]), BYTE_LEVEL]},
    "GPT-3.5": {"steps": [split_at(bpe.PATTERNS["llama3"], "Removed"), BYTE_LEVEL]},
    "GPT-4o": {"steps": [split_at(bpe.PATTERNS["o200k"], "Removed"), BYTE_LEVEL], "all_splits": True},
    "Qwen 2.5": QWEN,
    "Qwen 3": {**QWEN, "added": [("<|im_end|>", {}), ("<think>", {"special": False}), ("\u00e9\u0301<", {})]},
    "Claude": {"steps": OWN_PATTERN, "normalizer": {"type": "NFKC"}, "added": [("<EOT>", {}), ("<META>", {})]},
    "GPT-NeoX": {"steps": OWN_PATTERN, "normalizer": {"type": "NFC"}, "added": with_spaces(normalized=True)},
    "StarCoder": {"steps": [EACH_DIGIT, OWN_PATTERN]},
    "SmolLM": {"steps": [{"type": "Digits", "individual_digits": False}, OWN_PATTERN], "decoder": None},
    "DeepSeek": {"steps": [split_at(THREE_DIGITS), split_at(KANA), split_at(DEEPSEEK), BYTE_LEVEL],
                 "normalizer": {"type": "Sequence", "normalizers": []}},
    "one word": {"steps": BYTE_LEVEL},
    "matches only": {"steps": [split_at(r"[a-z ]+|\d", "Removed"), BYTE_LEVEL], "lossy": True},
}  # fmt: skip
FORMS = [  # what NFC and NFKC change, and what only looks like it
    "e\u0301", "\u00e9", "\u0301", "\u0958", "\u0958.", "\u1112\u1161\u11ab", "\uac00\u11a8", "\u2126", "\u212b", "ﬁ", "™", "①",
    "か\u3099", "か゛", "ｶﾞ", "\uff9e", "=\u0338", "a\u0323\u0307", "a\u0307\u0323", "Ａ１", "＜EOT＞", "<EOT", "…", "½", "\u037e", "\u00a0",
]  # fmt: skip


@functools.cache
def foreign(kind):
    """The contents of a tokenizer.json, written by hand: 256 bytes and merges, words that no merge makes, and added tokens."""
    options = {"added": [("<|begin|>", {}), ("<|end|>", {})], "all_splits": False, "steps": None, **KINDS[kind]}
    _, merges = trained(2000)
    tokens = [bytes([byte]) for byte in range(256)] + [b"".join(pair) for pair in merges]
    tokens = list(dict.fromkeys(tokens))[:1995] + [b" ferrys", b"zzz", "字字".encode(), "\u00e9t\u00e9s".encode(), b"1234567"]
    ids = {token: number for number, token in enumerate(tokens)}
    merges = [pair for pair in merges if b"".join(pair) in ids]
    if options["all_splits"]:
        splits = [(ids[token], ids[token[:n]], ids[token[n:]]) for token in tokens for n in range(1, len(token))
                  if token[:n] in ids and token[n:] in ids]  # fmt: skip
        merges = [(tokens[left], tokens[right]) for _, left, right in sorted(splits)]
    shown, lines = naive_files(dict(enumerate(tokens)), merges)
    added = [
        {"id": number, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True, **flags} for number, (text, flags) in enumerate(options["added"], len(tokens))
    ]  # fmt: skip
    steps = options["steps"]
    model = {"type": "BPE", "vocab": shown, "merges": lines.splitlines()[1:], "ignore_merges": options.get("ignore_merges", False)}
    content = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps} if isinstance(steps, list) else steps,
        "post_processor": None, "decoder": BYTE_LEVEL, "model": model,
    }  # fmt: skip
    entries = {name: options[name] for name in ("normalizer", "post_processor", "truncation", "decoder") if name in options}
    return json.dumps({**content, **entries}, ensure_ascii=False)


def texts_with_traps(seed, n, specials):
    rng = random.Random(seed)
    halves = [half for token in specials for half in (token, token[: len(token) // 2], token[len(token) // 2 :])]
    words = regex.findall(GPT2, PART)
    parts = [*TRICKY, *FORMS, *halves, *rng.sample(words, 200), "zzz", " ferrys", "字字", "\u00e9t\u00e9s", "e\u0301te\u0301s", "1234567", "  "]
    return [random_text(rng, rng.choice([parts, FORMS + halves + ["a", " ", "1"]]), rng.randint(0, 24)) for _ in range(n)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_the_kinds_that_people_have_gives_their_ids(tmp_path, cut, kind):
    tokenizers = need("tokenizers")
    path = tmp_path / "tokenizer.json"
    path.write_text(foreign(kind), encoding="utf-8")
    theirs, tokenizer = tokenizers.Tokenizer.from_file(str(path)), bpe.Tokenizer.load(path)
    texts = [*texts_with_traps(kind, MANY, tokenizer.special_tokens), PART]
    expected = [ids.ids for ids in theirs.encode_batch(texts, add_special_tokens=False)]
    assert [tokenizer.encode(text) for text in texts] == expected
    assert tokenizer.encode_batch(texts) == expected
    if "normalizer" not in KINDS[kind] and "lossy" not in KINDS[kind]:
        assert [tokenizer.decode(ids) for ids in expected] == texts
    rng, cut_small = random.Random(1), cut(300, 200)
    for text, ids in zip(texts[::5], expected[::5]):
        assert list(tokenizer.encode_iterable(split_anywhere(rng, text))) == ids
    whole = "".join(texts[:300])
    (tmp_path / "text.txt").write_bytes(whole.encode())
    tokenizer.encode_files(tmp_path / "text.txt", tmp_path / "ids.npy", workers=1)
    assert read_ids(tmp_path / "ids.npy")[1] == theirs.encode(whole, add_special_tokens=False).ids, cut_small
    assert list(tokenizer.encode_iterable(split_anywhere(rng, whole))) == tokenizer.encode(whole)

    tokenizer.save(tmp_path / "again")
    again = bpe.Tokenizer.load(tmp_path / "again")
    again.save(tmp_path / "third")
    assert files_of(tmp_path / "again") == files_of(tmp_path / "third")
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "again/tokenizer.json"))
    assert [ids.ids for ids in theirs.encode_batch(texts, add_special_tokens=False)] == expected
    for same in (again, pickle.loads(pickle.dumps(tokenizer)), copy.deepcopy(tokenizer)):
        assert [same.encode(text) for text in texts[::5]] == expected[::5]
    content, saved = json.loads(foreign(kind)), json.loads((tmp_path / "again/tokenizer.json").read_bytes())
    assert (saved["post_processor"], saved["truncation"]) == (content["post_processor"], content["truncation"])
    # text that is not trusted: no id of a special token that is not a word of the vocabulary too
    ordinary = {token_id for text in texts for token_id in tokenizer.encode_ordinary(text)}
    assert not ordinary & set(tokenizer.special_ids.values())


@only_c
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_another_program_goes_through_transformers_and_back(tmp_path, kind):
    transformers = need("transformers")
    (tmp_path / "tokenizer.json").write_text(foreign(kind), encoding="utf-8")
    tokenizer = bpe.Tokenizer.load(tmp_path)
    tokenizer.save(tmp_path / "ours")
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "ours"))
    theirs.save_pretrained(str(tmp_path / "theirs"))
    again = bpe.Tokenizer.load(tmp_path / "theirs")
    for text in texts_with_traps(kind, 100, tokenizer.special_tokens):
        assert theirs(text, add_special_tokens=False)["input_ids"] == tokenizer.encode(text) == again.encode(text)


def test_show_and_the_summary_say_why_python_encodes(main, engine):
    for kind, in_c in [("DeepSeek", "Python (C does not split text in several steps)"), ("Qwen 3", "C"), ("Llama 3", "C")]:
        os.makedirs("bpeModel", exist_ok=True)
        Path("bpeModel/tokenizer.json").write_text(foreign(kind), encoding="utf-8")
        expected = in_c if engine == "c" else f"Python ({bpe.find_engine()[1]})"
        status, _, stderr = main("words.txt", "--encode", "ids.npy")
        assert status == 0 and summary(stderr)["engine"] == expected
        status, stdout, stderr = main("--show", "low 1234")
        assert status == 0 and stdout.count("\n") == 3
        assert summary(stderr) == ({"engine": expected} if kind == "DeepSeek" else {})
        assert read_ids("ids.npy")[1] == bpe.Tokenizer.load("bpeModel").encode(TEXTBOOK)


RULES = {  # entry: its values; any of them go together
    "normalizer": [None, {"type": "NFC"}, {"type": "NFKC"}, {"type": "Sequence", "normalizers": [{"type": "NFC"}]}],
    "steps": [OWN_PATTERN, [split_at(bpe.PATTERNS["cl100k"]), BYTE_LEVEL], [EACH_DIGIT, OWN_PATTERN], [split_at("[A-Za-z]+"), BYTE_LEVEL],
              [split_at(THREE_DIGITS), split_at(bpe.PATTERNS["gpt2"], "Removed"), OWN_PATTERN]],
    "added": [[("<|end|>", {})], with_spaces(normalized=True), with_spaces(normalized=False),
              [("<EOT>", {"normalized": True}), ("1 2", {"normalized": True, "special": False}), ("<|end|>", {})]],
    "ignore_merges": [False, True], "all_splits": [False, True],
}  # fmt: skip


@pytest.mark.parametrize("seed", range(8 + MANY // 50))
def test_the_rules_of_other_programs_go_together(tmp_path, monkeypatch, cut, seed):
    tokenizers, rng = need("tokenizers"), random.Random(seed)
    monkeypatch.setitem(KINDS, f"random {seed}", {name: rng.choice(values) for name, values in RULES.items()})
    path = tmp_path / "tokenizer.json"
    path.write_text(foreign(f"random {seed}"), encoding="utf-8")
    theirs, tokenizer = tokenizers.Tokenizer.from_file(str(path)), bpe.Tokenizer.load(path)
    texts = texts_with_traps(seed, MANY // 2, tokenizer.special_tokens)
    expected = [ids.ids for ids in theirs.encode_batch(texts, add_special_tokens=False)]
    assert [tokenizer.encode(text) for text in texts] == expected
    tokenizer.save(tmp_path)
    assert [bpe.Tokenizer.load(path).encode(text) for text in texts[:20]] == expected[:20]
    cut(100)
    whole = "".join(texts)
    (tmp_path / "text.txt").write_bytes(whole.encode())
    tokenizer.encode_files(tmp_path / "text.txt", tmp_path / "ids.npy", workers=1)
    assert read_ids(tmp_path / "ids.npy")[1] == theirs.encode(whole, add_special_tokens=False).ids == tokenizer.encode(whole)


@only_python
def test_everything_that_is_not_supported_is_said_at_once(tmp_path):
    content = json.loads(foreign("Llama 3"))
    content["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Lowercase"}]}
    content["pre_tokenizer"] = None
    content["model"].update(byte_fallback=True, fuse_unk=True)
    content["added_tokens"][0].update(lstrip=True)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ValueError) as caught:
        bpe.Tokenizer.load(tmp_path)
    for reason in ("pre_tokenizer = null is not supported", 'normalizers.0.type = "Prepend"', 'normalizers.1.type = "Lowercase"',
                   "model.byte_fallback = true", "model.fuse_unk = true", "added_tokens.0.lstrip = true"):  # fmt: skip
        assert reason in str(caught.value)
    assert str(caught.value).count(" is not supported") == 8 and "\n" not in str(caught.value)


@only_python
@pytest.mark.parametrize("entry, value, text", [
    ("pre_tokenizer", None, "pre_tokenizer = null is not supported"),
    ("pre_tokenizer", {"type": "Sequence", "pretokenizers": []}, r'pre_tokenizer = .*"pretokenizers": \[\]} is not supported'),
    ("pre_tokenizer", {"type": "Metaspace"}, 'pre_tokenizer.pretokenizers.0.type = "Metaspace" is not supported'),
    ("version", "2.0", 'version = "2.0" is not supported'),
    ("model", {"type": "Unigram", "vocab": [["a", 0.0]]}, 'model.type = "Unigram" is not supported'),
    ("normalizer", {"type": "NFD"}, 'normalizer.type = "NFD" is not supported'),
    *[("normalizer", {"type": "NFC"}, rf"added_tokens\.0\.{flag} = true is not supported") for flag in ("lstrip", "rstrip", "single_word")],
    ("normalizer", {"type": "NFC"}, "the normalized added token .* is not in NFC"),
    *[("post_processor", {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|begin|>", "type_id": 0}}, *texts],
                          "pair": [], "special_tokens": {}}, "a template of .* is not supported: text A must be in it once")
      for texts in ([], [{"Sequence": {"id": "A", "type_id": 0}}] * 2, [{"Sequence": {"id": "B", "type_id": 0}}])],
])  # fmt: skip
def test_an_entry_that_is_not_supported_is_named_with_its_value(tmp_path, entry, value, text):
    content = {**json.loads(foreign("Llama 3")), entry: value}
    flag = text.split(".")[2].split(" ")[0].rstrip("\\") if text.startswith("added") else ""
    content["added_tokens"][0].update({flag: True} if flag else {})
    if "not in NFC" in text:
        content["added_tokens"][0].update(content="e\u0301e", normalized=True)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=rf"tokenizer\.json: {text}[^;]*$"):
        bpe.Tokenizer.load(tmp_path)


@only_python
@pytest.mark.parametrize("data, text", [
    (b"", "the file is empty"), (b"\n", "the file is empty"), (LFS_POINTER, "this is a Git LFS pointer"),
    (b"<!doctype html><title>Sign in</title>", "this looks like a web page"),
])
def test_a_file_that_is_no_model_is_said_to_be_what_it_looks_like(words_txt, data, text):
    for name in ("tokenizer.json", "vocab.json", "merges.txt"):
        bpe.Tokenizer(*trained(300), [END]).save("model")
        Path("model", name).write_bytes(data)
        with pytest.raises(ValueError, match=f"{name}: {text}"):
            if name == "tokenizer.json":
                bpe.Tokenizer.load("model")
            else:
                bpe.Tokenizer.from_files("model/vocab.json", "model/merges.txt")


def two_files(vocab, merges):
    Path("vocab.json").write_text(json.dumps(vocab, ensure_ascii=False), encoding="utf-8")
    Path("merges.txt").write_text(merges, encoding="utf-8")
    return "vocab.json", "merges.txt"


@only_python
@pytest.mark.parametrize("vocab, merges, part", [
    ({"l": 0, "o": 1, "w": 2, "w</w>": 3, "lo": 4, "low</w>": 5}, "l o\nlo w</w>", "w</w>"),  # CLIP's kind
    ({"l": 0, "o@@": 1, "w": 2, "lo@@": 4}, "l o@@", "o@@"),
    ({"▁": 0, "l": 1, "▁l": 2}, "▁ l", "▁"),  # of characters beyond ASCII
])
def test_merges_of_another_kind_are_an_error_and_not_other_ids(words_txt, vocab, merges, part):
    with pytest.raises(ValueError, match=f"merges.txt: line .: no merge makes '{part}'; these are not merges of bytes"):
        bpe.Tokenizer.from_files(*two_files(vocab, merges))


@only_python
def test_the_two_files_may_have_a_bom_and_tokens_that_are_text(words_txt):
    vocab = {"l": 0, "o": 1, "w": 2, "lo": 3, "<mask> ": 4, "[TAB]\t": 5, "😀": 6, "<d\u00e9but>": 7}
    expected = {0: b"l", 1: b"o", 2: b"w", 3: b"lo", 4: b"<mask> ", 5: b"[TAB]\t", 6: "😀".encode(), 7: "<d\u00e9but>".encode()}
    for bom in ("", "\ufeff"):
        paths = two_files(vocab, f"{bom}#version: 0.2\nl o\n")
        tokenizer = bpe.Tokenizer.from_files(*paths, ["<mask> ", "[TAB]\t", "😀", "<d\u00e9but>"])
        assert tokenizer.vocab == expected and tokenizer.encode("low<mask> 😀[TAB]\t<d\u00e9but>") == [3, 2, 4, 6, 5, 7]
    assert bpe.Tokenizer.from_files(*paths).vocab == {**expected, 7: b"<d\xe9but>"}  # not named as a special token


@only_python
def test_a_merge_that_is_not_in_the_vocabulary_is_named_with_its_line(words_txt):
    for line, missing in [("zz l", "zz"), ("l zz", "zz"), ("l w", "lw")]:
        paths = two_files({"l": 0, "o": 1, "w": 2, "lo": 3}, f"#version: 0.2\nl o\n\n\n{line}\n")
        with pytest.raises(ValueError, match=f"merges.txt: line 5: '{missing}' is not in vocab.json"):
            bpe.Tokenizer.from_files(*paths)
    two_files([1], "")
    with pytest.raises(ValueError, match="vocab.json: not a byte-level BPE model .*tokenizer.json is for Tokenizer.load"):
        bpe.Tokenizer.from_files("vocab.json", "merges.txt")
    content = json.loads(foreign("Llama 3"))
    content["model"]["merges"].append("zz l")
    Path("tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="a merge uses 'zz', which is not in the vocabulary"):
        bpe.Tokenizer.load("tokenizer.json")


@only_python
def test_a_special_token_that_is_spelled_like_another_token_is_not_saved(words_txt):
    vocab = {**dict(enumerate(bpe.BYTES)), 256: b"<d\xe9but>"}  # bytes that no text has, so they were never learned
    with pytest.raises(ValueError, match="a special token is also another token in printable characters"):
        bpe.Tokenizer(vocab, [], ["<début>"]).save("model")


@only_python
def test_only_letters_and_marks_are_ever_joined_to_the_character_before_them():
    """What cuts of text rely on that is normalized afterwards, for each code point of this Python."""
    for character in map(chr, range(0x110000)):
        parts = unicodedata.decomposition(character).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            first, second = (chr(int(part, 16)) for part in parts)
            assert unicodedata.category(second)[0] in "LM"
            if unicodedata.category(first)[0] not in "LNM" and unicodedata.normalize("NFC", first + second) == character:
                assert unicodedata.category(character)[0] not in "LNM"
        if unicodedata.combining(character):
            assert unicodedata.category(character)[0] == "M"


@only_python
@pytest.mark.parametrize("form", ["NFC", "NFKC"])
def test_text_that_is_normalized_later_is_cut_where_its_words_stay(form):
    rng, cuts = random.Random(form), 0
    for normalized in ((), ("1 2", "b.a", "<EOT>")):
        for _ in range(5 * MANY):
            text = random_text(rng, [*FORMS, *"ab.1 '<>=", "\u3099", "\u0338", "b.", "1 2", "<EOT>"], rng.randint(5, 40))
            for name in ("gpt2", "cl100k", "o200k", "llama3"):
                place = bpe.last_cut(text.encode(), (form, name), normalized, normalized)
                parts = [part.decode() for part in (text.encode()[:place], text.encode()[place:])]
                words = [naive_split(unicodedata.normalize(form, part), bpe.PATTERNS[name]) for part in parts]
                whole = unicodedata.normalize(form, text)
                assert functools.reduce(operator.iadd, words, []) == naive_split(whole, bpe.PATTERNS[name])
                cuts += place > 0
                n = len(unicodedata.normalize(form, parts[0]))
                for token in normalized:
                    assert all(token not in whole[at : at + len(token)] for at in range(max(n - len(token) + 1, 0), n)), (text, place)
    assert cuts > MANY


PRETOKENIZERS = r"pre_tokenizer\.pretokenizers\."


def with_unknown_bytes(content):
    del content["model"]["vocab"]["a"]
    content["model"].update(unk_token=END, merges=[])


def with_a_repeated_merge(content):
    content["model"]["merges"].insert(1, content["model"]["merges"][0])
    content["model"]["ignore_merges"] = True


REFUSED = [
    (with_change("normalizer", {"type": "NFD"}), r'normalizer\.type = "NFD" is not supported'),
    (with_a_repeated_merge, r"merge 1 .*\(b'.*', b'.*'\), repeats an earlier one"),
    (with_change("model", "byte_fallback", True), r"model\.byte_fallback = true is not supported"),
    (with_change("model", "dropout", 0.1), r"model\.dropout = 0\.1 is not supported"),
    (with_change("model", "continuing_subword_prefix", "##"), r'model\.continuing_subword_prefix = "##" is not supp'),
    (with_change("model", "end_of_word_suffix", "</w>"), r'model\.end_of_word_suffix = "</w>" is not supported'),
    (with_change("model", "fuse_unk", True), r"model\.fuse_unk = true is not supported"),
    (with_unknown_bytes, "unk_token|the byte b'a'"),
    (with_change("model", "type", "WordPiece"), "WordPiece"),
    (with_change("model", {"type": "Unigram", "vocab": [["a", 0.0]]}), "Unigram|not a byte-level"),
    (with_change("model", "something_new", 7), r"model\.something_new = 7 is not supported"),
    (with_change("something_new", {"a": [1]}), r"something_new.* is not supported"),
    (with_change("pre_tokenizer", "pretokenizers", 1, "add_prefix_space", True),
     PRETOKENIZERS + "1.add_prefix_space = true is not supported"),
    (lambda content: content["pre_tokenizer"]["pretokenizers"].pop(), "pre_tokenizer"),
    (lambda content: content["pre_tokenizer"]["pretokenizers"].clear(), "pre_tokenizer|not a byte-level"),
    (with_change("pre_tokenizer", {"type": "Whitespace"}), "pre_tokenizer"),
    (with_change("pre_tokenizer", "pretokenizers", 0, "invert", True), PRETOKENIZERS + "0.invert = true is not supp"),
    (with_change("pre_tokenizer", "pretokenizers", 0, "behavior", "Removed"), PRETOKENIZERS + '0.behavior = "Removed"'),
    (with_change("pre_tokenizer", "pretokenizers", 0, "pattern", {"String": " "}), "pre_tokenizer.*String"),
    (with_change("decoder", {"type": "WordPiece", "prefix": "##", "cleanup": True}), "decoder"),
    (with_token("<x>", single_word=True), r"added_tokens\.1\.single_word = true is not supported"),
    (with_token("<x>", lstrip=True), r"added_tokens\.1\.lstrip = true is not supported"),
    (with_token("<x>", rstrip=True), r"added_tokens\.1\.rstrip = true is not supported"),
    *[(with_token(text, normalized=True), "overlaps another, and only one is normalized")
      for text in ("text|><", f"x{END}y", f"{END}y")],  # tokenizers looks for others first
    (with_token("é"), "é|same bytes"),  # the name of the byte E9
    (with_token(END, id=256), "duplicate.*endoftext"),
    (with_change("added_tokens", 0, "id", 300), r"added_tokens\.0\.id = 300"),
    (lambda content: [with_token("<x>", id=number)(content) for number in (600, 601)], "<x>"),
    (with_token("<x>", id=601), r"added_tokens\.1\.id = 601"),
    (with_change("model", "vocab", END, 9999), r"added_tokens\.0\.id"),
    (with_token("x\ufffd"), "special token"),
]  # fmt: skip


@only_python
@pytest.mark.parametrize("change, text", REFUSED)
def test_a_tokenizer_json_with_more_than_tokenizer_does_is_an_error_that_names_it(tmp_path, change, text):
    bpe.Tokenizer(*trained(600), [END]).save(tmp_path)
    path = changed(tmp_path, change)
    for place in (path, tmp_path):
        with pytest.raises(ValueError, match=rf"(?s){regex.escape(str(tmp_path))}.*({text})"):
            bpe.Tokenizer.load(place)


@only_python
@pytest.mark.parametrize("special_tokens", [[f"<{n}>" for n in range(1000)], ["ab" * 10_000, "ac" * 10_000]])
def test_many_or_long_added_tokens_are_checked_fast(tmp_path, special_tokens):
    bpe.Tokenizer(*trained(300), special_tokens).save(tmp_path)
    half = lambda content: [token.update(normalized=True) for token in content["added_tokens"][::2]]  # noqa: E731
    path = changed(tmp_path, half)
    start = time.process_time()
    assert list(bpe.Tokenizer.load(path).special_ids) == special_tokens
    assert time.process_time() - start < 2


@pytest.mark.parametrize("change", [
    ('"content": "<|endoftext|>"', '"content": 5'), ('"content": "<|endoftext|>"', '"content": "\\ud800"'),
    ('"content": "<|endoftext|>"', '"text": ""'), ('"Regex": ', '"Regex": [], "": '), ('"Regex": ', '"": '),
    ('"added_tokens": [', '"added_tokens": [7,'), ('"pretokenizers": [', '"pretokenizers": [3,'), ("{", "[{"),
    ("]]", '],\n["e", "st"]]'), ('["e",\n"st"]', '["x",\n"st"]'), ('["e",\n"st"]', '["e", "st", "x"]'), ("Ġ", "Ġ "),
    *[(id, wrong) for id in (": 256", ": 257") for wrong in (": 255", ": -1", ': "x"', ": true", ": 1" + 5000 * "0")],
    "{}", "[]", "", "\udcff", '{"added_tokens": []}', '{"added_tokens": 5, "pre_tokenizer": {"pretokenizers": []}}',
    '{"added_tokens": [], "pre_tokenizer": null}', '{"model": ' * 100_000,
], ids=lambda change: repr(change)[:40])  # fmt: skip
@only_python
def test_a_damaged_tokenizer_json_is_an_error_with_its_name(error, change):
    train_and_save("model", "words.txt", 265, [END])
    path = Path("model/tokenizer.json")
    text = path.read_text(encoding="utf-8")
    new = text.replace(*change, 1) if isinstance(change, tuple) else change
    assert new != text
    path.write_text(new, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(ValueError, match=r"model"):
        bpe.Tokenizer.load("model")
    assert "model" in error("words.txt", "--encode", "ids.npy", "--model", "model") and not os.path.exists("ids.npy")


@only_python
def test_running_out_of_memory_while_loading_is_not_blamed_on_the_file(tmp_path, monkeypatch):
    bpe.Tokenizer(*trained(300)).save(tmp_path)
    monkeypatch.setattr(bpe, "read_tokenizer_json", lambda content: (_ for _ in ()).throw(MemoryError))
    with pytest.raises(MemoryError):
        bpe.Tokenizer.load(tmp_path)


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
    pattern = bpe.Tokenizer.from_files(*paths, [END], "o200k").options.pattern
    assert pattern == "o200k"


@pytest.mark.parametrize("name, change", [
    *[("vocab.json", data) for data in (b"", b"[1]", b'{"a": 1', b'{"\xff": 1}', b'{"a":' * 100_000, b'{"a b": 1}')],
    *[("vocab.json", b'{"a": %s}' % wrong) for wrong in (b"-1", b'"x"', b"true", b'1, "b": 1')],
    ("vocab.json", (b": 256", b": 255")), ("merges.txt", b"a b\nab\n"), ("merges.txt", b"#version: 0.2\na b c\n"),
    ("merges.txt", b"a b\n#version: 0.2\na  b"), ("merges.txt", (b"e st\n", b"x \xff\n")),
    ("merges.txt", (b"e st\n", b"e st\ne st\n")), ("merges.txt", (b"s t\n", b"s tt\n")),
])  # fmt: skip
@only_python
def test_damaged_files_in_gpt2s_format_are_errors_with_a_name(words_txt, name, change):
    train_and_save("model", "words.txt", 265, [END])
    edit(Path("model", name), lambda data: data.replace(*change, 1) if isinstance(change, tuple) else change)
    with pytest.raises(ValueError, match="model/(vocab.json|merges.txt)|repeats an earlier one"):
        bpe.Tokenizer.from_files("model/vocab.json", "model/merges.txt", [END])


@only_python
@pytest.mark.parametrize("how", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("old, new", [(None, 0), (0, 1), (3, 2)])
def test_an_interruption_before_any_rename_leaves_the_old_model_or_the_new_one(tmp_path, models, how, old, new):
    folder, replace, seen = tmp_path / "model", os.replace, []
    tokenizer, n_files = bpe.Tokenizer.load(models[new][0]), len(os.listdir(models[new][0]))
    for before in range(n_files):
        shutil.rmtree(folder, ignore_errors=True)
        if old is not None:
            shutil.copytree(models[old][0], folder)
        effects = [*[replace] * before, lambda *paths: (_ for _ in ()).throw(how)]
        with pytest.MonkeyPatch.context() as patched, pytest.raises(type(how)):
            patched.setattr(os, "replace", lambda *paths: effects.pop(0)(*paths))  # noqa: B023 (called at once)
            tokenizer.save(folder)
        assert not list(folder.glob("*.tmp"))
        seen.append(model_in(folder) if (folder / "tokenizer.json").exists() else None)
    expected = [models[new][1], models[old][1] if old is not None else None]
    assert all(model in expected for model in seen) and seen[0] == expected[1]  # before the first rename


@only_python
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("make", [getattr(os, "mkfifo", None), os.mkdir, functools.partial(os.symlink, os.devnull)])
@pytest.mark.parametrize("path", ["model/merges.txt", "model/tokenizer.json", "ids.npy"])
def test_only_regular_files_are_replaced_and_anything_else_is_an_error(main, make, path):
    tokenizer = bpe.Tokenizer(*trained(300))
    for folder in ("model", "bpeModel"):
        tokenizer.save(folder)
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
    make(path)
    write = functools.partial(tokenizer.encode_files, "words.txt", path) if path == "ids.npy" else tokenizer.save
    with pytest.raises(ValueError, match="refusing to overwrite .*: not a regular file"):
        write(*["model"] * (path != "ids.npy"))
    arguments = ["--encode", path] if path == "ids.npy" else [300, "--model", "model"]
    status, _, stderr = main("words.txt", *arguments)
    assert status == 2 and "not a regular file" in stderr.splitlines()[-1]
    assert not os.path.isfile(path) and not list(Path().glob("**/*.tmp"))


class FullDisk(io.FileIO):
    def write(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@only_python
def test_a_full_disk_is_named_and_the_training_is_not_lost(main, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(bpe, "open", lambda path, *rest, **more: (FullDisk if "no_room" in str(path) else open)(path, *rest, **more),
                        raising=False)  # fmt: skip
    status, _, stderr = main("words.txt", 300, "--model", "no_room")
    place = r"error: No space left on device: '.*no_room.tokenizer\.json'; the model is in (.*)"
    match = regex.fullmatch(place, stderr.splitlines()[-1])
    assert status == 2 and match and not os.listdir("no_room"), stderr
    assert model_in(match[1]) == bpe.train_bpe("words.txt", 300, [END])
    with pytest.raises(OSError, match="No space left on device: .*no_room.npy"):
        bpe.Tokenizer(*trained(300)).encode_files("words.txt", "no_room.npy")
    os.mkdir("no_room_either")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "no_room_either"))
    status, _, stderr = main("words.txt", 300, "--model", "no_room")
    both = r"error: No space left on device: '.*no_room/tokenizer\.json'; .*: No space left on device: '.*no_room_either/.*'"
    assert status == 2 and regex.fullmatch(both, stderr.splitlines()[-1]), stderr


@only_python
def test_temporary_files_of_killed_runs_are_removed_after_a_day(tmp_path):
    old, new, other = (f"{name}.0.bpe.tmp" for name in ("tokenizer.json", "vocab.json", "other"))
    for name in (old, new, other):
        (tmp_path / name).write_text("begun")
    for name in (old, other):
        os.utime(tmp_path / name, (0, time.time() - 25 * 3600))
    tokenizer = bpe.Tokenizer(*trained(300))
    tokenizer.save(tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*.tmp")) == [other, new]
    assert (tmp_path / new).read_text() == "begun" and model_in(tmp_path) == contents(tokenizer)[:2]


@only_python
def test_a_folder_of_many_files_is_not_listed_for_each_new_one(tmp_path, monkeypatch):
    """In a folder of 30,000 files, listing took 20 ms; the array takes 0.4."""
    (tmp_path / "text.txt").write_text("low")
    tokenizer = bpe.Tokenizer(*trained(300))
    seen, watching = [], [True]  # a hook stays as long as the process
    sys.addaudithook(lambda event, arguments: watching and seen.append(event))
    tokenizer.save(tmp_path)
    tokenizer.encode_files(tmp_path / "text.txt", tmp_path / "ids.npy")
    watching.clear()
    assert "open" in seen and not {"os.listdir", "os.scandir"} & set(seen)


@only_python
@pytest.mark.parametrize("exists", [True, False])
def test_links_are_written_through(words_txt, exists):
    """A folder or a file that is a link stays one, even if what it leads to does not exist yet."""
    tokenizer = bpe.Tokenizer(*trained(300), [END])
    os.symlink("there", "model")
    os.symlink("ids", "ids.npy")
    if exists:
        os.mkdir("there")
        os.symlink(os.path.abspath("json"), "there/tokenizer.json")
        Path("json").write_text("earlier")
        Path("ids").write_text("earlier")
    tokenizer.save("model")
    tokenizer.encode_files("words.txt", "ids.npy")
    assert os.readlink("model") == "there" and os.readlink("ids.npy") == "ids" and read_ids("ids")[1]
    assert os.path.islink("there/tokenizer.json") == exists
    assert bpe.Tokenizer.load("json" if exists else "there").vocab == tokenizer.vocab


@only_python
def test_special_tokens_that_the_files_write_like_other_tokens_cannot_be_saved(error):
    """All of their characters stand for bytes in printable tokens, and they are not ASCII."""
    printable = sorted(naive_files({byte: bytes([byte]) for byte in range(256)}, [])[0])
    for special in [*printable[94:], "Ġlow", "ĊĊ", "caf\u00e9", "Ã©", "©x", "°©©é"]:  # 94 are ASCII
        assert f"special token '{special}'" in error("words.txt", 300, "--special-token", special)
        with pytest.raises(ValueError, match="special token '"):
            bpe.Tokenizer.train("nowhere.txt", 300, [special])  # before any work
    vocab, merges = bpe.train_bpe(None, 300, ["é"], texts=["low"])
    assert vocab[256] == "é".encode()  # no problem until it is saved
    with pytest.raises(ValueError, match="special token 'é'"):
        bpe.Tokenizer(vocab, merges, ["é"]).save("model")
    assert os.listdir() == ["words.txt"]


@only_python
def test_special_tokens_that_are_no_bytes_of_utf8_can_be_saved(words_txt):
    """"é" would be the byte E9, which a continuation byte follows in any text, so no token is read as "<début>"."""
    for special in ["éé", "<début>", "«END»", "<|im start|>", "[TAB]\t", "😀", "<｜begin▁of▁sentence｜>", "\u00a0\u00a0"]:
        tokenizer = bpe.Tokenizer.train("words.txt", 300, [special])
        tokenizer.save("model")
        assert json.loads(Path("model/vocab.json").read_bytes())[special] == 256
        again = bpe.Tokenizer.from_files("model/vocab.json", "model/merges.txt", [special])
        for same in (bpe.Tokenizer.load("model"), again):
            assert contents(same) == contents(tokenizer) and same.encode(f"low{special}")[-1] == 256
        before = bytes_of_printable(special)  # how version 0.5.0 wrote it
        now = json.dumps(special, ensure_ascii=False).encode()
        edit(Path("model/vocab.json"), lambda data: data.replace(now, before, 1))  # noqa: B023 (called at once)
        again = bpe.Tokenizer.from_files("model/vocab.json", "model/merges.txt", [special])
        assert contents(again) == contents(tokenizer)


def bytes_of_printable(text):
    """The JSON of text whose bytes are printable characters."""
    return json.dumps(next(iter(naive_files({0: text.encode()}, [])[0])), ensure_ascii=False).encode()


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
@pytest.mark.parametrize("size, pattern", [
    (300, "gpt2"), (2000, "gpt2"), (32_000, "gpt2"), (2000, "cl100k"), (2000, "o200k"), (300, "llama3"), (300, "qwen2"),
])  # fmt: skip
def test_a_folder_encodes_the_same_in_other_tools(tmp_path, size, pattern):
    tokenizer = bpe.Tokenizer(*trained(size, pattern), [END], pattern)
    tokenizer.save(tmp_path)
    theirs, encoding = load_elsewhere(tmp_path)
    for text in texts_for_others(size):
        ids = tokenizer.encode(text)
        assert theirs.encode(text).ids == ids, text[:100]
        assert encoding.encode(text, allowed_special="all") == ids, text[:100]
        assert encoding.encode_ordinary(text) == tokenizer.encode_ordinary(text), text[:100]
        assert encoding.decode(ids) == text == theirs.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize("special_tokens", [
    ["<a>", "<a><b>", END, "<|end", "[x] y"], *[[special] for special in ("é é", "字", "\u00a0", "<début>字")],
], ids=str)  # fmt: skip
def test_special_tokens_that_touch_or_nest_or_are_not_ascii_are_the_same_in_other_tools(tmp_path, special_tokens):
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


@only_c
@pytest.mark.parametrize("pattern", ["gpt2", "cl100k", "o200k"])
def test_transformers_loads_a_folder_and_writes_one_that_loads(tmp_path, pattern):
    transformers = need("transformers")
    tokenizer = bpe.Tokenizer(*trained(600, pattern), [END], pattern)
    tokenizer.save(tmp_path / "model")
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "model"))
    ids, text = tokenizer.encode(PART), f"Some new word, <pad>{END}!"
    assert theirs(PART)["input_ids"] == ids and theirs.decode(ids) == PART
    theirs.save_pretrained(str(tmp_path / "model"))  # over ours
    theirs.save_pretrained(str(tmp_path / "new"))
    for folder in ("model", "new"):
        again = bpe.Tokenizer.load(tmp_path / folder)
        again.options = dataclasses.replace(again.options, rest={})  # version 5 writes a template that adds nothing
        assert (again.vocab, again.merges, again.options) == (tokenizer.vocab, tokenizer.merges, tokenizer.options)
    theirs.add_tokens(["new word"])
    theirs.add_special_tokens({"pad_token": "<pad>"})
    for folder in ("model", "more"):
        theirs.save_pretrained(str(tmp_path / folder))
        assert bpe.Tokenizer.load(tmp_path / folder).encode(text) == theirs(text)["input_ids"]
        assert bpe.Tokenizer.load(tmp_path / folder).encode(PART) == ids


# --- VII. Large corpora: reading -------------------------------------------------------------------------------------


def test_the_end_of_a_file_is_a_boundary_and_any_order_of_files_is_the_same(tmp_path):
    first, second = tmp_path / "1.txt", tmp_path / "2.txt"
    first.write_text("ab ab x")
    second.write_text("y ab")
    counts = bpe.count_words([first, second], [])
    assert counts == {b"ab": 1, b" ab": 2, b" x": 1, b"y": 1}
    trained = [bpe.train_bpe(paths, 300, [], workers=1) for paths in ([first, second], [str(second), str(first)])]
    assert trained[0] == trained[1]


HINT = "zcat .*iconv -f .*--errors replace"


@pytest.mark.parametrize("bad", BAD_UTF8)
@pytest.mark.parametrize("place", [0, 3000, None])
def test_bytes_that_are_not_utf8_are_named_by_file_and_offset_with_a_hint(train, cut, bad, place):
    cut(3000)
    text = b"word and word. " * 700
    data = text + bad if place is None else text[:place] + bad + text[place:] + b"\xff"  # the first one is reported
    workers = 2 if bad == b"\xff" else 1  # one case with workers, which take time to start
    with pytest.raises(UnicodeDecodeError) as expected:
        data.decode()
    found = rf"byte {expected.value.start} \(0x{data[expected.value.start]:02x}, {expected.value.reason}\)$"
    with pytest.raises(ValueError, match=rf"text\.txt: not valid UTF-8 at {found}"):
        train(data, 300, workers=workers)
    assert train(data, 300, errors="replace", workers=workers) == train(data.decode(errors="replace"), 300, workers=1)


NOISE = random.Random(0).randbytes(4_000_000)


@pytest.mark.parametrize("by", ["file", "pipe", "command line"])
def test_a_corpus_that_is_not_text_is_an_error_at_once(words_txt, error, by):
    Path("data.bin").write_bytes(NOISE)
    start = time.process_time()
    if by == "command line":
        assert "data.bin: not valid UTF-8 at byte 0 " in error("data.bin", 300) and not os.path.exists("bpeModel")
    for pattern, special_tokens in ("gpt2", [END]), (CUSTOM, []), ("o200k", ["a a", "aa"]):
        with subprocess.Popen(["cat", "data.bin"], stdout=subprocess.PIPE) as cat:
            path = "data.bin" if by == "file" else f"/dev/fd/{cat.stdout.fileno()}"
            with pytest.raises(ValueError, match="not valid UTF-8 at byte 0 "):
                bpe.count_words(path, special_tokens, pattern=pattern, workers=1)
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize("text", ["\0" * 6, "\ufeffab", "a\r\nb"])
def test_odd_characters_are_text_like_any_other(train, recwarn, text):
    assert train(text, 300) == oracle(text, 300)
    assert all("tokens, not 300" in str(warning.message) for warning in recwarn.list)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_reading_names_the_file_that_failed_and_not_the_output(tmp_path, monkeypatch, workers, cut):
    class Broken(io.FileIO):
        def read(self, *size):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    broken = tmp_path / "broken.txt"
    broken.write_text("low lower\n" * 1000)
    opens = lambda path, *rest, **more: (Broken if str(path) == str(broken) else open)(path, *rest, **more)  # noqa: E731
    monkeypatch.setattr(bpe, "open", opens, raising=False)
    tokenizer, paths = bpe.Tokenizer(*trained(300)), [CORPUS, broken]
    for slice_bytes in (1 << 20, 3000):  # read by a worker alone; searched for cuts before
        cut(slice_bytes)
        for call in (lambda: tokenizer.encode_files(paths, tmp_path / "ids.npy", workers=workers),
                     lambda: bpe.count_words(paths, workers=workers)):  # fmt: skip
            with pytest.raises(OSError, match=r"Input/output error: .*broken\.txt") as caught:
                call()
            assert caught.value.filename == str(broken)


def test_files_that_cannot_be_read_or_written(tmp_path):
    (tmp_path / "file").write_text("x")
    encode = bpe.Tokenizer(*trained(300)).encode_files
    for call in (lambda paths: bpe.train_bpe(paths, 300, []), lambda paths: encode(paths, tmp_path / "ids.npy")):
        for paths, text in (([CORPUS, "missing.txt"], "missing.txt"), (tmp_path, "folder|directory")):
            with pytest.raises((ValueError, OSError), match=text):
                call(paths)
    for call, text in (
        (lambda: bpe.Tokenizer(*trained(300)).save(tmp_path / "file"), "file"),
        (lambda: encode(CORPUS, tmp_path / "file" / "ids.npy"), "file"),
        *[(lambda name=name: encode(CORPUS, name), r"\.npy") for name in ("out.txt", "out.bin", "")],
    ):  # fmt: skip
        with pytest.raises((ValueError, OSError), match=text):
            call()
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="needs another user's rights")
def test_no_permission(tmp_path):
    (tmp_path / "secret.txt").write_text("x")
    (tmp_path / "locked").mkdir()
    for path, mode in ((tmp_path / "secret.txt", 0), (tmp_path / "locked", 0o555), *zip(tmp_path.parents, [0o755] * 2)):
        path.chmod(mode)
    user = os.geteuid()
    try:
        os.seteuid(user or 65534)  # root may read and write everything
        with pytest.raises(PermissionError):
            bpe.train_bpe(tmp_path / "secret.txt", 300)
        with pytest.raises(PermissionError):
            bpe.Tokenizer({}, []).save(tmp_path / "locked" / "x")
    finally:
        os.seteuid(user)


def test_a_file_that_becomes_shorter_while_it_is_read_is_an_error(tmp_path, monkeypatch, cut):
    cut(1000)
    path, opened = tmp_path / "text.txt", itertools.count()
    path.write_bytes(b"low lower\n" * 1000)
    shorten = lambda *arguments: (next(opened) == 4 and os.truncate(path, 5000), open(*arguments))[1]  # noqa: E731, SIM115
    monkeypatch.setattr(bpe, "open", shorten, raising=False)
    with pytest.raises(ValueError, match="text.txt.*(changed|fewer bytes)"):
        bpe.count_words(path, [], workers=1)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc here")
def test_a_file_that_does_not_know_its_size_is_read():
    assert os.path.getsize("/proc/self/status") == 0
    assert bpe.count_words("/proc/self/status", [])[b"Name"] == 1


def test_a_pipe_that_does_not_wait_is_read_to_its_end():
    reading, writing = os.pipe()
    os.set_blocking(reading, False)  # nothing has arrived yet, which would seem to be its end
    threading.Timer(0.1, lambda: os.write(writing, b"low lower") and os.close(writing)).start()
    with os.fdopen(reading, "rb"):
        assert bpe.count_words(f"/dev/fd/{reading}", []) == {b"low": 1, b" lower": 1}


# --- VII. Large corpora: workers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("source", ["file", "pipe", "texts"])
def test_the_number_of_workers_changes_nothing(cut, workers, source):
    cut(20_000)
    texts = iter(FIXTURE.split(END)) if source == "texts" else None
    with subprocess.Popen(["cat", CORPUS], stdout=subprocess.PIPE) as cat:
        path = {"file": CORPUS, "pipe": f"/dev/fd/{cat.stdout.fileno()}", "texts": None}[source]
        assert bpe.count_words(path, [END], texts=texts, workers=workers) == words_of_the_fixture()


def test_no_more_workers_than_cores_run_at_once(words_txt, monkeypatch, engine, cut):
    name, numbers = "ThreadPoolExecutor" if engine == "c" else "ProcessPoolExecutor", []
    pool = getattr(concurrent.futures, name)
    recorded = lambda workers, *rest, **options: numbers.append(workers) or pool(workers, *rest, **options)  # noqa: E731
    monkeypatch.setattr(concurrent.futures, name, recorded)
    cut(5, 20)
    assert bpe.count_words("words.txt", [], workers=100_000)[b" newest"] == 5
    assert len(numbers) == 1 and 1 < numbers[0] <= max(os.cpu_count(), 2)


def test_many_small_files_take_little_time(tmp_path):
    paths = [tmp_path / f"{number}.txt" for number in range(200)]
    for number, path in enumerate(paths):
        path.write_text(f"low lower {number % 5}\n" * 30)
    tokenizer = bpe.Tokenizer(*trained(300))
    start = time.perf_counter()
    for pattern in ("gpt2", CUSTOM):
        assert bpe.count_words(paths, [], pattern=pattern, workers=2)[b"low"] >= 200
    assert tokenizer.encode_files(paths, tmp_path / "ids.npy", workers=2) > 6000
    assert time.perf_counter() - start < 3


@only_python
@pytest.mark.parametrize("mishap", ["raise MemoryError", "die()"])
def test_a_killed_worker_is_an_error_and_not_a_hang(tmp_path, mishap):
    result = call_in_script(tmp_path, f"""
        import os, signal, bpe
        def die():
            os.kill(os.getpid(), signal.SIGKILL)
        def find_words(*arguments):
            {mishap}
            return ["word"]
        bpe.SLICE_BYTES = bpe.WINDOW_BYTES = 1000
        bpe.find_words = find_words
        if __name__ == "__main__":
            try:
                bpe.train_bpe({str(CORPUS)!r}, 300, [], workers=2, engine="python")
            except (RuntimeError, MemoryError) as error:
                print(isinstance(error, MemoryError))
    """)
    assert (result.stdout, result.stderr) == (f"{'Memory' in mishap}\n".encode(), b""), result


@only_python
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, workers load the script again, which needs its guard")
def test_workers_start_alike_whatever_imports_the_module(tmp_path):
    """On Linux they never load the script, so it may lack a guard or come from standard input; it ignores SIGTERM."""
    (tmp_path / "text.txt").write_text("low lower\n" * 1000)
    by_path = f"""
        spec = importlib.util.spec_from_file_location("tokens_of_a_student", {str(ROOT / "bpe.py")!r})
        bpe = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(bpe)
    """
    for load, arguments in (("import bpe", ["script.py"]), ("import bpe", ["-"]), (by_path, ["-"])):
        script = f"import importlib.util, signal, sys\nsys.path.insert(0, {str(ROOT)!r})\n{textwrap.dedent(load)}\n"
        script += "forks = []\nsys.addaudithook(lambda event, _: forks.append(event) if event == 'os.fork' else None)\n"
        script += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nbpe.SLICE_BYTES = bpe.WINDOW_BYTES = 3000\n"
        script += "print(bpe.count_words('text.txt', [], workers=2, engine='python')[b' lower'], len(forks) > 0)"
        (tmp_path / "script.py").write_text(script)
        options = {"input": script, "capture_output": True, "text": True, "cwd": tmp_path, "timeout": 60}
        result = subprocess.run([sys.executable, *arguments], **options)
        assert (result.returncode, result.stdout, result.stderr) == (0, "1000 True\n", ""), result


@only_python
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, workers load the script again")
def test_workers_have_ended_when_a_call_ends_early_and_a_few_megabytes_are_enough_for_several(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(CORPUS.read_bytes() * 40)
    corpus = bpe.Corpus(path, None, bpe.Options((END,)))
    assert 4 <= len(list(corpus.slices(bpe.SLICE_BYTES))) <= 6  # 4.3 MB
    task = functools.partial(bpe.count_texts, options=corpus.options)
    results = corpus.map(task, in_threads=False, slice_bytes=bpe.SLICE_BYTES, label="")
    assert next(results)[1] and len(multiprocessing.active_children()) > 1
    results.close()
    assert not multiprocessing.active_children()
    with pytest.raises(KeyboardInterrupt) as kept:  # a notebook keeps the last traceback

        def interrupt(counts):
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(bpe.WordTable, "update", lambda *arguments: interrupt(arguments))
            bpe.count_words(path)
    assert kept.value and not multiprocessing.active_children()


@only_python
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, workers load the script again")
def test_a_module_without_an_entry_in_sys_modules_counts_in_its_process(tmp_path):
    """A worker process could not find its functions by name, and the pool would wait for it forever."""
    (tmp_path / "text.txt").write_text("low lower\n" * 1000)
    result = call_in_script(tmp_path, f"""
        import importlib.util
        spec = importlib.util.spec_from_file_location("anything", {str(ROOT / "bpe.py")!r})
        bpe = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(bpe)
        bpe.SLICE_BYTES = bpe.WINDOW_BYTES = 3000
        print(bpe.count_words("text.txt", workers=2, engine="python")[b" lower"])
    """, cwd=tmp_path)
    assert (result.stdout, result.stderr) == (b"1000\n", b"")


@only_python
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_while_another_thread_makes_an_encoder_waits_for_no_lock():
    """Before Python 3.12, functools.cached_property holds one lock for all objects, which the child can't get."""
    first, second = (bpe.Tokenizer(*trained(300)) for _ in range(2))
    making, go_on = threading.Event(), threading.Event()

    def slow_items():
        making.set()
        go_on.wait(20)
        return ()

    first.rules = type("Slow", (), {"__iter__": lambda self: iter(slow_items())})()
    thread = threading.Thread(target=lambda: first.encoder)
    thread.start()
    assert making.wait(20)
    child = os.fork()
    if not child:
        os._exit(second.encode("low") != list(b"low"))
    ended = []
    wait_for(lambda: ended.append(os.waitpid(child, os.WNOHANG)) or any(ended[-1]), seconds=10)
    if not any(ended[-1]):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    go_on.set()
    thread.join()
    assert ended[-1] == (child, 0)


# --- VII. Large corpora: encoding files ------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", [*bpe.PATTERNS, CUSTOM])
@pytest.mark.parametrize("special_tokens", SPECIALS)
def test_encoding_a_file_equals_encoding_its_text(words_txt, cut, pattern, special_tokens):
    rng = random.Random(repr((pattern, special_tokens)))
    tokenizer = bpe.Tokenizer(*trained(600, pattern), special_tokens, pattern)
    for _ in range(12):
        text = nested(rng, special_tokens) + " and " + nested(rng, special_tokens)
        Path("words.txt").write_bytes(text.encode())
        cut(rng.choice([1, 7, 50]), rng.choice([15, 30, 64]))
        ids = tokenizer.encode(text)
        assert tokenizer.encode_files("words.txt", "ids.npy", workers=1) == len(ids)
        assert read_ids("ids.npy") == ("u2", ids)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_number_of_workers_changes_no_id(tmp_path, part, cut, workers):
    other, text = tmp_path / "other.txt", "  one more text  "
    other.write_text(text)
    cut(7000)
    tokenizer = bpe.Tokenizer(*trained(2000), [END])
    ids = tokenizer.encode(PART) + tokenizer.encode(text) + tokenizer.encode(PART)
    with pipe_of(PART.encode()) as pipe:
        n_ids = tokenizer.encode_files(iter([pipe, other, str(part)]), tmp_path / "ids.npy", workers=workers)
    assert read_ids(tmp_path / "ids.npy") == ("u2", ids) and n_ids == len(ids)
    assert sorted(os.listdir(tmp_path)) == ["ids.npy", "other.txt"]


@pytest.mark.parametrize("pattern", ["gpt2", CUSTOM])
@pytest.mark.parametrize("texts", [["low ", " low", "", f"lower{END}", "字"], []])
def test_texts_are_encoded_one_by_one_in_order(tmp_path, pattern, texts):
    tokenizer = bpe.Tokenizer(*trained(300), [END], pattern)
    ids = [token_id for text in texts for token_id in tokenizer.encode(text)]
    assert tokenizer.encode_files(None, tmp_path / "ids.npy", texts=iter(texts)) == len(ids)
    assert read_ids(tmp_path / "ids.npy") == ("u2", ids)


@pytest.mark.parametrize("largest, kind", [(2**16 - 1, "u2"), (2**16, "u4"), (2**32 - 2, "u4")])
def test_ids_take_two_bytes_if_all_fit(tmp_path, part, largest, kind):
    vocab, merges = trained(300)
    shifted = {token_id + largest - 299: token for token_id, token in vocab.items()}
    tokenizer, ids = bpe.Tokenizer(shifted, merges, [END]), tmp_path / "ids.npy"
    tokenizer.encode_files(part, ids)
    assert read_ids(ids) == (kind, tokenizer.encode(PART))
    if largest < 2**16:
        (tmp_path / "new.txt").write_text("<new>")
        bpe.Tokenizer(shifted, merges, ["<new>"]).encode_files(tmp_path / "new.txt", ids)
        assert read_ids(ids) == ("u4", [2**16])


def test_numpy_opens_encoded_files(tmp_path):
    numpy, tokenizer = need("numpy"), bpe.Tokenizer(*trained(600), [END])
    ids = tokenizer.encode(FIXTURE)
    for name, paths, n_ids in (("ids.npy", CORPUS, len(ids)), ("empty.npy", [os.devnull] * 2, 0)):
        assert tokenizer.encode_files(paths, tmp_path / name) == n_ids
    data = numpy.load(tmp_path / "ids.npy", mmap_mode="r")
    assert data.dtype == numpy.uint16 and data.tolist() == ids and numpy.load(tmp_path / "empty.npy").shape == (0,)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("pattern", ["gpt2", CUSTOM])
def test_text_that_cannot_be_encoded_is_an_error_and_leaves_the_earlier_file(tmp_path, cut, workers, pattern):
    cut(9000)
    data = bytearray(b"word and word. " * 2000)
    data[20_000] = data[12_345] = 0xFF
    path, output = tmp_path / "text.txt", tmp_path / "ids.npy"
    path.write_bytes(data)
    output.write_bytes(b"earlier")
    tokenizer = bpe.Tokenizer(*trained(300), [END], pattern)
    with pytest.raises(ValueError, match=r"text\.txt: not valid UTF-8 at byte 12345 \(0xff, [a-z ]+\)$"):
        tokenizer.encode_files(path, output, workers=workers)
    without_d = bpe.Tokenizer({number: bytes([number]) for number in range(256) if number != 100}, [], [], pattern)
    with pytest.raises(ValueError, match=r"text\.txt, bytes 0 to \d+: .* the byte b'd'"):
        without_d.encode_files(path, output, workers=workers, errors="replace")
    assert output.read_bytes() == b"earlier" and sorted(os.listdir(tmp_path)) == ["ids.npy", "text.txt"]
    tokenizer.encode_files(path, output, workers=workers, errors="replace")
    assert read_ids(output) == ("u2", tokenizer.encode(data.decode(errors="replace")))


@pytest.mark.parametrize("break_at", [1, 5, "the rename"])
def test_an_interruption_while_encoding_leaves_the_earlier_file(tmp_path, monkeypatch, break_at, cut):
    def texts():
        for number in range(6):
            if number == break_at:
                raise KeyboardInterrupt
            yield "low lower\n" * 300
        monkeypatch.setattr(os, "replace", None)

    cut(3000)
    (tmp_path / "ids.npy").write_bytes(b"earlier")
    with pytest.raises((KeyboardInterrupt, TypeError)):
        bpe.Tokenizer(*trained(300)).encode_files(None, tmp_path / "ids.npy", texts=texts(), workers=1)
    assert files_of(tmp_path) == {"ids.npy": b"earlier"}


@only_c
@pytest.mark.skipif(sys.platform != "linux", reason="measures memory as Linux counts it")
def test_encoding_takes_little_memory(tmp_path):
    """The ids alone take 205 MB."""
    train_and_save(tmp_path / "model", CORPUS, 2000, [END])
    (tmp_path / "text.txt").write_bytes(CORPUS.read_bytes() * 300)  # 32 MB
    result = call_in_script(tmp_path, f"""
        import bpe
        tokenizer = bpe.Tokenizer.load({str(tmp_path / "model")!r})
        n_ids = tokenizer.encode_files([{str(tmp_path / "text.txt")!r}] * 8, {str(tmp_path / "ids.npy")!r}, workers=2)
        print(n_ids, *[int(line.split()[1]) // 1000 for line in open("/proc/self/status") if line.startswith("VmHWM")])
    """)
    n_ids, megabytes = map(int, result.stdout.split())
    assert n_ids * 2 + 128 == (tmp_path / "ids.npy").stat().st_size > 200_000_000 and megabytes < 180
    (tmp_path / "ids.npy").unlink()


# --- VIII. The C engine ----------------------------------------------------------------------------------------------


@only_c
@pytest.mark.parametrize("pattern", [*bpe.PATTERNS, r"\s?\w+|\s"])
def test_the_c_engine_is_the_c_engine(train, monkeypatch, pattern):
    for name in ("learn_merges", "merge_in_words", "merge_by_rank", "find_words"):
        monkeypatch.setattr(bpe, name, None)  # leave no Python engine to fall back to
    vocab, merges = train("low lower lowest low", 262, pattern=pattern)
    assert (vocab, merges) == oracle("low lower lowest low", 262)
    tokenizer = bpe.Tokenizer(vocab, merges, [END], pattern)
    assert tokenizer.encode(f"lowest{END}") == naive_encoder(tokenizer.vocab, merges, [END])(f"lowest{END}")
    assert bpe.find_engine()[0] is bpe.find_engine()[0] is C  # loaded once
    assert type(bpe.Tokenizer(vocab, merges, [END], NOT_IN_C).encoder) is bpe.PythonEncoder is not type(tokenizer.encoder)


def test_both_encoders_have_the_same_methods():
    tokenizer = bpe.Tokenizer(*trained(600), [END])
    utf8 = f"The ferry was late. 字{END}".encode()
    ids = naive_encoder(*trained(600), [END])(utf8.decode())
    for encoder in (tokenizer.encoder, bpe.PythonEncoder(tokenizer)):
        assert encoder.encode(utf8) == ids
        for kind, code in (("u2", "H"), ("u4", "I")):
            for texts in ([], [utf8], [utf8 * 50, b"", utf8]):
                parts = [ids * (len(text) // len(utf8)) for text in texts]
                assert encoder.encode_texts(texts) == parts
                data, ends = encoder.encode_texts(texts, kind)
                assert array.array(code, data).tolist() == list(itertools.chain(*parts))
                assert list(ends) == list(itertools.accumulate(map(len, parts)))


# Expressions with what C reads in its own way, and texts with their words, by hand.
CUSTOM_WORDS = [
    (r"\p{N}{1,2}|\p{L}+|\s", "12345 ab", "12|34|5| |ab"),
    (r"\w+", "  a-b!", "  |a|-|b|!"),  # text between matches
    (r"a|ab|.", "ab", "a|b"),  # the first alternative that matches, not the longest
    (r"ab|a|.", "abab", "ab|ab"),
    (r"a+?b|.", "aab", "aab"),  # lazy, but it has to go on
    (r"a{2}?|.", "aaa", "aa|a"),
    (r"\p{L}{2,}|.", "abc d", "abc| |d"),
    (r"[^\s]+(?=!)|.", "ab!", "ab|!"),
    (r"\s+(?!\S)|\s+|\w+", "a   b", "a|  | |b"),
    (r"\w+|\s++$|\s", "a  b \n", "a| | |b| \n"),  # $ is the end, though it could be before the last newline, too
    (r"(?i:s)|.", "ſSsK", "ſ|S|s|K"),
    (r"(?i:s)+|.", "ſSsK", "ſSs|K"),
    (r"x?+\p{L}\d|.", "a1x2", "a1|x|2"),  # not supported: x?+ takes the x, and x? gives it back
    (r"[^\r\n\p{L}]?+\p{L}++|.", " ab!c1", " ab|!c|1"),
    (r"'(?:ll|s)|'|\p{L}+", "'l'll's", "'|l|'ll|'s"),
    (r"(?=b)\w\w|.", "abc", "a|bc"),
    (r"\p{Lu}\p{Ll}+|\p{Lu}+(?!\p{Ll})|.", "HTMLParser", "HTML|Parser"),
    (r".", "a\nb", "a|\n|b"),  # a newline is no match, but a word
    (r"\s*[\r\n]|\s", "\n  x \n", "\n| | |x| \n"),
]


@pytest.mark.parametrize("pattern, text, words", CUSTOM_WORDS)
def test_the_words_of_custom_patterns(engine, pattern, text, words):
    assert naive_split(text, pattern) == words.split("|")
    longer = text + " y" * 50 + text
    for each in (text, longer, longer + "é字" * 40 + text):
        assert words_in(each, pattern=pattern) == Counter(naive_split(each, pattern))


OTHER_MODELS = ["Mistral", "Qwen 3.5", "StarCoder and SmolLM"]  # in docs/compatibility.md


@only_c
@pytest.mark.parametrize("number", range(len(OTHER_MODELS)), ids=OTHER_MODELS)
def test_expressions_of_other_models_have_the_words_of_their_own_steps(number):
    tokenizers, rng = need("tokenizers"), random.Random(number)
    steps = tokenizers.pre_tokenizers
    for name in ("compatibility.md", "compatibility.zh.md"):
        expressions = regex.findall(r"(?m)^    (\S.*\|\\s\+)$", (ROOT / "docs" / name).read_text(encoding="utf-8"))
        pattern = expressions[number]
    split = steps.Split(tokenizers.Regex(pattern), "isolated")
    if OTHER_MODELS[number].startswith("StarCoder"):
        gpt2 = steps.Split(tokenizers.Regex(bpe.JSON_PATTERNS["gpt2"]), "isolated")
        split = steps.Sequence([steps.Digits(individual_digits=True), gpt2])
    assert not C.pattern(pattern)[1]
    for _ in range(500):
        text = "".join(rng.choices([*TRICKY, *KNOWN[:0x3000], "12 ", "\u0663", "\u0e19\u0e49\u0e33"], k=rng.randint(1, 40)))
        expected = [word for word, _ in split.pre_tokenize_str(text)]
        assert words_in(text, pattern=pattern) == Counter(expected), text


@only_c
@pytest.mark.parametrize("pattern, why", [
    (r"(a)b", r"\("), (r"(?<=a)b", r"\(\?<="), (r"(?P<x>a)", r"\(\?"), (r"\ba|a", r"\\b"), (r"^a|a", r"\^"), (r"a$|a", r"\$"),
    (r"(a)\1", r"\("), (r"(?>a|ab)", r"\(\?>"), (r"(?i)a", r"\(\?"), (r"[a&&b]", r"\[a&&b\]"), (r"[[:alpha:]]", r"\["),
    (r"(?=ab).", r"more than one character"), (r"(?!a|b).", r"more than one character"), (r"\X", r"\\X"), (r"a{2,}+ab", "possessive"),
    (r"a*", "match nothing"), (r"(?:a?)+b", "can match nothing"), (r"\w{1,501}", "more than 500 characters"),
    (r"a*b|a", "the same text again"), (r"\w|\s+$|\s", "the same text again"), (r"(?!\s)\s", "no way to match"),
    (r"(?:a|b)*a(?:a|b){9}", "the same text again|more than 500 states"),
])  # fmt: skip
def test_what_c_does_not_scan_is_named(pattern, why):
    assert regex.search(why, C.pattern(pattern)[1])
    assert words_in("aab b", pattern=pattern) == Counter(naive_split("aab b", pattern))


@only_c
@pytest.mark.parametrize("pattern", bpe.PATTERNS)
def test_the_automaton_proves_that_words_end_where_text_is_cut(pattern):
    """For all characters: no two that WORD_END matches are of classes between which the automaton may not be cut."""
    make = vars(sys.modules[type(C).__module__]) if type(C).__module__ in sys.modules else C.check.__globals__
    classes, rows = make["automaton_of"](bpe.PATTERNS[pattern])
    pairs, everything = make["places_to_cut"](rows), "".join(map(chr, range(0x110000)))
    before = {classes[match.start()] for match in regex.finditer(r"[\p{L}\p{N}]", everything)}
    after = {classes[match.start()] for match in regex.finditer(r"[^\p{L}\p{N}\p{M}']", everything)}
    assert before and after and pairs >= set(itertools.product(before, after))
    assert len(pairs) < (max(classes) + 1) ** 2 / 2  # it proves not everything


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
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monkeypatch.setattr(C, "patterns", C.named_patterns())
        assert bpe.count_words(CORPUS, [END]) == expected  # another version with the same classes
    monkeypatch.setitem(C.check.__globals__, "digest", lambda data: "other")
    monkeypatch.setattr(C, "words", None)
    with pytest.warns(UserWarning, match="the C engine was built with regex"):
        monkeypatch.setattr(C, "patterns", C.named_patterns())
    assert bpe.count_words(CORPUS, [END]) == expected


def test_a_copy_inside_a_package_trains_with_a_library_next_to_it_or_says_that_it_has_none(tmp_path, engine):
    package = tmp_path / "course" / "basics"
    package.mkdir(parents=True)
    for file in [ROOT / "bpe.py"] + ([ROOT / "build_ffi.py", *ROOT.glob("_bpe_fast*.*")] if engine == "c" else []):
        shutil.copy(file, package)
    arguments = f"{str(CORPUS)!r}, 500, engine={engine!r}"
    script = f"from course.basics.bpe import train_bpe; print(len(train_bpe({arguments})[1]))"
    result = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, timeout=60)
    assert result.stdout == b"244\n", result
    command = [sys.executable, package / "bpe.py", CORPUS, "300", "--model", tmp_path / "model"]
    result = subprocess.run(command, capture_output=True, text=True)
    why = "Python (build_ffi.py, which builds it, is not next to"
    assert summary(result.stderr)["engine"].startswith("C" if engine == "c" else why)
    if engine == "python":
        result = subprocess.run([*command, "--engine", "c"], capture_output=True)
        assert result.returncode == 2 and "engine 'c' is not available: build_ffi.py, which" in one_line(result.stderr)


@only_python
def test_a_notebook_cell_has_no_file_and_trains(tmp_path):
    source = (ROOT / "bpe.py").read_text(encoding="utf-8").rpartition('\nif __name__ == "__main__":')[0]
    script = f"\nprint(len(train_bpe({str(CORPUS)!r}, 300)[1]), Tokenizer.train({str(CORPUS)!r}, 260).encode('a'))"
    (tmp_path / "cell").write_text(source + script, encoding="utf-8")
    command = [sys.executable, "-c", "exec(open('cell', encoding='utf-8').read())"]
    result = subprocess.run(command, capture_output=True, cwd=tmp_path)
    assert (result.stdout, result.stderr) == (b"44 [97]\n", b""), result


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
def test_the_summary_says_why_a_library_cannot_be_used_or_warns_that_it_is_old(program):
    no_cffi = "import sys; sys.modules['_cffi_backend'] = None; import bpe; sys.exit(bpe.main(sys.argv[1:]))"
    assert "built, but cffi is missing: pip install cffi" in program("-c", no_cffi, *TRAIN[1:])
    assert "cffi is missing" in program("-c", no_cffi, *TRAIN[1:], "--engine", "c").splitlines()[0]
    assert summary(program(*TRAIN))["engine"] == "C"
    edit(Path("bpe_fast.c"), lambda data: data + b"/* */")
    assert "bpe_fast.c has changed" in program(*TRAIN)
    assert "changed" not in program(*TRAIN, "--engine", "python")
    edit(Path("build_ffi.py"), lambda data: data.replace(b"\nVERSION = ", b"\nVERSION = 1"))
    assert "another version: python build_ffi.py" in summary(program(*TRAIN))["engine"]
    program.library.write_bytes(b"")
    assert "does not load" in summary(program(*TRAIN))["engine"]
    program.library.unlink()
    assert "not built: python build_ffi.py" in summary(program(*TRAIN))["engine"]


@only_c
def test_a_stray_module_does_not_stop_the_import_and_does_not_run(program):
    program.library.unlink(missing_ok=True)
    Path("bpe_fast.c").unlink()
    for name in ("_bpe_fast.py", "build_ffi.py"):
        Path(name).write_text("open('ran', 'w').close()\nraise SystemError('stray')")
        assert summary(program(*TRAIN))["engine"].startswith("Python")
        assert not os.path.exists("ran")


@only_c
def test_a_build_that_fails_says_why_in_one_line(program):
    environment = {**os.environ, "CC": "no-such-compiler"}
    result = subprocess.run([sys.executable, ROOT / "build_ffi.py"], env=environment, capture_output=True, timeout=60)
    assert result.returncode != 0 and regex.search("a C compiler.*works without it", one_line(result.stderr))
    script = "import cffi, shutil, build_ffi; cffi.FFI.compile = lambda self, tmpdir: 'module.so'\n"
    script += "def refuse(*paths): raise PermissionError(13, 'Permission denied')\n"
    stderr = program("-c", script + "shutil.copy = refuse\nbuild_ffi.build()")
    assert "Permission denied" in one_line(stderr.encode())


@only_c
def test_an_engine_without_memory_raises_and_works_again_afterwards(monkeypatch):
    """A failed allocation leaves no NULL handle that the next call would use."""
    tokenizer = bpe.Tokenizer(with_merges([]), [])
    assert tokenizer.encoder  # without a cache yet
    failing = dict.fromkeys(("bpe_words_new", "bpe_cache_new"), lambda *arguments: C.lib.BPE_NO_MEMORY)
    with monkeypatch.context() as without_memory:
        names = {name: getattr(C.lib, name) for name in dir(C.lib)}
        without_memory.setattr(C, "lib", types.SimpleNamespace(**names | failing))
        failing |= dict.fromkeys(failing, lambda *arguments: names["BPE_NO_MEMORY"])
        for call in (lambda: bpe.count_words(None, [], texts=["ab"]), lambda: tokenizer.encode("ab")):
            with pytest.raises(MemoryError):
                call()
    assert bpe.count_words(None, [], texts=["ab"]) == {b"ab": 1} and tokenizer.encode("ab") == [97, 98]


@only_c
def test_tables_of_several_threads_are_merged_once():
    """If that fails, because they have 2**63 bytes of words together, the tables are not used again."""
    words, failing, *others = (bpe.find_engine()[0].words([], "gpt2") for _ in range(4))
    words.scan(b"a b")
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        for total in (4, 6, 8):
            executor.submit(words.scan, b"a b").result()
            assert words.totals() == (2, total, total // 2 * 3)
    for other in others:
        other.add([(b"ab", 2**61)])
        failing.tables.append(other.handle())
    with pytest.raises(OverflowError):
        failing.totals()
    for use in (failing.copy, lambda: failing.scan(b"ab") or failing.totals(), lambda: failing.add([(b"a", 1)])):
        with pytest.raises(ValueError, match="used up"):
            use()


@only_c
def test_the_summary_names_the_engine_that_encoded(main):
    vocab, merges = trained(300)
    bpe.Tokenizer(vocab, merges, [END]).save("model")
    bpe.Tokenizer(vocab, merges, [END], NOT_IN_C).save("custom")
    for options, engine in (
        (["--model", "model"], "C"), (["--model", "model", "--engine", "python"], "Python (as chosen)"),
        (["--model", "custom"], "Python (C scans no pattern with ()"),
    ):  # fmt: skip
        assert summary(main("words.txt", "--encode", "ids.npy", *options)[2])["engine"] == engine
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bpe.find_engine()[0], "encoder", lambda tokenizer: None)
        encoded = main("words.txt", "--encode", "ids.npy", "--model", "model")[2]
    assert summary(encoded)["engine"] == "Python (C can't hold this vocabulary)"


@only_c
def test_a_vocabulary_that_c_cannot_hold_is_encoded_in_python(monkeypatch):
    monkeypatch.setattr(bpe, "MAX_ID", 2**40)  # else no vocabulary is too large except one of 2**21 tokens
    tokenizer = bpe.Tokenizer({**with_merges([]), 2**32: b"ab"}, [(b"a", b"b")])
    assert isinstance(tokenizer.encoder, bpe.PythonEncoder) and tokenizer.encode("cab") == [99, 2**32]
# --- IX. The command line: training ----------------------------------------------------------------------------------


@pytest.mark.parametrize("corpus, size", [(CORPUS, 300), ("runs.txt", 260)], ids=["fixture", "runs"])
def test_the_command_line_writes_what_the_library_does_and_a_summary(main, engine, corpus, size):
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
    assert lines["compression"] == f"{n_bytes / tokens:.2f} bytes per token in these pre-tokens"
    assert regex.fullmatch(rf"{os.path.getsize(corpus):,} bytes", lines["read"])
    assert lines["vocabulary"] == f"{size} = 256 bytes + 1 special token + {size - 257} merges"
    assert lines["saved"] == "model"
    assert lines["engine"].startswith("C" if engine == "c" else "Python (")
    engine_line = summary(main("words.txt", 300, "--pattern", NOT_IN_C)[2])["engine"]
    assert engine_line.startswith("Python (") and (engine == "python" or "C scans no pattern with (" in engine_line)


@only_python
@pytest.mark.parametrize("typed, corpus, size, special_tokens, options", [
    ("--min-frequency 5 --quiet words.txt 265", "words.txt", 265, [END], {"min_frequency": 5}),
    ("words.txt --min-frequency 5 265", "words.txt", 265, [END], {"min_frequency": 5}),
    ("x.txt 280 --no-special-tokens", "x.txt", 280, [], {}),
    ("words.txt x.txt 1k", ["words.txt", "x.txt"], 1000, [END], {}),
    (f"x.txt 280 --special-token <x> --special-token {END}", "x.txt", 280, ["<x>", END], {}),
    ("x.txt 280 --pattern o200k", "x.txt", 280, [END], {"pattern": "o200k"}),
    ("./-.txt 262 --min-word-count 3", "-.txt", 262, [END], {"min_word_count": 3}),
    ("'two\nlines.txt' 1K", "two\nlines.txt", 1000, [END], {}),
    ("\udcff.txt 262 --errors replace --workers 1", "\udcff.txt", 262, [END], {"errors": "replace"}),
])  # fmt: skip
def test_the_command_line_has_the_options_of_the_library(main, typed, corpus, size, special_tokens, options):
    Path("x.txt").write_bytes(f"aa<x>aa{END}aa's aa'S\r\n".encode())
    for name in ("-.txt", "two\nlines.txt", "\udcff.txt"):
        shutil.copy("words.txt", name)
    assert main(*shlex.split(typed), "--model", "\udcff.model")[0] == 0
    assert model_in("\udcff.model") == bpe.train_bpe(corpus, size, special_tokens, **options)


@pytest.mark.parametrize("arguments, made_of, why_smaller", [
    ("262", "262 = 256 bytes + 1 special token + 5 merges", ""),
    ("32K", "273 = 256 bytes + 1 special token + 16 merges", "32,000 requested, but no pair has a count of 1 or more"),
    ("1k --no-special-tokens", "272 = 256 bytes + 0 special tokens + 16 merges",
     "1,000 requested, but no pair has a count of 1 or more"),
    ("1k --min-frequency 1", "273 = 256 bytes + 1 special token + 16 merges",
     "1,000 requested, but no pair has a count of 1 or more"),
    ("280 --special-token <a> --special-token <b> --min-frequency 9", "260 = 256 bytes + 2 special tokens + 2 merges",
     "280 requested, but no pair has a count of 9 or more"),
])  # fmt: skip
def test_the_summary_says_what_the_vocabulary_is_made_of(main, arguments, made_of, why_smaller):
    status, _, stderr = main("words.txt", *arguments.split())
    assert status == 0 and summary(stderr)["vocabulary"] == made_of + (f"; {why_smaller}" if why_smaller else "")


def test_a_note_about_json_comes_before_the_work(main):
    Path("rows.jsonl").write_text('{"text": "low lower"}\n')
    for arguments in (["rows.jsonl", 270], ["words.txt", "rows.jsonl", 270], ["rows.jsonl", "--encode", "ids.npy"]):
        status, _, stderr = main(*arguments)
        assert status == 0 and "JSON is read as plain text" in stderr.splitlines()[0] and "jq -j" in stderr
    assert "JSON" not in main("words.txt", 270)[2]


@pytest.mark.parametrize("data", [b"", END.encode() * 3])
def test_a_corpus_without_a_word_is_an_error_on_the_command_line(main, data):
    """An empty pipe must not replace a good model; in Python it is a result (test_nothing_to_merge_is_a_result)."""
    assert main("words.txt", 262, "--quiet")[0] == 0
    before = files_of("bpeModel")
    Path("empty.txt").write_bytes(data)
    for folder in ("bpeModel", "new"):
        status, _, stderr = main("empty.txt", 300, "--model", folder)
        assert status == 2 and regex.search("error: .*(no words|is empty)", stderr.splitlines()[-1])
    assert files_of("bpeModel") == before and not os.path.exists("new")


EXPLAINED = [
    ([3000], 8), ([400, "--min-frequency", 55], 8), ([260], 8), ([400, "--pattern", "o200k"], 8), ([280], 20),  # the textbook example, with ties between new tokens
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
    rule = "the greater left token wins, then the greater right one"
    expected = []
    for number, pair in enumerate(merges[:rounds], 1):
        counts = naive_counts(words)
        count = counts[pair]
        ties = list(counts.values()).count(count)
        shown = " ".join(map(show, pair))
        first_line = f"round {number}: {shown} ({count:,} time{'s' * (count > 1)})"
        why = f" ({ties} pairs tie at {count:,}; {rule})" if ties > 1 else ""
        expected.append((first_line, f"    merge {shown}{why}"))
        words = {naive_merge(word, pair): count for word, count in words.items()}
    found = regex.findall(r"(?m)^(round \d+: .+? times?\)).*\n(    merge .*)$", stdout)
    assert found == expected
    assert len(found) == min(rounds, len(merges)) > 0


def test_an_explanation_groups_the_bytes_of_a_character_and_shows_newlines(main):
    """By hand; a is the only word of its kind."""
    Path("text.txt").write_text("あ\nあ\nab")
    arguments = ["text.txt", 260, "--explain", 4, "--quiet", "--no-special-tokens", "--pattern", r"あ\n|\w+"]
    assert main(*arguments)[1] == (
        "round 1: [e3] [81] (2 times), [82] \\n (2 times), [81] [82] (2 times)\n"
        "    merge [e3] [81] (3 pairs tie at 2; the greater left token wins, then the greater right one)\n"
        "    あ[e3|81|82] \\n -> あ[e3 81|82] \\n (2 times)\n"
        "round 2: あ[e3 81|82] (2 times), [82] \\n (2 times), a b (1 time)\n"
        "    merge あ[e3 81|82] (2 pairs tie at 2; the greater left token wins, then the greater right one)\n"
        "    あ[e3 81|82] \\n -> あ \\n (2 times)\n"
        "round 3: あ \\n (2 times), a b (1 time)\n    merge あ \\n\n    あ \\n -> あ\\n (2 times)\n"
        "round 4: a b (1 time)\n    merge a b\n    a b -> ab (1 time)\n"
    )


@pytest.mark.parametrize("seed", range(6))
def test_any_range_of_rounds_is_explained_as_if_from_the_first(main, seed):
    rng = random.Random(seed)
    text = " ".join("".join(rng.choices("ab é", k=rng.randrange(1, 9))) for _ in range(60))
    Path("text.txt").write_text(text)
    options = ["text.txt", 300, "--quiet", "--no-special-tokens"]
    n_merges = len(bpe.train_bpe("text.txt", 300)[1])
    rounds = main(*options, "--explain", n_merges)[1].split("round ")[1:]
    assert len(rounds) == n_merges and not os.path.exists("bpeModel")
    first = rng.randrange(n_merges)
    last = rng.randrange(first, n_merges)
    status, stdout, _ = main(*options, "--explain", f"{first + 1}-{last + 1}")
    assert status == 0 and stdout.split("round ")[1:] == rounds[first : last + 1]


def write_merges(path, merges, head=""):
    """Write merges of ASCII tokens; a space is Ġ."""
    lines = [" ".join(token.decode().replace(" ", "Ġ") for token in pair) for pair in merges]
    Path(path).write_text(head + "".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.mark.parametrize("seed", range(6))
def test_compare_explains_the_first_merge_that_differs(main, seed):
    """Counts are those of the oracle, and so are the two most frequent words that the two pairs change differently."""
    rng = random.Random(seed)
    Path("text.txt").write_text(" ".join("".join(rng.choices("abc", k=rng.randrange(1, 9))) for _ in range(60)))
    merges = bpe.train_bpe("text.txt", 280)[1]
    n = rng.randrange(len(merges))
    words = naive_words(Path("text.txt").read_text())
    for merge in merges[:n]:
        words = Counter({naive_merge(word, merge): count for word, count in words.items()})
    counts = naive_counts(words)
    other = rng.choice([pair for pair in counts if pair != merges[n]])
    write_merges("mine.txt", [*merges[:n], other, *merges[n:]])

    status, stdout, stderr = main("text.txt", 280, "--no-special-tokens", "--compare", "mine.txt")
    lines = stdout.splitlines()
    assert status == 1 and not os.path.exists("bpeModel")
    assert summary(stderr)["compared"] == f"mine.txt, {len(merges) + 1} merges without #version"
    assert summary(stderr)["saved"] == "nothing: --compare saves a model only with --model FOLDER"
    assert lines[0] == f"the first {n} merges are the same, of {len(merges) + 1} in the file and {len(merges)} here"
    show = lambda tokens: " ".join(token.decode().replace(" ", "␣") for token in tokens)  # noqa: E731
    times = lambda count: f"({count} time{'s' * (count != 1)})"  # noqa: E731
    assert lines[1].startswith(f"round {n + 1}: {show(merges[n])} {times(counts[merges[n]])}")
    assert lines[2].startswith(f"    merge {show(merges[n])}")
    assert lines[3] == f"    in the file: {show(other)} {times(counts[other])}"
    changed = {word: (naive_merge(word, merges[n]), naive_merge(word, other)) for word in words}
    differ = sorted((count for word, count in words.items() if len(set(changed[word])) > 1), reverse=True)
    shown = [line for line in lines[4:] if " -> " in line]
    possible = [
        f"    {show(word)} -> {show(ours)}, in the file {show(theirs)} {times(words[word])}"
        for word, (ours, theirs) in changed.items() if words[word] in differ[:2]
    ]  # fmt: skip
    assert len(shown) == min(2, len(differ)) and set(shown) <= set(possible)
    tie = counts[other] == counts[merges[n]]
    assert ("    usual cause: another rule for ties" in lines) == tie


CAUSES = [  # text, where ours differs from the file, the merges of the file, the cause
    ("ab cd", 0, "a b", "another rule for ties"),
    ("aaa.aaa.ab.ab.ab", 0, "a b", "pairs that overlap themselves"),
    ("ab ab ab aaa", 0, "a a", "pairs that overlap themselves"),
    ("ab ab ab ab aaa", 0, "a a", None),  # even with 1 more, a a would lose
    ("ab.ab.ab.cd.cd", 0, "c d", None),  # 1 less, and nothing overlaps
    ("aaa.aaa.aaa.ab.ab.ab.ab.ab.ab.ab.ab.ab", 0, "a a", "pairs that overlap themselves"),  # 6 to 9, and 3 overlap
    ("ab ab ab aa", 0, "a a", None),  # 1 to 3, and nothing overlaps
    ("the the the", 0, "e Ġ", "a pair across the end of a word, or across a special token"),
    ("low<|endoftext|>low<|endoftext|>low", 0, "w l", "a pair across the end of a word, or across a special token"),
    ("low<|endoftext|>low<|endoftext|>low", 0, "< |", None),  # nothing here has these bytes
    ("abcd abcd abcd", 1, "c d, b c", "counts out of date, or other words: its bytes occur here, but not as these tokens"),
    ("abcd abcd abcd cd bcx", 1, "c d, b c", None),  # it occurs
    ("cx abcd abcd abcd b", 1, "c d, b c", None),  # across two words, or within one: both are possible
    ("the the the", 0, "x y", None),  # its bytes don't occur
]


@pytest.mark.parametrize("text, n, theirs, cause", CAUSES)
def test_compare_names_a_cause_if_the_counts_show_it(main, text, n, theirs, cause):
    """By hand. In abcd, c d is merged first: it ties with b c and a b, and is the greatest."""
    Path("text.txt").write_text(text)
    Path("mine.txt").write_text(theirs.replace(", ", "\n"))
    status, stdout, _ = main("text.txt", 300, "--compare", "mine.txt", "--quiet")
    assert status == 1 and stdout.startswith(f"the first {n} merges are the same, of ")
    assert regex.findall("(?m)^    usual cause: (.*)$", stdout) == [cause] * (cause is not None)


@pytest.mark.parametrize("n_theirs, n_ours", [(6, 6), (3, 6), (6, 3)])
def test_compare_ends_with_status_0_if_all_compared_merges_are_the_same(main, n_theirs, n_ours):
    """The textbook example, in words.txt."""
    merges = bpe.train_bpe("words.txt", 263, [END])[1]
    write_merges("mine.txt", merges[:n_theirs])
    status, stdout, stderr = main("words.txt", 257 + n_ours, "--compare", "mine.txt", "--model", "kept")
    both = min(n_theirs, n_ours)
    assert status == 0 and summary(stderr)["saved"] == "kept" and os.path.exists("kept/tokenizer.json")
    assert stdout == f"the first {both} merges are the same, of {n_theirs} in the file and {n_ours} here\n"


@only_python
def test_compare_says_what_kind_of_file_it_reads(main, error):
    """Each is the file that another program writes, or a test keeps; those in `bad` are of other kinds, or damaged."""
    merges = bpe.train_bpe("words.txt", 263, [END])[1]
    pairs_in_json = [[token.decode().replace(" ", "Ġ") for token in pair] for pair in merges]
    Path("pairs.json").write_text(json.dumps(pairs_in_json, indent=1), encoding="utf-8")
    Path("windows.txt").write_bytes("".join(f"{left} {right}\r\n" for left, right in pairs_in_json).encode())
    write_merges("hf.txt", merges, "#version: 0.2\n")
    kinds = {"pairs.json": "in JSON", "windows.txt": "without #version"}
    kinds["hf.txt"] = "with #version"
    for path, kind in kinds.items():
        status, _, stderr = main("words.txt", 263, "--compare", path)
        assert (status, summary(stderr)["compared"]) == (0, f"{path}, 6 merges {kind}")
    bad = {
        "subword.txt": ("#version: 0.2\nl o\nlo w</w>\n", "merges of characters, as subword-nmt makes: 'lo w</w>'"),
        "empty.txt": ("#version: 0.2\n", "there are no merges in it"),
        "raw.json": ('[["t", "h"], [" ", "th"]]', "line 2 must be two tokens separated by one space: '  th'"),
        "vocab.json": ('{"!": 0}', "line 1 must be two tokens separated by one space: '!'"),
        "chinese.json": ('[["今", "天"]]', "not a byte-level BPE model .*'今'"),
        "three.json": ('[["a", "b", "c"]]', "line 1 must be two tokens separated by one space: 'a b c'"),
        "number.json": ("[5]", "not a byte-level BPE model"),
        "three.txt": ("a b\na b c\n", "line 2 must be two tokens separated by one space: 'a b c'"),
        "broken.json": ("[", "not a byte-level BPE model"),
    }  # fmt: skip
    for path, (content, text) in bad.items():
        Path(path).write_text(content, encoding="utf-8")
        assert regex.search(f"^error: {path}: {text}", error("words.txt", 263, "--compare", path)), path
    # merges of bytes can make </w>, too, and use it
    Path("xml.txt").write_text("\n".join(["< /", "w >", "</ w>", "</w> Ċ"]))
    assert bpe.read_pairs("xml.txt")[1][-1] == (b"</w>", b"\n")


def test_compare_reads_what_subword_nmt_writes(tmp_path):
    need("subword_nmt.learn_bpe")
    from subword_nmt.learn_bpe import learn_bpe

    with (tmp_path / "codes.txt").open("w") as codes:
        learn_bpe(["low low low lower newest newest"], codes, 5)
    with pytest.raises(ValueError, match="merges of characters, as subword-nmt makes"):
        bpe.read_pairs(str(tmp_path / "codes.txt"))


@pytest.mark.parametrize("arguments, saved", [
    ([], "bpeModel"), (["--explain", 1], None), (["--explain", 1, "--model", "other"], "other"),
])  # fmt: skip
def test_explain_alone_replaces_no_model_and_says_so(main, arguments, saved):
    status, _, stderr = main("words.txt", 262, *arguments)
    assert status == 0 and sorted(os.listdir()) == sorted(filter(None, ["words.txt", saved]))
    assert summary(stderr)["saved"] == (saved or "nothing: --explain saves a model only with --model FOLDER")


@only_python
def test_no_control_character_reaches_the_terminal(main):
    """Escape sequences in a corpus, a file name or a special token could change what a terminal shows, or types."""
    assert bpe.visible("a\x1b[1m\n\x9b\u202eb 字\t") == "a\\x1b[1m\n\\x9b\\u202eb 字\\t"
    evil = "\x1b[2J\x9b"
    Path(f"{evil}.txt").write_text(f"low{evil}{evil} low{evil}")
    for arguments in (
        [f"{evil}.txt", 300, "--explain", 9, "--model", "model"], ["--show", f"low{evil}", "--model", "model"],
        [f"{evil}.txt", 300, "--special-token", evil, "--special-token", evil], [f"{evil}-missing.txt", 300],
        [f"{evil}.txt", 300, "--pattern", evil], ["--encode", evil, f"{evil}.txt", "--model", "model"],
    ):  # fmt: skip
        _, stdout, stderr = main(*arguments)
        assert stdout + stderr and not set("\x1b\x9b") & set(stdout + stderr), arguments


@only_python
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["--show", "low"], ["words.txt", "262", "--explain", "2"]])
def test_output_without_room_is_an_error_and_a_closed_pipe_is_not(words_txt, arguments):
    bpe.Tokenizer.train("words.txt", 262).save("bpeModel")
    for interpreter in ([], ["-u"]):  # unbuffered output fails at once
        program = [sys.executable, *interpreter, str(ROOT / "bpe.py"), *arguments, "--quiet"]
        with open("/dev/full", "wb") as full:
            result = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, timeout=60)
        assert (result.returncode, one_line(result.stderr)) == (1, "error: standard output: No space left on device\n")
        reading, writing = os.pipe()
        os.close(reading)
        result = subprocess.run(program, stdout=writing, stderr=subprocess.PIPE, timeout=60)
        os.close(writing)
        assert (result.returncode, result.stderr) == (0, b"")


# --- IX. The command line: show --------------------------------------------------------------------------------------


SHOWN = [  # by hand; the model has the bytes, the tokens of "the" and of 园's first two bytes
    ("園the 园\n", "?"),
]


def test_show(main, words_txt):
    tokens = [bytes([byte]) for byte in range(256)] + [b"\xe5\x9b", b"th", b"\n\n", b"\xad\xe5", b"\xf0\x9f"]
    merges = [(token[:1], token[1:]) for token in tokens[256:]]
    bpe.Tokenizer(dict(enumerate([*tokens, END.encode()])), merges, [END]).save("bpeModel")
    for text, shown in (
        (f"the {END}", f"th|e| |{END}"), ("园b", "园[e5 9b|ad]|b"), ("字", "字[e5|ad|97]"), ("x😀", "x|😀[f0 9f|98|80]"),
        ("é园", "é[c3|a9]|园[e5 9b|ad]"), ("园字", "园字[e5 9b|ad e5|ad|97]"), ("a\nb", "a|\\n\n|b"), ("", ""),
        ("b\n\n\nb", "b|\\n\n\\n\n|\\n\n|b"), ("a\x1b[3m\r\x07\x9b", "a|\\x1b|[|3|m|\\r|\\x07|\\x9b[c2|9b]"),
    ):  # fmt: skip
        ids, n_bytes = bpe.Tokenizer.load("bpeModel").encode(text), len(text.encode())
        sizes = f"{len(ids)} tokens, {n_bytes} bytes, {n_bytes / max(len(ids), 1):.2f} bytes per token"
        assert main("--show", text) == (0, f"{shown}\n{' '.join(map(str, ids))}\n{sizes}\n", "")


def test_show_refuses_bytes_that_are_not_utf8(main):
    assert main("words.txt", 262, "--quiet")[0] == 0
    result = run("--show", "low\udcff")
    assert result.returncode == 2 and regex.search("UTF-8|utf-8|surrogates", one_line(result.stderr))


@only_python
@pytest.mark.parametrize("options, text", [
    *[(option, f"'{option.split()[0][2:].replace('-', '_')}' is not an option here; the options are ")
      for option in ("--min-word-count 2", "--min-frequency 2", "--pattern o200k", "--errors replace", "--workers 2")],
    ("--explain 3", "--show"), ("--encode ids.npy", "--show"), ("words.txt 300", "--show"),
    ("--special-token <x>", "special"), ("--no-special-tokens", "special"),
])  # fmt: skip
def test_show_takes_no_options_of_training(main, error, options, text):
    assert main("words.txt", 262, "--quiet")[0] == 0
    assert text in error("--show", "low", *options.split())


# --- IX. The command line: help and progress -------------------------------------------------------------------------


@only_python
@pytest.mark.parametrize("name", ["bpe.py", "/somewhere/bin/bpe-py"])
def test_help_has_all_options_and_names_the_program_as_it_was_started(main, monkeypatch, name):
    monkeypatch.setattr(sys, "argv", [name])
    status, stdout, _ = main("--help")
    assert status == 0 and f"usage: {os.path.basename(name)} " in stdout
    assert all(option in stdout for option in ("--special-token", "--explain", "--encode", "--min-frequency"))

    assert main("--version")[:2] == (0, f"{os.path.basename(name)} {bpe.__version__}\n") and main()[0] == 2


@only_python
def test_the_progress_counts_what_has_come(monkeypatch, capsys):
    clock = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    assert list(bpe.with_progress("abc", True, str)) == ["a", "b", "c"]
    assert capsys.readouterr().err.split() == ["1", "2", "3"]


def test_the_progress_on_a_terminal_is_one_line_that_is_wiped_even_after_an_error(words_txt, monkeypatch, cut):
    clock = itertools.count(100, 0.15)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    cut(20, 20)
    expected = bpe.train_bpe("words.txt", 265)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert bpe.train_bpe("words.txt", 265, progress=True, workers=1) == expected
    shown = sys.stderr.getvalue()
    assert regex.search(r"\r\W*counting words: \d+ MB \(\d+%\)", shown)
    assert regex.search(r"\r\W*learning merges: \d+", shown)
    assert "left" not in shown and "\n" not in shown and shown.endswith(" \r")
    for error, last in ((TypeError, 5), (UnicodeEncodeError, "\ud800")):
        monkeypatch.setattr(sys, "stderr", Terminal())
        texts = ["low lower " * 20] * 9 + [last]
        with pytest.raises((ValueError, error)):
            bpe.train_bpe(None, 300, texts=texts, progress=True, workers=1)
        assert sys.stderr.getvalue().endswith(" \r") and "counting" in sys.stderr.getvalue()


@pytest.mark.parametrize("by_link", [os.symlink, os.link, shutil.move])
def test_an_output_is_never_an_input_or_another_output(main, error, by_link):
    """What a link leads to counts, too; nothing is read, and nothing is lost."""
    assert main("words.txt", 262)[0] == 0
    text = Path("words.txt").read_bytes()
    for name in ("a.npy", "bpeModel/merges.txt"):
        with contextlib.suppress(FileNotFoundError):
            os.remove(name)
        by_link(os.path.abspath("words.txt"), name)
        corpus = "words.txt" if os.path.exists("words.txt") else name
        arguments = ["--encode", name] if name == "a.npy" else [262]
        assert "is the same file as" in error(corpus, *arguments)
        assert Path(corpus).read_bytes() == text
        shutil.copy(name, "text")
        os.remove(name)
        shutil.move("text", "words.txt")
    os.remove("bpeModel/vocab.json")
    os.symlink("tokenizer.json", "bpeModel/vocab.json")
    for save in (lambda: bpe.Tokenizer.load("bpeModel").save("bpeModel"), lambda: bpe.Tokenizer({}, []).save("bpeModel")):
        with pytest.raises(ValueError, match=r"vocab\.json is the same file as .*tokenizer\.json"):
            save()


def test_standard_input_may_not_be_the_output(words_txt):
    bpe.Tokenizer.train("words.txt", 262).save("bpeModel")
    shutil.copy("words.txt", "a.npy")
    with open("a.npy", "rb") as corpus:
        result = run("-", "--encode", "a.npy", stdin=corpus)
    assert result.returncode == 2 and "the output a.npy is the same file as -" in one_line(result.stderr)
    assert Path("a.npy").read_bytes() == Path("words.txt").read_bytes()


# --- IX. The command line: encoding ----------------------------------------------------------------------------------


@pytest.mark.parametrize("special_token, pattern", [("a b", "o200k"), ("<x>", CUSTOM)])
def test_encode_on_the_command_line_takes_everything_from_the_folder(main, part, cut, special_token, pattern):
    """This includes where text may be cut: if "a b" is a special token, not between a and b."""
    vocab, merges = train_and_save("model", part, 500, [special_token, END], pattern=pattern)
    text, path = f"Some 12345 xa bx a b words'LL{special_token}{END}x" * 20, Path("text.txt")
    path.write_text(text)
    expected = bpe.Tokenizer(vocab, merges, [special_token, END], pattern).encode(text)
    cut(10, 8)
    status, _, stderr = main(path, "--encode", "ids.npy", "--model", "model", "--workers", "1")
    assert status == 0 and read_ids("ids.npy") == ("u2", expected)
    assert summary(stderr)["encoded"] == f"{len(text):,} bytes as {len(expected)} tokens"
    assert run("-", "--encode", "pipe.npy", "--model", "model", stdin=text.encode()).returncode == 0
    assert read_ids("pipe.npy") == ("u2", expected)


@only_python
@pytest.mark.parametrize("arguments, text", [
    ("words.txt --pattern o200k", "'pattern' is not an option here"), ("words.txt --special-token <y>", "special"),
    ("words.txt --no-special-tokens", "special"), ("words.txt --min-frequency 2", "'min_frequency' is not"),
    ("words.txt --model none", "none"), ("words.txt 300", "--encode"), ("words.txt --explain 3", "--encode"),
    ("missing.txt", "missing.txt"),
])  # fmt: skip
def test_encode_is_refused_before_any_work(main, error, arguments, text):
    assert main("words.txt", 262, "--quiet")[0] == 0
    before = files_of("bpeModel")
    assert text in error(*arguments.split(), "--encode", "ids.npy")
    assert sorted(os.listdir()) == ["bpeModel", "words.txt"] and files_of("bpeModel") == before


# --- IX. The command line: errors ------------------------------------------------------------------------------------


@only_python
@pytest.mark.parametrize("arguments, text", [
    *[(wrong, "vocabulary size|no such file|No such") for wrong in ("c.txt", "c.txt many", "c.txt 10kk", "300 c.txt", "c.txt 1,000")],
    ("300", "corpus"), ("", "corpus"), ("--encode ids.npy", "corpus"), ("c.txt -10", "a positive integer, not -10"),
    ("c.txt 10", r"vocabulary size 10 is too small; the minimum is 257 \(256 bytes \+ 1 special token\)"),
    ("c.txt --vocab-size 300", "--vocab-size"), ("c.txt 300 --special-tokens <x>", "--special-tokens|size"),
    ("c.txt 300 --colour", "--colour"), ("c.txt 300 --errors ignore", "ignore"),
    ("c.txt 300 --pattern ([", "regular expression"), ("c.txt 300 --pattern ''", "pattern"),
    *[(f"c.txt 300 --{name.replace('_', '-')} 0", f"{name} must be a positive integer, not 0")
      for name in ("workers", "min_frequency", "min_word_count")],
    *[(f"c.txt 300 --explain {wrong}", "--explain takes a positive number, or a range such as 5-7, not")
      for wrong in ("x", "1.5", "0", "-3", "5-4", "0-3", "1-", "''")],
    ("c.txt 300 --pair 'a b'", "--pair"), ("c.txt 300 --compare missing.txt", "missing.txt"),
    ("c.txt 300 --compare c.txt", "c.txt: line 1 must be two tokens separated by one space: 'hello'"),
    ("c.txt 300 --compare c.txt --explain 3", "--explain"), ("c.txt --compare c.txt", "vocabulary size"),
    ("c.txt 300 --special-token a b", "the last argument must be the vocabulary size, such as 10000 or 10k, not 'b'"),
    ("--show x", "no model in bpeModel: train one first, or name it with --model"),
    ("c.txt --encode ids.npy", "no model in bpeModel: train one first, or name it with --model"),
    ("docs 300", r"docs is a folder; name its files \(docs/\*.txt\)"),
    ("c.txt 300 --workers x", "--workers"), ("c.txt 300 --special-token \udcff", "surrogates"),
    ("c.txt 300 --special-token ''", r"special token 1 \(''\)"), ("'' 300", "name|No such file"),
    ("c.txt 300 --model ''", "--model must name a folder, not ''"), ("c.txt --encode ids.txt", r"\.npy|bpeModel"),
    ("--show x c.txt", "--show"), ("--show x", "bpeModel"), ("--show x --model none", "none"),
    ("missing.txt 300", "^error: No such file or directory: 'missing.txt'$"), ("c.txt missing.txt 300", "missing.txt"),
    (". 300", r"error: \.[: ].*(folder|directory)"), ("c.txt docs 300", "error: docs.*(folder|directory)"),
    ("c.txt 300 --model c.txt", "c.txt"), ("my.gz 300", f"my.gz: not valid UTF-8 at byte 1 .*{HINT}"),
])  # fmt: skip
def test_bad_command_lines_end_with_one_line_and_status_2(error, arguments, text):
    os.mkdir("docs")
    Path("c.txt").write_bytes(b"hello")
    Path("my.gz").write_bytes(b"\x1f\x8b\x08\x00")
    message = error(*shlex.split(arguments))
    assert regex.search(text, message) and "Errno" not in message, message
    assert sorted(os.listdir()) == ["c.txt", "docs", "my.gz", "words.txt"]


@only_python
def test_a_missing_python_or_package_is_an_error_of_one_line(words_txt):
    script = f"import runpy, sys; sys.version_info = (3, 9, 18); runpy.run_path({str(HERE / 'bpe.py')!r})"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True)
    assert "Python 3.10 or later" in one_line(result.stderr)
    for arguments in (["words.txt", "300"], ["--help"]):  # -I -S hides installed packages
        result = subprocess.run([sys.executable, "-I", "-S", ROOT / "bpe.py", *arguments], capture_output=True)
        assert (result.returncode, result.stdout) == (1, b"") and "pip install regex" in one_line(result.stderr)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit for the size of files")
def test_a_full_disk_is_an_error_and_leaves_everything_as_it_was(words_txt, part):
    assert run(part, 300, "--model", "model").returncode == 0
    Path("ids.npy").write_bytes(b"earlier")
    Path("new/model").mkdir(parents=True)
    before = sorted(os.listdir()), files_of("."), files_of("model")
    for options in ([500, "--model", "model"], [500, "--model", "new/model"], ["--encode", "ids.npy", "--model", "model"]):
        result = run(part, *options, "--quiet", preexec_fn=limit("FSIZE", 3000))
        assert result.returncode == 2 and "File too large" in one_line(result.stderr), result
        assert (sorted(os.listdir()), files_of("."), files_of("model")) == before


@only_c
@pytest.mark.skipif(sys.platform == "win32", reason="no limits for a process here")
def test_running_out_of_memory_is_an_error_of_one_line(words_txt):
    with open("/dev/zero", "rb") as endless:
        result = run("-", 300, stdin=endless, preexec_fn=limit("AS", 70_000_000))
    assert (result.returncode, one_line(result.stderr)) == (1, "error: out of memory\n")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("redirection", ["<&-", "2>&-", ">&-", "2>/dev/full", "<&- >&- 2>&-", ">/dev/full 2>&1"])
@only_python
def test_a_closed_or_full_stream_does_not_cost_the_training(words_txt, redirection):
    result = shell(f'"$@" {redirection}', "words.txt", 300, "--explain", 1, "--model", "bpeModel")
    # the explanation is lost if there is no room for it
    assert result.returncode == (redirection == ">/dev/full 2>&1"), result.stderr
    assert Path("bpeModel/merges.txt").read_text().startswith("#version: 0.2\ns t\n")
    if redirection == "<&-":
        failure = shell('"$@" <&-', "-", 300)
        assert failure.returncode == 2 and one_line(failure.stderr)


@pytest.mark.parametrize("make", [lambda: None, object, io.StringIO, lambda: open(os.devnull, "w")])  # noqa: SIM115
def test_a_closed_or_replaced_standard_error_does_not_cost_the_training(words_txt, monkeypatch, make):
    expected, stream = bpe.train_bpe("words.txt", 300, [END]), make()
    if hasattr(stream, "close"):
        stream.close()
    with monkeypatch.context() as patched:
        patched.setattr(warnings, "showwarning", warnings.showwarning)  # main replaces it
        patched.setattr(sys, "stderr", stream)
        assert bpe.train_bpe("words.txt", 300, [END], progress=True) == expected
        assert bpe.main(["words.txt", "300"]) == 0
    assert model_in("bpeModel") == expected


@only_python
@pytest.mark.parametrize("options", [["--explain", "3", "--model", "bpeModel"]])
def test_a_closed_pipe_does_not_cost_the_training(words_txt, options):
    reading, writing = os.pipe()
    os.close(reading)  # as `head -1` does, only earlier
    with open(writing, "wb") as pipe:
        result = subprocess.run(command("words.txt", 300, *options), stdout=pipe, stderr=subprocess.PIPE, timeout=60)
    assert result.returncode == 0 and b"roken pipe" not in result.stderr and b"saved" in result.stderr
    assert len(model_in("bpeModel")[1]) == 16


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
@pytest.mark.parametrize("doing, name", [
    ("counting", "SIGINT"), ("counting", "SIGTERM"), ("counting", "SIGKILL"), ("learning", "SIGINT"),
    ("encoding", "SIGINT"), ("encoding", "SIGTERM"), ("learning", "SIGTERM"),
])  # fmt: skip
def test_a_signal_ends_a_run_within_a_second_and_leaves_nothing(tmp_path, part, engine, doing, name):
    """Workers have the same standard error, so it ends when all of them have ended."""
    text, size = CORPUS.read_bytes() * 100, "30000"
    if doing == "learning":  # one long word: a merge changes many places, so no call into C is short by itself
        table = bytes(97 + byte % 26 for byte in range(256))
        text, size = random.Random(1).randbytes(8_000_000 if engine == "c" else 1_000_000).translate(table), "100000"
    arguments = [*["text.txt"] * (1 if doing == "learning" else 400), size, "--model", "out"]
    if doing == "encoding":
        train_and_save(tmp_path / "model", part, 600, [END])
        arguments = [*["text.txt"] * 400, "--encode", "ids.npy", "--model", "model"]
    (tmp_path / "text.txt").write_bytes(text)
    program = f"""
        import os, sys
        sys.path.insert(0, {str(ROOT)!r})
        import bpe
        def note(event, arguments):
            if event == "open" and str(arguments[0]).endswith("text.txt"):
                os.close(os.open(f"{{os.getpid()}}.pid", os.O_CREAT))
        sys.addaudithook(note)
        def learn(*arguments, learn=bpe.learn):
            yield next(merges := learn(*arguments))
            os.close(os.open("learning.pid", os.O_CREAT))
            yield from merges
        bpe.learn = learn
        bpe.SLICE_BYTES = bpe.SLICE_BYTES_IN_C = 500_000  # so that the first ids are written early
        sys.exit(bpe.main())
    """
    arguments += ["--workers", "2", "--quiet", "--engine", engine]
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    before = sorted(path for path in tmp_path.rglob("*"))
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.PIPE, start_new_session=True, cwd=tmp_path)
    begun = {
        "counting": lambda: len(list(tmp_path.glob("*.pid"))) == (3 if engine == "python" else 1),
        "learning": (tmp_path / "learning.pid").exists,
        "encoding": lambda: any(path.stat().st_size > 1000 for path in tmp_path.glob("ids*")),
    }[doing]  # fmt: skip
    try:
        wait_for(begun)
        assert process.poll() is None
        start = time.perf_counter()
        if name == "SIGKILL":  # to this process alone: its workers end by themselves
            process.kill()
        else:
            os.killpg(process.pid, getattr(signal, name))  # to its group, as a terminal does
        _, errors = process.communicate(timeout=20)
        assert time.perf_counter() - start < 1
    finally:
        process.kill()
    status, line = {"SIGINT": (130, "interrupted\n"), "SIGTERM": (143, "terminated\n"), "SIGKILL": (-9, "")}[name]
    assert process.returncode == status and errors.decode() == line
    assert sorted(path for path in tmp_path.rglob("*") if path.suffix != ".pid" and path.name != "log") == before


# --- X. Characters: BPE as in Sennrich et al. 2016 -------------------------------------------------------------------


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
@pytest.mark.parametrize("name", ["corpus.txt", "random"])
def test_merges_and_segments_of_characters_are_those_of_subword_nmt(name):
    need("subword_nmt")
    from subword_nmt import apply_bpe, learn_bpe

    rng, texts = random.Random(name), [FIXTURE[:50_000].replace(END, "")]
    if name == "random":  # in words it has no other whitespace, which subword-nmt takes for a space now and then
        texts = [random_text(rng, [*"abcé字 \n", " \r\n", "ab "], rng.randint(20, 200)) + " ab" for _ in range(60)]
    for text in texts:
        lines, codes, frequent = [line + "\n" for line in text.split("\n")], io.StringIO(), 2 - (name == "random")
        learn_bpe.learn_bpe(lines, codes, 30 if name == "random" else 300, min_frequency=frequent)
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


# --- large real texts, if BPE_CORPORA names a folder -----------------------------------------------------------------


@needs_corpora
@only_c
@pytest.mark.parametrize("name, size", [
    ("zh.txt", 1000), ("languages.txt", 1000), ("code.txt", 32_000), ("novels.txt", 10_000),
])  # fmt: skip
def test_workers_slices_and_engines_change_nothing_on_large_texts(name, size, cut):
    path = Path(CORPORA) / name
    pieces = path.read_bytes().decode().split(END)
    counts = Counter(itertools.chain.from_iterable(map(regex.compile(GPT2).findall, pieces)))
    words = {word.encode(): count for word, count in counts.items()}
    for slice_bytes, workers in itertools.product((100_000, 3 << 20), (1, 2, 7)):
        cut(slice_bytes)
        assert bpe.count_words(path, [END], workers=workers) == words
    cut(1 << 20)
    assert bpe.count_words(path, [END], engine="python") == words
    in_python = bpe.train_from_counts(words, size, [END], engine="python")
    assert bpe.train_from_counts(words, size, [END], engine="c") == in_python


# --- the README: every block runs as printed, in order ---------------------------------------------------------------


def readme_blocks(name):
    """[(required package or None, language, code), ...] for a README."""
    text = (HERE / name).read_text(encoding="utf-8")
    found = regex.findall(r"(?:<!-- needs (\w+) -->\n)?```(\w+)\n(.*?)```\n", text, regex.DOTALL)
    return [(package or None, language, code) for package, language, code in found]


NOT_RUN = ("pip install", "python build_ffi.py", ".venv/bin/pytest")  # this test already runs in the result
INSTALLING = r"python3 -m venv .* && \.venv/bin/bpe-py"


def without_measurements(text):
    """Remove times and the engine, which differ between machines."""
    return regex.sub(r"(?m)^ *[\d.]+ s  (engine\b.*)?", "", text).strip()


def what_runs(language, code):
    """Remove comments, installing, and the commands in NOT_RUN."""
    if language == "python":
        return ast.unparse(ast.parse(code))
    code = regex.sub(INSTALLING, "python bpe.py", code)
    return "".join(line for line in code.splitlines(keepends=True) if not line.startswith(NOT_RUN))


def statements(code):
    """[(statement, the comment after it), ...] for a block of Python."""
    lines = code.encode().splitlines()  # the offsets are those of bytes
    found = ((ast.unparse(part), lines[part.end_lineno - 1][part.end_col_offset :]) for part in ast.parse(code).body)
    return [(statement, comment.decode().strip().lstrip("#").strip()) for statement, comment in found]


def outputs_of_blocks(blocks, folder):
    """Run blocks of (language, code); returns what each one prints, in Python for each statement."""
    for path in (FIXTURES, ROOT / "bpe.py", ROOT / "build_ffi.py", ROOT / "bpe_fast.c", *ROOT.glob("_bpe_fast*.*")):
        (folder / path.name).symlink_to(path)
    variables, outputs = {}, []
    for language, code in blocks:
        if language == "sh":
            result = subprocess.run(["sh", "-e", "-c", code], capture_output=True, text=True, timeout=60)
            assert result.returncode == 0, (code, result.stderr)
            outputs.append(result.stdout + result.stderr)
        else:
            outputs.append([])
            for statement, _ in statements(code):
                with contextlib.redirect_stdout(io.StringIO()) as printed:
                    exec(statement, variables)
                outputs[-1].append(printed.getvalue().strip())
    return outputs


PAGES = [f"{page}{zh}.md" for page in ("README", "docs/exercises", "docs/compatibility", "docs/cluster") for zh in ("", ".zh")]
NOT_REQUIRED = ("gigatoken", "ray", "pyspark")  # no other test needs them, and the last two are large
OUTPUTS = {}  # blocks -> their outputs; two READMEs with the same code run it once


@pytest.mark.parametrize("engine", ENGINES[-1:], indirect=True)  # other tests show that both engines give the same
@pytest.mark.parametrize("name", PAGES)
def test_every_block_of_the_readme_runs_and_prints_what_it_shows(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}")
    required = os.environ.get("BPE_REQUIRE_PACKAGES")
    has = lambda package: (required and package not in NOT_REQUIRED) or importlib.util.find_spec(package)  # noqa: E731
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
        else:
            for shown, (statement, comment) in zip(output, statements(code)):
                assert shown == comment if statement.startswith("print") else not shown, statement


if __name__ == "__main__":
    write_expected()
