"""A pattern as an automaton, which reads each character once; machine.py turns it into tables for C.

Gives: automaton_of(), States; merge_states() for machine.py.
Uses: parsing.
"""

from __future__ import annotations

import collections
import functools
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import regex

from bpe_more.patterns import parsing
from bpe_more.patterns.parsing import Tree, UnsupportedError

# C scans text with an automaton that is made here, from the text of the pattern alone. An example: the
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
# not tell apart are one class: here whitespace, \w, and all others. So a state is a row of
# cells, one for each class, and one for the end: (the next state, whether a word may end before this).

States = list[list[tuple[int, int]]]


class Reader:
    """Reads a character of each class, or the end, which has the number after all classes.

    A place is what remains of a pattern, as a number: that of "b" is the same after "a" and after "c" in ab|cb. It has
    a kind, what that needs, and the place after it:

        done                          nothing remains
        character, classes as bits    it reads one of them
        look, classes as bits         one of them is next, but isn't read
        ways, places                  the first of them that leads to a match
        possessive, (item, place)     the place of the greedy item, if check_possessive() allows it
    """

    def __init__(self, tree: Tree) -> None:
        parsing.limit(parsing.n_characters(tree), parsing.MOST_PLACES, "characters")
        self.classes, self.end, self.sets = parsing.classes_of(parsing.characters_of(tree))
        self.everything = (2 << self.end) - 1  # all classes and the end, as bits
        self.places: list[list[Any]] = [["done", (), 0]]
        self.numbers: dict[Any, int] = {}  # of the places
        self.checked: set[int] = set()  # places of possessive items
        self.n_steps = 0
        self.start = self.place(tree, 0)

    def place(self, sequence: Tree, after: int) -> int:
        """Return the place at which a sequence remains, and then what remains at `after`."""
        for kind, *parts in reversed(sequence):
            if kind == "character":
                after = self.number(kind, self.sets[parts[0]], after)
            elif kind == "look":
                bits = self.sets[parts[0]]
                after = self.number(kind, bits if parts[1] else self.everything & ~bits, after)
            elif kind == "end":
                if after:
                    raise UnsupportedError("$ before something else")
                after = self.number("look", 1 << self.end, after)
            elif kind == "choice":
                after = self.number("ways", tuple(self.place(inner, after) for inner in parts[0]), 0)
            else:
                after = self.place_of_times(after, *parts)
        return after

    def place_of_times(self, after: int, item: Tree, least: int, most: int | None, ending: str) -> int:
        """Return the place of a repeated item: x{1,2} is x, and a choice of x and nothing."""
        order = -1 if ending == "?" else 1  # a lazy item is tried last
        place = after
        for _ in range(least, most or least):
            place = self.number("ways", (self.place((item,), place), after)[::order], 0)
        if most is None:  # x* is a choice of x, after which x* comes again, and nothing: so it has a number first
            is_new = ("loop", item, order, after) not in self.numbers
            place = self.number("loop", item, order, after)  # "loop" is only its key; its kind is "ways"
            if is_new:
                self.places[place] = ["ways", (self.place((item,), place), after)[::order], 0]
        for _ in range(least):
            place = self.place((item,), place)
        return self.number("possessive", (item, place), after) if ending == "+" else place

    def number(self, *key: Any) -> int:
        """Return the number of a place, which is new if there is none with the same key."""
        if key not in self.numbers:
            self.numbers[key] = len(self.places)
            self.places.append(list(key))
        return self.numbers[key]

    def read(self, state: tuple[int, ...]) -> list[tuple[tuple[int, ...], bool]]:
        """Return the next state, and whether a word may end before it, for each character.

        All characters are followed at the same time: those for which a place is reached are bits.
        """
        following: list[dict[int, None]] = [{} for _ in range(self.end + 1)]  # in order, each once
        going_on = self.everything  # the characters before which a word can't end in a better way
        seen: dict[int, int] = collections.defaultdict(int)  # a better way has led to a place before these characters
        stack = [(place, self.everything) for place in reversed(state)]
        while stack:
            place, bits = stack.pop()
            bits &= going_on & ~seen[place]
            if not bits:
                continue
            seen[place] |= bits
            kind, what, after = self.places[place]
            if kind == "done":
                going_on &= ~bits
            elif kind == "character":
                for number in numbers_of(bits & what):
                    following[number][after] = None
                self.n_steps += self.end
            elif kind == "look":
                stack.append((after, bits & what))
            elif kind == "ways":
                stack.extend((way, bits) for way in reversed(what))
            else:
                self.check_possessive(place, what[0], after)
                stack.append((what[1], bits))
            self.n_steps += 1
            parsing.limit(self.n_steps, parsing.MOST_STEPS, "steps to find its states")
        return [(tuple(places), not going_on >> number & 1) for number, places in enumerate(following)]

    def check_possessive(self, place: int, item: Tree, after: int) -> None:
        """Refuse a possessive item unless it matches what the greedy one does: giving back must never help.

        x++y is x+y, because no x is a y. But x++x matches nothing, and x+x does.
        """
        if place in self.checked:
            return
        self.checked.add(place)
        cells = self.read((after,))
        if all(ends for _, ends in cells):
            return  # nothing has to follow
        text = parsing.only_character((item,))
        given_back = numbers_of(self.sets[text] if text else 0)
        if not text or any(cells[number] != ((), False) for number in given_back):
            raise UnsupportedError("a possessive quantifier that can differ from the greedy one")


