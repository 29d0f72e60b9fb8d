/*
 * Setting marks; see mark.h. A mark is written last, when all that it speaks of is synced.
 */
#include "log/recover/mark.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "cpu/crc32c.h"
#include "log/derived/producer_snapshot.h"
#include "log/state.h"
#include "record/bytes.h"

enum {
    MARK_VERSION = 0,
    MARK_CRC_POSITION = 2,
    MARK_OFFSET_POSITION = 6, /* the CRC covers from here on */
    MARK_COUNTS_POSITION = 30,
};

void pb_mark_format(const pb_mark *mark, uint8_t *bytes)
{
    pb_be16_store(bytes, MARK_VERSION);
    pb_be64_store(bytes + MARK_OFFSET_POSITION, (uint64_t)mark->offset);
    pb_be64_store(bytes + MARK_OFFSET_POSITION + 8, (uint64_t)mark->base_offset);
    pb_be64_store(bytes + MARK_OFFSET_POSITION + 16, (uint64_t)mark->position);
    for (size_t i = 0; i < PB_MARK_INDEXES; i++)
        pb_be32_store(bytes + MARK_COUNTS_POSITION + i * 4, mark->entry_counts[i]);
    pb_be32_store(bytes + MARK_CRC_POSITION,
                  pb_crc32c(0, bytes + MARK_OFFSET_POSITION, PB_MARK_BYTES - MARK_OFFSET_POSITION));
}

bool pb_mark_parse(const uint8_t *bytes, size_t length, pb_mark *mark)
{
    if (length != PB_MARK_BYTES || pb_be16_load(bytes) != MARK_VERSION ||
        pb_be32_load(bytes + MARK_CRC_POSITION) !=
            pb_crc32c(0, bytes + MARK_OFFSET_POSITION, PB_MARK_BYTES - MARK_OFFSET_POSITION))
        return false;
    mark->offset = (int64_t)pb_be64_load(bytes + MARK_OFFSET_POSITION);
    mark->base_offset = (int64_t)pb_be64_load(bytes + MARK_OFFSET_POSITION + 8);
    mark->position = (int64_t)pb_be64_load(bytes + MARK_OFFSET_POSITION + 16);
    for (size_t i = 0; i < PB_MARK_INDEXES; i++)
        mark->entry_counts[i] = pb_be32_load(bytes + MARK_COUNTS_POSITION + i * 4);
    return mark->base_offset >= 0 && mark->offset > mark->base_offset && mark->position > 0;
}

int pb_log_mark_begin(pb_log *log, pb_mark_plan *plan)
{
    *plan = (pb_mark_plan){.cut_count = log->cut_count};
    /* A cut brings the tail up to date last. At a segment's very start a sync alone says as much. */
    if (log->maintaining || log->failed || log->tail.size_bytes == 0)
        return 0;
    plan->mark.offset = log->appended_end;
    plan->mark.base_offset = log->tail.base_offset;
    plan->mark.position = log->tail.size_bytes;
    plan->snapshot = pb_producer_snapshot_format(&log->producers, &plan->snapshot_length);
    return plan->snapshot == NULL ? -ENOMEM : 0;
}

void pb_log_mark_release(pb_mark_plan *plan)
{
    free(plan->snapshot);
    plan->snapshot = NULL;
}

/* The segment of the mark, with a reference; NULL: the log has become another one, or has not got so far. */
static pb_segment *find_segment(pb_log *log, const pb_log_guard *guard, const pb_mark_plan *plan)
{
    pb_segment *found = NULL;
    pb_log_lock(guard);
    int index = pb_log_segment_floor(log, plan->mark.base_offset);
    bool stands = !log->failed && log->cut_count == plan->cut_count && log->durable_end >= plan->mark.offset;
    if (stands && index >= 0 && log->segments[index]->base_offset == plan->mark.base_offset)
        found = log->segments[index];
    if (found != NULL)
        pb_segment_retain(found);
    pb_log_unlock(guard);
    return found;
}

