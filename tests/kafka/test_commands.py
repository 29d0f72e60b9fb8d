"""The commands of `pybroker` say the same of this broker and of Apache Kafka."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer

from pybroker.cli.main import main
from tests.harness.broker import BrokerProcess
from tests.harness.kafka import KafkaBroker

_NODE_ID = 1
_WAIT_SECONDS = 60.0
# What a cluster chooses for itself, or what comes with the time.
_OWN = ("id", "cluster_id", "timestamp_ms", "member_id", "members", "leader_epoch")


def _comparable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _comparable(each) for key, each in value.items() if key not in _OWN}
    return [_comparable(each) for each in value] if isinstance(value, list) else value


class _Session:
    """Commands against one broker, and what they printed."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.seen: list[Any] = []

    def run(self, *words: str, stdin: str | None = None) -> Any:
        """Exit status and standard output; JSON is read."""
        result = CliRunner().invoke(main, [*words, "--bootstrap-server", self.bootstrap], input=stdin)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
        lines = result.stdout.splitlines()
        found = [_comparable(json.loads(line)) if line.startswith("{") else line for line in lines]
        self.seen.append((words, result.exit_code, found))
        return found

    def until(self, is_so: Callable[[Any], bool], *words: str) -> None:
        """Apache Kafka answers a change before its broker follows it: look until it has, and keep only that."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while not is_so(self.run(*words)):
            assert time.monotonic() < deadline, self.seen[-1]
            self.seen.pop()
            time.sleep(0.1)


def _scenario(session: _Session) -> None:
    topic = ("--topic", "orders")
    session.run("topics", "create", *topic, "--partitions", "2", "--config", "retention.ms=-1", "--json")
    session.until(bool, "topics", "describe", *topic, "--if-exists", "--offsets", "--json")
    session.run("topics", "create", *topic)
    session.run("topics", "create", "--topic", "no topic", "--json")
    session.run("topics", "alter", *topic, "--partitions", "3")
    session.until(lambda found: len(found) == 4, "topics", "describe", *topic)
    session.run("topics", "alter", *topic, "--partitions", "1")
    session.run("configs", "alter", *topic, "--add-config", "cleanup.policy=[compact,delete]")
    session.until(lambda found: len(found) == 3, "configs", "describe", *topic)
    session.run("configs", "alter", *topic, "--add-config", "cleanup.policy=x")
    session.run("configs", "alter", "--broker-defaults", "--config", "log.cleaner.threads=2")
    cleaners = ("--broker-defaults", "--config", "log.cleaner.threads")
    session.until(lambda found: len(found) == 2, "configs", "describe", *cleaners)
    lines = "".join(f'{{"key": "{number}", "value": "v", "timestamp_ms": {number * 1000}}}\n' for number in range(1, 9))
    session.run("produce", *topic, "--json", "--partition", "1", stdin=lines)
    session.run("consume", *topic, "--from-beginning", "--until-end", "--json")
    session.run("consume", *topic, "--from-time", "6000", "--until-end", "--keys", "--timestamps", "kafka", "--offsets")
    session.run("consume", *topic, "--group", "readers", "--from-beginning", "--max-messages", "3")
    session.until(lambda found: "Empty" in str(found), "groups", "describe", "--group", "readers", "--json")
    session.run("groups", "list", "--state", "empty", "--json")
    for target in (("--shift-by", "-2"), ("--to-datetime", "1970-01-01T00:00:05Z"), ("--to-offset", "99")):
        session.run("groups", "reset-offsets", "--group", "readers", *topic, *target, "--json")
    session.run("groups", "reset-offsets", "--group", "readers", "--topic", "orders:1", "--to-latest", "--execute")
    session.run("groups", "describe", "--group", "readers")
    session.run("groups", "delete-offsets", "--group", "readers", "--topic", "orders:1")
    session.run("groups", "delete", "--group", "readers", "--group", "nobody")
    session.run("groups", "describe", "--group", "nobody")
    for path in (
        "/topics/orders",
        "/topics/orders/2",
        "/configs/topics/orders",
        "/groups",
    ):
        session.run("metadata", "cat", path, "--json")
    session.run("metadata", "ls", "/topics/orders")
    session.run("topics", "delete", *topic)
    session.until(lambda found: "orders" not in found, "topics", "list", "--exclude-internal")


def _new_protocol(bootstrap: str) -> None:
    """A group of KIP-848 is described by another API. A member reads both partitions of its topic."""
    session = _Session(bootstrap)
    session.run("topics", "create", "--topic", "new", "--partitions", "2")
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "new", "group.protocol": "consumer"})
    try:
        consumer.subscribe(["new"])
        deadline = time.monotonic() + _WAIT_SECONDS
        while len(consumer.assignment()) < 2:
            assert time.monotonic() < deadline
            consumer.poll(0.1)
        (member,) = session.run("groups", "members", "--group", "new", "--json")
        assert member["reads"] == ["new:0,1"]
        (group,) = session.run("groups", "describe", "--group", "new", "--json")
        assert (group["type"], group["state"]) == ("consumer", "Stable")
        session.run("groups", "reset-offsets", "--group", "new", "--topic", "new", "--to-latest", "--execute")
        assert session.seen[-1][1] == 1
    finally:
        consumer.close()


@pytest.mark.skipif(
    shutil.which("java") is None or shutil.which("mvn") is None, reason="Apache Kafka needs java, and mvn to fetch it"
)
def test_commands_say_the_same_of_both() -> None:
    kafka_overrides = {"offsets.topic.num.partitions": "1"}
    with (
        KafkaBroker(node_id=_NODE_ID, overrides=kafka_overrides) as kafka,
        BrokerProcess(
            overrides={"node.id": str(_NODE_ID), "group.initial.rebalance.delay.ms": "0", **kafka_overrides}
        ) as own,
    ):
        kafkas, ours = _Session(kafka.bootstrap), _Session(own.bootstrap)
        _scenario(kafkas)
        _scenario(ours)
        _new_protocol(kafka.bootstrap)
    assert len(ours.seen) > 30
    differences = [
        f"pybroker: {our_step}\nKafka:    {kafkas_step}"
        for our_step, kafkas_step in zip(ours.seen, kafkas.seen, strict=True)
        if our_step != kafkas_step
    ]
    assert not differences, "\n".join(differences)
