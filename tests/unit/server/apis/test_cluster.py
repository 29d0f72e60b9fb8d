"""DescribeCluster, DescribeQuorum and DescribeLogDirs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from broker_services import LISTENER, NODE_ID, Services

from pybroker.native.partition import PartitionState
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode


def _state(size_bytes: int) -> PartitionState:
    return PartitionState(**{**dict.fromkeys(PartitionState._fields, 0), "size_bytes": size_bytes})


def _fenced_broker() -> tuple[Any, int]:
    endpoint = m.RegisterBrokerRecord.BrokerEndpoint(name=LISTENER, host="h", port=1, security_protocol=0)
    record = m.RegisterBrokerRecord(broker_id=9, broker_epoch=1, end_points=[endpoint], rack=None, fenced=True)
    return record, 4


def test_cluster() -> None:
    async def run() -> None:
        services = await Services(_fenced_broker()).start()
        answer = await services.call("describe_cluster", m.DescribeClusterRequest(), 2)
        (broker,) = answer.brokers
        assert (answer.cluster_id, answer.controller_id) == ("cluster-id", NODE_ID)
        assert (broker.broker_id, broker.host, broker.port, broker.rack) == (NODE_ID, "127.0.0.1", 9092, "rack-1")
        assert answer.cluster_authorized_operations == -(2**31)
        everything = m.DescribeClusterRequest(include_fenced_brokers=True, include_cluster_authorized_operations=True)
        answer = await services.call("describe_cluster", everything, 2)
        assert {each.broker_id: each.is_fenced for each in answer.brokers} == {NODE_ID: False, 9: True}
        assert answer.cluster_authorized_operations > 0
        elsewhere = await services.call("describe_cluster", everything, 2, listener="OTHER")
        assert elsewhere.brokers == [], "brokers are told by the listener the client came through"

    asyncio.run(run())


@pytest.mark.parametrize(
    ("endpoint_type", "error"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_controllers_are_described_elsewhere(endpoint_type: int, error: ErrorCode) -> None:
    async def run() -> None:
        services = await Services().start()
        request = m.DescribeClusterRequest(endpoint_type=endpoint_type)
        assert (await services.call("describe_cluster", request, 1)).error_code == error

    asyncio.run(run())


@pytest.mark.parametrize("version", [0, 1, 2])
def test_quorum_without_recorded_voters(version: int) -> None:
    async def run() -> None:
        services = await Services().start()
        asked = m.DescribeQuorumRequest.PartitionData(partition_index=0)
        topics = [m.DescribeQuorumRequest.TopicData(topic_name="__cluster_metadata", partitions=[asked])]
        answer = await services.call("describe_quorum", m.DescribeQuorumRequest(topics=topics), version)
        partition = answer.topics[0].partitions[0]
        image = services.metadata.image
        assert (partition.leader_epoch, partition.high_watermark) == (3, image.provenance.end_offset)
        (voter,) = partition.current_voters
        assert (voter.replica_id, voter.log_end_offset) == (NODE_ID, image.provenance.end_offset)
        assert voter.last_caught_up_timestamp == (services.clock.wall_ms() if version >= 1 else -1)

    asyncio.run(run())


def test_several_log_dirs(tmp_path: Path) -> None:
    first, second, lost = tmp_path / "first", tmp_path / "second", tmp_path / "lost"
    first.mkdir()
    second.mkdir()

    async def run() -> None:
        services = await Services().start()
        services.replicas.dirs = {
            first: {("a", 0): _state(10), ("a", 1): _state(20)},
            second: {("b", 0): _state(30)},
            lost: {},
        }

        async def described(*topics: tuple[str, list[int]]) -> list[Any]:
            wanted = [
                m.DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=all) for name, all in topics
            ]
            answer = await services.call("describe_log_dirs", m.DescribeLogDirsRequest(topics=wanted or None), 4)
            return list(answer.results)

        failed = tmp_path / "failed"
        services.replicas.offline_dirs = [failed]
        results = {each.log_dir: each for each in await described()}
        assert set(results) == {str(first), str(second), str(lost), str(failed)}
        assert results[str(failed)].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        sizes = {row.partition_index: row.partition_size for row in results[str(first)].topics[0].partitions}
        assert sizes == {0: 10, 1: 20}
        assert 0 < results[str(first)].usable_bytes <= results[str(first)].total_bytes
        assert (results[str(lost)].error_code, results[str(lost)].total_bytes) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        some = await described(("a", [1, 5]), ("c", [0]))
        found = [
            (topic.name, row.partition_index) for each in some for topic in each.topics for row in topic.partitions
        ]
        assert found == [("a", 1)]

    asyncio.run(run())
