"""`ReplicaManager`: opens, leads, configures, resigns and deletes partitions as the metadata says, and gives others
access to them.

On the asyncio loop; blocking work on the log manager's threads. Metadata changes are applied in their order, one after
the other, each to all its partitions at once. A partition whose log cannot be opened, or fails, is refused with
KAFKA_STORAGE_ERROR; the others are served. It is tried again where that can help, as after a full disk, else when the
broker is started again.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pybroker.config.broker import BrokerConfig
from pybroker.config.topic import TopicConfig
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC, MetadataImage, PartitionRegistration, TopicImage
from pybroker.metadata.loader import MetadataPublisher
from pybroker.native.broker import OFFLINE_SYNC, OFFLINE_WRITE
from pybroker.native.errors import NativeError, SyncFailed
from pybroker.native.partition import PartitionPosition, PartitionState, ProducerState
from pybroker.observability.event_log import event
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.replication.departures import Departures
from pybroker.replication.native_errors import kafka_error
from pybroker.replication.offline_partitions import OfflinePartitions
from pybroker.storage.errors import OpeningStopped, StorageError
from pybroker.storage.log_directory import LogDirectory
from pybroker.storage.log_failures import Consequence, consequence
from pybroker.storage.log_manager import LogManager
from pybroker.storage.offset_checkpoint import TopicPartition
from pybroker.storage.partition_log import PartitionLog

logger = logging.getLogger(__name__)

#: As many partitions take some five milliseconds until they wait for the disk.
_BEGUN_PER_TURN = 50

#: Between attempts to repair a log that cannot be written, or to open one, on a full disk for example.
_REPAIR_INTERVAL_S = 5

_TOO_SHORT = "something else has cut one of its files"

#: Between looks at a log that others are at work on.
_BUSY_INTERVAL_S = 0.05


#: Takes the base offset of what was appended, or -1 and why it was not.
AppendCallback = Callable[[int, KafkaError | None], None]


@dataclass(slots=True)
class Replica:
    """One partition held here. `leader_epoch` is -1 while it is not led."""

    log: PartitionLog
    leader_epoch: int = -1

    @property
    def leads(self) -> bool:
        """Whether clients are served."""
        return self.leader_epoch >= 0


@dataclass(frozen=True, slots=True)
class _Change:
    """One published image, with what is different in it."""

    delta: MetadataDelta
    image: MetadataImage
    topics: Sequence[tuple[bytes, TopicImage | None]]
    configured: frozenset[str] | None
    """Topics whose configuration changed; None for all of them."""


class ReplicaManager:
    """A metadata publisher and a `PartitionWriter`. `settled` says when what was published is done."""

    def __init__(self, node_id: int, logs: LogManager, config: Callable[[], BrokerConfig]) -> None:
        """`config` gives the broker's configuration with the newest dynamic values."""
        self._node_id = node_id
        self._logs = logs
        self._config = config
        self._replicas: dict[TopicPartition, Replica] = {}
        self._offline = OfflinePartitions(logs)
        self._image: MetadataImage | None = None
        self._reopening: asyncio.TimerHandle | None = None
        self._departures = Departures()
        logs.failures.subscribe(self)
        self._followers: list[MetadataPublisher] = []
        self._reopening_listeners: list[Callable[[list[TopicPartition]], None]] = []
        self._may_lead = False
        #: None stands for another attempt to open what could not be opened.
        self._queue: list[_Change | None] = []
        self._applier: asyncio.Task[None] | None = None
        self._tickets = itertools.count(1)
        self._appends: dict[int, AppendCallback] = {}
        self._topic_configs: dict[str, TopicConfig] = {}
        self._resolved: dict[tuple[tuple[str, str], ...], TopicConfig] = {}

    def add_follower(self, publisher: MetadataPublisher) -> None:
        """Let `publisher` have every image after it is in effect here. Before the first publish."""
        self._followers.append(publisher)

    def add_reopening_listener(self, listener: Callable[[list[TopicPartition]], None]) -> None:
        """Tell `listener` of partitions that are open now, later than the metadata says."""
        self._reopening_listeners.append(listener)

    def allow_leading(self) -> None:
        """Lead from the next image on. Before this broker is registered, what the metadata says of its leadership is of
        an earlier life: partitions are opened, but not served, and followers hear nothing."""
        self._may_lead = True

    @property
    def offline_count(self) -> int:
        """Partitions of this broker whose logs cannot be used."""
        return len(self._offline)

    # ---- metadata --------------------------------------------------------------------------------------------------

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """See `MetadataPublisher`. Only queues: `settled` returns when it is done."""
        topics = list(delta.topics_changed.items())
        configured: frozenset[str] | None = frozenset(
            name for kind, name in delta.configs_changed if kind == RESOURCE_TOPIC
        )
        if any(kind == RESOURCE_BROKER for kind, _ in delta.configs_changed):
            configured = None
        self._queue.append(_Change(delta, image, topics, configured))
        self._start_applying()

    def _start_applying(self) -> None:
        if self._applier is None:
            self._applier = asyncio.get_running_loop().create_task(self._apply_all(), name="replica manager")

    async def settled(self) -> None:
        """Return when everything published so far is in effect."""
        if self._applier is not None:
            await asyncio.wait([self._applier])

    async def _apply_all(self) -> None:
        try:
            while self._queue:
                change = self._queue.pop(0)
                if change is None:
                    await self._reopen()
                else:
                    await self._apply(change)
        finally:
            self._applier = None

    async def _apply(self, change: _Change) -> None:
        self._image = change.image
        steps: list[Callable[[], Awaitable[None]]] = [
            partial(self._delete_gone, change),
            partial(self._reconfigure, change),
            partial(self._update_all, change),
            partial(self._tell_followers, change),
        ]
        for step in steps:
            try:
                await step()
            except Exception:  # a defect, in one partition or in all: what follows has to be tried all the same
                logger.exception(
                    "metadata up to offset %d could not be put into effect whole", change.image.provenance.end_offset
                )

    async def _update_all(self, change: _Change) -> None:
        await _all(
            [
                self._update(topic, index, registration, change.image)
                for _, topic in change.topics
                if topic is not None
                for index, registration in topic.partitions.items()
            ]
        )

    async def _tell_followers(self, change: _Change) -> None:
        for follower in self._followers if self._may_lead else ():
            follower.publish(change.delta, change.image)

    async def _delete_gone(self, change: _Change) -> None:
        gone = {topic_id for topic_id, topic in change.topics if topic is None}
        if gone:
            self._offline.forget_topics(gone)
            keys = [key for key, replica in self._replicas.items() if replica.log.topic_id in gone]
            await _all([self._delete(key) for key in keys])

    async def _delete(self, key: TopicPartition) -> None:
        replica = self._replicas.pop(key, None)
        if replica is not None:
            await self._departures.begin_and_wait(key, self._set_aside(replica.log))

    async def _set_aside(self, log: PartitionLog) -> None:
        try:
            await self._logs.delete(log)
        except OSError as error:
            self._logs.failures.report_directory(log.directory, f"setting {log} aside", error)

    async def _reconfigure(self, change: _Change) -> None:
        self._logs.config = self._config()
        self._topic_configs.clear()
        self._resolved.clear()
        if change.configured is not None and not change.configured:
            return
        for key, replica in self._replicas.items():
            if change.configured is None or key[0] in change.configured:
                self._logs.configure(replica.log, self._topic_config(key[0], change.image))

    def _topic_config(self, topic: str, image: MetadataImage) -> TopicConfig:
        """Resolved once per change for all topics with the same overrides."""
        config = self._topic_configs.get(topic)
        if config is None:
            overrides = image.topic_config(topic)
            key = tuple(overrides.items())
            if key not in self._resolved:
                self._resolved[key] = TopicConfig.resolve(overrides, self._logs.config)
            config = self._topic_configs[topic] = self._resolved[key]
            for warning in config.warnings:
                logger.warning("topic %s: %s", topic, warning)
        return config

    async def _update(
        self, topic: TopicImage, index: int, registration: PartitionRegistration, image: MetadataImage
    ) -> None:
        key = (topic.name, index)
        replica = self._replicas.get(key)
        if self._node_id not in registration.replicas:
            self._offline.remove(key)
            await self._delete(key)
            return
        if replica is None:
            replica = await self._open(key, topic.id, registration, image)
            if replica is None:
                return
        if registration.leader == self._node_id and self._may_lead:
            if registration.leader_epoch > replica.leader_epoch:
                try:
                    replica.log.native.lead(registration.leader_epoch)
                except NativeError as error:
                    logger.error("%s: it cannot be led and is not served: %s", replica.log, error)
                else:
                    replica.leader_epoch = registration.leader_epoch
                    self._offline.remove(key)
        elif replica.leads:
            replica.leader_epoch = -1
            await replica.log.run(replica.log.native.resign, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def _open(
        self, key: TopicPartition, topic_id: bytes, registration: PartitionRegistration, image: MetadataImage
    ) -> Replica | None:
        config = self._topic_config(key[0], image)
        directory_id = registration.directory(self._node_id)
        is_new = self._offline.was_new(key) if key in self._offline else self._may_lead
        try:
            await self._departures.over(key[0])
            log = await self._logs.open(key, topic_id, directory_id, registration.leader_epoch, config, is_new=is_new)
        except OpeningStopped:
            return None
        except (NativeError, StorageError, OSError) as error:
            self._on_unopened(key, topic_id, error, is_new)
            return None
        replica = self._replicas[key] = Replica(log)
        return replica

    def _on_unopened(self, key: TopicPartition, topic_id: bytes, error: Exception, is_new: bool) -> None:
        # Only what passes by itself: the rest needs somebody to look at it.
        passes = isinstance(error, NativeError | OSError) and consequence(error) is Consequence.NOTHING
        if key not in self._offline:
            logger.error(
                "partition %s-%d cannot be opened and is offline until %s: %s",
                *key,
                "that succeeds" if passes else "the broker is started again",
                error,
                extra=event("offline", partition=f"{key[0]}-{key[1]}"),
            )
        self._offline.add(key, topic_id, is_tried_again=passes, is_new=is_new)
        if passes:
            self._reopen_later()

    def _reopen_later(self) -> None:
        if self._reopening is None:
            self._reopening = asyncio.get_running_loop().call_later(_REPAIR_INTERVAL_S, self._queue_reopening)

    def _queue_reopening(self) -> None:
        self._reopening = None
        self._queue.append(None)
        self._start_applying()

    async def _reopen(self) -> None:
        """Try those again that could not be opened."""
        assert self._image is not None
        opened = []
        for key, topic_id in self._offline.due():
            topic = self._image.topics.by_id.get(topic_id)
            if topic is not None and key[1] in topic.partitions:
                await self._update(topic, key[1], topic.partitions[key[1]], self._image)
            if key in self._replicas:
                logger.warning("%s is open now", self._replicas[key].log)
                opened.append(key)
        for listener in self._reopening_listeners if opened else ():
            listener(opened)

    # ---- disks that fail -------------------------------------------------------------------------------------------

    def on_directory_failed(self, directory: LogDirectory) -> None:
        """See `FailureHandler`."""
        for key, replica in list(self._replicas.items()):
            if replica.log.directory is directory:
                self._take_offline(key, replica)

    def on_log_failed(self, log: PartitionLog) -> None:
        """See `FailureHandler`."""
        replica = self._replicas.get(log.key)
        if replica is not None and replica.log is log:
            self._take_offline(log.key, replica)

    def _take_offline(self, key: TopicPartition, replica: Replica, *, is_tried_again: bool = False) -> None:
        del self._replicas[key]
        self._offline.add(key, replica.log.topic_id, is_tried_again=is_tried_again, is_new=False)
        self._departures.begin(key, self._logs.drop(replica.log))

    # ---- appends and reads of the control plane --------------------------------------------------------------------

    def _leader(self, topic: str, partition: int) -> PartitionLog:
        replica = self._replicas.get((topic, partition))
        if (topic, partition) in self._offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        if replica is None or replica.log.closing:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not replica.leads:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica.log

    def append(self, topic: str, partition: int, batch: bytes, done: AppendCallback) -> None:
        """See `PartitionWriter`."""
        log = self._leader(topic, partition)
        if len(batch) > log.config.get_int("max.message.bytes"):
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

    async def on_offline(self, tag: int, what: int, error: int) -> None:
        """An OFFLINE event: a write, a read or a sync failed."""
        log = self._logs.by_tag(tag)
        if log is None or log.closing:
            return
        if what == OFFLINE_SYNC:
            self._on_sync_failed(log, SyncFailed(error))
            return
        failure: NativeError | None = NativeError(error)
        is_write = what == OFFLINE_WRITE
        outcome = consequence(NativeError(error))
        if outcome is Consequence.PARTITION:
            # That says in words what is wrong. Nothing is when a reader has met a name that retention took away; a file
            # that was too short has been, though a write may have made it long enough since.
            is_sure = is_write or error == -errno.ENODATA
            failure = await self._look_at_files(log) or (NativeError(error, _TOO_SHORT) if is_sure else None)
        if failure is None:
            logger.debug("%s: a read failed (%s), though its files are in order", log, NativeError(error))
        elif is_write and outcome is Consequence.NOTHING:
            await self._repair(log, failure)
        else:
            self._logs.failures.report(log, "a write" if is_write else "a read", failure)

    def _on_sync_failed(self, log: PartitionLog, error: SyncFailed) -> None:
        if consequence(error) is not Consequence.NOTHING:
            self._logs.failures.report(log, "a sync", error)
            return
        # The data plane has given the log up, and the disk is not at fault.
        replica = self._replicas.get(log.key)
        if replica is not None and replica.log is log:
            logger.error("%s: it could not be brought to the disk (%s), and is opened again", log, error)
            self._take_offline(log.key, replica, is_tried_again=True)
            self._reopen_later()

    async def _look_at_files(self, log: PartitionLog) -> NativeError | None:
        """What is wrong with a log's files; None when nothing is."""
        while not log.closing:
            try:
                await log.run(log.native.check_files)
            except NativeError as found:
                if found.errno != errno.EBUSY:
                    return found
                await asyncio.sleep(_BUSY_INTERVAL_S)
            else:
                return None
        return None

    async def _repair(self, log: PartitionLog, error: NativeError) -> None:
        """A write failed. Cut the log to what was written whole and go on.

        On a full disk the next write fails as well; until a repair is due again, clients are refused without trying.
        """
        logger.error("%s: a write failed (%s); the log is repaired", log, error)
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, log.repaired_s + _REPAIR_INTERVAL_S - loop.time()))
        if self._logs.by_tag(log.tag) is not log:
            return
        log.repaired_s = loop.time()
        is_first = True
        while not log.closing:
            try:
                await log.run(log.native.repair)
            except NativeError as failure:
                if consequence(failure) is not Consequence.NOTHING:
                    self._logs.failures.report(log, "repairing it", failure)
                    return
                if is_first:
                    logger.error(
                        "%s: it cannot be repaired and takes no records; tried again every %d s: %s",
                        log,
                        _REPAIR_INTERVAL_S,
                        failure,
                    )
                is_first = False
                await asyncio.sleep(_REPAIR_INTERVAL_S)
            else:
                logger.warning("%s: repaired; it takes records again", log)
                return

    async def read(self, topic: str, partition: int, offset: int, max_bytes: int) -> bytes:
        """See `PartitionWriter`."""
        log = self._leader(topic, partition)
        smallest = log.config.get_int("max.message.bytes")
        try:
            return await log.run(log.native.read, offset, max(max_bytes, smallest))
        except NativeError as error:
            raise kafka_error(error) from error

    def log_start_offset(self, topic: str, partition: int) -> int:
        """See `PartitionWriter`."""
        return self._leader(topic, partition).native.state.log_start_offset

    def high_watermark(self, topic: str, partition: int) -> int:
        """See `PartitionWriter`."""
        return self._leader(topic, partition).native.state.high_watermark

    # ---- look-ups of the APIs --------------------------------------------------------------------------------------

    def check_held(self, topic: str, partition: int) -> None:
        """KafkaError unless this broker has the partition's log in service."""
        if (topic, partition) in self._offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        if (topic, partition) not in self._replicas:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def check_epoch(self, topic: str, partition: int, leader_epoch: int) -> None:
        """KafkaError unless this broker leads the partition at the epoch the client knows (-1: it knows none)."""
        self._leader(topic, partition)
        current = self._replicas[topic, partition].leader_epoch
        if leader_epoch >= 0 and leader_epoch != current:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH if leader_epoch < current else ErrorCode.UNKNOWN_LEADER_EPOCH
            )

    def state(self, topic: str, partition: int) -> PartitionState:
        """Ends and sizes of a partition led here. KafkaError otherwise."""
        return self._leader(topic, partition).native.state

    def list_offset_now(self, topic: str, partition: int, timestamp_ms: int, isolation: int) -> PartitionPosition:
        """The latest (-1) or earliest (-2) offset. KafkaError."""
        log = self._leader(topic, partition)
        try:
            return log.native.list_offset(timestamp_ms, isolation)
        except NativeError as error:
            raise kafka_error(error) from error

    async def list_offset(self, topic: str, partition: int, timestamp_ms: int, isolation: int) -> PartitionPosition:
        """The first record at or after a timestamp, or (-3) the one with the largest; reads files. KafkaError."""
        log = self._leader(topic, partition)
        try:
            return await log.run(log.native.list_offset, timestamp_ms, isolation)
        except NativeError as error:
            raise kafka_error(error) from error

    def epoch_end(self, topic: str, partition: int, leader_epoch: int) -> tuple[int, int]:
        """(largest epoch up to `leader_epoch`, its end offset), (-1, -1) when unknown. KafkaError."""
        log = self._leader(topic, partition)
        try:
            return log.native.epoch_end(leader_epoch)
        except NativeError as error:
            raise kafka_error(error) from error

    async def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Move the log start offset to `before_offset` (-1: the high watermark); the new one. KafkaError."""
        log = self._leader(topic, partition)
        if log.config.compact and not log.config.delete:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"cleanup.policy of topic {topic} has no delete")
        high_watermark = log.native.state.high_watermark
        offset = high_watermark if before_offset == -1 else before_offset
        if not 0 <= offset <= high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        try:
            deleted_count = await log.run(log.native.delete_before, offset)
        except NativeError as error:
            # Busy: the start has moved, and retention takes the segments below it off the log.
            if error.errno != errno.EBUSY:
                raise kafka_error(error) from error
        else:
            if deleted_count > 0 and not log.closing:
                self._logs.purge.due(log)
        return log.native.state.log_start_offset

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

    def placements(
        self, wanted: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, tuple[Path, PartitionState]]:
        """(log dir, ends and sizes) of the partitions of `wanted` that are held here; None: of all of them."""
        keys = self._replicas.keys() if wanted is None else [key for key in wanted if key in self._replicas]
        logs = {key: self._replicas[key].log for key in keys}
        return {key: (logs[key].directory.path, state) for key, state in self._logs.states(logs.values()).items()}

    # ---- the end ---------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Put no more metadata into effect, and fail the appends that nobody will finish."""
        self._queue.clear()
        self._logs.stop_opening()
        if self._reopening is not None:
            self._reopening.cancel()
        await self.settled()
        await self._departures.finished()
        self._offline.close()
        while self._appends:
            _, done = self._appends.popitem()
            done(-1, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))


async def _all(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all coroutines at once, begun so many at a time that the loop goes round in between; then raise the first
    failure, if any."""
    tasks = []
    for number, each in enumerate(work, start=1):
        tasks.append(asyncio.ensure_future(each))
        if number % _BEGUN_PER_TURN == 0:
            await asyncio.sleep(0)
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
