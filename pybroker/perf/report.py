"""A saved result as PNG files and one HTML page that holds everything, without a script.

Can fail: `PlotsMissing` without matplotlib, `OSError` of the directory.
"""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pybroker.perf.figures import FIGURES
from pybroker.perf.load import Load

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DOTS_PER_INCH = 120
# Requests that wait for their answer when a run ends leave a few unsent on any broker.
_UNSENT_SHARE = 0.01
_COLUMNS = ("MB/s", "requests/s", "requests", "mean ms", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms")
_LATENCIES = ("mean", "p50", "p90", "p99", "p99.9", "max")
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child { text-align: left; }
svg { max-width: 100%; height: auto; }
code { overflow-wrap: anywhere; font-size: 85%; }
"""


def summary_cells(load: Load) -> list[str]:
    """The figures of a load for people, in the order of `summary_columns`."""
    result = load.result
    rates = [f"{result['mb_per_s']:,.1f}", f"{result['requests_per_s']:,.0f}", f"{result['requests']:,}"]
    return [load.name, *rates, *(f"{result['latency_us'][name] / 1000:.2f}" for name in _LATENCIES)]


def summary_columns() -> list[str]:
    """The columns of `summary_cells`."""
    return ["load", *_COLUMNS]


def warnings(load: Load) -> list[str]:
    """Caveats for the reader of a load's figures."""
    unsent = load.result.get("unsent", 0)
    if unsent <= _UNSENT_SHARE * load.result["requests"]:
        return []
    return [
        f"{load.name}: the broker did not keep up with {load.result['rate']:,.0f} requests/s: {unsent:,} that were due "
        "were never sent, and latencies would have gone on growing"
    ]


def _svg(figure: Figure) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg")
    text = out.getvalue()
    return text[text.index("<svg") :]


def _table(loads: Sequence[Load]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in summary_columns())
    rows = (
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in summary_cells(load)) + "</tr>" for load in loads
    )
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def page(document: dict[str, Any], loads: Sequence[Load], svgs: Sequence[str]) -> str:
    """The HTML page."""
    hardware = document.get("hardware", {})
    facts = [document.get("time"), document.get("bootstrap"), hardware.get("cpu"), hardware.get("kernel")]
    about = ", ".join(html.escape(str(fact)) for fact in facts if fact)
    notes = "".join(f"<p><strong>{html.escape(note)}.</strong></p>" for load in loads for note in warnings(load))
    commands = "".join(f"<li><code>{html.escape(' '.join(load.command))}</code></li>" for load in loads)
    meaning = (
        "MB are 10<sup>6</sup> bytes of payload before compression. At a set rate a latency counts from when a request "
        "was due, so a broker that stalls is charged for all that waited."
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>pybroker perf</title>'
        f"<style>{_STYLE}</style></head><body><h1>pybroker perf</h1><p>{about}</p>{notes}{_table(loads)}"
        f"<p>{meaning}</p>{''.join(svgs)}<h2>Commands</h2><ul>{commands}</ul></body></html>\n"
    )


def write_report(document: dict[str, Any], loads: Sequence[Load], directory: Path) -> list[Path]:
    """Draw everything into `directory`; gives the files."""
    drawn = {name: draw(loads) for name, draw in FIGURES.items()}  # before anything is written: it may not be possible
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figure in drawn.items():
        path = directory / f"{name}.png"
        figure.savefig(path, dpi=_DOTS_PER_INCH)
        written.append(path)
    index = directory / "report.html"
    index.write_text(page(document, loads, [_svg(figure) for figure in drawn.values()]), encoding="utf-8")
    return [*written, index]
