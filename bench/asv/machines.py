"""The page beside ASV's site: the newest figure of each benchmark, a column for each machine and profile. Benchmarks
that leave the profile alone have a table of their own.

One file without scripts, which opens anywhere. The first column is what the others are compared with; a ratio above 1
is better, for MB/s as for microseconds.
"""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Iterable, Sequence

from bench.aggregate.charts import history
from pybroker.results.row import HIGHER, Row

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 90rem; padding: 0 1rem; color: #1c2128 }
table { border-collapse: collapse } th, td { padding: .25rem .7rem; text-align: left; vertical-align: top }
th { border-bottom: 2px solid #8b949e } td { border-bottom: 1px solid #d8dee4 }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.worse { color: #b3261e } .better { color: #1a7f37 } .faint { color: #656d76 }
svg { background: #f6f8fa; width: 150px; height: 46px } circle { fill: #57606a; r: 4px }
.level { stroke: #0969da; stroke-width: 2 }
"""
#: Less than this is called no difference.
_NOISE = 1.05

Column = tuple[str, str]
Line = tuple[str, str, str]


def _column(row: Row) -> Column:
    return row.machine, row.profile


def _line(row: Row) -> Line:
    setting = [value for value in (row.engine, row.backend, row.durability) if value]
    others = [f"{name} {value}" for name, value in sorted(row.parameters.items()) if name != "environment"]
    return row.benchmark, ", ".join([*setting, *others]), row.unit


def _ratio(value: float, reference: float, better: str) -> str:
    if not value or not reference:
        return ""
    times = value / reference if better == HIGHER else reference / value
    kind = "better" if times > _NOISE else "worse" if times < 1 / _NOISE else "faint"
    return f' <span class="{kind}">&times;{times:.2f}</span>'


def _cells(columns: Sequence[Column], found: dict[Column, list[Row]]) -> str:
    cells = []
    reference = None
    for column in columns:
        if column not in found:
            cells.append("<td></td>")
            continue
        newest = found[column][-1]
        ratio = "" if reference is None else _ratio(newest.value, reference, newest.better)
        reference = newest.value if reference is None else reference
        values = [each.value for each in found[column]]
        chart = f"<br>{history(values, [], 'by commit')}" if len(values) > 1 else ""
        cells.append(f'<td class="number">{newest.value:,.4g}{ratio}{chart}</td>')
    return "".join(cells)


def _machine_head(rows: Sequence[Row], column: Column) -> str:
    machine, profile = column
    row = next(each for each in rows if each.machine == machine)
    facts = [row.cpu, f"{row.cores} CPUs" if row.cores else "", row.kernel]
    known = " · ".join(html.escape(each) for each in facts if each)
    return f'<th>{html.escape(machine)}<br>{html.escape(profile)}<br><span class="faint">{known}</span></th>'


def _table(rows: Sequence[Row]) -> str:
    if not rows:
        return '<p class="faint">None.</p>'
    columns = sorted({_column(row) for row in rows})
    table: defaultdict[Line, dict[Column, list[Row]]] = defaultdict(dict)
    for row in rows:
        table[_line(row)].setdefault(_column(row), []).append(row)
    heads = "".join(_machine_head(rows, column) for column in columns)
    lines = "\n".join(
        f"<tr><td>{html.escape(benchmark)}</td><td>{html.escape(parameters)}</td><td>{html.escape(unit)}</td>"
        f"{_cells(columns, found)}</tr>"
        for (benchmark, parameters, unit), found in sorted(table.items())
    )
    return (
        f"<table><thead><tr><th>benchmark</th><th>parameters</th><th>unit</th>{heads}</tr></thead>\n"
        f"<tbody>\n{lines}\n</tbody></table>\n"
    )


def page(rows: Iterable[Row]) -> str:
    """The page of these figures, of any number of machines; points of a history are ordered by their commits' time."""
    ordered = sorted(rows, key=lambda row: (row.commit_time, row.time))
    newest = ordered[-1].commit[:12] if ordered else "none"
    return (
        '<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>pybroker: machines and profiles</title>\n'
        f'<link rel="icon" href="swallow.ico"><style>{_STYLE}</style>\n<h1>Machines and profiles</h1>\n'
        f"<p>The newest figure of each benchmark; newest commit {html.escape(newest)}. A ratio is against the "
        'first figure of its line, above 1 is better. <a href="index.html">History by commit</a></p>\n'
        f"<h2>Under each profile</h2>\n{_table([row for row in ordered if row.profile])}"
        f"<h2>On each machine</h2>\n{_table([row for row in ordered if not row.profile])}</html>\n"
    )
