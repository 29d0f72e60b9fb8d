"""Rows from what `pybroker perf --output` saved: those of each load's last line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pybroker.results.load import line_rows
from pybroker.results.row import Reason, Rejection
from pybroker.results.source import FormatError, Found, Source, mapping, unknown_version

_VERSION = 1


def is_perf(document: Any) -> bool:
    """Whether `pybroker perf` saved this."""
    return isinstance(document, Mapping) and document.get("kind") == "perf" and "loads" in document


def rows(document: Any, source: Source) -> Iterator[Found | Rejection]:
    """Suite "load", benchmarks "<load>.<figure>"; what ran beside it is the parameter `beside`."""
    if document.get("version") != _VERSION:
        yield unknown_version(source, "a result of pybroker perf", document.get("version"), str(_VERSION))
        return
    if document.get("interrupted"):
        yield Rejection(Reason.FAILED, "the load was interrupted", source.name)
        return
    loads = document["loads"]
    if not isinstance(loads, list) or not all(isinstance(load, Mapping) for load in loads):
        raise FormatError("loads should be a list of objects")
    measured = replace(source, time=str(document.get("time", source.time)))
    hardware = dict(mapping(document, "hardware"))
    host = str(hardware.pop("machine", ""))
    commit = {name: str(document.get(name, "")) for name in ("commit", "commit_time")}
    names = [str(load.get("name", "")) for load in loads]
    for load, name in zip(loads, names, strict=True):
        others = "+".join(each for each in names if each != name)
        for found in line_rows(mapping(load, "result"), name, measured):
            if isinstance(found, Rejection):
                yield found
                continue
            parameters = {**found.parameters, **({"beside": others} if others else {})}
            yield replace(found, fields={**found.fields, **commit}, parameters=parameters, host=host, hardware=hardware)
