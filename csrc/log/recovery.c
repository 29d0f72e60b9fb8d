/*
 * Opening what lies in a log's directory. One thread that has the log to itself.
 *
 * After a clean stop the files are trusted: sizes and the last index entries are looked at, and only what lies behind
 * the active segment's last index entry is walked. After any other stop every batch from the recovery point on is read
 * and its CRC checked, in large slices; the first bad one ends the log, and whatever was derived from those segments is
 * built again. From the recovery point means from the start of its segment, unless the log has a mark (mark.h). An
 * index that does not pass Kafka's sanity rules is built again wherever it lies.
 *
 * What was durable is never cut away: a bad batch below the recovery point becomes a hole in its segment (damage.h).
 * Above it a torn end is cut off; but when intact batches follow the bad one, which no interrupted append leaves, they
 * are kept in files of their own, and the report says which offsets they had.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "log/mark.h"
#include "log/offset_index.h"
#include "log/producer_snapshot.h"
#include "log/recovery.h"
#include "log/scan.h"
#include "log/time_index.h"
#include "log/transaction_index.h"

static const char EPOCH_CHECKPOINT[] = PB_EPOCH_CHECKPOINT;
static const int64_t PRODUCER_ID_LIMIT = INT64_C(1) << 62;

typedef struct recovery {
    pb_log *log;
    const pb_log_options *options;
    pb_log_recovery *report;
    pb_failure *failure;
    uint8_t *buffer; /* PB_SCAN_LARGE_BYTES, aligned to PB_DIRECT_BLOCK_BYTES */
    int64_t active_first_timestamp_ms;
    int64_t recovery_point; /* the checkpoint's, or the mark's */
    int64_t trusted_offset; /* everything below was durable */
    int64_t gap_offset;     /* all gaps between segments that were accepted lie below */
    int64_t scanned_base;   /* of the first segment that was read; INT64_MAX: none */
    bool resumes;           /* at a mark */
    pb_resume resume;
    bool epochs_damaged;
    bool gaps_seen;
} recovery;

static int fail_segment(recovery *r, const pb_segment *segment, int code, const char *what)
{
    return pb_fail(r->failure, code, "%s %s/%020lld.log", what, r->log->directory, (long long)segment->base_offset);
}

/* -1 when there is no such file. */
static int open_index(pb_segment *segment, pb_file_kind kind, int64_t *file_bytes)
{
    char path[PB_LOG_PATH_BYTES];
    *file_bytes = 0;
    int rc = pb_segment_path(path, segment->directory, segment->base_offset, kind, "");
    if (rc != 0)
        return rc;
    int file = segment->io->ops->file_open(segment->io, path, PB_OPEN_READ);
    if (file >= 0)
        *file_bytes = segment->io->ops->file_size(segment->io, file);
    return file;
}

/* Does the transaction index that lies in `file_bytes` speak of this segment, which ends before `end_offset`? */
static bool transactions_sane(pb_segment *segment, int64_t file_bytes, int64_t end_offset)
{
    uint32_t count = (uint32_t)(file_bytes / PB_TRANSACTION_INDEX_ENTRY_BYTES);
    pb_transaction_entry *entries;
    if (file_bytes % PB_TRANSACTION_INDEX_ENTRY_BYTES != 0 || pb_transaction_index_load(segment, count, &entries) != 0)
        return false;
    bool good = count == 0 || entries[count - 1].last_offset < end_offset;
    free(entries);
    segment->transaction_index.flushed_count = good ? count : 0;
    return good;
}

/*
 * Load the counts of a segment's indexes. false: one is missing or damaged, or has an entry from `end_offset` on. A log
 * may have been cut at the recovery point and rolled there before its indexes were written again: then they still speak
 * of what was cut off. That an offset index does shows in its positions.
 */
