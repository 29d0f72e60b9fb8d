"""Checks one partition's directory: every batch of every segment, and every file beside them against the batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pybroker.native import NativeError, walk
from pybroker.native.walk import SegmentWalk, WalkRow, WalkTotals
from pybroker.storage.offline import binary_files, text_files, transactions
from pybroker.storage.offline.checks.check_epochs import EpochRun, check_epochs
from pybroker.storage.offline.checks.check_indexes import Indexes
from pybroker.storage.offline.checks.findings import INFO, WARNING, Report, damage_told, unreadable_told
from pybroker.storage.offline.checks.segment_findings import tell_row
from pybroker.storage.offline.layout import PartitionFiles, Segment
from pybroker.storage.offline.partition_state import PartitionContext, PartitionState
from pybroker.storage.offline.small_files import read_whole
from pybroker.storage.offline.transactions import Aborted, TransactionReplay

METADATA_TOPIC_ID = bytes(15) + b"\1"
_MAX_RELATIVE_OFFSET = (1 << 31) - 1
_ALWAYS = walk.HEADER | walk.BACK | walk.EPOCH | walk.CONTROL | walk.TRANSACTIONAL | walk.OLD_MAGIC | walk.RECORDS
_DAMAGE = walk.CRC | walk.NOT_A_BATCH | walk.INNER | walk.ZEROS | walk.UNREADABLE
_ASIDE_TEXT = {
    "deleted": (INFO, "a file that was being deleted; the next start removes it"),
    "cleaned": (INFO, "a file that the cleaner had not finished; the next start removes it"),
    "swap": (WARNING, "a file that the cleaner had finished and not put in its place; the next start does that"),
    "damaged": (WARNING, "bytes that a broker took off the log because they are no batches; no broker reads them"),
    "tmp": (INFO, "a file that was being written"),
    "part": (INFO, "a file that was being written"),
}


@dataclass(slots=True)
class _Walked:
    """The facts that the segments told, in order."""

    runs: list[EpochRun] = field(default_factory=list)
    replay: TransactionReplay = field(default_factory=TransactionReplay)
    is_damaged: bool = False


def check_partition(files: PartitionFiles, context: PartitionContext, report: Report, *, deep: bool) -> PartitionState:
    """Read everything and tell `report`. OSError when a directory cannot be read."""
    state = PartitionState(files)
    _check_names(files, report)
    walked = _Walked(replay=TransactionReplay(open_at_start(files)))
    walk_over = SegmentWalk()
    for number, segment in enumerate(files.segments):
        if segment.log is None:
            _tell_orphans(segment, report)
            continue
        is_last = number == len(files.segments) - 1
        if not _check_segment(walk_over, files, segment, is_last, context, walked, report, deep):
            state.is_damaged = True
    totals = walk_over.totals()
    state.totals = totals
    state.is_damaged = state.is_damaged or walked.is_damaged
    if files.logs:
        state.first_offset = files.logs[0][0]
        state.end_offset = max(totals.end_offset, files.logs[-1][0])
        state.last_epoch = walked.runs[-1].epoch if walked.runs else -1
    with unreadable_told(files.path, report):
        _check_epoch_file(files, context, state, walked, report)
    _check_snapshots(files, context, state, report)
    if files.mark is not None:
        with unreadable_told(files.mark, report):
            _check_mark(files, files.mark, context, report)
    if files.metadata is not None:
        state.topic_id = _read_topic_id(files.metadata, report)
        if files.is_metadata_log and state.topic_id not in (None, METADATA_TOPIC_ID):
            report.error("topic-id", files.metadata, "the metadata log has another topic id in every Apache Kafka")
    return state


def _check_names(files: PartitionFiles, report: Report) -> None:
    for why, path in files.aside:
        severity, text = _ASIDE_TEXT[why]
        report.add(severity, f"left-over-{why}", path, text)
    for path in files.unknown:
        report.warning("unknown-file", path, "no broker names a file so")


def _tell_orphans(segment: Segment, report: Report) -> None:
    for path in (segment.index, segment.time_index, segment.transaction_index):
        if path is not None:
            report.error("orphan-index", path, "its .log file is missing")


def open_at_start(files: PartitionFiles) -> list[tuple[int, int]]:
    """Transactions that the producer snapshot at the first segment's base offset knows to be open."""
    for offset, path in files.producer_snapshots:
        if files.logs and offset == files.logs[0][0]:
            try:
                snapshot = binary_files.read_producer_snapshot(path)
            except OSError:
                return []
            opened = ((each.producer_id, each.transaction_first_offset) for each in snapshot.entries)
            return [] if snapshot.problem else [each for each in opened if each[1] >= 0]
    return []


