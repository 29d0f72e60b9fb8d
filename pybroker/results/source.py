"""The input and output of every normaliser: a document's origin, and the fields found in it.

A normaliser is a pure function of a parsed document: it yields fields of rows (see `Row`), to which the reader adds
what the context knows, or rejections. It raises `FormatError` when the document is not what it says it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pybroker.results.row import Reason, Rejection

#: The settings of pybroker that are fields of a row and not mere parameters.
SETTINGS = ("profile", "backend", "engine", "durability")


class FormatError(ValueError):
    """A document of a known kind that lacks what its kind has."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file: its name as rows show it, the time to use where it tells none, and what lies beside it (ASV)."""

    name: str
    time: str
    beside: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """Fields of one row. `host` is the name of the machine when the document tells it, `hardware` its facts."""

    fields: Mapping[str, Any]
    parameters: Mapping[str, str] = field(default_factory=dict)
    host: str = ""
    hardware: Mapping[str, Any] = field(default_factory=dict)


Normaliser = Callable[[Any, Source], Iterable[Found | Rejection]]


def mapping(document: Any, name: str) -> Mapping[str, Any]:
    """The member `name`, which has to be an object."""
    member = document.get(name) if isinstance(document, Mapping) else None
    if not isinstance(member, Mapping):
        raise FormatError(f"{name} should be an object, and is {type(member).__name__}")
    return member


def number(value: Any, what: str) -> float:
    """A number, finite or not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormatError(f"{what} is {value!r}; it should be a number")
    return float(value)


def split_settings(parameters: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Parameters that are fields of a row, and the others."""
    settings = {name: value for name, value in parameters.items() if name in SETTINGS}
    return settings, {name: value for name, value in parameters.items() if name not in SETTINGS}


def bounds(level: float, low: Any, high: Any) -> dict[str, float]:
    """The three fields of a confidence interval; none of them when a bound is infinite, as ASV writes for want of
    samples."""
    if not all(isinstance(each, int | float) and math.isfinite(each) for each in (low, high)):
        return {}
    return {"confidence": level, "confidence_low": float(low), "confidence_high": float(high)}


def unknown_version(source: Source, kind: str, found: object, known: str) -> Rejection:
    """The rejection of a whole document."""
    return Rejection(Reason.UNKNOWN_VERSION, f"{kind} of version {found!r}; known: {known}", source.name)
