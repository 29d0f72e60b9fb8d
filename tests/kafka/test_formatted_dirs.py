"""Directories that `kafka-storage format` made: opened here with the levels it wrote, and then by Kafka again."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from pybroker.metadata.features import MAX_METADATA_RELEASE, MAX_METADATA_VERSION, UPGRADE_COMMAND
from pybroker.protocol import messages as m
from pybroker.protocol.uuids import random_uuid, uuid_to_text
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.broker import BrokerProcess
from tests.harness.kafka import KafkaBroker, run_tool
from tests.harness.process import free_port

OLDER = Path(__file__).parents[1] / "unit/metadata/data/formatted/4.3.0-standalone"
TOPIC = "there-and-back"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
#: The levels that Kafka finalises in a new cluster.
FORMATTED = {
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "metadata.version": MAX_METADATA_VERSION,
    "share.version": 2,
    "streams.version": 1,
    "transaction.version": 2,
}


def _format(log_dir: Path, controller_port: int, kraft_version: int) -> dict[str, str]:
    """Format as a combined node 1: with `--standalone`, or with static voters. The settings that name the voters."""
    voters = {"controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}"}
    if kraft_version == 0:
        voters = {"controller.quorum.voters": f"1@127.0.0.1:{controller_port}"}
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(log_dir),
        **voters,
    }
    path = log_dir.parent / "format.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    log_dir.mkdir()
    arguments = ["format", "--cluster-id", uuid_to_text(random_uuid()), "--config", str(path)]
    run_tool("kafka.tools.StorageTool", *arguments, *(["--standalone"] if kraft_version else []))
    return voters


def _finalized(bootstrap_port: int) -> dict[str, int]:
    request = m.ApiVersionsRequest(client_software_name="test", client_software_version="1")
    with ProtocolClient(bootstrap_port) as client:
        return {each.name: each.max_version_level for each in client.call(request, 4).finalized_features}


def _topics(bootstrap_port: int) -> set[str]:
    with ProtocolClient(bootstrap_port) as client:
        return {each.name for each in client.call(m.MetadataRequest(topics=None), 12).topics}


@pytest.mark.skipif(
    shutil.which("java") is None or shutil.which("mvn") is None, reason="Apache Kafka needs java, and mvn to fetch it"
)
@pytest.mark.parametrize("kraft_version", [0, 1])
def test_a_formatted_dir_comes_here_and_goes_back(tmp_path: Path, kraft_version: int) -> None:
    log_dir, controller_port = tmp_path / "data", free_port()
    voters = _format(log_dir, controller_port, kraft_version)
    expected = {**FORMATTED, **({"kraft.version": 1} if kraft_version else {})}
    with BrokerProcess(log_dir, overrides={"node.id": "1", **voters}) as broker:
        assert _finalized(broker.port) == expected
        topic = m.CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        with ProtocolClient(broker.port) as client:
            assert client.call(m.CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7).topics[0].error_code == 0
    with KafkaBroker(log_dir, controller_port=controller_port, overrides=voters) as kafka:
        described = kafka.tool(FEATURES, "describe").stdout.decode()
        levels = dict(re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)", described))
        assert levels["metadata.version"] == MAX_METADATA_RELEASE, described
        assert {name: levels[name] for name in ("group.version", "share.version")} == {
            "group.version": "1",
            "share.version": "2",
        }
        assert TOPIC in _topics(kafka.port)
    with BrokerProcess(log_dir, overrides={"node.id": "1", **voters}) as broker:
        assert _finalized(broker.port) == expected
        assert TOPIC in _topics(broker.port)


@pytest.mark.skipif(
    shutil.which("java") is None or shutil.which("mvn") is None, reason="Apache Kafka needs java, and mvn to fetch it"
)
def test_the_command_that_doctor_names_raises_an_older_level(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    shutil.copytree(OLDER, log_dir)
    (tool, bootstrap, _, *arguments) = UPGRADE_COMMAND.split()
    assert (tool, bootstrap) == ("kafka-features.sh", "--bootstrap-server")
    with BrokerProcess(log_dir, overrides={"node.id": "1"}) as broker:
        before = _finalized(broker.port)
        assert before["metadata.version"] == 30
        run_tool(FEATURES, "--bootstrap-server", broker.bootstrap, *arguments)
        assert _finalized(broker.port) == {**before, "metadata.version": 33}
