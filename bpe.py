#!/usr/bin/env python3
# /// script
# requires-python = ">=3.10"
# dependencies = ["regex"]
# ///
r"""Byte-pair encoding: learn a vocabulary of tokens from text, and encode text as token ids.

    python bpe.py corpus.txt 10000        trains, and saves the model in the folder bpeModel

The 10,000 tokens are the 256 bytes, <|endoftext|>, which separates documents, and 9,743 merges.

Training, in six lines:

    1. Split the text into words, and count how often each one occurs.
    2. Write every word as a sequence of tokens; at first, each token is one byte.
    3. Count how often each pair of adjacent tokens occurs.
    4. Merge the most frequent pair into a new token, wherever it occurs.
    5. Repeat from 3 until the vocabulary has the requested size.
    6. The merges, in the order in which they were made, are the tokenizer.

To encode text, split it into words and replay the merges on each word, in the same order.

When two pairs have the same count, the greater pair wins. Tokens are compared as Python compares bytes:
b"s" > b"e", and b"ab" > b"a", which is only its beginning. The left tokens are compared first; if they
are equal, the right ones decide. So (b"s", b"t") wins over (b"e", b"s"), because b"s" > b"e". Two things
to get right:

    - A pair is counted at every position, even if positions overlap. In "aaaa" the pair a a is
      counted three times; but replacing goes from left to right without overlap: "aaaa" becomes aa aa.
    - Pairs are compared, not the tokens that they would make. On a tie (b"ab", b"a") beats
      (b"a", b"bz"), because b"ab" > b"a", although b"aba" < b"abz".

The tie rule is written three times: in train_by_definition (Part I), in heap_entry() with descending()
(Part II), and in is_better() of bpe_fast.c, of the C engine.

Glossary, with values from the example below: no special tokens, so b"st" gets the id 256, and b"est" 257:

    word, pre-token  b" newest"       a match of a regular expression, the pattern; no token crosses its ends
    token            b"est"           a sequence of bytes that has an id in the vocabulary
    token id         257              its number; training numbers bytes, special tokens, merges, in this order
    pair             (101, 256)       two adjacent tokens, or their ids
    merge            (b"e", b"st")    a pair that became a token
    rank             1                the position of a merge in the list of merges, from 0
    count            9                how often a pair, or a word, occurs in the whole corpus
    special token    "<|endoftext|>"  text that is never split and never learned; the text before it and
                                      the text after it are separate texts

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
    II    The same, fast        an index from pairs to words and a heap for training, ranks for encoding
    III   On characters         as first used for language
    IV    Words                 patterns, special tokens, and where text may be cut
    V     Training              train_bpe: counting words on all cores, then learning, with progress
    VI    The tokenizer         the class Tokenizer: encoding and decoding
    VII   Files of a model      tokenizer.json, vocab.json and merges.txt
    VIII  The command line
    IX    The engine in C       what it does if it is built

Part I is the definition: tests compare the other Parts with it. The program is Parts II to IX; of Part I
it uses only GPT2, one of its patterns. This file works on its own, with the package regex. If
`python build_ffi.py` has built the C engine next to it, three steps run in C, with the same results:
counting words, learning merges, and encoding. Wherever one of them begins, an `if` asks for the engine (Part IX),
and the other branch is the Python of this file. The package bpe_more builds on this file: it reads other
kinds of files, and extends vocabularies.
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
import stat
import sys
import threading
import time
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, NoReturn, TypeVar, get_args

if sys.version_info < (3, 10):
    sys.exit("bpe.py requires Python 3.10 or later; this is " + sys.version.split()[0])
if __name__ == "__main__" and not importlib.util.find_spec("regex"):
    sys.exit("bpe.py requires the package regex: pip install regex")
import regex

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

__all__ = [
    "PATTERNS", "Tokenizer", "count_words", "find_engine", "find_words", "learn_characters", "segment", "train_bpe",
    "train_from_counts",
]  # fmt: skip

__version__ = "0.9.0"

Word = tuple[bytes, ...]
Pair = tuple[bytes, bytes]
FilePath = str | os.PathLike[str]
Paths = FilePath | Iterable[FilePath] | None
Strings = Iterable[str] | None  # texts, or special tokens
Counts = Mapping[bytes, int]  # of words
Model = tuple[dict[int, bytes], list[Pair]]  # (vocab, merges)
Learned = tuple[bytes, bytes, int, int]  # (left, right, count of the pair, replacements made)
EngineName = Literal["auto", "python", "c"]
T = TypeVar("T")  # a token of any kind: bytes, text or a number; in Part V, the result of a task
Token = TypeVar("Token", bytes, str)  # bytes or text, which left + right joins


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
    r"|\s+(?!\S)"  # whitespace; if more text follows, without the last character, which may begin " the"
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
        # No count is overwritten: words differ in their bytes, which merging does not change.
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
#
# Part I writes the word "low" as a tuple of tokens. Here it is a string in which one character stands
# for one token, so that a pair is two characters, and merging it is word.replace(pair, new), which is
# fast:
#
#                                  Part I                     here
#     at first                     (b"l", b"o", b"w")         "low": chr(n) is the byte n
#     after the first merge, o w   (b"l", b"ow")              "l" + chr(256)
#     after the second, l ow       (b"low",)                  chr(257)

BYTES = [bytes([byte]) for byte in range(256)]  # the first tokens


def descending(token: bytes) -> str:
    """Return a sort key that puts greater tokens first: b"st" before b"s", b"s" before b"es".

    On a tie the greatest pair wins, but heapq pops the smallest entry first, so each byte is subtracted
    from 255. The chr(256) at the end is greater than all other characters: without it, the key of b"s" would
    be the beginning of the key of b"st", and come first.
    """
    return "".join(chr(255 - byte) for byte in token) + chr(256)


def learn_merges(words: Iterable[str], counts: Sequence[int], tokens: Iterable[bytes]) -> Iterator[Learned]:
    """Yield (left, right, count, replaced) for each merge, best first, until no pair is left.

    words   strings in which chr(i) stands for tokens[i]
    counts  how often each word occurs
    tokens  the first tokens: the 256 bytes (b"hi" is then the string "hi"), characters (Part III), or, to
            extend a vocabulary, all of its tokens. A pair that would make a first token is never merged,
            since that token would get a second id

    count is the pair's count. replaced, which bpe_more reports, is the number of replacements, smaller
    if the pair overlaps itself, as in "aaa". In this example, `o w` occurs 5 + 2 times:

    >>> list(itertools.islice(learn_merges(["low", "lower"], [5, 2], BYTES), 2))
    [(b'o', b'w', 7, 7), (b'l', b'ow', 7, 7)]

    All pairs are counted once, at the beginning. From then on, only words that contain the merged pair,
    or used to contain it, are looked at, and only counts that change are updated. A heap finds the best
    pair.

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
        """Return an entry of the heap: the pair to merge first has the smallest."""
        return -pair_counts[pair], keys[ord(pair[0])], keys[ord(pair[1])], pair

    heap = list(map(heap_entry, pair_counts))
    heapq.heapify(heap)
    while heap:
        negative_count, _, _, pair = heapq.heappop(heap)
        count = pair_counts.get(pair, 0)  # [pair] would re-create one deleted below
        if count != -negative_count:  # out of date
            if count:
                heapq.heappush(heap, heap_entry(pair))
            continue

        left, right = tokens[ord(pair[0])], tokens[ord(pair[1])]
        if left + right in first_tokens:  # a learned token is made by one merge only (see check_merges)
            continue
        if len(tokens) > sys.maxunicode:
            raise OverflowError(f"Python can't learn more than {len(tokens):,} tokens; the engine in C can")
        new = chr(len(tokens))  # from 55,296 to 57,343 a lone surrogate: harmless, as nothing encodes it
        tokens.append(left + right)
        keys.append(descending(left + right))

        changes, replaced = merge_in_words(words, counts, words_with, pair, new)
        for changed_pair, change in changes.items():
            pair_counts[changed_pair] += change
            if new in changed_pair:
                heapq.heappush(heap, heap_entry(changed_pair))
            elif not pair_counts[changed_pair]:  # always so for the merged pair
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

    words_with[pair] may still name words that have lost the pair to other merges: nothing is replaced
    there.
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

    # Up to here, only pairs on the left or right of an X were changed. Those that became X are subtracted
    # here: in `a a a`, now `X a`, the first `a a` became X, and the second one was on its right.
    changes[pair] -= replaced
    return changes, replaced


