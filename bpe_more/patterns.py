"""A pattern as an automaton: the tables with which C scans text."""

from __future__ import annotations

import collections
import functools
import itertools
from array import array
from collections.abc import Iterable, Iterator
from typing import Any

import regex

# C scans text with tables that are made here, from the text of the pattern alone. An example: the
# words of "  hi" with \s+(?!\S)|\s?\w+|\s are " " and " hi". The first alternative takes both spaces,
# and gives one back, because "h" must not follow (?!\S). The automaton reads each character once. Its
# state is a list of what may still follow, best first:
#
#     what may follow            next       may a word end before it?    what may follow then
#     \s+(?!\S)  \s?\w+  \s      " "        no                           \s*(?!\S)  \w+  nothing
#     \s*(?!\S)  \w+  nothing    " "        yes: (?!\S) holds, and       \s*(?!\S), and nothing that
#                                           then nothing has to follow   is worse than this match
#     \s*(?!\S)                  "h"        no: (?!\S) does not hold     (an empty list)
#
# No match can continue, so the word ends at the last place at which it might. The next one begins there:
#
#     \s+(?!\S)  \s?\w+  \s      " "        no                           \s*(?!\S)  \w+  nothing
#     \s*(?!\S)  \w+  nothing    "h"        yes                          \w*, better than this match
#     \w*                        "i"        yes                          \w*
#     \w*                        the end    yes                          (an empty list)
#
# A lookahead at one character is decided when that character is read. Characters that the pattern does
# not tell apart are one class: here whitespace, the rest of \w, and all others. So a state is a row of
# cells, one for each class, and one for the end: (the next state, whether a word may end before this).

Tree = tuple[Any, ...]
Rows = list[list[tuple[int, int]]]
MOST_CHARACTERS, MOST_CLASSES, MOST_STATES = 500, 36, 500  # of a pattern; \w{1,1000} has 1,000 characters


class UnsupportedError(ValueError):
    """A pattern has something that C can't scan: the message is its text, or says what it is."""


def parse(pattern: str) -> Tree:
    r"""Return a valid pattern as a sequence: a tuple of items, which are tuples.

    ("character", text)             a, \n, \p{L}, [^\s\d]; where case is ignored, the text is (?i:a)
    ("look", text, wanted)          (?=text), or (?!text) if not wanted: the next character, or the end
    ("end", "$")                    $ after a loop that takes all newlines, such as \s+: only the end of the text
    ("choice", sequences)           the first one that leads to a match; x? is a choice of x and nothing
    ("loop", sequence, lazy)        x*, or x*? if lazy; x+ is x and then x*
    ("possessive", item, sequence)  x++, which never gives back an x, and the items of x+
    """
    kinds = {
        "group": r"\(\?i?:|\(\?[=!]",
        "close": r"\)",
        "or": r"\|",
        "end": r"\$",
        "times": r"(?:[*+?]|\{(?:\d+|\d+,\d*|,\d+)\})[?+]?",
        "character": r"\[\^?(?:[^]\\[]|\\.)+\]|\\[pP](?:\{[^{}]*\}|[A-Za-z])|\\(?:x|u..|U.{6})[0-9A-Fa-f]{2}"
        r"|\\[dDsSwWafnrtv]|\\[^\w\s]|[^\\()[{|$^*+?]",
        "other": r"\(\?<?[^\w\s]?|\\.|.",
    }
    tokens = regex.compile("|".join(f"(?P<{kind}>{text})" for kind, text in kinds.items()), regex.DOTALL)
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
        if kind == "other" or (kind == "character" and regex.search(r"^\[.*(--|&&|\|\||~~)", text)):
            raise UnsupportedError(text)  # the latter are operations on sets
        if kind == "times":
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
    """Return the items of a repeated item: those of x{1,2} are x, and a choice of x and nothing."""
    if can_be_empty((item,)):
        raise UnsupportedError(f"{times} after something that can match nothing")
    number, lazy, possessive = regex.fullmatch(r"(.+?)(\?)?(\+)?", times).groups()  # type: ignore[union-attr]
    least, comma, most = {"*": "0,", "+": "1,", "?": "0,1"}.get(number, number.strip("{}")).partition(",")
    rest: Tree = ()
    if comma and not most:
        rest = (("loop", (item,), bool(lazy)),)
    else:
        for _ in range(int(most or least) - int(least or 0)):
            rest = (("choice", ((), (item, *rest)) if lazy else ((item, *rest), ())),)
    repeated = (item,) * int(least or 0) + rest
    if sum(1 for _ in characters_of(repeated)) > MOST_CHARACTERS:
        raise UnsupportedError(f"more than {MOST_CHARACTERS} characters")
    return (("possessive", item, repeated),) if possessive else repeated


