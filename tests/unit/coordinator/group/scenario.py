"""One script of group requests, run against a real Apache Kafka and against our handlers.

`run(call)` drives it; `call(connection, api key, version, request)` sends one request on a named connection and awaits
the response. Member ids carry a random part: `Normaliser` numbers them, so that two runs can be compared.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

from pybroker.protocol import messages as m
from pybroker.protocol.messages import Struct
from pybroker.protocol.uuids import ZERO_UUID

Call = Callable[[str, int, int, Any], Awaitable[Any]]

TOPIC = "events"
UUID_PATTERN = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SUBSCRIPTION = b"\0\1\0\0\0\1\0\6events\xff\xff\xff\xff\0\0\0\0"


class Normaliser:
    """Replaces random uuids by `#1`, `#2`, ... in the order in which they are met."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        return UUID_PATTERN.sub(lambda found: self._known.setdefault(found[0], f"#{len(self._known) + 1}"), text)


def canonical(value: Any) -> Any:
    """`value` with lists sorted whose order Kafka leaves to its hash tables, and without Kafka's wording of errors."""
    if not isinstance(value, Struct):
        return value
    for name in type(value).__slots__:
        field = getattr(value, name)
        if isinstance(field, list) and field and isinstance(field[0], Struct):
            # Random ids must not decide the order.
            field.sort(key=lambda element: UUID_PATTERN.sub("", repr(canonical(element))))
        elif isinstance(field, Struct):
            canonical(field)
        elif name == "error_message":
            setattr(value, name, None)
    return value


def commit(group: str, *, version: int = 9, topic: str = TOPIC, topic_id: bytes = ZERO_UUID, **fields: Any) -> Any:
    partitions = fields.pop("partitions", [(0, 42, 3, "note")])
    return m.OffsetCommitRequest(
        group_id=group,
        topics=[
            m.OffsetCommitRequest.OffsetCommitRequestTopic(
                name=topic if version < 10 else "",
                topic_id=topic_id if version >= 10 else ZERO_UUID,
                partitions=[
                    m.OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=epoch if version >= 6 else -1,
                        committed_metadata=metadata,
                    )
                    for index, offset, epoch, metadata in partitions
                ],
            )
        ],
        **fields,
    )


def join(group: str, member: str = "", **fields: Any) -> Any:
    values: dict[str, Any] = {
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": [m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=_SUBSCRIPTION)],
    }
    return m.JoinGroupRequest(group_id=group, member_id=member, **{**values, **fields})


def sync(group: str, generation: int, member: str, assignments: dict[str, bytes] | None = None, **fields: Any) -> Any:
    return m.SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[
            m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=name, assignment=data)
            for name, data in (assignments or {}).items()
        ],
        **fields,
    )


def heartbeat(group: str, generation: int, member: str, **fields: Any) -> Any:
    return m.HeartbeatRequest(group_id=group, generation_id=generation, member_id=member, **fields)


def leave(group: str, *identities: tuple[str, str | None]) -> Any:
    return m.LeaveGroupRequest(
        group_id=group,
        members=[
            m.LeaveGroupRequest.MemberIdentity(member_id=member, group_instance_id=instance, reason="done")
            for member, instance in identities
        ],
    )


def fetch(group: str, topics: list[tuple[str, list[int]]] | None, *, require_stable: bool = False) -> Any:
    named = None
    if topics is not None:
        named = [m.OffsetFetchRequest.OffsetFetchRequestTopics(name=n, partition_indexes=p) for n, p in topics]
    asked = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=named)
    return m.OffsetFetchRequest(groups=[asked], require_stable=require_stable)


async def run(call: Call, topic_id: bytes, pause: Callable[[], Awaitable[None]]) -> list[tuple[str, Any]]:
    """The whole script; (step's name, response) in the order in which the steps began.

    `pause` returns when a request that has just been sent on another connection is parked.
    """
    log: list[tuple[str, Any]] = []

    async def step(name: str, connection: str, api: int, version: int, request: Any) -> Any:
        place = len(log)
        log.append((name, None))
        response = await call(connection, api, version, request)
        log[place] = (name, canonical(response))
        return response

    await _offsets(step, topic_id)
    await _dynamic_members(step, pause)
    await _static_members(step)
    await _static_rebalances(step, pause)
    await _stable_rejoins(step, pause)
    await _refusals(step)
    await _administration(step)
    return log


