#!/usr/bin/env python3
# /// script
# requires-python = ">=3.10"
# dependencies = ["regex"]
# ///
r"""Byte-pair encoding: learn a vocabulary of tokens from text, and encode text as token ids.

    python bpe.py corpus.txt 10000        trains, and saves the model in the folder bpeModel

Training, in six lines:

    1. Split the text into words, and count how often each one occurs.
    2. Write every word as a sequence of tokens; at first, each token is one byte.
    3. Count how often each pair of adjacent tokens occurs.
    4. Merge the most frequent pair into a new token, wherever it occurs.
    5. Repeat from 3 until the vocabulary has the requested size.
    6. The merges, in the order in which they were made, are the tokenizer.

To encode text, split it into words and replay the merges on each word, in the same order.

When two pairs have the same count, the greater pair wins, in lexicographic order: the left tokens
are compared first, byte by byte, then the right ones. (b"s", b"t") wins over (b"e", b"s"), because
b"s" > b"e". Two things to get right:

    - A pair is counted at every position, even if positions overlap. In "aaaa" the pair a a counts
      three times; but replacing goes from left to right without overlap, so "aaaa" becomes aa aa.
    - Pairs are compared, not the tokens that they would make. On a tie (b"ab", b"a") beats
      (b"a", b"bz"), because b"ab" > b"a", although b"aba" < b"abz".

Glossary, with values from the example below (but for the last row, which is not in it):

    word, pre-token  b" newest"       a piece of text, split by a pattern; no token crosses its ends
    token            b"est"           a sequence of bytes that has an id in the vocabulary
    token id         257              its number: bytes come first, then special tokens, then merges
    pair             (101, 256)       two adjacent tokens, or their ids
    merge            (b"e", b"st")    a pair that became a token
    rank             1                the position of a merge in the list of merges, from 0
    count            9                how often a pair, or a word, occurs in the whole corpus
    special token    "<|endoftext|>"  text that is never split and never learned; the text before it
                                      and the text after it are separate texts

>>> words = words_of("low low low low low lower lower widest widest widest" + 6 * " newest")
>>> for left, right in train_by_definition(words, 4):
...     print(left, right)
b's' b't'
b'e' b'st'
b'o' b'w'
b'l' b'ow'

Sources: P. Gage, "A New Algorithm for Data Compression", C Users Journal 12(2), 1994; R. Sennrich,
B. Haddow and A. Birch, "Neural Machine Translation of Rare Words with Subword Units", ACL 2016; and
for bytes, A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.

The parts of this file:

    I     The lesson            what byte-pair encoding is, in six functions
    II    The same, fast        an index and a heap for training, ranks for encoding
    III   On characters         as first used for language
    IV    Words                 patterns, special tokens, and where text may be cut
    V     Options               what a user can choose, and how it is checked
    VI    Training              train_bpe and its two halves
    VII   The tokenizer         the class Tokenizer: encoding and decoding
    VIII  Files of a model      our files, then the files of other programs
    IX    Large corpora         files and streams in slices, for all cores
    X     The C engine          how it is found, and its interface
    XI    The command line
"""

from __future__ import annotations

# Modules that few runs need are imported in functions.
import base64
import codecs
import collections
import contextlib
import dataclasses
import errno
import functools
import heapq
import importlib.util
import itertools
import json
import linecache
import operator
import os
import pathlib
import re
import signal
import stat
import sys
import threading
import time
import types
import warnings
from array import array
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, Literal, NamedTuple, Protocol, TypeVar, get_args
from unicodedata import normalize

if sys.version_info < (3, 10):
    sys.exit("bpe.py requires Python 3.10 or later; this is " + sys.version.split()[0])
if __name__ == "__main__" and not importlib.util.find_spec("regex"):
    sys.exit("bpe.py requires the package regex: pip install regex")
import regex

if TYPE_CHECKING:
    import concurrent.futures
    from argparse import ArgumentParser, Namespace

__all__ = [
    "Tokenizer", "count_words", "learn_characters", "read_tiktoken", "segment", "train_bpe", "train_from_counts",
]  # fmt: skip

__version__ = "0.7.0"

Word = tuple[bytes, ...]
Pair = tuple[bytes, bytes]
FilePath = str | os.PathLike[str]
Paths = FilePath | Iterable[FilePath] | None
Strings = Iterable[str] | None  # texts, or special tokens
Counts = Mapping[bytes, int]  # of words
Pattern = str | tuple[str, ...]  # one, or several steps
Model = tuple[dict[int, bytes], list[Pair]]  # (vocab, merges)
Learned = tuple[bytes, bytes, int, int]  # (left, right, count of the pair, replacements made)
T = TypeVar("T")
Token = TypeVar("Token", bytes, str)


# ------------------------------
# I. The lesson: what byte-pair encoding is
# ------------------------------

# Text is split into words first, and no token crosses the ends of a word. Without that, the most
# frequent pairs would soon make pieces of phrases and punctuation ("e t", "in the", "dog."), and
# each would take up an id.
#
# This is the pattern of GPT-2. A word includes the space before it, and no character is lost. Of ten
# spaces before "the", `\s+(?!\S)` takes nine and leaves the last one to the word, which is " the", as
# after one space. The last `\s+` takes other whitespace, such as "\n" before "the", as a word of its
# own.
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def single_bytes(word: bytes) -> Word:
    """Write a word as a sequence of tokens of one byte: single_bytes(b"hi") is (b"h", b"i")."""
    return tuple(bytes([byte]) for byte in word)


def words_of(text: str) -> dict[Word, int]:
    """Split text into words; return each distinct word, in single bytes, with its count.

    >>> words_of("hi hi hi")
    {(b'h', b'i'): 1, (b' ', b'h', b'i'): 2}
    """
    words = collections.Counter(regex.findall(GPT2, text))
    return {single_bytes(word.encode("utf-8")): count for word, count in words.items()}


def count_pairs(words: Mapping[Word, int]) -> dict[Pair, int]:
    """Count each pair of adjacent tokens in all words; every position counts, even if two overlap.

    >>> count_pairs({(b"a", b"a", b"a", b"a"): 1, (b"a", b"b"): 5})
    {(b'a', b'a'): 3, (b'a', b'b'): 5}
    """
    counts: dict[Pair, int] = collections.defaultdict(int)
    for word, count in words.items():
        for pair in zip(word, word[1:]):
            counts[pair] += count
    return dict(counts)


def merge_pair(word: Word, pair: Pair) -> Word:
    """Replace a pair by its concatenation, from left to right, without overlap.

    >>> merge_pair((b"a", b"a", b"a", b"b"), (b"a", b"a"))
    (b'aa', b'a', b'b')
    """
    merged = []
    at = 0
    while at < len(word):
        if word[at : at + 2] == pair:
            merged.append(word[at] + word[at + 1])
            at += 2
        else:
            merged.append(word[at])
            at += 1
    return tuple(merged)


def train_by_definition(words: Mapping[Word, int], merges_wanted: int) -> list[Pair]:
    """Learn merges: count every pair, merge the best one everywhere, and repeat.

    Training ends early when no pair is left, because every word is a single token by then.
    """
    merges: list[Pair] = []
    while len(merges) < merges_wanted and (counts := count_pairs(words)):
        # The tie rule: of equal counts, the greater pair. Tuples compare left first, then right.
        best = max(counts, key=lambda pair: (counts[pair], pair))
        # Different words stay different keys, since a merge keeps their bytes: no count is overwritten.
        words = {merge_pair(word, best): count for word, count in words.items()}
        merges.append(best)
    return merges


def encode_by_definition(word: Word, merges: Iterable[Pair]) -> Word:
    """Encode a word: replay the merges in the order in which they were learned.

    Below, the first merge joins b and c, so a stays alone. Always taking the longest token that fits,
    from the left, would give ab c d: a different encoding, which never occurred in training.

    >>> encode_by_definition((b"a", b"b", b"c", b"d"), [(b"b", b"c"), (b"a", b"b"), (b"bc", b"d")])
    (b'a', b'bcd')
    """
    for pair in merges:
        word = merge_pair(word, pair)
    return word


# That is all. Token ids only number the tokens: 0..255 are the single bytes, then the special
# tokens, then one id per merge, so with two special tokens the third merge, of rank 2, makes token
# 256 + 2 + 2 = 260. Since every byte is a token, any text can be encoded; and since a token is
# nothing but bytes, decoding is b"".join.
#
# The rest of this file does the same for real corpora, and fast.


# ------------------------------
# II. The same, fast
# ------------------------------

# For fixtures/corpus.txt and a vocabulary of 500, train_by_definition takes 6 s, learn_merges
# 0.1 s, and the same in C (bpe_fast.c) 0.003 s.


def descending(token: bytes) -> str:
    """Return a sort key that puts greater tokens first: b"st" before b"s", b"s" before b"es".

    On a tie the greatest wins, but heapq pops the smallest first, so each byte is subtracted from 255.
    chr(256), greater than any of these, ends the key, so that b"s" comes after b"st".
    """
    return "".join(chr(255 - byte) for byte in token) + chr(256)


def learn_merges(words: Iterable[str], counts: Sequence[int], tokens: Iterable[bytes]) -> Iterator[Learned]:
    """Yield (left, right, count, replaced) for each merge, best first, until no pair is left.

    words   each a str in a private alphabet, where chr(i) stands for tokens[i]: if these are the 256
            bytes, b"hi" is the str "hi". So a pair is a str of length 2, and a merge in one word is
            word.replace(pair, new)
    counts  how often each word occurs
    tokens  the first tokens, such as the 256 bytes; each merge appends one to a copy

    replaced is the number of replacements: fewer than count if the pair overlaps itself, as in "aaa".

    Pairs are counted once, before the loop. After that, a merge changes only the counts of its pair, of
    pairs that overlapped it, and of new pairs. An index says which words may contain a pair, and a heap
    finds the best pair.

    An entry of the heap may be out of date without harm, because the count of a pair never rises. When
    `a b` becomes X in `a b c`, the old pair `b c` loses an occurrence, and the pair that gains one,
    `X c`, is new. So an entry can come up too early, but not too late. The words here are abc and ab,
    three times each, bc once, and cd twice:

        a b 6, b c 4, c d 2    a b is merged. `b c` now occurs once, but its entry says 4
        b c 4, X c 3, c d 2    b c comes up too early, and goes back with its count, 1
        X c 3, c d 2, b c 1    X c has the right count, so it is merged
    """
    words = list(words)
    tokens = list(tokens)
    keys = list(map(descending, tokens))
    pair_counts: dict[str, int] = collections.defaultdict(int)
    words_with: dict[str, set[int]] = collections.defaultdict(set)  # pair -> indexes of words
    for index, word in enumerate(words):
        for pair in map(operator.add, word, word[1:]):
            pair_counts[pair] += counts[index]
            words_with[pair].add(index)

    def heap_entry(pair: str) -> tuple[int, str, str, str]:
        # In the order of the tie rule. Training makes no token twice (see check_merges), so no two pairs
        # have the same two keys, and the last field is never compared.
        return -pair_counts[pair], keys[ord(pair[0])], keys[ord(pair[1])], pair

    heap = list(map(heap_entry, pair_counts))
    heapq.heapify(heap)
    while heap:
        negative_count, _, _, pair = heapq.heappop(heap)
        count = pair_counts.get(pair, 0)  # 0: an earlier round deleted it, but not its entry
        if count != -negative_count:
            if count:
                heapq.heappush(heap, heap_entry(pair))
            continue

        left, right = tokens[ord(pair[0])], tokens[ord(pair[1])]
        new = chr(len(tokens))
        tokens.append(left + right)
        keys.append(descending(left + right))

        changes, replaced = merge_in_words(words, counts, words_with, pair, new)
        for changed_pair, change in changes.items():
            pair_counts[changed_pair] += change
            if new in changed_pair:
                heapq.heappush(heap, heap_entry(changed_pair))
            elif not pair_counts[changed_pair]:
                del pair_counts[changed_pair], words_with[changed_pair]
        yield left, right, count, replaced


def merge_in_words(words: list[str], counts: Sequence[int], words_with: dict[str, set[int]],
                   pair: str, new: str) -> tuple[dict[str, int], int]:
    """Replace a pair by the new token in all words; return (changes of pairs' counts, replaced).

    Each new token changes the pair on its left and the one on its right. The pair of two adjacent new
    tokens is counted once, at the left one. Here `b c` becomes X in the word `a b c b c d`, which
    occurs once:

        first X    on its left, `a b` (-1) became `a X` (+1); on its right, `c b` (-1) became `X X` (+1)
        second X   its left is counted already; on its right, `c d` (-1) became `X d` (+1)
        result     a X X d

    The index may still name words that have lost the pair to other merges: nothing is replaced there.
    """
    left, right = pair[0], pair[1]
    changes: dict[str, int] = collections.defaultdict(int)
    replaced = 0
    for index in words_with[pair]:
        word, count = words[index].replace(pair, new), counts[index]
        replaced += (len(words[index]) - len(word)) * count
        words[index] = word

        at = word.find(new)
        while at >= 0:
            if at > 0 and word[at - 1] != new:
                before = word[at - 1]
                changes[before + left] -= count
                changes[before + new] += count
                words_with[before + new].add(index)
            if at + 1 < len(word):
                after = word[at + 1]
                # two new tokens side by side: before the merge, the second one began with `left`
                old_after = left if after == new else after
                changes[right + old_after] -= count
                changes[new + after] += count
                words_with[new + after].add(index)
            at = word.find(new, at + 1)

    # The loop subtracted neighbors, such as the second `a a` of `a a a`, which became `X a`. This
    # subtracts the pairs that were replaced.
    changes[pair] -= replaced
    return changes, replaced


def merge_by_rank(word: Iterable[T], ranks: Mapping[Any, int], new_tokens: Sequence[T]) -> list[T]:
    """Merge the pair of lowest rank, the leftmost of equal ones, until no pair has a rank.

    new_tokens[rank] is what the merge of that rank makes.

    >>> merge_by_rank(["n", "e", "w", "e", "s", "t"], {("s", "t"): 0, ("e", "st"): 1}, ["st", "est"])
    ['n', 'e', 'w', 'est']

    This is fast encoding: it looks up the pairs of the word instead of trying 50,000 merges. It is the
    same as replaying the merges if check_merges, below, accepts them: then no merge makes a token that
    a merge of lower rank uses. So a new token only forms pairs of higher rank, and ranks come up in
    ascending order, as in replaying.

    A heap of (rank, index) finds the next pair, so n tokens take n log n steps. A token that was
    merged into the one before it becomes None; links lead from each remaining token to its
    neighbors. An entry of the heap is out of date if its two tokens no longer have its rank.
    """
    tokens: list[T | None] = list(word)
    following = list(range(1, len(tokens) + 1))
    previous = list(range(-1, len(tokens) - 1))
    heap = [(ranks[pair], index) for index, pair in enumerate(zip(tokens, tokens[1:])) if pair in ranks]
    heapq.heapify(heap)
    while heap:
        rank, left = heapq.heappop(heap)
        right = following[left]
        if right == len(tokens) or ranks.get((tokens[left], tokens[right])) != rank:
            continue  # out of date; a pair with None has no rank

        tokens[left], tokens[right] = new_tokens[rank], None
        following[left] = after = following[right]
        if after < len(tokens):
            previous[after] = left
            if (pair := (tokens[left], tokens[after])) in ranks:
                heapq.heappush(heap, (ranks[pair], left))
        before = previous[left]
        if before >= 0 and (pair := (tokens[before], tokens[left])) in ranks:
            heapq.heappush(heap, (ranks[pair], before))
    return [token for token in tokens if token is not None]


def encode_words(words: Iterable[Iterable[Token]],
                 merges: Iterable[tuple[Token, Token]]) -> Iterator[tuple[Token, ...]]:
    """Yield each word, which is a sequence of tokens (bytes or str), after all merges."""
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    new_tokens = [left + right for left, right in ranks]  # `merges`, if an iterator, is used up by now
    for word in words:
        yield tuple(merge_by_rank(word, ranks, new_tokens))


def check_merges(merges: Iterable[tuple[T, T, T]]) -> None:
    """Check that merging by rank equals replaying, for merges (left, right, the token that they make).

    An example of merges for which it does not:

        merges      (ab, c), then (a, b)
        replaying   a b c -> ab c     the first merge finds no ab, and its turn is over
        by rank     a b c -> abc      when a and b have become ab, the pair ab c has a rank

    Raises ValueError for the first merge that repeats an earlier one, or makes a token that an earlier
    one uses. Training gives no such merges. It uses a token only after making it, and makes each token
    only once: where the bytes est became one token, no merge crossed their ends, so everywhere the same
    merges were made of them, the last one included. (Other programs may make a token from two pairs,
    which is accepted.)

    Tokenizer merges by rank, as other programs do, even if a merge makes a token that an earlier one
    uses. Many .tiktoken files give such merges: they list only tokens, and every split of a token into
    two tokens is a merge.
    """
    pairs: set[tuple[T, T]] = set()
    used: set[T] = set()
    for number, (left, right, made) in enumerate(merges):
        pair = (left, right)
        if pair in pairs or made in used:
            raise ValueError(f"merge {number} (from 0), {pair}, repeats an earlier one or makes a token that one uses")
        pairs.add(pair)
        used.add(left)
        used.add(right)


# ------------------------------
# III. The same on characters
# ------------------------------

# BPE as it was first used for language (Sennrich et al. 2016), and as in the package subword-nmt.
# Part II does most of the work. Words are separated by spaces, and made of characters, not bytes. The
# last character of a word carries a marker, so the whole word "low" and "low" in "lower" differ.

END_OF_WORD = "</w>"


def split_at_spaces(text: str) -> list[str]:
    r"""Split at spaces and \n, and trim \r: "low  low\r\nlower" -> ["low", "low", "lower"]."""
    return [word for line in text.split("\n") for word in line.strip("\r ").split(" ") if word]


def spell(word: str) -> list[str]:
    """Spell a word in characters: spell("low") -> ["l", "o", "w</w>"]."""
    require(END_OF_WORD not in word, "the word {!r} contains {!r}, the marker for the end of a word", word, END_OF_WORD)
    return [*word[:-1], word[-1] + END_OF_WORD]


def learn_characters(words: Mapping[str, int], merges_wanted: int) -> list[tuple[str, str]]:
    """Learn merges of characters from words and their counts.

    >>> learn_characters(collections.Counter(split_at_spaces("low low lower")), 3)
    [('l', 'o'), ('lo', 'w</w>'), ('w', 'e')]
    """
    require(merges_wanted >= 0, f"merges_wanted must not be negative: {merges_wanted}")
    for word, count in words.items():
        require(operator.index(count) >= 0, "counts must not be negative: {!r:.60} has {}", word, count)
    words = {word: count for word, count in words.items() if word and count}
    spelled = [spell(word) for word in words]
    alphabet = sorted({character for word in spelled for character in word})
    ids = {character: chr(number) for number, character in enumerate(alphabet)}
    numbered = ["".join(ids[character] for character in word) for word in spelled]

    tokens = [character.encode("utf-8") for character in alphabet]  # bytes sort as the characters do
    counts = list(map(operator.index, words.values()))  # sums of numpy's integers would wrap around
    merges = itertools.islice(learn_merges(numbered, counts, tokens), merges_wanted)
    return [(left.decode("utf-8"), right.decode("utf-8")) for left, right, _, _ in merges]


