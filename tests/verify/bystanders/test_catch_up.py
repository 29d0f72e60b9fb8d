"""Reading history leaves the page cache to those at the tail, and takes no more memory than it may.

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
from tests.harness.fixtures import io_uring_allowed
from tests.harness.waiting import until

REPOSITORY = Path(__file__).resolve().parents[3]
BACKENDS = ["io_uring", "epoll"] if io_uring_allowed() else ["epoll"]
HISTORY_BYTES = 512 << 20
CACHE_BYTES = 64 << 20
SEGMENT_BYTES = 16 << 20
READ_AHEAD_BYTES = 32 << 20
"""What readers may have besides: buffers, and rounding."""
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
            # What is appended to is read through the page cache.
            "log.segment.bytes": str(SEGMENT_BYTES),
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


def device_read_bytes(peer: Peer) -> int:
    """What the broker has had read from disks."""
    lines = Path(f"/proc/{peer.broker.process.pid}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["read_bytes"])


def test_history_stays_in_its_bounds_and_what_is_live_stays_in_memory(peer: Peer) -> None:
    live = sum(map(resident_bytes, segments(peer, "live")))
    before = peer.broker.rss_bytes()
    assert live >= 60 << 20
    assert peer.cgroup is not None
    peer.cgroup.throttle_reads(peer.directory, READ_BYTES_PER_S)
    read_history(peer)
    assert peer.broker.rss_bytes() <= before + CACHE_BYTES + READ_AHEAD_BYTES
    assert sum(map(resident_bytes, segments(peer, "history"))) < HISTORY_BYTES / 10
    assert sum(map(resident_bytes, segments(peer, "live"))) >= 0.99 * live


def test_what_is_read_again_and_again_is_kept(peer: Peer) -> None:
    size = CACHE_BYTES * 3 // 4
    peer.load("produce", "--topic", "recent", "--batch-bytes", "64k", "--bytes", str(size))
    for path in segments(peer, "recent"):
        forget(path)
    read = []
    for _ in range(4):
        before = device_read_bytes(peer)
        peer.load("fetch", "--topic", "recent", "--max-bytes", "1m", "--bytes", str(size))
        read.append(device_read_bytes(peer) - before)
    assert read[0] >= size - (4 << 20)
    assert read[-1] < 1 << 20, read


def test_memory_of_history_that_nobody_reads_is_given_back(peer: Peer) -> None:
    before = peer.broker.rss_bytes()
    read_history(peer)
    assert peer.broker.rss_bytes() >= before + CACHE_BYTES // 4
    until(lambda: peer.broker.rss_bytes() <= before + CACHE_BYTES // 8, "the memory is given back", 90)
