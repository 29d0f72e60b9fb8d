"""`NativePartition`: one partition's log in the data plane.

Its owner sees to it that no call is under way when `close` ends the handle. Calls marked "Blocking" belong on a worker
thread. All raise `NativeError`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pybroker.native.bindings import check, ffi, lib, new_failure
from pybroker.native.broker import NativeBroker
from pybroker.native.errors import CloseUnfinished, NativeError, SyncFailed
from pybroker.values import Value

if TYPE_CHECKING:
    from pybroker.native.fetcher import NativeFetcher

DEFAULT_LEVEL = -(2**31)
"""`compression_level` for the codec's own default."""

READ_UNCOMMITTED: int = lib.PB_READ_UNCOMMITTED
READ_COMMITTED: int = lib.PB_READ_COMMITTED

DURABILITY_NONE: int = lib.PB_DURABILITY_NONE
DURABILITY_INTERVAL: int = lib.PB_DURABILITY_INTERVAL
DURABILITY_ACKS: int = lib.PB_DURABILITY_ACKS

TRANSACTIONS_REFUSED: int = lib.PB_TRANSACTIONAL_REFUSED
TRANSACTIONS_TRUSTED: int = lib.PB_TRANSACTIONAL_TRUSTED
TRANSACTIONS_VERIFIED: int = lib.PB_TRANSACTIONAL_VERIFIED
"""`transactional`: whether transactional batches are taken, and only after a VERIFY event."""

_KAFKA_CODE_BASE = 100_000
_SEGMENTS_GUESS = 16
_PRODUCERS_GUESS = 64
_FOLLOWERS_GUESS = 8
_new_uncleared = ffi.new_allocator(should_clear_after_alloc=False)


class PartitionConfig(Value):
    """Settings of one log and of what may be appended; the fields of pb_partition_config."""

    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    producer_expiration_ms: int
    flush_messages: int
    flush_ms: int
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    max_message_bytes: int
    min_insync_replicas: int
    timestamp_type: int
    compression: int
    compression_level: int
    compact: int
    preallocate: int
    internal: int
    transactional: int
    durability: int
    leader_throttled: int = 0
    """This broker is one of `leader.replication.throttled.replicas`."""
    follower_throttled: int = 0
    """This broker is one of `follower.replication.throttled.replicas`."""
    reserve_bytes: int = 0
    """Blocks that are taken ahead of need leave so much of the disk free."""
    max_decompressed_message_bytes: int = 0
    """The limit of one record of a compressed batch; 0: none."""


class PartitionRecovery(NamedTuple):
    """The findings and actions of opening. `old_magic_offset` is the first batch older than magic 2, -1 when there is
    none.

    If `hole_count` is above 0, `hole_…` tell of damage that stays in the log and cannot be read. If `kept_file_count`
    is, `cut_…` and `kept_…` tell of intact batches that were taken off the log into files beside it. Segments are named
    by their base offsets. The index files of `unsound_index_count` segments were missing or wrong, and are built again.
    All gaps that the log has between segments lie below `gap_offset`. `largest_producer_id` is that of the producers
    the log remembers, -1 without any; ids from 2^62 on, which no controller gave out, do not count.
    """

    scanned_bytes: int
    truncated_bytes: int
    segment_count: int
    unsound_index_count: int
    unsound_index_segment: int
    old_magic_offset: int
    gap_offset: int = 0
    largest_producer_id: int = -1
    hole_segment: int = 0
    hole_position: int = 0
    hole_offset: int = 0
    hole_end_offset: int = 0
    cut_segment: int = 0
    cut_position: int = 0
    cut_offset: int = 0
    cut_end_offset: int = 0
    kept_bytes: int = 0
    kept_batch_count: int = 0
    kept_file_count: int = 0
    hole_count: int = 0


