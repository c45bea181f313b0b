#!/usr/bin/env python3
# /// script
# requires-python = ">=3.10"
# dependencies = ["regex"]
# ///
r"""Byte-pair encoding: learn a vocabulary of tokens from text, and encode text as token ids.

    python bpe.py corpus.txt 10000        trains, and writes the folder bpeModel

Training, in six lines:

    1. Cut the text into words, and count how often each one occurs.
    2. Write every word as a sequence of tokens; at first, each token is one byte.
    3. Count how often each pair of adjacent tokens occurs.
    4. Merge the most frequent pair into a new token, wherever it occurs.
    5. Repeat from 3 until the vocabulary has the requested size.
    6. The merges, in the order in which they were made, are the tokenizer.

To encode text, cut it into words and replay the merges on each word, in the same order.

When two pairs have the same count, the greater pair wins: the left tokens are compared first, byte
by byte, then the right ones. (b"s", b"t") wins over (b"e", b"s"), because b"s" > b"e". Two traps:

    - Counts are counts of positions, and positions may overlap. In "aaaa" the pair a a counts three
      times; but replacing goes from left to right without overlap, so "aaaa" becomes aa aa.
    - Pairs are compared, not the tokens that they would make. On a tie (b"ab", b"a") beats
      (b"a", b"bz"), because b"ab" > b"a", although b"abz" > b"aba".

Glossary, with a value for each term from the example below:

    word, pre-token  b" newest"       one match of the pattern; no token crosses the ends of a word
    token            b"est"           a sequence of bytes that has an id in the vocabulary
    token id         257              its number: 0..255 are the single bytes, then come the special tokens (none here),
                                      then one id per merge (like="huggingface" and other tools use another order)
    pair             (101, 256)       two adjacent tokens, or their ids
    merge            (b"e", b"st")    a pair that became a token
    rank             1                the position of a merge in the list of merges, from 0
    count            9                how often a pair, or a word, occurs in the whole corpus
    special token    "<|endoftext|>"  text with a meaning of its own, never split and never learned. The text before it
                                      and the text after it are separate texts

>>> words = words_of("low low low low low lower lower widest widest widest" + 6 * " newest")
>>> for left, right in train_by_definition(words, 4):
...     print(left, right)
b's' b't'
b'e' b'st'
b'o' b'w'
b'l' b'ow'

Sources: P. Gage, "A New Algorithm for Data Compression", C Users Journal 12(2), 1994; R. Sennrich, B. Haddow and A.
Birch, "Neural Machine Translation of Rare Words with Subword Units", ACL 2016; A. Radford et al., "Language Models
are Unsupervised Multitask Learners", 2019, for the bytes and the pattern of GPT-2.
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
import shlex
import shutil
import stat
import sys
import time
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple  # modules that few runs need are imported in functions

if sys.version_info < (3, 10):
    sys.exit("bpe.py requires Python 3.10 or later; this is " + sys.version.split()[0])
if __name__ != "__main__" or importlib.util.find_spec("regex"):
    import regex  # --help works without it, and main reports that it is missing

__all__ = ["Tokenizer", "count_words", "learn_characters", "segment", "train_bpe", "train_from_counts"]

__version__ = "0.3.0"
Word = tuple[bytes, ...]
Pair = tuple[bytes, bytes]
Path = str | os.PathLike[str]


# ---------------------------------------------------------------------------------------------------------------------
# I. The lesson: what byte-pair encoding is
# ---------------------------------------------------------------------------------------------------------------------

# Text is cut into words first, and no token crosses their borders. Without that, the most frequent pairs would soon
# be pieces of phrases and punctuation ("e t", ", and the", "dog." next to "dog!"), and each of them would take an
# id. This is the pattern of GPT-2. A word includes the space before it, so joining the words gives back the text.
# Of several spaces, only the last one joins the word, so " the" is the same word after one space or after ten: the
# part `\s+(?!\S)` matches whitespace, but leaves its last character, which a word that follows takes if it is a space.
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def words_of(text: str) -> dict[Word, int]:
    """Cut text into words; return each distinct word, as a tuple of one-byte tokens, with its count.

    >>> words_of("hi hi hi")
    {(b'h', b'i'): 1, (b' ', b'h', b'i'): 2}
    """
    words = collections.Counter(regex.findall(GPT2, text))
    return {tuple(bytes([byte]) for byte in word.encode("utf-8")): count for word, count in words.items()}


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
    """Learn merges: count every pair, merge the best one everywhere, and repeat.

    Training ends early when no pair is left, because every word is a single token by then.
    """
    merges: list[Pair] = []
    while len(merges) < merges_wanted and (counts := count_pairs(words)):
        best = max(counts, key=lambda pair: (counts[pair], pair))  # the tie rule: tuples compare left first, then right
        words = {merge_pair(word, best): count for word, count in words.items()}
        merges.append(best)
    return merges


def encode_by_definition(word: Word, merges: Iterable[Pair]) -> Word:
    """Encode a word: replay the merges in the order in which they were learned.

    Here the first merge takes b and c, so a stays alone. Always taking the longest token that fits,
    from the left, would give ab c d: another encoding, which the model never saw in training.

    >>> encode_by_definition((b"a", b"b", b"c", b"d"), [(b"b", b"c"), (b"a", b"b"), (b"bc", b"d")])
    (b'a', b'bcd')
    """
    for pair in merges:
        word = merge_pair(word, pair)
    return word


# That is all. Token ids only number the tokens: 0..255 are the single bytes, then the special tokens, then one id
# per merge, so with two special tokens the third merge makes token 256 + 2 + 2 = 260. Since every byte is a token,
# any text can be encoded; and since a token is nothing but bytes, decoding is b"".join.
# The rest of this file does the same for real corpora, and fast.


# ---------------------------------------------------------------------------------------------------------------------
# II. The same, fast
# ---------------------------------------------------------------------------------------------------------------------

# For fixtures/corpus.txt and a vocabulary of 500, train_by_definition takes 8 s, learn_merges 0.11 s, and the same in C
# (bpe_fast.c) 0.006 s: learning alone, on one core of an Intel Xeon.


def descending(token_id: int, token: bytes) -> str:
    """Return a sort key that reverses the order of bytes: b"st" sorts before b"s", b"s" before b"es".

    On a tie the greatest bytes must win, and heapq has the smallest on top. chr(256) puts a token before its prefix.
    """
    return "".join(chr(255 - byte) for byte in token) + chr(256)


def learn_merges(
    words: Iterable[str], counts: Sequence[int], tokens: Sequence[bytes],
    sort_key: Callable[[int, bytes], Any] = descending, longest: int = sys.maxsize,
) -> Iterator[tuple[int, int, int, int]]:
    """Yield (left_id, right_id, count, replaced) for each merge, best first, until no pair is left.

    words     each a str whose characters are token ids, so that one merge in one word is str.replace, which works
              from left to right without overlap; a pair is a str of two characters
    counts    how often each word occurs
    tokens    the bytes of the first ids; new tokens get the ids len(tokens), len(tokens) + 1, ...
    sort_key  of two pairs with the same count, the one with the smaller (left key, right key) wins
    longest   the most bytes that a new token may have

    Nothing is counted twice: a merge changes only the pairs next to the new token, so the counts are kept up to date.
    An index says which words may contain a pair, and a heap finds the best pair.
    """
    rows, tokens = list(words), list(tokens)
    keys = [sort_key(token_id, token) for token_id, token in enumerate(tokens)]
    pair_counts: dict[str, int] = collections.defaultdict(int)
    words_with: dict[str, set[int]] = collections.defaultdict(set)  # pair -> the numbers of words that may contain it
    for index, row in enumerate(rows):
        for pair in map(operator.add, row, row[1:]):
            pair_counts[pair] += counts[index]
            words_with[pair].add(index)

    def heap_entry(pair: str) -> tuple[int, Any, Any, str]:  # the tie rule is the order of this tuple
        return -pair_counts[pair], keys[ord(pair[0])], keys[ord(pair[1])], pair

    heap = list(map(heap_entry, pair_counts))
    heapq.heapify(heap)
    while heap:
        # Every pair that a merge creates contains the new token, so the count of an older pair can only fall, and its
        # entry can only be too high. An entry that was too low would come up too late, and another pair would be
        # merged in its place; one that is too high comes up too early, and goes back with its current count.
        negative_count, _, _, pair = heapq.heappop(heap)
        count = pair_counts.get(pair, 0)
        if count != -negative_count:
            if count:
                heapq.heappush(heap, heap_entry(pair))
            continue
        left_id, right_id, new_id = ord(pair[0]), ord(pair[1]), len(tokens)
        token = tokens[left_id] + tokens[right_id]
        if len(token) > longest:
            continue
        if new_id > sys.maxunicode:
            raise OverflowError(f"token id {new_id} is above {sys.maxunicode}, the largest that this engine can hold")
        tokens.append(token)
        keys.append(sort_key(new_id, token))
        changes, replaced = merge_in_words(rows, counts, words_with, pair, chr(new_id))
        del pair_counts[pair]
        for changed_pair, change in changes.items():
            pair_counts[changed_pair] += change
            if chr(new_id) in changed_pair:
                heapq.heappush(heap, heap_entry(changed_pair))
            elif not pair_counts[changed_pair]:
                del pair_counts[changed_pair], words_with[changed_pair]
        yield left_id, right_id, count, replaced


def merge_in_words(
    rows: list[str], counts: Sequence[int], words_with: dict[str, set[int]], pair: str, new: str
) -> tuple[dict[str, int], int]:
    """Replace a pair by the new token in all words; return (the change in each other pair's count, replacements).

    Each new token accounts for the border on its left, unless another new token is there, and always for the border
    on its right. An example: in `a b c b c d`, a word that occurs once, `b c` becomes X, which gives `a X X d`.

        left X    its left border was `a b` (-1) and is `a X` (+1); its right border was `c b` (-1) and is `X X` (+1)
        right X   its left border is counted already; its right border was `c d` (-1) and is `X d` (+1)

    The index may name words that have lost a pair to other merges: those words are left as they are. No name is removed
    alone. The entry of a pair goes: here if it is merged, in learn_merges if its count has dropped to 0.
    """
    left, right = pair[0], pair[1]
    changes: dict[str, int] = collections.defaultdict(int)
    replaced = 0
    for index in words_with.pop(pair):
        row, count = rows[index].replace(pair, new), counts[index]
        replaced += (len(rows[index]) - len(row)) * count
        rows[index] = row
        at = row.find(new)
        while at >= 0:
            if at > 0 and row[at - 1] != new:
                before = row[at - 1]
                changes[before + left] -= count
                changes[before + new] += count
                words_with[before + new].add(index)
            if at + 1 < len(row):
                after = row[at + 1]
                changes[right + (left if after == new else after)] -= count
                changes[new + after] += count
                words_with[new + after].add(index)
            at = row.find(new, at + 1)
    changes.pop(pair, None)  # in `a a a`, the pair overlaps itself
    return changes, replaced


def merge_by_rank(tokens: list[Any], ranks: Mapping[tuple[Any, Any], int], merged: Sequence[Any]) -> list[Any]:
    """Merge the pair of lowest rank, the leftmost of equal ones, until no pair has a rank.

    >>> merge_by_rank(["n", "e", "w", "e", "s", "t"], {("s", "t"): 0, ("e", "st"): 1}, ["st", "est"])
    ['n', 'e', 'w', 'est']

    This is fast encoding: of 50,000 merges, it looks only at the pairs in the word. A merge creates only pairs with its
    new token. If no earlier merge takes that token, these pairs have higher ranks, so ranks come up in ascending order,
    as in replaying. And no merge may occur twice, so that each has one rank. check_merges checks both.

    A heap of (rank, index) finds the next pair, so n tokens take n log n steps. A token that was merged into the one
    before it becomes None; links lead from each remaining token to its neighbors.
    """
    following, previous = list(range(1, len(tokens) + 1)), list(range(-1, len(tokens) - 1))
    heap = [(ranks[pair], index) for index, pair in enumerate(zip(tokens, tokens[1:])) if pair in ranks]
    heapq.heapify(heap)
    while heap:
        rank, left = heapq.heappop(heap)
        right = following[left]
        if right == len(tokens) or ranks.get((tokens[left], tokens[right])) != rank:
            continue  # another merge took one of the two tokens first
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


def check_merges(merges: Iterable[tuple[Any, Any]]) -> None:
    """Check that merging by rank equals replaying.

    Training always gives such a list. Borders between tokens only disappear, so equal bytes between two borders have
    been divided alike, whatever is around them: they become one token everywhere at once, and never again.

    Raises ValueError for the first merge that occurs twice, or that makes a token that an earlier merge takes. With
    (ab, c) before (a, b), replaying turns abc into ab c, because the first merge finds no ab; by rank it becomes abc.
    """
    seen: set[tuple[Any, Any]] = set()
    taken: set[Any] = set()
    for number, pair in enumerate(merges):
        left, right = pair
        if pair in seen:
            raise ValueError(f"merge {number} (from 0), {pair}, is a duplicate")
        if left + right in taken:
            raise ValueError(f"merge {number} (from 0), {pair}, makes a token that an earlier merge takes")
        seen.add(pair)
        taken.update(pair)


# The same on characters: BPE as it was first used for language (Sennrich et al. 2016), and as the subword-nmt package
# does it. Words are separated by spaces, and made of characters instead of bytes. No word has its space; instead, its
# last character carries a marker, so that "low" at the end of a word and "low" in "lower" are different tokens.

END_OF_WORD = "</w>"


def split_at_spaces(text: str) -> list[str]:
    r"""Split text into words: split_at_spaces("low  low\nlower") -> ["low", "low", "lower"]."""
    return [word for line in text.split("\n") for word in line.strip("\r ").split(" ") if word]


def spell(word: str) -> list[str]:
    """Spell a word in characters: spell("low") -> ["l", "o", "w</w>"]; ValueError if it contains "</w>"."""
    if END_OF_WORD in word:
        raise ValueError(f"the word {word!r} contains {END_OF_WORD!r}, the marker for the end of a word")
    return [*word[:-1], word[-1] + END_OF_WORD]


def learn_characters(words: Mapping[str, int], merges_wanted: int) -> list[tuple[str, str]]:
    """Learn merges of characters from words and their counts.

    >>> learn_characters(collections.Counter(split_at_spaces("low low lower")), 3)
    [('l', 'o'), ('lo', 'w</w>'), ('w', 'e')]
    """
    spelled = [(spell(word), count) for word, count in words.items() if word and count]
    alphabet = sorted({character for characters, _ in spelled for character in characters})
    ids = {character: chr(number) for number, character in enumerate(alphabet)}
    rows = ["".join(ids[character] for character in characters) for characters, _ in spelled]
    tokens = [character.encode("utf-8") for character in alphabet]
    steps, merges = learn_merges(rows, [count for _, count in spelled], tokens), []
    for left_id, right_id, _, _ in itertools.islice(steps, merges_wanted):
        left, right = tokens[left_id], tokens[right_id]
        tokens.append(left + right)
        merges.append((left.decode("utf-8"), right.decode("utf-8")))
    return merges


def segment(sentence: str, merges: Iterable[tuple[str, str]]) -> list[str]:
    """Split a sentence into the tokens of merges that learn_characters made.

    >>> segment("low low lowest", [("l", "o"), ("lo", "w</w>"), ("lo", "w")])
    ['low</w>', 'low</w>', 'low', 'e', 's', 't</w>']
    """
    merges = [(left, right) for left, right in merges]
    check_merges(merges)
    ranks, merged = {pair: rank for rank, pair in enumerate(merges)}, [left + right for left, right in merges]
    return [token for word in split_at_spaces(sentence) for token in merge_by_rank(spell(word), ranks, merged)]


# ---------------------------------------------------------------------------------------------------------------------
# III. Training
# ---------------------------------------------------------------------------------------------------------------------

# Training has two halves: counting the words of a corpus, and learning merges from the counts. Part V says how a large
# corpus is read; this part says what is learned from it.

Paths = Path | Iterable[Path]
Texts = Iterable[str] | None
Specials = Iterable[str] | None  # special tokens, as users give them
Vocab = Mapping[int, bytes]  # token id -> token
Merges = Iterable[Pair]  # in the order of training


def train_bpe(
    input_path: Paths | None = None, vocab_size: int | None = None, special_tokens: Specials = None, *,
    texts: Texts = None, output_dir: Path | None = None, **options: Any,
) -> tuple[dict[int, bytes], list[Pair]]:  # fmt: skip
    r"""Train a byte-level BPE tokenizer; return (vocab, merges).

    vocab maps token ids to bytes; merges are (left, right) in the order of creation.

    input_path        the path of a UTF-8 text file, or a list of paths; "-" is standard input. No word continues from
                      one file into the next.
    vocab_size        the maximum number of tokens: 256 bytes, special tokens and merges together. The result is
                      smaller if no pair is left to merge.
    special_tokens    a list of strings that get an id each, after the 256 bytes; text is cut at them first.
    texts             instead of input_path: an iterable of strings, each a separate text. It is consumed as it is
                      counted, so it may be larger than memory.
    output_dir        a folder to save the result in, as Tokenizer.save does.
    pattern           "gpt2", "cl100k", "o200k", "llama3", "qwen2" (or tiktoken's "r50k_base", "cl100k_base",
                      "o200k_base"), or a custom pattern of the regex package. A custom pattern may match across any
                      place, so text is cut only at special tokens, and the pieces between them must fit into memory
                      several times over. Text that it does not match is not counted.
    workers           the maximum number of threads (C engine) or processes that count words; by default, one per core.
    min_frequency     the lowest count at which a pair is still merged.
    max_token_length  the most bytes that a merged token may have.
    errors            "strict": bytes that are not UTF-8 are an error; "replace": they become U+FFFD.
    newlines          "lf" turns "\r\n" into "\n" before anything else; "keep" leaves it alone.
    like              "huggingface": learn the merges and ids of the BpeTrainer of the tokenizers package, with the
                      byte-level alphabet, add_prefix_space=False, and an iterator over the pieces between special
                      tokens. (From whole documents it would learn pieces of special tokens; its counts end at 2**31.)
                      The smaller pair of ids wins a tie; special tokens come first.
    engine            "python", "c" (an error if it is not built), or "auto": C if it is built. The result is the same.
    progress          show progress on standard error: in one line on a terminal, elsewhere a line every ten seconds.

    Raises ValueError or TypeError for bad arguments and for text that is not UTF-8 (with the file and the byte
    offset), OSError for files that can't be read or written, RuntimeError if a worker process is killed, and
    OverflowError for counts above 2**63 - 1 in the C engine.
    """
    checked = check_options(special_tokens, vocab_size=vocab_size, **options)
    if output_dir is not None:
        check_savable(checked, output_dir)
    words, _, _ = count_corpus(input_path, texts, checked)
    vocab, merges = Trainer(words, checked).finish()
    if output_dir is not None:
        save_model(vocab, merges, checked, output_dir)
    return vocab, merges


def count_words(
    paths: Paths | None = None, special_tokens: Specials = None, *, texts: Texts = None, executor: Any = None,
    **options: Any,
) -> dict[bytes, int]:  # fmt: skip
    """Count the words of a corpus, {b" the": 61234, ...}: the first half of train_bpe, with its arguments.

    executor  any concurrent.futures.Executor, including a cluster's (Dask's Client.get_executor(), mpi4py.futures).
              Each task is a path and a byte range, so the workers need this module and the files. A cluster repeats
              the tasks of a worker that it lost; a task that keeps failing raises RuntimeError with the path and range.
    """
    words, _, _ = count_corpus(paths, texts, check_options(special_tokens, **options), executor)
    return words.to_dict()  # type: ignore[no-any-return]


def train_from_counts(
    words: Mapping[bytes, int], vocab_size: int, special_tokens: Specials = None, **options: Any
) -> tuple[dict[int, bytes], list[Pair]]:
    """Learn from the counts of count_words: the second half of train_bpe, with its result."""
    checked = check_options(special_tokens, vocab_size=vocab_size, **options)
    if negative := [word for word, count in words.items() if count < 0]:
        raise ValueError(f"the count of {negative[0]!r} must not be negative: {words[negative[0]]}")
    counts = {word: operator.index(count) for word, count in words.items() if word and count}
    return Trainer(Words(counts), checked).finish()


class Options(NamedTuple):
    """The checked options of counting, training and encoding; train_bpe describes them."""

    special_tokens: tuple[str, ...] = ()
    pattern: str = "gpt2"  # a name from PATTERNS, or a custom pattern
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
    "errors": ("strict", "replace"), "newlines": ("keep", "lf"), "like": (None, "huggingface"),
    "engine": ("auto", "python", "c"), "progress": (False, True),
}  # fmt: skip


def check_options(special_tokens: Specials, pattern: str = "gpt2", **given: Any) -> Options:
    """Check everything that a user passes in, before any work; an error shows the bad value."""
    for name, value in given.items():
        if name not in Options._fields:
            raise TypeError(f"unknown option {name!r}; the options are {', '.join(Options._fields)}")
        if name in CHOICES:
            require(value in CHOICES[name], f"{name} must be one of {CHOICES[name]}, not {value!r}")
        elif value != Options._field_defaults[name]:
            require(hasattr(value, "__index__") and value > 0, f"{name} must be a positive integer, not {value!r}")
    options = Options(check_special_tokens(special_tokens), check_pattern(pattern), **given)
    smallest = 256 + len(options.special_tokens)
    if options.vocab_size < smallest:
        start = f"256 bytes + {plural(len(options.special_tokens), 'special token')}"
        raise ValueError(f"vocabulary size {options.vocab_size} is too small; the minimum is {smallest} ({start})")
    if options.engine == "c" and not find_engine()[0]:
        raise ValueError(f"engine 'c' is not available: {find_engine()[1]}")
    if options.like:
        limited = options.max_token_length is not None
        require(not limited, "like='huggingface' can't have a maximum token length: its trainer is off by one there")
        check_special_names(options.special_tokens)
    return options


def check_special_tokens(special_tokens: Specials) -> tuple[str, ...]:
    """Check special tokens and return them as a tuple; a single byte has an id already."""
    if isinstance(special_tokens, (str, bytes, set, frozenset, Mapping)):
        kind = type(special_tokens).__name__
        raise TypeError(f"special_tokens must be a list of strings, not a {kind}: {special_tokens!r:.60}")
    tokens = tuple(special_tokens or ())
    for number, token in enumerate(tokens, 1):
        utf8 = to_utf8(token) if isinstance(token, str) else b""
        valid = len(utf8) > 1 and utf8.decode("utf-8") == token
        require(valid, f"special token {number} ({token!r}) must be valid text of at least two bytes")
    duplicates = [token for token, count in collections.Counter(tokens).items() if count > 1]
    require(not duplicates, f"duplicate special token: {', '.join(map(repr, duplicates))}")
    return tokens


class Words(collections.Counter[bytes]):
    """Words and their counts; the C engine has a table with the same methods, in which no word is a Python object."""

    def totals(self) -> tuple[int, int, int]:
        """Return (distinct words, words, bytes in words)."""
        return len(self), sum(self.values()), sum(len(word) * count for word, count in self.items())

    def to_dict(self) -> dict[bytes, int]:
        """Return {word: count}."""
        return dict(self)


class Trainer:
    """Learn merges from words and their counts. Iterating makes them, best first: (left, right, count).

    tokens    the 256 bytes, then the token of each merge; special tokens take no part in learning
    merges    the merges made so far
    n_tokens  how many tokens the words of the corpus have by now, all occurrences counted
    """

    def __init__(self, words: Any, options: Options) -> None:
        self.options = options
        # Hugging Face numbers the bytes in the order of their printable characters
        byte_order = list(CHARACTER_OF) if options.like else list(range(256))
        self.tokens = [bytes([byte]) for byte in byte_order]
        self.merges: list[Pair] = []
        self.merges_wanted = options.vocab_size - 256 - len(options.special_tokens)
        self.n_tokens = words.totals()[2]
        id_of_byte, longest = bytes(map(byte_order.index, range(256))), options.max_token_length or sys.maxsize
        self.steps: Iterator[tuple[int, int, int, int]]
        if engine := engine_for(options):
            limits = self.merges_wanted, options.min_frequency, longest
            self.steps = engine.learn(words, id_of_byte, *limits, options.like is not None)
        else:
            rows = [word.translate(id_of_byte).decode("latin-1") for word in words]
            sort_key = smaller_id if options.like else descending
            self.steps = learn_merges(rows, list(words.values()), self.tokens, sort_key, longest)

    def __iter__(self) -> Iterator[tuple[bytes, bytes, int]]:
        missing = self.merges_wanted - len(self.merges)
        steps: Iterator[Any] = itertools.islice(self.steps, min(missing, sys.maxsize))
        steps = with_progress(steps, "learning merges", "merges", missing, self.options.progress)
        for left_id, right_id, count, replaced in steps:
            if count < self.options.min_frequency:  # merges come in descending order of count
                return
            left, right = self.tokens[left_id], self.tokens[right_id]
            self.tokens.append(left + right)
            self.merges.append((left, right))
            self.n_tokens -= replaced
            yield left, right, count

    def finish(self) -> tuple[dict[int, bytes], list[Pair]]:
        """Make the remaining merges; return (vocab, merges)."""
        collections.deque(self, maxlen=0)
        specials = [special.encode("utf-8") for special in self.options.special_tokens]
        single, merged = self.tokens[:256], self.tokens[256:]
        tokens = specials + single + merged if self.options.like else single + specials + merged
        return dict(enumerate(tokens)), self.merges


def smaller_id(token_id: int, token: bytes) -> int:
    """Return the sort key of Hugging Face's trainer, in which the smaller pair of ids wins a tie."""
    return token_id