def learn_from_bytes(words: Mapping[bytes, int]) -> Iterator[Learned]:
    """Run learn_merges on words given as bytes, with their counts: the byte n becomes the character chr(n).

    >>> words = words_of("low low lower lowest newest newest")
    >>> learned = learn_from_bytes({b"".join(word): count for word, count in words.items()})
    >>> [(left, right) for left, right, _, _ in itertools.islice(learned, 5)] == train_by_definition(words, 5)
    True
    """
    strings = [word.decode("latin-1") for word in words]
    return learn_merges(strings, list(words.values()), BYTES)


# Encoding a word by definition tries all merges, perhaps 50,000. It is faster to look at the pairs that
# the word has, and to merge the one of the lowest rank, again and again. Is that the same?


def check_merges(merges: Iterable[tuple[T, T, T]]) -> None:
    """Check that merging by rank gives the same as replaying the merges, which are (left, right, made).

    It doesn't for these merges:

        0  ab c
        1  a b

        replaying   a b c -> ab c     merge 0 finds no ab, and is not tried again
        by rank     a b c -> abc      once merge 1 has made ab, the pair ab c has a rank

    It does if no merge makes a token that an earlier merge uses. Then each pair that a new token forms
    has a higher rank than the merge that made the token, so ranks come up in ascending order, as in
    replaying.

    Merges from training are like that: a token is made by one merge, everywhere at once, before any merge
    uses it. No second merge, such as es + t beside e + st, makes the same token: at two places with the bytes
    est, each merge does the same, as long as none crosses their ends, so both become est by the same merge.
    If a merge crosses an end before that, a token there holds a byte from outside, and that place never
    becomes est.

    Raises ValueError for the first merge that repeats an earlier one, or makes a token that an earlier
    one uses. Only segment (Part III) calls it. The Tokenizer of Part VI refuses only repeated merges:
    other programs' merges may be in any order, and these programs, too, merge by rank.
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
    steps. Tokens keep their indexes: the new token is put in the place of the left one, and None in the
    place of the right one. Links lead from each token to the ones before and after it. An entry of the
    heap is out of date if the two tokens there no longer have its rank.
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


# If a trainer and an encoder of words are all that you need, stop reading here, and copy the imports,
# the names of types, and Parts I and II. The rest of this file makes a tool of them, with files of any
# size, special tokens, ids, and models that other programs load.


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
    if END_OF_WORD in word:
        raise ValueError(f"the word {word!r} contains {END_OF_WORD!r}, the marker for the end of a word")
    return [*word[:-1], word[-1] + END_OF_WORD]


def learn_characters(words: Mapping[str, int], merges_wanted: int) -> list[tuple[str, str]]:
    """Learn merges of characters from words and their counts.

    >>> learn_characters(collections.Counter(split_at_spaces("low low lower")), 3)
    [('l', 'o'), ('lo', 'w</w>'), ('w', 'e')]
    """
    merges_wanted = min(operator.index(merges_wanted), sys.maxsize)  # islice takes no more
    if merges_wanted < 0:
        raise ValueError(f"merges_wanted must not be negative: {merges_wanted}")
    for word, count in words.items():
        if operator.index(count) < 0:
            raise ValueError(f"counts must not be negative: {word!r:.60} has {count}")
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

# The named patterns. Every character of any text is in a match, and no match is empty: the matches are
# the words. None has capturing groups, which findall would return instead of the words.
PATTERNS = {
    # the lesson's
    "gpt2": GPT2,
    # GPT-4's: also contractions in capitals, and at most three digits; (?![\s\S]) is the end of the text
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s+(?![\s\S])|\s*[\r\n]|\s+(?!\S)|\s",
    # GPT-4o's: "HelloWorld" is two words
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    # Llama 3's: line endings stay together
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
PATTERNS["qwen2"] = PATTERNS["llama3"].replace("{1,3}", "")  # each digit is a word

# GPT-2's pattern as it was published. GPT2 splits the same, but faster; in tokenizer.json, some programs
# know only this spelling.
PUBLISHED_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
PATTERN_NAMES = {expression: name for name, expression in PATTERNS.items()} | {PUBLISHED_GPT2: "gpt2"}


def check_pattern(pattern: str) -> str:
    """Check a pattern, which is a name or an expression; return its name if it has one."""
    if not isinstance(pattern, str):
        raise ValueError(f"pattern must be a str, not {pattern!r:.200}")
    pattern = PATTERN_NAMES.get(pattern, pattern)
    if pattern not in PATTERNS and not any(character in pattern for character in r"\.^$*+?{}[]()|"):
        raise ValueError(f"unknown pattern {pattern!r:.150}; the names are {', '.join(PATTERNS)}")
    compile_pattern(pattern)  # may raise an error
    return pattern


@functools.lru_cache(maxsize=32)
def compile_pattern(pattern: str) -> Any:
    r"""Compile a named pattern, or an expression.

    It is read as version 1 of regex, which has operations on sets, as tiktoken has: [\w--\d] is \w
    without digits. Version 1 also lets (?i:ss) match "ß"; (?-f) turns that off.
    """
    expression = PATTERNS.get(pattern, pattern)
    # regex finds no "A" with (?i:b)|[^a], unless a first branch, which matches nothing, keeps it from optimizing
    first = "(?!)|" if regex.search(r"\(\?\w*i", pattern) else ""
    try:
        expression.encode("utf-8")  # a lone surrogate could not be saved
        compiled = regex.compile("(?-f)" + first + expression, regex.V1)
    except (regex.error, ArithmeticError, LookupError, RecursionError, ValueError) as error:  # regex raises them
        reason = getattr(error, "msg", error)
        raise ValueError(f"pattern {pattern!r:.150} is not a valid regular expression: {reason!s:.100}") from None
    if compiled.flags & regex.REVERSE:
        raise ValueError(f"pattern {pattern!r:.150} searches backward; leave out (?r)")
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


def is_integer(value: Any) -> bool:
    """Whether a value is an integer: numpy's are, its arrays and True are not."""
    try:
        operator.index(value)
    except TypeError:
        return False
    return not isinstance(value, bool)


def check_special_tokens(special_tokens: Strings, for_files: bool = False) -> tuple[str, ...]:
    """Check special tokens; return them as a tuple.

    A single byte can't be one, since all bytes have ids already; nor can text with U+FFFD, which
    decode() writes for invalid bytes. A set is refused because its order, which decides the ids, differs
    between runs; a string, because each of its characters would be a token. A model's files could not tell
    "é" from the byte E9, so it is refused if for_files.
    """
    if isinstance(special_tokens, (str, bytes, set, frozenset, Mapping)):
        raise TypeError(f"special_tokens must be a list of strings, not {special_tokens!r:.60}")
    tokens = tuple(() if special_tokens is None else special_tokens)
    for number, token in enumerate(tokens, 1):
        valid = isinstance(token, str) and not regex.search("[\ufffd\ud800-\udfff]", token)
        if not valid or len(token.encode("utf-8")) < 2:
            rule = "at least two bytes of text, without U+FFFD and lone surrogates"
            raise ValueError(f"special token {number} ({token!r:.99}) must be {rule}")
        if for_files and to_token(token) != token.encode("utf-8"):
            raise ValueError(f"special token {token!r:.99} can't be saved: it looks like printable bytes")
    if len(set(tokens)) < len(tokens):
        raise ValueError(f"duplicate special token among {tokens!s:.200}")
    return tokens


def check_vocabulary(vocab_size: Any, special_tokens: Strings, for_files: bool = False) -> tuple[str, ...]:
    """Check special tokens, and that there is room for them and the bytes; return them as a tuple."""
    specials = check_special_tokens(special_tokens, for_files)
    least = 256 + len(specials)
    if not is_integer(vocab_size) or vocab_size < least:
        rule = f"an integer of at least {least}, for bytes and special tokens"
        raise ValueError(f"vocab_size must be {rule}, not {vocab_size!r:.60}")
    return specials


@functools.lru_cache(maxsize=32)
def special_token_finder(special_tokens: tuple[str, ...]) -> re.Pattern[str]:
    """Return an expression for special tokens, the longest first. Its split() gives text, token, text, ..."""
    longest_first = sorted(special_tokens, key=len, reverse=True)
    # "x^" matches nowhere: ^ is the beginning of the text
    return re.compile(f"({'|'.join(map(re.escape, longest_first)) or 'x^'})")


