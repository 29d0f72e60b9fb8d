/*
 * One partition's log: Kafka's segments, offset and time indexes, leader epochs and producer state, in one directory.
 *
 * Three ends: `appended` (offsets given out), `written` (in the file: survives SIGKILL), `durable` (synced).
 * Readers see only what is written.
 *
 * Locking. The log has no lock of its own: the partition that owns it has one short mutex. Functions marked [lock] are
 * called with it held and make no I/O. Functions marked [writer] are called by the one thread that holds the write
 * token (pb_log_write_begin gave it out, pb_log_write_end takes it back) without the lock. Functions marked [any] need
 * neither: they work on a pinned segment. Functions marked [quiet] are called while nothing else can touch the log
 * (open, close, truncate) or say themselves what they need.
 *
 * An append runs in these steps, whose guards are in brackets:
 *
 *   validation (record/validate.h)   checks the batch                                                   no lock
 *   pb_log_append [lock]             assigns offsets and queues the bytes
 *   pb_log_write_begin [lock]        takes the gathered bytes and the write token
 *   pb_log_write_prepare [writer]    rolls when needed, and names file and position
 *   the caller                       writes
 *   pb_log_write_end [lock]          moves `written`; after a failure it cuts the log to the finished prefix, and hands
 *                                    back every queued append as failed
 */
#ifndef PB_LOG_LOG_H
#define PB_LOG_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/list.h"
#include "io/io.h"

typedef struct pb_log pb_log;
typedef struct pb_segment pb_segment;
typedef struct pb_ring_pool pb_ring_pool;
struct pb_ring_identity;

/* Settings of one log; times in ms, sizes in bytes, -1 = no limit where Kafka says so. Replaced whole by
 * pb_log_configure. */
typedef struct pb_log_config {
    int64_t segment_bytes;
    int64_t segment_ms;
    int64_t segment_jitter_ms;
    int64_t segment_index_bytes;
    int64_t index_interval_bytes;
    int64_t producer_expiration_ms;
    int64_t flush_messages; /* records between syncs; INT64_MAX = leave it to the operating system */
    int64_t flush_ms;
    int64_t reserve_bytes;    /* of the disk: blocks taken ahead of need leave so much of it free */
    int32_t max_record_bytes; /* of a compressed batch; longer records are not looked into. 0: no limit */
    bool preallocate;
    bool compact; /* cleaning may leave gaps between batches */
} pb_log_config;

/* The arguments of opening a log. `directory` exists or is made. */
typedef struct pb_log_options {
    pb_io *io;
    const char *directory;
    const uint8_t
        *topic_id; /* 16 bytes; written to partition.metadata when that is missing, compared when it is there */
    pb_log_config config;
    bool clean;                                   /* the log dir was shut down cleanly: trust the files */
    int64_t recovery_point;                       /* from recovery-point-offset-checkpoint; 0 when unknown */
    int64_t log_start_offset;                     /* from log-start-offset-checkpoint; -1 when unknown */
    int32_t leader_epoch;                         /* in which a new log is about to be led; -1: none */
    int64_t gap_offset;                           /* see pb_partition_options in pybroker.h; -1 when unknown */
    pb_ring_pool *rings;                          /* the log may become hot, see log/engine/hot.h; NULL: it is paced */
    const struct pb_ring_identity *ring_identity; /* with rings */
} pb_log_options;

/* The work of recovery, for the log line and the metrics. */
typedef struct pb_log_recovery {
    int64_t scanned_bytes;
    int64_t truncated_bytes;
    int32_t segment_count;
    int32_t rebuilt_index_count;
    int32_t unsound_index_count;   /* of those, the segments whose files were missing or wrong, */
    int64_t unsound_index_segment; /* and the base offset of the first */
    int64_t largest_producer_id;   /* see pb_partition_recovery in pybroker.h */
    int64_t gap_offset;            /* the gaps between segments that were taken for the cleaner's lie below it */
    bool old_magic_found;          /* batches older than magic 2 lie in this log; they cannot be served */
    int64_t old_magic_offset;
    /* Damage below the recovery point, which stays where it is and cannot be read: the first, and how many there are.
     */
    int32_t hole_count;
    int64_t hole_segment; /* its base offset */
    int64_t hole_position;
    int64_t hole_offset;
    int64_t hole_end_offset;
    /* The log was cut although batches followed, or below the recovery point: what was cut off is kept in files. */
    int32_t kept_file_count;
    int64_t kept_batch_count; /* intact ones in them */
    int64_t kept_bytes;
    int64_t cut_segment;
    int64_t cut_position;
    int64_t cut_offset;
    int64_t cut_end_offset; /* behind the last intact one */
} pb_log_recovery;

