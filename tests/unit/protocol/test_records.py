"""Frames of metadata and coordinator records."""

from __future__ import annotations

import pytest

from pybroker.protocol import coordinator_records, metadata_records
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.loader import record_classes
from tests.harness.random_messages import RandomMessages


def test_a_metadata_record_of_kafkas() -> None:
    value = bytes.fromhex("01 0c 00 11 6d657461646174612e76657273696f6e 001e 00")
    record = m.FeatureLevelRecord(name="metadata.version", feature_level=30)
    assert metadata_records.decode(value) == (record, 0)
    assert metadata_records.encode(record, 0) == value


def test_every_metadata_record_round_trips() -> None:
    classes = record_classes("metadata", "metadata")
    assert len(classes) == 27
    for cls in classes.values():
        for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
            record = RandomMessages(version).message(cls.__name__, version)
            assert metadata_records.decode(memoryview(metadata_records.encode(record, version))) == (record, version)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", "cut short"),
        ("01 0c", "cut short"),
        ("02 0c 00", "frame version 2"),
        ("01 ff01 00", "type 255"),
        ("01 0c 07 02 61 0001 00", "FeatureLevelRecord v7"),
        ("01 0c 00 02 61 0001 00 00", "garbage"),
        ("01 0c 00 09 61", "Name"),
    ],
)
def test_bad_metadata_records(value: str, text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        metadata_records.decode(bytes.fromhex(value))


def test_only_metadata_records_get_the_frame() -> None:
    for message in (m.HeartbeatRequest(), m.RemoteLogSegmentMetadataRecord(), m.LeaderChangeMessage()):
        with pytest.raises(ProtocolError, match="not a metadata record"):
            metadata_records.encode(message, 0)


def test_an_offset_commit_of_kafkas() -> None:
    key = bytes.fromhex("0001 0001 67 0001 74 00000002")
    value = bytes.fromhex("0003 0000000000000005 ffffffff 0001 78 0000000000000009")
    record = coordinator_records.decode("group", key, value)
    assert record.key == m.OffsetCommitKey(group="g", topic="t", partition=2)
    assert record.value == m.OffsetCommitValue(offset=5, metadata="x", commit_timestamp=9)
    assert record.value_version == 3
    assert coordinator_records.encode_key(record.key) == key
    assert coordinator_records.encode_value(record.value, 3) == value
    tombstone = coordinator_records.decode("group", key, None)
    assert (tombstone.key, tombstone.value, tombstone.value_version) == (record.key, None, None)


@pytest.mark.parametrize(("namespace", "count"), [("group", 22), ("transaction", 1), ("share", 2)])
def test_every_coordinator_record_round_trips(namespace: str, count: int) -> None:
    keys = record_classes(namespace, "coordinator-key")
    values = record_classes(namespace, "coordinator-value")
    assert keys.keys() == values.keys()
    assert len(keys) == count
    for record_type, value_class in values.items():
        key = RandomMessages(record_type).message(keys[record_type].__name__, 0)
        for version in range(value_class.MIN_VERSION, value_class.MAX_VERSION + 1):
            value = RandomMessages(version).message(value_class.__name__, version)
            decoded = coordinator_records.decode(
                namespace, coordinator_records.encode_key(key), coordinator_records.encode_value(value, version)
            )
            assert decoded == coordinator_records.CoordinatorRecord(key, value, version)


def test_bad_coordinator_records() -> None:
    key = coordinator_records.encode_key(m.GroupMetadataKey(group="g"))
    with pytest.raises(coordinator_records.UnknownRecordTypeError, match="type 99"):
        coordinator_records.decode("group", b"\0\x63", b"")
    for bad_key, bad_value, text in (
        (None, None, "no key"),
        (b"\0", None, "key has 1 bytes"),
        (key, b"", "value has 0 bytes"),
        (key, b"\0\x63", "v99"),
        (key[:-1], None, "Group|group"),
    ):
        with pytest.raises(ProtocolError, match=text):
            coordinator_records.decode("group", bad_key, bad_value)
    with pytest.raises(ProtocolError, match="namespace"):
        coordinator_records.decode("metadata", key, None)
    with pytest.raises(ProtocolError):
        coordinator_records.encode_key(m.GroupMetadataValue())
    with pytest.raises(ProtocolError):
        coordinator_records.encode_value(m.GroupMetadataKey(), 0)
