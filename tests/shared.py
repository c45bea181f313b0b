"""What several files of this folder need: engines, training, the command line; and helpers that test_bpe.py doesn't need."""

import array
import ast
import contextlib
import functools
import io
import os
import pickle
import subprocess
import sys
import time
import unicodedata
import warnings
from pathlib import Path

import pytest
import regex

# this module first: it looks for the C engine, or builds one, before bpe is imported
from test_bpe import BUILD_ERRORS, CORPUS, END, ROOT, TEXTBOOK, WHY_NO_C, C, need

# isort: split
import bpe
import bpe_more
from bpe_more import choices, command
from bpe_more.corpus import reading, slicing

choices.find_engine()  # it keeps the first answer, which must not be that of a test that replaces bpe.find_engine

# `python -m bpe_more` works in any folder
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])

MANY = int(os.environ.get("BPE_TEXTS", 100))  # texts for each kind of model of other programs; .ci/long takes 2000
CORPORA = os.environ.get("BPE_CORPORA")  # a folder with novels.txt, tinystories_2M.txt, ...: large real texts
ENGINES = ["python", "c"] if C or os.environ.get("BPE_REQUIRE_C") else ["python"]
NOT_IN_C = r"(\w+)|\s"  # C scans no groups
only_python = pytest.mark.parametrize("engine", ["python"], indirect=True)
only_c = pytest.mark.parametrize("engine", ["c"], indirect=True)
once = pytest.mark.parametrize("engine", ENGINES[-1:], indirect=True)  # with C if it is there

# `regex` follows Unicode faster than the packages it is compared with, so random text for them consists of characters
# in this Python's older Unicode.
KNOWN = [c for c in map(chr, range(0x110000)) if unicodedata.category(c) not in ("Cn", "Cs")]


def without_engine(monkeypatch, why="not built"):
    """Let all of bpe_more work as if the C engine were not built."""
    for module in (bpe, choices):
        monkeypatch.setattr(module, "find_engine", lambda: (None, why))


def choose_engine(name, monkeypatch):
    """Run a test with the C engine, or as if it were not built."""
    if name == "python":
        why = "the C engine is not built: python build_ffi.py builds one"
        without_engine(monkeypatch, why)
    elif C is None:
        reason = (BUILD_ERRORS.strip().splitlines() or [WHY_NO_C])[-1]
        if os.environ.get("BPE_REQUIRE_C"):
            pytest.fail(f"BPE_REQUIRE_C is set, but the C engine is missing: {reason}")
        pytest.skip(f"no C engine: {reason}")
    return name


@pytest.fixture
def train(tmp_path):
    """train(text or bytes, vocab_size, special_tokens, **options) -> (vocab, merges), through a file."""

    def call(text, vocab_size, special_tokens=(), **options):
        path = tmp_path / "text.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return bpe_more.train_bpe(path, vocab_size, list(special_tokens), **options)

    return call


@functools.cache
def trained(size, pattern="gpt2"):
    """(vocab, merges) of the fixture, or of a larger corpus; with GPT-2's pattern in place of a custom one."""
    path = Path(CORPORA) / "languages.txt" if CORPORA and size > 5000 else CORPUS
    return bpe_more.train_bpe(path, size, [END], pattern=pattern if pattern in bpe.PATTERNS else "gpt2")


@pytest.fixture
def cut(monkeypatch):
    """cut(slice_bytes, window_bytes): read in slices of this size, each cut in its last window."""

    def call(slice_bytes, window_bytes=None):
        monkeypatch.setattr(slicing, "SLICE_BYTES", slice_bytes)
        monkeypatch.setattr(reading, "SLICE_BYTES_IN_C", slice_bytes)
        monkeypatch.setattr(slicing, "WINDOW_BYTES", window_bytes or min(max(slice_bytes, 50), 64 << 10))

    return call


def words_in(text, special_tokens=(), pattern="gpt2", **options):
    """{word: count} for text, with words as str."""
    counts = bpe_more.count_words(None, list(special_tokens), texts=[text], pattern=pattern, **options)
    return {word.decode(): count for word, count in counts.items()}


def summary(output):
    """{"read": "95 bytes", ...}, for lines of the time since the beginning, a name in 14 columns, and a text."""
    return {name.strip(): text for name, text in regex.findall(r"(?m)^ *[\d.]+ s  (.{14}) (.*)$", output)}


def train_and_save(folder, *arguments, **options):
    """Train a tokenizer, save it in a folder, and return (vocab, merges)."""
    tokenizer = bpe_more.Tokenizer.train(*arguments, **options)
    tokenizer.save(folder)
    return tokenizer.vocab, tokenizer.merges


def contents(tokenizer):
    """What a Tokenizer is made from."""
    return tokenizer.vocab, tokenizer.merges, tokenizer.special_ids, tokenizer.pattern


def model_in(folder):
    """(vocab, merges) of the model in a folder."""
    return contents(bpe_more.Tokenizer.load(folder))[:2]


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
                status = command.main([str(argument) for argument in arguments])
            except SystemExit as stop:  # --help
                status = stop.code
        return status, output.getvalue(), errors.getvalue()

    return call


