"""DeleteRecords (21): move the start of partitions' logs up (KIP-107)."""

from __future__ import annotations

from pybroker.config.topic import INTERNAL_TOPICS
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.server.api import Api, BrokerServices, RequestContext
from pybroker.server.in_turns import in_turns
from pybroker.turns import SteadyDict, drop, in_slices

_UNKNOWN = -1

_Row = m.DeleteRecordsResponse.DeleteRecordsPartitionResult


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.DeleteRecordsRequest
) -> m.DeleteRecordsResponse:
    # As in Kafka, of a partition that the request repeats the last offset counts, and there is one row of it.
    wanted: SteadyDict[tuple[str, int], int] = SteadyDict()
    async for topic in in_slices(request.topics):
        async for each in in_slices(topic.partitions):
            wanted[topic.name, each.partition_index] = each.offset
    rows = await in_turns(_delete(broker, *key, offset, request.timeout_ms) for key, offset in wanted.items())
    by_topic: SteadyDict[str, list[_Row]] = SteadyDict()
    async for (name, _), row in in_slices(zip(wanted, rows, strict=True)):
        if name not in by_topic:
            by_topic[name] = []
        by_topic[name].append(row)
    topics = [
        m.DeleteRecordsResponse.DeleteRecordsTopicResult(name=name, partitions=partitions)
        async for name, partitions in in_slices(by_topic.items())
    ]
    await drop(wanted)
    await drop(by_topic)
    return m.DeleteRecordsResponse(topics=topics)


async def _delete(
    broker: BrokerServices, topic: str, partition: int, before_offset: int, timeout_ms: int
) -> m.DeleteRecordsResponse.DeleteRecordsPartitionResult:
    try:
        if topic in INTERNAL_TOPICS:
            known = broker.metadata.image.topics.by_name.get(topic)
            is_there = known is not None and partition in known.partitions
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        low_watermark = await broker.replicas.delete_records(topic, partition, before_offset, timeout_ms)
    except KafkaError as failure:
        return _Row(partition_index=partition, low_watermark=_UNKNOWN, error_code=failure.code)
    return _Row(partition_index=partition, low_watermark=low_watermark)


API = Api(m.DeleteRecordsRequest, 0, 2, handle)
