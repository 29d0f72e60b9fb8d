/*
 * The inside of a log, shared by the files of this directory and by nobody else.
 *
 * Guards: the partition's lock guards everything, except that
 *  - `rolling`, `write_preallocate_bytes` and the list `in_flight` belong to the holder of the write token (`writing`);
 *  - `hot` changes under the lock, by the holder of the write token or for him; what is in it is hot.h's;
 *  - `engine_state` belongs to whoever paces
 *  - `removed`, `marked_*` and the files of sealed indexes belong to the holder of the maintenance token
 *    (`maintaining`). By it upkeep, deletion, purge, truncation, repair and roll exclude each other, and answer -EBUSY;
 *  - `io`, `engine`, `rings` never change; `directory` only under both tokens, and its old values live as long as the
 *    log.
 *
 * Functions called without the lock copy what they need under it and hold a reference on each segment they use.
 */
#ifndef PB_LOG_STATE_H
#define PB_LOG_STATE_H

#include <pthread.h>

#include "log/clean/clean.h"
#include "log/derived/leader_epochs.h"
#include "log/derived/producer_state.h"
#include "log/derived/verifications.h"
#include "log/engine/engine.h"
#include "log/engine/hot.h"
#include "log/log.h"
#include "log/segment/segment.h"

enum {
    PB_WRITE_HINTS = 8,
    PB_READ_HINTS = 8,
    PB_HINTS = PB_WRITE_HINTS + PB_READ_HINTS,
    PB_OPEN_SEALED_FILES = 4, /* sealed segments of one log whose files stay open for readers to come */
};

/* A batch boundary that was seen: the batch with `offset` first (or the end) lies at `position`. */
typedef struct pb_hint {
    int64_t segment_base; /* -1: unused */
    int64_t offset;
    int64_t position;
} pb_hint;

/* The active segment as it will be when all that is queued has been written: what roll and index decisions look at. */
typedef struct pb_tail {
    int64_t base_offset;
    int64_t size_bytes;
    int64_t bytes_since_index;
    int64_t first_timestamp_ms; /* of its first batch; -1: none yet, or unknown */
    int64_t created_ms;
    int64_t largest_timestamp_ms;
    int64_t largest_timestamp_offset;
    int64_t last_time_entry_ms;
    int64_t jitter_ms;
    uint32_t offset_entries;
    uint32_t time_entries;
} pb_tail;

/* A change of segment, from the append that causes it until its producer snapshot lies in its file. */
typedef struct pb_roll {
    pb_link link;
    int64_t base_offset;
    uint8_t *snapshot; /* NULL: nothing new since the last one */
    size_t snapshot_length;
} pb_roll;

/* A segment that was taken off the log and waits for pb_log_purge. */
typedef struct pb_removed {
    pb_link link;
    int64_t base_offset;
    int64_t size_bytes;
    int64_t removed_ms;
} pb_removed;

/* A directory the log lay in before. */
typedef struct pb_old_directory {
    pb_link link;
    char *path;
} pb_old_directory;

struct pb_log {
    pb_io *io;
    const pb_engine *engine;
    char *_Atomic directory; /* changes with pb_log_relocate */
    pb_link old_directories; /* pb_old_directory: names that others may still be reading */
    pb_log_config config;

    pb_segment **segments; /* by base offset; the last one is active; never empty after open */
    pb_segment **left;     /* while held and relocated: they lie where it was before; as many. Else NULL */
    uint32_t segment_count;
    uint32_t segment_capacity; /* room for every roll that is queued */
    uint32_t queued_roll_count;
    uint32_t use_count;

    int64_t sealed_bytes; /* of all segments but the active one */
    int64_t start_offset;
    int64_t appended_end;
    int64_t written_end;
    int64_t durable_end;
    int64_t begun_offset;     /* it was empty when it last began, there; 0: not since it was opened */
    int64_t cut_offset;       /* see pb_log_cut_offset */
    int64_t noted_generation; /* of the note in the directory; the log's own once the cut is done */
    int64_t cut_generation;   /* see pb_log_cut_generation */
    int64_t noted_cut;        /* the least end that it was ever cut to; INT64_MAX: it was not cut */

    pb_link queue;     /* appends that wait for a writer */
    pb_link in_flight; /* appends of the write under way */
    bool writing;
    bool broken;  /* a write failed: pb_log_repair is due */
    bool failed;  /* a sync or a truncation failed: only opening it again tells what is on the disk */
    bool starved; /* with `failed`: the disk was full, and the ring has what the file has not */
    bool maintaining;
    bool directory_dirty; /* a new segment's directory entry has not been synced */
    bool syncing;         /* a round is under way */
    bool settled;         /* pb_log_settle has brought it into its files: it can be closed, and nothing else */
    bool has_cut_note;    /* in the directory, when the log was opened */
    bool has_ring_note;
    bool epochs_aside;         /* with `settled`: a new leader-epoch-checkpoint waits beside its place */
    uint32_t cut_count;        /* truncations, as they begin and end, and repairs: what overlaps one proves nothing */
    uint32_t truncation_count; /* of these the truncations alone: a repair leaves what was ever in a file for good */
    int64_t swap_count;        /* segments that the cleaner put in place since open */
    pb_segment *rolling;       /* made by pb_log_write_prepare, not yet part of the log */
    int64_t write_preallocate_bytes;

