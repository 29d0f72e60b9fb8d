"""A broker's life in a scripted quorum: registration, heartbeats, fencing, forwarded requests, controlled shutdown."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from scripted_controller import TIMEOUT_S, Quorum, ScriptedController, controllers

from pybroker.config.broker import BrokerConfig
from pybroker.controller.producer_ids import ProducerIdManager
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.errors import MetadataError
from pybroker.metadata.features import MAX_METADATA_VERSION
from pybroker.metadata.image import Endpoint, MetadataImage
from pybroker.metadata.records import VersionedRecord
from pybroker.metadata.registration import Registration
from pybroker.protocol import messages as m
from pybroker.protocol.envelope import Origin
from pybroker.protocol.errors import ErrorCode
from pybroker.quorum.channel import QuorumChannel
from pybroker.quorum.controller import QuorumController
from pybroker.quorum.errors import QuorumError, QuorumUnavailable
from pybroker.quorum.fetcher import FetcherSettings
from pybroker.quorum.leader import LeaderFinder
from pybroker.quorum.lifecycle import LifecycleSettings
from pybroker.quorum.stand_in import StandIn

NODE_ID = 5
FIRST, SECOND = b"1" * 16, b"2" * 16
REGISTRATION = Registration(
    b"i" * 16, (Endpoint("PLAINTEXT", "h", 9092, 0),), "rack-1", (FIRST, SECOND), (), previous_broker_epoch=17
)
LEVELS = {"metadata.version": MAX_METADATA_VERSION, "eligible.leader.replicas.version": 1}


class Cluster:
    """One controller that keeps the brokers' registrations in its metadata log."""

    def __init__(self, member: ScriptedController) -> None:
        self.member = member
        self.quorum = Quorum(member)
        self.refusals: list[int] = []
        self.heartbeat_error = ErrorCode.NONE
        self.may_stop = True
        self.broker_epoch = -1
        self.fenced = True
        for name, level in LEVELS.items():
            self.quorum.append(m.FeatureLevelRecord(name=name, feature_level=level))
        member.on[m.BrokerRegistrationRequest] = self._register
        member.on[m.BrokerHeartbeatRequest] = self._heartbeat

    def _register(self, request: m.BrokerRegistrationRequest) -> m.BrokerRegistrationResponse:
        if self.refusals:
            return m.BrokerRegistrationResponse(error_code=self.refusals.pop(0))
        self.fenced = True
        self.heartbeat_error = ErrorCode.NONE
        self.broker_epoch = self.quorum.end_offset
        record = m.RegisterBrokerRecord(
            broker_id=request.broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=self.broker_epoch,
            rack=request.rack,
            fenced=True,
            log_dirs=request.log_dirs,
        )
        self.quorum.append(record, version=3)
        return m.BrokerRegistrationResponse(broker_epoch=self.broker_epoch)

    def _heartbeat(self, request: m.BrokerHeartbeatRequest) -> m.BrokerHeartbeatResponse:
        if self.heartbeat_error is not ErrorCode.NONE:
            return m.BrokerHeartbeatResponse(error_code=self.heartbeat_error)
        assert request.broker_epoch == self.broker_epoch
        is_caught_up = request.current_metadata_offset >= self.broker_epoch
        if self.fenced and is_caught_up and not request.want_fence and not request.want_shut_down:
            self.fenced = False
            self.change(-1)
        return m.BrokerHeartbeatResponse(
            is_caught_up=is_caught_up,
            is_fenced=self.fenced,
            should_shut_down=request.want_shut_down and self.may_stop,
        )

    def change(self, fenced: int) -> None:
        change = m.BrokerRegistrationChangeRecord(broker_id=NODE_ID, broker_epoch=self.broker_epoch, fenced=fenced)
        self.quorum.append(change, version=2)

    @property
    def last_heartbeat(self) -> m.BrokerHeartbeatRequest:
        found: m.BrokerHeartbeatRequest = self.member.seen_of(m.BrokerHeartbeatRequest)[-1]
        return found


class DataPlaneHeartbeat:
    """What stands in for the control loop, with what it was opened with and is fed."""

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        self.arguments = arguments
        self.fed: list[bytes] = []
        self.closed = False

    def feed(self, frame: bytes) -> None:
        assert not self.closed
        self.fed.append(frame)

    def close(self) -> None:
        self.closed = True


