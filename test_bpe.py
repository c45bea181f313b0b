"""The promises of bpe.py, one test for each. Run `pytest test_bpe.py`.

Expected values come from a hand calculation, a published example, another program, or from the oracle below.
`python test_bpe.py` writes the expected results in fixtures/ again, with the oracle.
"""

import bz2
import collections
import concurrent.futures
import contextlib
import functools
import gzip
import importlib
import io
import itertools
import json
import multiprocessing
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import tracemalloc
import unicodedata

import pytest
import regex

HERE = pathlib.Path(__file__).parent
BUILD = subprocess.run([sys.executable, str(HERE / "build_ffi.py")], capture_output=True, text=True, cwd=HERE)

import bpe  # noqa: E402 (it loads the C engine, which has to be built first)

FIXTURES = HERE / "fixtures"
CORPUS = FIXTURES / "corpus.txt"
END = "<|endoftext|>"
EXPECTED_SIZES = (300, 500, 2000)
CORPORA = os.environ.get("BPE_CORPORA")  # a folder with novels.txt, tinystories_2M.txt, ...: large real texts


# --- the oracle: slow, and obviously right ---------------------------------------------------------------------------

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def naive_words(text, special_tokens=(), pattern=GPT2):
    """Every word of the text as a list of one-byte tokens, with its count."""
    longest_first = sorted(special_tokens, key=len, reverse=True)
    pieces = regex.split("|".join(regex.escape(token) for token in longest_first), text) if special_tokens else [text]
    matches = [match[0].encode() for piece in pieces for match in regex.finditer(pattern, piece)]
    return collections.Counter(tuple(bytes([byte]) for byte in word) for word in matches)


def naive_merge(word, pair):
    merged, at = [], 0
    while at < len(word):
        if word[at : at + 2] == pair:
            merged.append(word[at] + word[at + 1])
            at += 2
        else:
            merged.append(word[at])
            at += 1
    return tuple(merged)


def naive_train(words, vocab_size, special_tokens=()):
    """Recount every pair in every round, take the greatest (count, left bytes, right bytes): -> (vocab, merges)."""
    vocab = [bytes([byte]) for byte in range(256)] + [token.encode() for token in special_tokens]
    merges = []
    while len(vocab) < vocab_size:
        counts = collections.Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                counts[pair] += count
        if not counts:
            break
        best = max(counts, key=lambda pair: (counts[pair], pair))
        words = {naive_merge(word, best): count for word, count in words.items()}
        merges.append(best)
        vocab.append(best[0] + best[1])
    return dict(enumerate(vocab)), merges


