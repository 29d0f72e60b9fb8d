"""100 SIGKILLs under idempotent load, with topics, configurations and group offsets changing: nothing acknowledged is
lost or doubled, and order is kept. The kills are aimed at every kind of file a broker writes, and at random.
"""

from __future__ import annotations

from pybroker.testing.crash.kills import AIMS, KillRun
from pybroker.testing.fixtures import backends

KILLS = 100


def test_nothing_acknowledged_is_lost_or_doubled_in_100_kills() -> None:
    aims = list(AIMS)
    with KillRun(seed=100, backends=backends()) as run:
        for number in range(KILLS):
            run.kill(aims[number % len(aims)])
        report = run.finish()
    print(report)
    assert sum(report.kills.values()) == KILLS
    missed = [aim for aim in aims if report.kills.get(aim, 0) == 0]
    assert not missed, f"no kill came right after a change of: {missed}"
