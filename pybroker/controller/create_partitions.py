"""CreatePartitions (KIP-195). Pure."""

from __future__ import annotations

from collections import Counter

from pybroker.controller.placement import Placement
from pybroker.controller.state import (
    MAX_RECORDS_PER_OPERATION,
    ControllerResult,
    ControllerState,
    Refusal,
    invalid_request,
    unknown_topic,
)
from pybroker.metadata.records import VersionedRecord
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

TopicResult = m.CreatePartitionsResponse.CreatePartitionsTopicResult


def create_partitions(
    state: ControllerState, request: m.CreatePartitionsRequest
) -> ControllerResult[m.CreatePartitionsResponse]:
    """Add partitions to every topic of the request where that is possible; a row per topic name."""
    placement = Placement(state)
    name_counts = Counter(topic.name for topic in request.topics)
    rows: list[m.CreatePartitionsResponse.CreatePartitionsTopicResult] = []
    records: list[VersionedRecord] = []
    partition_count = state.partition_count()
    for topic in {topic.name: topic for topic in request.topics}.values():
        row = TopicResult(name=topic.name)
        try:
            if name_counts[topic.name] > 1:
                raise invalid_request(f"Duplicate topic name. {topic.name!r} is in the request more than once")
            added = _added(state, topic, placement)
            if len(records) + len(added) > MAX_RECORDS_PER_OPERATION:
                raise Refusal(
                    ErrorCode.POLICY_VIOLATION,
                    "Excessively large number of partitions per request. "
                    f"One can add at most {MAX_RECORDS_PER_OPERATION}; send several",
                )
            state.check_descriptors(partition_count + len(records) + len(added))
            state.take_partitions(len(added))
            records += added
        except Refusal as refusal:
            row.error_code, row.error_message = refusal.code, refusal.message
        rows.append(row)
    return ControllerResult(m.CreatePartitionsResponse(results=rows), [] if request.validate_only else records)


def _added(
    state: ControllerState, wanted: m.CreatePartitionsRequest.CreatePartitionsTopic, placement: Placement
) -> list[VersionedRecord]:
    topic = state.image.topics.by_name.get(wanted.name)
    if topic is None:
        raise unknown_topic(wanted.name)
    present_count = len(topic.partitions)
    added_count = wanted.count - present_count
    if added_count == 0:
        raise Refusal(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present_count} partition(s).")
    if added_count < 0:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {present_count} partition(s); "
            f"{wanted.count} would not be an increase.",
        )
    if added_count > MAX_RECORDS_PER_OPERATION:
        raise Refusal(
            ErrorCode.POLICY_VIOLATION,
            "Excessively large number of additional partitions per request. "
            f"One can add at most {MAX_RECORDS_PER_OPERATION}; send several",
        )
    replication_factor = len(topic.partitions[0].replicas)
    if wanted.assignments is None:
        replicas = placement.replicas(added_count, replication_factor)
    else:
        if len(wanted.assignments) != added_count:
            raise Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added_count} additional partition(s), but only {len(wanted.assignments)} "
                "assignment(s) were specified.",
            )
        for assignment in wanted.assignments:
            placement.check_manual(assignment.broker_ids, replication_factor)
        replicas = [list(assignment.broker_ids) for assignment in wanted.assignments]
    return [
        state.versioned(placement.partition_record(topic.id, present_count + index, each))
        for index, each in enumerate(replicas)
    ]
