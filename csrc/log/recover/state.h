/*
 * The inside of recovery, shared by its files and by nobody else. recovery.c has the order, and scan.c reads one
 * segment. The file cut.c takes off what is no part of the log, and segment.c has one segment's files. Each calls only
 * those behind it. One thread that has the log to itself. After a failure, which is in `failure` unless said otherwise,
 * the log can only be closed.
 */
#ifndef PB_LOG_RECOVER_STATE_H
#define PB_LOG_RECOVER_STATE_H

#include "log/recover/mark.h"
#include "log/state.h"

/* One opening of a log. Owner: pb_log_recover, which has it on its stack. */
typedef struct pb_recovery {
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
    bool epochs_missing; /* there is no checkpoint */
    bool gaps_seen;
} pb_recovery;

/* pb_fail with the path of the segment's .log in it: "<what> <path>". */
int pb_recovery_fail_segment(pb_recovery *r, const pb_segment *segment, int code, const char *what);
/* Close the segment's .log, if it is open. */
void pb_recovery_close_file(pb_segment *segment);
/* Open for writing, since recovery may have to cut it; one that is open may be so for reading only. */
int pb_recovery_open_file(pb_recovery *r, pb_segment *segment);

/*
 * Load the counts of a segment's indexes. false: they have to be built again. One is missing or damaged, or has an
 * entry from `end_offset` on, and the report says so. Or they were made with their segment and never written, which is
 * in order. A log may have been cut at the recovery point and rolled there before its indexes were written again: then
 * they still speak of what was cut off. That an offset index does shows in its positions.
 */
bool pb_recovery_load_indexes(pb_recovery *r, pb_segment *segment, int64_t end_offset);
/* Write a rebuilt sealed segment's indexes; for the active one there is pb_recovery_write_active. Upkeep syncs them
 * where the segment is not below the recovery point, which does not pass it before: a start would wait for two syncs of
 * each. On a full disk they stay in memory, and the next upkeep tries again: the log can be read meanwhile. A failure
 * is the caller's to put into words. */
int pb_recovery_store_indexes(const pb_recovery *r, pb_segment *segment);
/* Bring what the replay of the active segment has built into the files that Apache Kafka's tools look at. They are not
 * synced, so the indexes stay unsaved: what fails here is done, or told of, by the next upkeep. */
void pb_recovery_write_active(pb_segment *segment);
/* Forget a segment's indexes, so that a replay builds them. The files stay until those are written over them. Where the
 * recovery point is the segment's very end, the next segment may begin there before that, and then the files are relied
 * on.
 */
void pb_recovery_reset_indexes(pb_recovery *r, pb_segment *segment);

/* Take segments from `first` on off the log, newest first, so that a stop half way leaves no hole; with `keep` their
 * bytes stay in files of other names. */
int pb_recovery_drop_segments(pb_recovery *r, uint32_t first, bool keep);
/* The log ends at `end_offset`: cut `torn` at `position` (NULL: no segment is cut), and take those from `first` on off.
 */
int pb_recovery_cut_log(pb_recovery *r, uint32_t first, int64_t end_offset, pb_segment *torn, int64_t position);

/* A segment below the recovery point: its data is trusted, its indexes are when they look right. */
int pb_recovery_check_sealed(pb_recovery *r, uint32_t index);
/* Read what a segment has above the recovery point, or all of it; *next_offset moves to its end. */
int pb_recovery_scan_segment(pb_recovery *r, uint32_t index, int64_t *next_offset);
/* After a clean stop: find the end by the active segment's index. *damaged: it must be scanned after all. */
int pb_recovery_find_end(pb_recovery *r, int64_t *next_offset, bool *damaged);

#endif
