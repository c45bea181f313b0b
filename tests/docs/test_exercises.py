"""The ladder of docs/exercises.md, tried on planted bugs: at the step that the page names, each gives the page's answer.

    pytest -q tests/docs/test_exercises.py

The student below shares no code with bpe.py. Each of its switches is a bug that real solutions have.
"""

from collections import Counter

import pytest
import regex

import bpe
import bpe_more
from test_bpe import HERE

PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
END = "<|endoftext|>"


# --- a student's solution, with switches for bugs ------------------------------------------------------------------------


def words_of(text, bug=None):
    """Return {word as bytes: count}."""
    if bug == "the last word without its newline":
        text = text.removesuffix("\n")
    if bug == "line endings":
        text = text.replace("\r\n", "\n")
    pieces = text.split(END)
    if bug == "words at a special token joined":
        pieces = ["".join(pieces)]
    split = str.split if bug == "split()" else regex.compile(PATTERN).findall
    return Counter(word.encode() for piece in pieces for word in split(piece))


def pairs_in(tokens, bug=None):
    """Count the pairs in one word."""
    counts = Counter()
    for at in range(len(tokens) - 1):
        pair = tokens[at], tokens[at + 1]
        overlaps = at > 0 and (tokens[at - 1], tokens[at]) == pair
        counts[pair] += 2 if overlaps and bug == "overlaps counted twice" else 1
    if bug == "overlaps not counted":
        for pair in [pair for pair in counts if pair[0] == pair[1]]:
            counts[pair] = len(tokens) - len(merged(tokens, pair))
    return counts


def merged(tokens, pair, once=False):
    """Return tokens with a pair replaced, from left to right; with `once`, only the first one."""
    tokens, at = list(tokens), 0
    while at < len(tokens) - 1:
        if (tokens[at], tokens[at + 1]) == pair:
            tokens[at : at + 2] = [pair[0] + pair[1]]
            if once:
                break
        at += 1
    return tokens


CHOICES = {  # the pair of the next merge; `counts` has pairs in the order in which they were counted first
    None: lambda counts: max(counts, key=lambda pair: (counts[pair], pair)),
    "ties by the joined bytes": lambda counts: max(counts, key=lambda pair: (counts[pair], pair[0] + pair[1])),
    "ties by the smaller pair": lambda counts: min(counts, key=lambda pair: (-counts[pair], pair)),
    "ties by the order of a dict": lambda counts: max(counts, key=counts.get),
    "ties by printable characters": lambda counts: max(counts, key=lambda pair: (counts[pair], *map(bpe.to_printable, pair))),
    "ties by signed bytes": lambda counts: max(counts, key=lambda pair: (counts[pair], *map(signed, pair))),
}


def signed(token):
    return [byte if byte < 128 else byte - 256 for byte in token]


def count_pairs(words, bug=None):
    """Count the pairs of all words."""
    counts = Counter()
    for word, n in words.items():
        for pair, times in pairs_in([bytes([byte]) for byte in word], bug).items():
            counts[pair] += times * (1 if bug == "words counted once" else n)
    return counts


def train(words, n_merges, bug=None):
    """Return merges. Counts are kept from round to round; each word that has the pair is counted again."""
    spelled = {word: [bytes([byte]) for byte in word] for word in words}
    counts = count_pairs(words, bug)
    merges = []
    while len(merges) < n_merges and +counts:
        best = CHOICES.get(bug, CHOICES[None])(+counts)
        merges.append(best)
        for word, tokens in spelled.items():
            if best[0] not in tokens:
                continue
            after = merged(tokens, best, once=bug == "one replacement a word")
            if after == tokens:
                continue
            n = 1 if bug == "words counted once" else words[word]
            change = pairs_in(after, bug)
            change.subtract(pairs_in(tokens, bug))
            if bug == "the neighbors of a merged pair":  # those that are gone are not subtracted
                change = +change
            if bug == "the left neighbor of two new tokens":
                new = best[0] + best[1]
                for at in range(1, len(after) - 1):
                    if after[at] == after[at + 1] == new != after[at - 1]:
                        change[after[at - 1], new] -= 1
                        change[after[at - 1], best[0]] += 1
            for pair, times in change.items():
                counts[pair] += times * n
            spelled[word] = after
        counts.pop(best, None)
    return merges


