/*
 * The segment that the cleaner writes, under names that end in ".cleaned" until it takes the places of old ones. One
 * thread; nobody else sees the segment before the swap.
 */
#ifndef PB_LOG_CLEAN_OUTPUT_H
#define PB_LOG_CLEAN_OUTPUT_H

#include "base/error.h"
#include "log/segment/transaction_index.h"
#include "record/batch.h"

typedef struct pb_clean_output {
    pb_segment *segment; /* NULL: none */
    int64_t index_interval_bytes;
    int64_t indexed_position;
    int64_t started_position; /* writeback has been started below */
    uint8_t *buffer;          /* kept from segment to segment */
    size_t capacity;
    size_t length;
    int64_t written_bytes; /* in all */
} pb_clean_output;

/* 0 or -ENOMEM. */
int pb_clean_output_init(pb_clean_output *output, size_t buffer_bytes);
void pb_clean_output_clear(pb_clean_output *output);
/* Make the files of a segment that begins at `base_offset`. */
int pb_clean_output_begin(pb_clean_output *output, pb_io *io, const char *directory, int64_t base_offset,
                          int64_t index_interval_bytes);
/* Add a batch of that length, with the offsets of `header`. -EFBIG when the segment cannot take it. */
int pb_clean_output_add(pb_clean_output *output, const uint8_t *batch, size_t length, const pb_batch_header *header,
                        int64_t max_timestamp_ms);
/* Bring everything into the files and sync them; the segment is the caller's. After a failure: abandon. */
int pb_clean_output_finish(pb_clean_output *output, pb_segment **out);
/* Unlink the files, if any. */
int pb_clean_output_abandon(pb_clean_output *output);

#endif
