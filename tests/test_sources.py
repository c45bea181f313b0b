"""Who imports whom, read from the sources: bpe.py stands alone, and in bpe_more imports go down, never up or round."""

import ast

import regex

import imports
from shared import only_python
from test_bpe import HERE

pytestmark = only_python  # no engine takes part


def test_bpe_py_imports_no_bpe_more_and_binds_each_name_once():
    source = (HERE / "bpe.py").read_text(encoding="utf-8")
    assert not regex.search(r"(?m)^\s*(from|import) +(bpe|bpe_more|build_ffi)\b|import_module|sys\.path", source)
    tree = ast.parse(source)
    assert "bpe_more" not in {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    names = []
    for node in tree.body:
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        names += [target.id for target in targets if isinstance(target, ast.Name)]
        names += [node.name] if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else []
    assert len(names) == len(set(names)) > 50


def test_no_file_of_bpe_more_imports_itself_by_way_of_others():
    assert len(imports.in_order(imports.users())) > 40


def test_the_drawing_in_the_design_is_that_of_the_sources():
    page = imports.PAGE.read_text(encoding="utf-8")
    assert imports.in_page(page) == page, "python tests/imports.py draws it again"


def test_each_file_of_bpe_more_begins_with_what_it_gives_and_uses():
    for name, path in imports.files().items():
        head = " ".join(ast.get_docstring(ast.parse(path.read_bytes())).split())
        assert " Gives: " in head and head.endswith(" " + imports.uses_line(name)), path
