"""Shared: small images and logs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pybroker.metadata.delta import MetadataDelta, empty_image
from pybroker.metadata.image import MetadataImage, Provenance
from pybroker.protocol import messages as m

DIRECTORY_ID = b"d" * 16
TOPIC_ID = b"t" * 16


@pytest.fixture
def kafka_dir() -> Path:
    """A log dir that Apache Kafka 4.3.0 wrote: snapshot at 118, log up to 285, clean stop."""
    return Path(__file__).parent / "data" / "kafka-4.3.0"


@pytest.fixture
def replay() -> Callable[..., MetadataImage]:
    """replay(image, *records) -> image: records in their highest version."""

    def apply(image: MetadataImage, *records: Any) -> MetadataImage:
        delta = MetadataDelta(image)
        for record in records:
            delta.replay(record, record.MAX_VERSION)
        return delta.apply(Provenance(image.provenance.end_offset + len(records), 1, 1000))

    return apply


@pytest.fixture
def image(replay: Callable[..., MetadataImage]) -> MetadataImage:
    """One broker (id 1, epoch 5) and the topic `alpha` with two partitions led by it."""
    endpoint = m.RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)
    partitions = [
        m.PartitionRecord(
            partition_id=index,
            topic_id=TOPIC_ID,
            replicas=[1],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[DIRECTORY_ID],
        )
        for index in range(2)
    ]
    return replay(
        empty_image("cluster"),
        m.FeatureLevelRecord(name="metadata.version", feature_level=30),
        m.RegisterBrokerRecord(
            broker_id=1, broker_epoch=5, end_points=[endpoint], rack=None, fenced=False, log_dirs=[DIRECTORY_ID]
        ),
        m.TopicRecord(name="alpha", topic_id=TOPIC_ID),
        *partitions,
        m.ConfigRecord(resource_type=2, resource_name="alpha", name="retention.ms", value="5"),
    )
