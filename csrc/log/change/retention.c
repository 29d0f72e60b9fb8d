/*
 * The front of a log: start offset, deletion of segments, and the roll that retention asks for. Python decides when;
 * this does it. Blocking parts run without the lock under the maintenance token.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/kafka_error.h"
#include "log/state.h"

enum {
    PURGE_MOST_PIECES = 16,       /* at a time: larger ones hold up a write for longer than they help */
    PURGE_LEAD_PERCENT = 125,     /* of what others take of the disk meanwhile shall go, at least, */
    PURGE_FAR_LEAD_PERCENT = 400, /* and no more than this, if smaller pieces do */
};

int pb_log_set_start_offset(pb_log *log, int64_t offset)
{
    if (offset < 0 || offset > log->written_end)
        return PB_OFFSET_OUT_OF_RANGE;
    if (offset <= log->start_offset)
        return 0;
    log->start_offset = offset;
    pb_leader_epochs_truncate_start(&log->epochs, offset);
    return 0;
}

/* Other names may take a block of the directory, which a full disk does not have. Then the files go at once, and not
 * after file.delete.delay.ms: readers keep those that they have open. */
static int put_away(pb_log *log, int64_t base_offset)
{
    int rc = pb_log_rename_segment_files(log, base_offset);
    return pb_error_is_full(rc) ? pb_log_unlink_segment_files(log, base_offset, "") : rc;
}

/* The first segment, when it lies wholly below the start offset and is not active; off the list, its reference passes
 * on. */
static pb_segment *take_deletable(pb_log *log, const pb_log_guard *guard)
{
    pb_segment *segment = NULL;
    pb_log_lock(guard);
    if (log->segment_count > 1 && log->segments[1]->base_offset <= log->start_offset) {
        segment = log->segments[0];
        atomic_store(&segment->names, PB_NAMES_GONE);
        log->segment_count--;
        log->sealed_bytes -= segment->size_bytes;
        memmove(log->segments, log->segments + 1, log->segment_count * sizeof(*log->segments));
    }
    pb_log_unlock(guard);
    return segment;
}

int pb_log_delete_segments(pb_log *log, const pb_log_guard *guard, int *deleted_count, pb_failure *failure)
{
    *deleted_count = 0;
    int rc = pb_log_begin_maintenance(log, guard);
    if (rc != 0)
        return pb_log_fail(log, failure, rc, "other upkeep is under way");
    for (;;) {
        pb_removed *removed = calloc(1, sizeof(*removed));
        pb_segment *segment = removed != NULL ? take_deletable(log, guard) : NULL;
        if (segment == NULL) {
            rc = removed == NULL ? pb_log_fail(log, failure, -ENOMEM, "cannot delete segments") : 0;
            free(removed);
            break;
        }
        removed->base_offset = segment->base_offset;
        removed->size_bytes = segment->size_bytes;
        removed->removed_ms = log->io->ops->wall_ms(log->io);
        pb_list_init(&removed->link);
        pb_list_push_back(&log->removed, &removed->link);
        rc = put_away(log, segment->base_offset);
        pb_segment_release(segment);
        if (rc != 0) {
            rc = pb_log_fail(log, failure, rc, "cannot rename the files of a deleted segment");
            break;
        }
        (*deleted_count)++;
    }
    pb_log_end_maintenance(log, guard);
    return rc;
}

/* Adjusts the piece size after each deleted file: larger when the disk filled faster than we freed it, smaller when we
 * freed far more than was written. Logs that are written faster than they go would fill the disk, whatever their
 * retention; and little pieces, no faster than they have to go, disturb least. */
static void pace_purge(pb_log *log, int64_t gone_bytes, int64_t taken_bytes)
{
    if (taken_bytes * PURGE_LEAD_PERCENT / 100 > gone_bytes && log->purge_pieces < PURGE_MOST_PIECES)
        log->purge_pieces *= 2;
    else if (taken_bytes * PURGE_FAR_LEAD_PERCENT / 100 < gone_bytes && log->purge_pieces > 1)
        log->purge_pieces /= 2;
}

/* So that the disk is not kept from everybody else while its blocks become free. A reader that is still at it keeps the
 * file whole. A power cut must not find what was cut under the name that it had before, which then is a segment. */
static int drain_removed(pb_log *log, const pb_removed *removed)
{
    const pb_io_ops *ops = log->io->ops;
    char path[PB_LOG_PATH_BYTES];
    int rc = pb_segment_path(path, log->directory, removed->base_offset, PB_FILE_LOG, ".deleted");
    if (rc != 0 || ops->path_size(log->io, path) <= ops->drain_bytes)
        return rc;
    rc = ops->directory_sync(log->io, log->directory);
    if (rc != 0)
        return rc;
    int64_t taken_bytes;
    if (ops->path_drain(log->io, path, ops->drain_bytes * log->purge_pieces, &taken_bytes) == 0)
        pace_purge(log, removed->size_bytes, taken_bytes);
    return 0;
}

int pb_log_purge(pb_log *log, const pb_log_guard *guard, int64_t older_than_ms, pb_failure *failure)
{
    int rc = pb_log_begin_maintenance(log, guard);
    if (rc != 0)
        return pb_log_fail(log, failure, rc, "other upkeep is under way");
    while (rc == 0 && !pb_list_empty(&log->removed)) {
        pb_removed *removed = PB_CONTAINER(log->removed.next, pb_removed, link);
        if (removed->removed_ms >= older_than_ms)
            break;
        rc = drain_removed(log, removed);
        if (rc == 0)
            rc = pb_log_unlink_segment_files(log, removed->base_offset, ".deleted");
        if (rc != 0) {
            rc = pb_log_fail(log, failure, rc, "cannot unlink the files of a deleted segment");
            break;
        }
        pb_list_remove(&removed->link);
        free(removed);
    }
    pb_log_end_maintenance(log, guard);
    return rc;
}

int pb_log_roll(pb_log *log, const pb_log_guard *guard, pb_failure *failure)
{
    pb_log_lock(guard);
    int rc = pb_log_take_tokens(log);
    if (rc != 0) {
        pb_log_unlock(guard);
        return pb_log_fail(log, failure, rc, "appends or upkeep are under way");
    }
    /* Planned under the same hold of the lock: an append in between would have its place in the old segment. */
    /* An empty active segment is as good as a new one. A roll may be queued already, by an append that then failed. */
    bool due = pb_log_active(log)->size_bytes > 0;
    if (due && log->queued_roll_count == 0)
        rc = pb_log_plan_roll(log, log->appended_end);
    const pb_roll *roll = PB_CONTAINER(log->rolls.next, pb_roll, link);
    int64_t base_offset = due && rc == 0 ? roll->base_offset : -1;
    int64_t preallocate_bytes = log->config.preallocate ? log->config.segment_bytes : 0;
    pb_log_unlock(guard);
    pb_segment *segment = NULL;
    if (rc == 0)
        rc = pb_log_cool_held(log, guard, NULL);
    if (rc == 0 && base_offset >= 0)
        rc = pb_log_make_segment(log, base_offset, preallocate_bytes, &segment);
    if (segment != NULL) {
        pb_log_lock(guard);
        pb_log_publish_segment(log, segment);
        pb_log_unlock(guard);
    }
    pb_log_return_tokens(log, guard);
    return rc == 0 ? 0 : pb_log_fail(log, failure, rc, "cannot make a new segment");
}
