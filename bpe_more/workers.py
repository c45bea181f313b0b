"""One function that does a task for many items on all cores, and gives the results in order.

Work in C takes threads, work in Python takes processes, which bpe.py feeds. A system may refuse some of them, or all:
then this thread does the work, with the same results. Ctrl-C, or an error of the caller, ends them at any time.

Gives: in_order(), count_cores(), MOST_WORKERS; outcomes_of_processes(), for the cluster's local engine.
Uses: errors.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeVar

from bpe_more.errors import all_delayed

T = TypeVar("T")
Outcome = tuple[Any, Exception | None]  # the result of a task, and its error

MOST_WORKERS = 61  # on Windows, a process can't wait for more


def in_order(task: Callable[[Any], T], items: Iterator[Any], most_workers: int,
             in_threads: bool = True) -> Generator[T, None, None]:
    """Yield task(item) for each item, in order, from at most most_workers threads or processes.

    Some items are taken ahead, as many as there are workers; not all, which could fill the memory.
    """
    ahead = list(itertools.islice(items, min(most_workers, 2)))  # with one, cores need not be counted
    if len(ahead) == 2:
        most_workers = min(most_workers, count_cores())
        ahead += itertools.islice(items, max(most_workers - 2, 0))
    n_workers = min(most_workers, len(ahead))
    items = itertools.chain(ahead, items)
    if n_workers < 2:
        yield from map(task, items)
        return
    outcomes = outcomes_of_threads if in_threads else outcomes_of_processes
    with contextlib.closing(outcomes(task, items, n_workers)) as found:
        for result, error in found:
            if error is not None:
                raise error
            yield result


def outcome_of(task: Callable[[Any], object], item: Any) -> Outcome:
    """Return the result of a task, or its error, which is raised when its turn comes."""
    try:
        return task(item), None
    except Exception as error:
        return None, error


@contextlib.contextmanager
def refusals_ignored() -> Iterator[None]:
    """Go on with the workers that have started, if the system refuses one: it may lack room, or a module."""
    try:
        yield
    except Exception as error:
        if "bootstrapping" in str(error):  # this is a worker process that loads a script without a guard
            raise


# ---- Threads

def outcomes_of_threads(task: Callable[[Any], object], items: Iterator[Any],
                        n_threads: int) -> Generator[Outcome, None, None]:
    """Yield the outcomes of tasks in threads. At the end, running tasks are finished."""
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
        with all_delayed(), refusals_ignored():
            for _ in range(n_threads):
                thread = threading.Thread(target=do_tasks, args=(task, todo))
                thread.start()
                threads.append(thread)
        if not threads:
            yield from (outcome_of(task, item) for item in items)
            return
        handed_out = map(hand_out, items)
        waiting = collections.deque(itertools.islice(handed_out, n_threads + 1))  # so that no thread waits
        while waiting:
            outcome = waiting.popleft().get()
            waiting.extend(itertools.islice(handed_out, 1))
            yield outcome
    finally:
        todo.put(None)  # one call ends all threads, since Ctrl-C may come between two
        for thread in threads:
            thread.join()


def do_tasks(task: Callable[[Any], object], todo: Any) -> None:
    """Do tasks in a thread, until None comes, which is left for the next thread."""
    while entry := todo.get():
        item, done = entry
        done.put(outcome_of(task, item))
    todo.put(None)


# ---- Processes

def outcomes_of_processes(task: Callable[[Any], object], items: Iterator[Any],
                          n_processes: int) -> Generator[Outcome, None, None]:
    """Yield the outcomes of tasks in processes. At the end, running tasks are interrupted."""
    with all_delayed():
        import bpe  # only now: if bpe.py runs as a script, this is another module, which the engine doesn't need
    processes: list[Any] = []
    connections: list[Any] = []
    try:
        with all_delayed(), refusals_ignored():
            import multiprocessing

            context: Any = multiprocessing.get_context("fork" if bpe.FORKS else None)
            with bpe.STARTING:  # so that no other process inherits these connections, and keeps them open
                for _ in range(n_processes if bpe.can_start_processes() else 0):
                    ours, theirs = context.Pipe()
                    arguments = functools.partial(do_task, task), ours, theirs
                    process = context.Process(target=bpe.worker_loop, args=arguments, daemon=True)
                    with bpe.signals_delayed():
                        process.start()
                    processes.append(process)
                    theirs.close()
                    connections.append(ours)
        if connections:
            yield from bpe.share_out(zip(items), connections)  # type: ignore[arg-type]
        else:
            yield from (outcome_of(task, item) for item in items)
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(5)
            process.kill()  # if it is still in C
            process.join()


def do_task(task: Callable[[Any], object], packed: tuple[Any]) -> Outcome:
    """Do a task in a worker process; SIGTERM ends it by an exception, which removes temporary files."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    return outcome_of(task, *packed)


# ---- Cores

def count_cores() -> int:
    """Return how many cores this process may use, in a container, too."""
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
