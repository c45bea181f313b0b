"""The learner in bpe_fast.c, and tables of words in bpe_words.c: special tokens, the hash, sorted lists, limits.

TRIALS is how many random cases a test has.
"""

import bisect
import collections
import itertools
import os
import random
import time

import pytest
import regex

import bpe
import build_ffi
from bpe_more import choices
from shared import least_seconds
from test_bpe import need

cffi = need("cffi")

ENGINE, _ = choices.find_engine()  # without it, all tests here are skipped
TRIALS = int(os.environ.get("TRIALS", 200))
BYTES = [bytes([byte]) for byte in range(256)]


def random_bytes(rng, letters, longest):
    return bytes(rng.choices(letters, k=rng.randint(1, longest)))


def table(words=()):
    """A table of words and counts, from a dict."""
    made, words = ENGINE.words((), "gpt2"), dict(words)
    made.add(words.items())
    return made


def scan(text, special_tokens=()):
    """The counts of a text (bytes)."""
    words = ENGINE.words(special_tokens, "gpt2")
    words.scan_all([text])
    return words.copy()


def add(table, other):
    """Add the words of another table, as the tables of threads are merged."""
    words = other.get(other.handle())
    table.put(table.handle(), *words)


def learn(words, merges, least=1):
    """(left, right, count, replaced) of each merge."""
    return list(itertools.islice(ENGINE.learn(words, merges, least), merges))


# --- special tokens --------------------------------------------------------------------------------------------------


def words_between(text, special_tokens):
    """The definition: at each place the longest special token, and the words of what is between them."""
    known, lengths = set(special_tokens), sorted(set(map(len, special_tokens)), reverse=True)
    pieces, start, at = [], 0, 0
    while at < len(text):
        length = next((n for n in lengths if at + n <= len(text) and text[at : at + n] in known), 0)
        if length:
            pieces.append(text[start:at])
            start = at + length
        at += length or 1
    pieces.append(text[start:])
    return collections.Counter(word.encode() for piece in pieces for word in regex.findall(bpe.GPT2, piece.decode()))


