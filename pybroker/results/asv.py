"""Rows from a result file of airspeed velocity: `<results>/<machine>/<commit>-<environment>.json`.

Units and the names of parameters are in `benchmarks.json`, one directory up (`Source.beside`). Python wrote the file,
so it may hold bare `Infinity` and `NaN`: NaN is a combination of parameters that was skipped, null one that failed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pybroker.results.row import Reason, Rejection, better_of, time_text
from pybroker.results.source import FormatError, Found, Source, bounds, mapping, split_settings, unknown_version

_VERSION = 2
_CONFIDENCE = 0.99
#: By the first word of a benchmark's own name, where benchmarks.json does not tell.
_UNITS = {"time": "seconds", "timeraw": "seconds", "mem": "bytes", "peakmem": "bytes"}


def is_asv(document: Any) -> bool:
    """Whether this is a result of ASV; its machine.json and benchmarks.json are none."""
    return isinstance(document, Mapping) and {"commit_hash", "env_name", "result_columns"} <= document.keys()


def _hardware(params: Mapping[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {"cpu": params.get("cpu"), "kernel": params.get("os")}
    for name, key, factor in (("cores", "num_cpu", 1), ("ram_bytes", "ram", 1024)):
        text = str(params.get(key, ""))
        if text.isdigit():
            facts[name] = int(text) * factor
    return {name: value for name, value in facts.items() if value}


def _at(column: Any, index: int) -> Any:
    return column[index] if isinstance(column, list) and index < len(column) else None


def _milliseconds(value: Any) -> str:
    return time_text(value / 1000) if isinstance(value, int | float) else ""


class _Result:
    """One file."""

    def __init__(self, document: Mapping[str, Any], source: Source) -> None:
        self._source = source
        self._columns: Sequence[str] = document["result_columns"]
        params = mapping(document, "params")
        self._host, self._hardware = str(params.get("machine", "")), _hardware(params)
        self._environment = str(document["env_name"])
        commit_time = _milliseconds(document.get("date"))
        self._common = {"suite": "asv", "commit": str(document["commit_hash"]), "commit_time": commit_time}

    def rows(self, name: str, entry: Sequence[Any]) -> Iterator[Found | Rejection]:
        """One benchmark, a row for each combination of its parameters."""
        result = dict(zip(self._columns, entry, strict=False))
        known = self._source.beside.get(name, {})
        unit = str(known.get("unit") or _UNITS.get(name.rpartition(".")[2].partition("_")[0], "unit"))
        time = _milliseconds(result.get("started_at")) or self._source.time
        fields = {**self._common, "benchmark": name, "unit": unit, "better": better_of(unit), "time": time}
        values = result.get("result")
        if values is None:
            yield Rejection(Reason.FAILED, f"{name} failed with all its parameters", self._source.name)
            return
        for index, combination in enumerate(itertools.product(*(result.get("params") or []))):
            parameters = self._parameters(known.get("param_names") or [], combination)
            value = _at(values, index)
            if value is None:
                yield Rejection(Reason.FAILED, f"{name} failed with {parameters}", self._source.name)
                continue
            interval = bounds(
                _CONFIDENCE, _at(result.get("stats_ci_99_a"), index), _at(result.get("stats_ci_99_b"), index)
            )
            settings, others = split_settings(parameters)
            samples = _at(result.get("stats_repeat"), index) or 1
            found = {**fields, **settings, **interval, "value": value, "samples": samples}
            yield Found(found, others, self._host, self._hardware)

    def _parameters(self, names: Sequence[str], combination: Sequence[str]) -> dict[str, str]:
        padded = [*names, *(f"parameter_{index}" for index in range(len(names), len(combination)))]
        # ASV keeps the repr of each value.
        pairs = {name: value.strip("'") for name, value in zip(padded, combination, strict=False)}
        return {**pairs, "environment": self._environment}


def rows(document: Any, source: Source) -> Iterator[Found | Rejection]:
    """Suite "asv"."""
    if document.get("version") != _VERSION:
        yield unknown_version(source, "an ASV result", document.get("version"), str(_VERSION))
        return
    try:
        result = _Result(document, source)
        for name, entry in mapping(document, "results").items():
            yield from result.rows(name, entry)
    except (KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"an ASV result that is not whole: {error}") from error