/* Where pb_log_append has put a batch; index entries become visible with the bytes, so they wait here until then. */
typedef struct pb_append_place {
    int64_t position; /* in the segment's file */
    int64_t last_offset;
    int64_t time_entry_ms; /* with index_entry: largest timestamp so far, and the batch that has it */
    int64_t time_entry_offset;
    int64_t aborted_first_offset; /* an abort marker: entry of the transaction index; -1: none */
    int64_t aborted_stable_offset;
    bool index_entry; /* an entry of the offset index points here */
} pb_append_place;

/* Why a batch begins a new segment. */
enum pb_roll_reason {
    PB_NO_ROLL = 0,
    PB_ROLL_SIZE,    /* it would make the active one larger than segment.bytes */
    PB_ROLL_TIME,    /* segment.ms is over */
    PB_ROLL_INDEX,   /* an index of the active one is full */
    PB_ROLL_OFFSETS, /* its offset is too far from the active one's base offset */
};

/*
 * One batch on its way into the log. Owner: the caller, from pb_log_append until it comes back through a `finished`
 * list. `bytes` stay alive and unchanged by others until then. The caller fills the first group from validation.
 */
typedef struct pb_append {
    pb_link link;
    uint8_t *bytes; /* one whole magic-2 batch; header fields are set in place */
    uint32_t length;
    int32_t record_count; /* last offset delta + 1 */
    int64_t max_timestamp_ms;
    int64_t max_timestamp_offset_delta; /* which record carries it; -1: the last one */
    int64_t producer_id;                /* -1: none */
    int16_t producer_epoch;
    int32_t base_sequence;
    bool is_transactional;
    bool is_control;
    bool must_be_verified;       /* it begins a transaction only with verification_guard */
    int64_t verification_guard;  /* from pb_log_begin_verification; 0: none */
    int16_t transaction_version; /* of the coordinator that wrote a marker; 0: before KIP-890 */
    bool is_replica; /* from a leader: base offset and epoch are taken from the bytes, nothing is checked but order */
    bool log_append_time; /* set now_ms as the batch's timestamp (attributes, max timestamp, CRC) */
    int64_t now_ms;
    int32_t leader_epoch;
    /* Results. */
    int64_t base_offset;
    int64_t log_append_time_ms; /* -1 with CreateTime */
    int64_t start_offset;       /* log start offset at append; also when the producer's state refuses the batch */
    int error;                  /* when it comes back: 0, a Kafka code or -errno */
    enum pb_roll_reason rolls;  /* it begins a segment */
    pb_append_place place;      /* the log's own, from pb_log_append until it comes back */
} pb_append;

/* pb_log_append's answer besides 0 and errors: an idempotent duplicate; base_offset is the first append's. */
#define PB_LOG_DUPLICATE INT32_MAX

/* A range of a segment file, pinned: release with pb_segment_release. */
typedef struct pb_log_slice {
    pb_segment *segment; /* NULL when empty */
    int file;
    int64_t position;
    int64_t length;
    int64_t base_offset;    /* of the first batch in it */
    int64_t end_offset;     /* what lies at or above it is not in it; it may be larger than need be */
    int64_t ahead_position; /* up to here the file has it for good, and may be read ahead */
    bool sealed;            /* nobody writes to the file any more */
    bool more;              /* what may be read goes on behind it */
} pb_log_slice;

