"""Proposals on their way to the controller, and back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from controller_double import Channel, Response

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.replication import alter_partition_manager
from pybroker.replication.alter_partition_manager import AlterPartitionManager
from pybroker.replication.isr_state import Proposal

NODE_ID = 1
TOPIC, OTHER = bytes([1]) * 16, bytes([2]) * 16


class Answers:
    """What came back, by proposal."""

    def __init__(self) -> None:
        self.got: list[tuple[Proposal, m.AlterPartitionResponse.PartitionData]] = []
        self.changed = asyncio.Event()

    def __call__(self, proposal: Proposal, answer: m.AlterPartitionResponse.PartitionData) -> None:
        self.got.append((proposal, answer))
        self.changed.set()

    async def count(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.got) < count:
                self.changed.clear()
                await self.changed.wait()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_what_is_proposed_together_goes_together() -> None:
    async def scenario() -> None:
        channel, answers = Channel(), Answers()
        manager = AlterPartitionManager(NODE_ID, channel)
        first, second, third = Proposal((1, 2), 3, 4, {2: 200}), Proposal((1,), 5, 6), Proposal((1, 3), 7, 8, {2: 200})
        manager.submit((TOPIC, 0), first, answers)
        manager.submit((TOPIC, 1), second, answers)
        manager.submit((OTHER, 0), third, answers)
        await answers.count(3)
        await manager.close()
        (request,) = channel.requests
        assert (request.broker_id, request.broker_epoch) == (NODE_ID, 77)
        rows = {(topic.topic_id, row.partition_index): row for topic in request.topics for row in topic.partitions}
        members = {
            key: [(each.broker_id, each.broker_epoch) for each in row.new_isr_with_epochs] for key, row in rows.items()
        }
        assert members == {
            (TOPIC, 0): [(1, 77), (2, 200)],
            (TOPIC, 1): [(1, 77)],
            (OTHER, 0): [(1, 77), (3, -1)],
        }
        row = rows[TOPIC, 0]
        assert (row.leader_epoch, row.partition_epoch, row.leader_recovery_state) == (3, 4, 0)
        assert [proposal for proposal, _ in answers.got] == [first, second, third]

    run(scenario)


def test_one_request_at_a_time() -> None:
    async def scenario() -> None:
        channel, answers = Channel(), Answers()
        manager = AlterPartitionManager(NODE_ID, channel)
        channel.gate.clear()
        manager.submit((TOPIC, 0), Proposal((1, 2), 0, 0), answers)
        await turns()
        manager.submit((TOPIC, 1), Proposal((1, 2), 0, 0), answers)
        await turns()
        assert len(channel.requests) == 1
        channel.gate.set()
        await answers.count(2)
        assert [len(each.topics[0].partitions) for each in channel.requests] == [1, 1]
        await manager.close()

    run(scenario)


@pytest.mark.parametrize(
    "trouble",
    [
        KafkaError(ErrorCode.NOT_CONTROLLER),
        ConnectionResetError("gone"),
        TimeoutError(),
        RuntimeError("a defect"),
        Response(error_code=ErrorCode.NOT_CONTROLLER),
        Response(error_code=ErrorCode.STALE_BROKER_EPOCH),
        Response(),
    ],
    ids=["error", "connection", "timeout", "defect", "not controller", "stale epoch", "partition missing"],
)
def test_a_request_without_an_answer_is_sent_again(
    trouble: m.AlterPartitionResponse | Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alter_partition_manager, "_RETRY_BACKOFF_S", 0.001)

    async def scenario() -> None:
        channel, answers = Channel(trouble, trouble), Answers()
        manager = AlterPartitionManager(NODE_ID, channel)
        manager.submit((TOPIC, 0), Proposal((1, 2), 0, 0), answers)
        await answers.count(1)
        assert len(channel.requests) == 3
        assert answers.got[0][1].partition_epoch == 1
        await manager.close()

    run(scenario)


def test_what_is_withdrawn_is_not_sent_again_and_not_answered() -> None:
    async def scenario() -> None:
        channel, answers = Channel(), Answers()
        manager = AlterPartitionManager(NODE_ID, channel)
        channel.gate.clear()
        manager.submit((TOPIC, 0), Proposal((1, 2), 0, 0), answers)
        await turns()
        manager.withdraw((TOPIC, 0))
        manager.withdraw((TOPIC, 5))
        channel.gate.set()
        manager.submit((TOPIC, 1), Proposal((1, 2), 0, 0), answers)
        await answers.count(1)
        assert answers.got[0][1].partition_index == 1
        assert [len(each.topics[0].partitions) for each in channel.requests] == [1, 1]
        await manager.close()

    run(scenario)


def test_a_newer_proposal_takes_the_place_of_an_older_one() -> None:
    async def scenario() -> None:
        channel, answers = Channel(), Answers()
        manager = AlterPartitionManager(NODE_ID, channel)
        channel.gate.clear()
        older, newer = Proposal((1, 2), 0, 0), Proposal((1, 3), 0, 1)
        manager.submit((TOPIC, 0), older, answers)
        await turns()
        manager.submit((TOPIC, 0), newer, answers)
        channel.gate.set()
        await answers.count(1)
        assert [proposal for proposal, _ in answers.got] == [newer], "nobody waits for the other's answer"
        await manager.close()

    run(scenario)


def test_at_the_end_nothing_is_sent() -> None:
    async def scenario() -> None:
        channel, answers = Channel(), Answers()
        manager = AlterPartitionManager(NODE_ID, channel)
        channel.gate.clear()
        manager.submit((TOPIC, 0), Proposal((1, 2), 0, 0), answers)
        await turns()
        await manager.close()
        manager.submit((TOPIC, 1), Proposal((1, 2), 0, 0), answers)
        await turns()
        assert (len(channel.requests), answers.got) == (1, [])

    run(scenario)
