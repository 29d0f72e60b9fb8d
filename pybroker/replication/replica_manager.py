"""`ReplicaManager`: opens partitions, gives them their roles, configures and deletes them as the metadata says.

On the asyncio loop; blocking work on the log manager's threads. Metadata changes are applied in their order, one after
the other, each to all its partitions at once. A partition whose log cannot be opened, or fails, is refused with
KAFKA_STORAGE_ERROR; the others are served. It is tried again where that can help, as after a full disk, else when the
broker is started again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from itertools import chain, starmap
from typing import Any

from pybroker.config.broker import BrokerConfig
from pybroker.config.topic import TopicConfig
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC, MetadataImage, PartitionRegistration, TopicImage
from pybroker.metadata.loader import MetadataPublisher
from pybroker.native.errors import NativeError
from pybroker.native.fetcher import FOLLOWER_CHECKPOINT, FOLLOWER_STOPPED
from pybroker.observability.event_log import event
from pybroker.replication import log_repair, statistics
from pybroker.replication.departures import Departures
from pybroker.replication.follower_news import tell
from pybroker.replication.log_repair import LogRepair
from pybroker.replication.lost_replicas import LostReplicas
from pybroker.replication.partition_roles import PartitionRoles, Replication
from pybroker.replication.replica import Replica
from pybroker.replication.replica_access import ReplicaAccess
from pybroker.replication.statistics import ReplicationStatistics
from pybroker.storage.dirs.log_directory import LogDirectory
from pybroker.storage.errors import NoDescriptors, OpeningStopped, StorageError
from pybroker.storage.files.applied_metadata import AppliedMetadata
from pybroker.storage.files.offset_checkpoint import TopicPartition
from pybroker.storage.logs.log_failures import Consequence, consequence
from pybroker.storage.logs.log_loss import LostRecords
from pybroker.storage.logs.log_manager import LogManager
from pybroker.storage.logs.partition_log import PartitionLog
from pybroker.turns import in_slices, pause
from pybroker.values import Value

logger = logging.getLogger(__name__)

#: So many logs are closed for deletion at a time, as the news of thousands would come in one turn of the loop.
_LEAVING_AT_ONCE = 100


class _Change(Value):
    """One published image, with what is different in it."""

    delta: MetadataDelta
    image: MetadataImage
    topics: Sequence[tuple[bytes, TopicImage | None]]
    configured: frozenset[str] | None
    """Topics whose configuration changed; None for all of them."""
    may_lead: bool
    """It came when this broker could lead already, so once it is in effect who leads is, too."""


class ReplicaManager(ReplicaAccess):
    """A `MetadataApplier`. `settled` says when what was published is done."""

    def __init__(
        self,
        node_id: int,
        logs: LogManager,
        config: Callable[[], BrokerConfig],
        replication: Replication | None = None,
    ) -> None:
        """`config` gives the broker's configuration with the newest dynamic values; `replication` is for a broker among
        others."""
        super().__init__(logs)
        self._node_id = node_id
        self._config = config
        self._roles = PartitionRoles(node_id, logs.correct_checkpoints, replication)
        self._repair = LogRepair(logs, self._open_again, self._go_on)
        self._reopening: asyncio.TimerHandle | None = None
        self._departures = Departures()
        self._lost = LostReplicas(node_id, logs.ends)
        logs.failures.subscribe(self)
        self._followers: list[MetadataPublisher] = []
        self._reopening_listeners: list[Callable[[list[TopicPartition]], None]] = []
        self._may_lead = False
        #: Whether all partitions are due for their roles, changed or not.
        self._are_roles_due = False
        #: Work on all partitions, one after the other: mostly images to put into effect.
        self._queue: list[Callable[[], Awaitable[None]]] = []
        self._applier: asyncio.Task[None] | None = None
        #: The end offset of the image that was put into effect last, and the configs of the topics that this broker
        #: leads.
        self._end_offset_in_effect = 0
        self._topic_configs: dict[str, TopicConfig] = {}
        self._resolved: dict[tuple[tuple[str, str], ...], TopicConfig] = {}

    def add_follower(self, publisher: MetadataPublisher) -> None:
        """Let `publisher` have every image after it is in effect here. Before the first publish."""
        self._followers.append(publisher)

    def add_reopening_listener(self, listener: Callable[[list[TopicPartition]], None]) -> None:
        """Tell `listener` of partitions that are open now, later than the metadata says."""
        self._reopening_listeners.append(listener)

    def allow_leading(self) -> None:
        """Lead and follow from the next image on. Before this broker is registered, what the metadata says of its
        leadership is of an earlier life: partitions are opened, but not served, and followers hear nothing."""
        self._may_lead = True
        self._are_roles_due = True
        self._roles.start()

    @property
    def largest_producer_id(self) -> int:
        """The largest of those found in logs as they were opened; -1 without any."""
        return self._logs.largest_producer_id

    # ---- metadata --------------------------------------------------------------------------------------------------

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """See `MetadataPublisher`. Only queues: `settled` returns when it is done."""
        topics = list(delta.topics_changed.items())
        configured: frozenset[str] | None = frozenset(
            name for kind, name in delta.configs_changed if kind == RESOURCE_TOPIC
        )
        if any(kind == RESOURCE_BROKER for kind, _ in delta.configs_changed):
            configured = None
        self._enqueue(partial(self._apply, _Change(delta, image, topics, configured, self._may_lead)))

    def _enqueue(self, work: Callable[[], Awaitable[None]]) -> None:
        self._queue.append(work)
        if self._applier is None:
            self._applier = asyncio.get_running_loop().create_task(self._apply_all(), name="replica manager")

    async def settled(self) -> None:
        """Return when everything published so far is in effect."""
        if self._applier is not None:
            await asyncio.wait([self._applier])

    def is_opening(self, topic: TopicImage) -> bool:
        """Whether this broker is about to serve a partition of `topic`, which the metadata have, as its leader."""
        return self._applier is not None and any(
            each.leader == self._node_id and not self._is_served(topic, index)
            for index, each in topic.partitions.items()
        )

    def _is_served(self, topic: TopicImage, index: int) -> bool:
        replica = self._replicas.get((topic.name, index))
        return replica is not None and replica.log.topic_id == topic.id and replica.leads

    async def _apply_all(self) -> None:
        try:
            while self._queue:
                await self._do(self._queue.pop(0))
        finally:
            self._applier = None

    async def _do(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception:  # a defect: what is queued behind it has to be done all the same
            logger.exception("a change of partitions could not be put into effect")

    def in_effect(self, end_offset: int) -> int:
        """See `MetadataApplier`. A change that failed counts as well: the failure has been reported, and is tried again
        where that can help."""
        return end_offset if self._applier is None else self._end_offset_in_effect

    async def _apply(self, change: _Change) -> None:
        before, self._image = self._image, change.image
        is_same_cluster = before is not None and before.cluster is change.image.cluster
        if not is_same_cluster or change.delta.feature_levels_changed or change.configured is None:
            # Where leaders are reached, how they are talked to, and how many fetchers there are.
            self._are_roles_due = True
        self._roles.on_image(change.image)
        if self._changes_directories(change):
            await self._logs.note_applied(_applied(change.image))
        steps: list[Callable[[], Awaitable[None]]] = [
            partial(self._delete_gone, change),
            partial(self._reconfigure, change),
            partial(self._update_all, change),
            partial(self._follow_all, change),
            self._roles.settle,
            partial(self._tell_followers, change),
        ]
        for step in steps:
            try:
                await step()
            except Exception:  # a defect, in one partition or in all: what follows has to be tried all the same
                logger.exception(
                    "metadata up to offset %d could not be put into effect whole", change.image.provenance.end_offset
                )
        if change.may_lead:
            self._end_offset_in_effect = change.image.provenance.end_offset

    def _changes_directories(self, change: _Change) -> bool:
        """Whether directories of partitions come or go with it. Metadata that have lost records since could not tell of
        them, so how far they went has to be on the disk before."""
        return any(
            topic is None
            or any(
                (self._node_id in each.replicas) != ((topic.name, index) in self._replicas)
                for index, each in topic.partitions.items()
            )
            for _, topic in change.topics
        )

    async def _update_all(self, change: _Change) -> None:
        await _all(
            self._update(topic, index, registration, change.image)
            for _, topic in change.topics
            if topic is not None
            for index, registration in topic.partitions.items()
        )

    async def _follow_all(self, change: _Change) -> None:
        """Let every partition that is led elsewhere follow its leader where that is now. Leaders and followers here
        change by changes of topics alone."""
        if not (self._may_lead and self._are_roles_due):
            return
        self._are_roles_due = False
        topics = change.image.topics.by_id
        registered = [
            (replica, topic.partitions[key[1]])
            for key, replica in self._replicas.items()
            if (topic := topics.get(replica.log.topic_id)) is not None and key[1] in topic.partitions
        ]
        await _all(
            self._apply_role(replica, registration)
            for replica, registration in registered
            if registration.leader != self._node_id
        )

    async def _apply_role(self, replica: Replica, registration: PartitionRegistration) -> None:
        await pause()
        await self._roles.apply(replica, registration)

    async def _tell_followers(self, change: _Change) -> None:
        for follower in self._followers if self._may_lead else ():
            follower.publish(change.delta, change.image)

    async def _delete_gone(self, change: _Change) -> None:
        gone = {topic_id for topic_id, topic in change.topics if topic is None}
        if gone:
            unopened = self._offline.forget_topics(gone)
            keys = [key for key, replica in self._replicas.items() if replica.log.topic_id in gone]
            gate = asyncio.Semaphore(_LEAVING_AT_ONCE)
            leaving = (self._leave_by(gate, key, len(keys)) for key in keys)
            await _all(chain(leaving, starmap(self._delete_unopened, unopened)))

    async def _leave_by(self, gate: asyncio.Semaphore, key: TopicPartition, count: int) -> None:
        async with gate:
            is_gone = await self._delete(key)
        if not is_gone:
            # A disk that takes long holds up no logs on others.
            for _ in range(count):
                gate.release()

    async def _delete(self, key: TopicPartition) -> bool:
        """Set a log aside; whether that did not take long."""
        await pause()
        replica = self._replicas.pop(key, None)
        return replica is None or await self._departures.begin_and_wait(key, self._set_aside(replica))

    async def _delete_unopened(self, key: TopicPartition, topic_id: bytes) -> None:
        try:
            await self._departures.over(key[0])
            await self._logs.delete_unopened(key, topic_id)
        except OSError as error:
            logger.error("the files of %s-%d, whose topic was deleted, cannot be removed: %s", *key, error)

    async def _set_aside(self, replica: Replica) -> None:
        await self._roles.leave(replica)
        await pause()
        log = replica.log
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
        async for key, replica in in_slices(list(self._replicas.items())):
            # A log that fails leaves at any time.
            is_here = self._replicas.get(key) is replica
            if is_here and (change.configured is None or key[0] in change.configured):
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
        await pause()
        key = (topic.name, index)
        replica = self._replicas.get(key)
        if self._node_id not in registration.replicas:
            was_offline = key in self._offline
            self._offline.remove(key)
            await self._delete(key)
            if was_offline:
                await self._delete_unopened(key, topic.id)
            return
        if replica is None:
            replica = await self._open(key, topic.id, registration, image)
            if replica is None:
                return
        if self._may_lead:
            if not self._lost.may_be(replica, registration):
                self._take_offline(key, replica)
                return
            await self._apply_role(replica, registration)
            if replica.leads or replica.follows:
                self._offline.remove(key)

    async def _open(
        self, key: TopicPartition, topic_id: bytes, registration: PartitionRegistration, image: MetadataImage
    ) -> Replica | None:
        config = self._topic_config(key[0], image)
        directory_id = registration.directory(self._node_id)
        is_new = self._offline.was_new(key) if key in self._offline else self._may_lead
        try:
            await self._departures.over(key[0])
            log = await self._logs.open(
                key,
                topic_id,
                directory_id,
                registration.leader_epoch if registration.leader == self._node_id else -1,
                config,
                is_new=is_new,
                is_replicated=self._roles.has_others(registration),
            )
        except OpeningStopped:
            return None
        except (NativeError, StorageError, OSError) as error:
            self._on_unopened(key, topic_id, error, is_new)
            return None
        replica = self._replicas[key] = Replica(log)
        return replica

    def _on_unopened(self, key: TopicPartition, topic_id: bytes, error: Exception, is_new: bool) -> None:
        # Only what passes by itself: the rest needs somebody to look at it.
        passes = isinstance(error, NoDescriptors) or (
            isinstance(error, NativeError | OSError) and consequence(error) is Consequence.NOTHING
        )
        if key not in self._offline:
            logger.error(
                "partition %s-%d cannot be opened and is offline until %s: %s",
                *key,
                "that succeeds" if passes else "the broker is started again",
                error,
                extra=event("loss" if isinstance(error, LostRecords) else "offline", partition=f"{key[0]}-{key[1]}"),
            )
        self._offline.add(key, topic_id, is_tried_again=passes, is_new=is_new)
        if passes:
            self._reopen_later()

    def _reopen_later(self) -> None:
        if self._reopening is None:
            self._reopening = asyncio.get_running_loop().call_later(log_repair.REPAIR_INTERVAL_S, self._queue_reopening)

    def _queue_reopening(self) -> None:
        self._reopening = None
        self._enqueue(self._reopen)

    async def _reopen(self) -> None:
        """Try those again that could not be opened."""
        assert self._image is not None
        opened = []
        for key, topic_id in self._offline.due():
            if not self._logs.slots.has_room():
                self._reopen_later()
                break
            topic = self._image.topics.by_id.get(topic_id)
            if topic is not None and key[1] in topic.partitions:
                await self._update(topic, key[1], topic.partitions[key[1]], self._image)
            if key in self._replicas:
                logger.warning("%s is open now", self._replicas[key].log)
                opened.append(key)
        for listener in self._reopening_listeners if opened else ():
            listener(opened)

    # ---- strays ----------------------------------------------------------------------------------------------------

    async def set_strays_aside(self) -> None:
        """At the start: rename the directories of partitions that are none of this broker's, by the metadata published
        so far. Images published meanwhile wait, so that nothing is opened under a name that is about to go."""
        assert self._image is not None
        applied = _applied(self._image)
        self._enqueue(lambda: self._logs.set_strays_aside(self._is_ours, applied))
        await self.settled()
        await self._logs.note_applied(applied)

    def _is_ours(self, key: TopicPartition) -> bool:
        """Whether the metadata assigns a partition to this broker, or its log is not out of the way yet."""
        topic = None if self._image is None else self._image.topics.by_name.get(key[0])
        registration = None if topic is None else topic.partitions.get(key[1])
        return key in self._departures or (registration is not None and self._node_id in registration.replicas)

    # ---- coordinators ----------------------------------------------------------------------------------------------

    async def resign(self, topic: str, partition: int) -> None:
        """See `PartitionWriter`."""
        replica = self._replicas.get((topic, partition))
        if replica is not None:
            await self._roles.resign(replica)

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
        self._departures.begin(key, self._drop(replica))

    async def _drop(self, replica: Replica) -> None:
        await self._roles.leave(replica)
        await self._logs.drop(replica.log)

    def _open_again(self, log: PartitionLog) -> None:
        replica = self._replicas.get(log.key)
        if replica is not None and replica.log is log:
            self._take_offline(log.key, replica, is_tried_again=True)
            self._reopen_later()

    async def _go_on(self, log: PartitionLog) -> None:
        """A log stood still, and need not any more."""
        replica = self._replicas.get(log.key)
        if replica is not None and replica.log is log:
            await self._roles.follow_again(replica)

    # ---- events of the data plane ----------------------------------------------------------------------------------

    async def on_offline(self, tag: int, what: int, error: int) -> None:
        """An OFFLINE event: a write, a read or a sync failed."""
        await self._repair.on_offline(tag, what, error)

    def on_caught_up(self, tag: int, replica_id: int) -> None:
        """A CAUGHT_UP event: a follower outside the ISR may join it."""
        log = self._logs.by_tag(tag)
        if log is not None and not log.closing:
            self._roles.on_caught_up(log.key, replica_id)

    async def on_follower(self, tag: int, news: int, offset: int) -> None:
        """A FOLLOWER event: something has happened to a partition that follows."""
        log = self._logs.by_tag(tag)
        if log is None or log.closing:
            return
        tell(log, news, offset)
        if news == FOLLOWER_STOPPED:
            # An OFFLINE event says so, too, if the log is at fault. Else it may succeed the next time.
            await asyncio.sleep(log_repair.REPAIR_INTERVAL_S)
        if news in (FOLLOWER_STOPPED, FOLLOWER_CHECKPOINT):
            await self._go_on(log)

    def statistics(self) -> ReplicationStatistics:
        """How replication goes."""
        replicas = self._replicas.values()
        return ReplicationStatistics(
            *self._roles.statistics(),
            sum(each.follows for each in replicas),
            max(statistics.max_lag(replicas), 0),
            statistics.under_min_isr_count(replicas, self._image),
        )

    # ---- the end ---------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Put no more metadata into effect, and fail the appends that nobody will finish."""
        self._queue.clear()
        self._logs.stop_opening()
        if self._reopening is not None:
            self._reopening.cancel()
        await self.settled()
        await self._departures.finished()
        await _all(self._roles.leave(replica) for replica in list(self._replicas.values()))
        await self._roles.stop()
        self._offline.close()
        self.fail_appends()


def _applied(image: MetadataImage) -> AppliedMetadata:
    return AppliedMetadata(image.cluster_id, image.provenance.end_offset, image.provenance.epoch)


async def _all(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all coroutines at once, begun in slices of the loop; then raise the first failure, if any."""
    loop = asyncio.get_running_loop()
    running: set[asyncio.Task[None]] = set()
    ended: asyncio.Future[None] | None = None
    failures: list[BaseException] = []

    def end(task: asyncio.Task[None]) -> None:
        running.discard(task)
        failure = asyncio.CancelledError() if task.cancelled() else task.exception()
        if failure is not None:
            failures.append(failure)
        if ended is not None and not running and not ended.done():
            ended.set_result(None)

    async for each in in_slices(work):
        task = loop.create_task(each)
        running.add(task)
        task.add_done_callback(end)
    if running:
        # Neither `gather` nor `wait`: with thousands of tasks both take a long step.
        ended = loop.create_future()
        await ended
    if failures:
        raise failures[0]
