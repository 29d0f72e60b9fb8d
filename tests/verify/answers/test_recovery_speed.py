"""How long a broker takes to serve again after SIGKILL: at most a second per GiB written, on top of an empty start; at
most a fifth of what Apache Kafka takes; and with 5,000 partitions at most five seconds, after any stop.

`PYBROKER_RECOVERY_GIB` is the size beside Apache Kafka (default 10); twice that must fit on the disk, once into memory.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from bench.peers.adapters import kafka as kafka_adapter
from tests.harness.broker import BrokerProcess
from tests.harness.crash.engines import DIRECT, PACED
from tests.harness.kafka import KafkaBroker

REPOSITORY = Path(__file__).resolve().parents[3]
PBLOAD = REPOSITORY / "build" / "load" / "pbload"
GIB = 1 << 30
SECONDS_PER_GIB = 1.0
GIB_BESIDE_KAFKA = float(os.environ.get("PYBROKER_RECOVERY_GIB", "10"))
BATCH_BYTES = 16 << 10
PARTITIONS = 20
MANY_PARTITIONS = 5000


@pytest.fixture(scope="module")
def pbload() -> Path:
    subprocess.run(["make", "-C", str(REPOSITORY / "bench" / "load")], check=True, stdout=subprocess.DEVNULL)
    return PBLOAD


def create_topic(broker: BrokerProcess | KafkaBroker, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(60)


def produce(
    pbload: Path, broker: BrokerProcess | KafkaBroker, topic: str, partitions: int, batch_bytes: int, size_bytes: int
) -> None:
    command = [str(pbload), "produce", "--port", str(broker.port), "--topic", topic, "--partitions", str(partitions)]
    command += ["--batch-bytes", str(batch_bytes), "--bytes", str(size_bytes), "--connections", "2"]
    subprocess.run(command, check=True, capture_output=True)


def restart_seconds(broker: BrokerProcess | KafkaBroker) -> float:
    broker.kill()
    started = time.monotonic()
    broker.start()
    return time.monotonic() - started


@pytest.mark.parametrize("engine", [PACED, DIRECT])
def test_a_gib_is_recovered_in_a_second(pbload: Path, engine: str) -> None:
    with BrokerProcess(overrides={"pybroker.append.engine": engine}) as broker:
        empty = restart_seconds(broker)
        create_topic(broker, "large", 4)
        produce(pbload, broker, "large", 4, 256 << 10, 4 * GIB)
        seconds = restart_seconds(broker)
        print(f"{engine}, 4 GiB in 4 partitions: {seconds:.2f} s until ready, {empty:.2f} s with an empty dir")
        assert seconds - empty <= 4 * SECONDS_PER_GIB


def test_a_thousand_partitions_are_recovered_soon(pbload: Path) -> None:
    with BrokerProcess() as broker:
        empty = restart_seconds(broker)
        create_topic(broker, "many", 1000)
        produce(pbload, broker, "many", 1000, 64 << 10, GIB)
        seconds = restart_seconds(broker)
        again = restart_seconds(broker)
        print(
            f"1 GiB in 1000 partitions: {seconds:.2f} s until ready, {again:.2f} s the second time, {empty:.2f} s empty"
        )
        # Opening a partition writes a snapshot and some names: a millisecond each is allowed for that.
        assert seconds - empty <= SECONDS_PER_GIB + 1.0


def unflushed_restart_seconds(pbload: Path, broker: BrokerProcess | KafkaBroker) -> float:
    """The faster of two restarts over one unflushed segment for each of twenty partitions."""
    create_topic(broker, "large", PARTITIONS)
    # A little more: what is in rings is in no file yet.
    produce(pbload, broker, "large", PARTITIONS, BATCH_BYTES, int(1.01 * GIB_BESIDE_KAFKA * GIB))
    segments = list(broker.log_dir.glob("large-*/*.log"))
    assert len(segments) == PARTITIONS, "a segment that is rolled would be flushed"
    size_bytes = sum(segment.stat().st_size for segment in segments)
    assert size_bytes >= GIB_BESIDE_KAFKA * GIB
    return min(restart_seconds(broker) for _ in range(2))


def test_recovery_takes_a_fifth_of_apache_kafkas_time(pbload: Path) -> None:
    with KafkaBroker(heap_megabytes=1024, java_options=kafka_adapter.JAVA_OPTIONS) as kafka:
        theirs = unflushed_restart_seconds(pbload, kafka)
    with BrokerProcess(ready_timeout_seconds=120) as broker:
        ours = unflushed_restart_seconds(pbload, broker)
    print(f"{GIB_BESIDE_KAFKA:g} GiB in {PARTITIONS} partitions: {ours:.2f} s, Apache Kafka {theirs:.2f} s")
    assert ours <= theirs / 5


def stop_and_start_seconds(broker: BrokerProcess) -> float:
    broker.stop()
    started = time.monotonic()
    broker.start()
    return time.monotonic() - started


def test_five_thousand_partitions_start_in_five_seconds(pbload: Path) -> None:
    with BrokerProcess(ready_timeout_seconds=120) as broker:
        for index in range(10):
            create_topic(broker, f"many-{index}", MANY_PARTITIONS // 10)
        # Every fiftieth partition has something to recover.
        produce(pbload, broker, "many-0", MANY_PARTITIONS // 50, BATCH_BYTES, GIB // 16)
        killed = restart_seconds(broker)
        stopped = stop_and_start_seconds(broker)
        said = dict(broker.ready.fields)
        threads = len(list(Path(f"/proc/{broker.pid}/task").iterdir()))
        print(
            f"{said['partitions']} partitions: {killed:.2f} s after SIGKILL, {stopped:.2f} s after a stop, "
            f"{said['open_files']} files, {said['resident']} resident, {threads} threads"
        )
    assert said["partitions"] == str(MANY_PARTITIONS)
    assert killed <= 5.0 and stopped <= 5.0
    assert threads < 32
    # One file for each active segment; the rest is the broker's own.
    assert int(said["open_files"].split("/")[0]) <= MANY_PARTITIONS + 100
    assert int(said["resident"].removesuffix("MiB")) <= 256
