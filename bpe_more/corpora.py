"""Counting and encoding files, pipes and texts on all cores, with progress; Ctrl-C ends it at any time.

What a slice is, and where text is cut, is in bpe.py. Here, workers read their parts of files themselves, C counts and
encodes in threads, and small files share a slice.
"""

from __future__ import annotations

import codecs
import collections
import contextlib
import errno
import functools
import importlib.util
import itertools
import operator
import os
import re
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import bpe
from bpe_more import choices, inputs, slicing, steps, workers
from bpe_more.checks import plural, require, warn
from bpe_more.outputs import check_outputs, file_in_errors, new_files
from bpe_more.signals import all_delayed
from bpe_more.steps import Normalizer, after_form

if TYPE_CHECKING:
    pass

T = TypeVar("T")

SLICE_BYTES_IN_C = 2 << 20  # how much text a thread counts or encodes at a time
BATCH_BYTES = 256 << 10  # the same for encode_batch, whose texts are already in memory
LONG_TEXT = 1 << 20  # characters of a text from which on encode() uses all cores
PART_OF_TEXT, WINDOW_OF_TEXT = 512 << 10, 4 << 10  # of its parts, and of text in which a place to cut is looked for
MOST_SPECIALS = 1000  # which are looked for at each place; with more of them, a long text is one part
SLICE_FILES = 256  # how many small files a slice has at most
# workers.MOST_WORKERS is the most, also for threads and on all systems (but in a container with a quota of more cores,
# count() may start more threads).


class SmallFiles(tuple[slicing.Slice, ...]):
    """A slice of small files, each a text, which a worker reads."""


class Border:
    """The beginning or the end of a file, as a slice without text: encode_corpus writes `begin` or `end`."""

    def __init__(self, is_end: bool) -> None:
        self.is_end = is_end

    def run(self, work: Callable[[Sequence[bytes]], T], errors: str) -> tuple[int, T]:
        """Return how many bytes the texts have, and work(texts): there are none."""
        return 0, work(())


