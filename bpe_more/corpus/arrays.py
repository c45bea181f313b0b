"""Arrays of token ids: a corpus as a .npy or .bin file.

Gives: encode_corpus(), border_ids(); encode_leaving_out() and with_borders(), for the cluster.
Uses: counting, reading, slicing, errors, outputs.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import bpe
from bpe_more.corpus import counting, slicing
from bpe_more.corpus.reading import Corpus
from bpe_more.errors import require
from bpe_more.outputs import check_outputs, file_in_errors, new_files


def border_ids(tokenizer: Any, begin: str | None, end: str | None) -> list[bytes]:
    """Return the ids of two special tokens as bytes of the array, b"" for None. Raises ValueError for other tokens."""
    ids = []
    for name, token in (("begin", begin), ("end", end)):
        known = ", ".join(tokenizer.special_ids) or "it has none"
        is_known = token is None or token in tokenizer.special_ids
        require(is_known, "{} must be a special token of the model ({:.200}), not {!r}", name, known, token)
        is_shared = token is not None and token in tokenizer.shared.values()
        require(not is_shared, "{} must not be {!r}: it is also a token of text, so text could forge it", name, token)
        ids.append(b"" if token is None else tokenizer.special_ids[token].to_bytes(tokenizer.id_bytes, sys.byteorder))
    return ids


def encode_and_count(encode_texts: Callable[[Sequence[bytes]], Any], count: Callable[[Sequence[bytes]], int] | None,
                     texts: Sequence[bytes]) -> tuple[Any, int]:
    """Encode texts, and count special tokens in them."""
    return encode_texts(texts), count(texts) if count else 0


def encode_leaving_out(encoder: Any, kind: str, errors: str, texts: Sequence[bytes]) -> tuple[bytes, Any, int]:
    """Encode texts as one array; return (ids as bytes, ends, bytes left out).

    Text n has the ids up to number ends[n].

    Bytes without a token are an error, but are left out with errors="replace".
    """
    left_out: list[int] | None = [0] if errors == "replace" else None
    ids, ends = encoder.encode_texts(texts, kind, left_out)
    return ids, ends, left_out[0] if left_out else 0


def with_borders(ids: bytes, ends: Iterable[int], id_bytes: int, borders: Sequence[bytes]) -> bytes:
    """Put the ids of begin and end around those of each text."""
    begin, end = borders
    places = [0, *(place * id_bytes for place in ends)]
    return b"".join(begin + ids[start:stop] + end for start, stop in itertools.pairwise(places))


def check_output_name(tokenizer: Any, name: str) -> None:
    """Refuse a name whose kind of file can't have these ids, or whose folder is missing."""
    rule = "the name of the output must end in .npy (for numpy.load) or .bin (uint16 without a header)"
    require(name.endswith((".npy", ".bin")), f"{rule}, not {name!r}")
    if name.endswith(".bin") and tokenizer.id_bytes > 2:
        most = f"a .bin file has ids up to 65,535, but this vocabulary has ids up to {max(tokenizer.vocab):,}"
        raise ValueError(f"{most}; use a name that ends in .npy")
    folder = os.path.dirname(os.path.realpath(name))  # a mistyped one should not be made
    require(os.path.isdir(folder), "no folder {}; create it first, or name another file", folder)


def encode_corpus(tokenizer: Any, corpus: Corpus, output: bpe.FilePath, inputs: Sequence[bpe.FilePath] = ()) -> int:
    """Write the token ids of a corpus into a .npy or .bin file; return how many there are.

    Sets n_documents, n_left_out, and n_specials (how often tokens of `counted` occur) of the corpus.

    inputs    files besides those of the corpus that the output must not replace
    """
    name, id_bytes = os.fspath(output), tokenizer.id_bytes
    check_output_name(tokenizer, name)
    check_outputs([output], [*corpus.paths, *inputs])
    borders = begin, end = border_ids(tokenizer, corpus.begin, corpus.end)
    if any(borders):
        tokenizer = tokenizer.ordinary  # special tokens in documents are text: only begin and end get their ids
    encoder = tokenizer.encoder_for(corpus.options.engine)
    encode_texts = functools.partial(encode_leaving_out, encoder, f"u{id_bytes}", corpus.options.errors)
    count = counting.special_counter(corpus.counted, encoder.in_c) if corpus.counted else None
    task = functools.partial(encode_and_count, encode_texts, count)
    results = corpus.results(task, encoder.in_c, "encoding")
    corpus.n_documents = sum(not kind for kind, _ in corpus.kinds)  # files without rows
    with new_files([output]) as [file], contextlib.closing(results), file_in_errors(output):
        header = bpe.npy_header(id_bytes, 0) if name.endswith(".npy") else b""
        file.write(header)
        for part, ((ids, ends, n_left_out), n_specials) in results:
            corpus.n_left_out += n_left_out
            corpus.n_specials += n_specials
            if part is slicing.FILE_BEGINS:
                ids = begin
            elif part is slicing.FILE_ENDS:
                ids = end
            elif not isinstance(part, slicing.Slice):  # whole texts
                if isinstance(part, slicing.TextRows):  # files are counted already
                    corpus.n_documents += len(ends)
                ids = with_borders(ids, ends, id_bytes, borders) if any(borders) else ids
            file.write(ids)
        n_ids: int = (file.tell() - len(header)) // id_bytes
        if header:
            file.seek(0)
            file.write(bpe.npy_header(id_bytes, n_ids))
    return n_ids
