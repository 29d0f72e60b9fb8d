"""Latency histograms with pbload's buckets, and HdrHistogram's log format for other tools.

Each power of two has 128 buckets, so a value is known to 0.8 %. An HdrHistogram with two significant digits and a
lowest value of 1 ns has the same buckets, so the counts go into its log unchanged. The log has HdrHistogram's version
1.3, and its histograms have encoding V2 (https://github.com/HdrHistogram/HdrHistogram).
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence

_SUB_BITS = 7
_SUB_COUNT = 1 << _SUB_BITS
HIGHEST_NS = (1 << 40) - 1
_V2_COOKIE, _V2_COMPRESSED_COOKIE = 0x1C849313, 0x1C849314
_SIGNIFICANT_DIGITS = 2


def bucket_of(value_ns: int) -> int:
    """The number of the bucket that holds a value. A value above `HIGHEST_NS` is in the last bucket."""
    value_ns = min(max(value_ns, 0), HIGHEST_NS)
    shift = max(0, value_ns.bit_length() - 1 - _SUB_BITS)
    return (shift << _SUB_BITS) + (value_ns >> shift)


def upper_edge_ns(bucket: int) -> int:
    """The largest value that a bucket holds."""
    if bucket < _SUB_COUNT:
        return bucket
    shift = (bucket >> _SUB_BITS) - 1
    return (((bucket & (_SUB_COUNT - 1)) + _SUB_COUNT + 1) << shift) - 1


class Histogram:
    """Counts latencies by bucket."""

    def __init__(self, pairs: Iterable[Sequence[int]] = ()) -> None:
        """`pairs` are (number of a bucket, count), as pbload prints them."""
        self.counts: Counter[int] = Counter({int(bucket): int(count) for bucket, count in pairs})

    def record(self, value_ns: int) -> None:
        """Count one latency."""
        self.counts[bucket_of(value_ns)] += 1

    @property
    def count(self) -> int:
        """How many latencies were counted."""
        return self.counts.total()

    def pairs(self) -> list[list[int]]:
        """The histogram for JSON: [bucket number, count] of each bucket that is not empty, in ascending order."""
        return [[bucket, count] for bucket, count in sorted(self.counts.items()) if count]

    def quantiles_us(self, shares: Sequence[float]) -> list[float]:
        """For each quantile of `shares` (0 to 1, ascending), the upper edge of its bucket, in microseconds. All zeros
        when the histogram is empty."""
        total, found, seen = self.count, [], 0
        ordered = iter(sorted(self.counts.items()))
        bucket = 0
        for share in shares:
            rank = min(int(share * total), total - 1)
            while seen <= rank:
                bucket, count = next(ordered)
                seen += count
            found.append(upper_edge_ns(bucket) / 1000)
        return found

    def encoded(self) -> str:
        """The histogram in HdrHistogram's compressed encoding V2, in base 64. Values are in nanoseconds."""
        body = bytearray()
        zeros = 0
        for bucket in range(max(self.counts, default=-1) + 1):
            count = self.counts.get(bucket, 0)
            if count == 0:
                zeros += 1
                continue
            if zeros:
                body += _zigzag_leb128(-zeros if zeros > 1 else 0)
                zeros = 0
            body += _zigzag_leb128(count)
        head = struct.pack(">iiiiqqd", _V2_COOKIE, len(body), 0, _SIGNIFICANT_DIGITS, 1, HIGHEST_NS, 1.0)
        packed = zlib.compress(head + body)
        return base64.b64encode(struct.pack(">ii", _V2_COMPRESSED_COOKIE, len(packed)) + packed).decode()


def _zigzag_leb128(value: int) -> bytes:
    """Zigzag LEB128: seven bits a byte, the lowest bits first. A ninth byte has eight bits."""
    left = ((value << 1) ^ (value >> 63)) & ((1 << 64) - 1)
    out = bytearray()
    while left >= 0x80 and len(out) < 8:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def log_lines(start_s: float, tagged: Iterable[tuple[str, float, float, Histogram]]) -> list[str]:
    """The lines of a log that begins at `start_s`, in seconds since the epoch. `tagged` has for each interval its tag,
    its start in seconds since the epoch, its length in seconds, and its histogram."""
    lines = [
        "#[Logged by pybroker perf, latencies in ns]",
        "#[Histogram log format version 1.3]",
        f"#[StartTime: {start_s:.3f} (seconds since epoch)]",
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"',
    ]
    for tag, begin_s, seconds, histogram in tagged:
        largest_ms = upper_edge_ns(max(histogram.counts, default=0)) / 1e6
        lines.append(f"Tag={tag},{begin_s - start_s:.3f},{seconds:.3f},{largest_ms:.3f},{histogram.encoded()}")
    return lines
