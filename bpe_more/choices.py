"""What a user can choose in a call, how it is checked, and the engine that it means.

Gives: Options, whose checked() is the one place for checks that need no input; find_engine(), engine_for() and
scanning_engine(); lacking_in_c(), which says why Python scans.
Uses: errors, patterns.steps.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Literal, NamedTuple, get_args

import bpe
from bpe_more.errors import all_delayed, require
from bpe_more.patterns import steps
from bpe_more.patterns.steps import Pattern, after_form

Errors = Literal["strict", "replace"]


class Options(NamedTuple):
    """The options of a call. Each is also an argument of the functions that take it."""

    special_tokens: Any = ()  # strings in an order, such as a list; checked() makes it a tuple
    pattern: Pattern = "gpt2"
    errors: Errors = "strict"
    workers: int | None = None
    engine: bpe.EngineName = "auto"
    progress: bool = False
    vocab_size: Any = sys.maxsize  # as it is in calls that learn nothing
    min_word_count: int = 1
    min_frequency: int = 1
    column: str | None = "text"  # of Parquet and JSON Lines

    def checked(self) -> Options:
        """Return the same options, with special tokens as a tuple, and the pattern as check_pattern returns it.

        Raises ValueError for a bad one, and TypeError for special tokens that aren't in an order.
        """
        special_tokens = steps.check_special_tokens(self.special_tokens)
        for name in ("workers", "vocab_size", "min_word_count", "min_frequency"):
            value = getattr(self, name)
            valid = (bpe.is_integer(value) and value > 0) or (name == "workers" and value is None)
            require(valid, "{} must be a positive integer, not {!r}", name, value)
        allowed = {"errors": get_args(Errors), "engine": get_args(bpe.EngineName)}
        for name, values in allowed.items():
            value = getattr(self, name)
            require(value in values, "{} must be one of {}, not {!r}", name, values, value)
        require(isinstance(self.column, (str, type(None))), "column must be a str or None, not {!r:.60}", self.column)

        size, n_special = self.vocab_size, len(special_tokens)
        too_small = "vocabulary size {} is too small; the minimum is {} (256 bytes + {})"
        require(size >= 256 + n_special, too_small, size, 256 + n_special, bpe.plural(n_special, "special token"))
        most = sys.maxunicode + 1  # learn_merges has a character for each token that isn't special
        if size > most + n_special and size != sys.maxsize:
            require(engine_for(self), f"the Python engine has only {most:,} non-special ids, not {size:,}")
        if self.engine == "c":
            require(find_engine()[0], f"engine 'c' is not available: {find_engine()[1]}")
        return self._replace(special_tokens=special_tokens, pattern=steps.check_pattern(self.pattern))


def engine_for(options: Options) -> Any:
    """Return the C engine, or None for Python."""
    return find_engine()[0] if options.engine != "python" else None


@functools.cache
def find_engine() -> tuple[Any, str]:
    """Return (engine, ""), (engine, why it only learns) or (None, why there is none).

    Signals wait: bpe.find_engine would take an exception from a signal's handler for such a reason.
    """
    with all_delayed():
        return bpe.find_engine()


def scanning_engine(options: Options) -> Any:
    """Return the C engine if it can split text by the pattern of a call, else None."""
    engine = engine_for(options)
    if engine is None or engine.declines(options.pattern):  # declines() returns a reason, or ""
        return None
    return engine


def lacking_in_c(pattern: Any) -> str:
    """Return what a pattern has that C can't scan, or "". A normal form doesn't count: Python normalizes first."""
    engine, _ = find_engine()
    return engine.declines(after_form(pattern)[1]) if engine else ""
