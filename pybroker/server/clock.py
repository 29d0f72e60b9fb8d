"""The system's clocks, in ms."""

from __future__ import annotations

import time


class SystemClock:
    """`Clock` of a running broker. Any thread."""

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
