"""Build the optional C engine of bpe.py, and wrap it for Python.

`python build_ffi.py` compiles bpe_fast.c and bpe_text.c into a module next to this file. It requires a C compiler
and `pip install regex cffi setuptools`. bpe.py calls load_engine(), which returns an Engine or raises ImportError.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import functools
import importlib.machinery
import importlib.util
import itertools
import operator
import os
import pathlib
import re
import struct
import sys
import types
import warnings
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import regex

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = (pathlib.Path(HERE, "bpe_fast.c"), pathlib.Path(HERE, "bpe_text.c"))  # the second one uses the first
COMMAND = "python -m build_ffi" if HERE.endswith("-packages") else "python build_ffi.py"  # -m if pip installed it
VERSION = 26  # of the interface: a module built for another version is not used


def new_seed() -> tuple[int, int]:
    """Return two secret numbers for a hash table: without them, one could choose words that collide.

    Each table has its own: words in the order of another table with the same seed collide, too.
    """
    first, second = struct.unpack("QQ", os.urandom(16))
    return first, second


class Engine:
    """The C engine, as bpe.py uses it: text and words are bytes, ids and counts are numbers."""

    def __init__(self, module: Any, named: Mapping[str, str]) -> None:
        self.named = named  # the expressions of named patterns
        self.ffi, self.lib = module.ffi, module.lib
        self.new = self.ffi.new_allocator(should_clear_after_alloc=False)
        self.words = functools.partial(Words, self)  # (special_tokens, pattern): create an empty table of words
        self.custom = functools.lru_cache(maxsize=32)(self.new_pattern)
        self.patterns = self.built_in_patterns()

    def built_in_patterns(self) -> Mapping[str, Any]:
        """Return {expression: its tables in C}; none if C's letters aren't those of the installed regex package."""
        built_with = self.ffi.string(self.lib.bpe_regex_version).decode()
        digest_then = self.ffi.string(self.lib.bpe_class_digest).decode()
        if built_with != regex.__version__ and digest_then != digest(named_tables().encode()):
            text = f"the C engine was built with regex {built_with}, whose letters differ from {regex.__version__}; "
            warnings.warn(text + f"using regex instead ({COMMAND} rebuilds the engine)", stacklevel=2)
            return {}
        expressions = [self.ffi.string(text).decode() for text in self.lib.bpe_expressions]
        return {text: self.ffi.addressof(self.lib.bpe_patterns, number) for number, text in enumerate(expressions)}

    def pattern(self, pattern: str | tuple[str, ...]) -> tuple[Any, str]:
        """Return (a pattern as C has it, ""), or (NULL, why C can't scan it)."""
        if not isinstance(pattern, str):
            return self.custom(tuple(self.named.get(step, step) for step in pattern))
        if pattern in self.named and not self.patterns:
            return self.ffi.NULL, "letters of another version of regex"
        # bpe.py may have other expressions than when C was built: then their tables are made now
        expression = self.named.get(pattern, pattern)
        return (self.patterns[expression], "") if expression in self.patterns else self.custom(expression)

    def new_pattern(self, pattern: str | tuple[str, ...]) -> tuple[Any, str]:
        """Make the tables of a custom pattern."""
        try:
            fields = fields_of(automaton_of(pattern))
        except (UnsupportedError, RecursionError) as error:
            return self.ffi.NULL, str(error)
        for name, values in fields.items():
            if isinstance(values, array):
                fields[name] = self.ffi.from_buffer(f"{KINDS[values.typecode]}[]", values)
        # The destructor keeps the arrays until C no longer needs them.
        return self.ffi.gc(self.ffi.new("bpe_pattern *", fields), lambda _: fields.clear()), ""

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
        if status == self.lib.BPE_NO_MEMORY:
            raise MemoryError
        if status == self.lib.BPE_USED_UP:
            raise ValueError("these words were used up by an earlier training run, or by an error")
        if status in (self.lib.BPE_TOO_MANY_TOKENS, self.lib.BPE_LONG_WORD):
            raise OverflowError("2**21 tokens or more, or a word of 2**32 bytes or more")
        if status == self.lib.BPE_OVERFLOW:
            raise OverflowError("2**63 bytes of words or more, counting every occurrence")
        if status == self.lib.BPE_TOO_MANY_WORDS:
            raise OverflowError("2**32 bytes of distinct words or more; leave out rare words with min_word_count=N")

    def create(self, kind: str, *arguments: Any) -> Any:
        """Create something in C that is freed when Python no longer uses it."""
        new = self.ffi.new(f"bpe_{kind} **")
        try:
            status = getattr(self.lib, f"bpe_{kind}_new")(*arguments, new)
        finally:  # Ctrl-C while C makes a learner, of a million words, say, is raised here
            handle = self.ffi.gc(new[0], getattr(self.lib, f"bpe_{kind}_free"))
        self.check(status)
        return handle

    def special_arguments(self, special_tokens: Iterable[str]) -> tuple[bytes, Any, int]:
        """Special tokens for a C function: their bytes, concatenated, their lengths, and their number.

        Not lists as arguments: for a long one, cffi raises SystemError if there is no memory for a copy.
        """
        tokens = [token.encode("utf-8") for token in special_tokens]
        return b"".join(tokens), self.ffi.new("size_t[]", list(map(len, tokens))), len(tokens)

    def encoder(self, tokenizer: Any) -> Encoder | None:
        """Create an encoder for a bpe.Tokenizer; None if C can't hold it (2**21 tokens, ids of 2**32)."""
        with contextlib.suppress(OverflowError):
            return Encoder(self, tokenizer)
        return None

    def learn(self, words: Words | Mapping[bytes, int], merges_wanted: int, min_frequency: int) -> Iterator[Any]:
        """Yield what bpe.learn_merges yields. A table of words is used up, a dict is not."""
        ffi, lib = self.ffi, self.lib
        table = words if isinstance(words, Words) else self.words((), "gpt2")
        if not isinstance(words, Words):
            table.add(words.items())
        handle = table.handle()
        arrays = table.get(handle)
        lib.bpe_words_drop(handle)  # so that memory holds these words twice at most
        limits = (min(n, 2**64 - 1) for n in (merges_wanted, min_frequency))
        learner = self.create("learner", *arrays, len(arrays[1]), *limits, new_seed())
        del arrays  # C has copied them
        made, batch = ffi.new("size_t *"), ffi.new("bpe_merge[]", 1000)
        tokens = [bytes([byte]) for byte in range(256)]
        status = lib.BPE_OK
        while status != lib.BPE_DONE:
            status = lib.bpe_learner_run(learner, batch, len(batch), made)
            self.check(status)
            for left, right, count, replaced in struct.iter_unpack("IIQQ", ffi.buffer(batch)[: 24 * made[0]]):
                first, second = tokens[left], tokens[right]
                tokens.append(first + second)
                yield first, second, count, replaced


class Words:
    """Words and their counts in C. A call that scans takes a table that no other call uses; they are merged later."""

    def __init__(self, engine: Engine, special_tokens: Sequence[str], pattern: str) -> None:
        self.engine = engine
        self.pattern, _ = engine.pattern(pattern)  # which the rules need
        self.rules = engine.create("rules", *engine.special_arguments(special_tokens), self.pattern, new_seed())
        self.tables: list[Any] = [self.new_table()]  # none after an error, which lost words
        self.free = self.tables[:]  # the tables that no call is using

    def new_table(self) -> Any:
        """Create an empty table."""
        return self.engine.create("words", new_seed())

    def scan(self, *texts: bytes) -> None:
        """Count the words of texts. Raises UnicodeDecodeError for one that is not UTF-8.

        After an error, the table stays in `tables`, but is no longer free: handle() reports it as used up.
        """
        try:
            table = self.free.pop()
        except IndexError:
            self.check_tables()
            table = self.new_table()
            self.tables.append(table)
        ends = self.engine.ffi.from_buffer("uint64_t[]", array("Q", itertools.accumulate(map(len, texts))))
        status = self.engine.lib.bpe_words_scan(table, self.rules, b"".join(texts), ends, len(texts))
        if status == self.engine.lib.BPE_BAD_UTF8:
            for data in texts:
                data.decode("utf-8")  # one of them raises the error
        self.engine.check(status)
        self.free.append(table)

    def add(self, pairs: Iterable[tuple[bytes, int]]) -> None:
        """Add the counts of words, some thousands at a time: arrays of all words would take more memory."""
        table, pairs = self.handle(), iter(pairs)
        first, second = operator.itemgetter(0), operator.itemgetter(1)
        while batch := list(itertools.islice(pairs, 10_000)):
            words = list(map(first, batch))  # zip(*batch) takes 6 times as long
            try:
                arrays = array("Q", map(len, words)), array("Q", map(second, batch))
            except OverflowError:
                pair = max(batch, key=second)
                raise OverflowError(f"2**64 occurrences of a word or more: {pair!r:.60}") from None
            numbers = (self.engine.ffi.from_buffer("uint64_t[]", numbers) for numbers in arrays)
            self.put(table, b"".join(words), *numbers)

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
        self.engine.lib.bpe_words_get(table, min_count, *null, sums)
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

    def drop_rare(self, n: int) -> tuple[int, int]:
        """Leave out words that occur fewer than n times; returns (distinct words, occurrences) left out."""
        if n < 2:
            return 0, 0
        before, words = self.totals(), self.get(self.handle(), min(n, 2**64 - 1))
        self.free = []
        self.engine.ffi.release(self.tables.pop())
        table = self.new_table()
        self.put(table, *words)
        self.tables, self.free = [table], [table]
        return before[0] - self.totals()[0], before[1] - self.totals()[1]

    def totals(self) -> tuple[int, int, int]:
        """(distinct words, all words, bytes of all words)."""
        sums = self.sums(self.handle())
        return sums.words, sums.all_words, sums.all_bytes

    def copy(self) -> dict[bytes, int]:
        """The words and their counts, in any order."""
        blob, lengths, counts = self.get(self.handle())
        view, ends = self.engine.ffi.buffer(blob), itertools.accumulate(lengths)
        return {view[end - length : end]: count for end, length, count in zip(ends, lengths, counts)}


class Encoder:
    """The vocabulary of a bpe.Tokenizer inside the C engine, which any number of threads can share."""

    def __init__(self, engine: Engine, tokenizer: Any) -> None:
        self.engine = engine
        self.calls: list[Any] = []  # a cache and buffers for each call that has run at the same time as others
        self.free: list[Any] = []  # which no call is using
        id_of_byte = [tokenizer.ids.get(bytes([byte])) for byte in range(256)]
        in_c: dict[int, int] = collections.defaultdict(itertools.count(256).__next__)  # in C the bytes come first
        in_c.update((token_id, byte) for byte, token_id in enumerate(id_of_byte) if token_id is not None)
        merges = array("I", map(in_c.__getitem__, itertools.chain.from_iterable(tokenizer.merge_ids)))
        others = [token_id for token_id, number in in_c.items() if number > 255]
        tokens = list(map(tokenizer.vocab.__getitem__, others))
        ids = array("I", (2**32 - 1 if token_id is None else token_id for token_id in id_of_byte))

        def in_memory(numbers: Any) -> Any:
            return engine.ffi.from_buffer(f"uint{8 * numbers.itemsize}_t[]", numbers)

        lengths, ids_of_tokens = in_memory(array("Q", map(len, tokens))), array("I", others)
        ids += ids_of_tokens
        special_ids = engine.ffi.new("uint32_t[]", list(tokenizer.special_ids.values()))
        self.pattern, _ = engine.pattern(tokenizer.pattern)  # which the rules need; the handle needs the rules
        specials = engine.special_arguments(tokenizer.special_ids)
        self.rules = engine.create("rules", *specials, self.pattern, new_seed())
        data = b"".join(tokens)
        vocabulary = in_memory(ids), len(ids), data, lengths, in_memory(merges), len(merges) // 3
        self.handle = engine.create("encoder", *vocabulary, self.rules, special_ids, new_seed())
        known = data, lengths, in_memory(ids_of_tokens), len(tokens), False
        if words := tokenizer.whole_words:
            word_lengths, word_ids = array("Q", map(len, words)), array("I", words.values())
            known = b"".join(words), in_memory(word_lengths), in_memory(word_ids), len(words), True
        engine.check(engine.lib.bpe_encoder_know(self.handle, *known))
        n = max(tokenizer.vocab, default=0) + 1
        self.numbers = list(range(n if n <= 2**20 else 0))  # more would take too much memory
        self.addresses = engine.ffi.new("uintptr_t[]", list(map(id, self.numbers)))
        self.for_lists = engine.ffi.new("bpe_for_lists *", (engine.ffi.NULL, self.addresses))
        functions: list[Any] = []
        engine.check(engine.lib.bpe_list_functions(self.for_lists, id(functions)))
        if not self.numbers:
            functions[:2] = [lambda data: None, self.new_numbers]
        self.encode_short, self.lists_of, self.pause_collector = functions

    def encode(self, data: bytes) -> list[int]:
        """Encode UTF-8. Raises UnicodeDecodeError, or ValueError for a byte without a token."""
        ids: list[int] | None = self.encode_short(data)
        return self.encode_texts([data])[0] if ids is None else ids

    def encode_texts(self, texts: Sequence[bytes], kind: str = "") -> Any:
        """Encode texts as lists; or as one array, for what bpe.PythonEncoder.encode_texts says."""
        if len(texts) == 1 and not kind and (ids := self.encode_short(texts[0])) is not None:
            return [ids]
        ffi, lib = self.engine.ffi, self.engine.lib
        ends = array("Q", itertools.accumulate(map(len, texts)))  # C makes them the ends of ids
        ends_in_c = ffi.from_buffer("uint64_t[]", ends)
        data = b"".join(texts)
        try:
            call = self.free.pop()
        except IndexError:
            call = types.SimpleNamespace(cache=self.engine.create("cache", self.handle), ids=())
            # C never points to a cache that Python may free: `calls` keeps each one as long as this encoder.
            # Ctrl-C just after pop() leaves a cache that isn't free, and to which for_lists may still point;
            # so does an append() in `finally` that runs out of memory. If nothing else kept that cache, the
            # next short text would be looked up in freed memory.
            self.calls.append(call)
        try:
            self.for_lists.cache = ffi.NULL  # another thread may encode a short text while this call uses the cache
            room = len(call.ids) // 3 * 2
            if not len(data) + 2 <= room <= 1 << 26:
                room = max(len(data) + 3, 1000) // 2 * 2
                call.ids = self.engine.new("uint32_t[]", room // 2 * 3)  # fresh memory is slower
            narrow, size = (ffi.cast("uint16_t *", call.ids + room), 2) if kind == "u2" else (ffi.NULL, 4)
            status = lib.bpe_encode(call.cache, data, ends_in_c, len(ends), call.ids, narrow)
            if status:
                self.refuse(status, texts, ends[0])
            if not kind:
                return self.lists_of(*(int(ffi.cast("uintptr_t", block)) for block in (call.ids, ends_in_c)), len(ends))
            n_ids = ends[-1] if texts else 0
            return bytes(ffi.buffer(narrow or call.ids, n_ids * size)), ends
        finally:
            # in this order: as soon as a call is free, another thread may use its cache
            self.for_lists.cache = call.cache
            self.free.append(call)

    def new_numbers(self, ids: int, ends: int, n: int) -> list[list[int]]:
        """Do the same as lists_of(), with new numbers."""
        ends_of = self.engine.ffi.cast("uint64_t *", ends)[0:n]
        ids_of = self.engine.ffi.cast("uint32_t *", ids)
        return [list(ids_of[start:end]) for start, end in itertools.pairwise([0, *ends_of])]

    def refuse(self, status: int, texts: Sequence[bytes], at: int) -> None:
        """Raise the error of the text that can't be encoded, with its number; `at` is the byte without a token."""
        self.engine.check(status)
        ends = list(itertools.accumulate(map(len, texts)))
        number = bisect.bisect_right(ends, at)
        data = texts[number]
        data.decode("utf-8")  # may raise UnicodeDecodeError
        at -= ends[number] - len(data)
        start = len(data[:at].decode("utf-8", "ignore").encode("utf-8"))  # of its character
        place = data[start : start + 160].decode("utf-8", "ignore")[:40]
        error: Any = ValueError(f"the vocabulary has no token for the byte {data[at : at + 1]!r}, in {place!r}")
        error.number = number
        raise error


def load_engine(named: Mapping[str, str]) -> Engine:
    """Load the engine that is built next to this file; `named` has the expressions of named patterns.

    Raises ImportError with the reason it is unavailable.
    """
    spec = importlib.machinery.PathFinder.find_spec("_bpe_fast", [HERE])
    if spec is None or not isinstance(spec.loader, importlib.machinery.ExtensionFileLoader):
        raise ImportError(f"the C engine is not built: {COMMAND} builds one that is many times faster")
    try:
        module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        if "_cffi_backend" in str(error):
            raise ImportError("the C engine is built, but cffi is missing: pip install cffi") from None
        raise ImportError(f"the C engine is built, but does not load ({error}): {COMMAND} rebuilds it") from None
    if module.lib.BPE_VERSION != VERSION:
        raise ImportError(f"the C engine is built, but for another version: {COMMAND} rebuilds it")
    digests = module.ffi.string(module.lib.bpe_source_digests).decode().split()
    for file, then in zip(SOURCES, digests):
        if file.exists() and digest(file.read_bytes()) != then:
            warnings.warn(f"{file.name} has changed since the C engine was built: {COMMAND} rebuilds it", stacklevel=2)
    return Engine(module, named)


# ------------------------------
# A pattern as an automaton
# ------------------------------

# C scans text with tables that are made here, from the text of the pattern alone. An example: the
# words of "  hi" with \s+(?!\S)|\s?\w+|\s are " " and " hi". The first alternative takes both spaces,
# and gives one back, because "h" must not follow (?!\S). The automaton reads each character once. Its
# state is a list of what may still follow, best first:
#
#     what may follow            next       may a word end before it?    what may follow then
#     \s+(?!\S)  \s?\w+  \s      " "        no                           \s*(?!\S)  \w+  nothing
#     \s*(?!\S)  \w+  nothing    " "        yes: (?!\S) holds, and       \s*(?!\S), and nothing that
#                                           then nothing has to follow   is worse than this match
#     \s*(?!\S)                  "h"        no: (?!\S) does not hold     (an empty list)
#
# No match can continue, so the word ends at the last place at which it might. The next one begins there:
#
#     \s+(?!\S)  \s?\w+  \s      " "        no                           \s*(?!\S)  \w+  nothing
#     \s*(?!\S)  \w+  nothing    "h"        yes                          \w*, better than this match
#     \w*                        "i"        yes                          \w*
#     \w*                        the end    yes                          (an empty list)
#
# A lookahead at one character is decided when that character is read. Characters that the pattern does
# not tell apart are one class: here whitespace, the rest of \w, and all others. So a state is a row of
# cells, one for each class, and one for the end: (the next state, whether a word may end before this).

Tree = tuple[Any, ...]
Rows = list[list[tuple[int, int]]]
MOST_CHARACTERS, MOST_CLASSES, MOST_STATES = 500, 36, 500  # of a repetition, such as \w{1,1000}; of a pattern
MOST_PLACES, MOST_SETS, MOST_STEPS = 5_000, 40, 400_000  # each takes up to half a second


def limit(number: int, most: int, what: str) -> None:
    """Refuse a pattern that has too many of something. What takes long is counted before it is done."""
    if number > most:
        raise UnsupportedError(f"more than {most:,} {what}")


class UnsupportedError(ValueError):
    """A pattern has something that C can't scan: the message is its text, or says what it is."""


def parse(pattern: str) -> Tree:
    r"""Return a valid pattern as a sequence: a tuple of items, which are tuples.

    ("character", text)             a, \n, \p{L}, [^\s\d]; where case is ignored, the text is (?i:a)
    ("look", text, wanted)          (?=text), or (?!text) if not wanted: the next character, or the end
    ("end", "$")                    $ after a loop that takes all newlines, such as \s+: only the end of the text
    ("choice", sequences)           the first one that leads to a match
    ("times", item, 2, 3, lazy)     x{2,3}; x* is ("times", x, 0, None, False), and x*? is lazy
    ("possessive", item, times)     x++, which never gives back an x, and x+
    """
    # In a set, any character begins an operand, even "]": after [, after [^, and after an operation, as in [a-z&&[^x]].
    define = r"(?P<operand>(?&set)|\\.|[^\[\\])"
    define += r"(?P<set>\[\^?(?&operand)(?:(?:&&|--|~~|\|\|)(?&operand)|(?&set)|\\.|[^\[\]\\])*+\])"
    kinds = {
        "group": r"\(\?i?:|\(\?[=!]",
        "close": r"\)",
        "or": r"\|",
        "end": r"\$",
        "times": r"(?:[*+?]|\{(?:[0-9]+|[0-9]+,[0-9]*|,[0-9]+)\})[?+]?",
        "character": r"(?&set)|\\[pP](?:\{[^{}]*\}|[A-Za-z])|\\(?:x|u..|U.{6})[0-9A-Fa-f]{2}"
        r"|\\[dDsSwWafnrtv]|\\[^\w\s]|[^\\()[{|$^*+?]",
        "other": r"\(\?<?[^\w\s]?|\\.|.",
    }
    expression = f"(?(DEFINE){define})" + "|".join(f"(?P<{kind}>{text})" for kind, text in kinds.items())
    tokens = regex.compile(expression, regex.DOTALL | regex.V0)
    rest = ((match.lastgroup, match[0]) for match in tokens.finditer(pattern))
    return (parse_choice(rest, "{}"),)


def parse_choice(tokens: Iterator[Any], form: str) -> Tree:
    """Parse alternatives up to the end of their group; form is "(?i:{})" if case is ignored."""
    sequences: list[Tree] = [()]
    for kind, text in tokens:
        sequence = sequences[-1]
        if kind == "close":
            break
        if kind == "or":
            sequences.append(())
            continue
        # In [!-&&x], "&" ends a range. Where case is ignored, regex may find other characters for a set with sets in it
        # than for the same set next to others: (?i:[a-z--[b]]|x).
        odd = r"\|\||-(?:&&|--|~~)" if form == "{}" else r"\|\||&&|--|~~|.\["
        if kind == "other" or (text[0] == "[" and re.search(odd, text, re.DOTALL)):
            raise UnsupportedError("".join(c if c.isprintable() else repr(c)[1:-1] for c in text[:60]))
        if kind == "times":
            if not sequence:
                raise UnsupportedError(f"{text} after nothing")
            sequences[-1] = sequence[:-1] + parse_times(sequence[-1], text)
            continue
        item: Tree = ("character", form.format(text))
        if kind == "end":
            item = parse_end(sequence)
        elif kind == "group":
            item = parse_choice(tokens, "(?i:{})" if "i" in text else form)
            if text[-1] != ":":
                item = ("look", only_character((item,)), text == "(?=")
                if not item[1]:
                    raise UnsupportedError(f"{text}...) with more than one character")
        sequences[-1] = (*sequence, item)
    return ("choice", tuple(sequences))


def parse_times(item: Tree, times: str) -> Tree:
    """Return the items of a repeated item: one, or none for x{0}."""
    if can_be_empty((item,)):
        raise UnsupportedError(f"{times} after something that can match nothing")
    number, lazy, possessive = re.fullmatch(r"(.+?)(\?)?(\+)?", times).groups()  # type: ignore[union-attr]
    least, comma, most = {"*": "0,", "+": "1,", "?": "0,1"}.get(number, number.strip("{}")).partition(",")
    endless = bool(comma and not most)
    limits = int(least or 0), None if endless else int(most or least)
    limit((limits[1] or limits[0]) * n_characters((item,)), MOST_CHARACTERS, "characters")
    if limits[1] == 0:
        return ()
    repeated: Tree = ("times", item, *limits, bool(lazy))
    return (("possessive", item, repeated),) if possessive else (repeated,)


def parse_end(before: Tree) -> Tree:
    r"""Parse $. It also matches before a last newline, but after \s+ no newline is left."""
    item: Tree = before[-1] if before else ("",)
    if item[0] == "possessive":
        item = item[2]
    text = only_character((item[1],)) if item[0] == "times" and item[3:] == (None, False) else None
    if not text or not compile_class(text).match("\n"):
        raise UnsupportedError("$")
    return ("end", "$")


def only_character(sequence: Tree) -> str | None:
    """Return the text of a sequence that is one character, or None."""
    while len(sequence) == 1 and sequence[0][0] == "choice" and len(sequence[0][1]) == 1:
        sequence = sequence[0][1][0]
    return sequence[0][1] if len(sequence) == 1 and sequence[0][0] == "character" else None


def can_be_empty(sequence: Tree) -> bool:
    """Return whether a sequence can match without reading a character."""
    for kind, *parts in sequence:
        if kind == "character" or (kind == "choice" and not any(map(can_be_empty, parts[0]))):
            return False
        if kind == "possessive":
            kind, *parts = parts[1]
        if kind == "times" and parts[1]:  # what is repeated is never empty
            return False
    return True


def n_characters(sequence: Tree) -> int:
    """Count the characters of a sequence, each as often as it is repeated."""
    n = 0
    for kind, *parts in sequence:
        if kind == "possessive":
            kind, *parts = parts[1]
        if kind == "choice":
            n += sum(map(n_characters, parts[0]))
        elif kind == "times":
            n += n_characters(parts[:1]) * (parts[2] or parts[1] + 1)
        else:
            n += kind == "character"
    return n


def characters_of(sequence: Tree) -> Iterator[str]:
    """Yield the text of each character in a sequence."""
    for kind, *parts in sequence:
        if kind in ("character", "look"):
            yield parts[0]
        elif kind == "choice":
            yield from itertools.chain.from_iterable(map(characters_of, parts[0]))
        elif kind != "end":
            yield from characters_of(parts[:1])


def compile_class(text: str) -> Any:
    """Compile the text of a character, or of a run of it, as bpe.compile_pattern does."""
    return regex.compile(f"(?-f){text}", regex.V1)


@functools.lru_cache(maxsize=2)
def all_characters(some: bool = False) -> tuple[str, Sequence[int]]:
    """Return all code points in order, as text and as numbers.

    Or only some: from U+40000 on, 6 of the 65,536 in a plane where no two differ, unless a set names them.
    """
    points: Sequence[int] = range(0x110000)
    if some:
        ends = [plane + place for plane in range(0x40000, 0x110001, 0x10000) for place in range(-3, 3)]
        points = sorted({*range(0x40000), *range(0xE0000, 0xF0000), *ends[:-3]})
    # join() would need a million strings at once, 100 MB
    return array("I", points).tobytes().decode("utf-32", "surrogatepass"), points


@functools.lru_cache(maxsize=256)
def borders_of(text: str) -> list[int]:
    """Return where runs of code points that match an expression begin and end, in order."""
    if len(text) == 1 and text != ".":
        return [ord(text), ord(text) + 1]
    runs = compile_class(f"(?:{text})+")
    named = re.search(r"\\[UN]|\\[pP]\{?[^LMNPSZC]|[\U00040000-\U0010ffff]", text)
    for some in (False,) if named else (True, False):
        characters, points = all_characters(some)
        places = [place for match in runs.finditer(characters) for place in match.span()]
        borders = [points[place] if place < len(points) else 0x110000 for place in places]
        if all(place in (0, len(points)) or points[place - 1] + 1 == points[place] for place in places):
            break
    return borders


def classes_of(texts: Iterable[str]) -> tuple[bytes, int, dict[str, int]]:
    """Return the class of each code point, the number of classes, and which of them each text matches, as bits.

    The package regex says what each text matches; code points with equal answers are one class.
    """
    texts = list(dict.fromkeys(texts))
    limit(sum(len(text) > 1 for text in texts), MOST_SETS, "sets of characters")
    limit(sum(len(text) == 1 for text in texts), MOST_CLASSES, "classes of characters")
    changes: dict[int, int] = collections.defaultdict(int, {0: 0, 0x110000: 0})
    for number, text in enumerate(texts):
        for place in borders_of(text):
            changes[place] ^= 1 << number
    answers = 0  # those of all texts, as bits
    numbers: dict[int, int] = {}  # of the classes, by the answers
    classes = bytearray()
    for start, end in itertools.pairwise(sorted(changes)):
        answers ^= changes[start]
        classes += bytes([numbers.setdefault(answers, len(numbers)) % 256]) * (end - start)
    limit(len(numbers), MOST_CLASSES, "classes of characters")
    sets = {text: sum(1 << k for answers, k in numbers.items() if answers >> n & 1) for n, text in enumerate(texts)}
    return bytes(classes), len(numbers), sets


class Reader:
    """Reads a character of each class, or the end, which has the number after all classes.

    A place is what remains of a pattern, as a number: that of "b" is the same after "a" and after "c" in ab|cb.
    """

    def __init__(self, tree: Tree) -> None:
        limit(n_characters(tree), MOST_PLACES, "characters")
        self.classes, self.end, self.sets = classes_of(characters_of(tree))
        self.everything = (2 << self.end) - 1  # all classes and the end, as bits
        self.places: list[list[Any]] = [["done", (), 0]]  # the kind, what it needs, and the place after it
        self.numbers: dict[Any, int] = {}  # of the places
        self.checked: set[int] = set()  # places of possessive items
        self.n_steps = 0
        self.start = self.place(tree, 0)

    def place(self, sequence: Tree, after: int) -> int:
        """Return the place of a sequence, and of a place after it."""
        for kind, *parts in reversed(sequence):
            if kind == "character":
                after = self.number(kind, self.sets[parts[0]], after)
            elif kind == "look":
                bits = self.sets[parts[0]]
                after = self.number(kind, bits if parts[1] else self.everything & ~bits, after)
            elif kind == "end":
                if after:
                    raise UnsupportedError("$ before something else")
                after = self.number("look", 1 << self.end, after)
            elif kind == "choice":
                after = self.number("ways", tuple(self.place(inner, after) for inner in parts[0]), 0)
            elif kind == "times":
                after = self.place_of_times(parts, after)
            else:
                after = self.number("possessive", (parts[0], self.place((parts[1],), after)), after)
        return after

    def place_of_times(self, times: Sequence[Any], after: int) -> int:
        """Return the place of a repeated item: x{1,2} is x, and a choice of x and nothing."""
        item, least, most, lazy = times
        order = -1 if lazy else 1
        place = after
        for _ in range(least, most or least):
            place = self.number("ways", (self.place((item,), place), after)[::order], 0)
        if most is None:
            is_new = ("loop", item, lazy, after) not in self.numbers
            place = self.number("loop", item, lazy, after)
            if is_new:
                self.places[place] = ["ways", (self.place((item,), place), after)[::order], 0]
        for _ in range(least):
            place = self.place((item,), place)
        return place

    def number(self, *key: Any) -> int:
        """Return the number of a place, which is new if there is none with the same key."""
        if key not in self.numbers:
            self.numbers[key] = len(self.places)
            self.places.append(list(key))
        return self.numbers[key]

    def read(self, state: tuple[int, ...]) -> list[tuple[tuple[int, ...], bool]]:
        """Return the next state, and whether a word may end before it, for each character.

        All characters are followed at the same time: those for which a place is reached are bits.
        """
        following: list[dict[int, None]] = [{} for _ in range(self.end + 1)]  # in order, each once
        going_on = self.everything  # the characters before which a word can't end in a better way
        seen: dict[int, int] = collections.defaultdict(int)  # a better way has led to a place before these characters
        stack = [(place, self.everything) for place in reversed(state)]
        while stack:
            place, bits = stack.pop()
            bits &= going_on & ~seen[place]
            if not bits:
                continue
            seen[place] |= bits
            kind, what, after = self.places[place]
            if kind == "done":
                going_on &= ~bits
            elif kind == "character":
                for number in numbers_of(bits & what):
                    following[number][after] = None
                self.n_steps += self.end
            elif kind == "look":
                stack.append((after, bits & what))
            elif kind == "ways":
                stack.extend((way, bits) for way in reversed(what))
            else:
                self.check_possessive(place, what[0], after)
                stack.append((what[1], bits))
            self.n_steps += 1
            limit(self.n_steps, MOST_STEPS, "steps to find its states")
        return [(tuple(places), not going_on >> number & 1) for number, places in enumerate(following)]

    def check_possessive(self, place: int, item: Tree, after: int) -> None:
        """Refuse a possessive item unless it matches what the greedy one does: giving back must never help.

        x++y is x+y, because no x is a y. But x++x matches nothing, and x+x does.
        """
        if place in self.checked:
            return
        self.checked.add(place)
        cells = self.read((after,))
        if all(ends for _, ends in cells):
            return  # nothing has to follow
        text = only_character((item,))
        given_back = numbers_of(self.sets[text] if text else 0)
        if not text or any(cells[number] != ((), False) for number in given_back):
            raise UnsupportedError("a possessive quantifier that can differ from the greedy one")


def numbers_of(bits: int) -> Iterator[int]:
    """Yield the numbers of bits: 0b101 -> 0, 2."""
    while bits:
        last = bits & -bits
        yield last.bit_length() - 1
        bits ^= last


@functools.lru_cache(maxsize=32)
def automaton_of(pattern: str | tuple[str, ...]) -> tuple[bytes, Rows]:
    """Return the class of each code point, and a row for each state; raises UnsupportedError.

    State 0 can't match any more, and state 1 begins a word. A pattern may have several steps, as in bpe.py.
    """
    steps = (pattern,) if isinstance(pattern, str) else pattern
    if not steps or steps[0] in ("NFC", "NFKC"):
        raise UnsupportedError("a normal form" if steps else "no expression")
    classes, rows = automaton_of_step(steps[-1])
    for step in reversed(steps[:-1]):
        classes, rows = after_step(automaton_of_step(step), (classes, rows))
    if is_quadratic(rows):
        raise UnsupportedError("a way to read the same text again for each of its words")
    return classes, with_gaps(rows)


def automaton_of_step(pattern: str) -> tuple[bytes, Rows]:
    """Return the automaton of an expression, without a state for text that nothing matches."""
    try:
        regex.compile(f"(?-f){pattern}", regex.V1)
    except regex.error:
        raise UnsupportedError("[ in a set, which only version 0 of regex reads") from None
    tree = parse(pattern)
    if can_be_empty(tree):
        raise UnsupportedError("a way to match nothing")
    reader = Reader(tree)
    numbers: dict[Any, int] = {(): 0, (reader.start,): 1}
    states = list(numbers)
    rows: Rows = []
    while len(rows) < len(states):
        row: list[tuple[int, int]] = []
        for following, ends in reader.read(states[len(rows)]):
            if following not in numbers:
                numbers[following] = len(states)
                states.append(following)
            row.append((numbers[following], ends))
        rows.append(row)
        limit(len(states), MOST_STATES, "states")
    rows = merge_states(rows)
    if len(rows) == 1:
        raise UnsupportedError("no way to match anything")
    return reader.classes, rows


def after_step(earlier: tuple[bytes, Rows], later: tuple[bytes, Rows]) -> tuple[bytes, Rows]:
    r"""Return one automaton for a step whose matches are runs of certain characters, and a later step.

    With (r"\d{1,3}", r"\s+(?!\S)|\s|\S+"), the words of "a  1234" are "a", "  ", "123", "4". For the later step, a
    digit is like the end of the text, so both spaces are one word.
    """
    (classes, runs), (later_classes, rows) = earlier, later
    pairs = dict.fromkeys(zip(classes, later_classes))  # the classes of characters now
    numbers = {pair: number for number, pair in enumerate(pairs)}
    limit(len(pairs), MOST_CLASSES, "classes of characters")
    taken = {number for number, (state, _) in enumerate(runs[1][:-1]) if state}
    # follow both steps through each run, which has to be one word of the later step, wherever it ends
    both = {(1, 1): None}
    to_follow = list(both)
    for run, state in to_follow:
        for number, following in pairs:
            if number in taken and (new_run := runs[run][number][0]):
                new = (new_run, rows[state][following][0])
                # a run continues with its own characters only, and may end before any other
                is_run = all(other in taken if then else ends for other, (then, ends) in enumerate(runs[new_run]))
                if not is_run or not rows[new[1]][-1][1]:
                    raise UnsupportedError("several steps of this kind")
                if new not in both:
                    both[new] = None
                    to_follow.append(new)
                    limit(len(both), MOST_STEPS // 100, "states of several steps")

    # state 0 can't match any more, state 1 begins a word, then come all states of the later step, and of runs
    in_word = [0, *range(2, len(rows) + 1)]
    in_run = [0, *range(len(rows) + 1, len(rows) + len(runs))]
    start = [(in_run[runs[1][a][0]] if a in taken else in_word[rows[1][b][0]], False) for a, b in pairs]
    together: Rows = [[(0, False)] * (len(pairs) + 1), [*start, (0, False)]]
    for row in rows[1:]:
        cells = [(0, row[-1][1]) if a in taken else (in_word[row[b][0]], row[b][1]) for a, b in pairs]
        together.append([*cells, row[-1]])
    for row in runs[1:]:
        together.append([*((in_run[row[a][0]], row[a][1]) for a, _ in pairs), row[-1]])
    limit(len(together), MOST_STATES, "states")
    combined = bytes(map(numbers.__getitem__, zip(classes, later_classes)))
    return combined, merge_states(together)


def merge_states(rows: Rows) -> Rows:
    """Merge equal states: all are one group at first, then those with different rows get different groups.

    Only states that lead to one whose group has changed are looked at again.
    """
    before: list[set[int]] = [set() for _ in rows]
    for state, row in enumerate(rows):
        for following, _ in row:
            before[following].add(state)
    groups = [0] * len(rows)
    members = [set(range(len(rows)))]
    changed = set(range(len(rows)))
    while changed:
        by_group = collections.defaultdict(set)
        for state in changed:
            by_group[groups[state]].add(state)
        moves: list[tuple[set[int], int]] = []
        for group, states in by_group.items():
            parts: dict[Any, set[int]] = collections.defaultdict(set)
            for state in states:
                parts[tuple([(groups[following], mark) for following, mark in rows[state]])].add(state)
            if others := members[group] - states:  # which are like each other: one says what all are like
                row = rows[min(others)]
                parts[tuple([(groups[following], mark) for following, mark in row])] |= others
            largest, *rest = sorted(parts.values(), key=len, reverse=True)
            members[group] = largest
            for part in rest:
                moves.append((part, len(members)))
                members.append(part)
        changed = set()
        for part, group in moves:
            for state in part:
                groups[state] = group
                changed |= before[state]
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    first = dict(zip(reversed(groups), reversed(rows)))
    return [[(numbers[groups[state]], mark) for state, mark in first[group]] for group in numbers]


def with_gaps(rows: Rows) -> Rows:
    r"""Add a state for text that nothing matches, which is a word, too, if one character says where a match begins.

    With \w+, a word is a run of characters that are no \w. But with \w\d, "a" may belong to it or not: then C looks for
    the next match at each character in turn.
    """
    gap, end = len(rows), len(rows[0]) - 1
    first = [rows[1][number][0] for number in range(end)]
    if all(first) or not all(ends for state in first if state for _, ends in rows[state]):
        return rows
    start = [(state or gap, 0) for state in first]
    return [rows[0], [*start, rows[1][end]], *rows[2:], [*((0, 1) if state else (gap, 0) for state in first), (0, 1)]]


def is_quadratic(rows: Rows) -> bool:
    """Return whether some text is read again for each of its words: a*b|a reads all of "aaa...", and takes one "a".

    Then matches that began at different places get into the same state, from which they don't end:

        the first    a  ... s ... s      its word was the first "a"
        the second          a ... s      begins when the first one is in s, and gets there, too

    So pairs of an earlier and a later match are followed, from (s, the start) to (s, s). The later one may end until it
    is over: until a word that begins after it, of which nothing else is known.
    """
    moves = [[(number, state) for number, (state, ends) in enumerate(row[:-1]) if state and not ends] for row in rows]
    loops = loops_of([[state for _, state in move] for move in moves])
    n_steps = 0
    for state in range(1, len(rows)):
        pairs = [(state, 1, False), (state, 1, True)] if loops[state] else []
        seen = set(pairs)
        for earlier, later, over in pairs:
            for number, first in moves[earlier]:
                second, ends = rows[later][number]
                n_steps += 1
                if not second or (over and ends) or loops[first] != loops[state]:
                    continue
                for now_over in {over, over or ends}:
                    pair = (first, second, bool(now_over))
                    if pair == (state, state, True):
                        return True
                    if pair not in seen:
                        seen.add(pair)
                        pairs.append(pair)
            limit(n_steps, 4 * MOST_STEPS, "steps to find out whether it reads text again")
    return False


def loops_of(following: Sequence[Sequence[int]]) -> list[int]:
    """Return a number for each state: 0 if it can't be reached again, else the number of all states on the way."""
    n = len(following)
    reached = [sum(1 << state for state in set(states)) for states in following]  # as bits
    for middle in range(n):
        for state in range(n):
            if reached[state] >> middle & 1:
                reached[state] |= reached[middle]
    loops = [0] * n
    for state in range(n):
        if reached[state] >> state & 1 and not loops[state]:
            for other in numbers_of(reached[state]):
                if reached[other] >> state & 1:
                    loops[other] = state + 1
    return loops


def places_to_cut(rows: Rows) -> set[tuple[int, int]]:
    """Return the pairs of classes (a, b) between which any text can be cut without changing its words.

    In each state that has read a, no match goes on with b, and a word may end before b if and only if it may
    at the end of the text: a match that begins before the place is the same with and without the cut. And text
    that nothing matches does not reach across the place: a match begins with a if b follows, or with b anyway.
    """
    end = len(rows[0]) - 1
    pairs = set()
    after = [{row[a][0] for row in rows} - {0} for a in range(end)]
    for a, b in itertools.product(range(end), range(end)):
        begins = rows[rows[1][a][0]][b][1] or all(ends for _, ends in rows[rows[1][b][0]])
        if begins and all(rows[state][b] == (0, rows[state][end][1]) for state in after[a]):
            pairs.add((a, b))
    return pairs


# To find a word's end, the automaton may have to read on, and then go back. C also has a machine that never goes
# back: it marks the places at which words begin. Its state is a pair: the states of a match and of the next
# match, in case the first one ends before the last character (0: it can't).
BACK, BEGINS = 16, 32  # marks: a word begins one character before this one; it begins here
MARKS = BACK + BEGINS

# A register has room for 16 states: the most frequent ones in this text, and STOPPED, which is never left.
STOPPED = 15  # instead of any other state, and if the automaton must find the place
MOST_PAIRS = 2_000  # that are tried: instead of others, too
SAMPLE = """It's the "best" of 1984, isn't it?

    for i in range(10):
		print(f'{i:>3}', CamelCase_name[0])  # ok!!!
Déjà vu: 3,141.59 € «ёлка». 我们去年夏天在北京，  天气很好。カタカナ 한국어 e\u0301\n \n
 THE END\u3000x\r\n  * item (a/b)
"""


def machine_of(rows: Rows) -> Rows:
    """Return the machine of an automaton: for each state and class, the next state and its marks, or (0, STOPPED)."""
    numbers = {(1, 0): 0}
    cells: Rows = []
    while len(cells) < len(numbers):
        state, other = list(numbers)[len(cells)]
        row = []
        for (first, _), (following, ends), second in zip(rows[1][:-1], rows[state], rows[other]):
            marks = BEGINS if state == 1 else 0
            if other and not following and not ends:
                marks = BACK
                following, ends = second
            if following:
                new = (following, first if ends else 0)
            elif ends and first:
                marks, new = marks | BEGINS, (first, 0)
            else:
                marks, new = STOPPED, (1, 0)
            if len(numbers) >= MOST_PAIRS and new not in numbers:
                marks, new = STOPPED, (1, 0)
            row.append((numbers.setdefault(new, len(numbers)), marks))
        cells.append(row)
    return merge_states(cells)


def machine_tables(classes: bytes, rows: Rows) -> dict[str, Any]:
    """Return the machine's rows for two bytes, and the place of each row.

    For each state, a row has the next one and the marks: the first character's, and twice the second one's.
    """
    machine = machine_of(rows)
    visits = collections.Counter({0: len(SAMPLE)})  # the beginning of the text stays state 0
    state = 0
    for character in SAMPLE:
        state, _ = machine[state][classes[ord(character)]]
        visits[state] += 1
    kept = sorted(range(len(machine)), key=lambda state: -visits[state])[:STOPPED]
    n = len(machine[0])
    steps = []
    for number in range(n):
        cells = [machine[state][number] for state in kept]
        step = [kept.index(state) | marks if state in kept else STOPPED for state, marks in cells]
        steps.append(step + [STOPPED] * (16 - len(step)))
    steps.append(list(range(16)))  # of a byte that changes nothing
    pairs = bytearray()
    for first_step, second_step in itertools.product(steps, steps):
        for cell in first_step:
            after = second_step[cell & 15]
            pairs.append(after if after == STOPPED else (after & 15) + (cell & MARKS) + 2 * (after & MARKS))
    # By byte: ASCII; 80 to BF, the later bytes of a character; C0 on, the class of its first byte instead of the byte;
    # E4 to E9, the first bytes of ideographs, if all are of one class.
    keys = [*classes[:128], *[n] * 64, *range(n), *[n] * (MOST_CLASSES - n), *[classes[0x4E00]] * 28]
    first = array("H", [16 * (n + 1) * key for key in keys])
    return {"pairs": array("B", pairs), "first": first, "second": array("H", [16 * key for key in keys])}


KINDS = {"B": "uint8_t", "H": "uint16_t"}


def fields_of(automaton: tuple[bytes, Rows]) -> dict[str, Any]:
    """Return the fields of a bpe_pattern in C, in order."""
    classes, rows = automaton
    n = len(rows[0]) - 1
    cells = []
    for row in rows:
        for (state, ends), (first, _) in zip(row, rows[1]):
            new_word = ends and not state  # the next word begins with this character
            cells.append(4 * (first if new_word else state) + ends + 2 * new_word)
    blocks = [classes[start : start + 256] for start in range(0, 0x110000, 256)]
    distinct = {block: number for number, block in enumerate(dict.fromkeys(blocks))}
    cuts = places_to_cut(rows)
    return {
        "blocks": array("H", [distinct[block] for block in blocks]),
        "classes": array("B", b"".join(distinct)),
        "cells": array("H", cells),
        "ascii": array("H", [cells[row + k] for row in range(0, len(cells), n + 1) for k in classes[:128]]),
        **machine_tables(classes, rows),
        "cuts": array("B", [pair in cuts for pair in itertools.product(range(n), range(n))]),
        "n_classes": n,
        "ideographs_are_one_class": int(len(set(classes[0x4E00:0xA000])) == 1),
    }


@functools.cache
def named_expressions() -> tuple[str, ...]:
    """Return the expressions of bpe.PATTERNS."""
    spec: Any = importlib.util.spec_from_file_location("bpe", os.path.join(HERE, "bpe.py"))
    bpe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bpe)
    return tuple(bpe.PATTERNS.values())


def named_tables() -> str:
    """Return the named patterns of bpe.py as C."""
    texts = ("".join(f"\\{byte:03o}" for byte in text.encode("utf-8")) for text in named_expressions())
    strings = ", ".join(f'"{text}"' for text in texts)
    text = f"const char *const bpe_expressions[BPE_N_PATTERNS] = {{{strings}}};\n"
    return text + pattern_tables("bpe_patterns", named_expressions())


def pattern_tables(array_name: str, patterns: Sequence[str]) -> str:
    """Return an array of patterns as C."""
    text, rows = "", []
    for number, pattern in enumerate(patterns):
        fields = fields_of(automaton_of(pattern))
        for field, values in fields.items():
            if isinstance(values, array):
                fields[field] = f"{array_name}_{number}_{field}"
                numbers = ",".join(map(str, values))
                text += f"static const {KINDS[values.typecode]} {fields[field]}[{len(values)}] = {{{numbers}}};\n"
        rows.append(f"{{{', '.join(map(str, fields.values()))}}}")
    return text + f"const bpe_pattern {array_name}[{len(rows)}] = {{{', '.join(rows)}}};\n"


def digest(data: bytes) -> str:
    """Eight characters that change when the data does."""
    return f"{zlib.crc32(data):08x}"


def numbers() -> str:
    """The numbers that the interface needs."""
    return f"enum {{ BPE_VERSION = {VERSION}, BPE_N_PATTERNS = {len(named_expressions())} }};\n"


def prototypes() -> str:
    """The functions and types that Python uses, of both C files."""
    return numbers() + "".join(map(interface, SOURCES))


def interface(file: pathlib.Path) -> str:
    """The part of a C file between two markers."""
    return re.split(r"/\* ---- (?:interface|end of the interface).*\n", file.read_text(encoding="utf-8"))[1]


def source() -> str:
    """The complete C source: bpe_fast.c and bpe_text.c between generated tables."""
    code, tables = [file.read_bytes() for file in SOURCES], named_tables()
    text = f"#include <stdint.h>\n{numbers()}"
    text += f'const char bpe_source_digests[] = "{" ".join(map(digest, code))}";\n'
    text += f'const char bpe_regex_version[] = "{regex.__version__}";\n'
    text += f'const char bpe_class_digest[] = "{digest(tables.encode())}";\n'
    for file, content in zip(SOURCES, code):
        text += f'#line 1 "{file.name}"\n{content.decode("utf-8")}'
    return text + tables


# Only this part uses Python.h. Its functions make lists of int objects that exist already, whose addresses are in
# `numbers`: new ones take longer than encoding does. Python calls them, since cffi takes longer than a short text does.
GLUE_TYPES = """typedef struct { bpe_cache *cache; const uintptr_t *numbers; } bpe_for_lists;
int bpe_list_functions(bpe_for_lists *f, uintptr_t functions);
"""
GLUE = """
#ifdef Py_LIMITED_API
#define PyList_SET_ITEM PyList_SetItem /* a function, which takes longer */
#endif

static PyObject *new_list(const bpe_for_lists *f, const uint32_t *ids, size_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list && i < n; i++) {
        PyObject *number = (PyObject *)f->numbers[ids[i]];
        Py_INCREF(number); /* the list takes this reference over */
        PyList_SET_ITEM(list, (Py_ssize_t)i, number);
    }
    return list;
}

/* The lists of n texts: their ids are one array, and `ends` are those of each text's ids. */
static PyObject *lists_of(PyObject *self, PyObject *arguments)
{
    unsigned long long ids, ends, n, start = 0;
    if (!PyArg_ParseTuple(arguments, "KKK", &ids, &ends, &n))
        return NULL;
    PyObject *lists = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; lists && i < n; i++) {
        const uint64_t end = ((uint64_t *)(uintptr_t)ends)[i];
        PyObject *list = new_list(PyLong_AsVoidPtr(self), (uint32_t *)(uintptr_t)ids + start, (size_t)(end - start));
        if (list)
            PyList_SET_ITEM(lists, (Py_ssize_t)i, list);
        else
            Py_CLEAR(lists);
        start = end;
    }
    return lists;
}

static void resume_collector(PyObject *capsule)
{
    (void)capsule;
    PyGC_Enable();
}

/* Turn the garbage collector off until the result is freed. Ctrl-C can't come between two steps of this. */
static PyObject *pause_collector(PyObject *self, PyObject *none)
{
    PyObject *capsule = PyCapsule_New(PyLong_AsVoidPtr(self), NULL, NULL);
    (void)none;
    if (capsule && PyGC_Disable())
        PyCapsule_SetDestructor(capsule, resume_collector);
    return capsule;
}

/* The list of ids; or None for a long text, for an error, and if no cache is free, or threads may run this at once. */
static PyObject *encode_short(PyObject *self, PyObject *data)
{
#ifndef Py_GIL_DISABLED
    const bpe_for_lists *f = PyLong_AsVoidPtr(self);
    uint32_t ids[4000];
    uint64_t n = (uint64_t)PyBytes_Size(data);
    if (n <= 4000 - 2 && f->cache && bpe_encode(f->cache, (void *)PyBytes_AsString(data), &n, 1, ids, NULL) == BPE_OK)
        return new_list(f, ids, n);
#endif
    return PyErr_Occurred() ? NULL : Py_BuildValue(""); /* None */
}

int bpe_list_functions(bpe_for_lists *f, uintptr_t functions)
{
    static PyMethodDef methods[] = {{"encode_short", encode_short, METH_O, NULL},
                                    {"lists_of", lists_of, METH_VARARGS, NULL},
                                    {"pause_collector", pause_collector, METH_NOARGS, NULL}};
    PyGILState_STATE state = PyGILState_Ensure(); /* cffi has released the GIL */
    PyObject *self = PyLong_FromVoidPtr(f), *list = (PyObject *)functions;
    int failed = !self;
    for (size_t i = 0; i < sizeof methods / sizeof *methods && !failed; i++) {
        PyObject *function = PyCFunction_New(&methods[i], self);
        failed = !function || PyList_Append(list, function);
        Py_XDECREF(function);
    }
    PyErr_Clear();
    Py_XDECREF(self);
    PyGILState_Release(state);
    return failed ? BPE_NO_MEMORY : BPE_OK;
}
"""

FLAGS = "/O2" if sys.platform == "win32" else "-O3 -fvisibility=hidden"
NEEDS = "this requires a C compiler and `pip install regex cffi setuptools` (bpe.py works without it, more slowly)"


def module(flags: str = FLAGS, optional: bool = True) -> Any:
    """Describe the module to cffi. setup.py uses the defaults: if compiling fails, pip installs Python only."""
    from cffi import FFI

    full: dict[str, Any] = {"py_limited_api": False, "define_macros": [("_CFFI_NO_LIMITED_API", None)]}
    api = {} if "BPE_LIMITED_API" in os.environ else full  # one module for all versions of Python, or for this one
    ffi = FFI()
    ffi.cdef(prototypes() + GLUE_TYPES)
    code = source() + GLUE_TYPES + GLUE
    ffi.set_source("_bpe_fast", code, extra_compile_args=flags.split(), optional=optional, **api)
    return ffi


def build(flags: str = FLAGS) -> str:
    """Compile the module and install it next to this file; returns a summary line."""
    import shutil
    import tempfile

    try:
        ffi = module(flags, optional=False)
        with tempfile.TemporaryDirectory() as folder:
            built = ffi.compile(tmpdir=folder)
            target = os.path.join(HERE, os.path.basename(built))
            shutil.copy(built, target + ".tmp")
            os.replace(target + ".tmp", target)
    except Exception as error:  # the class depends on the platform's compiler
        raise SystemExit(f"build_ffi.py: building failed ({flags}): {error}; {NEEDS}") from None
    return f"built {target} ({flags})"


if __name__ == "__main__":
    print(build(*sys.argv[1:]))
