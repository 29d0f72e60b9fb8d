"""Producer ids for InitProducerId, handed out from blocks that the controller allocates (KIP-730).

Runs on the asyncio loop. A restart begins a new block: ids are never used twice, some never at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError


class ProducerIdManager:
    """`allocate` fetches a block, such as `Controller.allocate_producer_ids`."""

    def __init__(self, allocate: Callable[[], Awaitable[m.AllocateProducerIdsResponse]]) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._refill = asyncio.Lock()

    async def next_producer_id(self) -> int:
        """An id no producer has had. KafkaError with the controller's code when there is none; MetadataLogError."""
        while self._next >= self._end:
            async with self._refill:
                if self._next < self._end:
                    continue
                response = await self._allocate()
                if response.error_code != ErrorCode.NONE:
                    raise KafkaError(ErrorCode(response.error_code), "no block of producer ids could be allocated")
                self._next = response.producer_id_start
                self._end = self._next + response.producer_id_len
        producer_id = self._next
        self._next += 1
        return producer_id
