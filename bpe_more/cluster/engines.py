"""What an engine has; which one a client means; opens the client of a URL; the engine for processes of this machine.

Each engine is a class, and has

   ability                            an attribute of its clients that other objects of their package lack
   n_workers                          how many tasks can run at the same time
   reports(work, items, job)          yield the report of work(job, item) for each item, in any order. Tasks start when
                                      the first report is asked for
   exchange(split, join, items, job)  split(job, item) returns a list of job.n_buckets parts. join(job, parts) gets the
                                      parts of all items that have the same number. Yield the reports of both, without
                                      the lists. None if tasks can only exchange files

Gives: engine_of() a client, connected() to the URL in --cluster, Local.
Uses: choices, dask, ray, spark, tasks, urls, errors, workers.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import bpe
from bpe_more import choices, workers
from bpe_more.cluster.dask import Dask
from bpe_more.cluster.ray import Ray
from bpe_more.cluster.spark import Spark
from bpe_more.cluster.tasks import ATTEMPTS, Report, Work, attempt, lost_task
from bpe_more.cluster.urls import errors_of
from bpe_more.errors import package, require

SCHEDULER_SECONDS = 5  # how long Dask may have no scheduler at the start


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
