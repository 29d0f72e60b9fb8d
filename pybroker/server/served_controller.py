"""`ServedController`: the controller as request handlers see it. On the asyncio loop.

The controller answers when its records are durable and replayed. A client that is told of its new topic produces to it
at once, so here an answer waits until this broker's partitions follow the metadata, too.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pybroker.protocol import messages as m
from pybroker.protocol.envelope import Origin
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.server.metadata_controller import MetadataController

#: The longest wait of an answer, whatever the client allows. Its connection is not that patient (librdkafka gives a
#: request up after `socket.timeout.ms`), and it would ask again for what is there already.
_MOST_MS = 5_000


class ServedController:
    """Changes of the metadata that are in effect on this broker when they return, or durable and on their way there
    when that takes too long for the client. See `MetadataController`."""

    def __init__(self, controller: MetadataController, replicas: ReplicaManager) -> None:
        self._controller = controller
        self._replicas = replicas

    @property
    def forwarding_ranges(self) -> tuple[tuple[int, int, int], ...] | None:
        """As `MetadataController` says."""
        return self._controller.forwarding_ranges

    async def perform(self, request: m.Message, version: int, origin: Origin) -> Any:
        """The response to `request`, which is of that version and comes from `origin`."""
        response = await self._controller.perform(request, version, origin)
        timeout_ms: int = min(getattr(request, "timeout_ms", _MOST_MS), _MOST_MS)
        # The metadata holds, as in Kafka, also before it is in effect here: being late is no failure. The first step of
        # a handler is in no task, where asyncio.timeout refuses to work.
        settled = asyncio.ensure_future(self._replicas.settled())
        await asyncio.wait([settled], timeout=max(timeout_ms, 0) / 1000)
        return response

    def newest_version(self, request: m.Message) -> int:
        """The newest version of `request` that the controller takes, for requests that this broker makes itself."""
        versions = {key: high for key, _, high in self.forwarding_ranges or ()}
        return min(request.MAX_VERSION, versions.get(request.API_KEY or 0, request.MAX_VERSION))
