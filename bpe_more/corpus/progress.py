"""Progress in one line of standard error, and lines for the user.

Gives: with_progress(), learning_progress(), say(), visible(), which protects the terminal.
Uses: nothing of bpe_more.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


def with_progress(items: Iterable[T], wanted: bool, describe: Callable[[int], str]) -> Iterator[T]:
    """Pass items on, and print describe(how many) in one line, at most five times a second."""
    if not wanted:
        yield from items
        return
    shown_at = time.monotonic()
    try:
        say_over(describe(0))  # the first item may take a minute
        for number, item in enumerate(items, 1):
            yield item
            if time.monotonic() - shown_at > 0.2:
                shown_at = time.monotonic()
                say_over(describe(number))
    finally:
        say_over("")


def say_over(text: str) -> None:
    """Print text over the last line of standard error, cut to the width of the terminal."""
    width = 80
    with contextlib.suppress(OSError, ValueError, AttributeError):  # not a terminal
        width = os.get_terminal_size(sys.stderr.fileno()).columns or width
    say(f"\r{text[: width - 1]}\x1b[K")  # ESC [ K erases the rest of the line


def rounded_up(seconds: float) -> str:
    """Write a time as a whole number: rounded_up(150) -> "3 min"."""
    if seconds < 100:
        return f"{int(seconds) + 1} s"
    return f"{int(seconds / 60) + 1} min" if seconds < 6000 else f"{int(seconds / 3600) + 1} h"


def learning_progress(merges_wanted: int) -> Callable[[int], str]:
    """Return describe(n) for with_progress(): how many merges are made, and how long the rest may take.

    Merges become faster. So the time per merge, measured since a merge in the first half of those made so far, gives an
    upper bound. On English, Chinese and code, from a tenth of the merges on, the bound was 1 to 6 times the time that
    was really left; before that, up to 70 times.
    """
    marks = [(0, time.monotonic())]  # (merges made, when), one more each time that their number has doubled

    def describe(n: int) -> str:
        text = f"learning merges: {n:,} of {merges_wanted:,}"
        now = time.monotonic()
        if n >= 2 * marks[-1][0]:  # also at n = 0, so there are always two marks
            marks.append((n, now))
        if 10 * n <= merges_wanted:
            return f"{text} (the first ones take longest)"
        made, then = marks[-2]  # at most half of n
        seconds = (now - then) / (n - made) * (merges_wanted - n)
        return f"{text}, up to {rounded_up(seconds)} left"

    return describe


def say(text: str, name: str = "stderr") -> None:
    """Print to sys.stderr or sys.stdout. A stream that fails is replaced, so that training continues.

    Its replacement has the error as its attribute `error`.
    """
    try:
        stream = getattr(sys, name)
        stream.write(text)
        stream.flush()
    except (OSError, ValueError, AttributeError) as error:
        replacement: Any = open(os.devnull, "w")  # noqa: SIM115
        replacement.error = error
        setattr(sys, name, replacement)


def visible(text: str) -> str:
    """Escape what isn't printable, except for line feeds, since it could change what a terminal does."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
