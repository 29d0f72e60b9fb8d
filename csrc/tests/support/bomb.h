/* Batches of magic 2 that unpack to much more than they take. Header only. */
#ifndef PB_TESTS_SUPPORT_BOMB_H
#define PB_TESTS_SUPPORT_BOMB_H

#include "base/varint.h"
#include "record/batch.h"
#include "record/codec.h"
#include "tests/check.h"

#define BOMB_UNUSED __attribute__((unused))
#define BOMB_TIMESTAMP 1700000000000LL

/* One record, whose value are zeros, into a compression that has begun. */
static BOMB_UNUSED void bomb_record(pb_codec *codec, int32_t index, int32_t value_bytes)
{
    static const uint8_t zeros[64 * 1024];
    uint8_t body[32] = {0, 0}; /* attributes, timestamp delta */
    uint8_t *end = pb_varint_write(body + 2, index);
    end = pb_varint_write(end, 1);
    *end++ = 'k';
    end = pb_varint_write(end, value_bytes);
    uint8_t length[8];
    uint8_t *length_end = pb_varint_write(length, (int32_t)(end - body) + value_bytes + 1);
    CHECK_INT(pb_compress_add(codec, length, (size_t)(length_end - length), NULL), 0);
    CHECK_INT(pb_compress_add(codec, body, (size_t)(end - body), NULL), 0);
    for (int32_t left = value_bytes; left > 0; left -= (int32_t)sizeof zeros)
        CHECK_INT(pb_compress_add(codec, zeros, left < (int32_t)sizeof zeros ? (size_t)left : sizeof zeros, NULL), 0);
    CHECK_INT(pb_compress_add(codec, zeros, 1, NULL), 0); /* no headers */
}

/* A batch of `count` records with values of so many zeros; its size. */
static BOMB_UNUSED size_t bomb_batch(uint8_t *out, size_t capacity, int compression, int count, int32_t value_bytes)
{
    pb_codec *codec = NULL;
    size_t length = 0;
    CHECK_INT(pb_codec_create(&codec), 0);
    int level = compression == PB_COMPRESSION_GZIP ? 1 : pb_compression_default_level(compression);
    CHECK_INT(pb_compress_begin(codec, compression, level, out + PB_BATCH_HEADER_BYTES,
                                capacity - PB_BATCH_HEADER_BYTES, NULL),
              0);
    for (int32_t i = 0; i < count; i++)
        bomb_record(codec, i, value_bytes);
    CHECK_INT(pb_compress_finish(codec, &length, NULL), 0);
    pb_codec_destroy(codec);
    pb_batch_header header = {
        .size_bytes = (uint32_t)(PB_BATCH_HEADER_BYTES + length),
        .partition_leader_epoch = -1,
        .attributes = (uint16_t)compression,
        .last_offset_delta = count - 1,
        .base_timestamp = BOMB_TIMESTAMP,
        .max_timestamp = BOMB_TIMESTAMP,
        .producer_id = -1,
        .producer_epoch = -1,
        .base_sequence = -1,
        .record_count = count,
        .magic = PB_BATCH_MAGIC,
    };
    pb_batch_write(out, &header);
    return header.size_bytes;
}

#endif
