"""`VerificationStatistics`: how the verification of transactions goes, for metrics."""

from __future__ import annotations

from pybroker.native.metrics import Distribution

_EDGES = 30


class VerificationStatistics:
    """Counts since the start: `failure_count` are partitions whose verification failed, each time anew."""

    __slots__ = ("_below", "_count", "_sum", "failure_count")

    def __init__(self) -> None:
        self.failure_count = 0
        self._count = 0
        self._sum = 0
        #: By the number of bits; the last has what is longer.
        self._below = [0] * (_EDGES + 1)

    def add(self, taken_s: float, failed_count: int) -> None:
        """A transaction that was asked about: how long it took, and how many of its partitions failed."""
        taken_us = max(int(taken_s * 1e6), 0)
        self.failure_count += failed_count
        self._count += 1
        self._sum += taken_us
        self._below[min(taken_us.bit_length(), _EDGES)] += 1

    def times_us(self) -> Distribution:
        """How long transactions took, in microseconds, from the Produce to the verdict."""
        below, total = [], 0
        for count in self._below[:_EDGES]:
            total += count
            below.append(total)
        return Distribution(self._count, self._sum, tuple(below))
