"""Measures this machine without a broker, as a scale for figures: a server that writes nothing, and its disk.

Measured in the same run as the broker, since a disk's moods change by the minute. Can fail: `OSError` of the disk;
`EINVAL` from a file system that has no direct I/O, as tmpfs.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

from bench.peers import stalls
from bench.peers.peer import Measurement, run_pbload
from tests.harness.process import ChildProcess, free_port

BLOCK_BYTES = 4096
_FILE_BYTES = 16 << 20
_APPEND_BYTES = 1024


class BareServer(AbstractContextManager["BareServer"]):
    """pbload's server that answers Produce without looking at it: what a load costs with any broker at all."""

    name = "bare"

    def __init__(self, pbload: Path) -> None:
        """Start it, on a port of its own."""
        self._directory = tempfile.TemporaryDirectory(prefix="bench-bare-")
        self._pbload = str(pbload)
        self._port = str(free_port())
        command = [self._pbload, "bare", "--port", self._port]
        self._process = ChildProcess(command, Path(self._directory.name) / "output")
        self._process.wait_for_line(lambda line: True if "listens" in line else None, 10)

    def words(self, *arguments: str) -> list[str]:
        """pbload's command line against it."""
        return [self._pbload, *arguments, "--port", self._port]

    def load(self, *arguments: str) -> Measurement:
        """Run pbload against it; CPU is that of the server."""
        return run_pbload(self.words(*arguments), self._process.cpu_seconds)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self._process.kill()
        self._directory.cleanup()


def quantile(values: Sequence[float], share: float) -> float:
    """The value that `share` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _times_us(pbload: Path, seconds: float, least: int, once: Callable[[int], stalls.Window]) -> list[float]:
    """How many microseconds lie between the two times that `once(n)` gives, n = 0, 1, …: for some time, and at least so
    often. Stalls that the machine explains are left out."""
    taken: list[stalls.Window] = []
    with stalls.stalls_meanwhile(pbload) as windows:
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(taken) < least:
            taken.append(once(len(taken)))
    kept = [span for span in taken if not stalls.explains(windows, span)]
    return [(ended_ns - started_ns) / 1000 for started_ns, ended_ns in kept or taken]


def synced_writes_us(pbload: Path, data: Path, seconds: float) -> list[float]:
    """One write of a block after the other, past the page cache, over blocks that exist; each is durable when it ends.
    No acknowledgement can be faster on the disk under `data`."""
    block = mmap.mmap(-1, BLOCK_BYTES)  # aligned, as direct I/O wants it
    block.write(os.urandom(BLOCK_BYTES))
    with tempfile.NamedTemporaryFile(dir=data, prefix="bench-synced-") as file:
        file.write(os.urandom(_FILE_BYTES))
        file.flush()
        os.fsync(file.fileno())
        descriptor = os.open(file.name, os.O_WRONLY | os.O_DIRECT)

        def once(number: int) -> stalls.Window:
            position = number * BLOCK_BYTES % _FILE_BYTES
            started_ns = time.monotonic_ns()
            os.pwritev(descriptor, [block], position, os.RWF_DSYNC)
            return started_ns, time.monotonic_ns()

        try:
            return _times_us(pbload, seconds, 100, once)
        finally:
            os.close(descriptor)


def group_syncs_us(pbload: Path, data: Path, count: int, seconds: float) -> list[float]:
    """One `syncfs` after the other, each with `count` files that a KiB was appended to; only the sync counts."""
    libc = ctypes.CDLL(None, use_errno=True)
    chunk = os.urandom(_APPEND_BYTES)
    with tempfile.TemporaryDirectory(dir=data, prefix="bench-group-") as name:
        paths = [os.path.join(name, str(number)) for number in range(count)]
        directory = os.open(name, os.O_RDONLY)

        def once(_: int) -> stalls.Window:
            for path in paths:
                with open(path, "ab", buffering=0) as file:
                    file.write(chunk)
            started_ns = time.monotonic_ns()
            if libc.syncfs(directory) != 0:
                raise OSError(ctypes.get_errno(), f"syncfs of {name}")
            return started_ns, time.monotonic_ns()

        try:
            once(0)  # makes the files
            return _times_us(pbload, seconds, 100, once)
        finally:
            os.close(directory)
