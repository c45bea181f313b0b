"""Draw speed and memory as bars, from results that bench.py has written.

    python benchmarks/bars.py [RESULTS.jsonl [CORPUS [OUT.svg]]]

For each tool, one bar is the time of the whole process and the other its peak memory: first for training, then for
encoding the whole file. All are medians. Requires no other package.
"""

from __future__ import annotations

import json
import statistics
import sys
from html import escape
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
TASKS = {  # in the results -> (title, tools)
    "training": ("Training", ["bpe.py, C", "gigatoken", "rustbpe", "bpe.py, Python", "tokenizers"]),
    "encoding, whole file": ("Encoding", ["bpe.py, C", "gigatoken", "tiktoken", "bpe.py, Python", "tokenizers"]),
}
LABELS = {"bpe.py, C": "bpe.py with C", "bpe.py, Python": "bpe.py in Python"}
FIELDS = {"seconds": ("time, less is better", "{:,.{}f} s"), "peak": ("peak memory", "{:,.0f} MB")}
LEFT, COLUMN, BAR, ROW, TOP = 212, 260, 150, 37, 74  # x of the bars; sizes of a column, its longest bar, a row, a head
WIDTH = LEFT + COLUMN * len(FIELDS) + 6

# The picture has its own background: a page may be dark on a light system, or the other way around.
STYLE = """
  text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 20px; fill: #59636e }
  .title { font-size: 22px; font-weight: bold; fill: #1f2328 }
  .ours { font-weight: bold; fill: #1f2328 }
  .label { text-anchor: end }
  .page { fill: #ffffff }
  .bar { fill: #a9b4c0 }
  .bar-ours { fill: #0a4a82 }
  @media (prefers-color-scheme: dark) {
    text { fill: #a9b3be }
    .title, .ours { fill: #f0f6fc }
    .page { fill: #0d1117 }
    .bar { fill: #4d5763 }
    .bar-ours { fill: #ffd469 }
  }
"""


def medians(path: Path, corpus: str) -> dict[tuple[str, str], dict[str, float]]:
    """Return {(task, tool): {"seconds": seconds, "peak": bytes}} for a corpus and the pattern gpt2."""
    runs: dict[tuple[str, str], list[Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        if (run["corpus"], run["pattern"], run["status"]) == (corpus, "gpt2", 0) and run["task"] in TASKS:
            runs.setdefault((run["task"], run["tool"]), []).append(run)
    if not runs:
        raise SystemExit(f"bars.py: {path} has no results for {corpus}")
    return {key: {field: statistics.median(run[field] for run in found) for field in FIELDS} for key, found in runs.items()}


def value(field: str, number: float) -> str:
    """Spell a value: 0.38 s, 12.4 s, 68 MB."""
    return FIELDS[field][1].format(number / 1e6) if field == "peak" else f"{number:,.{2 if number < 9.95 else 1}f} s"


def draw(found: dict[tuple[str, str], dict[str, float]], corpus: str) -> str:
    """Return the picture as SVG, with the fastest tool on top."""
    parts, y = [], 0
    for (task, (title, names)), subtitle in zip(TASKS.items(), (corpus, "the same text, with that vocabulary")):
        tools = sorted(names, key=lambda tool: found[task, tool]["seconds"])
        parts.append(f'<text class="title" x="16" y="{y + 36}">{escape(title)}</text>')
        parts.append(f'<text x="{LEFT}" y="{y + 36}">{escape(subtitle)}</text>')
        for column, (field, (name, _)) in enumerate(FIELDS.items()):
            x = LEFT + COLUMN * column
            parts.append(f'<text x="{x}" y="{y + 64}">{name}</text>')
            longest = max(found[task, tool][field] for tool in tools)
            for row, tool in enumerate(tools):
                number, top = found[task, tool][field], y + TOP + ROW * row
                ours = tool.startswith("bpe.py")
                if not column:
                    kind = "label ours" if ours else "label"
                    parts.append(f'<text class="{kind}" x="{x - 12}" y="{top + 21}">{LABELS.get(tool, tool)}</text>')
                width = max(BAR * number / longest, 2)
                kind = "bar-ours" if ours else "bar"
                parts.append(f'<rect class="{kind}" x="{x}" y="{top + 2}" width="{width:.1f}" height="26" rx="3"/>')
                kind = ' class="ours"' if ours else ""
                parts.append(f'<text{kind} x="{x + width + 8:.1f}" y="{top + 21}">{value(field, number)}</text>')
        y += TOP + ROW * len(tools) + 14
    title = "; ".join(
        f"{title}, {LABELS.get(tool, tool)}: {', '.join(value(field, found[task, tool][field]) for field in FIELDS)}"
        for task, (title, tools) in TASKS.items()
        for tool in tools
    )
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" role="img">',
        f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{y}" rx="8"/>', *parts, "</svg>\n",
    ])  # fmt: skip


def main() -> None:
    if sys.argv[1:2] in (["-h"], ["--help"]):
        raise SystemExit(__doc__)
    results, corpus, output = (sys.argv[1:] + [None] * 3)[:3]  # type: ignore[list-item]
    corpus = corpus or "django.txt"
    path = Path(results or FOLDER / "results.jsonl")
    found = medians(path, corpus)
    about = json.loads(next(line for line in path.read_text().splitlines() if json.loads(line)["corpus"] == corpus))
    subtitle = f"{about['bytes'] / 1e6:,.0f} MB of text, vocabulary of {about['vocab_size']:,} tokens"
    Path(output or FOLDER / "bars.svg").write_text(draw(found, subtitle), encoding="utf-8")


if __name__ == "__main__":
    main()