/* Is what the slice was made of part of the log still, and as long as it was? If not, the log was cut, or something
 * else has taken its place, and that the file ends too soon tells nothing of the disk. [lock] */
bool pb_log_has_slice(const pb_log *log, const pb_log_slice *slice);

typedef struct pb_log_position {
    int64_t offset;
    int64_t timestamp_ms;
    int32_t leader_epoch;
} pb_log_position;

/* One aborted transaction that a read-committed reader must skip (from .txnindex). */
typedef struct pb_aborted_transaction {
    int64_t producer_id;
    int64_t first_offset;
} pb_aborted_transaction;

/* For retention, which Python decides. */
typedef struct pb_segment_info {
    int64_t base_offset;
    int64_t end_offset; /* of the next segment; for the active one the written end */
    int64_t size_bytes;
    int64_t largest_timestamp_ms; /* -1 when it has no record */
    int64_t modified_ms;
    int64_t file_bytes; /* so many of them are in its file and stay as they are, unless the log is cut */
    int64_t generation; /* another one when the cleaner has put another file in its place */
} pb_segment_info;

/* Open, and recover when needed. [quiet] Blocking: not on a reactor. */
int pb_log_open(const pb_log_options *options, pb_log **out, pb_log_recovery *recovery, pb_failure *failure);
/* All that a clean close does, but for its syncs. The log is durable, and known to be whole, when the file system was
 * synced, the log closed, and the file system synced once more. Then, or after a failure, it is good for nothing but
 * pb_log_close. Failures are those of pb_log_close. [quiet] Nothing may be pinned or queued. Blocking. */
int pb_log_settle(pb_log *log, pb_failure *failure);
/* See pb_log_close. */
#define PB_LOG_UNFINISHED (INT32_MAX - 2)
/* Flush indexes, epochs and, when `clean`, data and a producer snapshot; then free. [quiet] Nothing may be pinned or
 * queued. `clean` of one that is settled says that its file system has been synced since; nothing is synced then.
 * PB_LOG_UNFINISHED, with the reason in `failure`: every batch is in its file, and durable, or in the tail ring, which
 * survives the process. The files derived from them are incomplete, and the next opening has to check the log. Any
 * other failure may have cost batches. */
int pb_log_close(pb_log *log, bool clean, pb_failure *failure);
void pb_log_configure(pb_log *log, const pb_log_config *config); /* [lock] */

/* Where it lies. Stays as long as a sync or maintenance is under way; the text lives as long as the log. [any] */
const char *pb_log_directory(const pb_log *log);
int64_t pb_log_start_offset(const pb_log *log); /* [lock] */
int64_t pb_log_appended_end(const pb_log *log); /* [lock] the log end offset */
int64_t pb_log_written_end(const pb_log *log);  /* [lock] */
int64_t pb_log_durable_end(const pb_log *log);  /* [lock] */
/* The least end it was cut to since it was opened or last cleaned: whatever was clean, what lies above has come since.
 * INT64_MAX: it was not cut. [lock] */
int64_t pb_log_cut_offset(const pb_log *log);
/* Another one after each cut, across restarts too; 0: it was never cut. Ends that were recorded with another one do not
 * count where the cut went below them. [lock] */
int64_t pb_log_cut_generation(const pb_log *log);
/* Grows when a cut or repair ends, and a cut also when it begins: as long as it stays what it is, what was written
 * does. [lock] */
uint32_t pb_log_cut_count(const pb_log *log);
/* The same of cuts alone: as long as it stays, what its files have for good does. On a full disk repairs never end.
 * [lock] */
uint32_t pb_log_truncation_count(const pb_log *log);
/* Checkpoints speak of nothing above: the durable end, or for a log that is compacted its end, since the cleaner's may
 * be of an earlier life. [lock] */
int64_t pb_log_checkpointed_end(const pb_log *log);
/* Recovery after an unclean stop may begin here: <= durable end, and all that is derived from below it is in its files.
 * [lock] */
