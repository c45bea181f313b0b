#!/usr/bin/env python3
# /// script
# requires-python = ">=3.10"
# dependencies = ["regex"]
# ///
r"""Byte-pair encoding: learn a vocabulary of tokens from text, and turn text into token ids with it.

    python bpe.py corpus.txt 10000        trains, and writes the folder bpeModel

Training, in six lines:

    1. Cut the text into words, and count how often each one occurs.
    2. Write every word as a sequence of tokens; at first, a token is one byte.
    3. Count how often each pair of tokens stands side by side.
    4. Merge the most frequent pair into a new token, wherever it stands.
    5. Go on from 3 until the vocabulary has the size that was asked for.
    6. The merges, in the order in which they were made, are the tokenizer.

To encode a text, cut it into words and replay the merges on each of them, in the same order.

When two pairs have the same count, the greater pair wins: the left tokens are compared first, byte by byte, then the
right ones. (b"s", b"t") comes before (b"e", b"s"), because b"s" > b"e". Two traps:

    - Counts are counts of positions, and positions may overlap. In "aaaa" the pair a a counts three times; but
      replacing goes from left to right without overlap, so "aaaa" becomes aa aa.
    - Pairs are compared, not the tokens that they would make. On a tie (b"ab", b"a") beats (b"a", b"bz"), because
      b"ab" > b"a", although b"abz" > b"aba".

Glossary, with a value for each term:

    word, pre-token  b" newest"             a stretch of text that no token crosses: what the pattern finds
    token            b"est"                 some bytes that the vocabulary has an id for
    token id         258                    its number: 0..255 are the single bytes, then come the special
                                            tokens, then one id for each merge
    pair             (101, 257)             two tokens, or their ids, that stand side by side
    merge            (b"e", b"st")          a pair that became a token
    rank             1                      the position of a merge in the list of merges, from 0
    count            9                      how often a pair, or a word, occurs in the whole corpus
    special token    "<|endoftext|>"        text with a meaning of its own; never cut, never learned, and a wall: what
                                            stands before it and behind it are two texts

>>> words = words_of("low low low low low lower lower widest widest widest newest newest newest newest newest newest")
>>> for left, right in train_by_definition(words, 4):
...     print(left, right)
b's' b't'
b'e' b'st'
b'o' b'w'
b'l' b'ow'

Sources: P. Gage, "A New Algorithm for Data Compression", C Users Journal 12(2), 1994; R. Sennrich, B. Haddow and
A. Birch, "Neural Machine Translation of Rare Words with Subword Units", ACL 2016; A. Radford et al., "Language
Models are Unsupervised Multitask Learners", 2019, the bytes and the pattern of GPT-2.
"""

from __future__ import annotations

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
import stat
import sys
import time
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple  # what only some runs need is imported where it is needed

if sys.version_info < (3, 10):
    sys.exit("bpe.py needs Python 3.10 or later; this is " + sys.version.split()[0])
if __name__ != "__main__" or importlib.util.find_spec("regex"):
    import regex  # --help works without it, and main says what is missing

__all__ = ["Tokenizer", "count_words", "load", "pretokenize", "save", "save_counts", "segment", "train_bpe",
           "train_from_counts"]  # fmt: skip

__version__ = "0.2.0"
Path = str | os.PathLike[str]
Word = tuple[bytes, ...]
Pair = tuple[bytes, bytes]


# ---------------------------------------------------------------------------------------------------------------------
# I. The lesson: what byte-pair encoding is
# ---------------------------------------------------------------------------------------------------------------------

# A text is cut into words first, and no token crosses their borders. Without that the most frequent pairs would soon be
# pieces of phrases and punctuation ("e t", ", and the", "dog." beside "dog!"), and each of them would need an id.
# This is the pattern of GPT-2. An English word includes the space before it (" the"), so that the text can be put
# together again without guessing where spaces stood. `\s+(?!\S)` reads: whitespace that no visible character follows;
# of three spaces before a word it takes two, and leaves the third one to the word.
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def words_of(text: str) -> dict[Word, int]:
    """Each distinct word of a text, as a tuple of one-byte tokens, and its count.

    >>> words_of("hi hi hi")
    {(b'h', b'i'): 1, (b' ', b'h', b'i'): 2}
    """
    words = collections.Counter(regex.findall(GPT2, text))
    return {tuple(bytes([byte]) for byte in word.encode("utf-8")): count for word, count in words.items()}


def count_pairs(words: Mapping[Word, int]) -> dict[Pair, int]:
    """How often each pair of neighbours occurs in all words; every position counts, even where two overlap.

    >>> count_pairs({(b"a", b"a", b"a", b"a"): 1, (b"a", b"b"): 5})
    {(b'a', b'a'): 3, (b'a', b'b'): 5}
    """
    counts: dict[Pair, int] = collections.defaultdict(int)
    for word, count in words.items():
        for pair in zip(word, word[1:]):
            counts[pair] += count
    return dict(counts)


def merge_pair(word: Word, pair: Pair) -> Word:
    """The word with the pair replaced by its concatenation, from left to right, without overlap.

    >>> merge_pair((b"a", b"a", b"a", b"b"), (b"a", b"a"))
    (b'aa', b'a', b'b')
    """
    merged, at = [], 0
    while at < len(word):
        if word[at : at + 2] == pair:
            merged.append(word[at] + word[at + 1])
            at += 2
        else:
            merged.append(word[at])
            at += 1
    return tuple(merged)


def train_by_definition(words: Mapping[Word, int], merges_wanted: int) -> list[Pair]:
    """The merges of some words: count every pair, merge the best one everywhere, and again.

    It ends early when no pair is left, since every word is a single token by then.
    """
    merges: list[Pair] = []
    while len(merges) < merges_wanted and (counts := count_pairs(words)):
        best = max(counts, key=lambda pair: (counts[pair], pair))  # the tie rule: tuples compare left first, then right
        words = {merge_pair(word, best): count for word, count in words.items()}
        merges.append(best)
    return merges


def encode_by_definition(word: Word, merges: Iterable[Pair]) -> Word:
    """The tokens of a word: replay the merges in the order in which they were learned.

    The longest token first would be another encoding, which the model never saw in training:

    >>> encode_by_definition((b"a", b"b", b"c", b"d"), [(b"b", b"c"), (b"a", b"b"), (b"bc", b"d")])
    (b'a', b'bcd')
    >>> encode_by_definition((b"x", b"a", b"b", b"c"), [(b"b", b"c"), (b"x", b"a"), (b"xa", b"b")])  # not xab c
    (b'xa', b'bc')
    """
    for pair in merges:
        word = merge_pair(word, pair)
    return word


# That is all. Token ids only number the tokens: 0..255 are the single bytes, then the special tokens, then one id for
# each merge, so with two special tokens the third merge makes token 256 + 2 + 2 = 260. Since every byte is a token,
# every text can be encoded; and since a token is nothing but bytes, decoding is b"".join.
# The rest of this file does the same on any text, and fast.


# ---------------------------------------------------------------------------------------------------------------------
# II. The same, fast
# ---------------------------------------------------------------------------------------------------------------------

# What each step gains, for fixtures/corpus.txt and a vocabulary of 500:
#
#     3.6 s     train_by_definition, which counts every pair again for each merge
#     0.05 s    learn_merges: counts that are kept up to date, an index from each pair to its words, and a heap
#     0.004 s   the same in C: bpe_fast.c


def descending(token_id: int, token: bytes) -> str:
    """A sort key that reverses the order of bytes: b"st" sorts before b"s", and b"s" before b"es".

    heapq keeps the smallest entry on top, and on a tie the greatest bytes must win. The chr(256) at the end puts a
    token before its own prefix.
    """
    return "".join(chr(255 - byte) for byte in token) + chr(256)


def smaller_id(token_id: int, token: bytes) -> int:
    """The sort key of Hugging Face's trainer, where the smaller pair of ids wins a tie."""
    return token_id


def learn_merges(
    words: Iterable[str], counts: Sequence[int], tokens: Sequence[bytes],
    sort_key: Callable[[int, bytes], Any] = descending, longest: int = sys.maxsize,
) -> Iterator[tuple[int, int, int, int]]:
    """Yield (left_id, right_id, count, replaced) for one merge after the other, best first, until no pair is left.

    words     each a str whose characters are token ids, so that one merge in one word is str.replace, which goes from
              left to right without overlap; a pair is a str of two characters
    counts    how often each word occurs
    tokens    the bytes of the first ids; the new tokens get the ids len(tokens), len(tokens) + 1, ...
    longest   the most bytes that a new token may have

    Nothing is counted twice. Merging e and st changes only the pairs beside the new token, in the words that contain
    it: so the counts are kept up to date, and an index says which words a pair stands in. A heap finds the best pair.
    """
    texts, tokens = list(words), list(tokens)
    keys = [sort_key(token_id, token) for token_id, token in enumerate(tokens)]
    pair_counts: dict[str, int] = collections.defaultdict(int)
    words_with: dict[str, set[int]] = collections.defaultdict(set)  # a pair -> the words that may have it, as indices
    for index, text in enumerate(texts):
        for pair in map(operator.add, text, text[1:]):
            pair_counts[pair] += counts[index]
            words_with[pair].add(index)

    def entries(pairs: Iterable[str]) -> Iterator[tuple[int, Any, Any, str]]:
        for pair in pairs:
            left, right = ord(pair[0]), ord(pair[1])
            if len(tokens[left]) + len(tokens[right]) <= longest:
                yield -pair_counts[pair], keys[left], keys[right], pair  # the tie rule is the order of this tuple

    heap = list(entries(pair_counts))
    heapq.heapify(heap)
    while heap:
        # Every pair that a merge creates contains the new token, so the count of any older pair can only fall. Hence
        # no entry's count is too low: if it is still current, it is the best; else it goes back corrected, or is gone.
        negative_count, _, _, pair = heapq.heappop(heap)
        count = pair_counts.get(pair, 0)
        if count != -negative_count:
            if count:
                heapq.heappush(heap, *entries([pair]))
            continue
        left_id, right_id, new_id = ord(pair[0]), ord(pair[1]), len(tokens)
        if new_id > sys.maxunicode:
            raise OverflowError(f"token id {new_id} is above {sys.maxunicode}, the largest that this engine can hold")
        tokens.append(tokens[left_id] + tokens[right_id])
        keys.append(sort_key(new_id, tokens[new_id]))
        change, replaced = merge_in_words(texts, counts, words_with, pair, chr(new_id))
        del pair_counts[pair]
        for changed_pair, difference in change.items():
            pair_counts[changed_pair] += difference
            if not pair_counts[changed_pair]:
                del pair_counts[changed_pair], words_with[changed_pair]
        for entry in entries(changed_pair for changed_pair in change if chr(new_id) in changed_pair):
            heapq.heappush(heap, entry)
        yield left_id, right_id, count, replaced


