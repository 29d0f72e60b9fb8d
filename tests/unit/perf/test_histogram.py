"""Buckets as pbload has them, and the encoding that HdrHistogram's own tools read."""

import base64
import zlib

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pybroker.perf.histogram import HIGHEST_NS, Histogram, bucket_of, log_lines, upper_edge_ns

UNTIMED = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
# What HdrHistogram 2.2.2 for Java encodes for these values: new Histogram(1, 2^40 - 1, 2), encodeIntoByteBuffer.
VALUES = (0, 5, 5, 127, 128, 255, 256, 300, 1000, 123456, 999999, 50000000, HIGHEST_NS)
ENCODED = (
    "1c8493130000002000000000000000020000000000000001000000ffffffffff3ff0000000000000"
    "020704f1010202fb0102022902c50302eb0d029505c09a0c6b02910b02ff1c02"
)


@UNTIMED
@given(st.integers(0, HIGHEST_NS))
def test_a_value_lies_in_its_bucket(value: int) -> None:
    bucket = bucket_of(value)
    edge = upper_edge_ns(bucket)
    assert value <= edge <= value * 129 / 128 + 1
    assert bucket_of(edge) == bucket
    assert bucket_of(edge + 1) == bucket + 1 or edge == HIGHEST_NS


def test_the_encoding_is_that_of_hdrhistogram() -> None:
    histogram = Histogram()
    for value in VALUES:
        histogram.record(value)
    histogram.counts[bucket_of(777777)] += 100_000
    encoded = base64.b64decode(histogram.encoded())
    assert encoded[:4].hex() == "1c849314"
    assert int.from_bytes(encoded[4:8], "big") == len(encoded) - 8
    assert zlib.decompress(encoded[8:]).hex() == ENCODED


def test_a_log_has_a_line_for_each_interval() -> None:
    one = Histogram([[bucket_of(2_000_000), 3]])
    lines = log_lines(1000.0, [("produce", 1000.0, 0.5, one), ("consume", 1000.5, 0.5, Histogram())])
    first, second = (line.split(",") for line in lines if not line.startswith(("#", '"')))
    assert first[:3] == ["Tag=produce", "0.000", "0.500"]
    assert 2.0 <= float(first[3]) <= 2.02
    assert first[4] == one.encoded()
    assert second[:4] == ["Tag=consume", "0.500", "0.500", "0.000"]


def test_quantiles() -> None:
    histogram = Histogram([[bucket_of(1000), 90], [bucket_of(1_000_000), 10]])
    p0, p50, p90, p100 = histogram.quantiles_us([0, 0.5, 0.9, 1])
    assert p0 == p50 <= 1.01
    assert 1000 <= p90 == p100 <= 1010
    assert Histogram().quantiles_us([0.5, 1]) == [0, 0]
    assert Histogram(histogram.pairs()).counts == histogram.counts
