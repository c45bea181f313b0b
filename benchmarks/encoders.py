"""The encoders that bench.py measures, each behind the same four functions.

All of them get the model that bpe.py trained. Texts in memory contain no special tokens, so that every tool may use its
plain call; a file contains them.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import bpe
from bpe_more.patterns.steps import TIKTOKEN_CL100K

END = "<|endoftext|>"
KNOWN = "known.json"  # tokenizer.json with the pattern spelled as the tools know it
CORES = os.cpu_count() or 1


class Encoder(NamedTuple):
    """A loaded tokenizer."""

    fastest: Callable[[bytes, str], Any]  # a text as UTF-8 and as str -> token ids, in the tool's fastest form
    encode: Callable[[str], list[int]]
    encode_batch: Callable[[list[str]], list[list[int]]]  # on all cores
    count_file: Callable[[str, str], int]  # path, output -> the number of token ids in a file; see load_ours


def pieces(path: str) -> Iterator[str]:
    """Yield the texts between special tokens, one at a time, without reading the whole file into memory."""
    parts: list[str] = []
    with open(path, encoding="utf-8", newline="") as file:
        while block := file.read(1 << 20) + file.readline():  # up to a line ending, so that no special token is cut
            first, *others = block.split(END)
            parts.append(first)
            for other in others:
                yield "".join(parts)
                parts = [other]
    yield "".join(parts)


# ---------------------------------------------------------------------------------------------------------------------
# The model, in the forms that the tools read
# ---------------------------------------------------------------------------------------------------------------------

# Most tools have a fast path for patterns that they recognize by their spelling: GPT-2's as an option of ByteLevel,
# cl100k as Llama 3 spells it. Without it, they refuse the pattern or run it as any other expression.
LLAMA3 = bpe.PATTERNS["llama3"]
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def save_model(path: str, size: int, pattern: str, folder: str) -> None:
    """Train with bpe.py, and save the model in all the forms that the tools read."""
    bpe.Tokenizer.train(path, size, [END], pattern=pattern).save(folder)
    model = json.loads(Path(folder, "tokenizer.json").read_bytes())
    if pattern == "gpt2":
        model["pre_tokenizer"] = BYTE_LEVEL
    elif pattern == "cl100k":
        model["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = LLAMA3
    Path(folder, KNOWN).write_text(json.dumps(model), encoding="utf-8")
    if pattern in CAN_ENCODE["quicktok"]:
        with contextlib.suppress(ImportError), contextlib.redirect_stdout(sys.stderr):
            import quicktok

            quicktok.import_tokenizer(f"{folder}/{KNOWN}", "ours", folder)  # in its own form


# ---------------------------------------------------------------------------------------------------------------------
# The tools. Each function loads the model in a folder
# ---------------------------------------------------------------------------------------------------------------------


def load_ours(folder: str) -> Encoder:
    """bpe.py writes the token ids of a file to another file; the other tools keep them in memory."""
    tokenizer = bpe.Tokenizer.load(folder)
    encoder = tokenizer.encoder  # built before the clock starts, like the other tools' encoders
    return Encoder(
        fastest=lambda data, text: encoder.encode_texts([data], "u4"),
        encode=tokenizer.encode,
        encode_batch=tokenizer.encode_batch,
        count_file=tokenizer.encode_files,
    )


def load_in_python(folder: str) -> Encoder:
    tokenizer = bpe.Tokenizer.load(folder)
    tokenizer.encoder = None  # so that the class itself encodes
    return Encoder(
        fastest=lambda data, text: tokenizer.encode(text),
        encode=tokenizer.encode,
        encode_batch=tokenizer.encode_batch,
        count_file=lambda path, output: tokenizer.encode_files(path, output, engine="python"),
    )


def load_gigatoken(folder: str) -> Encoder:
    import gigatoken

    tokenizer = gigatoken.Tokenizer.from_json(Path(folder, KNOWN).read_bytes())

    def encode(text: str) -> list[int]:
        if len(text) < 500:  # the faster of its two calls at this length
            return tokenizer.encode(text).tolist()  # type: ignore[no-any-return]
        return tokenizer.encode_batch_list([text])[0]  # type: ignore[no-any-return]

    return Encoder(
        fastest=lambda data, text: tokenizer.encode(data),
        encode=encode,
        encode_batch=tokenizer.encode_batch_list,
        count_file=lambda path, output: sum(map(len, tokenizer.encode_files(path))),
    )


def load_tiktoken(folder: str) -> Encoder:
    from concurrent.futures import ThreadPoolExecutor

    import tiktoken

    vocab, name = bpe.Tokenizer.load(folder).vocab, Path(folder).name
    pattern = TIKTOKEN_CL100K if name == "cl100k" else bpe.PATTERNS[name]  # as tiktoken spells it
    ranks = {token: token_id for token_id, token in vocab.items() if token != END.encode()}
    encoding = tiktoken.Encoding("ours", pat_str=pattern, mergeable_ranks=ranks, special_tokens={END: 256})

    def to_numpy(text: str) -> Any:
        return encoding.encode_to_numpy(text, disallowed_special=())

    def count_file(path: str, output: str) -> int:
        with ThreadPoolExecutor(CORES) as pool:
            found = list(pool.map(to_numpy, pieces(path)))
        return sum(map(len, found)) + len(found) - 1

    return Encoder(
        fastest=lambda data, text: to_numpy(text),
        encode=encoding.encode_ordinary,
        encode_batch=lambda texts: encoding.encode_ordinary_batch(texts, num_threads=CORES),
        count_file=count_file,
    )


def load_tokenizers(folder: str) -> Encoder:
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(f"{folder}/{KNOWN}")

    def encode(text: str) -> list[int]:
        return tokenizer.encode_batch_fast([text])[0].ids  # faster than encode(), which also computes offsets

    def count_file(path: str, output: str) -> int:
        found = tokenizer.encode_batch_fast(list(pieces(path)))
        return sum(map(len, found)) + len(found) - 1

    return Encoder(
        fastest=lambda data, text: encode(text),
        encode=encode,
        encode_batch=lambda texts: [encoding.ids for encoding in tokenizer.encode_batch_fast(texts)],
        count_file=count_file,
    )


def load_fastokens(folder: str) -> Encoder:
    import fastokens

    return with_flat_batches(fastokens.Tokenizer.from_file(f"{folder}/{KNOWN}"))


def load_snaptokens(folder: str) -> Encoder:
    import snaptokens

    return with_flat_batches(snaptokens.Tokenizer.from_file(f"{folder}/{KNOWN}"))


def with_flat_batches(tokenizer: Any) -> Encoder:
    """Return the encoder of fastokens or snaptokens, which is a fork of fastokens and has the same calls."""

    def count_file(path: str, output: str) -> int:
        ids, offsets = tokenizer.encode_batch_flat(list(pieces(path)))
        return len(ids) // 4 + len(offsets) // 8 - 2

    return Encoder(
        fastest=lambda data, text: tokenizer.encode_batch_flat([text]),
        encode=lambda text: tokenizer.encode(text).ids,  # type: ignore[no-any-return]
        encode_batch=lambda texts: [encoding.ids for encoding in tokenizer.encode_batch(texts)],
        count_file=count_file,
    )


def load_splintr(folder: str) -> Encoder:
    import splintr

    tokenizer = splintr.from_json(f"{folder}/{KNOWN}")

    def count_file(path: str, output: str) -> int:
        ids, offsets = tokenizer.encode_batch_flat(list(pieces(path)))
        return len(ids) // 4 + len(offsets) // 8 - 2

    return Encoder(
        fastest=lambda data, text: tokenizer.encode_flat(text),
        encode=tokenizer.encode,
        encode_batch=tokenizer.encode_batch,
        count_file=count_file,
    )


def load_tokie(folder: str) -> Encoder:
    import tokie

    tokenizer = tokie.Tokenizer.from_json(f"{folder}/{KNOWN}")

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids  # type: ignore[no-any-return]

    def encode_batch(texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]

    def count_file(path: str, output: str) -> int:
        ids, offsets = tokenizer.encode_files([path])
        return len(ids) + len(offsets) - 2

    return Encoder(lambda data, text: encode(text), encode, encode_batch, count_file)


def load_tuetoken(folder: str) -> Encoder:
    import tuetoken

    tokenizer = tuetoken.Tokenizer(f"{folder}/{KNOWN}")

    def count_file(path: str, output: str) -> int:
        found = tokenizer.encode_ordinary_to_buffer(list(pieces(path)))
        return len(found["data"]) + len(found["offsets"]) - 2

    return Encoder(
        fastest=lambda data, text: tokenizer.encode_to_bytes(text),
        encode=tokenizer.encode_ordinary,
        encode_batch=tokenizer.encode_ordinary_batch,
        count_file=count_file,
    )


def load_quicktok(folder: str) -> Encoder:
    import quicktok

    tokenizer = quicktok.get_encoding("ours", folder)

    def encode_batch(texts: list[str]) -> list[list[int]]:
        ids, offsets = tokenizer.encode_batch(texts)
        return [ids[start:end].tolist() for start, end in zip(offsets, offsets[1:])]

    def count_file(path: str, output: str) -> int:
        ids, offsets = tokenizer.encode_batch(list(pieces(path)))
        return len(ids) + len(offsets) - 2

    return Encoder(
        fastest=lambda data, text: tokenizer.encode_batch([text], threads=1)[0],
        encode=tokenizer.encode_ordinary,
        encode_batch=encode_batch,
        count_file=count_file,
    )


ENCODERS: dict[str, tuple[str, Callable[[str], Encoder]]] = {  # name -> (package, function)
    "bpe.py, C": ("cffi", load_ours),
    "gigatoken": ("gigatoken", load_gigatoken),
    "fastokens": ("fastokens", load_fastokens),
    "snaptokens": ("snaptokens", load_snaptokens),
    "splintr": ("splintr-rs", load_splintr),
    "quicktok": ("quicktok-v1", load_quicktok),
    "tokie": ("tokie", load_tokie),
    "tiktoken": ("tiktoken", load_tiktoken),
    "tuetoken": ("tuetoken", load_tuetoken),
    "tokenizers": ("tokenizers", load_tokenizers),
    "bpe.py, Python": ("regex", load_in_python),
}
SLOW_ENCODERS = {"tokenizers", "bpe.py, Python"}  # they get less text
CAN_ENCODE = {  # the patterns of tools that can't use all of them
    "quicktok": {"cl100k", "o200k", "llama3", "qwen2"},  # refuses GPT-2's
    "tokie": {"gpt2"},  # accepts the others, but gives other ids
}
