/*
 * Zeros ahead of a hot log with durable acks, so that a round of them finds blocks that were written before, and the
 * file system has nothing to write besides. See hot.h; a background thread writes them, beside flushes further down.
 */
#include "log/engine/hot.h"

#include <errno.h>

#include "base/assert.h"
#include "log/state.h"

enum {
    ZERO_BYTES = 16 << 20,       /* so much is filled with zeros at once, */
    ZERO_FIRST_BYTES = 2 << 20,  /* in a segment's beginning this, where syncs have to wait for it, */
    ZERO_AHEAD_BYTES = 6 << 20,  /* when less than this is left of the last, */
    ZERO_FAR_BYTES = 24 << 20,   /* or than this where syncs are large: as much comes while zeros are written */
    ZERO_MARGIN_BYTES = 1 << 20, /* and so much may be flushed meanwhile */
    ZERO_LARGE_WRITE = 8,        /* times PB_ZEROS_BYTES in one write beside large rounds, and one beside small ones, */
    ZERO_TIMES_AS_FAST = 4,      /* no faster than that many times what is flushed meanwhile, */
    ZERO_NAP_NS = 250000,        /* which is waited for, */
    ZERO_NAPS = 4,               /* but not for long, */
    ZERO_CROWD = 4               /* nor while more logs than that wait for the thread */
};

/* How much is filled next, up to the segment's end, and from where on. 0: nothing for now. */
static int64_t next_zeros(const pb_hot *hot, int64_t *position)
{
    int64_t end = pb_tail_ring_end(hot->ring);
    int64_t zeroed_end = atomic_load(&hot->zeroed_end);
    int64_t round_bytes = atomic_load(&hot->round_bytes);
    int64_t ahead = round_bytes < PB_LARGE_ROUND_BYTES ? ZERO_AHEAD_BYTES : ZERO_FAR_BYTES;
    if (round_bytes >= PB_HUGE_ROUND_BYTES || zeroed_end - end >= ahead)
        return 0;
    int64_t first = pb_block_floor(end) + ZERO_MARGIN_BYTES;
    *position = first < zeroed_end ? zeroed_end : first;
    int64_t left = atomic_load(&hot->bound) - *position;
    return left >= ZERO_BYTES ? ZERO_BYTES : left > 0 ? left : 0;
}

bool pb_log_wants_zeros(const pb_log *log)
{
    const pb_hot *hot = log->hot;
    int64_t position;
    return hot != NULL && next_zeros(hot, &position) > 0;
}

/* Under flush_lock: what is about to be filled, with its blocks, and the file for it. It may have become nothing
 * meanwhile. */
static int begin_zeros(const pb_log *log, pb_hot *hot, int *file)
{
    int64_t position = 0;
    PB_ASSERT(hot->zeroing_position < 0);
    int64_t length = next_zeros(hot, &position);
    int64_t zeroed_end = atomic_load(&hot->zeroed_end);
    int64_t most = position == zeroed_end ? zeroed_end - hot->zeroed_position : 0; /* as much again as there is */
    if (most < ZERO_FIRST_BYTES)
        most = ZERO_FIRST_BYTES;
    hot->zeroing_bytes = length < most ? length : most;
    if (length == 0)
        return 0;
    hot->zeroing_position = position;
    /* A handle is told of a failure once, and hot->file's is for the round beside us. */
    *file = pb_segment_open_direct(hot->segment, PB_OPEN_WRITE);
    return *file < 0 ? *file : pb_hot_allocate_to(log, hot, position + hot->zeroing_bytes);
}

/* Under flush_lock: they are written, or cannot be. Without them all is only slower; a disk that fails says so at the
 * next flush. */
static void end_zeros(pb_log *log, pb_hot *hot, bool written)
{
    if (!written || hot->zeroing_position != atomic_load(&hot->zeroed_end))
        hot->zeroed_position = written ? hot->zeroing_position : INT64_MAX;
    atomic_store(&hot->zeroed_end, written ? hot->zeroing_position + hot->zeroing_bytes : INT64_MAX);
    hot->zeroing_position = -1;
    atomic_store(&hot->zeros_awaited, false);
    pthread_cond_broadcast(&log->zeroed);
}

