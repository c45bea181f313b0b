"""The scanner in bpe_words.c finds the words that `regex` finds: named and custom patterns, with vector instructions and without.

The short and the long version:

    pytest -q tests/engine/test_scanners.py
    TRIALS=200000 WHOLE=1 pytest -q tests/engine/test_scanners.py

TRIALS is how many random texts each pattern and build gets. WHOLE means all code points in every place, and all strings
of five characters.
"""

import collections
import functools
import itertools
import os
import random
import subprocess
import types

import pytest
import regex
from random_patterns import WORDS

import bpe
import build_ffi
from bpe_more import choices
from bpe_more import engine as in_c
from bpe_more.patterns.steps import TIKTOKEN_CL100K
from shared import BAD_UTF8
from test_bpe import naive_split, need

cffi = need("cffi")

TRIALS = int(os.environ.get("TRIALS", 200))
WHOLE = bool(os.environ.get("WHOLE"))
NAMED = ["gpt2", "cl100k", "o200k", "llama3", "qwen2"]
KNOWN = {**bpe.PATTERNS, "cl100k": TIKTOKEN_CL100K}
CUSTOM = [bpe.PATTERNS["cl100k"].replace("{1,3}", "{1,2}"), r" ?\w+|\s+(?!\S)|\s", r"\w+", r"\S+|\s", r"[^\n]*\n|[^\n]+", r"(?=[A-Z])[^a]{2,3}?|a+"]
PATTERNS = [*NAMED, *CUSTOM]
EXPRESSIONS = {pattern: regex.compile(KNOWN.get(pattern, pattern)) for pattern in PATTERNS}
BUILT, _ = choices.find_engine()  # without it, all tests here are skipped


def compile_engine(folder, flags):
    """An engine of its own: the C source, compiled in a folder with these flags."""
    (folder / "full.c").write_text(build_ffi.source(), encoding="utf-8")
    command = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-std=gnu11", *flags]
    subprocess.run([*command, "-o", folder / "full.so", folder / "full.c"], check=True)
    ffi = cffi.FFI()
    ffi.cdef(build_ffi.prototypes())
    return in_c.Engine(types.SimpleNamespace(ffi=ffi, lib=ffi.dlopen(str(folder / "full.so"))), bpe.PATTERNS, bpe.last_cut)


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    """Each test compares both builds with the same words, since finding these takes longest."""
    return {"default": BUILT, "plain": compile_engine(tmp_path_factory.mktemp("plain"), ["-O1", "-DPLAIN_C"])}


@pytest.fixture(params=PATTERNS)
def pattern(request):
    return request.param


def split(pattern, text):
    """The matches that regex finds, and the text between them."""
    words = EXPRESSIONS[pattern].findall(text)
    if "".join(words) == text:  # nothing is between them; this takes half the time
        return list(filter(None, words))
    return naive_split(text, EXPRESSIONS[pattern])


def words_of(pattern, texts):
    """The words that regex finds, twice as often as they occur, since count() finds them twice."""
    counts = collections.Counter(word for text in texts for word in split(pattern, text))
    return {word.encode(): 2 * n for word, n in counts.items()}


def count(engine, pattern, texts):
    """The words that an engine finds in texts that lie one after the other in memory, and then in each alone."""
    words = engine.words((), pattern)
    words.scan_all(texts)
    for text in texts:
        words.scan_all([text])
    return words.copy()


def check(engines, pattern, texts, expected=None):
    """All texts have the words that regex finds, however they are scanned; the message names the one that has others."""
    expected = expected or words_of(pattern, texts)
    data = [text.encode() for text in texts]
    for build, engine in engines.items():
        if count(engine, pattern, data) == expected:
            continue
        for text in texts:
            assert count(engine, pattern, [text.encode()]) == words_of(pattern, [text]), (text, build)
        raise AssertionError(f"differs among other texts only, {build}: {texts[:3]}...")


