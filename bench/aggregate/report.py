"""The static page about the pool: what got worse, how machines compare, how near they are to their limits, quarantine.

A page for people: each table shows its most telling rows and says how many there are; the Parquet tables have all.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.aggregate import charts
from bench.aggregate.tables import MEASURED, SETTING
from pybroker.results.row import PAIR_SEPARATOR

_SHOWN = 100
_CHARTS = 30
_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; color: #1c2128 }
table { border-collapse: collapse; margin: .6rem 0 1.6rem } th, td { padding: .25rem .7rem; text-align: left }
th { border-bottom: 2px solid #8b949e } td { border-bottom: 1px solid #d8dee4; vertical-align: top }
td.number { text-align: right; font-variant-numeric: tabular-nums }
.worse { color: #b3261e; font-weight: 600 } .better { color: #1a7f37 } .faint { color: #656d76 }
.card { display: inline-block; margin: 0 1rem 1rem 0; vertical-align: top; width: 360px; overflow-wrap: anywhere }
svg { background: #f6f8fa } circle { fill: #57606a } .level { stroke: #0969da; stroke-width: 2 }
.change { stroke: #b3261e; stroke-dasharray: 3 2 } .frame { fill: #e6eaef } .bar { fill: #0969da }
svg text { font-size: 11px }
"""


@dataclass(frozen=True)
class Summary:
    """The contents of the page, from which the exit status follows as well."""

    rows: int
    histories: int
    quarantined: int
    regressions: int


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "<td></td>"
    if isinstance(value, float):
        return f"<td class=number>{value:,.4g}</td>"
    if isinstance(value, int):
        return f"<td class=number>{value:,}</td>"
    return f"<td>{value if isinstance(value, charts.Html) else html.escape(str(value))}</td>"


def _table(heads: Sequence[str], lines: Sequence[Sequence[Any]], total: int) -> str:
    if not lines:
        return "<p class=faint>None.</p>"
    head = "".join(f"<th>{html.escape(each)}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(map(_cell, line))}</tr>" for line in lines)
    more = f"<p class=faint>{len(lines):,} of {total:,}; the Parquet table has all.</p>" if total > len(lines) else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _name(row: Any) -> str:
    parameters = row["parameters_text"].replace(PAIR_SEPARATOR, ", ")
    return f"{row['suite']}: {row['benchmark']}" + (f" ({parameters})" if parameters else "")


def _setting(row: Any) -> str:
    return " · ".join(row[name] for name in SETTING if row[name])


def _verdict(improvement: float) -> charts.Html:
    percent = (improvement - 1) * 100
    return charts.Html(f"<span class={'better' if percent >= 0 else 'worse'}>{percent:+.1f} %</span>")


def _interval(row: Any, prefix: str) -> str:
    low, high = row[f"{prefix}_low"], row[f"{prefix}_high"]
    return "" if low is None or high is None else f"{low:,.4g} … {high:,.4g}"


