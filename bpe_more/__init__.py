"""Byte-pair encoding for real work: all options, data, clusters, and models of other programs, on top of bpe.py.

What bpe.py accepts, this package accepts, with the same result. Its files, each of which uses only earlier ones:

    signals     signals that wait until a block is done
    workers     tasks in threads or processes
    checks      errors and warnings
    patterns    a pattern as an automaton
    machine     the automaton as tables for C, and a machine that is faster
    engine      the engine in C with tables of words and encoders
    steps       patterns in several steps, and limits for patterns of strangers
    choices     what a user can choose, and how it is checked
    slicing     where text may be cut
    inputs      inputs that can't be read as they are
    outputs     files that are whole or not there
    data        columns of Arrow, Parquet, JSON Lines, and compressed files
    corpora     counting and encoding on all cores, with progress
    training    train_bpe, count_words and train_from_counts
    kinds       models of Mistral and minbpe, and what other files are
    formats     files of other programs: tokenizer.json, .tiktoken, transformers' settings
    encoders    encoding in Python
    changes     more tokens from new text, other names for special tokens, fewer tokens
    models      the class Tokenizer
    explain     --show, --explain and --compare
    urls        files of this machine, and those that URLs name
    tasks       tasks on the workers of Dask, Ray and Spark, or in processes of this machine
    counts      counts of words as bytes, and files of them
    cluster     training and encoding on a cluster
    command     the command line
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bpe import PATTERNS, find_engine
    from bpe_more.command import main
    from bpe_more.formats import read_tiktoken
    from bpe_more.models import Tokenizer
    from bpe_more.steps import find_words
    from bpe_more.training import count_words, train_bpe, train_from_counts

__all__ = [
    "PATTERNS", "Tokenizer", "count_words", "find_engine", "find_words", "main", "read_tiktoken", "train_bpe",
    "train_from_counts",
]  # fmt: skip

HOMES = {
    "PATTERNS": "bpe", "find_engine": "bpe", "Tokenizer": "bpe_more.models", "count_words": "bpe_more.training",
    "find_words": "bpe_more.steps", "main": "bpe_more.command", "read_tiktoken": "bpe_more.formats",
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
