"""Tasks on the workers of Dask, Ray or Spark, or in processes of this machine.

The engines at the end differ in these things; everything else is the same for all:

    n_workers                         how many tasks can run at the same time
    run(work, items, job)             yield the report of work(job, item) for each item, in any order. Tasks start when
                                      the first report is asked for
    exchange(split, join, items, job) split(job, item) returns a list of job.n_buckets parts. join(job, parts) gets the
                                      parts of all items that have the same number. Yield the reports of both, without
                                      the lists

A job is what all tasks need. It is sent once to each worker, and has a `stage`, which is a key of WAYS.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import operator
import os
import re
import socket
import sys
import unicodedata
import uuid
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import regex

import bpe
from bpe_more import choices, corpora, signals, workers
from bpe_more.checks import require
from bpe_more.data import package
from bpe_more.urls import errors_of

ATTEMPTS = 4  # for a task whose worker is killed
SCHEDULER_SECONDS = 5  # how long Dask may have no scheduler at the start
NO_WORKER_SECONDS = 60  # how long Dask may have no worker at all
WAYS = {  # for each stage, what helps if there is too little memory
    "counting": "give smaller tasks (task_bytes=, --task-bytes)",
    "adding": "give more buckets (buckets=, --buckets)",
    "encoding": "divide the largest files",
    "learning": "raise min_word_count (--min-word-count)",
}
ERRORS = {kind.__name__: kind for kind in (OSError, ValueError, TypeError, ImportError, MemoryError, OverflowError)}
Work = Callable[[Any, Any], "Report"]


class Report(NamedTuple):
    """What a task did, or its error."""

    result: Any = None
    n_bytes: int = 0
    n_words: int = 0  # or ids
    error: tuple[str, str] = ("", "")  # the name of its type, and its text
    stage: str = ""
    worker: str = ""
    lacks: str = ""  # why the worker has no C engine


class LostWorkerError(Exception):
    """An engine has given up a task. The arguments are the stage and the reason."""


def attempt(work: Work, item: Any, job: Any) -> Report:
    """Return work(job, item). An error becomes a report, too: engines wrap exceptions, each in its own way."""
    worker = f"{socket.gethostname()}, process {os.getpid()}"
    try:
        for ours, theirs in zip(versions(), job.versions):
            require(ours == theirs, "this worker has {}, the driver {}; use the same everywhere", ours, theirs)
        with memory_hint(job.stage):
            report = work(job, item)
        return report._replace(stage=job.stage, worker=worker, lacks=choices.find_engine()[1])
    except Exception as error:
        kind = next((name for name, kind in ERRORS.items() if isinstance(error, kind)), "RuntimeError")
        text = re.sub(r"^\[Errno \d+\] ", "", str(error)) or repr(error)
        return Report(None, 0, 0, (kind, text), job.stage, worker)


def attempt_split(split: Work, item: Any, job: Any) -> list[Any]:
    """Return the report of split(job, item), and its parts, which are None after an error."""
    report = attempt(split, item, job)
    return [report._replace(result=None), *(report.result or [None] * job.n_buckets)]


def versions() -> tuple[str, ...]:
    """Return what driver and workers must have in common, to split text alike and to read each other's counts."""
    unicode = f"Unicode {unicodedata.unidata_version}"
    return f"bpe.py {bpe.__version__}", f"regex {regex.__version__}", unicode, f"{sys.byteorder} endian"


@contextlib.contextmanager
def memory_hint(stage: str) -> Iterator[None]:
    """Say what helps if the memory is full."""
    try:
        yield
    except MemoryError as error:
        raise MemoryError(str(error) or f"out of memory while {stage}; {WAYS[stage]}") from None


@contextlib.contextmanager
def lost_workers(stage: str) -> Iterator[None]:
    """Turn the errors of an engine into one. Those of tasks are in reports."""
    try:
        yield
    except Exception as error:
        text = " ".join(str(error).split())
        missing = re.search(r"No module named '[^']+'", text)  # far down in Spark's text
        raise LostWorkerError(stage, missing[0] if missing else text[:300] or repr(error)) from None


