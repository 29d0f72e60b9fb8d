"""`LogSlots`: no more logs are open than file descriptors suffice for beside the clients. On the asyncio loop."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from contextlib import contextmanager

from pybroker.native.descriptors import log_descriptors
from pybroker.storage.errors import NoDescriptors


class LogSlots:
    """Counts the open logs, which are those in `logs`, and those that are being opened."""

    def __init__(self, logs: Sized) -> None:
        self._logs = logs
        self._opening_count = 0

    def has_room(self) -> bool:
        """Whether another log may be opened now."""
        room = log_descriptors()
        return room is None or len(self._logs) + self._opening_count < room.log_count

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Open a log inside of it. NoDescriptors without room."""
        room = log_descriptors()
        if room is not None and len(self._logs) + self._opening_count >= room.log_count:
            raise NoDescriptors(f"no file descriptor is left for it: {room.remedy()}")
        self._opening_count += 1
        try:
            yield
        finally:
            self._opening_count -= 1
