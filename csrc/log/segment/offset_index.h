/*
 * The offset index of a segment finds batches by offset. It has the format of Apache Kafka's .index files.
 *
 * An entry has 8 bytes: two int32, big-endian. The first is the offset of the last record of a batch, relative to the
 * segment's base. The second is the position of that batch in the .log file.
 *
 * New entries are pending: they are kept in memory until upkeep writes ("flushes") them to the file.
 */
#ifndef PB_LOG_SEGMENT_OFFSET_INDEX_H
#define PB_LOG_SEGMENT_OFFSET_INDEX_H

#include "log/segment/segment.h"

/* Add a pending entry. 0 or -ENOMEM. [lock] */
int pb_offset_index_push(pb_segment *segment, int64_t last_offset, int64_t position);
/* Find the position of the last pending entry at or below `offset`. false: there is none, so look into the file. [lock]
 */
bool pb_offset_index_find_pending(const pb_segment *segment, int64_t offset, int64_t *position);
/* Find the position of the last entry at or below `offset` among the first `flushed_count` entries of the file; 0 when
 * there is none. 0 or -errno. */
int pb_offset_index_find_flushed(pb_segment *segment, uint32_t flushed_count, int64_t offset, int64_t *position);
/* Check an index file of `file_bytes`, whose .log file has `log_bytes`, by Kafka's sanity rules. true: the file may be
 * trusted. */
bool pb_offset_index_sane(pb_segment *segment, int file, int64_t file_bytes, int64_t log_bytes);

#endif
