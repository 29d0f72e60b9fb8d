/*
 * The time index: entries of 12 bytes, big-endian: largest timestamp so far, and the offset, relative to the segment's
 * base, of the last record of the batch that carries it. Both grow from entry to entry. Format of Kafka's .timeindex
 * files.
 */
#ifndef PB_LOG_SEGMENT_TIME_INDEX_H
#define PB_LOG_SEGMENT_TIME_INDEX_H

#include "log/segment/segment.h"

typedef struct pb_time_entry {
    int64_t timestamp_ms; /* -1: none */
    int64_t offset;
} pb_time_entry;

/* Add an entry unless the index already reaches that timestamp. [lock] */
int pb_time_index_maybe_push(pb_segment *segment, int64_t timestamp_ms, int64_t offset);
/* The last pending entry at or below `timestamp_ms`. [lock] false: look into the file. */
bool pb_time_index_find_pending(const pb_segment *segment, int64_t timestamp_ms, pb_time_entry *out);
/* The same over the first `flushed_count` entries of the file; {-1, base offset} when none. 0 or -errno. */
int pb_time_index_find_flushed(pb_segment *segment, uint32_t flushed_count, int64_t timestamp_ms, pb_time_entry *out);
/* Kafka's sanity rules; *last gets the last entry ({-1, base offset} when empty). true when the file may be trusted. */
bool pb_time_index_sane(pb_segment *segment, int file, int64_t file_bytes, pb_time_entry *last);

#endif
