/*
 * Cutting a log at its end: repair after a failed write, truncation to an offset. Blocking, with the log to themselves:
 * no append, write or sync runs, and readers that hold slices above the cut read what they find. Other threads that ask
 * for the log's state meanwhile take the lock, so the state that the lock guards changes under it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "log/recover/mark.h"
#include "log/recover/recovery.h"
#include "log/segment/offset_index.h"
#include "log/segment/scan.h"
#include "log/segment/time_index.h"
#include "log/segment/transaction_index.h"
#include "record/bytes.h"

static void drop_queued_rolls(pb_log *log)
{
    pb_link *link;
    while ((link = pb_list_pop_front(&log->rolls)) != NULL)
        pb_roll_free(PB_CONTAINER(link, pb_roll, link));
    log->queued_roll_count = 0;
}

void pb_log_drop_due_snapshots(pb_log *log, int64_t end_offset)
{
    pb_link kept;
    pb_link *link;
    pb_list_init(&kept);
    while ((link = pb_list_pop_front(&log->snapshots_due)) != NULL) {
        pb_roll *roll = PB_CONTAINER(link, pb_roll, link);
        if (roll->base_offset > end_offset)
            pb_roll_free(roll);
        else
            pb_list_push_back(&kept, &roll->link);
    }
    pb_list_take(&log->snapshots_due, &kept);
}

static int unlink_snapshots_above(pb_log *log, int64_t end_offset, pb_failure *failure)
{
    pb_offsets snapshots = {0};
    int rc = pb_directory_snapshots(log, &snapshots, failure);
    for (uint32_t i = 0; rc == 0 && i < snapshots.count; i++) {
        char path[PB_LOG_PATH_BYTES];
        if (snapshots.values[i] <= end_offset)
            continue;
        rc = pb_segment_path(path, log->directory, snapshots.values[i], PB_FILE_SNAPSHOT, "");
        if (rc == 0)
            rc = log->io->ops->unlink(log->io, path);
        if (rc != 0)
            rc = pb_log_fail(log, failure, rc, "cannot remove a producer snapshot behind the end");
    }
    free(snapshots.values);
    return rc;
}

/* Takes the state in memory back to `end_offset`. [lock] */
static void take_back(pb_log *log, int64_t end_offset)
{
    pb_log_count_sealed(log);
    drop_queued_rolls(log);
    pb_log_drop_due_snapshots(log, end_offset);
    pb_log_clear_hints(log);
    log->written_end = end_offset;
    log->appended_end = end_offset;
    if (log->start_offset > end_offset)
        log->start_offset = end_offset;
    if (log->durable_end > end_offset)
        log->durable_end = end_offset;
    log->cut_count++;
    /* Together with the ends: whoever reads them from before the cut reads the generation from before it. */
    log->cut_generation = log->noted_generation;
    if (log->cut_offset > end_offset)
        log->cut_offset = end_offset;
    pb_leader_epochs_truncate_end(&log->epochs, end_offset);
    (void)pb_leader_epochs_assign(&log->epochs, log->leader_epoch, end_offset);
}

/* The active segment ends at `size_bytes`, `end_offset`: everything derived follows. */
static int settle(pb_log *log, const pb_log_guard *guard, int64_t end_offset, pb_failure *failure)
{
    pb_segment *active = pb_log_active(log);
    int rc = log->io->ops->file_truncate(log->io, active->file, active->size_bytes);
    /* Syncs pass over a segment that ends at the durable end: what is cut off here must not come back below it. */
    int synced = rc == 0 ? pb_log_sync_data(log, active->file) : 0;
    rc = rc == 0 ? synced : rc;
    pb_log_lock(guard);
    log->failed = log->failed || synced != 0;
    log->directory_dirty = true;
    if (rc == 0)
        take_back(log, end_offset);
    pb_log_unlock(guard);
    if (rc != 0)
        return pb_log_fail(log, failure, rc, "cannot cut the active segment");
    rc = unlink_snapshots_above(log, end_offset, failure);
    if (rc == 0)
        rc = pb_log_flush_derived(log, guard, PB_SYNC_SEALED, failure);
    /* On a full disk the next upkeep does that, and until then the recovery point stays below. */
    if (rc == 0 || pb_error_is_full(rc))
        rc = pb_replay_producers(log, guard, end_offset, failure);
    if (rc != 0)
        return rc;
    uint8_t buffer[PB_SCAN_SMALL_BYTES];
    pb_scan scan;
    pb_batch_header header;
    pb_scan_init(&scan, log->io, active->file, active->size_bytes, buffer, sizeof(buffer));
    rc = pb_scan_header(&scan, 0, &header);
    if (rc < 0)
        return pb_log_fail(log, failure, rc, "cannot read the active segment");
    pb_log_lock(guard);
    pb_log_reset_tail(log, rc == 0 && header.size_bytes > 0 ? header.max_timestamp : -1);
    /* Once more: who looked since the end moved has seen the producers from before. */
    log->cut_count++;
    pb_log_unlock(guard);
    return 0;
}

