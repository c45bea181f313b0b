"""Build the optional C engine of bpe.py, and wrap it for Python.

Building requires a C compiler and `pip install regex cffi setuptools`:

    python build_ffi.py                    compile bpe_fast.c; the module is installed next to this file
    python build_ffi.py --flags="-O3"      compile with other flags
    python build_ffi.py --source FILE      only write the complete C source, for other build tools and for .ci/

This is the only file that uses cffi. bpe.py calls load_engine(), and works without the engine if that fails.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import os
import re
import struct
import sys
import threading
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
COMMAND = "python -m build_ffi" if HERE.endswith("-packages") else "python build_ffi.py"  # -m if pip installed it
NAMES = ("gpt2", "cl100k", "o200k", "llama3", "qwen2")  # of the patterns that C scans
VERSION = 14  # of the interface: a module built for another version is not used


# ---------------------------------------------------------------------------------------------------------------------
# Using it
# ---------------------------------------------------------------------------------------------------------------------


class Engine:
    """The C engine, as bpe.py uses it: text and words are bytes, ids and counts are numbers."""

    def __init__(self, module: Any) -> None:
        self.ffi, self.lib = module.ffi, module.lib
        self.new_ids = self.ffi.new_allocator(should_clear_after_alloc=False)
        self.seed = struct.unpack("QQ", os.urandom(16))  # keeps chosen words from colliding in the hash table

    @functools.cached_property
    def patterns(self) -> Mapping[str, int]:
        """The patterns that C scans exactly as the installed regex package would, with their numbers."""
        import warnings

        import regex

        built_with = self.ffi.string(self.lib.bpe_regex_version).decode()
        if built_with != regex.__version__ and class_digest() != self.ffi.string(self.lib.bpe_class_digest).decode():
            text = f"the C engine was built with regex {built_with}, whose letters differ from {regex.__version__}; "
            warnings.warn(text + f"using regex instead ({COMMAND} rebuilds the engine)", stacklevel=2)
            return {}
        return {name: getattr(self.lib, f"BPE_{name.upper()}") for name in NAMES}

    def check(self, status: int) -> None:
        """Turn a return code into an exception; codes that callers handle themselves pass."""
        if status == self.lib.BPE_NO_MEMORY:
            raise MemoryError
        if status == self.lib.BPE_USED_UP:
            raise ValueError("these words were used up by an earlier training run, or by an error")
        if status == self.lib.BPE_OVERFLOW:
            raise OverflowError("a count above 2**63 - 1, or more than 2**32 bytes of distinct words")
        if status == self.lib.BPE_BAD_ARGUMENT:
            raise ValueError("an argument that the C engine can't use")

    def create(self, kind: str, *arguments: Any) -> Any:
        """Create something in C that is freed when Python no longer uses it."""
        new = self.ffi.new(f"bpe_{kind} **")
        status = getattr(self.lib, f"bpe_{kind}_new")(*arguments, new)
        handle = self.ffi.gc(new[0], getattr(self.lib, f"bpe_{kind}_free"))
        self.check(status)
        return handle

    def words(self, special_tokens: Sequence[str], pattern: str) -> Words:
        """Create an empty table of words and counts."""
        return Words(self, special_tokens, pattern)

    def encoder(self, tokenizer: Any) -> Encoder | None:
        """Create an encoder that gives the ids of a bpe.Tokenizer whose pattern is one of `patterns`.

        Returns None if C can't hold it (2**21 tokens, ids of 2**32), so that Python encodes.
        """
        with contextlib.suppress(OverflowError):
            return Encoder(self, tokenizer)
        return None

    def learn(
        self, words: Words | Mapping[bytes, int], id_of_byte: bytes, merges_wanted: int, min_frequency: int,
        max_token_length: int, smaller_ids: bool,
    ) -> Iterator[tuple[int, int, int, int]]:  # fmt: skip
        """Learn merges as bpe.learn_merges does, and yield (left_id, right_id, count, replaced) for each.

        Args:
            words: their counts; a table is used up, a dict is not changed.
            id_of_byte: the id of each byte's token; they are 0 to 255.
            merges_wanted: the largest number of merges.
            min_frequency: the smallest count of a merged pair.
            max_token_length: the most bytes of a token.
            smaller_ids: how ties are broken: by smaller ids, or by greater bytes.
        """
        ffi, lib = self.ffi, self.lib
        table = words if isinstance(words, Words) else self.words((), "gpt2")
        if not isinstance(words, Words):
            table.update(words)
        limits = min(merges_wanted, 2**64 - 1), min(min_frequency, 2**64 - 1), min(max_token_length, sys.maxsize)
        made, batch = ffi.new("size_t *"), ffi.new("bpe_merge[]", 1000)
        learner = self.create("learner", table.handle(), id_of_byte, *limits, smaller_ids)
        status = lib.BPE_OK
        while status != lib.BPE_DONE:
            status = lib.bpe_learner_run(learner, batch, len(batch), made)
            self.check(status)
            yield from struct.iter_unpack("IIQQ", ffi.buffer(batch)[: 24 * made[0]])


class Words:
    """Words and their counts inside the C engine, without a Python object for each word.

    Every thread that scans has a separate table. The tables are merged when the counts are needed.
    """

    def __init__(self, engine: Engine, special_tokens: Sequence[str], pattern: str) -> None:
        self.engine, self.local = engine, threading.local()
        self.tables: list[Any] = []
        number = engine.patterns.get(pattern, 0)
        self.arguments = *special_arguments(special_tokens), len(special_tokens), number, engine.seed

    def table(self) -> Any:
        """The table of this thread."""
        if not hasattr(self.local, "table"):
            self.local.table = self.engine.create("words", *self.arguments)
            self.tables.append(self.local.table)
        return self.local.table

    def handle(self) -> Any:
        """Merge all tables into one. Must not run while threads are scanning."""
        if not self.tables:
            return self.table()
        if len(self.tables) > 1:
            self.local = threading.local()  # threads that scan again start new tables
        while len(self.tables) > 1:
            table = self.tables.pop()
            self.engine.check(self.engine.lib.bpe_words_add(self.tables[0], table))
            self.engine.ffi.release(table)
        return self.tables[0]

    def scan(self, data: bytes) -> None:
        """Count the words of a text. Raises UnicodeDecodeError if it is not UTF-8."""
        ffi, lib, offset = self.engine.ffi, self.engine.lib, self.engine.ffi.new("size_t *")
        status = lib.bpe_words_scan(self.table(), ffi.from_buffer("uint8_t[]", data), len(data), offset)
        self.engine.check(status)
        if status == lib.BPE_BAD_UTF8:
            data.decode("utf-8")

    def update(self, counts: Mapping[bytes, int]) -> None:
        """Add words and their counts."""
        ffi, n = self.engine.ffi, len(counts)
        if max(map(len, counts), default=0) >= 1 << 32 or max(counts.values(), default=0) >= 1 << 63:
            self.engine.check(self.engine.lib.BPE_OVERFLOW)
        lengths = ffi.from_buffer("uint32_t[]", array("I", map(len, counts)))
        numbers = ffi.from_buffer("uint64_t[]", array("Q", counts.values()))
        data = ffi.from_buffer("uint8_t[]", b"".join(counts))
        self.engine.check(self.engine.lib.bpe_words_put(self.handle(), data, lengths, numbers, n))

    def sums(self) -> Any:
        """The struct bpe_totals of all tables."""
        sums = self.engine.ffi.new("bpe_totals *")
        self.engine.lib.bpe_words_totals(self.handle(), sums)
        return sums

    def totals(self) -> tuple[int, int, int]:
        """(distinct words, words, bytes in words)."""
        t = self.sums()
        return t.words, (t.pretokens_high << 32) + t.pretokens, (t.bytes_in_words_high << 32) + t.bytes_in_words

    def to_dict(self) -> dict[bytes, int]:
        """The words and their counts, sorted by descending count and then by bytes."""
        ffi, sums = self.engine.ffi, self.sums()
        blob, lengths = bytearray(sums.bytes), array("I", bytes(4 * sums.words))
        counts = array("Q", bytes(8 * sums.words))
        kinds = zip(("uint8_t[]", "uint32_t[]", "uint64_t[]"), (blob, lengths, counts))
        pointers = [ffi.from_buffer(kind, view, require_writable=True) for kind, view in kinds]
        self.engine.check(self.engine.lib.bpe_words_get(self.handle(), *pointers))
        ends = itertools.accumulate(lengths)
        return {bytes(blob[end - length : end]): count for end, length, count in zip(ends, lengths, counts)}


class Encoder:
    """The vocabulary of a bpe.Tokenizer inside the C engine. Each thread that encodes has a cache of words."""

    def __init__(self, engine: Engine, tokenizer: Any) -> None:
        self.engine, self.local = engine, threading.local()
        self.id_of_byte = [tokenizer.ids.get(bytes([byte])) for byte in range(256)]
        longest_first = sorted(tokenizer.special_ids, key=len, reverse=True)
        self.specials = re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")
        numbers: dict[int, int] = collections.defaultdict(itertools.count(256).__next__)  # in C the bytes come first
        numbers.update((token_id, byte) for byte, token_id in enumerate(self.id_of_byte) if token_id is not None)
        merges = array("I", map(numbers.__getitem__, itertools.chain.from_iterable(tokenizer.rules)))
        ids = [2**32 - 1 if token_id is None else token_id for token_id in self.id_of_byte]
        ids += [token_id for token_id, number in numbers.items() if number > 255]
        n, special_ids = len(tokenizer.special_ids), list(tokenizer.special_ids.values())
        specials = *special_arguments(tokenizer.special_ids), special_ids, n
        pattern = engine.patterns.get(tokenizer.options.pattern, 0)
        rows = engine.ffi.from_buffer("uint32_t[]", merges), len(merges) // 3
        self.handle = engine.create("encoder", ids, len(ids), *rows, *specials, pattern, engine.seed)

    def new_cache(self, kind: str = "u4") -> Any:
        """Create a cache of words, and their ids of this kind, for one thread."""
        return self.engine.create("cache", self.handle, kind == "u2")

    def encode(self, data: bytes) -> list[int]:
        """Encode text in UTF-8; raises UnicodeDecodeError, or ValueError for a byte without a token."""
        return array("I", self.encode_array(data, "u4")).tolist()

    def encode_array(self, data: bytes, kind: str) -> bytes:
        """Encode text into an array of kind "u4" or "u2" (32 or 16 bits per id)."""
        ffi, lib, local = self.engine.ffi, self.engine.lib, self.local
        if not hasattr(local, "caches"):
            local.caches, local.buffers = {}, []
        if kind not in local.caches:
            local.caches[kind] = self.new_cache(kind)
        # A signal handler may encode during this call, so the buffer is taken out of the list.
        ids = local.buffers.pop() if local.buffers else ()
        if not len(data) + 2 <= len(ids) <= 1 << 26:
            ids = self.engine.new_ids("uint32_t[]", len(data) + 2)  # fresh memory is slower
        n = ffi.new("size_t *")
        status = lib.bpe_encode(local.caches[kind], ffi.from_buffer("uint8_t[]", data), len(data), ids, n)
        self.engine.check(status)
        if status != lib.BPE_OK:
            self.explain(data)
        encoded = ffi.buffer(ids, n[0] * int(kind[1]))[:]
        local.buffers.append(ids)
        return bytes(encoded)

    def explain(self, data: bytes) -> None:
        """Raise the error for a text that can't be encoded."""
        for piece in self.specials.split(data.decode("utf-8"))[::2]:
            for at, byte in enumerate(utf8 := piece.encode("utf-8")):
                if self.id_of_byte[byte] is None:
                    context = utf8[max(at - 20, 0) : at + 20].decode("utf-8", "ignore")
                    raise ValueError(f"the vocabulary has no token for the byte {utf8[at : at + 1]!r}, in {context!r}")