def parse_end(before: Tree) -> Tree:
    r"""Parse $. It also matches before a last newline, but after \s+ no newline is left."""
    kind, *parts = before[-1] if before else ("",)
    if kind == "possessive":
        kind, *parts = parts[1][-1]
    text = only_character(parts[0]) if kind == "loop" and not parts[1] else None
    if not text or not regex.match(text, "\n"):
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
        choices = {"character": [], "choice": parts[0], "possessive": parts[1:]}.get(kind, [()])
        if not any(map(can_be_empty, choices)):
            return False
    return True


def characters_of(sequence: Tree) -> Iterator[str]:
    """Yield the text of each character in a sequence."""
    for kind, *parts in sequence:
        if kind in ("character", "look"):
            yield parts[0]
        inner = {"choice": parts[:1], "loop": [parts[:1]], "possessive": [parts[1:]]}.get(kind, [[]])
        for part in inner[0]:
            yield from characters_of(part)


@functools.lru_cache(maxsize=1)
def all_characters() -> str:
    """Return all code points in order."""
    # join() would need a million strings at once, 100 MB
    return array("I", range(0x110000)).tobytes().decode("utf-32", "surrogatepass")


@functools.lru_cache(maxsize=256)
def borders_of(text: str) -> list[int]:
    """Return where runs of code points that match an expression begin and end, in order."""
    return [place for match in regex.finditer(f"(?:{text})+", all_characters()) for place in match.span()]


def classes_of(texts: Iterable[str]) -> tuple[bytes, int, dict[str, int]]:
    """Return the class of each code point, the number of classes, and which of them each text matches, as bits.

    The package regex says what each text matches; code points with equal answers are one class.
    """
    texts = list(dict.fromkeys(texts))
    changes: dict[int, int] = collections.defaultdict(int, {0: 0, 0x110000: 0})
    for number, text in enumerate(texts):
        for place in borders_of(text):
            changes[place] ^= 1 << number
    answers = 0  # those of all texts, as bits
    numbers: dict[int, int] = {}  # of the classes, by the answers
    classes = bytearray()
    for start, end in itertools.pairwise(sorted(changes)):
        answers ^= changes[start]
        classes += bytes([numbers.setdefault(answers, len(numbers)) % 256]) * (end - start)
    if len(numbers) > MOST_CLASSES:
        raise UnsupportedError(f"more than {MOST_CLASSES} classes of characters")
    sets = {text: sum(1 << k for answers, k in numbers.items() if answers >> n & 1) for n, text in enumerate(texts)}
    return bytes(classes), len(numbers), sets


class Reader:
    """Reads a character of some class, or the end, which has the number after all classes."""

    def __init__(self, tree: Tree) -> None:
        self.classes, self.end, self.sets = classes_of(characters_of(tree))
        self.checked: set[Any] = set()  # possessive items, and what follows them

    def read(self, state: Tree, character: int) -> tuple[Tree, bool]:
        """Return the next state, and whether a word may end before this character."""
        following: dict[Any, None] = {}  # in order, each once
        seen: set[Tree] = set()
        for sequence in state:
            for rest in self.steps(sequence, character, seen):
                if rest is None:
                    return tuple(following), True  # the others are worse
                following[rest] = None
        return tuple(following), False

    def steps(self, sequence: Tree, character: int, seen: set[Tree]) -> Iterator[Tree | None]:
        """Yield what may follow this character, best first, and None if the sequence can end before it."""
        if sequence in seen:
            return  # a better way has led here
        seen.add(sequence)
        if not sequence:
            yield None
            return
        (kind, *parts), after = sequence[0], sequence[1:]
        ways: list[Tree] = []
        if kind == "character":
            if self.sets[parts[0]] >> character & 1:
                yield after
        elif kind == "look":
            ways = [after] * ((self.sets[parts[0]] >> character & 1) == parts[1])
        elif kind == "end":
            if after:
                raise UnsupportedError("$ before something else")
            ways = [after] * (character == self.end)
        elif kind == "choice":
            ways = [(*inner, *after) for inner in parts[0]]
        elif kind == "loop":
            ways = [after, (*parts[0], *sequence)] if parts[1] else [(*parts[0], *sequence), after]
        else:
            self.check_possessive(parts[0], after)
            ways = [(*parts[1], *after)]
        for way in ways:
            yield from self.steps(way, character, seen)

    def check_possessive(self, item: Tree, after: Tree) -> None:
        """Refuse a possessive item unless it matches what the greedy one does: giving back must never help.

        x++y is x+y, because no x is a y. But x++x matches nothing, and x+x does.
        """
        if (item, after) in self.checked:
            return
        self.checked.add((item, after))
        everything = range(self.end + 1)
        if all(None in self.steps(after, character, set()) for character in everything):
            return  # nothing has to follow
        text = only_character((item,))
        given_back = [character for character in everything if text and self.sets[text] >> character & 1]
        if not text or any(list(self.steps(after, character, set())) for character in given_back):
            raise UnsupportedError("a possessive quantifier that can differ from the greedy one")


