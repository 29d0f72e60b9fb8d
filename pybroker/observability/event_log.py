"""Why the broker did what it did: the newest events, kept in memory for `pybroker events`.

An event is a line of the log that was given `event(...)`; the line's text says it to people, the fields to programs.
Any thread; for a new event the oldest one of the kind that has most makes room.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter, deque
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from pybroker.observability.log_bounds import bounded_fields, message_of
from pybroker.values import Value

KINDS: Mapping[str, str] = {
    "rebalance": "a group begins a new generation",
    "roll": "a partition begins a new segment",
    "slow_request": "a request took longer than pybroker.slow.request.ms",
    "throttle": "a connection had to wait for buffer memory, or a client is over its quota",
    "offline": "a partition or a log dir went out of service",
    "low_space": "a log dir has less free than its reserve, or has enough again",
    "loss": "a log has lost records since it was last open",
    "fencing": "the controllers fence or unfence this broker, or it registers with them",
    "isr": "the in-sync replicas of a partition led here changed",
}
"""All kinds, and what each tells of."""

_CAPACITY = 2048
_ATTRIBUTE = "pybroker_event"


def event(kind: str, **fields: str | int) -> dict[str, Any]:
    """The `extra` of a log call that tells of an event; `kind` is one of KINDS."""
    assert kind in KINDS, kind
    return {_ATTRIBUTE: (kind, fields)}


def event_of(record: logging.LogRecord) -> tuple[str, Mapping[str, str | int]] | None:
    """The event of a log line; None for one without."""
    found: tuple[str, Mapping[str, str | int]] | None = getattr(record, _ATTRIBUTE, None)
    return found


def forget_event(record: logging.LogRecord) -> None:
    """Make a line tell of no event."""
    record.__dict__.pop(_ATTRIBUTE, None)


class Event(Value):
    """`number` counts from 1 and tells what came since; `time_s` is of the wall clock."""

    number: int
    time_s: float
    kind: str
    text: str
    fields: Mapping[str, str | int]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "number": self.number,
            "time": self.time_s,
            "kind": self.kind,
            "text": self.text,
            "fields": dict(self.fields),
        }


class EventLog(logging.Handler):
    """A handler that keeps events and nothing else of what is logged."""

    def __init__(self, capacity: int = _CAPACITY) -> None:
        super().__init__()
        self._capacity = capacity
        #: By kind, the oldest first.
        self._events: dict[str, deque[Event]] = {kind: deque() for kind in KINDS}
        self._numbers = itertools.count(1)
        self._counts: Counter[str] = Counter(dict.fromkeys(KINDS, 0))

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler, which holds the lock."""
        found = event_of(record)
        if found is None:
            return
        kind, fields = found
        self._counts[kind] += 1
        text, kept = message_of(record), bounded_fields(fields)
        self._events[kind].append(Event(next(self._numbers), record.created, kind, text, kept))
        if sum(map(len, self._events.values())) > self._capacity:
            # One that clients cause over and over must not push out the others.
            max(self._events.values(), key=len).popleft()

    def counts(self) -> dict[str, int]:
        """Events since the start, by kind, those no longer kept included."""
        with self._locked():
            return dict(self._counts)

    def newest(self, limit: int, *, kind: str | None = None, after: int = 0) -> list[Event]:
        """Up to `limit`, oldest first, that came after the event with number `after`."""
        with self._locked():
            kinds = self._events.values() if kind is None else (self._events[kind],)
            found = [each for events in kinds for each in events if each.number > after]
        found.sort(key=attrgetter("number"))
        return found[-limit:] if limit > 0 else []

    def _locked(self) -> Any:
        assert self.lock is not None
        return self.lock
