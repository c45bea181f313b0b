"""Files that are whole or not there: after signals, on full disks, for two runs that save at once.

A file is written next to its place, synced, and renamed. A finished file is never deleted: if it can't be renamed, the
error says where it is, and what to type.

Gives: write_files() for a model; new_files() for other outputs, such as arrays of token ids; check_outputs() and
check_distinct(), before the work; file_in_errors(); STDIN.
Uses: errors.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shlex
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import bpe
from bpe_more.errors import all_delayed, require

STDIN = ("-", "-.jsonl")  # names of standard input; the second one is JSON Lines

LOCK_SECONDS = 5  # how long a run waits for another one that saves in the same folder


def write_files(folder: bpe.FilePath, texts: Mapping[str, str]) -> None:
    """Write the files of a model into a folder. All are complete before the first one replaces an earlier one."""
    folder = folder or "."
    paths = [os.path.join(folder, name) for name in texts]
    os.makedirs(os.path.realpath(folder), exist_ok=True)  # where a link leads, there may be no folder yet
    check_outputs(paths)
    # Other programs take the last two, vocab.json and merges.txt, together. If the old ones were not removed before the
    # new ones get their names, a run that is killed between two renames would leave files of two models.
    with new_files(paths, stale=paths[-2:]) as files:
        for file, path, text in zip(files, paths, texts.values()):
            with file_in_errors(path):
                file.write(text.encode("utf-8"))


@contextlib.contextmanager
def file_in_errors(path: bpe.FilePath) -> Iterator[None]:
    """Add a file's name to system errors without one, such as "No space left on device"."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or os.fspath(path)
        raise


def check_outputs(outputs: Sequence[bpe.FilePath], inputs: Sequence[bpe.FilePath] = ()) -> None:
    """Refuse an output that is an input, or another output, or not a file."""
    check_distinct(outputs, inputs)
    for path in map(os.path.realpath, outputs):
        try:
            mode = os.stat(path).st_mode  # asked once, since another run may remove the file now
        except OSError:  # it is new, or open_temporary() says what is wrong
            continue
        require(stat.S_ISREG(mode), "refusing to overwrite {}: not a regular file", path)


def check_distinct(outputs: Sequence[bpe.FilePath], inputs: Sequence[bpe.FilePath]) -> None:
    """Refuse an output that is an input, or another output, even by way of links."""
    seen: dict[object, bpe.FilePath] = {}
    for number, path in enumerate([*inputs, *outputs]):
        key = file_identity(path)
        if key in seen and number >= len(inputs):  # an input may be named twice
            # asked again: another run may have removed that file since, and a new one has its inode now
            same = file_identity(seen[key]) == file_identity(path)
            require(not same, "the output {} is the same file as {}, which is needed, too", os.fspath(path), seen[key])
        seen[key] = path


def file_identity(path: bpe.FilePath) -> object:
    """Return the inode and device of a file, or the path of a file that doesn't exist, without links."""
    try:
        return os.stat(0 if path in STDIN else path)[1:3]
    except FileNotFoundError:
        return os.path.realpath(path)


@contextlib.contextmanager
def new_files(paths: Iterable[bpe.FilePath], stale: Iterable[bpe.FilePath] = ()) -> Iterator[list[BinaryIO]]:
    """Open files under temporary names, and rename them at the end; stale ones go after the first rename.

    Raises the error of kept_error() if the system refuses to rename them.
    """
    targets = list(map(os.path.realpath, paths))  # a link is followed, not replaced
    files: list[BinaryIO] = []
    try:
        with all_delayed():  # all temporary files get into the list
            files.extend(map(open_temporary, targets))
        yield files
        for file, target in zip(files, targets):
            with file_in_errors(target), file:
                file.flush()
                sync(file)  # else a power cut could leave an empty file under the new name
        # a single file can't be mixed with those of another run, so it needs no lock
        lock = locked(os.path.dirname(targets[0])) if len(targets) > 1 else contextlib.nullcontext()
        try:
            with lock, all_delayed():
                rename(files, targets, stale)
        except OSError as error:
            names = [file.name for file in files]
            files.clear()  # they are finished, so they stay
            raise kept_error(error, names, targets[-len(names) :]) from None
    finally:
        for file in files:
            with contextlib.suppress(OSError):
                file.close()  # on a full disk, this fails again
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file.name)


def kept_error(error: OSError, names: Sequence[str], targets: Sequence[str]) -> OSError:
    """Return an error that says where finished files are, and what to type. Its attribute `kept` has their names."""
    reason = error.strerror if error.errno else str(error)
    commands = " && ".join(f"mv {shlex.quote(name)} {shlex.quote(target)}" for name, target in zip(names, targets))
    files = "file is" if len(names) == 1 else "files are"
    text = f"can't replace {targets[0]}: {reason}; the finished {files} kept: {commands}"
    new: Any = OSError(error.errno or errno.EBUSY, text)
    new.kept = names
    return new  # type: ignore[no-any-return]


def open_temporary(path: str) -> BinaryIO:  # type: ignore[return]
    """Create a temporary file next to path: ids.npy.0.bpe.tmp, or 1 if another run uses 0."""
    folder, name = os.path.split(path)
    # systems take 255 bytes, and a character has four at most
    stem = name if len(os.fsencode(name)) <= 240 else name[:50]
    for number in itertools.count():
        temporary = os.path.join(folder, f"{stem}.{number}.bpe.tmp")
        with contextlib.suppress(FileExistsError):
            file = open(temporary, "xb")  # noqa: SIM115
            keep_owner_and_mode(temporary, path)
            return file


def keep_owner_and_mode(temporary: str, path: str) -> None:
    """Give a new file the owner, the group and the mode of the one that it will replace, if there is one."""
    with contextlib.suppress(OSError):
        earlier = os.stat(path)
        if os.name == "posix":
            os.chmod(temporary, stat.S_IMODE(earlier.st_mode))
            os.chown(temporary, earlier.st_uid, earlier.st_gid)  # mostly, only root may give a file away


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Let other runs that save in a folder wait; signals end the wait. Raises OSError if one of them doesn't end."""
    try:
        import fcntl
        descriptor = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):  # Windows
        yield
        return
    deadline = time.monotonic() + LOCK_SECONDS
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise OSError(f"another process holds the lock of {folder}, so end it first") from None
                time.sleep(0.01)
                continue
            except OSError:  # some networks have no locks
                pass
            break
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing isn't enough if a process was forked since
        os.close(descriptor)


def rename(files: list[BinaryIO], targets: Sequence[str], stale: Iterable[bpe.FilePath]) -> None:
    """Give each temporary file its name, and remove the stale files after the first."""
    for number, target in enumerate(targets):
        os.replace(files[0].name, target)
        files.pop(0)  # another run may use the temporary name now, so new_files() must not remove it
        if number == 0:  # if this rename fails, all files of the earlier model are still there
            for path in map(os.path.realpath, stale):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
    with contextlib.suppress(OSError):  # Windows and some file systems can't; the files are complete
        folder = os.open(os.path.dirname(targets[0]), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


# how file systems say that they have no fsync (VirtualBox, some networks, FUSE): EIO would be lost data
NO_FSYNC = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF)


def sync(file: BinaryIO) -> None:
    """Write a file to the disk, if its file system can do that on demand."""
    try:
        os.fsync(file.fileno())
    except OSError as error:
        if error.errno not in NO_FSYNC:
            raise