class Corpus:
    """The files or texts of a call. In a slice of a file, texts are empty until a worker reads them.

    Raises ValueError or OSError if they can't be read.
    """

    def __init__(self, paths: bpe.Paths, texts: bpe.Strings, options: choices.Options, begin: str | None = None,
                 end: str | None = None) -> None:
        self.paths: list[str]
        self.texts: Iterable[Any]
        if paths is not None:
            paths = [paths] if isinstance(paths, (str, bytes, os.PathLike)) else list(paths)
            for path in map(os.fsdecode, paths):
                inputs.check_path(path)
        elif not isinstance(texts, (list, tuple)):
            inputs.check_texts(texts)
        try:
            self.take_input(paths, texts, options)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENAMETOOLONG):
                error.strerror = f"{error.strerror} (to pass strings instead of files: texts=[...])"
                error.filename = f"{error.filename:.100}"
            raise
        # `texts=dataset.data` is a datasets.table; select() and shuffle() don't change it
        way = 'pass its dataset.with_format("arrow").iter(1000)'
        require(type(texts).__module__ != "datasets.table", "a dataset's table may have other rows; {}", way)
        # a Series (take_input has put all else of Arrow into a list), whose strings may be in Arrow's memory
        if texts is self.texts and slicing.is_arrow(texts):
            dtype: Any = getattr(texts, "dtype", None)
            storage = getattr(dtype, "storage", str(dtype))
            if storage not in ("object", "python") and importlib.util.find_spec("pyarrow"):
                self.texts = [texts]
        if any(slicing.is_data(path, options) for path in self.paths):
            with all_delayed():
                from bpe_more import data  # only now: few calls need it
            data.check_files(self.paths, options)
        check_column(self.paths, options)
        if options.engine == "c" and not choices.find_engine()[1]:  # else C only learns
            lacks = lacking_in_c(options.pattern)
            require(not lacks, f"engine 'c' can't be used: C scans no pattern with {lacks}; engine 'auto' does")
        # 0 for pipes, files in /proc, empty files, and files that have another size than their text
        no_size = [path == "-" or slicing.is_data(path, options) for path in self.paths]
        self.sizes = [0 if none else os.stat(path).st_size for path, none in zip(self.paths, no_size)]
        self.n_bytes = sum(self.sizes) if all(self.sizes) else 0  # 0: unknown, as for texts
        self.begin, self.end = begin, end  # the special tokens around each encoded document
        self.bytes_read = 0
        self.n_begun = 0  # files of which a slice has been read
        self.n_documents = 0  # how many have been encoded: files of text, rows and texts
        self.counted: Sequence[str] = ()  # special tokens that encode_corpus counts in text
        self.n_specials = 0
        self.n_left_out = 0  # bytes without a token, which encode_corpus has left out

    def take_input(self, paths: bpe.Paths, texts: bpe.Strings, options: choices.Options) -> None:
        """Check that paths or texts can be read, before any is."""
        require((paths is None) != (texts is None), "pass either the path of a file or texts=..., and not both")
        require(not isinstance(texts, (str, bytes)), "texts must be an iterable of strings, not one string")
        self.paths = []
        if paths is not None:
            listed = [paths] if isinstance(paths, (str, bytes, os.PathLike)) else paths
            self.paths = [os.fsdecode(path) for path in listed]
            require(self.paths, "no file: the list of paths is empty")
        for path in self.paths:
            if path not in inputs.STDIN:
                os.stat(path)  # a missing file is an error before the first one is read
            if os.path.isdir(path):
                raise ValueError(f"{path} is a folder; name its files: glob.glob({inputs.files_in(path)!r})")
        self.texts = () if texts is None else texts
        if slicing.is_arrow(texts) and not hasattr(type(texts), "dtype"):  # a Series also yields strings
            self.texts = [texts]
        self.options = options
        self.n_slices = 0  # how many have been read; 0 means that there was no text

    def run(self, work: Callable[[Sequence[bytes]], T], in_threads: bool, label: str = "", slice_bytes: int = 0,
            most_workers: int = workers.MOST_WORKERS) -> Generator[tuple[Any, T], None, None]:
        """Yield (slice, work(its texts)) in order, from threads or processes."""

        def describe(_: int) -> str:  # the number of slices says nothing: their sizes differ
            share = f" ({self.bytes_read / self.n_bytes:.0%})" if self.n_bytes else ""
            if not share and len(self.paths) > 1:
                share = f", file {self.n_begun:,} of {len(self.paths):,}"
            return f"{label}: {self.bytes_read / 1e6:,.0f} MB{share}"

        task = functools.partial(run_task, work, self.options.errors)
        slice_bytes = slice_bytes or (SLICE_BYTES_IN_C if in_threads else slicing.SLICE_BYTES)
        most_workers = min(self.options.workers or most_workers, most_workers)
        results = workers.run_tasks(task, self.slices(slice_bytes), in_threads, most_workers)
        # After Ctrl-C, a notebook keeps the traceback, and with it all generators. The pool of workers
        # would live on if they weren't closed, here and by those that call run().
        with contextlib.closing(results):
            marked: list[str] = []
            for part, (n_bytes, result, more) in with_progress(results, self.options.progress, describe):
                self.bytes_read += n_bytes
                self.n_slices += 1
                marked += more
                yield part, result
        if marked:
            others = f" (and that of {plural(len(marked) - 1, 'other file')})" if len(marked) > 1 else ""
            text = f"{marked[0]}: the byte-order mark at byte 0{others} is text, and becomes a word or a part of one"
            warn(f"{text}; to leave it out: tail -c +4, or texts= of a file opened with encoding='utf-8-sig'")

    def slices(self, slice_bytes: int = slicing.SLICE_BYTES) -> Iterator[Any]:
        """Cut files into slices of about slice_bytes; collect texts into such slices, small files into an eighth."""
        yield from slices_of_texts(self.texts, slice_bytes, self.options.errors)
        small = slice_bytes // 8  # a task takes time to be handed out, and a large one delays others
        for are_small, group in itertools.groupby(self.begun_files(), lambda pair: 0 < pair[1] < small):
            if are_small:
                yield from slices_of_small_files((path for path, _ in group), small)
                continue
            for path, size in group:
                is_document = not self.has_rows(path)
                if is_document and self.begin is not None:
                    yield Border(False)
                if slicing.is_data(path, self.options):
                    from bpe_more import data

                    yield from data.slices_of_file(path, slice_bytes, self.options)
                else:
                    slices_of = slices_of_file if size else slices_of_pipe
                    with file_in_errors(path):
                        yield from slices_of(path, slice_bytes, self.options)
                if is_document and self.end is not None:
                    yield Border(True)

    def begun_files(self) -> Iterator[tuple[str, int]]:
        """Yield the files with their sizes; count them, for the progress line."""
        for pair in zip(self.paths, self.sizes):
            self.n_begun += 1
            yield pair

    def has_rows(self, path: str) -> bool:
        """Tell if a file has rows, each of which is a document."""
        if not slicing.is_data(path, self.options):
            return False
        from bpe_more import data

        return bool(data.kind_of(path, self.options)[0])

    def count(self) -> Any:  # in C, a table with the methods of a WordTable
        """Count words in a table of the C engine, or in a WordTable if C can't be used."""
        options = self.options
        form, pattern = after_form(options.pattern)
        counts = WordTable()  # what Python counts
        engine = scanning_engine(options._replace(pattern=pattern))
        if engine:
            table = engine.words(options.special_tokens, pattern)
            # one thread for each 16 MB of text, or for each core if the size isn't known: each thread has its
            # own table, and all tables are merged at the end
            most_workers = self.n_bytes // (8 * SLICE_BYTES_IN_C) + 1 if self.n_bytes else workers.MOST_WORKERS
            # one thread collects texts; the smaller their slices are, the sooner the others begin
            slice_bytes = SLICE_BYTES_IN_C if self.paths else slicing.SLICE_BYTES // 2
            normalizer = Normalizer(form, options.special_tokens) if form else None
            scan = functools.partial(scan_normalized, table, normalizer, options) if normalizer else table.scan_all
            results = self.run(scan, True, "counting words", slice_bytes, most_workers)
        else:
            results = self.run(functools.partial(count_texts, options=options), False, "counting words")
        with contextlib.closing(results):
            for _, more in results:
                counts.update(more or {})  # None from C, which has counted in its table
        if engine and counts:
            table.add(counts.items())
        return table if engine else counts