int64_t pb_log_recovery_point(const pb_log *log);
int64_t pb_log_size_bytes(const pb_log *log); /* [lock] */
int64_t pb_log_first_unstable_offset(
    const pb_log *log); /* [lock] start of the oldest open transaction; INT64_MAX: none */
/* The end of a read-committed reader's view: the start of the oldest transaction that is open or ended at or above the
 * high watermark. It is at least the log start offset, at most the high watermark. Forgets transactions that ended
 * below it: it must not go back. [lock] */
int64_t pb_log_last_stable_offset(pb_log *log, int64_t high_watermark);
int32_t pb_log_latest_epoch(const pb_log *log); /* [lock] */

/* Become leader at an epoch: it begins at the appended end. [lock] */
void pb_log_start_epoch(pb_log *log, int32_t leader_epoch);

/* No leader any more: epochs begin with the batches that bring them. [lock] */
void pb_log_end_epoch(pb_log *log);

struct pb_verified_batch;
/* Somebody else is to be asked whether a transactional batch may be appended (log/derived/verifications.h). 0 with the
 * guard that it then needs, or with 0: it belongs to a transaction that is open here, and needs none;
 * INVALID_PRODUCER_EPOCH or -ENOMEM. [lock] */
int pb_log_begin_verification(pb_log *log, const struct pb_verified_batch *batch, int64_t now_ms, int64_t *guard);
/* Check sequence and epoch of the producer, give out offsets, set header fields, queue. [lock]
 * 0: queued; PB_LOG_DUPLICATE: not queued, results filled; else a Kafka code (OUT_OF_ORDER_SEQUENCE_NUMBER,
 * INVALID_PRODUCER_EPOCH, ...): not queued. */
int pb_log_append(pb_log *log, pb_append *append);

/* One write: what has gathered for one segment. A cold log's is the caller's to make, at `position` of `file`; a hot
 * one's goes into the ring. */
typedef struct pb_log_write {
    struct iovec iov[64];
    int iov_count;
    int file;
    bool rolls; /* it begins a segment */
    int64_t position;
    int64_t length;
    int sealed_file; /* when it begins a segment: the one before */
    int64_t sealed_bytes;
} pb_log_write;

/* Take the write token and what is queued (bounded by the iovecs, and by the end of a segment). [lock] false: nothing
 * queued or someone else writes. */
bool pb_log_write_begin(pb_log *log, pb_log_write *write);
/* pb_log_write_prepare's answer besides 0 and -errno: there is no room in the ring, or a hot log has to roll. */
#define PB_LOG_WAITS (INT32_MAX - 1)
/* Roll when what was taken belongs into a new segment; names file and position. PB_LOG_WAITS: a background thread shall
 * call pb_log_write_unblock, and the writer prepare again then. [writer] */
int pb_log_write_prepare(pb_log *log, pb_log_write *write);
/* Instead of a write to the file, when the log is hot after prepare: take it into the ring. The bytes written. [writer]
 */
int64_t pb_log_write_ring(pb_log *log, const pb_log_write *write);
/* result: bytes written, or < 0. Moves finished appends (error set when failed) to `finished`; gives the token back.
 * [lock] After a failure everything queued fails too and the caller runs pb_log_repair before the next append. */
void pb_log_write_end(pb_log *log, pb_log_write *write, int64_t result, pb_link *finished);
bool pb_log_needs_repair(const pb_log *log); /* [lock] */
/* A sync or a truncation failed: appends are refused, and closing and opening the log again is the only way on. [lock]
 */
bool pb_log_failed(const pb_log *log);
/* The lock of whoever owns the log, for calls that take it themselves around their short inner parts. */
typedef struct pb_log_guard {
    void (*lock)(void *context);
    void (*unlock)(void *context);
    void *context;
} pb_log_guard;

/* Flush, roll or cool, so that the writer that waits gets on. Blocking. 0, or the log has failed. */
int pb_log_write_unblock(pb_log *log, const pb_log_guard *guard, const pb_log_write *write);

/* Cut files, indexes, epochs and producer state back to the finished prefix. Blocking, off the reactor; appends are
 * refused meanwhile, readers go on. -EBUSY: other upkeep is under way. */