async def _offsets(step: Any, topic_id: bytes) -> None:
    await step("commit v2 with retention", "a", 8, 2, commit("simple", version=2, retention_time_ms=86_400_000))
    await step("commit v2 of another partition", "a", 8, 2, commit("simple", version=2, partitions=[(1, 7, -1, None)]))
    await step("commit v9", "a", 8, 9, commit("simple9", partitions=[(0, 5, 2, ""), (1, 6, -1, None), (9, 1, 1, "")]))
    await step("commit v10 by id", "a", 8, 10, commit("simple10", version=10, topic_id=topic_id))
    await step("commit v10 of unknown id", "a", 8, 10, commit("simple10", version=10, topic_id=bytes(15) + b"\7"))
    await step("commit of unknown topic", "a", 8, 9, commit("simple9", topic="nothing"))
    await step("commit with too much metadata", "a", 8, 9, commit("simple9", partitions=[(0, 9, 1, "x" * 4097)]))
    await step("commit by generation to no group", "a", 8, 8, commit("no group", generation_id_or_member_epoch=3))
    await step("commit by generation to no group v9", "a", 8, 9, commit("no group", generation_id_or_member_epoch=3))
    await step("commit to the empty group id", "a", 8, 9, commit(""))
    await step("fetch v8", "a", 9, 8, fetch("simple9", [(TOPIC, [0, 1, 2]), ("nothing", [0])]))
    await step("fetch all v8", "a", 9, 8, fetch("simple", None))
    await step("fetch stable v9", "a", 9, 9, fetch("simple10", None, require_stable=True))
    by_id = m.OffsetFetchRequest.OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0, 1])
    no_id = m.OffsetFetchRequest.OffsetFetchRequestTopics(topic_id=bytes(15) + b"\7", partition_indexes=[0])
    asked = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="simple10", topics=[by_id, no_id])
    everything = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="simple", topics=None)
    await step("fetch v10 by id", "a", 9, 10, m.OffsetFetchRequest(groups=[asked, everything]))
    old_topic = m.OffsetFetchRequest.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0, 5])
    for version in (1, 5, 7):
        old = m.OffsetFetchRequest(group_id="simple", topics=[old_topic])
        await step(f"fetch v{version}", "a", 9, version, old)
    await step("fetch of no group", "a", 9, 8, fetch("no group", [(TOPIC, [0])]))
    await step("fetch all of no group", "a", 9, 8, fetch("no group", None))


