"""A sample of random histories of logs, and all that ever differed, played to us and to Apache Kafka. The 500 are in
tests/verify."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.harness.differential import history as h
from tests.harness.differential.generate import histories
from tests.harness.differential.run import DifferentialRun
from tests.harness.kafka import fetch

SAVED = sorted((Path(__file__).parent / "histories").glob("*.json"))
COUNT = 18


@pytest.fixture(scope="module", autouse=True)
def jars() -> None:
    """Fetched outside any test's time limit."""
    fetch()


def test_a_sample_ends_as_apache_kafkas(tmp_path: Path) -> None:
    """One round, a kill with torn tails, and what recovery makes of it when all is closed and cleaned once more."""
    wanted = [replace(each, rounds=each.rounds[:1]) for each in histories(7, COUNT, transactions=True)]
    with DifferentialRun(tmp_path, still_seconds=0.3) as run:
        failures = run.play([*wanted, *map(h.load, SAVED)], restarts=("kill",), settles=1)
    assert not failures, "\n".join(map(str, failures))
