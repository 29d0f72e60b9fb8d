"""Words for what a walk over a segment found. Pure, but for reading the records of a batch that is odd inside."""

from __future__ import annotations

from pybroker.native import walk
from pybroker.native.walk import WalkRow
from pybroker.protocol import record_batch
from pybroker.protocol.errors import ProtocolError
from pybroker.storage.offline.checks.findings import Report
from pybroker.storage.offline.layout import Segment

_RECORDS_LIMIT_BYTES = 64 << 20


def tell_row(report: Report, segment: Segment, row: WalkRow, *, is_last_segment: bool, is_clean: bool) -> None:
    """Tell `report` of one row. `is_clean`: the broker said that it closed this log in order."""
    path, at = segment.log, row.position
    assert path is not None
    flags = row.flags
    if flags & walk.GARBAGE:
        _tell_garbage(report, segment, row, is_last_segment, is_clean)
    elif flags & walk.CRC:
        text = f"the batch of {row.size_bytes} bytes, offset {row.base_offset} as it says, has a wrong CRC"
        report.error("crc", path, text, position=at, offset=row.base_offset)
    if flags & walk.BACK:
        text = f"the batch has base offset {row.base_offset}, but {row.expected_offset} or more is due"
        report.error("offset-order", path, text, position=at, offset=row.base_offset)
    if flags & walk.GAP:
        text = f"offsets {row.expected_offset} to {row.base_offset - 1} are missing, and no cleaner has been here"
        report.warning("offset-gap", path, text, position=at, offset=row.expected_offset)
    if flags & walk.HEADER:
        text = (
            f"its header makes no sense: {row.record_count} records, last offset delta {row.last_offset_delta}, "
            f"attributes {row.attributes:#06x}, producer {row.producer_id}, max timestamp {row.max_timestamp_ms}"
        )
        report.error("header", path, text, position=at, offset=row.base_offset)
    if flags & walk.RECORDS:
        report.error("records", path, _odd_records(segment, row), position=at, offset=row.base_offset)
    if flags & walk.OLD_MAGIC:
        text = f"a message of magic {row.magic}, as Apache Kafka wrote them before 0.11; it cannot be served"
        report.warning("old-magic", path, text, position=at, offset=row.base_offset)
    if flags & walk.SEQUENCE:
        text = (
            f"producer {row.producer_id} epoch {row.producer_epoch} goes on with sequence {row.base_sequence}, "
            f"{row.expected_sequence} was due"
        )
        report.info("sequence-gap", path, text, position=at, offset=row.base_offset)


def _tell_garbage(report: Report, segment: Segment, row: WalkRow, is_last_segment: bool, is_clean: bool) -> None:
    assert segment.log is not None
    path, at = segment.log, row.position
    is_tail = is_last_segment and at + row.size_bytes == path.stat().st_size
    if row.flags & walk.UNREADABLE:
        text = f"{row.size_bytes} bytes lie in blocks that the disk does not give out, or in batches with such blocks"
        report.error("unreadable", path, text, position=at, offset=max(row.expected_offset, segment.base_offset))
    elif is_tail and row.flags & walk.ZEROS and not is_clean:
        text = f"{row.size_bytes} bytes of zeros behind the last batch: preallocated, the next start cuts them"
        report.info("preallocated-tail", path, text, position=at)
    elif is_tail and not is_clean:
        text = f"the last {row.size_bytes} bytes are no whole batch: a torn write, which the next start cuts"
        report.warning("torn-tail", path, text, position=at, offset=max(row.expected_offset, segment.base_offset))
    else:
        what = "zeros" if row.flags & walk.ZEROS else "no batch with a right CRC, length and magic"
        text = f"{row.size_bytes} bytes are {what}"
        report.error("garbage", path, text, position=at, offset=max(row.expected_offset, segment.base_offset))


def tell_index_row(report: Report, segment: Segment, row: WalkRow) -> None:
    """Tell `report` of a wrong index entry."""
    if row.flags & walk.INDEX:
        _tell_index(report, segment, row)
    else:
        _tell_time(report, segment, row)


def _tell_index(report: Report, segment: Segment, row: WalkRow) -> None:
    assert segment.index is not None
    said = f"entry {row.number} says offset {row.base_offset} at position {row.position}"
    if row.expected_offset < 0:
        text = f"{said}, where no batch begins"
    else:
        text = f"{said}, where a batch with last offset {row.expected_offset} begins"
    report.error("index-entry", segment.index, text, position=row.number * 8, offset=row.base_offset)


def _tell_time(report: Report, segment: Segment, row: WalkRow) -> None:
    assert segment.time_index is not None
    said = f"entry {row.number} says timestamp {row.max_timestamp_ms} at offset {row.base_offset}"
    if row.expected_offset < 0:
        text = f"{said}, which no batch has in that order"
    else:
        text = (
            f"{said}; the batch there has last offset {row.expected_offset} and largest timestamp "
            f"{row.base_timestamp_ms}, or an earlier one is as large"
        )
    report.error("time-index-entry", segment.time_index, text, position=row.number * 12, offset=row.base_offset)


def _odd_records(segment: Segment, row: WalkRow) -> str:
    """Read the batch once more, slowly, for what exactly is wrong in it."""
    assert segment.log is not None
    with open(segment.log, "rb") as file:
        file.seek(row.position)
        data = file.read(row.size_bytes)
    try:
        (batch,) = record_batch.parse(data, max_decompressed_bytes=_RECORDS_LIMIT_BYTES)
    except ProtocolError as error:
        return f"its records are damaged under a right CRC: {error}"
    largest = max((record.timestamp_ms or -1 for record in batch.records), default=-1)
    if largest != batch.max_timestamp_ms:
        return f"its header says max timestamp {batch.max_timestamp_ms}, its records have {largest}"
    return "its records' offsets are not in order, or beyond the batch's last offset"
