"""The wrappers over the data plane, against the real extension."""

from __future__ import annotations

import errno
import gzip
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker import native
from pybroker.native.broker import EVENT_APPENDED, BrokerOptions, NativeBroker
from pybroker.native.errors import NativeError
from pybroker.native.partition import (
    CLEAN_IDLE,
    DEFAULT_LEVEL,
    READ_UNCOMMITTED,
    CleanOptions,
    NativePartition,
    PartitionConfig,
    PartitionPosition,
    partition_states,
)
from pybroker.protocol import record_batch
from pybroker.protocol.error_codes import ErrorCode
from pybroker.protocol.record_batch import Record

CONFIG = PartitionConfig(
    segment_bytes=1 << 30,
    segment_ms=10**12,
    segment_jitter_ms=0,
    segment_index_bytes=10 << 20,
    index_interval_bytes=4096,
    producer_expiration_ms=86_400_000,
    flush_messages=2**63 - 1,
    flush_ms=2**63 - 1,
    timestamp_before_max_ms=2**63 - 1,
    timestamp_after_max_ms=2**63 - 1,
    max_message_bytes=1 << 20,
    min_insync_replicas=1,
    timestamp_type=0,
    compression=-1,
    compression_level=DEFAULT_LEVEL,
    compact=0,
    preallocate=0,
    internal=0,
    transactional=0,
    durability=0,
)


@pytest.fixture
def broker() -> Iterator[NativeBroker]:
    opened = NativeBroker(BrokerOptions("epoll", 1, 1, 0, 1 << 20, 1 << 20, 100, 60_000, 10, 1 << 20))
    opened.start()
    yield opened
    opened.stop()
    opened.close()


def open_partition(broker: NativeBroker, directory: Path, *, clean: bool = False) -> NativePartition:
    return NativePartition(
        broker,
        "t",
        bytes(range(16)),
        0,
        str(directory),
        CONFIG,
        leader_epoch=3,
        clean=clean,
        recovery_point=0,
        log_start_offset=-1,
        gap_offset=-1,
        tag=5,
    )


def batch(*values: bytes, timestamp_ms: int = 1000) -> bytes:
    return record_batch.build(0, 0, [Record(b"k", value) for value in values], timestamp_ms=timestamp_ms)


def wait_for_appends(broker: NativeBroker, count: int) -> list[tuple[int, int, int]]:
    """(ticket, offset, error) of that many APPENDED events."""
    found: list[tuple[int, int, int]] = []
    while len(found) < count:
        assert select.select([broker.event_fd], [], [], 60)[0], "no event came"
        found += [(event[2], event[3], event[1]) for event in broker.take_events() if event[0] == EVENT_APPENDED]
    return found


def test_crc32c() -> None:
    assert native.crc32c(b"123456789") == 0xE3069283
    assert native.crc32c(b"456789", native.crc32c(b"123")) == 0xE3069283
    assert native.crc32c(memoryview(b"x123456789")[1:]) == 0xE3069283
    assert native.crc32c_name()


def test_decompress_grows_up_to_the_bound() -> None:
    plain = bytes(1 << 20)
    packed = gzip.compress(plain)
    assert native.decompress(1, packed, 1 << 20) == plain
    with pytest.raises(NativeError) as failure:
        native.decompress(1, packed, (1 << 20) - 1)
    assert failure.value.errno == errno.E2BIG
    with pytest.raises(NativeError) as failure:
        native.decompress(1, b"no gzip at all", 1000)
    assert failure.value.errno == errno.EINVAL


