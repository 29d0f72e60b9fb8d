"""100 SIGKILLs under idempotent load, with topics, configurations and group offsets changing: nothing acknowledged is
lost or doubled, and order is kept. The kills are aimed at every kind of file a broker writes, and at random; topics of
every durability mode, with each append engine, and with another one after each kill.
"""

from __future__ import annotations

import pytest

from tests.harness.crash.engines import DIRECT, PACED
from tests.harness.crash.kills import AIMS, KillRun
from tests.harness.fixtures import backends
from tests.harness.rounds import Rounds

KILLS = 100
SEED = 100
# A restart by itself is far below what it may take; some meet a machine that is busy with something else.
MOST_SLOW = 10


@pytest.mark.parametrize("engines", [(PACED,), (DIRECT,), (DIRECT, PACED)], ids="-".join)
def test_nothing_acknowledged_is_lost_or_doubled_in_100_kills(engines: tuple[str, ...], rounds: Rounds) -> None:
    aims = list(AIMS)
    with KillRun(seed=SEED, backends=backends(), engines=engines) as run:
        for each in rounds.left(KILLS, SEED):
            with each:
                each.facts |= run.kill(aims[each.number % len(aims)], each.number, each.seed)
        with rounds.closing():
            print(run.finish())
    facts = [row["facts"] for row in rounds.require_all()]
    slow = [each for each in facts if each["restart_ms"] > each["allowed_ms"]]
    worst = max(each["restart_ms"] for each in facts)
    print(f"{len(slow)} of {len(facts)} restarts took more than a second per GiB, the worst {worst} ms")
    assert len(slow) <= MOST_SLOW, slow
    hit = {each["aim"] for each in facts}
    assert hit == set(aims), f"no kill came right after a change of: {set(aims) - hit}"
