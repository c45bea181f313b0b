"""Errors and warnings as all files of bpe_more raise them."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any


def require(condition: object, message: str, *values: object) -> None:
    """Raise ValueError if a condition does not hold. The message may have {} for values."""
    if not condition:
        raise ValueError(message.format(*values) if values else message)


def warn(text: str) -> None:
    """Warn, with the line of the first caller outside of this file and of bpe_more."""
    frame: Any = sys._getframe()
    own = frame.f_code.co_filename
    folder = os.path.join(os.path.dirname(own), "")
    level = 1
    while frame.f_back and (frame.f_code.co_filename == own or frame.f_code.co_filename.startswith(folder)):
        frame = frame.f_back
        level += 1
    warnings.warn(text, stacklevel=level)


def is_integer(value: object) -> bool:
    """Tell if a value is an integer, which may be numpy's. 257.0 and True are equal to integers, but aren't."""
    return hasattr(value, "__index__") and not isinstance(value, bool)


def plural(n: int, noun: str) -> str:
    """Count something: plural(1234, "merge") -> "1,234 merges"."""
    return f"{n:,} {noun}{'s' * (n != 1)}"