def numbers_of(bits: int) -> Iterator[int]:
    """Yield the numbers of bits: 0b101 -> 0, 2."""
    while bits:
        last = bits & -bits
        yield last.bit_length() - 1
        bits ^= last


@functools.lru_cache(maxsize=32)
def automaton_of(pattern: str | tuple[str, ...]) -> tuple[bytes, States]:
    """Return the class of each code point, and a row for each state; raises UnsupportedError.

    State 0 can't match any more, and state 1 begins a word. A pattern may have several steps, as in steps.py.
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


def automaton_of_step(pattern: str) -> tuple[bytes, States]:
    """Return the automaton of an expression, without a state for text that nothing matches."""
    try:
        parsing.compile_class(pattern)
    except regex.error:
        raise UnsupportedError("[ in a set, which only version 0 of regex reads") from None
    tree = parsing.parse(pattern)
    if parsing.can_be_empty(tree):
        raise UnsupportedError("a way to match nothing")
    reader = Reader(tree)
    states: list[tuple[int, ...]] = [(), (reader.start,)]
    # Not in numbers: a match that can continue as from its beginning, as with (?:xz)*x after "xz", is in another
    # state, because it has a beginning already, and perhaps an end.
    numbers: dict[Any, int] = {(): 0}
    rows: States = []
    for state in states:  # which grows
        row: list[tuple[int, int]] = []
        for following, ends in reader.read(state):
            if following not in numbers:
                numbers[following] = len(states)
                states.append(following)
            row.append((numbers[following], ends))
        rows.append(row)
        parsing.limit(len(states), parsing.MOST_STATES, "states")
    rows = merge_states(rows)
    if not any(state for state, _ in rows[1]):
        raise UnsupportedError("no way to match anything")
    return reader.classes, rows


def after_step(earlier: tuple[bytes, States], later: tuple[bytes, States]) -> tuple[bytes, States]:
    r"""Return one automaton for a step whose matches are runs of certain characters, and a later step.

    With (r"\d{1,3}", r"\s+(?!\S)|\s|\S+"), the words of "a  1234" are "a", "  ", "123", "4". For the later step, a
    digit is like the end of the text, so both spaces are one word.
    """
    (classes, runs), (later_classes, rows) = earlier, later
    pairs = dict.fromkeys(zip(classes, later_classes))  # the classes of characters now
    numbers = {pair: number for number, pair in enumerate(pairs)}
    parsing.limit(len(pairs), parsing.MOST_CLASSES, "classes of characters")
    taken = {number for number, (state, _) in enumerate(runs[1][:-1]) if state}  # the classes with which a run begins
    # follow both steps through each run, which has to be one word of the later step, wherever it ends
    both = [(1, 1)]
    seen = set(both)
    for run, state in both:  # which grows
        for number, following in pairs:
            if number in taken and (new_run := runs[run][number][0]):
                new = (new_run, rows[state][following][0])
                # a run continues with its own characters only, and may end before any other
                is_run = all(other in taken if then else ends for other, (then, ends) in enumerate(runs[new_run]))
                if not is_run or not rows[new[1]][-1][1]:
                    raise UnsupportedError("several steps of this kind")
                if new not in seen:
                    seen.add(new)
                    both.append(new)
                    parsing.limit(len(both), parsing.MOST_STEPS // 100, "states of several steps")

    # state 0 can't match any more, state 1 begins a word, then come all states of the later step, and of runs
    in_word = [0, *range(2, len(rows) + 1)]
    in_run = [0, *range(len(rows) + 1, len(rows) + len(runs))]
    start = [(in_run[runs[1][a][0]] if a in taken else in_word[rows[1][b][0]], False) for a, b in pairs]
    together: States = [[(0, False)] * (len(pairs) + 1), [*start, (0, False)]]
    for row in rows[1:]:
        cells = [(0, row[-1][1]) if a in taken else (in_word[row[b][0]], row[b][1]) for a, b in pairs]
        together.append([*cells, row[-1]])
    for row in runs[1:]:
        together.append([*((in_run[row[a][0]], row[a][1]) for a, _ in pairs), row[-1]])
    parsing.limit(len(together), parsing.MOST_STATES, "states")
    combined = bytes(map(numbers.__getitem__, zip(classes, later_classes)))
    return combined, merge_states(together)


def merge_states(rows: States, apart: int | None = 1) -> States:
    """Merge equal states, but keep one apart, mostly state 1, which begins a word.

    States with equal marks are a group. It is divided if its states lead to different groups, until none is.
    """
    groups = numbers_in_order((state == apart, *(mark for _, mark in row)) for state, row in enumerate(rows))
    following = [operator.itemgetter(*(state for state, _ in row)) for row in rows]
    n_groups = 0
    while n_groups < max(groups) + 1:
        n_groups = max(groups) + 1
        groups = numbers_in_order((group, read(groups)) for group, read in zip(groups, following))
    first = dict(zip(reversed(groups), reversed(rows)))  # {group: the row of its first state}
    return [[(groups[state], mark) for state, mark in first[group]] for group in range(n_groups)]


def numbers_in_order(keys: Iterable[Any]) -> list[int]:
    """Number keys in the order in which they first occur: "xyx" -> [0, 1, 0]."""
    numbers: dict[Any, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def with_gaps(rows: States) -> States:
    r"""Add a state for text that nothing matches, which is a word, too.

    Only if the first character tells whether a match begins there, because each match may end after it. With \w+, such
    a word is a run of characters that are no \w. But with \w\d, "a" may belong to it or not: then C looks for the next
    match at each character in turn.
    """
    gap, end = len(rows), len(rows[0]) - 1
    first = [rows[1][number][0] for number in range(end)]
    if all(first) or not all(ends for state in first if state for _, ends in rows[state]):
        return rows
    start = [(state or gap, 0) for state in first]
    return [rows[0], [*start, rows[1][end]], *rows[2:], [*((0, 1) if state else (gap, 0) for state in first), (0, 1)]]


def is_quadratic(rows: States) -> bool:
    """Return whether some text is read again for each of its words: a*b|a reads all of "aaa...", and takes one "a".

    Then matches that began at different places get into the same state, from which they don't end:

        the first    a  ... s ... s      its word was the first "a"
        the second          a ... s      begins when the first one is in s, and gets there, too

    So pairs of an earlier and a later match are followed, from (s, the start) to (s, s). Once `over`, the word of the
    later match has ended, so that match may not end again. Both values are tried from the start, since the word may be
    text that nothing matches. Here, with t for the state after the first "a", and s for all later ones, the pairs are
    (s, the start, False), (s, t, False), (s, s, True).
    """
    moves = [[(number, state) for number, (state, ends) in enumerate(row[:-1]) if state and not ends] for row in rows]
    reached = reached_from([[state for _, state in move] for move in moves])
    n_steps = 0
    for state in range(1, len(rows)):
        pairs = [(state, 1, False), (state, 1, True)] if reached[state] >> state & 1 else []
        seen = set(pairs)
        for earlier, later, over in pairs:
            for number, first in moves[earlier]:
                second, ends = rows[later][number]
                n_steps += 1
                if not second or (over and ends) or not reached[first] >> state & 1:
                    continue
                for now_over in {over, over or ends}:
                    pair = (first, second, bool(now_over))
                    if pair == (state, state, True):
                        return True
                    if pair not in seen:
                        seen.add(pair)
                        pairs.append(pair)
            parsing.limit(n_steps, 4 * parsing.MOST_STEPS, "steps to find out whether it reads text again")
    return False


def reached_from(following: Sequence[Sequence[int]]) -> list[int]:
    """Return the states that can be reached from each one, as bits."""
    reached = [sum(1 << state for state in set(states)) for states in following]
    for middle in range(len(following)):
        for state, states in enumerate(reached):
            if states >> middle & 1:
                reached[state] |= reached[middle]
    return reached
