"""GPT-2's two files, vocab.json and merges.txt, and merges as ids.

Gives: read_vocab(), merges_of_file(), read_merges(), for the two files; MergeIds, and find_merges(), which makes them
in C; IgnoredMerges, the merges of models with ignore_merges; tokens_at_once(), pairs_of() and merges_as_bytes(), which
turn names in files into tokens and merges; paused_collector(), for reading and writing any model.
Uses: choices, errors.
"""

from __future__ import annotations

import codecs
import contextlib
import gc
import itertools
import json
import operator
import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import bpe
from bpe_more import choices
from bpe_more.errors import require


def read_vocab(data: bytes, specials: Sequence[str]) -> tuple[dict[str, int], dict[int, bytes]]:
    """Return {name: id} and {id: token} of a vocab.json.

    The name of a special token is its text, even where the file has it in printable characters: "<a b>" for "<aĠb>".
    """
    names = dict(json.loads(data, object_pairs_hook=entries_once))
    for special in specials:
        name = special if special in names else bpe.to_printable(special.encode("utf-8"))
        if name in names:
            names[special] = names.pop(name)
    vocab = dict(zip(names.values(), tokens_at_once(names)))
    if len(vocab) < len(names):
        refuse_same_ids(names.items())
    vocab |= {names[special]: special.encode("utf-8") for special in specials if special in names}
    return names, vocab


def refuse_same_ids(ids: Iterable[tuple[str, int]]) -> None:
    """Raise ValueError if two names have the same id."""
    names: dict[int, str] = {}
    for name, token_id in ids:
        earlier = names.setdefault(token_id, name)
        require(earlier is name, "two tokens have the same id {}: {!r:.60} and {!r:.60}", token_id, earlier, name)


def entries_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the entries of an object of JSON. Raises ValueError if two have the same key."""
    entries = dict(pairs)
    if len(entries) < len(pairs):
        earlier: dict[str, Any] = {}
        for key, value in pairs:
            require(key not in earlier, "{!r:.60} is there twice, with {} and {}", key, earlier.get(key), value)
            earlier[key] = value
    return entries


def merges_of_file(text: str, names: Mapping[str, int], vocab: Mapping[int, bytes]) -> Any:
    """Return the merges of a merges.txt: MergeIds if C is built and nothing is wrong, else pairs of tokens.

    names is {name: id}, vocab {id: token}. Raises the errors of read_merges().
    """
    lines = re.sub("^#version.*", "", text).split("\n")
    merges = find_merges(names, list(filter(None, lines)))
    lefts, rights, new = merges.columns()
    # The ids are wrong if the special token "é" took the name of the byte E9: then the parts don't join to the token.
    # They aren't merges of bytes if a part is neither a byte nor made, like CLIP's "w</w>". In both cases,
    # read_merges() and Tokenizer check each merge, and raise the errors.
    token_of = vocab.__getitem__
    joined = map(operator.add, map(token_of, lefts), map(token_of, rights))
    begins_with_bytes = all(len(vocab[part]) == 1 for part in {*lefts, *rights}.difference(new))
    if merges and begins_with_bytes and [*joined] == [*map(token_of, new)]:
        return merges
    tokens = {name: vocab[token_id] for name, token_id in names.items()}
    return merges_as_bytes(read_merges(text, names), tokens)


def tokens_at_once(names: Collection[str]) -> list[bytes]:
    """Return the tokens of these names (see bpe.to_token), usually with one call for all of them."""
    try:
        data, _ = codecs.charmap_encode("".join(names), "strict", bpe.BYTE_OF)
    except UnicodeEncodeError:  # a name has other characters
        return [bpe.to_token(name) for name in names]
    ends = list(itertools.accumulate(map(len, names)))  # a character is a byte
    return [data[start:end] for start, end in zip([0, *ends], ends)]


def pairs_of(merges: Iterable[Any]) -> list[Any]:
    """Return merges as pairs of names. Older versions of tokenizers write "t h" for ["t", "h"]."""
    pairs = [pair.partition(" ")[::2] if isinstance(pair, str) else pair for pair in merges]
    for number, pair in enumerate(pairs):
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:  # faster than a call of require() for each pair
            raise ValueError(f"merge {number} (from 0) must be two tokens, not {pair!r:.99}")
    return pairs


def find_merges(ids: Mapping[str, int], merges: Sequence[Any]) -> MergeIds:
    """Return the ids of merges: pairs of names, or strings of two names with a space between; ids is {name: id}.

    The result is empty if C can't be used or a merge may be wrong; merges_as_bytes() and Tokenizer then raise errors.
    """
    engine, _ = choices.find_engine()
    if not engine or engine.only_learns:  # learning is all that bpe_fast.c can do
        return MergeIds()
    try:
        types = set(map(type, merges))
        if types <= {list, tuple} and set(map(len, merges)) == {2}:  # not "t h", but ["t", "h"]
            merges, types = list(map(" ".join, merges)), {str}
        is_clear = types == {str} and len(set(merges)) == len(merges)
        return MergeIds(engine.find_merges(ids, merges)) if is_clear else MergeIds()
    except (UnicodeEncodeError, TypeError, OverflowError):
        return MergeIds()


class MergeIds:
    """Merges as ids, (left, right, new) for each, in the order of ranks. Tokenizer takes these or pairs of tokens.

    They are in one array, since the garbage collector would look through tuples: `numbers` has the three ids of
    the first merge, then those of the second, and so on.
    """

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self.numbers = array("I", numbers)

    @classmethod
    def of(cls, pairs: Iterable[bpe.Pair], ids: Mapping[bytes, int]) -> MergeIds:
        """Return the ids of pairs of tokens. Raises KeyError for one that isn't in the vocabulary."""
        return cls(itertools.chain.from_iterable((ids[left], ids[right], ids[left + right]) for left, right in pairs))

    def columns(self) -> list[array[int]]:
        """Return the left ids, the right ids and the new ids of all merges."""
        return [self.numbers[part::3] for part in range(3)]

    def __len__(self) -> int:
        return len(self.numbers) // 3

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        numbers = iter(self.numbers)
        return zip(numbers, numbers, numbers)


