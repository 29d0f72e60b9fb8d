"""Groups of consumers: look, move and delete their offsets, delete them. Blocks; fails with `ClientError`.

Both kinds are read: classic groups, whose members are described by their leader, and those of KIP-848, which the broker
describes. Each request goes to the coordinator of its group, and again while that loads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

from pybroker.client.cluster import Cluster
from pybroker.client.errors import NotServed, RequestError, check
from pybroker.client.offsets import TopicPartition
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, ProtocolError

CLASSIC, CONSUMER = "classic", "consumer"
DEAD, EMPTY = "Dead", "Empty"
_PROTOCOL_TYPE = "consumer"
#: States in which nobody's position is anybody else's to move.
IDLE_STATES = (EMPTY, DEAD)
_ALONE = -1
_LIST_VERSIONS = (3, 5)
# Later versions name topics by id.
_FETCH_VERSIONS = (8, 9)
_COMMIT_VERSIONS = (2, 9)


@dataclass(frozen=True, slots=True)
class Listed:
    """A group as its coordinator lists it. `type` is classic, consumer, share or streams."""

    name: str
    state: str
    type: str
    protocol_type: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class Member:
    """`assignment` is None where nobody can read it: groups of another protocol type."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...] | None


@dataclass(frozen=True, slots=True)
class Group:
    """`assignor` is the protocol that the members agreed on."""

    name: str
    state: str
    type: str
    assignor: str
    coordinator: int
    members: tuple[Member, ...]

    @property
    def is_idle(self) -> bool:
        """Whether nobody is in it, so that its offsets may be moved."""
        return self.state in IDLE_STATES


def list_groups(cluster: Cluster) -> list[Listed]:
    """All groups of all brokers, by name."""
    found = [each for node in cluster.nodes() for each in cluster.retry(partial(_list_groups_of, cluster, node))]
    return sorted(found, key=lambda each: each.name)


def _list_groups_of(cluster: Cluster, node: int) -> list[Listed]:
    answer = cluster.call(m.ListGroupsRequest(), node=node, versions=_LIST_VERSIONS)
    check(f"groups of broker {node}", answer.error_code)
    return [
        Listed(each.group_id, each.group_state, (each.group_type or CLASSIC).lower(), each.protocol_type, node)
        for each in answer.groups
    ]


def describe(cluster: Cluster, name: str) -> Group:
    """One group with its members. RequestError (GROUP_ID_NOT_FOUND) without such a group."""
    node = cluster.coordinator(name)
    found = cluster.retry(lambda: _describe_consumer_group(cluster, name, node))
    return found if found is not None else cluster.retry(lambda: _describe_classic(cluster, name, node))


def _describe_consumer_group(cluster: Cluster, name: str, node: int) -> Group | None:
    """None when it is a classic group, or the broker knows no others."""
    try:
        (each,) = cluster.call(m.ConsumerGroupDescribeRequest(group_ids=[name]), node=node).groups
    except NotServed:
        return None
    if each.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    check(f"group {name}", each.error_code, each.error_message)
    members = [
        Member(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            tuple(
                (topic.topic_name, index)
                for topic in member.assignment.topic_partitions
                for index in sorted(topic.partitions)
            ),
        )
        for member in each.members
    ]
    return Group(name, each.group_state, CONSUMER, each.assignor_name, node, _sorted(members))


def _describe_classic(cluster: Cluster, name: str, node: int) -> Group:
    (each,) = cluster.call(m.DescribeGroupsRequest(groups=[name]), node=node).groups
    check(f"group {name}", each.error_code)
    if each.group_state == DEAD and not each.members:
        raise RequestError(f"group {name}", ErrorCode.GROUP_ID_NOT_FOUND)
    members = [
        Member(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            _assignment(member.member_assignment) if each.protocol_type == _PROTOCOL_TYPE else None,
        )
        for member in each.members
    ]
    return Group(name, each.group_state, CLASSIC, each.protocol_data, node, _sorted(members))


def _sorted(members: list[Member]) -> tuple[Member, ...]:
    return tuple(sorted(members, key=lambda each: (each.client_id, each.id)))


def _assignment(data: bytes) -> tuple[TopicPartition, ...] | None:
    """The partitions in a ConsumerProtocolAssignment: a version, then the message."""
    if not data:
        return ()
    try:
        version = min(int.from_bytes(data[:2], "big", signed=True), m.ConsumerProtocolAssignment.MAX_VERSION)
        found, _ = m.ConsumerProtocolAssignment.decode(version, data, 2)
    except ProtocolError:
        return None
    return tuple((each.topic, index) for each in found.assigned_partitions for index in sorted(each.partitions))


def committed(cluster: Cluster, name: str) -> dict[TopicPartition, int]:
    """The group's committed offsets; empty for a group that is not there."""
    node = cluster.coordinator(name)
    group = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None)

    def fetch() -> dict[TopicPartition, int]:
        (answer,) = cluster.call(m.OffsetFetchRequest(groups=[group]), node=node, versions=_FETCH_VERSIONS).groups
        check(f"group {name}", answer.error_code)
        found = {}
        for topic in answer.topics:
            for each in topic.partitions:
                check(f"group {name}, {topic.name}-{each.partition_index}", each.error_code)
                if each.committed_offset >= 0:
                    found[topic.name, each.partition_index] = each.committed_offset
        return found

    return cluster.retry(fetch)


def commit(cluster: Cluster, name: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Set offsets of a group that has no members; RequestError when it has. Makes the group if need be."""
    request = m.OffsetCommitRequest(
        group_id=name,
        generation_id_or_member_epoch=_ALONE,
        member_id="",
        topics=[
            m.OffsetCommitRequest.OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    m.OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offsets[topic, index], committed_metadata=""
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in _by_topic(offsets.keys()).items()
        ],
    )
    node = cluster.coordinator(name)

    def send() -> None:
        for topic in cluster.call(request, node=node, versions=_COMMIT_VERSIONS).topics:
            for each in topic.partitions:
                check(f"group {name}, {topic.name}-{each.partition_index}", each.error_code)

    cluster.retry(send)


def delete(cluster: Cluster, name: str) -> None:
    """Delete a group that has no members, and its offsets."""
    node = cluster.coordinator(name)

    def send() -> None:
        (answer,) = cluster.call(m.DeleteGroupsRequest(groups_names=[name]), node=node).results
        check(f"group {name}", answer.error_code)

    cluster.retry(send)


def delete_offsets(
    cluster: Cluster, name: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, RequestError | None]:
    """Forget the group's offsets of these partitions; what became of each. RequestError when the group is not there."""
    request = m.OffsetDeleteRequest(
        group_id=name,
        topics=[
            m.OffsetDeleteRequest.OffsetDeleteRequestTopic(
                name=topic,
                partitions=[
                    m.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=index) for index in indexes
                ],
            )
            for topic, indexes in _by_topic(partitions).items()
        ],
    )
    node = cluster.coordinator(name)

    def send() -> dict[TopicPartition, RequestError | None]:
        answer = cluster.call(request, node=node)
        check(f"group {name}", answer.error_code)
        found: dict[TopicPartition, RequestError | None] = {}
        for topic in answer.topics:
            for each in topic.partitions:
                place = f"group {name}, {topic.name}-{each.partition_index}"
                failure = RequestError(place, each.error_code) if each.error_code else None
                found[topic.name, each.partition_index] = failure
        return found

    return cluster.retry(send)


def _by_topic(partitions: Collection[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        found.setdefault(topic, []).append(index)
    return found
