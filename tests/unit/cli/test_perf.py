"""`pybroker perf` against a running broker: every command once, and what it saves. Nothing here asserts a speed."""

import json
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer, TopicPartition

from pybroker.cli.main import main
from pybroker.perf.generator import find_generator
from pybroker.perf.histogram import Histogram, upper_edge_ns
from pybroker.perf.load import Interval, Load, RunningLoad
from pybroker.results.context import Context
from pybroker.results.reader import read
from pybroker.results.row import Row
from tests.harness.broker import BrokerProcess
from tests.harness.fixtures import OVERRIDES
from tests.harness.process import ChildProcess, free_port

SECONDS = 1
QUICK = ("--seconds", SECONDS, "--warmup", "0.1", "--interval", "0.25", "--quiet")
PARTITIONS = 3
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(overrides=OVERRIDES) as broker:
        yield broker


def perf(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["perf", *map(str, arguments)])


def document(broker: BrokerProcess, *arguments: object) -> dict[str, Any]:
    done = perf(*arguments, "--bootstrap", broker.bootstrap, *QUICK, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check_load(load: dict[str, Any]) -> None:
    result = load["result"]
    assert result["requests"] > 0 and result["mb_per_s"] > 0
    latency = result["latency_us"]
    assert 0 < latency["p50"] <= latency["p99"] <= latency["max"]
    assert sum(each["requests"] for each in load["intervals"]) == result["requests"]
    assert sum(each["payload_bytes"] for each in load["intervals"]) == result["payload_bytes"]
    merged: dict[int, int] = {}
    for each in load["intervals"]:
        for bucket, count in each["histogram"]:
            merged[bucket] = merged.get(bucket, 0) + count
    assert [list(pair) for pair in sorted(merged.items())] == load["histogram"]


def consumed(broker: BrokerProcess, topic: str, partition: int, count: int) -> list[tuple[bytes | None, bytes | None]]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "checker"})
    consumer.assign([TopicPartition(topic, partition, 0)])
    messages = consumer.consume(count, TIMEOUT_S)
    consumer.close()
    return [(message.key(), message.value()) for message in messages]


def test_keyed_producers_of_real_text(broker: BrokerProcess, tmp_path: Path) -> None:
    """Each record is a line of the file, and lies where Kafka's own partitioner puts its key."""
    lines = [f"line {number} of a text that compresses" for number in range(500)]
    text = tmp_path / "text"
    text.write_text("\n\n".join(lines))
    options = ("--topic", "keyed", "--partitions", PARTITIONS, "--producers", 2, "--keys", 50, "--codec", "zstd")
    found = document(broker, "produce", *options, "--payload-file", text, "--batch-bytes", "4k")
    (load,) = found["loads"]
    check_load(load)
    result = load["result"]
    assert (result["codec"], result["keys"], result["payload_file"]) == ("zstd", 50, "text")
    assert result["records"] > result["requests"]
    assert result["wire_bytes"] < result["payload_bytes"] / 2
    keys: dict[bytes, int] = {}
    for partition in range(PARTITIONS):
        for key, value in consumed(broker, "keyed", partition, 200):
            assert value is not None and value.decode() in lines
            assert key is not None
            keys[key] = partition
    assert len(keys) == 50
    placed: dict[bytes, int] = {}
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random", "linger.ms": 0})
    for key in keys:
        producer.produce("keyed", b"", key, on_delivery=lambda _, m: placed.update({m.key(): m.partition()}))
    producer.flush(TIMEOUT_S)
    assert placed == keys


def test_a_rate_is_kept_and_told(broker: BrokerProcess, tmp_path: Path) -> None:
    output, hdr = tmp_path / "out" / "result.json", tmp_path / "result.hlog"
    saving = ("--output", output, "--hdr", hdr)
    done = perf("produce", "--bootstrap", broker.bootstrap, "--topic", "paced", "--rate", 200, *QUICK, *saving)
    assert done.exit_code == 0, done.output
    assert "p99.9 ms" in done.stdout
    result = json.loads(output.read_text())["loads"][0]["result"]
    assert result["rate"] == 200
    assert result["requests"] + result["unsent"] >= 200 * SECONDS
    assert hdr.read_text().count("Tag=produce,") >= 4
    rows = list(read([output], Context(machine="here"), datetime.now(UTC)))
    assert all(isinstance(row, Row) for row in rows), rows
    assert {row.benchmark for row in rows if isinstance(row, Row)} >= {"produce.mb_per_s", "produce.p99"}
    drawn = perf("report", output, "--directory", tmp_path / "plots")
    assert drawn.exit_code == 0 and "report.html" in drawn.stdout
    assert (tmp_path / "plots" / "latency.png").is_file()


