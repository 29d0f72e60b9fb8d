"""OffsetCommit (8): store how far a group has read. Answered when the offsets are committed to `__consumer_offsets`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pybroker.coordinator.group.offsets import CommitTopic
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.server.api import Api, BrokerServices, RequestContext

if TYPE_CHECKING:
    from pybroker.metadata.image import TopicImage, TopicsImage

#: From this version on topics are named by id (KIP-848's clients).
_TOPIC_ID_VERSION = 10


async def handle(
    broker: BrokerServices, context: RequestContext, request: m.OffsetCommitRequest
) -> m.OffsetCommitResponse:
    version = context.api_version
    response, topics = _sort_out(broker.metadata.image.topics, version, request)
    if not topics:
        return response
    try:
        committed = broker.groups.commit_offsets(version, request, topics)
        error = ErrorCode.NONE if committed is None else await committed
    except KafkaError as failure:
        error = failure.code
    if error is not ErrorCode.NONE:
        _fail(topics, error)
    return response


def _sort_out(
    image: TopicsImage, version: int, request: m.OffsetCommitRequest
) -> tuple[m.OffsetCommitResponse, list[CommitTopic]]:
    """The response with what cannot be committed filled in, and the topics whose results are still to come."""
    known: list[CommitTopic] = []
    answered = []
    for topic in request.topics:
        results: list[m.OffsetCommitResponse.OffsetCommitResponsePartition] = []
        answered.append(
            m.OffsetCommitResponse.OffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=results
            )
        )
        if version >= _TOPIC_ID_VERSION:
            found = image.by_id.get(topic.topic_id)
            missing = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            found = image.by_name.get(topic.name)
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if found is None:
            _refuse(results, topic.partitions, missing)
            continue
        partitions = _existing(found, topic.partitions, results)
        if partitions:
            known.append(CommitTopic(found.name, found.id, partitions, results))
    return m.OffsetCommitResponse(topics=answered), known


def _existing(
    topic: TopicImage,
    partitions: list[m.OffsetCommitRequest.OffsetCommitRequestPartition],
    results: list[m.OffsetCommitResponse.OffsetCommitResponsePartition],
) -> list[m.OffsetCommitRequest.OffsetCommitRequestPartition]:
    known = topic.partitions
    existing = [partition for partition in partitions if partition.partition_index in known]
    if len(existing) < len(partitions):
        unknown = [partition for partition in partitions if partition.partition_index not in known]
        _refuse(results, unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return existing


def _refuse(
    results: list[m.OffsetCommitResponse.OffsetCommitResponsePartition],
    partitions: list[m.OffsetCommitRequest.OffsetCommitRequestPartition],
    error: ErrorCode,
) -> None:
    for partition in partitions:
        results.append(
            m.OffsetCommitResponse.OffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=error
            )
        )


def _fail(topics: list[CommitTopic], error: ErrorCode) -> None:
    """Nothing of the request is committed: all partitions that could have been get `error`."""
    for topic in topics:
        asked = {partition.partition_index for partition in topic.partitions}
        topic.results[:] = [result for result in topic.results if result.partition_index not in asked]
        _refuse(topic.results, topic.partitions, error)


API = Api(m.OffsetCommitRequest, 2, 10, handle)
