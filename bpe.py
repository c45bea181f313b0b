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

    - A pair is counted at every position, even if positions overlap. In "aaaa" the pair a a is
      counted three times; but replacing goes from left to right without overlap: "aaaa" becomes aa aa.
    - Pairs are compared, not the tokens that they would make. On a tie (b"ab", b"a") beats
      (b"a", b"bz"), because b"ab" > b"a", although b"aba" < b"abz".

Glossary, with values from the example below, in which b"st" gets the id 256 and b"est" 257:

    word, pre-token  b" newest"       a piece of text, as a pattern splits it; no token crosses its ends
    token            b"est"           a sequence of bytes that has an id in the vocabulary
    token id         257              its number; bytes come first, then special tokens, then merges
    pair             (101, 256)       two adjacent tokens, or their ids
    merge            (b"e", b"st")    a pair that became a token
    rank             1                the position of a merge in the list of merges, from 0
    count            9                how often a pair, or a word, occurs in the whole corpus
    special token    "<|endoftext|>"  (not in the example) text that is never split and never learned; the
                                      text before it and the text after it are separate texts

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
    VI    Training              train_bpe: counting words on all cores, then learning
    VII   The tokenizer         the class Tokenizer: encoding and decoding
    VIII  Files of a model      tokenizer.json, vocab.json and merges.txt
    IX    The command line
    X     Optional parts        the engine in C, and the folder bpe_more

This file works on its own. Two things can be next to it:

    bpe_fast.c, build_ffi.py   the merge loop of Part II in C. `python build_ffi.py` compiles it; after
                               that, training uses it.
    bpe_more/                  strong forms of some functions. The last lines of this file replace the
                               plain ones by them. The results are the same, but they use C for all steps,
                               show progress, read the models of other programs, and leave whole files
                               after a full disk, Ctrl-C, or `kill -9`.
"""

from __future__ import annotations

# Modules that few runs need, such as argparse, are imported in the functions that use them.
import codecs
import collections
import contextlib
import functools
import heapq
import importlib.util
import itertools
import json
import operator
import os
import re
import signal
import sys
import types
import warnings
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, TypeVar, get_args

if sys.version_info < (3, 10):
    sys.exit("bpe.py requires Python 3.10 or later; this is " + sys.version.split()[0])
if __name__ == "__main__" and not importlib.util.find_spec("regex"):
    sys.exit("bpe.py requires the package regex: pip install regex")
import regex

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

__all__ = [
    "PATTERNS", "Tokenizer", "count_words", "find_engine", "find_words", "learn_characters", "read_tiktoken", "segment",
    "train_bpe", "train_from_counts",
]  # fmt: skip

__version__ = "0.8.0"

Word = tuple[bytes, ...]
Pair = tuple[bytes, bytes]
FilePath = str | os.PathLike[str]
Paths = FilePath | Iterable[FilePath] | None
Strings = Iterable[str] | None  # texts, or special tokens
Counts = Mapping[bytes, int]  # of words
Model = tuple[dict[int, bytes], list[Pair]]  # (vocab, merges)
Learned = tuple[bytes, bytes, int, int]  # (left, right, count of the pair, replacements made)
T = TypeVar("T")
Token = TypeVar("Token", bytes, str)


def require(condition: object, message: str, *values: object) -> None:
    """Raise ValueError if a condition does not hold. The message may have {} for values."""
    if not condition:
        raise ValueError(message.format(*values) if values else message)


# ------------------------------
# I. The lesson: what byte-pair encoding is
# ------------------------------

# Text is split into words first, and no token crosses the ends of a word. Without that, the most
# frequent pairs would soon make pieces of phrases and punctuation ("e t", "in the", "dog."), and
# each would take up an id.
#
# This is the pattern of GPT-2. Each match is a word, and no character is lost.
GPT2 = (
    r"'(?:[sdmt]|ll|ve|re)"  # 's, 'll: the ends of English contractions
    r"| ?\p{L}+"  # letters, with the space before them: " the"
    r"| ?\p{N}+"  # digits
    r"| ?[^\s\p{L}\p{N}]+"  # other characters, such as "..."
    r"|\s+(?!\S)"  # whitespace: of ten spaces before "the", nine, since the last one belongs to " the"
    r"|\s+"  # other whitespace, such as one "\n" before "the"
)


def single_bytes(word: bytes) -> Word:
    """Write a word as a sequence of tokens of one byte: single_bytes(b"hi") is (b"h", b"i")."""
    return tuple(bytes([byte]) for byte in word)


def words_of(text: str) -> dict[Word, int]:
    """Split text into words; return the count of each distinct word, written in single bytes.

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

    There are fewer merges if no pair is left, because every word has become a single token.
    """
    merges: list[Pair] = []
    for _ in range(merges_wanted):
        counts = count_pairs(words)
        if not counts:
            break
        # The tie rule: of equal counts, the greater pair. Tuples compare left first, then right.
        best = max(counts, key=lambda pair: (counts[pair], pair))
        merges.append(best)
        # Different words stay different, because merging does not change their bytes.
        words = {merge_pair(word, best): count for word, count in words.items()}
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

# For a vocabulary of 500 from 107 KB of text (fixtures/corpus.txt), train_by_definition takes 6 s,
# learn_merges 0.1 s, and the same in C (bpe_fast.c) 0.004 s.


BYTES = [bytes([byte]) for byte in range(256)]  # the first tokens


def descending(token: bytes) -> str:
    """Return a sort key that puts greater tokens first: b"st" before b"s", b"s" before b"es".

    On a tie the greatest pair wins, but heapq pops the smallest entry first, so each byte is subtracted
    from 255. chr(256), greater than all of these, ends the key: so b"st" comes before b"s".
    """
    return "".join(chr(255 - byte) for byte in token) + chr(256)


def learn_merges(words: Iterable[str], counts: Sequence[int], tokens: Iterable[bytes]) -> Iterator[Learned]:
    """Yield (left, right, count, replaced) for each merge, best first, until no pair is left.

    words   strings in which chr(i) stands for tokens[i]. So a pair is a string of two characters, and
            merging is word.replace(pair, new), which is fast. (With lists of ids, it is a loop such as
            the one in merge_pair.)
    counts  how often each word occurs
    tokens  the first tokens, such as the 256 bytes, with which b"hi" is the string "hi". A pair with the
            bytes of one of them is never merged; of bytes and characters, there is no such pair

    count is the pair's count, and replaced, for reports, how often it was replaced: less if it overlaps
    itself, as in "aaa". Here `o w` occurs 5 + 2 times:

    >>> list(itertools.islice(learn_merges(["low", "lower"], [5, 2], BYTES), 2))
    [(b'o', b'w', 7, 7), (b'l', b'ow', 7, 7)]

    All pairs are counted once, at the beginning. From then on, only words that contain the merged pair, or
    did so once, are looked at, and only counts that change are updated. A heap finds the best pair.

    An entry of the heap can be out of date: its pair has lost occurrences to other merges since. That
    does no harm, because the count of a pair never rises. (When `a b` becomes X, pairs that lose
    occurrences are old ones, such as `b c`, and pairs that gain some are new ones, such as `X c`.) So an
    old entry comes up too early, never too late, and goes back with the right count. An example with
    the words abc and ab, three times each, bc once, and cd twice:

        the heap               what happens
        a b 6, b c 4, c d 2    a b is merged. b c now occurs once, but its entry still says 4
        b c 4, X c 3, c d 2    b c comes up too early, and goes back with 1
        X c 3, c d 2, b c 1    X c is merged
    """
    words = list(words)
    tokens = list(tokens)
    first_tokens = set(tokens)
    keys = list(map(descending, tokens))
    pair_counts: dict[str, int] = collections.defaultdict(int)
    words_with: dict[str, set[int]] = collections.defaultdict(set)  # pair -> indexes of words
    for index, word in enumerate(words):
        for first, second in zip(word, word[1:]):
            pair_counts[first + second] += counts[index]
            words_with[first + second].add(index)

    def heap_entry(pair: str) -> tuple[int, str, str, str]:
        """Return a tuple that is smaller than another one if its pair is merged first."""
        return -pair_counts[pair], keys[ord(pair[0])], keys[ord(pair[1])], pair

    heap = list(map(heap_entry, pair_counts))
    heapq.heapify(heap)
    while heap:
        negative_count, _, _, pair = heapq.heappop(heap)
        count = pair_counts.get(pair, 0)
        if count != -negative_count:  # out of date
            if count:
                heapq.heappush(heap, heap_entry(pair))
            continue

        left, right = tokens[ord(pair[0])], tokens[ord(pair[1])]
        if left + right in first_tokens:
            continue
        new = chr(len(tokens))  # a lone surrogate works as well: these strings are never encoded
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

    Each new token changes the pair on its left and the pair on its right. Here `b c` becomes X in the
    word `a b c b c d`, which occurs once, and so becomes `a X X d`:

        first X    on its left, `a b` (-1) became `a X` (+1); on its right, `c b` (-1) became `X X` (+1)
        second X   on its left is the first X, which has counted `X X`; on its right, `c d` (-1) became
                   `X d` (+1)

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
                old_after = left if after == new else after  # a second X was `b c` before, which begins with b
                changes[right + old_after] -= count
                changes[new + after] += count
                words_with[new + after].add(index)
            at = word.find(new, at + 1)

    # Up to here, only neighbors of an X were updated (in `a a a`, the second `a a` is one). Here, the
    # pairs that became X are subtracted.
    changes[pair] -= replaced
    return changes, replaced


# Encoding a word by definition tries all merges, perhaps 50,000. It is faster to look at the pairs that
# the word has, and to merge the one of the lowest rank, again and again. Is that the same?


def check_merges(merges: Iterable[tuple[T, T, T]]) -> None:
    """Check that merging by rank is the same as replaying, for merges (left, right, made).

    It isn't for these merges:

        0  ab c
        1  a b

        replaying   a b c -> ab c     merge 0 finds no ab, and is not tried again
        by rank     a b c -> abc      once merge 1 has made ab, the pair ab c has a rank

    It is the same if no merge makes a token that an earlier merge uses: then a new token only forms
    pairs of higher rank, so ranks come up in ascending order, as in replaying. Merges from training are
    like that: a token is made before it is used, and only once. (At two places with the bytes est, the
    same pairs are merged in each round, unless a merge crosses an end of one; and there, est can't become
    a token any more. So all that become the token est do so in the same round.)

    Raises ValueError for the first merge that repeats an earlier one, or makes a token that an earlier
    one uses. The Tokenizer of Part VII refuses only repeated ones: merges of other programs may come in
    any order, and these programs merge by rank.
    """
    pairs: set[tuple[T, T]] = set()
    used: set[T] = set()
    for number, (left, right, made) in enumerate(merges):
        pair = (left, right)
        if pair in pairs or made in used:
            raise ValueError(f"merge {number} (from 0), {pair}, repeats an earlier one or makes a token that one uses")
        pairs.add(pair)
        used.update(pair)


def merge_by_rank(word: Iterable[T], ranks: Mapping[Any, int], new_tokens: Sequence[T]) -> list[T]:
    """Merge the pair of lowest rank, the leftmost of equal ones, until no pair has a rank.

    new_tokens[rank] is what the merge of that rank makes.

    >>> merge_by_rank(["n", "e", "w", "e", "s", "t"], {("s", "t"): 0, ("e", "st"): 1}, ["st", "est"])
    ['n', 'e', 'w', 'est']

    A heap of (rank, index of the left token) finds the next pair, so a word of n tokens takes n log n
    steps. Tokens keep their indexes: the new token replaces the left one, and None the right one. Links
    lead from each token to the ones before and after it. An entry of the heap is out of date if the two
    tokens there no longer have its rank.
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
    merges = list(merges)
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    new_tokens = [left + right for left, right in merges]
    for word in words:
        yield tuple(merge_by_rank(word, ranks, new_tokens))


