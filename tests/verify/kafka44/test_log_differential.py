"""500 random histories of logs played to us and to Apache Kafka, a hundred at a time: what is readable, where logs
start and end, what compaction keeps, and what producers and transactions left behind are the same.

A history that differs is shrunk and saved in build/differential; put it into tests/kafka/histories, where it is played
by every `make test`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.harness.differential.generate import histories
from tests.harness.differential.run import DifferentialRun, Failure
from tests.harness.kafka import fetch
from tests.harness.rounds import Rounds

COUNT = 500
PER_ROUND = 100
SEED = 50_000
SAVED = Path(__file__).resolve().parents[3] / "build" / "differential"


def test_500_histories_end_as_apache_kafkas(tmp_path: Path, rounds: Rounds) -> None:
    fetch()
    with DifferentialRun(tmp_path) as run:
        for each in rounds.left(COUNT // PER_ROUND, SEED):
            with each:
                failures = run.play(histories(SEED + each.number * PER_ROUND, PER_ROUND, transactions=True))
                each.facts["histories"] = PER_ROUND
                if failures:
                    raise AssertionError(saved(run, failures))
    rounds.require_all()


def saved(run: DifferentialRun, failures: Sequence[Failure]) -> str:
    """Keep what differs, the first of them shrunk, and say what it is."""
    SAVED.mkdir(parents=True, exist_ok=True)
    for each in failures[:10]:
        (SAVED / f"{each.history.name}.json").write_text(each.history.as_json())
    smallest = run.shrink(failures[0])
    path = SAVED / f"{smallest.history.name}.json"
    path.write_text(smallest.history.as_json())
    return "\n".join([f"{len(failures)} differ; {path}: {smallest}", *map(str, failures[:10])])
