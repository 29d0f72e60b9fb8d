"""A broker's life in a scripted quorum: registration, heartbeats, fencing, forwarded requests, controlled shutdown."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from quorum_cluster import (
    FIRST,
    LEVELS,
    NODE_ID,
    REGISTRATION,
    SECOND,
    DataPlaneHeartbeat,
    Publisher,
    broker_in_cluster,
)
from scripted_controller import TIMEOUT_S, controllers

from pybroker.metadata.errors import MetadataError
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.quorum.channel import QuorumChannel
from pybroker.quorum.errors import QuorumError
from pybroker.quorum.leader import LeaderFinder
from pybroker.quorum.stand_in import StandIn


def test_joining_ends_with_a_broker_that_is_unfenced_and_knows_it() -> None:
    async def run() -> None:
        async with broker_in_cluster() as (broker, cluster):
            await broker.controller.start()
            publisher = Publisher()
            broker.controller.subscribe(publisher)
            steps: list[int] = []
            epoch = await broker.controller.register_broker(
                REGISTRATION, {}, lambda: steps.append(len(publisher.published))
            )
            assert broker.controller.broker_epoch == epoch == cluster.broker_epoch
            assert not broker.controller.image.cluster.brokers[NODE_ID].fenced
            (request,) = cluster.member.seen_of(m.BrokerRegistrationRequest)
            assert request.previous_broker_epoch == 17
            assert request.log_dirs == [FIRST, SECOND]
            assert {each.name: each.max_supported_version for each in request.features}.items() >= LEVELS.items()
            (before,) = steps
            delta, image = publisher.published[before]
            assert image.cluster.brokers[NODE_ID].epoch == epoch
            assert delta.cluster.changed == {NODE_ID}, "all there is, once more"
            assert image.cluster.brokers[NODE_ID].fenced

    asyncio.run(run())


def test_heartbeats_tell_what_is_in_effect_and_not_what_has_arrived() -> None:
    async def run() -> None:
        async with broker_in_cluster() as (broker, cluster):
            await broker.controller.start()
            publisher = Publisher()
            broker.controller.subscribe(publisher)

            def hold() -> None:
                publisher.held = 0

            joining = asyncio.create_task(broker.controller.register_broker(REGISTRATION, {}, hold))
            await cluster.member.until(
                lambda: sum(not each.want_fence for each in cluster.member.seen_of(m.BrokerHeartbeatRequest)) >= 3
            )
            assert cluster.last_heartbeat.current_metadata_offset == -1
            assert cluster.fenced
            publisher.held = None
            await joining
            end = cluster.quorum.append(m.NoOpRecord()) + 1
            await cluster.member.until(lambda: cluster.last_heartbeat.current_metadata_offset == end - 1)
            publisher.held = publisher.published[-1][1].provenance.end_offset
            assert publisher.held < end, "nothing had to be done since"
            newer = cluster.quorum.append(m.TopicRecord(name="t", topic_id=b"t" * 16)) + 1
            await cluster.member.until_fetched_from(newer)
            count = len(cluster.member.seen_of(m.BrokerHeartbeatRequest))
            await cluster.member.until(lambda: len(cluster.member.seen_of(m.BrokerHeartbeatRequest)) >= count + 2)
            assert cluster.last_heartbeat.current_metadata_offset == end - 1, "it does not go back, either"
            publisher.held = None
            await cluster.member.until(lambda: cluster.last_heartbeat.current_metadata_offset == newer - 1)

    asyncio.run(run())


def test_a_registration_waits_for_an_earlier_one_to_end() -> None:
    async def run() -> None:
        async with broker_in_cluster() as (broker, cluster):
            cluster.refusals = [ErrorCode.DUPLICATE_BROKER_REGISTRATION]
            await broker.join()
            assert len(cluster.member.seen_of(m.BrokerRegistrationRequest)) == 2

    asyncio.run(run())


def test_a_registration_that_is_refused_says_why() -> None:
    async def run() -> None:
        async with broker_in_cluster() as (broker, cluster):
            cluster.refusals = [ErrorCode.INVALID_REGISTRATION]
            with pytest.raises(QuorumError, match=r"refuse broker 5: they have finalised a feature"):
                await broker.join()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.BROKER_ID_NOT_REGISTERED, r"migration from ZooKeeper has not started or not ended"),
        (ErrorCode.DUPLICATE_BROKER_REGISTRATION, r"hold another broker of this node\.id for running"),
        (ErrorCode.INVALID_REQUEST, r"answered with INVALID_REQUEST"),
        (999, r"answered with error code 999"),
    ],
)
def test_a_registration_that_goes_on_failing_says_why_in_words(code: int, words: str) -> None:
    async def run() -> None:
        async with broker_in_cluster(registration_timeout_s=0.01) as (broker, cluster):
            cluster.refusals = [code] * 1000
            with pytest.raises(QuorumError, match=rf"broker 5 could not register: .*{words}"):
                await broker.join()

    asyncio.run(run())


def test_a_feature_that_is_not_served_is_named_with_the_command_that_takes_it_back() -> None:
    async def run() -> None:
        async with broker_in_cluster() as (broker, cluster):
            cluster.quorum.append(m.FeatureLevelRecord(name="group.version", feature_level=1))
            with pytest.raises(QuorumError, match=r"group.version=1.*downgrade --feature group.version=0") as caught:
                await broker.join()
            assert isinstance(caught.value, MetadataError), "which is how the daemon tells it"

    asyncio.run(run())


def test_a_feature_that_is_finalised_later_ends_the_broker() -> None:
    async def run() -> None:
        async with broker_in_cluster() as (broker, cluster):
            await broker.join()
            broker.controller.subscribe(Publisher())
            end = cluster.quorum.append(m.FeatureLevelRecord(name="share.version", feature_level=1)) + 1
            await cluster.member.until_fetched_from(end)
            (failure,) = broker.failures
            assert "share.version=1, which this broker does not serve" in failure

    asyncio.run(run())


def test_a_broker_that_is_not_known_any_more_registers_again_under_its_last_epoch() -> None:
    async def run() -> None:
        async with broker_in_cluster() as (broker, cluster):
            first = await broker.join()
            cluster.heartbeat_error = ErrorCode.STALE_BROKER_EPOCH
            await cluster.member.until(lambda: cluster.broker_epoch != first and not cluster.fenced)
            again = cluster.member.seen_of(m.BrokerRegistrationRequest)[-1]
            assert again.previous_broker_epoch == first
            assert again.incarnation_id == REGISTRATION.incarnation_id
            assert broker.controller.broker_epoch == cluster.broker_epoch > first
            assert not broker.failures

    asyncio.run(run())


def test_a_broker_that_registers_again_can_stop_before_the_metadata_say_so() -> None:
    async def run() -> None:
        async with broker_in_cluster() as (broker, cluster):
            first = await broker.join()

            def accept(request: m.BrokerRegistrationRequest) -> m.BrokerRegistrationResponse:
                cluster.broker_epoch, cluster.heartbeat_error = 1000, ErrorCode.NONE
                return m.BrokerRegistrationResponse(broker_epoch=1000)

            cluster.member.on[m.BrokerRegistrationRequest] = accept
            cluster.heartbeat_error = ErrorCode.STALE_BROKER_EPOCH
            await cluster.member.until(lambda: cluster.broker_epoch == 1000)
            await broker.controller.begin_shutdown()
            assert broker.controller.broker_epoch == cluster.last_heartbeat.broker_epoch == 1000
            assert cluster.last_heartbeat.want_shut_down
            assert broker.controller.image.cluster.brokers[NODE_ID].epoch == first

    asyncio.run(run())


def test_a_broker_that_was_fenced_for_a_while_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def run() -> None:
        async with broker_in_cluster() as (broker, cluster):
            await broker.join()
            # As while it stands still: its next heartbeat unfences it at once.
            cluster.fenced = True
            cluster.change(1)
            await cluster.member.until_fetched_from(cluster.quorum.end_offset)
            await cluster.member.until(lambda: not cluster.fenced)
            await cluster.member.until_fetched_from(cluster.quorum.end_offset)

    asyncio.run(run())
    told = [each.message for each in caplog.records if "fenced this broker" in each.message]
    assert told == [
        "the controllers have unfenced this broker",
        "the controllers have fenced this broker",
        "the controllers have unfenced this broker",
    ]


def test_the_data_plane_is_handed_what_to_say_for_a_control_loop_that_stands_still() -> None:
    async def run() -> None:
        async with broker_in_cluster() as (broker, cluster):
            epoch = await broker.join()
            (stand_in,) = broker.heartbeats
            assert stand_in.arguments == (*cluster.member.address, 20, 666), "interval, and two thirds of a session"
            (length,) = struct.unpack_from(">i", stand_in.fed[-1])
            assert length == len(stand_in.fed[-1]) - 4
            header, position = m.RequestHeader.decode(2, stand_in.fed[-1], 4)
            request, end = m.BrokerHeartbeatRequest.decode(header.request_api_version, stand_in.fed[-1], position)
            assert end == len(stand_in.fed[-1])
            assert (request.broker_id, request.broker_epoch, request.want_fence) == (NODE_ID, epoch, False)
            await broker.controller.begin_shutdown()
            await broker.controller.fence_broker()
            assert stand_in.closed

    asyncio.run(run())


def test_the_stand_in_follows_the_active_controller() -> None:
    async def run() -> None:
        async with controllers(2) as (first, second):
            finder = LeaderFinder([first.address])
            channel = QuorumChannel(finder, "test", TIMEOUT_S)
            opened: list[DataPlaneHeartbeat] = []

            def open_heartbeat(*arguments: Any) -> DataPlaneHeartbeat:
                opened.append(DataPlaneHeartbeat(arguments))
                return opened[-1]

            stand_in = StandIn(channel, open_heartbeat, 2.0, 6.0)
            request = m.BrokerHeartbeatRequest(broker_id=1)
            stand_in.take(request)
            assert not opened, "there is no connection to say it on"
            for epoch, controller in enumerate((first, second), start=1):
                controller.on[m.BrokerHeartbeatRequest] = lambda _: m.BrokerHeartbeatResponse()
                finder.heard(epoch, epoch, controller.address)
                await channel.call(request, TIMEOUT_S)
                stand_in.take(request)
                stand_in.take(request)
            assert [each.arguments[:2] for each in opened] == [first.address, second.address]
            assert [each.closed for each in opened] == [True, False]
            assert [len(each.fed) for each in opened] == [2, 2]
            stand_in.close()
            assert opened[1].closed
            channel.close()

    asyncio.run(run())


def test_log_dirs_out_of_service_are_told_at_once() -> None:
    async def run() -> None:
        async with broker_in_cluster() as (broker, cluster):
            await broker.join()
            await broker.controller.change_directories([FIRST], [FIRST])
            assert cluster.last_heartbeat.offline_log_dirs == [SECOND]
            assert cluster.last_heartbeat.cordoned_log_dirs == [FIRST]

    asyncio.run(run())


def test_controlled_shutdown_goes_on_until_the_controllers_let_the_broker_go() -> None:
    async def run() -> None:
        async with broker_in_cluster() as (broker, cluster):
            await broker.join()
            cluster.may_stop = False
            stopping = asyncio.create_task(broker.controller.begin_shutdown())
            asked = cluster.member.seen_of(m.BrokerHeartbeatRequest)
            await cluster.member.until(
                lambda: sum(each.want_shut_down for each in cluster.member.seen_of(m.BrokerHeartbeatRequest)) >= 3
            )
            assert not stopping.done(), asked
            cluster.may_stop = True
            await stopping

    asyncio.run(run())


def test_controlled_shutdown_does_not_wait_for_controllers_that_are_gone() -> None:
    async def run() -> None:
        async with broker_in_cluster() as (broker, cluster):
            await broker.join()
            await cluster.member.stop()
            await broker.controller.begin_shutdown()

    asyncio.run(run())