def scan_normalized(table: Any, normalizer: Normalizer, options: choices.Options, texts: Sequence[bytes]) -> Any:
    """Count the words of normalized texts in a table of C; return the counts of those that Python splits, or None."""
    normalized = list(map(normalizer.normalized, texts))
    table.scan_all([text for text in normalized if text is not None])
    others = [text for text, result in zip(texts, normalized) if result is None]
    return count_texts(others, options) if others else None


def check_column(paths: Iterable[str], options: choices.Options, is_given: bool = False) -> None:
    """Raise an error for a column that would be ignored, because no file has columns. The default may be."""
    if is_given or options.column not in (None, choices.Options().column):
        with all_delayed():
            from bpe_more import data
        has_columns = any(data.kind_of(path, options)[0] for path in paths)
        text = "no input has a column {!r:.60}: names must end in {}; standard input is read with --as jsonl"
        require(has_columns, text, options.column, ", ".join(data.KINDS))


def slices_of_arrow(columns: Iterable[Any], slice_bytes: int, errors: str) -> Iterator[Any]:
    """Cut columns of Arrow into slices."""
    with all_delayed():
        from bpe_more import data
    return data.slices_of_arrow(columns, slice_bytes, errors)


def slices_of_file(path: str, slice_bytes: int, options: choices.Options) -> Iterator[slicing.Slice]:
    """Cut a file into slices, which workers read."""
    size = os.stat(path).st_size
    start = 0
    window_start = slice_bytes
    with file_in_errors(path), open(path, "rb") as file:
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
    """Cut standard input, or another file without a size, into slices, which are read here."""
    for part in slicing.slices_of_stream(path, slice_bytes, options):
        if part.start_byte == 0:
            check = inputs.check_start if options.column is None else inputs.check_plain
            check(path, part.texts[0][: inputs.START_BYTES])
        yield part


