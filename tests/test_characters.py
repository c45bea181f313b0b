"""Part III: words between spaces, and merges of characters, against the oracle and subword-nmt."""

import io
import random
from collections import Counter

import pytest

import bpe
from shared import only_python
from test_bpe import END, FIXTURE, WIDE, naive_merge, naive_train, need, random_text

pytestmark = only_python


def naive_characters(words, merges_wanted):
    """The merges of {word: count}, by the oracle."""
    spelled = {(*(c.encode() for c in word[:-1]), word[-1].encode() + b"</w>"): n for word, n in words.items() if n}
    return [(left.decode(), right.decode()) for left, right in naive_train(spelled, 256 + merges_wanted)[1]]


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


def test_words_on_characters_are_between_spaces_and_line_endings():
    words = ["low", "lower", "new\ttoken", "a\rb", "x\u00a0y\v"]
    assert bpe.split_at_spaces("  low  lower\r\n\n \r new\ttoken a\rb\r \nx\u00a0y\v ") == words
    rng = random.Random(3)
    for _ in range(300):
        text = random_text(rng, [*"ab   \n\r\t\v\u00a0\u2028", "\r\n"], rng.randint(0, 40))
        expected = [word for line in text.split("\n") for word in line.strip("\r\n ").split(" ") if word]
        assert bpe.split_at_spaces(text) == expected, text


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


def test_bad_words_counts_and_merges_of_characters_are_errors():
    with pytest.raises(ValueError, match=r"'a</w>b'"):
        bpe.learn_characters({"ab": 1, "a</w>b": 2}, 5)
    with pytest.raises(ValueError, match=r"'a</w>b'"):
        bpe.segment("x a</w>b", [("a", "b")])
    with pytest.raises(ValueError, match=r"'l', 'o'"):
        bpe.segment("low", [("l", "o"), ("lo", "w</w>"), ("l", "o")])
    with pytest.raises(ValueError, match="counts must not be negative: 'low' has -2"):
        bpe.learn_characters({"low": -2}, 3)
    with pytest.raises(TypeError):
        bpe.learn_characters({"low": 1.5}, 3)
