"""A hundred tests of somebody's project, each with a topic, a producer and a consumer group, on two workers in twenty
seconds; nothing is left of their brokers. And a broker is ready in 150 ms, once the first one was."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from pybroker.testing import Broker

WITHIN_SECONDS = 20
TEST_COUNT = 100
READY_WITHIN_SECONDS = 0.15
START_COUNT = 15

PROJECT = f"""
import pytest
from confluent_kafka import Consumer, Producer

@pytest.mark.parametrize("number", range({TEST_COUNT}))
def test_round_trip(kafka_broker, kafka_topic, number):
    servers = {{"bootstrap.servers": kafka_broker.bootstrap_servers}}
    producer = Producer(servers)
    for each in range(10):
        producer.produce(kafka_topic, b"%d of %d" % (each, number))
    assert producer.flush(10) == 0
    consumer = Consumer({{**servers, "group.id": kafka_topic, "auto.offset.reset": "earliest"}})
    consumer.subscribe([kafka_topic])
    found = [message.value() for message in consumer.consume(10, 10)]
    consumer.close()
    assert found == [b"%d of %d" % (each, number) for each in range(10)]
"""


def _dirs() -> set[Path]:
    return set(Path("/dev/shm").glob(f"pybroker-testing-{os.getuid()}-*"))


def test_a_hundred_tests_take_less_than_twenty_seconds(tmp_path: Path) -> None:
    (tmp_path / "test_project.py").write_text(PROJECT)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    before = _dirs()
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    took_seconds = time.monotonic() - started
    print(f"{TEST_COUNT} tests in {took_seconds:.1f} s")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{TEST_COUNT} passed" in done.stdout
    assert _dirs() <= before
    assert took_seconds <= WITHIN_SECONDS


def test_a_broker_is_ready_in_150_ms() -> None:
    with Broker():
        pass
    took_seconds = []
    for _ in range(START_COUNT):
        started = time.monotonic()
        with Broker() as broker:
            broker.create_topic("ready")
            took_seconds.append(time.monotonic() - started)
    median_seconds = statistics.median(took_seconds)
    print(f"ready in {median_seconds * 1000:.0f} ms, at most {max(took_seconds) * 1000:.0f} ms")
    assert median_seconds <= READY_WITHIN_SECONDS