def segment(sentence: str, merges: Iterable[tuple[str, str]]) -> list[str]:
    """Split a sentence into the tokens of merges that learn_characters made.

    >>> segment("low low lowest", [("l", "o"), ("lo", "w</w>"), ("lo", "w")])
    ['low</w>', 'low</w>', 'low', 'e', 's', 't</w>']
    """
    merges = [(left, right) for left, right in merges]  # tuples, even from JSON
    check_merges((left, right, left + right) for left, right in merges)
    words = map(spell, split_at_spaces(sentence))
    return [token for word in encode_words(words, merges) for token in word]


# ------------------------------
# IV. Words: patterns, special tokens, and where text may be cut
# ------------------------------

# The named patterns. Each one
#   - matches all of any text, and never the empty string: its matches are the words
#   - has no capturing groups, which findall would return instead of the words
#   - ends a word where WORD_END, below, matches
PATTERNS = {
    "gpt2": GPT2,
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s+(?![\s\S])|\s*[\r\n]|\s+(?!\S)|\s",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
PATTERNS["qwen2"] = PATTERNS["llama3"].replace("{1,3}", "")  # here each digit is a word

# Other spellings, with the same matches. tokenizer.json has GPT-2's as it was published, which some
# programs recognize. tiktoken has cl100k with possessive quantifiers (?+, ++, *+), which never give a
# character back, and with $. Other programs read these differently, so our files have neither.
JSON_PATTERNS = PATTERNS | {"gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"}
TIKTOKEN_CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
TIKTOKEN_CL100K += r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
SPELLINGS = {expression: name for name, expression in [*PATTERNS.items(), *JSON_PATTERNS.items()]}
# tiktoken's, and the same with {1,3} instead of {1,3}+, as we wrote it before version 0.5.0
SPELLINGS |= {TIKTOKEN_CL100K: "cl100k", TIKTOKEN_CL100K.replace("{1,3}+", "{1,3}"): "cl100k"}


# Models of other programs may split text in several steps, and normalize it first: such a pattern is a
# tuple. Each step splits the words of the one before: in (r"\p{N}{1,3}", "gpt2"), the first
# step splits off numbers, and "gpt2" splits the rest. ("NFC", "qwen2") is Qwen's.
NORMAL_FORMS = ("NFC", "NFKC")
ONLY_MATCHES = "(?#only matches)"  # begins a step that drops the text between its matches


def require(condition: object, message: str, *values: object) -> None:
    """Raise ValueError if a condition does not hold; values are formatted into the message only then."""
    if not condition:
        raise ValueError(message.format(*values) if values else message)


def steps_of(pattern: Pattern) -> tuple[Any, tuple[str, ...]]:
    """Return the normal form and the steps of a pattern: ("NFC", "qwen2") -> ("NFC", ("qwen2",))."""
    steps = (pattern,) if isinstance(pattern, str) else tuple(pattern)
    has_form = steps and steps[0] in NORMAL_FORMS
    return (steps[0], steps[1:]) if has_form else ("", steps)


def check_pattern(pattern: Pattern) -> Pattern:
    """Check a pattern: a name, an expression, or steps. Spellings of a named pattern become its name."""
    if isinstance(pattern, tuple) and all(isinstance(step, str) for step in pattern):
        form, steps = steps_of(pattern)
        checked: tuple[Any, ...] = tuple(map(check_pattern, steps))
        if form:
            return (form, *checked)
        return checked[0] if len(checked) == 1 else checked
    if not isinstance(pattern, str):
        raise ValueError(f"pattern must be a str, not {pattern!r:.200}")
    name = pattern.removeprefix(ONLY_MATCHES)  # a named pattern's matches are all of the text
    if name in PATTERNS or name in SPELLINGS:
        return SPELLINGS.get(name, name)
    compile_pattern(pattern)
    return pattern


@functools.lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> Any:
    r"""Compile a named pattern or an expression, as version 1 of regex reads it, whatever its default version is.

    There, [\p{L}&&[^\p{Han}]], [\w--\d] and [a-d~~c-f] are operations on sets, as in tiktoken. But version 1 also
    finds "ß" for (?i:ss), unlike other programs: (?-f) turns that off.
    """
    # without any operator of regular expressions, it is a misspelled name
    known = pattern in PATTERNS or set(pattern) & set(r"\.^$*+?{}[]()|")
    require(known, f"unknown pattern {pattern!r:.150}; the names are {', '.join(PATTERNS)}")
    expression = PATTERNS.get(pattern, pattern)
    expression.encode("utf-8")  # no lone surrogate
    check_size(expression)
    try:
        try:
            compiled = regex.compile("(?-f)" + expression, regex.V1)
        except (regex.error, KeyError, ValueError):  # the last two: (?V0) in the expression
            if re.search("&&|--|~~", expression):
                raise
            compiled = regex.compile(expression, regex.V0)  # where [[a] is a set of "[" and "a"
    except (regex.error, ArithmeticError, LookupError, ValueError) as error:
        text = getattr(error, "msg", error)  # without the place, which (?-f) has changed
        raise ValueError(f"pattern {pattern!r:.150} is not a valid regular expression: {text!s:.100}") from None
    backward = "searches backward, so its matches are not in the order of the text: leave out (?r)"
    require(not compiled.flags & regex.REVERSE, f"pattern {pattern!r:.150} {backward}")
    return compiled


MOST_LETTERS, MOST_NESTED, MOST_REPEATED = 20_000, 50, 100_000  # of an expression; to compile it takes half a second


def check_size(expression: str) -> None:
    """Refuse an expression that would take seconds and gigabytes to compile, such as (?:x{10000}){10000}."""
    shown = f"pattern {expression!r:.100}"
    length = len(expression)
    require(length <= MOST_LETTERS, f"{shown} has {length:,} characters; the maximum is {MOST_LETTERS:,}")
    sizes = [0]  # of the open groups: how many characters they have with their repetitions
    last = depth = 0  # the size of the last item, and how many sets are open
    for part in re.findall(r"(?s)\\.|\[\^?\]?|\{[0-9]*,?[0-9]+\}|\|\||.", expression):
        if part[0] == "[" or (part == "]" and depth):
            depth += 1 if part[0] == "[" else -1
            last = 1
        elif depth:
            require(part != "||", f"{shown}: programs differ in what || means in a set; write |, or \\|\\|")
            continue
        elif part == "(":
            sizes.append(0)
            last = 0
        elif part == ")" and len(sizes) > 1:
            last = sizes.pop()
        elif part[0] == "{" and len(part) > 1:
            times = int(part[1:-1].rpartition(",")[2].lstrip("0")[:7] or 0)  # 7 digits are too many anyway
            last *= max(times - 1, 0)
        else:
            last = 1
        sizes[-1] += last
        require(len(sizes) + depth <= MOST_NESTED, f"{shown} has more than {MOST_NESTED} nested groups and sets")
        require(sizes[-1] <= MOST_REPEATED, f"{shown} repeats more than {MOST_REPEATED:,} characters")


def find_words(text: str, pattern: Pattern) -> list[str]:
    r"""Split text into words: the matches of the pattern, and the text between them.

    >>> find_words("It's  new", "gpt2"), find_words("a-b", r"\w+"), find_words("in 2024", (r"\d\d", "gpt2"))
    (['It', "'s", ' ', ' new'], ['a', '-', 'b'], ['in', ' ', '20', '24'])
    """
    if not isinstance(pattern, str):
        form, steps = steps_of(check_pattern(pattern))
        words = [normalize(form, text) if form else text]
        for step in steps:
            words = [word for piece in words for word in find_words(piece, step)]
        return list(filter(None, words))
    compiled = compile_pattern(pattern)
    if pattern in PATTERNS:
        return compiled.findall(text)  # type: ignore[no-any-return]
    if pattern.startswith(ONLY_MATCHES):
        return [match[0] for match in compiled.finditer(text) if match[0]]
    places = [0, *(place for match in compiled.finditer(text) for place in match.span()), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(places) if start < end]


def check_special_tokens(special_tokens: Strings) -> tuple[str, ...]:
    """Check special tokens; return a tuple.

    "a" can't be one, since all single bytes have ids already, nor can text with U+FFFD: invalid bytes
    in a corpus may become that, and would then be part of a special token.
    """
    if isinstance(special_tokens, (str, bytes, set, frozenset, Mapping)):
        raise TypeError(f"special_tokens must be a list of strings, not {special_tokens!r:.60}")
    tokens = tuple(special_tokens or ())
    has_invalid = re.compile("[\ud800-\udfff\ufffd]").search
    for number, token in enumerate(tokens, 1):
        is_long = isinstance(token, str) and len(token.encode("utf-8", "surrogatepass")) > 1
        valid = is_long and not has_invalid(token)
        rule = "text of at least two bytes (U+FFFD and lone surrogates not allowed)"
        require(valid, "special token {} ({!r}) must be {}", number, token, rule)
    require(len(set(tokens)) == len(tokens), f"duplicate special token among {tokens!s:.200}")
    return tokens


@functools.lru_cache(maxsize=32)
def special_token_finder(special_tokens: tuple[str, ...]) -> re.Pattern[str]:
    """Return an expression for special tokens, longest first. Its split() gives text, token, text."""
    longest_first = sorted(special_tokens, key=len, reverse=True)
    # "x^" matches nowhere: ^ is the beginning of the text
    return re.compile(f"({'|'.join(map(re.escape, longest_first)) or 'x^'})")


# Files, pipes and streams are counted and encoded in pieces. A cut must not change a word or a special
# token. Here <|end|> is a special token; a cut is safe just before the character above each ^, and not
# above x, where it would divide <|end|>:
#
#     two cats<|end|> and it's 12 o'clock
#        ^    ^    x     ^    ^  ^
#
# In named patterns, a word ends after a letter or digit, before anything that is not a letter, digit,
# mark or apostrophe, whatever follows. "it" may continue: "it's" is one word in some of them. In or
# after whitespace, no place is safe: gpt2 splits " \n\nb" into " \n", "\n", "b", but " \n\n" before a
# cut is one word.
WORD_END = r"(?r)(?<=[\p{L}\p{N}])(?=[^\p{L}\p{N}\p{M}'])"  # (?r): the last place first


def last_cut(window: bytes, pattern: Pattern, special_tokens: tuple[str, ...], normalized: Sequence[str] = (),
             engine: Engine | None = None) -> int:
    """Return an index in bytes, near the end, at which a window of a larger text can be cut, else 0.

    Text for a named pattern can be cut where WORD_END matches, and text for a custom one just before a
    special token, or where the C engine, if given, finds a place. If no special token crosses the cut,
    the two parts have the same special tokens as the whole. If there is a normal form, those in
    `normalized` are searched for last, in normalized text, and normalizing may even create one.
    """
    text = window.decode("utf-8", "surrogateescape")
    form, steps = steps_of(pattern)
    named = len(steps) == 1 and steps[0] in PATTERNS
    found_first = tuple(token for token in special_tokens if not form or token not in normalized)
    # After "... cats<|e", "nd|>" may follow, and a character may be divided. So no cut is made near the
    # ends of the window, in characters: 3 for a divided one, n - 1 for a special token of n characters,
    # and 1 for the character after the cut.
    margin = 3 + max(map(len, special_tokens), default=1)

    def is_crossed(place: int) -> bool:
        # "cats<|e" and "nd|>": the token has at least one character on each side
        return any(token in text[place - len(token) + 1 : place + len(token) - 1] for token in special_tokens)

    def normalizing_joins(place: int) -> bool:
        if not (form and named):
            return False  # nothing is normalized, or each side of a special token is normalized alone
        near = text[place - margin : place + margin]
        if found_first != special_tokens and not near.isascii():
            return True  # normalizing what isn't ASCII could make a special token that crosses the cut
        # NFKC turns the sign ™ into the letters TM, which join the word before it
        both = text[place - 1 : place + 1]
        return normalize(form, both) != both

    finder = WORD_END if named else "(?r)" + special_token_finder(found_first).pattern
    places_in_c = engine.cuts(pattern, window) if engine and not named else ()
    for place in itertools.chain(places_in_c, (match.start() for match in regex.finditer(finder, text, regex.V0))):
        if margin <= place <= len(text) - margin and not is_crossed(place) and not normalizing_joins(place):
            return len(text[:place].encode("utf-8", "surrogateescape"))
    return 0


# ------------------------------
# V. Options: what a user can choose
# ------------------------------

# A new option is a field here, an argument of each function that takes it, a line in train_bpe's
# docstring, and an argument in make_parser.
#
# `pattern` is also an option of the model, because encoding needs it too. Another one of this kind (a
# marker at the end of words, say) would also be an argument of Tokenizer, which its methods
# `settings`, `train`, `from_files` and `with_specials` pass on, and an entry of tokenizer.json, both
# written and read. Such an option may change text only after the split at special tokens, and a cut must
# still be safe.
Errors = Literal["strict", "replace"]
EngineName = Literal["auto", "python", "c"]


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of a call, checked. Raises ValueError for a bad one, with its value."""

    # dataclass() looks up the names of types without quotes in sys.modules (for "from __future__ import
    # annotations"), and this module can be loaded without an entry there.
    special_tokens: "tuple[str, ...]" = ()  # from check_special_tokens
    pattern: "Pattern" = "gpt2"
    errors: "Errors" = "strict"
    workers: "int | None" = None
    engine: "EngineName" = "auto"
    progress: "bool" = False
    vocab_size: "int" = sys.maxsize  # for calls that learn nothing
    min_word_count: "int" = 1
    min_frequency: "int" = 1
    end: "str | None" = None  # the special token that ends each encoded document
    # Tokenizer sets these:
    kept: "tuple[str, ...]" = ()  # special tokens that decode() never skips
    normalized: "tuple[str, ...]" = ()  # special tokens that are found after text is normalized
    rest: "Mapping[str, Any]" = dataclasses.field(default_factory=dict)  # what save() writes back
    ignore_merges: "bool" = False  # a word that is a token stays whole

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", check_pattern(self.pattern))  # the object is frozen
        for name in ("workers", "vocab_size", "min_word_count", "min_frequency"):
            value = getattr(self, name)
            is_integer = hasattr(value, "__index__") and not isinstance(value, bool)
            valid = (is_integer and value > 0) or (name, value) == ("workers", None)
            require(valid, "{} must be a positive integer, not {!r}", name, value)
        allowed = {"errors": get_args(Errors), "engine": get_args(EngineName), "progress": (False, True)}
        for name, values in allowed.items():
            value = getattr(self, name)
            require(value in values, "{} must be one of {}, not {!r}", name, values, value)

        size, n_special = self.vocab_size, len(self.special_tokens)
        if size < 256 + n_special:
            minimum = f"{256 + n_special} (256 bytes + {plural(n_special, 'special token')})"
            raise ValueError(f"vocabulary size {size} is too small; the minimum is {minimum}")
        most = sys.maxunicode + 1  # learn_merges has a character for each token that isn't special
        if size > most + n_special and size != sys.maxsize:
            require(engine_for(self), f"the Python engine has only {most:,} non-special ids, not {size:,}")
        if self.engine == "c":
            require(find_engine()[0], f"engine 'c' is not available: {find_engine()[1]}")
            lacks = lacking_in_c(self.pattern) if not find_engine()[1] else ""  # else C only learns
            require(not lacks, f"engine 'c' can't be used: C scans no pattern with {lacks}; engine 'auto' does")


def plural(n: int, noun: str) -> str:
    """Count something: plural(1234, "merge") -> "1,234 merges"."""
    return f"{n:,} {noun}{'s' * (n != 1)}"


# ------------------------------
# VI. Training
# ------------------------------

# How train_bpe gets from files to a model, and in which part each step is:
#
#     Corpus        IX    the files, cut into slices
#     count_corpus  IX    slices -> a table of words with their counts, in Python or in C
#     learn         VI    the table -> merges, by learn_merges of Part II or in C
#     model_of      VI    merges -> (vocab, merges)
#
# count_words ends with the table, and train_from_counts begins with one.

BYTES = [bytes([byte]) for byte in range(256)]  # the first tokens


def train_bpe(input_path: Paths = None, vocab_size: int | None = None, special_tokens: Strings = None, *,
              texts: Strings = None, pattern: Pattern = "gpt2", errors: Errors = "strict", min_word_count: int = 1,
              min_frequency: int = 1, workers: int | None = None, engine: EngineName = "auto",
              progress: bool = False) -> Model:
    """Train byte-level BPE; return vocab {id: token} and merges [(left, right), ...] in order.

    input_path        the path of a UTF-8 text file, or a list of paths; "-" is standard input
    vocab_size        required; the maximum number of tokens: 256 bytes, special tokens, and merges
    special_tokens    a list of strings that get the ids from 256 on; text is split at them first
    texts             instead of input_path, an iterable of strings, each a separate text
    pattern           "gpt2", "cl100k", "o200k", "llama3", "qwen2", or an expression for regex
    errors            "strict": bytes that are not UTF-8 are an error; "replace": they become U+FFFD,
                      and so do lone surrogates in texts
    min_word_count    words that occur less often are left out of learning, to save memory
    min_frequency     the lowest count at which a pair is still merged
    workers           the maximum number of threads (C) or processes (Python): by default one per core,
                      and 61 at most. Except on Linux, processes need `if __name__ == "__main__":` in a
                      script
    engine            "python", "c", or "auto": C if it is built. The result is the same
    progress          show progress on standard error, in one line

    >>> train_bpe(texts=["low lower lowest"], vocab_size=258)[1]
    [(b'o', b'w'), (b'l', b'ow')]

    Raises ValueError or TypeError for bad arguments and for text that is not UTF-8, OSError for files,
    RuntimeError if a worker process is killed, OverflowError if C would count 2**63 bytes.
    """
    options = Options(check_special_tokens(special_tokens), pattern, errors, workers, engine, progress,
                      vocab_size, min_word_count, min_frequency)  # type: ignore[arg-type]  # Options refuses None
    corpus = Corpus(input_path, texts, options)
    if note := json_note(corpus.paths):
        warnings.warn(note, stacklevel=2)
    table = count_corpus(corpus)
    require(corpus.paths or corpus.n_slices, "no text: texts= is empty, or an iterator that is used up")
    return learn_model(table, options)


def count_words(paths: Paths = None, special_tokens: Strings = None, *, texts: Strings = None,
                pattern: Pattern = "gpt2", errors: Errors = "strict", workers: int | None = None,
                engine: EngineName = "auto", progress: bool = False) -> dict[bytes, int]:
    """Count words: the first half of bpe.train_bpe, whose docstring explains the arguments and errors.

    >>> count_words(texts=["hi hi"], engine="python")
    {b'hi': 1, b' hi': 1}
    """
    options = Options(check_special_tokens(special_tokens), pattern, errors, workers, engine, progress)
    corpus = Corpus(paths, texts, options)
    if note := json_note(corpus.paths):
        warnings.warn(note, stacklevel=2)
    return dict(count_corpus(corpus).copy())  # copy(): a table in C is no mapping


def train_from_counts(words: Counts | Iterable[tuple[bytes, int]], vocab_size: int, special_tokens: Strings = None, *,
                      min_word_count: int = 1, min_frequency: int = 1, engine: EngineName = "auto",
                      progress: bool = False) -> Model:
    """Learn from counts of words: the second half of bpe.train_bpe, with the same result.

    The counts of several corpora can be added up first. words is a mapping, or an iterable of pairs
    (word, count), which takes less memory; the counts of a word that comes twice are added. train_bpe's
    docstring explains the other arguments. Raises ValueError if a word isn't bytes, or a count is
    negative, and TypeError for what is not a pair.

    >>> train_from_counts({b"low": 2, b" lower": 1}, 258)[1]
    [(b'o', b'w'), (b'l', b'ow')]
    """
    options = Options(check_special_tokens(special_tokens), engine=engine, progress=progress, vocab_size=vocab_size,
                      min_word_count=min_word_count, min_frequency=min_frequency)
    if not isinstance(words, Iterable):
        raise TypeError(f"words must be a mapping of words to counts, or pairs (word, count), not {words!r:.60}")
    in_c = engine_for(options)
    table = in_c.words((), "gpt2") if in_c and not in_c.lacks else WordTable()  # an empty one; its pattern isn't used
    table.add(checked_counts(words))
    # learn() drops words with a count of 0 as rare ones
    return learn_model(table, options)


def checked_counts(words: Any) -> Iterator[tuple[bytes, int]]:
    """Yield the pairs (word, count) of a mapping or an iterable; refuse the first bad pair."""
    pair = None
    for pair in words.items() if isinstance(words, Mapping) else words:
        try:
            word, count = pair
            good = isinstance(word, bytes) and operator.index(count) >= 0
        except (TypeError, ValueError) as error:
            raise TypeError(f"{pair!r:.60} is not a pair (word, count): {error}") from None
        if not good:  # faster than a call of require() for each pair
            raise ValueError(f"words must be bytes and counts not negative, not {word!r:.60}: {count}")
        yield pair
    require(pair is not None, "no words to learn from")


class WordTable(collections.Counter[bytes]):
    """Words and their counts; the C engine has a table with the same methods."""

    def add(self, pairs: Iterable[tuple[bytes, int]]) -> None:
        """Add the counts of words."""
        for word, count in pairs:
            self[word] += operator.index(count)  # a sum of numpy's integers would wrap around

    def totals(self) -> tuple[int, int, int]:
        """Return (distinct words, words, bytes in words)."""
        return len(self), sum(self.values()), sum(len(word) * count for word, count in self.items())

    def drop_rare(self, n: int) -> tuple[int, int]:
        """Remove words that occur fewer than n times; return how many, and how often they occur."""
        rare = [word for word, count in self.items() if count < n]
        return len(rare), sum(map(self.pop, rare))


def learn(table: Table, options: Options) -> Iterator[Learned]:
    """Learn merges from a table of words, which is used up; yield them with their counts, best first."""
    table.drop_rare(options.min_word_count)
    merges_wanted = options.vocab_size - 256 - len(options.special_tokens)
    engine = engine_for(options)
    learn_with: Callable[[Any, int, int], Iterator[Learned]] = engine.learn if engine else learn_in_python
    merges = learn_with(table, merges_wanted, options.min_frequency)
    return with_progress(merges, options.progress, learning_progress(merges_wanted))


def learn_in_python(table: WordTable, merges_wanted: int, min_frequency: int) -> Iterator[Learned]:
    """Return the results of learn_merges that are wanted and frequent enough; the table is used up."""
    words = [word.decode("latin-1") for word in table]  # the byte n becomes chr(n)
    counts = list(table.values())
    table.clear()  # the learner needs the memory
    merges = itertools.islice(learn_merges(words, counts, BYTES), merges_wanted)
    # no merge has a higher count than the one before it
    return itertools.takewhile(lambda merge: merge[2] >= min_frequency, merges)


def learn_model(table: Table, options: Options) -> Model:
    """Return (vocab, merges) for a table of words; warn if there are fewer tokens than requested."""
    vocab, merges = model_of(learn(table, options), options)
    if len(vocab) < options.vocab_size:
        text = f"{len(vocab):,} tokens, not {options.vocab_size:,}: no other pair has a count of"
        warnings.warn(f"{text} {options.min_frequency} or more", stacklevel=3)
    return vocab, merges


def model_of(learned: Iterable[Learned], options: Options) -> Model:
    """Return (vocab, merges) for the results of learn()."""
    merges = [(left, right) for left, right, _, _ in learned]
    specials = [special.encode("utf-8") for special in options.special_tokens]
    return dict(enumerate([*BYTES, *specials, *map(b"".join, merges)])), merges


# ------------------------------
# VII. The tokenizer
# ------------------------------

class made_once(Generic[T]):
    """An attribute that is made at its first use, as by functools.cached_property, but without a lock.

    Before Python 3.12, cached_property has one lock for all objects. A process that is forked while
    another thread makes an encoder would wait for that lock forever.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self.make = make

    def __get__(self, instance: object, owner: object = None) -> T:
        value = instance.__dict__[self.make.__name__] = self.make(instance)
        return value


MAX_ID = 2**32 - 2  # the C engine has ids of 32 bits, and the last one means "no token" there


class Tokenizer:
    """Encode text with a trained vocabulary, and decode token ids.

    vocab           {token id: token}; a byte without an id can't be encoded
    merges          [(left, right), ...] in the order of their ranks
    special_tokens  the longest match wins; those that are not in vocab get ids after the greatest one
    pattern         the pattern that the vocabulary was trained with
    kept            special tokens that decode() never skips: "special": false in tokenizer.json
    normalized      special tokens that are found only after a pattern such as ("NFC", "qwen2") has
                    normalized the text
    rest            what save() writes back into tokenizer.json: templates ("post_processor"),
                    "truncation" and "padding". encode() never adds tokens, as with
                    add_special_tokens=False elsewhere
    ignore_merges   a word that is a token stays whole: the same in tokenizer.json. It is so in tiktoken,
                    and for the merges that read_tiktoken returns (WordsFirst), in any case

    >>> vocab = {0: b"a", 1: b"b", 2: b"ab", 3: b"abab"}
    >>> tokenizer = Tokenizer(vocab, [(b"a", b"b"), (b"ab", b"ab")], ["<end>"])
    >>> tokenizer.encode("ababab<end>"), tokenizer.decode([3, 2, 4])
    ([3, 2, 4], 'ababab<end>')

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Tokenizer.train(texts=["low lower lowest"], vocab_size=258).save(folder)
    ...     Tokenizer.load(folder).encode("lowest")
    [257, 101, 115, 116]

    encode() merges by rank (see check_merges), so merges may be in an order that no training gives, but
    none may come twice. Two ids may have the same bytes if the second one is a special token's: if both
    5 and 9 are b"<s>", 9 is the special token. Raises ValueError if vocabulary and merges contradict
    each other, and warns of tokens that encode() can never give, unless the merges are a tuple, as those
    of load() and of copies are: a model of another program has such tokens there, too. What was passed
    can't be changed later, so `merges` is a new list each time.
    """

    def __init__(self, vocab: Mapping[int, bytes], merges: Iterable[Pair], special_tokens: Strings = None,
                 pattern: Pattern = "gpt2", kept: Iterable[str] = (), normalized: Iterable[str] = (),
                 rest: Mapping[str, Any] | None = None, ignore_merges: bool = False) -> None:
        ignore_merges = ignore_merges or isinstance(merges, WordsFirst)
        specials, kept, normalized = map(check_special_tokens, (special_tokens, kept, normalized))
        self.options = Options(specials, pattern, kept=kept, normalized=normalized, rest=dict(rest or {}),
                               ignore_merges=ignore_merges)
        pairs: tuple[Pair, ...] = tuple(map(tuple, merges))  # type: ignore[arg-type]
        ids, second_ids = ids_of(vocab, set(map(str.encode, specials)))
        special_ids: dict[str, int] = {}
        free_ids = itertools.count(max([-1, *ids.values(), *second_ids.values()]) + 1)
        for special in specials:
            token = special.encode("utf-8")
            if token not in ids:
                ids[token] = next(free_ids)
            special_ids[special] = second_ids.get(token, ids[token])
            require(ids[token] <= MAX_ID, "no id is left for {!r}: the greatest id is {}", special, MAX_ID)
        self._merges, self._ids, self._special_ids = pairs, ids, special_ids
        self._vocab = {token_id: token for known in (ids, second_ids) for token, token_id in known.items()}
        try:
            self.merge_ids = [(ids[left], ids[right], ids[left + right]) for left, right in pairs]
        except KeyError as error:
            raise ValueError(f"a merge uses or creates {error}, which is not in the vocabulary") from None
        if len(set(self.merge_ids)) < len(self.merge_ids):
            # one comes twice; with None as the token made, this refuses nothing else
            check_merges((left, right, None) for left, right in pairs)
        made = {new_id for _, _, new_id in self.merge_ids}
        wrong = [special for special, token_id in special_ids.items() if token_id in made]
        way = "leave them out of the vocabulary (or the .tiktoken file), and pass them as special tokens only"
        require(not wrong, f"merges make {plural(len(wrong), 'special token')}, too: {wrong!s:.99}; {way}")
        # {word that stays whole: its id}; the empty token, which Whisper has, isn't a word
        tokens = [pair for pair in ids.items() if pair[0]] if ignore_merges else []
        hidden = set(special_ids.values())
        self.whole_words = {token: token_id for token, token_id in tokens if token_id not in hidden}
        # all tokens but single bytes are made, or special
        n_bytes = sum(map(ids.__contains__, [b"", *BYTES]))
        if len(self._vocab) > n_bytes + len(made) + len(hidden) and not ignore_merges and not isinstance(merges, tuple):
            others = [token for token, token_id in ids.items() if token_id not in made | hidden and len(token) > 1]
            text = f"encode() can't give {plural(len(others), 'token')} that no merge makes, such as {others[0]!r:.60}"
            ways = "special tokens are passed as special_tokens, ranks of tiktoken through read_tiktoken"
            warnings.warn(f"{text}; {ways}", stacklevel=2)

    @property
    def vocab(self) -> Mapping[int, bytes]:
        """{token id: token}, read-only."""
        return types.MappingProxyType(self._vocab)

    @property
    def ids(self) -> Mapping[bytes, int]:
        """{token: token id}, read-only."""
        return types.MappingProxyType(self._ids)

    @property
    def special_ids(self) -> dict[str, int]:
        """A new {special token: token id}, which tiktoken takes as it is."""
        return dict(self._special_ids)

    @property
    def merges(self) -> list[Pair]:
        """A new list of the merges, in the order of their ranks."""
        return (WordsFirst if self.ignore_merges else list)(self._merges)

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """The special tokens, in the order given."""
        return self.options.special_tokens

    @property
    def pattern(self) -> Pattern:
        """The pattern: a name, an expression, or several steps."""
        return self.options.pattern

    @property
    def ignore_merges(self) -> bool:
        """Whether a word that is a token stays whole."""
        return self.options.ignore_merges

    def __reduce__(self) -> tuple[object, ...]:
        kind = functools.partial(type(self), **self.settings())
        return kind, (self._vocab, self._merges, self.special_tokens, self.pattern)

    def settings(self) -> dict[str, Any]:
        """Return the arguments for models of other programs that this model needs."""
        values = {name: getattr(self.options, name) for name in ("kept", "normalized", "rest", "ignore_merges")}
        return {name: value for name, value in values.items() if value}

    def with_special_tokens(self, special_tokens: Iterable[str]) -> Tokenizer:
        """Return a tokenizer with more special tokens, which get the next ids; all else stays."""
        specials = *self.special_tokens, *check_special_tokens(special_tokens)
        return type(self)(self._vocab, self._merges, specials, self.pattern, **self.settings())

    def __len__(self) -> int:
        return len(self._vocab)

    @classmethod
    def train(cls, input_path: Paths = None, vocab_size: int | None = None, special_tokens: Strings = None, *,
              texts: Strings = None, pattern: Pattern = "gpt2", errors: Errors = "strict", min_word_count: int = 1,
              min_frequency: int = 1, workers: int | None = None, engine: EngineName = "auto",
              progress: bool = False) -> Tokenizer:
        """Train a tokenizer. The docstring of bpe.train_bpe explains all arguments, and errors."""
        specials = check_special_tokens(special_tokens)
        check_special_names(specials)  # save() will be able to write them
        vocab, merges = train_bpe(input_path, vocab_size, specials, texts=texts, pattern=pattern, errors=errors,
                                  min_word_count=min_word_count, min_frequency=min_frequency, workers=workers,
                                  engine=engine, progress=progress)
        return cls(vocab, merges, specials, pattern)

    @classmethod
    def load(cls, path: FilePath) -> Tokenizer:
        """Load a tokenizer.json, or the one in a folder. Raises ValueError if it isn't supported.

        encode() gives the same ids as the program that wrote it, without the tokens that a template adds
        around text.
        """
        path = model_path(path)
        with open(path, "rb") as file, error_prefix(path):
            model, settings = read_tokenizer_json(file.read())
            return cls(*model, **settings)

    @classmethod
    def from_files(cls, vocab_filepath: FilePath, merges_filepath: FilePath, special_tokens: Strings = None,
                   pattern: Pattern = "gpt2") -> Tokenizer:
        """Load a vocab.json and a merges.txt as GPT-2 or save() write them.

        A special token is looked up as text, then as to_printable() writes it. If it isn't there, it
        gets a new id.
        """
        specials, pattern = check_special_tokens(special_tokens), check_pattern(pattern)
        hint = "tokenizer.json is for Tokenizer.load"
        with open(vocab_filepath, "rb") as file, error_prefix(vocab_filepath, hint):
            ids = read_vocab(json.load(file))
            for special in specials:
                name = special if special in ids else to_printable(special.encode("utf-8"))
                if name in ids:
                    ids[special] = ids.pop(name)
            # here already, so that their errors name this file
            ids_of(to_bytes(ids, [], specials)[0], set(map(str.encode, specials)))
        with open(merges_filepath, encoding="utf-8-sig") as file, error_prefix(merges_filepath, hint):
            vocab, merges = to_bytes(ids, read_merges(file.read(), ids), specials)
            return cls(vocab, merges, specials, pattern)

    def save(self, folder: FilePath, *, bos_token: str | None = None, eos_token: str | None = None,
             pad_token: str | None = None, chat_template: str | None = None) -> None:
        """Save the model in a folder: tokenizer.json, and files for other programs.

        Files with these names are replaced, even a merges.txt that was the corpus. load() finds the old
        model or the new one, even after Ctrl-C, a full disk, or a power cut. If a power cut or `kill -9`
        comes while files are replaced, vocab.json and merges.txt may both be old ones, or one or both
        missing. bos_token, eos_token, pad_token (each one of the special tokens) and the chat template
        are for transformers. Those that the folder has already, and the call does not name, stay, except
        for roles and added tokens that aren't special tokens of this model, which are a warning.
        """
        roles = {"bos_token": bos_token, "eos_token": eos_token, "pad_token": pad_token}
        settings = {**roles, "chat_template": chat_template}
        if note := save_model(self._vocab, self._merges, self.options, folder, settings):
            warnings.warn(f"{os.fspath(folder)}: {note}", stacklevel=2)

    @made_once
    def encoder(self) -> Encoder:
        """The encoder of the C engine, or a PythonEncoder if C can't be used for this model."""
        engine = engine_for(self.options, scanning=True)
        # no engine: not wanted, not built, or without the pattern; no encoder: too many tokens for C
        return (engine.encoder(self) if engine else None) or PythonEncoder(self, self.options.engine)

    def encode(self, text: str) -> list[int]:
        """Encode text. Raises ValueError for a lone surrogate, or a byte without a token."""
        return self.encoder.encode(to_utf8(text))

    @made_once
    def id_bytes(self) -> int:
        """The size of an id in an array: 2 bytes if that is enough for the whole vocabulary, else 4."""
        return 2 if max(self._vocab, default=0) < 1 << 16 else 4

    def encode_ordinary(self, text: str) -> list[int]:
        """Encode untrusted text, in which special tokens are plain text."""
        return self.ordinary.encode(text)

    @made_once
    def ordinary(self) -> Tokenizer:
        """The same tokenizer without special tokens."""
        return self.with_specials((), self.pattern)

    def with_specials(self, specials: Sequence[str], pattern: Pattern) -> Tokenizer:
        """Return a tokenizer with only some of the special tokens, and with a pattern."""
        hidden = {token_id for text, token_id in self._special_ids.items() if text not in specials}
        # an id that merges use, too, stays
        hidden.difference_update(itertools.chain.from_iterable(self.merge_ids))
        vocab = {token_id: token for token_id, token in self._vocab.items() if token_id not in hidden}
        return Tokenizer(vocab, self._merges, specials, pattern, ignore_merges=self.ignore_merges)

    def encode_batch(self, texts: Iterable[str], workers: int | None = None,
                     errors: Errors = "strict") -> list[list[int]]:
        """Encode several texts, with C on all cores. An error names the text."""
        corpus = self.corpus(None, texts, workers=workers, errors=errors)
        # The garbage collector would look through all lists again and again, which takes half of the
        # time. It stays off until `pause` is freed.
        pause = self.encoder.pause_collector()
        try:
            results = corpus.map(self.encoder.encode_texts, True, "", BATCH_BYTES, most_threads(self.encoder))
            with contextlib.closing(results):
                return list(itertools.chain.from_iterable(lists for _, lists in results))
        finally:
            del pause

    def encode_arrays(self, texts: Iterable[str], workers: int | None = None,
                      errors: Errors = "strict") -> tuple[memoryview, memoryview]:
        """Encode several texts as one array; return (ids, offsets).

        Text i has ids[offsets[i] : offsets[i + 1]]. ids is a memoryview of uint16 if the whole
        vocabulary fits, else uint32; offsets is one of uint64, with len(texts) + 1 numbers.
        numpy.asarray(ids), or torch.frombuffer(ids, dtype=torch.uint16), makes no copy.
        """
        encode_texts = functools.partial(self.encoder.encode_texts, kind=f"u{self.id_bytes}")
        ids, offsets = bytearray(), array("Q", [0])
        corpus = self.corpus(None, texts, workers=workers, errors=errors)
        results = corpus.map(encode_texts, True, "", SLICE_BYTES, most_threads(self.encoder))
        with contextlib.closing(results):
            for _, (more_ids, ends) in results:
                ids += more_ids
                offsets.extend(map(offsets[-1].__add__, ends))
        return memoryview(ids).cast("H" if self.id_bytes == 2 else "I"), memoryview(offsets)

    def encode_iterable(self, iterable: Iterable[str], errors: Errors = "strict") -> Iterator[int]:
        """Yield the ids of encode("".join(iterable)) one by one, the first after about 1 KB of text.

        Memory for some 64 KB of text is enough for prose. A stream of letters or whitespace alone can't
        be cut (see WORD_END), so all of it is held. In Python, custom patterns are cut only at special
        tokens.
        """
        errors = Options(errors=errors).errors  # checked
        strings = join_surrogates(iterable) if errors == "replace" else iterable
        blocks = (b"".join(part.texts) for part in slices_of_texts(strings, 1 << 10, "strict"))
        pieces = cut_stream(blocks, self.options, 1 << 10, WINDOW_BYTES)
        return itertools.chain.from_iterable(map(self.encoder.encode, pieces))

    def encode_files(self, paths: Paths = None, output: FilePath = "", *, texts: Strings = None,
                     errors: Errors = "strict", workers: int | None = None, engine: EngineName = "auto",
                     progress: bool = False, end: str | None = None) -> int:
        """Encode files, or texts, as one array of token ids in the file `output`; return how many there are.

        numpy.load reads a .npy file: uint16 if the whole vocabulary fits, else uint32. A .bin file is the
        array alone, always of uint16, as nanoGPT reads it. With end="<|endoftext|>", or another special
        token, its id follows each file or text, in which special tokens are plain text; by default no id
        is added. The folder of the output must exist. The docstring of bpe.train_bpe explains the options,
        and errors.
        """
        corpus = self.corpus(paths, texts, end, errors=errors, workers=workers, engine=engine, progress=progress)
        if note := json_note(corpus.paths):
            warnings.warn(note, stacklevel=2)
        return encode_corpus(self, corpus, output)

    def corpus(self, paths: Paths, texts: Strings, end: str | None = None, **given: Any) -> Corpus:
        """Return a corpus that is split into words the way this tokenizer does it."""
        if end is not None:
            require(end in self._special_ids, "end must be a special token, not {!r}", end)
            given |= {"end": end, "special_tokens": ()}
        # encode_batch(["a short text"]) would take much longer if its options were checked again
        unchanged = given.items() <= vars(self.options).items()
        options = self.options if unchanged else dataclasses.replace(self.options, **given)
        return Corpus(paths, texts, options)

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = False) -> str:
        """Decode token ids to text; bytes that are not UTF-8 become U+FFFD."""
        data = b"".join(self.tokens_of(ids, True)) if skip_special_tokens else self.decode_bytes(ids)
        return data.decode("utf-8", errors="replace")

    def decode_iterable(self, ids: Iterable[int], skip_special_tokens: bool = False) -> Iterator[str]:
        """Decode ids as they come, and yield text as soon as its characters are complete.

        Joined, it is decode(ids). A token that is half of an "é" is U+FFFD in decode([token_id]); here
        it waits for the other half.
        """
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for token in self.tokens_of(ids, skip_special_tokens):
            if text := decoder.decode(token):
                yield text
        if text := decoder.decode(b"", final=True):
            yield text

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Decode token ids to bytes. Raises ValueError for an id that is not in the vocabulary."""
        if isinstance(ids, Sequence):  # faster; tokens_of raises the error
            with contextlib.suppress(KeyError, TypeError):
                return b"".join(map(self._vocab.__getitem__, ids))
        return b"".join(self.tokens_of(ids))

    def tokens_of(self, ids: Iterable[int], skip_special_tokens: bool = False) -> Iterator[bytes]:
        """Yield the token of each id, and b"" for special tokens that are skipped."""
        specials = set(self._special_ids).difference(self.options.kept) if skip_special_tokens else ()
        skipped = set(map(self._special_ids.__getitem__, specials))
        if not isinstance(ids, Iterable):
            raise TypeError(f"ids must be an iterable of token ids, not {ids!r:.60}")
        for number, token_id in enumerate(ids):
            try:
                token = self._vocab[token_id]
            except (KeyError, TypeError):
                import numbers

                # a number in a tensor isn't equal to an integer, nor is a row of an array
                is_array = hasattr(token_id, "tolist") and not isinstance(token_id, numbers.Integral)
                way = "; pass integers, as ids.tolist() gives them" if is_array else ""
                raise ValueError(f"unknown token id {token_id!r:.60} at index {number}{way}") from None
            yield b"" if token_id in skipped else token


class PythonEncoder:
    """Encode with a vocabulary and merges; the C engine has an encoder with the same methods.

    If the pattern has a normal form, this one splits off special tokens and normalizes, and the encoder
    `inner` does the rest, with `engine`.
    """

    def __init__(self, tokenizer: Tokenizer, engine: EngineName = "python") -> None:
        self.tokenizer, self.engine = tokenizer, engine
        self.form, steps = steps_of(tokenizer.pattern)
        normalized = tokenizer.options.normalized if self.form else ()
        self.specials = tuple(text for text in tokenizer.special_tokens if text not in normalized)
        self.special_ids = tokenizer.special_ids
        if self.form:
            specials_of_inner = [text for text in tokenizer.special_tokens if text in normalized]
            inner = tokenizer.with_specials(specials_of_inner, steps)
            inner.options = dataclasses.replace(inner.options, engine=engine)
            self.inner = inner.encoder
            return
        self.id_of_byte = {byte[0]: tokenizer.ids[byte] for byte in BYTES if byte in tokenizer.ids}
        self.ranks = {(left, right): rank for rank, (left, right, _) in enumerate(tokenizer.merge_ids)}
        self.new_ids = [new_id for _, _, new_id in tokenizer.merge_ids]  # by rank
        self.cached = functools.lru_cache(maxsize=1 << 16)(self.encode_word)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.tokenizer, self.engine)  # for worker processes, without the cache

    def encode(self, utf8: bytes) -> list[int]:
        """Encode text in UTF-8. Raises UnicodeDecodeError if it is invalid."""
        ids: list[int] = []
        pieces = special_token_finder(self.specials).split(utf8.decode("utf-8"))
        for number, piece in enumerate(pieces):
            if number % 2:  # a special token
                ids.append(self.special_ids[piece])
            elif self.form:
                ids += self.inner.encode(normalize(self.form, piece).encode("utf-8"))
            else:
                for word in find_words(piece, self.tokenizer.pattern):
                    # A long word rarely recurs.
                    ids += self.cached(word) if len(word) <= 64 else self.encode_word(word)
        return ids

    def encode_texts(self, texts: Sequence[bytes], kind: str = "") -> Any:
        """Encode texts as lists, or with kind="u2" (16 bits per id) or "u4" (32) as an array.

        An array is returned as (its bytes, [the number of ids up to the end of each text]). A
        ValueError has the number of its text.
        """
        lists: list[list[int]] = []
        for number, utf8 in enumerate(texts):
            try:
                lists.append(self.encode(utf8))
            except ValueError as error:
                error.number = number  # type: ignore[attr-defined]
                raise
        if not kind:
            return lists
        ids = array("H" if kind == "u2" else "I", itertools.chain.from_iterable(lists))
        return ids.tobytes(), array("Q", itertools.accumulate(map(len, lists)))

    def pause_collector(self) -> None:
        """Do nothing. The encoder in C pauses it."""

    def encode_word(self, word: str) -> tuple[int, ...]:
        """Encode one word. Raises ValueError if one of its bytes has no token."""
        utf8 = word.encode("utf-8")
        if utf8 in self.tokenizer.whole_words:
            return (self.tokenizer.whole_words[utf8],)
        try:
            ids = [self.id_of_byte[byte] for byte in utf8]
        except KeyError as error:
            place = f"{BYTES[error.args[0]]!r}, in {word[:40]!r}"
            raise ValueError(f"the vocabulary has no token for the byte {place}") from None
        return tuple(merge_by_rank(ids, self.ranks, self.new_ids))


def ids_of(vocab: Mapping[int, bytes], special_tokens: set[bytes]) -> tuple[dict[bytes, int], dict[bytes, int]]:
    """Return {token: id}, and the same for special tokens that have the bytes of an earlier token.

    No other token may come twice, and ids are from 0 to MAX_ID.
    """
    ids: dict[bytes, int] = {}
    second_ids: dict[bytes, int] = {}
    for token_id, token in vocab.items():
        if not isinstance(token, bytes) or not hasattr(token_id, "__index__") or not 0 <= token_id <= MAX_ID:
            hint = "" if isinstance(token, bytes) else "; for files, use from_files"
            entry = f"{token_id!r:.40} to {token!r:.40}"
            raise ValueError(f"vocab maps ids from 0 to {MAX_ID} to bytes, not {entry}{hint}")
        if token in ids and (token not in special_tokens or token in second_ids):
            raise ValueError(f"the token {token!r:.40} has two ids, {ids[token]} and {token_id}")
        (second_ids if token in ids else ids)[token] = operator.index(token_id)
    return ids, second_ids


class WordsFirst(list[Pair]):
    """Merges of a model in which a word that is a token stays whole: ignore_merges of Tokenizer."""


def to_utf8(text: str, errors: str = "strict") -> bytes:
    """Encode text as UTF-8. With errors="replace", lone surrogates become U+FFFD."""
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, not {type(text).__name__}")
    if errors == "replace":  # JSON decoders leave "\ud83d\udc4d", which is one character in UTF-16
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.encode("utf-8")


def join_surrogates(strings: Iterable[str]) -> Iterator[str]:
    """Replace surrogates as to_utf8 does, even if the halves of a character are in two strings."""
    decoder = codecs.getincrementaldecoder("utf-16-le")("replace")
    for text in strings:
        if isinstance(text, str):  # anything else is refused later
            text = decoder.decode(text.encode("utf-16-le", "surrogatepass"))
        yield text
    yield decoder.decode(b"", final=True)


# ------------------------------
# VIII. Files of a model: our own, then those of other programs
# ------------------------------

# tokenizer.json, in Hugging Face's format, is the model. GPT-2's two files, vocab.json and merges.txt,
# have no pattern and no special tokens. All write each byte as a printable character: bytes that are
# printable in Latin-1 as themselves, the 68 others from U+0100 on (the space is "Ġ", a newline "Ċ").
PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
OTHER_BYTES = sorted(set(range(256)) - set(PRINTABLE))
CHARACTERS = "".join(
    chr(byte if byte in PRINTABLE else 256 + OTHER_BYTES.index(byte))
    for byte in range(256)
)  # fmt: skip
BYTE_OF = codecs.charmap_build(CHARACTERS)  # {character: byte} for charmap_encode, the fastest way back


def to_printable(token: bytes) -> str:
    """Write a token in printable characters: to_printable(b" the") is "Ġthe"."""
    return codecs.charmap_decode(token, "strict", CHARACTERS)[0]


def to_token(text: str) -> bytes:
    """Read a token of a file: "Ġthe" is b" the". "<a b>", which has a space, is text."""
    try:
        return codecs.charmap_encode(text, "strict", BYTE_OF)[0]
    except UnicodeEncodeError:
        return text.encode("utf-8")


def model_path(path: FilePath) -> FilePath:
    """Return the path of a tokenizer.json: the one in a folder, or path. Raises FileNotFoundError."""
    is_folder = os.path.isdir(path)
    file = os.path.join(path, "tokenizer.json") if is_folder else path
    if os.path.exists(file):
        return file
    reason = "No such file or folder (from a hub, download tokenizer.json first)"
    if is_folder:
        reason = "No tokenizer.json in this folder"
        if os.path.exists(os.path.join(path, "merges.txt")):
            reason += '; Tokenizer.from_files("vocab.json", "merges.txt").save(folder) makes it from these two'
    raise FileNotFoundError(errno.ENOENT, reason, os.fspath(path))


def check_special_names(special_tokens: Iterable[str]) -> None:
    """Refuse special tokens, written as text, that could be another token in printable characters.

    "é" is also the byte E9, and "Ġlow" is " low". "<début>" is fine: with é as the byte E9 it isn't
    UTF-8, so that no training can make such a token.
    """
    for special in special_tokens:
        text = "special token {!r:.99} can't be saved: it looks like bytes in printable characters"
        require(is_clear_name(special), text, special)


def is_clear_name(special: str) -> bool:
    """Tell if a special token, written as text, is no other token in printable characters."""
    token = to_token(special)
    # all single bytes are tokens, and other tokens are parts of text
    return token == special.encode("utf-8") or (len(token) > 1 and not is_part_of_text(token))


def is_part_of_text(data: bytes) -> bool:
    """Tell if data is UTF-8, except that it may begin and end inside a character, as tokens do."""
    try:
        codecs.utf_8_decode(re.sub(rb"^[\x80-\xbf]{1,3}", b"", data), "strict", False)
    except UnicodeDecodeError:
        return False
    return True


@contextlib.contextmanager
def file_in_errors(path: FilePath) -> Iterator[None]:
    """Add a file's name to system errors without one, such as "No space left on device"."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or os.fspath(path)
        raise


