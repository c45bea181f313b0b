"""Writing files, whole or not at all: bpe_more/outputs.py."""

import contextlib
import errno
import functools
import io
import itertools
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import regex

from bpe_more import outputs, training
from bpe_more.tokenizer import Tokenizer
from shared import MODELS, model_in, only_python, read_ids, train_and_save, trained
from test_bpe import END, files_of

pytestmark = only_python


@pytest.fixture(scope="module")
def folders(tmp_path_factory, part):
    """[(folder, (vocab, merges)), ...] for MODELS."""
    folders = [tmp_path_factory.mktemp("model") for _ in MODELS]
    return [(folder, train_and_save(folder, part, **options)) for folder, options in zip(folders, MODELS)]


def start_with(folder, folders, old):
    """Let a folder have the old model alone, or, without one, not exist."""
    shutil.rmtree(folder, ignore_errors=True)
    if old is not None:
        shutil.copytree(folders[old][0], folder)


@pytest.mark.parametrize("how", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("old, new", [(None, 0), (0, 1), (3, 2)])
def test_an_interruption_before_any_rename_leaves_the_old_model_or_the_new_one(tmp_path, folders, how, old, new):
    folder, replace, seen = tmp_path / "model", os.replace, []
    tokenizer, n_files = Tokenizer.load(folders[new][0]), len(os.listdir(folders[new][0]))
    for before in range(n_files):
        start_with(folder, folders, old)
        effects = [*[replace] * before, lambda *paths: (_ for _ in ()).throw(how)]
        with pytest.MonkeyPatch.context() as patched, pytest.raises(type(how)) as raised:
            patched.setattr(os, "replace", lambda *paths: effects.pop(0)(*paths))  # noqa: B023 (called at once)
            tokenizer.save(folder)
        finished = {path.name.removesuffix(".0.bpe.tmp") for path in folder.glob("*.tmp")}
        assert len(finished) == (n_files - before if isinstance(how, OSError) else 0)
        seen.append(model_in(folder) if (folder / "tokenizer.json").exists() else None)
        if isinstance(how, OSError):
            subprocess.run(str(raised.value).partition("kept: ")[2], shell=True, check=True)
            assert files_of(folder) == files_of(folders[new][0])
    expected = [folders[new][1], folders[old][1] if old is not None else None]
    assert all(model in expected for model in seen) and seen[0] == expected[1]  # before the first rename


@pytest.mark.parametrize("old, new", [(None, 0), (0, 1), (3, 2)])
def test_ctrl_c_while_files_get_their_names_waits_until_all_have_them(tmp_path, folders, old, new):
    folder, replace, tokenizer = tmp_path / "model", os.replace, Tokenizer.load(folders[new][0])
    expected = files_of(folders[new][0])
    for number in range(len(expected)):
        start_with(folder, folders, old)
        left = iter(range(number))

        def replace_and_interrupt(*paths):
            replace(*paths)
            if next(left, None) is None:  # noqa: B023 (called at once)
                signal.raise_signal(signal.SIGINT)

        with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(os, "replace", replace_and_interrupt)
            tokenizer.save(folder)
        assert files_of(folder) == expected


@pytest.mark.parametrize("number", [0, 1])
def test_ctrl_c_while_temporary_files_are_made_leaves_none(tmp_path, folders, monkeypatch, number):
    """Between its making and its place in the list of those to remove."""
    tokenizer, made, left = Tokenizer.load(folders[0][0]), outputs.open_temporary, iter(range(number))

    def make_and_interrupt(path):
        file = made(path)
        if next(left, None) is None:
            signal.raise_signal(signal.SIGINT)
        return file

    monkeypatch.setattr(outputs, "open_temporary", make_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        tokenizer.save(tmp_path)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("old, new", [(0, 1), (3, 2)])
def test_a_kill_at_any_step_of_a_save_leaves_no_files_of_two_models_to_other_programs(tmp_path, folders, old, new):
    """load() finds a whole model in tokenizer.json, and from_files() one in vocab.json and merges.txt, or not both files."""
    folder, tokenizer = tmp_path / "model", Tokenizer.load(folders[new][0])
    wholes = [[(folders[n][0] / name).read_bytes() for name in ("vocab.json", "merges.txt")] for n in (old, new)]
    for n_steps in itertools.count():
        start_with(folder, folders, old)
        before, steps, kill = files_of(folder), iter(range(n_steps)), SystemExit()

        def step(function, *arguments, **options):
            if next(steps, None) is None:  # noqa: B023 (called at once)
                raise kill  # noqa: B023
            return function(*arguments, **options)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(os, "replace", functools.partial(step, os.replace))
            patched.setattr(os, "unlink", functools.partial(step, os.unlink))
            patched.setattr(Path, "unlink", lambda path, **options: step(lambda: os.path.exists(path) and os.remove(path)))
            try:
                tokenizer.save(folder)
                break
            except SystemExit:
                pass
        if n_steps == 0:
            assert {path: data for path, data in files_of(folder).items() if "tmp" not in path} == before
        assert model_in(folder) == folders[new if n_steps else old][1]
        pair = [(folder / name).read_bytes() for name in ("vocab.json", "merges.txt") if (folder / name).exists()]
        assert len(pair) < 2 or pair in wholes
    assert n_steps > 5 and model_in(folder) == folders[new][1]


def test_a_rename_that_fails_after_the_work_leaves_the_finished_array_and_its_name(main, monkeypatch):
    """The folder may have changed while hours of text were encoded, and a model may be of a long training."""
    tokenizer = Tokenizer(*trained(300))
    tokenizer.save("bpeModel")
    Path("ids.npy").write_text("earlier")

    def refuse(source, target):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), source, target)

    monkeypatch.setattr(os, "replace", refuse)
    status, _, stderr = main("words.txt", "--encode", "ids.npy")
    kept = r"error: can't replace .*ids\.npy: .*busy; the finished file is kept: mv (.*\.bpe\.tmp) .*ids\.npy"
    named = regex.fullmatch(kept, stderr.splitlines()[-1])
    assert status == 2 and named and Path("ids.npy").read_text() == "earlier"
    assert read_ids(named[1]) == ("u2", tokenizer.encode(Path("words.txt").read_text()))
    before = files_of("bpeModel")
    status, _, stderr = main("words.txt", 280)
    kept = {path: data for path, data in files_of("bpeModel").items() if path.endswith(".tmp")}
    assert status == 2 and all(f"mv {os.path.realpath('bpeModel')}/{path} " in stderr for path in kept)
    assert files_of("bpeModel") == before | kept and len(kept) == len(before)  # vocab.json and merges.txt, too


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EBADF, errno.EIO])
def test_a_file_system_may_have_no_fsync_but_lost_data_is_an_error(main, monkeypatch, number):
    def refuse(file):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    status, _, stderr = main("words.txt", 300, "--quiet")
    if number == errno.EIO:
        assert status == 2 and "the model is lost" in stderr and not os.path.exists("bpeModel/tokenizer.json")
    else:
        assert (status, stderr) == (0, "") and model_in("bpeModel") == training.train_bpe("words.txt", 300, [END])
        assert main("words.txt", "--encode", "ids.npy", "--quiet")[0] == 0 and read_ids("ids.npy")[1]
    fsync_of_folders = lambda file: os.path.isdir(f"/proc/self/fd/{file}") and refuse(file)  # noqa: E731
    monkeypatch.setattr(os, "fsync", fsync_of_folders)
    assert main("words.txt", 300, "--quiet")[0] == 0


