"""Slices of files that aren't uncompressed plain text: JSON Lines, .gz, .zst, and through arrow.py Arrow and Parquet.

Packages are imported when a file needs them: zstandard for .zst, pyarrow for Arrow and Parquet (in arrow.py).

Gives: check_files(), slices_of_file(). unpacked() reads .gz and .zst.
Uses: choices, arrow, inputs, slicing, errors, outputs.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
import gzip
import importlib
import itertools
import json
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bpe_more import choices, outputs
from bpe_more.corpus import arrow, inputs, slicing
from bpe_more.corpus.slicing import REPLACE_MAKES_IT, TextRows
from bpe_more.errors import all_delayed, package, require

# scan_json(text, 0) returns (value, its end), and takes no space before the value
scan_json: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


def plain_json(line: bytes) -> Any:
    """Parse JSON in strict UTF-8. Given bytes, json.loads also takes encoded surrogates, and a byte-order mark."""
    text = line.decode("utf-8").strip(" \t\r\n")
    try:
        value, end = scan_json(text, 0)
    except StopIteration:  # raised for "" and "x"
        end = -1
    return value if end == len(text) else json.loads(text)  # raises the error; used always, it would take longer


fast_json: Callable[[bytes], Any] = plain_json
with contextlib.suppress(ImportError), all_delayed():  # signals wait: orjson crashes if a handler raises here
    fast_json = importlib.import_module("orjson").loads
LINES_BYTES = 512 << 10  # how much JSON a worker parses at a time: the objects stay in the processor's cache
ZST_BYTES = 2 << 10  # how much is unpacked at a time: 4 bytes may become 128 KB
FORMATS = {".parquet": "Parquet", ".arrow": "Arrow", ".feather": "Arrow", ".gz": "gzip", ".zst": "zstd", "": ""}
AS_TEXT = "column=None, or --as text, reads the file as plain text, with its braces"


def check_files(paths: Iterable[str], options: choices.Options) -> None:
    """Raise an error for a missing package, or a missing column, before any text is read."""
    for path in paths:
        kind, packing = inputs.kind_of(path, options)
        if packing == ".zst":
            package("zstandard", path)
        if kind in inputs.COLUMNAR:
            text = "{} is compressed: decompress it first, because compressed {} files aren't read"
            require(not packing, text, path, kind)
            with open(path, "rb") as file:
                inputs.check_start(path, file.read(inputs.START_BYTES), FORMATS[kind])
            opened = arrow.open_parquet if kind == ".parquet" else arrow.open_arrow
            opened(path, options.column)


def slices_of_file(path: str, slice_bytes: int, options: choices.Options) -> Iterator[Any]:
    """Cut a file that isn't uncompressed plain text into slices, by the reader for its kind."""
    kind, packing = inputs.kind_of(path, options)
    with arrow.errors_in(path):
        if kind == ".parquet":
            yield from arrow.slices_of_parquet(path, slice_bytes, options)
        elif kind in inputs.COLUMNAR:
            columns = arrow.arrays_of_arrow(path, options.column)
            yield from arrow.slices_of_arrays(path, columns, slice_bytes, options.errors)
        elif kind:
            slice_bytes = min(slice_bytes, LINES_BYTES)
            yield from slices_of_lines(path, unpacked(path, packing, slice_bytes), slice_bytes, options)
        else:
            blocks = inputs.checked(path, unpacked(path, packing, slicing.WINDOW_BYTES // 2), inputs.check_start)
            yield from slicing.slices_of_blocks(path, blocks, slice_bytes, options)


def unpacked(path: str, packing: str, n_bytes: int) -> Iterator[bytes]:
    """Yield the bytes of a file, unpacked if it is .gz or .zst. A .zst may have several frames, and windows of 2 GB."""
    is_stdin = path in outputs.STDIN
    with open(0 if is_stdin else path, "rb", closefd=not is_stdin) as file:
        inputs.check_start(path, file.peek(inputs.START_BYTES), FORMATS[packing])
        if packing != ".zst":
            source: Any = gzip.GzipFile(fileobj=file) if packing else file
            yield from iter(functools.partial(source.read, n_bytes), b"")
            return
        zstandard = package("zstandard", path)
        frame = None
        while rest := file.read(ZST_BYTES):
            while rest:
                frame = frame or zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
                if block := frame.decompress(rest):
                    yield block
                rest = frame.unused_data
                frame = None if frame.eof else frame
        require(frame is None, "{}: the file ends too early", path)


def slices_of_lines(path: str, blocks: Iterable[bytes], slice_bytes: int,
                    options: choices.Options) -> Iterator[TextRows]:
    """Cut JSON Lines into slices of whole lines, which workers parse."""
    first_line = 1
    data = bytearray()

    def slice_of(lines: bytes) -> TextRows:
        place = functools.partial(place_of_line, path, lines, first_line)
        read = functools.partial(read_lines, path, lines, first_line, options.column, options.errors)
        return TextRows(place, 0, read)  # rows are numbered from 0 in each slice: place() makes lines of them

    for block in without_mark(path, blocks):
        n_before = len(data)
        data += block
        end = data.rfind(b"\n", n_before) + 1  # of whole lines
        if end >= slice_bytes:
            lines = bytes(data[:end])
            del data[:end]
            yield slice_of(lines)
            first_line += lines.count(b"\n")
    if data:
        yield slice_of(bytes(data))


def without_mark(path: str, blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Leave out a byte-order mark before JSON Lines. Raises ValueError for an array, which may be one long line."""
    blocks = iter(blocks)
    start = b""
    while len(start) < len(codecs.BOM_UTF8) and (block := next(blocks, b"")):
        start += block
    start = start.removeprefix(codecs.BOM_UTF8)
    text = "{}: a JSON array, not an object in each line; jq -c '.[]' converts it; {}"
    require(not start.lstrip().startswith(b"["), text, path, AS_TEXT)
    yield start
    yield from blocks


def place_of_line(path: str, lines: bytes, first_line: int, row: int) -> str:
    """Return the place of a row for an error: blank lines aren't rows."""
    numbers = [number for number, line in enumerate(lines.split(b"\n"), first_line) if line.strip()]
    return f"{path}, line {numbers[row]}"


def read_lines(path: str, lines: bytes, first_line: int, column: Any, errors: str) -> list[bytes]:
    """Return the texts of lines of JSON."""
    try:
        parts: Iterable[bytes] = lines.split(b"\n")
        # With \r\n, a blank line is b"\r", which orjson refuses; then read_each_line() reads all lines again.
        # So lines are stripped only for plain_json: for orjson, it would take a tenth of its time.
        if fast_json is plain_json:
            parts = map(bytes.strip, parts, itertools.repeat(b" \t\r"))
        rows = map(fast_json, filter(None, parts))
        texts = map(operator.itemgetter(column), rows)  # no Python loop; text_of_line() may accept what this refuses
        return list(map(str.encode, texts))
    except (ValueError, KeyError, TypeError, RecursionError):
        return read_each_line(path, lines, first_line, column, errors)


def read_each_line(path: str, lines: bytes, first_line: int, column: Any, errors: str) -> list[bytes]:
    """Return the texts of lines of JSON; errors have the file and the line."""
    texts = []
    for number, line in enumerate(lines.split(b"\n"), first_line):
        if line and not line.isspace():
            try:
                texts.append(text_of_line(line, column, errors))
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{path}, line {number}: {reason_of(error, line)}") from None
    return texts


def reason_of(error: Exception, line: bytes) -> str:
    """Say why a line can't be read, and what to do."""
    if isinstance(error, UnicodeError):
        return f"{error}; {REPLACE_MAKES_IT} U+FFFD"
    if not isinstance(error, (json.JSONDecodeError, RecursionError)):
        return str(error)
    text = f"not JSON: {getattr(error, 'msg', error)} in column {getattr(error, 'colno', 1)}"
    if isinstance(error, ValueError) and line.rstrip().endswith((b"{", b"[", b",", b":")):
        text = "an object in several lines; jq -c . writes each object in one line"
    return f"{text}; {AS_TEXT}"


def text_of_line(line: bytes, column: Any, errors: str) -> bytes:
    """Return the text of a line of JSON."""
    try:
        row = fast_json(line)
    except (ValueError, RecursionError):  # orjson refuses lone surrogates, and doesn't say where UTF-8 is invalid
        row = json.loads(line.decode("utf-8", errors))
    require(isinstance(row, dict), "not an object with the key {!r}, but {!r:.60}", column, row)
    text = row.get(column)
    if text is None and errors == "replace":  # null, or no such key
        return b""
    if text is None and column in row:
        raise ValueError(f"text must be a str, not null; {REPLACE_MAKES_IT} an empty one")
    if not isinstance(text, str):
        strings = [name for name, value in row.items() if isinstance(value, str)]
        raise ValueError(arrow.wrong_column(column, strings, type(text).__name__ if column in row else ""))
    return slicing.to_utf8(text, errors)