static int repair_held(pb_log *log, const pb_log_guard *guard, pb_failure *failure)
{
    PB_ASSERT(!log->writing && pb_list_empty(&log->queue) && pb_list_empty(&log->in_flight));
    if (log->failed)
        return pb_log_fail(log, failure, -EIO, "a sync or truncation failed earlier; the log has to be opened again");
    int rc = pb_log_cool_held(log, guard, failure);
    if (rc != 0)
        return rc;
    if (log->rolling != NULL) {
        int64_t base_offset = log->rolling->base_offset;
        pb_segment_release(log->rolling);
        log->rolling = NULL;
        rc = pb_log_unlink_segment_files(log, base_offset, "");
        if (rc != 0)
            return pb_log_fail(log, failure, rc, "cannot remove a segment that was not finished");
    }
    rc = settle(log, guard, log->written_end, failure);
    pb_log_lock(guard);
    log->broken = log->broken && rc != 0;
    pb_log_unlock(guard);
    return rc;
}

int pb_log_repair(pb_log *log, const pb_log_guard *guard, pb_failure *failure)
{
    /* Upkeep, a swap of the cleaner's and others may be under way: they write the same files. */
    int rc = pb_log_begin_maintenance(log, guard);
    if (rc != 0)
        return pb_log_fail(log, failure, rc, "other upkeep is under way");
    rc = repair_held(log, guard, failure);
    pb_log_end_maintenance(log, guard);
    return rc;
}

/* Cut one index: the first `keep` entries stay. */
static int cut_index(const pb_log_guard *guard, pb_segment *segment, pb_file_kind kind, uint32_t keep)
{
    uint32_t entry_bytes;
    pb_log_lock(guard);
    pb_index_buffer *index = pb_segment_index(segment, kind, &entry_bytes);
    bool flushed = keep < index->flushed_count;
    uint32_t pending = flushed ? 0 : keep - index->flushed_count;
    if (pending < index->pending_count)
        index->pending_count = pending;
    if (flushed)
        index->flushed_count = keep;
    pb_log_unlock(guard);
    return flushed ? pb_segment_write_index(segment, kind, NULL, 0, keep, false) : 0;
}

/* How many entries of an index speak of offsets below `end_offset`. -errno on failure. */
static int64_t count_below(pb_segment *segment, pb_file_kind kind, int64_t end_offset)
{
    uint32_t entry_bytes;
    const pb_index_buffer *index = pb_segment_index(segment, kind, &entry_bytes);
    for (uint32_t i = index->pending_count; i > 0; i--) {
        if (pb_segment_entry_offset(segment, kind, index->pending + (size_t)(i - 1) * entry_bytes) < end_offset)
            return (int64_t)index->flushed_count + i;
    }
    return pb_segment_flushed_below(segment, kind, index->flushed_count, end_offset);
}

static int cut_indexes(const pb_log_guard *guard, pb_segment *segment, int64_t end_offset)
{
    int rc = 0;
    for (int kind = PB_FILE_OFFSET_INDEX; rc == 0 && kind <= PB_FILE_TRANSACTION_INDEX; kind++) {
        int64_t keep = count_below(segment, (pb_file_kind)kind, end_offset);
        rc = keep < 0 ? (int)keep : cut_index(guard, segment, (pb_file_kind)kind, (uint32_t)keep);
    }
    return rc;
}

