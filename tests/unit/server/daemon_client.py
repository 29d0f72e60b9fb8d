"""A `Daemon` in this process and a client that speaks to it over loopback, message by message."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pybroker.config.broker import BrokerConfig
from pybroker.profiles import load_profile
from pybroker.protocol import messages as m
from pybroker.protocol import record_batch
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.loader import request_header_version, response_header_version
from pybroker.protocol.record_batch import Record
from pybroker.server.daemon import Daemon
from pybroker.testing.protocol_client import FETCH_VERSION, fetch_request

CLIENT_ID = "test-client"
TIMEOUT_S = 60


def config_for(log_dir: Path, **overrides: str) -> BrokerConfig:
    """Settings of a test broker on a free port; `_` in keyword names stands for `.`."""
    settings = {
        "log.dirs": str(log_dir),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "pybroker.io.backend": "epoll",
        "pybroker.metrics.listener": "127.0.0.1:0",
        "pybroker.profile": "generic",
        "pybroker.reactors": "1",
        "offsets.topic.num.partitions": "1",
        **{name.replace("_", "."): value for name, value in overrides.items()},
    }
    return BrokerConfig.load(None, [f"{name}={value}" for name, value in settings.items()])


@asynccontextmanager
async def running(config: BrokerConfig) -> AsyncIterator[Daemon]:
    """A started broker, stopped at the end."""
    daemon = Daemon(config, load_profile(config))
    await daemon.start()
    try:
        yield daemon
    finally:
        await daemon.stop()


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._correlation_id = 0

    async def send(self, api_key: int, version: int, body: bytes) -> None:
        """Send a request with an already encoded body."""
        self._correlation_id += 1
        header_version = request_header_version(api_key, version)
        header = m.RequestHeader(
            request_api_key=api_key,
            request_api_version=version,
            correlation_id=self._correlation_id,
            client_id=CLIENT_ID,
        ).encode(header_version)
        self.writer.write(struct.pack(">i", len(header) + len(body)) + header + body)
        await self.writer.drain()

    async def receive(self) -> bytes:
        """One response, header and all."""
        async with asyncio.timeout(TIMEOUT_S):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(size)

    async def call(self, request: Any, version: int) -> Any:
        """The decoded response to a request."""
        api_key = type(request).API_KEY
        await self.send(api_key, version, request.encode(version))
        data = await self.receive()
        header, position = m.ResponseHeader.decode(response_header_version(api_key, version), data)
        assert header.correlation_id == self._correlation_id
        response, end = m.response_class(api_key).decode(version, data, position)
        assert end == len(data)
        return response

    async def is_closed(self) -> bool:
        """Whether the broker closes the connection without another byte."""
        async with asyncio.timeout(TIMEOUT_S):
            return await self.reader.read(1) == b""

    # ---- in fewer words --------------------------------------------------------------------------------------------

    async def ask_for_topic(self, name: str) -> Any:
        """The row of a topic, whose creation is started if it does not exist."""
        request = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=name)])
        response = await self.call(request, 12)
        return response.topics[0]

    async def make_topic(self, name: str) -> Any:
        """The row of a topic, created by asking for it until it is there."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                row = await self.ask_for_topic(name)
                if row.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    return row

    async def find_coordinator(self, group: str) -> Any:
        """The coordinator of a group, asked for until there is one."""
        request = m.FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                (row,) = (await self.call(request, 4)).coordinators
                if not row.error_code:
                    return row

    async def produce(self, topic: str, *values: bytes, timestamp_ms: int = 1000, index: int = 0) -> Any:
        """Produce one batch to partition `index`; the partition's row."""
        records = record_batch.build(0, -1, [Record(None, value) for value in values], timestamp_ms=timestamp_ms)
        partition = m.ProduceRequest.PartitionProduceData(index=index, records=records)
        data = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[partition])
        response = await self.call(m.ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data]), 9)
        return response.responses[0].partition_responses[0]

    async def fetch(self, topic: str, offset: int, **wanted: int) -> Any:
        """Fetch from one partition; the partition's row."""
        response = await self.call(fetch_request(topic, offset, **wanted), FETCH_VERSION)
        return response.responses[0].partitions[0]

    async def offset(self, topic: str, timestamp_ms: int, version: int = 10, **fields: int) -> Any:
        """ListOffsets of partition 0; the partition's row."""
        wanted = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp_ms, **fields)
        topics = [m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[wanted])]
        response = await self.call(m.ListOffsetsRequest(replica_id=-1, topics=topics), version)
        return response.topics[0].partitions[0]


@asynccontextmanager
async def connected(daemon: Daemon, listener: int = 0) -> AsyncIterator[Client]:
    """A client of one of the broker's listeners."""
    reader, writer = await asyncio.open_connection("127.0.0.1", daemon.listeners[listener].port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()
