"""Build the optional C engine of bpe.py, and wrap it for Python.

`python build_ffi.py` compiles bpe_fast.c into a module next to this file. It requires a C compiler and
`pip install regex cffi setuptools`. bpe.py calls load_engine(), which returns an Engine or raises ImportError.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import importlib.machinery
import importlib.util
import itertools
import os
import pathlib
import re
import struct
import sys
import types
import warnings
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import regex

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = pathlib.Path(HERE, "bpe_fast.c")
COMMAND = "python -m build_ffi" if HERE.endswith("-packages") else "python build_ffi.py"  # -m if pip installed it
NAMES = ("gpt2", "cl100k", "o200k", "llama3", "qwen2")  # of the patterns that C scans
VERSION = 19  # of the interface: a module built for another version is not used


class Engine:
    """The C engine, as bpe.py uses it: text and words are bytes, ids and counts are numbers."""

    def __init__(self, module: Any) -> None:
        self.ffi, self.lib = module.ffi, module.lib
        self.new = self.ffi.new_allocator(should_clear_after_alloc=False)
        self.seed = struct.unpack("QQ", os.urandom(16))  # keeps chosen words from colliding in the hash table
        self.words = functools.partial(Words, self)  # (special_tokens, pattern): create an empty table of words

    @functools.cached_property
    def patterns(self) -> Mapping[str, int]:
        """The patterns that C scans exactly as the installed regex package would, with their numbers."""
        built_with = self.ffi.string(self.lib.bpe_regex_version).decode()
        digest_then = self.ffi.string(self.lib.bpe_class_digest).decode()
        if built_with != regex.__version__ and digest_then != digest(character_classes()):
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
        if status in (self.lib.BPE_TOO_MANY_TOKENS, self.lib.BPE_LONG_WORD):
            raise OverflowError("2**21 tokens or more, or a word of 2**32 bytes or more")
        if status == self.lib.BPE_OVERFLOW:
            raise OverflowError("2**63 bytes of words or more, counting every occurrence")
        if status == self.lib.BPE_TOO_MANY_WORDS:
            raise OverflowError("2**32 bytes of distinct words or more; leave out rare words with min_word_count=N")

    def create(self, kind: str, *arguments: Any) -> Any:
        """Create something in C that is freed when Python no longer uses it."""
        new = self.ffi.new(f"bpe_{kind} **")
        try:
            status = getattr(self.lib, f"bpe_{kind}_new")(*arguments, new)
        finally:  # Ctrl-C while C makes a learner, of a million words, say, is raised here
            handle = self.ffi.gc(new[0], getattr(self.lib, f"bpe_{kind}_free"))
        self.check(status)
        return handle

    def special_arguments(self, special_tokens: Iterable[str]) -> tuple[bytes, Any, int]:
        """Special tokens for a C function: their bytes, concatenated, their lengths, and their number.

        Not lists as arguments: for a long one, cffi raises SystemError if there is no memory for a copy.
        """
        tokens = [token.encode("utf-8") for token in special_tokens]
        return b"".join(tokens), self.ffi.new("size_t[]", list(map(len, tokens))), len(tokens)

    def encoder(self, tokenizer: Any) -> Encoder | None:
        """Create an encoder for a bpe.Tokenizer; None if C can't hold it (2**21 tokens, ids of 2**32)."""
        with contextlib.suppress(OverflowError):
            return Encoder(self, tokenizer)
        return None

    def learn(self, words: Words | Mapping[bytes, int], merges_wanted: int, min_frequency: int) -> Iterator[Any]:
        """Yield what bpe.learn_merges yields. A table of words is used up, a dict is not."""
        ffi, lib = self.ffi, self.lib
        table = words if isinstance(words, Words) else self.words((), "gpt2")
        if not isinstance(words, Words):
            table.update(words)
        made, batch = ffi.new("size_t *"), ffi.new("bpe_merge[]", 1000)
        learner = self.create("learner", table.handle(), *(min(n, 2**64 - 1) for n in (merges_wanted, min_frequency)))
        tokens = [bytes([byte]) for byte in range(256)]
        status = lib.BPE_OK
        while status != lib.BPE_DONE:
            status = lib.bpe_learner_run(learner, batch, len(batch), made)
            self.check(status)
            for left, right, count, replaced in struct.iter_unpack("IIQQ", ffi.buffer(batch)[: 24 * made[0]]):
                tokens.append(tokens[left] + tokens[right])
                yield tokens[left], tokens[right], count, replaced


