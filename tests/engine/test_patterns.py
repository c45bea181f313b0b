"""Random patterns, as many as TRIALS: C finds the words that `regex` finds, or parsing.py refuses the pattern and says why."""

import contextlib
import itertools
import os
import random
import time
from collections import Counter

import pytest
import random_patterns as patterns

import bpe
from bpe_more import choices, training
from bpe_more.patterns import expressions, steps
from bpe_more.patterns.steps import TIKTOKEN_CL100K
from test_bpe import need

ENGINE, _ = choices.find_engine()  # without it, all tests here are skipped
TRIALS = int(os.environ.get("TRIALS", 200))


def split(expression, text):
    """The matches and the text between them, or None if regex takes too long.

    Each match is looked for at its place alone, in the plainest way.
    """
    words, at, left = [], 0, 0
    while at < len(text):
        try:
            match = expression.match(text, at, timeout=1)
        except TimeoutError:
            return None
        if match:
            words += filter(None, [text[left:at], match[0]])
            at = left = match.end()
        else:
            at += 1
    return words + list(filter(None, [text[left:]]))


def words_of(pattern, text):
    """The words of all steps of a pattern, one after another, or None if regex takes too long."""
    words = [text]
    for step in [pattern] if isinstance(pattern, str) else pattern:
        expression = steps.compile_pattern(bpe.PATTERNS.get(step, step))
        parts = [split(expression, word) for word in words]
        if None in parts:
            return None
        words = list(itertools.chain(*parts))
    return words


FIRST_STEPS = [r"\p{N}", r"\p{N}+", r"\d{1,3}", r"[A-Z]", r"[\r\n]+", r"(?i:s)+?", r"\s", "[^a-z]+", "a{2}", "[a-c]+(?!d)", "[一-龥]+", "ab|b"]


def random_patterns(kind, rng, n):
    """Valid patterns: an expression with or without sets in sets, or several steps."""
    sets = [patterns.random_set(rng) for _ in range(100)]
    characters = patterns.CHARACTERS
    for _ in range(n):
        if kind == "sets":
            patterns.CHARACTERS = [*rng.sample(characters, 8), *rng.sample(sets, 8)]
        pattern = patterns.random_pattern(rng)
        patterns.CHARACTERS = characters
        if kind == "steps":
            pattern = (*rng.choices(FIRST_STEPS, k=rng.choice([1, 1, 2])), rng.choice([*bpe.PATTERNS, pattern]))
        with contextlib.suppress(ValueError):
            yield steps.check_pattern(pattern)


@pytest.mark.parametrize("kind, n, seed", [("expressions", TRIALS, 1), ("steps", TRIALS // 6, 2), ("sets", TRIALS, 58)])
def test_random_patterns_have_the_words_of_regex_and_cuts_change_none(kind, n, seed):
    """Some other seeds find faults of the package regex. Steps are one automaton, or one for each."""
    n_texts = n_cuts = n_in_turn = n_together = 0
    rng = random.Random(seed)
    for pattern in random_patterns(kind, rng, n):
        tables, lacks = ENGINE.pattern(pattern)
        assert bool(lacks) == (tables == ENGINE.ffi.NULL)
        if lacks:
            continue
        n_in_turn += bool(tables.earlier)
        n_together += not tables.earlier
        words_in_c, expected = ENGINE.words((), pattern), Counter()
        for _ in range(20):
            text = patterns.random_text(rng, rng.choice([8, 14, 40]))
            words = words_of(pattern, text)
            if words is None:
                continue
            n_texts += 1
            words_in_c.scan_all([text.encode()])
            expected.update(word.encode() for word in words)
            ends = set(itertools.accumulate(map(len, words)))
            cuts = list(ENGINE.cuts(pattern, text.encode()))
            assert cuts == sorted(cuts, reverse=True) and ends.issuperset(cuts), (pattern, text)
            for place in rng.sample(cuts, min(len(cuts), 1)):
                n_cuts += 1
                parts = words_of(pattern, text[:place]), words_of(pattern, text[place:])
                assert None in parts or parts[0] + parts[1] == words, (pattern, text, place)
        assert words_in_c.copy() == expected, pattern
    assert min(n_texts, n_cuts) > n
    assert min(n_in_turn, n_together) > n / 10 or kind != "steps"


def test_random_sets_have_the_words_of_tokenizers_if_a_file_may_have_them():
    tokenizers, rng, n = need("tokenizers"), random.Random(58), 0
    for pattern in random_patterns("sets", rng, 3 * TRIALS):
        # regex 2026.11.19 finds "\n" for [^\\p{L}\\P{L}] and [^\\s\\S], which have no characters
        has_both = r"\P{L" in pattern or (r"\s" in pattern and r"\S" in pattern)
        if has_both or expressions.differs_in_oniguruma(pattern):
            continue
        try:
            step = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
        except Exception:  # it has no class of its own
            continue
        n += 1
        for _ in range(8):
            text = "".join(rng.choices(rng.sample(patterns.IN_SETS, rng.randint(1, 8)), k=rng.randint(0, 12)))
            assert [text[a:b] for _, (a, b) in step.pre_tokenize_str(text)] == steps.find_words(text, pattern), (pattern, text)
    assert n > TRIALS / 20


@pytest.mark.parametrize("pattern", ["(?:xz)*(?:y|x)", r"(?:\d{3},)*\d{1,3}", r"(?:\p{L}\p{N})*\p{L}", "(?:ab)*a|."])
def test_a_match_that_can_continue_as_from_its_beginning_ends_where_python_ends_it(pattern):
    rng = random.Random(3)
    for _ in range(500):
        text = "".join(rng.choices(rng.choice(["xyz a", "12,3 ", "ab1"]), k=rng.randint(0, 14)))
        assert training.count_words(texts=[text], pattern=pattern, engine="c") == training.count_words(texts=[text], pattern=pattern, engine="python")


def test_a_set_that_regex_ends_elsewhere_is_not_scanned_in_c():
    """The error of the package came out of every call."""
    pattern = r"(?:[\d-]\W)*[^]:-~~]?[\d-]"
    assert ENGINE.declines(pattern) == "[^]"
    assert training.count_words(texts=["a]1-"], pattern=pattern) == training.count_words(texts=["a]1-"], pattern=pattern, engine="python")


NAMED = {**bpe.PATTERNS, "cl100k": TIKTOKEN_CL100K}


@pytest.mark.parametrize("pattern", [*NAMED.values(), bpe.PATTERNS["cl100k"].replace("{1,3}", "{1,2}"), r"\w+", r"\S+|\s", "."])
@pytest.mark.parametrize("text", [" " * 2_000_000 + "x", "\n" + " " * 2_000_000, "a" * 2_000_000, "\n " * 10**6, "'" * 2_000_000, "a'" * 10**6])
def test_time_is_linear(pattern, text):
    words = ENGINE.words((), pattern)
    start = time.process_time()
    words.scan_all([text.encode()])
    assert time.process_time() - start < 0.3
