"""Who joins the ISR and who leaves it, between the data plane, the metadata and the controller."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from controller_double import Channel
from registrations import broker, cluster, registration

from pybroker.config.broker import BrokerConfig
from pybroker.native.errors import NativeError
from pybroker.native.partition import PartitionState
from pybroker.observability.event_log import event_of
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.replication import isr_manager
from pybroker.replication.alter_partition_manager import AlterPartitionManager
from pybroker.replication.isr_manager import IsrManager, IsrStatistics
from tests.harness.look_counter import LookCounter

NODE_ID = 1
TOPIC_ID = bytes([5]) * 16
KEY = ("t", 0)
LAG_MS = 10_000


class Leadership(NamedTuple):
    leader_epoch: int
    partition_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    joining: Sequence[int] = ()


@dataclass
class Follower:
    replica_id: int
    log_end_offset: int = 100
    caught_up_ms: int = 0
    broker_epoch: int = -1


class Partition:
    """A led partition whose log ends at 100."""

    def __init__(self, *followers: Follower) -> None:
        self._followers = followers or (Follower(2, broker_epoch=200), Follower(3, broker_epoch=300))
        self.told: list[Leadership] = []
        self.changed = asyncio.Event()
        self.failure: NativeError | None = None

    def lead_replicated(
        self,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        joining: Sequence[int] = (),
    ) -> None:
        if self.failure is not None:
            raise self.failure
        self.told.append(Leadership(leader_epoch, partition_epoch, replicas, isr, joining))
        self.changed.set()

    def followers(self) -> Sequence[Follower]:
        return self._followers

    def follower(self, replica_id: int) -> Follower:
        return next(each for each in self._followers if each.replica_id == replica_id)

    @property
    def state(self) -> PartitionState:
        return PartitionState(0, 100, 100, 100, 100, 100, 1000, 0, 1000, 100, 0)

    async def told_of(self, count: int) -> Leadership:
        """The newest leadership once it was told so many times."""
        async with asyncio.timeout(60):
            while len(self.told) < count:
                self.changed.clear()
                await self.changed.wait()
        assert len(self.told) == count
        return self.told[-1]


class Setup:
    def __init__(self, *script: m.AlterPartitionResponse | Exception) -> None:
        config = BrokerConfig.load(None, [f"replica.lag.time.max.ms={LAG_MS}"])
        self.channel = Channel(*script)
        self.isr = IsrManager(NODE_ID, AlterPartitionManager(NODE_ID, self.channel), lambda: config)
        self.isr.on_brokers(cluster().brokers)
        self.partition = Partition()

    def lead(self, **registered: Any) -> None:
        self.isr.lead(KEY, TOPIC_ID, self.partition, registration(**registered))

    def _members(self) -> list[list[m.AlterPartitionRequest.BrokerState]]:
        rows = [row for each in self.channel.requests for topic in each.topics for row in topic.partitions]
        return [row.new_isr_with_epochs for row in rows]

    def proposed(self) -> list[list[int]]:
        return [[member.broker_id for member in members] for members in self._members()]

    def epochs(self) -> list[list[int]]:
        return [[member.broker_epoch for member in members] for members in self._members()]


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]


def refused(code: ErrorCode) -> m.AlterPartitionResponse:
    row = m.AlterPartitionResponse.PartitionData(partition_index=0, error_code=code)
    return m.AlterPartitionResponse(topics=[m.AlterPartitionResponse.TopicData(topic_id=TOPIC_ID, partitions=[row])])


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_manager, "_RETRY_INTERVAL_S", 0.01)


def test_a_follower_that_has_caught_up_joins() -> None:
    async def scenario() -> None:
        made = Setup()
        made.lead(isr=(1, 2))
        assert await made.partition.told_of(1) == Leadership(0, 0, (1, 2, 3), (1, 2))
        made.isr.on_caught_up(KEY, 3)
        assert made.partition.told[1:] == [Leadership(0, 0, (1, 2, 3), (1, 2), (3,))], "before anybody answers"
        assert await made.partition.told_of(3) == Leadership(0, 1, (1, 2, 3), (1, 2, 3))
        assert made.proposed() == [[1, 2, 3]]
        assert made.epochs() == [[77, 200, 300]]
        assert made.isr.statistics == IsrStatistics(expansion_count=1)
        await made.isr.stop()

    run(scenario)


@pytest.mark.parametrize("replica", [1, 2, 4])
def test_members_and_strangers_are_not_proposed(replica: int) -> None:
    async def scenario() -> None:
        made = Setup()
        made.lead(isr=(1, 2))
        made.isr.on_caught_up(KEY, replica)
        made.isr.on_caught_up(("u", 0), 3)
        await asyncio.sleep(0.05)
        assert made.channel.requests == []
        await made.isr.stop()

    run(scenario)


@pytest.mark.parametrize(
    "why",
    [{"fenced": True}, {"in_controlled_shutdown": True}, {"epoch": 299}],
    ids=["fenced", "shutting down", "another registration"],
)
def test_one_that_may_not_be_in_sync_yet_joins_later(why: dict[str, Any]) -> None:
    async def scenario() -> None:
        made = Setup()
        made.lead(isr=(1, 2))
        made.isr.on_brokers(cluster(broker(1), broker(2), broker(3, **why)).brokers)
        made.isr.on_caught_up(KEY, 3)
        made.isr.on_brokers(cluster(broker(1), broker(2)).brokers)
        made.isr.on_caught_up(KEY, 3)
        assert made.partition.told == [Leadership(0, 0, (1, 2, 3), (1, 2))] * 3, "nobody is to wait for it"
        made.isr.on_brokers(cluster().brokers)
        made.isr.on_caught_up(KEY, 3)
        await made.partition.told_of(5)
        assert made.proposed() == [[1, 2, 3]]
        await made.isr.stop()

    run(scenario)


def test_a_follower_that_has_told_no_epoch_may_join() -> None:
    async def scenario() -> None:
        made = Setup()
        made.partition = Partition(Follower(2), Follower(3))
        made.lead(isr=(1, 2))
        made.isr.on_caught_up(KEY, 3)
        assert (await made.partition.told_of(3)).isr == (1, 2, 3)
        await made.isr.stop()

    run(scenario)


def refuse_to_let_join(made: Setup) -> None:
    made.partition.failure = NativeError(ErrorCode.INELIGIBLE_REPLICA)
    made.isr.on_caught_up(KEY, 3)
    made.partition.failure = None


def test_one_that_lacks_something_after_all_is_not_proposed() -> None:
    async def scenario() -> None:
        made = Setup()
        made.lead(isr=(1, 2))
        refuse_to_let_join(made)
        await asyncio.sleep(0.02)
        assert made.channel.requests == []
        made.isr.on_caught_up(KEY, 3)
        await made.partition.told_of(3)
        assert made.proposed() == [[1, 2, 3]]
        await made.isr.stop()

    run(scenario)


def test_one_that_lacks_something_and_fetches_no_more_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_manager, "_WAIT_S", 0.01)

    async def scenario() -> None:
        made = Setup()
        made.lead(isr=(1, 2))
        refuse_to_let_join(made)
        refuse_to_let_join(made)
        assert len(made.partition.told) == 1, "not at once"
        assert await made.partition.told_of(2) == Leadership(0, 0, (1, 2, 3), (1, 2))
        await asyncio.sleep(0.05)
        assert len(made.partition.told) == 2, "once is enough"
        await made.isr.stop()

    run(scenario)


def test_the_end_of_a_wait_leaves_one_that_has_joined_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_manager, "_WAIT_S", 0.01)

    async def scenario() -> None:
        made = Setup()
        made.channel.gate.clear()
        made.lead(isr=(1, 2))
        refuse_to_let_join(made)
        made.isr.on_caught_up(KEY, 3)
        assert await made.partition.told_of(3) == Leadership(0, 0, (1, 2, 3), (1, 2), (3,))
        made.channel.gate.set()
        assert await made.partition.told_of(4) == Leadership(0, 1, (1, 2, 3), (1, 2, 3))
        await made.isr.stop()

    run(scenario)


@pytest.mark.parametrize("how", ["resigned", "stopped"])
def test_who_is_led_no_more_is_not_told_that_a_wait_is_over(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_manager, "_WAIT_S", 0.01)

    async def scenario() -> None:
        made = Setup()
        made.lead(isr=(1, 2))
        refuse_to_let_join(made)
        if how == "resigned":
            made.isr.forget(KEY)
        else:
            await made.isr.stop()
        await asyncio.sleep(0.05)
        assert len(made.partition.told) == 1
        await made.isr.stop()

    run(scenario)


def test_one_that_is_refused_is_taken_back() -> None:
    async def scenario() -> None:
        made = Setup(refused(ErrorCode.INELIGIBLE_REPLICA))
        made.lead(isr=(1, 2))
        made.isr.on_caught_up(KEY, 3)
        assert await made.partition.told_of(3) == Leadership(0, 0, (1, 2, 3), (1, 2))
        assert made.isr.statistics == IsrStatistics(failure_count=1)
        made.isr.on_caught_up(KEY, 3)
        assert (await made.partition.told_of(5)).isr == (1, 2, 3)
        assert made.proposed() == [[1, 2, 3]] * 2
        await made.isr.stop()

    run(scenario)


def test_one_that_catches_up_while_another_joins_has_to_wait() -> None:
    async def scenario() -> None:
        made = Setup()
        made.channel.gate.clear()
        made.lead(isr=(1,))
        made.isr.on_caught_up(KEY, 3)
        made.isr.on_caught_up(KEY, 2)
        assert made.partition.told[1:] == [Leadership(0, 0, (1, 2, 3), (1,), (3,))] * 2
        made.channel.gate.set()
        await made.partition.told_of(4)
        made.isr.on_caught_up(KEY, 2)
        await made.partition.told_of(6)
        assert made.proposed() == [[1, 3], [1, 2, 3]]
        await made.isr.stop()

    run(scenario)


def test_an_error_that_passes_keeps_the_proposal() -> None:
    async def scenario() -> None:
        made = Setup(refused(ErrorCode.UNKNOWN_SERVER_ERROR))
        made.lead(isr=(1, 2))
        made.isr.on_caught_up(KEY, 3)
        assert (await made.partition.told_of(3)).isr == (1, 2, 3)
        assert made.proposed() == [[1, 2, 3]] * 2
        await made.isr.stop()

    run(scenario)


def test_one_that_restarts_before_its_proposal_is_taken_is_judged_anew() -> None:
    async def scenario() -> None:
        made = Setup(refused(ErrorCode.UNKNOWN_SERVER_ERROR), refused(ErrorCode.INELIGIBLE_REPLICA))
        made.lead(isr=(1, 2))
        made.isr.on_caught_up(KEY, 3)
        made.partition.follower(3).broker_epoch = 301
        made.isr.on_brokers(cluster(broker(1), broker(2), broker(3, epoch=301)).brokers)
        assert await made.partition.told_of(3) == Leadership(0, 0, (1, 2, 3), (1, 2)), "the controller refuses it"
        assert made.epochs() == [[77, 200, 300]] * 2, "those under which it was judged"
        made.isr.on_caught_up(KEY, 3)
        assert (await made.partition.told_of(5)).isr == (1, 2, 3)
        assert made.epochs()[2:] == [[77, 200, 301]]
        await made.isr.stop()

    run(scenario)


def test_an_overtaken_proposal_ends_with_the_metadata() -> None:
    async def scenario() -> None:
        made = Setup(refused(ErrorCode.INVALID_UPDATE_VERSION))
        made.lead(isr=(1, 2))
        made.isr.on_caught_up(KEY, 3)
        await asyncio.sleep(0.05)
        assert made.partition.told[-1].joining == (3,)
        assert len(made.channel.requests) == 1
        made.lead(isr=(1,), partition_epoch=1)
        assert made.partition.told[-1] == Leadership(0, 1, (1, 2, 3), (1,))
        await made.isr.stop()

    run(scenario)


@pytest.mark.parametrize(
    ("lagging", "remaining"),
    [
        (Follower(3, log_end_offset=99, caught_up_ms=LAG_MS + 1), [1, 2]),
        (Follower(3, log_end_offset=100, caught_up_ms=LAG_MS + 1), None),
        (Follower(3, log_end_offset=99, caught_up_ms=LAG_MS), None),
    ],
    ids=["lags", "has everything", "was at the end lately"],
)
def test_who_lags_leaves(lagging: Follower, remaining: list[int] | None) -> None:
    async def scenario() -> None:
        made = Setup()
        made.partition = Partition(Follower(2), lagging)
        made.lead()
        await made.isr.shrink_lagging()
        assert len(made.partition.told) == 1, "it is waited for until the controller has agreed"
        if remaining is None:
            await asyncio.sleep(0.02)
            assert made.channel.requests == []
        else:
            assert (await made.partition.told_of(2)).isr == (1, 2)
            assert made.proposed() == [remaining]
            assert made.isr.statistics == IsrStatistics(shrinkage_count=1)
        await made.isr.stop()

    run(scenario)


@pytest.mark.parametrize("late_ms", [0, 5_000])
def test_nobody_lags_for_the_time_in_which_the_process_was_stopped(late_ms: int) -> None:
    async def scenario() -> None:
        made = Setup()
        made.partition = Partition(Follower(2), Follower(3, log_end_offset=99, caught_up_ms=LAG_MS + 2_000))
        made.lead()
        made.isr._look(asyncio.get_running_loop().time() - late_ms / 1000)
        await asyncio.sleep(0.02)
        assert made.proposed() == ([] if late_ms else [[1, 2]])
        await made.isr.stop()

    run(scenario)


def test_thousands_of_partitions_are_looked_at_in_slices() -> None:
    async def scenario() -> None:
        made = Setup()
        made.partition = Partition(Follower(2), Follower(3))
        for index in range(1_000):
            made.isr.lead(("t", index), TOPIC_ID, made.partition, registration())
        looks = LookCounter()
        await made.isr.shrink_lagging()
        looks.check(1_000 // 16)
        await made.isr.stop()

    run(scenario)


def test_the_metadata_may_be_quicker_than_the_answer() -> None:
    async def scenario() -> None:
        made = Setup()
        made.channel.gate.clear()
        made.lead(isr=(1, 2))
        made.isr.on_caught_up(KEY, 3)
        await asyncio.sleep(0)
        made.lead(isr=(1, 2, 3), partition_epoch=1)
        assert made.isr.statistics == IsrStatistics(expansion_count=1)
        made.channel.gate.set()
        await asyncio.sleep(0.02)
        assert made.isr.statistics == IsrStatistics(expansion_count=1)
        assert made.partition.told[2:] == [Leadership(0, 1, (1, 2, 3), (1, 2, 3))]
        await made.isr.stop()

    run(scenario)


def test_lagging_followers_are_looked_for_by_time() -> None:
    async def scenario() -> None:
        made = Setup()
        made.partition = Partition(Follower(2), Follower(3, 0, 10 * LAG_MS))
        made.isr = IsrManager(
            NODE_ID,
            AlterPartitionManager(NODE_ID, made.channel),
            lambda: BrokerConfig.load(None, ["replica.lag.time.max.ms=20", "replica.fetch.wait.max.ms=10"]),
        )
        made.lead()
        made.isr.start()
        assert (await made.partition.told_of(2)).isr == (1, 2)
        await made.isr.stop()

    run(scenario)


def test_each_change_is_told_of_whoever_made_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        made = Setup()
        made.lead()
        made.lead(isr=(1, 2), partition_epoch=1)
        made.lead(isr=(2, 1), partition_epoch=2)
        assert made.isr.statistics == IsrStatistics(), "the controller's own doing"
        made.isr.on_caught_up(KEY, 3)
        await made.partition.told_of(5)
        await made.isr.stop()

    run(scenario)
    told = [event_of(record) for record in caplog.records]
    assert [each for each in told if each is not None] == [("isr", {"partition": "t-0"})] * 2


def test_what_is_led_elsewhere_is_forgotten() -> None:
    async def scenario() -> None:
        made = Setup()
        made.channel.gate.clear()
        made.lead(isr=(1, 2))
        made.isr.on_caught_up(KEY, 3)
        await asyncio.sleep(0)
        made.isr.forget(KEY)
        assert KEY not in made.isr
        made.channel.gate.set()
        await asyncio.sleep(0.02)
        assert len(made.partition.told) == 2
        made.lead(isr=(1, 2), leader_epoch=2, partition_epoch=2)
        assert made.partition.told[-1] == Leadership(2, 2, (1, 2, 3), (1, 2))
        await made.isr.stop()

    run(scenario)


def test_one_that_cannot_be_led_is_not_kept() -> None:
    async def scenario() -> None:
        made = Setup()
        made.partition.failure = NativeError(-errno.ENOMEM)
        with pytest.raises(NativeError):
            made.lead()
        assert KEY not in made.isr
        made.partition.failure = None
        made.lead()
        made.partition.failure = NativeError(-errno.ENOMEM)
        with pytest.raises(NativeError):
            made.lead(leader_epoch=1, partition_epoch=1)
        assert KEY not in made.isr
        await made.isr.stop()

    run(scenario)
