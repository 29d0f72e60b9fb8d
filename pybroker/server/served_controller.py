"""`ServedController`: the controller as request handlers see it. On the asyncio loop.

The controller answers when its records are durable and replayed. A client that is told of its new topic produces to it
at once, so here an answer waits until this broker's partitions follow the metadata, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from pybroker.controller.controller import Controller
from pybroker.protocol import messages as m
from pybroker.replication.replica_manager import ReplicaManager

T = TypeVar("T")

#: Requests that change configurations name no timeout: so long they wait for what is before them in the queue.
_ALTERED_MS = 5_000


class ServedController:
    """Topic and configuration changes that are in effect on this broker when they return, or durable and on their way
    there when it has taken as long as the client may wait. See `Controller`."""

    def __init__(self, controller: Controller, replicas: ReplicaManager) -> None:
        self._controller = controller
        self._replicas = replicas

    async def _settled(self, answer: Awaitable[T], timeout_ms: int) -> T:
        response = await answer
        # What is in the metadata holds, as in Kafka, also before it is in effect here: being late is no failure.
        # The first step of a handler is in no task, where asyncio.timeout refuses to work.
        settled = asyncio.ensure_future(self._replicas.settled())
        await asyncio.wait([settled], timeout=max(timeout_ms, 0) / 1000)
        return response

    async def create_topics(self, request: m.CreateTopicsRequest, version: int) -> m.CreateTopicsResponse:
        return await self._settled(self._controller.create_topics(request, version), request.timeout_ms)

    async def delete_topics(self, request: m.DeleteTopicsRequest, version: int) -> m.DeleteTopicsResponse:
        return await self._settled(self._controller.delete_topics(request, version), request.timeout_ms)

    async def create_partitions(self, request: m.CreatePartitionsRequest) -> m.CreatePartitionsResponse:
        return await self._settled(self._controller.create_partitions(request), request.timeout_ms)

    async def elect_leaders(self, request: m.ElectLeadersRequest) -> m.ElectLeadersResponse:
        return await self._settled(self._controller.elect_leaders(request), request.timeout_ms)

    async def alter_configs(self, request: m.AlterConfigsRequest) -> m.AlterConfigsResponse:
        return await self._settled(self._controller.alter_configs(request), _ALTERED_MS)

    async def incremental_alter_configs(
        self, request: m.IncrementalAlterConfigsRequest
    ) -> m.IncrementalAlterConfigsResponse:
        return await self._settled(self._controller.incremental_alter_configs(request), _ALTERED_MS)

    async def allocate_producer_ids(self) -> m.AllocateProducerIdsResponse:
        return await self._controller.allocate_producer_ids()
