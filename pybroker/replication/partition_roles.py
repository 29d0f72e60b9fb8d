"""`PartitionRoles`: makes the partitions held here leaders or followers, as they are registered. On the asyncio loop.

| from | registered | what is done |
|---|---|---|
| anything | led here | led, or led with what is different; a follower lets go first |
| anything | led elsewhere, by a broker that can be reached | follows at that epoch; the data plane stops serving |
| leader | led by nobody, or by somebody out of reach | resigned |
| follower | the same | lets go |

Before a log takes records of another leader, or its own, no checkpoint speaks of what was cut from it.

A broker alone (`replication` is None) follows nobody, and what it leads waits for nobody.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from pybroker.metadata.image import MetadataImage, PartitionRegistration
from pybroker.native.errors import NativeError
from pybroker.native.fetcher import FetcherStats
from pybroker.protocol.errors import ErrorCode
from pybroker.replication.fetcher_manager import NOTHING_FETCHED, ReplicaFetcherManager, Source
from pybroker.replication.isr_manager import IsrManager, IsrStatistics
from pybroker.replication.replica import Replica
from pybroker.storage.files.offset_checkpoint import TopicPartition
from pybroker.storage.logs.partition_log import PartitionLog
from pybroker.values import Value

logger = logging.getLogger(__name__)


class Replication(Value):
    """The parts that a broker has beside others in a cluster."""

    isr: IsrManager
    fetchers: ReplicaFetcherManager


class PartitionRoles:
    """`apply` per partition and image; `leave` before a log is closed."""

    def __init__(
        self,
        node_id: int,
        correct_checkpoints: Callable[[PartitionLog], Awaitable[None]],
        replication: Replication | None = None,
    ) -> None:
        self._node_id = node_id
        self._correct_checkpoints = correct_checkpoints
        self._replication = replication

    def has_others(self, registration: PartitionRegistration) -> bool:
        """Whether replicas of a partition elsewhere count here."""
        return self._replication is not None and registration.replicas != (self._node_id,)

    def on_image(self, image: MetadataImage) -> None:
        """Takes the present brokers, before `apply` is called for partitions of the same image."""
        if self._replication is not None:
            self._replication.isr.on_brokers(image.cluster.brokers)
            self._replication.fetchers.on_image(image)

    def start(self) -> None:
        """This broker serves from now on."""
        if self._replication is not None:
            self._replication.isr.start()

    async def settle(self) -> None:
        """After all partitions of an image: close what nothing is fetched by."""
        if self._replication is not None:
            self._replication.fetchers.close_idle()

    def statistics(self) -> tuple[IsrStatistics, FetcherStats]:
        """Counters since the start."""
        if self._replication is None:
            return IsrStatistics(), NOTHING_FETCHED
        return self._replication.isr.statistics, self._replication.fetchers.stats()

    async def stop(self) -> None:
        """After every replica's `leave`."""
        if self._replication is not None:
            await self._replication.isr.stop()
            self._replication.fetchers.close_idle()

    def on_caught_up(self, key: TopicPartition, replica_id: int) -> None:
        """A CAUGHT_UP event of the data plane."""
        if self._replication is not None:
            self._replication.isr.on_caught_up(key, replica_id)

    async def apply(self, replica: Replica, registration: PartitionRegistration) -> None:
        """Make a replica what it is registered as. A failure is logged; the replica then serves nobody."""
        async with replica.lock:
            if not replica.is_leaving:
                await self._apply(replica, registration)

    async def _apply(self, replica: Replica, registration: PartitionRegistration) -> None:
        if registration.leader == self._node_id:
            await self._lead(replica, registration)
            return
        source = self._source(replica, registration)
        if source is None:
            await self._idle(replica)
        elif (source, registration.leader_epoch) != (replica.source, replica.followed_epoch):
            await self._follow(replica, source, registration.leader_epoch)

    def _source(self, replica: Replica, registration: PartitionRegistration) -> Source | None:
        if self._replication is None:
            return None
        return self._replication.fetchers.source(registration.leader, replica.log.key)

    # ---- leader ----------------------------------------------------------------------------------------------------

    async def _lead(self, replica: Replica, registration: PartitionRegistration) -> None:
        if replica.follows:
            # The data plane would do that by itself, on this thread.
            await self._unfollow(replica)
        if not replica.leads:
            await self._correct_checkpoints(replica.log)
        if replica.is_leaving:
            # Its log is closed next, and the ISR manager would go on asking it.
            return
        if registration.leader_epoch > replica.leader_epoch:
            replica.epoch_start_offset = replica.log.native.state.log_end_offset
        try:
            self._lead_in_data_plane(replica, registration)
        except NativeError as error:
            logger.error("%s: it cannot be led and is not served: %s", replica.log, error)
            # Nothing has changed in the data plane: it would lead on, at the epoch or with the ISR before.
            await self._resign(replica)
        else:
            replica.leader_epoch = registration.leader_epoch

    def _lead_in_data_plane(self, replica: Replica, registration: PartitionRegistration) -> None:
        log, isr = replica.log, None if self._replication is None else self._replication.isr
        # Without others to wait for the data plane's path is shorter.
        if isr is not None and (self.has_others(registration) or log.key in isr):
            isr.lead(log.key, log.topic_id, replica.native, registration)
        elif registration.leader_epoch > replica.leader_epoch:
            log.native.lead(registration.leader_epoch)

    # ---- follower --------------------------------------------------------------------------------------------------

    async def _follow(self, replica: Replica, source: Source, leader_epoch: int) -> None:
        assert self._replication is not None
        fetchers, before = self._replication.fetchers, replica.source
        try:
            fetcher = fetchers.acquire(source)
        except NativeError as error:
            self._on_not_followed(replica, source, error)
            await self._idle(replica)
            return
        if before is not None:
            # Nothing is cut from here on.
            await replica.log.run(replica.native.unfollow)
        if not replica.leads:
            await self._correct_checkpoints(replica.log)
        self._end_leading(replica)
        replica.source, replica.followed_epoch = source, leader_epoch
        if before is not None:
            fetchers.release(before)
        try:
            await replica.log.run(replica.native.follow, fetcher, leader_epoch)
        except NativeError as error:
            self._on_not_followed(replica, source, error)
            await self._unfollow(replica)

    def _on_not_followed(self, replica: Replica, source: Source, error: NativeError) -> None:
        logger.error("%s: it cannot follow broker %d: %s", replica.log, source.leader_id, error)

    async def follow_again(self, replica: Replica) -> None:
        """Go on where it stood still, if it is still to follow."""
        async with replica.lock:
            if replica.source is not None and not replica.is_leaving:
                await self._follow(replica, replica.source, replica.followed_epoch)

    async def _unfollow(self, replica: Replica) -> None:
        assert self._replication is not None
        assert replica.source is not None
        source, replica.source, replica.followed_epoch = replica.source, None, -1
        await replica.log.run(replica.native.unfollow)
        self._replication.fetchers.release(source)

    # ---- neither ---------------------------------------------------------------------------------------------------

    async def _idle(self, replica: Replica) -> None:
        if replica.follows:
            await self._unfollow(replica)
        elif replica.leads:
            await self._resign(replica)

    async def _resign(self, replica: Replica) -> None:
        self._end_leading(replica)
        await replica.log.run(replica.log.native.resign, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def resign(self, replica: Replica) -> None:
        """Lead no more until the next `apply`. Also where it is not known to lead: an election that failed may have
        left appends of the epoch before."""
        async with replica.lock:
            if not (replica.follows or replica.is_leaving):
                await self._resign(replica)

    def _end_leading(self, replica: Replica) -> None:
        replica.leader_epoch = -1
        if self._replication is not None:
            self._replication.isr.forget(replica.log.key)

    async def leave(self, replica: Replica) -> None:
        """Neither lead nor follow any more: the log is about to be closed, which tells clients why. For good."""
        replica.is_leaving = True
        async with replica.lock:
            # Not before: what was about to lead may have begun to meanwhile.
            self._end_leading(replica)
            if replica.follows:
                await self._unfollow(replica)
