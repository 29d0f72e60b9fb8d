"""The broker's words about a log that was not found as it should have been. On the asyncio loop, once per opened
log."""

from __future__ import annotations

import logging
from pathlib import Path

from pybroker.native.partition import PartitionRecovery

logger = logging.getLogger(__name__)


def tell(path: Path, recovery: PartitionRecovery, end_offset: int, durable_end: int) -> None:
    """Log what recovery cut off, kept or could not mend in `path`.

    `end_offset` is where the log ends now; up to `durable_end` it had been synced (0: unknown).
    """
    if recovery.old_magic_offset >= 0:
        logger.warning(
            "%s has batches older than magic 2 from offset %d on, which cannot be served: rewrite the topic with "
            "Apache Kafka's tools",
            path,
            recovery.old_magic_offset,
        )
    if recovery.unsound_index_count > 0:
        _tell_indexes(path, recovery)
    if recovery.hole_count > 0:
        _tell_holes(path, recovery)
    if recovery.kept_file_count > 0:
        _tell_kept(path, recovery)
    elif recovery.truncated_bytes > 0:
        logger.warning(
            "%s: the last %d bytes were no whole batches and are cut off; the log ends at offset %d",
            path,
            recovery.truncated_bytes,
            end_offset,
        )
    if end_offset < durable_end:
        logger.error(
            "%s ends at offset %d, but was synced up to %d: its disk lost records, or files were changed by others. "
            "Restore it from a replica or a backup if those records matter",
            path,
            end_offset,
            durable_end,
        )


def _segment(path: Path, base_offset: int) -> Path:
    return path / f"{base_offset:020}.log"


def _tell_indexes(path: Path, recovery: PartitionRecovery) -> None:
    more_count = recovery.unsound_index_count - 1
    more = f", and those of {more_count} more segments," if more_count > 0 else ""
    logger.warning(
        "%s: index files of this segment%s were missing or did not match, and have been built again from the batches",
        _segment(path, recovery.unsound_index_segment).with_suffix(".*index"),
        more,
    )


def _tell_holes(path: Path, recovery: PartitionRecovery) -> None:
    more = f" ({recovery.hole_count - 1} more such places follow)" if recovery.hole_count > 1 else ""
    logger.error(
        "%s is damaged at position %d%s, below what had been synced: fetches of offsets %d to %d are answered "
        "CORRUPT_MESSAGE, everything around them is served. `pybroker log repair` saves what is intact",
        _segment(path, recovery.hole_segment),
        recovery.hole_position,
        more,
        recovery.hole_offset,
        max(recovery.hole_offset, recovery.hole_end_offset - 1),
    )


def _tell_kept(path: Path, recovery: PartitionRecovery) -> None:
    logger.error(
        "%s is damaged at position %d: the log ends there, at offset %d. %d intact batches up to offset %d, %d bytes "
        "in all, are not served any more; they are kept in %d files %s, which no broker deletes",
        _segment(path, recovery.cut_segment),
        recovery.cut_position,
        recovery.cut_offset,
        recovery.kept_batch_count,
        max(recovery.cut_offset, recovery.cut_end_offset - 1),
        recovery.kept_bytes,
        recovery.kept_file_count,
        path / "*.log.damaged-*",
    )
