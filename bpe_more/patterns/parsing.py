"""A pattern as a tree of its parts, and the classes of characters that it tells apart.

Gives: parse() and classes_of() for automaton.py; UnsupportedError, whose message is what C can't scan; limits.
Uses: nothing of bpe_more.
"""

from __future__ import annotations

import collections
import functools
import itertools
import re
from array import array
from collections.abc import Iterable, Iterator
from typing import Any

import regex

Tree = tuple[Any, ...]
MOST_CHARACTERS = 500  # of a repetition, such as \w{1,1000}
MOST_CLASSES, MOST_STATES = 36, 500  # of a pattern
MOST_PLACES, MOST_SETS, MOST_STEPS = 5_000, 40, 400_000  # each takes up to half a second


def limit(number: int, most: int, what: str) -> None:
    """Refuse a pattern that has too many of something. What takes long is counted before it is done."""
    if number > most:
        raise UnsupportedError(f"more than {most:,} {what}")


class UnsupportedError(ValueError):
    """A pattern has something that C can't scan: the message is its text, or says what it is."""


def parse(pattern: str) -> Tree:
    r"""Return a valid pattern as a sequence: a tuple of items, which are tuples.

    ("character", text)             a, \n, \p{L}, [^\s\d]; where case is ignored, the text is (?i:a)
    ("look", text, wanted)          (?=text), or (?!text) if not wanted: the next character, or the end
    ("end", "$")                    $ after a loop that takes all newlines, such as \s+: only the end of the text
    ("choice", sequences)           the first one that leads to a match
    ("times", item, 2, 3, ending)   x{2,3}; x* is ("times", x, 0, None, ""). The ending is "?" if it is lazy, as in x*?,
                                    and "+" if it is possessive, as in x*+, which never gives back an x
    """
    # In a set, any character begins an operand, even "]": after [, after [^, and after an operation, as in [a-z&&[^x]].
    define = r"(?P<operand>(?&set)|\\.|[^\[\\])"
    define += r"(?P<set>\[\^?(?&operand)(?:(?:&&|--|~~|\|\|)(?&operand)|(?&set)|\\.|[^\[\]\\])*+\])"
    kinds = {
        "group": r"\(\?i?:|\(\?[=!]",
        "close": r"\)",
        "or": r"\|",
        "end": r"\$",
        "times": r"(?:[*+?]|\{(?:[0-9]+|[0-9]+,[0-9]*|,[0-9]+)\})[?+]?",
        "character": r"(?&set)|\\[pP](?:\{[^{}]*\}|[A-Za-z])|\\(?:x|u..|U.{6})[0-9A-Fa-f]{2}"
        r"|\\[dDsSwWafnrtv]|\\[^\w\s]|[^\\()[{|$^*+?]",
        "other": r"\(\?<?[^\w\s]?|\\.|.",
    }
    expression = f"(?(DEFINE){define})" + "|".join(f"(?P<{kind}>{text})" for kind, text in kinds.items())
    tokens = regex.compile(expression, regex.DOTALL | regex.V0)
    rest = ((match.lastgroup, match[0]) for match in tokens.finditer(pattern))
    return (parse_choice(rest, "{}"),)


def parse_choice(tokens: Iterator[Any], form: str) -> Tree:
    """Parse alternatives up to the end of their group; form is "(?i:{})" if case is ignored."""
    sequences: list[Tree] = [()]
    for kind, text in tokens:
        sequence = sequences[-1]
        if kind == "close":
            break
        if kind == "or":
            sequences.append(())
            continue
        # In [!-&&x], "&" ends a range. Where case is ignored, regex may find other characters for a set with sets in it
        # than for the same set next to others: (?i:[a-z--[b]]|x).
        odd = r"\|\||-(?:&&|--|~~)" if form == "{}" else r"\|\||&&|--|~~|.\["
        if kind == "other" or (text[0] == "[" and re.search(odd, text, re.DOTALL)):
            raise UnsupportedError("".join(c if c.isprintable() else repr(c)[1:-1] for c in text[:60]))
        if kind == "times":
            if not sequence:
                raise UnsupportedError(f"{text} after nothing")
            sequences[-1] = sequence[:-1] + parse_times(sequence[-1], text)
            continue
        item: Tree = ("character", form.format(text))
        if kind == "end":
            item = parse_end(sequence)
        elif kind == "group":
            item = parse_choice(tokens, "(?i:{})" if "i" in text else form)
            if text[-1] != ":":
                item = ("look", only_character((item,)), text == "(?=")
                if not item[1]:
                    raise UnsupportedError(f"{text}...) with more than one character")
        sequences[-1] = (*sequence, item)
    return ("choice", tuple(sequences))


