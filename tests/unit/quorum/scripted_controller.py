"""A controller in this process that answers as it is told: a server on loopback, and a metadata log to serve."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from pybroker.metadata.records import VersionedRecord, encode_batch
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.uuids import METADATA_TOPIC_ID
from pybroker.quorum.signal import Signal

TIMEOUT_S = 60
#: What the scripted controllers serve, as Apache Kafka's do.
_SERVED = (
    m.FetchRequest,
    m.FetchSnapshotRequest,
    m.ApiVersionsRequest,
    m.BrokerRegistrationRequest,
    m.BrokerHeartbeatRequest,
    m.EnvelopeRequest,
    m.DescribeClusterRequest,
    m.AllocateProducerIdsRequest,
    m.AssignReplicasToDirsRequest,
    m.AlterPartitionRequest,
)

#: Answers a request; None closes the connection.
Script = Callable[[Any], Any]


class ScriptedController:
    """Answers requests of one class by one function: `on[m.FetchRequest] = lambda request: ...`. What it does not know
    ends the connection. `seen` has every request but ApiVersions."""

    def __init__(self) -> None:
        self.on: dict[type[m.Message], Script] = {}
        self.seen: list[Any] = []
        self.address = ("127.0.0.1", 0)
        #: Key, lowest and highest version of each API.
        self.served = [(each.API_KEY, each.MIN_VERSION, each.MAX_VERSION) for each in _SERVED]
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._asked = Signal()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return once `holds()`; it is asked with every request that comes."""
        await self._asked.until(holds)

    async def until_fetched_from(self, offset: int) -> None:
        """Return when a fetch has begun at `offset` or behind it."""
        await self.until(
            lambda: any(
                each.topics[0].partitions[0].fetch_offset >= offset for each in self.seen_of(m.FetchRequest)[-1:]
            )
        )

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.address[1])
        self.address = ("127.0.0.1", self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """As if it had been killed."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._writers):
                writer.transport.abort()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while await self._serve_one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        data = await reader.readexactly(size)
        api_key, version, correlation_id = struct.unpack_from(">hhi", data)
        _, position = m.RequestHeader.decode(m.request_header_version(api_key, version), data)
        request, end = m.request_class(api_key).decode(version, data, position)
        assert end == len(data)
        response = (
            _api_versions(self.served) if isinstance(request, m.ApiVersionsRequest) else await self._answer(request)
        )
        if response is None:
            return False
        head = m.ResponseHeader(correlation_id=correlation_id).encode(m.response_header_version(api_key, version))
        frame = head + response.encode(version)
        writer.write(struct.pack(">i", len(frame)) + frame)
        return True

    async def _answer(self, request: Any) -> Any:
        self.seen.append(request)
        self._asked.notify()
        script = self.on.get(type(request))
        answer = None if script is None else script(request)
        return await answer if asyncio.iscoroutine(answer) else answer

    def seen_of(self, kind: type[Any]) -> list[Any]:
        """The requests of one class, in their order."""
        return [each for each in self.seen if isinstance(each, kind)]


def _api_versions(served: list[tuple[int, int, int]]) -> m.ApiVersionsResponse:
    return m.ApiVersionsResponse(
        api_keys=[
            m.ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, low, high in served
        ]
    )


@asynccontextmanager
async def controllers(count: int = 1) -> AsyncIterator[list[ScriptedController]]:
    """So many, listening on free ports."""
    found = [ScriptedController() for _ in range(count)]
    try:
        for each in found:
            await each.start()
        yield found
    finally:
        for each in found:
            await each.stop()


class Quorum:
    """A metadata log behind scripted controllers, one of which leads: what they answer to Fetch."""

    def __init__(self, *members: ScriptedController) -> None:
        self.members = members
        self.leader: int | None = 0
        self.epoch = 1
        self.end_offset = 0
        self.high_watermark = 0
        self._batches: list[tuple[int, bytes]] = []
        self._changed = asyncio.Event()
        for index, member in enumerate(members):
            member.on[m.FetchRequest] = lambda request, index=index: self._fetch(index, request)

    def append(self, *records: Any, version: int = 0, is_committed: bool = True) -> int:
        """Append records, all of that version, as one batch; the offset of the first."""
        return self.append_versioned([VersionedRecord(each, version) for each in records], is_committed=is_committed)

    def append_versioned(self, records: list[VersionedRecord], *, is_committed: bool = True) -> int:
        base_offset = self.end_offset
        self._batches.append((base_offset, encode_batch(base_offset, self.epoch, 1000, records)))
        self.end_offset += len(records)
        if is_committed:
            self.commit()
        return base_offset

    def append_bytes(self, data: bytes, record_count: int) -> None:
        self._batches.append((self.end_offset, data))
        self.end_offset += record_count
        self.commit()

    def commit(self) -> None:
        self.high_watermark = self.end_offset
        self.wake()

    def truncate(self, end_offset: int) -> None:
        self._batches = [each for each in self._batches if each[0] < end_offset]
        self.end_offset = end_offset

    def elect(self, leader: int | None, epoch: int) -> None:
        self.leader, self.epoch = leader, epoch
        self.wake()

    def wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _fetch(self, index: int, request: m.FetchRequest) -> m.FetchResponse:
        (topic,) = request.topics
        (wanted,) = topic.partitions
        assert topic.topic_id == METADATA_TOPIC_ID
        if self.leader != index or wanted.current_leader_epoch != self.epoch:
            return self.hint(self.leader, ErrorCode.FENCED_LEADER_EPOCH)
        row = m.FetchResponse.PartitionData(partition_index=0)
        if wanted.fetch_offset > self.end_offset:
            row.diverging_epoch = m.FetchResponse.EpochEndOffset(
                epoch=wanted.last_fetched_epoch, end_offset=self.end_offset
            )
            return response(row)
        known = wanted.fetch_offset, wanted.high_watermark
        if known == (self.end_offset, self.high_watermark) and request.max_wait_ms:
            waiting = asyncio.ensure_future(self._changed.wait())
            await asyncio.wait([waiting], timeout=request.max_wait_ms / 1000)
            waiting.cancel()
        row.high_watermark = self.high_watermark
        row.records = b"".join(data for offset, data in self._batches if offset >= wanted.fetch_offset)
        return response(row)

    def hint(self, leader: int | None, code: int) -> m.FetchResponse:
        """The answer of a controller that does not lead."""
        row = m.FetchResponse.PartitionData(partition_index=0, error_code=code)
        row.current_leader = m.FetchResponse.LeaderIdAndEpoch(
            leader_id=-1 if leader is None else leader, leader_epoch=self.epoch
        )
        answer = response(row)
        if leader is not None:
            host, port = self.members[leader].address
            answer.node_endpoints = [m.FetchResponse.NodeEndpoint(node_id=leader, host=host, port=port)]
        return answer


def response(row: m.FetchResponse.PartitionData) -> m.FetchResponse:
    """A Fetch response with that row of the metadata partition."""
    topic = m.FetchResponse.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[row])
    return m.FetchResponse(responses=[topic])
