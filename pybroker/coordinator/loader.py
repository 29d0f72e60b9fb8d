"""Reads a coordinator's partition from its beginning and hands the records on.

Runs on the asyncio loop thread and lets the loop go round every so many records, so that loading a large partition
delays nobody else for long.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from typing import Protocol

from pybroker.coordinator.partition_writer import PartitionWriter
from pybroker.protocol import record_batch
from pybroker.protocol.errors import ErrorCode, KafkaError

#: As many take some five milliseconds to replay.
_RECORDS_PER_TURN = 500

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


@dataclass(slots=True)
class LoadSummary:
    """What a load has read."""

    record_count: int = 0
    bytes_count: int = 0
    end_offset: int = 0


async def load(
    writer: PartitionWriter, topic: str, partition: int, replayer: Replayer, max_read_bytes: int
) -> LoadSummary:
    """Replay the partition from its log start offset to where its log ends now.

    A new leader does not know yet that the last of it is committed. It is not replayed before, so the followers have to
    fetch it first.

    Raises KafkaError when the partition cannot be read and ProtocolError for a damaged or unreadable record; in both
    cases the replayer's state is of no use.
    """
    offset = writer.log_start_offset(topic, partition)
    summary = LoadSummary(end_offset=offset)
    turn_count = 0
    log_end_offset = writer.log_end_offset(topic, partition)
    while offset < log_end_offset:
        if offset >= writer.high_watermark(topic, partition):
            await asyncio.sleep(_COMMIT_INTERVAL_S)
            continue
        try:
            data = await writer.read(topic, partition, offset, max_read_bytes)
        except KafkaError as failure:
            raise KafkaError(failure.code, _explained(failure, offset)) from failure
        for batch in record_batch.parse(data):
            _replay_batch(batch, offset, replayer)
            offset = batch.last_offset + 1
            summary.record_count += len(batch.records)
            turn_count += len(batch.records)
            if turn_count >= _RECORDS_PER_TURN:
                turn_count = 0
                await asyncio.sleep(0)
        if offset <= summary.end_offset:
            break  # the rest has been compacted away
        summary.bytes_count += len(data)
        summary.end_offset = offset
    return summary


def _explained(failure: KafkaError, offset: int) -> str:
    if failure.code is ErrorCode.CORRUPT_MESSAGE:
        return (
            f"it is damaged at offset {offset} (CORRUPT_MESSAGE): stop the broker, let `pybroker log repair` save what "
            "is intact, and start it again"
        )
    return f"it cannot be read at offset {offset}: {failure.code.name}, {failure}"


def _replay_batch(batch: record_batch.RecordBatch, from_offset: int, replayer: Replayer) -> None:
    producer_id = batch.producer_id if batch.is_transactional else -1
    for record in batch.records:
        if record.offset < from_offset:
            continue
        if batch.is_control:
            if record.key is not None and len(record.key) >= _CONTROL_KEY.size:
                _, marker = _CONTROL_KEY.unpack_from(record.key)
                replayer.replay_end_transaction(batch.producer_id, marker == _COMMIT_MARKER)
        elif record.key is not None:
            replayer.replay_record(record.key, record.value, record.offset, producer_id)
