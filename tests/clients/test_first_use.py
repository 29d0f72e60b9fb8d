"""Topics and groups that nobody made: each client produces to a new topic, and reads it as a new group."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from tests.harness.broker import BrokerProcess
from tests.harness.kafka import KafkaBroker

TIMEOUT_S = 60
VALUES = [b"%d" % number for number in range(20)]


def with_librdkafka(bootstrap: str, topic: str, **settings: object) -> list[bytes]:
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for value in VALUES:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == [None] * len(VALUES)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < len(VALUES):
        message = consumer.poll(TIMEOUT_S)
        assert message is not None and message.error() is None
        found.append(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def with_kafka_python(bootstrap: str, topic: str, **settings: object) -> list[bytes]:
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, **settings)
    sent = [producer.send(topic, value) for value in VALUES]
    for each in sent:
        each.get(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        consumer_timeout_ms=TIMEOUT_S * 1000,
    )
    found = [next(consumer).value for _ in VALUES]
    consumer.close()
    return found


def with_aiokafka(bootstrap: str, topic: str, **settings: object) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def run() -> list[bytes]:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **settings)
        await producer.start()
        for value in VALUES:
            await producer.send_and_wait(topic, value)
        await producer.stop()
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest")
        await consumer.start()
        async with asyncio.timeout(TIMEOUT_S):
            found = [(await consumer.getone()).value for _ in VALUES]
        await consumer.stop()
        return found

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("client", "settings"),
    [
        pytest.param(with_librdkafka, {"acks": "all", "enable.idempotence": True}, id="librdkafka-idempotent"),
        pytest.param(with_librdkafka, {"acks": "1", "retries": 0}, id="librdkafka-without-retries"),
        pytest.param(with_kafka_python, {"acks": "all", "enable_idempotence": True}, id="kafka-python-idempotent"),
        pytest.param(
            with_kafka_python,
            {"acks": 1, "retries": 0, "enable_idempotence": False},
            id="kafka-python-without-retries",
        ),
        pytest.param(with_aiokafka, {"acks": "all", "enable_idempotence": True}, id="aiokafka-idempotent"),
        pytest.param(with_aiokafka, {"acks": 1}, id="aiokafka"),
    ],
)
def test_a_new_topic_and_a_new_group(
    client: Any,
    settings: dict[str, object],
    running_broker: BrokerProcess | KafkaBroker,
    request: pytest.FixtureRequest,
) -> None:
    topic = f"first-{request.node.callspec.id}"
    assert client(running_broker.bootstrap, topic, **settings) == VALUES
