"""The log through simulated crashes: 100,000 seeds, then every crash point of as many seeds as the time allows.

A run of one seed has some five hundred disk operations, so every point of all seeds would take most of a day: they are
taken from a seed that is printed on, for `PYBROKER_SOAK_MINUTES` (default 60), on all CPUs.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
MINUTES = float(os.environ.get("PYBROKER_SOAK_MINUTES", "60"))
SEEDS = 100_000
SEEDS_PER_RUN = 5_000
EVERY_POINT_SEEDS_PER_RUN = 50


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


def test_a_hundred_thousand_seeds() -> None:
    _build()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = [
            pool.submit(_simulate, first, SEEDS_PER_RUN, PB_SIM_LIVES="4") for first in range(1, SEEDS, SEEDS_PER_RUN)
        ]
        assert sum(each.result() for each in runs) == 4 * SEEDS


def test_every_crash_point() -> None:
    _build()
    until = time.monotonic() + MINUTES * 60
    first = random.SystemRandom().randrange(1, 1 << 31)
    print(f"seeds from {first}")

    def work(lane: int) -> int:
        crash_count, seed = 0, first + (lane << 32)
        while time.monotonic() < until:
            crash_count += _simulate(seed, EVERY_POINT_SEEDS_PER_RUN, PB_SIM_EVERY_POINT="1")
            seed += EVERY_POINT_SEEDS_PER_RUN
        return crash_count

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        crash_count = sum(pool.map(work, range(os.cpu_count() or 1)))
    print(f"{crash_count} crashes")
    assert crash_count > 0
