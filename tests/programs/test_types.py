"""What mypy says about calls of bpe.py, with a copy of it in a project, about bpe.py alone, and about the two engines.

    pytest -q tests/programs/test_types.py
"""

import functools
import shutil
import subprocess
import sys

import pytest
import regex

from test_bpe import HERE, need

need("mypy")
RIGHT = """
from bpe_more import Tokenizer, count_words, train_bpe, train_from_counts

vocab, merges = train_bpe("c.txt", 300, ["<end>"], pattern="gpt2", errors="replace", engine="c", workers=2)
tokenizer = Tokenizer.train(texts=["a"], vocab_size=300, min_frequency=2)
counts: dict[bytes, int] = count_words(["c.txt"], pattern="o200k", progress=True)
ids: list[list[int]] = tokenizer.encode_batch(["a"], workers=1)
n: int = tokenizer.encode_files(None, "ids.npy", texts=["a"], errors="strict")
train_from_counts(counts, 300, min_word_count=2)
steps: str | tuple[str, ...] = tokenizer.pattern
is_qwen = tokenizer.pattern == ("NFC", "qwen2")  # an error if the pattern is declared a str
"""
WRONG = """
from MODULE import Tokenizer, train_bpe

train_bpe("c.txt", 300, patern="gpt2")
Tokenizer.train("c.txt", 300, errors="ignore")
"""
ENGINE = """
import bpe_more.engine
import build_ffi

def check(engine: bpe_more.engine.Engine) -> build_ffi.Engine:
    return engine
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """What mypy found in the standard library: reading it takes most of the time."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def errors_of(tmp_path, cache):
    """errors_of(names of ours beside it, name=code) -> [(file:line, error), ...], by mypy in strict mode."""
    return functools.partial(run_mypy, tmp_path, cache)


def run_mypy(folder, cache, *beside, **files):
    shutil.copy(HERE / "bpe.py", folder)
    if beside:
        shutil.copy(HERE / "build_ffi.py", folder)
        shutil.copytree(HERE / "bpe_more", folder / "bpe_more")
    for name, code in files.items():
        (folder / f"{name}.py").write_text(code)
    names = [f"{name}.py" for name in files] or ["bpe.py", *beside]
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, *names]
    result = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert result.returncode in (0, 1) and not result.stderr, result.stderr
    return regex.findall(r"(?m)^(.*?): error: (.*?)  ", result.stdout)


def test_two_wrong_calls_are_two_errors_and_right_ones_are_none(errors_of):
    wrong = WRONG.replace("MODULE", "bpe_more")
    assert errors_of("build_ffi.py", "bpe_more", right=RIGHT, wrong=wrong) == [
        ("wrong.py:4", 'Unexpected keyword argument "patern" for "train_bpe"; did you mean "pattern"?'),
        ("wrong.py:5", """Argument "errors" to "train" of "Tokenizer" has incompatible type "Literal['ignore']"; \
expected "Literal['strict', 'replace']\""""),
    ]


def test_what_only_bpe_more_has_is_an_error_with_bpe(errors_of):
    assert errors_of(wrong=WRONG.replace("MODULE", "bpe")) == [
        ("wrong.py:4", 'Unexpected keyword argument "patern" for "train_bpe"; did you mean "pattern"?'),
        ("wrong.py:5", 'Unexpected keyword argument "errors" for "train" of "Tokenizer"'),
    ]


@pytest.mark.parametrize("beside", [(), ("build_ffi.py", "bpe_more")])
def test_our_own_files_have_no_errors_alone_and_together(errors_of, beside):
    assert errors_of(*beside) == []


def test_the_engine_that_also_encodes_has_the_interface_of_the_one_that_learns(errors_of):
    assert errors_of("build_ffi.py", "bpe_more", engine=ENGINE) == []