class Broker:
    """A `QuorumController` and what it has told."""

    def __init__(self, cluster: Cluster, registration_timeout_s: float = TIMEOUT_S, **overrides: str) -> None:
        settings = [f"{key.replace('_', '.')}={value}" for key, value in overrides.items()]
        config = BrokerConfig.load(
            None,
            [
                f"node.id={NODE_ID}",
                "process.roles=broker",
                "controller.quorum.bootstrap.servers=127.0.0.1:1",
                *settings,
            ],
        )
        self.failures: list[str] = []
        self.heartbeats: list[DataPlaneHeartbeat] = []
        self.controller = QuorumController(
            config,
            LeaderFinder([cluster.member.address]),
            FetcherSettings(NODE_ID, "cluster", FIRST, 30.0, 0.01, 1 << 20, 1 << 20),
            LifecycleSettings(NODE_ID, "cluster", 0.02, 1.0, registration_timeout_s),
            self.failures.append,
            self._open_heartbeat,
        )

    def _open_heartbeat(self, *arguments: Any) -> DataPlaneHeartbeat:
        self.heartbeats.append(DataPlaneHeartbeat(arguments))
        return self.heartbeats[-1]

    async def join(self) -> int:
        await self.controller.start()
        return await self.controller.register_broker(REGISTRATION, {}, lambda: None)


@asynccontextmanager
async def broker_in_cluster(
    registration_timeout_s: float = TIMEOUT_S, **overrides: str
) -> AsyncIterator[tuple[Broker, Cluster]]:
    async with controllers() as (member,):
        cluster = Cluster(member)
        broker = Broker(cluster, registration_timeout_s, **overrides)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                yield broker, cluster
        finally:
            await broker.controller.close()


class Publisher:
    """What it gets is in effect at once, but for what comes while it is `held`."""

    def __init__(self) -> None:
        self.published: list[tuple[MetadataDelta, MetadataImage]] = []
        self.held: int | None = None

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.published.append((delta, image))

    def in_effect(self, end_offset: int) -> int:
        return end_offset if self.held is None else self.held


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


# ---- requests -------------------------------------------------------------------------------------------------------


def enveloped(request: m.EnvelopeRequest) -> tuple[Any, m.RequestHeader]:
    header, position = m.RequestHeader.decode(2, request.request_data)
    kind = m.request_class(header.request_api_key)
    found, end = kind.decode(header.request_api_version, request.request_data, position)
    assert end == len(request.request_data)
    return found, header


def test_a_forwarded_request_carries_who_asks_and_its_effect_is_here_with_the_answer() -> None:
    async def run() -> None:
        async with broker_in_cluster() as (broker, cluster):
            await broker.join()

            def create(envelope: m.EnvelopeRequest) -> m.EnvelopeResponse:
                request, header = enveloped(envelope)
                assert header.client_id == "cli"
                assert envelope.client_host_address == bytes([10, 0, 0, 7])
                assert envelope.request_principal is not None
                principal, _ = m.DefaultPrincipalData.decode(0, envelope.request_principal, 2)
                assert (principal.type, principal.name) == ("User", "alice")
                cluster.quorum.append(m.TopicRecord(name=request.topics[0].name, topic_id=b"t" * 16))
                answer = m.CreateTopicsResponse(throttle_time_ms=3)
                head = m.ResponseHeader(correlation_id=header.correlation_id).encode(1)
                return m.EnvelopeResponse(response_data=head + answer.encode(header.request_api_version))

            cluster.member.on[m.EnvelopeRequest] = create
            request = m.CreateTopicsRequest(
                topics=[m.CreateTopicsRequest.CreatableTopic(name="new")], timeout_ms=60_000
            )
            answer = await broker.controller.perform(request, 7, Origin("User:alice", "10.0.0.7", "cli"))
            assert answer.throttle_time_ms == 3
            assert "new" in broker.controller.image.topics.by_name

    asyncio.run(run())


