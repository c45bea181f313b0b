"""Random patterns of all constructs that bpe_more.patterns supports, and texts that are full of traps for them."""

import random

CHARACTERS = ["a", "b", "A", "s", "'", " ", r"\n", r"\r", "1", "!", "/", "ſ", "é", "字", r"\u0301", r"\t", r"\x41", r"\.", r"\p{L}", r"\p{N}"]
CHARACTERS += [r"\s", r"\S", r"\w", r"\W", r"\d", r"[^\s\p{L}\p{N}]", r"[^\r\n\p{L}\p{N}]", r"[\r\n]", "[a-s]", "[^a]", r"\p{Lu}"]
CHARACTERS += [r"[\p{Ll}\p{M}]", ".", r"[\s\S]", "[ab']", r"\P{L}", r"[\p{M}\p{P}]", r"\pN"]
TIMES = ["*", "+", "?", "{2}", "{1,2}", "{1,3}", "{0,2}", "{2,}", "{,2}"]
PARTS = [*"aabbAsS'' 11!/\n\n\r\t.", "  ", "\r\n", "ſ", "é", "字", "漢字", "\u0301", "\u3000", "\u0663", "😀", "ab", "a'", "'s", "\n\n", " \n"]
PARTS += ["K", "\u212a", "İ", "ß", "x" * 70, " " * 66, "字" * 25, "ab" * 40, "\n" * 20, "a\n" * 9]


def random_item(rng: random.Random, depth: int) -> str:
    kind = rng.random()
    if kind < 0.1:
        return rng.choice(["(?=%s)", "(?!%s)", r"(?![\s\S])"]).replace("%s", rng.choice(CHARACTERS))
    if depth and kind < 0.3:
        text = rng.choice(["(?:%s)", "(?:%s)", "(?i:%s)"]) % random_choice(rng, depth - 1)
    else:
        text = rng.choice(CHARACTERS)
    return text + rng.choice(TIMES) + rng.choice(["", "", "", "?", "+"]) if rng.random() < 0.4 else text


def random_choice(rng: random.Random, depth: int) -> str:
    return "|".join("".join(random_item(rng, depth) for _ in range(rng.randint(1, 3))) for _ in range(rng.randint(1, 3)))


def random_pattern(rng: random.Random) -> str:
    if rng.random() < 0.1:  # after each turn, a match can continue as from its beginning
        first, second, other = rng.choices(CHARACTERS, k=3)
        return rng.choice(["(?:%s%s)*(?:%s|%s)", "(?:%s%s)*%s?%s"]) % (first, second, other, first)
    ends = [r"|\s+(?!\S)|\s+", r"|[\s\S]", r"|\s", "|.", r"|\s+$", r"|\s++$|\s", "$", "", ""]
    return random_choice(rng, 2) + rng.choice(ends)


def random_text(rng: random.Random, most: int) -> str:
    return "".join(rng.choices(rng.sample(PARTS, rng.randint(1, 8)), k=rng.randint(0, most)))
