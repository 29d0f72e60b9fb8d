"""Builds the extension `pybroker.native._pybroker` with cffi, in API mode on Python's stable ABI (abi3).

Runs at build time only, called by `setup.py`. The declarations come from the two headers of `csrc/include` and are
never typed a second time. The code comes from the static archive that `csrc/Makefile` makes, because only a make file
can give each file the flags of its own instruction set.

`PYBROKER_SAN=asan` or `tsan` builds with that sanitizer; `PYBROKER_SELF_CONTAINED=1` takes every library but
glibc inside, for a wheel that is installed where none of them is.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from cffi import FFI

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "csrc" / "include"
#: The second builds on the first.
HEADERS = (INCLUDE / "pybroker.h", INCLUDE / "pybroker_tools.h")
SANITIZER = os.environ.get("PYBROKER_SAN", "")
SANITIZER_FLAGS = {"": [], "asan": ["-fsanitize=address,undefined"], "tsan": ["-fsanitize=thread"]}
SELF_CONTAINED = os.environ.get("PYBROKER_SELF_CONTAINED") == "1"
BUILD_DIR = ROOT / "build" / ("extension" + (f"-{SANITIZER}" if SANITIZER else ""))
ARCHIVE = BUILD_DIR / "libpybroker.a"

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_CPLUSPLUS = re.compile(
    r"^[ \t]*#[ \t]*ifdef[ \t]+__cplusplus\b.*?^[ \t]*#[ \t]*endif[^\n]*$", re.DOTALL | re.MULTILINE
)
_INTEGER_MACRO = re.compile(r"#\s*define\s+(\w+)\s+\(?(-?(?:0[xX][0-9a-fA-F]+|\d+))[uUlL]*\)?\s*$")
_NESTED = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
_COMPILER_ONLY = re.compile(rf"__attribute__\s*{_NESTED}|_Static_assert\s*{_NESTED}\s*;|\bPB_API\b")


def declarations(header: str) -> str:
    """The text of a C header as cffi's `cdef` takes it.

    Comments, attributes and preprocessor lines go; `#define NAME <integer>` stays, so that Python sees the constant
    and cffi holds it against what the compiler sees. Line numbers are kept, so that cffi's errors name the right line.
    """

    def blank(match: re.Match[str]) -> str:
        return "\n" * match.group().count("\n") or " "

    text = _CPLUSPLUS.sub(blank, _COMMENT.sub(blank, header))
    kept: list[str] = []
    in_directive = False
    for line in text.split("\n"):
        starts_directive = not in_directive and line.lstrip().startswith("#")
        macro = _INTEGER_MACRO.fullmatch(line.strip()) if starts_directive else None
        if macro:
            kept.append(f"#define {macro[1]} {macro[2]}")
        else:
            kept.append("" if in_directive or starts_directive else line)
        in_directive = (in_directive or starts_directive) and line.endswith("\\")
    return _COMPILER_ONLY.sub(blank, "\n".join(kept))


def make_archive() -> None:
    """Bring `libpybroker.a` up to date; end with a message when the C code does not compile."""
    # A release has to build with compilers newer than those we know all warnings of: no -Werror here.
    command = ["make", "--no-print-directory", "-C", str(ROOT / "csrc"), f"-j{os.cpu_count() or 1}", "lib"]
    variables = [f"B={BUILD_DIR}", f"PYTHON={sys.executable}", f"SAN={SANITIZER}", "WERROR="]
    # Output goes where errors go: pip reads this process's standard output.
    if subprocess.run([*command, *variables], check=False, stdout=sys.stderr).returncode != 0:
        raise SystemExit("pybroker: csrc/ does not build; the compiler's messages are above")


def static_libraries(*names: str) -> list[str]:
    """Linker arguments that take these libraries, and what C++ code among them needs, from their static archives.
    Without what is for debuggers, which names the directory of the build."""
    return [*(f"-l:lib{name}.a" for name in (*names, "stdc++")), "-static-libgcc", "-Wl,--strip-debug"]


def link_arguments() -> list[str]:
    """Linker arguments for the libraries the archive needs; liburing's static archive wherever there is one."""
    packages = ["liburing", "liblz4", "libzstd", "snappy", "zlib"]
    try:
        libraries = _pkg_config("--libs", *packages).split()
        static_uring = Path(_pkg_config("--variable=libdir", "liburing"), "liburing.a")
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"pkg-config does not find all of {', '.join(packages)}: run scripts/bootstrap") from error
    if SELF_CONTAINED:
        libraries = static_libraries("uring", "lz4", "zstd", "snappy", "z")
    elif static_uring.is_file():
        libraries = [str(static_uring) if flag == "-luring" else flag for flag in libraries]
    # Another extension of the same process may bring its own liburing: ours stays inside.
    return [str(ARCHIVE), *libraries, "-lm", "-pthread", "-Wl,--exclude-libs,ALL", *SANITIZER_FLAGS[SANITIZER]]


def _pkg_config(*arguments: str) -> str:
    return subprocess.run(["pkg-config", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def make_ffi() -> FFI:
    """The cffi builder `setup.py` names in `cffi_modules`."""
    ffi = FFI()
    for header in HEADERS:
        ffi.cdef(declarations(header.read_text()))
    ffi.set_source(
        "pybroker.native._pybroker",
        f'#include "{HEADERS[-1].name}"\n',
        include_dirs=[str(INCLUDE)],
        extra_compile_args=SANITIZER_FLAGS[SANITIZER],
        extra_link_args=link_arguments(),
        depends=[*map(str, HEADERS), str(ARCHIVE)],
    )
    return ffi