@pytest.mark.parametrize(
    ("request_", "codes"),
    [
        (
            m.CreateTopicsRequest(topics=[m.CreateTopicsRequest.CreatableTopic(name="t")]),
            lambda answer: [each.error_code for each in answer.topics],
        ),
        (
            m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.DeleteTopicState(topic_id=b"t" * 16)]),
            lambda answer: [each.error_code for each in answer.responses],
        ),
        (
            m.CreatePartitionsRequest(topics=[m.CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=2)]),
            lambda answer: [each.error_code for each in answer.results],
        ),
        (
            m.IncrementalAlterConfigsRequest(
                resources=[m.IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name="t")]
            ),
            lambda answer: [each.error_code for each in answer.responses],
        ),
        (
            m.AlterConfigsRequest(
                resources=[m.AlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name="t")]
            ),
            lambda answer: [each.error_code for each in answer.responses],
        ),
        (
            m.AlterClientQuotasRequest(entries=[m.AlterClientQuotasRequest.EntryData()]),
            lambda answer: [each.error_code for each in answer.entries],
        ),
        (
            m.AlterUserScramCredentialsRequest(
                deletions=[m.AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="u")]
            ),
            lambda answer: [each.error_code for each in answer.results],
        ),
        (m.ElectLeadersRequest(), lambda answer: [answer.error_code]),
        (m.UpdateFeaturesRequest(), lambda answer: [answer.error_code]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, m.Message) else "",
)
def test_a_request_that_no_controller_takes_is_answered_with_the_reason(request_: Any, codes: Any) -> None:
    async def run() -> None:
        async with broker_in_cluster() as (broker, cluster):
            await broker.join()
            refusal = m.EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            cluster.member.on[m.EnvelopeRequest] = lambda _: refusal
            answer = await broker.controller.perform(request_, type(request_).MAX_VERSION, Origin())
            assert codes(answer) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
            answer.encode(type(request_).MAX_VERSION)

    asyncio.run(run())


def test_codes_of_newer_controllers_are_errors_that_clients_know() -> None:
    newer_code = 999

    async def run() -> None:
        async with broker_in_cluster() as (broker, cluster):
            await broker.join()
            cluster.member.on[m.EnvelopeRequest] = lambda _: m.EnvelopeResponse(error_code=newer_code)
            request = m.CreateTopicsRequest(topics=[m.CreateTopicsRequest.CreatableTopic(name="t")])
            answer = await broker.controller.perform(request, 7, Origin())
            assert [each.error_code for each in answer.topics] == [ErrorCode.UNKNOWN_SERVER_ERROR]
            refusal = m.AllocateProducerIdsResponse(error_code=newer_code)
            cluster.member.on[m.AllocateProducerIdsRequest] = lambda _: refusal
            ids = ProducerIdManager(broker.controller.allocate_producer_ids, lambda: -1)
            assert ids.take() is None
            await ids.settled()
            assert ids.take() is None
            await ids.close()

    asyncio.run(run())


def test_settings_of_brokers_are_looked_at_before_they_are_forwarded() -> None:
    kind = m.IncrementalAlterConfigsRequest
    row = m.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse

    def resource(name: str, key: str, value: str, resource_type: int = 4) -> Any:
        config = kind.AlterableConfig(name=key, config_operation=0, value=value)
        return kind.AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=[config])

    def alter(envelope: m.EnvelopeRequest) -> m.EnvelopeResponse:
        request, header = enveloped(envelope)
        rows = [row(resource_type=each.resource_type, resource_name=each.resource_name) for each in request.resources]
        answer = m.IncrementalAlterConfigsResponse(responses=rows)
        head = m.ResponseHeader(correlation_id=header.correlation_id).encode(1)
        return m.EnvelopeResponse(response_data=head + answer.encode(header.request_api_version))

    async def run() -> None:
        async with broker_in_cluster() as (broker, cluster):
            await broker.join()
            cluster.member.on[m.EnvelopeRequest] = alter
            request = kind(
                resources=[
                    resource("5", "log.cleaner.threads", "many"),
                    resource("t", "retention.ms", "what only controllers judge", 2),
                    resource("6", "log.cleaner.threads", "2"),
                    resource("", "log.cleaner.threads", "2"),
                ]
            )
            answer = await broker.controller.perform(request, 1, Origin())
            assert [(each.resource_name, each.error_code) for each in answer.responses] == [
                ("t", ErrorCode.NONE),
                ("", ErrorCode.NONE),
                ("5", ErrorCode.INVALID_REQUEST),
                ("6", ErrorCode.INVALID_REQUEST),
            ]
            (forwarded,) = cluster.member.seen_of(m.EnvelopeRequest)
            assert [each.resource_name for each in enveloped(forwarded)[0].resources] == ["t", ""]
            answer = await broker.controller.perform(kind(resources=request.resources[:1]), 1, Origin())
            assert [each.error_code for each in answer.responses] == [ErrorCode.INVALID_REQUEST]
            assert len(cluster.member.seen_of(m.EnvelopeRequest)) == 1

    asyncio.run(run())


