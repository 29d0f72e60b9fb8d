"""Histograms of latencies as pbload keeps them, and HdrHistogram's log format for other people's tools.

128 buckets per power of two: a value is known to 0.8 %. That is the layout of an HdrHistogram with two significant
digits whose least value is 1 ns, so counts are written to a log as they are. Format: HdrHistogram's log of version 1.3,
with histograms of encoding V2 (https://github.com/HdrHistogram/HdrHistogram). Values only.
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
    """The number of the bucket that holds a value; what is too large counts as the largest."""
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
    """How often which latency was seen."""

    def __init__(self, pairs: Iterable[Sequence[int]] = ()) -> None:
        """`pairs` are (number of a bucket, count), as pbload prints them."""
        self.counts: Counter[int] = Counter({int(bucket): int(count) for bucket, count in pairs})

    def record(self, value_ns: int) -> None:
        """Note one latency."""
        self.counts[bucket_of(value_ns)] += 1

    @property
    def count(self) -> int:
        """How many latencies."""
        return self.counts.total()

    def pairs(self) -> list[list[int]]:
        """As it is saved: [number of a bucket, count] in order."""
        return [[bucket, count] for bucket, count in sorted(self.counts.items()) if count]

    def quantiles_us(self, shares: Sequence[float]) -> list[float]:
        """The upper edges of the buckets that hold these quantiles (0 to 1, ascending); zeros when there is nothing."""
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
        """HdrHistogram's compressed encoding V2 in base 64, values in nanoseconds."""
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
    """Seven bits a byte, the lowest first; the ninth byte has eight."""
    left = ((value << 1) ^ (value >> 63)) & ((1 << 64) - 1)
    out = bytearray()
    while left >= 0x80 and len(out) < 8:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def log_lines(start_s: float, tagged: Iterable[tuple[str, float, float, Histogram]]) -> list[str]:
    """A log: `start_s` in seconds since the epoch; then tag, start since the epoch, seconds, histogram of intervals."""
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
