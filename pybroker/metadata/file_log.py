"""`FileMetadataLog`: the metadata log in Kafka's own files, `__cluster_metadata-0/`, for the one voter of an embedded
controller.

State and bookkeeping belong to the asyncio loop that appends; writing and syncing run on one thread of its own,
snapshots on another. Appends made while a write is under way are written and synced together, after it. Two things can
fail. A write or sync may: then the log takes nothing more until a restart, which cuts it to its last whole batch. At
start `MetadataError` tells of files that do not fit together. Index files are there for Apache Kafka's tools and stay
empty, as sparse indexes may be: Apache Kafka rebuilds them when it opens the directory.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from pybroker.metadata import log_damage, snapshot
from pybroker.metadata import records as batches
from pybroker.metadata.errors import MetadataError, MetadataLogError
from pybroker.metadata.image import MetadataImage
from pybroker.metadata.log_files import (
    SegmentFile,
    SegmentReader,
    SnapshotId,
    first_timestamp,
    list_segments,
    list_snapshots,
    make_index_files,
    segment_path,
)
from pybroker.metadata.quorum_state import QuorumState
from pybroker.metadata.records import ControlRecord, MetadataBatch, VersionedRecord
from pybroker.metadata.retention import Retention, clean
from pybroker.protocol.uuids import METADATA_TOPIC_ID
from pybroker.storage.errors import StorageError
from pybroker.storage.files import epoch_checkpoint, partition_metadata
from pybroker.storage.files.applied_metadata import AppliedMetadata
from pybroker.storage.files.atomic import fsync_directory, sync_or_forget
from pybroker.storage.files.regular_file import open_regular
from pybroker.storage.files.reserve import RESERVE_BYTES, release, reserve
from pybroker.turns import run_at_once
from pybroker.values import Value

logger = logging.getLogger(__name__)

#: As much is replayed in half a second.
_CHEAP_REPLAY_BYTES = 2 << 20


class MetadataLogConfig(Value):
    """Kafka's settings of the metadata log: metadata.log.segment.bytes, metadata.log.segment.ms,
    metadata.log.max.record.bytes.between.snapshots, metadata.log.max.snapshot.interval.ms (0: never),
    metadata.max.retention.bytes, metadata.max.retention.ms (negative: no bound)."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    max_bytes_between_snapshots: int = 20 << 20
    max_snapshot_interval_ms: int = 3_600_000
    retention: Retention = field(default_factory=Retention)


@dataclass(slots=True)
class _Append:
    """A batch waiting for its write."""

    base_offset: int
    time_ms: int
    data: bytes
    done: asyncio.Future[int]


