"""Which snapshots and segments of the metadata log may go, by Kafka's rules (KIP-630). Blocks; any one thread.

The latest snapshot always stays. The oldest goes while log and snapshots together exceed the retention size, or when
its last record is older than the retention time. A segment goes when all of it lies below the oldest snapshot left.
"""

from __future__ import annotations

import logging
from itertools import pairwise
from pathlib import Path

from pybroker.metadata import records as batches
from pybroker.metadata.errors import DamagedBatch
from pybroker.metadata.log_files import SnapshotId, list_segments, list_snapshots, read_snapshot_batches
from pybroker.storage.files.atomic import fsync_directory
from pybroker.values import Value

logger = logging.getLogger(__name__)

_DERIVED_SUFFIXES = (".index", ".timeindex", ".txnindex", ".snapshot")


class Retention(Value):
    """metadata.max.retention.bytes and .ms; a negative value is no bound."""

    max_bytes: int = 100 << 20
    max_ms: int = 7 * 24 * 3600 * 1000


def clean(directory: Path, retention: Retention, now_ms: int) -> int:
    """Delete what `retention` lets go; the number of files deleted."""
    snapshots = list_snapshots(directory)
    deleted_count = 0
    while len(snapshots) > 1 and (
        _is_too_big(directory, retention) or _is_too_old(directory, snapshots[0], retention, now_ms)
    ):
        (directory / snapshots.pop(0).file_name).unlink()
        deleted_count += 1
        # Segments go at once, for the size that decides about the next snapshot.
        deleted_count += _delete_segments_below(directory, snapshots[0].end_offset)
    if deleted_count:
        fsync_directory(directory)
        logger.info("metadata log: %d files below offset %d deleted", deleted_count, snapshots[0].end_offset)
    return deleted_count


def _is_too_big(directory: Path, retention: Retention) -> bool:
    if retention.max_bytes < 0:
        return False
    files = [segment.path for segment in list_segments(directory)]
    files += [directory / snapshot.file_name for snapshot in list_snapshots(directory)]
    return sum(path.stat().st_size for path in files) > retention.max_bytes


def _is_too_old(directory: Path, snapshot: SnapshotId, retention: Retention, now_ms: int) -> bool:
    if retention.max_ms < 0:
        return False
    path = directory / snapshot.file_name
    try:
        first_batch = next(read_snapshot_batches(path))
    except DamagedBatch as error:
        logger.warning("%s. Its age is not known, so it stays until the size of the metadata log asks for more", error)
        return False
    header = batches.decode_batch(first_batch, str(path)).records[0].record
    return bool(now_ms - header.last_contained_log_timestamp > retention.max_ms)


def _delete_segments_below(directory: Path, offset: int) -> int:
    """A segment ends where the next begins, so the last one, which is appended to, always stays."""
    segments = list_segments(directory)
    deleted_count = 0
    for segment, following in pairwise(segments):
        if following.base_offset <= offset:
            segment.path.unlink()
            deleted_count += 1
            for suffix in _DERIVED_SUFFIXES:
                segment.path.with_suffix(suffix).unlink(missing_ok=True)
    return deleted_count
