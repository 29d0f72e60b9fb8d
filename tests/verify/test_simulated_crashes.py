"""The data plane and the log on the simulated machine, with more seeds than `make test` has time for."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from pybroker.testing.rounds import Rounds

REPOSITORY = Path(__file__).resolve().parents[2]


def simulate(name: str, first_seed: int, seeds: int, **settings: str) -> str:
    """Run one simulation; what it said."""
    numbers = {"PB_SIM_RUNS": str(seeds)}
    if first_seed > 1:
        # With the seeds that it takes by itself a simulation checks as well that enough came to pass.
        numbers["PB_SIM_SEED"] = str(first_seed)
    done = subprocess.run(
        ["make", "-C", str(REPOSITORY / "csrc"), f"run-{name}"],
        env={**os.environ, **numbers, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    return done.stderr


def play_seeds(rounds: Rounds, name: str, seeds: int, per_round: int, cases: int = 1) -> None:
    """All seeds from 1 to `seeds`, each in so many `cases` of the simulation."""
    for each in rounds.left(seeds // per_round, seed=0):
        with each:
            said = simulate(name, 1 + each.number * per_round, per_round)
            each.facts["seeds"] = said.count("seed ")
            assert each.facts["seeds"] >= cases * per_round, "fewer seeds ran than were asked for"
    rounds.require_all()


def test_a_thousand_seeds_of_the_data_plane(rounds: Rounds) -> None:
    play_seeds(rounds, "test_broker_sim", 1000, 100)


def test_ten_thousand_seeds_of_a_leader(rounds: Rounds) -> None:
    play_seeds(rounds, "test_leader_sim", 10_000, 1000)


def test_a_thousand_seeds_of_three_replicas(rounds: Rounds) -> None:
    """With durable acks and without."""
    play_seeds(rounds, "test_replication_sim", 1000, 50, cases=2)


def test_ten_thousand_seeds_of_the_log(rounds: Rounds) -> None:
    for each in rounds.left(10, seed=0):
        with each:
            said = simulate("test_log_sim", 1 + each.number * 1000, 1000, PB_SIM_LIVES="4")
            assert "1000 seeds, 4000 crashes" in said
    rounds.require_all()


def test_every_crash_point_of_some_seeds(rounds: Rounds) -> None:
    for each in rounds.left(8, seed=0):
        with each:
            said = simulate("test_log_sim", 1000 + each.number * 5, 5, PB_SIM_EVERY_POINT="1")
            each.facts["crashes"] = int(said.split("5 seeds, ")[1].split()[0])
    rounds.require_all()
    assert rounds.total("crashes") > 40 * 100, "a seed has some hundred disk operations to crash before"
