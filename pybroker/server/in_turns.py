"""Many calls at a time, but not all of them: a request of some megabytes may ask for millions."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from itertools import islice
from typing import Any, TypeVar

Result = TypeVar("Result")

#: As many tasks as the loop runs without others noticing.
AT_ONCE = 1000


async def in_turns(calls: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """The results of all, in their order. `calls` is gone through as they begin, at most `AT_ONCE` at a time; what one
    raises is raised, and no more are begun."""
    remaining = iter(calls)
    results: list[Result] = []
    while some := list(islice(remaining, AT_ONCE)):
        results += await asyncio.gather(*some)
    return results
