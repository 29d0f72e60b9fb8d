"""Whom it asks about transactions, and what producers are told of it: with a coordinator that is played."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import (
    BrokerRegistration,
    ClusterImage,
    Endpoint,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
    TopicsImage,
)
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.server.add_partitions_to_txn_manager import (
    TRANSACTION_STATE_TOPIC,
    AddPartitionsToTxnManager,
    Retries,
    Verification,
    error_for_producer,
)
from tests.harness.waiting import until_async

Address = tuple[str, int]
Transaction = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
PARTITIONS = 4
WAIT_SECONDS = 60.0
NOTHING = MetadataImage("cluster")


class Coordinator:
    """Answers each request with `answer`, by default that all is well. `asked` has what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[Transaction]] = []
        self.connections: list[Connection] = []
        self.versions: tuple[int, int] | None = (0, 5)
        self.answer: Callable[[m.AddPartitionsToTxnRequest], Awaitable[Any]] = self.vouch
        self.refuses_connections = False

    async def open(self, address: Address) -> Connection:
        if self.refuses_connections:
            raise ConnectionRefusedError(f"{address}")
        self.connections.append(Connection(self, address))
        return self.connections[-1]

    async def vouch(self, request: m.AddPartitionsToTxnRequest) -> m.AddPartitionsToTxnResponse:
        return answered(request, ErrorCode.NONE)


class Connection:
    """See `CoordinatorConnection`."""

    def __init__(self, coordinator: Coordinator, address: Address) -> None:
        self.coordinator = coordinator
        self.address = address
        self.is_open = True

    def served(self, api_key: int) -> tuple[int, int] | None:
        assert api_key == m.AddPartitionsToTxnRequest.API_KEY
        return self.coordinator.versions

    async def call(self, request: m.Message, timeout_s: float) -> Any:
        assert self.is_open and isinstance(request, m.AddPartitionsToTxnRequest) and timeout_s == WAIT_SECONDS
        self.coordinator.asked.append(request.transactions)
        return await self.coordinator.answer(request)

    def close(self) -> None:
        self.is_open = False


def answered(request: m.AddPartitionsToTxnRequest, code: int) -> m.AddPartitionsToTxnResponse:
    """The same for all that is asked."""
    response = m.AddPartitionsToTxnResponse
    return response(
        results_by_transaction=[
            response.AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=[
                    response.AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            response.AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                            for index in topic.partitions
                        ],
                    )
                    for topic in each.topics
                ],
            )
            for each in request.transactions
        ]
    )


def image_of(leader: int, *, port: int = 9092, fenced: bool = False) -> MetadataImage:
    """`__transaction_state` led by one broker."""
    rows = {
        index: PartitionRegistration((leader,), (bytes(16),), (leader,), (), (), (), (), leader, 0, 0, 0)
        for index in range(PARTITIONS)
    }
    topic = TopicImage(TRANSACTION_STATE_TOPIC, b"t" * 16, rows)
    broker = BrokerRegistration(
        id=leader,
        epoch=1,
        incarnation_id=bytes(16),
        endpoints=(Endpoint("PLAINTEXT", "there", port, 0),),
        features=(),
        rack=None,
        fenced=fenced,
        in_controlled_shutdown=False,
        directories=(),
        cordoned_directories=None,
    )
    return MetadataImage(
        "cluster",
        topics=TopicsImage({topic.name: topic}, {topic.id: topic}),
        cluster=ClusterImage(brokers={leader: broker}),
    )


def verification(handle: int, transactional_id: str = "tx", epoch: int = 0, version: int = 11) -> Verification:
    return Verification(handle, transactional_id, 7, epoch, (("t", 1), ("t", 0), ("u", 0)), version)


