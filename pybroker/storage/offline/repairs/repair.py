"""`repair`: a new directory with all that is intact in an old one, which Apache Kafka and we open.

The source is only read. Gaps in offsets stay gaps. Indexes, transaction indexes and leader-epoch-checkpoint are made
anew from the batches. Producer snapshots and recovery points are left out, so that the broker builds the former and
looks at everything once. Blocks; fails with `OSError` for the disk and `StorageError` for what cannot be repaired.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from pybroker.native import NativeError, walk
from pybroker.native.walk import SegmentWalk, WalkRow
from pybroker.storage.errors import StorageError
from pybroker.storage.files import epoch_checkpoint, partition_metadata
from pybroker.storage.files.atomic import fsync_directory
from pybroker.storage.files.modes import make_directory
from pybroker.storage.offline import binary_files, text_files
from pybroker.storage.offline.binary_files import TransactionEntry
from pybroker.storage.offline.checks.check_metadata_snapshot import check_metadata_snapshot
from pybroker.storage.offline.checks.check_partition import METADATA_TOPIC_ID, open_at_start
from pybroker.storage.offline.checks.findings import Report
from pybroker.storage.offline.layout import PartitionFiles, Segment
from pybroker.storage.offline.repairs.repair_plan import WANTED, Dropped, Found, Kept, Planner, Restored, Step
from pybroker.storage.offline.repairs.repair_report import PartitionResult
from pybroker.storage.offline.repairs.repair_write import SegmentWriter
from pybroker.storage.offline.small_files import read_whole
from pybroker.storage.offline.transactions import Aborted, TransactionReplay


class MetadataKeeper(Protocol):
    """Keeps the metadata log without a hole where batches of it are lost."""

    def fillers(self, base_offset: int, end_offset: int, epoch: int) -> Iterator[bytes]:
        """Batches without effect for the offsets from `base_offset` up to `end_offset`."""
        ...

    def refusal(self, data: bytes) -> str | None:
        """Why the batch in `data`, the next that would be kept, cannot be replayed after those before; None: it can."""
        ...


#: A segment as a whole.
_UNREADABLE = WalkRow(*bytes(len(WalkRow._fields)))._replace(flags=walk.GARBAGE | walk.UNREADABLE)


@dataclass(frozen=True, slots=True)
class _Window:
    """Batches from `first_offset` up to `end_offset` are kept, others are not. -1: no bound."""

    first_offset: int = 0
    end_offset: int = -1


def repair_partition(
    files: PartitionFiles,
    output: Path,
    topic_id: bytes | None,
    known_end: int = -1,
    keeper: MetadataKeeper | None = None,
) -> PartitionResult:
    """Repair into `output`, which is made. `topic_id` is what others say, where partition.metadata is damaged, and
    `known_end` an offset that the log had reached; -1: nobody knows. With `keeper` a metadata log goes on behind
    damage, else it ends there."""
    make_directory(output)
    result = PartitionResult(files.name)
    window = _Window()
    if files.is_metadata_log:
        snapshot_ends = _copy_metadata_snapshots(files, output, result)
        if keeper is None:
            window = _whole_part(_steps(files), snapshot_ends)
        begin = files.logs[0][0] if files.logs else 0
        if window.first_offset > begin and not any(window.first_offset <= end for end in snapshot_ends):
            result.notes.append("its begin is lost and no snapshot has it: no broker can replay it")
    writing = _Writing(files, output, window, result, keeper if files.is_metadata_log else None)
    try:
        for step in _steps(files):
            writing.take(step)
        writing.finish(known_end)
    except NativeError as error:
        raise StorageError(str(error)) from error
    _write_topic_id(files, output, topic_id, result)
    if files.quorum_state is not None:
        copy_checked(files.quorum_state, output, text_files.quorum_state, result.notes)
    fsync_directory(output)
    return result


def _steps(files: PartitionFiles) -> Iterator[Step]:
    return Planner(_last_epoch(files)).steps(_found(files))


def _found(files: PartitionFiles) -> Iterator[Found]:
    walk_over = SegmentWalk()
    for segment in files.segments:
        if segment.log is not None and not _is_readable(segment.log):
            yield segment, _UNREADABLE
        elif segment.log is not None:
            for row in walk_over.rows(segment.log, segment.base_offset, wanted=WANTED):
                yield segment, row


def _is_readable(log: Path) -> bool:
    """Whether the disk gives out a file at all. Unreadable parts of a file are a matter of the walk."""
    try:
        with open(log, "rb"):
            return True
    except OSError:
        return False


def _last_epoch(files: PartitionFiles) -> int | None:
    """The largest epoch of a leader-epoch-checkpoint that is whole."""
    if files.leader_epochs is None:
        return None
    try:
        entries = text_files.leader_epochs(files.leader_epochs)
    except (text_files.Damage, OSError):
        return None
    return max((entry.epoch for entry in entries), default=None)


def _whole_part(steps: Iterable[Step], snapshot_ends: list[int]) -> _Window:
    """A metadata log may have no hole: the part that goes on from the newest snapshot, or else the first one."""
    parts: list[tuple[int, int]] = []
    for step in steps:
        if isinstance(step, Kept):
            first, end = step.row.base_offset, step.row.last_offset + 1
            if parts and parts[-1][1] == first:
                parts[-1] = parts[-1][0], end
            else:
                parts.append((first, end))
    if not parts:
        return _Window()
    if len(parts) == 1:
        return _Window(parts[0][0])
    for end_of_snapshot in sorted(snapshot_ends, reverse=True):
        for first, end in parts:
            if first <= end_of_snapshot <= end:
                return _Window(first, end)
    return _Window(*parts[0])


class _Writing:
    """Takes the steps of a plan and writes what is kept."""

    def __init__(
        self,
        files: PartitionFiles,
        output: Path,
        window: _Window,
        result: PartitionResult,
        keeper: MetadataKeeper | None,
    ) -> None:
        self._keeper = keeper
        #: Up to where offsets were given out, kept or not.
        self._seen_end = 0
        self._files = files
        self._output = output
        self._window = window
        self._result = result
        self._replay = TransactionReplay(open_at_start(files))
        self._aborted_seen = 0
        self._epochs: list[tuple[int, int]] = []
        self._changed: set[tuple[Path, int]] = set()
        self._segment: Segment | None = None
        self._source: BinaryIO | None = None
        self._writer: SegmentWriter | None = None

    def take(self, step: Step) -> None:
        """The next step."""
        if isinstance(step, Dropped):
            self._result.dropped.append(step)
        elif isinstance(step, Restored):
            self._result.restored.append(step)
            self._changed.add((step.path, step.position))
        else:
            self._keep(step)

    def _keep(self, step: Kept) -> None:
        row, log = step.row, step.segment.log
        assert log is not None
        if row.base_offset < self._window.first_offset or 0 <= self._window.end_offset <= row.base_offset:
            reason = "metadata records are missing between it and what is kept"
            dropped = Dropped(log, row.position, row.size_bytes, row.base_offset, row.last_offset, reason)
            self._result.dropped.append(dropped)
            return
        self._seen_end = max(self._seen_end, row.last_offset + 1)
        if self._keeper is not None and (refusal := self._keeper.refusal(_bytes_of(log, row))) is not None:
            reason = f"it cannot be replayed without what was lost: {refusal}"
            self._result.dropped.append(
                Dropped(log, row.position, row.size_bytes, row.base_offset, row.last_offset, reason)
            )
            return
        if step.segment is not self._segment:
            self._fill(step.segment.base_offset, row.leader_epoch)
            self._end_segment()
            self._segment = step.segment
            self._source = open(log, "rb")  # noqa: SIM115  closed by _end_segment
            self._writer = self._begin(max(step.segment.base_offset, self._window.first_offset))
            if self._result.kept_batches == 0:
                self._result.end_offset = step.segment.base_offset
        self._fill(row.base_offset, row.leader_epoch)
        assert self._writer is not None
        assert self._source is not None
        self._writer.add(self._source, row, (log, row.position) in self._changed)
        self._replay.see(row)
        if row.leader_epoch >= 0 and (not self._epochs or self._epochs[-1][0] < row.leader_epoch):
            self._epochs.append((row.leader_epoch, row.base_offset))
        result = self._result
        if result.kept_batches == 0:
            result.first_offset = row.base_offset
        result.kept_batches += 1
        result.kept_records += row.record_count
        result.kept_bytes += row.size_bytes
        result.end_offset = row.last_offset + 1

    def _fill(self, end_offset: int, epoch: int) -> None:
        """Let a metadata log go on up to `end_offset` where records are lost."""
        first = self._result.end_offset
        if self._keeper is None or self._writer is None or first >= end_offset:
            return
        epoch = self._epochs[-1][0] if self._epochs else epoch
        for data in self._keeper.fillers(first, end_offset, epoch):
            self._writer.put(data)
        self._result.notes.append(f"offsets {first} to {end_offset - 1} are lost; records without effect fill them")
        self._result.end_offset = end_offset

    def _begin(self, base_offset: int) -> SegmentWriter:
        if self._result.kept_batches > 0 and base_offset > self._result.end_offset:
            self._result.gap_offset = base_offset
        return SegmentWriter(self._output, base_offset)

    def _end_segment(self) -> None:
        if self._writer is None or self._segment is None or self._source is None:
            return
        aborted = self._replay.aborted[self._aborted_seen :]
        self._aborted_seen = len(self._replay.aborted)
        entries = _transaction_entries(self._segment, aborted, self._files.logs[0][0], self._result.notes)
        self._writer.finish(entries)
        self._source.close()
        self._writer = self._segment = self._source = None

    def finish(self, known_end: int) -> None:
        """No more steps. The log ends where it did, if need be by an empty segment, so that no offset comes twice."""
        self._fill(self._seen_end, 0)
        self._end_segment()
        result = self._result
        end = max(self._files.logs[-1][0] if self._files.logs else 0, known_end)
        if self._window.end_offset < 0 and (result.kept_batches == 0 or end > result.end_offset):
            self._begin(end).finish(())
            result.end_offset = end
            if result.kept_batches == 0:
                result.first_offset = end
        epoch_checkpoint.write(self._output / epoch_checkpoint.FILE_NAME, self._epochs)


def _bytes_of(log: Path, row: WalkRow) -> bytes:
    with open(log, "rb") as file:
        file.seek(row.position)
        return file.read(row.size_bytes)


def _transaction_entries(
    segment: Segment, aborted: list[Aborted], log_start: int, notes: list[str]
) -> list[TransactionEntry]:
    """For the aborted transactions of a segment; what began before the log begins is known from the old index only."""
    old: dict[tuple[int, int], TransactionEntry] = {}
    if segment.transaction_index is not None:
        try:
            for entry in binary_files.transaction_entries(read_whole(segment.transaction_index)):
                old[entry.producer_id, entry.last_offset] = entry
        except OSError as error:
            notes.append(f"{segment.transaction_index}: {error.strerror}")
    found = []
    for each in aborted:
        before = old.get((each.producer_id, each.last_offset))
        if each.first_offset >= 0:
            found.append(TransactionEntry(0, *each))
        elif before is not None and 0 <= before.first_offset < log_start:
            found.append(before)
    return found


def _copy_metadata_snapshots(files: PartitionFiles, output: Path, result: PartitionResult) -> list[int]:
    """Copy the snapshots that are whole; their end offsets."""
    ends = []
    for snapshot in files.metadata_snapshots:
        report = Report()
        check_metadata_snapshot(snapshot, report)
        if report.faults:
            result.notes.append(f"left out {snapshot.path}: {report.faults[0].text}")
        else:
            copy_durably(snapshot.path, output)
            ends.append(snapshot.end_offset)
    return ends


def _write_topic_id(files: PartitionFiles, output: Path, topic_id: bytes | None, result: PartitionResult) -> None:
    own: bytes | None = None
    if files.metadata is not None:
        try:
            own = text_files.partition_metadata(files.metadata)
        except (text_files.Damage, OSError) as error:
            result.notes.append(f"{files.metadata}: {error}")
    if topic_id is not None and own != topic_id:
        result.notes.append("partition.metadata has the topic id that the metadata log says")
    if files.is_metadata_log:
        topic_id = METADATA_TOPIC_ID
    chosen = topic_id if topic_id is not None else own
    if chosen is None:
        result.notes.append("no topic id is known: without partition.metadata Apache Kafka does not open the partition")
    else:
        partition_metadata.write(output, chosen)


def copy_checked(path: Path, output: Path, read: Callable[[Path], object], notes: list[str]) -> None:
    """Copy a small file that is whole; name it in `notes` otherwise."""
    try:
        read(path)
    except (text_files.Damage, OSError) as error:
        notes.append(f"left out {path}: {error}")
        return
    copy_durably(path, output)


def copy_durably(path: Path, output: Path) -> None:
    """Into the directory `output`, which may take the place of the one that `path` is in."""
    with open(shutil.copy2(path, output / path.name), "rb") as copy:
        os.fsync(copy.fileno())
