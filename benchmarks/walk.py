"""Draw the walk-through in the README: four words and six rounds of merging, from the trainer's output.

    python benchmarks/walk.py [OUT.svg]

Each row is a word with its count, and each column is a round, headed by the merged pair and its count. Each token is a
box: plain for a single byte, tinted for a merged token, and filled, with bold letters, for the new token of the round.
The three differ in lightness as well as in color. The columns are split into two bands, which keeps the letters large
enough for a phone. Requires only bpe.py.
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
CELL, BOX, ROW = 22, 36, 46  # width of a letter's cell, height of a box, distance between rows
WIDE, LETTER = "mw", 15.6  # letters that are too wide for a cell in some fonts, and their width in a monospaced font
LEFT, COLUMN, HEAD, BAND = 64, 156, 98, 304  # x of the first column; sizes of a column, its head and a band
WIDTH = LEFT + COLUMNS * COLUMN - 12

# The picture has its own background: a page may be dark on a light system, or the other way around.
STYLE = """
  text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 21px; fill: #59636e }
  .pair { font-size: 24px; font-weight: bold; fill: #1f2328 }
  .letter { font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 26px; fill: #1f2328 }
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
    """Return (pair, its count, new token, all words after the merge) for each round; round 0 has no merge yet."""
    words = [tuple(bytes([byte]) for byte in word) for word in WORDS]
    found = [("", "", b"", words)]
    options = bpe.check_options("learn", [], vocab_size=256 + ROUNDS)
    for left, right, count, _ in bpe.learn(bpe.WordTable(WORDS), options):
        words = [bpe.merge_pair(word, (left, right)) for word in words]
        found.append((f"{left.decode()} + {right.decode()}", f"{count} times", left + right, words))
    return found


def text(x: float, y: float, content: str, kind: str = "") -> str:
    """Return a line of text; a single wide letter gets a fixed width."""
    attributes = f' class="{kind}"' * bool(kind)
    attributes += f' textLength="{LETTER}" lengthAdjust="spacingAndGlyphs"' * (content in WIDE)
    return f'<text x="{x:g}" y="{y:g}"{attributes}>{escape(content)}</text>'


def box(x: float, y: float, token: bytes, new: bytes) -> list[str]:
    """Draw a token: a box, with each letter centered in its own cell, so that letters line up in any font."""
    kind = "new" if token == new else "old" if len(token) > 1 else "byte"
    width = CELL * len(token) - 3
    parts = [f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width}" height="{BOX}" rx="6"/>']
    letters = "letter in-new" if kind == "new" else "letter"
    return parts + [text(x + CELL * (i + 0.5) - 1.5, y + 26, chr(byte), letters) for i, byte in enumerate(token)]


def draw() -> str:
    """Return the picture as SVG."""
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
    x, y = LEFT + COLUMN * (len(found) % COLUMNS), BAND * (len(found) // COLUMNS) + HEAD  # of the legend
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
