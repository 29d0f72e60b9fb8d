"""Refusals begin with the words of Apache Kafka 4.4, which scripts search for; advice follows them."""

from collections.abc import Callable
from typing import Any

import pytest

from pybroker.controller.alter_configs import alter_configs, incremental_alter_configs
from pybroker.controller.create_partitions import create_partitions
from pybroker.controller.create_topics import create_topics
from pybroker.controller.delete_topics import delete_topics
from pybroker.controller.elect_leaders import elect_leaders
from pybroker.controller.state import ControllerState
from pybroker.protocol import messages as m

State = Callable[..., ControllerState]
After = Callable[..., ControllerState]
TOPIC, BROKER = 2, 4
SET, APPEND = 0, 2
_Topic = m.CreateTopicsRequest.CreatableTopic
_NO_TOPIC = "This server does not host this topic-partition."
_BAD_NAME = "Topic name is invalid:"
_TOO_LONG = "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes."
_THREADS = "Dynamic thread count update validation failed for num.io.threads"
_ONE_BROKER = "Cannot update these configs at default cluster level, broker id must be specified:"
_ONE_LISTENER = "These security configs can be dynamically updated only per-listener using the listener prefix:"
_MANUAL = "The manual partition assignment includes"


def _with_topic(make_state: State, after: After, partitions: int = 5) -> ControllerState:
    state = make_state()
    topic = _Topic(name="x", num_partitions=partitions, replication_factor=1)
    return after(state, create_topics(state, m.CreateTopicsRequest(topics=[topic]), 7))


def _created(state: ControllerState, *topics: Any) -> str:
    text = create_topics(state, m.CreateTopicsRequest(topics=list(topics)), 7).response.topics[0].error_message
    assert text is not None
    return text


def _topic(name: str, partitions: int = 1, factor: int = 1, **fields: Any) -> Any:
    configs = [
        m.CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
        for key, value in fields.pop("configs", {}).items()
    ]
    return _Topic(name=name, num_partitions=partitions, replication_factor=factor, configs=configs, **fields)


def _assigned(*replicas: list[int], partitions: int = -1, factor: int = -1, first: int = 0) -> Any:
    assignments = [
        m.CreateTopicsRequest.CreatableReplicaAssignment(partition_index=first + index, broker_ids=each)
        for index, each in enumerate(replicas)
    ]
    return _topic("y", partitions, factor, assignments=assignments)


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        (_topic("x"), "Topic 'x' already exists."),
        (_topic(""), "Topic name is invalid: the empty string is not allowed"),
        (_topic(".."), "Topic name is invalid: '..' is not allowed"),
        (
            _topic("a" * 250),
            f"Topic name is invalid: the length of '{'a' * 250}' is longer than the max allowed length 249",
        ),
        (
            _topic("a b"),
            f"{_BAD_NAME} 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
        ),
        (_topic("__cluster_metadata"), "Creation of internal topic __cluster_metadata is prohibited."),
        (_topic("y", 0), "Number of partitions was set to an invalid non-positive value."),
        (_topic("y", 1, 0), "Replication factor must be larger than 0, or -1 to use the default value."),
        (
            _topic("y", 1, 2),
            "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached because "
            "only 1 broker(s) are registered or some brokers have all their log directories cordoned.",
        ),
        (_topic("y", 20_000), "Excessively large number of partitions per request."),
        (_topic("y", configs={"retention.ms": None}), "Null value not supported for topic configs: retention.ms"),
        (_topic("y", configs={"no.such": "1"}), "Unknown topic config name: no.such"),
        (_topic("y", configs={"retention.ms": "abc"}), "Invalid value abc for configuration retention.ms"),
        (
            _topic("y", configs={"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}),
            "conflict topic config setting min.compaction.lag.ms (2) > max.compaction.lag.ms (1)",
        ),
        (
            _topic("y", configs={"remote.storage.enable": "true"}),
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        ),
        (
            _assigned([1], partitions=1),
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            _assigned([1], factor=1),
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (_assigned([]), f"{_MANUAL} an empty replica list."),
        (_assigned([1, 1]), f"{_MANUAL} the broker 1 more than once."),
        (_assigned([7]), f"{_MANUAL} broker 7, but no such broker is registered."),
        (_assigned([1], first=1), "partitions should be a consecutive 0-based integer sequence"),
    ],
)
def test_create_topics(make_state: State, after: After, topic: Any, text: str) -> None:
    assert _created(_with_topic(make_state, after), topic).startswith(text)


def test_topics_that_are_too_alike_or_named_twice(make_state: State, after: After) -> None:
    state = make_state()
    dotted = after(state, create_topics(state, m.CreateTopicsRequest(topics=[_topic("a.b")]), 7))
    assert _created(dotted, _topic("a_b")).startswith("Topic 'a_b' collides with existing topic: a.b")
    assert _created(state, _topic("c"), _topic("c")).startswith("Duplicate topic name.")


@pytest.mark.parametrize(
    ("name", "count", "assignments", "text"),
    [
        ("x", 3, None, "The topic x currently has 5 partition(s); 3 would not be an increase."),
        ("x", 5, None, "Topic already has 5 partition(s)."),
        ("absent", 3, None, _NO_TOPIC),
        ("x", 7, [[1]], "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified."),
        ("x", 6, [[1, 1]], f"{_MANUAL} the broker 1 more than once."),
        ("x", 20_000, None, "Excessively large number of additional partitions per request."),
    ],
)
def test_create_partitions(
    make_state: State, after: After, name: str, count: int, assignments: list[list[int]] | None, text: str
) -> None:
    row = m.CreatePartitionsRequest.CreatePartitionsAssignment
    rows = None if assignments is None else [row(broker_ids=each) for each in assignments]
    topic = m.CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=rows)
    result = create_partitions(_with_topic(make_state, after), m.CreatePartitionsRequest(topics=[topic]))
    assert (result.response.results[0].error_message or "").startswith(text)


