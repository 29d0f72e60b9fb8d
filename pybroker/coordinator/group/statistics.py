"""Counts of groups and their offsets, for metrics. Pure; on the asyncio loop thread, a shard at a time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from pybroker.coordinator.group.model.shard_state import ShardState
from pybroker.coordinator.group.model.state import GroupState


@dataclass(slots=True)
class GroupStatistics:
    """Sums over the shards added so far. `offsets` has the first ones, as (group, topic, partition, offset)."""

    most_offsets: int
    #: The members' memory and its bound, and the number of requests refused because of it.
    held_bytes: int = 0
    limit_bytes: int = 0
    refused_count: int = 0
    group_counts: Counter[GroupState] = field(default_factory=Counter)
    offset_count: int = 0
    offsets: list[tuple[str, str, int, int]] = field(default_factory=list)

    def add(self, state: ShardState) -> None:
        """Another shard."""
        for group in state.groups.values():
            self.group_counts[group.state] += 1
        for group_id in state.offsets.group_ids():
            topics = state.offsets.group(group_id)
            self.offset_count += sum(map(len, topics.values()))
            if len(self.offsets) < self.most_offsets:
                self.offsets += [
                    (group_id, topic, partition, entry.offset)
                    for topic, entries in topics.items()
                    for partition, entry in entries.items()
                ]
        del self.offsets[self.most_offsets :]
