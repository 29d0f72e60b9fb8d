"""Snapshots: an image as records, and a snapshot file (`<end offset>-<epoch>.checkpoint`, KIP-630).

A file begins with a control batch of header, kraft.version and voters. Batches of metadata records follow, which make
the image from nothing, and a control batch with the footer. Offsets within it count from 0. Blocks on writing; any
thread, since an image is immutable. Fails with `OSError`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from pybroker.metadata import features, records
from pybroker.metadata.image import BrokerRegistration, Endpoint, MetadataImage, QuorumImage, TopicImage, Voter
from pybroker.metadata.log_files import SnapshotId
from pybroker.metadata.records import ControlRecord, VersionedRecord
from pybroker.protocol import messages as m
from pybroker.storage.files.atomic import fsync_directory

# Kafka's reader takes batches up to 8 MiB; a record of a broker or topic is below 1 KiB unless its names are very long.
_BATCH_RECORD_COUNT = 1000
_READ_ONLY = 0o400


def image_records(image: MetadataImage) -> Iterator[VersionedRecord]:
    """Records that rebuild `image` (all but its control records), in the order Kafka writes them."""
    level = image.metadata_version
    # metadata.version comes first: it says how everything after it is to be read.
    names = sorted(image.feature_levels, key=lambda name: (name != features.METADATA_VERSION, name))
    for name in names:
        yield VersionedRecord(m.FeatureLevelRecord(name=name, feature_level=image.feature_levels[name]), 0)
    for broker in image.cluster.brokers.values():
        yield _broker_record(broker, level)
    yield from _controller_records(image)
    for topic in image.topics.by_name.values():
        yield from _topic_records(topic, level)
    for (kind, resource_name), values in image.configs.items():
        for name, value in values.items():
            record = m.ConfigRecord(resource_type=kind, resource_name=resource_name, name=name, value=value)
            yield VersionedRecord(record, 0)
    if image.next_producer_id > 0:
        producer_ids = m.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
        yield VersionedRecord(producer_ids, 0)
    yield from _client_quota_records(image)
    yield from _scram_records(image)
    for retained, version in image.retained.values():
        yield VersionedRecord(retained, version)


def _broker_record(broker: BrokerRegistration, level: int) -> VersionedRecord:
    version = features.record_version("RegisterBrokerRecord", level)
    cordoned = broker.cordoned_directories
    record = m.RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            m.RegisterBrokerRecord.BrokerEndpoint(**_endpoint_fields(endpoint)) for endpoint in broker.endpoints
        ],
        features=[
            m.RegisterBrokerRecord.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in broker.features
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.directories) if version >= 3 else [],
        cordoned_log_dirs=list(cordoned) if cordoned is not None and version >= 4 else None,
    )
    return VersionedRecord(record, version)


def _controller_records(image: MetadataImage) -> Iterator[VersionedRecord]:
    for controller in image.cluster.controllers.values():
        record = m.RegisterControllerRecord(
            controller_id=controller.id,
            incarnation_id=controller.incarnation_id,
            zk_migration_ready=controller.zk_migration_ready,
            end_points=[
                m.RegisterControllerRecord.ControllerEndpoint(**_endpoint_fields(endpoint))
                for endpoint in controller.endpoints
            ],
            features=[
                m.RegisterControllerRecord.ControllerFeature(
                    name=name, min_supported_version=low, max_supported_version=high
                )
                for name, low, high in controller.features
            ],
        )
        yield VersionedRecord(record, 0)


def _topic_records(topic: TopicImage, level: int) -> Iterator[VersionedRecord]:
    yield VersionedRecord(m.TopicRecord(name=topic.name, topic_id=topic.id), 0)
    version = features.record_version("PartitionRecord", level)
    for index, partition in topic.partitions.items():
        elr, last_known = list(partition.eligible_leader_replicas), list(partition.last_known_elr)
        record = m.PartitionRecord(
            partition_id=index,
            topic_id=topic.id,
            replicas=list(partition.replicas),
            isr=list(partition.isr),
            removing_replicas=list(partition.removing_replicas),
            adding_replicas=list(partition.adding_replicas),
            leader=partition.leader,
            leader_recovery_state=partition.leader_recovery_state,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            directories=list(partition.directories) if version >= 1 else [],
            eligible_leader_replicas=elr if elr and version >= 2 else None,
            last_known_elr=last_known if last_known and version >= 2 else None,
        )
        yield VersionedRecord(record, version)


def _client_quota_records(image: MetadataImage) -> Iterator[VersionedRecord]:
    part = m.ClientQuotaRecord.EntityData
    for entity, values in image.client_quotas.items():
        for key, value in values.items():
            named = [part(entity_type=kind, entity_name=name) for kind, name in entity]
            yield VersionedRecord(m.ClientQuotaRecord(entity=named, key=key, value=value, remove=False), 0)


def _scram_records(image: MetadataImage) -> Iterator[VersionedRecord]:
    for (mechanism, name), credential in image.scram_credentials.items():
        record = m.UserScramCredentialRecord(
            name=name,
            mechanism=mechanism,
            salt=credential.salt,
            stored_key=credential.stored_key,
            server_key=credential.server_key,
            iterations=credential.iterations,
        )
        yield VersionedRecord(record, 0)


def _endpoint_fields(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "name": endpoint.name,
        "host": endpoint.host,
        "port": endpoint.port,
        "security_protocol": endpoint.security_protocol,
    }


def voters_record(voters: Iterable[Voter]) -> m.VotersRecord:
    """The VotersRecord that names `voters`."""
    return m.VotersRecord(
        voters=[
            m.VotersRecord.Voter(
                voter_id=voter.id,
                voter_directory_id=voter.directory_id,
                endpoints=[
                    m.VotersRecord.Endpoint(name=name, host=host, port=port) for name, host, port in voter.endpoints
                ],
                kraft_version_feature=m.VotersRecord.KRaftVersionFeature(
                    min_supported_version=voter.kraft_version_range[0],
                    max_supported_version=voter.kraft_version_range[1],
                ),
            )
            for voter in voters
        ]
    )


def quorum_records(quorum: QuorumImage) -> list[ControlRecord]:
    """KRaftVersion and Voters; nothing at kraft.version 0, which has neither."""
    if quorum.kraft_version == 0:
        return []
    return [
        ControlRecord(records.KRAFT_VERSION, m.KRaftVersionRecord(kraft_version=quorum.kraft_version)),
        ControlRecord(records.VOTERS, voters_record(quorum.voters)),
    ]


def write_snapshot(
    path: Path,
    epoch: int,
    now_ms: int,
    last_contained_ms: int,
    quorum: QuorumImage | None,
    content: Iterable[VersionedRecord],
    mode: int = _READ_ONLY,
) -> int:
    """Write a whole snapshot file durably; returns its size in bytes. `quorum` None leaves its records out."""
    temporary = path.with_name(path.name + ".part")
    temporary.unlink(missing_ok=True)
    header = m.SnapshotHeaderRecord(last_contained_log_timestamp=last_contained_ms)
    head = [ControlRecord(records.SNAPSHOT_HEADER, header)] + ([] if quorum is None else quorum_records(quorum))
    with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags | os.O_CLOEXEC, mode)) as file:
        file.write(records.encode_control_batch(0, epoch, now_ms, head))
        offset = len(head)
        remaining = iter(content)
        while batch := list(islice(remaining, _BATCH_RECORD_COUNT)):
            file.write(records.encode_batch(offset, epoch, now_ms, batch))
            offset += len(batch)
        footer = ControlRecord(records.SNAPSHOT_FOOTER, m.SnapshotFooterRecord())
        file.write(records.encode_control_batch(offset, epoch, now_ms, [footer]))
        file.flush()
        os.fsync(file.fileno())
        size_bytes = file.tell()
    os.replace(temporary, path)
    fsync_directory(path.parent)
    return size_bytes


def write_image(directory: Path, image: MetadataImage, now_ms: int) -> tuple[SnapshotId, int]:
    """Write the snapshot of `image` into the metadata log's directory: its id and its size in bytes."""
    provenance = image.provenance
    snapshot_id = SnapshotId(provenance.end_offset, provenance.epoch)
    path = directory / snapshot_id.file_name
    content = image_records(image)
    size = write_snapshot(path, provenance.epoch, now_ms, provenance.time_ms, image.quorum, content)
    return snapshot_id, size
