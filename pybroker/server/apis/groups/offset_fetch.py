"""OffsetFetch (9): how far groups have read. Up to version 7 for one group, from 8 on for several (KIP-709)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.coordinator.group.requests.offsets import FetchedOffset
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.protocol.uuids import ZERO_UUID
from pybroker.server.api import Api, BrokerServices, RequestContext
from pybroker.turns import in_slices

if TYPE_CHECKING:
    from pybroker.metadata.image import TopicsImage

#: From this version on a request may name several groups.
_GROUPS_VERSION = 8
#: From this version on topics are named by id.
_TOPIC_ID_VERSION = 10
#: From this version on an error of the whole group has a place of its own.
_TOP_LEVEL_ERROR_VERSION = 2


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.OffsetFetchRequest
) -> m.OffsetFetchResponse:
    if context.api_version < _GROUPS_VERSION:
        return await _one_group(broker, context.api_version, request)
    by_id = context.api_version >= _TOPIC_ID_VERSION
    image = broker.metadata.image.topics
    return m.OffsetFetchResponse(
        groups=[
            await _group(broker, image, group, by_id, request.require_stable)
            async for group in in_slices(request.groups, 4)
        ]
    )


# ---- versions 1 to 7 -----------------------------------------------------------------------------------------------


async def _one_group(broker: BrokerServices, version: int, request: m.OffsetFetchRequest) -> m.OffsetFetchResponse:
    try:
        if request.topics is None:
            fetched = list((await broker.groups.fetch_all_offsets(request.group_id, request.require_stable)).items())
        else:
            broker.groups.check_readable(request.group_id)
            fetched = [
                (
                    topic.name,
                    await broker.groups.fetch_offsets(
                        request.group_id, topic.name, ZERO_UUID, topic.partition_indexes, request.require_stable
                    ),
                )
                async for topic in in_slices(request.topics)
            ]
    except KafkaError as failure:
        return await _failed(version, request, failure.code)
    return m.OffsetFetchResponse(
        topics=[
            m.OffsetFetchResponse.OffsetFetchResponseTopic(
                name=name, partitions=[_partition(offset) async for offset in in_slices(offsets)]
            )
            async for name, offsets in in_slices(fetched)
        ]
    )


async def _failed(version: int, request: m.OffsetFetchRequest, error: ErrorCode) -> m.OffsetFetchResponse:
    if version >= _TOP_LEVEL_ERROR_VERSION:
        return m.OffsetFetchResponse(error_code=error)
    return m.OffsetFetchResponse(
        topics=[
            m.OffsetFetchResponse.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    _partition(FetchedOffset(index, -1, -1, "", error))
                    async for index in in_slices(topic.partition_indexes)
                ],
            )
            async for topic in in_slices(request.topics or ())
        ]
    )


def _partition(fetched: FetchedOffset) -> m.OffsetFetchResponse.OffsetFetchResponsePartition:
    return m.OffsetFetchResponse.OffsetFetchResponsePartition(
        partition_index=fetched.partition,
        committed_offset=fetched.offset,
        committed_leader_epoch=fetched.leader_epoch,
        metadata=fetched.metadata,
        error_code=fetched.error,
    )


# ---- version 8 and later -------------------------------------------------------------------------------------------


async def _group(
    broker: BrokerServices,
    image: TopicsImage,
    request: m.OffsetFetchRequest.OffsetFetchRequestGroup,
    by_id: bool,
    require_stable: bool,
) -> m.OffsetFetchResponse.OffsetFetchResponseGroup:
    response = m.OffsetFetchResponse.OffsetFetchResponseGroup(group_id=request.group_id)
    try:
        if request.topics is None:
            response.topics = await _all_topics(broker, image, request.group_id, by_id, require_stable)
        else:
            broker.groups.check_readable(request.group_id)
            known: list[m.OffsetFetchResponse.OffsetFetchResponseTopics] = []
            unknown: list[m.OffsetFetchResponse.OffsetFetchResponseTopics] = []
            async for topic in in_slices(request.topics):
                row = await _topic(broker, image, request.group_id, topic, by_id, require_stable)
                (unknown if by_id and topic.topic_id not in image.by_id else known).append(row)
            # As in Kafka, what is unknown comes last.
            response.topics = known + unknown
    except KafkaError as failure:
        response.error_code = failure.code
    return response


async def _all_topics(
    broker: BrokerServices, image: TopicsImage, group_id: str, by_id: bool, require_stable: bool
) -> list[m.OffsetFetchResponse.OffsetFetchResponseTopics]:
    answered = []
    fetched = await broker.groups.fetch_all_offsets(group_id, require_stable)
    async for name, offsets in in_slices(fetched.items()):
        topic = image.by_name.get(name)
        if by_id and topic is None:
            # It has been deleted: there is no id to name it by.
            continue
        answered.append(
            m.OffsetFetchResponse.OffsetFetchResponseTopics(
                name=name,
                topic_id=topic.id if by_id and topic is not None else ZERO_UUID,
                partitions=[_partition_of_group(offset) async for offset in in_slices(offsets)],
            )
        )
    return answered


async def _topic(
    broker: BrokerServices,
    image: TopicsImage,
    group_id: str,
    asked: m.OffsetFetchRequest.OffsetFetchRequestTopics,
    by_id: bool,
    require_stable: bool,
) -> m.OffsetFetchResponse.OffsetFetchResponseTopics:
    name, topic_id = asked.name, ZERO_UUID
    if by_id:
        topic_id = asked.topic_id
        found = image.by_id.get(topic_id)
        if found is None:
            return m.OffsetFetchResponse.OffsetFetchResponseTopics(
                topic_id=topic_id,
                partitions=[
                    _partition_of_group(FetchedOffset(index, -1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID))
                    async for index in in_slices(asked.partition_indexes)
                ],
            )
        name = found.name
    fetched = await broker.groups.fetch_offsets(group_id, name, topic_id, asked.partition_indexes, require_stable)
    return m.OffsetFetchResponse.OffsetFetchResponseTopics(
        name=name,
        topic_id=topic_id,
        partitions=[_partition_of_group(offset) async for offset in in_slices(fetched)],
    )


def _partition_of_group(fetched: FetchedOffset) -> m.OffsetFetchResponse.OffsetFetchResponsePartitions:
    return m.OffsetFetchResponse.OffsetFetchResponsePartitions(
        partition_index=fetched.partition,
        committed_offset=fetched.offset,
        committed_leader_epoch=fetched.leader_epoch,
        metadata=fetched.metadata,
        error_code=fetched.error,
    )


API = Api(m.OffsetFetchRequest, 1, 10, handle)
