"""A broker's services around a real `GroupCoordinator`, with a writer in memory; and a way to call handlers."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

from memory_writer import MemoryWriter

from pybroker.coordinator.group.coordinator import GroupCoordinator
from pybroker.coordinator.group.model.settings import GroupSettings
from pybroker.metadata.image import MetadataImage, PartitionRegistration, TopicImage, TopicsImage
from pybroker.protocol import messages as m
from pybroker.server.api import RequestContext
from pybroker.server.registry import load_apis

APIS = load_apis()


async def settle() -> None:
    """Let everything run that does not wait for time to pass."""
    for _ in range(100):
        await asyncio.sleep(0)


class SystemClock:
    """The running loop's clock, and the machine's wall clock, which can be put ahead."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def monotonic_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms


def image_with(topics: dict[str, tuple[bytes, int]]) -> MetadataImage:
    """An image with these topics: name to (id, partition count), all led by broker 1."""
    partition = PartitionRegistration((1,), (bytes(16),), (1,), (), (), (), (), 1, 0, 0, 0)
    images = [
        TopicImage(name, topic_id, dict.fromkeys(range(count), partition)) for name, (topic_id, count) in topics.items()
    ]
    return MetadataImage(
        "cluster",
        topics=TopicsImage({image.name: image for image in images}, {image.id: image for image in images}),
    )


class BrokerDouble:
    """One partition of `__consumer_offsets`; use inside a running loop."""

    def __init__(self, image: MetadataImage, writer: MemoryWriter, **settings: Any) -> None:
        values: dict[str, Any] = {"initial_rebalance_delay_ms": 0, "offsets_topic_partition_count": 1, **settings}
        self.writer = writer
        self.clock = SystemClock()
        self.groups = GroupCoordinator(GroupSettings(**values), writer, self.clock)
        self.services: Any = SimpleNamespace(groups=self.groups, metadata=SimpleNamespace(image=image))

    async def start(self) -> None:
        self.groups.start()
        self.groups.on_election(0, 1)
        await self.active()

    async def active(self) -> None:
        for _ in range(10_000):
            if self.groups.is_active(0):
                return
            await asyncio.sleep(0)
        raise AssertionError("the partition was not loaded")

    async def call(self, connection: str, api_key: int, version: int, request: Any) -> Any:
        """What a client gets: request and response go through their encodings of that version."""
        api = APIS[api_key]
        assert api.min_version <= version <= api.max_version
        decoded, _ = api.request.decode(version, request.encode(version))
        context = RequestContext(api_key, version, 7, connection, "127.0.0.1", "PLAINTEXT", "User:ANONYMOUS", 1)
        response = await api.handle(self.services, context, decoded)
        data = response if isinstance(response, bytes) else response.encode(version)
        return m.response_class(api_key).decode(version, data)[0]
