"""Other replicas for partitions that are there (KIP-455): which brokers they shall have, and having it done.

`plan` is pure; the others block and fail with `ClientError`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

from pybroker.client.cluster import Cluster
from pybroker.client.errors import RequestError, check
from pybroker.client.topics import Topic
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

Place = tuple[str, int]
"""A topic and the index of a partition."""

Plan = Mapping[Place, Sequence[int]]
"""Ids of brokers, the preferred leader first."""


def plan(topics: Sequence[Topic], racks: Mapping[int, str | None], replication_factor: int) -> dict[Place, list[int]]:
    """The partitions that are to get other replicas, so that each has `replication_factor` of them on the brokers that
    `racks` has. ValueError when these are too few.

    Replicas that may stay do. New ones go where no rack of the partition's is, and where there are fewest. Among its
    replicas a partition prefers that leader which is preferred least so far.
    """
    if not 1 <= replication_factor <= len(racks):
        raise ValueError(f"{replication_factor} replicas need as many brokers, and there are {len(racks)}")
    partitions = {(topic.name, each.index): each.replicas for topic in topics for each in topic.partitions}
    kept = {
        place: [each for each in replicas if each in racks][:replication_factor]
        for place, replicas in partitions.items()
    }
    load = Counter(dict.fromkeys(racks, 0))
    load.update(broker for replicas in kept.values() for broker in replicas)
    leaders: Counter[int] = Counter()
    found = {}
    for place, replicas in kept.items():
        while len(replicas) < replication_factor:
            taken = {racks[each] for each in replicas} - {None}
            free = [each for each in racks if each not in replicas]
            chosen = min(free, key=lambda each: (racks[each] in taken, load[each], each))
            replicas.append(chosen)
            load[chosen] += 1
        preferred = min(replicas, key=leaders.__getitem__)
        leaders[preferred] += 1
        replicas.sort(key=lambda each: each != preferred)
        if tuple(replicas) != partitions[place]:
            found[place] = replicas
    return found


def racks_of(cluster: Cluster) -> dict[int, str | None]:
    """The brokers that are there, by id, each with its rack."""
    return {each.node_id: each.rack for each in sorted(cluster.metadata().brokers, key=lambda each: each.node_id)}


def reassign(cluster: Cluster, wanted: Plan) -> None:
    """Have the controllers begin with it. RequestError names the first partition that they refuse."""
    kind = m.AlterPartitionReassignmentsRequest
    topics = [
        kind.ReassignableTopic(
            name=name,
            partitions=[
                kind.ReassignablePartition(partition_index=index, replicas=list(wanted[name, index]))
                for _, index in places
            ],
        )
        for name, places in groupby(sorted(wanted), key=lambda place: place[0])
    ]
    answer = cluster.call(kind(topics=topics, timeout_ms=cluster.timeout_ms))
    check("the reassignment", answer.error_code, answer.error_message)
    for topic in answer.responses:
        for each in topic.partitions:
            if each.error_code != ErrorCode.NONE:
                raise RequestError(f"{topic.name}-{each.partition_index}", each.error_code, each.error_message)


def under_way(cluster: Cluster) -> set[Place]:
    """The partitions whose replicas are being changed."""
    answer = cluster.call(m.ListPartitionReassignmentsRequest(topics=None, timeout_ms=cluster.timeout_ms))
    check("reassignments", answer.error_code, answer.error_message)
    return {(topic.name, each.partition_index) for topic in answer.topics for each in topic.partitions}
