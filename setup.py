"""The part of the build that data cannot say: make the C archive first, then the extension on top of it."""

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext

BUILD_SCRIPT = "pybroker/native/build.py"
# The Makefile sets up its environment without the extension and builds that by a command of its own. So an error in the
# C code never stands between a developer and the tools to find it.
WITH_EXTENSION = os.environ.get("PYBROKER_WITHOUT_EXTENSION") != "1"


ROOT = Path(__file__).parent


class BuildDataPlane(build_ext):
    """`build_ext` that brings `libpybroker.a` up to date before it compiles the cffi module and links against it.

    A build that will be installed gets the load generator of `pybroker perf` as well; a checkout makes its own."""

    def run(self) -> None:
        if WITH_EXTENSION:
            self.build_script()["make_archive"]()
        super().run()
        if WITH_EXTENSION and not self.inplace:
            self.build_generator()

    def build_extensions(self) -> None:
        if self.build_script()["SELF_CONTAINED"]:
            # A Python that was built by hand asks for its own directory, which is on this machine alone.
            self.compiler.linker_so = [word for word in self.compiler.linker_so if "-rpath" not in word]
        super().build_extensions()

    def build_script(self) -> dict[str, Any]:
        return runpy.run_path(str(ROOT / BUILD_SCRIPT))

    def build_generator(self) -> None:
        """pbload, where pybroker/perf/generator.py looks for it."""
        built = (ROOT / self.build_temp / "load").resolve()
        # As for the archive: compilers newer than those we know warn of more.
        words = ["make", "-s", "-C", str(ROOT / "bench" / "load"), f"B={built}", "WERROR="]
        script = self.build_script()
        if script["SELF_CONTAINED"]:
            words.append(f"LDLIBS={' '.join(script['static_libraries']('lz4', 'zstd', 'snappy', 'z'))}")
        if subprocess.run(words, check=False, stdout=sys.stderr).returncode != 0:
            raise SystemExit("pybroker: bench/load does not build; the compiler's messages are above")
        package = Path(self.build_lib) / "pybroker" / "perf"
        package.mkdir(parents=True, exist_ok=True)
        shutil.copy2(built / "pbload", package / "pbload")


setup(
    cffi_modules=[f"{BUILD_SCRIPT}:make_ffi"] if WITH_EXTENSION else [],
    cmdclass={"build_ext": BuildDataPlane},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
