"""`Departures`: logs on their way out, because their topic is deleted or their disk has failed. On the asyncio loop.

Closing a log waits for calls under way on it, which may take as long as a disk likes. Metadata that follows must not
wait so long for it; only another log of the same name must.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Coroutine
from typing import Any

from pybroker.storage.files.offset_checkpoint import TopicPartition

logger = logging.getLogger(__name__)

#: So long others wait, so that a client that is told of a deletion mostly finds the log gone.
_PATIENCE_S = 1.0


class Departures:
    """`finished` before the data plane is closed."""

    def __init__(self) -> None:
        self._leaving: dict[TopicPartition, asyncio.Task[None]] = {}

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._leaving

    def begin(self, key: TopicPartition, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let `work` close the log that has left the name `key`."""
        assert key not in self._leaving, f"{key[0]}-{key[1]} leaves twice"
        leaving = self._leaving[key] = asyncio.get_running_loop().create_task(work, name=f"end of {key[0]}-{key[1]}")
        leaving.add_done_callback(lambda task: self._left(key, task))
        return leaving

    def _left(self, key: TopicPartition, task: asyncio.Task[None]) -> None:
        del self._leaving[key]
        if not task.cancelled() and (defect := task.exception()) is not None:
            logger.error("%s-%d could not be closed", *key, exc_info=defect)

    async def begin_and_wait(self, key: TopicPartition, work: Coroutine[Any, Any, None]) -> bool:
        """`begin`, and return when it is done or late; whether it is done."""
        _, late = await asyncio.wait([self.begin(key, work)], timeout=_PATIENCE_S)
        return not late

    async def over(self, topic: str) -> None:
        """Return when no log of a topic of that name is on its way out: in the data plane a name belongs to one topic.
        OSError (EBUSY) when that takes long."""
        leaving = [task for key, task in self._leaving.items() if key[0] == topic]
        if leaving:
            _, late = await asyncio.wait(leaving, timeout=_PATIENCE_S)
            if late:
                raise OSError(errno.EBUSY, "a log of the topic that had this name before is still being closed")

    async def finished(self) -> None:
        """Return when none is."""
        if self._leaving:
            await asyncio.wait(list(self._leaving.values()))
