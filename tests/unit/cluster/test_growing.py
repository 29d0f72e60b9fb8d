"""What `pybroker cluster grow` finds, and the metadata that it makes of a single broker's."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pybroker.cli.main import main
from pybroker.cluster import growing
from pybroker.cluster.controller_dirs import ControllerNode
from pybroker.cluster.growing import examine_growth, grow
from pybroker.config.broker import BrokerConfig
from pybroker.config.listeners import parse_protocol_map
from pybroker.config.properties import parse_properties, read_properties
from pybroker.metadata.image import MetadataImage, QuorumImage, Voter
from pybroker.metadata.log_files import PARTITION_DIRECTORY, SnapshotId, list_snapshots
from pybroker.metadata.offline import replay
from pybroker.metadata.records import VersionedRecord
from pybroker.metadata.snapshot import write_snapshot
from pybroker.protocol import messages as m
from pybroker.protocol.uuids import random_uuid
from pybroker.storage.files import clean_shutdown
from pybroker.storage.files.meta_properties import MetaProperties
from pybroker.storage.offline.layout import PartitionFiles

NODE = 1
DIRECTORY, TOPIC_ID = random_uuid(), random_uuid()
OWN_VOTER = Voter(NODE, DIRECTORY, (("CONTROLLER", "127.0.0.1", 9093),), (0, 1))
END_OFFSET, EPOCH, LEADER_EPOCH = 10, 3, 7
CONTROLLERS = ["100@c1:9093", "101@c2:9093", "102@c3:9093"]


def versioned(record: Any) -> VersionedRecord:
    return VersionedRecord(record, record.MAX_VERSION)


def records(level: int = 30) -> list[VersionedRecord]:
    endpoint = m.RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)
    return [
        VersionedRecord(m.FeatureLevelRecord(name="metadata.version", feature_level=level), 0),
        VersionedRecord(
            m.RegisterBrokerRecord(
                broker_id=NODE,
                incarnation_id=random_uuid(),
                broker_epoch=5,
                end_points=[endpoint],
                log_dirs=[DIRECTORY],
                fenced=True,
            ),
            3,
        ),
        versioned(m.RegisterControllerRecord(controller_id=NODE, incarnation_id=random_uuid())),
        versioned(m.TopicRecord(name="t", topic_id=TOPIC_ID)),
        versioned(
            m.PartitionRecord(
                partition_id=0,
                topic_id=TOPIC_ID,
                replicas=[NODE],
                isr=[NODE],
                leader=NODE,
                leader_epoch=LEADER_EPOCH,
                partition_epoch=1,
                directories=[DIRECTORY],
            )
        ),
        VersionedRecord(m.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"), 0),
        VersionedRecord(m.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=3000), 0),
    ]


def make(
    tmp_path: Path, *more: VersionedRecord, level: int = 30, voter: Voter = OWN_VOTER, **settings: str
) -> tuple[Path, BrokerConfig]:
    """A stopped broker's server.properties, and what they say."""
    log_dir = tmp_path / "data"
    metadata = log_dir / PARTITION_DIRECTORY
    metadata.mkdir(parents=True)
    MetaProperties(NODE, "the-cluster", DIRECTORY).write(log_dir)
    clean_shutdown.write(log_dir, 5)
    content = [*records(level), *more]
    quorum = QuorumImage(kraft_version=1, voters=(voter,))
    write_snapshot(metadata / SnapshotId(END_OFFSET, EPOCH).file_name, EPOCH, 1, 1, quorum, content)
    properties = {
        "node.id": str(NODE),
        "log.dirs": str(log_dir),
        "listeners": "PLAINTEXT://b1:9092,CONTROLLER://127.0.0.1:9093",
        "min.insync.replicas": "2",
        **{key.replace("_", "."): value for key, value in settings.items()},
    }
    path = tmp_path / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="iso-8859-1")
    return path, BrokerConfig.load(path)


def nodes(*texts: str) -> list[ControllerNode]:
    return [ControllerNode.parse(each) for each in texts]


def kinds(config: BrokerConfig, *texts: str) -> list[str]:
    return [each.kind for each in examine_growth(config, nodes(*(texts or CONTROLLERS)))]


def run(properties: Path, *arguments: str) -> Result:
    options = [word for text in CONTROLLERS for word in ("--controller", text)]
    return CliRunner().invoke(main, ["cluster", "grow", str(properties), *options, *arguments])


