"""The command line in full: bpe.py's own options, and those that need this folder."""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import gc
import itertools
import operator
import os
import re
import shlex
import sys
import time
import warnings
from argparse import ArgumentParser, HelpFormatter, Namespace
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, get_args

import bpe
from bpe_more import choices, corpora, explain, formats, inputs, models, outputs, signals, steps, training
from bpe_more.checks import plural, require
from bpe_more.corpora import say
from bpe_more.explain import visible

USAGE = """%(prog)s CORPUS [CORPUS ...] VOCAB_SIZE [options]     train, and write a model
       %(prog)s CORPUS [CORPUS ...] +N --extend MODEL [options]  learn N more tokens for a model
       %(prog)s CORPUS [CORPUS ...] --encode FILE [options]  write token ids
       %(prog)s --show TEXT [options]                        show how the model splits TEXT"""
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


@contextlib.contextmanager
def warnings_as_notes(args: Namespace) -> Iterator[None]:
    """Make warnings lines of the summary."""
    with warnings.catch_warnings(record=True) as caught:
        yield
    for warning in caught:
        report(args, "note", str(warning.message))


@escaped_characters()
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its status.

    1 means other merges for --compare, out of memory, counts beyond 64 bits, a killed worker, or a full
    disk behind standard output; 2 bad input, or a file that can't be read or written; 130 Ctrl-C; 143
    SIGTERM.
    """
    atexit.register(gc.freeze)  # else Python searches all objects for garbage when it ends: a tenth of a short run
    try:
        status = 0
        with signals.sigterm_as_ctrl_c(), contextlib.suppress(SystemExit):  # --help exits
            args = parse(sys.argv[1:] if argv is None else argv)
            with warnings_as_notes(args):
                status = run(args)
        say("", "stdout")  # flushes it
        error = getattr(sys.stdout, "error", None)  # say() leaves it there
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


def make_parser() -> ArgumentParser:
    """Return the parser of the command line. Options of training have the names of train_bpe's arguments."""
    # For each option, argparse makes a formatter, and if it has no width, imports shutil to ask the terminal.
    of_options = functools.partial(HelpFormatter, width=80)
    parser = ArgumentParser(prog="bpe-py", usage=USAGE, formatter_class=of_options)

    def error(message: str) -> NoReturn:
        raise ValueError(message)

    parser.error = error  # type: ignore[method-assign]
    # when the disk is full, argparse in Python 3.14 would print half of the help, and no error
    parser._print_message = lambda message, file=None: say(message or "", "stdout")  # type: ignore
    parser.set_defaults(start=time.perf_counter())
    add = parser.add_argument
    add("corpus", nargs="*", metavar="CORPUS ... VOCAB_SIZE", help="text files or - (stdin), then 10000 or 32k")
    add("--model", metavar="FOLDER", help="the model's folder (default: bpeModel)")
    add("--workers", type=int, metavar="N", help="the number of processes or threads (default: all cores)")
    add("--engine", choices=get_args(bpe.EngineName), help="auto: the C engine if it is built (default)")
    add("--quiet", action="store_true", help="no progress and no summary")
    add("--version", action="store_const", const=f"{parser.prog} {bpe.__version__}", help="print the version")

    add = parser.add_argument_group("training (docs/python.md)").add_argument
    more = f"a special token in addition to {bpe.END_OF_TEXT}; repeat the option for each"
    add("--special-token", action="append", dest="special_tokens", metavar="TEXT", help=more)
    # --special-token appends its TEXT to the list, and this option None; see special_tokens_of()
    none = f"no {bpe.END_OF_TEXT}: only those of --special-token"
    add("--no-special-tokens", action="append_const", const=None, dest="special_tokens", help=none)
    add("--pattern", help=f"{', '.join(bpe.PATTERNS)} or a custom pattern (default: gpt2)")
    add("--min-word-count", type=int, metavar="N", help="leave out words that occur fewer than N times (default: 1)")
    add("--min-frequency", type=int, metavar="N", help="merge no pair that occurs fewer than N times (default: 1)")
    extend = "learn more tokens for the model in a folder: CORPUS ... +10000, or +10k; old ids stay (docs/extend.md)"
    add("--extend", metavar="MODEL", help=extend)

    add = parser.add_argument_group("input (docs/data.md)").add_argument
    column = "the column of Parquet and JSON Lines (.parquet, .arrow, .jsonl, .json) that has the texts (default: text)"
    add("--column", metavar="NAME", help=column)
    as_kind = "text: read JSON as plain text; jsonl: read standard input as JSON Lines"
    add("--as", choices=["text", "jsonl"], dest="as_kind", help=as_kind)
    add("--errors", choices=get_args(choices.Errors), help="replace: read invalid UTF-8 as U+FFFD (default: strict)")

    add = parser.add_argument_group("encoding (docs/recipes.md)").add_argument
    add("--encode", metavar="FILE", help="write the token ids of the corpus to a .npy or .bin file")
    end = "with --encode: this special token ends each file or row; special tokens in it are plain text"
    add("--end", metavar="TOKEN", help=end)
    add("--begin", metavar="TOKEN", help="the same, before each file or row")

    add = parser.add_argument_group("showing (docs/python.md)").add_argument
    add("--show", metavar="TEXT", help="show how the model in FOLDER splits TEXT")
    add("--explain", metavar="N or A-B", help="say why the first N merges, or merges A to B, are made")
    add("--compare", metavar="FILE", help="explain the first merge that differs from those of a merges.txt")

    add = parser.add_argument_group("cluster (docs/cluster.md)").add_argument
    url = "work on a cluster: dask://HOST:PORT, ray://HOST:PORT, spark://HOST:PORT, or local"
    add("--cluster", metavar="URL", help=url)
    counts = "with --cluster: a folder that keeps counts, so that a second start only counts the rest"
    add("--counts", metavar="FOLDER", help=counts)
    add("--buckets", type=int, metavar="N", help="with --cluster: divide words into so many parts")
    add("--task-bytes", type=int, metavar="N", help="with --cluster: how many bytes a task counts")
    parser.formatter_class = HelpFormatter
    return parser


