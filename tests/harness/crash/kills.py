"""`KillRun`: a broker under load that is killed again and again, at moments aimed at a kind of file, and checked.

The caller's thread drives it and owns it as a context manager. Can fail: AssertionError when something that was
acknowledged is not there after a restart, ProcessFailed when the broker does not come back.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from confluent_kafka.admin import AdminClient, NewTopic

from tests.harness.broker import BrokerProcess
from tests.harness.crash import trimmed_load
from tests.harness.crash.control_load import ControlLoad
from tests.harness.crash.engines import PACED, EngineTurns
from tests.harness.crash.file_watch import FileWatch
from tests.harness.crash.record_load import RecordCheck, RecordLoad
from tests.harness.crash.trimmed_load import TrimmedCheck, TrimmedLedger, TrimmedLoad

_ROLLING, _SMALL, _DURABLE = "rolling", "small", "durable"
_TOPICS: Mapping[str, Mapping[str, str]] = {
    # Rolls many times a second, by time and by size.
    _ROLLING: {"segment.ms": "100", "index.interval.bytes": "512"},
    _SMALL: {"segment.bytes": "1048576", "index.interval.bytes": "1024", "flush.ms": "100"},
    _DURABLE: {"segment.bytes": "1048576", "pybroker.durability": "acks"},
}
_PARTITIONS = 3
OVERRIDES = {
    **trimmed_load.OVERRIDES,
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "log.initial.task.delay.ms": "50",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "log.flush.start.offset.checkpoint.interval.ms": "100",
    "log.segment.delete.delay.ms": "100",
    # Snapshots of the metadata, and what they let go, every few changes.
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "metadata.max.retention.bytes": "20000",
    "producer.id.expiration.ms": "600000",
}

#: Which changed path (relative to the log dir) a kill is aimed at. "random" is aimed at none; after "restart" the
#: broker is killed once more while it starts.
AIMS: Mapping[str, str] = {
    "random": "",
    "restart": "",
    "roll": r"(rolling|small)-\d/\d{20}\.log",
    "index": r"(rolling|small)-\d/\d{20}\.(index|timeindex)",
    "producer snapshot": r"(rolling|small)-\d/\d{20}\.snapshot.*",
    "epochs": r".*/leader-epoch-checkpoint.*",
    "checkpoint": r"[a-z-]+-checkpoint(\.tmp)?",
    "metadata": r"__cluster_metadata-0/\d{20}\.log",
    "metadata snapshot": r"__cluster_metadata-0/.*\.checkpoint.*",
    "topic": r"made-[^/]*",
    "commit": r"__consumer_offsets-\d/\d{20}\.log",
    "cleaning": r"compacted-\d/\d{20}\.\w+\.cleaned",
    "swap": r"compacted-\d/\d{20}\.\w+\.(swap|deleted)",
    "cleaner checkpoint": r"cleaner-offset-checkpoint(\.tmp)?",
    "deletion": r"trimmed-\d/\d{20}\.\w+\.deleted",
}
#: Those of them that the cleaner and retention write.
COMPACTION_AIMS = ("cleaning", "swap", "cleaner checkpoint", "deletion")


#: What a restart may take on top of that of an empty broker: so much for each GiB written, one begun included.
RESTART_MS_PER_GIB = 1000
_GIB = 1 << 30

#: Changes of these kinds come many times a second, but for a machine that is busy with something else.
_AIM_SECONDS = 20.0


@dataclass
class KillReport:
    """What a run did, for a person."""

    kills: dict[str, int] = field(default_factory=dict)
    restart_ms: list[int] = field(default_factory=list)
    checked_count: int = 0
    acknowledged_count: int = 0
    operation_count: int = 0
    compacted_count: int = 0
    deleted_count: int = 0

    def __str__(self) -> str:
        hits = ", ".join(f"{count} at {aim}" for aim, count in sorted(self.kills.items()))
        ordered = sorted(self.restart_ms) or [0]
        return (
            f"{sum(self.kills.values())} kills ({hits}); {self.acknowledged_count} records acknowledged, "
            f"{self.checked_count} read and compared, {self.operation_count} topic, config and group operations; "
            f"{self.compacted_count} compacted away, {self.deleted_count} deleted; "
            f"restart until ready median {ordered[len(ordered) // 2]} ms, worst {ordered[-1]} ms"
        )


class KillRun:
    """See the module. `backends` and `engines` take turns; `seed` decides aims and moments."""

    def __init__(
        self, seed: int, backends: list[str], engines: Sequence[str] = (PACED,), records_per_second: int = 1500
    ) -> None:
        self.report = KillReport()
        self._random = random.Random(seed)
        self._seed = seed
        self._backends = backends
        self._engines = engines
        self._rate = records_per_second
        self._places = [(topic, index) for topic in _TOPICS for index in range(_PARTITIONS)]

    def __enter__(self) -> KillRun:
        self._turns = EngineTurns(self._engines)
        overrides = {**OVERRIDES, **self._turns.overrides(0), "pybroker.io.backend": self._backends[0]}
        started = time.monotonic()
        self._broker = BrokerProcess(overrides=overrides)
        self._empty_ms = int((time.monotonic() - started) * 1000)
        bootstrap = self._broker.bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        wanted = [NewTopic(name, _PARTITIONS, 1, config=dict(config)) for name, config in _TOPICS.items()]
        wanted += [
            NewTopic(name, trimmed_load.PARTITIONS, 1, config=dict(config))
            for name, config in trimmed_load.TOPICS.items()
        ]
        for future in admin.create_topics(wanted).values():
            future.result(60)
        self._load = RecordLoad(bootstrap, self._places, records_per_second=self._rate)
        self._control = ControlLoad(bootstrap, _SMALL, self._seed)
        self._check = RecordCheck(bootstrap, self._places, self._load.ledger)
        self._trimmed_ledger = TrimmedLedger()
        self._trimmed = TrimmedLoad(bootstrap, self._trimmed_ledger, self._seed)
        self._trimmed_check = TrimmedCheck(bootstrap, self._trimmed_ledger)
        self._load.start()
        self._trimmed.start()
        self._control.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._load.stop()
        self._trimmed.stop()
        self._control.stop()
        self._broker.__exit__(kind, error, trace)
        self._turns.close()

    def kill(self, aim: str, number: int | None = None, seed: int | None = None) -> dict[str, str | int]:
        """Kill at the next change that `aim` names (or soon, when there is none), restart, check. `number`, by default
        of this run's kills, says whose turn is next; with a `seed` the moment is that of every kill with that seed.
        What came of it, for a line about this kill."""
        if seed is not None:
            self._random.seed(seed)
        before = self._counts()
        self._load.wait_for_progress(60)
        hit = self._wait_for(aim)
        records = self._load.ledger.counts()
        trimmed = self._trimmed_ledger.ends()
        promised = self._control.promises()
        self._broker.kill()
        written = sum(path.stat().st_size for path in self._broker.log_dir.glob("*/*.log"))
        label = aim if hit else "random"
        self.report.kills[label] = self.report.kills.get(label, 0) + 1
        kill_count = sum(self.report.kills.values())
        life = kill_count if number is None else number + 1
        self._broker.set_override("pybroker.io.backend", self._backends[life % len(self._backends)])
        self._turns.begin(self._broker, life)
        if aim == "restart":
            self._broker.start_and_kill(self._random.uniform(0.2, 0.9))
        started = time.monotonic()
        self._broker.start()
        self.report.restart_ms.append(int((time.monotonic() - started) * 1000))
        self._control.check(promised)
        self.report.checked_count += self._check.run(records, whole=kill_count % 10 == 0)
        self._check_trimmed(trimmed)
        after = self._counts()
        facts = {name: after[name] - before[name] for name in before}
        restart = {"restart_ms": self.report.restart_ms[-1], "allowed_ms": self._allowed_ms(written)}
        return {"aim": label, "written_mib": written >> 20, **restart, **facts}

    def _allowed_ms(self, written_bytes: int) -> int:
        """How long a restart may take over logs of so many bytes."""
        return self._empty_ms + RESTART_MS_PER_GIB * max(1, -(-written_bytes // _GIB))

    def _counts(self) -> dict[str, int]:
        return {
            "checked": self.report.checked_count,
            "acknowledged": self._load.ledger.total() + self._trimmed_ledger.total(),
            "compacted": self.report.compacted_count,
            "deleted": self.report.deleted_count,
        }

    def _check_trimmed(self, promised: Mapping[trimmed_load.Place, int]) -> None:
        self.report.checked_count += self._trimmed_check.run(promised)
        self.report.compacted_count = self._trimmed_check.compacted_count
        self.report.deleted_count = self._trimmed_check.deleted_count

    def stop_and_look(self, look: Callable[[Path], list[str]]) -> list[str]:
        """What `look` finds in the log dir after a clean stop; the load goes on."""
        assert self._broker.stop() == 0
        found = look(self._broker.log_dir)
        self._broker.start()
        return found

    def _wait_for(self, aim: str) -> bool:
        hit = aim == "restart"
        if aim in ("random", "restart"):
            time.sleep(self._random.uniform(0.0, 0.4))
        else:
            with FileWatch(self._broker.log_dir) as watch:
                pattern = re.compile(AIMS[aim])
                matches = lambda path: pattern.fullmatch(path) is not None  # noqa: E731
                hit = watch.wait(matches, _AIM_SECONDS, count=self._random.randint(1, 6)) is not None
        if self._random.random() < 0.5:
            time.sleep(self._random.uniform(0.0, 0.003))
        return hit

    def finish(self) -> KillReport:
        """Stop the load, and check everything once more: each record sent is answered by now and there exactly once."""
        self._load.stop()
        self._trimmed.stop()
        self._control.stop()
        ledger = self._load.ledger
        assert not ledger.failures, ledger.failures[:5]
        self._control.check(self._control.promises())
        self.report.checked_count += self._check.run(ledger.counts(), whole=True)
        self._check_trimmed(self._trimmed_ledger.ends())
        self.report.acknowledged_count = ledger.total() + self._trimmed_ledger.total()
        self.report.operation_count = self._control.operation_count
        return self.report