def written(output: Path, node_id: int) -> MetadataImage:
    return replay(PartitionFiles.of(output / f"controller-{node_id}" / "data" / PARTITION_DIRECTORY)).image


def as_dict(path: Path) -> dict[str, str]:
    return {each.key: each.value for each in read_properties(path)}


def test_every_controller_begins_with_all_that_there_was(tmp_path: Path) -> None:
    properties, config = make(tmp_path)
    before = replay(PartitionFiles.of(tmp_path / "data" / PARTITION_DIRECTORY)).image
    result = run(properties, "--output", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    for node_id in (100, 101, 102):
        log_dir = tmp_path / "out" / f"controller-{node_id}" / "data"
        identity = MetaProperties.read(log_dir)
        assert identity is not None
        assert (identity.node_id, identity.cluster_id) == (node_id, "the-cluster")
        image = written(tmp_path / "out", node_id)
        assert {each.id for each in image.quorum.voters} == {100, 101, 102}
        assert next(each for each in image.quorum.voters if each.id == node_id).directory_id == identity.directory_id
        assert list_snapshots(log_dir / PARTITION_DIRECTORY) == [(END_OFFSET + 1, EPOCH + 1)]
        state = json.loads((log_dir / PARTITION_DIRECTORY / "quorum-state").read_text())
        assert (state["leaderId"], state["leaderEpoch"], state["data_version"]) == (-1, EPOCH + 1, 1)
        assert image.cluster.controllers == {}
        assert image.cluster.brokers[NODE] == before.cluster.brokers[NODE]
        assert image.feature_levels == {"metadata.version": 30, "eligible.leader.replicas.version": 1}
        assert image.configs == {(2, "t"): {"retention.ms": "5"}, (4, ""): {"min.insync.replicas": "2"}}
        assert image.next_producer_id == 3000
        topic = image.topics.by_name["t"]
        assert topic.id == TOPIC_ID
        partition, old = topic.partitions[0], before.topics.by_name["t"].partitions[0]
        assert (partition.leader, partition.leader_epoch) == (-1, LEADER_EPOCH + 1)
        assert (partition.replicas, partition.isr, partition.directories) == (old.replicas, old.isr, old.directories)
    assert config.node_id == NODE


def test_nothing_is_wrong_with_a_new_log_dir(tmp_path: Path) -> None:
    properties, _ = make(tmp_path)
    assert run(properties, "--output", str(tmp_path / "out")).exit_code == 0
    checked = CliRunner().invoke(main, ["log", "check", str(tmp_path / "out" / "controller-100" / "data")])
    assert checked.exit_code == 0, checked.output


def test_settings_of_every_node(tmp_path: Path) -> None:
    properties, _ = make(tmp_path, advertised_listeners="PLAINTEXT://b1.example:9092", num_partitions="6")
    assert run(properties, "--output", str(tmp_path / "out")).exit_code == 0
    bootstrap = "c1:9093,c2:9093,c3:9093"
    controller = as_dict(tmp_path / "out" / "controller-101" / "server.properties")
    assert controller["process.roles"] == "controller"
    assert (controller["node.id"], controller["listeners"]) == ("101", "CONTROLLER://c2:9093")
    assert controller["log.dirs"] == str(tmp_path / "out" / "controller-101" / "data")
    assert (controller["num.partitions"], controller["controller.quorum.bootstrap.servers"]) == ("6", bootstrap)
    broker = BrokerConfig.load(tmp_path / "out" / f"broker-{NODE}.properties")
    assert broker.joins_quorum
    assert [str(each) for each in broker.listeners] == ["PLAINTEXT://b1:9092"]
    assert [str(each) for each in broker.advertised_listeners] == ["PLAINTEXT://b1.example:9092"]
    assert broker.log_dirs == (tmp_path / "data",)
    another = as_dict(tmp_path / "out" / "another-broker.properties")
    assert (another["node.id"], another["log.dirs"], another["advertised.listeners"]) == ("", "", "")
    assert (another["process.roles"], another["controller.quorum.bootstrap.servers"]) == ("broker", bootstrap)


def test_settings_of_any_text_stay_what_they_are(tmp_path: Path) -> None:
    """Java reads the file of a controller, and of another broker, as ISO 8859-1."""
    properties, config = make(
        tmp_path / "\u00fcber", broker_rack="Z\\u00fcrich", ssl_keystore_key="-----BEGIN\\n  node.id=77\\nEND"
    )
    assert run(properties, "--output", str(tmp_path / "\u00fcber" / "out")).exit_code == 0
    out = tmp_path / "\u00fcber" / "out"
    broker = BrokerConfig.load(out / f"broker-{NODE}.properties")
    assert (broker.node_id, broker.rack, broker.log_dirs) == (NODE, "Z\u00fcrich", config.log_dirs)
    assert broker.static["ssl.keystore.key"] == config.static["ssl.keystore.key"]
    text = (out / "controller-100" / "server.properties").read_text(encoding="latin-1")
    read = {each.key: each.value for each in parse_properties(text, "as Java reads it")}
    assert read["log.dirs"] == str(out / "controller-100" / "data")


@pytest.mark.parametrize(
    "protocols", ["PLAINTEXT:PLAINTEXT,OWN_CONTROLLER:PLAINTEXT", "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_SSL"]
)
def test_the_controllers_are_reached_whatever_the_listeners_were(tmp_path: Path, protocols: str) -> None:
    name = protocols.split(",")[1].partition(":")[0]
    properties, _ = make(
        tmp_path,
        listeners=f"PLAINTEXT://b1:9092,{name}://127.0.0.1:9093",
        controller_listener_names=name,
        listener_security_protocol_map=protocols,
    )
    assert run(properties, "--output", str(tmp_path / "out")).exit_code == 0
    for file in (f"broker-{NODE}.properties", "another-broker.properties"):
        written_map = as_dict(tmp_path / "out" / file)["listener.security.protocol.map"]
        assert parse_protocol_map(written_map)["CONTROLLER"] == "PLAINTEXT"
    assert BrokerConfig.load(tmp_path / "out" / f"broker-{NODE}.properties").joins_quorum


def note_syncs(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """What a power cut would leave of each directory: the names in it when it was synced last."""
    found: dict[str, set[str]] = {}
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        fsync(descriptor)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if os.path.isdir(path):
            found[path] = set(os.listdir(path))

    monkeypatch.setattr(os, "fsync", noting)
    return found


def test_all_is_on_the_disk_before_the_metadata_log_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, config = make(tmp_path)
    synced = note_syncs(monkeypatch)
    output = tmp_path / "new" / "dirs" / "out"
    scratch = output.with_name("out.part")
    looked: list[Path] = []

    def look(_metadata_log: Path) -> None:
        for root, directories, files in os.walk(tmp_path / "new"):
            path = scratch / Path(root).relative_to(output) if Path(root).is_relative_to(output) else Path(root)
            assert synced[str(path)] == {*directories, *files}, root
            looked.append(path)
        assert "new" in synced[str(tmp_path)]

    monkeypatch.setattr(growing, "remove_metadata_log", look)
    grow(config, nodes(*CONTROLLERS), output, 1)
    assert scratch / "single" in looked


def test_the_metadata_log_of_before_is_kept_and_can_be_put_back(tmp_path: Path) -> None:
    properties, config = make(tmp_path)
    log = tmp_path / "data" / PARTITION_DIRECTORY
    before = {path.name: path.read_bytes() for path in log.iterdir()}
    assert run(properties, "--output", str(tmp_path / "out")).exit_code == 0
    assert sorted(path.name for path in (tmp_path / "data").iterdir() if path.is_dir()) == []
    assert kinds(config) == ["metadata"], "it has grown already"
    (tmp_path / "out" / "single" / PARTITION_DIRECTORY).rename(log)
    assert {path.name: path.read_bytes() for path in log.iterdir()} == before
    assert kinds(config) == []


def test_nothing_is_changed_by_a_check(tmp_path: Path) -> None:
    properties, _ = make(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    result = run(properties, "--check", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"findings": [], "done": False, "files": {}}
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("step", ["write_controller_dir", "keep_copy", "remove_metadata_log"])
def test_a_failure_leaves_the_broker_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    properties, config = make(tmp_path)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device", "somewhere")

    before = [path for path in sorted((tmp_path / "data").rglob("*")) if path.name != ".lock"]
    with monkeypatch.context() as patch:
        patch.setattr(growing, step, fail)
        result = run(properties, "--output", str(tmp_path / "out"))
    assert result.exit_code == 1
    assert "No space left" in result.stderr
    assert [path for path in sorted((tmp_path / "data").rglob("*")) if path.name != ".lock"] == before
    assert kinds(config) == []
    if step != "remove_metadata_log":  # then all that is new is whole
        assert not (tmp_path / "out").exists()
        assert run(properties, "--output", str(tmp_path / "out")).exit_code == 0


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    properties, _ = make(tmp_path)
    (tmp_path / "out").mkdir()
    result = run(properties, "--output", str(tmp_path / "out"))
    assert result.exit_code == 1
    assert "is there already" in result.stderr


def test_a_broker_that_was_killed(tmp_path: Path) -> None:
    properties, config = make(tmp_path)
    clean_shutdown.remove(tmp_path / "data")
    assert kinds(config) == ["unclean"]
    assert run(properties, "--output", str(tmp_path / "out")).exit_code == 3
    assert not (tmp_path / "out").exists()


def test_ids_that_are_taken(tmp_path: Path) -> None:
    _, config = make(tmp_path)
    assert kinds(config, "1@c1:9093", "100@c2:9093", "100@c3:9093") == ["node-id", "node-id"]
    other = VersionedRecord(m.RegisterBrokerRecord(broker_id=100, broker_epoch=6, fenced=True), 3)
    _, config = make(tmp_path / "other", other)
    assert kinds(config) == ["node-id"]


def test_an_even_number_of_controllers(tmp_path: Path) -> None:
    _, config = make(tmp_path)
    (found,) = examine_growth(config, nodes(*CONTROLLERS[:2]))
    assert (found.kind, found.severity.is_fault) == ("controllers", False)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_an_address_that_others_cannot_reach(tmp_path: Path, host: str) -> None:
    properties, config = make(tmp_path, listeners=f"PLAINTEXT://{host}:9092")
    assert kinds(config) == ["address"]
    assert run(properties, "--check").exit_code == 3
    assert run(properties, "--output", str(tmp_path / "out")).exit_code == 0, "on one machine it does"


def test_metadata_of_too_old_a_version(tmp_path: Path) -> None:
    _, config = make(tmp_path, level=20)
    assert kinds(config) == ["feature"]


def test_a_feature_that_brokers_of_a_cluster_lack(tmp_path: Path) -> None:
    group = VersionedRecord(m.FeatureLevelRecord(name="group.version", feature_level=1), 0)
    _, config = make(tmp_path, group)
    assert kinds(config) == ["feature"]


def test_a_quorum_that_is_there_already(tmp_path: Path) -> None:
    _, config = make(tmp_path, voter=Voter(55, random_uuid(), (), (0, 1)))
    assert kinds(config) == ["controller"]


def test_settings_of_a_broker_that_has_joined(tmp_path: Path) -> None:
    _, config = make(
        tmp_path,
        process_roles="broker",
        controller_quorum_bootstrap_servers="c1:9093",
        listeners="PLAINTEXT://b1:9092",
    )
    assert kinds(config) == ["settings"]


@pytest.mark.parametrize("text", ["c1:9093", "a@c1:9093", "100@c1", "100@:9093", f"{1 << 31}@c1:9093"])
def test_what_names_no_controller(tmp_path: Path, text: str) -> None:
    properties, _ = make(tmp_path)
    result = CliRunner().invoke(main, ["cluster", "grow", str(properties), "--controller", text, "--check"])
    assert result.exit_code == 1
    assert "accepted is ID@HOST:PORT" in result.stderr


def test_either_check_or_output(tmp_path: Path) -> None:
    properties, _ = make(tmp_path)
    assert run(properties).exit_code == 2
    assert run(properties, "--check", "--output", str(tmp_path / "out")).exit_code == 2


def test_a_broker_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, config = make(tmp_path)
    monkeypatch.setattr("pybroker.storage.files.directory_lock.holder", lambda _path: 4711)
    (found,) = examine_growth(config, nodes(*CONTROLLERS))
    assert found.kind == "in-use"
    assert "4711" in found.what


def test_settings_of_brokers_give_way_to_that_of_all(tmp_path: Path) -> None:
    own = [
        VersionedRecord(m.ConfigRecord(resource_type=4, resource_name=name, name="min.insync.replicas", value=value), 0)
        for name, value in (("1", "3"), ("", "1"))
    ]
    _, config = make(tmp_path, *own)
    grow(config, nodes(*CONTROLLERS), tmp_path / "out", 1000)
    assert written(tmp_path / "out", 100).config(4, "1") == {}
    assert written(tmp_path / "out", 100).config(4, "") == {"min.insync.replicas": "1"}
