/*
 * Background work on a log: pacing, and bringing what is derived into its files. Blocking calls without the
 * lock; the lock is taken through the guard for the short parts between them. An error leaves the work for the next
 * time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "log/derived/producer_snapshot.h"
#include "log/state.h"

enum {
    EXPIRY_INTERVAL_MS = 600 * 1000,
    SPARE_PART = 4,              /* when no more than 1/4 of a segment is left, the next one's file is made, */
    HOT_SPARE_PART = 16,         /* and a hot log's when 1/16 is there: to find its blocks may take a disk a second */
    HOT_SPARE_BYTES = 256 << 20, /* so many blocks: more would be missed by other logs on a small disk */
};

int pb_log_begin_maintenance(pb_log *log, const pb_log_guard *guard)
{
    pb_log_lock(guard);
    int rc = log->maintaining ? -EBUSY : 0;
    /* Its holder may look at it without the lock. */
    if (rc == 0)
        log->maintaining = true;
    pb_log_unlock(guard);
    return rc;
}

void pb_log_end_maintenance(pb_log *log, const pb_log_guard *guard)
{
    pb_log_lock(guard);
    PB_ASSERT(log->maintaining);
    log->maintaining = false;
    pb_log_unlock(guard);
}

/* Move what is pending of one index at this moment to its file. */
static int flush_index(const pb_log_guard *guard, pb_segment *segment, pb_file_kind kind, bool sync)
{
    uint32_t entry_bytes;
    pb_log_lock(guard);
    pb_index_buffer *index = pb_segment_index(segment, kind, &entry_bytes);
    uint32_t count = index->pending_count;
    uint32_t flushed = index->flushed_count;
    size_t length = (size_t)count * entry_bytes;
    uint8_t *copy = count > 0 ? malloc(length) : NULL;
    if (copy != NULL)
        memcpy(copy, index->pending, length);
    pb_log_unlock(guard);
    if (count > 0 && copy == NULL)
        return -ENOMEM;
    if (kind == PB_FILE_TRANSACTION_INDEX && count + flushed == 0)
        return pb_segment_unlink_index(segment, kind);
    int rc = pb_segment_write_index(segment, kind, copy, count, flushed, sync);
    free(copy);
    if (rc == 0 && count > 0) {
        pb_log_lock(guard);
        pb_index_flushed(index, count, entry_bytes);
        pb_log_unlock(guard);
    }
    return rc;
}

/* The oldest segment whose indexes are due, with a reference; NULL when none is. [lock] inside */
static pb_segment *next_unsaved(pb_log *log, const pb_log_guard *guard, pb_flush_syncs syncs, bool *sync)
{
    pb_segment *found = NULL;
    pb_log_lock(guard);
    pb_segment *active = pb_log_active(log);
    *sync = syncs != PB_SYNC_SEALED;
    if (active->indexes < (*sync ? PB_SYNCED : PB_SAVED))
        found = active;
    /* Unsaved ones are the newest: walk back until one that is synced. */
    for (uint32_t i = log->segment_count - 1; i > 0 && log->segments[i - 1]->indexes != PB_SYNCED; i--) {
        found = log->segments[i - 1];
        *sync = true;
    }
    if (found != NULL) {
        pb_segment_retain(found);
        found->indexes = PB_SAVING;
        /* The files may be new. */
        if (found->offset_index.flushed_count == 0 || found->time_index.flushed_count == 0 ||
            found->transaction_index.pending_count > 0)
            log->directory_dirty = true;
    }
    pb_log_unlock(guard);
    return found;
}

