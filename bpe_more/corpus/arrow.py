"""Columns of strings in Arrow's memory, in files of Arrow, and in Parquet.

In Arrow's memory, a column of strings is a block of UTF-8, and the offsets at which texts end. The C engine takes
the same layout, so it reads them in place. Nothing may change it meanwhile: C checks it, and then relies on it.

Gives: slices_of_arrow() for columns in memory, arrays_of_arrow() and slices_of_arrays() for those of a file,
slices_of_parquet(); open_arrow() and open_parquet(), which refuse a file without the column; wrong_column(), what
their error says; errors_in(). pyarrow is imported if needed.
Uses: choices, inputs, slicing, errors.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import itertools
import operator
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from bpe_more import choices
from bpe_more.corpus import inputs, slicing
from bpe_more.corpus.slicing import REPLACE_MAKES_IT, TextRows, Texts
from bpe_more.errors import package, require

# the types of text in Arrow, and those of bytes with the same layout
LAYOUTS = {"string": "binary", "large_string": "large_binary", "string_view": "binary_view", "null": "null"}
LAYOUTS |= {layout: layout for layout in LAYOUTS.values()}
GROUP_BYTES = 8 << 20  # a worker reads row groups of Parquet up to this size; larger ones are read in parts
# A row group that repeats long texts is small in the file, which has each of them once, in a dictionary. If its rows
# could expand to more than REPEATED_BYTES, the longest text in the dictionary is looked up, ...
REPEATED_BYTES = 128 << 20
BATCH_BYTES = 16 << 20  # ... and at most this much text is read at a time


@contextlib.contextmanager
def errors_in(place: str) -> Iterator[None]:
    """Put a place before errors of other packages. Those of the system, which have an errno, stay as they are."""
    try:
        yield
    except (MemoryError, ImportError):
        raise
    except Exception as error:
        is_ours = type(error) is ValueError  # pyarrow raises subclasses
        if is_ours or getattr(error, "errno", None):
            raise
        line = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"{place}: {line:.200}") from None


def slices_of_arrow(columns: Iterable[Any], slice_bytes: int, errors: str) -> Iterator[TextRows]:
    """Cut columns of Arrow, and tables and streams with one column, into slices."""
    arrays = itertools.chain.from_iterable(map(arrays_of, columns))
    return slices_of_arrays("texts", arrays, slice_bytes, errors)


def arrays_of(column: Any) -> Iterator[Any]:
    """Yield the arrays of a column, a table or a stream."""
    pyarrow = package("pyarrow", "text in Arrow's memory")
    require(inputs.is_arrow(column), "after a column of Arrow, texts has a {}", type(column).__name__)
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


def slices_of_arrays(name: str, arrays: Iterable[Any], slice_bytes: int, errors: str,
                     row: int = 0) -> Iterator[TextRows]:
    """Cut arrays into slices; `row` is the number of the first text."""
    concat_arrays = package("pyarrow", "text in Arrow's memory").concat_arrays
    place = functools.partial("{}[{}]".format, name)
    for group in grouped(checked_arrays(place, arrays, slice_bytes, errors, row), slice_bytes):
        for texts in cut(group[0] if len(group) == 1 else concat_arrays(group), slice_bytes):
            yield TextRows(place, row, texts)
            row += len(texts)


def checked_arrays(place: Callable[[int], str], arrays: Iterable[Any], slice_bytes: int, errors: str,
                   row: int) -> Iterator[Any]:
    """Yield arrays as arrays of bytes without nulls; `row` is the number of the first text."""
    for strings in filter(len, arrays):
        require(is_text(strings.type), "{}: text must be a str, not {}", place(row), strings.type)
        with errors_in(place(row)):
            for part in arrays_of_bytes(strings, slice_bytes):
                if part.null_count and errors != "replace":
                    null = place(row + part.is_valid().index(False).as_py())
                    raise ValueError(f"{null}: text must be a str, not null; {REPLACE_MAKES_IT} an empty one")
                yield part.fill_null(b"") if part.null_count else part
                row += len(part)


def grouped(arrays: Iterable[Any], slice_bytes: int) -> Iterator[list[Any]]:
    """Collect arrays of one type until they fill a slice.

    Arrays may have a single text, and a task for each would take longer than counting its words.
    """
    collected: list[Any] = []
    n_bytes = n_texts = 0
    for part in arrays:
        n_bytes += part.nbytes
        n_texts += len(part)
        is_more = n_bytes > slice_bytes or n_texts > slicing.SLICE_TEXTS
        if collected and (is_more or part.type != collected[0].type):
            yield collected
            collected = []
            n_bytes, n_texts = part.nbytes, len(part)
        collected.append(part)
    if collected:
        yield collected


def is_text(kind: Any) -> bool:
    """Tell if an Arrow type is one of strings or bytes."""
    return str(kind.value_type if str(kind).startswith("dictionary<") else kind) in LAYOUTS


def arrays_of_bytes(strings: Any, slice_bytes: int) -> Iterator[Any]:
    """Yield an array as arrays of bytes. Views and dictionaries, whose layout isn't C's, are copied in parts."""
    indices = getattr(strings, "indices", None)  # of a dictionary
    values = strings if indices is None else strings.dictionary
    values = values.view(LAYOUTS[str(values.type)])
    # C trusts the offsets, which other programs may have made, so validate() checks them. In strings,
    # it would also check UTF-8, which C does itself: hence the view as bytes.
    values.validate(full=True)
    if indices is not None:
        values = values.cast("large_binary")  # its offsets have 64 bits, so no part is too large
        lengths = list(lengths_of(values))

        def lengths_of_rows(rows: Any) -> Iterable[int]:
            return [0 if number is None else lengths[number] for number in rows.to_pylist()]

        yield from copied(indices, lengths_of_rows, values.take, slice_bytes)
    elif str(values.type) in ("binary", "large_binary"):
        yield values
    else:
        yield from copied(values, lengths_of, operator.methodcaller("cast", "large_binary"), slice_bytes)


def copied(rows: Any, lengths_of_rows: Callable[[Any], Iterable[int]], copy: Callable[[Any], Any],
           slice_bytes: int) -> Iterator[Any]:
    """Yield copies of rows, of about slice_bytes each: rows that repeat a long text may not fit in memory."""
    for start in range(0, len(rows), slicing.SLICE_TEXTS):
        part = rows.slice(start, slicing.SLICE_TEXTS)
        ends = list(itertools.accumulate(lengths_of_rows(part), initial=0))
        for first, stop in ranges_of(ends, slice_bytes):
            yield copy(part.slice(first, stop - first))


def ranges_of(ends: Sequence[int], slice_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield (first row, the row after the last one) of parts of about slice_bytes; row n ends at ends[n + 1]."""
    row, n_rows = 0, len(ends) - 1
    while row < n_rows:
        last = min(row + slicing.SLICE_TEXTS, n_rows)
        stop = bisect.bisect_left(ends, ends[row] + slice_bytes, row + 1, last)  # `last` if they have fewer bytes
        yield row, stop
        row = stop


