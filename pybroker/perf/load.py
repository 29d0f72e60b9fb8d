"""Runs one load as a child process and reads its output on a thread.

The child is pbload, or a program with real clients that prints the same lines. Each line is JSON: one line for each
interval while the load runs, and the result at the end.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pybroker.perf import lifetime
from pybroker.perf.histogram import Histogram
from pybroker.protocol.errors import ErrorCode

#: pbload counts failed answers by Kafka's error code. These two faults have no error code.
_FAULTS = {"malformed": "malformed answers", "empty": "answers without records, where there were some"}


class LoadFailed(RuntimeError):
    """A load ended without a result, or the broker answered with errors."""


@dataclass(frozen=True)
class Interval:
    """The counts of a load in one interval. `start_s` is in seconds since the epoch."""

    start_s: float
    seconds: float
    requests: int
    records: int
    payload_bytes: int
    latency_us: dict[str, float]
    histogram: Histogram

    @classmethod
    def of(cls, line: dict[str, Any]) -> Interval:
        """The interval of a line that the load printed, or of a dict that `as_json` returned."""
        counts = (int(line["requests"]), int(line["records"]), int(line["payload_bytes"]))
        return cls(
            float(line["time_s"]), float(line["seconds"]), *counts, line["latency_us"], Histogram(line["histogram"])
        )

    @property
    def mb_per_s(self) -> float:
        """Payload in 10^6 bytes per second."""
        return self.payload_bytes / self.seconds / 1e6 if self.seconds else 0.0

    @property
    def requests_per_s(self) -> float:
        """Answers per second."""
        return self.requests / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, Any]:
        """The interval as a dict for JSON."""
        return {
            "time_s": self.start_s,
            "seconds": self.seconds,
            "requests": self.requests,
            "records": self.records,
            "payload_bytes": self.payload_bytes,
            "latency_us": self.latency_us,
            "histogram": self.histogram.pairs(),
        }


@dataclass
class Load:
    """A load: its name, its command, and what it has measured so far. `result` is the last line that the command
    prints; it is empty until then."""

    name: str
    command: Sequence[str]
    #: Options of the load that its last line does not repeat; they are added to `result`.
    facts: dict[str, Any] = field(default_factory=dict)
    intervals: list[Interval] = field(default_factory=list)
    result: dict[str, Any] = field(default_factory=dict)
    histogram: Histogram = field(default_factory=Histogram)

    def as_json(self) -> dict[str, Any]:
        """The load as a dict for JSON; `from_json` reads it."""
        return {
            "name": self.name,
            "command": list(self.command),
            "result": self.result,
            "histogram": self.histogram.pairs(),
            "intervals": [interval.as_json() for interval in self.intervals],
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Load:
        """The load of a dict that `as_json` returned. `KeyError`, `TypeError` or `ValueError` for any other dict."""
        intervals = [Interval.of(line) for line in document["intervals"]]
        histogram = Histogram(document["histogram"])
        return cls(document["name"], document["command"], {}, intervals, document["result"], histogram)


def _failures(counts: dict[str, int]) -> str:
    """Each kind of failure with its name, error code and count: "NOT_LEADER_OR_FOLLOWER (6): 2"."""
    return ", ".join(f"{_FAULTS.get(code) or _name(code)}: {count}" for code, count in counts.items())


def _name(code: str) -> str:
    try:
        return f"{ErrorCode(int(code)).name} ({code})"
    except ValueError:
        return f"error code {code}"


class RunningLoad:
    """A load whose process has been started. A reader thread calls `on_interval` after each interval."""

    def __init__(self, load: Load, on_interval: Callable[[Load, Interval], None]) -> None:
        """Start the command."""
        self.load = load
        self._on_interval = on_interval
        self._broken = ""
        self._errors: list[str] = []
        self._process = subprocess.Popen(
            list(load.command),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=lifetime.environment(),
        )
        self._readers = [threading.Thread(target=reader, daemon=True) for reader in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for text in output:
                try:
                    self._take(json.loads(text))
                except ValueError:
                    self._broken = self._broken or text

    def _take(self, line: dict[str, Any]) -> None:
        if "interval" in line:
            interval = Interval.of(line)
            self.load.intervals.append(interval)
            self._on_interval(self.load, interval)
        else:
            self.load.histogram = Histogram(line.pop("histogram", ()))
            self.load.result = {**line, **self.load.facts}

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as errors:
            self._errors += list(errors)[-20:]

    @property
    def running(self) -> bool:
        """True until the process has ended and all of its output has been read."""
        return self._process.poll() is None or any(reader.is_alive() for reader in self._readers)

    @property
    def failed(self) -> bool:
        """True when the process has ended with an exit status other than 0."""
        return self._process.poll() not in (None, 0)

    def end_early(self) -> None:
        """Tell the process to stop (SIGTERM). The load's result is what it has measured so far."""
        if self.running:
            self._process.terminate()

    def wait(self) -> int:
        """Wait until the process has ended and all of its output has been read. Returns the exit status."""
        status = self._process.wait()
        for reader in self._readers:
            reader.join()
        return status

    def finish(self) -> Load:
        """Wait until the process has ended. Raises `LoadFailed` when a request failed or there is no result."""
        status = self.wait()
        errors = "".join(self._errors).strip() or self._broken.strip()
        if self.load.result.get("errors"):
            raise LoadFailed(f"{self.load.name}: requests failed: {_failures(self.load.result['errors'])}")
        if status != 0 or not self.load.result:
            raise LoadFailed(f"{self.load.name} ended with status {status}: {errors or 'it said nothing'}")
        return self.load