# Traps of the patterns, each met: the text, and its words with cl100k and with o200k.
TRAPS = [
    ("中AB", "中AB", "中|AB"),
    ("中Ab", "中Ab", "中Ab"),
    ("A中B中CD", "A中B中CD", "A中B中|CD"),
    ("a中BC", "a中BC", "a中|BC"),
    ("中Ab中C", "中Ab中C", "中Ab中|C"),
    ("ABc dEF", "ABc| dEF", "ABc| d|EF"),
    ("ab's't", "ab|'s|'t", "ab's|'t"),
    ("ab's't's", "ab|'s|'t|'s", "ab's|'t's"),
    ("ab'SX", "ab|'S|X", "ab'S|X"),
    ("ab'lLx", "ab|'lL|x", "ab'lL|x"),
    ("ab'ſx", "ab|'ſ|x", "ab'ſ|x"),
    ("'ſ", "'ſ", "'ſ"),
    (" 's", " '|s", " '|s"),
    ("!\n/!", "!\n|/!", "!\n/|!"),
    ("!\n/a", "!\n|/a", "!\n/|a"),
    ("!\r\n\n  x", "!\r\n\n| | x", "!\r\n\n| | x"),
    ("a \n \n  ", "a| \n \n  ", "a| \n \n|  "),
    ("a \n \n  b", "a| \n \n| | b", "a| \n \n| | b"),
    ("\u3000\u3000a", "\u3000|\u3000a", "\u3000|\u3000a"),
    ("12345", "123|45", "123|45"),
    ("\u0663\u0664\u0665\u0666", "\u0663\u0664\u0665|\u0666", "\u0663\u0664\u0665|\u0666"),
    ("—a", "—a", "—a"),
    ("——a", "——|a", "——|a"),
    ("!\u0301a", "!\u0301|a", "!\u0301a"),
    ("!!\u0301a", "!!\u0301|a", "!!\u0301|a"),
    (" \u0301A", " \u0301|A", " \u0301|A"),
    ("\u0301Ab", "\u0301Ab", "\u0301Ab"),
    ("\u0301\n", "\u0301\n", "\u0301|\n"),
    ("ǅa ǅA", "ǅa| ǅA", "ǅa| ǅA"),
]


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: ascii(trap[0]))
def test_traps(engines, trap):
    text, cl100k, o200k = trap
    for name, words in (("cl100k", cl100k), ("o200k", o200k)):
        assert EXPRESSIONS[name].findall(text) == words.split("|")
        longer = [filler + text + end for filler in ("x " * 29, "字" * 20) for end in ("", " ", "b", "!")]
        check(engines, name, [text, *longer])


FORMS = ["a%s1%s.%sB", "%s", "ab%scd", "'%s", " %s.", "!%s\n", "1%s2 ", "A%s's", "中%s\u0301B", "\t%s%sA", "\n%s \n%s/", "x'%s't"]


@functools.cache
def code_points(form, pattern):
    """Texts with every code point in a place, and their words; by default all to U+1FFF, of custom patterns to U+05FF, and others by chance."""
    chosen = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    if not WHOLE:
        step = 29 if form == FORMS[0] and pattern in NAMED else 151
        first = 0x2000 if pattern in NAMED else 0x600
        chosen = chosen[:first] + chosen[first + random.randrange(step) :: step]
    parts = [chosen[i : i + 500] for i in range(0, len(chosen), 500)]
    texts = ["".join(form.replace("%s", chr(code)) for code in part) for part in parts]
    return texts, words_of(pattern, texts)


@pytest.mark.parametrize("form", FORMS)
def test_every_code_point_in_each_place(engines, pattern, form):
    check(engines, pattern, *code_points(form, pattern))


