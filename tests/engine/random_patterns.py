"""Random patterns of all constructs that bpe_more.patterns supports, also with sets in sets, and texts full of traps for them."""

import random

CHARACTERS = ["a", "b", "A", "s", "'", " ", r"\n", r"\r", "1", "!", "/", "ſ", "é", "字", r"\u0301", r"\t", r"\x41", r"\.", r"\p{L}", r"\p{N}"]
CHARACTERS += [r"\s", r"\S", r"\w", r"\W", r"\d", r"[^\s\p{L}\p{N}]", r"[^\r\n\p{L}\p{N}]", r"[\r\n]", "[a-s]", "[^a]", r"\p{Lu}"]
CHARACTERS += [r"[\p{Ll}\p{M}]", ".", r"[\s\S]", "[ab']", r"\P{L}", r"[\p{M}\p{P}]", r"\pN"]
TIMES = ["*", "+", "?", "{2}", "{1,2}", "{1,3}", "{0,2}", "{2,}", "{,2}"]
PARTS = [*"aabbAsS'' 11!/\n\n\r\t.", "  ", "\r\n", "ſ", "é", "字", "漢字", "\u0301", "\u3000", "\u0663", "😀", "ab", "a'", "'s", "\n\n", " \n"]
PARTS += ["K", "\u212a", "İ", "ß", "x" * 70, " " * 66, "字" * 25, "ab" * 40, "\n" * 20, "a\n" * 9]
WORDS = [  # and parts of texts with traps for the named patterns
    *"abeszAZLTS'1239.!/- \n\r\t",
    "'ll", "'LL", "'Ve", "'s", "'S", "'ſ", "'d", "'re", "don't", "  ", "   ", "\r\n", "\n\n", " \n", "//", "!\n/", "http://",
    "123456", "\u0663", "\u0663" * 4, "²", "Ⅷ", "é", "É", "ß", "ſ", "ǅ", "ʰ", "ª", "字", "漢字", "한", "中A", "中Ab", "\u3000", "\u00a0",
    "\u2028", "\u0085", "\u0301", "\u0301\u0302", "\ufe0f", "❤\ufe0f", "😀", "\U0001f468\u200d", "\ufeff", "\0", "\x1c", "—", "。", "’s",
    "नमस्ते", "ไทย", "العَرَبِيَّة", "Привет", "ПРИВЕТ", "e\u0301", "E\u0301A", "word" * 5, "WORD" * 5, "Word" * 18, "x" * 70, " " * 66,
    "。" * 30, "9" * 40, "\n" * 20, "\u3000" * 25, "字" * 25, "AB" * 40, "中A" * 20, "\u0301" * 40, "!" * 70, "/\n" * 40,
]  # fmt: skip

ONES = ["a", "b", "c", "é", "s", "S", "1", "_", "-", "&", "|", "~", ".", "(", " ", "!", r"\n", r"\x41", r"\u0301", r"\-", r"\]", r"\[", r"\&", "字"]
CLASSES = [r"\p{L}", r"\p{Lu}", r"\p{N}", r"\p{M}", r"\P{L}", r"\s", r"\S", r"\d", r"\p{Han}", r"\p{^Latin}", r"\w", "[:alpha:]"]
RANGES = ["a-c", "a-z", "A-Z", "0-9", "!-/", ":-~", "一-龥", r"\x20-\x7e", "ſ-K"]
IN_SETS = [*PARTS, "c", "_", "-", "--", "&", "&&", "|", "~", "(", ")", "[", "]", "^", ":", "B", "z", "Z", "s", "٣", "½", "\x1c", "\x85", "\u200d", "ﬆ", "ff", "st", "İ"]


def random_operand(rng: random.Random, depth: int) -> str:
    parts = [rng.choice(rng.choice([ONES, ONES, CLASSES, RANGES])) for _ in range(rng.randint(1, 3))]
    if depth and rng.random() < 0.5:
        parts.insert(rng.randint(0, len(parts)), random_set(rng, depth - 1))
    return "".join(parts)


def random_set(rng: random.Random, depth: int = 2) -> str:
    operation = rng.choice(["&&", "&&", "--", "~~"])
    operands = [random_operand(rng, depth) for _ in range(rng.choice([1, 1, 1, 2, 2, 3]))]
    return f"[{rng.choice(['', '', '^'])}{rng.choice(['', '', '', '-', ']'])}{operation.join(operands)}{rng.choice(['', '', '', '-'])}]"


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
