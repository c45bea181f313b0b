"""Random patterns, as many as TRIALS: C finds the words that `regex` finds, or parsing.py refuses the pattern and says why."""

import itertools
import os
import random
import time

import pytest
import random_patterns as patterns
import regex

import bpe
from bpe_more import choices, training
from bpe_more.patterns import steps
from bpe_more.patterns.automaton import automaton_of
from bpe_more.patterns.machine import pairs_to_cut
from bpe_more.patterns.steps import TIKTOKEN_CL100K

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


def by_automaton(automaton, text):
    """The same by the automaton, in Python."""
    classes, rows = automaton
    numbers = [*(classes[ord(character)] for character in text), len(rows[0]) - 1]
    words, at, left = [], 0, 0
    while at < len(text):
        state, last = 1, at
        for place, number in enumerate(numbers[at:], at):
            state, ends = rows[state][number]
            if ends:
                last = place
            if not state:
                break
        if last > at:
            words += filter(None, [text[left:at], text[at:last]])
            at = left = last
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
            assert by_automaton(automaton, text) == words, (pattern, text)
            words_in_c.scan_all([text.encode()])
            for word in words:
                expected[word.encode()] = expected.get(word.encode(), 0) + 1
            classes_of_pairs = itertools.pairwise(classes[ord(character)] for character in text)
            places = [place for place, pair in enumerate(classes_of_pairs, 1) if pair in pairs]
            for place in rng.sample(places, min(len(places), 5)):
                n_cuts += 1
                parts = by_automaton(automaton, text[:place]) + by_automaton(automaton, text[place:])
                assert parts == words, (pattern, text, place)
            cuts = list(ENGINE.cuts(pattern, text.encode()))
            assert all((classes[ord(text[place - 1])], classes[ord(text[place])]) in pairs for place in cuts)
            assert cuts == sorted(cuts, reverse=True)
        assert words_in_c.copy() == expected, pattern
    assert n_texts > TRIALS and n_cuts > TRIALS


FIRST_STEPS = [r"\p{N}", r"\p{N}+", r"\d{1,3}", r"[A-Z]", r"[\r\n]+", r"(?i:s)+?", r"\s", "[^a-z]+", "a{2}", "[a-c]+(?!d)", "[一-龥]+", "ab|b"]


@pytest.mark.parametrize("pattern", ["(?:xz)*(?:y|x)", r"(?:\d{3},)*\d{1,3}", r"(?:\p{L}\p{N})*\p{L}", "(?:ab)*a|."])
def test_a_match_that_can_continue_as_from_its_beginning_ends_where_python_ends_it(pattern):
    rng = random.Random(3)
    for _ in range(500):
        text = "".join(rng.choices(rng.choice(["xyz a", "12,3 ", "ab1"]), k=rng.randint(0, 14)))
        assert training.count_words(texts=[text], pattern=pattern, engine="c") == training.count_words(texts=[text], pattern=pattern, engine="python")


def test_a_set_that_regex_ends_elsewhere_is_not_scanned_in_c():
    """random_sets.py found it: the error of the package came out of every call."""
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


@pytest.mark.parametrize("pattern", ["a*b|a", r"\w|\s+$|\s", "!+ 1", r"(?:a+b)?a", r"\s*\n\n|\s"])
def test_patterns_that_are_quadratic_are_left_to_python_which_can_be_interrupted(pattern):
    assert "again" in ENGINE.pattern(pattern)[1]
