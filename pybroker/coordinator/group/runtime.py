"""`Shard`: one loaded (or loading) `__consumer_offsets` partition with its state and its appender."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from enum import Enum

from pybroker.coordinator.appender import AfterReceived, PartitionAppender, QueuedBytes
from pybroker.coordinator.group.log import replay
from pybroker.coordinator.group.log.records import OffsetChange
from pybroker.coordinator.group.model.memory import GroupMemory
from pybroker.coordinator.group.model.settings import OFFSETS_TOPIC, GroupSettings
from pybroker.coordinator.group.model.shard_state import Clock, ShardState
from pybroker.coordinator.group.requests import removal
from pybroker.coordinator.loader import load
from pybroker.coordinator.partition_writer import PartitionWriter
from pybroker.protocol.errors import ErrorCode, KafkaError, ProtocolError
from pybroker.turns import run_at_once, run_in_slices

logger = logging.getLogger(__name__)

#: Between attempts to load what could not be read.
_LOAD_INTERVAL_S = 5.0
#: When a shard is unloaded, up to this many members are answered at once; more are answered in slices.
_FEW_MEMBERS = 200


class ShardStatus(Enum):
    """The status of a shard.

    LOADING becomes ACTIVE or FAILED. It becomes READABLE before that when the last records of the log stay uncommitted
    for long. A READABLE shard serves its committed state but takes no change, which would have to wait behind those
    records. FAILED becomes ACTIVE when a later attempt to load succeeds. Every status can become CLOSED, which is
    final."""

    LOADING = "loading"
    READABLE = "readable"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


class Shard:
    """Lives on the asyncio loop thread from this broker's election as leader of the partition until it resigns."""

    def __init__(
        self,
        partition: int,
        leader_epoch: int,
        settings: GroupSettings,
        writer: PartitionWriter,
        clock: Clock,
        new_suffix: Callable[[], str],
        memory: GroupMemory,
        queued: QueuedBytes,
        after_received: AfterReceived,
    ) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.status = ShardStatus.LOADING
        self.state = ShardState(settings, clock, new_suffix, memory)
        self.appender = PartitionAppender(
            writer,
            OFFSETS_TOPIC,
            partition,
            leader_epoch,
            clock,
            self._replay_change,
            timeout_ms=settings.offsets_commit_timeout_ms,
            queued=queued,
            after_received=after_received,
        )
        self._writer = writer
        self._load_task: asyncio.Task[None] | None = None
        self._unload_task: asyncio.Task[None] | None = None

    def begin_load(self, on_loaded: Callable[[Shard], None], after: Sequence[Shard] = ()) -> None:
        """Replay the partition in the background once the shards `after` are closed, then call `on_loaded`. It is not
        called when the shard is unloaded before."""
        self._load_task = asyncio.get_running_loop().create_task(self._load(on_loaded, after))

    def take_epoch(self, leader_epoch: int) -> None:
        """This broker stays the leader, at a new leader epoch. The loaded state and the appends under way stay
        valid."""
        self.leader_epoch = leader_epoch
        self.appender.take_epoch(leader_epoch)

    def unload(self) -> None:
        """Close the shard: answer the requests that wait for other members, and drop the state. Many requests are
        answered in slices after this call; `closed` waits for them."""
        if self._load_task is not None:
            self._load_task.cancel()
        if self.status is ShardStatus.ACTIVE:
            steps = removal.unload_steps(self.state)
            if sum([len(group.members) for group in self.state.groups.values()]) <= _FEW_MEMBERS:
                run_at_once(steps)
            else:
                self._unload_task = asyncio.get_running_loop().create_task(run_in_slices(steps))
        self.state.release_memory()
        self.status = ShardStatus.CLOSED

    async def loaded(self) -> None:
        """Return when no load is under way, whether it succeeded or not."""
        if self._load_task is not None:
            await asyncio.wait([self._load_task])

    async def closed(self) -> None:
        """Return when no load and no append is under way, and all waiting requests are answered."""
        await self.loaded()
        await self.appender.closed()
        if self._unload_task is not None:
            await asyncio.wait([self._unload_task])

    async def _load(self, on_loaded: Callable[[Shard], None], after: Sequence[Shard]) -> None:
        for each in after:
            await each.closed()
        while not await self._load_once(on_loaded):
            await asyncio.sleep(_LOAD_INTERVAL_S)
            before = self.state
            before.release_memory()
            self.state = ShardState(before.settings, before.clock, before.new_suffix, before.memory)

    async def _load_once(self, on_loaded: Callable[[Shard], None]) -> bool:
        """Try to load. False when another attempt may succeed, for example after a lack of file descriptors, which does
        not make anybody open the log again."""
        started_ms = self.state.clock.monotonic_ms()
        try:
            summary = await load(
                self._writer,
                OFFSETS_TOPIC,
                self.partition,
                self,
                self.state.settings.offsets_load_buffer_bytes,
                # When the last records stay uncommitted longer than any commit may take, something is wrong.
                self.state.settings.offsets_commit_timeout_ms,
            )
        except (KafkaError, ProtocolError) as error:
            code = error.code if isinstance(error, KafkaError) else None
            if self.status is not ShardStatus.FAILED:
                logger.log(
                    logging.INFO if code is ErrorCode.NOT_LEADER_OR_FOLLOWER else logging.ERROR,
                    "%s-%d: its groups are not served, because it could not be loaded: %s",
                    OFFSETS_TOPIC,
                    self.partition,
                    error,
                )
            self.status = ShardStatus.FAILED
            return code is not ErrorCode.KAFKA_STORAGE_ERROR
        except Exception:
            self.status = ShardStatus.FAILED
            logger.exception(
                "%s-%d: its groups are not served, because it could not be loaded", OFFSETS_TOPIC, self.partition
            )
            return True
        self.status = ShardStatus.ACTIVE
        self.state.uncommitted.clear()
        # A new offsets topic has fifty empty partitions, which are not worth a line of the log each.
        logger.log(
            logging.INFO if summary.record_count > 0 else logging.DEBUG,
            "%s-%d: loaded %d groups from %d records (%d bytes) in %d ms",
            OFFSETS_TOPIC,
            self.partition,
            len(self.state.groups),
            summary.record_count,
            summary.bytes_count,
            self.state.clock.monotonic_ms() - started_ms,
        )
        on_loaded(self)
        return True

    # ---- the loader's calls (see `pybroker.coordinator.loader`) ----------------------------------------------------

    def replay_record(self, key: bytes, value: bytes | None, offset: int, producer_id: int) -> None:
        change = replay.decode(key, value, producer_id)
        if change is not None:
            replay.apply(self.state, change, offset)

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        self.state.offsets.end_transaction(producer_id, committed)

    def show_uncommitted(self, key: bytes, value: bytes | None) -> None:
        change = replay.decode(key, value)
        if isinstance(change, OffsetChange):
            self.state.uncommitted.add((change.group_id, change.topic, change.partition))

    def on_committed_replayed(self) -> None:
        """Everything below the high watermark is replayed, and the records above it have stayed uncommitted for
        long."""
        self.status = ShardStatus.READABLE
        logger.warning(
            "%s-%d: the last records of its log are not committed yet, because too few replicas are in sync or one is "
            "slow; until they are, clients can fetch committed offsets and list groups, but nothing can be changed",
            OFFSETS_TOPIC,
            self.partition,
        )

    def _replay_change(self, change: replay.Change, offset: int) -> None:
        replay.apply(self.state, change, offset)
