"""What mypy says about calls of bpe.py, with a copy of it in a project, and about the engine's interface.

    pytest -q tests/programs/test_types.py
"""

import shutil
import subprocess
import sys

import regex

from test_bpe import HERE, need

need("mypy")
RIGHT = """
import bpe

vocab, merges = bpe.train_bpe("c.txt", 300, ["<end>"], pattern="gpt2", errors="replace", engine="c", workers=2)
tokenizer = bpe.Tokenizer.train(texts=["a"], vocab_size=300, min_frequency=2)
counts: dict[bytes, int] = bpe.count_words(["c.txt"], pattern="o200k", progress=True)
ids: list[list[int]] = tokenizer.encode_batch(["a"], workers=1)
n: int = tokenizer.encode_files(None, "ids.npy", texts=["a"], errors="strict")
bpe.train_from_counts(counts, 300, min_word_count=2)
"""
WRONG = """
import bpe

bpe.train_bpe("c.txt", 300, patern="gpt2")
bpe.Tokenizer.train("c.txt", 300, errors="ignore")
"""
ENGINE = """
import bpe
import bpe_more.engine

def check(engine: bpe_more.engine.Engine) -> bpe.Engine:
    return engine
"""


def errors_of(folder, **files):
    """Run mypy in strict mode on some files beside bpe.py and build_ffi.py; return [(file:line, error), ...]."""
    for name in ("bpe.py", "build_ffi.py"):
        shutil.copy(HERE / name, folder)
    shutil.copytree(HERE / "bpe_more", folder / "bpe_more", dirs_exist_ok=True)
    for name, code in files.items():
        (folder / f"{name}.py").write_text(code)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "cache", *(f"{name}.py" for name in files)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert result.returncode in (0, 1) and not result.stderr, result.stderr
    return regex.findall(r"(?m)^(.*?): error: (.*?)  ", result.stdout)


def test_two_wrong_calls_are_two_errors_and_right_ones_are_none(tmp_path):
    assert errors_of(tmp_path, right=RIGHT, wrong=WRONG) == [
        ("wrong.py:4", 'Unexpected keyword argument "patern" for "train_bpe"; did you mean "pattern"?'),
        ("wrong.py:5", """Argument "errors" to "train" of "Tokenizer" has incompatible type "Literal['ignore']"; \
expected "Literal['strict', 'replace']\""""),
    ]


def test_the_engine_in_c_has_the_interface_that_bpe_describes(tmp_path):
    assert errors_of(tmp_path, engine=ENGINE) == []
