/*
 * Opening what lies in a log's directory, step by step; state.h has the parts. One thread that has the log to
 * itself.
 *
 * After a clean stop the files are trusted: sizes and the last index entries are looked at, and only what lies behind
 * the active segment's last index entry is walked. After any other stop every batch from the recovery point on is read,
 * in large slices, and its CRC checked. The first bad one ends the log, and everything derived from those segments is
 * built again. From the recovery point means from the start of its segment, unless the log has a mark (mark.h). An
 * index that does not pass Kafka's sanity rules is built again wherever it lies.
 *
 * Durable bytes are never cut away: a bad batch below the recovery point becomes a hole in its segment (damage.h).
 * Above it a torn end is cut off. But intact batches behind a bad one, which no interrupted append leaves, are kept in
 * files of their own, and the report tells their offsets.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "log/derived/producer_snapshot.h"
#include "log/recover/mark.h"
#include "log/recover/recovery.h"
#include "log/recover/state.h"
#include "log/segment/scan.h"

static const char EPOCH_CHECKPOINT[] = PB_EPOCH_CHECKPOINT;
static const int64_t PRODUCER_ID_LIMIT = INT64_C(1) << 62;

/* See how long a segment's .log is and how it begins. Only the active one stays open. */
static int add_segment(pb_recovery *r, int64_t base_offset, bool last)
{
    pb_log *log = r->log;
    int rc = pb_log_reserve_segment(log);
    pb_segment *segment = rc == 0 ? pb_segment_new(log->io, log->directory, base_offset) : NULL;
    if (segment == NULL)
        return pb_log_fail(log, r->failure, rc != 0 ? rc : -ENOMEM, "cannot open a segment");
    log->segments[log->segment_count++] = segment;
    rc = pb_recovery_open_file(r, segment);
    if (rc != 0)
        return rc;
    segment->size_bytes = log->io->ops->file_size(log->io, segment->file);
    if (segment->size_bytes < 0)
        return pb_recovery_fail_segment(r, segment, (int)segment->size_bytes, "cannot tell the size of");
    segment->modified_ms = log->io->ops->file_modified_ms(log->io, segment->file);
    if (segment->modified_ms < 0)
        return pb_recovery_fail_segment(r, segment, (int)segment->modified_ms, "cannot tell the age of");
    pb_scan scan;
    pb_scan_init(&scan, log->io, segment->file, segment->size_bytes, r->buffer, PB_SCAN_SMALL_BYTES);
    pb_batch_header header;
    rc = pb_scan_header(&scan, 0, &header);
    if (rc < 0)
        return pb_recovery_fail_segment(r, segment, rc, "cannot read");
    /* Not reported yet: a scan may show that this is no batch at all. */
    segment->old_magic = rc == 0 && header.size_bytes > 0 && header.magic != PB_BATCH_MAGIC;
    if (last)
        r->active_first_timestamp_ms = rc == 0 && header.size_bytes > 0 ? header.max_timestamp : -1;
    else
        pb_recovery_close_file(segment);
    return 0;
}

/* How a segment goes on from where the one before it ends. */
enum placing {
    FOLLOWS,         /* at once, or behind what the cleaner took out */
    BEHIND_DELETED,  /* what lies between is below the log start offset; of producers there nothing is known */
    NOT_PART_OF_LOG, /* the end of the one before was never synced, while this one was; or they overlap */
};

/* Can the cleaner have taken away what is missing before `base_offset`? It cleans nothing that is not durable, and only
 * when that is in the checkpoint of gaps. Without one nobody knows, as after a stop of Apache Kafka's in disorder. */
static bool may_be_cleaned(const pb_recovery *r, int64_t base_offset)
{
    if (base_offset <= r->trusted_offset)
        return true;
    if (r->options->gap_offset >= 0)
        return base_offset <= r->options->gap_offset;
    return r->log->config.compact || r->gaps_seen;
}

static enum placing place_segment(const pb_recovery *r, int64_t base_offset, int64_t next_offset)
{
    if (base_offset == next_offset)
        return FOLLOWS;
    if (base_offset < next_offset)
        return NOT_PART_OF_LOG;
    if (base_offset <= r->options->log_start_offset)
        return BEHIND_DELETED;
    return may_be_cleaned(r, base_offset) ? FOLLOWS : NOT_PART_OF_LOG;
}

/* Loads the producers' state below the scan. */
static int begin_producers(pb_recovery *r, uint32_t first)
{
    if (!r->resumes)
        return pb_replay_producers(r->log, NULL, r->log->segments[first]->base_offset, r->failure);
    PB_ASSERT(first == r->resume.segment);
    pb_producers_clear(&r->log->producers);
    r->log->producers = r->resume.producers;
    r->resume.producers = (pb_producers){0};
    return 0;
}

