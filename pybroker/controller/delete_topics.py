"""DeleteTopics, by name or by id (KIP-516). Pure."""

from __future__ import annotations

from collections import Counter

from pybroker.controller.state import ControllerResult, ControllerState, Refusal, invalid_request, unknown_topic
from pybroker.metadata.image import TopicImage
from pybroker.metadata.records import VersionedRecord
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.uuids import ZERO_UUID

_DELETION_DISABLED_SINCE_VERSION = 3

Topic = m.DeleteTopicsRequest.DeleteTopicState
TopicResult = m.DeleteTopicsResponse.DeletableTopicResult


def delete_topics(
    state: ControllerState, request: m.DeleteTopicsRequest, version: int
) -> ControllerResult[m.DeleteTopicsResponse]:
    """Delete every topic of the request that exists; a row for each that was named."""
    # Versions before 6 name topics in a field of its own.
    wanted = [*request.topics, *(Topic(name=name) for name in request.topic_names)]
    counts = Counter((each.name, each.topic_id) for each in wanted)
    targets = Counter(topic.id for each in wanted if (topic := _find(state, each)) is not None)
    rows: list[m.DeleteTopicsResponse.DeletableTopicResult] = []
    records: list[VersionedRecord] = []
    for each in {(each.name, each.topic_id): each for each in wanted}.values():
        row = TopicResult(name=each.name, topic_id=each.topic_id)
        try:
            if not state.config.get_bool("delete.topic.enable"):
                is_known = version >= _DELETION_DISABLED_SINCE_VERSION
                code = ErrorCode.TOPIC_DELETION_DISABLED if is_known else ErrorCode.INVALID_REQUEST
                raise Refusal(code, "Topic deletion is disabled. delete.topic.enable is false")
            _check(each)
            topic = _find(state, each)
            if counts[each.name, each.topic_id] > 1 or (topic is not None and targets[topic.id] > 1):
                raise invalid_request(f"Duplicate topic {'id' if each.name is None else 'name'}.")
            if topic is None:
                raise _unknown(each)
            state.take_partitions(len(topic.partitions))
            row.name, row.topic_id = topic.name, topic.id
            records.append(VersionedRecord(m.RemoveTopicRecord(topic_id=topic.id), 0))
        except Refusal as refusal:
            row.error_code, row.error_message = refusal.code, refusal.message
        rows.append(row)
    return ControllerResult(m.DeleteTopicsResponse(responses=rows), records)


def _check(wanted: m.DeleteTopicsRequest.DeleteTopicState) -> None:
    if wanted.name is not None and wanted.topic_id != ZERO_UUID:
        raise invalid_request("You may not specify both topic name and topic id.")
    if wanted.name is None and wanted.topic_id == ZERO_UUID:
        raise invalid_request("Neither topic name nor id were specified.")


def _find(state: ControllerState, wanted: m.DeleteTopicsRequest.DeleteTopicState) -> TopicImage | None:
    topics = state.image.topics
    return topics.by_id.get(wanted.topic_id) if wanted.name is None else topics.by_name.get(wanted.name)


def _unknown(wanted: m.DeleteTopicsRequest.DeleteTopicState) -> Refusal:
    if wanted.name is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    return unknown_topic(wanted.name)
