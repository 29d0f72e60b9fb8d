"""`PowerRun`: a broker under load whose power is cut again and again, and what must be there afterwards.

What a power cut may take is what was never synced. So after each: the metadata log has every acknowledged change; every
partition is a prefix of what was sent, without holes, up to the recovery point at least; with durable acks, everything
is there that was acknowledged or read; CRCs, indexes and numbering are right; the broker starts by itself. The caller's
thread drives it and owns it as a context manager.
"""

from __future__ import annotations

import ctypes
import os
import random
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from confluent_kafka.admin import AdminClient, NewTopic

from tests.harness.broker import BrokerProcess
from tests.harness.crash import trimmed_load
from tests.harness.crash.control_load import ControlLoad
from tests.harness.crash.engines import PACED, EngineTurns
from tests.harness.crash.file_watch import FileWatch
from tests.harness.crash.kills import AIMS, OVERRIDES
from tests.harness.crash.power_disk import PowerCut, PowerDisk
from tests.harness.crash.record_load import Ledger, Place, RecordCheck, RecordLoad
from tests.harness.crash.segment_files import index_findings, recovery_points
from tests.harness.crash.tail_reader import TailReader
from tests.harness.crash.trimmed_load import TrimmedCheck, TrimmedLedger, TrimmedLoad

_TOPICS: Mapping[str, Mapping[str, str]] = {
    # Never synced by its configuration: only rolls and the kernel write it back.
    "rolling": {"segment.ms": "100", "index.interval.bytes": "512"},
    "small": {"segment.bytes": "1048576", "index.interval.bytes": "1024", "flush.ms": "50"},
    "counted": {"segment.ms": "300", "flush.messages": "50"},
    "durable": {"segment.ms": "100", "pybroker.durability": "acks"},
    "durable-by-flush": {"segment.bytes": "1048576", "flush.messages": "1"},
}
_DURABLE = tuple(topic for topic in _TOPICS if topic.startswith("durable"))
_PARTITIONS = 2
_PRODUCERS = 3
_CUT_AIMS = (
    *("random", "roll", "checkpoint", "metadata", "metadata snapshot", "producer snapshot", "epochs", "index"),
    *("cleaning", "swap", "cleaner checkpoint", "deletion"),
)
_KEPT_PERCENTS = (0, 30, 70, 95, 100)
_JOURNAL_MODES = ("data=ordered", "data=writeback")
# Every flush takes all that was written before it to safety. In a calm round nothing flushes but the kernel, so that a
# cut finds much that was written back and not flushed.
_BUSY = {
    "log.flush.offset.checkpoint.interval.ms": "100",
    "log.flush.start.offset.checkpoint.interval.ms": "100",
    "metadata.max.idle.interval.ms": "500",
}
_CALM = {
    "log.flush.offset.checkpoint.interval.ms": "60000",
    "log.flush.start.offset.checkpoint.interval.ms": "60000",
    "metadata.max.idle.interval.ms": "0",
}
_SYNC_FILE_RANGE_WRITE = 2
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass
class PowerReport:
    """What a run did, for a person."""

    cuts: list[PowerCut] = field(default_factory=list)
    lost_count: int = 0
    acknowledged_count: int = 0
    checked_count: int = 0
    synced_count: int = 0
    promised_count: int = 0
    seen_count: int = 0
    compacted_count: int = 0
    deleted_count: int = 0

    def counts(self) -> dict[str, int]:
        """Everything that is counted, so far."""
        return {
            "unflushed": sum(cut.unflushed_count for cut in self.cuts),
            "kept": sum(cut.kept_count for cut in self.cuts),
            "lost": self.lost_count,
            "acknowledged": self.acknowledged_count,
            "checked": self.checked_count,
            "synced": self.synced_count,
            "promised": self.promised_count,
            "seen": self.seen_count,
            "compacted": self.compacted_count,
            "deleted": self.deleted_count,
        }

    def __str__(self) -> str:
        counts = self.counts()
        return (
            f"{len(self.cuts)} power cuts, {counts['unflushed']} sectors not flushed, {counts['kept']} of them kept; "
            f"{self.acknowledged_count} records acknowledged, {self.synced_count} of them below a recovery point and "
            f"all there, {self.lost_count} others lost as their durability allows; {self.checked_count} read; of "
            f"durable acks {self.promised_count} acknowledged and {self.seen_count} seen by a reader, all there; "
            f"{self.compacted_count} compacted away, {self.deleted_count} deleted"
        )