# ---------------------------------------------------------------------------------------------------------------------
# IV. The tokenizer and its files
# ---------------------------------------------------------------------------------------------------------------------

# Patterns in this list must meet two requirements: no capturing groups, because findall would return them instead of
# the words; and no word that continues where last_cut in Part V cuts text.
PATTERNS = {
    "gpt2": GPT2,
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$"
    r"|\s*[\r\n]|\s+(?!\S)|\s",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
}
# The patterns as tokenizer.json has them. Its library would read {1,3}+ as one or more times {1,3}; as nothing follows
# the {1,3} in these patterns, it need not be possessive.
HF_PATTERNS = {name: expression.replace("{1,3}+", "{1,3}") for name, expression in PATTERNS.items()}
SPELLINGS = {  # of the named patterns, in tiktoken and in tokenizer.json files
    "r50k_base": "gpt2",
    "cl100k_base": "cl100k",
    "o200k_base": "o200k",
    **{expression: name for name, expression in PATTERNS.items()},
    **{expression: name for name, expression in HF_PATTERNS.items()},
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",  # GPT-2's own
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s": "gpt2",  # tiktoken's
}


def check_pattern(pattern: str) -> str:
    """Check a pattern; other spellings of a named pattern become its name."""
    require(isinstance(pattern, str), f"pattern must be a str, not {pattern!r}")
    pattern = SPELLINGS.get(pattern, pattern)
    if pattern in PATTERNS:
        return pattern
    hint = f"use {', '.join(PATTERNS)} or a regular expression (this one contains no operators)"
    # a misspelled name would be a valid expression
    require(set(pattern) & set(r"\.^$*+?{}[]()|"), f"unknown pattern {pattern!r}; {hint}")
    try:
        compile_pattern(pattern)
    except regex.error as error:
        raise ValueError(f"pattern {pattern!r} is not a valid regular expression: {error}") from None
    return pattern