/* Largest timestamp of a segment whose time index has been cut: its last entry (`last`), and the batches behind that
 * (`largest`). */
static int find_largest_timestamp(pb_segment *segment, pb_time_entry *found, pb_time_entry *largest)
{
    pb_time_entry last;
    if (!pb_time_index_find_pending(segment, INT64_MAX, &last)) {
        int rc = pb_time_index_find_flushed(segment, segment->time_index.flushed_count, INT64_MAX, &last);
        if (rc != 0)
            return rc;
    }
    *found = *largest = last;
    int64_t position = 0;
    if (!pb_offset_index_find_pending(segment, INT64_MAX, &position)) {
        int rc = pb_offset_index_find_flushed(segment, segment->offset_index.flushed_count, INT64_MAX, &position);
        if (rc != 0)
            return rc;
    }
    uint8_t buffer[PB_SCAN_SMALL_BYTES];
    pb_scan scan;
    pb_scan_init(&scan, segment->io, segment->file, segment->size_bytes, buffer, sizeof(buffer));
    while (position < segment->size_bytes) {
        pb_batch_header header;
        int rc = pb_scan_header(&scan, position, &header);
        if (rc != 0 || header.size_bytes == 0)
            return rc < 0 ? rc : -EBADMSG;
        if (header.max_timestamp > largest->timestamp_ms)
            *largest = (pb_time_entry){header.max_timestamp, pb_batch_last_offset(&header)};
        position += header.size_bytes;
    }
    return 0;
}

/* The segment that becomes the active one is opened for writing; its readers finish with the file they have. */
static int make_active(pb_log *log, const pb_log_guard *guard, uint32_t index)
{
    pb_segment *segment = log->segments[index];
    char path[PB_LOG_PATH_BYTES];
    int rc = pb_segment_path(path, log->directory, segment->base_offset, PB_FILE_LOG, "");
    pb_segment *active = rc == 0 ? pb_segment_new(log->io, log->directory, segment->base_offset) : NULL;
    if (active == NULL)
        return rc != 0 ? rc : -ENOMEM;
    active->file = log->io->ops->file_open(log->io, path, PB_OPEN_WRITE);
    rc = active->file < 0 ? active->file : 0;
    if (rc == 0) {
        pb_log_lock(guard);
        pb_segment_take_over(active, segment);
        active->indexes = PB_UNSAVED;
        log->segments[index] = active;
        pb_log_unlock(guard);
    }
    pb_segment_release(rc == 0 ? segment : active);
    return rc;
}

/* Where the first batch lies that has to go, with the indexes cut already; *end_offset: the end of the one before. */
static int find_cut(pb_segment *segment, int64_t offset, int64_t *cut_position, int64_t *end_offset)
{
    int64_t position = 0;
    int rc = 0;
    if (!pb_offset_index_find_pending(segment, offset, &position))
        rc = pb_offset_index_find_flushed(segment, segment->offset_index.flushed_count, offset, &position);
    uint8_t buffer[PB_SCAN_SMALL_BYTES];
    pb_scan scan;
    pb_scan_init(&scan, segment->io, segment->file, segment->size_bytes, buffer, sizeof(buffer));
    if (rc == 0)
        rc = pb_scan_trust(&scan, segment->base_offset, offset, &position);
    *end_offset = segment->base_offset;
    while (rc == 0 && position < segment->size_bytes) {
        pb_batch_header header;
        rc = pb_scan_header(&scan, position, &header);
        if (rc != 0 || header.size_bytes == 0)
            return rc < 0 ? rc : -EBADMSG;
        if (pb_batch_last_offset(&header) >= offset)
            break;
        *end_offset = pb_batch_last_offset(&header) + 1;
        position += header.size_bytes;
    }
    *cut_position = position;
    return rc == 0 && position > segment->size_bytes ? -EBADMSG : rc; /* the index lies */
}

