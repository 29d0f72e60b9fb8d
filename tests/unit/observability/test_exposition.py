"""Prometheus' text format, read back by Prometheus' own client."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from pybroker.observability.exposition import Exposition, Metric, Rows, labels

COUNTER = Metric("jobs_total", "counter", "Jobs.", ("name",))
GAUGE = Metric("heat_celsius", "gauge", "How warm it is.")
HISTOGRAM = Metric("wait_seconds", "histogram", "Waiting.", ("of",))


def test_what_is_written_is_read_by_prometheus() -> None:
    out = Exposition()
    awkward = 'a "quoted" \\ name\nof two lines'
    out.add(COUNTER, [(labels(name=awkward), 3), (labels(name="plain"), 2**60)])
    out.value(GAUGE, -1.5)
    below = [0, 1, 3, 3, 4]
    out.histogram(HISTOGRAM, [(labels(of="one"), 5, 40, below), ("", 0, 0, [0] * 5)], [(1, 2e-6), (4, 1.6e-5)], 1e-6)
    families = {each.name: each for each in text_string_to_metric_families(out.text)}
    assert {name: each.type for name, each in families.items()} == {
        "jobs": "counter",
        "heat_celsius": "gauge",
        "wait_seconds": "histogram",
    }
    assert families["heat_celsius"].documentation == "How warm it is."
    assert [(each.labels["name"], each.value) for each in families["jobs"].samples] == [
        (awkward, 3),
        ("plain", float(2**60)),
    ]
    of_one = [each for each in families["wait_seconds"].samples if each.labels.get("of") == "one"]
    assert [(each.name, each.labels.get("le"), each.value) for each in of_one] == [
        ("wait_seconds_bucket", "2e-06", 1),
        ("wait_seconds_bucket", "1.6e-05", 4),
        ("wait_seconds_bucket", "+Inf", 5),
        ("wait_seconds_sum", None, 4e-05),
        ("wait_seconds_count", None, 5),
    ]


def test_rows_in_common_are_written_as_others_are() -> None:
    """More of them than are filled in at once, and used again."""
    texts = [labels(name=f"50% of {number}") for number in range(1200)]
    rows = Rows(texts)
    for step in range(2):
        alike, out = Exposition(), Exposition()
        for metric in (COUNTER, GAUGE):
            values = [number * 2**40 - step for number in range(len(texts))]
            alike.add(metric, zip(texts, values, strict=True))
            out.add_rows(metric, rows, values)
        assert out.text == alike.text


def test_a_metric_without_values_is_left_out() -> None:
    out = Exposition()
    out.add_rows(COUNTER, Rows([]), [])
    out.add(COUNTER, [])
    out.histogram(HISTOGRAM, [], [(0, 1.0)], 1.0)
    assert list(text_string_to_metric_families(out.text)) == []
