"""Changing a tokenizer: more tokens from new text, other names for special tokens, a smaller vocabulary.

docs/extend.md proves that encode() of an extended model gives each word the tokens that it had when learning ended.

Gives: extend(), rename_special_tokens(), prune() and sources(), which are methods of Tokenizer; their steps
encode_words(), learn_more() and with_merges(), for the command line.
Uses: choices, corpus.counting, corpus.reading, errors, formats.gpt2, formats.supported, formats.transformers,
patterns.steps, encoders, vocabulary, training.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import heapq
import itertools
import operator
import sys
import types
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import bpe
from bpe_more import choices, training
from bpe_more.corpus import counting, reading
from bpe_more.errors import require, warn
from bpe_more.formats import supported, transformers
from bpe_more.formats.gpt2 import MergeIds
from bpe_more.patterns import steps
from bpe_more.tokenizer import encoders
from bpe_more.tokenizer.vocabulary import Vocabulary

Model = TypeVar("Model", bound=Vocabulary)  # Tokenizer, or a class made of it


class EncodedWords(NamedTuple):
    """Words in the tokens of a tokenizer: extend() continues learning from these, and prune() counts them."""

    tokens: list[bytes]  # to learn from: all 256 bytes, then the other tokens of the vocabulary, sorted as bytes
    ids: array[int]  # the words, one after another, as indexes into `tokens`, not ids of the tokenizer
    n_ids: array[int]  # how many of them each word has
    lengths: Any  # of words, in bytes
    counts: Any  # of words
    n_left_out: int  # bytes without a token, in all

    def words(self) -> Iterator[array[int]]:
        """Yield the ids of each word."""
        ends = itertools.accumulate(self.n_ids)
        return (self.ids[end - n : end] for end, n in zip(ends, self.n_ids))


def encode_words(tokenizer: Any, table: Any, options: choices.Options) -> EncodedWords:
    """Encode the words of a table without splitting them again. The table can't be used afterwards."""
    engine = engine_of_words(options)
    if engine:
        blob, lengths, counts = engine.arrays(table, options.min_word_count)
        view = engine.ffi.buffer(blob)
        words = [view[end - n : end] for end, n in zip(itertools.accumulate(lengths), lengths)]
    else:
        words = [word for word, count in table.items() if count >= options.min_word_count]
        lengths, counts = list(map(len, words)), list(map(table.__getitem__, words))
    tokens = [*bpe.BYTES, *sorted(token for token in tokenizer.ids if len(token) > 1)]
    numbered = with_numbers(tokenizer, tokens)
    in_c = engine.encoder(numbered) if engine else None
    in_python = functools.cache(lambda: encoders.Encoder(numbered))  # made when it is first needed
    left_out: Any = [0] if options.errors == "replace" else None
    ids, n_ids = array("I"), array("Q")
    for start in range(0, len(words), 10_000):
        batch = words[start : start + 10_000]
        with contextlib.suppress(UnicodeDecodeError):  # a word is part of a character, so not UTF-8: Python does it
            if in_c:
                data, ends = in_c.encode_texts(batch, "u4", left_out)
                ids.frombytes(data)
                n_ids.extend(map(operator.sub, ends, itertools.chain([0], ends)))
                continue
        lists = [in_python().encode_bytes(word, left_out) for word in batch]
        ids.extend(itertools.chain.from_iterable(lists))
        n_ids.extend(map(len, lists))
    encoded = EncodedWords(tokens, ids, n_ids, lengths, counts, 0)
    if left_out and left_out[0]:
        # the lengths of words without the bytes left out
        shorter = array("Q", (sum(len(tokens[number]) for number in word) for word in encoded.words()))
        n_left_out = sum((n - n_shorter) * count for n, n_shorter, count in zip(lengths, shorter, counts))
        encoded = encoded._replace(lengths=engine.in_memory(shorter) if engine else shorter, n_left_out=n_left_out)
    return encoded


def engine_of_words(options: choices.Options) -> Any:
    """Return the C engine, or None if it isn't wanted, or is bpe_fast.c alone, which has no tables of words."""
    engine = choices.engine_for(options)
    return engine if engine and not engine.only_learns else None


