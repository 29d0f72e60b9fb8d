"""Producer ids for InitProducerId, handed out from blocks that the controller allocates (KIP-730).

Runs on the asyncio loop. As in Apache Kafka, nobody waits for a block: a client that finds none is told so, asks again,
and finds it. When nine tenths of a block are used the next one is asked for, so that mostly there is one.

A restart begins a new block: ids are never used twice, some never at all. Nor are ids that the logs know of, since
metadata restored from a backup may lack them. To a log the first records of a producer with a former one's id are
repetitions, which are acknowledged and not written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from pybroker.metadata.errors import MetadataLogError
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, code_name

logger = logging.getLogger(__name__)


class _Block:
    """Ids from `next_id` below `end`, asked for when the logs knew ids up to `passed_id`."""

    def __init__(self, start: int, length: int, passed_id: int) -> None:
        self.next_id = start
        self.end = start + length
        #: From here on the next block is asked for.
        self.low_from = start + length * 9 // 10
        self.passed_id = passed_id


class ProducerIdManager:
    """`allocate` fetches a block above an id, such as `Controller.allocate_producer_ids`; `known_id` is the largest one
    that was found in a log, -1 without any."""

    def __init__(
        self, allocate: Callable[[int], Awaitable[m.AllocateProducerIdsResponse]], known_id: Callable[[], int]
    ) -> None:
        self._allocate = allocate
        self._known_id = known_id
        #: The one that ids are taken from, and the one behind it.
        self._blocks: list[_Block] = []
        self._asking: asyncio.Task[None] | None = None
        self._is_closed = False

    def take(self) -> int | None:
        """An id no producer has had. None when there is none yet: the controller has been asked for a block."""
        while self._blocks and not self._has_next(self._blocks[0]):
            del self._blocks[0]
        if not self._blocks:
            self._ask()
            return None
        block = self._blocks[0]
        producer_id = block.next_id
        block.next_id += 1
        if block.next_id >= block.low_from and len(self._blocks) == 1:
            self._ask()
        return producer_id

    def _has_next(self, block: _Block) -> bool:
        """A log that is opened late, because its disk was away, may know more than is left of the block. A controller
        that gives blocks as it likes has the last word."""
        known_id = self._known_id()
        return block.next_id < block.end and (known_id < block.next_id or known_id <= block.passed_id)

    async def settled(self) -> None:
        """Return when the controller is not being asked."""
        if self._asking is not None:
            await asyncio.wait([self._asking])

    def _ask(self) -> None:
        if self._asking is None and not self._is_closed:
            self._asking = asyncio.get_running_loop().create_task(self._fetch_block(), name="producer ids")

    async def _fetch_block(self) -> None:
        try:
            known_id = self._known_id()
            response = await self._allocate(known_id)
            if response.error_code != ErrorCode.NONE:
                # While the broker registers, clients may be early.
                logger.warning("the controller gives no block of producer ids: %s", code_name(response.error_code))
            elif response.producer_id_len <= 0:
                logger.warning("the controller gives an empty block of producer ids")
            else:
                self._blocks.append(_Block(response.producer_id_start, response.producer_id_len, known_id))
        except MetadataLogError as error:
            # The broker is about to stop, and has said why.
            logger.warning("the controller gives no block of producer ids: %s", error)
        except Exception:  # a defect: the clients ask again
            logger.exception("no block of producer ids could be asked for")
        finally:
            self._asking = None

    async def close(self) -> None:
        """Ask for no more. Producers are given what is left of the blocks."""
        self._is_closed = True
        if self._asking is not None:
            self._asking.cancel()
            await self.settled()
