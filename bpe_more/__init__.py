"""Byte-pair encoding for real work: all options, data, clusters, and models of other programs, on top of bpe.py.

What bpe.py accepts, this package accepts, with the same result. Its rooms, each of which uses only those after it:

    command       the command line
    cluster       training and encoding on a cluster
    explain       --show, --explain and --compare
    tokenizer     the class Tokenizer, its encoders in Python, and changes of a model
    training      train_bpe, count_words and train_from_counts
    corpus        files, pipes, texts and columns, counted and encoded on all cores
    formats       files of models, those of other programs, too
    choices       what a user can choose, how it is checked, and the engine that it means
    engine        the engine in C with tables of words and encoders
    patterns      how text is split into words, as regex does it, and as tables for C
    outputs       files that are whole or not there
    workers       tasks in threads or processes
    errors        errors, warnings, and signals that wait
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bpe import PATTERNS, find_engine
    from bpe_more.command import main
    from bpe_more.formats.tiktoken import read_tiktoken
    from bpe_more.patterns.steps import find_words
    from bpe_more.tokenizer import Tokenizer
    from bpe_more.training import count_words, train_bpe, train_from_counts

__all__ = [
    "PATTERNS", "Tokenizer", "count_words", "find_engine", "find_words", "main", "read_tiktoken", "train_bpe",
    "train_from_counts",
]  # fmt: skip

HOMES = {
    "PATTERNS": "bpe", "find_engine": "bpe", "Tokenizer": "bpe_more.tokenizer", "count_words": "bpe_more.training",
    "find_words": "bpe_more.patterns.steps", "main": "bpe_more.command", "read_tiktoken": "bpe_more.formats.tiktoken",
    "train_bpe": "bpe_more.training", "train_from_counts": "bpe_more.training",
}  # fmt: skip


__version__ = "0.9.0"  # that of bpe.py, which __getattr__ checks


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: bpe.py, which loads bpe_more.engine, needs none of them.

    Raises ImportError if `import bpe` finds another version than that of this package, or another project's module.
    """
    import importlib

    if name not in HOMES:
        raise AttributeError(f"module 'bpe_more' has no attribute {name!r}")
    found = importlib.import_module("bpe")
    version = getattr(found, "__version__", "without a version")
    if version != __version__:
        what = f"{version}: {getattr(found, '__file__', None)}"
        raise ImportError(f"bpe_more {__version__} needs bpe.py {__version__}, but `import bpe` finds {what}")
    return getattr(importlib.import_module(HOMES[name]), name)
