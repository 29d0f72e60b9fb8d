"""Fifty rounds of every fault of a broker and of a controller, on clusters of pybroker's brokers and of both kinds.

They need not be played in one go: each cluster plays a few rounds, and what came of it is a line of
`build/soak/cluster-faults.jsonl`. A run goes on for `PYBROKER_SOAK_MINUTES` (default 60), and the next one does what is
left of the fifty. Without the file, or with another version of the program in it, they begin anew.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from pybroker.testing.cluster.rounds import Composition, play_rounds

ROUNDS, ROUNDS_PER_CLUSTER = 50, 3
MINUTES = float(os.environ.get("PYBROKER_SOAK_MINUTES", "60"))
FOUND = Path(__file__).resolve().parents[2] / "build" / "soak" / "cluster-faults.jsonl"


def played(name: str) -> Iterator[dict[str, Any]]:
    """What came of the clusters so far."""
    if FOUND.exists():
        rows = (json.loads(line) for line in FOUND.read_text().splitlines())
        yield from (row for row in rows if (row["cluster"], row["version"]) == (name, version("pybroker")))


def play(name: str, composition: Composition, directory: Path) -> None:
    """One cluster more."""
    seed = random.SystemRandom().randrange(1, 1 << 31)
    print(f"{name}, seed {seed}", flush=True)
    report = play_rounds(
        directory,
        composition,
        rounds=ROUNDS_PER_CLUSTER,
        seed=seed,
        on_round=lambda done: print(done, flush=True),
    )
    print(report, flush=True)
    FOUND.parent.mkdir(parents=True, exist_ok=True)
    row = {
        "version": version("pybroker"),
        "cluster": name,
        "seed": seed,
        "rounds": ROUNDS_PER_CLUSTER,
        "silence_seconds": round(max(each.silence_seconds for each in report.rounds), 1),
        "acknowledged": report.acknowledged_count,
        "violations": [str(each) for each in report.violations[:50]],
    }
    with open(FOUND, "a") as file:
        file.write(json.dumps(row) + "\n")
    assert report.violations == [], f"seed {seed}; everything is in {directory}"


@pytest.mark.parametrize(
    ("name", "composition"),
    [("pybroker", Composition(3, 0)), ("mixed", Composition(2, 2))],
    ids=["pybroker", "mixed"],
)
def test_nothing_promised_is_broken(name: str, composition: Composition, tmp_path: Path) -> None:
    until = time.monotonic() + MINUTES * 60
    number = 0
    while (done := sum(row["rounds"] for row in played(name))) < ROUNDS:
        if time.monotonic() > until:
            pytest.skip(f"{done} of {ROUNDS} rounds have been played: run it again")
        play(name, composition, tmp_path / f"cluster-{number}")
        number += 1
    assert [violation for row in played(name) for violation in row["violations"]] == []
