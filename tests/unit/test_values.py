"""`Value`: what a frozen data class with slots gives."""

from __future__ import annotations

import copy
import pickle
from dataclasses import field
from typing import Generic, TypeVar

import pytest

from pybroker.values import Value

T = TypeVar("T")


class Point(Value):
    """Two fields, one with a default."""

    x: int
    y: int = 0


class Named(Point):
    """One more than its base."""

    name: str = "origin"


class Other(Value):
    """As a point."""

    x: int
    y: int = 0


class Bag(Value, Generic[T]):
    """A default of its own for each."""

    items: list[T] = field(default_factory=list)
    first: T | None = None


class Nothing(Value):
    """No field at all."""


def test_fields_are_given_by_place_or_by_name() -> None:
    assert (Point(1, 2).x, Point(y=2, x=1).y, Point(3).y) == (1, 2, 0)
    for wrong in ((), (1, 2, 3)):
        with pytest.raises(TypeError):
            Point(*wrong)
    with pytest.raises(TypeError):
        Point(1, z=3)  # type: ignore[call-arg]  # there is no such field


def test_a_value_never_changes() -> None:
    point = Point(1)
    for name in ("x", "z"):
        with pytest.raises(AttributeError):
            setattr(point, name, 2)
        with pytest.raises(AttributeError):
            delattr(point, name)
    assert point == Point(1)
    assert not hasattr(point, "__dict__")


def test_values_are_equal_with_equal_fields_of_one_class() -> None:
    assert Point(1, 2) == Point(1, 2) != Point(1, 3)
    assert Point(1, 2) != Other(1, 2)
    assert Point(1, 2) != (1, 2)
    assert Nothing() == Nothing()
    assert len({Point(1), Point(1), Point(2), Other(1), Nothing(), Nothing()}) == 4


def test_a_subclass_has_the_fields_of_its_base_as_well() -> None:
    assert Point(1) == Point(1)  # whose `__init__` is made before that of the class below
    named = Named(1, name="n")
    assert (named.x, named.y, named.name) == (1, 0, "n")
    assert named != Point(1)
    assert repr(named) == "Named(x=1, y=0, name='n')"


def test_a_default_factory_makes_one_for_each() -> None:
    first, second = Bag[int](), Bag[int]()
    assert first.items == [] and first.items is not second.items
    assert Bag([1]).items == [1]


def test_replace_leaves_the_original_as_it_is() -> None:
    point = Point(1, 2)
    assert point.replace(y=5) == Point(1, 5)
    assert point == Point(1, 2)
    with pytest.raises(TypeError):
        point.replace(z=1)


def test_as_dict_goes_into_what_is_inside() -> None:
    bag = Bag([Point(1)], Point(2))
    assert bag.as_dict() == {"items": [{"x": 1, "y": 0}], "first": {"x": 2, "y": 0}}
    assert Bag([{"a": (Point(3),)}]).as_dict()["items"] == [{"a": ({"x": 3, "y": 0},)}]


def test_patterns_copies_and_pickles() -> None:
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)
    named = Named(1, 2, "n")
    assert [copy.copy(named), copy.deepcopy(named), pickle.loads(pickle.dumps(named))] == [named] * 3
