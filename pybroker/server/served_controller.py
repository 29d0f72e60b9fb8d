"""`ServedController`: the controller as request handlers use it. On the asyncio loop.

The controller answers when its records are durable and replayed. A client that has created a topic produces to it at
once. So `ServedController` returns the answer when this broker has also applied the change to its partitions.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pybroker.protocol import messages as m
from pybroker.protocol.envelope import Origin
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.server.metadata_controller import MetadataController

#: An answer waits no longer than this, even if the request's timeout allows it. A client may give the request up
#: earlier (librdkafka after `socket.timeout.ms`), and would then ask again for a topic that exists already.
_MOST_MS = 5_000


class ServedController:
    """Like `MetadataController`, but a change is in effect on this broker when its call returns. If that takes too long
    for the client, the call returns when the change is durable but not yet in effect here."""

    def __init__(self, controller: MetadataController, replicas: ReplicaManager) -> None:
        self._controller = controller
        self._replicas = replicas

    @property
    def forwarding_ranges(self) -> tuple[tuple[int, int, int], ...] | None:
        """See `MetadataController`."""
        return self._controller.forwarding_ranges

    async def perform(self, request: m.Message, version: int, origin: Origin) -> Any:
        """Let the controller perform `request`, and return its response when the change is in effect here or the wait
        is over. `version` is the request's version, and `origin` says who sent it."""
        response = await self._controller.perform(request, version, origin)
        timeout_ms: int = min(getattr(request, "timeout_ms", _MOST_MS), _MOST_MS)
        # If the wait ends first, the response is still a success: as in Kafka, the change is committed then. This is
        # not asyncio.timeout, which works only in a task: the first step of a handler runs outside of any task.
        settled = asyncio.ensure_future(self._replicas.settled())
        await asyncio.wait([settled], timeout=max(timeout_ms, 0) / 1000)
        return response

    def newest_version(self, request: m.Message) -> int:
        """The newest version in which this broker can send `request` to the controller."""
        versions = {key: high for key, _, high in self.forwarding_ranges or ()}
        return min(request.MAX_VERSION, versions.get(request.API_KEY or 0, request.MAX_VERSION))
