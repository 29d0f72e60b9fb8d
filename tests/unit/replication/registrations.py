"""Registrations of partitions and brokers, as tests of replication need them."""

from __future__ import annotations

from typing import Any

from pybroker.metadata.image import BrokerRegistration, ClusterImage, Endpoint, MetadataImage, PartitionRegistration

LISTENER = "PLAINTEXT"


def registration(
    replicas: tuple[int, ...] = (1, 2, 3), isr: tuple[int, ...] | None = None, leader: int = 1, **others: Any
) -> PartitionRegistration:
    """A partition; in sync are all replicas, unless told otherwise."""
    values: dict[str, Any] = {
        "directories": (bytes(16),) * len(replicas),
        "removing_replicas": (),
        "adding_replicas": (),
        "eligible_leader_replicas": (),
        "last_known_elr": (),
        "leader_recovery_state": 0,
        "leader_epoch": 0,
        "partition_epoch": 0,
    }
    return PartitionRegistration(
        replicas=replicas, isr=replicas if isr is None else isr, leader=leader, **(values | others)
    )


def broker(broker_id: int, *, epoch: int | None = None, port: int = 9092, **others: Any) -> BrokerRegistration:
    """A broker that serves; its epoch is 100 times its id, unless told otherwise."""
    values: dict[str, Any] = {"fenced": False, "in_controlled_shutdown": False}
    return BrokerRegistration(
        id=broker_id,
        epoch=broker_id * 100 if epoch is None else epoch,
        incarnation_id=bytes(16),
        endpoints=(Endpoint(LISTENER, f"host{broker_id}", port, 0),),
        features=(),
        rack=None,
        directories=(),
        cordoned_directories=None,
        **(values | others),
    )


def cluster(*brokers: BrokerRegistration) -> ClusterImage:
    """These brokers, or three."""
    return ClusterImage(brokers={each.id: each for each in brokers or map(broker, (1, 2, 3))})


def image(*brokers: BrokerRegistration, level: int = 21) -> MetadataImage:
    """An image with these brokers, or three, at a metadata.version."""
    return MetadataImage("cluster", feature_levels={"metadata.version": level}, cluster=cluster(*brokers))
