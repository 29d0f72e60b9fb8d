"""The controller's pure operations: rows, error codes and records. Codes are those Apache Kafka answers."""

import importlib
from collections.abc import Callable
from typing import Any

import pytest

from pybroker.config.broker import BrokerConfig
from pybroker.controller.allocate_producer_ids import allocate_producer_ids
from pybroker.controller.alter_configs import alter_configs, incremental_alter_configs
from pybroker.controller.auto_create import auto_create_request
from pybroker.controller.create_partitions import create_partitions
from pybroker.controller.create_topics import create_topics
from pybroker.controller.delete_topics import delete_topics
from pybroker.controller.register_broker import change_directories, fence_broker, register_broker
from pybroker.controller.state import ControllerState
from pybroker.metadata.image import Endpoint
from pybroker.metadata.registration import Registration
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

State = Callable[..., ControllerState]
After = Callable[..., ControllerState]
E = ErrorCode
DIRECTORY = bytes([1, 0]) * 8  # of the first broker


def _topic(name: str, partitions: int = 1, replicas: int = 1, **fields: Any) -> m.CreateTopicsRequest.CreatableTopic:
    fields["configs"] = [
        m.CreateTopicsRequest.CreatableTopicConfig(name=key, value=value)
        for key, value in fields.get("configs", {}).items()
    ]
    fields["assignments"] = [
        m.CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
        for index, ids in fields.get("assignments", [])
    ]
    return m.CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, **fields
    )


def _create(state: ControllerState, *topics: Any, version: int = 7, validate_only: bool = False) -> Any:
    return create_topics(state, m.CreateTopicsRequest(topics=list(topics), validate_only=validate_only), version)


def _codes(rows: list[Any]) -> list[int]:
    return [row.error_code for row in rows]


def test_create_topic_with_defaults_and_configs(make_state: State, after: After) -> None:
    state = make_state(overrides=("num.partitions=3",))
    result = _create(state, _topic("alpha", -1, -1, configs={"retention.ms": "5"}))
    (row,) = result.response.topics
    assert (row.error_code, row.num_partitions, row.replication_factor) == (E.NONE, 3, 1)
    described = {each.name: (each.value, each.config_source) for each in row.configs}
    assert described["retention.ms"] == ("5", 1)
    assert described["cleanup.policy"][0] == "delete"
    image = after(state, result).image
    topic = image.topics.by_name["alpha"]
    assert topic.id == row.topic_id
    assert image.topic_config("alpha") == {"retention.ms": "5"}
    assert [(each.leader, each.isr, each.leader_epoch) for each in topic.partitions.values()] == [(1, (1,), 0)] * 3
    assert topic.partitions[0].directories == (bytes([1, 0]) * 8,)
    for version in range(2, 8):
        m.CreateTopicsResponse(topics=_create(state, _topic("beta"), version=version).response.topics).encode(version)