class IgnoredMerges(list[bpe.Pair]):
    """Merges of a model with ignore_merges: a word that is a token stays whole, whatever the merges would do."""

    # from read_tiktoken(), which knows the ids: the vocabulary, the merges, and these as ids
    as_read: tuple[Mapping[int, bytes], list[bpe.Pair], MergeIds] = {}, [], MergeIds()

    def as_ids(self, vocab: Mapping[int, bytes]) -> MergeIds | IgnoredMerges:
        """Return these merges as ids if the caller has changed neither them nor the vocabulary, else themselves."""
        vocab_then, merges_then, merge_ids = self.as_read
        return merge_ids if merges_then == self and vocab_then == vocab else self


def merges_as_bytes(pairs: Sequence[Sequence[str]], tokens: Mapping[str, bytes]) -> list[bpe.Pair]:
    """Return merges as pairs of tokens, for pairs of their names: tokens is {name: token}."""
    try:
        return [(tokens[left], tokens[right]) for left, right in pairs]
    except KeyError as error:
        raise ValueError(f"a merge uses {error!s:.99}, which is not in the vocabulary") from None


def read_merges(text: str, vocab: Mapping[str, int] | None = None) -> list[list[str]]:
    """Return the pairs of printable tokens in a merges.txt; vocab, if given, must have them."""
    require(text.strip(), "the file is empty")
    lines = re.sub("^#version.*", "", text).split("\n")  # ^ is only the beginning of the text
    pairs = {number: line.split(" ") for number, line in enumerate(lines, 1) if line}
    made = set(map("".join, pairs.values()))
    for number, pair in pairs.items():
        if len(pair) != 2:
            raise ValueError(f"line {number} must be two tokens separated by one space: {' '.join(pair)!r}")
        if vocab is None:
            continue
        for token in (*pair, "".join(pair)):
            if token not in vocab:
                raise ValueError(f"line {number}: {token!r} is not in vocab.json")
            if token not in made and len(bpe.to_token(token)) > 1:
                hint = "these are not merges of bytes (CLIP's have </w> at the end of words, others @@ inside)"
                raise ValueError(f"line {number}: no merge makes {token!r}; {hint}")
    return list(pairs.values())


@contextlib.contextmanager
def paused_collector() -> Iterator[None]:
    """Pause the garbage collector, which would look through all tokens and merges again and again as they are made."""
    was_on = gc.isenabled()
    try:
        if was_on:  # a thread that finds it off must not pause it: it may be on again by now, and would stay off
            gc.disable()
        yield
    finally:
        if was_on:
            gc.enable()
