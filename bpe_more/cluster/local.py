"""Tasks in processes of this machine, which exchange nothing.

Gives: Local, an engine as engines.py describes it, without exchange().
Uses: tasks.
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Sequence
from typing import Any

import bpe
from bpe_more.cluster.tasks import ATTEMPTS, LostWorkerError, Report, Work, attempt


class Local:
    """Processes of this machine. They exchange nothing: train() gives them a folder of counts."""

    exchange = None

    def __init__(self, workers: int) -> None:
        self.n_workers = workers

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
                    raise LostWorkerError(job.stage, str(error)) from None
