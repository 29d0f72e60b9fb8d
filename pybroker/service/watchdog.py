"""Signs of life for the service manager's watchdog, on a thread of its own.

One is given only when both halves have shown that they turn. A callback came back from the asyncio loop, and a task
from every reactor, each having been woken for it. So a broker that stands still in either half is restarted, and one
that is idle is not. Nothing here can fail; when signs stop, the log and the status say what they wait for.
"""

from __future__ import annotations

import asyncio
import logging
import threading

from pybroker.server.observe.health import Health
from pybroker.server.observe.observed import Observed
from pybroker.service.notify import ServiceManager

logger = logging.getLogger(__name__)

_LOOKS_PER_PERIOD = 4
"""A halt of half the period is forgiven whenever it begins."""


class Watchdog:
    """Gives signs from `start` to `stop`, which comes before the data plane is closed. `reasons` says why none is given
    now; empty while all is well."""

    def __init__(self, manager: ServiceManager, observed: Observed, period_s: float) -> None:
        """`period_s`: without a sign for so long the manager ends the broker. Needs the running loop."""
        self._manager = manager
        self._interval_s = period_s / _LOOKS_PER_PERIOD
        self._health = Health(observed, asyncio.get_running_loop(), self._interval_s)
        self._thread = threading.Thread(target=self._give_signs, name="watchdog", daemon=True)
        self._over = threading.Event()
        self.reasons: list[str] = []

    def start(self) -> None:
        """Give the first sign soon."""
        self._thread.start()

    async def stop(self) -> None:
        """Return when no look at the broker is under way."""
        self._over.set()
        await asyncio.to_thread(self._thread.join)

    def _give_signs(self) -> None:
        with asyncio.Runner() as runner:
            while True:
                self._note(runner.run(self._health.standing_still()))
                if self._over.wait(self._interval_s):
                    return

    def _note(self, reasons: list[str]) -> None:
        before, self.reasons = self.reasons, reasons
        if not reasons:
            self._manager.tell_alive()
            if before:
                logger.warning("the broker turns again")
        elif not before:
            # Another status may come from the half that stands still.
            self._manager.tell_status(standing_still(reasons))
            logger.error("no sign of life for the service manager: %s", "; ".join(reasons))


def standing_still(reasons: list[str]) -> str:
    """The status of a broker that does not turn."""
    return f"standing still: {'; '.join(reasons)}"
