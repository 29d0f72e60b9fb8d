"""The part of the build that data cannot say: make the C archive first, then the extension on top of it."""

import os
import runpy
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext

BUILD_SCRIPT = "pybroker/native/build.py"
# The Makefile sets up its environment without the extension and builds that by a command of its own, so that an error
# in the C code never stands between a developer and the tools to find it.
WITH_EXTENSION = os.environ.get("PYBROKER_WITHOUT_EXTENSION") != "1"


class BuildDataPlane(build_ext):
    """`build_ext` that brings `libpybroker.a` up to date before it compiles the cffi module and links against it."""

    def run(self) -> None:
        if WITH_EXTENSION:
            runpy.run_path(str(Path(__file__).parent / BUILD_SCRIPT))["make_archive"]()
        super().run()


setup(
    cffi_modules=[f"{BUILD_SCRIPT}:make_ffi"] if WITH_EXTENSION else [],
    cmdclass={"build_ext": BuildDataPlane},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
