"""Marks: how far a log need not be read after an unclean stop."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from log_setup import Setup, setup

from pybroker.storage.logs import log_maintenance
from pybroker.storage.logs.partition_log import PartitionLog
from pybroker.storage.offline.binary_files import Mark, read_mark
from tests.harness.waiting import until_async

MARK = ".pybroker_mark"
KIB = 1 << 10


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_maintenance, "_UNMARKED_BYTES", 100 * KIB)
    monkeypatch.setattr(log_maintenance, "_WORTH_A_MARK_BYTES", 1 * KIB)


async def filled(made: Setup, topic: str, batch_count: int) -> PartitionLog:
    log = await made.open(topic)
    for _ in range(batch_count):
        await made.append(log, size_bytes=10 * KIB)
    return log


def test_the_logs_that_have_grown_most_get_a_mark(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            grown = await filled(made, "grown", 5)
            small = await filled(made, "small", 4)
            assert 90 * KIB < await made.maintenance.mark() < 100 * KIB
            assert not (grown.path / MARK).exists(), "all together have little"
            await made.append(grown, size_bytes=10 * KIB)
            assert 40 * KIB < await made.maintenance.mark() < 50 * KIB
            assert (grown.path / MARK).exists() and not (small.path / MARK).exists(), "less than half is left"
            assert (grown.native.state.durable_offset, small.native.state.durable_offset) == (6, 0)
            mark = read_mark(grown.path / MARK)
            assert isinstance(mark, Mark), mark
            assert (mark.offset, mark.base_offset) == (6, 0)
            assert mark.position == grown.native.state.size_bytes and mark.offset_entries > 0
            before = (grown.path / MARK).read_bytes()
            for _ in range(5):
                await made.append(grown, size_bytes=10 * KIB)
            assert (await made.maintenance.mark()) > 90 * KIB
            assert (grown.path / MARK).read_bytes() == before, "little has come since"

    asyncio.run(run())


def test_what_recovery_had_to_read_counts(tmp_path: Path) -> None:
    async def run() -> None:
        killed = tmp_path / "killed"
        async with setup(tmp_path) as made:
            await filled(made, "t", 9)
            shutil.copytree(tmp_path / "d", killed / "d")
        async with setup(killed) as made:
            log = await made.open("t")
            assert 90 * KIB < await made.maintenance.mark() < 100 * KIB
            await made.append(log, size_bytes=10 * KIB)
            assert await made.maintenance.mark() == 0
            assert (log.path / MARK).exists()

    asyncio.run(run())


def test_little_in_many_logs_is_not_worth_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_maintenance, "_WORTH_A_MARK_BYTES", 10 * KIB)

    async def run() -> None:
        async with setup(tmp_path) as made:
            logs = [await made.open("t", partition) for partition in range(12)]
            for log in logs:
                await made.append(log, size_bytes=9 * KIB)
            assert await made.maintenance.mark() > 100 * KIB
            assert not any((log.path / MARK).exists() for log in logs)

    asyncio.run(run())


def test_after_an_unclean_stop_only_what_came_behind_the_mark_is_read(tmp_path: Path) -> None:
    async def run() -> None:
        killed = tmp_path / "killed"
        async with setup(tmp_path) as made:
            log = await filled(made, "t", 10)
            await made.maintenance.mark()
            await made.append(log, size_bytes=10 * KIB)
            shutil.copytree(tmp_path / "d", killed / "d")
        assert not (tmp_path / "d" / "t-0" / MARK).exists(), "a clean close leaves none"
        async with setup(killed) as made:
            log = await made.open("t")
            assert log.native.state.log_end_offset == 11
            assert 10 * KIB <= log.native.recovery.scanned_bytes < 11 * KIB

    asyncio.run(run())


def test_marks_are_set_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_maintenance, "_MARK_TICK_S", 0.01)

    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await filled(made, "t", 10)
            made.maintenance.start()
            try:
                await until_async(lambda: (log.path / MARK).exists(), "no mark was set")
            finally:
                await made.maintenance.stop()

    asyncio.run(run())