async def _dynamic_members(step: Any, pause: Callable[[], Awaitable[None]]) -> None:
    group = "dynamic"
    required = await step("join needs an id", "a", 11, 9, join(group))
    member = required.member_id
    await step("join of a stranger", "b", 11, 9, join(group, "stranger"))
    await step("pending member is listed", "b", 15, 5, m.DescribeGroupsRequest(groups=[group]))
    joined = await step("join with the id", "a", 11, 9, join(group, member))
    generation = joined.generation_id
    await step("heartbeat while completing", "a", 12, 4, heartbeat(group, generation, member))
    await step(
        "commit while completing", "a", 8, 9, commit(group, generation_id_or_member_epoch=generation, member_id=member)
    )
    await step("join again while completing", "a", 11, 9, join(group, member))
    await step("sync of an old generation", "a", 14, 5, sync(group, generation - 1, member))
    await step("sync of the leader", "a", 14, 5, sync(group, generation, member, {member: b"all"}))
    await step("sync again", "a", 14, 3, sync(group, generation, member))
    await step("describe stable", "b", 15, 6, m.DescribeGroupsRequest(groups=[group, "no group"]))
    await step(
        "describe stable v5",
        "b",
        15,
        5,
        m.DescribeGroupsRequest(groups=[group, "no group"], include_authorized_operations=True),
    )
    await step("heartbeat", "a", 12, 4, heartbeat(group, generation, member))
    await step("heartbeat of old generation", "a", 12, 0, heartbeat(group, generation + 4, member))
    await step(
        "commit of a member", "a", 8, 9, commit(group, generation_id_or_member_epoch=generation, member_id=member)
    )
    await step(
        "commit of old generation",
        "a",
        8,
        9,
        commit(group, generation_id_or_member_epoch=generation + 1, member_id=member),
    )
    await step("commit of no member", "a", 8, 9, commit(group))
    await step("delete offsets being read", "b", 47, 0, _delete_offsets(group))
    await step("delete group with members", "b", 42, 2, m.DeleteGroupsRequest(groups_names=[group, "no group"]))

    second = (await step("second join needs an id", "b", 11, 9, join(group))).member_id
    parked = asyncio.create_task(step("second join", "b", 11, 9, join(group, second)))
    await pause()
    await step("heartbeat hears of the rebalance", "a", 12, 4, heartbeat(group, generation, member))
    await step("sync during the rebalance", "a", 14, 5, sync(group, generation, member))
    await step("leader rejoins", "a", 11, 9, join(group, member))
    await parked
    generation += 1
    parked = asyncio.create_task(step("follower syncs", "b", 14, 5, sync(group, generation, second)))
    await pause()
    await step("leader syncs", "a", 14, 5, sync(group, generation, member, {member: b"one", second: b"two"}))
    await parked
    await step("leader leaves", "a", 13, 5, leave(group, (member, None), ("stranger", None)))
    await step("describe preparing", "a", 15, 5, m.DescribeGroupsRequest(groups=[group]))
    await step("leave v1", "b", 13, 1, m.LeaveGroupRequest(group_id=group, member_id=second))
    await step("describe empty", "a", 15, 5, m.DescribeGroupsRequest(groups=[group]))
    await step("heartbeat after leaving", "b", 12, 4, heartbeat(group, generation, second))
    await step("leave again v1", "b", 13, 1, m.LeaveGroupRequest(group_id=group, member_id=second))
    await step("old join v1", "a", 11, 1, join("old"))
    await step("describe old", "b", 15, 4, m.DescribeGroupsRequest(groups=["old"]))


def _delete_offsets(group: str) -> Any:
    def topic(name: str, index: int) -> Any:
        partition = m.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=index)
        return m.OffsetDeleteRequest.OffsetDeleteRequestTopic(name=name, partitions=[partition])

    return m.OffsetDeleteRequest(group_id=group, topics=[topic(TOPIC, 0), topic("nothing", 0)])


async def _static_members(step: Any) -> None:
    group = "static"
    joined = await step("static join", "a", 11, 9, join(group, group_instance_id="one"))
    member, generation = joined.member_id, joined.generation_id
    await step("static sync", "a", 14, 5, sync(group, generation, member, {member: b"mine"}, group_instance_id="one"))
    rejoined = await step("static leader comes back", "b", 11, 9, join(group, group_instance_id="one"))
    await step(
        "static leader is given its assignment",
        "b",
        14,
        5,
        sync(group, generation, rejoined.member_id, group_instance_id="one"),
    )
    again = await step("static leader comes back v5", "b", 11, 5, join(group, group_instance_id="one"))
    await step("the one before is fenced", "a", 12, 4, heartbeat(group, generation, member, group_instance_id="one"))
    await step(
        "fenced commit",
        "a",
        8,
        9,
        commit(group, generation_id_or_member_epoch=generation, member_id=member, group_instance_id="one"),
    )
    await step("fenced join", "a", 11, 9, join(group, member, group_instance_id="one"))
    await step("describe static", "a", 15, 5, m.DescribeGroupsRequest(groups=[group]))
    await step("unknown instance", "a", 12, 4, heartbeat(group, generation, again.member_id, group_instance_id="two"))
    await step("administrator removes", "a", 13, 4, leave(group, ("", "one"), ("", "two"), ("", None)))
    await step("describe after removal", "a", 15, 5, m.DescribeGroupsRequest(groups=[group]))


