"""The wrappers around partitions with several replicas; what the C code does is tested in csrc/tests."""

from __future__ import annotations

import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.native import NativeError
from pybroker.native.broker import EVENT_APPENDED, NativeBroker
from pybroker.native.partition import NEVER_CAUGHT_UP, Follower, NativePartition
from pybroker.protocol.error_codes import ErrorCode
from tests.unit.native.test_wrapper import CONFIG, batch, broker

__all__ = ["broker"]


@pytest.fixture
def partition(broker: NativeBroker, tmp_path: Path) -> Iterator[NativePartition]:
    opened = open_partition(broker, tmp_path)
    yield opened
    opened.resign(0)
    opened.close(clean=True)


def open_partition(broker: NativeBroker, directory: Path, high_watermark: int = -1) -> NativePartition:
    return NativePartition(
        broker,
        "t",
        bytes(range(16)),
        0,
        str(directory / "t-0"),
        CONFIG,
        leader_epoch=3,
        clean=True,
        recovery_point=0,
        log_start_offset=-1,
        gap_offset=-1,
        tag=5,
        high_watermark=high_watermark,
    )


def appended(broker: NativeBroker) -> tuple[int, int]:
    """(offset, error) of the next APPENDED event."""
    while True:
        assert select.select([broker.event_fd], [], [], 60)[0], "no event came"
        for event in broker.take_events():
            if event[0] == EVENT_APPENDED:
                return event[3], event[1]


def test_followers_of_a_new_leader(partition: NativePartition) -> None:
    assert partition.followers() == []
    partition.lead_replicated(3, 0, [1, 2, 7], [1, 2])
    assert sorted(partition.followers()) == [Follower(2, 1, -1, -1, 0, -1), Follower(7, 0, -1, -1, NEVER_CAUGHT_UP, -1)]


def test_more_followers_than_guessed(partition: NativePartition) -> None:
    partition.lead_replicated(3, 0, range(1, 40), [1])
    assert sorted(each.replica_id for each in partition.followers()) == list(range(2, 40))


def test_what_is_not_replicated_is_read_only_when_asked_for(broker: NativeBroker, partition: NativePartition) -> None:
    partition.lead_replicated(3, 0, [1, 2], [1, 2])
    partition.append(batch(b"one"), 1)
    while partition.state.appended_records < 1:
        pass
    assert partition.read(0, 1000) == b""
    assert len(partition.read(0, 1000, to_log_end=True)) == len(batch(b"one"))
    partition.lead_replicated(3, 1, [1, 2], [1])
    assert appended(broker) == (0, 0)
    assert len(partition.read(0, 1000)) == len(batch(b"one"))


def test_refusals_are_errors(broker: NativeBroker, partition: NativePartition) -> None:
    partition.lead_replicated(3, 5, [1, 2], [1])
    for arguments, code in (
        ((3, 5, [1, 2], [1], [2]), ErrorCode.INELIGIBLE_REPLICA),
        ((3, 4, [1, 2], [1]), ErrorCode.INVALID_UPDATE_VERSION),
        ((2, 9, [1, 2], [1]), ErrorCode.FENCED_LEADER_EPOCH),
    ):
        with pytest.raises(NativeError) as failure:
            partition.lead_replicated(*arguments)  # type: ignore[arg-type]
        assert failure.value.code == code


def test_appends_need_the_minimum_of_replicas(broker: NativeBroker, tmp_path: Path) -> None:
    partition = open_partition(broker, tmp_path)
    partition.configure(CONFIG.replace(min_insync_replicas=2))
    partition.lead_replicated(3, 0, [1, 2], [1])
    partition.append(batch(b"one"), 1)
    assert appended(broker) == (-1, ErrorCode.NOT_ENOUGH_REPLICAS)
    partition.resign(0)
    partition.close(clean=True)


def test_a_partition_opens_with_its_high_watermark(broker: NativeBroker, tmp_path: Path) -> None:
    partition = open_partition(broker, tmp_path)
    partition.lead(3)
    for value in (b"one", b"two"):
        partition.append(batch(value), 1)
        assert appended(broker)[1] == 0
    partition.resign(0)
    partition.close(clean=True)
    partition = open_partition(broker, tmp_path, high_watermark=1)
    partition.lead_replicated(4, 0, [1, 2], [1, 2])
    assert partition.state.high_watermark == 1
    partition.resign(0)
    partition.close(clean=True)
