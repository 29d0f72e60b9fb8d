"""Directories of every age come here and go back: KRaft's of Kafka 3.3 to 4.4 through `serve`, and those of brokers
with ZooKeeper, of 2.8 to 3.9, through `log` and `cluster adopt`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pybroker.cluster.jars import JAVA_OPTIONS, java_command
from pybroker.protocol.uuids import random_uuid, uuid_to_text
from pybroker.storage.files.meta_properties import FILE_NAME, MetaProperties
from tests.harness.broker import BrokerProcess
from tests.harness.kafka import KafkaBroker, run_tool
from tests.harness.process import ChildProcess, free_port

VERSIONS = ["3.3.2", "3.6.1", "3.8.1", "3.9.1", "4.0.0", "4.3.0", "4.4.0"]
ZOOKEEPER_VERSIONS = ["2.8.2", "3.3.2", "3.9.1"]
TOPIC = "alpha"
COUNT = 100


@dataclass
class Travelling:
    """A log dir of node 1 that brokers take turns to open, and what they have written to it."""

    log_dir: Path
    version: str
    controller_port: int = field(default_factory=free_port)
    written: list[bytes] = field(default_factory=list)

    @property
    def voters(self) -> dict[str, str]:
        """Static, which every version knows."""
        return {"controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}"}

    def format(self, *options: str) -> None:
        """With the version's own `kafka-storage`."""
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.log_dir),
            **self.voters,
        }
        path = self.log_dir.parent / "format.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self.log_dir.mkdir()
        arguments = ["format", "--cluster-id", uuid_to_text(random_uuid()), "--config", str(path), *options]
        run_tool("kafka.tools.StorageTool", *arguments, version=self.version)

    def visit_kafka(self) -> None:
        """Apache Kafka opens it, reads all and writes more."""
        port = free_port()
        # Up to 3.9 a controller's listener may not be advertised.
        overrides = {**self.voters, "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
        with KafkaBroker(
            self.log_dir, port=port, controller_port=self.controller_port, overrides=overrides, version=self.version
        ) as kafka:
            self._visit(kafka.bootstrap)

    def visit_here(self) -> None:
        """This broker does."""
        with BrokerProcess(self.log_dir, overrides={"node.id": "1", **self.voters}) as broker:
            self._visit(broker.bootstrap)

    def _visit(self, bootstrap: str) -> None:
        if self.written:
            assert _read(bootstrap) == self.written
        values = [b"%d" % number for number in range(len(self.written), len(self.written) + COUNT)]
        _produce(bootstrap, values)
        self.written += values
        assert _read(bootstrap) == self.written


def _produce(bootstrap: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for value in values:
        producer.produce(TOPIC, value)
    assert producer.flush(60) == 0


def _read(bootstrap: str) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=60)
    consumer.assign([TopicPartition(TOPIC, 0, low)])
    found: list[bytes] = []
    while len(found) < high:
        message = consumer.poll(60)
        assert message is not None and message.error() is None, (len(found), high, message and message.error())
        value = message.value()
        assert value is not None
        found.append(value)
    consumer.close()
    return found


def _pybroker(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "pybroker", *arguments], capture_output=True, text=True, timeout=60)


