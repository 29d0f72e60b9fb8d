"""Work that takes long, in slices of the asyncio loop, so that nobody else waits long for a turn.

Long work asks between elements whether its slice is over, and then waits for the next one: in a handler by
`async for each in in_slices(many)`. One of all that wait goes on in each round of the loop, so a round has one slice of
them, whatever their number. Work that fits into a slice never waits. Belongs to the loop's thread.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

SLICE_NS = 5_000_000
"""A round has the slice of what has just come, and one of what has waited: half of the 20 ms that it may take."""

_DROPPED_COUNT = 64
_SHARDS = 256
_SHARD_COUNT = 4_096


class Turns:
    """The slices of one loop. `clock_ns` never goes back."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._loop = loop
        self._clock_ns = clock_ns
        #: 0: nothing has asked in this round.
        self._end_ns = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    def begin(self) -> None:
        """A slice begins now; it is over with this round of the loop at the latest."""
        if self._end_ns == 0:
            self._loop.call_soon(self._end_round)
        self._end_ns = self._clock_ns() + SLICE_NS

    def is_over(self) -> bool:
        """Whether the work that has the loop should leave it. The first to ask in a round begins its slice."""
        if self._end_ns == 0:
            self.begin()
            return False
        return self._clock_ns() >= self._end_ns

    def _end_round(self) -> None:
        self._end_ns = 0

    def is_next(self, future: Any) -> bool:
        """Whether that is what somebody waits for who waits for a slice."""
        return future in self._waiting

    async def next(self) -> None:
        """Wait for the next slice, behind all who wait for one already."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(waiter)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._pass_on)
        await waiter
        self.begin()

    def _pass_on(self) -> None:
        """Let one go on, in the next round."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            self._loop.call_soon(self._pass_on)


_known: list[Turns] = []


def current() -> Turns:
    """Those of the running loop."""
    loop = asyncio.get_running_loop()
    if _known and _known[-1]._loop is loop:
        return _known[-1]
    for each in _known:
        if each._loop is loop:
            return each
    return install(Turns(loop))


def install(turns: Turns) -> Turns:
    """Use these for their loop from now on."""
    _known[:] = [each for each in _known if each._loop is not turns._loop and not each._loop.is_closed()]
    _known.append(turns)
    return turns


async def in_slices(items: Iterable[T], every: int = 16) -> AsyncIterator[T]:
    """The items; after each `every` of them the loop may go round. 1 is for those that take a part of a millisecond."""
    turns: Turns | None = None
    left = every
    for item in items:
        if left == 0:
            left = every
            turns = turns or current()
            if turns.is_over():
                await turns.next()
        left -= 1
        yield item


async def run_in_slices(steps: Generator[None, None, T]) -> T:
    """The result of a generator that yields where it can be interrupted."""
    turns = current()
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        if turns.is_over():
            await turns.next()


def run_at_once(steps: Generator[None, None, T]) -> T:
    """The result of such a generator, without a pause: where it is short, or nobody waits."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


async def pause() -> None:
    """Wait for the next slice if this one is over: for one of many tasks that go on at the same time."""
    turns = current()
    if turns.is_over():
        await turns.next()


class SteadyDict(Generic[K, V]):
    """A dictionary that never takes long to grow: a plain one of a million keys takes 20 ms or more when it has to. It
    keeps the order in which keys came."""

    __slots__ = ("_order", "_shards")

    def __init__(self) -> None:
        self._shards: list[dict[K, V]] = [{}]
        self._order: list[K] = []

    def _shard(self, key: K) -> dict[K, V]:
        return self._shards[hash(key) % len(self._shards)]

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, key: object) -> bool:
        return key in self._shards[hash(key) % len(self._shards)]

    def __getitem__(self, key: K) -> V:
        return self._shard(key)[key]

    def __setitem__(self, key: K, value: V) -> None:
        shard = self._shard(key)
        if key not in shard:
            self._order.append(key)
        shard[key] = value
        if len(self._shards) == 1 and len(shard) > _SHARD_COUNT:
            self._spread(shard)

    def get(self, key: K) -> V | None:
        return self._shard(key).get(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self._order)

    def items(self) -> Iterator[tuple[K, V]]:
        return ((key, self[key]) for key in self._order)

    def values(self) -> Iterator[V]:
        return (self[key] for key in self._order)

    def popitem(self) -> tuple[K, V]:
        """Take the last one out."""
        key = self._order.pop()
        return key, self._shard(key).pop(key)

    def _spread(self, whole: dict[K, V]) -> None:
        self._shards = [{} for _ in range(_SHARDS)]
        for key, value in whole.items():
            self._shard(key)[key] = value


async def drop(items: Any) -> None:
    """Empty a list, dictionary or set that nobody needs any more: to free a million objects takes long."""
    turns = current()
    while items:
        if isinstance(items, list):
            del items[-_DROPPED_COUNT:]
        else:
            take = items.pop if isinstance(items, set) else items.popitem
            for _ in range(min(len(items), _DROPPED_COUNT)):
                take()
        if turns.is_over():
            await turns.next()
