"""Errors, warnings, and signals that wait: what every other file may use.

Gives: require() and package(), whose errors have one line; warn(); all_delayed() and sigterm_as_ctrl_c(), for signals.
Uses: nothing of bpe_more.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
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


@contextlib.contextmanager
def delayed(number: int) -> Iterator[None]:
    """Let a signal with a handler, as SIGINT has, which is Ctrl-C, wait until a block is done."""
    if threading.current_thread() is not threading.main_thread():  # signals interrupt no other thread
        yield
        return
    arrived: list[Any] = []
    handler: Any = signal.signal(number, lambda *arguments: arrived.append(arguments))
    try:
        yield
    finally:
        signal.signal(number, handler)
        for arguments in arrived:
            handler(*arguments)


# those whose handlers may raise an exception
SIGNALS = [getattr(signal, name) for name in (
    "SIGINT", "SIGTERM", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGBREAK",
) if hasattr(signal, name)]  # fmt: skip


@contextlib.contextmanager
def all_delayed() -> Iterator[None]:
    """Let signals wait until a block is done: an exception inside an import may leave its lock, or half a module."""
    with contextlib.ExitStack() as stack:
        for number in SIGNALS:
            if callable(signal.getsignal(number)):  # a function in Python
                stack.enter_context(delayed(number))
        yield


@contextlib.contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Let `kill PID` end a run as Ctrl-C does, with an exception that removes temporary files."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt("terminated")

    try:
        previous = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # this isn't the main thread, which alone has handlers
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous or signal.SIG_DFL)


def package(name: str, what: str) -> Any:
    """Import a package. Raises ImportError with the command that installs it."""
    try:
        with all_delayed():
            return importlib.import_module(name)
    except ImportError:
        name = name.partition(".")[0]
        raise ImportError(f"{what} needs the package {name}: pip install {name}") from None
