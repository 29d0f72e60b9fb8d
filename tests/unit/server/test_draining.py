"""A clean stop while clients are at work: whatever was appended is answered, and nobody is held up by who waits."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any

import pytest
from daemon_client import TIMEOUT_S, Client, config_for, connected, running

from pybroker.native.metrics import read_stats
from pybroker.protocol import messages as m
from pybroker.protocol import record_batch
from pybroker.protocol.loader import response_header_version
from pybroker.protocol.record_batch import Record
from pybroker.testing.protocol_client import FETCH_VERSION, fetch_request
from tests.harness.fixtures import backends

_PRODUCE, _VERSION = 0, 9
#: Together more than the sockets hold: when the first have been appended, others are on their way.
_REQUEST_COUNT = 3000
_VALUE_BYTES = 4096
_PRODUCER_ID = 7


def _produce(sequence: int) -> bytes:
    records = record_batch.build(
        0,
        -1,
        [Record(None, bytes(_VALUE_BYTES))],
        timestamp_ms=1000,
        producer_id=_PRODUCER_ID,
        producer_epoch=0,
        base_sequence=sequence,
    )
    partition = m.ProduceRequest.PartitionProduceData(index=0, records=records)
    data = m.ProduceRequest.TopicProduceData(name="t", partition_data=[partition])
    return m.ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data]).encode(_VERSION)


async def _answers(client: Client) -> list[Any]:
    """Those that come before the end of the stream, which must be a clean one."""
    async with asyncio.timeout(TIMEOUT_S):
        data = await client.reader.read()
    rows: list[Any] = []
    position = 0
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position)
        end = position + 4 + size
        header, at = m.ResponseHeader.decode(response_header_version(_PRODUCE, _VERSION), data, position + 4)
        response, at = m.ProduceResponse.decode(_VERSION, data, at)
        assert (at, header.correlation_id) == (end, len(rows) + 1)
        rows.append(response.responses[0].partition_responses[0])
        position = end
    return rows


async def _blast(client: Client, ending: asyncio.Event) -> None:
    """Send until the sockets are full, and what finds room after that."""
    for body in [_produce(sequence) for sequence in range(_REQUEST_COUNT)]:
        if ending.is_set():
            break
        await client.send(_PRODUCE, _VERSION, body)


@pytest.mark.parametrize("backend", backends())
def test_all_that_is_appended_is_answered_when_the_broker_stops_under_load(tmp_path: Path, backend: str) -> None:
    async def run() -> None:
        config = config_for(tmp_path, pybroker_io_backend=backend)
        async with running(config) as daemon, connected(daemon) as other, connected(daemon) as client:
            await other.make_topic("t")
            ending = asyncio.Event()
            blast = asyncio.create_task(_blast(client, ending))
            async with asyncio.timeout(TIMEOUT_S):
                while (await other.offset("t", -1)).offset < 10:
                    pass
            other.writer.close()
            ending.set()
            stop = asyncio.create_task(daemon.stop())
            rows = await _answers(client)
            client.writer.close()
            await stop
            await blast
            assert {row.error_code for row in rows} == {0}
            assert [row.base_offset for row in rows] == list(range(len(rows)))
        async with running(config) as daemon, connected(daemon) as client:
            assert (await client.offset("t", -1)).offset == len(rows)
            # Those that were not answered come again.
            await client.send(_PRODUCE, _VERSION, _produce(len(rows)))
            response, _ = m.ProduceResponse.decode(_VERSION, await client.receive(), 5)
            row = response.responses[0].partition_responses[0]
            assert (row.error_code, row.base_offset) == (0, len(rows))

    asyncio.run(run())


@pytest.mark.parametrize("backend", backends())
def test_a_fetch_that_waits_is_answered_at_once_when_the_broker_stops(tmp_path: Path, backend: str) -> None:
    async def run() -> None:
        config = config_for(tmp_path, pybroker_io_backend=backend)
        async with running(config) as daemon, connected(daemon) as other, connected(daemon) as client:
            await other.make_topic("t")
            fetch = asyncio.create_task(
                client.call(fetch_request("t", 0, wait_ms=10 * TIMEOUT_S * 1000), FETCH_VERSION)
            )
            async with asyncio.timeout(TIMEOUT_S):
                while read_stats(daemon.native).delayed_fetches == 0:
                    await other.offset("t", -1)
            stop = asyncio.create_task(daemon.stop())
            (topic,) = (await fetch).responses
            assert (topic.partitions[0].error_code, topic.partitions[0].records) == (0, b"")
            assert await client.is_closed()
            for each in (client, other):
                each.writer.close()
            await stop

    asyncio.run(run())
