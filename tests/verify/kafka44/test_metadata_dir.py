"""One metadata log, two brokers: Apache Kafka reads and continues what the embedded controller wrote, and the way back.

Runs Apache Kafka's tools and a combined node on loopback; skipped where java or mvn is missing.
"""

import asyncio
import json
import re
import shutil
import time
from pathlib import Path

import pytest

from pybroker.config.broker import BrokerConfig
from pybroker.controller.controller import Controller
from pybroker.controller.start import start_controller
from pybroker.metadata import log_files
from pybroker.metadata.bootstrap import LogDirs, open_log_dirs
from pybroker.metadata.image import Endpoint, MetadataImage
from pybroker.metadata.registration import Registration
from pybroker.protocol import messages as m
from pybroker.protocol.uuids import random_uuid
from pybroker.storage.errors import StorageError
from pybroker.storage.files import clean_shutdown
from tests.harness.kafka import KafkaBroker, run_tool
from tests.harness.process import free_port

pytestmark = pytest.mark.skipif(
    shutil.which("java") is None or shutil.which("mvn") is None, reason="Apache Kafka needs java, and mvn to fetch it"
)

_DUMP = "org.apache.kafka.tools.DumpLogSegments"
_TOPICS = "org.apache.kafka.tools.TopicCommand"
_SNAPSHOT_OFTEN = "metadata.log.max.record.bytes.between.snapshots=1000"


def _now_ms() -> int:
    return int(time.time() * 1000)


async def _open(path: Path, controller_port: int, *overrides: str) -> tuple[Controller, LogDirs]:
    dirs = open_log_dirs([path], 1, _now_ms(), controller_listener=("CONTROLLER", "127.0.0.1", controller_port))
    config = BrokerConfig.load(None, ["node.id=1", f"log.dirs={path}", _SNAPSHOT_OFTEN, *overrides])
    controller = await start_controller(config, dirs, _now_ms)
    endpoints = (Endpoint("PLAINTEXT", "127.0.0.1", 9092, 0),)
    registration = Registration(random_uuid(), endpoints, None, (dirs.metadata.directory_id,))
    await controller.register_broker(registration, {}, lambda: None)
    return controller, dirs


async def _close(controller: Controller, dirs: LogDirs) -> MetadataImage:
    await controller.fence_broker()
    await controller.close()
    clean_shutdown.write(dirs.metadata.path, controller.broker_epoch)
    dirs.release()
    return controller.image


async def _create(controller: Controller, name: str, **configs: str) -> None:
    rows = [m.CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
    topic = m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=2, replication_factor=1, configs=rows)
    response = await controller.create_topics(m.CreateTopicsRequest(topics=[topic]), 7)
    assert response.topics[0].error_code == 0, response


async def _write(path: Path, controller_port: int, *overrides: str) -> MetadataImage:
    """Twenty topics, some deleted, a config, a block of producer ids, and snapshots on the way."""
    controller, dirs = await _open(path, controller_port, *overrides)
    for number in range(20):
        await _create(controller, f"topic{number}", **{"retention.ms": str(1000 + number)})
    gone = [m.DeleteTopicsRequest.DeleteTopicState(name=f"topic{number}") for number in range(15)]
    await controller.delete_topics(m.DeleteTopicsRequest(topics=gone), 6)
    await controller.allocate_producer_ids()
    return await _close(controller, dirs)


def _dump(*paths: Path) -> str:
    files = ",".join(str(path) for path in paths)
    return run_tool(_DUMP, "--cluster-metadata-decoder", "--files", files).stdout.decode()


def test_kafkas_dump_tool_reads_log_and_snapshots(tmp_path: Path) -> None:
    image = asyncio.run(_write(tmp_path, 9093))
    directory = tmp_path / log_files.PARTITION_DIRECTORY
    snapshots = [directory / snapshot.file_name for snapshot in log_files.list_snapshots(directory)]
    assert len(snapshots) > 1
    output = _dump(directory / "00000000000000000000.log", *snapshots, tmp_path / "bootstrap.checkpoint")
    assert "isvalid: false" not in output
    assert "Could not decode" not in output and "unable to decode" not in output.lower()
    log_output = output.split("Dumping ")[1]
    records = [json.loads(text) for text in re.findall(r"payload: (\{.*\})", log_output)]
    types = [record["type"] for record in records]
    assert types[:5] == [
        "BEGIN_TRANSACTION_RECORD",
        "FEATURE_LEVEL_RECORD",
        "END_TRANSACTION_RECORD",
        "REGISTER_BROKER_RECORD",
        "BROKER_REGISTRATION_CHANGE_RECORD",
    ]
    assert types.count("TOPIC_RECORD") == 20
    assert types.count("REMOVE_TOPIC_RECORD") == 15
    assert types[-1] == "BROKER_REGISTRATION_CHANGE_RECORD"
    offsets = [int(text) for text in re.findall(r"\| offset: (\d+) ", log_output)]
    assert offsets == list(range(image.provenance.end_offset))


