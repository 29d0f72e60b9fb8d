"""The data plane and the log on the simulated machine, with more seeds than `make test` has time for."""

from __future__ import annotations

from tests.harness.rounds import Rounds
from tests.harness.simulations import play_seeds, simulate


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
