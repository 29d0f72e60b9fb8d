"""Rows from what `pybroker profile measure` saved: the machine's limits, which other figures are held against.

The file is read as the JSON it is, as a result of another version would be. Which limit bounds a load is decided here
too, since it follows from the names of the runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pybroker.results.row import HIGHER, LOWER, Rejection, parse_time, time_text
from pybroker.results.source import FormatError, Found, Source, mapping, number, unknown_version

SUITE = "limit"
_SCHEMA = 1
_CPU, _P50 = "cpu_s_per_gb", "p50"
#: The bare server received requests of these sizes: the smallest batch each stands for.
_RECEIVED = ((128 << 10, "receive.256KiB"), (8 << 10, "receive.16KiB"), (0, "receive.1KiB"))
_SENT = "send.1MiB"
_ROUND_TRIP = "round_trip.spin_50us"


def is_measurement(document: Any) -> bool:
    """Whether `pybroker profile measure` saved this."""
    return isinstance(document, Mapping) and {"made_at", "made_by", "flush", "results"} <= document.keys()


def limit_of(load: Mapping[str, Any], figure: str) -> str:
    """The limit that bounds a figure of a line of pbload: its name is the limit's benchmark. "" where none does."""
    if figure == _P50 and load.get("mode") == "produce" and load.get("connections") == load.get("in_flight") == 1:
        return f"{_ROUND_TRIP}.{_P50}"
    if figure not in ("mb_per_s", _CPU):
        return ""
    if load.get("mode") == "produce" and isinstance(load.get("batch_bytes"), int):
        name = next(name for least, name in _RECEIVED if load["batch_bytes"] >= least)
    elif load.get("mode") == "fetch":
        name = _SENT
    else:
        return ""
    return name if figure == "mb_per_s" else f"{name}.{figure}"


def _hardware(machine: Mapping[str, Any]) -> dict[str, Any]:
    storage: Mapping[str, Any] = machine["storage"][0]
    disks = [disk["model"] or disk["name"] for disk in storage["disks"]]
    return {
        "cpu": machine["cpu"]["model"],
        "cores": machine["cpu"]["online_count"],
        "ram_bytes": machine["memory"]["total_bytes"] or 0,
        "kernel": machine["kernel"]["release"],
        "disk": ", ".join(disks),
        "file_system": storage["file_system"],
    }


def _figures(name: str, run: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    rate = number(run.get("bytes_per_second"), f"{name}.bytes_per_second") / 1e6
    if rate > 0:  # a run that moves no bytes has none
        yield {"benchmark": name, "unit": "MB/s", "better": HIGHER, "value": rate}
    cost = run.get("cpu_seconds_per_gb")
    if cost is not None:
        yield {"benchmark": f"{name}.{_CPU}", "unit": "CPU s/GB", "better": LOWER, "value": cost}
    p50 = number(run.get("p50_us"), f"{name}.p50_us")
    yield {"benchmark": f"{name}.{_P50}", "unit": "us", "better": LOWER, "value": p50}


def rows(document: Any, source: Source) -> Iterator[Found | Rejection]:
    """Suite "limit". The hardware is this file's; whose it is, the context says, for the file does not name a host."""
    if document.get("schema") != _SCHEMA:
        yield unknown_version(source, "a measurement", document.get("schema"), str(_SCHEMA))
        return
    made_at = parse_time(str(document["made_at"]))
    if made_at is None:
        raise FormatError(f"made_at is {document['made_at']!r}; it should be ISO 8601")
    try:
        hardware = _hardware(mapping(document, "machine"))
        for name, run in mapping(document, "results").items():
            samples = run["operations"]
            for figure in _figures(name, run):
                yield Found({"suite": SUITE, "time": time_text(made_at), "samples": samples, **hardware, **figure})
    except (LookupError, TypeError, AttributeError) as error:
        raise FormatError(f"a measurement that is not whole: {error}") from error