# Files and streams are counted and encoded in pieces. A cut must not change a word, and must not divide
# a special token, such as <|end|> here. It is safe just before the character above each ^:
#
#     two cats<|end|> and it's 12 o'clock
#        ^    ^          ^    ^  ^
#
# In named patterns, a word ends after a letter or digit, before anything that is not a letter, digit,
# mark or apostrophe ("it's" is one word in some); tests/test_reference.py tries that with characters of
# many kinds. There is no cut after whitespace, because what follows decides how it is split. Nothing is
# known about a custom pattern, so cuts are only made before special tokens.
WORD_END = r"(?r)(?<=[\p{L}\p{N}])(?=[^\p{L}\p{N}\p{M}'])"  # (?r): the last place first
WINDOW = 8 << 10  # how much text is searched for a cut at a time: bytes of a file, or characters


def last_cut(text: str, pattern: str, special_tokens: tuple[str, ...]) -> int:
    """Return the last index at which text, a part of a larger text, can be cut, or 0 if there is none."""
    # Near the ends of a window, a special token may be incomplete, and in a file also a character: up to 3 of its
    # bytes are then lone surrogates. default=1: the character after a cut must be whole.
    margin = 3 + max(map(len, special_tokens), default=1)

    def divides_special_token(place: int) -> bool:
        # "cats<|e" and "nd|>": at least one character of the token is on each side
        return any(token in text[place - len(token) + 1 : place + len(token) - 1] for token in special_tokens)

    finder = WORD_END if pattern in PATTERNS else "(?r)" + special_token_finder(special_tokens).pattern
    for match in regex.finditer(finder, text):
        place = match.start()
        if margin <= place <= len(text) - margin and not divides_special_token(place):
            return place
    return 0


# ------------------------------
# V. Training
# ------------------------------

# train_bpe, Tokenizer.train, and train in Part VIII, for the command line, make two calls:
#
#     count_corpus   cuts files, or collects texts, into slices, so that no word changes (slices_of), and counts
#                    their words: count_slices, or the engine in C
#     learn_model    learns merges from the counts (learn_merges of Part II, or the engine), and numbers the tokens

def train_bpe(input_path: Paths = None, vocab_size: int | None = None, special_tokens: Strings = None, *,
              texts: Strings = None, pattern: str = "gpt2", workers: int | None = None,
              engine: EngineName = "auto", progress: bool = False) -> Model:
    """Train byte-level BPE; return vocab {id: token} and merges [(left, right), ...] in order.

    input_path        the path of a UTF-8 text file, or a list of paths; line endings and byte-order marks are
                      text like any other
    vocab_size        required: the maximum number of tokens, which are 256 bytes, special tokens, and merges;
                      in Python, more than 1,114,112 can't be learned
    special_tokens    a list of strings that get the ids from 256 on; text is split at them first
    texts             instead of input_path, an iterable of strings, each a separate text
    pattern           "gpt2", "cl100k", "o200k", "llama3", "qwen2", or an expression for the package regex
    workers           the maximum number of processes, or of threads if C counts; by default one per core.
                      Except on Linux, processes need `if __name__ == "__main__":` in a script
    engine            "auto": C, if it is built, for all that it can do (Part IX). "python". "c": an error if C
                      isn't built, or can't count with the pattern; if it was built for learning only, Python
                      counts. The result is the same
    progress          show progress on standard error, if it is a terminal

    Counting takes time in proportion to the text, and memory in proportion to its distinct words. There
    is a warning if there are fewer tokens than requested, because every word is a single token.

    >>> train_bpe(texts=["low lower lowest"], vocab_size=258)[1]
    [(b'o', b'w'), (b'l', b'ow')]

    Raises ValueError or TypeError for bad arguments and for text that is not UTF-8, OSError for files,
    RuntimeError if a worker process is killed, OverflowError if counts add up to 2**63 in C.
    """
    specials = check_vocabulary(vocab_size, special_tokens)
    words = count_corpus(input_path, texts, specials, pattern, workers, engine, progress)
    return learn_model(words, vocab_size, specials, engine, progress)


def count_words(paths: Paths = None, special_tokens: Strings = None, *, texts: Strings = None, pattern: str = "gpt2",
                workers: int | None = None, engine: EngineName = "auto", progress: bool = False) -> dict[bytes, int]:
    """Count words: the first half of train_bpe, with its arguments and errors.

    >>> count_words(texts=["hi hi"], engine="python")
    {b'hi': 1, b' hi': 1}
    """
    specials = check_special_tokens(special_tokens)
    return dict(count_corpus(paths, texts, specials, pattern, workers, engine, progress).items())


def train_from_counts(words: Counts | Iterable[tuple[bytes, int]], vocab_size: int, special_tokens: Strings = None, *,
                      engine: EngineName = "auto", progress: bool = False) -> Model:
    """Learn from the counts of words: the second half of train_bpe, with the same result.

    words is a mapping, or pairs (word, count) in which a word may come twice: so the counts of several
    corpora add up. A word with a special token in it is a ValueError: text is split at these, so it
    can't come from text.

    >>> train_from_counts({b"low": 2, b" lower": 1}, 258)[1]
    [(b'o', b'w'), (b'l', b'ow')]
    """
    specials = check_vocabulary(vocab_size, special_tokens)
    choose_engine(engine)  # an error before the work
    special = re.compile(special_token_finder(specials).pattern.encode("utf-8"))
    counts: dict[bytes, int] = collections.defaultdict(int)
    for item in words.items() if isinstance(words, Mapping) else words:
        try:
            word, n = item
            n = operator.index(n)  # a sum of numpy's integers would wrap around
        except (TypeError, ValueError) as error:
            raise TypeError(f"{item!r:.60} is not a pair (word, count): {error}") from None
        if not isinstance(word, bytes) or n < 0 or special.search(word):
            raise ValueError(f"words are bytes without special tokens, counts not negative: {word!r:.60}, {n}")
        if n:
            counts[word] += n
    return learn_model(counts, vocab_size, specials, engine, progress)


def count_corpus(paths: Paths, texts: Strings, special_tokens: tuple[str, ...], pattern: str, workers: int | None,
                 engine_name: EngineName, progress: bool) -> Any:
    """Return the counts of all words: a dict, or a table of the engine, which also has len() and items()."""
    pattern = check_pattern(pattern)
    engine = choose_engine(engine_name, pattern)
    n_workers = check_workers(workers)
    slices = slices_of(paths, texts, pattern, special_tokens, "bytes counted" if progress else "")
    if engine is not None:
        return engine.count(slices, pattern, special_tokens, n_workers)
    return count_slices(slices, pattern, special_tokens, n_workers)


def learn_model(words: Any, vocab_size: Any, special_tokens: Sequence[str], engine_name: EngineName,
                progress: bool) -> Model:
    """Learn merges from counts of words; return (vocab, merges)."""
    merges_wanted = operator.index(vocab_size) - 256 - len(special_tokens)
    engine = choose_engine(engine_name)
    if engine is not None:
        learned = engine.learn(words, merges_wanted)
    else:
        learned = itertools.islice(learn_from_bytes(words), min(merges_wanted, sys.maxsize))
    learned = with_progress(learned, "merges learned" if progress else "", merges_wanted)
    merges = [(left, right) for left, right, _, _ in learned]  # this loop makes the learner run

    special_bytes = [special.encode("utf-8") for special in special_tokens]
    vocab = dict(enumerate([*BYTES, *special_bytes, *map(b"".join, merges)]))
    if len(vocab) < vocab_size:
        text = f"{len(vocab):,} tokens, not {vocab_size:,}: every word is a single token"
        warnings.warn(text, stacklevel=3)  # at the line that called train_bpe
    return vocab, merges


# ---- Counting

def count_slices(slices: Iterator[Slice], pattern: str, special_tokens: tuple[str, ...],
                 workers: int) -> dict[bytes, int]:
    """Count the words of slices, in several processes."""
    task = functools.partial(count_slice, pattern=pattern, special_tokens=special_tokens)
    words: collections.Counter[bytes] = collections.Counter()
    for counts in in_processes(task, slices, workers):
        words.update(counts)
    return words