class Words:
    """Words and their counts in C. A call that scans takes a table that no other call uses; they are merged later."""

    def __init__(self, engine: Engine, special_tokens: Sequence[str], pattern: str) -> None:
        self.engine = engine
        arguments = *engine.special_arguments(special_tokens), engine.patterns.get(pattern, 0), engine.seed
        self.new_table = functools.partial(engine.create, "words", *arguments)
        self.tables: list[Any] = [self.new_table()]  # none after an error, which lost words
        self.free = self.tables[:]  # the tables that no call is using

    def scan(self, *texts: bytes) -> None:
        """Count the words of texts. Raises UnicodeDecodeError for one that is not UTF-8.

        After an error, the table stays in `tables`, but is no longer free: handle() reports it as used up.
        """
        for data in texts:
            try:
                table = self.free.pop()
            except IndexError:
                self.check_tables()
                table = self.new_table()
                self.tables.append(table)
            status = self.engine.lib.bpe_words_scan(table, data, len(data))
            if status == self.engine.lib.BPE_BAD_UTF8:
                data.decode("utf-8")  # raises the error
            self.engine.check(status)
            self.free.append(table)

    def update(self, counts: Mapping[bytes, int]) -> None:
        """Add words and their counts."""
        arrays = array("Q", map(len, counts)), array("Q", counts.values())
        numbers = (self.engine.ffi.from_buffer("uint64_t[]", numbers) for numbers in arrays)
        self.put(self.handle(), b"".join(counts), *numbers)

    def put(self, table: Any, *words: Any) -> None:
        """Add words to a table: concatenated, their lengths, their counts."""
        self.engine.check(self.engine.lib.bpe_words_put(table, *words, len(words[1])))

    def get(self, table: Any, min_count: int = 1) -> tuple[Any, Any, Any]:
        """The words of a table that occur at least min_count times, as put() takes them."""
        new, sums = self.engine.new, self.sums(table, min_count)
        words = new("uint8_t[]", sums.bytes), new("uint64_t[]", sums.words), new("uint64_t[]", sums.words)
        self.engine.check(self.engine.lib.bpe_words_get(table, min_count, *words, sums))
        return words

    def sums(self, table: Any, min_count: int = 1) -> Any:
        """The struct bpe_totals of the words in a table that occur at least min_count times."""
        null, sums = [self.engine.ffi.NULL] * 3, self.engine.ffi.new("bpe_totals *")
        self.engine.lib.bpe_words_get(table, min_count, *null, sums)
        return sums

    def handle(self) -> Any:
        """Merge all tables into one. Must not run while threads are scanning."""
        self.check_tables()
        # Ctrl-C between release() and put() loses words: then no table is left, and the next call raises.
        tables, self.tables, self.free = self.tables, [], []
        while len(tables) > 1:
            words = self.get(tables[-1])
            self.engine.ffi.release(tables.pop())  # so that memory holds these words twice at most
            self.put(tables[0], *words)
        self.tables, self.free = tables, tables[:]
        return tables[0]

    def check_tables(self) -> None:
        """Raise the error of words that were used up if an earlier call failed, and lost some."""
        if not self.tables:
            self.engine.check(self.engine.lib.BPE_USED_UP)

    def drop_rare(self, n: int) -> tuple[int, int]:
        """Leave out words that occur fewer than n times; returns (distinct words, occurrences) left out."""
        if n < 2:
            return 0, 0
        before, words = self.totals(), self.get(self.handle(), min(n, 2**64 - 1))
        self.free = []
        self.engine.ffi.release(self.tables.pop())
        table = self.new_table()
        self.put(table, *words)
        self.tables, self.free = [table], [table]
        return before[0] - self.totals()[0], before[1] - self.totals()[1]

    def totals(self) -> tuple[int, int, int]:
        """(distinct words, all words, bytes of all words)."""
        sums = self.sums(self.handle())
        return sums.words, sums.all_words, sums.all_bytes

    def copy(self) -> dict[bytes, int]:
        """The words and their counts, in any order."""
        blob, lengths, counts = self.get(self.handle())
        view, ends = self.engine.ffi.buffer(blob), itertools.accumulate(lengths)
        return {view[end - length : end]: count for end, length, count in zip(ends, lengths, counts)}


