"""C moves bytes, Python decides: produce and fetch go on while Python cannot run.

The figures are latencies as the load generator sees them, over a window in which the interpreter lock is held.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.peers.stalls import latency_us, watched
from tests.harness.broker import BrokerProcess

REPOSITORY = Path(__file__).resolve().parents[3]
PBLOAD = REPOSITORY / "build" / "load" / "pbload"
P99_LIMIT_US = 5000


@pytest.fixture(scope="module")
def pbload() -> Path:
    subprocess.run(["make", "-C", str(REPOSITORY / "bench" / "load")], check=True, stdout=subprocess.DEVNULL)
    return PBLOAD


def broker_holding_gil(hold_ms: int, backend: str) -> BrokerProcess:
    return BrokerProcess(
        module="tests.harness.serve_holding_gil",
        env={"PYBROKER_HOLD_GIL_MS": str(hold_ms)},
        overrides={"pybroker.io.backend": backend},
    )


def load(pbload: Path, broker: BrokerProcess, *arguments: str) -> dict[str, object]:
    done = subprocess.run(
        [str(pbload), *arguments, "--port", str(broker.port), "--topic", "split"],
        check=True,
        capture_output=True,
        text=True,
    )
    result = json.loads(done.stdout)
    assert not result["errors"], result
    assert isinstance(result, dict)
    return result


def test_p99_stays_low_while_the_interpreter_lock_is_held(pbload: Path, backend: str) -> None:
    with broker_holding_gil(2000, backend) as broker:
        load(pbload, broker, "produce", "--batch-bytes", "16384", "--bytes", "64m")
        # Both loads hold their connections and have asked for metadata before the lock is taken.
        timer = threading.Timer(1.0, os.kill, (broker.pid, signal.SIGUSR1))
        timer.start()
        results: dict[str, dict[str, object]] = {}

        def run(mode: str, *arguments: str) -> None:
            results[mode] = load(
                pbload, broker, mode, *arguments, "--rate", "500", "--warmup", "1.2", "--seconds", "2.5"
            )

        with watched(pbload):
            produce = threading.Thread(target=run, args=("produce", "--batch-bytes", "1024"))
            produce.start()
            run("fetch", "--max-bytes", "65536")
            produce.join()
        for mode, result in results.items():
            p99 = latency_us(result, "p99")
            print(f"{backend} {mode} while the lock is held: p99 {p99} us")
            assert p99 < P99_LIMIT_US, (mode, result)


def test_no_acknowledged_record_is_lost_while_python_is_stopped_for_30_seconds(backend: str) -> None:
    with broker_holding_gil(30_000, backend) as broker:
        acknowledged: list[bytes] = []

        def delivered(error: object, message: object) -> None:
            if error is None:
                acknowledged.append(message.value())  # type: ignore[attr-defined]  # confluent_kafka has no stubs

        producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 1})
        producer.produce("split", b"first", on_delivery=delivered)
        assert producer.flush(10) == 0
        os.kill(broker.pid, signal.SIGUSR1)
        until = time.monotonic() + 25
        count = 0
        while time.monotonic() < until:
            producer.produce("split", b"%d" % count, on_delivery=delivered)
            producer.poll(0.001)
            count += 1
        before_recovery = len(acknowledged)
        assert before_recovery > 100, "produce stood still with Python"
        assert producer.flush(60) == 0

        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "after", "auto.offset.reset": "earliest"}
        )
        consumer.assign([TopicPartition("split", 0, 0)])
        read: list[bytes] = []
        while len(read) < len(acknowledged):
            messages = consumer.consume(1000, timeout=10)
            assert messages, f"only {len(read)} of {len(acknowledged)} records came back"
            read += [message.value() for message in messages]
        consumer.close()
        assert read == acknowledged
