"""The files or texts of a call, read and worked on by all cores.

Slices are in slicing.py. Workers read their parts of plain files, and small row groups of Parquet; the calling thread
reads pipes, compressed files, JSON Lines, files of Arrow and large row groups. Small files share a slice.

Gives: Corpus, with results() of any work on text, and count(); slices_of_texts(); refuse_useless_column(); BATCH_BYTES.
Uses: choices, arrow, counting, data, inputs, progress, slicing, errors, outputs, patterns.steps, workers.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import functools
import importlib.util
import itertools
import os
import stat
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import bpe
from bpe_more import choices, outputs, workers
from bpe_more.corpus import counting, inputs, progress, slicing
from bpe_more.corpus.counting import WordTable
from bpe_more.corpus.slicing import SmallFiles, TextRows, apply_to_slice
from bpe_more.errors import all_delayed, require, warn
from bpe_more.outputs import file_in_errors
from bpe_more.patterns.steps import Normalizer, after_form

T = TypeVar("T")


SLICE_BYTES_IN_C = 2 << 20  # how much text a thread counts or encodes at a time
BATCH_BYTES = 256 << 10  # the same for encode_batch, whose texts are already in memory
SLICE_FILES = 256  # how many small files a slice has at most


class Corpus:
    """The files or texts of a call. Raises ValueError or OSError if they can't be read.

    encode_corpus() in arrays.py keeps its totals here: n_documents, n_left_out, n_specials.
    """

    def __init__(self, paths: bpe.Paths, texts: bpe.Strings, options: choices.Options, begin: str | None = None,
                 end: str | None = None) -> None:
        self.options = options
        self.begin, self.end = begin, end  # the special tokens around each encoded document
        require((paths is None) != (texts is None), "pass either the path of a file or texts=..., and not both")
        self.paths = [] if paths is None else checked_paths(paths)
        require(not isinstance(texts, (str, bytes)), "texts must be an iterable of strings, not one string")
        if texts is not None and not isinstance(texts, (list, tuple)):
            inputs.check_texts(texts)
        # strings or columns of Arrow; a single column becomes a list of one
        self.texts: Iterable[Any] = () if texts is None else [texts] if is_read_from_arrow(texts) else texts
        self.kinds = [inputs.kind_of(path, options) for path in self.paths]  # (format, compression): each may be ""
        if any(map(any, self.kinds)):
            with all_delayed():  # signals: none may interrupt an import
                from bpe_more.corpus import data  # only now: few calls need it
            data.check_files(self.paths, options)
        refuse_useless_column(self.paths, options)
        # If C is built only for learning, for which find_engine()[1] is the reason, Python splits text by any pattern.
        if options.engine == "c" and not choices.find_engine()[1]:
            lacks = choices.lacking_in_c(options.pattern)
            require(not lacks, f"engine 'c' can't be used: C scans no pattern with {lacks}; engine 'auto' does")
        # 0 for pipes, files in /proc, empty files, and files whose size isn't that of their text (.gz, .parquet)
        has_size = [not any(kind) and path not in outputs.STDIN for path, kind in zip(self.paths, self.kinds)]
        self.sizes = [os.stat(path).st_size if known else 0 for path, known in zip(self.paths, has_size)]
        self.n_bytes = sum(self.sizes) if all(self.sizes) else 0  # 0: unknown, as for texts
        self.bytes_read = 0
        self.n_slices = 0  # how many have been read; 0 means that there was no text
        self.n_begun = 0  # files that slices() has begun
        self.n_documents = 0  # how many have been encoded: files of text, rows and texts
        self.counted: Sequence[str] = ()  # special tokens that encode_corpus counts in text
        self.n_specials = 0
        self.n_left_out = 0  # bytes without a token, which encode_corpus has left out

    def results(self, work: Callable[[Sequence[bytes]], T], in_threads: bool, label: str = "", slice_bytes: int = 0,
            most_workers: int = workers.MOST_WORKERS) -> Generator[tuple[Any, T], None, None]:
        """Yield (slice, work(its texts)) in order, from threads or processes."""

        def describe(_: int) -> tuple[str, float, float, str]:  # the number of slices says nothing: their sizes differ
            n_files = len(self.paths)
            text = f"{label}, file {self.n_begun:,} of {n_files:,}" if n_files > 1 and not self.n_bytes else label
            return text, self.bytes_read / 1e6, self.n_bytes / 1e6, " MB"

        task = functools.partial(apply_to_slice, work, self.options.errors)
        slice_bytes = slice_bytes or (SLICE_BYTES_IN_C if in_threads else slicing.SLICE_BYTES)
        most_workers = min(self.options.workers or most_workers, most_workers)  # a user can choose fewer
        taken: collections.deque[Any] = collections.deque()  # not itertools.tee(), which keeps up to 57 slices

        def taking() -> Iterator[Any]:
            for part in self.slices(slice_bytes):
                taken.append(part)
                yield part

        results = workers.in_order(task, taking(), most_workers, in_threads)
        # After Ctrl-C, a notebook keeps the traceback, and with it all generators. Unless these are closed, here
        # and by callers of results(), the workers live on.
        with contextlib.closing(results):
            marked: list[str] = []
            for n_bytes, result, with_mark in progress.with_progress(results, self.options.progress, describe):
                self.bytes_read += n_bytes
                self.n_slices += 1
                marked += with_mark
                yield taken.popleft(), result
        if marked:
            others = f" (and that of {bpe.plural(len(marked) - 1, 'other file')})" if len(marked) > 1 else ""
            text = f"{marked[0]}: the byte-order mark at byte 0{others} is text, and becomes a word or a part of one"
            warn(f"{text}; to leave it out: tail -c +4, or texts= of a file opened with encoding='utf-8-sig'")

    def slices(self, slice_bytes: int = slicing.SLICE_BYTES) -> Iterator[Any]:
        """Cut files, and collect texts, into slices of about slice_bytes; collect small files up to an eighth of it."""
        yield from slices_of_texts(self.texts, slice_bytes, self.options.errors)
        small = slice_bytes // 8  # smaller files share slices of this size: fewer tasks, and none that is large
        for are_small, group in itertools.groupby(self.begun_files(), lambda file: 0 < file[1] < small):
            if are_small:  # without borders: encode_corpus puts begin and end around each of these texts itself
                yield from slices_of_small_files((path for path, *_ in group), small)
                continue
            for path, size, (kind, packing) in group:
                is_document = not kind  # else it has rows, and each of them is one
                if is_document and self.begin is not None:
                    yield slicing.FILE_BEGINS
                slices_of = slices_of_plain_file if size else slices_of_pipe
                if kind or packing:
                    from bpe_more.corpus import data

                    slices_of = data.slices_of_file
                with file_in_errors(path):
                    yield from slices_of(path, slice_bytes, self.options)
                if is_document and self.end is not None:
                    yield slicing.FILE_ENDS

    def begun_files(self) -> Iterator[tuple[str, int, tuple[str, str]]]:
        """Yield the files with their sizes and kinds; count them, for the progress line."""
        for file in zip(self.paths, self.sizes, self.kinds):
            self.n_begun += 1
            yield file

    def count(self) -> Any:  # in C, a table with the methods of a WordTable
        """Count words in a table of the C engine, or in a WordTable if C can't be used."""
        options = self.options
        form, pattern = after_form(options.pattern)  # of ("NFC", "qwen2"), "NFC" and "qwen2"
        counts = WordTable()  # what Python counts
        engine = choices.scanning_engine(options._replace(pattern=pattern))
        if engine:
            table = engine.words(options.special_tokens, pattern)
            # one thread for each 16 MB of text, or for each core if the size isn't known: each thread has its
            # own table, and all tables are merged at the end. in_order() starts no more threads than there are cores.
            most_workers = self.n_bytes // (8 * SLICE_BYTES_IN_C) + 1 if self.n_bytes else workers.MOST_WORKERS
            # one thread collects texts; the smaller their slices are, the sooner the others begin
            slice_bytes = SLICE_BYTES_IN_C if self.paths else slicing.SLICE_BYTES // 2
            scan = table.scan_all
            if form:
                normalizer = Normalizer(form, options.special_tokens)
                scan = functools.partial(counting.scan_normalized, table, normalizer, options)
            results = self.results(scan, True, "counting words", slice_bytes, most_workers)
        else:
            results = self.results(functools.partial(counting.count_texts, options=options), False, "counting words")
        with contextlib.closing(results):
            for _, more in results:
                counts.update(more or {})  # None from C, which has counted in its table
        if engine and counts:
            table.add(counts.items())
        return table if engine else counts