class ScrubStep(NamedTuple):
    """The result of one step of the scrub. Positions are in the .log for SCRUB_BATCHES, else in the index's file.

    `found_offset` up to below `found_end_offset` cannot be read from now on. `done`: nothing is left to read.
    """

    finding: int
    known: int
    mended: int
    done: int
    read_bytes: int
    found_segment: int
    found_position: int
    found_end_position: int
    found_offset: int
    found_end_offset: int


SCRUB_NOTHING: int = lib.PB_SCRUB_KIND_NOTHING
SCRUB_BATCHES: int = lib.PB_SCRUB_KIND_BATCHES
SCRUB_OFFSET_INDEX: int = lib.PB_SCRUB_KIND_OFFSET_INDEX
SCRUB_TIME_INDEX: int = lib.PB_SCRUB_KIND_TIME_INDEX
SCRUB_TRANSACTION_INDEX: int = lib.PB_SCRUB_KIND_TRANSACTION_INDEX
_SCRUB_STEP_FIELDS = ScrubStep._fields


class ScrubPass:
    """Where a pass over one log is. New: it begins. It reads the sealed segments, or with `opened` what the active
    segment had when the log was opened, as far as the opening did not check it."""

    __slots__ = ("struct",)

    def __init__(self, *, opened: bool = False) -> None:
        self.struct: Any = ffi.new("pb_partition_scrub_pass *")
        self.struct.opened = opened


NEVER_CUT = 2**63 - 1


class PartitionState(NamedTuple):
    """Ends and sizes, read together."""

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    durable_offset: int
    recovery_point: int
    size_bytes: int
    leader_epoch: int
    appended_bytes: int
    appended_records: int
    fetched_bytes: int
    #: The possible loss by a power cut now: bytes not known to be durable, and the age of the oldest of them.
    exposed_bytes: int = 0
    exposed_ms: int = 0
    #: The least end it was cut to since it was opened or last cleaned; NEVER_CUT.
    cut_offset: int = NEVER_CUT
    #: As long as it stays what it is, what was written does: no cut has begun or ended.
    cut_count: int = 0
    #: Another one after each cut, across restarts too; 0: it was never cut.
    cut_generation: int = 0


