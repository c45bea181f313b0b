#!/usr/bin/env python3
# /// script
# requires-python = ">=3.10"
# dependencies = ["regex"]
# ///
r"""Byte-pair encoding: learn a vocabulary of tokens from text.

    python bpe.py corpus.txt 10000        writes bpeModel/vocab.json and bpeModel/merges.txt

The algorithm, in six lines:

    1. Cut the text into words, and count how often each one occurs.
    2. Write every word as a sequence of tokens; at first, a token is one byte.
    3. Count how often each pair of tokens stands side by side.
    4. Merge the most frequent pair into a new token, wherever it stands.
    5. Go on from 3 until the vocabulary has the size that was asked for.
    6. The merges, in the order in which they were made, are the tokenizer.

On equal counts the greater pair wins, comparing first the left token's bytes, then the right one's:
(b"s", b"t") before (b"e", b"s"), because b"s" > b"e".

Glossary, with a value for each term:

    word, pre-token  b" newest"             a stretch of text that no token crosses: what the pattern finds
    token            b"est"                 some bytes that the vocabulary has an id for
    token id         257                    its number: 0..255 are the single bytes, then come the special
                                            tokens, then one id for each merge
    pair             (101, 257)             the ids of two tokens that stand side by side
    merge            (b"e", b"st")          a pair that became a token, as bytes
    count            9                      how often a pair, or a word, occurs in the whole corpus
    special token    "<|endoftext|>"        a piece of text with a meaning of its own; never cut, never learned

>>> words = {b"low": 5, b"lower": 2, b"widest": 3, b"newest": 6}
>>> vocab = initial_vocab([])
>>> for left, right, count in learn_merges(words, vocab, vocab_size=260):
...     vocab[len(vocab)] = vocab[left] + vocab[right]
...     print(vocab[left], vocab[right], count)
b's' b't' 9
b'e' b'st' 9
b'o' b'w' 7
b'l' b'ow' 7

Sources: P. Gage, "A New Algorithm for Data Compression", C Users Journal 12(2), 1994; R. Sennrich, B. Haddow and
A. Birch, "Neural Machine Translation of Rare Words with Subword Units", ACL 2016; A. Radford et al., "Language
Models are Unsupervised Multitask Learners", 2019, the bytes and the pattern of GPT-2.
"""

from __future__ import annotations

import argparse
import array
import base64
import collections
import contextlib
import functools
import gzip
import hashlib
import heapq
import importlib.machinery
import importlib.util
import io
import itertools
import json
import multiprocessing
import multiprocessing.connection
import operator
import os
import queue
import signal
import stat
import struct
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, TextIO

import regex

__all__ = [
    "Tokenizer", "count_words", "export_huggingface", "export_tiktoken", "learn_merges", "load", "load_counts",
    "pretokenize", "save", "save_counts", "segment", "train_bpe", "train_from_counts",
]  # fmt: skip

Path = str | os.PathLike[str]


# ---------------------------------------------------------------------------------------------------------------------
# 1. Pre-tokenization: from text to words and their counts
# ---------------------------------------------------------------------------------------------------------------------