static bool load_indexes(pb_segment *segment, int64_t log_bytes, int64_t end_offset)
{
    pb_io *io = segment->io;
    int64_t file_bytes;
    int file = open_index(segment, PB_FILE_OFFSET_INDEX, &file_bytes);
    bool good = file >= 0 && pb_offset_index_sane(segment, file, file_bytes, log_bytes);
    if (file >= 0)
        io->ops->file_close(io, file);
    if (!good)
        return false;
    segment->offset_index.flushed_count = (uint32_t)(file_bytes / PB_OFFSET_INDEX_ENTRY_BYTES);
    pb_time_entry last;
    file = open_index(segment, PB_FILE_TIME_INDEX, &file_bytes);
    good = file >= 0 && pb_time_index_sane(segment, file, file_bytes, &last) && last.offset < end_offset;
    if (file >= 0)
        io->ops->file_close(io, file);
    if (!good)
        return false;
    segment->time_index.flushed_count = (uint32_t)(file_bytes / PB_TIME_INDEX_ENTRY_BYTES);
    segment->largest_timestamp_ms = last.timestamp_ms;
    segment->largest_timestamp_offset = last.offset;
    segment->last_time_entry_ms = last.timestamp_ms;
    file = open_index(segment, PB_FILE_TRANSACTION_INDEX, &file_bytes);
    if (file >= 0)
        io->ops->file_close(io, file);
    good = file == -ENOENT || (file >= 0 && transactions_sane(segment, file_bytes, end_offset));
    if (good)
        segment->indexes = PB_SYNCED;
    return good;
}

/* Write a rebuilt sealed segment's indexes; the active one's go out with the next upkeep. That syncs them too where the
 * segment is not below the recovery point, which does not pass it before: a start would wait for two syncs of each. */
static int store_indexes(const recovery *r, pb_segment *segment)
{
    bool sync = segment->base_offset < r->trusted_offset;
    static const pb_file_kind KINDS[] = {PB_FILE_OFFSET_INDEX, PB_FILE_TIME_INDEX, PB_FILE_TRANSACTION_INDEX};
    int rc = pb_segment_seal_time_index(segment);
    for (size_t i = 0; rc == 0 && i < sizeof(KINDS) / sizeof(KINDS[0]); i++) {
        uint32_t entry_bytes;
        pb_index_buffer *index = pb_segment_index(segment, KINDS[i], &entry_bytes);
        PB_ASSERT(index->flushed_count == 0);
        rc = KINDS[i] == PB_FILE_TRANSACTION_INDEX && index->pending_count == 0
                 ? pb_segment_unlink_index(segment, KINDS[i])
                 : pb_segment_write_index(segment, KINDS[i], index->pending, index->pending_count, 0, sync);
        if (rc == 0)
            pb_index_flushed(index, index->pending_count, entry_bytes);
    }
    segment->indexes = rc != 0 ? PB_UNSAVED : sync ? PB_SYNCED : PB_SAVED;
    return rc;
}

/* Forget a segment's indexes, so that a replay builds them. The files stay until those are written over them: where the
 * recovery point is the segment's very end, the next one may begin there before that, and then the files are relied on.
 */
static void reset_indexes(recovery *r, pb_segment *segment)
{
    pb_index_clear(&segment->offset_index);
    pb_index_clear(&segment->time_index);
    pb_index_clear(&segment->transaction_index);
    segment->largest_timestamp_ms = -1;
    segment->largest_timestamp_offset = segment->base_offset;
    segment->last_time_entry_ms = -1;
    segment->indexes = PB_UNSAVED;
    r->report->rebuilt_index_count++;
}

static pb_replay replay_of(recovery *r, pb_segment *segment, int flags)
{
    return (pb_replay){
        .log = r->log,
        .segment = segment,
        .file = segment->file,
        .direct = -1,
        .file_bytes = segment->size_bytes,
        .next_offset = segment->base_offset,
        .first_timestamp_ms = -1,
        .old_magic_offset = -1,
        .flags = flags,
        .buffer = r->buffer,
        .buffer_bytes = PB_SCAN_LARGE_BYTES,
    };
}

static void note_old_magic(recovery *r, pb_segment *segment, int64_t offset)
{
    if (offset < 0)
        return;
    segment->old_magic = true;
    if (!r->report->old_magic_found) {
        r->report->old_magic_found = true;
        r->report->old_magic_offset = offset;
    }
}

