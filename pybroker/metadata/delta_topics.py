"""The topics' part of a `MetadataDelta`. Pure; see there."""

from __future__ import annotations

from collections.abc import Generator

from pybroker.metadata.errors import MetadataError
from pybroker.metadata.image import MIGRATING_DIRECTORY, PartitionRegistration, TopicImage, TopicsImage
from pybroker.protocol import messages as m
from pybroker.protocol.uuids import uuid_to_text
from pybroker.turns import run_at_once

_LEADER_UNCHANGED = -2
_RECOVERY_STATE_UNCHANGED = -1


class TopicsDelta:
    """Topics that records created, changed or removed on top of `base`."""

    def __init__(self, base: TopicsImage) -> None:
        self.base = base
        # Partitions of touched topics, writable; None stands for a removed topic.
        self._open: dict[bytes, dict[int, PartitionRegistration] | None] = {}
        self._names: dict[bytes, str] = {}
        self._created_names: dict[str, bytes] = {}
        self._applied: TopicsImage | None = None
        self._changed: dict[bytes, TopicImage | None] = {}

    @property
    def changed(self) -> dict[bytes, TopicImage | None]:
        """Topic id to new image, None for a removed one."""
        self.apply()
        return self._changed

    def create(self, record: m.TopicRecord) -> None:
        """TopicRecord: a new, yet empty topic."""
        existing = self.base.by_name.get(record.name)
        is_taken = record.name in self._created_names or (existing is not None and not self._is_removed(existing.id))
        if is_taken:
            raise MetadataError(f"TopicRecord for {record.name!r}, which exists already")
        self._open[record.topic_id] = {}
        self._names[record.topic_id] = record.name
        self._created_names[record.name] = record.topic_id
        self._applied = None

    def put_partition(self, record: m.PartitionRecord) -> None:
        """PartitionRecord: a new partition, or the whole of a known one (in snapshots)."""
        replicas = tuple(record.replicas)
        self._partitions(record.topic_id, "PartitionRecord")[record.partition_id] = PartitionRegistration(
            replicas=replicas,
            directories=tuple(record.directories) or (MIGRATING_DIRECTORY,) * len(replicas),
            isr=tuple(record.isr),
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
            leader=record.leader,
            leader_recovery_state=record.leader_recovery_state,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
        )

    def change_partition(self, record: m.PartitionChangeRecord) -> None:
        """PartitionChangeRecord: absent fields stay; naming a leader, even the same, is an election."""
        partitions = self._partitions(record.topic_id, "PartitionChangeRecord")
        old = partitions.get(record.partition_id)
        if old is None:
            name = self._names[record.topic_id]
            raise MetadataError(f"PartitionChangeRecord for {name}-{record.partition_id}, which does not exist")
        replicas = old.replicas if record.replicas is None else tuple(record.replicas)
        directories = old.directories if record.directories is None else tuple(record.directories)
        if record.directories is None and record.replicas is not None:
            directories = tuple(old.directory(replica) for replica in replicas)
        is_election = record.leader != _LEADER_UNCHANGED
        state = record.leader_recovery_state
        elr, last_known = record.eligible_leader_replicas, record.last_known_elr
        partitions[record.partition_id] = PartitionRegistration(
            replicas=replicas,
            directories=directories,
            isr=old.isr if record.isr is None else tuple(record.isr),
            removing_replicas=_changed(old.removing_replicas, record.removing_replicas),
            adding_replicas=_changed(old.adding_replicas, record.adding_replicas),
            eligible_leader_replicas=_changed(old.eligible_leader_replicas, elr),
            last_known_elr=_changed(old.last_known_elr, last_known),
            leader=record.leader if is_election else old.leader,
            leader_recovery_state=old.leader_recovery_state if state == _RECOVERY_STATE_UNCHANGED else state,
            leader_epoch=old.leader_epoch + is_election,
            partition_epoch=old.partition_epoch + 1,
        )

    def clear_elr(self, record: m.ClearElrRecord) -> None:
        """ClearElrRecord (KIP-966): forget eligible leaders of one topic, or of all when it names none."""
        if record.topic_name:
            topic_id = self._created_names.get(record.topic_name)
            if topic_id is None:
                existing = self.base.by_name.get(record.topic_name)
                if existing is None or self._is_removed(existing.id):
                    raise MetadataError(f"ClearElrRecord for topic {record.topic_name!r}, which does not exist")
                topic_id = existing.id
            topic_ids = [topic_id]
        else:
            topic_ids = [key for key in {**self.base.by_id, **self._open} if not self._is_removed(key)]
        for topic_id in topic_ids:
            current = self._open.get(topic_id)
            source = self.base.by_id[topic_id].partitions if current is None else current
            cleared = {
                index: partition.replace(
                    eligible_leader_replicas=(),
                    last_known_elr=(),
                    partition_epoch=partition.partition_epoch + 1,
                )
                for index, partition in source.items()
                if partition.eligible_leader_replicas or partition.last_known_elr
            }
            if cleared:
                self._partitions(topic_id, "ClearElrRecord").update(cleared)

    def remove(self, record: m.RemoveTopicRecord) -> str:
        """RemoveTopicRecord. Returns the name of the topic."""
        self._partitions(record.topic_id, "RemoveTopicRecord")
        name = self._names[record.topic_id]
        self._open[record.topic_id] = None
        if self._created_names.get(name) == record.topic_id:
            del self._created_names[name]
        return name

    def apply(self) -> TopicsImage:
        """The new image; the base itself when nothing changed."""
        return run_at_once(self.apply_steps())

    def apply_steps(self) -> Generator[None, None, TopicsImage]:
        """As `apply`; yields where it may be interrupted."""
        if not self._open:
            return self.base
        if self._applied is None:
            changed: dict[bytes, TopicImage | None] = {}
            by_name, by_id = dict(self.base.by_name), dict(self.base.by_id)
            # Removed topics leave first: a topic deleted and created again within one delta keeps its name.
            for topic_id in [key for key, partitions in self._open.items() if partitions is None]:
                removed = by_id.pop(topic_id, None)
                if removed is not None:
                    del by_name[removed.name]
                changed[topic_id] = None
                yield
            for topic_id, partitions in self._open.items():
                if partitions is not None:
                    topic = TopicImage(self._names[topic_id], topic_id, dict(partitions))
                    by_name[topic.name] = by_id[topic_id] = topic
                    changed[topic_id] = topic
                    yield
            self._changed, self._applied = changed, TopicsImage(by_name, by_id)
        return self._applied

    def _is_removed(self, topic_id: bytes) -> bool:
        return topic_id in self._open and self._open[topic_id] is None

    def _partitions(self, topic_id: bytes, record_name: str) -> dict[int, PartitionRegistration]:
        """The writable partitions of a topic that must exist."""
        partitions = self._open.get(topic_id)
        if partitions is None:
            topic = self.base.by_id.get(topic_id)
            if topic is None or topic_id in self._open:
                raise MetadataError(f"{record_name} for topic id {uuid_to_text(topic_id)}, which does not exist")
            partitions = self._open[topic_id] = dict(topic.partitions)
            self._names[topic_id] = topic.name
        self._applied = None
        return partitions


def _changed(old: tuple[int, ...], new: list[int] | None) -> tuple[int, ...]:
    return old if new is None else tuple(new)
