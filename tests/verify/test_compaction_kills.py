"""50 SIGKILLs while logs are compacted and deleted from, most of them aimed at what the cleaner and retention write:
no key loses its last promised value, nothing above a log start offset is lost, and Apache Kafka's tool likes the files.
"""

from __future__ import annotations

from functools import partial

from pybroker.testing.crash.kills import COMPACTION_AIMS, KillRun
from pybroker.testing.crash.trimmed_load import COMPACTED as COMPACTED_TOPIC
from pybroker.testing.fixtures import backends
from pybroker.testing.kafka import fetch
from pybroker.testing.log_dirs import findings

KILLS = 50
AIMS = (*COMPACTION_AIMS, "restart")
COMPACTED = (COMPACTED_TOPIC, "__consumer_offsets")


def test_compaction_and_retention_survive_50_kills() -> None:
    fetch()
    with KillRun(seed=50, backends=backends()) as run:
        for number in range(KILLS):
            run.kill(AIMS[number % len(AIMS)])
            if number % 25 == 24:
                assert run.stop_and_look(partial(findings, compacted=COMPACTED)) == []
        report = run.finish()
    print(report)
    missed = [aim for aim in AIMS if report.kills.get(aim, 0) < 3]
    assert not missed, f"too few kills came right after a change of: {missed}"
    assert report.compacted_count > 1000 and report.deleted_count > 1000, str(report)
