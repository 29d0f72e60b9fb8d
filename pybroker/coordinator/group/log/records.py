"""The records of `__consumer_offsets` that classic groups write, in the versions that Kafka writes.

Keys: OffsetCommitKey (type 1), GroupMetadataKey (type 2). Values: OffsetCommitValue version 4, or 1 when the client
asked for a retention time of its own (only that version has room for it); GroupMetadataValue version 3.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from pybroker.coordinator.group.model.name_cache import cached_by_group
from pybroker.coordinator.group.model.offset_store import OffsetEntry
from pybroker.coordinator.outcome import CoordinatorRecord
from pybroker.protocol import coordinator_records, fixed_fields
from pybroker.protocol import messages as m
from pybroker.protocol.fixed_fields import FixedFields

if TYPE_CHECKING:
    from pybroker.coordinator.group.model.group import ClassicGroup

_OFFSET_COMMIT_VERSION = 4
_OFFSET_COMMIT_WITH_RETENTION_VERSION = 1
_GROUP_METADATA_VERSION = 3
_RECORDS_PER_STEP = 32
_VALUE_PREFIX = coordinator_records.value_prefix(_OFFSET_COMMIT_VERSION)


class OffsetsChange:
    """Offsets of one topic are committed outside a transaction: entries by partition, their records in that order."""

    __slots__ = ("entries", "group_id", "topic")

    def __init__(self, group_id: str, topic: str, entries: Mapping[int, OffsetEntry]) -> None:
        self.group_id = group_id
        self.topic = topic
        self.entries = entries


class OffsetChange:
    """A committed offset appears, changes, or goes (`entry` None); `producer_id` is -1 outside transactions."""

    __slots__ = ("entry", "group_id", "partition", "producer_id", "topic")

    def __init__(
        self, group_id: str, topic: str, partition: int, entry: OffsetEntry | None, producer_id: int = -1
    ) -> None:
        self.group_id = group_id
        self.topic = topic
        self.partition = partition
        self.entry = entry
        self.producer_id = producer_id


class GroupChange:
    """A classic group is as `value` says from here on, or is gone (None)."""

    __slots__ = ("group_id", "value")

    def __init__(self, group_id: str, value: m.GroupMetadataValue | None) -> None:
        self.group_id = group_id
        self.value = value


@cache
def _key_tail() -> FixedFields:
    fields = fixed_fields.trailing("OffsetCommitKey", 0)
    assert fields.attributes == ("partition",)
    return fields


@cache
def _value_head() -> FixedFields:
    fields = fixed_fields.leading("OffsetCommitValue", _OFFSET_COMMIT_VERSION)
    assert fields.attributes == ("offset", "leader_epoch")
    return fields


@cached_by_group(maxsize=4_096)
def _offset_key_head(group_id: str, topic: str) -> bytes:
    """An offset's key up to the partition. A consumer commits the same few topics again and again."""
    key = coordinator_records.encode_key(m.OffsetCommitKey(group=group_id, topic=topic, partition=0))
    return key[: -_key_tail().layout.size]


def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return _offset_key_head(group_id, topic) + _key_tail().layout.pack(partition)


def _offset_value(entry: OffsetEntry) -> bytes:
    return coordinator_records.encode_value(
        m.OffsetCommitValue(
            offset=entry.offset,
            leader_epoch=entry.leader_epoch,
            metadata=entry.metadata,
            commit_timestamp=entry.commit_timestamp_ms,
            expire_timestamp=entry.expire_timestamp_ms,
            topic_id=entry.topic_id,
        ),
        _OFFSET_COMMIT_VERSION if entry.expire_timestamp_ms < 0 else _OFFSET_COMMIT_WITH_RETENTION_VERSION,
    )


@lru_cache(maxsize=256)
def _value_tail(metadata: str, commit_timestamp_ms: int, topic_id: bytes) -> bytes:
    """A value from its metadata on: the same for most of what is committed to a topic within a millisecond."""
    value = _offset_value(OffsetEntry(0, 0, metadata, commit_timestamp_ms, -1, topic_id))
    return value[len(_VALUE_PREFIX) + _value_head().layout.size :]


def offset_commits(
    group_id: str, topic: str, entries: Mapping[int, OffsetEntry]
) -> Generator[None, None, list[CoordinatorRecord]]:
    """The records by which one request commits entries of a topic; the first one's change includes them all. Yields now
    and then, where it may be interrupted."""
    key_head = _offset_key_head(group_id, topic)
    pack_key_tail = _key_tail().layout.pack
    pack_value_head = _value_head().layout.pack
    made = []
    for partition, entry in entries.items():
        if entry.expire_timestamp_ms < 0:
            tail = _value_tail(entry.metadata, entry.commit_timestamp_ms, entry.topic_id)
            value = _VALUE_PREFIX + pack_value_head(entry.offset, entry.leader_epoch) + tail
        else:
            value = _offset_value(entry)
        made.append(CoordinatorRecord(key_head + pack_key_tail(partition), value))
        if len(made) % _RECORDS_PER_STEP == 0:
            yield
    made[0].change = OffsetsChange(group_id, topic, entries)
    return made


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    """The record that takes a committed offset away."""
    return CoordinatorRecord(
        _offset_key(group_id, topic, partition), None, OffsetChange(group_id, topic, partition, None)
    )


def group_tombstone(group_id: str) -> CoordinatorRecord:
    """The record that takes a group away."""
    return CoordinatorRecord(_group_key(group_id), None, GroupChange(group_id, None))


def new_group_metadata(group: ClassicGroup) -> CoordinatorRecord:
    """The record of a group that has just been named for the first time: Empty, generation 0."""
    value = m.GroupMetadataValue(
        protocol_type="",
        generation=0,
        protocol=None,
        leader=None,
        current_state_timestamp=group.state_timestamp_ms,
        members=[],
    )
    return _group_record(group.group_id, value)


def group_metadata(group: ClassicGroup, assignments: Mapping[str, bytes]) -> CoordinatorRecord:
    """The record of the group's present generation with these assignments by member id (all members, or none)."""
    members = []
    for member in group.members.values():
        assert group.protocol_name is not None, "a group with members has chosen a protocol before it is stored"
        members.append(
            m.GroupMetadataValue.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol_name),
                assignment=assignments[member.member_id],
            )
        )
    value = m.GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=group.state_timestamp_ms,
        members=members,
    )
    return _group_record(group.group_id, value)


def _group_key(group_id: str) -> bytes:
    return coordinator_records.encode_key(m.GroupMetadataKey(group=group_id))


def _group_record(group_id: str, value: m.GroupMetadataValue) -> CoordinatorRecord:
    return CoordinatorRecord(_group_key(group_id), coordinator_records.encode_value(value, _GROUP_METADATA_VERSION))