/* Cut inside the active segment; *end_offset becomes the end of the last batch that stays. */
static int cut_active(pb_log *log, const pb_log_guard *guard, int64_t offset, int64_t *end_offset)
{
    pb_segment *segment = pb_log_active(log);
    int64_t position;
    int rc = cut_indexes(guard, segment, offset);
    if (rc == 0)
        rc = find_cut(segment, offset, &position, end_offset);
    if (rc != 0)
        return rc;
    pb_log_lock(guard);
    segment->size_bytes = position;
    if (segment->unchecked_bytes > position) {
        segment->unchecked_bytes = position;
        segment->unchecked_end = *end_offset;
    }
    pb_segment_cut_damage(segment, position);
    pb_log_unlock(guard);
    pb_time_entry last, largest;
    rc = find_largest_timestamp(segment, &last, &largest);
    pb_log_lock(guard);
    if (rc == 0) {
        segment->last_time_entry_ms = last.timestamp_ms;
        segment->largest_timestamp_ms = largest.timestamp_ms;
        segment->largest_timestamp_offset = largest.offset;
    }
    pb_log_unlock(guard);
    return rc;
}

/* Newest first, so that a stop half way leaves a log without a hole; `keep` segments stay, but at least one. */
static int remove_segments(pb_log *log, const pb_log_guard *guard, uint32_t keep, pb_failure *failure)
{
    int rc = 0;
    while (rc == 0 && log->segment_count > (keep > 0 ? keep : 1)) {
        pb_log_lock(guard);
        pb_segment *segment = log->segments[--log->segment_count];
        pb_log_count_sealed(log);
        pb_log_unlock(guard);
        rc = pb_log_unlink_segment_files(log, segment->base_offset, "");
        pb_segment_release(segment);
    }
    if (rc != 0)
        return pb_log_fail(log, failure, rc, "cannot remove a segment behind the end");
    /* None of them may come back behind what is appended after the cut. */
    rc = log->io->ops->directory_sync(log->io, log->directory);
    return rc == 0 ? 0 : pb_log_fail(log, failure, rc, "cannot sync the directory");
}

/* Where a log is cut, or begins anew. */
typedef struct cut_place {
    int64_t base_offset; /* of its first segment then */
    int64_t offset;
} cut_place;

/* Nothing stays: the log begins anew. */
static int begin_anew(pb_log *log, const pb_log_guard *guard, const cut_place *place)
{
    pb_segment *first = log->segments[0];
    pb_segment *segment = NULL;
    int rc = pb_log_unlink_segment_files(log, first->base_offset, "");
    if (rc == 0)
        rc = pb_log_make_segment(log, place->base_offset, log->config.preallocate ? log->config.segment_bytes : 0,
                                 &segment);
    if (rc != 0)
        return rc;
    pb_log_lock(guard);
    log->segments[0] = segment;
    log->directory_dirty = true;
    log->start_offset = place->offset;
    log->begun_offset = place->offset;
    pb_log_unlock(guard);
    pb_segment_release(first);
    return 0;
}

/* From now on files may be shorter than who reads them was told, and than recorded ends say. A mark that is above
 * `offset` goes: after a power cut any of the segments between may be gone. */
static int begin_cut(pb_log *log, const pb_log_guard *guard, int64_t offset, pb_failure *failure)
{
    pb_log_lock(guard);
    log->cut_count++;
    log->truncation_count++;
    pb_log_unlock(guard);
    int rc = pb_log_note_cut(log, guard, offset);
    if (rc != 0)
        return pb_log_fail(log, failure, rc, "cannot write " PB_CUT_FILE);
    rc = log->marked_offset > offset ? pb_log_drop_mark(log) : 0;
    return rc == 0 ? 0 : pb_log_fail(log, failure, rc, "cannot remove the mark");
}

static int truncate_held(pb_log *log, const pb_log_guard *guard, const cut_place *place, pb_failure *failure)
{
    int64_t offset = place->offset;
    int floor = pb_log_segment_floor(log, offset);
    uint32_t keep = floor < 0 ? 0 : (uint32_t)floor + 1;
    int rc = begin_cut(log, guard, offset, failure);
    if (rc == 0)
        rc = remove_segments(log, guard, keep, failure);
    if (rc != 0)
        return rc;
    int64_t end_offset = offset;
    rc = keep > 0 ? make_active(log, guard, keep - 1) : begin_anew(log, guard, place);
    if (rc == 0 && keep > 0)
        rc = cut_active(log, guard, offset, &end_offset);
    /* A reader that came in between may bring in, even now, bytes that it was told the file has. */
    if (rc == 0 && keep > 0)
        rc = make_active(log, guard, keep - 1);
    return rc == 0 ? settle(log, guard, end_offset, failure) : pb_log_fail(log, failure, rc, "cannot cut the log");
}

