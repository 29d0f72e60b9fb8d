"""A damaged log opened by the log manager: what is said, what is served, what is kept."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from pybroker.config.broker import BrokerConfig
from pybroker.config.topic import TopicConfig
from pybroker.native.broker import BrokerOptions, NativeBroker
from pybroker.native.errors import NativeError
from pybroker.protocol import record_batch
from pybroker.protocol.record_batch import Record
from pybroker.storage.dirs.log_directory import LogDirectory
from pybroker.storage.files import offset_checkpoint, partition_metadata
from pybroker.storage.logs.log_manager import LogManager

TOPIC_ID = bytes(range(16))
CORRUPT_MESSAGE = 2
SEGMENT = "00000000000000000000.log"
BATCH_COUNT = 10
DAMAGED = 4


class Clock:
    def monotonic_ms(self) -> int:
        return 1

    def wall_ms(self) -> int:
        return 1


def write_damaged(directory: Path) -> int:
    """Ten batches of one record, of which one has a flipped bit; where that begins."""
    path = directory / "t-0"
    path.mkdir()
    partition_metadata.write(path, TOPIC_ID)
    batches = [
        bytearray(record_batch.build(offset, 0, [Record(None, bytes(100))], timestamp_ms=1))
        for offset in range(BATCH_COUNT)
    ]
    position = sum(map(len, batches[:DAMAGED]))
    batches[DAMAGED][-1] ^= 1
    (path / SEGMENT).write_bytes(b"".join(batches))
    return position


async def open_log(root: Path) -> tuple[int, list[int]]:
    """The log's end, and what reading each offset says: its own offset or minus the error."""
    config = BrokerConfig.load(None, [])
    native = NativeBroker(BrokerOptions("epoll", 1, 1, 0, 1 << 20, 1 << 20, 100, 60_000, 10, 1 << 20))
    native.start()
    manager = LogManager(native, [LogDirectory(root, bytes([1]) * 16)], config, Clock())
    await manager.load()
    log = await manager.open(("t", 0), TOPIC_ID, bytes(16), 0, TopicConfig.resolve({}, config))
    log.native.lead(0)
    found = []
    end = log.native.state.log_end_offset
    for offset in range(end):
        try:
            batch = log.native.read(offset, 1 << 20)
            found.append(int.from_bytes(batch[:8], "big"))
        except NativeError as error:
            found.append(-error.code)
    await manager.close(5, 6)
    native.stop()
    native.close()
    return end, found


def test_damage_above_the_recovery_point_ends_the_log_and_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    position = write_damaged(tmp_path)
    size_bytes = (tmp_path / "t-0" / SEGMENT).stat().st_size
    with caplog.at_level(logging.ERROR):
        assert asyncio.run(open_log(tmp_path)) == (DAMAGED, list(range(DAMAGED)))
    (said,) = [record.getMessage() for record in caplog.records]
    assert f"{SEGMENT} is damaged at position {position}: the log ends there, at offset {DAMAGED}." in said
    assert f"{BATCH_COUNT - DAMAGED - 1} intact batches up to offset {BATCH_COUNT - 1}" in said
    kept = tmp_path / "t-0" / f"{SEGMENT}.damaged-{position}"
    assert kept.stat().st_size == size_bytes - position
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        assert asyncio.run(open_log(tmp_path))[0] == DAMAGED
    assert caplog.records == []


def test_damage_below_the_recovery_point_stays_and_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    position = write_damaged(tmp_path)
    offset_checkpoint.write(tmp_path / offset_checkpoint.RECOVERY_POINT, {("t", 0): BATCH_COUNT})
    with caplog.at_level(logging.ERROR):
        end, found = asyncio.run(open_log(tmp_path))
    assert end == BATCH_COUNT
    assert found == [-CORRUPT_MESSAGE if offset == DAMAGED else offset for offset in range(BATCH_COUNT)]
    (said,) = [record.getMessage() for record in caplog.records]
    assert f"{SEGMENT} is damaged at position {position}, below what had been synced" in said
    assert f"offsets {DAMAGED} to {DAMAGED} are answered CORRUPT_MESSAGE" in said


def test_a_log_that_ends_below_its_recovery_point_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    position = write_damaged(tmp_path)
    segment = tmp_path / "t-0" / SEGMENT
    segment.write_bytes(segment.read_bytes()[:position])
    offset_checkpoint.write(tmp_path / offset_checkpoint.RECOVERY_POINT, {("t", 0): BATCH_COUNT})
    with caplog.at_level(logging.ERROR):
        assert asyncio.run(open_log(tmp_path))[0] == DAMAGED
    (said,) = [record.getMessage() for record in caplog.records]
    assert f"ends at offset {DAMAGED}, but was synced up to {BATCH_COUNT}" in said


def test_index_files_that_are_built_again_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_damaged(tmp_path)
    asyncio.run(open_log(tmp_path))
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        asyncio.run(open_log(tmp_path))
        assert caplog.records == []
        (tmp_path / "t-0" / SEGMENT).with_suffix(".index").unlink()
        asyncio.run(open_log(tmp_path))
    (said,) = [record.getMessage() for record in caplog.records]
    name = SEGMENT.removesuffix("log") + "*index"
    assert said.startswith(f"{tmp_path / 't-0' / name}: index files of this segment were missing")
