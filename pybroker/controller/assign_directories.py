"""Which log dirs this broker's replicas lie in (KIP-858): what AssignReplicasToDirs does in a cluster. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from pybroker.controller.state import ControllerResult, ControllerState
from pybroker.metadata import features
from pybroker.metadata.image import UNASSIGNED_DIRECTORY
from pybroker.metadata.records import VersionedRecord
from pybroker.protocol import messages as m

_DIRECTORIES_SINCE_VERSION = 1


def assign_directories(
    state: ControllerState, directories: Mapping[tuple[bytes, int], bytes]
) -> ControllerResult[None]:
    """Note the directory ids of replicas on this broker, by topic id and partition, where they are other than noted."""
    version = features.record_version("PartitionChangeRecord", state.image.metadata_version)
    records = []
    for (topic_id, index), directory_id in directories.items():
        topic = state.image.topics.by_id.get(topic_id)
        partition = topic.partitions.get(index) if topic is not None else None
        if partition is None or state.node_id not in partition.replicas or version < _DIRECTORIES_SINCE_VERSION:
            continue
        noted = list(partition.directories) or [UNASSIGNED_DIRECTORY] * len(partition.replicas)
        place = partition.replicas.index(state.node_id)
        if noted[place] != directory_id:
            noted[place] = directory_id
            change = m.PartitionChangeRecord(topic_id=topic_id, partition_id=index, directories=noted)
            records.append(VersionedRecord(change, version))
    return ControllerResult(None, records)
