"""The command line, bpe-py: main() reads it, does one task, and turns errors into lines and a status.

arguments   the options
work        training and extending
summary     the lines that say what was done

Gives: main(), which is public.
Uses: choices, cluster, cluster.engines, cluster.urls, arguments, summary, work, corpus.arrays, corpus.inputs,
corpus.progress, corpus.reading, errors, explain, formats.saving, outputs, patterns.steps.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import re
import sys
import warnings
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import Any

from bpe_more import choices, explain, outputs
from bpe_more.command import arguments, summary, work
from bpe_more.corpus import arrays, inputs, reading
from bpe_more.corpus.progress import FAILED, is_terminal, say
from bpe_more.errors import plural, require, sigterm_as_ctrl_c
from bpe_more.explain import visible
from bpe_more.formats import saving
from bpe_more.patterns import steps

NOT_UTF8_HINT = (
    "; if it is compressed: zcat FILE (xzcat, bzcat) | bpe-py - ...; in another encoding, such as GB18030 or Latin-1: "
    "iconv -f ENCODING -t UTF-8 FILE | bpe-py - ...; or use --errors replace"
)


@contextlib.contextmanager
def escaped_characters() -> Iterator[None]:
    """Let standard output and standard error escape characters that a terminal can't show, in tokens for instance."""
    streams: list[Any] = [sys.stdout, sys.stderr]
    before = [getattr(stream, "errors", None) for stream in streams]
    for stream in streams:
        with contextlib.suppress(AttributeError, ValueError):  # a stream that was replaced or closed
            stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        for stream, errors in zip(streams, before):
            with contextlib.suppress(AttributeError, ValueError, OSError):  # OSError: it was full
                stream.reconfigure(errors=errors)


