"""OffsetForLeaderEpoch (23): where a leader epoch ends in a partition's log (KIP-101, KIP-320)."""

from __future__ import annotations

from pybroker.protocol import messages as m
from pybroker.protocol.errors import KafkaError
from pybroker.server.api import Api, BrokerServices, RequestContext
from pybroker.turns import in_slices

_Asked = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition
_Answer = m.OffsetForLeaderEpochResponse.EpochEndOffset


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.OffsetForLeaderEpochRequest
) -> m.OffsetForLeaderEpochResponse:
    return m.OffsetForLeaderEpochResponse(
        topics=[
            m.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_end(broker, topic.topic, each) async for each in in_slices(topic.partitions)],
            )
            async for topic in in_slices(request.topics)
        ]
    )


def _end(
    broker: BrokerServices, topic: str, asked: m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition
) -> m.OffsetForLeaderEpochResponse.EpochEndOffset:
    try:
        broker.replicas.check_epoch(topic, asked.partition, asked.current_leader_epoch)
        epoch, end_offset = broker.replicas.epoch_end(topic, asked.partition, asked.leader_epoch)
    except KafkaError as failure:
        return _Answer(error_code=failure.code, partition=asked.partition)
    return _Answer(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)


API = Api(m.OffsetForLeaderEpochRequest, 2, 4, handle)
