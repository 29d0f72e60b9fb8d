"""Offsets of partitions by time, and at their ends. Blocks; fails with `ClientError`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pybroker.client.cluster import Cluster
from pybroker.client.errors import RequestError, check
from pybroker.client.topics import NO_LEADER
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

TopicPartition = tuple[str, int]

#: In the place of a time: the high watermark, and the start of the log.
LATEST, EARLIEST = -1, -2
#: The offset where no record is as late as the time.
NONE = -1


def look_up(cluster: Cluster, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The offset of the first record at or after each time (ms since 1970, or LATEST, EARLIEST), NONE without one.

    RequestError names a partition that is not there or stays without leader.
    """
    return cluster.retry(lambda: _look_up(cluster, times)) if times else {}


def _look_up(cluster: Cluster, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    found = {}
    for node, partitions in _by_leader(cluster, times.keys()).items():
        topics: dict[str, list[m.ListOffsetsRequest.ListOffsetsPartition]] = {}
        for name, index in partitions:
            wanted = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=times[name, index])
            topics.setdefault(name, []).append(wanted)
        request = m.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                m.ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=wanted) for name, wanted in topics.items()
            ],
            timeout_ms=cluster.timeout_ms,
        )
        for topic in cluster.call(request, node=node).topics:
            for each in topic.partitions:
                check(f"{topic.name}-{each.partition_index}", each.error_code)
                found[topic.name, each.partition_index] = each.offset
    return found


def with_leader(cluster: Cluster, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
    """Those that have a leader to ask: a group's offsets outlive a topic for a while."""
    topics = cluster.metadata({topic for topic, _ in partitions}).topics
    led = {(topic.name, each.partition_index) for topic in topics for each in topic.partitions if each.leader_id >= 0}
    return [partition for partition in partitions if partition in led]


def ends(cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """The first offset of each, and the one behind its last."""
    first = look_up(cluster, dict.fromkeys(partitions, EARLIEST))
    last = look_up(cluster, dict.fromkeys(partitions, LATEST))
    return {partition: (first[partition], last[partition]) for partition in partitions}


def _by_leader(cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[int, list[TopicPartition]]:
    leaders = {}
    for topic in cluster.metadata({name for name, _ in partitions}).topics:
        check(f"topic {topic.name}", topic.error_code)
        leaders.update({(topic.name, each.partition_index): each.leader_id for each in topic.partitions})
    found: dict[int, list[TopicPartition]] = {}
    for name, index in partitions:
        leader = leaders.get((name, index))
        if leader is None:
            raise RequestError(f"{name}-{index}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
        if leader == NO_LEADER:
            raise RequestError(f"{name}-{index}", ErrorCode.LEADER_NOT_AVAILABLE)
        found.setdefault(leader, []).append((name, index))
    return found