def naive_files(vocab, merges):
    """The text of GPT-2's vocab.json (as an object) and merges.txt, from its published table of bytes."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    table = {byte: chr(byte) for byte in visible}
    for byte in range(256):
        table.setdefault(byte, chr(256 + len(table) - len(visible)))
    show = lambda token: "".join(table[byte] for byte in token)  # noqa: E731
    ids = {show(token): token_id for token_id, token in vocab.items()}
    return ids, "#version: 0.2\n" + "".join(f"{show(left)} {show(right)}\n" for left, right in merges)


def write_expected():
    text = CORPUS.read_bytes().decode()
    for size in EXPECTED_SIZES:
        ids, merges = naive_files(*naive_train(naive_words(text, [END]), size, [END]))
        folder = FIXTURES / f"vocab{size}"
        folder.mkdir(exist_ok=True)
        with open(folder / "vocab.json", "w", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(ids, ensure_ascii=False, indent=0) + "\n")
        with open(folder / "merges.txt", "w", encoding="utf-8", newline="\n") as file:
            file.write(merges)


# --- helpers ---------------------------------------------------------------------------------------------------------


C = bpe.C
ENGINES = ["python", "c"] if C or os.environ.get("BPE_REQUIRE_C") else ["python"]


@pytest.fixture(params=ENGINES, autouse=True)
def engine(request, monkeypatch):
    """Every test runs twice: with the C engine, and as if it were not there. Without one, what is about C is skipped."""
    if request.param == "python":
        monkeypatch.setattr(bpe, "C", None)
    elif C is None:
        reason = (BUILD.stderr.strip().splitlines() or ["python build_ffi.py did not build it"])[-1]
        if os.environ.get("BPE_REQUIRE_C"):
            pytest.fail(f"BPE_REQUIRE_C is set, and there is no C engine: {reason}")
        pytest.skip(f"no C engine: {reason}")
    return request.param


only_python = pytest.mark.parametrize("engine", ["python"], indirect=True)  # about its processes, or about no engine
only_c = pytest.mark.parametrize("engine", ["c"], indirect=True)
needs_corpora = pytest.mark.skipif(not CORPORA, reason="BPE_CORPORA names no folder with large texts")


def learn(words, vocab, vocab_size, **options):
    """learn_merges of the engine that the test runs with."""
    return (bpe.learn_merges_in_c if bpe.C else bpe.learn_merges)(words, vocab, vocab_size, **options)


@pytest.fixture
def train(tmp_path):
    """train(text or bytes, vocab_size, special_tokens, **options) -> (vocab, merges), through a file."""

    def call(text, vocab_size, special_tokens=(), **options):
        path = tmp_path / "text.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return bpe.train_bpe(path, vocab_size, list(special_tokens), **options)

    return call


@pytest.fixture
def small_slices(monkeypatch):
    """Cut every file into slices of a few bytes, whatever its size."""
    monkeypatch.setattr(bpe, "SLICE_BYTES", 7)
    monkeypatch.setattr(bpe, "WINDOW_BYTES", 11)


def run(*arguments, stdin=None, **options):
    """The command line in a process of its own."""
    command = [sys.executable, str(HERE / "bpe.py"), *map(str, arguments), "--engine", "c" if bpe.C else "python"]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=60, **options)


def one_line(stderr):
    """The text of an error, after checking that it is one line and no traceback."""
    text = stderr.decode()
    assert text.count("\n") == 1 and "Traceback" not in text, text
    return text


def random_text(rng, alphabet, length):
    return "".join(rng.choice(alphabet) for _ in range(length))


WIDE = "".join(
    chr(c) for low, high in [(0, 0x250), (0x300, 0x520), (0x600, 0x6FF), (0x900, 0x97F), (0x2000, 0x206F), (0x3000, 0x30FF),
                             (0x4E00, 0x4E80), (0xAC00, 0xAC40), (0x1F300, 0x1F680), (0xE0020, 0xE0040)]
    for c in range(low, high)
)  # fmt: skip
TRICKY = ["a", "b", "Z", "s", "l", "'", " ", " ", "\t", "\n", "\r\n", "\r", "1", "9", ".", "!", "/", "\u00a0", "\u3000", "\u0301",
          "字", "é", "😀", "\u200d", "'ll", "<", "<|", "|>", "\x1c", "\x85", "\u2028"]  # fmt: skip


# --- the rule --------------------------------------------------------------------------------------------------------

TEXTBOOK = "low low low low low\nlower lower widest widest widest\nnewest newest newest newest newest newest\n"


def test_the_small_example(train):
    vocab, merges = train("aa bb aa", 258)
    assert merges == [(b"a", b"a"), (b"b", b"b")]
    assert vocab == {**{byte: bytes([byte]) for byte in range(256)}, 256: b"aa", 257: b"bb"}


def test_the_textbook_example(train):
    """Worked by hand; the first six are those of a published course handout."""
    _, merges = train(TEXTBOOK, 268, pattern=r"\S+")
    expected = "s t, e st, o w, l ow, w est, n e, ne west, w i, wi d, wid est, low e, lowe r"
    assert ", ".join(f"{left.decode()} {right.decode()}" for left, right in merges) == expected
    newest = tuple(bytes([byte]) for byte in b"newest")
    for pair in merges[:6]:
        newest = naive_merge(newest, pair)
    assert newest == (b"ne", b"west")


def test_ties_go_to_the_greater_pair_of_bytes(train):
    # Each of these pairs occurs once; by hand: the left bytes decide, then the right ones.
    assert train("ab cd", 257, pattern=r"\S+")[1] == [(b"c", b"d")]
    assert train("ba bc", 257, pattern=r"\S+")[1] == [(b"b", b"c")]


def test_a_tie_is_not_decided_by_the_concatenation(train):
    # (b"a", b"cc") against (b"ac", b"b"): as pairs the second is greater, as concatenations "acc" > "acb".
    words = {b"cc": 100, b"ac": 90, b"acb": 5, b"acc": 5}
    vocab, merges = bpe.initial_vocab([]), []
    for left, right, _ in learn(words, vocab, 259):
        merges.append((vocab[left], vocab[right]))
        vocab[len(vocab)] = vocab[left] + vocab[right]
    assert merges == [(b"c", b"c"), (b"a", b"c"), (b"ac", b"b")]


def test_a_tie_is_not_decided_by_printable_characters(train):
    # As bytes "z" (0x7a) is above " " (0x20), as GPT-2's printable characters "Ġ" (U+0120) is above "z".
    assert train(" q zq", 257, pattern=r"zq|\sq")[1] == [(b"z", b"q")]
    # and 0xff (printable "ÿ") is above 0xa0 (printable "ł")
    words = {b"\xa0a": 1, b"\xffa": 1}
    assert next(learn(words, bpe.initial_vocab([]), 257)) == (255, 97, 1)


def test_runs_are_counted_by_position_and_replaced_from_the_left():
    steps = list(learn({b"aaaa": 1}, bpe.initial_vocab([]), 300))
    assert steps == [(97, 97, 3), (256, 256, 1)]
    assert list(learn({b"aaa": 5}, bpe.initial_vocab([]), 300)) == [(97, 97, 10), (256, 97, 5)]
    assert list(learn({b"aaaaa": 1}, bpe.initial_vocab([]), 300)) == [(97, 97, 4), (256, 256, 1), (257, 97, 1)]


def test_special_tokens_are_walls():
    assert list(bpe.pretokenize(f"Hello!{END}World", [END])) == [b"Hello", b"!", b"World"]
    # whitespace before a special token stands at the end of a text, so "\s+(?!\S)" takes it whole
    assert list(bpe.pretokenize(f"a \n{END}b", [END])) == [b"a", b" \n", b"b"]
    assert list(bpe.pretokenize("a \nb")) == [b"a", b" ", b"\n", b"b"]


def test_no_token_contains_a_piece_of_a_special_token(train):
    text = f"Hello!{END}World" * 50
    vocab, merges = train(text, 300, [END])
    assert [token for token in vocab.values() if b"<|" in token] == [END.encode()]
    assert not any(b"<" in left + right or b"!W" in left + right for left, right in merges)


def test_ids_are_bytes_then_special_tokens_then_merges(train):
    vocab, merges = train("aa aa bb", 260, ["<one>", "<two>"])
    assert [vocab[i] for i in (0, 255, 256, 257, 258)] == [b"\0", b"\xff", b"<one>", b"<two>", b"aa"]
    assert list(vocab) == list(range(len(vocab)))
    assert [left + right for left, right in merges] == [vocab[i] for i in range(258, len(vocab))]


@only_python
def test_the_longest_special_token_wins():
    assert list(bpe.pretokenize("x<a><b>y<a>z", ["<a>", "<a><b>"])) == [b"x", b"y", b"z"]
    assert list(bpe.pretokenize("1aab2", ["a", "aab"][1:])) == [b"1", b"2"]


@pytest.mark.parametrize("special", ["a a", "[x]", "(.*)", "a|b", "\n", " \n ", "\\d+", "^", "é", "字字", "😀", "$$"])
def test_any_text_can_be_a_special_token(train, special):
    if len(special.encode()) == 1:
        pytest.raises(ValueError, train, "x", 300, [special])
        return
    text = f"some {special}{special}text {special} here a a a a a b"
    vocab, merges = train(text, 300, [special])
    assert (vocab, merges) == naive_train(naive_words(text, [special]), 300, [special])


# --- the engines against the oracle ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_random_corpora_full_of_ties_and_runs(train, seed):
    rng = random.Random(seed)
    text = random_text(rng, "ab cd"[: rng.randint(2, 5)] + " ", rng.randint(0, 300))
    assert train(text, 330) == naive_train(naive_words(text), 330)


@pytest.mark.parametrize("seed", range(30))
def test_random_unicode(train, seed):
    rng = random.Random(seed)
    text = random_text(rng, rng.choices(WIDE, k=rng.randint(2, 60)) + TRICKY + [END], rng.randint(1, 600))
    assert train(text, 400, [END]) == naive_train(naive_words(text, [END]), 400, [END])


@pytest.mark.parametrize("seed", range(10))
def test_long_words(train, seed):
    rng = random.Random(seed)
    text = random_text(rng, "ab" if seed % 2 else "abcdefg", 3000)
    assert train(text, 400) == naive_train(naive_words(text), 400)


def test_the_fixture_live():
    text = CORPUS.read_bytes().decode()
    assert bpe.train_bpe(CORPUS, 420, [END]) == naive_train(naive_words(text, [END]), 420, [END])


@pytest.mark.parametrize("size", EXPECTED_SIZES)
def test_the_fixture_as_stored(size, tmp_path):
    vocab, merges = bpe.train_bpe(CORPUS, size, [END], output_dir=tmp_path)
    folder = FIXTURES / f"vocab{size}"
    assert json.loads((tmp_path / "vocab.json").read_bytes()) == json.loads((folder / "vocab.json").read_bytes())
    assert (tmp_path / "merges.txt").read_bytes() == (folder / "merges.txt").read_bytes()
    assert bpe.load(folder) == (vocab, merges)


@only_python
def test_the_fixture_is_what_its_readme_says():
    data = CORPUS.read_bytes()
    assert 90_000 < len(data) < 120_000 and data.count(b"\r\n") > 10 and "\u200d".encode() in data
    assert all(word in data.decode() for word in ["मैं", "на", "的", "und", "العربية"[:2]])


# --- speed: a promise to people who are graded on it -----------------------------------------------------------------


def test_the_fixture_trains_in_under_one_and_a_half_seconds():
    start = time.perf_counter()
    bpe.train_bpe(CORPUS, 500, [END])
    assert time.perf_counter() - start < 1.5


# --- properties ------------------------------------------------------------------------------------------------------


def test_fewer_merges_are_a_prefix_of_more():
    merges = bpe.train_bpe(CORPUS, 700, [END])[1]
    for size in (257, 258, 300, 431, 699):
        assert bpe.train_bpe(CORPUS, size, [END])[1] == merges[: size - 257]


def test_the_order_of_documents_changes_nothing(train):
    documents = CORPUS.read_bytes().decode().split(END)
    backwards = END.join(reversed(documents))
    assert train(backwards, 600, [END]) == bpe.train_bpe(CORPUS, 600, [END])


def test_counts_times_k_change_nothing():
    words = bpe.count_words(CORPUS, [END])
    vocab = bpe.initial_vocab([END])
    once = [(left, right, 7 * count) for left, right, count in learn(words, vocab, 600)]
    seven = {word: 7 * count for word, count in words.items()}
    assert list(learn(seven, vocab, 600)) == once


def test_both_sides_of_a_merge_are_in_the_vocabulary_before_it():
    vocab, merges = bpe.train_bpe(CORPUS, 800, [END])
    known = set(list(vocab.values())[:256])
    for left, right in merges:
        assert left in known and right in known
        known.add(left + right)


def test_learning_is_lazy_and_reports_tokens():
    report = bpe.Report(tokens=10)
    steps = learn({b"aaaa": 2, b"ab": 1}, bpe.initial_vocab([]), 300, report=report)
    assert next(steps) == (97, 97, 6) and report.tokens == 10
    assert next(steps) == (256, 256, 2) and report.tokens == 6  # three pairs in each "aaaa", but two replacements
    assert list(steps) == [(97, 98, 1)] and report.tokens == 3


def test_min_frequency(train):
    merges = train("ab ab ab cd cd ef", 300, pattern=r"\S+", min_frequency=2)[1]
    assert merges == [(b"a", b"b"), (b"c", b"d")]


def test_max_token_length(train):
    text = CORPUS.read_bytes().decode()[:20000]
    vocab, merges = train(text, 400, max_token_length=4)
    assert max(map(len, vocab.values())) == 4 and len(merges) == 144
    words = naive_words(text)
    for merge in merges:  # the oracle, with the limit
        counts = collections.Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                if len(pair[0] + pair[1]) <= 4:
                    counts[pair] += count
        assert merge == max(counts, key=lambda pair: (counts[pair], pair))
        words = {naive_merge(word, merge): count for word, count in words.items()}


# --- cutting a text --------------------------------------------------------------------------------------------------

SPECIAL_SETS = [[], ["\r\n"], ["<x>\r"], [END], ["a a"], ["<a>", "<a><b>"], [" \n", "\n\n"], ["aa", "a\n", "\r\n\r\n"], ["\n<x>"]]


@pytest.mark.parametrize("pattern", ["gpt2", "cl100k", "o200k", r"\w+|\W", r"(a)(b)|\s+x"])
@pytest.mark.parametrize("newlines", ["keep", "lf"])
def test_cuts_change_nothing(tmp_path, monkeypatch, pattern, newlines):
    rng = random.Random(repr((pattern, newlines)))
    path = tmp_path / "text.txt"
    for round_number in range(60):
        specials = SPECIAL_SETS[round_number % len(SPECIAL_SETS)]
        text = random_text(rng, TRICKY + 3 * specials + ["a ", "ab\n"], rng.randint(0, 300))
        path.write_bytes(text.encode())
        read = text.replace("\r\n", "\n") if newlines == "lf" else text
        expression = bpe.PATTERNS.get(pattern, pattern)
        expected = {b"".join(word): n for word, n in naive_words(read, specials, expression).items() if word}
        for slice_bytes, window_bytes in [(1, 1), (7, 11), (100, 13), (1 << 20, 64)]:
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


@pytest.mark.parametrize("errors", ["replace", "ignore"])
def test_cuts_change_nothing_in_text_that_is_not_utf8(tmp_path, monkeypatch, errors):
    rng = random.Random(errors)
    path = tmp_path / "text.txt"
    parts = [b"a", b"a ", b"\xff", b"\xe5\xad", b"\x97", b"\xf0\x9f", b" ", b"<|", b"|>", b"x", b"\r", b"\n", "字".encode()]
    for specials in [[], ["<||>"], ["a a"], ["a", "a\ufffd"][1:]]:
        for _ in range(60):
            data = b"".join(rng.choice(parts) for _ in range(rng.randint(0, 150)))
            path.write_bytes(data)
            expected = naive_words(data.decode(errors=errors), specials)
            monkeypatch.setattr(bpe, "SLICE_BYTES", rng.choice([1, 5, 20]))
            monkeypatch.setattr(bpe, "WINDOW_BYTES", rng.choice([1, 9, 50]))
            counts = bpe.count_words(path, specials, errors=errors, workers=1)
            assert counts == {b"".join(word): n for word, n in expected.items()}


def test_the_cutting_tests_do_cut(tmp_path, small_slices):
    text = "one two three four five six seven eight nine ten " * 4
    path = tmp_path / "text.txt"
    path.write_text(text)
    for pattern, specials, least in [("gpt2", (), 15), ("cl100k", (), 15), (r"\w+", ("three",), 4), (r"\w+", (), 1)]:
        slices = list(bpe.slices_of(str(path), len(text), bpe.Rules(pattern, specials)))
        assert len(slices) >= least
        assert [piece.start_byte for piece in slices[1:]] == [piece.end_byte for piece in slices[:-1]]
    # a special token that overlaps itself leaves no place to cut between the first and the last
    path.write_text("a a a a a a a a a a a a a a a a a a a a")
    assert len(list(bpe.slices_of(str(path), 39, bpe.Rules("gpt2", ("a a",))))) == 1


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_the_number_of_workers_changes_nothing(monkeypatch, workers):
    monkeypatch.setattr(bpe, "SLICE_BYTES", 3000)
    expected = {b"".join(word): n for word, n in naive_words(CORPUS.read_bytes().decode(), [END]).items()}
    assert bpe.count_words(CORPUS, [END], workers=workers) == expected


def test_several_files_are_walls_and_any_order_is_the_same(tmp_path):
    first, second = tmp_path / "1.txt", tmp_path / "2.txt"
    first.write_text("ab ab x")
    second.write_text("y ab")
    counts = bpe.count_words([first, second], [])
    assert counts == {b"ab": 1, b" ab": 2, b" x": 1, b"y": 1}
    assert bpe.train_bpe([first, second], 300, []) == bpe.train_bpe([str(second), str(first)], 300, [])


# --- patterns --------------------------------------------------------------------------------------------------------


@only_python
@pytest.mark.parametrize("name", ["gpt2", "cl100k", "o200k"])
def test_chunks_do_not_change_the_words_of_a_named_pattern(name):
    text = CORPUS.read_bytes().decode()
    expected = collections.Counter(match[0].encode() for match in regex.finditer(bpe.PATTERNS[name], text))
    assert bpe.count_text([text], bpe.Rules(name)) == (expected, 0)


@only_python
@pytest.mark.parametrize("text, name, words", [
    ("I'll see  you", "gpt2", ["I", "'ll", " see", " ", " you"]),
    ("I'LL\n\nx", "gpt2", ["I", "'", "LL", "\n", "\n", "x"]),
    ("I'LL 1234!\n\nx", "cl100k", ["I", "'LL", " ", "123", "4", "!\n\n", "x"]),
    ("end  ", "cl100k", ["end", "  "]),
    ("HelloWorld it's/\n", "o200k", ["Hello", "World", " it's", "/\n"]),
])  # fmt: skip
def test_named_patterns(text, name, words):
    assert [word.decode() for word in bpe.pretokenize(text, pattern=name)] == words


def test_tiktoken_names_are_accepted(train):
    text = "Hello WORLD's 12345\n\n"
    for name, ours in [("r50k_base", "gpt2"), ("cl100k_base", "cl100k"), ("o200k_base", "o200k")]:
        assert train(text, 280, pattern=name) == train(text, 280, pattern=ours)


def test_a_pattern_with_groups_counts_whole_matches(train):
    assert list(bpe.pretokenize("abab ab", pattern=r"(a)(b)|\s+")) == [b"ab", b"ab", b" ", b"ab"]


@only_python
def test_empty_matches_are_skipped():
    assert list(bpe.pretokenize("aab", pattern=r"a*")) == [b"aa"]


def test_a_pattern_that_matches_nothing_is_a_valid_result(train):
    vocab, merges = train("hello hello", 300, pattern=r"\d+")
    assert len(vocab) == 256 and merges == []


# --- bad and odd input -----------------------------------------------------------------------------------------------


def test_an_empty_file_gives_bytes_and_special_tokens(train):
    assert train("", 500, [END]) == ({**{i: bytes([i]) for i in range(256)}, 256: END.encode()}, [])


@pytest.mark.parametrize("data", [b"a", b"\n", b"\0", b" "])
def test_a_file_of_one_byte(train, data):
    assert train(data, 500)[1] == []


def test_words_of_one_byte_only(train):
    assert train("a\nb\nc", 500, pattern=r"\w")[1] == []


def test_words_that_run_out_are_a_result(train):
    vocab, merges = train("aa bb aa", 10_000)
    assert len(vocab) == 256 + len(merges) < 300


@pytest.mark.parametrize("special_tokens", [[], None, ()])
def test_no_special_tokens(tmp_path, special_tokens):
    path = tmp_path / "text.txt"
    path.write_text(f"aa{END}bb")
    vocab, _ = bpe.train_bpe(path, 300, special_tokens)
    assert vocab[256] != END.encode() and any(b"<|" in token for token in vocab.values())


@pytest.mark.parametrize("arguments, error, text", [
    ((100, []), ValueError, "vocab_size=100 is below 256"),
    ((256, [END]), ValueError, "256 bytes + 1 special token"),
    ((0, []), ValueError, "vocab_size=0"),
    ((-5, []), ValueError, "vocab_size=-5"),
    (("500", []), TypeError, "'500' is not a whole number"),
    ((500.0, []), TypeError, "500.0"),
    ((None, []), TypeError, "None"),
    ((500, [""]), ValueError, "is empty"),
    ((500, ["<a>", "<b>", "<a>"]), ValueError, "'<a>' is given twice"),
    ((500, ["a"]), ValueError, "'a' is a single byte"),
    ((500, END), TypeError, "is one string"),
    ((500, [b"<a>"]), TypeError, "not a string"),
    ((500, ["\ud800x"]), ValueError, "surrogate"),
])  # fmt: skip
def test_bad_arguments(arguments, error, text):
    with pytest.raises(error, match=regex.escape(text)):
        bpe.train_bpe(CORPUS, *arguments)


@pytest.mark.parametrize("options, error, text", [
    ({"pattern": "(["}, ValueError, "not a valid regular expression"),
    ({"pattern": "gtp2"}, ValueError, "gpt2, cl100k, o200k"),
    ({"pattern": ""}, ValueError, "gpt2, cl100k, o200k"),
    ({"pattern": None}, TypeError, "None is not a string"),
    ({"workers": 0}, ValueError, "workers=0"),
    ({"workers": 1.5}, ValueError, "workers=1.5"),
    ({"pattern": ["gpt2"]}, TypeError, "not a string"),
    ({"min_frequency": 0}, ValueError, "min_frequency=0"),
    ({"max_token_length": 0}, ValueError, "max_token_length=0"),
    ({"min_frequency": 1.5}, TypeError, "min_frequency=1.5"),
    ({"errors": "skip"}, ValueError, "errors='skip'"),
    ({"newlines": "crlf"}, ValueError, "newlines='crlf'"),
    ({"colour": 1}, TypeError, "colour"),
])  # fmt: skip
def test_bad_options(options, error, text):
    with pytest.raises(error, match=regex.escape(text)):
        bpe.train_bpe(CORPUS, 300, [END], **options)


@pytest.mark.parametrize("data, format_name", [
    (gzip.compress(b"hello"), "gzip"), ("hello".encode("utf-16"), "UTF-16"), (b"PK\x03\x04xx", "zip"), (bz2.compress(b"x"), "bzip2"),
])  # fmt: skip
def test_a_format_that_is_not_text_is_named(train, data, format_name):
    with pytest.raises(ValueError, match=format_name):
        train(data, 300)


def test_a_byte_order_mark_stays_and_gets_a_warning(train, capsys):
    vocab, _ = train("\ufeffab", 300)
    assert "byte-order mark" in capsys.readouterr().err
    assert "\ufeff".encode() in vocab.values()


BAD_UTF8 = [b"\xff", b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe5\xad", b"\x80", b"\xf8"]


@pytest.mark.parametrize("bad", BAD_UTF8)
@pytest.mark.parametrize("place", [0, 5000, 60_000, None])
def test_bytes_that_are_not_utf8_are_named_by_file_and_offset(train, monkeypatch, bad, place):
    monkeypatch.setattr(bpe, "SLICE_BYTES", 9000)
    text = b"word and word. " * 6000
    place = len(text) if place is None else place
    data = text[:place] + bad + text[place:]
    with pytest.raises(UnicodeDecodeError) as expected:
        data.decode()
    with pytest.raises(ValueError, match=rf"text\.txt: not valid UTF-8 at byte {expected.value.start} "):
        train(data, 300)
    for errors in ("replace", "ignore"):
        assert train(data, 300, errors=errors) == train(data.decode(errors=errors), 300)


def test_the_first_bad_byte_is_the_one_reported(train, monkeypatch):
    monkeypatch.setattr(bpe, "SLICE_BYTES", 1000)
    data = bytearray(b"word and word. " * 1000)
    data[9000] = data[2000] = 0xFF
    with pytest.raises(ValueError, match="byte 2000 "):
        train(bytes(data), 300, workers=2)


def test_newlines(train):
    text = "one\r\ntwo\r\n\r\nthree\rfour\n"
    assert train(text, 300, newlines="lf") == train(text.replace("\r\n", "\n"), 300)
    assert train(text, 300) == naive_train(naive_words(text), 300) != train(text, 300, newlines="lf")


def test_files_that_cannot_be_read_or_written(tmp_path):
    with pytest.raises(FileNotFoundError):
        bpe.train_bpe(tmp_path / "missing.txt", 300, [])
    with pytest.raises(IsADirectoryError):
        bpe.train_bpe(tmp_path, 300, [])
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError):
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
        for call in (lambda: bpe.train_bpe(secret, 300, []), lambda: bpe.check_writable(locked)):
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


# --- the C engine ----------------------------------------------------------------------------------------------------


@only_c
def test_the_c_engine_is_the_c_engine(train, monkeypatch):
    expected = naive_train(naive_words("low lower lowest low"), 262)
    for name in ("count_text", "count_slice", "learn_merges", "merge_words", "find_words"):
        monkeypatch.setattr(bpe, name, None)  # nothing of the Python engine is left to fall back to
    assert train("low lower lowest low", 262, engine="c") == expected


@only_c
def test_a_build_without_a_compiler_fails_with_one_line():
    environment = {**os.environ, "CC": "no-such-compiler"}
    result = subprocess.run([sys.executable, HERE / "build_ffi.py"], env=environment, capture_output=True, timeout=60)
    assert result.returncode != 0 and "a C compiler" in one_line(result.stderr) and "works without it" in one_line(result.stderr)


@only_python
def test_asking_for_c_where_it_is_not_built_names_the_command(train):
    with pytest.raises(ValueError, match=r"python build_ffi\.py"):
        train("x", 300, engine="c")
    with pytest.raises(ValueError, match="engine='rust'"):
        train("x", 300, engine="rust")


@only_python
def test_a_copy_without_the_library_says_so_and_works(tmp_path):
    shutil.copy(HERE / "bpe.py", tmp_path)
    command = [sys.executable, tmp_path / "bpe.py", CORPUS, "300", "--output-dir", tmp_path]
    result = subprocess.run([*command, "--engine", "c"], capture_output=True)
    assert result.returncode == 2 and "python build_ffi.py" in one_line(result.stderr)
    result = subprocess.run(command, capture_output=True)
    assert result.returncode == 0 and b"Python; `python build_ffi.py`" in result.stderr


@only_c
def test_a_library_inside_a_package_is_found_beside_the_file(tmp_path):
    package = tmp_path / "course"
    package.mkdir()
    (package / "__init__.py").touch()
    for file in [HERE / "bpe.py", *HERE.glob("_bpe_fast*.so"), *HERE.glob("_bpe_fast*.pyd")]:
        shutil.copy(file, package)
    script = f"from course.bpe import train_bpe; print(len(train_bpe({str(CORPUS)!r}, 500, [], engine='c')[1]))"
    result = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True)
    assert result.stdout == b"244\n", result


@only_c
def test_other_character_classes_are_said_and_counted_with_regex(train, monkeypatch, capsys):
    monkeypatch.setattr(bpe.regex, "__version__", "0.0")
    bpe.c_classes_differ.cache_clear()
    assert train("low lower", 260) == naive_train(naive_words("low lower"), 260) and not capsys.readouterr().err
    monkeypatch.setattr(bpe, "character_classes", lambda: bytes(0x110000))
    monkeypatch.setattr(bpe.CWords, "count_slice", None)
    bpe.c_classes_differ.cache_clear()
    assert train("low lower", 260) == naive_train(naive_words("low lower"), 260)
    assert "warning: the C engine knows the letters of regex" in capsys.readouterr().err
    bpe.c_classes_differ.cache_clear()


def scan(text, special_tokens=()):
    """The counts of a text (str or bytes) by the C scanner."""
    words = bpe.CWords(special_tokens)
    data = text if isinstance(text, bytes) else text.encode("utf-8")
    words.count_slice(bpe.Slice("text", 0, len(data), data), bpe.Rules("gpt2", tuple(special_tokens)))
    return words.counts()


def assert_scanned_as_regex_does(texts, wall="\ue000\ue001"):
    """All texts at once, with a special token between them, against regex on each."""
    expected = collections.Counter(itertools.chain.from_iterable(map(regex.compile(GPT2).findall, texts)))
    counts = scan(wall.join(texts), [wall])
    assert counts == {word.encode(): count for word, count in expected.items()}


@only_c
@pytest.mark.parametrize("form", ["{}", "a{}b", " {}", "{}\n"])
def test_the_scanner_knows_every_code_point(form):
    points = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE002]  # without surrogates, and without the wall
    assert_scanned_as_regex_does([form.format(point, point) for point in points])


@only_c
def test_the_scanner_on_all_short_strings():
    alphabet = "a1's l\t\n\u00a0\u3000\u0301字😀<"
    for length in range(1, 6):
        assert_scanned_as_regex_does(["".join(letters) for letters in itertools.product(alphabet, repeat=length)])


@only_c
def test_the_scanner_on_random_strings():
    rng = random.Random(4)
    for _ in range(20):
        texts = [random_text(rng, [*TRICKY, "'ve", "'re", "'t", "e", " "], rng.randint(0, 40)) for _ in range(10_000)]
        assert_scanned_as_regex_does(texts)


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
def test_special_tokens_are_walls_for_the_scanner(special_tokens):
    rng = random.Random(repr(special_tokens))
    for _ in range(300):
        text = random_text(rng, TRICKY + 2 * special_tokens, rng.randint(0, 200))
        expected = {b"".join(word): count for word, count in naive_words(text, special_tokens).items()}
        assert scan(text, special_tokens) == expected


@only_c
def test_bytes_that_are_not_utf8_are_found_where_python_finds_them():
    rng = random.Random(6)
    bad = [*BAD_UTF8, b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xed\xbf\xbf", b"\xf0\x8f\xbf\xbf", b"\xf5\x80\x80\x80", b"\xe5", b"\xf0\x9f\x98"]
    good = ["a", " ", "字", "é", "😀", "\n", "word ", END]
    offset = bpe.C.ffi.new("size_t *")
    for _ in range(20_000):
        parts = [rng.choice(bad) if rng.random() < 0.03 else rng.choice(good).encode() for _ in range(rng.randint(1, 60))]
        data = b"".join(parts)[: rng.choice([None, -1, -2])]
        status = bpe.C.lib.bpe_words_scan(bpe.CWords([END]).handle, bpe.C.ffi.from_buffer("uint8_t[]", data), len(data), offset)
        try:
            data.decode()
            assert status == bpe.C.lib.BPE_OK
        except UnicodeDecodeError as error:
            assert (status, offset[0]) == (bpe.C.lib.BPE_BAD_UTF8, error.start), data


@pytest.mark.parametrize("seed", range(200))
def test_learners_agree_with_the_oracle_on_words_of_all_kinds(seed):
    rng = random.Random(seed)
    letters = bytes(rng.choices(range(256), k=rng.randint(1, 5)))
    words = {bytes(rng.choices(letters, k=rng.randint(1, rng.choice([3, 12, 60])))): rng.randint(1, rng.choice([2, 5, 5000]))
             for _ in range(rng.randint(0, 60))}  # fmt: skip
    naive = collections.Counter({tuple(bytes([byte]) for byte in word): count for word, count in words.items()})
    vocab = bpe.initial_vocab([])
    merges = []
    for left, right, _ in learn(words, vocab, 400):
        merges.append((vocab[left], vocab[right]))
        vocab[len(vocab)] = vocab[left] + vocab[right]
    assert (vocab, merges) == naive_train(naive, 400)


def test_counts_near_the_limit_are_exact():
    words = {b"ab": 2**62, b"cd": 2**62 + 1, b"ef": 2**62 - 1, b"xef": 2**62}
    assert list(learn(words, bpe.initial_vocab([]), 300)) == [
        (101, 102, 2**63 - 1), (99, 100, 2**62 + 1), (120, 256, 2**62), (97, 98, 2**62)
    ]  # fmt: skip


@only_c
@pytest.mark.parametrize("words", [{b"ab": 2**62, b"xab": 2**62}, {b"aaa": 2**62}, {b"ab": 2**63}, {b"ab": 2**63 - 1, b"abc": 1}])
def test_an_overflow_is_reported_and_not_wrapped(words):
    with pytest.raises(OverflowError):
        list(learn(words, bpe.initial_vocab([]), 300))


@only_c
def test_counts_that_overflow_when_tables_are_added_up_are_reported():
    tables = [bpe.CWords(), bpe.CWords()]
    for table in tables:
        table.put([(b"ab", 2**62), (b"a word that is longer than fifteen bytes", 2**62)])
    with pytest.raises(OverflowError):
        tables[0].add(tables[1])


@only_c
def test_the_fixture_trains_in_under_thirty_milliseconds_in_c():
    times = []
    for _ in range(5):
        start = time.perf_counter()
        bpe.train_bpe(CORPUS, 500, [END])
        times.append(time.perf_counter() - start)
    assert min(times) < 0.03


def test_one_long_word(train, engine):
    """A word costs what a merge changes in it, however long it is (2 MB in C, 200 KB in Python)."""
    rng = random.Random(8)
    text = "".join(rng.choices("abcdefghijkl", k=2_000_000 if engine == "c" else 200_000))
    start = time.perf_counter()
    merges = train(text, 1000)[1]
    assert len(merges) == 744 and time.perf_counter() - start < 10


# --- the tokenizer ---------------------------------------------------------------------------------------------------


def need(name):
    """The package of that name; where it is missing the test is skipped, and in CI it fails."""
    if os.environ.get("BPE_REQUIRE_PACKAGES"):
        return importlib.import_module(name)
    return pytest.importorskip(name, reason=f"compares with {name}, which is not installed")


@functools.cache
def trained(size, pattern="gpt2", like=None, special_tokens=(END,)):
    path = pathlib.Path(CORPORA) / "languages.txt" if CORPORA and size > 5000 else CORPUS
    return bpe.train_bpe(path, size, special_tokens, pattern=pattern, like=like)


def naive_encode(word, vocab, merges):
    """One merge after the other over the whole word, in the order of the list."""
    tokens = tuple(bytes([byte]) for byte in word)
    for merge in merges:
        tokens = naive_merge(tokens, merge)
    ids = {token: token_id for token_id, token in vocab.items()}
    return [ids[token] for token in tokens]


@only_python
def test_encoding_makes_the_merges_in_their_order():
    vocab, merges = trained(1000)
    tokenizer = bpe.Tokenizer(vocab, merges)
    rng = random.Random(1)
    words = list(naive_words(CORPUS.read_bytes().decode()))
    for word in rng.sample(words, 300) + [tuple(bytes([b]) for b in random_text(rng, "aeinst", 60).encode()) for _ in range(30)]:
        word = b"".join(word)
        assert list(tokenizer.encode_word(word.decode())) == naive_encode(word, vocab, merges)


@only_python
def test_a_worked_example_of_encoding():
    """From a published course handout: ids need be neither contiguous nor those of the bytes."""
    vocab = {0: b" ", 1: b"a", 2: b"c", 3: b"e", 4: b"h", 5: b"t", 6: b"th", 7: b" c", 8: b" a", 9: b"the", 10: b" at"}
    merges = [(b"t", b"h"), (b" ", b"c"), (b" ", b"a"), (b"th", b"e"), (b" a", b"t")]
    tokenizer = bpe.Tokenizer(vocab, merges)
    assert tokenizer.encode("the cat ate") == [9, 7, 1, 5, 10, 3] and tokenizer.decode([9, 7, 1, 5, 10, 3]) == "the cat ate"
    with pytest.raises(ValueError, match="no token for the byte b'x'"):
        tokenizer.encode("the x")


TEXTS = [
    "", "a", " ", "\n", "  \n\n  ", "Hello, world! I'll say it's 1234567 times.", f"a{END}{END}b {END} c", "tab\t\ttab \r\n x",
    "don'T DON'T don't 'tis '' ' 'l 'll'll", "日本語 中文　한국어", "👨\u200d👩\u200d👧 🇵🇹 👍🏽", "e\u0301 \u00e9 ﬁ ß ſ", "x" * 300, " " * 300 + "x", "!?" * 99,
    "\x00\x01\x1c\x85\xa0\u2028\u3000 .", "a\u0300\u0301\u0302", "１２３ ²½ ٣٤ Ⅻ", "CamelCaseHTMLParser's/\n/", "...\n\n...  \n ...\r\n\t",
]


@pytest.mark.parametrize("pattern", ["gpt2", "cl100k", "o200k"])
def test_decoding_gives_back_every_text(pattern):
    vocab, merges = trained(600, pattern)
    tokenizer = bpe.Tokenizer(vocab, merges, [END], pattern)
    rng = random.Random(pattern)
    for text in TEXTS + [random_text(rng, [*WIDE, *TRICKY, END], rng.randint(0, 200)) for _ in range(300)]:
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert tokenizer.decode_bytes(tokenizer.encode(text)) == text.encode()


def split_anywhere(rng, text):
    cuts = sorted(rng.choices(range(len(text) + 1), k=rng.randint(0, 12)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)])]


@only_python
@pytest.mark.parametrize("pattern", ["gpt2", "cl100k", "o200k", r"\w+|\W"])
@pytest.mark.parametrize("special_tokens", [[], [END], ["<a>", "<a><b>", "<a><b><c>"], [" \n", "\n\n", "ll"], ["a a"]])
def test_a_stream_is_encoded_like_the_whole(pattern, special_tokens):
    vocab, merges = trained(600, pattern if pattern in bpe.PATTERNS else "gpt2")
    tokenizer = bpe.Tokenizer(vocab, merges, special_tokens, pattern)
    tokenizer.cache = bpe.WordCache(lambda word: [word])  # compare the words themselves: other words may have the same ids
    rng = random.Random(repr((pattern, special_tokens)))
    parts = [*TRICKY, "'LL", "'v", "e", "ABCDEFGHIJKL", "中國", "ʰ", "don", "123", "\n\n", "!!", "<a>", "<b>", "<c>", *special_tokens, "\ud83d", "\ude00", "ſ"]
    texts = TEXTS + [random_text(rng, parts, rng.randint(0, 60)) for _ in range(150)] + ["中ABCDEFGHIJKLm", "e\u0301ABCDEFGHIJKLMNx"]
    for text in texts:
        whole = tokenizer.encode(text)
        assert list(tokenizer.encode_iterable(text)) == whole, text  # in single characters
        for _ in range(3):
            assert list(tokenizer.encode_iterable(split_anywhere(rng, text))) == whole, text


@only_python
def test_a_stream_of_blocks_is_encoded_like_the_whole(monkeypatch):
    text = CORPUS.read_bytes().decode()
    for pattern in bpe.PATTERNS:
        tokenizer = bpe.Tokenizer(*trained(600, pattern), [END], pattern)
        whole = tokenizer.encode(text)
        for block in (1000, 37):
            monkeypatch.setattr(bpe, "BLOCK", block)
            assert list(tokenizer.encode_iterable([text])) == whole
        assert list(tokenizer.encode_iterable(text.splitlines(keepends=True))) == whole


@only_python
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
    for _ in itertools.islice(tokenizer.encode_iterable(endless()), 300_000):
        pass
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


@only_python
@pytest.mark.parametrize("text", ["a" * 100_000, "ab" * 50_000, "the quick " * 10_000 + "x" * 100_000, " " * 100_000])
def test_long_words_do_not_take_quadratic_time(text):
    tokenizer = bpe.Tokenizer(*trained(2000), [END])
    start = time.perf_counter()
    ids = tokenizer.encode(text)
    assert list(tokenizer.encode_iterable(text)) == ids
    assert time.perf_counter() - start < 4 and tokenizer.decode(ids) == text


@only_python
def test_the_cache_is_bounded(monkeypatch):
    monkeypatch.setattr(bpe, "CACHED_WORDS", 10)
    tokenizer = bpe.Tokenizer(*trained(600))
    text = CORPUS.read_bytes().decode()[:5000] + "x" * 100
    assert tokenizer.decode(tokenizer.encode(text)) == text and 0 < len(tokenizer.cache) <= 10
    assert all(len(word) <= 64 for word in tokenizer.cache)


@only_python
def test_special_tokens_of_a_tokenizer():
    vocab, merges = trained(300)
    tokenizer = bpe.Tokenizer(vocab, merges, [END, "<new>", "<new><new>"])
    assert tokenizer.encode(f"{END}<new>") == [256, 300] and tokenizer.vocab[301] == b"<new><new>"
    assert tokenizer.encode("<new><new><new>") == [301, 300]  # the longest, from the left
    assert 256 not in bpe.Tokenizer(vocab, merges).encode(END)  # not given: text like any other
    assert tokenizer.encode("") == [] == list(tokenizer.encode_iterable([])) and tokenizer.decode([]) == ""


@only_python
def test_malformed_bytes_and_surrogates():
    tokenizer = bpe.Tokenizer(*trained(300))
    assert tokenizer.decode([0xE5, 97, 0xFF]) == "\ufffda\ufffd" and tokenizer.decode_bytes([0xE5]) == b"\xe5"
    assert tokenizer.encode("a\ud800b") == tokenizer.encode("a\ufffdb")
    assert tokenizer.encode("\ud83d\ude00") == tokenizer.encode("😀") == list(tokenizer.encode_iterable(["\ud83d", "\ude00"]))


@only_python
@pytest.mark.parametrize("arguments, text", [
    (({0: b"a", 1: b"a"}, []), "ids 0 and 1 have the same bytes"),
    (({0: b"a", 1: b"b"}, [(b"a", b"b")]), "merge 0 (from 0), b'a' + b'b': b'ab' is not in the vocabulary"),
    (({0: b"a", 1: b"ab"}, [(b"a", b"b")]), "b'b' is not in the vocabulary"),
    (({0: b"a", 1: b"aa"}, [(b"a", b"a"), (b"a", b"a")]), "merge 1 (from 0), b'a' + b'a', is there twice"),
    (({0: b"a"}, [], ["<x>", "<x>"]), "given twice"),
    (({0: b"a"}, [], None, "gtp2"), "gpt2, cl100k, o200k"),
])  # fmt: skip
def test_a_vocabulary_and_merges_that_contradict_each_other(arguments, text):
    with pytest.raises(ValueError, match=regex.escape(text)):
        bpe.Tokenizer(*arguments)


@only_python
def test_ids_that_are_not_in_the_vocabulary():
    tokenizer = bpe.Tokenizer(*trained(300))
    for bad in (300, -1, 10**9, "a"):
        with pytest.raises(ValueError, match=rf"{bad}.* at place 1 .*not in the vocabulary"):
            tokenizer.decode([65, bad])


@only_python
def test_a_pattern_that_leaves_out_text_is_an_error_with_its_place():
    tokenizer = bpe.Tokenizer(*trained(300), [END], r"\w+")
    for encode in (tokenizer.encode, lambda text: list(tokenizer.encode_iterable([text[:3], text[3:]]))):
        with pytest.raises(ValueError, match=r"at character 18: '-'"):
            encode(f"abc{END}de-")


@only_python
def test_from_files_reads_what_save_wrote_and_files_without_a_version_line(tmp_path):
    vocab, merges = trained(600)
    bpe.save(vocab, merges, tmp_path)
    paths = tmp_path / "vocab.json", tmp_path / "merges.txt"
    text = CORPUS.read_bytes().decode()
    ids = bpe.Tokenizer(vocab, merges, [END]).encode(text)
    assert bpe.Tokenizer.from_files(*paths, [END]).encode(text) == ids
    lines = paths[1].read_text(encoding="utf-8").split("\n", 1)[1]
    paths[1].write_text(lines + "\n", encoding="utf-8")
    assert bpe.Tokenizer.from_files(*paths, special_tokens=[END]).encode(text) == ids
    paths[1].write_text(lines[:-3], encoding="utf-8")  # cut off in the middle of a merge
    with pytest.raises(ValueError, match=r"not in the vocabulary|line 343 "):
        bpe.Tokenizer.from_files(*paths)
    del vocab[97]
    bpe.save(vocab, [], tmp_path)
    with pytest.raises(ValueError, match=r"vocab\.json: has no token for the byte b'a'"):
        bpe.Tokenizer.from_files(*paths)


# --- other tools -----------------------------------------------------------------------------------------------------

# `regex` follows Unicode faster than the packages that it is compared with. Random text for them is made of characters
# that this Python's older Unicode knows; test_only_new_characters_are_left_out says that nothing else is left out.
KNOWN = [c for c in map(chr, range(0x110000)) if unicodedata.category(c) not in ("Cn", "Cs")]


def texts_for_others(seed):
    rng = random.Random(seed)
    texts = TEXTS + [random_text(rng, rng.choices(KNOWN, k=40) + TRICKY + [END], rng.randint(0, 300)) for _ in range(200)]
    texts += [random_text(rng, [*(c for c in map(chr, range(0x3001)) if c.isspace()), "a", "1", "."], 60) for _ in range(200)]
    texts += [CORPUS.read_bytes().decode()]
    if CORPORA:
        texts += (pathlib.Path(CORPORA) / "languages.txt").read_text(encoding="utf-8").split(END)[::7]
    return texts


def load_exports(folder, pattern, special_ids):
    """(tokenizers', tiktoken's) encode functions, from the exported files."""
    tokenizers, tiktoken = need("tokenizers"), need("tiktoken")
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    ranks = importlib.import_module("tiktoken.load").load_tiktoken_bpe(str(folder / "vocab.tiktoken"))
    encoding = tiktoken.Encoding("ours", pat_str=bpe.PATTERNS[pattern], mergeable_ranks=ranks, special_tokens=special_ids)
    return theirs, encoding


@only_c
@pytest.mark.parametrize("like", [None, "huggingface"])
@pytest.mark.parametrize("size, pattern", [(300, "gpt2"), (2000, "gpt2"), (32_000, "gpt2"), (2000, "cl100k"), (2000, "o200k")])
def test_the_exports_encode_as_we_do(tmp_path, size, pattern, like):
    vocab, merges = trained(size, pattern, like)
    tokenizer = bpe.Tokenizer(vocab, merges, [END], pattern)
    bpe.export_huggingface(vocab, merges, tmp_path, [END], pattern)
    bpe.export_tiktoken(vocab, tmp_path, [END])
    theirs, encoding = load_exports(tmp_path, pattern, tokenizer.special_ids)
    for text in texts_for_others(size):
        ids = tokenizer.encode(text)
        assert theirs.encode(text).ids == ids, text[:100]
        assert encoding.encode(text, allowed_special="all") == ids, text[:100]
        assert encoding.decode(ids) == text == theirs.decode(ids, skip_special_tokens=False)


@only_c
def test_the_exports_know_special_tokens_that_touch_or_nest(tmp_path):
    special_tokens = ["<a>", "<a><b>", END, "<|end", "[x] y"]
    vocab, merges = bpe.train_bpe(CORPUS, 500, special_tokens)
    tokenizer = bpe.Tokenizer(vocab, merges, special_tokens)
    bpe.export_huggingface(vocab, merges, tmp_path, special_tokens)
    bpe.export_tiktoken(vocab, tmp_path, special_tokens)
    theirs, encoding = load_exports(tmp_path, "gpt2", tokenizer.special_ids)
    rng = random.Random(3)
    for _ in range(500):
        text = random_text(rng, [*special_tokens, "a", " ", "<", "\n"], rng.randint(0, 30))
        ids = tokenizer.encode(text)
        assert theirs.encode(text).ids == ids
        if "<a><b>" not in text and END not in text:  # tiktoken does not take the longest
            assert encoding.encode(text, allowed_special="all") == ids


@only_c
def test_saved_files_load_in_tokenizers_as_they_are(tmp_path):
    tokenizers = need("tokenizers")
    vocab, merges = trained(2000)
    bpe.save(vocab, merges, tmp_path)
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt")))
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    text = CORPUS.read_bytes().decode().replace(END, "")
    assert theirs.encode(text).ids == bpe.Tokenizer(vocab, merges).encode(text)


@only_python
def test_only_new_characters_are_left_out():
    theirs = need("tokenizers").pre_tokenizers.ByteLevel(add_prefix_space=False)
    find = regex.compile(GPT2).finditer
    for character in KNOWN:
        text = f"a{character}1"
        assert [span for _, span in theirs.pre_tokenize_str(text)] == [match.span() for match in find(text)], hex(ord(character))


def huggingface_train(pieces, size, special_tokens):
    """What tokenizers' own trainer learns: (vocab.json's object, merges in printable characters)."""
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


@pytest.mark.parametrize("seed", range(40))
def test_like_huggingface_on_random_corpora_full_of_ties(train, seed):
    rng = random.Random(seed)
    text = random_text(rng, rng.choice(["ab ", "abc ", "aab\n' ", "字é a"]), rng.randint(0, 400))
    assert printable(*train(text, 400, [END], like="huggingface")) == huggingface_train([text], 400, [END])


def test_like_huggingface_on_the_fixture():
    pieces = CORPUS.read_bytes().decode().split(END)
    ours = bpe.train_bpe(CORPUS, 1500, [END, "<pad>"], like="huggingface")
    assert printable(*ours) == huggingface_train(pieces, 1500, [END, "<pad>"])


def test_bad_options_with_like(train):
    with pytest.raises(ValueError, match="max_token_length"):
        train("x", 300, like="huggingface", max_token_length=5)
    with pytest.raises(ValueError, match="like='hf'"):
        train("x", 300, like="hf")


def test_exports_on_the_command_line(tmp_path):
    result = run(CORPUS, 400, "--output-dir", tmp_path, "--export", "huggingface", "--export", "tiktoken", "--like", "huggingface")
    assert result.returncode == 0 and b"tokenizer.json" in result.stderr and b"vocab.tiktoken" in result.stderr
    assert json.loads((tmp_path / "tokenizer.json").read_bytes())["added_tokens"][0]["id"] == 0
    assert bpe.load(tmp_path) == bpe.train_bpe(CORPUS, 400, [END], like="huggingface")


# --- counts, going on, executors -------------------------------------------------------------------------------------


def test_counts_saved_and_read_back_train_to_the_same_merges(tmp_path):
    for name in ("counts.txt", "counts.txt.gz"):
        assert run(CORPUS, "--save-counts", tmp_path / name, cwd=tmp_path).returncode == 0
        for size in (500, 2000):  # count once, train many sizes
            result = run(size, "--from-counts", tmp_path / name, "--output-dir", tmp_path / "out")
            assert result.returncode == 0, result
            expected = (FIXTURES / f"vocab{size}" / "merges.txt").read_bytes()
            assert (tmp_path / "out" / "merges.txt").read_bytes() == expected
    assert not (tmp_path / "bpeModel").exists()  # --save-counts alone trains nothing
    lines = (tmp_path / "counts.txt").read_text(encoding="utf-8").splitlines()
    assert lines[0] == '#bpe-counts 1 "gpt2"' and gzip.decompress((tmp_path / "counts.txt.gz").read_bytes()).decode().splitlines() == lines
    expected = collections.Counter({b"".join(word): n for word, n in naive_words(CORPUS.read_bytes().decode(), [END]).items()})
    in_order = sorted(expected.items(), key=lambda item: (-item[1], item[0]))
    assert lines[1:] == [f"{bpe.to_printable(word)} {count}" for word, count in in_order]
    assert bpe.load_counts(tmp_path / "counts.txt") == expected == bpe.load_counts([tmp_path / "counts.txt.gz"])


def test_shards_counted_apart_and_added_up_equal_the_whole(tmp_path):
    documents = CORPUS.read_bytes().decode().split(END)
    for number in range(3):
        (tmp_path / f"{number}.txt").write_bytes(END.join(documents[number::3]).encode())
        assert run(tmp_path / f"{number}.txt", "--save-counts", tmp_path / f"{number}.gz").returncode == 0
    files = [tmp_path / f"{number}.gz" for number in range(3)]
    assert bpe.load_counts(files) == bpe.count_words(CORPUS, [END])
    result = run("--from-counts", *files, 500, "--output-dir", tmp_path / "out")
    assert (tmp_path / "out" / "merges.txt").read_bytes() == (FIXTURES / "vocab500" / "merges.txt").read_bytes(), result


@needs_corpora
def test_two_sizes_from_one_file_of_counts(tmp_path):
    path = pathlib.Path(CORPORA) / "tinystories_2M.txt"
    words = bpe.count_words(path, [END])
    bpe.save_counts(words, tmp_path / "counts")
    for size in (1000, 10_000):
        assert bpe.train_from_counts(bpe.load_counts(tmp_path / "counts"), size, [END]) == bpe.train_bpe(path, size, [END])


@pytest.mark.parametrize("content, place", [
    ("", "is empty"), ("the 5\n", "line 1 is not a first line"), ('#bpe-counts 1 "o200k"\n', "line 1: these counts were made with"),
    ("@a 1\nb\n", "line 3: 'b' is not"), ("@a -1\n", "line 2: 'a -1'"), ("@a 0\n", "line 2"), ("@a 1.5\n", "line 2"),
    ("@a 9223372036854775808\n", "line 2"), ("@a  1\n", "line 2"), ("@a b 1\n", "line 2"), ("@ 1\n", "line 2"), ("@字 1\n", "line 2"),
    ("@a\xa0b 1\n", "stands for no byte"), ("@a ٣\n", "line 2"),
])  # fmt: skip
def test_malformed_counts_are_named_by_file_and_line(tmp_path, content, place):
    path = tmp_path / "counts.txt"
    path.write_text(content.replace("@", '#bpe-counts 1 "gpt2"\n'), encoding="utf-8")
    error = one_line(run("--from-counts", path, 300, "--output-dir", tmp_path).stderr)
    assert f"{path}:" in error and place in error


def test_damaged_or_odd_files_of_counts(tmp_path):
    bpe.save_counts({b"": 3, b"ab": 0, b"c": 2}, tmp_path / "counts.gz")
    assert bpe.load_counts(tmp_path / "counts.gz") == {b"c": 2}
    data = bytearray(gzip.compress(b'#bpe-counts 1 "gpt2"\n' + b"abc 3\n" * 500))
    for place in range(10, len(data), 3):
        data[place] ^= 0x10
        (tmp_path / "bad.gz").write_bytes(data)
        with pytest.raises(ValueError, match=r"bad\.gz: "):
            bpe.load_counts(tmp_path / "bad.gz")
        data[place] ^= 0x10
    for target in (tmp_path, tmp_path / "missing" / "file"):
        assert b"--save-counts" in run(CORPUS, "--save-counts", target).stderr
    assert not (tmp_path / "missing").exists()
    bpe.save_counts({b"abab": 5}, tmp_path / "a")
    bpe.save_counts({b"cdcd": 5}, tmp_path / "b")
    arguments = ["--from-counts", tmp_path / "a", "--from-counts", tmp_path / "b", 300, "--output-dir", tmp_path / "out"]
    assert run(*arguments).returncode == 0 and {b"abab", b"cdcd"} <= set(bpe.load(tmp_path / "out")[0].values())


def test_counts_of_other_kinds():
    """Zeros, as from Counters that were subtracted; numbers that are no int; negative ones."""
    words = {b"abcd": 0, b"ab": 5, b"cd": True}
    assert bpe.train_from_counts(words, 300, [])[1] == [(b"a", b"b"), (b"c", b"d")]
    with pytest.raises(ValueError, match="b'ab' is negative: -1"):
        bpe.train_from_counts({b"ab": -1}, 300, [])
    with pytest.raises(TypeError):
        bpe.train_from_counts({b"ab": 1.5}, 300, [])
    assert len(bpe.train_from_counts({b"ab": 5}, 2**64 + 255, [], min_frequency=2**65)[1]) == 0
    assert len(bpe.train_from_counts({b"ab": 5}, 2**64 + 255, [], max_token_length=2**65)[1]) == 1


def test_counts_that_add_up_to_too_much(tmp_path, engine):
    (tmp_path / "counts").write_text('#bpe-counts 1 "gpt2"\nab 9223372036854775807\n')
    result = run("--from-counts", tmp_path / "counts", tmp_path / "counts", 300, "--output-dir", tmp_path)
    assert result.returncode == (1 if engine == "c" else 0)  # Python's numbers do not overflow
    if engine == "c":
        assert "2**63" in one_line(result.stderr)


@pytest.mark.parametrize("like", [None, "huggingface"])
def test_going_on_equals_training_at_once(like, tmp_path):
    vocab, merges = bpe.train_bpe(CORPUS, 1200, [END], like=like)
    for size in (257, 258, 700, 1200):
        assert bpe.train_bpe(CORPUS, 1200, [END], like=like, merges=merges[: size - 257]) == (vocab, merges)
    options = ["--output-dir", tmp_path] + (["--like", like] if like else [])
    assert run(CORPUS, 600, *options).returncode == 0
    assert run(CORPUS, 1200, *options, "--continue-from", tmp_path).returncode == 0
    assert bpe.load(tmp_path) == (vocab, merges)


@pytest.mark.parametrize("seed", range(30))
def test_given_merges_are_made_first_whatever_their_counts(train, seed):
    rng = random.Random(seed)
    given = bpe.train_bpe(CORPUS, rng.randint(256, 330), [], max_token_length=rng.choice([None, 3]))[1]
    text = random_text(rng, ["th", "e", "in", " ", "a", "aa", "er", "字", "the "], 500)
    vocab, merges = train(text, 360, merges=given, min_frequency=2)
    words = naive_words(text)
    for pair in given:
        words = {naive_merge(word, pair): count for word, count in words.items()}
    assert merges[: len(given)] == given
    for pair in merges[len(given) :]:
        counts = collections.Counter()
        for word, count in words.items():
            for neighbours in zip(word, word[1:]):
                counts[neighbours] += count
        assert pair == max(counts, key=lambda pair: (counts[pair], pair)) and counts[pair] >= 2
        words = {naive_merge(word, pair): count for word, count in words.items()}
    assert [vocab[256 + number] for number in range(len(merges))] == [left + right for left, right in merges]


@pytest.mark.parametrize("merges, text", [
    ([(b"a", b"b"), (b"ab", b"cd")], "merge 1 (from 0), b'ab' + b'cd': there is no token b'cd' before it"),
    ([(b"a", b"b"), (b"a", b"b")], "merge 1 (from 0), b'a' + b'b': the merges before it make [b'ab'] of these bytes"),
    ([(b"r", b"r"), (b"r", b"rr")], "merge 1 (from 0), b'r' + b'rr': the merges before it make [b'rr', b'r']"),
    ([(b"a", b"b")] * 50, "vocab_size=300 is below"),
])  # fmt: skip
def test_impossible_merges_are_an_error(train, merges, text):
    with pytest.raises(ValueError, match=regex.escape(text)):
        train("abc", 300, merges=merges)


def test_going_on_with_other_special_tokens_is_an_error(tmp_path):
    assert run(CORPUS, 300, "--special-token", "<x>", "--output-dir", tmp_path).returncode == 0
    assert run(CORPUS, 310, "--continue-from", tmp_path, "--output-dir", tmp_path).returncode == 0  # it takes them from there
    assert bpe.load(tmp_path)[0][256] == b"<x>"
    for options in (["--special-token", "<y>"], ["--no-special-tokens"], ["--like", "huggingface"]):
        result = run(CORPUS, 320, "--continue-from", tmp_path, *options, "--output-dir", tmp_path)
        assert result.returncode == 2 and "with the special tokens ['<x>']" in one_line(result.stderr)


def test_texts_from_an_iterable_are_counted_lazily(monkeypatch, small_slices):
    documents = CORPUS.read_bytes().decode().split(END)
    taken = []

    def stream():
        for document in documents:
            taken.append(document)
            yield document

    assert bpe.count_words(None, [], texts=stream(), workers=1) == bpe.count_words(CORPUS, [END])
    slices = bpe.slices_of_texts(stream())
    taken.clear()
    next(slices)
    assert len(taken) <= 2
    assert bpe.count_words(None, ["<x>"], texts=["a<x>b", "c"]) == {b"a": 1, b"b": 1, b"c": 1}
    assert bpe.count_words(None, [], texts=iter([])) == {}
    with pytest.raises(ValueError, match="lone surrogate at character 1"):
        bpe.count_words(None, [], texts=["a\ud800"])
    assert bpe.count_words(None, [], texts=["a\ud800", "\ud83d\ude00"], errors="replace") == {b"a": 1, "\ufffd".encode(): 1, "😀".encode(): 1}
    for texts in (["a", b"b"], ["a", None, "b"], ["a", 5]):
        with pytest.raises(TypeError, match=r"text 1 .* not a string"):
            bpe.count_words(None, [], texts=texts)
    with pytest.raises(TypeError, match="is one string"):
        bpe.count_words(None, [], texts="hello")
    with pytest.raises(ValueError, match="either paths or texts"):
        bpe.count_words(CORPUS, [], texts=["a"])


@pytest.mark.parametrize("kind", ["ThreadPoolExecutor", "ProcessPoolExecutor"])
def test_any_executor_counts_the_same(monkeypatch, kind):
    monkeypatch.setattr(bpe, "SLICE_BYTES", 5000)
    with getattr(concurrent.futures, kind)(2) as executor:
        for pattern in ("gpt2", "cl100k"):
            expected = bpe.count_words(CORPUS, [END], workers=1, pattern=pattern)
            assert bpe.count_words(CORPUS, [END], executor=executor, pattern=pattern) == expected
        assert bpe.count_words(None, [], texts=["a b", "a"], executor=executor) == {b"a": 2, b" b": 1}


def test_a_task_that_always_fails_gives_its_path_and_range(monkeypatch):
    def fail(piece, rules, in_c):
        raise OSError("disk on fire") if piece.start_byte else KeyError("first")

    monkeypatch.setattr(bpe, "SLICE_BYTES", 5000)
    monkeypatch.setattr(bpe, "count_anywhere", fail)
    with concurrent.futures.ThreadPoolExecutor(2) as executor, pytest.raises(RuntimeError, match=r"corpus\.txt, bytes 0 to \d+.*first"):
        bpe.count_words(CORPUS, [END], executor=executor)


@only_c
def test_a_dask_cluster_counts_the_same_also_when_a_worker_is_killed(tmp_path):
    need("distributed")
    corpus = tmp_path / "corpus.txt"
    corpus.write_bytes(CORPUS.read_bytes() * 30)
    result = call_in_script(tmp_path, f"""
        import os, signal, threading, time, bpe
        from distributed import Client, LocalCluster
        bpe.SLICE_BYTES = 20_000
        if __name__ == "__main__":
            expected = bpe.count_words({str(corpus)!r}, ["{END}"], workers=1)
            with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
                with Client(cluster) as client:
                    client.run(lambda: __import__("sys").path.insert(0, {str(HERE)!r}))
                    print(bpe.count_words({str(corpus)!r}, ["{END}"], executor=client.get_executor()) == expected)
                    pids = list(client.run(os.getpid).values())
                    threading.Timer(0.3, os.kill, (pids[0], signal.SIGKILL)).start()
                    start = time.time()
                    print(bpe.count_words([{str(corpus)!r}] * 4, ["{END}"], executor=client.get_executor(), engine="python")
                          == {{word: 4 * count for word, count in expected.items()}}, time.time() - start > 0.3)
    """)
    assert result.stdout == b"True\nTrue True\n", result


# --- characters with an end-of-word mark, and what a person can look at ----------------------------------------------


def as_text(merges):
    return [(left.decode(), right.decode()) for left, right in merges]


def test_the_classic_example_at_the_level_of_characters(train):
    """Sennrich et al. 2016; the merges from s t</w> on were worked out by hand."""
    vocab, merges = train(TEXTBOOK, 11 + 12, level="char")
    expected = "s t</w>, e st</w>, l o, w est</w>, n e, ne west</w>, lo w</w>, w i, wi d, wid est</w>, w e, we r</w>"
    assert ", ".join(" ".join(pair) for pair in as_text(merges)) == expected
    assert " ".join(bpe.segment("lowest newest", merges)) == "lo west</w> newest</w>"
    symbols = ["d", "e", "i", "l", "n", "o", "r</w>", "s", "t</w>", "w", "w</w>"]
    assert [token.decode() for token in vocab.values()] == symbols + [left + right for left, right in as_text(merges)]


def naive_char_words(text, special_tokens=()):
    pieces = regex.split("|".join(map(regex.escape, special_tokens)), text) if special_tokens else [text]
    words = [word for piece in pieces for line in piece.split("\n") for word in line.strip("\r ").split(" ") if word]
    return collections.Counter((*[c.encode() for c in word[:-1]], word[-1].encode() + b"</w>") for word in words)


@pytest.mark.parametrize("seed", range(40))
def test_characters_agree_with_the_oracle(train, small_slices, seed):
    rng = random.Random(seed)
    text = random_text(rng, [*rng.choices(WIDE, k=5), *"ab  \n", "\r\n", "<x>"], rng.randint(1, 400))
    special_tokens = rng.choice([[], ["<x>"]])
    words = naive_char_words(text, special_tokens)
    symbols = sorted({symbol for word in words for symbol in word})
    vocab, merges = train(text, len(symbols) + len(special_tokens) + 60, special_tokens, level="char")
    assert [*vocab.values()][: len(symbols) + len(special_tokens)] == symbols + [s.encode() for s in special_tokens]
    assert merges == naive_train(words, 256 + 60)[1]


def test_bad_options_at_the_level_of_characters(train):
    for options, text in [({"pattern": "cl100k"}, "no meaning"), ({"like": "huggingface"}, "no meaning"), ({"level": "word"}, "level='word'")]:
        with pytest.raises(ValueError, match=text):
            train("abc", 300, **{"level": "char", **options})
    with pytest.raises(ValueError, match="vocab_size=2 is below the 3 symbols"):
        train("abc", 2, level="char")


@pytest.mark.parametrize("name", ["corpus.txt", pytest.param("novels.txt", marks=needs_corpora)])
def test_codes_and_segments_equal_those_of_subword_nmt(tmp_path, name):
    need("subword_nmt")
    from subword_nmt import apply_bpe, learn_bpe

    path = CORPUS if name == "corpus.txt" else pathlib.Path(CORPORA) / name
    text = path.read_bytes()[:5_000_000].decode(errors="ignore").replace(END, "")
    corpus = tmp_path / "corpus.txt"
    corpus.write_bytes(text.encode())
    lines = [line + "\n" for line in text.split("\n")]
    codes = io.StringIO()
    learn_bpe.learn_bpe(lines, codes, 1500, min_frequency=2)
    result = run(corpus, 100_000, "--level", "char", "--min-frequency", 2, "--no-special-tokens", "--output-dir", tmp_path, "--quiet")
    assert result.returncode == 0, result
    ours = (tmp_path / "merges.txt").read_text(encoding="utf-8").split("\n")
    theirs = codes.getvalue().split("\n")
    assert ours[: len(theirs) - 1] == theirs[:-1] and len(theirs) > 1000
    vocab, merges = bpe.load(tmp_path, level="char")
    symbols = len(vocab) - len(merges)
    assert bpe.train_bpe(corpus, symbols + 1500, [], level="char", min_frequency=2)[1] == merges[:1500]
    codes.seek(0)
    encoder = apply_bpe.BPE(codes)
    for line in lines[: 3000 if name == "corpus.txt" else 500]:
        segments = encoder.segment(line.strip("\r\n ")).split(" ")
        undone = [part[:-2] if part.endswith("@@") else part + "</w>" for part in segments if part]
        assert bpe.segment(line, merges[:1500]) == undone, line


WALK_THROUGH = "round 1: s t (9 times), e s (9 times), w e (8 times)\n    merge s t, which has the greatest bytes of the 2 that are so frequent\n"


def test_the_walk_through_in_the_readme_is_what_the_command_prints(tmp_path):
    path = tmp_path / "textbook.txt"
    path.write_text(TEXTBOOK)
    options = ["--no-special-tokens", "--pattern", r"\S+", "--explain", 6, "--quiet", "--output-dir", tmp_path]
    printed = run(path, 262, *options).stdout.decode()
    assert printed.startswith(WALK_THROUGH)
    for name in ("README.md", "README.zh.md"):
        assert printed in (HERE / name).read_text(encoding="utf-8")


def test_an_explanation_makes_the_same_merges_as_the_training(tmp_path):
    for options in ([], ["--like", "huggingface"], ["--level", "char"]):
        result = run(CORPUS, 3000, "--explain", 8, "--quiet", "--output-dir", tmp_path, *options)
        lines = result.stdout.decode().splitlines()
        explained = [line.split("merge ")[1].split(",")[0] for line in lines if line.startswith("    merge ")]
        merges = bpe.load(tmp_path, level="char" if "char" in options else "byte")[1]
        shown = [" ".join(token.decode(errors="backslashreplace").replace(" ", "␣") for token in pair) for pair in merges[:8]]
        assert explained == shown
        assert len(explained) == 8 and ("char" in options or explained[0] == "␣ t")


def test_show(tmp_path):
    assert run(CORPUS, 600, "--output-dir", tmp_path).returncode == 0
    text = f"The ferry 字{END}"
    tokenizer = bpe.Tokenizer.from_files(tmp_path / "vocab.json", tmp_path / "merges.txt", [END])
    ids = tokenizer.encode(text)
    expected = "|".join(tokenizer.vocab[i].decode(errors="backslashreplace") for i in ids) + "\n" + " ".join(map(str, ids))
    expected += f"\n{len(ids)} tokens, {len(text.encode())} bytes, {len(text.encode()) / len(ids):.2f} bytes per token\n"
    for argument, stdin in ((text, None), ("-", text.encode())):
        result = run("--show", argument, "--output-dir", tmp_path, stdin=stdin)
        assert result.stdout.decode() == expected and "\\x" in expected
    assert run("--show", "x", CORPUS, "--output-dir", tmp_path).returncode == 2


@only_python
def test_the_definition_and_the_learner_yield_the_same():
    words = bpe.count_words(CORPUS, [END])
    vocab = bpe.initial_vocab([END])
    assert list(bpe.learn_merges_by_definition(words, vocab, 300)) == list(bpe.learn_merges(words, vocab, 300))


# --- files -----------------------------------------------------------------------------------------------------------


@only_python
def test_save_then_load_is_the_identity_for_any_bytes(tmp_path):
    rng = random.Random(1)
    tokens = [bytes([byte]) for byte in range(256)] + [END.encode(), b"two words", "字 \n\t".encode()]
    tokens += list({rng.randbytes(rng.randint(2, 9)) for _ in range(2000)})
    rng.shuffle(tokens)
    vocab = {3 * i: token for i, token in enumerate(tokens)}
    merges = [(rng.choice(tokens), rng.choice(tokens)) for _ in range(2000)] + [(b"#", b"version")]
    bpe.save(vocab, merges, tmp_path / "a" / "b")
    assert bpe.load(tmp_path / "a" / "b") == (vocab, merges)
    assert sorted(os.listdir(tmp_path / "a" / "b")) == ["merges.txt", "vocab.json"]


@only_python
def test_the_table_of_printable_bytes_is_that_of_gpt2():
    ids, _ = naive_files({byte: bytes([byte]) for byte in range(256)}, [])
    assert {text: byte for byte, text in bpe.bytes_to_unicode().items()} == ids
    assert bpe.to_printable(b" the\n") == "ĠtheĊ"


@only_python
def test_threads_may_save_into_one_folder(tmp_path):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for saved in [pool.submit(bpe.save, {0: b"a"}, [], tmp_path) for _ in range(60)]:
            saved.result()
    assert len(os.listdir(tmp_path)) == 2


@only_python
def test_an_export_that_would_lose_a_token_is_refused(tmp_path):
    for special, text in (("§", "can't hold"), ("<y>", "not in the vocabulary")):
        vocab, merges = bpe.train_bpe(CORPUS, 300, ["§"])
        with pytest.raises(ValueError, match=text):
            bpe.export_huggingface(vocab, merges, tmp_path, [special])


@only_python
def test_save_refuses_two_ids_with_the_same_bytes(tmp_path):
    with pytest.raises(ValueError, match="256 and 257"):
        bpe.save({256: b"ab", 257: b"ab"}, [], tmp_path)


@only_python
def test_a_failed_save_leaves_the_earlier_files(tmp_path, monkeypatch):
    bpe.save({0: b"old"}, [], tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(AttributeError):
        bpe.write_files(tmp_path, {"vocab.json": "new", "merges.txt": [1]})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@only_python
@pytest.mark.parametrize("vocab, text", [
    ('{"a": 1', "not JSON"), ("[1]", "not a JSON object"), ('{"a": -1}', "'a'"), ('{"a": "x"}', "'a'"), ('{"a": true}', "'a'"),
    ('{"a": 1, "b": 1}', "id 1 is given twice"), ('{"a b": 1}', "stands for no byte"), ("", "not JSON"),
])  # fmt: skip
def test_a_malformed_vocabulary_is_named(tmp_path, vocab, text):
    (tmp_path / "vocab.json").write_text(vocab)
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    with pytest.raises(ValueError, match=text):
        bpe.load(tmp_path)


@only_python
@pytest.mark.parametrize("merges, line", [("a b\nab\n", 2), ("#version: 0.2\na b c\n", 2), ("a b\n#version: 0.2\na  b", 3)])
def test_a_malformed_list_of_merges_is_named_by_line(tmp_path, merges, line):
    (tmp_path / "vocab.json").write_text("{}")
    (tmp_path / "merges.txt").write_text(merges)
    with pytest.raises(ValueError, match=f"line {line} "):
        bpe.load(tmp_path)


# --- workers that die, scripts without a guard -----------------------------------------------------------------------


def call_in_script(tmp_path, script):
    path = tmp_path / "script.py"
    path.write_text(f"import sys\nsys.path.insert(0, {str(HERE)!r})\n" + textwrap.dedent(script))
    return subprocess.run([sys.executable, str(path)], capture_output=True, timeout=60)


@only_python
@pytest.mark.parametrize("moment", ["while it counts", "while it sends its result"])
def test_a_killed_worker_is_an_error_and_not_a_hang(tmp_path, moment):
    result = call_in_script(tmp_path, f"""
        import os, signal, struct, bpe
        def die(*arguments):
            os.kill(os.getpid(), signal.SIGKILL)
        def count_slice(piece, rules):
            return die() if piece.start_byte else (1, 0, {{}})
        bpe.count_slice, bpe.SLICE_BYTES = count_slice, 1000
        def send_half(connection, rules):
            connection.recv()
            os.write(connection.fileno(), struct.pack("!i", 1000) + b"half of it")
            die()
        if {moment != "while it counts"}:
            bpe.work = send_half
        if __name__ == "__main__":
            try:
                bpe.train_bpe({str(CORPUS)!r}, 300, [], workers=2, engine="python")
            except RuntimeError as error:
                print(error)
    """)
    assert b"worker process died" in result.stdout, result


@only_python
def test_a_missing_main_guard_is_named(tmp_path):
    result = call_in_script(tmp_path, f"""
        import multiprocessing, bpe
        multiprocessing.set_start_method("spawn", force=True)
        bpe.SLICE_BYTES = 1000
        bpe.train_bpe({str(CORPUS)!r}, 300, [], workers=2, engine="python")
    """)
    # the children's own errors stand in front of it or after it
    errors = [line for line in result.stderr.decode().splitlines() if line.startswith("RuntimeError: a worker process died")]
    assert result.returncode != 0 and len(errors) == 1 and 'if __name__ == "__main__":' in errors[0]


@only_python
def test_workers_end_where_the_caller_ignores_sigterm(tmp_path):
    result = call_in_script(tmp_path, f"""
        import signal, bpe
        bpe.SLICE_BYTES = 5000
        if __name__ == "__main__":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            print(len(bpe.count_words({str(CORPUS)!r}, ["{END}"], workers=2, engine="python")))
    """)
    assert result.stdout.strip().isdigit(), result


@only_python
def test_spawned_workers_count_the_same(tmp_path):
    result = call_in_script(tmp_path, f"""
        import multiprocessing, bpe
        if __name__ == "__main__":
            multiprocessing.set_start_method("spawn", force=True)
            bpe.SLICE_BYTES = 30000
            counts = bpe.count_words({str(CORPUS)!r}, ["{END}"], workers=2, engine="python")
            print(counts == bpe.count_words({str(CORPUS)!r}, ["{END}"], workers=1, engine="python"))
    """)
    assert result.stdout == b"True\n", result


# --- the command line ------------------------------------------------------------------------------------------------


def test_the_command_line_writes_what_the_library_does(tmp_path):
    result = run(CORPUS, 500, "--output-dir", tmp_path / "out")
    assert result.returncode == 0 and result.stdout == b""
    assert (tmp_path / "out" / "merges.txt").read_bytes() == (FIXTURES / "vocab500" / "merges.txt").read_bytes()
    text = result.stderr.decode()
    size = CORPUS.stat().st_size
    for part in (f"{size:,} bytes", "243; stopped: the vocabulary is full", "bytes per token", "counting", "MB", "distinct"):
        assert part in text
    words = naive_words(CORPUS.read_bytes().decode(), [END])
    for merge in bpe.load(tmp_path / "out")[1]:
        words = collections.Counter({naive_merge(word, merge): count for word, count in words.items()})
    in_words = sum(len(b"".join(word)) * count for word, count in words.items())
    tokens = sum(len(word) * count for word, count in words.items())
    assert f"{in_words / tokens:.2f} bytes per token" in text
    assert f"{sum(words.values()):,}, of which {len(words):,} distinct" in text


def test_options_may_stand_anywhere(tmp_path):
    expected = None
    arguments = [str(CORPUS), "400"]
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
        assert bpe.load(tmp_path) == bpe.train_bpe(corpus, 280, special_tokens)


def test_a_pipe_and_standard_input_are_read(tmp_path):
    data = CORPUS.read_bytes()
    assert run("-", 500, "--output-dir", tmp_path, stdin=data).returncode == 0
    assert (tmp_path / "merges.txt").read_bytes() == (FIXTURES / "vocab500" / "merges.txt").read_bytes()
    assert b"gzip" in one_line(run("-", 500, "--output-dir", tmp_path, stdin=gzip.compress(data)).stderr).encode()


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
    monkeypatch.setattr(bpe, "SLICE_BYTES", 5000)
    os.mkfifo(tmp_path / "pipe")
    writer = subprocess.Popen(["sh", "-c", f"cat '{CORPUS}' > '{tmp_path}/pipe'"])
    assert bpe.count_words(tmp_path / "pipe", [END], workers=2) == bpe.count_words(CORPUS, [END], workers=1)
    writer.wait()


def test_log_every(tmp_path):
    path = tmp_path / "c.txt"
    path.write_text(TEXTBOOK)
    result = run(path, 268, "--no-special-tokens", "--pattern", r"\S+", "--log-every", 4, "--output-dir", tmp_path)
    lines = result.stdout.decode().splitlines()
    assert lines == ["4\t'l' + 'ow' -> 'low'\t7", "8\t'w' + 'i' -> 'wi'\t3", "12\t'lowe' + 'r' -> 'lower'\t2"]
    assert "2 bytes, which the pattern leaves out" not in result.stderr.decode()
    assert f"{TEXTBOOK.count(' ') + 3} bytes, which the pattern leaves out" in result.stderr.decode()


@pytest.mark.parametrize("arguments, text", [
    ([], "corpus file and a vocabulary size"),
    (["c.txt"], "corpus file and a vocabulary size"),
    (["c.txt", "many"], "'many': not a whole number"),
    (["c.txt", "10"], "vocab_size=10 is below"),
    (["c.txt", "-10"], "vocab_size=-10 is below"),
    (["missing.txt", "300"], "missing.txt: No such file"),
    ([".", "300"], "directory"),
    (["c.txt", "300", "--colour"], "--colour"),
    (["c.txt", "300", "--errors", "skip"], "skip"),
    (["c.txt", "300", "--workers", "0"], "workers=0"),
    (["c.txt", "300", "--pattern", "(["], "regular expression"),
    (["c.txt", "300", "--special-token", ""], "empty"),
    (["c.txt", "300", "--special-token", "<x>", "--no-special-tokens"], "contradict"),
    (["c.txt", "300", "--log-every", "0"], "--log-every 0"),
    (["c.txt", "300", "--output-dir", "c.txt"], "c.txt"),
    (["bad.txt", "300"], "bad.txt: not valid UTF-8 at byte 3 "),
])  # fmt: skip
def test_bad_command_lines_end_with_one_line_and_status_2(tmp_path, arguments, text):
    (tmp_path / "c.txt").write_text("hello")
    (tmp_path / "bad.txt").write_bytes(b"abc\xff")
    result = run(*arguments, cwd=tmp_path)
    assert text in one_line(result.stderr) and result.returncode == 2
    assert not list(tmp_path.glob("bpeModel/*"))


@only_python
def test_help_is_there():
    result = run("--help")
    assert result.returncode == 0 and b"--special-token" in result.stdout


def test_ctrl_c_ends_within_a_second_and_leaves_nothing(tmp_path, engine):
    corpus = tmp_path / "big.txt"
    corpus.write_bytes(CORPUS.read_bytes() * 600)  # 64 MB
    process = subprocess.Popen(
        [sys.executable, str(HERE / "bpe.py"), *[str(corpus)] * 60, "30000", "--workers", "2", "--output-dir", str(tmp_path / "out"),
         "--engine", engine], stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    time.sleep(1.2)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the parent and the workers
    start = time.perf_counter()
    _, errors = process.communicate(timeout=20)
    assert time.perf_counter() - start < 1
    assert process.returncode == 130 and errors.decode() == "interrupted\n"
    assert os.listdir(tmp_path / "out") == []
    with pytest.raises(ProcessLookupError):
        for _ in range(20):  # the workers need a moment to go
            os.killpg(process.pid, 0)
            time.sleep(0.1)


@only_python
def test_workers_do_not_outlive_a_parent_that_is_killed(tmp_path):
    corpus = tmp_path / "big.txt"
    corpus.write_bytes(CORPUS.read_bytes() * 600)
    command = [sys.executable, str(HERE / "bpe.py"), str(corpus), "30000", "--workers", "2", "--engine", "python"]
    process = subprocess.Popen(command, start_new_session=True, cwd=tmp_path)
    time.sleep(1.0)
    process.kill()
    process.wait()
    with pytest.raises(ProcessLookupError):
        for _ in range(50):
            os.killpg(process.pid, 0)
            time.sleep(0.1)


@only_python
def test_a_copy_alone_inside_a_package(tmp_path):
    package = tmp_path / "course" / "basics"
    package.mkdir(parents=True)
    shutil.copy(HERE / "bpe.py", package / "bpe.py")
    (tmp_path / "course" / "__init__.py").touch()
    (package / "__init__.py").touch()
    script = f"from course.basics.bpe import train_bpe; v, m = train_bpe({str(CORPUS)!r}, 500, ['{END}']); print(len(v), len(m))"
    result = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, timeout=60)
    assert result.stdout.split() == [b"500", b"243"], result


@only_python
def test_the_plain_progress_bar(capsys):
    bar = bpe.PlainBar("counting words", 200, sys.stderr)
    bar.update(100)
    bar.update(100)
    bar.close()
    assert capsys.readouterr().err == "\rcounting words:  50%\rcounting words: 100%\n"


def test_the_examples_in_the_docstrings():
    import doctest

    assert doctest.testmod(bpe).failed == 0 and doctest.testmod(bpe).attempted > 3


# --- large real texts, where BPE_CORPORA names a folder --------------------------------------------------------------


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
    vocab = bpe.initial_vocab([END])
    assert list(bpe.learn_merges_in_c(words, vocab, size)) == list(bpe.learn_merges(words, vocab, size))


@needs_corpora
@pytest.mark.parametrize("name, size", [("tinystories_2M.txt", 3000), ("zh.txt", 1000), ("code.txt", 2000)])
def test_like_huggingface_on_large_texts(name, size, engine):
    path = pathlib.Path(CORPORA) / name
    text = path.read_bytes().decode()
    if engine == "python":
        text = text[:3_000_000]
    counts = collections.Counter(word for piece in text.split(END) for word in bpe.pretokenize(piece))
    ours = bpe.train_from_counts(counts, size, [END], like="huggingface")
    assert printable(*ours) == huggingface_train(text.split(END), size, [END])


@needs_corpora
def test_tinystories_trains_to_10000_in_under_three_seconds():
    start = time.perf_counter()
    vocab, _ = bpe.train_bpe(pathlib.Path(CORPORA) / "tinystories_2M.txt", 10_000, [END])
    assert len(vocab) == 10_000 and time.perf_counter() - start < 3


if __name__ == "__main__":
    write_expected()
