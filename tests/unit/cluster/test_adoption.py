"""What would stop pybroker from taking a broker's place is found in its log dirs, each thing planted here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pybroker.cli.main import main
from pybroker.cluster.adoption import examine_adoption
from pybroker.metadata.image import QuorumImage, Voter
from pybroker.metadata.log_files import PARTITION_DIRECTORY, SnapshotId
from pybroker.metadata.records import VersionedRecord
from pybroker.metadata.snapshot import write_snapshot
from pybroker.protocol import messages as m
from pybroker.protocol.uuids import random_uuid
from pybroker.storage.files import clean_shutdown
from pybroker.storage.files.meta_properties import MetaProperties

NODE = 2
DIRECTORY = random_uuid()
PLAINTEXT, SASL_SSL = 0, 3
VOTER_ELSEWHERE = Voter(100, random_uuid(), (), (0, 1))


def feature(name: str, level: int) -> VersionedRecord:
    return VersionedRecord(m.FeatureLevelRecord(name=name, feature_level=level), 0)


def registration(directories: list[bytes], protocol: int = PLAINTEXT, node_id: int = NODE) -> VersionedRecord:
    endpoint = m.RegisterBrokerRecord.BrokerEndpoint(name="CLIENTS", host="h", port=9092, security_protocol=protocol)
    record = m.RegisterBrokerRecord(
        broker_id=node_id, incarnation_id=random_uuid(), broker_epoch=7, end_points=[endpoint], log_dirs=directories
    )
    return VersionedRecord(record, 3)


def make(log_dir: Path, *records: VersionedRecord, voters: tuple[Voter, ...] = (VOTER_ELSEWHERE,)) -> Path:
    """A log dir as a broker of Apache Kafka leaves it."""
    metadata = log_dir / PARTITION_DIRECTORY
    metadata.mkdir(parents=True)
    MetaProperties(NODE, "cluster", DIRECTORY).write(log_dir)
    clean_shutdown.write(log_dir, 7)
    known = {type(each.record) for each in records}
    content = list(records)
    if m.FeatureLevelRecord not in known:
        content.insert(0, feature("metadata.version", 30))
    if m.RegisterBrokerRecord not in known:
        content.append(registration([DIRECTORY]))
    quorum = QuorumImage(kraft_version=1, voters=voters)
    write_snapshot(metadata / SnapshotId(10, 1).file_name, 1, 1, 1, quorum, content)
    return log_dir


def kinds(*log_dirs: Path) -> list[str]:
    return [finding.kind for finding in examine_adoption(log_dirs)]


def test_a_broker_that_can_be_taken_over(tmp_path: Path) -> None:
    log_dir = make(tmp_path / "data")
    (log_dir / "t-0").mkdir()
    assert kinds(log_dir) == []
    result = CliRunner().invoke(main, ["cluster", "adopt", "--check", str(log_dir), "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"adoptable": True, "findings": []}


def test_the_command_says_what_is_in_the_way(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["cluster", "adopt", "--check", str(tmp_path)])
    assert result.exit_code == 3
    assert "it has no meta.properties" in result.stdout


def test_check_is_not_optional(tmp_path: Path) -> None:
    assert CliRunner().invoke(main, ["cluster", "adopt", str(tmp_path)]).exit_code == 2


@pytest.mark.parametrize("topic", ["__transaction_state", "__share_group_state"])
def test_partitions_of_coordinators_that_are_not_there(tmp_path: Path, topic: str) -> None:
    log_dir = make(tmp_path / "data")
    for index in (10, 3):
        (log_dir / f"{topic}-{index}").mkdir()
    (found,) = examine_adoption([log_dir])
    assert (found.kind, found.subject) == ("coordinator", f"{topic} 3, 10")


def test_a_feature_that_is_not_served(tmp_path: Path) -> None:
    log_dir = make(tmp_path / "data", feature("metadata.version", 30), feature("share.version", 1))
    (found,) = examine_adoption([log_dir])
    assert (found.kind, found.subject) == ("feature", "share.version")
    assert "downgrade --feature share.version=0" in found.remedy


def test_a_newer_metadata_version(tmp_path: Path) -> None:
    (found,) = examine_adoption([make(tmp_path / "data", feature("metadata.version", 99))])
    assert (found.kind, found.subject) == ("feature", "metadata.version")


def test_a_controller_among_several(tmp_path: Path) -> None:
    own = Voter(NODE, DIRECTORY, (), (0, 1))
    assert kinds(make(tmp_path / "several", voters=(own, VOTER_ELSEWHERE))) == ["controller"]
    assert kinds(make(tmp_path / "alone", voters=(own,))) == []


def test_a_log_dir_that_was_not_given(tmp_path: Path) -> None:
    log_dir = make(tmp_path / "data", registration([DIRECTORY, random_uuid()]))
    assert kinds(log_dir) == ["log-dirs"]


def test_dirs_of_two_brokers(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    MetaProperties(NODE + 1, "cluster", random_uuid()).write(other)
    clean_shutdown.write(other, 7)
    assert kinds(make(tmp_path / "data"), other) == ["identity"]


def test_an_unknown_broker(tmp_path: Path) -> None:
    assert kinds(make(tmp_path / "data", registration([DIRECTORY], node_id=NODE + 1))) == ["registration"]


def test_a_listener_that_is_not_plain(tmp_path: Path) -> None:
    (found,) = examine_adoption([make(tmp_path / "data", registration([DIRECTORY], SASL_SSL))])
    assert (found.kind, found.subject) == ("listener", "CLIENTS")


def test_records_without_effect_here(tmp_path: Path) -> None:
    acl: Any = m.AccessControlEntryRecord(id=random_uuid(), resource_name="t", principal="User:a", host="*")
    (found,) = examine_adoption([make(tmp_path / "data", VersionedRecord(acl, 0))])
    assert (found.kind, found.subject) == ("not-served", "access control lists")


def test_credentials_and_quotas_without_effect_here(tmp_path: Path) -> None:
    scram: Any = m.UserScramCredentialRecord(name="ann", mechanism=1, iterations=4096)
    part = m.ClientQuotaRecord.EntityData(entity_type="user", entity_name="ann")
    quota: Any = m.ClientQuotaRecord(entity=[part], key="request_percentage", value=200.0)
    found = examine_adoption([make(tmp_path / "data", VersionedRecord(scram, 0), VersionedRecord(quota, 0))])
    assert [(each.kind, each.subject) for each in found] == [
        ("not-served", "SCRAM credentials"),
        ("not-served", "client quotas request_percentage"),
    ]


@pytest.mark.parametrize("value", ["true", "TRUE", " True "])
def test_a_tiered_topic(tmp_path: Path, value: str) -> None:
    topic_id = random_uuid()
    records = [
        VersionedRecord(m.TopicRecord(name="t", topic_id=topic_id), 0),
        VersionedRecord(
            m.ConfigRecord(resource_type=2, resource_name="t", name="remote.storage.enable", value=value), 0
        ),
    ]
    log_dir = make(tmp_path / "data", *records)
    assert kinds(log_dir) == []  # none of its partitions is here
    (log_dir / "t-0").mkdir()
    assert kinds(log_dir) == ["tiered"]


def test_an_unclean_stop(tmp_path: Path) -> None:
    log_dir = make(tmp_path / "data")
    clean_shutdown.remove(log_dir)
    assert kinds(log_dir) == ["unclean"]


def test_a_dir_that_a_broker_has(tmp_path: Path) -> None:
    log_dir = make(tmp_path / "data")
    holding = (
        "import sys; from pathlib import Path; from pybroker.storage.files.directory_lock import DirectoryLock\n"
        "lock = DirectoryLock(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holding, str(log_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        (found,) = examine_adoption([log_dir])
        holder.communicate(b"")
    assert found.kind == "in-use"
    assert f"process {holder.pid} has it" in found.what
    assert kinds(log_dir) == []


def test_a_dir_without_the_metadata_log(tmp_path: Path) -> None:
    log_dir = make(tmp_path / "data")
    for path in (log_dir / PARTITION_DIRECTORY).iterdir():
        path.unlink()
    (log_dir / PARTITION_DIRECTORY).rmdir()
    assert kinds(log_dir) == ["metadata"]


def test_the_metadata_log_of_before_metadata_log_dir_was_changed(tmp_path: Path) -> None:
    """Apache Kafka leaves it where it was."""
    other_id = random_uuid()
    both = registration([DIRECTORY, other_id])
    levels = [feature("metadata.version", 30), feature("share.version", 1)]
    old, present = make(tmp_path / "old", both), make(tmp_path / "present", both, *levels)
    MetaProperties(NODE, "cluster", other_id).write(present)
    metadata = present / PARTITION_DIRECTORY
    (metadata / SnapshotId(10, 1).file_name).rename(metadata / SnapshotId(20, 1).file_name)
    for log_dirs in ((old, present), (present, old)):
        (found,) = examine_adoption(log_dirs)
        assert (found.kind, found.subject) == ("feature", "share.version")


def test_metadata_that_cannot_be_followed(tmp_path: Path) -> None:
    log_dir = make(tmp_path / "data")
    (snapshot,) = (log_dir / PARTITION_DIRECTORY).iterdir()
    data = bytearray(snapshot.read_bytes())
    data[len(data) // 2] ^= 1
    snapshot.chmod(0o600)
    snapshot.write_bytes(data)
    assert kinds(log_dir) == ["metadata"]


def test_partitions_of_a_coordinator_that_are_to_come(tmp_path: Path) -> None:
    topic_id = random_uuid()
    partitions = [
        VersionedRecord(
            m.PartitionRecord(partition_id=index, topic_id=topic_id, replicas=replicas, isr=replicas, leader=1), 1
        )
        for index, replicas in enumerate(([1, 3], [3, NODE]))
    ]
    topic = VersionedRecord(m.TopicRecord(name="__transaction_state", topic_id=topic_id), 0)
    (found,) = examine_adoption([make(tmp_path / "data", topic, *partitions)])
    assert (found.kind, found.subject) == ("coordinator", "__transaction_state 1")


def test_controllers_that_cannot_be_reached(tmp_path: Path) -> None:
    endpoint = m.RegisterControllerRecord.ControllerEndpoint(
        name="SECURE", host="c", port=9093, security_protocol=SASL_SSL
    )
    controller = m.RegisterControllerRecord(controller_id=100, end_points=[endpoint])
    (found,) = examine_adoption([make(tmp_path / "data", VersionedRecord(controller, 0))])
    assert (found.kind, found.subject) == ("controller-listener", "SECURE")


def test_its_own_controller_need_not_be_reached(tmp_path: Path) -> None:
    """Of a node that was broker and controller in one, pybroker takes both places."""
    endpoint = m.RegisterControllerRecord.ControllerEndpoint(
        name="SECURE", host="c", port=9093, security_protocol=SASL_SSL
    )
    controller = m.RegisterControllerRecord(controller_id=NODE, end_points=[endpoint])
    own = Voter(NODE, DIRECTORY, (), (0, 1))
    assert kinds(make(tmp_path / "data", VersionedRecord(controller, 0), voters=(own,))) == []


@pytest.mark.parametrize(("magic", "expected"), [(0, ["message-format"]), (1, ["message-format"]), (2, [])])
def test_messages_of_old_formats(tmp_path: Path, magic: int, expected: list[str]) -> None:
    log_dir = make(tmp_path / "data")
    (log_dir / "t-0").mkdir()
    for base_offset, value in ((0, magic), (100, 2)):
        batch = bytearray(61)
        batch[7], batch[11], batch[16] = base_offset, 49, value
        (log_dir / "t-0" / f"{base_offset:020d}.log").write_bytes(batch)
    (log_dir / "t-0" / f"{200:020d}.log").touch()
    assert kinds(log_dir) == expected


def test_a_segment_that_was_made_ahead_of_its_records(tmp_path: Path) -> None:
    log_dir = make(tmp_path / "data")
    (log_dir / "t-0").mkdir()
    (log_dir / "t-0" / f"{0:020d}.log").write_bytes(bytes(4096))
    assert kinds(log_dir) == []


def test_a_partition_that_lies_in_two_dirs(tmp_path: Path) -> None:
    other_id = random_uuid()
    log_dir, other = make(tmp_path / "data", registration([DIRECTORY, other_id])), tmp_path / "other"
    for path in (log_dir, other):
        (path / "t-0").mkdir(parents=True)
    MetaProperties(NODE, "cluster", other_id).write(other)
    clean_shutdown.write(other, 7)
    (found,) = examine_adoption([log_dir, other])
    assert (found.kind, found.subject) == ("log-dirs", "t-0")


def test_replicas_in_a_dir_that_was_out_of_service(tmp_path: Path) -> None:
    topic_id = random_uuid()
    partitions = [
        VersionedRecord(
            m.PartitionRecord(
                partition_id=index, topic_id=topic_id, replicas=[NODE], isr=[NODE], leader=-1, directories=[directory]
            ),
            1,
        )
        for index, directory in enumerate((DIRECTORY, random_uuid(), random_uuid()))
    ]
    topic = VersionedRecord(m.TopicRecord(name="t", topic_id=topic_id), 0)
    (found,) = examine_adoption([make(tmp_path / "data", topic, *partitions)])
    assert (found.kind, found.subject) == ("log-dirs", "t-1 and 1 more")


def config(kind: int, name: str, key: str) -> VersionedRecord:
    return VersionedRecord(m.ConfigRecord(resource_type=kind, resource_name=name, name=key, value="1"), 0)


def test_settings_in_the_metadata(tmp_path: Path) -> None:
    records = [
        config(4, "", "num.io.threads"),
        config(4, str(NODE), "listener.name.x.ssl.keystore.location"),
        config(4, str(NODE), "log.cleaner.threads"),
        config(4, "3", "num.network.threads"),
    ]
    (found,) = examine_adoption([make(tmp_path / "data", *records)])
    assert (found.kind, found.subject) == ("settings", "listener.name.x.ssl.keystore.location, num.io.threads")


def test_a_setting_of_a_topic_from_the_future(tmp_path: Path) -> None:
    topic = VersionedRecord(m.TopicRecord(name="t", topic_id=random_uuid()), 0)
    log_dir = make(tmp_path / "data", topic, config(2, "t", "of.tomorrow"), config(2, "t", "retention.ms"))
    assert kinds(log_dir) == []  # none of its partitions is here
    (log_dir / "t-0").mkdir()
    (found,) = examine_adoption([log_dir])
    assert (found.kind, found.subject) == ("settings", "topic t: of.tomorrow")


@pytest.mark.parametrize(("kind", "what"), [(16, "subscriptions"), (32, "settings of groups")])
def test_settings_of_what_is_not_served(tmp_path: Path, kind: int, what: str) -> None:
    (found,) = examine_adoption([make(tmp_path / "data", config(kind, "g", "key"))])
    assert (found.kind, found.severity.is_fault) == ("not-served", False)
    assert what in found.subject


def properties(tmp_path: Path, **settings: str) -> Path:
    """server.properties of the broker that `make` makes."""
    path = tmp_path / "server.properties"
    given = {
        "process.roles": "broker",
        "node.id": str(NODE),
        "listeners": "PLAINTEXT://:9092",
        "controller.quorum.bootstrap.servers": "c:9093",
        "log.dirs": str(tmp_path / "data"),
        **{key.replace("_", "."): value for key, value in settings.items()},
    }
    path.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    return path


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, None),
        ({"listeners": "SSL://:9092"}, "SSL"),
        ({"authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}, "authorizer.class.name"),
        ({"remote_log_storage_system_enable": "true"}, "remote.log.storage.system.enable"),
        ({"super_users": "User:admin"}, "super.users"),
        ({"of_tomorrow": "1"}, "of.tomorrow"),
        ({"listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_SSL"}, "CONTROLLER"),
        ({"log_dirs": "/elsewhere"}, "not in log.dirs"),
        ({"node_id": "77"}, "node.id=77"),
    ],
)
def test_its_server_properties(tmp_path: Path, settings: dict[str, str], expected: str | None) -> None:
    log_dir, path = make(tmp_path / "data"), properties(tmp_path, **settings)
    result = CliRunner().invoke(main, ["cluster", "adopt", "--check", str(log_dir), "--config", str(path), "--json"])
    findings = json.loads(result.stdout)["findings"]
    if expected is None:
        assert (result.exit_code, findings) == (0, [])
    else:
        assert result.exit_code == 3
        assert expected in " ".join(" ".join(each.values()) for each in findings)


def test_a_broker_of_a_cluster_without_listeners_would_be_on_loopback(tmp_path: Path) -> None:
    """Apache Kafka's would have been on every interface."""
    log_dir, path = make(tmp_path / "data"), properties(tmp_path)
    path.write_text(path.read_text().replace("listeners=PLAINTEXT://:9092\n", ""))
    (found,) = examine_adoption([log_dir], path)
    assert found.severity.is_fault
    assert "listeners is not set, so the broker listens on 127.0.0.1:9092 alone" in found.what


