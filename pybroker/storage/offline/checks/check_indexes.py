"""The index files of a segment: what is missing or odd about them, and what the walk found in their entries."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pybroker.native import walk
from pybroker.native.walk import WalkRow
from pybroker.storage.offline.binary_files import OFFSET_ENTRY, TIME_ENTRY
from pybroker.storage.offline.checks.findings import INFO, WARNING, Report, unreadable_told
from pybroker.storage.offline.checks.segment_findings import tell_index_row
from pybroker.storage.offline.layout import Segment
from pybroker.storage.offline.small_files import read_whole

# So many entries of the same kind are no accident.
_FEW = 2
_SHARE_OF_ENTRIES = 50


@dataclass(slots=True)
class Indexes:
    """The indexes of one segment: entries as they lie in the files, and the rows that the walk has about them."""

    segment: Segment
    offsets: bytes
    times: bytes
    _late: dict[int, int] = field(default_factory=lambda: {walk.INDEX: 0, walk.TIME: 0})
    _late_rows: list[WalkRow] = field(default_factory=list)
    _inner_count: int = 0

    @classmethod
    def read(cls, segment: Segment, *, is_last: bool, is_clean: bool, may_miss: bool, report: Report) -> Indexes:
        """`may_miss`: a log that is not always indexed; `is_clean`: the broker said that it closed it in order."""
        if not may_miss:
            # A broker may write the indexes of its last segment later than the segment.
            _tell_missing(segment, INFO if is_last and not is_clean else WARNING, report)
        # Apache Kafka 4.4.0 leaves them behind the indexes of its metadata log at every stop.
        tells_zeros = not (may_miss and is_clean)
        offsets = _entries(segment.index, OFFSET_ENTRY.size, is_last, tells_zeros, report)
        times = _entries(segment.time_index, TIME_ENTRY.size, is_last, tells_zeros, report)
        return cls(segment, offsets, times)

    def take(self, row: WalkRow, report: Report) -> None:
        """A row about an entry. Those that an older release may have written wait for `finish`."""
        if row.flags & walk.INNER:
            self._inner_count += 1
            return
        if not _may_be_older(row):
            tell_index_row(report, self.segment, row)
            return
        kind = row.flags & (walk.INDEX | walk.TIME)
        self._late[kind] += 1
        if self._late[kind] <= report.limit:
            self._late_rows.append(row)

    def finish(self, report: Report) -> None:
        """Tell of what waited.

        Before Apache Kafka wrote index entries batch by batch, an entry named the first batch of what was appended
        together, by the offset of its last record. Followers' indexes are full of those; one or two are damage. Before
        3.8 an entry of the time index named the record with the timestamp; look-ups begin at the same batch.
        """
        if self._inner_count > 0 and self.segment.time_index is not None:
            text = (
                f"{self._inner_count} entries name a record before the last one of their batch, as Kafka did before 3.8"
            )
            report.info("index-older", self.segment.time_index, text)
        counts = {walk.INDEX: len(self.offsets) // OFFSET_ENTRY.size, walk.TIME: len(self.times) // TIME_ENTRY.size}
        paths = {walk.INDEX: self.segment.index, walk.TIME: self.segment.time_index}
        is_older = {kind: count > max(_FEW, counts[kind] // _SHARE_OF_ENTRIES) for kind, count in self._late.items()}
        for kind, path in paths.items():
            if is_older[kind] and path is not None:
                text = f"{self._late[kind]} entries name several batches together, as older releases did for followers"
                report.info("index-older", path, text)
        for row in self._late_rows:
            if not is_older[row.flags & (walk.INDEX | walk.TIME)]:
                tell_index_row(report, self.segment, row)


def _may_be_older(row: WalkRow) -> bool:
    if row.expected_offset < 0:
        return False
    if row.flags & walk.INDEX:
        return row.base_offset > row.expected_offset
    return row.max_timestamp_ms >= row.base_timestamp_ms


def _tell_missing(segment: Segment, severity: str, report: Report) -> None:
    assert segment.log is not None
    for suffix, path in ((".index", segment.index), (".timeindex", segment.time_index)):
        if path is None:
            text = f"there is no {suffix} file beside it; the next start makes it"
            report.add(severity, "index-missing", segment.log, text)


def _entries(path: Path | None, entry_bytes: int, is_last: bool, tells_zeros: bool, report: Report) -> bytes:
    """The entries in use of an index. Oddities of the rest are told; the last segment's zeros if `tells_zeros`."""
    if path is None:
        return b""
    data = b""
    with unreadable_told(path, report):
        data = read_whole(path)
        report.saw(path)
    whole = data[: len(data) // entry_bytes * entry_bytes]
    used = whole[: -(-len(whole.rstrip(b"\0")) // entry_bytes) * entry_bytes]
    if len(whole) != len(data):
        text = f"{len(data)} bytes are no whole number of entries of {entry_bytes} bytes"
        report.error("index-size", path, text, position=len(whole))
    if len(used) == len(whole):
        return whole
    if is_last:
        if tells_zeros:
            text = f"{len(whole) - len(used)} preallocated bytes at the end: the broker was not stopped in order"
            report.info("index-preallocated", path, text, position=len(used))
        return used
    # A single entry of zeros is what the first batch of a segment may have, so it is compared like any other.
    return whole
