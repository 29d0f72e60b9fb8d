"""`IsrManager`: keeps the in-sync replicas of the replicated partitions led here (KIP-497, KIP-841, KIP-903).

On the asyncio loop. `IsrState` has the rules. This module connects them to the data plane, which knows each follower's
progress. It also connects them to the metadata, which names the brokers that may be in sync, and to the controller,
which decides. A follower that has caught up is told of by events, one a second as long as it is not in sync; one that
lags is found by looking.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pybroker.config.broker import BrokerConfig
from pybroker.metadata.image import BrokerRegistration, PartitionRegistration
from pybroker.native.errors import NativeError
from pybroker.observability.event_log import event
from pybroker.protocol import messages as m
from pybroker.protocol.errors import code_name
from pybroker.replication.alter_partition_manager import AlterPartitionManager
from pybroker.replication.data_plane import FollowerState, LedPartition
from pybroker.replication.isr_state import IsrState, Proposal, Verdict
from pybroker.storage.files.offset_checkpoint import TopicPartition
from pybroker.turns import in_slices

logger = logging.getLogger(__name__)

#: After a proposal that the controller could not put into effect.
_RETRY_INTERVAL_S = 0.5

#: For so long the high watermark waits for a follower that was told of. That it is over, the data plane notices when
#: something is written, fetched or told.
_WAIT_S = 1.0


@dataclass(slots=True)
class _Led:
    key: TopicPartition
    topic_id: bytes
    native: LedPartition
    isr: IsrState
    #: Ends the wait for a follower that could not join.
    waiting: asyncio.TimerHandle | None = None

    def stop_waiting(self) -> None:
        if self.waiting is not None:
            self.waiting.cancel()
            self.waiting = None


@dataclass(slots=True)
class IsrStatistics:
    """ISRs that the controller has changed because this broker proposed it, and proposals that it has not taken."""

    expansion_count: int = 0
    shrinkage_count: int = 0
    failure_count: int = 0


class IsrManager:
    """`lead` and `forget` as the metadata says; `start` the look at lagging followers, `stop` at the end."""

    def __init__(self, node_id: int, alter: AlterPartitionManager, config: Callable[[], BrokerConfig]) -> None:
        self._node_id = node_id
        self._alter = alter
        self._config = config
        self._led: dict[TopicPartition, _Led] = {}
        self._brokers: Mapping[int, BrokerRegistration] = {}
        self._looking: asyncio.TimerHandle | None = None
        self._shrinking: asyncio.Task[None] | None = None
        self._retries: set[asyncio.TimerHandle] = set()
        self.statistics = IsrStatistics()

    def start(self) -> None:
        """Begin to look for followers that lag, every half of replica.lag.time.max.ms as Kafka does."""
        interval_s = self._config().get_int("replica.lag.time.max.ms") / 2000
        loop = asyncio.get_running_loop()
        self._looking = loop.call_later(interval_s, self._look, loop.time() + interval_s)

    async def stop(self) -> None:
        """Propose no more."""
        for timer in (self._looking, *self._retries):
            if timer is not None:
                timer.cancel()
        if self._shrinking is not None:
            self._shrinking.cancel()
        for led in self._led.values():
            led.stop_waiting()
        self._led.clear()
        await self._alter.close()

    # ---- what the metadata says ------------------------------------------------------------------------------------

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._led

    def lead(
        self, key: TopicPartition, topic_id: bytes, native: LedPartition, registration: PartitionRegistration
    ) -> None:
        """Lead the partition as registered, or go on with what is different. NativeError: it is not led."""
        led = self._led.get(key)
        if led is None:
            led = _Led(key, topic_id, native, IsrState(self._node_id, registration))
            _tell(led)
            self._led[key] = led
        else:
            self._go_on(led, registration)

    def _go_on(self, led: _Led, registration: PartitionRegistration) -> None:
        proposal, before = led.isr.pending, led.isr.isr
        if not led.isr.on_registration(registration):
            return
        self._alter.withdraw((led.topic_id, led.key[1]))
        if proposal is not None and set(proposal.isr) == set(led.isr.isr):
            # The metadata was quicker than the answer.
            self._count_change(led, before)
        _note_change(led, before)
        try:
            _tell(led)
        except NativeError:
            self.forget(led.key)
            raise

    def forget(self, key: TopicPartition) -> None:
        """The partition is not led here any more."""
        led = self._led.pop(key, None)
        if led is not None:
            led.stop_waiting()
            self._alter.withdraw((led.topic_id, key[1]))

    def on_brokers(self, brokers: Mapping[int, BrokerRegistration]) -> None:
        """The registered brokers."""
        self._brokers = brokers

    # ---- expansion -------------------------------------------------------------------------------------------------

    def on_caught_up(self, key: TopicPartition, replica: int) -> None:
        """The data plane has seen a follower outside the ISR keep up, or reach the high watermark, and the leader
        epoch's start."""
        led = self._led.get(key)
        if led is None or replica not in led.isr.replicas or replica in led.isr.maximal:
            return
        followers = led.native.followers()
        follower = next((each for each in followers if each.replica_id == replica), None)
        may_join = follower is not None and self._may_join(follower)
        proposal = led.isr.expand(replica, _broker_epochs(followers)) if may_join else None
        if proposal is None:
            # The high watermark has begun to wait for it, in vain.
            self._tell_data_plane(led)
            return
        try:
            # From here on it waits for the answer.
            _tell(led)
        except NativeError as error:
            logger.debug("partition %s-%d: %d does not join the ISR now: %s", *key, replica, error)
            led.isr.take_back(proposal)
            self._end_wait_later(led)
        else:
            self._submit(led, proposal)

    def _end_wait_later(self, led: _Led) -> None:
        """The high watermark goes on waiting for a follower that lacks something, so that it has all at its next fetch.
        There may be none, and no write either."""

        def end() -> None:
            led.waiting = None
            self._tell_data_plane(led)

        led.stop_waiting()
        led.waiting = asyncio.get_running_loop().call_later(_WAIT_S, end)

    def _may_join(self, follower: FollowerState) -> bool:
        """Whether the metadata has nothing against a follower, and knows the very broker that fetches."""
        broker = self._brokers.get(follower.replica_id)
        if broker is None or broker.fenced or broker.in_controlled_shutdown:
            return False
        return follower.broker_epoch in (-1, broker.epoch)

    # ---- shrinking -------------------------------------------------------------------------------------------------

    def _look(self, due_s: float) -> None:
        self.start()
        # In a process that was stopped nobody has fetched, by no fault of theirs.
        late_ms = int(1000 * (asyncio.get_running_loop().time() - due_s))
        if self._shrinking is None or self._shrinking.done():
            self._shrinking = asyncio.get_running_loop().create_task(self.shrink_lagging(late_ms), name="lagging")

    async def shrink_lagging(self, late_ms: int = 0) -> None:
        """Propose ISRs without those who have not been caught up for replica.lag.time.max.ms, in slices of the loop,
        which has come to it `late_ms` too late."""
        lag_ms = self._config().get_int("replica.lag.time.max.ms") + late_ms
        async for led in in_slices(list(self._led.values())):
            if self._led.get(led.key) is not led:
                continue
            if led.isr.pending is not None or len(led.isr.isr) < 2:
                continue
            end_offset = led.native.state.log_end_offset
            followers = led.native.followers()
            lagging = {
                each.replica_id for each in followers if each.log_end_offset < end_offset and each.caught_up_ms > lag_ms
            }
            proposal = led.isr.shrink(lagging, _broker_epochs(followers))
            if proposal is not None:
                self._submit(led, proposal)

    # ---- the controller --------------------------------------------------------------------------------------------

    def _submit(self, led: _Led, proposal: Proposal) -> None:
        def answered(proposal: Proposal, answer: m.AlterPartitionResponse.PartitionData) -> None:
            if self._led.get(led.key) is led:
                self._on_answer(led, proposal, answer)

        self._alter.submit((led.topic_id, led.key[1]), proposal, answered)

    def _on_answer(self, led: _Led, proposal: Proposal, answer: m.AlterPartitionResponse.PartitionData) -> None:
        before = led.isr.isr
        verdict = led.isr.on_answer(proposal, answer)
        if verdict is Verdict.APPLIED:
            self._count_change(led, before)
            _note_change(led, before)
            self._tell_data_plane(led)
        elif verdict is Verdict.NOT_DONE:
            self.statistics.failure_count += 1
            self._tell_data_plane(led)
        elif verdict is Verdict.RETRY:
            self._submit_later(led, proposal)
        if verdict is not Verdict.APPLIED:
            logger.info(
                "partition %s-%d: the controller answers %s to the ISR %s on partition epoch %d (%s)",
                *led.key,
                code_name(answer.error_code),
                list(proposal.isr),
                proposal.partition_epoch,
                verdict.value,
            )

    def _submit_later(self, led: _Led, proposal: Proposal) -> None:
        def submit() -> None:
            self._retries.discard(timer)
            if self._led.get(led.key) is led and led.isr.pending is proposal:
                self._submit(led, proposal)

        timer = asyncio.get_running_loop().call_later(_RETRY_INTERVAL_S, submit)
        self._retries.add(timer)

    def _count_change(self, led: _Led, before: tuple[int, ...]) -> None:
        self.statistics.expansion_count += bool(set(led.isr.isr) - set(before))
        self.statistics.shrinkage_count += bool(set(before) - set(led.isr.isr))

    def _tell_data_plane(self, led: _Led) -> None:
        try:
            _tell(led)
        except NativeError as error:
            logger.error("partition %s-%d: its ISR could not be put into effect: %s", *led.key, error)


def _broker_epochs(followers: Sequence[FollowerState]) -> dict[int, int]:
    return {each.replica_id: each.broker_epoch for each in followers}


def _tell(led: _Led) -> None:
    isr = led.isr
    led.native.lead_replicated(isr.leader_epoch, isr.partition_epoch, isr.replicas, isr.isr, isr.joining)


def _note_change(led: _Led, before: tuple[int, ...]) -> None:
    if set(led.isr.isr) != set(before):
        logger.info(
            "partition %s-%d: the ISR is %s now, after %s",
            *led.key,
            list(led.isr.isr),
            list(before),
            extra=event("isr", partition=f"{led.key[0]}-{led.key[1]}"),
        )
