"""The same script of requests as a real Apache Kafka was given: same responses, same records.

`data/kafka_groups.json` holds what Kafka answered and the segment that it wrote; `make_golden.py` makes it anew.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import scenario
from broker_double import BrokerDouble, image_with, settle
from machine import Machine, persisted
from memory_writer import MemoryWriter

from pybroker.coordinator.group.model.settings import OFFSETS_TOPIC
from pybroker.protocol import coordinator_records, record_batch
from pybroker.protocol.kafka_version import KAFKA_VERSION

GOLDEN = json.loads((Path(__file__).parent / "data" / "kafka_groups.json").read_text())
TIMES = ("commit_timestamp", "expire_timestamp", "current_state_timestamp")


async def _run_ours() -> tuple[list[tuple[str, str]], bytes]:
    topic_id = bytes.fromhex(GOLDEN["topic_id"])
    writer = MemoryWriter()
    broker = BrokerDouble(image_with({scenario.TOPIC: (topic_id, 3)}), writer)
    await broker.start()
    log = await scenario.run(broker.call, topic_id, settle)
    await broker.groups.stop()
    normalise = scenario.Normaliser()
    steps = [(name, normalise(repr(response))) for name, response in log]
    return steps, b"".join(writer.logs[OFFSETS_TOPIC, 0])


@pytest.fixture(scope="module")
def ours() -> tuple[list[tuple[str, str]], bytes]:
    return asyncio.run(_run_ours())


def test_the_golden_file_is_of_the_reference() -> None:
    assert GOLDEN["kafka_version"] == KAFKA_VERSION


def test_same_responses(ours: tuple[list[tuple[str, str]], bytes]) -> None:
    differing = []
    for (name, expected), (our_name, actual) in zip(GOLDEN["steps"], ours[0], strict=True):
        assert name == our_name
        if expected != actual:
            differing.append(f"{name}\n  Kafka: {expected}\n  ours:  {actual}")
    assert not differing, "\n".join(differing)


def _records(segment: bytes) -> list[str]:
    normalise = scenario.Normaliser()
    found = []
    for batch in record_batch.parse(segment):
        for record in batch.records:
            decoded = coordinator_records.decode("group", record.key, record.value)
            value: Any = decoded.value
            for name in TIMES:
                if value is not None and getattr(value, name, -1) > 0:
                    setattr(value, name, 1)
            found.append(normalise(f"{decoded.key} {decoded.value_version} {scenario.canonical(value)}"))
    return found


def test_same_records(ours: tuple[list[tuple[str, str]], bytes]) -> None:
    assert _records(ours[1]) == _records(bytes.fromhex(GOLDEN["segment"]))


def test_record_bytes_are_kafkas() -> None:
    """What Kafka wrote is what our encoder makes of the same values."""
    count = 0
    for batch in record_batch.parse(bytes.fromhex(GOLDEN["segment"])):
        for record in batch.records:
            decoded = coordinator_records.decode("group", record.key, record.value)
            assert coordinator_records.encode_key(decoded.key) == record.key
            if decoded.value is not None:
                assert decoded.value_version is not None
                assert coordinator_records.encode_value(decoded.value, decoded.value_version) == record.value
            count += 1
    assert count > 20


def _loaded_state(segment: bytes) -> str:
    records = [record for batch in record_batch.parse(segment) for record in batch.records]
    state = persisted(Machine([(record.key or b"", record.value) for record in records]).state)
    offsets = {key: (offset, epoch, topic_id) for key, (offset, epoch, _, topic_id) in state["offsets"].items()}
    groups = sorted((name, repr(group)) for name, group in state["groups"].items())
    return scenario.Normaliser()(repr((groups, sorted(offsets.items()))))


def test_kafkas_segment_loads_to_the_same_state(ours: tuple[list[tuple[str, str]], bytes]) -> None:
    state = _loaded_state(bytes.fromhex(GOLDEN["segment"]))
    assert state == _loaded_state(ours[1])
    assert "simple10" in state
    assert "Stable" in state or "Empty" in state
