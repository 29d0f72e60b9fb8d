"""The scrub over real logs: what it finds, says once, and leaves readable."""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pybroker.config.broker import BrokerConfig
from pybroker.config.topic import TopicConfig
from pybroker.native.broker import EVENT_APPENDED, BrokerOptions, NativeBroker
from pybroker.native.errors import NativeError
from pybroker.native.partition import SCRUB_NOTHING, NativePartition, ScrubPass, ScrubStep
from pybroker.protocol import record_batch
from pybroker.protocol.record_batch import Record
from pybroker.storage.dirs.log_directory import LogDirectory
from pybroker.storage.logs.log_manager import LogManager
from pybroker.storage.logs.log_scrub import LogScrub
from pybroker.storage.logs.partition_log import PartitionLog
from tests.harness.waiting import until_async

SEGMENT = "00000000000000000000"
BATCH_COUNT = 20
CORRUPT_MESSAGE = 2


class Clock:
    def monotonic_ms(self) -> int:
        return 1

    def wall_ms(self) -> int:
        return 1


async def filled(native: NativeBroker, manager: LogManager, config: BrokerConfig, index: int) -> PartitionLog:
    """A log with a sealed segment of twenty batches, its indexes in their files."""
    log = await manager.open(("t", index), bytes(range(16)), bytes(16), 0, TopicConfig.resolve({}, config))
    log.native.lead(0)
    for number in range(BATCH_COUNT):
        log.native.append(record_batch.build(0, 0, [Record(None, bytes(900))], timestamp_ms=number + 1), number)
        done = 0
        while done == 0:
            done = sum(event[0] == EVENT_APPENDED for event in native.take_events())
            await asyncio.sleep(0)
    log.native.roll()
    log.native.upkeep(1, 0)
    return log


def run(root: Path, body: Callable[[LogManager, LogScrub], Awaitable[None]], *overrides: str, logs: int = 2) -> None:
    """So many filled logs below `root`, a scrub over them, and `body`."""

    async def main() -> None:
        config = BrokerConfig.load(None, ["pybroker.scrub.bytes.per.second=1000000000", *overrides])
        native = NativeBroker(BrokerOptions("epoll", 1, 1, 0, 1 << 20, 1 << 20, 100, 60_000, 10, 1 << 20))
        native.start()
        manager = LogManager(native, [LogDirectory(root, bytes([1]) * 16)], config, Clock())
        await manager.load()
        for index in range(logs):
            await filled(native, manager, config, index)
        try:
            await body(manager, LogScrub(manager))
        finally:
            await manager.close(5, 6)
            native.stop()
            native.close()

    asyncio.run(main())


async def until_written(native: NativePartition, end_offset: int) -> None:
    await until_async(lambda: native.state.log_end_offset >= end_offset)


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_damage_is_told_once_and_readers_are_kept_from_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def body(manager: LogManager, scrub: LogScrub) -> None:
        with caplog.at_level(logging.ERROR):
            await scrub.check_all()
            assert caplog.records == []
            batch_bytes = (tmp_path / "t-1" / f"{SEGMENT}.log").stat().st_size // BATCH_COUNT
            assert scrub.progress == (1, 2 * BATCH_COUNT * batch_bytes, 0, "")
            flip(tmp_path / "t-1" / f"{SEGMENT}.log", 7 * batch_bytes + 100)
            native = manager.logs["t", 1].native
            assert native.read(7, 1 << 20), "nobody has noticed"
            await scrub.check_all()
            await scrub.check_all()
        (said,) = [record.getMessage() for record in caplog.records]
        assert said.startswith(
            f"{tmp_path}/t-1/{SEGMENT}.log is damaged at position {7 * batch_bytes} up to {8 * batch_bytes}: "
            "fetches of offsets 7 to 7 are answered CORRUPT_MESSAGE"
        )
        assert scrub.progress.finding_count == 1
        assert len(native.read(5, 1 << 20)) == 2 * batch_bytes, "a read before it ends in front of it"
        assert native.read(8, 1 << 20)
        with pytest.raises(NativeError) as raised:
            native.read(7, 1 << 20)
        assert raised.value.code == CORRUPT_MESSAGE

    run(tmp_path, body)


