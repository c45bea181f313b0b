"""The C engine of bpe.py, which is optional: `python build_ffi.py` builds it.

It compiles bpe_fast.c with cffi into a module beside bpe.py, which then finds it by itself. Needed: a C compiler, and
`pip install regex cffi setuptools`.

    python build_ffi.py                    build for this machine's processor
    python build_ffi.py --flags="-O3"      build with other flags, here for any processor of its kind
    python build_ffi.py --source FILE      only write the complete C source (for other build tools, and for .ci/)

This is the only file that knows cffi. bpe.py calls load_engine() and sees an Engine, or the reason why there is none.
"""

from __future__ import annotations

import collections
import functools
import itertools
import os
import struct
import sys
import threading
import zlib
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))

# What Python may call. cffi reads this, and it stands in front of the C: if the two disagree, it does not compile.
PROTOTYPES = """
enum { BPE_VERSION = 8 }; /* of the functions; a module that was built with another one is not used */
enum bpe_status { BPE_OK, BPE_NO_MEMORY, BPE_BAD_UTF8, BPE_OVERFLOW, BPE_NO_TOKEN, BPE_USED_UP };
enum bpe_pattern { BPE_GPT2, BPE_CL100K, BPE_O200K };

typedef struct bpe_words bpe_words;
typedef struct { uint64_t words, bytes, pretokens, pretokens_high, bytes_in_words, bytes_in_words_high; } bpe_totals;
bpe_words *bpe_words_new(const uint8_t *specials, const size_t *lengths, size_t n, int pattern, uint64_t seed);
void bpe_words_free(bpe_words *w);
int bpe_words_scan(bpe_words *w, const uint8_t *text, size_t length, size_t *bad_offset);
int bpe_words_put(bpe_words *w, const uint8_t *bytes, const uint32_t *lengths, const uint64_t *counts, size_t n);
void bpe_words_totals(const bpe_words *w, bpe_totals *totals);
int bpe_words_get(const bpe_words *w, uint8_t *bytes, uint32_t *lengths, uint64_t *counts);

typedef struct bpe_learner bpe_learner;
typedef struct { uint32_t left, right; uint64_t count, replaced; } bpe_merge;
int bpe_learner_new(bpe_words *w, const uint32_t *id_of_byte, const uint8_t *tokens, const size_t *lengths,
                    size_t n_tokens, uint64_t merges_wanted, uint64_t min_frequency, size_t max_token_length,
                    int smaller_ids, bpe_learner **learner);
int bpe_learner_run(bpe_learner *l, bpe_merge *merges, size_t most, size_t *made);
void bpe_learner_free(bpe_learner *l);

typedef struct bpe_encoder bpe_encoder; /* vocabulary and merges: never changes */
int bpe_encoder_new(const uint32_t *ids, size_t n_ids, const uint32_t *merges, size_t n_merges,
                    const uint32_t *special_ids, size_t n_specials, bpe_encoder **encoder);
void bpe_encoder_free(bpe_encoder *e);
int bpe_encode(const bpe_encoder *e, bpe_words *w, const uint8_t *text, size_t length, uint32_t *ids, size_t *n_ids,
               size_t *bad_offset, int narrow);
int bpe_words_add(bpe_words *w, const bpe_words *other, const bpe_encoder *e);

extern const char bpe_regex_version[];
extern const char bpe_class_digest[];
extern const char bpe_source_digest[];
"""


# ---------------------------------------------------------------------------------------------------------------------
# Using it
# ---------------------------------------------------------------------------------------------------------------------


