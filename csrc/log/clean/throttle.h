/*
 * How fast all cleaners of a broker together may read and write (log.cleaner.io.max.bytes.per.second). Shared by their
 * threads; the rate may change at any time. Each caller sleeps until its bytes are due, in short naps, so that it can
 * be told to stop.
 */
#ifndef PB_LOG_CLEAN_THROTTLE_H
#define PB_LOG_CLEAN_THROTTLE_H

#include <stdatomic.h>
#include <stdint.h>

#include "io/io.h"

/* Zeroed: no limit. */
typedef struct pb_clean_throttle {
    _Atomic int64_t bytes_per_second; /* 0: no limit */
    _Atomic int64_t due_ns;           /* when what has been asked for so far is paid off, on the monotonic clock */
} pb_clean_throttle;

/* Account for `bytes` that were read or written, and wait until they are due or `*cancelled` is set. Any thread that
 * may sleep. */
void pb_clean_throttle_wait(pb_clean_throttle *throttle, pb_io *io, int64_t bytes, const atomic_bool *cancelled);

#endif
