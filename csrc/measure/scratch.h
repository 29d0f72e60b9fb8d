/*
 * A file without a name, for measuring what a disk and the page cache do.
 *
 * Nothing of it is left, whatever becomes of the process. The exception are file systems without unnamed files: there a
 * kill between making and unlinking leaves an empty one. Runs block; several threads may run on one scratch at once,
 * over ranges of their own. Owner: the caller, from create to destroy.
 *
 * The figures include the work of the file system and the cache, as a broker's would. A file system may refuse to go
 * past the page cache; runs that ask for it then fail with -EINVAL.
 */
#ifndef PB_MEASURE_SCRATCH_H
#define PB_MEASURE_SCRATCH_H

#include "measure/meter.h"

typedef struct pb_scratch pb_scratch;

enum pb_scratch_operation {
    PB_SCRATCH_WRITE = 1,
    PB_SCRATCH_WRITE_DURABLE = 2, /* each write is durable when it returns */
    PB_SCRATCH_WRITE_SYNC = 3,    /* each write is followed by a sync, and timed with it */
    PB_SCRATCH_SYNC = 4,          /* as WRITE_SYNC, but only the syncs are timed, and no bytes are counted */
    PB_SCRATCH_READ = 5,
};

/* One run over [position, position + length), from its begin again when the end is reached. */
typedef struct pb_scratch_run {
    enum pb_scratch_operation operation;
    bool is_direct;    /* past the page cache; block and position are then multiples of PB_DIRECT_BLOCK_BYTES */
    bool is_random;    /* blocks in no order */
    bool syncs_at_end; /* WRITE: one sync at the end, which counts into the time */
    int64_t block_bytes;
    int64_t position;
    int64_t length;     /* a multiple of block_bytes */
    int64_t pace_bytes; /* WRITE, in order: after so many bytes writeback begins, and what is well behind is dropped */
    pb_meter_limits limits;
} pb_scratch_run;

/* In an existing directory. */
int pb_scratch_create(pb_io *io, const char *directory, pb_scratch **out, pb_failure *failure);
void pb_scratch_destroy(pb_scratch *scratch);
/* 0 or -errno. A read behind the end of the file is -ENODATA. */
int pb_scratch_measure(pb_scratch *scratch, const pb_scratch_run *run, pb_meter_result *out, pb_failure *failure);
/* Write everything back, then forget all of it in the page cache. */
int pb_scratch_drop(pb_scratch *scratch, pb_failure *failure);
/* For sendfile; the scratch owns it. */
int pb_scratch_file(const pb_scratch *scratch);

#endif
