"""A full disk: clients get Kafka's storage error, the broker goes on and can be killed and started, everything
acknowledged can be read, and writes are taken again once retention has freed space.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.harness.broker import BrokerProcess
from tests.harness.small_disk import Sender, fill_up, mounted_disk

DISK = "32m"
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