@escaped_characters()
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its status.

    1 means other merges for --compare, out of memory, counts beyond 64 bits, a killed worker, or a full
    disk behind standard output; 2 bad input, or a file that can't be read or written; 130 Ctrl-C; 143
    SIGTERM.
    """
    atexit.register(gc.freeze)  # else Python searches all objects for garbage when it ends: a tenth of a short run
    FAILED.clear()
    try:
        status = 0
        with sigterm_as_ctrl_c(), contextlib.suppress(SystemExit):  # --help exits
            args = arguments.parse(sys.argv[1:] if argv is None else argv)
            with summary.warnings_as_notes(args):
                status = do_task(args)
        say("", "stdout")  # flushes it
        error = FAILED.pop("stdout", None)
        # `| head` is not an error
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise RuntimeError(f"standard output: {error.strerror}")
        return status
    except KeyboardInterrupt as interruption:
        status, text = (143, "terminated") if interruption.args else (130, "interrupted")
    except (OSError, ValueError, TypeError, ImportError) as error:
        hint = NOT_UTF8_HINT if "not valid UTF-8 at" in str(error) else ""
        message = re.sub(r"\[\w+ \d+\] ", "", str(error))  # without [Errno 2]
        message = message.replace("errors='replace'", "--errors replace")
        status, text = 2, f"error: {message}{hint}"
    except (RuntimeError, OverflowError, MemoryError) as error:
        status, text = 1, f"error: {str(error) or 'out of memory'}"
    line = visible(text).replace("\n", "\\n")  # a file name may have a newline
    say(f"{line}\n")
    return status


def do_task(args: Namespace) -> int:
    """Show, encode or train; return the status: 1 if --compare found a difference, else 0."""
    if args.version:
        say(f"{args.version}\n", "stdout")
        return 0
    if args.show is not None:
        show(args)
        return 0
    last, size = split_corpus(args)
    progress = not args.quiet and is_terminal()
    if args.as_kind == "jsonl":
        args.corpus = ["-.jsonl" if path == "-" else path for path in args.corpus]
    if args.cluster is not None:
        on_cluster(args, size or 0, progress)
        return 0
    args.corpus = inputs.expanded(args.corpus)
    for name in ("counts", "buckets", "task_bytes"):
        require(getattr(args, name) is None, "--{} needs --cluster", name.replace("_", "-"))
    if args.column is not None:
        reading.refuse_useless_column(args.corpus, choices.Options(column=args.column), is_given=True)
    same, encoder = True, None
    if args.encode is not None:
        corpus, encoder = encode(args, progress)
    elif args.extend is not None:
        arguments.check_extend(args)
        text = "with --extend, the last argument must be the number of new tokens, such as +10000 or +10k, not {!r}"
        require(last.startswith("+") and size, text, last)
        corpus = work.extend(args, size or 0, arguments.given_options(args, arguments.EXTENDING), progress)
    else:
        given = arguments.given_options(args, arguments.TRAINING)
        given["special_tokens"] = arguments.special_tokens_of(args)
        corpus, same = work.train(args, choices.Options(**given, vocab_size=size, progress=progress).checked())
    summary.report(args, "engine", summary.engine_used(corpus.options, encoder))
    return 0 if same else 1


def show(args: Namespace) -> None:
    """Show how the model splits a text."""
    require(not args.corpus, "--show takes no corpus: it uses a saved model")
    arguments.given_options(args, ["engine"])  # refuses all others; each engine gives the same ids
    tokenizer = work.load_model(args)
    explain.show(args.show, tokenizer)
    # With several steps, or none, say which engine is used: C may not scan them, and no training run here said so.
    if len(steps.steps_of(tokenizer.pattern)[1]) != 1:
        summary.report(args, "engine", summary.engine_used(tokenizer.options, tokenizer.encoder))


def split_corpus(args: Namespace) -> tuple[str, int | None]:
    """Take the size, which is the last one, from the arguments of a corpus; return that argument, and the size."""
    last = args.corpus[-1] if args.corpus else ""
    size = None
    # with --encode, the last file may be named 2024
    if args.encode is None or not os.path.exists(last):
        size = arguments.vocab_size_of(last.removeprefix("+"))
        if size is not None:
            args.corpus.pop()
    require(args.corpus, "a corpus is missing: bpe-py corpus.txt 10000")
    if args.encode is not None:
        require(size is None, "--encode uses a saved model: train it first, with another command")
    elif args.extend is None:
        text = "the last argument must be the vocabulary size, such as 10000 or 10k, not {!r}"
        text += "; +N is for --extend MODEL" if last.startswith("+") else ""
        require(size is not None and not last.startswith("+"), text, last)
    return last, size


def encode(args: Namespace, progress: bool) -> tuple[reading.Corpus, Any]:
    """Write the token ids of the corpus; return it, and the encoder, or None if Python was chosen."""
    tokenizer = work.load_model(args)
    given = arguments.given_options(args, arguments.ENCODING)
    work.check_names(args.corpus)
    corpus = tokenizer.corpus_of(args.corpus, None, progress=progress, **given)
    if not args.quiet:
        corpus.counted = tokenizer.special_tokens
    n_ids = arrays.encode_corpus(tokenizer, corpus, args.encode, work.files_read(args.model))
    summary.report(args, "model", summary.description(tokenizer, args.model or "bpeModel"))
    summary.report(args, "encoded", f"{plural(corpus.bytes_read, 'byte')} as {plural(n_ids, 'token')}")
    for name, text in summary.documents_notes(corpus, tokenizer.special_tokens):
        summary.report(args, name, text)
    if corpus.n_left_out:
        summary.report(args, "left out", f"{plural(corpus.n_left_out, 'byte')} without a token in this vocabulary")
    summary.report(args, "saved", f"{args.encode}, ids as uint{8 * tokenizer.id_bytes}")
    used = tokenizer.ordinary if args.begin or args.end else tokenizer
    return corpus, used.encoder if corpus.options.engine != "python" else None


def on_cluster(args: Namespace, size: int, progress: bool) -> None:
    """Train or encode with --cluster."""
    tasks_here = args.explain, args.compare, args.extend
    require(tasks_here == (None, None, None), "--explain, --compare and --extend don't work with --cluster")
    require(not set(outputs.STDIN) & set(args.corpus), "--cluster can't read standard input: write the text to files")
    with warnings.catch_warnings(record=True) as caught:
        if args.encode is not None:
            encode_on_cluster(args, progress)
        else:
            train_on_cluster(args, size, progress)
    for warning in caught:
        summary.report(args, "note", str(warning.message))


def encode_on_cluster(args: Namespace, progress: bool) -> None:
    """Encode each file of the corpus as a shard."""
    from bpe_more import cluster
    from bpe_more.cluster import engines, urls  # only now: few runs need them

    tokenizer = work.load_model(args)
    given = arguments.given_options(args, arguments.ENCODING)
    names = cluster.shard_names(urls.files_of(args.corpus), ".npy")
    outputs.check_distinct(cluster.shard_files(args.encode, names), work.files_read(args.model))
    with engines.connected(args.cluster) as client:
        n_ids = cluster.encode(client, args.corpus, tokenizer, args.encode, progress=progress, **given)
    summary.report(args, "model", summary.description(tokenizer, args.model or "bpeModel"))
    summary.report(args, "encoded", plural(n_ids, "token"))
    summary.report(args, "saved", f"{args.encode}, ids as uint{8 * tokenizer.id_bytes}")


def train_on_cluster(args: Namespace, size: int, progress: bool) -> None:
    """Train on the files of the corpus, and save the model here."""
    from bpe_more import cluster
    from bpe_more.cluster import engines, urls  # as above

    given = arguments.given_options(args, arguments.TRAINING)
    given["special_tokens"] = arguments.special_tokens_of(args)
    options = choices.Options(**given, vocab_size=size).checked()
    folder = "bpeModel" if args.model is None else args.model
    saving.check_special_names(options.special_tokens)
    paths = [urls.place_of(file.path) for file in urls.files_of(args.corpus)]
    if args.counts is not None:
        paths += cluster.counts_files(args.counts, len(paths))
    work.check_folder(folder, paths)
    given |= {"counts": args.counts, "buckets": args.buckets, "task_bytes": args.task_bytes}
    with engines.connected(args.cluster) as client:
        tokenizer = cluster.train(client, args.corpus, size, progress=progress, **given)
    specials = plural(len(options.special_tokens), "special token")
    merges = plural(len(tokenizer.merges), "merge")
    summary.report(args, "vocabulary", f"{len(tokenizer):,} = 256 bytes + {specials} + {merges}")
    model = tokenizer.vocab, tokenizer.merges, tokenizer.special_ids, tokenizer.pattern
    if note := work.save_somewhere(model, folder):
        summary.report(args, "note", note)
    summary.report(args, "saved", folder)
