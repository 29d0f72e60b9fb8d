"""Three simulated replicas under faults and elections, for ten thousand seeds, with durable acks and without.

Rounds of some seeds that need not be played in one go: a run goes on for `PYBROKER_SOAK_MINUTES` (default 60), and the
next one does what is left.
"""

from __future__ import annotations

import time

from tests.harness.rounds import Rounds, soak_seconds
from tests.harness.simulations import play_seeds

SEEDS = 10_000
SEEDS_PER_ROUND = 100


def test_ten_thousand_seeds_of_three_replicas(rounds: Rounds) -> None:
    until = time.monotonic() + soak_seconds()
    play_seeds(rounds, "test_replication_sim", SEEDS, SEEDS_PER_ROUND, cases=2, until=until)


def test_ten_thousand_seeds_of_leaders_that_say_a_high_watermark_once(rounds: Rounds) -> None:
    until = time.monotonic() + soak_seconds()
    play_seeds(rounds, "test_kafka_leader_sim", SEEDS, SEEDS_PER_ROUND, until=until)