# Each pattern says what a word is; tokens never cross its borders. An English word takes the blank before it along
# (" the"), so that the text can be put together again without guessing where blanks stood.
PATTERNS = {
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$"
    r"|\s*[\r\n]|\s+(?!\S)|\s",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
CHARACTERS = "blanks"  # what stands for a pattern at the level of characters: words are what stands between blanks
TIKTOKEN_NAMES = {"r50k_base": "gpt2", "cl100k_base": "cl100k", "o200k_base": "o200k"}


class Rules(NamedTuple):
    """All that decides which words a text has: bytes -> decode -> newlines -> special tokens -> pattern."""

    pattern: str = "gpt2"  # a name from PATTERNS, or a regular expression
    special_tokens: tuple[str, ...] = ()
    errors: str = "strict"  # what bytes that are not UTF-8 do: "strict", "replace" (U+FFFD) or "ignore"
    newlines: str = "keep"  # or "lf": "\r\n" becomes "\n"


def make_rules(special_tokens: Iterable[str] | None, pattern: str, errors: str, newlines: str) -> Rules:
    """Check every part, so that bad input is an error before any work: -> Rules, or ValueError or TypeError."""
    if errors not in ("strict", "replace", "ignore"):
        raise ValueError(f"errors={errors!r} is not one of 'strict', 'replace', 'ignore'")
    if newlines not in ("keep", "lf"):
        raise ValueError(f"newlines={newlines!r} is not one of 'keep', 'lf'")
    if not isinstance(pattern, str):
        raise TypeError(f"pattern={pattern!r} is not a string")
    pattern = TIKTOKEN_NAMES.get(pattern, pattern)
    if pattern != CHARACTERS:
        compile_pattern(pattern)
    return Rules(pattern, check_special_tokens(special_tokens), errors, newlines)


def check_special_tokens(special_tokens: Iterable[str] | None) -> tuple[str, ...]:
    """check_special_tokens(["<|endoftext|>"]) -> ("<|endoftext|>",); ValueError or TypeError says what is wrong."""
    if isinstance(special_tokens, (str, bytes)):
        raise TypeError(f"special_tokens={special_tokens!r} is one string; a list of strings is needed")
    special_tokens = () if special_tokens is None else tuple(special_tokens)
    for place, token in enumerate(special_tokens):
        if not isinstance(token, str):
            raise TypeError(f"special token {token!r} is not a string")
        if not token:
            raise ValueError(f"special token number {place} (from 0) is empty")
        if token in special_tokens[:place]:
            raise ValueError(f"special token {token!r} is given twice")
        try:
            if len(token.encode("utf-8")) == 1:
                raise ValueError(f"special token {token!r} is a single byte, which has an id already")
        except UnicodeEncodeError:
            raise ValueError(f"special token {token!r} has a lone surrogate, which no UTF-8 text contains") from None
    return special_tokens


@functools.lru_cache(maxsize=32)
def compile_pattern(pattern: str) -> regex.Pattern[str]:
    """The compiled pattern for a name or a regular expression; ValueError if it is neither."""
    if pattern not in PATTERNS and not set(pattern) & set(r"\.^$*+?{}[]()|"):
        raise ValueError(f"pattern={pattern!r} is neither a regular expression nor one of {', '.join(PATTERNS)}")
    try:
        return regex.compile(PATTERNS.get(pattern, pattern))
    except regex.error as error:
        raise ValueError(f"pattern={pattern!r} is not a valid regular expression: {error}") from None


@functools.lru_cache(maxsize=32)
def compile_special_tokens(special_tokens: tuple[str, ...]) -> regex.Pattern[str] | None:
    """Matches any special token, the longest one where several begin at the same place; None if there are none."""
    if not special_tokens:
        return None  # an empty alternative would match everywhere
    longest_first = sorted(special_tokens, key=len, reverse=True)
    return regex.compile("|".join(map(regex.escape, longest_first)))


def split_on_special_tokens(text: str, special_tokens: tuple[str, ...]) -> list[str]:
    """The pieces between special tokens, which are walls: each piece is pre-tokenized as if it were a text of its own.

    >>> split_on_special_tokens("Hello!<|endoftext|>World", ("<|endoftext|>",))
    ['Hello!', 'World']
    """
    expression = compile_special_tokens(special_tokens)
    return expression.split(text) if expression else [text]


def find_words(text: str, pattern: str) -> list[str]:
    """find_words("It's  new", "gpt2") -> ["It", "'s", " ", " new"]: the whole matches, without empty ones."""
    if pattern == CHARACTERS:
        return [word for line in text.split("\n") for word in line.strip("\r ").split(" ") if word]
    expression = compile_pattern(pattern)
    if pattern in PATTERNS:
        return expression.findall(text)
    return [match[0] for match in expression.finditer(text) if match[0]]  # findall would return groups, if it has any


def pretokenize(text: str, special_tokens: Iterable[str] | None = None, pattern: str = "gpt2") -> Iterator[bytes]:
    """The words of a text, one after the other, as UTF-8; special tokens are left out.

    >>> list(pretokenize("Hello!<|endoftext|>new world", ["<|endoftext|>"]))
    [b'Hello', b'!', b'new', b' world']
    """
    rules = make_rules(special_tokens, pattern, "strict", "keep")
    pieces = split_on_special_tokens(text, rules.special_tokens)
    return (word.encode("utf-8") for piece in pieces for word in find_words(piece, rules.pattern))


def count_text(texts: Iterable[str], rules: Rules) -> tuple[dict[bytes, int], int]:
    """(count of each word, number of bytes that belong to no word) of texts; the second is 0 for named patterns."""
    pieces = [piece for text in texts for piece in split_on_special_tokens(text, rules.special_tokens)]
    counts: collections.Counter[str] = collections.Counter()
    if rules.pattern == "gpt2":
        # A GPT-2 word never goes on where whitespace follows something else. So the text is first counted in chunks
        # such as "\n    return" and each distinct chunk is searched for words once: 1.4 times faster on prose and code.
        chunks: collections.Counter[str] = collections.Counter()
        for piece in pieces:
            chunks.update(regex.findall(r"\s*\S+|\s+", piece))
        for chunk, count in chunks.items():
            for word in find_words(chunk, "gpt2"):
                counts[word] += count
    else:
        for piece in pieces:
            counts.update(find_words(piece, rules.pattern))
    words = {word.encode("utf-8"): count for word, count in counts.items()}
    if rules.pattern in PATTERNS or rules.pattern == CHARACTERS:
        return words, 0
    in_words = sum(len(word) * count for word, count in words.items())
    return words, sum(len(piece.encode("utf-8")) for piece in pieces) - in_words


# ---------------------------------------------------------------------------------------------------------------------
# 2. Learning merges: from counts of words to a list of merges
# ---------------------------------------------------------------------------------------------------------------------


PRINTABLE = {*range(33, 127), *range(161, 173), *range(174, 256)}  # the bytes that Latin-1 has a visible character for


def initial_vocab(special_tokens: Iterable[str], like: str | None = None) -> dict[int, bytes]:
    """The vocabulary before the first merge: 256 single bytes, then the special tokens in the order given.

    Hugging Face's trainer has the special tokens first, then the bytes in the order of their printable characters.
    """
    alphabet, specials = [bytes([byte]) for byte in range(256)], [token.encode("utf-8") for token in special_tokens]
    if like == "huggingface":
        return dict(enumerate(specials + sorted(alphabet, key=lambda byte: (byte[0] not in PRINTABLE, byte))))
    return dict(enumerate(alphabet + specials))


def words_as_ids(words: Iterable[bytes], vocab: Mapping[int, bytes], level: str) -> Iterator[list[int]]:
    """Each word as the ids of its first symbols: bytes, or at the level of characters those of character_symbols."""
    ids = {token: token_id for token_id, token in vocab.items()}
    if level == "char":
        return ([ids[symbol] for symbol in character_symbols(word)] for word in words)
    id_of_byte = [ids.get(bytes([byte]), 0) for byte in range(256)]
    return ([id_of_byte[byte] for byte in word] for word in words)


def learn_merges_by_definition(
    words: Mapping[bytes, int], vocab: Mapping[int, bytes], vocab_size: int, level: str = "byte"
) -> Iterator[tuple[int, int, int]]:
    """Yield (left_id, right_id, count) for one merge after the other: what byte-pair encoding is, and nothing more.

    It counts every pair again in every round. What follows below is the same thing made fast, in four steps. Each was
    measured on fixtures/corpus.txt, with a vocabulary of 500:

        8.9 s    the definition over the text as it is, word after word
        4.7 s    over distinct words with their counts: this function
        0.44 s   counts that are kept up to date, and an index from each pair to its words: merge_words
        0.047 s  a heap to find the best pair: learn_merges
        0.003 s  the same in C: learn_merges_in_c
    """
    tokens = dict(vocab)
    texts = list(zip(words_as_ids(words, vocab, level), words.values()))
    for new_id in range(len(tokens), vocab_size):
        counts: dict[tuple[int, int], int] = collections.defaultdict(int)
        for ids, count in texts:
            for pair in zip(ids, ids[1:]):
                counts[pair] += count
        if not counts:
            return
        left, right = max(counts, key=lambda pair: (counts[pair], tokens[pair[0]], tokens[pair[1]]))  # the tie rule
        yield left, right, counts[left, right]
        tokens[new_id] = tokens[left] + tokens[right]
        texts = [(merge_pair(ids, (left, right), new_id), count) for ids, count in texts]


def merge_pair(ids: list[int], pair: tuple[int, int], new_id: int) -> list[int]:
    """merge_pair([1, 1, 1, 2], (1, 1), 9) -> [9, 1, 2]: from left to right, without overlap.

    >>> merge_pair([1, 1, 1, 2], (1, 1), 9)
    [9, 1, 2]
    """
    merged, place = [], 0
    while place < len(ids):
        if tuple(ids[place : place + 2]) == pair:
            merged.append(new_id)
            place += 2
        else:
            merged.append(ids[place])
            place += 1
    return merged


def character_symbols(word: bytes) -> list[bytes]:
    """character_symbols(b"low") -> [b"l", b"o", b"w</w>"]: the characters; the last one carries the end of the word."""
    *symbols, last = (character.encode("utf-8") for character in word.decode("utf-8"))
    return [*symbols, last + b"</w>"]


def first_vocab(words: Any, special_tokens: Iterable[str], level: str, like: str | None = None) -> dict[int, bytes]:
    """initial_vocab, or at the level of characters the symbols that occur, sorted, and the special tokens."""
    if level == "byte":
        return initial_vocab(special_tokens, like)
    symbols = sorted({symbol for word in words for symbol in character_symbols(word)})
    return dict(enumerate(symbols + [token.encode("utf-8") for token in special_tokens]))


def positive_counts(words: Mapping[bytes, int]) -> Mapping[bytes, int]:
    """The same counts as ints, without words that do not occur; ValueError for a negative count."""
    if all(type(count) is int and count > 0 for count in words.values()):
        return words
    if negative := [word for word, count in words.items() if count < 0]:
        raise ValueError(f"the count of {negative[0]!r} is negative: {words[negative[0]]}")
    return {word: operator.index(count) for word, count in words.items() if count}


@dataclass
class Report:
    """What a training run can tell about itself; the summary of the command line is made of it."""

    bytes_read: int = 0
    bytes_unmatched: int = 0  # in no word, where a pattern of the user's own leaves gaps
    pretokens: int = 0
    distinct_words: int = 0
    bytes_in_words: int = 0
    tokens: int = 0  # how many tokens all words make up, with the merges made so far


def descending(token: bytes) -> str:
    """A sort key that turns the order of bytes round: descending(b"st") < descending(b"s") < descending(b"es").

    heapq keeps the smallest entry on top, and of equal counts the greatest bytes are wanted. The mark at the end makes
    a token that begins with another one come before it.
    """
    return "".join(chr(255 - byte) for byte in token) + chr(256)


def learn_merges(
    words: Mapping[bytes, int], vocab: Mapping[int, bytes], vocab_size: int, *, min_frequency: int = 1,
    max_token_length: int | None = None, like: str | None = None, given: Sequence[tuple[int, int]] = (),
    level: str = "byte", report: Report | None = None,
) -> Iterator[tuple[int, int, int]]:
    """Yield (left_id, right_id, count) for one merge after the other, best first.

    words maps each word to its count; vocab holds an id for every byte (or symbol) in it, and perhaps special tokens.
    New tokens get the ids len(vocab), len(vocab) + 1, ... up to vocab_size - 1. It stops earlier when no pair is left
    that occurs min_frequency times and whose token has at most max_token_length bytes. With like="huggingface", the
    smaller pair of ids wins a tie. Pairs of ids that are given are merged first, however often they occur. See the
    example at the top.

    The definition made fast. Nothing is counted twice: merging "e" and "st" changes only the pairs beside the new
    token, in the words that contain it. So the counts are kept up to date, an index says which words a pair stands
    in, and a heap says which pair is the best.
    """
    # A word is a str whose characters are token ids. Then one merge in one word is str.replace, which goes from left to
    # right without overlap, as it should ("aaa" becomes "aa" + "a"), and a pair is a str of two characters.
    words = positive_counts(words)
    texts = ["".join(map(chr, ids)) for ids in words_as_ids(words, vocab, level)]
    counts = list(words.values())
    pair_counts: dict[str, int] = collections.defaultdict(int)
    words_with: dict[str, set[int]] = collections.defaultdict(set)  # a pair -> the places in texts that may have it
    for place, text in enumerate(texts):
        for pair in map(operator.add, text, text[1:]):
            pair_counts[pair] += counts[place]
            words_with[pair].add(place)

    tokens = dict(vocab)
    tie_key: Any = operator.itemgetter(0) if like else lambda item: descending(item[1])  # of (token id, token)
    keys = {chr(token_id): tie_key((token_id, token)) for token_id, token in tokens.items()}
    least = max(min_frequency, 1)
    longest = max_token_length if max_token_length is not None else sys.maxsize

    def candidates(pairs: Iterable[str]) -> Iterator[tuple[int, Any, Any, str]]:
        for pair in pairs:
            if pair_counts[pair] >= least and len(tokens[ord(pair[0])]) + len(tokens[ord(pair[1])]) <= longest:
                yield -pair_counts[pair], keys[pair[0]], keys[pair[1]], pair  # the tie rule is the order of this tuple

    heap: list[tuple[int, Any, Any, str]] = []

    def best_pair() -> tuple[str, int]:
        # A merge can only lower the count of pairs that were there before, so an entry of the heap is never too small:
        # if it still tells the truth, it is the best; if not, it goes back with the count that it has now.
        while heap:
            negative_count, _, _, pair = heapq.heappop(heap)
            count = pair_counts.get(pair, 0)
            if count == -negative_count:
                return pair, count
            for entry in candidates([pair] if count else []):
                heapq.heappush(heap, entry)
        return "", 0

    for step in range(min(vocab_size - len(tokens), sys.maxsize)):
        if step == len(given):
            heap = list(candidates(pair_counts))
            heapq.heapify(heap)
        if step < len(given):
            pair = chr(given[step][0]) + chr(given[step][1])
            count = pair_counts.get(pair, 0)
        else:
            pair, count = best_pair()
            if not pair:
                return
        left_id, right_id, new_id = ord(pair[0]), ord(pair[1]), len(tokens)
        if new_id > sys.maxunicode:
            raise OverflowError(f"token id {new_id} is above {sys.maxunicode}, the largest that this engine can hold")
        yield left_id, right_id, count
        tokens[new_id] = tokens[left_id] + tokens[right_id]
        keys[chr(new_id)] = tie_key((new_id, tokens[new_id]))
        pair_counts.pop(pair, None)
        change, replaced = merge_words(texts, counts, words_with, pair, chr(new_id))
        for changed_pair, difference in change.items():
            pair_counts[changed_pair] += difference
            if not pair_counts[changed_pair]:
                del pair_counts[changed_pair], words_with[changed_pair]
        if step >= len(given):
            for entry in candidates(changed_pair for changed_pair in change if chr(new_id) in changed_pair):
                heapq.heappush(heap, entry)
        if report:
            report.tokens -= replaced


def merge_words(
    texts: list[str], counts: list[int], words_with: dict[str, set[int]], pair: str, new: str
) -> tuple[dict[str, int], int]:
    """Replace the pair by the new token in all words: -> (change of every other pair's count, pairs replaced).

    texts and words_with are brought up to date. For the word "newest" as n e w e s t and the pair "s" "t", the changes
    are: -1 for "e" "s", +1 for "e" "st", times the word's count.
    """
    left, right = pair[0], pair[1]
    change: dict[str, int] = collections.defaultdict(int)
    replaced = 0
    for place in words_with.pop(pair, ()):
        text, count = texts[place].replace(pair, new), counts[place]
        replaced += (len(texts[place]) - len(text)) * count
        texts[place] = text
        at = text.find(new)  # not found: the word lost this pair to an earlier merge
        while at >= 0:
            if at > 0 and text[at - 1] != new:  # where two new tokens meet, the left one has seen to it
                before = text[at - 1]
                change[before + left] -= count
                change[before + new] += count
                words_with[before + new].add(place)
            if at + 1 < len(text):
                after = text[at + 1]
                change[right + (left if after == new else after)] -= count
                change[new + after] += count
                words_with[new + after].add(place)
            at = text.find(new, at + 1)
    change.pop(pair, None)  # in "aaa", "a" "a" was its own neighbour
    return change, replaced


# ---------------------------------------------------------------------------------------------------------------------
# 3. Training: from a file to a vocabulary
# ---------------------------------------------------------------------------------------------------------------------


def train_bpe(
    input_path: Path | Iterable[Path], vocab_size: int, special_tokens: Iterable[str] | None, *, pattern: str = "gpt2",
    workers: int | None = None, min_frequency: int = 1, max_token_length: int | None = None, errors: str = "strict",
    newlines: str = "keep", level: str = "byte", like: str | None = None, merges: Iterable[tuple[bytes, bytes]] = (),
    engine: str = "auto", progress: bool = False, output_dir: Path | None = None,
) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    r"""Train a byte-level BPE tokenizer: -> (vocab, merges), token id -> bytes and the merges in order of creation.

    input_path        one path of a UTF-8 text or a list of them; "-" is standard input. The end of a file is a wall.
    vocab_size        how many tokens at the most: 256 bytes, the special tokens and the merges together. Fewer are
                      a result too: when no pair is left, there is nothing to merge.
    special_tokens    strings that keep an id of their own, after the 256 bytes; the text is cut at them first.
    pattern           "gpt2", "cl100k", "o200k" (or tiktoken's "r50k_base", "cl100k_base", "o200k_base"), or a regular
                      expression of the regex package. One of your own may match across any place in the text, so the
                      text is cut only at special tokens: the pieces between them must fit into memory, several times
                      over, and words can be long. What it does not match is not counted.
    workers           processes (with the C engine: threads) that count words; by default one for each core.
    min_frequency     the lowest count at which a pair is still merged.
    max_token_length  in bytes, for tokens made by merges.
    errors            what bytes that are not UTF-8 do: "strict" (an error), "replace" (by U+FFFD) or "ignore".
    newlines          "lf" turns "\r\n" into "\n" before anything else; "keep" leaves the text as it is.
    level             "char": words are what stands between blanks, their first symbols are characters, the last of
                      which carries "</w>", as in Sennrich et al. 2016; the vocabulary is the symbols that occur,
                      sorted, the special tokens and the merges.
    like              "huggingface": the merges and ids that the BpeTrainer of the tokenizers package learns, with the
                      byte-level alphabet, add_prefix_space=False, and the pieces between special tokens from an
                      iterator. (From whole documents it would learn pieces of the special tokens, from files it cuts at
                      newlines; its counts end at 2**31.) Ties go to the smaller pair of ids; special tokens come first.
    merges            those of an earlier training, made first, whatever their counts; so no token changes its id.
    engine            "python", "c" (an error where it is not built), or "auto": C if it is there; one result.
    progress          show progress bars on standard error.
    output_dir        save the result there too, as save() does.

    Raises ValueError or TypeError for arguments and for text that is not UTF-8 (with the file and the byte offset),
    OSError for files that cannot be read or written, RuntimeError when a worker process was killed, and OverflowError
    for counts beyond 2**63 - 1 in the C engine.
    """
    special_tokens = check_special_tokens(special_tokens)
    vocab_size = check_sizes(vocab_size, special_tokens, min_frequency, max_token_length, like, level)
    rules = make_rules(special_tokens, pattern_at(level, pattern), errors, newlines)
    if output_dir is not None:
        check_writable(output_dir)
    given = list(merges)
    check_merges(given, initial_vocab(special_tokens, like), vocab_size if level == "byte" else sys.maxsize)
    words = count_corpus(input_path, None, rules, workers, progress, Report(), use_c(engine))
    vocab, learned = train_from_counts(
        words, vocab_size, special_tokens, min_frequency=min_frequency, max_token_length=max_token_length,
        level=level, like=like, merges=given, engine=engine, progress=progress,
    )
    if output_dir is not None:
        save(vocab, learned, output_dir, level=level)
    return vocab, learned


def train_from_counts(
    words: Mapping[bytes, int] | CWords, vocab_size: int, special_tokens: Iterable[str] | None, *,
    min_frequency: int = 1, max_token_length: int | None = None, level: str = "byte", like: str | None = None,
    merges: Iterable[tuple[bytes, bytes]] = (), engine: str = "auto", progress: bool = False,
    report: Report | None = None,
    on_merge: Callable[[int, bytes, bytes, int], None] | None = None,
) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """The second half of train_bpe, from words and their counts: -> (vocab, merges).

    The counts are those of count_words or load_counts, with the same special tokens. The other arguments are those of
    train_bpe. on_merge is called for each merge with its number (from 1), the two tokens, and the count of the pair.
    """
    special_tokens = check_special_tokens(special_tokens)
    vocab_size = check_sizes(vocab_size, special_tokens, min_frequency, max_token_length, like, level)
    if level == "char":
        words = words.counts() if isinstance(words, CWords) else words
        report = report or Report()
        report.tokens = sum(len(word.decode("utf-8")) * count for word, count in words.items())
    vocab, learned = first_vocab(words, special_tokens, level, like), []
    if vocab_size < len(vocab):
        raise ValueError(f"vocab_size={vocab_size} is below the {len(vocab)} symbols and special tokens")
    given = check_merges(list(merges), vocab, vocab_size)
    if given and level == "char":
        raise ValueError("merges to go on from are possible with level='byte' only")
    learn: Any = learn_merges_in_c if use_c(engine) else learn_merges
    steps = learn(
        words, vocab, vocab_size, min_frequency=min_frequency, max_token_length=max_token_length, like=like,
        given=given, level=level, report=report,
    )
    with progress_bar("learning merges", vocab_size - len(vocab), "", progress) as advance:
        for new_id, (left_id, right_id, count) in enumerate(steps, len(vocab)):
            left, right = vocab[left_id], vocab[right_id]
            learned.append((left, right))
            vocab[new_id] = left + right
            if progress:
                advance(1)
            if on_merge:
                on_merge(len(learned), left, right, count)
    return vocab, learned


def check_merges(
    merges: Sequence[tuple[bytes, bytes]], vocab: Mapping[int, bytes], vocab_size: int
) -> list[tuple[int, int]]:
    """The merges of an earlier training as pairs of ids; ValueError names one that no training makes there."""
    ids, pairs = {token: token_id for token_id, token in vocab.items()}, []
    ranks: dict[tuple[bytes, bytes], int] = {}
    made: list[bytes] = []
    if len(vocab) + len(merges) > vocab_size:
        raise ValueError(f"vocab_size={vocab_size} is below the {len(vocab)} + {len(merges)} tokens that are given")
    for number, (left, right) in enumerate(merges):
        place, token = f"merge {number} (from 0), {left!r} + {right!r}", left + right
        for part in (left, right):
            if part not in ids:
                raise ValueError(f"{place}: there is no token {part!r} before it")
        before = merge_by_rank([bytes([byte]) for byte in token], ranks, made)
        if before != [left, right]:
            raise ValueError(f"{place}: the merges before it make {before} of these bytes")
        ranks[left, right] = number
        made.append(token)
        pairs.append((ids[left], ids[right]))
        ids[token] = len(ids)
    return pairs


def pattern_at(level: str, pattern: str) -> str:
    """The pattern, or what takes its place at the level of characters, where there is none to choose."""
    if level == "char" and pattern not in ("gpt2", CHARACTERS):
        raise ValueError(f"pattern={pattern!r} has no meaning with level='char', where words stand between blanks")
    return CHARACTERS if level == "char" else pattern


def check_sizes(
    vocab_size: int, special_tokens: Sequence[str], min_frequency: int, max_token_length: int | None,
    like: str | None, level: str,
) -> int:
    """vocab_size as an int; TypeError or ValueError where one of the numbers makes no sense."""
    numbers = {"vocab_size": vocab_size, "min_frequency": min_frequency, "max_token_length": max_token_length}
    for name, value in numbers.items():
        if value is not None and not hasattr(value, "__index__"):
            raise TypeError(f"{name}={value!r} is not a whole number")
    if level not in ("byte", "char"):
        raise ValueError(f"level={level!r} is not one of 'byte', 'char'")
    if vocab_size < 256 + len(special_tokens) and level == "byte":
        raise ValueError(f"vocab_size={vocab_size} is below 256 bytes + {len(special_tokens)} special token(s)")
    if min_frequency < 1:
        raise ValueError(f"min_frequency={min_frequency} is below 1")
    if max_token_length is not None and max_token_length < 1:
        raise ValueError(f"max_token_length={max_token_length} is below 1")
    if like not in (None, "huggingface"):
        raise ValueError(f"like={like!r} is not 'huggingface' (or None)")
    if like and level != "byte":
        raise ValueError("like='huggingface' is about bytes; level='char' has no meaning with it")
    if like and max_token_length is not None:
        raise ValueError("max_token_length with like='huggingface' is not possible: there it is off by one")
    return operator.index(vocab_size)


# ---------------------------------------------------------------------------------------------------------------------
# 4. Many cores: counting slices of a file side by side
# ---------------------------------------------------------------------------------------------------------------------

# Where a text may be cut without changing its words: two neighbouring characters that no word contains both of, and
# that nothing before or after can change. For GPT-2's pattern, whitespace that follows something else; the others take
# a line end along after punctuation, but not after a letter or a digit.
SAFE_CUTS = {
    "gpt2": r"(?<=\S)(?=\s)", "cl100k": r"(?<=[\p{L}\p{N}])(?=\s)", "o200k": r"(?<=[\p{L}\p{N}])(?=\s)",
    CHARACTERS: r"(?<=\n)",
}  # fmt: skip
SLICE_BYTES = 8 << 20  # about how much text a worker counts at a time; it needs some 20 times as much memory
WINDOW_BYTES = 64 << 10  # how much text is searched for a cut at a time

# Files that are no text but are often taken for it, by their first bytes.
NOT_TEXT = {
    b"\x1f\x8b": "gzip-compressed",
    **{b"BZh%d1AY&SY" % level: "bzip2-compressed" for level in range(1, 10)},
    b"\xfd7zXZ": "xz-compressed",
    b"\x28\xb5\x2f\xfd": "zstd-compressed",
    b"PK\x03\x04": "a zip archive",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}


SliceCounts = tuple[int, int, dict[bytes, int]]  # bytes read, bytes in no word, the count of each word


class Slice(NamedTuple):
    """A part of a corpus that can be counted on its own; small to send, unless it has to carry its text."""

    path: str
    start_byte: int
    end_byte: int | None  # None: to the end of the file
    data: bytes | None = None  # the bytes themselves, where they come from a pipe and cannot be read again
    texts: tuple[str, ...] = ()  # or texts that come from no file


def count_words(
    paths: Path | Iterable[Path] | None, special_tokens: Iterable[str] | None, *, texts: Iterable[str] | None = None,
    pattern: str = "gpt2", workers: int | None = None, executor: Executor | None = None, errors: str = "strict",
    newlines: str = "keep", engine: str = "auto", progress: bool = False,
) -> dict[bytes, int]:
    """The words of a corpus and their counts, {b" the": 61234, ...}; the first half of train_bpe, with its arguments.

    texts     instead of paths (which are None then): any iterable of strings, each a text of its own; it is consumed as
              it is counted, so it may be a data set that is larger than memory.
    executor  any concurrent.futures.Executor, also those of clusters (Dask's Client.get_executor(), mpi4py.futures):
              each task is count_slice of a path and a byte range, so the workers need this module and the files. What
              a lost worker was doing is the executor's to do again; a task that fails for good raises RuntimeError with
              its path and range.

    Memory grows with the number of distinct words, not with the corpus.
    """
    rules = make_rules(special_tokens, pattern, errors, newlines)
    words = count_corpus(paths, texts, rules, workers, progress, Report(), use_c(engine), executor)
    return words.counts() if isinstance(words, CWords) else words


def count_corpus(
    paths: Path | Iterable[Path] | None, texts: Iterable[str] | None, rules: Rules, workers: int | None, progress: bool,
    report: Report, in_c: bool, executor: Executor | None = None,
) -> dict[bytes, int] | CWords:
    """count_words with its arguments checked; what the C engine counts stays in it. Fills in the report."""
    if workers is not None and (not hasattr(workers, "__index__") or workers < 1):
        raise ValueError(f"workers={workers!r} is not a whole number from 1 on")
    if (paths is None) == (texts is None):
        raise ValueError("either paths or texts are needed")
    workers = workers or cores()
    slices, total = (slices_of_texts(texts), None) if texts is not None else slices_of_files(paths, rules)  # type: ignore
    words: dict[bytes, int] = {}
    tables = []
    if executor:
        results = count_in_executor(slices, rules, executor, in_c)
    elif in_c and c_can_count(rules):
        tables = [CWords(rules.special_tokens) for _ in range(workers)]
        results = count_in_threads(slices, rules, tables)
    else:
        results = count_in_processes(slices, rules, workers)
    with progress_bar("counting words", total, "B", progress) as advance:
        for bytes_read, unmatched, counts in results:
            for word, count in counts.items():
                words[word] = words.get(word, 0) + count
            report.bytes_read += bytes_read
            report.bytes_unmatched += unmatched
            advance(bytes_read)
    if tables:
        for table in tables[1:]:
            tables[0].add(table)
        tables[0].describe(report)
        return tables[0]
    describe(words, report)
    return words


def describe(words: Mapping[bytes, int], report: Report) -> None:
    """Fill the totals of some counts into the report."""
    report.pretokens, report.distinct_words = sum(words.values()), len(words)
    report.tokens = report.bytes_in_words = sum(len(word) * count for word, count in words.items())


def slices_of_files(paths: Path | Iterable[Path], rules: Rules) -> tuple[Iterator[Slice], int | None]:
    """(all slices of all files, their size in bytes if it is known); every file is looked at first."""
    path_list = list(map(os.fsdecode, [paths] if isinstance(paths, (str, bytes, os.PathLike)) else paths))
    if not path_list:
        raise ValueError("no corpus file is given")
    sizes = [check_file(path) for path in path_list]
    total = sum(size for size in sizes if size is not None) if None not in sizes else None
    return (piece for path, size in zip(path_list, sizes) for piece in slices_of(path, size, rules)), total


def slices_of_texts(texts: Iterable[str]) -> Iterator[Slice]:
    """Texts in bundles of about SLICE_BYTES characters; TypeError for what is no text."""
    if isinstance(texts, (str, bytes)):
        raise TypeError(f"texts={texts[:40]!r} is one string; an iterable of strings is needed")
    bundle: list[str] = []
    size = first = 0
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"text {number} (from 0) is {text!r}, not a string")
        if bundle and size + len(text) > SLICE_BYTES:
            yield Slice(f"texts {first} to {number - 1}", 0, None, texts=tuple(bundle))
            bundle, size, first = [], 0, number
        bundle.append(text)
        size += len(text)
    if bundle:
        yield Slice(f"texts from {first} on", 0, None, texts=tuple(bundle))


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_file(path: str) -> int | None:
    """The size of a file in bytes, None for a pipe; an error where it cannot be read or is not text."""
    if path == "-" or not (os.path.isdir(path) or stat.S_ISREG(os.stat(path).st_mode)):
        return None
    with open(path, "rb") as file:
        check_start(path, file.read(16))
        return os.fstat(file.fileno()).st_size