def watched(reports: Generator[Report, None, None], n_tasks: dict[str, int], options: choices.Options) -> Iterator[Any]:
    """Yield the results of tasks; show progress, raise their errors, and warn of workers without C."""
    stage = next(iter(n_tasks))
    done = dict.fromkeys(n_tasks, 0)
    n_bytes = n_words = 0
    slow: set[str] = set()

    def describe(_: int) -> str:
        text = f"{stage}: {done[stage]:,} of {n_tasks[stage]:,} tasks, {n_bytes / 1e6:,.0f} MB"
        return f"{text}, {n_words:,} {'ids' if stage == 'encoding' else 'words'}{memory_of_driver()}"

    try:
        with contextlib.closing(reports):  # which ends other tasks after an error
            for report in corpora.with_progress(reports, options.progress, describe):
                kind, text = report.error
                if kind:
                    raise ERRORS.get(kind, RuntimeError)(f"{text} (worker {report.worker})")
                stage = report.stage
                done[stage] += 1
                n_bytes += report.n_bytes
                n_words += report.n_words
                host = report.worker.partition(",")[0]
                if report.lacks and options.engine == "auto" and host not in slow:
                    slow.add(host)
                    warnings.warn(f"worker {host} is slower, with the same result: {report.lacks}", stacklevel=3)
                if report.result is not None:
                    yield report.result
    except LostWorkerError as error:
        stage, reason = error.args
        if "No module named" in reason:
            raise RuntimeError(f"{reason}; all workers need the same bpe.py, with bpe_more") from None
        way = f"if its worker ran out of memory, {WAYS[stage]}"
        raise RuntimeError(f"a task failed {ATTEMPTS} times while {stage} ({reason}); {way}") from None


def memory_of_driver() -> str:
    """Return the peak memory of this process, for progress."""
    try:
        resource: Any = importlib.import_module("resource")
    except ImportError:  # Windows
        return ""
    unit = 1 if sys.platform == "darwin" else 1 << 10
    return f"; driver {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6:,.0f} MB"


# ------------------------------
# Engines
# ------------------------------

def engine_of(client: Any, options: choices.Options) -> Any:
    """Return the engine of a client."""
    if client is None:
        return Local(options.workers or workers.count_cores())
    name = getattr(client, "__name__", type(client).__module__)
    engine = ENGINES.get(name.partition(".")[0])
    if engine is None or not hasattr(getattr(client, "sparkContext", client), engine.ability):
        kinds = "a dask.distributed.Client, the module ray, a SparkSession, a SparkContext or None"
        way = "; connect to it: Client(cluster)" if hasattr(client, "scheduler_address") else ""
        raise TypeError(f"client must be {kinds}, not {client!r:.60}{way}")
    return engine(client)


@contextlib.contextmanager
def connected(url: str) -> Iterator[Any]:
    """Give the client for --cluster."""
    kind, _, address = url.partition("://")
    kinds = "dask://HOST:PORT, ray://HOST:PORT, spark://HOST:PORT or local"
    known = url == "local" or (address and kind in ("dask", "ray", "spark"))
    require(known, "--cluster must be {}, not {!r}", kinds, url)
    with contextlib.ExitStack() as stack:
        client = None
        with errors_of(url):
            if kind == "dask":
                distributed = package("distributed", url)
                distributed.Client(address, timeout=SCHEDULER_SECONDS).close()  # the client that works waits longer
                client = stack.enter_context(distributed.Client(address))
            elif kind == "ray":
                client = package("ray", url)
                stack.enter_context(client.init(url, log_to_driver=False))
            elif kind == "spark":
                builder = package("pyspark.sql", url).SparkSession.builder
                client = stack.enter_context(builder.appName("bpe.py").master(url).getOrCreate())
        yield client


