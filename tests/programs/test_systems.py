"""What differs on other systems, as far as it can be tried here: consoles that aren't UTF-8, line endings, workers that load
the script again, functions that only POSIX has, files that are open. Another part is tests/engine/other_systems, for the
C engine.

    pytest -q tests/programs/test_systems.py
"""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import bpe
from bpe_more import training
from bpe_more.tokenizer import Tokenizer
from test_bpe import CORPUS, END

HERE = Path(bpe.__file__).parent


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "model"
    Tokenizer.train(CORPUS, 1000, [END]).save(folder)
    return folder


def python(*arguments, **environment):
    # a console of Windows has no UTF-8 mode, unless it is chosen
    variables = {**os.environ, "PYTHONUTF8": "0", **environment}
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, env=variables, timeout=120)


@pytest.mark.parametrize("encoding", ["cp1252", "cp437", "ascii", "gbk", "cp932"])
def test_a_console_that_lacks_a_character_shows_it_escaped(tmp_path, model, encoding):
    text = "今天😀 é"
    result = python("-m", "bpe_more", "--show", text, "--model", model, PYTHONIOENCODING=encoding)
    assert result.returncode == 0 and b"Traceback" not in result.stderr, result.stderr
    tokenizer = Tokenizer.load(model)
    shown, ids, summary = result.stdout.decode(encoding).splitlines()
    assert ids == " ".join(map(str, tokenizer.encode(text))) and summary.endswith("bytes per token")
    for character in text:
        try:
            character.encode(encoding)
        except UnicodeEncodeError:
            assert character.encode(encoding, "backslashreplace").decode() in shown
        else:
            assert character in shown

    corpus = tmp_path / "天.txt"
    corpus.write_text("今天今天 今天\n", encoding="utf-8")
    options = ("--explain", "3", "--model", tmp_path / "m", "--pattern", r"\S+|\s")
    result = python("-m", "bpe_more", corpus, 270, *options, PYTHONIOENCODING=encoding)
    assert result.returncode == 0 and b"round 1" in result.stdout and b"saved" in result.stderr, result.stderr
    result = python("-m", "bpe_more", tmp_path / "没有.txt", 270, PYTHONIOENCODING=encoding)
    assert result.returncode == 2 and len(result.stderr.splitlines()) == 1, result.stderr


def test_lines_may_end_with_crlf_on_standard_output(model):
    script = """
        import sys
        from bpe_more import command
        sys.stdout.reconfigure(newline="\\r\\n")
        sys.exit(command.main(["--show", "a\\nb", "--model", sys.argv[1]]))
    """
    result = python("-c", textwrap.dedent(script), model, PYTHONPATH=str(HERE))
    assert result.returncode == 0 and result.stdout.startswith(b"a|\\n\r\n|b\r\n"), result
    assert b"\r\r" not in result.stdout and result.stdout.count(b"\r\n") == result.stdout.count(b"\n")


SPAWN = """
    import multiprocessing, sys
    sys.path.insert(0, {folder!r})
    sys.platform = "darwin"  # where bpe.py leaves the choice to Python
    from bpe_more import Tokenizer, command, training
    from bpe_more.corpus import slicing
    slicing.SLICE_BYTES, slicing.WINDOW_BYTES = 8 << 10, 2 << 10
    {guard}
        multiprocessing.set_start_method("spawn", force=True)
        merges = training.train_bpe({corpus!r}, 400, [{end!r}], engine="python", workers=2)[1]
        print(len(merges), merges[-1])
"""


@pytest.mark.parametrize("guard", ['if __name__ == "__main__":', "if True:"])
def test_workers_that_load_the_script_again_need_its_guard(tmp_path, guard):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SPAWN).format(folder=str(HERE), corpus=str(CORPUS), end=END, guard=guard))
    result = python(script)
    if "__main__" in guard:
        merges = training.train_bpe(CORPUS, 400, [END])[1]
        assert (result.returncode, result.stdout.decode().strip()) == (0, f"{len(merges)} {merges[-1]}"), result.stderr
    else:  # no hang, and an error that says what is missing
        assert result.returncode and b'if __name__ == "__main__"' in result.stderr.replace(b"'", b'"'), result.stderr


# Functions and modules that Windows lacks. `os.name` stays: pathlib and subprocess look at it themselves.
WITHOUT_POSIX = """
    import os, signal, sys
    import multiprocessing, concurrent.futures.process, asyncio, subprocess  # these may need them while they are loaded
    sys.path.insert(0, sys.argv[1])
    for name in ("fcntl", "resource", "pwd", "grp", "termios"):
        sys.modules[name] = None
    for name in ("fork", "setsid", "sched_getaffinity", "mkfifo", "geteuid", "getuid", "killpg", "fchmod", "pread"):
        if hasattr(os, name):
            delattr(os, name)
    for name in ("SIGHUP", "SIGKILL", "SIGALRM", "SIGUSR1", "pthread_sigmask", "setitimer"):
        if hasattr(signal, name):
            delattr(signal, name)
    from bpe_more import command
    corpus, folder = sys.argv[2:]
    assert command.main([corpus, "400", "--model", folder, "--workers", "1", "--quiet"]) == 0
    assert command.main([corpus, "--encode", folder + "/ids.npy", "--model", folder, "--workers", "1", "--quiet"]) == 0
    assert command.main(["--show", "low", "--model", folder]) == 0
"""


def test_no_function_that_only_posix_has_is_needed(tmp_path):
    result = python("-c", textwrap.dedent(WITHOUT_POSIX), HERE, CORPUS, tmp_path / "model")
    assert result.returncode == 0, result.stderr.decode()
    tokenizer = Tokenizer.load(tmp_path / "model")
    assert tokenizer.merges == training.train_bpe(CORPUS, 400, [END])[1]
    n_ids = ((tmp_path / "model" / "ids.npy").stat().st_size - 128) // 2
    assert n_ids == len(tokenizer.encode(CORPUS.read_bytes().decode()))


def test_a_file_that_another_program_has_open_is_named_and_those_before_it_are_replaced(tmp_path, monkeypatch, model):
    """On Windows, such a file can't be replaced."""
    tokenizer = Tokenizer.load(model)
    tokenizer.save(tmp_path)
    replace = os.replace

    def refuse(source, target):
        if os.path.basename(target) == "vocab.json":
            raise PermissionError(13, "Access is denied", str(source), 5, str(target))
        return replace(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(PermissionError, match=r"can't replace .*/vocab\.json: ") as caught:
        tokenizer.save(tmp_path)
    finished = {path.name for path in tmp_path.glob("*.tmp")}
    assert "vocab.json.0.bpe.tmp" in finished and str(caught.value).count("mv ") == len(finished)
    assert all(f"/{name} " in str(caught.value) for name in finished)
    assert Tokenizer.load(tmp_path).merges == tokenizer.merges
