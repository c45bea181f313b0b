"""Tasks on the workers of Dask; engines.py opens the client that a URL names.

Gives: Dask, an engine as engines.py describes it.
Uses: tasks, errors.
"""

from __future__ import annotations

import functools
import operator
import uuid
from collections.abc import Callable, Generator, Iterable
from typing import Any

from bpe_more.cluster.tasks import Report, Work, attempt, attempt_split, lost_workers, versions
from bpe_more.errors import package, require

NO_WORKER_SECONDS = 60  # how long there may be no worker at all


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
        shared = self.client.submit(unchanged, job, key=f"bpe-job-{uuid.uuid4()}")
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


def unchanged(job: Any) -> Any:
    """Return a job. Workers get this function by its name: the bytecode of another Python could crash them."""
    return job
