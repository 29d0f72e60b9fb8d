/*
 * The time index of a segment finds offsets by timestamp. It has the format of Kafka's .timeindex files.
 *
 * An entry has 12 bytes, big-endian: a timestamp (int64) and an offset relative to the segment's base (int32). The
 * timestamp is the largest of the segment up to there, and the offset is of the last record of the batch that has this
 * timestamp. Both are larger than in the previous entry.
 *
 * New entries are pending: they are kept in memory until upkeep writes ("flushes") them to the file.
 */
#ifndef PB_LOG_SEGMENT_TIME_INDEX_H
#define PB_LOG_SEGMENT_TIME_INDEX_H

#include "log/segment/segment.h"

typedef struct pb_time_entry {
    int64_t timestamp_ms; /* -1: none */
    int64_t offset;
} pb_time_entry;

/* Add a pending entry, unless the last entry has this timestamp or a later one. 0 or -ENOMEM. [lock] */
int pb_time_index_maybe_push(pb_segment *segment, int64_t timestamp_ms, int64_t offset);
/* Find the last pending entry at or below `timestamp_ms`. false: there is none, so look into the file. [lock] */
bool pb_time_index_find_pending(const pb_segment *segment, int64_t timestamp_ms, pb_time_entry *out);
/* Find the last entry at or below `timestamp_ms` among the first `flushed_count` entries of the file. *out is {-1, base
 * offset} when there is none. 0 or -errno. */
int pb_time_index_find_flushed(pb_segment *segment, uint32_t flushed_count, int64_t timestamp_ms, pb_time_entry *out);
/* Check an index file by Kafka's sanity rules. true: the file may be trusted, and *last is its last entry ({-1, base
 * offset} when it has none). */
bool pb_time_index_sane(pb_segment *segment, int file, int64_t file_bytes, pb_time_entry *last);

#endif
