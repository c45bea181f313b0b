"""The C engine with all that bpe.py can use: tables of words and encoders, besides the merge loop of build_ffi.py."""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import mmap
import types
import warnings
from array import array
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import regex

import build_ffi
from bpe_more import signals, workers

# each after those that it uses
C_FILES = ("bpe_extend.c", "bpe_shared.c", "bpe_words.c", "bpe_encode.c", "bpe_lists.c")
NO_ID = 2**32 - 1  # of a byte without a token
BYTES_TO_KNOW = 2  # bytes of text for each token, after which an encoder finds the words that are tokens
THREAD_BYTES = 16 << 20  # of files for each thread that counts: each has its own table, and merging them takes time
LONG_TEXT = 1 << 20  # characters of a text from which on encode() uses all cores
PART_OF_TEXT, WINDOW_OF_TEXT = 512 << 10, 4 << 10  # of its parts, and of text in which a place to cut is looked for
MOST_SPECIALS = 1000  # which are looked for at each place; with more of them, a long text is one part
MOST_IN_TURN = 8  # steps of a pattern that C takes one after another; each one needs 8 KB of the stack


class Engine(build_ffi.Engine):
    """The C engine, as bpe.py uses it: text and words are bytes, ids and counts are numbers.

    build_ffi.Engine has ffi, lib, lacks, learn(), run(), in_c(); pattern(), arrays() and check(), which are overridden
    here; and create(kind, ..., by="new"), which calls bpe_KIND_new, or bpe_KIND_{by}, and lets Python free the handle
    with bpe_KIND_free.
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
        expressions = [self.ffi.string(text).decode() for text in self.lib.bpe_expressions]
        return {text: self.ffi.addressof(self.lib.bpe_patterns, number) for number, text in enumerate(expressions)}

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
        with signals.all_delayed():
            from bpe_more import machine, patterns  # only now: named patterns have theirs since the build
        try:
            fields = machine.fields_of(patterns.automaton_of(pattern))
        except (patterns.UnsupportedError, RecursionError) as error:
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
        return self.ffi.gc(copy, lambda _: made.clear()), ""  # as above

    def declines(self, pattern: Any) -> str:
        """Return why C can't scan a pattern, or ""."""
        return self.pattern(pattern)[1]

    def count(self, slices: Iterator[Any], pattern: Any, special_tokens: Sequence[str], n_threads: int) -> Words:
        """Count the words of slices in a table, in threads."""
        table = self.words(special_tokens, pattern)
        ahead = list(itertools.islice(slices, 1))
        if ahead and not ahead[0].texts:  # parts of files, which are small as long as they aren't read
            ahead += itertools.islice(slices, n_threads * THREAD_BYTES // (1 << 20))
            n_threads = min(n_threads, sum(part.end - part.start for part in ahead) // THREAD_BYTES + 1)
        slices = itertools.chain(ahead, slices)
        with contextlib.closing(in_threads(lambda part: part.apply(table.scan_all), slices, n_threads)) as results:
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

    def special_arguments(self, special_tokens: Iterable[str]) -> tuple[bytes, Any, int]:
        """Special tokens for a C function: their bytes, concatenated, their lengths, and their number.

        Not lists as arguments: for a long one, cffi raises SystemError if there is no memory for a copy.
        """
        tokens = list(map(str.encode, special_tokens))
        return b"".join(tokens), self.ffi.new("size_t[]", list(map(len, tokens))), len(tokens)

    def words_with_ids(self, words: Collection[bytes], ids: Iterable[int]) -> tuple[bytes, Any, Any, int]:
        """Words for a C function: their bytes, concatenated, their lengths, their ids, and their number."""
        lengths = array("Q", map(len, words))
        return b"".join(words), self.in_memory(lengths), self.in_memory(array("I", ids)), len(words)

    def in_memory(self, numbers: array[int]) -> Any:
        """Return an array as a pointer for C, which keeps it alive."""
        return self.ffi.from_buffer(f"{c_type(numbers)}[]", numbers)

    def joined(self, texts: Sequence[bytes]) -> tuple[Any, array[int]]:
        """Return texts as C takes them, and a new array of their ends; those of data.py need no copy."""
        if hasattr(texts, "ends"):
            return self.ffi.from_buffer("uint8_t[]", texts.data), texts.ends[:]  # type: ignore[attr-defined]
        return b"".join(texts), array("Q", itertools.accumulate(map(len, texts)))

    def special_counter(self, special_tokens: Iterable[str]) -> Callable[[Sequence[bytes]], int]:
        """Return a function that counts special tokens in texts."""
        specials = self.special_arguments(special_tokens)
        rules = self.create("rules", *specials, self.ffi.NULL, build_ffi.new_seed())  # which need no pattern for that

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
        in_c = self.ffi.from_buffer
        n_words, longer = len(counts), tokens[256:]
        words = in_c("uint32_t[]", ids), in_c("uint64_t[]", n_ids), lengths, counts, n_words
        old = b"".join(longer), in_c("uint64_t[]", array("Q", map(len, longer))), len(longer)
        made = 0
        # A word may stay divided for ever. Then C, which expects that each merge completes a word at most, may not find
        # all pairs (it leaves out pairs rarer than the merges_wanted-th most frequent word, see new_array); with more
        # merges than words, it does, and the first `made` merges are the same.
        for wanted in (merges_wanted, n_words + 1):
            limits = (min(n, 2**64 - 1) for n in (wanted, min_frequency))
            learner = self.create("learner", *words, *old, *limits, build_ffi.new_seed(), by="extend")
            for merge in itertools.islice(self.run(learner, tokens), made, merges_wanted):
                made += 1
                yield merge
            if made == merges_wanted or wanted > n_words:
                return

    def find_merges(self, ids: Mapping[str, int], merges: Sequence[str]) -> array[int]:
        """Return the ids of merges (left, right, new), which are given as two names: "low er".

        Returns none if one of them has no id. Raises UnicodeEncodeError for a surrogate.
        """
        names, pairs = ("\n".join([*lines, ""]).encode("utf-8") for lines in (ids, merges))
        if pairs.count(b"\n") > len(merges) or b"\0" in pairs:  # in no name
            return array("I")
        rows, numbers = array("I", bytes(12 * len(merges))), array("I", ids.values())
        in_c = self.ffi.from_buffer("uint8_t[]", bytearray(pairs)), len(merges), self.in_memory(rows)
        status = self.lib.bpe_find_merges(names, self.in_memory(numbers), len(ids), build_ffi.new_seed(), *in_c)
        self.check(status)
        return rows if status == self.lib.BPE_OK else array("I")

    def find_splits(self, vocab: Mapping[int, bytes]) -> array[int]:
        """Return what formats.splits_of() does."""
        ids = sorted(vocab)
        in_c = self.words_with_ids(list(map(vocab.__getitem__, ids)), ids)
        rows, n = self.new("uint32_t[]", 3 * len(in_c[0])), self.ffi.new("size_t *")
        self.check(self.lib.bpe_find_splits(*in_c, build_ffi.new_seed(), rows, n))
        return array("I", self.ffi.buffer(rows)[: 12 * n[0]])

    def arrays(self, words: Words | Mapping[bytes, int], least: int) -> tuple[Any, Any, Any]:
        """Return the words that occur at least `least` times, as a learner takes them.

        A table of words is used up, a mapping is not.
        """
        table = words if isinstance(words, Words) else self.words((), "gpt2")
        if not isinstance(words, Words):
            # a learner needs an order that nobody can choose, as a table's is; sorting takes longer
            table.add(words.items())
        handle = table.handle()
        arrays = table.get(handle, min(least, 2**64 - 1))
        self.lib.bpe_words_drop(handle)  # so that memory holds these words twice at most
        return arrays


def c_type(numbers: array[int]) -> str:
    """Return the type in C of the numbers in an array."""
    return f"uint{8 * numbers.itemsize}_t"


def new_block(n_bytes: int) -> Any:
    """Return a buffer, on Linux in huge pages: small ones take 1 to 3 us each when they are first used."""
    if hasattr(mmap, "MADV_HUGEPAGE") and n_bytes:
        with contextlib.suppress(OSError):  # no memory, or a kernel without huge pages
            block = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            block.madvise(mmap.MADV_HUGEPAGE)
            return block
    return bytearray(n_bytes)


def in_threads(task: Any, items: Iterator[Any], n_threads: int) -> Generator[Any, None, None]:
    """Yield task(item) for each item, in order, from threads."""
    with contextlib.closing(workers.run_tasks(task, items, True, n_threads)) as results:
        for _, result in results:
            yield result


class Words:
    """Words and their counts in C. A call that scans takes a table that no other call uses; they are merged later."""

    def __init__(self, engine: Engine, special_tokens: Sequence[str], pattern: str) -> None:
        self.engine = engine
        # the rules need it; NULL if C can't scan it: then words are only added, and the rules never used
        self.pattern, _ = engine.pattern(pattern)
        specials = engine.special_arguments(special_tokens)
        self.rules = engine.create("rules", *specials, self.pattern, build_ffi.new_seed())
        self.tables: list[Any] = [self.new_table()]  # none after an error, which lost words
        self.free = self.tables[:]  # the tables that no call is using

    def new_table(self) -> Any:
        """Create an empty table."""
        return self.engine.create("words", build_ffi.new_seed())

    def scan(self, *texts: bytes) -> None:
        """Count the words of texts."""
        self.scan_all(texts)

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
            self.put(table, *self.engine.in_c(words, [count for _, count in batch]))

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


class Encoder:
    """The vocabulary of a tokenizer in the C engine, which any number of threads can share."""

    in_c = True
    most_threads = workers.MOST_WORKERS

    def __init__(self, engine: Engine, tokenizer: Any) -> None:
        self.engine = engine
        self.blocks: list[Any] = []  # for list_of(): fresh memory is slower
        self.calls: list[Any] = []  # a cache and buffers for each call that has run at the same time as others
        self.free: list[Any] = []  # which no call is using
        self.pattern_name, self.special_tokens = tokenizer.pattern, tuple(tokenizer.special_ids)
        self.pattern, _ = engine.pattern(tokenizer.pattern)  # which the rules need; the handle needs the rules
        specials = engine.special_arguments(tokenizer.special_ids)
        self.rules = engine.create("rules", *specials, self.pattern, build_ffi.new_seed())
        self.to_know: list[Any] = []  # words, as bpe_encoder_know takes them, until it is called
        self.knows = False
        self.handle = self.new_handle(tokenizer)

        # lists are made of these int objects, because new ones take longer than encoding does
        n = max(tokenizer.vocab, default=0) + 1
        self.numbers = list(range(n if n <= 2**20 else 0))  # more would take too much memory
        self.addresses = engine.ffi.new("uintptr_t[]", list(map(id, self.numbers)))
        # Its cache is one that encode_short may use, and NULL while a call uses it.
        bytes_left = BYTES_TO_KNOW * len(tokenizer.vocab) if self.to_know else 0
        self.for_lists = engine.ffi.new("bpe_for_lists *", (engine.ffi.NULL, self.addresses, bytes_left))
        functions: list[Any] = []  # to which C adds three, by the address of the list
        engine.check(engine.lib.bpe_list_functions(self.for_lists, id(functions)))
        if not self.numbers:
            functions[:2] = [lambda data: None, self.new_numbers]
        self.encode_short, self.lists_of, self.pause_collector = functions

    def new_handle(self, tokenizer: Any) -> Any:
        """Create the encoder in C, where the bytes are the tokens 0 to 255; others come after them."""
        engine, merge_ids = self.engine, tokenizer.merge_ids
        whole, specials = getattr(tokenizer, "whole_words", {}), tokenizer.special_ids.values()
        of_bytes = [tokenizer.ids.get(bytes([byte]), NO_ID) for byte in range(256)]
        longer = set(tokenizer.ids.values()).difference(of_bytes)
        words = sorted(longer.intersection(whole.values()) if whole else longer.difference(specials))
        others = sorted(longer.difference(words))  # which merges may use, too
        token_of = tokenizer.vocab.__getitem__
        tokens = engine.words_with_ids(list(map(token_of, words + others)), words + others)
        ids = array("I", of_bytes + words + others)

        merges = array("I", getattr(merge_ids, "numbers", itertools.chain.from_iterable(merge_ids)))
        n = max(tokenizer.vocab, default=-1) + 1
        has_gaps = n > 4 * len(ids)
        numbers: Any = {} if has_gaps else array("I", bytes(4 * n))
        for number, token_id in enumerate(ids):
            if token_id != NO_ID:
                numbers[token_id] = number
        if has_gaps:
            merges = array("I", map(numbers.__getitem__, merges))
        else:
            engine.lib.bpe_replace_ids(engine.in_memory(merges), len(merges), engine.in_memory(numbers))

        special_ids = engine.ffi.new("uint32_t[]", list(specials))
        vocabulary = engine.in_memory(ids), len(ids), *tokens[:2], engine.in_memory(merges), len(merges) // 3
        handle = engine.create("encoder", *vocabulary, self.rules, special_ids, build_ffi.new_seed())
        if whole:
            engine.check(engine.lib.bpe_encoder_know(handle, *tokens[:3], len(words), True))
        else:
            self.to_know.append((*tokens, len(words)))
        return handle

    def know_words(self) -> None:
        """Find the words that are tokens, once; that takes longer than to encode a page of text."""
        with contextlib.suppress(IndexError):  # another thread is doing it
            *tokens, n = self.to_know.pop()
            self.for_lists.bytes_left = 0
            self.engine.check(self.engine.lib.bpe_encoder_know(self.handle, *tokens[:3], n, False))
            self.knows = True

    def encode(self, text: str) -> list[int]:
        """Encode text, the parts of a long one in threads. Raises ValueError for a byte without a token."""
        if len(text) >= LONG_TEXT:
            with contextlib.suppress(ValueError):  # raised below, with its place in the text
                return self.encode_parts(text)
        data = text.encode("utf-8")
        ids: list[int] | None = self.encode_short(data)
        return self.encode_texts([data])[0] if ids is None else ids

    def encode_parts(self, text: str) -> list[int]:
        """Encode a long text in parts, in threads."""

        def encode_part(part: tuple[int, int]) -> bytes:
            start, end = part
            ids, _ = self.encode_texts([text[start:end].encode("utf-8")], "u4")
            return ids  # type: ignore[no-any-return]

        results: Any = workers.run_tasks(encode_part, self.parts_of(text), True, workers.MOST_WORKERS)
        with contextlib.closing(results):
            return self.list_of(((end, ids) for (_, end), ids in results), len(text))

    def parts_of(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield (start, end) of the parts of a long text, cut where no word changes."""
        start, place, step = 0, PART_OF_TEXT, PART_OF_TEXT
        while place + WINDOW_OF_TEXT < len(text) and len(self.special_tokens) <= MOST_SPECIALS:
            window = text[place : place + WINDOW_OF_TEXT]
            if cut := self.engine.last_cut(window, self.pattern_name, self.special_tokens):
                yield start, place + cut
                start, place = place + cut, place + cut + PART_OF_TEXT
            else:
                place += step
                step *= 2  # there may be no place at all
        yield start, len(text)

    def encode_batch(self, slices: Iterator[Any], n_threads: int) -> list[list[int]]:
        """Encode the texts of slices; return a list of ids for each text."""
        pause = self.pause_collector()  # until it is freed
        try:
            results = in_threads(lambda part: part.apply(self.encode_texts), slices, n_threads)
            with contextlib.closing(results):
                return list(itertools.chain.from_iterable(results))
        finally:
            del pause

    def encode_slices(self, slices: Iterator[Any], typecode: str, n_threads: int) -> Iterator[bytes]:
        """Yield the bytes of an array of ids for each slice."""
        encode = functools.partial(self.encode_texts, kind={"H": "u2", "I": "u4"}[typecode])
        return in_threads(lambda part: part.apply(encode)[0], slices, n_threads)

    def encode_utf8(self, data: bytes) -> list[int]:
        """Encode UTF-8. Raises UnicodeDecodeError, or ValueError for a byte without a token."""
        ids: list[int] | None = self.encode_short(data)
        return self.encode_texts([data])[0] if ids is None else ids

    def encode_texts(self, texts: Sequence[bytes], kind: str = "", left_out: list[int] | None = None) -> Any:
        """Encode texts as lists, or with a kind as one array: what encode_texts of models.Encoder returns."""
        if len(texts) == 1 and not kind and (ids := self.encode_short(texts[0])) is not None:
            return [ids]
        ffi, lib = self.engine.ffi, self.engine.lib
        data, ends = self.engine.joined(texts)
        ends_in_c = ffi.from_buffer("uint64_t[]", ends)  # C makes them the ends of ids
        if self.to_know and self.for_lists.bytes_left > len(data):
            self.for_lists.bytes_left -= len(data)
        elif self.to_know:
            self.know_words()
        try:
            call = self.free.pop()
        except IndexError:
            call = types.SimpleNamespace(cache=self.engine.create("cache", self.handle), ids=(), knows=False)
            # C never points to a cache that Python may free: `calls` keeps each one as long as this encoder.
            # Ctrl-C just after pop() leaves a cache that isn't free, and to which for_lists may still point;
            # so does an append() in `finally` that runs out of memory. If nothing else kept that cache, the
            # next short text would be looked up in freed memory.
            self.calls.append(call)
        try:
            if self.knows and not call.knows:
                lib.bpe_cache_know(call.cache)
                call.knows = True
            self.for_lists.cache = ffi.NULL  # another thread may encode a short text while this call uses the cache
            # `room` ids of 32 bits, and after them `room` of 16 bits: 3/2 room numbers of 32 bits
            room = len(call.ids) // 3 * 2
            if not len(data) + 3 <= room <= 1 << 26:  # too small, or too large to be kept
                room = max(len(data) + 4, 1000) // 2 * 2  # even
                call.ids = self.engine.new("uint32_t[]", room // 2 * 3)  # fresh memory is slower
            narrow, size = (ffi.cast("uint16_t *", call.ids + room), 2) if kind == "u2" else (ffi.NULL, 4)
            n_left_out = ffi.NULL if left_out is None else ffi.new("uint64_t *")
            status = lib.bpe_encode(call.cache, data, ends_in_c, len(ends), call.ids, narrow, n_left_out)
            if status:
                self.refuse(status, texts, ends[0])
            if left_out is not None:
                left_out.append(n_left_out[0])
            if not kind:
                return self.lists_of(*(int(ffi.cast("uintptr_t", block)) for block in (call.ids, ends_in_c)), len(ends))
            n_ids = ends[-1] if texts else 0
            return bytes(ffi.buffer(narrow or call.ids, n_ids * size)), ends
        finally:
            # in this order: as soon as a call is free, another thread may use its cache
            self.for_lists.cache = call.cache
            self.free.append(call)

    def list_of(self, arrays: Iterable[tuple[int, bytes]], length: int) -> list[int]:
        """Return one list of the ids in arrays, of 32 bits each, as encode_texts() returns them.

        With each array comes the end of its part in a text of this length.
        """
        ffi, n_bytes = self.engine.ffi, 0
        try:
            block = self.blocks.pop()
        except IndexError:  # no question before: another thread may take the last one in between
            block = new_block(0)
        for part_end, ids in arrays:
            end = n_bytes + len(ids)
            if end > len(block):
                old, block = block, new_block(end * length // part_end * 9 // 8)  # the rest may need more
                block[:n_bytes] = old[:n_bytes]
            block[n_bytes:end] = ids
            n_bytes = end
        in_c = ffi.from_buffer(block), ffi.new("uint64_t *", n_bytes // 4)
        lists: list[list[int]] = self.lists_of(*(int(ffi.cast("uintptr_t", each)) for each in in_c), 1)
        if n_bytes <= 1 << 28:
            self.blocks.append(block)
        return lists[0]

    def new_numbers(self, ids: int, ends: int, n: int) -> list[list[int]]:
        """Do the same as lists_of(), with new numbers."""
        ends_of = self.engine.ffi.cast("uint64_t *", ends)[0:n]
        ids_of = self.engine.ffi.cast("uint32_t *", ids)
        return [list(ids_of[start:end]) for start, end in itertools.pairwise([0, *ends_of])]

    def refuse(self, status: int, texts: Sequence[bytes], at: int) -> None:
        """Raise the error of the text that can't be encoded, with its number; `at` is the byte without a token."""
        self.engine.check(status)
        ends = list(itertools.accumulate(map(len, texts)))
        number = sum(end <= at for end in ends)
        data = texts[number]
        data.decode("utf-8")  # may raise UnicodeDecodeError
        at -= ends[number] - len(data)
        start = len(data[:at].decode("utf-8", "ignore").encode("utf-8"))  # of its character
        place = data[start : start + 160].decode("utf-8", "ignore")[:40]
        way = "errors='replace' leaves it out"
        error: Any = ValueError(f"the vocabulary has no token for the byte {data[at : at + 1]!r}, in {place!r}; {way}")
        error.number = number
        raise error


# ------------------------------
# Building
# ------------------------------

def numbers() -> str:
    """Return the constants that the interface needs."""
    import bpe

    return f"enum {{ BPE_N_PATTERNS = {len(bpe.PATTERNS)} }};\n"


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
    """Return named patterns as C."""
    expressions = tuple(expressions)
    texts = ("".join(f"\\{byte:03o}" for byte in text.encode("utf-8")) for text in expressions)
    strings = ", ".join(f'"{text}"' for text in texts)
    text = f"const char *const bpe_expressions[BPE_N_PATTERNS] = {{{strings}}};\n"
    return text + pattern_tables("bpe_patterns", expressions)


def pattern_tables(array_name: str, expressions: Sequence[str]) -> str:
    """Return an array of patterns as C."""
    from bpe_more.machine import fields_of
    from bpe_more.patterns import automaton_of

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
