"""The runs of `pybroker profile measure`, in order, and the share of its time that each run gets. Pure tables.

A run is named after what it does: `write.direct.64KiB`. The disk comes first: nothing else may be waiting for it then.
"""

from __future__ import annotations

from collections.abc import Iterable

from pybroker.native.measure import (
    COPY,
    COPY_CRC32C,
    CRC32C,
    READ,
    SYNC,
    WRITE,
    WRITE_DURABLE,
    WRITE_SYNC,
    FileRun,
)
from pybroker.values import Value

KIB = 1 << 10
MIB = 1 << 20

#: As the engine `paced` writes: in slices of so much, with writeback begun after so much.
PACED_SLICE_BYTES = 128 * KIB
PACED_BYTES = 8 * MIB
#: The bare server's spin, in µs, that round trips are measured with.
SPINS_US = (0, 20, 50, 100)


def size_name(size_bytes: int, space: str = "") -> str:
    """64KiB, 1MiB; in sentences with a space."""
    return f"{size_bytes // MIB}{space}MiB" if size_bytes % MIB == 0 else f"{size_bytes // KIB}{space}KiB"


class DiskStep(Value):
    """A run over the file. `weight` is its share of the time. `warm_up` comes first and does not count."""

    name: str
    what: str
    run: FileRun
    weight: float
    drops_first: bool = False
    warm_up: FileRun | None = None
    #: At the same time, on a thread of its own; its result bears the second name.
    beside: tuple[str, FileRun] | None = None


class CpuStep(Value):
    """Work on bytes in memory."""

    name: str
    what: str
    work: int
    block_bytes: int
    weight: float
    crc32c: str | None = None


class LoopbackStep(Value):
    """Requests to the bare server. Its answers come from the file where `from_file` says so."""

    name: str
    what: str
    request_bytes: int
    answer_bytes: int
    weight: float
    connection_count: int = 1
    in_flight: int = 1
    spin_us: int = 0
    from_file: bool = False


def fill_run(region_bytes: int, is_direct: bool) -> FileRun:
    """The run that makes the file: what it costs to write where nothing was."""
    return FileRun(WRITE, MIB, region_bytes, is_direct=is_direct, syncs_at_end=not is_direct)


FILL_NAME = "write.fresh.1MiB"
FILL_WHAT = "1 MiB at a time where nothing was written before, past the page cache"
FILL_BUFFERED_WHAT = "1 MiB at a time where nothing was written before, synced at the end"
FILL_WEIGHT = 4.0


def disk_steps(region_bytes: int, is_direct: bool) -> list[DiskStep]:
    """Runs over a file of `region_bytes`, a multiple of 2 MiB. Without `is_direct` only through the page cache."""
    direct = _direct_steps(region_bytes) if is_direct else []
    half = region_bytes // 2
    writer = FileRun(WRITE, 256 * KIB, half, is_direct=is_direct)
    # Past the page cache, so that it never finds what it has brought in before.
    reader = FileRun(READ, MIB, half, half, is_direct=is_direct)
    warm = FileRun(READ, 64 * KIB, min(region_bytes, 64 * MIB))
    paced = FileRun(WRITE, PACED_SLICE_BYTES, region_bytes, 2 * region_bytes, syncs_at_end=True, pace_bytes=PACED_BYTES)
    return [
        *direct,
        DiskStep(
            "write.sync.4KiB",
            "4 KiB over old bytes through the page cache, each with its fdatasync",
            FileRun(WRITE_SYNC, 4 * KIB, region_bytes),
            2.0,
        ),
        DiskStep(
            "append.sync.4KiB",
            "4 KiB at the file's end through the page cache, each with its fdatasync",
            FileRun(WRITE_SYNC, 4 * KIB, region_bytes, region_bytes),
            1.5,
        ),
        DiskStep(
            "write.paced.128KiB",
            "128 KiB at a time where nothing was written before, through the page cache, written back early and "
            "dropped behind; synced at the end",
            paced,
            5.0,
            # Memory that the kernel has to find first is ten times as dear as what the file has just let go of.
            warm_up=paced.replace(position=0),
        ),
        DiskStep(
            "read.cold.1MiB",
            "1 MiB at a time in order, not in the page cache",
            FileRun(READ, MIB, region_bytes),
            2.5,
            drops_first=True,
        ),
        DiskStep(
            "write.mixed.256KiB",
            "256 KiB at a time while somebody else reads what is not in memory",
            writer,
            3.0,
            drops_first=True,
            beside=("read.mixed.1MiB", reader),
        ),
        DiskStep(
            "read.warm.64KiB",
            "64 KiB at a time from the page cache",
            warm,
            0.5,
            warm_up=warm,
        ),
    ]