def check_one_task(args: Namespace) -> None:
    """Raise an error if two options name different things to do."""
    given = [name for name in ("show", "encode", "explain", "compare", "extend") if getattr(args, name) is not None]
    require(len(given) < 2, "argument --{}: not allowed with argument --{}", *reversed(given[:2]))


def parse(arguments: Sequence[str]) -> Namespace:
    """Return the parsed command line. Raises ValueError, with a way out for two frequent mistakes."""
    parser = make_parser()
    try:
        args = parser.parse_intermixed_args(arguments)
        check_one_task(args)
        args.show, args.pattern = map(text_in_utf8, (args.show, args.pattern))
        args.begin, args.end = map(text_in_utf8, (args.begin, args.end))
        args.column = text_in_utf8(args.column)
        args.special_tokens = args.special_tokens and list(map(text_in_utf8, args.special_tokens))
        return args
    except ValueError as error:
        text = str(error)
    if match := re.fullmatch(r"argument (--[\w-]+): expected one argument", text):
        option = match[1]
        text = f"{option} needs a value"
        for name, value in itertools.pairwise(arguments):
            # options can be shortened: --show is also --sh
            if len(name) > 2 and option.startswith(name) and value.startswith("-"):
                text = f"{option} needs a value; if {value} is one, write {option}={value}"
    elif match := re.match(r"unrecognized arguments: (-[^\s=]+)", text):
        import difflib

        similar = difflib.get_close_matches(match[1], parser._option_string_actions, 1)
        text += f"; did you mean {similar[0]}?" if similar else ""
    raise ValueError(text)


def text_in_utf8(argument: str | None) -> str | None:
    """Read an argument as UTF-8 if Python has read it as ASCII, as it may do for LC_ALL=C."""
    if argument and re.search("[\udc80-\udcff]", argument):  # bytes beyond ASCII
        with contextlib.suppress(UnicodeError):  # not UTF-8 either, which is an error later
            return os.fsencode(argument).decode("utf-8")
    return argument


