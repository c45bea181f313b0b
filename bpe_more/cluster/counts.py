"""Counts of words as bytes, and files of them, for workers of a cluster. Nothing that is damaged reaches C.

A part has a bucket of the words of a task: a digest, the size of the lengths, and compressed: lengths, counts, words. A
file has the parts of a task: 32 bytes that only it begins with, a digest of the lengths of the parts, these, the parts.

Gives: pack() and pack_frequent(), file_of(); add_part() and add_part_of_file(), which check and add to a table.
Uses: urls, corpus.counting, errors.
"""

from __future__ import annotations

import itertools
import zlib
from array import array
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from bpe_more.cluster.urls import DIGEST_BYTES, checksum, read
from bpe_more.corpus import counting
from bpe_more.errors import require


def pack(words: Collection[bytes], counts: array[int]) -> bytes:
    """Return words and their counts as bytes; Dask would take 10 times as long for a dict."""
    return packed(8 * len(words), [array("Q", map(len, words)), counts, *words])


def packed(n_bytes: int, parts: Iterable[Any]) -> bytes:
    """Return lengths and counts, of n_bytes each, and words as a part."""
    data = n_bytes.to_bytes(8, "big") + zlib.compress(b"".join(parts), 1)
    return checksum(data) + data


def pack_frequent(table: Any, least: int) -> bytes:
    """Return the words of a table that occur at least `least` times."""
    if isinstance(table, counting.WordTable):
        words = {word: n for word, n in table.items() if n >= least}
        return pack(words, array("Q", words.values()))
    arrays = table.get(table.handle(), min(least, 2**64 - 1))
    text, lengths, counts = map(table.engine.ffi.buffer, arrays)
    return packed(len(counts), [lengths, counts, text])


def unpack(part: bytes) -> tuple[bytes, array[int], array[int]]:
    """Return the words of a part, concatenated, their lengths and their counts. Raises ValueError if it is damaged."""
    size, data = int.from_bytes(part[DIGEST_BYTES:][:8], "big"), part[DIGEST_BYTES + 8 :]
    require(part[:DIGEST_BYTES] == checksum(part[DIGEST_BYTES:]), "damaged counts")
    try:
        data = zlib.decompress(data)
    except zlib.error:
        raise ValueError("damaged counts") from None
    lengths, counts, words = array("Q", data[:size]), array("Q", data[size : 2 * size]), data[2 * size :]
    # C trusts the lengths
    require(len(lengths) == len(counts) and sum(lengths) == len(words), "damaged counts")
    return words, lengths, counts


def add_part(table: Any, part: bytes | None) -> None:
    """Add what pack() has returned to a table. There is no part after an error, which the driver raises."""
    if part is not None:
        words, lengths, counts = unpack(part)
        if isinstance(table, counting.WordTable):
            places = itertools.pairwise(itertools.accumulate(lengths, initial=0))
            table.add(zip((words[start:end] for start, end in places), counts))
        else:
            table.put(table.handle(), words, *map(table.engine.in_memory, (lengths, counts)))


def file_of(start: bytes, parts: Sequence[bytes]) -> bytes:
    """Return the content of a file."""
    lengths = array("Q", map(len, parts))
    return b"".join([start, checksum(lengths.tobytes()), lengths, *parts])


def add_part_of_file(table: Any, path: str, start: bytes, n_parts: int, number: int) -> None:
    """Add a part of a file to a table. Raises ValueError with the file if it is damaged, or another one."""
    header = read(path, 0, len(start) + DIGEST_BYTES + 8 * n_parts)
    require(header.startswith(start), "{} has counts of other files or options: delete it", path)
    digest, lengths = header[len(start) :][:DIGEST_BYTES], header[len(start) + DIGEST_BYTES :]
    try:
        require(digest == checksum(lengths), "other lengths")
        places = list(itertools.accumulate(array("Q", lengths), initial=len(header)))
        add_part(table, read(path, places[number], places[number + 1]))
    except ValueError:
        raise ValueError(f"{path} is damaged: delete it") from None
