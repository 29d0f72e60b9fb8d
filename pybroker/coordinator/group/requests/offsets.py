"""Committing, fetching, deleting and expiring offsets.

Handlers make records and responses; the store changes when the records are replayed, after they are committed. So what
is fetched is always committed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import NamedTuple

from pybroker.coordinator.group.log import records
from pybroker.coordinator.group.model.group import ClassicGroup
from pybroker.coordinator.group.model.offset_store import OffsetEntry
from pybroker.coordinator.group.model.shard_state import ShardState
from pybroker.coordinator.group.model.state import GroupState
from pybroker.coordinator.outcome import NOTHING, CoordinatorRecord, Outcome
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.uuids import ZERO_UUID
from pybroker.turns import SteadyDict, in_slices, run_at_once

#: From this version on an unknown group is said to be unknown, not a wrong generation.
_GROUP_ID_NOT_FOUND_VERSION = 9
#: The bound that a record has room for; the longest retention there is means for ever.
_LATEST_MS = 2**63 - 1
#: A record of a committed offset is longer: its key has two names and the partition, its value 24 bytes at least.
_LEAST_RECORD_BYTES = 32
_LARGEST_BATCH_BYTES = 2**31 - 1
_PARTITIONS_PER_STEP = 32


#: Why partitions are refused, by index.
Refused = dict[int, ErrorCode] | SteadyDict[int, ErrorCode]


class CommitTopic(NamedTuple):
    """Partitions of one topic in an OffsetCommit that can be committed, and by partition why others are refused."""

    name: str
    topic_id: bytes
    partitions: list[m.OffsetCommitRequest.OffsetCommitRequestPartition]
    refused: Refused


class DeletedTopic(NamedTuple):
    """A topic that has been deleted; a new one may have its name."""

    name: str
    topic_id: bytes


# ---- commit ------------------------------------------------------------------------------------------------------


def commit(
    state: ShardState,
    api_version: int,
    request: m.OffsetCommitRequest,
    topics: list[CommitTopic],
    max_batch_bytes: int = _LARGEST_BATCH_BYTES,
) -> Outcome:
    """Records for the offsets of `topics` but for what it adds to their `refused`.

    KafkaError when the committer has no right to commit, or no batch has room for all of it.
    """
    check_committer(state, api_version, request)
    made = run_at_once(commit_steps(state, request, topics, max_batch_bytes))
    return committed(state, request.group_id, [record for _, records in made for record in records])


def check_committer(state: ShardState, api_version: int, request: m.OffsetCommitRequest) -> None:
    """KafkaError when the committer has no right to commit; else it has shown life."""
    group_id = request.group_id
    group = state.groups.get(group_id)
    generation_id = request.generation_id_or_member_epoch
    if group is not None:
        group.validate_offset_commit(request.member_id, request.group_instance_id, generation_id)
        member = group.members.get(request.member_id)
        if member is not None and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            state.restart_session(group, member)
    elif generation_id >= 0:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND if api_version >= _GROUP_ID_NOT_FOUND_VERSION else ErrorCode.ILLEGAL_GENERATION
        )


def commit_steps(
    state: ShardState, request: m.OffsetCommitRequest, topics: list[CommitTopic], max_batch_bytes: int
) -> Generator[None, None, list[tuple[CommitTopic, list[CoordinatorRecord]]]]:
    """The records that commit each topic; yields where it may be interrupted. KafkaError when no batch has room."""
    if sum(len(topic.partitions) for topic in topics) * _LEAST_RECORD_BYTES > max_batch_bytes:
        # As when the append is refused for its size; to find that out by making the records takes long.
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    now_ms = state.clock.wall_ms()
    expire_ms = -1 if request.retention_time_ms == -1 else min(now_ms + request.retention_time_ms, _LATEST_MS)
    made = []
    for topic in topics:
        entries = yield from _entries(topic, state.settings.offset_metadata_max_bytes, now_ms, expire_ms)
        if entries:
            made.append((topic, (yield from records.offset_commits(request.group_id, topic.name, entries))))
    return made


def committed(state: ShardState, group_id: str, made: list[CoordinatorRecord]) -> Outcome:
    """The outcome of records that `commit_steps` made, of a committer that was checked since."""
    if not made:
        return NOTHING
    state.in_flight_commits[group_id] = state.in_flight_commits.get(group_id, 0) + 1
    return Outcome(made, _landed(state, group_id))


def _entries(
    topic: CommitTopic, metadata_max_length: int, now_ms: int, expire_ms: int
) -> Generator[None, None, dict[int, OffsetEntry]]:
    topic_id = topic.topic_id
    entries = {}
    for number, partition in enumerate(topic.partitions):
        if number % _PARTITIONS_PER_STEP == 0:
            yield
        metadata = partition.committed_metadata or ""
        if len(metadata) > metadata_max_length:
            topic.refused[partition.partition_index] = ErrorCode.OFFSET_METADATA_TOO_LARGE
        else:
            entries[partition.partition_index] = OffsetEntry(
                partition.committed_offset, partition.committed_leader_epoch, metadata, now_ms, expire_ms, topic_id
            )
    return entries


def _landed(state: ShardState, group_id: str) -> Callable[[ErrorCode], Outcome]:
    def on_append(_error: ErrorCode) -> Outcome:
        left = state.in_flight_commits[group_id] - 1
        if left:
            state.in_flight_commits[group_id] = left
        else:
            del state.in_flight_commits[group_id]
        return NOTHING

    return on_append


# ---- fetch -------------------------------------------------------------------------------------------------------


class FetchedOffset(NamedTuple):
    """One answered partition; offset -1 and empty metadata when nothing (valid) is committed."""

    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    error: ErrorCode


async def fetch(
    state: ShardState, group_id: str, topic: str, topic_id: bytes, partitions: Iterable[int], require_stable: bool
) -> list[FetchedOffset]:
    """Committed offsets of some partitions of a topic; ZERO_UUID stands for a caller that does not know topic ids. In
    slices of the loop: each is what it was at one moment."""
    group = state.groups.get(group_id)
    offsets = state.offsets.group(group_id).get(topic, {}) if group is not None else {}
    return [
        _fetched(state, group_id, topic, topic_id, index, offsets.get(index), require_stable)
        async for index in in_slices(partitions)
    ]


async def fetch_all(state: ShardState, group_id: str, require_stable: bool) -> dict[str, list[FetchedOffset]]:
    """All committed offsets of a group, by topic; nothing when there is no such group. As `fetch`."""
    group = state.groups.get(group_id)
    if group is None:
        return {}
    fetched: dict[str, list[FetchedOffset]] = {}
    for topic, partitions in list(state.offsets.group(group_id).items()):
        fetched[topic] = [
            _fetched(state, group_id, topic, ZERO_UUID, index, entry, require_stable)
            async for index, entry in in_slices(list(partitions.items()))
        ]
    return fetched


def _fetched(
    state: ShardState,
    group_id: str,
    topic: str,
    topic_id: bytes,
    partition: int,
    entry: OffsetEntry | None,
    require_stable: bool,
) -> FetchedOffset:
    if require_stable and not _is_stable(state, group_id, topic, partition):
        return FetchedOffset(partition, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
    if entry is None or not entry.is_of_topic(topic_id):
        return FetchedOffset(partition, -1, -1, "", ErrorCode.NONE)
    return FetchedOffset(partition, entry.offset, entry.leader_epoch, entry.metadata, ErrorCode.NONE)


def _is_stable(state: ShardState, group_id: str, topic: str, partition: int) -> bool:
    """Whether what is committed is known to be the last word. A transaction may have been told that its offset is, by
    the leader before: whoever reads exactly once must not go on from the one before that."""
    key = (group_id, topic, partition)
    return key not in state.uncommitted and not state.offsets.is_pending(*key)


# ---- delete ------------------------------------------------------------------------------------------------------


def delete(
    state: ShardState, group_id: str, topics: Iterable[tuple[str, list[int]]]
) -> tuple[dict[tuple[str, int], ErrorCode], Outcome]:
    """Tombstones for offsets of topics that no member reads, and a result for every partition; KafkaError for all."""
    group = state.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    group.validate_offset_delete()
    results: dict[tuple[str, int], ErrorCode] = {}
    made = []
    for topic, partitions in topics:
        subscribed = group.is_subscribed_to(topic)
        for index in partitions:
            results[topic, index] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
            if subscribed:
                continue
            exists = state.offsets.get(group_id, topic, index) is not None
            if exists or state.offsets.is_pending(group_id, topic, index):
                made.append(records.offset_tombstone(group_id, topic, index))
    return results, Outcome(made)


async def all_tombstones(state: ShardState, group_id: str) -> list[CoordinatorRecord]:
    """Tombstones for every offset of a group, those in open transactions included; in slices of the loop. The group is
    closed: no offsets come."""
    keys = {(topic, index): None for topic, partitions in state.offsets.group(group_id).items() for index in partitions}
    keys.update(dict.fromkeys(state.offsets.pending_keys(group_id)))
    return [records.offset_tombstone(group_id, topic, index) async for topic, index in in_slices(keys)]


def topics_deleted(state: ShardState, group_id: str, deleted: Mapping[str, bytes]) -> Iterator[CoordinatorRecord]:
    """Tombstones for a group's offsets of deleted topics (name to id), but not for those of a successor's."""
    for topic, partitions in state.offsets.group(group_id).items():
        topic_id = deleted.get(topic)
        if topic_id is None:
            continue
        for index, entry in partitions.items():
            if entry.is_of_topic(topic_id):
                yield records.offset_tombstone(group_id, topic, index)


# ---- expire ------------------------------------------------------------------------------------------------------


def expired(state: ShardState, group: ClassicGroup) -> Iterator[CoordinatorRecord]:
    """Tombstones for the group's offsets whose retention has ended, and for the group itself when it is Empty and no
    offset is left after that."""
    group_id = group.group_id
    base = group.expiration_base()
    if base is None or group_id in state.in_flight_commits:
        return
    now_ms = state.clock.wall_ms()
    retention_ms = state.settings.offsets_retention_ms
    kept = any(True for _ in state.offsets.pending_keys(group_id))
    for topic, partitions in state.offsets.group(group_id).items():
        subscribed = group.is_subscribed_to(topic)
        for index, entry in partitions.items():
            if entry.expire_timestamp_ms >= 0:
                ended = now_ms >= entry.expire_timestamp_ms
            else:
                ended = now_ms - base(entry.commit_timestamp_ms) >= retention_ms
            if ended and not subscribed and not state.offsets.is_pending(group_id, topic, index):
                yield records.offset_tombstone(group_id, topic, index)
            else:
                kept = True
    if not kept and group.state is GroupState.EMPTY:
        yield records.group_tombstone(group_id)
