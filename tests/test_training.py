"""Training from files, texts and counts, in all cases that differ."""

import random
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

from bpe_more import choices, training
from bpe_more.tokenizer import Tokenizer
from shared import model_in, only_c, summary, trained
from test_bpe import END, FIXTURE, letters, naive_merge, naive_train, naive_words, number_counts, pairs


def test_min_frequency(train):
    """With the limit, in every round the oracle chooses the merge that was made; in the end it finds none."""
    text = FIXTURE[:6000]
    merges = train(text, 10_000, min_frequency=9)[1]
    assert len(merges) > 20
    words = naive_words(text)
    for merge in [*merges, None]:
        counts = {pair: n for pair, n in number_counts(words.items()).items() if n >= 9}
        assert merge == max(counts, key=lambda pair: (counts[pair], pair), default=None)
        if merge:
            words = {naive_merge(word, merge): count for word, count in words.items()}


@pytest.mark.filterwarnings("ignore:.* single token")
@pytest.mark.parametrize(("least", "merges"), [(4, [(b"a", b"a")]), (5, [])])
def test_min_frequency_is_compared_with_the_count_and_not_with_what_was_replaced(least, merges):
    """Two words aaa: the pair a a counts 4, at overlapping places, but two are replaced."""
    assert training.train_from_counts({b"aaa": 2}, 300, min_frequency=least)[1] == merges


def test_fewer_tokens_than_requested_are_a_warning(words_txt, recwarn):
    calls = [  # a line each, because Python shows a warning once for each line
        lambda size: training.train_bpe("words.txt", size),
        lambda size: Tokenizer.train("words.txt", size),
        lambda size: training.train_from_counts(training.count_words("words.txt"), size),
    ]
    for call in calls:
        call(272)  # 256 bytes and 16 merges, see test_the_summary_says_what_the_vocabulary_is_made_of
        assert not recwarn.list
        call(273)
        assert "272 tokens, not 273: no other pair has a count of 1 or more" in str(recwarn.pop(UserWarning).message)


def test_a_string_in_the_place_of_a_path_is_an_error_that_names_texts(words_txt):
    encode_files = Tokenizer.train("words.txt", 262).encode_files
    long = "a text, and more\n" * 1000
    for call in (lambda path: training.train_bpe(path, 300), lambda path: Tokenizer.train([path], 300), training.count_words,
                 lambda path: encode_files(["words.txt", path], "ids.npy")):  # fmt: skip
        with pytest.raises(FileNotFoundError, match=r"to pass strings instead of files: texts=\[\.\.\.\]\): 'a text'$"):
            call("a text")
        with pytest.raises(OSError, match="texts=") as caught:
            call(long)
        assert len(str(caught.value)) <= 300
        with pytest.raises(ValueError, match=r"^\. is a folder; name its files: glob\.glob\('\./\*\.txt'\)$"):
            call(".")


@pytest.mark.parametrize("least", [1, 2, 3, 100, 2**80])
def test_rare_words_are_left_out_of_learning(main, least):
    text, size = FIXTURE[:8000], 400
    Path("text.txt").write_bytes(text.encode())
    words = naive_words(text, [END])
    kept = {word: count for word, count in words.items() if count >= least}
    expected = naive_train(kept, size, [END])
    assert training.train_bpe("text.txt", size, [END], min_word_count=least) == expected
    counts = {b"".join(word): count for word, count in words.items()}
    assert training.train_from_counts(counts, size, [END], min_word_count=least) == expected
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
    assert training.train_from_counts(words, 300, [], min_frequency=number)[1] == both[: number <= 2**61]
    if choices.find_engine()[0]:
        assert training.train_from_counts(words, number)[1] == both
    else:  # at once, not after an hour
        with pytest.raises(ValueError, match="the Python engine has only 1,114,112 non-special ids"):
            training.train_from_counts(words, number)
    words = {b"ab": 2**59, b"cd": 2**59 + 1, b"ef": 2**59 - 1, b"xef": 2**59}
    assert training.train_from_counts(words, 300)[1] == pairs("e f, c d, x ef, a b")  # e f occurs 2**60 - 1 times


@pytest.mark.parametrize("words", [
    {b"ab": 2**61, b"xabc": 2**60}, {b"aaa": 2**62}, {b"a": 2**63}, {b"a": 2**63 - 1, b"b": 1}, {b"ab": 2**70},
])  # fmt: skip
def test_an_overflow_is_reported_in_both_engines_and_not_wrapped(words):
    least = min(words.values()) + 1  # words that are left out of learning count, too
    for options in ({}, {"min_word_count": least}):
        with pytest.raises(OverflowError, match=r"^2\*\*6[34] "):
            training.train_from_counts(words, 300, **options)
    with pytest.raises(OverflowError, match=r"^2\*\*6[34] "):
        Tokenizer.train(texts=["low lower"], vocab_size=260).extend(words=words, n_tokens=9)