static int flush_indexes(pb_log *log, const pb_log_guard *guard, pb_flush_syncs syncs)
{
    bool sync; /* now or, with PB_SYNC_LATER, before anybody relies on it */
    bool now = syncs != PB_SYNC_LATER;
    pb_segment *segment;
    while ((segment = next_unsaved(log, guard, syncs, &sync)) != NULL) {
        int rc = 0;
        for (int kind = PB_FILE_OFFSET_INDEX; rc == 0 && kind <= PB_FILE_TRANSACTION_INDEX; kind++)
            rc = flush_index(guard, segment, (pb_file_kind)kind, sync && now);
        /* Recovery trusts a synced one that has no transaction index to have no aborted transactions. */
        if (rc == 0 && sync && now)
            rc = log->io->ops->directory_sync(log->io, log->directory);
        pb_log_lock(guard);
        bool again = rc != 0 || segment->indexes != PB_SAVING;
        segment->indexes = again ? PB_UNSAVED : sync ? PB_SYNCED : PB_SAVED;
        pb_log_unlock(guard);
        pb_segment_release(segment);
        /* Entries pushed meanwhile are for the next time: a busy log would hold us here for ever. */
        if (again)
            return rc;
    }
    return 0;
}

/* It could not be written: to be tried again, unless a newer one is due, which says more. */
static void keep_due(pb_log *log, const pb_log_guard *guard, pb_roll *roll)
{
    pb_log_lock(guard);
    bool newest = pb_list_empty(&log->snapshots_due);
    if (newest)
        pb_list_push_back(&log->snapshots_due, &roll->link);
    pb_log_unlock(guard);
    if (!newest)
        pb_roll_free(roll);
}

static int flush_snapshots(pb_log *log, const pb_log_guard *guard, bool sync)
{
    for (;;) {
        pb_log_lock(guard);
        pb_link *link = pb_list_pop_front(&log->snapshots_due);
        pb_log_unlock(guard);
        if (link == NULL)
            return 0;
        pb_roll *roll = PB_CONTAINER(link, pb_roll, link);
        int rc = pb_producer_snapshot_write(log->io, log->directory, roll->base_offset, roll->snapshot,
                                            roll->snapshot_length, sync);
        if (rc != 0) {
            keep_due(log, guard, roll);
            return rc;
        }
        pb_roll_free(roll);
    }
}

static int flush_epochs(pb_log *log, const pb_log_guard *guard, bool aside)
{
    pb_log_lock(guard);
    uint64_t version = log->epochs.version;
    bool due = version != log->epochs.saved_version;
    size_t length = 0;
    char *text = due ? pb_leader_epochs_format(&log->epochs, &length) : NULL;
    pb_log_unlock(guard);
    if (!due)
        return 0;
    if (text == NULL)
        return -ENOMEM;
    int rc = aside ? pb_log_write_aside(log, PB_EPOCH_CHECKPOINT, text, length, false)
                   : pb_log_replace_file(log, PB_EPOCH_CHECKPOINT, text, length);
    free(text);
    if (aside) {
        log->epochs_aside = rc == 0;
        return rc;
    }
    if (rc == 0) {
        pb_log_lock(guard);
        pb_leader_epochs_saved(&log->epochs, version);
        pb_log_unlock(guard);
    }
    return rc;
}

static int flush_derived(pb_log *log, const pb_log_guard *guard, pb_flush_syncs syncs, pb_failure *failure)
{
    /* Snapshots and epochs first: a finished segment moves the recovery point past what they are derived from. */
    int rc = flush_snapshots(log, guard, syncs != PB_SYNC_LATER);
    if (rc != 0)
        return pb_log_fail(log, failure, rc, "cannot write a producer snapshot");
    rc = flush_epochs(log, guard, syncs == PB_SYNC_LATER);
    if (rc != 0)
        return pb_log_fail(log, failure, rc, "cannot write leader-epoch-checkpoint");
    rc = flush_indexes(log, guard, syncs);
    return rc == 0 ? 0 : pb_log_fail(log, failure, rc, "cannot write an index");
}

/* After a failure that does not pass, only opening the log again tells what is on the disk. */
static void fail_unless_passing(pb_log *log, const pb_log_guard *guard, int code)
{
    if (pb_error_passes(code))
        return;
    pb_log_lock(guard);
    log->failed = true;
    pb_log_unlock(guard);
}

int pb_log_flush_derived(pb_log *log, const pb_log_guard *guard, pb_flush_syncs syncs, pb_failure *failure)
{
    int rc = flush_derived(log, guard, syncs, failure);
    fail_unless_passing(log, guard, rc);
    return rc;
}