class Engine:
    """What bpe.py sees of the C engine; text and words are bytes, ids and counts are numbers."""

    def __init__(self, module: Any) -> None:
        self.ffi, self.lib = module.ffi, module.lib
        self.new_ids = self.ffi.new_allocator(should_clear_after_alloc=False)
        self.seed = int.from_bytes(os.urandom(8), "little")  # so that nobody can build words that collide

    @functools.cached_property
    def patterns(self) -> Mapping[str, int]:
        """The patterns that C scans as the installed regex package would."""
        import warnings

        import regex

        built_with = self.ffi.string(self.lib.bpe_regex_version).decode()
        if built_with != regex.__version__ and class_digest() != self.ffi.string(self.lib.bpe_class_digest).decode():
            text = f"the C engine knows the letters of regex {built_with}, and {regex.__version__} has others; "
            warnings.warn(text + "using regex instead (python build_ffi.py builds the engine again)", stacklevel=2)
            return {}
        return {"gpt2": self.lib.BPE_GPT2, "cl100k": self.lib.BPE_CL100K, "o200k": self.lib.BPE_O200K}

    def check(self, status: int) -> None:
        """Turn a return code into an exception."""
        if status == self.lib.BPE_NO_MEMORY:
            raise MemoryError
        if status == self.lib.BPE_USED_UP:
            raise ValueError("these words were used up by an earlier training")
        if status == self.lib.BPE_OVERFLOW:
            raise OverflowError("a count above 2**63 - 1, or more than 2**32 bytes of distinct words")

    def words(self, special_tokens: Sequence[str], pattern: str) -> Words:
        """An empty table of words and counts."""
        return Words(self, special_tokens, pattern)

    def encoder(self, tokenizer: Any) -> Encoder:
        """An encoder that does what a bpe.Tokenizer with one of `patterns` does, or replays a bpe.Trainer's merges."""
        return Encoder(self, tokenizer)

    def start(self, trainer: Any, words: Any) -> tuple[int, Iterator[tuple[int, int, int, int]]]:
        """What a bpe.Trainer starts with: (how many tokens the words, a dict or a table, are made of; the steps)."""
        options, characters = trainer.options, trainer.options.pattern == "characters"
        if characters:  # an id takes four bytes; utf-32 begins with a mark
            rows = [row.encode("utf-32", "surrogatepass")[4:] for row in trainer.rows(words)]
            words = dict(zip(rows, words.values()))
        if isinstance(words, dict):
            words, counts = self.words((), "gpt2"), words
            words.update(counts)
        if trainer.merges:
            words = self.encoder(trainer).replay(words)
        spelling = b"" if characters or trainer.merges else trainer.id_of_byte
        limits = trainer.wanted, options.min_frequency, options.max_token_length or sys.maxsize
        steps = self.learn(words, spelling, trainer.tokens, limits, options.like is not None)
        return words.totals()[2] // (1 if spelling else 4), steps

    def learn(
        self, words: Words, spelling: bytes, tokens: Sequence[bytes], limits: tuple[int, int, int], smaller_ids: bool
    ) -> Iterator[tuple[int, int, int, int]]:
        """The twin of bpe.learn_merges: (left_id, right_id, count, replaced) for each merge. It uses the words up.

        spelling is the id of each byte, or empty if the words are rows of ids as uint32; limits are how many merges are
        wanted at the most, the least count, and the most bytes of a token.
        """
        ffi, lib = self.ffi, self.lib
        wanted, longest = min(limits[0], sys.maxsize), min(limits[2], sys.maxsize)
        least = min(limits[1], 2**64 - 1)
        new, made, batch = ffi.new("bpe_learner **"), ffi.new("size_t *"), ffi.new("bpe_merge[]", 1000)
        id_of_byte = ffi.new("uint32_t[]", list(spelling)) if spelling else ffi.NULL
        alphabet = b"".join(tokens), list(map(len, tokens)), len(tokens)
        self.check(lib.bpe_learner_new(words.handle(), id_of_byte, *alphabet, wanted, least, longest, smaller_ids, new))
        learner = ffi.gc(new[0], lib.bpe_learner_free)
        while wanted > 0:
            self.check(lib.bpe_learner_run(learner, batch, min(wanted, len(batch)), made))
            yield from struct.iter_unpack("IIQQ", ffi.buffer(batch)[: 24 * made[0]])
            if not made[0]:
                return
            wanted -= made[0]


