"""Which brokers partitions get when the number of their replicas changes."""

from __future__ import annotations

from collections import Counter

import pytest

from pybroker.client.reassignments import plan
from pybroker.client.topics import Partition, Topic

NO_RACKS: dict[int, str | None] = {1: None, 2: None, 3: None}


def topic(name: str, *replicas: tuple[int, ...]) -> Topic:
    partitions = [Partition(index, each[0], 0, each, each, ()) for index, each in enumerate(replicas)]
    return Topic(name, bytes(16), False, tuple(partitions))


def test_one_broker_becomes_three() -> None:
    found = plan([topic("a", (1,), (1,), (1,)), topic("b", (1,))], NO_RACKS, 3)
    assert set(found) == {("a", 0), ("a", 1), ("a", 2), ("b", 0)}
    assert all(sorted(replicas) == [1, 2, 3] for replicas in found.values())
    assert Counter(replicas[0] for replicas in found.values()) == {1: 2, 2: 1, 3: 1}, "leaders are spread"


def test_replicas_are_spread() -> None:
    found = plan([topic("a", *[(1,)] * 6)], NO_RACKS, 2)
    assert Counter(each for replicas in found.values() for each in replicas) == {1: 6, 2: 3, 3: 3}


def test_what_is_right_is_left_alone() -> None:
    assert plan([topic("a", (1, 2), (2, 3), (3, 1))], NO_RACKS, 2) == {}


def test_new_replicas_go_to_other_racks() -> None:
    racks: dict[int, str | None] = {1: "east", 2: "east", 3: "west", 4: "west"}
    found = plan([topic("a", (1,), (3,), (1,), (3,))], racks, 2)
    assert all({racks[each] for each in replicas} == {"east", "west"} for replicas in found.values())


def test_fewer_replicas_on_certain_brokers() -> None:
    found = plan([topic("a", (1, 2, 3), (2, 3, 1), (3,))], {1: None}, 1)
    assert found == {("a", 0): [1], ("a", 1): [1], ("a", 2): [1]}


@pytest.mark.parametrize("factor", [0, 4])
def test_too_few_brokers(factor: int) -> None:
    with pytest.raises(ValueError, match="need as many brokers"):
        plan([topic("a", (1,))], NO_RACKS, factor)
