"""Leader, follower or neither: what the data plane is told, in which order."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from controller_double import Channel
from registrations import LISTENER, broker, image, registration

from pybroker.config.broker import BrokerConfig
from pybroker.config.topic import TopicConfig
from pybroker.native.errors import NativeError
from pybroker.native.fetcher import FetcherOptions, FetcherStats
from pybroker.native.partition import PartitionState
from pybroker.protocol.errors import ErrorCode
from pybroker.replication.alter_partition_manager import AlterPartitionManager
from pybroker.replication.fetcher_manager import ReplicaFetcherManager
from pybroker.replication.isr_manager import IsrManager
from pybroker.replication.partition_roles import PartitionRoles, Replication
from pybroker.replication.replica import Replica
from pybroker.storage.dirs.log_directory import LogDirectory
from pybroker.storage.logs.partition_log import PartitionLog

NODE_ID = 1


class Fetcher:
    def __init__(self, calls: list[Any], options: FetcherOptions) -> None:
        self._calls = calls
        self.name = f"broker {options.leader_id} at {options.host}:{options.port}"

    @property
    def stats(self) -> FetcherStats:
        return FetcherStats(*(0 for _ in FetcherStats._fields))

    def close(self) -> None:
        self._calls.append(("close fetcher", self.name))


class Partition:
    """Notes what it is told. `failures` are raised by the call they name, once."""

    def __init__(self, calls: list[Any]) -> None:
        self._calls = calls
        self.failures: dict[str, NativeError] = {}
        self.high_watermark = self.log_end_offset = 0

    def _note(self, what: str, *details: Any) -> None:
        failure = self.failures.pop(what, None)
        if failure is not None:
            raise failure
        self._calls.append((what, *details))

    @property
    def state(self) -> PartitionState:
        return PartitionState(0, self.high_watermark, 0, self.log_end_offset, 0, 0, 0, 0, 0, 0, 0)

    def lead(self, leader_epoch: int) -> None:
        self._note("lead", leader_epoch)

    def lead_replicated(
        self,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        joining: Sequence[int],
    ) -> None:
        self._note("lead replicated", leader_epoch, isr)

    def followers(self) -> list[Any]:
        return []

    def follow(self, fetcher: Fetcher, leader_epoch: int) -> None:
        self._note("follow", fetcher.name, leader_epoch)

    def unfollow(self) -> None:
        self._note("unfollow")

    def resign(self, error: int) -> None:
        self._note("resign", error)


class Setup:
    def __init__(self, *, is_alone: bool = False) -> None:
        self.calls: list[Any] = []
        #: What the data plane had been told each time when the checkpoints were looked after.
        self.told_before_checkpoints: list[list[str]] = []
        self.partition = Partition(self.calls)
        config = BrokerConfig.load(None, [])
        self.isr = IsrManager(NODE_ID, AlterPartitionManager(NODE_ID, Channel()), lambda: config)
        self.fetchers = ReplicaFetcherManager(NODE_ID, LISTENER, lambda: config, self._open_fetcher)
        self.fetcher_failure: NativeError | None = None
        self.roles = PartitionRoles(
            NODE_ID, self._correct_checkpoints, None if is_alone else Replication(self.isr, self.fetchers)
        )
        self.roles.on_image(image())
        self.executor = ThreadPoolExecutor(1)
        native: Any = self.partition
        directory = LogDirectory(Path("/nowhere"), bytes(16))
        log = PartitionLog(
            ("t", 0),
            bytes(16),
            1,
            directory,
            Path("/nowhere/t-0"),
            TopicConfig.resolve({}, config),
            native,
            self.executor,
        )
        self.replica = Replica(log)

    async def _correct_checkpoints(self, log: PartitionLog) -> None:
        self.told_before_checkpoints.append([each[0] for each in self.calls])

    def _open_fetcher(self, options: FetcherOptions) -> Fetcher:
        if self.fetcher_failure is not None:
            raise self.fetcher_failure
        return Fetcher(self.calls, options)

    async def apply(self, **registered: Any) -> list[Any]:
        """What the data plane was told because of a registration."""
        self.calls.clear()
        await self.roles.apply(self.replica, registration(**registered))
        await self.roles.settle()
        return list(self.calls)


def run(scenario: Callable[[Setup], Awaitable[None]], *, is_alone: bool = False) -> None:
    async def whole() -> None:
        made = Setup(is_alone=is_alone)
        try:
            await scenario(made)
        finally:
            await made.roles.leave(made.replica)
            await made.roles.stop()
            made.executor.shutdown()
        assert made.fetchers.sources == ()

    asyncio.run(whole())


def test_a_leader_of_others() -> None:
    async def scenario(made: Setup) -> None:
        assert await made.apply() == [("lead replicated", 0, (1, 2, 3))]
        assert made.replica.leads
        assert await made.apply() == [], "nothing is different"
        assert await made.apply(isr=(1, 2), partition_epoch=1) == [("lead replicated", 0, (1, 2))]
        assert await made.apply(leader_epoch=1, partition_epoch=2) == [("lead replicated", 1, (1, 2, 3))]
        assert made.replica.leader_epoch == 1

    run(scenario)


def test_an_epoch_begins_where_the_log_ends() -> None:
    async def scenario(made: Setup) -> None:
        made.partition.log_end_offset = 5
        await made.apply()
        made.partition.log_end_offset = 8
        await made.apply(isr=(1,), partition_epoch=1)
        assert made.replica.epoch_start_offset == 5
        await made.apply(leader_epoch=1, partition_epoch=2)
        assert made.replica.epoch_start_offset == 8

    run(scenario)


def test_a_leader_alone_waits_for_nobody() -> None:
    async def scenario(made: Setup) -> None:
        assert await made.apply(replicas=(1,)) == [("lead", 0)]
        assert await made.apply(replicas=(1,), partition_epoch=1) == []
        assert await made.apply(replicas=(1,), leader_epoch=1, partition_epoch=2) == [("lead", 1)]

    run(scenario)


def test_replicas_are_added_and_removed_while_it_leads() -> None:
    async def scenario(made: Setup) -> None:
        await made.apply(replicas=(1,))
        added = await made.apply(replicas=(1, 2), isr=(1,), adding_replicas=(2,), partition_epoch=1)
        assert added == [("lead replicated", 0, (1,))]
        assert await made.apply(replicas=(1,), partition_epoch=2) == [("lead replicated", 0, (1,))]

    run(scenario)


def test_a_follower() -> None:
    async def scenario(made: Setup) -> None:
        assert await made.apply(leader=2) == [("follow", "broker 2 at host2:9092", 0)]
        assert made.replica.follows
        assert not made.replica.leads
        assert await made.apply(leader=2, isr=(2,), partition_epoch=1) == [], "the ISR is its leader's business"
        assert await made.apply(leader=2, leader_epoch=1) == [("unfollow",), ("follow", "broker 2 at host2:9092", 1)]
        assert await made.apply(leader=3, leader_epoch=2) == [
            ("unfollow",),
            ("follow", "broker 3 at host3:9092", 2),
            ("close fetcher", "broker 2 at host2:9092"),
        ]

    run(scenario)


def test_leadership_comes_and_goes() -> None:
    async def scenario(made: Setup) -> None:
        await made.apply()
        assert await made.apply(leader=2, leader_epoch=1, partition_epoch=1) == [
            ("follow", "broker 2 at host2:9092", 1)
        ]
        assert ("t", 0) not in made.isr
        assert await made.apply(leader_epoch=2, partition_epoch=2) == [
            ("unfollow",),
            ("lead replicated", 2, (1, 2, 3)),
            ("close fetcher", "broker 2 at host2:9092"),
        ]
        resigned = ("resign", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert await made.apply(leader=-1, leader_epoch=3, partition_epoch=3) == [resigned]
        assert not made.replica.leads
        assert await made.apply(leader=-1, leader_epoch=3, partition_epoch=4) == []
        await made.apply(leader=2, leader_epoch=4)
        assert await made.apply(leader=-1, leader_epoch=5) == [
            ("unfollow",),
            ("close fetcher", "broker 2 at host2:9092"),
        ]

    run(scenario)


def test_checkpoints_are_looked_after_when_nothing_more_is_cut() -> None:
    """And before anything is appended in its place."""

    async def scenario(made: Setup) -> None:
        await made.apply(leader=2)
        await made.apply(leader=3, leader_epoch=1)
        made.calls.clear()
        await made.roles.follow_again(made.replica)
        await made.apply(leader_epoch=2)
        await made.apply(leader=-1, leader_epoch=3)
        await made.apply(leader_epoch=4)
        assert made.told_before_checkpoints == [[], ["unfollow"], ["unfollow"], ["unfollow"], []]
        await made.apply(leader=2, leader_epoch=5)
        assert len(made.told_before_checkpoints) == 5, "what leads is not cut"

    run(scenario)


def test_a_leader_that_moves_is_followed() -> None:
    async def scenario(made: Setup) -> None:
        await made.apply(leader=2)
        made.roles.on_image(image(broker(1), broker(2, port=7)))
        assert await made.apply(leader=2) == [
            ("unfollow",),
            ("follow", "broker 2 at host2:7", 0),
            ("close fetcher", "broker 2 at host2:9092"),
        ]
        made.roles.on_image(image(broker(1, epoch=101), broker(2, port=7)))
        assert [each[0] for each in await made.apply(leader=2)] == ["unfollow", "follow", "close fetcher"]
        made.roles.on_image(image(broker(1, epoch=101)))
        assert [each[0] for each in await made.apply(leader=2)] == ["unfollow", "close fetcher"]

    run(scenario)


def test_a_broker_alone() -> None:
    async def scenario(made: Setup) -> None:
        assert await made.apply() == [("lead", 0)], "whoever else has been registered is not waited for"
        resigned = ("resign", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert await made.apply(leader=2, leader_epoch=1) == [resigned]
        assert await made.apply(leader=2, leader_epoch=1) == []

    run(scenario, is_alone=True)


@pytest.mark.parametrize(("call", "leader"), [("lead replicated", NODE_ID), ("follow", 2)])
def test_a_role_that_fails_is_none(call: str, leader: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(made: Setup) -> None:
        made.partition.failures[call] = NativeError(-errno.ENOMEM)
        await made.apply(leader=leader)
        assert not made.replica.leads
        assert not made.replica.follows
        assert (await made.apply(leader=leader))[0][0] == call, "again with the next change"

    run(scenario)
    assert "t-0: it cannot" in caplog.text


@pytest.mark.parametrize(
    "change",
    [{"leader_epoch": 2}, {"leader_epoch": 1, "isr": (1, 2)}],
    ids=["another epoch", "another ISR"],
)
def test_a_leader_that_cannot_lead_on_serves_nobody(change: dict[str, Any]) -> None:
    async def scenario(made: Setup) -> None:
        await made.apply(leader_epoch=1, partition_epoch=1)
        made.partition.failures["lead replicated"] = NativeError(-errno.ENOMEM)
        assert await made.apply(**change, partition_epoch=2) == [("resign", ErrorCode.NOT_LEADER_OR_FOLLOWER)]
        assert not made.replica.leads
        assert ("t", 0) not in made.isr
        led = [("lead replicated", change["leader_epoch"], change.get("isr", (1, 2, 3)))]
        assert await made.apply(**change, partition_epoch=2) == led, "again with the next change"
        assert made.replica.leads

    run(scenario)


def test_a_broker_alone_that_cannot_lead_on_serves_nobody() -> None:
    async def scenario(made: Setup) -> None:
        await made.apply()
        made.partition.failures["lead"] = NativeError(-errno.ENOMEM)
        assert await made.apply(leader_epoch=1) == [("resign", ErrorCode.NOT_LEADER_OR_FOLLOWER)]
        assert await made.apply(leader_epoch=1) == [("lead", 1)]

    run(scenario, is_alone=True)


def test_a_fetcher_that_cannot_be_opened_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(made: Setup) -> None:
        made.fetcher_failure = NativeError(-errno.EMFILE)
        assert await made.apply(leader=2) == []
        made.fetcher_failure = None
        assert await made.apply(leader=2) == [("follow", "broker 2 at host2:9092", 0)]

    run(scenario)
    assert "cannot follow broker 2" in caplog.text


def test_one_that_stood_still_goes_on() -> None:
    async def scenario(made: Setup) -> None:
        await made.apply(leader=2)
        made.calls.clear()
        await made.roles.follow_again(made.replica)
        assert made.calls == [("unfollow",), ("follow", "broker 2 at host2:9092", 0)]
        await made.apply()
        made.calls.clear()
        await made.roles.follow_again(made.replica)
        assert made.calls == []

    run(scenario)


def test_one_that_leaves_takes_no_role_any_more() -> None:
    async def scenario(made: Setup) -> None:
        await made.apply(leader=2)
        made.calls.clear()
        applying = asyncio.create_task(made.roles.apply(made.replica, registration(leader=3, leader_epoch=1)))
        await asyncio.sleep(0)
        await made.roles.leave(made.replica)
        await applying
        assert made.calls[-1] == ("unfollow",)
        assert not made.replica.follows
        assert await made.apply(leader=2, leader_epoch=2) == [
            ("close fetcher", "broker 2 at host2:9092"),
            ("close fetcher", "broker 3 at host3:9092"),
        ]

    run(scenario)


def test_one_that_leaves_while_it_is_about_to_lead_is_not_led() -> None:
    async def scenario(made: Setup) -> None:
        await made.apply(leader=2)
        made.calls.clear()
        may_unfollow = threading.Event()
        made.executor.submit(may_unfollow.wait, 60)
        electing = asyncio.create_task(made.roles.apply(made.replica, registration(leader_epoch=1)))
        await asyncio.sleep(0)
        leaving = asyncio.create_task(made.roles.leave(made.replica))
        await asyncio.sleep(0)
        may_unfollow.set()
        await asyncio.gather(electing, leaving)
        assert made.calls == [("unfollow",)]
        assert ("t", 0) not in made.isr, "nobody asks a log that is closed how far it is"
        assert not made.replica.leads

    run(scenario)
