"""Slices of a corpus: where text may be cut without changing a word, and what a worker does with a slice.

In apply_to_slice(), a worker reads the texts of a slice and works on them. There are three kinds of slices: Slice, a
part of a file; SmallFiles, each a text; TextRows, which are strings of a call, or rows of a column or of JSON Lines.

Gives: these; last_cut(), cut_stream(), slices_of_blocks(); Texts, a block of texts as C takes it; to_utf8() and
join_surrogates(), for str; sizes; REPLACE_MAKES_IT; FILE_BEGINS and FILE_ENDS.
Uses: choices, inputs, errors, outputs, patterns.steps.
"""

from __future__ import annotations

import codecs
import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from bpe_more import choices
from bpe_more.corpus import inputs
from bpe_more.errors import require
from bpe_more.outputs import file_in_errors
from bpe_more.patterns import steps

T = TypeVar("T")

WINDOW_BYTES = 64 << 10  # how much text is searched for a cut at a time
SLICE_BYTES = 1 << 20  # how much text a worker takes at a time; counting it takes about 0.2 s
SLICE_TEXTS = 1 << 14  # how many texts at most: they may all be empty
REPLACE_MAKES_IT = "errors='replace' makes it"  # messages end in this and "U+FFFD", or "an empty one"


def last_cut(window: bytes, pattern: str, special_tokens: tuple[str, ...]) -> int:
    """Return a byte index near the end of this window, a part of a text, at which the text may be cut; 0 if none.

    No special token crosses the cut, so the two parts have the same special tokens as the whole.
    """
    text = window.decode("utf-8", "surrogateescape")
    # The window may begin or end in a character, of which up to 3 bytes are lone surrogates, or in a special token.
    # So cuts keep away from its ends: by 3 and the longest token, or, without tokens, by 3 and one whole character.
    margin = 3 + max(map(len, special_tokens), default=1)

    def is_crossed(place: int) -> bool:
        # "cats<|e" and "nd|>": at least one character of the token is on each side
        return any(token in text[place - len(token) + 1 : place + len(token) - 1] for token in special_tokens)

    # first the places that the C engine finds, then those of bpe.py's expressions; both from the end
    for place in steps.places_to_cut(text, pattern, special_tokens):
        if margin <= place <= len(text) - margin and not is_crossed(place):
            return len(text[:place].encode("utf-8", "surrogateescape"))
    return 0


def cut_stream(blocks: Iterable[bytes], pattern: str, special_tokens: tuple[str, ...],
               first: int, most: int) -> Iterator[bytes]:
    """Join blocks of text, and cut them again without changing a word.

    The first part has about `first` bytes, each later one twice as many as the one before, up to `most`.
    """
    data = bytearray()
    wanted = first  # how many bytes before the next search for a cut
    for block in blocks:
        data += block
        if len(data) < wanted:
            continue
        window = bytes(data[-WINDOW_BYTES:])
        if cut := last_cut(window, pattern, special_tokens):
            cut += len(data) - len(window)
            yield bytes(data[:cut])
            del data[:cut]
            wanted = min(2 * wanted, most)
        else:
            # don't search the same text again after each small block
            wanted = len(data) + min(len(data), WINDOW_BYTES // 2)
    if data:
        yield bytes(data)


class Slice(NamedTuple):
    """A part of a file, cut so that no word changes."""

    path: str
    start: int
    end: int
    data: bytes | None = None  # None if a worker is to read it

    def read(self) -> Sequence[bytes]:
        """Return the text."""
        if self.data is not None:
            return [self.data]
        size = self.end - self.start
        with file_in_errors(self.path), open(self.path, "rb") as file:
            file.seek(self.start)
            data = file.read(size)
        text = "{}, bytes {} to {}: the file has fewer bytes now"
        require(len(data) == size, text, self.path, self.start, self.end)
        if self.start == 0:
            inputs.check_start(self.path, data[: inputs.START_BYTES])
        return [data]

    def with_place(self, error: ValueError) -> str:
        """Return the text of an error, with the file and the place."""
        if isinstance(error, UnicodeDecodeError):
            byte = f"byte {self.start + error.start} (0x{error.object[error.start]:02x}, {error.reason})"
            return f"{self.path}: not valid UTF-8 at {byte}"
        return f"{self.path}, bytes {self.start} to {self.end}: {error}"


class SmallFiles(tuple[Slice, ...]):
    """A slice of small files, each a text."""

    def read(self) -> Sequence[bytes]:
        """Return the texts."""
        return [text for file in self for text in file.read()]

    def with_place(self, error: ValueError) -> str:
        """Return the text of an error alone: apply_to_slice() finds its file."""
        return str(error)


class Texts(Sequence[bytes]):
    """Texts as C takes them: a block of UTF-8, and the place at which each one ends."""

    def __init__(self, data: Any, ends: array[int]) -> None:
        self.data, self.ends = data, ends

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, number: Any) -> Any:
        return bytes(self.data[self.ends[number - 1] if number else 0 : self.ends[number]])

    def __iter__(self) -> Iterator[bytes]:
        data = bytes(self.data)
        return (data[start:end] for start, end in itertools.pairwise([0, *self.ends]))


