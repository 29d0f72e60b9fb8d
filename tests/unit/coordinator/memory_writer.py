"""A `PartitionWriter` over lists, for tests: appends can be held back and made to fail."""

from __future__ import annotations

import asyncio
import struct

from pybroker.coordinator.partition_writer import AppendCallback
from pybroker.protocol.errors import ErrorCode, KafkaError


class MemoryWriter:
    """Keeps batches per (topic, partition). `hold()` parks appends until `release()` or `fail_held()`; `fail_with` is
    raised by them."""

    def __init__(self) -> None:
        self.logs: dict[tuple[str, int], list[bytes]] = {}
        self.ends: dict[tuple[str, int], int] = {}
        self.fail_with: ErrorCode | None = None
        self.append_count = 0
        self.max_message_bytes = 1_048_588
        #: No high watermark is above it.
        self.committed = 2**63 - 1
        self._parked: list[tuple[str, int, bytes, AppendCallback]] | None = None

    def hold(self) -> None:
        self._parked = []

    def release(self) -> None:
        assert self._parked is not None
        parked, self._parked = self._parked, None
        for append in parked:
            self._append(*append)

    def fail_held(self, error: ErrorCode) -> None:
        """What is held back fails; what comes after that does not."""
        assert self._parked is not None
        parked, self._parked = self._parked, None
        for *_, done in parked:
            done(-1, KafkaError(error))

    def append(self, topic: str, partition: int, batch: bytes, done: AppendCallback) -> None:
        if len(batch) > self.max_message_bytes:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        if self._parked is not None:
            self._parked.append((topic, partition, batch, done))
        elif self.fail_with is not None:
            raise KafkaError(self.fail_with)
        else:
            asyncio.get_running_loop().call_soon(self._append, topic, partition, batch, done)

    def _append(self, topic: str, partition: int, batch: bytes, done: AppendCallback) -> None:
        if self.fail_with is not None:
            done(-1, KafkaError(self.fail_with))
        else:
            done(self.put(topic, partition, batch), None)

    def put(self, topic: str, partition: int, batch: bytes) -> int:
        """Append at once; the base offset."""
        key = (topic, partition)
        base_offset = self.ends.get(key, 0)
        (last_offset_delta,) = struct.unpack_from(">i", batch, 23)
        self.logs.setdefault(key, []).append(struct.pack(">q", base_offset) + batch[8:])
        self.ends[key] = base_offset + last_offset_delta + 1
        self.append_count += 1
        return base_offset

    async def resign(self, topic: str, partition: int) -> None:
        """What is held back fails. There is one partition."""
        self.fail_with = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self._parked is not None:
            self.release()

    async def read(self, topic: str, partition: int, offset: int, max_bytes: int, *, to_log_end: bool = False) -> bytes:
        found: list[bytes] = []
        size_bytes = 0
        for batch in self.logs.get((topic, partition), []):
            (base_offset,) = struct.unpack_from(">q", batch, 0)
            if base_offset >= self.committed and not to_log_end:
                break
            (last_offset_delta,) = struct.unpack_from(">i", batch, 23)
            if base_offset + last_offset_delta < offset:
                continue
            size_bytes += len(batch)
            if found and size_bytes > max_bytes:
                break
            found.append(batch)
        return b"".join(found)

    def max_batch_bytes(self, topic: str, partition: int) -> int:
        return self.max_message_bytes

    def log_start_offset(self, topic: str, partition: int) -> int:
        return 0

    def high_watermark(self, topic: str, partition: int) -> int:
        return min(self.committed, self.ends.get((topic, partition), 0))

    def log_end_offset(self, topic: str, partition: int) -> int:
        return self.ends.get((topic, partition), 0)
