"""Patterns of several steps, with a normal form (NFC, NFKC); and special tokens.

This file is below the engine and the files of models, which both need it.

Gives: check_pattern(), check_special_tokens(); find_words(), which splits text in Python; normalize_text(), Normalizer;
places_to_cut().
Uses: errors, expressions.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unicodedata import combining, normalize

import regex

import bpe
from bpe_more.errors import require
from bpe_more.patterns.expressions import compile_pattern

# Models of other programs may split text in several steps, and normalize it first: such a pattern is a
# tuple. Each step splits the words of the one before: in (r"\p{N}{1,3}", "gpt2"), the first
# step splits off numbers, and "gpt2" splits the rest. ("NFC", "qwen2") is Qwen's.
Pattern = Any  # a str, or a tuple of str
NORMAL_FORMS = ("NFC", "NFKC")
# what \s matches in Oniguruma and in Rust, as in regex; str.strip() removes four characters more
WHITESPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
ONLY_MATCHES = "(?#only matches)"  # begins a step that drops the text between its matches

# tiktoken's cl100k has possessive quantifiers (?+, ++, *+), which other programs read differently, and $;
# its matches are the same. Before version 0.5.0, our files had it with {1,3} instead of {1,3}+.
TIKTOKEN_CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
TIKTOKEN_CL100K += r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
SPELLINGS = {**bpe.PATTERN_NAMES, TIKTOKEN_CL100K: "cl100k", TIKTOKEN_CL100K.replace("{1,3}+", "{1,3}"): "cl100k"}


def steps_of(pattern: Pattern) -> tuple[Any, tuple[str, ...]]:
    """Return the normal form and the steps of a pattern: ("NFC", "qwen2") -> ("NFC", ("qwen2",))."""
    steps = (pattern,) if isinstance(pattern, str) else tuple(pattern)
    has_form = steps and steps[0] in NORMAL_FORMS
    return (steps[0], steps[1:]) if has_form else ("", steps)


def after_form(pattern: Pattern) -> tuple[Any, Pattern]:
    """Return the normal form of a pattern, and the pattern that splits normalized text: ("NFC", "qwen2")."""
    form, steps = steps_of(pattern)
    return form, steps[0] if len(steps) == 1 else steps


def check_pattern(pattern: Pattern) -> Pattern:
    """Check a pattern: a name, an expression, or steps. Spellings of a named pattern become its name."""
    if isinstance(pattern, tuple) and all(isinstance(step, str) for step in pattern):
        form, steps = steps_of(pattern)
        checked = tuple(map(check_pattern, steps))
        if form:
            return (form, *checked)
        return checked[0] if len(checked) == 1 else checked
    require(isinstance(pattern, str), "pattern must be a str, or a tuple of str, not {!r:.200}", pattern)
    if pattern.startswith(ONLY_MATCHES):
        name = check_pattern(pattern.removeprefix(ONLY_MATCHES))
        return name if name in bpe.PATTERNS else pattern  # a named pattern's matches are all of the text
    pattern = SPELLINGS.get(pattern, pattern)
    if pattern not in bpe.PATTERNS:
        compile_pattern(pattern)  # may raise an error
    return pattern


class SpecialTokens(tuple[str, ...]):
    """Checked special tokens of a model, with those that other programs search for in another way."""

    normalized: tuple[str, ...] = ()  # found after the others, in normalized text
    lstrip: tuple[str, ...] = ()  # which remove the whitespace before them
    rstrip: tuple[str, ...] = ()  # and after them
    are_text = False  # with end=: plain text in documents, but still not cut, so that they can be counted


def check_special_tokens(special_tokens: bpe.Strings) -> SpecialTokens:
    """Check special tokens, of which a model may have 100,000, once: SpecialTokens are checked.

    "a" can't be one, since all single bytes have ids already; nor can text with U+FFFD, which is what
    errors="replace" makes of invalid bytes.
    """
    if isinstance(special_tokens, SpecialTokens):
        return special_tokens
    if isinstance(special_tokens, (str, bytes, set, frozenset, Mapping)):
        raise TypeError(f"special_tokens must be a list of strings, not {special_tokens!r:.60}")
    tokens = () if special_tokens is None else tuple(special_tokens)
    for number, token in enumerate(tokens, 1):
        try:
            good = isinstance(token, str) and len(token.encode("utf-8")) > 1 and "\ufffd" not in token
        except UnicodeEncodeError:  # a lone surrogate
            good = False
        if not good:  # faster than a call of require() for each token
            rule = "text of at least two bytes (U+FFFD and lone surrogates not allowed)"
            raise ValueError(f"special token {number} ({token!r}) must be {rule}")
    require(len(set(tokens)) == len(tokens), "duplicate special token among {!s:.200}", tokens)
    return SpecialTokens(map(str.__str__, tokens))  # of an array of numpy, plain strings


# How much time an expression has to split a text. Most take 1 us per character or less; (a|a)*b takes twice as long
# for each "a" more.
SECONDS, SECONDS_PER_CHARACTER = 3.0, 20e-6


def find_words(text: str, pattern: Pattern) -> list[str]:
    r"""Split text into words: find_words("in 2024", (r"\d\d", "gpt2")) -> ["in", " ", "20", "24"].

    Raises ValueError if an expression takes too long.
    """
    if isinstance(pattern, str) and pattern in bpe.PATTERNS:
        return bpe.find_words(text, pattern)
    form, steps = steps_of(check_pattern(pattern))
    words = [normalize_text(form, text)]
    end = time.thread_time() + SECONDS + SECONDS_PER_CHARACTER * len(text)
    for step in steps:
        words = [word for piece in words for word in words_of_step(piece, step, end)]
    return list(filter(None, words))


def words_of_step(text: str, step: str, end: float) -> list[str]:
    """Split text by one step. Raises ValueError when this thread has used time up to `end`."""
    if step in bpe.PATTERNS:  # whose time is in proportion to the text
        return bpe.find_words(text, step)
    compiled = compile_pattern(step.removeprefix(ONLY_MATCHES))
    seconds = max(end - time.thread_time(), 1e-3)
    while True:
        try:
            if step.startswith(ONLY_MATCHES):
                return [match[0] for match in compiled.finditer(text, timeout=seconds)]
            spans = (match.span() for match in compiled.finditer(text, timeout=seconds))
            places = [0, *itertools.chain.from_iterable(spans), len(text)]
            return [text[start:stop] for start, stop in itertools.pairwise(places) if start < stop]
        except TimeoutError:
            seconds *= 2  # regex has counted the time of all threads
            if time.thread_time() > end:
                way = "rewrite repetitions such as (a|a)* or (a+)*, which match the same text in many ways"
                raise ValueError(f"pattern {step!r:.99} takes too long to split {text[:40]!r}; {way}") from None


class Normalizer:
    """Prepares text for an encoder, or a table of words, that knows only special tokens and the steps of a pattern.

    The text between special tokens gets a normal form. The docstring of Tokenizer explains normalized, lstrip, rstrip.

    overlap    whether special tokens found in normalized text overlap others: then one search for all of them could
               find others than two searches
    """

    def __init__(self, form: Any, special_tokens: Sequence[str], normalized: Sequence[str] = (),
                 lstrip: Sequence[str] = (), rstrip: Sequence[str] = (), overlap: bool = False) -> None:
        self.form, self.overlap = form, overlap
        found_later = set(normalized)
        first = tuple(token for token in special_tokens if token not in found_later)
        later = tuple(token for token in special_tokens if token in found_later)
        self.find_first, self.find_later = bpe.special_token_finder(first), bpe.special_token_finder(later)
        self.find_all = bpe.special_token_finder(tuple(special_tokens))
        self.lstrip, self.rstrip = set(lstrip), set(rstrip)
        stripping = [re.escape(token.encode("utf-8")) for token in self.lstrip | self.rstrip]
        # one expression, since there may be 100 tokens; None without any, so that no text is searched
        self.stripping = re.compile(b"|".join(stripping)) if stripping else None

    def normalized(self, utf8: bytes) -> bytes | None:
        """Prepare text in UTF-8; return None if other special tokens would be found in the result.

        Most text is in the normal form already. Then each part of it is, too, and it is returned as it is.
        """
        needs_pieces = self.overlap or bool(self.stripping and self.stripping.search(utf8))
        if not needs_pieces and utf8.isascii():
            return utf8
        text = utf8.decode("utf-8")
        normal = None if needs_pieces else normalize_text(self.form, text)
        if normal == text:
            return utf8
        pieces = self.pieces_of(text, normal)
        result = "".join(pieces)
        # NFKC makes the token <end> of "＜end＞", and of "<end>™" a token <end>TM, if there is one
        return result.encode("utf-8") if self.find_all.split(result) == pieces else None

    def pieces_of(self, text: str, normal: str | None = None) -> list[str]:
        """Return prepared text, a special token, prepared text, and so on.

        `normal`, the whole text in the normal form, is used if there is no special token in `text`.
        """
        pieces = self.split(text, self.find_first)
        if normal is not None and len(pieces) == 1:
            return self.split(normal, self.find_later)
        parts = [self.split(normalize_text(self.form, piece), self.find_later) for piece in pieces[::2]]
        for number, token in enumerate(pieces[1::2]):
            parts[number].append(token)
        return list(itertools.chain.from_iterable(parts))

    def split(self, text: str, finder: re.Pattern[str]) -> list[str]:
        """Split text at special tokens, and remove the whitespace that they remove."""
        pieces = finder.split(text)
        for number in range(1, len(pieces), 2):
            if pieces[number] in self.lstrip:
                pieces[number - 1] = pieces[number - 1].rstrip(WHITESPACE)
            if pieces[number] in self.rstrip:
                pieces[number + 1] = pieces[number + 1].lstrip(WHITESPACE)
        return pieces


# Characters that are marks in a normal form, or become only marks, and long runs of them. Of the 256 characters of
# such a run, text[::64] has four.
MARKS = r"[\p{M}\uff9e\uff9f]"
LONG_RUN = 256


def normalize_text(form: Any, text: str) -> str:
    """Normalize text, a long one by lines: 10 times as fast where they are normalized, and nothing joins a newline."""
    if not form:
        return text
    if len(text) >= LONG_RUN and regex.search(MARKS + "{4}", text[:: LONG_RUN // 4]):
        text = regex.sub(f"{MARKS}{{{LONG_RUN},}}", lambda run: sorted_marks(form, run[0]), text)
    lines = text.split("\n") if len(text) > 10_000 else [text]
    return "\n".join([normalize(form, line) for line in lines])


def sorted_marks(form: Any, run: str) -> str:
    """Sort marks by their class, as normalize() does, which takes quadratic time for those in another order."""
    marks = "".join([normalize(form.replace("C", "D"), mark) for mark in run])
    groups = itertools.groupby(marks, lambda mark: combining(mark) > 0)  # what has no class stays where it is
    return "".join([mark for _, group in groups for mark in sorted(group, key=combining)])


def places_to_cut(text: str, pattern: Pattern, special_tokens: tuple[str, ...]) -> Iterator[int]:
    """Yield the indexes of text at which a cut changes no word: C's, then others, each in descending order."""
    given = special_tokens if isinstance(special_tokens, SpecialTokens) else SpecialTokens(special_tokens)
    if given.are_text:
        given = SpecialTokens()
    places = places_between_words(text, pattern, given)
    if not given.lstrip + given.rstrip:
        yield from places
        return
    for place in places:  # not inside whitespace, nor between it and a special token that removes it
        before, after = text[place - 1 : place].isspace(), text[place : place + 1].isspace()
        before_token = before and text.startswith(given.lstrip, place)
        after_token = after and text.endswith(given.rstrip, 0, place)
        if not (before and after) and not before_token and not after_token:
            yield place


