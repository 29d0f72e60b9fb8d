/* The parts that tests make batches of magic 2 from. Header only. */
#ifndef PB_TESTS_SUPPORT_TEST_BATCH_H
#define PB_TESTS_SUPPORT_TEST_BATCH_H

#include <string.h>

#include "base/assert.h"
#include "base/varint.h"
#include "record/batch.h"

#define TEST_BATCH_UNUSED __attribute__((unused))
#define TEST_BATCH_TIMESTAMP 1700000000000LL

enum { TEST_RECORD_HEAD_BYTES = 40 };

/* Into TEST_RECORD_HEAD_BYTES: all of a record in front of its value, whose size it tells. NULL: it has no key. Behind
 * the value there is one zero, for no headers. How long that is. */
static TEST_BATCH_UNUSED size_t test_record_head(uint8_t *out, int32_t index, const char *key, int32_t value_bytes)
{
    uint8_t body[TEST_RECORD_HEAD_BYTES] = {0, 0}; /* attributes, timestamp delta */
    const size_t key_bytes = key == NULL ? 0 : strlen(key);
    PB_ASSERT(key_bytes <= 16);
    uint8_t *end = pb_varint_write(body + 2, index);
    end = pb_varint_write(end, key == NULL ? -1 : (int32_t)key_bytes);
    if (key != NULL)
        memcpy(end, key, key_bytes);
    end = pb_varint_write(end + key_bytes, value_bytes);
    const size_t used = (size_t)(end - body);
    uint8_t *start = pb_varint_write(out, (int32_t)used + value_bytes + 1);
    memcpy(start, body, used);
    return (size_t)(start - out) + used;
}

/* The header of a batch of `size_bytes` with `count` records. */
static TEST_BATCH_UNUSED void test_batch_write_header(uint8_t *out, size_t size_bytes, int attributes, int count)
{
    const pb_batch_header header = {
        .size_bytes = (uint32_t)size_bytes,
        .partition_leader_epoch = -1,
        .attributes = (uint16_t)attributes,
        .last_offset_delta = count - 1,
        .base_timestamp = TEST_BATCH_TIMESTAMP,
        .max_timestamp = TEST_BATCH_TIMESTAMP,
        .producer_id = -1,
        .producer_epoch = -1,
        .base_sequence = -1,
        .record_count = count,
        .magic = PB_BATCH_MAGIC,
    };
    pb_batch_write(out, &header);
}

#endif
