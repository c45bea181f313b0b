"""Draw speed and memory as bars, from results that bench.py has written.

    python benchmarks/bars.py [OUT.svg [RESULTS.jsonl [CORPUS]]]

Training and encoding of the whole file: one bar is the time of the whole process, the other its peak memory. Encoding to
lists: the time on one core, at the speed that bench.py has measured in memory. All are medians. Each panel has bpe.py
with both engines, tiktoken and tokenizers, if they do the task, and the fastest other tools. Requires no other package.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import picture
from picture import box, text

FOLDER = Path(__file__).resolve().parent
OURS = ["bpe.py, C", "bpe.py, Python"]
KNOWN = ["tiktoken", "tokenizers"]  # shown however slow they are
OTHERS = 3  # the number of other tools in a panel
Measure = Callable[[dict[str, Any]], float]  # from a record to a value


class Panel(NamedTuple):
    task: str  # in the results
    title: str
    note: str
    field: str  # of the records; a tool without it is not shown
    measures: list[Measure]  # seconds, then bytes, if memory was measured


def seconds(run: dict[str, Any]) -> float:
    return run["seconds"]


def seconds_to_list(run: dict[str, Any]) -> float:
    """The whole corpus at the measured speed, so that the three panels can be compared."""
    return run["bytes"] / run["list"]


def memory(run: dict[str, Any]) -> float:
    return run["memory"] if "memory" in run else run["peak"]


PANELS = [
    Panel("training", "Training 训练", "whole process 整个进程", "seconds", [seconds, memory]),
    Panel("encoding, whole file", "Encoding a file 编码文件", "whole process 整个进程", "seconds", [seconds, memory]),
    Panel("encoding, one core", "Encoding to Python lists 编码为列表", "one core 单核", "list", [seconds_to_list]),
]
LEFT, COLUMN, BAR = 198, 254, 134  # x of the bars; the widths of a column and of its longest bar
TOP, HEAD, ROW = 84, 44, 33  # the heights of the two lines on top, of a panel's title, and of a row
WIDTH = LEFT + COLUMN * 2
STYLE = """
  .title { font-size: 22px; font-weight: bold; fill: #1f2328 }
  .bar { fill: #8793a1 }
  .bar-ours { fill: #0a4a82 }
"""
DARK = """
    .title { fill: #f0f6fc }
    .bar { fill: #6b7684 }
    .bar-ours { fill: #ffd469 }
"""

Medians = dict[str, list[float]]  # tool -> its values


def records(path: Path, corpus: str) -> list[dict[str, Any]]:
    """Return the results for a corpus and the pattern gpt2, of the last day on which it was measured."""
    runs = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    found = [run for run in runs if (run["corpus"], run["pattern"], run["status"]) == (corpus, "gpt2", 0)]
    if not found:
        raise SystemExit(f"bars.py: {path} has no results for {corpus}")
    last = max(run.get("date", "") for run in found)  # results of two processors can't be compared
    return [run for run in found if run.get("date", "") == last]


def medians(panel: Panel, runs: list[dict[str, Any]]) -> Medians:
    """Return the values of the tools in a panel, the fastest tool first."""
    of_tool: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        if run["task"] == panel.task and panel.field in run:
            of_tool.setdefault(run["tool"], []).append(run)
    values = {tool: [statistics.median(map(f, found)) for f in panel.measures] for tool, found in of_tool.items()}
    fastest = sorted(values, key=lambda tool: values[tool][0])
    others = [tool for tool in fastest if tool not in OURS + KNOWN and not tool.startswith(("bpe.py", "by definition"))]
    return {tool: values[tool] for tool in fastest if tool in OURS + KNOWN + others[:OTHERS]}


def spell(column: int, value: float) -> str:
    """Spell a value: 0.38 s, 12.4 s, 68 MB."""
    if column:
        return f"{value / 1e6:,.0f} MB"
    return f"{value:,.{2 if value < 9.95 else 1}f} s"


def draw_panel(panel: Panel, found: Medians, y: float) -> list[str]:
    """Draw a bar for each tool and measure; each measure has its own scale."""
    parts = [text(WIDTH - 16, y + 30, panel.note, "end"), text(16, y + 30, panel.title, "title")]
    widest = BAR + COLUMN * (2 - len(panel.measures))
    longest = [max(*column, 1e-9) for column in zip(*found.values())]
    for row, (tool, values) in enumerate(found.items()):
        top = y + HEAD + ROW * row
        kind = "strong" if tool in OURS else ""
        parts.append(text(LEFT - 12, top + 20, tool, f"{kind} end".strip()))
        for column, value in enumerate(values):
            x, width = LEFT + COLUMN * column, max(widest * value / longest[column], 2)
            parts.append(box(x, top + 1, width, "bar-ours" if tool in OURS else "bar", 25, 3))
            parts.append(text(x + width + 8, top + 20, spell(column, value), kind))
    return parts


def draw(runs: list[dict[str, Any]]) -> str:
    """Return the picture as SVG, with the fastest tool of each panel on top."""
    first = runs[0]
    parts = [
        text(16, 34, "less is better 越短越好", "strong"),
        text(WIDTH - 16, 34, f"{first['bytes'] / 1e6:,.0f} MB, {first['vocab_size']:,} tokens 词元", "end"),
        text(LEFT, 70, "time 时间"),
        text(LEFT + COLUMN, 70, "memory 内存"),
    ]
    y, said = TOP, []
    for panel in PANELS:
        found = medians(panel, runs)
        if not found:
            continue
        parts += [picture.line(16, WIDTH - 16, y), *draw_panel(panel, found, y)]
        y += HEAD + ROW * len(found) + 10
        told = ", ".join(f"{tool} {' '.join(map(spell, range(2), values))}" for tool, values in found.items())
        said.append(f"{panel.title}: {told}")
    where = [first[field] for field in ("processor", "date") if field in first]
    if where:
        parts += [picture.line(16, WIDTH - 16, y), text(16, y + 30, ", ".join(where))]
        y += 46
    return picture.frame((WIDTH, y), "; ".join(said), parts, STYLE, DARK)


def main() -> None:
    if sys.argv[1:2] in (["-h"], ["--help"]):
        raise SystemExit(__doc__)
    output, results, corpus = (sys.argv[1:] + [None] * 3)[:3]  # type: ignore[list-item]
    runs = records(Path(results or FOLDER / "results.jsonl"), corpus or "django.txt")
    Path(output or FOLDER / "bars.svg").write_text(draw(runs), encoding="utf-8")


if __name__ == "__main__":
    main()
