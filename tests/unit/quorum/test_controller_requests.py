"""What a broker among others asks its controllers for: requests of clients, producer ids, where replicas lie."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from quorum_cluster import (
    FIRST,
    NODE_ID,
    REGISTRATION,
    SECOND,
    broker_in_cluster,
)

from pybroker.controller.producer_ids import ProducerIdManager
from pybroker.metadata.records import VersionedRecord
from pybroker.protocol import messages as m
from pybroker.protocol.envelope import Origin
from pybroker.protocol.errors import ErrorCode, VersionNotTaken
from pybroker.quorum.errors import QuorumUnavailable


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
        (
            m.ElectLeadersRequest(topic_partitions=[m.ElectLeadersRequest.TopicPartitions(topic="t", partitions=[3])]),
            lambda answer: [each.error_code for each in answer.replica_election_results[0].partition_result],
        ),
        (
            m.AlterPartitionReassignmentsRequest(
                topics=[
                    m.AlterPartitionReassignmentsRequest.ReassignableTopic(
                        name="t",
                        partitions=[m.AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=3)],
                    )
                ]
            ),
            lambda answer: [each.error_code for each in answer.responses[0].partitions],
        ),
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


def test_a_version_that_the_controller_does_not_know_ends_the_connection() -> None:
    async def run() -> None:
        async with broker_in_cluster() as (broker, cluster):
            await broker.join()
            refusal = m.EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
            cluster.member.on[m.EnvelopeRequest] = lambda _: refusal
            with pytest.raises(VersionNotTaken, match="does not take AlterPartitionReassignments version 1"):
                await broker.controller.perform(m.AlterPartitionReassignmentsRequest(), 1, Origin())

    asyncio.run(run())


def test_the_versions_of_the_active_controller_are_known_once_it_is_joined() -> None:
    async def run() -> None:
        async with broker_in_cluster() as (broker, _cluster):
            assert broker.controller.forwarding_ranges is None
            await broker.join()
            ranges = broker.controller.forwarding_ranges
            assert ranges is not None
            kind = m.EnvelopeRequest
            assert (kind.API_KEY, kind.MIN_VERSION, kind.MAX_VERSION) in ranges

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
