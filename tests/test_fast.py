"""Part II: learners and lists of merges of all kinds, long words."""

import itertools
import random
import time
from collections import Counter

import pytest

import bpe
from bpe_more import training
from bpe_more.tokenizer import Tokenizer
from fuzz_changes import encode_by_rank
from shared import only_python, trained
from test_bpe import END, lesson, letters, naive_train, pairs, with_merges


@pytest.mark.parametrize("piece, times", [("a", 50_000), ("ab", 25_000), ("x", 50_000), (" ", 50_000)])
def test_long_words_do_not_take_quadratic_time(piece, times):
    text = "the quick " * 2_000 + piece * times
    tokenizer = Tokenizer(*trained(2000), [END])
    start = time.process_time()
    ids = tokenizer.encode(text)
    assert list(tokenizer.encode_iterable(text)) == ids
    assert time.process_time() - start < 2 and tokenizer.decode(ids) == text


def test_one_long_word(train, engine):
    """A merge costs as much as it changes, however long a word is (2 MB in C, 100 KB in Python)."""
    rng = random.Random(8)
    text = "".join(rng.choices("abcdefghijkl", k=2_000_000 if engine == "c" else 100_000))
    start = time.process_time()
    merges = train(text, 1000)[1]
    assert len(merges) == 744 and time.process_time() - start < 5


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
        tokenizer = Tokenizer(vocab, merges)
        for word in rng.sample(words, 20):
            tokens = tuple(map(vocab.get, tokenizer.encode(b"".join(word).decode())))
            assert tokens == tuple(encode_by_rank(b"".join(word), merges)), (word, merges)
            assert not possible or tokens == lesson().encode_by_definition(word, merges), (word, merges)
    assert min(seen.values()) > 30


@only_python
@pytest.mark.parametrize("merges", ["ab c, a b", "c ab, a b"])
def test_merges_that_cannot_be_replayed_are_named(merges):
    """Replaying gives ab c for "abc", and merging by rank gives abc."""
    with pytest.raises(ValueError, match=r"merge 1 \(from 0\).*b'a', b'b'.* an earlier one"):
        bpe.check_merges((left, right, left + right) for left, right in pairs(merges))
    with pytest.raises(ValueError, match=r"merge 1 \(from 0\).*'a', 'b'.* an earlier one"):
        bpe.segment("abc", [tuple(pair.split()) for pair in merges.split(", ")])


@pytest.mark.parametrize("seed", range(24))
def test_learners_agree_with_the_oracle_on_words_of_all_kinds(seed):
    rng, words = random.Random(seed), {}
    alphabet = rng.choices(range(256), k=rng.randint(1, 5))
    for _ in range(rng.randint(1, 60)):
        word = bytes(rng.choices(alphabet, k=rng.randint(1, rng.choice([3, 12, 60]))))
        words[word] = rng.randint(1, rng.choice([2, 5, 5000]))
    expected = naive_train({letters(word): count for word, count in words.items()}, 400)
    assert training.train_from_counts(words, 400) == expected
