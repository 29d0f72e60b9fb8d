"""A `PartitionWriter` over lists, for tests: appends can be held back and made to fail."""

from __future__ import annotations

import asyncio
import struct

from pybroker.protocol.errors import ErrorCode, KafkaError


class MemoryWriter:
    """Keeps batches per (topic, partition). `hold()` parks appends until `release()`; `fail_with` is raised by them."""

    def __init__(self) -> None:
        self.logs: dict[tuple[str, int], list[bytes]] = {}
        self.ends: dict[tuple[str, int], int] = {}
        self.fail_with: ErrorCode | None = None
        self.append_count = 0
        self._gate: asyncio.Event | None = None

    def hold(self) -> None:
        self._gate = asyncio.Event()

    def release(self) -> None:
        assert self._gate is not None
        self._gate.set()
        self._gate = None

    async def append(self, topic: str, partition: int, batch: bytes) -> int:
        if self._gate is not None:
            await self._gate.wait()
        if self.fail_with is not None:
            raise KafkaError(self.fail_with)
        key = (topic, partition)
        base_offset = self.ends.get(key, 0)
        (last_offset_delta,) = struct.unpack_from(">i", batch, 23)
        self.logs.setdefault(key, []).append(struct.pack(">q", base_offset) + batch[8:])
        self.ends[key] = base_offset + last_offset_delta + 1
        self.append_count += 1
        return base_offset

    async def read(self, topic: str, partition: int, offset: int, max_bytes: int) -> bytes:
        found: list[bytes] = []
        size_bytes = 0
        for batch in self.logs.get((topic, partition), []):
            (base_offset,) = struct.unpack_from(">q", batch, 0)
            (last_offset_delta,) = struct.unpack_from(">i", batch, 23)
            if base_offset + last_offset_delta < offset:
                continue
            size_bytes += len(batch)
            if found and size_bytes > max_bytes:
                break
            found.append(batch)
        return b"".join(found)

    def log_start_offset(self, topic: str, partition: int) -> int:
        return 0

    def high_watermark(self, topic: str, partition: int) -> int:
        return self.ends.get((topic, partition), 0)
