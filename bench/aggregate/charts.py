"""Charts for the report as SVG inside the page, so that it is one file which opens anywhere, without a script."""

from __future__ import annotations

import html
import itertools
import statistics
from collections.abc import Sequence

_WIDTH, _HEIGHT, _MARGIN = 360, 110, 8


class Html(str):
    """Text that is HTML already; all other text has to be escaped."""

    __slots__ = ()


def history(points: Sequence[float], changes: Sequence[int], title: str) -> Html:
    """A history: a dot per commit, a line for the median of each level, a rule at each change."""
    low, high = min(points), max(points)
    span = (high - low) or abs(high) or 1.0

    def x(index: float) -> float:
        return _MARGIN + index * (_WIDTH - 2 * _MARGIN) / max(1, len(points) - 1)

    def y(value: float) -> float:
        return _HEIGHT - _MARGIN - (value - low) / span * (_HEIGHT - 2 * _MARGIN)

    dots = "".join(f'<circle cx="{x(i):.1f}" cy="{y(value):.1f}" r="1.6"/>' for i, value in enumerate(points))
    edges = [0, *changes, len(points)]
    levels = "".join(
        f'<line class="level" x1="{x(start):.1f}" x2="{x(end - 1):.1f}" y1="{y(middle):.1f}" y2="{y(middle):.1f}"/>'
        for start, end in itertools.pairwise(edges)
        for middle in (statistics.median(points[start:end]),)
    )
    rules = "".join(
        f'<line class="change" x1="{x(at - 0.5):.1f}" x2="{x(at - 0.5):.1f}" y1="0" y2="{_HEIGHT}"/>' for at in changes
    )
    return Html(
        f'<svg role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}">'
        f"<title>{html.escape(title)}: {low:.4g} to {high:.4g}</title>{rules}{dots}{levels}</svg>"
    )


def bar(fraction: float, label: str) -> Html:
    """A bar from 0 to 1 with a text beside it; longer ones end at the edge."""
    width = 160 * min(1.0, max(0.0, fraction))
    return Html(
        f'<svg role="img" viewBox="0 0 230 14" width="230" height="14"><title>{html.escape(label)}</title>'
        f'<rect class="frame" width="160" height="14"/><rect class="bar" width="{width:.1f}" height="14"/>'
        f'<text x="166" y="11">{html.escape(label)}</text></svg>'
    )
