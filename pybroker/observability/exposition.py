"""Prometheus' text format (version 0.0.4), written by hand: thousands of lines have to be made in milliseconds.

Pure, on whatever thread the caller has. While a text is made the interpreter's lock is given up now and then, and the
CPU with it. So a scrape costs the asyncio loop and the reactors no more than a millisecond at a time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from pybroker.values import Value

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SAMPLES_PER_LOOK = 512
_HOLD_S = 0.001
_PAUSE_S = 0.0005
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Sample = tuple[str, float]
"""Labels as `labels` writes them, and the value."""

HistogramRow = tuple[str, int, int, Sequence[int]]
"""Labels, count, sum, and how many values are below each power of two."""


class Metric(Value):
    """One metric as it is documented. `kind` is Prometheus' type; `kafka` names what means the same in Apache Kafka."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    kafka: str = ""


def labels(**values: str | int) -> str:
    """The labels of a sample, in the order given."""
    inner = ",".join([f'{name}="{str(value).translate(_ESCAPES)}"' for name, value in values.items()])
    return f"{{{inner}}}" if inner else ""


class Rows:
    """Labels that many metrics have in common, and that stay from scrape to scrape. The text around the values is made
    once for each metric, so that only whole numbers have to be filled in."""

    def __init__(self, labels: Sequence[str]) -> None:
        """`labels` as the function of that name writes them."""
        self._labels = [each.replace("%", "%%") for each in labels]
        self._templates: dict[str, list[str]] = {}

    def filled(self, name: str, values: Sequence[int]) -> Iterator[tuple[str, int]]:
        """The samples of a metric as text, and how many they are, in parts that take a fraction of a millisecond each;
        one value for each of the labels."""
        templates = self._templates.get(name)
        if templates is None:
            lines = [f"{name}{each} %d" for each in self._labels]
            steps = range(0, len(lines), _SAMPLES_PER_LOOK)
            templates = self._templates[name] = ["\n".join(lines[at : at + _SAMPLES_PER_LOOK]) for at in steps]
        for number, template in enumerate(templates):
            part = tuple(values[number * _SAMPLES_PER_LOOK : (number + 1) * _SAMPLES_PER_LOOK])
            yield template % part, len(part)


class Exposition:
    """A text that grows by one metric at a time; `text` is all of it."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._samples_to_look = _SAMPLES_PER_LOOK
        self._held_since = time.monotonic()

    @property
    def text(self) -> str:
        """The text that has been added."""
        return "\n".join(self._lines) + "\n"

    def add(self, metric: Metric, samples: Iterable[Sample]) -> None:
        """A counter or gauge with its samples; without any it is left out."""
        name = metric.name
        lines = [f"{name}{text} {value}" for text, value in samples]
        if lines:
            self._head(metric)
            self._lines += lines
            self._breathe(len(lines))

    def value(self, metric: Metric, value: float) -> None:
        """A counter or gauge without labels."""
        self.add(metric, [("", value)])

    def add_rows(self, metric: Metric, rows: Rows, values: Sequence[int]) -> None:
        """A counter or gauge with a value for each of the rows; without any it is left out."""
        if values:
            self._head(metric)
        for text, count in rows.filled(metric.name, values):
            self._lines.append(text)
            self._breathe(count)

    def histogram(
        self, metric: Metric, rows: Sequence[HistogramRow], edges: Sequence[tuple[int, float]], unit: float
    ) -> None:
        """`edges` are the powers of two that are told, each with the bound that stands for it; `unit` is that of the
        sums in the metric's."""
        if not rows:
            return
        self._head(metric)
        name = metric.name
        for text, count, total, below in rows:
            opened = f"{text[:-1]}," if text else "{"
            self._lines += [f'{name}_bucket{opened}le="{bound:.9g}"}} {below[power]}' for power, bound in edges]
            self._lines += [f'{name}_bucket{opened}le="+Inf"}} {count}', f"{name}_sum{text} {total * unit:.9g}"]
            self._lines.append(f"{name}_count{text} {count}")
            self._breathe(len(edges) + 3)

    def _head(self, metric: Metric) -> None:
        self._lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]

    def _breathe(self, sample_count: int) -> None:
        self._samples_to_look -= sample_count
        if self._samples_to_look > 0:
            return
        self._samples_to_look = _SAMPLES_PER_LOOK
        if time.monotonic() - self._held_since > _HOLD_S:
            time.sleep(_PAUSE_S)
            self._held_since = time.monotonic()
