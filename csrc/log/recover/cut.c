/*
 * Taking off the end of a log what is no part of it; see state.h. One thread that has the log to itself. Bytes
 * that have to be kept lie in files of other names before they go.
 */
#include "log/recover/state.h"
#include "log/segment/scan.h"

/* Surveys the bytes that a cut takes away: whether they have to be kept, and the report's words for them. */
static int survey_cut(pb_recovery *r, uint32_t first, pb_segment *torn, int64_t position)
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
        rc = pb_recovery_open_file(r, segment);
        if (rc != 0)
            return rc;
        pb_scan_init(&scan, log->io, segment->file, segment->size_bytes, r->buffer, PB_SCAN_LARGE_BYTES);
        rc = pb_damage_survey(&scan, 0, &report->kept_batch_count, &report->cut_end_offset);
        if (rc != 0)
            return pb_recovery_fail_segment(r, segment, rc, "cannot read");
    }
    return rc == 0 ? 0 : pb_recovery_fail_segment(r, torn, rc, "cannot read");
}

int pb_recovery_drop_segments(pb_recovery *r, uint32_t first, bool keep)
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
            return pb_recovery_fail_segment(r, segment, rc, "cannot set aside");
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
static int cut_tail(pb_recovery *r, pb_segment *torn, int64_t position, bool keep)
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
            return pb_recovery_fail_segment(r, torn, rc, "cannot make a copy, to keep it, of the damaged end of");
    }
    r->report->truncated_bytes += torn->size_bytes - position;
    rc = io->ops->file_truncate(io, torn->file, position);
    /* Syncs pass over a segment that ends at the durable end: what is cut off here must not come back below it. */
    if (rc == 0)
        rc = pb_segment_sync(torn, torn->file);
    if (rc != 0)
        return pb_recovery_fail_segment(r, torn, rc, "cannot cut the damaged end of");
    torn->size_bytes = position;
    pb_segment_cut_damage(torn, position);
    return 0;
}

int pb_recovery_cut_log(pb_recovery *r, uint32_t first, int64_t end_offset, pb_segment *torn, int64_t position)
{
    pb_log_recovery *report = r->report;
    report->cut_offset = report->cut_end_offset = end_offset;
    report->cut_segment = torn != NULL ? torn->base_offset : r->log->segments[first]->base_offset;
    report->cut_position = position;
    int rc = survey_cut(r, first, torn, position);
    if (rc != 0)
        return rc;
    bool keep = report->kept_batch_count > 0 || end_offset < r->trusted_offset;
    rc = pb_recovery_drop_segments(r, first, keep);
    return rc != 0 || torn == NULL ? rc : cut_tail(r, torn, position, keep);
}
