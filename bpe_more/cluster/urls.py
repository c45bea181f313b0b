"""Files of this machine, and those that URLs name: s3://, gs://, hdfs://, hf://, https://, which fsspec opens.

A path with :// is a URL. Files are written whole or not at all, and errors name the URL.

Gives: files_of(), fetched(), written(), read(), write(), names_in(), place_of(), and others that treat both alike.
Uses: corpus.inputs, errors, outputs.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import posixpath
import re
import tempfile
import uuid
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import bpe
from bpe_more import outputs
from bpe_more.corpus import inputs
from bpe_more.errors import package, require

# where stores tell that a file has changed
STAMPS = "ETag", "etag", "mtime", "LastModified", "last_modified", "updated", "blob_id", "created"
DIGEST_BYTES = 16


class File(NamedTuple):
    """A file, as it is now: a change of size or stamp is a change of the file."""

    path: str
    size: int
    stamp: str


def file_system(path: str) -> tuple[Any, str]:
    """Return fsspec's file system for a URL, and the path in it; None for a path of this machine."""
    if "://" not in path:
        return None, path
    url_to_fs = package("fsspec.core", path).url_to_fs
    try:
        system, inner = url_to_fs(path)
    except ValueError as error:  # no such protocol
        raise ValueError(f"{path}: {error}") from None
    except ImportError as error:  # of the package for this protocol, such as s3fs
        raise ImportError(f"{path}: {error}") from None
    system.invalidate_cache()  # other machines may have written files since
    return system, inner


def files_of(paths: bpe.Paths) -> list[File]:
    """Return the files that paths, URLs and patterns, such as "web/*.txt", name. Raises OSError for a missing one."""
    files: list[File] = []
    for path in map(os.fsdecode, [paths] if isinstance(paths, (str, bytes, os.PathLike)) else paths or ()):
        with errors_of(path):
            found = list(named_by(path))
            require(found, "{}: no file has such a name", path)
            files += found
    require(files, "no file: the list of paths is empty")
    return files


def named_by(path: str) -> Iterator[File]:
    """Yield the files that a path, a URL or a pattern names."""
    system, inner = file_system(path)
    folder = "{} is a folder; name its files: {}"
    if system is None:
        is_pattern = glob.has_magic(path) and not os.path.exists(path)
        for name in sorted(glob.glob(path, recursive=True)) if is_pattern else [path]:
            about = os.stat(name)
            if not os.path.isdir(name):
                yield File(absolute(name), about.st_size, str(about.st_mtime_ns))
            elif not is_pattern:
                raise ValueError(folder.format(path, inputs.glob_for(path)))
        return
    is_pattern = bool(re.search(r"[*[]", inner))  # "?" begins the query of a URL
    for name in sorted(system.glob(inner)) if is_pattern else [inner]:
        info = system.info(name)
        require(is_pattern or info["type"] != "directory", folder, path, f"{path}/*.txt")
        if info["type"] != "directory":
            stamp = next(filter(None, map(info.get, STAMPS)), "")
            yield File(system.unstrip_protocol(name), info["size"] or 0, str(stamp))


@contextlib.contextmanager
def errors_of(path: str) -> Iterator[None]:
    """Name a file in errors. Those of stores have many types, and some no text: they become OSError."""
    try:
        yield
    except (ValueError, ImportError, MemoryError):
        raise
    except Exception as error:
        text = getattr(error, "strerror", None) or str(error) or repr(error)
        if isinstance(error, FileNotFoundError):
            text = "No such file"
        raise OSError(text if path in text else f"{path}: {text:.300}") from None


def absolute(path: str) -> str:
    """Return a path that means the same in every process of a machine."""
    if "://" in path:
        return path
    if ".." in path.split(os.sep):  # "link/..": abspath() would take away both, wherever the link leads
        folder, name = os.path.split(path)
        path = os.path.join(os.path.realpath(folder), name)
    return os.path.abspath(path)