def learn_from_bytes(words: Mapping[bytes, int]) -> Iterator[Learned]:
    """Do learn_merges for words of bytes and their counts: the byte n becomes the character chr(n).

    >>> words = words_of("low low lower lowest newest newest")
    >>> learned = learn_from_bytes({b"".join(word): count for word, count in words.items()})
    >>> [(left, right) for left, right, _, _ in itertools.islice(learned, 5)] == train_by_definition(words, 5)
    True
    """
    strings = [word.decode("latin-1") for word in words]
    return learn_merges(strings, list(words.values()), BYTES)


# If a trainer and an encoder of words are all that you need, stop reading here, and copy the imports, the
# names of types, and Parts I and II. The rest of this file makes a tool of them, with files of any size,
# special tokens, ids, and models that other programs load.


# ------------------------------
# III. The same on characters
# ------------------------------

# BPE as it was first used for language (Sennrich et al. 2016), and as in the package subword-nmt.
# Part II does most of the work. Words are separated by spaces, and made of characters, not bytes. The
# last character of a word carries a marker, so the whole word "low" and "low" in "lower" differ.

END_OF_WORD = "</w>"


def split_at_spaces(text: str) -> list[str]:
    r"""Split at spaces and \n, and trim \r, as subword-nmt does; a tab is part of a word.

    >>> split_at_spaces("low  low\r\nlower")
    ['low', 'low', 'lower']
    """
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
    symbols = sorted({symbol for word in spelled for symbol in word})  # the first tokens: "l", "w</w>"
    stand_in = {symbol: chr(number) for number, symbol in enumerate(symbols)}  # see learn_merges
    strings = ["".join(stand_in[symbol] for symbol in word) for word in spelled]

    tokens = [symbol.encode("utf-8") for symbol in symbols]  # in UTF-8, bytes sort as the characters do
    counts = list(map(operator.index, words.values()))  # sums of numpy's integers would wrap around
    merges = itertools.islice(learn_merges(strings, counts, tokens), merges_wanted)
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

# The named patterns; (?![\s\S]) in cl100k is the end of the text. Each pattern
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

# tokenizer.json has GPT-2's pattern as it was published, which some programs recognize.
JSON_PATTERNS = PATTERNS | {"gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"}
SPELLINGS = {expression: name for name, expression in [*PATTERNS.items(), *JSON_PATTERNS.items()]}


def check_pattern(pattern: str) -> str:
    """Check a pattern: a name, or an expression. The expression of a named pattern becomes its name."""
    require(isinstance(pattern, str), "pattern must be a str, not {!r:.200}", pattern)
    pattern = SPELLINGS.get(pattern, pattern)
    if pattern not in PATTERNS:
        compile_pattern(pattern)  # may raise an error
    return pattern


@functools.lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> Any:
    r"""Compile a named pattern, or an expression.

    regex reads two dialects. V1 has operations on sets, such as [\w--\d], [\p{L}&&[^\p{Han}]] and
    [a-d~~c-f], as tiktoken has them; but (?i:ss) also finds "ß" there, which (?-f) turns off. V0 has
    neither, and reads [[a] as a set of "[" and "a". An expression is read as V1 if it can be.
    """
    is_expression = any(character in pattern for character in r"\.^$*+?{}[]()|")
    names = ", ".join(PATTERNS)
    require(pattern in PATTERNS or is_expression, "unknown pattern {!r:.150}; the names are {}", pattern, names)
    expression = PATTERNS.get(pattern, pattern)
    expression.encode("utf-8")  # raises UnicodeEncodeError, a ValueError, for a lone surrogate
    bad_expression = regex.error, ArithmeticError, LookupError, ValueError  # all come from compile()
    try:
        try:
            compiled = regex.compile("(?-f)" + expression, regex.V1)
        except bad_expression:
            if re.search("&&|--|~~", expression):
                raise
            compiled = regex.compile(expression, regex.V0)
    except bad_expression as error:
        text = getattr(error, "msg", error)  # without the place, which (?-f) has changed
        raise ValueError(f"pattern {pattern!r:.150} is not a valid regular expression: {text!s:.100}") from None
    backward = "searches backward, so its matches are not in the order of the text: leave out (?r)"
    require(not compiled.flags & regex.REVERSE, "pattern {!r:.150} {}", pattern, backward)
    return compiled


def find_words(text: str, pattern: str) -> list[str]:
    r"""Split text into words: the matches of the pattern, and the text between them.

    >>> find_words("It's  new", "gpt2"), find_words("a-b", r"\w+")
    (['It', "'s", ' ', ' new'], ['a', '-', 'b'])
    """
    pattern = check_pattern(pattern)
    compiled = compile_pattern(pattern)
    if pattern in PATTERNS:
        return compiled.findall(text)  # type: ignore[no-any-return]
    places = [0, *(place for match in compiled.finditer(text) for place in match.span()), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(places) if start < end]


def check_special_tokens(special_tokens: Strings) -> tuple[str, ...]:
    """Check special tokens; return a tuple.

    "a" can't be one, since all single bytes have ids already; nor can text with U+FFFD, which is what
    errors="replace" makes of invalid bytes.
    """
    if isinstance(special_tokens, (str, bytes, set, frozenset, Mapping)):
        raise TypeError(f"special_tokens must be a list of strings, not {special_tokens!r:.60}")
    tokens = () if special_tokens is None else tuple(special_tokens)
    for number, token in enumerate(tokens, 1):
        try:
            good = isinstance(token, str) and len(token.encode("utf-8")) > 1 and "\ufffd" not in token
        except UnicodeEncodeError:  # a lone surrogate
            good = False
        if not good:  # faster than a call of require() for each token
            rule = "text of at least two bytes (U+FFFD and lone surrogates not allowed)"
            raise ValueError(f"special token {number} ({token!r}) must be {rule}")
    require(len(set(tokens)) == len(tokens), "duplicate special token among {!s:.200}", tokens)
    return tuple(map(str.__str__, tokens))  # of an array of numpy, plain strings


@functools.lru_cache(maxsize=32)
def special_token_finder(special_tokens: tuple[str, ...]) -> re.Pattern[str]:
    """Return an expression for special tokens, longest first. Its split() gives text, token, text."""
    longest_first = sorted(special_tokens, key=len, reverse=True)
    # "x^" matches nowhere: ^ is the beginning of the text
    return re.compile(f"({'|'.join(map(re.escape, longest_first)) or 'x^'})")


# Files and streams are counted and encoded in pieces. A cut must not change a word, and must not divide a
# special token, such as <|end|> here. It is safe just before the character above each ^:
#
#     two cats<|end|> and it's 12 o'clock
#        ^    ^          ^    ^  ^
#
# In named patterns, a word ends after a letter or digit, before anything that is not a letter, digit,
# mark or apostrophe ("it's" is one word in some of them). Whitespace depends on what follows: gpt2
# splits " \n\nb" into " \n", "\n" and "b", but " \n\n" alone is one word. Of a custom pattern, nothing
# is known, so cuts are only made before special tokens.
WORD_END = r"(?r)(?<=[\p{L}\p{N}])(?=[^\p{L}\p{N}\p{M}'])"  # (?r): the last place first
WINDOW_BYTES = 64 << 10  # how much text is searched for a cut at a time


