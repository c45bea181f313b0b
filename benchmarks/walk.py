"""Draw the walk-through in the README: four words and six rounds of merging, from the trainer's output.

    python benchmarks/walk.py [OUT.svg]

Each row is a word with its count, and each column is a round, headed by the merged pair and its count; after a tie, by
the pair that came second, too. Each token is a box: plain for a single byte, tinted for a merged token, and filled, with
bold letters, for the new token of the round. The three differ in lightness as well as in color. The columns are split
into two bands, which keeps the letters large enough for a phone. Below them are the merges that were learned, each with
its rank, and the id of the new token. Requires only bpe.py.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import picture
from picture import line, text

import bpe

WORDS = {b"low": 5, b"lower": 2, b"widest": 3, b"newest": 6}
ROUNDS = 6
COLUMNS = 4  # in a band
CELL, ROW = 22, 46  # width of a letter's cell, distance between rows
WIDE, LETTER = "mw", "15.6"  # letters that are too wide for a cell in some fonts, and their width in a monospaced font
LEFT, COLUMN, HEAD, BAND = 64, 156, 106, 310  # x of the first column; sizes of a column, its head and a band
WIDTH = LEFT + COLUMNS * COLUMN - 8
LEGEND = [(b"e", b"", "byte", "字节"), (b"st", b"", "merged", "已合并"), (b"st", b"st", "new", "新词元")]
STYLE = """
  .letter { font-size: 26px }
  .pair { font-size: 23px }
  .second { font-size: 19px }
"""


class Round(NamedTuple):
    left: bytes = b""  # the merged pair
    right: bytes = b""
    count: int = 0
    second: tuple[bytes, bytes] | None = None  # of the pairs that tie with it, the one that the tie rule puts second
    words: tuple[bpe.Word, ...] = ()  # after the merge


def rounds() -> list[Round]:
    """Return what happened in each round; round 0 has no merge yet."""
    words = tuple(tuple(bytes([byte]) for byte in word) for word in WORDS)
    found = [Round(words=words)]
    for left, right, count, _ in itertools.islice(bpe.learn_from_bytes(WORDS), ROUNDS):
        counts = bpe.count_pairs(dict(zip(words, WORDS.values())))
        ties = sorted(pair for pair in counts if counts[pair] == count)
        words = tuple(bpe.merge_pair(word, (left, right)) for word in words)
        found.append(Round(left, right, count, ties[-2] if len(ties) > 1 else None, words))
    return found


def spell(left: bytes, right: bytes) -> str:
    return f"{left.decode()} + {right.decode()}"


def box(x: float, y: float, token: bytes, new: bytes) -> list[str]:
    """Draw a token: a box, with each letter centered in its own cell, so that letters line up in any font."""
    kind = "new" if token == new else "old" if len(token) > 1 else "byte"
    parts = [picture.box(x, y, CELL * len(token) - 3, kind)]
    for i, letter in enumerate(token.decode()):
        fixed = {"textLength": LETTER, "lengthAdjust": "spacingAndGlyphs"} if letter in WIDE else {}
        style = "letter middle in-new" if kind == "new" else "letter middle"
        parts.append(text(x + CELL * (i + 0.5) - 1.5, y + 26, letter, style, **fixed))
    return parts


def badge(x: float, y: float, number: str) -> list[str]:
    """Draw the number of a round in a circle."""
    return [f'<circle class="line" cx="{x + 14:g}" cy="{y - 7:g}" r="13"/>', text(x + 14, y, number, "middle")]


def head(number: int, this: Round, x: float, y: float) -> list[str]:
    """Write what is merged, how often it occurs, and which pair lost a tie."""
    if not number:
        return [*badge(x, y + 36, "0"), text(x + 36, y + 36, "bytes 字节")]
    parts = [*badge(x, y + 36, str(number)), text(x + 36, y + 36, spell(this.left, this.right), "strong pair")]
    parts.append(text(x, y + 66, f"{this.count} ×"))
    if this.second:
        parts.append(text(x + 50, y + 66, "tie 并列"))
        parts.append(text(x, y + 92, f"> {spell(*this.second)}"))
    return parts


def legend(x: float, y: float) -> list[str]:
    """Explain the circle and the three kinds of boxes."""
    parts = [*badge(x, y + 36, "1"), text(x + 36, y + 36, "round 轮次")]
    for row, (token, new, english, chinese) in enumerate(LEGEND):
        top = y + HEAD + ROW * row
        parts += box(x, top, token, new)
        parts += [text(x + CELL * 2 + 8, top + 14, english, "second"), text(x + CELL * 2 + 8, top + 34, chinese, "second")]
    return parts


def merges(found: list[Round], y: float) -> list[str]:
    """Draw the result: the merges in order, in two columns, with rank and id."""
    parts = [line(12, WIDTH - 12, y), text(16, y + 34, "merges 合并规则", "strong")]
    parts.append(text(WIDTH - 16, y + 34, "rank 序号 · pair → token 词元 · id", "end"))
    rows = len(found) // 2
    for rank, (left, right, *_) in enumerate(found):
        x, top = LEFT + (WIDTH - LEFT) / 2 * (rank // rows), y + 52 + ROW * (rank % rows)
        parts.append(text(x - 16, top + 25, str(rank), "end"))
        parts += box(x, top, left, b"")
        parts += box(x + CELL * len(left) + 4, top, right, b"")
        parts.append(text(x + 114, top + 25, "→", "middle"))
        parts += box(x + 132, top, left + right, left + right)
        parts.append(text(x + 132 + CELL * len(left + right) + 8, top + 25, str(256 + rank)))
    return parts


def draw() -> str:
    """Return the picture as SVG."""
    parts, found = [], rounds()
    for number, this in enumerate(found):
        x, y = LEFT + COLUMN * (number % COLUMNS), BAND * (number // COLUMNS)
        parts += head(number, this, x, y)
        for row, (word, times) in enumerate(zip(this.words, WORDS.values())):
            top, at = y + HEAD + ROW * row, x
            if number % COLUMNS == 0:
                parts.append(text(LEFT / 2 - 4, top + 25, f"{times} ×", "middle"))
            for token in word:
                parts += box(at, top, token, this.left + this.right)
                at += CELL * len(token)
    parts += legend(LEFT + COLUMN * (len(found) % COLUMNS), BAND * (len(found) // COLUMNS))
    bands = BAND * -(-len(found) // COLUMNS)
    parts += merges(found[1:], bands)
    title = "; ".join(
        f"round {number}: merge {spell(this.left, this.right)}, {this.count} times"
        + (f" (a tie with {spell(*this.second)})" if this.second else "")
        for number, this in enumerate(found)
        if number
    )
    return picture.frame((WIDTH, bands + 62 + ROW * (ROUNDS // 2)), title, parts, STYLE)


def main() -> None:
    if sys.argv[1:2] in (["-h"], ["--help"]):
        raise SystemExit(__doc__)
    output = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).with_name("walk.svg")
    output.write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
