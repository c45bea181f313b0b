"""The automaton as tables for C, and a machine of 16 states, which C follows with vectors.

Gives: fields_of(), the fields of the struct bpe_pattern; pairs_to_cut() for the tests.
Uses: automaton, parsing.
"""

from __future__ import annotations

import collections
import itertools
from array import array
from typing import Any

from bpe_more.patterns.automaton import States, merge_states
from bpe_more.patterns.parsing import MOST_CLASSES


def pairs_to_cut(rows: States) -> set[tuple[int, int]]:
    """Return the pairs of classes (a, b) between which any text can be cut without changing its words.

    In each state that has read a, no match goes on with b, and a word may end before b if and only if it may
    at the end of the text: a match that begins before the place is the same with and without the cut. And text
    that nothing matches does not reach across the place: a alone is a match if b follows it, or b alone is
    one, whatever follows (then text that nothing matches ends before b in any case).
    """
    end = len(rows[0]) - 1
    pairs = set()
    after = [{row[a][0] for row in rows} - {0} for a in range(end)]
    for a, b in itertools.product(range(end), range(end)):
        begins = rows[rows[1][a][0]][b][1] or all(ends for _, ends in rows[rows[1][b][0]])
        if begins and all(rows[state][b] == (0, rows[state][end][1]) for state in after[a]):
            pairs.add((a, b))
    return pairs


def pairs_within_words(rows: States) -> set[tuple[int, int]]:
    """Return pairs of classes (a, b) between which a cut may divide a word, but changes nothing else.

    Such a word is a run, as text that nothing matches is: it is read in one state, `gap`, which is left only where the
    run ends. After a, the automaton always is in that state, or has ended; and b alone leads to the same state. So the
    part that begins with b ends where the whole run does.
    """
    gaps = {state for state, row in enumerate(rows) if state and all(cell in ((0, 1), (state, 0)) for cell in row)}
    end = len(rows[0]) - 1
    pairs = set()
    for a, b in itertools.product(range(end), range(end)):
        gap, _ = rows[1][a]
        if gap in gaps and {row[a][0] for row in rows} <= {0, gap} and rows[1][b][0] == gap:
            pairs.add((a, b))
    return pairs


# To find a word's end, the automaton may have to read on, and then go back. C also has a machine that never goes
# back: it marks the places at which words begin. Its state is a pair: the state of a match, and that of a second
# match, which began with the last character read, for the case that the first one ended before it; or 0.
BACK, BEGINS = 16, 32  # marks: a word begins one character before this one; it begins here
MARKS = BACK + BEGINS

# A register has room for 16 states: the most frequent ones in this text, and STOPPED, which is never left.
STOPPED = 15  # instead of any other state, and if the automaton must find the place
MOST_PAIRS = 1_000  # of states; beyond that many, STOPPED, too: to merge them takes up to 0.3 s
SAMPLE = """It's the "best" of 1984, isn't it?

    for i in range(10):
		print(f'{i:>3}', CamelCase_name[0])  # ok!!!
Déjà vu: 3,141.59 € «ёлка». 我们去年夏天在北京，  天气很好。カタカナ 한국어 e\u0301\n \n
 THE END\u3000x\r\n  * item (a/b)
"""


def machine_of(rows: States) -> States:
    """Return the machine of an automaton: for each state and class, the next state and its marks, or (0, STOPPED)."""
    pairs = [(1, 0)]
    numbers = {(1, 0): 0}  # of the pairs
    cells: States = []
    for state, other in pairs:  # which grows
        row = []
        for (first, _), (following, ends), second in zip(rows[1][:-1], rows[state], rows[other]):
            # this character, read by a new match, by the match, and by the one that began one character before
            marks = BEGINS if state == 1 else 0
            if other and not following and not ends:  # the match ended before that character
                marks = BACK
                following, ends = second
            if following:  # it goes on; if it may end here, a new match is followed, too
                new = (following, first if ends else 0)
            elif ends and first:  # it ends here, and a new one begins
                marks, new = marks | BEGINS, (first, 0)
            else:
                marks, new = STOPPED, (1, 0)
            if new not in numbers and len(pairs) >= MOST_PAIRS:
                marks, new = STOPPED, (1, 0)
            if new not in numbers:
                numbers[new] = len(pairs)
                pairs.append(new)
            row.append((numbers[new], marks))
        cells.append(row)
    return merge_states(cells, apart=None)


def machine_tables(classes: bytes, rows: States) -> dict[str, Any]:
    """Return the machine's rows, one for each two kinds of symbols, and the kind of each symbol.

    For each state, a row has the next one and the marks: the first character's, and twice the second one's.
    BACK of the second one is thus BEGINS of the first, which is the same place.
    """
    machine = machine_of(rows)
    visits = collections.Counter({0: len(SAMPLE)})  # the beginning of the text stays state 0
    state = 0
    for character in SAMPLE:
        state, _ = machine[state][classes[ord(character)]]
        visits[state] += 1
    kept = sorted(range(len(machine)), key=lambda state: -visits[state])[:STOPPED]
    n = len(machine[0])
    kinds = []  # of symbols, first the classes: the cells of the states that are kept
    for number in range(n):
        cells = [machine[state][number] for state in kept]
        kind = [kept.index(state) | marks if state in kept else STOPPED for state, marks in cells]
        kinds.append(kind + [STOPPED] * (16 - len(kind)))
    kinds.append(list(range(16)))  # of a symbol that changes nothing
    pairs = bytearray()
    for first, second in itertools.product(kinds, kinds):
        for cell in first:
            after = second[cell & 15]
            pairs.append(after if after == STOPPED else (after & 15) | (cell & MARKS) | 2 * (after & MARKS))
    # Symbols are bytes: ASCII; 80 to BF, the later bytes of a character; C0 + its class, which C puts in place of its
    # first byte; E4 to FF, of which C uses E4 to E9, the first bytes of ideographs, if all of these are of one class.
    kind_of_symbol = [*classes[:128], *[n] * 64, *range(n), *[n] * (MOST_CLASSES - n), *[classes[0x4E00]] * 28]
    return {"pairs": array("B", pairs), "kinds": array("B", kind_of_symbol)}


def fields_of(automaton: tuple[bytes, States]) -> dict[str, Any]:
    """Return the fields of a bpe_pattern in C, in order; bpe_words.c explains them."""
    classes, rows = automaton
    n = len(rows[0]) - 1
    cells = [2 * state + ends for row in rows for state, ends in row]
    blocks = [classes[start : start + 256] for start in range(0, 0x110000, 256)]
    distinct = {block: number for number, block in enumerate(dict.fromkeys(blocks))}
    cuts, within = pairs_to_cut(rows), pairs_within_words(rows)
    pairs = itertools.product(range(n), range(n))
    return {
        "blocks": array("H", [distinct[block] for block in blocks]),
        "classes": array("B", b"".join(distinct)),
        "cells": array("H", cells),
        "ascii": array("H", [cells[row + k] for row in range(0, len(cells), n + 1) for k in classes[:128]]),
        **machine_tables(classes, rows),
        "cuts": array("B", [1 if pair in cuts else 2 * (pair in within) for pair in pairs]),
        "n_classes": n,
        "ideographs_are_one_class": int(len(set(classes[0x4E00:0xA000])) == 1),
    }