def test_settings_without_effect_are_worth_knowing(tmp_path: Path) -> None:
    log_dir, path = make(tmp_path / "data"), properties(tmp_path, num_io_threads="8")
    (found,) = examine_adoption([log_dir], path)
    assert (found.kind, found.severity.is_fault) == ("settings", False)
    assert "num.io.threads" in found.what


@pytest.mark.parametrize("version", [0, 1])
def test_a_dir_of_a_cluster_that_came_from_zookeeper_is_taken_over(tmp_path: Path, version: int) -> None:
    log_dir = make(tmp_path / "data")
    MetaProperties(NODE, "cluster", DIRECTORY, version).write(log_dir)
    (log_dir / "t-0").mkdir()
    assert kinds(log_dir) == []


@pytest.mark.parametrize(("version", "names_zookeeper"), [(0, True), (1, False)])
def test_metadata_that_zookeeper_may_have_are_told_of(tmp_path: Path, version: int, names_zookeeper: bool) -> None:
    MetaProperties(NODE, "cluster", DIRECTORY, version).write(tmp_path)
    clean_shutdown.write(tmp_path, 7)
    (tmp_path / "t-0").mkdir()
    (finding,) = examine_adoption([tmp_path])
    assert finding.kind == "metadata"
    assert ("ZooKeeper" in finding.what and "migrate" in finding.remedy) is names_zookeeper


def test_a_damaged_identity_has_a_remedy_that_helps(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=7\nnode.id=2\n")
    (finding,) = examine_adoption([tmp_path])
    assert finding.kind == "identity"
    assert "log.dirs" not in finding.remedy
