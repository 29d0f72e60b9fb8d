"""A few SIGKILLs of a loaded broker, and proof that the check notices a lost record. The many are in tests/verify."""

from __future__ import annotations

import pytest

from tests.harness.broker import BrokerProcess
from tests.harness.crash.engines import DIRECT, PACED
from tests.harness.crash.kills import KillRun
from tests.harness.crash.record_load import RecordCheck, RecordLoad
from tests.harness.fixtures import backends


def test_nothing_acknowledged_is_lost_or_doubled_by_a_kill() -> None:
    with KillRun(seed=1, backends=backends(), engines=(DIRECT, PACED)) as run:
        for aim in ("roll", "metadata", "producer snapshot"):
            run.kill(aim)
        print(run.finish())


def test_the_check_notices_a_lost_record() -> None:
    # With direct the ring has what the file lost.
    with BrokerProcess(overrides={"pybroker.append.engine": PACED}) as broker:
        places = [("t", 0)]
        load = RecordLoad(broker.bootstrap, places, producer_count=1)
        load.start()
        try:
            load.wait_for_progress(60)
        finally:
            load.stop()
        broker.kill()
        segment = max(broker.log_dir.glob("t-0/*.log"))
        with open(segment, "r+b") as file:
            file.truncate(segment.stat().st_size - 1)
        broker.start()
        with pytest.raises(AssertionError, match="are lost"):
            RecordCheck(broker.bootstrap, places, load.ledger).run(load.ledger.counts())
