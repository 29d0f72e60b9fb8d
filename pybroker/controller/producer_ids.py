"""Producer ids for InitProducerId, handed out from blocks that the controller allocates (KIP-730).

Runs on the asyncio loop. A restart begins a new block: ids are never used twice, some never at all. Nor are those that
the logs know of: metadata that were restored from a backup may not, and to a log the first records of a producer with a
former one's id are repetitions, which are acknowledged and not written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError, known_code


class ProducerIdManager:
    """`allocate` fetches a block above an id, such as `Controller.allocate_producer_ids`; `known_id` is the largest one
    that was found in a log, -1 without any."""

    def __init__(
        self, allocate: Callable[[int], Awaitable[m.AllocateProducerIdsResponse]], known_id: Callable[[], int]
    ) -> None:
        self._allocate = allocate
        self._known_id = known_id
        #: What it was when the block was asked for.
        self._passed_id = -1
        self._next = 0
        self._end = 0
        self._refill = asyncio.Lock()

    async def next_producer_id(self) -> int:
        """An id no producer has had. KafkaError with the controller's code when there is none; MetadataLogError."""
        while not self._has_next():
            async with self._refill:
                if self._has_next():
                    continue
                known_id = self._known_id()
                response = await self._allocate(known_id)
                if response.error_code != ErrorCode.NONE:
                    raise KafkaError(known_code(response.error_code), "no block of producer ids could be allocated")
                if response.producer_id_len <= 0:
                    raise KafkaError(
                        ErrorCode.UNKNOWN_SERVER_ERROR, "the controller gave an empty block of producer ids"
                    )
                self._passed_id = known_id
                self._next = response.producer_id_start
                self._end = self._next + response.producer_id_len
        producer_id = self._next
        self._next += 1
        return producer_id

    def _has_next(self) -> bool:
        """A log that is opened late, because its disk was away, may know more than is left of the block. A controller
        that gives blocks as it likes has the last word."""
        known_id = self._known_id()
        return self._next < self._end and (known_id < self._next or known_id <= self._passed_id)
