"""AssignReplicasToDirs (KIP-858): which log dirs of this broker its replicas lie in. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from pybroker.metadata.image import MetadataImage
from pybroker.metadata.registration import Placements
from pybroker.protocol import messages as m

#: As many as Apache Kafka puts into one request.
_MAX_REPLICAS = 2250
_DIRECTORIES_SINCE_METADATA_VERSION = 17


def misplaced(image: MetadataImage, node_id: int, placements: Placements) -> dict[tuple[bytes, int], bytes]:
    """Those of `placements` that the metadata says otherwise of, where it says anything."""
    found: dict[tuple[bytes, int], bytes] = {}
    if image.metadata_version < _DIRECTORIES_SINCE_METADATA_VERSION:
        return found
    for (topic_id, index), directory_id in placements.items():
        topic = image.topics.by_id.get(topic_id)
        partition = topic.partitions.get(index) if topic is not None else None
        if partition is not None and node_id in partition.replicas and partition.directory(node_id) != directory_id:
            found[topic_id, index] = directory_id
    return found


def assign_requests(
    placements: Placements, broker_id: int, broker_epoch: int
) -> Iterator[m.AssignReplicasToDirsRequest]:
    """Requests that tell `placements`, each as large as one may be."""
    kind = m.AssignReplicasToDirsRequest
    remaining = iter(placements.items())
    while part := list(islice(remaining, _MAX_REPLICAS)):
        directories: dict[bytes, dict[bytes, list[int]]] = {}
        for (topic_id, index), directory_id in part:
            directories.setdefault(directory_id, {}).setdefault(topic_id, []).append(index)
        yield kind(
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            directories=[
                kind.DirectoryData(
                    id=directory_id,
                    topics=[
                        kind.TopicData(
                            topic_id=topic_id,
                            partitions=[kind.PartitionData(partition_index=index) for index in indexes],
                        )
                        for topic_id, indexes in topics.items()
                    ],
                )
                for directory_id, topics in directories.items()
            ],
        )
