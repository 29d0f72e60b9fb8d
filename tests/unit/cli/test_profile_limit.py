"""`pybroker profile limit` against a broker of ours."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pybroker.cli.main import main
from tests.harness.broker import BrokerProcess

RECORDED = Path(__file__).parents[1] / "profiles/measurements/virtual-machine.json"
PATHS = ["produce.256KiB", "produce.16KiB", "fetch.1MiB", "fetch.64KiB", "produce.1KiB", "round_trip.1KiB"]


def limit(*arguments: str) -> Result:
    result = CliRunner().invoke(main, ["profile", "limit", "--measurement", str(RECORDED), *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(overrides={"pybroker.profile": "generic", "message.max.bytes": "300000"}) as started:
        yield started


def topics(broker: BrokerProcess) -> list[str]:
    """Of clients, but for directories whose deletion is under way."""
    names = (each.name for each in broker.log_dir.iterdir() if each.is_dir())
    return [name for name in names if name != "__cluster_metadata-0" and not name.endswith("-delete")]


def test_every_path_is_held_against_its_bound(broker: BrokerProcess) -> None:
    result = limit("--bootstrap", broker.bootstrap, "--seconds", "2", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["bootstrap"], told["is_durable"]) == (broker.bootstrap, False)
    paths = told["paths"]
    assert [each["path"] for each in paths] == PATHS
    for each in paths:
        assert each["bytes_per_second"] > 0
        if each["path"] == "round_trip.1KiB":
            assert each["latency_share"] > 0
        else:
            assert each["rate_share"] > 0
            assert each["cpu_share"] is None or each["cpu_share"] > 0
    assert topics(broker) == []


def test_as_a_table_with_durable_acknowledgements(broker: BrokerProcess) -> None:
    result = limit("--bootstrap", broker.bootstrap, "--seconds", "1", "--durable")
    assert result.exit_code == 0, result.output
    assert [line.split()[0] for line in result.stdout.splitlines() if line.startswith(tuple(PATHS))] == PATHS
    assert "write.durable.256KiB" in result.output
    assert "acknowledgements wait for the disk" in result.output
    assert "note on that measurement: the machine was busy" in result.output
    assert topics(broker) == []


def test_ctrl_c_deletes_the_topic(broker: BrokerProcess) -> None:
    arguments = ["--bootstrap", broker.bootstrap, "--measurement", str(RECORDED), "--seconds", "600"]
    command = [sys.executable, "-m", "pybroker", "profile", "limit", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            while not topics(broker):
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            errors = process.communicate(timeout=120)[1]
        finally:
            process.kill()
    assert process.returncode == 130
    assert "pybroker: stopped" in errors
    assert topics(broker) == []


def test_an_error_of_the_broker_is_told_and_nothing_left(broker: BrokerProcess) -> None:
    broker.stop()
    broker.set_override("message.max.bytes", "100000")
    broker.start()
    result = limit("--bootstrap", broker.bootstrap, "--seconds", "1")
    assert result.exit_code == 1
    assert f"{broker.bootstrap}: 127.0.0.1" in result.output
    assert "answers with error code 10" in result.output
    assert topics(broker) == []


def test_nobody_listens() -> None:
    result = limit("--bootstrap", "127.0.0.1:1")
    assert (result.exit_code, "127.0.0.1:1: Connection refused" in result.output) == (1, True)
    assert limit("--bootstrap", "nothing").exit_code == 1