def merge_in_words(
    texts: list[str], counts: Sequence[int], words_with: dict[str, set[int]], pair: str, new: str
) -> tuple[dict[str, int], int]:
    """Replace the pair by the new token in all words: -> (change of every other pair's count, pairs replaced).

    texts and words_with are brought up to date. An example: `b c` becomes X in `a b c b c d`, a word that occurs once.
    It is `a X X d` now. The left X removed `a b` (-1) and added `a X` (+1). On its right stands another X, which was
    `b c` before: that removed `c b` (-1) and added `X X` (+1). The right X has an X on its left: that side is counted
    already. On its right it removed `c d` (-1) and added `X d` (+1).
    """
    left, right = pair[0], pair[1]
    change: dict[str, int] = collections.defaultdict(int)
    replaced = 0
    for index in words_with.pop(pair):
        text, count = texts[index].replace(pair, new), counts[index]
        replaced += (len(texts[index]) - len(text)) * count
        texts[index] = text
        at = text.find(new)  # not found: the word lost this pair to an earlier merge
        while at >= 0:
            if at > 0 and text[at - 1] != new:
                before = text[at - 1]
                change[before + left] -= count
                change[before + new] += count
                words_with[before + new].add(index)
            if at + 1 < len(text):
                after = text[at + 1]
                change[right + (left if after == new else after)] -= count
                change[new + after] += count
                words_with[new + after].add(index)
            at = text.find(new, at + 1)
    change.pop(pair, None)  # in `a a a`, the pair overlaps itself
    return change, replaced


def merge_by_rank(tokens: list[Any], ranks: Mapping[tuple[Any, Any], int], merged: Sequence[Any]) -> list[Any]:
    """Merge the pair of lowest rank, of equal ones the leftmost, until no pair has a rank. This is fast encoding.

    >>> merge_by_rank(["n", "e", "w", "e", "s", "t"], {("s", "t"): 0, ("e", "st"): 1}, ["st", "est"])
    ['n', 'e', 'w', 'est']

    Replaying 50,000 merges would look at each of them; here only pairs in the word matter. The merges have to be in the
    order of training, where a merge comes after those that made its two tokens. A heap of (rank, index) finds the next
    one, so n tokens take n log n steps. A token that was merged into the one before it becomes None; links lead from
    each token that is left to its neighbours.
    """
    following, previous = list(range(1, len(tokens) + 1)), list(range(-1, len(tokens) - 1))
    heap = [(ranks[pair], index) for index, pair in enumerate(zip(tokens, tokens[1:])) if pair in ranks]
    heapq.heapify(heap)
    while heap:
        rank, left = heapq.heappop(heap)
        right = following[left]
        if right == len(tokens) or ranks.get((tokens[left], tokens[right])) != rank:
            continue  # another merge was there first
        tokens[left], tokens[right] = merged[rank], None
        following[left] = after = following[right]
        if after < len(tokens):
            previous[after] = left
            if (pair := (tokens[left], tokens[after])) in ranks:
                heapq.heappush(heap, (ranks[pair], left))
        before = previous[left]
        if before >= 0 and (pair := (tokens[before], tokens[left])) in ranks:
            heapq.heappush(heap, (ranks[pair], before))
    return [token for token in tokens if token is not None]


# ---------------------------------------------------------------------------------------------------------------------
# III. The tokenizer and its files
# ---------------------------------------------------------------------------------------------------------------------

