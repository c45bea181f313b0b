"""Signals that wait until a block is done, and `kill` that ends a run as Ctrl-C does. Uses nothing else of bpe_more."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def delayed(number: int) -> Iterator[None]:
    """Let a signal, such as SIGINT, which is Ctrl-C, wait until a block is done."""
    arrived: list[Any] = []
    handler: Any = signal.getsignal(number)
    # signals interrupt no other thread
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not callable(handler) or not in_main_thread:
        yield
        return

    signal.signal(number, lambda *arguments: arrived.append(arguments))
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
