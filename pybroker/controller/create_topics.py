"""CreateTopics (KIP-4, KIP-525). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pybroker.config.alter import InvalidAlteration, check_new_topic
from pybroker.config.describe import describe_topic
from pybroker.controller.placement import Placement
from pybroker.controller.state import (
    MAX_RECORDS_PER_OPERATION,
    ControllerResult,
    ControllerState,
    Refusal,
    invalid_request,
)
from pybroker.controller.topic_names import CLUSTER_METADATA_TOPIC, CollisionIndex, check_name
from pybroker.metadata.image import RESOURCE_TOPIC
from pybroker.metadata.records import VersionedRecord
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.uuids import random_uuid

_DEFAULT = -1
_CONFIGS_SINCE_VERSION = 5

CreatableTopic = m.CreateTopicsRequest.CreatableTopic
TopicResult = m.CreateTopicsResponse.CreatableTopicResult
_Described = dict[tuple[tuple[str, str], ...], list[m.CreateTopicsResponse.CreatableTopicConfigs]]


def create_topics(
    state: ControllerState, request: m.CreateTopicsRequest, version: int
) -> ControllerResult[m.CreateTopicsResponse]:
    """Create every topic of the request that can be; a row per topic name. Validate-only makes no records."""
    placement = Placement(state)
    collisions = CollisionIndex(state.image.topics.by_name)
    name_counts = Counter(topic.name for topic in request.topics)
    is_excessive = _partition_count(state, request.topics) > MAX_RECORDS_PER_OPERATION
    rows: list[m.CreateTopicsResponse.CreatableTopicResult] = []
    records: list[VersionedRecord] = []
    partition_count = state.partition_count()
    described: _Described | None = {} if version >= _CONFIGS_SINCE_VERSION else None
    for topic in {topic.name: topic for topic in request.topics}.values():
        try:
            if name_counts[topic.name] > 1:
                raise invalid_request(f"Duplicate topic name. {topic.name!r} is in the request more than once")
            if is_excessive:
                raise Refusal(
                    ErrorCode.POLICY_VIOLATION,
                    "Excessively large number of partitions per request. "
                    f"One can create at most {MAX_RECORDS_PER_OPERATION}; send several",
                )
            row, topic_records = _create_topic(state, topic, placement, collisions, described)
            if len(records) + len(topic_records) > MAX_RECORDS_PER_OPERATION:
                raise Refusal(ErrorCode.POLICY_VIOLATION, "the request is too large; send several smaller ones")
            state.check_descriptors(partition_count + row.num_partitions)
            state.take_partitions(row.num_partitions)
        except Refusal as refusal:
            rows.append(
                TopicResult(name=topic.name, error_code=refusal.code, error_message=refusal.message, configs=[])
            )
            continue
        collisions.add(topic.name)
        partition_count += row.num_partitions
        rows.append(row)
        records += topic_records
    return ControllerResult(m.CreateTopicsResponse(topics=rows), [] if request.validate_only else records)


def _partition_count(state: ControllerState, topics: Sequence[m.CreateTopicsRequest.CreatableTopic]) -> int:
    default_count = state.config.get_int("num.partitions")
    return sum(
        len(topic.assignments) or (default_count if topic.num_partitions == _DEFAULT else max(0, topic.num_partitions))
        for topic in topics
    )


def _create_topic(
    state: ControllerState,
    topic: m.CreateTopicsRequest.CreatableTopic,
    placement: Placement,
    collisions: CollisionIndex,
    described: _Described | None,
) -> tuple[m.CreateTopicsResponse.CreatableTopicResult, list[VersionedRecord]]:
    check_name(topic.name)
    if topic.name == CLUSTER_METADATA_TOPIC:
        raise invalid_request(f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited.")
    if topic.name in state.image.topics.by_name:
        raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    collisions.check(topic.name)
    try:
        configs = check_new_topic({config.name: config.value for config in topic.configs}, state.config)
    except InvalidAlteration as error:
        raise Refusal(ErrorCode(error.error_code), str(error)) from error
    replicas = _manual_replicas(topic, placement) if topic.assignments else _placed_replicas(state, topic, placement)
    topic_id = random_uuid()
    records = [VersionedRecord(m.TopicRecord(name=topic.name, topic_id=topic_id), 0)]
    records += [
        VersionedRecord(
            m.ConfigRecord(resource_type=RESOURCE_TOPIC, resource_name=topic.name, name=name, value=value), 0
        )
        for name, value in configs.items()
    ]
    records += [
        state.versioned(placement.partition_record(topic_id, index, each)) for index, each in enumerate(replicas)
    ]
    row = TopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(replicas),
        replication_factor=len(replicas[0]),
        configs=[] if described is None else _describe(state, configs, described),
    )
    return row, records


def _placed_replicas(
    state: ControllerState, topic: m.CreateTopicsRequest.CreatableTopic, placement: Placement
) -> list[list[int]]:
    partition_count, factor = topic.num_partitions, topic.replication_factor
    if partition_count == _DEFAULT:
        partition_count = state.config.get_int("num.partitions")
    if factor == _DEFAULT:
        factor = state.config.get_int("default.replication.factor")
    if partition_count <= 0:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"Number of partitions was set to an invalid non-positive value. It is {partition_count}",
        )
    if factor <= 0:
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor must be larger than 0, or -1 to use the default value. It is {factor}",
        )
    return placement.replicas(partition_count, factor)


def _manual_replicas(topic: m.CreateTopicsRequest.CreatableTopic, placement: Placement) -> list[list[int]]:
    if topic.replication_factor != _DEFAULT:
        raise invalid_request("A manual partition assignment was specified, but replication factor was not set to -1.")
    if topic.num_partitions != _DEFAULT:
        raise invalid_request("A manual partition assignment was specified, but numPartitions was not set to -1.")
    by_index: dict[int, list[int]] = {}
    for assignment in topic.assignments:
        if assignment.partition_index in by_index:
            raise Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {assignment.partition_index}",
            )
        placement.check_manual(assignment.broker_ids, len(next(iter(by_index.values()))) if by_index else None)
        by_index[assignment.partition_index] = list(assignment.broker_ids)
    if set(by_index) != set(range(len(by_index))):
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"partitions should be a consecutive 0-based integer sequence; assigned are {sorted(by_index)}",
        )
    return [by_index[index] for index in range(len(by_index))]


def _describe(
    state: ControllerState, configs: dict[str, str], described: _Described
) -> list[m.CreateTopicsResponse.CreatableTopicConfigs]:
    """Rows for all settings of a topic, of which there are many: topics with the same overrides share them."""
    key = tuple(configs.items())
    if key not in described:
        described[key] = _rows(state, configs)
    return described[key]


def _rows(state: ControllerState, configs: dict[str, str]) -> list[m.CreateTopicsResponse.CreatableTopicConfigs]:
    return [
        m.CreateTopicsResponse.CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=int(entry.source),
            is_sensitive=entry.is_sensitive,
        )
        for entry in describe_topic(configs, state.config)
    ]
