/*
 * A scratch is an unnamed file (O_TMPFILE) in which reads, writes and syncs are timed, to measure a disk.
 *
 * The file disappears with the process, even after a kill. On a file system without O_TMPFILE, a named file is made and
 * unlinked at once; a kill between the two leaves an empty file. Runs block. Several threads may use one scratch at
 * once, each on its own range. Owner: the caller, from create to destroy.
 *
 * The times include the file system and the page cache, as they do in a broker. If the file system has no direct I/O,
 * runs with `is_direct` fail with -EINVAL.
 */
#ifndef PB_MEASURE_SCRATCH_H
#define PB_MEASURE_SCRATCH_H

#include "measure/meter.h"

typedef struct pb_scratch pb_scratch;

enum pb_scratch_operation {
    PB_SCRATCH_WRITE = 1,
    PB_SCRATCH_WRITE_DURABLE = 2, /* each write is durable when it returns */
    PB_SCRATCH_WRITE_SYNC = 3,    /* each write is followed by a sync; one time for both */
    PB_SCRATCH_SYNC = 4,          /* like WRITE_SYNC, but only the syncs are timed, and no bytes are counted */
    PB_SCRATCH_READ = 5,
};

/* One run over the range [position, position + length). It begins again at `position` when it reaches the end. */
typedef struct pb_scratch_run {
    enum pb_scratch_operation operation;
    bool is_direct;    /* direct I/O; block_bytes and position must be multiples of PB_DIRECT_BLOCK_BYTES */
    bool is_random;    /* the blocks in random order */
    bool syncs_at_end; /* WRITE: one sync at the end, whose time counts too */
    int64_t block_bytes;
    int64_t position;
    int64_t length;     /* a multiple of block_bytes */
    int64_t pace_bytes; /* WRITE in order: after each so many bytes, start their writeback and drop older ones; 0: no */
    pb_meter_limits limits;
} pb_scratch_run;

/* Make a scratch in an existing directory. */
int pb_scratch_create(pb_io *io, const char *directory, pb_scratch **out, pb_failure *failure);
void pb_scratch_destroy(pb_scratch *scratch);
/* Make a run. 0 or -errno. -ENODATA: a read behind the end of the file. */
int pb_scratch_measure(pb_scratch *scratch, const pb_scratch_run *run, pb_meter_result *out, pb_failure *failure);
/* Sync the file, and drop all of it from the page cache. */
int pb_scratch_drop(pb_scratch *scratch, pb_failure *failure);
/* The file descriptor, for sendfile. The scratch owns it. */
int pb_scratch_file(const pb_scratch *scratch);

#endif
