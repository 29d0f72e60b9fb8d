"""What can happen to a node: it is killed, stopped, paused, or cut off from others. Each fault can be ended again.

Cuts need a cluster in network namespaces. Clients reach every node at all times: a leader that others believe dead
still hears its producers, which is the harder case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pybroker.cluster.local_cluster import LocalCluster


@dataclass(frozen=True, slots=True)
class Fault:
    """`begin` and `end` are given the cluster and the node that it happens to."""

    begin: Callable[[LocalCluster, int], None]
    end: Callable[[LocalCluster, int], None]
    needs_namespaces: bool = False


def _others(cluster: LocalCluster, node_id: int) -> list[int]:
    return [node.node_id for node in cluster.layout.nodes if node.node_id != node_id]


def _controllers(cluster: LocalCluster, node_id: int) -> list[int]:
    return [node.node_id for node in cluster.layout.controllers if node.node_id != node_id]


def _brokers(cluster: LocalCluster, node_id: int) -> list[int]:
    return [node.node_id for node in cluster.layout.brokers if node.node_id != node_id]


def _stop(cluster: LocalCluster, node_id: int) -> None:
    cluster.stop(node_id)


def _cut_both_ways(peers: Callable[[LocalCluster, int], list[int]]) -> Callable[[LocalCluster, int], None]:
    def begin(cluster: LocalCluster, node_id: int) -> None:
        cluster.cut([node_id], peers(cluster, node_id))
        cluster.cut(peers(cluster, node_id), [node_id])

    return begin


def _heal(cluster: LocalCluster, _node_id: int) -> None:
    cluster.heal()


FAULTS: Mapping[str, Fault] = {
    "kill": Fault(LocalCluster.kill, LocalCluster.start),
    "stop": Fault(_stop, LocalCluster.start),
    "pause": Fault(LocalCluster.pause, LocalCluster.resume),
    "cut": Fault(_cut_both_ways(_others), _heal, True),
    "cut from controllers": Fault(_cut_both_ways(_controllers), _heal, True),
    "cut from brokers": Fault(_cut_both_ways(_brokers), _heal, True),
    "deaf": Fault(lambda cluster, node_id: cluster.cut(_others(cluster, node_id), [node_id]), _heal, True),
    "mute": Fault(lambda cluster, node_id: cluster.cut([node_id], _others(cluster, node_id)), _heal, True),
}
"""By name. A deaf node gets nothing of the others, a mute one is not heard by them."""
