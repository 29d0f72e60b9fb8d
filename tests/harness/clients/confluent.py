"""confluent-kafka (librdkafka) as a client program; see `command`."""

from __future__ import annotations

import sys
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer

from tests.harness.clients import command


def produce(bootstrap: str, topic: str, codec: str, acks: str, idempotent: bool, records: Any) -> int:
    """Deliver every record; status 1 when one fails."""
    failures: list[str] = []

    def delivered(error: KafkaError | None, message: object) -> None:
        if error is not None:
            failures.append(str(error))

    config = {"bootstrap.servers": bootstrap, "compression.type": codec, "acks": acks, "linger.ms": command.LINGER_MS}
    producer = Producer({**config, "enable.idempotence": idempotent, "log_level": 3})
    for key, value in records:
        producer.produce(topic, value, key, on_delivery=delivered)
        producer.poll(0)
    undelivered = producer.flush(60)
    if failures or undelivered:
        print(f"{undelivered} records undelivered, failures: {failures[:3]}", file=sys.stderr)
    return 1 if failures or undelivered else 0


def consume(bootstrap: str, topic: str, group: str) -> None:
    """Offsets are stored once a record was written; librdkafka commits the stored ones on revocation and on close."""
    terminated = command.Termination()
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.offset.store": False,
        "heartbeat.interval.ms": command.HEARTBEAT_INTERVAL_MS,
        "session.timeout.ms": command.SESSION_TIMEOUT_MS,
        "topic.metadata.refresh.interval.ms": 1000,
        # On stderr, which a test reads when something went wrong.
        "debug": "cgrp,topic,fetch,consumer",
    }
    consumer = Consumer(config)
    consumer.subscribe([topic])
    while not terminated:
        message = consumer.poll(0.1)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            print(f"consumer error: {error}", file=sys.stderr)
            continue
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None and offset is not None and value is not None, "a record without a place or value"
        command.emit(partition, offset, value)
        consumer.store_offsets(message)
    consumer.close()


def main() -> int:
    """Run the command."""
    options = command.parse(__doc__)
    if options.command == "consume":
        consume(options.bootstrap, options.topic, options.group)
        return 0
    records = command.records(options.input)
    return produce(options.bootstrap, options.topic, options.codec, options.acks, options.idempotent, records)


if __name__ == "__main__":
    sys.exit(main())
