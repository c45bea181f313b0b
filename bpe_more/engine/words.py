"""Words and their counts in C: tables that threads fill, each its own, and that are merged at the end.

Gives: Words, which Engine.words() creates.
Uses: nothing of bpe_more.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import build_ffi


class Words:
    """Words and their counts in C. A call that scans takes a table that no other call uses; they are merged later."""

    def __init__(self, engine: Any, special_tokens: Sequence[str], pattern: str) -> None:
        self.engine = engine
        self.pattern, _ = engine.pattern(pattern)  # NULL if C can't scan it: then words are only added
        self.rules = engine.rules(special_tokens, self.pattern)
        self.tables: list[Any] = [self.new_table()]  # none after an error, which lost words, or when they are used up
        self.free = self.tables[:]  # the tables that no call is using

    def new_table(self) -> Any:
        """Create an empty table."""
        return self.engine.create("words", build_ffi.new_seed())

    def scan_all(self, texts: Sequence[bytes]) -> None:
        """Count the words of texts. Raises UnicodeDecodeError for one that is not UTF-8.

        After an error, the table stays in `tables`, but is no longer free: the next use reports it as used up.
        """
        try:
            table = self.free.pop()
        except IndexError:
            self.check_tables()
            table = self.new_table()
            self.tables.append(table)
        data, ends = self.engine.joined(texts)
        status = self.engine.lib.bpe_words_scan(table, self.rules, data, self.engine.in_memory(ends), len(texts))
        if status == self.engine.lib.BPE_BAD_UTF8:
            for data in texts:
                data.decode("utf-8")  # one of them raises the error
        self.engine.check(status)
        self.free.append(table)

    def add(self, pairs: Iterable[tuple[bytes, int]]) -> None:
        """Add the counts of words, some thousands at a time: arrays of all words would take more memory."""
        table, pairs = self.handle(), iter(pairs)
        while batch := list(itertools.islice(pairs, 10_000)):
            words = [word for word, _ in batch]  # zip(*batch) takes 6 times as long
            self.put(table, *self.engine.words_with_counts(words, [count for _, count in batch]))

    def put(self, table: Any, *words: Any) -> None:
        """Add words to a table: concatenated, their lengths, their counts."""
        self.engine.check(self.engine.lib.bpe_words_put(table, *words, len(words[1])))

    def get(self, table: Any, min_count: int = 1) -> tuple[Any, Any, Any]:
        """The words of a table that occur at least min_count times, as put() takes them."""
        new, sums = self.engine.new, self.sums(table, min_count)
        words = new("uint8_t[]", sums.bytes), new("uint64_t[]", sums.words), new("uint64_t[]", sums.words)
        self.engine.check(self.engine.lib.bpe_words_get(table, min_count, *words, sums))
        return words

    def sums(self, table: Any, min_count: int = 1) -> Any:
        """The struct bpe_totals of the words in a table that occur at least min_count times."""
        null, sums = [self.engine.ffi.NULL] * 3, self.engine.ffi.new("bpe_totals *")
        self.engine.check(self.engine.lib.bpe_words_get(table, min_count, *null, sums))
        return sums

    def handle(self) -> Any:
        """Merge all tables into one. Must not run while threads are scanning."""
        self.check_tables()
        # Ctrl-C between release() and put() loses words: then no table is left, and the next call raises.
        tables, self.tables, self.free = self.tables, [], []
        while len(tables) > 1:
            words = self.get(tables[-1])
            self.engine.ffi.release(tables.pop())  # so that memory holds these words twice at most
            self.put(tables[0], *words)
        self.tables, self.free = tables, tables[:]
        return tables[0]

    def check_tables(self) -> None:
        """Raise the error of words that were used up if an earlier call failed, and lost some."""
        if not self.tables:
            self.engine.check(self.engine.lib.BPE_USED_UP)

    def totals(self, least: int = 1) -> tuple[int, int, int]:
        """Return (distinct words, words, bytes in words) of the words that occur at least `least` times."""
        sums = self.sums(self.handle(), min(least, 2**64 - 1))
        return sums.words, sums.all_words, sums.all_bytes

    def __len__(self) -> int:
        return self.totals()[0]

    def items(self) -> Any:
        """The words and their counts, in any order."""
        return self.copy().items()

    def copy(self) -> dict[bytes, int]:
        """The words and their counts, in any order."""
        blob, lengths, counts = self.get(self.handle())
        view, ends = self.engine.ffi.buffer(blob), itertools.accumulate(lengths)
        return {view[end - length : end]: count for end, length, count in zip(ends, lengths, counts)}
