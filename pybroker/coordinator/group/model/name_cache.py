"""Remembers what was made of names of groups."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from typing import TypeVar

_Other = TypeVar("_Other", bound=Hashable)
_Made = TypeVar("_Made")

#: Anybody may ask for groups of any name, up to 32 KiB long. Results for longer names are not kept.
_KEPT_NAME_LENGTH = 256


def cached_by_group(maxsize: int) -> Callable[[Callable[[str, _Other], _Made]], Callable[[str, _Other], _Made]]:
    """`lru_cache` for a function of a group's name and one thing more."""

    def decorate(make: Callable[[str, _Other], _Made]) -> Callable[[str, _Other], _Made]:
        kept = lru_cache(maxsize=maxsize)(make)

        @wraps(make)
        def call(group_id: str, other: _Other) -> _Made:
            return kept(group_id, other) if len(group_id) <= _KEPT_NAME_LENGTH else make(group_id, other)

        return call

    return decorate
