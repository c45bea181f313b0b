"""The scanner in bpe_words.c finds the words that `regex` finds: named and custom patterns, with vector instructions and without.

The complete C source is compiled twice, each time with a sink that writes down the length of every word. So words are
compared one by one, and not only by their counts. The short and the long version:

    pytest -q tests/engine/test_scanners.py
    TRIALS=200000 WHOLE=1 pytest -q tests/engine/test_scanners.py

TRIALS is how many random texts each pattern and build gets. WHOLE means all code points in every place, and all strings
of five characters.
"""

import array
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
from bpe_more import engine as in_c
from bpe_more.patterns.steps import TIKTOKEN_CL100K
from shared import BAD_UTF8
from test_bpe import naive_split, need

cffi = need("cffi")

TRIALS = int(os.environ.get("TRIALS", 200))
WHOLE = bool(os.environ.get("WHOLE"))
NAMED = ["gpt2", "cl100k", "o200k", "llama3", "qwen2"]
LLAMA3 = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
KNOWN = {"llama3": LLAMA3, "qwen2": LLAMA3.replace("{1,3}", ""), **bpe.PATTERNS, "cl100k": TIKTOKEN_CL100K}
CUSTOM = [bpe.PATTERNS["cl100k"].replace("{1,3}", "{1,2}"), r" ?\w+|\s+(?!\S)|\s", r"\w+", r"\S+|\s", r"[^\n]*\n|[^\n]+", r"(?=[A-Z])[^a]{2,3}?|a+"]
PATTERNS = [*NAMED, *CUSTOM]
EXPRESSIONS = {pattern: regex.compile(KNOWN.get(pattern, pattern)) for pattern in PATTERNS}
BUILDS = {"default": ["-O2"], "plain": ["-O1", "-DPLAIN_C"]}

# Texts lie one after the other. Each is scanned as if memory ended behind it, or as if the other texts followed behind a
# wall, or by walk_word alone, which reads character by character.
RECORDER = """
enum { MEMORY_ENDS, TEXT_FOLLOWS, CHARACTER_BY_CHARACTER };
typedef struct { const uint8_t *at; uint32_t *lengths; size_t n; } recorder;

static int record(void *state, const pending *words, size_t n)
{
    recorder *r = state;
    for (size_t i = 0; i < n; i++) {
        const uint8_t *key = (const uint8_t *)words[i].key;
        const size_t length = length_of(words[i].key);
        if (!length || memcmp(words[i].word, r->at, length) || (length <= 15 && (key[15] != length || memcmp(key, r->at, length))))
            return -1;
        r->at += length;
        r->lengths[r->n++] = (uint32_t)length;
    }
    return BPE_OK;
}

int record_words(const bpe_pattern *pattern, const uint8_t *text, const size_t *lengths, size_t n, int how, uint32_t *of_words,
                 size_t *n_words, size_t *bad)
{
    const uint8_t *end = text;
    recorder r = {text, of_words, 0};
    bpe_rules rules = {.pattern = pattern, .run = fastest_machine()};
    table slots = {0}; /* which a batch asks for */
    pending pending_words[BATCH_ROOM];
    batch b = {.rules = &rules, .pattern = pattern, .table = &slots, .sink = record, .state = &r, .words = pending_words};
    int status = new_table(&slots, (uint64_t[2]){1, 2});
    if (status == BPE_OK)
        status = index_rows(&rules);
    b.rows = rules.rows;
    for (size_t i = 0; i < n; i++)
        end += lengths[i];
    for (size_t i = 0; i < n && status == BPE_OK; text += lengths[i++]) {
        const uint8_t *piece_end = text + lengths[i];
        b.text = text;
        b.limit = how == MEMORY_ENDS ? piece_end : end;
        if (how != CHARACTER_BY_CHARACTER)
            status = scan_text(&b, piece_end);
        if (status == BPE_OK)
            status = end_batch(&b);
        while (how == CHARACTER_BY_CHARACTER && status == BPE_OK && r.at < piece_end) {
            const size_t length = (size_t)(walk_word(pattern, r.at, piece_end) - r.at);
            if (!length)
                status = -1;
            r.at += length;
            r.lengths[r.n++] = (uint32_t)length;
        }
        *bad = (size_t)(b.text - text);
        if (status == BPE_OK && r.at != piece_end)
            status = -2;
    }
    *n_words = r.n;
    free(rules.rows);
    free_table(&slots);
    return status;
}
"""
PROTOTYPE = """
int record_words(const bpe_pattern *pattern, const uint8_t *text, const size_t *lengths, size_t n, int how, uint32_t *of_words,
                 size_t *n_words, size_t *bad);
"""
MEMORY_ENDS, TEXT_FOLLOWS, CHARACTER_BY_CHARACTER = range(3)


