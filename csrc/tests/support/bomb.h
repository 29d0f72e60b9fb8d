/* Batches of magic 2 that unpack to much more than they take. Header only. */
#ifndef PB_TESTS_SUPPORT_BOMB_H
#define PB_TESTS_SUPPORT_BOMB_H

#include "record/codec.h"
#include "tests/check.h"
#include "tests/support/test_batch.h"

#define BOMB_UNUSED __attribute__((unused))
#define BOMB_TIMESTAMP TEST_BATCH_TIMESTAMP

/* One record, whose value are zeros, into a compression that has begun. */
static BOMB_UNUSED void bomb_record(pb_codec *codec, int32_t index, int32_t value_bytes)
{
    static const uint8_t zeros[64 * 1024];
    uint8_t head[TEST_RECORD_HEAD_BYTES];
    CHECK_INT(pb_compress_add(codec, head, test_record_head(head, index, "k", value_bytes), NULL), 0);
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
    test_batch_write_header(out, PB_BATCH_HEADER_BYTES + length, compression, count);
    return PB_BATCH_HEADER_BYTES + length;
}

#endif