def special_arguments(special_tokens: Iterable[str]) -> tuple[bytes, list[int]]:
    """Special tokens for a C function: their bytes, concatenated, and their lengths."""
    tokens = [token.encode("utf-8") for token in special_tokens]
    return b"".join(tokens), list(map(len, tokens))


def load_engine() -> Engine:
    """Load the engine that is built next to this file. Raises ImportError with the reason if that fails."""
    import importlib.machinery
    import importlib.util
    import warnings

    spec = importlib.machinery.PathFinder.find_spec("_bpe_fast", [HERE])
    if spec is None or not isinstance(spec.loader, importlib.machinery.ExtensionFileLoader):
        raise ImportError(f"the C engine is not built: {COMMAND} builds one that is many times faster")
    try:
        module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        version = module.lib.BPE_VERSION
    except ImportError as error:
        if "_cffi_backend" in str(error):
            raise ImportError("the C engine is built, but cffi is missing: pip install cffi") from None
        raise ImportError(f"the C engine is built, but does not load ({error}): {COMMAND} rebuilds it") from None
    if version != VERSION:
        raise ImportError(f"the C engine is built, but for another version: {COMMAND} rebuilds it")
    source_path = os.path.join(HERE, "bpe_fast.c")
    built_from = module.ffi.string(module.lib.bpe_source_digest).decode()
    if os.path.exists(source_path) and built_from != digest(read(source_path)):
        text = f"bpe_fast.c has changed since the C engine was built: {COMMAND} rebuilds it"
        warnings.warn(text, stacklevel=2)
    return Engine(module)


