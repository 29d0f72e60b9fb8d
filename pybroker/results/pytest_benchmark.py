"""Rows from the JSON of pytest-benchmark: the median of each test's rounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pybroker.results.intervals import median_fields
from pybroker.results.row import LOWER, Rejection, parse_time, time_text
from pybroker.results.source import FormatError, Found, Source, mapping, number, split_settings, unknown_version

_MAJOR_VERSIONS = ("3", "4", "5")


def is_pytest_benchmark(document: Any) -> bool:
    """Whether pytest-benchmark wrote this."""
    return isinstance(document, Mapping) and {"machine_info", "commit_info", "benchmarks"} <= document.keys()


def _hardware(machine: Mapping[str, Any]) -> dict[str, Any]:
    cpu = machine.get("cpu", {})
    facts = {"cpu": cpu.get("brand_raw"), "cores": cpu.get("count"), "kernel": machine.get("release")}
    return {name: value for name, value in facts.items() if value}


def _time(text: Any, source: Source) -> str:
    time = parse_time(str(text)) if text else None
    return time_text(time) if time else source.time


def _parameters(benchmark: Mapping[str, Any]) -> dict[str, str]:
    named = {**(benchmark.get("params") or {}), **(benchmark.get("extra_info") or {})}
    return {str(name): str(value) for name, value in named.items()}


def rows(document: Any, source: Source) -> Iterator[Found | Rejection]:
    """Suite "micro", benchmarks by their test without its parameters. With `--benchmark-save-data` the rounds are in
    the file, and a confidence interval is made of them."""
    version = str(document.get("version"))
    if version.partition(".")[0] not in _MAJOR_VERSIONS:
        yield unknown_version(source, "a pytest-benchmark result", version, ", ".join(_MAJOR_VERSIONS))
        return
    machine, commit = mapping(document, "machine_info"), mapping(document, "commit_info")
    fields = {"suite": "micro", "unit": "s", "better": LOWER, "time": _time(document.get("datetime"), source)}
    if commit.get("id") not in (None, "unversioned"):
        # A tree with changes is no commit: its figures must not stand in that commit's history.
        fields["commit"] = f"{commit['id']}{'-dirty' if commit.get('dirty') else ''}"
        fields["commit_time"] = _time(commit["time"], source) if commit.get("time") else ""
    for benchmark in document["benchmarks"]:
        stats = mapping(benchmark, "stats")
        name = str(benchmark.get("fullname") or "")
        if not name:
            raise FormatError("a benchmark has no fullname")
        rounds = stats.get("data") or []
        value = median_fields(rounds) if rounds else {"value": number(stats.get("median"), f"{name}: median")}
        settings, parameters = split_settings(_parameters(benchmark))
        found = {**fields, "benchmark": name.partition("[")[0], "samples": stats.get("rounds"), **settings, **value}
        yield Found(found, parameters, str(machine.get("node") or ""), _hardware(machine))
