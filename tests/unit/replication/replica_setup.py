"""A replica manager over a real data plane, fed with metadata records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from controller_double import Channel

from pybroker.config.broker import BrokerConfig
from pybroker.metadata.delta import MetadataDelta, empty_image
from pybroker.metadata.image import MetadataImage, Provenance
from pybroker.native.broker import EVENT_APPENDED, EVENT_OFFLINE, BrokerOptions, NativeBroker
from pybroker.native.fetcher import FetcherOptions
from pybroker.protocol import messages as m
from pybroker.protocol import record_batch
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.record_batch import Record
from pybroker.replication.alter_partition_manager import AlterPartitionManager
from pybroker.replication.fetcher_manager import ReplicaFetcherManager
from pybroker.replication.isr_manager import IsrManager
from pybroker.replication.partition_roles import Replication
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.storage.dirs.log_directory import LogDirectory
from pybroker.storage.logs.log_manager import LogManager

NODE_ID = 1


TOPIC_ID = bytes(range(16))


NOBODY = -1


SOMEBODY_ELSE = 2


class ManualClock:
    def monotonic_ms(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return 0


class Follower:
    """Notes what it was told, and whether the partition was led by then."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self.replicas = replicas
        self.led: list[bool] = []

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        try:
            self.replicas.high_watermark("t", 0)
        except KafkaError:
            self.led.append(False)
        else:
            self.led.append(True)


class Setup:
    """A replica manager, fed records by `publish`; APPENDED events reach it while `append` waits."""

    def __init__(self, log_dir: Path, *, is_alone: bool = True) -> None:
        log_dir.mkdir(exist_ok=True)
        self.config = BrokerConfig.load(None, [])
        replication = None if is_alone else self._replication()
        self.native = NativeBroker(BrokerOptions("epoll", 1, 1, 0, 1 << 20, 1 << 20, 100, 60_000, 10, 1 << 20))
        self.native.start()
        self.logs = LogManager(self.native, [LogDirectory(log_dir, bytes([7]) * 16)], self.config, ManualClock())
        self.replicas = ReplicaManager(NODE_ID, self.logs, lambda: self.config, replication)
        self.follower = Follower(self.replicas)
        self.replicas.add_follower(self.follower)
        self.image = empty_image("cluster")
        self.offline_events: list[Any] = []
        asyncio.get_running_loop().add_reader(self.native.event_fd, self.take_events)

    def _replication(self) -> Replication:
        def refuse(options: FetcherOptions) -> Any:
            raise AssertionError(f"nothing is followed, but broker {options.leader_id}")

        isr = IsrManager(NODE_ID, AlterPartitionManager(NODE_ID, Channel()), lambda: self.config)
        return Replication(isr, ReplicaFetcherManager(NODE_ID, "PLAINTEXT", lambda: self.config, refuse))

    def take_events(self) -> None:
        for event in self.native.take_events():
            if event[0] == EVENT_APPENDED:
                self.replicas.on_appended(event[2], event[3], event[1])
            elif event[0] == EVENT_OFFLINE:
                self.offline_events.append(event)

    async def publish(self, *records: Any) -> None:
        """Every record takes an offset."""
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record, 0)
        self.image = delta.apply(Provenance(self.image.provenance.end_offset + len(records)))
        self.replicas.publish(delta, self.image)
        await self.replicas.settled()

    async def create(
        self, leader: int = NODE_ID, partition_count: int = 1, replicas: tuple[int, ...] = (NODE_ID,)
    ) -> None:
        await self.publish(
            m.TopicRecord(name="t", topic_id=TOPIC_ID),
            *(
                m.PartitionRecord(
                    partition_id=index,
                    topic_id=TOPIC_ID,
                    replicas=list(replicas),
                    isr=list(replicas),
                    leader=leader,
                    leader_epoch=0,
                    partition_epoch=0,
                )
                for index in range(partition_count)
            ),
        )

    async def elect(self, leader: int, **fields: Any) -> None:
        await self.publish(m.PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, leader=leader, **fields))

    async def append(self, value: bytes = b"x") -> int:
        batch = record_batch.build(0, 0, [Record(None, value)], timestamp_ms=1)
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def appended(base_offset: int, failure: KafkaError | None) -> None:
            if failure is None:
                done.set_result(base_offset)
            else:
                done.set_exception(failure)

        self.replicas.append("t", 0, batch, appended)
        async with asyncio.timeout(60):
            return await done


@asynccontextmanager
async def setup(log_dir: Path, *, leads: bool = True, is_alone: bool = True) -> AsyncIterator[Setup]:
    made = Setup(log_dir, is_alone=is_alone)
    await made.logs.load()
    if leads:
        made.replicas.allow_leading()
    try:
        yield made
    finally:
        await made.replicas.stop()
        await made.logs.close(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        asyncio.get_running_loop().remove_reader(made.native.event_fd)
        made.native.stop()
        made.native.close()


def refused(call: Any, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as failure:
        call()
    assert failure.value.code is code