def check_replaceable(path: pathlib.Path) -> None:
    """Raise an error, before the work, for an existing file that can't be replaced after it."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    require(stat.S_ISREG(mode), "refusing to overwrite {}: not a regular file", path)
    try:
        os.rmdir(path)  # fails for any file, but differently if this one may not be removed
    except PermissionError as error:
        text = f"can't replace {path}: {error.strerror}; it or its folder is immutable or another user's"
        raise OSError(error.errno, text) from None
    except OSError:
        pass
    mount = mount_of(path)  # "" if another run has just removed it
    if mount and mount != mount_of(path.parent):  # containers mount single files
        raise OSError(errno.EBUSY, f"can't replace {path}: it is a mount point; mount its folder instead")


def mount_of(path: pathlib.Path) -> str:
    """Return the number of the mount that a path is on, or "" if the system doesn't tell."""
    with contextlib.suppress(OSError, AttributeError):  # only Linux has O_PATH and /proc
        file = os.open(path, os.O_PATH)
        try:
            about = pathlib.Path(f"/proc/self/fdinfo/{file}").read_text()
        finally:
            os.close(file)
        return about.partition("mnt_id:")[2].partition("\n")[0]
    return ""


def open_temporary(path: pathlib.Path) -> BinaryIO:  # type: ignore[return]
    """Create a temporary file next to path: ids.npy.0.bpe.tmp, or 1 if another run uses 0."""
    # systems take 255 bytes, and a character has four at most
    stem = path.name if len(os.fsencode(path.name)) <= 240 else path.name[:50]
    for number in itertools.count():
        temporary = path.with_name(f"{stem}.{number}.bpe.tmp")
        with contextlib.suppress(OSError):
            if time.time() - temporary.stat().st_mtime > 24 * 3600:  # of a run that was killed
                temporary.unlink()
        with contextlib.suppress(FileExistsError):
            return open(temporary, "xb")


