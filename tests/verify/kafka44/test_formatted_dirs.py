"""Directories that `kafka-storage format` of Apache Kafka 3.9 and later makes, opened here with exactly its levels."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybroker.metadata.features import MAX_METADATA_VERSION
from pybroker.protocol import messages as m
from pybroker.protocol.kafka_version import KAFKA_VERSION
from pybroker.protocol.uuids import random_uuid, uuid_to_text
from pybroker.testing.broker import BrokerProcess
from pybroker.testing.kafka import run_tool
from pybroker.testing.process import free_port
from pybroker.testing.protocol_client import ProtocolClient

_LATER = {"eligible.leader.replicas.version": 1, "group.version": 1, "streams.version": 1, "transaction.version": 2}
#: Version to what it finalises in a new cluster, without kraft.version.
LEVELS = {
    "3.9.1": {"metadata.version": 21},
    "4.0.0": {"metadata.version": 25, "group.version": 1, "transaction.version": 2},
    "4.3.0": {**_LATER, "metadata.version": 30, "share.version": 1},
    KAFKA_VERSION: {**_LATER, "metadata.version": MAX_METADATA_VERSION, "share.version": 2},
}
OPTIONS = {"static voters": [], "standalone": ["--standalone"], "no initial controllers": ["--no-initial-controllers"]}


def _format(log_dir: Path, version: str, kind: str) -> None:
    port = free_port()
    static = kind == "static voters"
    quorum = "controller.quorum.voters=1@" if static else "controller.quorum.bootstrap.servers="
    lines = [
        "process.roles=broker,controller",
        "node.id=1",
        f"listeners=PLAINTEXT://127.0.0.1:{free_port()},CONTROLLER://127.0.0.1:{port}",
        "controller.listener.names=CONTROLLER",
        f"log.dirs={log_dir}",
        f"{quorum}127.0.0.1:{port}",
    ]
    path = log_dir.parent / "format.properties"
    path.write_text("\n".join([*lines, ""]))
    log_dir.mkdir()
    options = ["--cluster-id", uuid_to_text(random_uuid()), "--config", str(path), *OPTIONS[kind]]
    run_tool("kafka.tools.StorageTool", "format", *options, version=version)


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("version", LEVELS)
def test_it_opens_with_exactly_the_formatted_levels(tmp_path: Path, version: str, kind: str) -> None:
    log_dir = tmp_path / "data"
    _format(log_dir, version, kind)
    software = m.ApiVersionsRequest(client_software_name="test", client_software_version="1")
    for _ in range(2):
        with BrokerProcess(log_dir, overrides={"node.id": "1"}) as broker, ProtocolClient(broker.port) as client:
            found = {each.name: each.max_version_level for each in client.call(software, 4).finalized_features}
            kraft_version = found.pop("kraft.version", 0)
            assert found == LEVELS[version]
            assert kraft_version == (1 if kind == "standalone" else kraft_version)
            assert kind != "static voters" or kraft_version == 0
