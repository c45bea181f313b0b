"""The C engine with all that bpe.py can use: tables of words and encoders, besides the merge loop of build_ffi.py.

build_ffi.py imports this folder, compiles its C files, and loads them.

words           tables of words and their counts
encoder         text to ids
bpe_extend.c    learning for an old vocabulary; the merge loop, with its tie rule, is bpe_fast.c
bpe_shared.c    words as keys, and the batches in which they leave the scanner
bpe_words.c     the scanner, which finds the words of text and its special tokens; counting
bpe_encode.c    encoding, with the cache of words, and with ignore_merges
bpe_lists.c     lists of ids

Gives: Engine, with the calls that bpe.py and the package make; C_FILES and tables() for the build.
Uses: encoder, words, errors, patterns.automaton, patterns.machine, patterns.parsing, workers.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import warnings
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import regex

import build_ffi
from bpe_more import workers
from bpe_more.engine.encoder import Encoder
from bpe_more.engine.words import Words
from bpe_more.errors import all_delayed

# each after those that it uses
C_FILES = ("bpe_extend.c", "bpe_shared.c", "bpe_words.c", "bpe_encode.c", "bpe_lists.c")
THREAD_BYTES = 16 << 20  # of files for each thread that counts: each has its own table, and merging them takes time
MOST_IN_TURN = 8  # steps of a pattern that C takes one after another; each one needs 8 KB of the stack


class Engine(build_ffi.Engine):
    """The C engine, as bpe.py uses it: text and words are bytes, ids and counts are numbers.

    build_ffi.Engine has ffi, lib, only_learns, learn(), merges_of(), words_with_counts(); declines(), arrays() and
    check(), which are overridden here; and create(kind, ..., by="new"), which calls bpe_KIND_new, or bpe_KIND_{by}, and
    lets Python free the handle with bpe_KIND_free.
    """

    def __init__(self, module: Any, named: Mapping[str, str], last_cut: Any) -> None:
        super().__init__(module, "")
        self.last_cut = last_cut
        self.named = named  # {name of a pattern: expression}
        self.new = self.ffi.new_allocator(should_clear_after_alloc=False)  # for arrays that C fills
        self.words = functools.partial(Words, self)  # (special_tokens, pattern): create an empty table of words
        self.custom = functools.lru_cache(maxsize=32)(self.new_pattern)
        self.patterns = self.built_in_patterns()

    def built_in_patterns(self) -> Mapping[str, Any]:
        """Return {expression: its tables in C}; none if C's letters aren't those of the installed regex package."""
        built_with = self.ffi.string(self.lib.bpe_regex_version).decode()
        digest_then = self.ffi.string(self.lib.bpe_class_digest).decode()
        if built_with != regex.__version__ and digest_then != tables_digest(self.named.values()):
            text = f"the C engine was built with regex {built_with}, whose letters differ from {regex.__version__}; "
            warnings.warn(text + f"using regex instead ({build_ffi.COMMAND} rebuilds the engine)", stacklevel=2)
            return {}
        expressions = self.ffi.string(self.lib.bpe_expressions).decode().split("\n")
        return {expression: self.lib.bpe_patterns + number for number, expression in enumerate(expressions)}

    def pattern(self, pattern: str | tuple[str, ...]) -> tuple[Any, str]:
        """Return (a pattern as C has it, ""), or (NULL, why C can't scan it)."""
        if not isinstance(pattern, str):
            return self.custom(tuple(self.named.get(step, step) for step in pattern))
        if pattern in self.named and not self.patterns:  # rare, so only the engine's build makes their tables
            return self.ffi.NULL, "letters of another version of regex"
        # bpe.py may have other expressions than when C was built: then their tables are made now
        expression = self.named.get(pattern, pattern)
        return (self.patterns[expression], "") if expression in self.patterns else self.custom(expression)

    def new_pattern(self, pattern: str | tuple[str, ...]) -> tuple[Any, str]:
        """Make the tables of a custom pattern."""
        with all_delayed():
            from bpe_more.patterns import (  # only now: named patterns have theirs since the build
                automaton,
                machine,
                parsing,
            )
        try:
            fields = machine.fields_of(automaton.automaton_of(pattern))
        except (parsing.UnsupportedError, RecursionError) as error:
            several = not isinstance(pattern, str) and len(pattern) > 1
            return self.in_turn(pattern) if several else (self.ffi.NULL, str(error))
        for name, values in fields.items():
            if isinstance(values, array):
                fields[name] = self.in_memory(values)
        # The destructor keeps the arrays until C no longer needs them.
        return self.ffi.gc(self.ffi.new("bpe_pattern *", fields), lambda _: fields.clear()), ""

    def in_turn(self, steps: Sequence[str]) -> tuple[Any, str]:
        """Make the tables of several steps that can't be one automaton: those of each step point to the ones before."""
        if len(steps) > MOST_IN_TURN:
            return self.ffi.NULL, f"more than {MOST_IN_TURN} steps of this kind"
        made: list[Any] = []
        for step in steps:
            tables, lacks = self.pattern(step)
            if lacks:
                return self.ffi.NULL, lacks
            copy = self.ffi.new("bpe_pattern *", tables[0])
            copy.earlier = made[-1][0] if made else self.ffi.NULL
            made.append((copy, tables))
        return self.ffi.gc(copy, lambda _: made.clear()), ""  # the last step; the destructor keeps all of them

    def declines(self, pattern: Any) -> str:
        """Return why C can't scan a pattern, or ""."""
        return self.pattern(pattern)[1]

    def count(self, slices: Iterator[Any], pattern: Any, special_tokens: Sequence[str], n_threads: int) -> Words:
        """Count the words of slices in a table, in threads."""
        table = self.words(special_tokens, pattern)
        ahead = list(itertools.islice(slices, 1))
        if ahead and not ahead[0].texts:  # parts of files, of about 1 MB, which take no memory until they are read
            ahead += itertools.islice(slices, n_threads * THREAD_BYTES // (1 << 20))
            n_threads = min(n_threads, sum(part.end - part.start for part in ahead) // THREAD_BYTES + 1)
        slices = itertools.chain(ahead, slices)
        counted = workers.in_order(lambda part: part.apply(table.scan_all), slices, n_threads)
        with contextlib.closing(counted) as results:
            collections.deque(results, maxlen=0)
        return table

    def cuts(self, pattern: str | tuple[str, ...], window: bytes) -> Iterator[int]:
        """Yield the places at which a window can be cut, the last one first, as indexes of its text."""
        place = len(window.decode("utf-8", "surrogateescape"))
        end = len(window)
        while start := self.lib.bpe_last_cut(self.pattern(pattern)[0], window, end):
            place -= len(window[start:end].decode("utf-8", "surrogateescape"))
            end = start
            yield place

    def check(self, status: int) -> None:
        """Turn a return code into an exception; codes that callers handle themselves pass."""
        super().check(status)
        if status == self.lib.BPE_USED_UP:
            raise ValueError("these words were used up by an earlier training run, or by an error")
        if status in (self.lib.BPE_TOO_MANY_TOKENS, self.lib.BPE_LONG_WORD):
            raise OverflowError("2**21 - 1 tokens or more, or a word of about 2**32 bytes or more")

    def rules(self, special_tokens: Iterable[str], pattern: Any) -> Any:
        """Create the rules of special tokens and a pattern as C has it, which has to stay as long as they do.

        It is NULL if C can't scan it: then they only find special tokens.
        """
        tokens = list(map(str.encode, special_tokens))
        # not a list as an argument: for a long one, cffi raises SystemError if there is no memory for a copy
        lengths = self.ffi.new("size_t[]", list(map(len, tokens)))
        return self.create("rules", b"".join(tokens), lengths, len(tokens), pattern, build_ffi.new_seed())

    def words_with_ids(self, words: Collection[bytes], ids: Iterable[int]) -> tuple[bytes, Any, Any, int]:
        """Words for a C function: their bytes, concatenated, their lengths, their ids, and their number."""
        lengths = array("Q", map(len, words))
        return b"".join(words), self.in_memory(lengths), self.in_memory(array("I", ids)), len(words)

    def in_memory(self, numbers: array[int]) -> Any:
        """Return an array as a pointer for C, which keeps it alive."""
        return self.ffi.from_buffer(f"{c_type(numbers)}[]", numbers)

    def joined(self, texts: Sequence[bytes]) -> tuple[Any, array[int]]:
        """Return texts as C takes them, and a new array of their ends; slicing.Texts need no copy."""
        if hasattr(texts, "ends"):
            return self.ffi.from_buffer("uint8_t[]", texts.data), texts.ends[:]  # type: ignore[attr-defined]
        return b"".join(texts), array("Q", itertools.accumulate(map(len, texts)))

    def special_counter(self, special_tokens: Iterable[str]) -> Callable[[Sequence[bytes]], int]:
        """Return a function that counts special tokens in texts."""
        rules = self.rules(special_tokens, self.ffi.NULL)

        def count(texts: Sequence[bytes]) -> int:
            data, ends = self.joined(texts)
            return self.lib.bpe_count_specials(rules, data, self.in_memory(ends), len(texts))  # type: ignore[no-any-return]

        return count

    def encoder(self, tokenizer: Any) -> Encoder | None:
        """Create an encoder; None if C can't hold it (2**21 - 1 merges, or bytes and tokens of merges)."""
        with contextlib.suppress(OverflowError):
            return Encoder(self, tokenizer)
        return None

    def extend(self, tokens: Sequence[bytes], ids: array[int], n_ids: array[int], lengths: Any, counts: Any,
               merges_wanted: int, min_frequency: int) -> Iterator[tuple[bytes, bytes, int, int]]:
        """Yield what bpe.learn_merges yields for words of `tokens`: the 256 bytes, then longer ones in ascending order.

        ids are those of all words, concatenated. A word has n_ids tokens, and `lengths` bytes.
        """
        n_words, longer = len(counts), tokens[256:]
        words = self.in_memory(ids), self.in_memory(n_ids), lengths, counts, n_words
        old = b"".join(longer), self.in_memory(array("Q", map(len, longer))), len(longer)
        made = 0
        # A word may stay divided for ever. Then C, which expects that each merge completes a word at most, may not find
        # all pairs (it leaves out pairs rarer than the merges_wanted-th most frequent word, see new_array); with more
        # merges than words, it does, and the first `made` merges are the same.
        for wanted in (merges_wanted, n_words + 1):
            limits = (min(n, 2**64 - 1) for n in (wanted, min_frequency))
            learner = self.create("learner", *words, *old, *limits, build_ffi.new_seed(), by="extend")
            for merge in itertools.islice(self.merges_of(learner, tokens), made, merges_wanted):
                made += 1
                yield merge
            if made == merges_wanted or wanted > n_words:
                return

    def find_merges(self, ids: Mapping[str, int], merges: Sequence[str]) -> array[int]:
        """Return the ids of merges (left, right, new), which are given as two names: "low er".

        Returns none if one of them has no id, or a name has a newline, which separates names here. Raises
        UnicodeEncodeError for a surrogate.
        """
        names, pairs = ("\n".join([*lines, ""]).encode("utf-8") for lines in (ids, merges))
        has_newline = names.count(b"\n") > len(ids) or pairs.count(b"\n") > len(merges)
        if has_newline or b"\0" in pairs:  # no name has one
            return array("I")
        rows = array("I", bytes(12 * len(merges)))
        named = names, self.in_memory(array("I", ids.values())), len(ids)
        to_find = self.ffi.from_buffer("uint8_t[]", bytearray(pairs)), len(merges)
        status = self.lib.bpe_find_merges(*named, build_ffi.new_seed(), *to_find, self.in_memory(rows))
        self.check(status)
        return rows if status == self.lib.BPE_OK else array("I")

    def find_splits(self, vocab: Mapping[int, bytes]) -> array[int]:
        """Return what splits_of() in formats/tiktoken.py does."""
        ids = sorted(vocab)
        tokens = self.words_with_ids(list(map(vocab.__getitem__, ids)), ids)
        n_bytes = len(tokens[0])
        rows, n = self.new("uint32_t[]", 3 * n_bytes), self.ffi.new("size_t *")
        self.check(self.lib.bpe_find_splits(*tokens, build_ffi.new_seed(), rows, n))
        return array("I", self.ffi.buffer(rows)[: 12 * n[0]])

    def arrays(self, words: Words | Mapping[bytes, int], least: int) -> tuple[Any, Any, Any]:
        """Return the words that occur at least `least` times, as a learner takes them.

        A table of words is used up, a mapping is not.
        """
        table = words if isinstance(words, Words) else self.words((), "gpt2")
        if not isinstance(words, Words):
            # a learner needs an order that nobody can choose, as a table's is; sorting takes longer
            table.add(words.items())
        arrays = table.get(table.handle(), min(least, 2**64 - 1))
        table.tables, table.free = [], []  # so that memory holds these words twice at most
        return arrays


def c_type(numbers: array[int]) -> str:
    """Return the type in C of the numbers in an array."""
    return f"uint{8 * numbers.itemsize}_t"


# ------------------------------
# Building
# ------------------------------

def tables() -> str:
    """Return what comes after the C files: the named patterns of bpe.py, and what their tables depend on."""
    import bpe

    text = f'const char bpe_regex_version[] = "{regex.__version__}";\n'
    text += f'const char bpe_class_digest[] = "{tables_digest(bpe.PATTERNS.values())}";\n'
    return text + named_tables(bpe.PATTERNS.values())


def tables_digest(expressions: Iterable[str]) -> str:
    """Return a digest of named patterns with the classes of the installed regex package."""
    return build_ffi.digest(named_tables(expressions).encode())


def named_tables(expressions: Iterable[str]) -> str:
    """Return named patterns as C: their expressions, each in a line, and their tables."""
    expressions = tuple(expressions)
    lines = "".join(f"\\{byte:03o}" for byte in "\n".join(expressions).encode("utf-8"))
    return f'const char bpe_expressions[] = "{lines}";\n' + pattern_tables("bpe_patterns", expressions)


def pattern_tables(array_name: str, expressions: Sequence[str]) -> str:
    """Return an array of patterns as C."""
    from bpe_more.patterns.automaton import automaton_of
    from bpe_more.patterns.machine import fields_of

    text, rows = "", []
    for number, pattern in enumerate(expressions):
        fields = fields_of(automaton_of(pattern))
        for field, values in fields.items():
            if isinstance(values, array):
                fields[field] = f"{array_name}_{number}_{field}"
                numbers = ",".join(map(str, values))
                text += f"static const {c_type(values)} {fields[field]}[{len(values)}] = {{{numbers}}};\n"
        rows.append(f"{{{', '.join(map(str, fields.values()))}, NULL}}")
    return text + f"const bpe_pattern {array_name}[{len(rows)}] = {{{', '.join(rows)}}};\n"
