"""Tests in C that play lives of a simulated machine from seeds, with more seeds than `make test` has time for.

Each takes its first seed and how many from the environment, and says on stderr what it plays.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.harness.rounds import Rounds

_CSRC = Path(__file__).resolve().parents[2] / "csrc"
_TAIL = 2000


def simulate(name: str, first_seed: int, seeds: int, **settings: str) -> str:
    """Build one simulation and run it; what it said. AssertionError with the end of that when it failed."""
    numbers = {"PB_SIM_RUNS": str(seeds)}
    if first_seed > 1:
        # With the seeds that it takes by itself a simulation checks as well that enough came to pass.
        numbers["PB_SIM_SEED"] = str(first_seed)
    done = subprocess.run(
        ["make", "-C", str(_CSRC), f"run-{name}"],
        env={**os.environ, **numbers, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-_TAIL:]
    return done.stderr


def play_seeds(
    rounds: Rounds, name: str, seeds: int, per_round: int, cases: int = 1, until: float | None = None
) -> None:
    """All seeds from 1 to `seeds`, each in so many `cases` of the simulation; `until` as in `Rounds.left`."""
    for each in rounds.left(seeds // per_round, seed=0, until=until):
        with each:
            said = simulate(name, 1 + each.number * per_round, per_round)
            each.facts["seeds"] = said.count("seed ")
            assert each.facts["seeds"] >= cases * per_round, "fewer seeds ran than were asked for"
    rounds.require_all()