def parse_times(item: Tree, times: str) -> Tree:
    """Return the items that a repeated item is: one, or none for x{0}."""
    if can_be_empty((item,)):
        raise UnsupportedError(f"{times} after something that can match nothing")
    number, ending = re.fullmatch(r"(.+?)([?+]?)", times).groups()  # type: ignore[union-attr]
    least, comma, most = {"*": "0,", "+": "1,", "?": "0,1"}.get(number, number.strip("{}")).partition(",")
    endless = bool(comma and not most)
    limits = int(least or 0), None if endless else int(most or least)
    limit((limits[1] or limits[0]) * n_characters((item,)), MOST_CHARACTERS, "characters")
    return () if limits[1] == 0 else (("times", item, *limits, ending),)


def parse_end(before: Tree) -> Tree:
    r"""Parse $. It also matches before a last newline, but after \s+ no newline is left."""
    kind, *parts = before[-1] if before else ("",)
    is_loop = kind == "times" and parts[2] is None and parts[3] != "?"
    text = only_character((parts[0],)) if is_loop else None
    if not text or not compile_class(text).match("\n"):
        raise UnsupportedError("$")
    return ("end", "$")


def only_character(sequence: Tree) -> str | None:
    """Return the text of a sequence that is one character, or None."""
    while len(sequence) == 1 and sequence[0][0] == "choice" and len(sequence[0][1]) == 1:
        sequence = sequence[0][1][0]
    return sequence[0][1] if len(sequence) == 1 and sequence[0][0] == "character" else None


def can_be_empty(sequence: Tree) -> bool:
    """Return whether a sequence can match without reading a character."""
    for kind, *parts in sequence:
        if kind == "character" or (kind == "choice" and not any(map(can_be_empty, parts[0]))):
            return False
        if kind == "times" and parts[1]:  # what is repeated is never empty
            return False
    return True


def n_characters(sequence: Tree) -> int:
    """Count the characters of a sequence, each as often as it is repeated."""
    n = 0
    for kind, *parts in sequence:
        if kind == "choice":
            n += sum(map(n_characters, parts[0]))
        elif kind == "times":
            n += n_characters(parts[:1]) * (parts[2] or parts[1] + 1)
        else:
            n += kind == "character"
    return n


def characters_of(sequence: Tree) -> Iterator[str]:
    """Yield the text of each character in a sequence."""
    for kind, *parts in sequence:
        if kind in ("character", "look"):
            yield parts[0]
        elif kind == "choice":
            yield from itertools.chain.from_iterable(map(characters_of, parts[0]))
        elif kind == "times":
            yield from characters_of(parts[:1])


def compile_class(text: str) -> Any:
    """Compile an expression, such as the text of a character, as bpe.compile_pattern does."""
    return regex.compile(f"(?-f){text}", regex.V1)


@functools.lru_cache(maxsize=1)
def all_characters() -> str:
    """Return all code points in order."""
    # join() would need a million strings at once, 100 MB
    return array("I", range(0x110000)).tobytes().decode("utf-32", "surrogatepass")


@functools.lru_cache(maxsize=256)
def borders_of(text: str) -> list[int]:
    """Return where runs of code points that match an expression begin and end, in order."""
    if len(text) == 1 and text != ".":
        return [ord(text), ord(text) + 1]
    try:
        runs = compile_class(f"(?:{text})+").finditer(all_characters())
    except regex.error:  # of [^]:-~~]?[x], which regex reads as one set, parse() takes [^]
        raise UnsupportedError(text) from None
    return [place for run in runs for place in run.span()]


def classes_of(texts: Iterable[str]) -> tuple[bytes, int, dict[str, int]]:
    """Return the class of each code point, the number of classes, and which of them each text matches, as bits.

    The package regex says what each text matches; code points with equal answers are one class.
    """
    texts = list(dict.fromkeys(texts))
    limit(sum(len(text) > 1 for text in texts), MOST_SETS, "sets of characters")
    limit(sum(len(text) == 1 for text in texts), MOST_CLASSES, "classes of characters")
    # {code point: for which texts the answer changes there, as bits}
    changes: dict[int, int] = collections.defaultdict(int, {0: 0, 0x110000: 0})
    for number, text in enumerate(texts):
        for place in borders_of(text):
            changes[place] ^= 1 << number
    answers = 0  # those of all texts, as bits
    numbers: dict[int, int] = {}  # of the classes, by the answers
    classes = bytearray()
    for start, end in itertools.pairwise(sorted(changes)):
        answers ^= changes[start]
        number = numbers.setdefault(answers, len(numbers))
        classes += bytes([number % 256]) * (end - start)  # % 256: too many classes are refused below
    limit(len(numbers), MOST_CLASSES, "classes of characters")
    sets = {text: sum(1 << k for answers, k in numbers.items() if answers >> n & 1) for n, text in enumerate(texts)}
    return bytes(classes), len(numbers), sets