def encode(text, vocab, merges, special_tokens, bug=None):
    """Return ids; vocab is {id: token}."""
    ids = {token: token_id for token_id, token in vocab.items()}
    found = []
    longest_first = sorted(special_tokens, key=len, reverse=bug != "the first special token that fits")
    for piece in regex.split(f"({'|'.join(map(regex.escape, longest_first))})", text):
        if piece in special_tokens:
            found.append(ids[piece.encode()])
            continue
        for word in regex.findall(PATTERN, piece):
            tokens = [bytes([byte]) for byte in word.encode()]
            if bug == "the longest match":
                tokens = longest(word.encode(), ids)
            elif bug == "the leftmost merge first":
                tokens = leftmost(tokens, merges)
            else:
                for pair in merges:
                    tokens = merged(tokens, pair, once=bug == "each merge only once")
            found += [ids[token] for token in tokens]
    return found


def longest(data, ids):
    """Cut bytes into tokens, taking the longest possible one each time."""
    tokens = []
    while data:
        tokens.append(next(data[:end] for end in range(len(data), 0, -1) if data[:end] in ids))
        data = data[len(tokens[-1]) :]
    return tokens


def leftmost(tokens, merges):
    """Make the leftmost merge that is possible, until none is."""
    while True:
        at = next((at for at in range(len(tokens) - 1) if (tokens[at], tokens[at + 1]) in merges), None)
        if at is None:
            return tokens
        tokens[at : at + 2] = [tokens[at] + tokens[at + 1]]


# --- the page: each bug, at the step that finds it, gives the row of the page --------------------------------------------

BUGS = {  # bug -> the step that finds it, and the smallest text
    "words at a special token joined": (1, "ab<|endoftext|>ab"),
    "the last word without its newline": (1, "ab\n"),
    "line endings": (1, "ab\r\n"),
    "overlaps not counted": (2, "aaa"),
    "overlaps counted twice": (2, "aaa"),
    "words counted once": (2, "the the the"),
    "ties by the joined bytes": (3, "cabacbca"),
    "ties by the smaller pair": (3, "cabacbca"),
    "ties by the order of a dict": (3, "cabacbca"),
    "the left neighbor of two new tokens": (3, "xabab"),
    "the neighbors of a merged pair": (3, "the the the"),
    "the longest match": (4, "abcd"),
    "each merge only once": (4, "abab"),
    "the leftmost merge first": (4, "ab abc"),
    "the first special token that fits": (4, "<|a|><|a|>b"),
}
IN_STEP_4 = (  # vocabulary, merges, special tokens
    dict(enumerate([*(bytes([byte]) for byte in range(256)), b"<|a|>", b"<|a|><|a|>", b"bc", b"ab", b"bcd"])),
    [(b"b", b"c"), (b"a", b"b"), (b"bc", b"d")],
    ["<|a|>", "<|a|><|a|>"],
)


def rows(page, step):
    """Return the rows of the table of a step: (text, the answer here, the answer with the bug)."""
    text = (HERE / page).read_text(encoding="utf-8").replace("\\|", "\0")
    section = text.split(f"\n**{step}. ")[1].split("\n**")[0].split("\n## ")[0]
    found = regex.findall(r"(?m)^\| `(.*?)` \| (.*?) \| (.*?) \| .* \|$", section)
    return [tuple(cell.replace("\0", "|") for cell in row) for row in found]


def shown(value):
    """Write words and counts, pairs, or ids as the page does."""
    if isinstance(value, dict):
        return ", ".join(f"`{spelled(word)}` {count}" for word, count in sorted(value.items(), reverse=True))
    if value and isinstance(value[0], tuple):
        return ", ".join("`" + " ".join(spelled(token).replace(" ", "␣") for token in pair) + "`" for pair in value)
    return " ".join(map(str, value))


def spelled(token):
    return token.decode().replace("\r", "\\r").replace("\n", "\\n")


def answers(step, text, bug):
    """Return the answer of our code, and that of the student."""
    if step == 1:
        return bpe.count_words(texts=[text], special_tokens=[END]), words_of(text, bug)
    if step == 2:
        words = {bpe.single_bytes(word): n for word, n in bpe.count_words(texts=[text]).items()}
        return bpe.count_pairs(words), count_pairs(words_of(text), bug)
    if step == 3:
        n = 3 if text == "the the the" else 2
        return bpe.train_bpe(texts=[text], vocab_size=256 + n)[1], train(words_of(text, bug), n, bug)
    vocab, merges, specials = IN_STEP_4
    return bpe.Tokenizer(vocab, merges, specials).encode(text), encode(text, vocab, merges, specials, bug)