PATTERNS = {
    "gpt2": GPT2,
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$"
    r"|\s*[\r\n]|\s+(?!\S)|\s",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
TIKTOKEN_NAMES = {"r50k_base": "gpt2", "cl100k_base": "cl100k", "o200k_base": "o200k"}
CHARACTERS = "characters"  # takes the place of a pattern: words stand between spaces, and are made of characters
NAMED = {**PATTERNS, CHARACTERS: r"[\r ]*\n[\r\n ]*|\A[\r ]+|[\r ]+\z| +"}  # there, what stands between words
# In tokenizer.json: there {1,3}+ is one or more times {1,3}; as nothing follows it, it need not be possessive.
ONIGURUMA = {name: expression.replace("{1,3}+", "{1,3}") for name, expression in NAMED.items()}
END_OF_WORD = "</w>"  # the marker that a word's last character carries there
MODEL_FILES = ("vocab.json", "merges.txt", "tokenizer.json")
Paths = Path | Iterable[Path]
Texts = Iterable[str] | None
Specials = Iterable[str] | None  # special tokens, as users give them
Vocab = Mapping[int, bytes]  # token id -> token
Merges = Iterable[Pair]  # in the order of training
BLOCK = 1 << 16  # a stream is taken in blocks of at most this many characters


class Options(NamedTuple):
    """The checked options of counting, training and encoding; train_bpe says what each means.

    The first two, options[:2], belong to a model; Tokenizer and save take them in this order.
    """

    special_tokens: tuple[str, ...] = ()
    pattern: str = "gpt2"  # a name from PATTERNS, a custom pattern, or CHARACTERS
    errors: str = "strict"
    newlines: str = "keep"
    vocab_size: int = sys.maxsize
    min_frequency: int = 1
    max_token_length: int | None = None
    like: str | None = None
    engine: str = "auto"
    workers: int | None = None
    progress: bool = False


CHOICES: dict[str, tuple[Any, ...]] = {  # the options with a fixed set of values
    "errors": ("strict", "replace"), "newlines": ("keep", "lf"), "level": ("byte", "char"),
    "like": (None, "huggingface"), "engine": ("auto", "python", "c"), "progress": (False, True, None),
}  # fmt: skip


def require(condition: Any, message: str) -> None:
    """ValueError with this message if a condition does not hold."""
    if not condition:
        raise ValueError(message)


def check_arguments(special_tokens: Specials, level: str = "byte", pattern: str = "gpt2", **given: Any) -> Options:
    """Whatever a user passes in is checked here, before any work: -> Options; errors name the bad value."""
    # a name with a typo would be a valid expression, which is not meant
    with naming(f"pattern={pattern!r} is neither a regular expression nor one of {', '.join(PATTERNS)}"):
        pattern = TIKTOKEN_NAMES.get(pattern, pattern)
        if pattern not in NAMED and not set(pattern) & set(r"\.^$*+?{}[]()|"):
            raise ValueError("it has no operator")
        compile_pattern(pattern)
    options = Options(check_special_tokens(special_tokens), pattern, **given)
    for name, value in {"level": level, **given}.items():
        if name in CHOICES:
            require(value in CHOICES[name], f"{name}={value!r} is not one of {CHOICES[name]}")
        elif value != Options._field_defaults[name]:
            require(hasattr(value, "__index__") and value > 0, f"{name}={value!r} is not a whole number above 0")
    if options.engine == "c" and not find_engine()[0]:
        raise ValueError(f"engine='c', but {find_engine()[1]}")
    if level == "char" and (options.like or options.pattern not in ("gpt2", CHARACTERS)):
        raise ValueError("level='char' goes with no pattern and no like: both are about bytes")
    if options.like:
        require(options.max_token_length is None, "no max_token_length with like='huggingface': there it is off by one")
        check_savable(options)
    return options._replace(pattern=CHARACTERS) if level == "char" else options


def check_special_tokens(special_tokens: Specials) -> tuple[str, ...]:
    """check_special_tokens(["<|endoftext|>"]) -> ("<|endoftext|>",); a single byte has an id already."""
    if isinstance(special_tokens, (str, bytes)):
        raise TypeError(f"special_tokens={special_tokens!r} is one string; a list of strings is needed")
    tokens = tuple(special_tokens or ())
    for number, token in enumerate(tokens, 1):
        utf8 = to_utf8(token) if isinstance(token, str) else b""
        valid = len(utf8) > 1 and utf8.decode("utf-8") == token
        require(valid, f"special token {number} is {token!r}, not valid text of two bytes or more")
    twice = [token for token, count in collections.Counter(tokens).items() if count > 1]
    require(not twice, f"the special tokens {twice} are given twice")
    return tokens


def check_savable(options: Options, *folders: Path) -> None:
    """Try what could keep a model from being saved, now and not after an hour of training.

    Hugging Face's files write some special tokens like another token: "é" is byte 233 there.
    """
    for special in options.special_tokens if options.pattern != CHARACTERS else ():
        with contextlib.suppress(KeyError, UnicodeDecodeError):  # not bytes, or bytes that no text has
            token = from_printable(special)
            if len(token) > 1:
                codecs.getincrementaldecoder("utf-8")().decode(token.lstrip(bytes(range(0x80, 0xC0))))
            if token != special.encode("utf-8"):
                raise ValueError(f"special token {special!r} can't be saved: tokenizer.json would have it as {token!r}")
    check_writable(*(os.path.join(folder, name) for folder in folders for name in MODEL_FILES))


@functools.lru_cache(maxsize=32)
def compile_pattern(pattern: str) -> regex.Pattern[str]:
    """The compiled pattern for a name or a custom pattern."""
    return regex.compile(NAMED.get(pattern, pattern))


@functools.lru_cache(maxsize=32)
def compile_special_tokens(special_tokens: tuple[str, ...]) -> re.Pattern[str]:
    """Matches any special token, the longest one where several begin at the same place; nothing if there is none.

    Special tokens are walls: what stands between two of them is a text of its own.
    """
    return re.compile(f"({any_of(special_tokens)})" if special_tokens else "(\ud800)")  # half a character: in no text


def any_of(texts: Iterable[str]) -> str:
    """any_of(["ab", "abc", "b"]) -> "(?:ab(?:c)?|b)": as a tree, so that thousands are found as fast as one."""
    texts, branches = sorted(texts), []
    for _, group in itertools.groupby(filter(None, texts), key=operator.itemgetter(0)):
        branch = list(group)
        shared = os.path.commonprefix(branch)
        rest = any_of(text[len(shared) :] for text in branch) if len(branch) > 1 else ""
        branches.append(re.escape(shared) + rest)
    return f"(?:{'|'.join(branches)})" + "?" * (texts[0] == "")


def find_words(text: str, pattern: str) -> list[str]:
    """find_words("It's  new", "gpt2") -> ["It", "'s", " ", " new"]: the whole matches, without empty ones."""
    expression = compile_pattern(pattern)
    if pattern in PATTERNS:
        return expression.findall(text)  # of a pattern with groups, this would be the groups
    words = expression.split(text) if pattern == CHARACTERS else (match[0] for match in expression.finditer(text))
    return [word for word in words if word]


def pretokenize(text: str, special_tokens: Specials = None, pattern: str = "gpt2") -> Iterator[bytes]:
    """The words of a text, one after the other, as UTF-8; special tokens are left out.

    >>> list(pretokenize("Hello!<|endoftext|>new world", ["<|endoftext|>"]))
    [b'Hello', b'!', b'new', b' world']
    """
    options = check_arguments(special_tokens, pattern=pattern)
    pieces = compile_special_tokens(options.special_tokens).split(to_utf8(text).decode("utf-8"))[::2]
    return (word.encode("utf-8") for piece in pieces for word in find_words(piece, options.pattern))


class Tokenizer:
    """Encodes text with a trained vocabulary, and decodes token ids.

    vocab           {token id: token}; any ids, but each byte that a text has needs one
    merges          [(left, right), ...] in the order of training
    special_tokens  texts that get one id each; those that are not in the vocabulary get the next ids. Where several
                    begin at the same place, the longest counts. Without them, their text is text like any other.
    pattern         the one that the vocabulary was trained with

    >>> tokenizer = Tokenizer({0: b"a", 1: b"b", 2: b"ab", 3: b"abab"}, [(b"a", b"b"), (b"ab", b"ab")], ["<end>"])
    >>> tokenizer.encode("ababab<end>"), tokenizer.decode([3, 2, 4]), tokenizer
    ([3, 2, 4], 'ababab<end>', Tokenizer(5 tokens, 1 of them special, pattern 'gpt2'))

    It may be pickled, and used from several threads. ValueError where vocabulary and merges contradict each other.
    """

    def __init__(self, vocab: Vocab, merges: Merges, special_tokens: Specials = None, pattern: str = "gpt2") -> None:
        self.options = check_arguments(special_tokens, pattern=pattern)
        require(self.options.pattern != CHARACTERS, "a Tokenizer is made of bytes; level='char' is for segment()")
        ids, specials = ids_of(vocab), self.options.special_tokens
        missing = [token for token in map(str.encode, specials) if token not in ids]
        ids.update(zip(missing, itertools.count(max(vocab, default=-1) + 1)))
        self.vocab, self.merges = {token_id: token for token, token_id in ids.items()}, list(merges)
        self.id_of_byte = [ids.get(bytes([byte])) for byte in range(256)]
        self.special_ids: dict[str, Any] = {special: ids[special.encode("utf-8")] for special in specials}
        wrong = [(a, b) for a, b in self.merges if not (a in ids and b in ids and a + b in ids)]
        require(not wrong, f"a merge has a token that is not in the vocabulary: {wrong[:1]}")
        self.ranks = {(ids[left], ids[right]): rank for rank, (left, right) in enumerate(self.merges)}
        self.merged = [ids[left + right] for left, right in self.merges]  # a rank -> the id of the new token
        if len(self.ranks) < len(self.merges):
            twice = collections.Counter(map(tuple, self.merges)).most_common(1)[0][0]
            raise ValueError(f"the merge {twice} is there twice")
        self._cached = functools.lru_cache(maxsize=1 << 16)(self.encode_word)

    def __reduce__(self) -> Any:
        return Tokenizer, (self.vocab, self.merges, *self.options[:2])

    def __len__(self) -> int:
        return len(self.vocab)

    def __repr__(self) -> str:
        kind = f"{len(self.special_ids)} of them special, pattern {self.options.pattern!r}"
        return f"Tokenizer({len(self):,} tokens, {kind})"

    @classmethod
    def train(
        cls, input_path: Paths | None = None, vocab_size: int | None = None, special_tokens: Specials = None, *,
        pattern: str = "gpt2", **options: Any,
    ) -> Tokenizer:
        """A tokenizer that is trained on files, or on texts=...; the arguments are those of train_bpe."""
        require(options.get("level") != "char", "a Tokenizer is made of bytes; level='char' is for segment()")
        specials = check_special_tokens(special_tokens)
        return cls(*train_bpe(input_path, vocab_size, specials, pattern=pattern, **options), specials, pattern)

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """A tokenizer from a folder that save() or the command line wrote; ValueError names what is wrong in it."""
        with naming(folder):
            return cls(*read_model(folder))

    @classmethod
    def from_files(
        cls, vocab_filepath: Path, merges_filepath: Path, special_tokens: Specials = None, pattern: str = "gpt2"
    ) -> Tokenizer:
        """A tokenizer from vocab.json and merges.txt, those of save() or GPT-2's; ValueError names a wrong entry."""
        vocab, merges = read_files(vocab_filepath, merges_filepath)
        missing = min({bytes([byte]) for byte in range(256)} - set(vocab.values()), default=None)
        require(missing is None, f"{os.fspath(vocab_filepath)}: has no token for the byte {missing!r}")
        return cls(vocab, merges, special_tokens, pattern)

    def save(self, folder: Path) -> None:
        """Write vocab.json, merges.txt and tokenizer.json into a folder, which is made if it is not there."""
        save(self.vocab, self.merges, folder, *self.options[:2])

    @functools.cached_property
    def coder(self) -> Any:
        """What encodes in the C engine; None where that is not built or does not know the pattern."""
        engine = find_engine()[0]
        return engine.encoder(self) if engine and self.options.pattern in engine.patterns else None

    def encode(self, text: str) -> list[int]:
        """The token ids of a text. Lone surrogates, which no UTF-8 text has, count as U+FFFD.

        ValueError if the words that a custom pattern finds are not the whole text, in its order.
        """
        return self._encode(text, 0, self.coder)

    def encode_iterable(self, iterable: Iterable[str]) -> Iterator[int]:
        """The ids of encode("".join(iterable)), one after the other, for streams of any size, cut anywhere.

        It reads on to the next safe cut (see last_cut), so with a named pattern it keeps little text. For a custom
        pattern that is the next special token; without any it keeps the whole text.
        """
        parts = (text[at : at + BLOCK] for text in map(check_text, iterable) for at in range(0, len(text), BLOCK))
        offset, blocks = 0, (part.encode("utf-8", "surrogatepass") for part in parts)
        for data in cut_stream(blocks, self.options, 1):
            text = data.decode("utf-8", "surrogatepass")
            yield from self._encode(text, offset, self.coder)
            offset += len(text)

    def encode_files(self, paths: Paths, output: Path, *, executor: Any = None, **options: Any) -> int:
        """Write the ids of files as one array, in the order of the text: -> how many there are.

        output   a .npy file, which numpy.load opens (also with mmap_mode="r"), or with a name that ends in .bin the
                 bare numbers, for numpy.memmap; uint16 where every id fits, else uint32. It is written atomically.
        options  workers, progress, errors, newlines, engine and executor, as for train_bpe and count_words

        The end of a file is a wall. Memory does not grow with the files, except with a custom pattern (see train_bpe).
        """
        checked = check_arguments(self.options.special_tokens, pattern=self.options.pattern, **options)
        return self.write_ids(paths, output, checked, executor)[0]

    def write_ids(self, paths: Any, output: Path, options: Options, executor: Any = None) -> tuple[int, int]:
        """encode_files with checked options: -> (how many ids, how many bytes were read)."""
        kind, bare = "u2" if max(self.vocab, default=0) < 1 << 16 else "u4", os.fspath(output).endswith(".bin")
        n_ids = n_bytes = 0
        slices, total, saved_counts = slices_of_files(paths, options)
        require(not saved_counts, f"{', '.join(saved_counts)}: a file of counts has words, but no text to encode")
        task = functools.partial(encode_slice, options=options, kind=kind, tokenizer=self)
        in_c = options.engine != "python" and self.coder is not None
        results = run_tasks(task, slices, options, in_c, executor)
        with new_file(output) as file:
            file.write(b"" if bare else npy_header(kind, 0))
            for size, ids in with_progress(results, "encoding", "MB", total, options.progress):
                file.write(ids)
                n_ids, n_bytes = n_ids + len(ids) // int(kind[1]), n_bytes + size
            file.seek(0)
            file.write(b"" if bare else npy_header(kind, n_ids))
        return n_ids, n_bytes

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some ids; bytes that are not UTF-8 become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of some ids; ValueError for an id that is not in the vocabulary."""
        ids = list(ids)
        try:
            return b"".join(map(self.vocab.__getitem__, ids))
        except KeyError as error:
            raise ValueError(f"no token has the id {error}, which is at index {ids.index(*error.args)}") from None

    def encode_word(self, word: str) -> tuple[int, ...]:
        """The ids of one word, or of a special token, which no word can be."""
        data = word.encode("utf-8")
        ids = [self.special_ids[word]] if word in self.special_ids else [self.id_of_byte[byte] for byte in data]
        if None in ids:
            byte = bytes([data[ids.index(None)]])
            raise ValueError(f"the vocabulary has no token for the byte {byte!r}, in {word[:40]!r}")
        return tuple(merge_by_rank(ids, self.ranks, self.merged))

    def _encode(self, text: str, offset: int, coder: Any) -> list[int]:
        """encode(), in C if there is a coder; error messages count characters from offset, where the text begins."""
        if coder and (in_c := coder.encode(to_utf8(text))) is not None:
            return in_c.tolist()  # type: ignore[no-any-return]
        ids: list[int] = []
        for piece in compile_special_tokens(self.options.special_tokens).split(to_utf8(text).decode("utf-8")):
            words = [piece] if piece in self.special_ids else find_words(piece, self.options.pattern)
            if (found := "".join(words)) != piece:  # by a custom pattern; decoding would not give the text back
                at = len(os.path.commonprefix([found, piece]))
                raise ValueError(f"the pattern skips or reorders text at character {offset + at}: {piece[at:][:20]!r}")
            for word in words:
                ids += self._cached(word) if len(word) <= 64 else self.encode_word(word)
            offset += len(piece)
        return ids


def check_text(text: Any) -> str:
    """The same text; TypeError where it is none."""
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, not {type(text).__name__}")
    return text


def to_utf8(text: str) -> bytes:
    """A text as UTF-8: pairs of surrogates are the character they stand for, lone ones U+FFFD, as tiktoken has it."""
    try:
        return check_text(text).encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode("utf-8")


def segment(sentence: str, merges: Merges) -> list[str]:
    """The tokens of a sentence, with merges that were learned with level="char".

    >>> segment("low lower", [(b"l", b"o"), (b"lo", b"w</w>"), (b"lo", b"w")])
    ['low</w>', 'low', 'e', 'r</w>']
    """
    ranks: dict[tuple[str, str], int] = {}
    for rank, pair in enumerate(merges):
        left, right = (token.decode("utf-8", "surrogateescape") for token in pair)
        if regex.search(r"[ \p{Cs}]", left + right):
            raise ValueError(f"merge {rank} (from 0), {pair[0]!r} + {pair[1]!r}, was not learned with level='char'")
        ranks[left, right] = rank
    words, merged = find_words(sentence, CHARACTERS), [left + right for left, right in ranks]
    return [token for word in words for token in merge_by_rank([*word[:-1], word[-1] + END_OF_WORD], ranks, merged)]


# A folder with a model has GPT-2's two files, vocab.json and merges.txt, and Hugging Face's tokenizer.json, which also
# knows the pattern and the special tokens.


def save(
    vocab: Vocab, merges: Merges, output_dir: Path, special_tokens: Specials = None, pattern: str = "gpt2", *,
    level: str = "byte",
) -> None:
    """Write vocab.json, merges.txt and tokenizer.json into a folder, which is made if it is not there.

    special_tokens    without them, all tokens of the vocabulary that are neither a single byte nor made by a merge
    level             "char" writes tokens as they are; merges.txt is then a file of codes of subword-nmt

    All files are complete before one of them takes the place of an earlier one. ValueError if two ids have the same
    bytes, or if a special token can't be told from another token in these files.
    """
    merges = list(merges)
    if special_tokens is None:
        special_tokens = [] if level == "char" else special_tokens_of(vocab, merges)
    options = check_arguments(special_tokens, level, pattern=pattern)
    check_savable(options, output_dir)
    ids, pairs, tokenizer = contents_of(vocab, merges, options)
    lines = ["#version: 0.2", *map(" ".join, pairs), ""]
    # one entry a line; `indent` would do without the json module's C encoder, and take ten times as long
    to_json = functools.partial(json.dumps, ensure_ascii=False, separators=(",\n", ": "))
    with contextlib.ExitStack() as stack:  # it leaves the last file first, so tokenizer.json is the first to be renamed
        for name, text in zip(MODEL_FILES, (to_json(ids) + "\n", "\n".join(lines), to_json(tokenizer) + "\n")):
            file = stack.enter_context(new_file(os.path.join(output_dir, name)))
            file.write(text.encode("utf-8"))
            file.flush()


def ids_of(vocab: Vocab) -> dict[bytes, int]:
    """The id of each token; ValueError if two ids have the same bytes."""
    ids: dict[bytes, int] = {}
    for token_id, token in vocab.items():
        if ids.setdefault(token, token_id) != token_id:
            raise ValueError(f"the ids {ids[token]} and {token_id} have the same bytes, {token!r}")
    return ids


# GPT-2's files write each byte as a printable character. Bytes that are printable in Latin-1 stand for themselves, the
# 68 others become U+0100, U+0101, ... in their order: the space is "Ġ", the newline "Ċ". So every token is one "word"
# to any text tool, whatever its bytes are.
PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
CHARACTER_OF = {byte: chr(byte) for byte in PRINTABLE}
CHARACTER_OF |= {byte: chr(256 + n) for n, byte in enumerate(sorted(set(range(256)) - set(PRINTABLE)))}
BYTE_OF = {character: byte for byte, character in CHARACTER_OF.items()}


@functools.lru_cache(maxsize=1 << 17)
def to_printable(token: bytes) -> str:
    """A token in printable characters: to_printable(b" the") is "Ġthe"."""
    return token.decode("latin-1").translate(CHARACTER_OF)


@functools.lru_cache(maxsize=1 << 17)
def from_printable(text: str) -> bytes:
    """from_printable("Ġthe") -> b" the"; KeyError where a character stands for no byte."""
    try:
        return bytes(map(BYTE_OF.__getitem__, text))
    except KeyError:
        raise KeyError(f"{text!r} has a character that stands for no byte") from None


def special_tokens_of(vocab: Vocab, merges: Merges) -> tuple[str, ...]:
    """The special tokens of a vocabulary: what is neither a byte nor a merge, in the order of the ids."""
    others = {left + right for left, right in merges}
    tokens = [token for token in ids_of(dict(sorted(vocab.items()))) if len(token) > 1 and token not in others]
    with naming("a token that is neither a byte nor a merge"):
        return tuple(token.decode("utf-8") for token in tokens)


def contents_of(vocab: Vocab, merges: Merges, options: Options) -> tuple[Any, Any, Any]:
    """What is in vocab.json, merges.txt and tokenizer.json; with that the tokenizers package encodes as Tokenizer does.

    Its regular expressions are those of Oniguruma, which may read a custom pattern in another way.
    """
    characters = options.pattern == CHARACTERS
    show: Callable[[bytes], str] = bytes.decode if characters else to_printable
    ids = {show(token): token_id for token, token_id in ids_of(vocab).items()}
    pairs = [[show(left), show(right)] for left, right in merges]
    names = {show(special.encode("utf-8")): special for special in options.special_tokens}
    missing = [names[text] for text in names if text not in ids]
    require(not missing, f"the special tokens {missing} are not in the vocabulary")
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    expression = ONIGURUMA.get(options.pattern, options.pattern)
    split = {"type": "Split", "pattern": {"Regex": expression}, "invert": False}
    split["behavior"] = "Removed" if characters else "Isolated"
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "added_tokens": [{"id": ids[text], "content": names[text], **flags} for text in names],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split] if characters else [split, byte_level]},
        "post_processor": None, "decoder": {"type": "BPEDecoder", "suffix": END_OF_WORD} if characters else byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": END_OF_WORD if characters else None, "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": False, "vocab": {names.get(text, text): n for text, n in ids.items()}, "merges": pairs,
        },
    }  # fmt: skip
    return ids, pairs, tokenizer


@contextlib.contextmanager
def naming(place: Path) -> Iterator[None]:
    """Put the name of a file, a folder or an argument in front of the message where something in it is wrong."""
    try:
        yield
    except Exception as error:
        if getattr(error, "filename", None) or isinstance(error, MemoryError):
            raise  # it names the file already, or has nothing to do with it
        text = str(error) if isinstance(error, (ValueError, regex.error)) else repr(error)
        known = text.startswith(os.fspath(place))
        raise ValueError(text if known else f"{os.fspath(place)}: {text}") from None


def read_model(folder: Path) -> tuple[dict[int, bytes], list[Pair], tuple[str, ...], str]:
    """(vocab, merges, special tokens, pattern) of a folder; without a tokenizer.json the pattern is that of GPT-2."""
    vocab_path, merges_path, path = (os.path.join(folder, name) for name in MODEL_FILES)
    tokenizer, pattern = None, "gpt2"
    if os.path.exists(path):
        with open(path, "rb") as file, naming(f"{path}: not a tokenizer.json of byte-level BPE with a pattern"):
            tokenizer = json.load(file)
            specials = check_special_tokens(token["content"] for token in tokenizer["added_tokens"])
            expression = tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
            pattern = {ONIGURUMA[name]: name for name in NAMED}.get(expression, expression)
    vocab, merges = read_files(vocab_path, merges_path, pattern == CHARACTERS)
    with naming(folder):
        if tokenizer is None:
            require(merges, f"{merges_path}: has no merges")
            specials = special_tokens_of(vocab, merges)
        else:
            same = tokenizer == contents_of(vocab, merges, Options(specials, pattern))[2]
            require(same, f"has the files of two training runs: {', '.join(MODEL_FILES)} differ")
    return vocab, merges, specials, pattern


def load(output_dir: Path) -> tuple[dict[int, bytes], list[Pair]]:
    """Read back what save wrote, or GPT-2's own files: -> (vocab, merges)."""
    return read_model(output_dir)[:2]


def read_files(vocab_path: Path, merges_path: Path, characters: bool = False) -> tuple[dict[int, bytes], list[Pair]]:
    """(vocab, merges) from a vocab.json and a merges.txt; ValueError names the file and the entry that is wrong."""
    read, ends = (str.encode, "\n") if characters else (from_printable, "\r\n")  # a character may be "\r"
    vocab: dict[int, bytes] = {}
    with open(vocab_path, "rb") as file, naming(f"{os.fspath(vocab_path)}: not printable tokens and their ids"):
        for text, token_id in json.load(file).items():
            if type(token_id) is not int or token_id < 0 or token_id in vocab:
                raise ValueError(f"the id of {text!r} is {token_id!r}, not a whole number from 0 on, or given twice")
            vocab[token_id] = read(text)
    merges, number = [], 0
    with open(merges_path, encoding="utf-8", errors="surrogateescape", newline="\n") as lines, naming(merges_path):
        try:
            for number, line in enumerate(lines, 1):
                if line.rstrip(ends) and not (number == 1 and line.startswith("#version")):
                    left, right = line.rstrip(ends).split(" ")
                    merges.append((read(left), read(right)))
        except (ValueError, KeyError) as error:
            raise ValueError(f"line {number} is not two printable tokens with one space between: {error}") from None
    return dict(sorted(vocab.items())), merges


@contextlib.contextmanager
def new_file(path: Path, keep: bool = True) -> Iterator[Any]:
    """A file to write to under a temporary name; renamed to path on success, removed otherwise, or if only tried."""
    path = os.path.abspath(path)
    folder = os.path.dirname(path)
    free = not os.path.exists(path) or os.path.isfile(path)
    require(free, f"{path} is not a regular file, and would be replaced by one")
    require(not os.path.isfile(folder), f"{folder} is not a folder")
    os.makedirs(folder, exist_ok=True)
    temporary = f"{path}.{os.urandom(6).hex()}.tmp"
    try:
        with open(temporary, "wb") as file:
            yield file
        if keep:
            os.replace(temporary, path)
    except OSError as error:
        if error.filename in (None, temporary):  # a full disk has no name
            error.filename = path
        raise
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)