@functools.lru_cache(maxsize=32)
def compile_pattern(pattern: str) -> regex.Pattern[str]:
    """Compile a pattern, given by its name or as an expression."""
    return regex.compile(PATTERNS.get(pattern, pattern))


def find_words(text: str, pattern: str) -> list[str]:
    """Find the words of text: find_words("It's  new", "gpt2") -> ["It", "'s", " ", " new"]."""
    expression = compile_pattern(pattern)
    if pattern in PATTERNS:
        return expression.findall(text)
    return [match[0] for match in expression.finditer(text) if match[0]]


@functools.lru_cache(maxsize=32)
def compile_special_tokens(special_tokens: tuple[str, ...], newlines: str = "keep") -> re.Pattern[str]:
    r"""Return an expression with one group that matches any special token, the longest one at each place.

    With newlines="lf", it finds in the original text the tokens that will be there once "\r\n" is "\n".
    """
    if not special_tokens:
        return re.compile("((?!))")  # never matches
    expression = any_of(special_tokens)
    if newlines == "lf":
        expression = expression.replace(re.escape("\n"), r"\r?\n").replace(re.escape("\r"), r"\r(?!\n)")
    return re.compile(f"({expression})")


def any_of(texts: Iterable[str], depth: int = 0) -> str:
    """Make a tree of texts, so that thousands are found as fast as one: ["ab", "abc", "b"] -> "(?:ab(?:c)?|b)"."""
    texts, branches = sorted(texts), []
    if depth == 50:  # Python's compiler of expressions can't go much deeper
        return f"(?:{'|'.join(map(re.escape, reversed(texts)))})"
    for _, group in itertools.groupby(filter(None, texts), key=operator.itemgetter(0)):
        branch = list(group)
        shared = os.path.commonprefix(branch)
        rest = any_of((text[len(shared) :] for text in branch), depth + 1) if len(branch) > 1 else ""
        branches.append(re.escape(shared) + rest)
    return f"(?:{'|'.join(branches)})" + "?" * (texts[0] == "")


MAX_ID = 2**32 - 2  # the C engine has ids of 32 bits, and the last one means "no token" there


class Tokenizer:
    """Encode text with a trained vocabulary, and decode token ids.

    vocab           {token id: token}; any ids from 0 on, but each byte that occurs in text needs one
    merges          [(left, right), ...] in the order of training
    special_tokens  strings that get one id each; those that are not in the vocabulary get the next ids. If several
                    match at the same place, the longest wins.
    pattern         the pattern that the vocabulary was trained with

    >>> vocab = {0: b"a", 1: b"b", 2: b"ab", 3: b"abab"}
    >>> tokenizer = Tokenizer(vocab, [(b"a", b"b"), (b"ab", b"ab")], ["<end>"])
    >>> tokenizer.encode("ababab<end>"), tokenizer.decode([3, 2, 4]), tokenizer
    ([3, 2, 4], 'ababab<end>', Tokenizer(5 tokens, 1 of them special, pattern 'gpt2'))

    It can be pickled, and used from several threads. Raises ValueError if vocabulary and merges contradict each other,
    or if merging by rank would not equal replaying the merges (check_merges).
    """

    def __init__(self, vocab: Vocab, merges: Merges, special_tokens: Specials = None, pattern: str = "gpt2") -> None:
        self.options = check_options(special_tokens, pattern=pattern)
        self.merges: list[Pair] = list(map(tuple, merges))  # type: ignore[arg-type]
        ids, specials = ids_of(vocab), [special.encode("utf-8") for special in self.options.special_tokens]
        next_id = itertools.count(max(ids.values(), default=-1) + 1)
        ids.update((token, next(next_id)) for token in specials if token not in ids)
        self.ids, self.vocab = ids, {token_id: token for token, token_id in ids.items()}
        self.special_ids = {token.decode("utf-8"): ids[token] for token in specials}
        self.id_of_byte = [ids.get(bytes([byte])) for byte in range(256)]
        try:
            self.rules = [(ids[left], ids[right], ids[left + right]) for left, right in self.merges]
        except KeyError:
            unknown = (pair for pair in self.merges if not {*pair, pair[0] + pair[1]} <= ids.keys())
            raise ValueError(f"merge {next(unknown)} uses or creates a token that is not in the vocabulary") from None
        self.merged = [new for _, _, new in self.rules]  # rank -> the id of the new token
        made = set(self.merged)
        # ids in the order of training show faster that no merge is a duplicate, or makes what an earlier one takes
        if self.merged != sorted(made) or not all(left < new > right for left, right, new in self.rules):
            check_merges(self.merges)
        for special, token_id in self.special_ids.items():
            require(token_id not in made, f"special token {special!r} is also made by a merge")
        self._cached = functools.lru_cache(maxsize=1 << 16)(self.encode_word)

    def __reduce__(self) -> Any:
        return Tokenizer, (self.vocab, self.merges, self.options.special_tokens, self.options.pattern)

    def __len__(self) -> int:
        return len(self.vocab)

    @property
    def vocab_size(self) -> int:
        """The number of tokens."""
        return len(self.vocab)

    def token_to_id(self, token: str | bytes) -> int | None:
        """Return the id of a token, or None if the vocabulary does not have it."""
        return self.ids.get(to_utf8(token) if isinstance(token, str) else token)

    def id_to_token(self, token_id: int) -> bytes | None:
        """Return the bytes of a token, or None if the vocabulary does not have its id."""
        return self.vocab.get(token_id)

    def __repr__(self) -> str:
        kind = f"{len(self.special_ids)} of them special, pattern {self.options.pattern!r}"
        return f"Tokenizer({len(self):,} tokens, {kind})"

    @classmethod
    def train(
        cls, input_path: Paths | None = None, vocab_size: int | None = None, special_tokens: Specials = None, *,
        pattern: str = "gpt2", **options: Any,
    ) -> Tokenizer:  # fmt: skip
        """Train a tokenizer on files, or on texts=..., with the arguments of train_bpe."""
        specials = check_special_tokens(special_tokens)
        return cls(*train_bpe(input_path, vocab_size, specials, pattern=pattern, **options), specials, pattern)

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Load a model from a tokenizer.json, or from a folder that has one or GPT-2's two files.

        Raises ValueError with the file and the entry if something in it is wrong, or not supported.
        """
        import gc

        collects = gc.isenabled()
        gc.disable()  # it would look through 100,000 new objects, again and again, and find nothing
        try:
            model = load_model(path)
            with error_prefix(path):
                return cls(*model)
        finally:
            if collects:
                gc.enable()

    @classmethod
    def from_files(
        cls, vocab_filepath: Path, merges_filepath: Path, special_tokens: Specials = None, pattern: str = "gpt2"
    ) -> Tokenizer:
        """Load a vocab.json and a merges.txt as GPT-2 or save() write them; raises ValueError as load() does."""
        vocab, merges = to_bytes(vocab_filepath, *read_gpt2_files(vocab_filepath, merges_filepath))
        missing = min({bytes([byte]) for byte in range(256)} - set(vocab.values()), default=None)
        require(missing is None, f"{os.fspath(vocab_filepath)}: no token for the byte {missing!r}")
        return cls(vocab, merges, special_tokens, pattern)

    def save(self, folder: Path) -> None:
        """Save the model in a folder, which is created if it does not exist.

        tokenizer.json is the model. vocab.json and merges.txt are GPT-2's two files, and a small
        tokenizer_config.json lets transformers find its class. All files are complete, and on the disk, before the
        first one replaces an earlier file, and tokenizer.json is replaced first. So a power failure leaves the old
        model, the new one, or files of both; load() then reports that they do not match.
        """
        save_model(self.vocab, self.merges, self.options, folder)

    @functools.cached_property
    def ranks(self) -> dict[tuple[int, int], int]:
        """The rank of each pair of ids that is merged, which only Python needs."""
        return {(left, right): rank for rank, (left, right, _) in enumerate(self.rules)}

    @functools.cached_property
    def encoder(self) -> Any:
        """The encoder of the C engine; None if that is not built or does not support the pattern."""
        engine = find_engine()[0]
        return engine.encoder(self) if engine and self.options.pattern in engine.patterns else None

    def encode(self, text: str) -> list[int]:
        """Encode text as token ids. Lone surrogates, which can't occur in UTF-8, count as U+FFFD.

        Raises ValueError if the words that a custom pattern finds are not the whole text in order.
        """
        return self.encode_part(text, 0)

    def encode_part(self, text: str, offset: int) -> list[int]:
        """Encode text that is `offset` characters into a longer text; errors count from its beginning."""
        ids = self.encoder.encode(to_utf8(text)) if self.encoder else None
        return self.encode_in_python(text, offset) if ids is None else ids.tolist()

    def encode_in_python(self, text: str, offset: int = 0) -> list[int]:
        """Encode text without the C engine, which comes here too for its error messages."""
        ids: list[int] = []
        for piece in compile_special_tokens(self.options.special_tokens).split(to_utf8(text).decode("utf-8")):
            words = [piece] if piece in self.special_ids else find_words(piece, self.options.pattern)
            if (found := "".join(words)) != piece:  # with a custom pattern; decoding would not give the text back
                at = len(os.path.commonprefix([found, piece]))
                place = f"character {offset + at}: {piece[at:][:20]!r}"
                raise ValueError(f"the pattern skips or reorders text at {place}")
            for word in words:
                ids += self._cached(word) if len(word) <= 64 else self.encode_word(word)
            offset += len(piece)
        return ids

    def encode_word(self, word: str) -> tuple[int, ...]:
        """Encode one word, or a special token, which no word can contain."""
        if word in self.special_ids:
            return (self.special_ids[word],)
        data = word.encode("utf-8")
        ids = [self.id_of_byte[byte] for byte in data]
        if None in ids:
            byte = bytes([data[ids.index(None)]])
            raise ValueError(f"the vocabulary has no token for the byte {byte!r}, in {word[:40]!r}")
        return tuple(merge_by_rank(ids, self.ranks, self.merged))

    def encode_iterable(self, iterable: Iterable[str]) -> Iterator[int]:
        """Yield the ids of encode("".join(iterable)) one by one, for streams of any size, split anywhere.

        Text is kept until the next safe cut (see last_cut): little with a named pattern, with a custom pattern
        everything up to the next special token.
        """
        offset = 0
        for data in cut_stream(utf8_parts(iterable), self.options, 1):
            text = data.decode("utf-8")
            yield from self.encode_part(text, offset)
            offset += len(text)

    def encode_files(
        self, paths: Paths | None, output: Path, *, texts: Texts = None, executor: Any = None, **options: Any
    ) -> int:
        """Encode files, or texts, into one array of token ids on disk; return how many ids it has.

        paths    as in train_bpe; None with texts=..., an iterable of strings
        output   a .npy file, which numpy.load opens (also with mmap_mode="r"), or a .bin file with the bare numbers,
                 for numpy.memmap; uint16 if every id fits, else uint32. It replaces an earlier file when it is
                 complete. It is not flushed to the disk, so after a power failure it has to be written again.
        options  workers, progress, errors, newlines and engine, as in train_bpe; executor as in count_words

        No word continues from one file or text into the next, and no token is put between them. Memory does not grow
        with the corpus, except with a custom pattern.
        """
        allowed = ("workers", "progress", "errors", "newlines", "engine")
        if wrong := [name for name in options if name not in allowed]:
            raise TypeError(f"{wrong[0]!r} is not an option of encode_files; the options are {', '.join(allowed)}")
        checked = check_options(self.options.special_tokens, self.options.pattern, **options)
        return encode_corpus(self, paths, texts, output, checked, executor)[0]

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = False) -> str:
        """Decode token ids to text; bytes that are not UTF-8 become U+FFFD."""
        if skip_special_tokens:
            special_ids = set(self.special_ids.values())
            ids = [token_id for token_id in ids if token_id not in special_ids]
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Decode token ids to bytes; raises ValueError for an id that is not in the vocabulary."""
        ids = list(ids)
        try:
            return b"".join(map(self.vocab.__getitem__, ids))
        except KeyError as error:
            raise ValueError(f"unknown token id {error} at index {ids.index(*error.args)}") from None


