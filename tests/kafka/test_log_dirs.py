"""Log dirs across brokers: Kafka's tools read ours, a real Kafka opens what we stopped, and we open what it stopped.

`PYBROKER_TEST_BROKER=kafka` puts Apache Kafka on both sides, which proves the checks themselves.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.broker import BrokerProcess
from tests.harness.clients.driver import CLIENTS, Variant
from tests.harness.clients.scenario import checksum
from tests.harness.kafka import KafkaBroker, fetch
from tests.harness.log_dirs import findings, record_count, segment_findings
from tests.harness.process import free_port

TOPIC = "kept"
GROUP = "kept-group"
RECORD_COUNT = 2000
COMMITTED = 1234
# Small segments and index intervals, so that a few records make several of each file.
TOPIC_CONFIG = {"segment.bytes": "1048576", "index.interval.bytes": "512"}
OVERRIDES = {"offsets.topic.num.partitions": "4", "group.initial.rebalance.delay.ms": "0"}
AnyBroker = BrokerProcess | KafkaBroker
# A new dir records the controller's endpoint, and Apache Kafka must be given the same to open the dir.
CONTROLLER_PORT = free_port()
OUR_OVERRIDES = {**OVERRIDES, "controller.quorum.voters": f"1@127.0.0.1:{CONTROLLER_PORT}"}
# Starts a broker over a log dir; the port of the controller is the one the dir's voter set names.
Opener = Callable[[Path], AnyBroker]


@pytest.fixture(scope="module", autouse=True)
def jars() -> None:
    """Fetched outside any test's time limit."""
    fetch()


def _kafka_opener(controller_port: int) -> Opener:
    return lambda log_dir: KafkaBroker(log_dir, controller_port=controller_port, overrides=OVERRIDES)


def _our_opener() -> Opener:
    if os.environ.get("PYBROKER_TEST_BROKER") == "kafka":
        return _kafka_opener(CONTROLLER_PORT)
    return lambda log_dir: BrokerProcess(log_dir, overrides=OUR_OVERRIDES)


def _values() -> list[bytes]:
    return [f"value {number} {'x' * (number % 900)}".encode() for number in range(RECORD_COUNT)]


def _write(broker: AnyBroker, work_dir: Path) -> None:
    """Records in several codecs, with and without a producer id, and a committed group offset."""
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 3})
    for future in admin.create_topics([NewTopic(TOPIC, 1, 1, config=TOPIC_CONFIG)]).values():
        future.result(timeout=60)
    values = _values()
    variants = [Variant("none", "all"), Variant("lz4", "all", idempotent=True), Variant("zstd", "all")]
    share = -(-len(values) // len(variants))
    for index, variant in enumerate(variants):
        lines = work_dir / f"{variant}.lines"
        part = values[index * share : (index + 1) * share]
        lines.write_bytes(b"".join(b"key:%s\n" % value for value in part))
        command = CLIENTS["confluent-kafka"].produce_command(broker.bootstrap, TOPIC, variant, lines)
        subprocess.run(command, check=True, timeout=60)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP, "log_level": 3})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, COMMITTED)], asynchronous=False)
    consumer.close()


def _verify(broker: AnyBroker, appended: int) -> None:
    """The same records from the start, in order, the group's offset, and the log takes more."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    kcat = ["kcat", "-C", "-q", "-e", "-b", broker.bootstrap, "-t", TOPIC, "-o", "beginning", "-X", "check.crcs=true"]
    read = subprocess.run(kcat, capture_output=True, check=True, timeout=60).stdout.splitlines()
    expected = _values() + [b"appended"] * appended
    assert checksum(read) == checksum(expected), f"{len(read)} of {len(expected)} records, or other ones"
    assert read == expected, "the records are there, but in another order"
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP, "log_level": 3})
    (committed,) = consumer.committed([TopicPartition(TOPIC, 0)], timeout=60)
    consumer.close()
    assert committed.offset == COMMITTED
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 3})
    producer.produce(TOPIC, b"appended")
    assert producer.flush(30) == 0


def _flip_a_bit(path: Path) -> None:
    with open(path, "r+b") as file:
        file.seek(200)
        byte = file.read(1)
        file.seek(200)
        file.write(bytes([byte[0] ^ 1]))


def test_kafkas_tools_read_our_files(tmp_path: Path) -> None:
    """DumpLogSegments finds nothing wrong in any file of a cleanly stopped dir, and every record; but one bit more."""
    log_dir = tmp_path / "data"
    with _our_opener()(log_dir) as broker:
        _write(broker, tmp_path)
    segments = sorted((log_dir / f"{TOPIC}-0").glob("*.log"))
    assert sum(map(record_count, segments)) == RECORD_COUNT
    assert findings(log_dir) == []
    _flip_a_bit(segments[0])
    assert segment_findings(segments[:1]) != [], "the check cannot fail"


def test_kafka_opens_our_dir_and_we_open_it_again(tmp_path: Path) -> None:
    """Ours, then Apache Kafka's, then ours: topics, records and group offsets stay."""
    log_dir = tmp_path / "data"
    with _our_opener()(log_dir) as broker:
        _write(broker, tmp_path)
    with _kafka_opener(CONTROLLER_PORT)(log_dir) as kafka:
        _verify(kafka, appended=0)
    with _our_opener()(log_dir) as broker:
        _verify(broker, appended=1)


def test_we_open_kafkas_dir(tmp_path: Path) -> None:
    """A dir that Apache Kafka formatted, filled and stopped."""
    log_dir = tmp_path / "data"
    with _kafka_opener(CONTROLLER_PORT)(log_dir) as kafka:
        _write(kafka, tmp_path)
    with _our_opener()(log_dir) as broker:
        _verify(broker, appended=0)
    assert findings(log_dir) == []
