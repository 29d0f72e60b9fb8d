"""The settings that a cluster with eligible leader replicas (KIP-966) has in its metadata. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pybroker.metadata.image import RESOURCE_BROKER, MetadataImage
from pybroker.metadata.records import VersionedRecord
from pybroker.protocol import messages as m

MIN_INSYNC_REPLICAS = "min.insync.replicas"
ALL_BROKERS = ""


def min_insync_replicas_of_all(image: MetadataImage, number: int) -> Iterator[VersionedRecord]:
    """The records after which min.insync.replicas is a default of all brokers, `number` unless it is that already, and
    a setting of none. Apache Kafka's controller writes them when the feature is finalised."""
    for kind, name in image.configs:
        if kind == RESOURCE_BROKER and name != ALL_BROKERS and MIN_INSYNC_REPLICAS in image.config(kind, name):
            yield _record(name, None)
    if MIN_INSYNC_REPLICAS not in image.config(RESOURCE_BROKER, ALL_BROKERS):
        yield _record(ALL_BROKERS, str(number))


def _record(name: str, value: str | None) -> VersionedRecord:
    record = m.ConfigRecord(resource_type=RESOURCE_BROKER, resource_name=name, name=MIN_INSYNC_REPLICAS, value=value)
    return VersionedRecord(record, 0)
