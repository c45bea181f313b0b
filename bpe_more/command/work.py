"""The tasks of the command line: training a model, extending one, and the files that they need.

Gives: train(), extend(), load_model(), check_names(), check_folder().
Uses: choices, summary, corpus.counting, corpus.inputs, corpus.reading, errors, explain, formats.kinds,
formats.saving, outputs, tokenizer, tokenizer.changes, training.
"""

from __future__ import annotations

import errno
import itertools
import operator
import os
import warnings
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import bpe
from bpe_more import choices, explain, outputs, training
from bpe_more.command import summary
from bpe_more.corpus import counting, inputs, reading
from bpe_more.errors import plural, require
from bpe_more.formats import kinds, saving
from bpe_more.tokenizer import Tokenizer


def check_names(paths: Iterable[str]) -> None:
    """Refuse folders and missing files; Corpus does that, too, but its errors are for Python."""
    for path in paths:
        inputs.check_path(path)
        if os.path.isdir(path):
            raise ValueError(f"{path} is a folder; name its files ({inputs.files_in(path)})")
        if path.lower().endswith((".csv", ".tsv")):
            warnings.warn(f"{path} was read as plain text, with all columns; for one column, convert it to Parquet "
                          "(docs/data.md), and name it: --column text", stacklevel=2)
        if path not in outputs.STDIN:
            os.stat(path)


def load_model(args: Namespace) -> Tokenizer:
    """Load the model that the command line names."""
    folder = "bpeModel" if args.model is None else args.model
    require(os.path.exists(folder), f"no model in {folder}: train one first, or name it with --model")
    return Tokenizer.load(folder)


def files_read(model: str | None) -> list[bpe.FilePath]:
    """Return the paths of a model's files, which no output may replace: load() and --extend read some of them."""
    path = kinds.model_path("bpeModel" if model is None else model)
    return [path, *saving.model_files(os.path.dirname(path))]


def train(args: Namespace, options: choices.Options) -> tuple[reading.Corpus, bool]:
    """Train, print what was learned, save the model; return the corpus, and whether --compare agrees."""
    check_names(args.corpus)
    corpus = reading.Corpus(args.corpus, None, options)
    rounds = explain.rounds_of(args.explain) if args.explain is not None else range(0)
    kind, theirs = explain.read_pairs(args.compare) if args.compare is not None else ("", [])
    # --explain and --compare alone save no model
    folder = "bpeModel" if args.model is None and not rounds and not theirs else args.model
    if folder is not None:  # fail before an hour of training
        saving.check_special_names(options.special_tokens)
        check_folder(folder, corpus.paths if args.compare is None else [*corpus.paths, args.compare])
    special_ids = dict(zip(options.special_tokens, itertools.count(256)))
    table, n_bytes = count(args, corpus, special_ids)
    least = options.min_word_count

    words: dict[bytes, int] = {}
    if rounds or theirs:  # learn() uses up the table
        words = {word: count for word, count in table.copy().items() if count >= least}
    learned = list(counting.learn_with_progress(table, options))
    vocab, merges = training.model_of(learned, options)
    n_tokens = n_bytes - sum(replaced for _, _, _, replaced in learned)
    same = True
    if theirs:
        summary.report(args, "compared", f"{args.compare}, {plural(len(theirs), 'merge')} {kind}")
        same = explain.compare(theirs, words, merges)
    if rounds:
        explain.explain(rounds, words, merges)

    summary.report(args, "vocabulary", summary.sizes(options, len(vocab), len(merges)))
    summary.report(args, "compression", f"{n_bytes / n_tokens:.2f} bytes per token in these pre-tokens")
    if note := summary.forgotten_note(learned):
        summary.report(args, "note", note)
    model = vocab, merges, special_ids, options.pattern
    if folder is not None and (note := save_somewhere(model, folder)):
        summary.report(args, "note", note)
    task = "--explain" if rounds else "--compare"
    nothing = f"nothing: {task} saves a model only with --model FOLDER"
    summary.report(args, "saved", nothing if folder is None else folder)
    return corpus, same


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