@functools.lru_cache(maxsize=32)
def automaton_of(pattern: str | tuple[str, ...]) -> tuple[bytes, Rows]:
    """Return the class of each code point, and a row for each state; raises UnsupportedError.

    State 0 can't match any more, and state 1 begins a word. A pattern may have several steps, as in bpe.py.
    """
    steps = (pattern,) if isinstance(pattern, str) else pattern
    if not steps or steps[0] in ("NFC", "NFKC"):
        raise UnsupportedError("a normal form" if steps else "no expression")
    classes, rows = automaton_of_step(steps[-1])
    for step in reversed(steps[:-1]):
        classes, rows = after_step(automaton_of_step(step), (classes, rows))
    if is_quadratic(rows):
        raise UnsupportedError("a way to read the same text again for each of its words")
    return classes, with_gaps(rows)


def automaton_of_step(pattern: str) -> tuple[bytes, Rows]:
    """Return the automaton of an expression, without a state for text that nothing matches."""
    tree = parse(pattern)
    if can_be_empty(tree):
        raise UnsupportedError("a way to match nothing")
    reader = Reader(tree)
    numbers: dict[Tree, int] = {(): 0, (tree,): 1}
    rows: Rows = []
    while len(rows) < len(numbers) <= MOST_STATES:
        state = list(numbers)[len(rows)]
        cells = [reader.read(state, character) for character in range(reader.end + 1)]
        rows.append([(numbers.setdefault(following, len(numbers)), ends) for following, ends in cells])
    if len(numbers) > MOST_STATES:
        raise UnsupportedError(f"more than {MOST_STATES} states")
    rows = merge_states(rows)
    if len(rows) == 1:
        raise UnsupportedError("no way to match anything")
    return reader.classes, rows


def after_step(earlier: tuple[bytes, Rows], later: tuple[bytes, Rows]) -> tuple[bytes, Rows]:
    r"""Return one automaton for a step whose matches are runs of certain characters, and a later step.

    With (r"\d{1,3}", r"\s+(?!\S)|\s|\S+"), the words of "a  1234" are "a", "  ", "123", "4". For the later step, a
    digit is like the end of the text, so both spaces are one word.
    """
    (classes, runs), (later_classes, rows) = earlier, later
    pairs = dict.fromkeys(zip(classes, later_classes))  # the classes of characters now
    numbers = {pair: number for number, pair in enumerate(pairs)}
    if len(pairs) > MOST_CLASSES:
        raise UnsupportedError(f"more than {MOST_CLASSES} classes of characters")
    taken = {number for number, (state, _) in enumerate(runs[1][:-1]) if state}
    # follow both steps through each run, which has to be one word of the later step, wherever it ends
    both = [(1, 1)]
    for run, state in both:
        for number, following in pairs:
            if number in taken and (new_run := runs[run][number][0]):
                new = (new_run, rows[state][following][0])
                # a run continues with its own characters only, and may end before any other
                is_run = all(other in taken if then else ends for other, (then, ends) in enumerate(runs[new_run]))
                if not is_run or not rows[new[1]][-1][1]:
                    raise UnsupportedError("several steps of this kind")
                if new not in both:
                    both.append(new)

    # state 0 can't match any more, state 1 begins a word, then come all states of the later step, and of runs
    in_word = [0, *range(2, len(rows) + 1)]
    in_run = [0, *range(len(rows) + 1, len(rows) + len(runs))]
    start = [(in_run[runs[1][a][0]] if a in taken else in_word[rows[1][b][0]], False) for a, b in pairs]
    together: Rows = [[(0, False)] * (len(pairs) + 1), [*start, (0, False)]]
    for row in rows[1:]:
        cells = [(0, row[-1][1]) if a in taken else (in_word[row[b][0]], row[b][1]) for a, b in pairs]
        together.append([*cells, row[-1]])
    for row in runs[1:]:
        together.append([*((in_run[row[a][0]], row[a][1]) for a, _ in pairs), row[-1]])
    combined = bytes(map(numbers.__getitem__, zip(classes, later_classes)))
    return combined, merge_states(together)