class PowerRun:
    """See the module. `backends` and `engines` take turns."""

    def __init__(
        self, disk: PowerDisk, directory: Path, seed: int, backends: list[str], engines: Sequence[str] = (PACED,)
    ) -> None:
        """`disk` is mounted; `directory` is for the broker's output, which has to outlive the cuts."""
        self.report = PowerReport()
        self._disk = disk
        self._random = random.Random(seed)
        self._seed = seed
        self._backends = backends
        self._places = [(topic, index) for topic in _TOPICS for index in range(_PARTITIONS)]
        self._ledger = Ledger()
        self._synced = dict.fromkeys(self._places, 0)
        self._seen: dict[Place, int] = {}
        self._promised: dict[tuple[int, str, int], int] = {}
        self._trimmed_ledger = TrimmedLedger()
        self._trimmed_synced = dict.fromkeys(trimmed_load.PLACES, 0)
        self._calm = False
        self._log_dir = disk.path / "data"
        self._turns = EngineTurns(engines)
        overrides = {
            **OVERRIDES,
            **self._turns.overrides(0),
            # A log that has a ring takes the blocks of its segment ahead, and the disk is small.
            "log.segment.bytes": str(8 << 20),
            "log.dirs": str(self._log_dir),
            "pybroker.io.backend": backends[0],
        }
        self._broker = BrokerProcess(directory / "data", overrides=overrides)
        self._control = ControlLoad(self._broker.bootstrap, "small", seed, commits=False)

    def __enter__(self) -> PowerRun:
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap, "log_level": 0})
        wanted = [NewTopic(name, _PARTITIONS, 1, config=dict(config)) for name, config in _TOPICS.items()]
        wanted += [
            NewTopic(name, trimmed_load.PARTITIONS, 1, config=dict(config))
            for name, config in trimmed_load.TOPICS.items()
        ]
        for future in admin.create_topics(wanted).values():
            future.result(60)
        self._control.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._control.stop()
        self._broker.__exit__(kind, error, trace)
        self._turns.close()

    def cut(self, number: int | None = None, seed: int | None = None) -> dict[str, int]:
        """Load, cut, restore, check. `number`, by default of this run's cuts, says whose turn is next; with a `seed`
        the moment is that of every cut with that seed. What came of it, for a line about this cut."""
        if seed is not None:
            self._random.seed(seed)
        before = self.report.counts()
        self._cut(len(self.report.cuts), number)
        return {name: count - before[name] for name, count in self.report.counts().items()}

    def _cut(self, number: int, turn: int | None) -> None:
        """`number` is of this run, and so are those of producers, whose records are told apart by them."""
        calm = self._calm
        load = RecordLoad(
            self._broker.bootstrap,
            [place for place in self._places if not calm or place[0] == "rolling"],
            producer_count=_PRODUCERS,
            records_per_second=5000 if calm else 1500,
            ledger=self._ledger,
            first_number=number * _PRODUCERS,
        )
        reader = TailReader(self._broker.bootstrap, [place for place in self._places if place[0] in _DURABLE])
        written_back = threading.Event()
        writeback = threading.Thread(
            target=_write_back, args=(self._log_dir, written_back, self._random.random()), name="writeback"
        )
        trimmed = TrimmedLoad(self._broker.bootstrap, self._trimmed_ledger, self._seed + number)
        load.start()
        # The cleaner syncs what it writes, and everything before it.
        if not calm:
            trimmed.start()
        writeback.start()
        try:
            load.wait_for_progress(60, count=500)
            self._wait("random" if calm else self._random.choice(_CUT_AIMS))
            self._note_synced()
            promised = self._control.promises()
            seen = reader.seen()
            self._note_promised(first_number=number * _PRODUCERS)
            cut = self._disk.cut(self._random.randrange(1 << 31), self._random.choice(_KEPT_PERCENTS))
        finally:
            self._broker.kill()
            self._turns.lose_power()
            written_back.set()
            writeback.join()
            load.abandon()
            reader.stop()
            trimmed.abandon()
        self.report.cuts.append(cut)
        self._control.forget_since(promised)
        self._restore(number if turn is None else turn)
        self._control.check(promised)
        self._check(seen)

    def _wait(self, aim: str) -> None:
        if aim == "random":
            time.sleep(self._random.uniform(0.0, 1.0))
            return
        pattern = re.compile(AIMS[aim].replace("rolling|small", "|".join(_TOPICS)))
        with FileWatch(self._log_dir) as watch:
            watch.wait(lambda path: pattern.fullmatch(path) is not None, 1.5, count=self._random.randint(1, 10))

    def _restore(self, number: int) -> None:
        self._disk.unmount()
        self._calm = number % 2 == 0
        self._control.pause(self._calm)
        journal = _JOURNAL_MODES[number // 2 % len(_JOURNAL_MODES)]
        self._disk.mount_options = f"{journal},commit={self._random.choice((1, 30)) if self._calm else 1}"
        self._disk.mount()
        for key, value in (_CALM if self._calm else _BUSY).items():
            self._broker.set_override(key, value)
        self._broker.set_override("pybroker.io.backend", self._backends[number % len(self._backends)])
        self._turns.begin(self._broker, number + 1)
        self._broker.start()

    def _note_synced(self) -> None:
        for place, offset in recovery_points(self._log_dir).items():
            for synced in (self._synced, self._trimmed_synced):
                if place in synced:
                    synced[place] = max(offset, synced[place])

    def _note_promised(self, first_number: int) -> None:
        """What was acknowledged before the cut. Behind it the drive pretends, so that acknowledgements mean nothing."""
        for key, count in self._ledger.counts().items():
            if key[0] >= first_number and key[1] in _DURABLE:
                self._promised[key] = count

    def _check(self, seen: Mapping[Place, int]) -> None:
        assert not self._ledger.failures, self._ledger.failures[:5]
        check = RecordCheck(self._broker.bootstrap, self._places, self._ledger)
        self.report.checked_count += check.run(self._promised, whole=True)
        self.report.promised_count = sum(self._promised.values())
        for place, offset in seen.items():
            assert check.end_offset(place) >= offset, (
                f"{place} ends at {check.end_offset(place)}; a reader had seen everything below {offset}"
            )
        self.report.seen_count += len(seen) and sum(seen.values()) - sum(self._seen.get(place, 0) for place in seen)
        self._seen.update(seen)
        for place, offset in self._synced.items():
            assert check.end_offset(place) >= offset, (
                f"{place} ends at {check.end_offset(place)}; everything below {offset} had been synced"
            )
        self._check_trimmed()
        if self._random.random() < 0.5:
            self._check_indexes()
        found = sum(check.end_offset(place) for place in self._places)
        self.report.acknowledged_count = self._ledger.total()
        self.report.lost_count = max(0, self._ledger.total() - found)
        self.report.synced_count = sum(self._synced.values())

    def _check_trimmed(self) -> None:
        """Compaction may let go of a value only when a newer one is as safe as it was."""
        trimmed = TrimmedCheck(self._broker.bootstrap, self._trimmed_ledger)
        self.report.checked_count += trimmed.run(self._trimmed_synced, is_quiet=True)
        self._trimmed_ledger.forget_from(trimmed.end_offsets)
        self.report.compacted_count = trimmed.compacted_count
        self.report.deleted_count = trimmed.deleted_count

    def _check_indexes(self) -> None:
        """Until a clean stop an active segment's index files may lag behind what the broker has rebuilt in memory."""
        assert self._broker.stop() == 0
        for topic, index in self._places:
            findings = index_findings(self._log_dir / f"{topic}-{index}")
            assert not findings, findings[:5]
        self._broker.start()


def _write_back(log_dir: Path, stop: threading.Event, seed: float) -> None:
    """Let the kernel write back some dirty files all the time, newer ones before older ones too, without a flush."""
    chance = random.Random(seed)
    while not stop.wait(0.01):
        for directory in list(log_dir.iterdir()):
            if directory.name.partition("-")[0] not in {**_TOPICS, **trimmed_load.TOPICS}:
                continue
            for name in os.listdir(directory):
                if chance.random() < 0.8:
                    continue
                try:
                    descriptor = os.open(directory / name, os.O_RDONLY)
                except FileNotFoundError:
                    continue
                _LIBC.sync_file_range(descriptor, ctypes.c_int64(0), ctypes.c_int64(0), _SYNC_FILE_RANGE_WRITE)
                os.close(descriptor)
