"""Tasks on the workers of Ray; engines.py connects to the cluster that a URL names.

Gives: Ray, an engine as engines.py describes it.
Uses: tasks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from bpe_more.cluster.tasks import ATTEMPTS, Report, Work, attempt, attempt_split, lost_workers


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
