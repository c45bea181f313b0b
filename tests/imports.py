"""Draw who imports whom in bpe_more, from the sources: `python tests/imports.py` writes the drawing into docs/design.md."""

import ast
import functools
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
PACKAGE, PAGE = HERE / "bpe_more", HERE / "docs" / "design.md"
BEGIN, END = "<!-- tests/imports.py writes this -->\n```text\n", "```\n"


def files():
    """{"bpe_more.corpus.data": its path}, without the face (__init__.py and __main__.py), and files that only say what a room has."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(HERE).with_suffix("").parts).removesuffix(".__init__")
        if name not in ("bpe_more", "bpe_more.__main__") and len(ast.parse(path.read_bytes()).body) > 1:
            found[name] = path
    return found


def imports_of(path, names):
    """The names of the files among `names` that a file imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules = [f"{node.module}.{name.name}" for name in node.names]
            found |= {module if module in names else node.module for module in modules}
    return found & set(names)


def room_of(name):
    """The room of a file: bpe_more.corpus.data is in corpus."""
    return name.split(".")[1]


@functools.cache
def users():
    """{file: the files that it imports}."""
    names = files()
    return {name: imports_of(path, names) - {name} for name, path in names.items()}


def uses_line(name):
    """What the head of a file says it uses: files of its room by their names, others with their rooms."""
    found = sorted(users()[name])
    shown = [title_of(room_of(name), other) if room_of(other) == room_of(name) else other.removeprefix("bpe_more.") for other in found]
    return f"Uses: {', '.join(shown)}." if shown else "Uses: nothing of bpe_more."


def in_order(imported):
    """Names, each after those that it imports. Raises ValueError for a circle."""
    order = []
    while left := [name for name in imported if name not in order]:
        ready = [name for name in left if imported[name] <= set(order)]
        if not ready:
            raise ValueError(f"a circle among {', '.join(sorted(left))}")
        order += ready
    return order


def title_of(room, name):
    """The name of a file in its room."""
    return name.removeprefix(f"bpe_more.{room}").lstrip(".") or "__init__"


def drawing():
    """The drawing: in a row, the numbers of what is imported; no number is greater than that of its row."""
    found = users()
    rooms = {}
    for name, imported in found.items():
        rooms.setdefault(room_of(name), set()).update(room_of(other) for other in imported)
    rooms = {room: imported - {room} for room, imported in rooms.items()}
    order, lines = in_order(rooms), ["room           imports"]
    for number, room in reversed([*enumerate(order, 1)]):
        cells = "".join(f"{other:3}" if order[other - 1] in rooms[room] else "  ." for other in range(1, number))
        lines.append(f"{number:2} {room:14}{cells}".rstrip())
    return "\n".join(lines) + "\n"


def in_page(text):
    """The page with the drawing, which replaces an earlier one."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + drawing() + END + after


if __name__ == "__main__":
    new = in_page(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(new, encoding="utf-8")
    sys.stdout.write(drawing())