def check_start(path: str, start: bytes) -> None:
    """Look at the first bytes of a file: ValueError names a format that is not text, a byte-order mark is a warning."""
    for magic, format_name in NOT_TEXT.items():
        if start.startswith(magic):
            raise ValueError(f"{path}: this is {format_name}, not UTF-8 text; convert it first")
    if start.startswith(b"\xef\xbb\xbf"):
        print(f"warning: {path}: starts with a byte-order mark, which is kept as text", file=sys.stderr)


def slices_of(path: str, size: int | None, rules: Rules) -> Iterator[Slice]:
    """Cut a file (or a pipe, when size is None) into slices whose words are those of the whole."""
    if size is None:
        pipe = sys.stdin.buffer if path == "-" else open(path, "rb")  # noqa: SIM115 (closed below)
        with contextlib.nullcontext() if path == "-" else pipe:
            source = PipeReader(pipe)
            check_start(path, source.read(0, 16))
            for start, end in cuts_of(source.read, rules):
                data = source.take(end)
                yield Slice(path, start, start + len(data), data)
        return
    with open(path, "rb") as file:

        def read(start_byte: int, length: int) -> bytes:
            file.seek(start_byte)
            return file.read(length)

        for start, end in cuts_of(read, rules):
            yield Slice(path, start, end)


