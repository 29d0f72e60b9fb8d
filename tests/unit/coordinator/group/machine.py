"""Drives the state machine of one shard in virtual time, as the coordinator would: append, replay, call back.

Appends are decided at once unless `hold` is set; then they wait in `appended` for `decide`.
"""

from __future__ import annotations

from typing import Any

from pybroker.coordinator.group import shard
from pybroker.coordinator.group.log import replay
from pybroker.coordinator.group.model.settings import GroupSettings
from pybroker.coordinator.group.model.shard_state import ShardState
from pybroker.coordinator.group.requests.heartbeat import heartbeat
from pybroker.coordinator.group.requests.join import Join, join
from pybroker.coordinator.group.requests.leave import leave
from pybroker.coordinator.group.requests.offsets import CommitTopic, commit
from pybroker.coordinator.group.requests.sync import Sync, sync
from pybroker.coordinator.outcome import Outcome
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

TOPIC_ID = bytes(range(16))
MAX_BATCH_BYTES = 1_048_588
NO_ERROR = ErrorCode.NONE


class VirtualClock:
    """Starts at 1,000,000 ms; monotonic and wall time run alike."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


class Reply:
    """A parked request: `response` is None until it is answered, which may happen once."""

    def __init__(self) -> None:
        self.response: Any = None

    def __call__(self, response: Any) -> None:
        assert self.response is None, "answered twice"
        self.response = response

    @property
    def error(self) -> ErrorCode:
        assert self.response is not None, "not answered yet"
        return ErrorCode(self.response.error_code)


class Machine:
    """One shard; `log` holds the (key, value) that have been committed."""

    def __init__(self, log: list[tuple[bytes, bytes | None]] | None = None, **settings: Any) -> None:
        self.clock = VirtualClock()
        self.suffix_count = 0
        self.state = ShardState(GroupSettings(**settings), self.clock, self._next_suffix)
        self.log = [] if log is None else list(log)
        self.appended: list[Outcome] = []
        self.hold = False
        for offset, (key, value) in enumerate(self.log):
            change = replay.decode(key, value)
            assert change is not None
            replay.apply(self.state, change, offset)
        for outcome in shard.on_loaded(self.state):
            self.submit(outcome)

    def _next_suffix(self) -> str:
        self.suffix_count += 1
        return f"{self.suffix_count:04d}"

    # ---- the driver's part -----------------------------------------------------------------------------------------

    def submit(self, outcome: Outcome) -> None:
        if outcome.records:
            self.appended.append(outcome)
            if not self.hold:
                self.decide()
        else:
            assert outcome.on_append is None

    def decide(self, error: ErrorCode = NO_ERROR) -> None:
        """Commit all that is appended, or fail it."""
        while self.appended:
            outcome = self.appended.pop(0)
            if error is NO_ERROR:
                for record in outcome.records:
                    if record.change is not None:
                        replay.apply(self.state, record.change, len(self.log))
                    self.log.append((record.key, record.value))
            if outcome.on_append is not None:
                self.submit(outcome.on_append(error))

    def advance(self, milliseconds: int) -> None:
        """Let time pass; every timer fires at its own moment."""
        end_ms = self.clock.now_ms + milliseconds
        timers = self.state.timers
        while timers.earliest_ms is not None and timers.earliest_ms <= end_ms:
            self.clock.now_ms = max(self.clock.now_ms, timers.earliest_ms)
            expired = timers.pop_expired(self.clock.now_ms)
            if expired is not None:
                self.submit(shard.on_timer(self.state, *expired))
        self.clock.now_ms = end_ms

    # ---- requests --------------------------------------------------------------------------------------------------

    def join(self, group: str, member: str = "", instance: str | None = None, **fields: Any) -> Reply:
        reply = Reply()
        values: dict[str, Any] = {
            "api_version": 9,
            "client_id": "client",
            "client_host": "/127.0.0.1",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": [("range", subscription("events"))],
            "reason": None,
            **fields,
        }
        request = Join(group_id=group, member_id=member, group_instance_id=instance, reply=reply, **values)
        self.submit(join(self.state, request))
        return reply

    def join_dynamic(self, group: str, **fields: Any) -> tuple[str, Reply]:
        """Both steps of a dynamic member's first join: its id, and the second request."""
        member = self.join(group, **fields).response.member_id
        return member, self.join(group, member, **fields)

    def sync(
        self,
        group: str,
        generation: int,
        member: str,
        assignments: dict[str, bytes] | None = None,
        instance: str | None = None,
    ) -> Reply:
        reply = Reply()
        request = Sync(group, generation, member, instance, "consumer", "range", assignments or {}, reply)
        self.submit(sync(self.state, request))
        return reply

    def heartbeat(self, group: str, generation: int, member: str, instance: str | None = None) -> ErrorCode:
        return heartbeat(self.state, group, generation, member, instance)

    def leave(self, group: str, *members: str) -> list[ErrorCode]:
        identities = [m.LeaveGroupRequest.MemberIdentity(member_id=member) for member in members]
        response, outcome = leave(self.state, group, identities)
        self.submit(outcome)
        return [ErrorCode(member.error_code) for member in response.members]

    def commit(
        self,
        group: str,
        offset: int,
        *,
        member: str = "",
        generation: int = -1,
        partition: int = 0,
        topic: str = "events",
        retention_ms: int = -1,
    ) -> None:
        """Commit one offset; KafkaError when the committer is refused."""
        asked = m.OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_leader_epoch=1, committed_metadata=""
        )
        request = m.OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=generation, member_id=member, retention_time_ms=retention_ms
        )
        self.submit(commit(self.state, 9, request, [CommitTopic(topic, TOPIC_ID, [asked], {})]))

    def committed(self, group: str, partition: int = 0, topic: str = "events") -> int | None:
        entry = self.state.offsets.get(group, topic, partition)
        return None if entry is None else entry.offset

    def stable_group(self, group: str, member_count: int = 1) -> tuple[int, list[str]]:
        """A Stable group of dynamic members, each with its own number as assignment: (generation, member ids)."""
        joins = [self.join_dynamic(group) for _ in range(member_count)]
        self.advance(3_000 * (member_count + 1))
        members = [member for member, _ in joins]
        generation = joins[0][1].response.generation_id
        assignments = {member: str(index).encode() for index, member in enumerate(members)}
        for member in reversed(members):
            is_leader = joins[0][1].response.leader == member
            self.sync(group, generation, member, assignments if is_leader else None)
        return generation, members


def subscription(*topics: str) -> bytes:
    """Metadata of a consumer that subscribes to these topics."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\1" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff\0\0\0\0"


def persisted(state: ShardState) -> dict[str, Any]:
    """What must survive a restart: groups that are at rest, with members and assignments, and all offsets."""
    groups = {
        group.group_id: (
            group.state.value,
            group.generation_id,
            group.protocol_type if group.members or group.generation_id else None,
            group.protocol_name,
            group.leader_id,
            {
                member.member_id: (member.group_instance_id, member.assignment, member.session_timeout_ms)
                for member in group.members.values()
            },
        )
        for group in state.groups.values()
    }
    offsets = {
        (group_id, topic, index): (entry.offset, entry.leader_epoch, entry.commit_timestamp_ms, entry.topic_id)
        for group_id in state.offsets.group_ids()
        for topic, partitions in state.offsets.group(group_id).items()
        for index, entry in partitions.items()
    }
    return {"groups": groups, "offsets": offsets}