class Local:
    """Processes of this machine. They exchange nothing: train() gives them a folder of counts."""

    exchange = None

    def __init__(self, workers: int) -> None:
        self.n_workers = workers

    def run(self, work: Work, items: Sequence[Any], job: Any) -> Generator[Report, None, None]:
        """Yield the reports of tasks."""
        with signals.all_delayed():
            from concurrent.futures import BrokenExecutor
        task: Any = functools.partial(attempt, work, job=job)
        left: list[Any] = list(items)
        for number in range(ATTEMPTS):
            if not left:
                return
            with signals.all_delayed():
                pool = workers.start_processes(min(self.n_workers, len(left)), task)
            if pool is None:  # the system has no room for one, or this is a daemon process
                yield from map(task, left)
                return
            try:
                for result in [workers.submitted(pool, task, item, False)[1] for item in left]:
                    report = result()
                    del left[0]
                    yield report
            except BrokenExecutor as error:
                if number == ATTEMPTS - 1:
                    raise LostWorkerError(job.stage, str(error)) from None
            finally:
                workers.shut_down(pool)


class Dask:
    """A dask.distributed.Client."""

    ability = "submit"  # which a LocalCluster lacks

    def __init__(self, client: Any) -> None:
        require(client.status != "closed", "the Dask client is closed; connect a new one: Client(address)")
        self.client = client
        self.n_workers = sum(client.nthreads().values()) or 1

    def map(self, function: Callable[..., Any], items: Iterable[Any], job: Any, name: str) -> list[Any]:
        """Start tasks; return futures."""
        with lost_workers(job.stage):
            self.client.run(versions)  # a worker without bpe_more is an error here, and else would never answer
        # the job is a task, so it can be made again if all workers that have it are lost
        shared = self.client.submit(same, job, key=f"bpe-job-{uuid.uuid4()}")
        futures: list[Any] = self.client.map(function, items, job=shared, key=f"bpe-{name}", pure=False)
        return futures

    def run(self, work: Work, items: Iterable[Any], job: Any) -> Generator[Report, None, None]:
        """Yield the reports of tasks."""
        futures = self.map(functools.partial(attempt, work), items, job, job.stage)
        yield from self.results(futures, job.stage)

    def exchange(self, split: Work, join: Work, items: Iterable[Any], job: Any) -> Generator[Report, None, None]:
        """Yield the reports of tasks, between which workers exchange parts."""
        done = self.map(functools.partial(attempt_split, split), items, job, job.stage)
        # itemgetter runs where the parts are, so that a worker fetches only those that it joins
        places = map(operator.itemgetter, range(job.n_buckets + 1))
        reports, *parts = [self.client.map(place, done, key="bpe-part", pure=False) for place in places]
        joining = job._replace(stage="adding")
        joined = self.map(functools.partial(attempt, join), parts, joining, joining.stage)
        del done, parts  # a part is freed when it has been joined
        yield from self.results(reports, job.stage)
        yield from self.results(joined, joining.stage)

    def results(self, futures: list[Any], stage: str) -> Generator[Report, None, None]:
        """Yield results as they come."""
        distributed = package("distributed", "Dask")
        left = {future.key: future for future in futures}
        futures.clear()  # each result is freed when it has been used
        there = True
        try:
            while left:
                try:
                    for future in distributed.as_completed(list(left.values()), timeout=NO_WORKER_SECONDS):
                        with lost_workers(stage):
                            report = future.result()
                        del left[future.key], future
                        there = True
                        yield report
                except distributed.TimeoutError:  # Dask itself would wait forever
                    was_there, there = there, bool(self.client.nthreads())
                    text = f"Dask has had no worker for {NO_WORKER_SECONDS} seconds while {stage}"
                    if not was_there and not there:
                        raise RuntimeError(f"{text}; start workers, then this command again") from None
        finally:
            self.client.cancel(list(left.values()))


