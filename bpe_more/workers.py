"""Tasks in threads or processes of this machine: results come in order, and Ctrl-C ends them at any time.

If the system refuses a pool, this thread runs the tasks: the result is the same. The engine in C uses this file, too.

Gives: run_tasks(), in_threads(), count_cores(); pools for the cluster's local engine.
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
from typing import TYPE_CHECKING, Any, TypeVar

from bpe_more.errors import all_delayed

if TYPE_CHECKING:
    import concurrent.futures

T = TypeVar("T")


MOST_WORKERS = 61  # on Windows, a pool of processes can't be larger


def run_tasks(task: Callable[[Any], T], slices: Iterator[Any], in_threads: bool,
              most_workers: int) -> Generator[tuple[Any, T], None, None]:
    """Yield (slice, task(slice)) in order, from at most most_workers threads or processes."""
    first_slices = list(itertools.islice(slices, min(most_workers, 2)))  # with one, cores need not be counted
    if len(first_slices) == 2:
        most_workers = min(most_workers, count_cores())
        first_slices += itertools.islice(slices, max(most_workers - 2, 0))
    n_workers = min(most_workers, len(first_slices))
    slices = itertools.chain(first_slices, slices)
    # If this module was loaded without an entry in sys.modules, worker processes would not find
    # start_worker there, and the pool would wait for them forever.
    named = getattr(sys.modules.get(__name__), "start_worker", None) is start_worker
    pool = None
    try:
        if n_workers > 1 and (in_threads or named):
            with all_delayed():
                pool = start_threads(n_workers) if in_threads else start_processes(n_workers, task)
        if pool is None:
            for part in slices:
                yield part, task(part)
            return
        submissions = (submitted(pool, task, part, in_threads) for part in slices)
        # Each worker has a slice, and one more slice waits. All slices of a large corpus would fill the memory.
        waiting = collections.deque(itertools.islice(submissions, n_workers))
        while waiting:
            waiting.extend(itertools.islice(submissions, 1))
            part, result = waiting.popleft()
            yield part, result()
    finally:
        if pool is not None:
            shut_down(pool)


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


def start_threads(n_threads: int) -> concurrent.futures.Executor | None:
    """Return a pool whose threads all run, or None if the system refuses one."""
    pool = None
    started = False
    starting = threading.Lock()

    def wait() -> None:  # it keeps each thread busy: a pool starts no new thread while one is idle
        with starting:
            pass

    starting.acquire()
    try:
        import concurrent.futures  # fails if the main thread has ended

        pool = concurrent.futures.ThreadPoolExecutor(n_threads)
        # A pool starts a thread when it gets a task. If that fails, it keeps the task, and another thread
        # may run it: so no task that counts words comes before all threads are there.
        for _ in range(n_threads):
            pool.submit(wait)
        started = True
    except (RuntimeError, ImportError, MemoryError):
        pass
    finally:
        starting.release()
    if pool is not None and not started:
        pool.shutdown()
    return pool if started else None


def start_processes(n_processes: int, task: Callable[[Any], object]) -> concurrent.futures.Executor | None:
    """Return a pool of processes that have a task, or None if it can't start.

    Daemon processes may have no children, some systems have no semaphores, and others no more room.
    """
    pool = None
    # Each process has a thread, and the pool has two. If they had no room, it would wait forever.
    threads = start_threads(2 * n_processes + 2)
    if threads is None:
        return None
    threads.shutdown()
    try:
        import concurrent.futures
        import multiprocessing

        context = multiprocessing.get_context("fork" if sys.platform == "linux" else None)
        stopped, stop = context.Pipe(duplex=False)
        # a process gets the task once, at its start: a vocabulary is large
        pool = concurrent.futures.ProcessPoolExecutor(n_processes, context, start_worker, (task, stopped))
        pool.stop = functools.partial(stop.send_bytes, b"stop")  # type: ignore[attr-defined]
        pool.submit(os.getpid)  # starts them
    except Exception as error:
        if "bootstrapping" in str(error):  # this is a worker that loads a script without a guard
            raise
        if pool is not None:
            for process in (pool._processes or {}).values():  # those that did start
                process.kill()
                process.join()
            pool.shutdown(wait=False)
        return None
    return pool


def submitted(pool: concurrent.futures.Executor, task: Callable[[Any], T], part: Any,
              in_threads: bool) -> tuple[Any, Callable[[], T]]:
    """Hand a slice to a pool; return it, and a function that waits for its result."""
    import concurrent.futures  # the pool has imported both, while signals were delayed
    import queue

    # If Ctrl-C interrupts a method of the pool, or of a future that isn't done, this thread may
    # keep a lock for which a worker waits forever. A SimpleQueue is written in C, and can't be
    # interrupted halfway.
    done: queue.SimpleQueue[concurrent.futures.Future[T]] = queue.SimpleQueue()
    try:
        with all_delayed():
            pool.submit(task if in_threads else run_in_worker, part).add_done_callback(done.put)
    except concurrent.futures.BrokenExecutor:  # a worker was killed
        raise
    except RuntimeError:  # the main thread has ended since the pool started, so it takes no more tasks
        return part, functools.partial(task, part)
    return part, lambda: done.get().result()


def shut_down(pool: concurrent.futures.Executor) -> None:
    """End a pool. Tasks that run in threads are finished; those in processes are interrupted."""
    if hasattr(pool, "stop"):
        pool.stop()
    pool.shutdown(cancel_futures=True)


class Worker:
    """What a worker process has: its task, and whether it runs, and whether it must stop."""

    task: Any
    busy = stopped = False


def start_worker(task: Callable[[Any], object], stopped: Any) -> None:
    """Prepare a worker process: stop when the parent says so in a pipe, and exit when it dies."""
    import _thread
    import multiprocessing.connection

    def interrupt(*_: object) -> None:
        Worker.stopped = True
        if Worker.busy:  # else it may be sending a result
            raise KeyboardInterrupt

    def watch_parent() -> None:
        parent: Any = multiprocessing.parent_process()
        if stopped in multiprocessing.connection.wait([stopped, parent.sentinel]):
            _thread.interrupt_main()  # which calls interrupt() there
        parent.join()
        os._exit(1)

    Worker.task, Worker.busy, Worker.stopped = task, False, False  # the parent may be a worker, too
    signal.signal(signal.SIGINT, interrupt)
    if callable(signal.getsignal(signal.SIGTERM)):  # main() has set it before the fork
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if os.name == "posix":
        # A worker that dies while it sends a result blocks the pool, so Ctrl-C must not reach it
        os.setsid()
    threading.Thread(target=watch_parent, daemon=True).start()


def run_in_worker(part: Any) -> Any:
    """Run the task of this worker process. Raises KeyboardInterrupt if it must stop."""
    Worker.busy = True
    try:
        if Worker.stopped:
            raise KeyboardInterrupt
        return Worker.task(part)
    finally:
        Worker.busy = False


def in_threads(task: Any, items: Iterator[Any], n_threads: int) -> Generator[Any, None, None]:
    """Yield task(item) for each item, in order, from threads."""
    with contextlib.closing(run_tasks(task, items, True, n_threads)) as results:
        for _, result in results:
            yield result
