"""A cluster that has finalised features which a broker of ours lacks: it is refused, and what it says helps."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.broker import BrokerProcess
from tests.harness.kafka import KafkaBroker, run_tool

TIMEOUT_S = 120.0
NODE_ID = "7"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("kafka") / "data") as running:
        yield running


def joining(kafka: KafkaBroker) -> dict[str, str]:
    return {
        "process.roles": "broker",
        "node.id": NODE_ID,
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{kafka.controller_port}",
    }


def serve(log_dir: Path, settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a broker that is expected to end by itself."""
    command = [sys.executable, "-m", "pybroker", "serve", "--override", f"log.dirs={log_dir}"]
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "pybroker.metrics.listener": "127.0.0.1:0", **settings}
    for key, value in settings.items():
        command += ["--override", f"{key}={value}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def test_the_command_that_is_named_lets_the_broker_join(kafka: KafkaBroker, tmp_path: Path) -> None:
    refused = serve(tmp_path / "data", joining(kafka))
    assert refused.returncode == 1
    assert "the cluster has finalised group.version=1, share.version=2" in refused.stderr
    told = re.search(r"downgrade ((?:--feature \S+=\d+ ?)+)`", refused.stderr)
    assert told is not None, refused.stderr
    controller = f"127.0.0.1:{kafka.controller_port}"
    run_tool(
        "org.apache.kafka.tools.FeatureCommand",
        *("--bootstrap-controller", controller, "downgrade", *told[1].split()),
    )
    with BrokerProcess(tmp_path / "data", overrides=joining(kafka)) as joined:
        described = kafka.tool("org.apache.kafka.tools.BrokerApiVersionsCommand").stdout.decode()
        assert f"(id: {NODE_ID} " in described
        assert joined.ready.fields["node.id"] == NODE_ID


def test_log_dirs_of_another_cluster_are_refused(kafka: KafkaBroker, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", overrides={"node.id": NODE_ID}):
        pass
    refused = serve(tmp_path / "data", joining(kafka))
    assert refused.returncode == 1
    assert "check controller.quorum.bootstrap.servers, or set log.dirs to other directories" in refused.stderr


def test_a_brokers_listener_is_not_taken_for_a_controllers(kafka: KafkaBroker, tmp_path: Path) -> None:
    settings = {
        **joining(kafka),
        "controller.quorum.bootstrap.servers": kafka.bootstrap,
        "initial.broker.registration.timeout.ms": "100",
    }
    refused = serve(tmp_path / "data", settings)
    assert refused.returncode == 1
    assert "this is the listener of a broker, and one of a controller is needed" in refused.stderr