def test_delete_topics_and_elect_leaders(make_state: State, after: After) -> None:
    state = _with_topic(make_state, after)
    row = m.DeleteTopicsRequest.DeleteTopicState
    for topics, text in (
        ([row(name="absent")], _NO_TOPIC),
        ([row(name=None, topic_id=b"t" * 16)], "This server does not host this topic ID."),
        ([row(name="x"), row(name="x")], "Duplicate topic name."),
        ([row(name="x", topic_id=b"t" * 16)], "You may not specify both topic name and topic id."),
        ([row(name=None)], "Neither topic name nor id were specified."),
    ):
        result = delete_topics(state, m.DeleteTopicsRequest(topics=topics), 6)
        assert (result.response.responses[0].error_message or "").startswith(text)
    for name, index, text in (
        ("x", 0, "Leader election not needed"),
        ("x", 9, "No such partition as x-9"),
        ("z", 0, "No such topic as z"),
    ):
        asked = [m.ElectLeadersRequest.TopicPartitions(topic=name, partitions=[index])]
        answer = elect_leaders(state, m.ElectLeadersRequest(election_type=0, topic_partitions=asked)).response
        assert (answer.replica_election_results[0].partition_result[0].error_message or "").startswith(text)


@pytest.mark.parametrize(
    ("kind", "name", "key", "operation", "value", "text"),
    [
        (TOPIC, "x", "retention.ms", SET, "x", "Invalid value x for configuration retention.ms"),
        (TOPIC, "x", "retention.ms", APPEND, "1", "Can't APPEND to key retention.ms because its type is not LIST."),
        (TOPIC, "x", "retention.ms", 9, "1", "Unknown operations type 9"),
        (TOPIC, "x", "retention.ms", SET, None, "Null value not supported for : retention.ms"),
        (TOPIC, "x", "follower.replication.throttled.replicas", SET, "0:1," * 9000 + "0:1", _TOO_LONG),
        (TOPIC, "", "retention.ms", SET, "1", "Default topic resources are not allowed."),
        (TOPIC, "absent", "retention.ms", SET, "1", _NO_TOPIC),
        (BROKER, "1", "log.dirs", SET, "/x", "Cannot update these configs dynamically: Set(log.dirs)"),
        (BROKER, "2", "log.retention.ms", SET, "1", "Unexpected broker id, expected 1, but received 2"),
        (BROKER, "", "cordoned.log.dirs", SET, "*", f"{_ONE_BROKER} Set(cordoned.log.dirs)"),
        (BROKER, "1", "ssl.keystore.type", SET, "JKS", f"{_ONE_LISTENER} Set(ssl.keystore.type)"),
        (BROKER, "1", "log.retention.ms", SET, "x", "Invalid value x for configuration log.retention.ms"),
        (BROKER, "1", "num.io.threads", SET, "17", f"{_THREADS}=17, value should not be greater than double the "
                                                   "current value 8"),
        (BROKER, "1", "num.io.threads", SET, "3", f"{_THREADS}=3, value should be at least half the current value 8"),
        (99, "x", "k", SET, "1", "Unknown resource type 99"),
    ],
)  # fmt: skip
def test_alter_configs(
    make_state: State, after: After, kind: int, name: str, key: str, operation: int, value: str | None, text: str
) -> None:
    request = m.IncrementalAlterConfigsRequest
    config = request.AlterableConfig(name=key, config_operation=operation, value=value)
    row = request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    result = incremental_alter_configs(_with_topic(make_state, after), request(resources=[row]))
    assert (result.response.responses[0].error_message or "").startswith(text)


def test_resources_and_settings_that_come_twice(make_state: State, after: After) -> None:
    request = m.AlterConfigsRequest
    config = request.AlterableConfig(name="retention.ms", value="1")
    twice = request.AlterConfigsResource(resource_type=TOPIC, resource_name="x", configs=[config, config])
    state = _with_topic(make_state, after)
    row = alter_configs(state, request(resources=[twice])).response.responses[0]
    assert row.error_message.startswith("Error due to duplicate config keys")
    row = alter_configs(state, request(resources=[twice, twice])).response.responses[0]
    assert row.error_message.startswith("Each resource must appear at most once.")
