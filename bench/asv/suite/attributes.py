"""The attributes of a benchmark function that ASV looks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


def attributes(**values: Any) -> Callable[[_Function], _Function]:
    """A decorator that gives a function ASV's attributes, such as `unit` and `timeout` (seconds)."""

    def give(function: _Function) -> _Function:
        vars(function).update(values)
        return function

    return give
