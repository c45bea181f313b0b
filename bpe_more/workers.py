"""in_order(): does a task for many items on all cores, and yields the results in order.

Work in C takes threads. Work in Python takes processes, which are those of bpe.py. A system may refuse some of them, or
all: then the calling thread does the work, with the same results. Ctrl-C, or an error, ends processes at once, and
threads after their current item.

Gives: in_order(), count_cores(), MOST_WORKERS.
Uses: errors.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import os
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeVar

from bpe_more.errors import all_delayed

T = TypeVar("T")

MOST_WORKERS = 61  # on Windows, a process can't wait for more


def in_order(task: Callable[[Any], T], items: Iterator[Any], most_workers: int,
             in_threads: bool = True) -> Generator[T, None, None]:
    """Yield task(item) for each item, in order, from at most most_workers threads or processes.

    Only a few items are taken ahead, about one for each worker: all of them could fill the memory.
    """
    ahead = list(itertools.islice(items, min(most_workers, 2)))  # for a single item, cores need not be counted
    if len(ahead) == 2:
        most_workers = min(most_workers, count_cores())
        ahead += itertools.islice(items, max(most_workers - 2, 0))
    n_workers = min(most_workers, len(ahead))
    items = itertools.chain(ahead, items)
    if n_workers < 2:
        yield from map(task, items)
    elif in_threads:
        yield from results_of_threads(task, items, n_workers)
    else:
        with all_delayed():
            import bpe  # only here: if bpe.py runs as a script, it is __main__, and this import loads a second copy
        yield from bpe.in_processes(task, items, n_workers)


def results_of_threads(task: Callable[[Any], T], items: Iterator[Any], n_threads: int) -> Generator[T, None, None]:
    """Yield the results of tasks in threads. At the end, or after an error, tasks that have begun are finished."""
    with all_delayed():
        import queue  # only now: few runs need it
    # Ctrl-C can't interrupt a method of SimpleQueue halfway, since they are in C.
    todo: Any = queue.SimpleQueue()
    threads: list[threading.Thread] = []

    def hand_out(item: Any) -> Any:
        done: Any = queue.SimpleQueue()
        todo.put((item, done))
        return done

    try:
        with all_delayed(), contextlib.suppress(RuntimeError, MemoryError):  # no room for so many, or for any
            for _ in range(n_threads):
                # daemon: if put() below has no memory, threads that wait must not keep Python from ending
                thread = threading.Thread(target=do_tasks, args=(task, todo), daemon=True)
                thread.start()
                threads.append(thread)
        if not threads:
            yield from map(task, items)
            return
        handed_out = map(hand_out, items)
        waiting = collections.deque(itertools.islice(handed_out, n_threads + 1))  # so that no thread waits
        while waiting:
            result = result_of(waiting.popleft())
            waiting.extend(itertools.islice(handed_out, 1))
            yield result
    finally:
        with contextlib.suppress(queue.Empty):
            while True:
                todo.get_nowait()
        todo.put(None)  # a single one, which each thread puts back for the next: Ctrl-C could come between several puts
        for thread in threads:
            thread.join()


def result_of(done: Any) -> Any:
    """Wait for a task in a thread; return its result, or raise its error."""
    result, error = done.get()
    if error is None:
        return result
    try:
        raise error
    finally:
        del error  # its traceback has this frame, so the error would keep itself, and with it the input, open


def do_tasks(task: Callable[[Any], object], todo: Any) -> None:
    """Do tasks in a thread, until None comes, which is left for the next thread."""
    while entry := todo.get():
        item, done = entry
        try:
            result = task(item)
        except BaseException as error:  # raised when its turn comes
            done.put((None, error))
        else:
            done.put((result, None))
    todo.put(None)


def count_cores() -> int:
    """Return how many cores this process may use; a container may allow fewer than the system has."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, cores_of_quota())


@functools.lru_cache(maxsize=1)
def cores_of_quota() -> int:
    """Return how many cores a container's share of time is worth, or MOST_WORKERS if it has no limit."""
    for names in ["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]:  # control groups 2 and 1
        with contextlib.suppress(OSError, ValueError):  # the quota may be "max", or -1
            texts = []
            for name in names:
                with open(f"/sys/fs/cgroup/{name}", encoding="ascii") as file:
                    texts.append(file.read())
            quota, period = map(int, " ".join(texts).split())
            if quota > 0:
                return -(-quota // period)  # rounded up
    return MOST_WORKERS