class World:
    """A manager, its coordinator, and what producers were told, by handle."""

    def __init__(self, limit_s: float) -> None:
        self.coordinator = Coordinator()
        self.told: dict[int, list[int]] = {}
        self.manager = AddPartitionsToTxnManager(
            "PLAINTEXT", self.coordinator.open, WAIT_SECONDS, self._tell, Retries(pause_s=0.001, limit_s=limit_s)
        )

    def _tell(self, handle: int, errors: Sequence[int]) -> None:
        assert handle not in self.told, "told twice"
        self.told[handle] = list(errors)

    def publish(self, image: MetadataImage) -> None:
        self.manager.publish(MetadataDelta(NOTHING), image)

    async def until(self, holds: Callable[[], bool]) -> None:
        await until_async(holds)


def play(scenario: Callable[[World], Awaitable[None]], limit_s: float = 0.0) -> World:
    async def run() -> World:
        world = World(limit_s)
        world.publish(image_of(2))
        await scenario(world)
        await world.manager.close()
        return world

    return asyncio.run(run())


def test_partitions_of_a_transaction_are_asked_about_by_topic() -> None:
    async def scenario(world: World) -> None:
        world.manager.verify(verification(1))
        await world.until(lambda: 1 in world.told)

    world = play(scenario)
    assert world.told == {1: [0, 0, 0]}
    ((asked,),) = world.coordinator.asked
    assert (asked.transactional_id, asked.producer_id, asked.producer_epoch, asked.verify_only) == ("tx", 7, 0, True)
    assert {topic.name: topic.partitions for topic in asked.topics} == {"t": [1, 0], "u": [0]}
    assert [each.address for each in world.coordinator.connections] == [("there", 9092)]
    assert not world.coordinator.connections[0].is_open


def test_what_comes_meanwhile_is_asked_together() -> None:
    async def scenario(world: World) -> None:
        go_on = asyncio.Event()

        async def slowly(request: m.AddPartitionsToTxnRequest) -> Any:
            await go_on.wait()
            return answered(request, ErrorCode.NONE)

        world.coordinator.answer = slowly
        world.manager.verify(verification(1))
        await world.until(lambda: len(world.coordinator.asked) == 1)
        for number in range(2, 6):
            world.manager.verify(verification(number, f"tx-{number}"))
        go_on.set()
        await world.until(lambda: len(world.told) == 5)

    world = play(scenario)
    assert [len(each) for each in world.coordinator.asked] == [1, 4]
    assert len(world.coordinator.connections) == 1


