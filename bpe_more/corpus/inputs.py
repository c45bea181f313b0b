"""Refuses inputs that can't be read, with an error that says what to do instead; expands globs such as *.txt.

Files are known by the ends of their names, and by their first bytes; folders by a file in them; objects by their types.

Gives: check_path(), check_start(), check_plain(), check_texts(): each refuses some inputs; checked(), for blocks;
kind_of(), which says by a name how a file is read; is_arrow(); glob_for() and expanded(), for folders and globs;
KINDS and COLUMNAR, ends of names; START_BYTES.
Uses: choices, errors, outputs.
"""

from __future__ import annotations

import collections
import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bpe_more import choices, outputs
from bpe_more.errors import require

WAYS = {
    "gzip": "save it under a name that ends in .gz, or decompress it: gzip -dc FILE | bpe-py - ...",
    "zstd": "save it under a name that ends in .zst, or decompress it: zstd -dc FILE | bpe-py - ...",
    "Parquet": "save it under a name that ends in .parquet",
    "Arrow": "save it under a name that ends in .arrow",
    "xz": "decompress it: xzcat FILE | bpe-py - ...",
    "bzip2": "decompress it: bzcat FILE | bpe-py - ...",
    "a zip archive": "extract it, and name its files",
    "a tar archive": "extract it (tar -xf), and name its files",
    "a pointer of Git LFS": "get the file itself: git lfs pull",
    "JSON Lines": "read it with bpe-py - ... --as jsonl (in Python, the path '-.jsonl'), or as plain text: --as text",
}
REFUSED = {
    **dict.fromkeys((".tar", ".tgz", ".tar.gz", ".tar.zst", ".tar.xz", ".tar.bz2"), "a tar archive"),
    ".zip": "a zip archive",
    ".parq": "Parquet",
    ".zstd": "zstd",
    ".xz": "xz",
    ".bz2": "bzip2",
}
KINDS = (".parquet", ".arrow", ".feather", ".jsonl", ".ndjson", ".json")  # ends of the names of files with columns
COLUMNAR = KINDS[:3]
EXTENSIONS = re.compile(rf"(?s).*?({'|'.join(map(re.escape, KINDS))})?(\.gz|\.zst)?")  # matches any path
START_BYTES = 1 << 10
STARTS = [  # at which byte, what is there, and in which format
    (0, b"\x1f\x8b", "gzip"),
    (0, b"\x28\xb5\x2f\xfd", "zstd"),
    (0, b"PAR1\x15", "Parquet"),  # PAR1 alone may begin a text; \x15 begins the header of the page that comes next
    (0, b"ARROW1\0\0", "Arrow"),
    (0, b"\xff\xff\xff\xff", "Arrow"),  # a stream
    (0, b"\xfd7zXZ\0", "xz"),
    (4, b"1AY&SY", "bzip2"),
    (0, b"PK\x03\x04", "a zip archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"version https://git-lfs.github.com/spec/", "a pointer of Git LFS"),
]
SAVED = {  # the file that marks a folder saved by the library datasets, and the files with its rows
    "dataset_info.json": "data-*.arrow",
    "dataset_dict.json": os.path.join("*", "data-*.arrow"),
}
ARROW = 'select_columns("text").with_format("arrow").iter(1000)'
COLUMNS = {  # class of an object with columns -> the call that gives one of them
    "polars.LazyFrame": 'texts.select("text").collect()',
    "pyarrow.Dataset": 'texts.to_batches(columns=["text"])',
    "pyarrow.ParquetFile": 'texts.iter_batches(500, columns=["text"])',
    "pyarrow.ParquetDataset": 'texts.read(columns=["text"])',
    "datasets.Dataset": f"texts.{ARROW}",
    "datasets.IterableDataset": f"texts.{ARROW}",
    "pandas.DataFrame": 'texts["text"]',  # before pandas 2.2; is_arrow() lets later ones through
    "dask.DataFrame": 'texts["text"]',
}


def format_error(path: str, what: str) -> ValueError:
    """Return the error for an input in a format that isn't read under its name."""
    way = WAYS[what]
    if re.search(r"\.(jsonl|ndjson|json)\b", path.lower()):
        way = way.replace("| bpe-py - ...", "| bpe-py - ... --as jsonl")
    return ValueError(f"{'standard input' if path in outputs.STDIN else path} is {what}; {way}")


def check_path(path: str) -> None:
    """Refuse a file whose name says that it can't be read, a folder that the library datasets has saved, and a URL."""
    name = path.lower()
    for ending, what in REFUSED.items():
        if name.endswith(ending):
            raise format_error(path, what)
    if os.path.isdir(path):
        for saved, files in SAVED.items():
            text = "{} is a folder from save_to_disk; name its files ({})"
            require(not os.path.exists(os.path.join(path, saved)), text, path, os.path.join(path, files))
    if "://" in path and not os.path.exists(path):
        raise ValueError(f"{path} is a URL, which is read with --cluster, or by bpe_more.cluster")


def kind_of(path: str, options: choices.Options) -> tuple[str, str]:
    """Return the format and the compression of a path, by its extensions: "a.jsonl.gz" -> (".jsonl", ".gz").

    Either may be "". With column=None, JSON Lines are plain text, so their format is "", too.

    If both are "", it is a plain file, and data.py isn't imported.

    A new format is added to KINDS, and to NOT_TEXT in bpe.py; if it is like Parquet, also to COLUMNAR, and to FORMATS
    in data.py. A new compression: to EXTENSIONS, glob_for(), NOT_TEXT, and FORMATS and unpacked() in data.py.
    """
    endings: Any = EXTENSIONS.fullmatch(path.lower())
    kind, packing = endings.groups("")
    return ("" if options.column is None and kind not in COLUMNAR else kind), packing


def glob_for(folder: str) -> str:
    """Return a glob for the most frequent extension in a folder: "data" -> "data/*.parquet"."""
    endings: collections.Counter[str] = collections.Counter()
    for entry in os.scandir(folder):
        name, ending = os.path.splitext(entry.name)
        if ending in (".gz", ".zst"):
            ending = os.path.splitext(name)[1] + ending
        if ending and entry.is_file() and not entry.name.startswith("."):  # a glob leaves hidden files out
            endings[ending] += 1
    most = min(endings, key=lambda ending: (-endings[ending], ending), default=".txt")
    return os.path.join(glob.escape(folder), f"*{most}")


def expanded(paths: Iterable[str]) -> list[str]:
    """Return the paths, with globs such as data/*.txt replaced by their files. Some shells leave that to programs."""
    found = []
    for path in paths:
        if glob.has_magic(path) and not os.path.exists(path):
            files = [name for name in sorted(glob.glob(path, recursive=True)) if not os.path.isdir(name)]
            found += files or [path]
        else:
            found.append(path)
    return found


def check_start(path: str, start: bytes, expected: str = "") -> None:
    """Refuse an input whose first bytes are those of a format other than the expected one."""
    for place, magic, what in STARTS:
        if start.startswith(magic, place) and what != expected:
            raise format_error(path, what)


def check_plain(path: str, start: bytes) -> None:
    """Refuse what check_start() refuses, and JSON Lines: a pipe has no name whose ending would show them.

    The input is taken for JSON Lines if it begins with an object that ends in its first line. Of a line that goes on
    after `start`, the end isn't known, so its beginning is enough.
    """
    check_start(path, start)
    is_whole = len(start) < START_BYTES
    ends = rb"(\}\s*\n|\}\s*\Z)" if is_whole else rb"(\}\s*\n|\Z)"
    if re.match(rb'(\xef\xbb\xbf)?\s*\{[ \t]*"[^\n]*' + ends, start):
        raise format_error(path, "JSON Lines")


def checked(path: str, blocks: Iterable[bytes], check: Callable[[str, bytes], None]) -> Iterator[bytes]:
    """Pass the blocks of an input on, after a check of its first bytes, which may be those of an archive in a .gz."""
    blocks = iter(blocks)
    start = b""
    while len(start) < START_BYTES and (block := next(blocks, b"")):
        start += block
    check(path, start[:START_BYTES])
    if start:
        yield start
    yield from blocks


def is_arrow(value: object) -> bool:
    """Tell if a value gives access to Arrow's memory."""
    return hasattr(value, "__arrow_c_array__") or hasattr(value, "__arrow_c_stream__")


def check_texts(texts: Any) -> None:
    """Refuse a table or dataset where a column is needed; the error names the call that gives one."""
    # `texts=dataset.data` is a datasets.table, which has all rows, as they were before select() and shuffle()
    way = 'pass its dataset.with_format("arrow").iter(1000)'
    require(type(texts).__module__ != "datasets.table", "a dataset's table may have other rows; {}", way)
    names = [f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(texts).__mro__]
    # with_format("arrow"), "polars" or "pandas" makes each row a table in Arrow's memory; others are refused later
    formatted = "datasets.Dataset" in names and texts.format["type"]
    call = next(filter(None, map(COLUMNS.get, names)), None)
    if {"datasets.DatasetDict", "datasets.IterableDatasetDict"} & set(names):
        keys = ", ".join(map(repr, texts))
        call = f"one of its parts ({keys:.200}), as in texts[{next(iter(texts), None)!r}].{ARROW}"
    if call and not formatted and not is_arrow(texts):
        raise TypeError(f"texts must be a column of strings, not a {type(texts).__name__}; pass {call}")