def compile_engine(folder, flags, more="", prototypes=""):
    """An engine of its own: the C source, with more C behind it, compiled in a folder with these flags."""
    (folder / "full.c").write_text(build_ffi.source() + more, encoding="utf-8")
    command = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-std=gnu11", *flags]
    subprocess.run([*command, "-o", folder / "full.so", folder / "full.c"], check=True)
    ffi = cffi.FFI()
    ffi.cdef(build_ffi.prototypes() + prototypes)
    return in_c.Engine(types.SimpleNamespace(ffi=ffi, lib=ffi.dlopen(str(folder / "full.so"))), bpe.PATTERNS, bpe.last_cut)


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    """{name of the build: engine}; each test compares both with the same words, since finding these takes longest."""
    return {name: compile_engine(tmp_path_factory.mktemp(name), flags, RECORDER, PROTOTYPE) for name, flags in BUILDS.items()}


@pytest.fixture(params=PATTERNS)
def pattern(request):
    return request.param


def scan(engine, pattern, texts, how):
    """(status, lengths of the words of all texts, offset of a bad byte in its text)"""
    ffi, blob, (tables, _) = engine.ffi, b"".join(texts), engine.pattern(pattern)
    lengths, n, bad = ffi.new("uint32_t[]", len(blob) + 1), ffi.new("size_t *"), ffi.new("size_t *")
    data, of_texts = ffi.from_buffer("uint8_t[]", blob), list(map(len, texts))
    status = engine.lib.record_words(tables, data, of_texts, len(texts), how, lengths, n, bad)
    return status, array.array("I", ffi.buffer(lengths)[: 4 * n[0]]), bad[0]


def split(pattern, text):
    """The matches that regex finds, and the text between them."""
    words = EXPRESSIONS[pattern].findall(text)
    if "".join(words) == text:  # nothing is between them; this takes half the time
        return list(filter(None, words))
    return naive_split(text, EXPRESSIONS[pattern])


def words_of(pattern, texts):
    """The lengths of the words that regex finds."""
    return array.array("I", [len(word.encode()) for text in texts for word in split(pattern, text)])


def check(engines, pattern, texts, expected=None):
    """All texts have the words that regex finds, however they are scanned; the message names the one that has others."""
    if expected is None:
        expected = words_of(pattern, texts)
    data = [text.encode() for text in texts]
    for build, how in itertools.product(engines, (MEMORY_ENDS, TEXT_FOLLOWS, CHARACTER_BY_CHARACTER)):
        if scan(engines[build], pattern, data, how)[:2] == (0, expected):
            continue
        for text in texts:
            status, words, _ = scan(engines[build], pattern, [text.encode()], how)
            assert (status, list(words), text, build, how) == (0, list(words_of(pattern, [text])), text, build, how)
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
    """Texts with every code point in a place, and their words; by default all to U+1FFF and, by chance, others."""
    chosen = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    if not WHOLE:
        step = 11 if form == FORMS[0] and pattern in NAMED else 101
        chosen = chosen[:0x2000] + chosen[0x2000 + random.randrange(step) :: step]
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


def test_bytes_are_utf8_or_bad_where_python_says_so(engines, pattern):
    rng, bad_utf8 = random.Random(13), engines["default"].lib.BPE_BAD_UTF8
    for _ in range(11 * TRIALS):
        data = random_bytes(rng)
        cases = [([data], MEMORY_ENDS)]
        try:
            expected = (0, list(words_of(pattern, [data.decode()])))
        except UnicodeDecodeError as error:
            expected = (bad_utf8, error.start)
            cases.append(([data, b"abc\x80" * 30], TEXT_FOLLOWS))
        for (build, engine), (texts, how) in itertools.product(engines.items(), cases):
            status, words, bad = scan(engine, pattern, texts, how)
            assert (status, bad if status else list(words)) == expected, (data, build)
