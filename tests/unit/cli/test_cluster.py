"""`pybroker cluster` where there is no cluster to start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pybroker.cli.main import main
from pybroker.cluster.layout import ClusterFile, Layout, Node, NodeKind
from pybroker.cluster.ports import free_port


def make_stopped(directory: Path) -> None:
    nodes = (
        Node(1, NodeKind.JVM_BROKER, "127.0.0.1", free_port(), "A" * 22),
        Node(100, NodeKind.CONTROLLER, "127.0.0.1", free_port(), "B" * 22),
    )
    ClusterFile(directory).write(Layout("cluster", nodes), {})


@pytest.mark.parametrize("name", ["status", "down"])
def test_no_cluster(tmp_path: Path, name: str) -> None:
    result = CliRunner().invoke(main, ["cluster", name, "--dir", str(tmp_path)])
    assert result.exit_code == 1
    assert "holds no cluster" in result.stderr


def test_status_of_a_stopped_cluster(tmp_path: Path) -> None:
    make_stopped(tmp_path)
    result = CliRunner().invoke(main, ["cluster", "status", "--dir", str(tmp_path), "--json"])
    assert result.exit_code == 3
    found = json.loads(result.stdout)
    assert found["ready"] is False
    assert "broker 1 does not answer" in found["missing"]
    assert found["controller_id"] is None
    assert [(node["node_id"], node["state"], node["process_id"]) for node in found["nodes"]] == [
        (1, "ended", None),
        (100, "ended", None),
    ]
    as_text = CliRunner().invoke(main, ["cluster", "status", "--dir", str(tmp_path)])
    assert as_text.exit_code == 3
    assert "no controller leads the quorum" in as_text.stdout


def test_down_of_a_stopped_cluster(tmp_path: Path) -> None:
    make_stopped(tmp_path)
    assert CliRunner().invoke(main, ["cluster", "down", "--dir", str(tmp_path)]).exit_code == 0
    assert ClusterFile(tmp_path).exists()
    (tmp_path / "node-1").mkdir()
    assert CliRunner().invoke(main, ["cluster", "down", "--dir", str(tmp_path), "--delete"]).exit_code == 0
    assert not tmp_path.exists()


def test_what_a_stranger_put_there_stays(tmp_path: Path) -> None:
    make_stopped(tmp_path)
    (tmp_path / "mine").touch()
    assert CliRunner().invoke(main, ["cluster", "down", "--dir", str(tmp_path), "--delete"]).exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_options_of_a_new_cluster_are_refused_for_one_that_is_there(tmp_path: Path) -> None:
    make_stopped(tmp_path)
    result = CliRunner().invoke(
        main, ["cluster", "up", "--dir", str(tmp_path), "--jvm-brokers", "3", "--override", "a=b"]
    )
    assert result.exit_code == 1
    assert "--jvm-brokers, --override cannot be given" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--brokers", "0"], "at least one broker"),
        (["--override", "nonsense"], "accepted is KEY=VALUE"),
        (["--racks", "east,,west"], "accepted are names"),
    ],
)
def test_what_makes_no_cluster(tmp_path: Path, options: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["cluster", "up", "--dir", str(tmp_path / "new"), *options])
    assert result.exit_code == 1
    assert message in result.stderr
    assert not (tmp_path / "new").exists()
