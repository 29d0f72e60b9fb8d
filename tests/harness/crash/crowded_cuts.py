"""`CrowdedRun`: power cuts of a broker whose hot logs share flushes of their disk, and what must be there afterwards.

So many producers wait for durable acks that the reactor flushes for several logs at once. The power is cut when that
has gone on for a while; everything that was acknowledged has to be there. The caller's thread drives it and owns it as
a context manager.
"""

from __future__ import annotations

import random
import re
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from urllib.request import urlopen

from confluent_kafka.admin import AdminClient, NewTopic

from tests.harness.broker import BrokerProcess
from tests.harness.crash.engines import DIRECT, EngineTurns
from tests.harness.crash.power_disk import PowerDisk
from tests.harness.crash.record_load import Ledger, RecordCheck, RecordLoad
from tests.harness.process import free_port

#: The image that it needs: a segment's blocks ahead of each log, and what all cuts leave.
DISK_BYTES = 1 << 30
_TOPIC, _PARTITIONS = "crowded", 6
_PRODUCERS = 24
_RECORDS_PER_SECOND = 2000  # of each
_SHARED_AT_LEAST = 30
_PATIENCE_SECONDS = 60.0
_SHARED = re.compile(r'^pybroker_flush_seconds_count\{of="disk"\} (\d+)', re.MULTILINE)
_KEPT_PERCENTS = (0, 30, 70, 95)


@dataclass
class CrowdedReport:
    """What a run did, for a person."""

    cut_count: int = 0
    shared_count: int = 0
    promised_count: int = 0
    checked_count: int = 0
    unflushed_count: int = 0

    def __str__(self) -> str:
        return (
            f"{self.cut_count} power cuts, {self.shared_count} flushes shared before them; {self.promised_count} "
            f"records acknowledged, all there; {self.checked_count} read; {self.unflushed_count} sectors not flushed"
        )


class CrowdedRun:
    """See the module. `disk` is mounted; `directory` is for the broker's output, which has to outlive the cuts."""

    def __init__(self, disk: PowerDisk, directory: Path) -> None:
        self.report = CrowdedReport()
        self._disk = disk
        self._ledger = Ledger()
        self._promised: dict[tuple[int, str, int], int] = {}
        self._places = [(_TOPIC, index) for index in range(_PARTITIONS)]
        self._engines = EngineTurns((DIRECT,))
        self._metrics = f"127.0.0.1:{free_port()}"
        overrides = {
            **self._engines.overrides(0),
            "log.dirs": str(disk.path / "data"),
            "log.segment.bytes": str(16 << 20),
            "log.retention.bytes": str(64 << 20),
            "log.initial.task.delay.ms": "50",
            "pybroker.io.backend": "io_uring",
            "pybroker.metrics.listener": self._metrics,
        }
        self._broker = BrokerProcess(directory / "data", overrides=overrides)
        self._check = RecordCheck(self._broker.bootstrap, self._places, self._ledger)

    def __enter__(self) -> CrowdedRun:
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap, "log_level": 0})
        topic = NewTopic(_TOPIC, _PARTITIONS, 1, config={"pybroker.durability": "acks"})
        admin.create_topics([topic])[_TOPIC].result(60)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._broker.__exit__(kind, error, trace)
        self._engines.close()

    def cut(self, seed: int) -> dict[str, int]:
        """Load, cut, restore, check. What came of it."""
        chosen = random.Random(seed)
        first_number = self.report.cut_count * _PRODUCERS
        load = RecordLoad(
            self._broker.bootstrap,
            self._places,
            producer_count=_PRODUCERS,
            records_per_second=_RECORDS_PER_SECOND,
            ledger=self._ledger,
            first_number=first_number,
        )
        load.start()
        try:
            # Else the drive is at a flush most of the time, and after it there is nothing that a cut could take. Before
            # a slow one what was acknowledged too early is at risk for longer.
            self._disk.slow(*chosen.choice((("write", 1), ("flush", 5))))
            self._wait_for_shared_flushes(load)
            time.sleep(chosen.uniform(0.0, 0.3))
            shared_count = self._shared_count()
            # Behind the cut the drive pretends, so that acknowledgements mean nothing.
            self._promised |= {key: n for key, n in self._ledger.counts().items() if key[0] >= first_number}
            cut = self._disk.cut(chosen.randrange(1 << 31), chosen.choice(_KEPT_PERCENTS))
        finally:
            self._broker.kill()
            self._engines.lose_power()
            load.abandon()
        self._disk.unmount()
        self._disk.mount()
        self._broker.start()
        assert not self._ledger.failures, self._ledger.failures[:5]
        checked_count = self._check.run(self._promised)
        self.report.cut_count += 1
        self.report.shared_count += shared_count
        self.report.promised_count = sum(self._promised.values())
        self.report.checked_count += checked_count
        self.report.unflushed_count += cut.unflushed_count
        return {"shared": shared_count, "checked": checked_count, "unflushed": cut.unflushed_count}

    def _shared_count(self) -> int:
        """Flushes that several logs have shared in this life."""
        with urlopen(f"http://{self._metrics}/metrics", timeout=30) as answer:
            found = _SHARED.search(answer.read().decode())
        assert found is not None
        return int(found[1])

    def _wait_for_shared_flushes(self, load: RecordLoad) -> None:
        load.wait_for_progress(_PATIENCE_SECONDS)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self._shared_count() < _SHARED_AT_LEAST:
            assert time.monotonic() < deadline, f"no {_SHARED_AT_LEAST} flushes were shared"
            time.sleep(0.05)
