"""Text from where people keep it: Arrow's memory, Parquet, JSON Lines, and compressed files.

In Arrow's memory, a column of strings is a block of UTF-8, and the places at which texts end. C takes the same, so it
reads them where they are. Nobody may change that memory meanwhile: C checks it, and then relies on it.

Packages are imported when a text or a file needs them: pyarrow for Arrow and Parquet, zstandard for .zst.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import gzip
import importlib
import itertools
import json
import operator
import re
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from bpe_more import choices, inputs, slicing
from bpe_more.checks import require
from bpe_more.signals import all_delayed


def plain_json(line: bytes) -> Any:
    """Parse JSON. json.loads(line) would also take half of a surrogate, and a byte-order mark."""
    return json.loads(line.decode("utf-8"))


fast_json: Callable[[bytes], Any] = plain_json
with contextlib.suppress(ImportError), all_delayed():  # orjson crashes if a signal's handler raises here
    fast_json = importlib.import_module("orjson").loads
# scan_json(text, 0) returns (value, its end), and takes no space before the value
scan_json: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]

# the types of text in Arrow, and those of bytes with the same layout
LAYOUTS = {"string": "binary", "large_string": "large_binary", "string_view": "binary_view", "null": "null"}
LAYOUTS |= {layout: layout for layout in LAYOUTS.values()}
GROUP_BYTES = 8 << 20  # a worker reads row groups of Parquet up to this size; larger ones are read in parts
REPEATED_BYTES = 64 << 20  # from how much text on, if all rows of a group repeated one, its dictionary is looked at
BATCH_BYTES = 16 << 20  # how much text the rows that are then read at a time have at most
LINES_BYTES = 512 << 10  # how much JSON a worker parses at a time: what it makes of it stays in the processor's cache
LINES_PARSED = 256  # how many lines json parses at a time: with all of a slice, it took 1.3 times as long
ZST_BYTES = 2 << 10  # how much is unpacked at a time: 4 bytes may become 128 KB
KINDS = (".parquet", ".arrow", ".feather", ".jsonl", ".ndjson", ".json")  # ends of the names of files with columns
COLUMNAR = KINDS[:3]
FORMATS = {".parquet": "Parquet", ".arrow": "Arrow", ".feather": "Arrow", ".gz": "gzip", ".zst": "zstd", "": ""}
WAY = "errors='replace' makes it"
AS_TEXT = "column=None, or --as text, reads the file as plain text, with its braces"
BOM = b"\xef\xbb\xbf"  # a byte-order mark


class Texts(Sequence[bytes]):
    """Texts as C takes them: a block of UTF-8, and the place at which each one ends."""

    def __init__(self, data: Any, ends: array[int]) -> None:
        self.data, self.ends = data, ends

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, number: Any) -> Any:
        return bytes(self.data[self.ends[number - 1] if number else 0 : self.ends[number]])

    def __reduce__(self) -> tuple[object, ...]:
        return Texts, (bytes(self.data), self.ends)  # for a worker process: without the rest of Arrow's memory


def block_of(texts: Sequence[bytes]) -> Texts:
    """Make a block of a list of texts."""
    return Texts(b"".join(texts), array("Q", itertools.accumulate(map(len, texts))))


class Rows(NamedTuple):
    """A slice of rows, each a text, which a worker reads."""

    place: Callable[[int], str]  # of a text, for errors
    texts: Texts | Callable[[str], Texts]  # or a function that reads them; it takes "strict" or "replace"
    first_text: int

    def run(self, work: Callable[[Any], Any], errors: str) -> tuple[int, Any]:
        """Return how many bytes the texts have, and work(texts); add the place to errors."""
        texts = self.texts(errors) if callable(self.texts) else self.texts
        if errors == "replace":
            texts = block_of([text.decode("utf-8", "replace").encode("utf-8") for text in texts])
        try:
            return len(texts.data), work(texts)
        except UnicodeDecodeError as error:
            number = next(n for n, text in enumerate(texts) if text.decode("utf-8", "ignore").encode() != text)
            raise ValueError(f"{self.place(self.first_text + number)}: {error}; {WAY} U+FFFD") from None
        except ValueError as error:
            raise ValueError(f"{self.place(self.first_text + getattr(error, 'number', 0))}: {error}") from None


@contextlib.contextmanager
def errors_in(place: str) -> Iterator[None]:
    """Put a place before errors of other packages. Those of the system have a number, and stay."""
    try:
        yield
    except Exception as error:
        if isinstance(error, (MemoryError, ImportError)) or type(error) is ValueError or getattr(error, "errno", None):
            raise
        line = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"{place}: {line:.200}") from None


def package(name: str, what: str) -> Any:
    """Import a package. Raises ImportError with the command that installs it."""
    try:
        with all_delayed():
            return importlib.import_module(name)
    except ImportError:
        name = name.partition(".")[0]
        raise ImportError(f"{what} needs the package {name}: pip install {name}") from None


def slices_of_arrow(columns: Iterable[Any], slice_bytes: int, errors: str) -> Iterator[Rows]:
    """Cut columns of Arrow, and tables and streams with one column, into slices."""
    arrays = itertools.chain.from_iterable(map(arrays_of, columns))
    return slices_of_arrays("texts", arrays, slice_bytes, errors)


def arrays_of(column: Any) -> Iterator[Any]:
    """Yield the arrays of a column, a table or a stream."""
    pyarrow = package("pyarrow", "text in Arrow's memory")
    require(slicing.is_arrow(column), "after a column of Arrow, texts has a {}", type(column).__name__)
    if not hasattr(column, "__arrow_c_stream__"):
        arrays: Any = [pyarrow.array(column)]
    else:
        try:
            arrays = (batch.to_struct_array() for batch in pyarrow.RecordBatchReader.from_stream(column))
        except pyarrow.ArrowInvalid:  # not a table
            arrays = pyarrow.chunked_array(column).chunks
    for rows in arrays:
        if not pyarrow.types.is_struct(rows.type):
            yield rows
            continue
        names = ", ".join(field.name for field in rows.type)
        way = "select one of them, as in texts=table['text']"
        require(len(rows.type) == 1, "texts must be one column, not {:.200}; {}", names or "none", way)
        yield rows.flatten()[0]


def slices_of_arrays(name: str, arrays: Iterable[Any], slice_bytes: int, errors: str, row: int = 0) -> Iterator[Rows]:
    """Cut arrays into slices; `row` is the number of the first text."""
    concat_arrays = package("pyarrow", "text in Arrow's memory").concat_arrays
    place = functools.partial("{}[{}]".format, name)
    for blocks in neighbors(checked_blocks(place, arrays, slice_bytes, errors, row), slice_bytes):
        for texts in cut(blocks[0] if len(blocks) == 1 else concat_arrays(blocks), slice_bytes):
            yield Rows(place, texts, row)
            row += len(texts)


def checked_blocks(place: Callable[[int], str], arrays: Iterable[Any], slice_bytes: int, errors: str,
                   row: int) -> Iterator[Any]:
    """Yield arrays as arrays of bytes without nulls; `row` is the number of the first text."""
    for column in filter(len, arrays):
        require(is_text(column.type), "{}: text must be a str, not {}", place(row), column.type)
        with errors_in(place(row)):
            for block in blocks_of(column, slice_bytes):
                if block.null_count and errors != "replace":
                    null = place(row + block.is_valid().index(False).as_py())
                    raise ValueError(f"{null}: text must be a str, not null; {WAY} an empty one")
                yield block.fill_null(b"") if block.null_count else block
                row += len(block)


def neighbors(blocks: Iterable[Any], slice_bytes: int) -> Iterator[list[Any]]:
    """Collect arrays of one type that fit into a slice: a task for each text would take longer than its words."""
    collected: list[Any] = []
    n_bytes = n_texts = 0
    for block in blocks:
        n_bytes += block.nbytes
        n_texts += len(block)
        is_more = n_bytes > slice_bytes or n_texts > slicing.SLICE_TEXTS
        if collected and (is_more or block.type != collected[0].type):
            yield collected
            collected = []
            n_bytes, n_texts = block.nbytes, len(block)
        collected.append(block)
    if collected:
        yield collected


def is_text(kind: Any) -> bool:
    """Tell if an Arrow type is one of strings or bytes."""
    return str(kind.value_type if str(kind).startswith("dictionary<") else kind) in LAYOUTS


def blocks_of(column: Any, slice_bytes: int) -> Iterator[Any]:
    """Yield an array as arrays of bytes. What has another layout than in C is copied, some texts at a time."""
    indices = getattr(column, "indices", None)  # of a dictionary
    words = column if indices is None else column.dictionary
    words = words.view(LAYOUTS[str(words.type)])
    # C trusts the places of texts, which other programs may have made. It checks UTF-8 itself, so these are bytes.
    words.validate(full=True)
    if indices is not None:
        words = words.cast("large_binary")
        lengths = list(lengths_of(words))
    elif str(words.type) in ("binary", "large_binary"):
        yield words
        return
    for start in range(0, len(column), slicing.SLICE_TEXTS):
        if indices is None:
            part = words.slice(start, slicing.SLICE_TEXTS)
            sizes = lengths_of(part)
        else:
            part = indices.slice(start, slicing.SLICE_TEXTS)
            sizes = [0 if number is None else lengths[number] for number in part.to_pylist()]
        ends = list(itertools.accumulate(sizes, initial=0))
        row = 0
        while row < len(part):
            stop = bisect.bisect_left(ends, ends[row] + slice_bytes, row + 1, len(part))
            rows = part.slice(row, stop - row)
            yield rows.cast("large_binary") if indices is None else words.take(rows)
            row = stop


def lengths_of(block: Any) -> Iterable[int]:
    """Return how many bytes each text of an array of bytes has. That of a null may be any."""
    if str(block.type) == "null":
        return [0] * len(block)
    if str(block.type) == "binary_view":  # the first of the four numbers of a view
        views = array("I")
        views.frombytes(block.buffers()[1][16 * block.offset : 16 * (block.offset + len(block))])
        return views[::4]
    places = places_of(block)
    return map(operator.sub, places[1:], places)


def places_of(block: Any) -> array[int]:
    """Return the places of the texts of an array of bytes, and the end of the last one."""
    places = array("i" if str(block.type) == "binary" else "q")
    first = block.offset * places.itemsize
    # No memoryview: before Python 3.12.4, one in the traceback of an error crashes the garbage collector.
    places.frombytes(block.buffers()[1][first : first + (len(block) + 1) * places.itemsize])
    return places


def cut(block: Any, slice_bytes: int) -> Iterator[Texts]:
    """Cut an array of bytes into texts of about slice_bytes."""
    data = block.buffers()[2] or b""
    ends = places_of(block)
    row = 0
    while row < len(block):
        start = ends[row]
        stop = bisect.bisect_left(ends, start + slice_bytes, row + 1, min(row + slicing.SLICE_TEXTS, len(block)))
        yield Texts(data[start : ends[stop]], array("Q", map((-start).__add__, ends[row + 1 : stop + 1])))
        row = stop


def kind_of(path: str, options: choices.Options) -> tuple[str, str]:
    """Return two endings of a path, or "" for each: one of KINDS, and that of a compressed file."""
    kinds = "|".join(map(re.escape, KINDS))
    match = re.fullmatch(rf"(?s).*?({kinds})?(\.gz|\.zst)?", path.lower())
    kind, packing = match.groups("") if match and slicing.is_data(path, options) else ("", "")
    return ("" if options.column is None and kind not in COLUMNAR else kind), packing


def check_files(paths: Iterable[str], options: choices.Options) -> None:
    """Raise an error for a missing package, or a file of columns without the right one, before any file is read."""
    for path in paths:
        kind, packing = kind_of(path, options)
        if packing == ".zst":
            package("zstandard", path)
        if kind in COLUMNAR:
            text = "{} is compressed: decompress it first, because {} files aren't read so"
            require(not packing, text, path, kind)
            inputs.check_file(path, FORMATS[kind])
            opened = open_parquet if kind == ".parquet" else open_arrow
            opened(path, options.column)


def slices_of_file(path: str, slice_bytes: int, options: choices.Options) -> Iterator[Any]:
    """Cut a file into slices."""
    kind, packing = kind_of(path, options)
    with errors_in(path):
        if kind == ".parquet":
            yield from slices_of_parquet(path, slice_bytes, options)
        elif kind in COLUMNAR:
            yield from slices_of_arrays(path, arrays_of_arrow(path, options.column), slice_bytes, options.errors)
        elif kind:
            slice_bytes = min(slice_bytes, LINES_BYTES)
            yield from slices_of_lines(path, unpacked(path, packing, slice_bytes), slice_bytes, options.column)
        else:
            start = 0
            blocks = checked_start(path, unpacked(path, packing, slicing.WINDOW_BYTES // 2))
            for data in slicing.cut_stream(blocks, options.pattern, options.special_tokens, slice_bytes, slice_bytes):
                yield slicing.Slice(path, start, start + len(data), (data,))
                start += len(data)


def checked_start(path: str, blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Pass the blocks of a file on, unless it begins like one that isn't read, such as an archive in a .gz file."""
    for number, block in enumerate(blocks):
        if number == 0:
            inputs.check_start(path, block[: inputs.START_BYTES])
        yield block