/* Takes the snapshot that a roll to a segment beginning here has left. The next upkeep writes it, and syncs it before
 * the recovery point passes. The roll's own may be lost, and what lies before be deleted before it is missed. */
static int take_snapshot(pb_recovery *r, int64_t offset)
{
    pb_log *log = r->log;
    pb_roll *roll = calloc(1, sizeof(*roll));
    if (roll == NULL)
        return pb_log_fail(log, r->failure, -ENOMEM, "cannot make a producer snapshot");
    roll->base_offset = offset;
    roll->snapshot = pb_producer_snapshot_format(&log->producers, &roll->snapshot_length);
    if (roll->snapshot == NULL) {
        pb_roll_free(roll);
        return pb_log_fail(log, r->failure, -ENOMEM, "cannot make a producer snapshot");
    }
    pb_list_push_back(&log->snapshots_due, &roll->link);
    log->snapshot_offset = offset;
    return 0;
}

/* Everything from segment `first` on, or from the mark in it, is read and checked. */
static int scan_from(pb_recovery *r, uint32_t first, int64_t *next_offset)
{
    pb_log *log = r->log;
    int rc = begin_producers(r, first);
    *next_offset = log->segments[first]->base_offset;
    for (uint32_t i = first; rc == 0 && i < log->segment_count; i++) {
        pb_segment *segment = log->segments[i];
        enum placing follows = place_segment(r, segment->base_offset, *next_offset);
        if (follows == NOT_PART_OF_LOG)
            return pb_recovery_cut_log(r, i, *next_offset, NULL, 0);
        if (follows == BEHIND_DELETED)
            pb_producers_clear(&log->producers);
        if (segment->base_offset > *next_offset && segment->base_offset > r->gap_offset)
            r->gap_offset = segment->base_offset;
        if (i > first)
            rc = take_snapshot(r, segment->base_offset);
        if (rc == 0)
            rc = pb_recovery_scan_segment(r, i, next_offset);
        if (rc == 0 && i + 1 < log->segment_count) {
            rc = pb_recovery_store_indexes(r, segment);
            pb_recovery_close_file(segment);
            if (rc != 0)
                return pb_recovery_fail_segment(r, segment, rc, "cannot write the indexes of");
        }
    }
    return rc;
}

static int load_epochs(pb_recovery *r)
{
    char *text;
    size_t length;
    int rc = pb_log_read_file(r->log, EPOCH_CHECKPOINT, &text, &length);
    r->epochs_missing = rc == -ENOENT;
    if (rc == -ENOENT)
        return 0;
    if (rc != 0)
        return pb_log_fail(r->log, r->failure, rc, "cannot read leader-epoch-checkpoint");
    rc = pb_leader_epochs_parse(&r->log->epochs, text, length);
    free(text);
    if (rc == -EBADMSG) {
        r->epochs_damaged = true;
        return 0;
    }
    return rc == 0 ? 0 : pb_log_fail(r->log, r->failure, rc, "cannot load leader-epoch-checkpoint");
}

/* Kafka's rule: a snapshot stays when a segment begins there, or when it is the newest; none lies above the end. That
 * of a mark stays as well. But of what was scanned they are due anew: what lies there may be of batches that were cut
 * off, and have come back by a loss of power. One at the very end is written over before anything is read from it. */
static bool is_stray(const pb_recovery *r, int64_t offset, int64_t newest)
{
    const pb_log *log = r->log;
    if (offset == log->marked_offset || offset == log->written_end)
        return false;
    int index = pb_log_segment_floor(log, offset);
    bool begins = offset < log->written_end && index >= 0 && log->segments[index]->base_offset == offset;
    return offset > r->scanned_base || (offset != newest && !begins);
}

static int drop_stray_snapshots(pb_recovery *r)
{
    pb_log *log = r->log;
    pb_offsets snapshots = {0};
    int rc = pb_directory_snapshots(log, &snapshots, r->failure);
    int64_t newest = -1;
    bool removed = false;
    for (uint32_t i = 0; i < snapshots.count; i++) {
        if (snapshots.values[i] <= log->written_end)
            newest = snapshots.values[i];
    }
    for (uint32_t i = 0; rc == 0 && i < snapshots.count; i++) {
        int64_t offset = snapshots.values[i];
        if (!is_stray(r, offset, newest))
            continue;
        char path[PB_LOG_PATH_BYTES];
        rc = pb_segment_path(path, log->directory, offset, PB_FILE_SNAPSHOT, "");
        if (rc == 0)
            rc = log->io->ops->unlink(log->io, path);
        if (rc != 0)
            rc = pb_log_fail(log, r->failure, rc, "cannot remove a stray producer snapshot");
        removed = true;
    }
    free(snapshots.values);
    /* One that came back after a loss of power would speak of other batches, once the log has grown to its offset. */
    if (rc == 0 && removed && (rc = log->io->ops->directory_sync(log->io, log->directory)) != 0)
        rc = pb_log_fail(log, r->failure, rc, "cannot sync the directory");
    return rc;
}

