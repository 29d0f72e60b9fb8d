"""What counts of the metadata log, and what not yet."""

from __future__ import annotations

import pytest

from pybroker.metadata.errors import MetadataError
from pybroker.metadata.log_files import SnapshotId
from pybroker.metadata.records import VersionedRecord, encode_batch
from pybroker.protocol import messages as m
from pybroker.protocol import record_batch
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.record_batch import Record
from pybroker.quorum.errors import QuorumError
from pybroker.quorum.observer_log import ObserverLog, split_batches

WHERE = "controller 1"


def batch(base_offset: int, count: int, epoch: int = 1) -> bytes:
    records = [VersionedRecord(m.NoOpRecord(), 0) for _ in range(count)]
    return encode_batch(base_offset, epoch, 1000, records)


def test_a_snapshot_that_ends_before_what_counts_is_refused() -> None:
    """What it lacks would count for deleted, and the logs of these topics go."""
    log = ObserverLog()
    log.append(batch(0, 5, epoch=3), WHERE)
    log.raise_high_watermark(5)
    log.take_committed()
    for snapshot in (SnapshotId(4, 3), SnapshotId(9, 2)):
        with pytest.raises(QuorumError, match="have lost metadata that they had committed"):
            log.reset(snapshot)
    log.reset(SnapshotId(5, 3))


def test_a_batch_counts_once_the_high_watermark_has_passed_it() -> None:
    log = ObserverLog()
    assert not log.is_caught_up, "nobody has said yet how far it goes"
    log.append(batch(0, 2) + batch(2, 3), WHERE)
    log.raise_high_watermark(2)
    assert [each.base_offset for each in log.take_committed()] == [0]
    assert (log.committed_offset, log.end_offset) == (2, 5)
    assert log.is_caught_up
    log.raise_high_watermark(5)
    assert not log.is_caught_up
    assert [each.next_offset for each in log.take_committed()] == [5]
    assert log.take_committed() == []
    log.raise_high_watermark(3)
    assert log.high_watermark == 5, "a new leader does not know yet what was committed"


def test_a_batch_cut_short_is_left_for_the_next_fetch_and_one_that_is_known_is_skipped() -> None:
    log = ObserverLog()
    log.append(batch(0, 2) + batch(2, 3)[:-1], WHERE)
    assert log.end_offset == 2
    log.append(batch(0, 2) + batch(2, 3), WHERE)
    assert log.end_offset == 5
    with pytest.raises(QuorumError, match="from offset 9 on when asked for 5"):
        log.append(batch(9, 1), WHERE)


def test_what_is_not_committed_can_be_taken_back() -> None:
    log = ObserverLog()
    log.append(batch(0, 2, 1) + batch(2, 2, 1) + batch(4, 1, 2), WHERE)
    log.raise_high_watermark(2)
    log.take_committed()
    log.truncate(1, 4)
    assert (log.end_offset, log.last_epoch) == (4, 1)
    log.append(batch(4, 1, 3), WHERE)
    log.truncate(1, 2)
    assert (log.end_offset, log.last_epoch) == (2, 1)
    log.raise_high_watermark(10)
    assert log.take_committed() == []


@pytest.mark.parametrize(("epoch", "end_offset"), [(2, 3), (1, 4)])
def test_what_is_committed_cannot(epoch: int, end_offset: int) -> None:
    log = ObserverLog()
    log.append(batch(0, 2, 1) + batch(2, 2, 2), WHERE)
    log.raise_high_watermark(4)
    log.take_committed()
    with pytest.raises(QuorumError, match="have lost metadata that they had committed"):
        log.truncate(epoch, end_offset)


def test_behind_a_snapshot_it_goes_on() -> None:
    log = ObserverLog()
    log.append(batch(0, 2, 1), WHERE)
    log.reset(SnapshotId(100, 7))
    assert (log.end_offset, log.last_epoch, log.committed_offset) == (100, 7, 100)
    log.append(batch(100, 1, 8), WHERE)
    log.raise_high_watermark(101)
    assert [each.base_offset for each in log.take_committed()] == [100]


def test_what_cannot_be_read_is_named() -> None:
    unknown = record_batch.build(0, 1, [Record(None, bytes([1, 99, 0]))], timestamp_ms=0)
    with pytest.raises(MetadataError, match=r"controller 1: the record at offset 0 .* type 99 .*unknown"):
        list(split_batches(unknown, WHERE))
    with pytest.raises(ProtocolError, match="claims 20 bytes, less than its header"):
        list(split_batches(bytes(8) + (8).to_bytes(4, "big") + bytes(8), WHERE))
