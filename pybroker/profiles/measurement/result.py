"""`Measurement`: what `pybroker profile measure` found, and its JSON. docs/measurement.md describes the fields.

Immutable. Failures: `MeasurementError` for a text that is no measurement; it says why.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar, get_type_hints

from pybroker.native.measure import RunResult
from pybroker.profiles.matching import Fact
from pybroker.values import Value

SCHEMA = 1
"""Raised when a field changes its meaning or goes."""

_T = TypeVar("_T")


class MeasurementError(Exception):
    """A file is not the measurement it should be."""


class Figures(Value):
    """One run. Rates are per second of wall clock; for work on memory they are per second of CPU, which somebody else
    on the machine does not change. CPU is that of the thread that did the work, on the loopback device the server's.
    Latencies are of single operations."""

    what: str
    operations: int
    bytes: int
    seconds: float
    bytes_per_second: float
    operations_per_second: float
    cpu_us_per_operation: float
    #: None for runs that move no bytes.
    cpu_seconds_per_gb: float | None
    min_us: float
    p50_us: float
    p90_us: float
    p99_us: float
    p999_us: float
    max_us: float


def figures_of(what: str, run: RunResult, cpu_ns: int | None = None, *, by_cpu: bool = False) -> Figures:
    """The figures of a run; `cpu_ns` where the work was not on the thread that ran it."""
    used_ns = run.cpu_ns if cpu_ns is None else cpu_ns
    rate_ns = max(used_ns if by_cpu else run.elapsed_ns, 1)
    operations = max(run.operations, 1)
    return Figures(
        what=what,
        operations=run.operations,
        bytes=run.bytes,
        seconds=round(run.elapsed_ns / 1e9, 3),
        bytes_per_second=round(run.bytes / rate_ns * 1e9),
        operations_per_second=round(run.operations / rate_ns * 1e9, 1),
        cpu_us_per_operation=round(used_ns / operations / 1e3, 3),
        cpu_seconds_per_gb=round(used_ns / run.bytes, 4) if run.bytes > 0 else None,
        min_us=run.min_ns / 1e3,
        p50_us=run.p50_ns / 1e3,
        p90_us=run.p90_ns / 1e3,
        p99_us=run.p99_ns / 1e3,
        p999_us=run.p999_ns / 1e3,
        max_us=run.max_ns / 1e3,
    )


class Conclusion(Value):
    """A name for what was found, and why in one or two sentences."""

    name: str
    why: str


class Measurement(Value):
    """Everything that is saved."""

    schema: int
    #: UTC, ISO 8601.
    made_at: str
    #: pybroker and its version.
    made_by: str
    seconds: float
    directory: str
    io_backend: str
    #: Size of the file that was measured with.
    region_bytes: int
    #: `matching.facts_of` the machine, for recognising it.
    facts: Mapping[str, Fact]
    #: `Machine.as_dict()` at that time.
    machine: Mapping[str, Any]
    medium: Conclusion
    flush: Conclusion
    #: Deviations from the plan.
    notes: tuple[str, ...]
    results: Mapping[str, Figures]

    def to_json(self) -> str:
        """The text of the file."""
        return json.dumps(self.as_dict(), indent=2) + "\n"

    def rate(self, name: str) -> float | None:
        """Bytes per second of a run; None when it was not made."""
        figures = self.results.get(name)
        return None if figures is None else figures.bytes_per_second

    def cpu(self, name: str) -> float | None:
        """CPU seconds per GB of a run; None when it was not made."""
        figures = self.results.get(name)
        return None if figures is None else figures.cpu_seconds_per_gb

    def p50_us(self, name: str) -> float | None:
        """Median of a run; None when it was not made."""
        figures = self.results.get(name)
        return None if figures is None else figures.p50_us


def from_json(text: str) -> Measurement:
    """The measurement in a file's text. MeasurementError."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise MeasurementError(f"it is not JSON: {error}") from None
    if not isinstance(content, dict) or "schema" not in content:
        raise MeasurementError("it is not a measurement: it has no schema")
    if content["schema"] != SCHEMA:
        raise MeasurementError(f"its schema is {content['schema']!r}, this version reads {SCHEMA}; measure again")
    try:
        results = {name: _checked(Figures, name, each) for name, each in content.pop("results").items()}
        medium = _checked(Conclusion, "medium", content.pop("medium"))
        flush = _checked(Conclusion, "flush", content.pop("flush"))
        notes = tuple(str(each) for each in content.pop("notes"))
        return Measurement(**content, notes=notes, medium=medium, flush=flush, results=results)
    except (KeyError, TypeError, AttributeError) as error:
        raise MeasurementError(f"it is not a whole measurement: {error}") from None


def _checked(kind: type[_T], name: str, content: Any) -> _T:
    """A flat value from an object with exactly its fields. TypeError."""
    for field, hint in get_type_hints(kind).items():
        value = content[field]
        accepted = (int, float) if hint is float else hint
        if isinstance(value, bool) or not isinstance(value, accepted):
            raise TypeError(f"{name}.{field} is {value!r}")
    return kind(**content)