@contextlib.contextmanager
def new_files(paths: Iterable[FilePath], stale: Iterable[FilePath] = (),
              keep: bool = False) -> Iterator[list[BinaryIO]]:
    """Open files under temporary names, and rename them at the end; stale ones go after the first rename.

    If the rename of a single file fails, keep=True leaves the finished file, and the error names it.
    """
    targets = [pathlib.Path(path).resolve() for path in paths]  # a link is followed, not replaced
    files: list[BinaryIO] = []
    try:
        with delayed(signal.SIGINT), delayed(signal.SIGTERM):  # all temporary files get into the list
            files.extend(map(open_temporary, targets))
        yield files
        for file, target in zip(files, targets):
            with file_in_errors(target), file:
                file.flush()
                sync(file)  # else a power cut could leave an empty file under the new name
        with delayed(signal.SIGINT), delayed(signal.SIGTERM):
            try:
                rename(files, targets, stale)
            except OSError as error:
                if not keep:
                    raise
                kept = files.pop(0).name
                text = f"can't replace {targets[0]}: {error.strerror}; the finished file is {kept}"
                raise OSError(error.errno, text) from None
    finally:
        for file in files:
            with contextlib.suppress(OSError):
                file.close()  # on a full disk, this fails again
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file.name)


def rename(files: list[BinaryIO], targets: Sequence[pathlib.Path], stale: Iterable[FilePath]) -> None:
    """Give each temporary file its name, and remove the stale files after the first, while other runs wait."""
    folder = None
    try:
        with contextlib.suppress(ImportError, OSError):  # Windows and some networks have no locks
            import fcntl
            folder = os.open(targets[0].parent, os.O_RDONLY)
            fcntl.flock(folder, fcntl.LOCK_EX)
        for number, target in enumerate(targets):
            os.replace(files[0].name, target)
            files.pop(0)  # another run may use the temporary name now, so new_files() must not remove it
            if number == 0:  # if this rename fails, all files of the earlier model are still there
                for path in stale:
                    pathlib.Path(path).resolve().unlink(missing_ok=True)
        if folder is not None:
            with contextlib.suppress(OSError):  # some file systems can't; the files are complete
                os.fsync(folder)
    finally:
        if folder is not None:
            os.close(folder)


# how file systems say that they have no fsync (VirtualBox, some networks, FUSE): EIO would be lost data
NO_FSYNC = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF)


def sync(file: BinaryIO) -> None:
    """Write a file to the disk, if its file system can do that on demand."""
    try:
        os.fsync(file.fileno())
    except OSError as error:
        if error.errno not in NO_FSYNC:
            raise


@contextlib.contextmanager
def delayed(number: int) -> Iterator[None]:
    """Let a signal, such as SIGINT, which is Ctrl-C, wait until a block is done."""
    arrived: list[Any] = []
    handler: Any = signal.getsignal(number)
    # signals interrupt no other thread
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not callable(handler) or not in_main_thread:
        yield
        return

    signal.signal(number, lambda *arguments: arrived.append(arguments))
    try:
        yield
    finally:
        signal.signal(number, handler)
        for arguments in arrived:
            handler(*arguments)


def check_outputs(outputs: Sequence[FilePath], inputs: Sequence[FilePath] = ()) -> None:
    """Refuse an output that is an input, or another output, even by way of links, or can't be replaced."""
    seen: dict[object, FilePath] = {}
    for number, path in enumerate([*inputs, *outputs]):
        try:
            key: object = os.stat(0 if path == "-" else path)[1:3]  # inode and device
        except FileNotFoundError:
            key = os.path.realpath(path)
        same = key in seen and number >= len(inputs)
        require(not same, "the output {} is the same file as {}, which is needed, too", os.fspath(path), seen.get(key))
        seen[key] = path
    for path in outputs:
        check_replaceable(pathlib.Path(path).resolve())


def model_files(folder: FilePath) -> list[str]:
    """Return the paths of the files of a model, in the order in which save() replaces them."""
    for_transformers = [*TRANSFORMERS_FILES, "chat_template.jinja"]
    names = ["tokenizer.json", *for_transformers, "vocab.json", "merges.txt"]
    return [os.path.join(folder, name) for name in names]


