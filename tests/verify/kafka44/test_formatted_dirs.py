"""Directories that `kafka-storage format` of Apache Kafka 3.3 to 4.4 makes, opened here with exactly its levels."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybroker.metadata.features import MAX_METADATA_VERSION
from pybroker.metadata.log_files import PARTITION_DIRECTORY, SegmentReader, list_segments
from pybroker.metadata.records import VersionedRecord, decode_batch
from pybroker.protocol import messages as m
from pybroker.protocol.kafka_version import KAFKA_VERSION
from pybroker.protocol.uuids import random_uuid, uuid_to_text
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.broker import BrokerProcess
from tests.harness.kafka import KafkaBroker, run_tool
from tests.harness.process import free_port

_LATER = {"eligible.leader.replicas.version": 1, "group.version": 1, "streams.version": 1, "transaction.version": 2}
#: Version to what it finalises in a new cluster, without kraft.version.
LEVELS = {
    "3.3.2": {"metadata.version": 7},
    "3.6.1": {"metadata.version": 14},
    "3.8.1": {"metadata.version": 20},
    "3.9.1": {"metadata.version": 21},
    "4.0.0": {"metadata.version": 25, "group.version": 1, "transaction.version": 2},
    "4.3.0": {**_LATER, "metadata.version": 30, "share.version": 1},
    KAFKA_VERSION: {**_LATER, "metadata.version": MAX_METADATA_VERSION, "share.version": 2},
}
UNSERVED = ("group.version", "share.version", "streams.version", "transaction.version")
OPTIONS = {"static voters": [], "standalone": ["--standalone"], "no initial controllers": ["--no-initial-controllers"]}


def _format(log_dir: Path, version: str, kind: str, *more: str) -> int:
    """The port of its controller."""
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
    options = ["--cluster-id", uuid_to_text(random_uuid()), "--config", str(path), *OPTIONS[kind], *more]
    run_tool("kafka.tools.StorageTool", "format", *options, version=version)
    return port


@pytest.mark.parametrize(
    ("version", "kind"),
    # Others than static voters came with 3.9.
    [(version, kind) for version in LEVELS for kind in OPTIONS if version >= "3.9" or kind == "static voters"],
)
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


def _first_records(log_dir: Path) -> list[VersionedRecord]:
    """What the first leader of a metadata log wrote in its first transaction."""
    (first, *_) = list_segments(log_dir / PARTITION_DIRECTORY)
    found: list[VersionedRecord] = []
    for data in SegmentReader(first.path, first.base_offset):
        found += [each for each in decode_batch(data, str(first.path)).records if isinstance(each, VersionedRecord)]
        if any(isinstance(each.record, m.EndTransactionRecord) for each in found):
            break
    end = next(number for number, each in enumerate(found) if isinstance(each.record, m.EndTransactionRecord))
    return found[: end + 1]


def test_a_new_cluster_begins_with_the_records_of_kafka(tmp_path: Path) -> None:
    """Of every feature that is served, the levels that `kafka-storage format` chooses, and what comes with them."""
    off = [part for name in UNSERVED for part in ("--feature", f"{name}=0")]
    port = _format(tmp_path / "kafka", "4.4.0", "standalone", *off)
    KafkaBroker(tmp_path / "kafka", controller_port=port).stop()
    with BrokerProcess(tmp_path / "ours", overrides={"node.id": "1"}):
        pass
    kafkas = [
        each
        for each in _first_records(tmp_path / "kafka")
        if not (isinstance(each.record, m.FeatureLevelRecord) and each.record.name in UNSERVED)
    ]
    assert _first_records(tmp_path / "ours") == kafkas