async def _static_rebalances(step: Any, pause: Callable[[], Awaitable[None]]) -> None:
    group = "statics"
    first = await step("first static joins", "a", 11, 7, join(group, group_instance_id="one"))
    one = first.member_id
    second = asyncio.create_task(step("second static joins", "b", 11, 7, join(group, group_instance_id="two")))
    await pause()
    await step("sync in vain", "a", 14, 5, sync(group, 1, one, {one: b"all"}, group_instance_id="one"))
    await step("first static rejoins", "a", 11, 7, join(group, one, group_instance_id="one"))
    two = (await second).member_id
    follower = asyncio.create_task(
        step("static follower syncs", "b", 14, 5, sync(group, 2, two, group_instance_id="two"))
    )
    await pause()
    await step(
        "static leader replaced while completing",
        "c",
        16,
        4,
        m.ListGroupsRequest(states_filter=["CompletingRebalance"]),
    )
    taken = asyncio.create_task(step("static leader is taken over", "c", 11, 9, join(group, group_instance_id="one")))
    await follower
    await pause()
    await step(
        "commit while preparing",
        "b",
        8,
        9,
        commit(group, generation_id_or_member_epoch=2, member_id=two, group_instance_id="two"),
    )
    await step("static follower rejoins", "b", 11, 7, join(group, two, group_instance_id="two"))
    one = (await taken).member_id
    await step("leave of a wrong instance", "a", 13, 3, leave(group, (two, "one"), (one, "three"), (one, None)))
    await step("describe what is left", "a", 15, 5, m.DescribeGroupsRequest(groups=[group]))
    await step("remaining static rejoins", "b", 11, 7, join(group, two, group_instance_id="two"))
    await step("remaining static syncs", "b", 14, 4, sync(group, 4, two, {two: b"rest"}, group_instance_id="two"))
    await step(
        "follower of old comes back v9",
        "c",
        11,
        9,
        join(
            group,
            group_instance_id="two",
            protocols=[
                m.JoinGroupRequest.JoinGroupRequestProtocol(name="other", metadata=b""),
                m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=_SUBSCRIPTION),
            ],
        ),
    )
    await step("administrator empties it", "a", 13, 5, leave(group, ("", "two")))


async def _stable_rejoins(step: Any, pause: Callable[[], Awaitable[None]]) -> None:
    group = "rejoins"
    leader = (await step("old client joins", "a", 11, 2, join(group))).member_id
    await step("it syncs", "a", 14, 2, sync(group, 1, leader, {leader: b"all"}))
    await step("stable leader rejoins", "a", 11, 5, join(group, leader))
    await step("its old generation is gone", "a", 14, 5, sync(group, 1, leader, {leader: b"all"}))
    second = asyncio.create_task(step("old follower joins", "b", 11, 0, join(group, rebalance_timeout_ms=-1)))
    await pause()
    await step("leader joins again", "a", 11, 5, join(group, leader))
    follower = (await second).member_id
    await step("leader assigns only itself", "a", 14, 5, sync(group, 3, leader, {leader: b"all", "ghost": b"boo"}))
    await step("follower has nothing", "b", 14, 0, sync(group, 3, follower))
    await step("stable follower rejoins unchanged", "b", 11, 5, join(group, follower))
    await step(
        "sync of another protocol",
        "b",
        14,
        5,
        m.SyncGroupRequest(
            group_id=group, generation_id=3, member_id=follower, protocol_type="consumer", protocol_name="other"
        ),
    )
    await step(
        "sync of another type",
        "b",
        14,
        5,
        m.SyncGroupRequest(
            group_id=group, generation_id=3, member_id=follower, protocol_type="connect", protocol_name="range"
        ),
    )
    await step("sync with an instance", "b", 14, 5, sync(group, 3, follower, group_instance_id="none"))
    await step("heartbeat with an instance", "b", 12, 3, heartbeat(group, 3, follower, group_instance_id="none"))
    await step(
        "commit with an instance",
        "b",
        8,
        7,
        commit(group, version=7, generation_id_or_member_epoch=3, member_id=follower, group_instance_id="none"),
    )
    await step(
        "commit of a ghost", "b", 8, 6, commit(group, version=6, generation_id_or_member_epoch=3, member_id="ghost")
    )
    await step(
        "follower commits",
        "b",
        8,
        3,
        commit(group, version=3, generation_id_or_member_epoch=3, member_id=follower, partitions=[(2, 77, -1, "m")]),
    )
    await step("both leave at once", "a", 13, 4, leave(group, (leader, None), (follower, None), (leader, None)))
    await step("commit to the empty group", "a", 8, 9, commit(group, partitions=[(1, 8, 2, "later")]))
    await step(
        "commit by generation to the empty group",
        "a",
        8,
        9,
        commit(group, generation_id_or_member_epoch=3, member_id=leader),
    )
    await step("delete offsets of the empty group", "a", 47, 0, _delete_offsets(group))
    await step("its offsets", "a", 9, 8, fetch(group, None))
    await step("a member without the group's history", "c", 11, 9, join(group, leader))