# ---------------------------------------------------------------------------------------------------------------------
# Building it
# ---------------------------------------------------------------------------------------------------------------------

# The classes of characters that patterns distinguish, in the order of bpe_fast.c. Everything else is class 0.
CLASSES = [r"[\p{Lu}\p{Lt}]+", r"\p{Ll}+", r"[\p{Lm}\p{Lo}]+", r"\p{M}+", r"\p{N}+", r"[^\S\r\n]+", r"[\r\n]+"]


@functools.lru_cache(maxsize=1)
def character_classes() -> bytes:
    """The class of each code point, one byte each, from the installed regex package."""
    import regex

    everything, classes = "".join(map(chr, range(0x110000))), bytearray(0x110000)
    for number, expression in enumerate(CLASSES, 1):
        for match in regex.finditer(expression, everything):
            classes[match.start() : match.end()] = bytes([number]) * len(match[0])
    return bytes(classes)


def class_table() -> str:
    """The classes as C: each distinct block of 256 code points once, and the number of each block."""
    import regex

    classes = character_classes()
    kinds = {**dict.fromkeys("\r\n", 7), **dict.fromkeys(" \t\v\f", 6), **dict.fromkeys("0123456789", 5)}
    expected = [kinds.get(c, c.isupper() + 2 * c.islower()) for c in map(chr, range(128))]
    if list(classes[:128]) != expected:
        raise SystemExit("build_ffi.py: the classes of ASCII in this regex package are not those bpe_fast.c relies on")
    blocks = [classes[start : start + 256] for start in range(0, 0x110000, 256)]
    distinct = list(dict.fromkeys(blocks))
    index = ",".join(str(distinct.index(block)) for block in blocks)
    rows = ",\n".join("{" + ",".join(map(str, block)) + "}" for block in distinct)
    return (
        f'const char bpe_regex_version[] = "{regex.__version__}";\n'
        f'const char bpe_class_digest[] = "{digest(classes)}";\n'
        f"const int bpe_cjk_are_letters = {+(set(classes[0x4E00:0xA000]) == {3})};\n"
        f"const uint16_t bpe_class_index[{len(blocks)}] = {{{index}}};\n"
        f"const uint8_t bpe_class_blocks[{len(distinct)}][256] = {{{rows}}};\n"
    )


