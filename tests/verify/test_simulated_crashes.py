"""The data plane and the log on the simulated machine, with more seeds than `make test` has time for."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def simulate(name: str, **settings: str) -> str:
    """Run one simulation; what it said."""
    done = subprocess.run(
        ["make", "-C", str(REPOSITORY / "csrc"), f"run-{name}"],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    return done.stderr


def test_a_thousand_seeds_of_the_data_plane() -> None:
    said = simulate("test_broker_sim", PB_SIM_RUNS="1000")
    assert said.count("seed ") >= 1000, "fewer seeds ran than were asked for"


def test_ten_thousand_seeds_of_a_leader() -> None:
    said = simulate("test_leader_sim", PB_SIM_RUNS="10000")
    assert said.count("seed ") >= 10_000, "fewer seeds ran than were asked for"


def test_a_thousand_seeds_of_three_replicas() -> None:
    said = simulate("test_replication_sim", PB_SIM_RUNS="1000")
    assert said.count("seed ") >= 2000, "fewer seeds ran than were asked for, with durable acks or without"


def test_ten_thousand_seeds_of_the_log() -> None:
    assert "10000 seeds, 40000 crashes" in simulate("test_log_sim", PB_SIM_RUNS="10000", PB_SIM_LIVES="4")


def test_every_crash_point_of_some_seeds() -> None:
    said = simulate("test_log_sim", PB_SIM_SEED="1000", PB_SIM_RUNS="40", PB_SIM_EVERY_POINT="1")
    assert "40 seeds, " in said
    crash_count = int(said.split("40 seeds, ")[1].split()[0])
    assert crash_count > 40 * 100, "a seed has some hundred disk operations to crash before"
