"""Progress in one line of standard error, with a share, a rate and a time left; and printing that can't stop work.

Gives: with_progress(), instead of that of bpe.py, which shows only a number; is_terminal(); say(), for all that is
printed, and FAILED, each standard stream's first error; visible(), which protects the terminal.
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

FAILED: dict[str, Exception] = {}  # {"stdout": its first error}


def with_progress(items: Iterable[T], wanted: bool,
                  describe: Callable[[int], tuple[str, float, float, str]]) -> Iterator[T]:
    """Pass items on; if wanted, show the progress, at most five times a second.

    describe(number of items) returns (text, how much is done, the total or 0, unit). As merges become faster, the time
    left is overestimated, up to 70 times in the first tenth, so it isn't shown there.
    """
    if not wanted:
        yield from items
        return
    earlier = later = (0.0, time.monotonic())  # (how much was done, when); the rate is that since `earlier`
    shown_at = later[1]
    try:
        say_over(line_of(*describe(0), 0))  # the first item may take a minute
        for number, item in enumerate(items, 1):
            yield item
            if time.monotonic() - shown_at > 0.2:
                shown_at = time.monotonic()
                text, done, total, unit = describe(number)
                if done > 2 * later[0]:  # so `earlier` is at half of what is done, or before
                    earlier, later = later, (done, shown_at)
                say_over(line_of(text, done, total, unit, (done - earlier[0]) / (shown_at - earlier[1])))
    finally:
        say_over("")


def line_of(text: str, done: float, total: float, unit: str, rate: float) -> str:
    """Return the line: "counting words: 12 of 31 MB (39%), 60 MB/s, 1 s left"."""
    of_total = f" of {total:,.0f}" if total else ""
    share = f" ({done / total:.0%})" if total else ""
    line = f"{text}: {done:,.0f}{of_total}{unit}{share}, {rate:,.0f}{unit}/s"
    return f"{line}, {rounded_up((total - done) / rate)} left" if rate and total and 10 * done > total else line


def rounded_up(seconds: float) -> str:
    """Write a time as a whole number: rounded_up(150) -> "3 min"."""
    if seconds < 100:
        return f"{int(seconds) + 1} s"
    return f"{int(seconds / 60) + 1} min" if seconds < 6000 else f"{int(seconds / 3600) + 1} h"


def is_terminal() -> bool:
    """Tell if standard error, which may be closed or replaced, is a terminal."""
    try:
        return sys.stderr.isatty()
    except (ValueError, AttributeError):
        return False


def say_over(text: str) -> None:
    """Print text over the last line of standard error, cut to the width of the terminal."""
    width = 80
    with contextlib.suppress(OSError, ValueError, AttributeError):  # not a terminal
        width = os.get_terminal_size(sys.stderr.fileno()).columns or width
    say(f"\r{text[: width - 1]}\x1b[K")  # ESC [ K erases the rest of the line


def say(text: str, name: str = "stderr") -> None:
    """Print to sys.stderr or sys.stdout. If that fails, the error goes into FAILED, and the work goes on."""
    stream: Any = getattr(sys, name)
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError, AttributeError) as error:
        FAILED.setdefault(name, error)
        with contextlib.suppress(OSError, ValueError, AttributeError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())  # else Python would fail to flush the rest at exit


def visible(text: str) -> str:
    """Escape what isn't printable, except for line feeds, since it could change what a terminal does."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
