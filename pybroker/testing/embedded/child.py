"""A broker for tests, in a process of its own that a fork server has made. It is the daemon of `pybroker serve`, with a
control socket by which the test causes rare events.

On the asyncio loop. The first message tells that it serves, `{"value": None}`, or why it cannot, `{"error": ...}`. Each
command, `{"do": ..., ...}`, is answered with `{"value": ...}` or `{"error": ...}`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Mapping
from typing import Any

from pybroker.config.broker import BrokerConfig
from pybroker.config.definition import ConfigError
from pybroker.observability.logging import configure_logging
from pybroker.profiles import load_profile
from pybroker.protocol.errors import KafkaError
from pybroker.protocol.loader import record_classes
from pybroker.server.clock import SystemClock
from pybroker.server.daemon import Daemon, ready_line
from pybroker.server.registry import load_apis
from pybroker.testing.embedded import wire
from pybroker.testing.seccomp import hand_over

logger = logging.getLogger(__name__)

_OK, _FAILED = 0, 1
_NS_PER_MS = 1_000_000


def warm_up() -> None:
    """Import and generate what a start would, so that forked processes have it."""
    load_apis()
    record_classes("metadata", "metadata")


class JumpingClock(SystemClock):
    """The system's, but the wall clock is so much ahead (or, below zero, behind)."""

    def __init__(self, ahead_ms: int) -> None:
        self.ahead_ms = ahead_ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


def serve(properties: Mapping[str, str], ahead_ms: int, control: socket.socket) -> int:
    """Serve until SIGTERM or a failure, with the wall clock ahead by so much; the exit status."""
    configure_logging()
    try:
        config = BrokerConfig.load(None, [f"{key}={value}" for key, value in properties.items()])
        return asyncio.run(_Served(config, JumpingClock(ahead_ms), control).run())
    except (ConfigError, OSError, RuntimeError) as error:
        logger.error("the broker ends: %s", error)
        wire.send(control, {"error": str(error)})
        return _FAILED


class _Served:
    """The daemon between its start and its end, and those who may tell it something."""

    def __init__(self, config: BrokerConfig, clock: JumpingClock, control: socket.socket) -> None:
        self._config = config
        self._clock = clock
        self._control = control
        self._started_ns = time.monotonic_ns()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        asked_to_stop = asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, asked_to_stop.set)
        daemon = Daemon(self._config, load_profile(self._config))
        daemon.clock = self._clock
        await daemon.start()
        started_ms = (time.monotonic_ns() - self._started_ns) // _NS_PER_MS
        print(ready_line(daemon, started_ms), flush=True)
        wire.send(self._control, {"value": None})
        loop.add_reader(self._control, self._on_command, daemon)
        stopping = asyncio.ensure_future(asked_to_stop.wait())
        ends: list[asyncio.Future[Any]] = [stopping, daemon.failed]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if daemon.failed.done():
            logger.error("the broker cannot go on: %s", daemon.failed.result())
        loop.remove_reader(self._control)
        await daemon.stop()
        # A signal that comes while it closes, or just before, does not make a clean stop of a failure.
        return _FAILED if daemon.failed.done() else _OK

    def _on_command(self, daemon: Daemon) -> None:
        received = wire.receive(self._control)
        if received is None:
            # The test has gone, and the fork server will end this process.
            asyncio.get_running_loop().remove_reader(self._control)
            return
        descriptors: list[int] = []
        try:
            answer: wire.Message = {"value": self._do(daemon, received[0], descriptors)}
        except (KafkaError, OSError, ValueError) as error:
            answer = {"error": f"{received[0]['do']}: {error}"}
        wire.send(self._control, answer, descriptors)
        for each in descriptors:
            os.close(each)

    def _do(self, daemon: Daemon, command: wire.Message, descriptors: list[int]) -> Any:
        """The value of an answer; `descriptors` go with it."""
        match command["do"]:
            case "expire_sessions":
                return daemon.services.groups.expire_sessions(command["group_id"])
            case "set_clock":
                self._clock.ahead_ms = command["ahead_ms"]
                return None
            case "hand_over":
                descriptors.append(hand_over(command["calls"]))
                return None
        raise ValueError("no such command")