    pb_tail tail;
    pb_link rolls;           /* pb_roll: queued */
    pb_link snapshots_due;   /* pb_roll: done, snapshot not yet in its file */
    int64_t snapshot_offset; /* the newest snapshot taken, in a file or on one of the lists; -1: none */
    int64_t marked_offset;   /* of the mark in the directory, see log/recover/mark.h; -1: there is none */
    int64_t marked_base;     /* of the segment it lies in */
    int64_t next_expiry_ms;
    int64_t paced_base;     /* the active segment at the last pacing, */
    int64_t paced_position; /* and its size then */
    pb_producers producers;
    pb_verifications verifications;
    pb_leader_epochs epochs;
    int32_t leader_epoch; /* started by pb_log_start_epoch; -1: none */

    pb_hint hints[PB_HINTS];
    uint32_t next_write_hint;
    uint32_t next_read_hint;

    _Atomic int spare_file;      /* of the next segment, without a name yet; -1: none. The exchanger owns it */
    _Atomic int64_t spare_base;  /* the active segment when one was made last, or could not be */
    _Atomic int64_t spare_bytes; /* it has so many of blocks; of who makes it, until it is there, then of its owner */
    int64_t made_bytes;          /* of blocks that the newest segment's file was made with; of who makes segments */
    pb_engine_state engine_state;
    pb_link removed;      /* pb_removed */
    int32_t purge_pieces; /* of what is removed go at a time; under the maintenance token */
    pb_clean_control clean;

    pb_ring_pool *rings; /* NULL: the log is never hot */
    pb_ring_identity ring_identity;
    pb_hot *hot;                /* NULL: cold */
    pthread_cond_t zeroed;      /* with flush_lock: zeros have been written ahead */
    pthread_mutex_t flush_lock; /* one flushes at a time; taken before the partition's lock, held across I/O */
};

static inline void pb_log_lock(const pb_log_guard *guard)
{
    if (guard != NULL)
        guard->lock(guard->context);
}

static inline void pb_log_unlock(const pb_log_guard *guard)
{
    if (guard != NULL)
        guard->unlock(guard->context);
}

static inline pb_segment *pb_log_active(const pb_log *log)
{
    PB_ASSERT(log->segment_count > 0);
    return log->segments[log->segment_count - 1];
}

/* Index of the segment that holds `offset`; -1 when it lies before the first. [lock] */
int pb_log_segment_floor(const pb_log *log, int64_t offset);
/* Interprets the result of reading `segment`, whose size under the lock was `size_bytes`. No lock. A read that came up
 * short, or met no batches, because the log was truncated or the segment replaced since, is -ENOENT: the caller looks
 * again. -ENOENT is also returned to the first reader that finds a part of a sealed segment gone or unreadable, as
 * readers then know of the damage. Where that does not help, it is CORRUPT_MESSAGE. Else `result`. */
int pb_log_judge_read(pb_log *log, const pb_log_guard *guard, pb_segment *segment, int64_t size_bytes, int result);
/* Sync batches of a segment. Any failure is final, because the kernel reports a lost write only once. A code that looks
 * temporary, such as -ENOMEM, is returned as -EIO, so that no caller retries. */
int pb_log_sync_data(pb_log *log, int file);
/* Where segment `index` ends: the next one's base, or the written end. [lock] */
int64_t pb_log_segment_end(const pb_log *log, uint32_t index);
/* The list of segments has changed: count the bytes of the sealed ones. [lock] */
void pb_log_count_sealed(pb_log *log);
/* Make room for all queued rolls and one more segment. [lock] */
int pb_log_reserve_segment(pb_log *log);
/* The segment's file, opened when it was not. The caller holds a reference and not the lock. */
int pb_log_open_segment(pb_log *log, const pb_log_guard *guard, pb_segment *segment, int *file);
/* Make the files of a new active segment, from the spare one if there is one; not part of the log yet. Blocking, no
 * lock. */
int pb_log_make_segment(pb_log *log, int64_t base_offset, int64_t preallocate_bytes, pb_segment **out);
/* Make the file of the segment that follows on that base ahead, with so many blocks, so that a roll has only to name
 * it. Once for each base; what cannot be made ahead is made by the roll. Blocking, a background thread, no lock. */
void pb_log_make_spare(pb_log *log, int64_t active_base, int64_t allocate_bytes);
void pb_log_drop_spare(pb_log *log);
/* How many of `wanted_bytes` of blocks may be taken ahead of need, in whole blocks, when `reserve_bytes` of the disk
 * are for others: the less is left, the fewer. Looks at the file system, no lock. */