static int write_some(const pb_log *log, int file, const uint8_t *zeros, int64_t length, int64_t position)
{
    struct iovec iov[ZERO_LARGE_WRITE];
    int count = 0;
    for (int64_t left = length; left > 0; left -= PB_ZEROS_BYTES)
        iov[count++] =
            (struct iovec){(void *)(uintptr_t)zeros, (size_t)(left < PB_ZEROS_BYTES ? left : PB_ZEROS_BYTES)};
    return pb_io_write_all(log->io, file, iov, count, position);
}

/* A sync makes the disk write everything it has cached, so a small round that meets many zeros takes as long as they
 * do: 2 ms instead of 0.2. Each meets a few. */
static void pace_zeros(const pb_log *log, const pb_hot *hot, const atomic_int *others, int64_t begin, int64_t done)
{
    for (int i = 0; i < ZERO_NAPS; i++) {
        int64_t end = pb_tail_ring_end(hot->ring);
        bool awaited = atomic_load(&hot->zeros_awaited) || (others != NULL && atomic_load(others) > ZERO_CROWD);
        bool close = hot->zeroing_position - end < ZERO_MARGIN_BYTES / 2; /* syncs would have to wait */
        if (awaited || close || (end - begin) * ZERO_TIMES_AS_FAST >= done)
            return;
        log->io->ops->nap(log->io, ZERO_NAP_NS);
    }
}

void pb_log_hurry_zeros(pb_log *log)
{
    if (log->hot != NULL)
        atomic_store(&log->hot->zeros_awaited, true);
}

/* Beside flushes below. The size first: a write that moves it keeps all others of the file waiting. Beside large
 * rounds, which take as long as many zeros anyway, fewer writes spare the CPU. */
static int write_zeros(const pb_log *log, const pb_hot *hot, int file, const atomic_int *others)
{
    const pb_io_ops *ops = log->io->ops;
    const uint8_t *zeros = ops->zeros(log->io);
    int rc = zeros == NULL ? -ENOMEM : 0;
    if (rc == 0)
        rc = ops->file_truncate(log->io, file, hot->zeroing_position + hot->zeroing_bytes);
    int64_t begin = pb_tail_ring_end(hot->ring);
    for (int64_t done = 0, part; rc == 0 && done < hot->zeroing_bytes; done += part) {
        int64_t left = hot->zeroing_bytes - done;
        bool small = atomic_load(&hot->round_bytes) < PB_LARGE_ROUND_BYTES;
        int64_t most = (small ? 1 : ZERO_LARGE_WRITE) * PB_ZEROS_BYTES;
        part = left < most ? left : most;
        rc = write_some(log, file, zeros, part, hot->zeroing_position + done);
        pace_zeros(log, hot, others, begin, done + part);
    }
    return rc;
}

int pb_log_write_zeros(pb_log *log, const pb_log_guard *guard, const atomic_int *others)
{
    int64_t end;
    pb_hot *hot = pb_hot_begin_flush(log, guard, &end);
    if (hot == NULL)
        return 0;
    int file = -1;
    int rc = begin_zeros(log, hot, &file);
    bool begun = hot->zeroing_bytes > 0;
    pthread_mutex_unlock(&log->flush_lock);
    if (!begun)
        return 0;
    if (rc == 0)
        rc = write_zeros(log, hot, file, others);
    int sync_rc = 0;
    if (file >= 0) { /* so that no round has to wait for what the zeros have changed */
        sync_rc = pb_log_sync_data(log, file);
        log->io->ops->file_close(log->io, file);
    }
    pthread_mutex_lock(&log->flush_lock);
    end_zeros(log, hot, rc == 0 && sync_rc == 0);
    return pb_hot_end_flush(log, guard, sync_rc);
}