/* Truncation and roll take both tokens: nothing may be queued, written or maintained. */
int pb_log_take_tokens(pb_log *log)
{
    if (log->maintaining || log->writing || log->broken || log->failed || !pb_list_empty(&log->queue))
        return -EBUSY;
    log->maintaining = true;
    log->writing = true;
    return 0;
}

void pb_log_return_tokens(pb_log *log, const pb_log_guard *guard)
{
    pb_log_lock(guard);
    PB_ASSERT(log->maintaining && log->writing);
    log->maintaining = false;
    log->writing = false;
    pb_log_unlock(guard);
}

/* An epoch that this replica led, or began to, and for which it has no batch says nothing of where logs differ. */
static void forget_empty_epochs(pb_log *log, const pb_log_guard *guard)
{
    pb_log_lock(guard);
    pb_leader_epochs_truncate_end(&log->epochs, log->written_end);
    (void)pb_leader_epochs_assign(&log->epochs, log->leader_epoch, log->written_end);
    pb_log_unlock(guard);
}

static int restart_held(pb_log *log, const pb_log_guard *guard, const cut_place *place, pb_failure *failure)
{
    int rc = begin_cut(log, guard, -1, failure);
    if (rc == 0)
        rc = remove_segments(log, guard, 0, failure);
    if (rc == 0)
        rc = unlink_snapshots_above(log, -1, failure);
    if (rc != 0)
        return rc;
    rc = begin_anew(log, guard, place);
    if (rc == 0)
        rc = log->io->ops->directory_sync(log->io, log->directory);
    if (rc != 0)
        return pb_log_fail(log, failure, rc, "cannot begin the log anew");
    pb_log_lock(guard);
    pb_log_drop_due_snapshots(log, -1);
    pb_leader_epochs_truncate_end(&log->epochs, 0);
    pb_log_unlock(guard);
    rc = settle(log, guard, place->offset, failure);
    pb_log_lock(guard);
    log->durable_end = place->offset; /* there is nothing below it */
    pb_log_unlock(guard);
    return rc;
}

typedef int (*cut_held)(pb_log *log, const pb_log_guard *guard, const cut_place *place, pb_failure *failure);

/* With both tokens, and the log cold. */
static int cut(pb_log *log, const pb_log_guard *guard, cut_held held, const cut_place *place, pb_failure *failure)
{
    PB_ASSERT(place->base_offset >= 0 && place->base_offset <= place->offset);
    pb_log_lock(guard);
    int rc = pb_log_take_tokens(log);
    pb_log_unlock(guard);
    if (rc != 0)
        return pb_log_fail(log, failure, rc, "appends or upkeep are under way");
    rc = pb_log_cool_held(log, guard, failure);
    if (rc == 0)
        rc = held(log, guard, place, failure);
    pb_log_lock(guard);
    log->truncation_count++;
    /* Half a truncation is no state to go on from. */
    log->failed = log->failed || rc != 0;
    pb_log_unlock(guard);
    pb_log_return_tokens(log, guard);
    return rc;
}

static int truncate_or_forget(pb_log *log, const pb_log_guard *guard, const cut_place *place, pb_failure *failure)
{
    if (place->offset < log->written_end)
        return truncate_held(log, guard, place, failure);
    forget_empty_epochs(log, guard);
    return 0;
}

int pb_log_truncate(pb_log *log, const pb_log_guard *guard, int64_t offset, pb_failure *failure)
{
    return cut(log, guard, truncate_or_forget, &(cut_place){offset, offset}, failure);
}

int pb_log_restart(pb_log *log, const pb_log_guard *guard, int64_t base_offset, int64_t offset, pb_failure *failure)
{
    return cut(log, guard, restart_held, &(cut_place){base_offset, offset}, failure);
}
