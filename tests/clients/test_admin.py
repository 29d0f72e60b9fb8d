"""Administration with the clients' own admin APIs: topics, settings and records, as a user writes it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from kafka.admin import KafkaAdminClient
from kafka.admin import NewPartitions as PythonNewPartitions
from kafka.admin import NewTopic as PythonNewTopic

from tests.harness.broker import BrokerProcess

TOPIC = "administered"


def _one(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(timeout=60)


def _soon(look: Callable[[], bool]) -> bool:
    """Whether it comes true: Apache Kafka answers before its broker follows the metadata."""
    for _ in range(1200):
        if look():
            return True
        time.sleep(0.05)
    return False


def test_librdkafka(running_broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": running_broker.bootstrap})
    _one(admin.create_topics([NewTopic(TOPIC, 2, 1, config={"retention.ms": "1000000"})]))
    with pytest.raises(Exception, match="TOPIC_ALREADY_EXISTS"):
        _one(admin.create_topics([NewTopic(TOPIC, 2, 1)]))
    _one(admin.create_partitions([NewPartitions(TOPIC, 3)]))
    assert _soon(lambda: len(admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions) == 3)
    longer = ConfigEntry("retention.ms", "2000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[longer])
    _one(admin.incremental_alter_configs([resource]))
    topic = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
    assert _soon(lambda: _one(admin.describe_configs([topic]))["retention.ms"].value == "2000000")
    producer = Producer({"bootstrap.servers": running_broker.bootstrap, "enable.idempotence": True})
    for number in range(10):
        producer.produce(TOPIC, str(number).encode(), partition=0)
    assert producer.flush(60) == 0
    assert _one(admin.delete_records([TopicPartition(TOPIC, 0, 4)])).low_watermark == 4
    assert _one(admin.list_offsets({TopicPartition(TOPIC, 0): OffsetSpec.earliest()})).offset == 4
    assert len(admin.describe_cluster().result(timeout=60).nodes) == 1
    _one(admin.delete_topics([TOPIC]))
    assert _soon(lambda: TOPIC not in admin.list_topics(timeout=60).topics)


def test_kafka_python(running_broker: BrokerProcess) -> None:
    name = f"{TOPIC}-2"
    admin = KafkaAdminClient(bootstrap_servers=running_broker.bootstrap)
    try:
        admin.create_topics([PythonNewTopic(name, 2, 1)])
        admin.create_partitions({name: PythonNewPartitions(3)})
        assert _soon(lambda: len(admin.describe_topics([name])[0]["partitions"]) == 3)
        admin.delete_topics([name])
        assert _soon(lambda: name not in admin.list_topics())
    finally:
        admin.close()
