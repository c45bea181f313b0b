"""Reasons for merges, for teachers and for people who wrote a trainer: --show, --explain and --compare.

Gives: show(), explain() and compare(), one for each of these options; rounds_of() and read_pairs(), which read
their values.
Uses: corpus.progress, errors, formats.gpt2, formats.kinds, tokenizer.
"""

from __future__ import annotations

import codecs
import collections
import heapq
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence

import bpe
from bpe_more.corpus.progress import say, visible
from bpe_more.errors import require
from bpe_more.formats import gpt2, kinds
from bpe_more.tokenizer import Tokenizer


def show(text: str, tokenizer: Tokenizer) -> None:
    """Print text with its tokens set apart, their ids, and how many bytes per token that is."""
    ids = tokenizer.encode(text)
    tokens = [tokenizer.vocab[token_id] for token_id in ids]
    n_bytes = sum(map(len, tokens))
    per_token = f"{n_bytes / max(len(ids), 1):.2f} bytes per token"
    say("|".join(readable(tokens, {"\n": "\\n\n"})) + "\n", "stdout")
    say(" ".join(map(str, ids)) + "\n", "stdout")
    say(f"{bpe.plural(len(ids), 'token')}, {bpe.plural(n_bytes, 'byte')}, {per_token}\n", "stdout")


def readable(tokens: Iterable[bytes], marks: Mapping[str, str]) -> list[str]:
    r"""Spell tokens, with marks for some characters.

    Here the byte 8a isn't part of any character. Two tokens share 园, so their bytes follow it:

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


def rounds_of(text: str) -> range:
    """Return the rounds of "5" (1 to 5) or "5-7", as indexes from 0."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)", text)
    first, last = (int(match[1] or 1), int(match[2])) if match else (0, 0)
    require(0 < first <= last, f"--explain takes a positive number, or a range such as 5-7, not {text!r}")
    return range(first - 1, last)


def explain(rounds: range, counts: bpe.Counts, merges: Sequence[bpe.Pair], theirs: Sequence[bpe.Pair] = ()) -> None:
    """Print why merges are made, and with those of a file, why it may have others in these rounds."""
    words = dict(zip(bpe.encode_words(map(bpe.single_bytes, counts), merges[: rounds.start]), counts.values()))
    for number in range(rounds.start, min(rounds.stop, len(merges))):
        explain_round(merges[:number], words, merges[number], theirs[number] if theirs else None)
        words = {bpe.merge_pair(word, merges[number]): count for word, count in words.items()}


def explain_round(done: Sequence[bpe.Pair], words: Mapping[bpe.Word, int],
                  best: bpe.Pair, other: bpe.Pair | None) -> None:
    """Print why a pair is merged after the merges in `done`, and two words that it changes.

    With `other`, a pair of a file, print two words that the two pairs change differently.
    """
    counts = collections.Counter(bpe.count_pairs(words))
    say(f"round {len(done) + 1}: {reasons(counts, best)}\n", "stdout")
    if other:
        say(f"    in the file: {in_line(other)} ({bpe.plural(counts[other], 'time')})\n", "stdout")
    changes = {word: (bpe.merge_pair(word, best), bpe.merge_pair(word, other) if other else word) for word in words}
    changed = [word for word in words if len(set(changes[word])) > 1]
    for word in heapq.nlargest(2, changed, key=lambda word: (words[word], word)):
        shown = ", in the file ".join(map(in_line, changes[word][: 2 if other else 1]))
        say(f"    {in_line(word)} -> {shown} ({bpe.plural(words[word], 'time')})\n", "stdout")
    if other and (cause := usual_cause(done, words, counts, best, other)):
        say(f"    usual cause: {cause}\n", "stdout")


def reasons(counts: Mapping[bpe.Pair, int], best: bpe.Pair) -> str:
    """Say which pairs are the most frequent, and why the best one wins."""
    first = heapq.nlargest(3, counts, key=lambda pair: (counts[pair], pair))
    text = ", ".join(f"{in_line(pair)} ({bpe.plural(counts[pair], 'time')})" for pair in first)
    text += f"\n    merge {in_line(best)}"
    ties = list(counts.values()).count(counts[best])
    if ties > 1:
        text += f" ({ties} pairs tie at {counts[best]:,}; the greater left token wins, then the greater right one)"
    return text