static void close_file(pb_segment *segment)
{
    if (segment->file >= 0)
        segment->io->ops->file_close(segment->io, segment->file);
    segment->file = -1;
}

/* Open for writing, since recovery may have to cut it; one that is open may be so for reading only. */
static int open_file(recovery *r, pb_segment *segment)
{
    close_file(segment);
    char path[PB_LOG_PATH_BYTES];
    int rc = pb_segment_path(path, segment->directory, segment->base_offset, PB_FILE_LOG, "");
    int file = rc == 0 ? segment->io->ops->file_open(segment->io, path, PB_OPEN_WRITE) : rc;
    if (file < 0)
        return fail_segment(r, segment, file, "cannot open");
    segment->file = file;
    return 0;
}

/* See how long a segment's .log is and how it begins. Only the active one stays open. */
static int add_segment(recovery *r, int64_t base_offset, bool last)
{
    pb_log *log = r->log;
    int rc = pb_log_reserve_segment(log);
    pb_segment *segment = rc == 0 ? pb_segment_new(log->io, log->directory, base_offset) : NULL;
    if (segment == NULL)
        return pb_log_fail(log, r->failure, rc != 0 ? rc : -ENOMEM, "cannot open a segment");
    log->segments[log->segment_count++] = segment;
    rc = open_file(r, segment);
    if (rc != 0)
        return rc;
    segment->size_bytes = log->io->ops->file_size(log->io, segment->file);
    if (segment->size_bytes < 0)
        return fail_segment(r, segment, (int)segment->size_bytes, "cannot tell the size of");
    segment->modified_ms = log->io->ops->file_modified_ms(log->io, segment->file);
    if (segment->modified_ms < 0)
        return fail_segment(r, segment, (int)segment->modified_ms, "cannot tell the age of");
    pb_scan scan;
    pb_scan_init(&scan, log->io, segment->file, segment->size_bytes, r->buffer, PB_SCAN_SMALL_BYTES);
    pb_batch_header header;
    rc = pb_scan_header(&scan, 0, &header);
    if (rc < 0)
        return fail_segment(r, segment, rc, "cannot read");
    /* Not reported yet: a scan may show that this is no batch at all. */
    segment->old_magic = rc == 0 && header.size_bytes > 0 && header.magic != PB_BATCH_MAGIC;
    if (last)
        r->active_first_timestamp_ms = rc == 0 && header.size_bytes > 0 ? header.max_timestamp : -1;
    else
        close_file(segment);
    return 0;
}

static int add_hole(recovery *r, pb_segment *segment, const pb_damage *damage)
{
    pb_log_recovery *report = r->report;
    if (report->hole_count++ == 0) {
        report->hole_segment = segment->base_offset;
        report->hole_position = damage->position;
        report->hole_offset = damage->offset;
    }
    report->hole_end_offset = damage->end_offset;
    int rc = pb_segment_add_damage(segment, damage);
    return rc < 0 ? rc : 0;
}

/*
 * A replay has come to `replay->position`, and all batches that belong there are before it: are there only zeros
 * behind, because a file grows by whole blocks, or was made longer ahead? They are cut off, and nobody has to hear of
 * it.
 */
static int cut_padding(recovery *r, const pb_replay *replay, int64_t sealed_end)
{
    pb_segment *segment = replay->segment;
    int64_t position = replay->position;
    bool whole = sealed_end >= 0 ? replay->next_offset == sealed_end : replay->next_offset >= r->trusted_offset;
    if (!whole || position >= segment->size_bytes)
        return 0;
    pb_scan scan;
    bool zeros;
    pb_scan_init(&scan, r->log->io, segment->file, segment->size_bytes, r->buffer, PB_SCAN_LARGE_BYTES);
    int rc = pb_damage_only_zeros(&scan, position, segment->size_bytes, &zeros);
    if (rc != 0 || !zeros)
        return rc;
    rc = r->log->io->ops->file_truncate(r->log->io, segment->file, position);
    if (rc == 0)
        rc = r->log->io->ops->file_sync(r->log->io, segment->file);
    if (rc == 0)
        segment->size_bytes = position;
    return rc;
}

