"""The contract between bpe.py and bpe_more: whatever bpe accepts, bpe_more accepts, with the same result.

Odd calls are in three tables: those that both accept, those that both refuse, and those that bpe_more accepts alone.
"""

import contextlib
import io
import itertools
import os
import pickle
import random
import warnings
from pathlib import Path

import numpy
import pytest

import bpe
import bpe_more
from shared import CORPORA, ENGINES
from test_bpe import END, FIXTURE, PART, TRICKY, random_text

PATTERNS = [*bpe.PATTERNS, r"\s?\w+|\s+|[^\w\s]+"]
SPECIALS = [[], [END], ["<a>", "<a><b>", "b><", "the"]]
MODULES = bpe, bpe_more


def corpora():
    """{name: text} of several kinds; larger ones, of real text, if they are at hand."""
    rng = random.Random(5)
    texts = {
        "fixture": FIXTURE[:4000],
        "scripts": PART[:4000],
        "random": random_text(rng, [*TRICKY, "the", " the", END, "<a>", "b>"], 2_500),
        "letters": "ab" * 1_000 + " " + "c" * 1_000,
        "lines": "\r\n".join(random_text(rng, "low er", 30) for _ in range(150)),
        "special tokens": random_text(rng, ["<a>", "<a><b>", "b><", END, "the", " low", "1 ", "\n"], 1_200),
    }
    for name in ("novels", "languages", "zh", "code", "tinystories_2M") if CORPORA else ():
        with open(Path(CORPORA) / f"{name}.txt", "rb") as file:
            texts[name] = file.read(150_000).decode("utf-8", "ignore")
    return texts


TEXTS = corpora()
WITH_SPECIAL_TOKENS = "fixture", "random", "special tokens"


@pytest.fixture
def small_slices(monkeypatch, cut):
    """Make both read slices of about 700 bytes, so that there is work for several workers, and many cuts."""
    monkeypatch.setattr(bpe, "SLICE_BYTES", 700)
    monkeypatch.setattr(bpe, "WINDOW", 200)
    cut(700, 200)


EXTRA = "tokenizer_config.json", "special_tokens_map.json"  # bpe_more writes them, too, for transformers


