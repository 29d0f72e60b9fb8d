"""The life of a segment over the real data plane: when it is rolled, when it may go, when its files go; and what of
that a restart or a crash keeps."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path

import pytest
from log_setup import Setup, setup

from pybroker.config.topic import TopicConfig
from pybroker.native.partition import NativePartition
from pybroker.storage.logs import segment_purge
from pybroker.storage.logs.partition_log import PartitionLog


def bases(log: PartitionLog) -> list[int]:
    return [each.base_offset for each in log.native.segments()]


async def append_at(made: Setup, log: PartitionLog, *timestamps_ms: int, size_bytes: int = 10) -> None:
    for timestamp_ms in timestamps_ms:
        await made.append(log, timestamp_ms, size_bytes)


def test_a_segment_is_rolled_by_the_time_of_its_first_batch_whoever_wrote_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open(segment_ms="1000")
            await append_at(made, log, 5000, 6000)
        async with setup(tmp_path) as made:
            log = await made.open(segment_ms="1000")
            await append_at(made, log, 6000)
            assert bases(log) == [0]
            await append_at(made, log, 6001, 5500, 7001)
            assert bases(log) == [0, 3], "an older batch rolls nothing, and 1000 ms are not more than 1000 ms"
            await append_at(made, log, 7002)
            assert bases(log) == [0, 3, 6]

    asyncio.run(run())


def test_a_compacted_log_rolls_in_time_for_max_compaction_lag(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            lags = {"max_compaction_lag_ms": "1000", "segment_ms": "5000"}
            compacted = await made.open("compacted", cleanup_policy="compact", **lags)
            deleted = await made.open("deleted", **lags)
            for log in (compacted, deleted):
                await append_at(made, log, 5000, 6001)
            assert bases(compacted) == [0, 1]
            assert bases(deleted) == [0]

    asyncio.run(run())


def test_segments_are_rolled_by_size_and_by_full_indexes(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            sized = await made.open("sized", internal_segment_bytes="1000")
            # Each batch but the first gets an index entry; two make an offset index of 16 bytes full.
            indexed = await made.open("indexed", index_interval_bytes="0", segment_index_bytes="16")
            for log in (sized, indexed):
                await append_at(made, log, *[1000] * 8, size_bytes=300)
            assert bases(sized) == [0, 2, 4, 6]
            assert len(bases(indexed)) > 1
            grown = await made.open("grown", internal_segment_bytes="1000000")
            await append_at(made, grown, *[1000] * 3, size_bytes=300)
            made.manager.configure(grown, sized.config)
            await append_at(made, grown, *[1000] * 2, size_bytes=300)
            assert bases(grown) == [0, 3], "a smaller size counts for the segment that is there"

    asyncio.run(run())


@pytest.mark.parametrize("clean", [True, False])
def test_retention_by_time_after_a_restart(tmp_path: Path, clean: bool) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            now_ms = made.clock.now_ms
            log = await made.open(internal_segment_bytes="1000", retention_ms="500")
            # The largest timestamp of a segment counts, not its last; the active one is too old as well.
            await append_at(made, log, now_ms - 900, now_ms - 800, now_ms - 400, now_ms - 700, size_bytes=400)
            if not clean:
                shutil.copytree(tmp_path / "d", tmp_path / "crashed")
        async with setup(tmp_path, "d" if clean else "crashed") as made:
            log = await made.open(internal_segment_bytes="1000", retention_ms="500")
            assert bases(log) == [0, 2]
            await made.maintenance.apply_retention()
            assert log.native.state.log_start_offset == 2
            made.clock.now_ms += 101
            await made.maintenance.apply_retention()
            assert log.native.state[:2] == (4, 4)

    asyncio.run(run())


@pytest.mark.parametrize("clean", [True, False])
def test_without_timestamps_a_restart_makes_nothing_younger(tmp_path: Path, clean: bool) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open(internal_segment_bytes="1000")
            await append_at(made, log, -1, -1, -1, size_bytes=900)
            if not clean:
                shutil.copytree(tmp_path / "d", tmp_path / "crashed")
        name = "d" if clean else "crashed"
        for path, modified_s in zip(
            sorted((tmp_path / name / "t-0").glob("*.log")), (1_000, 1_000, 5_000), strict=True
        ):
            os.utime(path, (modified_s, modified_s))
        async with setup(tmp_path, name) as made:
            log = await made.open(internal_segment_bytes="1000", retention_ms="3000000")
            assert [each.largest_timestamp_ms for each in log.native.segments()] == [-1, -1, -1]
            assert [each.modified_ms for each in log.native.segments()] == [1_000_000, 1_000_000, 5_000_000]
            made.clock.now_ms = 4_000_001
            await made.maintenance.apply_retention()
            assert bases(log) == [2]

    asyncio.run(run())


def test_timestamps_of_the_future_keep_a_segment(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open(internal_segment_bytes="1000", retention_ms="500")
            future_ms = made.clock.now_ms + 7_200_000
            await append_at(made, log, 1, future_ms, 2, 3, 4, 5, size_bytes=400)
            await made.maintenance.apply_retention()
            assert bases(log) == [0, 2, 4], "nothing behind a segment that stays may go"
            assert caplog.text.count("7200 s in the future") == 1 and "t-0" in caplog.text
            await made.maintenance.apply_retention()
            assert caplog.text.count("the future") == 1, "said once"
            made.clock.now_ms = future_ms + 501
            await made.maintenance.apply_retention()
            assert log.native.state.log_start_offset == 6

    asyncio.run(run())


def test_preallocated_space_is_no_part_of_the_log(tmp_path: Path) -> None:
    settings = {"preallocate": "true", "internal_segment_bytes": "100000"}

    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open(**settings)
            await append_at(made, log, 1000, 1000)
            (file,) = log.path.glob("*.log")
            assert file.stat().st_blocks * 512 >= 100_000
            shutil.copytree(tmp_path / "d", tmp_path / "crashed")
            size_bytes = log.native.state.size_bytes
        assert file.stat().st_size == size_bytes, "a clean stop gives it back"
        copied = tmp_path / "crashed" / "t-0" / file.name
        os.truncate(copied, 100_000)
        async with setup(tmp_path, "crashed") as made:
            log = await made.open(**settings)
            assert log.native.state.log_end_offset == 2
            assert log.native.state.size_bytes == size_bytes
            await append_at(made, log, 1000)
            assert log.native.read(2, 1000)
        assert copied.stat().st_size > size_bytes

    asyncio.run(run())


def test_files_go_when_their_delay_is_over(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            soon = await made.open("soon", internal_segment_bytes="1000", file_delete_delay_ms="200")
            late = await made.open("late", internal_segment_bytes="1000", file_delete_delay_ms="60000")
            made.clock.now_ms = time.time_ns() // 1_000_000
            for log in (soon, late):
                await append_at(made, log, *[made.clock.now_ms] * 4, size_bytes=400)
                await log.run(log.native.delete_before, 2)
                made.manager.purge.due(log)
                assert len(list(log.path.glob("*.deleted"))) >= 1
            made.clock.now_ms += 10_000
            for _ in range(6000):
                if not list(soon.path.glob("*.deleted")):
                    break
                await asyncio.sleep(0.01)
            assert not list(soon.path.glob("*.deleted"))
            assert list(late.path.glob("*.deleted"))

    asyncio.run(run())


def test_a_job_over_many_logs_gives_them_back_before_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that is to be closed waits for one call, not for those of all the others."""
    monkeypatch.setattr(segment_purge, "_LONG_JOB_S", 0.0)

    async def run() -> None:
        async with setup(tmp_path) as made:
            logs = [await made.open(partition=number) for number in range(4)]
            called: list[int] = []
            closing: list[asyncio.Future[None]] = []
            loop = asyncio.get_running_loop()

            def call(native: NativePartition) -> None:
                called.append(native.state.log_end_offset)
                if len(called) == 1:
                    # Meanwhile somebody wants the last one gone.
                    loop.call_soon_threadsafe(lambda: closing.append(asyncio.ensure_future(made.manager.drop(logs[3]))))

            assert await segment_purge.call_each(made.manager.executor, [(log, call) for log in logs]) == []
            assert len(called) == 3
            await closing[0]

    asyncio.run(run())


