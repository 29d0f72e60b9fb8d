"""Levels of features in a log dir that Apache Kafka has set up for an older release: both brokers change them alike."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from admin_script import comparable

from pybroker.metadata.features import MAX_METADATA_VERSION, SUPPORTED, UNSERVED
from pybroker.protocol import messages as m
from pybroker.protocol.uuids import random_uuid, uuid_to_text
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.broker import BrokerProcess
from tests.harness.kafka import KafkaBroker, run_tool, tool_command
from tests.harness.process import free_port

RELEASE, LEVEL = "4.2-IV1", 29
UPGRADE, SAFE, UNSAFE = 1, 2, 3
METADATA = "metadata.version"
#: Done one after the other; at each place all others are tried first.
CHANGES = (
    (METADATA, 26, SAFE),
    (METADATA, 23, UNSAFE),
    ("eligible.leader.replicas.version", 0, SAFE),
    (METADATA, 25, UPGRADE),
    (METADATA, 30, UPGRADE),
    (METADATA, 33, UPGRADE),
)
TIMEOUT_S = 60

Change = tuple[str, int, int]


def _set_up(path: Path, controller_port: int, release: str = RELEASE) -> None:
    """A log dir of node 1 at the level of an older release."""
    properties = path.with_suffix(".properties")
    values = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        "log.dirs": str(path),
    }
    properties.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    options = ("--config", str(properties), "--standalone", "--release-version", release)
    run_tool("kafka.tools.StorageTool", "format", "--cluster-id", uuid_to_text(random_uuid()), *options)


def _updated(client: ProtocolClient, change: Change, *, validate: bool) -> object:
    name, level, kind = change
    row = m.UpdateFeaturesRequest.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
    return comparable(client.call(m.UpdateFeaturesRequest(feature_updates=[row], validate_only=validate), 2))


def _levels(client: ProtocolClient) -> dict[str, int]:
    request = m.ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return {each.name: each.max_version_level for each in client.call(request, 4).finalized_features}


def _wait_for(client: ProtocolClient, wanted: dict[str, int]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while (found := _levels(client)) != wanted:
        assert time.monotonic() < deadline, (found, wanted)
        time.sleep(0.05)


@pytest.mark.skipif(
    shutil.which("java") is None or shutil.which("mvn") is None, reason="Apache Kafka needs java, and mvn to fetch it"
)
def test_levels_go_where_apache_kafka_lets_them_go(tmp_path: Path) -> None:
    controller_port = free_port()
    _set_up(tmp_path / "kafka", controller_port)
    shutil.copytree(tmp_path / "kafka", tmp_path / "own")
    tried = [
        (METADATA, level, kind) for level in range(6, MAX_METADATA_VERSION + 2) for kind in (UPGRADE, SAFE, UNSAFE)
    ]
    with (
        KafkaBroker(tmp_path / "kafka", controller_port=controller_port) as kafka_broker,
        BrokerProcess(tmp_path / "own", overrides={"node.id": "1"}) as broker,
        ProtocolClient(kafka_broker.port) as kafka,
        ProtocolClient(broker.port) as own,
    ):
        levels = _levels(own)
        assert levels[METADATA] == LEVEL
        for change in (*CHANGES, None):
            _wait_for(kafka, levels)
            answers = [[_updated(each, one, validate=True) for one in tried] for each in (own, kafka)]
            assert answers[0] == answers[1], f"before {change}"
            if change is not None:
                assert _updated(own, change, validate=False) == _updated(kafka, change, validate=False), change
                # What this broker answers is in effect.
                name, level, _ = change
                levels = {**levels, name: level} if level else {key: levels[key] for key in levels if key != name}
                assert _levels(own) == levels


def _upgraded(broker: BrokerProcess, release: str) -> tuple[int, list[str]]:
    """Exit status of `kafka-features.sh upgrade --release-version`, and its lines."""
    words = ("--bootstrap-server", broker.bootstrap, "upgrade", "--release-version", release)
    command = tool_command("org.apache.kafka.tools.FeatureCommand", *words)
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return done.returncode, (done.stdout + done.stderr).splitlines()


@pytest.mark.skipif(
    shutil.which("java") is None or shutil.which("mvn") is None, reason="Apache Kafka needs java, and mvn to fetch it"
)
@pytest.mark.parametrize("older", ["3.9", "4.0-IV3"])
def test_the_tool_raises_a_release_as_far_as_it_is_served(tmp_path: Path, older: str) -> None:
    """Features that are not served keep their levels, and the tool names each that is lower than in the release."""
    _set_up(tmp_path / "own", free_port(), older)
    with (
        BrokerProcess(tmp_path / "own", overrides={"node.id": "1"}) as broker,
        ProtocolClient(broker.port) as client,
    ):
        before = _levels(client)
        status, lines = _upgraded(broker, "4.4")
        release = {METADATA: MAX_METADATA_VERSION, "kraft.version": 1, "eligible.leader.replicas.version": 1}
        assert set(release) == set(SUPPORTED)
        assert _levels(client) == {**before, **release}
        assert {f"{name} was upgraded to {level}." for name, level in release.items()} <= set(lines)
        lower = sorted(set(UNSERVED) - set(before))
        refused = sorted(line for line in lines if line.startswith("Could not upgrade"))
        assert [line.split()[3] for line in refused] == lower
        assert all("Local controller 1 does not support this feature." in line for line in refused)
        assert (status, lines[-1]) == (1, f"{len(lower)} out of 7 operation(s) failed.")


@pytest.mark.skipif(
    shutil.which("java") is None or shutil.which("mvn") is None, reason="Apache Kafka needs java, and mvn to fetch it"
)
def test_the_tool_has_nothing_to_refuse_where_all_levels_are_there(tmp_path: Path) -> None:
    _set_up(tmp_path / "own", free_port(), "4.0-IV3")
    with BrokerProcess(tmp_path / "own", overrides={"node.id": "1"}) as broker, ProtocolClient(broker.port) as client:
        before = _levels(client)
        status, lines = _upgraded(broker, "4.0")
        assert (status, _levels(client)) == (0, before), lines
