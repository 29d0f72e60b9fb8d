"""Coroutines that are stepped once before they get a Task, which costs more than most of them do till they are done."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any


def resume(stepped: Coroutine[Any, Any, Any], waits_for: Any) -> Awaitable[Any]:
    """Go on with a coroutine that was stepped once and then waited for `waits_for`, when what is returned is awaited.
    Call this at once: nobody else can wait for the same future before."""
    _mark(waits_for, is_blocking=False)
    return _resumed(stepped, waits_for)


def _mark(future: Any, *, is_blocking: bool) -> None:
    # By this a Task sees that a coroutine waits for a future, and takes the mark away when it has taken note of it.
    if isinstance(future, asyncio.Future):
        future._asyncio_future_blocking = is_blocking


@types.coroutine
def _resumed(stepped: Coroutine[Any, Any, Any], waits_for: Any) -> Generator[Any, Any, Any]:
    _mark(waits_for, is_blocking=True)
    while True:
        try:
            try:
                value = yield waits_for
            except BaseException as error:  # noqa: BLE001 - handed on to the coroutine, a cancellation too
                waits_for = stepped.throw(error)
            else:
                waits_for = stepped.send(value)
        except StopIteration as done:
            return done.value
