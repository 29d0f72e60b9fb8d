/*
 * Reading one segment's batches at open, past damage where what follows was durable; see state.h. One thread
 * that has the log to itself.
 */
#include "log/segment/scan.h"
#include "log/recover/recovery.h"
#include "log/recover/state.h"
#include "log/segment/offset_index.h"

static pb_replay replay_of(pb_recovery *r, pb_segment *segment, int flags)
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

static void note_old_magic(pb_recovery *r, pb_segment *segment, int64_t offset)
{
    if (offset < 0)
        return;
    segment->old_magic = true;
    if (!r->report->old_magic_found) {
        r->report->old_magic_found = true;
        r->report->old_magic_offset = offset;
    }
}

static int add_hole(pb_recovery *r, pb_segment *segment, const pb_damage *damage)
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
 * A replay has come to `replay->position`, and all batches that belong there are before it. Are there only zeros
 * behind, because a file grows by whole blocks, or was made longer ahead? They are cut off, and nobody has to hear of
 * it.
 */
static int cut_padding(pb_recovery *r, const pb_replay *replay, int64_t sealed_end)
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
        rc = pb_segment_sync(segment, segment->file);
    if (rc == 0)
        segment->size_bytes = position;
    return rc;
}

/*
 * Run a replay to the end of its segment, whose offsets end at `sealed_end` (-1: it is the active one), past damage
 * below the trusted offset, and cut padding off. Where it stops before the segment's end, nothing that was durable
 * follows.
 */
static int replay_durable(pb_recovery *r, pb_replay *replay, int64_t sealed_end)
{
    bool is_sealed = sealed_end >= 0 && sealed_end <= r->trusted_offset; /* and durable, to its last byte */
    int64_t end_offset = is_sealed ? sealed_end : r->trusted_offset;
    for (;;) {
        int rc = pb_replay_run(replay);
        if (rc != 0 || replay->position >= replay->file_bytes || (!is_sealed && replay->next_offset >= end_offset))
            return rc != 0 ? rc : cut_padding(r, replay, sealed_end);
        if (replay->next_offset == sealed_end) {
            rc = cut_padding(r, replay, sealed_end);
            if (rc != 0 || replay->position >= replay->segment->size_bytes)
                return rc;
        }
        pb_damage damage;
        int found = pb_replay_skip(replay, end_offset - 1, &damage); /* a record may hold batches of another log */
        if (found < 0)
            return found;
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
static int replay_whole(pb_recovery *r, pb_replay *replay, int64_t sealed_end)
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

/* An interruption in between leaves no offset index, which is written last. Then the next opening does not trust the
 * other indexes, and above all not the absence of a transaction index. */
static int store_whole(pb_recovery *r, pb_segment *segment)
{
    int rc = pb_segment_unlink_index(segment, PB_FILE_OFFSET_INDEX);
    if (rc == 0)
        rc = pb_recovery_store_indexes(r, segment);
    if (rc != 0)
        (void)pb_segment_unlink_index(segment, PB_FILE_OFFSET_INDEX);
    return rc;
}

int pb_recovery_check_sealed(pb_recovery *r, uint32_t index)
{
    pb_segment *segment = r->log->segments[index];
    if (pb_recovery_load_indexes(r, segment, sealed_end_of(r->log, index)))
        return 0;
    int rc = pb_recovery_open_file(r, segment);
    if (rc != 0)
        return rc;
    pb_recovery_reset_indexes(r, segment);
    /* Which transactions its markers abort is known from the producers before it. */
    rc = pb_replay_producers(r->log, NULL, segment->base_offset, r->failure);
    if (rc != 0)
        return rc;
    pb_replay replay = replay_of(r, segment, PB_REPLAY_CRC | PB_REPLAY_INDEXES | PB_REPLAY_PRODUCERS);
    rc = replay_whole(r, &replay, sealed_end_of(r->log, index));
    if (rc == 0)
        rc = store_whole(r, segment);
    r->report->scanned_bytes += replay.position;
    r->gaps_seen = r->gaps_seen || replay.gaps_seen;
    pb_recovery_close_file(segment);
    return rc == 0 ? 0 : pb_recovery_fail_segment(r, segment, rc, "cannot rebuild the indexes of");
}

/* The CRCs of what the active segment has below `position` were not looked at. */
static void leave_unchecked(pb_segment *active, int64_t position, int64_t end_offset)
{
    PB_ASSERT(position >= 0 && position <= active->size_bytes);
    active->unchecked_bytes = position;
    active->unchecked_end = end_offset;
}

/* Where the scan of a segment begins. */
static void begin_scan(pb_recovery *r, uint32_t index, pb_replay *replay)
{
    pb_segment *segment = r->log->segments[index];
    *replay = replay_of(r, segment, PB_REPLAY_CRC | PB_REPLAY_INDEXES | PB_REPLAY_EPOCHS | PB_REPLAY_PRODUCERS);
    if (r->resumes && index == r->resume.segment) {
        replay->position = r->resume.mark.position;
        replay->next_offset = r->resume.mark.offset;
        replay->first_timestamp_ms = r->resume.first_timestamp_ms;
        replay->indexed_position = r->resume.indexed_position;
        replay->newest_seen = true;
        leave_unchecked(segment, replay->position, replay->next_offset);
        return;
    }
    pb_recovery_reset_indexes(r, segment);
    segment->old_magic = false;
}

int pb_recovery_scan_segment(pb_recovery *r, uint32_t index, int64_t *next_offset)
{
    pb_segment *segment = r->log->segments[index];
    pb_replay replay;
    int rc = pb_recovery_open_file(r, segment);
    if (rc != 0)
        return rc;
    begin_scan(r, index, &replay);
    int64_t begun_position = replay.position;
    rc = replay_whole(r, &replay, sealed_end_of(r->log, index));
    if (rc != 0)
        return pb_recovery_fail_segment(r, segment, rc, "cannot scan");
    note_old_magic(r, segment, replay.old_magic_offset);
    r->report->scanned_bytes += replay.position - begun_position;
    r->active_first_timestamp_ms = replay.first_timestamp_ms;
    r->gaps_seen = r->gaps_seen || replay.gaps_seen;
    *next_offset = replay.next_offset;
    rc = replay.position == segment->size_bytes
             ? 0
             : pb_recovery_cut_log(r, index + 1, *next_offset, segment, replay.position);
    if (rc != 0)
        return rc;
    /* The blocks that a hot log had taken ahead. */
    rc = segment->io->ops->file_release_ahead(segment->io, segment->file);
    return rc == 0 ? 0 : pb_recovery_fail_segment(r, segment, rc, "cannot free blocks behind the end of");
}

int pb_recovery_find_end(pb_recovery *r, int64_t *next_offset, bool *damaged)
{
    pb_segment *active = pb_log_active(r->log);
    *damaged = !pb_recovery_load_indexes(r, active, INT64_MAX);
    if (*damaged)
        return 0;
    pb_replay replay = replay_of(r, active, 0);
    int rc = pb_offset_index_find_flushed(active, active->offset_index.flushed_count, INT64_MAX, &replay.position);
    if (rc == 0)
        rc = pb_replay_run(&replay);
    if (rc != 0)
        return pb_recovery_fail_segment(r, active, rc, "cannot read");
    note_old_magic(r, active, replay.old_magic_offset);
    *next_offset = replay.next_offset;
    *damaged = replay.position < active->size_bytes;
    if (!*damaged)
        leave_unchecked(active, replay.position, replay.next_offset);
    return 0;
}
