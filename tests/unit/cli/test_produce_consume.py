"""`pybroker produce` and `pybroker consume` against a broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from click.testing import Result

from pybroker.testing import Broker

Run = Callable[..., Result]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_there_and_back(run: Run, kafka_topic: str, codec: str) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(50))
    sent = run("produce", "--topic", kafka_topic, "--codec", codec, stdin=lines)
    assert sent.stderr == f"50 records to {kafka_topic}\n"
    received = run("consume", "--topic", kafka_topic, "--from-beginning", "--until-end")
    assert received.stdout_bytes == lines
    assert received.stderr == "50 records\n"


def test_keys_headers_and_tombstones(run: Run, kafka_topic: str) -> None:
    lines = b"a:1,b:2\tk1\tv1\n\tk2\tNULL\n"
    options = ("--property", "parse.key=true", "--property", "parse.headers=true", "--null-marker", "NULL")
    run("produce", "--topic", kafka_topic, *options, stdin=lines)
    read = ("consume", "--topic", kafka_topic, "--from-beginning", "--until-end")
    shown = run(*read, "--keys", "--headers", "--partitions", "--offsets", "--separator", "|").stdout
    assert shown == "Partition:0|Offset:0|a:1,b:2|k1|v1\nPartition:0|Offset:1|NO_HEADERS|k2|null\n"
    kafkas = ("--property", "print.key=true", "--formatter-property", "print.timestamp=true")
    assert run(*read, *kafkas).stdout.startswith("CreateTime:1")
    assert run(*read, "--timestamps").stdout.splitlines()[0].endswith("Z\tv1")
    first = json.loads(run(*read, "--json", "--max-messages", "1").stdout)
    assert (first["key"], first["headers"]) == ("k1", [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}])


def timed(run: Run, topic: str) -> None:
    """Ten records, a second apart, of 2023, and no retention that would see that."""
    run("configs", "alter", "--topic", topic, "--config", "retention.ms=-1")
    lines = [
        json.dumps({"value": str(number), "timestamp_ms": 1_700_000_000_000 + number * 1000}) for number in range(10)
    ]
    run("produce", "--topic", topic, "--json", stdin="\n".join(lines).encode())


def test_a_topic_is_copied_by_json(run: Run, kafka_broker: Broker, kafka_topic: str) -> None:
    timed(run, kafka_topic)
    read = ("consume", "--from-beginning", "--until-end", "--json", "--topic")
    original = run(*read, kafka_topic).stdout_bytes
    kafka_broker.create_topic(f"{kafka_topic}-copy", config={"retention.ms": "-1"})
    run("produce", "--topic", f"{kafka_topic}-copy", "--json", stdin=original)
    assert run(*read, f"{kafka_topic}-copy").stdout_bytes.replace(b"-copy", b"") == original


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("--offset", "7"), "789"),
        (("--offset", "-2"), "89"),
        (("--offset", "-200"), "0123456789"),
        (("--offset", "earliest", "--max-messages", "3"), "012"),
        (("--offset", "latest"), ""),
        (("--from-time", "2023-11-14T22:13:24.5Z"), "56789"),
        (("--from-time", "1700000008000"), "89"),
        (("--from-time", "2100-01-01"), ""),
    ],
)
def test_where_it_begins(run: Run, kafka_topic: str, words: tuple[str, ...], wanted: str) -> None:
    timed(run, kafka_topic)
    assert run("consume", "--topic", kafka_topic, "--until-end", *words).stdout.replace("\n", "") == wanted


def test_a_group_goes_on_where_it_was(run: Run, kafka_topic: str) -> None:
    timed(run, kafka_topic)
    read = ("consume", "--topic", kafka_topic, "--group", f"g-{kafka_topic}", "--from-beginning", "--max-messages")
    assert run(*read, "4").stdout == "0\n1\n2\n3\n"
    assert run(*read, "2").stdout == "4\n5\n"


def test_partitions_and_patterns(run: Run, kafka_broker: Broker, kafka_topic: str) -> None:
    topic = f"{kafka_topic}.wide"
    kafka_broker.create_topic(topic, partitions=3)
    for partition in range(3):
        run("produce", "--topic", topic, "--partition", str(partition), stdin=b"in %d" % partition)
    read = ("consume", "--from-beginning", "--until-end")
    assert run(*read, "--topic", topic, "--partition", "2", "--partition", "0").stdout.split("\n")[:-1] in (
        ["in 0", "in 2"],
        ["in 2", "in 0"],
    )
    assert len(run(*read, "--include", f"{kafka_topic}.w.*").stdout.splitlines()) == 3
    assert "has no partition 3" in run(*read, "--topic", topic, "--partition", "3", status=1).stderr


def test_waiting_has_an_end(run: Run, kafka_topic: str) -> None:
    assert run("consume", "--topic", kafka_topic, "--timeout-ms", "1").stdout == ""


def test_a_live_tail_until_it_is_interrupted(run: Run, kafka_broker: Broker, kafka_topic: str) -> None:
    run("produce", "--topic", kafka_topic, stdin=b"before")
    command = [sys.executable, "-m", "pybroker", "consume", "--topic", kafka_topic, "--offset", "-1"]
    environment = {**os.environ, "PYBROKER_BOOTSTRAP_SERVER": kafka_broker.bootstrap_servers}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as tail:
        assert tail.stdout is not None and tail.stderr is not None
        try:
            assert tail.stdout.readline() == b"before\n"
            run("produce", "--topic", kafka_topic, stdin=b"after")
            assert tail.stdout.readline() == b"after\n"
            tail.send_signal(signal.SIGINT)
            assert tail.wait(60) == 130
            assert tail.stderr.read() == b"2 records\n"
        finally:
            tail.kill()


def test_what_goes_wrong(run: Run, kafka_topic: str) -> None:
    keyed = run("produce", "--topic", kafka_topic, "--key-separator", "=", stdin=b"a=b\nc\n", status=1)
    assert "line 2" in keyed.stderr
    assert f"1 record to {kafka_topic}" in keyed.stderr
    assert "nknown partition" in run("produce", "--topic", kafka_topic, "--partition", "9", stdin=b"x", status=1).stderr
    assert "UNKNOWN_TOPIC" in run("consume", "--topic", "cli-no-such-topic", status=1).stderr
    assert "no topic matches" in run("consume", "--include", "cli-no-such-topic", status=1).stderr
    assert "nonsense" in run("consume", "--topic", kafka_topic, "--command-property", "nonsense=1", status=1).stderr


@pytest.mark.parametrize(
    "words",
    [
        ("consume",),
        ("consume", "--topic", "t", "--include", "t"),
        ("consume", "--topic", "t", "--offset", "soon"),
        ("consume", "--topic", "t", "--offset", "1", "--from-beginning"),
        ("consume", "--topic", "t", "--group", "g", "--partition", "1"),
        ("consume", "--topic", "t", "--group", "g", "--until-end"),
        ("consume", "--topic", "t", "--formatter-property", "print.everything=true"),
        ("produce", "--topic", "t", "--reader-property", "parse.value=true"),
        ("produce", "--topic", "t", "--key-separator", ""),
        ("produce",),
    ],
)
def test_a_wrong_command_line(run: Run, words: tuple[str, ...]) -> None:
    run(*words, status=2, stdin=b"")


def test_without_the_library(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    assert run("produce", "--topic", "t", stdin=b"", status=1).stderr.endswith("pip install confluent-kafka\n")
