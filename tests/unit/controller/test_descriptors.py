"""Partitions for which the broker would have no file descriptors are refused, whoever adds them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pybroker.controller.create_partitions import create_partitions
from pybroker.controller.create_topics import create_topics
from pybroker.controller.state import ControllerState
from pybroker.native.descriptors import LogDescriptors
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

MakeState = Callable[..., ControllerState]
Topic = m.CreateTopicsRequest.CreatableTopic


def bounded(state: ControllerState, log_count: int | None) -> ControllerState:
    room = None if log_count is None else LogDescriptors(256, log_count)
    return ControllerState(state.image, state.config, state.node_id, state.next_offset, None, room)


@pytest.mark.parametrize("validate_only", [False, True])
def test_topics_that_find_no_descriptors_are_refused(make_state: MakeState, validate_only: bool) -> None:
    topics = [Topic(name=name, num_partitions=count, replication_factor=1) for name, count in COUNTS]
    request = m.CreateTopicsRequest(topics=topics, validate_only=validate_only)
    response = create_topics(bounded(make_state(), 10), request, 7).response
    codes = {each.name: each.error_code for each in response.topics}
    assert codes == {"fits": 0, "large": ErrorCode.POLICY_VIOLATION, "too": 0, "more": ErrorCode.POLICY_VIOLATION}
    refused = response.topics[1].error_message
    assert refused is not None
    assert "LimitNOFILE" in refused
    assert "256" in refused


COUNTS = (("fits", 6), ("large", 5), ("too", 4), ("more", 1))


def test_partitions_that_find_no_descriptors_are_refused(make_state: MakeState, after: MakeState) -> None:
    state = make_state()
    topics = [Topic(name=name, num_partitions=3, replication_factor=1) for name in ("a", "b")]
    state = bounded(after(state, create_topics(state, m.CreateTopicsRequest(topics=topics), 7)), 10)
    more = m.CreatePartitionsRequest.CreatePartitionsTopic
    request = m.CreatePartitionsRequest(
        topics=[more(name=name, count=count, assignments=None) for name, count in (("a", 6), ("b", 5))]
    )
    response = create_partitions(state, request).response
    assert [each.error_code for each in response.results] == [0, ErrorCode.POLICY_VIOLATION]
    assert "LimitNOFILE" in (response.results[1].error_message or "")


def test_nothing_is_refused_without_a_bound(make_state: MakeState) -> None:
    topics = [Topic(name="t", num_partitions=5000, replication_factor=1)]
    response = create_topics(bounded(make_state(), None), m.CreateTopicsRequest(topics=topics), 7).response
    assert response.topics[0].error_code == 0