class PipeReader:
    """Reads a pipe forwards only, and looks ahead: read() keeps the bytes, take() hands them out."""

    def __init__(self, pipe: Any) -> None:
        self.pipe, self.start_byte, self.data = pipe, 0, bytearray()

    def read(self, start_byte: int, length: int) -> bytes:
        """So many bytes from start_byte on, fewer at the end."""
        begin = start_byte - self.start_byte
        missing = begin + length - len(self.data)
        if missing > 0:
            self.data += self.pipe.read(missing)
        return bytes(self.data[begin : begin + length])

    def take(self, end_byte: int | None) -> bytes:
        """All that was not taken yet, up to end_byte or to the end of the pipe."""
        if end_byte is None:
            self.data += self.pipe.read()
        length = len(self.data) if end_byte is None else end_byte - self.start_byte
        data = bytes(self.data[:length])
        del self.data[:length]
        self.start_byte += length
        return data


def cuts_of(read: Callable[[int, int], bytes], rules: Rules) -> Iterator[tuple[int, int | None]]:
    """(start_byte, end_byte) of one slice after the other, of about SLICE_BYTES; the end of the last one is None."""
    start: int = 0
    while (end := find_cut(read, start + SLICE_BYTES, rules)) is not None:
        yield start, end
        start = end
    yield start, None


def find_cut(read: Callable[[int, int], bytes], start_byte: int, rules: Rules) -> int | None:
    """The offset of the first safe cut at or after start_byte, None if the text ends before.

    read(start_byte, length) returns bytes of the text. A cut needs three things: a place where the pattern never joins
    (for an expression of the user's own, only the beginning of a special token); no special token, at any alignment,
    that the cut would divide (think of "a a" in "a a a a"); and valid UTF-8 all around, so that neither decoding nor
    bytes that get ignored can change what stands there.
    """
    if rules.pattern in SAFE_CUTS:
        place = regex.compile(SAFE_CUTS[rules.pattern])
    elif rules.special_tokens:
        place = regex.compile("(?=" + "|".join(map(regex.escape, rules.special_tokens)) + ")")
    else:
        return None
    margin = (
        2 * max(map(len, rules.special_tokens), default=0) + 2
    )  # in characters; twice, since "\r\n" may become "\n"
    while window := read(start_byte, WINDOW_BYTES + 8 * margin):
        text = window.decode("utf-8", "surrogateescape")  # bytes that are not UTF-8 become lone surrogates
        for match in place.finditer(text, margin, max(len(text) - margin, margin)):
            at = match.start()
            if may_cut(text[at - margin : at], text[at : at + margin], rules):
                return start_byte + len(text[:at].encode("utf-8", "surrogateescape"))
        start_byte += WINDOW_BYTES
    return None


def may_cut(before: str, after: str, rules: Rules) -> bool:
    """Whether all is valid UTF-8 (no lone surrogates), and no special token stands across the border."""
    if regex.search(r"\p{Cs}", before + after):
        return False
    if rules.newlines == "lf":
        if before[-1:] == "\r" and after[:1] == "\n":
            return False
        before, after = before.replace("\r\n", "\n"), after.replace("\r\n", "\n")
    for token in rules.special_tokens:
        overlap = len(token) - 1  # a token across the border takes at most this many characters of either side
        if overlap and token in before[-overlap:] + after[:overlap]:
            return False
    return rules.pattern in SAFE_CUTS or after.startswith(rules.special_tokens)


def read_slice(piece: Slice) -> bytes:
    """The bytes of a slice, as they are in the file."""
    if piece.data is not None:
        return piece.data
    with open(piece.path, "rb") as file:
        file.seek(piece.start_byte)
        return file.read() if piece.end_byte is None else file.read(piece.end_byte - piece.start_byte)


def decode_slice(piece: Slice, data: bytes, rules: Rules) -> str:
    """The text of a slice; ValueError names the file and the first byte that is not UTF-8."""
    try:
        text = data.decode("utf-8", rules.errors)
    except UnicodeDecodeError as error:
        offset, value = piece.start_byte + error.start, data[error.start]
        raise ValueError(
            f"{piece.path}: not valid UTF-8 at byte {offset} (0x{value:02x}, {error.reason}); "
            "errors='replace' or 'ignore' would read on"
        ) from None
    return text.replace("\r\n", "\n") if rules.newlines == "lf" else text


def encode_text(piece: Slice, text: str, rules: Rules) -> bytes:
    """A text that comes from no file as if it did; ValueError where it has lone surrogates."""
    try:
        return (without_surrogates(text) if rules.errors == "replace" else text).encode(
            "utf-8", "ignore" if rules.errors == "ignore" else "strict"
        )
    except UnicodeEncodeError as error:
        raise ValueError(f"{piece.path}: a lone surrogate at character {error.start} of {text[:40]!r}") from None


def count_slice(piece: Slice, rules: Rules) -> SliceCounts:
    """(bytes read, bytes in no word, count of each word) of one slice; this is what a worker does."""
    blobs = [encode_text(piece, text, rules) for text in piece.texts] if piece.texts else [read_slice(piece)]
    texts = [decode_slice(piece, blob, rules) for blob in blobs]
    words, unmatched = count_text(texts, rules)
    return sum(map(len, blobs)), unmatched, words


def count_in_processes(slices: Iterator[Slice], rules: Rules, workers: int) -> Iterator[SliceCounts]:
    """count_slice of every slice, in any order; in this process if there is one worker or one slice.

    This is not a pool of concurrent.futures, since there the workers share one pipe for their results, and one that is
    killed in the middle of a result leaves the caller waiting for ever. Here each has a pipe of its own, which breaks.
    """
    head = list(itertools.islice(slices, 2))
    slices = itertools.chain(head, slices)
    if workers == 1 or len(head) < 2 or multiprocessing.current_process().daemon:  # a daemon may have no children
        for piece in slices:
            yield count_slice(piece, rules)
        return
    processes: dict[Any, Any] = {}  # the parent's end of a pipe -> the worker at the other end
    busy: dict[Any, int] = {}  # ... -> the number of the slice that it counts
    errors: dict[int, Exception] = {}
    try:
        for number, piece in enumerate(slices):
            results = receive(busy, errors) if len(busy) == workers else []
            if errors:
                break
            connection = next((end for end in processes if end not in busy), None) or start_worker(processes, rules)
            connection.send(piece)
            busy[connection] = number
            yield from results
        while busy:
            yield from receive(busy, errors)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        guard = '; a script that trains needs `if __name__ == "__main__":` around its calls, or workers=1'
        guard = "" if multiprocessing.get_start_method() == "fork" else guard
        raise RuntimeError("a worker process died while it counted words (killed, or out of memory?)" + guard) from None
    finally:
        for process in processes.values():
            process.kill()  # after an error or Ctrl-C nobody waits for what it is doing
        for connection, process in processes.items():
            process.join()
            connection.close()
    if errors:
        raise errors[min(errors)]  # the first one in the text, whichever worker was faster


def start_worker(processes: dict[Any, Any], rules: Rules) -> Any:
    """Start one more worker, and put it into processes: -> the parent's end of its pipe."""
    connection, other_end = multiprocessing.Pipe()
    process = multiprocessing.Process(target=work, args=(other_end, rules), daemon=True)
    process.start()
    other_end.close()  # so that the worker holds the only one, and its end is the end of the pipe
    processes[connection] = process
    return connection


def receive(busy: dict[Any, int], errors: dict[int, Exception]) -> list[SliceCounts]:
    """Wait until at least one worker is done: -> results; who is done leaves busy, an error goes into errors."""
    results = []
    ready: list[Any] = multiprocessing.connection.wait(list(busy))
    for connection in ready:
        number = busy.pop(connection)
        try:
            result = connection.recv()
        except OSError:  # the end of the pipe within a message
            raise EOFError from None
        if isinstance(result, Exception):
            errors[number] = result
        else:
            results.append(result)
    return results


def work(connection: Any, rules: Rules) -> None:
    """What a worker process does: count slices until it is ended. It leaves Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()
    while True:
        piece = connection.recv()
        try:
            connection.send(count_slice(piece, rules))
        except Exception as error:
            connection.send(error)


def end_with_parent() -> None:
    """Do not outlive the parent, however it ends."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


def count_anywhere(piece: Slice, rules: Rules, in_c: bool) -> SliceCounts:
    """count_slice on some machine, in C if that is built there."""
    if not (in_c and C is not None and c_can_count(rules)):
        return count_slice(piece, rules)
    table = CWords(rules.special_tokens)
    bytes_read, unmatched, _ = table.count_slice(piece, rules)
    return bytes_read, unmatched, table.counts()


def count_in_executor(slices: Iterator[Slice], rules: Rules, executor: Executor, in_c: bool) -> Iterator[SliceCounts]:
    """count_slice of every slice, by whatever runs tasks; a few dozen are on their way at a time."""
    waiting: collections.deque[tuple[Slice, Future[SliceCounts]]] = collections.deque()

    def result() -> SliceCounts:
        piece, future = waiting.popleft()
        try:
            return future.result()
        except ValueError:  # about the text; it says where itself
            raise
        except Exception as error:
            end = "the end" if piece.end_byte is None else piece.end_byte
            place = f"{piece.path}, bytes {piece.start_byte} to {end}"
            raise RuntimeError(f"{place}: counting failed: {error!r}") from error

    try:
        for piece in slices:
            waiting.append((piece, executor.submit(count_anywhere, piece, rules, in_c)))
            if len(waiting) >= 64:
                yield result()
        while waiting:
            yield result()
    finally:
        for _, future in waiting:
            future.cancel()


# The C engine: bpe_fast.c, compiled by build_ffi.py into a module beside this file. Each of its three parts has the
# signature of its twin above.

