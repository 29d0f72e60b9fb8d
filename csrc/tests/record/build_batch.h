/* Builds magic-2 batches for tests: records are appended to a growing buffer, then framed and compressed. */
#ifndef PB_TESTS_RECORD_BUILD_BATCH_H
#define PB_TESTS_RECORD_BUILD_BATCH_H

#include "base/varint.h"
#include "record/batch.h"
#include "record/codec.h"
#include "tests/check.h"

enum { BUILD_CAPACITY = 4 * 1024 * 1024 };

/* Records, uncompressed, and then the finished batch. Static: one per test executable, reused by each case. */
typedef struct batch_builder {
    uint8_t records[BUILD_CAPACITY];
    size_t records_length;
    int32_t record_count;
    pb_batch_header header;
    uint8_t batch[BUILD_CAPACITY + 1024 * 1024];
    size_t batch_length;
} batch_builder;

static inline void build_begin(batch_builder *builder)
{
    builder->records_length = 0;
    builder->record_count = 0;
    builder->header = (pb_batch_header){
        .magic = PB_BATCH_MAGIC,
        .partition_leader_epoch = -1,
        .producer_id = -1,
        .producer_epoch = -1,
        .base_sequence = -1,
        .base_timestamp = 1000,
        .max_timestamp = PB_NO_TIMESTAMP,
    };
}

/* One record; a key or value of NULL is null. */
static inline void build_record(batch_builder *builder, int64_t timestamp, const char *key, const void *value,
                                int32_t value_length)
{
    uint8_t front[64];
    uint8_t *p = front;
    *p++ = 0;
    p = pb_varlong_write(p, timestamp - builder->header.base_timestamp);
    p = pb_varint_write(p, builder->record_count);
    int32_t key_length = key == NULL ? -1 : (int32_t)strlen(key);
    p = pb_varint_write(p, key_length);
    CHECK(key_length <= 16);
    if (key != NULL) {
        memcpy(p, key, (size_t)key_length);
        p += key_length;
    }
    p = pb_varint_write(p, value == NULL ? -1 : value_length);
    size_t body_length = (size_t)(p - front) + (value == NULL ? 0 : (size_t)value_length) + 1;
    uint8_t *out = builder->records + builder->records_length;
    CHECK(builder->records_length + body_length + 16 < BUILD_CAPACITY);
    out = pb_varint_write(out, (int32_t)body_length);
    memcpy(out, front, (size_t)(p - front));
    out += p - front;
    if (value != NULL) {
        memcpy(out, value, (size_t)value_length);
        out += value_length;
    }
    *out++ = 0;
    builder->records_length = (size_t)(out - builder->records);
    builder->record_count++;
    if (timestamp > builder->header.max_timestamp)
        builder->header.max_timestamp = timestamp;
}

/* Compress and frame what was appended. Fields of `header` set before this are kept, length, counts and CRC are made.
 */
static inline void build_finish(batch_builder *builder, pb_codec *codec, int compression)
{
    size_t length = 0;
    CHECK_INT(pb_compress(codec, compression, pb_compression_default_level(compression), builder->records,
                          builder->records_length, builder->batch + PB_BATCH_HEADER_BYTES,
                          sizeof(builder->batch) - PB_BATCH_HEADER_BYTES, &length, NULL),
              0);
    builder->header.attributes = (uint16_t)(builder->header.attributes | compression);
    builder->header.last_offset_delta = builder->record_count - 1;
    builder->header.record_count = builder->record_count;
    builder->header.size_bytes = (uint32_t)(PB_BATCH_HEADER_BYTES + length);
    builder->batch_length = builder->header.size_bytes;
    pb_batch_write(builder->batch, &builder->header);
    CHECK_INT(pb_batch_parse(builder->batch, builder->batch_length, &builder->header), 0);
}

#endif