/*
 * Run a replay to the end of its segment, whose offsets end at `sealed_end` (-1: it is the active one), past damage
 * below the trusted offset, and cut padding off. Where it stops before the segment's end, nothing that was durable
 * follows.
 */
static int replay_durable(recovery *r, pb_replay *replay, int64_t sealed_end)
{
    for (;;) {
        int rc = pb_replay_run(replay);
        if (rc != 0 || replay->position >= replay->file_bytes || replay->next_offset >= r->trusted_offset)
            return rc != 0 ? rc : cut_padding(r, replay, sealed_end);
        if (replay->next_offset == sealed_end) {
            rc = cut_padding(r, replay, sealed_end);
            if (rc != 0 || replay->position >= replay->segment->size_bytes)
                return rc;
        }
        pb_damage damage;
        int found = pb_replay_skip(replay, r->trusted_offset - 1, &damage);
        if (found < 0)
            return found;
        bool is_sealed = sealed_end >= 0 && sealed_end <= r->trusted_offset;
        if (found == 0 && !is_sealed)
            return 0;
        if (found == 0) {
            replay->position = damage.end_position;
            if (damage.end_offset < sealed_end)
                replay->next_offset = damage.end_offset = sealed_end;
        }
        rc = add_hole(r, replay->segment, &damage);
        if (rc != 0)
            return rc;
    }
}

/* The same for a whole segment, of which nobody may ever ask for most: what is not in memory stays out of it. */
static int replay_whole(recovery *r, pb_replay *replay, int64_t sealed_end)
{
    pb_segment *segment = replay->segment;
    char path[PB_LOG_PATH_BYTES];
    if (pb_segment_path(path, segment->directory, segment->base_offset, PB_FILE_LOG, "") == 0)
        replay->direct = segment->io->ops->file_open(segment->io, path, PB_OPEN_READ | PB_OPEN_DIRECT);
    int rc = replay_durable(r, replay, sealed_end);
    if (replay->direct >= 0)
        segment->io->ops->file_close(segment->io, replay->direct);
    replay->direct = -1;
    return rc;
}

static int64_t sealed_end_of(const pb_log *log, uint32_t index)
{
    return index + 1 < log->segment_count ? log->segments[index + 1]->base_offset : -1;
}

/* A segment below the recovery point: its data is trusted, its indexes are when they look right. */
static int check_sealed(recovery *r, uint32_t index)
{
    pb_segment *segment = r->log->segments[index];
    if (load_indexes(segment, segment->size_bytes, sealed_end_of(r->log, index)))
        return 0;
    int rc = open_file(r, segment);
    if (rc != 0)
        return rc;
    reset_indexes(r, segment);
    /* Which transactions its markers abort is known from the producers before it. */
    rc = pb_replay_producers(r->log, NULL, segment->base_offset, r->failure);
    if (rc != 0)
        return rc;
    pb_replay replay = replay_of(r, segment, PB_REPLAY_CRC | PB_REPLAY_INDEXES | PB_REPLAY_PRODUCERS);
    rc = replay_whole(r, &replay, sealed_end_of(r->log, index));
    if (rc == 0)
        rc = store_indexes(r, segment);
    r->report->scanned_bytes += replay.position;
    r->gaps_seen = r->gaps_seen || replay.gaps_seen;
    close_file(segment);
    return rc == 0 ? 0 : fail_segment(r, segment, rc, "cannot rebuild the indexes of");
}

/* What a cut takes away: whether it has to be kept, and what the report says of it. */
static int survey_cut(recovery *r, uint32_t first, pb_segment *torn, int64_t position)
{
    pb_log *log = r->log;
    pb_log_recovery *report = r->report;
    pb_scan scan;
    int rc = 0;
    if (torn != NULL) {
        pb_scan_init(&scan, log->io, torn->file, torn->size_bytes, r->buffer, PB_SCAN_LARGE_BYTES);
        rc = pb_damage_survey(&scan, position, &report->kept_batch_count, &report->cut_end_offset);
    }
    for (uint32_t i = first; rc == 0 && i < log->segment_count; i++) {
        pb_segment *segment = log->segments[i];
        rc = open_file(r, segment);
        if (rc != 0)
            return rc;
        pb_scan_init(&scan, log->io, segment->file, segment->size_bytes, r->buffer, PB_SCAN_LARGE_BYTES);
        rc = pb_damage_survey(&scan, 0, &report->kept_batch_count, &report->cut_end_offset);
        if (rc != 0)
            return fail_segment(r, segment, rc, "cannot read");
    }
    return rc == 0 ? 0 : fail_segment(r, torn, rc, "cannot read");
}