def check_writable(*paths: Path) -> None:
    """Make the folders of some files, and try to write there: better an error now than after an hour of training."""
    for path in paths:
        with new_file(path, keep=False):
            pass


# ---------------------------------------------------------------------------------------------------------------------
# IV. Large corpora
# ---------------------------------------------------------------------------------------------------------------------

SLICE_BYTES = 8 << 20  # about how much text is counted at a time; in Python that needs some 20 times as much memory
WINDOW_BYTES = 64 << 10  # how much text is searched for a cut at a time
NOT_TEXT = {  # by first bytes: what a file is, and the tool that makes text of it
    b"\x1f\x8b": "compressed: zcat", b"BZh": "compressed: bzcat", b"\xfd7zXZ": "compressed: xzcat",
    b"\x28\xb5\x2f\xfd": "compressed: zstdcat",
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), "UTF-16: iconv -f utf-16 -t utf-8"),
}  # fmt: skip
CUTS = {  # where a word ends for certain; a custom pattern may match across any place
    **dict.fromkeys(PATTERNS, r"(?<=[\p{L}\p{N}])(?=[^\p{L}\p{N}\p{M}'])"), CHARACTERS: r"(?<=\n)",
}  # fmt: skip


def last_cut(read: Callable[[int, int], bytes | bytearray], start: int, end: int, options: Options) -> int:
    r"""The last offset in bytes at which a text may be cut without changing its words; 0 where none is known.

    read(from, to) gives a part of the text. A slice begins at `start`, and its last WINDOW_BYTES before `end` are
    searched, with room for the context on both sides.

    At level="char" that is after a newline, and with a custom pattern before a special token. For the named patterns
    one rule does: after a letter or a digit, before anything that is no letter, digit, mark or apostrophe. No word goes
    on there, since within a word only these follow a letter or digit; and nothing before the cut depends on what
    follows, since only whitespace looks ahead, in `\s+(?!\S)` and in cl100k's `\s++$`. Before a newline would be
    wrong: "a \n\nb" has the words "a", " \n", "\n", "b", while "a " and "\n\nb" have "a", " ", "\n", "\n", "b".

    A cut must not divide a special token either, however several may overlap: with "a a" as a special token, there is
    no place in "a a a a". And all around it is valid UTF-8, so that errors="replace" can't change what stands there.
    """
    expression = CUTS.get(options.pattern) or compile_special_tokens(options.special_tokens).pattern
    margin = 2 * max(map(len, options.special_tokens), default=0) + 2  # characters on either side
    begin = max(start, end - WINDOW_BYTES - 8 * margin)
    text = read(begin, end).decode("utf-8", "surrogateescape")  # bytes that are not UTF-8 become lone surrogates
    first, last = 1 if begin == start else margin, max(len(text) - margin, 0)
    for match in compile_pattern("(?r)" + expression).finditer(text, first, last):  # (?r): the last place first
        at = match.start()
        if may_cut(text[max(at - margin, 0) : at], text[at : at + margin], options):
            return begin + len(text[:at].encode("utf-8", "surrogateescape"))
    return 0


def may_cut(before: str, after: str, options: Options) -> bool:
    r"""Whether it is safe to cut between these two, as far as the border itself says.

    All is valid UTF-8 (no lone surrogates), neither "\r\n" nor a special token is divided, and with a custom pattern a
    special token begins here.
    """
    if regex.search(r"\p{Cs}", before + after) or before[-1] + after[0] == "\r\n":
        return False
    if options.newlines == "lf":  # a special token may appear or vanish by that
        before, after = before.replace("\r\n", "\n"), after.replace("\r\n", "\n")
    for token in options.special_tokens:  # one across the border takes less than its length of either side
        if token in before[max(len(before) - len(token) + 1, 0) :] + after[: len(token) - 1]:
            return False
    return options.pattern in CUTS or after.startswith(options.special_tokens)


