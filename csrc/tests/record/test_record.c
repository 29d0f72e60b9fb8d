/*
 * Records: parsing, and walking batches of every codec, with records that fit the codec's window, that do not, and that
 * lie about their lengths in either place.
 */
#include "record/record.h"

#include "base/kafka_error.h"
#include "tests/record/build_batch.h"

static batch_builder builder;
static uint8_t value[2 * 1024 * 1024];

static pb_codec *make_codec(void)
{
    pb_codec *codec = NULL;
    CHECK_INT(pb_codec_create(&codec), 0);
    for (size_t i = 0; i < sizeof(value); i++)
        value[i] = (uint8_t)(i * 7 + i / 251);
    return codec;
}

TEST(a_record_with_everything_parses)
{
    static const uint8_t bytes[] = {2 * 21, 0, 10,  6,   4, 'a', 'b', 6,   'x', 'y', 'z',
                                    4,      4, 'h', '1', 2, 'v', 4,   'h', '2', 1,   0};
    /* 21 bytes follow the length: attributes to the last header's null value. */
    pb_record record;
    CHECK_INT(pb_record_parse(bytes, sizeof(bytes), &record, NULL), PB_INVALID_RECORD);
    uint8_t right[sizeof(bytes)];
    memcpy(right, bytes, sizeof(bytes));
    right[0] = 2 * 20;
    CHECK_INT(pb_record_parse(right, sizeof(right), &record, NULL), 0);
    CHECK_INT(record.size_bytes, 21);
    CHECK_INT(record.timestamp_delta, 5);
    CHECK_INT(record.offset_delta, 3);
    CHECK_INT(record.key_length, 2);
    CHECK_MEM(record.key, "ab", 2);
    CHECK_INT(record.value_length, 3);
    CHECK_MEM(record.value, "xyz", 3);
    CHECK_INT(record.header_count, 2);
    const uint8_t *p = record.headers;
    const uint8_t *end = record.headers + record.headers_length;
    pb_record_header header;
    pb_record_header_next(&p, end, &header);
    CHECK_MEM(header.key, "h1", 2);
    CHECK_INT(header.value_length, 1);
    CHECK_MEM(header.value, "v", 1);
    pb_record_header_next(&p, end, &header);
    CHECK_MEM(header.key, "h2", 2);
    CHECK_INT(header.value_length, -1);
    CHECK(header.value == NULL && p == end);
}

TEST(every_cut_of_a_record_is_an_error)
{
    build_begin(&builder);
    build_record(&builder, 1005, "key", "value", 5);
    for (size_t cut = 0; cut < builder.records_length; cut++) {
        uint8_t *exact = malloc(cut + 1);
        CHECK(exact != NULL);
        memcpy(exact, builder.records, cut);
        pb_record record;
        CHECK_INT(pb_record_parse(exact, cut, &record, NULL), PB_INVALID_RECORD);
        free(exact);
    }
}

/* Small ones, ones near the limit of what is made whole, and ones larger than the window. */
static int32_t length_of_record(int i)
{
    static const int32_t lengths[] = {0, 1, 100, 1024, 65500, 65529, 65530, 65536, 70000, 262144, 300000, 1000000};
    return lengths[i % (int)(sizeof(lengths) / sizeof(lengths[0]))];
}

TEST(walks_see_every_record_of_every_codec)
{
    enum { RECORDS = 26 };
    pb_codec *codec = make_codec();
    for (int compression = 0; compression < PB_COMPRESSION_COUNT; compression++) {
        build_begin(&builder);
        for (int i = 0; i < RECORDS; i++)
            build_record(&builder, 1000 + 3 * i, i % 3 == 0 ? NULL : "key", value + i, length_of_record(i));
        build_finish(&builder, codec, compression);
        pb_record_reader reader;
        CHECK_INT(pb_record_reader_open(&reader, codec, builder.batch, &builder.header, NULL), 0);
        size_t position = 0;
        for (int i = 0; i < RECORDS; i++) {
            CHECK(pb_record_reader_has_next(&reader));
            pb_record_view view;
            CHECK_INT(pb_record_reader_next(&reader, &view, NULL), 0);
            CHECK_INT(view.offset_delta, i);
            CHECK_INT(view.timestamp_delta, 3 * i);
            CHECK_INT(view.has_key, i % 3 != 0);
            CHECK(view.bytes != NULL || view.size_bytes > 64 * 1024);
            if (view.bytes != NULL)
                CHECK_MEM(view.bytes, builder.records + position, view.size_bytes);
            position += view.size_bytes;
        }
        CHECK_INT(position, builder.records_length);
        CHECK(!pb_record_reader_has_next(&reader));
        CHECK_INT(pb_record_reader_finish(&reader, NULL), 0);
    }
    pb_codec_destroy(codec);
}

