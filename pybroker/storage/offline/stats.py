"""`stats`: what partitions are made of: sizes, codecs, times, and how much of a compacted log is dirty. Reads only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pybroker.native import walk
from pybroker.native.walk import SegmentWalk
from pybroker.storage.errors import StorageError
from pybroker.storage.files import clean_shutdown, offset_checkpoint
from pybroker.storage.offline import text_files
from pybroker.storage.offline.dump import CODECS
from pybroker.storage.offline.layout import FileKind, LogDirFiles, PartitionFiles, Target, file_kind

_SAMPLE_EVERY = 64
"""Without `deep`, the records of every so-manieth batch tell the compression ratio."""


@dataclass(slots=True)
class PartitionStats:
    """The statistics of one partition, or of several of a topic. Bytes are of .log files; times are of batch headers,
    -1: none."""

    name: str
    partitions: int = 1
    segments: int = 0
    bytes: int = 0
    damaged_bytes: int = 0
    batches: int = 0
    records: int = 0
    control_batches: int = 0
    transactional_batches: int = 0
    old_magic_messages: int = 0
    first_offset: int = -1
    end_offset: int = -1
    min_timestamp_ms: int = -1
    max_timestamp_ms: int = -1
    codec_batches: Counter[str] = field(default_factory=Counter)
    codec_bytes: Counter[str] = field(default_factory=Counter)
    sizes: Counter[int] = field(default_factory=Counter)
    looked_into: int = 0
    records_looked_into: int = 0
    null_keys: int = 0
    stored_bytes: int = 0
    plain_bytes: int = 0
    clean_bytes: int | None = None
    dirty_bytes: int | None = None

    @property
    def compression_ratio(self) -> float | None:
        """Bytes of records decompressed over bytes stored, of the batches that were looked into."""
        return self.plain_bytes / self.stored_bytes if self.stored_bytes else None

    @property
    def dirty_ratio(self) -> float | None:
        """As the cleaner compares it with min.cleanable.dirty.ratio; None where no cleaner has been."""
        if self.clean_bytes is None or self.dirty_bytes is None or self.clean_bytes + self.dirty_bytes == 0:
            return None
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes)

    def size_percentile(self, percent: float) -> int | None:
        """Batch size in bytes, rounded down by at most an eighth."""
        wanted, seen = percent / 100 * self.sizes.total(), 0
        for size, count in sorted(self.sizes.items()):
            seen += count
            if seen >= wanted:
                return size
        return None

    def as_dict(self, *, deep: bool) -> dict[str, object]:
        """For JSON. Numbers of keys only where every record was looked at."""
        keys = {"records_with_null_key": self.null_keys} if deep else {}
        return {
            "name": self.name,
            "partitions": self.partitions,
            "segments": self.segments,
            "bytes": self.bytes,
            "damaged_bytes": self.damaged_bytes,
            "batches": self.batches,
            "records": self.records,
            "control_batches": self.control_batches,
            "transactional_batches": self.transactional_batches,
            "old_magic_messages": self.old_magic_messages,
            "first_offset": self.first_offset,
            "end_offset": self.end_offset,
            "min_timestamp_ms": self.min_timestamp_ms,
            "max_timestamp_ms": self.max_timestamp_ms,
            "codec_batches": dict(self.codec_batches),
            "codec_bytes": dict(self.codec_bytes),
            "compression_ratio": self.compression_ratio,
            "batch_size_p50": self.size_percentile(50),
            "batch_size_p90": self.size_percentile(90),
            "batch_size_p99": self.size_percentile(99),
            "batch_size_max": max(self.sizes, default=None),
            "dirty_ratio": self.dirty_ratio,
            **keys,
        }


def stats(target: Target, *, deep: bool) -> list[PartitionStats]:
    """The statistics of each partition of `target`, or of a segment by itself. StorageError for a file that is no
    segment."""
    if isinstance(target, LogDirFiles):
        cleaned = _cleaned(target.path)
        is_clean = _closed_cleanly(target.path)
        return [_partition_stats(each, cleaned, deep, closed_cleanly=is_clean) for each in target.partitions]
    if isinstance(target, PartitionFiles):
        log_dir = target.path.resolve().parent
        return [_partition_stats(target, _cleaned(log_dir), deep, closed_cleanly=_closed_cleanly(log_dir))]
    if file_kind(target) is not FileKind.LOG:
        raise StorageError(f"{target}: give a log dir, a partition's directory or a .log file")
    files = PartitionFiles.of(target.resolve().parent)
    last = files.logs[-1][1].name if files.logs else ""
    files.segments = [each for each in files.segments if each.base_offset == int(target.name[:20])]
    # Only the last segment has room that was reserved.
    is_clean = target.name != last or _closed_cleanly(files.path.resolve().parent)
    return [_partition_stats(files, {}, deep, closed_cleanly=is_clean)]


def by_topic(partitions: Iterable[PartitionStats]) -> list[PartitionStats]:
    """Sums over the partitions of each topic."""
    sums: dict[str, PartitionStats] = {}
    for each in partitions:
        topic = each.name.rpartition("-")[0]
        if topic in sums:
            _add(sums[topic], each)
        else:
            each.name = topic
            each.first_offset = each.end_offset = -1
            sums[topic] = each
    return list(sums.values())


_SUMMED = (
    "partitions",
    "segments",
    "bytes",
    "damaged_bytes",
    "batches",
    "records",
    "control_batches",
    "transactional_batches",
    "old_magic_messages",
    "looked_into",
    "records_looked_into",
    "null_keys",
    "stored_bytes",
    "plain_bytes",
)


def _add(total: PartitionStats, each: PartitionStats) -> None:
    for name in _SUMMED:
        setattr(total, name, getattr(total, name) + getattr(each, name))
    for name in ("codec_batches", "codec_bytes", "sizes"):
        getattr(total, name).update(getattr(each, name))
    for name in ("clean_bytes", "dirty_bytes"):
        one, other = getattr(total, name), getattr(each, name)
        setattr(total, name, other if one is None else one + (other or 0))
    total.max_timestamp_ms = max(total.max_timestamp_ms, each.max_timestamp_ms)
    known = [time for time in (total.min_timestamp_ms, each.min_timestamp_ms) if time >= 0]
    total.min_timestamp_ms = min(known, default=-1)


def _closed_cleanly(log_dir: Path) -> bool:
    """Whether the broker has said that it closed the logs in order."""
    return (log_dir / clean_shutdown.FILE_NAME).is_file()


def _cleaned(log_dir: Path) -> dict[tuple[str, int], int]:
    """How far the cleaner came, by partition; what is unreadable is as good as absent here."""
    path = log_dir / offset_checkpoint.CLEANER_OFFSET
    try:
        return {key: entry.offset for key, entry in text_files.offsets(path).items()}
    except (FileNotFoundError, text_files.Damage):
        return {}


def _partition_stats(
    files: PartitionFiles, cleaned: dict[tuple[str, int], int], deep: bool, *, closed_cleanly: bool
) -> PartitionStats:
    found = PartitionStats(files.name, segments=len(files.logs))
    walk_over = SegmentWalk()
    end_of_file, zeros_from, zeros_bytes = 0, 0, 0
    for base_offset, path in files.logs:
        walked_bytes = walk_over.totals().bytes
        zeros_from = zeros_bytes = 0
        for row in walk_over.rows(path, base_offset, deep_every=1 if deep else _SAMPLE_EVERY):
            if row.flags & walk.ZEROS:
                zeros_from, zeros_bytes = row.position, row.size_bytes
        end_of_file = walk_over.totals().bytes - walked_bytes
        if found.first_offset < 0:
            found.first_offset = walk_over.totals().file_first_offset
    totals = walk_over.totals()
    found.bytes, found.damaged_bytes = totals.bytes, totals.damaged_bytes
    if not closed_cleanly and zeros_from + zeros_bytes == end_of_file:
        # As `log check` has it: a broker that runs, or was killed, has reserved this room.
        found.damaged_bytes -= zeros_bytes
    found.batches, found.records = totals.batches, totals.records
    found.control_batches, found.transactional_batches = totals.control_batches, totals.transactional_batches
    found.old_magic_messages, found.end_offset = totals.old_magic_messages, totals.end_offset
    found.min_timestamp_ms, found.max_timestamp_ms = totals.min_timestamp_ms, totals.max_timestamp_ms
    for number, name in enumerate(CODECS):
        if totals.codec_batches[number]:
            found.codec_batches[name] = totals.codec_batches[number]
            found.codec_bytes[name] = totals.codec_bytes[number]
    found.sizes.update(dict(totals.sizes))
    found.looked_into, found.records_looked_into = totals.deep_batches, totals.deep_records
    found.null_keys = totals.null_keys
    found.stored_bytes, found.plain_bytes = totals.stored_bytes, totals.plain_bytes
    checkpoint = cleaned.get((files.topic, files.index))
    if checkpoint is not None:
        # The active segment is not cleaned, and counts for neither side.
        sealed = [(base_offset, path.stat().st_size) for base_offset, path in files.logs[:-1]]
        found.clean_bytes = sum(size for base_offset, size in sealed if base_offset < checkpoint)
        found.dirty_bytes = sum(size for base_offset, size in sealed if base_offset >= checkpoint)
    return found
