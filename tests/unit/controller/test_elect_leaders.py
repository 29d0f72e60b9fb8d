"""ElectLeaders: rows, error codes and records. Codes are those Apache Kafka answers."""

from collections.abc import Callable
from typing import Any

import pytest

from pybroker.controller.elect_leaders import elect_leaders
from pybroker.controller.state import ControllerResult, ControllerState
from pybroker.metadata.image import NO_LEADER
from pybroker.metadata.records import VersionedRecord
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

State = Callable[..., ControllerState]
After = Callable[..., ControllerState]
E = ErrorCode
PREFERRED, UNCLEAN = 0, 1
OWN_DIRECTORY, OTHER_DIRECTORY, LOST = bytes([1, 0]) * 8, bytes([2, 0]) * 8, bytes([9, 9]) * 8
TOPIC_ID = bytes(15) + b"\x05"


def _with_partitions(state: ControllerState, after: After, *partitions: dict[str, Any]) -> ControllerState:
    """The topic `left`, as another cluster may have left it: `partitions` override a partition without a leader on
    brokers 2 and 1, whose last replica in sync is on 2."""
    records: list[Any] = [m.TopicRecord(name="left", topic_id=TOPIC_ID)]
    for index, fields in enumerate(partitions):
        defaults = {
            "replicas": [2, 1],
            "isr": [2],
            "leader": NO_LEADER,
            "directories": [OTHER_DIRECTORY, OWN_DIRECTORY],
            "leader_epoch": 4,
            "partition_epoch": 6,
        }
        records.append(m.PartitionRecord(partition_id=index, topic_id=TOPIC_ID, **{**defaults, **fields}))
    versioned: list[VersionedRecord] = [state.versioned(record) for record in records]
    return after(state, ControllerResult(None, versioned))


def _codes(answer: m.ElectLeadersResponse) -> dict[str, dict[int, int]]:
    return {
        topic.topic: {row.partition_id: row.error_code for row in topic.partition_result}
        for topic in answer.replica_election_results
    }


def _request(kind: int, **wanted: list[int]) -> m.ElectLeadersRequest:
    topics = [m.ElectLeadersRequest.TopicPartitions(topic=name, partitions=indexes) for name, indexes in wanted.items()]
    return m.ElectLeadersRequest(election_type=kind, topic_partitions=topics or None)


def test_an_unclean_election_makes_this_broker_the_leader(make_state: State, after: After) -> None:
    elr = {"eligible_leader_replicas": [2], "last_known_elr": [1]}
    state = _with_partitions(make_state(), after, {}, elr, {"isr": [1], "leader": 1}, {"replicas": [2, 3]})
    result = elect_leaders(state, _request(UNCLEAN, left=[0, 1, 2, 3, 9, 0], absent=[0]))
    rows = {0: E.NONE, 1: E.NONE, 2: E.ELECTION_NOT_NEEDED, 3: E.ELIGIBLE_LEADERS_NOT_AVAILABLE}
    assert _codes(result.response) == {
        "left": {**rows, 9: E.UNKNOWN_TOPIC_OR_PARTITION},
        "absent": {0: E.UNKNOWN_TOPIC_OR_PARTITION},
    }
    assert len(result.records) == 2, "a partition named twice is elected once"
    partitions = after(state, result).image.topics.by_name["left"].partitions
    for index in (0, 1):
        elected = partitions[index]
        assert (elected.leader, elected.isr, elected.leader_epoch) == (1, (1,), 5)
        assert (elected.eligible_leader_replicas, elected.last_known_elr) == ((), ())


def test_a_log_dir_out_of_service_elects_nobody(make_state: State, after: After) -> None:
    lost = {"replicas": [1], "isr": [1], "directories": [LOST]}
    state = _with_partitions(make_state(), after, lost)
    for kind, code in ((PREFERRED, E.PREFERRED_LEADER_NOT_AVAILABLE), (UNCLEAN, E.ELIGIBLE_LEADERS_NOT_AVAILABLE)):
        result = elect_leaders(state, _request(kind, left=[0]))
        assert (_codes(result.response), result.records) == ({"left": {0: code}}, [])


def test_of_all_partitions_only_those_that_need_an_election_are_told(make_state: State, after: After) -> None:
    led = {"replicas": [1], "isr": [1], "leader": 1, "directories": [OWN_DIRECTORY]}
    by_another = {"isr": [1], "leader": 1}
    state = _with_partitions(make_state(), after, led, by_another, {})
    not_available = dict.fromkeys((1, 2), E.PREFERRED_LEADER_NOT_AVAILABLE)
    assert _codes(elect_leaders(state, _request(PREFERRED)).response) == {"left": not_available}
    assert _codes(elect_leaders(state, _request(UNCLEAN)).response) == {"left": {2: E.NONE}}


@pytest.mark.parametrize("wanted", [{}, {"left": [0]}])
def test_an_unknown_type_is_refused(wanted: dict[str, list[int]], make_state: State, after: After) -> None:
    state = _with_partitions(make_state(), after, {})
    result = elect_leaders(state, _request(7, **wanted))
    assert result.response.error_code == E.INVALID_REQUEST
    assert _codes(result.response) == {name: dict.fromkeys(rows, E.INVALID_REQUEST) for name, rows in wanted.items()}
    assert result.records == []


def test_a_topic_that_a_request_repeats(make_state: State, after: After) -> None:
    """As in Apache Kafka each time counts."""
    state = _with_partitions(make_state(), after, {}, {})
    topics = [m.ElectLeadersRequest.TopicPartitions(topic="left", partitions=[index]) for index in (0, 1)]
    result = elect_leaders(state, m.ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=topics))
    rows = [(each.topic, each.partition_result[0].partition_id) for each in result.response.replica_election_results]
    assert rows == [("left", 0), ("left", 1)]
    assert len(result.records) == 2