def ids_of(vocab: Vocab) -> dict[bytes, int]:
    """Return the id of each token; the vocabulary must map different ids, from 0 to MAX_ID, to different bytes."""
    ids: dict[bytes, int] = {}
    for token_id, token in vocab.items():
        if not (isinstance(token, bytes) and hasattr(token_id, "__index__")):
            found = f"{{{token_id!r}: {token!r:.40}}}"
            raise TypeError(f"vocab maps ids to bytes, {{256: b' t'}}, not {found}; for files use Tokenizer.from_files")
        if not 0 <= token_id <= MAX_ID:
            raise ValueError(f"the id of {token!r} must be from 0 to {MAX_ID}, not {token_id}")
        if token in ids:
            raise ValueError(f"the ids {ids[token]} and {token_id} have the same bytes, {token!r}")
        ids[token] = operator.index(token_id)
    return ids


# The files of a model. tokenizer.json has all of it, in the format of Hugging Face's tokenizers package. GPT-2's two
# files, vocab.json and merges.txt, have no pattern and don't tell special tokens from others.
#
# All of them write each byte as a printable character. Bytes that are printable in Latin-1 stand for themselves, the 68
# others become U+0100, U+0101, ... in order: the space is "Ġ", the newline "Ċ". So a token is one word to text tools.
PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
CHARACTER_OF = {byte: chr(byte) for byte in PRINTABLE}
CHARACTER_OF |= {byte: chr(256 + n) for n, byte in enumerate(sorted(set(range(256)) - set(PRINTABLE)))}
CHARACTERS = "".join(CHARACTER_OF[byte] for byte in range(256))
BYTE_OF = codecs.charmap_build(CHARACTERS)

MODEL_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt")
BPE_SETTINGS = {  # in tokenizer.json: model settings for which Tokenizer supports these values only
    **dict.fromkeys(("dropout", "continuing_subword_prefix", "end_of_word_suffix"), None),
    **dict.fromkeys(("fuse_unk", "byte_fallback", "ignore_merges"), False),
}


def to_printable(token: bytes) -> str:
    """Write a token in printable characters: to_printable(b" the") is "Ġthe"."""
    return codecs.charmap_decode(token, "strict", CHARACTERS)[0]


def from_printable(text: str) -> bytes:
    """Read a token from printable characters: from_printable("Ġthe") is b" the"."""
    try:
        return codecs.charmap_encode(text, "strict", BYTE_OF)[0]
    except UnicodeEncodeError:
        raise ValueError(f"{text!r} contains a character that stands for no byte") from None


def check_savable(options: Options, folder: Path) -> None:
    """Try everything that could keep a model from being saved, now rather than after an hour of training."""
    require(os.fspath(folder), "output_dir must not be empty")
    check_special_names(options.special_tokens)
    for name in MODEL_FILES:
        with new_file(os.path.join(folder, name), keep=False):
            pass


def check_special_names(special_tokens: Iterable[str]) -> None:
    """Check that no special token looks like another token in tokenizer.json.

    There, special tokens are plain text and all others are in printable characters. The special token "é" has the
    bytes C3 A9, but "é" in printable characters is the byte E9, which is in every vocabulary: so "é" can't be saved.
    "éé" can, since the bytes E9 E9 occur in no UTF-8 text.
    """
    for special in special_tokens:
        try:
            token = from_printable(special)
            if len(token) > 1:  # else it is one of the 256 bytes
                rest = token.lstrip(bytes(range(0x80, 0xC0)))  # the end of a character may come first,
                codecs.utf_8_decode(rest, "strict", False)  # and the beginning of another one last
        except ValueError:
            continue  # no other token is written like this, or occurs in UTF-8 text
        same = token == special.encode("utf-8")
        require(same, f"special token {special!r} can't be saved: tokenizer.json would read it as {token!r}")


def save_model(vocab: Vocab, merges: Merges, options: Options, folder: Path) -> None:
    """Write the files of a model; Tokenizer.save describes them."""
    check_savable(options, folder)
    printable = {token: to_printable(token) for token in vocab.values()}
    ids = {printable[token]: token_id for token_id, token in vocab.items()}
    pairs = [[printable[left], printable[right]] for left, right in merges]
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],  # else transformers 4 adds token_type_ids
    }
    # One entry per line; `indent` would do without the C encoder of the json module, and take ten times as long.
    to_json = functools.partial(json.dumps, ensure_ascii=False, separators=(",\n", ": "))
    texts = {
        "tokenizer.json": to_json(tokenizer_json(options, ids, pairs)),
        "tokenizer_config.json": to_json(config),
        "vocab.json": to_json(ids),
        "merges.txt": "\n".join(["#version: 0.2", *map(" ".join, pairs)]),
    }
    with contextlib.ExitStack() as stack:
        for name in reversed(MODEL_FILES):  # the stack closes the last file first: tokenizer.json is renamed first
            file = stack.enter_context(new_file(os.path.join(folder, name)))
            file.write(texts[name].encode("utf-8") + b"\n")
            file.flush()
            os.fsync(file.fileno())  # else a renamed file can be empty after a power failure


def tokenizer_json(options: Options, ids: Mapping[str, int], merges: list[list[str]]) -> dict[str, Any]:
    """Return the contents of tokenizer.json; the library that reads it may match a custom pattern differently."""
    specials = {to_printable(special.encode("utf-8")): special for special in options.special_tokens}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": ids[printable], "content": special, **flags} for printable, special in specials.items()]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    expression = HF_PATTERNS.get(options.pattern, options.pattern)
    split = {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "unk_token": None,
            **BPE_SETTINGS,
            "vocab": {specials.get(text, text): token_id for text, token_id in ids.items()},
            "merges": merges,
        },
    }


def load_model(path: Path) -> tuple[dict[int, bytes], list[Pair], list[str], str]:
    """Read (vocab, merges, special tokens, pattern) from a tokenizer.json, or from a folder that has a model."""
    json_path, _, vocab_path, merges_path = (os.path.join(path, name) for name in MODEL_FILES)
    if not os.path.isdir(path):
        json_path = os.fspath(path)
    elif os.path.exists(vocab_path) and not os.path.exists(json_path):
        vocab, merges = to_bytes(vocab_path, *read_gpt2_files(vocab_path, merges_path))
        require(merges, f"{merges_path}: no merges")
        made = {left + right for left, right in merges}
        with error_prefix(vocab_path, "a token is neither a byte, nor made by a merge, nor text"):
            specials = [token.decode("utf-8") for token in vocab.values() if len(token) > 1 and token not in made]
        return vocab, merges, specials, "gpt2"
    ids, pairs, specials, pattern = read_tokenizer_json(json_path)
    vocab, merges = to_bytes(json_path, ids, pairs)
    if os.path.exists(vocab_path) and os.path.exists(merges_path):
        names = json_path, vocab_path, merges_path
        json_text, vocab_text, merges_text = (read_bytes(name, 0, os.path.getsize(name)) for name in names)
        same_vocab = b'"vocab": ' + vocab_text.rstrip() + b',\n"merges": [' in json_text
        if same_vocab and merges_text == "\n".join(["#version: 0.2", *map(" ".join, pairs), ""]).encode("utf-8"):
            return vocab, merges, specials, pattern  # the files are as save_model wrote them, and need not be parsed
        other_ids, other_pairs = read_gpt2_files(vocab_path, merges_path)
        added = {to_printable(special.encode("utf-8")) for special in specials}  # transformers adds to one file only
        same_ids = other_ids.items() <= ids.items() and ids.keys() - other_ids.keys() <= added
        files = "tokenizer.json, vocab.json and merges.txt"
        message = f"{os.fspath(path)}: mixes files from different training runs: {files} do not match"
        require(same_ids and other_pairs == pairs, message)
    return vocab, merges, specials, pattern


def to_bytes(path: Path, ids: dict[str, int], pairs: list[list[str]]) -> tuple[dict[int, bytes], list[Pair]]:
    """Return (vocab, merges) for ids and merges of printable tokens; raises ValueError with the first bad entry."""
    with error_prefix(path, "not a vocabulary of byte-level BPE"):
        vocab: dict[int, bytes] = {}
        for text, token_id in ids.items():
            if type(token_id) is not int or token_id < 0 or token_id in vocab:
                raise ValueError(f"invalid id {token_id!r} for {text!r}: ids must be unique non-negative integers")
            vocab[token_id] = from_printable(text)
        try:
            return dict(sorted(vocab.items())), [(vocab[ids[left]], vocab[ids[right]]) for left, right in pairs]
        except KeyError as error:
            raise ValueError(f"a merge uses {error}, which is not in the vocabulary") from None


def read_gpt2_files(vocab_path: Path, merges_path: Path) -> tuple[dict[str, int], list[list[str]]]:
    """Read (ids, merges) of printable tokens from a vocab.json and a merges.txt."""
    with open(merges_path, encoding="utf-8", errors="surrogateescape") as file, error_prefix(merges_path):
        lines = file.read().split("\n")
        if lines[0].startswith("#version"):
            lines[0] = ""
        for number, line in enumerate(lines, 1):
            if line and (line.count(" ") != 1 or not line.isprintable()):
                raise ValueError(f"line {number} must be two printable tokens separated by one space: {line!r}")
    with open(vocab_path, "rb") as file, error_prefix(vocab_path, "not a vocab.json"):
        return dict(json.load(file).items()), [line.split(" ") for line in lines if line]