class Words:
    """Words and their counts inside the C engine; there is no Python object for each of them.

    Every thread that scans has a table of its own; they are added up as soon as somebody wants to see the counts.
    """

    def __init__(self, engine: Engine, special_tokens: Sequence[str], pattern: str) -> None:
        self.engine, self.local = engine, threading.local()
        self.tables: list[Any] = []
        self.arguments = (*joined(special_tokens)[:3], engine.patterns.get(pattern, 0), engine.seed)

    def handle(self) -> Any:
        """One table with all counts; not while threads are scanning."""
        if not self.tables:
            return self.table()
        for table in self.tables[1:]:
            self.engine.check(self.engine.lib.bpe_words_add(self.tables[0], table, self.engine.ffi.NULL))
            self.engine.ffi.release(table)
        del self.tables[1:]
        return self.tables[0]

    def table(self) -> Any:
        """The table of this thread."""
        if not hasattr(self.local, "table"):
            lib = self.engine.lib
            self.local.table = self.engine.ffi.gc(lib.bpe_words_new(*self.arguments), lib.bpe_words_free)
            if not self.local.table:
                raise MemoryError
            self.tables.append(self.local.table)
        return self.local.table

    def scan(self, text: Any) -> bool:
        """Count the words of a text; False if it is not UTF-8."""
        ffi, lib, offset = self.engine.ffi, self.engine.lib, self.engine.ffi.new("size_t *")
        status = lib.bpe_words_scan(self.table(), ffi.from_buffer("uint8_t[]", text), len(text), offset)
        self.engine.check(status)
        return bool(status != lib.BPE_BAD_UTF8)

    def put(self, blob: bytes, lengths: Sequence[int], counts: Sequence[int]) -> None:
        """Add words that lie one after the other, with their lengths and counts."""
        ffi, n = self.engine.ffi, len(counts)
        if max(lengths, default=0) >= 1 << 32 or max(counts, default=0) >= 1 << 63:
            self.engine.check(self.engine.lib.BPE_OVERFLOW)
        views = [array(code, numbers) for code, numbers in (("I", lengths), ("Q", counts))]
        pointers = [ffi.from_buffer(kind, view) for kind, view in zip(("uint32_t[]", "uint64_t[]"), views)]
        data = ffi.from_buffer("uint8_t[]", blob)
        self.engine.check(self.engine.lib.bpe_words_put(self.handle(), data, *pointers, n))

    def update(self, counts: Mapping[bytes, int]) -> None:
        """Add words and their counts."""
        self.put(b"".join(counts), list(map(len, counts)), list(counts.values()))

    def totals(self) -> tuple[int, int, int, int]:
        """(distinct words, words, bytes in words, bytes in distinct words)."""
        totals = self.engine.ffi.new("bpe_totals *")
        self.engine.lib.bpe_words_totals(self.handle(), totals)
        pretokens = (totals.pretokens_high << 32) + totals.pretokens
        return totals.words, pretokens, (totals.bytes_in_words_high << 32) + totals.bytes_in_words, totals.bytes

    def arrays(self) -> tuple[bytearray, array[int], array[int]]:
        """All words one after the other, their lengths and their counts, by falling count and then by bytes."""
        ffi, (n, _, _, n_bytes) = self.engine.ffi, self.totals()
        blob, lengths, counts = bytearray(n_bytes), array("I", bytes(4 * n)), array("Q", bytes(8 * n))
        kinds = zip(("uint8_t[]", "uint32_t[]", "uint64_t[]"), (blob, lengths, counts))
        pointers = [ffi.from_buffer(kind, view, require_writable=True) for kind, view in kinds]
        self.engine.check(self.engine.lib.bpe_words_get(self.handle(), *pointers))
        return blob, lengths, counts

    def to_dict(self) -> dict[bytes, int]:
        """The words and their counts."""
        blob, lengths, counts = self.arrays()
        ends = itertools.accumulate(lengths)
        return {bytes(blob[end - length : end]): count for end, length, count in zip(ends, lengths, counts)}