C_VERSION = 4  # of the functions in it; an older module is not used


def load_c_engine() -> Any:
    """The compiled module, None if there is none or if it was built for another version of this file."""
    folder = os.path.dirname(os.path.abspath(__file__))
    spec = importlib.machinery.PathFinder.find_spec("_bpe_fast", [folder])
    if spec is None or spec.loader is None:
        return None
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError:  # built for another Python, or cffi is gone
        return None
    return module if getattr(module.lib, "BPE_VERSION", None) == C_VERSION else None


C = load_c_engine()


def use_c(engine: str) -> bool:
    """Whether the C engine is to run; ValueError if it is asked for and not there."""
    if engine not in ("auto", "python", "c"):
        raise ValueError(f"engine={engine!r} is not one of 'auto', 'python', 'c'")
    if engine == "c" and C is None:
        raise ValueError("engine='c', but the C engine is not built (or for another version): run python build_ffi.py")
    return engine != "python" and C is not None


def c_can_count(rules: Rules) -> bool:
    """Whether C counts as `regex` would: it knows GPT-2's pattern, with the letters of the regex it was built with."""
    return rules.pattern == "gpt2" and not c_classes_differ()


def character_classes() -> bytes:
    """A byte for each code point: 1 a letter, 2 a number, 3 whitespace, 0 any other, as the regex package has it."""
    everything, classes = "".join(map(chr, range(0x110000))), bytearray(0x110000)
    for number, expression in enumerate([r"\p{L}+", r"\p{N}+", r"\s+"], 1):
        for match in regex.finditer(expression, everything):
            classes[match.start() : match.end()] = bytes([number]) * len(match[0])
    return bytes(classes)


@functools.lru_cache(maxsize=1)
def c_classes_differ() -> bool:
    """True, with a warning, when the installed regex package calls other characters letters, numbers or whitespace."""
    built_with, digest = (C.ffi.string(text).decode() for text in (C.lib.bpe_regex_version, C.lib.bpe_class_digest))
    if built_with == regex.__version__ or digest == hashlib.sha256(character_classes()).hexdigest()[:16]:
        return False
    print(
        f"warning: the C engine knows the letters of regex {built_with}, and {regex.__version__} has others; "
        "counting with regex (python build_ffi.py builds it again)", file=sys.stderr,
    )  # fmt: skip
    return True


def c_check(status: int) -> None:
    """Turn a return code into an exception."""
    if status == C.lib.BPE_NO_MEMORY:
        raise MemoryError
    if status == C.lib.BPE_OVERFLOW:
        raise OverflowError("a count above 2**63 - 1, or more than 2**32 bytes of distinct words")


class CWords:
    """Words and their counts inside the C engine; there is no Python object for each of them."""

    def __init__(self, special_tokens: Iterable[str] = ()) -> None:
        longest_first = sorted((token.encode("utf-8") for token in special_tokens), key=len, reverse=True)
        lengths = list(map(len, longest_first))
        self.handle = C.ffi.gc(
            C.lib.bpe_words_new(b"".join(longest_first), lengths, len(lengths)), C.lib.bpe_words_free
        )
        if not self.handle:
            raise MemoryError

    def count_slice(self, piece: Slice, rules: Rules) -> SliceCounts:
        """The twin of count_slice; the words stay here."""
        offset, bytes_read = C.ffi.new("size_t *"), 0
        for data in (encode_text(piece, text, rules) for text in piece.texts) if piece.texts else (read_slice(piece),):
            plain = rules.errors == "strict" and rules.newlines == "keep"
            text = data if plain else decode_slice(piece, data, rules).encode("utf-8")
            status = C.lib.bpe_words_scan(self.handle, C.ffi.from_buffer("uint8_t[]", text), len(text), offset)
            if status == C.lib.BPE_BAD_UTF8:
                decode_slice(piece, data, rules)  # raises, and says where
            c_check(status)
            bytes_read += len(data)
        return bytes_read, 0, {}

    def add(self, other: CWords) -> None:
        """Add the counts of another table, which is given up."""
        c_check(C.lib.bpe_words_add(self.handle, other.handle))
        C.ffi.release(other.handle)

    def put(self, items: Collection[tuple[bytes, int]]) -> None:
        """Add words and counts from Python."""
        words, counts = [word for word, _ in items], [count for _, count in items]
        if max(counts, default=0) >= 1 << 63:
            c_check(C.lib.BPE_OVERFLOW)
        c_check(C.lib.bpe_words_put(self.handle, b"".join(words), list(map(len, words)), counts, len(counts)))

    def totals(self) -> Any:
        totals = C.ffi.new("bpe_totals *")
        C.lib.bpe_words_totals(self.handle, totals)
        return totals

    def describe(self, report: Report) -> None:
        totals = self.totals()
        report.pretokens, report.distinct_words = totals.pretokens, totals.words
        report.tokens = report.bytes_in_words = totals.bytes_in_words

    def counts(self) -> dict[bytes, int]:
        """All words, as a dict."""
        totals = self.totals()
        blob = bytearray(totals.bytes)
        lengths, counts = C.ffi.new("size_t[]", totals.words), C.ffi.new("uint64_t[]", totals.words)
        C.lib.bpe_words_get(self.handle, C.ffi.from_buffer("uint8_t[]", blob), lengths, counts)
        ends = itertools.accumulate(lengths)
        return {bytes(blob[end - length : end]): n for length, end, n in zip(lengths, ends, counts)}


def count_in_threads(slices: Iterator[Slice], rules: Rules, tables: list[CWords]) -> Iterator[SliceCounts]:
    """The twin of count_in_processes, with a thread for each table; C gives up Python's lock while it counts."""
    idle: queue.SimpleQueue[CWords] = queue.SimpleQueue()
    for table in tables:
        idle.put(table)

    def count(piece: Slice) -> SliceCounts:
        table = idle.get()
        try:
            return table.count_slice(piece, rules)
        finally:
            idle.put(table)

    waiting: collections.deque[Future[SliceCounts]] = collections.deque()
    with ThreadPoolExecutor(len(tables)) as pool:
        try:
            for piece in slices:
                waiting.append(pool.submit(count, piece))
                if len(waiting) > 2 * len(tables):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:  # after an error or Ctrl-C
                future.cancel()


def learn_merges_in_c(
    words: Mapping[bytes, int] | CWords, vocab: Mapping[int, bytes], vocab_size: int, *, min_frequency: int = 1,
    max_token_length: int | None = None, like: str | None = None, given: Sequence[tuple[int, int]] = (),
    level: str = "byte", report: Report | None = None,
) -> Iterator[tuple[int, int, int]]:
    """The twin of learn_merges; words that are in C already are used up."""
    if level == "char":  # C takes the ids themselves
        items = words.counts() if isinstance(words, CWords) else positive_counts(words)
        rows = words_as_ids(items, vocab, level)
        words = CWords()
        words.put([(array.array("I", ids).tobytes(), count) for ids, count in zip(rows, items.values())])
    elif not isinstance(words, CWords):
        mapping, words = words, CWords()
        words.put(positive_counts(mapping).items())
    first_ids = next(words_as_ids([bytes(range(256))], vocab, "byte")) if level == "byte" else C.ffi.NULL
    wanted, least = min(vocab_size - len(vocab), sys.maxsize), min(min_frequency, sys.maxsize)
    longest = min(max_token_length or sys.maxsize, sys.maxsize)
    learner, made = C.ffi.new("bpe_learner **"), C.ffi.new("size_t *")
    status = C.lib.bpe_learner_new(
        words.handle, first_ids, b"".join(vocab.values()),
        list(map(len, vocab.values())), len(vocab), wanted, least, longest, like is not None, bool(given),
        learner,
    )
    c_check(status)
    handle = C.ffi.gc(learner[0], C.lib.bpe_learner_free)
    batch = C.ffi.new("bpe_merge[]", max(min(wanted, 1000), 1))
    for left_id, right_id in given:
        c_check(C.lib.bpe_learner_follow(handle, left_id, right_id, batch))
        yield left_id, right_id, batch[0].count
        if report:
            report.tokens -= batch[0].replaced
    wanted -= len(given)
    if given:
        c_check(C.lib.bpe_learner_followed(handle, wanted, longest))
    while wanted > 0:
        c_check(C.lib.bpe_learner_run(handle, batch, min(wanted, len(batch)), made))
        for left_id, right_id, count, replaced in struct.iter_unpack("IIQQ", C.ffi.buffer(batch)[: 24 * made[0]]):
            yield left_id, right_id, count
            if report:
                report.tokens -= replaced
        if not made[0]:
            break
        wanted -= made[0]


# ---------------------------------------------------------------------------------------------------------------------
# 5. The tokenizer: from text to token ids and back
# ---------------------------------------------------------------------------------------------------------------------

CACHED_WORDS = 1 << 16  # how many words a Tokenizer remembers the ids of; a word of over 64 characters is never kept
HELD_BACK = 8  # characters at the end of a stream that the next ones may still change ("'l" + "l" is one word)
BLOCK = 1 << 16  # characters that encode_iterable looks at together, at the most


