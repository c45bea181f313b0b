"""Models that are ranks: a .tiktoken file, ranks in memory, or Mistral's tekken.json. And minbpe's .model.

A token's rank is its id. Ranks come without merges: any two tokens that join to a token can be merged, in the order
of the ids of the new tokens.

Gives: read_tiktoken(), which is public; read_tekken() and read_minbpe(), which return the arguments of Tokenizer.
Uses: choices, errors, gpt2, kinds, patterns.expressions, patterns.steps.
"""

from __future__ import annotations

import binascii
import codecs
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import bpe
from bpe_more import choices
from bpe_more.errors import require
from bpe_more.formats import gpt2, kinds
from bpe_more.formats.gpt2 import IgnoredMerges, MergeIds
from bpe_more.patterns.expressions import differs_in_oniguruma
from bpe_more.patterns.steps import ONLY_MATCHES

REPEATED = "two tokens have the same rank, or a token has two ranks"
BEYOND = f"the rank {{:,}} is greater than the greatest id, {bpe.MAX_ID:,}"
# The first special tokens of a tekken.json that doesn't list them
TEKKEN = [
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]",
    "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
]  # fmt: skip


def read_tiktoken(path: bpe.FilePath | Mapping[Any, Any] | list[Any]) -> bpe.Model:
    """Read a .tiktoken file, such as cl100k_base.tiktoken; return (vocab, merges).

    Each line has a token in base64 and its rank, which is its id. The merges are all ways to make a
    token of two others, in the order of ranks; words that are tokens stay whole. Instead of a path, take
    ranks as programs hold them in memory: {token: rank}, as tiktoken does, {rank: token}, or pairs of the
    two, as rustbpe does.
    """
    ranks: Any = path
    if isinstance(path, list):
        ranks = dict(path)
        require(len(ranks) == len(path), REPEATED)
    vocab = vocab_in_memory(ranks) if isinstance(ranks, Mapping) else vocab_of_file(ranks)
    merge_ids = MergeIds(splits_of(vocab))
    token_of = in_list(vocab).__getitem__
    lefts, rights, _ = merge_ids.columns()
    with gpt2.paused_collector():
        merges = IgnoredMerges(zip(map(token_of, lefts), map(token_of, rights)))
    merges.as_read = vocab.copy(), merges[:], merge_ids  # copies, since the caller may change both
    return vocab, merges


def in_list(vocab: Mapping[int, bytes]) -> Any:
    """Return tokens in a list by id, for lookups in half the time, or vocab if the list would have large gaps."""
    n = max(vocab) + 1
    return list(map(vocab.get, range(n))) if n <= 4 * len(vocab) else vocab


def splits_of(vocab: Mapping[int, bytes]) -> Sequence[int]:
    """Return all ways to make a token of two others, as ids: left, right, token; sorted by the token, then by left."""
    engine, _ = choices.find_engine()
    if engine and not engine.only_learns:  # bpe_fast.c alone only learns
        return engine.find_splits(vocab)  # type: ignore[no-any-return]
    id_of = dict(zip(vocab.values(), vocab)).get
    lengths = sorted({len(token) for token in vocab.values() if token})
    splits = []
    for rank, token in vocab.items():
        for end in lengths:  # not at each place: one token of 300 KB has 300,000
            if end >= len(token):
                break
            if (left := id_of(token[:end])) is not None and (right := id_of(token[end:])) is not None:
                splits.append((rank, left, right))
    return [number for rank, left, right in sorted(splits) for number in (left, right, rank)]


def vocab_in_memory(ranks: Mapping[Any, Any]) -> dict[int, bytes]:
    """Return {rank: token} for ranks in memory: {token: rank}, or {rank: token}."""
    pairs = [pair if isinstance(pair[0], bytes) else pair[::-1] for pair in ranks.items()]
    for token, rank in pairs:
        valid = isinstance(token, bytes) and bpe.is_integer(rank) and rank >= 0
        require(valid, "ranks must be {{bytes: rank}} or {{rank: bytes}}, not {!r:.60} with {!r:.60}", token, rank)
    vocab = {operator.index(rank): token for token, rank in pairs}
    unique = len(vocab) == len(set(vocab.values())) == len(ranks)
    require(unique, REPEATED)
    require(vocab, "there are no ranks")
    require(max(vocab) <= bpe.MAX_ID, BEYOND, max(vocab))
    return vocab


