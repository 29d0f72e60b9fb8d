"""Result files of any kind → rows and rejections. Reads files; decides nothing about their content.

A file that cannot be opened is the caller's error (`OSError`); whatever is in it is a row or a rejection.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pybroker.results import asv, limits, load, peers, perf, pytest_benchmark
from pybroker.results.context import Context
from pybroker.results.row import Reason, Rejection, Row, check, time_text
from pybroker.results.source import FormatError, Found, Normaliser, Source

_KINDS: tuple[tuple[Callable[[Any], bool], Normaliser], ...] = (
    (load.is_load, load.rows),
    (perf.is_perf, perf.rows),
    (peers.is_comparison, peers.rows),
    (pytest_benchmark.is_pytest_benchmark, pytest_benchmark.rows),
    (asv.is_asv, asv.rows),
    (limits.is_measurement, limits.rows),
)
#: Files that ASV keeps beside its results.
_NO_RESULTS = ("benchmarks.json", "machine.json")


def result_files(path: Path) -> list[Path]:
    """The file itself, or every .json below a directory that is not one of ASV's own."""
    if not path.is_dir():
        return [path]
    return sorted(each for each in path.rglob("*.json") if each.name not in _NO_RESULTS)


def _beside(path: Path) -> Mapping[str, Any]:
    """ASV's table of benchmarks, when the file lies in its results."""
    table = path.parent.parent / "benchmarks.json"
    if not table.is_file():
        return {}
    try:
        found = json.loads(table.read_text(encoding="utf-8"))
    except ValueError:
        return {}  # units then follow from the benchmarks' names
    return found if isinstance(found, dict) else {}


def _row(found: Found, context: Context, source: Source, now: datetime) -> Row | Rejection:
    # A host of this name is this machine, of which the context knows more; and a name given by hand counts.
    elsewhere = bool(found.host) and found.host not in (platform.node(), context.machine)
    base = context.another_machine(machine=found.host, **found.hardware) if elsewhere else context
    told = {name: value for name, value in found.fields.items() if value is not None}
    parameters = {**context.parameters, **found.parameters}
    return check({**base.as_fields(), **told, "parameters": parameters, "source": source.name}, source.name, now)


def normalise(document: Any, context: Context, source: Source, now: datetime) -> Iterator[Row | Rejection]:
    """The rows of a parsed document; one rejection and no row when its kind is unknown or it is not whole."""
    normaliser = next((rows for is_kind, rows in _KINDS if is_kind(document)), None)
    if normaliser is None:
        members = ", ".join(list(document)[:10]) if isinstance(document, Mapping) else type(document).__name__
        yield Rejection(Reason.UNKNOWN_FORMAT, "no result of a kind that is known", source.name, members)
        return
    try:
        everything = list(normaliser(document, source))
    except FormatError as error:
        yield Rejection(Reason.MALFORMED, str(error), source.name)
        return
    for found in everything:
        yield found if isinstance(found, Rejection) else _row(found, context, source, now)


def _without_repeats(rows: Iterator[Row | Rejection], seen: dict[str, float]) -> Iterator[Row | Rejection]:
    for row in rows:
        if isinstance(row, Row):
            before = seen.get(row.key)
            if before is not None:
                reason = Reason.DUPLICATE if before == row.value else Reason.CONFLICT
                yield Rejection(reason, f"{row.benchmark} again: {row.value}, before {before}", row.source, row.key)
                continue
            seen[row.key] = row.value
        yield row


def read(paths: list[Path], context: Context, now: datetime | None = None) -> Iterator[Row | Rejection]:
    """Every row of the files in order. `now` is the clock that their times are held against."""
    clock = now or datetime.now(UTC)
    seen: dict[str, float] = {}
    for path in paths:
        source = Source(path.name, time_text(path.stat().st_mtime), _beside(path))
        text = path.read_bytes().decode(errors="replace")
        try:
            document = json.loads(text)
        except ValueError as error:
            yield Rejection(Reason.TRUNCATED, f"no JSON: {error}", source.name, text[:200])
            continue
        yield from _without_repeats(normalise(document, context, source, clock), seen)