def _check_segment(
    walk_over: SegmentWalk,
    files: PartitionFiles,
    segment: Segment,
    is_last: bool,
    context: PartitionContext,
    walked: _Walked,
    report: Report,
    deep: bool,
) -> bool:
    """Whether the log could be read to its end."""
    assert segment.log is not None
    cleaned = context.cleaned_below is None or segment.base_offset < context.cleaned_below
    is_clean = context.closed_cleanly
    indexes = Indexes.read(segment, is_last=is_last, is_clean=is_clean, may_miss=files.is_metadata_log, report=report)
    # In what was cleaned batches are missing for good reasons, and with them offsets and sequences.
    wanted = _ALWAYS if cleaned else _ALWAYS | walk.GAP | walk.SEQUENCE
    aborted_before = len(walked.replay.aborted)
    rows = walk_over.rows(
        segment.log,
        segment.base_offset,
        wanted=wanted,
        index=indexes.offsets,
        time_index=indexes.times,
        deep_every=int(deep),
    )
    try:
        for row in rows:
            # A row that is there for one thing tells of all it has.
            asked = row._replace(flags=row.flags & (wanted | _DAMAGE))
            if asked.flags & (walk.INDEX | walk.TIME):
                indexes.take(asked, report)
            elif _follow(asked, walked):
                tell_row(report, segment, asked, is_last_segment=is_last, is_clean=is_clean)
    except NativeError as error:
        report.error("unreadable", segment.log, str(error))
        return False
    indexes.finish(report)
    report.saw(segment.log)
    is_first = segment is files.segments[0]
    _check_ends(segment, walk_over.totals(), indexes.times, is_first, is_last, cleaned, report)
    _check_transaction_index(
        files, segment, walked.replay.aborted[aborted_before:], cleaned or walked.is_damaged, report
    )
    return True


def _follow(row: WalkRow, walked: _Walked) -> bool:
    """Take the row in; whether there may be something to tell of it."""
    flags = row.flags
    if flags & (walk.CRC | walk.GARBAGE):
        walked.is_damaged = True
        return True
    if flags & walk.EPOCH:
        walked.runs.append(EpochRun(row.leader_epoch, row.base_offset, row.expected_offset, row.position))
    if flags & (walk.CONTROL | walk.TRANSACTIONAL):
        walked.replay.see(row)
    return bool(flags & ~(walk.CONTROL | walk.TRANSACTIONAL | walk.EPOCH))


def _check_ends(
    segment: Segment, totals: WalkTotals, times: bytes, is_first: bool, is_last: bool, cleaned: bool, report: Report
) -> None:
    """The names of files against what is in them."""
    assert segment.log is not None
    first, end = totals.file_first_offset, totals.end_offset
    if 0 <= first < segment.base_offset:
        text = f"its first batch has offset {first}, its name says {segment.base_offset}"
        report.error("base-offset", segment.log, text, position=0, offset=first)
    if first > segment.base_offset and is_first and not cleaned:
        # In later segments the walk itself tells of this gap.
        text = f"offsets {segment.base_offset} to {first - 1} are missing, and no cleaner has been here"
        report.warning("offset-gap", segment.log, text, position=0, offset=segment.base_offset)
    if first >= 0 and end - 1 - segment.base_offset > _MAX_RELATIVE_OFFSET:
        text = f"its last offset {end - 1} is too far from its base offset for the indexes"
        report.error("offset-range", segment.log, text, offset=end - 1)
    largest = totals.file_max_timestamp_ms
    if is_last or largest < 0 or segment.time_index is None:
        return
    entries = list(binary_files.time_entries(times, segment.base_offset))
    if not entries or entries[-1][0] < largest:
        text = f"it does not reach the segment's largest timestamp {largest}"
        report.error("time-index-short", segment.time_index, text, position=len(times))


