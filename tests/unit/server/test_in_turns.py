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


def test_what_one_raises_is_raised_and_no_more_begin() -> None:
    begun = 0

    async def fail(number: int) -> None:
        nonlocal begun
        begun += 1
        if number == 1:
            raise ValueError("the second")

    with pytest.raises(ValueError, match="the second"):
        asyncio.run(in_turns(fail(number) for number in range(2 * AT_ONCE)))
    assert begun == AT_ONCE