/* Take segments from `first` on off the log, newest first, so that a stop half way leaves no hole; with `keep` their
 * bytes stay in files of other names. */
static int drop_segments(recovery *r, uint32_t first, bool keep)
{
    pb_log *log = r->log;
    log->directory_dirty = true;
    while (log->segment_count > first) {
        pb_segment *segment = log->segments[log->segment_count - 1];
        int64_t base_offset = segment->base_offset;
        int rc = 0;
        if (keep && segment->size_bytes > 0) {
            r->report->kept_file_count++;
            r->report->kept_bytes += segment->size_bytes;
            rc = pb_damage_keep_segment(segment);
        }
        if (rc != 0)
            return fail_segment(r, segment, rc, "cannot set aside");
        r->report->truncated_bytes += segment->size_bytes;
        log->segment_count--;
        pb_segment_release(segment);
        rc = pb_log_unlink_segment_files(log, base_offset, "");
        if (rc != 0)
            return pb_log_fail(log, r->failure, rc, "cannot remove a segment behind the end");
    }
    return 0;
}

/* Cut a segment at `position`; with `keep` what lies behind is copied to a file first. */
static int cut_tail(recovery *r, pb_segment *torn, int64_t position, bool keep)
{
    pb_io *io = r->log->io;
    int rc = 0;
    if (keep) {
        r->report->kept_file_count++;
        r->report->kept_bytes += torn->size_bytes - position;
        rc = pb_damage_keep_tail(torn, position, r->buffer, PB_SCAN_LARGE_BYTES);
        if (rc == 0)
            rc = io->ops->directory_sync(io, r->log->directory);
        if (rc != 0)
            return fail_segment(r, torn, rc, "cannot make a copy, to keep it, of the damaged end of");
    }
    r->report->truncated_bytes += torn->size_bytes - position;
    rc = io->ops->file_truncate(io, torn->file, position);
    /* Syncs pass over a segment that ends at the durable end: what is cut off here must not come back below it. */
    if (rc == 0)
        rc = io->ops->file_sync(io, torn->file);
    if (rc != 0)
        return fail_segment(r, torn, rc, "cannot cut the damaged end of");
    torn->size_bytes = position;
    pb_segment_cut_damage(torn, position);
    return 0;
}

/* The log ends at `end_offset`: cut `torn` at `position` (NULL: no segment is cut), and take those from `first` on off.
 */
static int cut_log(recovery *r, uint32_t first, int64_t end_offset, pb_segment *torn, int64_t position)
{
    pb_log_recovery *report = r->report;
    report->cut_offset = report->cut_end_offset = end_offset;
    report->cut_segment = torn != NULL ? torn->base_offset : r->log->segments[first]->base_offset;
    report->cut_position = position;
    int rc = survey_cut(r, first, torn, position);
    if (rc != 0)
        return rc;
    bool keep = report->kept_batch_count > 0 || end_offset < r->trusted_offset;
    rc = drop_segments(r, first, keep);
    return rc != 0 || torn == NULL ? rc : cut_tail(r, torn, position, keep);
}

/* Where the scan of a segment begins. */
static void begin_scan(recovery *r, uint32_t index, pb_replay *replay)
{
    pb_segment *segment = r->log->segments[index];
    *replay = replay_of(r, segment, PB_REPLAY_CRC | PB_REPLAY_INDEXES | PB_REPLAY_EPOCHS | PB_REPLAY_PRODUCERS);
    if (r->resumes && index == r->resume.segment) {
        replay->position = r->resume.mark.position;
        replay->next_offset = r->resume.mark.offset;
        replay->first_timestamp_ms = r->resume.first_timestamp_ms;
        replay->indexed_position = r->resume.indexed_position;
        replay->newest_seen = true;
        return;
    }
    reset_indexes(r, segment);
    segment->old_magic = false;
}

