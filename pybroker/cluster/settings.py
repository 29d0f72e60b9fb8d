"""The properties of each node, and the feature levels the cluster is formatted with. Pure.

Small, because all nodes share one machine: few threads, a few partitions of internal topics, little memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pybroker.cluster.layout import Layout, Node, NodeKind
from pybroker.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION, MAX_METADATA_RELEASE
from pybroker.protocol.kafka_version import KAFKA_VERSION


@dataclass(frozen=True, slots=True)
class Release:
    """The levels that controllers of one version format a cluster with: Apache Kafka's name of the metadata version,
    and the levels of its other features."""

    metadata_version: str
    feature_levels: Mapping[str, int]


#: By the version of the controllers. Brokers of pybroker keep classic groups, and write no records of the protocols
#: switched off here (KIP-848, KIP-932, KIP-1071, KIP-890). Eligible leader replicas are KIP-966. Kafka 3.9 finalises no
#: feature but metadata.version.
RELEASES: Mapping[str, Release] = {
    KAFKA_VERSION: Release(
        MAX_METADATA_RELEASE,
        {
            ELIGIBLE_LEADER_REPLICAS_VERSION: 1,
            "group.version": 0,
            "share.version": 0,
            "streams.version": 0,
            "transaction.version": 0,
        },
    ),
    "3.9.1": Release("3.9-IV0", {}),
}
CONTROLLER_LISTENER = "CONTROLLER"

#: The partitions of `__transaction_state`, to which transactional ids are hashed.
TRANSACTION_PARTITIONS = 4
_OFFSETS_PARTITIONS = 4
_MOST_REPLICAS = 3
# The cleaner's buffer comes out of a heap of 256 MiB.
_JVM = {
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": "4194304",
}
#: Consumers that tell their client.rack read from a replica there (KIP-392).
_RACK_AWARE = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
_PYBROKER = {
    "pybroker.metrics.listener": "127.0.0.1:0",
}


def node_properties(layout: Layout, node: Node, log_dir: Path) -> dict[str, str]:
    """`server.properties` of that node."""
    role, listener = ("broker", "PLAINTEXT") if node.is_broker else ("controller", CONTROLLER_LISTENER)
    return {
        "process.roles": role,
        "node.id": str(node.node_id),
        "listeners": f"{listener}://{node.address}",
        "advertised.listeners": f"{listener}://{node.address}",
        "controller.listener.names": CONTROLLER_LISTENER,
        "controller.quorum.bootstrap.servers": layout.controller_bootstrap,
        "log.dirs": str(log_dir),
        **_replication(len(layout.brokers)),
        "group.initial.rebalance.delay.ms": "0",
        **(_PYBROKER if node.kind is NodeKind.BROKER else _JVM),
        **({} if node.rack is None else {"broker.rack": node.rack, **_RACK_AWARE}),
        **layout.overrides,
    }


def _replication(broker_count: int) -> dict[str, str]:
    """Three replicas of which two are in sync, or as many as there are brokers for."""
    replicas = str(min(_MOST_REPLICAS, broker_count))
    in_sync = str(2 if broker_count >= _MOST_REPLICAS else 1)
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": str(_OFFSETS_PARTITIONS),
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": str(TRANSACTION_PARTITIONS),
    }