def _check_transaction_index(
    files: PartitionFiles, segment: Segment, aborted: list[Aborted], incomplete: bool, report: Report
) -> None:
    path = segment.transaction_index
    data = b""
    if path is not None:
        try:
            data = read_whole(path)
        except OSError as error:
            report.error("unreadable", path, error.strerror or str(error))
            return
        report.saw(path)
        if rest := len(data) % binary_files.TRANSACTION_ENTRY.size:
            report.error("index-size", path, f"{rest} bytes at the end are no whole entry", position=len(data) - rest)
    where = path or segment.log
    assert where is not None
    entries = binary_files.transaction_entries(data)
    for number, text in transactions.compare(entries, aborted, files.logs[0][0], not incomplete):
        position = number * binary_files.TRANSACTION_ENTRY.size
        report.error("transaction-index", where, f"entry {number}: {text}", position=position)


def _check_epoch_file(
    files: PartitionFiles, context: PartitionContext, state: PartitionState, walked: _Walked, report: Report
) -> None:
    entries = None
    if files.leader_epochs is not None:
        try:
            entries = text_files.leader_epochs(files.leader_epochs)
            report.saw(files.leader_epochs)
        except text_files.Damage as error:
            report.error("malformed", files.leader_epochs, str(error), position=error.position)
    elif walked.runs and walked.runs[-1].epoch >= 0 and not context.alone:
        epoch = walked.runs[-1].epoch
        text = f"there is no leader-epoch-checkpoint, but batches up to epoch {epoch}"
        report.add(WARNING if context.closed_cleanly else INFO, "file-missing", files.path, text)
    check_epochs(files, entries, walked.runs, state, context, walked.is_damaged, report)


def _check_snapshots(files: PartitionFiles, context: PartitionContext, state: PartitionState, report: Report) -> None:
    for offset, path in files.producer_snapshots:
        with unreadable_told(path, report):
            _check_snapshot(offset, path, context, state, report)


def _check_snapshot(offset: int, path: Path, context: PartitionContext, state: PartitionState, report: Report) -> None:
    snapshot = binary_files.read_producer_snapshot(path)
    report.saw(path)
    if snapshot.problem:
        report.error("snapshot", path, snapshot.problem, position=0)
        return
    if offset > state.end_offset and not state.is_damaged and not context.alone:
        report.error("snapshot", path, f"it is of offset {offset}, the log ends at {state.end_offset}", offset=offset)
    for entry in snapshot.entries:
        if entry.last_offset >= offset or entry.producer_id < 0 or entry.transaction_first_offset >= offset:
            text = f"producer {entry.producer_id} has last offset {entry.last_offset}, beyond the snapshot's {offset}"
            report.error("snapshot", path, text, offset=entry.last_offset)


def _check_mark(files: PartitionFiles, path: Path, context: PartitionContext, report: Report) -> None:
    """The next start passes over one that does not fit, so that is no error."""
    mark = binary_files.read_mark(path)
    report.saw(path)
    if isinstance(mark, str):
        report.warning("mark", path, mark)
        return
    if context.alone:
        return
    log = dict(files.logs).get(mark.base_offset)
    if log is None:
        report.warning("mark", path, f"it is in a segment of base offset {mark.base_offset}, which is not here")
    elif log.stat().st_size < mark.position:
        text = f"it is at byte {mark.position}, {log.name} has {log.stat().st_size} bytes"
        report.warning("mark", path, text, position=mark.position)
    if mark.offset not in dict(files.producer_snapshots):
        report.warning("mark", path, f"there is no producer snapshot of its offset {mark.offset}", offset=mark.offset)


def _read_topic_id(path: Path, report: Report) -> bytes | None:
    topic_id = None
    with damage_told(path, report):
        topic_id = text_files.partition_metadata(path)
        report.saw(path)
    return topic_id
