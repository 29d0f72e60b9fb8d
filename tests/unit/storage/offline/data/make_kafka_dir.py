"""Makes `kafka-4.3.0/` beside this file: a small log dir as Apache Kafka 4.3.0 leaves it after clean stops.

    python tests/unit/storage/offline/data/make_kafka_dir.py

Every codec, several segments, index entries, aborted and committed transactions, a compacted topic that was cleaned, a
topic whose first records were deleted, committed group offsets, several leader epochs. It is in git so that tests need
no Java; run this again when Apache Kafka's files change.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.harness.kafka import KafkaBroker

HERE = Path(__file__).parent
#: Not the reference: tests want a log dir that an older version made.
VERSION = "4.3.0"
OVERRIDES = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.backoff.ms": "200",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "file.delete.delay.ms": "100",
    "log.segment.delete.delay.ms": "100",
}
SMALL = {"segment.ms": "1500", "index.interval.bytes": "400", "file.delete.delay.ms": "100"}
COMPACTED = {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
TOPICS = {"plain": SMALL, "transactions": SMALL, "compacted": COMPACTED, "trimmed": SMALL}


def produce(broker: KafkaBroker, topic: str, round_number: int, codec: str, count: int) -> None:
    """`count` records in batches of a few."""
    settings = {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "enable.idempotence": True}
    producer = Producer({**settings, "linger.ms": 0, "batch.num.messages": 7})
    for number in range(count):
        producer.produce(topic, f"{codec} {round_number} {number} {'v' * (number % 50)}".encode(), f"key-{number % 9}")
        if number % 5 == 0:
            producer.flush()
    producer.flush()


def transact(broker: KafkaBroker, round_number: int) -> None:
    """Two producers whose transactions overlap; some end with a commit, some with an abort."""
    producers = []
    for name in ("one", "two"):
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{name}"})
        producer.init_transactions(30)
        producers.append(producer)
    first, second = producers
    for turn in range(3):
        first.begin_transaction()
        first.produce("transactions", f"first {round_number} {turn}")
        first.flush()
        second.begin_transaction()
        second.produce("transactions", f"second {round_number} {turn} {'x' * 200}")
        second.flush()
        first.produce("transactions", f"first again {round_number} {turn}")
        first.flush()
        (first.abort_transaction if turn % 2 == 0 else first.commit_transaction)()
        (second.abort_transaction if turn == 1 else second.commit_transaction)()


def commit(consumer: Consumer, offset: int) -> None:
    """As soon as the broker has loaded the group's partition."""
    deadline = time.monotonic() + 60
    while True:
        try:
            consumer.commit(offsets=[TopicPartition("plain", 0, offset)], asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.COORDINATOR_LOAD_IN_PROGRESS or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def one_round(broker: KafkaBroker, round_number: int) -> None:
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        produce(broker, "plain", round_number * 5 + number, codec, 12)
    produce(broker, "compacted", round_number, "none" if round_number % 2 else "lz4", 20)
    produce(broker, "trimmed", round_number, "none", 15)
    transact(broker, round_number)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
    commit(consumer, round_number + 1)
    consumer.subscribe(["plain"])
    consumer.poll(5)
    consumer.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        log_dir = Path(temporary) / "data"
        ports: dict[str, int] = {}
        for start in range(2):
            broker = KafkaBroker(
                log_dir, overrides=OVERRIDES, cluster_id="pybroker-tests-0000000", version=VERSION, **ports
            )
            with broker:
                ports = {"controller_port": broker.controller_port}
                admin = AdminClient({"bootstrap.servers": broker.bootstrap})
                if start == 0:
                    topics = [NewTopic(name, 1, 1, config=config) for name, config in TOPICS.items()]
                    for future in admin.create_topics(topics).values():
                        future.result(30)
                for round_number in range(2):
                    one_round(broker, start * 2 + round_number)
                    time.sleep(2)
                for future in admin.delete_records([TopicPartition("trimmed", 0, 18 if start == 0 else 33)]).values():
                    future.result(30)
                time.sleep(4)
        target = HERE / f"kafka-{VERSION}"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(log_dir, target, ignore=shutil.ignore_patterns(".lock"))
        for path in target.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)


if __name__ == "__main__":
    main()