def places_to_cut(text: str, pattern: str, special_tokens: tuple[str, ...]) -> Iterator[int]:
    """Yield the indexes of text at which a cut changes no word, in descending order."""
    # special_token_finder matches nothing if there are no special tokens
    finder = WORD_END if pattern in PATTERNS else "(?r)" + special_token_finder(special_tokens).pattern
    return (match.start() for match in regex.finditer(finder, text, regex.V0))


def last_cut(window: bytes, pattern: str, special_tokens: tuple[str, ...]) -> int:
    """Return an index in bytes, near the end, at which a window of a larger text can be cut, else 0.

    If no special token crosses the cut, the two parts have the same special tokens as the whole.
    """
    text = window.decode("utf-8", "surrogateescape")
    # The window may begin or end inside a character, of which up to 3 bytes are there, or inside a
    # special token. So cuts keep away from its ends.
    margin = 3 + max(map(len, special_tokens), default=1)

    def is_crossed(place: int) -> bool:
        # "cats<|e" and "nd|>": at least one character of the token is on each side
        return any(token in text[place - len(token) + 1 : place + len(token) - 1] for token in special_tokens)

    for place in places_to_cut(text, pattern, special_tokens):
        if margin <= place <= len(text) - margin and not is_crossed(place):
            return len(text[:place].encode("utf-8", "surrogateescape"))
    return 0


