"""Build the optional C engine of bpe.py, and wrap it for Python.

`python build_ffi.py` compiles bpe_fast.c and the C files of bpe_more into a module next to this file. It requires a C compiler
and `pip install regex cffi setuptools`. bpe.py calls load_engine(), which returns an Engine or raises ImportError.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import pathlib
import re
import struct
import sys
import warnings
import zlib
from collections.abc import Mapping
from typing import Any

import regex

HERE = os.path.dirname(os.path.abspath(__file__))
IN_MORE = ("bpe_shared.c", "bpe_words.c", "bpe_encode.c", "bpe_lists.c")
SOURCES = (pathlib.Path(HERE, "bpe_fast.c"), *(pathlib.Path(HERE, "bpe_more", name) for name in IN_MORE))
COMMAND = "python -m build_ffi" if HERE.endswith("-packages") else "python build_ffi.py"  # -m if pip installed it
VERSION = 26  # of the interface: a module built for another version is not used


def new_seed() -> tuple[int, int]:
    """Return two secret numbers for a hash table: without them, one could choose words that collide.

    Each table has its own: words in the order of another table with the same seed collide, too.
    """
    first, second = struct.unpack("QQ", os.urandom(16))
    return first, second


def load_engine(named: Mapping[str, str]) -> Any:
    """Load the engine that is built next to this file; `named` has the expressions of named patterns.

    Raises ImportError with the reason it is unavailable.
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
    if module.lib.BPE_VERSION != VERSION:
        raise ImportError(f"the C engine is built, but for another version: {COMMAND} rebuilds it")
    digests = module.ffi.string(module.lib.bpe_source_digests).decode().split()
    for file, then in zip(SOURCES, digests):
        if file.exists() and digest(file.read_bytes()) != then:
            warnings.warn(f"{file.name} has changed since the C engine was built: {COMMAND} rebuilds it", stacklevel=2)
    from bpe_more.engine import Engine

    return Engine(module, named)


def digest(data: bytes) -> str:
    """Eight characters that change when the data does."""
    return f"{zlib.crc32(data):08x}"


def numbers() -> str:
    """The numbers that the interface needs."""
    from bpe_more.patterns import named_expressions

    return f"enum {{ BPE_VERSION = {VERSION}, BPE_N_PATTERNS = {len(named_expressions())} }};\n"


def prototypes() -> str:
    """The functions and types that Python uses, of all C files."""
    return numbers() + "extern const char bpe_source_digests[];\n" + "".join(map(interface, SOURCES))


def interface(file: pathlib.Path) -> str:
    """The part of a C file between two markers."""
    return re.split(r"/\* ---- (?:interface|end of the interface).*\n", file.read_text(encoding="utf-8"))[1]


def source() -> str:
    """The complete C source: all files between generated tables."""
    from bpe_more.patterns import named_tables

    code, tables = [file.read_bytes() for file in SOURCES], named_tables()
    text = f"#include <stdint.h>\n{numbers()}"
    text += f'const char bpe_source_digests[] = "{" ".join(map(digest, code))}";\n'
    text += f'const char bpe_regex_version[] = "{regex.__version__}";\n'
    text += f'const char bpe_class_digest[] = "{digest(tables.encode())}";\n'
    for file, content in zip(SOURCES, code):
        text += f'#line 1 "{file.name}"\n{content.decode("utf-8")}'
    return text + tables


FLAGS = "/O2" if sys.platform == "win32" else "-O3 -fvisibility=hidden"
NEEDS = "this requires a C compiler and `pip install regex cffi setuptools` (bpe.py works without it, more slowly)"


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