def test_a_damaged_index_is_built_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def body(manager: LogManager, scrub: LogScrub) -> None:
        index = tmp_path / "t-0" / f"{SEGMENT}.index"
        sound = index.read_bytes()
        flip(index, 7)
        with caplog.at_level(logging.ERROR):
            await scrub.check_all()
            assert index.read_bytes() == sound
            await scrub.check_all()
        (said,) = [record.getMessage() for record in caplog.records]
        assert said == f"{index} was damaged at position 0; it has been built again from the batches"

    run(tmp_path, body)


def test_it_can_be_turned_off(tmp_path: Path) -> None:
    async def body(manager: LogManager, scrub: LogScrub) -> None:
        await scrub.check_all()
        assert scrub.progress.checked_bytes == 0

    run(tmp_path, body, "pybroker.scrub.bytes.per.second=0")


@pytest.mark.parametrize("speed", ["0", "1000000000"])
def test_a_rate_that_changes_while_it_reads_counts_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, speed: str
) -> None:
    read = NativePartition.scrub
    pauses: list[float] = []

    async def body(manager: LogManager, scrub: LogScrub) -> None:
        def change(self: NativePartition, scrub_pass: ScrubPass, _: int) -> ScrubStep:
            manager.config = BrokerConfig.load(None, [f"pybroker.scrub.bytes.per.second={first}"])
            return read(self, scrub_pass, 1000)

        async def pause(seconds: float) -> None:
            pauses.append(seconds)
            assert len(pauses) < 1000, "it goes on in spite of all"
            manager.config = BrokerConfig.load(None, [f"pybroker.scrub.bytes.per.second={speed}"])

        first = "0" if speed == "0" else "1"
        monkeypatch.setattr(NativePartition, "scrub", change)
        monkeypatch.setattr(scrub, "_pause", pause)
        await scrub.check_all()
        assert scrub.progress.pass_count == 1
        assert max(pauses, default=0) <= 60

    run(tmp_path, body, logs=1)


def test_an_active_segment_at_which_the_scrub_was_turned_off_is_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = NativePartition.scrub
    done: list[bool] = []

    async def fill(manager: LogManager, scrub: LogScrub) -> None:
        native = manager.logs["t", 0].native
        for number in range(2):
            native.append(record_batch.build(0, 0, [Record(None, bytes(900))], timestamp_ms=1), 99 + number)
        await until_written(native, BATCH_COUNT + 2)

    async def body(manager: LogManager, scrub: LogScrub) -> None:
        running = manager.config
        log = await manager.open(
            ("t", 0), bytes(range(16)), bytes(16), 0, TopicConfig.resolve({}, running), is_new=False
        )

        def turn_off(self: NativePartition, scrub_pass: ScrubPass, _: int) -> ScrubStep:
            step = read(self, scrub_pass, 1000)
            done.append(bool(step.done))
            if len(done) == 1:
                manager.config = BrokerConfig.load(None, ["pybroker.scrub.bytes.per.second=0"])
            return step

        monkeypatch.setattr(NativePartition, "scrub", turn_off)
        await scrub.check_opened()
        assert done == [False], "the test needs a part of the segment"
        manager.config = running
        await scrub.check_opened()
        assert done[-1] and log.native.state.log_end_offset == BATCH_COUNT + 2

    run(tmp_path, fill, logs=1)
    run(tmp_path, body, logs=0)


