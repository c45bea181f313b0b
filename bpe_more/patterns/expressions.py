"""One expression of a pattern: compiled as regex reads it, unless it is too large; and as Oniguruma reads it.

Expressions come from users, and from files of strangers, so they have limits. Oniguruma is the regex library of the
package tokenizers, which reads some of them differently.

Gives: compile_pattern(), differs_in_oniguruma().
Uses: errors.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import regex

import bpe
from bpe_more.errors import require

METACHARACTERS = frozenset(r"\.^$*+?{}[]()|")  # an expression has at least one of these; else it is a name


@functools.lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> Any:
    r"""Compile a named pattern, or an expression, but not one of any size.

    regex reads two dialects. V1 has operations on sets, such as [\w--\d], [\p{L}&&[^\p{Han}]] and
    [a-d~~c-f], as tiktoken has them; but (?i:ss) also finds "ß" there, which (?-f) turns off. V0 has
    neither, and reads [[a] as a set of "[" and "a". An expression is read as V1 if it can be.
    """
    expression = bpe.PATTERNS.get(pattern, pattern)
    check_size(expression)
    is_known = pattern in bpe.PATTERNS or not METACHARACTERS.isdisjoint(pattern)
    require(is_known, "unknown pattern {!r:.150}; the names are {}", pattern, ", ".join(bpe.PATTERNS))
    expression.encode("utf-8")  # raises UnicodeEncodeError, a ValueError, for a lone surrogate
    bad_expression = regex.error, ArithmeticError, LookupError, ValueError  # all come from compile()
    first = "(?!)|" if re.search(r"\(\?\w*i", pattern) else ""  # as in bpe.compile_pattern()
    try:
        try:
            compiled = regex.compile("(?-f)" + first + expression, regex.V1)
        except bad_expression:
            if re.search("&&|--|~~", expression):
                raise
            compiled = regex.compile(first + expression, regex.V0)
    except bad_expression as error:
        text = getattr(error, "msg", error)  # without the place, which (?-f) has changed
        raise ValueError(f"pattern {pattern!r:.150} is not a valid regular expression: {text!s:.100}") from None
    backward = "searches backward, so its matches are not in the order of the text: leave out (?r)"
    require(not compiled.flags & regex.REVERSE, "pattern {!r:.150} {}", pattern, backward)
    return compiled


# of an expression: with as many, it takes half a second to compile
MOST_LETTERS, MOST_NESTED, MOST_REPEATED = 20_000, 50, 100_000


def check_size(expression: str) -> None:
    """Refuse an expression that would take seconds and gigabytes to compile, such as (?:x{10000}){10000}."""
    shown = f"pattern {expression!r:.100}"
    length = len(expression)
    require(length <= MOST_LETTERS, f"{shown} has {length:,} characters; the maximum is {MOST_LETTERS:,}")
    readings = [expression]
    if re.search(r"\(\?[a-zA-Z0-9]*x", expression):  # (?x): # begins a comment
        readings.append(re.sub("#[^\n]*", "", expression))
    for reading in readings:
        for nested in (True, False):  # as versions 1 and 0 of regex read a set in a set
            check_repetitions(reading, shown, nested)


# an escape, the beginning of a set (in []a], the first "]" is a character), a repetition, "||", or any other character
PART = r"(?s)\\.|\[\^?\]?|\{(?:[0-9]+,?[0-9]*|,[0-9]+)\}|\|\||."


def check_repetitions(expression: str, shown: str, nested: bool) -> None:
    """Refuse an expression that has too many characters once its repetitions are written out: xxx for x{3}."""
    sizes = [0]  # of the open groups: how many characters they have with their repetitions
    last = depth = 0  # the size of the last item, and how many sets are open
    at = 0
    part_at = re.compile(PART).match
    while match := part_at(expression, at):
        part, at = match[0], match.end()
        if part == "(" and not depth and expression.startswith("(?#", at - 1):
            at = expression.find(")", at) + 1 or len(expression)
            continue
        if (part[0] == "[" and (nested or not depth)) or (part == "]" and depth):
            depth += 1 if part[0] == "[" else -1
            last = 1
        elif depth:
            require(part != "||", f"{shown}: programs differ in what || means in a set; write |, or \\|\\|")
            continue
        elif part == "(":
            sizes.append(0)
            last = 0
        elif part == ")" and len(sizes) > 1:
            last = sizes.pop()
        elif part[0] == "{" and len(part) > 1:
            least, _, most = part[1:-1].partition(",")
            n = int((most or least).lstrip("0")[:7] or 0)  # 7 digits are too many anyway
            last *= max(n - 1, 0)  # x is counted already
        else:
            last = 1
        sizes[-1] += last
        require(len(sizes) + depth <= MOST_NESTED, f"{shown} has more than {MOST_NESTED} nested groups and sets")
        require(sizes[-1] <= MOST_REPEATED, f"{shown} repeats more than {MOST_REPEATED:,} characters")


# Expressions of other programs are for Oniguruma, which tokenizers has. ALIKE matches what it is known to read as regex
# does; tests compare. Anything else is refused: {1,3}+ is (?:x{1,3})+ there, \pL is "pL", $ is the end of a line
# (but not after \s++, which leaves no newline), and (?i:i) matches neither "ı" nor "İ".
ALIKE = (
    r"(?(DEFINE)(?P<name>[CLMNPSZ][a-z]?|Han|Hiragana|Katakana|Hangul|Bopomofo|Latin|Greek|Cyrillic|Arabic|Hebrew|Thai|Lao"
    r"|Devanagari|Bengali|Tamil|Armenian|Georgian|Khmer|Myanmar|Tibetan|Common|Inherited|Alphabetic|Letter)"
    r"(?P<one>\\[nrtfav]|\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\[^\w\s]|\\ )(?P<class>\\[dDsS]|\\[pP]\{\^?(?&name)\})"
    r"(?P<in_set>(?&one)|[^]\\[&|~-]|&(?!&)|\|(?!\|)|~(?!~))"
    r"(?P<operand>(?:(?&in_set)-(?&in_set)(?!-)|(?&in_set)|(?&class)|(?&set))++)"
    r"(?P<set>\[(?!:)\^?+-?(?&operand)(?:-|(?:&&(?&operand))*+)\]))"
    r"(?:\\s\+\+\$(?=\||$)|(?&one)|(?&class)|(?&set)|[^]\\[(){}|*+?.^$]|[.|)]"
    r"|\(\?i:(?:['’|a-hj-zA-HJ-Z]|\[[a-hj-zA-HJ-Z]+\])*+\)|\((?![?*])|\(\?(?::|>|<?[=!])"
    r"|[*+?][?+]?|\{[0-9]+\}(?![?+])|\{[0-9]+,[0-9]*\}(?!\+))*+"
)


def differs_in_oniguruma(expression: str) -> str:
    """Return the beginning of what Oniguruma reads differently from regex, or may; "" if there is nothing."""
    check_size(expression)
    end = regex.match(ALIKE, expression, regex.V0).end()  # type: ignore[union-attr]  # it matches the empty string
    # (?i:st) matches one character there, U+FB06
    folded = re.search(r"\(\?i:[^)]*?(?:s[st]|f[fl])", expression, re.IGNORECASE)
    if folded or end < len(expression):
        return folded[0] if folded else expression[end : end + 20]
    # After "" at a place, regex may find more there, and Oniguruma doesn't. So an expression that can match nothing is
    # refused. To test that, each lookaround becomes a group that may be empty.
    without_lookarounds = compile_pattern(re.sub(r"\(\?<?[=!]", "(?:|", expression))
    return expression[:20] if without_lookarounds.fullmatch("") else ""
