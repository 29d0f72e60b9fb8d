"""`ReplicaAccess`: what requests and coordinators do with the partitions held here.

On the asyncio loop; what reads files does so on the log manager's threads. Everything raises `KafkaError`:
UNKNOWN_TOPIC_OR_PARTITION for what is not held here, NOT_LEADER_OR_FOLLOWER for what is not led, KAFKA_STORAGE_ERROR
for what cannot be used.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from pybroker.metadata.image import MetadataImage
from pybroker.native.errors import NativeError
from pybroker.native.partition import PartitionPosition, PartitionState, ProducerState
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.replication.native_errors import kafka_error
from pybroker.replication.offline_partitions import OfflinePartitions
from pybroker.replication.replica import Replica
from pybroker.storage.files.offset_checkpoint import TopicPartition
from pybroker.storage.logs.log_manager import LogManager
from pybroker.storage.logs.partition_log import PartitionLog
from pybroker.turns import in_slices

#: Between looks whether the followers have done what their leader has.
_FOLLOWERS_INTERVAL_S = 0.05

#: So many partitions are asked for their state in one slice of the loop at least.
_STATES_AT_ONCE = 500

_NO_EPOCH = -1
#: The timestamp that asks for it.
_LATEST = -1
#: Look-ups by time that run at once. Each may unpack a batch of a hundred megabytes, and the threads have other work.
_LOOKUPS_AT_ONCE = 2
#: No batch is larger, as its length is an int of Java's.
_LARGEST_BATCH_BYTES = 2**31 - 1

#: Takes the base offset of what was appended, or -1 and why it was not.
AppendCallback = Callable[[int, KafkaError | None], None]


class ReplicaAccess:
    """A `PartitionWriter`. Which partitions there are, and what they are, the subclass decides."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        #: The newest that is in effect here.
        self._image: MetadataImage | None = None
        self._replicas: dict[TopicPartition, Replica] = {}
        self._offline = OfflinePartitions(logs)
        self._tickets = itertools.count(1)
        self._appends: dict[int, AppendCallback] = {}
        self._lookups = asyncio.Semaphore(_LOOKUPS_AT_ONCE)

    def _exists(self, topic: str, partition: int) -> bool:
        found = None if self._image is None else self._image.topics.by_name.get(topic)
        return found is not None and partition in found.partitions

    @property
    def offline_count(self) -> int:
        """Partitions of this broker whose logs cannot be used."""
        return len(self._offline)

    # ---- appends and reads of the control plane --------------------------------------------------------------------

    def _leader(self, topic: str, partition: int) -> PartitionLog:
        replica = self._replicas.get((topic, partition))
        if (topic, partition) in self._offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        if replica is None or replica.log.closing:
            # A client that asks here for what is elsewhere has metadata of before.
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise KafkaError(code if self._exists(topic, partition) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not replica.leads:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica.log

    def append(self, topic: str, partition: int, batch: bytes, done: AppendCallback) -> None:
        """See `PartitionWriter`."""
        log = self._leader(topic, partition)
        if len(batch) > self.max_batch_bytes(topic, partition):
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        self._append(partial(log.native.append, batch), done)

    async def append_marker(self, topic: str, partition: int, batch: bytes, transaction_version: int) -> None:
        """Append a transaction marker, and return when the high watermark has passed it. KafkaError: what `append`
        raises, and INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED when it comes from one that was replaced.
        """
        log = self._leader(topic, partition)
        outcome: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()

        def done(offset: int, error: KafkaError | None) -> None:
            if not outcome.done():
                outcome.set_result(error)

        self._append(partial(log.native.append_marker, batch, transaction_version), done)
        error = await outcome
        if error is not None:
            raise error

    def _append(self, append: Callable[[int], None], done: AppendCallback) -> None:
        """Call `append` with a ticket under which its outcome goes to `done`."""
        ticket = next(self._tickets)
        self._appends[ticket] = done
        try:
            append(ticket)
        except NativeError as error:
            del self._appends[ticket]
            raise kafka_error(error) from error

    def on_appended(self, ticket: int, offset: int, error: int) -> None:
        """An APPENDED event of the data plane."""
        done = self._appends.pop(ticket, None)
        if done is not None:
            done(offset, None if error == 0 else kafka_error(NativeError(error)))

    async def read(self, topic: str, partition: int, offset: int, max_bytes: int, *, to_log_end: bool = False) -> bytes:
        """See `PartitionWriter`."""
        while True:
            log = self._leader(topic, partition)
            max_bytes = max(max_bytes, self.max_batch_bytes(topic, partition))
            try:
                return await log.run(log.native.read, offset, max_bytes, to_log_end=to_log_end)
            except NativeError as error:
                # A batch that was appended when more was allowed.
                if error.errno != errno.E2BIG or max_bytes >= _LARGEST_BATCH_BYTES:
                    raise kafka_error(error) from error
            max_bytes = min(2 * max_bytes, _LARGEST_BATCH_BYTES)

    def max_batch_bytes(self, topic: str, partition: int) -> int:
        """See `PartitionWriter`."""
        return self._leader(topic, partition).config.get_int("max.message.bytes")

    def log_start_offset(self, topic: str, partition: int) -> int:
        """See `PartitionWriter`."""
        return self._leader(topic, partition).native.state.log_start_offset

    def high_watermark(self, topic: str, partition: int) -> int:
        """See `PartitionWriter`."""
        return self._leader(topic, partition).native.state.high_watermark

    def log_end_offset(self, topic: str, partition: int) -> int:
        """See `PartitionWriter`."""
        return self._leader(topic, partition).native.state.log_end_offset

    # ---- look-ups of the APIs --------------------------------------------------------------------------------------

    def check_held(self, topic: str, partition: int) -> None:
        """KafkaError unless this broker has the partition's log in service."""
        if (topic, partition) in self._offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        if (topic, partition) not in self._replicas:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def check_epoch(self, topic: str, partition: int, leader_epoch: int) -> None:
        """KafkaError unless this broker leads the partition at the epoch the client knows; -1: it knows none."""
        self._leader(topic, partition)
        current = self._replicas[topic, partition].leader_epoch
        if leader_epoch not in (_NO_EPOCH, current):
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH if leader_epoch < current else ErrorCode.UNKNOWN_LEADER_EPOCH
            )

    def state(self, topic: str, partition: int) -> PartitionState:
        """Ends and sizes of a partition led here. KafkaError otherwise."""
        return self._leader(topic, partition).native.state

    def list_offset_now(self, topic: str, partition: int, timestamp_ms: int, isolation: int) -> PartitionPosition:
        """The latest (-1) or earliest (-2) offset. KafkaError."""
        log = self._leader(topic, partition)
        if timestamp_ms == _LATEST:
            self._check_watermark(topic, partition)
        try:
            return log.native.list_offset(timestamp_ms, isolation)
        except NativeError as error:
            raise kafka_error(error) from error

    def _check_watermark(self, topic: str, partition: int) -> None:
        """Raises OFFSET_NOT_AVAILABLE while a new leader does not know yet how far its predecessor let consumers read.
        Its own answer now could lie below that (KIP-207)."""
        replica = self._replicas[topic, partition]
        if replica.log.native.state.high_watermark < replica.epoch_start_offset:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)

    async def list_offset(self, topic: str, partition: int, timestamp_ms: int, isolation: int) -> PartitionPosition:
        """The first record at or after a timestamp, or (-3) the one with the largest; reads files, a few at once.
        KafkaError: INVALID_RECORD for one above max.decompressed.message.bytes, as in Kafka.
        """
        self._leader(topic, partition)  # so that what cannot be answered does not wait
        async with self._lookups:
            log = self._leader(topic, partition)
            try:
                found = await log.run(log.native.list_offset, timestamp_ms, isolation)
            except NativeError as error:
                raise kafka_error(error) from error
        if found.offset < 0 and not log.closing:
            self._leader(topic, partition)
            self._check_watermark(topic, partition)
        return found

    def epoch_end(self, topic: str, partition: int, leader_epoch: int) -> tuple[int, int]:
        """(largest epoch up to `leader_epoch`, its end offset), (-1, -1) when unknown. KafkaError."""
        log = self._leader(topic, partition)
        try:
            return log.native.epoch_end(leader_epoch)
        except NativeError as error:
            raise kafka_error(error) from error

    async def delete_records(self, topic: str, partition: int, before_offset: int, timeout_ms: int) -> int:
        """Move the log start offset to `before_offset` (-1: the high watermark), here and on the followers that are
        alive; the lowest one then. KafkaError."""
        log = self._leader(topic, partition)
        if log.config.compact and not log.config.delete:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"cleanup.policy of topic {topic} has no delete")
        high_watermark = log.native.state.high_watermark
        offset = high_watermark if before_offset == -1 else before_offset
        if not 0 <= offset <= high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        segments = log.native.segments()
        if any(each.end_offset <= offset for each in segments[:-1]):
            await self._logs.ends.before_deletion([(log, offset)])
        try:
            deleted_count = await log.run(log.native.delete_before, offset)
        except NativeError as error:
            # Busy: the start has moved, and retention takes the segments below it off the log.
            if error.errno != errno.EBUSY:
                raise kafka_error(error) from error
        else:
            if deleted_count > 0 and not log.closing:
                self._logs.purge.due(log)
        deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000
        while (low_watermark := self._low_watermark(topic, partition)) < offset:
            if asyncio.get_running_loop().time() >= deadline_s:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
            await asyncio.sleep(_FOLLOWERS_INTERVAL_S)
        return low_watermark

    def _low_watermark(self, topic: str, partition: int) -> int:
        """The lowest log start offset of all replicas whose brokers are alive. KafkaError."""
        log = self._leader(topic, partition)
        assert self._image is not None
        brokers = self._image.cluster.brokers
        starts = [
            each.log_start_offset
            for each in log.native.followers()
            if each.replica_id in brokers and not brokers[each.replica_id].fenced
        ]
        return min([log.native.state.log_start_offset, *starts])

    def producers(self, topic: str, partition: int) -> list[ProducerState]:
        """The idempotent producers a partition knows. KafkaError."""
        log = self._leader(topic, partition)
        try:
            return log.native.producers()
        except NativeError as error:
            raise kafka_error(error) from error

    def log_dirs(self) -> list[Path]:
        """The log dirs of this broker that are in service."""
        return [each.path for each in self._logs.live]

    def offline_log_dirs(self) -> list[Path]:
        """Those that are not."""
        return list(self._logs.failures.offline)

    async def placements(
        self, wanted: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, tuple[Path, PartitionState]]:
        """(log dir, ends and sizes) of the partitions of `wanted` that are held here; None: of all of them."""
        keys = list(self._replicas) if wanted is None else [key async for key in in_slices(wanted)]
        found: dict[TopicPartition, tuple[Path, PartitionState]] = {}
        async for start in in_slices(range(0, len(keys), _STATES_AT_ONCE), 1):
            # Some may have gone between two slices.
            part = [key for key in keys[start : start + _STATES_AT_ONCE] if key in self._replicas]
            logs = {key: self._replicas[key].log for key in part}
            for key, state in self._logs.states(logs.values()).items():
                found[key] = (logs[key].directory.path, state)
        return found

    def fail_appends(self) -> None:
        """Fail the appends that nobody will finish."""
        while self._appends:
            _, done = self._appends.popitem()
            done(-1, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