def unpacked(path: str, packing: str, n_bytes: int) -> Iterator[bytes]:
    """Yield the bytes of a file, unpacked. Zstandard may have any number of frames, and windows of any size."""
    is_stdin = path in inputs.STDIN
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


def open_arrow(path: str, column: str | None) -> Any:
    """Open a file of Arrow (of Feather, too) or a stream, of which one column is read.

    Raises ValueError without the column.
    """
    pyarrow, ipc = package("pyarrow", path), package("pyarrow.ipc", path)
    with errors_in(path):
        file = pyarrow.OSFile(path)  # not mapped into memory, where another program could change it
        start = file.read(6)
        is_stream = start[:4] == b"\xff\xff\xff\xff"
        require(is_stream or start == b"ARROW1", "{}: not a file of Arrow, or a stream", path)
        opened = ipc.open_stream if is_stream else ipc.open_file
        file.seek(0)
        schema = opened(file).schema
        check_column(path, schema, column)
        file.seek(0)
        return opened(file, options=ipc.IpcReadOptions(included_fields=[schema.get_field_index(column)]))


def arrays_of_arrow(path: str, column: str | None) -> Iterator[Any]:
    """Yield the arrays of a column of a file of Arrow, or a stream."""
    reader = open_arrow(path, column)
    if hasattr(reader, "get_batch"):
        reader = map(reader.get_batch, range(reader.num_record_batches))
    for batch in reader:
        yield batch.column(0)