def cut_stream(blocks: Iterable[bytes], pattern: str, special_tokens: tuple[str, ...],
               first: int, most: int) -> Iterator[bytes]:
    """Join blocks of text, and cut them again without changing a word.

    The first part has about `first` bytes, each later one twice as many as the one before, up to `most`.
    """
    data = bytearray()
    wanted = first  # how many bytes before the next search for a cut
    for block in blocks:
        data += block
        if len(data) < wanted:
            continue
        window = bytes(data[-WINDOW_BYTES:])
        if cut := last_cut(window, pattern, special_tokens):
            cut += len(data) - len(window)
            yield bytes(data[:cut])
            del data[:cut]
            wanted = min(2 * wanted, most)
        else:
            # don't search the same text again after each small block
            wanted = len(data) + min(len(data), WINDOW_BYTES // 2)
    if data:
        yield bytes(data)


# ------------------------------
# V. Options: what a user can choose
# ------------------------------

Errors = Literal["strict", "replace"]
EngineName = Literal["auto", "python", "c"]


class Options(NamedTuple):
    """The options of a call. Each is also an argument of the functions that take it."""

    special_tokens: Any = ()  # strings in an order, such as a list; checked() makes it a tuple
    pattern: str = "gpt2"
    errors: Errors = "strict"
    workers: int | None = None
    engine: EngineName = "auto"
    progress: bool = False
    vocab_size: Any = sys.maxsize  # as it is in calls that learn nothing
    min_word_count: int = 1
    min_frequency: int = 1
    column: str | None = "text"  # of Parquet and JSON Lines

    def checked(self) -> Options:
        """Return the same options, with special tokens as a tuple, and the pattern as check_pattern returns it.

        Raises ValueError for a bad one, and TypeError for special tokens that aren't in an order.
        """
        special_tokens = check_special_tokens(self.special_tokens)
        for name in ("workers", "vocab_size", "min_word_count", "min_frequency"):
            value = getattr(self, name)
            valid = (is_integer(value) and value > 0) or (name == "workers" and value is None)
            require(valid, "{} must be a positive integer, not {!r}", name, value)
        allowed = {"errors": get_args(Errors), "engine": get_args(EngineName), "progress": (False, True)}
        for name, values in allowed.items():
            value = getattr(self, name)
            require(value in values, "{} must be one of {}, not {!r}", name, values, value)
        require(isinstance(self.column, (str, type(None))), "column must be a str or None, not {!r:.60}", self.column)

        size, n_special = self.vocab_size, len(special_tokens)
        too_small = "vocabulary size {} is too small; the minimum is {} (256 bytes + {})"
        require(size >= 256 + n_special, too_small, size, 256 + n_special, plural(n_special, "special token"))
        most = sys.maxunicode + 1  # learn_merges has a character for each token that isn't special
        if size > most + n_special and size != sys.maxsize:
            require(engine_for(self), f"the Python engine has only {most:,} non-special ids, not {size:,}")
        if self.engine == "c":
            require(find_engine()[0], f"engine 'c' is not available: {find_engine()[1]}")
        return self._replace(special_tokens=special_tokens, pattern=check_pattern(self.pattern))


def warn(text: str) -> None:
    """Warn, with the line of the first caller outside of this file and of bpe_more."""
    frame: Any = sys._getframe()
    own = frame.f_code.co_filename
    folder = os.path.join(os.path.dirname(own), "bpe_more", "")
    level = 1
    while frame.f_back and (frame.f_code.co_filename == own or frame.f_code.co_filename.startswith(folder)):
        frame = frame.f_back
        level += 1
    warnings.warn(text, stacklevel=level)


def is_integer(value: object) -> bool:
    """Tell if a value is an integer, which may be numpy's. 257.0 and True are equal to integers, but aren't."""
    return hasattr(value, "__index__") and not isinstance(value, bool)


def plural(n: int, noun: str) -> str:
    """Count something: plural(1234, "merge") -> "1,234 merges"."""
    return f"{n:,} {noun}{'s' * (n != 1)}"


# ------------------------------
# VI. Training
# ------------------------------

# From files to a model: a Corpus is cut into slices, whose words are counted on all cores in a WordTable.
# learn() makes merges of it, with learn_merges of Part II, or in C, and model_of() the vocabulary.
# count_words() ends with the table, and train_from_counts() begins with one.

def train_bpe(input_path: Paths = None, vocab_size: int | None = None, special_tokens: Strings = None, *,
              texts: Strings = None, pattern: str = "gpt2", errors: Errors = "strict", min_word_count: int = 1,
              min_frequency: int = 1, workers: int | None = None, engine: EngineName = "auto",
              progress: bool = False, column: str | None = "text") -> Model:
    """Train byte-level BPE; return vocab {id: token} and merges [(left, right), ...] in order.

    input_path        the path of a UTF-8 text file, or a list of paths; "-" is standard input
    vocab_size        required; the maximum number of tokens: 256 bytes, special tokens, and merges
    special_tokens    a list of strings that get the ids from 256 on; text is split at them first
    texts             instead of input_path, an iterable of strings, each a separate text; with bpe_more also
                      a column of Arrow, or an iterable of them
    pattern           "gpt2", "cl100k", "o200k", "llama3", "qwen2", or an expression for regex
    errors            "strict": bytes that are not UTF-8 are an error; "replace": they become U+FFFD,
                      and so do lone surrogates in texts
    min_word_count    words that occur less often are left out of learning, to save memory
    min_frequency     the lowest count at which a pair is still merged
    workers           the maximum number of processes, or of threads if C counts; by default one per core.
                      Except on Linux, processes need `if __name__ == "__main__":` in a script
    engine            "python", "c", or "auto": C if it is built. The result is the same
    progress          show progress on standard error, in one line, if bpe_more is here
    column            the column of .parquet, .jsonl and .json files that has the texts, if bpe_more is here;
                      None reads JSON as plain text

    >>> train_bpe(texts=["low lower lowest"], vocab_size=258)[1]
    [(b'o', b'w'), (b'l', b'ow')]

    Raises ValueError or TypeError for bad arguments and for text that is not UTF-8, OSError for files,
    RuntimeError if a worker process is killed, OverflowError if counts add up to 2**63.
    """
    options = Options(special_tokens, pattern, errors, workers, engine, progress, vocab_size, min_word_count,
                      min_frequency, column).checked()
    corpus = Corpus(input_path, texts, options)
    table = corpus.count()  # which counts slices, too
    require(corpus.paths or corpus.n_slices, "no text: texts= is empty, or an iterator that is used up")
    return learn_model(table, options)


def count_words(paths: Paths = None, special_tokens: Strings = None, *, texts: Strings = None,
                pattern: str = "gpt2", errors: Errors = "strict", workers: int | None = None,
                engine: EngineName = "auto", progress: bool = False,
                column: str | None = "text") -> dict[bytes, int]:
    """Count words: the first half of bpe.train_bpe, whose docstring explains the arguments and errors.

    >>> count_words(texts=["hi hi"], engine="python")
    {b'hi': 1, b' hi': 1}
    """
    options = Options(special_tokens, pattern, errors, workers, engine, progress, column=column).checked()
    return dict(Corpus(paths, texts, options).count().copy())  # a table in C isn't a mapping, but has copy()


def train_from_counts(words: Counts | Iterable[tuple[bytes, int]], vocab_size: int, special_tokens: Strings = None, *,
                      min_word_count: int = 1, min_frequency: int = 1, engine: EngineName = "auto",
                      progress: bool = False) -> Model:
    """Learn from counts of words: the second half of bpe.train_bpe, with the same result.

    So the counts of several corpora can be added up. words is a mapping, or an iterable of pairs (word,
    count), in which a word may come twice. Raises ValueError if a word isn't bytes, or a count is
    negative, and TypeError for what is not a pair.

    >>> train_from_counts({b"low": 2, b" lower": 1}, 258)[1]
    [(b'o', b'w'), (b'l', b'ow')]
    """
    options = Options(special_tokens, engine=engine, progress=progress, vocab_size=vocab_size,
                      min_word_count=min_word_count, min_frequency=min_frequency).checked()
    table = new_table(options)
    table.add(checked_counts(words))
    return learn_model(table, options)


def checked_counts(words: Any) -> Iterator[tuple[bytes, int]]:
    """Yield the pairs (word, count) of a mapping or an iterable; refuse the first bad pair."""
    if not isinstance(words, Iterable):
        raise TypeError(f"words must be a mapping of words to counts, or pairs (word, count), not {words!r:.60}")
    pair = None
    for pair in words.items() if isinstance(words, Mapping) else words:
        try:
            word, count = pair
            good = isinstance(word, bytes) and operator.index(count) >= 0
        except (TypeError, ValueError) as error:
            check_word_has_count(pair)
            raise TypeError(f"{pair!r:.60} is not a pair (word, count): {error}") from None
        if not good:  # faster than a call of require() for each pair
            check_word_has_count(pair)
            raise ValueError(f"words must be bytes and counts not negative, not {word!r:.60}: {count}")
        yield pair
    require(pair is not None, "no words to learn from")


def check_word_has_count(pair: object) -> None:
    """Refuse a word alone, which may have two bytes, as a pair has two parts."""
    if isinstance(pair, (str, bytes)):
        way = "for words without counts, pass {word.encode(): 1 for word in words}"
        raise TypeError(f"{pair!r:.60} is not a pair (word, count): {way}")


SLICE_BYTES = 1 << 20  # how much text a worker takes at a time; counting it takes about 0.2 s
SLICE_TEXTS = 1 << 14  # how many texts at most: they may all be empty
MOST_WORKERS = 61  # on Windows, a pool of processes can't be larger


class Slice(NamedTuple):
    """A part of a corpus that splits into the same words on its own: a part of a file, or several texts."""

    name: str  # of the file
    start_byte: int
    end_byte: int
    texts: tuple[bytes, ...] = ()  # in UTF-8
    first_text: int | None = None  # the number of texts[0] among all texts; None for a part of a file


STDIN = ("-", "-.jsonl")  # names of standard input; with bpe_more, the second one is JSON Lines


class Corpus:
    """The files or texts of a call. Raises ValueError or OSError if they can't be read."""

    def __init__(self, paths: Paths, texts: Strings, options: Options) -> None:
        require((paths is None) != (texts is None), "pass either the path of a file or texts=..., and not both")
        require(not isinstance(texts, (str, bytes)), "texts must be an iterable of strings, not one string")
        self.paths: list[str] = []
        if paths is not None:
            listed = [paths] if isinstance(paths, (str, bytes, os.PathLike)) else paths
            self.paths = [os.fsdecode(path) for path in listed]
            require(self.paths, "no file: the list of paths is empty")
        for path in self.paths:
            if path not in STDIN:
                os.stat(path)  # a missing file is an error before the first one is read
            files = os.path.join(path, "*.txt")
            require(not os.path.isdir(path), "{} is a folder; name its files: glob.glob({!r})", path, files)
        self.texts: Iterable[Any] = () if texts is None else texts
        if is_arrow(texts) and not hasattr(type(texts), "dtype"):  # a Series, which has one, also yields strings
            self.texts = [texts]
        self.options = options
        self.n_slices = 0  # how many have been read; 0 means that there was no text

    def slices(self) -> Iterator[Slice]:
        """Cut files into slices of about SLICE_BYTES, and collect texts into such slices."""
        for path in self.paths:
            if is_data(path, self.options):
                raise missing(f"reading {path}", "data.py")
            yield from slices_of_file(path, SLICE_BYTES, self.options)
        yield from slices_of_texts(self.texts, SLICE_BYTES, self.options.errors)

    def map(self, work: Callable[[Sequence[bytes]], T]) -> Iterator[T]:
        """Yield work(the texts of a slice) for each slice, in order, from several processes."""
        task = functools.partial(run_task, work, self.options.errors)
        for result in in_processes(task, self.slices(), self.options.workers or count_cores()):
            self.n_slices += 1
            yield result

    def count(self) -> WordTable:
        """Count the words."""
        table = new_table(self.options)
        for counts in self.map(functools.partial(count_texts, options=self.options)):
            table.add(counts.items())
        return table


def is_data(path: str, options: Options) -> bool:
    """Tell if a file is compressed, or has texts in its rows, as bpe_more/data.py reads them."""
    rows = () if options.column is None else (".jsonl", ".ndjson", ".json")
    return path.lower().endswith((".parquet", ".arrow", ".feather", ".gz", ".zst", *rows))


def slices_of_file(path: str, slice_bytes: int, options: Options) -> Iterator[Slice]:
    """Cut a file into slices; "-" is standard input."""
    start = 0
    with open(0 if path == "-" else path, "rb", closefd=path != "-") as file:
        blocks = iter(functools.partial(file.read, WINDOW_BYTES // 2), b"")
        for data in cut_stream(blocks, options.pattern, options.special_tokens, slice_bytes, slice_bytes):
            yield Slice(path, start, start + len(data), (data,))
            start += len(data)


def slices_of_texts(texts: Iterable[str], slice_bytes: int, errors: str) -> Iterator[Slice]:
    """Collect texts into slices."""
    encode: Callable[[str], bytes] = str.encode  # faster than a call of to_utf8
    if errors == "replace":
        encode = functools.partial(to_utf8, errors=errors)
    collected: list[bytes] = []
    n_bytes = 0
    if isinstance(texts, Mapping):
        keys = ", ".join(map(repr, texts))
        raise TypeError(f"texts must be an iterable of strings, not a {type(texts).__name__} with the keys {keys:.200}")
    texts = iter(texts)
    for number, text in enumerate(texts):
        try:
            utf8 = encode(text)
        except UnicodeEncodeError as error:
            raise ValueError(f"texts[{number}]: {error}; errors='replace' makes it U+FFFD") from None
        except TypeError:
            if number == 0 and is_arrow(text):
                yield from slices_of_arrow(itertools.chain([text], texts), slice_bytes, errors)
                return
            raise ValueError(f"texts[{number}]: text must be a str, not {type(text).__name__}") from None
        collected.append(utf8)
        n_bytes += len(utf8)
        if n_bytes >= slice_bytes or len(collected) == SLICE_TEXTS:
            yield Slice("", 0, n_bytes, tuple(collected), number + 1 - len(collected))
            collected = []
            n_bytes = 0
    if collected:
        yield Slice("", 0, n_bytes, tuple(collected), number + 1 - len(collected))


def is_arrow(value: object) -> bool:
    """Tell if a value gives access to Arrow's memory."""
    return hasattr(value, "__arrow_c_array__") or hasattr(value, "__arrow_c_stream__")


def slices_of_arrow(columns: Iterable[Any], slice_bytes: int, errors: str) -> Iterator[Slice]:
    """Cut columns of Arrow into slices. This needs bpe_more/data.py."""
    raise missing("text in Arrow's memory", "data.py")


def to_utf8(text: str, errors: str = "strict") -> bytes:
    """Encode text as UTF-8. With errors="replace", lone surrogates become U+FFFD."""
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, not {type(text).__name__}")
    if errors == "replace":  # JSON decoders leave "\ud83d\udc4d", which is one character in UTF-16
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.encode("utf-8")


def run_task(work: Callable[[Sequence[bytes]], T], errors: str, part: Slice) -> T:
    """Return work(the texts of a slice); add the file and the place to its errors."""
    texts: Sequence[bytes] = part.texts
    if errors == "replace":
        texts = [text.decode("utf-8", "replace").encode("utf-8") for text in texts]
    try:
        return work(texts)
    except UnicodeDecodeError as error:
        place = f"byte {part.start_byte + error.start} (0x{error.object[error.start]:02x}, {error.reason})"
        raise ValueError(f"{part.name}: not valid UTF-8 at {place}") from None
    except ValueError as error:
        place = f"{part.name}, bytes {part.start_byte} to {part.end_byte}"
        if part.first_text is not None:
            place = f"texts[{part.first_text + getattr(error, 'number', 0)}]"
        raise ValueError(f"{place}: {error}") from None


def count_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_processes(task: Callable[[Slice], T], slices: Iterator[Slice], workers: int) -> Iterator[T]:
    """Yield task(slice) for each slice, in order, from several processes."""
    first_slices = list(itertools.islice(slices, 2))
    slices = itertools.chain(first_slices, slices)
    # Processes import run_in_worker by its name; that fails if no module has it, as in exec().
    named = getattr(sys.modules.get(__name__), "run_in_worker", None) is run_in_worker
    if workers < 2 or len(first_slices) < 2 or not named:
        yield from map(task, slices)
        return

    import concurrent.futures
    import multiprocessing
    # with "fork", which is not the default everywhere, a script needs no `if __name__ == "__main__":`
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else None)
    # A process gets the task once, at its start, since a vocabulary in it may be large.
    pool = concurrent.futures.ProcessPoolExecutor(min(workers, MOST_WORKERS), context, start_worker, (task,))
    waiting: collections.deque[concurrent.futures.Future[T]] = collections.deque()
    try:
        for part in slices:
            waiting.append(pool.submit(run_in_worker, part))
            if len(waiting) > 2 * workers:  # all slices of a large corpus would fill the memory
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def start_worker(task: Callable[[Slice], object]) -> None:
    """Prepare a worker process: Ctrl-C is for the parent, but `kill` ends it, whatever main() has set."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    run_in_worker.task = task  # type: ignore[attr-defined]


def run_in_worker(part: Slice) -> Any:
    """Run the task of this worker process, which start_worker() has stored here."""
    return run_in_worker.task(part)  # type: ignore[attr-defined]


def count_texts(texts: Iterable[bytes], options: Options) -> dict[bytes, int]:
    """Return the count of each word in texts."""
    counts: collections.Counter[str] = collections.Counter()
    for utf8 in texts:
        pieces = special_token_finder(options.special_tokens).split(utf8.decode("utf-8"))
        for text in pieces[::2]:  # the others are special tokens
            counts.update(find_words(text, options.pattern))
    return {word.encode("utf-8"): count for word, count in counts.items()}


class WordTable(collections.Counter[bytes]):
    """Words and their counts. Tables in C have add(), copy(), which returns a dict, and len() as well."""

    n_bytes = 0  # in words, counting every occurrence

    def add(self, pairs: Iterable[tuple[bytes, int]]) -> None:
        """Add the counts of words. Raises OverflowError if C's numbers of 64 bits could not hold those of pairs."""
        n_bytes = self.n_bytes
        for word, count in pairs:
            number = operator.index(count)  # a sum of numpy's integers would wrap around
            self[word] += number
            n_bytes += len(word) * number
        self.n_bytes = n_bytes
        if n_bytes >= 2**63:
            raise OverflowError("2**63 bytes of words or more, counting every occurrence")


def new_table(options: Options) -> WordTable:
    """Return an empty table of words; bpe_more returns one in C."""
    return WordTable()


def learn(table: WordTable, options: Options) -> Iterator[Learned]:
    """Learn merges from a table of words, which is used up; yield them with their counts, best first."""
    merges_wanted = options.vocab_size - 256 - len(options.special_tokens)
    engine = engine_for(options)
    learn_with = engine.learn if engine else learn_in_python
    return learn_with(table, merges_wanted, options.min_frequency, options.min_word_count)


def learn_in_python(table: WordTable, merges_wanted: int, min_frequency: int,
                    min_word_count: int = 1) -> Iterator[Learned]:
    """Return the results of learn_merges that are wanted and frequent enough; the table is used up."""
    words = {word: count for word, count in table.items() if count >= min_word_count}
    table.clear()  # the learner needs the memory
    merges = itertools.islice(learn_from_bytes(words), merges_wanted)
    # no merge has a higher count than the one before it
    return itertools.takewhile(lambda merge: merge[2] >= min_frequency, merges)


def learn_model(table: WordTable, options: Options) -> Model:
    """Return (vocab, merges) for a table of words; warn if there are fewer tokens than requested."""
    vocab, merges = model_of(learn(table, options), options)
    if len(vocab) < options.vocab_size:
        text = f"{len(vocab):,} tokens, not {options.vocab_size:,}: no other pair has a count of"
        warn(f"{text} {options.min_frequency} or more")
    return vocab, merges


def model_of(learned: Iterable[Learned], options: Options) -> Model:
    """Return (vocab, merges) for the results of learn()."""
    merges = [(left, right) for left, right, _, _ in learned]
    specials = [special.encode("utf-8") for special in options.special_tokens]
    return dict(enumerate([*BYTES, *specials, *map(b"".join, merges)])), merges


# ------------------------------
# VII. The tokenizer
# ------------------------------

MAX_ID = 2**32 - 2  # the C engine has ids of 32 bits, and the last one means "no token" there


class Tokenizer:
    """Encode text with a trained vocabulary, and decode token ids.

    vocab           {token id: token}; a byte without an id can't be encoded
    merges          [(left, right), ...] in the order of their ranks
    special_tokens  the longest match wins; tokens that vocab lacks get ids after the greatest one
    pattern         the pattern that the vocabulary was trained with

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
    none may come twice. Raises ValueError if vocabulary and merges contradict each other.
    """

    def __init__(self, vocab: Mapping[int, bytes], merges: Iterable[Pair], special_tokens: Strings = None,
                 pattern: str = "gpt2") -> None:
        self._options = Options(special_tokens, pattern).checked()
        ids = ids_of(vocab)
        free_ids = itertools.count(max(ids.values(), default=-1) + 1)
        self._special_ids: dict[str, int] = {}
        for special in self.special_tokens:
            token = special.encode("utf-8")
            if token not in ids:
                ids[token] = next(free_ids)
                require(ids[token] <= MAX_ID, "no id is left for {!r}: the greatest id is {}", special, MAX_ID)
            self._special_ids[special] = ids[token]
        self._ids = ids
        self._vocab = {token_id: token for token, token_id in ids.items()}
        self._merge_ids = self._find_merge_ids(merges)
        made = set(self._special_ids.values()).intersection(new_id for _, _, new_id in self._merge_ids)
        wrong = [special for special, token_id in self._special_ids.items() if token_id in made]
        way = "leave them out of the vocabulary (or the .tiktoken file), and pass them as special tokens only"
        require(not wrong, f"merges make {plural(len(wrong), 'special token')}, too: {wrong!s:.99}; {way}")
        # These are made when they are needed. (cached_property would do it, but has a lock until Python 3.12,
        # which stops a process that was forked while another thread had it.)
        self._made_encoder: Any = None
        self._made_ordinary: Tokenizer | None = None

    def _find_merge_ids(self, merges: Iterable[Pair]) -> Collection[tuple[int, int, int]]:
        """Return the ids of each merge: left, right, new. Raises ValueError for unknown tokens and repeated merges."""
        ids, pairs = self._ids, [(left, right) for left, right in merges]
        try:
            merge_ids = [(ids[left], ids[right], ids[left + right]) for left, right in pairs]
        except KeyError as error:
            raise ValueError(f"a merge uses or creates {error}, which is not in the vocabulary") from None
        if len(set(merge_ids)) < len(merge_ids):
            seen: set[Pair] = set()
            for number, pair in enumerate(pairs):
                require(pair not in seen, "merge {} (from 0), {}, repeats an earlier one", number, pair)
                seen.add(pair)
        return merge_ids

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
    def merges(self) -> list[Pair]:
        """A new list of the merges, in the order of their ranks."""
        return [(self._vocab[left], self._vocab[right]) for left, right, _ in self._merge_ids]

    @property
    def special_ids(self) -> dict[str, int]:
        """The ids of the special tokens, in a new dict."""
        return self._special_ids.copy()

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """The special tokens, in the order given."""
        return tuple(self._options.special_tokens)

    @property
    def pattern(self) -> str:
        """The name of the pattern, or its expression."""
        return self._options.pattern

    def __len__(self) -> int:
        return len(self._vocab)

    def __repr__(self) -> str:
        specials = plural(len(self.special_tokens), "special token")
        return f"{type(self).__name__}({len(self):,} tokens, pattern {self.pattern!r}, {specials})"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._vocab, self.merges, self.special_tokens, self.pattern)

    @classmethod
    def train(cls, input_path: Paths = None, vocab_size: int | None = None, special_tokens: Strings = None, *,
              texts: Strings = None, pattern: str = "gpt2", errors: Errors = "strict", min_word_count: int = 1,
              min_frequency: int = 1, workers: int | None = None, engine: EngineName = "auto",
              progress: bool = False, column: str | None = "text") -> Tokenizer:
        """Train a tokenizer. The docstring of bpe.train_bpe explains all arguments, and errors."""
        specials = check_special_tokens(special_tokens)
        check_special_names(specials)  # save() will be able to write them
        vocab, merges = train_bpe(input_path, vocab_size, specials, texts=texts, pattern=pattern, errors=errors,
                                  min_word_count=min_word_count, min_frequency=min_frequency, workers=workers,
                                  engine=engine, progress=progress, column=column)
        return cls(vocab, merges, specials, pattern)

    @classmethod
    def load(cls, path: FilePath) -> Tokenizer:
        """Load a tokenizer.json, or the one in a folder, that save() wrote. Others need bpe_more."""
        path = os.path.join(path, "tokenizer.json") if os.path.isdir(path) else path
        with open(path, "rb") as file, error_prefix(path):
            return cls(*read_tokenizer_json(file.read()))

    @classmethod
    def from_files(cls, vocab_filepath: FilePath, merges_filepath: FilePath, special_tokens: Strings = None,
                   pattern: str = "gpt2") -> Tokenizer:
        """Load a vocab.json and a merges.txt as GPT-2 or save() write them.

        A special token is looked up as text, then as to_printable() writes it. If it isn't there, it
        gets a new id.
        """
        specials = check_special_tokens(special_tokens)
        with open(vocab_filepath, "rb") as file, error_prefix(vocab_filepath):
            names = json.load(file, object_pairs_hook=without_duplicates)
            for special in specials:
                name = special if special in names else to_printable(special.encode("utf-8"))
                if name in names:
                    names[special] = names.pop(name)
            tokens = tokens_of(names, specials)
            ids_of(to_bytes(names, [], tokens)[0])  # called for its errors, which should name this file
        with open(merges_filepath, encoding="utf-8-sig") as file, error_prefix(merges_filepath):
            vocab, merges = to_bytes(names, read_merges(file.read(), names), tokens)
            return cls(vocab, merges, specials, pattern)

    def save(self, folder: FilePath, **settings: str | None) -> None:
        """Save the model in a folder: tokenizer.json, and vocab.json and merges.txt for other programs.

        eos_token="<|endoftext|>" and other settings for transformers need bpe_more/formats.py.
        """
        if settings:
            raise missing(f"save({next(iter(settings))}=...)", "formats.py")
        check_special_names(self.special_tokens)
        names, pairs = printable(self._vocab, self.merges, self._special_ids)
        content = tokenizer_json(names, pairs, self._special_ids, self.pattern)
        write_files(folder, model_texts(content))

    @property
    def _encoder(self) -> Any:
        if self._made_encoder is None:
            self._made_encoder = self._new_encoder()
        return self._made_encoder

    def _new_encoder(self) -> Any:
        return PythonEncoder(self)  # bpe_more has others

    def encode(self, text: str) -> list[int]:
        """Encode text. Raises ValueError for a lone surrogate, or a byte without a token."""
        return self._encoder.encode(to_utf8(text))  # type: ignore[no-any-return]

    def encode_ordinary(self, text: str) -> list[int]:
        """Encode untrusted text, in which special tokens are plain text."""
        return self.ordinary.encode(text)

    @property
    def ordinary(self) -> Tokenizer:
        """The same tokenizer without special tokens."""
        if self._made_ordinary is None:
            self._made_ordinary = self._without_special_tokens()
        return self._made_ordinary

    def _without_special_tokens(self) -> Tokenizer:
        # Their ids are unknown to it, unless merges of another program use them as parts.
        used = set(itertools.chain.from_iterable(self._merge_ids))
        hidden = set(self._special_ids.values()) - used
        vocab = {token_id: token for token_id, token in self._vocab.items() if token_id not in hidden}
        return Tokenizer(vocab, self.merges, (), self.pattern)

    def with_special_tokens(self, special_tokens: Iterable[str]) -> Tokenizer:
        """Return a tokenizer with more special tokens, which get the next ids; all else stays."""
        new = check_special_tokens(special_tokens)
        return type(self)(self._vocab, self.merges, (*self.special_tokens, *new), self.pattern)

    def rename_special_tokens(self, names: Mapping[str, str]) -> Tokenizer:
        """Return a tokenizer in which special tokens have other names: {old name: new name}; ids stay."""
        return change("rename_special_tokens", self, names)  # type: ignore[no-any-return]

    def extend(self, input_path: Paths = None, n_tokens: int | None = None, *, texts: Strings = None,
               words: Counts | Iterable[tuple[bytes, int]] | None = None, **options: Any) -> Tokenizer:
        """Return a tokenizer that has learned n_tokens more from new text; old ids stay.

        Text is split and encoded as by this tokenizer, and its tokens are merged further, by the rule of
        training; a pair with the bytes of an old token is never merged. Instead of text, `words` has
        counts, as train_from_counts takes them; then n_tokens may be None: learn until each word is one
        token. Other options are those of train_bpe: min_word_count, min_frequency, errors, workers, engine,
        progress.
        """
        return change("extend", self, input_path, n_tokens, texts=texts, words=words, **options)  # type: ignore[no-any-return]

    def prune(self, vocab_size: int | None = None, input_path: Paths = None, *, texts: Strings = None,
              errors: Errors = "strict") -> Tokenizer:
        """Return a tokenizer with fewer tokens and new ids, without tokens that a text uses least.

        Without a text, the tokens with the greatest ids go first; without a size, those go that the text
        never uses. Single bytes, special tokens and tokens that merges use stay, so words without the others
        keep their tokens.
        """
        return change("prune", self, vocab_size, input_path, texts=texts, errors=errors)  # type: ignore[no-any-return]

    def sources(self, old: Tokenizer) -> dict[int, list[int]]:
        """Return, for each id, the ids of a tokenizer that became this one: embeddings to copy or average."""
        return change("sources", self, old)  # type: ignore[no-any-return]

    def encode_batch(self, texts: Iterable[str], workers: int | None = None,
                     errors: Errors = "strict") -> list[list[int]]:
        """Encode several texts; return a list of ids for each. An error names the text.

        workers is for C, which encodes on all cores. In Python, texts are encoded in turn: processes would
        lose time on handing over lists.
        """
        corpus = self._corpus(None, texts, workers=workers, errors=errors)
        lists = (run_task(self._encoder.encode_texts, errors, part) for part in corpus.slices())
        return list(itertools.chain.from_iterable(lists))

    def encode_arrays(self, texts: Iterable[str], workers: int | None = None,
                      errors: Errors = "strict") -> tuple[memoryview, memoryview]:
        """Encode several texts as one array; return (ids, offsets): text i has ids[offsets[i] : offsets[i + 1]].

        numpy.asarray(ids) makes no copy. ids are uint16 if the whole vocabulary fits, else uint32, and the
        len(texts) + 1 offsets are uint64.
        """
        ids, offsets = self._new_array(), array("Q", [0])
        for text_ids in self.encode_batch(texts, workers, errors):
            ids.extend(text_ids)
            offsets.append(len(ids))
        return memoryview(ids), memoryview(offsets)

    def _new_array(self) -> array[int]:
        """Return an empty array for ids: of uint16 if the whole vocabulary fits, else of uint32."""
        return array("H" if max(self._vocab, default=0) < 1 << 16 else "I")

    def encode_iterable(self, iterable: Iterable[str], errors: Errors = "strict") -> Iterator[int]:
        """Yield the ids of encode("".join(iterable)) one by one, the first after about 1 KB of text.

        It keeps some 64 KB of text in memory, or more if there is no place to cut (see WORD_END).
        """
        options = self._options._replace(errors=errors).checked()
        strings = join_surrogates(iterable) if errors == "replace" else iterable
        # "strict": join_surrogates has replaced all surrogates, or they are an error
        blocks = (b"".join(part.texts) for part in slices_of_texts(strings, 1 << 10, "strict"))
        pieces = cut_stream(blocks, options.pattern, options.special_tokens, 1 << 10, WINDOW_BYTES)
        return itertools.chain.from_iterable(map(self._encoder.encode, pieces))

    def encode_files(self, paths: Paths = None, output: FilePath = "", *, texts: Strings = None,
                     errors: Errors = "strict", workers: int | None = None, engine: EngineName = "auto",
                     progress: bool = False, begin: str | None = None, end: str | None = None,
                     column: str | None = "text") -> int:
        """Encode files, or texts, as one array of token ids in a .npy file; return how many there are.

        output is required. numpy.load reads it. The docstring of bpe.train_bpe explains the options, and
        errors; begin= and end= need bpe_more.
        """
        for name, token in (("begin", begin), ("end", end)):
            if token is not None:
                raise missing(f"encode_files({name}=...)", "corpora.py")
        name = os.fspath(output)
        require(name.endswith(".npy"), "the name of the output must end in .npy: {!r}", name)
        corpus = self._corpus(paths, texts, errors=errors, workers=workers, engine=engine, progress=progress,
                              column=column)
        ids = self._new_array()
        n_ids = 0
        with open(name + ".tmp", "wb") as file:
            file.write(npy_header(ids.itemsize, 0))
            for lists in corpus.map(self._encoder.encode_texts):
                ids = array(ids.typecode, itertools.chain.from_iterable(lists))
                ids.tofile(file)
                n_ids += len(ids)
            file.seek(0)
            file.write(npy_header(ids.itemsize, n_ids))
        os.replace(name + ".tmp", name)
        return n_ids

    def _corpus(self, paths: Paths, texts: Strings, **given: Any) -> Corpus:
        """Return a corpus that is split into words as this tokenizer does it."""
        return Corpus(paths, texts, self._options._replace(**given).checked())

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
        skipped = set(self._special_ids.values()) if skip_special_tokens else ()
        if not isinstance(ids, Iterable):
            raise TypeError(f"ids must be an iterable of token ids, not {ids!r:.60}")
        for number, token_id in enumerate(ids):
            try:
                token = self._vocab[token_id]
            except (KeyError, TypeError):
                token = None
            if token is None or not is_integer(token_id):
                raise ValueError(f"unknown token id {token_id!r:.60} at index {number}")
            yield b"" if token_id in skipped else token


class PythonEncoder:
    """Encode with the vocabulary and the merges of a tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.id_of_byte = {byte[0]: tokenizer._ids[byte] for byte in BYTES if byte in tokenizer._ids}
        self.ranks = {(left, right): rank for rank, (left, right, _) in enumerate(tokenizer._merge_ids)}
        self.new_ids = [new_id for _, _, new_id in tokenizer._merge_ids]  # by rank
        self.cached = functools.lru_cache(maxsize=1 << 16)(self.encode_word)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.tokenizer,)  # for worker processes, without the cache

    def encode(self, utf8: bytes) -> list[int]:
        """Encode text in UTF-8. Raises UnicodeDecodeError if it is invalid."""
        ids: list[int] = []
        pieces = special_token_finder(self.tokenizer.special_tokens).split(utf8.decode("utf-8"))
        for number, piece in enumerate(pieces):
            if number % 2:  # a special token
                ids.append(self.tokenizer._special_ids[piece])
                continue
            for word in find_words(piece, self.tokenizer.pattern):
                # A long word rarely recurs.
                ids += self.cached(word) if len(word) <= 64 else self.encode_word(word)
        return ids

    def encode_texts(self, texts: Sequence[bytes]) -> list[list[int]]:
        """Encode several texts. A ValueError has the number of its text as its attribute `number`."""
        lists: list[list[int]] = []
        for number, utf8 in enumerate(texts):
            try:
                lists.append(self.encode(utf8))
            except ValueError as error:
                error.number = number  # type: ignore[attr-defined]
                raise
        return lists

    def encode_word(self, word: str) -> tuple[int, ...]:
        """Encode one word. Raises ValueError if one of its bytes has no token."""
        utf8 = word.encode("utf-8")
        try:
            ids = [self.id_of_byte[byte] for byte in utf8]
        except KeyError as error:
            place = f"{BYTES[error.args[0]]!r}, in {word[:40]!r}"
            raise ValueError(f"the vocabulary has no token for the byte {place}") from None
        return tuple(merge_by_rank(ids, self.ranks, self.new_ids))


def ids_of(vocab: Mapping[int, bytes]) -> dict[bytes, int]:
    """Return {token: id}. Each token has one id, from 0 to MAX_ID."""
    ids: dict[bytes, int] = {}
    for token_id, token in vocab.items():
        if not isinstance(token, bytes) or not is_integer(token_id) or not 0 <= token_id <= MAX_ID:
            hint = "" if isinstance(token, bytes) else "; for files, use from_files"
            entry = f"{token_id!r:.40} to {token!r:.40}"
            raise ValueError(f"vocab maps ids from 0 to {MAX_ID} to bytes, not {entry}{hint}")
        if token in ids:
            raise ValueError(f"the token {token!r:.40} has two ids, {ids[token]} and {token_id}")
        ids[token] = operator.index(token_id)
    return ids


def join_surrogates(strings: Iterable[str]) -> Iterator[str]:
    """Replace surrogates as to_utf8 does, even if the halves of a character are in two strings."""
    decoder = codecs.getincrementaldecoder("utf-16-le")("replace")
    for text in strings:
        if isinstance(text, str):  # anything else is refused later
            text = decoder.decode(text.encode("utf-16-le", "surrogatepass"))
        yield text
    yield decoder.decode(b"", final=True)


def npy_header(id_bytes: int, n_ids: int) -> bytes:
    """Return the 128 bytes before the ids in a .npy file, format 1.0."""
    order = "<" if sys.byteorder == "little" else ">"
    entries = f"{{'descr': '{order}u{id_bytes}', 'fortran_order': False, 'shape': ({n_ids},), }}"
    return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + entries.ljust(117).encode() + b"\n"


# ------------------------------
# VIII. Files of a model
# ------------------------------

# tokenizer.json, in Hugging Face's format, is the model. GPT-2's two files, vocab.json and merges.txt,
# have no pattern, and don't say which tokens are special. All write each byte as a printable character: bytes that are
# printable in Latin-1 as themselves, the 68 others from U+0100 on (the space is "Ġ", a newline "Ċ").
PRINTABLE = {*range(33, 127), *range(161, 173), *range(174, 256)}
OTHERS = itertools.count(256)
CHARACTERS = "".join(chr(byte if byte in PRINTABLE else next(OTHERS)) for byte in range(256))
# Python's own encodings, such as cp1252, are made with these functions of codecs, which return (result, length).
BYTE_OF = codecs.charmap_build(CHARACTERS)  # {character: byte}


def to_printable(token: bytes) -> str:
    """Write a token in printable characters: to_printable(b" the") is "Ġthe"."""
    return codecs.charmap_decode(token, "strict", CHARACTERS)[0]


def to_token(text: str) -> bytes:
    """Read a token of a file: "Ġthe" is b" the". "<a b>" is text, since no byte is written as a space."""
    try:
        return codecs.charmap_encode(text, "strict", BYTE_OF)[0]
    except UnicodeEncodeError:
        return text.encode("utf-8")


def check_special_names(special_tokens: Iterable[str]) -> None:
    """Refuse special tokens that could not be told from other tokens in a file."""
    for special in special_tokens:
        text = "special token {!r:.99} can't be saved: it looks like bytes in printable characters"
        require(is_clear_name(special), text, special)


def is_clear_name(special: str) -> bool:
    """Tell if a special token, which a file has as text, can't be another token in printable characters.

    "Ġlow" could be the learned token " low", and "é" the byte E9. "<début>" is clear: with the byte E9 for
    é, it can't occur in UTF-8, and training learns only bytes that do. "¡hola!" is clear, too: no word has
    a letter and then "!".
    """
    token = to_token(special)
    if token == special.encode("utf-8"):
        return True
    if len(token) == 1:  # all single bytes are tokens
        return False
    inner = re.sub(rb"^[\x80-\xbf]{1,3}", b"", token)  # a token may begin inside a character
    try:
        text, _ = codecs.utf_8_decode(inner, "strict", False)  # False: it may end inside one
    except UnicodeDecodeError:
        return True
    return regex.search(WORD_END, text) is not None


def printable(vocab: Mapping[int, bytes], merges: Iterable[Pair],
              special_ids: Mapping[str, int]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return {token in printable characters: id}, and the merges as pairs of such tokens."""
    names = {token_id: to_printable(token) for token_id, token in vocab.items()}
    names |= {token_id: special for special, token_id in special_ids.items()}
    ids = {name: token_id for token_id, name in sorted(names.items())}
    if len(ids) < len(names):
        check_special_names(special_ids)
        raise ValueError("can't be saved: a special token is also another token in printable characters")
    text_of = {token: names[token_id] for token_id, token in vocab.items()}
    pairs = [(text_of[left], text_of[right]) for left, right in merges]
    check_names_in_merges(pairs, special_ids)
    return ids, pairs


def check_names_in_merges(pairs: Iterable[Sequence[str]], special_tokens: Iterable[str]) -> None:
    """Refuse merges of special tokens whose names aren't their bytes in printable characters, such as "<a b>".

    Other programs look for the token that such a merge makes under the joined names: "<a b>" and "x" would make
    "<a b>x", but the vocabulary has "<aĠb>x".
    """
    others = {special for special in special_tokens if to_printable(special.encode("utf-8")) != special}
    text = "can't be saved: the merge {} uses a special token, so it is never applied: leave it out"
    for pair in pairs if others else ():
        require(others.isdisjoint(pair), text, tuple(pair))


def tokenizer_json(ids: Mapping[str, int], pairs: Sequence[Sequence[str]], special_ids: Mapping[str, int],
                   pattern: str) -> dict[str, Any]:
    """Return the contents of tokenizer.json; other libraries may match a custom pattern differently."""
    added = [
        {"id": token_id, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for text, token_id in special_ids.items()
    ]  # fmt: skip
    expression = {"Regex": JSON_PATTERNS.get(pattern, pattern)}
    split = {"type": "Split", "pattern": expression, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
        "vocab": ids, "merges": pairs,
    }  # fmt: skip
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": None, "decoder": byte_level, "model": model,
    }  # fmt: skip


def model_texts(content: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of each file of a model, for the contents of its tokenizer.json."""
    pairs = map(" ".join, content["model"]["merges"])
    return {
        "tokenizer.json": to_json(content),
        "vocab.json": to_json(content["model"]["vocab"]),
        "merges.txt": "\n".join(["#version: 0.2", *pairs]) + "\n",
    }


def to_json(content: Any) -> str:
    """Write JSON with a line for each entry; indent= is slower."""
    return json.dumps(content, ensure_ascii=False, separators=(",\n", ": ")) + "\n"


def write_files(folder: FilePath, texts: Mapping[str, str]) -> None:
    """Write files into a folder. All are complete before the first one replaces an earlier one.

    Ctrl-C can leave .tmp files, or replace only some files; bpe_more avoids both.
    """
    os.makedirs(folder or ".", exist_ok=True)
    paths = [os.path.join(folder, name) for name in texts]
    for path, text in zip(paths, texts.values()):
        with open(path + ".tmp", "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
    for path in paths:
        os.replace(path + ".tmp", path)


def read_tokenizer_json(data: bytes) -> tuple[Any, ...]:
    """Return the arguments of Tokenizer for a tokenizer.json that save() wrote."""
    content = json.loads(data)
    ids, pairs = content["model"]["vocab"], content["model"]["merges"]
    special_ids = {token["content"]: token["id"] for token in content["added_tokens"]}
    try:
        expression = content["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    except (KeyError, IndexError, TypeError):
        expression = ""  # so it isn't ours
    # any other difference could change ids: nothing is guessed
    if content != tokenizer_json(ids, pairs, special_ids, expression):
        raise missing("a model that save() did not write", "formats.py")
    specials = check_special_tokens(list(special_ids))
    return *to_bytes(ids, pairs, tokens_of(ids, specials)), specials, check_pattern(expression)


def tokens_of(ids: Iterable[str], special_tokens: Iterable[str]) -> dict[str, bytes]:
    """Return {text: token} for a vocabulary of printable tokens and of special tokens."""
    tokens = {text: to_token(text) for text in ids}
    return tokens | {text: text.encode("utf-8") for text in special_tokens if text in tokens}


def without_duplicates(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the entries of an object of JSON. Raises ValueError if two have the same key."""
    entries: dict[str, Any] = {}
    for key, value in pairs:
        require(key not in entries, "{!r:.60} is there twice, with {} and {}", key, entries.get(key), value)
        entries[key] = value
    return entries


def to_bytes(ids: Mapping[str, int], pairs: Sequence[Sequence[str]], tokens: Mapping[str, bytes]) -> Model:
    """Return (vocab, merges) for ids and merges of texts, which stand for these tokens."""
    vocab = {token_id: tokens[text] for text, token_id in ids.items()}
    require(len(vocab) == len(ids), "two tokens have the same id")
    try:
        return vocab, [(tokens[left], tokens[right]) for left, right in pairs]
    except KeyError as error:
        raise ValueError(f"a merge uses {error!s:.99}, which is not in the vocabulary") from None
    except ValueError:
        wrong = next((number, pair) for number, pair in enumerate(pairs) if len(pair) != 2)
        raise ValueError("merge {} (from 0) must be two tokens, not {!r:.99}".format(*wrong)) from None


def read_tiktoken(path: FilePath) -> Model:
    """Read a .tiktoken file, such as cl100k_base.tiktoken; return (vocab, merges). This needs bpe_more."""
    raise missing("read_tiktoken", "formats.py")


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
            if token not in made and len(to_token(token)) > 1:
                hint = "these are not merges of bytes (CLIP's have </w> at the end of words, others @@ inside)"
                raise ValueError(f"line {number}: no merge makes {token!r}; {hint}")
    return list(pairs.values())


@contextlib.contextmanager
def error_prefix(path: FilePath) -> Iterator[None]:
    """Put a file's name before an error. Any error but a plain ValueError means another kind of file."""
    try:
        yield
    except (ImportError, MemoryError):
        raise
    except Exception as error:
        text = str(error) if type(error) is ValueError else f"not a byte-level BPE model ({error!r:.99})"
        raise ValueError(f"{os.fspath(path)}: {text}") from None


# ------------------------------
# IX. The command line
# ------------------------------

USAGE = """%(prog)s CORPUS [CORPUS ...] VOCAB_SIZE [options]     train, and write a model
       %(prog)s --show TEXT [options]                        show how the model splits TEXT"""
END_OF_TEXT = "<|endoftext|>"


def make_parser() -> tuple[ArgumentParser, Any]:
    """Return the parser, and its group of tasks; bpe_more/command.py adds options to both.

    Options of training have the names of train_bpe's arguments.
    """
    import argparse

    # For each option, argparse makes a formatter, and if it has no width, imports shutil to ask the terminal.
    of_options = functools.partial(argparse.HelpFormatter, width=80)
    parser = argparse.ArgumentParser(usage=USAGE, formatter_class=of_options)
    def error(message: str) -> NoReturn:
        raise ValueError(message)

    parser.error = error  # type: ignore[method-assign]
    add = parser.add_argument
    add("corpus", nargs="*", metavar="CORPUS ... VOCAB_SIZE", help="text files or - (stdin), then 10000 or 32k")
    more = f"a special token in addition to {END_OF_TEXT}; repeat the option for each"
    add("--special-token", action="append", dest="special_tokens", metavar="TEXT", help=more)
    # --special-token appends its TEXT to the list, and this option None; see special_tokens_of()
    none = f"no {END_OF_TEXT}: only those of --special-token"
    add("--no-special-tokens", action="append_const", const=None, dest="special_tokens", help=none)
    add("--pattern", help=f"{', '.join(PATTERNS)} or a custom pattern (default: gpt2)")
    add("--errors", choices=get_args(Errors), help="replace: read invalid UTF-8 as U+FFFD (default: strict)")
    add("--min-word-count", type=int, metavar="N", help="leave out words that occur fewer than N times (default: 1)")
    add("--min-frequency", type=int, metavar="N", help="merge no pair that occurs fewer than N times (default: 1)")
    add("--workers", type=int, metavar="N", help="the number of processes or threads (default: all cores)")
    add("--engine", choices=get_args(EngineName), help="auto: the C engine if it is built (default)")
    add("--model", metavar="FOLDER", help="the model's folder (default: bpeModel)")
    tasks = parser.add_mutually_exclusive_group()
    tasks.add_argument("--show", metavar="TEXT", help="show how the model in FOLDER splits TEXT")
    add("--quiet", action="store_true", help="no progress and no summary")
    add("--version", action="store_const", const=f"{parser.prog} {__version__}", help="print the version")
    parser.formatter_class = argparse.HelpFormatter
    return parser, tasks


def vocab_size_of(text: str) -> int | None:
    """Return the number that an argument such as 10000, 10,000 or 10k means, or None if it isn't one."""
    if not re.fullmatch(r"-?\d+([,_]\d{3})*[kK]?", text):
        return None
    return int(text.replace(",", "").lower().replace("k", "000"))


def special_tokens_of(args: Namespace) -> tuple[str, ...]:
    """Return the special tokens for training, checked: <|endoftext|> is the first one by default."""
    given = args.special_tokens or []
    tokens = check_special_tokens(token for token in given if token is not None)  # None: --no-special-tokens
    return tokens if None in given or END_OF_TEXT in tokens else (END_OF_TEXT, *tokens)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its status.

    1 means out of memory, or a killed worker; 2 bad input, or a file that can't be read or written; 130
    Ctrl-C or `kill`.
    """
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # `kill` ends the workers, too
        args = make_parser()[0].parse_intermixed_args(argv)
        if args.version:
            print(args.version)
        elif args.show is None:
            train(args)
        else:
            show(args.show, Tokenizer.load(args.model or "bpeModel"))
        return 0
    except KeyboardInterrupt:
        status, text = 130, "interrupted"
    except (OSError, ValueError, TypeError, ImportError) as error:
        status, text = 2, f"error: {error}"
    except (RuntimeError, OverflowError, MemoryError) as error:
        status, text = 1, f"error: {str(error) or 'out of memory'}"
    print(text, file=sys.stderr)
    return status


def train(args: Namespace) -> None:
    """Train on the files that the command line names, and save the model."""
    *paths, last = args.corpus or [""]
    size = vocab_size_of(last)
    require(size is not None, "the last argument must be the vocabulary size, such as 10000 or 10k, not {!r}", last)
    require(paths, "a corpus is missing: bpe.py corpus.txt 10000")
    given = {name: value for name in Options._fields if (value := getattr(args, name, None)) is not None}
    options = Options(**{**given, "special_tokens": special_tokens_of(args), "vocab_size": size}).checked()
    corpus = Corpus(paths, None, options)
    check_special_names(options.special_tokens)
    folder = args.model or "bpeModel"
    os.makedirs(folder, exist_ok=True)  # fail before an hour of training

    say(args, "counting words ...")
    table = corpus.count()
    say(args, f"learning merges from {plural(len(table), 'distinct word')} ...")
    vocab, merges = model_of(learn(table, options), options)
    Tokenizer(vocab, merges, options.special_tokens, options.pattern).save(folder)
    say(args, f"{len(vocab):,} of {size:,} tokens, saved in {folder}")


def say(args: Namespace, text: str) -> None:
    """Print a line to standard error, unless the command line has --quiet."""
    if not args.quiet:
        print(text, file=sys.stderr)


def show(text: str, tokenizer: Tokenizer) -> None:
    """Print text with its tokens set apart, and their ids."""
    ids = tokenizer.encode(text)
    print("|".join(tokenizer.vocab[token_id].decode("utf-8", "backslashreplace") for token_id in ids))
    print(*ids)


# ------------------------------
# X. Optional parts: the engine in C, and the folder bpe_more
# ------------------------------

@functools.cache
def find_engine() -> tuple[Any, str]:
    """Return (the C engine, ""), or (the C engine, why it only learns), or (None, why it is unavailable).

    build_ffi.py, next to this file, has built it, and loads it here.
    """
    path = os.path.join(os.path.dirname(globals().get("__file__", "")), "build_ffi.py")
    try:
        with open(path, encoding="utf-8") as file:
            is_ours = "of bpe.py" in file.readline()  # as its first line says
        require(is_ours, "build_ffi.py is another project's")
        spec: Any = importlib.util.spec_from_file_location("build_ffi", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        engine = module.load_engine(PATTERNS, __version__)  # with bpe_more, it also splits text
        return engine, engine.lacks
    except MemoryError:
        raise
    except OSError:
        return None, "build_ffi.py, which builds it, is not next to bpe.py"
    except Exception as error:
        return None, str(error)


def engine_for(options: Options) -> Any:
    """Return the C engine, or None for Python."""
    return find_engine()[0] if options.engine != "python" else None


def missing(what: str, file: str) -> ImportError:
    """Return the error for something that only the folder bpe_more has."""
    return ImportError(f"{what} needs bpe_more/{file}, which is not next to bpe.py")


def change(name: str, *arguments: Any, **options: Any) -> Any:
    """Return what a function of bpe_more/changes.py makes of a tokenizer."""
    if not more_is_here():
        raise missing(name, "changes.py")
    return getattr(importlib.import_module("bpe_more.changes"), name)(*arguments, **options)


def more_is_here() -> bool:
    """Tell if the folder bpe_more is next to this file, and has its version."""
    if __name__ != "bpe":
        return False  # a copy inside a package, or with another name, works alone
    spec = importlib.util.find_spec("bpe_more")
    folder = os.path.dirname(os.path.abspath(__file__))
    if spec is None or os.path.abspath(spec.origin or "") != os.path.join(folder, "bpe_more", "__init__.py"):
        return False
    version: str = importlib.import_module("bpe_more").VERSION
    if __version__ != version:
        text = f"bpe_more, which has version {version}, is not used: bpe.py has version {__version__}"
        warnings.warn(text, stacklevel=2)
    return __version__ == version


# The functions and classes above are the plain forms. If the folder is here, its own replace them, with the
# same results. This comes last, because the folder imports this file. Python looks names up when a function
# runs, so the functions above use the new ones.
if not TYPE_CHECKING and more_is_here():
    from bpe_more import command, corpora, formats, models, outputs, steps

    check_pattern, compile_pattern = steps.check_pattern, steps.compile_pattern
    find_words, places_to_cut = steps.find_words, steps.places_to_cut
    check_special_tokens = steps.check_special_tokens
    Corpus, new_table, learn = corpora.Corpus, corpora.new_table, corpora.learn
    slices_of_arrow, find_engine = corpora.slices_of_arrow, corpora.find_engine
    Tokenizer, ids_of = models.Tokenizer, models.ids_of
    read_tiktoken, error_prefix = formats.read_tiktoken, formats.error_prefix
    write_files, main = outputs.write_files, command.main

if __name__ == "__main__" and "__file__" in globals():  # a cell of a notebook has none
    own_name = os.path.splitext(os.path.basename(__file__))[0]
    if own_name.isidentifier():
        # Worker processes, bpe_more and pickles import this file by its name, which is `__main__` so far. So
        # it imports itself under its name, too, and uses only that copy.
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        main = importlib.import_module(own_name).main
    sys.exit(main())
