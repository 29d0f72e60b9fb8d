"""DescribeTopicPartitions (75): topics page by page, a cursor says where the next page begins (KIP-966)."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator

from pybroker.config.topic import INTERNAL_TOPICS
from pybroker.controller.state import Refusal
from pybroker.controller.topic_names import check_name
from pybroker.metadata.cache import ALL_TOPIC_OPERATIONS, Variant, partition_row
from pybroker.metadata.image import MetadataImage, TopicImage
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.server.api import Api, BrokerServices, RequestContext
from pybroker.turns import SteadyDict, in_slices

#: The version of Metadata whose rows hold the same facts.
_METADATA_VERSION = 13

_SORTED_AT_ONCE = 2_000

_Topic = m.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_Partition = m.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
_Cursor = m.DescribeTopicPartitionsResponse.Cursor


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.DescribeTopicPartitionsRequest
) -> m.DescribeTopicPartitionsResponse:
    image, cursor = broker.metadata.image, request.cursor
    begin = ("", 0) if cursor is None else (cursor.topic_name, cursor.partition_index)
    asked: SteadyDict[str, None] = SteadyDict()
    async for topic in in_slices(request.topics):
        asked[topic.name] = None
    if begin[1] < 0 or (asked and cursor is not None and cursor.topic_name not in asked):
        refused = [
            _Topic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name) async for topic in in_slices(request.topics)
        ]
        return m.DescribeTopicPartitionsResponse(topics=refused)
    most = broker.config.get_int("max.request.partition.size.limit")
    limit = max(1, min(most, request.response_partition_limit))
    # Without a list all topics are meant; one that goes away between two pages is no error then.
    names = await _sorted([name async for name in in_slices(asked or image.topics.by_name) if name >= begin[0]])
    return await _page(image, context.listener, names, begin, limit)


async def _sorted(names: list[str]) -> AsyncIterator[str]:
    """In order, the loop going round meanwhile."""
    runs = [
        sorted(names[start : start + _SORTED_AT_ONCE])
        async for start in in_slices(range(0, len(names), _SORTED_AT_ONCE), 1)
    ]
    return in_slices(heapq.merge(*runs))


async def _page(
    image: MetadataImage, listener: str, names: AsyncIterator[str], begin: tuple[str, int], limit: int
) -> m.DescribeTopicPartitionsResponse:
    """The rows of `names` from `begin` on (topic, partition), with at most `limit` partitions in all."""
    response = m.DescribeTopicPartitionsResponse()
    async for name in names:
        if limit == 0:
            response.next_cursor = _Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.by_name.get(name)
        if topic is None:
            row = _Topic(error_code=_why_unknown(name), name=name, is_internal=name in INTERNAL_TOPICS)
            row.topic_authorized_operations = ALL_TOPIC_OPERATIONS
            response.topics.append(row)
            continue
        first = begin[1] if name == begin[0] else 0
        end = min(len(topic.partitions), first + limit)
        row = _Topic(
            name=name,
            topic_id=topic.id,
            is_internal=name in INTERNAL_TOPICS,
            partitions=[_partition(image, listener, topic, index) async for index in in_slices(range(first, end))],
            topic_authorized_operations=ALL_TOPIC_OPERATIONS,
        )
        response.topics.append(row)
        limit -= len(row.partitions)
        if end < len(topic.partitions):
            response.next_cursor = _Cursor(topic_name=name, partition_index=end)
            break
    return response


def _partition(
    image: MetadataImage, listener: str, topic: TopicImage, index: int
) -> m.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition:
    registration = topic.partitions[index]
    row = partition_row(image.cluster, index, registration, Variant(_METADATA_VERSION, listener))
    return _Partition(
        partition_index=index,
        leader_id=row.leader_id,
        leader_epoch=row.leader_epoch,
        replica_nodes=row.replica_nodes,
        isr_nodes=row.isr_nodes,
        eligible_leader_replicas=list(registration.eligible_leader_replicas),
        last_known_elr=list(registration.last_known_elr),
        offline_replicas=row.offline_replicas,
    )


def _why_unknown(name: str) -> ErrorCode:
    try:
        check_name(name)
    except Refusal as refusal:
        return refusal.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


API = Api(m.DescribeTopicPartitionsRequest, 0, 0, handle)
