"""Draw compression against vocabulary size: bytes per token at every size, from one training run per corpus.

    python benchmarks/curve.py OUT.png NAME=CORPUS [NAME=CORPUS ...] [--vocab-size 32000] [--pattern gpt2]

Each merge saves a known number of tokens, so the number of tokens in the corpus is exact after every merge.
The figures are also printed as a Markdown table. Requires matplotlib.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import bpe

SIZES = [256, 1_000, 2_000, 5_000, 10_000, 20_000, 32_000, 50_000, 100_000, 200_000]  # for the axis and the table
STYLES = ["-", "--", "-.", (0, (1, 1)), (0, (6, 1, 1, 1, 1, 1))]  # distinguishable without color
COLORS = ["#0072b2", "#d55e00", "#009e73", "#aa4499", "#444444"]


def curve(corpus: str, vocab_size: int, pattern: str) -> dict[int, float]:
    """Return the bytes per token on a corpus for each vocabulary size."""
    options = bpe.check_options("count learn", ["<|endoftext|>"], pattern=pattern, vocab_size=vocab_size)
    words = bpe.count_corpus(bpe.Corpus(corpus, None, options))
    n_bytes = n_tokens = words.totals()[2]
    if not n_bytes:
        raise SystemExit(f"curve.py: {corpus} has no words")
    ratios = {257: 1.0}  # 256 bytes and the special token
    for size, (_, _, _, replaced) in enumerate(bpe.learn(words, options), 258):
        n_tokens -= replaced
        ratios[size] = n_bytes / n_tokens
    return ratios


def table(curves: dict[str, dict[int, float]], vocab_size: int) -> str:
    """Return a Markdown table of corpora and sizes, with "–" after a corpus has run out of merges."""
    sizes = [size for size in SIZES if 256 < size <= vocab_size]
    rows = [["bytes per token at", *(f"{size:,}" for size in sizes)]]
    for name, ratios in curves.items():
        rows.append([name, *(f"{ratios[size]:.2f}" if size in ratios else "–" for size in sizes)])
    head, *others = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, "|---|" + "---:|" * len(sizes), *others])


def draw(curves: dict[str, dict[int, float]], vocab_size: int, pattern: str, output: str) -> None:
    """Draw one curve per corpus, labeled at its end."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 14, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(figsize=(8, 5.2), layout="constrained")
    for number, ratios in enumerate(curves.values()):
        color, style = COLORS[number % len(COLORS)], STYLES[number % len(STYLES)]
        axes.plot(list(ratios), list(ratios.values()), color=color, linestyle=style, linewidth=2.5)
    label_ends(axes, curves)
    axes.set_title(f"more is better; pattern {pattern}", fontsize=14)
    shown = [size for size in SIZES if size <= vocab_size and (size not in (2_000, 20_000, 32_000) or size == vocab_size)]
    axes.set(xscale="log", xlabel="vocabulary size (tokens)", ylabel="bytes per token on the training corpus")
    axes.set_ylim(bottom=1)
    axes.set_xticks(shown, [f"{size:,}" for size in shown])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    figure.savefig(output, dpi=110)


def label_ends(axes, curves: dict[str, dict[int, float]]) -> None:
    """Label the end of each curve with its name and last value, without overlaps."""
    ends = sorted(
        (list(ratios.values())[-1], max(ratios), number, name) for number, (name, ratios) in enumerate(curves.items())
    )
    line = 0.055 * (ends[-1][0] - 1)
    height = 0.0
    style = {"xytext": (2, 0), "textcoords": "offset points", "va": "center", "annotation_clip": False}
    for ratio, size, number, name in ends:
        height = max(ratio, height + line)
        color = COLORS[number % len(COLORS)]
        axes.plot([size, size * 1.1], [ratio, height], color=color, linewidth=1, clip_on=False)
        axes.annotate(f"{name} {ratio:.2f}", (size * 1.1, height), color=color, **style)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output")
    parser.add_argument("corpora", nargs="+", metavar="NAME=CORPUS")
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--pattern", default="gpt2")
    args = parser.parse_args()
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise SystemExit("curve.py: matplotlib is not installed: pip install matplotlib") from None
    corpora = dict(item.split("=", 1) if "=" in item else (Path(item).stem, item) for item in args.corpora)
    if missing := [path for path in corpora.values() if not os.path.isfile(path)]:
        raise SystemExit(f"curve.py: no such file: {missing[0]}")
    curves = {name: curve(path, args.vocab_size, args.pattern) for name, path in corpora.items()}
    print(table(curves, args.vocab_size))
    draw(curves, args.vocab_size, args.pattern, args.output)


if __name__ == "__main__":
    main()
