"""bpe.py alone against bpe.py with everything: equal results for valid input, the same class of error for the rest.

The plain forms of bpe.py and the strong ones of bpe_more are two ways to do one job. Here each call is made with both.
"""

import contextlib
import importlib.util
import io
import itertools
import os
import random
import shutil
import sys
import warnings
from pathlib import Path

import pytest

import bpe
from test_bpe import CORPORA, CORPUS, END, FIXTURE, HERE, PART, TRICKY, files_of, only_c, random_text

PATTERNS = [*bpe.PATTERNS, r"\s?\w+|\s+|[^\w\s]+"]
SPECIALS = [[], [END], ["<a>", "<a><b>", "b><", "the"]]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """bpe.py in a folder of its own, as a module with another name."""
    path = tmp_path_factory.mktemp("alone") / "alone_bpe.py"
    shutil.copy(HERE / "bpe.py", path)
    spec = importlib.util.spec_from_file_location("alone_bpe", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["alone_bpe"] = module  # so that worker processes find it
    spec.loader.exec_module(module)
    assert module.find_engine()[0] is None
    yield module
    del sys.modules["alone_bpe"]


def corpora():
    """{name: text} of several kinds; larger ones, of real text, if they are at hand."""
    rng = random.Random(5)
    texts = {
        "fixture": FIXTURE[:150_000],
        "scripts": PART * 3,
        "random": random_text(rng, [*TRICKY, "the", " the", END, "<a>", "b>"], 30_000),
        "letters": "ab" * 20_000 + " " + "c" * 20_000,
        "lines": "\r\n".join(random_text(rng, "low er", 30) for _ in range(2000)),
    }
    for name in ("novels", "languages", "zh", "code", "tinystories_2M") if CORPORA else ():
        with open(Path(CORPORA) / f"{name}.txt", "rb") as file:
            texts[name] = file.read(1_000_000).decode("utf-8", "ignore")
    return texts


TEXTS = corpora()


@only_c
@pytest.mark.parametrize("name", TEXTS)
def test_counts_merges_and_files_are_the_same_alone(alone, monkeypatch, tmp_path, name):
    """Slices of 3 KB go through a real pool of processes; each pattern has each list of special tokens."""
    monkeypatch.setattr(alone, "SLICE_BYTES", 3000)
    path = tmp_path / "corpus.txt"
    path.write_bytes(TEXTS[name].encode())
    for pattern, specials in itertools.product(PATTERNS, SPECIALS):
        counts = bpe.count_words(path, specials, pattern=pattern)
        assert alone.count_words(path, specials, pattern=pattern, workers=2) == counts
        assert alone.count_words(None, specials, texts=[TEXTS[name]], pattern=pattern) == counts
        size = 300 + len(specials)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours = bpe.Tokenizer(*bpe.train_from_counts(counts, size, specials), specials, pattern)
            theirs = alone.Tokenizer(*alone.train_from_counts(counts, size, specials), specials, pattern)
        assert (theirs.vocab, theirs.merges) == (ours.vocab, ours.merges)
        text = TEXTS[name][:5000]
        ids = ours.encode(text)
        assert theirs.encode(text) == ids and theirs.encode_ordinary(text) == ours.encode_ordinary(text)
        lines = text.splitlines(keepends=True)
        assert theirs.encode_batch(lines) == ours.encode_batch(lines)
        assert list(theirs.encode_iterable(lines)) == list(ours.encode_iterable(lines)) == ids
        assert theirs.decode(ids) == ours.decode(ids) == text
        assert theirs.decode(ids, skip_special_tokens=True) == ours.decode(ids, skip_special_tokens=True)
        assert "".join(theirs.decode_iterable(ids)) == text


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_model_saved_alone_has_the_same_bytes_and_loads_in_both(alone, tmp_path, pattern):
    ours = bpe.Tokenizer.train(CORPUS, 400, [END, "<a>"], pattern=pattern)
    theirs = alone.Tokenizer.train(CORPUS, 400, [END, "<a>"], pattern=pattern)
    ours.save(tmp_path / "ours")
    theirs.save(tmp_path / "theirs")
    files = files_of(tmp_path / "theirs")
    assert sorted(files) == ["merges.txt", "tokenizer.json", "vocab.json"]
    assert files.items() <= files_of(tmp_path / "ours").items()
    for module in (bpe, alone):
        for folder in ("ours", "theirs"):
            assert module.Tokenizer.load(tmp_path / folder).encode(PART) == ours.encode(PART)
        paths = tmp_path / "theirs/vocab.json", tmp_path / "ours/merges.txt"
        assert module.Tokenizer.from_files(*paths, [END], pattern).encode(PART) == ours.encode(PART)
    assert theirs.encode_files(CORPUS, tmp_path / "a.npy", workers=2) == ours.encode_files(CORPUS, tmp_path / "b.npy")
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


def text_file(folder, content=b"low low lower"):
    path = folder / "text.txt"
    path.write_bytes(content)
    return path


def small(module, **arguments):
    """A tokenizer whose merges are l o, lo w."""
    vocab = dict(enumerate([*(bytes([byte]) for byte in range(256)), b"lo", b"low"]))
    return module.Tokenizer(**{"vocab": vocab, "merges": [(b"l", b"o"), (b"lo", b"w")], **arguments})


def loaded(module, folder, name, content):
    """Load a file of a model that has this content."""
    small(module).save(folder / "model")
    (folder / "model" / name).write_text(content, encoding="utf-8")
    if name == "tokenizer.json":
        return module.Tokenizer.load(folder / "model").encode("low")
    return module.Tokenizer.from_files(folder / "model/vocab.json", folder / "model/merges.txt").encode("low")


LARGE = 10**30
ODD = {  # a call of both, which get the module and a folder
    "no path": lambda m, d: m.count_words([]),
    "no texts": lambda m, d: m.count_words(texts=[]),
    "training on no texts": lambda m, d: m.train_bpe(texts=[], vocab_size=300),
    "an iterator that is used up": lambda m, d: m.train_bpe(texts=iter([]), vocab_size=300),
    "empty texts": lambda m, d: m.train_bpe(texts=["", ""], vocab_size=256),
    "an empty file": lambda m, d: m.train_bpe(text_file(d, b""), 256),
    "neither": lambda m, d: m.count_words(),
    "both": lambda m, d: m.count_words(text_file(d), texts=["a"]),
    "one string as texts": lambda m, d: m.count_words(texts="low"),
    "a dict as texts": lambda m, d: m.count_words(texts={"train": ["a"], "test": ["b"]}),
    "a number as a text": lambda m, d: m.count_words(texts=["a", 1]),
    "bytes as a text": lambda m, d: m.count_words(texts=[b"a"]),
    "a surrogate": lambda m, d: m.count_words(texts=["a", "\ud800"]),
    "a surrogate, replaced": lambda m, d: m.count_words(texts=["a", "\ud800", "\ud83d\udc4d"], errors="replace"),
    "a folder": lambda m, d: m.count_words(d),
    "a missing file": lambda m, d: m.count_words([text_file(d), d / "missing.txt"]),
    "a path in bytes": lambda m, d: m.count_words(os.fsencode(text_file(d))),
    "a path that is a number": lambda m, d: m.count_words(5),
    "an iterator of paths": lambda m, d: m.count_words(iter([text_file(d)])),
    "invalid UTF-8": lambda m, d: m.count_words(text_file(d, b"low\xff")),
    "invalid UTF-8, replaced": lambda m, d: m.count_words(text_file(d, b"low\xff \xe5\x9b"), errors="replace"),
    "invalid UTF-8 in a special token": lambda m, d: m.count_words(text_file(d, b"<a\xff><a>"), ["<a>"]),
    **{f"size {size!r}": lambda m, d, size=size: m.train_bpe(texts=["low"], vocab_size=size)
       for size in (None, 0, -1, 100, 255, 256, 257.0, "300", True, 10**6)},
    **{f"special tokens {tokens!r}": lambda m, d, tokens=tokens: m.train_bpe(texts=["low"], vocab_size=300, special_tokens=tokens)
       for tokens in ("<a>", b"<a>", {"<a>"}, {"<a>": 1}, ["a"], [""], ["<a>", "<a>"], ["\ud800x"], ["x\ufffd"], [5], 5, ["<a>"] * 2)},
    **{f"pattern {pattern!r}": lambda m, d, pattern=pattern: m.train_bpe(texts=["low lower"], vocab_size=258, pattern=pattern)
       for pattern in ("", "gtp2", "(", "[", r"\w+|(?r)a", "\ud800.", None, 5, b"gpt2", "(?<=a)b", r"(\w+)\s", r"$", "(?=[A-Z])")},
    **{f"option {name}={value!r}": lambda m, d, given={name: value}: m.train_bpe(texts=["low lower"], vocab_size=258, **given)
       for name, value in [("errors", "ignore"), ("workers", 0), ("workers", 1.5), ("workers", True), ("engine", "rust"), ("progress", 2),
                           ("min_word_count", 0), ("min_word_count", LARGE), ("min_frequency", 0), ("min_frequency", LARGE), ("min_word_count", "2")]},
    "counts": lambda m, d: m.train_from_counts({b"low": 2, b" lower": 1}, 258),
    "counts of nothing": lambda m, d: m.train_from_counts({}, 258),
    "counts of 0": lambda m, d: m.train_from_counts({b"low": 0}, 258),
    "a negative count": lambda m, d: m.train_from_counts({b"low": -1}, 258),
    "a count that is a float": lambda m, d: m.train_from_counts({b"low": 1.0}, 258),
    "a word that is a str": lambda m, d: m.train_from_counts({"low": 1}, 258),
    "pairs": lambda m, d: m.train_from_counts([(b"low", 1), (b"low", 2)], 258),
    "no pairs": lambda m, d: m.train_from_counts([b"low"], 258),
    "a number as words": lambda m, d: m.train_from_counts(5, 258),
    "encode a number": lambda m, d: small(m).encode(5),
    "encode bytes": lambda m, d: small(m).encode(b"low"),
    "encode a surrogate": lambda m, d: small(m).encode("\ud800"),
    "a batch": lambda m, d: small(m).encode_batch(["low", "", "lower"]),
    "a batch of one string": lambda m, d: small(m).encode_batch("low"),
    "a batch of a dict": lambda m, d: small(m).encode_batch({"low": 1}),
    "a batch with a number": lambda m, d: small(m).encode_batch(["low", 5]),
    "a batch of nothing": lambda m, d: small(m).encode_batch([]),
    "a batch, workers=0": lambda m, d: small(m).encode_batch(["low"], workers=0),
    "a byte without a token": lambda m, d: small(m, vocab={0: b"l", 1: b"o", 2: b"lo"}, merges=[(b"l", b"o")]).encode("low"),
    "a batch with a byte without a token": lambda m, d: small(m, vocab={0: b"l"}, merges=[]).encode_batch(["l", "o"]),
    "a stream of two halves": lambda m, d: list(small(m).encode_iterable(["\ud83d", "\udc4d"], errors="replace")),
    "a stream with a surrogate": lambda m, d: list(small(m).encode_iterable(["a", "\ud83d"])),
    "a stream with a number": lambda m, d: list(small(m).encode_iterable(["a", 5])),
    "a dict as a stream": lambda m, d: list(small(m).encode_iterable({"low": 1})),
    "a stream with bad errors": lambda m, d: list(small(m).encode_iterable(["a"], errors="ignore")),
    "a string as a stream": lambda m, d: list(small(m).encode_iterable("lower")),
    "decode": lambda m, d: small(m).decode([256, 119, 257]),
    "decode an unknown id": lambda m, d: small(m).decode([5000]),
    "decode a str": lambda m, d: small(m).decode(["a"]),
    "decode a number": lambda m, d: small(m).decode(5),
    "decode half a character": lambda m, d: small(m).decode([0xE5, 97]),
    "a vocabulary of str": lambda m, d: small(m, vocab={0: "a"}),
    "a vocabulary of ids": lambda m, d: small(m, vocab={b"a": 0}),
    "a negative id": lambda m, d: small(m, vocab={-1: b"l"}, merges=[]),
    "an id of 33 bits": lambda m, d: small(m, vocab={2**32: b"l"}, merges=[]),
    "no id left": lambda m, d: small(m, vocab={2**32 - 2: b"l"}, merges=[], special_tokens=["<a>"]),
    "a token with two ids": lambda m, d: small(m, vocab={0: b"l", 1: b"l"}, merges=[]),
    "a merge twice": lambda m, d: small(m, merges=[(b"l", b"o"), (b"l", b"o")]),
    "a merge of unknown tokens": lambda m, d: small(m, merges=[(b"x", b"yz")]),
    "a merge of three": lambda m, d: small(m, merges=[(b"l", b"o", b"w")]),
    "a merge that makes a special token": lambda m, d: small(m, special_tokens=["low"]),
    "a special token that is a token": lambda m, d: small(m, merges=[(b"l", b"o")], special_tokens=["low"]).encode("low lower"),
    "a tokenizer with a bad pattern": lambda m, d: small(m, pattern="("),
    "a tokenizer with a misspelled pattern": lambda m, d: small(m, pattern="gtp2"),
    "save without a name": lambda m, d: small(m).save(""),
    "save onto a file": lambda m, d: small(m).save(text_file(d)),
    "save below a file": lambda m, d: small(m).save(text_file(d) / "model"),
    "save a special token that is a byte": lambda m, d: small(m, special_tokens=["é"]).save(d / "model"),
    "train a special token that looks like a token": lambda m, d: m.Tokenizer.train(texts=["low"], vocab_size=258, special_tokens=["Ġlow"]),
    "load nothing": lambda m, d: m.Tokenizer.load(d / "nothing"),
    "load an empty folder": lambda m, d: m.Tokenizer.load(d),
    **{f"{name} is {content[:20]!r}": lambda m, d, name=name, content=content: loaded(m, d, name, content)
       for name, content in [("tokenizer.json", ""), ("tokenizer.json", "{"), ("tokenizer.json", "{}"), ("tokenizer.json", "[]"), ("tokenizer.json", "5"),
                             ("vocab.json", ""), ("vocab.json", "[1]"), ("vocab.json", '{"l": 0, "o": 1}'), ("vocab.json", '{"l": "0"}'), ("merges.txt", ""),
                             ("merges.txt", "l o\nlo w\n"), ("merges.txt", "l o w\n"), ("merges.txt", "x y\n"), ("merges.txt", "#version: 0.2\nl o\nlo w")]},
    "from_files without files": lambda m, d: m.Tokenizer.from_files(d / "vocab.json", d / "merges.txt"),
    "encode_files": lambda m, d: small(m).encode_files(text_file(d), d / "ids.npy"),
    "encode_files, another ending": lambda m, d: small(m).encode_files(text_file(d), d / "ids.txt"),
    "encode_files of nothing": lambda m, d: small(m).encode_files([], d / "ids.npy"),
    "encode_files of invalid UTF-8": lambda m, d: small(m).encode_files(text_file(d, b"low\xff"), d / "ids.npy"),
    "characters": lambda m, d: m.learn_characters({"low": 2, "lower": 1}, 3),
    "characters, a negative number": lambda m, d: m.learn_characters({"low": 2}, -1),
    "characters, a marker": lambda m, d: m.learn_characters({"low</w>": 2}, 3),
    "segment": lambda m, d: m.segment("low lower", [("l", "o")]),
    "segment, a merge twice": lambda m, d: m.segment("low", [("l", "o"), ("l", "o")]),
    "find_words": lambda m, d: m.find_words("It's  new", "gpt2"),
}


def outcome(call, module, folder):
    """The result of a call, or the class of its error."""
    folder.mkdir()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call(module, folder)
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("name", ODD)
def test_odd_input_has_the_same_result_or_class_of_error_alone(alone, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)  # save("") writes into the current folder
    ours = outcome(ODD[name], bpe, tmp_path / "1")
    assert outcome(ODD[name], alone, tmp_path / "2") == ours


COMMANDS = [
    "words.txt 262", "words.txt 300 --pattern cl100k", "words.txt 262 --no-special-tokens", "words.txt 262 --special-token <a>",
    "words.txt 0.3k", "words.txt ３００", "words.txt 10", "words.txt -5", "words.txt", "300", "", "missing.txt 300", "words.txt 262 --color",
    "words.txt 262 --min-word-count 2", "words.txt 262 --min-frequency 0", "words.txt 262 --workers x", "words.txt 262 --engine python",
    "words.txt 262 --errors ignore", "words.txt 262 --pattern (", "words.txt 262 --model words.txt", "--show low", "words.txt words.txt 262",
    "words.txt 262 --model a/b", "--help", "--version", "words.txt 262 --special-token é", "words.txt 1,000", "words.txt 1_000", ". 300",
]  # fmt: skip


@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_command_has_the_same_status_and_model_alone(alone, tmp_path, monkeypatch, arguments):
    found = []
    for module in (bpe, alone):
        folder = tmp_path / module.__name__
        folder.mkdir()
        monkeypatch.chdir(folder)
        Path("words.txt").write_text("low low low lower lowest\nnewest newest\n")
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
            try:
                status = module.main(arguments.split())
            except SystemExit as stop:  # --help
                status = stop.code
        assert status in (0, None) or errors.getvalue().count("\n") <= 1 or "error" in errors.getvalue()
        files = {str(path): path.read_bytes() for path in sorted(Path().rglob("*")) if path.name in ("vocab.json", "merges.txt", "tokenizer.json")}
        found.append((status, files))
    assert found[0] == found[1]