def merge_states(rows: Rows) -> Rows:
    """Merge equal states: all are one group at first, then those with different rows get different groups."""
    groups = [0] * len(rows)
    n_groups = 0
    while n_groups < len(set(groups)):
        n_groups = len(set(groups))
        keys = [(group, *((groups[state], mark) for state, mark in row)) for group, row in zip(groups, rows)]
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        groups = [numbers[key] for key in keys]
    merged = dict(zip(reversed(groups), reversed(rows)))
    return [[(groups[state], mark) for state, mark in merged[group]] for group in range(n_groups)]


def with_gaps(rows: Rows) -> Rows:
    r"""Add a state for text that nothing matches, which is a word, too, if one character says where a match begins.

    With \w+, a word is a run of characters that are no \w. But with \w\d, "a" may belong to it or not: then C looks for
    the next match at each character in turn.
    """
    gap, end = len(rows), len(rows[0]) - 1
    first = [rows[1][number][0] for number in range(end)]
    if all(first) or not all(ends for state in first if state for _, ends in rows[state]):
        return rows
    start = [(state or gap, 0) for state in first]
    return [rows[0], [*start, rows[1][end]], *rows[2:], [*((0, 1) if state else (gap, 0) for state in first), (0, 1)]]


def is_quadratic(rows: Rows) -> bool:
    """Return whether some text is read again for each of its words: a*b|a reads all of "aaa...", and takes one "a".

    Then matches that began at different places get into the same state, from which they don't end:

        the first    a  ... s ... s      its word was the first "a"
        the second          a ... s      begins when the first one is in s, and gets there, too

    So pairs of an earlier and a later match are followed, from (s, the start) to (s, s). The later one may end until it
    is over: until a word that begins after it, of which nothing else is known.
    """
    for state in range(1, len(rows)):
        pairs = [(state, 1, False), (state, 1, True)]
        seen = set(pairs)
        for earlier, later, over in pairs:
            for (first, first_ends), (second, ends) in zip(rows[earlier][:-1], rows[later]):
                if not first or not second or first_ends or (over and ends):
                    continue
                for now_over in {over, over or ends}:
                    pair = (first, second, bool(now_over))
                    if pair == (state, state, True):
                        return True
                    if pair not in seen:
                        seen.add(pair)
                        pairs.append(pair)
    return False


def places_to_cut(rows: Rows) -> set[tuple[int, int]]:
    """Return the pairs of classes (a, b) between which any text can be cut without changing its words.

    In each state that has read a, no match goes on with b, and a word may end before b if and only if it may
    at the end of the text: a match that begins before the place is the same with and without the cut. And text
    that nothing matches does not reach across the place: a match begins with a if b follows, or with b anyway.
    """
    end = len(rows[0]) - 1
    pairs = set()
    for a, b in itertools.product(range(end), range(end)):
        states = {row[a][0] for row in rows} - {0}
        begins = rows[rows[1][a][0]][b][1] or all(ends for _, ends in rows[rows[1][b][0]])
        if begins and all(rows[state][b] == (0, rows[state][end][1]) for state in states):
            pairs.add((a, b))
    return pairs


# To find a word's end, the automaton may have to read on, and then go back. C also has a machine that never goes
# back: it marks the places at which words begin. Its state is a pair: the states of a match and of the next
# match, in case the first one ends before the last character (0: it can't).
BACK, BEGINS = 16, 32  # marks: a word begins one character before this one; it begins here
MARKS = BACK + BEGINS

