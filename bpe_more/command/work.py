"""Training on the command line, and what other tasks do, too: checks of folders, counting, saving.

Gives: train() and train_on_cluster(); check_folder(), count() and save(), for --extend. It imports cluster and explain
for their options only.
Uses: choices, cluster, cluster.engines, cluster.urls, arguments, summary, corpus.counting, corpus.reading, errors,
explain, formats.gpt2, formats.saving, outputs, training.
"""

from __future__ import annotations

import errno
import itertools
import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

import bpe
from bpe_more import choices, outputs, training
from bpe_more.command import arguments, summary
from bpe_more.corpus import counting, reading
from bpe_more.errors import require
from bpe_more.formats import saving
from bpe_more.formats.gpt2 import MergeIds


def train(args: Namespace, vocab_size: int) -> bool:
    """Train, print what was learned, save the model; return whether --compare agrees."""
    given = arguments.given_options(args, arguments.TRAINING)
    options = choices.Options(**given, vocab_size=vocab_size).checked()
    corpus = reading.Corpus(args.corpus, None, options)
    if args.explains:  # most runs don't need it
        from bpe_more import explain

    rounds = explain.rounds_of(args.explain) if args.explain is not None else range(0)
    kind, theirs = explain.read_pairs(args.compare) if args.compare is not None else ("", [])
    if args.saves:
        check_model(args, options, corpus.paths if args.compare is None else [*corpus.paths, args.compare])
    special_ids = dict(zip(options.special_tokens, itertools.count(256)))
    table, n_bytes = count(args, corpus, special_ids)

    words = {}
    if args.explains:  # copied, since learning uses up the table
        words = {word: n for word, n in table.copy().items() if n >= options.min_word_count}
    learned = list(counting.learn_with_progress(table, options))
    vocab, pairs = training.model_of(learned, options)
    merges = MergeIds.of(pairs, dict(zip(vocab.values(), vocab)))
    n_tokens = n_bytes - sum(replaced for _, _, _, replaced in learned)
    same = True
    if theirs:
        summary.report(args, "compared", f"{args.compare}, {bpe.plural(len(theirs), 'merge')} {kind}")
        same = explain.compare(theirs, words, pairs)
    if rounds:
        explain.explain(rounds, words, pairs)
    summary.report(args, "vocabulary", summary.sizes(options, len(vocab), len(merges)))
    summary.report(args, "compression", f"{n_bytes / n_tokens:.2f} bytes per token in these pre-tokens")
    summary.report(args, "note", summary.forgotten_note(learned))
    if args.saves:
        save(args, (vocab, merges, special_ids, options.pattern))
    else:
        task = "--explain" if rounds else "--compare"
        summary.report(args, "saved", f"nothing: {task} saves a model only with --model FOLDER")
    summary.report(args, "engine", summary.engine_used(options))
    return same


def train_on_cluster(args: Namespace, vocab_size: int) -> None:
    """Train with --cluster, and save the model here."""
    from bpe_more import cluster
    from bpe_more.cluster import engines, urls

    given = arguments.given_options(args, arguments.TRAINING)
    options = choices.Options(**given, vocab_size=vocab_size).checked()
    paths = [urls.place_of(file.path) for file in urls.files_of(args.corpus)]
    if args.counts is not None:
        paths += cluster.counts_files(args.counts, len(paths))
    check_model(args, options, paths)
    given |= {"counts": args.counts, "buckets": args.buckets, "task_bytes": args.task_bytes}
    with engines.connected(args.cluster) as client:
        tokenizer = cluster.train(client, args.corpus, vocab_size, **given)
    specials = bpe.plural(len(options.special_tokens), "special token")
    merges = bpe.plural(len(tokenizer.merge_ids), "merge")
    summary.report(args, "vocabulary", f"{len(tokenizer):,} = 256 bytes + {specials} + {merges}")
    save(args, (tokenizer.vocab, tokenizer.merge_ids, tokenizer.special_ids, tokenizer.pattern))


def check_model(args: Namespace, options: choices.Options, paths: Sequence[bpe.FilePath]) -> None:
    """Refuse special tokens or a folder that can't be saved, before an hour of training."""
    saving.check_special_names(options.special_tokens, options.pattern)
    check_folder(args.model, paths)


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
    summary.report(args, "read", bpe.plural(corpus.bytes_read, "byte"))
    if special_ids:
        named = ", ".join(f"{token} {token_id}" for token, token_id in special_ids.items())
        summary.report(args, "special tokens", named)
    if rare := all_distinct - distinct:
        share = f"{(all_words - n_words) / all_words:.2%}"
        summary.report(args, "left out", f"{bpe.plural(rare, 'word')}, {share} of pre-tokens")
    summary.report(args, "pre-tokens", f"{n_words:,}, {distinct:,} of them distinct")
    return table, n_bytes


def save(args: Namespace, model: tuple[Any, Any, Any, Any], settings: Mapping[str, Any] | None = None,
         source: str | None = None) -> None:
    """Save a model; if that fails, save it in a temporary folder, so that no training is lost."""

    def save_in(place: str) -> str:
        return saving.save_model(*model, place, settings or {}, {}, source=source)

    try:
        summary.report(args, "note", save_in(args.model))
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
    summary.report(args, "saved", args.model)
