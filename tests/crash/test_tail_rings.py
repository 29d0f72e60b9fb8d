"""What a killed broker had in tail rings: tools find it, the next start brings it in, and a clean stop leaves none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.metadata.offline import check_metadata, topic_ids
from pybroker.native.walk import EVERY, SegmentWalk
from pybroker.storage.offline.checks.check import check
from pybroker.storage.offline.checks.findings import Report
from pybroker.storage.offline.layout import open_target
from pybroker.storage.offline.repairs.repair_dir import repair
from tests.harness.broker import BrokerProcess
from tests.harness.crash.engines import DIRECT, EngineTurns
from tests.harness.crash.record_load import RecordCheck, RecordLoad

PLACES = [("t", 0)]


@pytest.fixture
def turns() -> Iterator[EngineTurns]:
    made = EngineTurns([DIRECT])
    yield made
    made.close()


def findings(log_dir: Path) -> list[str]:
    report = Report()
    check(open_target(log_dir), report, deep=True, check_metadata=check_metadata)
    return [f"{each.kind} {each.path} {each.text}" for each in report.faults]


def record_count(partition: Path) -> int:
    walk = SegmentWalk()
    logs = sorted(partition.glob("*.log"))
    return sum(row.record_count for log in logs for row in walk.rows(log, int(log.stem), wanted=EVERY))


def test_what_was_in_rings_is_found_and_comes_back(tmp_path: Path, turns: EngineTurns) -> None:
    with BrokerProcess(tmp_path / "data", overrides=turns.overrides(0)) as broker:
        assert broker.ready.get("engine") == DIRECT
        load = RecordLoad(broker.bootstrap, PLACES, producer_count=2)
        load.start()
        try:
            # The first writes make the log hot; what comes then is in the ring, and little of it in the file.
            load.wait_for_progress(60, count=500)
        finally:
            load.stop()
        broker.kill()
        acknowledged = load.ledger.total()
        assert any("tail-ring " in each for each in findings(broker.log_dir)), findings(broker.log_dir)
        result = repair(open_target(broker.log_dir), tmp_path / "repaired", topic_ids)
        assert result.dropped == []
        assert record_count(tmp_path / "repaired" / "t-0") >= acknowledged
        broker.start()
        RecordCheck(broker.bootstrap, PLACES, load.ledger).run(load.ledger.counts(), whole=True)
        assert broker.stop() == 0
        assert findings(broker.log_dir) == []
        assert not list(turns.directory.rglob("*"))
        broker.start()
