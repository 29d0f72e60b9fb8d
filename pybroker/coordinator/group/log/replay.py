"""From the bytes of `__consumer_offsets` to changes, and from changes to state.

`apply` alone changes committed offsets and adds and removes stored groups. Records that have just been committed and
records read back at load take the same path. Runs on the asyncio loop thread.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING

from pybroker.coordinator.group.log.records import GroupChange, OffsetChange, OffsetsChange
from pybroker.coordinator.group.model.group import ClassicGroup
from pybroker.coordinator.group.model.member import ClassicGroupMember
from pybroker.coordinator.group.model.offset_store import OffsetEntry
from pybroker.coordinator.group.model.settings import OFFSETS_TOPIC
from pybroker.coordinator.group.model.state import GroupState
from pybroker.protocol import coordinator_records
from pybroker.protocol import messages as m

if TYPE_CHECKING:
    from pybroker.coordinator.group.model.shard_state import ShardState

logger = logging.getLogger(__name__)

Change = OffsetsChange | OffsetChange | GroupChange


def decode(key: bytes, value: bytes | None, producer_id: int = -1) -> Change | None:
    """The change that a record stands for; None for records of group types that are not served.

    Raises ProtocolError when a record is malformed or of an unknown value version.
    """
    try:
        record = coordinator_records.decode("group", key, value)
    except coordinator_records.UnknownRecordTypeError as error:
        _name_unserved(str(error))
        return None
    decoded_key = record.key
    if isinstance(decoded_key, (m.OffsetCommitKey, m.LegacyOffsetCommitKey)):
        entry = None if record.value is None else _entry(record.value)
        return OffsetChange(decoded_key.group, decoded_key.topic, decoded_key.partition, entry, producer_id)
    if isinstance(decoded_key, m.GroupMetadataKey):
        assert record.value is None or isinstance(record.value, m.GroupMetadataValue)
        return GroupChange(decoded_key.group, record.value)
    _name_unserved(type(decoded_key).__name__)
    return None


@lru_cache(maxsize=64)
def _name_unserved(what: str) -> None:
    # The cache is what makes it one line per kind.
    logger.warning(
        "%s holds records of group types that are not served (%s); they stay as they are", OFFSETS_TOPIC, what
    )


def _entry(value: object) -> OffsetEntry:
    if isinstance(value, m.LegacyOffsetCommitValue):
        return OffsetEntry(value.offset, -1, value.metadata, value.commit_timestamp)
    assert isinstance(value, m.OffsetCommitValue)
    return OffsetEntry(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )


def apply(state: ShardState, change: Change, record_offset: int) -> None:
    """Replay one change whose first or only record is at `record_offset`."""
    if isinstance(change, OffsetsChange):
        _apply_offsets(state, change, record_offset)
    elif isinstance(change, OffsetChange):
        _apply_offset(state, change, record_offset)
    elif change.value is None:
        state.drop_group(change.group_id)
    else:
        state.put_group(_load_group(change.group_id, change.value))


def _apply_offsets(state: ShardState, change: OffsetsChange, record_offset: int) -> None:
    _ensure_group(state, change.group_id)
    for entry in change.entries.values():
        entry.record_offset = record_offset
        record_offset += 1
    state.offsets.put_all(change.group_id, change.topic, change.entries)


def _apply_offset(state: ShardState, change: OffsetChange, record_offset: int) -> None:
    entry = change.entry
    if entry is None:
        state.offsets.remove(change.group_id, change.topic, change.partition)
        return
    _ensure_group(state, change.group_id)
    entry.record_offset = record_offset
    if change.producer_id < 0:
        state.offsets.put(change.group_id, change.topic, change.partition, entry)
    else:
        state.offsets.put_pending(change.producer_id, change.group_id, change.topic, change.partition, entry)


def _ensure_group(state: ShardState, group_id: str) -> None:
    # A consumer that assigns partitions by itself has a group without any group record.
    if group_id not in state.groups:
        state.put_group(ClassicGroup(group_id, GroupState.EMPTY, state.clock.wall_ms()))


def _load_group(group_id: str, value: m.GroupMetadataValue) -> ClassicGroup:
    group = ClassicGroup(
        group_id,
        GroupState.STABLE if value.members else GroupState.EMPTY,
        value.current_state_timestamp,
        generation_id=value.generation,
        protocol_type=value.protocol_type or None,
        protocol_name=value.protocol,
        leader_id=value.leader,
    )
    for stored in value.members:
        group.add(
            ClassicGroupMember(
                stored.member_id,
                stored.group_instance_id,
                stored.client_id,
                stored.client_host,
                stored.session_timeout if stored.rebalance_timeout == -1 else stored.rebalance_timeout,
                stored.session_timeout,
                value.protocol_type,
                [(value.protocol or "", bytes(stored.subscription))],
                bytes(stored.assignment),
            )
        )
    group.refresh_subscribed_topics()
    return group
