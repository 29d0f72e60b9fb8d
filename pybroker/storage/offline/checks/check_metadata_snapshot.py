"""Checks a snapshot of the metadata log (KIP-630): header, records, footer, offsets from 0, one epoch. Reads only."""

from __future__ import annotations

from pybroker.native import NativeError, walk
from pybroker.native.walk import SegmentWalk
from pybroker.storage.offline.checks.findings import Report
from pybroker.storage.offline.layout import MetadataSnapshot

_HEADER, _FOOTER = 3, 4


def check_metadata_snapshot(snapshot: MetadataSnapshot, report: Report) -> None:
    """`bootstrap.checkpoint` is one of offset and epoch 0."""
    path = snapshot.path
    kinds: list[int] = []
    try:
        for row in SegmentWalk().rows(path, 0, wanted=walk.EVERY, deep_every=1):
            if not row.is_intact:
                report.error("snapshot", path, f"{row.size_bytes} bytes are damaged", position=row.position)
                continue
            kinds.append(row.control_type if row.flags & walk.CONTROL else -1)
            if row.flags & (walk.GAP | walk.BACK | walk.HEADER | walk.RECORDS) or (
                row.expected_offset < 0 and row.base_offset != 0
            ):
                text = f"offset {row.base_offset} where {max(row.expected_offset, 0)} is due, or records out of order"
                report.error("snapshot", path, text, position=row.position, offset=row.base_offset)
            if row.leader_epoch != snapshot.epoch:
                text = f"a batch of leader epoch {row.leader_epoch} in a snapshot of epoch {snapshot.epoch}"
                report.error("snapshot", path, text, position=row.position)
    except NativeError as error:
        report.error("unreadable", path, str(error))
        return
    report.saw(path)
    if len(kinds) < 2 or kinds[0] != _HEADER or kinds[-1] != _FOOTER:
        report.error("snapshot", path, "it does not begin with a header and end with a footer: it is not whole")
