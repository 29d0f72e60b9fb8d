"""Checkpoints that are being written while logs are closed, opened again, cut, or deleted and made anew."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from log_setup import NOT_LEADER, TOPIC_ID, Setup, setup

from pybroker import turns
from pybroker.storage.files import offset_checkpoint
from pybroker.storage.logs import ends_keeper, log_checkpoints
from pybroker.storage.logs.partition_log import PartitionLog

OTHER_ID = bytes(reversed(TOPIC_ID))
KEY = ("t", 0)


class Gate:
    """Holds a write of checkpoints behind the reading of the states: `reached`, then `opened` by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self._read = False
        monkeypatch.setattr(log_checkpoints, "in_slices", self._in_slices)
        monkeypatch.setattr(ends_keeper, "in_slices", self._in_slices)

    async def _in_slices(self, items: Iterable[Any], every: int = 16) -> AsyncIterator[Any]:
        if self._read:
            self.reached.set()
            await self.opened.wait()
        self._read = True
        async for each in turns.in_slices(items, every):
            yield each


async def _checkpoints(made: Setup) -> None:
    await made.manager.write_checkpoints()


async def _written(made: Setup) -> None:
    await made.manager.write_written()


Write = Callable[[Setup], Awaitable[None]]


async def _fill(made: Setup, count: int = 3) -> PartitionLog:
    log = await made.open()
    for _ in range(count):
        await made.append(log)
    await log.run(log.native.sync)
    await made.maintenance.upkeep()
    assert log.native.state.recovery_point > 1, "the test needs more than what is left"
    return log


async def _run(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


async def _delete_and_open(made: Setup, log: PartitionLog) -> PartitionLog:
    await made.manager.delete(log)
    return await made.open(topic_id=OTHER_ID)


def _recovery_point(root: Path) -> int:
    return offset_checkpoint.read(root / "d" / offset_checkpoint.RECOVERY_POINT).get(KEY, 0)


@pytest.mark.parametrize("write", [_checkpoints, _written])
def test_nothing_of_a_deleted_log_is_recorded_of_the_new_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await _fill(made)
            gate = Gate(monkeypatch)
            writing = asyncio.create_task(_run(write(made)))
            await gate.reached.wait()
            opening = asyncio.create_task(_delete_and_open(made, log))
            await asyncio.wait([opening], timeout=0.3)
            gate.opened.set()
            await asyncio.gather(writing, opening)
            if write is _checkpoints:
                assert _recovery_point(tmp_path) == 0
            await made.append(opening.result())
            await made.kill()
        async with setup(tmp_path) as made:
            again = await made.open(is_new=False, topic_id=OTHER_ID)
            assert again.native.state.log_end_offset == 1
            assert made.manager.ends.losses.count == 0

    asyncio.run(run())


@pytest.mark.parametrize("write", [_checkpoints, _written])
def test_nothing_of_a_log_that_failed_is_recorded_of_what_is_left_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open()
            for _ in range(3):
                await made.append(log)
            path = log.path / f"{0:020d}.log"
            gate = Gate(monkeypatch)
            writing = asyncio.create_task(_run(write(made)))
            await gate.reached.wait()
            await made.manager.drop(log)
            path.write_bytes(path.read_bytes()[:-1])
            again = await made.open(is_new=False)
            assert again.native.state.log_end_offset == 2, "the test needs a log that is shorter than before"
            gate.opened.set()
            await writing
            await made.kill()
        async with setup(tmp_path) as made:
            await made.open(is_new=False)
            assert made.manager.ends.losses.count == 0

    asyncio.run(run())


async def _cut(made: Setup, log: PartitionLog) -> PartitionLog:
    await log.run(log.native.resign, NOT_LEADER)
    await log.run(log.native.truncate, 1)
    await made.manager.correct_checkpoints(log)
    return log


@pytest.mark.parametrize(("change", "end"), [(_delete_and_open, 0), (_cut, 1)])
def test_a_log_takes_no_records_before_a_write_that_tells_more_of_it_is_corrected(
    tmp_path: Path, change: Callable[[Setup, PartitionLog], Awaitable[PartitionLog]], end: int
) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await _fill(made)
            begun, may_write = threading.Event(), threading.Event()
            save = log.directory.ends.save

            def slow_save(*arguments: Any) -> None:
                begun.set()
                assert may_write.wait(60)
                save(*arguments)

            log.directory.ends.save = slow_save  # type: ignore[method-assign]
            writing = asyncio.create_task(made.manager.write_checkpoints())
            await asyncio.get_running_loop().run_in_executor(None, begun.wait, 60)
            changing = asyncio.create_task(_run(change(made, log)))
            await asyncio.wait([changing], timeout=0.3)
            is_early = changing.done()
            may_write.set()
            await asyncio.gather(writing, changing)
            assert not is_early
            assert _recovery_point(tmp_path) <= end

    asyncio.run(run())
