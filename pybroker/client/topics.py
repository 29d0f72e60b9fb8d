"""Topics of a cluster: look, make, widen, delete. Blocks; fails with `ClientError`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pybroker.client.cluster import Cluster
from pybroker.client.errors import RequestError, check
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

NO_LEADER = -1
# A value that leaves the choice to the broker.
DEFAULT = -1
_CREATE_VERSIONS = (5, 7)
_DELETE_VERSIONS = (6, 6)

Assignment = Sequence[Sequence[int]]
"""The replicas of each partition, by index; the first of each is the preferred leader."""


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition; `leader` is NO_LEADER while there is none. Ids of brokers."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is not in sync."""
        return len(self.isr) < len(self.replicas)


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic with its partitions by index."""

    name: str
    id: bytes
    is_internal: bool
    partitions: tuple[Partition, ...]

    @property
    def replication_factor(self) -> int:
        """Replicas of a partition, 0 without partitions."""
        return len(self.partitions[0].replicas) if self.partitions else 0


def describe(cluster: Cluster, names: Collection[str] | None = None) -> list[Topic]:
    """These topics, or all, by name. RequestError names one that is not there."""
    answer = cluster.metadata(names)
    found = []
    for topic in answer.topics:
        check(f"topic {topic.name}", topic.error_code)
        partitions = [
            Partition(
                each.partition_index,
                each.leader_id,
                each.leader_epoch,
                tuple(each.replica_nodes),
                tuple(each.isr_nodes),
                tuple(each.offline_replicas),
            )
            for each in sorted(topic.partitions, key=lambda each: each.partition_index)
        ]
        found.append(Topic(topic.name or "", topic.topic_id, topic.is_internal, tuple(partitions)))
    return sorted(found, key=lambda each: each.name)


@dataclass(frozen=True, slots=True)
class Created:
    """The topic that the broker made, or would make; DEFAULT where it does not tell."""

    partitions: int
    replication_factor: int


def create(
    cluster: Cluster,
    name: str,
    *,
    partitions: int = DEFAULT,
    replication_factor: int = DEFAULT,
    assignment: Assignment = (),
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> Created:
    """Make a topic; with an `assignment` the two numbers are DEFAULT. `validate_only` makes none."""
    wanted = m.CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[
            m.CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
            for index, replicas in enumerate(assignment)
        ],
        configs=[
            m.CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ],
    )
    request = m.CreateTopicsRequest(topics=[wanted], timeout_ms=cluster.timeout_ms, validate_only=validate_only)
    (answer,) = cluster.call(request, versions=_CREATE_VERSIONS).topics
    check(f"topic {name}", answer.error_code, answer.error_message)
    return Created(answer.num_partitions, answer.replication_factor)


def add_partitions(cluster: Cluster, name: str, total: int, assignment: Assignment = ()) -> None:
    """Widen a topic to `total` partitions; `assignment` is that of the new ones."""
    new = [m.CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=list(each)) for each in assignment]
    wanted = m.CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=total, assignments=new or None)
    (answer,) = cluster.call(m.CreatePartitionsRequest(topics=[wanted], timeout_ms=cluster.timeout_ms)).results
    check(f"topic {name}", answer.error_code, answer.error_message)


def delete(cluster: Cluster, names: Collection[str]) -> dict[str, RequestError | None]:
    """Delete topics; what became of each."""
    request = m.DeleteTopicsRequest(
        topics=[m.DeleteTopicsRequest.DeleteTopicState(name=name) for name in names], timeout_ms=cluster.timeout_ms
    )
    results = cluster.call(request, versions=_DELETE_VERSIONS).responses
    return {
        each.name: RequestError(f"topic {each.name}", each.error_code, each.error_message)
        if each.error_code != ErrorCode.NONE
        else None
        for each in results
    }
