"""What `pybroker cluster shrink` finds, and the metadata log that it makes of the controllers'."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pybroker.cli.main import main
from pybroker.cluster.controller_dirs import ControllerNode, write_controller_dir
from pybroker.cluster.shrinking import examine_shrinking
from pybroker.config.broker import BrokerConfig
from pybroker.metadata.delta import MetadataDelta, empty_image
from pybroker.metadata.image import MetadataImage, Provenance
from pybroker.metadata.log_files import PARTITION_DIRECTORY, list_snapshots
from pybroker.metadata.offline import replay
from pybroker.metadata.snapshot import voters_record
from pybroker.protocol import messages as m
from pybroker.protocol.uuids import random_uuid
from pybroker.storage.files import clean_shutdown
from pybroker.storage.files.meta_properties import MetaProperties
from pybroker.storage.offline.layout import PartitionFiles

NODE, OTHER, EPOCH, BROKER_EPOCH = 1, 2, 4, 33
DIRECTORY, TOPIC_ID = random_uuid(), random_uuid()
CONTROLLERS = [ControllerNode(node_id, "127.0.0.1", 9000 + node_id, random_uuid()) for node_id in (100, 101, 102)]


def registration(node_id: int) -> m.RegisterBrokerRecord:
    endpoint = m.RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)
    return m.RegisterBrokerRecord(
        broker_id=node_id,
        incarnation_id=random_uuid(),
        broker_epoch=BROKER_EPOCH,
        end_points=[endpoint],
        fenced=node_id == NODE,
        log_dirs=[DIRECTORY if node_id == NODE else random_uuid()],
    )


def cluster_image(end_offset: int, replicas: list[int], directory: bytes = DIRECTORY) -> MetadataImage:
    delta = MetadataDelta(empty_image("the-cluster"))
    # As controllers leave it when the last replica has gone (KIP-966).
    partition = m.PartitionRecord(
        partition_id=0,
        topic_id=TOPIC_ID,
        replicas=replicas,
        isr=[],
        eligible_leader_replicas=[NODE],
        leader=-1,
        leader_epoch=end_offset,
        directories=[directory] * len(replicas),
    )
    for record in (
        m.FeatureLevelRecord(name="metadata.version", feature_level=30),
        m.FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
        registration(NODE),
        registration(OTHER),
        m.RegisterControllerRecord(controller_id=100, incarnation_id=random_uuid()),
        m.TopicRecord(name="t", topic_id=TOPIC_ID),
        partition,
    ):
        delta.replay(record, record.MAX_VERSION)
    delta.replay_control(m.KRaftVersionRecord(kraft_version=1))
    delta.replay_control(voters_record([each.voter for each in CONTROLLERS]))
    return delta.apply(Provenance(end_offset, EPOCH, 1000))


def make(tmp_path: Path, replicas: list[int], *, epoch: int = BROKER_EPOCH) -> tuple[Path, list[Path]]:
    """The server.properties of a stopped broker, and the log dirs of its controllers, each further than the one
    before."""
    log_dir = tmp_path / "data"
    log_dir.mkdir(parents=True)
    MetaProperties(NODE, "the-cluster", DIRECTORY).write(log_dir)
    clean_shutdown.write(log_dir, epoch)
    path = tmp_path / "server.properties"
    path.write_text(f"node.id={NODE}\nlog.dirs={log_dir}\nlisteners=PLAINTEXT://:9092,CONTROLLER://127.0.0.1:9099\n")
    directories = []
    for number, node in enumerate(CONTROLLERS):
        directories.append(tmp_path / f"controller-{node.node_id}")
        write_controller_dir(directories[-1], node, cluster_image(100 + number, replicas), 1000)
    return path, directories


def kinds(properties: Path, directories: list[Path]) -> list[str]:
    return [each.kind for each in examine_shrinking(BrokerConfig.load(properties), directories)]


def run(properties: Path, directories: list[Path], *arguments: str) -> Result:
    options = [word for path in directories for word in ("--controller-dir", str(path))]
    return CliRunner().invoke(main, ["cluster", "shrink", str(properties), *options, *arguments])


def test_the_broker_gets_what_the_furthest_controller_has(tmp_path: Path) -> None:
    properties, directories = make(tmp_path, [NODE])
    result = run(properties, directories)
    assert result.exit_code == 0, result.output
    log = tmp_path / "data" / PARTITION_DIRECTORY
    assert list_snapshots(log) == [(103, EPOCH + 1)]
    image = replay(PartitionFiles.of(log)).image
    (voter,) = image.quorum.voters
    assert (voter.id, voter.directory_id) == (NODE, DIRECTORY)
    assert voter.endpoints == (("CONTROLLER", "127.0.0.1", 9099),)
    assert set(image.cluster.brokers) == {NODE}
    assert image.cluster.controllers == {}
    assert image.topics.by_name["t"].id == TOPIC_ID
    assert image.topics.by_name["t"].partitions[0].leader_epoch == 102
    assert sorted(path.name for path in (tmp_path / "data").iterdir() if path.is_dir()) == [PARTITION_DIRECTORY]
    assert kinds(properties, directories) == ["metadata"], "it has one already"


def test_a_check_changes_nothing(tmp_path: Path) -> None:
    properties, directories = make(tmp_path, [NODE])
    before = sorted(tmp_path.rglob("*"))
    result = run(properties, directories, "--check", "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"findings": [], "done": False})
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("replicas", [[NODE, OTHER], [OTHER]])
def test_replicas_elsewhere(tmp_path: Path, replicas: list[int]) -> None:
    properties, directories = make(tmp_path, replicas)
    (found,) = examine_shrinking(BrokerConfig.load(properties), directories)
    assert (found.kind, found.subject) == ("replicas", "t")
    assert run(properties, directories).exit_code == 3
    assert not (tmp_path / "data" / PARTITION_DIRECTORY).exists()


def test_too_few_controllers(tmp_path: Path) -> None:
    properties, directories = make(tmp_path, [NODE])
    assert kinds(properties, directories[:1]) == ["controller"]
    assert kinds(properties, directories[1:]) == []


def test_metadata_of_another_time(tmp_path: Path) -> None:
    assert kinds(*make(tmp_path, [NODE], epoch=BROKER_EPOCH + 1)) == ["broker-epoch"]


def test_a_broker_that_was_killed(tmp_path: Path) -> None:
    properties, directories = make(tmp_path, [NODE])
    clean_shutdown.remove(tmp_path / "data")
    assert kinds(properties, directories) == ["unclean"]


def test_controllers_of_another_cluster(tmp_path: Path) -> None:
    properties, directories = make(tmp_path, [NODE])
    MetaProperties(100, "another", CONTROLLERS[0].directory_id).write(directories[0])
    assert kinds(properties, directories) == ["identity"]


def test_settings_of_a_broker_in_a_cluster(tmp_path: Path) -> None:
    properties, directories = make(tmp_path, [NODE])
    joined = "process.roles=broker\ncontroller.quorum.bootstrap.servers=c:9093\nlisteners=PLAINTEXT://:9092\n"
    properties.write_text(properties.read_text() + joined)
    assert kinds(properties, directories) == ["settings"]


def test_what_is_no_log_dir(tmp_path: Path) -> None:
    properties, _ = make(tmp_path, [NODE])
    assert kinds(properties, [tmp_path]) == ["identity"]
