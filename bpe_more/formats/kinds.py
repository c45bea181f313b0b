"""Finds the model file in a folder, and says what a file that can't be read seems to be.

Gives: model_path(); error_prefix(), for whatever reads a file; kind_of(), which begins errors about a tokenizer.json
that isn't byte-level BPE; pairs_of_ids(), which recognizes merges written as ids (116 104), and PAIRS_OF_IDS, its text;
MINBPE, the beginning of minbpe's files.
Uses: transformers.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import bpe
from bpe_more.formats import transformers


def kind_of(content: Mapping[str, Any]) -> str:
    """Return the beginning of an error that says what a tokenizer.json is, or "" if it is byte-level BPE."""
    model_type = str(content["model"].get("type", "BPE"))
    others = {"Unigram": "SentencePiece model", "WordPiece": "WordPiece model", "WordLevel": "model of whole words"}
    kind = others.get(model_type, "")
    steps = json.dumps([content.get(name) for name in ("normalizer", "pre_tokenizer", "decoder")], ensure_ascii=False)
    if model_type == "BPE" and "ByteLevel" not in steps:
        is_sentencepiece = content["model"].get("byte_fallback") or "Metaspace" in steps or "▁" in steps
        kind = "SentencePiece model" if is_sentencepiece else "BPE model of characters"
    if suffix := content["model"].get("end_of_word_suffix"):
        kind = f"model of words that end in {suffix!r:.20}, as CLIP's do"
    return f"this is a {kind}, not byte-level BPE: " if kind else ""


def kind_of_json(content: Mapping[str, Any]) -> str:
    """Say what a JSON file without a model is; return "" if its entries don't tell."""
    if isinstance(content.get("error"), str):
        return f"this is a hub's error message, not a model: {content['error']!r:.150}; log in, and download again"
    if isinstance(content.get("model_type"), str) or isinstance(content.get("architectures"), list):
        return "these are the settings of a language model; load tokenizer.json, usually in the same folder"
    # An integer would mean that this is a vocab.json with a token of this name.
    roles = [name for name in ("bos_token", "eos_token", "unk_token", "tokenizer_class") if name in content]
    if isinstance(content.get("added_tokens_decoder"), dict) or any(type(content[name]) is not int for name in roles):
        return "these are the settings of a tokenizer; load tokenizer.json, usually in the same folder"
    return NPM if isinstance(content.get("bpe_ranks"), str) else ""


PAGE = 'docs/compatibility.md, "Files to convert", has the lines'
PAIRS_OF_IDS = f"these are pairs of ids, not of tokens; {PAGE} that convert them"
# the keys of an encoder are "explicit_n_vocab", "pat_str", "special_tokens" and "bpe_ranks"
NPM = f"this is an encoder of the npm package tiktoken; {PAGE} that read it"
SUFFIXES = "tokens end in </w>, like those of CLIP and subword-nmt: these are not merges of bytes"
COMPRESSED = "this is compressed; decompress it first"
MINBPE = b"minbpe v1"  # begins a .model of minbpe, which can be read
BEGINNINGS = {  # {the beginning of a file: what it is}; the first one that matches counts
    rb"\s*\Z": "the file is empty",
    rb"\s*version https://git-lfs": "this is a Git LFS pointer, not the file itself, which `git lfs pull` gets",
    rb"\x1f\x8b": f"{COMPRESSED}: gunzip FILE",
    rb"\x28\xb5\x2f\xfd": f"{COMPRESSED}: unzstd FILE",
    rb"BZh": f"{COMPRESSED}: bunzip2 FILE",
    rb"\xfd7zXZ": f"{COMPRESSED}: unxz FILE",
    rb"PK\x03\x04": f"{COMPRESSED}: unzip FILE",
    rb"Access to model|Invalid username|(?:Entry|Repository) not found": (
        "this is a hub's error message, not a model; log in, and download again"
    ),
    rb"(?:[^\t\n]+\t-?[0-9.e-]+\r?\n){2}": "this is the vocabulary of a SentencePiece model, not byte-level BPE",
    rb"GGUF": "this is a GGUF file; docs/compatibility.md has the lines that read its vocabulary",
    rb"\x80[\x02-\x05]": f"this is a pickle, which can run code, so it is not read; {PAGE} for one that you trust",
    # protobuf: \n (the tag of a piece), its length; in the piece: \n (the tag of its text), length and text, and \x15
    # (the tag of its score)
    rb"(?s)\n[\x04-\x7f]\n.{1,99}?\x15": "this is a SentencePiece model, not byte-level BPE",
    rb"(?:[^\n]*\n){0,999}?\[UNK\]\r?\n": "this is the vocabulary of a WordPiece model, not byte-level BPE",
    rb'\{\s*"\(?[0-9]+, ?[0-9]+\)?"\s*:': PAIRS_OF_IDS,
    # the first merge is of two bytes
    rb"[A-Za-z0-9+/]{2}== [A-Za-z0-9+/]{2}==\r?\n": f"these are merges in base64; {PAGE} that convert them",
    rb"\s*<[!?A-Za-z]": "this looks like a web page, not a model",
    rb'\s*\{\s*"[0-9]+"\s*:\s*"': f"this is {{id: token}}, not {{token: id}}; {PAGE} that convert it",
}