def _is_whole(log_dir: Path) -> None:
    checked = _pybroker("log", "check", str(log_dir))
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("first", ["kafka", "here"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_dir_comes_here_and_goes_back(tmp_path: Path, version: str, first: str) -> None:
    """`first`: which broker begins the metadata log of the formatted dir."""
    travelling = Travelling(tmp_path / "data", version)
    travelling.format()
    formatted = MetaProperties.read(travelling.log_dir)
    assert formatted is not None
    if first == "kafka":
        travelling.visit_kafka()
        _is_whole(travelling.log_dir)
    travelling.visit_here()
    here = MetaProperties.read(travelling.log_dir)
    assert here is not None and here.has_directory_id
    assert here == formatted.replace(directory_id=here.directory_id)
    assert not formatted.has_directory_id or here == formatted
    travelling.visit_kafka()
    _is_whole(travelling.log_dir)
    travelling.visit_here()
    assert MetaProperties.read(travelling.log_dir) == here


@pytest.mark.parametrize("has_id", [True, False])
@pytest.mark.parametrize("version", ["3.9.1", "4.4.0"])
def test_version_0_stays_version_0(tmp_path: Path, version: str, has_id: bool) -> None:
    """As a broker leaves it whose cluster came from ZooKeeper."""
    travelling = Travelling(tmp_path / "data", version)
    travelling.format()
    path = travelling.log_dir / FILE_NAME
    text = path.read_text().replace("version=1", "version=0").replace("node.id=", "broker.id=")
    path.write_text(text if has_id else re.sub("directory.id=.*\n", "", text))
    before = path.read_text()
    travelling.visit_here()
    assert (path.read_text() == before) == has_id
    here = path.read_text()
    assert "version=0\n" in here and "broker.id=1\n" in here and "node.id" not in here
    found = _pybroker("doctor", "--json", "--override", f"log.dirs={travelling.log_dir}", "--override", "node.id=1")
    assert not re.search(r'"identity|"log-dir-format', found.stdout), found.stdout
    travelling.visit_kafka()
    assert path.read_text() == here
    travelling.visit_here()


def test_a_dir_of_version_0_joins_its_cluster(tmp_path: Path) -> None:
    """The dir of a broker that had used ZooKeeper and was not started since: without an id of its own."""
    travelling = Travelling(tmp_path / "kafka", "4.4.0")
    features = ("group.version", "share.version", "streams.version", "transaction.version")
    travelling.format(*(part for each in features for part in ("--feature", f"{each}=0")))
    controller = MetaProperties.read(travelling.log_dir)
    assert controller is not None
    log_dir = tmp_path / "ours"
    log_dir.mkdir()
    (log_dir / FILE_NAME).write_text(f"broker.id=2\nversion=0\ncluster.id={controller.cluster_id}\n")
    settings = {
        "process.roles": "broker",
        "node.id": "2",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{travelling.controller_port}",
    }
    values = [b"%d" % number for number in range(COUNT)]
    with KafkaBroker(travelling.log_dir, controller_port=travelling.controller_port, overrides=travelling.voters):
        with BrokerProcess(log_dir, overrides=settings) as broker:
            _produce(broker.bootstrap, values)
        here = MetaProperties.read(log_dir)
        assert here is not None and here.has_directory_id and here.version == 0
        with BrokerProcess(log_dir, overrides=settings) as broker:
            assert _read(broker.bootstrap) == values
    assert MetaProperties.read(log_dir) == here


@contextmanager
def _zookeeper(directory: Path, version: str) -> Iterator[int]:
    port = free_port()
    path = directory / "zookeeper.properties"
    path.write_text(f"dataDir={directory / 'zookeeper'}\nclientPort={port}\nadmin.enableServer=false\n")
    java = java_command("org.apache.zookeeper.server.quorum.QuorumPeerMain", 128, "INFO", JAVA_OPTIONS, version)
    child = ChildProcess([*java, str(path)], directory / "zookeeper.out")
    try:
        child.wait_for_line(lambda line: "PrepRequestProcessor (sid:0) started" in line or None, 60.0)
        yield port
    finally:
        child.stop(30.0)


def _fill_with_zookeeper(log_dir: Path, version: str) -> None:
    """What a broker in ZooKeeper mode leaves."""
    port = free_port()
    with _zookeeper(log_dir.parent, version) as zookeeper_port:
        path = log_dir.parent / "server.properties"
        path.write_text(
            f"broker.id=1\nzookeeper.connect=127.0.0.1:{zookeeper_port}\nlog.dirs={log_dir}\n"
            f"listeners=PLAINTEXT://127.0.0.1:{port}\noffsets.topic.replication.factor=1\n"
        )
        java = java_command("kafka.Kafka", 384, "INFO", JAVA_OPTIONS, version)
        child = ChildProcess([*java, str(path)], log_dir.parent / "kafka.out")
        try:
            child.wait_for_line(lambda line: "started (kafka.server.KafkaServer)" in line or None, 120.0)
            _produce(f"127.0.0.1:{port}", [b"%d" % number for number in range(COUNT)])
        finally:
            child.stop(60.0)


@pytest.mark.parametrize("version", ZOOKEEPER_VERSIONS)
def test_a_dir_of_a_broker_with_zookeeper_is_examined(tmp_path: Path, version: str) -> None:
    log_dir = tmp_path / "data"
    _fill_with_zookeeper(log_dir, version)
    properties = (log_dir / FILE_NAME).read_bytes()
    _is_whole(log_dir)
    dumped = _pybroker("log", "dump", "--records", "--json", str(log_dir / f"{TOPIC}-0"))
    assert dumped.returncode == 0
    kinds = [json.loads(line)["type"] for line in dumped.stdout.splitlines()]
    assert kinds.count("record") == COUNT
    adopted = _pybroker("cluster", "adopt", "--check", str(log_dir), "--json")
    found = json.loads(adopted.stdout)["findings"]
    assert [each["kind"] for each in found if each["severity"] == "error"] == ["metadata"], found
    assert "ZooKeeper" in str(found)
    assert (log_dir / FILE_NAME).read_bytes() == properties, "who only looks changes nothing"
