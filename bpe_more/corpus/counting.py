"""Counting words, and learning from the counts, in C or in Python.

Gives: new_table() and WordTable; count_texts(), and scan_normalized(), which normalizes text for C; special_counter();
learn_with_progress() and merges_with_progress().
Uses: choices, progress, patterns.steps.
"""

from __future__ import annotations

import collections
import functools
import itertools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import bpe
from bpe_more import choices
from bpe_more.corpus import progress
from bpe_more.patterns import steps
from bpe_more.patterns.steps import Normalizer


def scan_normalized(table: Any, normalizer: Normalizer, options: choices.Options, texts: Sequence[bytes]) -> Any:
    """Count the words of normalized texts in a table of C.

    Texts in which normalizing makes or breaks special tokens are counted in Python. Returns these counts, or None.
    """
    normalized = list(map(normalizer.normalized, texts))
    table.scan_all([text for text in normalized if text is not None])
    others = [text for text, result in zip(texts, normalized) if result is None]
    return count_texts(others, options) if others else None


class WordTable(collections.Counter[bytes]):
    """Words and their counts. Tables in C have add(), items(), totals(), len(), and copy(), which returns a dict."""

    n_bytes = 0  # in words given to add(), times their counts; not in update(): real text can't reach 2**63

    def add(self, pairs: Iterable[tuple[bytes, int]]) -> None:
        """Add the counts of words.

        Raises OverflowError for 2**63 bytes of words or more, because C counts pairs of tokens in 64 bits.
        """
        n_bytes = self.n_bytes
        for word, count in pairs:
            number = operator.index(count)  # a sum of numpy's integers would wrap around
            self[word] += number
            n_bytes += len(word) * number
        self.n_bytes = n_bytes
        if n_bytes >= 2**63:
            raise OverflowError("2**63 bytes of words or more, counting every occurrence")

    def totals(self, least: int = 1) -> tuple[int, int, int]:
        """Return (distinct words, words, bytes in words) of the words that occur at least `least` times."""
        words = [(word, count) for word, count in self.items() if count >= least]
        return len(words), sum(count for _, count in words), sum(len(word) * count for word, count in words)


def new_table(options: choices.Options) -> Any:
    """Return an empty table for counts made elsewhere: C's, or a WordTable if C only learns, or isn't used."""
    engine = choices.engine_for(options)
    if engine and not engine.only_learns:
        return engine.words((), "gpt2")  # which splits no text, so any pattern will do
    return WordTable()


def special_counter(special_tokens: Sequence[str], in_threads: bool) -> Callable[[Sequence[bytes]], int]:
    """Return a function that counts special tokens in texts: C's for threads, else Python's, which can be pickled.

    in_threads    whether threads do the work, which they do only in C
    """
    engine = choices.find_engine()[0] if in_threads else None
    if engine and not engine.only_learns:
        return engine.special_counter(special_tokens)  # type: ignore[no-any-return]
    return functools.partial(count_specials, bpe.special_token_finder(tuple(special_tokens)))


def count_specials(finder: re.Pattern[str], texts: Sequence[bytes]) -> int:
    """Count special tokens in texts."""
    return sum(len(finder.findall(text.decode("utf-8"))) for text in texts)


def count_texts(texts: Iterable[bytes], options: choices.Options) -> dict[bytes, int]:
    """Return the count of each word in texts. A ValueError has the number of its text."""
    counts: collections.Counter[str] = collections.Counter()
    for number, utf8 in enumerate(texts):
        pieces = bpe.special_token_finder(options.special_tokens).split(utf8.decode("utf-8"))
        try:
            for text in pieces[::2]:  # the others are special tokens
                counts.update(steps.find_words(text, options.pattern))
        except ValueError as error:
            error.number = number  # type: ignore[attr-defined]
            raise
    return {word.encode("utf-8"): count for word, count in counts.items()}


def learn_with_progress(table: Any, options: choices.Options) -> Iterator[bpe.Learned]:
    """Learn merges from a table of words, which is used up; yield them with their counts, best first."""
    n_wanted = options.vocab_size - 256 - len(options.special_tokens)  # merges that fill the vocabulary
    engine = choices.engine_for(options)
    learn_with = engine.learn if engine else learn_in_python
    merges = learn_with(table, n_wanted, options.min_frequency, options.min_word_count)
    return merges_with_progress(merges, n_wanted, options)


def merges_with_progress(merges: Iterator[bpe.Learned], n_wanted: int,
                         options: choices.Options) -> Iterator[bpe.Learned]:
    """Pass merges on, and show progress."""
    return progress.with_progress(merges, options.progress, lambda n: ("learning merges", n, n_wanted, ""))


def learn_in_python(table: WordTable, most_merges: int, min_frequency: int,
                    min_word_count: int = 1) -> Iterator[bpe.Learned]:
    """Return the merges of bpe.learn_from_bytes that are wanted and frequent enough; the table is used up."""
    words = {word: count for word, count in table.items() if count >= min_word_count}
    table.clear()  # the learner needs the memory
    merges = itertools.islice(bpe.learn_from_bytes(words), most_merges)
    # no merge has a higher count, which is merge[2], than the one before it
    return itertools.takewhile(lambda merge: merge[2] >= min_frequency, merges)
