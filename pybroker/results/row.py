"""One figure with all that is needed to judge it, and what is wrong with a document that should have been one.

Values only; any thread may use them. `check` never raises for bad input: it gives a `Rejection` with the reason.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

SCHEMA_VERSION = 1
HIGHER, LOWER = "higher", "lower"
#: A clock may be wrong by this much before it is called wrong.
CLOCK_TOLERANCE = timedelta(minutes=5)
#: Nothing was measured before.
EARLIEST = datetime(2024, 1, 1, tzinfo=UTC)
_EXCERPT_CHARACTERS = 200
#: Between parameters, and between the fields that a key is made of.
PAIR_SEPARATOR, FIELD_SEPARATOR = "\x1e", "\x1f"


class Reason(StrEnum):
    """Why something is in quarantine."""

    TRUNCATED = "truncated"  # not JSON, or JSON that ends too early
    UNKNOWN_FORMAT = "unknown_format"  # JSON of a kind nobody here knows
    UNKNOWN_VERSION = "unknown_version"  # of a kind that is known, in a version that is not
    MALFORMED = "malformed"  # a field is missing or of another type
    NOT_A_NUMBER = "not_a_number"  # the value is NaN or infinite
    FAILED = "failed"  # the benchmark itself failed, so there is no value
    CLOCK_SKEW = "clock_skew"  # measured in the future, before its own commit, or before 2024
    DUPLICATE = "duplicate"  # the same row again
    CONFLICT = "conflict"  # a row's key again, with another value


@dataclass(frozen=True, slots=True)
class Rejection:
    """A refused row. `source` is a file or a place in a topic, `excerpt` the beginning of what was there."""

    reason: Reason
    detail: str
    source: str
    excerpt: str = ""

    def as_json(self) -> dict[str, Any]:
        """As it travels beside the rows."""
        return {
            "schema": SCHEMA_VERSION,
            "rejected": {**asdict(self), "reason": str(self.reason), "excerpt": self.excerpt[:_EXCERPT_CHARACTERS]},
        }


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. Text that does not apply is empty, a number that is not known is None (0 for cores and RAM).

    `confidence_low` and `confidence_high` bound the value at the level `confidence` (0.95, ...); all three or none.
    `better` says which way an improvement goes. `limit` names the machine's limit that bounds this figure: the
    benchmark of a row with suite "limit" and the same unit. Times are ISO 8601 in UTC.
    """

    suite: str
    benchmark: str
    unit: str
    better: str
    value: float
    samples: int
    time: str
    machine: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    confidence: float | None = None
    confidence_low: float | None = None
    confidence_high: float | None = None
    commit: str = ""
    commit_time: str = ""
    cpu: str = ""
    cores: int = 0
    ram_bytes: int = 0
    disk: str = ""
    nic: str = ""
    kernel: str = ""
    file_system: str = ""
    profile: str = ""
    backend: str = ""
    engine: str = ""
    durability: str = ""
    limit: str = ""
    source: str = ""

    @property
    def parameters_text(self) -> str:
        """The parameters in one string, sorted as such."""
        return PAIR_SEPARATOR.join(sorted(f"{name}={value}" for name, value in self.parameters.items()))

    @property
    def key(self) -> str:
        """32 hex digits that name the measurement, whatever it gave: equal for a duplicate."""
        parts = (self.suite, self.benchmark, self.parameters_text, self.unit, self.commit, self.time, self.machine)
        text = FIELD_SEPARATOR.join((*parts, self.profile, self.backend, self.engine, self.durability))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def as_json(self) -> dict[str, Any]:
        """As it is published: one JSON object."""
        return {"schema": SCHEMA_VERSION, "key": self.key, **asdict(self), "parameters": dict(self.parameters)}


_TYPES = {each.name: str(each.type) for each in fields(Row)}
_REQUIRED = ("suite", "benchmark", "unit", "better", "value", "samples", "time", "machine")


def parse_time(text: str) -> datetime | None:
    """An ISO 8601 time as UTC; without a zone it is UTC already. None when it is none."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def time_text(time: datetime | float) -> str:
    """A time, or seconds since the epoch, as rows have it."""
    moment = time if isinstance(time, datetime) else datetime.fromtimestamp(time, UTC)
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def better_of(unit: str) -> str:
    """Which way an improvement goes, where a result file does not say: rates grow, costs shrink."""
    return HIGHER if unit.endswith("/s") else LOWER


def _type_problem(name: str, value: object) -> str | None:
    expected = _TYPES[name]
    if expected.startswith("Mapping"):
        good = isinstance(value, Mapping) and all(isinstance(each, str) for pair in value.items() for each in pair)
    elif expected == "str":
        good = isinstance(value, str)
    elif expected == "int":
        good = type(value) is int and value >= 0
    else:
        good = type(value) in (int, float) or (value is None and "None" in expected)
    return None if good else f"{name} is {value!r}; it should be {expected}"


def _not_a_number(document: Mapping[str, Any]) -> str | None:
    if not math.isfinite(document["value"]):
        return f"value is {document['value']}"
    numbers = [document.get(name) for name in ("confidence", "confidence_low", "confidence_high")]
    if not all(number is None or math.isfinite(number) for number in numbers):
        return f"confidence is {numbers}"
    return None


def _clock_problem(document: Mapping[str, Any], now: datetime) -> str | None:
    """`now` is the clock of whoever received the row."""
    time = parse_time(document["time"])
    assert time is not None
    if time > now + CLOCK_TOLERANCE:
        return f"measured at {document['time']}, received at {time_text(now)}"
    if time < EARLIEST:
        return f"measured at {document['time']}, before {time_text(EARLIEST)}"
    commit_time = parse_time(document["commit_time"]) if document.get("commit_time") else None
    if commit_time is not None and time < commit_time - CLOCK_TOLERANCE:
        return f"measured at {document['time']}, its commit is of {document['commit_time']}"
    return None


def _malformed(document: Mapping[str, Any]) -> str | None:
    missing = [name for name in _REQUIRED if document.get(name) in (None, "")]
    if missing:
        return f"no {', '.join(missing)}"
    problems = [_type_problem(name, document[name]) for name in _TYPES if name in document]
    found = next((problem for problem in problems if problem), None)
    if found:
        return found
    if document["better"] not in (HIGHER, LOWER):
        return f"better is {document['better']!r}; it should be higher or lower"
    for name in ("time", "commit_time"):
        if document.get(name) and parse_time(document[name]) is None:
            return f"{name} is {document[name]!r}; it should be ISO 8601"
    if len({document.get(name) is None for name in ("confidence", "confidence_low", "confidence_high")}) > 1:
        return "confidence, confidence_low and confidence_high go together"
    return None


def check(document: Mapping[str, Any], source: str, now: datetime) -> Row | Rejection:
    """A row from the fields of one, `schema` and `key` aside; or why it is none."""
    for reason, problem in (
        (Reason.MALFORMED, _malformed),
        (Reason.NOT_A_NUMBER, _not_a_number),
        (Reason.CLOCK_SKEW, lambda each: _clock_problem(each, now)),
    ):
        found = problem(document)
        if found:
            excerpt = json.dumps({name: document.get(name) for name in ("suite", "benchmark", "machine", "time")})
            return Rejection(reason, found, source, excerpt)
    return Row(**{name: document[name] for name in _TYPES if name in document})