class Report:
    """One page, of the tables as they were written."""

    def __init__(self, session: SparkSession, output: Path) -> None:
        self._output = output
        names = ("rows", "histories", "medians", "changes", "ratios", "machines", "roofline", "quarantine")
        self._tables: Mapping[str, DataFrame] = {name: session.read.parquet(str(output / name)) for name in names}
        self._counts = {name: table.count() for name, table in self._tables.items()}
        regressions = self._tables["changes"].where("is_regression").count()
        self.summary = Summary(self._counts["rows"], self._counts["histories"], self._counts["quarantine"], regressions)

    def _top(self, name: str, *order: Any) -> list[Any]:
        return self._tables[name].orderBy(*order).limit(_SHOWN).collect()

    def _changes(self) -> str:
        found = self._top("changes", f.desc("is_regression"), f.abs(f.log("improvement")).desc(), *MEASURED, *SETTING)
        heads = ("benchmark", "where", "change", "before", "after", "unit", "since commit", "commits ago", "")
        lines = [
            (
                *(_name(row), _setting(row), _verdict(row["improvement"]), row["before"], row["after"], row["unit"]),
                *(row["commit"][:12], row["age_commits"], "regression" if row["is_regression"] else ""),
            )
            for row in found
        ]
        return _table(heads, lines, self._counts["changes"]) + self._charts()

    def _charts(self) -> str:
        identity = [*SETTING, *MEASURED]
        worst = (
            self._tables["changes"]
            .groupBy(*identity)
            .agg(f.max("is_regression").alias("regressed"), f.max(f.abs(f.log("improvement"))).alias("size"))
        )
        order = (f.desc("regressed"), f.desc("size"), *identity)
        worst = worst.orderBy(*order).limit(_CHARTS)
        shown = self._tables["histories"].join(f.broadcast(worst), identity).orderBy(*order)
        cards = []
        for row in shown.collect():
            name = _name(row)
            chart = charts.history(row["points"], [change["index"] for change in row["changes"]], name)
            where = html.escape(f"{_setting(row)}, {row['unit']}")
            cards.append(f"<div class=card>{chart}<br>{html.escape(name)}<br><span class=faint>{where}</span></div>")
        return "".join(cards)

    def _machines(self) -> str:
        found = self._top("machines", f.desc("improvement"), *SETTING)
        lines = [(_setting(row), row["reference"], _verdict(row["improvement"]), row["benchmarks"]) for row in found]
        heads = ("machine", "against", "geometric mean", "benchmarks")
        return _table(heads, lines, self._counts["machines"])

    def _ratios(self) -> str:
        found = self._top("ratios", f.abs(f.log("improvement")).desc(), *MEASURED, *SETTING)
        lines = [
            (_name(row), _setting(row), _verdict(row["improvement"]), row["improvement"], _interval(row, "improvement"))
            for row in found
        ]
        heads = ("benchmark", "machine", "against the reference", "times better", "at 90 %")
        return _table(heads, lines, self._counts["ratios"])

    def _roofline(self) -> str:
        found = self._top("roofline", f.desc("fraction"), *MEASURED, *SETTING)
        lines = [
            (
                *(_name(row), _setting(row), charts.bar(row["fraction"], f"{row['fraction']:.0%}")),
                *(row["median"], row["limit_value"], row["unit"], row["limit"]),
            )
            for row in found
        ]
        heads = ("benchmark", "machine", "of the limit", "value", "limit", "unit", "which")
        return _table(heads, lines, self._counts["roofline"])

    def _medians(self) -> str:
        found = self._top("medians", *MEASURED, *SETTING)
        lines = [
            (
                *(_name(row), _setting(row), row["median"], _interval(row, "confidence"), row["unit"]),
                *(row["level_commits"], row["history_commits"]),
            )
            for row in found
        ]
        heads = ("benchmark", "where", "median", "95 % interval", "unit", "commits at this level", "commits")
        return _table(heads, lines, self._counts["medians"])

    def _quarantine(self) -> str:
        counted = self._tables["quarantine"].groupBy("reason").count().orderBy(f.desc("count"), "reason").collect()
        reasons = _table(("reason", "rows"), [(row["reason"], row["count"]) for row in counted], len(counted))
        found = self._top("quarantine", "reason", "place", "detail")
        lines = [[row[name] for name in ("reason", "detail", "source", "place", "excerpt")] for row in found]
        return reasons + _table(("reason", "detail", "source", "place", "excerpt"), lines, self._counts["quarantine"])

    def write(self) -> Path:
        """Write `report.html` into the output; gives its path."""
        summary = self.summary
        time = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        intro = (
            f"{summary.rows:,} rows in {summary.histories:,} histories, {summary.quarantined:,} in quarantine, "
            f"<b>{summary.regressions:,} regressions</b>. {time}."
        )
        sections = (
            ("Changes of level", self._changes),
            ("Machines", self._machines),
            ("Machine by machine", self._ratios),
            ("Fraction of the machine's limit", self._roofline),
            ("Levels", self._medians),
            ("Quarantine", self._quarantine),
        )
        body = "".join(f"<h2>{title}</h2>{content()}" for title, content in sections)
        path = self._output / "report.html"
        path.write_text(
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Benchmarks</title><style>{_STYLE}</style>'
            f"<h1>Benchmarks of all machines</h1><p>{intro}</p>{body}</html>\n",
            encoding="utf-8",
        )
        return path
