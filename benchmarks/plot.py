"""Draw the results of bench.py: time and memory against corpus size and vocabulary size.

    python benchmarks/plot.py OUT.png RESULTS.json

RESULTS.json is what bench.py --json wrote, from any number of runs: a line for each process. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import collections
import json
import statistics
from typing import Any


def medians(lines: list[dict[str, Any]], x: str, y: str) -> dict[str, list[tuple[float, float]]]:
    """tool -> [(x, median of y), ...]"""
    groups = collections.defaultdict(list)
    for line in lines:
        groups[line["tool"], line[x]].append(line[y])
    curves = collections.defaultdict(list)
    for (tool, value), values in sorted(groups.items()):
        curves[tool].append((value, statistics.median(values)))
    return curves


def main() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output")
    parser.add_argument("results")
    args = parser.parse_args()
    with open(args.results, encoding="utf-8") as file:
        lines = [line for line in map(json.loads, file) if line["status"] == 0 and line["tool"] != "bpe.py, C, hf"]
    # one panel row: the vocabulary size that most corpora were trained to; the other: the corpus with most sizes
    sizes = collections.Counter(size for _, size in {(line["corpus"], line["vocab_size"]) for line in lines})
    corpora = collections.Counter(corpus for corpus, _ in {(line["corpus"], line["vocab_size"]) for line in lines})
    size, corpus = sizes.most_common(1)[0][0], corpora.most_common(1)[0][0]
    by_corpus = [{**line, "megabytes": line["bytes"] / 1e6} for line in lines if line["vocab_size"] == size]
    by_size = [line for line in lines if line["corpus"] == corpus]
    figure, panels = plt.subplots(2, 2, figsize=(11, 7.5), layout="constrained")
    tools = sorted({line["tool"] for line in lines}, key=lambda tool: (tool == "`wc -w`", tool))
    for row, (selected, x, label, title) in enumerate(
        [(by_corpus, "megabytes", "corpus (MB)", f"vocabulary {size:,}"), (by_size, "vocab_size", "vocabulary size (tokens)", corpus)]
    ):
        for column, (y, unit, name) in enumerate([("wall", 1, "whole process (s)"), ("peak", 1e6, "peak anonymous memory (MB)")]):
            axes = panels[row][column]
            for number, tool in enumerate(tools):
                points = medians(selected, x, y).get(tool, [])
                if tool == "`wc -w`" and y == "peak":
                    continue
                style = {"linestyle": "--", "color": "grey"} if tool == "`wc -w`" else {"color": f"C{number}"}
                axes.plot([a for a, _ in points], [b / unit for _, b in points], marker="o", label=tool.strip("`"), **style)
            axes.set(xscale="log", yscale="log", xlabel=label, ylabel=name, title=title)
            axes.grid(alpha=0.3, which="both")
    panels[0][0].legend(fontsize=8)
    figure.savefig(args.output, dpi=100)


if __name__ == "__main__":
    main()