def place_of(path: str) -> str:
    """Return the one form of a URL that its file system knows it by; for file://, and a path, the path."""
    system, inner = file_system(path)
    return path if system is None else str(system.unstrip_protocol(inner)).removeprefix("file://")


def names_in(folder: str) -> set[str]:
    """Return the names in a folder, none if it isn't there."""
    system, inner = file_system(folder)
    with errors_of(folder), contextlib.suppress(FileNotFoundError):
        names = os.listdir(inner) if system is None else system.ls(inner, detail=False)
        return {name.rstrip("/").rpartition("/")[2] for name in names}
    return set()


def size_of(path: str) -> int:
    """Return how many bytes a file has."""
    system, inner = file_system(path)
    with errors_of(path):
        return int(os.stat(inner).st_size if system is None else system.info(inner)["size"])


def read(path: str, start: int = 0, end: int | None = None) -> bytes:
    """Read bytes of a file."""
    system, inner = file_system(path)
    with errors_of(path), open(inner, "rb") if system is None else system.open(inner, "rb") as file:
        file.seek(start)
        data: bytes = file.read(-1 if end is None else end - start)
        return data


def write(path: str, data: bytes) -> None:
    """Write a file, which is complete as soon as it has its name."""
    with written(path) as local, outputs.new_files([local]) as [file]:
        file.write(data)


def checksum(data: bytes) -> bytes:
    """Return a digest by which damage is found."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def write_json(path: str, content: dict[str, Any]) -> None:
    """Write an object with its digest, for read_json()."""
    digest = checksum(json.dumps(content).encode()).hex()
    write(path, bpe.to_json({**content, "digest": digest}).encode())


def read_json(path: str, keys: Collection[str]) -> dict[str, Any]:
    """Read an object that has some keys. Raises ValueError with the file if it is damaged, or another program's."""
    data = read(path)
    text = f"{path} is damaged, or another program's; delete it, or name another folder"
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError(text) from None
    require(isinstance(found, dict) and found.keys() >= set(keys), text)
    digest = found.pop("digest", None)  # earlier versions wrote none
    require(digest in (None, checksum(json.dumps(found).encode()).hex()), text)
    return found  # type: ignore[no-any-return]


@contextlib.contextmanager
def written(path: str) -> Iterator[str]:
    """Give a path of this machine for a new file; that of a URL gets its name at the end."""
    system, inner = file_system(path)
    if system is None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="bpe-") as folder:
        local = os.path.join(folder, posixpath.basename(inner))
        yield local
        with errors_of(path):
            system.makedirs(posixpath.dirname(inner), exist_ok=True)
            temporary = f"{inner}.{uuid.uuid4().hex}.tmp"  # another attempt may write at the same time
            system.put_file(local, temporary)
            system.mv(temporary, inner)


def remove(path: str) -> None:
    """Remove a file, if it is there."""
    system, inner = file_system(path)
    with errors_of(path), contextlib.suppress(FileNotFoundError):
        (os.unlink if system is None else system.rm_file)(inner)


@contextlib.contextmanager
def fetched(paths: Sequence[str]) -> Iterator[list[str]]:
    """Give paths of this machine; those of URLs are copies, which errors don't name."""
    with tempfile.TemporaryDirectory(prefix="bpe-") as folder:
        copies = {}
        for number, path in enumerate(paths):
            system, inner = file_system(path)
            copies[path] = path
            if system is not None:
                # with its ending, which says what is in it
                copies[path] = os.path.join(folder, f"{number}-{posixpath.basename(inner)}")
                with errors_of(path):
                    system.get_file(inner, copies[path])
        try:
            yield [copies[path] for path in paths]
        except (OSError, ValueError) as error:
            text = str(error)
            for path, copy in copies.items():
                text = text.replace(copy, path)
            raise (OSError if isinstance(error, OSError) else ValueError)(text) from None
