"""The cases of `csrc/perf/cases.h` for Python: built, loaded with ctypes, one open at a time.

A case that goes wrong in C ends the process with its reason, as it should end a benchmark.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_LIBRARY = ROOT / "build" / "native" / "perf" / "libperf_cases.so"


@dataclass(frozen=True)
class Case:
    """One function; `payload_bytes` go through it in a call, 0 when that means nothing."""

    number: int
    payload_bytes: int


class Cases:
    """The shared object."""

    def __init__(self) -> None:
        """Build it when it is not up to date."""
        subprocess.run(["make", "-s", "-C", "csrc", "B=build/native", "perf-cases"], cwd=ROOT, check=True)
        self._library = ctypes.CDLL(str(_LIBRARY))
        self._library.perf_case_name.restype = ctypes.c_char_p
        self._library.perf_case_bytes.restype = ctypes.c_uint32
        self._library.perf_case_run.argtypes = (ctypes.c_int, ctypes.c_uint64)
        #: Every case, in the order of the tables.
        self.by_name: dict[str, Case] = {}
        while (name := self._library.perf_case_name(len(self.by_name))) is not None:
            number = len(self.by_name)
            self.by_name[name.decode()] = Case(number, self._library.perf_case_bytes(number))

    @contextmanager
    def opened(self, case: Case) -> Iterator[None]:
        """Set up, and called before, so that what is made on first use is there."""
        self._library.perf_case_open(case.number)
        try:
            yield
        finally:
            self._library.perf_case_close(case.number)

    def run(self, case: Case, calls: int) -> None:
        """So many calls of an open case."""
        self._library.perf_case_run(case.number, calls)