def save_model(vocab: Mapping[int, bytes], merges: Iterable[Pair], options: Options, folder: FilePath,
               settings: Mapping[str, str | None] | None = None) -> str:
    """Write the files of a model. They are all complete before the first one replaces an earlier one.

    Return a note about roles of another model that the folder's files had, or "".
    """
    # If a special token has the bytes of another token, these bytes have two ids. The last one is that
    # of the special token, and merges make the first one.
    last_ids = {token: token_id for token_id, token in vocab.items()}
    specials = {last_ids[special.encode("utf-8")]: special for special in options.special_tokens}
    names = {token_id: to_printable(token) for token_id, token in vocab.items()} | specials
    ids = {name: token_id for token_id, name in sorted(names.items())}
    special_ids = {special: token_id for token_id, special in specials.items()}
    left_out = special_tokens_left_out(ids, special_ids)
    if not left_out or len(ids) < len(names):
        check_special_names(options.special_tokens)
    require(len(ids) == len(names), "can't be saved: a special token is also another token in printable characters")
    reasons = list(unsupported_tokens(options))
    require(not reasons, "can't be saved, since other programs would give other ids: {}", "; ".join(reasons[:2]))
    if left_out:  # merges use none of them
        ids = {name: token_id for name, token_id in ids.items() if name not in left_out}
    first_names = {token: names[token_id] for token_id, token in reversed(list(vocab.items()))}
    # no lists: the garbage collector would look through them again and again
    pairs = [(first_names[left], first_names[right]) for left, right in merges]
    for_transformers, note = transformers_files(folder, special_ids, settings or {})
    texts = {
        "tokenizer.json": to_json(tokenizer_json(options, ids, special_ids, pairs)),
        **for_transformers,
        "vocab.json": to_json(ids),
        "merges.txt": "\n".join(["#version: 0.2", *map(" ".join, pairs)]) + "\n",
    }
    paths = [os.path.join(folder, name) for name in texts]
    check_outputs(paths)
    pathlib.Path(folder).resolve().mkdir(parents=True, exist_ok=True)
    # Other programs take vocab.json and merges.txt together. If the old ones were not removed before the
    # new ones get their names, a run that is killed between two renames would leave files of two models.
    with new_files(paths, stale=paths[-2:]) as files:
        for file, path, text in zip(files, paths, texts.values()):
            with file_in_errors(path):
                file.write(text.encode("utf-8"))
    return note


def special_tokens_left_out(ids: Mapping[str, int], special_ids: Mapping[str, int]) -> set[str]:
    """Return special tokens that only "added_tokens" can have, and not "vocab"; mostly none.

    DeepSeek-Coder has the special token "õ", and lacks the byte that is written as "õ" in "vocab". Outside
    of it, its id follows from its position, so the special tokens with greater ids are left out, too, if
    all ids are right then.
    """
    unclear = {special for special in special_ids if not is_clear_name(special)}
    if not unclear:
        return unclear
    first = min(map(special_ids.__getitem__, unclear))
    for left_out in ({special for special in special_ids if special_ids[special] >= first}, unclear):
        in_vocab = {name: token_id for name, token_id in ids.items() if name not in left_out}
        if ids_by_position(in_vocab, special_ids) == special_ids:
            return left_out
    return set()


def ids_by_position(vocab: Mapping[str, int], special_tokens: Iterable[str]) -> dict[str, int]:
    """Return the ids of special tokens; outside the vocabulary, they count from its size on, as in tokenizers."""
    new_id, special_ids = len(vocab), {}
    for text in special_tokens:
        special_ids[text] = vocab.get(text, new_id)
        new_id = max(new_id, special_ids[text] + 1)
    return special_ids


def to_json(content: Any) -> str:
    """Write JSON with a line for each entry; indent= is slower."""
    return json.dumps(content, ensure_ascii=False, separators=(",\n", ": ")) + "\n"


TRANSFORMERS_FILES = ["tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"]
LISTS_OF_ROLES = ["additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens"]


def transformers_files(folder: FilePath, special_ids: Mapping[str, int],
                       settings: Mapping[str, Any]) -> tuple[dict[str, str], str]:
    """Return the texts of files that only transformers reads, and a note about what is left out.

    They have the new settings, and the earlier ones in the folder, without roles and added tokens of
    another model: transformers would give those an id beyond the vocabulary. Version 5 prefers
    chat_template.jinja; version 4.45 reads only tokenizer_config.json.
    """
    for name, value in settings.items():
        if name == "chat_template" and not isinstance(value, (str, type(None))):
            raise TypeError(f"chat_template must be a str, not {value!r:.60}")
        allowed = name == "chat_template" or value is None or value in special_ids
        require(allowed, "{}={!r:.99} must be one of the special tokens", name, value)
    new = {name: value for name, value in settings.items() if value is not None}
    old, in_map, added = (dict_in_file(pathlib.Path(folder, name)) for name in TRANSFORMERS_FILES)
    with contextlib.suppress(OSError, ValueError):
        template_path = pathlib.Path(folder, "chat_template.jinja")
        old["chat_template"] = template_path.read_bytes().decode("utf-8")
    decoder = old.pop("added_tokens_decoder", None)  # tokenizer.json has the same
    if decoder is None:  # only then, transformers reads the other two files
        old |= in_map
    kept, gone = own_roles({name: value for name, value in old.items() if name not in new}, special_ids)
    others = {*map(content_of, entries_of(decoder).values()), *added}.difference(special_ids)
    gone += [f"the added token {text!r:.60}" for text in sorted(map(str, others))]

    defaults = {
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],  # else transformers 4 adds token_type_ids
    }
    # The class of another model, such as Qwen2Tokenizer, brings its own pattern in version 5.
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **defaults, **kept, **new}
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    config.pop("auto_map", None)  # a class in a file of Python
    files = {
        "special_tokens_map.json": {name: value for name, value in config.items() if is_role(name, value)},
        "added_tokens.json": {text: token_id for text, token_id in added.items() if special_ids.get(text) == token_id},
    }
    texts = {name: to_json(content) for name, content in files.items() if os.path.exists(os.path.join(folder, name))}
    if isinstance(template := config.get("chat_template"), str):  # in version 4, it may be a list of several
        texts["chat_template.jinja"] = template
    what = ", ".join(gone[:5]) + f" and {len(gone) - 5:,} more" * (len(gone) > 5)
    note = f"not in this model, so no longer in the settings for transformers: {what}" if gone else ""
    return {"tokenizer_config.json": to_json(config), **texts}, note


def dict_in_file(path: pathlib.Path) -> dict[str, Any]:
    """Return a dict from a file of JSON; an empty one if there is no such file, or another content."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        content = json.loads(path.read_bytes())
        to_json(content).encode("utf-8")  # no lone surrogate
        if isinstance(content, dict):
            return content
    return {}


def content_of(token: Any) -> str | None:
    """Return the text of a token in transformers' files, which is a str or a dict, or None."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def is_role(name: str, value: Any) -> bool:
    """Tell if a setting of transformers names one or several special tokens."""
    return name in LISTS_OF_ROLES or (name.endswith("_token") and content_of(value) is not None)


def own_roles(settings: Mapping[str, Any], special_tokens: Container[str]) -> tuple[dict[str, Any], list[str]]:
    """Return settings with only those roles that a model's special tokens can have, and names of the others."""
    kept, gone = {}, []
    for name, value in settings.items():
        if not is_role(name, value):
            kept[name] = value
            continue
        tokens = entries_of(value) if name in LISTS_OF_ROLES else {0: value}
        texts = {key: content_of(token) for key, token in tokens.items()}
        own = {key: text for key, text in texts.items() if text in special_tokens}
        gone += [f"{name} {texts[key]!r:.60}" for key in texts if key not in own]
        if name in LISTS_OF_ROLES:
            kept[name] = own if isinstance(value, dict) else list(own.values())
        elif own:
            kept[name] = own[0]
    return kept, gone


def tokenizer_json(options: Options, ids: Mapping[str, int], special_ids: Mapping[str, int],
                   merges: list[tuple[str, str]]) -> dict[str, Any]:
    """Return the contents of tokenizer.json; other libraries may match a custom pattern differently."""
    normalized, kept = set(options.normalized), set(options.kept)
    added = [
        {"id": special_ids[text], "content": text, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": text in normalized, "special": text not in kept}
        for text in options.special_tokens
    ]  # fmt: skip
    byte_level = {
        "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False,
    }  # fmt: skip
    form, steps = steps_of(options.pattern)
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
        "ignore_merges": options.ignore_merges, "vocab": ids, "merges": merges,
    }  # fmt: skip
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": form} if form else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*map(split_step, steps), byte_level]},
        "post_processor": None, "decoder": byte_level, "model": model, **options.rest,
    }  # fmt: skip


def split_step(step: str) -> dict[str, Any]:
    """Return a step of a pattern as tokenizer.json has it."""
    pattern = {"Regex": JSON_PATTERNS.get(step, step.removeprefix(ONLY_MATCHES))}
    invert = step.startswith(ONLY_MATCHES)
    behavior = "Removed" if invert else "Isolated"
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


# Expressions of other programs are for Oniguruma, which tokenizers has. ALIKE matches what it is known to read as regex
# does; tests compare. Anything else is refused: {1,3}+ is (?:x{1,3})+ there, \pL is "pL", $ is the end of a line.
# A file that begins as save() writes it is read as regex does: no other program ends lines like this.
OUR_BEGINNING = b'{"version": "1.0",\n"truncation"'
ALIKE = regex.compile(
    r"(?(DEFINE)(?P<name>[CLMNPSZ][a-z]?|Han|Hiragana|Katakana|Hangul|Bopomofo|Latin|Greek|Cyrillic|Arabic|Hebrew|Thai|Lao"
    r"|Devanagari|Bengali|Tamil|Armenian|Georgian|Khmer|Myanmar|Tibetan|Common|Inherited|Alphabetic|Letter)"
    r"(?P<one>\\[nrtfav]|\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\[^\w\s]|\\ )(?P<class>\\[dDsS]|\\[pP]\{\^?(?&name)\})"
    r"(?P<in_set>(?&one)|[^]\\[&|~-]|&(?!&)|\|(?!\|)|~(?!~))"
    r"(?P<operand>(?:(?&in_set)-(?&in_set)(?!-)|(?&in_set)|(?&class)|(?&set))++)"
    r"(?P<set>\[(?!:)\^?-?(?&operand)(?:-|(?:&&(?&operand))*+)\]))"
    r"(?:\\s\+\+\$(?=\||$)|(?&one)|(?&class)|(?&set)|[^]\\[(){}|*+?.^$]|[.|)]"
    r"|\(\?i:(?:['’|a-hj-zA-HJ-Z]|\[[a-hj-zA-HJ-Z]+\])*+\)|\((?![?*])|\(\?(?::|>|<?[=!])"
    r"|[*+?][?+]?|\{[0-9]+\}(?![?+])|\{[0-9]+,[0-9]*\}(?!\+))*+", regex.V0)  # fmt: skip


def differs_in_oniguruma(expression: str) -> str:
    """Return the beginning of what Oniguruma reads differently from regex, or may; "" if there is nothing."""
    check_size(expression)
    end = ALIKE.match(expression).end()  # type: ignore[union-attr]  # it matches the empty string
    # (?i:st) matches one character there, U+FB06
    folded = re.search(r"\(\?i:[^)]*?(?:s[st]|f[fl])", expression, re.IGNORECASE)
    if folded or end < len(expression):
        return folded[0] if folded else expression[end : end + 20]
    # After "" at a place, regex may find more there, and Oniguruma doesn't. A lookaround may read nothing, too.
    without_lookarounds = compile_pattern(re.sub(r"\(\?<?[=!]", "(?:|", expression))
    return expression[:20] if without_lookarounds.fullmatch("") else ""


# From here on, files that another program wrote are read. A tokenizer.json is compared with what save()
# would write for its tokens and its steps. A difference is an error that names it, except for entries
# that change no id: trim_offsets is about places in text, and decoding uses neither add_prefix_space
# nor use_regex. Such a file may come from anywhere, so reading it takes time and memory like its size.
HARMLESS = r".*\.trim_offsets|decoder\.(add_prefix_space|use_regex)"
UNUSED = ["truncation", "padding", "post_processor"]  # save() writes them back; encode() ignores them


def differences(ours: Any, theirs: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) for each value in a tree of JSON that differs from ours.

    In {"a": {"b": [1]}}, 1 has the name a.b.0. Null, false, 0, "" and empty lists mean the same as no
    entry; for a value that only our tree has, yield (name, None).
    """
    pairs = [("", ours, theirs)]  # not a recursion, because a file may be nested deeper than Python's stack
    while pairs:
        name, our_tree, their_tree = pairs.pop()
        if (our_tree or None) == (their_tree or None):
            continue
        if not isinstance(their_tree, (dict, list)) or len(name) > 98:  # else 20,000 names could be long
            yield name, their_tree or None
            continue
        if our_tree and not isinstance(our_tree, (dict, list)):
            yield name, None
        our_values, their_values = entries_of(our_tree), entries_of(their_tree)
        for key in reversed({**our_values, **their_values}):
            full_name = f"{name}.{key!s:.99}" if name else f"{key!s:.99}"
            pairs.append((full_name, our_values.get(key), their_values.get(key)))


def entries_of(tree: Any) -> dict[Any, Any]:
    """Return the entries of a dict or a list, else none."""
    return tree if isinstance(tree, dict) else dict(enumerate(tree)) if isinstance(tree, list) else {}


def read_tokenizer_json(data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of Tokenizer, and those with a name that only some models need.

    Raises ValueError for what is not supported, KeyError for what is missing.
    """
    content, is_ours = json.loads(data), data.startswith(OUR_BEGINNING)
    model, added = content["model"], content.get("added_tokens") or []
    model_type = json.dumps(model.setdefault("type", "BPE"))
    require(model_type == '"BPE"', f"model.type = {model_type:.99} is not supported")
    # older versions write a pair as "t h"; partition() is faster than split()
    pairs = [pair.partition(" ")[::2] if isinstance(pair, str) else pair for pair in model.pop("merges", [])]
    vocab = model.pop("vocab", {})
    if all(character in vocab for character in CHARACTERS):  # no byte is unknown
        model.pop("unk_token", None)

    specials, reasons = tuple(token["content"] for token in added), []
    try:
        check_special_tokens(specials)
        check_special_names(filter(vocab.__contains__, specials))  # others name no other token
    except ValueError as error:  # such as "\n", of one byte; there may be more reasons
        reasons.append(f"{error!s:.200}")
    special_ids = ids_by_position(vocab, specials)  # check_supported() compares them with the ids in the file
    vocab = {text: token_id for text, token_id in vocab.items() if text not in special_ids}

    pattern, entries = read_steps(content, is_ours)
    kept = tuple(token["content"] for token in added if not token.get("special"))
    normalized = tuple(token["content"] for token in added if token.get("normalized"))
    rest = {name: content[name] for name in UNUSED if content.get(name)}
    ignore_merges = model.get("ignore_merges") is True
    settings: dict[str, Any] = {"kept": kept, "normalized": normalized, "rest": rest, "ignore_merges": ignore_merges}
    options = Options(specials, pattern, **settings)
    check_supported(content, entries, options, special_ids, reasons)
    vocab, merges = to_bytes(vocab | special_ids, pairs, specials)
    # a tuple: a warning about tokens that no merge makes would not help, since the ids are right
    return (vocab, tuple(merges), specials, pattern), {name: value for name, value in settings.items() if value}


def read_steps(content: dict[str, Any], is_ours: bool) -> tuple[Pattern, dict[str, Any]]:
    """Return the pattern of a tokenizer.json; and its normalizer and pre_tokenizer, spelled as by save()."""
    normalizer = content.get("normalizer") or {}
    while normalizer.get("type") == "Sequence" and len(normalizer["normalizers"]) < 2:
        normalizer = (normalizer["normalizers"] or [{}])[0]
    pattern = [normalizer["type"]] if normalizer.get("type") in NORMAL_FORMS else []
    pre_tokenizer, steps = content.get("pre_tokenizer") or {}, []
    for step in pre_tokenizer.get("pretokenizers", [pre_tokenizer]):
        literal = step.get("pattern", {}).get("String")
        if literal:  # tokenizers makes an expression of it, too
            step = {**step, "pattern": {"Regex": f"(?:{regex.escape(step['pattern']['String'])})"}}
        kind, expression = step.get("type"), step.get("pattern", {}).get("Regex", "")
        if kind == "Digits":
            expression = r"\p{N}" if step.get("individual_digits") else r"\p{N}+"
            step = split_step(expression)
        elif kind == "ByteLevel" and step.get("use_regex", True):  # the default: it splits text, too
            pattern.append("gpt2")
            steps.append(split_step("gpt2"))
            step = {**step, "use_regex": False}
        if kind != "ByteLevel":
            ours = (ONLY_MATCHES if step.get("invert") else "") + expression
            if step == split_step(ours) and (is_ours or literal or not differs_in_oniguruma(expression)):
                pattern.append(check_pattern(ours))
                step = split_step(pattern[-1])  # so that any spelling of a named pattern compares equal
            else:  # check_supported() reports it; a placeholder keeps the index of later steps
                pattern.append("gpt2")
        steps.append(step)
    entries = {"normalizer": normalizer, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}
    return check_pattern(tuple(pattern)), entries


def check_supported(content: dict[str, Any], entries: dict[str, Any], options: Options,
                    special_ids: Mapping[str, int], other_reasons: Sequence[str]) -> None:
    """Raise ValueError for each entry of a tokenizer.json that could change ids, with its value, in one line."""
    expected = tokenizer_json(options, {}, special_ids, [])
    del expected["model"]["vocab"]
    decoder = content.get("decoder") or expected["decoder"]
    found = differences(expected, {**content, **entries, "decoder": decoder})
    different = {name: value for name, value in found if not re.fullmatch(HARMLESS, name)}
    values = {name: value for name, value in different.items() if value is not None}
    # where only our side has values, as for "pre_tokenizer": null, their whole entry is shown
    entries_shown = {name.split(".")[0] for name in values}
    for entry in (name.split(".")[0] for name in different):
        if entry not in entries_shown:
            values[entry] = content.get(entry)
    reasons = []
    for name, value in values.items():
        part = differs_in_oniguruma(value) if name.endswith(".pattern.Regex") else ""
        why = f", of which tokenizers and Python's regex may read {part!r} differently," if part else ""
        reasons.append(f"{name:.99} = {json.dumps(value):.99}{why}")
    reasons += [*other_reasons, *unsupported_tokens(options), *unsupported_templates(content)]

    rest = " not supported"
    lengths = list(itertools.accumulate(len(reason) + 2 for reason in reasons))
    most = 280 if not lengths or lengths[-1] <= 280 else 260  # what is left of 300 is for the words below
    shown = reasons[: max(1, sum(length <= most for length in lengths))]
    n_values = min(len(shown), len(values))
    if n_values:
        shown[n_values - 1] += (" is" if n_values == 1 else " are") + rest
    if len(shown) < len(reasons):
        shown.append(f"and {len(reasons) - len(shown):,} more")
    require(not shown, "{}", "; ".join(shown))


def unsupported_tokens(options: Options) -> Iterator[str]:
    """Yield a reason for each added token that the package tokenizers could find elsewhere than we do."""
    # In "<a><b>", if "<a>" is normalized and "a><b" is not, the package tokenizers finds "a><b": it
    # first searches the whole text for tokens that are not normalized. We do so only with a normal
    # form. (In "a><b><c>", "a><b" begins first, so we find it, too.)
    form = steps_of(options.pattern)[0]
    others = () if form else set(options.special_tokens).difference(options.normalized)
    for token in overlapping(options.normalized, others):
        yield f"the added token {token!r:.99} overlaps another, and only one is normalized"
    for token in options.normalized:
        if form and token != normalize(form, token):
            yield f"the normalized added token {token!r:.99} is not in {form}"