int pb_log_repair(pb_log *log, const pb_log_guard *guard, pb_failure *failure);

#define PB_SYNC_SEGMENTS 16

/*
 * One sync: the segments with bytes that are not durable, and where the durable end will be. Owner: the caller, from
 * begin to end. One at a time: the caller sees to it. One that overlaps a cut of the log proves nothing.
 */
typedef struct pb_log_sync_round {
    pb_segment *segments[PB_SYNC_SEGMENTS]; /* retained */
    int count;
    int64_t target; /* durable when all are synced */
    uint32_t cut_count;
    bool directory; /* as well, and first: it has names of new segments */
    bool in_ring;   /* some of it may be in a ring still: a sync of the file system proves nothing */
    bool more;      /* there are more segments than one round takes: another one follows */
} pb_log_sync_round;

/* [lock] false: a sync or a cut has failed, and the log must be opened again. */
bool pb_log_sync_begin(pb_log *log, pb_log_sync_round *round);
/* A round that is one write, for a loop to make in place of pb_log_sync_run. */
typedef struct pb_log_sync_write {
    struct iovec iov[2];
    int iov_count;
    int file; /* of a hot log, past the page cache */
    int64_t position;
    int64_t length;
    int64_t end; /* then the file has all below */
} pb_log_sync_write;

/* Begin a round that is one durable write, if it can be: then nobody may flush the log, or take its ring, before
 * pb_log_sync_end_write. [lock] */
bool pb_log_sync_begin_write(pb_log *log, pb_log_sync_round *round, pb_log_sync_write *write);
/* Such writes need not be durable by themselves, where they are small. A flush of any file with the same number, once
 * they have ended, makes all of them durable (file_flush_device). 0: this log's have to be. [lock] */
uint64_t pb_log_flush_device(const pb_log *log);
/* A new file with that number, without a name, that nobody writes to. To be closed by the caller; < 0: there is none.
 * Blocking. [lock] */
int pb_log_make_flush_file(const pb_log *log);
/* With what the write came to; what pb_log_sync_end shall be told. One thread, the lock is not needed. */
int pb_log_sync_end_write(pb_log *log, const pb_log_sync_write *write, int64_t result);
/* Blocking. [any] */
int pb_log_sync_run(pb_log *log, const pb_log_guard *guard, pb_log_sync_round *round, pb_failure *failure);
/* With the result of run, or of a sync of the whole file system. 0: the durable end has moved to the target. After an
 * error that passes (no file handle, no memory) nothing was synced; after any other the log has failed. [lock] */
void pb_log_sync_end(pb_log *log, pb_log_sync_round *round, int result);
/* After end. [any] */
void pb_log_sync_release(pb_log_sync_round *round);
/* All of it: data up to the written end at call time. Blocking. -EBUSY: a round is under way. */
int pb_log_sync(pb_log *log, const pb_log_guard *guard, pb_failure *failure);

/* Find the bytes to send to a reader at `offset`, up to `max_bytes` and below `upper_offset` (high watermark or last
 * stable offset, <= written end). The first batch is found even when larger than max_bytes if `at_least_one`. Takes the
 * lock through guard for the look-up of the segment, then reads the index and batch headers without it. 0, or
 * OFFSET_OUT_OF_RANGE, or -errno. */
int pb_log_read(pb_log *log, const pb_log_guard *guard, int64_t offset, int64_t max_bytes, int64_t upper_offset,
                bool at_least_one, pb_log_slice *out);
/* A read of a sealed segment has met the end of its file. Remembers the missing bytes as damage (log/segment/damage.h),
 * so that their readers are told CORRUPT_MESSAGE and others are served. 0; 1: it was known; -ENODATA: the file is as
 * long as it should be, or the segment is not sealed; another -errno. May read headers of the file. Takes the lock. */
int pb_log_note_short_file(pb_log *log, const pb_log_guard *guard, pb_segment *segment);
/* A read of a sealed segment has met -EIO. If the disk reads other parts of the file, past the page cache, what it
 * cannot read is damage as above: 0. Else -EIO, also where all can be read by now. Reads up to the whole file. Takes
 * the lock.
 */
