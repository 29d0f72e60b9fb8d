/*
 * Bytes of a segment that are no batches, although batches were there.
 *
 * Below the recovery point they stay where they are: the segment remembers the range, readers of it are told
 * CORRUPT_MESSAGE, and everything outside is served. Above it the log ends at the last good batch; what followed goes
 * into files beside the segment, named <its base offset>.log.damaged-<position>, which neither Kafka nor we look at.
 */
#ifndef PB_LOG_SEGMENT_DAMAGE_H
#define PB_LOG_SEGMENT_DAMAGE_H

#include "log/log.h"
#include "log/segment/scan.h"

/* One damaged range of a segment. */
typedef struct pb_damage {
    int64_t position;
    int64_t end_position; /* a batch begins there, or the file ends */
    int64_t offset;       /* offsets from here on */
    int64_t end_offset;   /* and below this one may be lost */
} pb_damage;

/* Remember a range of the segment, unless it is known. [lock] 0, 1 when it was known, or -ENOMEM. */
int pb_segment_add_damage(pb_segment *segment, const pb_damage *damage);
/* The first range that reaches above `offset`; NULL: none. [lock] */
const pb_damage *pb_segment_next_damage(const pb_segment *segment, int64_t offset);
/* Where a walk to `offset` may begin: behind the last range below it; 0 when there is none. [lock] */
int64_t pb_segment_behind_damage(const pb_segment *segment, int64_t offset);
/* The segment ends at `size_bytes` now: forget what lies behind. [lock] */
void pb_segment_cut_damage(pb_segment *segment, int64_t size_bytes);

/* Count the intact batches from `position` on; *end_offset moves behind the last of them. 0 or -errno. */
int pb_damage_survey(pb_scan *scan, int64_t position, int64_t *batch_count, int64_t *end_offset);
/* Is there nothing but zeros from `position` to `end`, as in blocks that were made ahead? 0 or -errno. */
int pb_damage_only_zeros(pb_scan *scan, int64_t position, int64_t end, bool *zeros);
/* Copy what lies from `position` on in the segment's open file to a file of its own, and sync that. 0 or -errno. */
int pb_damage_keep_tail(pb_segment *segment, int64_t position, uint8_t *buffer, size_t capacity);
/* Rename the segment's .log, so that it is no part of the log any more. 0 or -errno. */
int pb_damage_keep_segment(const pb_segment *segment);

#endif
