"""Training on the command line, and what other tasks do, too: checks of files, counting, saving.

Gives: train(); expand_corpus(), check_names(), check_model(), check_folder(), count(), save(). It imports explain for
the options --explain and --compare only.
Uses: choices, arguments, summary, corpus.counting, corpus.inputs, corpus.reading, errors, explain, formats.gpt2,
formats.saving, outputs, training.
"""

from __future__ import annotations

import errno
import itertools
import os
import warnings
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import bpe
from bpe_more import choices, outputs, training
from bpe_more.command import arguments, summary
from bpe_more.corpus import counting, inputs, reading
from bpe_more.errors import plural, require
from bpe_more.formats import saving
from bpe_more.formats.gpt2 import MergeIds


def expand_corpus(args: Namespace) -> None:
    """Replace folders and patterns of names in a corpus by their files; refuse options that these have no use for."""
    args.corpus = inputs.expanded(args.corpus)
    for name in ("counts", "buckets", "task_bytes"):
        require(getattr(args, name) is None, "--{} needs --cluster", name.replace("_", "-"))
    if args.column is not None:
        reading.refuse_useless_column(args.corpus, choices.Options(column=args.column), is_given=True)


def check_names(paths: Iterable[str]) -> None:
    """Refuse folders and missing files; Corpus does that, too, but its errors are for Python."""
    for path in paths:
        inputs.check_path(path)
        if os.path.isdir(path):
            raise ValueError(f"{path} is a folder; name its files ({inputs.glob_for(path)})")
        if path.lower().endswith((".csv", ".tsv")):
            warnings.warn(f"{path} was read as plain text, with all columns; for one column, convert it to Parquet "
                          "(docs/data.md), and name it: --column text", stacklevel=2)
        if path not in outputs.STDIN:
            os.stat(path)


def train(args: Namespace, vocab_size: int | None) -> bool:
    """Train, print what was learned, save the model; return whether --compare agrees."""
    given = arguments.given_options(args, arguments.TRAINING)
    options = choices.Options(**given, vocab_size=vocab_size).checked()
    check_names(args.corpus)
    corpus = reading.Corpus(args.corpus, None, options)
    explains = args.explain is not None or args.compare is not None
    if explains:  # most runs don't need it
        from bpe_more import explain

    rounds = explain.rounds_of(args.explain) if args.explain is not None else range(0)
    kind, theirs = explain.read_pairs(args.compare) if args.compare is not None else ("", [])
    folder = None
    if not explains or args.model is not None:  # --explain and --compare alone save no model
        folder = arguments.model_folder(args)
        check_model(folder, options, corpus.paths if args.compare is None else [*corpus.paths, args.compare])
    special_ids = dict(zip(options.special_tokens, itertools.count(256)))
    table, n_bytes = count(args, corpus, special_ids)

    words = frequent_words(table, options) if explains else {}  # learning uses up the table
    learned = list(counting.learn_with_progress(table, options))
    vocab, pairs = training.model_of(learned, options)
    merges = MergeIds.of(pairs, dict(zip(vocab.values(), vocab)))
    n_tokens = n_bytes - sum(replaced for _, _, _, replaced in learned)
    same = True
    if theirs:
        summary.report(args, "compared", f"{args.compare}, {plural(len(theirs), 'merge')} {kind}")
        same = explain.compare(theirs, words, pairs)
    if rounds:
        explain.explain(rounds, words, pairs)
    summary.report(args, "vocabulary", summary.sizes(options, len(vocab), len(merges)))
    summary.report(args, "compression", f"{n_bytes / n_tokens:.2f} bytes per token in these pre-tokens")
    summary.report(args, "note", summary.forgotten_note(learned))
    if folder is None:
        task = "--explain" if rounds else "--compare"
        summary.report(args, "saved", f"nothing: {task} saves a model only with --model FOLDER")
    else:
        save(args, folder, (vocab, merges, special_ids, options.pattern))
    summary.report_engine(args, options)
    return same


def check_model(folder: str, options: choices.Options, paths: Sequence[bpe.FilePath]) -> None:
    """Refuse special tokens or a folder that can't be saved, before an hour of training."""
    saving.check_special_names(options.special_tokens)
    check_folder(folder, paths)


def check_folder(folder: str, inputs: Sequence[bpe.FilePath]) -> None:
    """Refuse a folder in which no model can be saved."""
    require(folder and not os.path.isfile(folder), f"--model must name a folder, not {folder!r}")
    outputs.check_outputs(saving.model_files(folder), inputs)
    place = os.path.realpath(folder)
    while not os.path.exists(place):  # save() makes missing folders
        place = os.path.dirname(place)
    if not os.access(place, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), place)


def count(args: Namespace, corpus: reading.Corpus, special_ids: Mapping[str, int]) -> tuple[Any, int]:
    """Count words, and say how many; return the table, and the bytes in words that are frequent enough."""
    table = corpus.count()
    all_distinct, all_words, _ = table.totals()
    distinct, n_words, n_bytes = table.totals(corpus.options.min_word_count)
    require(n_words, "no words are left to learn from; nothing was saved")
    summary.report(args, "read", plural(corpus.bytes_read, "byte"))
    if special_ids:
        named = ", ".join(f"{token} {token_id}" for token, token_id in special_ids.items())
        summary.report(args, "special tokens", named)
    if rare := all_distinct - distinct:
        share = f"{(all_words - n_words) / all_words:.2%}"
        summary.report(args, "left out", f"{plural(rare, 'word')}, {share} of pre-tokens")
    summary.report(args, "pre-tokens", f"{n_words:,}, {distinct:,} of them distinct")
    return table, n_bytes


def frequent_words(table: counting.WordTable, options: choices.Options) -> dict[bytes, int]:
    """Return the words of a table that are learned from, and their counts."""
    return {word: count for word, count in table.copy().items() if count >= options.min_word_count}


def save(args: Namespace, folder: str, model: tuple[Any, Any, Any, Any], settings: Mapping[str, Any] | None = None,
         source: str | None = None) -> None:
    """Save a model; if that fails, save it in a temporary folder, so that no training is lost."""

    def save_in(place: str) -> str:
        return saving.save_model(*model, place, settings or {}, {}, source=source)

    try:
        summary.report(args, "note", save_in(folder))
    except (OSError, ValueError) as error:  # ValueError: a folder has a file's name, say
        if hasattr(error, "kept"):  # the finished files are there, and the error names them
            raise
        import tempfile

        try:
            elsewhere = tempfile.mkdtemp(prefix="bpeModel-")
            save_in(elsewhere)
        except (OSError, ValueError) as second:
            raise OSError(f"{error}; the model is lost, because there, too: {second}") from None
        raise OSError(f"{error}; the model is in {elsewhere}") from None
    summary.report(args, "saved", folder)