def count_slice(part: Slice, pattern: str, special_tokens: tuple[str, ...]) -> dict[bytes, int]:
    """Return the count of each word in a slice."""
    counts: collections.Counter[str] = collections.Counter()
    with part.named_in_errors():
        for utf8 in part.read():
            pieces = special_token_finder(special_tokens).split(utf8.decode("utf-8"))
            for piece in pieces[::2]:  # the others are special tokens
                counts.update(find_words(piece, pattern))
    return {word.encode("utf-8"): n for word, n in counts.items()}


# ---- Arguments

def check_workers(workers: int | None) -> int:
    """Check a number of workers; None means one per core that this process may use."""
    if workers is None:
        cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
        workers = len(cores)
    if not is_integer(workers) or workers < 1:
        raise ValueError(f"workers must be a positive integer, not {workers!r:.60}")
    return min(workers, 61)  # Windows can't wait for more processes


NOT_TEXT = (".parquet", ".arrow", ".feather", ".jsonl", ".ndjson", ".json", ".gz", ".zst", ".xz", ".bz2")


def check_input(paths: Paths, texts: Strings, outputs: Sequence[str] = ()) -> list[str]:
    """Return a list of the paths to read, [] for texts. Refuses what can't be read, and outputs that are inputs."""
    if (paths is None) == (texts is None):
        raise ValueError("pass either the path of a file or texts=..., and not both")
    if isinstance(texts, (str, bytes, Mapping)):
        raise TypeError(f"texts must be an iterable of strings, not {type(texts).__name__}: {texts!r:.60}")
    if isinstance(paths, (str, bytes, os.PathLike)):
        paths = [paths]
    names = list(map(os.fsdecode, () if paths is None else paths))
    if not names and texts is None:
        raise ValueError("no file: the list of paths is empty")
    for path in names:
        # "-", standard input, is no regular file, as 0 says. For a missing file, stat() raises FileNotFoundError
        mode = 0 if path == "-" else os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise ValueError(f"{path} is a folder; name its files, such as {path}/*.txt")
        if path.lower().endswith(NOT_TEXT) or not stat.S_ISREG(mode):
            ways = "`python -m bpe_more`, or `from bpe_more import train_bpe`, reads this"
            raise ValueError(f"{path}: bpe.py reads plain text files; {ways}")
    for output in filter(os.path.exists, outputs):
        if not os.path.isfile(output):
            raise ValueError(f"the output {output} is {'a folder' if os.path.isdir(output) else 'not a regular file'}")
        for path in names:
            if os.path.samefile(output, path):
                raise ValueError(f"the output {output} is the same file as {path}, which is needed, too")
    return names


# ---- The corpus, in slices

SLICE_BYTES = 1 << 20  # how much text a worker takes at a time; counting it in Python takes about 0.1 s
SLICE_TEXTS = 1 << 14  # how many texts at most, if they are short


class Slice(NamedTuple):
    """A part of a corpus, cut so that no word changes: a part of a file, or several texts."""

    path: str  # of the file, or "" for texts
    start: int  # its first byte in the file, or the number of its first text
    end: int
    texts: Sequence[bytes] = ()  # in UTF-8

    def n_bytes(self) -> int:
        """Return the number of bytes."""
        return self.end - self.start if self.path else sum(map(len, self.texts))

    def read(self) -> Sequence[bytes]:
        """Return the texts. A worker reads its part of a file here."""
        if not self.path:
            return self.texts
        with open(self.path, "rb") as file:
            file.seek(self.start)
            utf8 = file.read(self.end - self.start)
        if len(utf8) < self.end - self.start:
            raise OSError(f"{self.path} became shorter while it was read")
        return [utf8]

    @contextlib.contextmanager
    def named_in_errors(self, done: Sequence[object] = ()) -> Iterator[None]:
        """In errors, name the file and the byte, or the text.

        done is the list of results, which grows in the block: its length is the number of the text that failed.
        """
        try:
            yield
        except OSError as error:
            if error.errno and self.path:
                error.filename = self.path
            raise
        except UnicodeDecodeError as error:
            byte = f"byte {self.start + error.start} (0x{error.object[error.start]:02x}, {error.reason})"
            raise ValueError(f"{self.path}: not valid UTF-8 at {byte}") from None
        except ValueError as error:
            number = self.start + getattr(error, "number", len(done))  # the engine sets .number
            place = f"{self.path}, bytes {self.start} to {self.end}" if self.path else f"texts[{number}]"
            raise ValueError(f"{place}: {error}") from None

    def apply(self, work: Callable[[Sequence[bytes]], T]) -> T:
        """Return work(texts), with errors named. The engine calls it."""
        with self.named_in_errors():
            return work(self.read())


def slices_of(paths: Paths, texts: Strings, pattern: str, special_tokens: tuple[str, ...], label: str = "",
              outputs: Sequence[str] = ()) -> Iterator[Slice]:
    """Check the input and outputs; return the slices of files, or texts. With a label, progress is shown."""
    names = check_input(paths, texts, outputs)
    if texts is not None:
        slices = slices_of_texts(texts)
    else:  # lazy: a file is cut while its slices are taken
        slices = itertools.chain.from_iterable(slices_of_file(path, pattern, special_tokens) for path in names)
    return with_progress(slices, label, sum(map(os.path.getsize, names)))


def slices_of_file(path: str, pattern: str, special_tokens: tuple[str, ...]) -> Iterator[Slice]:
    """Cut a file into slices of about SLICE_BYTES."""
    size = os.path.getsize(path)
    start = 0
    window_start = SLICE_BYTES
    with open(path, "rb") as file:
        while window_start + WINDOW < size:
            file.seek(window_start)
            window = file.read(WINDOW).decode("utf-8", "surrogateescape")
            if cut := last_cut(window, pattern, special_tokens):
                end = window_start + len(window[:cut].encode("utf-8", "surrogateescape"))
                yield Slice(path, start, end)
                start = end
                window_start = start + SLICE_BYTES
            else:
                window_start += WINDOW // 2  # windows overlap, because cuts keep away from their ends
    if pattern not in PATTERNS and size - start > 64 * SLICE_BYTES:
        reason = "a custom pattern's text is only cut at special tokens"
        warnings.warn(f"{path}: {size - start:,} bytes are read at once; {reason}", stacklevel=1)
    yield Slice(path, start, size)


def slices_of_texts(texts: Iterable[str]) -> Iterator[Slice]:
    """Collect texts into slices of about SLICE_BYTES."""
    collected: list[bytes] = []
    n_bytes = start = 0
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"texts[{number}]: text must be a str, not {type(text).__name__}")
        try:
            collected.append(text.encode("utf-8"))
        except UnicodeEncodeError as error:  # a lone surrogate
            raise ValueError(f"texts[{number}]: {error}") from None
        n_bytes += len(collected[-1])
        if n_bytes >= SLICE_BYTES or len(collected) == SLICE_TEXTS:
            yield Slice("", start, number + 1, collected)
            collected = []
            n_bytes = 0
            start = number + 1
    if collected:
        yield Slice("", start, start + len(collected), collected)


# ---- The progress line

def with_progress(items: Iterable[T], label: str, total: int) -> Iterator[T]:
    """Yield slices, or merges; with a label, show on the terminal how much of the total there has been."""
    shows = label and sys.stderr and sys.stderr.isatty()  # stderr is None if it was closed
    done = 0
    shown_at = 0.0
    try:
        for item in items:
            yield item
            done += item.n_bytes() if isinstance(item, Slice) else 1
            if shows and time.monotonic() - shown_at > 0.2:
                shown_at = time.monotonic()
                of_total = f" of {total:,}" if total else ""
                print(f"\r{label}: {done:,}{of_total}", end="", file=sys.stderr, flush=True)
    finally:
        if shows:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)  # ESC [ K erases the line


# ---- Worker processes

FORKS = sys.platform == "linux"  # elsewhere, a process is a new Python, which imports this module by its name
STARTING = threading.RLock()
if hasattr(os, "register_at_fork"):  # other threads' forks wait: they would inherit the lock and connections
    os.register_at_fork(before=STARTING.acquire, after_in_parent=STARTING.release, after_in_child=STARTING.release)


def can_start_processes() -> bool:
    """Whether this process may start others, and they find the functions of this module."""
    import multiprocessing
    if multiprocessing.current_process().daemon:
        return False  # such as a worker of a Pool
    # A new Python can't import a notebook's cell, which has no __file__. Slices are unpickled by way of
    # sys.modules, which may lack this module, or have another one, if this was loaded from a path.
    is_found = getattr(sys.modules.get(__name__), "Slice", None) is Slice
    return is_found and (FORKS or "__file__" in globals())


