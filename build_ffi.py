"""Build the optional C engine of bpe.py, and wrap its merge loop for Python.

`python build_ffi.py` compiles bpe_fast.c, and the C files of the folder bpe_more if it is here, into a module next to
this file. It requires a C compiler and `pip install regex cffi setuptools`. bpe.py calls load_engine(), which returns
an Engine, or raises ImportError. This one learns; that of bpe_more/engine also finds words, and encodes.
"""

from __future__ import annotations

import binascii
import importlib.machinery
import importlib.util
import os
import re
import sys
import warnings
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
COMMAND = "python -m build_ffi" if HERE.endswith("-packages") else "python build_ffi.py"  # -m if pip installed it
VERSION = 35  # of the interface: a module built for another version is not used


# ------------------------------
# The merge loop
# ------------------------------

class Engine:
    """The engine in C. bpe.py makes three calls, each instead of a function of its own.

        words = engine.count(slices, pattern, special_tokens, workers)    a table of words, with len() and items()
        merges = engine.learn(words, merges_wanted)                       an iterator; a table is used up by it
        ids = engine.encoder(tokenizer).encode(text)                      a list of ids

    This class has learn() alone. The one of bpe_more/engine, which is used if it was built in, also has the others:
    only_learns is "" there, and declines() says why it can't scan a pattern.
    """

    def __init__(self, module: Any, only_learns: str) -> None:
        self.ffi, self.lib = module.ffi, module.lib
        self.only_learns = only_learns  # the reason why this is all that it does, or ""

    def declines(self, pattern: Any) -> str:
        """Return why it can't count and encode with a pattern, or "" if it can."""
        return self.only_learns

    def learn(self, words: Any, merges_wanted: int, min_frequency: int = 1,
              min_word_count: int = 1) -> Iterator[tuple[bytes, bytes, int, int]]:
        """Yield what bpe.learn_merges yields."""
        arrays = self.arrays(words, min_word_count)
        limits = (min(n, 2**64 - 1) for n in (merges_wanted, min_frequency))
        learner = self.create("learner", *arrays, len(arrays[1]), *limits, new_seed())
        del arrays  # C has copied them
        yield from self.merges_of(learner, (bytes([byte]) for byte in range(256)))

    def merges_of(self, learner: Any, first_tokens: Iterable[bytes]) -> Iterator[tuple[bytes, bytes, int, int]]:
        """Yield the merges of a learner."""
        ffi, lib = self.ffi, self.lib
        made, batch = ffi.new("size_t *"), ffi.new("bpe_merge[]", 1000)
        tokens = list(first_tokens)
        status = lib.BPE_OK
        while status != lib.BPE_DONE:
            status = lib.bpe_learner_run(learner, batch, len(batch), made)
            self.check(status)
            data = memoryview(ffi.buffer(batch)[: 24 * made[0]])  # structs of two numbers of 32 bits, two of 64
            ids, numbers = data.cast("I"), data.cast("Q")
            for left, right, count, replaced in zip(ids[::6], ids[1::6], numbers[1::3], numbers[2::3]):
                first, second = tokens[left], tokens[right]
                tokens.append(first + second)
                yield first, second, count, replaced

    def arrays(self, words: Mapping[bytes, int], least: int) -> tuple[Any, Any, Any]:
        """Return the words that occur at least `least` times, as a learner takes them, by descending count."""
        # in the order of the text, one could choose counts for which C's sort takes quadratic time
        frequent = (word for word, count in words.items() if count >= least)
        ordered = sorted(frequent, key=words.__getitem__, reverse=True)
        return self.words_with_counts(ordered, [words[word] for word in ordered])

    def words_with_counts(self, words: Sequence[bytes], counts: Sequence[int]) -> tuple[Any, Any, Any]:
        """Return words for C: concatenated, their lengths, and their counts."""
        try:
            numbers = array("Q", map(len, words)), array("Q", counts)
        except OverflowError:
            pair = max(zip(words, counts), key=lambda pair: pair[1])
            raise OverflowError(f"2**64 occurrences of a word or more: {pair!r:.60}") from None
        return b"".join(words), *(self.ffi.from_buffer("uint64_t[]", each) for each in numbers)

    def create(self, kind: str, *arguments: Any, by: str = "new") -> Any:
        """Create something in C that is freed when Python no longer uses it."""
        new = self.ffi.new(f"bpe_{kind} **")
        try:
            status = getattr(self.lib, f"bpe_{kind}_{by}")(*arguments, new)
        finally:  # Ctrl-C while C makes a learner, of a million words, say, is raised here
            handle = self.ffi.gc(new[0], getattr(self.lib, f"bpe_{kind}_free"))
        self.check(status)
        return handle

    def check(self, status: int) -> None:
        """Turn a return code into an exception; codes that callers handle themselves pass."""
        if status == self.lib.BPE_NO_MEMORY:
            raise MemoryError
        if status == self.lib.BPE_OVERFLOW:
            raise OverflowError("2**63 bytes of words or more, counting every occurrence")
        if status == self.lib.BPE_TOO_MANY_WORDS:
            raise OverflowError("2**32 bytes of distinct words or more; leave out rare words with min_word_count=N")


