/*
 * A log as an object: open and close, settings, ends, epochs. Open and close block and have the log to themselves; the
 * rest is called under the partition's lock and makes no I/O.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/kafka_error.h"
#include "log/derived/producer_snapshot.h"
#include "log/engine/hot.h"
#include "log/recover/mark.h"
#include "log/state.h"

enum { FIRST_SEGMENT_CAPACITY = 2 };

static void log_free(pb_log *log)
{
    pb_link *link;
    /* An answer that a slow reader has not taken yet may still pin some: the last release closes their files. */
    for (uint32_t i = 0; i < log->segment_count; i++)
        pb_segment_release(log->segments[i]);
    if (log->rolling != NULL)
        pb_segment_release(log->rolling);
    while ((link = pb_list_pop_front(&log->rolls)) != NULL)
        pb_roll_free(PB_CONTAINER(link, pb_roll, link));
    while ((link = pb_list_pop_front(&log->snapshots_due)) != NULL)
        pb_roll_free(PB_CONTAINER(link, pb_roll, link));
    while ((link = pb_list_pop_front(&log->removed)) != NULL)
        free(PB_CONTAINER(link, pb_removed, link));
    pb_log_drop_spare(log);
    pb_producers_clear(&log->producers);
    pb_verifications_clear(&log->verifications);
    pb_leader_epochs_clear(&log->epochs);
    free(log->segments);
    while ((link = pb_list_pop_front(&log->old_directories)) != NULL) {
        pb_old_directory *old = PB_CONTAINER(link, pb_old_directory, link);
        free(old->path);
        free(old);
    }
    free(log->directory);
    pthread_mutex_destroy(&log->flush_lock);
    pthread_cond_destroy(&log->zeroed);
    free(log);
}

/* Unless it is there. Its name is durable before anything inside can be. */
static int make_directory(const pb_log *log, pb_failure *failure)
{
    int rc = log->io->ops->directory_make(log->io, log->directory);
    if (rc == -EEXIST)
        return 0;
    char parent[PB_LOG_PATH_BYTES];
    int found = pb_log_parent(log, parent);
    if (rc == 0 && found != -ENOENT)
        rc = found != 0 ? found : log->io->ops->directory_sync(log->io, parent);
    return rc == 0 ? 0 : pb_fail(failure, rc, "cannot make the log directory %s", log->directory);
}

/* Those that lie in the directory: of the last cut, and of a ring, which has been brought in before. */
static int take_notes(pb_log *log, pb_failure *failure)
{
    int rc = log->has_cut_note ? pb_log_load_cut_note(log) : 0;
    if (rc != 0)
        return pb_log_fail(log, failure, rc, "cannot read " PB_CUT_FILE);
    rc = log->has_ring_note ? pb_log_forget_ring_note(log) : 0;
    return rc == 0 ? 0 : pb_log_fail(log, failure, rc, "cannot remove " PB_RING_FILE);
}

int pb_log_open(const pb_log_options *options, pb_log **out, pb_log_recovery *recovery, pb_failure *failure)
{
    memset(recovery, 0, sizeof(*recovery));
    recovery->old_magic_offset = -1;
    pb_log *log = calloc(1, sizeof(*log));
    if (log == NULL)
        return pb_fail(failure, -ENOMEM, "cannot open the log in %s", options->directory);
    log->io = options->io;
    log->engine = pb_engine_find("paced");
    PB_ASSERT(log->engine != NULL);
    log->config = options->config;
    log->leader_epoch = -1;
    log->snapshot_offset = -1;
    log->marked_offset = -1;
    log->engine_state.segment_base = -1;
    log->spare_file = -1;
    log->spare_base = -1;
    log->cut_offset = log->noted_cut = INT64_MAX;
    pb_list_init(&log->queue);
    pb_list_init(&log->in_flight);
    pb_list_init(&log->rolls);
    pb_list_init(&log->snapshots_due);
    pb_list_init(&log->removed);
    log->purge_pieces = 1;
    pb_list_init(&log->old_directories);
    pb_leader_epochs_init(&log->epochs);
    pb_log_clear_hints(log);
    pthread_mutex_init(&log->flush_lock, NULL);
    pthread_cond_init(&log->zeroed, NULL);
    log->rings = options->rings;
    if (log->rings != NULL)
        log->ring_identity = *options->ring_identity;
    log->directory = strdup(options->directory);
    int rc = log->directory == NULL ? pb_fail(failure, -ENOMEM, "cannot open the log in %s", options->directory) : 0;
    if (rc == 0)
        rc = make_directory(log, failure);
    if (rc == 0)
        rc = pb_log_check_topic_id(log, options->topic_id, failure);
    if (rc == 0)
        rc = pb_log_recover(log, options, recovery, failure);
    if (rc == 0)
        rc = take_notes(log, failure);
    if (rc != 0) {
        log_free(log);
        return rc;
    }
    *out = log;
    return 0;
}

