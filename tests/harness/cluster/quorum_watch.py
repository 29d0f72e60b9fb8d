"""`QuorumWatch`: when the controllers of a cluster fenced and unfenced its brokers, as an observer of their metadata
log hears of it (KIP-595).

A thread with an asyncio loop of its own, which ends with the context. It hears a few milliseconds after the commit.
"""

from __future__ import annotations

import asyncio
import threading
import time
from types import TracebackType

from pybroker.cluster.layout import Layout
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import MetadataImage
from pybroker.protocol.uuids import random_uuid
from pybroker.quorum.fetcher import FetcherSettings, MetadataFetcher
from pybroker.quorum.leader import LeaderFinder

#: No node of a cluster has it.
_OBSERVER_ID = 999
_REQUEST_SECONDS, _BACKOFF_SECONDS, _FETCH_BYTES = 5.0, 0.05, 1 << 20


class QuorumWatch:
    """A context manager. Its methods are for any thread; moments are seconds of the monotonic clock."""

    def __init__(self, layout: Layout) -> None:
        settings = FetcherSettings(
            _OBSERVER_ID,
            layout.cluster_id,
            random_uuid(),
            _REQUEST_SECONDS,
            _BACKOFF_SECONDS,
            _FETCH_BYTES,
            _FETCH_BYTES,
        )
        controllers = [(node.host, node.port) for node in layout.controllers]
        self._fetcher = MetadataFetcher(settings, LeaderFinder(controllers), self._on_image)
        self._changed = threading.Condition()
        #: Of each broker: when it was fenced (True) and unfenced, since the beginning.
        self._fenced: dict[int, list[tuple[float, bool]]] = {}
        self._loop = asyncio.new_event_loop()
        self._running: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="quorum watch")

    def _on_image(self, _delta: MetadataDelta, image: MetadataImage) -> None:
        now = time.monotonic()
        with self._changed:
            for node_id, broker in image.cluster.brokers.items():
                past = self._fenced.setdefault(node_id, [])
                if not past or past[-1][1] != broker.fenced:
                    past.append((now, broker.fenced))
            self._changed.notify_all()

    def fenced_at(self, node_id: int, since: float, timeout_seconds: float) -> float:
        """When that broker was fenced for the first time after `since`; waits for it. AssertionError when it takes
        longer."""
        with self._changed:
            found = self._changed.wait_for(lambda: self._first(node_id, since), timeout_seconds)
        assert found is not None, f"broker {node_id} was not fenced in {timeout_seconds:g} s"
        return found

    def _first(self, node_id: int, since: float) -> float | None:
        moments = (moment for moment, fenced in self._fenced.get(node_id, ()) if fenced and moment > since)
        return next(moments, None)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._running = self._loop.create_task(self._fetcher.run())
        try:
            self._loop.run_until_complete(self._running)
        except asyncio.CancelledError:
            pass  # the context was left
        finally:
            self._loop.close()

    def __enter__(self) -> QuorumWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(lambda: self._running and self._running.cancel())
        self._thread.join()
