"""Tasks in processes of this machine, which exchange nothing.

Gives: Local, an engine as engines.py describes it, without exchange().
Uses: tasks, errors, workers.
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Sequence
from typing import Any

from bpe_more import workers
from bpe_more.cluster.tasks import ATTEMPTS, LostWorkerError, Report, Work, attempt
from bpe_more.errors import all_delayed


class Local:
    """Processes of this machine. They exchange nothing: train() gives them a folder of counts."""

    exchange = None

    def __init__(self, workers: int) -> None:
        self.n_workers = workers

    def reports(self, work: Work, items: Sequence[Any], job: Any) -> Generator[Report, None, None]:
        """Yield the reports of tasks."""
        with all_delayed():
            from concurrent.futures import BrokenExecutor
        task: Any = functools.partial(attempt, work, job=job)
        left: list[Any] = list(items)
        for number in range(ATTEMPTS):
            if not left:
                return
            with all_delayed():
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