def places_between_words(text: str, pattern: Pattern, special_tokens: SpecialTokens) -> Iterator[int]:
    """Do the same as places_to_cut(), without regard to whitespace that special tokens remove.

    For a custom pattern, the C engine finds more than bpe.py does. If there is a normal form, some special
    tokens may be searched for last, in normalized text, and normalizing may even create one.
    """
    form, own = after_form(pattern)
    named = isinstance(own, str) and own in bpe.PATTERNS
    normalized = set(special_tokens.normalized if form or special_tokens.lstrip + special_tokens.rstrip else ())
    margin = 3 + max(map(len, special_tokens), default=1)

    def could_make_special(place: int) -> bool:  # normalizing what isn't ASCII could make one that crosses the place
        return bool(form and normalized) and not text[max(place - margin, 0) : place + margin].isascii()

    engine, lacks = bpe.find_engine()
    if engine and not lacks and not named and not engine.declines(own):
        for place in engine.cuts(own, text.encode("utf-8", "surrogateescape")):
            around = text[place - 1 : place + 2]
            settled = regex.fullmatch(NEVER_JOINED, around) and normalize(form, around) == around if form else True
            if settled and not could_make_special(place):
                yield place
    found_first = tuple(token for token in special_tokens if token not in normalized)
    # an expression that matches nothing if there are no special tokens
    finder = bpe.WORD_END if named else "(?r)" + bpe.special_token_finder(found_first).pattern
    for match in regex.finditer(finder, text, regex.V0):
        place = match.start()
        # Without a named pattern, nothing is joined: each side of a special token is normalized alone.
        # Else, NFKC turns the sign ™ into the letters TM, which join the word before it.
        if form and named:
            both = text[place - 1 : place + 1]
            if could_make_special(place) or normalize(form, both) != both:
                continue
        yield place


# Three characters like these are next to each other in normalized text, too, if each is its own normal form.
NEVER_JOINED = r"[\0-\u02ff\u3001-\u3029\u4e00-\u9fff]{3}"