def in_processes(task: Callable[[Slice], T], slices: Iterator[Slice], workers: int) -> Iterator[T]:
    """Yield task(slice) for each slice, in order, from several processes, or from this one if there is one slice."""
    first_slices = list(itertools.islice(slices, workers))  # no process is started that has nothing to do
    slices = itertools.chain(first_slices, slices)
    if len(first_slices) < 2:
        yield from map(task, slices)
        return
    with worker_processes(task, len(first_slices)) as connections:
        yield from share_out(slices, connections) if connections else map(task, slices)


@contextlib.contextmanager
def worker_processes(task: Callable[[Slice], object], n: int) -> Iterator[list[Any]]:
    """Start n worker processes, or as many as the system has room for; give the connections to them."""
    import multiprocessing
    context: Any = multiprocessing.get_context("fork" if FORKS else None)
    processes: list[Any] = []
    connections: list[Any] = []
    try:
        # No other thread starts or forks a process, which would keep these connections open. Signals wait:
        # Ctrl-C would make a process that is just starting print a traceback. A system may have no room for a
        # process, or lack a part of multiprocessing.
        with contextlib.suppress(ImportError, OSError), STARTING, signals_delayed():
            for _ in range(n if can_start_processes() else 0):
                ours, theirs = context.Pipe()
                # worker_loop closes the process's copy of ours
                process = context.Process(target=worker_loop, args=(task, ours, theirs), daemon=True)
                process.start()
                processes.append(process)
                theirs.close()  # only processes have it now, so the connection ends when they do
                connections.append(ours)
        yield connections
    finally:
        for process in processes:
            process.kill()  # SIGTERM could be lost in a process that is just starting
        for process in processes:
            process.join()


def share_out(slices: Iterator[Slice], connections: Sequence[Any]) -> Iterator[Any]:
    """Send each slice to an idle worker process; yield the results in the order of the slices."""
    from multiprocessing.connection import wait
    idle = list(connections)
    at_work: dict[Any, int] = {}  # connection -> the number of its slice
    results: dict[int, Any] = {}  # by the number of the slice, until its turn comes
    n_sent = n_yielded = 0
    while True:
        # while a slow slice holds up the others, their results must not fill the memory
        while idle and len(results) < 2 * len(connections) and (part := next(slices, None)) is not None:
            connection = idle.pop()
            with contextlib.suppress(OSError):  # the process was killed; recv() below reports it
                connection.send(part)
            at_work[connection] = n_sent
            n_sent += 1
        if not at_work:
            return
        ready: list[Any] = wait(list(at_work))
        for connection in ready:
            try:
                results[at_work.pop(connection)] = connection.recv()
            except (EOFError, OSError):
                raise RuntimeError("a worker process was killed; it may have run out of memory") from None
            idle.append(connection)
        while n_yielded in results:
            if isinstance(results[n_yielded], Exception):
                raise results.pop(n_yielded)  # a variable would keep its traceback, and so the connections open
            yield results.pop(n_yielded)
            n_yielded += 1


STOP_SIGNALS = {signal.SIGINT, signal.SIGTERM}


