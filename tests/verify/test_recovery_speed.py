"""How long a broker takes to serve again after SIGKILL: at most a second per GiB written, on top of an empty start."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from pybroker.testing.broker import BrokerProcess

REPOSITORY = Path(__file__).resolve().parents[2]
PBLOAD = REPOSITORY / "build" / "load" / "pbload"
GIB = 1 << 30
SECONDS_PER_GIB = 1.0


@pytest.fixture(scope="module")
def pbload() -> Path:
    subprocess.run(["make", "-C", str(REPOSITORY / "bench" / "load")], check=True, stdout=subprocess.DEVNULL)
    return PBLOAD


def create_topic(broker: BrokerProcess, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(60)


def produce(
    pbload: Path, broker: BrokerProcess, topic: str, partitions: int, batch_bytes: int, size_bytes: int
) -> None:
    command = [str(pbload), "produce", "--port", str(broker.port), "--topic", topic, "--partitions", str(partitions)]
    command += ["--batch-bytes", str(batch_bytes), "--bytes", str(size_bytes), "--connections", "2"]
    subprocess.run(command, check=True, capture_output=True)


def restart_seconds(broker: BrokerProcess) -> float:
    broker.kill()
    started = time.monotonic()
    broker.start()
    return time.monotonic() - started


def test_a_gib_is_recovered_in_a_second(pbload: Path) -> None:
    with BrokerProcess() as broker:
        empty = restart_seconds(broker)
        create_topic(broker, "large", 4)
        produce(pbload, broker, "large", 4, 256 << 10, 4 * GIB)
        seconds = restart_seconds(broker)
        print(f"4 GiB in 4 partitions: {seconds:.2f} s until ready, {empty:.2f} s with an empty dir")
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