def test_end_to_end(broker: BrokerProcess) -> None:
    options = ("--topic", "ways", "--partitions", 2, "--rate", 100)
    (load,) = document(broker, "end-to-end", *options)["loads"]
    check_load(load)
    assert load["result"]["produce_latency_us"]["p50"] > 0


def test_everything_at_once(broker: BrokerProcess) -> None:
    options = ("--topic", "all", "--partitions", 2, "--rate", 200, "--members", 2, "--history", "1m", "--codec", "lz4")
    produce, consume, group = document(broker, "mixed", *options)["loads"]
    assert [each["name"] for each in (produce, consume, group)] == ["produce", "consume", "group"]
    for each in (produce, consume, group):
        check_load(each)
    # The group has read what was there before as well: more than was produced meanwhile.
    assert group["result"]["records"] > produce["result"]["records"]


def test_consume_says_what_is_wrong(broker: BrokerProcess) -> None:
    done = perf("consume", "--bootstrap", broker.bootstrap, "--topic", "paced", *QUICK, "--group", "g", "--rate", 5)
    assert done.exit_code == 2 and "--rate is for consumers without a --group" in done.output
    port = free_port()
    done = perf("produce", "--bootstrap", f"127.0.0.1:{port}", *QUICK)
    assert done.exit_code == 1 and f"cannot connect to 127.0.0.1:{port}" in done.output


@pytest.mark.parametrize("value", ["nowhere", "127.0.0.1:", "127.0.0.1:99999999999", f"{'x' * 64}:1"])
def test_a_bootstrap_that_is_none(value: str) -> None:
    done = perf("produce", "--bootstrap", value)
    assert done.exit_code == 2 and "--bootstrap" in done.output


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[tuple[ChildProcess, list[str]]]:
    """A server that answers and does nothing else, and the words that put producers on it."""
    program, port = str(find_generator()), str(free_port())
    server = ChildProcess([program, "bare", "--port", port], tmp_path / "bare")
    server.wait_for_line(lambda line: True if "listens" in line else None, TIMEOUT_S)
    yield server, [program, "produce", "--port", port, "--batch-bytes", "1k"]
    server.kill()


def test_a_stall_is_charged_to_all_that_waited(bare: tuple[ChildProcess, list[str]]) -> None:
    """Open loop: while the server stands still for half a second, what is due then waits, and is counted as waiting.
    A generator that waits with it would count one slow request."""
    (server, words), rate, stall_s = bare, 400, 0.5
    intervals: queue.Queue[Interval] = queue.Queue()
    command = [*words, "--rate", str(rate), "--seconds", "600", "--interval", "0.05"]
    load = RunningLoad(Load("produce", command), lambda _, interval: intervals.put(interval))
    wait_until_prompt(intervals, 0.0)
    os.kill(server.pid, signal.SIGSTOP)
    time.sleep(stall_s)
    os.kill(server.pid, signal.SIGCONT)
    wait_until_prompt(intervals, time.time())
    load.end_early()
    found = load.finish()
    assert late_count(found.histogram) >= 0.8 * rate * (stall_s - 0.1)
    assert found.result["latency_us"]["max"] >= 400_000


def late_count(histogram: Histogram) -> int:
    """How many requests waited for more than a tenth of a second."""
    return sum(count for bucket, count in histogram.pairs() if upper_edge_ns(bucket) > 100_000_000)


def wait_until_prompt(intervals: queue.Queue[Interval], after_s: float) -> None:
    """Return after an interval that began later than that, and in which nobody waited long for an answer."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        interval = intervals.get(timeout=TIMEOUT_S)
        if interval.start_s > after_s and interval.requests > 0 and late_count(interval.histogram) == 0:
            return
        assert time.monotonic() < deadline, "nobody is answered promptly"


def test_a_load_that_is_ended_early_keeps_what_it_measured(bare: tuple[ChildProcess, list[str]]) -> None:
    told = threading.Event()
    load = RunningLoad(Load("produce", [*bare[1], "--seconds", "600", "--interval", "0.05"]), lambda *_: told.set())
    assert told.wait(TIMEOUT_S)
    load.end_early()
    result = load.finish().result
    assert result["requests"] > 0
    assert result["elapsed_s"] < 300