def cut_stream(blocks: Iterable[bytes], options: Options, least: int) -> Iterator[bytes]:
    """Join the blocks of a text, and cut it at safe places into pieces of at least about this many bytes."""
    data, enough = bytearray(), least
    for block in blocks:
        data += block
        if len(data) >= enough:
            if cut := last_cut(lambda begin, end: data[begin:end], 0, len(data), options):  # noqa: B023 (called at once)
                yield bytes(data[:cut])
                del data[:cut]
            # A retry after each small block would take quadratic time; a longer wait would skip places to cut.
            enough = least if cut else len(data) + min(len(data), WINDOW_BYTES)
    if data:
        yield bytes(data)


class Slice(NamedTuple):
    """A part of a corpus that has the same words on its own; small to send, unless it has to carry its text."""

    path: str
    start_byte: int
    end_byte: int
    stamp: tuple[int, int] | None = None  # size and modification time of the file, which must not change
    texts: tuple[bytes, ...] = ()  # without a file, or of one that can't be read twice: texts with walls between them


Task = Callable[[Slice], Any]  # counts or encodes a slice


def stamp_of(path: str) -> tuple[int, int]:
    """Size and modification time of a readable file; size 0 for a pipe, and for what says it is empty, as in /proc."""
    if path == "-" or stat.S_ISFIFO(mode := os.stat(path).st_mode) or stat.S_ISCHR(mode):
        return 0, 0
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def slices_of_files(input_path: Any, options: Options) -> tuple[Iterator[Slice], int | None, list[str]]:
    """(the slices of one text file or several, their size in bytes where it is known, the files of counts)."""
    single = isinstance(input_path, (str, bytes, os.PathLike))
    paths = list(map(os.fsdecode, [input_path] if single else input_path))
    require(paths, "no corpus file is given")
    saved_counts = [path for path in paths if path.endswith(".npz")]
    texts = [path for path in paths if path not in saved_counts]
    sizes = [stamp_of(path)[0] for path in texts]  # an error now, where one can't be read
    slices = (piece for path in texts for piece in slices_of(path, options))
    return slices, sum(sizes) if all(sizes) else None, saved_counts


def slices_of(path: str, options: Options) -> Iterator[Slice]:
    """Cut a file into slices of about SLICE_BYTES; those of a pipe, or of standard input, carry their text."""
    stamp, start, end = stamp_of(path), 0, SLICE_BYTES
    if not stamp[0]:
        for data in cut_stream(blocks_of_pipe(path), options, SLICE_BYTES):
            warn_of_mark(path, start, data)
            yield Slice(path, start, start + len(data), texts=(data,))
            start += len(data)
        return
    read = functools.partial(read_bytes, path)
    warn_of_mark(path, start, read(0, 3))
    while end < stamp[0]:
        if cut := last_cut(read, start, end, options):
            yield Slice(path, start, cut, stamp)
            start, end = cut, cut + SLICE_BYTES
        else:
            end += WINDOW_BYTES
    yield Slice(path, start, stamp[0], stamp)


def blocks_of_pipe(path: str) -> Iterator[bytes]:
    """The bytes of a pipe as they come, up to its real end."""
    require(path != "-" or sys.stdin, "standard input is closed")
    with open(0 if path == "-" else path, "rb", buffering=0, closefd=path != "-") as pipe:
        if os.name == "posix":  # one that is set not to wait would seem to end where nothing has arrived yet
            os.set_blocking(pipe.fileno(), True)
        while block := pipe.read(WINDOW_BYTES):
            yield block


def slices_of_texts(texts: Iterable[str], options: Options) -> Iterator[Slice]:
    """Texts in bundles of about SLICE_BYTES; ValueError names an item that is not text."""
    if isinstance(texts, (str, bytes)):
        raise TypeError(f"texts={texts[:40]!r} is one string; an iterable of strings is needed")
    bundle: list[bytes] = []
    size = number = 0
    for number, text in enumerate(texts):
        try:
            bundle.append(to_utf8(text) if options.errors == "replace" else check_text(text).encode("utf-8"))
        except (TypeError, UnicodeEncodeError) as error:
            raise ValueError(f"text {number} (from 0): {error}") from None
        size += len(bundle[-1])
        if size >= SLICE_BYTES:
            yield Slice(f"texts up to {number}", 0, size, texts=tuple(bundle))
            bundle, size = [], 0
    yield Slice(f"texts up to {number}", 0, size, texts=tuple(bundle))


def warn_of_mark(path: str, start_byte: int, data: bytes) -> None:
    """Warn of a byte-order mark, which is text like any other, though hardly ever meant to be."""
    if start_byte == 0 and data.startswith(b"\xef\xbb\xbf"):
        warnings.warn(f"{path}: starts with a byte-order mark, which is kept as text", stacklevel=2)


def read_bytes(path: str, start: int, end: int) -> bytes:
    """A part of a file; of any size, since Python's buffer asks again where the system gives at most 2 GiB."""
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(end - start)


def read_slice(piece: Slice, options: Options) -> Sequence[bytes]:
    """The texts of a slice as `errors` and `newlines` say; ValueError if its file has changed since it was cut.

    With "strict", whoever uses them finds out whether they are UTF-8, and asks decode_slice what is wrong.
    """
    texts: Sequence[bytes] = piece.texts
    if piece.stamp:
        texts = [read_bytes(piece.path, piece.start_byte, piece.end_byte)]
        require(stamp_of(piece.path) == piece.stamp, f"{piece.path}: changed while it was read")
    if options.errors == "replace" or options.newlines == "lf":
        texts = [decode_slice(piece, data, options).encode("utf-8") for data in texts]
    return [data.replace(b"\r\n", b"\n") for data in texts] if options.newlines == "lf" else texts


def decode_slice(piece: Slice, data: bytes, options: Options) -> str:
    """A text of a slice; ValueError names the file and the first byte that is not UTF-8."""
    try:
        return data.decode("utf-8", options.errors)
    except UnicodeDecodeError as error:
        tools = [tool for magic, tool in NOT_TEXT.items() if data.startswith(magic) and not piece.start_byte]
        hint = f"it is {tools[0]} {piece.path} | python bpe.py - 1000" if tools else "use --errors replace to read on"
        place = f"byte {piece.start_byte + error.start} (0x{data[error.start]:02x}, {error.reason})"
        raise ValueError(f"{piece.path}: not valid UTF-8 at {place}; {hint}") from None


