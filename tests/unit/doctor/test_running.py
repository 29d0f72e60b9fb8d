"""`pybroker doctor` on a running broker that much has happened to, and on what it leaves when it is killed."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from patients import Examine, faults

from pybroker.client.cluster import Cluster
from pybroker.client.topics import create
from tests.harness.broker import BrokerProcess
from tests.harness.process import free_port

TOPIC = "t"
FEW_FILES = ["sh", "-c", 'ulimit -n 1024 && exec "$@"', "sh"]
AHEAD_MS = 30 * 60_000
FAULTS = {
    *("log-dir-offline", "log-dir-no-directory", "offline-partitions"),
    *("advertised-unreachable", "records-of-the-future"),
}


class Ailing:
    """A broker that clients are sent away from, with few descriptors, a log dir that is lost, and a wrong producer."""

    def __init__(self, parent: Path) -> None:
        self.log_dirs = f"{parent / 'first'},{parent / 'second'}"
        self.elsewhere = free_port()
        overrides = {"log.dirs": self.log_dirs, "offsets.topic.num.partitions": "1"}
        with BrokerProcess(parent / "broker", overrides=overrides) as healthy:
            with Cluster([("127.0.0.1", healthy.port)]) as cluster:
                create(cluster, TOPIC, partitions=4)
            producer = Producer({"bootstrap.servers": healthy.bootstrap})
            later_ms = int(time.time() * 1000) + AHEAD_MS
            for partition in range(4):
                producer.produce(TOPIC, b"x", partition=partition, timestamp=later_ms)
            assert producer.flush(60) == 0
        (parent / "second").rename(parent / "away")
        (parent / "second").touch()
        overrides["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{self.elsewhere}"
        self.broker = BrokerProcess(parent / "broker", overrides=overrides, command_prefix=FEW_FILES)

    @property
    def settings(self) -> tuple[str, str]:
        """For the doctor."""
        return f"log.dirs={self.log_dirs}", f"listeners=PLAINTEXT://127.0.0.1:{self.broker.port}"


@pytest.fixture
def ailing(tmp_path: Path) -> Iterator[Ailing]:
    made = Ailing(tmp_path)
    yield made
    if made.broker.process.running:
        made.broker.kill()


def test_it_runs_is_frozen_and_killed(ailing: Ailing, examined: Examine) -> None:
    found = examined(*ailing.settings)
    assert faults(found) == FAULTS
    assert str(ailing.elsewhere) in found["advertised-unreachable"].what
    assert found["log-dir-offline"].subject.endswith("/second")
    assert f"{TOPIC}-" in found["offline-partitions"].what
    assert found["open-files"].subject == f"process {ailing.broker.pid}"
    assert found["open-files"].what.startswith("it may have 1,024 open files, and has ")
    ailing.broker.process.signal(signal.SIGSTOP)
    found = examined(*ailing.settings)
    assert "broker-frozen" in faults(found)
    assert f"kill -CONT {ailing.broker.pid}" in found["broker-frozen"].remedy
    ailing.broker.process.signal(signal.SIGCONT)
    ailing.broker.process.kill()
    assert {"unclean-stop", "records-of-the-future"} <= faults(examined(*ailing.settings))
