"""Looks at the free space of log dirs: who is told what, once."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from log_setup import Setup, setup

from pybroker.native.errors import NativeError
from pybroker.native.partition import NativePartition
from pybroker.storage.dirs.directory_space import Measured
from pybroker.storage.logs import free_space, log_manager
from pybroker.storage.logs.free_space import FreeSpaceWatch

TOTAL_BYTES = 10 << 30
RESERVE_BYTES = TOTAL_BYTES // 100


class Disk:
    """Free bytes by log dir, and what the data plane was told of each partition."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free_bytes: dict[str, int] = {}
        self.look_count = 0
        self.told: list[tuple[tuple[NativePartition, ...], bool]] = []
        monkeypatch.setattr(free_space, "measure", self.measure)
        for module in (free_space, log_manager):
            monkeypatch.setattr(module, "set_below_reserve", self.tell)

    def measure(self, path: Path) -> Measured:
        self.look_count += 1
        return Measured(TOTAL_BYTES, self.free_bytes[path.name])

    def tell(self, partitions: Sequence[NativePartition], below: bool) -> None:
        self.told.append((tuple(partitions), below))

    def last(self, partition: NativePartition) -> bool:
        return [below for partitions, below in self.told if partition in partitions][-1]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


async def look(made: Setup, disk: Disk, **free_bytes: int) -> None:
    disk.free_bytes.update(free_bytes)
    watch = FreeSpaceWatch(made.manager)
    await watch.look()
    await watch.stop()


def test_the_partitions_of_a_log_dir_are_told_when_it_becomes_low_and_when_it_ends(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def run() -> None:
        async with setup(tmp_path, "full", "roomy") as made:
            await look(made, disk, full=TOTAL_BYTES // 2, roomy=TOTAL_BYTES // 2)
            logs = [await made.open(partition=index) for index in range(2)]
            full = next(log for log in logs if log.directory.path.name == "full")
            roomy = next(log for log in logs if log is not full)
            assert not caplog.records
            for _ in range(3):
                await look(made, disk, full=RESERVE_BYTES - 1)
            assert disk.last(full.native) and not disk.last(roomy.native)
            assert full.directory.space.is_low and not roomy.directory.space.is_low
            # One that is opened now is told as well.
            late = await made.open("u")
            assert disk.last(late.native) is (late.directory is full.directory)
            later = await made.open("v")
            assert disk.last(later.native) is (later.directory is full.directory)
            assert {late.directory, later.directory} == set(made.manager.directories)
            await look(made, disk, full=RESERVE_BYTES + RESERVE_BYTES // 2 - 1)
            assert disk.last(full.native)
            for _ in range(3):
                await look(made, disk, full=RESERVE_BYTES * 2)
            assert not any(disk.last(log.native) for log in made.manager.logs.values())

    asyncio.run(run())
    told = [record for record in caplog.records if record.name.endswith("free_space")]
    assert [record.levelname for record in told] == ["ERROR", "WARNING"]
    assert "pybroker.log.dir.reserve.bytes" in told[0].getMessage() and str(tmp_path / "full") in told[0].getMessage()


def test_it_goes_on_looking_more_often_as_less_is_left(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def note(pause_s: float) -> None:
        pauses.append(pause_s)
        await sleep(0)

    async def run() -> None:
        async with setup(tmp_path) as made:
            disk.free_bytes["d"] = TOTAL_BYTES
            watch = FreeSpaceWatch(made.manager)
            await watch.look()
            monkeypatch.setattr(asyncio, "sleep", note)
            watch.start()
            for free_bytes in (TOTAL_BYTES, RESERVE_BYTES + (1 << 30), RESERVE_BYTES, RESERVE_BYTES - 1):
                disk.free_bytes["d"] = free_bytes
                seen = disk.look_count
                while disk.look_count < seen + 3:
                    await sleep(0.001)
            await watch.stop()

    asyncio.run(run())
    changes = [pause_s for before, pause_s in zip([0.0, *pauses], pauses, strict=False) if pause_s != before]
    assert changes == [1.0, 0.25, 0.02, 0.25]


def test_a_file_system_that_does_not_answer_is_a_failed_log_dir(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> Measured:
        raise OSError(errno.EIO, "Input/output error", str(path))

    async def run() -> None:
        async with setup(tmp_path) as made:
            monkeypatch.setattr(free_space, "measure", fail)
            await look(made, disk)
            assert made.manager.live == []

    asyncio.run(run())


@pytest.mark.parametrize(("is_low", "expected"), [(True, []), (False, ["ERROR", "ERROR"])])
def test_what_a_full_disk_lets_fail_is_not_told_again_and_again(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture, is_low: bool, expected: list[str]
) -> None:
    caplog.set_level(logging.INFO, "pybroker.storage.logs.log_failures")

    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open()
            log.directory.space.is_low = is_low
            made.manager.failures.report(log, "upkeep", NativeError(-errno.ENOSPC))
            made.manager.failures.report_directory(
                log.directory, "writing its checkpoints", OSError(errno.ENOSPC, "No space left on device")
            )

    asyncio.run(run())
    assert [record.levelname for record in caplog.records if record.name.endswith("log_failures")] == expected
