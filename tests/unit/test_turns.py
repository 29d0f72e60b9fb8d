"""Slices of the loop's rounds, by a clock that goes on with every look at it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Generator
from typing import Any

import pytest

from pybroker import turns
from pybroker.turns import SLICE_NS, SteadyDict, Turns, drop, in_slices, run_in_slices

LOOKS = 10
"""A slice is over after so many looks at the clock."""


def run(main: Coroutine[Any, Any, None]) -> None:
    async def with_clock() -> None:
        ticks = itertools.count(0, SLICE_NS // LOOKS)
        turns.install(Turns(asyncio.get_running_loop(), lambda: next(ticks)))
        await main

    asyncio.run(with_clock())


class Rounds:
    """Counts the rounds of the loop, and what is done in each."""

    def __init__(self) -> None:
        self.done: list[list[str]] = [[]]
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        self.done.append([])
        self._loop.call_soon(self._next)

    def note(self, what: str) -> None:
        self.done[-1].append(what)

    @property
    def most(self) -> int:
        return max(map(len, self.done))


@pytest.mark.parametrize("every", [1, 4])
def test_a_round_has_one_slice_whoever_wants_it(every: int) -> None:
    async def main() -> None:
        rounds = Rounds()

        async def work(name: str) -> None:
            async for _ in in_slices(range(200), every):
                rounds.note(name)

        await asyncio.gather(*(work(name) for name in "abc"))
        assert sum(map(len, rounds.done)) == 600
        # The first round has what all of them do before they look at the clock for the first time.
        assert max(map(len, rounds.done[2:])) <= (LOOKS + 1) * every
        busy = [each for each in rounds.done[3:] if each]
        assert all(len(set(each)) == 1 for each in busy), "one at a time"
        order = [each[0] for each in busy[:9]]
        assert order == order[:3] * 3, "and each in its turn"

    run(main())


def test_small_work_never_waits() -> None:
    async def main() -> None:
        async def work() -> list[int]:
            return [each async for each in in_slices(range(16))]

        step = work()
        for _ in range(3 * LOOKS):
            turns.current().is_over()
        with pytest.raises(StopIteration) as done:
            step.send(None)
        assert done.value.value == list(range(16))

    run(main())


def test_a_generator_is_run_in_slices() -> None:
    async def main() -> None:
        rounds = Rounds()

        def steps() -> Generator[None, None, str]:
            for _ in range(100):
                rounds.note("step")
                yield
            return "done"

        assert await run_in_slices(steps()) == "done"
        assert rounds.most <= LOOKS + 1 and len(rounds.done) >= 100 // (LOOKS + 1)

        def failing() -> Generator[None, None, str]:
            yield
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await run_in_slices(failing())

    run(main())


def test_a_waiter_that_is_cancelled_keeps_nobody_waiting() -> None:
    async def main() -> None:
        slices = turns.current()
        first, second = (asyncio.ensure_future(slices.next()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert first.cancelled()

    run(main())


class Counted:
    alive = 0

    def __init__(self) -> None:
        Counted.alive += 1

    def __del__(self) -> None:
        Counted.alive -= 1


def test_containers_are_emptied_in_slices() -> None:
    async def main() -> None:
        made: list[Any] = [
            [Counted() for _ in range(5_000)],
            {number: Counted() for number in range(5_000)},
            {Counted() for _ in range(5_000)},
        ]
        for items in made:
            rounds = Rounds()
            before = Counted.alive
            await drop(items)
            assert not items and Counted.alive == before - 5_000
            assert len(rounds.done) >= 5_000 // 64 // (LOOKS + 1)

    run(main())


def test_a_steady_dictionary_is_one() -> None:
    steady: SteadyDict[str, int] = SteadyDict()
    plain: dict[str, int] = {}
    for number in range(20_000):
        key = f"key {number * 7 % 15_000}"
        assert (key in steady) == (key in plain)
        steady[key] = plain[key] = number
    assert len(steady) == len(plain) and bool(steady)
    assert list(steady) == list(plain)
    assert list(steady.items()) == list(plain.items())
    assert list(steady.values()) == list(plain.values())
    assert steady["key 7"] == plain["key 7"] and steady.get("none") is None
    assert max(map(len, steady._shards)) < 4_096, "what grows is small"
    while plain:
        assert steady.popitem() == plain.popitem()
    assert not steady and len(steady) == 0


def test_each_loop_has_its_own() -> None:
    async def mine() -> Turns:
        assert turns.current() is turns.current()
        return turns.current()

    assert asyncio.run(mine()) is not asyncio.run(mine())