def vocab_of_file(path: bpe.FilePath) -> dict[int, bytes]:
    """Return {rank: token} for a .tiktoken file."""
    in_base64 = b"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:[A-Za-z0-9+/]{2}|[A-Za-z0-9+/]=|==)|=)"
    whole_line = re.compile(b"\n%s [0-9]+$" % in_base64, re.MULTILINE)  # "=" is b"" in Whisper's file
    with open(path, "rb") as file, kinds.error_prefix(path):
        data = file.read().removeprefix(codecs.BOM_UTF8)
        other = whole_line.sub(b"", b"\n" + data.replace(b"\r", b"\n")).strip(b"\n")
        fields = data.split() if not other else []
        tokens = list(map(binascii.a2b_base64, fields[::2]))
        vocab = dict(zip(map(int, fields[1::2]), tokens))
        if other or not len(vocab) == len(set(tokens)) == len(tokens):
            check_lines(data.splitlines(), whole_line)
        require(vocab, "the file is empty")
        require(max(vocab) <= bpe.MAX_ID, BEYOND, max(vocab))
    return vocab


def check_lines(lines: Iterable[bytes], whole_line: re.Pattern[bytes]) -> None:
    """Raise ValueError for the first line of a .tiktoken file that isn't a token and its rank, or repeats either."""
    tokens: set[bytes] = set()
    ranks: set[int] = set()
    for number, line in enumerate(lines, 1):
        if line:
            if not whole_line.fullmatch(b"\n" + line):
                raise ValueError(f"line {number} must be a token in base64 and its rank: {line!r:.60}")
            in_base64, digits = line.split(b" ")
            token, rank = binascii.a2b_base64(in_base64), int(digits)
            # In a file that was cut off, the last line may end in 25 instead of 257, so it seems to repeat a rank.
            fresh = token not in tokens and rank not in ranks
            require(fresh, "line {} repeats a token or a rank: {!r:.60}", number, line)
            tokens.add(token)
            ranks.add(rank)


def read_tekken(content: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the arguments of Tokenizer for a tekken.json: special tokens have the first ids, and ranks follow."""
    config, ranks = content["config"], content["vocab"]
    n, size, expression = config["default_num_special_tokens"], config["default_vocab_size"], config["pattern"]
    # else one number in a small file could fill the memory with names
    require(n <= len(ranks), "config.default_num_special_tokens = {:,} is more than there are tokens", n)
    require(n <= size, "config.default_vocab_size = {:,} is too small for {:,} special tokens", size, n)
    word_border = re.search(r"\\[<>]", expression)  # in Rust, whose expressions these are; "<" elsewhere
    unclear = differs_in_oniguruma(expression) or (word_border and word_border[0])
    require(not unclear, "programs may read {!r} in config.pattern differently", unclear)
    names = {number: f"<SPECIAL_{number}>" for number in range(n)}
    given = content.get("special_tokens") or []
    names |= {each["rank"]: each["token_str"] for each in given} if given else dict(enumerate(TEKKEN[:n]))
    special_ids = {text: token_id for token_id, text in names.items()}
    require(len(special_ids) == len(names) == n, "two special tokens have the same text, or ids beyond {:,}", n)
    used = ranks[: size - n]  # the file has more, which no model uses
    merges: Any
    vocab, merges = read_tiktoken([(binascii.a2b_base64(each["token_bytes"]), each["rank"] + n) for each in used])
    vocab |= {token_id: text.encode("utf-8") for text, token_id in special_ids.items()}
    _, merges_then, merge_ids = merges.as_read
    merges.as_read = vocab.copy(), merges_then, merge_ids  # special tokens change no merge
    return vocab, merges, tuple(special_ids), expression


def read_minbpe(text: str) -> tuple[Any, ...]:
    """Return the arguments of Tokenizer for a .model of minbpe: a pattern, special tokens, and merges of ids."""
    _, expression, n, *lines = text.replace("\r\n", "\n").rstrip("\n").split("\n")
    unclear = re.search(r"\[[^]]*(\[|--|&&|~~|\|\|)", expression)  # V0 and V1 of regex differ in sets; minbpe has V0
    require(not unclear, "regex reads the pattern in two ways: {!r:.99}", expression)
    specials = dict(line.rsplit(" ", 1) for line in lines[: int(n)])
    vocab = {byte: bytes([byte]) for byte in range(256)}
    merges = []
    for new_id, line in enumerate(lines[int(n) :], 256):
        left, right = (vocab[int(part)] for part in line.split())
        # a file may double a token in each line
        require(len(left) + len(right) <= 1 << 16, "line {!r:.60} makes a token of more than 65,536 bytes", line)
        merges.append((left, right))
        vocab[new_id] = left + right
    vocab |= {int(token_id): special.encode("utf-8") for special, token_id in specials.items()}
    # As in minbpe: without a pattern, a whole text is one word; with one, text outside its matches is dropped.
    return vocab, tuple(merges), tuple(specials), ONLY_MATCHES + (expression or r"[\s\S]+")