def with_numbers(tokenizer: Any, tokens: Iterable[bytes]) -> Any:
    """Return what encoders use of a tokenizer, without special tokens; the ids are indexes of `tokens`."""
    numbers = {token: number for number, token in enumerate(tokens) if token in tokenizer.ids}
    return types.SimpleNamespace(
        # A word alone is not always one word of the model's own pattern, which may look at what follows.
        pattern=r"[\s\S]+", ids=numbers, vocab=dict(enumerate(tokens)), special_ids={},
        merge_ids=MergeIds.of(tokenizer.merges, numbers),
        whole_word_ids={token: numbers[token] for token in tokenizer.whole_word_ids},
    )  # fmt: skip


def learn_more(words: EncodedWords, n_tokens: int, options: choices.Options) -> Iterator[bpe.Learned]:
    """Yield up to n_tokens merges with their counts, best first."""
    engine = engine_of_words(options)
    if engine:
        merges = engine.extend(*words[:5], n_tokens, options.min_frequency)  # all fields but n_left_out
    else:
        # learn_merges() takes strings in which chr(i) stands for words.tokens[i]
        in_characters = ("".join(map(chr, word)) for word in words.words())
        wanted = itertools.islice(bpe.learn_merges(in_characters, words.counts, words.tokens), n_tokens)

        def is_frequent(merge: bpe.Learned) -> bool:
            _, _, count, _ = merge
            return count >= options.min_frequency

        merges = itertools.takewhile(is_frequent, wanted)
    return counting.merges_with_progress(merges, n_tokens, options)


def changed(tokenizer: Model, vocab: Mapping[int, bytes], merges: Iterable[bpe.Pair], specials: Any = None,
            **settings: Any) -> Model:
    """Return a tokenizer of the same kind with another vocabulary, and perhaps other special tokens and settings."""
    # a tuple of merges: no warning of tokens that no merge makes
    arguments = vocab, tuple(merges), specials or tokenizer.special_tokens, tokenizer.pattern
    return type(tokenizer)(*arguments, **{**tokenizer.settings(), **settings})


def with_merges(tokenizer: Model, learned: Iterable[bpe.Learned]) -> Model:
    """Return a tokenizer with more merges, whose tokens get the next ids."""
    merges = [(left, right) for left, right, _, _ in learned]
    new = enumerate(map(b"".join, merges), max(tokenizer.vocab, default=-1) + 1)
    return changed(tokenizer, {**tokenizer.vocab, **dict(new)}, [*tokenizer.merges, *merges])


def extend(tokenizer: Model, input_path: bpe.Paths = None, n_tokens: int | None = None, *,
           texts: bpe.Strings = None, words: bpe.Counts | Iterable[tuple[bytes, int]] | None = None,
           errors: choices.Errors = "strict", min_word_count: int = 1, min_frequency: int = 1,
           workers: int | None = None, engine: bpe.EngineName = "auto", progress: bool = False) -> Model:
    """Return a tokenizer that has learned n_tokens more from new text; old ids stay.

    The text is split and encoded by this tokenizer, and learning goes on from these tokens by the rule of
    training. A pair is never merged if it would make an old token again. Instead of text, `words` may have
    counts, as train_from_counts takes them, but special tokens in these words are plain text. Then n_tokens
    may be None: learning ends when each word is one token. The other options are those of train_bpe.
    """
    options = tokenizer.options._replace(
        errors=errors, min_word_count=min_word_count, min_frequency=min_frequency, workers=workers, engine=engine,
        progress=progress,
    ).checked()  # fmt: skip
    n: Any = sys.maxsize if n_tokens is None and words is not None else n_tokens
    require(bpe.is_integer(n) and n > 0, "n_tokens must be a positive integer, not {!r}", n)
    if words is None:
        corpus = reading.Corpus(input_path, texts, options)
        table = corpus.count()
        require(corpus.paths or corpus.n_slices, "no text: texts= is empty, or an iterator that is used up")
    else:
        require(input_path is None and texts is None, "pass either text or words=..., and not both")
        table = counting.new_table(options)
        table.add(training.checked_counts(words, ()))  # no special tokens: words may contain them
    most = min(operator.index(n), sys.maxsize)  # islice takes no more
    learned = list(learn_more(encode_words(tokenizer, table, options), most, options))
    if n_tokens is not None and len(learned) < n:
        text = f"{len(learned):,} new tokens, not {n:,}: no other pair that makes a new token has a count of"
        warn(f"{text} {min_frequency} or more")
    return with_merges(tokenizer, learned)