BAD_UTF8 = [
    b"\xff", b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe5\xad", b"\x80", b"\xf8",
    b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xed\xbf\xbf", b"\xf0\x8f\xbf\xbf", b"\xf5\x80\x80\x80", b"\xe5", b"\xf0\x9f\x98",
]  # fmt: skip


def split_anywhere(rng, text):
    cuts = sorted(rng.choices(range(len(text) + 1), k=rng.randint(0, 12)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)])]


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


def wait_for(event, seconds=30):
    """Wait until event() is true, for a limited time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError):  # a temporary file that has just gone
            if event():
                return
        time.sleep(0.01)


def on_a_terminal(command, columns=80, **options):
    """Run a command whose standard error is a terminal of this width; return its status, and what was shown."""
    import fcntl
    import pty
    import struct
    import termios

    ours, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(command, stderr=terminal, **options)
    os.close(terminal)
    shown = b""
    with contextlib.suppress(OSError), os.fdopen(ours, "rb", buffering=0) as stream:  # EIO: all have closed it
        while block := stream.read(4096):
            shown += block
    return process.wait(timeout=60), shown.decode()


def one_line(stderr):
    """Check that an error is one line without a traceback, and return it as str."""
    text = stderr.decode()
    assert text.count("\n") == 1 and "Traceback" not in text, text
    return text


@contextlib.contextmanager
def pipe_of(data):
    """The path of a pipe with data, which must fit into it."""
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb") as pipe:
        pipe.write(data)
    with os.fdopen(read_end, "rb"):
        yield f"/dev/fd/{read_end}"


FORMS = [  # what NFC and NFKC change, and what only looks like it
    "e\u0301", "\u00e9", "\u0301", "\u0958", "\u0958.", "\u1112\u1161\u11ab", "\uac00\u11a8", "\u2126", "\u212b", "ﬁ", "™", "①",
    "か\u3099", "か゛", "ｶﾞ", "\uff9e", "=\u0338", "a\u0323\u0307", "a\u0307\u0323", "Ａ１", "＜EOT＞", "<EOT", "…", "½", "\u037e", "\u00a0",
]  # fmt: skip


def load_elsewhere(folder):
    """Load a folder in tokenizers, and in tiktoken by the recipe in docs/recipes.md."""
    tokenizers, tiktoken = need("tokenizers"), need("tiktoken")
    tokenizer = bpe.Tokenizer.load(folder)
    special_ids, pattern = tokenizer.special_ids, bpe.PATTERNS[tokenizer.pattern]
    ranks = {token: token_id for token_id, token in tokenizer.vocab.items() if token_id not in special_ids.values()}
    encoding = tiktoken.Encoding("mine", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special_ids)
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")), encoding


MODELS = [  # arguments of train_bpe
    {"vocab_size": 300, "special_tokens": [END]},
    {"vocab_size": 300, "special_tokens": [END], "pattern": "cl100k", "min_frequency": 3},
    {"vocab_size": 300, "special_tokens": ["<y>", "<x>", "<x><y>"], "pattern": "o200k"},
    {"vocab_size": 290, "special_tokens": [], "pattern": r"\d|\p{L}+"},
]


def least_seconds(call, *arguments):
    """The CPU time of a call, the least of three."""
    times = []
    for _ in range(3):
        start = time.process_time()
        call(*arguments)
        times.append(time.process_time() - start)
    return min(times)


def ids_in_file(tokenizer, text, folder, **options):
    """Write text to a file, encode that into another file, and return its ids."""
    path, output = Path(folder, "text.txt"), Path(folder, "ids.npy")
    path.write_bytes(text.encode())
    tokenizer.encode_files(path, output, workers=1, **options)
    return read_ids(output)[1]


def same_everywhere(path, texts, folder):
    """Load a tokenizer.json here and in tokenizers: the ids are the same, also after it is saved in a folder, and pickled.

    Returns the tokenizer, that of tokenizers, and the ids of the texts.
    """
    read = need("tokenizers").Tokenizer.from_file
    theirs, ours = read(str(path)), bpe_more.Tokenizer.load(path)
    expected = [ids.ids for ids in theirs.encode_batch(texts, add_special_tokens=False)]
    assert [ours.encode(text) for text in texts] == ours.encode_batch(texts) == expected
    ours.save(folder)
    for same in bpe_more.Tokenizer.load(folder), pickle.loads(pickle.dumps(ours)):
        assert [same.encode(text) for text in texts[::5]] == expected[::5]
    elsewhere = read(str(folder / "tokenizer.json"))
    assert [ids.ids for ids in elsewhere.encode_batch(texts, add_special_tokens=False)] == expected
    return ours, theirs, expected


@pytest.fixture(autouse=True)
def in_both_engines():
    """For folders and files whose tests run once: where this is imported, it replaces the fixture of tests/conftest.py."""