@contextlib.contextmanager
def signals_delayed() -> Iterator[None]:
    """Delay Ctrl-C and `kill` until the end of a block, except on Windows.

    A process that is forked in the block starts with both delayed.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def worker_loop(task: Callable[[Slice], object], parents_end: Any, connection: Any) -> None:
    """Do a task with each slice that comes, in a worker process, until the parent ends it, or has ended."""
    parents_end.close()  # while a copy is open, recv() below does not notice that the parent has ended
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent alone
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # main() has set another handler before the fork
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    with contextlib.suppress(EOFError, OSError):
        while True:
            part = connection.recv()
            try:
                result = task(part)
            except Exception as error:
                result = error
            connection.send(result)


# ------------------------------
# VI. The tokenizer
# ------------------------------

MOST_CACHED = 1 << 16  # words whose ids are kept, since words repeat
MAX_ID = 2**32 - 2  # ids have 32 bits in C, where the last number means "no token"


class Tokenizer:
    """Encode text with a trained vocabulary, and decode token ids.

    vocab           {token id: token}; a byte without an id can't be encoded
    merges          [(left, right), ...], the merge of rank 0 first; a merge may come before those that make its
                    tokens (see check_merges), but none may come twice
    special_tokens  where two match, the longer one wins. A vocab from train_bpe has them already; one that is missing
                    there gets the next id after the greatest
    pattern         the pattern that the vocabulary was trained with

    They are attributes, too, besides ids, {token: id}, and special_ids, {special token: id}.

    >>> vocab = {0: b"a", 1: b"b", 2: b"ab", 3: b"abab"}
    >>> tokenizer = Tokenizer(vocab, [(b"a", b"b"), (b"ab", b"ab")], ["<end>"])
    >>> tokenizer.encode("ababab<end>"), tokenizer.decode([3, 2, 4])
    ([3, 2, 4], 'ababab<end>')

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Tokenizer.train(texts=["low lower lowest"], vocab_size=258).save(folder)
    ...     Tokenizer.load(folder).encode("lowest")
    [257, 101, 115, 116]
    """

    def __init__(self, vocab: Mapping[int, bytes], merges: Iterable[Pair], special_tokens: Strings = None,
                 pattern: str = "gpt2") -> None:
        self.special_tokens = check_special_tokens(special_tokens)
        self.pattern = check_pattern(pattern)
        ids = ids_of(vocab)
        special_bytes = [special.encode("utf-8") for special in self.special_tokens]
        missing = [token for token in special_bytes if token not in ids]
        ids |= ids_of(dict(enumerate(missing, max(vocab, default=-1) + 1)))
        self.ids = ids
        self.vocab = {token_id: token for token, token_id in ids.items()}
        self.special_ids = {special: ids[token] for special, token in zip(self.special_tokens, special_bytes)}

        self.merges = [(left, right) for left, right in merges]
        try:
            self.ranks = {(ids[left], ids[right]): rank for rank, (left, right) in enumerate(self.merges)}
            self.new_ids = [ids[left + right] for left, right in self.merges]  # by rank
        except KeyError as error:
            raise ValueError(f"a merge uses or creates {error}, which is not in the vocabulary") from None
        if len(self.ranks) < len(self.merges):
            [(pair, _)] = collections.Counter(self.merges).most_common(1)
            raise ValueError(f"the merge {pair} repeats an earlier one")
        made = set(self.new_ids)
        for special, special_id in self.special_ids.items():
            if special_id in made:
                raise ValueError(f"a merge makes the special token {special!r:.60}, too: choose another text for it")
        self.known_words: dict[str, tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self.vocab)

    def __repr__(self) -> str:
        specials = plural(len(self.special_tokens), "special token")
        return f"{type(self).__name__}({len(self):,} tokens, pattern {self.pattern!r}, {specials})"

    def __reduce__(self) -> tuple[object, ...]:  # for pickle and copy: without caches, and without C
        return type(self), (self.vocab, self.merges, self.special_tokens, self.pattern)

    @classmethod
    def train(cls, input_path: Paths = None, vocab_size: int | None = None, special_tokens: Strings = None, *,
              texts: Strings = None, pattern: str = "gpt2", workers: int | None = None,
              engine: EngineName = "auto", progress: bool = False) -> Tokenizer:
        """Train a tokenizer, with the arguments and errors of train_bpe."""
        specials = check_vocabulary(vocab_size, special_tokens, for_files=True)  # so that save() can write them
        words = count_corpus(input_path, texts, specials, pattern, workers, engine, progress)
        vocab, merges = learn_model(words, vocab_size, specials, engine, progress)
        return cls(vocab, merges, specials, pattern)

    # ---- Encoding

    def encode(self, text: str) -> list[int]:
        """Encode text. Raises ValueError for a lone surrogate, or a byte without a token."""
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, not {type(text).__name__}")
        if self.encoder is not None:
            return self.encoder.encode(text)  # type: ignore[no-any-return]
        return self.encode_in_python(text)

    @property
    def merge_ids(self) -> list[tuple[int, int, int]]:
        """The ids of each merge, left, right and new, for the encoder in C."""
        return [(left, right, new_id) for (left, right), new_id in zip(self.ranks, self.new_ids)]

    @functools.cached_property
    def encoder(self) -> Any:
        """The encoder in C, or None (no engine, or too many tokens for it); made when it is first needed."""
        engine = choose_engine("auto", self.pattern)
        return engine.encoder(self) if engine is not None else None

    def encode_in_python(self, text: str) -> list[int]:
        """Encode text: split it at special tokens, then into words."""
        ids: list[int] = []
        for number, piece in enumerate(special_token_finder(self.special_tokens).split(text)):
            if number % 2:  # a special token
                ids.append(self.special_ids[piece])
                continue
            for word in find_words(piece, self.pattern):
                ids += self.known_words.get(word) or self.encode_word(word)
        return ids

    def encode_word(self, word: str) -> list[int]:
        """Encode one word. Raises ValueError if one of its bytes has no token."""
        try:
            ids = [self.ids[BYTES[byte]] for byte in word.encode("utf-8")]
        except KeyError as error:
            raise ValueError(f"the vocabulary has no token for the byte {error}, in {word[:40]!r}") from None
        ids = merge_by_rank(ids, self.ranks, self.new_ids)
        if len(word) <= 64:  # a longer one rarely recurs
            if len(self.known_words) >= MOST_CACHED:
                self.known_words.clear()
            self.known_words[word] = tuple(ids)
        return ids

    def encode_ordinary(self, text: str) -> list[int]:
        """Encode untrusted text, in which special tokens are plain text."""
        return self.ordinary.encode(text)

    @functools.cached_property
    def ordinary(self) -> Tokenizer:
        """The same tokenizer without special tokens; made when it is first needed."""
        # a model of another program may have a special token that merges use: it stays
        left_out = set(self.special_ids.values()).difference(itertools.chain.from_iterable(self.ranks))
        vocab = {token_id: token for token_id, token in self.vocab.items() if token_id not in left_out}
        return Tokenizer(vocab, self.merges, None, self.pattern)

    def encode_batch(self, texts: Iterable[str], workers: int | None = None) -> list[list[int]]:
        """Encode several texts; return a list of ids for each. An error names the text.

        workers is for C, which encodes in threads. In Python, texts are encoded in turn, because sending
        the lists between processes would cost more than it saves.
        """
        n_workers = check_workers(workers)
        slices = slices_of(None, texts, self.pattern, self.special_tokens)
        if self.encoder is not None:
            return self.encoder.encode_batch(slices, n_workers)  # type: ignore[no-any-return]
        return list(itertools.chain.from_iterable(map(self.encode_texts, slices)))

    def encode_texts(self, part: Slice) -> list[list[int]]:
        """Encode the texts of a slice in Python."""
        lists: list[list[int]] = []
        with part.named_in_errors(lists):
            for utf8 in part.read():
                lists.append(self.encode_in_python(utf8.decode("utf-8")))  # noqa: PERF401 (errors need their number)
        return lists

    def encode_iterable(self, iterable: Iterable[str]) -> Iterator[int]:
        """Yield the ids of encode("".join(iterable)) one by one, the first after about 1 KB of text.

        It then collects some 32,000 characters before each cut, or more without a place to cut (see WORD_END).
        """
        if isinstance(iterable, Mapping):
            raise TypeError(f"text must come in strings, not in a {type(iterable).__name__}")
        blocks: list[str] = []
        length = 0
        wanted = 1 << 10  # the length at which a cut is looked for
        for number, block in enumerate(iterable):
            if not isinstance(block, str):
                raise ValueError(f"block {number} of the text must be a str, not {type(block).__name__}")
            blocks.append(block)
            length += len(block)
            if length < wanted:
                continue
            text = "".join(blocks)
            cut = last_cut(text, self.pattern, self.special_tokens)
            if cut:
                yield from self.encode(text[:cut])
                text = text[cut:]
            blocks = [text]
            length = len(text)
            # if there was no cut, searching again after each small block would take quadratic time
            wanted = length + 4 * WINDOW if cut else 2 * length
        yield from self.encode("".join(blocks))

    def encode_files(self, paths: Paths = None, output: FilePath = "", *, texts: Strings = None,
                     workers: int | None = None, engine: EngineName = "auto", progress: bool = False) -> int:
        """Encode files, or texts, as one array of token ids in a .npy file; return how many there are.

        output is required. numpy.load reads it: ids are uint16 if the whole vocabulary fits, else
        uint32. The other arguments and the errors are as in train_bpe.
        """
        output = os.fsdecode(output)
        if not output.endswith(".npy"):
            raise ValueError(f"the name of the output must end in .npy: {output!r}")
        in_c = choose_engine(engine, self.pattern) is not None
        n_workers = check_workers(workers)
        label = "bytes encoded" if progress else ""
        slices = slices_of(paths, texts, self.pattern, self.special_tokens, label, [output])
        typecode = "H" if max(self.vocab, default=0) < 1 << 16 else "I"
        if in_c and self.encoder is not None:
            arrays = self.encoder.encode_slices(slices, typecode, n_workers)
        else:
            # before processes start: one that is forked while another thread compiles would inherit a locked lock
            compile_pattern(self.pattern)
            arrays = in_processes(functools.partial(self.encode_slice, typecode=typecode), slices, n_workers)
        id_bytes = array(typecode).itemsize
        with new_files([output]) as [file], contextlib.closing(arrays):
            file.write(npy_header(id_bytes, 0))
            n_ids = sum(map(file.write, arrays)) // id_bytes
            file.seek(0)
            file.write(npy_header(id_bytes, n_ids))
        return n_ids

    def encode_slice(self, part: Slice, typecode: str) -> bytes:
        """Encode a slice in Python; return the bytes of an array of ids."""
        return array(typecode, itertools.chain.from_iterable(self.encode_texts(part))).tobytes()

    # ---- Decoding

    def decode(self, ids: Iterable[int]) -> str:
        """Decode token ids to text; bytes that are not UTF-8 become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Decode token ids to bytes. Raises ValueError for an id that is not in the vocabulary."""
        ids = list(ids)
        if set(map(type, ids)) <= {int}:
            with contextlib.suppress(KeyError):  # the loop below says which one
                return b"".join(map(self.vocab.__getitem__, ids))
        for number, token_id in enumerate(ids):
            if not is_integer(token_id) or token_id not in self.vocab:
                raise ValueError(f"unknown token id {token_id!r:.60} at index {number}")
        return b"".join(map(self.vocab.__getitem__, ids))

    # ---- Files

    def save(self, folder: FilePath) -> None:
        """Save the model in a folder: tokenizer.json, and vocab.json and merges.txt for other programs."""
        check_special_tokens(self.special_tokens, for_files=True)
        names = {token: to_printable(token) for token in self.vocab.values()}
        names |= {self.vocab[token_id]: special for special, token_id in self.special_ids.items()}
        ids = {names[token]: token_id for token_id, token in sorted(self.vocab.items())}
        pairs = [(names[left], names[right]) for left, right in self.merges]
        lines = ["#version: 0.2", *map(" ".join, pairs), ""]
        model = to_json(tokenizer_json(ids, pairs, self.special_ids, self.pattern))

        os.makedirs(os.path.realpath(folder or "."), exist_ok=True)
        with new_files(os.path.join(folder, name) for name in MODEL_FILES) as files:
            for file, text in zip(files, [model, to_json(ids), "\n".join(lines)]):
                file.write(text.encode("utf-8"))

    @classmethod
    def load(cls, path: FilePath) -> Tokenizer:
        """Load a tokenizer.json, or the one in a folder, that save() wrote."""
        path = os.path.join(path, "tokenizer.json") if os.path.isdir(path) else path
        with open(path, "rb") as file, error_prefix(path):
            content = json.load(file, object_pairs_hook=unique_keys)
            try:
                ids, pairs = content["model"]["vocab"], content["model"]["merges"]
                special_ids = {token["content"]: token["id"] for token in content["added_tokens"]}
                expression = content["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
                # any other difference could change ids: nothing is guessed
                is_ours = content == tokenizer_json(ids, list(map(list, pairs)), special_ids, expression)
                is_ours = is_ours and special_ids.items() <= ids.items()
            except (KeyError, IndexError, TypeError):
                is_ours = False
            if not is_ours:
                raise ValueError("save() did not write this model; `from bpe_more import Tokenizer` loads other models")
            specials = check_special_tokens(list(special_ids))
            return cls(*model_of(ids, pairs, specials), specials, expression)

    @classmethod
    def from_files(cls, vocab_filepath: FilePath, merges_filepath: FilePath, special_tokens: Strings = None,
                   pattern: str = "gpt2") -> Tokenizer:
        """Load a vocab.json and a merges.txt as GPT-2 or save() write them.

        A special token is looked up as text, then in printable characters. If it isn't there, it gets a
        new id.
        """
        specials = check_special_tokens(special_tokens, for_files=True)
        pattern = check_pattern(pattern)
        with open(vocab_filepath, encoding="utf-8-sig") as file, error_prefix(vocab_filepath):
            ids = json.load(file, object_pairs_hook=unique_keys)
            ids_of(model_of(ids, [], specials)[0])  # called for its errors, so that they name this file
        with open(merges_filepath, encoding="utf-8-sig") as file, error_prefix(merges_filepath):
            lines = file.read().split("\n")
            if not any(lines):
                raise ValueError("the file is empty")
            if lines[0].startswith("#version"):
                del lines[0]
            pairs = [line.split(" ") for line in lines if line]
            return cls(*model_of(ids, pairs, specials), specials, pattern)


def ids_of(vocab: Mapping[int, bytes]) -> dict[bytes, int]:
    """Return {token: id}. Each token has one id, from 0 to MAX_ID."""
    ids: dict[bytes, int] = {}
    for token_id, token in vocab.items():
        is_id = (type(token_id) is int or is_integer(token_id)) and 0 <= token_id <= MAX_ID
        if not isinstance(token, bytes) or not is_id:
            raise ValueError(f"vocab maps ids from 0 to {MAX_ID} to bytes, not {token_id!r:.40} to {token!r:.40}")
        if token in ids:
            raise ValueError(f"the token {token!r:.40} has two ids, {ids[token]} and {token_id}")
        ids[token] = operator.index(token_id)
    return ids


def npy_header(id_bytes: int, n_ids: int) -> bytes:
    """Return the 128 bytes before the ids in a .npy file."""
    order = "<" if sys.byteorder == "little" else ">"
    entries = f"{{'descr': '{order}u{id_bytes}', 'fortran_order': False, 'shape': ({n_ids},), }}"
    return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + entries.ljust(117).encode() + b"\n"


# ------------------------------
# VII. Files of a model
# ------------------------------

# tokenizer.json, in Hugging Face's format, is the model. GPT-2's two files, vocab.json and merges.txt,
# have no pattern, and don't say which tokens are special. All write each byte as a printable character:
# bytes that are printable in Latin-1 as themselves, the 68 others from U+0100 on (the space is "Ġ", a
# newline "Ċ").
MODEL_FILES = ("tokenizer.json", "vocab.json", "merges.txt")
PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
OTHERS = [byte for byte in range(256) if byte not in PRINTABLE]
CHARACTERS = "".join(chr(byte) if byte in PRINTABLE else chr(256 + OTHERS.index(byte)) for byte in range(256))
# A loop over characters is six times slower than codecs.charmap_encode and charmap_decode, which return
# (result, length).
BYTE_OF = codecs.charmap_build(CHARACTERS)  # {character: byte}


def to_printable(token: bytes) -> str:
    """Write a token in printable characters: to_printable(b" the") is "Ġthe"."""
    return codecs.charmap_decode(token, "strict", CHARACTERS)[0]


def to_token(text: str) -> bytes:
    """Read a token of a file: "Ġthe" is b" the".

    Text with a character that stands for no byte, such as the space in "<a b>", is taken as it is.
    """
    try:
        return codecs.charmap_encode(text, "strict", BYTE_OF)[0]
    except UnicodeEncodeError:
        return text.encode("utf-8")


def tokenizer_json(ids: Mapping[str, int], pairs: Sequence[Sequence[str]], special_ids: Mapping[str, int],
                   pattern: str) -> dict[str, Any]:
    """Return the contents of tokenizer.json; other libraries may match a custom pattern differently."""
    added = [
        {"id": token_id, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for text, token_id in special_ids.items()
    ]  # fmt: skip
    expression = PUBLISHED_GPT2 if pattern == "gpt2" else PATTERNS.get(pattern, pattern)
    split = {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
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


def to_json(content: Any) -> str:
    """Write JSON with a line for each entry; indent= is slower."""
    return json.dumps(content, ensure_ascii=False, separators=(",\n", ": ")) + "\n"


def model_of(ids: Mapping[str, int], pairs: Iterable[Sequence[str]], special_tokens: Iterable[str]) -> Model:
    """Return (vocab, merges) for the ids and merges of files, which have tokens in printable characters."""
    tokens = {text: to_token(text) for text in ids}
    tokens |= {text: text.encode("utf-8") for text in special_tokens if text in tokens}
    vocab = {token_id: tokens[text] for text, token_id in ids.items()}
    if len(vocab) < len(ids):
        raise ValueError("two tokens have the same id")
    merges = []
    for number, pair in enumerate(pairs):
        if len(pair) != 2 or not tokens.keys() >= set(pair):
            raise ValueError(f"merge {number} (from 0), {pair!r:.99}, is not two tokens of the vocabulary")
        merges.append((tokens[pair[0]], tokens[pair[1]]))
    return vocab, merges


def unique_keys(entries: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a dict of the entries of a JSON object. Raises ValueError if a key comes twice."""
    content = dict(entries)
    if len(content) < len(entries):
        [(key, _)] = collections.Counter(key for key, _ in entries).most_common(1)
        raise ValueError(f"the key {key!r:.60} comes twice")
    return content