/* The checkpoint of a new log, as Apache Kafka makes it at once. It is not synced, so the epochs in memory stay
 * unsaved: the next upkeep writes it for good, or says why it cannot. */
static void make_checkpoint(const pb_recovery *r, int64_t offset)
{
    pb_leader_epochs epochs;
    size_t length;
    pb_leader_epochs_init(&epochs);
    char *text = pb_leader_epochs_assign(&epochs, r->options->leader_epoch, offset) == 0
                     ? pb_leader_epochs_format(&epochs, &length)
                     : NULL;
    if (text != NULL && pb_log_write_aside(r->log, EPOCH_CHECKPOINT, text, length, false) == 0)
        (void)pb_log_put_in_place(r->log, EPOCH_CHECKPOINT);
    free(text);
    pb_leader_epochs_clear(&epochs);
}

/* An empty log that begins at `offset`. */
static int begin_empty(pb_recovery *r, int64_t offset)
{
    pb_log *log = r->log;
    pb_segment *segment;
    int rc = pb_log_reserve_segment(log);
    if (rc == 0)
        rc = pb_log_make_segment(log, offset, log->config.preallocate ? log->config.segment_bytes : 0, &segment);
    if (rc != 0)
        return pb_log_fail(log, r->failure, rc, "cannot make the first segment");
    log->segments[log->segment_count++] = segment;
    log->directory_dirty = true;
    log->start_offset = offset;
    log->written_end = offset;
    r->active_first_timestamp_ms = -1;
    pb_producers_clear(&log->producers);
    pb_leader_epochs_truncate_end(&log->epochs, offset);
    if (r->epochs_missing)
        make_checkpoint(r, offset);
    return 0;
}

/* The first segment to scan; their count: none. A mark moves the recovery point, or goes. */
static int plan_scan(pb_recovery *r, uint32_t *first)
{
    pb_log *log = r->log;
    *first = log->segment_count;
    if (!r->options->clean || r->epochs_damaged) {
        int floor = r->epochs_damaged ? 0 : pb_log_segment_floor(log, r->recovery_point);
        *first = floor < 0 ? 0 : (uint32_t)floor;
    }
    int rc = r->options->clean || r->epochs_damaged
                 ? pb_log_drop_mark(log)
                 : pb_log_resume(log, *first, r->buffer, PB_SCAN_LARGE_BYTES, &r->resume);
    if (rc < 0)
        return pb_log_fail(log, r->failure, rc, "cannot look for a mark");
    r->resumes = rc > 0;
    if (!r->resumes)
        return 0;
    *first = r->resume.segment;
    if (r->resume.mark.offset > r->recovery_point)
        r->recovery_point = r->trusted_offset = r->resume.mark.offset;
    return 0;
}

/* The segments are on the list: bring them to a state to trust, and find the end. */
static int recover_segments(pb_recovery *r)
{
    pb_log *log = r->log;
    const pb_log_options *options = r->options;
    uint32_t first_scan;
    int rc = plan_scan(r, &first_scan);
    int64_t end = log->segments[0]->base_offset;
    log->start_offset = options->log_start_offset > end ? options->log_start_offset : end;
    for (uint32_t i = 0; rc == 0 && i < first_scan && i + 1 < log->segment_count; i++)
        rc = pb_recovery_check_sealed(r, i);
    bool damaged = false;
    if (rc == 0 && first_scan == log->segment_count) {
        rc = pb_recovery_find_end(r, &end, &damaged);
        if (damaged)
            first_scan = log->segment_count - 1;
    }
    bool scanned = first_scan < log->segment_count;
    r->scanned_base = scanned ? log->segments[first_scan]->base_offset : INT64_MAX;
    if (rc == 0 && scanned)
        rc = scan_from(r, first_scan, &end);
    /* Segments behind a cut are gone: the one that is last now was sealed. */
    if (rc == 0 && scanned)
        rc = pb_recovery_open_file(r, pb_log_active(log));
    if (rc != 0)
        return rc;
    log->written_end = end;
    log->durable_end = !scanned ? end : r->recovery_point < end ? r->recovery_point : end;
    if (log->durable_end < log->start_offset)
        log->durable_end = log->start_offset;
    if (!scanned)
        return pb_replay_producers(log, NULL, end, r->failure);
    pb_recovery_write_active(pb_log_active(log));
    return take_snapshot(r, end);
}

