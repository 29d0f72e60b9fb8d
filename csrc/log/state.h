/*
 * The state of a log (struct pb_log), and functions on it. Only files below log/ and tests include this header.
 *
 * The partition's lock guards all fields, with these exceptions:
 *  - `rolling`, `write_preallocate_bytes` and the list `in_flight` belong to the holder of the write token (`writing`);
 *  - `hot` is changed under the lock, by the holder of the write token or on its behalf; hot.h says what guards the
 *    fields of pb_hot;
 *  - `engine_state` belongs to the background thread that calls pb_log_pace;
 *  - `removed`, `marked_*` and the files of sealed segments' indexes belong to the holder of the maintenance token
 *    (`maintaining`). Upkeep, deletion, purge, truncation, repair and roll take this token, and return -EBUSY when
 *    another of them has it;
 *  - `io`, `engine` and `rings` never change;
 *  - `directory` changes only under both tokens, and its old values live as long as the log.
 *
 * A function that is called without the lock takes it to copy the fields that it needs, and holds a reference on each
 * segment that it uses.
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
    PB_OPEN_SEALED_FILES = 4, /* how many sealed segments of a log keep their files open for later reads */
};

/* A batch boundary that was seen: the batch whose first offset is `offset`, or the segment's end, is at `position`. */
typedef struct pb_hint {
    int64_t segment_base; /* -1: unused */
    int64_t offset;
    int64_t position;
} pb_hint;

/* The active segment as it will be when all queued appends are written. Decisions about rolls and index entries use
 * it. */
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

/* A roll: the change to a new segment. It lives from the append that causes it until its producer snapshot is in a
 * file. */
typedef struct pb_roll {
    pb_link link;
    int64_t base_offset;
    uint8_t *snapshot; /* NULL: the producer state has not changed since the last snapshot */
    size_t snapshot_length;
} pb_roll;

/* A segment that is not in the log any more. pb_log_purge will unlink its files. */
typedef struct pb_removed {
    pb_link link;
    int64_t base_offset;
    int64_t size_bytes;
    int64_t removed_ms;
} pb_removed;

/* An earlier directory of the log. */
typedef struct pb_old_directory {
    pb_link link;
    char *path;
} pb_old_directory;

struct pb_log {
    pb_io *io;
    const pb_engine *engine;
    char *_Atomic directory; /* changes with pb_log_relocate */
    pb_link old_directories; /* of pb_old_directory: other threads may still read the old paths */
    pb_log_config config;

    pb_segment **segments; /* by base offset; the last one is active; never empty after open */
    pb_segment **left;     /* after a relocate that can be undone: the old directory's segments, as many; else NULL */
    uint32_t segment_count;
    uint32_t segment_capacity; /* room for every roll that is queued */
    uint32_t queued_roll_count;
    uint32_t use_count;

    int64_t sealed_bytes; /* of all segments but the active one */
    int64_t start_offset;
    int64_t appended_end;
    int64_t written_end;
    int64_t durable_end;
    int64_t begun_offset;     /* where pb_log_restart last made the log empty; 0: not since it was opened */
    int64_t cut_offset;       /* see pb_log_cut_offset */
    int64_t noted_generation; /* in the cut note on the disk; becomes cut_generation when the cut is done */
    int64_t cut_generation;   /* see pb_log_cut_generation */
    int64_t noted_cut;        /* the lowest end that the log was ever cut to; INT64_MAX: it was never cut */

    pb_link queue;     /* appends that wait for a writer */
    pb_link in_flight; /* appends of the write under way */
    bool writing;
    bool broken;  /* a write failed: pb_log_repair is due */
    bool failed;  /* a sync or a truncation failed: the log has to be opened again to learn what is on the disk */
    bool starved; /* with `failed`: the disk was full, and some bytes are in the ring but not in the file */
    bool maintaining;
    bool directory_dirty;      /* a new segment's directory entry has not been synced */
    bool syncing;              /* a sync round is under way */
    bool settled;              /* by pb_log_settle: everything is in the files, and the log can only be closed */
    bool has_cut_note;         /* the directory had a cut note when the log was opened */
    bool has_ring_note;        /* the directory had a ring note then */
    bool epochs_aside;         /* with `settled`: a new leader-epoch-checkpoint was written, and waits for its rename */
    uint32_t cut_count;        /* changes when a truncation begins or ends, and when a repair ends */
    uint32_t truncation_count; /* changes when a truncation begins or ends; a repair cuts off only failed writes */
    int64_t swap_count;        /* how many segments the cleaner has replaced since open */
    pb_segment *rolling;       /* made by pb_log_write_prepare, not yet part of the log */
    int64_t write_preallocate_bytes;

