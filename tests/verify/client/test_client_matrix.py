"""The whole client matrix: each client produces with every codec, acks and idempotence; all others consume.

Per producer one topic holds all its variants, and every other client reads it as a group of three whose members join
and leave meanwhile. All of this on each backend, then with AddressSanitizer and UndefinedBehaviorSanitizer in the
broker's C code. `PYBROKER_TEST_BROKER=kafka` runs the same against Apache Kafka.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.harness.broker import BrokerProcess
from tests.harness.clients.driver import CLIENTS, CODECS, VARIANTS
from tests.harness.clients.scenario import Scenario, checksum
from tests.harness.kafka import KafkaBroker, run_tool

RECORDS_PER_VARIANT = 300
PERF_RECORDS = 5000


@pytest.mark.parametrize("producer", CLIENTS)
def test_everyone_reads(producer: str, running_broker: BrokerProcess | KafkaBroker, tmp_path: Path) -> None:
    """All variants of one producer reach every other client's group, every record once."""
    for client in CLIENTS.values():
        client.check()
    scenario = Scenario(
        running_broker.bootstrap,
        f"matrix-{producer}",
        tmp_path,
        RECORDS_PER_VARIANT,
        broker_output=running_broker.output_path,
    )
    others = [client for name, client in CLIENTS.items() if name != producer]
    scenario.run([(CLIENTS[producer], variant) for variant in VARIANTS], others)


@pytest.mark.parametrize("codec", CODECS)
def test_java_perf_tools(codec: str, running_broker: BrokerProcess | KafkaBroker) -> None:
    """Kafka's ProducerPerformance writes numbered payloads; kcat reads each once, ConsumerPerformance counts them."""
    topic = f"perf-{codec}"
    arguments = [
        "--bootstrap-server",
        running_broker.bootstrap,
        "--topic",
        topic,
        "--num-records",
        str(PERF_RECORDS),
        "--payload-monotonic",
        "--throughput",
        "-1",
    ]
    arguments += ["--command-property", f"compression.type={codec}"]
    run_tool("org.apache.kafka.tools.ProducerPerformance", *arguments)

    kcat = ["kcat", "-C", "-q", "-e", "-b", running_broker.bootstrap, "-t", topic, "-o", "beginning"]
    values = subprocess.run(kcat, capture_output=True, check=True, timeout=60).stdout.splitlines()
    assert checksum(values) == checksum(b"%d" % number for number in range(PERF_RECORDS))

    arguments = ["--bootstrap-server", running_broker.bootstrap, "--topic", topic, "--num-records", str(PERF_RECORDS)]
    report = run_tool("org.apache.kafka.tools.ConsumerPerformance", *arguments).stdout.decode()
    header, figures = (line.split(", ") for line in report.strip().splitlines()[-2:])
    assert int(dict(zip(header, figures, strict=True))["data.consumed.in.nMsg"]) == PERF_RECORDS