def sources(new: Vocabulary, old: Any) -> dict[int, list[int]]:
    """Return {new id: [old ids]}: the token's id in the old tokenizer, or those of its parts there.

    A new row of the embeddings is a copy of the old row, or the average of several. [] means none is known.
    """
    pieces = {token: [token_id] for token, token_id in old.ids.items()}
    for left, right in new.merges:
        require(left in pieces and right in pieces, "the merge {!r:.99} is of another model", (left, right))
        if left + right not in pieces:
            pieces[left + right] = pieces[left] + pieces[right]
    found = {token_id: pieces.get(token, []) for token_id, token in new.vocab.items()}
    old_ids = {name: token_id for token_id, name in old.unreachable.items()}
    found |= {token_id: [old_ids[name]] for token_id, name in new.unreachable.items() if name in old_ids}
    special_ids = new.special_ids
    for text, token_id in special_ids.items():
        old_id = old.ids.get(text.encode("utf-8"))
        found[token_id] = [] if old_id is None else [old_id]
        if old_id is None:
            with contextlib.suppress(ValueError):  # a byte without a token in the old vocabulary
                found[token_id] = old.encode_ordinary(text)
    # Special tokens are matched by id if their ids stayed, as after extend() and renaming; else by name, which prune()
    # keeps. Ids have changed if, in `new`, the id of an old special token belongs to no special token, or the id of an
    # old ordinary token belongs to one.
    before, now = set(old.special_ids.values()), set(special_ids.values())
    ids_stay = before <= now and now.isdisjoint(old.vocab.keys() - before)
    for text, token_id in old.special_ids.items():
        if ids_stay:
            found[token_id] = [token_id]
        elif text in special_ids:
            found[special_ids[text]] = [token_id]
    return found


def rename_special_tokens(tokenizer: Model, names: Mapping[str, str]) -> Model:
    """Return a tokenizer in which special tokens have other names: {old name: new name}; ids stay."""
    special_ids = tokenizer.special_ids
    unknown = [name for name in names if name not in special_ids]
    require(not unknown, "not special tokens of this model: {!r:.200}", unknown)
    for name in tokenizer.shared.values():
        require(name not in names, "{!r:.99} can't have another name: it is also a token of text", name)
    for text in steps.check_special_tokens(names.values()):
        found = tokenizer.ids.get(text.encode("utf-8"))  # the id of an ordinary token, or else of a special token
        is_free = found is None or (text in names and found == special_ids[text])
        require(is_free or names.get(text) == text, "{!r:.99} is a token already", text)

    def renamed(tokens: Iterable[str]) -> tuple[str, ...]:
        return steps.check_special_tokens(names.get(token, token) for token in tokens)

    vocab = dict(tokenizer.vocab) | {special_ids[name]: text.encode("utf-8") for name, text in names.items()}
    settings = {name: renamed(getattr(tokenizer, name)) for name in ("kept", *supported.FLAGS)}
    rest = transformers.in_templates(tokenizer.rest, names, {})
    return changed(tokenizer, vocab, tokenizer.merges, renamed(tokenizer.special_tokens), rest=rest, **settings)


