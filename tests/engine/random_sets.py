"""Random patterns with sets in sets and operations on them: `python tests/engine/random_sets.py 10000 [SEED]`; `60s` is a bound in seconds.

Three comparisons, each of all words of random texts: C with Python, for all patterns that C supports; with tokenizers, for all
that a tokenizer.json may have (expressions.differs_in_oniguruma); with tiktoken, for all whose sets Rust reads as regex does.
"""

import itertools
import random
import sys
import time
from pathlib import Path

import regex
import tiktoken
import tokenizers

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import random_patterns as patterns
from test_patterns import split

from bounds import bounded, choose_seed
from bpe_more import choices
from bpe_more.patterns import expressions

ENGINE, WHY = choices.find_engine()
assert ENGINE, WHY
ONES = ["a", "b", "c", "é", "s", "S", "1", "_", "-", "&", "|", "~", ".", "(", " ", "!", r"\n", r"\x41", r"\u0301", r"\-", r"\]", r"\[", r"\&", "字"]
CLASSES = [r"\p{L}", r"\p{Lu}", r"\p{N}", r"\p{M}", r"\P{L}", r"\s", r"\S", r"\d", r"\p{Han}", r"\p{^Latin}", r"\w", "[:alpha:]"]
RANGES = ["a-c", "a-z", "A-Z", "0-9", "!-/", ":-~", "一-龥", r"\x20-\x7e", "ſ-K"]
TEXTS = [*patterns.PARTS, "c", "_", "-", "--", "&", "&&", "|", "~", "(", ")", "[", "]", "^", ":", "B", "z", "Z", "s", "٣", "½", "\x1c", "\x85", "\u200d", "ﬆ", "ff", "st", "İ"]


def random_operand(rng, depth):
    kinds = [ONES, ONES, CLASSES, RANGES]
    parts = [rng.choice(rng.choice(kinds)) for _ in range(rng.randint(1, 3))]
    if depth and rng.random() < 0.5:
        parts.insert(rng.randint(0, len(parts)), random_set(rng, depth - 1))
    return "".join(parts)


def random_set(rng, depth=2):
    operation = rng.choice(["&&", "&&", "--", "~~"])
    operands = [random_operand(rng, depth) for _ in range(rng.choice([1, 1, 1, 2, 2, 3]))]
    return f"[{rng.choice(['', '', '^'])}{rng.choice(['', '', '', '-', ']'])}{operation.join(operands)}{rng.choice(['', '', '', '-'])}]"


def random_pattern(rng, sets):
    """A pattern of random_patterns.py, with sets as well."""
    characters = patterns.CHARACTERS
    patterns.CHARACTERS = [*rng.sample(characters, 8), *rng.sample(sets, 8)]
    try:
        return patterns.random_pattern(rng)
    finally:
        patterns.CHARACTERS = characters


def valid_pattern(rng, sets):
    """A random pattern that is valid, and its compiled form."""
    while True:
        pattern = random_pattern(rng, sets)
        try:
            return pattern, expressions.compile_pattern(pattern)
        except ValueError:
            continue


def find_words(compiled, text):
    """As steps.find_words, or None if regex takes too long."""
    try:
        places = [0, *(place for match in compiled.finditer(text, timeout=1) for place in match.span()), len(text)]
    except TimeoutError:
        return None
    return [text[start:end] for start, end in itertools.pairwise(places) if start < end]


def in_tiktoken(pattern, texts):
    """The matches in each text: a word that is a token stays whole, and here all parts of all texts are tokens."""
    parts = {bytes([byte]) for byte in range(256)}
    parts.update(text[start:end].encode() for text in texts for start, end in itertools.combinations(range(len(text) + 1), 2))
    ranks = {part: rank for rank, part in enumerate(sorted(parts, key=len))}
    try:
        encoding = tiktoken.Encoding("sets", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    except ValueError:
        return None
    return [[encoding.decode_single_token_bytes(number).decode() for number in encoding.encode_ordinary(text)] for text in texts]


def read_alike_by_rust(pattern):
    """Whether Rust reads these sets as regex does, and finds no empty match, which tiktoken can't encode."""
    return not regex.search(r"\[:|\[\^?\]|\[\^?-|-[]-]|-\[|~~~|&&&|---|\{,|\(\?i|[&~|]\]|\[\^?[&~|]|[&~|-]{3}|\\s\+\+\$|\$", pattern)


def main(bound, seed):
    rng, counts, start = random.Random(seed), dict.fromkeys(["patterns", "in C", "in tokenizers", "in tiktoken", "texts"], 0), time.time()
    sets = []
    for number in bounded(bound):
        if number % 500 == 0:  # sets: the same ones for some time, whose code points are in a cache
            sets = [random_set(rng) for _ in range(100)]
        pattern, compiled = valid_pattern(rng, sets)
        counts["patterns"] += 1
        if counts["patterns"] % 500 == 0:
            print(counts, file=sys.stderr)
        texts = ["".join(rng.choices(rng.sample(TEXTS, rng.randint(1, 8)), k=rng.randint(0, 12))) for _ in range(8)]
        texts = [text for text in texts if len(text) < 100]
        words = [find_words(compiled, text) for text in texts]
        texts = [text for text, found in zip(texts, words) if found is not None]
        words = [found for found in words if found is not None]
        counts["texts"] += len(texts)
        if not ENGINE.pattern(pattern)[1]:
            counts["in C"] += 1
            for text in texts:
                table = ENGINE.words((), pattern)
                table.scan_all([text.encode()])
                expected = {}
                for word in split(compiled, text) or ():
                    expected[word.encode()] = expected.get(word.encode(), 0) + 1
                assert table.copy() == expected, (pattern, text)
        # regex 2026.11.19 finds "\n" for [^\\p{L}\\P{L}] and [^\\s\\S], which have no characters
        has_both = regex.search(r"\\P\{L", pattern) or (r"\s" in pattern and r"\S" in pattern)
        if not expressions.differs_in_oniguruma(pattern) and not has_both:
            try:
                step = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
            except Exception:  # it has no class of its own
                step = None
            for text, found in zip(texts, words) if step else ():
                assert [text[a:b] for _, (a, b) in step.pre_tokenize_str(text)] == found, (pattern, text)
            counts["in tokenizers"] += bool(step)
        if counts["patterns"] % 3 == 0 and read_alike_by_rust(pattern) and not compiled.match(""):
            short = [text for text in texts if len(text) < 40]
            matches = [[match[0] for match in compiled.finditer(text)] for text in short]
            if all(map(all, matches)) and (theirs := in_tiktoken(pattern, short)) is not None:
                counts["in tiktoken"] += 1
                assert theirs == matches, (pattern, short)
    print(", ".join(f"{n:,} {name}" for name, n in counts.items()), f"0 differences, {time.time() - start:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1], choose_seed(sys.argv[2:]))
