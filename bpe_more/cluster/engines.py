"""The engines that run tasks: processes of this machine, Dask, Ray and Spark. All calls of these packages are here.

Each engine is a class, and has

   ability                            an attribute of its clients that other objects of their package lack
   n_workers                          how many tasks can run at the same time
   reports(work, items, job)          yield the report of work(job, item) for each item, in any order. Tasks start when
                                      the first report is asked for
   exchange(split, join, items, job)  split(job, item) returns a list of job.n_buckets parts. join(job, parts) gets the
                                      parts of all items that have the same number. Yield the reports of both, without
                                      the lists. None if tasks can only exchange files

Gives: engine_of() a client, connected() to the URL in --cluster, Local.
Uses: choices, tasks, urls, errors, workers.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

import bpe
from bpe_more import choices, workers
from bpe_more.cluster.tasks import ATTEMPTS, Report, Work, attempt, attempt_split, lost_task, lost_workers, versions
from bpe_more.cluster.urls import errors_of
from bpe_more.errors import package, require

SCHEDULER_SECONDS = 5  # how long Dask may have no scheduler at the start
NO_WORKER_SECONDS = 60  # how long it may have no worker at all
MOST_CALLS = 100  # of Spark at the same time


class Local:
    """Processes of this machine."""

    exchange = None

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers

    def reports(self, work: Work, items: Sequence[Any], job: Any) -> Generator[Report, None, None]:
        """Yield the reports of tasks."""
        task: Any = functools.partial(attempt, work, job=job)
        n_done = 0
        for number in range(ATTEMPTS):
            try:
                # even a single task has a process, which it could end
                with bpe.worker_processes(task, min(self.n_workers, len(items) - n_done)) as connections:
                    left = iter(items[n_done:])
                    for report in bpe.share_out(left, connections) if connections else map(task, left):
                        n_done += 1
                        yield report
                return
            except RuntimeError as error:  # a process was killed; an error of a task is in its report
                if number == ATTEMPTS - 1:
                    raise lost_task(job.stage, error) from None


class Dask:
    """A dask.distributed.Client."""

    ability = "submit"

    def __init__(self, client: Any) -> None:
        require(client.status != "closed", "the Dask client is closed; connect a new one: Client(address)")
        self.client = client
        self.n_workers = sum(client.nthreads().values()) or 1

    def map(self, function: Callable[..., Any], items: Iterable[Any], job: Any) -> list[Any]:
        """Start tasks; return futures."""
        with lost_workers(job.stage):
            self.client.run(versions)  # a worker without bpe_more is an error here, and else would never answer
        # a task returns the job, so it can be made again if all workers that have it are lost
        shared = self.client.submit(lambda job: job, job, key=f"bpe-job-{uuid.uuid4()}")
        futures: list[Any] = self.client.map(function, items, job=shared, key=f"bpe-{job.stage}", pure=False)
        return futures

    def reports(self, work: Work, items: Iterable[Any], job: Any) -> Generator[Report, None, None]:
        """Yield the reports of tasks."""
        futures = self.map(functools.partial(attempt, work), items, job)
        yield from self.results(futures, job.stage)

    def exchange(self, split: Work, join: Work, items: Iterable[Any], job: Any) -> Generator[Report, None, None]:
        """Yield the reports of tasks, between which workers exchange parts."""
        done = self.map(functools.partial(attempt_split, split), items, job)
        # itemgetter runs where the parts are, so that a worker fetches only those that it joins
        places = map(operator.itemgetter, range(job.n_buckets + 1))
        reports, *parts = [self.client.map(place, done, key="bpe-part", pure=False) for place in places]
        joining = job._replace(stage="adding")
        joined = self.map(functools.partial(attempt, join), parts, joining)
        del done, parts  # a part is freed when it has been joined
        yield from self.results(reports, job.stage)
        yield from self.results(joined, joining.stage)

    def results(self, futures: list[Any], stage: str) -> Generator[Report, None, None]:
        """Yield results as they come."""
        distributed = package("distributed", "Dask")
        left = {future.key: future for future in futures}
        futures.clear()  # each result is freed when it has been used
        has_workers = True
        try:
            while left:
                try:
                    for future in distributed.as_completed(list(left.values()), timeout=NO_WORKER_SECONDS):
                        with lost_workers(stage):
                            report = future.result()
                        del left[future.key], future
                        has_workers = True
                        yield report
                except distributed.TimeoutError:  # without it, Dask would wait forever for workers
                    had_workers, has_workers = has_workers, bool(self.client.nthreads())
                    text = f"Dask has had no worker for {NO_WORKER_SECONDS} seconds while {stage}"
                    if not had_workers and not has_workers:
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

    def reports(self, work: Work, items: Iterable[Any], job: Any) -> Generator[Report, None, None]:
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

    def reports(self, work: Work, items: Sequence[Any], job: Any) -> Generator[Report, None, None]:
        """Yield the reports of tasks. Spark gives them when all tasks of a call are done, so there are many calls."""
        from concurrent.futures import ThreadPoolExecutor, as_completed

        shared, group = self.context.broadcast(job), f"bpe-{uuid.uuid4()}"

        def collect(some: Sequence[Any]) -> Any:
            self.context.setJobGroup(group, f"bpe-{job.stage}", True)
            tasks = self.context.parallelize(some, len(some))
            return tasks.map(lambda item: attempt(work, item, shared.value)).collect()

        pool = ThreadPoolExecutor(MOST_CALLS)
        try:
            groups = [items[number::MOST_CALLS] for number in range(min(MOST_CALLS, len(items)))]
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
            reports.count()  # joins all parts, several at a time
            yield from reports.toLocalIterator()  # one by one
        reports.unpersist()


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


ENGINES: dict[str, Any] = {"distributed": Dask, "ray": Ray, "pyspark": Spark}