class Tokenizer:
    """Encodes text with a trained vocabulary: the merges are made again, in their order.

    vocab           {token id: token}; any ids, but each byte that a text has needs one
    merges          [(left, right), ...] in the order of training
    special_tokens  texts that get one id each; those that are not in the vocabulary get the next ids. Where several
                    begin at the same place, the longest counts. Without them, their text is text like any other.
    pattern         the one that the vocabulary was trained with

    >>> tokenizer = Tokenizer({0: b"a", 1: b"b", 2: b"ab", 3: b"abab"}, [(b"a", b"b"), (b"ab", b"ab")], ["<end>"])
    >>> tokenizer.encode("ababab<end>"), tokenizer.decode([3, 2, 4])
    ([3, 2, 4], 'ababab<end>')

    Raises ValueError where vocabulary and merges contradict each other, and says at which entry.
    """

    def __init__(
        self, vocab: Mapping[int, bytes], merges: Iterable[tuple[bytes, bytes]],
        special_tokens: Iterable[str] | None = None, pattern: str = "gpt2",
    ) -> None:
        self.vocab = dict(vocab)
        self.rules = make_rules(special_tokens, pattern, "strict", "keep")
        ids: dict[bytes, int] = {}
        for token_id, token in self.vocab.items():
            if ids.setdefault(token, token_id) != token_id:
                raise ValueError(f"vocabulary: the ids {ids[token]} and {token_id} have the same bytes, {token!r}")
        self.id_of_byte = [ids.get(bytes([byte])) for byte in range(256)]
        self.special_ids: dict[str, int] = {}
        for special in self.rules.special_tokens:
            token = special.encode("utf-8")
            self.special_ids[special] = ids.setdefault(token, max(self.vocab, default=-1) + 1)
            self.vocab[ids[token]] = token
        self.ranks: dict[tuple[int, int], int] = {}  # a pair -> its place in the list of merges
        self.merged: list[int] = []  # that place -> the id of the new token
        for rank, (left, right) in enumerate(merges):
            for token in (left, right, left + right):
                if token not in ids:
                    raise ValueError(f"merge {rank} (from 0), {left!r} + {right!r}: {token!r} is not in the vocabulary")
            if self.ranks.setdefault((ids[left], ids[right]), rank) != rank:
                raise ValueError(f"merge {rank} (from 0), {left!r} + {right!r}, is there twice")
            self.merged.append(ids[left + right])
        self.cache: dict[str, Sequence[int]] = WordCache(self.encode_word)

    @classmethod
    def from_files(
        cls, vocab_filepath: Path, merges_filepath: Path, special_tokens: Iterable[str] | None = None,
        pattern: str = "gpt2",
    ) -> Tokenizer:
        """A tokenizer from vocab.json and merges.txt, those of save() or GPT-2's; ValueError names a wrong entry."""
        vocab = read_vocab(vocab_filepath)
        if missing := {bytes([byte]) for byte in range(256)} - set(vocab.values()):
            raise ValueError(f"{os.fspath(vocab_filepath)}: has no token for the byte {min(missing)!r}")
        return cls(vocab, read_merges(merges_filepath), special_tokens, pattern)

    def encode(self, text: str) -> list[int]:
        """The token ids of a text. Lone surrogates, which no UTF-8 text has, count as U+FFFD.

        ValueError if a pattern of your own does not match all of the text, since the rest would be lost.
        """
        return list(self._encode_part(without_surrogates(text), 0, True)[0])

    def encode_iterable(self, iterable: Iterable[str]) -> Iterator[int]:
        """The ids of encode("".join(iterable)), one after the other, for texts of any size, cut anywhere.

        With a named pattern it keeps no more text than a block, or one word or run of blanks that is longer; a pattern
        of your own has to wait for the next special token.
        """
        waiting, offset, enough = "", 0, 0
        blocks = (text[start : start + BLOCK] for text in iterable for start in range(0, len(text), BLOCK))
        for block in blocks:
            waiting += block
            if len(waiting) < enough:  # it would be found to be too little again; looking each time were quadratic
                continue
            high = waiting[-1:] if "\ud800" <= waiting[-1:] <= "\udbff" else ""  # perhaps the first half of a pair
            waiting = without_surrogates(waiting[: len(waiting) - len(high)])
            ids, used = self._encode_part(waiting, offset, False)
            yield from ids
            waiting, offset = waiting[used:] + high, offset + used
            enough = 2 * len(waiting) + HELD_BACK
        yield from self._encode_part(without_surrogates(waiting), offset, True)[0]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some ids; bytes that are not UTF-8 become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of some ids; ValueError for an id that is not in the vocabulary."""
        vocab, ids = self.vocab, list(ids)
        try:
            return b"".join([vocab[token_id] for token_id in ids])
        except KeyError:
            place = next(place for place, token_id in enumerate(ids) if token_id not in vocab)
            raise ValueError(f"the id {ids[place]!r} at place {place} (from 0) is not in the vocabulary") from None

    def _encode_part(self, text: str, offset: int, is_end: bool) -> tuple[Iterator[int], int]:
        """(ids, number of characters they stand for) of a text, or of as much as is certain if more may follow.

        Certain are special tokens that no longer one can take the place of, and the words before them. Behind the last
        one, certain are words that end some characters before the end of the text, and before blanks at its end.
        """
        parts: list[Iterable[int]] = []
        expression = compile_special_tokens(self.rules.special_tokens)
        sure = len(text) if is_end or not expression else len(text) - max(map(len, self.special_ids)) + 1
        start = 0
        for match in expression.finditer(text) if expression else ():
            if match.start() >= sure:
                break
            parts.append(self._encode_words(self._words(text[start : match.start()], offset + start)))
            parts.append([self.special_ids[match[0]]])
            start = match.end()
        if is_end:
            parts.append(self._encode_words(self._words(text[start:], offset + start)))
            start = len(text)
        elif self.rules.pattern in PATTERNS and start < sure:
            piece = text[start:sure]
            certain = min(len(piece) - HELD_BACK, len(piece.rstrip()))
            if self.rules.pattern == "o200k":  # a small letter to come may join the capitals and marks before it
                certain = min(certain, len(regex.sub(r"(?r)[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+\Z", "", piece)))
            words, end = [], 0
            for word in find_words(piece, self.rules.pattern):
                if end + len(word) > certain:
                    break
                words.append(word)
                end += len(word)
            parts.append(self._encode_words(words))
            start += end
        return itertools.chain.from_iterable(parts), start

    def _words(self, piece: str, offset: int) -> list[str]:
        """The words of a piece between special tokens; they have to be all of it."""
        words = find_words(piece, self.rules.pattern)
        if self.rules.pattern not in PATTERNS and sum(map(len, words)) != len(piece):
            end = 0
            for match in compile_pattern(self.rules.pattern).finditer(piece):
                if match.start() > end:
                    break
                end = match.end()
            raise ValueError(f"the pattern leaves out text at character {offset + end}: {piece[end : end + 20]!r}")
        return words

    def _encode_words(self, words: list[str]) -> Iterator[int]:
        return itertools.chain.from_iterable(map(self.cache.__getitem__, words))

    def encode_word(self, word: str) -> list[int]:
        """The ids of one word: the merges are made in their order."""
        data = word.encode("utf-8")
        ids = [self.id_of_byte[byte] for byte in data]
        if None in ids:
            missing = data[ids.index(None) :][:1]
            raise ValueError(f"the vocabulary has no token for the byte {missing!r}, in {word[:40]!r}")
        return merge_by_rank(ids, self.ranks, self.merged)


def merge_by_rank(symbols: list[Any], ranks: Mapping[tuple[Any, Any], int], merged: Sequence[Any]) -> list[Any]:
    """Merge the pair of lowest rank, of equal ones the leftmost, until no pair has a rank.

    >>> merge_by_rank(["n", "e", "w", "e", "s", "t"], {("s", "t"): 0, ("e", "st"): 1}, ["st", "est"])
    ['n', 'e', 'w', 'est']

    A heap of (rank, place) finds it, so n symbols take n log n steps. A symbol that was merged into the one before it
    becomes None; links lead from each symbol that is left to its neighbours.
    """
    following, previous = list(range(1, len(symbols) + 1)), list(range(-1, len(symbols) - 1))
    heap = [(ranks[pair], place) for place, pair in enumerate(zip(symbols, symbols[1:])) if pair in ranks]
    heapq.heapify(heap)
    while heap:
        rank, left = heapq.heappop(heap)
        right = following[left]
        if right == len(symbols) or ranks.get((symbols[left], symbols[right])) != rank:
            continue  # another merge was there first
        symbols[left], symbols[right] = merged[rank], None
        following[left] = after = following[right]
        if after < len(symbols):
            previous[after] = left
            if (pair := (symbols[left], symbols[after])) in ranks:
                heapq.heappush(heap, (ranks[pair], left))
        before = previous[left]
        if before >= 0 and (pair := (symbols[before], symbols[left])) in ranks:
            heapq.heappush(heap, (ranks[pair], before))
    return [symbol for symbol in symbols if symbol is not None]


def segment(sentence: str, merges: Iterable[tuple[bytes, bytes]]) -> list[str]:
    """The symbols of a sentence, with merges that were learned at the level of characters.

    >>> segment("low lower", [(b"l", b"o"), (b"lo", b"w</w>"), (b"lo", b"w")])
    ['low</w>', 'low', 'e', 'r</w>']
    """
    pairs = [(left.decode("utf-8"), right.decode("utf-8")) for left, right in merges]
    ranks, merged = {pair: rank for rank, pair in enumerate(pairs)}, [left + right for left, right in pairs]
    symbols: list[str] = []
    for word in find_words(sentence, CHARACTERS):
        symbols += merge_by_rank([*word[:-1], word[-1] + "</w>"], ranks, merged)
    return symbols


class WordCache(dict[str, Sequence[int]]):
    """word -> ids, filled in where a word is missing; it is emptied when it has grown too large."""

    def __init__(self, encode_word: Callable[[str], list[int]]) -> None:
        super().__init__()
        self.encode_word = encode_word

    def __missing__(self, word: str) -> Sequence[int]:
        ids = tuple(self.encode_word(word))
        if len(word) <= 64:
            if len(self) >= CACHED_WORDS:
                self.clear()
            self[word] = ids
        return ids


def without_surrogates(text: str) -> str:
    """Make pairs of surrogates the character they stand for, and lone ones U+FFFD, as tiktoken does."""
    try:
        text.encode("utf-8")
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# ---------------------------------------------------------------------------------------------------------------------
# 6. Files: GPT-2's vocab.json and merges.txt
# ---------------------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def bytes_to_unicode() -> dict[int, str]:
    """A printable character for each byte, as GPT-2 has it: {33: "!", ..., 32: "Ġ", ...}.

    Bytes that are printable in Latin-1 stand for themselves, the 68 others become U+0100, U+0101, ... in their order.
    So every token is one "word" to any text tool, whatever its bytes are.
    """
    others = [byte for byte in range(256) if byte not in PRINTABLE]
    return {byte: chr(byte) for byte in sorted(PRINTABLE)} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def to_printable(token: bytes) -> str:
    """A token in printable characters: to_printable(b" the") is "Ġthe"."""
    return token.decode("latin-1").translate(bytes_to_unicode())


def from_printable(text: str) -> bytes:
    """from_printable("Ġthe") -> b" the"; ValueError names a character that stands for no byte."""
    byte_of = {character: byte for byte, character in bytes_to_unicode().items()}
    try:
        return bytes(byte_of[character] for character in text)
    except KeyError as error:
        raise ValueError(f"{text!r} has the character {error.args[0]!r}, which stands for no byte") from None


def save(
    vocab: Mapping[int, bytes], merges: Iterable[tuple[bytes, bytes]], output_dir: Path, *, level: str = "byte"
) -> None:
    """Write vocab.json and merges.txt into the folder output_dir, which is made if it is not there.

    At the level of characters tokens are written as they are; merges.txt is then a file of codes of subword-nmt.

    Both files are complete before either takes the place of an earlier one. ValueError if two ids have the same bytes,
    since vocab.json can't hold both.
    """
    show: Callable[[bytes], str] = to_printable if level == "byte" else bytes.decode
    ids: dict[str, int] = {}
    for token_id, token in vocab.items():
        if ids.setdefault(show(token), token_id) != token_id:
            raise ValueError(f"the ids {ids[show(token)]} and {token_id} have the same bytes, {token!r}")
    lines = [f"{show(left)} {show(right)}\n" for left, right in merges]
    write_files(
        output_dir,
        {
            "vocab.json": json.dumps(ids, ensure_ascii=False, indent=0) + "\n",
            "merges.txt": "#version: 0.2\n" + "".join(lines),
        },
    )


def export_huggingface(
    vocab: Mapping[int, bytes], merges: Iterable[tuple[bytes, bytes]], output_dir: Path,
    special_tokens: Iterable[str] | None, pattern: str = "gpt2",
) -> None:
    """Write tokenizer.json, which tokenizers.Tokenizer.from_file loads, and which encodes as Tokenizer does.

    Its regular expressions are those of Oniguruma, which may read an expression of your own in another way.
    """
    specials = check_special_tokens(special_tokens)
    ids = {to_printable(token): token_id for token_id, token in vocab.items()}
    added = []
    for special in specials:
        token_id = ids.pop(to_printable(special.encode("utf-8")), None)
        if token_id is None:
            raise ValueError(f"the special token {special!r} is not in the vocabulary")
        if special in ids:
            raise ValueError(f"tokenizer.json can't hold the special token {special!r}: another token is written so")
        ids[special] = token_id
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        added.append({"id": token_id, "content": special, **flags})
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    # in Oniguruma, {1,3}+ is one or more times {1,3}; nothing follows it in the pattern, so it need not be possessive
    expression = PATTERNS.get(TIKTOKEN_NAMES.get(pattern, pattern), pattern).replace("{1,3}+", "{1,3}")
    split = {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
        "vocab": dict(sorted(ids.items(), key=operator.itemgetter(1))),
        "merges": [[to_printable(left), to_printable(right)] for left, right in merges],
    }  # fmt: skip
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": None, "decoder": byte_level, "model": model,
    }  # fmt: skip
    write_files(output_dir, {"tokenizer.json": json.dumps(tokenizer, ensure_ascii=False, indent=0) + "\n"})


def export_tiktoken(vocab: Mapping[int, bytes], output_dir: Path, special_tokens: Iterable[str] | None) -> None:
    """Write vocab.tiktoken, which tiktoken.load.load_tiktoken_bpe reads: each token in base64, and its id.

    tiktoken takes the ids as ranks; that is right here, since ids grow in the order of the merges.
    """
    specials = {special.encode("utf-8") for special in check_special_tokens(special_tokens)}
    lines = [
        f"{base64.b64encode(token).decode('ascii')} {token_id}\n"
        for token_id, token in sorted(vocab.items()) if token not in specials
    ]  # fmt: skip
    write_files(output_dir, {"vocab.tiktoken": "".join(lines)})


def save_counts(words: Mapping[bytes, int], path: Path, pattern: str = "gpt2") -> None:
    """Write the counts of count_words: a line with the pattern, then "word count" lines, the most frequent word first.

    A word is in the printable characters of merges.txt, so it has no blank in it. Equal counts are in the order of the
    words' bytes. With a name that ends in .gz the file is compressed.
    """
    folder, name = os.path.split(os.path.abspath(path))
    lines = [f"#bpe-counts 1 {json.dumps(TIKTOKEN_NAMES.get(pattern, pattern))}\n"]
    in_order = sorted(words.items(), key=lambda item: (-item[1], item[0]))
    lines += [f"{to_printable(word)} {count}\n" for word, count in in_order if word and count]
    data = "".join(lines).encode("utf-8")
    write_files(folder, {name: gzip.compress(data, mtime=0) if name.endswith(".gz") else data})


def load_counts(paths: Path | Iterable[Path], pattern: str = "gpt2") -> dict[bytes, int]:
    """The counts of one or several files of save_counts, added up; ValueError names the file and line that is wrong."""
    words: dict[bytes, int] = {}
    for path in [paths] if isinstance(paths, (str, os.PathLike)) else paths:
        for word, count in read_counts(path, pattern):
            words[word] = words.get(word, 0) + count
    return words


def read_counts(path: Path, pattern: str) -> Iterator[tuple[bytes, int]]:
    """(word, count) for each line of a file of save_counts."""
    opener: Any = gzip.open if os.fspath(path).endswith(".gz") else open
    pattern = TIKTOKEN_NAMES.get(pattern, pattern)
    byte_of = dict.fromkeys(range(324), 65535) | {ord(text): byte for byte, text in bytes_to_unicode().items()}
    number = 0
    with opener(path, "rt", encoding="utf-8", newline="\n") as file:
        try:
            for number, line in enumerate(file, 1):
                if number == 1:
                    made_with = json.loads(line[14:] if line.startswith("#bpe-counts 1 ") else "")
                    if made_with != pattern:
                        raise ValueError(f"these counts were made with the pattern {made_with!r}, not {pattern!r}")
                    continue
                word, _, count = line.rstrip("\r\n").partition(" ")
                if not (word and count.isascii() and count.isdigit() and 0 < int(count) < 1 << 63):
                    raise ValueError(f"{line.rstrip()[:80]!r} is not a word, a blank, and a count from 1 to 2**63 - 1")
                yield word.translate(byte_of).encode("latin-1"), int(count)
        except UnicodeEncodeError:
            raise ValueError(f"{path}: line {number}: {word[:40]!r} has a character that stands for no byte") from None
        except json.JSONDecodeError:
            raise ValueError(f"{path}: line 1 is not a first line like #bpe-counts 1 \"gpt2\"") from None
        except (ValueError, EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path}: line {max(number, 1)}: {error}") from None
    if not number:
        raise ValueError(f"{path}: is empty, without even the first line of a file of counts")


def write_files(output_dir: Path, contents: Mapping[str, str | bytes]) -> None:
    """Write each file under a temporary name, then rename all: a file is whole or not there."""
    os.makedirs(output_dir, exist_ok=True)
    temporary = {os.path.join(output_dir, f"{name}.{os.urandom(6).hex()}.tmp"): name for name in contents}
    try:
        for path, name in temporary.items():
            content = contents[name]
            with open(path, "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode("utf-8"))
        for path, name in temporary.items():
            os.replace(path, os.path.join(output_dir, name))
    finally:
        for path in temporary:
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)


def check_writable(output_dir: Path) -> None:
    """Make the folder, and try to write into it: better an error now than after an hour of training."""
    os.makedirs(output_dir, exist_ok=True)
    with tempfile.TemporaryFile(dir=output_dir):
        pass


def load(output_dir: Path, *, level: str = "byte") -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    """Read back what save wrote, or GPT-2's own files: -> (vocab, merges)."""
    vocab_path, merges_path = (os.path.join(output_dir, name) for name in ("vocab.json", "merges.txt"))
    read: Callable[[str], bytes] = from_printable if level == "byte" else str.encode
    return read_vocab(vocab_path, read), read_merges(merges_path, read)