class PartitionPosition(NamedTuple):
    """An offset with its timestamp and leader epoch; offset -1 when there is none."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class Segment(NamedTuple):
    """One segment. `end_offset` is where the next one begins. `file_bytes` are in its file and stay as they are, unless
    the log is cut, or `generation` changes because the cleaner has put another file in its place."""

    base_offset: int
    end_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    modified_ms: int
    file_bytes: int = 0
    generation: int = 0


class Follower(NamedTuple):
    """A follower as the leader of its partition knows it. `caught_up_ms` ago it had all there was then; 0: it has all,
    NEVER_CAUGHT_UP: it never had. -1 stands for what is not known yet."""

    replica_id: int
    in_isr: int
    log_end_offset: int
    log_start_offset: int
    caught_up_ms: int
    broker_epoch: int


NEVER_CAUGHT_UP = 2**63 - 1


class ProducerState(NamedTuple):
    """One idempotent producer as a partition knows it."""

    producer_id: int
    last_timestamp_ms: int
    transaction_start_offset: int
    last_sequence: int
    coordinator_epoch: int
    producer_epoch: int


class CleanOptions(Value):
    """One pass of the log cleaner; the fields of pb_clean_options."""

    first_dirty_offset: int
    upper_offset: int
    now_ms: int
    delete_retention_ms: int
    map_bytes: int
    io_buffer_bytes: int
    load_factor_percent: int
    compression: int
    compression_level: int


class CleanResult(NamedTuple):
    """The result of a pass. `end_offset` is the next pass's first dirty offset; `map_full`: another pass is worth
    while."""

    end_offset: int
    map_read_bytes: int
    map_read_records: int
    map_entries: int
    read_bytes: int
    read_records: int
    written_bytes: int
    kept_records: int
    invalid_records: int
    removed_bytes: int
    source_segments: int
    cleaned_segments: int
    elapsed_ns: int
    map_full: int


class CleanProgress(NamedTuple):
    """How far the pass under way has come in its phase (CLEAN_IDLE, CLEAN_MAPPING or CLEAN_REWRITING)."""

    phase: int
    done_bytes: int
    total_bytes: int
    map_entries: int


CLEAN_IDLE: int = lib.PB_CLEAN_IDLE
CLEAN_MAPPING: int = lib.PB_CLEAN_MAPPING
CLEAN_REWRITING: int = lib.PB_CLEAN_REWRITING

_RECOVERY = struct.Struct("<qqiiqqqq10qii")
_STATE = struct.Struct("<7qi4x8q")
_SEGMENT = struct.Struct("<7q")
_PRODUCER = struct.Struct("<3q3i4x")
_FOLLOWER = struct.Struct("<2i4q")
_CLEAN_RESULT = struct.Struct("<13qi4x")
_CLEAN_PROGRESS = struct.Struct("<4q")
_LAYOUTS = {
    "pb_clean_result": _CLEAN_RESULT,
    "pb_clean_progress": _CLEAN_PROGRESS,
    "pb_partition_recovery": _RECOVERY,
    "pb_partition_state": _STATE,
    "pb_partition_segment": _SEGMENT,
    "pb_partition_producer": _PRODUCER,
    "pb_partition_follower": _FOLLOWER,
}
for _name, _layout in _LAYOUTS.items():
    if ffi.sizeof(_name) != _layout.size:
        raise ImportError(f"{_name} has {ffi.sizeof(_name)} bytes, this package knows {_layout.size}")


class NativePartition:
    """An open log. `recovery` says what opening did."""

    __slots__ = ("handle", "recovery")

    def __init__(
        self,
        broker: NativeBroker,
        topic: str,
        topic_id: bytes,
        partition: int,
        directory: str,
        config: PartitionConfig,
        *,
        leader_epoch: int,
        clean: bool,
        recovery_point: int,
        log_start_offset: int,
        tag: int,
        high_watermark: int = -1,
        gap_offset: int = -1,
    ) -> None:
        """Open `directory`, made when missing, and recover what an unclean stop left; `gap_offset` says below which
        offset its cleaner may have made gaps, -1: anywhere. Blocking.

        The high watermark is `high_watermark` at first, as far as the log goes; -1: it is where the log ends.
        """
        assert len(topic_id) == 16
        kept = [ffi.new("char[]", topic.encode()), ffi.new("char[]", directory.encode()), ffi.from_buffer(topic_id)]
        options = ffi.new("pb_partition_options *")
        options.topic, options.directory, options.topic_id = kept
        options.partition, options.leader_epoch, options.clean = partition, leader_epoch, clean
        options.recovery_point, options.log_start_offset, options.tag = recovery_point, log_start_offset, tag
        options.high_watermark = high_watermark
        options.gap_offset = gap_offset
        options.config = config.as_dict()
        out, recovery, failure = ffi.new("pb_partition **"), ffi.new("pb_partition_recovery *"), new_failure()
        check(lib.pb_partition_open(broker.handle, options, out, recovery, failure), failure)
        self.handle: Any = out[0]
        self.recovery = PartitionRecovery._make(_RECOVERY.unpack(ffi.buffer(recovery)))

    def lead(self, leader_epoch: int) -> None:
        """Serve clients as leader of that epoch and the only replica."""
        check(lib.pb_partition_lead(self.handle, leader_epoch))

    def lead_replicated(
        self,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        joining: Sequence[int] = (),
    ) -> None:
        """Serve clients as leader of several replicas, or of the same epoch with another ISR or other replicas.

        All are node ids; this broker is one of `replicas` and of `isr`, which is the controller's. `joining` are in
        sync as well, proposed to the controller and not answered yet. NativeError: INELIGIBLE_REPLICA when one of them
        lacks something below the high watermark; nothing has changed, and it will be told of again. FENCED_LEADER_EPOCH
        and INVALID_UPDATE_VERSION when a later epoch is known.
        """
        kept = [ffi.new("int32_t[]", list(each)) for each in (replicas, isr, joining)]
        leadership = ffi.new("pb_partition_leadership *")
        leadership.leader_epoch, leadership.partition_epoch = leader_epoch, partition_epoch
        leadership.replicas, leadership.isr, leadership.joining = kept
        leadership.replica_count, leadership.isr_count, leadership.joining_count = map(len, (replicas, isr, joining))
        check(lib.pb_partition_lead_replicated(self.handle, leadership))

    def followers(self) -> list[Follower]:
        """The leader's knowledge of its followers; empty without `lead_replicated`."""
        capacity = _FOLLOWERS_GUESS
        while True:
            out = ffi.new("pb_partition_follower[]", capacity)
            count = lib.pb_partition_followers(self.handle, out, capacity)
            if count < 0:
                raise NativeError(count)
            if count <= capacity:
                data = ffi.buffer(out, count * _FOLLOWER.size)
                return [Follower._make(each) for each in _FOLLOWER.iter_unpack(data)]
            capacity = count

    def follow(self, fetcher: NativeFetcher, leader_epoch: int) -> None:
        """Follow the fetcher's leader at that epoch, from led, idle or following whomever. Blocking."""
        check(lib.pb_partition_follow(self.handle, fetcher.handle, leader_epoch))

    def unfollow(self) -> None:
        """When it returns, nothing of a leader's is appended or cut any more. Blocking."""
        lib.pb_partition_unfollow(self.handle)

    def resign(self, error: int) -> None:
        """Answer clients with that Kafka error code from now on (0: unknown partition). Blocking."""
        check(lib.pb_partition_resign(self.handle, error))

    def settle(self) -> None:
        """After `resign`: write all that a clean `close` does, but sync nothing. `sync_log_dir` of the broker, `close`
        with `clean` if that succeeded, and `sync_log_dir` again do what is missing. Blocking."""
        failure = new_failure()
        _check_close(lib.pb_partition_settle(self.handle, failure), failure)

    def close(self, *, clean: bool) -> None:
        """End the handle, after `resign`; `clean` syncs everything and writes a producer snapshot. CloseUnfinished when
        a failure has cost no record. Blocking."""
        failure = new_failure()
        handle, self.handle = self.handle, ffi.NULL
        _check_close(lib.pb_partition_close(handle, clean, failure), failure)

    def configure(self, config: PartitionConfig) -> None:
        """Replace the settings."""
        check(lib.pb_partition_configure(self.handle, ffi.new("pb_partition_config *", config.as_dict())))

    def repair(self) -> None:
        """After a failed write: cut the log to what was written whole and accept appends again. Blocking."""
        failure = new_failure()
        check(lib.pb_partition_repair(self.handle, failure), failure)

    def append(self, batch: bytes, ticket: int) -> None:
        """Append one whole batch; an APPENDED event with the ticket tells the outcome, unless this raises."""
        check(lib.pb_partition_append(self.handle, batch, len(batch), ticket))

    def append_marker(self, batch: bytes, transaction_version: int, ticket: int) -> None:
        """Append a transaction marker; else as `append`."""
        check(lib.pb_partition_append_marker(self.handle, batch, len(batch), transaction_version, ticket))

    def read(self, offset: int, max_bytes: int, *, to_log_end: bool = False) -> bytes:
        """Whole batches from `offset`, below the high watermark, or all there are; b"" when there are none, or the log
        was cut under the read. E2BIG: the first one is larger than `max_bytes`. Blocking."""
        out = _new_uncleared("uint8_t[]", max_bytes)
        limit = lib.PB_READ_TO_LOG_END if to_log_end else lib.PB_READ_TO_HIGH_WATERMARK
        length = lib.pb_partition_read(self.handle, offset, limit, out, max_bytes)
        if length < 0:
            raise NativeError(-(length + _KAFKA_CODE_BASE) if length <= -_KAFKA_CODE_BASE else length)
        return bytes(ffi.buffer(out, length))

    def list_offset(self, timestamp_ms: int, isolation: int) -> PartitionPosition:
        """First record at or after a timestamp; -1 latest, -2 earliest, -3 largest timestamp. Blocking but for -1 and
        -2."""
        out = ffi.new("pb_partition_position *")
        check(lib.pb_partition_list_offset(self.handle, timestamp_ms, isolation, out))
        return PartitionPosition(out.offset, out.timestamp_ms, out.leader_epoch)

    def epoch_end(self, leader_epoch: int) -> tuple[int, int]:
        """(largest epoch that is at most `leader_epoch`, its end offset); (-1, -1) when unknown."""
        epoch, end_offset = ffi.new("int32_t *"), ffi.new("int64_t *")
        check(lib.pb_partition_epoch_end(self.handle, leader_epoch, epoch, end_offset))
        return int(epoch[0]), int(end_offset[0])

    def sync(self) -> None:
        """Sync what is written; the durable offset moves. SyncFailed. Blocking."""
        failure = new_failure()
        try:
            check(lib.pb_partition_sync(self.handle, failure), failure)
        except NativeError as error:
            raise SyncFailed(error.code, error.text) from None

    def mark(self) -> None:
        """Sync what is written and all that is derived from it, so that after an unclean stop what lies below need not
        be read. A failed sync has its event besides. Blocking."""
        failure = new_failure()
        check(lib.pb_partition_mark(self.handle, failure), failure)

    def upkeep(self, now_ms: int, purge_before_ms: int) -> None:
        """Write out index buffers, expire producers, unlink files taken off before `purge_before_ms`. Blocking."""
        failure = new_failure()
        check(lib.pb_partition_upkeep(self.handle, now_ms, purge_before_ms, failure), failure)

    def scrub(self, scrub_pass: ScrubPass, max_bytes: int) -> ScrubStep:
        """Check about `max_bytes` more of the sealed segments, or up to the first finding. Blocking."""
        failure = new_failure()
        check(lib.pb_partition_scrub(self.handle, max_bytes, scrub_pass.struct, failure), failure)
        return ScrubStep(*(getattr(scrub_pass.struct, name) for name in _SCRUB_STEP_FIELDS))

    def segments(self) -> list[Segment]:
        """Oldest first; the last is the active one."""
        capacity = _SEGMENTS_GUESS
        while True:
            out = ffi.new("pb_partition_segment[]", capacity)
            count = lib.pb_partition_segments(self.handle, out, capacity)
            if count < 0:
                raise NativeError(count)
            if count <= capacity:
                return [Segment._make(each) for each in _SEGMENT.iter_unpack(ffi.buffer(out, count * _SEGMENT.size))]
            capacity = count + _SEGMENTS_GUESS

    def delete_before(self, offset: int) -> int:
        """Move the log start offset up to `offset`; how many segments were taken off. Blocking."""
        deleted, failure = ffi.new("int32_t *"), new_failure()
        check(lib.pb_partition_delete_before(self.handle, offset, deleted, failure), failure)
        return int(deleted[0])

    def roll(self) -> None:
        """Start a new segment. Blocking."""
        failure = new_failure()
        check(lib.pb_partition_roll(self.handle, failure), failure)

    def truncate(self, offset: int) -> None:
        """Cut the log so that `offset` is its end, while it is not served. Blocking."""
        failure = new_failure()
        check(lib.pb_partition_truncate(self.handle, offset, failure), failure)

    def check_files(self) -> None:
        """Look whether all files are there and as long as they should be; ESTALE names the first that is not. Where
        something else has cut one, its readers are told of what is missing, and the log goes on: in a new segment if it
        was the active one. Blocking."""
        failure = new_failure()
        check(lib.pb_partition_check_files(self.handle, failure), failure)

    def hold(self) -> None:
        """Hold writes until `unhold`, while appends gather and reads go on. EBUSY: again later. Blocking."""
        failure = new_failure()
        check(lib.pb_partition_hold(self.handle, failure), failure)

    def relocate(self, directory: str, cut_count: int, *, for_good: bool) -> None:
        """While held: go on in `directory`, which has synced copies of all files, made since the state had that
        `cut_count`. `go_back` undoes it unless it is `for_good`. EBUSY: again later; ESTALE: the log was cut since, or
        a copy is not as long as the file. Blocking."""
        failure = new_failure()
        path = ffi.new("char[]", directory.encode())
        check(lib.pb_partition_relocate(self.handle, path, cut_count, for_good, failure), failure)

    def go_back(self) -> None:
        """While held, after a `relocate`: go on where it was before."""
        lib.pb_partition_go_back(self.handle)

    def unhold(self) -> None:
        """Let writes go on."""
        lib.pb_partition_unhold(self.handle)

    def producers(self) -> list[ProducerState]:
        """The idempotent producers this partition remembers."""
        capacity = _PRODUCERS_GUESS
        while True:
            out = ffi.new("pb_partition_producer[]", capacity)
            count = lib.pb_partition_producers(self.handle, out, capacity)
            if count < 0:
                raise NativeError(count)
            if count < capacity:
                data = ffi.buffer(out, count * _PRODUCER.size)
                return [ProducerState._make(each) for each in _PRODUCER.iter_unpack(data)]
            capacity *= 4

    def clean(self, options: CleanOptions) -> CleanResult:
        """One pass of the log cleaner. Blocking, for minutes. NativeError codes: -ECANCELED after `cancel_clean`,
        -EAGAIN when segments were taken away meanwhile, -EBUSY when a pass is under way, -ENOSPC. Any other one says
        that this log cannot be cleaned as it is."""
        native, result, failure = ffi.new("pb_clean_options *"), ffi.new("pb_clean_result *"), new_failure()
        for name, value in options.as_dict().items():
            setattr(native, name, value)
        check(lib.pb_partition_clean(self.handle, native, result, failure), failure)
        return CleanResult._make(_CLEAN_RESULT.unpack(ffi.buffer(result)))

    def cancel_clean(self) -> None:
        """Let the pass under way end soon; without one it does nothing."""
        lib.pb_partition_clean_cancel(self.handle)

    @property
    def clean_progress(self) -> CleanProgress:
        """How far the pass under way has come."""
        out = ffi.new("pb_clean_progress *")
        lib.pb_partition_clean_progress(self.handle, out)
        return CleanProgress._make(_CLEAN_PROGRESS.unpack(ffi.buffer(out)))

    def first_timestamp(self, from_offset: int, upper_offset: int) -> int:
        """Smallest timestamp of the first batches of sealed segments in that range, in ms; -1: none. Blocking."""
        timestamp_ms, failure = ffi.new("int64_t *"), new_failure()
        check(lib.pb_partition_first_timestamp(self.handle, from_offset, upper_offset, timestamp_ms, failure), failure)
        return int(timestamp_ms[0])

    @property
    def state(self) -> PartitionState:
        """Ends and sizes."""
        return partition_states((self,))[0]


def _check_close(code: int, failure: Any) -> None:
    try:
        check(code, failure)
    except NativeError as error:
        if code == lib.PB_CLOSE_UNFINISHED:
            raise CloseUnfinished(code, error.text) from None
        raise


def partition_states(partitions: Sequence[NativePartition]) -> list[PartitionState]:
    """The states of many partitions by one call, in their order."""
    if not partitions:
        return []
    handles = ffi.new("pb_partition *[]", [each.handle for each in partitions])
    out = ffi.new("pb_partition_state[]", len(partitions))
    lib.pb_partitions_state(handles, len(partitions), out)
    return [PartitionState._make(each) for each in _STATE.iter_unpack(ffi.buffer(out))]


def set_below_reserve(partitions: Sequence[NativePartition], below: bool) -> None:
    """Let Produce for these be answered KAFKA_STORAGE_ERROR, but for internal topics, or no more."""
    handles = ffi.new("pb_partition *[]", [each.handle for each in partitions])
    lib.pb_partitions_set_below_reserve(handles, len(partitions), below)