def checked_paths(paths: Any) -> list[str]:
    """Return the paths of files as a list; refuse those that can't be read, before any is."""
    names = list(map(os.fsdecode, [paths] if isinstance(paths, (str, bytes, os.PathLike)) else paths))
    require(names, "no file: the list of paths is empty")
    for path in names:
        inputs.check_path(path)
        try:
            is_folder = path not in outputs.STDIN and stat.S_ISDIR(os.stat(path).st_mode)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENAMETOOLONG):
                error.strerror = f"{error.strerror} (to pass strings instead of files: texts=[...])"
                error.filename = f"{error.filename:.100}"
            raise
        if is_folder:
            raise ValueError(f"{path} is a folder; name its files: glob.glob({inputs.glob_for(path)!r})")
    return names


def refuse_useless_column(paths: Iterable[str], options: choices.Options, is_given: bool = False) -> None:
    """Raise an error for a column that would be ignored, because no file has columns.

    The default column may be ignored, unless the command line names it (is_given).
    """
    if is_given or options.column not in (None, choices.Options().column):
        has_columns = any(inputs.kind_of(path, options)[0] for path in paths)
        text = "no input has a column {!r:.60}: names must end in {}; standard input is read with --as jsonl"
        require(has_columns, text, options.column, ", ".join(inputs.KINDS))