# A register has room for 16 states: the most frequent ones in this text, and STOPPED, which is never left.
STOPPED = 15  # instead of any other state, and if the automaton must find the place
SAMPLE = """It's the "best" of 1984, isn't it?

    for i in range(10):
		print(f'{i:>3}', CamelCase_name[0])  # ok!!!
Déjà vu: 3,141.59 € «ёлка». 我们去年夏天在北京，  天气很好。カタカナ 한국어 e\u0301\n \n
 THE END\u3000x\r\n  * item (a/b)
"""


def machine_of(rows: Rows) -> Rows:
    """Return the machine of an automaton: for each state and class, the next state and its marks, or (0, STOPPED)."""
    numbers = {(1, 0): 0}
    cells: Rows = []
    while len(cells) < len(numbers):
        state, other = list(numbers)[len(cells)]
        row = []
        for (first, _), (following, ends), second in zip(rows[1][:-1], rows[state], rows[other]):
            marks = BEGINS if state == 1 else 0
            if other and not following and not ends:
                marks = BACK
                following, ends = second
            if following:
                new = (following, first if ends else 0)
            elif ends and first:
                marks, new = marks | BEGINS, (first, 0)
            else:
                marks, new = STOPPED, (1, 0)
            row.append((numbers.setdefault(new, len(numbers)), marks))
        cells.append(row)
    return merge_states(cells)


def machine_tables(classes: bytes, rows: Rows) -> dict[str, Any]:
    """Return the machine's rows for two bytes, and the place of each row.

    For each state, a row has the next one and the marks: the first character's, and twice the second one's.
    """
    machine = machine_of(rows)
    visits = collections.Counter({0: len(SAMPLE)})  # the beginning of the text stays state 0
    state = 0
    for character in SAMPLE:
        state, _ = machine[state][classes[ord(character)]]
        visits[state] += 1
    kept = sorted(range(len(machine)), key=lambda state: -visits[state])[:STOPPED]
    n = len(machine[0])
    steps = []
    for number in range(n):
        cells = [machine[state][number] for state in kept]
        step = [kept.index(state) | marks if state in kept else STOPPED for state, marks in cells]
        steps.append(step + [STOPPED] * (16 - len(step)))
    steps.append(list(range(16)))  # of a byte that changes nothing
    pairs = bytearray()
    for first_step, second_step in itertools.product(steps, steps):
        for cell in first_step:
            after = second_step[cell & 15]
            pairs.append(after if after == STOPPED else (after & 15) + (cell & MARKS) + 2 * (after & MARKS))
    # By byte: ASCII; 80 to BF, the later bytes of a character; C0 on, the class of its first byte instead of the byte;
    # E4 to E9, the first bytes of ideographs, if all are of one class.
    keys = [*classes[:128], *[n] * 64, *range(n), *[n] * (MOST_CLASSES - n), *[classes[0x4E00]] * 28]
    first = array("H", [16 * (n + 1) * key for key in keys])
    return {"pairs": array("B", pairs), "first": first, "second": array("H", [16 * key for key in keys])}


def fields_of(automaton: tuple[bytes, Rows]) -> dict[str, Any]:
    """Return the fields of a bpe_pattern in C, in order."""
    classes, rows = automaton
    n = len(rows[0]) - 1
    cells = []
    for row in rows:
        for (state, ends), (first, _) in zip(row, rows[1]):
            new_word = ends and not state  # the next word begins with this character
            cells.append(4 * (first if new_word else state) + ends + 2 * new_word)
    blocks = [classes[start : start + 256] for start in range(0, 0x110000, 256)]
    distinct = {block: number for number, block in enumerate(dict.fromkeys(blocks))}
    cuts = places_to_cut(rows)
    return {
        "blocks": array("H", [distinct[block] for block in blocks]),
        "classes": array("B", b"".join(distinct)),
        "cells": array("H", cells),
        "ascii": array("H", [cells[row + k] for row in range(0, len(cells), n + 1) for k in classes[:128]]),
        **machine_tables(classes, rows),
        "cuts": array("B", [pair in cuts for pair in itertools.product(range(n), range(n))]),
        "n_classes": n,
        "ideographs_are_one_class": int(len(set(classes[0x4E00:0xA000])) == 1),
    }
