"""The tree of a metadata log at rest: of a stopped broker's log dir, of the partition's directory, or of a snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pybroker.cli.metadata.metadata_tree import DEFAULT_NAME, Node, client_nodes, config_nodes, directory, leaf
from pybroker.client.quotas import MECHANISMS
from pybroker.metadata import features
from pybroker.metadata.image import (
    RESOURCE_BROKER,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from pybroker.metadata.offline import read_snapshot, replay
from pybroker.protocol.uuids import uuid_to_text
from pybroker.storage.errors import StorageError
from pybroker.storage.files.meta_properties import MetaProperties
from pybroker.storage.offline.layout import FileKind, LogDirFiles, file_kind, metadata_snapshot, open_target

_KINDS = {2: "topics", RESOURCE_BROKER: "brokers", 16: "client-metrics", 32: "groups"}


def read_image(path: Path) -> MetadataImage:
    """The state at the end of the log, or in the snapshot. MetadataError, StorageError or OSError says what is
    wrong."""
    target = open_target(path)
    if isinstance(target, Path):
        if file_kind(target) is not FileKind.METADATA_SNAPSHOT:
            raise StorageError(f"{path}: no snapshot of metadata: that ends with .checkpoint")
        return read_snapshot(metadata_snapshot(target))
    if isinstance(target, LogDirFiles):
        found = next((each for each in target.partitions if each.is_metadata_log), None)
        if found is None:
            raise StorageError(f"{path}: no __cluster_metadata-0 in it; metadata.log.dir may say another place")
        target = found
    if not target.is_metadata_log:
        raise StorageError(f"{path}: a partition of {target.topic}, not __cluster_metadata-0")
    return replay(target).image


def image_tree(image: MetadataImage, cluster_id: str | None) -> Node:
    """Its root."""
    return directory(
        {
            "brokers": directory(
                {str(each.id): leaf(_broker(each)) for _, each in sorted(image.cluster.brokers.items())}
            ),
            "cluster": leaf(_cluster(image, cluster_id)),
            "configs": _configs(image),
            "features": _features(image),
            "quorum": leaf(_quorum(image)),
            "topics": directory({name: _topic(topic) for name, topic in sorted(image.topics.by_name.items())}),
        }
    )


def _cluster(image: MetadataImage, cluster_id: str | None) -> dict[str, Any]:
    return {
        "cluster_id": cluster_id,
        "brokers": sorted(image.cluster.brokers),
        "controllers": sorted(image.cluster.controllers),
        "end_offset": image.provenance.end_offset,
        "epoch": image.provenance.epoch,
        "next_producer_id": image.next_producer_id,
    }


def _broker(broker: BrokerRegistration) -> dict[str, Any]:
    listeners = [{"name": each.name, "host": each.host, "port": each.port} for each in broker.endpoints]
    return {
        "id": broker.id,
        "epoch": broker.epoch,
        "listeners": listeners,
        "rack": broker.rack,
        "fenced": broker.fenced,
        "directories": [uuid_to_text(each) for each in broker.directories],
    }


def _features(image: MetadataImage) -> Node:
    levels = {**image.feature_levels, features.KRAFT_VERSION: image.quorum.kraft_version}
    return directory({name: leaf({"level": level}) for name, level in sorted(levels.items())})


def _configs(image: MetadataImage) -> Node:
    kinds: dict[str, dict[str, Node]] = {name: {} for name in sorted(_KINDS.values())}
    for (kind, name), settings in sorted(image.configs.items()):
        kinds.setdefault(_KINDS.get(kind, str(kind)), {})[name or DEFAULT_NAME] = config_nodes(settings)
    credentials: dict[str, dict[str, int]] = {}
    for (mechanism, user), credential in image.scram_credentials.items():
        credentials.setdefault(user, {})[MECHANISMS.get(mechanism, str(mechanism))] = credential.iterations
    nodes = {name: directory(resources) for name, resources in kinds.items()}
    return directory(dict(sorted({**nodes, **client_nodes(image.client_quotas, credentials)}.items())))


def _topic(topic: TopicImage) -> Node:
    content = {"name": topic.name, "id": uuid_to_text(topic.id), "partitions": len(topic.partitions)}
    return directory({str(index): leaf(_partition(each)) for index, each in sorted(topic.partitions.items())}, content)


def _partition(partition: PartitionRegistration) -> dict[str, Any]:
    return {
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "partition_epoch": partition.partition_epoch,
        "directories": [uuid_to_text(each) for each in partition.directories],
    }


def _quorum(image: MetadataImage) -> dict[str, Any]:
    voters = [
        {
            "id": voter.id,
            "directory": uuid_to_text(voter.directory_id),
            "listeners": [{"name": name, "host": host, "port": port} for name, host, port in voter.endpoints],
        }
        for voter in image.quorum.voters
    ]
    return {"leader": image.quorum.leader_id, "voters": voters}


def cluster_id_beside(path: Path) -> str | None:
    """The cluster id in meta.properties of the log dir around it; None without one."""
    for place in (path, *path.absolute().parents[:2]):
        properties = MetaProperties.read(place) if place.is_dir() else None
        if properties is not None:
            return properties.cluster_id
    return None