@contextlib.contextmanager
def error_prefix(path: bpe.FilePath) -> Iterator[None]:
    """Turn any Exception but MemoryError into a ValueError: the file's name, then what it seems to be, or the error.

    The text after the name has at most 300 characters.
    """
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        text = str(error)
        if type(error) is not ValueError:  # but KeyError, or JSONDecodeError, which is a kind of ValueError
            hint = "vocab.json and merges.txt are for Tokenizer.from_files"
            if os.fspath(path).endswith(("vocab.json", "merges.txt")):
                hint = "tokenizer.json is for Tokenizer.load"
            text = f"not a byte-level BPE model ({error!r:.99}); {hint}, .tiktoken files for read_tiktoken"
        text = looks_like(path) or text
        text = text if len(text) <= 300 else f"{text[:299]}…"
        raise ValueError(f"{os.fspath(path)}: {text}") from None


def looks_like(path: bpe.FilePath) -> str:
    """Say what a file that can't be read seems to be, and what to do with it; "" if its beginning doesn't tell."""
    if not os.path.isfile(path):  # a pipe can't be read twice
        return ""
    with open(path, "rb") as file:
        content = file.read()
    for beginning, what in BEGINNINGS.items():
        if re.match(beginning, content):
            return what
    if found := kind_of_json(transformers.dict_in_file(os.fspath(path))):
        return found
    n_ends = len(re.findall(rb'</w>(?:"\s*:|\r?\n)', content))
    if n_ends > len(re.findall(rb'"\s*:|\n', content)) / 10:  # of keys in JSON, or of lines
        return SUFFIXES
    return pairs_of_ids(content.decode("utf-8", "replace"))


def pairs_of_ids(text: str) -> str:
    """Return PAIRS_OF_IDS if merges are written as ids: 116 104, or (116, 104), or [[116, 104], ...; else ""."""
    first = re.match(r"(?:#version.*\n)?[\s\[(]*([0-9]+)[\s,]+([0-9]+)\b", text)
    if not first:
        return ""
    # If 116 is a text of three digits and not an id, another merge makes it.
    made = set(map("".join, re.findall(r"(?<![0-9])([0-9]+)[^\S\n]*,? ([0-9]+)", text)))
    are_tokens = all(len(token) == 1 or token in made for token in first.groups())
    return "" if are_tokens else PAIRS_OF_IDS


RANKS = "{name} has ranks of tiktoken: vocab, merges = read_tiktoken(path)"
PACKED = "{name} is compressed: decompress it first"
TWO_FILES = 'Tokenizer.from_files("{other}", "{name}").save(folder) makes it from these two'
WAYS = {  # {the end of a file's name: what opens it}
    "merges.txt": TWO_FILES, "vocab.bpe": TWO_FILES, ".tiktoken": RANKS, "tokenizer.model": RANKS,
    ".json.gz": PACKED, ".json.zst": PACKED, ".gguf": "docs/compatibility.md has the lines that read {name}",
}  # fmt: skip


def way_to_load(folder: bpe.FilePath) -> str:
    """Say which model a folder without tokenizer.json has, and how to load it; return "" if none is recognized."""
    for name in sorted(os.listdir(folder)):
        file = os.path.join(folder, name)
        if name.endswith(".model") and os.path.isfile(file):
            with open(file, "rb") as opened:
                if opened.read(len(MINBPE)) == MINBPE:
                    return f"; Tokenizer.load takes the path of {name}, which is minbpe's"
            if what := looks_like(file):
                return f"; {name}: {what}"
        for end, way in WAYS.items():
            if name.endswith(end):
                return "; " + way.format(name=name, other="encoder.json" if end == "vocab.bpe" else "vocab.json")
    return ""


def model_path(path: bpe.FilePath) -> bpe.FilePath:
    """Return the path of the tokenizer.json, or else the tekken.json, in a folder; return the path of a file as it is.

    Raises FileNotFoundError if there is none.
    """
    is_folder = os.path.isdir(path)
    for file in [os.path.join(path, name) for name in ("tokenizer.json", "tekken.json")] if is_folder else [path]:
        if os.path.exists(file):
            return file
    reason = "No such file or folder (from a hub, download tokenizer.json first)"
    if is_folder:
        reason = "No tokenizer.json in this folder" + way_to_load(path)
    raise FileNotFoundError(errno.ENOENT, reason, os.fspath(path))