@pytest.mark.parametrize(
    ("epochs", "first", "second"),
    [
        ((3, 3), ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE),
        ((3, 4), ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.NONE),
        ((4, 3), ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_of_two_with_one_transactional_id_one_is_asked_about(epochs: tuple[int, int], first: int, second: int) -> None:
    async def scenario(world: World) -> None:
        for handle, epoch in enumerate(epochs):
            world.manager.verify(verification(handle, epoch=epoch))
        await world.until(lambda: len(world.told) == 2)

    assert play(scenario).told == {0: [first] * 3, 1: [second] * 3}


@pytest.mark.parametrize(
    ("code", "version", "told"),
    [
        (ErrorCode.NONE, 9, ErrorCode.NONE),
        (ErrorCode.INVALID_TXN_STATE, 9, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, 11, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 11, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.NOT_COORDINATOR, 13, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 13, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NETWORK_EXCEPTION, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
def test_errors_are_those_a_producer_knows_what_to_do_with(code: int, version: int, told: int) -> None:
    async def scenario(world: World) -> None:
        async def refuse(request: m.AddPartitionsToTxnRequest) -> Any:
            return answered(request, code)

        world.coordinator.answer = refuse
        world.manager.verify(verification(1, version=version))
        await world.until(lambda: 1 in world.told)

    world = play(scenario)
    assert world.told == {1: [told] * 3}
    assert error_for_producer(code, version) == told
    # A producer of those versions has not added the partitions itself.
    assert world.coordinator.asked[0][0].verify_only == (version < 12)


@pytest.mark.parametrize(
    ("version", "times", "limit_s", "told", "asked"),
    [
        (12, 3, WAIT_SECONDS, ErrorCode.NONE, 4),
        (12, 3, 0.0, ErrorCode.CONCURRENT_TRANSACTIONS, 1),  # the time for it is over
        (11, 3, WAIT_SECONDS, ErrorCode.NOT_ENOUGH_REPLICAS, 1),  # the producer has added the partitions itself
    ],
)
def test_while_the_transaction_before_ends_it_is_asked_again(
    version: int, times: int, limit_s: float, told: int, asked: int
) -> None:
    async def scenario(world: World) -> None:
        left = times

        async def end_first(request: m.AddPartitionsToTxnRequest) -> Any:
            nonlocal left
            left -= 1
            return answered(request, ErrorCode.CONCURRENT_TRANSACTIONS if left >= 0 else ErrorCode.NONE)

        world.coordinator.answer = end_first
        world.manager.verify(verification(1, version=version))
        await world.until(lambda: 1 in world.told)

    world = play(scenario, limit_s)
    assert world.told == {1: [told] * 3}
    assert len(world.coordinator.asked) == asked
    statistics = world.manager.statistics
    assert statistics.times_us().count == asked and statistics.failure_count == 3 * min(asked, times)


def test_one_that_is_to_be_asked_about_again_is_answered_at_the_end() -> None:
    async def scenario(world: World) -> None:
        async def refuse(request: m.AddPartitionsToTxnRequest) -> Any:
            return answered(request, ErrorCode.CONCURRENT_TRANSACTIONS)

        world.coordinator.answer = refuse
        for handle in range(1, 4):
            world.manager.verify(verification(handle, f"tx-{handle}", version=12))
        await world.until(lambda: len(world.coordinator.asked) > 3)

    assert play(scenario, WAIT_SECONDS).told == {handle: [ErrorCode.NOT_ENOUGH_REPLICAS] * 3 for handle in range(1, 4)}


def test_without_a_coordinator_it_is_tried_again() -> None:
    async def scenario(world: World) -> None:
        world.publish(image_of(2, fenced=True))
        world.manager.verify(verification(1))
        world.publish(NOTHING)
        world.manager.verify(verification(2))
        world.publish(image_of(2))
        world.coordinator.refuses_connections = True
        world.manager.verify(verification(3))
        await world.until(lambda: 3 in world.told)
        world.coordinator.refuses_connections = False
        world.coordinator.versions = None
        world.manager.verify(verification(4))
        await world.until(lambda: 4 in world.told)
        await world.manager.close()
        world.manager.verify(verification(5))

    world = play(scenario)
    assert world.told == {handle: [ErrorCode.NOT_ENOUGH_REPLICAS] * 3 for handle in range(1, 6)}
    assert world.coordinator.asked == []


def test_a_broker_that_is_too_old_to_be_asked_is_not() -> None:
    async def scenario(world: World) -> None:
        world.coordinator.versions = (0, 3)
        world.manager.verify(verification(1))
        await world.until(lambda: 1 in world.told)

    world = play(scenario)
    assert (world.told, world.coordinator.asked) == ({1: [0, 0, 0]}, [])


def test_a_broker_that_may_not_ask_says_nothing_of_that() -> None:
    async def scenario(world: World) -> None:
        async def refuse(_: object) -> Any:
            return m.AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

        world.coordinator.answer = refuse
        world.manager.verify(verification(1))
        await world.until(lambda: 1 in world.told)

    assert play(scenario).told == {1: [ErrorCode.INVALID_TXN_STATE] * 3}


def test_a_connection_that_was_closed_meanwhile_is_made_again() -> None:
    async def scenario(world: World) -> None:
        world.manager.verify(verification(1))
        await world.until(lambda: 1 in world.told)
        failures = 1

        async def fail_once(request: m.AddPartitionsToTxnRequest) -> Any:
            nonlocal failures
            if failures:
                failures -= 1
                raise ConnectionResetError
            return answered(request, ErrorCode.NONE)

        world.coordinator.answer = fail_once
        world.manager.verify(verification(2))
        await world.until(lambda: 2 in world.told)
        failures = 2
        world.manager.verify(verification(3))
        await world.until(lambda: 3 in world.told)

    world = play(scenario)
    assert world.told == {1: [0] * 3, 2: [0] * 3, 3: [ErrorCode.NOT_ENOUGH_REPLICAS] * 3}
    # The third one was tried once more, on a connection that had not been used before.
    assert len(world.coordinator.connections) == 3


def test_the_log_is_told_once_until_it_works_again(caplog: pytest.LogCaptureFixture) -> None:
    async def ask(world: World, count: int) -> None:
        for _ in range(count):
            handle = len(world.told) + 1
            world.manager.verify(verification(handle))
            await world.until(lambda wanted=handle: wanted in world.told)  # type: ignore[misc]

    async def scenario(world: World) -> None:
        async def refuse(_: object) -> Any:
            return m.AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

        world.coordinator.refuses_connections = True
        await ask(world, 5)
        world.coordinator.refuses_connections = False
        world.coordinator.answer = refuse
        await ask(world, 5)
        world.coordinator.answer = world.coordinator.vouch
        await ask(world, 2)
        await world.manager.close()

    async def again(world: World) -> None:
        world.coordinator.versions = (0, 3)
        await ask(world, 3)
        world.coordinator.versions = None
        await ask(world, 3)

    with caplog.at_level("INFO"):
        play(scenario)
        told = [(each.levelname, each.getMessage()) for each in caplog.records]
        caplog.clear()
        play(again)
    assert [level for level, _ in told] == ["WARNING", "ERROR", "INFO"]
    assert all("there:9092" in text for _, text in told)
    assert ["too old" in each.getMessage() for each in caplog.records] == [True, False]


def test_times_and_failures_are_counted_as_apache_kafka_counts_them() -> None:
    async def scenario(world: World) -> None:
        async def refuse(request: m.AddPartitionsToTxnRequest) -> Any:
            return answered(request, ErrorCode.INVALID_TXN_STATE)

        async def refuse_all(_: object) -> Any:
            raise ConnectionResetError

        for number, answer in enumerate([world.coordinator.vouch, refuse, refuse_all], 1):
            world.coordinator.answer = answer
            world.manager.verify(verification(number))
            await world.until(lambda wanted=number: wanted in world.told)  # type: ignore[misc]
        world.publish(NOTHING)
        world.manager.verify(verification(4))

    world = play(scenario)
    assert len(world.told) == 4
    statistics = world.manager.statistics
    assert statistics.failure_count == 6, "whoever has nobody to ask has not failed to be verified"
    times_us = statistics.times_us()
    assert times_us.count == 3 and times_us.below[-1] <= 3 and times_us.sum > 0
    assert list(times_us.below) == sorted(times_us.below)


@pytest.mark.parametrize("ends", ["close", "fenced", "moved", "defect"])
def test_nobody_waits_for_ever(ends: str) -> None:
    async def scenario(world: World) -> None:
        never = asyncio.Event()

        async def say_nothing(_: object) -> None:
            await never.wait()
            raise ZeroDivisionError

        world.coordinator.answer = say_nothing
        world.manager.verify(verification(1))
        await world.until(lambda: len(world.coordinator.asked) == 1)
        world.manager.verify(verification(2))
        if ends == "close":
            await world.manager.close()
        elif ends == "defect":
            never.set()
        else:
            world.publish(image_of(2, fenced=ends == "fenced", port=9093))
        await world.until(lambda: len(world.told) == 2)

    assert play(scenario).told == {handle: [ErrorCode.NOT_ENOUGH_REPLICAS] * 3 for handle in (1, 2)}