def run_tasks(task: Task, slices: Iterator[Slice], options: Options, threads: bool, executor: Any) -> Iterator[Any]:
    """task(slice) for all slices, some of them ahead of the reader; the results come in the order of the slices.

    They run in an executor if one is given; in this process if there is one worker or one slice; otherwise in threads.
    With the C engine, which releases Python's lock, the threads do the work; without it, each has a process that does.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    head = list(itertools.islice(slices, min(options.workers or cores, max(cores, 2))))  # more would only take memory
    slices, ahead = itertools.chain(head, slices), 64  # that many at once, for a cluster
    if not executor and (len(head) < 2 or not sys.executable):
        yield from map(task, slices)
        return
    waiting: collections.deque[tuple[Slice, Any]] = collections.deque()
    with contextlib.ExitStack() as stack:
        if not executor:
            from concurrent.futures import ThreadPoolExecutor

            executor, ahead = stack.enter_context(ThreadPoolExecutor(len(head))), len(head) + 1
            task = task if threads else stack.enter_context(processes(task, len(head)))
        stack.callback(lambda: [future.cancel() for _, future in waiting])  # after an error or Ctrl-C nobody wants them
        while True:
            pieces = itertools.islice(slices, ahead - len(waiting))
            waiting.extend((piece, executor.submit(task, piece)) for piece in pieces)
            if not waiting:
                return
            piece, future = waiting.popleft()
            try:
                result = future.result()
            except (ValueError, MemoryError, OverflowError):
                raise
            except Exception as error:  # of a cluster, a worker or the system: it does not say where
                place = f"{piece.path}, bytes {piece.start_byte} to {piece.end_byte}"
                raise RuntimeError(f"{place}: {str(error) or repr(error)}") from error
            yield result


# What a worker process runs. It loads this file, under the name by which pickle knows its functions here, and never the
# script that imported it: so workers start alike on every system, from a script without a guard, from standard input or
# in a notebook. The name in the spec is "bpe", so that the command line at the end of this file does not run. Workers
# are used only where the C engine is not, so they don't look for it.
WORKER = """
import importlib.util, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
name, path, *sys.path = sys.argv[1:]
spec = importlib.util.spec_from_file_location("bpe", path)
bpe = sys.modules[name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bpe)
bpe.find_engine = lambda: (None, "")
bpe.work()
"""


@contextlib.contextmanager
def processes(task: Task, n: int) -> Iterator[Task]:
    """The same task, done by n worker processes: a function for n threads, each of which waits for a worker.

    Each worker has pipes of its own, so that one that is killed can't leave half a message where another one reads. It
    ends when its pipe does, so none outlives this process; and it has a session of its own, so Ctrl-C is not for it.
    """
    import pickle
    import subprocess

    command, pipe = [sys.executable, "-c", WORKER, __name__, os.path.abspath(__file__), *sys.path], subprocess.PIPE
    workers = [subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True) for _ in range(n)]
    free, pickled = list(workers), pickle.dumps(task)

    def do(piece: Slice) -> Any:
        worker: Any = free.pop()
        try:
            pickle.dump((pickled, piece), worker.stdin)
            worker.stdin.flush()
            result = pickle.load(worker.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            raise RuntimeError("a worker process died (killed, or out of memory?)") from None
        free.append(worker)
        if isinstance(result, Exception):
            raise result
        return result

    try:
        yield do
    finally:
        for worker in workers:
            worker.kill()  # nobody waits for what it is doing
            worker.communicate()  # closes its pipes


def work() -> None:
    """What a worker process does: each task in a thread, so that it can end as soon as its parent does."""
    import pickle
    import threading

    load = functools.lru_cache(maxsize=1)(pickle.loads)  # the task is always the same one

    def answer(pickled: bytes, piece: Slice) -> None:
        try:
            result = pickle.dumps(load(pickled)(piece))
        except Exception as error:
            result = pickle.dumps(error)
        sys.stdout.buffer.write(result)
        sys.stdout.flush()

    threading.excepthook = lambda error: os._exit(1)  # it can't answer, and its parent says so, if there still is one
    try:
        while True:
            threading.Thread(target=answer, args=pickle.load(sys.stdin.buffer), daemon=True).start()
    finally:
        os._exit(0)


# Counting. Words and their counts are in a dict, or stay inside the C engine, where no word is a Python object.


class Words(collections.Counter[bytes]):
    """Words and their counts; put, update, totals, arrays and to_dict are also those of the twin in the C engine."""

    def put(self, blob: bytes, lengths: Sequence[int], counts: Sequence[int]) -> None:
        """Add words that lie one after the other, with their lengths and counts."""
        for end, length, count in zip(itertools.accumulate(lengths), lengths, counts):
            self[blob[end - length : end]] += count

    def totals(self) -> tuple[int, int, int]:
        """(distinct words, words, bytes in words)."""
        return len(self), sum(self.values()), sum(len(word) * count for word, count in self.items())

    def arrays(self) -> tuple[bytes, Sequence[int], Sequence[int]]:
        """All words one after the other, their lengths and their counts, by falling count and then by bytes."""
        kept = sorted((word for word, n in self.items() if word and n), key=lambda word: (-self[word], word))
        return b"".join(kept), array("I", map(len, kept)), array("Q", map(self.__getitem__, kept))

    def to_dict(self) -> dict[bytes, int]:
        """The words and their counts."""
        return dict(self)


def new_words(options: Options) -> Any:
    """An empty table of words: that of the C engine where it knows the pattern, else one of this file."""
    engine = engine_for(options)
    known = engine and options.pattern in engine.patterns
    return engine.words(options.special_tokens, options.pattern) if known else Words()


def count_text(texts: Iterable[str], options: Options) -> tuple[dict[bytes, int], int]:
    """(count of each word, number of bytes that belong to no word) of texts; the second is 0 for named patterns."""
    specials = compile_special_tokens(options.special_tokens)
    pieces = [piece for text in texts for piece in specials.split(text)[::2]]
    counts: collections.Counter[str] = collections.Counter()
    if options.pattern == "gpt2":
        # A GPT-2 word never goes on where whitespace follows something else. So the text is first counted in chunks
        # such as "\n    return" and each distinct chunk is searched for words once: 1.4 times faster on prose and code.
        chunks = collections.Counter(chunk for piece in pieces for chunk in regex.findall(r"\s*\S+|\s+", piece))
        for chunk, count in chunks.items():
            for word in find_words(chunk, "gpt2"):
                counts[word] += count
    else:
        for piece in pieces:
            counts.update(find_words(piece, options.pattern))
    words = {word.encode("utf-8"): count for word, count in counts.items()}
    if options.pattern in CUTS:
        return words, 0
    return words, sum(len(piece.encode("utf-8")) for piece in pieces) - Words(words).totals()[2]


def count_slice(piece: Slice, options: Options, words: Any = None) -> tuple[int, int, int, dict[bytes, int]]:
    r"""(bytes read, bytes in no word, carriage returns where some text has "\r\n", counts of words) of a slice.

    In C, the words go into `words` if they are given.
    """
    counts = new_words(options) if words is None else words
    n_bytes, texts = piece.end_byte - piece.start_byte, read_slice(piece, options)
    # to look for one byte is twenty times faster than to look for two
    returns = sum(data.count(b"\r") for data in texts if b"\r" in data and b"\r\n" in data)
    if isinstance(counts, Words):
        counts, unmatched = count_text([decode_slice(piece, data, options) for data in texts], options)
        return n_bytes, unmatched, returns, counts
    for data in texts:
        if not counts.scan(data):
            decode_slice(piece, data, options)  # it is not UTF-8: this raises, and says where
    return n_bytes, 0, returns, counts.to_dict() if words is None else {}


def count_corpus(input_path: Any, texts: Texts, options: Options, executor: Any = None) -> tuple[Any, int, int, int]:
    """(words and counts, bytes read, bytes in no word, carriage returns) of files, or of texts."""
    require((input_path is None) != (texts is None), "either paths or texts are needed")
    words, sums = new_words(options), [0, 0, 0]
    in_c = not isinstance(words, Words) and not executor
    corpus = slices_of_files(input_path, options) if texts is None else (slices_of_texts(texts, options), None, [])
    slices, total, saved_counts = corpus
    for path in saved_counts:
        saved = Words()
        saved.put(*read_counts(path, options))
        words.update(saved)
    task = functools.partial(count_slice, options=options, words=words if in_c else None)
    results = run_tasks(task, slices, options, in_c, executor)
    for *numbers, counts in with_progress(results, "counting words", "MB", total, options.progress):
        sums = list(map(operator.add, sums, numbers))
        if counts:
            words.update(counts)
    return words, sums[0], sums[1], sums[2]


def count_words(
    paths: Paths | None, special_tokens: Specials, *, texts: Texts = None, executor: Any = None, **options: Any
) -> dict[bytes, int]:
    """The words of a corpus and their counts, {b" the": 61234, ...}; the first half of train_bpe, with its arguments.

    executor  any concurrent.futures.Executor, also those of clusters (Dask's Client.get_executor(), mpi4py.futures).
              Each task is a path and a byte range, so the workers need this module and the files. A cluster's
              executor repeats what a lost worker was doing; what keeps failing raises RuntimeError with its place.
    """
    words = count_corpus(paths, texts, check_arguments(special_tokens, **options), executor)[0]
    return words.to_dict()  # type: ignore[no-any-return]


def encode_slice(piece: Slice, options: Options, tokenizer: Tokenizer, kind: str) -> tuple[int, bytes]:
    """(bytes read, token ids of kind "u2" or "u4" as bytes) of a slice of a file."""
    (data,) = read_slice(piece, options)  # a slice of a file is one text
    coder = tokenizer.coder if options.engine != "python" else None
    ids = coder.encode(data, kind) if coder else None
    if ids is None:
        text = decode_slice(piece, data, options)
        with naming(f"{piece.path}, bytes {piece.start_byte} to {piece.end_byte}"):
            ids = array("H" if kind == "u2" else "I", tokenizer._encode(text, 0, None))
    return piece.end_byte - piece.start_byte, bytes(ids)


# Files of counts: what counting gave, to be added up and trained on later. It is a zip of three arrays and a little
# JSON, which numpy.load opens.

ARRAYS = {"words": ("u1", "B"), "lengths": ("u4", "I"), "counts": ("u8", "Q")}  # NumPy's type, and that of array


def npy_header(kind: str, length: int) -> bytes:
    """What stands before the elements of a .npy file with one dimension (format 1.0): 128 bytes."""
    order = "|" if kind == "u1" else "<" if sys.byteorder == "little" else ">"
    text = f"{{'descr': '{order}{kind}', 'fortran_order': False, 'shape': ({length},), }}"
    return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + text.ljust(117).encode() + b"\n"


def save_counts(words: Any, path: Path, special_tokens: Specials, pattern: str = "gpt2") -> None:
    """Write the counts of count_words, which had these special tokens and this pattern. The name must end in .npz."""
    import zipfile

    options = check_arguments(special_tokens, pattern=pattern)
    require(os.fspath(path).endswith(".npz"), f"{os.fspath(path)}: the name of a file of counts must end in .npz")
    check_writable(path)
    arrays = Words(words if isinstance(words, Mapping) else words.to_dict()).arrays()
    with new_file(path) as file, zipfile.ZipFile(file, "w") as archive:
        for (name, (kind, _)), data in zip(ARRAYS.items(), arrays):
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), npy_header(kind, len(data)) + bytes(data))
        made_with = {"pattern": options.pattern, "special_tokens": options.special_tokens}
        archive.writestr(zipfile.ZipInfo("made_with.json"), json.dumps(made_with))


def read_counts(path: Path, options: Options) -> tuple[bytes, Sequence[int], Sequence[int]]:
    """(words one after the other, their lengths, their counts) from a file of counts, after checking it."""
    import zipfile

    arrays = []
    with open(path, "rb") as file, naming(f"{os.fspath(path)}: not a file of counts, or damaged"):
        archive = zipfile.ZipFile(file)
        made_with = json.loads(archive.read("made_with.json"))
        for name, (kind, code) in ARRAYS.items():
            data = archive.read(f"{name}.npy")
            arrays.append(array(code, data[128:]))
            require(data[:128] == npy_header(kind, len(arrays[-1])), f"{name}.npy is not an array of {kind}")
        words, lengths, counts = arrays
        fits = len(lengths) == len(counts) and sum(lengths) == len(words) and all(lengths) and all(counts)
        require(fits, "words, lengths and counts do not belong together")
    asked = {"pattern": options.pattern, "special_tokens": list(options.special_tokens)}
    require(made_with == asked, f"{os.fspath(path)}: counted with {made_with}, not with {asked}")
    return bytes(words), lengths, counts


# Training: words and their counts become ids; the learner of this file or that of the C engine yields merges.


class Trainer:
    """Learns merges from counted words. Iterating makes them, best first: (left, right, count).

    alphabet   the tokens that words are made of at first, by id: bytes, or characters
    tokens     the alphabet and the token of each merge; special tokens take no part in learning
    merges     those made so far, beginning with those that were given
    n_tokens   how many tokens all words of the corpus make up by now; known from start() on
    """

    def __init__(self, options: Options, given: Merges = ()) -> None:
        self.options, self.merges = options, [(left, right) for left, right in given]
        # Hugging Face has the bytes in the order of their characters, those that stand for themselves first
        order = list(CHARACTER_OF) if options.like else list(range(256))
        self.alphabet = [bytes([byte]) for byte in order]
        self.id_of_byte = bytes(map(order.index, range(256)))
        self.tokens = self.alphabet + [left + right for left, right in self.merges]
        if options.pattern != CHARACTERS:  # what there is of characters, only the words will say
            self.check_size()
        require(options.pattern != CHARACTERS or not self.merges, "merges to go on from need level='byte'")
        twice = set(self.tokens[256:]).intersection(map(str.encode, options.special_tokens))
        require(not twice, f"the merges make a special token: {twice}")
        self.ranks: dict[Any, int] = {}  # of the given merges, as pairs of ids
        self.merged = range(256, len(self.tokens))  # and the ids of what they make
        for rank, pair in enumerate(self.merges):
            token_ids = self.replay(b"".join(pair))
            before = tuple(self.tokens[token_id] for token_id in token_ids)
            require(before == pair, f"merge {rank} (from 0), {pair}: the merges before it turn its bytes into {before}")
            self.ranks[tuple(token_ids)] = rank

    def parts(self) -> str:
        """What the vocabulary is made of: "256 bytes + 1 special token + 743 merges"."""
        first = plural(len(self.alphabet), "character" if self.options.pattern == CHARACTERS else "byte")
        merges = [plural(len(self.merges), "merge")] if self.merges else []
        return " + ".join([first, plural(len(self.options.special_tokens), "special token"), *merges])

    def check_size(self) -> None:
        """ValueError if the vocabulary can't hold what it begins with."""
        size, parts = self.options.vocab_size, self.parts()
        require(self.wanted >= 0, f"a vocabulary of {size} is too small: at least {size - self.wanted} ({parts})")

    @property
    def wanted(self) -> int:
        """How many merges are still needed to reach the size that was asked for."""
        return self.options.vocab_size - len(self.options.special_tokens) - len(self.tokens)

    def replay(self, word: bytes) -> list[int]:
        """The ids of a word's tokens once the given merges are made in it."""
        return merge_by_rank(list(word.translate(self.id_of_byte)), self.ranks, self.merged)

    def rows(self, words: Iterable[bytes]) -> list[str]:
        """Each word as a str whose characters are the ids of its first tokens, with the given merges replayed."""
        if self.options.pattern == CHARACTERS:
            ids = {token: chr(token_id) for token_id, token in enumerate(self.alphabet)}
            return ["".join(map(ids.__getitem__, character_tokens(word))) for word in words]
        if self.ranks:
            return ["".join(map(chr, self.replay(word))) for word in words]
        return [word.translate(self.id_of_byte).decode("latin-1") for word in words]

    def start(self, words: Any) -> Trainer:
        """The same trainer, ready to learn from these words and their counts."""
        if self.options.pattern == CHARACTERS:
            self.alphabet = sorted({token for word in words for token in character_tokens(word)})
            self.tokens = list(self.alphabet)
            self.check_size()
        longest = self.options.max_token_length or sys.maxsize
        if (engine := engine_for(self.options)) and self.options.pattern != CHARACTERS and not self.merges:
            self.n_tokens = (Words(words) if isinstance(words, dict) else words).totals()[2]
            limits = self.wanted, self.options.min_frequency, longest, self.options.like is not None
            self.steps = engine.learn(words, self.id_of_byte, self.tokens, *limits)
            return self
        words = words if isinstance(words, dict) else words.to_dict()
        rows, counts = self.rows(words), list(words.values())
        self.n_tokens = sum(map(operator.mul, map(len, rows), counts))
        self.steps = learn_merges(rows, counts, self.tokens, smaller_id if self.options.like else descending, longest)
        return self

    def __iter__(self) -> Iterator[tuple[bytes, bytes, int]]:
        steps: Iterator[Any] = itertools.islice(self.steps, min(self.wanted, sys.maxsize))
        steps = with_progress(steps, "learning merges", "merges", self.wanted, self.options.progress)
        for left_id, right_id, count, replaced in steps:
            if count < self.options.min_frequency:  # counts never rise
                return
            left, right = self.tokens[left_id], self.tokens[right_id]
            self.tokens.append(left + right)
            self.merges.append((left, right))
            self.n_tokens -= replaced
            yield left, right, count

    def vocab(self) -> dict[int, bytes]:
        """{token id: token}: the alphabet, the special tokens (Hugging Face's stand before it), the merges."""
        specials, n = list(map(str.encode, self.options.special_tokens)), len(self.alphabet)
        first = specials + self.alphabet if self.options.like else self.alphabet + specials
        return dict(enumerate(first + self.tokens[n:]))


def character_tokens(word: bytes) -> list[bytes]:
    """character_tokens(b"low") -> [b"l", b"o", b"w</w>"]: the last character carries the end-of-word marker."""
    *first, last = (character.encode("utf-8") for character in word.decode("utf-8"))
    return [*first, last + END_OF_WORD.encode()]


def train_bpe(
    input_path: Paths | None, vocab_size: int | None, special_tokens: Specials = None, *,
    texts: Texts = None, merges: Merges = (), output_dir: Path | None = None, **options: Any,
) -> tuple[dict[int, bytes], list[Pair]]:  # fmt: skip
    r"""Train a byte-level BPE tokenizer: -> (vocab, merges), token id -> bytes and the merges in order of creation.

    input_path        one path of a UTF-8 text, or a list of them; "-" is standard input. The end of a file is a wall.
                      A path that ends in .npz is a file of counts.
    vocab_size        how many tokens at the most: 256 bytes, the special tokens and the merges together. Fewer is
                      no error: when no pair is left, there is nothing to merge.
    special_tokens    strings that keep an id of their own, after the 256 bytes; the text is cut at them first.
    texts             instead of input_path (which is None then): any iterable of strings, each a text of its own. It is
                      consumed as it is counted, so it may be a data set that is larger than memory.
    pattern           "gpt2", "cl100k", "o200k" (or tiktoken's "r50k_base", "cl100k_base", "o200k_base"), or a custom
                      pattern of the regex package. A custom pattern may match across any place, so the text is cut only
                      at special tokens: the pieces between them must fit into memory, several times over, and words can
                      be long. What it does not match is not counted.
    workers           processes (with the C engine: threads) that count words; at the most, and by default, one a core.
    min_frequency     the lowest count at which a pair is still merged.
    max_token_length  in bytes, for tokens made by merges.
    errors            "strict": bytes that are not UTF-8 are an error; "replace": they are read as U+FFFD.
    newlines          "lf" turns "\r\n" into "\n" before anything else; "keep" leaves the text as it is.
    level             "char": words stand between spaces, and their first tokens are characters, the last of which
                      carries the end-of-word marker "</w>", as in Sennrich et al. 2016; the vocabulary is the
                      characters that occur, sorted, the special tokens and the merges.
    like              "huggingface": the merges and ids that the BpeTrainer of the tokenizers package learns, with the
                      byte-level alphabet, add_prefix_space=False, and the pieces between special tokens from an
                      iterator. (From whole documents it would learn pieces of the special tokens, from files it cuts at
                      newlines; its counts end at 2**31.) Ties go to the smaller pair of ids; special tokens come first.
    merges            those of an earlier training, replayed first, whatever their counts; so no token changes its id.
    engine            "python", "c" (an error where it is not built), or "auto": C if it is built; same result.
    progress          show progress on standard error, if that is a terminal.
    output_dir        save the result there too, as save() does.

    Raises ValueError or TypeError for arguments and for text that is not UTF-8 (with the file and the byte offset),
    OSError for files that can't be read or written, RuntimeError when a worker process was killed, and OverflowError
    for counts beyond 2**63 - 1 in the C engine.
    """
    trainer = Trainer(check_arguments(special_tokens, vocab_size=vocab_size, **options), merges)
    if output_dir is not None:
        check_savable(trainer.options, output_dir)
    collections.deque(trainer.start(count_corpus(input_path, texts, trainer.options)[0]), maxlen=0)  # all merges
    if output_dir is not None:
        save(trainer.vocab(), trainer.merges, output_dir, *trainer.options[:2])
    return trainer.vocab(), trainer.merges


def train_from_counts(
    words: Mapping[bytes, int], vocab_size: int, special_tokens: Specials = None, *, merges: Merges = (), **options: Any
) -> tuple[dict[int, bytes], list[Pair]]:
    """The second half of train_bpe, from the counts of count_words: -> (vocab, merges)."""
    trainer = Trainer(check_arguments(special_tokens, vocab_size=vocab_size, **options), merges)
    if negative := [word for word, count in words.items() if count < 0]:
        raise ValueError(f"the count of {negative[0]!r} is negative: {words[negative[0]]}")
    trainer.start({word: operator.index(n) for word, n in words.items() if word and n})
    collections.deque(trainer, maxlen=0)
    return trainer.vocab(), trainer.merges


@functools.lru_cache(maxsize=1)
def find_engine() -> tuple[Any, str]:
    """(the C engine, "") if build_ffi.py stands beside this file and has built it, else (None, why it is not used)."""
    path = os.path.join(os.path.dirname(__file__), "build_ffi.py")
    spec: Any = importlib.util.spec_from_file_location("build_ffi", path)
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.load_engine()  # type: ignore[no-any-return]
    except FileNotFoundError:
        return None, "the files that build the C engine are not beside bpe.py"
    except Exception as error:  # whatever stands there, import bpe goes on
        return None, f"build_ffi.py does not load: {error!r}"


def engine_for(options: Options) -> Any:
    """The C engine, or None where Python is to do the work."""
    return find_engine()[0] if options.engine != "python" else None


# ---------------------------------------------------------------------------------------------------------------------
# V. The command line
# ---------------------------------------------------------------------------------------------------------------------

USAGE = "bpe.py CORPUS [CORPUS ...] VOCAB_SIZE [options]"
EXAMPLES = """examples:
  python bpe.py corpus.txt 10000            train, and write the model into the folder bpeModel
  python bpe.py --show "Hello, world!"      show a text in tokens of that model"""


def say(text: str, stream: str = "stdout", end: str = "\n") -> None:
    """Print to a stream, which may be closed or full: that never costs the training."""
    if text and (file := getattr(sys, stream)):
        try:
            print(text, end=end, file=file, flush=True)
        except OSError:  # Python would try again at its end, fail, and change the exit status
            os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())