def test_a_partition_from_open_to_reopen(broker: NativeBroker, tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    partition = open_partition(broker, directory)
    partition.lead(3)
    partition.append(batch(b"one", b"two"), 11)
    partition.append(batch(b"three", timestamp_ms=2000), 12)
    assert wait_for_appends(broker, 2) == [(11, 0, 0), (12, 2, 0)]
    state = partition_states([partition, partition])[1]
    assert (state.log_start_offset, state.high_watermark, state.log_end_offset) == (0, 3, 3)
    assert state.leader_epoch == 3
    records = [each for found in record_batch.parse(partition.read(0, 1 << 20)) for each in found.records]
    assert [(each.offset, each.value) for each in records] == [(0, b"one"), (1, b"two"), (2, b"three")]
    assert partition.read(3, 1 << 20) == b""
    assert partition.list_offset(-1, READ_UNCOMMITTED).offset == 3
    assert partition.list_offset(1500, READ_UNCOMMITTED) == PartitionPosition(2, 2000, 3)
    assert partition.list_offset(5000, READ_UNCOMMITTED).offset == -1
    assert partition.epoch_end(3) == (3, 3)
    assert partition.producers() == []
    partition.roll()
    assert [(each.base_offset, each.end_offset) for each in partition.segments()] == [(0, 3), (3, 3)]
    assert partition.delete_before(3) == 1
    partition.sync()
    partition.upkeep(10_000, 0)
    partition.resign(0)
    partition.close(clean=True)
    again = open_partition(broker, directory, clean=True)
    assert (again.state.log_start_offset, again.state.log_end_offset) == (3, 3)
    assert again.recovery.truncated_bytes == 0
    again.close(clean=True)


CLEAN = CleanOptions(
    first_dirty_offset=0,
    upper_offset=2**63 - 1,
    now_ms=5000,
    delete_retention_ms=1000,
    map_bytes=1 << 20,
    io_buffer_bytes=1 << 19,
    load_factor_percent=90,
    compression=-1,
    compression_level=DEFAULT_LEVEL,
)


def test_a_partition_is_cleaned(broker: NativeBroker, tmp_path: Path) -> None:
    partition = open_partition(broker, tmp_path / "t-0")
    partition.configure(CONFIG.replace(compact=1))
    partition.lead(3)
    for ticket in range(5):
        partition.append(batch(b"first", b"last"), ticket)
    wait_for_appends(broker, 5)
    assert partition.clean(CLEAN).end_offset == 0, "the active segment is left alone"
    partition.roll()
    assert partition.first_timestamp(0, 10) == 1000
    broker.limit_cleaning(1 << 30)
    partition.cancel_clean()  # none is under way
    result = partition.clean(CLEAN)
    assert (result.end_offset, result.map_entries, result.map_full) == (10, 1, 0)
    assert (result.read_records, result.kept_records, result.invalid_records) == (10, 1, 0)
    assert (result.source_segments, result.cleaned_segments) == (1, 1)
    assert result.removed_bytes > 0 < result.written_bytes
    assert partition.clean_progress.phase == CLEAN_IDLE
    records = [each for found in record_batch.parse(partition.read(0, 1 << 20)) for each in found.records]
    assert [(each.offset, each.key, each.value) for each in records] == [(9, b"k", b"last")]
    with pytest.raises(NativeError) as failure:
        partition.clean(CLEAN.replace(load_factor_percent=0))
    assert failure.value.errno == errno.EINVAL
    partition.resign(0)
    partition.close(clean=False)


def test_more_segments_than_guessed(broker: NativeBroker, tmp_path: Path) -> None:
    partition = open_partition(broker, tmp_path / "t-0")
    partition.lead(0)
    for ticket in range(20):
        partition.append(batch(b"x"), ticket)
        wait_for_appends(broker, 1)
        partition.roll()
    assert [each.base_offset for each in partition.segments()] == list(range(21))
    partition.resign(0)
    partition.close(clean=False)


def test_a_read_that_meets_no_batch_does_not_say_that_there_is_nothing(broker: NativeBroker, tmp_path: Path) -> None:
    """Where the read before has ended a batch is known to begin, and nobody looks at its header before it is read."""
    partition = open_partition(broker, tmp_path / "t-0")
    partition.lead(0)
    partition.append(batch(b"first"), 0)
    wait_for_appends(broker, 1)
    first_bytes = len(partition.read(0, 1 << 20))
    partition.append(batch(b"second"), 1)
    wait_for_appends(broker, 1)
    with open(tmp_path / "t-0" / "00000000000000000000.log", "r+b") as file:
        file.seek(first_bytes + 8)
        file.write(bytes(4))  # no batch is as short as that
    with pytest.raises(NativeError) as failure:
        partition.read(1, 1 << 20)
    assert failure.value.code == ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(NativeError) as failure:
        partition.read(0, first_bytes - 1)
    assert failure.value.errno == errno.E2BIG
    partition.resign(0)
    partition.close(clean=False)


def test_errors_say_what_is_wrong(broker: NativeBroker, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(NativeError) as failure:
        open_partition(broker, tmp_path / "file" / "t-0")
    assert failure.value.errno is not None
    assert "file/t-0" in failure.value.text
    partition = open_partition(broker, tmp_path / "t-0")
    partition.lead(0)
    with pytest.raises(NativeError) as failure:
        partition.delete_before(1)
    assert failure.value.code == 1, "OFFSET_OUT_OF_RANGE"
    with pytest.raises(NativeError) as failure:
        partition.read(1, 100)
    assert failure.value.code == 1
    partition.resign(0)
    partition.close(clean=False)
    with pytest.raises(NativeError) as failure:
        NativeBroker(BrokerOptions("telepathy", 1, 1, 0, 1 << 20, 1 << 20, 100, 60_000, 10, 1 << 20))
    assert "telepathy" in failure.value.text
