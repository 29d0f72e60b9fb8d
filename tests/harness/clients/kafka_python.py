"""kafka-python as a client program; see `command`."""

from __future__ import annotations

import sys
from typing import Any

from kafka import KafkaConsumer, KafkaProducer

from tests.harness.clients import command

# kafka-python 3.0 takes no part in its group any more, for good, when a poll's time is over just as the answer to its
# SyncGroup has come: so that is longer than a rebalance takes.
_POLL_TIMEOUT_MS = 1000


def produce(bootstrap: str, topic: str, codec: str, acks: str, idempotent: bool, records: Any) -> None:
    """Deliver every record; raises when one fails."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        acks=acks if acks == "all" else int(acks),
        enable_idempotence=idempotent,
        linger_ms=command.LINGER_MS,
    )
    futures = [producer.send(topic, key=key, value=value) for key, value in records]
    producer.flush(60)
    for future in futures:
        future.get(60)
    producer.close()


def consume(bootstrap: str, topic: str, group: str) -> None:
    """Rebalances happen inside poll, so what one poll gave is written and committed before the next can revoke it."""
    terminated = command.Termination()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=command.HEARTBEAT_INTERVAL_MS,
        session_timeout_ms=command.SESSION_TIMEOUT_MS,
        metadata_max_age_ms=1000,
    )
    while not terminated:
        polled = consumer.poll(timeout_ms=_POLL_TIMEOUT_MS)
        for batch in polled.values():
            for record in batch:
                command.emit(record.partition, record.offset, record.value)
        if polled:
            consumer.commit()
    consumer.close()


def main() -> int:
    """Run the command."""
    options = command.parse(__doc__)
    if options.command == "consume":
        consume(options.bootstrap, options.topic, options.group)
    else:
        records = command.records(options.input)
        produce(options.bootstrap, options.topic, options.codec, options.acks, options.idempotent, records)
    return 0


if __name__ == "__main__":
    sys.exit(main())