def block_of(texts: Sequence[bytes]) -> Texts:
    """Make a block of texts, if they aren't one."""
    if type(texts) is Texts:
        return texts
    return Texts(b"".join(texts), array("Q", itertools.accumulate(map(len, texts))))


class TextRows(NamedTuple):
    """A slice of rows, each a text."""

    place: Callable[[int], str]  # of a row, by its number, for errors
    first: int  # the number of the first row
    texts: Sequence[bytes] | Callable[[], Sequence[bytes]]  # or a function that reads them, in a worker
    n_bytes: int = 0  # of the texts, before invalid bytes are replaced; 0 if a worker is to count them

    def read(self) -> Sequence[bytes]:
        """Return the texts."""
        return self.texts() if callable(self.texts) else self.texts

    def with_place(self, error: ValueError) -> str:
        """Return the text of an error, with the place of its row."""
        number = getattr(error, "number", 0)  # encode_texts() and count_texts() set it
        way = ""
        if isinstance(error, UnicodeDecodeError):
            texts = enumerate(self.read())
            number = next(n for n, text in texts if text.decode("utf-8", "ignore").encode() != text)
            way = f"; {REPLACE_MAKES_IT} U+FFFD"
        return f"{self.place(self.first + number)}: {error}{way}"


# slices without text, where encode_corpus writes the special tokens begin= and end=. They are equal, so it tells them
# apart with `is`: Corpus.results() yields the slices of Corpus.slices() themselves, not copies from a process.
FILE_BEGINS, FILE_ENDS = TextRows(str, 0, ()), TextRows(str, 0, ())


def files_with_mark(files: Sequence[Slice], texts: Iterable[bytes]) -> list[str]:
    """Return the files that begin with a byte-order mark; there is a text for each file, or for a part of it."""
    return [file.path for file, text in zip(files, texts) if file.start == 0 and text.startswith(codecs.BOM_UTF8)]


def apply_to_slice(work: Callable[[Sequence[bytes]], T], errors: str,
                   part: Slice | SmallFiles | TextRows) -> tuple[int, T, Sequence[str]]:
    """Read the texts of a slice, in a worker; return (bytes, work(texts), files that begin with a byte-order mark).

    Errors get the file and the place.
    """
    with_mark: Sequence[str] = ()
    try:
        texts = part.read()
        n_bytes = part.n_bytes if isinstance(part, TextRows) else 0
        if not n_bytes:
            texts = block_of(texts)  # gives the number of bytes; C joins lists anyway, so no time is lost
            n_bytes = len(texts.data)
        if not isinstance(part, TextRows):
            with_mark = files_with_mark(part if isinstance(part, SmallFiles) else [part], texts)
        if errors == "replace":
            texts = block_of([text.decode("utf-8", "replace").encode("utf-8") for text in texts])
        try:
            return n_bytes, work(texts), with_mark
        except ValueError as error:
            raise ValueError(part.with_place(error)) from None
    except (OSError, ValueError):
        if isinstance(part, SmallFiles):
            for file in part:
                apply_to_slice(work, errors, file)  # the first one with an error raises it, with its place
        raise


def slices_of_blocks(name: str, blocks: Iterable[bytes], slice_bytes: int, options: choices.Options) -> Iterator[Slice]:
    """Cut the blocks of a file, which need not end where words do, into slices."""
    start = 0
    for data in cut_stream(blocks, options.pattern, options.special_tokens, slice_bytes, slice_bytes):
        yield Slice(name, start, start + len(data), data)
        start += len(data)


def to_utf8(text: str, errors: str = "strict") -> bytes:
    """Encode text as UTF-8. With errors="replace", lone surrogates become U+FFFD."""
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, not {type(text).__name__}")
    if errors == "replace":  # some decoders leave a character as two surrogates, "\ud83d\udc4d"; UTF-16 joins them
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.encode("utf-8")


def join_surrogates(strings: Iterable[str]) -> Iterator[str]:
    """Replace surrogates as to_utf8 does, even if the halves of a character are in two strings."""
    decoder = codecs.getincrementaldecoder("utf-16-le")("replace")
    for text in strings:
        if isinstance(text, str):  # anything else is refused later
            text = decoder.decode(text.encode("utf-16-le", "surrogatepass"))
        yield text
    yield decoder.decode(b"", final=True)
