"""Which engine runs the tasks: the one of a client, or of the URL in --cluster.

Each engine is a class in its own file; the comment below says what they have in common.

Gives: engine_of(), connected().
Uses: choices, dask, local, ray, spark, urls, errors, workers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from bpe_more import choices, workers
from bpe_more.cluster.dask import Dask
from bpe_more.cluster.local import Local
from bpe_more.cluster.ray import Ray
from bpe_more.cluster.spark import Spark
from bpe_more.cluster.urls import errors_of
from bpe_more.errors import package, require

SCHEDULER_SECONDS = 5  # how long Dask may have no scheduler at the start

# Each engine is a class in its own file, and has
#
#    n_workers                         how many tasks can run at the same time
#    reports(work, items, job)         yield the report of work(job, item) for each item, in any order. Tasks start when
#                                      the first report is asked for
#    exchange(split, join, items, job) split(job, item) returns a list of job.n_buckets parts. join(job, parts) gets the
#                                      parts of all items that have the same number. Yield the reports of both, without
#                                      the lists


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