def open_parquet(path: str, column: str | None, metadata: Any = None, dictionaries: bool = False) -> Any:
    """Open a Parquet file, of which blocks are read, not whole columns. Raises ValueError without the column."""
    parquet = package("pyarrow.parquet", path)
    with errors_in(path):
        file = parquet.ParquetFile(path, metadata=metadata, pre_buffer=False, buffer_size=1 << 20,
                                   page_checksum_verification=True, read_dictionary=[column] if dictionaries else None)
        check_column(path, file.schema_arrow, column)
        return file


def check_column(path: str, schema: Any, column: str | None) -> None:
    """Raise ValueError if a schema of Arrow has no such column of strings."""
    kinds = {field.name: field.type for field in schema}
    strings = [name for name, kind in kinds.items() if is_text(kind)]
    require(column in strings, "{}: {}", path, no_strings(column, strings, str(kinds.get(column, ""))))


def no_strings(column: str | None, strings: Iterable[str], kind: str = "") -> str:
    """Say which columns have texts, if one is missing or has values of another kind."""
    others = ", ".join(strings) or "none"
    found = f"column {column!r:.60} has {kind:.60}, not strings; columns of strings"
    text = found if kind else f"no column of strings {column!r:.60}; there are"
    return f"{text}: {others:.200} (choose with column=, or --column)"


