"""Is the broker alive, and is it ready? On a loop beside the broker's, so that it can be said when that stands: the
observer's, or the watchdog's.

Alive: the control loop goes round and every reactor turns, shown by asking them now. Ready: besides, everything is
recovered and clients are served.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from pybroker.native import NativeError
from pybroker.native.metrics import ping
from pybroker.observability.http_server import Response
from pybroker.server.observe.observed import CLOSING, RECOVERING, SERVING, STARTING, Observed

TIMEOUT_S = 2.0
"""Whoever does not turn within it is taken for stuck."""

_OK = 200
_UNAVAILABLE = 503
_NOT_READY = {
    STARTING: "the broker starts",
    CLOSING: "the broker closes",
}


class Health:
    """Answers `/health` and `/ready` for one broker, whose loop is `loop`."""

    def __init__(self, observed: Observed, loop: asyncio.AbstractEventLoop, timeout_s: float = TIMEOUT_S) -> None:
        self._observed = observed
        self._loop = loop
        self._timeout_s = timeout_s

    async def alive(self) -> Response:
        """200 while data plane and control loop turn, else 503 with the reasons."""
        checks, reasons = await self._check()
        return _response("alive" if not reasons else "stuck", checks, reasons)

    async def ready(self) -> Response:
        """200 while clients are served, else 503 with the reasons."""
        checks, reasons = await self._check()
        reasons = self._unready() + reasons
        return _response("ready" if not reasons else "not ready", checks, reasons)

    async def standing_still(self) -> list[str]:
        """The loops that stand still, the control loop or a reactor; empty when all turn."""
        return (await self._ask())[1]

    def _unready(self) -> list[str]:
        observed = self._observed
        if observed.phase == SERVING:
            return []
        if observed.phase == RECOVERING:
            opened = 0 if observed.logs is None else len(observed.logs.logs)
            return [f"recovery: {opened} of {observed.assigned_count} logs are open"]
        return [_NOT_READY[observed.phase]]

    async def _check(self) -> tuple[dict[str, Any], list[str]]:
        checks, reasons = await self._ask()
        failure = self._observed.failure
        return checks, reasons if failure is None else [f"the broker cannot go on: {failure}", *reasons]

    async def _ask(self) -> tuple[dict[str, Any], list[str]]:
        loop_s, plane = await asyncio.gather(self._loop_delay(), asyncio.to_thread(self._plane))
        reasons = [] if loop_s is not None else [f"the control loop has not turned for {self._timeout_s:g} s"]
        reasons += [plane] if isinstance(plane, str) else []
        checks = {
            "phase": self._observed.phase,
            "control_loop_ms": None if loop_s is None else round(loop_s * 1000, 3),
            "data_plane_ms": None if isinstance(plane, str) else plane,
            "log_dirs_below_reserve": self._low(),
        }
        return checks, reasons

    def _low(self) -> list[str]:
        """Where producers are refused, because the disk is nearly full. Consumers are served, and what helps is not
        to start the broker anew: it says nothing of being alive or ready."""
        logs = self._observed.logs
        return [] if logs is None else [str(each.path) for each in logs.live if each.space.is_low]

    async def _loop_delay(self) -> float | None:
        """How long the broker's loop takes to come round, in seconds; None: too long."""
        asked_s = time.monotonic()
        turned: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        own_loop = asyncio.get_running_loop()

        def on_turn() -> None:
            own_loop.call_soon_threadsafe(_set, turned)

        try:
            self._loop.call_soon_threadsafe(on_turn)
            await asyncio.wait_for(turned, self._timeout_s)
        except (TimeoutError, RuntimeError):  # RuntimeError: that loop has been closed
            return None
        return time.monotonic() - asked_s

    def _plane(self) -> float | str | None:
        """How long the slowest reactor took, in ms, or what is wrong; None while none runs, as at the start."""
        if self._observed.phase != SERVING:
            return None
        try:
            answer = ping(self._observed.native, int(self._timeout_s * 1000))
        except NativeError as error:
            return f"the data plane does not run: {error}"
        if answer.stuck_reactor is not None:
            return f"reactor {answer.stuck_reactor} has not turned for {self._timeout_s:g} s"
        return answer.latency_us / 1000


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _response(status: str, checks: dict[str, Any], reasons: list[str]) -> Response:
    body = {"status": status, "reasons": reasons, **checks}
    return Response(_UNAVAILABLE if reasons else _OK, "application/json", json.dumps(body).encode() + b"\n")
