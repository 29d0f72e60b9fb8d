"""Whether a cluster serves, asked of its nodes as clients ask. Blocks; fails with nothing but what it returns."""

from __future__ import annotations

from dataclasses import dataclass

from pybroker.client.cluster import Cluster
from pybroker.client.errors import ClientError
from pybroker.cluster.layout import Layout, Node
from pybroker.protocol import messages as m

_TIMEOUT_SECONDS = 5.0
_METADATA_TOPIC = "__cluster_metadata"
_NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class QuorumState:
    """A controller's view of the quorum: its leader, its epoch, and the offset up to which it has agreed."""

    leader_id: int
    leader_epoch: int
    high_watermark: int


def brokers_seen_by(node: Node) -> set[int] | None:
    """The brokers that this one tells clients of, which are those that are unfenced; None when it does not answer."""
    try:
        with Cluster([(node.host, node.port)], timeout_seconds=_TIMEOUT_SECONDS) as cluster:
            return set(cluster.nodes())
    except ClientError:
        return None


def what_is_missing(layout: Layout) -> str | None:
    """Describes what is missing until every broker is unfenced, serves, and knows all others; None when nothing is."""
    expected = {node.node_id for node in layout.brokers}
    for node in layout.brokers:
        seen = brokers_seen_by(node)
        if seen is None:
            return f"broker {node.node_id} does not answer at {node.address}"
        if not expected <= seen:
            missing = ", ".join(str(each) for each in sorted(expected - seen))
            return f"broker {node.node_id} knows of no broker {missing} that is unfenced"
    return None


def quorum_state(layout: Layout) -> QuorumState | None:
    """As the first controller says that knows a leader; None when none does."""
    request = m.DescribeQuorumRequest(
        topics=[
            m.DescribeQuorumRequest.TopicData(
                topic_name=_METADATA_TOPIC,
                partitions=[m.DescribeQuorumRequest.PartitionData(partition_index=0)],
            )
        ]
    )
    for node in layout.controllers:
        try:
            with Cluster([(node.host, node.port)], timeout_seconds=_TIMEOUT_SECONDS) as cluster:
                answer = cluster.call(request)
        except ClientError:
            continue
        for partition in (partition for topic in answer.topics for partition in topic.partitions):
            if partition.error_code == 0 and partition.leader_id != _NO_LEADER:
                return QuorumState(partition.leader_id, partition.leader_epoch, partition.high_watermark)
    return None