def read_vocab(path: Path, read: Callable[[str], bytes] = from_printable) -> dict[int, bytes]:
    """{token id: token} from a vocab.json, in the order of the ids; ValueError says which entry is wrong."""
    with open(path, encoding="utf-8") as file:
        try:
            ids = json.load(file)
        except ValueError as error:
            raise ValueError(f"{path}: not JSON: {error}") from None
    if not isinstance(ids, dict):
        raise ValueError(f"{path}: not a JSON object of tokens and ids")
    vocab: dict[int, bytes] = {}
    for text, token_id in ids.items():
        if type(token_id) is not int or token_id < 0:
            raise ValueError(f"{path}: the id of {text!r} is {token_id!r}, not a whole number from 0 on")
        if token_id in vocab:
            raise ValueError(f"{path}: the id {token_id} is given twice, the second time to {text!r}")
        try:
            vocab[token_id] = read(text)
        except ValueError as error:
            raise ValueError(f"{path}: token {error}") from None
    return dict(sorted(vocab.items()))


def read_merges(path: Path, read: Callable[[str], bytes] = from_printable) -> list[tuple[bytes, bytes]]:
    """[(left, right), ...] from a merges.txt, with or without its version line; ValueError names a wrong line."""
    merges = []
    with open(path, encoding="utf-8", newline="\n") as file:
        for number, line in enumerate(file, 1):
            if not line.strip("\r\n") or (number == 1 and line.startswith("#version")):
                continue
            try:
                left, right = line.rstrip("\r\n").split(" ")
                merges.append((read(left), read(right)))
            except ValueError as error:
                raise ValueError(f"{path}: line {number} is not two tokens with one blank between: {error}") from None
    return merges


# ---------------------------------------------------------------------------------------------------------------------
# 7. The command line
# ---------------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def progress_bar(label: str, total: int | None, unit: str, show: bool) -> Iterator[Callable[[int], Any]]:
    """A progress bar on standard error, as a function to call with each step; tqdm's, where tqdm is installed."""
    if not show:
        yield lambda steps: None
        return
    try:
        from tqdm import tqdm  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        bar = PlainBar(label, total, sys.stderr)
        yield bar.update
        bar.close()
    else:
        with tqdm(desc=label, total=total, unit=unit, unit_scale=True) as tqdm_bar:
            yield tqdm_bar.update


class PlainBar:
    """counting words:  45% -- one line that is written over, five times a second at the most."""

    def __init__(self, label: str, total: int | None, stream: TextIO) -> None:
        self.label, self.total, self.stream = label, total, stream
        self.done, self.shown_at = 0, 0.0

    def update(self, steps: int) -> None:
        self.done += steps
        if time.monotonic() - self.shown_at >= 0.2:
            self.show()

    def show(self, end: str = "") -> None:
        part = f"{self.done / self.total:4.0%}" if self.total else f"{self.done:,}"
        self.stream.write(f"\r{self.label}: {part}{end}")
        self.stream.flush()
        self.shown_at = time.monotonic()

    def close(self) -> None:
        self.show("\n")


def show_token(token: bytes) -> str:
    r"""A token as Python writes it: "' the'", or "b'\xe4'" where the bytes are no whole text."""
    try:
        return repr(token.decode("utf-8"))
    except UnicodeDecodeError:
        return repr(token)