static int recover_directory(pb_recovery *r)
{
    pb_log *log = r->log;
    pb_offsets segments = {0};
    pb_offsets snapshots = {0};
    int rc = pb_directory_load(log, &segments, &snapshots, r->failure);
    for (uint32_t i = 0; rc == 0 && i < segments.count; i++)
        rc = add_segment(r, segments.values[i], i + 1 == segments.count);
    free(segments.values);
    free(snapshots.values);
    if (rc == 0)
        rc = load_epochs(r);
    if (rc != 0)
        return rc;
    int64_t start_offset = r->options->log_start_offset;
    if (log->segment_count == 0 && (rc = pb_log_drop_mark(log)) != 0)
        return pb_log_fail(log, r->failure, rc, "cannot remove a mark that nothing is left of");
    if (log->segment_count == 0)
        return begin_empty(r, start_offset > 0 ? start_offset : 0);
    rc = recover_segments(r);
    if (rc == 0 && start_offset > log->written_end) {
        /* Deleted by a client up to there, and what followed is lost: offsets must not be given out again. */
        rc = pb_log_drop_mark(log);
        rc = rc == 0 ? pb_recovery_drop_segments(r, 0, false)
                     : pb_log_fail(log, r->failure, rc, "cannot remove the mark");
        pb_log_drop_due_snapshots(log, -1);
        if (rc == 0)
            rc = begin_empty(r, start_offset);
        log->durable_end = log->written_end;
    }
    if (rc == 0 && start_offset > log->start_offset)
        log->start_offset = start_offset;
    return rc;
}

/* The first of them, if any: segments that were not scanned are known by how they begin. */
static void report_old_magic(const pb_log *log, pb_log_recovery *report)
{
    for (uint32_t i = 0; i < log->segment_count; i++) {
        const pb_segment *segment = log->segments[i];
        if (!segment->old_magic)
            continue;
        bool is_later = i + 1 < log->segment_count && report->old_magic_offset >= log->segments[i + 1]->base_offset;
        if (!report->old_magic_found || is_later)
            report->old_magic_offset = segment->base_offset;
        report->old_magic_found = true;
        return;
    }
}

/* Indexes that found no room are saved by the next upkeep. It looks for the oldest segment that it has to save, from
 * the newest one backwards, so the segments behind it are saved once more. */
static void save_again_behind_unsaved(pb_log *log)
{
    bool unsaved = false;
    for (uint32_t i = 0; i + 1 < log->segment_count; i++) {
        pb_segment *segment = log->segments[i];
        unsaved = unsaved || segment->indexes == PB_UNSAVED;
        if (unsaved && segment->indexes == PB_SYNCED)
            segment->indexes = PB_SAVED;
    }
}

int pb_log_recover(pb_log *log, const pb_log_options *options, pb_log_recovery *report, pb_failure *failure)
{
    pb_recovery r = {.log = log, .options = options, .report = report, .failure = failure};
    r.active_first_timestamp_ms = -1;
    r.scanned_base = INT64_MAX;
    r.recovery_point = options->recovery_point;
    r.trusted_offset = options->clean ? INT64_MAX : options->recovery_point;
    r.gap_offset = options->gap_offset > r.trusted_offset ? options->gap_offset : r.trusted_offset;
    r.buffer = aligned_alloc(PB_DIRECT_BLOCK_BYTES, PB_SCAN_LARGE_BYTES);
    if (r.buffer == NULL)
        return pb_log_fail(log, failure, -ENOMEM, "cannot open the log");
    int rc = recover_directory(&r);
    if (rc == 0)
        rc = drop_stray_snapshots(&r);
    pb_producers_clear(&r.resume.producers);
    free(r.buffer);
    if (rc != 0)
        return rc;
    if (log->durable_end < log->start_offset)
        log->durable_end = log->start_offset;
    log->appended_end = log->written_end;
    save_again_behind_unsaved(log);
    pb_log_count_sealed(log);
    pb_leader_epochs_truncate_end(&log->epochs, log->written_end);
    pb_leader_epochs_truncate_start(&log->epochs, log->start_offset);
    pb_log_reset_tail(log, r.active_first_timestamp_ms);
    report_old_magic(log, report);
    report->segment_count = (int32_t)log->segment_count;
    report->largest_producer_id = pb_producers_largest_id(&log->producers, PRODUCER_ID_LIMIT);
    report->gap_offset = r.gap_offset < log->written_end ? r.gap_offset : log->written_end;
    return 0;
}
