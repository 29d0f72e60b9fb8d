"""What can happen to a node: it is killed, stopped, paused, or cut off from others; its disk gets slow, its clock is
stepped. Each fault can be ended again.

Cuts need a cluster in network namespaces. Clients reach every node at all times: a leader that others believe dead
still hears its producers, which is the harder case.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from random import Random

from pybroker.cluster.layout import NodeKind
from pybroker.cluster.local_cluster import LocalCluster
from tests.harness.cluster.machines import Machines

#: A correction that nobody would notice by looking at a watch, and a gross mistake. A broker that is more than an hour
#: behind refuses what producers send (message.timestamp.after.max.ms).
_STEPS_SECONDS = (-3000.0, -20.0, 20.0, 3000.0)
#: Apache Kafka's own nodes only fall behind. What they cannot reach while their clock is ahead they do not try to reach
#: again, once it is right, for as long as it was ahead: clients there reckon their pauses by the time of day.
_JVM_STEPS_SECONDS = (-3000.0, -20.0)


@dataclass(frozen=True, slots=True)
class Fault:
    """`begin` and `end` are given the machines, and the node that it happens to; `begin` what to draw from, too."""

    begin: Callable[[Machines, int, Random], None]
    end: Callable[[Machines, int], None]
    needs_namespaces: bool = False
    needs_disks: bool = False
    needs_clocks: bool = False


def machines_for(cluster: LocalCluster, faults: Collection[str]) -> Machines:
    """What these faults need of the machines of a cluster that is not yet up."""
    return Machines(
        cluster,
        with_disks=any(FAULTS[name].needs_disks for name in faults),
        with_clocks=any(FAULTS[name].needs_clocks for name in faults),
    )


def _others(cluster: LocalCluster, node_id: int) -> list[int]:
    return [node.node_id for node in cluster.layout.nodes if node.node_id != node_id]


def _controllers(cluster: LocalCluster, node_id: int) -> list[int]:
    return [node.node_id for node in cluster.layout.controllers if node.node_id != node_id]


def _brokers(cluster: LocalCluster, node_id: int) -> list[int]:
    return [node.node_id for node in cluster.layout.brokers if node.node_id != node_id]


def _of_process(
    begin: Callable[[LocalCluster, int], object], end: Callable[[LocalCluster, int], object] = LocalCluster.start
) -> Fault:
    return Fault(
        lambda machines, node_id, _random: _drop(begin(machines.cluster, node_id)),
        lambda machines, node_id: _drop(end(machines.cluster, node_id)),
    )


def _drop(_result: object) -> None:
    """What an operation returns is of no interest."""


def _cut(peers: Callable[[LocalCluster, int], list[int]], *, from_peers: bool = True, to_peers: bool = True) -> Fault:
    def begin(machines: Machines, node_id: int, _random: Random) -> None:
        cluster = machines.cluster
        if to_peers:
            cluster.cut([node_id], peers(cluster, node_id))
        if from_peers:
            cluster.cut(peers(cluster, node_id), [node_id])

    return Fault(begin, lambda machines, _node_id: machines.cluster.heal(), needs_namespaces=True)


def _step(machines: Machines, node_id: int, random: Random) -> None:
    is_ours = machines.cluster.layout.node(node_id).kind is NodeKind.BROKER
    machines.step_clock(node_id, random.choice(_STEPS_SECONDS if is_ours else _JVM_STEPS_SECONDS))


FAULTS: Mapping[str, Fault] = {
    "kill": _of_process(LocalCluster.kill),
    "stop": _of_process(LocalCluster.stop),
    "pause": _of_process(LocalCluster.pause, LocalCluster.resume),
    "cut": _cut(_others),
    "cut from controllers": _cut(_controllers),
    "cut from brokers": _cut(_brokers),
    "deaf": _cut(_others, to_peers=False),
    "mute": _cut(_others, from_peers=False),
    "slow disk": Fault(
        lambda machines, node_id, _random: machines.slow_disk(node_id), Machines.mend_disk, needs_disks=True
    ),
    "clock step": Fault(_step, lambda machines, node_id: machines.step_clock(node_id, 0), needs_clocks=True),
}
"""By name. A deaf node gets nothing of the others, a mute one is not heard by them. A clock steps again when it is set
right."""
