"""Levels of features in a log dir that Apache Kafka has set up for an older release: both brokers change them alike."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from admin_script import comparable

from pybroker.metadata.features import MAX_METADATA_VERSION
from pybroker.protocol import messages as m
from pybroker.protocol.uuids import random_uuid, uuid_to_text
from pybroker.testing.broker import BrokerProcess
from pybroker.testing.kafka import KafkaBroker, run_tool
from pybroker.testing.process import free_port
from pybroker.testing.protocol_client import ProtocolClient

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


def _set_up(path: Path, controller_port: int) -> None:
    """A log dir of node 1 at the older level."""
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
    options = ("--config", str(properties), "--standalone", "--release-version", RELEASE)
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
