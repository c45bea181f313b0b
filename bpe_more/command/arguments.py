"""The options of the command line: how they are read, and which task takes which.

Options of training have the names of train_bpe's arguments.

Gives: parse(), check_extend(), given_options(), model_folder(), vocab_size_of().
Uses: choices, corpus.progress, errors, patterns.steps.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import time
from argparse import ArgumentParser, HelpFormatter, Namespace
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, get_args

import bpe
from bpe_more import choices
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
    for name, (page, add_options) in GROUPS.items():
        add_options(parser.add_argument_group(f"{name} ({page})").add_argument)
    parser.formatter_class = HelpFormatter
    return parser


def add_training(add: Callable[..., Any]) -> None:
    """Add the options of training, and --extend."""
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


def add_input(add: Callable[..., Any]) -> None:
    """Add the options that say how files are read."""
    column = "the column of Parquet and JSON Lines (.parquet, .arrow, .jsonl, .json) that has the texts (default: text)"
    add("--column", metavar="NAME", help=column)
    as_kind = "text: read JSON as plain text; jsonl: read standard input as JSON Lines"
    add("--as", choices=["text", "jsonl"], dest="as_kind", help=as_kind)
    add("--errors", choices=get_args(choices.Errors), help="replace: read invalid UTF-8 as U+FFFD (default: strict)")


def add_encoding(add: Callable[..., Any]) -> None:
    """Add --encode, and the tokens around a document."""
    add("--encode", metavar="FILE", help="write the token ids of the corpus to a .npy or .bin file")
    end = "with --encode: this special token ends each file or row; special tokens in it are plain text"
    add("--end", metavar="TOKEN", help=end)
    add("--begin", metavar="TOKEN", help="the same, before each file or row")


def add_showing(add: Callable[..., Any]) -> None:
    """Add the tasks that show something."""
    add("--show", metavar="TEXT", help="show how the model in FOLDER splits TEXT")
    add("--explain", metavar="N or A-B", help="say why the first N merges, or merges A to B, are made")
    add("--compare", metavar="FILE", help="explain the first merge that differs from those of a merges.txt")


def add_cluster(add: Callable[..., Any]) -> None:
    """Add --cluster, and its own options."""
    url = "work on a cluster: dask://HOST:PORT, ray://HOST:PORT, spark://HOST:PORT, or local"
    add("--cluster", metavar="URL", help=url)
    counts = "with --cluster: a folder that keeps counts, so that a second start only counts the rest"
    add("--counts", metavar="FOLDER", help=counts)
    add("--buckets", type=int, metavar="N", help="with --cluster: divide words into so many parts")
    add("--task-bytes", type=int, metavar="N", help="with --cluster: how many bytes a task counts")


GROUPS = {  # of the help: the page that explains the options, and the function that adds them
    "training": ("docs/python.md", add_training),
    "input": ("docs/data.md", add_input),
    "encoding": ("docs/recipes.md", add_encoding),
    "showing": ("docs/python.md", add_showing),
    "cluster": ("docs/cluster.md", add_cluster),
}


def check_one_task(args: Namespace) -> None:
    """Raise an error if two options name different things to do."""
    given = [name for name in ("show", "encode", "explain", "compare", "extend") if getattr(args, name) is not None]
    require(len(given) < 2, "argument --{}: not allowed with argument --{}", *reversed(given[:2]))


def check_extend(args: Namespace) -> None:
    """Refuse options that --extend doesn't take, because the model has its own."""
    require(args.pattern is None, "--extend takes no --pattern: the model has one")
    more = [token for token in args.special_tokens or () if token is not None]
    way = f"; to add more, in Python: Tokenizer.load(...).with_special_tokens({more!r})" if more else ""
    require(args.special_tokens is None, "--extend takes no --special-token: the model has its own{}", way)


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


def model_folder(args: Namespace) -> str:
    """Return the folder of the model that is used, or made."""
    return "bpeModel" if args.model is None else args.model


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