TRAINING = ("special_tokens", "pattern", "errors", "min_word_count", "min_frequency", "workers", "engine", "column")
EXTENDING = ("errors", "min_word_count", "min_frequency", "workers", "engine", "column")
ENCODING = ("errors", "workers", "engine", "column", "begin", "end")


def given_options(args: Namespace, taken: Sequence[str]) -> dict[str, Any]:
    """Return the options that were given. Raises TypeError for one that isn't taken."""
    options = dict.fromkeys((*TRAINING, *ENCODING))
    given = {name: value for name in options if (value := getattr(args, name)) is not None}
    if args.as_kind == "jsonl":
        require("-.jsonl" in args.corpus, "--as jsonl is for standard input: name it, as -, in the corpus")
    if args.as_kind == "text":
        require(args.column is None, "--as text reads no column: leave out --column, or --as")
        given["column"] = None
    for name in given.keys() - set(taken):
        names = ", ".join(name for name in options if name in taken)
        raise TypeError(f"{name!r} is not an option here; the options are {names}")
    return given


def run(args: Namespace) -> int:
    """Show, encode or train; return the status: 1 if --compare found a difference, else 0."""
    if args.version:
        say(f"{args.version}\n", "stdout")
        return 0
    if args.show is not None:
        require(not args.corpus, "--show takes no corpus: it uses a saved model")
        given_options(args, ["engine"])  # refuses all others; each engine gives the same ids
        tokenizer = load_model(args)
        explain.show(args.show, tokenizer)
        # With several steps, or none, say which engine is used: C may not scan them, and no training run here said so.
        if len(steps.steps_of(tokenizer.pattern)[1]) != 1:
            report(args, "engine", engine_used(tokenizer._options, tokenizer._encoder))
        return 0

    last = args.corpus[-1] if args.corpus else ""
    size = None
    # with --encode, the last file may be named 2024
    if args.encode is None or not os.path.exists(last):
        size = vocab_size_of(last.removeprefix("+"))
        if size is not None:
            args.corpus.pop()
    require(args.corpus, "a corpus is missing: bpe-py corpus.txt 10000")
    progress = not args.quiet and sys.stderr is not None and sys.stderr.isatty()
    if args.encode is not None:
        require(size is None, "--encode uses a saved model: train it first, with another command")
    elif args.extend is None:
        text = "the last argument must be the vocabulary size, such as 10000 or 10k, not {!r}"
        text += "; +N is for --extend MODEL" if last.startswith("+") else ""
        require(size is not None and not last.startswith("+"), text, last)
    if args.as_kind == "jsonl":
        args.corpus = ["-.jsonl" if path == "-" else path for path in args.corpus]
    same, encoder = True, None
    if args.cluster is not None:
        on_cluster(args, size or 0, progress)
        return 0
    args.corpus = inputs.expanded(args.corpus)
    for name in ("counts", "buckets", "task_bytes"):
        require(getattr(args, name) is None, "--{} needs --cluster", name.replace("_", "-"))
    if args.column is not None:
        corpora.check_column(args.corpus, choices.Options(column=args.column), is_given=True)
    if args.encode is not None:
        tokenizer = load_model(args)
        given = given_options(args, ENCODING)
        check_names(args.corpus)
        corpus = tokenizer._corpus(args.corpus, None, progress=progress, **given)
        if not args.quiet:
            corpus.counted = tokenizer.special_tokens
        n_ids = corpora.encode_corpus(tokenizer, corpus, args.encode, files_read(args.model))
        report(args, "model", description(tokenizer, args.model or "bpeModel"))
        report(args, "encoded", f"{plural(corpus.bytes_read, 'byte')} as {plural(n_ids, 'token')}")
        for name, text in documents_notes(corpus, tokenizer.special_tokens):
            report(args, name, text)
        if corpus.n_left_out:
            report(args, "left out", f"{plural(corpus.n_left_out, 'byte')} without a token in this vocabulary")
        report(args, "saved", f"{args.encode}, ids as uint{8 * tokenizer._id_bytes}")
        used = tokenizer.ordinary if args.begin or args.end else tokenizer
        encoder = used._encoder if corpus.options.engine != "python" else None
    elif args.extend is not None:
        require(args.pattern is None, "--extend takes no --pattern: the model has one")
        more = [token for token in args.special_tokens or () if token is not None]
        way = f"; to add more, in Python: Tokenizer.load(...).with_special_tokens({more!r})" if more else ""
        require(args.special_tokens is None, "--extend takes no --special-token: the model has its own{}", way)
        text = "with --extend, the last argument must be the number of new tokens, such as +10000 or +10k, not {!r}"
        require(last.startswith("+") and size, text, last)
        corpus = extend(args, size or 0, given_options(args, EXTENDING), progress)
    else:
        given = given_options(args, TRAINING)
        given["special_tokens"] = special_tokens_of(args)
        corpus, same = train(args, choices.Options(**given, vocab_size=size, progress=progress).checked())

    report(args, "engine", engine_used(corpus.options, encoder))
    return 0 if same else 1