def lengths_of(values: Any) -> Iterable[int]:
    """Return how many bytes each text of an array of bytes has; for a null, any number."""
    if str(values.type) == "null":
        return [0] * len(values)
    if str(values.type) == "binary_view":  # the first of the four numbers of a view
        views = array("I")
        views.frombytes(values.buffers()[1][16 * values.offset : 16 * (values.offset + len(values))])
        return views[::4]
    offsets = offsets_of(values)
    return map(operator.sub, offsets[1:], offsets)


def offsets_of(values: Any) -> array[int]:
    """Return the offsets at which the texts of an array of bytes begin, and the end of the last one."""
    offsets = array("i" if str(values.type) == "binary" else "q")
    first = values.offset * offsets.itemsize
    # No memoryview: before Python 3.12.4, one in the traceback of an error crashes the garbage collector.
    offsets.frombytes(values.buffers()[1][first : first + (len(values) + 1) * offsets.itemsize])
    return offsets


def cut(values: Any, slice_bytes: int) -> Iterator[Texts]:
    """Cut an array of bytes into texts of about slice_bytes."""
    data = values.buffers()[2] or b""
    ends = offsets_of(values)
    for row, stop in ranges_of(ends, slice_bytes):
        start = ends[row]
        ends_of_texts = map(operator.sub, ends[row + 1 : stop + 1], itertools.repeat(start))
        yield Texts(data[start : ends[stop]], array("Q", ends_of_texts))


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
    """Open a Parquet file, to be read in blocks of 1 MB, not a column at once. Raises ValueError without the column."""
    parquet = package("pyarrow.parquet", path)
    with errors_in(path):
        file = parquet.ParquetFile(path, metadata=metadata, pre_buffer=False, buffer_size=1 << 20,
                                   page_checksum_verification=True, read_dictionary=[column] if dictionaries else None)
        check_column(path, file.schema_arrow, column)
        return file


def check_column(path: str, schema: Any, column: str | None) -> None:
    """Raise ValueError if a schema of Arrow has no such column of strings."""
    n_columns = sum(field.name == column for field in schema)
    require(n_columns < 2, "{}: {} columns have the name {!r:.60}", path, n_columns, column)
    kinds = {field.name: field.type for field in schema}
    strings = [name for name, kind in kinds.items() if is_text(kind)]
    require(column in strings, "{}: {}", path, wrong_column(column, strings, str(kinds.get(column, ""))))