class Encoder:
    """The vocabulary of a bpe.Tokenizer inside the C engine, which any number of threads can share."""

    def __init__(self, engine: Engine, tokenizer: Any) -> None:
        self.engine = engine
        self.calls: list[Any] = []  # a cache and buffers for each call that has run at the same time as others
        self.free: list[Any] = []  # those that no call is using
        id_of_byte = [tokenizer.ids.get(bytes([byte])) for byte in range(256)]
        in_c: dict[int, int] = collections.defaultdict(itertools.count(256).__next__)  # in C the bytes come first
        in_c.update((token_id, byte) for byte, token_id in enumerate(id_of_byte) if token_id is not None)
        merges = array("I", map(in_c.__getitem__, itertools.chain.from_iterable(tokenizer.rules)))
        ids: Any = [2**32 - 1 if token_id is None else token_id for token_id in id_of_byte]
        ids += [token_id for token_id, number in in_c.items() if number > 255]
        specials = engine.special_arguments(tokenizer.special_ids)
        ids = engine.ffi.new("uint32_t[]", ids)
        special_ids = engine.ffi.new("uint32_t[]", list(tokenizer.special_ids.values()))
        rows, pattern = engine.ffi.from_buffer("uint32_t[]", merges), engine.patterns.get(tokenizer.pattern, 0)
        arguments = ids, len(ids), rows, len(merges) // 3, *specials, special_ids, pattern, engine.seed
        self.handle = engine.create("encoder", *arguments)
        n = max(tokenizer.vocab, default=0) + 1
        self.numbers = list(range(n if n <= 2**20 else 0))  # more would take too much memory
        self.addresses = engine.ffi.new("uintptr_t[]", list(map(id, self.numbers)))
        self.for_lists = engine.ffi.new("bpe_for_lists *", (engine.ffi.NULL, self.addresses))
        functions: list[Any] = []
        engine.check(engine.lib.bpe_list_functions(self.for_lists, id(functions)))
        if not self.numbers:
            functions = [lambda data: None, lambda ids: array("I", ids).tolist()]
        self.encode_short, self.list_of = functions

    def encode(self, data: bytes) -> list[int]:
        """Encode a text. Raises UnicodeDecodeError, or ValueError for a byte without a token."""
        ids: list[int] | None = self.encode_short(data)
        return self.list_of(self.encode_array(data, "u4")) if ids is None else ids

    def encode_array(self, data: bytes, kind: str) -> bytes:
        """The same, as an array of 16 bits per id (kind "u2") or 32 ("u4"), in native byte order."""
        ffi, lib = self.engine.ffi, self.engine.lib
        try:
            call = self.free.pop()
        except IndexError:
            call = types.SimpleNamespace(cache=self.engine.create("cache", self.handle), n=ffi.new("size_t *"), ids=())
            # C never points to a cache that Python may free: `calls` keeps each one as long as this encoder.
            # Ctrl-C just after pop() leaves a cache that isn't free, and to which for_lists may still point;
            # so does an append() in `finally` that runs out of memory. If nothing else kept that cache, the
            # next short text would be looked up in freed memory.
            self.calls.append(call)
        try:
            self.for_lists.cache = ffi.NULL  # another thread may encode a short text while this call uses the cache
            room = len(call.ids) // 3 * 2
            if not len(data) + 2 <= room <= 1 << 26:
                room = max(len(data) + 3, 1000) // 2 * 2
                call.ids = self.engine.new("uint32_t[]", room // 2 * 3)  # fresh memory is slower
            narrow, size = (ffi.cast("uint16_t *", call.ids + room), 2) if kind == "u2" else (ffi.NULL, 4)
            status = lib.bpe_encode(call.cache, data, len(data), call.ids, narrow, call.n)
            if status:
                self.refuse(status, data, call.n[0])
            return bytes(ffi.buffer(narrow or call.ids, call.n[0] * size))
        finally:
            # in this order: as soon as a call is free, another thread may use its cache
            self.for_lists.cache = call.cache
            self.free.append(call)

    def refuse(self, status: int, data: bytes, at: int) -> None:
        """Raise the error of a text that can't be encoded; `at` is the byte without a token."""
        self.engine.check(status)
        data.decode("utf-8")  # may raise UnicodeDecodeError
        start = len(data[:at].decode("utf-8", "ignore").encode("utf-8"))  # of its character
        place = data[start : start + 160].decode("utf-8", "ignore")[:40]
        raise ValueError(f"the vocabulary has no token for the byte {data[at : at + 1]!r}, in {place!r}")


def load_engine() -> Engine:
    """Load the engine that is built next to this file. Raises ImportError with the reason it is unavailable."""
    spec = importlib.machinery.PathFinder.find_spec("_bpe_fast", [HERE])
    if spec is None or not isinstance(spec.loader, importlib.machinery.ExtensionFileLoader):
        raise ImportError(f"the C engine is not built: {COMMAND} builds one that is many times faster")
    try:
        module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        if "_cffi_backend" in str(error):
            raise ImportError("the C engine is built, but cffi is missing: pip install cffi") from None
        raise ImportError(f"the C engine is built, but does not load ({error}): {COMMAND} rebuilds it") from None
    if module.lib.BPE_VERSION != VERSION:
        raise ImportError(f"the C engine is built, but for another version: {COMMAND} rebuilds it")
    if SOURCE.exists() and digest(SOURCE.read_bytes()) != module.ffi.string(module.lib.bpe_source_digest).decode():
        warnings.warn(f"bpe_fast.c has changed since the C engine was built: {COMMAND} rebuilds it", stacklevel=2)
    return Engine(module)


# The classes of characters that patterns distinguish, in the order of bpe_fast.c. Everything else is class 0.
CLASSES = [r"[\p{Lu}\p{Lt}]+", r"\p{Ll}+", r"[\p{Lm}\p{Lo}]+", r"\p{M}+", r"\p{N}+", r"[^\S\r\n]+", r"[\r\n]+"]


@functools.lru_cache(maxsize=1)
def character_classes() -> bytes:
    """The class of each code point, one byte each, from the installed regex package."""
    everything, classes = "".join(map(chr, range(0x110000))), bytearray(0x110000)
    for match in regex.finditer("|".join(f"({expression})" for expression in CLASSES), everything):
        classes[match.start() : match.end()] = bytes([match.lastindex or 0]) * len(match[0])
    return bytes(classes)


def class_table() -> str:
    """The classes as C: each distinct block of 256 code points once, and the number of each block."""
    classes = character_classes()
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


def digest(data: bytes) -> str:
    """Eight characters that change when the data does."""
    return f"{zlib.crc32(data):08x}"


def prototypes() -> str:
    """The functions and types that Python uses: the part of bpe_fast.c between two markers."""
    _, interface, _ = re.split(r"/\* ---- (?:interface|end of the interface).*\n", SOURCE.read_text(encoding="utf-8"))
    return f"enum {{ BPE_VERSION = {VERSION} }};\n{interface}"


def source() -> str:
    """The complete C source: the generated tables, then bpe_fast.c."""
    code = SOURCE.read_bytes()
    head = f"#include <stdint.h>\nenum {{ BPE_VERSION = {VERSION} }};\n" + class_table()
    return head + f'const char bpe_source_digest[] = "{digest(code)}";\n#line 1 "bpe_fast.c"\n' + code.decode("utf-8")


# Only this part uses Python.h. Its two functions make lists of int objects that exist already, whose addresses are in
# `numbers`: new ones take longer than encoding does. Python calls them, since cffi takes longer than a short text does.
GLUE_TYPES = """typedef struct { bpe_cache *cache; const uintptr_t *numbers; } bpe_for_lists;
int bpe_list_functions(bpe_for_lists *f, uintptr_t functions);
"""
GLUE = """
#ifdef Py_LIMITED_API
#define PyList_SET_ITEM PyList_SetItem /* a function, which takes longer */
#endif

static PyObject *new_list(const bpe_for_lists *f, const uint32_t *ids, size_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; list && i < n; i++) {
        PyObject *number = (PyObject *)f->numbers[ids[i]];
        Py_INCREF(number); /* the list takes this reference over */
        PyList_SET_ITEM(list, (Py_ssize_t)i, number);
    }
    return list;
}

static PyObject *list_of(PyObject *self, PyObject *ids)
{
    return new_list(PyLong_AsVoidPtr(self), (uint32_t *)PyBytes_AsString(ids), (size_t)PyBytes_Size(ids) / 4);
}

/* The list of ids; or None for a long text, for an error, and if no cache is free, or threads may run this at once. */
static PyObject *encode_short(PyObject *self, PyObject *data)
{
#ifndef Py_GIL_DISABLED
    const bpe_for_lists *f = PyLong_AsVoidPtr(self);
    uint32_t ids[4000];
    size_t n = (size_t)PyBytes_Size(data);
    if (n <= 4000 - 2 && f->cache && bpe_encode(f->cache, (void *)PyBytes_AsString(data), n, ids, NULL, &n) == BPE_OK)
        return new_list(f, ids, n);
#endif
    return PyErr_Occurred() ? NULL : Py_BuildValue(""); /* None */
}

int bpe_list_functions(bpe_for_lists *f, uintptr_t functions)
{
    static PyMethodDef methods[] = {{"encode_short", encode_short, METH_O, NULL}, {"list_of", list_of, METH_O, NULL}};
    PyGILState_STATE state = PyGILState_Ensure(); /* cffi has released the GIL */
    PyObject *self = PyLong_FromVoidPtr(f), *list = (PyObject *)functions;
    PyObject *first = PyCFunction_New(&methods[0], self), *second = PyCFunction_New(&methods[1], self);
    int failed = PyErr_Occurred() || PyList_Append(list, first) || PyList_Append(list, second);
    PyErr_Clear();
    Py_XDECREF(self);
    Py_XDECREF(first);
    Py_XDECREF(second);
    PyGILState_Release(state);
    return failed ? BPE_NO_MEMORY : BPE_OK;
}
"""

FLAGS = "/O2" if sys.platform == "win32" else "-O3 -fvisibility=hidden"
NEEDS = "this requires a C compiler and `pip install regex cffi setuptools` (bpe.py works without it, more slowly)"


def module(flags: str = FLAGS, optional: bool = True) -> Any:
    """Describe the module to cffi. setup.py uses the defaults: if compiling fails, pip installs Python only."""
    from cffi import FFI

    full: dict[str, Any] = {"py_limited_api": False, "define_macros": [("_CFFI_NO_LIMITED_API", None)]}
    api = {} if "BPE_LIMITED_API" in os.environ else full  # one module for all versions of Python, or for this one
    ffi = FFI()
    ffi.cdef(prototypes() + GLUE_TYPES)
    code = source() + GLUE_TYPES + GLUE
    ffi.set_source("_bpe_fast", code, extra_compile_args=flags.split(), optional=optional, **api)
    return ffi


def build(flags: str = FLAGS) -> str:
    """Compile the module and install it next to this file; returns a summary line."""
    import shutil
    import tempfile

    try:
        ffi = module(flags, optional=False)
        with tempfile.TemporaryDirectory() as folder:
            built = ffi.compile(tmpdir=folder)
            target = os.path.join(HERE, os.path.basename(built))
            shutil.copy(built, target + ".tmp")
            os.replace(target + ".tmp", target)
    except Exception as error:  # the class depends on the platform's compiler
        raise SystemExit(f"build_ffi.py: building failed ({flags}): {error}; {NEEDS}") from None
    return f"built {target} ({flags})"


if __name__ == "__main__":
    print(build(*sys.argv[1:]))
