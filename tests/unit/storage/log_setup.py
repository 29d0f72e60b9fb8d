"""Open logs over the real data plane, for tests: a log manager, its maintenance, a clock that tests move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pybroker.config.broker import BrokerConfig
from pybroker.config.topic import TopicConfig
from pybroker.native.broker import EVENT_APPENDED, BrokerOptions, NativeBroker
from pybroker.protocol import record_batch
from pybroker.protocol.record_batch import Record
from pybroker.storage.dirs.log_directory import LogDirectory
from pybroker.storage.logs.log_maintenance import LogMaintenance
from pybroker.storage.logs.log_manager import LogManager
from pybroker.storage.logs.partition_log import PartitionLog

TOPIC_ID = bytes(range(16))
NOT_LEADER = 6


class ManualClock:
    now_ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


class Setup:
    """A data plane, a log manager over dirs below `root`, and what tests do with them."""

    def __init__(self, root: Path, names: tuple[str, ...]) -> None:
        self.config = BrokerConfig.load(None, [])
        self.clock = ManualClock()
        self.native = NativeBroker(BrokerOptions("epoll", 1, 1, 0, 1 << 20, 1 << 20, 100, 60_000, 10, 1 << 20))
        self.native.start()
        directories = []
        for number, name in enumerate(names):
            (root / name).mkdir(exist_ok=True)
            directories.append(LogDirectory(root / name, bytes([number + 1]) * 16))
        self.manager = LogManager(self.native, directories, self.config, self.clock)
        self.maintenance = LogMaintenance(self.manager)
        self.is_killed = False

    async def open(
        self,
        topic: str = "t",
        partition: int = 0,
        *,
        is_new: bool = True,
        is_replicated: bool = False,
        topic_id: bytes = TOPIC_ID,
        **overrides: str,
    ) -> PartitionLog:
        config = TopicConfig.resolve({name.replace("_", "."): each for name, each in overrides.items()}, self.config)
        log = await self.manager.open(
            (topic, partition), topic_id, bytes(16), 0, config, is_new=is_new, is_replicated=is_replicated
        )
        log.native.lead(0)
        return log

    async def append(self, log: PartitionLog, timestamp_ms: int = 0, size_bytes: int = 10) -> None:
        batch = record_batch.build(0, 0, [Record(None, bytes(size_bytes))], timestamp_ms=timestamp_ms or 1)
        log.native.append(batch, 1)
        for _ in range(60_000):
            events = [event for event in self.native.take_events() if event[0] == EVENT_APPENDED]
            if events:
                assert [event[1] for event in events] == [0]
                return
            await asyncio.sleep(0.001)
        raise AssertionError("the append did not finish")

    async def kill(self) -> None:
        """End as a killed broker does: what was written is in the files, and nothing says how far it goes."""
        self.is_killed = True
        for log in list(self.manager.logs.values()):
            await log.close(error=NOT_LEADER, clean=False)
        self.manager.logs.clear()

    async def close(self) -> None:
        await self.manager.close(broker_epoch=5, resigned_error=NOT_LEADER)


@asynccontextmanager
async def setup(root: Path, *names: str) -> AsyncIterator[Setup]:
    made = Setup(root, names or ("d",))
    try:
        await made.manager.load()
        yield made
        if not made.is_killed:
            await made.close()
    finally:
        for log in made.manager.logs.values():
            await log.close(error=NOT_LEADER, clean=False)
        made.native.stop()
        made.native.close()
