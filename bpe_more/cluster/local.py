"""Tasks in processes of this machine, which exchange nothing.

Gives: Local, an engine as engines.py describes it, without exchange().
Uses: tasks, workers.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Generator, Sequence
from typing import Any

from bpe_more import workers
from bpe_more.cluster.tasks import ATTEMPTS, LostWorkerError, Report, Work, attempt


class Local:
    """Processes of this machine. They exchange nothing: train() gives them a folder of counts."""

    exchange = None

    def __init__(self, workers: int) -> None:
        self.n_workers = workers

    def reports(self, work: Work, items: Sequence[Any], job: Any) -> Generator[Report, None, None]:
        """Yield the reports of tasks."""
        task: Any = functools.partial(attempt, work, job=job)
        left: list[Any] = list(items)
        for number in range(ATTEMPTS):
            try:
                # in processes, even if there is one task, which could end its process
                results = workers.outcomes_of_processes(task, iter(list(left)), min(self.n_workers, len(left)))
                with contextlib.closing(results):
                    for report, _ in results:
                        del left[0]
                        yield report
                return
            except RuntimeError as error:  # a worker process was killed; errors of tasks are in reports
                if number == ATTEMPTS - 1:
                    raise LostWorkerError(job.stage, str(error)) from None
