"""Keeps the service manager informed of one broker, from its first moment to its last. On the asyncio loop.

The manager hears READY when clients are served and not before. During recovery it is asked for more time as long as
there is progress, so that a start may take hours and a start that hangs is still ended. The status line follows the
broker. Where no service manager listens, none of this does anything.
"""

from __future__ import annotations

import asyncio
import faulthandler
import sys
from collections.abc import Callable
from types import TracebackType

from pybroker.config.listeners import format_address
from pybroker.observability import process
from pybroker.server.daemon import Daemon
from pybroker.server.observe.observed import CLOSING, RECOVERING, SERVING, STARTING
from pybroker.service.notify import ServiceManager
from pybroker.service.watchdog import Watchdog, standing_still

_INTERVAL_S = 1.0
_MORE_TIME_S = 120.0
"""What one sign of progress asks for: a disk that is busy may take long for the next."""


class Supervision:
    """A context from before the broker starts until before it closes; in it `tell_ready`, and `reload` when asked."""

    def __init__(self, manager: ServiceManager, daemon: Daemon) -> None:
        self._manager = manager
        self._daemon = daemon
        self._progress = (0, 0, 0)
        self._telling: asyncio.Task[None] | None = None
        self._watchdog: Watchdog | None = None

    async def __aenter__(self) -> Supervision:
        if not self._manager.listens:
            return self
        self._telling = asyncio.create_task(self._tell(), name="service status")
        return self

    def tell_ready(self) -> None:
        """Clients are served. From now on the manager waits for signs of life."""
        self._manager.tell_ready(self.status())
        period_s = self._manager.watchdog_s
        if period_s is not None:
            # SIGABRT ends a broker that stands still, so that the journal shows where the control loop was. The dump is
            # of that thread alone, which gets the signal: to walk the stacks of others while they run may crash.
            faulthandler.enable(sys.stderr, all_threads=False)
            self._watchdog = Watchdog(self._manager, self._daemon.observed, period_s)
            self._watchdog.start()

    def reload(self, action: Callable[[], None]) -> None:
        """Do it as a reload. Before the broker serves the manager only knows of the start, which goes on."""
        is_ready = self._daemon.observed.phase == SERVING
        if is_ready:
            self._manager.tell_reloading(self.status())
        try:
            action()
        finally:
            if is_ready:
                self._manager.tell_ready(self.status())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watchdog is not None:
            await self._watchdog.stop()
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)
        reason = self._daemon.observed.failure if error is None else str(error)
        self._manager.tell_stopping("closing" if reason is None else f"closing: the broker cannot go on: {reason}")
        self._manager.close()

    def status(self) -> str:
        """The broker in one line."""
        if self._watchdog is not None and self._watchdog.reasons:
            return standing_still(self._watchdog.reasons)
        observed = self._daemon.observed
        opened = 0 if observed.logs is None else len(observed.logs.logs)
        if observed.phase == RECOVERING and observed.logs is not None:
            checked_mib = observed.logs.scanned_bytes >> 20
            return f"recovering: {opened} of {observed.assigned_count} logs are open, {checked_mib} MiB checked"
        if observed.phase == SERVING:
            return f"serving {opened} partitions on {self._listeners()}{self._missing()}"
        return {STARTING: "starting", RECOVERING: "recovering", CLOSING: "closing"}[observed.phase]

    def _listeners(self) -> str:
        return ",".join(f"{each.name}://{format_address(each.host, each.port)}" for each in self._daemon.listeners)

    def _missing(self) -> str:
        observed = self._daemon.observed
        assert observed.services is not None
        offline = observed.services.replicas.offline_count
        log_dirs = 0 if observed.logs is None else len(observed.logs.failures.offline)
        parts = ([f"{offline} partitions offline"] if offline else []) + (
            [f"{log_dirs} log dirs out of service"] if log_dirs else []
        )
        return f"; {', '.join(parts)}" if parts else ""

    async def _tell(self) -> None:
        while True:
            phase = self._daemon.observed.phase
            if phase in (STARTING, RECOVERING) and self._has_progressed():
                self._manager.ask_for_time(_MORE_TIME_S)
            self._manager.tell_status(self.status())
            await asyncio.sleep(_INTERVAL_S)

    def _has_progressed(self) -> bool:
        """Whether recovery is further than at the last call. A log counts when it is open; within a large one it is
        what the process reads that shows it."""
        logs = self._daemon.observed.logs
        before = self._progress
        if logs is not None:
            self._progress = (len(logs.logs), logs.scanned_bytes, process.read_bytes())
        return self._progress != before