def test_counts_just_below_an_overflow_are_exact_in_both_engines():
    words = {b"ab": 2**62 - 3, b"cde": 1, b"f": 2}  # 2**63 - 1 bytes
    assert training.train_from_counts(words, 300)[1] == pairs("a b, d e, c de")


def test_texts_are_separate_and_used_as_they_come(tmp_path, cut):
    expected = naive_train(naive_words("ab  ") + naive_words(" ab ab") + naive_words("ab"), 262)
    assert training.train_bpe(None, 262, texts=iter(["ab  ", " ab ab", "", "ab"])) == expected
    assert training.count_words(None, ["<x>"], texts=["a<x>b", "c"]) == {b"a": 1, b"b": 1, b"c": 1}
    assert training.count_words(None, [], texts=iter([])) == {}
    cut(10_000)
    tokenizer = Tokenizer(*trained(600))
    texts = lambda: ("low " * 1000 for _ in range(150))  # noqa: E731 (600 KB)
    tracemalloc.start()
    assert training.count_words(None, [], texts=texts(), workers=1)[b" low"] == 150 * 999
    n_ids = tokenizer.encode_files(None, tmp_path / "ids.npy", texts=texts(), workers=1)
    assert tracemalloc.get_traced_memory()[1] < 500_000 and n_ids > 150_000
    tracemalloc.stop()


# --- counts ----------------------------------------------------------------------------------------------------------


def test_counts_may_be_zero_or_of_other_types_but_not_negative_and_words_are_bytes():
    """Zeros come from Counters that were subtracted; empty words are ignored."""
    words = {b"abcd": 0, b"ab": 5, b"cd": True, b"": 3}
    assert training.train_from_counts(words, 300, [])[1] == [(b"a", b"b"), (b"c", b"d")]
    for wrong in ({"ab": 2}, {b"ab": 1, "cd": 1}, {"": 1}, {"é": 0}, {("a", "b"): 2}, {b"ab": -1}):
        with pytest.raises(ValueError, match="words must be bytes"):
            training.train_from_counts(wrong, 300, [])


@pytest.mark.parametrize("n_words", [5, 15_000])  # some, and several batches of the C engine
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
        assert training.train_from_counts(given, **options) == expected
    assert training.train_from_counts([(b"ab", 1), (b"cd", 2), (b"ab", 2)], 257)[1] == [(b"a", b"b")]


@pytest.mark.parametrize("bad, error, text", [
    (("ab", 2), ValueError, "words must be bytes and counts not negative, not 'ab': 2$"),
    ((b"ab", -1), ValueError, "words must be bytes and counts not negative, not b'ab': -1$"),
    ((b"ab", 1.5), TypeError, r"^\(b'ab', 1.5\) is not a pair \(word, count\): .* as an integer$"),
    ((b"ab", None), TypeError, r"^\(b'ab', None\) is not a pair"), ((b"ab",), TypeError, r"^\(b'ab',\) is not a pair"),
    ((b"ab", 1, 2), TypeError, r"^\(b'ab', 1, 2\) is not a pair"), (b"ab", TypeError, "^b'ab' is not a pair"),
    (b"abc", TypeError, "^b'abc' is not a pair"), (5, TypeError, "^5 is not a pair"), (None, TypeError, "^None is not a"),
])  # fmt: skip
def test_an_error_names_the_pair(bad, error, text):
    """The pair is the first bad one, wherever it is, and the pairs are read no further."""
    for before in (0, 1, 12_000):
        pairs = iter([*[(b"low", 1)] * before, bad, "not read"])
        with pytest.raises(error, match=text):
            training.train_from_counts(pairs, 300)
        assert list(pairs) == ["not read"]


def test_an_error_of_the_callers_generator_stays_as_it_is():
    def words():
        yield b"low", 1
        raise TypeError("the caller's")

    with pytest.raises(TypeError, match="^the caller's$"):
        training.train_from_counts(words(), 300)


def test_pairs_need_no_memory_of_python_in_c(engine):
    """60,000 pairs, each word twice: with their words, Python takes 8 MB."""
    tracemalloc.start()
    training.train_from_counts(((b"%d" % (n % 30_000), 1) for n in range(60_000)), 257)
    assert (tracemalloc.get_traced_memory()[1] < 4_000_000) == (engine == "c")
    tracemalloc.stop()


@only_c
def test_a_count_too_large_for_c_is_named():
    with pytest.raises(OverflowError, match=r"2\*\*64 occurrences of a word or more: \(b'cd', 18446744073709551616\)$"):
        training.train_from_counts([(b"ab", 1), (b"cd", 2**64)], 300)