def slices_of_small_files(paths: Iterable[str], slice_bytes: int) -> Iterator[SmallFiles]:
    """Collect small files into slices."""
    files: list[slicing.Slice] = []
    n_bytes = 0
    for path in paths:
        files.append(slicing.Slice(path, 0, os.stat(path).st_size))
        n_bytes += files[-1].end_byte
        if n_bytes >= slice_bytes or len(files) == SLICE_FILES:
            yield SmallFiles(files)
            files = []
            n_bytes = 0
    if files:
        yield SmallFiles(files)


def parts_of_text(text: str, pattern: Any, special_tokens: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of the parts of a long text, cut where no word changes."""
    start, place, step = 0, PART_OF_TEXT, PART_OF_TEXT
    while place + WINDOW_OF_TEXT < len(text) and len(special_tokens) <= MOST_SPECIALS:
        window = text[place : place + WINDOW_OF_TEXT].encode("utf-8")
        if cut := slicing.last_cut(window, pattern, special_tokens):
            end = place + len(window[:cut].decode("utf-8"))
            yield start, end
            start, place = end, end + PART_OF_TEXT
        else:
            place += step
            step *= 2  # there may be no place at all
    yield start, len(text)


def run_task(work: Callable[[Sequence[bytes]], T], errors: str, part: Any) -> tuple[int, T, list[str]]:
    """Read the texts of a slice, if it has none; return how many bytes they have, and work(texts).

    The third result has the names of files that begin with a byte-order mark. Errors get the file and the place.
    """
    if hasattr(part, "run"):  # a slice of data.py
        return *part.run(work, errors), []
    if isinstance(part, SmallFiles):
        n_bytes = sum(file.end_byte for file in part)
        try:
            texts = tuple(map(read_part, part))
            marked = [file.name for file, text in zip(part, texts) if text.startswith(codecs.BOM_UTF8)]
            return n_bytes, slicing.apply_to_texts(work, errors, slicing.Slice("", 0, n_bytes, texts)), marked
        except (OSError, ValueError):
            for file in part:
                run_task(work, errors, file)  # the first one with an error raises it, with its place
            raise
    texts = part.texts or (read_part(part),)
    is_start = part.first_text is None and part.start_byte == 0
    marked = [part.name] if is_start and texts[0].startswith(codecs.BOM_UTF8) else []
    return part.end_byte - part.start_byte, slicing.apply_to_texts(work, errors, part._replace(texts=texts)), marked


def read_part(part: slicing.Slice) -> bytes:
    """Read the bytes of a slice of a file."""
    n_bytes = part.end_byte - part.start_byte
    with file_in_errors(part.name), open(part.name, "rb") as file:
        file.seek(part.start_byte)
        data = file.read(n_bytes)
    place = f"{part.name}, bytes {part.start_byte} to {part.end_byte}"
    require(len(data) == n_bytes, "{}: the file has fewer bytes now", place)
    if part.start_byte == 0:
        inputs.check_start(part.name, data[: inputs.START_BYTES])
    return data


class WordTable(collections.Counter[bytes]):
    """Words and their counts. Tables in C have add(), copy(), which returns a dict, and len() as well."""

    n_bytes = 0  # in words, counting every occurrence

    def add(self, pairs: Iterable[tuple[bytes, int]]) -> None:
        """Add the counts of words. Raises OverflowError if C's numbers of 64 bits could not hold those of pairs."""
        n_bytes = self.n_bytes
        for word, count in pairs:
            number = operator.index(count)  # a sum of numpy's integers would wrap around
            self[word] += number
            n_bytes += len(word) * number
        self.n_bytes = n_bytes
        if n_bytes >= 2**63:
            raise OverflowError("2**63 bytes of words or more, counting every occurrence")

    def totals(self, least: int = 1) -> tuple[int, int, int]:
        """Return (distinct words, words, bytes in words) of the words that occur at least `least` times."""
        words = [(word, count) for word, count in self.items() if count >= least]
        return len(words), sum(count for _, count in words), sum(len(word) * count for word, count in words)


def new_table(options: choices.Options) -> Any:
    """Return an empty table of words: C's, whose pattern is not used, unless C only learns, or is not used."""
    engine = choices.engine_for(options)
    return engine.words((), "gpt2") if engine and not engine.only_learns else WordTable()


def scanning_engine(options: choices.Options) -> Any:
    """Return the C engine if it can split text by the pattern of a call, else None."""
    engine = choices.engine_for(options)
    return None if engine is None or engine.declines(options.pattern) else engine


def lacking_in_c(pattern: Any) -> str:
    """Return what a pattern has that C can't scan, or "". A normal form doesn't count: Python normalizes first."""
    engine, _ = choices.find_engine()
    return engine.declines(after_form(pattern)[1]) if engine else ""




def learn(table: Any, options: choices.Options) -> Iterator[bpe.Learned]:
    """Learn merges from a table of words, which is used up; yield them with their counts, best first."""
    merges_wanted = options.vocab_size - 256 - len(options.special_tokens)
    merges = learn_without_progress(table, options)
    return with_progress(merges, options.progress, learning_progress(merges_wanted))


def special_counter(special_tokens: Sequence[str], in_threads: bool) -> Callable[[Sequence[bytes]], int]:
    """Return a function that counts special tokens in texts: C's, or for other processes one that they can get."""
    engine = choices.find_engine()[0] if in_threads else None
    if engine and not engine.only_learns:
        return engine.special_counter(special_tokens)  # type: ignore[no-any-return]
    return functools.partial(count_specials, bpe.special_token_finder(tuple(special_tokens)))


def count_specials(finder: re.Pattern[str], texts: Sequence[bytes]) -> int:
    """Count special tokens in texts."""
    return sum(len(finder.findall(text.decode("utf-8"))) for text in texts)


def border_ids(tokenizer: Any, begin: str | None, end: str | None) -> list[bytes]:
    """Return the ids of two special tokens as in an array, and b"" for None. Raises ValueError for other tokens."""
    ids = []
    for name, token in (("begin", begin), ("end", end)):
        known = ", ".join(tokenizer.special_ids) or "it has none"
        is_known = token is None or token in tokenizer.special_ids
        require(is_known, "{} must be a special token of the model ({:.200}), not {!r}", name, known, token)
        shared = token is not None and token in tokenizer._shared.values()
        require(not shared, "{} must not be {!r}: it is also a token of text, so text could forge it", name, token)
        n_bytes = 0 if token is None else tokenizer._id_bytes
        ids.append(tokenizer.special_ids.get(token, 0).to_bytes(n_bytes, sys.byteorder))
    return ids


def encode_and_count(encode_texts: Callable[[Sequence[bytes]], Any], count: Callable[[Sequence[bytes]], int] | None,
                     texts: Sequence[bytes]) -> tuple[Any, int]:
    """Encode texts, and count special tokens in them."""
    return encode_texts(texts), count(texts) if count else 0


def encode_leaving_out(encoder: Any, kind: str, errors: str, texts: Sequence[bytes]) -> tuple[bytes, Any, int]:
    """Encode texts as one array; return (ids, their ends, the number of bytes that errors="replace" has left out)."""
    left_out: list[int] | None = [] if errors == "replace" else None
    ids, ends = encoder.encode_texts(texts, kind, left_out)
    return ids, ends, sum(left_out or ())


def encode_corpus(tokenizer: Any, corpus: Corpus, output: bpe.FilePath, inputs: Sequence[bpe.FilePath] = ()) -> int:
    """Write the token ids of a corpus into a .npy or .bin file; return how many there are.

    The corpus gets the number of documents, and of the special tokens in them that it names.

    inputs    files besides those of the corpus that the output must not replace
    """
    name, id_bytes = os.fspath(output), tokenizer._id_bytes
    rule = "the name of the output must end in .npy (for numpy.load) or .bin (uint16 without a header)"
    require(name.endswith((".npy", ".bin")), f"{rule}, not {name!r}")
    if name.endswith(".bin") and id_bytes > 2:
        most = f"a .bin file has ids up to 65,535, but this vocabulary has ids up to {max(tokenizer.vocab):,}"
        raise ValueError(f"{most}; use a name that ends in .npy")
    check_outputs([output], [*corpus.paths, *inputs])
    folder = os.path.dirname(os.path.realpath(output))  # a mistyped one should not be made
    require(os.path.isdir(folder), "no folder {}; create it first, or name another file", folder)
    begin, end = borders = border_ids(tokenizer, corpus.begin, corpus.end)
    if any(borders):
        tokenizer = tokenizer.ordinary
    in_python = corpus.options.engine == "python"
    encoder = tokenizer._python_encoder() if in_python else tokenizer._encoder
    encode_texts = functools.partial(encode_leaving_out, encoder, f"u{id_bytes}", corpus.options.errors)
    in_threads = encoder.in_c
    count = special_counter(corpus.counted, in_threads) if corpus.counted else None
    task = functools.partial(encode_and_count, encode_texts, count)
    results = corpus.run(task, in_threads, "encoding")
    corpus.n_documents = sum(not corpus.has_rows(path) for path in corpus.paths)
    with new_files([output], keep=True) as [file], contextlib.closing(results), file_in_errors(output):
        header = bpe.npy_header(id_bytes, 0) if name.endswith(".npy") else b""
        file.write(header)
        for part, ((ids, ends, n_left_out), n_specials) in results:
            corpus.n_left_out += n_left_out
            corpus.n_specials += n_specials
            if isinstance(part, Border):
                ids = borders[part.is_end]
            elif isinstance(part, SmallFiles) or part.first_text is not None:  # whole files or texts
                corpus.n_documents += 0 if isinstance(part, SmallFiles) else len(ends)
                if any(borders):
                    places = [0, *(place * id_bytes for place in ends)]
                    ids = b"".join(begin + ids[start:stop] + end for start, stop in itertools.pairwise(places))
            file.write(ids)
        n_ids: int = (file.tell() - len(header)) // id_bytes
        if header:
            file.seek(0)
            file.write(bpe.npy_header(id_bytes, n_ids))
    return n_ids


def with_progress(items: Iterable[T], wanted: bool, describe: Callable[[int], str]) -> Iterator[T]:
    """Pass items on, and print describe(how many) in one line, at most five times a second."""
    if not wanted:
        yield from items
        return
    shown_at = time.monotonic()
    try:
        say_over(describe(0))  # the first item may take a minute
        for number, item in enumerate(items, 1):
            yield item
            if time.monotonic() - shown_at > 0.2:
                shown_at = time.monotonic()
                say_over(describe(number))
    finally:
        say_over("")


def say_over(text: str) -> None:
    """Print text over the last line of standard error, cut to the width of the terminal."""
    width = 80
    with contextlib.suppress(OSError, ValueError, AttributeError):  # not a terminal
        width = os.get_terminal_size(sys.stderr.fileno()).columns or width
    say(f"\r{text[: width - 1]}\x1b[K")  # ESC [ K erases the rest of the line


def rounded_up(seconds: float) -> str:
    """Write a time as a whole number: rounded_up(150) -> "3 min"."""
    if seconds < 100:
        return f"{int(seconds) + 1} s"
    return f"{int(seconds / 60) + 1} min" if seconds < 6000 else f"{int(seconds / 3600) + 1} h"


def learning_progress(merges_wanted: int) -> Callable[[int], str]:
    """Return describe(n) for with_progress(): how many merges are made, and how long the rest may take.

    Merges become faster, so the time per merge since an earlier one, among the first half, gives an upper
    bound. On English, Chinese and code, from a tenth of the merges on, the bound was 1 to 6 times the time that was
    really left; before that, up to 70 times.
    """
    marks = [(0, time.monotonic())]  # (merges made, when), and later again when twice as many are made

    def describe(n: int) -> str:
        text = f"learning merges: {n:,} of {merges_wanted:,}"
        now = time.monotonic()
        if n >= 2 * marks[-1][0]:
            marks.append((n, now))
        if 10 * n <= merges_wanted:
            return f"{text} (the first ones take longest)"
        made, then = marks[-2]
        seconds = (now - then) / (n - made) * (merges_wanted - n)
        return f"{text}, up to {rounded_up(seconds)} left"

    return describe


def say(text: str, name: str = "stderr") -> None:
    """Print to sys.stderr or sys.stdout. A stream that fails is replaced, so that training continues.

    Its replacement has the error as its attribute `error`.
    """
    try:
        stream = getattr(sys, name)
        stream.write(text)
        stream.flush()
    except (OSError, ValueError, AttributeError) as error:
        replacement: Any = open(os.devnull, "w")  # noqa: SIM115
        replacement.error = error
        setattr(sys, name, replacement)




def slices_of_texts(texts: Iterable[str], slice_bytes: int, errors: str) -> Iterator[slicing.Slice]:
    """Collect texts into slices."""
    encode: Callable[[str], bytes] = str.encode  # faster than a call of to_utf8
    if errors == "replace":
        encode = functools.partial(slicing.to_utf8, errors=errors)
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
            raise ValueError(f"texts[{number}]: {error}; errors='replace' makes it U+FFFD") from None
        except TypeError:
            if number == 0 and slicing.is_arrow(text):
                yield from slices_of_arrow(itertools.chain([text], texts), slice_bytes, errors)
                return
            raise ValueError(f"texts[{number}]: text must be a str, not {type(text).__name__}") from None
        collected.append(utf8)
        n_bytes += len(utf8)
        if n_bytes >= slice_bytes or len(collected) == slicing.SLICE_TEXTS:
            yield slicing.Slice("", 0, n_bytes, tuple(collected), number + 1 - len(collected))
            collected = []
            n_bytes = 0
    if collected:
        yield slicing.Slice("", 0, n_bytes, tuple(collected), number + 1 - len(collected))


def count_texts(texts: Iterable[bytes], options: choices.Options) -> dict[bytes, int]:
    """Return the count of each word in texts."""
    counts: collections.Counter[str] = collections.Counter()
    for utf8 in texts:
        pieces = bpe.special_token_finder(options.special_tokens).split(utf8.decode("utf-8"))
        for text in pieces[::2]:  # the others are special tokens
            counts.update(steps.find_words(text, options.pattern))
    return {word.encode("utf-8"): count for word, count in counts.items()}


def learn_without_progress(table: WordTable, options: choices.Options) -> Iterator[bpe.Learned]:
    """Learn merges from a table of words, which is used up; yield them with their counts, best first."""
    merges_wanted = options.vocab_size - 256 - len(options.special_tokens)
    engine = choices.engine_for(options)
    learn_with = engine.learn if engine else learn_in_python
    return learn_with(table, merges_wanted, options.min_frequency, options.min_word_count)


def learn_in_python(table: WordTable, merges_wanted: int, min_frequency: int,
                    min_word_count: int = 1) -> Iterator[bpe.Learned]:
    """Return the results of learn_merges that are wanted and frequent enough; the table is used up."""
    words = {word: count for word, count in table.items() if count >= min_word_count}
    table.clear()  # the learner needs the memory
    merges = itertools.islice(bpe.learn_from_bytes(words), merges_wanted)
    # no merge has a higher count than the one before it
    return itertools.takewhile(lambda merge: merge[2] >= min_frequency, merges)