def test_deleting_records_of_a_compacted_topic(tmp_path: Path) -> None:
    """With the cleaner on, retention of compacted logs is its business; DeleteRecords moves their start as well."""

    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open(cleanup_policy="compact,delete", internal_segment_bytes="1000", retention_ms="500")
            await append_at(made, log, *[made.clock.now_ms] * 6, size_bytes=400)
            await log.run(log.native.delete_before, 3)
            assert log.native.state.log_start_offset == 3
            assert bases(log) == [2, 4]
            made.clock.now_ms += 501
            await made.maintenance.apply_retention()
            assert bases(log) == [2, 4]
            await made.maintenance.retain([log])
            assert log.native.state[:2] == (6, 6)

    asyncio.run(run())


def test_the_log_start_offset_is_kept(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open()
            await append_at(made, log, *[1000] * 4)
            await log.run(log.native.delete_before, 3)
            await made.manager.write_checkpoints()
            shutil.copytree(tmp_path / "d", tmp_path / "crashed")
        for name in ("d", "crashed"):
            async with setup(tmp_path, name) as made:
                log = await made.open()
                assert log.native.state[:2] == (3, 4)

    asyncio.run(run())


def test_a_log_that_is_compacted_no_more_is_not_cleaned_to_the_end(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open(cleanup_policy="compact")
            interrupts: list[str] = []
            log.interrupt = lambda: interrupts.append("now")
            for policy in ("compact,delete", "delete"):
                made.manager.configure(log, TopicConfig.resolve({"cleanup.policy": policy}, made.config))
                assert bool(interrupts) is (policy == "delete")
            log.interrupt = None

    asyncio.run(run())
