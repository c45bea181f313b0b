"""Encoding in Python, by the merges of a tokenizer; and preparing text first, for some models of other programs.

The encoder in C, in the folder engine, also has encode(), encode_utf8(), encode_texts() and pause_collector().

Gives: new_encoder(), which chooses one; Encoder; PreparingEncoder for normal forms, and for special tokens that remove
whitespace.
Uses: choices, corpus.slicing, formats.supported, patterns.steps.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import bpe
from bpe_more import choices
from bpe_more.corpus import slicing
from bpe_more.formats import supported
from bpe_more.patterns import steps
from bpe_more.patterns.steps import Normalizer, steps_of


def new_encoder(tokenizer: Any, engine_name: bpe.EngineName) -> Any:
    """Return an encoder for a tokenizer: in C if the name allows that, and C can be used for it; else in Python."""
    form, _ = steps_of(tokenizer.pattern)
    if form or tokenizer.lstrip or tokenizer.rstrip:
        return PreparingEncoder(tokenizer, engine_name)  # in Python; its `inner` may be in C
    engine = choices.scanning_engine(tokenizer.options._replace(engine=engine_name))  # None if C can't be used
    encoder = engine.encoder(tokenizer) if engine else None  # None: too many tokens
    if encoder is None:
        return Encoder(tokenizer)
    encoder.last_cut = last_cut_for(tokenizer)  # instead of its own, which can cut with fewer patterns
    return encoder


def last_cut_for(tokenizer: Any) -> Callable[[str], int]:
    """Return a function that says where a window of a long text can be cut, so that no word changes; 0 for nowhere."""
    pattern, special_tokens = tokenizer.pattern, tokenizer.options.special_tokens

    def last_cut(window: str) -> int:
        utf8 = window.encode("utf-8")
        return len(utf8[: slicing.last_cut(utf8, pattern, special_tokens)].decode("utf-8"))

    return last_cut


class Encoder:
    """Encode in Python, with the methods of the encoder in C."""

    engine_name: bpe.EngineName = "python"
    in_c = False  # read by encode_files() and the command line's summary
    most_threads = 1  # more would only fight for Python's lock
    long_text = math.inf  # no text is encoded in parts

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.id_of_byte = {byte[0]: tokenizer.ids[byte] for byte in bpe.BYTES if byte in tokenizer.ids}
        self.ranks = {(left, right): rank for rank, (left, right, _) in enumerate(tokenizer.merge_ids)}
        self.new_ids = [new_id for _, _, new_id in tokenizer.merge_ids]  # by rank
        self.cached = functools.lru_cache(maxsize=1 << 16)(self.encode_word)
        self.whole_word_ids = tokenizer.whole_word_ids
        self.special_ids = tokenizer.special_ids

    def __reduce__(self) -> tuple[object, ...]:
        return new_encoder, (self.tokenizer, self.engine_name)  # for worker processes, without the cache

    def encode(self, text: str) -> list[int]:
        """Encode text. Raises ValueError for a lone surrogate, or a byte without a token."""
        return self.encode_utf8(text.encode("utf-8"))

    def encode_utf8(self, utf8: bytes, left_out: list[int] | None = None) -> list[int]:
        """Encode text in UTF-8; encode_texts() explains left_out. Raises UnicodeDecodeError if it is invalid."""
        if len(self.id_of_byte) == 256:
            left_out = None  # there is nothing to count, so words can come from the cache

        ids: list[int] = []
        pieces = bpe.special_token_finder(self.tokenizer.special_tokens).split(utf8.decode("utf-8"))
        for number, piece in enumerate(pieces):
            if number % 2:  # a special token
                ids.append(self.special_ids[piece])
                continue
            for word in steps.find_words(piece, self.tokenizer.pattern):
                if left_out is not None:  # not from the cache, since bytes left out are counted each time they occur
                    ids += self.encode_bytes(word.encode("utf-8"), left_out)
                else:  # a long word rarely recurs
                    ids += self.cached(word) if len(word) <= 64 else self.encode_word(word)
        return ids

    def encode_word(self, word: str) -> tuple[int, ...]:
        """Encode one word. Raises ValueError if one of its bytes has no token."""
        return tuple(self.encode_bytes(word.encode("utf-8")))

    def encode_bytes(self, word: bytes, left_out: list[int] | None = None) -> list[int]:
        """Encode a word, which need not be UTF-8: with words=, extend() may be given the tokens of another model.

        The bytes before and after one that is left out may be merged.
        """
        if word in self.whole_word_ids:  # with ignore_merges, a word that is a token stays whole
            return [self.whole_word_ids[word]]
        ids = [self.id_of_byte[byte] for byte in word if byte in self.id_of_byte]
        if len(ids) < len(word):
            if left_out is None:
                unknown = next(byte for byte in word if byte not in self.id_of_byte)
                place = f"{bpe.BYTES[unknown]!r}, in {word.decode('utf-8', 'replace')[:40]!r}"
                raise ValueError(f"the vocabulary has no token for the byte {place}; errors='replace' leaves it out")
            left_out[0] += len(word) - len(ids)
        return bpe.merge_by_rank(ids, self.ranks, self.new_ids)

    def encode_texts(self, texts: Sequence[bytes], kind: str = "", left_out: list[int] | None = None) -> Any:
        """Encode texts as lists; with kind="u2" or "u4" (16 or 32 bits per id), as one array.

        An array is returned as (its bytes, ends): ends[i] is the number of ids up to the end of text i. A byte
        without a token is an error; with left_out=[0], it is left out, and left_out[0] counts it. A ValueError
        has the index of its text in the attribute `number`.
        """
        lists: list[list[int]] = []
        for number, utf8 in enumerate(texts):
            try:
                lists.append(self.encode_utf8(utf8, left_out))
            except ValueError as error:
                error.number = number  # type: ignore[attr-defined]
                raise
        if not kind:
            return lists
        ids = array("H" if kind == "u2" else "I", itertools.chain.from_iterable(lists))
        return ids.tobytes(), array("Q", itertools.accumulate(map(len, lists)))

    def pause_collector(self) -> Any:
        """Do nothing. The encoder in C pauses the garbage collector until the result is freed."""


class PreparingEncoder(Encoder):
    """Normalize text, and remove whitespace beside special tokens; `inner` encodes the result.

    Of Encoder, it uses only encode_texts(), for texts that have to be encoded in pieces, and __reduce__().
    """

    def __init__(self, tokenizer: Any, engine_name: bpe.EngineName) -> None:
        self.tokenizer = tokenizer
        self.special_ids = tokenizer.special_ids
        self.engine_name = engine_name
        form, self.steps = steps_of(tokenizer.pattern)
        normalized = tokenizer.normalized
        others = set(tokenizer.special_tokens).difference(normalized)
        overlap = any(supported.overlapping(normalized, others))
        whitespace = tokenizer.lstrip, tokenizer.rstrip
        self.normalizer = Normalizer(form, tokenizer.special_tokens, normalized, *whitespace, overlap)
        self.inner = self.encoder_with(tokenizer.special_tokens)
        self.in_c, self.most_threads, self.long_text = self.inner.in_c, self.inner.most_threads, self.inner.long_text
        self.ordinary: Any = None  # the same as `inner` without special tokens; rarely needed

    def encoder_with(self, special_tokens: Sequence[str]) -> Any:
        """Return an encoder of prepared text that knows these special tokens."""
        return new_encoder(self.tokenizer.with_only(special_tokens, self.steps), self.engine_name)

    def encode(self, text: str) -> list[int]:
        """Encode text; if `inner` is in C, the parts of a long one in threads."""
        if len(text) >= self.long_text:
            with contextlib.suppress(ValueError):  # raised below, with its place in the text
                return self.inner.encode_parts(text, last_cut_for(self.tokenizer), self.encode_texts)  # type: ignore[no-any-return]
        return self.encode_utf8(text.encode("utf-8"))

    def encode_utf8(self, utf8: bytes, left_out: list[int] | None = None) -> list[int]:
        """Do the same as the method of Encoder."""
        prepared = self.normalizer.normalized(utf8)
        if prepared is not None:  # None: it would have other special tokens than the text, so pieces are encoded
            return self.inner.encode_utf8(prepared, left_out)  # type: ignore[no-any-return]
        self.ordinary = self.ordinary or self.encoder_with(())
        ids: list[int] = []
        for number, piece in enumerate(self.normalizer.pieces_of(utf8.decode("utf-8"))):
            if number % 2:  # a special token
                ids.append(self.special_ids[piece])
            else:
                ids += self.ordinary.encode_utf8(piece.encode("utf-8"), left_out)
        return ids

    def encode_texts(self, texts: Sequence[bytes], kind: str = "", left_out: list[int] | None = None) -> Any:
        """Do the same as the method of Encoder, in one call of `inner` if possible."""
        with contextlib.suppress(UnicodeDecodeError):  # the method of Encoder raises it, with the number of its text
            prepared = list(map(self.normalizer.normalized, texts))
            if None not in prepared:
                return self.inner.encode_texts(prepared, kind, left_out)
        return super().encode_texts(texts, kind, left_out)

    def pause_collector(self) -> Any:
        """Pause the garbage collector if `inner` does."""
        return self.inner.pause_collector()
