"""Times and durations on the command line, as Kafka's tools take them and a little shorter."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import click

_DURATION = re.compile(
    r"P?(?:(?P<days>\d+)D)?T?(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?", re.IGNORECASE
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Time(click.ParamType[int]):
    """ms since 1970, from ISO 8601 (UTC where no zone is said) or from that number itself."""

    name = "time"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """A usage error for what is no time."""
        if isinstance(value, int):
            return value
        if value.isascii() and value.isdecimal():
            return int(value)
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r}: accepted is 2026-01-31T14:30:00, with or without Z or +01:00, or ms", param, ctx)
        time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        return round((time - _EPOCH).total_seconds() * 1000)


class Duration(click.ParamType[int]):
    """Milliseconds, from ISO 8601 (P1DT2H30M) or short (2h30m)."""

    name = "duration"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """A usage error for what is no duration."""
        if isinstance(value, int):
            return value
        match = _DURATION.fullmatch(value)
        if match is None or not any(match.groups()):
            self.fail(f"{value!r}: accepted is P1DT2H30M, or short 1d2h30m", param, ctx)
        days, hours, minutes, seconds = (float(each or 0) for each in match.groups())
        return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def iso_text(time_ms: int) -> str:
    """UTC, to the millisecond; the number itself where no calendar reaches."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError):
        return str(time_ms)
