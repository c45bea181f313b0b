"""The arguments of the command line: how they are read, which task takes which options, and what its corpus is.

Options of training have the names of train_bpe's arguments.

Gives: parse(); given_options(), for tasks; take_size() and find_corpus(), which change args.corpus.
Uses: choices, corpus.inputs, corpus.progress, corpus.reading, errors, outputs, patterns.steps.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import time
import warnings
from argparse import ArgumentParser, HelpFormatter, Namespace
from collections.abc import Sequence
from typing import Any, NoReturn, get_args

import bpe
from bpe_more import choices, outputs
from bpe_more.corpus import inputs, reading
from bpe_more.corpus.progress import is_terminal, say
from bpe_more.errors import require
from bpe_more.patterns import steps

USAGE = """%(prog)s CORPUS [CORPUS ...] VOCAB_SIZE [options]     train, and write a model
       %(prog)s CORPUS [CORPUS ...] +N --extend MODEL [options]  learn N more tokens for a model
       %(prog)s CORPUS [CORPUS ...] --encode FILE [options]  write token ids
       %(prog)s --show TEXT [options]                        show how the model splits TEXT"""


def make_parser() -> ArgumentParser:
    """Return the parser of the command line."""
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
    add_groups(parser)
    parser.formatter_class = HelpFormatter
    return parser


def add_groups(parser: ArgumentParser) -> None:
    """Add the options that have a group in the help, whose title names the page that explains them."""
    add = parser.add_argument_group("training (docs/python.md)").add_argument
    more = f"a special token in addition to {bpe.END_OF_TEXT}; repeat the option for each"
    add("--special-token", action="append", type=utf8, dest="special_tokens", metavar="TEXT", help=more)
    # --special-token appends its TEXT to the list, and this option None; see special_tokens_of()
    none = f"no {bpe.END_OF_TEXT}: only those of --special-token"
    add("--no-special-tokens", action="append_const", const=None, dest="special_tokens", help=none)
    add("--pattern", type=utf8, help=f"{', '.join(bpe.PATTERNS)} or a custom pattern (default: gpt2)")
    add("--min-word-count", type=int, metavar="N", help="leave out words that occur fewer than N times (default: 1)")
    add("--min-frequency", type=int, metavar="N", help="merge no pair that occurs fewer than N times (default: 1)")
    extend = "learn more tokens for the model in a folder: CORPUS ... +10000, or +10k; old ids stay (docs/extend.md)"
    add("--extend", metavar="MODEL", help=extend)

    add = parser.add_argument_group("input (docs/data.md)").add_argument
    column = "the column of Parquet and JSON Lines (.parquet, .arrow, .jsonl, .json) that has the texts (default: text)"
    add("--column", type=utf8, metavar="NAME", help=column)
    as_kind = "text: read JSON as plain text; jsonl: read standard input as JSON Lines"
    add("--as", choices=["text", "jsonl"], dest="as_kind", help=as_kind)
    add("--errors", choices=get_args(choices.Errors), help="replace: read invalid UTF-8 as U+FFFD (default: strict)")

    add = parser.add_argument_group("encoding (docs/recipes.md)").add_argument
    add("--encode", metavar="FILE", help="write the token ids of the corpus to a .npy or .bin file")
    end = "with --encode: this special token ends each file or row; special tokens in it are plain text"
    add("--end", type=utf8, metavar="TOKEN", help=end)
    add("--begin", type=utf8, metavar="TOKEN", help="the same, before each file or row")

    add = parser.add_argument_group("showing (docs/python.md)").add_argument
    add("--show", type=utf8, metavar="TEXT", help="show how the model in FOLDER splits TEXT")
    add("--explain", metavar="N or A-B", help="say why the first N merges, or merges A to B, are made")
    add("--compare", metavar="FILE", help="explain the first merge that differs from those of a merges.txt")

    add = parser.add_argument_group("cluster (docs/cluster.md)").add_argument
    url = "work on a cluster: dask://HOST:PORT, ray://HOST:PORT, spark://HOST:PORT, or local"
    add("--cluster", metavar="URL", help=url)
    counts = "with --cluster: a folder that keeps counts, so that a second start only counts the rest"
    add("--counts", metavar="FOLDER", help=counts)
    add("--buckets", type=int, metavar="N", help="with --cluster: divide words into so many parts")
    add("--task-bytes", type=int, metavar="N", help="with --cluster: how many bytes a task counts")


def utf8(argument: str) -> str:
    """Read an argument as UTF-8 if Python has read it as ASCII, as it may do for LC_ALL=C."""
    if re.search("[\udc80-\udcff]", argument):  # bytes beyond ASCII
        with contextlib.suppress(UnicodeError):  # not UTF-8 either, which is an error later
            return os.fsencode(argument).decode("utf-8")
    return argument


def complete(args: Namespace) -> None:
    """Set args.explains, args.saves and the model's folder; refuse two tasks, and options that a task can't use."""
    if args.version:
        return
    given = [name for name in ("show", "encode", "explain", "compare", "extend") if getattr(args, name) is not None]
    require(len(given) < 2, "argument --{}: not allowed with argument --{}", *reversed(given[:2]))
    if args.cluster is not None:
        tasks_here = args.explain, args.compare, args.extend
        require(tasks_here == (None, None, None), "--explain, --compare and --extend don't work with --cluster")
    if args.extend is not None:
        require(args.pattern is None, "--extend takes no --pattern: the model has one")
        more = [token for token in args.special_tokens or () if token is not None]
        way = f"; to add more, in Python: Tokenizer.load(...).with_special_tokens({more!r})" if more else ""
        require(args.special_tokens is None, "--extend takes no --special-token: the model has its own{}", way)
    args.explains = args.explain is not None or args.compare is not None
    args.saves = args.model is not None or not args.explains
    if args.model is None:
        args.model = "bpeModel"


def parse(arguments: Sequence[str]) -> Namespace:
    """Return the parsed command line. Raises ValueError, with a way out for two frequent mistakes."""
    parser = make_parser()
    try:
        args = parser.parse_intermixed_args(arguments)
        complete(args)
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


TRAINING = ("special_tokens", "pattern", "errors", "min_word_count", "min_frequency", "workers", "engine", "column")
EXTENDING = TRAINING[2:]  # the model has special tokens and a pattern
ENCODING = ("errors", "workers", "engine", "column", "begin", "end")


def given_options(args: Namespace, taken: Sequence[str]) -> dict[str, Any]:
    """Return the options that were given, progress, and in training special tokens.

    Raises TypeError for an option that isn't taken.
    """
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
    if "special_tokens" in taken:
        given["special_tokens"] = special_tokens_of(args)
    given["progress"] = not args.quiet and is_terminal()
    return given


def take_size(args: Namespace) -> int:
    """Take the last argument from the corpus if it is a size; return the size, or 0 with --encode, which needs none."""
    last = args.corpus[-1] if args.corpus else ""
    is_file = args.encode is not None and os.path.exists(last)  # which may be named 2024
    size = None if is_file else size_of(last.removeprefix("+"))
    if size is not None:
        args.corpus.pop()
    require(args.corpus, "a corpus is missing: bpe-py corpus.txt 10000")
    is_more = last.startswith("+")
    if args.encode is not None:
        require(size is None, "--encode uses a saved model: train it first, with another command")
    elif args.extend is not None:
        text = "with --extend, the last argument must be the number of new tokens, such as +10000 or +10k, not {!r}"
        require(is_more and size, text, last)
    else:
        text = "the last argument must be the vocabulary size, such as 10000 or 10k, not {!r}"
        text += "; +N is for --extend MODEL" if is_more else ""
        require(size is not None and not is_more, text, last)
    return size or 0


def size_of(text: str) -> int | None:
    """Return the number that an argument such as 10000, 10,000 or 10k means, or None if it isn't one."""
    if not re.fullmatch(r"-?\d+([,_]\d{3})*[kK]?", text):
        return None
    return int(text.replace(",", "").lower().replace("k", "000"))


