"""Tasks on the workers of Spark; engines.py opens the session that a URL names.

Gives: Spark, an engine as engines.py describes it.
Uses: tasks, errors.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterable, Sequence
from typing import Any

from bpe_more.cluster.tasks import Report, Work, attempt, attempt_split, lost_workers
from bpe_more.errors import package

MOST_CALLS = 100  # of Spark at the same time


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
