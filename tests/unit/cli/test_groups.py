"""`pybroker groups` against a broker, with a consumer of librdkafka as the member."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from confluent_kafka import Consumer, Producer, TopicPartition

from pybroker.testing import Broker

Run = Callable[..., Result]
Lines = Callable[..., list[Any]]
RECORD_COUNT = 10
# The records are from 2023, which retention would see.
KEEP = {"retention.ms": "-1"}
FIRST_TIME_MS = 1_700_000_000_000
_numbers = itertools.count(1)


def fill(broker: Broker, topic: str) -> None:
    """Records a second apart, in each of two partitions."""
    broker.create_topic(topic, partitions=2, config=KEEP)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(RECORD_COUNT):
        for partition in (0, 1):
            producer.produce(topic, b"x", partition=partition, timestamp=FIRST_TIME_MS + number * 1000)
    assert producer.flush(60) == 0


@contextmanager
def member(broker: Broker, group: str, topic: str) -> Iterator[Consumer]:
    """In the group, with both partitions; leaves it in the end."""
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer(config)
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 60
        while len(consumer.assignment()) < 2:
            assert time.monotonic() < deadline
            consumer.poll(0.1)
        yield consumer
    finally:
        consumer.close()


def commit(broker: Broker, group: str, topic: str, offset: int) -> None:
    """As a group that has no members any more."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, each, offset) for each in (0, 1)], asynchronous=False)
    consumer.close()


def offsets(lines_of: Lines, group: str) -> list[int | None]:
    (described,) = lines_of("groups", "describe", "--group", group)
    return [each["committed_offset"] for each in described["partitions"]]


def test_a_group_with_a_member(run: Run, lines_of: Lines, kafka_broker: Broker, kafka_topic: str) -> None:
    topic, group = f"{kafka_topic}-two", f"group-{kafka_topic}"
    fill(kafka_broker, topic)
    with member(kafka_broker, group, topic) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, each, 3) for each in (0, 1)], asynchronous=False)
        (described,) = lines_of("groups", "describe", "--group", group)
        assert (described["state"], described["type"], described["members"]) == ("Stable", "classic", 1)
        assert described["lag"] == 14
        assert [(each["end_offset"], each["lag"]) for each in described["partitions"]] == [(10, 7), (10, 7)]
        assert all(each["client_id"] == "rdkafka" and each["host"] == "127.0.0.1" for each in described["partitions"])
        (found,) = lines_of("groups", "members", "--group", group)
        assert found["reads"] == [f"{topic}:0,1"]
        refused = run("groups", "reset-offsets", "--group", group, "--all-topics", "--to-earliest", status=1)
        assert "stop them first" in refused.stderr
        assert "NON_EMPTY_GROUP" in run("groups", "delete", "--group", group, status=1).stderr
        forget = ("groups", "delete-offsets", "--group", group, "--topic", topic)
        assert "GROUP_SUBSCRIBED_TO_TOPIC" in run(*forget, status=1).stderr
        assert group in {each["group"] for each in lines_of("groups", "list", "--state", "stable")}
        assert group not in {each["group"] for each in lines_of("groups", "list", "--state", "empty,dead")}
    assert group in {each["group"] for each in lines_of("groups", "list", "--type", "classic", "--state", "Empty")}


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("--to-earliest",), [0, 0]),
        (("--to-latest",), [10, 10]),
        (("--to-current",), [4, 4]),
        (("--to-offset", "7"), [7, 7]),
        (("--to-offset", "70"), [10, 10]),
        (("--shift-by", "-2"), [2, 2]),
        (("--shift-by", "-20"), [0, 0]),
        (("--to-datetime", "2023-11-14T22:13:22.5"), [3, 3]),
        (("--to-datetime", "2023-11-14T23:13:22+01:00"), [2, 2]),
        (("--to-datetime", "2100-01-01T00:00:00"), [10, 10]),
        (("--by-duration", "P36500D"), [0, 0]),
        (("--by-duration", "1s"), [10, 10]),
    ],
)
def test_offsets_are_moved(
    run: Run, lines_of: Lines, kafka_broker: Broker, moved_topic: str, words: tuple[str, ...], wanted: list[int]
) -> None:
    group = f"{moved_topic}-group"
    commit(kafka_broker, group, moved_topic, 4)
    command = ("groups", "reset-offsets", "--group", group, "--topic", moved_topic, *words)
    planned = lines_of(*command)
    assert [each["new_offset"] for each in planned] == wanted
    assert offsets(lines_of, group) == [4, 4]
    run(*command, "--execute")
    assert offsets(lines_of, group) == wanted