def on_cluster(args: Namespace, size: int, progress: bool) -> None:
    """Train or encode with --cluster."""
    from bpe_more import cluster, tasks, urls  # only now: few runs need them

    tasks_here = args.explain, args.compare, args.extend
    require(tasks_here == (None, None, None), "--explain, --compare and --extend don't work with --cluster")
    require(not set(inputs.STDIN) & set(args.corpus), "--cluster can't read standard input: write the text to files")
    with warnings.catch_warnings(record=True) as caught:
        if args.encode is not None:
            tokenizer = load_model(args)
            given = given_options(args, ENCODING)
            names = cluster.shard_names(urls.files_of(args.corpus), ".npy")
            outputs.check_distinct(cluster.shard_files(args.encode, names), files_read(args.model))
            with tasks.connected(args.cluster) as client:
                n_ids = cluster.encode(client, args.corpus, tokenizer, args.encode, progress=progress, **given)
            report(args, "model", description(tokenizer, args.model or "bpeModel"))
            report(args, "encoded", plural(n_ids, "token"))
            report(args, "saved", f"{args.encode}, ids as uint{8 * tokenizer._id_bytes}")
        else:
            given = given_options(args, TRAINING)
            given["special_tokens"] = special_tokens_of(args)
            options = choices.Options(**given, vocab_size=size).checked()
            folder = "bpeModel" if args.model is None else args.model
            formats.check_special_names(options.special_tokens)
            paths = [urls.place_of(file.path) for file in urls.files_of(args.corpus)]
            if args.counts is not None:
                paths += cluster.counts_files(args.counts, len(paths))
            check_folder(folder, paths)
            given |= {"counts": args.counts, "buckets": args.buckets, "task_bytes": args.task_bytes}
            with tasks.connected(args.cluster) as client:
                tokenizer = cluster.train(client, args.corpus, size, progress=progress, **given)
            specials = plural(len(options.special_tokens), "special token")
            merges = plural(len(tokenizer.merges), "merge")
            report(args, "vocabulary", f"{len(tokenizer):,} = 256 bytes + {specials} + {merges}")
            model = tokenizer.vocab, tokenizer.merges, tokenizer.special_ids, tokenizer.pattern
            if note := save_somewhere(model, folder):
                report(args, "note", note)
            report(args, "saved", folder)
    for warning in caught:
        report(args, "note", str(warning.message))