/* Replace the records by `length` bytes, compress them, and walk; the first error of the walk. */
static int walk_bytes(pb_codec *codec, int compression, const uint8_t *bytes, size_t length, int32_t count)
{
    build_begin(&builder);
    memcpy(builder.records, bytes, length);
    builder.records_length = length;
    builder.record_count = count;
    build_finish(&builder, codec, compression);
    pb_record_reader reader;
    int error = pb_record_reader_open(&reader, codec, builder.batch, &builder.header, NULL);
    while (error == 0 && pb_record_reader_has_next(&reader)) {
        pb_record_view view;
        error = pb_record_reader_next(&reader, &view, NULL);
    }
    return error != 0 ? error : pb_record_reader_finish(&reader, NULL);
}

TEST(a_large_record_that_lies_is_found_without_holding_it)
{
    enum { VALUE_BYTES = 1500000 };
    pb_codec *codec = make_codec();
    for (int compression = 0; compression < PB_COMPRESSION_COUNT; compression++) {
        static uint8_t record[VALUE_BYTES + 64];
        for (int lie = 0; lie < 8; lie++) {
            uint8_t body[64];
            uint8_t *p = body;
            *p++ = 0;
            p = pb_varlong_write(p, 9);
            p = pb_varint_write(p, 0);
            p = pb_varint_write(p, -1);
            p = pb_varint_write(p, VALUE_BYTES + (lie == 1 ? 1 : lie == 2 ? -1 : lie == 3 ? 100000000 : 0));
            size_t before = (size_t)(p - body);
            uint8_t tail[8] = {2, 2, 'h', 1};
            size_t tail_length = 4;
            if (lie == 4)
                tail[0] = 1;
            if (lie == 5)
                tail[1] = 1;
            if (lie == 6)
                tail[1] = 4;
            uint8_t *out = pb_varint_write(record, (int32_t)(before + VALUE_BYTES + tail_length) + (lie == 7 ? 1 : 0));
            memcpy(out, body, before);
            memcpy(out + before, value, VALUE_BYTES);
            memcpy(out + before + VALUE_BYTES, tail, tail_length);
            size_t length = (size_t)(out - record) + before + VALUE_BYTES + tail_length;
            CHECK_INT(walk_bytes(codec, compression, record, length, 1), lie == 0 ? 0 : PB_INVALID_RECORD);
        }
    }
    pb_codec_destroy(codec);
}

TEST(counts_that_do_not_fit)
{
    pb_codec *codec = make_codec();
    for (int compression = 0; compression < PB_COMPRESSION_COUNT; compression++) {
        build_begin(&builder);
        for (int i = 0; i < 3; i++)
            build_record(&builder, 1000, "k", "v", 1);
        uint8_t records[100];
        size_t length = builder.records_length;
        memcpy(records, builder.records, length);
        CHECK_INT(walk_bytes(codec, compression, records, length, 3), 0);
        CHECK_INT(walk_bytes(codec, compression, records, length, 2), PB_INVALID_RECORD);
        CHECK_INT(walk_bytes(codec, compression, records, length, 4), PB_INVALID_RECORD);
        CHECK_INT(walk_bytes(codec, compression, records, length, INT32_MAX), PB_INVALID_RECORD);
        CHECK_INT(walk_bytes(codec, compression, records, length, -1), PB_INVALID_RECORD);
    }
    pb_codec_destroy(codec);
}

TEST(offsets_and_timestamps_wrap_and_do_not_trap)
{
    pb_batch_header header = {.base_offset = INT64_MAX, .base_timestamp = INT64_MAX, .max_timestamp = 5};
    CHECK_INT(pb_record_offset(&header, 1), INT64_MIN);
    CHECK_INT(pb_record_timestamp(&header, 1), INT64_MIN);
    header.attributes = PB_BATCH_LOG_APPEND_TIME;
    CHECK_INT(pb_record_timestamp(&header, 1), 5);
}

CHECK_MAIN()
