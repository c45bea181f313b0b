"""Who imports whom, read from the sources: bpe.py stands alone, and in bpe_more imports go down, never up or round."""

import ast

import pytest

import imports
from test_bpe import HERE


@pytest.fixture(autouse=True)
def in_both_engines():
    """Replace the fixture of the folder: no engine takes part."""


def our_imports(path):
    """The names of all modules that a file imports, also inside functions, as far as they are ours."""
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return {name for name in found if name.split(".")[0] in ("bpe", "bpe_more", "build_ffi")}


def test_bpe_py_imports_nothing_of_ours_and_binds_each_name_once():
    assert our_imports(HERE / "bpe.py") == set()
    assert "bpe_more" not in {
        node.value for node in ast.walk(ast.parse((HERE / "bpe.py").read_bytes())) if isinstance(node, ast.Constant)
    }
    names = []
    for node in ast.parse((HERE / "bpe.py").read_bytes()).body:
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        names += [target.id for target in targets if isinstance(target, ast.Name)]
        names += [node.name] if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else []
    assert len(names) == len(set(names)) > 50


def test_no_file_of_bpe_more_imports_itself_by_way_of_others():
    assert len(imports.in_order(imports.users())) > 40


def test_each_room_of_bpe_more_imports_only_rooms_below_it():
    level = {room: number for number, rooms in enumerate(imports.LEVELS) for room in rooms}
    for name, imported in imports.users().items():
        room = imports.room_of(name)
        up = {other for other in imported if imports.room_of(other) != room and level[imports.room_of(other)] <= level[room]}
        assert not up, f"{name} imports {up}"


def test_the_drawing_in_the_design_is_that_of_the_sources():
    page = imports.PAGE.read_text(encoding="utf-8")
    assert imports.in_page(page) == page, "python tests/imports.py draws it again"


def test_each_file_of_bpe_more_begins_with_what_it_gives_and_uses():
    for name, path in imports.files().items():
        head = " ".join(ast.get_docstring(ast.parse(path.read_bytes())).split())
        assert " Gives: " in head and head.endswith(" " + imports.uses_line(name)), path