# every class that the patterns know, and the letters of contractions
ALPHABETS = {
    "gpt2": "aAéſ中\u03011\u0663 \u3000\n'!—stlevr",
    "cl100k": "aAſ中\u03011\u0663 \t\u3000\n\r'!—/sTlLeV",
    "o200k": "aAéǅſ中ʰ\u03011\u0663 \u3000\n'!—/sLe",
    "llama3": "aAſ中\u03011\u0663 \t\u3000\n\r'!—/sTlLeV",
    "qwen2": "aAſ中\u03011\u0663 \t\u3000\n\r'!—/sTlLeV",
}
SHORT = {"gpt2": "aſ中1 \u3000\n'!sle", "cl100k": "aA1 \t\u3000\n\r'!—sLl", "o200k": "aA中\u03011 \u3000\n'!/sT"}
SHORT |= dict.fromkeys(["llama3", "qwen2", *CUSTOM], SHORT["cl100k"])
ALPHABETS |= dict.fromkeys(CUSTOM, ALPHABETS["o200k"])


def test_all_short_strings(engines, pattern):
    letters, rng = ALPHABETS[pattern], random.Random(5)
    texts = ["".join(s) for length in (1, 2, 3) for s in itertools.product(letters, repeat=length)]
    texts += ["".join(s) for s in itertools.product(SHORT[pattern], repeat=4)]
    check(engines, pattern, texts + ["".join(rng.choices(letters, k=5)) for _ in range(10 * TRIALS)])
    for length in (4, 5) if WHOLE else ():
        strings = map("".join, itertools.product(letters, repeat=length))
        while part := list(itertools.islice(strings, 200_000)):
            check(engines, pattern, part)


def random_text(rng):
    parts = rng.sample(WORDS, rng.randint(1, 24))
    return "".join(rng.choices(parts, k=rng.randint(1, 60)))


def test_random_texts(engines, pattern):
    """Of parts with traps, of characters of all classes, and of few of these."""
    rng, letters = random.Random(11), ALPHABETS[pattern]
    for _ in range(0, TRIALS, 500):
        check(engines, pattern, [random_text(rng) for _ in range(500)])
        alphabets = [rng.choice([letters, rng.sample(letters, 4)]) for _ in range(1000)]
        check(engines, pattern, ["".join(rng.choices(some, k=rng.randint(1, 150))) for some in alphabets])


def test_words_that_end_where_windows_end(engines, pattern):
    """Runs of each class that end at every place around the borders of one, two and three windows; contractions, and spaces."""
    runs = ["x", "X", "1", " ", "\n", "!", "/", "'", "é", "字", "\u0301", "\u3000", "\u0663", "😀", "xX"]
    behind, texts = ["", "a", "B", " a", "'s", "\n", "!", "7", "字"], []
    for run in runs:
        sizes = {size // len(run.encode()) for border in (64, 128, 192) for size in range(border - 5, border + 6)}
        texts += [before + run * size + end for size in sizes for before in ("", "a", "!", " ") for end in behind]
    pieces = ["don't", "x'LL", "y'ſz", "a's't", " \n  b", "!\n/c", "1234", "中AB", "e\u0301", "❤\ufe0f", "aB", " 字", "\u3000 a", "!\r\n "]
    before = [" " * (size % 3) + "wo rd" * (size // 5) + "v" * (size % 5) for size in range(48, 72)]
    check(engines, pattern, texts + list(map("".join, itertools.product(before, pieces, ("", " next", "X")))))


def random_bytes(rng):
    """Bytes that may be UTF-8, or not."""
    if rng.random() < 0.9:
        leads = bytes.fromhex("41 20 0A 80 BF C2 DF E0 E4 E5 E9 ED EF F0 F4 F5 B8 B7 A0 9F")
        return b"z" * rng.choice([0, 0, 58, 61]) + bytes(rng.choices(leads, k=rng.randint(1, 8)))
    before, after = (random_text(rng).encode()[: rng.choice([0, 3, 70, 500])] for _ in "ab")
    return before + rng.choice([*BAD_UTF8, b"\xe4\xb8x"]) + after


def test_bytes_are_utf8_where_python_says_so(engines, pattern):
    rng = random.Random(13)
    for _ in range(11 * TRIALS):
        data = random_bytes(rng)
        try:
            check(engines, pattern, [data.decode()])
        except UnicodeDecodeError:
            for engine, after in itertools.product(engines.values(), ([], [b"abc\x80" * 30])):
                with pytest.raises(UnicodeDecodeError):
                    count(engine, pattern, [data, *after])
