"""A full disk: clients get Kafka's storage error, the broker goes on and can be killed and started, everything
acknowledged can be read, and writes are taken again once retention has freed space.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from pybroker.testing.broker import BrokerProcess

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
    path = tmp_path / "small"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


class Sender:
    """Sends random values and keeps those that were acknowledged, by offset."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
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
            producer.produce("t", os.urandom(VALUE_BYTES), on_delivery=delivered)
            if len(producer) > 500:
                producer.poll(0.05)
        assert producer.flush(20) == 0
        return codes

    def check(self) -> None:
        """Whatever was acknowledged, from the log start offset on, is there."""
        config = {"bootstrap.servers": self._bootstrap, "group.id": "check", "enable.auto.commit": False}
        consumer = Consumer({**config, "log_level": 0})
        start, end = consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=10)
        assert end > max(self.acknowledged)
        consumer.assign([TopicPartition("t", 0, start)])
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


def test_a_full_disk_costs_no_acknowledged_record_and_no_broker(small_disk: Path, tmp_path: Path) -> None:
    overrides = {**OVERRIDES, "log.dirs": str(small_disk / "data")}
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
