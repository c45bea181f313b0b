"""Let pip build the C engine if there is a compiler. Everything else is in pyproject.toml."""

import os
import sys

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildPython(build_py):
    """Install bpe_fast.c next to the modules, so that `python -m build_ffi` can compile it later."""

    def run(self) -> None:
        """Copy the modules and bpe_more, then bpe_fast.c, which is in no package."""
        super().run()
        if not self.editable_mode:
            self.copy_file("bpe_fast.c", self.build_lib)


sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # build_ffi.py imports bpe_more
one_for_all = "BPE_LIMITED_API" in os.environ  # one wheel for all versions of Python; lists of ids take a little longer
setup(
    cffi_modules=["build_ffi.py:module"],
    cmdclass={"build_py": BuildPython},
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if one_for_all else {},
)