def extend(args: Namespace, n_tokens: int, given: Mapping[str, Any], progress: bool) -> reading.Corpus:
    """Learn more tokens for a model; save it, with its settings for transformers, elsewhere; return the corpus."""
    from bpe_more.tokenizer import changes

    tokenizer = Tokenizer.load(args.extend)
    source = os.path.dirname(kinds.model_path(args.extend))
    folder = "bpeModel" if args.model is None else args.model
    check_names(args.corpus)
    corpus = tokenizer.corpus_of(args.corpus, None, progress=progress, **given)
    is_other = os.path.realpath(folder) != os.path.realpath(source)
    require(is_other, "--model must name another folder than that of the old model")
    check_folder(folder, [*corpus.paths, *files_read(args.extend)])
    check_stale_files(folder, source)
    table, n_bytes = count(args, corpus, {})
    words = changes.encode_words(tokenizer, table, corpus.options)
    learned = list(changes.learn_more(words, n_tokens, corpus.options))
    new = changes.with_merges(tokenizer, learned)
    n_before = sum(map(operator.mul, words.n_ids, words.counts))
    n_after = n_before - sum(replaced for _, _, _, replaced in learned)
    parts = f"{len(tokenizer):,} + {plural(len(learned), 'new token')}"
    if len(learned) < n_tokens:
        parts += f"; {n_tokens:,} requested, but no other pair has a count of {corpus.options.min_frequency} or more"
    summary.report(args, "old model", summary.description(tokenizer, args.extend))
    summary.report(args, "vocabulary", f"{len(new):,} = {parts}")
    text = f"{n_bytes / n_after:.2f} bytes per token in these pre-tokens, {n_bytes / n_before:.2f} before"
    summary.report(args, "compression", text)
    if words.n_left_out:
        summary.report(args, "left out", f"{plural(words.n_left_out, 'byte')} without a token in this vocabulary")
    notes = [summary.separators_note(args.corpus, tokenizer.special_ids)]
    if new.id_bytes > tokenizer.id_bytes:
        notes.append("ids beyond 65,535: arrays of them are uint32 now")
    model = new.vocab, new.merges, new.special_ids, new.pattern
    notes.append(save_somewhere(model, folder, new.settings(), source))
    for note in filter(None, notes):
        summary.report(args, "note", note)
    summary.report(args, "saved", folder)
    return corpus


def check_stale_files(folder: str, source: str) -> None:
    """Refuse files for transformers that would stay in a folder, and that the old model doesn't have."""
    for name in ("special_tokens_map.json", "added_tokens.json", "chat_template.jinja"):
        path = os.path.join(folder, name)
        is_stale = os.path.exists(path) and not os.path.exists(os.path.join(source, name))
        require(not is_stale, "{} is of another model: remove it, or name another folder with --model", path)


def save_somewhere(model: tuple[Any, Any, Any, Any], folder: str, settings: Any = None,
                   source: str | None = None) -> str:
    """Save a model; if that fails, save it in a temporary folder, so that no training is lost.

    Return the note of save_model().
    """
    settings = settings or {}
    try:
        return saving.save_model(*model, folder, settings, {}, source=source)
    except (OSError, ValueError) as error:  # ValueError: a folder has a file's name, say
        if hasattr(error, "kept"):  # the finished files are there, and the error names them
            raise
        import tempfile

        try:
            elsewhere = tempfile.mkdtemp(prefix="bpeModel-")
            saving.save_model(*model, elsewhere, settings, {}, source=source)
        except (OSError, ValueError) as second:
            raise OSError(f"{error}; the model is lost, because there, too: {second}") from None
        raise OSError(f"{error}; the model is in {elsewhere}") from None
