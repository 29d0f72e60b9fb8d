"""The log through simulated crashes: 100,000 seeds, then every crash point of as many seeds as the time allows.

A run of one seed has some five hundred disk operations, so every point of all seeds would take most of a day: a round
takes some seeds, on all CPUs, and rounds go on for `PYBROKER_SOAK_MINUTES` (default 60).
"""

from __future__ import annotations

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

from tests.harness.rounds import Rounds, soak_seconds

REPOSITORY = Path(__file__).resolve().parents[2]
SEEDS = 100_000
SEEDS_PER_ROUND = 5_000
EVERY_POINT_SEEDS_PER_ROUND = 50


def _simulate(first_seed: int, seeds: int, **settings: str) -> int:
    """Run some seeds in a process of their own; how many crashes there were."""
    binary = REPOSITORY / "build" / "native" / "tests" / "sim" / "test_log_sim"
    numbers = {"PB_SIM_SEED": str(first_seed), "PB_SIM_RUNS": str(seeds)}
    done = subprocess.run(
        [str(binary)], env={**os.environ, **numbers, **settings}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stderr.split(" seeds, ")[1].split()[0])


def _build() -> None:
    subprocess.run(
        ["make", "-C", str(REPOSITORY / "csrc"), "run-test_log_sim"],
        env={**os.environ, "PB_SIM_RUNS": "1"},
        check=True,
        capture_output=True,
    )


def _on_all_cpus(first_seed: int, seeds: int, **settings: str) -> int:
    """As `_simulate`, a slice per CPU."""
    cpus = os.cpu_count() or 1
    edges = [first_seed + seeds * lane // cpus for lane in range(cpus + 1)]
    with ThreadPoolExecutor(cpus) as pool:
        runs = [pool.submit(_simulate, low, high - low, **settings) for low, high in pairwise(edges) if high > low]
        return sum(each.result() for each in runs)


def test_a_hundred_thousand_seeds(rounds: Rounds) -> None:
    _build()
    for each in rounds.left(SEEDS // SEEDS_PER_ROUND, seed=0):
        with each:
            first = 1 + each.number * SEEDS_PER_ROUND
            each.facts["crashes"] = _on_all_cpus(first, SEEDS_PER_ROUND, PB_SIM_LIVES="4")
            assert each.facts["crashes"] == 4 * SEEDS_PER_ROUND
    rounds.require_all()


def test_every_crash_point(rounds: Rounds) -> None:
    _build()
    for each in rounds.without_end(time.monotonic() + soak_seconds()):
        with each:
            each.facts["crashes"] = _on_all_cpus(each.seed, EVERY_POINT_SEEDS_PER_ROUND, PB_SIM_EVERY_POINT="1")
            assert each.facts["crashes"] > EVERY_POINT_SEEDS_PER_ROUND