def test_a_request_is_answered_in_its_time_when_no_controller_is_there() -> None:
    async def run() -> None:
        async with broker_in_cluster() as (broker, cluster):
            await broker.join()
            await cluster.member.stop()
            request = m.CreateTopicsRequest(topics=[m.CreateTopicsRequest.CreatableTopic(name="t")], timeout_ms=100)
            answer = await broker.controller.perform(request, 7, Origin())
            assert [each.error_code for each in answer.topics] == [ErrorCode.REQUEST_TIMED_OUT]

    asyncio.run(run())


def test_blocks_of_producer_ids_come_from_the_controllers() -> None:
    async def run() -> None:
        async with broker_in_cluster() as (broker, cluster):
            await broker.join()

            def allocate(request: m.AllocateProducerIdsRequest) -> m.AllocateProducerIdsResponse:
                assert (request.broker_id, request.broker_epoch) == (NODE_ID, cluster.broker_epoch)
                return m.AllocateProducerIdsResponse(producer_id_start=4000, producer_id_len=1000)

            cluster.member.on[m.AllocateProducerIdsRequest] = allocate
            assert (await broker.controller.allocate_producer_ids()).producer_id_start == 4000

    asyncio.run(run())


def test_replicas_that_lie_elsewhere_than_the_metadata_says_are_told() -> None:
    async def run() -> None:
        async with broker_in_cluster() as (broker, cluster):
            topic_id = b"t" * 16
            cluster.quorum.append(m.TopicRecord(name="t", topic_id=topic_id))
            partitions = [
                m.PartitionRecord(
                    topic_id=topic_id,
                    partition_id=index,
                    replicas=[NODE_ID],
                    isr=[NODE_ID],
                    leader=-1,
                    directories=[directory],
                )
                for index, directory in enumerate((FIRST, bytes(16)))
            ]
            cluster.quorum.append_versioned([VersionedRecord(each, 1) for each in partitions])
            cluster.member.on[m.AssignReplicasToDirsRequest] = lambda _: m.AssignReplicasToDirsResponse()
            await broker.controller.start()
            placements = {(topic_id, 0): FIRST, (topic_id, 1): SECOND, (b"u" * 16, 0): SECOND}
            await broker.controller.register_broker(REGISTRATION, placements, lambda: None)
            (request,) = cluster.member.seen_of(m.AssignReplicasToDirsRequest)
            (directory,) = request.directories
            assert directory.id == SECOND
            assert [[each.partition_index for each in topic.partitions] for topic in directory.topics] == [[1]]
            before_unfencing = cluster.member.seen.index(request)
            assert all(each.want_fence for each in cluster.member.seen[:before_unfencing] if _is_heartbeat(each))

    asyncio.run(run())


def test_where_replicas_lie_is_told_again_after_another_registration() -> None:
    async def run() -> None:
        async with broker_in_cluster() as (broker, cluster):
            topic_id = b"t" * 16
            partition = m.PartitionRecord(
                topic_id=topic_id, partition_id=0, replicas=[NODE_ID], isr=[NODE_ID], leader=-1, directories=[FIRST]
            )
            cluster.quorum.append(m.TopicRecord(name="t", topic_id=topic_id))
            cluster.quorum.append(partition, version=1)
            first = await broker.join()

            def assign(request: m.AssignReplicasToDirsRequest) -> m.AssignReplicasToDirsResponse:
                if request.broker_epoch == first:
                    if len(cluster.member.seen_of(m.AssignReplicasToDirsRequest)) == 1:
                        cluster.heartbeat_error = ErrorCode.STALE_BROKER_EPOCH
                    return m.AssignReplicasToDirsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
                return m.AssignReplicasToDirsResponse()

            cluster.member.on[m.AssignReplicasToDirsRequest] = assign
            await broker.controller.assign_directories({(topic_id, 0): SECOND})
            last = cluster.member.seen_of(m.AssignReplicasToDirsRequest)[-1]
            assert last.broker_epoch == cluster.broker_epoch > first
            assert last.directories[0].id == SECOND

    asyncio.run(run())


def _is_heartbeat(request: Any) -> bool:
    return isinstance(request, m.BrokerHeartbeatRequest)


def test_alter_partition_brings_the_answer_of_the_active_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pybroker.quorum.controller._REPLICATION_TIMEOUT_S", 0.2)

    async def run() -> None:
        async with broker_in_cluster() as (broker, cluster):
            await broker.join()
            answer = m.AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
            cluster.member.on[m.AlterPartitionRequest] = lambda _: answer
            assert await broker.controller.alter_partition(m.AlterPartitionRequest()) == answer
            await cluster.member.stop()
            with pytest.raises(QuorumUnavailable):
                await broker.controller.alter_partition(m.AlterPartitionRequest())

    asyncio.run(run())