@pytest.fixture(scope="module")
def moved_topic(kafka_broker: Broker) -> str:
    """Under a new name each time: a worker that takes tests from another may come back to this module."""
    topic = f"cli-moved-{next(_numbers)}"
    fill(kafka_broker, topic)
    return topic


def test_a_dry_run_says_so(run: Run, kafka_broker: Broker, moved_topic: str) -> None:
    commit(kafka_broker, "cli-dry", moved_topic, 4)
    result = run("groups", "reset-offsets", "--group", "cli-dry", "--topic", f"{moved_topic}:1", "--shift-by", "-9")
    assert result.stdout.splitlines()[1:] == [f"{moved_topic}\t1\t4\t0\t-4\t-5 is before the first record"]
    assert "nothing was changed" in result.stderr


def test_offsets_go_to_a_file_and_come_back(
    run: Run, lines_of: Lines, kafka_broker: Broker, moved_topic: str, tmp_path: Path
) -> None:
    commit(kafka_broker, "cli-file", moved_topic, 4)
    reset = ("groups", "reset-offsets", "--group", "cli-file")
    exported = run(*reset, "--all-topics", "--to-current", "--export").stdout
    assert exported == f"{moved_topic},0,4\n{moved_topic},1,4\n"
    file = tmp_path / "offsets.csv"
    file.write_text(exported)
    run(*reset, "--all-topics", "--to-latest", "--execute")
    assert offsets(lines_of, "cli-file") == [10, 10]
    run(*reset, "--from-file", str(file), "--execute")
    assert offsets(lines_of, "cli-file") == [4, 4]
    run(*reset, "--from-file", str(file), "--all-topics", status=2)
    file.write_text(f"{moved_topic},0\n")
    assert "offsets.csv:1" in run(*reset, "--from-file", str(file), status=2).stderr


def test_a_group_can_begin_with_offsets(run: Run, lines_of: Lines, moved_topic: str) -> None:
    run("groups", "reset-offsets", "--group", "cli-new", "--topic", f"{moved_topic}:0", "--to-offset", "5", "--execute")
    assert offsets(lines_of, "cli-new") == [5]


def test_offsets_and_groups_are_deleted(run: Run, lines_of: Lines, kafka_broker: Broker, moved_topic: str) -> None:
    commit(kafka_broker, "cli-gone", moved_topic, 4)
    run("groups", "delete-offsets", "--group", "cli-gone", "--topic", f"{moved_topic}:0")
    (described,) = lines_of("groups", "describe", "--group", "cli-gone")
    assert [each["partition"] for each in described["partitions"]] == [1]
    result = run("groups", "delete", "--group", "cli-gone", "--group", "cli-never", status=1)
    assert result.stdout == "deleted group cli-gone\n"
    assert "GROUP_ID_NOT_FOUND" in result.stderr
    assert "GROUP_ID_NOT_FOUND" in run("groups", "describe", "--group", "cli-gone", status=1).stderr


def test_all_groups_as_tabs(run: Run, kafka_broker: Broker, moved_topic: str) -> None:
    commit(kafka_broker, "cli-tabs", moved_topic, 4)
    lines = run("groups", "describe", "--all-groups").stdout.splitlines()
    assert lines[0].split("\t")[:6] == ["group", "topic", "partition", "committed", "end offset", "lag"]
    assert f"cli-tabs\t{moved_topic}\t0\t4\t10\t6\t-\t-" in lines


@pytest.mark.parametrize(
    "words",
    [
        ("describe",),
        ("describe", "--group", "g", "--all-groups"),
        ("delete",),
        ("reset-offsets", "--group", "g", "--topic", "t"),
        ("reset-offsets", "--group", "g", "--topic", "t", "--to-latest", "--to-earliest"),
        ("reset-offsets", "--group", "g", "--topic", "t", "--to-latest", "--dry-run", "--execute"),
        ("reset-offsets", "--group", "g", "--to-latest"),
        ("reset-offsets", "--group", "g", "--topic", "t", "--by-duration", "soon"),
        ("reset-offsets", "--group", "g", "--topic", "t", "--to-datetime", "yesterday"),
        ("delete-offsets", "--group", "g", "--topic", "t:x"),
    ],
)
def test_a_wrong_command_line(run: Run, words: tuple[str, ...]) -> None:
    run("groups", *words, status=2)