def _direct_steps(region_bytes: int) -> Iterable[DiskStep]:
    for block_bytes in (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB):
        name, words = size_name(block_bytes), size_name(block_bytes, " ")
        run = FileRun(WRITE, block_bytes, region_bytes, is_direct=True)
        yield DiskStep(f"write.direct.{name}", f"{words} over old bytes, past the page cache", run, 1.5)
    for block_bytes in (4 * KIB, 64 * KIB, 256 * KIB):
        name, words = size_name(block_bytes), size_name(block_bytes, " ")
        run = FileRun(WRITE_DURABLE, block_bytes, region_bytes, is_direct=True)
        weight = 3.0 if block_bytes == 4 * KIB else 1.5
        what = f"{words} over old bytes, past the page cache, durable when the write returns (RWF_DSYNC)"
        yield DiskStep(f"write.durable.{name}", what, run, weight)
    sync = FileRun(SYNC, 4 * KIB, region_bytes, is_direct=True)
    yield DiskStep("sync.4KiB", "an fdatasync alone, after 4 KiB written past the page cache", sync, 1.5)
    cold = FileRun(READ, MIB, region_bytes, is_direct=True)
    yield DiskStep("read.direct.1MiB", "1 MiB at a time in order, past the page cache", cold, 1.5)
    scattered = FileRun(READ, 4 * KIB, region_bytes, is_direct=True, is_random=True)
    yield DiskStep("read.random.4KiB", "4 KiB anywhere in the file, past the page cache", scattered, 2.0)


def cpu_steps(crc32c_names: Iterable[str]) -> list[CpuStep]:
    """CRC32C by every implementation, copies, and both in one pass. The same block again and again."""
    steps = [
        CpuStep(f"crc32c.{name}.{size_name(size)}", f"CRC32C by {name}", CRC32C, size, 0.1, name)
        for name in crc32c_names
        for size in (4 * KIB, 64 * KIB, MIB)
    ]
    for size in (4 * KIB, 64 * KIB, MIB, 16 * MIB):
        steps.append(CpuStep(f"copy.{size_name(size)}", "memory to memory", COPY, size, 0.1))
    for size in (64 * KIB, MIB):
        steps.append(CpuStep(f"copy_crc32c.{size_name(size)}", "memory to memory with CRC32C", COPY_CRC32C, size, 0.1))
    return steps


def loopback_steps(file_bytes: int) -> list[LoopbackStep]:
    """Requests as producers and consumers send them, to a server that only receives and answers. Fetches are answered
    from the page cache when the file has `file_bytes`."""
    small = 100
    steps = [
        LoopbackStep(
            f"round_trip.spin_{spin}us",
            f"1 KiB there and a little back, one at a time; the server looks for work {spin} µs before it sleeps",
            KIB,
            small,
            1.0,
            spin_us=spin,
        )
        for spin in SPINS_US
    ]
    steps += [
        LoopbackStep(
            f"receive.{size_name(size)}",
            f"{size_name(size, ' ')} there, on {connections} connections with {in_flight} in flight",
            size,
            small,
            1.5,
            connections,
            in_flight,
        )
        for size, connections, in_flight in ((256 * KIB, 1, 5), (16 * KIB, 4, 5), (KIB, 16, 1))
    ]
    steps += [
        LoopbackStep(
            f"send.{size_name(size)}",
            f"{size_name(size, ' ')} back, on 4 connections, by sendfile from the page cache",
            small,
            size,
            1.5,
            4,
            from_file=file_bytes >= size,
        )
        for size in (MIB, 64 * KIB)
    ]
    return steps
