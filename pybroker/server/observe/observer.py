"""`Observer`: serves metrics, health and events over HTTP for as long as the broker is there.

Made and ended on the broker's loop; it answers on a thread of its own. A scrape asks the loop for a snapshot and turns
it into text over there. The address can fail (`OSError`), which is final only where it was set explicitly.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pybroker.config.broker import BrokerConfig
from pybroker.config.listeners import parse_address
from pybroker.observability.event_log import KINDS
from pybroker.observability.http_server import HttpServer, Response, text_response
from pybroker.server.observe.health import Health
from pybroker.server.observe.observed import Observed

if TYPE_CHECKING:
    from pybroker.observability.page_cache import PageCache
    from pybroker.server.observe.snapshot import Collector

logger = logging.getLogger(__name__)

LISTENER_KEY = "pybroker.metrics.listener"
_SNAPSHOT_TIMEOUT_S = 5.0
_PAGE_CACHE_INTERVAL_S = 30.0
_FILE_SYSTEM_TIMEOUT_S = 1.0
_EVENTS_DEFAULT = 100
#: Python makes no number of thousands of them.
_MOST_DIGITS = 18
_UNAVAILABLE = 503


def listener_address(config: BrokerConfig) -> tuple[str, int] | None:
    """Where to listen; None: nowhere."""
    address = parse_address(config.get_str(LISTENER_KEY))
    return address if address is not None and address[1] > 0 else None


class Observer:
    """`address` is where it listens; None while it does not."""

    def __init__(self, observed: Observed) -> None:
        """Needs the running loop."""
        self._observed = observed
        self._loop = asyncio.get_running_loop()
        self._health = Health(observed, self._loop)
        self._server: HttpServer | None = None
        self._made_collector: Collector | None = None
        self._page_cache: Mapping[Path, PageCache] = {}
        self._page_cache_due_s = 0.0
        self._looking: asyncio.Task[None] | None = None
        self._measuring: asyncio.Task[dict[Path, int]] | None = None
        self.address: tuple[str, int] | None = None
        #: Why it does not listen, if it should.
        self.refusal: str | None = None

    def start(self) -> None:
        """Listen. OSError when the address was set explicitly and cannot be used."""
        wanted = listener_address(self._observed.config)
        if wanted is None:
            return
        routes = {
            "/metrics": self._metrics,
            "/health": lambda _: self._health.alive(),
            "/ready": lambda _: self._health.ready(),
            "/events": self._events,
        }
        try:
            self._server = HttpServer(*wanted, routes)
        except OSError as error:
            where = f"{LISTENER_KEY}={self._observed.config.get_str(LISTENER_KEY)}"
            if self._observed.config.is_set(LISTENER_KEY):
                raise OSError(error.errno, f"{where}: {error.strerror}") from error
            self.refusal = f"no metrics: {where}: {error.strerror}; another port can be set, and port 0 turns them off"
            return
        self.address = (wanted[0], self._server.port)
        self._server.start()

    async def stop(self) -> None:
        """Return when nothing of it is under way."""
        if self._server is not None:
            await asyncio.to_thread(self._server.stop)

    async def _metrics(self, query: Mapping[str, str]) -> Response:
        del query
        # Imported with the first scrape: a broker that nobody watches does without.
        from pybroker.observability.exposition import CONTENT_TYPE
        from pybroker.server.observe.render import render
        from pybroker.server.observe.snapshot import Snapshot

        asked_s = time.monotonic()
        begun_s: list[float] = []

        async def collect() -> Snapshot:
            begun_s.append(time.monotonic())
            return await self._collector().collect()

        wanted = asyncio.run_coroutine_threadsafe(collect(), self._loop)
        try:
            snapshot = await asyncio.wait_for(asyncio.wrap_future(wanted), _SNAPSHOT_TIMEOUT_S)
        except TimeoutError:
            return text_response(_UNAVAILABLE, f"the control loop has not answered for {_SNAPSHOT_TIMEOUT_S:g} s")
        snapshot.delay_s = begun_s[0] - asked_s
        paths = {each.path: each.partition_paths for each in snapshot.directories if each.is_online}
        free_bytes = await self._free_bytes(paths)
        answer = Response(200, CONTENT_TYPE, render(snapshot, self._page_cache, free_bytes).encode())
        if time.monotonic() >= self._page_cache_due_s and (self._looking is None or self._looking.done()):
            self._looking = asyncio.get_running_loop().create_task(self._look_at_page_cache(paths))
        return answer

    def _collector(self) -> Collector:
        from pybroker.server.observe.snapshot import Collector

        if self._made_collector is None:
            self._made_collector = Collector(self._observed)
        return self._made_collector

    async def _free_bytes(self, directories: Iterable[Path]) -> Mapping[Path, int]:
        """Nothing while a file system does not answer: it keeps a thread, and not this loop, which is asked for the
        broker's health as well."""
        from pybroker.server.observe.render import find_free_bytes

        measuring = self._measuring
        if measuring is None or measuring.done():
            work = asyncio.to_thread(find_free_bytes, list(directories))
            measuring = self._measuring = asyncio.get_running_loop().create_task(work)
        # Another scrape may put a task of its own into the attribute before this one goes on.
        done, _ = await asyncio.wait([measuring], timeout=_FILE_SYSTEM_TIMEOUT_S)
        return measuring.result() if done else {}

    async def _look_at_page_cache(self, paths: Mapping[Path, list[Path]]) -> None:
        """For the next scrape: with thousands of logs it takes too long for this one."""
        from pybroker.observability.page_cache import page_cache

        found = {path: await asyncio.to_thread(page_cache, directories) for path, directories in paths.items()}
        self._page_cache = {path: each for path, each in found.items() if each is not None}
        self._page_cache_due_s = time.monotonic() + _PAGE_CACHE_INTERVAL_S

    async def _events(self, query: Mapping[str, str]) -> Response:
        kind, limit, after = query.get("kind"), query.get("limit", ""), query.get("after", "")
        if kind is not None and kind not in KINDS:
            return text_response(400, f"kind={kind}: accepted are {', '.join(KINDS)}")
        if not all((text.isdecimal() and len(text) <= _MOST_DIGITS) or not text for text in (limit, after)):
            return text_response(400, f"limit and after are whole numbers of at most {_MOST_DIGITS} digits")
        found = self._observed.events.newest(int(limit or _EVENTS_DEFAULT), kind=kind, after=int(after or 0))
        body = json.dumps({"events": [each.as_dict() for each in found]})
        return Response(200, "application/json", body.encode() + b"\n")
