"""Encodes text in C, for any number of threads: gives a vocabulary and its merges to bpe_encode.c, and calls it.

Gives: Encoder, which Engine.encoder() creates; the encoders in Python have the same methods.
Uses: workers.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import mmap
import types
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import build_ffi
from bpe_more import workers

NO_ID = 2**32 - 1  # of a byte without a token
LONG_TEXT = 1 << 20  # characters of a text from which on encode() uses all cores
PART_OF_TEXT, WINDOW_OF_TEXT = 512 << 10, 4 << 10  # of its parts, and of text in which a place to cut is looked for
MOST_SPECIALS = 1000  # which are looked for at each place; with more of them, a long text is one part


def new_block(n_bytes: int) -> Any:
    """Return a buffer, on Linux in huge pages: small ones take 1 to 3 us each when they are first used."""
    if hasattr(mmap, "MADV_HUGEPAGE") and n_bytes:
        with contextlib.suppress(OSError):  # no memory, or a kernel without huge pages
            block = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            block.madvise(mmap.MADV_HUGEPAGE)
            return block
    return bytearray(n_bytes)


def parts_of(text: str, last_cut: Callable[[str], int]) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of the parts of a long text, cut where no word changes, as last_cut(a part of it) says."""
    start, place, step = 0, PART_OF_TEXT, PART_OF_TEXT
    while place + WINDOW_OF_TEXT < len(text):
        if cut := last_cut(text[place : place + WINDOW_OF_TEXT]):
            yield start, place + cut
            start, place = place + cut, place + cut + PART_OF_TEXT
        else:
            place += step
            step *= 2  # there may be no place at all
    yield start, len(text)