def prune(tokenizer: Model, vocab_size: int | None = None, input_path: bpe.Paths = None, *,
          texts: bpe.Strings = None, errors: choices.Errors = "strict") -> Model:
    """Return a tokenizer with fewer tokens and new ids, without the tokens that a text uses least.

    Without text, the tokens with the greatest ids go first. Without vocab_size, all tokens that the text never uses
    go. Single bytes and special tokens stay, and so does any token that a remaining merge uses. So a word
    whose tokens all stay is encoded as before.
    """
    options = tokenizer.options._replace(errors=errors).checked()
    has_text = input_path is not None or texts is not None
    stay = {*tokenizer.special_ids.values(), *map(tokenizer.ids.get, bpe.BYTES)}
    ids = {token: token_id for token, token_id in tokenizer.ids.items() if token_id not in stay}
    n_gone = None  # as many as the text never uses
    if vocab_size is None:
        require(has_text, "prune needs vocab_size, or text of which all tokens stay")
    else:
        most, least = len(tokenizer), len(tokenizer) - len(ids)
        is_valid = bpe.is_integer(vocab_size) and vocab_size > 0
        require(is_valid, "vocab_size must be a positive integer, not {!r}", vocab_size)
        require(vocab_size <= most, "vocab_size must be at most {:,}, the size of this vocabulary", most)
        require(vocab_size >= least, "vocab_size must be at least {:,}: bytes and special tokens stay", least)
        n_gone = most - vocab_size
    counts = token_counts(tokenizer, reading.Corpus(input_path, texts, options)) if has_text else collections.Counter()
    gone = least_used(tokenizer, ids, counts, n_gone)
    text = "vocab_size must be at least {:,}: a special token that is also an ordinary one needs its merges"
    require(n_gone is None or len(gone) == n_gone, text, len(tokenizer) - len(gone))
    return without_tokens(tokenizer, gone)


def least_used(tokenizer: Vocabulary, ids: Mapping[bytes, int], counts: collections.Counter[bytes],
               n_tokens: int | None) -> set[bytes]:
    """Return the n_tokens least used tokens of `ids`, {token: id}; if n_tokens is None, all that are never used.

    counts has how often the text uses each token. It is changed: the parts of a removed token take its count.
    """
    ways: dict[bytes, list[bpe.Pair]] = collections.defaultdict(list)  # the merges that make a token
    for pair in tokenizer.merges:
        ways[b"".join(pair)].append(pair)
    uses = collections.Counter(itertools.chain.from_iterable(tokenizer.merges))  # in merges that stay
    removable = [(counts[token], -token_id, token) for token, token_id in ids.items() if not uses[token]]
    heapq.heapify(removable)
    gone: set[bytes] = set()
    while removable and len(gone) != n_tokens:
        count, _, token = heapq.heappop(removable)
        if n_tokens is None and count:  # the text uses all that are left
            break
        gone.add(token)
        for number, pair in enumerate(ways[token]):
            for part in pair:
                uses[part] -= 1
                counts[part] += count * (number == 0)  # only its first pair takes its place in text
                if not uses[part] and part in ids:
                    heapq.heappush(removable, (counts[part], -ids[part], part))
    return gone


def token_counts(tokenizer: Any, corpus: reading.Corpus) -> collections.Counter[bytes]:
    """Return how often each token occurs in the words of a corpus."""
    counts: collections.Counter[bytes] = collections.Counter()
    encoded = encode_words(tokenizer, corpus.count(), corpus.options)
    require(corpus.n_slices, "no text: the input is empty, or texts= is an iterator that is used up")
    for word, count in zip(encoded.words(), encoded.counts):
        for number in word:
            counts[encoded.tokens[number]] += count
    return counts


def without_tokens(tokenizer: Model, gone: set[bytes]) -> Model:
    """Return a tokenizer without some tokens, and with new ids."""
    remaining = sorted(tokenizer.vocab.keys() - {tokenizer.ids[token] for token in gone})
    new_ids = {token_id: number for number, token_id in enumerate(remaining)}
    vocab = {new_ids[token_id]: token for token_id, token in tokenizer.vocab.items() if token_id in new_ids}
    merges = [pair for pair in tokenizer.merges if b"".join(pair) not in gone]
    unreachable = {new_ids[token_id]: name for token_id, name in tokenizer.unreachable.items()}
    shared = {new_ids[token_id]: name for token_id, name in tokenizer.shared.items()}
    rest = transformers.in_templates(tokenizer.rest, {}, new_ids)
    return changed(tokenizer, vocab, merges, rest=rest, unreachable=unreachable, shared=shared)
