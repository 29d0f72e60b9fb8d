"""docs/metrics.md is made from the catalogue, so it names every metric, and no other."""

from __future__ import annotations

from pathlib import Path

from pybroker.server.observe.catalogue import METRICS, table

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "metrics.md"


def test_the_document_has_the_table() -> None:
    assert table() in DOCUMENT.read_text(), "python -m pybroker.server.observe.catalogue prints the new one"


def test_names_are_as_prometheus_wants_them() -> None:
    names = [each.name for each in METRICS]
    assert len(set(names)) == len(names)
    for each in METRICS:
        assert each.name.endswith("_total") == (each.kind == "counter"), each.name
        assert each.help.endswith("."), each.name