@pytest.mark.parametrize("letter", ["a", "é", "字", "😀"])
def test_an_output_may_have_the_longest_name_that_the_system_takes(words_txt, letter):
    tokenizer = Tokenizer(*trained(300))
    names = []
    for n_bytes in (239, 240, 241, 245, 246, 255):
        stem = letter * ((n_bytes - 4) // len(letter.encode()))
        names.append(stem + "x" * (n_bytes - 4 - len(stem.encode())) + ".npy")
        old = f"{names[-1][:50]}.0.bpe.tmp"
        Path(old).write_text("of a run that was killed")
        tokenizer.encode_files("words.txt", names[-1])
        assert len(os.fsencode(names[-1])) == n_bytes and read_ids(names[-1])[1]
        os.remove(old)
    assert sorted(os.listdir()) == sorted([*names, "words.txt"])
    first, second = outputs.new_files([names[-1]]), outputs.new_files([names[-2]])
    with first as [one], second as [other]:  # names that begin alike
        assert one.name != other.name and one.name.endswith(".bpe.tmp") and other.name.endswith(".bpe.tmp")


def test_a_mistyped_folder_of_an_array_is_an_error_before_the_work_and_a_model_gets_its_folder(main, error):
    tokenizer = Tokenizer(*trained(300))
    tokenizer.save("a/new/folder")
    read = []
    with pytest.raises(ValueError, match="no folder .*typo; create it first"):
        tokenizer.encode_files(None, "typo/ids.npy", texts=map(read.append, ["low"]))
    assert not read and "no folder " in error("words.txt", "--encode", "typo/ids.npy", "--model", "a/new/folder")
    assert sorted(os.listdir()) == ["a", "words.txt"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("make", [getattr(os, "mkfifo", None), os.mkdir, functools.partial(os.symlink, os.devnull)])
@pytest.mark.parametrize("path", ["model/merges.txt", "model/tokenizer.json", "ids.npy"])
def test_only_regular_files_are_replaced_and_anything_else_is_an_error(main, make, path):
    tokenizer = Tokenizer(*trained(300))
    for folder in ("model", "bpeModel"):
        tokenizer.save(folder)
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
    make(path)
    write = functools.partial(tokenizer.encode_files, "words.txt", path) if path == "ids.npy" else tokenizer.save
    with pytest.raises(ValueError, match="refusing to overwrite .*: not a regular file"):
        write(*["model"] * (path != "ids.npy"))
    arguments = ["--encode", path] if path == "ids.npy" else [300, "--model", "model"]
    status, _, stderr = main("words.txt", *arguments)
    assert status == 2 and "not a regular file" in stderr.splitlines()[-1]
    assert not os.path.isfile(path) and not list(Path().glob("**/*.tmp"))


@pytest.mark.parametrize("n_questions", range(1, 4))
def test_a_file_that_another_run_removes_during_the_check_is_no_error(tmp_path, monkeypatch, n_questions):
    path = tmp_path / "vocab.json"
    path.write_text("{}")
    questions = []
    stat_of_path = os.stat

    def stat_and_remove(asked, **options):
        status = stat_of_path(asked, **options)
        questions.append(asked)
        if len(questions) == n_questions:
            path.unlink(missing_ok=True)  # as a run does that saves in the same folder
        return status

    monkeypatch.setattr(os, "stat", stat_and_remove)
    outputs.check_outputs([path])


def test_a_new_file_with_the_inode_of_a_removed_one_is_another_file(tmp_path, monkeypatch):
    """File systems use an inode again. What stat() gives is prescribed here, since the moment is a matter of luck."""
    paths = [tmp_path / name for name in ("a", "b")]
    for path in paths:
        path.write_text("")
    real = os.stat
    first, second = map(real, paths)
    given = [first, first, second, first]  # after the first question, "a" is replaced, and "b" gets its old inode
    monkeypatch.setattr(os, "stat", lambda path, **options: given.pop(0) if path in paths else real(path, **options))
    outputs.check_distinct(paths, [])
    monkeypatch.undo()
    os.link(paths[0], tmp_path / "link")
    with pytest.raises(ValueError, match="the output .*link is the same file as .*a, which is needed, too"):
        outputs.check_distinct([paths[0], tmp_path / "link"], [])


@contextlib.contextmanager
def lock_of_another_process(folder):
    """Lock a folder, as a run does that is stopped during a save."""
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


with_locks = pytest.mark.skipif(sys.platform == "win32", reason="no locks of folders here")


@with_locks
@pytest.mark.parametrize("number, expected", [(signal.SIGINT, (130, "interrupted")), (signal.SIGTERM, (143, "terminated"))])
def test_a_signal_ends_the_wait_for_another_save_and_nothing_stays(main, monkeypatch, number, expected):
    Tokenizer(*trained(300)).save("model")
    before = files_of("model")
    monkeypatch.setattr(outputs.time, "sleep", lambda seconds: signal.raise_signal(number))  # between two attempts
    with lock_of_another_process("model"):
        status, _, stderr = main("words.txt", 280, "--model", "model")
    assert (status, stderr.splitlines()[-1]) == expected and files_of("model") == before


@with_locks
def test_another_save_that_does_not_end_is_an_error_and_the_training_is_not_lost(main, monkeypatch):
    monkeypatch.setattr(outputs, "LOCK_SECONDS", 0.1)
    tokenizer = Tokenizer(*trained(300))
    tokenizer.save("model")
    before = files_of("model")
    with lock_of_another_process("model"):
        text = "can't replace .*tokenizer.json: another process holds the lock of .*model, so end it first; the finished files are kept: "
        with pytest.raises(OSError, match=f"{text}mv"):
            tokenizer.save("model")
        assert {path: data for path, data in files_of("model").items() if not path.endswith(".tmp")} == before
        status, _, stderr = main("words.txt", 280, "--model", "model")
        tokenizer.encode_files("words.txt", "model/ids.npy")  # a single file needs no lock
    match = regex.fullmatch(f"error: {text}(mv .*)", stderr.splitlines()[-1])
    subprocess.run(match[1], shell=True, check=True)
    assert status == 2 and model_in("model") == training.train_bpe("words.txt", 280, [END])


@with_locks
def test_a_process_that_is_forked_during_a_save_does_not_keep_the_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(outputs, "LOCK_SECONDS", 0)
    with outputs.locked(str(tmp_path)):
        child = os.fork()
        if not child:
            signal.pause()
    try:
        with outputs.locked(str(tmp_path)):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.skipif(os.name != "posix", reason="no modes here")
@pytest.mark.parametrize("mode", [0o664, 0o600, 0o444])
def test_files_that_are_replaced_keep_their_modes_and_owners(words_txt, mode):
    tokenizer = Tokenizer(*trained(300))
    tokenizer.save("model")
    tokenizer.encode_files("words.txt", "ids.npy")
    umask = os.umask(0o022)
    os.umask(umask)
    paths = [*Path("model").iterdir(), Path("ids.npy")]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask for path in paths)
    for path in paths:
        if os.geteuid() == 0:
            os.chown(path, 54321, 54322)
        path.chmod(mode)
    about = lambda: [(path.stat().st_uid, path.stat().st_gid, stat.S_IMODE(path.stat().st_mode)) for path in paths]  # noqa: E731
    before = about()
    Tokenizer(*trained(400)).save("model")
    tokenizer.encode_files("words.txt", "ids.npy")
    assert about() == before and Tokenizer.load("model").vocab == trained(400)[0]


class FullDisk(io.FileIO):
    def write(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_named_and_the_training_is_not_lost(main, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(outputs, "open", lambda path, *rest, **more: (FullDisk if "no_room" in str(path) else open)(path, *rest, **more),
                        raising=False)  # fmt: skip
    status, _, stderr = main("words.txt", 300, "--model", "no_room")
    place = r"error: No space left on device: '.*no_room.tokenizer\.json'; the model is in (.*)"
    match = regex.fullmatch(place, stderr.splitlines()[-1])
    assert status == 2 and match and not os.listdir("no_room"), stderr
    assert model_in(match[1]) == training.train_bpe("words.txt", 300, [END])
    with pytest.raises(OSError, match="No space left on device: .*no_room.npy"):
        Tokenizer(*trained(300)).encode_files("words.txt", "no_room.npy")
    os.mkdir("no_room_either")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "no_room_either"))
    status, _, stderr = main("words.txt", 300, "--model", "no_room")
    both = r"error: No space left on device: '.*no_room/tokenizer\.json'; .*: No space left on device: '.*no_room_either/.*'"
    assert status == 2 and regex.fullmatch(both, stderr.splitlines()[-1]), stderr


def test_a_folder_of_many_files_is_not_listed_for_each_new_one(tmp_path, monkeypatch):
    """In a folder of 30,000 files, listing took 20 ms; the array takes 0.4."""
    (tmp_path / "text.txt").write_text("low")
    tokenizer = Tokenizer(*trained(300))
    seen, watching = [], [True]  # a hook stays as long as the process
    sys.addaudithook(lambda event, arguments: watching and seen.append(event))
    tokenizer.save(tmp_path)
    tokenizer.encode_files(tmp_path / "text.txt", tmp_path / "ids.npy")
    watching.clear()
    assert "open" in seen and not {"os.listdir", "os.scandir"} & set(seen)


@pytest.mark.parametrize("exists", [True, False])
def test_links_are_written_through(words_txt, exists):
    """A folder or a file that is a link stays one, even if what it leads to does not exist yet."""
    tokenizer = Tokenizer(*trained(300), [END])
    os.symlink("there", "model")
    os.symlink("ids", "ids.npy")
    if exists:
        os.mkdir("there")
        os.symlink(os.path.abspath("json"), "there/tokenizer.json")
        Path("json").write_text("earlier")
        Path("ids").write_text("earlier")
    tokenizer.save("model")
    tokenizer.encode_files("words.txt", "ids.npy")
    assert os.readlink("model") == "there" and os.readlink("ids.npy") == "ids" and read_ids("ids")[1]
    assert os.path.islink("there/tokenizer.json") == exists
    assert Tokenizer.load("json" if exists else "there").vocab == tokenizer.vocab
