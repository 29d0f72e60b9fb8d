"""A full disk: clients get Kafka's storage error, the broker goes on and can be killed and started, everything
acknowledged can be read, and writes are taken again once retention has freed space.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from pybroker.testing.broker import BrokerProcess
from pybroker.testing.small_disk import mounted_disk

DISK = "32m"
VALUE_BYTES = 10_000
OVERRIDES = {
    "offsets.topic.num.partitions": "2",
    "log.initial.task.delay.ms": "50",
    "log.retention.check.interval.ms": "200",
    "log.flush.offset.checkpoint.interval.ms": "200",
    "log.flush.start.offset.checkpoint.interval.ms": "200",
}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("a small disk needs root, to mount")
    with mounted_disk(tmp_path / "small", DISK) as path:
        yield path


class Sender:
    """Sends random values and keeps those that were acknowledged, by offset."""

    def __init__(self, bootstrap: str, topic: str = "t") -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self.acknowledged: dict[int, bytes] = {}

    def send(self, count: int) -> Counter[int]:
        """How often each error code was the answer (0: acknowledged)."""
        codes: Counter[int] = Counter()

        def delivered(error: Any, message: Any) -> None:
            codes[0 if error is None else error.code()] += 1
            if error is None:
                self.acknowledged[message.offset()] = message.value()

        producer = Producer({"bootstrap.servers": self._bootstrap, "retries": 0, "log_level": 0, "linger.ms": 1})
        for _ in range(count):
            producer.produce(self._topic, os.urandom(VALUE_BYTES), on_delivery=delivered)
            if len(producer) > 500:
                producer.poll(0.05)
        assert producer.flush(20) == 0
        return codes

    def check(self) -> None:
        """Whatever was acknowledged, from the log start offset on, is there."""
        config = {"bootstrap.servers": self._bootstrap, "group.id": "check", "enable.auto.commit": False}
        consumer = Consumer({**config, "log_level": 0})
        start, end = consumer.get_watermark_offsets(TopicPartition(self._topic, 0), timeout=10)
        assert end > max(self.acknowledged)
        consumer.assign([TopicPartition(self._topic, 0, start)])
        found: dict[int, bytes] = {}
        deadline = time.monotonic() + 20
        while max(found, default=start - 1) < end - 1:
            assert time.monotonic() < deadline, f"read to {max(found, default=start)}, the end is {end}"
            messages = consumer.consume(100, timeout=0.2)
            found.update({message.offset(): message.value() for message in messages})
        consumer.close()
        wrong = [offset for offset, value in self.acknowledged.items() if offset >= start and found[offset] != value]
        assert not wrong


def fill_up(path: Path) -> None:
    """Take what is left to the last block."""
    try:
        with open(path / "ballast", "ab", buffering=0) as file:
            while True:
                file.write(bytes(4096))
    except OSError:
        return


def test_a_full_disk_costs_no_acknowledged_record_and_no_broker(
    small_disk: Path, tmp_path: Path, engine: dict[str, str]
) -> None:
    overrides = {**OVERRIDES, **engine, "log.dirs": str(small_disk / "data")}
    with BrokerProcess(tmp_path / "data", overrides=overrides) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        config = {"segment.bytes": "1048576", "file.delete.delay.ms": "100"}
        admin.create_topics([NewTopic("t", 1, 1, config=config)])["t"].result(10)
        sender = Sender(broker.bootstrap)
        assert set(sender.send(1)) == {0}
        # It also makes the offsets topic, for which there is no room later.
        sender.check()
        codes = sender.send(4000)
        assert set(codes) == {0, KafkaError.KAFKA_STORAGE_ERROR}, codes
        fill_up(small_disk)
        assert os.statvfs(small_disk).f_bavail == 0
        assert set(sender.send(20)) == {KafkaError.KAFKA_STORAGE_ERROR}
        # Checkpoints, upkeep and the metadata log's idle records have their turn meanwhile.
        time.sleep(2)
        sender.check()

        broker.kill()
        broker.start()
        sender.check()

        entry = ConfigEntry("retention.bytes", "4000000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(10)
        deadline = time.monotonic() + 20
        while os.statvfs(small_disk).f_bavail * 4096 < 10 << 20:
            assert time.monotonic() < deadline, "retention freed nothing"
            time.sleep(0.1)
        time.sleep(1.1)
        assert set(sender.send(20)) == {0}
        sender.check()


def until_written(sender: Sender) -> None:
    """Writes resume by themselves."""
    deadline = time.monotonic() + 30
    while set(sender.send(1)) != {0}:
        assert time.monotonic() < deadline, "no write is taken though there is room"
        time.sleep(0.2)


def fill_log(sender: Sender, small_disk: Path) -> None:
    for _ in range(20):
        if 0 not in sender.send(1000):
            break
    fill_up(small_disk)
    assert set(sender.send(20)) == {KafkaError.KAFKA_STORAGE_ERROR}


def test_what_people_delete_makes_room_on_a_full_disk(small_disk: Path, tmp_path: Path, engine: dict[str, str]) -> None:
    overrides = {**OVERRIDES, **engine, "log.dirs": str(small_disk / "data")}
    config = {"segment.bytes": "1048576", "file.delete.delay.ms": "100"}
    with BrokerProcess(tmp_path / "data", overrides=overrides) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for name in ("t", "victim"):
            admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(10)
        victim = Sender(broker.bootstrap, "victim")
        assert set(victim.send(500)) == {0}
        sender = Sender(broker.bootstrap)
        assert set(sender.send(1)) == {0}
        sender.check()

        fill_log(sender, small_disk)
        middle = sorted(sender.acknowledged)[len(sender.acknowledged) // 2]
        partition = TopicPartition("t", 0, middle)
        assert admin.delete_records([partition])[partition].result(10).low_watermark == middle
        until_written(sender)
        sender.check()

        fill_log(sender, small_disk)
        # A topic that is made now has no place for its log, until there is one.
        admin.create_topics([NewTopic("late", 1, 1, config=config)])["late"].result(10)
        late = Sender(broker.bootstrap, "late")
        assert set(late.send(1)) == {KafkaError.KAFKA_STORAGE_ERROR}
        admin.delete_topics(["victim"])["victim"].result(10)
        until_written(sender)
        until_written(late)
        sender.check()
        late.check()
