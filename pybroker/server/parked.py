"""Requests that wait for an event elsewhere: a future, and the function that answers it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def parked(response_class: type[T]) -> tuple[asyncio.Future[T], Callable[[T], None]]:
    """A future of the running loop for a `response_class`, and a function that sets it once.

    Setting it too late, after it has been cancelled because the client went away, is no error.
    """
    del response_class  # It only tells the type checker what T is.
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def reply(response: T) -> None:
        if not future.done():
            future.set_result(response)

    return future, reply
