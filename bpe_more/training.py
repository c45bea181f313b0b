"""Training with all options: train_bpe, and its two halves, count_words and train_from_counts.

Gives: these three, which are public; learn_model() for a table of words, model_of() for merges; checked_counts().
Uses: choices, corpus.counting, corpus.reading, errors.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import bpe
from bpe_more import choices
from bpe_more.corpus import counting, reading
from bpe_more.errors import warn


def train_bpe(input_path: bpe.Paths = None, vocab_size: int | None = None, special_tokens: bpe.Strings = None, *,
              texts: bpe.Strings = None, pattern: str = "gpt2", errors: choices.Errors = "strict",
              min_word_count: int = 1, min_frequency: int = 1, workers: int | None = None,
              engine: bpe.EngineName = "auto", progress: bool = False, column: str | None = "text") -> bpe.Model:
    """Train byte-level BPE; return vocab {id: token} and merges [(left, right), ...] in order.

    input_path        the path of a file, or a list of paths: UTF-8 text, or files with a column (see `column`); text
                      and JSON Lines may be compressed (.gz, .zst); "-" is standard input
    vocab_size        required; the maximum number of tokens: 256 bytes, special tokens, and merges
    special_tokens    a list of strings that get the ids from 256 on; text is split at them first
    texts             instead of input_path, an iterable of strings, each a separate text; or a column of Arrow,
                      or an iterable of them
    pattern           "gpt2", "cl100k", "o200k", "llama3", "qwen2", or an expression for regex
    errors            "strict": bytes that are not UTF-8 are an error; "replace": they become U+FFFD,
                      and so do lone surrogates in texts
    min_word_count    words that occur less often are left out of learning, to save memory
    min_frequency     the lowest count at which a pair is still merged
    workers           the maximum number of processes, or of threads if C counts; by default one per core.
                      Except on Linux, processes need `if __name__ == "__main__":` in a script
    engine            "python", "c", or "auto": C if it is built. The result is the same
    progress          show progress on standard error, in one line
    column            the column with the texts, in Parquet, Arrow, Feather and JSON Lines (.jsonl, .ndjson, .json);
                      None reads JSON as plain text

    >>> train_bpe(texts=["low lower lowest"], vocab_size=258)[1]
    [(b'o', b'w'), (b'l', b'ow')]

    Raises ValueError or TypeError for bad arguments and for text that is not UTF-8, OSError for files,
    RuntimeError if a worker process is killed. train_from_counts raises OverflowError if the words, counting
    every occurrence, have 2**63 bytes or more.
    """
    options = choices.Options(special_tokens, pattern, errors, workers, engine, progress, vocab_size, min_word_count,
                      min_frequency, column).checked()
    return learn_model(reading.Corpus(input_path, texts, options).count(), options)


def count_words(paths: bpe.Paths = None, special_tokens: bpe.Strings = None, *, texts: bpe.Strings = None,
                pattern: str = "gpt2", errors: choices.Errors = "strict", workers: int | None = None,
                engine: bpe.EngineName = "auto", progress: bool = False,
                column: str | None = "text") -> dict[bytes, int]:
    """Count words: the first half of train_bpe, whose docstring explains the arguments and errors.

    >>> count_words(texts=["hi hi"], engine="python")
    {b'hi': 1, b' hi': 1}
    """
    options = choices.Options(special_tokens, pattern, errors, workers, engine, progress, column=column).checked()
    return dict(reading.Corpus(paths, texts, options).count().copy())  # a table in C isn't a mapping, but has copy()


def train_from_counts(words: bpe.Counts | Iterable[tuple[bytes, int]], vocab_size: int,
                      special_tokens: bpe.Strings = None, *, min_word_count: int = 1, min_frequency: int = 1,
                      engine: bpe.EngineName = "auto", progress: bool = False) -> bpe.Model:
    """Learn from counts of words: the second half of train_bpe, with the same result.

    So the counts of several corpora can be added up. words is a mapping, or an iterable of pairs (word,
    count), in which a word may come twice. Raises ValueError if a word isn't bytes, or a count is
    negative, or a word has a special token in it, and TypeError for an item that is not a pair.

    >>> train_from_counts({b"low": 2, b" lower": 1}, 258)[1]
    [(b'o', b'w'), (b'l', b'ow')]
    """
    options = choices.Options(special_tokens, engine=engine, progress=progress, vocab_size=vocab_size,
                      min_word_count=min_word_count, min_frequency=min_frequency).checked()
    table = counting.new_table(options)
    table.add(checked_counts(words, options.special_tokens))
    return learn_model(table, options)


def checked_counts(words: Any, special_tokens: Sequence[str]) -> Iterator[tuple[bytes, int]]:
    """Yield the pairs (word, count) of a mapping or an iterable; refuse the first bad pair.

    A word that contains a special token is refused, too: text is split at these, so no word contains one.
    """
    special = re.compile(b"|".join(re.escape(token.encode("utf-8")) for token in special_tokens))
    if not isinstance(words, Iterable):
        raise TypeError(f"words must be a mapping of words to counts, or pairs (word, count), not {words!r:.60}")
    for pair in words.items() if isinstance(words, Mapping) else words:
        try:
            word, count = pair
            good = isinstance(word, bytes) and operator.index(count) >= 0
        except (TypeError, ValueError) as error:
            check_word_has_count(pair)
            raise TypeError(f"{pair!r:.60} is not a pair (word, count): {error}") from None
        if not good:  # faster than a call of require() for each pair
            check_word_has_count(pair)
            raise ValueError(f"words must be bytes and counts not negative, not {word!r:.60}: {count}")
        if special_tokens and special.search(word):  # without any, `special` would match every word
            raise ValueError(f"the word {word!r:.60} has a special token in it, so it can't come from text")
        yield word, count


def check_word_has_count(pair: object) -> None:
    """Refuse a word without a count. b"hi" could be unpacked like a pair, into 104 and 105."""
    if isinstance(pair, (str, bytes)):
        way = "for words without counts, pass {word.encode(): 1 for word in words}"
        raise TypeError(f"{pair!r:.60} is not a pair (word, count): {way}")


def learn_model(table: counting.WordTable, options: choices.Options) -> bpe.Model:
    """Return (vocab, merges) for a table of words; warn if there are fewer tokens than requested."""
    vocab, merges = model_of(counting.learn_with_progress(table, options), options)
    if len(vocab) < options.vocab_size:
        text = f"{len(vocab):,} tokens, not {options.vocab_size:,}: no other pair has a count of"
        warn(f"{text} {options.min_frequency} or more")
    return vocab, merges


def model_of(learned: Iterable[bpe.Learned], options: choices.Options) -> bpe.Model:
    """Return (vocab, merges) for the results of learn_with_progress()."""
    merges = [(left, right) for left, right, _, _ in learned]
    specials = [special.encode("utf-8") for special in options.special_tokens]
    return dict(enumerate([*bpe.BYTES, *specials, *map(b"".join, merges)])), merges