    pb_tail tail;
    pb_link rolls;           /* of pb_roll: queued */
    pb_link snapshots_due;   /* of pb_roll: done, but the snapshot is not in a file yet */
    int64_t snapshot_offset; /* of the newest snapshot, in a file or on one of these lists; -1: none */
    int64_t marked_offset;   /* of the mark in the directory, see log/recover/mark.h; -1: there is none */
    int64_t marked_base;     /* base offset of the mark's segment */
    int64_t next_expiry_ms;  /* when upkeep next looks for expired producers */
    int64_t paced_base;      /* base offset of the active segment at the last pb_log_pace */
    int64_t paced_position;  /* the size of that segment then */
    pb_producers producers;
    pb_verifications verifications;
    pb_leader_epochs epochs;
    int32_t leader_epoch; /* started by pb_log_start_epoch; -1: none */

    pb_hint hints[PB_HINTS];
    uint32_t next_write_hint;
    uint32_t next_read_hint;

    /* A spare file is made ahead for the next segment. It has no name yet. The thread that exchanges `spare_file` for
     * another value owns the old one. */
    _Atomic int spare_file;      /* -1: none */
    _Atomic int64_t spare_base;  /* base offset of the active segment when making a spare file was last tried */
    _Atomic int64_t spare_bytes; /* disk blocks allocated to the spare file; written before spare_file is set */
    int64_t made_bytes;          /* disk blocks that the newest segment's spare file had; of the thread that rolls */
    pb_engine_state engine_state;
    pb_link removed;      /* of pb_removed */
    int32_t purge_pieces; /* purge truncates files by this many drain pieces at a time; under the maintenance token */
    pb_clean_control clean;

