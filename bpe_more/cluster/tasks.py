"""Tasks of a cluster: what each one reports, and how errors, lost workers and progress are handled for all engines.

A job is what all tasks need. It is sent once to each worker, and has a `stage`, which is a key of WAYS.

Gives: attempt() and attempt_split(), which run in workers; Report; watched(), which gives the driver the results.
Uses: choices, corpus.progress, errors.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import socket
import sys
import unicodedata
import warnings
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

import regex

import bpe
from bpe_more import choices
from bpe_more.corpus import progress
from bpe_more.errors import require

ATTEMPTS = 4  # for a task whose worker is killed
WAYS = {  # for each stage, what helps if there is too little memory
    "counting": "give smaller tasks (task_bytes=, --task-bytes)",
    "adding": "give more buckets (buckets=, --buckets)",
    "encoding": "divide the largest files",
    "learning": "raise min_word_count (--min-word-count)",
}
ERRORS = OSError, ValueError, TypeError, ImportError, MemoryError, OverflowError
Work = Callable[[Any, Any], "Report"]


class Report(NamedTuple):
    """What a task did, or its error."""

    result: Any = None
    n_bytes: int = 0
    n_words: int = 0  # or ids
    error: Exception | None = None
    stage: str = ""
    host: str = ""
    lacks: str = ""  # why the worker has no C engine


def attempt(work: Work, item: Any, job: Any) -> Report:
    """Return work(job, item), or a report of its error, because engines wrap exceptions, each in its own way."""
    host = socket.gethostname()
    try:
        for ours, theirs in zip(versions(), job.versions):
            require(ours == theirs, "this worker has {}, the driver {}; use the same everywhere", ours, theirs)
        with memory_hint(job.stage):
            report = work(job, item)
        return report._replace(stage=job.stage, host=host, lacks=choices.find_engine()[1])
    except Exception as error:
        # the driver may be unable to unpickle an exception of another package
        kind: type[Exception] = next((kind for kind in ERRORS if isinstance(error, kind)), RuntimeError)
        text = re.sub(r"^\[Errno \d+\] ", "", str(error)) or repr(error)
        return Report(error=kind(f"{text} (worker {host}, process {os.getpid()})"))


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
    """Turn the errors of an engine into the one of lost_task(). Those of tasks are in reports."""
    try:
        yield
    except Exception as error:
        raise lost_task(stage, error) from None


def lost_task(stage: str, error: Exception) -> RuntimeError:
    """Return the error for a task that an engine has given up."""
    text = " ".join(str(error).split())
    if missing := re.search(r"No module named '[^']+'", text):  # far down in Spark's text
        return RuntimeError(f"{missing[0]}; all workers need the same bpe.py, with bpe_more")
    way = f"if its worker ran out of memory, {WAYS[stage]}"
    return RuntimeError(f"a task failed {ATTEMPTS} times while {stage} ({text[:300] or repr(error)}); {way}")


def watched(reports: Generator[Report, None, None], n_tasks: dict[str, int], options: choices.Options) -> Iterator[Any]:
    """Yield the results of tasks; show progress, raise their errors, and warn of workers without C."""
    stage = next(iter(n_tasks))
    done = dict.fromkeys(n_tasks, 0)
    n_bytes = n_words = 0
    slow: set[str] = set()  # hosts

    def describe(_: int) -> tuple[str, float, float, str]:
        unit = "ids" if stage == "encoding" else "words"
        text = f"{stage}, {n_bytes / 1e6:,.0f} MB, {n_words:,} {unit}{memory_of_driver()}"
        return text, done[stage], n_tasks[stage], " tasks"

    with contextlib.closing(reports):  # which ends other tasks after an error
        for report in progress.with_progress(reports, options.progress, describe):
            if report.error is not None:
                raise report.error
            stage = report.stage
            done[stage] += 1
            n_bytes += report.n_bytes
            n_words += report.n_words
            if report.lacks and options.engine == "auto" and report.host not in slow:
                slow.add(report.host)
                warnings.warn(f"worker {report.host} is slower, with the same result: {report.lacks}", stacklevel=3)
            if report.result is not None:
                yield report.result


def memory_of_driver() -> str:
    """Return the peak memory of this process, for progress."""
    try:
        resource: Any = importlib.import_module("resource")
    except ImportError:  # Windows
        return ""
    unit = 1 if sys.platform == "darwin" else 1 << 10
    return f"; driver {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6:,.0f} MB"
