/*
 * Questions that ListOffsets asks of one stored batch, compressed or not. Any thread, with its own codec; the batch is
 * whole, parsed magic 2 and does not change meanwhile. Fails as reading records does. INVALID_RECORD then means a
 * damaged log, or a record of a compressed batch with more than `max_record_bytes`. That limit is
 * max.decompressed.message.bytes (0: no limit), as in Kafka.
 */
#ifndef PB_RECORD_LOOKUP_H
#define PB_RECORD_LOOKUP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "record/batch.h"
#include "record/codec.h"

typedef struct pb_record_position {
    bool found;
    int64_t offset;
    int64_t timestamp;
} pb_record_position;

/* The first record with a timestamp >= `timestamp` and an offset >= `start_offset`. */
int pb_batch_find_timestamp(pb_codec *codec, const uint8_t *batch, const pb_batch_header *header,
                            int32_t max_record_bytes, int64_t timestamp, int64_t start_offset,
                            pb_record_position *position, pb_failure *failure);

/*
 * The record that carries the batch's largest timestamp: the first such one, or with LogAppendTime, where all carry it,
 * the last one of the batch. Not found when no record has a timestamp.
 */
int pb_batch_find_max_timestamp(pb_codec *codec, const uint8_t *batch, const pb_batch_header *header,
                                int32_t max_record_bytes, pb_record_position *position, pb_failure *failure);

#endif
