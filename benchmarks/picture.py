"""What the pictures share: the colors of docs/index.html, in light and dark, and the frame of an SVG."""

from __future__ import annotations

from html import escape

# The picture has its own background: a page may be dark on a light system, or the other way around.
STYLE = """
  text { font-family: system-ui, -apple-system, "Segoe UI", "PingFang SC", "Microsoft YaHei", "DejaVu Sans",
    "Noto Sans CJK SC", sans-serif; font-size: 20px; fill: #59636e }
  .strong { font-weight: bold; fill: #1f2328 }
  .middle { text-anchor: middle }
  .end { text-anchor: end }
  .letter { font-family: "DejaVu Sans Mono", Menlo, Consolas, "PingFang SC", "Microsoft YaHei", "Noto Sans CJK SC",
    monospace; font-size: 24px; fill: #1f2328 }
  .page { fill: #ffffff }
  .line { stroke: #8c959f; stroke-width: 1.5; fill: none }
  .byte { fill: #ffffff; stroke: #8c959f; stroke-width: 1.5 }
  .old { fill: #cfe3f8; stroke: #4a78a6; stroke-width: 1.5 }
  .new { fill: #0a4a82; stroke: #0a4a82; stroke-width: 1.5 }
  .in-new { fill: #ffffff; font-weight: bold }
"""
DARK = """
    text { fill: #a9b3be }
    .strong, .letter { fill: #f0f6fc }
    .page { fill: #0d1117 }
    .line { stroke: #7d8792 }
    .byte { fill: #0d1117; stroke: #7d8792 }
    .old { fill: #1c4063; stroke: #6a9fd0 }
    .new { fill: #ffd469; stroke: #ffd469 }
    .in-new { fill: #10151b }
"""
HEIGHT = 36  # of a box


def text(x: float, y: float, content: str, kind: str = "", **attributes: str) -> str:
    """Return a line of text; y is the baseline."""
    given = {"class": kind, **attributes} if kind else attributes
    spelled = "".join(f' {name}="{value}"' for name, value in given.items())
    return f'<text x="{x:.5g}" y="{y:.5g}"{spelled}>{escape(content)}</text>'


def box(x: float, y: float, width: float, kind: str, height: float = HEIGHT, radius: float = 6) -> str:
    """Return a rectangle with round corners."""
    return f'<rect class="{kind}" x="{x:.5g}" y="{y:.5g}" width="{width:.5g}" height="{height:.5g}" rx="{radius:g}"/>'


def line(left: float, right: float, y: float) -> str:
    """Return a horizontal line."""
    return f'<path class="line" d="M{left:.5g} {y:.5g}H{right:.5g}"/>'


def frame(size: tuple[float, float], title: str, parts: list[str], style: str = "", dark: str = "") -> str:
    """Return a whole picture; style and dark are added to the common ones, and title is what a screen reader says."""
    width, height = size
    schemes = f"{STYLE}{style}  @media (prefers-color-scheme: dark) {{{DARK}{dark}  }}\n"
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{schemes}</style>",
        box(0, 0, width, "page", height, 8),
        *parts,
        "</svg>\n",
    ])  # fmt: skip