def documents_notes(corpus: corpora.Corpus, special_tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield lines of the summary: how many documents were encoded, what separates them, and special tokens in text."""
    usual = bpe.END_OF_TEXT if bpe.END_OF_TEXT in special_tokens else "".join(special_tokens[:1])
    way = f"--end {shlex.quote(usual)}"
    added = {f"--{name}": token for name, token in (("begin", corpus.begin), ("end", corpus.end)) if token is not None}
    text = f"{corpus.n_documents:,}"
    if not corpus.n_documents:
        text = "0: the input has no rows"
    elif added:
        text += f", each with {' and '.join(added.values())}"
    elif corpus.n_documents > 1:
        text += f", with no token between them; to add one: {way}" if usual else ", with no token between them"
    yield "documents", text
    if corpus.n_specials:
        text = f"{corpus.n_specials:,} in the text, read as "
        text += f"plain text; for ids, leave out {' and '.join(added)}" if added else f"ids; for plain text: {way}"
        yield "special tokens", text


def check_names(paths: Iterable[str]) -> None:
    """Refuse folders and missing files; Corpus does that, too, but its errors are for Python."""
    for path in paths:
        inputs.check_path(path)
        if os.path.isdir(path):
            raise ValueError(f"{path} is a folder; name its files ({inputs.files_in(path)})")
        if path.lower().endswith((".csv", ".tsv")):
            warnings.warn(f"{path} was read as plain text, with all columns; for one column, convert it to Parquet "
                          "(docs/data.md), and name it: --column text", stacklevel=2)
        if path not in inputs.STDIN:
            os.stat(path)


def engine_used(options: choices.Options, encoder: Any = None) -> str:
    """Return the engine that splits text into words, and encodes it, and why it isn't C."""
    engine, reason = (None, "as chosen") if options.engine == "python" else choices.find_engine()
    if engine and not reason:
        if lacks := corpora.lacking_in_c(options.pattern):
            reason = f"C scans no pattern with {lacks}"
        elif encoder is not None and not encoder.in_c:
            reason = "C can't hold this vocabulary"
    return f"Python ({reason})" if reason else "C"


def load_model(args: Namespace) -> models.Tokenizer:
    """Load the model that the command line names."""
    folder = "bpeModel" if args.model is None else args.model
    require(os.path.exists(folder), f"no model in {folder}: train one first, or name it with --model")
    return models.Tokenizer.load(folder)


def files_read(model: str | None) -> list[bpe.FilePath]:
    """Return the paths of a model's files, which no output may replace: load() and --extend read some of them."""
    path = models.model_path("bpeModel" if model is None else model)
    return [path, *formats.model_files(os.path.dirname(path))]


def description(tokenizer: models.Tokenizer, name: str) -> str:
    """Say which model a run uses: its folder, its size and its pattern."""
    pattern = tokenizer.pattern if isinstance(tokenizer.pattern, str) else ", ".join(tokenizer.pattern)
    shown = pattern if len(pattern) <= 60 else pattern[:60] + "..."
    return f"{name}: {plural(len(tokenizer), 'token')}, pattern {shown}"


def train(args: Namespace, options: choices.Options) -> tuple[corpora.Corpus, bool]:
    """Train, print what was learned, save the model; return the corpus, and whether --compare agrees."""
    check_names(args.corpus)
    corpus = corpora.Corpus(args.corpus, None, options)
    rounds = explain.rounds_of(args.explain) if args.explain is not None else range(0)
    kind, theirs = explain.read_pairs(args.compare) if args.compare is not None else ("", [])
    # --explain and --compare alone save no model
    folder = "bpeModel" if args.model is None and not rounds and not theirs else args.model
    if folder is not None:  # fail before an hour of training
        formats.check_special_names(options.special_tokens)
        check_folder(folder, corpus.paths if args.compare is None else [*corpus.paths, args.compare])
    special_ids = dict(zip(options.special_tokens, itertools.count(256)))
    table, n_bytes = count(args, corpus, special_ids)
    least = options.min_word_count

    words: dict[bytes, int] = {}
    if rounds or theirs:  # learn() uses up the table
        words = {word: count for word, count in table.copy().items() if count >= least}
    learned = list(corpora.learn(table, options))
    vocab, merges = training.model_of(learned, options)
    n_tokens = n_bytes - sum(replaced for _, _, _, replaced in learned)
    same = True
    if theirs:
        report(args, "compared", f"{args.compare}, {plural(len(theirs), 'merge')} {kind}")
        same = explain.compare(theirs, words, merges)
    if rounds:
        explain.explain(rounds, words, merges)

    specials = plural(len(options.special_tokens), "special token")
    parts = f"256 bytes + {specials} + {plural(len(merges), 'merge')}"
    if len(vocab) < options.vocab_size:
        parts += f"; {options.vocab_size:,} requested, but no pair has a count of {options.min_frequency} or more"
    report(args, "vocabulary", f"{len(vocab):,} = {parts}")
    report(args, "compression", f"{n_bytes / n_tokens:.2f} bytes per token in these pre-tokens")
    if note := forgotten_note(learned):
        report(args, "note", note)
    model = vocab, merges, special_ids, options.pattern
    if folder is not None and (note := save_somewhere(model, folder)):
        report(args, "note", note)
    task = "--explain" if rounds else "--compare"
    report(args, "saved", f"nothing: {task} saves a model only with --model FOLDER" if folder is None else folder)
    return corpus, same


def check_folder(folder: str, inputs: Sequence[bpe.FilePath]) -> None:
    """Refuse a folder in which no model can be saved."""
    require(folder and not os.path.isfile(folder), f"--model must name a folder, not {folder!r}")
    outputs.check_outputs(formats.model_files(folder), inputs)
    place = os.path.realpath(folder)
    while not os.path.exists(place):  # save() makes missing folders
        place = os.path.dirname(place)
    if not os.access(place, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), place)


