"""Reads a coordinator's partition from its beginning and hands the records on.

A record counts when it is committed, so the end of the log may have to wait for followers. A new leader does not know
yet what its predecessor has committed, and may never know, without enough replicas in sync. After a while what waits is
shown, so that the rest can be served; it is replayed as it is committed.

Runs on the asyncio loop thread in slices, so that loading a large partition delays nobody else for long.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from pybroker.coordinator.partition_writer import PartitionWriter
from pybroker.protocol import record_batch
from pybroker.protocol.errors import ErrorCode, KafkaError, ProtocolError
from pybroker.turns import in_slices, pause

#: A longer batch is parsed by a thread.
_LONG_BATCH_BYTES = 16 << 10

#: Between looks whether the rest of the log is committed.
_COMMIT_INTERVAL_S = 0.02

_CONTROL_KEY = struct.Struct(">hh")
_COMMIT_MARKER = 1


class Replayer(Protocol):
    """Takes what is in the log, in order."""

    def replay_record(self, key: bytes, value: bytes | None, offset: int, producer_id: int) -> None:
        """One record; `producer_id` is -1 outside transactions."""
        ...

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        """The transaction of that producer has ended."""
        ...

    def show_uncommitted(self, key: bytes, value: bytes | None) -> None:
        """A record that is in the log and will be replayed, unless another leader takes it back."""
        ...

    def on_committed_replayed(self) -> None:
        """All committed records were replayed, all later records were shown, and these are still not committed."""
        ...


@dataclass(slots=True)
class LoadSummary:
    """The result of a load."""

    record_count: int = 0
    bytes_count: int = 0
    end_offset: int = 0


async def load(
    writer: PartitionWriter,
    topic: str,
    partition: int,
    replayer: Replayer,
    max_read_bytes: int,
    patience_ms: int,
) -> LoadSummary:
    """Replay the partition from its log start offset to where its log ends now, and return when all of that is
    committed. `patience_ms` is how long that may take before the replayer is told of it.

    Raises KafkaError when the partition cannot be read and ProtocolError for a damaged or unreadable record; in both
    cases the replayer's state is of no use.
    """
    return await _Load(writer, topic, partition, replayer, max_read_bytes, patience_ms).run()


class _Load:
    """One load. `_offset` is the next one to be replayed."""

    def __init__(
        self,
        writer: PartitionWriter,
        topic: str,
        partition: int,
        replayer: Replayer,
        max_read_bytes: int,
        patience_ms: int,
    ) -> None:
        self._writer = writer
        self._place = topic, partition
        self._replayer = replayer
        self._max_read_bytes = max_read_bytes
        self._offset = writer.log_start_offset(topic, partition)
        self._summary = LoadSummary(end_offset=self._offset)
        self._patience_s = patience_ms / 1000
        #: When what is not committed is shown; None before anything was waited for.
        self._deadline_s: float | None = None
        self._is_shown = False

    async def run(self) -> LoadSummary:
        end_offset = self._log_end_offset()
        # An append that could not be written is off the log again.
        while self._offset < (end_offset := min(end_offset, self._log_end_offset())):
            committed = min(end_offset, self._writer.high_watermark(*self._place))
            if self._offset < committed:
                await self._replay_some(committed)
            else:
                await self._wait(end_offset)
        return self._summary

    def _log_end_offset(self) -> int:
        return self._writer.log_end_offset(*self._place)

    async def _wait(self, end_offset: int) -> None:
        """Everything is replayed that is committed so far."""
        now_s = asyncio.get_running_loop().time()
        if self._deadline_s is None:
            self._deadline_s = now_s + self._patience_s
        if not self._is_shown and now_s >= self._deadline_s:
            self._is_shown = True
            await self._show_uncommitted(end_offset)
            self._replayer.on_committed_replayed()
        await asyncio.sleep(_COMMIT_INTERVAL_S)

    async def _show_uncommitted(self, end_offset: int) -> None:
        offset = self._offset
        while offset < end_offset and (data := await self._read(offset, to_log_end=True)):
            from_offset = offset
            async for batch in _parse(data):
                if not batch.is_control:
                    await _show_batch(batch, from_offset, self._replayer)
                offset = batch.last_offset + 1
            _check_progress(data, from_offset, offset)

    async def _replay_some(self, committed: int) -> None:
        """Replay what one read finds, where all below `committed` is committed."""
        if data := await self._read(self._offset):
            await self._replay(data)
        else:
            # Compacted away, but not what is behind it: nothing beyond `committed` was looked for.
            self._offset = committed
        self._summary.end_offset = self._offset

    async def _read(self, offset: int, *, to_log_end: bool = False) -> bytes:
        read = partial(self._writer.read, *self._place, offset, self._max_read_bytes, to_log_end=to_log_end)
        try:
            # The first answer may be empty because what was read was cut or replaced meanwhile. Whatever ends the
            # reading for good is raised.
            return await read() or await read()
        except KafkaError as failure:
            raise KafkaError(failure.code, _explained(failure, offset)) from failure

    async def _replay(self, data: bytes) -> None:
        from_offset = self._offset
        async for batch in _parse(data):
            await _replay_batch(batch, self._offset, self._replayer)
            self._offset = batch.last_offset + 1
            self._summary.record_count += len(batch.records)
        _check_progress(data, from_offset, self._offset)
        self._summary.bytes_count += len(data)


async def _parse(data: bytes) -> AsyncIterator[record_batch.RecordBatch]:
    """The batches in `data`. Long ones are parsed by a thread, and so are compressed ones: a few kilobytes may hold
    many megabytes, and who calls itself an administrator's tool may write them."""
    batches = record_batch.parse(data)
    position = 0
    while True:
        await pause()
        if record_batch.is_compressed(data, position) or record_batch.length_at(data, position) > _LONG_BATCH_BYTES:
            batch = await asyncio.to_thread(next, batches, None)
        else:
            batch = next(batches, None)
        if batch is None:
            return
        position += batch.size_bytes
        yield batch


def _check_progress(data: bytes, from_offset: int, offset: int) -> None:
    if offset <= from_offset:
        raise ProtocolError(f"{len(data)} bytes from offset {from_offset} on hold no batch")


def _explained(failure: KafkaError, offset: int) -> str:
    if failure.code is ErrorCode.CORRUPT_MESSAGE:
        return (
            f"it is damaged at offset {offset} (CORRUPT_MESSAGE): stop the broker, let `pybroker log repair` save what "
            "is intact, and start it again"
        )
    return f"it cannot be read at offset {offset}: {failure.code.name}, {failure}"


async def _show_batch(batch: record_batch.RecordBatch, from_offset: int, replayer: Replayer) -> None:
    async for record in in_slices(batch.records):
        if record.offset >= from_offset and record.key is not None:
            replayer.show_uncommitted(record.key, record.value)


async def _replay_batch(batch: record_batch.RecordBatch, from_offset: int, replayer: Replayer) -> None:
    producer_id = batch.producer_id if batch.is_transactional else -1
    async for record in in_slices(batch.records):
        if record.offset < from_offset:
            continue
        if batch.is_control:
            if record.key is not None and len(record.key) >= _CONTROL_KEY.size:
                _, marker = _CONTROL_KEY.unpack_from(record.key)
                replayer.replay_end_transaction(batch.producer_id, marker == _COMMIT_MARKER)
        elif record.key is not None:
            replayer.replay_record(record.key, record.value, record.offset, producer_id)