class Ray:
    """The module ray."""

    ability = "cluster_resources"

    def __init__(self, ray: Any) -> None:
        self.ray = ray
        self.n_workers = int(ray.cluster_resources().get("CPU", 1))

    def put(self, job: Any) -> Any:
        """Return a reference to a job, for tasks."""
        with lost_workers(job.stage):  # ray:// reads the job at the other end, where bpe_more may be missing
            return self.ray.put(job)

    def task(self, function: Callable[..., Any], stage: str, n_returns: int = 1) -> Any:
        """Return a function that starts tasks."""
        task = self.ray.remote(function)
        return task.options(name=f"bpe-{stage}", num_returns=n_returns, max_retries=ATTEMPTS - 1).remote

    def run(self, work: Work, items: Iterable[Any], job: Any) -> Generator[Report, None, None]:
        """Yield the reports of tasks."""
        task, shared = self.task(attempt, job.stage), self.put(job)
        yield from self.results((task(work, item, shared) for item in items), job.stage)

    def exchange(self, split: Work, join: Work, items: Iterable[Any], job: Any) -> Generator[Report, None, None]:
        """Yield the reports of tasks, between which workers exchange parts."""
        joining = job._replace(stage="adding")
        shared, shared_by_joining = self.put(job), self.put(joining)
        task = self.task(attempt_split, job.stage, job.n_buckets + 1)
        reports, *parts = zip(*(task(split, item, shared) for item in items))
        join_all = self.task(lambda job, *parts: attempt(join, parts, job), joining.stage)
        joined = [join_all(shared_by_joining, *of_bucket) for of_bucket in parts]
        del parts  # a part is freed when it has been joined
        yield from self.results(iter(reports), job.stage)
        yield from self.results(iter(joined), joining.stage)

    def results(self, references: Iterator[Any], stage: str) -> Generator[Report, None, None]:
        """Yield results as they come; start tasks while it does, four for each worker."""
        waiting: list[Any] = []
        try:
            while waiting := waiting + list(itertools.islice(references, 4 * self.n_workers - len(waiting))):
                with lost_workers(stage):
                    [ready], waiting = self.ray.wait(waiting)
                    report = self.ray.get(ready)
                yield report
        finally:
            for reference in waiting:
                self.ray.cancel(reference)


class Spark:
    """A SparkSession, or a SparkContext."""

    ability = "parallelize"

    def __init__(self, session: Any) -> None:
        self.context = getattr(session, "sparkContext", session)
        self.n_workers = self.context.defaultParallelism

    def run(self, work: Work, items: Sequence[Any], job: Any) -> Generator[Report, None, None]:
        """Yield the reports of tasks. Spark gives them when all tasks of a call are done, so there are many calls."""
        from concurrent.futures import ThreadPoolExecutor, as_completed

        shared, group = self.context.broadcast(job), f"bpe-{uuid.uuid4()}"

        def collect(some: Sequence[Any]) -> Any:
            self.context.setJobGroup(group, f"bpe-{job.stage}", True)
            tasks = self.context.parallelize(some, len(some))
            return tasks.map(lambda item: attempt(work, item, shared.value)).collect()

        pool = ThreadPoolExecutor(100)
        try:
            groups = [items[number::100] for number in range(min(100, len(items)))]
            for future in as_completed([pool.submit(collect, some) for some in groups]):
                with lost_workers(job.stage):
                    reports = future.result()
                yield from reports
        except BaseException:  # also if reports are no longer wanted
            self.context.cancelJobGroup(group)
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def exchange(self, split: Work, join: Work, items: Sequence[Any], job: Any) -> Generator[Report, None, None]:
        """Yield the reports of tasks, between which workers exchange parts."""
        shared = self.context.broadcast(job)

        def numbered_parts(item: Any) -> Any:
            return enumerate(attempt_split(split, item, shared.value))

        def reports_of(pair: tuple[int, Iterable[Any]]) -> Iterable[Any]:
            number, parts = pair  # the reports of split have the number 0
            return [attempt(join, parts, shared.value._replace(stage="adding"))] if number else parts

        parts = self.context.parallelize(items, len(items)).flatMap(numbered_parts)
        reports = parts.groupByKey(job.n_buckets + 1).flatMap(reports_of)
        reports.persist(package("pyspark", "Spark").StorageLevel.DISK_ONLY)
        with lost_workers(job.stage):
            reports.foreach(type)  # joins all parts, several at a time
            yield from reports.toLocalIterator()  # one by one
        reports.unpersist()


def same(job: Any) -> Any:
    """Return a job."""
    return job


ENGINES: dict[str, Any] = {"distributed": Dask, "ray": Ray, "pyspark": Spark}