def with_progress(items: Iterable[Any], label: str, unit: str, total: int | None, show: bool) -> Iterator[Any]:
    """Hand items on, and show on a terminal, in one line, how far they are; in MB it is item[0] bytes that count."""
    if not (show and sys.stderr and sys.stderr.isatty()):
        yield from items
        return
    say(f"{label}: preparing", "stderr", "")
    done, scale = 0, 1e6 if unit == "MB" else 1
    start = shown_at = time.monotonic()
    try:
        for number, item in enumerate(items):
            done, now = (done + item[0] if unit == "MB" else number), time.monotonic()
            if not done:  # time runs from the first merge, before which the learner counts all pairs
                start = shown_at = now
            elif now - shown_at > 0.2:
                shown_at, speed = now, done / (now - start)
                left = f" ({done / total:.0%}), {(total - done) / speed:.0f} s left" if total else ""
                say(f"\r{label}: {done / scale:,.0f} {unit}{left}, {speed / scale:,.0f} {unit}/s\x1b[K", "stderr", "")
            yield item
    finally:
        say("\r\x1b[K", "stderr", "")


def plural(n: int, noun: str) -> str:
    """plural(1, "merge") -> "1 merge"; plural(1234, "merge") -> "1,234 merges"."""
    return f"{n:,} {noun}{'s' * (n != 1)}"


