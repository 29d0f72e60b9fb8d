"""A request that finds the active controller."""

from __future__ import annotations

import asyncio

import pytest
from scripted_controller import TIMEOUT_S, controllers

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.quorum.channel import QuorumChannel
from pybroker.quorum.errors import QuorumUnavailable
from pybroker.quorum.leader import LeaderFinder

REQUEST = m.AllocateProducerIdsRequest(broker_id=1, broker_epoch=2)


def block(start: int) -> m.AllocateProducerIdsResponse:
    return m.AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=1000)


def test_it_goes_to_the_leader_once_there_is_one_and_to_the_next_when_it_does_not_lead() -> None:
    async def run() -> None:
        async with controllers(2) as (first, second):
            finder = LeaderFinder([first.address])
            channel = QuorumChannel(finder, "test", 30.0)
            calling = asyncio.create_task(channel.call(REQUEST, TIMEOUT_S))
            refusal = m.AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER)
            first.on[m.AllocateProducerIdsRequest] = lambda _: refusal
            second.on[m.AllocateProducerIdsRequest] = lambda _: block(7)
            await asyncio.sleep(0)
            finder.heard(1, 1, first.address)
            await first.until(lambda: len(first.seen) >= 2)
            finder.heard(2, 2, second.address)
            assert (await calling).producer_id_start == 7
            assert len(second.seen) == 1
            channel.close()

    asyncio.run(run())


def test_one_that_says_nothing_is_left_when_another_leads() -> None:
    async def run() -> None:
        async with controllers(2) as (first, second):
            silence = asyncio.Event()

            async def never(_: object) -> None:
                await silence.wait()

            first.on[m.AllocateProducerIdsRequest] = never
            second.on[m.AllocateProducerIdsRequest] = lambda _: block(7)
            finder = LeaderFinder([first.address])
            finder.heard(1, 1, first.address)
            channel = QuorumChannel(finder, "test", TIMEOUT_S)
            calling = asyncio.create_task(channel.call(REQUEST, TIMEOUT_S))
            await first.until(lambda: len(first.seen) > 0)
            finder.heard(2, 2, second.address)
            assert (await calling).producer_id_start == 7
            channel.close()
            silence.set()

    asyncio.run(run())


def test_the_versions_are_those_of_the_controller_that_leads_now() -> None:
    """Controllers are upgraded one at a time, and lead in turn."""

    async def run() -> None:
        async with controllers(2) as (older, newer):
            kind = m.AllocateProducerIdsRequest
            older.served = [(m.EnvelopeRequest.API_KEY, 0, 0), (kind.API_KEY, 0, 0)]
            newer.served = [(m.EnvelopeRequest.API_KEY, 0, 3), (kind.API_KEY, 0, 0)]
            finder = LeaderFinder([older.address])
            channel = QuorumChannel(finder, "test", 30.0)
            found = []
            for epoch, each in enumerate((older, newer, older), 1):
                each.on[kind] = lambda _: block(7)
                finder.heard(epoch, epoch, each.address)
                await channel.call(REQUEST, TIMEOUT_S)
                found.append(channel.ranges)
            channel.close()
            assert found == [tuple(sorted(each.served)) for each in (older, newer, older)]

    asyncio.run(run())


def test_a_connection_that_breaks_is_made_again() -> None:
    async def run() -> None:
        async with controllers() as (controller,):
            answers = [None, block(1), None, block(2)]
            controller.on[m.AllocateProducerIdsRequest] = lambda _: answers.pop(0)
            finder = LeaderFinder([controller.address])
            finder.heard(1, 1, controller.address)
            channel = QuorumChannel(finder, "test", 30.0)
            assert (await channel.call(REQUEST, TIMEOUT_S)).producer_id_start == 1
            assert (await channel.call(REQUEST, TIMEOUT_S)).producer_id_start == 2
            channel.close()

    asyncio.run(run())


def test_it_ends_when_its_time_is_over() -> None:
    async def run() -> None:
        async with controllers() as (controller,):
            finder = LeaderFinder([controller.address])
            channel = QuorumChannel(finder, "test", 30.0)
            with pytest.raises(QuorumUnavailable, match="no controller has answered AllocateProducerIds"):
                await channel.call(REQUEST, 0.05)
            finder.heard(1, 1, controller.address)
            with pytest.raises(QuorumUnavailable, match="closed the connection"):
                await channel.call(REQUEST, 0.5)
            controller.on[m.AllocateProducerIdsRequest] = lambda _: block(3)
            assert (await channel.call(REQUEST, TIMEOUT_S)).producer_id_start == 3, "the channel is of use still"
            channel.close()

    asyncio.run(run())
