"""Reading history leaves memory to those at the tail: what was read is dropped behind, what others need stays.

What it does to their latency is measured by `bench.peers.compare --sections catch-up`, which `test_speed` runs. Needs
root for a control group, and pages that can be dropped: the log dir is on the disk of the checkout.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.peers.adapters import pybroker
from bench.peers.peer import Confinement, Peer, Site
from pybroker.perf.generator import find_generator
from pybroker.testing.fixtures import io_uring_allowed

REPOSITORY = Path(__file__).resolve().parents[2]
BACKENDS = ["io_uring", "epoll"] if io_uring_allowed() else ["epoll"]
HISTORY_BYTES = 512 << 20
CACHE_BYTES = 64 << 20
READ_AHEAD_BYTES = 32 << 20
"""What readers may have besides: under way, and rounding."""
READ_BYTES_PER_S = 250_000_000


def segments(peer: Peer, topic: str) -> list[Path]:
    """The segment files of a topic."""
    found = sorted(peer.directory.rglob(f"{topic}-*/*.log"))
    assert found
    return found


def resident_bytes(path: Path) -> int:
    """How much of a file is in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    size = path.stat().st_size
    pages = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
    descriptor = os.open(path, os.O_RDONLY)
    address = libc.mmap(None, ctypes.c_size_t(size), mmap.PROT_READ, mmap.MAP_SHARED, descriptor, ctypes.c_long(0))
    os.close(descriptor)
    assert address not in (None, ctypes.c_void_p(-1).value)
    try:
        found = ctypes.create_string_buffer(pages)
        assert libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), found) == 0
    finally:
        libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))
    return sum(page & 1 for page in found.raw) * mmap.PAGESIZE


def forget(path: Path) -> None:
    """Drop a file's pages."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fdatasync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


@pytest.fixture(params=BACKENDS)
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    """A broker with a topic of cold history and one that has just been written."""
    (REPOSITORY / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=REPOSITORY / "build") as directory:
        overrides = {
            "pybroker.history.cache.bytes": str(CACHE_BYTES),
            "pybroker.append.engine": "paced",
            "log.retention.bytes": "-1",
        }
        confinement = Confinement(1 << 30, with_io=True)
        site = Site(find_generator(), Path(directory), True, confinement)
        broker = pybroker.start(site, backend=request.param, overrides=overrides)
        try:
            fill = ("--batch-bytes", "64k", "--in-flight", "5", "--partitions", "2")
            broker.load("produce", "--topic", "history", *fill, "--bytes", str(HISTORY_BYTES))
            broker.load("produce", "--topic", "live", *fill, "--bytes", str(64 << 20))
            os.sync()
            for path in segments(broker, "history"):
                forget(path)
            assert sum(map(resident_bytes, segments(broker, "history"))) < HISTORY_BYTES / 10
            yield broker
        finally:
            broker.close()


def read_history(peer: Peer) -> None:
    """Once, all of it: pbload sees to it that no batch is missing."""
    load = ("fetch", "--topic", "history", "--partitions", "2", "--connections", "2", "--max-bytes", "1m")
    peer.load(*load, "--bytes", str(HISTORY_BYTES))


def test_history_is_dropped_behind_and_what_is_live_stays(peer: Peer) -> None:
    live = sum(map(resident_bytes, segments(peer, "live")))
    assert live >= 60 << 20
    assert peer.cgroup is not None
    peer.cgroup.throttle_reads(peer.directory, READ_BYTES_PER_S)
    read_history(peer)
    assert sum(map(resident_bytes, segments(peer, "history"))) <= CACHE_BYTES + READ_AHEAD_BYTES
    assert sum(map(resident_bytes, segments(peer, "live"))) >= 0.99 * live


def test_history_that_was_read_lately_is_there_for_who_follows(peer: Peer) -> None:
    """Up to what may be kept of it: here the last of what was read, at the end of each partition."""
    read_history(peer)
    kept = sum(map(resident_bytes, segments(peer, "history")))
    assert kept >= CACHE_BYTES / 2
