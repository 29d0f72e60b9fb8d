"""100 SIGKILLs under idempotent load, with topics, configurations and group offsets changing: nothing acknowledged is
lost or doubled, and order is kept. The kills are aimed at every kind of file a broker writes, and at random; topics of
every durability mode, with each append engine, and with another one after each kill.
"""

from __future__ import annotations

import pytest

from pybroker.testing.crash.engines import DIRECT, PACED
from pybroker.testing.crash.kills import AIMS, KillRun
from pybroker.testing.fixtures import backends

KILLS = 100


@pytest.mark.parametrize("engines", [(PACED,), (DIRECT,), (DIRECT, PACED)], ids="-".join)
def test_nothing_acknowledged_is_lost_or_doubled_in_100_kills(engines: tuple[str, ...]) -> None:
    aims = list(AIMS)
    with KillRun(seed=100, backends=backends(), engines=engines) as run:
        for number in range(KILLS):
            run.kill(aims[number % len(aims)])
        report = run.finish()
    print(report)
    assert sum(report.kills.values()) == KILLS
    missed = [aim for aim in aims if report.kills.get(aim, 0) == 0]
    assert not missed, f"no kill came right after a change of: {missed}"
