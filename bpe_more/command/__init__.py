"""The command line, bpe-py: main() reads it, does one task, and turns errors into lines and a status.

arguments   the options, and the corpus
work        training, and what other tasks do, too
models      --show, --encode and --extend, which load a model
summary     the lines that say what was done

Gives: main(), which is public. It imports models and work when a task needs them.
Uses: arguments, models, summary, work, corpus.progress, errors.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import re
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import Any

from bpe_more.command import arguments, summary
from bpe_more.corpus.progress import FAILED, say, visible
from bpe_more.errors import sigterm_as_ctrl_c

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
    """Do what the options say; return the status: 1 if --compare found a difference, else 0."""
    if args.version:
        say(f"{args.version}\n", "stdout")
        return 0
    # only what a task needs is imported, which takes as long as a small training
    if args.show is not None:
        from bpe_more.command import models

        models.show(args)
        return 0
    size = arguments.take_size(args)
    arguments.find_corpus(args)
    if args.encode is None and args.extend is None:
        from bpe_more.command import work

        if args.cluster is None:
            return 0 if work.train(args, size) else 1
        work.train_on_cluster(args, size)
        return 0
    from bpe_more.command import models

    if args.extend is not None:
        models.extend(args, size)
    elif args.cluster is None:
        models.encode(args)
    else:
        models.encode_on_cluster(args)
    return 0
