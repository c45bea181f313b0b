"""Build the optional C engine of bpe.py, and wrap it for Python.

`python build_ffi.py` compiles bpe_fast.c and bpe_text.c into a module next to this file. It requires a C compiler
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
SOURCES = (pathlib.Path(HERE, "bpe_fast.c"), pathlib.Path(HERE, "bpe_text.c"))  # the second one uses the first
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
    """The functions and types that Python uses, of both C files."""
    return numbers() + "".join(map(interface, SOURCES))


def interface(file: pathlib.Path) -> str:
    """The part of a C file between two markers."""
    return re.split(r"/\* ---- (?:interface|end of the interface).*\n", file.read_text(encoding="utf-8"))[1]


def source() -> str:
    """The complete C source: bpe_fast.c and bpe_text.c between generated tables."""
    from bpe_more.patterns import named_tables

    code, tables = [file.read_bytes() for file in SOURCES], named_tables()
    text = f"#include <stdint.h>\n{numbers()}"
    text += f'const char bpe_source_digests[] = "{" ".join(map(digest, code))}";\n'
    text += f'const char bpe_regex_version[] = "{regex.__version__}";\n'
    text += f'const char bpe_class_digest[] = "{digest(tables.encode())}";\n'
    for file, content in zip(SOURCES, code):
        text += f'#line 1 "{file.name}"\n{content.decode("utf-8")}'
    return text + tables


# Only this part uses Python.h. Its functions make lists of int objects that exist already, whose addresses are in
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

/* The lists of n texts: their ids are one array, and `ends` are those of each text's ids. */
static PyObject *lists_of(PyObject *self, PyObject *arguments)
{
    unsigned long long ids, ends, n, start = 0;
    if (!PyArg_ParseTuple(arguments, "KKK", &ids, &ends, &n))
        return NULL;
    PyObject *lists = PyList_New((Py_ssize_t)n);
    for (size_t i = 0; lists && i < n; i++) {
        const uint64_t end = ((uint64_t *)(uintptr_t)ends)[i];
        PyObject *list = new_list(PyLong_AsVoidPtr(self), (uint32_t *)(uintptr_t)ids + start, (size_t)(end - start));
        if (list)
            PyList_SET_ITEM(lists, (Py_ssize_t)i, list);
        else
            Py_CLEAR(lists);
        start = end;
    }
    return lists;
}

static void resume_collector(PyObject *capsule)
{
    (void)capsule;
    PyGC_Enable();
}

/* Turn the garbage collector off until the result is freed. Ctrl-C can't come between two steps of this. */
static PyObject *pause_collector(PyObject *self, PyObject *none)
{
    PyObject *capsule = PyCapsule_New(PyLong_AsVoidPtr(self), NULL, NULL);
    (void)none;
    if (capsule && PyGC_Disable())
        PyCapsule_SetDestructor(capsule, resume_collector);
    return capsule;
}

/* The list of ids; or None for a long text, for an error, and if no cache is free, or threads may run this at once. */
static PyObject *encode_short(PyObject *self, PyObject *data)
{
#ifndef Py_GIL_DISABLED
    const bpe_for_lists *f = PyLong_AsVoidPtr(self);
    uint32_t ids[4000];
    uint64_t n = (uint64_t)PyBytes_Size(data);
    if (n <= 4000 - 2 && f->cache && bpe_encode(f->cache, (void *)PyBytes_AsString(data), &n, 1, ids, NULL) == BPE_OK)
        return new_list(f, ids, n);
#endif
    return PyErr_Occurred() ? NULL : Py_BuildValue(""); /* None */
}

int bpe_list_functions(bpe_for_lists *f, uintptr_t functions)
{
    static PyMethodDef methods[] = {{"encode_short", encode_short, METH_O, NULL},
                                    {"lists_of", lists_of, METH_VARARGS, NULL},
                                    {"pause_collector", pause_collector, METH_NOARGS, NULL}};
    PyGILState_STATE state = PyGILState_Ensure(); /* cffi has released the GIL */
    PyObject *self = PyLong_FromVoidPtr(f), *list = (PyObject *)functions;
    int failed = !self;
    for (size_t i = 0; i < sizeof methods / sizeof *methods && !failed; i++) {
        PyObject *function = PyCFunction_New(&methods[i], self);
        failed = !function || PyList_Append(list, function);
        Py_XDECREF(function);
    }
    PyErr_Clear();
    Py_XDECREF(self);
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
