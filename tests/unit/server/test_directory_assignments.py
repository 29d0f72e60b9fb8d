"""`DirectoryAssignments`: which log dir has a partition is told to the controller, until the end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from pybroker.server.directory_assignments import DirectoryAssignments

TOPIC, HERE, ELSEWHERE = b"t" * 16, b"h" * 16, b"e" * 16


class Controller:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[dict[tuple[bytes, int], bytes]] = []

    async def assign_directories(self, due: dict[tuple[bytes, int], bytes]) -> None:
        self.told.append(due)


def moved() -> Any:
    """A delta with a partition that the metadata has in another log dir."""
    partition = SimpleNamespace(replicas=(1,), directory=lambda _node: ELSEWHERE)
    return SimpleNamespace(topics_changed={TOPIC: SimpleNamespace(name="t", id=TOPIC, partitions={0: partition})})


def test_nothing_is_told_after_the_end() -> None:
    """Metadata arrive for a while longer, and the controller may be gone by then."""
    log = SimpleNamespace(topic_id=TOPIC, directory=SimpleNamespace(directory_id=HERE))
    logs: Any = SimpleNamespace(logs={("t", 0): log})
    controller: Any = Controller()
    image: Any = None

    async def run() -> None:
        assignments = DirectoryAssignments(1, logs, controller)
        assignments.publish(moved(), image)
        await asyncio.sleep(0)
        assert controller.told == [{(TOPIC, 0): HERE}]
        await assignments.stop()
        assignments.publish(moved(), image)
        await asyncio.sleep(0)
        assert len(controller.told) == 1

    asyncio.run(run())