def files_in(folder):
    """{name: bytes} of all files below a folder, without those that only bpe_more writes."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in EXTRA)
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("engine, pattern, name", [  # in Python, which takes long, texts without special tokens have two patterns
    (engine, pattern, name) for engine in ENGINES for pattern in PATTERNS for name in TEXTS
    if engine == "c" or name in WITH_SPECIAL_TOKENS or pattern in (PATTERNS[0], PATTERNS[-1])
], indirect=["engine"])  # fmt: skip
def test_counts_merges_ids_and_files_are_the_same(small_slices, tmp_path, engine, name, pattern):
    text = TEXTS[name]
    all_lists = engine == "c" or name in WITH_SPECIAL_TOKENS  # without them in the text, Python takes long for the same
    corpus = tmp_path / "corpus.txt"
    corpus.write_bytes(text.encode())
    if pattern in bpe.PATTERNS and name != "letters":  # "letters" has one place for a cut
        assert len(list(bpe.slices_of([str(corpus)], None, pattern, ()))) > 4
    lines = text.splitlines(keepends=True)
    for number, specials in enumerate(SPECIALS if all_lists else [[END]]):
        # slices and cuts are the same with one worker; processes for all take minutes
        workers = 2 if engine == "c" or (specials == [END] and name == "fixture") else 1
        found = []
        for module in MODULES:
            folder = tmp_path / f"{module.__name__}{number}"
            folder.mkdir()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                counts = module.count_words(corpus, specials, pattern=pattern, workers=workers)
                assert module.count_words(None, specials, texts=[text], pattern=pattern) == counts
                vocab, merges = module.train_bpe([corpus], 300, specials, pattern=pattern, workers=workers)
                assert module.train_from_counts(counts, 300, specials) == (vocab, merges)
            tokenizer = module.Tokenizer(vocab, merges, specials, pattern)
            tokenizer.save(folder / "model")
            n_ids = tokenizer.encode_files(corpus, folder / "ids.npy", workers=workers)
            n_in_lines = tokenizer.encode_files(None, folder / "lines.npy", texts=lines, workers=workers)
            ids = tokenizer.encode(text)
            assert list(tokenizer.encode_iterable(text[at : at + 700] for at in range(0, len(text), 700))) == ids
            batch = tokenizer.encode_batch(lines, workers=workers)
            assert (n_ids, n_in_lines) == (len(ids), sum(map(len, batch)))
            assert numpy.load(folder / "ids.npy").tolist() == ids and tokenizer.decode(ids) == text
            found.append({
                "counts": counts, "vocab": vocab, "merges": merges, "ids": ids, "batch": batch, "files": files_in(folder),
                "ordinary": tokenizer.encode_ordinary(text),
                # bpe.py alone warns if it reads much of a file at once
                "warned": {warning.category for warning in caught if "are read at once" not in str(warning.message)},
            })  # fmt: skip
        plain, more = found
        # by name: pytest would take hours to show how two lists of a million ids differ
        assert [key for key in plain if plain[key] != more[key]] == []


@pytest.mark.parametrize("pattern", PATTERNS)
def test_each_loads_models_of_the_other(tmp_path, pattern):
    specials = [END, "<a>"]
    for module in MODULES:
        module.Tokenizer.train(texts=[PART], vocab_size=400, special_tokens=specials, pattern=pattern).save(tmp_path / module.__name__)
    assert files_in(tmp_path / "bpe") == files_in(tmp_path / "bpe_more")
    assert sorted(files_in(tmp_path / "bpe")) == ["merges.txt", "tokenizer.json", "vocab.json"]
    ids = bpe.Tokenizer.load(tmp_path / "bpe").encode(PART)
    for module, folder in itertools.product(MODULES, [tmp_path / "bpe", tmp_path / "bpe_more"]):
        files = folder / "vocab.json", folder / "merges.txt"
        assert module.Tokenizer.load(folder / "tokenizer.json").encode(PART) == ids
        assert module.Tokenizer.from_files(*files, specials, pattern).encode(PART) == ids
        assert pickle.loads(pickle.dumps(module.Tokenizer.load(folder))).encode(PART) == ids


# ---- Odd calls


def text_file(folder, content=b"low low lower"):
    path = folder / "text.txt"
    path.write_bytes(content)
    return path


def small(module, **arguments):
    """A tokenizer whose merges are l o, lo w."""
    vocab = dict(enumerate([*(bytes([byte]) for byte in range(256)), b"lo", b"low"]))
    return module.Tokenizer(**{"vocab": vocab, "merges": [(b"l", b"o"), (b"lo", b"w")], **arguments})


def made(tokenizer):
    """What a tokenizer has, and how it encodes."""
    attributes = dict(tokenizer.vocab), dict(tokenizer.ids), tokenizer.merges, tokenizer.special_ids
    return *attributes, tokenizer.special_tokens, tokenizer.pattern, len(tokenizer), tokenizer.encode("l")


def loaded(module, folder, name, content):
    """Load a file of a model that has this content."""
    small(module).save(folder / "model")
    (folder / "model" / name).write_text(content, encoding="utf-8")
    if name == "tokenizer.json":
        return module.Tokenizer.load(folder / "model").encode("low")
    return module.Tokenizer.from_files(folder / "model/vocab.json", folder / "model/merges.txt").encode("low")


def encoded(module, folder, name="ids.npy", content=b"low low lower", **options):
    """The number of ids and the file that encode_files makes."""
    n_ids = small(module).encode_files(text_file(folder, content), folder / name, **options)
    return n_ids, (folder / name).read_bytes()


CALLS = {  # a call of both, which get the module, a folder, and a value of one of the lists below
    "size": lambda m, d, size: m.train_bpe(texts=["low"], vocab_size=size),
    "special tokens": lambda m, d, tokens: m.train_bpe(texts=["low low"], vocab_size=300, special_tokens=tokens),
    "saving special tokens":
        lambda m, d, tokens: (m.Tokenizer.train(texts=["low low"], vocab_size=260, special_tokens=tokens).save(d / "model"), files_in(d)),
    "a tokenizer with special tokens": lambda m, d, tokens: made(small(m, special_tokens=tokens)),
    "pattern": lambda m, d, pattern: m.train_bpe(texts=["low lower"], vocab_size=258, pattern=pattern),
    "a tokenizer with pattern": lambda m, d, pattern: made(small(m, pattern=pattern)),
    "find_words with pattern": lambda m, d, pattern: m.find_words("It's  new low", pattern),
    "option": lambda m, d, option: m.train_bpe(texts=["low lower"], vocab_size=258, **dict([option])),
    "a batch with": lambda m, d, option: small(m).encode_batch(["low", "lower"], **dict([option])),
    "encode_files with": lambda m, d, option: encoded(m, d, **dict([option])),
    "file": lambda m, d, file: loaded(m, d, *file),
    "count_words with": lambda m, d, arguments: m.count_words(**arguments),
    "text": lambda m, d, text: m.count_words(texts=["a", text]),
    "text in a file": lambda m, d, data: m.count_words(text_file(d, data), ["<a>"]),
    "counts": lambda m, d, counts: m.train_from_counts(counts, 258),
    "counts with the special token the": lambda m, d, counts: m.train_from_counts(counts, 259, ["the"]),
    "encode": lambda m, d, text: small(m).encode(text),
    "encode_ordinary": lambda m, d, text: small(m, special_tokens=["<a>"]).encode_ordinary(text),
    "a batch of": lambda m, d, texts: small(m).encode_batch(texts),
    "a stream of": lambda m, d, strings: list(small(m).encode_iterable(strings)),
    "decode": lambda m, d, ids: small(m).decode(ids),
    "decode_bytes": lambda m, d, ids: small(m).decode_bytes(ids),
    "vocabulary": lambda m, d, vocab: made(small(m, vocab=vocab, merges=[])),
    "merges": lambda m, d, merges: made(small(m, merges=merges)),
}  # fmt: skip


def each(title, values):
    """{the title and a value: a call of both with the value}"""
    return {f"{title} {value!r:.60}": lambda m, d, value=value: CALLS[title](m, d, value) for value in values}


@pytest.mark.parametrize("order, sign", [("little", "<"), ("big", ">")])
def test_an_array_says_in_which_order_this_system_writes_bytes(monkeypatch, order, sign):
    monkeypatch.setattr("sys.byteorder", order)
    for size in (2, 4):
        assert f"'descr': '{sign}u{size}'".encode() in bpe.npy_header(size, 5)


SIZES = 256, 10**6, numpy.int64(258)
BAD_SIZES = None, 0, -1, 100, 255, 257.0, "300", True
TOKENS = ("<a>",), None, [" l"], ["<a b>"], ["#version"], ["a\nb"], ["<a>\x00"]
LOOK_LIKE_BYTES = ["é"], ["Ġlow"]  # in a file
BAD_TOKENS = ("<a>", b"<a>", {"<a>"}, frozenset(["<a>"]), {"<a>": 1}, ["a"], [""], ["<a>", "<a>"], ["\ud800x"], ["x\ufffd"], [5], 5,
              [b"<a>"])  # fmt: skip
ODD_PATTERNS = "(?<=a)b", r"(\w+)\s", r"$", "(?=[A-Z])", r"[\w--\d]+", "(?i:LOW)", r"\X", bpe.PATTERNS["gpt2"]
BAD_PATTERNS = ("", "gtp2", "(", "[", r"\w+|(?r)a", "\ud800.", "\ufffd", None, 5, b"gpt2", "GPT2", " ",
                "a{1,99999999999999999999}")  # fmt: skip
WORKERS = [("workers", 100), ("workers", numpy.int64(2))]
BAD_WORKERS = [("workers", bad) for bad in (0, 1.5, True, -1, "2")]
OPTIONS = [*WORKERS, ("engine", "python"), ("progress", True), ("progress", 2)]
BAD_OPTIONS = [*BAD_WORKERS, ("engine", "rust"), ("engine", None)]
FILES = [("merges.txt", text) for text in (
    "#version: 0.2\n", "l o\nlo w\n", "l o\r\nlo w\r\n", "#version: 0.2\nl o\nlo w", "\ufeffl o\nlo w\n",
)]  # fmt: skip
BAD_FILES = [
    *[("tokenizer.json", text) for text in ("", "{", "{}", "[]", "5")],
    *[("vocab.json", text) for text in ("", "[1]", '{"l": 0, "o": 1}', '{"l": "0"}', '{"l": 0, "l": 1}')],
    *[("merges.txt", text) for text in ("", "\n", "l o w\n", "x y\n", "l o\nl o\n")],
]

ACCEPTED = {
    **each("size", SIZES),
    **each("special tokens", [*TOKENS, *LOOK_LIKE_BYTES, ["low"]]),
    **each("saving special tokens", [*TOKENS, ["low"]]),
    **each("a tokenizer with special tokens", [*TOKENS, *LOOK_LIKE_BYTES]),
    **each("pattern", ODD_PATTERNS),
    **each("a tokenizer with pattern", ODD_PATTERNS),
    **each("find_words with pattern", ODD_PATTERNS),
    **each("option", OPTIONS),
    **each("a batch with", WORKERS),
    **each("encode_files with", OPTIONS),
    **each("file", FILES),
    **each("count_words with", [{"texts": []}, {"texts": {"low"}}, {"texts": ("low", "lower")}]),
    **each("text", ["", "a\x00b\ufffd\ufeff"]),
    **each("text in a file", [b"\xef\xbb\xbflow\r\nlow\r", b"<a><a>low"]),
    **each("counts", [
        {b"low": 2, b" lower": 1}, {}, (), {b"low": 0}, {b"": 3, b"low": 1}, [(b"low", 1), (b"low", 2)], [[b"low", 1], [b"low", 2]],
        {b"\xff\xfe": 3, b"low": 4}, {b"low": numpy.int32(2**31 - 1), b"lo": numpy.uint8(200)}, {b"low": True},
    ]),
    **each("counts with the special token the", [{b"th": 9, b"he": 9}]),
    **each("encode", ["", "lo\x00w\ufffd"]), **each("encode_ordinary", ["low<a>"]),
    **each("a batch of", [["low", "", "lower"], ("low", "lower"), []]), **each("a stream of", ["lower", []]),
    **each("decode", [[256, 119, 257], [], [0xE5, 97], b"low", range(97, 99)]),
    **each("decode_bytes", [(256, 119), numpy.array([256, 119], numpy.uint16)]),
    **each("vocabulary", [{numpy.int64(5): b"l"}, {2**32 - 2: b"l"}, {0: b"l", 1: b""}]),
    **each("merges", [((b"l", b"o"),), [[b"l", b"o"]], [(b"lo", b"w"), (b"l", b"o")]]),
    "a path in bytes": lambda m, d: m.count_words(os.fsencode(text_file(d))),
    "a path as str": lambda m, d: m.count_words(str(text_file(d))),
    "an iterator of paths": lambda m, d: m.count_words(iter([text_file(d)])),
    "a path twice": lambda m, d: m.count_words([text_file(d)] * 2),
    "training on no texts": lambda m, d: m.train_bpe(texts=[], vocab_size=300),
    "an iterator that is used up": lambda m, d: m.train_bpe(texts=iter([]), vocab_size=300, special_tokens=["<a>"]),
    "empty texts": lambda m, d: m.train_bpe(texts=["", ""], vocab_size=300),
    "an empty file": lambda m, d: m.train_bpe(text_file(d, b""), 300),
    "an empty file, 256 tokens": lambda m, d: m.train_bpe(text_file(d, b""), 256),
    "a tokenizer of no texts": lambda m, d: made(m.Tokenizer.train(texts=[], vocab_size=300)),
    "only special tokens": lambda m, d: m.train_bpe(texts=["<a><a>"], vocab_size=300, special_tokens=["<a>"]),
    "some counts of 0": lambda m, d: m.train_from_counts({b"low": 0, b"er": 1}, 300),
    "a file as a stream": lambda m, d: list(small(m, special_tokens=["w\nl"]).encode_iterable(io.StringIO("low\nlow\n"))),
    "an empty vocabulary": lambda m, d: small(m, vocab={}, merges=[], special_tokens=["<a>"]).encode("<a>"),
    "saving an id of numpy": lambda m, d: (small(m, vocab={numpy.int64(5): b"l"}, merges=[]).save(d / "model"), files_in(d)),
    "a batch from a generator": lambda m, d: small(m).encode_batch(text for text in ("low", "lower")),
    "merges that are an iterator": lambda m, d: made(small(m, merges=iter([(b"l", b"o")]))),
    "ids with gaps": lambda m, d: made(small(m, vocab={70000: b"l", 3: b"o", 9: b"lo"}, merges=[(b"l", b"o")], special_tokens=["<a>"])),
    "saving ids with gaps": lambda m, d: (small(m, vocab={70000: b"l", 3: b"o", 9: b"lo"}, merges=[(b"l", b"o")]).save(d / "model"), files_in(d)),
    "two merges of one token": lambda m, d: made(small(m, vocab={0: b"a", 1: b"aa", 2: b"aaa", 3: b"l"}, merges=[(b"a", b"a"), (b"a", b"aa"), (b"aa", b"a")])),
    "a special token that is merged": lambda m, d: small(m, merges=[(b"lo", b"w")], special_tokens=["lo"]).encode("low"),
    "a special token that is a token": lambda m, d: small(m, merges=[(b"l", b"o")], special_tokens=["low"]).encode("low lower"),
    "the length, and how it is shown": lambda m, d: (len(small(m)), repr(small(m, special_tokens=["<a>"]))),
    "save without a name": lambda m, d: small(m).save(""),
    "save a merge of a special token": lambda m, d: (small(m, merges=[(b"<a>", b"x")], special_tokens=["<a>"], vocab={0: b"<a>", 1: b"x", 2: b"<a>x"})
                                                     .save(d / "model"), files_in(d)),
    "encode_files": lambda m, d: encoded(m, d),
    "encode_files to a str": lambda m, d: small(m).encode_files(text_file(d), str(d / "ids.npy")),
    **{f"encode_files of ids up to {largest}": lambda m, d, largest=largest: (
        small(m, vocab={0: b"l", largest: b"o"}, merges=[]).encode_files(None, d / "a.npy", texts=["lol"]), files_in(d))
       for largest in (2**16 - 1, 2**16, 70_000)},
    "encode_files of no texts": lambda m, d: (small(m).encode_files(None, d / "ids.npy", texts=[]), files_in(d)),
    "encode_files of an empty file": lambda m, d: encoded(m, d, content=b""),
    "find_words": lambda m, d: m.find_words("It's  new", "gpt2"),
    "find_words of nothing": lambda m, d: m.find_words("", "gpt2"),
}  # fmt: skip

REFUSED = {  # also by bpe_more, but for those in ONLY_MORE
    **each("size", BAD_SIZES),
    **each("special tokens", BAD_TOKENS),
    **each("saving special tokens", [*BAD_TOKENS, *LOOK_LIKE_BYTES]),
    **each("a tokenizer with special tokens", BAD_TOKENS),
    **each("pattern", BAD_PATTERNS),
    **each("a tokenizer with pattern", BAD_PATTERNS),
    **each("find_words with pattern", BAD_PATTERNS),
    **each("option", [*BAD_OPTIONS, ("errors", "ignore")]),
    **each("a batch with", BAD_WORKERS),
    **each("encode_files with", [*BAD_OPTIONS, ("end", 5), ("begin", 5)]),
    **each("file", BAD_FILES),
    **each("count_words with", [{"paths": []}, {}, {"texts": "low"}, {"texts": {"low": 1}}, {"texts": 5}, {"paths": 5}, {"paths": ""}]),
    **each("text", [1, b"a", None, "\ud800"]),
    **each("text in a file", [b"low\xff", b"low\xe5\x9b", b"<a\xff><a>"]),
    **each("counts", [
        {b"low": -1}, [(b"low", 2), (b"low", -2)], {b"low": 1.0}, {b"low": "1"}, {"low": 1}, [(bytearray(b"low"), 1)], [b"low"], [b"lo"],
        [(b"low", 1, 2)], 5, None,
    ]),
    **each("counts with the special token the", [{b"the": 9}, {b"other": 9}, {b"the": 0, b"lo": 1}]),
    **each("encode", [5, None, b"low", "\ud800"]), **each("encode_ordinary", [5]),
    **each("a batch of", ["low", ["low", 5], ["low", "\ud800"], None]),
    **each("a stream of", [["\ud83d", "\udc4d"], ["a", "\ud83d"], ["a", 5], 5]),
    **each("decode", [[5000], [-1], ["a"], [97.0], [True], [[97]], 5]),
    **each("vocabulary", [
        {0: "a"}, {b"a": 0}, [b"a"], {True: b"l"}, {1.0: b"l"}, {-1: b"l"}, {2**32: b"l"}, {0: b"l", 1: b"l"},
    ]),
    **each("merges", [[(b"l", b"o"), (b"l", b"o")], [(b"x", b"yz")], [(b"l", b"o", b"w")], [("l", "o")]]),
    "a folder": lambda m, d: m.count_words(d),
    "both": lambda m, d: m.count_words(text_file(d), texts=["a"]),
    "a missing file": lambda m, d: m.count_words([text_file(d), d / "missing.txt"]),
    "size 256 and a special token": lambda m, d: m.train_bpe(texts=["low"], vocab_size=256, special_tokens=["<a>"]),
    "a byte without a token": lambda m, d: small(m, vocab={0: b"l", 1: b"o", 2: b"lo"}, merges=[(b"l", b"o")]).encode("low"),
    "a batch with a byte without a token": lambda m, d: small(m, vocab={0: b"l"}, merges=[]).encode_batch(["l", "o"]),
    "a stream with bad errors": lambda m, d: list(small(m).encode_iterable(["a"], errors="ignore")),
    "no id left": lambda m, d: made(small(m, vocab={2**32 - 2: b"l"}, merges=[], special_tokens=["<a>"])),
    "a merge that makes a special token": lambda m, d: small(m, special_tokens=["low"]),
    "save onto a file": lambda m, d: small(m).save(text_file(d)),
    "save below a file": lambda m, d: small(m).save(text_file(d) / "model"),
    "save to a number": lambda m, d: small(m).save(5),
    "save a special token that looks like bytes": lambda m, d: small(m, special_tokens=["é"]).save(d / "model"),
    "load nothing": lambda m, d: m.Tokenizer.load(d / "nothing"),
    "load an empty folder": lambda m, d: m.Tokenizer.load(d),
    "from_files without files": lambda m, d: m.Tokenizer.from_files(d / "vocab.json", d / "merges.txt"),
    "encode_files, another ending": lambda m, d: encoded(m, d, "ids.txt"),
    "encode_files without a name": lambda m, d: small(m).encode_files(text_file(d)),
    "encode_files onto its input": lambda m, d: small(m).encode_files(text_file(d).rename(d / "ids.npy"), d / "ids.npy"),
    "encode_files into a folder that isn't there": lambda m, d: encoded(m, d, "nothing/ids.npy"),
    "encode_files onto a folder": lambda m, d: ((d / "ids.npy").mkdir(), encoded(m, d)),
    "encode_files of no files": lambda m, d: small(m).encode_files([], d / "ids.npy"),
    "encode_files of neither": lambda m, d: small(m).encode_files(output=d / "ids.npy"),
    "encode_files of invalid UTF-8": lambda m, d: encoded(m, d, content=b"low\xff"),
    "encode_files of a missing file": lambda m, d: small(m).encode_files(d / "missing.txt", d / "ids.npy"),
    "find_words of a number": lambda m, d: m.find_words(5, "gpt2"),
}  # fmt: skip

ONLY_MORE = {  # bpe lacks the option, and bpe_more has it
    **each("option", [("errors", "replace"), ("min_word_count", 2), ("min_frequency", 2)]),
    **each("encode_files with", [("errors", "replace")]),
    "a surrogate, replaced": lambda m, d: m.count_words(texts=["a", "\ud800", "\ud83d\udc4d"], errors="replace"),
    "invalid UTF-8, replaced": lambda m, d: m.count_words(text_file(d, b"low\xff \xe5\x9b"), errors="replace"),
    "a stream of two halves, replaced": lambda m, d: list(small(m).encode_iterable(["\ud83d", "\udc4d"], errors="replace")),
    "skip special tokens": lambda m, d: small(m).decode([97], skip_special_tokens=True),
}
# what refuses an argument that only bpe_more has: Python, or bpe_more for its value
OPTION_OF_MORE = TypeError, ValueError, "bpe lacks the option; bpe_more refuses its value"
ONE_STRING = TypeError, ValueError, "bpe refuses the type; bpe_more has called it a bad value since 0.1"
SURROGATE = UnicodeEncodeError, ValueError, "bpe_more names the text of the stream, and the way out, errors="
OTHER_CLASS = {  # refused by both: (class in bpe, class in bpe_more, why)
    "option ('errors', 'ignore')": OPTION_OF_MORE,
    "a stream with bad errors": OPTION_OF_MORE,
    "encode_files with ('end', 5)": OPTION_OF_MORE,
    "encode_files with ('begin', 5)": OPTION_OF_MORE,
    "count_words with {'texts': 'low'}": ONE_STRING,
    "a batch of 'low'": ONE_STRING,
    "a stream of ['\\ud83d', '\\udc4d']": SURROGATE,
    "a stream of ['a', '\\ud83d']": SURROGATE,
    "counts [b'lo']": (ValueError, TypeError, "bpe takes b'lo' for the pair (108, 111); bpe_more says that a count is missing"),
    "encode_files into a folder that isn't there": (FileNotFoundError, ValueError, "in bpe it is open()'s error; bpe_more names the folder"),
}  # fmt: skip
assert OTHER_CLASS.keys() <= REFUSED.keys(), "each exception has a call"


def outcome(call, module, folder):
    """(result, None, warnings), or (None, class of error, warnings) of a call. Warnings name the line of the call."""
    folder.mkdir()
    result = error = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = call(module, folder)
        except Exception as exception:
            error = type(exception)
    assert {warning.filename for warning in caught} <= {__file__}
    return result, error, {warning.category for warning in caught}


def outcomes(call, tmp_path, monkeypatch):
    """(result, class of error, warnings) of bpe, and of bpe_more."""
    monkeypatch.chdir(tmp_path)  # save("") writes into the current folder
    return [outcome(call, module, tmp_path / module.__name__) for module in MODULES]


@pytest.mark.parametrize("name", ACCEPTED)
def test_odd_input_that_bpe_accepts_has_the_same_result(tmp_path, monkeypatch, name):
    (plain, *no_error), (more, more_error, more_warnings) = outcomes(ACCEPTED[name], tmp_path, monkeypatch)
    assert (no_error[0], more_error) == (None, None)
    assert more == plain
    assert more_warnings >= no_error[1]  # bpe_more also warns of what may be a mistake


REACH_THE_ENGINE = "text", "counts", "encode", "a batch", "a stream", "a byte"  # the others are refused before


@pytest.mark.parametrize("engine, name", [
    (engine, name) for name in REFUSED for engine in (ENGINES if name.startswith(REACH_THE_ENGINE) else ENGINES[:1])
], indirect=["engine"])  # fmt: skip
def test_odd_input_that_bpe_refuses_has_the_same_class_of_error(tmp_path, monkeypatch, engine, name):
    monkeypatch.setattr(bpe, "learn_merges", None)  # it is refused before the work
    plain_error, more_error = (error for _, error, _ in outcomes(REFUSED[name], tmp_path, monkeypatch))
    if name in OTHER_CLASS:
        assert (plain_error, more_error) == OTHER_CLASS[name][:2]
    else:
        assert issubclass(plain_error, (ValueError, TypeError, OSError, AttributeError))
        assert issubclass(more_error, plain_error)


@pytest.mark.parametrize("name", ONLY_MORE)
def test_an_option_that_only_bpe_more_has_is_an_ordinary_type_error(tmp_path, monkeypatch, name):
    assert [error for _, error, _ in outcomes(ONLY_MORE[name], tmp_path, monkeypatch)] == [TypeError, None]


# ---- Commands

COMMANDS = {  # status: command lines; "model" is the folder of a model
    0: [
        "words.txt 262", "words.txt 300 --pattern cl100k", "words.txt 262 --pattern \\w+", "words.txt 256 --no-special-tokens",
        "words.txt 262 --no-special-tokens", "words.txt 262 --special-token <a>", "words.txt 262 --no-special-tokens --special-token <a>",
        "words.txt 262 --special-token <|endoftext|> --special-token <a>", "words.txt 262 --special-token <a> --special-token <b>",
        "words.txt 257", "words.txt 1,000", "words.txt 1_000", "words.txt 0300", "words.txt ３００", "words.txt words.txt 262", "words.txt empty.txt 262",
        "words.txt 262 --workers 2", "words.txt 262 --engine python", "words.txt 262 --model a/b", "words.txt --model a/b 262 --quiet",
        "words.txt 262 --quiet", "--help", "--version", "--show low --model model", "--show lower<|endoftext|> --model model",
        "words.txt --encode a.npy --model model", "words.txt words.txt --encode a.npy --model model --quiet",
        "empty.txt --encode a.npy --model model", "words.txt --encode a.npy --model model --workers 1 --engine python",
    ],
    2: [
        "words.txt 10", "words.txt -5", "words.txt 256", "words.txt 262.0", "words.txt many", "words.txt 0.3k", "words.txt 1,00",
        "words.txt", "300", "", "missing.txt 300", "empty.txt 262", "invalid.txt 300", ". 300", "words.txt 262 --color",
        "words.txt 262 --special-token <a> --special-token <a>", "words.txt 262 --special-token a", "words.txt 262 --special-token é",
        "words.txt 262 --workers x", "words.txt 262 --workers 0", "words.txt 262 --engine rust", "words.txt 262 --pattern (",
        "words.txt 262 --pattern gtp2", "words.txt 262 --model words.txt", "words.txt 262 --model words.txt/x", "--show low",
        "words.txt --show low --model model", "words.txt --encode a.npy", "words.txt --encode a.txt --model model",
        "words.txt --encode words.txt --model model", "--encode a.npy --model model", "invalid.txt --encode a.npy --model model",
        "model/merges.txt 262 --model model",
    ],
}  # fmt: skip
COMMANDS_ONLY_MORE = ["words.txt 1k", "words.txt 262 --min-word-count 2", "words.txt 262 --errors replace"]
WORDS_TXT = "low low low lower lowest\nnewest newest\n"


@pytest.mark.parametrize("status, arguments", [
    *[(status, line) for status, lines in COMMANDS.items() for line in lines], *[(None, line) for line in COMMANDS_ONLY_MORE],
])  # fmt: skip
def test_a_command_has_the_same_status_and_files(tmp_path, monkeypatch, status, arguments):
    found = []
    for module in MODULES:
        folder = tmp_path / module.__name__
        folder.mkdir()
        monkeypatch.chdir(folder)
        Path("words.txt").write_text(WORDS_TXT)
        Path("empty.txt").touch()
        Path("invalid.txt").write_bytes(b"low\xff")
        small(bpe, special_tokens=[END]).save("model")
        before = files_in(folder)
        with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.redirect_stderr(io.StringIO()) as errors:
            try:
                ended = module.main(arguments.split())
            except SystemExit as stop:  # --help
                ended = stop.code or 0
        if ended:
            assert errors.getvalue().startswith("error: ") and errors.getvalue().count("\n") == 1, errors.getvalue()
            assert files_in(folder) == before
        told = output.getvalue().splitlines()[:2] if "--show" in arguments else None  # bpe_more has a third line
        found.append((ended, told, files_in(folder)))
        assert Path("words.txt").read_text() == WORDS_TXT
    if status is None:
        assert [ended for ended, _, _ in found] == [2, 0]
    else:
        assert found[0] == found[1]
        assert found[0][0] == status