@pytest.mark.parametrize("page", ["docs/exercises.md", "docs/exercises.zh.md"])
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_gives_the_answer_of_the_page_at_its_step(bug, page):
    step, text = BUGS[bug]
    ours, theirs = answers(step, text, bug)
    assert answers(step, text, None) == (ours, ours), "a student without a bug has the same answer"
    if step == 2:
        best = max(ours, key=lambda pair: (ours[pair], pair))
        expected = shown({b" ".join(best): ours[best]}), str(theirs[best])
    else:
        expected = shown(ours), shown(theirs)
    spelled_text = text.replace("\r", "\\r").replace("\n", "\\n")
    assert (spelled_text, *expected) in rows(page, step)
    assert len({row for n in range(1, 5) for row in rows(page, n)}) == len(BUGS), "each row is a bug that is tested"
    for earlier in range(1, min(step, 3)):  # words and their pairs are still the same
        ours, theirs = answers(earlier, text, bug)
        assert dict(ours) == dict(theirs)


CORPUS = (HERE / "fixtures" / "corpus.txt").read_bytes().decode()
STALE = "counts of an earlier round: a merge also removes the pairs next to it"
COMPARED = [  # bug, text, the cause that --compare names
    ("words at a special token joined", "aa<|endoftext|>b b b b", "a pair across the end of a word, or across a special token"),
    ("ties by the joined bytes", CORPUS[:25_000], "another rule for ties"),
    ("ties by the smaller pair", CORPUS[:25_000], "another rule for ties"),
    ("ties by the order of a dict", CORPUS[:25_000], "another rule for ties"),
    ("overlaps not counted", CORPUS[:40_000], "pairs that overlap themselves"),
    ("overlaps counted twice", CORPUS[:40_000], "pairs that overlap themselves"),
    ("the left neighbor of two new tokens", CORPUS, STALE),
    ("the neighbors of a merged pair", CORPUS[:25_000], STALE),
    ("words counted once", CORPUS[:25_000], "words counted once each"),
    ("split()", CORPUS[:25_000], "words without their spaces, as split() makes them"),
]  # fmt: skip


@pytest.mark.parametrize("bug, text, cause", COMPARED)
def test_compare_explains_a_planted_bug(tmp_path, capsys, bug, text, cause):
    merges = train(words_of(text, bug), 110, bug)
    (tmp_path / "text.txt").write_bytes(text.encode())
    lines = [" ".join(map(bpe.to_printable, pair)) for pair in merges]
    (tmp_path / "merges.txt").write_text("\n".join(lines), encoding="utf-8")
    command = [str(tmp_path / "text.txt"), "500", "--quiet", "--compare", str(tmp_path / "merges.txt")]
    assert bpe_more.main(command) == 1
    told = capsys.readouterr().out
    assert regex.findall("usual cause: (.*)", told) == ([cause] if cause else [])
    # the first merge that differs is the one that a recount of the words says
    n = int(regex.match(r"the first (?:(\d+) merges are|merge is) the same", told)[1] or 1)
    ours = bpe.train_bpe(texts=[text], vocab_size=500, special_tokens=[END])[1]
    assert ours[:n] == merges[:n] and ours[n] != merges[n]


def test_a_student_without_a_bug_has_the_same_merges_and_ids():
    text = CORPUS[:8000]
    vocab, merges = bpe.train_bpe(texts=[text], vocab_size=320, special_tokens=[END])
    assert train(words_of(text), 63) == merges
    assert encode(text, vocab, merges, [END]) == bpe.Tokenizer(vocab, merges, [END]).encode(text)


@pytest.mark.parametrize("page", ["docs/exercises.md", "docs/exercises.zh.md"])
def test_the_lesson_has_90_minutes_and_each_exercise_a_level(page):
    text = (HERE / page).read_text(encoding="utf-8")
    assert sum(map(int, regex.findall(r"(?m)^\| (\d+) \| \[", text))) == 90
    assert len(regex.findall(r"(?m)^\| \d \| (?:easy|medium|hard|[易中难])[,，] ?\d+ \|", text)) == 8
