"""`pybroker topics` against a broker."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pybroker.cli.main import main

Run = Callable[..., Result]
Lines = Callable[..., list[Any]]


def test_a_topic_from_its_making_to_its_end(run: Run, lines_of: Lines) -> None:
    name = "cli.whole-life"
    made = run("topics", "create", "--topic", name, "--partitions", "3", "--config", "retention.ms=1000000")
    assert made.stdout == f"created topic {name}: 3 partitions, replication factor 1\n"
    assert name in run("topics", "list").stdout.splitlines()
    (topic,) = lines_of("topics", "describe", "--topic", name, "--offsets")
    assert topic["configs"] == {"retention.ms": "1000000"}
    assert [each["partition"] for each in topic["partitions"]] == [0, 1, 2]
    assert {(each["leader"], each["first_offset"], each["end_offset"]) for each in topic["partitions"]} == {(1, 0, 0)}
    run("topics", "alter", "--topic", name, "--partitions", "4")
    assert len(lines_of("topics", "describe", "--topic", name)[0]["partitions"]) == 4
    assert run("topics", "delete", "--topic", name).stdout == f"deleted topic {name}\n"
    assert name not in run("topics", "list").stdout.splitlines()


def test_a_pipe_gets_tabs_and_a_line_of_titles(run: Run) -> None:
    run("topics", "create", "--topic", "cli-tabs", "--replica-assignment", "1,1")
    lines = run("topics", "describe", "--topic", "cli-tab.*").stdout.splitlines()
    assert lines[0].split("\t") == ["topic", "partition", "leader", "replicas", "isr", "offline"]
    assert lines[1:] == ["cli-tabs\t0\t1\t1\t1\t-", "cli-tabs\t1\t1\t1\t1\t-"]
    assert run("topics", "describe", "--topic", "cli-tabs", "--unavailable-partitions").stdout == ""
    assert run("topics", "describe", "--topic", "cli-tabs", "--topics-with-overrides").stdout == ""


def test_what_is_there_or_missing(run: Run) -> None:
    run("topics", "create", "--topic", "cli-twice")
    again = run("topics", "create", "--topic", "cli-twice", status=1)
    assert "TOPIC_ALREADY_EXISTS" in again.stderr
    assert run("topics", "create", "--topic", "cli-twice", "--if-not-exists").stdout.endswith("is there already\n")
    assert "UNKNOWN_TOPIC" in run("topics", "delete", "--topic", "cli-none", status=1).stderr
    assert run("topics", "delete", "--topic", "cli-none", "--if-exists").stdout == "there is no topic cli-none\n"
    assert "UNKNOWN_TOPIC" in run("topics", "alter", "--topic", "cli-none", "--partitions", "2", status=1).stderr
    run("topics", "alter", "--topic", "cli-none", "--partitions", "2", "--if-exists")
    assert "no topic matches cli-none" in run("topics", "describe", "--topic", "cli-none", status=1).stderr
    run("topics", "describe", "--topic", "cli-none", "--if-exists")


def test_a_name_to_delete_is_no_regular_expression(run: Run) -> None:
    run("topics", "create", "--topic", "cli-a.b")
    run("topics", "create", "--topic", "cli-aXb")
    run("topics", "delete", "--topic", "cli-a.b")
    assert "cli-aXb" in run("topics", "list").stdout.splitlines()


def test_validating_makes_nothing(run: Run) -> None:
    run("topics", "create", "--topic", "cli-not-made", "--validate-only")
    assert "cli-not-made" not in run("topics", "list").stdout.splitlines()
    wrong = run(
        "topics", "create", "--topic", "cli-not-made", "--config", "retention.ms=x", "--validate-only", status=1
    )
    assert "retention.ms" in wrong.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("create", "--topic", "t", "--config", "retention.ms"),
        ("create", "--topic", "t", "--replica-assignment", "1:x"),
        ("create", "--topic", "t", "--replica-assignment", "1", "--partitions", "2"),
        ("list", "--topic", "("),
        ("alter", "--topic", "t"),
    ],
)
def test_a_wrong_command_line(run: Run, words: tuple[str, ...]) -> None:
    run("topics", *words, status=2)


def test_nobody_there() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        result = CliRunner().invoke(main, ["topics", "list", "--bootstrap-server", address])
    assert result.exit_code == 1
    assert result.stderr == f"pybroker: {address} cannot be reached: Connection refused\n"


def test_an_address_that_is_none() -> None:
    result = CliRunner().invoke(main, ["topics", "list", "--bootstrap", "localhost"])
    assert result.exit_code == 1
    assert "HOST:PORT" in result.stderr


def test_another_number_of_replicas(run: Run) -> None:
    run("topics", "create", "--topic", "cli-replicas", "--partitions", "2")
    wanted = ("topics", "reassign", "--topic", "cli-replicas", "--replication-factor")
    assert json.loads(run(*wanted, "1").stdout) == {"version": 1, "partitions": []}
    assert run(*wanted, "1", "--broker-list", "1", "--execute").stdout == "0 partitions reassigned\n"
    assert "2 replicas need as many brokers, and there are 1" in run(*wanted, "2", status=1).stderr
    assert "broker 7 is not there" in run(*wanted, "1", "--broker-list", "1,7", status=1).stderr
    assert "accepted are ids" in run(*wanted, "1", "--broker-list", "one", status=2).stderr
    missing = run("topics", "reassign", "--topic", "cli-none", "--replication-factor", "1", status=1)
    assert "UNKNOWN_TOPIC" in missing.stderr
