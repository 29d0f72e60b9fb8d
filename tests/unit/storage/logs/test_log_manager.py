"""Open logs over the real data plane: retention, upkeep, syncing by time, checkpoints, closing."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from log_setup import NOT_LEADER, Setup, setup

from pybroker.config.topic import TopicConfig
from pybroker.native.broker import NativeBroker
from pybroker.native.errors import NativeError
from pybroker.native.partition import NativePartition
from pybroker.storage.dirs.log_directory import LogDirectory
from pybroker.storage.errors import StorageError
from pybroker.storage.files import clean_shutdown, offset_checkpoint
from pybroker.storage.logs.closing import TOGETHER
from tests.harness.waiting import until_async


def test_retention_by_time_and_size(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            aged = await made.open("aged", retention_ms="1000")
            sized = await made.open("sized", retention_ms="-1", retention_bytes="2000")
            kept = await made.open("kept", cleanup_policy="compact", retention_ms="1", retention_bytes="1")
            for log in (aged, sized, kept):
                for number in range(4):
                    await made.append(log, made.clock.now_ms - 3000 + number * 1000, 900)
                    await log.run(log.native.roll)
            await made.maintenance.apply_retention()
            assert aged.native.state.log_start_offset == 2, "1000 ms is not more than 1000 ms"
            assert sized.native.state.log_start_offset == 1, "without another segment it would be below the bound"
            assert kept.native.state.log_start_offset == 0
            made.clock.now_ms += 10_000
            await made.maintenance.apply_retention()
            assert aged.native.state.log_start_offset == 4

    asyncio.run(run())


def test_retention_rolls_an_active_segment_that_is_too_old(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open(retention_ms="1000", file_delete_delay_ms="60000")
            await made.append(log, made.clock.now_ms - 5000)
            await made.maintenance.apply_retention()
            assert log.native.state[:2] == (1, 1)
            assert len(list(log.path.glob("*.log.deleted"))) == 1
            assert [each.base_offset for each in log.native.segments()] == [1]

    asyncio.run(run())


def test_upkeep_runs_over_all_logs(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            logs = [await made.open(partition=index) for index in range(70)]
            grown = await made.open("grown", segment_bytes="1048576")
            for _ in range(3):
                await made.append(grown, size_bytes=500_000)
            await made.maintenance.upkeep()
            assert grown.native.state.durable_offset == 3, "as much as a segment is synced in the background"
            assert all(log.native.state.durable_offset == 0 for log in logs)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("overrides", "appended_count", "waited_ms", "is_synced"),
    [
        ({"flush_messages": "2"}, 1, 10**6, False),
        ({"flush_messages": "2"}, 2, 0, True),
        ({"flush_ms": "500"}, 1, 499, False),
        ({"flush_ms": "500"}, 1, 500, True),
        ({"pybroker_durability": "interval"}, 1, 999, False),
        ({"pybroker_durability": "interval"}, 1, 1000, True),
        ({}, 5, 10**9, False),
    ],
)
def test_syncing_by_time_and_count(
    tmp_path: Path, overrides: dict[str, str], appended_count: int, waited_ms: int, is_synced: bool
) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open(**overrides)
            await made.maintenance.flush()
            for _ in range(appended_count):
                await made.append(log)
            made.clock.now_ms += waited_ms
            await made.maintenance.flush()
            assert log.native.state.durable_offset == (appended_count if is_synced else 0)

    asyncio.run(run())


@pytest.mark.parametrize("overrides", [{"pybroker_durability": "acks"}, {"flush_messages": "1"}])
def test_with_durable_acks_an_append_is_durable_when_it_is_told(tmp_path: Path, overrides: dict[str, str]) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open(**overrides)
            for count in range(1, 4):
                await made.append(log)
                state = log.native.state
                assert (state.high_watermark, state.durable_offset) == (count, count)
                assert (state.exposed_bytes, state.exposed_ms) == (0, 0)

    asyncio.run(run())


def test_durable_acks_begin_and_end_while_a_log_is_open(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open()
            await made.append(log)
            assert log.native.state[1:5] == (1, 1, 1, 0), "visible, not durable"
            for overrides, is_durable in (({"flush.messages": "1"}, True), ({}, False)):
                made.manager.configure(log, TopicConfig.resolve(overrides, made.config))
                assert log.native.state.high_watermark == log.native.state.log_end_offset, "it never moves back"
                await made.append(log)
                state = log.native.state
                assert state.high_watermark == state.log_end_offset
                assert (state.durable_offset == state.log_end_offset) is is_durable

    asyncio.run(run())


def test_what_a_power_cut_would_cost_is_known(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open()
            assert made.manager.exposure() == (0, 0)
            await made.append(log)
            await asyncio.sleep(0.002)
            first_bytes, first_ms = made.manager.exposure()
            assert first_bytes == log.native.state.size_bytes and first_ms >= 1
            await made.append(log)
            assert made.manager.exposure()[0] == log.native.state.size_bytes > first_bytes
            await log.run(log.native.sync)
            assert made.manager.exposure() == (0, 0)

    asyncio.run(run())


def test_a_clean_close_and_its_checkpoints(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path, "a", "b") as made:
            logs = [await made.open(partition=index) for index in range(3)]
            assert sorted(log.directory.path.name for log in logs) == ["a", "a", "b"]
            for log in logs:
                await made.append(log)
            await made.manager.write_checkpoints()
            written = [offset_checkpoint.read(tmp_path / each / offset_checkpoint.HIGH_WATERMARK) for each in "ab"]
            assert written[0] | written[1] == {("t", index): 1 for index in range(3)}
        for each in "ab":
            assert clean_shutdown.read(tmp_path / each) == 5
            points = offset_checkpoint.read(tmp_path / each / offset_checkpoint.RECOVERY_POINT)
            assert set(points.values()) == {1}
        async with setup(tmp_path, "a", "b") as made:
            log = await made.open(partition=2)
            assert log.native.state.log_end_offset == 1
            assert log.native.recovery.scanned_bytes == 0

    asyncio.run(run())


@pytest.mark.parametrize("failing_call", [0, 1, 2])
def test_many_logs_are_closed_with_two_syncs_of_their_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing_call: int
) -> None:
    calls = []

    def sync_log_dir(broker: NativeBroker, path: str) -> None:
        calls.append(path)
        if len(calls) == failing_call:
            raise NativeError(-errno.EIO)
        sync(broker, path)

    sync = NativeBroker.sync_log_dir
    monkeypatch.setattr(NativeBroker, "sync_log_dir", sync_log_dir)

    async def run() -> None:
        async with setup(tmp_path) as made:
            for index in range(TOGETHER):
                log = await made.open(partition=index)
                for epoch in (3, 4):
                    log.native.lead(epoch)
                    await made.append(log)
        assert calls == [str(tmp_path / "d")] * 2
        points = offset_checkpoint.read(tmp_path / "d" / offset_checkpoint.RECOVERY_POINT)
        assert set(points.values()) == {0 if failing_call else 2}
        assert clean_shutdown.read(tmp_path / "d") == (None if failing_call else 5)
        aside = list((tmp_path / "d").glob("t-*/leader-epoch-checkpoint.tmp"))
        assert len(aside) == (TOGETHER if failing_call == 1 else 0)
        async with setup(tmp_path) as made:
            for index in range(TOGETHER):
                log = await made.open(partition=index)
                assert log.native.state.log_end_offset == 2
                assert (log.native.recovery.scanned_bytes == 0) is (failing_call == 0)
                assert log.native.epoch_end(3) == (3, 1)

    asyncio.run(run())


def test_a_partition_in_two_log_dirs_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "t-0").mkdir(parents=True)

    async def run() -> None:
        async with setup(tmp_path, "a", "b"):
            raise AssertionError("it must not start")

    with pytest.raises(StorageError, match="same partition"):
        asyncio.run(run())


@pytest.mark.parametrize("stops", [False, True])
def test_files_of_a_deleted_topic_are_drained_before_they_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stops: bool
) -> None:
    sizes: list[int] = []
    entered, leave = threading.Event(), threading.Event()
    drain = NativeBroker.drain_file

    def slow(broker: NativeBroker, path: str) -> None:
        drain(broker, path)
        if path.endswith(".log"):
            sizes.append(os.stat(path).st_size)
            entered.set()
            assert leave.wait(60)

    monkeypatch.setattr(NativeBroker, "drain_file", slow)

    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open(file_delete_delay_ms="0", segment_bytes="33554432")
            for _ in range(2):
                await made.append(log)
                await log.run(log.native.roll)
            # As large as it would be after a million records.
            os.truncate(log.path / f"{0:020d}.log", 20 << 20)
            await made.manager.delete(log)
            assert await asyncio.to_thread(entered.wait, 60)
            if stops:
                # Closing comes by here when it has begun.
                monkeypatch.setattr(made.manager.purge, "cancel", leave.set)
                return
            leave.set()
            await until_async(lambda: not list((tmp_path / "d").glob("t-0.*")))

    async def restart() -> None:
        async with setup(tmp_path) as made:
            assert [each.name[-7:] for each in made.manager.directories[0].deleted] == ["-delete"]
            await made.manager.remove(made.manager.directories[0].deleted[0])
        assert not list((tmp_path / "d").glob("t-0.*"))

    asyncio.run(run())
    # A large file is no more than a piece of what it was; what is small goes as it is.
    assert sizes[0] <= 8 << 20
    if stops:
        assert len(sizes) == 1, "the others are left to the next start"
        asyncio.run(restart())


def test_closing_waits_for_calls_under_way(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open()
            log.hold()
            closing = asyncio.create_task(made.manager.delete(log))
            await asyncio.sleep(0.02)
            assert not closing.done()
            assert log.native.state.log_end_offset == 0, "the handle is still good"
            log.release()
            await closing
            assert not log.path.exists()

    asyncio.run(run())


def test_a_dir_with_an_unchecked_log_is_not_marked_clean_and_keeps_its_checkpoints(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            for index in range(2):
                log = await made.open(partition=index)
                for _ in range(3):
                    await made.append(log)
                await log.run(log.native.delete_before, 2)
        clean_shutdown.remove(tmp_path / "d")
        points = offset_checkpoint.read(tmp_path / "d" / offset_checkpoint.RECOVERY_POINT)
        starts = offset_checkpoint.read(tmp_path / "d" / offset_checkpoint.LOG_START_OFFSET)
        assert set(points.values()) == {3} and set(starts.values()) == {2}
        # The broker is stopped before it has got to the second log.
        async with setup(tmp_path) as made:
            await made.open(partition=0)
            await made.manager.write_checkpoints()
        assert clean_shutdown.read(tmp_path / "d") is None
        assert offset_checkpoint.read(tmp_path / "d" / offset_checkpoint.RECOVERY_POINT) == points
        assert offset_checkpoint.read(tmp_path / "d" / offset_checkpoint.LOG_START_OFFSET) == starts
        async with setup(tmp_path) as made:
            for index in range(2):
                await made.open(partition=index)
        assert clean_shutdown.read(tmp_path / "d") == 5

    asyncio.run(run())


def test_a_dir_that_was_clean_stays_clean_when_its_logs_were_not_touched(tmp_path: Path) -> None:
    async def run(expected_epoch: int | None) -> None:
        made = Setup(tmp_path, ("d",))
        await made.manager.load()
        await made.manager.close(broker_epoch=-1, resigned_error=NOT_LEADER)
        made.native.stop()
        made.native.close()
        assert clean_shutdown.read(tmp_path / "d") == expected_epoch

    (tmp_path / "d" / "t-0").mkdir(parents=True)
    asyncio.run(run(None))
    clean_shutdown.write(tmp_path / "d", 7)
    asyncio.run(run(7))


def test_a_dir_with_a_log_that_cannot_be_opened_is_not_marked_clean(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            await made.open()
        assert clean_shutdown.read(tmp_path / "d") == 5
        (tmp_path / "d" / "u-0").mkdir()
        (tmp_path / "d" / "u-0" / "00000000000000000000.log").mkdir()
        clean_shutdown.write(tmp_path / "d", 5)
        async with setup(tmp_path) as made:
            await made.open()
            with pytest.raises(NativeError):
                await made.open("u")
        assert clean_shutdown.read(tmp_path / "d") is None

    asyncio.run(run())


def test_a_dir_that_could_not_be_read_keeps_its_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "0\n1\nt 0 3\n"

    async def run() -> None:
        made = Setup(tmp_path, ("d",))
        checkpoint = tmp_path / "d" / offset_checkpoint.RECOVERY_POINT
        checkpoint.write_text(text)

        def fail(log_dir: Path) -> None:
            raise OSError("no entry")

        monkeypatch.setattr(clean_shutdown, "read", fail)
        await made.manager.load()
        assert made.manager.failures.offline == {tmp_path / "d": "it cannot be read: no entry"}
        assert made.manager.live == []
        await made.manager.close(broker_epoch=-1, resigned_error=NOT_LEADER)
        made.native.stop()
        made.native.close()
        assert checkpoint.read_text() == text
        assert not (tmp_path / "d" / clean_shutdown.FILE_NAME).exists()

    asyncio.run(run())


def test_a_topic_made_again_does_not_inherit_offsets(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open()
            for _ in range(3):
                await made.append(log)
            await log.run(log.native.delete_before, 2)
        async with setup(tmp_path) as made:
            log = await made.open()
            assert log.native.state.log_start_offset == 2
            await made.manager.delete(log)
            log = await made.open()
            assert log.native.state[:4] == (0, 0, 0, 0)

    asyncio.run(run())


def test_a_log_that_failed_is_not_trusted_when_it_is_opened_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            await made.append(await made.open(), size_bytes=100)
        async with setup(tmp_path) as made:
            log = await made.open()
            assert made.manager.directories[0].clean
            assert log.native.recovery.scanned_bytes == 0
            await made.append(log, size_bytes=100)
            await made.manager.drop(log)
            path = log.path / f"{0:020d}.log"
            torn = bytearray(path.read_bytes())
            torn[-1] ^= 1
            path.write_bytes(torn)
            again = await made.open()
            assert again.native.recovery.scanned_bytes > 0
            assert again.native.state.log_end_offset == 1, "what was never synced is compared with its CRC"

    asyncio.run(run())


def test_one_write_corrects_the_checkpoints_of_all_logs_that_were_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            logs = [await made.open(partition=index) for index in range(3)]
            for log in logs:
                for _ in range(3):
                    await made.append(log)
                await log.run(log.native.sync)
                await log.run(log.native.upkeep, 0, 0)
            await made.manager.write_checkpoints()
            for log in logs:
                await log.run(log.native.resign, NOT_LEADER)
                await log.run(log.native.truncate, 1)
            written: list[Any] = []
            write = LogDirectory.write_checkpoints

            def write_checkpoints(directory: LogDirectory, states: Any, ends: Any) -> None:
                written.append(states)
                write(directory, states, ends)

            monkeypatch.setattr(LogDirectory, "write_checkpoints", write_checkpoints)
            await asyncio.gather(*(made.manager.correct_checkpoints(log) for log in logs))
            assert len(written) == 1
            points = offset_checkpoint.read(tmp_path / "d" / offset_checkpoint.RECOVERY_POINT)
            assert set(points) == {log.key for log in logs} and max(points.values()) <= 1
            await made.manager.correct_checkpoints(logs[0])
            assert len(written) == 1

    asyncio.run(run())


def test_checkpoints_go_on_saying_what_was_true_of_a_log_that_failed(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open()
            for _ in range(3):
                await made.append(log, size_bytes=100)
            await log.run(log.native.sync)
            await log.run(log.native.delete_before, 2)
            last = log.native.state
            assert last.log_start_offset == 2
            await made.manager.drop(log)
            directory = made.manager.directories[0]
            directory.write_checkpoints({})
            points = offset_checkpoint.read(directory.path / offset_checkpoint.RECOVERY_POINT)
            assert points == {log.key: last.recovery_point}
            assert offset_checkpoint.read(directory.path / offset_checkpoint.LOG_START_OFFSET) == {log.key: 2}
            again = (await made.open()).native.state
            assert (again.log_start_offset, again.log_end_offset) == (2, 3)

    asyncio.run(run())


def test_a_call_whose_caller_is_cancelled_keeps_the_handle_open(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open()
            entered, leave = threading.Event(), threading.Event()

            def slow() -> int:
                entered.set()
                assert leave.wait(60)
                return log.native.state.log_end_offset

            reading = asyncio.create_task(log.run(slow))
            assert await asyncio.to_thread(entered.wait, 60)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            assert reading.cancelled()
            closing = asyncio.create_task(made.manager.delete(log))
            await asyncio.sleep(0.02)
            assert not closing.done(), "the thread is still in the log"
            leave.set()
            await closing

    asyncio.run(run())


def test_upkeep_that_is_cancelled_keeps_the_handles_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open()
            entered, leave = threading.Event(), threading.Event()

            def slow(native: NativePartition, now_ms: int, purge_before_ms: int) -> None:
                entered.set()
                assert leave.wait(60)

            monkeypatch.setattr(NativePartition, "upkeep", slow)
            upkeep = asyncio.create_task(made.maintenance.upkeep())
            assert await asyncio.to_thread(entered.wait, 60)
            upkeep.cancel()
            await asyncio.gather(upkeep, return_exceptions=True)
            closing = asyncio.create_task(made.manager.delete(log))
            await asyncio.sleep(0.02)
            assert not closing.done(), "the thread is still in the log"
            leave.set()
            await closing

    asyncio.run(run())


@pytest.mark.parametrize(("work", "call"), [("flush", "sync"), ("upkeep", "mark")])
def test_a_log_is_closed_while_others_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str, call: str
) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            logs = [await made.open(partition=index, flush_messages="2") for index in range(3)]
            for log in logs:
                await made.append(log)
                await made.append(log)
                log.marked_bytes = -log.config.segment_bytes
            entered, leave = threading.Event(), threading.Event()
            sync = getattr(NativePartition, call)

            def slow(native: NativePartition) -> None:
                if native is not logs[0].native:
                    entered.set()
                    assert leave.wait(60)
                sync(native)

            monkeypatch.setattr(NativePartition, call, slow)
            syncing = asyncio.create_task(getattr(made.maintenance, work)())
            assert await asyncio.to_thread(entered.wait, 60)
            await made.manager.delete(logs[0])
            await made.manager.delete(logs[2])
            leave.set()
            await syncing

    asyncio.run(run())


def test_retention_goes_on_when_a_topic_is_deleted_meanwhile(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            logs = [await made.open(partition=index, retention_ms="1000") for index in range(3)]
            for log in logs:
                await made.append(log, made.clock.now_ms - 5000)
            retention = asyncio.create_task(made.maintenance.apply_retention())
            await asyncio.sleep(0)
            await made.manager.delete(logs[1])
            await retention
            assert logs[0].native.state.log_start_offset == 1
            assert logs[2].native.state.log_start_offset == 1

    asyncio.run(run())


def test_what_was_cut_off_a_compacted_log_is_not_called_clean_any_more(tmp_path: Path) -> None:
    path = tmp_path / "d" / offset_checkpoint.CLEANER_OFFSET

    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open(cleanup_policy="compact")
            for _ in range(4):
                await made.append(log)
            checkpoint = log.directory.cleaner_checkpoint
            checkpoint.put(log.key, 4)
            await log.run(log.native.resign, NOT_LEADER)
            await log.run(log.native.truncate, 2)
            assert log.native.state.cut_offset == 2
            log.native.lead(1)
            for _ in range(4):
                await made.append(log)
            await made.manager.write_checkpoints()
            assert offset_checkpoint.read(path) == {log.key: 2}
        async with setup(tmp_path) as made:
            log = await made.open(cleanup_policy="compact")
            assert log.directory.cleaner_checkpoint.get(log.key) == 2
        # As if it was cut, and the broker killed before anybody came to lower it.
        offset_checkpoint.write(path, {log.key: 7})
        async with setup(tmp_path) as made:
            log = await made.open(cleanup_policy="compact")
            assert log.directory.cleaner_checkpoint.get(log.key) is None
        assert offset_checkpoint.read(path) == {}

    asyncio.run(run())