def read_tokenizer_json(path: Path) -> tuple[dict[str, int], list[list[str]], list[str], str]:
    """Read (ids and merges of printable tokens, special tokens, pattern) from a tokenizer.json.

    Raises ValueError if it is not of byte-level BPE, or uses something that Tokenizer does not do.
    """
    with open(path, "rb") as file, error_prefix(path, "not a tokenizer.json of byte-level BPE"):
        content = json.load(file)
        check_supported(content)
        check_added_tokens(content["added_tokens"])
        model, added = content["model"], {token["content"]: token["id"] for token in content["added_tokens"]}
        check_special_names(check_special_tokens(list(added)))
        ids = {text: token_id for text, token_id in model["vocab"].items() if text not in added}
        added_ids = {to_printable(special.encode("utf-8")): token_id for special, token_id in added.items()}
        both = ids.keys() & added_ids.keys()
        require(not both, f"an added token and another token have the same bytes: {sorted(both)}")
        pairs = model["merges"]
        if pairs and isinstance(pairs[0], str):  # as older versions write them
            pairs = [pair.split(" ") for pair in pairs]
        return {**ids, **added_ids}, pairs, list(added), pattern_of(content["pre_tokenizer"])


def check_supported(content: dict[str, Any]) -> None:
    """Check that Tokenizer encodes and decodes as a tokenizer.json says; raises ValueError with what it does not do."""
    model, post_processor = content["model"], content.get("post_processor")
    require(model.get("type", "BPE") == "BPE", f"model type {model.get('type')!r} is not supported")
    settings = {name: model.get(name) for name in BPE_SETTINGS}  # null, false, 0 and "" mean the same
    settings["normalizer"] = content.get("normalizer")
    if not set(CHARACTERS) <= model["vocab"].keys():  # else no byte is unknown
        settings["unk_token"] = model.get("unk_token")
    if content["decoder"]["type"] != "ByteLevel":
        settings["decoder"] = content["decoder"]
    steps = post_processor.get("processors", [post_processor]) if post_processor else []
    if any(step["type"] != "ByteLevel" and step.get("special_tokens") != {} for step in steps):
        settings["post_processor"] = post_processor  # it adds tokens, or is of another kind
    for name, value in settings.items():
        require(not value, f"{name} is not supported: {json.dumps(value):.100}")


def check_added_tokens(added: list[dict[str, Any]]) -> None:
    """Check that the added tokens of a tokenizer.json are found as Tokenizer finds special tokens.

    Those with "normalized": false are found before the others there, so the two kinds must not overlap.
    """
    for token in added:
        for flag in ("single_word", "lstrip", "rstrip"):
            require(not token.get(flag), f"{flag} is not supported: the added token {token['content']!r} has it")
    first = [token["content"] for token in added if not token.get("normalized")]
    others = [token["content"] for token in added if token.get("normalized")]
    for a, b in itertools.product(first, others):
        require(not overlap(a, b), f"the added tokens {a!r} and {b!r} overlap, and only one of them is normalized")


def overlap(a: str, b: str) -> bool:
    """Return whether two texts can share characters: one contains the other, or begins with the end of the other."""
    ends = [(text[at:], other) for text, other in ((a, b), (b, a)) for at in range(len(text))]
    return any(end.startswith(other) or other.startswith(end) for end, other in ends)


def pattern_of(pre_tokenizer: dict[str, Any]) -> str:
    """Return the pattern of a tokenizer.json: GPT-2's for a ByteLevel step alone, or the one in a Split before it."""
    *splits, last = pre_tokenizer.get("pretokenizers") or [pre_tokenizer]
    step = last["type"], last.get("add_prefix_space", True), last.get("use_regex", True)
    if step == ("ByteLevel", False, True) and not splits:
        return "gpt2"
    if step == ("ByteLevel", False, False) and len(splits) == 1:
        split = splits[0]
        isolated = split["type"] == "Split" and split["behavior"] == "Isolated" and not split["invert"]
        if isolated and "Regex" in split["pattern"]:
            return check_pattern(split["pattern"]["Regex"])
    supported = "supported are a ByteLevel without add_prefix_space, and one Split before it"
    raise ValueError(f"pre_tokenizer: {supported}; not {json.dumps(pre_tokenizer)}")


# ---------------------------------------------------------------------------------------------------------------------
# V. Large corpora
# ---------------------------------------------------------------------------------------------------------------------

# A corpus is read in slices that split into the same words on their own as they do within the whole text. Many workers
# count or encode slices at a time, and the results are used in order.

SLICE_BYTES = 8 << 20  # about how much text is counted at a time; in Python that takes some 20 times as much memory
WINDOW_BYTES = 64 << 10  # how much text is searched for a cut at a time
HEAD_BYTES = 4096  # of a file, which tell what kind of file it is

# For all named patterns, a word ends after a letter or digit and before anything that is not a letter, digit, mark or
# apostrophe, since only these may continue it. Nothing before the cut depends on the text after it, since only
# whitespace looks ahead, in `\s+(?!\S)` and in cl100k's `\s++$`. Before a newline would be wrong: "a \n\nb" has the
# words "a", " \n", "\n", "b", while "a " and "\n\nb" have the words "a", " ", "\n", "\n", "b".
WORD_END = r"(?r)(?<=[\p{L}\p{N}])(?=[^\p{L}\p{N}\p{M}'])"  # (?r): the last place first
NOT_UTF8 = re.compile("[\udc80-\udcff]")  # in text with lone surrogates for the bytes that are not UTF-8


def last_cut(read: Callable[[int, int], bytes | bytearray], start: int, end: int, options: Options) -> int:
    """Return the last offset in bytes at which text can be cut without changing its words; 0 if none is known.

    read(from, to) returns a part of the text. A slice begins at `start`, and its last WINDOW_BYTES before `end` are
    searched: with a named pattern for the end of a word that is not within a special token, with a custom pattern for
    the beginning of a special token, the only place known. If the window is not UTF-8, and that is an error, any place
    will do: reading the slice reports it.

    With "a a" as a special token, "x a a a a y" can be cut after the second or the fourth a, but not after the first
    or the third: so the special tokens are found from a place that can't be inside one.
    """
    if options.errors == "replace" and "\ufffd" in "".join(options.special_tokens):
        return 0  # bytes that are not UTF-8 may be a part of a special token
    specials = compile_special_tokens(options.special_tokens, options.newlines)
    # in characters: a special token with each "\n" as "\r\n", and what is left of a character at the end
    margin = 2 * max(map(len, options.special_tokens), default=0) + 4
    begin = max(start, end - WINDOW_BYTES - 4 * margin)
    text = bytes(read(begin, end)).decode("utf-8", "surrogateescape")  # wrong bytes become lone surrogates
    if options.errors == "strict" and NOT_UTF8.search(text, 3, len(text) - 3):  # its ends may divide characters
        return end
    last = max(len(text) - margin, 1)
    known = 0 if begin == start else find_place_outside(text, options)
    if known is None:
        return 0
    first = max(known, last - WINDOW_BYTES, 1)
    if options.pattern in PATTERNS:
        # written as letters, special tokens contain no end of a word
        letters = text[:known] + specials.sub(lambda match: "x" * len(match[0]), text[known:])
        found = compile_pattern(WORD_END).search(letters, first, last)
        place = found.start() if found else 0
    else:
        starts = (match.start() for match in specials.finditer(text, known))
        place = max((start for start in starts if first <= start <= last), default=0)
    return begin + len(text[:place].encode("utf-8", "surrogateescape")) if place else 0


def find_place_outside(text: str, options: Options) -> int | None:
    """Return the first place that can't be inside a special token: a character that is in none of them.

    Lone surrogates don't count: at the beginning they can be what is left of a character that is in one.
    """
    characters = "".join(options.special_tokens) + "\r\n"  # with newlines="lf", "\n" is "\r\n" in this text
    match = re.search(f"[^{re.escape(characters)}\ud800-\udfff]", text)
    return match.start() if match else None


def cut_stream(blocks: Iterable[bytes], options: Options, least: int) -> Iterator[bytes]:
    """Join the blocks of a text, and cut it at safe places into pieces of at least about `least` bytes."""
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
    """A part of a corpus that splits into the same words on its own; small to send, unless it carries its texts."""

    path: str
    start_byte: int
    end_byte: int
    stamp: tuple[int, int] | None = None  # size and modification time of the file, which must not change
    texts: tuple[bytes, ...] = ()  # if there is no file that can be read again: separate texts

    @property
    def n_bytes(self) -> int:
        """The size of the slice."""
        return self.end_byte - self.start_byte


Task = Callable[[Slice], Any]  # counts or encodes a slice
Results = Iterator[tuple[Slice, Any]]


def paths_of(paths: Any) -> list[str]:
    """Return a list of paths from one path or several."""
    single = isinstance(paths, (str, bytes, os.PathLike))
    listed = [os.fsdecode(path) for path in ([paths] if single else paths)]
    require(listed, "no corpus file given")
    for path in listed:
        require(path, "the name of a corpus file must not be empty")
        if not os.path.exists(path) and ("\n" in path or len(path) > 1000):
            raise ValueError(f"{path[:40]!r}... is not a file name; pass text as texts=[...]")
        if os.path.isdir(path):
            raise IsADirectoryError(f"{path} is a folder: give its files, {shlex.quote(path)}/*")
    return listed


def slices_of_corpus(input_path: Any, texts: Texts, options: Options) -> tuple[Iterator[Slice], int | None, list[str]]:
    """Return (slices of the files or texts, their size in bytes if it is known, the paths of the files)."""
    require((input_path is None) != (texts is None), "pass either paths or texts, and not both")
    if texts is not None:
        return slices_of_texts(texts, options), None, []
    paths = paths_of(input_path)
    sizes = [stamp_of(path)[0] for path in paths]  # an error now, if one can't be read
    slices = (piece for path in paths for piece in slices_of_file(path, options))
    return slices, sum(sizes) if all(sizes) else None, paths


def stamp_of(path: str) -> tuple[int, int]:
    """Return size and modification time of a readable file; both are 0 for a pipe, the size for files as in /proc."""
    if path == "-" or stat.S_ISFIFO(mode := os.stat(path).st_mode) or stat.S_ISCHR(mode):
        return 0, 0
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def slices_of_file(path: str, options: Options) -> Iterator[Slice]:
    """Cut a file into slices of about SLICE_BYTES; slices of a pipe, or of standard input, carry their text."""
    stamp, start, end = stamp_of(path), 0, SLICE_BYTES
    if not stamp[0]:
        for data in cut_stream(blocks_of_pipe(path), options, SLICE_BYTES):
            if start == 0:
                warn_of_head(path, data[:HEAD_BYTES])
            yield Slice(path, start, start + len(data), texts=(data,))
            start += len(data)
        return
    read = functools.partial(read_bytes, path)
    warn_of_head(path, read(0, HEAD_BYTES))
    while end < stamp[0]:
        if cut := last_cut(read, start, end, options):
            yield Slice(path, start, cut, stamp)
            start, end = cut, cut + SLICE_BYTES
        else:
            end += WINDOW_BYTES
    yield Slice(path, start, stamp[0], stamp)


def blocks_of_pipe(path: str) -> Iterator[bytes]:
    """Yield the bytes of a pipe as they come, up to its real end."""
    require(path != "-" or sys.stdin, "standard input is closed")
    with open(0 if path == "-" else path, "rb", buffering=0, closefd=path != "-") as pipe:
        if os.name == "posix":  # a pipe that is set not to wait would seem to end while nothing has arrived yet
            os.set_blocking(pipe.fileno(), True)
        while block := pipe.read(WINDOW_BYTES):
            yield block


