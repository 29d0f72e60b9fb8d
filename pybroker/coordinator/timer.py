"""A queue of keyed deadlines, one per coordinator shard: sessions, rebalances, pending syncs.

A plain data structure without clock or thread: the caller says what time it is and runs what has expired. Moving a
deadline later, which every heartbeat does, touches only the entry; its place in the heap is corrected when the old
place comes up. So 10,000 members cost one heap operation per member and session timeout, not per heartbeat.
"""

from __future__ import annotations

import heapq
from typing import Any

#: The name of a deadline: (kind, group id) or (kind, group id, member id).
TimerKey = tuple[Any, ...]

_SLACK_COUNT = 64


class _Entry:
    __slots__ = ("deadline_ms", "heap_ms", "key", "payload", "sequence")

    def __init__(self, key: TimerKey, deadline_ms: int, payload: Any, sequence: int) -> None:
        self.key = key
        self.deadline_ms = deadline_ms
        self.payload = payload
        self.heap_ms = deadline_ms
        self.sequence = sequence


class TimerQueue:
    """Deadlines by key; scheduling a key again replaces its deadline and payload."""

    __slots__ = ("_entries", "_heap", "_sequence")

    def __init__(self) -> None:
        self._entries: dict[TimerKey, _Entry] = {}
        self._heap: list[tuple[int, int, _Entry]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: TimerKey) -> bool:
        return key in self._entries

    @property
    def earliest_ms(self) -> int | None:
        """A time before which nothing expires; None when the queue is empty."""
        return self._heap[0][0] if self._heap else None

    def deadline_ms(self, key: TimerKey) -> int | None:
        """When that key expires, or None."""
        entry = self._entries.get(key)
        return None if entry is None else entry.deadline_ms

    def schedule(self, key: TimerKey, deadline_ms: int, payload: Any = None) -> None:
        """Let `key` expire at `deadline_ms`, instead of whenever it would have."""
        entry = self._entries.get(key)
        if entry is None:
            self._sequence += 1
            entry = _Entry(key, deadline_ms, payload, self._sequence)
            self._entries[key] = entry
            heapq.heappush(self._heap, (deadline_ms, entry.sequence, entry))
            return
        entry.deadline_ms = deadline_ms
        entry.payload = payload
        if deadline_ms < entry.heap_ms:
            self._push(entry)

    def cancel(self, key: TimerKey) -> None:
        """Forget `key`; nothing happens when it is not there."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        entry.sequence = -1
        if len(self._heap) > 2 * len(self._entries) + _SLACK_COUNT:
            self._heap = [item for item in self._heap if item[1] == item[2].sequence]
            heapq.heapify(self._heap)

    def pop_expired(self, now_ms: int) -> tuple[TimerKey, Any] | None:
        """Take out the earliest key that has expired, with its payload; None when there is none.

        One at a time: what is done about it may cancel those that have expired with it.
        """
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            _, sequence, entry = heapq.heappop(heap)
            if sequence != entry.sequence:
                continue
            if entry.deadline_ms > now_ms:
                self._push(entry)
                continue
            del self._entries[entry.key]
            entry.sequence = -1
            return entry.key, entry.payload
        return None

    def _push(self, entry: _Entry) -> None:
        # A fresh sequence makes the entry's older place in the heap a stale one.
        self._sequence += 1
        entry.sequence = self._sequence
        entry.heap_ms = entry.deadline_ms
        heapq.heappush(self._heap, (entry.deadline_ms, entry.sequence, entry))