def class_digest() -> str:
    """The digest that distinguishes the classes of regex versions."""
    return digest(character_classes())


def digest(data: bytes) -> str:
    """Eight characters that change when the data does."""
    return f"{zlib.crc32(data):08x}"


def read(path: str) -> bytes:
    """Read a file."""
    with open(path, "rb") as file:
        return file.read()


def prototypes() -> str:
    """The functions and types that Python uses: the part of bpe_fast.c between two markers."""
    code = read(os.path.join(HERE, "bpe_fast.c")).decode("utf-8")
    _, interface, _ = re.split(r"/\* ---- (?:interface|end of the interface).*\n", code)
    return f"enum {{ BPE_VERSION = {VERSION} }};\n{interface}"


def source() -> str:
    """The complete C source: the generated tables, then bpe_fast.c."""
    code = read(os.path.join(HERE, "bpe_fast.c"))
    head = f"#include <stdint.h>\nenum {{ BPE_VERSION = {VERSION} }};\n" + class_table()
    return head + f'const char bpe_source_digest[] = "{digest(code)}";\n#line 1 "bpe_fast.c"\n' + code.decode("utf-8")


FLAGS = "/O2" if sys.platform == "win32" else "-O3 -fvisibility=hidden"
NEEDS = "this requires a C compiler and `pip install regex cffi setuptools` (bpe.py works without it, more slowly)"


def module(flags: str = FLAGS, optional: bool = True) -> Any:
    """Describe the module to cffi. setup.py uses the defaults: if compiling fails, pip installs Python only."""
    from cffi import FFI

    ffi = FFI()
    ffi.cdef(prototypes())
    ffi.set_source("_bpe_fast", source(), extra_compile_args=flags.split(), optional=optional)
    return ffi


def build(flags: str) -> str:
    """Compile the module and install it next to this file; returns a summary line."""
    import shutil
    import tempfile

    ffi = module(flags, optional=False)
    with tempfile.TemporaryDirectory() as folder:
        try:
            built = ffi.compile(tmpdir=folder)
        except Exception as error:  # the class depends on the platform's compiler
            raise SystemExit(f"build_ffi.py: compiling failed ({flags}: {error}); {NEEDS}") from None
        target = os.path.join(HERE, os.path.basename(built))
        try:
            shutil.copy(built, target + ".tmp")
            os.replace(target + ".tmp", target)
        except OSError as error:
            raise SystemExit(f"build_ffi.py: {HERE} can't be written to: {error.strerror}") from None
    return f"built {target} ({flags})"


def main() -> None:
    """Run the command line. Raises SystemExit with one line if a requirement is missing."""
    import argparse

    parser = argparse.ArgumentParser(description="Build the C engine next to bpe.py.")
    parser.add_argument("--flags", default=FLAGS, help="compiler flags (default: %(default)s)")
    parser.add_argument("--source", metavar="FILE", help="only write the complete C source to FILE")
    args = parser.parse_args()
    try:
        if args.source:
            with open(args.source, "w", encoding="utf-8") as file:
                file.write(source())
        else:
            print(build(args.flags))
    except ImportError as error:
        raise SystemExit(f"build_ffi.py: {error}; {NEEDS}") from None


if __name__ == "__main__":
    main()
