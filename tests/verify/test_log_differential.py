"""500 random histories of logs played to us and to Apache Kafka in one run of each: what is readable, where logs start
and end, what compaction keeps, and what producers and transactions left behind are the same.

A history that differs is shrunk and saved in build/differential; put it into tests/kafka/histories, where it is played
by every `make test`.
"""

from __future__ import annotations

from pathlib import Path

from pybroker.testing.differential.generate import histories
from pybroker.testing.differential.run import DifferentialRun
from pybroker.testing.kafka import fetch

COUNT = 500
SEED = 50_000
SAVED = Path(__file__).resolve().parents[2] / "build" / "differential"


def test_500_histories_end_as_apache_kafkas(tmp_path: Path) -> None:
    fetch()
    with DifferentialRun(tmp_path) as run:
        failures = run.play(histories(SEED, COUNT, transactions=True))
        if failures:
            SAVED.mkdir(parents=True, exist_ok=True)
            for each in failures[:10]:
                (SAVED / f"{each.history.name}.json").write_text(each.history.as_json())
            others = "\n".join(map(str, failures[:10]))
            print(others)
            smallest = run.shrink(failures[0])
            path = SAVED / f"{smallest.history.name}.json"
            path.write_text(smallest.history.as_json())
            raise AssertionError(f"{len(failures)} of {COUNT} differ; {path}: {smallest}\n{others}")
