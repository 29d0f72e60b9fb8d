"""The facts that our tables of settings are held against are those of Apache Kafka's own jars."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.harness.kafka import KAFKA_VERSION, run_tool

DATA = Path(__file__).parents[1] / "unit/config/data"


@pytest.mark.skipif(
    shutil.which("javac") is None or shutil.which("mvn") is None, reason="needs a JDK, and mvn to fetch Apache Kafka"
)
def test_the_recorded_facts_are_those_of_the_jars() -> None:
    printed = run_tool(str(DATA / "DumpConfigKeys.java")).stdout.decode().splitlines()
    recorded = (DATA / f"kafka-{KAFKA_VERSION}-keys.jsonl").read_text().splitlines()
    assert len(printed) == len(recorded) == 379 + 3 + 38
    assert [each for each in printed if each not in recorded] == []
