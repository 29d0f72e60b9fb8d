"""DescribeQuorum (55): who votes on the metadata log, and how far they are (KIP-595, KIP-853).

The embedded controller is the one voter, so what it has published is what everybody has.
"""

from __future__ import annotations

from pybroker.controller.topic_names import CLUSTER_METADATA_TOPIC
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.uuids import ZERO_UUID
from pybroker.server.api import Api, BrokerServices, RequestContext
from pybroker.turns import in_slices

#: The directory of the voter is told from this version on; the times since one before.
_DIRECTORY_VERSION = 2

_Topic = m.DescribeQuorumResponse.TopicData
_Partition = m.DescribeQuorumResponse.PartitionData
_Replica = m.DescribeQuorumResponse.ReplicaState
_Node = m.DescribeQuorumResponse.Node


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.DescribeQuorumRequest
) -> m.DescribeQuorumResponse:
    if not _asks_for_the_log(request):
        return await _unknown(request)
    image, now_ms = broker.metadata.image, broker.clock.wall_ms()
    end_offset = image.provenance.end_offset
    # Before kraft.version 1 the log does not name its voters.
    directories = {voter.id: voter.directory_id for voter in image.quorum.voters} or {broker.config.node_id: ZERO_UUID}
    voters = [
        _Replica(
            replica_id=voter_id,
            replica_directory_id=directory if context.api_version >= _DIRECTORY_VERSION else ZERO_UUID,
            log_end_offset=end_offset,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
        for voter_id, directory in directories.items()
    ]
    partition = _Partition(
        partition_index=0,
        leader_id=image.quorum.leader_id,
        leader_epoch=image.provenance.epoch,
        high_watermark=end_offset,
        current_voters=voters,
    )
    nodes = [
        _Node(
            node_id=voter.id,
            listeners=[
                m.DescribeQuorumResponse.Listener(name=name, host=host, port=port)
                for name, host, port in voter.endpoints
            ],
        )
        for voter in image.quorum.voters
    ]
    return m.DescribeQuorumResponse(
        topics=[_Topic(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])],
        nodes=nodes if context.api_version >= _DIRECTORY_VERSION else [],
    )


def _asks_for_the_log(request: m.DescribeQuorumRequest) -> bool:
    """As in Kafka nothing else may be asked for, nor that twice."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return False
    return (request.topics[0].topic_name, request.topics[0].partitions[0].partition_index) == (
        CLUSTER_METADATA_TOPIC,
        0,
    )


async def _unknown(request: m.DescribeQuorumRequest) -> m.DescribeQuorumResponse:
    return m.DescribeQuorumResponse(
        topics=[
            _Topic(
                topic_name=topic.topic_name,
                partitions=[
                    _Partition(partition_index=each.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    async for each in in_slices(topic.partitions)
                ],
            )
            async for topic in in_slices(request.topics)
        ]
    )


API = Api(m.DescribeQuorumRequest, 0, 2, handle)