/* Read what a segment has above the recovery point, or all of it; *next_offset moves to its end. */
static int scan_segment(recovery *r, uint32_t index, int64_t *next_offset)
{
    pb_segment *segment = r->log->segments[index];
    pb_replay replay;
    int rc = open_file(r, segment);
    if (rc != 0)
        return rc;
    begin_scan(r, index, &replay);
    int64_t begun_position = replay.position;
    rc = replay_whole(r, &replay, sealed_end_of(r->log, index));
    if (rc != 0)
        return fail_segment(r, segment, rc, "cannot scan");
    note_old_magic(r, segment, replay.old_magic_offset);
    r->report->scanned_bytes += replay.position - begun_position;
    r->active_first_timestamp_ms = replay.first_timestamp_ms;
    r->gaps_seen = r->gaps_seen || replay.gaps_seen;
    *next_offset = replay.next_offset;
    rc = replay.position == segment->size_bytes ? 0 : cut_log(r, index + 1, *next_offset, segment, replay.position);
    if (rc != 0)
        return rc;
    /* What a hot log had taken ahead. */
    rc = segment->io->ops->file_release_ahead(segment->io, segment->file);
    return rc == 0 ? 0 : fail_segment(r, segment, rc, "cannot free blocks behind the end of");
}

/* How a segment goes on from where the one before it ends. */
enum placing {
    FOLLOWS,         /* at once, or behind what the cleaner took out */
    BEHIND_DELETED,  /* what lies between is below the log start offset; of producers there nothing is known */
    NOT_PART_OF_LOG, /* the end of the one before was never synced, while this one was; or they overlap */
};

/* Can the cleaner have taken away what is missing before `base_offset`? It cleans nothing that is not durable, and only
 * when that is in the checkpoint of gaps. Without one nobody knows, as after a stop of Apache Kafka's in disorder. */
static bool may_be_cleaned(const recovery *r, int64_t base_offset)
{
    if (base_offset <= r->trusted_offset)
        return true;
    if (r->options->gap_offset >= 0)
        return base_offset <= r->options->gap_offset;
    return r->log->config.compact || r->gaps_seen;
}

static enum placing place_segment(const recovery *r, int64_t base_offset, int64_t next_offset)
{
    if (base_offset == next_offset)
        return FOLLOWS;
    if (base_offset < next_offset)
        return NOT_PART_OF_LOG;
    if (base_offset <= r->options->log_start_offset)
        return BEHIND_DELETED;
    return may_be_cleaned(r, base_offset) ? FOLLOWS : NOT_PART_OF_LOG;
}

/* What producers did below the scan. */
static int begin_producers(recovery *r, uint32_t first)
{
    if (!r->resumes)
        return pb_replay_producers(r->log, NULL, r->log->segments[first]->base_offset, r->failure);
    PB_ASSERT(first == r->resume.segment);
    pb_producers_clear(&r->log->producers);
    r->log->producers = r->resume.producers;
    r->resume.producers = (pb_producers){0};
    return 0;
}

/* What a roll to a segment that begins here has left: a snapshot, which the next upkeep writes, and syncs before the
 * recovery point passes. The roll's own may be lost, and what lies before be deleted before it is missed. */
static int take_snapshot(recovery *r, int64_t offset)
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
static int scan_from(recovery *r, uint32_t first, int64_t *next_offset)
{
    pb_log *log = r->log;
    int rc = begin_producers(r, first);
    *next_offset = log->segments[first]->base_offset;
    for (uint32_t i = first; rc == 0 && i < log->segment_count; i++) {
        pb_segment *segment = log->segments[i];
        enum placing follows = place_segment(r, segment->base_offset, *next_offset);
        if (follows == NOT_PART_OF_LOG)
            return cut_log(r, i, *next_offset, NULL, 0);
        if (follows == BEHIND_DELETED)
            pb_producers_clear(&log->producers);
        if (segment->base_offset > *next_offset && segment->base_offset > r->gap_offset)
            r->gap_offset = segment->base_offset;
        if (i > first)
            rc = take_snapshot(r, segment->base_offset);
        if (rc == 0)
            rc = scan_segment(r, i, next_offset);
        if (rc == 0 && i + 1 < log->segment_count) {
            rc = store_indexes(r, segment);
            close_file(segment);
            if (rc != 0)
                return fail_segment(r, segment, rc, "cannot write the indexes of");
        }
    }
    return rc;
}

