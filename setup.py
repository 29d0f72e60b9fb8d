"""The part of the build that data cannot say: make the C archive first, then the extension on top of it."""

import runpy
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext

BUILD_SCRIPT = "pybroker/native/build.py"
HEADER = Path(__file__).parent / "csrc/include/pybroker.h"


class BuildDataPlane(build_ext):
    """`build_ext` that brings `libpybroker.a` up to date before it compiles the cffi module and links against it."""

    def run(self) -> None:
        runpy.run_path(str(Path(__file__).parent / BUILD_SCRIPT))["make_archive"]()
        super().run()


setup(
    cffi_modules=[f"{BUILD_SCRIPT}:make_ffi"] if HEADER.exists() else [],
    cmdclass={"build_ext": BuildDataPlane},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
