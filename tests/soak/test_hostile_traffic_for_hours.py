"""Hostile traffic with new seeds beside an honest client, for `PYBROKER_SOAK_MINUTES` (default 60), on both backends.

A round is a few turns of one seed, which begin at a random place of its sweep; its seed is in
`build/rounds/test_hostile_traffic_for_hours.jsonl`.
"""

from __future__ import annotations

import random
import time

from tests.harness.fixtures import backends
from tests.harness.hostile.turns import HostileTurns, hostile_broker
from tests.harness.rounds import Rounds, soak_seconds

TURNS_PER_ROUND = 6


def test_hostile_traffic(rounds: Rounds) -> None:
    until = time.monotonic() + soak_seconds()
    for each in rounds.without_end(until):
        with each:
            chance = random.Random(each.seed)
            ours = [backend for backend in backends() if backend != "kafka"]
            with hostile_broker(**{"pybroker.io.backend": chance.choice(ours)}) as broker:
                turns = HostileTurns(broker, seed=each.seed, first=chance.randrange(10_000))
                for _ in range(TURNS_PER_ROUND):
                    turns.play()
                each.facts["figures"] = turns.result.text()
                turns.check()
                assert broker.stop() == 0