/* A clean close's additions to the derived files: the last time index entry, a snapshot at the end. */
static int close_derived(pb_log *log, pb_flush_syncs syncs, pb_failure *failure)
{
    pb_segment *active = pb_log_active(log);
    int rc = pb_segment_seal_time_index(active);
    if (rc == 0)
        rc = pb_log_flush_derived(log, NULL, syncs, failure);
    if (rc != 0 || log->snapshot_offset >= log->written_end)
        return rc;
    size_t length;
    uint8_t *bytes = pb_producer_snapshot_format(&log->producers, &length);
    if (bytes == NULL)
        return pb_log_fail(log, failure, -ENOMEM, "cannot make the producer snapshot");
    rc = pb_producer_snapshot_write(log->io, log->directory, log->written_end, bytes, length, syncs != PB_SYNC_LATER);
    free(bytes);
    log->directory_dirty = true;
    return rc == 0 ? 0 : pb_log_fail(log, failure, rc, "cannot write the producer snapshot");
}

/* Bring it out of its ring. On a full disk the newest batches stay there: the ring's file survives the process, and
 * they come into the log when it is opened again. */
static int leave_ring(pb_log *log, pb_failure *failure)
{
    /* The same goes for what a log that has failed still has in its ring. */
    int rc = log->failed ? 0 : pb_log_cool_held(log, NULL, failure);
    if (log->hot != NULL && log->failed && log->starved && pb_ring_pool_has(log->rings, log->hot->ring)) {
        (void)pb_log_fail(log, failure, -ENOSPC, "the newest batches stay in the tail ring");
        rc = PB_LOG_UNFINISHED;
    } else if (log->hot != NULL && log->failed && log->starved) {
        rc = pb_log_fail(log, failure, -EIO, "the newest batches found no room, and their tail ring is gone,");
    }
    pb_log_abandon_ring(log);
    return rc;
}

/* A queued roll without a batch has made no file. Whatever of this fails, the next opening makes up for it: all that
 * can be done is done. */
static int finish_files(pb_log *log, pb_flush_syncs syncs, pb_failure *failure)
{
    /* Nobody needs the mark now; should it come back, it is true. */
    int rc = log->marked_offset >= 0 ? pb_log_unlink_file(log, PB_MARK_FILE) : 0;
    rc = rc == -ENOENT ? 0 : rc;
    rc = rc == 0 ? close_derived(log, syncs, failure) : pb_log_fail(log, failure, rc, "cannot remove the mark");
    const pb_segment *active = pb_log_active(log);
    int cut = log->io->ops->file_truncate(log->io, active->file, active->size_bytes);
    if (rc == 0 && cut != 0)
        rc = pb_log_fail(log, failure, cut, "cannot cut the active segment to its length");
    bool syncs_names = syncs != PB_SYNC_LATER && log->directory_dirty;
    int synced = syncs_names ? log->io->ops->directory_sync(log->io, log->directory) : 0;
    if (rc == 0 && synced != 0)
        rc = pb_log_fail(log, failure, synced, "cannot sync the directory");
    return rc == 0 ? 0 : PB_LOG_UNFINISHED;
}

int pb_log_settle(pb_log *log, pb_failure *failure)
{
    PB_ASSERT(!log->writing && pb_list_empty(&log->queue) && !log->maintaining && !log->syncing);
    PB_ASSERT(!log->settled);
    /* Bytes written past the page cache go by their own sync: that of a file system need not flush a disk for them. */
    bool was_hot = log->hot != NULL;
    int rc = leave_ring(log, failure);
    if (rc == 0 && (log->broken || log->failed))
        rc = pb_log_repair(log, NULL, failure);
    if (rc == 0 && was_hot)
        rc = pb_log_sync(log, NULL, failure);
    if (rc == 0)
        rc = finish_files(log, PB_SYNC_LATER, failure);
    log->settled = rc == 0;
    return rc;
}

