"""Records of log ends that are lowered while checkpoints are being written."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from log_setup import Setup, setup

from pybroker.storage.files import log_ends
from pybroker.storage.files.log_ends import EndsFile, RecordedEnds
from pybroker.storage.logs.partition_log import PartitionLog

KEY = ("t", 0)


async def _clean(made: Setup, log: PartitionLog) -> None:
    await made.manager.ends.before_cleaning(log)


async def _delete(made: Setup, log: PartitionLog) -> None:
    await made.manager.ends.before_deletion([(log, 1)])


def _recorded(root: Path) -> RecordedEnds | None:
    found = EndsFile.read(root / "d")
    return None if found is None else found.ends.get(KEY)


@pytest.mark.parametrize("change", [_clean, _delete])
@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_write_of_checkpoints_under_way_does_not_bring_back_segments_that_are_about_to_go(
    tmp_path: Path, change: Callable[[Setup, PartitionLog], Awaitable[None]], is_recorded: bool
) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open()
            if is_recorded:
                await made.manager.write_checkpoints()
            await made.append(log)
            await log.run(log.native.roll)
            await made.append(log)
            await log.run(log.native.sync)
            await made.maintenance.upkeep()
            await made.maintenance.apply_retention()
            assert log.sealed, "the test needs a segment that would be recorded"
            may_write = threading.Event()
            save = log.directory.ends.save

            def slow_save(*arguments: object) -> None:
                assert may_write.wait(60)
                save(*arguments)  # type: ignore[arg-type]

            log.directory.ends.save = slow_save  # type: ignore[method-assign]
            writing = asyncio.create_task(made.manager.write_checkpoints())
            await asyncio.sleep(0)
            changing = asyncio.create_task(_as_task(change(made, log)))
            for _ in range(10):
                await asyncio.sleep(0)
            may_write.set()
            await changing
            recorded = _recorded(tmp_path)
            await writing
            del log.directory.ends.save  # type: ignore[method-assign]
            assert recorded == _recorded(tmp_path), "the segments may go before the record was lowered"
            assert recorded is not None
            assert (recorded.start, recorded.segments) == (log.planned_start, ())

    asyncio.run(run())


async def _as_task(change: Awaitable[None]) -> None:
    await change


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("is_next_checkpoint_written", [False, True])
def test_what_is_deleted_on_a_full_disk_is_no_loss_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, is_next_checkpoint_written: bool
) -> None:
    def fail(path: Path, data: bytes, mode: int | None = None) -> None:
        raise OSError(code, os.strerror(code), str(path))

    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open()
            await made.append(log)
            await log.run(log.native.roll)
            await made.append(log)
            await log.run(log.native.sync)
            await made.maintenance.upkeep()
            await made.maintenance.apply_retention()
            await made.manager.write_checkpoints()
            recorded = _recorded(tmp_path)
            assert recorded is not None and recorded.segments
            with monkeypatch.context() as patch:
                patch.setattr(log_ends, "write_durably", fail)
                await made.manager.ends.before_deletion([(log, 1)])
                await log.run(log.native.delete_before, 1)
            if is_next_checkpoint_written:
                await made.manager.write_checkpoints()
                recorded = _recorded(tmp_path)
                assert recorded is not None and recorded.start == 1
            await made.kill()
        async with setup(tmp_path) as made:
            log = await made.open(is_new=False)
            assert made.manager.ends.losses.count == 0
            assert (log.native.state.log_start_offset, log.native.state.log_end_offset) == (1, 2)

    asyncio.run(run())