def test_kafka_opens_our_directory_and_we_open_it_again(tmp_path: Path) -> None:
    """The round: ours, Apache Kafka's with more topics and a snapshot of its own, ours again."""
    path = tmp_path / "data"
    controller_port = free_port()
    # Small segments and little retention: Kafka has to start from a snapshot, the log's beginning is gone.
    small = ("internal.metadata.log.segment.bytes=2000", "metadata.max.retention.bytes=6000")
    before = asyncio.run(_write(path, controller_port, *small))
    assert log_files.list_segments(path / log_files.PARTITION_DIRECTORY)[0].base_offset > 0
    overrides = dict([_SNAPSHOT_OFTEN.split("=")])
    with KafkaBroker(path, controller_port=controller_port, overrides=overrides) as kafka:
        with pytest.raises(StorageError, match="in use by another broker"):
            open_log_dirs([path], 1, _now_ms())
        described = kafka.tool(_TOPICS, "--describe").stdout.decode()
        for topic in before.topics.by_name.values():
            assert f"Topic: {topic.name}" in described
        assert described.count("Leader: 1") == 10
        assert "retention.ms=1019" in described
        kafka.tool(_TOPICS, "--create", "--topic", "from-kafka", "--partitions", "3", "--config", "retention.ms=77")
        kafka.tool(_TOPICS, "--delete", "--topic", "topic19")
    assert clean_shutdown.read(path) is not None

    async def again() -> MetadataImage:
        controller, dirs = await _open(path, controller_port)
        await _create(controller, "ours-again")
        return await _close(controller, dirs)

    after = asyncio.run(again())
    expected = {*before.topics.by_name, "from-kafka", "ours-again"} - {"topic19"}
    assert set(after.topics.by_name) == expected
    assert after.topic_config("from-kafka") == {"retention.ms": "77"}
    assert after.topics.by_name["topic18"].id == before.topics.by_name["topic18"].id
    for topic in after.topics.by_name.values():
        assert {(each.leader, each.isr) for each in topic.partitions.values()} == {(1, (1,))}
    old, new = before.topics.by_name["topic18"].partitions[0], after.topics.by_name["topic18"].partitions[0]
    assert new.leader_epoch > old.leader_epoch
    assert after.provenance.epoch > before.provenance.epoch + 1
    assert after.next_producer_id == before.next_producer_id == 1000


def test_we_open_a_directory_that_kafka_formatted_and_filled(tmp_path: Path) -> None:
    """All of Kafka's default features are on, eligible leader replicas among them."""
    path = tmp_path / "data"
    with KafkaBroker(path, overrides=dict([_SNAPSHOT_OFTEN.split("=")])) as kafka:
        controller_port = kafka.controller_port
        for number in range(2):
            kafka.tool(_TOPICS, "--create", "--topic", f"topic{number}", "--partitions", "2")
    assert len(log_files.list_snapshots(path / log_files.PARTITION_DIRECTORY)) > 1

    async def run() -> MetadataImage:
        controller, dirs = await _open(path, controller_port)
        return await _close(controller, dirs)

    image = asyncio.run(run())
    assert {f"topic{number}" for number in range(2)} <= set(image.topics.by_name)
    partitions = [each for topic in image.topics.by_name.values() for each in topic.partitions.values()]
    assert {(each.leader, each.isr, each.eligible_leader_replicas) for each in partitions} == {(1, (1,), ())}
    assert image.feature_levels["eligible.leader.replicas.version"] == 1
    with KafkaBroker(path, controller_port=controller_port) as kafka:
        described = kafka.tool(_TOPICS, "--describe").stdout.decode()
    assert described.count("Leader: 1") == len(partitions)
