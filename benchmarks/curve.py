"""Draw compression against vocabulary size: bytes per token at every size, from one training run per corpus.

    python benchmarks/curve.py OUT.svg NAME=CORPUS [NAME=CORPUS ...] [--vocab-size 64000] [--pattern gpt2]

Each merge saves a known number of tokens, so the number of tokens in the corpus is exact after every merge. Each curve
is drawn in percent of its own bytes per token at 32,000 (at the vocabulary size, if that is smaller), because bytes per
token of different texts can't be compared.
The figures are also printed as a Markdown table. Requires only bpe.py.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import picture
from picture import text

import bpe

SIZES = [500, 1_000, 2_000, 5_000, 10_000, 20_000, 32_000, 64_000, 100_000, 200_000]  # for the table
TICKS = {500 << i: f"{(500 << i) / 1000:g}k" if i else "500" for i in range(9)}  # each twice as large: 500, 1k, ... 128k
BASE = 32_000  # the size that is 100%, unless the vocabulary is smaller
LOWEST = 40  # percent, at the bottom of the picture
LEFT, RIGHT, TOP, BOTTOM = 84, 484, 78, 430  # of the plot
WIDTH, LABEL, LINE = 704, 508, 58  # of the picture; x and distance of the labels
CHINESE = {"English": "英文", "Source code": "源代码", "100 languages": "百种语言", "Chinese poems": "中文诗词", "Chinese": "中文"}
LIGHT_COLORS = ["#0a4a82", "#a84300", "#00694a", "#8a2d7e", "#1f2328"]
DARK_COLORS = ["#79b8ff", "#ffb26b", "#5fd7a7", "#e7a1e2", "#f0f6fc"]
DASHES = ["none", "12 5", "3 4", "14 4 3 4", "7 3"]  # distinguishable without color


def curve(corpus: str, vocab_size: int, pattern: str) -> dict[int, float]:
    """Return the bytes per token on a corpus for each vocabulary size."""
    words = bpe.count_words(corpus, ["<|endoftext|>"], pattern=pattern)
    n_bytes = n_tokens = sum(len(word) * count for word, count in words.items())
    engine = bpe.choose_engine("auto")
    wanted = vocab_size - 257
    merges = engine.learn(words, wanted) if engine else itertools.islice(bpe.learn_from_bytes(words), wanted)
    ratios = {257: 1.0}  # 256 bytes and the special token
    for size, (_, _, _, replaced) in enumerate(merges, 258):
        n_tokens -= replaced
        ratios[size] = n_bytes / n_tokens
    if max(ratios) < min(TICKS):
        raise SystemExit(f"curve.py: {corpus} is too small")
    return ratios


def table(curves: dict[str, dict[int, float]], vocab_size: int) -> str:
    """Return a Markdown table of corpora and sizes, with "–" after a corpus has run out of merges."""
    sizes = [size for size in SIZES if 256 < size <= vocab_size]
    rows = [["bytes per token at", *(f"{size:,}" for size in sizes)]]
    for name, ratios in curves.items():
        rows.append([name, *(f"{ratios[size]:.2f}" if size in ratios else "–" for size in sizes)])
    head, *others = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, "|---|" + "---:|" * len(sizes), *others])


def colors(of_numbers: list[str]) -> str:
    """Return the rules that give each curve and its label a color."""
    rules = [f"  .curve{i} {{ stroke: {color} }} .name{i} {{ fill: {color} }}\n" for i, color in enumerate(of_numbers)]
    return "".join(rules)


STYLE = """
  .grid { stroke: #d1d9e0; stroke-width: 1.5 }
  .curve { fill: none; stroke-width: 3.5; stroke-linejoin: round }
  .leader { fill: none; stroke-width: 1.5 }
  .name { font-weight: bold }
  .dot { fill: #1f2328 }
"""
DARK = "    .grid { stroke: #3d444d } .dot { fill: #f0f6fc }\n"


def draw(curves: dict[str, dict[int, float]], vocab_size: int, pattern: str) -> str:
    """Return the picture as SVG: one curve per corpus, labeled at its end."""
    first, base, whole, percent = min(TICKS), min(BASE, vocab_size), {}, {}
    for name, ratios in curves.items():
        whole[name] = ratios.get(base, ratios[max(ratios)])  # the last, if all words are single tokens before
        percent[name] = {size: 100 * ratio / whole[name] for size, ratio in ratios.items() if size >= first}
    highest = max(105, *(max(points.values()) for points in percent.values()))

    def place(size: float, value: float) -> tuple[float, float]:
        """Return x and y: the first axis is logarithmic."""
        part = math.log(size / first) / math.log(vocab_size / first)
        return LEFT + (RIGHT - LEFT) * part, BOTTOM - (BOTTOM - TOP) * (value - LOWEST) / (highest - LOWEST)

    parts = [
        text(16, 34, "bytes per token 每个词元的字节数", "strong"),
        text(WIDTH - 16, 34, pattern, "end"),
        text(16, 62, f"{base / 1000:g}k = 100%"),
        text((LEFT + RIGHT) / 2, BOTTOM + 62, "vocabulary size 词表大小", "strong middle"),
    ]
    for value in range(LOWEST, int(highest) + 1, 10):
        _, y = place(first, value)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{RIGHT}"/>')
        parts.append(text(LEFT - 10, y + 7, f"{value}%", "end"))
    for size, label in TICKS.items():
        if size <= vocab_size:
            x, _ = place(size, LOWEST)
            parts.append(f'<path class="grid" d="M{x:.1f} {TOP}V{BOTTOM}"/>')
            parts.append(text(x, BOTTOM + 28, label, "middle"))
    for number, points in enumerate(percent.values()):
        dash = f'style="stroke-dasharray: {DASHES[number % len(DASHES)]}"'
        path = "L".join("{:.1f} {:.1f}".format(*place(size, points[size])) for size in drawn_sizes(points))
        parts.append(f'<path class="curve curve{number % len(DASHES)}" {dash} d="M{path}"/>')
    x, y = place(base, 100)  # where the curves meet
    parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="7"/>')
    ends = {name: place(max(points), points[max(points)]) for name, points in percent.items()}
    parts += labels(ends, {name: f"{base / 1000:g}k: {ratio:.2f}" for name, ratio in whole.items()})
    title = "; ".join(
        f"{name}: " + ", ".join(f"{points[size]:.0f}% at {size:,}" for size in TICKS if size in points)
        for name, points in percent.items()
    )
    return picture.frame((WIDTH, BOTTOM + 80), title, parts, STYLE + colors(LIGHT_COLORS), DARK + colors(DARK_COLORS))


def drawn_sizes(points: dict[int, float]) -> list[int]:
    """Return sizes at equal distances on the axis, with the last one: enough for a smooth curve."""
    last = max(points)
    steps = {round(min(points) * 2 ** (i / 12)) for i in range(200)}
    return [size for size in sorted(steps | {last}) if size <= last]


def labels(ends: dict[str, tuple[float, float]], whole: dict[str, str]) -> list[str]:
    """Label the end of each curve with its name and its bytes per token at 100%, without overlaps."""
    parts, y = [], TOP - LINE
    for name in sorted(ends, key=lambda name: (ends[name][1], name)):
        number = list(ends).index(name) % len(DASHES)
        end_x, end_y = ends[name]
        y = max(end_y, y + LINE)
        parts.append(f'<path class="leader curve{number}" d="M{end_x:.1f} {end_y:.1f}L{LABEL - 6} {y:.1f}"/>')
        parts.append(text(LABEL, y + 7, name, f"name name{number}"))
        parts.append(text(LABEL, y + 31, f"{whole[name]} {CHINESE.get(name, '')}".strip()))
    return parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output")
    parser.add_argument("corpora", nargs="+", metavar="NAME=CORPUS")
    parser.add_argument("--vocab-size", type=int, default=64_000)
    parser.add_argument("--pattern", default="gpt2")
    args = parser.parse_args()
    if args.vocab_size <= min(TICKS):
        raise SystemExit(f"curve.py: --vocab-size must be above {min(TICKS)}")
    corpora = dict(item.split("=", 1) if "=" in item else (Path(item).stem, item) for item in args.corpora)
    if missing := [path for path in corpora.values() if not os.path.isfile(path)]:
        raise SystemExit(f"curve.py: no such file: {missing[0]}")
    curves = {name: curve(path, args.vocab_size, args.pattern) for name, path in corpora.items()}
    print(table(curves, args.vocab_size))
    Path(args.output).write_text(draw(curves, args.vocab_size, args.pattern), encoding="utf-8")


if __name__ == "__main__":
    main()
