"""Data that a log dir has to keep through upgrades, downgrades, backups and restores, as clients write and see it.

`python -m tests.harness.kept_data FILE.tar.gz` makes the sample log dir of the present format, for `tests/data`.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.harness.broker import BrokerProcess

TOPIC = "kept"
GROUP = "keepers"
OVERRIDES = {"offsets.retention.minutes": str(2**31 - 1), "offsets.topic.num.partitions": "1"}
"""Of every broker that has such data: it has to stay, however old."""

_PARTITION_COUNT = 2
_CONFIGS = {"retention.ms": "-1", "max.message.bytes": "654321"}
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_TIMEOUT_S = 60


@dataclass(frozen=True)
class KeptData:
    """What is in a broker: topic id, settings, records by partition, committed offsets by partition."""

    topic_id: str
    configs: dict[str, str]
    records: dict[int, list[bytes]]
    committed: dict[int, int]


def write(bootstrap: str) -> None:
    """Make the topic with settings of its own, records of every codec, and a group's offsets."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(TOPIC, num_partitions=_PARTITION_COUNT, replication_factor=1, config=_CONFIGS)
    admin.create_topics([topic])[TOPIC].result(_TIMEOUT_S)
    append(bootstrap, "first")
    member = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False})
    member.commit(
        offsets=[TopicPartition(TOPIC, index, 3 + index) for index in range(_PARTITION_COUNT)], asynchronous=False
    )
    member.close()


def append(bootstrap: str, what: str) -> None:
    """A batch of every codec for each partition."""
    for codec in _CODECS:
        settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True}
        producer = Producer(settings)
        for index in range(_PARTITION_COUNT):
            producer.produce(TOPIC, f"{what} {codec} {index} " + "x" * 100, partition=index)
        assert producer.flush(_TIMEOUT_S) == 0


def read(bootstrap: str) -> KeptData:
    """All of it, as a client sees it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_topics(TopicCollection([TOPIC]))[TOPIC].result(_TIMEOUT_S)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC)
    entries = admin.describe_configs([resource])[resource].result(_TIMEOUT_S)
    member = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False})
    partitions = [TopicPartition(TOPIC, index) for index in range(len(described.partitions))]
    committed = {each.partition: each.offset for each in member.committed(partitions, _TIMEOUT_S)}
    records = {each.partition: _records(member, each.partition) for each in partitions}
    member.close()
    configs = {name: entries[name].value for name in _CONFIGS}
    return KeptData(str(described.topic_id), configs, records, committed)


def _records(member: Consumer, partition: int) -> list[bytes]:
    low, high = member.get_watermark_offsets(TopicPartition(TOPIC, partition), _TIMEOUT_S)
    member.assign([TopicPartition(TOPIC, partition, low)])
    found: list[bytes] = []
    while len(found) < high - low:
        message = member.poll(_TIMEOUT_S)
        if message is None or message.error() is not None:
            raise AssertionError(
                f"{TOPIC}-{partition}: {len(found)} of {high - low} records: {message and message.error()}"
            )
        found.append(message.value() or b"")
    return found


def make_sample(archive: Path) -> None:
    """A log dir that was stopped in order, as a tar file."""
    with tempfile.TemporaryDirectory() as directory:
        log_dir = Path(directory) / "data"
        with BrokerProcess(log_dir, overrides=OVERRIDES) as broker:
            write(broker.bootstrap)
        with tarfile.open(archive, "w:gz") as file:
            file.add(log_dir, arcname=".")


if __name__ == "__main__":
    make_sample(Path(sys.argv[1]))
