/*
 * Recovery, the opening of a log: declarations that only the files of this directory share. recovery.c has the steps,
 * directory.c puts file names in order, and replay.c reads batches.
 */
#ifndef PB_LOG_RECOVER_RECOVERY_H
#define PB_LOG_RECOVER_RECOVERY_H

#include "log/state.h"

typedef struct pb_offsets {
    int64_t *values; /* ascending */
    uint32_t count;
    uint32_t capacity;
} pb_offsets;

/*
 * Finish or undo renames that a stop has interrupted, as Kafka does at start. Files with .deleted and .cleaned are
 * removed. Files with .swap replace the segments that they cover. If a .cleaned file shows that the cleaner had not
 * finished, they are removed instead. Index files without a .log file are removed. `segments` gets the base offsets of
 * the segments that are left, and `snapshots` the offsets of the producer snapshots (free() values).
 */
int pb_directory_load(pb_log *log, pb_offsets *segments, pb_offsets *snapshots, pb_failure *failure);
/* Only list the offsets of the producer snapshots; change nothing. */
int pb_directory_snapshots(pb_log *log, pb_offsets *snapshots, pb_failure *failure);

enum {
    PB_REPLAY_CRC = 1,     /* check every CRC: stop at the first that is wrong */
    PB_REPLAY_INDEXES = 2, /* build the segment's indexes and largest timestamp */
    PB_REPLAY_EPOCHS = 4,
    PB_REPLAY_PRODUCERS = 8,
};

typedef struct pb_replay {
    pb_log *log;
    pb_segment *segment;
    int file;
    int direct; /* the same file, opened with PB_OPEN_DIRECT, for parts that are not in the page cache; -1: none */
    int64_t file_bytes;
    int64_t position;           /* in: where to begin, at a batch. out: where the good batches end */
    int64_t next_offset;        /* in: the least offset of the next batch. out: the offset behind the last good batch */
    int64_t first_timestamp_ms; /* in: -1. out: the timestamp of the first batch replayed; -1: none */
    int64_t old_magic_offset;   /* in: -1. out: the offset of the first batch older than magic 2; -1: none */
    int64_t indexed_position;   /* the position of the last index entry; in: where to begin */
    bool gaps_seen;             /* in: false. out: offsets are missing between batches, so this log was compacted */
    bool newest_seen;           /* in: false; true: a batch of the newest magic lies before `position` */
    int flags;
    uint8_t *buffer; /* aligned for direct reads if `direct` is used */
    size_t buffer_bytes;
} pb_replay;

/* Read the batches from `position` on. Stops at the file's end or at the first bad batch. May be called again after
 * pb_replay_skip. 0 or -errno. */
int pb_replay_run(pb_replay *replay);
/* After a run that stopped at a bad batch: go on to the next intact batch whose offsets are at most `most_offset`.
 * *damage describes the part that is skipped. Returns 1; 0 if there is no such batch, and then damage->end_position is
 * the file's end; or -errno. */
int pb_replay_skip(pb_replay *replay, int64_t most_offset, pb_damage *damage);

/* Build the producer state at `end_offset`: load the newest good snapshot at or below it, and replay the batches from
 * there on. Then swap the new state in under the lock. After a failure the log keeps its old producer state. */
int pb_replay_producers(pb_log *log, const pb_log_guard *guard, int64_t end_offset, pb_failure *failure);

#endif
