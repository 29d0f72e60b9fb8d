/*
 * The offset index: entries of 8 bytes, big-endian: offset relative to the segment's base (of the last record of a
 * batch), position of that batch in the .log file. Format of Apache Kafka's .index files.
 */
#ifndef PB_LOG_SEGMENT_OFFSET_INDEX_H
#define PB_LOG_SEGMENT_OFFSET_INDEX_H

#include "log/segment/segment.h"

/* Add an entry. [lock] */
int pb_offset_index_push(pb_segment *segment, int64_t last_offset, int64_t position);
/* The position of the last pending entry at or below `offset`. [lock] false: look into the file. */
bool pb_offset_index_find_pending(const pb_segment *segment, int64_t offset, int64_t *position);
/* The same over the first `flushed_count` entries of the file; position 0 when none is at or below. 0 or -errno. */
int pb_offset_index_find_flushed(pb_segment *segment, uint32_t flushed_count, int64_t offset, int64_t *position);
/* Kafka's sanity rules for a file of `file_bytes` beside a log of `log_bytes`: true when it may be trusted. */
bool pb_offset_index_sane(pb_segment *segment, int file, int64_t file_bytes, int64_t log_bytes);

#endif