def slices_of_texts(texts: Iterable[str], options: Options) -> Iterator[Slice]:
    """Bundle texts into slices of about SLICE_BYTES; raises ValueError for an item that is not text."""
    if isinstance(texts, (str, bytes)):
        raise TypeError(f"texts must be an iterable of strings, not one string: {texts[:40]!r}")
    bundle: list[bytes] = []
    size = number = 0
    for number, text in enumerate(texts):
        require(isinstance(text, str), f"texts[{number}] must be a str, not {type(text).__name__}")
        try:
            bundle.append(to_utf8(text) if options.errors == "replace" else text.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise ValueError(f"texts[{number}]: {error}") from None
        size += len(bundle[-1])
        if size >= SLICE_BYTES:
            yield Slice(f"texts up to {number}", 0, size, texts=tuple(bundle))
            bundle, size = [], 0
    yield Slice(f"texts up to {number}", 0, size, texts=tuple(bundle))


def warn_of_head(path: str, head: bytes) -> None:
    """Warn about a byte-order mark, which is text like any other, and about files that are probably not text."""
    if head.startswith(codecs.BOM_UTF8):
        warnings.warn(f"{path}: starts with a byte-order mark, which is kept as text", stacklevel=2)
    text = head.decode("utf-8", "surrogateescape")
    end = len(text) - 3 if len(head) == HEAD_BYTES else len(text)  # the last character may be divided
    if "\0" in text and not NOT_UTF8.search(text, 0, end):  # else an error follows
        warnings.warn(f"{path}: {hint_for(path, head)}", stacklevel=2)


def read_bytes(path: str, start: int, end: int) -> bytes:
    """Read a part of a file, of any size: Python's buffer asks again if the system returns 2 GiB at most."""
    with open(path, "rb") as file:
        file.seek(start)
        return file.read(end - start)


def read_slice(piece: Slice, options: Options) -> list[bytes]:
    """Return the texts of a slice as `errors` and `newlines` say; raises ValueError if its file has changed.

    With errors="strict", the caller finds out whether they are UTF-8; decode_slice reports what is wrong.
    """
    texts = list(piece.texts)
    if piece.stamp:
        texts = [read_bytes(piece.path, piece.start_byte, piece.end_byte)]
        require(stamp_of(piece.path) == piece.stamp, f"{piece.path}: changed while it was read")
    if options.errors == "replace" or options.newlines == "lf":
        texts = [decode_slice(piece, data, options).encode("utf-8") for data in texts]
    return [data.replace(b"\r\n", b"\n") for data in texts] if options.newlines == "lf" else texts


NOT_TEXT = [  # how a file begins, what it is, and the tool that makes text of it
    (rb"\x1f\x8b", "compressed", "zcat"),
    (rb"BZh", "compressed", "bzcat"),
    (rb"\xfd7zXZ", "compressed", "xzcat"),
    (rb"\x28\xb5\x2f\xfd", "compressed", "zstdcat"),
    (rb"PK\x03\x04", "like a zip archive", "unzip -p"),
    (rb".{257}ustar", "like a tar archive", "tar -xOf"),
    (rb"PAR1", "like Parquet", ""),
    (rb"\x7fELF", "like a program", ""),
    (rb"%PDF", "like PDF", "pdftotext"),
    (rb"\xff\xfe|\xfe\xff", "like UTF-16", "iconv -f utf-16 -t utf-8"),
    (rb"(?:[^\0]\0){3}", "like UTF-16 without a byte-order mark", "iconv -f utf-16le -t utf-8"),
    (rb"(?:\0[^\0]){3}", "like UTF-16 without a byte-order mark", "iconv -f utf-16be -t utf-8"),
    (rb".*\0", "like binary data (it has NUL bytes)", ""),
]


def hint_for(path: str, head: bytes) -> str:
    """Say what a file is that does not begin like text, and how to make text of it; "" if it begins like text."""
    for beginning, kind, tool in NOT_TEXT:
        if re.match(beginning, head, re.DOTALL):
            command = f"; try: {tool} {shlex.quote(path)} | python bpe.py - 1000" if tool else ""
            return f"looks {kind}{command}"
    return ""


def decode_slice(piece: Slice, data: bytes, options: Options) -> str:
    """Decode text of a slice; raises ValueError with the file and the first byte that is not UTF-8."""
    try:
        return data.decode("utf-8", options.errors)
    except UnicodeDecodeError as error:
        head = read_bytes(piece.path, 0, HEAD_BYTES) if piece.stamp else data[:HEAD_BYTES]
        other = f"iconv -f latin1 -t utf-8 {shlex.quote(piece.path)} | python bpe.py - 1000"
        hint = hint_for(piece.path, head) or f"if it is Latin-1, try: {other}; or use --errors replace"
        place = f"byte {piece.start_byte + error.start} (0x{data[error.start]:02x}, {error.reason})"
        raise ValueError(f"{piece.path}: not valid UTF-8 at {place}; {hint}") from None


# Running tasks. With the C engine, which releases Python's lock, threads do the work. Without it, each thread starts a
# process for each slice. The results come in the order of the slices.

AHEAD_ON_A_CLUSTER = 64  # how many tasks an executor of the caller gets at once


def run_tasks(task: Task, slices: Iterator[Slice], options: Options, in_c: bool, executor: Any) -> Results:
    """Yield (slice, task(slice)), computed in an executor, in threads, in processes, or (one slice or core) here."""
    if executor:
        yield from run_in_order(task, slices, executor, AHEAD_ON_A_CLUSTER)
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    head = list(itertools.islice(slices, min(options.workers or cores, cores)))
    slices = itertools.chain(head, slices)
    if len(head) < 2 or not sys.executable:
        yield from ((piece, task(piece)) for piece in slices)
        return
    from concurrent.futures import ThreadPoolExecutor

    runner = contextlib.nullcontext(task) if in_c else in_processes(task)
    with ThreadPoolExecutor(len(head)) as threads, runner as run:
        yield from run_in_order(run, slices, threads, len(head) + 1)


def run_in_order(task: Task, slices: Iterator[Slice], executor: Any, ahead: int) -> Results:
    """Run at most `ahead` tasks at a time in an executor; yield (slice, result) in the order of the slices."""
    import queue

    waiting: collections.deque[tuple[Slice, Any, Any]] = collections.deque()
    try:
        while True:
            for piece in itertools.islice(slices, ahead - len(waiting)):
                done: queue.SimpleQueue[Any] = queue.SimpleQueue()
                future = executor.submit(task, piece)
                future.add_done_callback(done.put)
                waiting.append((piece, future, done))
            if not waiting:
                return
            piece, future, done = waiting.popleft()
            done.get()  # in result(), Ctrl-C could leave a lock behind that the thread of the task waits for
            try:
                result = future.result()
            except (ValueError, MemoryError, OverflowError):
                raise
            except Exception as error:  # of a cluster, a worker process or the system, which does not name the place
                place = f"{piece.path}, bytes {piece.start_byte} to {piece.end_byte}"
                raise RuntimeError(f"{place}: {str(error) or repr(error)}") from error
            yield piece, result
    finally:
        for _, future, _ in waiting:  # not needed after an error or Ctrl-C
            future.cancel()


# The code of a worker process. It loads this file, under the name that pickle has for its functions here, and never the
# script that imported it: so workers start alike on every system, from a script without a guard, from standard input or
# in a notebook. The name in the spec is "bpe", so the command line at the end of this file does not run.
WORKER = """
import importlib.util, sys
parent, name, path, *sys.path = sys.argv[1:]
spec = importlib.util.spec_from_file_location("bpe", path)
bpe = sys.modules[name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bpe)
bpe.find_engine = lambda: (None, "workers are used without it")
bpe.work(int(parent))
"""


@contextlib.contextmanager
def in_processes(task: Task) -> Iterator[Task]:
    """Return a function for threads that runs the task in a new process for each slice.

    The processes have their own sessions, so Ctrl-C reaches only this process, which ends them.
    """
    import pickle
    import subprocess

    command = [sys.executable, "-I", *["-O"] * sys.flags.optimize, "-c", WORKER, str(os.getpid()), __name__]
    command += [os.path.abspath(__file__), *sys.path]
    pipe, running, ended = subprocess.PIPE, set(), False

    def run(piece: Slice) -> Any:
        worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)
        running.add(worker)
        if ended:
            worker.kill()
        answer, _ = worker.communicate(pickle.dumps((task, piece)))
        running.discard(worker)
        try:
            result = pickle.loads(answer)
        except (EOFError, pickle.UnpicklingError):
            raise RuntimeError("a worker process died (killed, or out of memory?)") from None
        if isinstance(result, Exception):
            raise result
        return result

    try:
        yield run
    finally:
        ended = True
        for worker in list(running):
            worker.kill()


def work(parent: int) -> None:
    """Run one task in a worker process: it arrives at standard input, the result goes to standard output."""
    import pickle
    import threading

    def end_with_parent() -> None:
        while os.getppid() == parent:  # a process whose parent has ended gets another one
            time.sleep(0.2)
        os._exit(1)

    if os.name == "posix":
        threading.Thread(target=end_with_parent, daemon=True).start()
    task, piece = pickle.load(sys.stdin.buffer)
    try:
        answer = pickle.dumps(task(piece))
    except Exception as error:
        answer = pickle.dumps(error)
    sys.stdout.buffer.write(answer)


# Counting words. The counts are in a dict, or in a table of the C engine.


def count_corpus(input_path: Any, texts: Texts, options: Options, executor: Any = None) -> tuple[Any, int, int]:
    """Count the words of files, or of texts; return (words, bytes read, bytes in no word)."""
    slices, total, _ = slices_of_corpus(input_path, texts, options)
    words, n_bytes, n_unmatched = new_words(options), 0, 0
    in_c = not isinstance(words, Words) and not executor
    task = functools.partial(count_slice, options=options, words=words if in_c else None)
    results = run_tasks(task, slices, options, in_c, executor)
    for piece, (counts, unmatched) in with_progress(results, "counting words", "MB", total, options.progress):
        n_bytes += piece.n_bytes
        n_unmatched += unmatched
        if counts:
            words.update(counts)
    if n_unmatched:
        warnings.warn(f"the pattern leaves out {n_unmatched:,} bytes, which are not counted", stacklevel=3)
    return words, n_bytes, n_unmatched


def new_words(options: Options) -> Any:
    """Return an empty table of words: the C engine's if it supports the pattern, else a Words."""
    engine = engine_for(options)
    if engine and options.pattern in engine.patterns:
        return engine.words(options.special_tokens, options.pattern)
    return Words()


def count_slice(piece: Slice, options: Options, words: Any = None) -> tuple[dict[bytes, int] | None, int]:
    """Return (the count of each word of a slice, bytes in no word).

    If `words` is given, a table of the C engine, it takes the counts, and None is returned in their place.
    """
    table, texts = new_words(options) if words is None else words, read_slice(piece, options)
    if isinstance(table, Words):
        return count_texts([decode_slice(piece, data, options) for data in texts], options)
    for data in texts:
        if not table.scan(data):
            decode_slice(piece, data, options)  # it is not UTF-8, which this raises, with the place
    return (table.to_dict() if words is None else None), 0


def count_texts(texts: Iterable[str], options: Options) -> tuple[dict[bytes, int], int]:
    """Return (the count of each word, how many bytes are in no word); the latter is 0 for named patterns."""
    specials = compile_special_tokens(options.special_tokens)
    pieces = [piece for text in texts for piece in specials.split(text)[::2]]
    counts: collections.Counter[str] = collections.Counter()
    for piece in pieces:
        counts.update(find_words(piece, options.pattern))
    words = {word.encode("utf-8"): count for word, count in counts.items()}
    if options.pattern in PATTERNS:
        return words, 0
    return words, sum(len(piece.encode("utf-8")) for piece in pieces) - Words(words).totals()[2]


# Encoding files into an array of token ids.


def encode_corpus(
    tokenizer: Tokenizer, input_path: Any, texts: Texts, output: Path, options: Options, executor: Any = None
) -> tuple[int, int]:
    """Write the token ids of files, or of texts; return (how many ids, how many bytes were read)."""
    slices, total, paths = slices_of_corpus(input_path, texts, options)
    check_output(output, paths)
    kind, bare = "u2" if max(tokenizer.vocab, default=0) < 1 << 16 else "u4", os.fspath(output).endswith(".bin")
    in_c = options.engine != "python" and tokenizer.encoder is not None
    task = functools.partial(encode_slice, options=options, kind=kind, tokenizer=tokenizer)
    results = run_tasks(task, slices, options, in_c, executor)
    n_ids = n_bytes = 0
    with new_file(output) as file:
        file.write(b"" if bare else npy_header(kind, 0))
        for piece, ids in with_progress(results, "encoding", "MB", total, options.progress):
            file.write(ids)
            n_ids += len(ids) // int(kind[1])
            n_bytes += piece.n_bytes
        file.seek(0)
        file.write(b"" if bare else npy_header(kind, n_ids))
    return n_ids, n_bytes


