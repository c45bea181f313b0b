"""Draw text as tokens and ids, with two vocabularies that are trained on fixtures/corpus.txt.

    python benchmarks/tokens.py [OUT.svg]

Each box is a token: plain for a single byte, tinted for a merged token. All bytes of a row have the same width, so a
longer box has more bytes. A character that tokens divide is above its bytes, in hexadecimal. A space appears as ␣.
Below each box is the token's id. Requires only bpe.py.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import picture
from picture import HEIGHT, box, line, text

import bpe

ROOT = Path(__file__).resolve().parent.parent
CORPUS = "fixtures/corpus.txt"
SIZES = [1000, 4000]
TEXTS = ["The ferry was late again.", "外婆很好", "def add(a, b):"]
MARGIN, LEFT, RIGHT = 14, 88, 666  # x of the labels, of the first box, and of the end of the last one
WIDTH = RIGHT + MARGIN
WIDEST = 50  # the width of a byte, at most
GAP = 4  # between boxes
ABOVE = 32  # the height of the line for divided characters
STYLE = """
  .letter { font-size: 22px }
  .id { text-anchor: middle; font-size: 19px }
  .hex { font-size: 20px }
  .text { font-size: 24px; font-weight: bold }
"""


def row(tokenizer: bpe.Tokenizer, given: str, y: float) -> tuple[list[str], float, int]:
    """Draw a text as boxes with ids below; return the parts, the y below them, and the number of tokens."""
    ids = tokenizer.encode(given)
    cell = min((RIGHT - LEFT) / len(given.encode()), WIDEST)
    starts = list(itertools.accumulate((len(tokenizer.vocab[token_id]) for token_id in ids), initial=0))
    spelled, divided = letters(given, set(starts), cell, y)
    if divided:  # the divided characters take a line of their own, above the boxes
        y += ABOVE
    parts = [text(MARGIN, y + 26, f"{len(tokenizer):,}", "strong"), text(MARGIN, y + HEIGHT + 22, "id")]
    for token_id, start, end in zip(ids, starts, starts[1:]):
        x, width = LEFT + cell * start, cell * (end - start) - GAP
        parts.append(box(x, y, width, "old" if end - start > 1 else "byte"))
        parts.append(text(x + width / 2, y + HEIGHT + 22, str(token_id), "id"))
    return parts + spelled, y + HEIGHT + 34, len(ids)


def letters(given: str, starts: set[int], cell: float, y: float) -> tuple[list[str], bool]:
    """Spell a text over its boxes, where tokens begin at the given bytes; return the parts, and if tokens divide one."""
    characters, end = [], 0
    for character in given:
        start, end = end, end + len(character.encode())
        characters.append((start, end, character))
    cut = {start for start, end, _ in characters if starts.intersection(range(start + 1, end))}
    top, parts = y + ABOVE if cut else y, []
    for start, end, character in characters:
        left, right = LEFT + cell * start, LEFT + cell * end - GAP
        middle = (left + right) / 2
        if start not in cut:
            parts.append(text(middle, top + 26, "␣" if character == " " else character, "letter middle"))
            continue
        parts.append(text(middle, top - 9, character, "letter middle"))
        parts.append(line(left + 3, right - 3, top - 4))
        middles = (LEFT + cell * (at + 0.5) - GAP / 2 for at in range(start, end))
        parts += [text(x, top + 25, f"{byte:02x}", "letter middle hex") for x, byte in zip(middles, character.encode())]
    return parts, bool(cut)


def legend(y: float) -> list[str]:
    """Explain the size, the two kinds of boxes, and where the vocabularies come from."""
    parts = [text(MARGIN, y, f"{SIZES[0]:,}", "strong"), text(LEFT, y, "vocabulary size 词表大小")]
    for x, kind, words in [(346, "byte", "byte 字节"), (482, "old", "merged 已合并")]:
        parts += [box(x, y - 18, 26, kind, 22, 5), text(x + 34, y, words)]
    return parts


def draw() -> str:
    """Return the picture as SVG."""
    tokenizers = [bpe.Tokenizer.train(ROOT / CORPUS, size, ["<|endoftext|>"]) for size in SIZES]
    parts, y, said = legend(34), 56.0, []
    for given in TEXTS:
        parts.append(line(MARGIN, RIGHT, y))
        parts.append(text(LEFT, y + 36, given, "letter text"))
        place, counts, y = y + 36, [], y + 54
        for tokenizer in tokenizers:
            drawn, y, count = row(tokenizer, given, y)
            parts += drawn
            counts.append(count)
        parts.append(text(RIGHT, place, f"{' → '.join(map(str, counts))} tokens 词元", "strong end"))
        said.append(f"{given}: {' and '.join(map(str, counts))} tokens")
        y += 4
    parts.append(line(MARGIN, RIGHT, y))
    parts.append(text(MARGIN, y + 32, f"trained on 训练文本：{CORPUS}"))
    title = f"Vocabularies of {' and '.join(f'{size:,}' for size in SIZES)} tokens. {'; '.join(said)}"
    return picture.frame((WIDTH, y + 48), title, parts, STYLE)


def main() -> None:
    if sys.argv[1:2] in (["-h"], ["--help"]):
        raise SystemExit(__doc__)
    output = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).with_name("tokens.svg")
    output.write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
