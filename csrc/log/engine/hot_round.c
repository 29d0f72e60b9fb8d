/*
 * A sync of a hot log that is one durable write, which a loop can make: no thread has to wait for it. The ring's bytes
 * go into blocks that were filled with zeros before, so that the file system has nothing to write besides. See hot.h;
 * everything here is the reactor's that has the sync under way, and nobody else flushes meanwhile.
 */
#include <errno.h>

#include "base/assert.h"
#include "log/state.h"

enum { WRITE_BYTES = 2 << 20 /* more is gathered only while something is amiss */ };

/* May all that is in the ring be written where it belongs, without waiting for anybody? [lock] */
static bool is_one_write(pb_log *log, int64_t end)
{
    pb_hot *hot = log->hot;
    /* A thread that flushes beside us, or is about to write zeros, has it for moments. */
    if (pthread_mutex_trylock(&log->flush_lock) != 0)
        return false;
    int64_t start = pb_block_floor(hot->flushed_end);
    bool result = !hot->unsynced && end > start && end - start <= WRITE_BYTES && start >= hot->zeroed_position &&
                  end <= atomic_load(&hot->zeroed_end) && (hot->zeroing_position < 0 || end <= hot->zeroing_position);
    pthread_mutex_unlock(&log->flush_lock);
    return result;
}

bool pb_log_sync_begin_write(pb_log *log, pb_log_sync_round *round, pb_log_sync_write *write)
{
    pb_hot *hot = log->hot;
    const pb_segment *active = pb_log_active(log);
    if (hot == NULL || hot->segment != active || log->durable_end < active->base_offset || log->directory_dirty)
        return false;
    int64_t end = pb_tail_ring_end(hot->ring);
    if (!is_one_write(log, end) || !pb_log_sync_begin(log, round))
        return false;
    pb_hot_count_round(hot, end);
    *write = (pb_log_sync_write){.file = hot->file, .position = pb_block_floor(hot->flushed_end), .end = end};
    write->iov_count = pb_hot_gather(hot, write->position, end, hot->last_block, write->iov, &write->length);
    return true;
}

uint64_t pb_log_flush_device(const pb_log *log)
{
    const pb_hot *hot = log->hot;
    if (hot == NULL || atomic_load(&hot->round_bytes) >= PB_LARGE_ROUND_BYTES)
        return 0;
    int64_t zeroed_end = atomic_load(&hot->zeroed_end);
    return zeroed_end < INT64_MAX && pb_tail_ring_end(hot->ring) <= zeroed_end ? atomic_load(&hot->device) : 0;
}

int pb_log_make_flush_file(const pb_log *log)
{
    const pb_io_ops *ops = log->io->ops;
    char path[PB_LOG_PATH_BYTES];
    int rc = pb_log_parent(log, path);
    if (rc != 0)
        return rc;
    int file = ops->file_make_unnamed(log->io, path);
    if (file >= 0 && ops->file_flush_device(log->io, file) != atomic_load(&log->hot->device)) {
        ops->file_close(log->io, file);
        return -EXDEV;
    }
    return file;
}

int pb_log_sync_end_write(pb_log *log, const pb_log_sync_write *write, int64_t result)
{
    pb_hot *hot = log->hot;
    PB_ASSERT(log->syncing && hot != NULL && hot->file == write->file);
    if (result != write->length)
        return result < 0 ? (int)result : -EIO;
    pb_hot_flushed(hot, write->end, true);
    return 0;
}