def check_output(output: Path, paths: Iterable[str]) -> None:
    """Check that token ids can be written to a file, before any work."""
    name = os.fspath(output)
    require(name.endswith((".npy", ".bin")), f"the file name {name!r} must end in .npy or .bin")
    for path in paths:
        if path != "-" and os.path.exists(output) and os.path.samefile(path, output):
            raise ValueError(f"refusing to overwrite {name}: it is one of the files to encode")
    with new_file(output, keep=False):
        pass


def encode_slice(piece: Slice, options: Options, tokenizer: Tokenizer, kind: str) -> bytes:
    """Encode the texts of a slice; return an array of ids of kind "u2" or "u4"."""
    parts = []
    for data in read_slice(piece, options):
        encoder = tokenizer.encoder if options.engine != "python" else None
        found = encoder.encode(data, kind) if encoder else None
        if found is None:
            text = decode_slice(piece, data, options)
            with error_prefix(f"{piece.path}, bytes {piece.start_byte} to {piece.end_byte}"):
                found = array("H" if kind == "u2" else "I", tokenizer.encode_in_python(text))
        parts.append(bytes(found))
    return b"".join(parts)


def npy_header(kind: str, length: int) -> bytes:
    """Return the header of a .npy file with one dimension (format 1.0): 128 bytes."""
    order = "<" if sys.byteorder == "little" else ">"
    text = f"{{'descr': '{order}{kind}', 'fortran_order': False, 'shape': ({length},), }}"
    return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + text.ljust(117).encode() + b"\n"


# ---------------------------------------------------------------------------------------------------------------------
# VI. Shared helpers
# ---------------------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def find_engine() -> tuple[Any, str]:
    """Return (the C engine, "") if build_ffi.py is next to this file and has built it, else (None, why not)."""
    path = os.path.join(os.path.dirname(__file__), "build_ffi.py")
    spec: Any = importlib.util.spec_from_file_location("build_ffi", path)
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.load_engine()  # type: ignore[no-any-return]
    except FileNotFoundError:
        return None, "the files that build the C engine are not next to bpe.py"
    except Exception as error:  # an unrelated file of that name must not break this module
        return None, f"build_ffi.py does not load: {error!r}"


def engine_for(options: Options) -> Any:
    """Return the C engine, or None if Python is to do the work."""
    return find_engine()[0] if options.engine != "python" else None


def require(condition: Any, message: str) -> None:
    """Raise ValueError with this message if a condition does not hold."""
    if not condition:
        raise ValueError(message)


@contextlib.contextmanager
def error_prefix(place: Path, wrong_kind: str = "") -> Iterator[None]:
    """Put a place before the message of any error; anything but a ValueError means that a file is of the wrong kind."""
    try:
        yield
    except (OSError, MemoryError):
        raise  # the message of an OSError has the path already
    except Exception as error:
        text = f"{wrong_kind} ({error!r})" if wrong_kind and type(error) is not ValueError else str(error)
        raise ValueError(f"{os.fspath(place)}: {text}") from None


def check_text(text: Any) -> str:
    """Return text as it is; raises TypeError if it is not a str."""
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, not {type(text).__name__}")
    return text


def to_utf8(text: str) -> bytes:
    """Encode text as UTF-8: pairs of surrogates are the character they stand for, lone ones U+FFFD, as in tiktoken."""
    try:
        return check_text(text).encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode("utf-8")


def utf8_parts(texts: Iterable[str]) -> Iterator[bytes]:
    """Encode the parts of a text, between which a pair of surrogates may be divided."""
    held = ""
    for text in texts:
        text = held + check_text(text)
        held = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        yield to_utf8(text[: len(text) - len(held)])
    yield to_utf8(held)


@contextlib.contextmanager
def new_file(path: Path, keep: bool = True) -> Iterator[Any]:
    """Open a file under a temporary name; on success rename it to `path`, or remove it if it is not to be kept."""
    path = os.path.abspath(path)
    folder = os.path.dirname(path)
    regular = not os.path.exists(path) or os.path.isfile(path)
    require(regular, f"refusing to overwrite {path}: not a regular file")
    require(not os.path.isfile(folder), f"{folder} is not a folder")
    os.makedirs(folder, exist_ok=True)
    temporary = f"{path}.{os.urandom(6).hex()}.tmp"
    try:
        with open(temporary, "wb") as file:
            yield file
        if keep:
            os.replace(temporary, path)
    except OSError as error:
        if error.filename in (None, temporary):  # the error of a full disk has no name
            error.filename = path
        raise
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)


def say(text: str, stream: str = "stdout", end: str = "\n") -> None:
    """Print to a stream; if it is closed or full, go on, because that must never abort training."""
    if text and (file := getattr(sys, stream)):
        try:
            print(text, end=end, file=file, flush=True)
        except OSError:  # Python would try again at its end, fail, and change the exit status
            os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())


def with_progress(items: Iterable[Any], label: str, unit: str, total: int | None, show: bool) -> Iterator[Any]:
    """Pass items on, and show how many came: on a terminal in one line, elsewhere a line every ten seconds.

    For MB, items are (slice, result), and the bytes of the slices are counted.
    """
    if not (show and sys.stderr):
        yield from items
        return
    one_line = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    interval, width = (0.2, shutil.get_terminal_size().columns - 1) if one_line else (10, 200)
    begin, end = ("\r", "\x1b[K") if one_line else ("", "\n")
    if one_line:
        say(f"{label}: preparing", "stderr", "")
    done, scale = 0, 1e6 if unit == "MB" else 1
    start = shown_at = time.monotonic()
    try:
        for number, item in enumerate(items):
            done, now = (done + item[0].n_bytes if unit == "MB" else number), time.monotonic()
            if not done:  # time is measured from the first merge, before which the learner counts all pairs
                start = shown_at = now
            elif now - shown_at > interval:
                shown_at, speed = now, done / (now - start)
                left = f" ({done / total:.0%}), {(total - done) / speed:.0f} s left" if total else ""
                text = f"{label}: {done / scale:,.0f} {unit}{left}, {speed / scale:,.0f} {unit}/s"
                say(f"{begin}{text[:width]}{end}", "stderr", "")
            yield item
    finally:
        if one_line:
            say("\r\x1b[K", "stderr", "")


def plural(n: int, noun: str) -> str:
    """Count something: plural(1, "merge") -> "1 merge"; plural(1234, "merge") -> "1,234 merges"."""
    return f"{n:,} {noun}{'s' * (n != 1)}"


def readable(tokens: Iterable[bytes]) -> str:
    r"""Write tokens so that each byte can be seen: readable([b"\n", b" the", b"\xe4"]) -> "\\n ␣the \\xe4"."""
    text = " ".join(token.decode("utf-8", "backslashreplace").replace(" ", "␣") for token in tokens)
    return visible(text).replace("\n", "\\n")


def visible(text: str) -> str:
    r"""Escape control characters, except for line feeds, so that text can't do anything to a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


# ---------------------------------------------------------------------------------------------------------------------
# VII. The command line
# ---------------------------------------------------------------------------------------------------------------------

USAGE = "bpe.py CORPUS [CORPUS ...] VOCAB_SIZE [options]"
EXAMPLES = """examples:
  python bpe.py corpus.txt 32k                    train, and write the model into the folder bpeModel
  python bpe.py corpus.txt --encode ids.npy       write the token ids of a corpus, with that model
  python bpe.py --show "Hello, world!"            show how that model splits text into tokens"""
MISTAKES = {  # option names from other tools
    "--vocab-size": "the size comes after the corpus: bpe.py corpus.txt 10000",
    "--special-tokens": "use --special-token, once for each",
}


def as_typed(text: str) -> str:
    """Name this program as it was started: as bpe.py, or as the command that pip installs."""
    installed = os.path.basename(sys.argv[0]).startswith("bpe-py")
    return text.replace("python bpe.py", "bpe-py").replace("bpe.py", "bpe-py") if installed else text


def positive(text: str) -> int:
    """Read the number of an option."""
    import argparse

    if not re.fullmatch(r"\d+", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text!r}")
    return int(text)


def refuse(message: str) -> None:
    """Report what argparse finds wrong as a ValueError."""
    for option, hint in MISTAKES.items():
        if f"unrecognized arguments: {option}" in message:
            message = f"unknown option {option}: {hint}"
    raise ValueError(re.sub(r"^argument (\S+): must", r"\1 must", message))


def make_parser() -> Any:
    """Return the parser of all options, in four groups; each field of Options is set under its own name."""
    import argparse

    parser = argparse.ArgumentParser(
        usage=as_typed(USAGE), description="Train a BPE tokenizer on UTF-8 text.", epilog=as_typed(EXAMPLES),
        add_help=False, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.error = refuse  # type: ignore[method-assign, assignment]
    group = parser.add_argument_group("input")
    add, add_one = group.add_argument, group.add_mutually_exclusive_group().add_argument
    add("corpus", nargs="*", metavar="CORPUS ... VOCAB_SIZE", help="text files or - (stdin), then 10000 or 32k")
    help_text = "repeat for each; replaces the default, <|endoftext|>"
    add_one("--special-token", action="append", dest="special_tokens", metavar="TEXT", help=help_text)
    add_one("--no-special-tokens", action="store_const", const=[], dest="special_tokens", help="not even <|endoftext|>")
    add("--pattern", help=f"{', '.join(PATTERNS)} or a custom pattern (default: gpt2)")
    add("--errors", choices=CHOICES["errors"], help="replace: read invalid UTF-8 as U+FFFD")
    add("--newlines", choices=CHOICES["newlines"], help=r"lf: read \r\n as \n")
    add = parser.add_argument_group("training").add_argument
    add("--min-frequency", type=positive, metavar="N", help="merge no pair that occurs less often")
    add("--max-token-length", type=positive, metavar="BYTES", help="merge no pair into a longer token")
    add("--like", choices=["huggingface"], help="the merges and ids of Hugging Face's trainer")
    add("--workers", type=positive, metavar="N", help="processes or threads that count or encode (default: all cores)")
    add("--engine", choices=CHOICES["engine"], help="auto: the C engine if it is built (default)")
    add = parser.add_argument_group("output").add_argument
    folder_help = "the folder of the model, which is written or read (default: bpeModel)"
    add("--model", "--output-dir", dest="output_dir", metavar="FOLDER", help=folder_help)
    encode_help = "write the token ids of the corpus to a .npy or .bin file; without a size, with the model in FOLDER"
    add("--encode", metavar="FILE", help=encode_help)
    add("--log-every", type=positive, metavar="N", help="print every Nth merge")
    add("--quiet", action="store_false", dest="progress", help="no progress and no summary")
    add = parser.add_argument_group("looking").add_argument
    add("--explain", type=positive, metavar="N", help="say why the first N merges are made; saves only to FOLDER")
    add("--show", metavar="TEXT", help="show how the model in FOLDER splits TEXT (-: standard input)")
    add("--version", action="version", version=as_typed(f"bpe.py {__version__}"))
    add("--help", "-h", action="help", help="print this")
    return parser


def check_command(args: Any) -> None:
    """Check what was typed; set args.vocab_size to the size at the end of the corpus, or None, and args.folder."""
    typed, args.vocab_size = " ".join(args.corpus), None
    last = args.corpus[-1] if args.corpus else ""
    if re.fullmatch(r"-?\d+[kK]?", last):
        args.vocab_size = int(args.corpus.pop().lower().replace("k", "000"))
    elif re.fullmatch(r"-?\d[\d.,_]*([eE]\d+)?[kKmMgG]?", last) and not os.path.exists(last):
        raise ValueError(f"{last!r} is not a size: write 1000 or 1k")
    for name in ("output_dir", "encode", "pattern"):
        require(getattr(args, name) != "", f"{option_of(name)} must not be empty")
    args.folder = args.output_dir or ("" if args.explain else "bpeModel")
    unused = ["min_frequency", "max_token_length", "like", "explain", "log_every"]
    message = "{} is for training; without a size, --encode uses a model"
    if args.show is not None:
        require(not typed, f"--show can't be combined with a corpus or a size: {typed}")
        require(args.special_tokens != [], "--show can't be combined with --no-special-tokens")
        unused += ["special_tokens", "pattern", "errors", "newlines", "workers", "encode"]
        message = "--show can't be combined with {}"
    else:
        require(typed or not args.encode, "--encode requires a corpus: bpe.py corpus.txt --encode ids.npy")
        require(typed, as_typed(f"a corpus and a vocabulary size are required\nusage: {USAGE}\n{EXAMPLES}"))
        valid = args.corpus and (args.vocab_size is not None or args.encode)
        usage = "give a corpus and, last, the vocabulary size: bpe.py corpus.txt 10000"
        require(valid, f"{usage} (a size is not required with --encode); not bpe.py {typed}")
    if args.vocab_size is None:
        for name in unused:
            require(getattr(args, name) is None, message.format(option_of(name)))


def option_of(name: str) -> str:
    """Return an option as it is typed: option_of("min_frequency") -> "--min-frequency"."""
    names = {"special_tokens": "--special-token", "output_dir": "--model"}
    return names.get(name) or "--" + name.replace("_", "-")


def options_of(args: Any, special_tokens: Sequence[str], pattern: str = "gpt2") -> Options:
    """Return the checked options of a command line; special tokens and pattern are used if none are given."""
    given = {name: getattr(args, name) for name in Options._fields if getattr(args, name) is not None}
    quiet = args.explain or args.log_every or not (sys.stderr and sys.stderr.isatty())  # print one thing at a time
    given["progress"] = args.progress and not quiet
    return check_options(**{"special_tokens": special_tokens, "pattern": pattern, **given})


class Summary:
    """The lines that a run prints at its end, and how long each step took."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.times: list[str] = []
        self.last = time.perf_counter()

    def add(self, name: str, text: str) -> None:
        """Add a line."""
        self.lines.append(f"{name:14} {visible(text)}")

    def end_step(self, name: str, n_bytes: int = 0) -> str:
        """Note that a step has ended; return how much it read, and how fast."""
        start, self.last = self.last, time.perf_counter()
        seconds = self.last - start
        self.times.append(f"{name} {seconds:.2f} s")
        return f"{n_bytes:,} bytes, {n_bytes / seconds / 1e6:,.0f} MB/s"

    def finish(self, options: Options, saved: str) -> None:
        """Add the lines about the run as a whole."""
        self.add("time", ", ".join(self.times))
        with contextlib.suppress(ImportError):  # not on Windows
            from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

            unit = 1 if sys.platform == "darwin" else 1024
            largest = max(getrusage(who).ru_maxrss for who in (RUSAGE_SELF, RUSAGE_CHILDREN))  # of all processes
            self.add("peak memory", f"{largest * unit / 1e6:,.0f} MB")
        engine, why_not = find_engine() if options.engine != "python" else (None, "")
        used = f"Python ({why_not})" if why_not else "Python"
        if engine:
            used = "C" if options.pattern in engine.patterns else "C, but Python for the words of this pattern"
        self.add("engine", used)
        self.add("saved", saved)


