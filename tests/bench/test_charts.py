"""Charts are XML that can be read, whatever the names in them."""

from __future__ import annotations

import xml.etree.ElementTree as Xml

import pytest

from bench.aggregate import charts


def test_a_history_has_a_dot_per_commit_and_a_line_per_level() -> None:
    points = [10.0] * 8 + [12.0] * 7 + [11.0] * 6
    found = Xml.fromstring(charts.history(points, [8, 15], "<produce> & fetch"))
    assert len(found.findall("circle")) == len(points)
    assert len(found.findall("line[@class='level']")) == 3
    assert len(found.findall("line[@class='change']")) == 2
    assert found.findtext("title") == "<produce> & fetch: 10 to 12"


@pytest.mark.parametrize("points", [[5.0], [5.0] * 20, [0.0, 0.0]])
def test_a_history_without_any_spread_has_a_chart(points: list[float]) -> None:
    dots = Xml.fromstring(charts.history(points, [], "flat")).findall("circle")
    assert len({dot.get("cy") for dot in dots}) == 1


@pytest.mark.parametrize(("fraction", "width"), [(0.0, "0.0"), (0.5, "80.0"), (1.0, "160.0"), (7.0, "160.0")])
def test_a_bar_ends_at_its_frame(fraction: float, width: str) -> None:
    bar = Xml.fromstring(charts.bar(fraction, "a<b")).find("rect[@class='bar']")
    assert bar is not None
    assert bar.get("width") == width