def readable(tokens: Iterable[bytes]) -> str:
    r"""readable([b"\n", b" the", b"\xe4"]) -> "\\n ␣the \\xe4"."""
    text = " ".join(token.decode("utf-8", "backslashreplace").replace(" ", "␣") for token in tokens)
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def make_parser() -> Any:
    """All options, in four groups; those that are fields of Options have the same name."""
    import argparse

    parser = argparse.ArgumentParser(
        usage=USAGE, description="Train a BPE tokenizer on UTF-8 text.", epilog=EXAMPLES, add_help=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.error = functools.partial(require, False)  # type: ignore[method-assign, assignment]
    group = parser.add_argument_group("input")
    add, add_one = group.add_argument, group.add_mutually_exclusive_group().add_argument
    add("corpus", nargs="*", metavar="CORPUS ... VOCAB_SIZE", help="texts, counts (.npz), - (stdin); then a size")
    add_one("--special-token", action="append", dest="special_tokens", metavar="TEXT", help="(default: <|endoftext|>)")
    add_one("--no-special-tokens", action="store_const", const=[], dest="special_tokens", help="not even <|endoftext|>")
    add("--pattern", help="gpt2, cl100k, o200k or a custom pattern (default: gpt2)")
    add("--errors", choices=CHOICES["errors"], help="replace: read invalid UTF-8 as U+FFFD")
    add("--newlines", choices=CHOICES["newlines"], help=r"lf: read \r\n as \n")
    add = parser.add_argument_group("training").add_argument
    add("--min-frequency", type=int, metavar="N", help="merge no pair that occurs less often")
    add("--max-token-length", type=int, metavar="BYTES", help="merge no pair into a longer token")
    add("--level", choices=CHOICES["level"], help="char: characters with an end-of-word marker")
    add("--like", choices=["huggingface"], help="the merges and ids of Hugging Face's trainer")
    add("--continue-from", metavar="FOLDER", help="replay the merges of the model in FOLDER, then learn more")
    add("--workers", type=int, metavar="N", help="processes or threads that count words (default: one for each core)")
    add("--engine", choices=CHOICES["engine"], help="auto: the C engine where it is built (default)")
    add = parser.add_argument_group("output").add_argument
    add("--output-dir", metavar="FOLDER", help="the folder of the model (default: bpeModel)")
    add("--save-counts", metavar="FILE.npz", help="also write the word counts; without a size, only those")
    add("--encode", metavar="FILE", help="write the token ids of the corpus into a .npy file, or bare into a .bin file")
    add("--log-every", type=int, metavar="N", help="print every Nth merge")
    add("--quiet", action="store_false", dest="progress", help="no progress and no summary")
    add = parser.add_argument_group("looking").add_argument
    add("--explain", type=int, default=0, metavar="N", help="say why the first N merges are made; saves only to FOLDER")
    add("--show", metavar="TEXT", help="show a text (-: standard input) in tokens of the model in --output-dir")
    add("--version", action="version", version=f"bpe.py {__version__}")
    add("--help", "-h", action="help", help="print this")
    return parser


def prepare(args: Any) -> tuple[Trainer, Tokenizer, str]:
    """Try all that could fail, before any work: -> (trainer, model to go on from or encode with, folder to write).

    That model gives special tokens and pattern, which no argument may contradict.
    """
    for path, endings in ((args.save_counts, (".npz",)), (args.encode, (".npy", ".bin"))):
        require(path is None or path.endswith(endings), f"the name {path!r} does not end in {' or '.join(endings)}")
    require(args.log_every is None or args.log_every > 0, f"--log-every {args.log_every} is below 1")
    trains = args.vocab_size is not None
    folder = (args.output_dir or ("" if args.explain else "bpeModel")) if trains else ""
    source = args.continue_from or ("" if trains or not args.encode else args.output_dir or "bpeModel")
    model = Tokenizer.load(source) if source else Tokenizer({}, [], ["<|endoftext|>"])  # the default special token
    given = {name: getattr(args, name) for name in ("level", *Options._fields) if getattr(args, name) is not None}
    given["progress"] = args.progress and not (args.explain or args.log_every)  # one line at a time on a terminal
    options = check_arguments(**{**model.options._asdict(), **given})
    for name, ours, theirs in zip(Options._fields[:2], options, model.options):
        require(ours == theirs or not source, f"{source} was trained with {name}={theirs!r}, not {ours!r}")
    with naming(source):
        trainer = Trainer(options, model.merges if args.continue_from else ())
        fits = not args.continue_from or trainer.vocab() == model.vocab
        require(fits, f"its ids are not those of like={options.like!r}: give the same --like")
    require(not args.encode or options.pattern != CHARACTERS, "--encode is for bytes, not for --level char")
    check_writable(*filter(None, (args.save_counts, args.encode)))
    for path in args.corpus if args.encode and (trains or args.save_counts) else ():
        require(stamp_of(path)[0] and not path.endswith(".npz"), f"{path} is no text that can be read twice")
    if folder:
        check_savable(options, folder)
    return trainer, model, folder


def explain(trainer: Trainer, words: Any, rounds: int, every: int | None) -> Iterator[Any]:
    """Hand on the trainer's merges; of the first ones print the choice and two words that change; print every Nth."""
    counted, steps = words.to_dict() if rounds else {}, trainer.start(words)
    rows = zip(trainer.rows(counted), counted.values())
    spelled = {tuple(trainer.tokens[ord(token_id)] for token_id in row): n for row, n in rows}
    limit = trainer.options.max_token_length or sys.maxsize
    sort_key, rule = (smaller_id, "smaller ids") if trainer.options.like else (descending, "greater bytes")
    for number, (left, right, count) in enumerate(steps, 1):
        if number <= rounds:
            counts = {pair: n for pair, n in count_pairs(spelled).items() if len(pair[0] + pair[1]) <= limit}
            keys = {token: sort_key(token_id, token) for token_id, token in enumerate(trainer.tokens)}
            best = heapq.nsmallest(3, counts, key=lambda pair: (-counts[pair], keys[pair[0]], keys[pair[1]]))
            shown = ", ".join(f"{readable(pair)} ({plural(counts[pair], 'time')})" for pair in best)
            ties = list(counts.values()).count(count)
            why = f" ({ties} pairs tie at {count:,}; the {rule} win)" if ties > 1 else ""
            say(f"round {number}: {shown}\n    merge {readable((left, right))}{why}")
            changed = {word: new for word in spelled if (new := merge_pair(word, (left, right))) != word}
            for word in heapq.nlargest(2, changed, key=spelled.__getitem__):
                say(f"    {readable(word)} -> {readable(changed[word])} ({plural(spelled[word], 'time')})")
            spelled = {changed.get(word, word): n for word, n in spelled.items()}
        if every and len(trainer.merges) % every == 0:
            say(f"{len(trainer.merges)}\t{readable((left, right))} -> {readable([left + right])}\t{count}")
        yield left, right, count


def show_text(text: str, folder: str) -> None:
    """Print a text with its tokens set apart, their ids, and how many bytes a token has."""
    text = b"".join(blocks_of_pipe("-")).decode("utf-8") if text == "-" else text
    model = read_model(folder)
    if model[3] == CHARACTERS:
        return say(" ".join(segment(text, model[1])))
    tokenizer = Tokenizer(*model)
    ids = tokenizer.encode(text)
    tokens = [tokenizer.vocab[token_id].decode("utf-8", "backslashreplace") for token_id in ids]
    colored = (f"\x1b[30;{46 - 3 * (n % 2)}m{token}\x1b[0m" for n, token in enumerate(tokens))
    shown = "".join(colored) if sys.stdout and sys.stdout.isatty() else "|".join(tokens)
    n, n_bytes = len(ids), len(tokenizer.decode_bytes(ids))
    say(f"{shown}\n{' '.join(map(str, ids))}\n{n} tokens, {n_bytes} bytes, {n_bytes / max(n, 1):.2f} bytes per token")


def run(args: Any) -> Iterator[tuple[str, str]]:
    """Show a text; or count, learn, save, encode: -> the lines of the summary, where an empty one is left out."""
    if args.show is not None:
        return show_text(args.show, args.output_dir or "bpeModel")
    trainer, model, folder = prepare(args)
    trains, start = args.vocab_size is not None, time.perf_counter()
    laps: dict[str, float] = {}

    def lap(step: str, n_bytes: int = 0) -> str:
        laps[step] = time.perf_counter() - start - sum(laps.values())
        return f"{n_bytes:,} bytes, {n_bytes / laps[step] / 1e6:,.0f} MB/s"

    if trains or args.save_counts:
        words, n_bytes, unmatched, returns = count_corpus(args.corpus, None, trainer.options)
        yield "read", lap("counting", n_bytes)
        if returns and trainer.options.newlines == "keep":
            yield "note", f"{plural(returns, 'carriage return')}: --newlines lf reads \\r\\n as \\n"
        yield "not matched", f"{unmatched:,} bytes, which the pattern leaves out" if unmatched else ""
        distinct, total, in_words = words.totals()
        yield "pre-tokens", f"{total:,}, {distinct:,} of them distinct" if total else "none: nothing to learn from"
    if args.save_counts:
        save_counts(words, args.save_counts, *trainer.options[:2])
    if trains:
        collections.deque(explain(trainer, words, args.explain, args.log_every), maxlen=0)
        lap("learning")
        yield from vocabulary_lines(trainer, in_words)
    if folder:
        save(trainer.vocab(), trainer.merges, folder, *trainer.options[:2])
        lap("saving")
    if args.encode:
        tokenizer = Tokenizer(trainer.vocab(), trainer.merges, *trainer.options[:2]) if trains else model
        n, size = tokenizer.write_ids(args.corpus, args.encode, trainer.options)
        yield "encoded", f"{lap('encoding', size)}: {plural(n, 'token')}, {size / max(n, 1):.2f} bytes per token"
    yield "time", ", ".join(f"{step} {seconds:.2f} s" for step, seconds in laps.items())
    with contextlib.suppress(ImportError):  # Windows has none
        from resource import RUSAGE_SELF, getrusage

        unit = 1 if sys.platform == "darwin" else 1024
        yield "peak memory", f"{getrusage(RUSAGE_SELF).ru_maxrss * unit / 1e6:,.0f} MB"
    engine, why = find_engine() if trainer.options.engine != "python" else (None, "")
    yield "engine", "C" if engine else f"Python ({why})" if why else "Python"
    yield "saved", ", ".join(filter(None, (folder, args.save_counts, args.encode)))


def vocabulary_lines(trainer: Trainer, in_words: int) -> Iterator[tuple[str, str]]:
    """What the summary says of the vocabulary that was learned."""
    options = trainer.options
    text = f"{len(trainer.vocab()):,} = {trainer.parts()}"
    if trainer.wanted:
        limit = f" and at most {options.max_token_length} bytes" if options.max_token_length else ""
        least = f"a count of at least {options.min_frequency:,}{limit}"
        text += f"; smaller than the {options.vocab_size:,} asked for: no pair left with {least}"
    yield "vocabulary", text
    token = max(trainer.tokens[len(trainer.alphabet) :], key=len, default=b"")
    yield "longest token", f"{readable([token]):.70}, {plural(len(token), 'byte')}" if token else ""
    yield "compression", f"{in_words / trainer.n_tokens:.2f} bytes per token on this corpus" if in_words else ""


def main(argv: Sequence[str] | None = None) -> int:
    """The command line: -> exit status 0, 1 (out of memory, a worker killed), 2 (bad input), 130 (Ctrl-C)."""
    warnings.showwarning = lambda message, *rest: say(f"warning: {message}", "stderr")
    for stream in filter(None, (sys.stdout, sys.stderr)):  # a token is shown even where the terminal lacks its letters
        with contextlib.suppress(AttributeError):  # somebody's own stream
            stream.reconfigure(errors="backslashreplace")
    try:
        args = make_parser().parse_intermixed_args(argv)
        require("regex" in globals(), "the package regex is missing: pip install regex")
        typed, args.vocab_size = " ".join(args.corpus), None
        if typed and re.fullmatch(r"-?\d+[kK]?", args.corpus[-1]):
            args.vocab_size = int(args.corpus.pop().lower().replace("k", "000"))
        require(typed or args.show is not None, f"a corpus and a size are needed\nusage: {USAGE}\n{EXAMPLES}")
        require(args.show is None or not typed, f"--show takes no corpus and no size: {typed}")
        goals = [goal for goal in (args.vocab_size, args.save_counts, args.encode) if goal is not None]
        valid = not typed or (args.corpus and goals)
        require(valid, f"give a corpus and, last, the vocabulary size: bpe.py corpus.txt 10000; not bpe.py {typed}")
        status, text = 0, "\n".join(f"{name:14} {line}" for name, line in run(args) if line and args.progress)
    except KeyboardInterrupt:
        status, text = 130, "interrupted"
    except (RuntimeError, OverflowError, MemoryError) as error:
        status, text = 1, f"error: {str(error) or 'out of memory'}"
    except (ValueError, TypeError, OSError) as error:
        status, text = 2, f"error: {error}"
    say(text, "stderr")
    return status


if __name__ == "__main__":
    import gc

    gc.disable()  # nothing here makes cycles, and looking for them takes a fifth of loading and saving
    sys.exit(main())
