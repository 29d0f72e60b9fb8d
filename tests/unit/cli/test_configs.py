"""`pybroker configs` against a broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from pybroker.cli.commands.configs.alter import parse_values

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
    before = lines_of("configs", "describe", "--broker-defaults")
    assert [(each["name"], each["value"]) for each in before] == [("min.insync.replicas", "1")]
    run("configs", "alter", "--broker-defaults", "--config", "log.cleaner.threads=1")
    own = lines_of("configs", "describe", "--entity-type", "brokers", "--entity-default")
    added = [each for each in own if each not in before]
    assert [(each["entity"], each["name"], each["value"]) for each in added] == [
        ("<default>", "log.cleaner.threads", "1")
    ]
    (seen,) = lines_of("configs", "describe", "--broker", "1", "--config", "log.cleaner.threads")
    assert seen["source"] == "dynamic default broker"
    run("configs", "alter", "--broker-defaults", "--delete-config", "log.cleaner.threads")
    assert lines_of("configs", "describe", "--broker-defaults") == before


def test_quotas_of_clients(run: Run, lines_of: Lines) -> None:
    both = ("--entity-type", "users", "--entity-name", "ana", "--entity-type", "clients", "--entity-name", "app")
    run("configs", "alter", *both, "--add-config", "producer_byte_rate=1024,consumer_byte_rate=2e6")
    run("configs", "alter", "--user", "ana", "--client-defaults", "--add-config", "request_percentage=12.5")
    run("configs", "alter", "--ip-defaults", "--add-config", "connection_creation_rate=9", "--validate-only")
    assert lines_of("configs", "describe", "--ip-defaults") == []
    found = lines_of("configs", "describe", "--entity-type", "users", "--entity-type", "clients")
    assert [(each["entity"], each["name"], each["value"]) for each in found] == [
        ({"client-id": "<default>", "user": "ana"}, "request_percentage", 12.5),
        ({"client-id": "app", "user": "ana"}, "consumer_byte_rate", 2e6),
        ({"client-id": "app", "user": "ana"}, "producer_byte_rate", 1024),
    ]
    # As for Kafka's tool those of a user alone are others.
    assert lines_of("configs", "describe", "--entity-type", "users") == []
    run("configs", "alter", "--user", "ana", "--client", "app", "--delete-config", "producer_byte_rate")
    (left,) = lines_of("configs", "describe", "--user", "ana", "--client", "app")
    assert left["name"] == "consumer_byte_rate"
    assert (
        "greater than 0"
        in run("configs", "alter", "--client", "c", "--config", "consumer_byte_rate=0", status=1).stderr
    )


def test_credentials_of_users(run: Run, lines_of: Lines) -> None:
    both = "SCRAM-SHA-256=[iterations=8192,password=one],SCRAM-SHA-512=[password=two]"
    run("configs", "alter", "--user", "bea", "--add-config", both)
    run("configs", "alter", "--user", "bea", "--add-config", "controller_mutation_rate=3")
    found = lines_of("configs", "describe", "--user", "bea")
    assert [(each["name"], each["value"]) for each in found] == [
        ("SCRAM-SHA-256", "iterations=8192"),
        ("SCRAM-SHA-512", "iterations=4096"),
        ("controller_mutation_rate", 3),
    ]
    assert [each["name"] for each in lines_of("configs", "describe", "--entity-type", "users")] == [
        each["name"] for each in found
    ]
    run("configs", "alter", "--user", "bea", "--delete-config", "SCRAM-SHA-256,SCRAM-SHA-512,controller_mutation_rate")
    assert lines_of("configs", "describe", "--user", "bea") == []
    few = "SCRAM-SHA-256=[iterations=1,password=x]"
    assert "4096" in run("configs", "alter", "--user", "bea", "--add-config", few, status=1).stderr


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
        ("describe", "--user", "u", "--topic", "t"),
        ("describe", "--user", "u", "--user-defaults"),
        ("describe", "--user", ""),
        ("describe", "--user", "u", "--ip", "::1"),
        ("describe", "--user", "u", "--entity-type", "clients"),
        ("describe", "--entity-type", "users", "--entity-type", "topics"),
        ("describe", "--entity-type", "users", "--entity-type", "users"),
        ("describe", "--entity-type", "users", "--entity-name", "a", "--entity-name", "b"),
        ("describe", "--entity-type", "users", "--entity-name", "a", "--entity-type", "clients", "--entity-default"),
        ("alter", "--entity-type", "users", "--add-config", "consumer_byte_rate=1"),
        ("alter", "--user", "u", "--add-config", "consumer_byte_rate=much"),
        ("alter", "--user", "u", "--add-config", "SCRAM-SHA-256=[iterations=8192]"),
        ("alter", "--client", "c", "--add-config", "SCRAM-SHA-256=[password=x]"),
        ("alter", "--user", "u", "--add-config", "SCRAM-SHA-256=[password=x]", "--validate-only"),
    ],
)
def test_a_wrong_command_line(run: Run, words: tuple[str, ...]) -> None:
    run("configs", *words, status=2)


def test_values_in_kafkas_form() -> None:
    assert parse_values(["a=1,b=[x,y], c=", "d=p=q"]) == {"a": "1", "b": "x,y", "c": "", "d": "p=q"}