def slices_of_parquet(path: str, slice_bytes: int, options: choices.Options) -> Iterator[Rows]:
    """Cut a Parquet file into slices: row groups, which workers read, and parts of large ones, which are read here."""
    column = options.column
    with open_parquet(path, column) as file:
        leaf = [file.schema.column(number).path for number in range(len(file.schema))].index(column)
        row = 0
        for numbers, size, n_rows in groups_of(file.metadata, leaf, slice_bytes):
            most = slicing.SLICE_TEXTS
            is_large = size > GROUP_BYTES or n_rows > most
            # A group of 8 MB has few rows of 1 KB or more: to look at its dictionary would take as long as to read it.
            if len(numbers) == 1 and n_rows * size > REPEATED_BYTES and (is_large or size < n_rows << 10):
                with errors_in(f"{path}[{row}] or later"):
                    longest = longest_repeated(path, column, file.metadata, numbers)
                most = min(most, max(1, BATCH_BYTES // longest))
            if is_large or n_rows > most:
                most = max(1, min(n_rows * slice_bytes // max(size, 1), most))
                batches = file.iter_batches(most, numbers, [column], use_threads=False)
                arrays = (batch.column(column) for batch in batches)
                yield from slices_of_arrays(path, arrays, slice_bytes, options.errors, row)
            elif n_rows:
                read = functools.partial(read_groups, path, column, file.metadata, numbers, row)
                yield Rows(functools.partial("{}[{}]".format, path), read, row)
            row += n_rows


def longest_repeated(path: str, column: str | None, metadata: Any, numbers: Sequence[int]) -> int:
    """Return how many bytes the longest text in the dictionary of a row group has, at least 1. Rows may repeat it."""
    with open_parquet(path, column, metadata, dictionaries=True) as file:
        # With the first row comes its dictionary, which has the texts of the whole group.
        texts = next(file.iter_batches(1, numbers, [column], use_threads=False)).column(column)
        words = getattr(texts, "dictionary", texts)
        return max(lengths_of(words.view(LAYOUTS[str(words.type)])), default=0) or 1


def groups_of(metadata: Any, leaf: int, slice_bytes: int) -> Iterator[tuple[list[int], int, int]]:
    """Yield the numbers of row groups that are read together, which fill a slice or are one, their bytes and rows."""
    numbers: list[int] = []
    size = n_rows = repeated = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        group_size = group.column(leaf).total_uncompressed_size
        most_repeated = group_size * group.num_rows  # if each row repeats one long text
        is_more = size + group_size > slice_bytes or repeated + most_repeated > REPEATED_BYTES
        if numbers and (is_more or n_rows + group.num_rows > slicing.SLICE_TEXTS):
            yield numbers, size, n_rows
            numbers = []
            size = n_rows = repeated = 0
        numbers.append(number)
        size += group_size
        n_rows += group.num_rows
        repeated += most_repeated
    if numbers:
        yield numbers, size, n_rows


def read_groups(path: str, column: Any, metadata: Any, numbers: Sequence[int], row: int, errors: str) -> Any:
    """Return the texts of row groups."""
    with errors_in(f"{path}[{row}] or later"), open_parquet(path, column, metadata) as file:
        texts = file.read_row_groups(numbers, [column], use_threads=False).column(column)
        array = texts.chunk(0) if texts.num_chunks == 1 else texts.combine_chunks()  # which copies even a single one
    [rows] = slices_of_arrays(path, [array], sys.maxsize, errors, row)
    return rows.texts


def slices_of_lines(path: str, blocks: Iterable[bytes], slice_bytes: int, column: str | None) -> Iterator[Rows]:
    """Cut JSON Lines into slices of whole lines, which workers read."""
    first = 1
    collected: list[bytes] = []
    n_bytes = 0
    for block in itertools.chain(without_mark(path, blocks), [b""]):  # an empty one at the end
        end = block.rfind(b"\n") + 1
        collected.append(block[:end])
        n_bytes += end
        if n_bytes and (not block or (end and n_bytes >= slice_bytes)):
            lines = b"".join(collected)
            place = functools.partial(place_of_line, path, lines, first)
            # first_text is the first line's number; place_of_line turns the n-th row after it into a line
            yield Rows(place, functools.partial(read_lines, path, lines, first, column), first)
            first += lines.count(b"\n")
            collected = []
            n_bytes = 0
        collected.append(block[end:])
        n_bytes += len(block) - end


def without_mark(path: str, blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Leave out a byte-order mark before JSON Lines. Raises ValueError for an array, which may be one long line."""
    blocks = iter(blocks)
    start = b""
    while len(start) < len(BOM) and (block := next(blocks, b"")):
        start += block
    start = start.removeprefix(BOM)
    text = "{}: a JSON array, not an object in each line; jq -c '.[]' converts it; {}"
    require(not start.lstrip().startswith(b"["), text, path, AS_TEXT)
    yield start
    yield from blocks


def place_of_line(path: str, lines: bytes, first: int, row: int) -> str:
    """Return the place of a row for an error; blank lines are no rows."""
    numbers = [number for number, line in enumerate(lines.split(b"\n"), first) if line.strip()]
    return f"{path}, line {numbers[row - first]}"


def read_lines(path: str, lines: bytes, first: int, column: Any, errors: str) -> Texts:
    """Return the texts of lines of JSON."""
    try:
        texts = map(operator.itemgetter(column), rows_of_lines(lines))
        return block_of(list(map(str.encode, texts)))
    except (ValueError, KeyError, TypeError, RecursionError):
        return read_each_line(path, lines, first, column, errors)


def rows_of_lines(lines: bytes) -> Iterable[Any]:
    """Parse lines of JSON, without a step of Python for each. It may refuse what text_of_line takes."""
    if fast_json is not plain_json:
        return map(fast_json, filter(None, lines.split(b"\n")))
    stripped = list(filter(None, map(bytes.strip, lines.split(b"\n"), itertools.repeat(b" \t\r"))))
    parts = (stripped[start : start + LINES_PARSED] for start in range(0, len(stripped), LINES_PARSED))
    return itertools.chain.from_iterable(map(rows_of_some, parts))


def rows_of_some(lines: Iterable[bytes]) -> list[Any]:
    """Parse some lines of JSON, without space around them, by the scanner of json."""
    texts = list(map(bytes.decode, lines))
    # For "", and for a letter, scan_json raises StopIteration, which ends map(): then there are fewer rows than lines.
    rows = list(map(scan_json, texts, itertools.repeat(0)))
    require([end for _, end in rows] == list(map(len, texts)), "not a value in each line")
    return [row for row, _ in rows]


def read_each_line(path: str, lines: bytes, first: int, column: Any, errors: str) -> Texts:
    """Return the texts of lines of JSON; errors have the file and the line."""
    texts = []
    for number, line in enumerate(lines.split(b"\n"), first):
        if line and not line.isspace():
            try:
                texts.append(text_of_line(line, column, errors))
            except UnicodeError as error:
                raise ValueError(f"{path}, line {number}: {error}; {WAY} U+FFFD") from None
            except (json.JSONDecodeError, RecursionError) as error:
                text = f"not JSON: {getattr(error, 'msg', error)} in column {getattr(error, 'colno', 1)}"
                if isinstance(error, ValueError) and line.rstrip().endswith((b"{", b"[", b",", b":")):
                    text = "an object in several lines; jq -c . writes each object in one line"
                raise ValueError(f"{path}, line {number}: {text}; {AS_TEXT}") from None
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
    return block_of(texts)


def text_of_line(line: bytes, column: Any, errors: str) -> bytes:
    """Return the text of a line of JSON."""
    try:
        row = fast_json(line)
    except (ValueError, RecursionError):  # orjson refuses halves of surrogates, and doesn't say where UTF-8 is invalid
        row = json.loads(line.decode("utf-8", errors))
    require(isinstance(row, dict), "not an object with the key {!r}, but {!r:.60}", column, row)
    text = row.get(column)
    if text is None and (errors == "replace" or column in row):
        require(errors == "replace", "text must be a str, not null; {} an empty one", WAY)
        return b""
    if not isinstance(text, str):
        strings = [name for name, value in row.items() if isinstance(value, str)]
        raise ValueError(no_strings(column, strings, type(text).__name__ if column in row else ""))
    return slicing.to_utf8(text, errors)
