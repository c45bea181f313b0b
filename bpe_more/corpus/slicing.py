"""Slices of text: where text may be cut without changing a word, and cutting a stream.

Gives: Slice; last_cut(), cut_stream(), slices_of_blocks(); apply_to_texts(), which adds the place to an error;
to_utf8() and join_surrogates(), for str; is_arrow().
Uses: choices, patterns.steps.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from bpe_more import choices
from bpe_more.patterns import steps

T = TypeVar("T")


WINDOW_BYTES = 64 << 10  # how much text is searched for a cut at a time
SLICE_BYTES = 1 << 20  # how much text a worker takes at a time; counting it takes about 0.2 s
SLICE_TEXTS = 1 << 14  # how many texts at most: they may all be empty


def last_cut(window: bytes, pattern: str, special_tokens: tuple[str, ...]) -> int:
    """Return the byte index at which to cut a larger text in this window, near the window's end; 0 if there is none.

    No special token crosses the cut, so the two parts have the same special tokens as the whole.
    """
    text = window.decode("utf-8", "surrogateescape")
    # The window may begin or end inside a character, of which up to 3 bytes are there, or inside a special token. So
    # cuts keep away from its ends: by 3 bytes and the longest token, or one whole character if there is none.
    margin = 3 + max(map(len, special_tokens), default=1)

    def is_crossed(place: int) -> bool:
        # "cats<|e" and "nd|>": at least one character of the token is on each side
        return any(token in text[place - len(token) + 1 : place + len(token) - 1] for token in special_tokens)

    for place in steps.places_to_cut(text, pattern, special_tokens):  # C's first, then others; each from the end
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
    """A part of a corpus that splits into the same words on its own: a part of a file, or several texts."""

    name: str  # of the file
    start_byte: int
    end_byte: int
    texts: tuple[bytes, ...] = ()  # in UTF-8; empty if a worker is to read them from the file
    first_text: int | None = None  # the number of texts[0] among all texts; None for a part of a file


def slices_of_blocks(name: str, blocks: Iterable[bytes], slice_bytes: int, options: choices.Options) -> Iterator[Slice]:
    """Cut the blocks of a file, which need not end where words do, into slices."""
    start = 0
    for data in cut_stream(blocks, options.pattern, options.special_tokens, slice_bytes, slice_bytes):
        yield Slice(name, start, start + len(data), (data,))
        start += len(data)


def is_arrow(value: object) -> bool:
    """Tell if a value gives access to Arrow's memory."""
    return hasattr(value, "__arrow_c_array__") or hasattr(value, "__arrow_c_stream__")


def to_utf8(text: str, errors: str = "strict") -> bytes:
    """Encode text as UTF-8. With errors="replace", lone surrogates become U+FFFD."""
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, not {type(text).__name__}")
    if errors == "replace":  # some decoders leave a character as two surrogates, "\ud83d\udc4d"; UTF-16 joins them
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.encode("utf-8")


def apply_to_texts(work: Callable[[Sequence[bytes]], T], errors: str, part: Slice) -> T:
    """Return work(the texts of a slice); add the file and the place to its errors."""
    texts: Sequence[bytes] = part.texts
    if errors == "replace":
        texts = [text.decode("utf-8", "replace").encode("utf-8") for text in texts]
    try:
        return work(texts)
    except UnicodeDecodeError as error:
        # only a part of a file can be invalid, and it is one text; the texts of a call were str
        place = f"byte {part.start_byte + error.start} (0x{error.object[error.start]:02x}, {error.reason})"
        raise ValueError(f"{part.name}: not valid UTF-8 at {place}") from None
    except ValueError as error:
        place = f"{part.name}, bytes {part.start_byte} to {part.end_byte}"
        if part.first_text is not None:
            number = getattr(error, "number", 0)  # encode_texts puts the number of its text on an error
            place = f"texts[{part.first_text + number}]"
        raise ValueError(f"{place}: {error}") from None


def join_surrogates(strings: Iterable[str]) -> Iterator[str]:
    """Replace surrogates as to_utf8 does, even if the halves of a character are in two strings."""
    decoder = codecs.getincrementaldecoder("utf-16-le")("replace")
    for text in strings:
        if isinstance(text, str):  # anything else is refused later
            text = decoder.decode(text.encode("utf-16-le", "surrogatepass"))
        yield text
    yield decoder.decode(b"", final=True)
