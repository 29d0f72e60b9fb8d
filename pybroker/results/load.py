"""Rows from the JSON line of pbload (bench/load): throughput, rate, and percentiles of latency."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pybroker.results.limits import limit_of
from pybroker.results.row import HIGHER, LOWER, Rejection
from pybroker.results.source import FormatError, Found, Source, mapping, number, unknown_version

_VERSION = 1
_RATES = {"mb_per_s": "MB/s", "requests_per_s": "requests/s"}
_QUANTILES = ("p50", "p99", "p99.9")
_PARAMETERS = (
    "connections",
    "in_flight",
    "partitions",
    "batch_bytes",
    "record_bytes",
    "codec",
    "keys",
    "payload_file",
    "rate",
)


def is_load(document: Any) -> bool:
    """Whether this is pbload's line."""
    return isinstance(document, Mapping) and {"mode", "elapsed_s", "latency_us"} <= document.keys()


def figures(load: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The name and the fields of each figure that a line holds; `samples` are its requests."""
    requests = load.get("requests")
    if type(requests) is not int or requests <= 0:
        raise FormatError(f"requests is {requests!r}: nothing was measured")
    for name, unit in _RATES.items():
        value = number(load.get(name), name)
        if value > 0:  # a load without payload has no MB/s
            yield name, {"unit": unit, "better": HIGHER, "value": value, "limit": limit_of(load, name)}
    latency = mapping(load, "latency_us")
    for quantile in _QUANTILES:
        value = number(latency.get(quantile), f"latency_us.{quantile}")
        yield quantile, {"unit": "us", "better": LOWER, "value": value, "limit": limit_of(load, quantile)}


def rows(document: Any, source: Source) -> Iterator[Found | Rejection]:
    """Suite "load", benchmarks "<mode>.<figure>"."""
    yield from line_rows(document, str(document["mode"]), source)


def line_rows(document: Any, name: str, source: Source) -> Iterator[Found | Rejection]:
    """The rows of one line: benchmarks "<name>.<figure>"."""
    if document.get("version") != _VERSION:
        yield unknown_version(source, "a pbload result", document.get("version"), str(_VERSION))
        return
    if document.get("errors"):
        raise FormatError(f"the broker answered with errors: {document['errors']}")
    parameters = {name: str(document[name]) for name in _PARAMETERS if name in document}
    for figure, fields in figures(document):
        common = {"suite": "load", "benchmark": f"{name}.{figure}", "time": source.time}
        yield Found({**common, "samples": document["requests"], **fields}, parameters)
