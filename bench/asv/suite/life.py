"""From start to start again: how long a broker takes to be ready, to come back after a kill, and the memory it has."""

from __future__ import annotations

import statistics

from .attributes import attributes
from .broker import ROUNDS, Broker

_RECOVERED_BYTES = 128 << 20
_MEBIBYTE = 1 << 20


class Life:
    """A broker with the settings it has by itself."""

    timeout = 600

    @attributes(timeout=600)
    def setup_cache(self) -> dict[str, float]:
        """A start of an empty broker, its memory, a load, a kill, and the start after that; several times."""
        rounds = []
        for _ in range(ROUNDS):
            with Broker({}) as broker:
                started = broker.start_seconds
                idle = broker.resident_bytes()
                broker.load("produce", "--topic", "t", "--batch-bytes", "64k", "--bytes", str(_RECOVERED_BYTES))
                loaded = broker.resident_bytes()
                broker.kill()
                rounds.append((started, idle / _MEBIBYTE, loaded / _MEBIBYTE, broker.start()))
                broker.stop()
        names = ("start", "idle", "loaded", "recovery")
        return dict(zip(names, map(statistics.median, zip(*rounds, strict=True)), strict=True))

    @attributes(unit="s")
    def track_start(self, cache: dict[str, float]) -> float:
        """From the command to the ready line."""
        return cache["start"]

    @attributes(unit="s")
    def track_recovery(self, cache: dict[str, float]) -> float:
        """The same after a kill, over 128 MiB."""
        return cache["recovery"]

    @attributes(unit="MiB")
    def track_resident_idle(self, cache: dict[str, float]) -> float:
        """Resident memory when ready."""
        return cache["idle"]

    @attributes(unit="MiB")
    def track_resident_loaded(self, cache: dict[str, float]) -> float:
        """Resident memory after the load."""
        return cache["loaded"]
