"""The end of `ProducerIdManager`; its blocks are tested with the controller that gives them."""

from __future__ import annotations

import asyncio

from pybroker.controller.producer_ids import ProducerIdManager
from pybroker.protocol import messages as m


def test_no_block_is_asked_for_after_the_end() -> None:
    """Producers are served for a while longer, and the controller may be gone by then."""
    asked: list[int] = []

    async def allocate(known_id: int) -> m.AllocateProducerIdsResponse:
        asked.append(known_id)
        return m.AllocateProducerIdsResponse(producer_id_start=0, producer_id_len=10)

    async def run() -> None:
        ids = ProducerIdManager(allocate, lambda: -1)
        assert ids.take() is None
        await ids.settled()
        await ids.close()
        assert [ids.take() for _ in range(12)] == [*range(10), None, None]
        await asyncio.sleep(0)
        assert asked == [-1]

    asyncio.run(run())
