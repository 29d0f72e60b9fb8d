"""Hostile traffic beside an honest client: every API and version at least once, and what the honest client feels of it.

The sweep of one seed takes most of an hour on two cores. `tests/soak` goes on with other seeds.
"""

from __future__ import annotations

from tests.harness.hostile.turns import HostileTurns, hostile_broker

SEED = 20261127
#: A median needs as many.
FEWEST_TURNS = 5


def test_every_api_and_version_beside_a_bystander() -> None:
    with hostile_broker() as broker:
        turns = HostileTurns(broker, seed=SEED)
        while not turns.swept() or len(turns.result.attacked_p99) < FEWEST_TURNS:
            turns.play()
        turns.check()
        assert broker.stop() == 0
