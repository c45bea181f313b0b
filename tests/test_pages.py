"""The README and the pages in docs/: every block runs as printed, in order, and so do the examples in the docstrings."""

import ast
import contextlib
import importlib.util
import io
import os
import pkgutil
import subprocess
import sys

import pytest
import regex

import bpe_more
from shared import ENGINES
from test_bpe import FIXTURES, HERE, ROOT


def test_the_examples_in_the_docstrings():
    import doctest

    names = {found.name for found in pkgutil.walk_packages(bpe_more.__path__, "bpe_more.")} - {"bpe_more.__main__"}  # which runs the command
    results = [doctest.testmod(importlib.import_module(name)) for name in sorted(names)]
    assert not any(failed for failed, _ in results) and sum(attempted for _, attempted in results) >= 3


def readme_blocks(name):
    """[(required package or None, language, code), ...] for a README."""
    text = (HERE / name).read_text(encoding="utf-8")
    found = regex.findall(r"(?:<!-- needs (\w+) -->\n)?```(\w+)\n(.*?)```\n", text, regex.DOTALL)
    return [(package or None, language, code) for package, language, code in found]


NOT_RUN = ("pip install", "python3 -m venv", "python build_ffi.py", ".venv/bin/pytest")  # this test already runs in the result
TYPED = {  # what a page shows: what is run
    r"\.venv/bin/python\b": "python", r"(?<![\w-])(\.venv/bin/)?bpe-py(?= )": "python -m bpe_more",
    r"(?m)^sleep 5$": "until grep -q Registered worker.log; do sleep 0.05; done",  # a scheduler and a worker of Dask
}


def without_measurements(text):
    """Remove times and the engine, which differ between machines."""
    return regex.sub(r"(?m)^ *[\d.]+ s  (engine\b.*)?", "", text).strip()


def what_runs(language, code):
    """Remove comments and the commands in NOT_RUN; type commands as in a clone without an installation."""
    if language == "python":
        return ast.unparse(ast.parse(code))
    for command, typed in TYPED.items():
        code = regex.sub(command, typed, code)
    return "".join(line for line in code.splitlines(keepends=True) if not line.startswith(NOT_RUN))


def statements(code):
    """[(statement, the comment after it), ...] for a block of Python."""
    lines = code.encode().splitlines()  # the offsets are those of bytes
    found = ((ast.unparse(part), lines[part.end_lineno - 1][part.end_col_offset :]) for part in ast.parse(code).body)
    return [(statement, comment.decode().strip().lstrip("#").strip()) for statement, comment in found]


def outputs_of_blocks(blocks, folder):
    """Run blocks of (language, code); returns what each one prints, in Python for each statement."""
    for path in (FIXTURES, ROOT / "bpe.py", ROOT / "build_ffi.py", *ROOT.glob("bpe_*"), *ROOT.glob("_bpe_fast*.*")):
        (folder / path.name).symlink_to(path)
    variables, outputs = {}, []
    for language, code in blocks:
        if language == "sh":
            result = subprocess.run(["sh", "-e", "-c", code], capture_output=True, text=True, timeout=60)
            assert result.returncode == 0, (code, result.stderr)
            outputs.append(result.stdout + result.stderr)
        else:
            outputs.append([])
            for statement, _ in statements(code):
                with contextlib.redirect_stdout(io.StringIO()) as printed:
                    exec(statement, variables)
                outputs[-1].append(printed.getvalue().strip())
    return outputs


PAGES = [f"{page}{zh}.md" for page in ("README", "docs/python", "docs/exercises", "docs/compatibility", "docs/cluster", "docs/recipes", "docs/data", "docs/extend") for zh in ("", ".zh")]
NOT_REQUIRED = ("gigatoken", "ray", "pyspark", "torch")  # no other test needs them, and the last three are large
OUTPUTS = {}  # blocks -> their outputs; two READMEs with the same code run it once


@pytest.mark.parametrize("engine", ENGINES[-1:], indirect=True)  # other tests show that both engines give the same
@pytest.mark.parametrize("name", PAGES)
def test_every_block_of_the_readme_runs_and_prints_what_it_shows(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as for `python` in that folder
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}")
    required = os.environ.get("BPE_REQUIRE_PACKAGES")
    has = lambda package: (required and package not in NOT_REQUIRED) or importlib.util.find_spec(package)  # noqa: E731
    found = [block for package, *block in readme_blocks(name) if not package or has(package)]
    if name.startswith("docs/data"):  # its commands read files that a reader has
        found = [[language, code] for language, code in found if language != "sh"]
    blocks = tuple((language, what_runs(language, code)) for language, code in found if language != "text")
    if blocks not in OUTPUTS:
        OUTPUTS[blocks] = outputs_of_blocks(blocks, tmp_path)
    outputs, printed = iter(OUTPUTS[blocks]), ""
    for language, code in found:
        if language == "text":
            assert without_measurements(printed) == without_measurements(code)
            continue
        output = next(outputs)
        if language == "sh":
            printed = output
        else:
            for shown, (statement, comment) in zip(output, statements(code)):
                assert shown == comment if statement.startswith("print") else not shown, statement
