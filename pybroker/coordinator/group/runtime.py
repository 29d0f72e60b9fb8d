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
#: So many are answered at once when their partition is led elsewhere.
_FEW_MEMBERS = 200


class ShardStatus(Enum):
    """LOADING becomes ACTIVE or FAILED, by way of READABLE if the end of its log is not committed for long. Then
    committed state can be read but not changed, as a change would have to wait behind it. FAILED becomes ACTIVE where
    another attempt succeeds. All become CLOSED, which is final."""

    LOADING = "loading"
    READABLE = "readable"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


class Shard:
    """Lives on the asyncio loop thread from one election to the next resignation."""

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
        """Once the shards `after` are closed replay the partition in the background, then call `on_loaded`, unless it
        is unloaded before."""
        self._load_task = asyncio.get_running_loop().create_task(self._load(on_loaded, after))

    def take_epoch(self, leader_epoch: int) -> None:
        """This broker leads on under another epoch: what is loaded, and what is on its way, stays good."""
        self.leader_epoch = leader_epoch
        self.appender.take_epoch(leader_epoch)

    def unload(self) -> None:
        """Take no more part: answer whoever is parked, drop the state. Many are answered in slices; see `closed`."""
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
        """Return when no load is under way, however it ended."""
        if self._load_task is not None:
            await asyncio.wait([self._load_task])

    async def closed(self) -> None:
        """Return when neither a load nor an append is under way, and who was parked is answered."""
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
        """False when it may succeed later: for want of file handles, say, nobody closes the log and opens it again."""
        started_ms = self.state.clock.monotonic_ms()
        try:
            summary = await load(
                self._writer,
                OFFSETS_TOPIC,
                self.partition,
                self,
                self.state.settings.offsets_load_buffer_bytes,
                # An append that takes longer than any commit may take has failed in some way.
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
        # A new offsets topic has fifty empty partitions: no news.
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

    # ---- what the log says -----------------------------------------------------------------------------------------

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
        self.status = ShardStatus.READABLE
        logger.warning(
            "%s-%d: the last of its log is not committed, for want of replicas in sync or by a slow one; until it is, "
            "committed offsets can be fetched, and nothing else is done for its groups",
            OFFSETS_TOPIC,
            self.partition,
        )

    def _replay_change(self, change: replay.Change, offset: int) -> None:
        replay.apply(self.state, change, offset)
