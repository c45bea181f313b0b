"""Let pip build the C engine if there is a compiler. Everything else is in pyproject.toml."""

import sysconfig

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildPython(build_py):
    """Install bpe_fast.c next to the modules, so that `python -m build_ffi` can compile it later."""

    def run(self) -> None:
        """Copy the modules, then the source of the engine."""
        super().run()
        if not self.editable_mode:
            self.copy_file("bpe_fast.c", self.build_lib)


no_stable_abi = sysconfig.get_config_var("Py_GIL_DISABLED")  # wheels of free-threaded Python fit one version only
setup(
    cffi_modules=["build_ffi.py:module"],
    cmdclass={"build_py": BuildPython},
    options={} if no_stable_abi else {"bdist_wheel": {"py_limited_api": "cp310"}},
)