/* Is it time to make the next segment's file? [lock] */
static bool wants_spare(const pb_log *log)
{
    const pb_segment *active = pb_log_active(log);
    int64_t most = log->config.segment_bytes;
    int64_t enough = log->hot != NULL ? most / HOT_SPARE_PART : most - most / SPARE_PART;
    return active->size_bytes >= enough && log->spare_base != active->base_offset && log->spare_file < 0;
}

/* The blocks that it comes with: while they are found, no write could go to a file that takes them. [lock] */
static int64_t spare_bytes(const pb_log *log)
{
    int64_t most = log->config.segment_bytes;
    if (log->config.preallocate)
        return most;
    return log->hot == NULL ? 0 : most < HOT_SPARE_BYTES ? most : HOT_SPARE_BYTES;
}

/* The log may have become cold meanwhile. */
static void make_spare(pb_log *log, const pb_log_guard *guard, int64_t active_base, int64_t allocate_bytes, bool hot)
{
    pb_log_lock(guard);
    int64_t reserve_bytes = log->config.preallocate ? 0 : log->config.reserve_bytes;
    pb_log_unlock(guard);
    if (allocate_bytes > 0 && reserve_bytes > 0)
        allocate_bytes = pb_log_room_ahead(log, reserve_bytes, allocate_bytes);
    pb_log_make_spare(log, active_base, allocate_bytes);
    pb_log_lock(guard);
    bool drop = hot && log->hot == NULL;
    pb_log_unlock(guard);
    if (drop)
        pb_log_drop_spare(log);
}

bool pb_log_needs_pacing(const pb_log *log)
{
    if (log->hot != NULL)
        return wants_spare(log);
    const pb_segment *active = pb_log_active(log);
    int64_t paced = log->paced_base == active->base_offset ? log->paced_position : 0;
    return active->size_bytes - paced >= log->engine->pace_bytes;
}

int pb_log_pace(pb_log *log, const pb_log_guard *guard)
{
    pb_log_lock(guard);
    pb_segment *active = pb_log_active(log);
    pb_segment_retain(active);
    int file = active->file;
    int64_t size_bytes = active->size_bytes;
    log->paced_base = active->base_offset;
    log->paced_position = size_bytes;
    bool hot = log->hot != NULL;
    bool spare = wants_spare(log);
    int64_t allocate_bytes = spare_bytes(log);
    pb_log_unlock(guard);
    int rc = hot ? 0 : log->engine->pace(log->io, &log->engine_state, active->base_offset, file, size_bytes);
    if (spare)
        make_spare(log, guard, active->base_offset, allocate_bytes, hot);
    pb_segment_release(active);
    return rc;
}

int pb_log_upkeep(pb_log *log, const pb_log_guard *guard, int64_t now_ms, pb_failure *failure)
{
    int rc = pb_log_begin_maintenance(log, guard);
    if (rc != 0)
        return 0;
    pb_log_lock(guard);
    if (log->next_expiry_ms == 0) { /* as in Kafka, the first look comes an interval after the start */
        log->next_expiry_ms = now_ms + EXPIRY_INTERVAL_MS;
    } else if (now_ms >= log->next_expiry_ms) {
        pb_producers_expire(&log->producers, now_ms, log->config.producer_expiration_ms);
        pb_verifications_expire(&log->verifications, now_ms, log->config.producer_expiration_ms);
        log->next_expiry_ms = now_ms + EXPIRY_INTERVAL_MS;
    }
    bool failed = log->failed; /* by a sync, it may be: what that lost would be called synced by the next one */
    pb_log_unlock(guard);
    rc = pb_log_look_at_files(log, guard, failure);
    if (rc != -ENODATA) /* a roll helps */
        fail_unless_passing(log, guard, rc);
    if (rc == 0 && !failed)
        rc = pb_log_flush_derived(log, guard, PB_SYNC_SEALED, failure);
    pb_log_end_maintenance(log, guard);
    return rc;
}