class Spare:
    """What calls use one at a time: each takes an object, or makes one, and gives it back.

    Any number of threads may do so without a lock, as pop() and append() of a list are one step each. Nothing is asked
    before pop(): another thread may take the last object in between.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make
        self.objects: list[Any] = []

    def take(self) -> Any:
        """Return an object that no other call uses, until it is given back; after an error, it need not be."""
        try:
            return self.objects.pop()
        except IndexError:
            return self.make()

    def give_back(self, each: Any) -> None:
        """Let other calls use an object."""
        self.objects.append(each)


class Encoder:
    """The vocabulary of a tokenizer in the C engine, which any number of threads can share."""

    in_c = True
    most_threads = workers.MOST_WORKERS

    def __init__(self, engine: Any, tokenizer: Any) -> None:
        self.engine = engine
        self.long_text = LONG_TEXT
        self.blocks = Spare(functools.partial(new_block, 0))  # for list_of(): fresh memory is slower
        self.spare_calls = Spare(self.new_call)
        self.calls: list[Any] = []  # all that were made, one for each call that has run at the same time as others
        self.special_tokens = tuple(tokenizer.special_ids)
        rules = {"pattern": tokenizer.pattern, "special_tokens": self.special_tokens}
        self.last_cut = functools.partial(engine.last_cut, **rules)  # bpe_more has one that cuts with more patterns
        self.pattern, _ = engine.pattern(tokenizer.pattern)  # which the rules need; the handle needs the rules
        self.rules = engine.rules(tokenizer.special_ids, self.pattern)
        self.handle = self.new_handle(tokenizer)

        # lists are made of these int objects, because new ones take longer than encoding does
        n = max(tokenizer.vocab, default=0) + 1
        self.numbers = list(range(n if n <= 2**20 else 0))  # more would take too much memory
        self.addresses = engine.ffi.new("uintptr_t[]", list(map(id, self.numbers)))
        # Its cache is one that encode_short may use, and NULL while a call uses it.
        self.for_lists = engine.ffi.new("bpe_for_lists *", (engine.ffi.NULL, self.addresses))
        functions: list[Any] = []  # C adds three, by the address of the list; none if bpe_lists.c is turned off
        engine.check(engine.lib.bpe_list_functions(self.for_lists, id(functions)))
        self.encode_short, self.lists_of, self.pause_collector = functions or [None, None, lambda: None]
        if not functions or not self.numbers:
            self.encode_short, self.lists_of = lambda data: None, self.new_numbers

    def new_handle(self, tokenizer: Any) -> Any:
        """Create the encoder in C, where the bytes are the tokens 0 to 255; others come after them."""
        engine, merge_ids = self.engine, tokenizer.merge_ids
        of_bytes = [tokenizer.ids.get(bytes([byte]), NO_ID) for byte in range(256)]
        longer = set(tokenizer.ids.values()).difference(of_bytes)
        whole = sorted(longer.intersection(getattr(tokenizer, "whole_word_ids", {}).values()))  # words
        longer_ids = whole + sorted(longer.difference(whole))
        tokens = engine.words_with_ids(list(map(tokenizer.vocab.__getitem__, longer_ids)), longer_ids)
        ids = array("I", of_bytes + longer_ids)

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

        # C reads both as long as there is an encoder
        self.ids = engine.in_memory(ids)
        self.special_ids = engine.in_memory(array("I", tokenizer.special_ids.values()))
        vocabulary = self.ids, len(ids), *tokens[:2], len(whole)
        rows = engine.in_memory(merges), len(merges) // 3
        return engine.create("encoder", *vocabulary, *rows, self.rules, self.special_ids, build_ffi.new_seed())

    def encode(self, text: str) -> list[int]:
        """Encode text, the parts of a long one in threads. Raises ValueError for a byte without a token."""
        if len(text) >= self.long_text:
            with contextlib.suppress(ValueError):  # raised below, with its place in the text
                return self.encode_parts(text, self.last_cut, self.encode_texts)
        data = text.encode("utf-8")
        ids: list[int] | None = self.encode_short(data)
        return self.encode_texts([data])[0] if ids is None else ids

    def encode_parts(self, text: str, last_cut: Callable[[str], int], encode_texts: Callable[..., Any]) -> list[int]:
        """Encode a long text in parts, in threads.

        encode_texts() is that of this encoder, or of one that prepares text for it.
        """

        def encode_part(part: tuple[int, int]) -> tuple[int, bytes]:
            start, end = part
            ids, _ = encode_texts([text[start:end].encode("utf-8")], "u4")
            return end, ids

        parts = parts_of(text, last_cut) if len(self.special_tokens) <= MOST_SPECIALS else iter([(0, len(text))])
        with contextlib.closing(workers.in_order(encode_part, parts, workers.MOST_WORKERS)) as results:
            return self.list_of(results, len(text))

    def encode_batch(self, slices: Iterator[Any], n_threads: int) -> list[list[int]]:
        """Encode the texts of slices; return a list of ids for each text."""
        pause = self.pause_collector()  # until it is freed
        try:
            results = workers.in_order(lambda part: part.apply(self.encode_texts), slices, n_threads)
            with contextlib.closing(results):
                return list(itertools.chain.from_iterable(results))
        finally:
            del pause

    def encode_slices(self, slices: Iterator[Any], typecode: str, n_threads: int) -> Iterator[bytes]:
        """Yield the bytes of an array of ids for each slice."""
        encode = functools.partial(self.encode_texts, kind={"H": "u2", "I": "u4"}[typecode])
        return workers.in_order(lambda part: part.apply(encode)[0], slices, n_threads)

    def encode_utf8(self, data: bytes, left_out: list[int] | None = None) -> list[int]:
        """Encode UTF-8. Raises UnicodeDecodeError, or ValueError for a byte without a token."""
        ids: list[int] | None = self.encode_short(data)
        return self.encode_texts([data], "", left_out)[0] if ids is None else ids

    def encode_texts(self, texts: Sequence[bytes], kind: str = "", left_out: list[int] | None = None) -> Any:
        """Encode texts as lists, or with a kind as one array: what encode_texts() of the encoder in Python returns."""
        if len(texts) == 1 and not kind and (ids := self.encode_short(texts[0])) is not None:
            return [ids]
        ffi, lib = self.engine.ffi, self.engine.lib
        data, ends = self.engine.joined(texts)
        ends_in_c = ffi.from_buffer("uint64_t[]", ends)  # C makes them the ends of ids
        call = self.spare_calls.take()
        try:
            self.for_lists.cache = ffi.NULL  # another thread may encode a short text while this call uses the cache
            if not len(data) + 3 <= len(call.ids) <= 1 << 26:  # too small, or too large to be kept
                call.ids = self.engine.new("uint32_t[]", max(len(data) + 3, 1000))  # fresh memory is slower
            narrow, size = (ffi.cast("uint16_t *", call.ids), 2) if kind == "u2" else (ffi.NULL, 4)
            n_left_out = ffi.NULL if left_out is None else ffi.new("uint64_t *")
            status = lib.bpe_encode(call.cache, data, ends_in_c, len(ends), call.ids, narrow, n_left_out)
            if status:
                self.refuse(status, texts, ends[0])
            if left_out is not None:
                left_out[0] += n_left_out[0]
            if not kind:
                return self.lists_of(*(int(ffi.cast("uintptr_t", block)) for block in (call.ids, ends_in_c)), len(ends))
            n_ids = ends[-1] if texts else 0
            return bytes(ffi.buffer(call.ids, n_ids * size)), ends
        finally:
            # in this order: as soon as it is given back, another thread may use its cache
            self.for_lists.cache = call.cache
            self.spare_calls.give_back(call)

    def new_call(self) -> Any:
        """Make a cache and buffers."""
        call = types.SimpleNamespace(cache=self.engine.create("cache", self.handle), ids=())
        # C never points to a cache that Python may free: `calls` keeps each one as long as this encoder. Ctrl-C just
        # after take() leaves a cache that is never given back, and to which for_lists may still point; so does a lack
        # of memory in give_back(). If nothing else kept that cache, the next short text would be looked up in freed
        # memory.
        self.calls.append(call)
        return call

    def list_of(self, arrays: Iterable[tuple[int, bytes]], length: int) -> list[int]:
        """Return one list of the ids in arrays, of 32 bits each, as encode_texts() returns them.

        With each array comes the end of its part in a text of this length.
        """
        ffi, n_bytes = self.engine.ffi, 0
        block = self.blocks.take()
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
            self.blocks.give_back(block)
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
