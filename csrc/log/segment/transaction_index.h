/*
 * The transaction index of a segment lists its aborted transactions. It has the format of Kafka's .txnindex files. The
 * file exists only if the segment has an aborted transaction.
 *
 * An entry has 34 bytes, big-endian: the version (int16, 0), then four int64. These are the producer id, the first
 * offset, the last offset (of the abort marker), and the last stable offset at the time of the marker.
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

/* Add a pending entry, which upkeep writes to the file. 0 or -ENOMEM. [lock] */
int pb_transaction_index_push(pb_segment *segment, const pb_transaction_entry *entry);
/* Decode an entry. false: its version is not 0, or its offsets are not possible. */
bool pb_transaction_entry_decode(const uint8_t *bytes, pb_transaction_entry *out);
/* Like pb_log_aborted_transactions, but with all fields of the index entries. Allocates *out (free()). Blocking. [any]
 */
int pb_log_aborted_entries(pb_log *log, const pb_log_guard *guard, int64_t offset, int64_t upper_offset,
                           pb_transaction_entry **out, int *count);
/* Read the first `flushed_count` entries of the file. Allocates *out (free()). 0, -EBADMSG when one is damaged, or
 * -errno. */
int pb_transaction_index_load(pb_segment *segment, uint32_t flushed_count, pb_transaction_entry **out);

#endif
