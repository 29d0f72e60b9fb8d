"""A coordinator over a log in memory, run in virtual time; what tests ask it in fewer words."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import scenario
import virtual_time
from broker_double import BrokerDouble, image_with, settle
from memory_writer import MemoryWriter

from pybroker.protocol import messages as m

TOPIC_ID = bytes(range(16))


NO_DELTA: Any = None


IMAGE = image_with({scenario.TOPIC: (TOPIC_ID, 100)})


def run(test: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await test

    virtual_time.run(bounded())


async def started(writer: MemoryWriter | None = None, **settings: Any) -> BrokerDouble:
    broker = BrokerDouble(IMAGE, writer or MemoryWriter(), **settings)
    await broker.start()
    return broker


def commit_error(response: m.OffsetCommitResponse) -> int:
    return response.topics[0].partitions[0].error_code


async def with_many_offsets(**settings: Any) -> BrokerDouble:
    """Offset 1 of a hundred partitions is committed in group g: more than fit into a batch."""
    broker = await started(**settings)
    broker.writer.max_message_bytes = 2000
    for first in range(0, 100, 10):
        partitions = [(index, 1, 1, "") for index in range(first, first + 10)]
        assert commit_error(await broker.call("a", 8, 9, scenario.commit("g", partitions=partitions))) == 0
    return broker


async def committed_offsets(broker: BrokerDouble, group: str = "g") -> dict[int, int]:
    found = (await broker.groups.fetch_all_offsets(group, False)).get(scenario.TOPIC, [])
    return {offset.partition: offset.offset for offset in found}


async def commit_held_back(broker: BrokerDouble) -> list[asyncio.Task[m.OffsetCommitResponse]]:
    """Offset n + 1 of partition n in group h: the first one's batch is on its way, the second one's waits for it."""
    broker.writer.hold()
    tasks = []
    for index in range(2):
        request = scenario.commit("h", partitions=[(index, index + 1, 1, "")])
        tasks.append(asyncio.create_task(broker.call("a", 8, 9, request)))
        await settle()
    return tasks
