"""Rows from the JSON that `python -m bench.peers.compare` saves: ours and the peers', each repetition's median.

Its measurements give a row per shape, figure and broker. A section that kept no measurements gives its own two figures
per row.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pybroker.results.intervals import median_fields
from pybroker.results.limits import limit_of
from pybroker.results.load import figures
from pybroker.results.row import HIGHER, LOWER, Rejection
from pybroker.results.source import FormatError, Found, Source, mapping, number, unknown_version

_VERSION = 1
_SETTING_NAMES = {"profile": "profile", "io_backend": "backend", "append_engine": "engine", "durability": "durability"}


def is_comparison(document: Any) -> bool:
    """Whether `bench.peers.report.save` wrote this."""
    return isinstance(document, Mapping) and {"facts", "sections", "measurements"} <= document.keys()


def _costs(measurement: Mapping[str, Any], load: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    if "cpu_s" not in measurement:  # of loads side by side nobody knows whose CPU time it was
        return
    cpu_s = number(measurement.get("cpu_s"), "cpu_s")
    payload_bytes = number(load.get("payload_bytes"), "payload_bytes")
    if payload_bytes > 0:
        fields = {"unit": "CPU s/GB", "better": LOWER, "value": cpu_s / (payload_bytes / 1e9)}
        yield "cpu_s_per_gb", {**fields, "limit": limit_of(load, "cpu_s_per_gb")}
    cost = cpu_s * 1e6 / number(load.get("requests"), "requests")
    yield "cpu_us_per_request", {"unit": "CPU us/request", "better": LOWER, "value": cost}


class _Comparison:
    """One document."""

    def __init__(self, document: Mapping[str, Any], source: Source) -> None:
        self._document = document
        self._common = {"suite": "peers", "time": str(document.get("time", source.time))}
        self._common |= {name: str(document.get(name, "")) for name in ("commit", "commit_time")}
        self._facts = mapping(document, "facts")
        self._hardware = dict(mapping(document, "hardware"))
        self._host = str(self._hardware.pop("machine", ""))

    def _is_ours(self, measurement: Mapping[str, Any]) -> bool:
        """Whether it tells the durability of a topic, which goes before the broker's, of one that has the setting."""
        return "durability" in measurement and "durability" in self._facts.get(str(measurement["peer"]), {})

    def _found(self, peer: str, name: str, fields: Mapping[str, Any]) -> Found:
        facts = self._facts.get(peer, {})
        # Empty where a peer has no such setting, or it would get ours.
        settings = {name: str(facts.get(key, "")) for key, name in _SETTING_NAMES.items()}
        parameters = {"peer": peer} | ({"peer_version": str(facts["version"])} if "version" in facts else {})
        found = {**self._common, "benchmark": name, **settings, **fields}
        return Found(found, parameters, self._host, self._hardware)

    def measured(self) -> Iterator[Found]:
        """Medians over the repetitions of each shape and broker."""
        repetitions: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
        for measurement in self._document["measurements"]:
            load = mapping(measurement, "load")
            told = {"durability": str(measurement["durability"])} if self._is_ours(measurement) else {}
            for name, fields in (*figures(load), *_costs(measurement, load)):
                repetitions[str(measurement["peer"]), str(measurement["shape"]), name].append({**fields, **told})
        for (peer, shape, name), several in repetitions.items():
            values = [float(fields["value"]) for fields in several]
            fields = {**several[0], **median_fields(values), "samples": len(values)}
            yield self._found(peer, f"{shape}: {name}", fields)

    def listed(self) -> Iterator[Found]:
        """Medians of what was measured without a load: starts, memory. Figures of loads are in the measurements."""
        for row in self._document.get("figures", ()):
            if "durability" in row:
                continue
            values = [number(value, row["metric"]) for value in row["values"]]
            fields = {"unit": row["metric"], "better": row["better"], **median_fields(values), "samples": len(values)}
            yield self._found(str(row["peer"]), str(row["shape"]), fields)

    def compared(self, shapes: set[str]) -> Iterator[Found]:
        """The figures of rows whose shape has no measurements."""
        for name, section in mapping(self._document, "sections").items():
            sides = mapping(section, "sides")
            for row in _list(section, "rows", name):
                if row["shape"] in shapes:
                    continue
                better = HIGHER if row["at_least"] else LOWER
                # The other side may be a bound, or ourselves at rest; only peers have facts.
                for side in ("ours", "theirs") if sides["theirs"] in self._facts else ("ours",):
                    fields = {"unit": _unit(row["metric"]), "better": better, "samples": 1, "value": row[side]}
                    yield self._found(str(sides[side]), f"{row['shape']}: {row['metric']}", fields)


def _list(document: Mapping[str, Any], name: str, where: str) -> Sequence[Mapping[str, Any]]:
    member = document.get(name)
    if not isinstance(member, list):
        raise FormatError(f"{where}.{name} should be a list")
    return member


def _unit(metric: str) -> str:
    """Metrics are named for people: "p99 us of others", "p50 us, disk", "seconds", "CPU s/GB"."""
    words = metric.replace(",", "").split()
    return next((unit for unit in ("us", "MB/s", "requests/s") if unit in words), metric)


def rows(document: Any, source: Source) -> Iterator[Found | Rejection]:
    """Suite "peers"."""
    if document.get("version") != _VERSION:
        yield unknown_version(source, "a comparison of peers", document.get("version"), str(_VERSION))
        return
    comparison = _Comparison(document, source)
    try:
        yield from comparison.measured()
        yield from comparison.listed()
        yield from comparison.compared({str(each["shape"]) for each in document["measurements"]})
    except (KeyError, TypeError, AttributeError, statistics.StatisticsError) as error:
        raise FormatError(f"a comparison of peers without {error}") from error