def overlapping(tokens: Sequence[str], others: Iterable[str]) -> Iterator[str]:
    """Yield each token that has one of the others in it, or ends with a beginning of one.

    This is the algorithm of Aho and Corasick (1975), since comparing all pairs takes too long. A state is
    a beginning of some of the others; state 0 is the empty one.
    """
    following: dict[tuple[int, str], int] = {}  # (state, next character) -> state
    shorter = [0]  # the state of the longest proper ending of a state that is a state, too
    complete = {0: False}  # whether a state ends with one of the others

    def after(state: int, character: str) -> int:
        while state and (state, character) not in following:
            state = shorter[state]
        return following.get((state, character), 0)

    left = [(other, 0) for other in others if tokens]
    for place in itertools.count():  # the shortest states first
        left = [(other, state) for other, state in left if place < len(other)]
        if not left:
            break
        for number, (other, state) in enumerate(left):
            new = following.get((state, other[place]))
            if new is None:
                new = len(shorter)
                shorter.append(after(shorter[state], other[place]) if state else 0)
                following[state, other[place]] = new
                complete[new] = complete[shorter[new]]
            complete[new] |= place + 1 == len(other)
            left[number] = other, new
    for token in tokens:
        state, found = 0, False
        for character in token:
            state = after(state, character)
            found |= complete[state]
        if found or state:
            yield token


def unsupported_templates(content: dict[str, Any]) -> Iterator[str]:
    """Yield a reason for each template in which the text does not occur once."""
    processor = content.get("post_processor") or {}
    for step in processor.get("processors", [processor]):
        template = step.get("single", [{"Sequence": {"id": "A"}}])
        texts = [part["Sequence"]["id"] for part in template if "SpecialToken" not in part]
        if texts != ["A"]:
            yield f"a template of {json.dumps(template):.99} is not supported: text A must be in it once"


def read_vocab(content: Any) -> dict[str, int]:
    """Return {token: id} from the content of a vocab.json. Raises ValueError for {id: token}."""
    ids = dict(content)
    for name, value in itertools.islice(ids.items(), 1):
        if isinstance(value, str) and name.isdecimal():
            way = "ids = {token: int(i) for i, token in json.load(open(path)).items()}"
            way += '; json.dump(ids, open("vocab.json", "w"))'
            raise ValueError(f"this is {{id: token}}, not {{token: id}}; to convert it: {way}")
    return ids


def to_bytes(ids: Mapping[str, int], pairs: Sequence[Sequence[str]], special_tokens: Sequence[str]) -> Model:
    """Return (vocab, merges) for ids and merges of printable tokens and of special tokens."""
    tokens = {text: to_token(text) for text in ids}
    tokens |= {text: text.encode("utf-8") for text in special_tokens if text in ids}
    vocab = {token_id: tokens[text] for text, token_id in ids.items()}
    require(len(vocab) == len(ids), "two tokens have the same id")
    try:
        return vocab, [(tokens[left], tokens[right]) for left, right in pairs]
    except KeyError as error:
        raise ValueError(f"a merge uses {error!s:.99}, which is not in the vocabulary") from None
    except ValueError:
        wrong = next((number, pair) for number, pair in enumerate(pairs) if len(pair) != 2)
        raise ValueError("merge {} (from 0) must be two tokens, not {!r:.99}".format(*wrong)) from None


def read_merges(text: str, vocab: Mapping[str, int] | None = None) -> list[list[str]]:
    """Return the pairs of printable tokens in a merges.txt; vocab, if given, must have them."""
    require(text.strip(), "the file is empty")
    lines = re.sub("^#version.*", "", text).split("\n")  # ^ is only the beginning of the text
    pairs = {number: line.split(" ") for number, line in enumerate(lines, 1) if line}
    made = set(map("".join, pairs.values()))
    # 116 104, or (116, 104), or [[116, 104], ...: as tokens, another merge would have to make 116
    ids = re.match(r"[\s\[(]*([0-9]+)[\s,]+([0-9]+)\b", "\n".join(lines[:2]))
    if ids and any(len(token) > 1 and token not in made for token in ids.groups()):
        way = "names = {i: token for token, i in json.load(open('vocab.json')).items()}"
        way += "; lines = [f'{names[left]} {names[right]}' for left, right in pairs]"
        raise ValueError(f"these are pairs of ids, not of tokens; to convert them: {way}")
    for number, pair in pairs.items():
        if len(pair) != 2:
            raise ValueError(f"line {number} must be two tokens separated by one space: {' '.join(pair)!r:.100}")
        for token in (*pair, "".join(pair)) if vocab is not None else ():
            if token not in vocab:  # type: ignore[operator]
                raise ValueError(f"line {number}: {token!r} is not in vocab.json")
            if token not in made and len(to_token(token)) > 1:
                hint = "these are not merges of bytes (CLIP's have </w> at the end of words, others @@ inside)"
                raise ValueError(f"line {number}: no merge makes {token!r}; {hint}")
    return list(pairs.values())


def read_tiktoken(path: FilePath | Mapping[Any, Any]) -> Model:
    """Read a .tiktoken file, such as cl100k_base.tiktoken; return (vocab, merges).

    Each line has a token in base64 and its rank, which is its id. The merges are all ways to make a
    token of two others, in the order of ranks; words that are tokens stay whole. Instead of a path, take
    ranks as programs hold them in memory: {token: rank}, as tiktoken does, or {rank: token}.
    """
    ids = ranks_in_memory(path) if isinstance(path, Mapping) else ranks_of_file(path)
    vocab = {rank: token for token, rank in ids.items()}
    # Only places that leave lengths of other tokens: a token of 300 KB has 300,000 places in all.
    lengths = sorted({len(token) for token in ids if token})
    splits = [
        (rank, ids[token[:end]], ids[token[end:]])
        for token, rank in ids.items()
        for end in itertools.takewhile(len(token).__gt__, lengths)
        if token[:end] in ids and token[end:] in ids
    ]
    return vocab, WordsFirst((vocab[left], vocab[right]) for _, left, right in sorted(splits))


def ranks_in_memory(ranks: Mapping[Any, Any]) -> dict[bytes, int]:
    """Return {token: rank} for that, or for {rank: token}."""
    pairs = [pair if isinstance(pair[0], bytes) else pair[::-1] for pair in ranks.items()]
    for token, rank in pairs:
        valid = isinstance(token, bytes) and hasattr(rank, "__index__") and rank >= 0
        require(valid, "ranks must be {{bytes: rank}} or {{rank: bytes}}, not {!r:.60} with {!r:.60}", token, rank)
    ids = {token: operator.index(rank) for token, rank in pairs}
    require(len(ids) == len(set(ids.values())) == len(ranks), "two tokens have the same rank, or a token has two ranks")
    require(ids, "there are no ranks")
    return ids


def ranks_of_file(path: FilePath) -> dict[bytes, int]:
    """Return {token: rank} for a .tiktoken file."""
    in_base64 = b"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:[A-Za-z0-9+/]{2}|[A-Za-z0-9+/]=|==)|=)"
    ids: dict[bytes, int] = {}
    ranks: set[int] = set()
    with open(path, "rb") as file, error_prefix(path):
        for number, line in enumerate(file.read().removeprefix(codecs.BOM_UTF8).splitlines(), 1):
            if line:
                match = re.fullmatch(b"(%s) ([0-9]+)" % in_base64, line)  # "=" is b"" in Whisper's file
                if not match:
                    raise ValueError(f"line {number} must be a token in base64 and its rank: {line!r:.60}")
                token, rank = base64.b64decode(match[1]), int(match[2])
                # of a file that ends too early, the last line may have 25 instead of 257
                fresh = token not in ids and rank not in ranks
                require(fresh, "line {} repeats a token or a rank: {!r:.60}", number, line)
                ids[token] = rank
                ranks.add(rank)
        require(ids, "the file is empty")
    return ids


@contextlib.contextmanager
def error_prefix(path: FilePath, hint: str = "vocab.json and merges.txt are for Tokenizer.from_files") -> Any:
    """Put a file's name before an error of at most 300 characters.

    Any error but a plain ValueError means another kind of file.
    """
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        text = str(error)
        if type(error) is not ValueError:
            text = f"not a byte-level BPE model ({error!r:.99}); {hint}, .tiktoken files for read_tiktoken"
        with open(path, "rb") as file:
            start = file.read(100).strip()
        if start.startswith(b"version https://git-lfs"):
            text = "this is a Git LFS pointer, not the file itself, which `git lfs pull` gets"
        elif start.startswith(b"<"):
            text = "this looks like a web page, not a model"
        text = text if len(text) <= 300 else f"{text[:299]}…"
        raise ValueError(f"{os.fspath(path)}: {text if start else 'the file is empty'}") from None


# ------------------------------
# IX. Large corpora
# ------------------------------

# A corpus is read in slices, cut where no word changes. Workers count or encode them at the same time.

SLICE_BYTES = 1 << 20  # how much text a worker counts or encodes at a time, in Python in about 0.2 s
SLICE_BYTES_IN_C = 2 << 20  # the same for a thread in C
SLICE_TEXTS = 1 << 14  # how many texts a slice has at most: they may all be empty
SLICE_FILES = 256  # the same for small files, which take time to open
BATCH_BYTES = 256 << 10  # the same for threads of encode_batch
WINDOW_BYTES = 64 << 10  # how much text is searched for a cut at a time
MOST_WORKERS = 61  # on Windows, a pool of processes can't be larger


class Slice(NamedTuple):
    """A part of a corpus: texts in UTF-8, or bytes of a file, which a worker reads."""

    name: str
    start_byte: int
    end_byte: int
    texts: tuple[bytes, ...] = ()  # empty if a worker reads a part of a file
    first_text: int | None = None  # the number of texts[0] among all texts; None for contents of a file
    files: tuple[Slice, ...] = ()  # small files that a worker reads, each a text


class Corpus:
    """The files or texts of a call."""

    def __init__(self, paths: Paths, texts: Strings, options: Options) -> None:
        require((paths is None) != (texts is None), "pass either the path of a file or texts=..., and not both")
        require(not isinstance(texts, (str, bytes)), "texts must be an iterable of strings, not one string")
        self.paths: list[str] = []
        if paths is not None:
            listed = [paths] if isinstance(paths, (str, bytes, os.PathLike)) else paths
            self.paths = [os.fsdecode(path) for path in listed]
            require(self.paths, "no file: the list of paths is empty")
        for path in self.paths:
            pattern = os.path.join(path, "*.txt")
            require(not os.path.isdir(path), "{} is a folder; name its files: glob.glob({!r})", path, pattern)
        # 0 for pipes, files in /proc, and empty files
        self.sizes = [0 if path == "-" else size_of(path) for path in self.paths]
        self.n_bytes = sum(self.sizes) if all(self.sizes) else 0  # 0: unknown, as for texts
        self.texts = () if texts is None else texts
        self.options = options
        self.bytes_read = 0
        self.n_slices = 0

    def map(self, work: Callable[[Sequence[bytes]], T], in_threads: bool, label: str = "", slice_bytes: int = 0,
            most_workers: int = MOST_WORKERS) -> Generator[tuple[Slice, T], None, None]:
        """Yield (slice, work(its texts)) in order, from threads or processes."""

        def progress(_: int) -> str:
            share = f" ({self.bytes_read / self.n_bytes:.0%})" if self.n_bytes else ""
            return f"{label}: {self.bytes_read / 1e6:,.0f} MB{share}"

        task = functools.partial(run_task, work, self.options.errors)
        slice_bytes = slice_bytes or (SLICE_BYTES_IN_C if in_threads else SLICE_BYTES)
        most_workers = min(self.options.workers or most_workers, most_workers)
        results = run_tasks(task, self.slices(slice_bytes), in_threads, most_workers)
        # After Ctrl-C, a notebook keeps the traceback, and with it all generators. The pool of workers
        # would live on if they weren't closed, here and by those that call map().
        with contextlib.closing(results):
            for part, result in with_progress(results, self.options.progress, progress):
                self.bytes_read += part.end_byte - part.start_byte
                self.n_slices += 1
                yield part, result

    def slices(self, slice_bytes: int) -> Iterator[Slice]:
        """Cut files into slices of about slice_bytes, and collect texts into such slices."""
        yield from slices_of_texts(self.texts, slice_bytes, self.options.errors)
        small = slice_bytes // 8  # a task takes time to be handed out, and a large one delays others
        sizes = zip(self.paths, self.sizes)
        for are_small, group in itertools.groupby(sizes, lambda pair: 0 < pair[1] < small):
            if are_small:
                yield from slices_of_small_files((path for path, _ in group), small)
                continue
            for path, size in group:
                slices_of = slices_of_file if size else slices_of_pipe
                yield from slices_of(path, slice_bytes, self.options)
                if self.options.end is not None:
                    yield Slice(path, size, size, (b"",), 0)  # an empty text: encode_corpus writes `end` after it


def size_of(path: str) -> int:
    """Return the size of a file. If there is no such file, the error says how to pass strings."""
    try:
        return os.stat(path).st_size
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENAMETOOLONG):
            error.strerror = f"{error.strerror} (to pass strings instead of files: texts=[...])"
            error.filename = f"{path:.100}"
        raise


TEXTS_OF_JSON = 'pass its texts=(json.loads(line)["text"] for line in open(path)); encode_files(end=...) ends each one'


def json_note(paths: Iterable[str], way: str = TEXTS_OF_JSON) -> str:
    """Return a note on files whose names say that they are JSON, with a way to read its texts, else ""."""
    is_json = any(path.endswith((".jsonl", ".json")) for path in paths)
    return f"JSON is read as plain text, with its braces; {way}" if is_json else ""


def find_cut(window: bytes, options: Options) -> int:
    """Return last_cut(window, ...) for the options of a call."""
    engine = engine_for(options, scanning=True)
    return last_cut(window, options.pattern, options.special_tokens, options.normalized, engine)


def slices_of_file(path: str, slice_bytes: int, options: Options) -> Iterator[Slice]:
    """Cut a file into slices."""
    size = os.stat(path).st_size
    start = 0
    window_start = slice_bytes
    with file_in_errors(path), open(path, "rb") as file:
        while window_start + WINDOW_BYTES < size:
            file.seek(window_start)
            if cut := find_cut(file.read(WINDOW_BYTES), options):
                yield Slice(path, start, window_start + cut)
                start = window_start + cut
                window_start = start + slice_bytes
            else:
                window_start += WINDOW_BYTES // 2  # windows overlap, because last_cut avoids their ends
    yield Slice(path, start, size)


def slices_of_small_files(paths: Iterable[str], slice_bytes: int) -> Iterator[Slice]:
    """Collect files into slices."""
    files: list[Slice] = []
    n_bytes = 0
    for path in paths:
        files.append(Slice(path, 0, os.stat(path).st_size))
        n_bytes += files[-1].end_byte
        if n_bytes >= slice_bytes or len(files) == SLICE_FILES:
            yield Slice("", 0, n_bytes, files=tuple(files))
            files = []
            n_bytes = 0
    if files:
        yield Slice("", 0, n_bytes, files=tuple(files))


def slices_of_texts(texts: Iterable[str], slice_bytes: int, errors: str) -> Iterator[Slice]:
    """Collect texts into slices."""
    encode: Callable[[str], bytes] = str.encode  # faster than a call of to_utf8
    if errors == "replace":
        encode = functools.partial(to_utf8, errors=errors)
    collected: list[bytes] = []
    n_bytes = 0
    for number, text in enumerate(texts):
        try:
            utf8 = encode(text)
        except UnicodeEncodeError as error:
            raise ValueError(f"texts[{number}]: {error}; errors='replace' makes it U+FFFD") from None
        except TypeError:
            raise ValueError(f"texts[{number}]: text must be a str, not {type(text).__name__}") from None
        collected.append(utf8)
        n_bytes += len(utf8)
        if n_bytes >= slice_bytes or len(collected) == SLICE_TEXTS:
            yield Slice("", 0, n_bytes, tuple(collected), number + 1 - len(collected))
            collected = []
            n_bytes = 0
    if collected:
        yield Slice("", 0, n_bytes, tuple(collected), number + 1 - len(collected))


