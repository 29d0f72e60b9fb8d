"""Holds the index files of a log dir against its segments, while nothing is appended. Reads only."""

from __future__ import annotations

import struct
from pathlib import Path

from pybroker.storage.files import offset_checkpoint
from pybroker.storage.files.offset_checkpoint import TopicPartition

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_BATCH = struct.Struct(">qi11xi8xq")  # base offset, length, last offset delta, max timestamp


def recovery_points(log_dir: Path) -> dict[TopicPartition, int]:
    """What recovery-point-offset-checkpoint says now; empty when there is none yet."""
    path = log_dir / offset_checkpoint.RECOVERY_POINT
    return offset_checkpoint.read(path) if path.exists() else {}


def _batches(log: bytes) -> dict[int, tuple[int, int, int]]:
    """Position to (base offset, last offset, largest timestamp) of each whole batch."""
    found = {}
    position = 0
    while position + _BATCH.size <= len(log):
        base_offset, length, last_delta, timestamp_ms = _BATCH.unpack_from(log, position)
        if length <= 0 or position + 12 + length > len(log):
            break
        found[position] = (base_offset, base_offset + last_delta, timestamp_ms)
        position += 12 + length
    return found


def index_findings(partition_dir: Path) -> list[str]:
    """What is wrong with the offset and time indexes of one partition; also bytes of a segment that are no batches."""
    findings = []
    for path in sorted(partition_dir.glob("*.log")):
        log = path.read_bytes()
        batches = _batches(log)
        base_offset = int(path.stem)
        end = max((last for _, last, _ in batches.values()), default=base_offset - 1)
        if sum(_BATCH.unpack_from(log, position)[1] + 12 for position in batches) != len(log):
            findings.append(f"{path}: ends in bytes that are no whole batch")
        index = path.with_suffix(".index")
        last_relative = -1
        for relative, position in _OFFSET_ENTRY.iter_unpack(index.read_bytes() if index.exists() else b""):
            first, last, _ = batches.get(position, (0, -1, 0))
            if not (first <= base_offset + relative <= last) or relative <= last_relative:
                findings.append(f"{index}: offset {base_offset + relative} at {position}, where {first} to {last} lie")
            last_relative = relative
        time_index = path.with_suffix(".timeindex")
        last_ms = -1
        for timestamp_ms, relative in _TIME_ENTRY.iter_unpack(time_index.read_bytes() if time_index.exists() else b""):
            if base_offset + relative > end or timestamp_ms < last_ms:
                findings.append(f"{time_index}: {timestamp_ms} at {base_offset + relative}, the end is {end}")
            last_ms = timestamp_ms
    return findings