/* Bytes of a file system that could not be synced may be clean in memory and not on the disk. The next opening of the
 * log, which a start in the same boot does, reads what the disk has. */
static void forget_unsynced(pb_log *log)
{
    for (uint32_t i = 0; i < log->segment_count; i++) {
        if (log->segments[i]->file >= 0)
            (void)log->io->ops->file_drop(log->io, log->segments[i]->file, 0, 0);
    }
}

/* A settled one, whose file system has been synced since if `clean`. */
static int close_settled(pb_log *log, bool clean, pb_failure *failure)
{
    if (!clean)
        forget_unsynced(log);
    int rc = clean && log->epochs_aside ? pb_log_put_in_place(log, PB_EPOCH_CHECKPOINT) : 0;
    return rc == 0 ? 0 : pb_log_fail(log, failure, rc, "cannot put leader-epoch-checkpoint in place");
}

static int sync_and_close(pb_log *log, pb_failure *failure)
{
    int rc = log->broken || log->failed ? pb_log_repair(log, NULL, failure) : 0;
    if (rc == 0)
        rc = pb_log_sync(log, NULL, failure);
    return rc == 0 ? finish_files(log, PB_SYNC_ALL, failure) : rc;
}

int pb_log_close(pb_log *log, bool clean, pb_failure *failure)
{
    PB_ASSERT(!log->writing && pb_list_empty(&log->queue) && !log->maintaining);
    int rc = 0;
    if (log->settled) {
        rc = close_settled(log, clean, failure);
    } else {
        rc = leave_ring(log, failure);
        if (clean && rc == 0)
            rc = sync_and_close(log, failure);
    }
    log_free(log);
    return rc;
}

void pb_log_configure(pb_log *log, const pb_log_config *config)
{
    log->config = *config;
}

const char *pb_log_directory(const pb_log *log)
{
    return log->directory;
}

int64_t pb_log_start_offset(const pb_log *log)
{
    return log->start_offset;
}

int64_t pb_log_appended_end(const pb_log *log)
{
    return log->appended_end;
}

int64_t pb_log_written_end(const pb_log *log)
{
    return log->written_end;
}

int64_t pb_log_durable_end(const pb_log *log)
{
    return log->durable_end;
}

int64_t pb_log_cut_offset(const pb_log *log)
{
    return log->cut_offset;
}

int64_t pb_log_cut_generation(const pb_log *log)
{
    return log->cut_generation;
}

uint32_t pb_log_truncation_count(const pb_log *log)
{
    return log->truncation_count;
}

uint32_t pb_log_cut_count(const pb_log *log)
{
    return log->cut_count;
}

int64_t pb_log_checkpointed_end(const pb_log *log)
{
    return log->config.compact ? log->written_end : log->durable_end;
}

int64_t pb_log_size_bytes(const pb_log *log)
{
    return log->sealed_bytes + pb_log_active(log)->size_bytes;
}

void pb_log_count_sealed(pb_log *log)
{
    log->sealed_bytes = 0;
    for (uint32_t i = 0; i + 1 < log->segment_count; i++)
        log->sealed_bytes += log->segments[i]->size_bytes;
}

int64_t pb_log_recovery_point(const pb_log *log)
{
    int64_t point = log->durable_end;
    /* Segments whose indexes are not saved are the newest. */
    for (uint32_t i = log->segment_count - 1; i > 0 && log->segments[i - 1]->indexes != PB_SYNCED; i--) {
        if (log->segments[i - 1]->base_offset < point)
            point = log->segments[i - 1]->base_offset;
    }
    /* The first batch may begin below where the log began, and as long as nothing above is durable it is not either. */
    if (point <= log->begun_offset && log->segments[0]->base_offset < point)
        point = log->segments[0]->base_offset;
    /* An epoch that is not in its checkpoint is found again in the batches that carry it. */
    if (log->epochs.unsaved_offset < point)
        point = log->epochs.unsaved_offset;
    /* Recovery reads the segment that the point lies in, and builds its indexes again. The active segment's very end
     * will lie in the next one. So the point stays below while its indexes are not synced, or lack the entry that
     * sealing gives to its newest batches. */
    const pb_segment *active = pb_log_active(log);
    if (point == log->written_end && point > active->base_offset &&
        (active->indexes != PB_SYNCED || active->largest_timestamp_ms > active->last_time_entry_ms))
        point--;
    return point;
}

