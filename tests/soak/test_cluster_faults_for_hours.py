"""Fifty rounds of every fault of a broker and of a controller, on clusters of pybroker's brokers and of both kinds, the
latter with controllers of each supported version of Apache Kafka.

They need not be played in one go: each round has a cluster of its own and is a line of
`build/rounds/test_cluster_faults_for_hours.jsonl`. A run goes on for `PYBROKER_SOAK_MINUTES` (default 60), and the next
one does what is left of the fifty.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.harness.cluster.fixtures import CONTROLLER_VERSIONS
from tests.harness.cluster.rounds import Composition, play_rounds
from tests.harness.rounds import Rounds, soak_seconds

ROUNDS = 50
COMPOSITIONS = {
    "pybroker": Composition(3, 0),
    **{
        f"mixed-controllers {version}": Composition(2, 2, controller_version=version) for version in CONTROLLER_VERSIONS
    },
}


@pytest.mark.parametrize("composition", COMPOSITIONS.values(), ids=list(COMPOSITIONS))
def test_nothing_promised_is_broken(composition: Composition, tmp_path: Path, rounds: Rounds) -> None:
    for each in rounds.left(ROUNDS, seed=2, until=time.monotonic() + soak_seconds()):
        with each:
            directory = tmp_path / f"cluster-{each.number}"
            report = play_rounds(
                directory,
                composition,
                rounds=1,
                seed=each.seed,
                on_round=lambda done: print(done, flush=True),
            )
            each.facts |= {
                "silence_seconds": round(max(done.silence_seconds for done in report.rounds), 1),
                "acknowledged": report.acknowledged_count,
                "stuck_members": report.stuck_member_count,
            }
            assert report.violations == [], f"everything is in {directory}"
    rounds.require_all()