def new_seed() -> tuple[int, int]:
    """Return two secret numbers for a hash table: without them, one could choose words that collide.

    Each table has its own: words in the order of another table with the same seed collide, too.
    """
    first, second = memoryview(os.urandom(16)).cast("Q")
    return first, second


# ------------------------------
# Loading
# ------------------------------

def load_engine(named: Mapping[str, str], last_cut: Any) -> Any:
    """Load the engine that is built next to this file, with what bpe_more adds if it is here.

    `named` has the expressions of named patterns, and last_cut is the function of bpe.py. Raises ImportError with the
    reason the engine is unavailable.
    """
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
    version, *sources = module.ffi.string(module.lib.bpe_sources).decode().split()
    if version != str(VERSION):
        raise ImportError(f"the C engine is built, but for another version: {COMMAND} rebuilds it")
    for entry in sources:
        name, then = entry.split(":")
        path = os.path.join(HERE, name)
        if os.path.exists(path) and digest(read(path)) != then:
            warnings.warn(f"{name} has changed since the C engine was built: {COMMAND} rebuilds it", stacklevel=2)
    more, lacks = find_more()
    if more and not hasattr(module.lib, "bpe_encode"):
        more, lacks = None, f"the engine was built without bpe_more; {COMMAND} rebuilds it"
    return more.Engine(module, named, last_cut) if more else Engine(module, f"C only learns: {lacks}")


def find_more() -> tuple[Any, str]:
    """Return (bpe_more.engine, ""), or (None, why it can't be used)."""
    if not os.path.isdir(os.path.join(HERE, "bpe_more")):
        return None, "bpe_more is not next to bpe.py"
    # it imports build_ffi by name, and a file of another project is not run
    for name, file in (("build_ffi", "build_ffi.py"), ("bpe_more", os.path.join("bpe_more", "__init__.py"))):
        spec = importlib.util.find_spec(name)
        if spec is None or os.path.realpath(spec.origin or "") != os.path.realpath(os.path.join(HERE, file)):
            return None, f"`import {name}` does not find the one next to bpe.py"
    import bpe_more.engine
    return bpe_more.engine, ""


# ------------------------------
# Building
# ------------------------------

FLAGS = "/O2" if sys.platform == "win32" else "-O3 -fvisibility=hidden"
NEEDS = "this requires a C compiler and `pip install regex cffi setuptools` (bpe.py works without it, more slowly)"


def c_files() -> list[str]:
    """Return the names of the C files, each after those that it uses."""
    more = more_to_build()
    return ["bpe_fast.c", *(f"bpe_more/engine/{name}" for name in (more.C_FILES if more else ()))]


def more_to_build() -> Any:
    """Return bpe_more.engine, or None if the folder isn't here; raises ImportError if it can't be used."""
    more, lacks = find_more()
    if not more and os.path.isdir(os.path.join(HERE, "bpe_more")):
        raise ImportError(lacks)
    return more


def read(path: str) -> bytes:
    """Return the content of a file."""
    with open(path, "rb") as file:
        return file.read()


def digest(data: bytes) -> str:
    """Return eight characters that change when the data does."""
    return f"{binascii.crc32(data):08x}"


def interface(name: str) -> str:
    """Return the part of a C file between two markers."""
    text = read(os.path.join(HERE, name)).decode("utf-8")
    return re.split(r"/\* ---- (?:interface|end of the interface).*\n", text)[1]


def prototypes() -> str:
    """Return the functions and types that Python uses, of all C files."""
    return "extern const char bpe_sources[];\n" + "".join(map(interface, c_files()))


def source() -> str:
    """Return the complete C source: all files between generated tables."""
    more = more_to_build()
    contents = {name: read(os.path.join(HERE, name)) for name in c_files()}
    sources = " ".join(f"{name}:{digest(content)}" for name, content in contents.items())
    text = f'#include <stdint.h>\nconst char bpe_sources[] = "{VERSION} {sources}";\n'
    for name, content in contents.items():
        text += f'#line 1 "{name}"\n{content.decode("utf-8")}'
    return text + (more.tables() if more else "")


def module(flags: str = FLAGS, optional: bool = True) -> Any:
    """Describe the module to cffi. setup.py uses the defaults: if compiling fails, pip installs Python only."""
    from cffi import FFI

    full: dict[str, Any] = {"py_limited_api": False, "define_macros": [("_CFFI_NO_LIMITED_API", None)]}
    api = {} if "BPE_LIMITED_API" in os.environ else full  # one module for all versions of Python, or for this one
    ffi = FFI()
    ffi.cdef(prototypes())
    ffi.set_source("_bpe_fast", source(), extra_compile_args=flags.split(), optional=optional, **api)
    return ffi


def build(flags: str = FLAGS) -> str:
    """Compile the module and install it next to this file; return a summary line."""
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
    alone = "" if more_to_build() else "; the merge loop alone, without bpe_more"
    return f"built {target} ({flags}){alone}"


if __name__ == "__main__":
    print(build(*sys.argv[1:]))