int pb_log_note_unreadable(pb_log *log, const pb_log_guard *guard, pb_segment *segment);
void pb_segment_retain(pb_segment *segment);  /* [any] */
void pb_segment_release(pb_segment *segment); /* [any] the last release closes files and, when deleted, nothing else */

/* First record with timestamp >= timestamp_ms below upper_offset; offset -1 when none. Blocking. */
int pb_log_offset_for_timestamp(pb_log *log, const pb_log_guard *guard, int64_t timestamp_ms, int64_t upper_offset,
                                pb_log_position *out);
/* The record with the largest timestamp (ListOffsets -3, KIP-734). Blocking. */
int pb_log_offset_of_max_timestamp(pb_log *log, const pb_log_guard *guard, int64_t upper_offset, pb_log_position *out);
/* OffsetForLeaderEpoch: the largest epoch <= leader_epoch and its end offset; -1, -1 when unknown. [lock] */
void pb_log_end_offset_for_epoch(const pb_log *log, int32_t leader_epoch, int32_t *epoch, int64_t *end_offset);
/* The epoch of the record at `offset`; -1 unknown. [lock] */
int32_t pb_log_epoch_at(const pb_log *log, int64_t offset);
/* Aborted transactions that touch [offset, upper_offset); allocates *out (free with free()). Blocking. */
int pb_log_aborted_transactions(pb_log *log, const pb_log_guard *guard, int64_t offset, int64_t upper_offset,
                                pb_aborted_transaction **out, int *count);

/* Segments, oldest first; allocates *out (free()). [lock] */
int pb_log_segments(const pb_log *log, pb_segment_info **out, int *count);
/* Close the active segment and start a new one (retention of the active segment, AdminClient semantics). Takes the
 * write token itself. Blocking. 0 or -EBUSY when a write is in flight. Appends that came
 * meanwhile wait for the next write: begin one afterwards. */
int pb_log_roll(pb_log *log, const pb_log_guard *guard, pb_failure *failure);
/* Move the log start offset up (DeleteRecords, retention). [lock] */
int pb_log_set_start_offset(pb_log *log, int64_t offset);
/* Take every non-active segment that lies wholly below the log start offset off the log: files get Kafka's `.deleted`
 * suffix; they are unlinked by pb_log_purge after file.delete.delay.ms. Blocking. */
int pb_log_delete_segments(pb_log *log, const pb_log_guard *guard, int *deleted_count, pb_failure *failure);
int pb_log_purge(pb_log *log, const pb_log_guard *guard, int64_t older_than_ms,
                 pb_failure *failure); /* unlink .deleted files taken off before then. Blocking */
/* Cut the log so that `offset` is its end, and forget epochs that begin there. Blocking; [quiet] under the write token,
 * which it takes. -EBUSY: appends or upkeep are under way. After another failure the log has failed. */
int pb_log_truncate(pb_log *log, const pb_log_guard *guard, int64_t offset, pb_failure *failure);
/* Throw away all it has, producers and epochs too: it begins at `offset`, empty. Its first batch may begin below that,
 * a replica's alone, but not below `base_offset`. Else as pb_log_truncate. */
int pb_log_restart(pb_log *log, const pb_log_guard *guard, int64_t base_offset, int64_t offset, pb_failure *failure);
/* Are the segments' files there, as long as they should be? Returns 0, or -ESTALE with the file named when somebody
 * else has removed or changed it. -ENODATA: the active segment's is too short. -EBUSY: maintenance is under way. Where
 * a sealed segment's is too short it is 0, with a text in `failure` the first time: see pb_log_note_short_file.
 * Blocking. */
