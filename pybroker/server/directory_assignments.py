"""`DirectoryAssignments`: tells the controllers in which log dir a new replica was put (KIP-858). On the asyncio loop.

The controllers choose the log dir of a replica on a broker that has only one in service. Where there are several they
leave it to the broker. They have to be told, or they could not say what is offline when a log dir fails.
"""

from __future__ import annotations

import asyncio

from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import MetadataImage, TopicImage
from pybroker.server.metadata_controller import MetadataController
from pybroker.storage.logs.log_manager import LogManager


class DirectoryAssignments:
    """A follower of the replica manager; `stop` before the controller is closed."""

    def __init__(self, node_id: int, logs: LogManager, controller: MetadataController) -> None:
        self._node_id = node_id
        self._logs = logs
        self._controller = controller
        self._due: dict[tuple[bytes, int], bytes] = {}
        self._telling: asyncio.Task[None] | None = None
        self._is_stopped = False

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """See `MetadataPublisher`."""
        del image
        for topic in delta.topics_changed.values():
            if topic is not None:
                self._look_at(topic)
        if self._due and self._telling is None and not self._is_stopped:
            self._telling = asyncio.get_running_loop().create_task(self._tell(), name="directory assignments")

    def _look_at(self, topic: TopicImage) -> None:
        for index, partition in topic.partitions.items():
            log = self._logs.logs.get((topic.name, index))
            if log is None or log.topic_id != topic.id or self._node_id not in partition.replicas:
                continue
            if partition.directory(self._node_id) != log.directory.directory_id:
                self._due[topic.id, index] = log.directory.directory_id

    async def _tell(self) -> None:
        try:
            while self._due:
                due, self._due = self._due, {}
                await self._controller.assign_directories(due)
        finally:
            self._telling = None

    async def stop(self) -> None:
        """Tell no more."""
        self._is_stopped = True
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.wait([self._telling])