class Encoder:
    """The vocabulary of a bpe.Tokenizer inside the C engine; each thread that encodes has a memory of words."""

    def __init__(self, engine: Engine, tokenizer: Any) -> None:
        ffi, lib = engine.ffi, engine.lib
        self.engine, self.local = engine, threading.local()
        numbers: dict[int, int] = collections.defaultdict(itertools.count(256).__next__)  # in C the bytes come first
        numbers.update((token_id, byte) for byte, token_id in enumerate(tokenizer.id_of_byte) if token_id is not None)
        triples = ((*pair, made) for pair, made in zip(tokenizer.ranks, tokenizer.merged))
        merges = array("I", map(numbers.__getitem__, itertools.chain.from_iterable(triples)))
        ids = [2**32 - 1 if token_id is None else token_id for token_id in tokenizer.id_of_byte]
        ids += [token_id for token_id, number in numbers.items() if number > 255]
        numbered = getattr(tokenizer, "special_ids", {})  # no word of a Trainer has any
        *specials, order = joined(numbered)
        special_ids = [numbered[special] for special in order]
        self.arguments = (*specials, engine.patterns.get(tokenizer.options.pattern, 0), engine.seed)
        new, rows = ffi.new("bpe_encoder **"), ffi.from_buffer("uint32_t[]", merges)
        engine.check(lib.bpe_encoder_new(ids, len(ids), rows, len(merges) // 3, special_ids, len(special_ids), new))
        self.handle = ffi.gc(new[0], lib.bpe_encoder_free)

    def encode(self, text: bytes, kind: str = "u4") -> Any:
        """The ids of a text as an array in memory of kind "u4" or "u2"; None where Python has to say what is wrong.

        The array is this thread's, and good until its next call.
        """
        ffi, lib = self.engine.ffi, self.engine.lib
        if not hasattr(self.local, "memory"):
            self.local.memory = ffi.gc(lib.bpe_words_new(*self.arguments), lib.bpe_words_free)
            self.local.ids = ()
            if not self.local.memory:
                raise MemoryError
        if not len(text) <= len(self.local.ids) <= 1 << 26 or not text:
            self.local.ids = self.engine.new_ids("uint32_t[]", len(text))  # fresh memory costs a quarter of the time
        ids, n, offset = self.local.ids, ffi.new("size_t *"), ffi.new("size_t *")
        data = ffi.from_buffer("uint8_t[]", text)
        status = lib.bpe_encode(self.handle, self.local.memory, data, len(text), ids, n, offset, kind == "u2")
        self.engine.check(status)
        if status != lib.BPE_OK:
            return None
        return memoryview(ffi.buffer(ids, n[0] * int(kind[1]))).cast("H" if kind == "u2" else "I")

    def replay(self, words: Words) -> Words:
        """Words as rows of ids (uint32), with the merges of the vocabulary made."""
        rows = self.engine.words((), "gpt2")
        self.engine.check(self.engine.lib.bpe_words_add(rows.handle(), words.handle(), self.handle))
        return rows


def joined(special_tokens: Collection[str]) -> tuple[bytes, list[int], int, list[str]]:
    """Special tokens as C takes them, by their bytes: (all one after the other, lengths, how many, in which order)."""
    order = sorted(special_tokens)  # code points have the order of their bytes in UTF-8
    tokens = [token.encode("utf-8") for token in order]
    return b"".join(tokens), list(map(len, tokens)), len(tokens), order


def load_engine() -> tuple[Engine | None, str]:
    """(the engine, "") where it is built beside this file, else (None, why it is not used)."""
    import importlib.machinery
    import importlib.util
    import warnings

    spec = importlib.machinery.PathFinder.find_spec("_bpe_fast", [HERE])
    if spec is None or not isinstance(spec.loader, importlib.machinery.ExtensionFileLoader):
        return None, "the C engine is not built: python build_ffi.py builds one that is many times faster"
    try:
        module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        version = module.lib.BPE_VERSION
    except ImportError as error:
        if "_cffi_backend" in str(error):
            return None, "the C engine is built, but cffi is missing: pip install cffi"
        return None, f"the C engine is built, but does not load ({error}): python build_ffi.py builds it again"
    if f"BPE_VERSION = {version} " not in PROTOTYPES:
        return None, "the C engine is built, but for another version: python build_ffi.py builds it again"
    source_path = os.path.join(HERE, "bpe_fast.c")
    built_from = module.ffi.string(module.lib.bpe_source_digest).decode()
    if os.path.exists(source_path) and built_from != digest(read(source_path)):
        text = "bpe_fast.c has changed since the C engine was built: python build_ffi.py builds it again"
        warnings.warn(text, stacklevel=2)
    return Engine(module), ""


# ---------------------------------------------------------------------------------------------------------------------
# Building it
# ---------------------------------------------------------------------------------------------------------------------

# What a pattern can distinguish, in the order of the classes in bpe_fast.c; what is in none of them is class 0.
CLASSES = [r"[\p{Lu}\p{Lt}]+", r"\p{Ll}+", r"[\p{Lm}\p{Lo}]+", r"\p{M}+", r"\p{N}+", r"[^\S\r\n]+", r"[\r\n]+"]


@functools.lru_cache(maxsize=1)
def character_classes() -> bytes:
    """A byte for each code point, the number of its class, as the installed regex package has it."""
    import regex

    everything, classes = "".join(map(chr, range(0x110000))), bytearray(0x110000)
    for number, expression in enumerate(CLASSES, 1):
        for match in regex.finditer(expression, everything):
            classes[match.start() : match.end()] = bytes([number]) * len(match[0])
    return bytes(classes)


def class_table() -> str:
    """The classes as C: blocks of 256 code points, each different one once, and the number of each block."""
    import regex

    classes = character_classes()
    kinds = {**dict.fromkeys("\r\n", 7), **dict.fromkeys(" \t\v\f", 6), **dict.fromkeys("0123456789", 5)}
    expected = [kinds.get(c, c.isupper() + 2 * c.islower()) for c in map(chr, range(128))]
    if list(classes[:128]) != expected:
        raise SystemExit("build_ffi.py: this regex package has other classes for ASCII than bpe_fast.c expects")
    blocks = [classes[start : start + 256] for start in range(0, 0x110000, 256)]
    distinct = list(dict.fromkeys(blocks))
    index = ",".join(str(distinct.index(block)) for block in blocks)
    rows = ",\n".join("{" + ",".join(map(str, block)) + "}" for block in distinct)
    kind = "uint8_t" if len(distinct) <= 256 else "uint16_t"
    return (
        f'const char bpe_regex_version[] = "{regex.__version__}";\n'
        f'const char bpe_class_digest[] = "{digest(classes)}";\n'
        f"enum {{ CJK_ARE_LETTERS = {+(set(classes[0x4E00:0xA000]) == {3})} }};\n"
        f"static const {kind} bpe_class_index[{len(blocks)}] = {{{index}}};\n"
        f"static const uint8_t bpe_class_blocks[{len(distinct)}][256] = {{{rows}}};\n"
    )


def class_digest() -> str:
    """What tells the classes of one version of regex from those of another."""
    return digest(character_classes())


def digest(data: bytes) -> str:
    """8 characters that stand for some bytes, to notice a change by."""
    return f"{zlib.crc32(data):08x}"


def read(path: str) -> bytes:
    """The bytes of a file."""
    with open(path, "rb") as file:
        return file.read()


def source() -> str:
    """The complete C source: prototypes, classes, bpe_fast.c."""
    code = read(os.path.join(HERE, "bpe_fast.c"))
    digest_line = f'const char bpe_source_digest[] = "{digest(code)}";\n'
    head = "#include <stddef.h>\n#include <stdint.h>\n" + PROTOTYPES + class_table() + digest_line
    return head + code.decode("utf-8")


def build(flags: str | None) -> str:
    """Compile, and put the module beside bpe.py: -> a line that says what was built."""
    import shutil
    import tempfile

    from cffi import FFI

    attempts = ["-O3 -march=native", "-O3 -mcpu=native", "-O3"]  # the second is what some compilers for ARM want
    if flags is not None or sys.platform == "win32":
        attempts = [flags or "/O2"]
    errors = []
    for attempt in attempts:
        ffi = FFI()
        ffi.cdef(PROTOTYPES)
        ffi.set_source("_bpe_fast", source(), extra_compile_args=attempt.split())
        with tempfile.TemporaryDirectory() as folder:
            try:
                built = ffi.compile(tmpdir=folder)
            except Exception as error:  # each platform's compiler fails with another class
                errors.append(f"{attempt}: {error}")
                continue
            target = os.path.join(HERE, os.path.basename(built))
            try:
                shutil.copy(built, target + ".tmp")
                os.replace(target + ".tmp", target)
            except OSError as error:
                raise SystemExit(f"build_ffi.py: {HERE} can't be written to: {error.strerror}") from None
            return f"built {target} ({attempt})"
    raise SystemExit(
        f"build_ffi.py: it does not compile ({errors[-1]}); needed are a C compiler and `pip install regex cffi "
        "setuptools` (bpe.py works without it, only slower)"
    )


def main() -> None:
    """The command line; SystemExit with one line where something is missing."""
    import argparse

    parser = argparse.ArgumentParser(description="Build the C engine of bpe.py beside it.")
    parser.add_argument("--flags", help="for the compiler (default: optimized for this machine's processor)")
    parser.add_argument("--source", metavar="FILE", help="only write the complete C source to FILE")
    args = parser.parse_args()
    try:
        if args.source:
            with open(args.source, "w", encoding="utf-8") as file:
                file.write(source())
        else:
            print(build(args.flags))
    except ImportError as error:
        raise SystemExit(
            f"build_ffi.py: {error}; `pip install regex cffi setuptools` installs what is needed "
            "(bpe.py works without it, only slower)"
        ) from None


if __name__ == "__main__":
    main()
