"""The summary of a run: one line for each thing that was done.

Gives: report(), which prints a line; the texts of notes on documents, the engine, the model and special tokens.
Uses: choices, corpus.progress, corpus.reading.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import time
import warnings
from argparse import Namespace
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

import bpe
from bpe_more import choices
from bpe_more.corpus import reading
from bpe_more.corpus.progress import say, visible


@contextlib.contextmanager
def warnings_as_notes(args: Namespace) -> Iterator[None]:
    """Make warnings lines of the summary."""
    with warnings.catch_warnings(record=True) as caught:
        yield
    for warning in caught:
        report(args, "note", str(warning.message))


def documents_notes(corpus: reading.Corpus, special_tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
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


def engine_used(options: choices.Options, tokenizer: Any = None) -> str:
    """Return the engine that splits text into words, and encodes it if there is a tokenizer, and why it isn't C."""
    if options.engine == "python":
        return "Python (as chosen)"
    engine, reason = choices.find_engine()
    if engine and not reason:
        if lacks := choices.lacking_in_c(options.pattern):
            reason = f"C scans no pattern with {lacks}"
        elif tokenizer is not None and not tokenizer.encoder.in_c:
            reason = "C can't hold this vocabulary"
    return f"Python ({reason})" if reason else "C"


def sizes(options: choices.Options, n_tokens: int, n_merges: int) -> str:
    """Say how large a new vocabulary is, of what, and why it isn't larger."""
    specials = bpe.plural(len(options.special_tokens), "special token")
    parts = f"256 bytes + {specials} + {bpe.plural(n_merges, 'merge')}"
    if n_tokens < options.vocab_size:
        parts += f"; {options.vocab_size:,} requested, but no pair has a count of {options.min_frequency} or more"
    return f"{n_tokens:,} = {parts}"


def description(tokenizer: Any, name: str) -> str:
    """Say which model a run uses: its folder, its size and its pattern."""
    pattern = tokenizer.pattern if isinstance(tokenizer.pattern, str) else ", ".join(tokenizer.pattern)
    shown = pattern if len(pattern) <= 60 else pattern[:60] + "..."
    return f"{name}: {bpe.plural(len(tokenizer), 'token')}, pattern {shown}"


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
    times = f"<| was learned as text ({bpe.plural(counts[b'<|'], 'time')}), and so was |> ({counts[b'|>']:,})"
    return f'{times}; if they belong to special tokens, name each one: --special-token "<|user|>"'


def report(args: Namespace, name: str, text: str) -> None:
    """Print a line of the summary, after the time so far, unless its text is empty."""
    if text and not args.quiet:
        say(f"{time.perf_counter() - args.start:6.2f} s  {name:14} {visible(text)}\n")


def report_left_out(args: Namespace, n_bytes: int) -> None:
    """Print how many bytes of a text have no token, if there are any."""
    if n_bytes:
        report(args, "left out", f"{bpe.plural(n_bytes, 'byte')} without a token in this vocabulary")