@pytest.mark.parametrize("letters", [b"a", b"ab", b"<|x>", bytes(range(97, 123))])
@pytest.mark.parametrize("longest", [2, 3, 5, 40])
def test_the_longest_special_token_at_the_leftmost_place_is_a_wall(letters, longest):
    rng = random.Random(repr((letters, longest)))
    for _ in range(TRIALS // 5):
        tokens = {random_bytes(rng, letters, longest) for _ in range(rng.randint(1, 60))}
        tokens = [token for token in tokens if len(token) > 1]  # one of a single byte has an id already
        parts = [rng.choice([*tokens, b" ", b"a", letters]) for _ in range(rng.randint(0, 60))]
        text = b"".join(part[: rng.choice([None, None, -1])] for part in parts)
        assert scan(text, [token.decode() for token in tokens]) == words_between(text, tokens), (tokens, text)


@pytest.mark.parametrize("form", ["<|{:05}|>", "{:05}", "<|" + "x" * 100 + "{}|>", "1{:b}"])
def test_fifty_thousand_special_tokens_cost_little(form):
    tokens = [form.format(number) for number in range(50_000)]
    parts = [(f"some words <|x and <|y {number} ", token) for number, token in enumerate(tokens)][::10]
    text = "".join(map("".join, parts)).encode()
    words = ENGINE.words(tokens, "gpt2")
    words.handle()  # it makes the table of special tokens
    start = time.process_time()
    words.scan_all([text])
    assert time.process_time() - start < 500e-9 * len(text)
    assert words.copy() == words_between(text, [token.encode() for token in tokens])


# --- the hash --------------------------------------------------------------------------------------------------------


def fifteen(number, shift):
    return (number << shift).to_bytes(15, "little")


REGULAR = {  # words that a weak hash puts into few places
    "in the low bytes": lambda n: fifteen(n, 0), "in the middle": lambda n: fifteen(n, 50),
    "in the high bytes": lambda n: fifteen(n, 100), "every 256th": lambda n: fifteen(n << 8, 40),
    "both halves alike": lambda n: n.to_bytes(8, "little") + n.to_bytes(7, "little"),
    "three letters": lambda n: bytes(97 + n // 28**k % 28 for k in range(3)),
    "long, in the first block": lambda n: n.to_bytes(8, "little") + b"x" * 16,
    "long, in the last byte of blocks": lambda n: b"".join((b"x" * 7, bytes([n & 255]), b"y" * 7, bytes([n >> 8]), b"zz")),
    "long, of many lengths": lambda n: b"\0" * (16 + n % 3000) + bytes([n // 3000]),
}  # fmt: skip


@pytest.mark.parametrize("kind", REGULAR)
def test_words_with_a_pattern_cost_what_random_words_cost(kind):
    rng = random.Random(1)
    words = dict.fromkeys(map(REGULAR[kind], range(20_000)), 1)
    assert len(words) == 20_000
    others = {rng.randbytes(max(len(word), 4)): 1 for word in words}
    assert table(words).copy() == words and table(others).copy() == others
    assert least_seconds(table, words) < 4 * least_seconds(table, others)


def encoder_of(n_ids, rows):
    """A function that makes an encoder of the bytes and of tokens "ab", for merges as ids, and frees it."""
    rules = ENGINE.create("rules", b"", [], 0, ENGINE.ffi.NULL, build_ffi.new_seed())
    vocabulary = list(range(n_ids)), n_ids, b"ab" * (n_ids - 256), [2] * (n_ids - 256), 0
    return lambda: ENGINE.create("encoder", *vocabulary, rows, len(rows) // 3, rules, [], build_ffi.new_seed()) and None


def seconds_to_index(merges):
    """The time that an encoder takes to make its table of pairs."""
    return least_seconds(encoder_of(60_000, [n for pair in merges for n in (*pair, 256)]))


def test_c_holds_two_to_the_21_less_two_bytes_and_tokens_and_no_more():
    """Python encodes with larger vocabularies (test_the_summary_names_the_engine_that_encoded)."""
    encoder_of(2**21 - 2, [])()
    with pytest.raises(OverflowError, match=r"^2\*\*21 - 1 tokens or more"):
        encoder_of(2**21 - 1, [])()


def test_chosen_merges_cost_what_random_merges_cost():
    """Pairs that a product with the usual factor, 2**64 over the golden ratio, puts into one bucket."""
    factor, rng = 0x9E3779B97F4A7C15, random.Random(3)
    products = sorted((right * factor % 2**64, right) for right in range(60_000))
    keys = [product for product, _ in products]
    chosen = [(left, products[bisect.bisect(keys, -(left << 21) * factor % 2**64) % 60_000][1]) for left in range(30_000)]
    others = [(left, rng.randrange(60_000)) for left in range(30_000)]
    assert seconds_to_index(chosen) < 4 * seconds_to_index(others)


@pytest.mark.parametrize("first, second", [(0.35, 0.36), (0.55, 0.65), (0.6, 0.74), (0.7, 0.2)])
def test_tables_without_a_common_word_are_merged_in_linear_time(first, second):
    """The parts of 2**17 slots that they fill; merged in the order of hashes, they took 50 times as long."""
    numbers = iter(range(10**9, 10**10))
    words = [{b"%d" % next(numbers): 1 for _ in range(int(part * 2**17))} for part in (first, second)]
    one, other = map(table, words)
    start = time.process_time()
    add(one, other)
    assert time.process_time() - start < 0.1
    assert one.copy() == words[0] | words[1]


def test_every_table_has_a_seed_of_its_own(monkeypatch):
    assert len({build_ffi.new_seed() for _ in range(10)}) == 10
    created = []
    monkeypatch.setattr(ENGINE, "create", lambda *arguments: created.append(arguments))
    words = ENGINE.words((), "gpt2")
    words.new_table()
    seeds = [seed for *_, seed in created]  # of the rules, and of two tables
    assert len(seeds) == len(set(seeds)) == 3


def test_words_with_the_same_hash_are_different_words(monkeypatch):
    """A factor of zero, which only a seed that is known can give: the key of each word is 0 and its length."""
    monkeypatch.setattr(build_ffi, "new_seed", lambda: (5, int.from_bytes(b"collides", "little")))
    words = {b"%08dcollides" % number: number + 1 for number in range(1000)}
    made = table(words)
    add(made, table(words))
    assert made.copy() == {word: 2 * count for word, count in words.items()}
    assert ENGINE.words([word.decode() for word in words], "gpt2").handle()
    assert scan(b" ".join(list(words)[::2]), [word.decode() for word in words]) == {b" ": 499}


# --- all words of a table ---------------------------------------------------------------------------------------------


def test_rare_words_do_not_count_among_distinct_words():
    """The array of the learner has room for the words that are left only."""
    words = table({b"ab": 5, **{b"x" * 10_000 + b"%d" % number: 1 for number in range(100)}})
    assert words.totals() == (101, 105, 10 + sum(10_000 + len(b"%d" % number) for number in range(100)))
    assert words.totals(2) == (1, 5, 10)
    assert [len(array) for array in words.get(words.handle(), 2)] == [2, 1, 1]
    assert list(ENGINE.learn(words, 9, 1, 2)) == [(b"a", b"b", 5, 5)]


@pytest.mark.parametrize("distinct", [10, 1000, 300_000])
def test_a_large_text_is_counted_like_its_parts(distinct):
    rng = random.Random(distinct)
    known = [b" %d" % rng.randrange(10**15, 10 ** rng.randint(16, 18)) for _ in range(distinct)]
    parts = [b"".join(rng.choices(known, k=7000)) for _ in range(40)]
    expected = collections.Counter(word for part in parts for word in regex.findall(rb" \d+", part))
    added = table()
    for part in parts:
        words = ENGINE.words((), "gpt2")
        words.scan_all([part])
        add(added, words)
    assert scan(b"".join(parts)) == added.copy() == expected


@pytest.mark.parametrize("count, text, error", [(2**62 - 2, b"f", OverflowError), (3, b"ab \xff", UnicodeDecodeError)])
def test_after_text_beyond_the_limit_or_not_in_utf8_a_table_is_used_up(count, text, error):
    words = table({b"ab": count, b"c": 1})
    words.scan_all([b"de"])  # text counts towards the limit
    with pytest.raises(error):
        words.scan_all([text])
    for use in (words.copy, words.totals):
        with pytest.raises(ValueError, match="used up"):
            use()


def test_a_table_that_was_learned_from_is_used_up():
    words = table({b"abab": 3})
    assert learn(words, 9) == [(b"a", b"b", 6, 6), (b"ab", b"ab", 3, 3)]
    for use in (words.copy, lambda: learn(words, 9), lambda: words.add([(b"ab", 1)]), lambda: words.scan_all([b"ab"])):
        with pytest.raises(ValueError, match="used up"):
            use()


# --- the learner -----------------------------------------------------------------------------------------------------


def fold(a, b):
    """The halves of the product of two numbers of 64 bits, one over the other: fold() in bpe_fast.c."""
    return (a * b ^ a * b >> 64) & 2**64 - 1


SEEDS = [(0, 0x9E3779B97F4A7C15), (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9)]  # that somebody could guess


@pytest.mark.parametrize("seed", SEEDS)
def test_pairs_that_collide_without_a_secret_cost_what_other_pairs_cost(seed):
    first, second = seed
    hashed = lambda left, right: fold((left + 1 << 32 | right + 1) ^ first, second ^ 1)  # noqa: E731
    pairs = sorted(itertools.product(range(256), repeat=2), key=lambda pair: hashed(*pair))
    chosen = dict.fromkeys(map(bytes, pairs[:4096]), 1)
    others = dict.fromkeys(map(bytes, random.Random(1).sample(pairs, 4096)), 1)
    assert least_seconds(lambda: learn(table(chosen), 4096)) < 4 * least_seconds(lambda: learn(table(others), 4096))


@pytest.mark.parametrize("letters, n, top", [(b"ab", 6000, 1), (range(0, 256, 9), 9000, 5), (b"\0\1\2\xfd\xff", 8000, 2**40)])
def test_merges_of_many_words_are_those_of_python(letters, n, top):
    """Enough words for counts to fall far, and for the lists of places to be compacted many times."""
    rng = random.Random(n)
    words = {random_bytes(rng, letters, 30): rng.randint(1, top) for _ in range(n)}
    rows = [word.decode("latin-1") for word in words]
    expected = list(itertools.islice(bpe.learn_merges(rows, list(words.values()), BYTES), 3000))
    assert learn(table(words), 3000) == expected
    for wanted in (1, 10, 300):
        assert learn(table(words), wanted) == expected[:wanted]


@pytest.mark.parametrize("wanted", [1, 2, 3, 10])
def test_words_of_a_single_byte_are_not_among_those_that_merges_come_from(wanted):
    """Words that are too rare for the last merge that is wanted stay out; each merge completes a word here."""
    expected = [(b"a", b"b", 5, 5), (b"c", b"d", 3, 3), (b"e", b"f", 2, 2)]
    assert learn(table({b"ab": 5, b"cd": 3, b"ef": 2, b"x": 9, b"y": 9, b"z": 9}), wanted) == expected[:wanted]


def test_a_learner_returns_often_enough_to_be_interrupted():
    ffi, lib, rng, times = ENGINE.ffi, ENGINE.lib, random.Random(5), []
    words = table({b"%x" % rng.getrandbits(150): 1 for _ in range(200_000)})
    arrays = words.get(words.handle())
    new, made, batch = ffi.new("bpe_learner **"), ffi.new("size_t *"), ffi.new("bpe_merge[]", 10_000)
    status = lib.bpe_learner_new(*arrays, len(arrays[1]), 10_000, 1, build_ffi.new_seed(), new)
    learner = ffi.gc(new[0], lib.bpe_learner_free)
    while status == lib.BPE_OK:
        start = time.process_time()
        status = lib.bpe_learner_run(learner, batch, 10_000, made)
        times.append(time.process_time() - start)
    assert len(times) > 5 and max(times) < 0.4 * sum(times) + 0.05, times
    assert lib.bpe_learner_run(learner, batch, 10_000, made) == lib.BPE_DONE and made[0] == 0  # again, after the end
