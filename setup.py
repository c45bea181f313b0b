"""Let pip build the C engine if there is a compiler. Everything else is in pyproject.toml."""

import os

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildPython(build_py):
    """Install the C files next to the modules, so that `python -m build_ffi` can compile them later."""

    def run(self) -> None:
        """Copy the modules, then the source of the engine."""
        super().run()
        if not self.editable_mode:
            for name in ("bpe_fast.c", "bpe_text.c"):
                self.copy_file(name, self.build_lib)


one_for_all = "BPE_LIMITED_API" in os.environ  # one wheel for all versions of Python; lists of ids take a little longer
setup(
    cffi_modules=["build_ffi.py:module"],
    cmdclass={"build_py": BuildPython},
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if one_for_all else {},
)