def peak_memory() -> str:
    """'45 MB, and 61 MB in the largest worker'; '' where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return ""
    unit = 1 if sys.platform == "darwin" else 1024
    own, worker = (resource.getrusage(who).ru_maxrss * unit for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return f"{own / 1e6:,.0f} MB" + (f", and {worker / 1e6:,.0f} MB in the largest worker" if worker else "")


EXPORTS = {"huggingface": "tokenizer.json", "tiktoken": "vocab.tiktoken"}


def summary(
    args: argparse.Namespace, merges: list[tuple[bytes, bytes]], report: Report, seconds: list[float], is_full: bool
) -> str:
    """What a person wants to know of a training run, a line each."""
    rare = f"no pair left that occurs {args.min_frequency} time(s) or more"
    if args.max_token_length is not None:
        rare += f" and makes a token of at most {args.max_token_length} bytes"
    longest = max((left + right for left, right in merges), key=len, default=b"")
    shown = show_token(longest)
    names = ["vocab.json", "merges.txt", *(EXPORTS[kind] for kind in args.export)] if args.vocab_size else []
    saved = [os.path.join(args.output_dir, name) for name in names] + [args.save_counts] * bool(args.save_counts)
    lines = {
        "read": f"{report.bytes_read:,} bytes",
        "not matched": f"{report.bytes_unmatched:,} bytes, which the pattern leaves out",
        "pre-tokens": f"{report.pretokens:,}, of which {report.distinct_words:,} distinct",
        "merges": f"{len(merges):,}; stopped: " + ("the vocabulary is full" if is_full else rare),
        "longest token": f"{shown if len(shown) < 70 else shown[:66] + '...'}, {len(longest)} bytes",
        "compression": f"{report.bytes_in_words / max(report.tokens, 1):.2f} bytes per token on this corpus",
        "time": ", ".join(f"{phase} {s:.2f} s" for phase, s in zip(["counting", "learning", "saving"], seconds)),
        "peak memory": peak_memory(),
        "engine": "C" if use_c(args.engine) else "Python; `python build_ffi.py` builds one that is many times faster",
        "saved": ", ".join(saved),
    }
    if not report.bytes_unmatched:
        del lines["not matched"]
    if args.from_counts:
        del lines["read"]
    if args.vocab_size is None:
        del lines["merges"], lines["longest token"], lines["compression"]
    return "\n".join(f"{name:14} {text}" for name, text in lines.items() if text)


class Parser(argparse.ArgumentParser):
    """Errors are one line, and nothing else."""

    def error(self, message: str) -> Any:
        raise ValueError(f"{message} (see --help)")


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments as a namespace; the positional ones are taken apart here, since the last one is the size."""
    parser = Parser(
        prog="bpe.py", usage="%(prog)s CORPUS [CORPUS ...] VOCAB_SIZE [options]\n"
        "       %(prog)s CORPUS [CORPUS ...] --save-counts FILE\n"
        "       %(prog)s VOCAB_SIZE --from-counts FILE [FILE ...]\n"
        "       %(prog)s --show TEXT --output-dir DIR",
        description="Train a byte-level BPE tokenizer on UTF-8 text.",
    )
    parser.add_argument(
        "positional", nargs="*", metavar="CORPUS ... VOCAB_SIZE",
        help="text files, - for standard input; at the end the size of the vocabulary",
    )
    parser.add_argument(
        "--output-dir", default="bpeModel", help="folder for vocab.json and merges.txt (default: bpeModel)"
    )
    parser.add_argument(
        "--special-token", action="append", dest="special_tokens", metavar="TEXT",
        help="may be given several times (default: <|endoftext|>)",
    )
    parser.add_argument("--no-special-tokens", action="store_true", help="not even <|endoftext|>")
    parser.add_argument("--level", default="byte", choices=["byte", "char"], help="char: characters, then </w>")
    parser.add_argument("--explain", type=int, default=0, metavar="N", help="print why the first N merges are made")
    parser.add_argument("--show", metavar="TEXT", help="only show a text (-: standard input) in tokens of --output-dir")
    parser.add_argument("--pattern", default="gpt2", help="gpt2, cl100k, o200k or a regular expression (default: gpt2)")
    parser.add_argument("--workers", type=int, help="processes that count words (default: one for each core)")
    parser.add_argument(
        "--min-frequency", type=int, default=1, metavar="N", help="merge no pair that occurs less often (default: 1)"
    )
    parser.add_argument("--max-token-length", type=int, metavar="BYTES", help="merge no pair into a longer token")
    parser.add_argument(
        "--errors", default="strict", choices=["strict", "replace", "ignore"],
        help="what to do with bytes that are not UTF-8 (default: strict)",
    )
    parser.add_argument(
        "--newlines", default="keep", choices=["keep", "lf"], help=r"lf: read \r\n as \n (default: keep)"
    )
    parser.add_argument("--save-counts", metavar="FILE", help="write the counts of words too (or only them)")
    parser.add_argument("--from-counts", nargs="+", action="extend", metavar="FILE", help="learn from such files")
    parser.add_argument("--continue-from", metavar="FOLDER", help="make the merges in this folder first, then go on")
    parser.add_argument("--like", choices=["huggingface"], help="the merges and ids of Hugging Face's trainer")
    parser.add_argument(
        "--export", action="append", default=[], choices=list(EXPORTS),
        help="also write tokenizer.json, or vocab.tiktoken; may be given twice",
    )
    parser.add_argument(
        "--engine", default="auto", choices=["auto", "python", "c"], help="auto: the C engine, where it is built"
    )
    parser.add_argument("--log-every", type=int, metavar="N", help="print every Nth merge")
    parser.add_argument("--quiet", action="store_true", help="no progress and no summary")
    args = parser.parse_intermixed_args(argv)
    args.corpus, size = args.positional, None
    if args.show is not None:
        if args.corpus:
            raise ValueError(f"--show takes no corpus and no size, but there is {args.corpus[0]!r}")
    elif args.from_counts:
        if not args.corpus and len(args.from_counts) > 1:  # --from-counts FILE VOCAB_SIZE took both
            args.corpus = [args.from_counts.pop()]
        if len(args.corpus) != 1 or args.save_counts:
            raise ValueError("with --from-counts, a vocabulary size and nothing else is needed")
        size = args.corpus.pop()
    elif len(args.corpus) > 1 and not (args.save_counts and not is_number(args.corpus[-1])):
        size = args.corpus.pop()
    elif not (args.save_counts and args.corpus):
        raise ValueError("a corpus file and a vocabulary size are needed: bpe.py CORPUS [CORPUS ...] VOCAB_SIZE")
    if size is not None and not is_number(size):
        raise ValueError(f"the last argument, the size of the vocabulary, is {size!r}: not a whole number")
    args.vocab_size = None if size is None else int(size)
    if args.no_special_tokens and args.special_tokens:
        raise ValueError("--special-token and --no-special-tokens contradict each other")
    if args.continue_from and not args.special_tokens and not args.no_special_tokens:
        args.special_tokens = special_tokens_of(*load(args.continue_from))
    args.special_tokens = [] if args.no_special_tokens else args.special_tokens or ["<|endoftext|>"]
    if args.explain and args.continue_from:
        raise ValueError("--explain and --continue-from exclude each other: the first merges are given")
    if args.level == "char" and (args.export or args.continue_from):
        raise ValueError("--level char does not go with --export or --continue-from")
    if args.log_every is not None and args.log_every < 1:
        raise ValueError(f"--log-every {args.log_every} is below 1")
    return args


def is_number(text: str) -> bool:
    """Whether int() can read it."""
    try:
        int(text)
        return True
    except ValueError:
        return False


def special_tokens_of(vocab: Mapping[int, bytes], merges: Iterable[tuple[bytes, bytes]]) -> list[str]:
    """The special tokens of a vocabulary: what is neither a byte nor a merge, in the order of the ids."""
    others = {left + right for left, right in merges}
    return [token.decode("utf-8") for token in vocab.values() if len(token) > 1 and token not in others]


def merges_to_follow(args: argparse.Namespace) -> list[tuple[bytes, bytes]]:
    """The merges of --continue-from; ValueError if its vocabulary is not what they and the special tokens make."""
    if not args.continue_from:
        return []
    vocab, merges = load(args.continue_from)
    tokens = [*initial_vocab(args.special_tokens, args.like).values(), *(left + right for left, right in merges)]
    if vocab != dict(enumerate(tokens)):
        found = special_tokens_of(vocab, merges)
        raise ValueError(
            f"{args.continue_from}: this vocabulary, with the special tokens {found}, is not one that goes on from "
            f"{args.special_tokens}" + (" like huggingface" if args.like else "")
        )
    return merges


def explain(words: Mapping[bytes, int], vocab: dict[int, bytes], rounds: int, level: str, like: str | None) -> None:
    """Print the first rounds of training: the three best pairs, the choice, and two words that it changes."""

    def rank(pair: tuple[int, int]) -> Any:
        tie = (-pair[0], -pair[1]) if like else (tokens[pair[0]], tokens[pair[1]])
        return counts[pair], tie

    def show(ids: list[int]) -> str:
        return " ".join(tokens[token_id].decode("utf-8", "backslashreplace").replace(" ", "␣") for token_id in ids)

    tokens, texts = dict(vocab), list(zip(words_as_ids(words, vocab, level), words.values()))
    for number in range(1, rounds + 1):
        counts: collections.Counter[tuple[int, int]] = collections.Counter()
        for ids, count in texts:
            for pair in zip(ids, ids[1:]):
                counts[pair] += count
        if not counts:
            return
        best, *others = heapq.nlargest(3, counts, key=rank)
        ties = sum(1 for count in counts.values() if count == counts[best])
        why = "the smallest ids" if like else "the greatest bytes"
        print(f"round {number}: " + ", ".join(f"{show([*pair])} ({counts[pair]} times)" for pair in [best, *others]))
        tie = f", which has {why} of the {ties} that are so frequent" if ties > 1 else ""
        print(f"    merge {show([*best])}{tie}")
        new_id = len(tokens)
        tokens[new_id] = tokens[best[0]] + tokens[best[1]]
        merged = [(merge_pair(ids, best, new_id), count) for ids, count in texts]
        changed = [(count, before, after) for (before, count), (after, _) in zip(texts, merged) if before != after]
        for count, before, after in heapq.nlargest(2, changed, key=operator.itemgetter(0)):
            print(f"    {show(before)} -> {show(after)} ({count} times)")
        texts = merged


def show_text(args: argparse.Namespace) -> None:
    """Print a text with its tokens set apart, their ids, and how many bytes a token has."""
    text = sys.stdin.read() if args.show == "-" else args.show
    vocab, merges = load(args.output_dir, level=args.level)
    if args.level == "char":
        print(" ".join(segment(text, merges)))
        return
    tokenizer = Tokenizer(vocab, merges, special_tokens_of(vocab, merges), args.pattern)
    ids = tokenizer.encode(text)
    tokens = [vocab[token_id].decode("utf-8", "backslashreplace") for token_id in ids]
    if sys.stdout.isatty():
        print("".join(f"\x1b[30;{46 - 3 * (number % 2)}m{token}\x1b[0m" for number, token in enumerate(tokens)))
    else:
        print("|".join(tokens))
    print(*ids)
    size = len(tokenizer.decode_bytes(ids))
    print(f"{len(ids)} tokens, {size} bytes, {size / max(len(ids), 1):.2f} bytes per token")


def run(args: argparse.Namespace) -> None:
    """Count, learn, save, and say how it went."""
    if args.show is not None:
        show_text(args)
        return

    def log_merge(number: int, left: bytes, right: bytes, count: int) -> None:
        if number % args.log_every == 0:
            print(number, f"{show_token(left)} + {show_token(right)} -> {show_token(left + right)}", count, sep="\t")

    rules = make_rules(args.special_tokens, pattern_at(args.level, args.pattern), args.errors, args.newlines)
    merges = merges_to_follow(args)
    if args.vocab_size is not None:
        check_sizes(
            args.vocab_size, rules.special_tokens, args.min_frequency, args.max_token_length, args.like, args.level
        )
        if merges:
            check_merges(merges, initial_vocab(rules.special_tokens, args.like), args.vocab_size)
        check_writable(args.output_dir)
    if args.save_counts:
        if os.path.isdir(args.save_counts) or not os.path.isdir(os.path.dirname(os.path.abspath(args.save_counts))):
            raise ValueError(f"--save-counts {args.save_counts}: this is a folder, or in a folder that is not there")
        check_writable(os.path.dirname(os.path.abspath(args.save_counts)))
    vocab: dict[int, bytes] = {}
    report, times = Report(), [time.perf_counter()]
    show = sys.stderr.isatty() and not args.quiet
    if args.from_counts:
        words = counts_from_files(args.from_counts, rules.pattern, report, use_c(args.engine))
    else:
        words = count_corpus(args.corpus, None, rules, args.workers, show, report, use_c(args.engine))
    if args.save_counts:
        save_counts(words.counts() if isinstance(words, CWords) else words, args.save_counts, rules.pattern)
    if args.explain:
        counts = words.counts() if isinstance(words, CWords) else words
        vocab = first_vocab(counts, rules.special_tokens, args.level, args.like)
        explain(counts, vocab, args.explain, args.level, args.like)
    times.append(time.perf_counter())
    if args.vocab_size is not None:
        vocab, merges = train_from_counts(
            words, args.vocab_size, rules.special_tokens, min_frequency=args.min_frequency,
            max_token_length=args.max_token_length, level=args.level, like=args.like, merges=merges, engine=args.engine,
            progress=show and not args.log_every, report=report, on_merge=log_merge if args.log_every else None,
        )
        times.append(time.perf_counter())
        save(vocab, merges, args.output_dir, level=args.level)
        if "huggingface" in args.export:
            export_huggingface(vocab, merges, args.output_dir, rules.special_tokens, rules.pattern)
        if "tiktoken" in args.export:
            export_tiktoken(vocab, args.output_dir, rules.special_tokens)
        times.append(time.perf_counter())
    if not args.quiet:
        seconds = [after - before for before, after in zip(times, times[1:])]
        is_full = args.vocab_size is not None and len(vocab) == args.vocab_size
        print(summary(args, merges, report, seconds, is_full), file=sys.stderr)


def counts_from_files(
    paths: Iterable[Path], pattern: str, report: Report, in_c: bool
) -> dict[bytes, int] | CWords:
    """load_counts for the command line; with the C engine there is never a Python object for each word."""
    if not in_c:
        words = load_counts(paths, pattern)
        describe(words, report)
        return words
    table = CWords()
    for path in paths:
        lines = read_counts(path, pattern)
        while batch := list(itertools.islice(lines, 100_000)):
            table.put(batch)
    table.describe(report)
    return table


def main(argv: Sequence[str] | None = None) -> int:
    """The command line: -> exit status 0, 1 (out of memory, a worker killed), 2 (bad input), 130 (Ctrl-C)."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a merge is shown even where the terminal lacks its letters
    try:
        run(parse_arguments(argv))
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}" if error.filename else f"error: {error}", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (RuntimeError, OverflowError) as error:
        print(f"error: {error}", file=sys.stderr)
    except MemoryError:
        print("error: out of memory", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