def is_read_from_arrow(texts: Any) -> bool:
    """Tell if texts are a column in Arrow's memory.

    A Series of Python objects isn't, nor any Series without pyarrow: iterating over it yields strings as well.
    """
    if not inputs.is_arrow(texts):
        return False
    if not hasattr(type(texts), "dtype"):  # not a Series
        return True
    storage = getattr(texts.dtype, "storage", str(texts.dtype))  # "python" for the dtype string[python] of pandas
    return storage not in ("object", "python") and importlib.util.find_spec("pyarrow") is not None


def slices_of_plain_file(path: str, slice_bytes: int, options: choices.Options) -> Iterator[slicing.Slice]:
    """Cut a file into slices, which workers read."""
    size = os.stat(path).st_size
    start = 0
    window_start = slice_bytes
    with open(path, "rb") as file:
        while window_start + slicing.WINDOW_BYTES < size:
            file.seek(window_start)
            if cut := slicing.last_cut(file.read(slicing.WINDOW_BYTES), options.pattern, options.special_tokens):
                yield slicing.Slice(path, start, window_start + cut)
                start = window_start + cut
                window_start = start + slice_bytes
            else:
                window_start += slicing.WINDOW_BYTES // 2  # windows overlap, because last_cut avoids their ends
    yield slicing.Slice(path, start, size)


def slices_of_pipe(path: str, slice_bytes: int, options: choices.Options) -> Iterator[slicing.Slice]:
    """Cut standard input, or another file without a size, into slices; the calling thread reads them."""
    # column=None, as with --as text, reads JSON as plain text
    check = inputs.check_start if options.column is None else inputs.check_plain
    is_stdin = path in outputs.STDIN
    with open(0 if is_stdin else path, "rb", closefd=not is_stdin) as file:
        blocks = iter(functools.partial(file.read, slicing.WINDOW_BYTES // 2), b"")
        yield from slicing.slices_of_blocks(path, inputs.checked(path, blocks, check), slice_bytes, options)


def slices_of_small_files(paths: Iterable[str], slice_bytes: int) -> Iterator[SmallFiles]:
    """Collect small files into slices."""
    files: list[slicing.Slice] = []
    n_bytes = 0
    for path in paths:
        files.append(slicing.Slice(path, 0, os.stat(path).st_size))
        n_bytes += files[-1].end
        if n_bytes >= slice_bytes or len(files) == SLICE_FILES:
            yield SmallFiles(files)
            files = []
            n_bytes = 0
    if files:
        yield SmallFiles(files)


def slices_of_texts(texts: Iterable[Any], slice_bytes: int, errors: str) -> Iterator[Any]:
    """Collect texts into slices; cut columns of Arrow into slices."""
    encode: Callable[[str], bytes] = str.encode  # faster than a call of to_utf8
    if errors == "replace":
        encode = functools.partial(slicing.to_utf8, errors=errors)
    place = "texts[{}]".format
    collected: list[bytes] = []
    n_bytes = 0
    if isinstance(texts, Mapping):
        keys = ", ".join(map(repr, texts))
        raise TypeError(f"texts must be an iterable of strings, not a {type(texts).__name__} with the keys {keys:.200}")
    texts = iter(texts)
    for number, text in enumerate(texts):
        try:
            utf8 = encode(text)
        except UnicodeEncodeError as error:
            raise ValueError(f"{place(number)}: {error}; {slicing.REPLACE_MAKES_IT} U+FFFD") from None
        except TypeError:
            if number == 0 and inputs.is_arrow(text):
                with all_delayed():  # signals: none may interrupt an import
                    from bpe_more.corpus import arrow  # only now: few calls need it
                yield from arrow.slices_of_arrow(itertools.chain([text], texts), slice_bytes, errors)
                return
            raise ValueError(f"{place(number)}: text must be a str, not {type(text).__name__}") from None
        collected.append(utf8)
        n_bytes += len(utf8)
        if n_bytes >= slice_bytes or len(collected) == slicing.SLICE_TEXTS:
            yield TextRows(place, number + 1 - len(collected), collected, n_bytes)
            collected = []
            n_bytes = 0
    if collected:
        yield TextRows(place, number + 1 - len(collected), collected, n_bytes)
