/*
 * The transaction index: one entry of 34 bytes, big-endian, per aborted transaction of a segment. An entry has version
 * (int16, 0), producer id, first offset, last offset (the abort marker), and the last stable offset when it was
 * written. Format of Kafka's .txnindex files; the file exists only where a transaction was aborted.
 */
#ifndef PB_LOG_SEGMENT_TRANSACTION_INDEX_H
#define PB_LOG_SEGMENT_TRANSACTION_INDEX_H

#include "log/segment/segment.h"

typedef struct pb_transaction_entry {
    int64_t producer_id;
    int64_t first_offset;
    int64_t last_offset;
    int64_t last_stable_offset;
} pb_transaction_entry;

/* Add an entry. [lock] */
int pb_transaction_index_push(pb_segment *segment, const pb_transaction_entry *entry);
/* Decode an entry; false when its version is not 0 or its offsets make no sense. */
bool pb_transaction_entry_decode(const uint8_t *bytes, pb_transaction_entry *out);
/* As pb_log_aborted_transactions, with all that the index says; allocates *out (free()). Blocking. [any] */
int pb_log_aborted_entries(pb_log *log, const pb_log_guard *guard, int64_t offset, int64_t upper_offset,
                           pb_transaction_entry **out, int *count);
/* The first `flushed_count` entries of the file; allocates *out (free()). 0, -EBADMSG when damaged, or -errno. */
int pb_transaction_index_load(pb_segment *segment, uint32_t flushed_count, pb_transaction_entry **out);

#endif
