"""`pybroker configs` against a broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from pybroker.cli.commands.configs_alter import parse_values

Run = Callable[..., Result]
Lines = Callable[..., list[Any]]


def test_a_topic(run: Run, lines_of: Lines) -> None:
    run("topics", "create", "--topic", "cli-configs")
    assert lines_of("configs", "describe", "--topic", "cli-configs") == []
    changed = run(
        "configs", "alter", "--topic", "cli-configs", "--add-config", "cleanup.policy=[compact,delete],segment.ms=99999"
    )
    assert changed.stdout == "topic cli-configs: changed\n"
    own = lines_of("configs", "describe", "--entity-type", "topics", "--entity-name", "cli-configs")
    assert [(each["name"], each["value"], each["source"]) for each in own] == [
        ("cleanup.policy", "compact,delete", "dynamic topic"),
        ("segment.ms", "99999", "dynamic topic"),
    ]
    run("configs", "alter", "--topic", "cli-configs", "--delete-config", "cleanup.policy,segment.ms")
    assert lines_of("configs", "describe", "--topic", "cli-configs") == []
    everything = lines_of("configs", "describe", "--topic", "cli-configs", "--all")
    assert {"retention.ms", "segment.ms"} < {each["name"] for each in everything}


def test_brokers(run: Run, lines_of: Lines) -> None:
    run("configs", "alter", "--broker-defaults", "--config", "log.cleaner.threads=1")
    (own,) = lines_of("configs", "describe", "--entity-type", "brokers", "--entity-default")
    assert (own["entity"], own["name"], own["value"]) == ("<default>", "log.cleaner.threads", "1")
    (seen,) = lines_of("configs", "describe", "--broker", "1", "--config", "log.cleaner.threads")
    assert seen["source"] == "dynamic default broker"
    run("configs", "alter", "--broker-defaults", "--delete-config", "log.cleaner.threads")
    assert lines_of("configs", "describe", "--broker-defaults") == []


def test_what_is_refused_changes_nothing(run: Run, lines_of: Lines) -> None:
    run("topics", "create", "--topic", "cli-refused")
    both = "retention.ms=1,cleanup.policy=shred"
    assert "cleanup.policy" in run("configs", "alter", "--topic", "cli-refused", "--add-config", both, status=1).stderr
    run("configs", "alter", "--topic", "cli-refused", "--add-config", "retention.ms=1", "--validate-only")
    assert lines_of("configs", "describe", "--topic", "cli-refused") == []
    assert "INVALID_REQUEST" in run("configs", "describe", "--broker", "one", status=1).stderr


@pytest.mark.parametrize(
    "words",
    [
        ("describe",),
        ("describe", "--topic", "t", "--broker", "1"),
        ("describe", "--topic", "t", "--entity-name", "t"),
        ("describe", "--entity-type", "topics", "--entity-default"),
        ("alter", "--entity-type", "topics", "--add-config", "a=b"),
        ("alter", "--topic", "t"),
        ("alter", "--topic", "t", "--add-config", "a"),
    ],
)
def test_a_wrong_command_line(run: Run, words: tuple[str, ...]) -> None:
    run("configs", *words, status=2)


def test_values_in_kafkas_form() -> None:
    assert parse_values(["a=1,b=[x,y], c=", "d=p=q"]) == {"a": "1", "b": "x,y", "c": "", "d": "p=q"}
