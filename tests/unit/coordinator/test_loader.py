"""What keeps a coordinator's partition from being loaded is told with the place, and with what to do."""

from __future__ import annotations

import asyncio
import gzip
import struct
import threading

import pytest
import virtual_time
from memory_writer import MemoryWriter

from pybroker import native
from pybroker.coordinator.loader import load
from pybroker.native import crc32c
from pybroker.protocol import record_batch
from pybroker.protocol.errors import ErrorCode, KafkaError, ProtocolError

PATIENCE_MS = 5_000
BATCH = record_batch.build_plain(0, [(b"k", b"v")], timestamp_ms=1, checksum=crc32c)


class Holed(MemoryWriter):
    """Reads from offset 1 on fail."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__()
        self.code = code
        for _ in range(2):
            self.put("t", 0, BATCH)

    async def read(self, topic: str, partition: int, offset: int, max_bytes: int, *, to_log_end: bool = False) -> bytes:
        if offset > 0:
            raise KafkaError(self.code, "words of the data plane")
        return await super().read(topic, partition, offset, 1)


class Replayed:
    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.shown: list[tuple[bytes, bytes | None]] = []
        self.told_count = 0

    def replay_record(self, key: bytes, value: bytes | None, offset: int, producer_id: int) -> None:
        self.offsets.append(offset)

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        raise AssertionError("there is no transaction")

    def show_uncommitted(self, key: bytes, value: bytes | None) -> None:
        self.shown.append((key, value))

    def on_committed_replayed(self) -> None:
        self.told_count += 1


def test_what_is_compressed_is_unpacked_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    body = struct.pack(">h", 1) + BATCH[23 : record_batch.HEADER_BYTES] + gzip.compress(BATCH[61:])
    compressed = struct.pack(">qiibI", 0, 9 + len(body), 0, 2, crc32c(body)) + body
    threads: list[threading.Thread] = []
    unpack = native.decompress

    def decompress(codec_id: int, data: bytes, max_bytes: int) -> bytes:
        threads.append(threading.current_thread())
        return unpack(codec_id, data, max_bytes)

    monkeypatch.setattr(native, "decompress", decompress)

    async def run() -> None:
        writer, replayed = MemoryWriter(), Replayed()
        for batch in (BATCH, compressed, BATCH, compressed):
            writer.put("t", 0, batch)
        summary = await load(writer, "t", 0, replayed, 1 << 20, PATIENCE_MS)
        assert replayed.offsets == [0, 1, 2, 3]
        assert summary.record_count == 4

    asyncio.run(run())
    assert len(threads) == 2
    assert threading.main_thread() not in threads


def test_what_is_not_committed_yet_is_waited_for() -> None:
    async def run() -> None:
        writer, replayed = MemoryWriter(), Replayed()
        for _ in range(3):
            writer.put("t", 0, BATCH)
        writer.committed = 2
        loading = asyncio.create_task(load(writer, "t", 0, replayed, 1000, PATIENCE_MS))
        await asyncio.sleep(0.05)
        assert not loading.done()
        writer.put("t", 0, BATCH)
        writer.committed = 3
        async with asyncio.timeout(60):
            summary = await loading
        assert replayed.offsets == [0, 1, 2], "what comes later is not of this load"
        assert (summary.record_count, summary.end_offset) == (3, 3)

    asyncio.run(run())


def test_what_waits_for_long_is_shown_and_replayed_when_it_is_committed() -> None:
    async def run() -> None:
        writer, replayed = MemoryWriter(), Replayed()
        writer.put("t", 0, BATCH)
        for value in (b"w", None):
            writer.put("t", 0, record_batch.build_plain(0, [(b"k", value)], timestamp_ms=1, checksum=crc32c))
        marker = record_batch.Record(b"\0\0\0\1", b"\0\0\0\0\0\0")
        writer.put("t", 0, record_batch.build(0, 0, [marker], timestamp_ms=1, control=True))
        writer.committed = 1
        loading = asyncio.create_task(load(writer, "t", 0, replayed, 1, PATIENCE_MS))
        await asyncio.sleep(PATIENCE_MS / 1000 - 1)
        assert (replayed.offsets, replayed.told_count) == ([0], 0)
        await asyncio.sleep(2)
        assert (replayed.offsets, replayed.told_count) == ([0], 1)
        assert replayed.shown == [(b"k", b"w"), (b"k", None)]
        writer.committed = 2
        await asyncio.sleep(10)
        assert (replayed.offsets, replayed.told_count) == ([0, 1], 1)
        assert not loading.done()
        writer.ends["t", 0] = 3
        writer.committed = 3
        assert (await loading).record_count == 3
        assert replayed.offsets == [0, 1, 2]

    virtual_time.run(run())


def test_what_lies_behind_a_hole_and_is_not_committed_yet_is_waited_for() -> None:
    """All that is committed has been compacted away, so a read finds nothing. At the rest it did not look."""

    async def run() -> None:
        writer, replayed = MemoryWriter(), Replayed()
        for _ in range(3):
            writer.put("t", 0, BATCH)
        del writer.logs["t", 0][:2]
        writer.committed = 2
        loading = asyncio.create_task(load(writer, "t", 0, replayed, 1000, PATIENCE_MS))
        await asyncio.sleep(1)
        assert not loading.done()
        writer.committed = 3
        assert (await loading).end_offset == 3
        assert replayed.offsets == [2]

    virtual_time.run(run())


def test_a_log_whose_end_has_been_compacted_away_is_loaded() -> None:
    async def run() -> None:
        writer, replayed = MemoryWriter(), Replayed()
        for _ in range(3):
            writer.put("t", 0, BATCH)
        del writer.logs["t", 0][1:]
        assert (await load(writer, "t", 0, replayed, 1000, PATIENCE_MS)).end_offset == 3
        assert replayed.offsets == [0]

    virtual_time.run(run())


def test_a_read_that_came_too_late_once_is_repeated() -> None:
    """What it was to read was replaced under it: nothing of it is gone."""

    class Late(MemoryWriter):
        read_count = 0

        async def read(
            self, topic: str, partition: int, offset: int, max_bytes: int, *, to_log_end: bool = False
        ) -> bytes:
            self.read_count += 1
            return b"" if self.read_count == 1 else await super().read(topic, partition, offset, max_bytes)

    async def run() -> None:
        writer, replayed = Late(), Replayed()
        writer.put("t", 0, BATCH)
        await load(writer, "t", 0, replayed, 1000, PATIENCE_MS)
        assert replayed.offsets == [0]

    virtual_time.run(run())


def test_what_could_not_be_written_is_not_waited_for() -> None:
    """A failed write takes what was appended off the log."""

    async def run() -> None:
        writer, replayed = MemoryWriter(), Replayed()
        for _ in range(2):
            writer.put("t", 0, BATCH)
        writer.committed = 1
        loading = asyncio.create_task(load(writer, "t", 0, replayed, 1000, PATIENCE_MS))
        await asyncio.sleep(1)
        assert not loading.done()
        writer.ends["t", 0] = 1
        async with asyncio.timeout(60):
            assert (await loading).end_offset == 1

    virtual_time.run(run())


def test_bytes_without_a_whole_batch_are_no_end() -> None:
    class Short(MemoryWriter):
        async def read(
            self, topic: str, partition: int, offset: int, max_bytes: int, *, to_log_end: bool = False
        ) -> bytes:
            return (await super().read(topic, partition, offset, max_bytes))[:-1]

    async def run() -> None:
        writer = Short()
        writer.put("t", 0, BATCH)
        with pytest.raises(ProtocolError, match="from offset 0 on hold no batch"):
            await load(writer, "t", 0, Replayed(), 1000, PATIENCE_MS)

    virtual_time.run(run())


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (ErrorCode.CORRUPT_MESSAGE, "damaged at offset 1 .*pybroker log repair"),
        (ErrorCode.KAFKA_STORAGE_ERROR, "cannot be read at offset 1: KAFKA_STORAGE_ERROR, words of the data plane"),
    ],
)
def test_what_cannot_be_read_is_named(code: ErrorCode, text: str) -> None:
    replayed = Replayed()
    with pytest.raises(KafkaError, match=text) as raised:
        asyncio.run(load(Holed(code), "t", 0, replayed, 1000, PATIENCE_MS))
    assert raised.value.code is code
    assert replayed.offsets == [0]
