"""Calls are made in turns: all are answered in order, and no more than some exist at a time."""

from __future__ import annotations

import asyncio

import pytest

from pybroker.server.in_turns import AT_ONCE, in_turns


def test_all_are_answered_in_order_and_few_exist_at_a_time() -> None:
    running = 0
    most = 0

    async def double(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return 2 * number

    count = 3 * AT_ONCE + 1
    assert asyncio.run(in_turns(double(number) for number in range(count))) == list(range(0, 2 * count, 2))
    assert most == AT_ONCE
    assert asyncio.run(in_turns(double(number) for number in range(0))) == []


def test_what_does_not_wait_has_no_task_and_lets_the_loop_go_round() -> None:
    async def refuse(number: int) -> int:
        assert len(asyncio.all_tasks()) == 1
        return number

    async def run() -> None:
        turns = 0

        def go_round() -> None:
            nonlocal turns
            turns += 1
            loop.call_soon(go_round)

        loop = asyncio.get_running_loop()
        loop.call_soon(go_round)
        for count in (1, AT_ONCE, 3 * AT_ONCE + 1):
            assert await in_turns(refuse(number) for number in range(count)) == list(range(count))
        assert turns >= 4

    asyncio.run(run())


def test_two_may_wait_for_the_same() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[str] = loop.create_future()

        async def wait(number: int) -> str:
            return await opened if number % 2 else "at once"

        loop.call_later(0.001, opened.set_result, "later")
        assert await in_turns(wait(number) for number in range(4)) == ["at once", "later"] * 2

    asyncio.run(run())


def test_who_is_cancelled_cancels_what_waits() -> None:
    cancelled_count = 0

    async def wait() -> None:
        nonlocal cancelled_count
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled_count += 1
            raise

    async def run() -> None:
        task = asyncio.get_running_loop().create_task(in_turns(wait() for _ in range(3)))
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert cancelled_count == 3


@pytest.mark.parametrize("waits", [False, True])
def test_what_one_raises_is_raised_and_no_more_begin(waits: bool) -> None:
    begun = 0

    async def fail(number: int) -> None:
        nonlocal begun
        begun += 1
        if waits:
            await asyncio.sleep(0)
        if number == 1:
            raise ValueError("the second")

    with pytest.raises(ValueError, match="the second"):
        asyncio.run(in_turns(fail(number) for number in range(2 * AT_ONCE)))
    assert begun == (AT_ONCE if waits else 2)