def count(args: Namespace, corpus: corpora.Corpus, special_ids: Mapping[str, int]) -> tuple[Any, int]:
    """Count words, and say how many; return the table, and the bytes in words that are frequent enough."""
    table = corpus.count()
    all_distinct, all_words, _ = table.totals()
    distinct, n_words, n_bytes = table.totals(corpus.options.min_word_count)
    require(n_words, "no words are left to learn from; nothing was saved")
    report(args, "read", plural(corpus.bytes_read, "byte"))
    if special_ids:
        report(args, "special tokens", ", ".join(f"{token} {token_id}" for token, token_id in special_ids.items()))
    if rare := all_distinct - distinct:
        report(args, "left out", f"{plural(rare, 'word')}, {(all_words - n_words) / all_words:.2%} of pre-tokens")
    report(args, "pre-tokens", f"{n_words:,}, {distinct:,} of them distinct")
    return table, n_bytes


def extend(args: Namespace, n_tokens: int, given: Mapping[str, Any], progress: bool) -> corpora.Corpus:
    """Learn more tokens for a model; save it, with its settings for transformers, elsewhere; return the corpus."""
    from bpe_more import changes

    tokenizer = models.Tokenizer.load(args.extend)
    source = os.path.dirname(models.model_path(args.extend))
    folder = "bpeModel" if args.model is None else args.model
    check_names(args.corpus)
    corpus = tokenizer._corpus(args.corpus, None, progress=progress, **given)
    is_other = os.path.realpath(folder) != os.path.realpath(source)
    require(is_other, "--model must name another folder than that of the old model")
    check_folder(folder, [*corpus.paths, *files_read(args.extend)])
    for name in ("special_tokens_map.json", "added_tokens.json", "chat_template.jinja"):
        path = os.path.join(folder, name)
        is_stale = os.path.exists(path) and not os.path.exists(os.path.join(source, name))
        require(not is_stale, "{} is of another model: remove it, or name another folder with --model", path)

    table, n_bytes = count(args, corpus, {})
    words = changes.encode_words(tokenizer, table, corpus.options)
    learned = list(changes.learn(words, n_tokens, corpus.options))
    new = changes.with_merges(tokenizer, learned)
    n_before = sum(map(operator.mul, words.n_ids, words.counts))
    n_after = n_before - sum(replaced for _, _, _, replaced in learned)
    parts = f"{len(tokenizer):,} + {plural(len(learned), 'new token')}"
    if len(learned) < n_tokens:
        parts += f"; {n_tokens:,} requested, but no other pair has a count of {corpus.options.min_frequency} or more"
    report(args, "old model", description(tokenizer, args.extend))
    report(args, "vocabulary", f"{len(new):,} = {parts}")
    text = f"{n_bytes / n_after:.2f} bytes per token in these pre-tokens, {n_bytes / n_before:.2f} before"
    report(args, "compression", text)
    if words.n_left_out:
        report(args, "left out", f"{plural(words.n_left_out, 'byte')} without a token in this vocabulary")
    notes = [separators_note(args.corpus, tokenizer.special_ids)]
    if new._id_bytes > tokenizer._id_bytes:
        notes.append("ids beyond 65,535: arrays of them are uint32 now")
    model = new._vocab, new.merges, new._special_ids, new.pattern
    notes.append(save_somewhere(model, folder, new._settings(), source))
    for note in filter(None, notes):
        report(args, "note", note)
    report(args, "saved", folder)
    return corpus