/* How many entries each index has below the mark. All of those are in the files. */
static int count_entries(const pb_log_guard *guard, pb_segment *segment, pb_mark *mark)
{
    int64_t rc = 0;
    for (int kind = PB_FILE_OFFSET_INDEX; rc >= 0 && kind <= PB_FILE_TRANSACTION_INDEX; kind++) {
        uint32_t entry_bytes;
        pb_log_lock(guard);
        uint32_t count = pb_segment_index(segment, (pb_file_kind)kind, &entry_bytes)->flushed_count;
        pb_log_unlock(guard);
        rc = pb_segment_flushed_below(segment, (pb_file_kind)kind, count, mark->offset);
        if (rc >= 0)
            mark->entry_counts[kind - PB_FILE_OFFSET_INDEX] = (uint32_t)rc;
    }
    return rc < 0 ? (int)rc : 0;
}

/* The snapshot of a mark that is none any more, unless it has other uses. */
static int drop_snapshot(pb_log *log, const pb_log_guard *guard, int64_t offset)
{
    pb_log_lock(guard);
    int index = pb_log_segment_floor(log, offset);
    bool is_used = offset == log->snapshot_offset || (index >= 0 && log->segments[index]->base_offset == offset);
    pb_log_unlock(guard);
    if (is_used)
        return 0;
    char path[PB_LOG_PATH_BYTES];
    int rc = pb_segment_path(path, log->directory, offset, PB_FILE_SNAPSHOT, "");
    if (rc == 0)
        rc = log->io->ops->unlink(log->io, path);
    return rc == -ENOENT ? 0 : rc;
}

/* A mark that may be in its place, or not for good, is one that nobody would drop. */
static int replace_mark(pb_log *log, const uint8_t *bytes)
{
    int rc = pb_log_replace_file(log, PB_MARK_FILE, (const char *)bytes, PB_MARK_BYTES);
    int dropped = rc == 0 ? 0 : pb_log_drop_mark(log);
    /* Told as what ends the log. */
    return dropped != 0 ? -EIO : rc;
}

/* Under the token; all that lies below the mark is durable. */
static int set_mark(pb_log *log, const pb_log_guard *guard, pb_segment *segment, const pb_mark_plan *plan,
                    pb_failure *failure)
{
    pb_mark mark = plan->mark;
    uint8_t bytes[PB_MARK_BYTES];
    int rc = pb_log_flush_derived(log, guard, PB_SYNC_ALL, failure);
    if (rc != 0)
        return rc;
    rc = count_entries(guard, segment, &mark);
    if (rc == 0)
        rc = pb_producer_snapshot_write(log->io, log->directory, mark.offset, plan->snapshot, plan->snapshot_length,
                                        true);
    pb_mark_format(&mark, bytes);
    if (rc == 0)
        rc = replace_mark(log, bytes);
    if (rc != 0)
        return pb_log_fail(log, failure, rc, "cannot set a mark to recover from");
    int64_t before = log->marked_offset;
    log->marked_offset = mark.offset;
    log->marked_base = mark.base_offset;
    rc = before >= 0 && before != mark.offset ? drop_snapshot(log, guard, before) : 0;
    return rc == 0 ? 0 : pb_log_fail(log, failure, rc, "cannot remove an old producer snapshot");
}

int pb_log_mark_finish(pb_log *log, const pb_log_guard *guard, const pb_mark_plan *plan, pb_failure *failure)
{
    if (plan->snapshot == NULL)
        return 0;
    int rc = pb_log_begin_maintenance(log, guard);
    if (rc != 0)
        return pb_log_fail(log, failure, rc, "other upkeep is under way, no mark is set");
    pb_segment *segment = find_segment(log, guard, plan);
    rc = segment != NULL ? set_mark(log, guard, segment, plan, failure)
                         : pb_log_fail(log, failure, -EBUSY, "the log has not got so far, no mark is set");
    if (segment != NULL)
        pb_segment_release(segment);
    if (rc != 0 && !pb_error_passes(rc)) {
        pb_log_lock(guard);
        log->failed = true;
        pb_log_unlock(guard);
    }
    pb_log_end_maintenance(log, guard);
    return rc;
}

int pb_log_drop_mark(pb_log *log)
{
    int rc = pb_log_unlink_file(log, PB_MARK_FILE);
    /* None that anybody has set: nothing is waited for. */
    if (rc == -ENOENT && log->marked_offset < 0)
        return 0;
    if (rc == 0 || rc == -ENOENT)
        rc = log->io->ops->directory_sync(log->io, log->directory);
    if (rc != 0)
        return rc;
    log->marked_offset = -1;
    return 0;
}
