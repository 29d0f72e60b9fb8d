"""The broker with AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer in its extension, as `make
extension-asan` builds it.

`Sanitized` gives the environment to start a broker with, and afterwards what the sanitizers have found. Used from the
thread of a test. Can fail: `SanitizerMissing` when the package has not been built or gcc has no sanitizers.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

PACKAGE_DIR = Path(__file__).resolve().parents[2] / "build" / "package-asan"
_LIBRARIES = ("libasan.so", "libubsan.so")
_ASAN_OPTIONS = "detect_leaks=1:detect_stack_use_after_return=1"
_UBSAN_OPTIONS = "print_stacktrace=1"
# What the interpreter and cffi leave at their end: Python objects, and the functions that cffi has made of a library's.
_NOT_OUR_LEAKS = ("_PyObject_GC_New", "_cffi_backend")


class SanitizerMissing(RuntimeError):
    """The package with the sanitizers, or their libraries, are not there."""


def _library(name: str) -> str:
    path = subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not os.path.isabs(path):
        raise SanitizerMissing(f"gcc has no {name} (Debian: it comes with libgcc-*-dev)")
    return path


class Sanitized:
    """The reports of one broker, in `directory`."""

    def __init__(self, directory: Path) -> None:
        """`directory` is empty and belongs to this object."""
        if not any(PACKAGE_DIR.glob("pybroker/native/_pybroker*.so")):
            raise SanitizerMissing(f"{PACKAGE_DIR} holds no extension: run make extension-asan")
        self._directory = directory
        self._suppressions = directory / "suppressions"
        self._suppressions.write_text("".join(f"leak:{name}\n" for name in _NOT_OUR_LEAKS))

    def environment(self) -> dict[str, str]:
        """For a `BrokerProcess`: the other package, the sanitizers in front of all libraries, reports to files."""
        log = f"log_path={self._directory / 'report'}"
        return {
            "PYTHONPATH": str(PACKAGE_DIR),
            # Or the package in the working directory would come first.
            "PYTHONSAFEPATH": "1",
            # Small objects too: what C code reads or writes beyond a Python buffer is seen, and nothing that only the
            # interpreter's own arenas point at looks like a leak.
            "PYTHONMALLOC": "malloc",
            "LD_PRELOAD": " ".join(map(_library, _LIBRARIES)),
            "ASAN_OPTIONS": f"{_ASAN_OPTIONS}:{log}",
            "LSAN_OPTIONS": f"suppressions={self._suppressions}:print_suppressions=0",
            "UBSAN_OPTIONS": f"{_UBSAN_OPTIONS}:{log}",
        }

    def check_loaded(self, pid: int) -> None:
        """AssertionError unless that process runs the sanitized extension."""
        maps = Path(f"/proc/{pid}/maps").read_text()
        assert str(PACKAGE_DIR) in maps and _LIBRARIES[0] in maps, f"process {pid} runs without AddressSanitizer"

    def reports(self) -> str:
        """What the sanitizers have said so far; empty when they found nothing."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self._directory.glob("report*")))