bool pb_log_failed(const pb_log *log)
{
    return log->failed;
}

int64_t pb_log_first_unstable_offset(const pb_log *log)
{
    return pb_producers_first_unstable(&log->producers, INT64_MAX);
}

int64_t pb_log_last_stable_offset(pb_log *log, int64_t high_watermark)
{
    if (log->producers.transaction_count == 0)
        return high_watermark;
    pb_producers_forget_ended(&log->producers, high_watermark);
    int64_t unstable = pb_producers_first_unstable(&log->producers, high_watermark);
    /* The rest of a transaction whose first records are deleted begins at the start of the log. */
    if (unstable < log->start_offset)
        unstable = log->start_offset;
    return unstable < high_watermark ? unstable : high_watermark;
}

int32_t pb_log_latest_epoch(const pb_log *log)
{
    return pb_leader_epochs_latest(&log->epochs);
}

void pb_log_end_epoch(pb_log *log)
{
    log->leader_epoch = -1;
}

void pb_log_start_epoch(pb_log *log, int32_t leader_epoch)
{
    log->leader_epoch = leader_epoch;
    /* Without memory the first batch brings the entry. */
    (void)pb_leader_epochs_assign(&log->epochs, leader_epoch, log->appended_end);
}

void pb_log_end_offset_for_epoch(const pb_log *log, int32_t leader_epoch, int32_t *epoch, int64_t *end_offset)
{
    pb_leader_epochs_end_offset(&log->epochs, leader_epoch, log->written_end, epoch, end_offset);
    if (*end_offset > log->written_end)
        *end_offset = log->written_end;
}

int32_t pb_log_epoch_at(const pb_log *log, int64_t offset)
{
    return pb_leader_epochs_at(&log->epochs, offset);
}

int pb_log_segment_floor(const pb_log *log, int64_t offset)
{
    uint32_t low = 0;
    uint32_t high = log->segment_count;
    /* Most look for the active segment. */
    if (offset >= pb_log_active(log)->base_offset)
        return (int)log->segment_count - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (log->segments[middle]->base_offset <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return (int)low - 1;
}

int64_t pb_log_segment_end(const pb_log *log, uint32_t index)
{
    PB_ASSERT(index < log->segment_count);
    return index + 1 < log->segment_count ? log->segments[index + 1]->base_offset : log->written_end;
}

int pb_log_reserve_segment(pb_log *log)
{
    uint32_t wanted = log->segment_count + log->queued_roll_count + 1;
    if (wanted <= log->segment_capacity)
        return 0;
    uint32_t capacity = log->segment_capacity == 0 ? FIRST_SEGMENT_CAPACITY : log->segment_capacity * 2;
    if (capacity < wanted)
        capacity = wanted;
    pb_segment **grown = realloc(log->segments, capacity * sizeof(pb_segment *));
    if (grown == NULL)
        return -ENOMEM;
    log->segments = grown;
    log->segment_capacity = capacity;
    return 0;
}

int pb_log_segments(const pb_log *log, pb_segment_info **out, int *count)
{
    pb_segment_info *infos = calloc(log->segment_count, sizeof(*infos));
    if (infos == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < log->segment_count; i++) {
        const pb_segment *segment = log->segments[i];
        infos[i] = (pb_segment_info){
            .base_offset = segment->base_offset,
            .end_offset = pb_log_segment_end(log, i),
            .size_bytes = segment->size_bytes,
            .largest_timestamp_ms = segment->largest_timestamp_ms,
            .modified_ms = segment->modified_ms,
            .file_bytes = pb_tail_settled_bytes(segment, segment->size_bytes),
            .generation = segment->generation,
        };
    }
    *out = infos;
    *count = (int)log->segment_count;
    return 0;
}

int pb_log_producers(const pb_log *log, pb_producer_info *out, int max)
{
    int count = 0;
    uint32_t bucket = 0;
    const pb_producer *producer = NULL;
    while (count < max && (producer = pb_producers_next(&log->producers, &bucket, producer)) != NULL) {
        out[count++] = (pb_producer_info){
            .producer_id = producer->producer_id,
            .producer_epoch = producer->epoch,
            .last_sequence = pb_producer_last_sequence(producer),
            .last_timestamp_ms = producer->last_timestamp_ms,
            .coordinator_epoch = producer->coordinator_epoch,
            .transaction_start_offset = producer->transaction_start_offset,
        };
    }
    return count;
}