def test_a_sector_that_cannot_be_read_leaves_the_log_dir_in_service(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = NativePartition.scrub
    failed = set()

    def fail_once(self: NativePartition, *arguments: Any) -> ScrubStep:
        if self not in failed:
            failed.add(self)
            raise NativeError(-errno.EIO, "cannot check x.log: Input/output error")
        return read(self, *arguments)

    async def body(manager: LogManager, scrub: LogScrub) -> None:
        monkeypatch.setattr(NativePartition, "scrub", fail_once)
        with caplog.at_level(logging.ERROR):
            await scrub.check_all()
        assert ["cannot be read: cannot check x.log" in record.getMessage() for record in caplog.records] == [True] * 2
        assert scrub.progress.checked_bytes > 0, "the rest is read"
        assert all(directory.failure is None for directory in manager.directories)

    run(tmp_path, body)


def test_what_a_start_trusts_is_checked_once_right_after_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def fill(manager: LogManager, scrub: LogScrub) -> None:
        for log in list(manager.logs.values()):
            native: NativePartition = log.native
            native.append(record_batch.build(0, 0, [Record(None, bytes(900))], timestamp_ms=1), 99)
            await until_written(native, BATCH_COUNT + 1)

    async def body(manager: LogManager, scrub: LogScrub) -> None:
        config = TopicConfig.resolve({}, manager.config)
        log = await manager.open(("t", 1), bytes(range(16)), bytes(16), 0, config)
        log.native.lead(0)
        log.native.append(record_batch.build(0, 0, [Record(None, bytes(900))], timestamp_ms=1), 99)
        await until_written(log.native, BATCH_COUNT + 2)
        with caplog.at_level(logging.INFO, "pybroker.storage.logs.log_scrub"):
            await scrub.check_opened()
            await scrub.check_opened()
        active = tmp_path / "t-1" / f"{BATCH_COUNT:020d}.log"
        said, summary = [record.getMessage() for record in caplog.records]
        assert said.startswith(
            f"{active} is damaged at position 0 up to {active.stat().st_size // 2}: "
            f"fetches of offsets {BATCH_COUNT} to {BATCH_COUNT} are answered CORRUPT_MESSAGE"
        )
        assert summary.startswith("the active segments of 1 logs were checked") and "damage at 1 places" in summary
        with pytest.raises(NativeError) as raised:
            log.native.read(BATCH_COUNT, 1 << 20)
        assert raised.value.code == CORRUPT_MESSAGE
        assert log.native.read(BATCH_COUNT + 1, 1 << 20), "what came after the start is served"

    run(tmp_path, fill)
    flip(tmp_path / "t-1" / f"{BATCH_COUNT:020d}.log", 500)
    run(tmp_path, body, logs=0)


def test_a_log_that_opens_slowly_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs that began to open after it are open and checked before."""
    open_one, read = LogManager._open, NativePartition.scrub
    may_open = threading.Event()
    checked: list[NativePartition] = []

    def slowly(self: LogManager, key: tuple[str, int], *arguments: Any) -> Any:
        assert key[1] != 0 or may_open.wait(60)
        return open_one(self, key, *arguments)

    def noted(self: NativePartition, *arguments: Any) -> ScrubStep:
        step = read(self, *arguments)
        if step.done:
            checked.append(self)
        return step

    async def body(manager: LogManager, scrub: LogScrub) -> None:
        monkeypatch.setattr(LogManager, "_open", slowly)
        monkeypatch.setattr(NativePartition, "scrub", noted)
        topic = TopicConfig.resolve({}, manager.config)
        opening = [
            asyncio.create_task(manager.open(("t", index), bytes(range(16)), bytes(16), 0, topic)) for index in range(3)
        ]
        await asyncio.wait(opening[1:])
        await scrub.check_opened()
        assert len(checked) == 2
        may_open.set()
        slow = await opening[0]
        await scrub.check_opened()
        assert checked[2:] == [slow.native]
        # A log that is closed and opened again is another one.
        await manager.drop(slow)
        again = await manager.open(slow.key, slow.topic_id, bytes(16), 0, topic)
        await scrub.check_opened()
        await scrub.check_opened()
        assert checked[3:] == [again.native]
        assert scrub._checked_tags == {log.tag for log in manager.logs.values()}, "nothing of closed logs gathers"

    run(tmp_path, body, logs=0)


def test_what_a_step_finds_while_the_scrub_is_stopped_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have mended it, and then nothing would tell of it any more."""
    read = NativePartition.scrub
    under_way, may_go_on = threading.Event(), threading.Event()

    def wait(self: NativePartition, *arguments: Any) -> ScrubStep:
        step = read(self, *arguments)
        if step.finding != SCRUB_NOTHING:
            under_way.set()
            assert may_go_on.wait(60)
        return step

    async def body(manager: LogManager, scrub: LogScrub) -> None:
        monkeypatch.setattr(NativePartition, "scrub", wait)
        for number in range(2):
            flip(tmp_path / f"t-{number}" / f"{SEGMENT}.index", 7)
        scrub.start()
        await until_async(under_way.is_set)
        stopping = asyncio.create_task(scrub.stop())
        await asyncio.sleep(0)
        may_go_on.set()
        await stopping
        assert [record.getMessage().count("it has been built again") for record in caplog.records] == [1]

    with caplog.at_level(logging.ERROR):
        run(tmp_path, body, "log.initial.task.delay.ms=0")