    pb_ring_pool *rings; /* NULL: the log is never hot */
    pb_ring_identity ring_identity;
    pb_hot *hot;                /* NULL: cold */
    pthread_cond_t zeroed;      /* with flush_lock: zeros have been written ahead */
    pthread_mutex_t flush_lock; /* held by the thread that flushes, across I/O; taken before the partition's lock */
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
/* Interpret the `result` of reading `segment`, whose size was `size_bytes` under the lock. No lock. Returns
 * - -ENOENT if the log was truncated or the segment was replaced meanwhile: the caller looks for the offset again;
 * - -ENOENT also if this call has noted that a part of the file is missing or unreadable. The caller looks for the
 *   offset again, and then meets the noted damage;
 * - CORRUPT_MESSAGE if the damage was noted before;
 * - else `result`, or -errno of noting the damage. */
int pb_log_judge_read(pb_log *log, const pb_log_guard *guard, pb_segment *segment, int64_t size_bytes, int result);
/* Sync the .log file of a segment. Any failure is final, because the kernel reports a lost write only once. So an error
 * that looks temporary, such as -ENOMEM, is returned as -EIO, and no caller tries again. */
int pb_log_sync_data(pb_log *log, int file);
/* The end offset of segment `index`: the base offset of the next segment, or the log's written end. [lock] */
int64_t pb_log_segment_end(const pb_log *log, uint32_t index);
/* Compute `sealed_bytes` again after the list of segments has changed. [lock] */
void pb_log_count_sealed(pb_log *log);
/* Make room for all queued rolls and one more segment. [lock] */
int pb_log_reserve_segment(pb_log *log);
/* Open the segment's file if it is not open, and return it in *file. The caller holds a reference on the segment, and
 * not the lock. */
int pb_log_open_segment(pb_log *log, const pb_log_guard *guard, pb_segment *segment, int *file);
/* Make the files of a new active segment, from the spare file if there is one. The segment is not part of the log yet.
 * Blocking, no lock. */
int pb_log_make_segment(pb_log *log, int64_t base_offset, int64_t preallocate_bytes, pb_segment **out);
/* Make the spare file for the segment after the one at `active_base`, with `allocate_bytes` of disk blocks, so that the
 * roll has only to name it. Tries once for each `active_base`; after a failure the roll makes the file. Blocking, on a
 * background thread, no lock. */
void pb_log_make_spare(pb_log *log, int64_t active_base, int64_t allocate_bytes);
void pb_log_drop_spare(pb_log *log);
/* How many bytes of disk blocks may be allocated ahead of need: at most `wanted_bytes`, and at most a part of the free
 * space beyond `reserve_bytes`. Asks the file system, no lock. */
int64_t pb_log_room_ahead(const pb_log *log, int64_t reserve_bytes, int64_t wanted_bytes);
/* Make `segment`, which pb_log_make_segment has made, the active one, and remove its roll from the list. [lock] */
void pb_log_publish_segment(pb_log *log, pb_segment *segment);
/* Queue a roll to a segment that begins at `base_offset`, with a snapshot of the current producer state. [lock] */
int pb_log_plan_roll(pb_log *log, int64_t base_offset);
void pb_roll_free(pb_roll *roll);
/* Drop due snapshots above `end_offset`: their batches were cut off. [lock] */
void pb_log_drop_due_snapshots(pb_log *log, int64_t end_offset);
/* Set `tail` to the active segment as it is written. `first_timestamp_ms` is its first batch's; -1: unknown. [lock] */
void pb_log_reset_tail(pb_log *log, int64_t first_timestamp_ms);

/* Remember a batch boundary. [lock] */
void pb_log_add_write_hint(pb_log *log, int64_t segment_base, int64_t offset, int64_t position);
void pb_log_add_read_hint(pb_log *log, int64_t segment_base, int64_t offset, int64_t position);
void pb_log_clear_hints(pb_log *log);
/* The nearest remembered boundary at or below `offset` in the segment; NULL: none. [lock] */
const pb_hint *pb_log_find_hint(const pb_log *log, int64_t segment_base, int64_t offset);

/* Take and give back the maintenance token. They take the lock themselves. */
int pb_log_begin_maintenance(pb_log *log, const pb_log_guard *guard);
void pb_log_end_maintenance(pb_log *log, const pb_log_guard *guard);
/* Take both the write and the maintenance token, or neither and return -EBUSY. Until they are returned, nothing is
 * queued, written or maintained. */
int pb_log_take_tokens(pb_log *log); /* [lock] */
void pb_log_return_tokens(pb_log *log, const pb_log_guard *guard);
/* The derived files that a flush syncs. */
typedef enum pb_flush_syncs {
    PB_SYNC_SEALED, /* the indexes of sealed segments */
    PB_SYNC_ALL,    /* the indexes of all segments */
    PB_SYNC_LATER,  /* none: the log is about to be closed, and its file system will be synced before and after that */
} pb_flush_syncs;

/* Write due snapshots, pending index entries and the epoch checkpoint to their files. With PB_SYNC_LATER, the epoch
 * checkpoint waits for its rename, see `epochs_aside`. After a permanent failure the log has failed; a failed sync of
 * an index is one. Maintenance token. */
int pb_log_flush_derived(pb_log *log, const pb_log_guard *guard, pb_flush_syncs syncs, pb_failure *failure);
/* Like pb_log_check_files, for a caller that has the maintenance token. 0 with a text in `failure`: a sealed segment's
 * file is too short. */
int pb_log_look_at_files(pb_log *log, const pb_log_guard *guard, pb_failure *failure);
/* Rename each file of a segment to have the suffix `.deleted`; or unlink each file with the suffix `extra`. Missing
 * files are no failure. */
int pb_log_rename_segment_files(pb_log *log, int64_t base_offset);
int pb_log_unlink_segment_files(pb_log *log, int64_t base_offset, const char *extra);
/* Replace a small text file such as leader-epoch-checkpoint: temporary file, sync, rename, sync of the directory. */
int pb_log_replace_file(pb_log *log, const char *name, const char *text, size_t length);
/* The two halves of that: write_aside writes the temporary file, and put_in_place renames it. */
int pb_log_write_aside(pb_log *log, const char *name, const char *text, size_t length, bool sync);
int pb_log_put_in_place(pb_log *log, const char *name);
/* Read a small file of the directory whole; allocates (free()). -ENOENT when missing, -EFBIG above 64 MiB. */
int pb_log_read_file(pb_log *log, const char *name, char **text, size_t *length);
int pb_log_unlink_file(pb_log *log, const char *name);
/* Write the path of the parent of the log's directory to `path`, which has PB_LOG_PATH_BYTES. -ENOENT: the log's path
 * has no slash. */
int pb_log_parent(const pb_log *log, char *path);
/* partition.metadata: compare the topic id, or write it when the file is missing. */
int pb_log_check_topic_id(pb_log *log, const uint8_t *topic_id, pb_failure *failure);
/* The cut note of the last truncation, see log/change/cut_note.c. Load it at open; before a cut to `offset`, write a
 * new one durably. 0 or -errno. */
int pb_log_load_cut_note(pb_log *log);
int pb_log_note_cut(pb_log *log, const pb_log_guard *guard, int64_t offset);
/* The note that a hot log has a ring, see log/engine/ring_note.c. The note exists only while the ring is sealed. It
 * always exists while the ring has bytes that are not in the file. 0 or -errno. */
int pb_log_note_ring(pb_log *log, const pb_tail_ring *ring);
int pb_log_forget_ring_note(pb_log *log);
/* Recover the log at open: its segments, log start offset, ends, epochs and producers. */
int pb_log_recover(pb_log *log, const pb_log_options *options, pb_log_recovery *report, pb_failure *failure);
/* Like pb_fail, with the text "<what> in <directory>". */
int pb_log_fail(pb_log *log, pb_failure *failure, int code, const char *what);

#define PB_EPOCH_CHECKPOINT "leader-epoch-checkpoint"
#define PB_MARK_FILE ".pybroker_mark"
#define PB_CUT_FILE ".pybroker_cut"
#define PB_RING_FILE ".pybroker_ring"

#endif
