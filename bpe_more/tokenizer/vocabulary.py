"""The tokens, merges and special tokens of a model, checked; and decoding.

Two ids may have the same bytes: then the special token has the second id (see the docstring of Tokenizer).

Gives: Vocabulary, the part of Tokenizer that doesn't encode; ids_of(), without_second_ids().
Uses: choices, errors, formats.gpt2, patterns.steps.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
import itertools
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import bpe
from bpe_more import choices
from bpe_more.errors import require, warn
from bpe_more.formats.gpt2 import IgnoredMerges, MergeIds
from bpe_more.patterns import steps
from bpe_more.patterns.steps import Pattern, SpecialTokens

Merges = Iterable[bpe.Pair] | MergeIds


def ids_of(vocab: Mapping[int, bytes]) -> dict[bytes, int]:
    """Return {token: id}, as bpe.ids_of() does. For {name: id}, as vocab.json has it, the error names from_files."""
    try:
        return bpe.ids_of(vocab)
    except ValueError as error:
        hint = "" if all(isinstance(token, bytes) for token in vocab.values()) else "; for files, use from_files"
        raise ValueError(f"{error}{hint}") from None


def without_second_ids(vocab: Mapping[int, bytes], special_tokens: Sequence[str],
                       unreachable: Collection[int]) -> tuple[Mapping[int, bytes], dict[str, int]]:
    """Return a vocabulary without second ids and without unreachable tokens, and {special token: second id}.

    A second id is that of a special token with the bytes of an earlier token.
    """
    if not unreachable and (not special_tokens or len(set(vocab.values())) == len(vocab)):
        return vocab, {}
    texts = {special.encode("utf-8"): special for special in special_tokens}
    first: dict[int, bytes] = {}
    second_ids: dict[str, int] = {}
    seen: set[bytes] = set()
    for token_id, token in vocab.items():
        if token_id in unreachable:
            continue
        if token in seen and token in texts and texts[token] not in second_ids:
            second_ids[texts[token]] = token_id
        else:
            first[token_id] = token  # also a third id, which ids_of() refuses
        seen.add(token)
    return first, second_ids


class Vocabulary:
    """The vocabulary of a Tokenizer, whose docstring explains the arguments."""

    def __init__(self, vocab: Mapping[int, bytes], merges: Merges, special_tokens: bpe.Strings = None,
                 pattern: Any = "gpt2", kept: Iterable[str] = (), normalized: Iterable[str] = (),
                 rest: Mapping[str, Any] | None = None, ignore_merges: bool = False,
                 unreachable: Mapping[int, str] | None = None, lstrip: Iterable[str] = (),
                 rstrip: Iterable[str] = (), shared: Mapping[int, str] | None = None) -> None:
        self.unreachable = {token_id: name for token_id, name in (unreachable or {}).items() if token_id in vocab}
        self.kept, self.normalized = steps.check_special_tokens(kept), steps.check_special_tokens(normalized)
        self.lstrip, self.rstrip = steps.check_special_tokens(lstrip), steps.check_special_tokens(rstrip)
        self.rest = dict(rest or {})
        self.shared = {token_id: special for token_id, special in (shared or {}).items() if token_id in vocab}
        self._ignore_merges = ignore_merges or isinstance(merges, IgnoredMerges)
        specials = SpecialTokens(steps.check_special_tokens(special_tokens))
        specials.normalized, specials.lstrip, specials.rstrip = self.normalized, self.lstrip, self.rstrip
        self.options = choices.Options(specials, pattern).checked()
        self._ids: dict[bytes, int]  # of tokens by their bytes: the first id, and none of unreachable tokens
        self._vocab: dict[int, bytes]  # all tokens
        self._special_ids: dict[str, int]
        self.set_ids(vocab)
        self.merge_ids = self.find_merge_ids(merges.as_ids(vocab) if isinstance(merges, IgnoredMerges) else merges)
        self.check_made_tokens()
        self.whole_word_ids = self.whole_words() if self._ignore_merges else {}
        # Made when they are first needed. (Not with cached_property: until Python 3.12 it has a lock, and a process
        # forked while another thread holds it waits forever.)
        self._made_encoder: Any = None
        self._made_ordinary: Any = None
        if not self._ignore_merges and not isinstance(merges, (tuple, MergeIds)):
            self.warn_of_unmade()

    def set_ids(self, vocab: Mapping[int, bytes]) -> None:
        """Find the ids of all tokens. Special tokens that have none get the ids after the greatest one."""
        shared_ids = {special: token_id for token_id, special in self.shared.items()}
        others = [special for special in self.special_tokens if special not in shared_ids]
        first, second_ids = without_second_ids(vocab, others, self.unreachable)
        self._ids = ids_of(first)
        self._vocab = {token_id: token for token, token_id in self._ids.items()}
        self._vocab |= {token_id: special.encode("utf-8") for special, token_id in second_ids.items()}
        self._vocab |= {token_id: name.encode("utf-8") for token_id, name in self.unreachable.items()}
        given_ids = shared_ids | second_ids
        free_ids = itertools.count(max(self._vocab, default=-1) + 1)
        self._special_ids = {}
        for special in self.special_tokens:
            token = special.encode("utf-8")
            if special not in given_ids and token not in self._ids:
                new_id = next(free_ids)
                require(new_id <= bpe.MAX_ID, "no id is left for {!r}: the greatest id is {}", special, bpe.MAX_ID)
                self._ids[token] = new_id
                self._vocab[new_id] = token
            self._special_ids[special] = given_ids[special] if special in given_ids else self._ids[token]

    def find_merge_ids(self, merges: Merges) -> MergeIds:
        """Return merges as ids. Raises ValueError for unknown tokens and repeated merges."""
        if isinstance(merges, MergeIds):
            return merges
        pairs = [(left, right) for left, right in merges]
        try:
            merge_ids = MergeIds.of(pairs, self._ids)
        except KeyError as error:
            raise ValueError(f"a merge uses or creates {error}, which is not in the vocabulary") from None
        if len(set(pairs)) < len(pairs):
            seen: set[bpe.Pair] = set()
            for number, pair in enumerate(pairs):
                require(pair not in seen, "merge {} (from 0), {}, repeats an earlier one", number, pair)
                seen.add(pair)
        return merge_ids

    def check_made_tokens(self) -> None:
        """Refuse merges that make special tokens, unless these are shared."""
        _, _, new_ids = self.merge_ids.columns()
        made = set(self._special_ids.values()).intersection(new_ids).difference(self.shared)
        wrong = [special for special, token_id in self._special_ids.items() if token_id in made]
        way = "leave them out of the vocabulary (or the .tiktoken file), and pass them as special tokens only"
        require(not wrong, f"merges make {bpe.plural(len(wrong), 'special token')}, too: {wrong!s:.99}; {way}")

    def whole_words(self) -> dict[bytes, int]:
        """Return the words that stay whole with ignore_merges, and their ids: all tokens but the special ones.

        ignore_merges is set by formats/huggingface.py (the flag in tokenizer.json) and formats/tiktoken.py (always, by
        IgnoredMerges), written by formats/saving.py, and followed by encoders.py in Python, by engine/encoder.py and
        bpe_encode.c in C; changes.py passes it on.
        """
        words = self._ids.copy()
        words.pop(b"", None)  # the empty token, which Whisper has, isn't a word
        for token_id in set(self._special_ids.values()).difference(self.shared):
            if self._ids.get(self._vocab[token_id]) == token_id:
                del words[self._vocab[token_id]]
        return words

    # The parts of a tokenizer are read-only.

    @property
    def vocab(self) -> Mapping[int, bytes]:
        """The vocabulary: {token id: token}."""
        return types.MappingProxyType(self._vocab)

    @property
    def ids(self) -> Mapping[bytes, int]:
        """The vocabulary the other way round: {token: token id}."""
        return types.MappingProxyType(self._ids)

    @property
    def special_ids(self) -> dict[str, int]:
        """The ids of the special tokens, in a new dict."""
        return self._special_ids.copy()

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """The special tokens, in the order given."""
        return tuple(self.options.special_tokens)

    @property
    def pattern(self) -> Pattern:
        """The pattern: a name, an expression, or a tuple of steps."""
        return self.options.pattern

    def __len__(self) -> int:
        return len(self._vocab)

    def __repr__(self) -> str:
        specials = bpe.plural(len(self.special_tokens), "special token")
        return f"{type(self).__name__}({len(self):,} tokens, pattern {self.pattern!r}, {specials})"

    def warn_of_unmade(self) -> None:
        """Warn if tokens of several bytes are neither made by a merge nor special."""
        _, _, new_ids = self.merge_ids.columns()
        known = {*new_ids, *self._special_ids.values()}
        others = [token for token, token_id in self._ids.items() if len(token) > 1 and token_id not in known]
        if others:
            tokens = bpe.plural(len(others), "token")
            text = f"encode() can't give {tokens} that no merge makes, such as {others[0]!r:.60}"
            ways = "special tokens are passed as special_tokens, ranks of tiktoken through read_tiktoken"
            warn(f"{text}; {ways}")

    @property
    def merges(self) -> list[bpe.Pair]:
        """A new list of the merges, in the order of their ranks."""
        return (IgnoredMerges if self._ignore_merges else list)(
            (self._vocab[left], self._vocab[right]) for left, right, _ in self.merge_ids
        )

    @property
    def ignore_merges(self) -> bool:
        """Whether a word that is a token stays whole."""
        return self._ignore_merges

    def __reduce__(self) -> tuple[object, ...]:
        kind = functools.partial(type(self), **self.settings())
        return kind, (self._vocab, tuple(self.merges), self.special_tokens, self.pattern)

    def settings(self) -> dict[str, Any]:
        """Return {name: value} of the arguments that only models of other programs need, if they aren't empty."""
        values = {
            "kept": self.kept, "normalized": self.normalized, "rest": self.rest,
            "ignore_merges": self._ignore_merges, "unreachable": self.unreachable,
            "lstrip": self.lstrip, "rstrip": self.rstrip, "shared": self.shared,
        }  # fmt: skip
        return {name: value for name, value in values.items() if value}

    @property
    def id_bytes(self) -> int:
        """The size of an id in an array: 2 bytes if that is enough for the whole vocabulary, else 4."""
        return 2 if max(self._vocab, default=0) < 1 << 16 else 4

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = False) -> str:
        """Decode token ids to text; bytes that are not UTF-8 become U+FFFD."""
        data = b"".join(self._tokens(ids, True)) if skip_special_tokens else self.decode_bytes(ids)
        return data.decode("utf-8", "replace")

    def decode_iterable(self, ids: Iterable[int], skip_special_tokens: bool = False) -> Iterator[str]:
        """Decode ids as they come: a token with half of an "é" waits for the other half.

        Joined, the texts are decode(ids).
        """
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for token in self._tokens(ids, skip_special_tokens):
            if text := decoder.decode(token):
                yield text
        if text := decoder.decode(b"", final=True):
            yield text

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Decode token ids to bytes. Raises ValueError for an id that is not in the vocabulary."""
        if isinstance(ids, Sequence) and set(map(type, ids)) <= {int}:  # faster; _tokens() raises the error
            with contextlib.suppress(KeyError, TypeError):
                return b"".join(map(self._vocab.__getitem__, ids))
        return b"".join(self._tokens(ids))

    def _tokens(self, ids: Iterable[int], skip_special_tokens: bool = False) -> Iterator[bytes]:
        """Yield the token of each id, and b"" for special tokens that are skipped."""
        specials = set(self._special_ids).difference(self.kept) if skip_special_tokens else ()
        skipped = set(map(self._special_ids.__getitem__, specials))
        if not isinstance(ids, Iterable):
            raise TypeError(f"ids must be an iterable of token ids, not {ids!r:.60}")
        for number, token_id in enumerate(ids):
            try:
                token = self._vocab[token_id]
            except (KeyError, TypeError):
                token = None
            if token is None or not bpe.is_integer(token_id):
                import numbers

                # a number in a tensor has another hash than an integer, and a row of an array has none
                is_array = hasattr(token_id, "tolist") and not isinstance(token_id, numbers.Integral)
                way = "; pass integers, as ids.tolist() gives them" if is_array else ""
                raise ValueError(f"unknown token id {token_id!r:.60} at index {number}{way}")
            yield b"" if token_id in skipped else token
