"""Who imports whom, read from the sources: bpe.py stands alone, and bpe_more has no circle."""

import ast

import pytest

from test_bpe import HERE

MODULES = {path.stem: path for path in (HERE / "bpe_more").glob("*.py")}


@pytest.fixture(autouse=True)
def in_both_engines():
    """Replace the fixture of the folder: no engine takes part."""


def imports_of(path):
    """The names of all modules that a file imports, also inside functions, as far as they are ours."""
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return {name for name in found if name.split(".")[0] in ("bpe", "bpe_more", "build_ffi")}


def test_bpe_py_imports_nothing_of_ours_and_binds_each_name_once():
    assert imports_of(HERE / "bpe.py") == set()
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
    users = {
        name: {each.split(".")[1] for each in imports_of(path) if each.count(".") == 1 and each.startswith("bpe_more.")}
        for name, path in MODULES.items()
    }
    users = {name: {other for other in found if other in MODULES} for name, found in users.items()}
    order = []
    while users:
        ready = sorted(name for name, found in users.items() if found <= set(order))
        assert ready, f"a circle among {sorted(users)}"
        order += ready
        users = {name: found for name, found in users.items() if name not in ready}
    assert len(order) > 20