def test_topics_with_the_same_configs_are_described_once(make_state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("pybroker.controller.create_topics")
    describe, calls = module.describe_topic, []

    def note(configs: dict[str, str], config: BrokerConfig) -> Any:
        calls.append(configs)
        return describe(configs, config)

    monkeypatch.setattr(module, "describe_topic", note)
    bounded = {"retention.ms": "1"}
    result = _create(make_state(), *(_topic(name) for name in "abc"), _topic("d", configs=bounded))
    assert calls == [{}, {"retention.ms": "1"}]
    values = [{each.name: each.value for each in row.configs}["retention.ms"] for row in result.response.topics]
    assert values == ["604800000"] * 3 + ["1"]


def test_validate_only_makes_no_records(make_state: State) -> None:
    result = _create(make_state(), _topic("alpha"), _topic(".."), validate_only=True)
    assert _codes(result.response.topics) == [E.NONE, E.INVALID_TOPIC_EXCEPTION]
    assert result.records == []


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (_topic(""), E.INVALID_TOPIC_EXCEPTION),
        (_topic("a b"), E.INVALID_TOPIC_EXCEPTION),
        (_topic(".."), E.INVALID_TOPIC_EXCEPTION),
        (_topic("x" * 250), E.INVALID_TOPIC_EXCEPTION),
        (_topic("x" * 249), E.NONE),
        (_topic("col_x"), E.INVALID_TOPIC_EXCEPTION),
        (_topic("col.x"), E.TOPIC_ALREADY_EXISTS),
        (_topic("__cluster_metadata"), E.INVALID_REQUEST),
        (_topic("a", 0), E.INVALID_PARTITIONS),
        (_topic("a", -2), E.INVALID_PARTITIONS),
        (_topic("a", 1, 0), E.INVALID_REPLICATION_FACTOR),
        (_topic("a", 1, 2), E.INVALID_REPLICATION_FACTOR),
        (_topic("a", 10_001), E.POLICY_VIOLATION),
        (_topic("a", configs={"nope": "1"}), E.INVALID_CONFIG),
        (_topic("a", configs={"retention.ms": "x"}), E.INVALID_CONFIG),
        (_topic("a", configs={"retention.ms": None}), E.INVALID_CONFIG),
        (_topic("a", -1, -1, assignments=[(0, [1])]), E.NONE),
        (_topic("a", 1, -1, assignments=[(0, [1])]), E.INVALID_REQUEST),
        (_topic("a", -1, 1, assignments=[(0, [1])]), E.INVALID_REQUEST),
        (_topic("a", -1, -1, assignments=[(1, [1])]), E.INVALID_REPLICA_ASSIGNMENT),
        (_topic("a", -1, -1, assignments=[(0, [2])]), E.INVALID_REPLICA_ASSIGNMENT),
        (_topic("a", -1, -1, assignments=[(0, [])]), E.INVALID_REPLICA_ASSIGNMENT),
        (_topic("a", -1, -1, assignments=[(0, [1, 1])]), E.INVALID_REPLICA_ASSIGNMENT),
        (_topic("a", -1, -1, assignments=[(0, [1]), (0, [1])]), E.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_create_topic_codes(make_state: State, after: After, topic: Any, code: int) -> None:
    state = make_state()
    state = after(state, _create(state, _topic("col.x")))
    result = _create(state, topic)
    assert _codes(result.response.topics) == [code]
    assert bool(result.records) == (code == E.NONE)
    assert (result.response.topics[0].error_message is None) == (code == E.NONE)


def test_names_that_collide_within_one_request(make_state: State) -> None:
    rows = _create(make_state(), _topic("a.b"), _topic("a_b"), _topic("dup"), _topic("dup")).response.topics
    assert [(row.name, row.error_code) for row in rows] == [
        ("a.b", E.NONE),
        ("a_b", E.INVALID_TOPIC_EXCEPTION),
        ("dup", E.INVALID_REQUEST),
    ]


def test_placement_spreads_leaders_and_directories(make_state: State, after: After) -> None:
    state = make_state(brokers=3, directories=2)
    result = _create(state, _topic("a", 6, 2))
    partitions = after(state, result).image.topics.by_name["a"].partitions.values()
    leaders = [each.leader for each in partitions]
    assert {leaders.count(broker) for broker in (1, 2, 3)} == {2}
    assert all(len(set(each.replicas)) == 2 for each in partitions)
    used = [directory for each in partitions for directory in each.directories]
    assert {used.count(directory) for directory in used} == {2}


def test_delete_topics(make_state: State, after: After) -> None:
    state = make_state()
    state = after(state, _create(state, _topic("a"), _topic("b"), _topic("c")))
    topics = state.image.topics.by_name
    wanted = [
        ("a", bytes(16)),
        (None, topics["b"].id),
        ("none", bytes(16)),
        (None, b"x" * 16),
        ("a", b"x" * 16),
        (None, bytes(16)),
    ]
    states = [m.DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in wanted]
    result = delete_topics(state, m.DeleteTopicsRequest(topics=states), 6)
    # "a" by name together with a wrong id is refused without touching what the good row says.
    assert _codes(result.response.responses) == [
        E.INVALID_REQUEST,
        E.NONE,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNKNOWN_TOPIC_ID,
        E.INVALID_REQUEST,
        E.INVALID_REQUEST,
    ]
    assert set(after(state, result).image.topics.by_name) == {"a", "c"}
    old = delete_topics(state, m.DeleteTopicsRequest(topic_names=["a", "nope"]), 1)
    assert _codes(old.response.responses) == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]
    twice = delete_topics(state, m.DeleteTopicsRequest(topic_names=["a", "a"]), 5)
    assert (_codes(twice.response.responses), twice.records) == ([E.INVALID_REQUEST], [])


def test_deletion_can_be_disabled(make_state: State, after: After) -> None:
    state = make_state(overrides=("delete.topic.enable=false",))
    state = after(state, _create(state, _topic("a")))
    for version, code in ((2, E.INVALID_REQUEST), (3, E.TOPIC_DELETION_DISABLED)):
        result = delete_topics(state, m.DeleteTopicsRequest(topic_names=["a"]), version)
        assert (_codes(result.response.responses), result.records) == ([code], [])


@pytest.mark.parametrize(
    ("count", "assignments", "code"),
    [
        (4, None, E.NONE),
        (2, None, E.INVALID_PARTITIONS),
        (1, None, E.INVALID_PARTITIONS),
        (0, None, E.INVALID_PARTITIONS),
        (20_000, None, E.POLICY_VIOLATION),
        (3, [[1]], E.NONE),
        (4, [[1]], E.INVALID_REPLICA_ASSIGNMENT),
        (3, [], E.INVALID_REPLICA_ASSIGNMENT),
        (3, [[9]], E.INVALID_REPLICA_ASSIGNMENT),
        (3, [[]], E.INVALID_REPLICA_ASSIGNMENT),
        (3, [[1, 1]], E.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_create_partitions(
    make_state: State, after: After, count: int, assignments: list[list[int]] | None, code: int
) -> None:
    state = make_state()
    state = after(state, _create(state, _topic("a", 2)))
    rows = (
        None
        if assignments is None
        else [m.CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    )
    topic = m.CreatePartitionsRequest.CreatePartitionsTopic(name="a", count=count, assignments=rows)
    result = create_partitions(state, m.CreatePartitionsRequest(topics=[topic]))
    assert _codes(result.response.results) == [code]
    partitions = after(state, result).image.topics.by_name["a"].partitions
    assert sorted(partitions) == list(range(count if code == E.NONE else 2))
    dry = create_partitions(state, m.CreatePartitionsRequest(topics=[topic], validate_only=True))
    assert dry.records == []
    twice = create_partitions(state, m.CreatePartitionsRequest(topics=[topic, topic]))
    assert (_codes(twice.response.results), twice.records) == ([E.INVALID_REQUEST], [])


def _alteration(kind: int, name: str, *edits: tuple[str, int, str | None]) -> Any:
    configs = [
        m.IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in edits
    ]
    return m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=configs
    )


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        (_alteration(2, "a", ("retention.ms", 0, "7")), E.NONE),
        (_alteration(2, "a", ("cleanup.policy", 2, "compact")), E.NONE),
        (_alteration(2, "a", ("retention.ms", 0, "x")), E.INVALID_CONFIG),
        (_alteration(2, "a", ("nope", 0, "x")), E.INVALID_CONFIG),
        (_alteration(2, "a", ("retention.ms", 2, "8")), E.INVALID_CONFIG),
        (_alteration(2, "a", ("retention.ms", 0, None)), E.INVALID_REQUEST),
        (_alteration(2, "a", ("retention.ms", 0, "1"), ("retention.ms", 0, "2")), E.INVALID_REQUEST),
        (_alteration(2, "none", ("retention.ms", 0, "7")), E.UNKNOWN_TOPIC_OR_PARTITION),
        (_alteration(2, "", ("retention.ms", 0, "7")), E.INVALID_REQUEST),
        (_alteration(2, "a b", ("retention.ms", 0, "7")), E.INVALID_TOPIC_EXCEPTION),
        (_alteration(4, "1", ("log.retention.ms", 0, "1000")), E.NONE),
        (_alteration(4, "", ("log.retention.ms", 0, "1000")), E.NONE),
        (_alteration(4, "2", ("log.retention.ms", 0, "1000")), E.INVALID_REQUEST),
        (_alteration(4, "x", ("log.retention.ms", 0, "1000")), E.INVALID_REQUEST),
        (_alteration(4, "1", ("log.dirs", 0, "/x")), E.INVALID_REQUEST),
        (_alteration(99, "1", ("x", 0, "1")), E.INVALID_REQUEST),
    ],
)
def test_incremental_alter_configs(make_state: State, after: After, resource: Any, code: int) -> None:
    state = make_state()
    state = after(state, _create(state, _topic("a")))
    result = incremental_alter_configs(state, m.IncrementalAlterConfigsRequest(resources=[resource]))
    assert _codes(result.response.responses) == [code]
    assert bool(result.records) == (code == E.NONE)
    request = m.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
    assert incremental_alter_configs(state, request).records == []
    twice = incremental_alter_configs(state, m.IncrementalAlterConfigsRequest(resources=[resource, resource]))
    assert _codes(twice.response.responses) == [E.INVALID_REQUEST] * 2


def test_alter_configs_replaces_everything(make_state: State, after: After) -> None:
    state = make_state()
    state = after(state, _create(state, _topic("a", configs={"retention.ms": "5", "segment.ms": "100"})))
    resource = m.AlterConfigsRequest.AlterConfigsResource(
        resource_type=2,
        resource_name="a",
        configs=[m.AlterConfigsRequest.AlterableConfig(name="segment.ms", value="200")],
    )
    result = alter_configs(state, m.AlterConfigsRequest(resources=[resource]))
    assert _codes(result.response.responses) == [E.NONE]
    assert after(state, result).image.topic_config("a") == {"segment.ms": "200"}
    assert alter_configs(state, m.AlterConfigsRequest(resources=[resource], validate_only=True)).records == []
    resource.configs = [m.AlterConfigsRequest.AlterableConfig(name="segment.ms", value=each) for each in ("1", "2")]
    twice = alter_configs(state, m.AlterConfigsRequest(resources=[resource]))
    assert (_codes(twice.response.responses), twice.records) == ([E.INVALID_REQUEST], [])


def test_producer_id_blocks(make_state: State, after: After) -> None:
    state = make_state()
    for start in (0, 1000):
        result = allocate_producer_ids(state, m.AllocateProducerIdsRequest(broker_id=1, broker_epoch=1))
        assert (result.response.producer_id_start, result.response.producer_id_len) == (start, 1000)
        state = after(state, result)
    for known_id, start in ((500, 2000), (2999, 3000), (3000, 4000)):
        request = m.AllocateProducerIdsRequest(broker_id=1, broker_epoch=1)
        assert allocate_producer_ids(state, request, known_id).response.producer_id_start == start
    for broker_id, epoch in ((1, 2), (9, 1)):
        stale = allocate_producer_ids(state, m.AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch))
        assert (stale.response.error_code, stale.records) == (E.STALE_BROKER_EPOCH, [])


def test_registration_elects_and_fencing_ends_it(make_state: State, after: After) -> None:
    state = make_state(brokers=2)
    assigned = [(0, [1, 2]), (1, [2, 1])]
    state = after(state, _create(state, _topic("a", 2, 1), _topic("b", -1, -1, assignments=assigned)))
    registration = Registration(b"i" * 16, (Endpoint("PLAINTEXT", "h", 9092, 0),), "rack", (DIRECTORY,))
    result = register_broker(state, registration)
    assert result.response == state.next_offset
    state = after(state, result)
    broker = state.image.cluster.brokers[1]
    assert (broker.epoch, broker.fenced, broker.rack, broker.directories) == (
        result.response,
        False,
        "rack",
        (DIRECTORY,),
    )
    for topic in state.image.topics.by_name.values():
        for partition in topic.partitions.values():
            led_here = 1 in partition.replicas
            assert (partition.leader == 1) == led_here
            assert partition.leader_epoch == int(led_here)
            assert not led_here or partition.isr == (1,)
    fenced = after(state, fence_broker(state))
    assert fenced.image.cluster.brokers[1].fenced
    assert fence_broker(fenced).records == []


def test_what_lies_in_a_dir_out_of_service_has_no_leader(make_state: State, after: After) -> None:
    """As Apache Kafka without eligible leader replicas: the last one in sync stays in sync."""
    state = make_state(directories=2)
    first, second = state.image.cluster.brokers[1].directories
    state = after(state, _create(state, _topic("a", 4)))
    assert change_directories(state, [second, first], ()).records == []
    result = change_directories(state, [first], ())
    assert [type(each.record).__name__ for each in result.records] == [
        "PartitionChangeRecord",
        "PartitionChangeRecord",
        "BrokerRegistrationChangeRecord",
    ]
    lost = after(state, result)
    for partition in lost.image.topics.by_name["a"].partitions.values():
        is_here = partition.directories == (first,)
        assert (partition.leader, partition.leader_epoch) == ((1, 0) if is_here else (-1, 1))
        assert partition.isr == (1,)
    assert change_directories(lost, [first], ()).records == []
    # The same at a start without the dir, and after one with it everything is led again.
    for begun in (state, lost):
        registered = after(begun, register_broker(begun, Registration(b"i" * 16, (), None, (first,))))
        for partition in registered.image.topics.by_name["a"].partitions.values():
            assert (partition.leader == 1) == (partition.directories == (first,))
        whole = after(registered, register_broker(registered, Registration(b"i" * 16, (), None, (first, second))))
        assert {each.leader for each in whole.image.topics.by_name["a"].partitions.values()} == {1}


def test_registration_elects_the_eligible(make_state: State, after: After) -> None:
    """What Apache Kafka leaves after a clean stop with eligible leader replicas."""
    state = make_state()
    state = after(state, _create(state, _topic("a")))
    topic_id = state.image.topics.by_name["a"].id
    stopped = m.PartitionChangeRecord(
        topic_id=topic_id, partition_id=0, isr=[], leader=-1, eligible_leader_replicas=[1], last_known_elr=[1]
    )
    state = after(state, type("Result", (), {"records": [(stopped, 2)]}))
    state = after(state, register_broker(state, Registration(b"i" * 16, (), None, (DIRECTORY,))))
    partition = state.image.topics.by_name["a"].partitions[0]
    assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1,), 2)
    assert partition.eligible_leader_replicas == partition.last_known_elr == ()


def test_auto_created_topics(make_state: State) -> None:
    config = BrokerConfig.load(None, ["offsets.topic.num.partitions=7", "num.partitions=4"])
    request = auto_create_request(config, ["plain", "__consumer_offsets"], 1)
    plain, offsets = request.topics
    assert (plain.num_partitions, plain.replication_factor) == (4, 1)
    assert (offsets.num_partitions, offsets.replication_factor) == (7, 1)
    result = create_topics(make_state(), request, 7)
    assert _codes(result.response.topics) == [E.NONE, E.NONE]
    assert {each.name: each.value for each in offsets.configs}["cleanup.policy"] == "compact"


def test_the_offsets_topic_of_a_cluster_waits_for_its_replicas() -> None:
    settings = ["node.id=1", "process.roles=broker", "controller.quorum.bootstrap.servers=c:9093"]
    (topic,) = auto_create_request(BrokerConfig.load(None, settings), ["__consumer_offsets"], 1).topics
    assert topic.replication_factor == 3