@contextlib.contextmanager
def error_prefix(path: FilePath) -> Iterator[None]:
    """Put a file's name before an error. A ValueError keeps its text; any other error means that it is no model."""
    try:
        yield
    except (OSError, MemoryError):
        raise
    except Exception as error:
        text = str(error) if type(error) is ValueError else f"not a byte-level BPE model ({error!r:.99})"
        raise ValueError(f"{os.fspath(path)}: {text}") from None


@contextlib.contextmanager
def new_files(paths: Iterable[str]) -> Iterator[Sequence[BinaryIO]]:
    """Open new files under temporary names, and give them their names at the end.

    All are complete, and on the disk, before the first one replaces an older file. After an error, or
    Ctrl-C, the new files are removed, and the older ones stay.
    """
    targets = list(map(os.path.realpath, paths))  # a link is followed, not replaced
    for target in filter(os.path.isdir, targets):
        raise ValueError(f"the output {target} is a folder")
    temporary = [f"{target}.{os.urandom(4).hex()}.tmp" for target in targets]  # others may save here, too
    try:
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(open(name, "wb")) for name in temporary]
            yield files
            for file, target in zip(files, targets):
                with contextlib.suppress(FileNotFoundError):  # mostly, there is no older file
                    os.chmod(file.name, stat.S_IMODE(os.stat(target).st_mode))
                file.flush()
                os.fsync(file.fileno())
        for name, target in zip(temporary, targets):
            os.replace(name, target)
    except OSError as error:
        if error.errno and not error.filename:
            error.filename = targets[0]  # "No space left on device" names no file
        raise
    finally:
        for name in temporary:
            with contextlib.suppress(OSError):
                os.unlink(name)


# ------------------------------
# VIII. The command line
# ------------------------------

USAGE = """%(prog)s CORPUS [CORPUS ...] VOCAB_SIZE [options]    train, and save a model
       %(prog)s CORPUS [CORPUS ...] --encode OUT.npy        write the token ids of files
       %(prog)s --show TEXT                                 show how a model splits TEXT

A CORPUS is a text file; VOCAB_SIZE is a number of tokens, such as 10000."""
END_OF_TEXT = "<|endoftext|>"