def train_command(args: Any, summary: Summary) -> None:
    """Train on the corpus, save the model, and encode the corpus if that is asked for."""
    options = options_of(args, special_tokens=["<|endoftext|>"])
    if args.encode:
        for path in args.corpus:
            require(any(stamp_of(path)), f"{path} can't be read twice, to train on it and to encode it")
        check_output(args.encode, args.corpus)
    require(args.folder or not args.encode, "--explain and --encode require --model, or the ids would have no model")
    if args.folder:
        check_savable(options, args.folder)
    words, n_bytes, unmatched = count_corpus(args.corpus, None, options)
    summary.add("read", summary.end_step("counting", n_bytes))
    distinct, total, in_words = words.totals()
    require(total, "the corpus has no words, so there is nothing to learn from; nothing was saved")
    require(not (args.encode and unmatched), "--encode requires a pattern that leaves no text out")
    heads = [read_bytes(path, 0, HEAD_BYTES) for path in args.corpus if stamp_of(path)[0]]
    if options.newlines == "keep" and any(b"\r\n" in head for head in heads):
        summary.add("note", r"lines end in \r\n, which is kept; --newlines lf reads them as \n")
    if any(path.endswith((".jsonl", ".json")) for path in args.corpus):
        summary.add("note", "JSON is read as plain text, with its braces; the README shows how to train on its texts")
    summary.add("pre-tokens", f"{total:,}, {distinct:,} of them distinct")
    counts = words.to_dict() if args.explain else {}
    trainer = Trainer(words, options)
    for number, (left, right, count) in enumerate(explained(trainer, counts, args.explain or 0), 1):
        if args.log_every and number % args.log_every == 0:
            say(f"{number}\t{readable((left, right))} -> {readable([left + right])}\t{count}")
    vocab, merges = trainer.finish()
    summary.end_step("learning")
    add_vocabulary(summary, trainer, in_words)
    if args.folder:
        save_model(vocab, merges, options, args.folder)
        summary.end_step("saving")
    if args.encode:
        add_encoding(summary, Tokenizer(vocab, merges, options.special_tokens, options.pattern), args, options)
    saved = ", ".join(filter(None, (args.folder, args.encode)))
    summary.finish(options, saved or "nothing; --explain saves only with --model")


def encode_command(args: Any, summary: Summary) -> None:
    """Encode the corpus with the model in a folder, which no option may contradict."""
    tokenizer = load_for_command_line(args.folder)
    model = tokenizer.options
    options = options_of(args, model.special_tokens, model.pattern)
    for name in ("special_tokens", "pattern"):
        ours, theirs = getattr(options, name), getattr(model, name)
        require(ours == theirs, f"{args.folder} was trained with {name}={theirs!r}, not {ours!r}")
    add_encoding(summary, tokenizer, args, options)
    summary.finish(options, args.encode)


def add_encoding(summary: Summary, tokenizer: Tokenizer, args: Any, options: Options) -> None:
    """Encode the corpus into a file, and add a line about it."""
    n_ids, n_bytes = encode_corpus(tokenizer, args.corpus, None, args.encode, options)
    read = summary.end_step("encoding", n_bytes)
    summary.add("encoded", f"{read}: {plural(n_ids, 'token')}, {n_bytes / max(n_ids, 1):.2f} bytes per token")


def add_vocabulary(summary: Summary, trainer: Trainer, in_words: int) -> None:
    """Add lines about the vocabulary that was learned, and why it is smaller than requested."""
    options, n_specials = trainer.options, len(trainer.options.special_tokens)
    size = len(trainer.tokens) + n_specials
    text = f"{size:,} = 256 bytes + {plural(n_specials, 'special token')} + {plural(len(trainer.merges), 'merge')}"
    if size < options.vocab_size:
        limited = options.min_frequency > 1 or options.max_token_length
        why = "no pair is left within the given limits" if limited else "every word is a single token now"
        text += f"; {options.vocab_size:,} requested; {why}"
    summary.add("vocabulary", text)
    if trainer.merges:
        longest = max(trainer.tokens[256:], key=len)
        summary.add("longest token", f"{readable([longest]):.70}, {plural(len(longest), 'byte')}")
    if in_words:
        summary.add("compression", f"{in_words / trainer.n_tokens:.2f} bytes per token on this corpus")


def explained(trainer: Trainer, words: Mapping[bytes, int], rounds: int) -> Iterator[tuple[bytes, bytes, int]]:
    """Pass on the merges of a trainer; print why each of the first ones is made, and two words that it changes."""
    spelled = {tuple(bytes([byte]) for byte in word): count for word, count in words.items()}
    longest = trainer.options.max_token_length or sys.maxsize
    sort_key, rule = (smaller_id, "smaller ids win") if trainer.options.like else (descending, "greater bytes win")
    for number, (left, right, count) in enumerate(itertools.islice(trainer, rounds), 1):
        counts = {pair: n for pair, n in count_pairs(spelled).items() if len(pair[0] + pair[1]) <= longest}
        keys = {token: sort_key(token_id, token) for token_id, token in enumerate(trainer.tokens)}
        best = heapq.nsmallest(3, counts, key=lambda pair: (-counts[pair], keys[pair[0]], keys[pair[1]]))
        shown = ", ".join(f"{readable(pair)} ({plural(counts[pair], 'time')})" for pair in best)
        ties = list(counts.values()).count(count)
        why = f" ({ties} pairs tie at {count:,}; the {rule})" if ties > 1 else ""
        say(f"round {number}: {shown}\n    merge {readable((left, right))}{why}")
        changed = {word: new for word in spelled if (new := merge_pair(word, (left, right))) != word}
        for word in heapq.nlargest(2, changed, key=spelled.__getitem__):
            say(f"    {readable(word)} -> {readable(changed[word])} ({plural(spelled[word], 'time')})")
        spelled = {changed.get(word, word): n for word, n in spelled.items()}
        yield left, right, count
    yield from trainer


def load_for_command_line(folder: str) -> Tokenizer:
    """Load the model in a folder; if it has no model, the error says what to do."""
    try:
        return Tokenizer.load(folder)
    except FileNotFoundError:
        raise ValueError(f"no model in {folder}: train one first, or name its folder with --model") from None


def show_command(args: Any) -> None:
    """Print text with its tokens set apart, their ids, and how many bytes per token that is."""
    text = b"".join(blocks_of_pipe("-")).decode("utf-8") if args.show == "-" else args.show
    tokenizer = load_for_command_line(args.folder)
    ids = tokenizer.encode(text)
    tokens = [visible(tokenizer.vocab[token_id].decode("utf-8", "backslashreplace")) for token_id in ids]
    if sys.stdout and sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb":
        shown = "".join(f"\x1b[30;{46 - 3 * (n % 2)}m{token}\x1b[0m" for n, token in enumerate(tokens))
    else:
        shown = "|".join(tokens)
    n_bytes = len(tokenizer.decode_bytes(ids))
    sizes = f"{plural(len(ids), 'token')}, {plural(n_bytes, 'byte')}, {n_bytes / max(len(ids), 1):.2f} bytes per token"
    require(sys.stdout, "standard output is closed")
    with contextlib.suppress(BrokenPipeError):  # as with `| head -1`
        print(shown, " ".join(map(str, ids)), sizes, sep="\n", flush=True)


def end_on_signals() -> None:
    """Let SIGTERM and SIGHUP end this process in order, so that temporary files and worker processes go."""
    import signal

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number and signal.getsignal(number) == signal.SIG_DFL:
            with contextlib.suppress(ValueError):  # not in the main thread
                signal.signal(number, lambda number, frame: sys.exit(128 + number))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns 0, 1 (out of memory, a worker process killed), 2 (bad input) or 130 (Ctrl-C).
    """
    warnings.showwarning = lambda message, *rest: say(f"warning: {visible(str(message))}", "stderr")
    for stream in filter(None, (sys.stdout, sys.stderr)):  # show a token even if the terminal lacks its letters
        with contextlib.suppress(AttributeError):  # a stream that the caller replaced
            stream.reconfigure(errors="backslashreplace")
    try:
        end_on_signals()
        args = make_parser().parse_intermixed_args(argv)
        require("regex" in globals(), "the package regex is missing: pip install regex")
        check_command(args)
        summary = Summary()
        if args.show is not None:
            show_command(args)
        elif args.vocab_size is None:
            encode_command(args, summary)
        else:
            train_command(args, summary)
        status, text = 0, "\n".join(summary.lines) if args.progress else ""
    except KeyboardInterrupt:
        status, text = 130, "interrupted"
    except (RuntimeError, OverflowError, MemoryError) as error:
        status, text = 1, f"error: {visible(str(error)) or 'out of memory'}"
    except (ValueError, TypeError, OSError) as error:
        status, text = 2, f"error: {visible(str(error))}"
    say(text, "stderr")
    return status


if __name__ == "__main__":
    import gc

    gc.disable()  # few objects here are in cycles, and looking for them takes a tenth of learning in Python
    status = main()
    gc.freeze()  # else Python looks through all that is left, and frees it, before the process ends
    sys.exit(status)
