"""A sample of `LogSteps`: transactions, DeleteRecords and reads on a hot log, over rolls, kills and other engines."""

from __future__ import annotations

from pathlib import Path

from tests.harness.broker import BrokerProcess
from tests.harness.crash.engines import DIRECT, PACED, EngineTurns
from tests.harness.crash.log_steps import OVERRIDES, LogSteps


def test_a_log_stays_what_it_was_over_kills_and_engines(tmp_path: Path) -> None:
    turns = EngineTurns((DIRECT, DIRECT, PACED))
    try:
        with BrokerProcess(tmp_path / "data", overrides={**OVERRIDES, **turns.overrides(0)}) as broker:
            steps = LogSteps(broker, turns, seed=1)
            for kill in (True, False, True):
                steps.live(150, kill=kill)
            steps.close()
    finally:
        turns.close()
