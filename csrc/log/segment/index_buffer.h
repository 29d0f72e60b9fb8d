/*
 * Entries of one index file (.index, .timeindex, .txnindex): a flushed part in the file and a pending part in memory.
 *
 * An index is derived from the log, so an append only adds to the pending part; background work moves it to the file
 * and frees the memory. An idle segment's index therefore costs 24 bytes, and no ack waits for an index. Guarded by the
 * partition's lock, except for the file functions, which work on copies and on the flushed part. That part changes only
 * in open, truncate and repair, which have the log to themselves.
 */
#ifndef PB_LOG_SEGMENT_INDEX_BUFFER_H
#define PB_LOG_SEGMENT_INDEX_BUFFER_H

#include <stdbool.h>
#include <stdint.h>

#include "io/io.h"

typedef struct pb_index_buffer {
    uint8_t *pending;       /* whole entries, as they lie in the file */
    uint32_t pending_count; /* entries */
    uint32_t capacity;      /* entries */
    uint32_t flushed_count; /* entries in the file */
} pb_index_buffer;

static inline uint32_t pb_index_count(const pb_index_buffer *index)
{
    return index->flushed_count + index->pending_count;
}

/* Add one entry of `entry_bytes`. [lock] 0 or -ENOMEM. */
int pb_index_push(pb_index_buffer *index, const uint8_t *entry, uint32_t entry_bytes);
/* The first `count` pending entries have reached the file: forget them. [lock] */
void pb_index_flushed(pb_index_buffer *index, uint32_t count, uint32_t entry_bytes);
/* Free the memory; the counts become 0. */
void pb_index_clear(pb_index_buffer *index);

/*
 * Binary search over `count` entries in an open file: the number of entries at or below `key`. An entry begins with its
 * key, a big-endian integer of `key_bytes` (4 or 8), unsigned or, with signed_key, a signed 64-bit one. *entry (at
 * least entry_bytes) gets the last of them. Returns the count or -errno.
 */
int64_t pb_index_search_file(pb_io *io, int file, uint32_t count, uint32_t entry_bytes, uint32_t key_bytes, int64_t key,
                             uint8_t *entry);
/* The same over entries in memory; returns the count. */
uint32_t pb_index_search(const uint8_t *entries, uint32_t count, uint32_t entry_bytes, uint32_t key_bytes, int64_t key);

#endif
