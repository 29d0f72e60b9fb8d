"""aiokafka as a client program; see `command`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener

from tests.harness.clients import command


async def produce(bootstrap: str, topic: str, codec: str, acks: str, idempotent: bool, records: Any) -> None:
    """Deliver every record; raises when one fails."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        acks=acks if acks == "all" else int(acks),
        enable_idempotence=idempotent,
        linger_ms=command.LINGER_MS,
    )
    await producer.start()
    try:
        pending = [await producer.send(topic, key=key, value=value) for key, value in records]
        await asyncio.gather(*pending)
    finally:
        await producer.stop()


class _Barrier(ConsumerRebalanceListener):  # type: ignore[misc]  # the client has no types
    """Holds a rebalance back until fetched records are written and committed: aiokafka rebalances in a task.

    getmany itself waits for the end of a rebalance, so it is called without the lock; it does not yield between taking
    records and returning them, so no revocation can slip in before the lock is held.
    """

    def __init__(self) -> None:
        self.lock = asyncio.Lock()

    async def on_partitions_revoked(self, revoked: object) -> None:
        async with self.lock:
            return

    async def on_partitions_assigned(self, assigned: object) -> None:
        return


async def consume(bootstrap: str, topic: str, group: str) -> None:
    """Write and commit round by round until a signal comes."""
    terminated = command.Termination()
    barrier = _Barrier()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=command.HEARTBEAT_INTERVAL_MS,
        session_timeout_ms=command.SESSION_TIMEOUT_MS,
        metadata_max_age_ms=1000,
    )
    consumer.subscribe([topic], listener=barrier)
    await consumer.start()
    try:
        while not terminated:
            fetched = await consumer.getmany(timeout_ms=100)
            if not fetched:
                continue
            async with barrier.lock:
                for batch in fetched.values():
                    for record in batch:
                        command.emit(record.partition, record.offset, record.value)
                await consumer.commit()
    finally:
        await consumer.stop()


def main() -> int:
    """Run the command."""
    options = command.parse(__doc__)
    if options.command == "consume":
        asyncio.run(consume(options.bootstrap, options.topic, options.group))
    else:
        records = command.records(options.input)
        asyncio.run(produce(options.bootstrap, options.topic, options.codec, options.acks, options.idempotent, records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