int64_t pb_log_room_ahead(const pb_log *log, int64_t reserve_bytes, int64_t wanted_bytes);
/* A made segment becomes active; takes its roll off the list. [lock] */
void pb_log_publish_segment(pb_log *log, pb_segment *segment);
/* Queue the change to a segment that begins at `base_offset`, with the snapshot of now. [lock] */
int pb_log_plan_roll(pb_log *log, int64_t base_offset);
void pb_roll_free(pb_roll *roll);
/* Snapshots that are due above `end_offset` speak of batches that are gone. [lock] */
void pb_log_drop_due_snapshots(pb_log *log, int64_t end_offset);
/* Set `tail` to the active segment as written. [lock] `first_timestamp_ms` is its first batch's, -1 unknown. */
void pb_log_reset_tail(pb_log *log, int64_t first_timestamp_ms);

/* Remember a batch boundary. [lock] */
void pb_log_add_write_hint(pb_log *log, int64_t segment_base, int64_t offset, int64_t position);
void pb_log_add_read_hint(pb_log *log, int64_t segment_base, int64_t offset, int64_t position);
void pb_log_clear_hints(pb_log *log);
/* The nearest remembered boundary at or below `offset` in that segment, NULL when none. [lock] */
const pb_hint *pb_log_find_hint(const pb_log *log, int64_t segment_base, int64_t offset);

/* The maintenance token. [lock] inside. */
int pb_log_begin_maintenance(pb_log *log, const pb_log_guard *guard);
void pb_log_end_maintenance(pb_log *log, const pb_log_guard *guard);
/* Both the write and the maintenance token, or -EBUSY: nothing is queued, written or maintained until they go back. */
int pb_log_take_tokens(pb_log *log); /* [lock] */
void pb_log_return_tokens(pb_log *log, const pb_log_guard *guard);
/* The derived files that a flush syncs. */
typedef enum pb_flush_syncs {
    PB_SYNC_SEALED, /* what belongs to sealed segments, which are finished then */
    PB_SYNC_ALL,    /* the active one's indexes too */
    PB_SYNC_LATER,  /* nothing: the log is about to be closed, and its file system will be synced before and after */
} pb_flush_syncs;

/* Bring due snapshots, pending index entries and the epoch checkpoint into their files; with PB_SYNC_LATER the latter
 * beside its place, see `epochs_aside`. After a failure that does not pass, as of any sync of an index, the log has
 * failed. Maintenance token. */
int pb_log_flush_derived(pb_log *log, const pb_log_guard *guard, pb_flush_syncs syncs, pb_failure *failure);
/* pb_log_check_files under the maintenance token. 0 with a text in `failure`: a sealed segment's file was found to
 * be too short. */
int pb_log_look_at_files(pb_log *log, const pb_log_guard *guard, pb_failure *failure);
/* Give every file of a segment the suffix `.deleted`, or unlink them with the suffix `extra`; missing ones are fine. */
int pb_log_rename_segment_files(pb_log *log, int64_t base_offset);
int pb_log_unlink_segment_files(pb_log *log, int64_t base_offset, const char *extra);
/* Write leader-epoch-checkpoint or another small text: temporary file, sync, rename, directory sync. */
int pb_log_replace_file(pb_log *log, const char *name, const char *text, size_t length);
/* The temporary file alone, and its rename alone. */
int pb_log_write_aside(pb_log *log, const char *name, const char *text, size_t length, bool sync);
int pb_log_put_in_place(pb_log *log, const char *name);
/* Read a small file of the directory whole; allocates (free()). -ENOENT when missing, -EFBIG above 64 MiB. */
int pb_log_read_file(pb_log *log, const char *name, char **text, size_t *length);
int pb_log_unlink_file(pb_log *log, const char *name);
/* The directory that the log's lies in, in PB_LOG_PATH_BYTES. -ENOENT: its path does not say. */
int pb_log_parent(const pb_log *log, char *path);
/* partition.metadata: compare the topic id, or write it when the file is missing. */
int pb_log_check_topic_id(pb_log *log, const uint8_t *topic_id, pb_failure *failure);
/* The note of the last cut, see log/change/cut_note.c: load it at open; write a new one, durably, before a cut to
 * `offset`. 0 or -errno. */
int pb_log_load_cut_note(pb_log *log);
int pb_log_note_cut(pb_log *log, const pb_log_guard *guard, int64_t offset);
/* The note of a hot log's ring, see log/engine/ring_note.c. It is there only while the ring is sealed, and whenever the
 * ring has bytes that the file has not. 0 or -errno. */
int pb_log_note_ring(pb_log *log, const pb_tail_ring *ring);
int pb_log_forget_ring_note(pb_log *log);
/* Everything on disk that open needs: segments, start and ends, epochs, producers. */
int pb_log_recover(pb_log *log, const pb_log_options *options, pb_log_recovery *report, pb_failure *failure);
/* pb_fail with the log's directory in it: "<what> in <directory>". */
int pb_log_fail(pb_log *log, pb_failure *failure, int code, const char *what);

#define PB_EPOCH_CHECKPOINT "leader-epoch-checkpoint"
#define PB_MARK_FILE ".pybroker_mark"
#define PB_CUT_FILE ".pybroker_cut"
#define PB_RING_FILE ".pybroker_ring"

#endif
