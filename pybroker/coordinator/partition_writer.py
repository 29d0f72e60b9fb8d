"""The interface to the partition that holds a coordinator's state; the replica manager provides it.

All calls are made on the asyncio loop thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pybroker.protocol.errors import KafkaError

#: Takes the base offset, or -1 and why there is none.
AppendCallback = Callable[[int, KafkaError | None], None]


class PartitionWriter(Protocol):
    """Append to and read from partitions that this broker leads.

    Every call raises `KafkaError` with the protocol's error code: NOT_LEADER_OR_FOLLOWER when the partition is led
    elsewhere, KAFKA_STORAGE_ERROR when its log dir failed, MESSAGE_TOO_LARGE when a batch exceeds the topic's limit.
    """

    def append(self, topic: str, partition: int, batch: bytes, done: AppendCallback) -> None:
        """Append one magic-2 batch; `done` is called later, once: when the high watermark has passed the batch's end,
        or the append has failed. It is not called when this call raises."""
        ...

    async def resign(self, topic: str, partition: int) -> None:
        """Lead the partition no more, whatever the metadata says: appends that wait for followers fail. Raises
        nothing."""
        ...

    async def read(self, topic: str, partition: int, offset: int, max_bytes: int, *, to_log_end: bool = False) -> bytes:
        """Whole batches below the high watermark, or to the log's end, at least one, from the one that holds `offset`
        or the next one there is. Empty bytes when there is none, for example after compaction, or when the log was cut
        or replaced during the read."""
        ...

    def max_batch_bytes(self, topic: str, partition: int) -> int:
        """The topic's max.message.bytes."""
        ...

    def log_start_offset(self, topic: str, partition: int) -> int: ...

    def high_watermark(self, topic: str, partition: int) -> int: ...

    def log_end_offset(self, topic: str, partition: int) -> int: ...
