"""Committed offsets of the groups of one `__consumer_offsets` partition.

Changed only by replay, on the asyncio loop thread. Offsets committed inside a transaction that has no end marker yet
are kept apart: they are visible only after its commit marker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pybroker.protocol.uuids import ZERO_UUID


class OffsetEntry:
    """One committed offset; -1 stands for no leader epoch, no expiry of its own, and no place in the log yet."""

    __slots__ = (
        "commit_timestamp_ms",
        "expire_timestamp_ms",
        "leader_epoch",
        "metadata",
        "offset",
        "record_offset",
        "topic_id",
    )

    def __init__(
        self,
        offset: int,
        leader_epoch: int,
        metadata: str,
        commit_timestamp_ms: int,
        expire_timestamp_ms: int = -1,
        topic_id: bytes = ZERO_UUID,
        record_offset: int = -1,
    ) -> None:
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.commit_timestamp_ms = commit_timestamp_ms
        self.expire_timestamp_ms = expire_timestamp_ms
        self.topic_id = topic_id
        self.record_offset = record_offset

    def is_of_topic(self, topic_id: bytes) -> bool:
        """False when the offset was committed for an earlier topic of the same name."""
        return self.topic_id in (topic_id, ZERO_UUID) or topic_id == ZERO_UUID


TopicOffsets = dict[str, dict[int, OffsetEntry]]
PartitionKey = tuple[str, str, int]


class OffsetStore:
    """Offsets by group, topic and partition; no empty inner dictionaries."""

    __slots__ = ("_by_group", "_pending")

    def __init__(self) -> None:
        self._by_group: dict[str, TopicOffsets] = {}
        self._pending: dict[int, dict[PartitionKey, OffsetEntry]] = {}

    def group(self, group_id: str) -> TopicOffsets:
        """Offsets of one group by topic; not to be changed by the caller."""
        return self._by_group.get(group_id, {})

    def get(self, group_id: str, topic: str, partition: int) -> OffsetEntry | None:
        return self._by_group.get(group_id, {}).get(topic, {}).get(partition)

    def group_ids(self) -> list[str]:
        return list(self._by_group)

    def put(self, group_id: str, topic: str, partition: int, entry: OffsetEntry) -> None:
        self._by_group.setdefault(group_id, {}).setdefault(topic, {})[partition] = entry

    def put_all(self, group_id: str, topic: str, entries: Mapping[int, OffsetEntry]) -> None:
        self._by_group.setdefault(group_id, {}).setdefault(topic, {}).update(entries)

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Forget an offset, pending ones included; nothing happens when there is none."""
        topics = self._by_group.get(group_id)
        if topics is not None and topic in topics:
            topics[topic].pop(partition, None)
            if not topics[topic]:
                del topics[topic]
            if not topics:
                del self._by_group[group_id]
        for offsets in self._pending.values():
            offsets.pop((group_id, topic, partition), None)

    # ---- inside transactions -------------------------------------------------------------------------------------

    def put_pending(self, producer_id: int, group_id: str, topic: str, partition: int, entry: OffsetEntry) -> None:
        self._pending.setdefault(producer_id, {})[(group_id, topic, partition)] = entry

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Make a transaction's offsets visible, or drop them; a plain commit made after one of them wins over it."""
        for (group_id, topic, partition), entry in self._pending.pop(producer_id, {}).items():
            existing = self.get(group_id, topic, partition)
            if committed and (existing is None or entry.record_offset > existing.record_offset):
                self.put(group_id, topic, partition, entry)

    def pending_keys(self, group_id: str) -> Iterator[tuple[str, int]]:
        """(topic, partition) of the group's offsets in open transactions; one may come twice."""
        for offsets in self._pending.values():
            for pending_group_id, topic, partition in offsets:
                if pending_group_id == group_id:
                    yield topic, partition

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        return any((group_id, topic, partition) in offsets for offsets in self._pending.values())