def slices_of_pipe(path: str, slice_bytes: int, options: Options) -> Iterator[Slice]:
    """Cut a pipe, or standard input, into slices."""
    start = 0
    with file_in_errors(path), open(0 if path == "-" else path, "rb", closefd=path != "-") as pipe:
        blocks = iter(functools.partial(pipe.read, WINDOW_BYTES // 2), b"")
        for data in cut_stream(blocks, options, slice_bytes, slice_bytes):
            yield Slice(path, start, start + len(data), (data,))
            start += len(data)


def cut_stream(blocks: Iterable[bytes], options: Options, first: int, most: int) -> Iterator[bytes]:
    """Join blocks, and cut where no word changes.

    The first part has about `first` bytes, each later one twice as many as the one before, up to `most`.
    """
    data = bytearray()
    wanted = first  # how many bytes before the next search for a cut
    for block in blocks:
        data += block
        if len(data) < wanted:
            continue
        window = bytes(data[-WINDOW_BYTES:])
        if cut := find_cut(window, options):
            cut += len(data) - len(window)
            yield bytes(data[:cut])
            del data[:cut]
            wanted = min(2 * wanted, most)
        else:
            # "aaaa...", 10 bytes at a time: a search after each block would take quadratic time
            wanted = len(data) + min(len(data), WINDOW_BYTES // 2)
    if data:
        yield bytes(data)


def run_tasks(task: Callable[[Slice], T], slices: Iterator[Slice], in_threads: bool,
              most_workers: int) -> Generator[tuple[Slice, T], None, None]:
    """Yield (slice, task(slice)) in order, from at most most_workers threads or processes."""
    first_slices = list(itertools.islice(slices, min(most_workers, 2)))  # with one, cores need not be counted
    if len(first_slices) == 2:
        most_workers = min(most_workers, count_cores())
        first_slices += itertools.islice(slices, max(most_workers - 2, 0))
    n_workers = min(most_workers, len(first_slices))
    slices = itertools.chain(first_slices, slices)
    # If this module was loaded without an entry in sys.modules, worker processes would not find
    # run_in_worker there, and the pool would wait for them forever.
    named = getattr(sys.modules.get(__name__), "run_in_worker", None) is run_in_worker
    pool = None
    try:
        if n_workers > 1 and (in_threads or named):
            with delayed(signal.SIGINT), delayed(signal.SIGTERM):
                pool = start_threads(n_workers) if in_threads else start_processes(n_workers, task)
        if pool is None:
            for part in slices:
                yield part, task(part)
            return
        submissions = (submitted(pool, task, part, in_threads) for part in slices)
        # Each worker has a slice, and one more waits: all of a large corpus would fill the memory
        waiting = collections.deque(itertools.islice(submissions, n_workers))
        while waiting:
            waiting.extend(itertools.islice(submissions, 1))
            part, result = waiting.popleft()
            yield part, result()
    finally:
        if pool is not None:
            pool.shutdown(cancel_futures=True)


def count_cores() -> int:
    """Return how many cores this process may use."""
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(n_cores, cores_of_quota())


@functools.lru_cache(maxsize=1)
def cores_of_quota() -> int:
    """Return how many cores a container's share of time is worth, or MOST_WORKERS if it has no limit."""
    for names in ["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]:  # control groups 2 and 1
        with contextlib.suppress(OSError, ValueError):  # the quota may be "max", or -1
            texts = [pathlib.Path("/sys/fs/cgroup", name).read_text() for name in names]
            quota, period = map(int, " ".join(texts).split())
            if quota > 0:
                return -(-quota // period)  # rounded up
    return MOST_WORKERS


def start_threads(n_threads: int) -> concurrent.futures.Executor | None:
    """Return a pool whose threads all run, or None if the system refuses one."""
    pool = None
    started = False
    starting = threading.Lock()

    def wait() -> None:
        with starting:
            pass

    starting.acquire()
    try:
        import concurrent.futures  # fails if the main thread has ended

        pool = concurrent.futures.ThreadPoolExecutor(n_threads)
        # A pool starts a thread when it gets a task. If that fails, it keeps the task, and another thread
        # may run it: so no task that counts words comes before all threads are there.
        for _ in range(n_threads):
            pool.submit(wait)
        started = True
    except (RuntimeError, ImportError, MemoryError):
        pass
    finally:
        starting.release()
    if pool is not None and not started:
        pool.shutdown()
    return pool if started else None


def start_processes(n_processes: int, task: Callable[[Slice], object]) -> concurrent.futures.Executor | None:
    """Return a pool of processes that have a task, or None if it can't start.

    Daemon processes may have no children, some systems have no semaphores, and others no more room.
    """
    pool = None
    # Each process has a thread, and the pool has two. If they had no room, it would wait forever.
    threads = start_threads(2 * n_processes + 2)
    if threads is None:
        return None
    threads.shutdown()
    try:
        import concurrent.futures
        import multiprocessing

        context = multiprocessing.get_context("fork" if sys.platform == "linux" else None)
        # a process gets the task once, at its start: a vocabulary is large
        pool = concurrent.futures.ProcessPoolExecutor(n_processes, context, start_worker, (task,))
        pool.submit(os.getpid)  # starts them
    except Exception as error:
        if "bootstrapping" in str(error):  # this is a worker that loads a script without a guard
            raise
        if pool is not None:
            for process in (pool._processes or {}).values():  # those that did start
                process.kill()
                process.join()
            pool.shutdown(wait=False)
        return None
    return pool


def submitted(pool: concurrent.futures.Executor, task: Callable[[Slice], T], part: Slice,
              in_threads: bool) -> tuple[Slice, Callable[[], T]]:
    """Hand a slice to a pool; return it, and a function that waits for its result."""
    import concurrent.futures
    import queue

    # If Ctrl-C interrupts a method of the pool, or of a future that isn't done, this thread may
    # keep a lock for which a worker waits forever. A SimpleQueue is written in C, and can't be
    # interrupted halfway.
    done: queue.SimpleQueue[concurrent.futures.Future[T]] = queue.SimpleQueue()
    try:
        with delayed(signal.SIGINT), delayed(signal.SIGTERM):
            pool.submit(task if in_threads else run_in_worker, part).add_done_callback(done.put)
    except concurrent.futures.BrokenExecutor:  # a worker was killed
        raise
    except RuntimeError:  # the main thread has ended since the pool started, so it takes no more tasks
        return part, functools.partial(task, part)
    return part, lambda: done.get().result()


def start_worker(task: Callable[[Slice], object]) -> None:
    """Prepare a worker process: leave Ctrl-C to the parent, and exit when it dies."""
    import multiprocessing

    def end_with_parent() -> None:
        multiprocessing.parent_process().join()  # type: ignore[union-attr]
        os._exit(1)

    run_in_worker.task = task  # type: ignore[attr-defined]
    if callable(signal.getsignal(signal.SIGTERM)):  # main() has set it before the fork
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if os.name == "posix":
        # A worker that dies while it sends a result blocks the pool, so Ctrl-C must not reach it
        os.setsid()
    threading.Thread(target=end_with_parent, daemon=True).start()


def run_in_worker(part: Slice) -> Any:
    """Run the task of this worker process, which start_worker() has stored here."""
    return run_in_worker.task(part)  # type: ignore[attr-defined]


def run_task(work: Callable[[Sequence[bytes]], T], errors: Errors, part: Slice) -> T:
    """Return work(texts of a slice); add the file and the place to its errors."""
    try:
        texts = part.texts or [read_part(file) for file in part.files or (part,)]
        if errors == "replace":
            texts = [text.decode("utf-8", "replace").encode("utf-8") for text in texts]
        return work(texts)
    except (OSError, ValueError) as error:
        for file in part.files:
            run_task(work, errors, file)  # the first one with an error raises it, with its place
        if isinstance(error, OSError):
            raise
        place = f"{part.name}, bytes {part.start_byte} to {part.end_byte}"
        if isinstance(error, UnicodeDecodeError):
            byte = f"byte {part.start_byte + error.start} (0x{error.object[error.start]:02x}, {error.reason})"
            raise ValueError(f"{part.name}: not valid UTF-8 at {byte}") from None
        if part.first_text is not None:
            place = f"texts[{part.first_text + getattr(error, 'number', 0)}]"
        raise ValueError(f"{place}: {error}") from None


def read_part(part: Slice) -> bytes:
    """Read the bytes of a slice of a file."""
    n_bytes = part.end_byte - part.start_byte
    with file_in_errors(part.name), open(part.name, "rb") as file:
        file.seek(part.start_byte)
        data = file.read(n_bytes)
    require(len(data) == n_bytes, "the file has fewer bytes now")
    return data


def count_corpus(corpus: Corpus) -> Table:
    """Count words in a table of the C engine, or in a WordTable if C can't be used."""
    options = corpus.options
    results: Generator[tuple[Slice, Any], None, None]
    if engine := engine_for(options, scanning=True):
        table: Any = engine.words(options.special_tokens, options.pattern)
        # one thread for each 16 MB of text: each has its table, and all are merged at the end
        most_workers = corpus.n_bytes // (8 * SLICE_BYTES_IN_C) + 1 if corpus.n_bytes else MOST_WORKERS
        # one thread collects texts; the smaller their slices are, the sooner the others begin
        slice_bytes = SLICE_BYTES_IN_C if corpus.paths else SLICE_BYTES // 2
        results = corpus.map(lambda texts: table.scan(*texts), True, "counting words", slice_bytes, most_workers)
    else:
        reason = "engine 'c' can't count words after a normal form; engine 'auto' can"
        require(options.engine != "c" or find_engine()[1], reason)
        table = WordTable()
        results = corpus.map(functools.partial(count_texts, options=options), False, "counting words")
    with contextlib.closing(results):
        for _, counts in results:
            if counts:  # None from C, which has counted in its table
                table.update(counts)
    return table  # type: ignore[no-any-return]


def count_texts(texts: Iterable[bytes], options: Options) -> dict[bytes, int]:
    """Return the count of each word in texts."""
    counts: collections.Counter[str] = collections.Counter()
    for utf8 in texts:
        for text in special_token_finder(options.special_tokens).split(utf8.decode("utf-8"))[::2]:
            counts.update(find_words(text, options.pattern))
    return {word.encode("utf-8"): count for word, count in counts.items()}


def encode_corpus(tokenizer: Tokenizer, corpus: Corpus, output: FilePath) -> int:
    """Write the token ids of a corpus into a .npy or .bin file; return how many there are."""
    name, id_bytes = os.fspath(output), tokenizer.id_bytes
    rule = "the name of the output must end in .npy (for numpy.load) or .bin (uint16 without a header)"
    require(name.endswith((".npy", ".bin")), f"{rule}, not {name!r}")
    if name.endswith(".bin") and id_bytes > 2:
        most = f"a .bin file has ids up to 65,535, but this vocabulary has ids up to {max(tokenizer.vocab):,}"
        raise ValueError(f"{most}; use a name that ends in .npy")
    check_outputs([output], corpus.paths)
    folder = os.path.dirname(os.path.realpath(output))  # a mistyped one should not be made
    require(os.path.isdir(folder), "no folder {}; create it first, or name another file", folder)
    end = b""
    if corpus.options.end is not None:
        end = tokenizer.special_ids[corpus.options.end].to_bytes(id_bytes, sys.byteorder)
        tokenizer = tokenizer.ordinary
    encoder = PythonEncoder(tokenizer) if corpus.options.engine == "python" else tokenizer.encoder
    encode_texts = functools.partial(encoder.encode_texts, kind=f"u{id_bytes}")
    results = corpus.map(encode_texts, not isinstance(encoder, PythonEncoder), "encoding")
    with new_files([output], keep=True) as [file], contextlib.closing(results), file_in_errors(output):
        header = npy_header(id_bytes, 0) if name.endswith(".npy") else b""
        file.write(header)
        for part, (ids, ends) in results:
            if end and (part.files or part.first_text is not None):  # whole texts, or the empty one after a file
                places = [0, *(place * id_bytes for place in ends)]
                ids = b"".join(ids[start:stop] + end for start, stop in itertools.pairwise(places))
            file.write(ids)
        n_ids = (file.tell() - len(header)) // id_bytes
        if header:
            file.seek(0)
            file.write(npy_header(id_bytes, n_ids))
    return n_ids


def most_threads(encoder: Encoder) -> int:
    """Return 1 for a PythonEncoder, whose threads would only fight for Python's lock."""
    return 1 if isinstance(encoder, PythonEncoder) else MOST_WORKERS


def npy_header(id_bytes: int, n_ids: int) -> bytes:
    """Return the 128 bytes before the ids in a .npy file, format 1.0."""
    order = "<" if sys.byteorder == "little" else ">"
    entries = f"{{'descr': '{order}u{id_bytes}', 'fortran_order': False, 'shape': ({n_ids},), }}"
    return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + entries.ljust(117).encode() + b"\n"


# ------------------------------
# X. The C engine
# ------------------------------

class Table(Protocol):
    """Words and their counts: a WordTable, or a table in C."""

    def add(self, pairs: Iterable[tuple[bytes, int]], /) -> None: ...
    def totals(self) -> tuple[int, int, int]: ...
    def drop_rare(self, n: int) -> tuple[int, int]: ...
    def copy(self) -> dict[bytes, int]: ...


class TableInC(Table, Protocol):
    """Threads may scan texts in UTF-8 into it at once: it has a table for each thread."""

    def scan(self, *texts: bytes) -> None: ...


class Encoder(Protocol):
    """A PythonEncoder, or an encoder in C."""

    def encode(self, utf8: bytes, /) -> list[int]: ...
    def encode_texts(self, texts: Sequence[bytes], kind: str = "") -> Any: ...
    def pause_collector(self) -> object: ...


class Engine(Protocol):
    """The interface that build_ffi.py and bpe_more/engine.py give to the C library."""

    lacks: str  # why it only learns; else ""

    def pattern(self, pattern: Pattern) -> tuple[Any, str]: ...  # (an automaton, ""), or (NULL, what C lacks)
    def cuts(self, pattern: Pattern, window: bytes) -> Iterator[int]: ...  # the last place first
    def words(self, special_tokens: Sequence[str], pattern: Pattern, /) -> TableInC: ...  # an empty one
    def learn(self, words: Any, merges_wanted: int, min_frequency: int) -> Iterator[Learned]: ...
    def encoder(self, tokenizer: Tokenizer) -> Encoder | None: ...  # None for too many tokens


@functools.lru_cache(maxsize=1)
def find_engine() -> tuple[Engine | None, str]:
    """Return (the C engine, "") if it is built next to this file, else (None, why it can't be used).

    Without the folder bpe_more, the engine only learns: then the reason says so.
    """
    path = os.path.join(os.path.dirname(globals().get("__file__", "")), "build_ffi.py")
    if "C engine of bpe.py" not in linecache.getline(path, 1):  # a file of another project is not run
        return None, "build_ffi.py, which builds it, is not next to bpe.py"
    try:
        spec: Any = importlib.util.spec_from_file_location("build_ffi", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        engine: Engine = module.load_engine(PATTERNS, __version__)
        return engine, engine.lacks
    except MemoryError:
        raise
    except Exception as error:
        return None, str(error)


def engine_for(options: Options, scanning: bool = False) -> Engine | None:
    """Return the C engine, or None for Python; if it is to scan text, it must support the pattern."""
    engine = find_engine()[0] if options.engine != "python" else None
    return None if engine and scanning and engine.pattern(options.pattern)[1] else engine


def lacking_in_c(pattern: Pattern) -> str:
    """Return what a pattern has that C can't scan, or ""; Python normalizes text before."""
    engine, _ = find_engine()
    _, steps = steps_of(pattern)
    return engine.pattern(steps[0] if len(steps) == 1 else steps)[1] if engine else ""


# ------------------------------
# XI. The command line
# ------------------------------

USAGE = """%(prog)s CORPUS [CORPUS ...] VOCAB_SIZE [options]     train, and write a model
       %(prog)s CORPUS [CORPUS ...] --encode FILE [options]  write token ids
       %(prog)s --show TEXT [options]                        show how the model splits TEXT"""
NOT_UTF8_HINT = """; if it is compressed: zcat FILE | bpe.py - ...; in another encoding, such as GB18030 \
or Latin-1: iconv -f ENCODING -t UTF-8 FILE | bpe.py - ...; or use --errors replace"""


TEXT_FILES = "write each text to a file, and give --encode the option --end TOKEN (in Python: texts= and end=)"
END_OF_TEXT = "<|endoftext|>"


def make_parser() -> ArgumentParser:
    """Return the parser. Options have the names of arguments, so that given_options() passes them on."""
    import argparse

    parser = argparse.ArgumentParser(usage=USAGE)
    parser.set_defaults(start=time.perf_counter())
    # when the disk is full, argparse in Python 3.14 would print half of the help, and no error
    parser._print_message = lambda message, file=None: say(message or "", "stdout")  # type: ignore
    # parser.error(message) raises ValueError
    parser.error = functools.partial(require, False)  # type: ignore
    add = parser.add_argument
    add("corpus", nargs="*", metavar="CORPUS ... VOCAB_SIZE", help="text files or - (stdin), then 10000 or 32k")
    more = f"a special token in addition to {END_OF_TEXT}; repeat the option for each"
    add("--special-token", action="append", dest="special_tokens", type=text_in_utf8, metavar="TEXT", help=more)
    none = f"no {END_OF_TEXT}: only those of --special-token"
    add("--no-special-tokens", action="append_const", const=None, dest="special_tokens", help=none)
    add("--pattern", type=text_in_utf8, help=f"{', '.join(PATTERNS)} or a custom pattern (default: gpt2)")
    add("--errors", choices=get_args(Errors), help="replace: read invalid UTF-8 as U+FFFD (default: strict)")
    add("--min-word-count", type=int, metavar="N", help="leave out words that occur fewer than N times (default: 1)")
    add("--min-frequency", type=int, metavar="N", help="merge no pair that occurs fewer than N times (default: 1)")
    add_task = parser.add_mutually_exclusive_group().add_argument
    add_task("--encode", metavar="FILE", help="write the token ids of the corpus to a .npy or .bin file")
    add_task("--show", type=text_in_utf8, metavar="TEXT", help="show how the model in FOLDER splits TEXT")
    add_task("--explain", metavar="N or A-B", help="say why the first N merges, or merges A to B, are made")
    add_task("--compare", metavar="FILE", help="explain the first merge that differs from those of a merges.txt")
    add("--model", metavar="FOLDER", help="the model's folder (default: bpeModel)")
    end = "with --encode: this special token ends each file, and is plain text in it"
    add("--end", type=text_in_utf8, metavar="TOKEN", help=end)
    add("--workers", type=int, metavar="N", help="the number of processes or threads (default: all cores)")
    add("--engine", choices=get_args(EngineName), help="auto: the C engine if it is built (default)")
    add("--quiet", action="store_true", help="no progress and no summary")
    add("--version", action="version", version=f"%(prog)s {__version__}")
    return parser


def given_options(args: Namespace, taken: Iterable[str]) -> dict[str, Any]:
    """Return the options that were given. Raises TypeError for one that isn't taken."""
    names_of_all = {**signature(train_bpe).parameters, **signature(Tokenizer.encode_files).parameters}
    options = [name for name in names_of_all if hasattr(args, name)]
    given = {name: value for name in options if (value := getattr(args, name)) is not None}
    for name in given.keys() - set(taken):
        names = ", ".join(name for name in options if name in taken)
        raise TypeError(f"{name!r} is not an option here; the options are {names}")
    return given


def parse(arguments: Sequence[str]) -> Namespace:
    """Return the parsed command line. Raises ValueError, with a way out for two frequent mistakes."""
    parser = make_parser()
    try:
        return parser.parse_intermixed_args(arguments)
    except ValueError as error:
        text = str(error)
    if match := re.fullmatch(r"argument (--[\w-]+): expected one argument", text):
        option = match[1]
        text = f"{option} needs a value"
        for name, value in itertools.pairwise(arguments):
            if len(name) > 2 and option.startswith(name) and value.startswith("-"):
                text = f"{option} needs a value; if {value} is one, write {option}={value}"
    elif match := re.match(r"unrecognized arguments: (-[^\s=]+)", text):
        import difflib

        similar = difflib.get_close_matches(match[1], parser._option_string_actions, 1)
        text += f"; did you mean {similar[0]}?" if similar else ""
    raise ValueError(text)


def text_in_utf8(argument: str) -> str:
    """Read an argument as UTF-8 if Python has read it as ASCII, as it may do for LC_ALL=C."""
    if re.search("[\udc80-\udcff]", argument):  # bytes beyond ASCII
        with contextlib.suppress(UnicodeError):  # not UTF-8 either, which is an error later
            return os.fsencode(argument).decode("utf-8")
    return argument


def special_tokens_of(args: Namespace) -> tuple[str, ...]:
    """Return the special tokens for training, checked: <|endoftext|> is the first one by default."""
    given = args.special_tokens or []
    tokens = check_special_tokens(token for token in given if token is not None)  # None: --no-special-tokens
    return tokens if None in given or END_OF_TEXT in tokens else (END_OF_TEXT, *tokens)


def run(args: Namespace) -> int:
    """Show, encode or train; return the status: 1 if --compare found a difference, else 0."""
    if args.show is not None:
        require(not args.corpus, "--show takes no corpus: it uses a saved model")
        given_options(args, ["engine"])  # refuses all others; each engine gives the same ids
        tokenizer = load_model(args)
        show(args.show, tokenizer)
        if len(steps_of(tokenizer.pattern)[1]) != 1:  # of another program: C may lack them
            report(args, "engine", engine_used(tokenizer.options))
        return 0

    last = args.corpus[-1] if args.corpus else ""
    size = None
    # with --encode, the last file may be named 2024
    if re.fullmatch(r"-?\d+([,_]\d{3})*[kK]?", last) and (args.encode is None or not os.path.exists(last)):
        size = int(re.sub("[,_]", "", args.corpus.pop()).lower().replace("k", "000"))
    require(args.corpus, "a corpus is missing: bpe.py corpus.txt 10000")
    if note := json_note(args.corpus, TEXT_FILES):
        report(args, "note", note)
    progress = not args.quiet and sys.stderr is not None and sys.stderr.isatty()
    same, encoder = True, None
    if args.encode is not None:
        require(size is None, "--encode uses a saved model: train it first, with another command")
        tokenizer = load_model(args)
        given = given_options(args, signature(Tokenizer.encode_files).parameters)
        check_names(args.corpus)
        corpus = tokenizer.corpus(args.corpus, None, progress=progress, **given)
        n_ids = encode_corpus(tokenizer, corpus, args.encode)
        report(args, "model", description(tokenizer, args))
        report(args, "encoded", f"{plural(corpus.bytes_read, 'byte')} as {plural(n_ids, 'token')}")
        report(args, "saved", f"{args.encode}, ids as uint{8 * tokenizer.id_bytes}")
        used = tokenizer.ordinary if args.end else tokenizer
        encoder = used.encoder if corpus.options.engine != "python" else None
    else:
        require(size is not None, f"the last argument must be the vocabulary size, such as 10000 or 10k, not {last!r}")
        given = given_options(args, signature(train_bpe).parameters)
        given["special_tokens"] = special_tokens_of(args)
        corpus, same = train(args, Options(**given, vocab_size=size, progress=progress))  # type: ignore[arg-type]

    report(args, "engine", engine_used(corpus.options, encoder))
    return 0 if same else 1


def check_names(paths: Iterable[str]) -> None:
    """Refuse folders and missing files; Corpus does that, too, but its errors are for Python."""
    for path in paths:
        pattern = os.path.join(path, "*.txt")
        require(not os.path.isdir(path), "{} is a folder; name its files ({})", path, pattern)
        if path != "-":
            os.stat(path)


def engine_used(options: Options, encoder: Encoder | None = None) -> str:
    """Return the engine that splits text into words, and encodes it, and why it isn't C."""
    engine, reason = (None, "as chosen") if options.engine == "python" else find_engine()
    if engine and not reason:
        if lacks := lacking_in_c(options.pattern):
            reason = f"C scans no pattern with {lacks}"
        elif isinstance(getattr(encoder, "inner", encoder), PythonEncoder):
            reason = "C can't hold this vocabulary"
    return f"Python ({reason})" if reason else "C"


def load_model(args: Namespace) -> Tokenizer:
    """Load the model that the command line names."""
    folder = "bpeModel" if args.model is None else args.model
    require(os.path.exists(folder), f"no model in {folder}: train one first, or name it with --model")
    return Tokenizer.load(folder)


def description(tokenizer: Tokenizer, args: Namespace) -> str:
    """Say which model a run uses: its folder, its size and its pattern."""
    pattern = tokenizer.pattern if isinstance(tokenizer.pattern, str) else ", ".join(tokenizer.pattern)
    shown = pattern if len(pattern) <= 60 else pattern[:60] + "..."
    return f"{args.model or 'bpeModel'}: {plural(len(tokenizer), 'token')}, pattern {shown}"


def train(args: Namespace, options: Options) -> tuple[Corpus, bool]:
    """Train, print what was learned, save the model; return the corpus, and whether --compare agrees."""
    check_names(args.corpus)
    corpus = Corpus(args.corpus, None, options)
    rounds = rounds_of(args.explain) if args.explain is not None else range(0)
    kind, theirs = read_pairs(args.compare) if args.compare is not None else ("", [])
    # --explain and --compare alone save no model
    folder = "bpeModel" if args.model is None and not rounds and not theirs else args.model
    if folder is not None:  # fail before an hour of training
        check_special_names(options.special_tokens)
        require(folder and not os.path.isfile(folder), f"--model must name a folder, not {folder!r}")
        check_outputs(model_files(folder), corpus.paths)

    table = count_corpus(corpus)
    rare, occurrences = table.drop_rare(options.min_word_count)  # to report them
    distinct, n_words, n_bytes = table.totals()
    require(n_words, "no words are left to learn from; nothing was saved")
    report(args, "read", plural(corpus.bytes_read, "byte"))
    if options.special_tokens:
        ids = zip(options.special_tokens, itertools.count(256))
        report(args, "special tokens", ", ".join(f"{token} {token_id}" for token, token_id in ids))
    if rare:
        report(args, "left out", f"{plural(rare, 'word')}, {occurrences / (n_words + occurrences):.2%} of pre-tokens")
    report(args, "pre-tokens", f"{n_words:,}, {distinct:,} of them distinct")

    words = table.copy() if rounds or theirs else {}  # learn() uses up the table
    learned = list(learn(table, options))
    vocab, merges = model_of(learned, options)
    n_tokens = n_bytes - sum(replaced for _, _, _, replaced in learned)
    same = True
    if theirs:
        report(args, "compared", f"{args.compare}, {plural(len(theirs), 'merge')} {kind}")
        same = compare(theirs, words, merges)
    if rounds:
        explain(rounds, words, merges)

    parts = f"256 bytes + {plural(len(options.special_tokens), 'special token')} + {plural(len(merges), 'merge')}"
    if len(vocab) < options.vocab_size:
        parts += f"; {options.vocab_size:,} requested, but no pair has a count of {options.min_frequency} or more"
    report(args, "vocabulary", f"{len(vocab):,} = {parts}")
    report(args, "compression", f"{n_bytes / n_tokens:.2f} bytes per token in these pre-tokens")
    if note := forgotten_note(learned):
        report(args, "note", note)
    if folder is not None and (note := save_somewhere((vocab, merges), options, folder)):
        report(args, "note", note)
    task = "--explain" if rounds else "--compare"
    report(args, "saved", f"nothing: {task} saves a model only with --model FOLDER" if folder is None else folder)
    return corpus, same


def forgotten_note(learned: Iterable[Learned]) -> str:
    """Return a note if special tokens such as <|user|> seem to have been learned as text, else ""."""
    counts = {left + right: count for left, right, count, _ in learned if left in (b"<", b"|")}
    if b"<|" not in counts or b"|>" not in counts:
        return ""
    times = f"<| was learned as text ({plural(counts[b'<|'], 'time')}), and so was |> ({counts[b'|>']:,})"
    return f'{times}; if they belong to special tokens, name each one: --special-token "<|user|>"'


def save_somewhere(model: Model, options: Options, folder: str) -> str:
    """Save a model; if that fails, save it in a temporary folder, so that no training is lost.

    Return the note of save_model().
    """
    try:
        return save_model(*model, options, folder)
    except (OSError, ValueError) as error:  # ValueError: a folder has a file's name, say
        import tempfile

        try:
            elsewhere = tempfile.mkdtemp(prefix="bpeModel-")
            save_model(*model, options, elsewhere)
        except (OSError, ValueError) as second:
            raise OSError(f"{error}; the model is lost, because there, too: {second}") from None
        raise OSError(f"{error}; the model is in {elsewhere}") from None


def report(args: Namespace, name: str, text: str) -> None:
    """Print a line of the summary, after the time so far."""
    if not args.quiet:
        say(f"{time.perf_counter() - args.start:6.2f} s  {name:14} {visible(text)}\n")


def rounds_of(text: str) -> range:
    """Return the rounds of "5" (1 to 5) or "5-7", as indexes from 0."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)", text)
    first, last = (int(match[1] or 1), int(match[2])) if match else (0, 0)
    require(0 < first <= last, f"--explain takes a positive number, or a range such as 5-7, not {text!r}")
    return range(first - 1, last)


def explain(rounds: range, counts: Counts, merges: Sequence[Pair], theirs: Sequence[Pair] = ()) -> None:
    """Print why merges are made, and with those of a file, why it may have others in these rounds."""
    words = dict(zip(encode_words(map(single_bytes, counts), merges[: rounds.start]), counts.values()))
    for number in range(rounds.start, min(rounds.stop, len(merges))):
        explain_round(number, words, merges[number], theirs[number] if theirs else None)
        words = {merge_pair(word, merges[number]): count for word, count in words.items()}


def explain_round(number: int, words: Mapping[Word, int], best: Pair, other: Pair | None) -> None:
    """Print why a pair is merged, and two words that it changes.

    With `other`, a pair of a file, print two words that the two pairs change differently.
    """
    counts = collections.Counter(count_pairs(words))
    say(f"round {number + 1}: {reasons(counts, best)}\n", "stdout")
    if other:
        say(f"    in the file: {in_line(other)} ({plural(counts[other], 'time')})\n", "stdout")
    changes = {word: (merge_pair(word, best), merge_pair(word, other) if other else word) for word in words}
    changed = [word for word in words if len(set(changes[word])) > 1]
    for word in heapq.nlargest(2, changed, key=lambda word: (words[word], word)):
        shown = ", in the file ".join(map(in_line, changes[word][: 2 if other else 1]))
        say(f"    {in_line(word)} -> {shown} ({plural(words[word], 'time')})\n", "stdout")
    if other and (cause := usual_cause(words, counts, best, other)):
        say(f"    usual cause: {cause}\n", "stdout")


def reasons(counts: Mapping[Pair, int], best: Pair) -> str:
    """Say which pairs are the most frequent, and why the best one wins."""
    first = heapq.nlargest(3, counts, key=lambda pair: (counts[pair], pair))
    text = ", ".join(f"{in_line(pair)} ({plural(counts[pair], 'time')})" for pair in first)
    text += f"\n    merge {in_line(best)}"
    ties = list(counts.values()).count(counts[best])
    if ties > 1:
        text += f" ({ties} pairs tie at {counts[best]:,}; the greater left token wins, then the greater right one)"
    return text


def read_pairs(path: str) -> tuple[str, list[Pair]]:
    """Return the kind of a file ("in JSON"), and its merges. JSON is [["t", "h"], ...]."""
    with open(path, encoding="utf-8") as file, error_prefix(path):
        text = file.read()
        kind = "with #version" if text.startswith("#version") else "without #version"
        if path.endswith(".json"):
            listed = json.loads(text)
            if all(isinstance(part, int) for pair in listed for part in pair):
                listed = [map(str, pair) for pair in listed]  # read_merges says that these are ids
            kind, text = "in JSON", "\n".join(map(" ".join, listed))
        # Merges of bytes make "</w>" of parts: the first line that has it has a space inside it, as in
        # `</ w>`. In a file of subword-nmt it is whole, as in `e s</w>`.
        line = next((line for line in text.split("\n") if END_OF_WORD in line.replace(" ", "")), "")
        require(END_OF_WORD not in line, f"merges of characters, as subword-nmt makes: {line!r}")
        pairs = read_merges(text)
        require(pairs, "there are no merges in it")
        # characters that stand for no byte are an error
        tokens = {text: codecs.charmap_encode(text, "strict", BYTE_OF)[0] for text in itertools.chain(*pairs)}
        return kind, [(tokens[left], tokens[right]) for left, right in pairs]


def compare(theirs: Sequence[Pair], counts: Counts, merges: Sequence[Pair]) -> bool:
    """Print how many first merges are the same, and explain the first difference; return whether there is none."""
    compared = min(len(merges), len(theirs))
    n = next((n for n in range(compared) if merges[n] != theirs[n]), compared)
    same = "the first merge is the same" if n == 1 else f"the first {n:,} merges are the same"
    say(f"{same}, of {len(theirs):,} in the file and {len(merges):,} here\n", "stdout")
    if n < compared:
        explain(range(n, n + 1), counts, merges, theirs)
    return n == compared


def usual_cause(words: Mapping[Word, int], counts: collections.Counter[Pair],
                ours: Pair, other: Pair) -> str:
    """Say why a trainer may merge another pair than ours, if the counts tell, else return ""."""
    if counts[ours] == counts[other]:
        return "another rule for ties"

    # `a a` is counted 3 times in `a a a a`, and merged twice, so 1 of them overlaps. Another trainer may
    # count it only twice, or each overlap twice.
    def overlapping(pair: Pair) -> int:
        return counts[pair] - sum((len(word) - len(merge_pair(word, pair))) * words[word] for word in words)

    if counts[ours] - counts[other] <= abs(overlapping(ours) - overlapping(other)):
        return "pairs that overlap themselves"
    if counts[other]:
        return ""  # it occurs here, too, only less often: why, the counts don't tell

    in_a_word = any(b"".join(other) in b"".join(word) for word in words)
    begins, ends = {word[0] for word in words}, {word[-1] for word in words}
    across_words = other[0] in ends and other[1] in begins
    if across_words and not in_a_word:
        return "a pair across the end of a word, or across a special token"
    if in_a_word and not across_words:
        return "counts out of date, or other words: its bytes occur here, but not as these tokens"
    return ""


def show(text: str, tokenizer: Tokenizer) -> None:
    """Print text with its tokens set apart, their ids, and how many bytes per token that is."""
    ids = tokenizer.encode(text)
    tokens = [tokenizer.vocab[token_id] for token_id in ids]
    n_bytes = sum(map(len, tokens))
    per_token = f"{n_bytes / max(len(ids), 1):.2f} bytes per token"
    say("|".join(readable(tokens, {"\n": "\\n\n"})) + "\n", "stdout")
    say(" ".join(map(str, ids)) + "\n", "stdout")
    say(f"{plural(len(ids), 'token')}, {plural(n_bytes, 'byte')}, {per_token}\n", "stdout")


def readable(tokens: Iterable[bytes], marks: Mapping[str, str]) -> list[str]:
    r"""Spell tokens, with marks for some characters.

    Here 8a isn't part of any character. Two tokens share 园, so their bytes follow it:

    >>> readable([b"a\n", b"\x8a", b"\xe5\x9b", b"\xad", b"b"], {"\n": "\\n"})
    ['a\\n', '[8a]', '园[e5 9b|ad]', 'b']
    """
    tokens = list(tokens)
    text = b"".join(tokens).decode("utf-8", "surrogateescape")
    character_ends = set(itertools.accumulate(len(c.encode("utf-8", "surrogateescape")) for c in text))
    spelled = []
    group: list[bytes] = []
    for token, end in zip(tokens, itertools.accumulate(map(len, tokens))):
        group.append(token)
        if end in character_ends:
            parts = "[" + "|".join(part.hex(" ") for part in group) + "]" if len(group) > 1 else ""
            spelled.append(spell_bytes(b"".join(group), marks) + parts)
            group = []
    return spelled


def spell_bytes(data: bytes, marks: Mapping[str, str]) -> str:
    r"""Spell bytes: spell_bytes(b"\xe7\xbd\x91\xe7\xbb", {}) -> "网[e7 bb]"."""
    # a byte that isn't part of any character, such as 8a, becomes "\udc8a"
    text = data.decode("utf-8", "surrogateescape")
    text = re.sub("[^\udc80-\udcff]", lambda match: marks.get(match[0]) or visible(match[0]), text)
    return re.sub("[\udc80-\udcff]+", lambda match: f"[{match[0].encode('utf-8', 'surrogateescape').hex(' ')}]", text)


def in_line(tokens: Iterable[bytes]) -> str:
    """Spell tokens in one line: in_line([b"a", b" the"]) -> "a ␣the"."""
    return " ".join(readable(tokens, {"\n": "\\n", " ": "␣"}))


def visible(text: str) -> str:
    """Escape what isn't printable, except for line feeds, to protect the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def with_progress(items: Iterable[T], wanted: bool, describe: Callable[[int], str]) -> Iterator[T]:
    """Pass items on, and print describe(how many) in one line, at most five times a second."""
    if not wanted:
        yield from items
        return
    shown_at = time.monotonic()
    try:
        say_over(describe(0))  # the first item may take a minute
        for number, item in enumerate(items, 1):
            yield item
            if time.monotonic() - shown_at > 0.2:
                shown_at = time.monotonic()
                say_over(describe(number))
    finally:
        say_over("")


def say_over(text: str) -> None:
    """Print text over the last line of standard error, cut to the width of the terminal."""
    width = 80
    with contextlib.suppress(OSError, ValueError, AttributeError):  # not a terminal
        width = os.get_terminal_size(sys.stderr.fileno()).columns or width
    say(f"\r{text[: width - 1]}\x1b[K")  # ESC [ K erases the rest of the line


def rounded_up(seconds: float) -> str:
    """Write a time as a whole number: rounded_up(150) -> "3 min"."""
    if seconds < 100:
        return f"{int(seconds) + 1} s"
    return f"{int(seconds / 60) + 1} min" if seconds < 6000 else f"{int(seconds / 3600) + 1} h"


def learning_progress(merges_wanted: int) -> Callable[[int], str]:
    """Return describe(n) for with_progress(): how many merges are made, and how long the rest may take.

    Merges become faster, so the time per merge since half or a quarter of them gives an upper bound. On
    English, Chinese and code it was 1 to 6 times the time left from a tenth of the merges on; before
    that, up to 70 times.
    """
    marks = [(0, time.monotonic())]  # (merges made, when), and later again when twice as many are made

    def describe(n: int) -> str:
        text = f"learning merges: {n:,} of {merges_wanted:,}"
        now = time.monotonic()
        if n >= 2 * marks[-1][0]:
            marks.append((n, now))
        if 10 * n <= merges_wanted:
            return f"{text} (the first ones take longest)"
        made, then = marks[-2]
        seconds = (now - then) / (n - made) * (merges_wanted - n)
        return f"{text}, up to {rounded_up(seconds)} left"

    return describe


def say(text: str, name: str = "stderr") -> None:
    """Print to sys.stderr or sys.stdout. A stream that fails is replaced, so that training continues.

    Its replacement has the error as its attribute `error`.
    """
    try:
        stream = getattr(sys, name)
        stream.write(text)
        stream.flush()
    except (OSError, ValueError, AttributeError) as error:
        replacement: Any = open(os.devnull, "w")  # noqa: SIM115
        replacement.error = error
        setattr(sys, name, replacement)


@contextlib.contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Let `kill PID` end a run as Ctrl-C does, with an exception that removes temporary files."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt("terminated")

    try:
        previous = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # this isn't the main thread, which alone has handlers
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous or signal.SIG_DFL)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its status.

    1 means other merges for --compare, out of memory, counts beyond 64 bits, a killed worker, or a full
    disk behind standard output; 2 bad input, or a file that can't be read or written; 130 Ctrl-C; 143
    SIGTERM.
    """
    for stream in (sys.stdout, sys.stderr):  # show a token even if the terminal can't
        with contextlib.suppress(AttributeError, ValueError):  # a stream that was replaced or closed
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        status = 0
        with sigterm_as_ctrl_c(), contextlib.suppress(SystemExit):  # --help and --version exit
            status = run(parse(sys.argv[1:] if argv is None else argv))
        say("", "stdout")  # flushes it
        error = getattr(sys.stdout, "error", None)
        # `| head` is not an error
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise RuntimeError(f"standard output: {error.strerror}")
        return status
    except KeyboardInterrupt as interruption:
        status, text = (143, "terminated") if interruption.args else (130, "interrupted")
    except (OSError, ValueError, TypeError) as error:
        hint = NOT_UTF8_HINT if "not valid UTF-8 at" in str(error) else ""
        message = re.sub(r"\[\w+ \d+\] ", "", str(error))  # without [Errno 2]
        status, text = 2, f"error: {message}{hint}"
    except (RuntimeError, OverflowError, MemoryError) as error:
        status, text = 1, f"error: {str(error) or 'out of memory'}"
    line = visible(text).replace("\n", "\\n")  # a file name may have a newline
    say(f"{line}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
