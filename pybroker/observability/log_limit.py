"""Bounds how many lines the log gets, per kind and per peer, and says how many it left out.

A kind is a place in the code that logs. Lines of a kind are alike when they come of one peer or, without a peer, when
they differ only in numbers. In each window of a minute the first lines of a kind appear, so no error is hidden
entirely; a summary follows for the others. Any thread; the handler's lock guards the state.
"""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from pybroker.observability.event_log import forget_event
from pybroker.observability.log_bounds import VALUE_BYTES, bounded, message_of, shorten

WINDOW_S = 60.0
PEER_LINES = 60
"""Lines of a kind that one peer causes in a window."""
ALIKE_LINES = 10
"""Lines of a kind in a window that no peer caused and that differ only in numbers."""
KIND_LINES = 600
"""Lines of a kind in a window, over all peers, once the broker serves."""

_MOST_KINDS = 1024
_MOST_PEERS_NAMED = 4
_PEER_BYTES = 64
_NUMBER = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?![\w-])")
_KIND, _PEER = "pybroker_kind", "pybroker_peer"

current_peer: ContextVar[str] = ContextVar("current_peer", default="")
"""The address of the client whose request is being handled; empty where there is none."""


def caused_by(peer: str, kind: int = 0) -> dict[str, Any]:
    """The `extra` of a log call about a peer. `kind` tells lines apart that one place in the code logs for others."""
    return {_PEER: peer, _KIND: kind}


def subject_of(peer: str, message: str) -> str:
    """The common part of similar lines of a kind."""
    return peer[:_PEER_BYTES] if peer else _NUMBER.sub("#", message)[:VALUE_BYTES]


class _Kind:
    """A kind's lines in its present window."""

    __slots__ = ("began_s", "last", "left_out", "left_out_count", "shown", "shown_count")

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.shown_count = 0
        #: By subject; no longer than KIND_LINES once the broker serves.
        self.shown: Counter[str] = Counter()
        self.left_out_count = 0
        #: By peer, of those that were shown.
        self.left_out: Counter[str] = Counter()
        #: The latest of the lines that were left out, bounded.
        self.last: logging.LogRecord | None = None


class LineLimit:
    """Decides what appears. Shared by the handlers of a process, so that its counts survive a new log format."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kinds: dict[tuple[object, ...], _Kind] = {}
        #: When the first window is over.
        self._due_s = math.inf
        #: Before, a line per partition is what an operator needs, and no client can cause one.
        self.serving = False
        #: By level's name.
        self.left_out_counts = Counter(dict.fromkeys(("debug", "info", "warning", "error", "critical"), 0))

    def admits(self, record: logging.LogRecord, message: str) -> bool:
        """Whether the line is to appear; one that is not has been counted."""
        kind = self._kind_of(record)
        peer = getattr(record, _PEER, "") or current_peer.get()
        subject = subject_of(peer, message)
        is_within = kind.shown_count < KIND_LINES or not self.serving
        if is_within and kind.shown[subject] < (PEER_LINES if peer else ALIKE_LINES):
            kind.shown[subject] += 1
            kind.shown_count += 1
            return True
        kind.left_out_count += 1
        self.left_out_counts[record.levelname.lower()] += 1
        if peer and subject in kind.shown:
            kind.left_out[subject] += 1
        if kind.last is None:
            kind.last = bounded(record, shorten(message))
        return False

    def _kind_of(self, record: logging.LogRecord) -> _Kind:
        # A message without values may be made of them, and would be a kind of its own each time.
        template = record.msg if record.args else None
        place = (record.name, record.pathname, record.lineno)
        key: tuple[object, ...] = (*place, template, getattr(record, _KIND, 0))
        if key not in self._kinds and len(self._kinds) >= _MOST_KINDS:
            key = ()
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(self._clock())
            self._due_s = min(self._due_s, kind.began_s + WINDOW_S)
        return kind

    def summaries(self, *, final: bool = False) -> Iterator[logging.LogRecord]:
        """A line for each kind whose window is over, or for all kinds, that had lines left out."""
        now_s = self._clock()
        if not final and now_s < self._due_s:
            return
        over = {key: kind for key, kind in self._kinds.items() if final or now_s - kind.began_s >= WINDOW_S}
        for key in over:
            del self._kinds[key]
        self._due_s = min((kind.began_s + WINDOW_S for kind in self._kinds.values()), default=math.inf)
        for kind in over.values():
            if kind.last is not None:
                yield _summary(kind, now_s)

    @property
    def next_summary_s(self) -> float | None:
        """How long until the next one; None: nothing has been left out."""
        began_s = [kind.began_s for kind in self._kinds.values() if kind.left_out_count > 0]
        return max(0.0, min(began_s) + WINDOW_S - self._clock()) if began_s else None


def _summary(kind: _Kind, now_s: float) -> logging.LogRecord:
    assert kind.last is not None
    peers = ", ".join(f"{peer}: {count:,}" for peer, count in kind.left_out.most_common(_MOST_PEERS_NAMED))
    where = f" ({peers})" if peers else ""
    text = f"{kind.left_out_count:,} more like this in the last {round(now_s - kind.began_s)} s{where}: {kind.last.msg}"
    made = bounded(kind.last, text)
    made.created, made.exc_text = time.time(), None
    forget_event(made)
    return made


LIMIT = LineLimit()
"""The one of this process."""


class LimitedHandler(logging.Handler):
    """Hands on to another handler what the limit admits, each line bounded in length, and the summaries."""

    def __init__(self, inner: logging.Handler, limit: LineLimit = LIMIT) -> None:
        super().__init__()
        self.inner = inner
        self._limit = limit
        self._timer: threading.Timer | None = None
        self._closed = False

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler, which holds the lock."""
        self._summarize()
        message = message_of(record)
        if self._limit.admits(record, message):
            self.inner.handle(bounded(record, message))
        else:
            self._arm()

    def _summarize(self, *, final: bool = False) -> None:
        for summary in self._limit.summaries(final=final):
            self.inner.handle(summary)

    def _arm(self) -> None:
        """See to it that the summary comes even if no other line does."""
        delay_s = self._limit.next_summary_s
        if self._timer is not None or self._closed or delay_s is None:
            return
        timer = threading.Timer(delay_s, self._on_timer)
        timer.daemon, timer.name = True, "pb-log-summary"
        try:
            timer.start()
        except RuntimeError:  # no thread can be had; the summary comes with the next line, or in the end
            return
        self._timer = timer

    def _on_timer(self) -> None:
        assert self.lock is not None
        with self.lock:
            self._timer = None
            if not self._closed:
                self._summarize()
                self._arm()

    def flush(self) -> None:
        """See logging.Handler."""
        self.inner.flush()

    def close(self) -> None:
        """See logging.Handler. Tells the lines left out so far."""
        assert self.lock is not None
        with self.lock:
            if not self._closed:
                self._closed = True
                if self._timer is not None:
                    self._timer.cancel()
                self._summarize(final=True)
        self.inner.close()
        super().close()
