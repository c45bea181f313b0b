"""Random patterns, as many as TRIALS: C finds the words that `regex` finds, or parsing.py refuses the pattern and says why."""

import itertools
import os
import random
import time
from collections import Counter

import pytest
import random_patterns as patterns
import regex

import bpe
from bpe_more import choices, training
from bpe_more.patterns import steps
from bpe_more.patterns.automaton import automaton_of
from bpe_more.patterns.machine import pairs_to_cut
from bpe_more.patterns.steps import TIKTOKEN_CL100K
from test_bpe import need

ENGINE, _ = choices.find_engine()  # without it, all tests here are skipped
TRIALS = int(os.environ.get("TRIALS", 200))


def split(expression, text):
    """The matches and the text between them, or None if regex takes too long.

    Each match is looked for at its place alone: `finditer` of regex 2026.11.19 finds no match at the first "A" of "Ab" for
    \\P{L}|[^a]|(?i:z)? , and `match` does.
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


def supported_patterns(rng, n):
    """Random patterns that C supports, with their automata, of n in all."""
    for _ in range(n):
        pattern = patterns.random_pattern(rng)
        try:
            expression = regex.compile(pattern)
        except regex.error:
            continue
        tables, why = ENGINE.pattern(pattern)
        if not why:
            yield pattern, expression, automaton_of(pattern)
        assert bool(why) == (tables == ENGINE.ffi.NULL)


def test_random_patterns_find_the_words_that_regex_finds_and_cuts_change_none():
    rng, n_texts, n_cuts = random.Random(1), 0, 0
    for pattern, expression, automaton in supported_patterns(rng, TRIALS):
        classes, rows = automaton
        pairs = pairs_to_cut(rows)
        words_in_c, expected = ENGINE.words((), pattern), {}
        for _ in range(20):
            text = patterns.random_text(rng, rng.choice([8, 14, 40]))
            words = split(expression, text)
            if words is None:
                continue
            n_texts += 1
            words_in_c.scan_all([text.encode()])
            for word in words:
                expected[word.encode()] = expected.get(word.encode(), 0) + 1
            classes_of_pairs = itertools.pairwise(classes[ord(character)] for character in text)
            places = [place for place, pair in enumerate(classes_of_pairs, 1) if pair in pairs]
            for place in rng.sample(places, min(len(places), 5)):
                n_cuts += 1
                parts = split(expression, text[:place]), split(expression, text[place:])
                assert None in parts or parts[0] + parts[1] == words, (pattern, text, place)
            cuts = list(ENGINE.cuts(pattern, text.encode()))
            assert all((classes[ord(text[place - 1])], classes[ord(text[place])]) in pairs for place in cuts)
            assert cuts == sorted(cuts, reverse=True)
        assert words_in_c.copy() == expected, pattern
    assert n_texts > TRIALS and n_cuts > TRIALS


def test_random_patterns_with_sets_in_sets_have_the_words_of_regex_in_c_and_in_tokenizers(monkeypatch):
    """In C, if it supports them, and in tokenizers, if a tokenizer.json may have them."""
    tokenizers, rng = need("tokenizers"), random.Random(58)  # some others find faults of the package regex
    sets, characters = [patterns.random_set(rng) for _ in range(100)], patterns.CHARACTERS
    n_in_c = n_in_tokenizers = 0
    for _ in range(3 * TRIALS):
        monkeypatch.setattr(patterns, "CHARACTERS", [*rng.sample(characters, 8), *rng.sample(sets, 8)])
        pattern = patterns.random_pattern(rng)
        try:
            expression = steps.compile_pattern(pattern)
        except ValueError:
            continue
        texts = ["".join(rng.choices(rng.sample(patterns.IN_SETS, rng.randint(1, 8)), k=rng.randint(0, 12))) for _ in range(8)]
        if not ENGINE.pattern(pattern)[1]:
            n_in_c += 1
            for text in texts:
                words = split(expression, text)
                assert words is None or training.count_words(texts=[text], pattern=pattern) == Counter(word.encode() for word in words), (pattern, text)
        # regex 2026.11.19 finds "\n" for [^\\p{L}\\P{L}] and [^\\s\\S], which have no characters
        has_both = r"\P{L" in pattern or (r"\s" in pattern and r"\S" in pattern)
        if not steps.differs_in_oniguruma(pattern) and not has_both:
            try:
                step = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
            except Exception:  # it has no class of its own
                continue
            n_in_tokenizers += 1
            for text in texts:
                assert [text[a:b] for _, (a, b) in step.pre_tokenize_str(text)] == steps.find_words(text, pattern), (pattern, text)
    assert min(n_in_c, n_in_tokenizers) > TRIALS / 20


FIRST_STEPS = [r"\p{N}", r"\p{N}+", r"\d{1,3}", r"[A-Z]", r"[\r\n]+", r"(?i:s)+?", r"\s", "[^a-z]+", "a{2}", "[a-c]+(?!d)", "[一-龥]+", "ab|b"]


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


def test_several_steps_have_the_words_of_one_step_after_another():
    """As one automaton, or one for each step."""
    rng, n_together, n_in_turn, n_cuts = random.Random(2), 0, 0, 0
    for _ in range(TRIALS // 6):
        later = rng.choice([*bpe.PATTERNS, patterns.random_pattern(rng)])
        chosen = [*rng.choices(FIRST_STEPS, k=rng.choice([1, 1, 2])), later]
        try:
            pattern = steps.check_pattern(tuple(chosen))
        except ValueError:
            continue
        tables, lacks = ENGINE.pattern(pattern)
        if lacks:
            continue
        n_together += not tables.earlier
        n_in_turn += bool(tables.earlier)
        words_in_c, expected = ENGINE.words((), pattern), {}
        for _ in range(20):
            text = patterns.random_text(rng, rng.choice([8, 14, 40]))
            words = [text]
            for step in pattern:
                expression = regex.compile(bpe.PATTERNS.get(step, step))
                words = [word for piece in words for word in split(expression, piece)]
            words_in_c.scan_all([text.encode()])
            for word in words:
                expected[word.encode()] = expected.get(word.encode(), 0) + 1
            for place in ENGINE.cuts(pattern, text.encode()):
                n_cuts += 1
                assert place in {len("".join(words[:end])) for end in range(len(words))}, (pattern, text, place)
                assert steps.find_words(text[:place], pattern) + steps.find_words(text[place:], pattern) == words
        assert words_in_c.copy() == expected, pattern
    assert min(n_together, n_in_turn) > TRIALS / 40 and n_cuts > TRIALS


NAMED = {"gpt2": bpe.PATTERNS["gpt2"], "cl100k": TIKTOKEN_CL100K, **{n: bpe.PATTERNS[n] for n in ("o200k", "llama3", "qwen2")}}


@pytest.mark.parametrize("pattern", [*NAMED.values(), bpe.PATTERNS["cl100k"].replace("{1,3}", "{1,2}"), r"\w+", r"\S+|\s", "."])
@pytest.mark.parametrize("text", [" " * 2_000_000 + "x", "\n" + " " * 2_000_000, "a" * 2_000_000, "\n " * 10**6, "'" * 2_000_000, "a'" * 10**6])
def test_time_is_linear(pattern, text):
    words = ENGINE.words((), pattern)
    start = time.process_time()
    words.scan_all([text.encode()])
    assert time.process_time() - start < 0.3
