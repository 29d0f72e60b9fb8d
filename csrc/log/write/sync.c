/*
 * Making a log durable. A round begins under the lock with what is written by then, syncs without it, and ends under
 * it. Any background thread, one round at a time, beside appends and reads. Rounds exclude each other because a file
 * tells one sync only that it could not be written: another one beside it would call lost bytes durable. For the same
 * reason a sync that fails ends the log's life: the kernel may call the lost pages clean, and a second sync would lie.
 */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "log/state.h"

bool pb_log_sync_begin(pb_log *log, pb_log_sync_round *round)
{
    memset(round, 0, sizeof(*round));
    PB_ASSERT(!log->syncing);
    if (log->failed)
        return false;
    round->cut_count = log->cut_count;
    round->target = log->durable_end;
    round->directory = log->directory_dirty;
    log->directory_dirty = false;
    log->syncing = true;
    round->in_ring = log->hot != NULL;
    int floor = pb_log_segment_floor(log, log->durable_end);
    for (uint32_t i = floor < 0 ? 0 : (uint32_t)floor; i < log->segment_count; i++) {
        if (pb_log_segment_end(log, i) <= log->durable_end)
            continue;
        if (round->count == PB_SYNC_SEGMENTS) {
            round->more = true;
            break;
        }
        pb_segment_retain(log->segments[i]);
        round->segments[round->count++] = log->segments[i];
        round->target = pb_log_segment_end(log, i);
    }
    return true;
}

int pb_log_sync_data(pb_log *log, int file)
{
    int rc = pb_io_sync(log->io, file);
    if (rc == 0)
        return 0;
    return pb_error_passes(rc) && rc != -ENOSPC && rc != -EDQUOT ? -EIO : rc;
}

/* One segment. Deleted meanwhile, or replaced by one that is synced, it needs none. */
static int sync_segment(pb_log *log, const pb_log_guard *guard, pb_segment *segment)
{
    int file;
    bool done;
    int rc = pb_log_flush_durable(log, guard, segment, &done);
    if (rc != 0 || done)
        return rc;
    rc = pb_log_open_segment(log, guard, segment, &file);
    if (rc != 0)
        return rc == -ENOENT && atomic_load(&segment->names) == PB_NAMES_GONE ? 0 : rc;
    return pb_log_sync_data(log, file);
}

int pb_log_sync_run(pb_log *log, const pb_log_guard *guard, pb_log_sync_round *round, pb_failure *failure)
{
    int rc = round->directory ? log->io->ops->directory_sync(log->io, log->directory) : 0;
    for (int i = 0; rc == 0 && i < round->count; i++)
        rc = sync_segment(log, guard, round->segments[i]);
    return rc == 0 ? 0 : pb_log_fail(log, failure, rc, "cannot sync the log");
}

void pb_log_sync_end(pb_log *log, pb_log_sync_round *round, int result)
{
    PB_ASSERT(log->syncing);
    log->syncing = false;
    if (result != 0)
        log->directory_dirty = log->directory_dirty || round->directory;
    if (result == 0 && log->cut_count == round->cut_count && round->target > log->durable_end)
        log->durable_end = round->target;
    else if (result != 0 && result != -EMFILE && result != -ENFILE && result != -ENOMEM)
        log->failed = true;
}

void pb_log_sync_release(pb_log_sync_round *round)
{
    for (int i = 0; i < round->count; i++)
        pb_segment_release(round->segments[i]);
    round->count = 0;
}

int pb_log_sync(pb_log *log, const pb_log_guard *guard, pb_failure *failure)
{
    pb_log_sync_round round;
    do {
        pb_log_lock(guard);
        bool busy = log->syncing;
        bool begun = !busy && pb_log_sync_begin(log, &round);
        pb_log_unlock(guard);
        if (busy)
            return pb_log_fail(log, failure, -EBUSY, "another sync is under way. Cannot sync");
        if (!begun)
            return pb_log_fail(log, failure, -EIO, "an earlier sync failed; open the log again. Cannot sync");
        int rc = pb_log_sync_run(log, guard, &round, failure);
        pb_log_lock(guard);
        pb_log_sync_end(log, &round, rc);
        pb_log_unlock(guard);
        pb_log_sync_release(&round);
        if (rc != 0)
            return rc;
    } while (round.more);
    return 0;
}
