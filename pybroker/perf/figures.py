"""Plots of a result: throughput and latency over time, and the percentiles of latency. Needs matplotlib.

Pure drawing: a saved document goes in, figures come out. Several loads share the axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pybroker.perf.load import Interval, Load

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZE_INCHES = (9.0, 3.6)
#: Ticks of the percentile axis: how much is left above each.
_PERCENTILES = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
_CURVE_POINTS_PER_DECADE = 24
# An interval at the end may be a few microseconds long: its rate would be noise.
_LEAST_SHARE = 0.5


class PlotsMissing(RuntimeError):
    """matplotlib is not installed."""


def new_figure() -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise PlotsMissing("plots need matplotlib: pip install matplotlib") from None
    return Figure(figsize=_SIZE_INCHES, layout="constrained")


def whole_intervals(load: Load) -> list[Interval]:
    """Those that last long enough to have a rate."""
    longest = max((each.seconds for each in load.intervals), default=0.0)
    return [each for each in load.intervals if each.seconds >= _LEAST_SHARE * longest]


def _start_s(loads: Sequence[Load]) -> float:
    return min((each.start_s for load in loads for each in load.intervals), default=0.0)


def _over_time(
    axes: Axes, loads: Sequence[Load], load: Load, label: str, style: str, value: Callable[[Interval], float]
) -> None:
    start_s, intervals = _start_s(loads), whole_intervals(load)
    middles = [each.start_s + each.seconds / 2 - start_s for each in intervals]
    values = [value(each) for each in intervals]
    color = f"C{loads.index(load)}"  # one for all lines of a load
    axes.plot(middles, values, style, color=color, label=label, marker=".", markersize=3, linewidth=1)


def _latency_ms(quantile: str, interval: Interval) -> float:
    return interval.latency_us[quantile] / 1000


def throughput(loads: Sequence[Load]) -> Figure:
    """MB/s in each interval."""
    figure = new_figure()
    axes = figure.subplots()
    for load in loads:
        _over_time(axes, loads, load, load.name, "-", lambda each: each.mb_per_s)
    axes.set(title="Throughput", xlabel="seconds", ylabel="MB/s of payload")
    axes.set_ylim(bottom=0)
    axes.legend()
    axes.grid(alpha=0.3)
    return figure


def latency(loads: Sequence[Load]) -> Figure:
    """p50, p99 and the maximum of each interval."""
    figure = new_figure()
    axes = figure.subplots()
    for load in loads:
        for quantile, style in (("p50", "-"), ("p99", "--"), ("max", ":")):
            _over_time(axes, loads, load, f"{load.name} {quantile}", style, partial(_latency_ms, quantile))
    axes.set(title="Latency", xlabel="seconds", ylabel="milliseconds", yscale="log")
    axes.legend(fontsize="small", ncols=len(loads))
    axes.grid(alpha=0.3)
    return figure


def percentiles(loads: Sequence[Load]) -> Figure:
    """The latency that each share of all requests does not exceed; the axis stretches the last ones."""
    figure = new_figure()
    axes = figure.subplots()
    most = max((load.histogram.count for load in loads), default=1)
    for load in loads:
        count = load.histogram.count
        if count == 0:
            continue
        # From 1 / 1 of all down to the last one.
        decades = len(str(count))
        steps = range(decades * _CURVE_POINTS_PER_DECADE + 1)
        left = [max(1 / count, 10 ** (-step / _CURVE_POINTS_PER_DECADE)) for step in steps]
        values_us = load.histogram.quantiles_us([1 - share for share in left])
        axes.plot([1 / share for share in left], [value / 1000 for value in values_us], label=load.name, linewidth=1)
    ticks = [share for share in _PERCENTILES if 1 / (1 - share) <= 10 * most]
    axes.set(title="Percentiles of latency", xscale="log", yscale="log", xlabel="percentile", ylabel="milliseconds")
    axes.set_xticks([1 / (1 - share) for share in ticks], [f"{100 * share:g}" for share in ticks])
    axes.legend()
    axes.grid(alpha=0.3)
    return figure


#: The file name of each, in the order of the page.
FIGURES: dict[str, Callable[[Sequence[Load]], Figure]] = {
    "throughput": throughput,
    "latency": latency,
    "percentiles": percentiles,
}
