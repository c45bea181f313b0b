"""Draw the walk-through of the README: four words, six rounds of merging, from the trainer's own output.

    python benchmarks/walk.py [OUT.svg]

A row is a word with its count, a column is a round: above it stand the pair that is merged and its count, and a token
is a box. Single bytes are plain, tokens are tinted, and the new token of the round is filled, with bold letters; these
differ in lightness, so that nobody has to tell colors apart. Two bands make the letters large enough for a phone.
Needs nothing but bpe.py.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import bpe

WORDS = {b"low": 5, b"lower": 2, b"widest": 3, b"newest": 6}
ROUNDS = 6
COLUMNS = 4  # in a band
CELL, BOX, ROW = 22, 36, 46  # width of a letter, height of a box, distance of two rows
LEFT, COLUMN, HEAD, BAND = 64, 156, 98, 304  # where the first column begins; sizes of a column, its head, a band
WIDTH = LEFT + COLUMNS * COLUMN - 12

# The background is that of the page, in case that the page is dark and the reader's system is not, or the reverse.
STYLE = """
  text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 21px; fill: #59636e }
  .pair { font-size: 24px; font-weight: bold; fill: #1f2328 }
  .letter { font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 26px; fill: #1f2328 }
  .letter, .count { text-anchor: middle }
  .count { font-size: 23px }
  .page { fill: #ffffff }
  .byte { fill: #ffffff; stroke: #8c959f; stroke-width: 1.5 }
  .old { fill: #cfe3f8; stroke: #4a78a6; stroke-width: 1.5 }
  .new { fill: #0a4a82; stroke: #0a4a82; stroke-width: 1.5 }
  .in-new { fill: #ffffff; font-weight: bold }
  @media (prefers-color-scheme: dark) {
    text { fill: #a9b3be }
    .pair, .letter { fill: #f0f6fc }
    .page { fill: #0d1117 }
    .byte { fill: #0d1117; stroke: #7d8792 }
    .old { fill: #1c4063; stroke: #6a9fd0 }
    .new { fill: #ffd469; stroke: #ffd469 }
    .in-new { fill: #10151b }
  }
"""


def rounds() -> list[tuple[str, str, bytes, list[bpe.Word]]]:
    """[(the pair, its count, the new token, the words as they stand then), ...]; at first no pair is merged."""
    words = [tuple(bytes([byte]) for byte in word) for word in WORDS]
    found = [("", "", b"", words)]
    options = bpe.check_options([], pattern=r"\S+", vocab_size=256 + ROUNDS)
    for left, right, count in bpe.Trainer(bpe.Words(WORDS), options):
        words = [bpe.merge_pair(word, (left, right)) for word in words]
        found.append((f"{left.decode()} + {right.decode()}", f"{count} times", left + right, words))
    return found


def text(x: float, y: float, content: str, kind: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}"' + f' class="{kind}"' * bool(kind) + f">{escape(content)}</text>"


def box(x: float, y: float, token: bytes, new: bytes) -> list[str]:
    """A token: a box, and in it each letter in a cell of its own, so that no font can move it."""
    kind = "new" if token == new else "old" if len(token) > 1 else "byte"
    width = CELL * len(token) - 3
    parts = [f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width}" height="{BOX}" rx="6"/>']
    letters = "letter in-new" if kind == "new" else "letter"
    return parts + [text(x + CELL * (i + 0.5) - 1.5, y + 26, chr(byte), letters) for i, byte in enumerate(token)]


def draw() -> str:
    """The picture as SVG."""
    parts, found = [], rounds()
    for number, (pair, count, new, words) in enumerate(found):
        x, y = LEFT + COLUMN * (number % COLUMNS), BAND * (number // COLUMNS)
        lines = (
            [(26, f"round {number}", ""), (55, pair, "pair"), (80, count, "")] if number else [(80, "single bytes", "")]
        )
        parts += [text(x, y + at, content, kind) for at, content, kind in lines]
        for row, (word, times) in enumerate(zip(words, WORDS.values())):
            top, at = y + HEAD + ROW * row, x
            if number % COLUMNS == 0:
                parts.append(text(LEFT / 2 - 4, top + 26, f"{times} ×", "count"))
            for token in word:
                parts += box(at, top, token, new)
                at += CELL * len(token)
    x, y = LEFT + COLUMN * (len(found) % COLUMNS), BAND * (len(found) // COLUMNS) + HEAD  # a column that is left over
    for row, (token, new, label) in enumerate([(b"e", b"", "byte"), (b"st", b"", "merged"), (b"st", b"st", "new")]):
        parts += [*box(x, y + ROW * row, token, new), text(x + CELL * 2 + 6, y + ROW * row + 25, label)]
    height = BAND * -(-len(found) // COLUMNS) - 8
    title = "; ".join(
        f"round {number}: merge {pair}, {count}" for number, (pair, count, *_) in enumerate(found) if number
    )
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">',
        f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}" rx="8"/>', *parts, "</svg>\n",
    ])  # fmt: skip


def main() -> None:
    if sys.argv[1:2] in (["-h"], ["--help"]):
        raise SystemExit(__doc__)
    output = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).with_name("walk.svg")
    output.write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