int pb_log_check_files(pb_log *log, const pb_log_guard *guard, pb_failure *failure);
/*
 * A log moves to a directory that has copies of its files, see log/change/move.c. Blocking.
 * hold: take both tokens and bring what is derived into its files; appends queue up from then on. -EBUSY: later. Not
 * during a repair; a log that waits for one may move.
 * relocate, holding: the files in `directory` are the log from now on, all of them synced. `truncation_count` was the
 * log's before any of them was copied; -ESTALE: it has been cut since, or a file has another size. Unless it is
 * `for_good`, the log may have to go back to files that are not synced, so what is durable stays what it was. -EBUSY: a
 * sync is under way, again later. After another failure the log is where it was. go_back, after a relocate that was not
 * for good: the log is where it was before. No failure: its files stayed open. release: give the tokens back; appends
 * that came meanwhile wait for the next write: begin one.
 */
int pb_log_hold(pb_log *log, const pb_log_guard *guard, pb_failure *failure);
int pb_log_relocate(pb_log *log, const pb_log_guard *guard, const char *directory, uint32_t truncation_count,
                    bool for_good, pb_failure *failure);
void pb_log_go_back(pb_log *log, const pb_log_guard *guard);
void pb_log_release(pb_log *log, const pb_log_guard *guard);
bool pb_log_has_queued(const pb_log *log); /* [lock] */
/* ---- hot logs: see log/engine/hot.h ---- */
bool pb_log_is_hot(const pb_log *log); /* [lock] or [writer] */
/* How long the writer of a hot log waits though there is room; 0: it does not. [writer] */
int64_t pb_log_pause_ns(const pb_log *log);
/* Is the ring's file where the next start looks for it? If not, what the ring has survives no kill, and the log shall
 * be made cold. true for a cold log. Background threads. */
bool pb_log_has_ring_file(pb_log *log, const pb_log_guard *guard);
/* The number of bytes that the ring has and the file has not. [lock] */
int64_t pb_log_gathered_bytes(const pb_log *log);
/* Become hot, or cold again. Blocking. -EBUSY: somebody writes. heat: -EAGAIN: there is no ring; -EINVAL, -EOPNOTSUPP:
 * this file system does not do it, or the log has no rings to take from; -ENOSPC. Appends that came meanwhile wait for
 * the next write: begin one. A cool that fails leaves the log failed. */
int pb_log_heat(pb_log *log, const pb_log_guard *guard);
int pb_log_cool(pb_log *log, const pb_log_guard *guard);
/* Would its syncs gain by zeros written ahead of the end? [lock] Write some: one thread at a time, blocking; without
 * pauses while many `others` wait for this thread (NULL: nobody does). After a failure the log has failed.
 */
bool pb_log_wants_zeros(const pb_log *log);
int pb_log_write_zeros(pb_log *log, const pb_log_guard *guard, const atomic_int *others);
/* Somebody waits for the thread that does: no more pauses. [lock] */
void pb_log_hurry_zeros(pb_log *log);
/* Bring what has gathered into the file, but no more than one write takes: a writer may wait behind it. Blocking; one
 * thread at a time does it, others wait. After a failure the log has failed. */
int pb_log_flush(pb_log *log, const pb_log_guard *guard, pb_failure *failure);
/* True when enough has been written since the last pacing, or the next segment's file of a hot log is due. [lock] */
bool pb_log_needs_pacing(const pb_log *log);
/* Let the append engine start writeback, and make the next segment's file ahead. Blocking; one thread at a time, beside
 * anything else. */
int pb_log_pace(pb_log *log, const pb_log_guard *guard);
/* Background upkeep: flush index buffers, epochs, expire producers, producer snapshot when one is due. Blocking. */
int pb_log_upkeep(pb_log *log, const pb_log_guard *guard, int64_t now_ms, pb_failure *failure);

/* Highest sequence state of one producer, for DescribeProducers and tests. Returns count copied. [lock] */
typedef struct pb_producer_info {
    int64_t producer_id;
    int16_t producer_epoch;
    int32_t last_sequence;
    int64_t last_timestamp_ms;
    int32_t coordinator_epoch;
    int64_t transaction_start_offset;
} pb_producer_info;
int pb_log_producers(const pb_log *log, pb_producer_info *out, int max);

#endif