def make_parser() -> ArgumentParser:
    """Return the parser of the command line."""
    import argparse

    def error(message: str) -> NoReturn:
        raise ValueError(message)

    parser = argparse.ArgumentParser(usage=USAGE)
    parser.error = error  # type: ignore[method-assign]
    parser.set_defaults(clock=time.perf_counter())
    add = parser.add_argument
    add("corpus", nargs="*", help=argparse.SUPPRESS)  # the usage shows it
    more = f"one besides {END_OF_TEXT}; may be repeated"
    add("--special-token", action="append", metavar="TEXT", default=[], help=more)
    only = f"no {END_OF_TEXT}: just what --special-token names"
    add("--no-special-tokens", action="store_const", const=True, help=only)
    add("--pattern", help="gpt2 (default), " + ", ".join(list(PATTERNS)[1:]) + ", or an expression")
    add("--workers", type=int, metavar="N", help="processes or threads (default: all cores)")
    engines = get_args(EngineName)
    add("--engine", choices=engines, metavar="NAME", default="auto", help="auto (C if it is built), python, or c")
    add("--model", metavar="FOLDER", default="bpeModel", help="the model's folder (default: bpeModel)")
    add("--encode", metavar="OUT.npy", help="encode the corpus with the model in FOLDER")
    add("--show", metavar="TEXT", help="show how the model in FOLDER splits TEXT")
    add("--quiet", action="store_true", help="no progress and no summary")
    add("--version", action="version", version=f"%(prog)s {__version__}")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its status.

    1: out of memory, a killed worker, or counts beyond 64 bits; 2: bad input or a file's error; 130:
    Ctrl-C or `kill`.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()  # only there can handlers be set
    # `kill` ends a run as Ctrl-C does, with an exception that ends workers and removes temporary files
    before = signal.signal(signal.SIGTERM, signal.default_int_handler) if in_main_thread else None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = lambda message, *_: print(f"note: {message}", file=sys.stderr)
            args = make_parser().parse_intermixed_args(argv)
            task = show if args.show is not None else encode if args.encode is not None else train
            task(args)
            print(end="", flush=True)  # a full disk is an error here
        return 0
    except KeyboardInterrupt:
        status, text = 130, "interrupted"
    except (OSError, ValueError, TypeError, ImportError) as error:
        status, text = 2, f"error: {error}"
    except (RuntimeError, OverflowError, MemoryError) as error:
        status, text = 1, f"error: {str(error) or 'out of memory'}"
    finally:
        if in_main_thread:
            signal.signal(signal.SIGTERM, before)
    print(text, file=sys.stderr)
    return status


def train(args: Namespace) -> None:
    """Train on the files that the command line names, and save the model."""
    *paths, last = args.corpus or [""]
    try:
        vocab_size = int(last.replace(",", ""))
    except ValueError:
        raise ValueError(f"the last argument must be the vocabulary size, such as 10000, not {last!r}") from None
    defaults = [] if args.no_special_tokens or END_OF_TEXT in args.special_token else [END_OF_TEXT]
    specials = check_vocabulary(vocab_size, [*defaults, *args.special_token], for_files=True)
    pattern = check_pattern("gpt2" if args.pattern is None else args.pattern)
    engines = engine_summary(args.engine, pattern)
    check_workers(args.workers)
    check_input(paths, None, [os.path.join(args.model, name) for name in MODEL_FILES])
    os.makedirs(args.model, exist_ok=True)  # a folder that can't be made is an error before the work
    if not os.access(args.model, os.W_OK):
        raise PermissionError(f"no permission to write into {args.model}")

    n_bytes = sum(map(os.path.getsize, paths))
    words = count_corpus(paths, None, specials, pattern, args.workers, args.engine, not args.quiet)
    if not len(words):
        raise ValueError("no words to learn from; nothing was saved")
    report(args, "counted", f"{plural(len(words), 'distinct word')} in {plural(n_bytes, 'byte')}")
    vocab, merges = learn_model(words, vocab_size, specials, args.engine, not args.quiet)
    tokens = f"{plural(len(vocab), 'token')} = 256 bytes + {plural(len(specials), 'special token')}"
    report(args, "learned", f"{tokens} + {plural(len(merges), 'merge')}")
    Tokenizer(vocab, merges, specials, pattern).save(args.model)
    report(args, "saved", args.model)
    report(args, "engine", engines)


def encode(args: Namespace) -> None:
    """Encode files with a saved model."""
    refuse_options(args, "pattern", "special_token", "no_special_tokens")
    tokenizer = Tokenizer.load(args.model)
    n_ids = tokenizer.encode_files(args.corpus, args.encode, workers=args.workers, engine=args.engine,
                                   progress=not args.quiet)
    report(args, "encoded", plural(n_ids, "token"))
    report(args, "saved", args.encode)
    report(args, "engine", engine_summary(args.engine, tokenizer.pattern))


def show(args: Namespace) -> None:
    """Print text with its tokens set apart, and their ids."""
    refuse_options(args, "pattern", "special_token", "no_special_tokens", "workers", "encode")
    if args.corpus:
        raise ValueError("--show takes no corpus: it uses a saved model")
    tokenizer = Tokenizer.load(args.model)
    in_c = choose_engine(args.engine, tokenizer.pattern) is not None
    ids = tokenizer.encode(args.show) if in_c else tokenizer.encode_in_python(args.show)
    print("|".join(tokenizer.vocab[token_id].decode("utf-8", "backslashreplace") for token_id in ids))
    print(*ids)


def refuse_options(args: Namespace, *names: str) -> None:
    """Refuse options that a task with a saved model does not use."""
    for name in names:
        if getattr(args, name) not in (None, []):
            raise ValueError(f"--{name.replace('_', '-')} is not an option here")


def report(args: Namespace, name: str, text: str) -> None:
    """Print a line of the summary, after the seconds since the line before."""
    seconds = time.perf_counter() - args.clock
    args.clock += seconds
    if not args.quiet:
        print(f"{seconds:6.2f} s  {name:8} {text}", file=sys.stderr)


def plural(n: int, noun: str) -> str:
    """Count something: plural(1234, "merge") -> "1,234 merges"."""
    return f"{n:,} {noun}{'s' * (n != 1)}"


# ------------------------------
# IX. The engine in C
# ------------------------------

@functools.cache
def find_engine() -> tuple[Any, str]:
    """Return (the engine in C, ""), or (the engine, why it only learns), or (None, why it is unavailable).

    `python build_ffi.py` builds it. build_ffi.py, next to this file, loads it here, and documents it in
    the class Engine. The engine does steps of this file, with the same arguments and results:

        engine.count(slices, pattern, special_tokens, workers)    count_slices
        engine.learn(words, merges_wanted)                        learn_from_bytes, up to merges_wanted merges
        encoder = engine.encoder(tokenizer)                       or None, if it has too many tokens for C
        encoder.encode(text)                                      Tokenizer.encode_in_python
        encoder.encode_batch(slices, workers)                     Tokenizer.encode_texts, for all slices
        encoder.encode_slices(slices, typecode, workers)          Tokenizer.encode_slice, for all slices

    Built from bpe_fast.c alone, it only learns. engine.declines(pattern) says why it can't count and
    encode with a pattern; "" if it can. With last_cut, it divides a long text between threads.
    """
    path = os.path.join(os.path.dirname(globals().get("__file__", "")), "build_ffi.py")
    if not os.path.isfile(path):
        return None, "build_ffi.py, which builds it, is not next to bpe.py"
    try:
        with open(path, encoding="utf-8") as file:
            if "of bpe.py" not in file.readline():  # which the first line of ours has
                return None, "build_ffi.py is another project's"
        spec: Any = importlib.util.spec_from_file_location("build_ffi", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        engine = module.load_engine(PATTERNS, last_cut)
        return engine, engine.only_learns  # the reason, or ""
    except Exception as error:
        return None, str(error)


def choose_engine(name: EngineName, pattern: str | None = None) -> Any:
    """Return the engine if it takes a step, else None. Raises ValueError if "c" can't be used.

    The step is learning; with a pattern, it is counting or encoding.
    """
    if name not in get_args(EngineName):
        raise ValueError(f"engine must be one of {get_args(EngineName)}, not {name!r}")
    if name == "python":
        return None
    engine, reason = find_engine()
    if engine is not None:
        reason = engine.declines(pattern) if pattern is not None else ""
    only_learns = engine is not None and engine.only_learns
    if name == "c" and reason and not only_learns:
        raise ValueError(f"engine 'c' can't be used: {reason}")
    return None if reason else engine


def engine_summary(name: EngineName, pattern: str) -> str:
    """Say which engine takes which steps, and why it isn't C."""
    if choose_engine(name, pattern) is not None:
        return "C"
    engine = choose_engine(name)
    if engine is not None:
        return f"C for merges, Python for words ({engine.declines(pattern)})"
    return f"Python ({'as chosen' if name == 'python' else find_engine()[1]})"


if __name__ == "__main__" and "__file__" in globals():  # not in a notebook's cell
    sys.exit(main())
