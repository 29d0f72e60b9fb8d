"""A cluster of Apache Kafka's controllers and brokers, made, used, ended and started again by `pybroker cluster`."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pybroker.cli.main import main
from pybroker.cluster.local_cluster import LocalCluster
from tests.harness.cluster.checker import check
from tests.harness.cluster.history import History
from tests.harness.cluster.load import Load, read_everything
from tests.harness.cluster.replicas import check_replicas
from tests.harness.cluster.scenario import create_topic


def run(name: str, directory: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["cluster", name, "--dir", str(directory), *options])


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "cluster"
    if (tmp_path / "cluster").exists():
        LocalCluster.open(tmp_path / "cluster").delete()


def process_ids(status: Result) -> list[int]:
    return [node["process_id"] for node in json.loads(status.stdout)["nodes"]]


@pytest.mark.skipif(
    shutil.which("java") is None or shutil.which("mvn") is None, reason="Apache Kafka needs java, and mvn to fetch it"
)
def test_up_use_status_and_down(directory: Path) -> None:
    up = run("up", directory, "--brokers", "0", "--jvm-brokers", "2")
    assert up.exit_code == 0, up.output
    bootstrap = up.stdout.splitlines()[-1].removeprefix("bootstrap servers: ")
    status = run("status", directory, "--json")
    assert status.exit_code == 0, status.output
    found = json.loads(status.stdout)
    assert found["ready"] is True
    assert found["bootstrap_servers"] == bootstrap
    assert found["controller_id"] == 100
    pids = process_ids(status)
    assert all(Path(f"/proc/{pid}").exists() for pid in pids)

    places = [("t", 0), ("t", 1)]
    create_topic(LocalCluster.open(directory), "t", 2, 2, {})
    history = History()
    load = Load(bootstrap, places, history, producers=2, members=1)
    load.start()
    load.wait_for_progress()
    load.stop()
    read_everything(bootstrap, places, history)

    down = run("down", directory)
    assert down.exit_code == 0, down.output
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    log_dirs = {node_id: LocalCluster.open(directory).log_dir(node_id) for node_id in (1, 2)}
    assert check(history) + check_replicas(log_dirs, frozenset({"t"})) == []
