"""Many calls at a time, but not all of them: a request of some megabytes may ask for millions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from itertools import islice
from typing import Any, TypeVar

from pybroker.server.stepping import resume
from pybroker.turns import in_slices

Result = TypeVar("Result")

#: As many tasks as the loop runs without others noticing.
AT_ONCE = 1000


async def in_turns(calls: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """The results of all, in their order. `calls` is gone through as they begin, at most `AT_ONCE` at a time; what one
    raises is raised, and no more are begun.

    A call has a Task only once it waits: what is refused at once costs none. The loop goes round between turns.
    """
    remaining = iter(calls)
    results: list[Any] = []
    while True:
        begun_count = len(results)
        waiting = await _begin(islice(remaining, AT_ONCE), results)
        for place, result in zip(waiting, await asyncio.gather(*waiting.values()), strict=True):
            results[place] = result
        if len(results) < begun_count + AT_ONCE:
            return results
        if not waiting:
            await asyncio.sleep(0)


async def _begin(calls: Iterable[Coroutine[Any, Any, Any]], results: list[Any]) -> dict[int, Awaitable[Any]]:
    """Step each call once and append its result. Those that wait get None for now, and are returned by its place."""
    waiting: dict[int, Awaitable[Any]] = {}
    async for call in in_slices(calls):
        try:
            waits_for = call.send(None)
        except StopIteration as done:
            results.append(done.value)
        else:
            waiting[len(results)] = resume(call, waits_for)
            results.append(None)
    return waiting
