"""The tasks of the command line with --cluster: training, and --encode.

Gives: run_on_cluster().
Uses: choices, cluster, cluster.engines, cluster.urls, arguments, models, summary, work, errors, outputs.
"""

from __future__ import annotations

from argparse import Namespace

from bpe_more import choices, cluster, outputs
from bpe_more.cluster import engines, urls
from bpe_more.command import arguments, models, summary, work
from bpe_more.errors import plural, require


def run_on_cluster(args: Namespace, vocab_size: int) -> None:
    """Train or encode with --cluster."""
    tasks_here = args.explain, args.compare, args.extend
    require(tasks_here == (None, None, None), "--explain, --compare and --extend don't work with --cluster")
    require(not set(outputs.STDIN) & set(args.corpus), "--cluster can't read standard input: write the text to files")
    if args.encode is not None:
        encode(args)
    else:
        train(args, vocab_size)


def encode(args: Namespace) -> None:
    """Encode each file of the corpus as a shard."""
    tokenizer = models.load_model(args)
    folder = arguments.model_folder(args)
    given = arguments.given_options(args, arguments.ENCODING)
    names = cluster.shard_names(urls.files_of(args.corpus), ".npy")
    outputs.check_distinct(cluster.shard_files(args.encode, names), models.files_read(folder))
    with engines.connected(args.cluster) as client:
        n_ids = cluster.encode(client, args.corpus, tokenizer, args.encode, **given)
    summary.report(args, "model", summary.description(tokenizer, folder))
    summary.report(args, "encoded", plural(n_ids, "token"))
    summary.report(args, "saved", f"{args.encode}, ids as uint{8 * tokenizer.id_bytes}")


def train(args: Namespace, vocab_size: int) -> None:
    """Train on the files of the corpus, and save the model here."""
    given = arguments.given_options(args, arguments.TRAINING)
    options = choices.Options(**given, vocab_size=vocab_size).checked()
    folder = arguments.model_folder(args)
    paths = [urls.place_of(file.path) for file in urls.files_of(args.corpus)]
    if args.counts is not None:
        paths += cluster.counts_files(args.counts, len(paths))
    work.check_model(folder, options, paths)
    given |= {"counts": args.counts, "buckets": args.buckets, "task_bytes": args.task_bytes}
    with engines.connected(args.cluster) as client:
        tokenizer = cluster.train(client, args.corpus, vocab_size, **given)
    specials = plural(len(options.special_tokens), "special token")
    merges = plural(len(tokenizer.merges), "merge")
    summary.report(args, "vocabulary", f"{len(tokenizer):,} = 256 bytes + {specials} + {merges}")
    work.save(args, folder, (tokenizer.vocab, tokenizer.merge_ids, tokenizer.special_ids, tokenizer.pattern))
