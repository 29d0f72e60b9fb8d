"""50 SIGKILLs while logs are compacted and deleted from, most of them aimed at what the cleaner and retention write:
no key loses its last promised value, nothing above a log start offset is lost, and Apache Kafka's tool likes the files.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from tests.harness.crash.kills import COMPACTION_AIMS, KillRun
from tests.harness.crash.trimmed_load import COMPACTED as COMPACTED_TOPIC
from tests.harness.fixtures import backends
from tests.harness.kafka import fetch
from tests.harness.log_dirs import findings
from tests.harness.rounds import Rounds

KILLS = 50
SEED = 50
AIMS = (*COMPACTION_AIMS, "restart")
COMPACTED = (COMPACTED_TOPIC, "__consumer_offsets")


def test_compaction_and_retention_survive_50_kills(rounds: Rounds) -> None:
    fetch()
    with KillRun(seed=SEED, backends=backends()) as run:
        for each in rounds.left(KILLS, SEED):
            with each:
                each.facts |= run.kill(AIMS[each.number % len(AIMS)], each.number, each.seed)
        with rounds.closing():
            assert run.stop_and_look(partial(findings, compacted=COMPACTED)) == []
            print(run.finish())
    hits = Counter(row["facts"]["aim"] for row in rounds.require_all())
    missed = [aim for aim in AIMS if hits[aim] < 3]
    assert not missed, f"too few kills came right after a change of: {missed}"
    assert rounds.total("compacted") > 1000 and rounds.total("deleted") > 1000
