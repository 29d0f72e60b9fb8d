"""`pybroker config`: output and exit status of its commands."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from pybroker.cli.main import main
from pybroker.testing import Broker

ZOOKEEPER = Path(__file__).parents[1] / "config/data/zookeeper.properties"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["config", *arguments])


def test_check_ends_with_the_worst_that_it_found(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    for text, status, summary in (
        ("num.partitions=2\n", 0, "nothing to say"),
        ("num.io.threads=2\n", 0, "1 note"),
        ("nope=2\n", 1, "1 warning"),
        ("nope=2\nnum.partitions=0\nlog.dir=\n", 2, "2 errors, 1 warning"),
    ):
        path.write_text(f"listeners=PLAINTEXT://:9092\n{text}")
        result = run("check", str(path))
        assert (result.exit_code, result.output.splitlines()[-1]) == (status, f"{path}: {summary}")


def test_check_names_file_line_and_key() -> None:
    result = run("check", str(ZOOKEEPER), "--quiet")
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert lines[0].startswith(f"{ZOOKEEPER}:3: warning: port is without effect (Kafka had it until 2.8)")
    assert not any(": note: " in line for line in lines)


def test_check_as_json() -> None:
    result = run("check", "--json", "--override", "num.partitions=0", "--override", "nope=1")
    found = json.loads(result.output)
    assert (result.exit_code, found["starts"]) == (2, False)
    assert [(each["severity"], each["source"], each["keys"]) for each in found["findings"]] == [
        ("error", "--override", ["num.partitions"]),
        ("warning", "--override", ["nope"]),
        ("note", None, ["listeners"]),
    ]


def test_check_looks_at_the_profile_too() -> None:
    result = run("check", "--override", "pybroker.profile=/absent.toml")
    assert result.exit_code == 2
    assert "/absent.toml" in result.output


def test_diff(tmp_path: Path) -> None:
    result = run("diff", "--override", "num.partitions=3", "--override", "log.retention.hours=168")
    assert result.exit_code == 0
    assert [line.split() for line in result.output.splitlines()][1:] == [["num.partitions", "3", "1", "--override"]]
    assert "nothing differs" in run("diff").output
    found = json.loads(run("diff", "--json", str(ZOOKEEPER)).output)["differences"]
    assert {each["name"] for each in found} >= {"node.id", "log.dirs"}
    assert run("diff", "--override", "num.partitions=0").exit_code == 2


def test_diff_of_a_running_broker() -> None:
    written = {"num.io.threads": "3", "log.retention.hours": "168", "ssl.key.password": "hush"}
    with Broker({**written, "broker.id": "4", "zookeeper.connect": "zoo:2181", "port": "1"}) as broker:
        admin = ("configs", "alter", "--bootstrap-server", broker.bootstrap_servers)
        altered = CliRunner().invoke(main, [*admin, "--broker-defaults", "--add-config", "log.retention.ms=5"])
        found = run("diff", "--json", "--bootstrap-server", broker.bootstrap_servers)
    assert altered.exit_code == 0, altered.output
    rows = {each["name"]: (each["value"], each["where"]) for each in json.loads(found.output)["differences"]}
    assert rows["num.io.threads"] == ("3", "broker 4, its file")
    assert rows["ssl.key.password"] == ("[hidden]", "broker 4, its file")
    assert rows["log.retention.ms"] == ("5", "broker 4, dynamic default")
    assert "log.retention.hours" not in rows


def test_diff_takes_a_file_or_brokers() -> None:
    assert run("diff", str(ZOOKEEPER), "--bootstrap-server", "127.0.0.1:1").exit_code == 2
    assert run("diff", "--bootstrap-server", "127.0.0.1:1").exit_code == 1


def test_docs(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    assert run("docs", "--output", str(page)).exit_code == 0
    assert page.read_text() == run("docs").output
    one = run("docs", "compression.type")
    assert one.output.count("compression.type (") == 2
    assert json.loads(run("docs", "--json", "num.partitions").output)["settings"][0]["default"] == "1"
    assert run("docs", "--output", str(tmp_path)).exit_code == 2
    assert run("docs", "--output", str(tmp_path / "absent/page.md")).exit_code == 1


def test_docs_of_a_setting_that_is_none() -> None:
    dead, misspelt = run("docs", "host.name"), run("docs", "num.partition")
    assert (dead.exit_code, misspelt.exit_code) == (1, 1)
    assert "is no setting any more (Kafka had it until 2.8)" in dead.output
    assert "is num.partitions meant?" in misspelt.output