/* After a clean stop: find the end by the active segment's index. *damaged: it must be scanned after all. */
static int find_end(recovery *r, int64_t *next_offset, bool *damaged)
{
    pb_segment *active = pb_log_active(r->log);
    *damaged = !load_indexes(active, active->size_bytes, INT64_MAX);
    if (*damaged)
        return 0;
    pb_replay replay = replay_of(r, active, 0);
    int rc = pb_offset_index_find_flushed(active, active->offset_index.flushed_count, INT64_MAX, &replay.position);
    if (rc == 0)
        rc = pb_replay_run(&replay);
    if (rc != 0)
        return fail_segment(r, active, rc, "cannot read");
    note_old_magic(r, active, replay.old_magic_offset);
    *next_offset = replay.next_offset;
    *damaged = replay.position < active->size_bytes;
    return 0;
}

static int load_epochs(recovery *r)
{
    char *text;
    size_t length;
    int rc = pb_log_read_file(r->log, EPOCH_CHECKPOINT, &text, &length);
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
static bool is_stray(const recovery *r, int64_t offset, int64_t newest)
{
    const pb_log *log = r->log;
    if (offset == log->marked_offset || offset == log->written_end)
        return false;
    int index = pb_log_segment_floor(log, offset);
    bool begins = offset < log->written_end && index >= 0 && log->segments[index]->base_offset == offset;
    return offset > r->scanned_base || (offset != newest && !begins);
}

static int drop_stray_snapshots(recovery *r)
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

/* An empty log that begins at `offset`. */
static int begin_empty(recovery *r, int64_t offset)
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
    return 0;
}

/* The first segment to scan; their count: none. A mark moves the recovery point, or goes. */
static int plan_scan(recovery *r, uint32_t *first)
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
static int recover_segments(recovery *r)
{
    pb_log *log = r->log;
    const pb_log_options *options = r->options;
    uint32_t first_scan;
    int rc = plan_scan(r, &first_scan);
    for (uint32_t i = 0; rc == 0 && i < first_scan && i + 1 < log->segment_count; i++)
        rc = check_sealed(r, i);
    int64_t end = log->segments[0]->base_offset;
    log->start_offset = options->log_start_offset > end ? options->log_start_offset : end;
    bool damaged = false;
    if (rc == 0 && first_scan == log->segment_count) {
        rc = find_end(r, &end, &damaged);
        if (damaged)
            first_scan = log->segment_count - 1;
    }
    bool scanned = first_scan < log->segment_count;
    r->scanned_base = scanned ? log->segments[first_scan]->base_offset : INT64_MAX;
    if (rc == 0 && scanned)
        rc = scan_from(r, first_scan, &end);
    /* Segments behind a cut are gone: the one that is last now was sealed. */
    if (rc == 0 && scanned)
        rc = open_file(r, pb_log_active(log));
    if (rc != 0)
        return rc;
    log->written_end = end;
    log->durable_end = !scanned ? end : r->recovery_point < end ? r->recovery_point : end;
    if (log->durable_end < log->start_offset)
        log->durable_end = log->start_offset;
    if (!scanned)
        return pb_replay_producers(log, NULL, end, r->failure);
    return take_snapshot(r, end);
}

static int recover_directory(recovery *r)
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
        rc = rc == 0 ? drop_segments(r, 0, false) : pb_log_fail(log, r->failure, rc, "cannot remove the mark");
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

int pb_log_recover(pb_log *log, const pb_log_options *options, pb_log_recovery *report, pb_failure *failure)
{
    recovery r = {.log = log, .options = options, .report = report, .failure = failure};
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