async def _refusals(step: Any) -> None:
    await step("join without group id", "a", 11, 9, join(""))
    await step("join with short session", "a", 11, 9, join("g", session_timeout_ms=5_999))
    await step("join with long session", "a", 11, 9, join("g", session_timeout_ms=1_800_001))
    await step("join without protocols", "a", 11, 9, join("protocolless", protocols=[]))
    await step("join without protocols v3", "a", 11, 3, join("protocolless", protocols=[]))
    await step("join without type", "a", 11, 5, join("typeless", protocol_type=""))
    await step("join of unknown group", "a", 11, 9, join("unknown", "member"))
    await step("join other type", "b", 11, 9, join("old", protocol_type="connect"))
    other = [m.JoinGroupRequest.JoinGroupRequestProtocol(name="other", metadata=b"")]
    await step("join other protocol", "b", 11, 9, join("old", protocols=other))
    await step("sync of unknown group", "a", 14, 5, sync("unknown", 1, "member"))
    await step("sync of empty group", "a", 14, 5, sync("dynamic", 1, "member"))
    await step("sync without protocol v5", "a", 14, 5, m.SyncGroupRequest(group_id="old", member_id="x"))
    await step("sync without group id", "a", 14, 5, sync("", 1, "member"))
    await step("heartbeat of unknown group", "a", 12, 4, heartbeat("unknown", 1, "member"))
    await step("heartbeat without group id", "a", 12, 4, heartbeat("", 1, "member"))
    await step("heartbeat of unknown member", "a", 12, 4, heartbeat("old", 1, "member"))
    await step("leave of unknown group", "a", 13, 5, leave("unknown", ("member", None)))
    await step("leave of unknown group v2", "a", 13, 2, m.LeaveGroupRequest(group_id="unknown", member_id="x"))
    await step("leave without group id", "a", 13, 5, leave("", ("member", None)))


async def _administration(step: Any) -> None:
    await step("list", "a", 16, 5, m.ListGroupsRequest())
    await step("list v3", "a", 16, 3, m.ListGroupsRequest())
    await step("list empty ones", "a", 16, 4, m.ListGroupsRequest(states_filter=["empty"]))
    await step("list consumers", "a", 16, 5, m.ListGroupsRequest(types_filter=["consumer"]))
    await step("list classics", "a", 16, 5, m.ListGroupsRequest(types_filter=["cLassic"], states_filter=["Empty"]))
    await step("list nonsense", "a", 16, 5, m.ListGroupsRequest(types_filter=["nonsense"]))
    await step("delete offsets", "a", 47, 0, _delete_offsets("simple9"))
    await step("offsets are gone", "a", 9, 8, fetch("simple9", [(TOPIC, [0, 1])]))
    await step("delete offsets of no group", "a", 47, 0, _delete_offsets("no group"))
    await step("delete offsets of group without id", "a", 47, 0, _delete_offsets(""))
    for name in ("simple", "dynamic", ""):
        await step("delete groups", "a", 42, 2, m.DeleteGroupsRequest(groups_names=[name, "no group"]))
    await step("nothing is left", "a", 9, 8, fetch("simple", None))
    await step("describe deleted", "a", 15, 6, m.DescribeGroupsRequest(groups=["dynamic", ""]))
