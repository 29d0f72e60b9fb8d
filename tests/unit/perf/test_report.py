"""Plots of a result: the files are there, and the page stands by itself."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

from pybroker.perf.figures import latency, percentiles, throughput, whole_intervals
from pybroker.perf.histogram import Histogram, bucket_of
from pybroker.perf.load import Interval, Load
from pybroker.perf.report import write_report

LATENCY = {"mean": 250.0, "p50": 200.0, "p90": 400.0, "p99": 900.0, "p99.9": 1000.0, "max": 1200.0}


def load(name: str, mb: int) -> Load:
    histogram = Histogram([[bucket_of(200_000), 900], [bucket_of(1_000_000), 100]])
    intervals = [Interval(100.0 + i, 1.0, 1000, 1000, mb * 1_000_000, LATENCY, histogram) for i in range(3)]
    intervals.append(Interval(103.0, 0.0001, 1, 1, 1, LATENCY, histogram))
    result = {"mb_per_s": float(mb), "requests_per_s": 1000.0, "requests": 3001, "latency_us": LATENCY}
    return Load(name, ["pbload", name, "<topic>"], {}, intervals, result, histogram)


def test_figures_show_what_was_measured() -> None:
    loads = [load("produce", 5), load("consume", 7)]
    lines = throughput(loads).axes[0].get_lines()
    assert [list(line.get_ydata()) for line in lines] == [[5.0] * 3, [7.0] * 3]
    assert list(lines[0].get_xdata()) == [0.5, 1.5, 2.5]
    assert len(whole_intervals(loads[0])) == 3
    assert {str(line.get_label()) for line in latency(loads).axes[0].get_lines()} == {
        f"{name} {quantile}" for name in ("produce", "consume") for quantile in ("p50", "p99", "max")
    }
    curve = percentiles(loads[:1]).axes[0].get_lines()[0]
    (first, last) = (curve.get_ydata()[0], curve.get_ydata()[-1])
    assert 0.2 <= first <= 0.202 and 1.0 <= last <= 1.01


def test_a_report_is_pictures_and_one_page(tmp_path: Path) -> None:
    document = {"time": "2026-01-02T03:04:05Z", "bootstrap": "127.0.0.1:9092", "hardware": {"cpu": "A <fast> one"}}
    written = write_report(document, [load("produce", 5)], tmp_path / "plots")
    assert [path.name for path in written] == ["throughput.png", "latency.png", "percentiles.png", "report.html"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written[:-1])
    page = written[-1].read_text()
    assert page.count("<svg") == 3
    assert "A &lt;fast&gt; one" in page and "&lt;topic&gt;" in page and "2026-01-02" in page
    # Nothing comes from elsewhere.
    assert "<script" not in page and "src=" not in page and "<link" not in page
    for svg in page.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + svg.split("</svg>")[0] + "</svg>")
