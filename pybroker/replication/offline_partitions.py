"""`OfflinePartitions`: partitions assigned to this broker whose logs cannot be used. On the asyncio loop.

Clients are told KAFKA_STORAGE_ERROR for them, by the data plane too.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from pybroker.native.errors import NativeError
from pybroker.native.refusal import NativeRefusal
from pybroker.storage.files.offset_checkpoint import TopicPartition
from pybroker.storage.logs.log_manager import LogManager

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Offline:
    topic_id: bytes
    refusal: NativeRefusal | None
    is_tried_again: bool
    is_new: bool


class OfflinePartitions:
    """`close` before the data plane is closed."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._partitions: dict[TopicPartition, _Offline] = {}

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._partitions

    def __len__(self) -> int:
        return len(self._partitions)

    def was_new(self, key: TopicPartition) -> bool:
        """Whether it never had a log when opening it was tried first."""
        return self._partitions[key].is_new

    def add(self, key: TopicPartition, topic_id: bytes, *, is_tried_again: bool, is_new: bool) -> None:
        """From now on the partition is refused; `is_tried_again` when opening it may succeed later."""
        known = self._partitions.get(key)
        if known is not None and known.topic_id == topic_id:
            known.is_tried_again = is_tried_again
            return
        self.remove(key)
        try:
            refusal = self._logs.refuse(key, topic_id)
        except NativeError as error:
            logger.error("partition %s-%d: clients cannot be told that it is offline: %s", *key, error)
            refusal = None
        self._partitions[key] = _Offline(topic_id, refusal, is_tried_again, is_new)

    def remove(self, key: TopicPartition) -> None:
        """The partition is served, or none of this broker's any more."""
        offline = self._partitions.pop(key, None)
        if offline is not None and offline.refusal is not None:
            offline.refusal.close()

    def forget_topics(self, topic_ids: Collection[bytes]) -> list[tuple[TopicPartition, bytes]]:
        """Topics are deleted. Which partitions of them were offline, with their topics' ids."""
        gone = [(key, each.topic_id) for key, each in self._partitions.items() if each.topic_id in topic_ids]
        for key, _ in gone:
            self.remove(key)
        return gone

    def due(self) -> list[tuple[TopicPartition, bytes]]:
        """Those worth trying to open again, with their topics' ids."""
        return [(key, each.topic_id) for key, each in self._partitions.items() if each.is_tried_again]

    def close(self) -> None:
        """Refuse nothing any more."""
        for key in list(self._partitions):
            self.remove(key)