def wrong_column(column: str | None, strings: Iterable[str], kind: str = "") -> str:
    """Say which columns have texts, if one is missing or has values of another kind."""
    others = ", ".join(strings) or "none"
    found = f"column {column!r:.60} has {kind:.60}, not strings; columns of strings"
    text = found if kind else f"no column of strings {column!r:.60}; there are"
    return f"{text}: {others:.200} (choose with column=, or --column)"


class Groups(NamedTuple):
    """Row groups of Parquet that are read together."""

    numbers: list[int]
    size: int  # bytes of the column in the file, unpacked
    n_rows: int
    most_text: int  # bytes, if each row of a group repeats one long text, which is in the file once


def slices_of_parquet(path: str, slice_bytes: int, options: choices.Options) -> Iterator[TextRows]:
    """Cut a Parquet file into slices: row groups, which workers read, and parts of large ones, which are read here."""
    column = options.column
    with open_parquet(path, column) as file:
        # the column's number in metadata, which counts the leaves of nested columns: schema_arrow has other numbers
        leaf = [file.schema.column(number).path for number in range(len(file.schema))].index(column)
        row = 0
        for groups in groups_of(file.metadata, leaf, slice_bytes):
            with errors_in(f"{path}[{row}] or later"):
                max_rows = rows_at_a_time(path, column, file.metadata, groups)
            if groups.size <= GROUP_BYTES and groups.n_rows <= max_rows:
                read = functools.partial(read_groups, path, column, file.metadata, groups.numbers, row, options.errors)
                yield TextRows(functools.partial("{}[{}]".format, path), row, read)
            else:
                rows_of_slice = groups.n_rows * slice_bytes // max(groups.size, 1)  # on average
                max_rows = max(1, min(rows_of_slice, max_rows))
                batches = file.iter_batches(max_rows, groups.numbers, [column], use_threads=False)
                arrays = (batch.column(column) for batch in batches)
                yield from slices_of_arrays(path, arrays, slice_bytes, options.errors, row)
            row += groups.n_rows


def groups_of(metadata: Any, leaf: int, slice_bytes: int) -> Iterator[Groups]:
    """Yield as many row groups at a time as fit in a slice, but at least one; leave out those without rows."""
    collected = Groups([], 0, 0, 0)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if not group.num_rows:
            continue
        size = group.column(leaf).total_uncompressed_size
        one = Groups([number], size, group.num_rows, size * group.num_rows)
        both = Groups(*map(operator.add, collected, one))
        fits = both.size <= slice_bytes and both.n_rows <= slicing.SLICE_TEXTS and both.most_text <= REPEATED_BYTES
        if collected.numbers and not fits:
            yield collected
            both = one
        collected = both
    if collected.numbers:
        yield collected


def rows_at_a_time(path: str, column: str | None, metadata: Any, groups: Groups) -> int:
    """Return how many rows of row groups may be read at a time, so that text that they repeat fits in memory.

    It is at most SLICE_TEXTS, which is the most that a slice may have.
    """
    is_large = groups.size > GROUP_BYTES or groups.n_rows > slicing.SLICE_TEXTS
    # If the rows of a small group have 1 KB or more each in the file, looking up its longest text takes as long as
    # reading it. So such a group is read at once, however much memory that takes.
    pays_off = is_large or groups.size < groups.n_rows << 10
    if groups.most_text <= REPEATED_BYTES or not pays_off:
        return slicing.SLICE_TEXTS
    with open_parquet(path, column, metadata, dictionaries=True) as file:
        # With the first row comes its dictionary, which has the texts of the whole group.
        texts = next(file.iter_batches(1, groups.numbers, [column], use_threads=False)).column(column)
    values = getattr(texts, "dictionary", texts)
    longest = max(lengths_of(values.view(LAYOUTS[str(values.type)])), default=0) or 1
    return max(1, min(BATCH_BYTES // longest, slicing.SLICE_TEXTS))


def read_groups(path: str, column: Any, metadata: Any, numbers: Sequence[int], row: int, errors: str) -> Any:
    """Return the texts of row groups."""
    with errors_in(f"{path}[{row}] or later"), open_parquet(path, column, metadata) as file:
        texts = file.read_row_groups(numbers, [column], use_threads=False).column(column)
        # combine_chunks() copies even a single chunk
        strings = texts.chunk(0) if texts.num_chunks == 1 else texts.combine_chunks()
    # one slice: groups that workers read have at most SLICE_TEXTS rows
    [rows] = slices_of_arrays(path, [strings], sys.maxsize, errors, row)
    return rows.texts