def find_corpus(args: Namespace) -> None:
    """Replace patterns of names in the corpus by files, which must be there; refuse options that don't fit it."""
    if args.as_kind == "jsonl":
        args.corpus = ["-.jsonl" if path == "-" else path for path in args.corpus]
    if args.cluster is not None:  # files may be URLs, which cluster finds
        is_stdin = set(outputs.STDIN) & set(args.corpus)
        require(not is_stdin, "--cluster can't read standard input: write the text to files")
        return
    for name in ("counts", "buckets", "task_bytes"):
        require(getattr(args, name) is None, "--{} needs --cluster", name.replace("_", "-"))
    args.corpus = inputs.expanded(args.corpus)
    if args.column is not None:
        reading.refuse_useless_column(args.corpus, choices.Options(column=args.column), is_given=True)
    for path in args.corpus:  # Corpus does that, too, but its errors are for Python
        inputs.check_path(path)
        if os.path.isdir(path):
            raise ValueError(f"{path} is a folder; name its files ({inputs.glob_for(path)})")
        if path.lower().endswith((".csv", ".tsv")):
            warnings.warn(f"{path} was read as plain text, with all columns; for one column, convert it to Parquet "
                          "(docs/data.md), and name it: --column text", stacklevel=2)
        if path not in outputs.STDIN:
            os.stat(path)


def special_tokens_of(args: Namespace) -> tuple[str, ...]:
    """Return the special tokens for training, checked: <|endoftext|> is the first one by default."""
    given = args.special_tokens or []
    tokens = steps.check_special_tokens(token for token in given if token is not None)  # None: --no-special-tokens
    return tokens if None in given or bpe.END_OF_TEXT in tokens else (bpe.END_OF_TEXT, *tokens)
