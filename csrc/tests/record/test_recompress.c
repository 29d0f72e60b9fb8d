/* Recompression: every codec to every other keeps each record's bytes, and the result's size is bounded. */
#include "record/recompress.h"

#include "base/kafka_error.h"
#include "record/record.h"
#include "tests/record/build_batch.h"

static batch_builder builder;

static pb_codec *build(int compression, int records)
{
    pb_codec *codec = NULL;
    CHECK_INT(pb_codec_create(&codec), 0);
    static char value[1000];
    for (size_t i = 0; i < sizeof(value); i++)
        value[i] = (char)('a' + i * i % 23);
    build_begin(&builder);
    builder.header.producer_id = 17;
    builder.header.producer_epoch = 2;
    builder.header.base_sequence = 40;
    builder.header.attributes = PB_BATCH_TRANSACTIONAL;
    for (int i = 0; i < records; i++)
        build_record(&builder, 1000 + i, "key", value + i % 100, 900);
    build_finish(&builder, codec, compression);
    return codec;
}

TEST(every_codec_to_every_other)
{
    enum { LIMIT = 1000000, RECORDS = 700 };
    pb_recompressed out = {0};
    uint8_t *plain = malloc(LIMIT);
    CHECK(plain != NULL);
    for (int source = 0; source < PB_COMPRESSION_COUNT; source++) {
        pb_codec *codec = build(source, RECORDS);
        for (int target = 0; target < PB_COMPRESSION_COUNT; target++) {
            CHECK_INT(pb_recompress(codec, builder.batch, builder.batch_length, target,
                                    pb_compression_default_level(target), LIMIT, &out, NULL),
                      0);
            size_t size_bytes = out.size_bytes;
            pb_batch_header header;
            CHECK_INT(pb_batch_parse(out.data, size_bytes, &header), 0);
            CHECK_INT(header.size_bytes, size_bytes);
            CHECK(pb_batch_crc_matches(out.data, size_bytes));
            CHECK_INT(header.attributes, PB_BATCH_TRANSACTIONAL | target);
            CHECK_INT(header.record_count, RECORDS);
            CHECK_INT(header.last_offset_delta, RECORDS - 1);
            CHECK_INT(header.producer_id, 17);
            CHECK_INT(header.base_sequence, 40);
            CHECK_INT(header.max_timestamp, 1000 + RECORDS - 1);
            size_t length = 0;
            CHECK_INT(pb_decompress(codec, target, out.data + PB_BATCH_HEADER_BYTES, size_bytes - PB_BATCH_HEADER_BYTES,
                                    plain, LIMIT, &length, NULL),
                      0);
            CHECK_INT(length, builder.records_length);
            CHECK_MEM(plain, builder.records, length);
        }
        pb_codec_destroy(codec);
    }
    pb_recompressed_trim(&out, 0);
    free(plain);
}

TEST(the_limit_holds_to_the_byte)
{
    pb_codec *codec = build(PB_COMPRESSION_ZSTD, 50);
    pb_recompressed out = {0};
    for (int target = 0; target < PB_COMPRESSION_COUNT; target++) {
        int level = pb_compression_default_level(target);
        const uint8_t *batch = builder.batch;
        size_t length = builder.batch_length;
        CHECK_INT(pb_recompress(codec, batch, length, target, level, 1000000, &out, NULL), 0);
        size_t size_bytes = out.size_bytes;
        CHECK_INT(pb_recompress(codec, batch, length, target, level, (int32_t)size_bytes, &out, NULL), 0);
        CHECK_INT(out.size_bytes, size_bytes);
        pb_failure failure = {0, ""};
        CHECK_INT(pb_recompress(codec, batch, length, target, level, (int32_t)size_bytes - 1, &out, &failure),
                  PB_MESSAGE_TOO_LARGE);
        CHECK(strstr(failure.text, "max.message.bytes") != NULL);
    }
    pb_recompressed_trim(&out, 0);
    pb_codec_destroy(codec);
}

TEST(a_bomb_stops_at_the_limit)
{
    enum { LIMIT = 100000, ZEROS = 16 * 1024 * 1024 };
    pb_codec *codec = build(PB_COMPRESSION_NONE, 1);
    uint8_t *zeros = calloc(1, ZEROS);
    pb_recompressed out = {0};
    CHECK(zeros != NULL);
    size_t packed = 0;
    CHECK_INT(pb_compress(codec, PB_COMPRESSION_ZSTD, 3, zeros, ZEROS, builder.batch + PB_BATCH_HEADER_BYTES,
                          BUILD_CAPACITY, &packed, NULL),
              0);
    builder.header.attributes = PB_COMPRESSION_ZSTD;
    builder.header.size_bytes = (uint32_t)(PB_BATCH_HEADER_BYTES + packed);
    pb_batch_write(builder.batch, &builder.header);
    CHECK_INT(pb_recompress(codec, builder.batch, builder.header.size_bytes, PB_COMPRESSION_NONE, 0, LIMIT, &out, NULL),
              PB_MESSAGE_TOO_LARGE);
    free(zeros);
    pb_recompressed_trim(&out, 0);
    pb_codec_destroy(codec);
}

/* A limit that says "any" costs no more than what comes out. */
TEST(memory_grows_with_the_batch_and_not_with_the_limit)
{
    enum { RECORDS = 3000 };
    pb_codec *codec = build(PB_COMPRESSION_ZSTD, RECORDS);
    pb_recompressed out = {0};
    CHECK_INT(pb_recompress(codec, builder.batch, builder.batch_length, PB_COMPRESSION_NONE, 0, INT32_MAX, &out, NULL),
              0);
    CHECK(pb_batch_crc_matches(out.data, out.size_bytes));
    CHECK(out.size_bytes > 4 * builder.batch_length); /* so that the first try had too little room */
    CHECK(out.capacity < 8 * out.size_bytes);
    size_t large_bytes = out.capacity;
    pb_recompressed_trim(&out, large_bytes);
    CHECK_INT(out.capacity, large_bytes);
    pb_recompressed_trim(&out, large_bytes - 1);
    CHECK_INT(out.capacity, 0);
    pb_codec_destroy(codec);
}

CHECK_MAIN()