class FileMetadataLog:
    """See `MetadataLog` for the contract of appends. Life: `replay` to its end, `become_leader`, appends, `close`."""

    def __init__(
        self, directory: Path, config: MetadataLogConfig | None = None, applied: AppliedMetadata | None = None
    ) -> None:
        """`applied` is how far this broker has acted on the log before: one that ends sooner has lost records."""
        self.directory = directory
        self._applied = applied
        self._damaged: list[SnapshotId] = []
        self.config = config or MetadataLogConfig()
        self.snapshots: list[SnapshotId] = []
        self.sync_count = 0
        self._end_offset = 0
        self._epoch = 0
        self._epochs: list[epoch_checkpoint.EpochEntry] = []
        self._bytes_since_snapshot = 0
        self._snapshot_size_bytes = 0
        self._last_snapshot_ms = 0
        self._active_base_offset: int | None = None
        self._descriptor = -1
        self._segment_size_bytes = 0
        self._segment_first_ms = -1
        self._reserved_end = 0
        self._queue: list[_Append] = []
        self._writer: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._is_replayed = False
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="metadata-log")

    @property
    def end_offset(self) -> int:
        """The offset the next record gets."""
        return self._end_offset

    @property
    def epoch(self) -> int:
        """The epoch of the last batch, or of this leader."""
        return self._epoch

    def is_snapshot_due(self, now_ms: int) -> bool:
        """True when the last snapshot is old by metadata.log.max.record.bytes.between.snapshots or by
        metadata.log.max.snapshot.interval.ms, counted from the start of this process at the earliest. True as well when
        the next start would have to replay more than the snapshot itself after it, unless that is cheap.
        """
        worth_bytes = max(_CHEAP_REPLAY_BYTES, self._snapshot_size_bytes)
        if self._bytes_since_snapshot >= min(worth_bytes, self.config.max_bytes_between_snapshots):
            return True
        interval_ms = self.config.max_snapshot_interval_ms
        is_late = interval_ms > 0 and now_ms - self._last_snapshot_ms >= interval_ms
        return is_late and self._bytes_since_snapshot > 0

    # --- start ------------------------------------------------------------------------------------------------------

    def replay(self) -> Iterator[MetadataBatch]:
        """The latest snapshot's batches (their offsets count from 0), then the log's from the snapshot on. In the first
        snapshot, which has the end offset 0, only control records count: the others are for the first leader to append.

        Blocks on reads. A torn tail is cut off at the end. Must be exhausted before anything else is called. The first
        batch of a log without a snapshot is the log's first. MetadataError when something is missing or damaged; then
        nothing was changed.
        """
        self.snapshots = list_snapshots(self.directory)
        latest, content, problems = log_damage.whole_snapshot(self.directory, self.snapshots[::-1])
        self._damaged = self.snapshots[::-1][: len(problems)]
        path = self.directory / latest.file_name
        self._snapshot_size_bytes = sum(map(len, content))
        for data in content:
            batch = batches.decode_batch(data, str(path))
            yield batch if latest.end_offset > 0 else _without_bootstrap(batch)
        self._end_offset, self._epoch = latest
        torn = yield from self._replay_segments(latest, problems)
        for each, problem in zip(self._damaged, problems, strict=True):
            if each.end_offset > self._end_offset or self._end_offset == 0:
                raise MetadataError(f"{problem}. The log does not go as far, so nothing else has what it held")
            logger.error("%s. All of it is in the log, too, from which the metadata were replayed", problem)
        if torn is not None:
            self._cut_tail(*torn)
        self._is_replayed = True

    def _replay_segments(
        self, latest: SnapshotId, problems: Sequence[str]
    ) -> Generator[MetadataBatch, None, tuple[SegmentFile, SegmentReader] | None]:
        """Nothing is changed: the torn tail, if there is one, comes back as the segment and its reader."""
        segments = list_segments(self.directory)
        if segments and segments[0].base_offset > latest.end_offset and problems:
            raise MetadataError(f"{problems[0]}. The log begins at offset {segments[0].base_offset}, so it has not all")
        if segments and segments[0].base_offset > latest.end_offset:
            raise MetadataError(
                f"{self.directory}: the log begins at offset {segments[0].base_offset}, but the latest snapshot ends "
                f"at {latest.end_offset}: a snapshot file is missing; restore the directory from a backup"
            )
        # Segments that end before the snapshot hold nothing that it does not.
        first = max((i for i, each in enumerate(segments) if each.base_offset <= latest.end_offset), default=0)
        self._epochs = self._read_epochs()
        torn: tuple[SegmentFile, SegmentReader] | None = None
        next_offset = segments[first].base_offset if segments else latest.end_offset
        for segment in segments[first:]:
            reader = SegmentReader(segment.path, next_offset)
            if segment.base_offset != next_offset:
                raise MetadataError(f"{segment.path}: offset {next_offset} is due here; a segment is missing before it")
            for data in reader:
                batch = batches.decode_batch(data, str(segment.path))
                self._note_epoch(batch.epoch, batch.base_offset)
                if batch.next_offset <= latest.end_offset:
                    continue
                if batch.base_offset < latest.end_offset:
                    raise MetadataError(f"{segment.path}: the snapshot {latest.file_name} ends within a batch")
                self._bytes_since_snapshot += batch.size_bytes
                yield batch
            next_offset = reader.next_offset
            if reader.problem is not None:
                known_end = self._known_end(latest)
                log_damage.check_torn(reader, segment, segments[segments.index(segment) + 1 :], known_end)
                torn = (segment, reader)
        if segments and next_offset >= latest.end_offset:
            self._active_base_offset = segments[-1].base_offset
        log_damage.check_reaches_snapshot(self.directory, segments, next_offset, latest)
        self._end_offset = max(next_offset, latest.end_offset)
        log_damage.check_end(self.directory, self._end_offset, self._epoch, self._applied)
        return torn

    def _read_epochs(self) -> list[epoch_checkpoint.EpochEntry]:
        try:
            return epoch_checkpoint.read(self.directory / epoch_checkpoint.FILE_NAME)
        except StorageError as error:
            logger.warning("%s; it is made anew from the batches of the metadata log", error)
            return []

    def _known_end(self, latest: SnapshotId) -> int:
        """An offset below which everything was durable, as far as others than the log's last batches tell; 0 when that
        is no more than the snapshot has."""
        # A leader that began an epoch had read all below it.
        known_end = max((start for _, start in self._epochs), default=0)
        if self._applied is not None:
            known_end = max(known_end, self._applied.end_offset)
        return known_end if known_end > latest.end_offset else 0

    def _cut_tail(self, segment: SegmentFile, reader: SegmentReader) -> None:
        """A crash may leave a part of the last write: not durable, so never acknowledged."""
        place = f"{segment.path}: {reader.problem} at position {reader.valid_bytes}"
        size_bytes = segment.path.stat().st_size
        logger.warning("%s; the last %d bytes are cut off", place, size_bytes - reader.valid_bytes)
        descriptor = open_regular(segment.path, os.O_WRONLY)
        try:
            os.ftruncate(descriptor, reader.valid_bytes)
            sync_or_forget(descriptor)
        finally:
            os.close(descriptor)

    def _note_epoch(self, epoch: int, base_offset: int) -> None:
        self._epoch = max(self._epoch, epoch)
        if not self._epochs or self._epochs[-1][0] < epoch:
            self._epochs.append((epoch, base_offset))

    def become_leader(self, node_id: int, kraft_version: int, now_ms: int) -> int:
        """Open the log for appending in a new epoch, as the only voter: the epoch. Blocks on writes."""
        assert self._is_replayed and self._descriptor < 0
        state = self._read_quorum_state()
        if state is not None and state.voters and set(state.voters) != {node_id}:
            raise MetadataError(
                f"{self.directory}: this metadata log belongs to a quorum of voters {sorted(state.voters)}; an "
                "embedded controller can only go on with a log whose one voter is this node"
            )
        self._release_reserve()
        self._epoch = max(self._epoch, state.leader_epoch if state is not None else 0) + 1
        QuorumState(node_id, self._epoch, (node_id,)).write(self.directory, kraft_version)
        self._last_snapshot_ms = now_ms
        self._trim_epochs()
        self._epochs.append((self._epoch, self._end_offset))
        epoch_checkpoint.write(self.directory / epoch_checkpoint.FILE_NAME, self._epochs)
        self._write_topic_id()
        self._open_active_segment()
        for segment in list_segments(self.directory):
            make_index_files(segment.path)
        return self._epoch

    def _read_quorum_state(self) -> QuorumState | None:
        try:
            return QuorumState.read(self.directory)
        except StorageError as error:
            # The one voter elects itself, so the epoch of the last batch is all that it has to go beyond.
            logger.warning("%s; it is made anew from the epoch of the metadata log, %d", error, self._epoch)
            return None

    def _write_topic_id(self) -> None:
        try:
            if partition_metadata.read(self.directory) is not None:
                return
        except StorageError as error:
            logger.warning("%s; it is made anew, because every metadata log has the same id", error)
        partition_metadata.write(self.directory, METADATA_TOPIC_ID)

    def _release_reserve(self) -> None:
        """On a full disk what the last broker had set aside is the room in which this one starts."""
        if self._active_base_offset is None:
            return
        descriptor = open_regular(segment_path(self.directory, self._active_base_offset), os.O_WRONLY)
        try:
            release(descriptor)
        finally:
            os.close(descriptor)

    def _trim_epochs(self) -> None:
        """Forget epochs of records that are no longer, or not any more, in the log."""
        segments = list_segments(self.directory)
        start_offset = segments[0].base_offset if self._active_base_offset is not None else self._end_offset
        kept = [entry for entry in self._epochs if entry[1] < self._end_offset]
        while len(kept) > 1 and kept[1][1] <= start_offset:
            kept.pop(0)
        self._epochs = [(epoch, max(offset, start_offset)) for epoch, offset in kept if self._end_offset > start_offset]

    def _open_active_segment(self) -> None:
        for leftover in self.directory.glob("*.checkpoint.part"):
            leftover.unlink()
        for damaged in self._damaged:
            path = self.directory / damaged.file_name
            path.rename(path.with_name(path.name + ".damaged"))
            self.snapshots.remove(damaged)
        if self._active_base_offset is None:
            # No log, or one that ends before its snapshot (which was copied alone): go on at the snapshot's end.
            for segment in list_segments(self.directory):
                segment.path.unlink()
            self._open_segment(self._end_offset)
        else:
            self._open_segment(self._active_base_offset)

    def _open_segment(self, base_offset: int) -> None:
        """Make the segment the one appended to. Files that Kafka derived from an earlier state of it must go."""
        path = segment_path(self.directory, base_offset)
        path.with_suffix(".txnindex").unlink(missing_ok=True)
        descriptor = open_regular(path, os.O_WRONLY | os.O_CREAT)
        make_index_files(path, emptied=True)
        fsync_directory(self.directory)
        self._close_segment()
        self._descriptor = descriptor
        self._segment_size_bytes = os.fstat(descriptor).st_size
        self._segment_first_ms = first_timestamp(path)
        self._reserved_end = 0
        self._reserve()

    def _close_segment(self, *, keep_reserve: bool = False) -> None:
        if self._descriptor >= 0:
            if not keep_reserve:
                release(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _reserve(self) -> None:
        """The broker stops when this log cannot be written, so a disk that partitions have filled must not do that."""
        if self._reserved_end - self._segment_size_bytes < RESERVE_BYTES[0] // 2:
            got_bytes = reserve(self._descriptor, self._segment_size_bytes)
            self._reserved_end = max(self._reserved_end, self._segment_size_bytes + got_bytes)

    # --- append -----------------------------------------------------------------------------------------------------

    def append(self, records: Sequence[VersionedRecord], time_ms: int) -> asyncio.Future[int]:
        """See `MetadataLog.append`."""
        return run_at_once(self.append_steps(records, time_ms))

    def append_steps(
        self, records: Sequence[VersionedRecord], time_ms: int
    ) -> Generator[None, None, asyncio.Future[int]]:
        """See `MetadataLog.append_steps`."""
        base_offset = self._end_offset
        data = yield from batches.encode_steps(base_offset, self._epoch, time_ms, records)
        assert self._end_offset == base_offset, "something else was appended meanwhile"
        return self._enqueue(data, len(records), time_ms)

    def append_control(self, records: Sequence[ControlRecord], time_ms: int) -> asyncio.Future[int]:
        """See `MetadataLog.append_control`."""
        data = batches.encode_control_batch(self._end_offset, self._epoch, time_ms, records)
        return self._enqueue(data, len(records), time_ms)

    def _enqueue(self, data: bytes, record_count: int, time_ms: int) -> asyncio.Future[int]:
        assert self._descriptor >= 0, "the metadata log is not open for appending"
        if self._failure is not None:
            raise MetadataLogError(f"{self.directory}: the log failed earlier: {self._failure}") from self._failure
        loop = asyncio.get_running_loop()
        append = _Append(self._end_offset, time_ms, data, loop.create_future())
        self._end_offset += record_count
        self._queue.append(append)
        if self._writer is None:
            self._writer = loop.create_task(self._drain(), name="metadata log writer")
        return append.done

    async def _drain(self) -> None:
        """Write until nothing is queued. Whatever gathers during one write and sync goes with the next."""
        loop = asyncio.get_running_loop()
        while self._queue:
            group, self._queue = self._queue, []
            try:
                await loop.run_in_executor(self._executor, self._write, group)
            except Exception as error:  # noqa: BLE001 - the waiters get it, whatever it is
                self._fail(error, group)
                break
            self._bytes_since_snapshot += sum(len(append.data) for append in group)
            for append in group:
                if not append.done.done():
                    append.done.set_result(append.base_offset)
        self._writer = None

    def _fail(self, error: Exception, group: list[_Append]) -> None:
        logger.error("%s: the metadata log cannot be written: %s", self.directory, error)
        self._failure = error
        failed, self._queue = [*group, *self._queue], []
        for append in failed:
            if not append.done.done():
                reason = MetadataLogError(f"{self.directory}: the metadata log cannot be written: {error}")
                reason.__cause__ = error
                append.done.set_exception(reason)

    def _write(self, group: list[_Append]) -> None:
        """On the log's thread: one write and one sync for the group, more only where a segment is full."""
        pending: list[bytes] = []
        pending_bytes = 0
        for append in group:
            if self._must_roll(append, self._segment_size_bytes + pending_bytes):
                self._write_and_sync(pending)
                pending, pending_bytes = [], 0
                self._open_segment(append.base_offset)
            if self._segment_first_ms < 0:
                self._segment_first_ms = append.time_ms
            pending.append(append.data)
            pending_bytes += len(append.data)
        self._write_and_sync(pending)

    def _must_roll(self, append: _Append, size_bytes: int) -> bool:
        if size_bytes == 0:
            return False
        is_late = self._segment_first_ms >= 0 and append.time_ms - self._segment_first_ms > self.config.segment_ms
        return is_late or size_bytes + len(append.data) > self.config.segment_bytes

    def _write_and_sync(self, chunks: list[bytes]) -> None:
        if not chunks:
            return
        view = memoryview(b"".join(chunks))
        position = self._segment_size_bytes
        while view:
            written_bytes = os.pwrite(self._descriptor, view, position)
            position += written_bytes
            view = view[written_bytes:]
        sync_or_forget(self._descriptor)
        self.sync_count += 1
        self._segment_size_bytes = position
        self._reserve()

    # --- snapshots --------------------------------------------------------------------------------------------------

    async def write_snapshot(self, image: MetadataImage, now_ms: int) -> None:
        """See `MetadataLog.write_snapshot`. Two at once are not allowed."""
        self._bytes_since_snapshot = 0
        self._last_snapshot_ms = now_ms
        snapshot_id, size_bytes = await asyncio.to_thread(snapshot.write_image, self.directory, image, now_ms)
        self._snapshot_size_bytes = size_bytes
        logger.info("metadata snapshot %s written, %d bytes", snapshot_id.file_name, size_bytes)
        await self.apply_retention(now_ms)

    async def apply_retention(self, now_ms: int) -> None:
        """See `MetadataLog.apply_retention`. Not while a snapshot is written."""
        await asyncio.to_thread(clean, self.directory, self.config.retention, now_ms)
        self.snapshots = await asyncio.to_thread(list_snapshots, self.directory)

    async def close(self) -> None:
        """Wait for the appends under way and close the files; harmless when repeated."""
        if self._writer is not None:
            await asyncio.wait([self._writer])
        self._executor.shutdown()
        # The next start needs it, if others have filled the disk by then.
        self._close_segment(keep_reserve=True)


def _without_bootstrap(batch: MetadataBatch) -> MetadataBatch:
    """A batch of the first snapshot without the records that a new cluster begins with (KIP-1170)."""
    return batch.replace(records=tuple(each for each in batch.records if isinstance(each, ControlRecord)))
