/*
 * Shared by the parts of opening a log: recovery.c and the files beside (the steps), directory.c (names), replay.c
 * (batches).
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
 * Makes names right as Kafka does at start. Files with .deleted and .cleaned go. Files with .swap take the place of the
 * segments they cover, or go when a .cleaned file shows that the cleaner had not finished. Index files without .log go.
 * `segments` and `snapshots` get the base offsets that are left (free() values).
 */
int pb_directory_load(pb_log *log, pb_offsets *segments, pb_offsets *snapshots, pb_failure *failure);
/* The offsets of the snapshot files alone. */
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
    int direct; /* the same file, opened with PB_OPEN_DIRECT, to read what is not in memory; -1: none */
    int64_t file_bytes;
    int64_t position;           /* in: where to begin, at a batch. out: where the good batches end */
    int64_t next_offset;        /* in: batches below have been seen, or base offset. out: behind the last good batch */
    int64_t first_timestamp_ms; /* in: -1. out: of the first batch replayed; -1 none */
    int64_t old_magic_offset;   /* in: -1. out: of the first batch older than magic 2; -1 none */
    int64_t indexed_position;   /* in: where to begin. The position of the last index entry */
    bool gaps_seen;             /* in: false. out: offsets are missing, so this log was compacted */
    bool newest_seen;           /* in: false; true: a batch of the newest magic lies before `position` */
    int flags;
    uint8_t *buffer; /* with `direct` it is aligned for it */
    size_t buffer_bytes;
} pb_replay;

/* Walk the batches; stops at the file's end or at the first bad batch. May be called again after a skip. 0 or -errno.
 */
int pb_replay_run(pb_replay *replay);
/* Where a run has stopped: move to the next intact batch whose offsets are at most `most_offset`. *damage says what was
 * passed over. 1 moved, 0 there is none (damage->end_position: the file's end), or -errno. */
int pb_replay_skip(pb_replay *replay, int64_t most_offset, pb_damage *damage);

/* Producer state below `end_offset`: the newest good snapshot at or below it, and the batches in between. It takes the
 * place of what there is at once, or after a failure not at all. */
int pb_replay_producers(pb_log *log, const pb_log_guard *guard, int64_t end_offset, pb_failure *failure);

#endif
