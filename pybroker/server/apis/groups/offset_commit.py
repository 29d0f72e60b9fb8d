"""OffsetCommit (8): store how far a group has read. Answered when the offsets are committed to `__consumer_offsets`."""

from __future__ import annotations

import asyncio
from collections.abc import Container
from functools import lru_cache
from typing import TYPE_CHECKING

from pybroker.coordinator.group.requests.offsets import CommitTopic, Refused
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.server.api import Api, BrokerServices, RequestContext
from pybroker.turns import SteadyDict, in_slices

if TYPE_CHECKING:
    from pybroker.metadata.image import TopicsImage

#: From this version on topics are named by id (KIP-848's clients).
_TOPIC_ID_VERSION = 10
#: Responses for more partitions are not kept.
_KEPT_PARTITION_COUNT = 100

#: Topics by name and id, with the partitions that a request names.
_Shape = tuple[tuple[str, bytes, tuple[int, ...]], ...]


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.OffsetCommitRequest
) -> m.OffsetCommitResponse | bytes:
    version = context.api_version
    image = broker.metadata.image.topics
    topics = await _sort_out(image, version, request)
    if broker.metadata.image.topics is not image:
        topics = _still_there(broker.metadata.image.topics, version, topics)
    committing = [topic for topic in topics if topic.partitions]
    error = ErrorCode.NONE
    if committing:
        try:
            committed = await _commit(broker, version, request, committing)
            if committed is not None:
                error = await committed
        except KafkaError as failure:
            error = failure.code
    if error is ErrorCode.NONE and not any(topic.refused for topic in topics):
        return await _all_committed(version, request)
    return await _response(request, topics, error)


async def _commit(
    broker: BrokerServices, version: int, request: m.OffsetCommitRequest, topics: list[CommitTopic]
) -> asyncio.Future[ErrorCode] | None:
    """Begin to commit; what the future says, if there is one, counts for all but what is refused."""
    if _partition_count(request) <= _KEPT_PARTITION_COUNT:
        return broker.groups.commit_offsets(version, request, topics)

    def is_there(topic: CommitTopic) -> bool:
        if topic.topic_id in broker.metadata.image.topics.by_id:
            return True
        # It was deleted meanwhile, and nobody would forget its offsets any more.
        for each in topic.partitions:
            topic.refused[each.partition_index] = _missing(version)
        return False

    return await broker.groups.commit_many_offsets(version, request, topics, is_there)


def _missing(version: int) -> ErrorCode:
    return ErrorCode.UNKNOWN_TOPIC_ID if version >= _TOPIC_ID_VERSION else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _sort_out(image: TopicsImage, version: int, request: m.OffsetCommitRequest) -> list[CommitTopic]:
    """For each topic of the request what can be committed, and what cannot because it does not exist."""
    sorted_out = []
    async for topic in in_slices(request.topics):
        found = image.by_id.get(topic.topic_id) if version >= _TOPIC_ID_VERSION else image.by_name.get(topic.name)
        if found is None:
            refused = await _refused(topic.partitions, (), _missing(version))
            sorted_out.append(CommitTopic(topic.name, topic.topic_id, [], refused))
            continue
        known = found.partitions
        if len(topic.partitions) <= _KEPT_PARTITION_COUNT:  # as nearly always
            existing = [partition for partition in topic.partitions if partition.partition_index in known]
        else:
            existing = [each async for each in in_slices(topic.partitions) if each.partition_index in known]
        existing_count = len(existing)
        if existing_count > len(known):
            # Some are named more than once: the last offset counts.
            existing = list({each.partition_index: each async for each in in_slices(existing)}.values())
        refused = {}
        if existing_count < len(topic.partitions):
            refused = await _refused(topic.partitions, known, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        sorted_out.append(CommitTopic(found.name, found.id, existing, refused))
    return sorted_out


async def _refused(
    partitions: list[m.OffsetCommitRequest.OffsetCommitRequestPartition], known: Container[int], code: ErrorCode
) -> Refused:
    """Those that are not known, with that code."""
    refused: Refused = {} if len(partitions) <= _KEPT_PARTITION_COUNT else SteadyDict()
    async for each in in_slices(partitions):
        if each.partition_index not in known:
            refused[each.partition_index] = code
    return refused


def _still_there(image: TopicsImage, version: int, topics: list[CommitTopic]) -> list[CommitTopic]:
    """Without topics that were deleted while the request was sorted out: their offsets have been forgotten, and nobody
    would forget those that came now."""
    missing = _missing(version)
    found = []
    for topic in topics:
        is_gone = bool(topic.partitions) and topic.topic_id not in image.by_id
        if is_gone:
            for each in topic.partitions:
                topic.refused[each.partition_index] = missing
        found.append(topic._replace(partitions=[]) if is_gone else topic)
    return found


async def _response(
    request: m.OffsetCommitRequest, topics: list[CommitTopic], error: ErrorCode
) -> m.OffsetCommitResponse:
    """The refusals with their reasons; every other partition with `error`, or as committed when that is NONE."""
    answered = []
    async for asked, topic in in_slices(zip(request.topics, topics, strict=True)):
        answered.append(
            m.OffsetCommitResponse.OffsetCommitResponseTopic(
                name=asked.name,
                topic_id=asked.topic_id,
                partitions=[
                    m.OffsetCommitResponse.OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=_code(topic.refused, partition.partition_index, error),
                    )
                    async for partition in in_slices(asked.partitions)
                ],
            )
        )
    return m.OffsetCommitResponse(topics=answered)


def _code(refused: Refused, index: int, error: ErrorCode) -> ErrorCode:
    """The outcome for a partition. With an error nothing of the request is committed, not even what would have been
    refused later on."""
    code = refused.get(index)
    if code is None or (error is not ErrorCode.NONE and code is ErrorCode.OFFSET_METADATA_TOO_LARGE):
        return error
    return code


async def _all_committed(version: int, request: m.OffsetCommitRequest) -> m.OffsetCommitResponse | bytes:
    """The encoded response when nothing is refused: the same each time that a consumer commits the same partitions."""
    if _partition_count(request) > _KEPT_PARTITION_COUNT:
        return await _response(request, [CommitTopic("", b"", [], {})] * len(request.topics), ErrorCode.NONE)
    shape = tuple(
        [
            (topic.name, topic.topic_id, tuple([partition.partition_index for partition in topic.partitions]))
            for topic in request.topics
        ]
    )
    return _kept_all_committed(version, shape)


def _partition_count(request: m.OffsetCommitRequest) -> int:
    """How many partitions the request names, or how many topics when these are many already."""
    count = len(request.topics)
    if count <= _KEPT_PARTITION_COUNT:
        count = sum([len(topic.partitions) for topic in request.topics])
    return count


def _encoded_all_committed(version: int, shape: _Shape) -> bytes:
    topics = [
        m.OffsetCommitResponse.OffsetCommitResponseTopic(
            name=name,
            topic_id=topic_id,
            partitions=[
                m.OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=index, error_code=0)
                for index in partitions
            ],
        )
        for name, topic_id, partitions in shape
    ]
    return m.OffsetCommitResponse(topics=topics).encode(version)


_kept_all_committed = lru_cache(maxsize=1_024)(_encoded_all_committed)

API = Api(m.OffsetCommitRequest, 2, 10, handle)
