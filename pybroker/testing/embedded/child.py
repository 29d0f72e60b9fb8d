"""A broker for tests, in a process of its own that a fork server has made: the daemon of `pybroker serve`, and a
control socket through which the test makes things happen that do not happen otherwise.

On the asyncio loop. The first message tells that it serves, `{"port": ...}`, or why it cannot, `{"error": ...}`. Each
command, `{"do": ..., ...}`, is answered with `{"value": ...}` or `{"error": ...}`.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from collections.abc import Mapping
from typing import Any

from pybroker.config.broker import BrokerConfig
from pybroker.config.definition import ConfigError
from pybroker.observability.logging import configure_logging
from pybroker.profiles import load_profile
from pybroker.protocol.loader import record_classes
from pybroker.server.daemon import Daemon, ready_line
from pybroker.server.registry import load_apis
from pybroker.testing.embedded import wire

logger = logging.getLogger(__name__)

_OK, _FAILED = 0, 1
_NS_PER_MS = 1_000_000


def warm_up() -> None:
    """Import and generate what a start would, so that forked processes have it."""
    import structlog  # noqa: F401 - by the first line of the log

    load_apis()
    record_classes("metadata", "metadata")


def serve(properties: Mapping[str, str], control: socket.socket) -> int:
    """Serve until SIGTERM or a failure; the exit status."""
    configure_logging()
    try:
        config = BrokerConfig.load(None, [f"{key}={value}" for key, value in properties.items()])
        return asyncio.run(_Served(config, control).run())
    except (ConfigError, OSError, RuntimeError) as error:
        logger.error("the broker ends: %s", error)
        wire.send(control, {"error": str(error)})
        return _FAILED


class _Served:
    """The daemon between its start and its end, and those who may tell it something."""

    def __init__(self, config: BrokerConfig, control: socket.socket) -> None:
        self._config = config
        self._control = control
        self._started_ns = time.monotonic_ns()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        asked_to_stop = asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, asked_to_stop.set)
        daemon = Daemon(self._config, load_profile(self._config))
        await daemon.start()
        started_ms = (time.monotonic_ns() - self._started_ns) // _NS_PER_MS
        print(ready_line(daemon, started_ms), flush=True)
        wire.send(self._control, {"port": daemon.listeners[0].port})
        stopping = asyncio.ensure_future(asked_to_stop.wait())
        ends: list[asyncio.Future[Any]] = [stopping, daemon.failed]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not asked_to_stop.is_set():
            logger.error("the broker cannot go on: %s", daemon.failed.result())
        await daemon.stop()
        return _OK if asked_to_stop.is_set() else _FAILED
