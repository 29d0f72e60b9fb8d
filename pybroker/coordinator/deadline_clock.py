"""`DeadlineClock`: time for deadlines, which stands still while the loop that judges them does.

A loop that was stopped has heard nobody meanwhile: members that showed life in time would be late by its own fault. So
all deadlines move by as long as it stood still. Belongs to one thread.
"""

from __future__ import annotations

from typing import Protocol

#: As long as there are deadlines, somebody looks at the clock so often.
LOOK_INTERVAL_MS = 250
#: A look that is no later than this was no standstill, but a busy loop.
_BUSY_MS = 250


class Clock(Protocol):
    """Monotonic time for deadlines, wall time for what is written."""

    def monotonic_ms(self) -> int: ...

    def wall_ms(self) -> int: ...


class DeadlineClock:
    """A `Clock` on top of another. `look` is called every `LOOK_INTERVAL_MS`, and before a deadline is judged."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looked_ms: int | None = None
        #: How long the loop has stood still in all.
        self.stood_still_ms = 0

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms() - self.stood_still_ms

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    def look(self) -> int:
        """The loop turns. For how many ms it has not, before that: since the last look, so rather a little more."""
        now_ms, looked_ms = self._clock.monotonic_ms(), self._looked_ms
        self._looked_ms = now_ms
        if looked_ms is None or now_ms - looked_ms <= LOOK_INTERVAL_MS + _BUSY_MS:
            return 0
        self.stood_still_ms += now_ms - looked_ms
        return now_ms - looked_ms

    def rest(self) -> None:
        """There is no deadline: until the next look nobody minds how late it is."""
        self._looked_ms = None