def usual_cause(done: Sequence[bpe.Pair], words: Mapping[bpe.Word, int], counts: collections.Counter[bpe.Pair],
                ours: bpe.Pair, other: bpe.Pair) -> str:
    """Say why a trainer may merge another pair than ours, if the counts tell, else return ""."""
    if counts[ours] == counts[other]:
        return "another rule for ties"

    # `a a` is counted 3 times in `a a a a`, and merged twice. Another trainer may count it only twice, or count twice
    # each of the 2 pairs that overlap the one before them (5 in all).
    def merged(pair: bpe.Pair) -> int:
        return sum((len(word) - len(bpe.merge_pair(word, pair))) * words[word] for word in words)

    def doubled(pair: bpe.Pair) -> int:
        overlaps = (words[word] for word in words for three in zip(word, word[1:], word[2:]) if set(three) == set(pair))
        return counts[pair] + (sum(overlaps) if pair[0] == pair[1] else 0)

    if merged(other) >= merged(ours) or doubled(other) >= doubled(ours):
        return "pairs that overlap themselves"

    def best(some: Mapping[bpe.Pair, int]) -> bpe.Pair:
        return max(some, key=lambda pair: (some[pair], pair), default=ours)

    spaced = {pair for pair in counts if re.search(rb"\s", b"".join(pair))}
    if ours in spaced and other == best({pair: counts[pair] for pair in counts if pair not in spaced}):
        return "words without their spaces, as split() makes them"
    if other == best(bpe.count_pairs(dict.fromkeys(words, 1))):
        return "words counted once each"

    # The count of a pair never rises after the round that made the later one of its tokens.
    made = max((number for number, pair in enumerate(done, 1) if b"".join(pair) in other), default=0)
    earlier = bpe.encode_words((bpe.single_bytes(b"".join(word)) for word in words), done[:made])
    if collections.Counter(bpe.count_pairs(dict(zip(earlier, words.values()))))[other] >= counts[ours]:
        return "counts of an earlier round: a merge also removes the pairs next to it"
    # if it occurs here, too, only less often, the counts don't tell why
    return "" if counts[other] else cause_of_no_pair(words, other)


def cause_of_no_pair(words: Iterable[bpe.Word], other: bpe.Pair) -> str:
    """Say why a trainer may merge a pair that doesn't occur, if the words tell, else return ""."""
    in_a_word = any(b"".join(other) in b"".join(word) for word in words)
    begins, ends = {word[0] for word in words}, {word[-1] for word in words}
    across_words = other[0] in ends and other[1] in begins
    if across_words and not in_a_word:
        return "a pair across the end of a word, or across a special token"
    if in_a_word and not across_words:
        return "counts out of date, or other words: its bytes occur here, but not as these tokens"
    return ""


def read_pairs(path: str) -> tuple[str, list[bpe.Pair]]:
    """Return the kind of a file ("in JSON"), and its merges. JSON is [["t", "h"], ...]."""
    with open(path, encoding="utf-8-sig") as file, kinds.error_prefix(path):
        text = file.read()
        reason = kinds.pairs_of_ids(text)
        require(not reason, "{}", reason)
        kind = "with #version" if text.startswith("#version") else "without #version"
        if path.endswith(".json"):
            listed = json.loads(text)
            are_tokens = not any(isinstance(part, int) for pair in listed for part in pair)
            require(are_tokens, "{}", kinds.PAIRS_OF_IDS)  # also [[1, 2]], which could be tokens in a text
            kind, text = "in JSON", "\n".join(map(" ".join, listed))
    # Merges of bytes make "</w>" of parts: the first line that has it has a space inside it, as in
    # `</ w>`. In a file of subword-nmt it is whole, as in `e s</w>`.
    line = next((line for line in text.split("\n") if bpe.END_OF_WORD in line.replace(" ", "")), "")
    of_bytes = bpe.END_OF_WORD not in line
    require(of_bytes, "{}: merges of characters, as subword-nmt makes: {!r:.99}", path, line)
    with kinds.error_prefix(path):
        pairs = gpt2.read_merges(text)
        require(pairs, "there are no merges in it")
        # characters that stand for no byte are an error
        tokens = {name: codecs.charmap_encode(name, "strict", bpe.BYTE_OF)[0] for name in itertools.chain(*pairs)}
        return kind, [(tokens[left], tokens[right]) for left, right in pairs]


def compare(theirs: Sequence[bpe.Pair], counts: bpe.Counts, merges: Sequence[bpe.Pair]) -> bool:
    """Print how many first merges are the same, and explain the first difference; return whether there is none."""
    compared = min(len(merges), len(theirs))
    n = next((n for n in range(compared) if merges[n] != theirs[n]), compared)
    same = "the first merge is the same" if n == 1 else f"the first {n:,} merges are the same"
    say(f"{same}, of {len(theirs):,} in the file and {len(merges):,} here\n", "stdout")
    if n < compared:
        explain(range(n, n + 1), counts, merges, theirs)
    return n == compared
