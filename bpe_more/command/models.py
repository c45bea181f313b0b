"""The tasks of the command line for a saved model: --show, --encode and --extend.

Gives: show(), encode(), encode_on_cluster(), which alone imports cluster, and extend().
Uses: cluster, cluster.engines, cluster.urls, arguments, summary, work, corpus.arrays, errors, explain, formats.kinds,
formats.saving, outputs, patterns.steps, tokenizer, tokenizer.changes.
"""

from __future__ import annotations

import operator
import os
from argparse import Namespace

import bpe
from bpe_more import explain, outputs
from bpe_more.command import arguments, summary, work
from bpe_more.corpus import arrays
from bpe_more.errors import require
from bpe_more.formats import kinds, saving
from bpe_more.patterns import steps
from bpe_more.tokenizer import Tokenizer, changes


def load_model(args: Namespace) -> Tokenizer:
    """Load the model that the command line names."""
    require(os.path.exists(args.model), f"no model in {args.model}: train one first, or name it with --model")
    return Tokenizer.load(args.model)


def files_read(model: str) -> list[bpe.FilePath]:
    """Return the paths of a model's files, which no output may replace: load() and --extend read some of them."""
    path = kinds.model_path(model)
    return [path, *saving.model_files(os.path.dirname(path))]


def show(args: Namespace) -> None:
    """Show how the model splits a text."""
    require(not args.corpus, "--show takes no corpus: it uses a saved model")
    arguments.given_options(args, ["engine"])  # refuses all others; each engine gives the same ids
    tokenizer = load_model(args)
    explain.show(args.show, tokenizer)
    # With several steps, or none, say which engine is used: C may not scan them, and no training run here said so.
    if len(steps.steps_of(tokenizer.pattern)[1]) != 1:
        summary.report(args, "engine", summary.engine_used(tokenizer.options, tokenizer))


def encode(args: Namespace) -> None:
    """Write the token ids of the corpus."""
    tokenizer = load_model(args)
    given = arguments.given_options(args, arguments.ENCODING)
    corpus = tokenizer.corpus_of(args.corpus, None, **given)
    if not args.quiet:
        corpus.counted = tokenizer.special_tokens
    n_ids = arrays.encode_corpus(tokenizer, corpus, args.encode, files_read(args.model))
    summary.report(args, "model", summary.description(tokenizer, args.model))
    summary.report(args, "encoded", f"{bpe.plural(corpus.bytes_read, 'byte')} as {bpe.plural(n_ids, 'token')}")
    for name, text in summary.documents_notes(corpus, tokenizer.special_tokens):
        summary.report(args, name, text)
    summary.report_left_out(args, corpus.n_left_out)
    summary.report(args, "saved", f"{args.encode}, ids as uint{8 * tokenizer.id_bytes}")
    used = tokenizer.ordinary if args.begin or args.end else tokenizer
    summary.report(args, "engine", summary.engine_used(corpus.options, used))


def encode_on_cluster(args: Namespace) -> None:
    """Write the token ids of each file as a shard in a folder, with --cluster."""
    from bpe_more import cluster
    from bpe_more.cluster import engines, urls

    tokenizer = load_model(args)
    given = arguments.given_options(args, arguments.ENCODING)
    names = cluster.shard_names(urls.files_of(args.corpus), ".npy")
    outputs.check_distinct(cluster.shard_files(args.encode, names), files_read(args.model))
    with engines.connected(args.cluster) as client:
        n_ids = cluster.encode(client, args.corpus, tokenizer, args.encode, **given)
    summary.report(args, "model", summary.description(tokenizer, args.model))
    summary.report(args, "encoded", bpe.plural(n_ids, "token"))
    summary.report(args, "saved", f"{args.encode}, ids as uint{8 * tokenizer.id_bytes}")


def extend(args: Namespace, n_tokens: int) -> None:
    """Learn more tokens for a model; save it, with its settings for transformers, elsewhere."""
    given = arguments.given_options(args, arguments.EXTENDING)
    tokenizer = Tokenizer.load(args.extend)
    source = os.path.dirname(kinds.model_path(args.extend))
    corpus = tokenizer.corpus_of(args.corpus, None, **given)
    is_other = os.path.realpath(args.model) != os.path.realpath(source)
    require(is_other, "--model must name another folder than that of the old model")
    work.check_folder(args.model, [*corpus.paths, *files_read(args.extend)])
    check_stale_files(args.model, source)

    table, n_bytes = work.count(args, corpus, {})
    words = changes.encode_words(tokenizer, table, corpus.options)
    learned = list(changes.learn_more(words, n_tokens, corpus.options))
    new = changes.with_merges(tokenizer, learned)

    n_before = sum(map(operator.mul, words.n_ids, words.counts))
    n_after = n_before - sum(replaced for _, _, _, replaced in learned)
    parts = f"{len(tokenizer):,} + {bpe.plural(len(learned), 'new token')}"
    if len(learned) < n_tokens:
        parts += f"; {n_tokens:,} requested, but no other pair that makes a new token has a count of"
        parts += f" {corpus.options.min_frequency} or more"
    summary.report(args, "old model", summary.description(tokenizer, args.extend))
    summary.report(args, "vocabulary", f"{len(new):,} = {parts}")
    text = f"{n_bytes / n_after:.2f} bytes per token in these pre-tokens, {n_bytes / n_before:.2f} before"
    summary.report(args, "compression", text)
    summary.report_left_out(args, words.n_left_out)
    summary.report(args, "note", summary.separators_note(args.corpus, tokenizer.special_ids))
    if new.id_bytes > tokenizer.id_bytes:
        summary.report(args, "note", "ids beyond 65,535: arrays of them are uint32 now")
    model = new.vocab, new.merge_ids, new.special_ids, new.pattern
    work.save(args, model, new.settings(), source)
    summary.report(args, "engine", summary.engine_used(corpus.options))


def check_stale_files(folder: str, source: str) -> None:
    """Refuse files for transformers that would stay in a folder, and that the old model doesn't have."""
    for name in ("special_tokens_map.json", "added_tokens.json", "chat_template.jinja"):
        path = os.path.join(folder, name)
        is_stale = os.path.exists(path) and not os.path.exists(os.path.join(source, name))
        require(not is_stale, "{} is of another model: remove it, or name another folder with --model", path)
