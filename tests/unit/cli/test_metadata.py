"""`pybroker metadata` against a broker, and against the files it leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from pybroker.cli.metadata.metadata_files import read_image
from pybroker.metadata.snapshot import write_image
from pybroker.protocol import messages as m
from pybroker.testing import Broker
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.broker import BrokerProcess

Run = Callable[..., Result]


def test_a_running_broker(run: Run, kafka_broker: Broker) -> None:
    kafka_broker.create_topic("cli-tree", partitions=2, config={"retention.ms": "123456"})
    top = ["brokers/", "cluster", "configs/", "features/", "groups/", "quorum", "topics/"]
    assert run("metadata", "ls").stdout.splitlines() == top
    assert run("metadata", "ls", "/topics/cli-tree").stdout == "0\n1\n"
    assert run("metadata", "ls", "/topics/cli-tree/0").stdout == "0\n"
    topic = json.loads(run("metadata", "cat", "topics/cli-tree").stdout)
    assert (topic["name"], topic["partitions"]) == ("cli-tree", 2)
    assert json.loads(run("metadata", "cat", "/topics/cli-tree/1/").stdout)["leader"] == 1
    assert run("metadata", "cat", "/configs/topics/cli-tree/retention.ms").stdout == "123456\n"
    assert json.loads(run("metadata", "cat", "/brokers/1").stdout)["host"] == "127.0.0.1"
    assert json.loads(run("metadata", "cat", "/features/metadata.version").stdout)["level"] > 0
    assert json.loads(run("metadata", "cat", "/quorum").stdout)["voters"] == [1]
    assert json.loads(run("metadata", "cat", "/cluster", "--json").stdout)["brokers"] == [1]
    assert "/topics/cli-tree/1" in run("metadata", "ls", "-R", "/topics").stdout.splitlines()
    assert "<default>/" in run("metadata", "ls", "/configs/brokers").stdout.splitlines()


def test_quotas_and_credentials(run: Run, tmp_path: Path) -> None:
    paths = ("users/ann/request_percentage", "users/ann/SCRAM-SHA-256", "users/<default>/clients/a%2Fb", "ips/10.0.0.1")
    with BrokerProcess(tmp_path) as broker, ProtocolClient(broker.port) as client:
        part, op = m.AlterClientQuotasRequest.EntityData, m.AlterClientQuotasRequest.OpData
        entries = [
            m.AlterClientQuotasRequest.EntryData(
                entity=[part(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                ops=[op(key=key, value=value, remove=False)],
            )
            for entity, key, value in (
                ({"user": "ann"}, "request_percentage", 50.0),
                ({"user": None, "client-id": "a/b"}, "producer_byte_rate", 2.0),
                ({"client-id": None}, "consumer_byte_rate", 3.0),
                ({"ip": "10.0.0.1"}, "connection_creation_rate", 4.0),
            )
        ]
        assert not any(row.error_code for row in client.call(m.AlterClientQuotasRequest(entries=entries), 1).entries)
        upsertion = m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name="ann", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"secret"
        )
        client.call(m.AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
        where = ("--bootstrap", broker.bootstrap)
        listed = run("metadata", "ls", "-R", *where, "/configs/users").stdout.splitlines()
        live = [run("metadata", "cat", *where, f"/configs/{path}").stdout for path in paths]
        everybody = run("metadata", "ls", *where, "/configs/clients").stdout
    assert listed == [
        "/configs/users/<default>/",
        "/configs/users/<default>/clients/",
        "/configs/users/<default>/clients/a%2Fb/",
        "/configs/users/<default>/clients/a%2Fb/producer_byte_rate",
        "/configs/users/ann/",
        "/configs/users/ann/SCRAM-SHA-256",
        "/configs/users/ann/request_percentage",
    ]
    assert everybody == "<default>/\n"
    assert live[:2] == ["50.0\n", "iterations=4096\n"]
    assert [json.loads(each) for each in live[2:]] == [{"producer_byte_rate": 2.0}, {"connection_creation_rate": 4.0}]
    files = ("--snapshot", str(tmp_path))
    assert run("metadata", "ls", "-R", *files, "/configs/users").stdout.splitlines() == listed
    assert [run("metadata", "cat", *files, f"/configs/{path}").stdout for path in paths] == live


def test_groups_are_there_while_it_runs(run: Run, kafka_broker: Broker) -> None:
    kafka_broker.create_topic("cli-tree-group")
    reset = ("groups", "reset-offsets", "--group", "cli-tree", "--topic", "cli-tree-group", "--to-latest", "--execute")
    run(*reset)
    group = json.loads(run("metadata", "cat", "/groups/cli-tree").stdout)
    assert group["offsets"] == {"cli-tree-group": {"0": 0}}


@pytest.mark.parametrize("path", ["/nothing", "/topics/no-such-topic", "/cluster/below"])
def test_no_such_path(run: Run, path: str) -> None:
    name = path.rpartition("/")[2]
    assert f"there is no '{name}' in" in run("metadata", "cat", path, status=1).stderr
    assert f"there is no '{name}' in" in run("metadata", "ls", path, status=1).stderr


def test_a_path_that_only_holds_others(run: Run) -> None:
    assert "pybroker metadata ls /topics" in run("metadata", "cat", "/topics", status=1).stderr


def test_files_say_the_same(run: Run, tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    paths = ("/topics/at-rest", "/configs/topics/at-rest")
    with BrokerProcess(log_dir) as broker:
        where = ("--bootstrap", broker.bootstrap)
        run("topics", "create", *where, "--topic", "at-rest", "--partitions", "2", "--config", "retention.ms=77777")
        live = [run("metadata", "cat", *where, path).stdout for path in paths]
        leader = json.loads(run("metadata", "cat", *where, "/topics/at-rest/1").stdout)
        cluster = json.loads(run("metadata", "cat", *where, "/cluster").stdout)
    metadata_dir = log_dir / "__cluster_metadata-0"
    snapshot, _ = write_image(metadata_dir, read_image(log_dir), 0)
    for source in (log_dir, metadata_dir, metadata_dir / snapshot.file_name):
        files = ("--snapshot", str(source))
        assert [run("metadata", "cat", path, *files).stdout for path in paths] == live
        found = json.loads(run("metadata", "cat", "/topics/at-rest/1", *files).stdout)
        assert (found["replicas"], found["isr"]) == (leader["replicas"], leader["isr"])
        assert json.loads(run("metadata", "cat", "/cluster", *files).stdout)["cluster_id"] == cluster["cluster_id"]


def test_files_that_hold_no_metadata(run: Run, tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020}.log").touch()
    for path, says in (
        ("meta.properties", "no snapshot of metadata"),
        ("t-0", "not __cluster_metadata-0"),
        ("", "no __cluster_metadata-0 in it"),
    ):
        assert says in run("metadata", "ls", "--snapshot", str(tmp_path / path), status=1).stderr
    run("metadata", "ls", "--snapshot", str(tmp_path / "missing"), status=2)
