"""The blocks of docs/cluster.md run as printed, each engine in a fresh folder, with two worker processes on the fixture.

    pytest -q tests/docs/test_cluster.py

Engines that are not installed are skipped, and Spark without Java. BPE_REQUIRE_CLUSTER=1 makes Dask and Ray required.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys

import pytest

import bpe
from test_bpe import HERE, ROOT, need

numpy = need("numpy")

END = "<|endoftext|>"
PAGE = (HERE / "docs" / "cluster.md").read_text(encoding="utf-8")
ENGINES = {"Dask": "distributed", "Ray": "ray", "Spark": "pyspark"}  # the package of each section


def blocks_of(section, page=PAGE):
    """The blocks of code in the section with this title."""
    return re.findall(r"^```(?:sh|python)\n(.*?)^```", page.split(f"\n## {section}\n")[1].split("\n## ")[0], re.M | re.S)


SETUP, COMMON = blocks_of("The common part")


def as_script(*blocks):
    """The blocks as a script: from `expected =` on under a guard, as the page says."""
    before, after = "\n".join(blocks).split("expected =", 1)
    guarded = "".join(f"    {line}" for line in f"expected ={after}".splitlines(keepends=True))
    return f'{before}\nif __name__ == "__main__":\n{guarded}'


def changed(code, *changes):
    """Replace text that has to be there once."""
    for old, new in changes:
        assert code.count(old) == 1, old
        code = code.replace(old, new)
    return code


def run(folder, script):
    """Run the page's preparation, then a script; returns the lines it printed."""
    (folder / "fixtures").symlink_to(HERE / "fixtures")
    (folder / "script.py").write_text(script, encoding="utf-8")
    subprocess.run(["sh", "-ec", SETUP], cwd=folder, check=True)
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "script.py"]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def dying(name):
    """A change of a function: the worker that first runs it is killed, after it has left a file."""
    kill = f"    if not os.path.exists('{name}.died'):\n        open('{name}.died', 'w').close()\n        os.kill(os.getpid(), 9)\n"
    (line,) = (line for line in COMMON.splitlines(keepends=True) if line.startswith(f"def {name}("))
    return line, line + kill


RARE = [("BUCKETS, RARE = 4, 1", "BUCKETS, RARE = 3, 5"), ("pattern=PATTERN).merges", "pattern=PATTERN, min_word_count=RARE).merges")]


@pytest.mark.parametrize("changes", [[], [*RARE, dying("count"), dying("add")]], ids=["as printed", "killed workers"])
@pytest.mark.parametrize("engine", ENGINES)
def test_each_engine_gives_the_merges_of_one_machine_even_if_a_worker_is_killed(tmp_path, engine, changes):
    if not importlib.util.find_spec(ENGINES[engine]):
        assert engine == "Spark" or not os.environ.get("BPE_REQUIRE_CLUSTER")
        pytest.skip(f"{ENGINES[engine]} is not installed")
    if engine == "Spark" and not shutil.which("java"):
        pytest.skip("Spark needs Java")
    (block,) = blocks_of(engine)
    printed = [line for line in run(tmp_path, as_script(changed(COMMON, *changes), block)) if line in ("True", "False", "2")]
    assert printed == ["True", "2"] and len(list(tmp_path.glob("*.died"))) == (2 if changes else 0)
    ids = [numpy.load(path) for path in sorted((tmp_path / "documents").glob("*.npy"))]
    assert changes or sum(map(len, ids)) == 42687


def test_blocks_are_short():
    for block, most in ((COMMON, 35), *((blocks_of(engine)[0], 15) for engine in ENGINES)):
        assert len(block.splitlines()) <= most


def test_rare_words_are_left_out_exactly_and_buckets_are_disjoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fixtures").symlink_to(HERE / "fixtures")
    subprocess.run(["sh", "-ec", SETUP], check=True)
    names = {}
    exec(changed(COMMON, *RARE), names)
    counted = [names["count"](paths) for paths in names["TASKS"]]
    added = [names["pickle"].loads(names["add"](parts)) for parts in zip(*counted)]
    expected = {word: n for word, n in bpe.count_words(names["PATHS"], [END]).items() if n >= 5}
    assert len(added) == 3 and all(added) and sum(map(len, added)) == len(expected)
    assert {word: n for bucket in added for word, n in bucket.items()} == expected


def test_files_of_counts_are_complete_reused_and_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fixtures").symlink_to(HERE / "fixtures")
    subprocess.run(["sh", "-ec", SETUP], check=True)
    names = {}
    files, use = blocks_of("If the driver dies")
    exec(COMMON + files + use, names)
    counts = sorted((tmp_path / "documents").glob("*.counts*"))
    assert [path.name for path in counts] == ["1.txt.counts", "2.txt.counts"]  # no temporary file is left
    calls = []
    names["count"] = lambda paths: calls.append(paths)
    counts[1].unlink()
    with pytest.raises(TypeError):  # None has no length: only the second file is counted again, and nothing is left
        list(map(names["write_counts"], names["TASKS"]))
    assert calls == [["documents/2.txt"]] and not counts[1].exists()
    for name, value in (("PATTERN", "cl100k"), ("SPECIALS", []), ("BUCKETS", 5)):
        before, names[name] = names[name], value
        with pytest.raises(ValueError, match=r"documents/1.txt.counts has the counts of \['gpt2', .*: delete it"):
            names["write_counts"](names["TASKS"][0])
        names[name] = before
    names["write_counts"](names["TASKS"][0])
    os.utime(tmp_path / "documents" / "1.txt", (1, 1))
    with pytest.raises(ValueError, match="delete it"):
        names["write_counts"](names["TASKS"][0])


def test_a_file_that_is_encoded_is_not_encoded_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fixtures").symlink_to(HERE / "fixtures")
    subprocess.run(["sh", "-ec", SETUP], check=True)
    names = {}
    exec(COMMON, names)
    tokenizer = bpe.Tokenizer.train("documents/1.txt", 300, [END])
    assert names["encode"]("documents/1.txt", tokenizer) == "documents/1.txt.npy"
    first = os.stat("documents/1.txt.npy")
    assert names["encode"]("documents/1.txt", None) == "documents/1.txt.npy"
    assert os.stat("documents/1.txt.npy").st_mtime_ns == first.st_mtime_ns


def test_the_chinese_page_has_the_same_code():
    chinese = (HERE / "docs" / "cluster.zh.md").read_text(encoding="utf-8")
    code = [re.findall(r"^```(?:sh|python)\n(.*?)^```", page, re.M | re.S) for page in (PAGE, chinese)]
    english, translated = ([re.sub(r" +#.*", "", block) for block in blocks] for blocks in code)
    assert english == translated