def separators_note(paths: Iterable[str], special_tokens: Container[str]) -> str:
    """Return a note on what looks like special tokens in the beginning of files, but isn't in the model, else ""."""
    found: dict[str, None] = {}
    for path in filter(os.path.isfile, paths):
        with open(path, "rb") as file:
            start = file.read(1 << 20).decode("utf-8", "replace")
        found |= dict.fromkeys(re.findall(r"<\|[^<>|\s]{1,60}\|>", start))
    unknown = [text for text in found if text not in special_tokens]
    more = f" and {len(unknown) - 3:,} more" if len(unknown) > 3 else ""
    way = "not special tokens of this model, so learned as text; with_special_tokens adds them"
    return f"{', '.join(unknown[:3])}{more}: {way}" if unknown else ""


def forgotten_note(learned: Iterable[bpe.Learned]) -> str:
    """Return a note if special tokens such as <|user|> seem to have been learned as text, else ""."""
    counts = {left + right: count for left, right, count, _ in learned if left in (b"<", b"|")}
    if b"<|" not in counts or b"|>" not in counts:
        return ""
    times = f"<| was learned as text ({plural(counts[b'<|'], 'time')}), and so was |> ({counts[b'|>']:,})"
    return f'{times}; if they belong to special tokens, name each one: --special-token "<|user|>"'


def save_somewhere(model: tuple[Any, Any, Any, Any], folder: str, settings: Any = None,
                   source: str | None = None) -> str:
    """Save a model; if that fails, save it in a temporary folder, so that no training is lost.

    Return the note of save_model().
    """
    settings = settings or {}
    try:
        return formats.save_model(*model, folder, settings, {}, source=source)
    except (OSError, ValueError) as error:  # ValueError: a folder has a file's name, say
        import tempfile

        try:
            elsewhere = tempfile.mkdtemp(prefix="bpeModel-")
            formats.save_model(*model, elsewhere, settings, {}, source=source)
        except (OSError, ValueError) as second:
            raise OSError(f"{error}; the model is lost, because there, too: {second}") from None
        raise OSError(f"{error}; the model is in {elsewhere}") from None


def report(args: Namespace, name: str, text: str) -> None:
    """Print a line of the summary, after the time so far."""
    if not args.quiet:
        say(f"{time.perf_counter() - args.start:6.2f} s  {name:14} {visible(text)}\n")


def vocab_size_of(text: str) -> int | None:
    """Return the number that an argument such as 10000, 10,000 or 10k means, or None if it isn't one."""
    if not re.fullmatch(r"-?\d+([,_]\d{3})*[kK]?", text):
        return None
    return int(text.replace(",", "").lower().replace("k", "000"))


def special_tokens_of(args: Namespace) -> tuple[str, ...]:
    """Return the special tokens for training, checked: <|endoftext|> is the first one by default."""
    given = args.special_tokens or []
    tokens = steps.check_special_tokens(token for token in given if token is not None)  # None: --no-special-tokens
    return tokens if None in given or bpe.END_OF_TEXT in tokens else (bpe.END_OF_TEXT, *tokens)
