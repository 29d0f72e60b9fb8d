/* Batch headers: parsing with every length short, walking a buffer, and setters that keep the CRC true. */
#include "record/batch.h"

#include "base/kafka_error.h"
#include "cpu/crc32c.h"
#include "tests/record/build_batch.h"

static batch_builder builder;
static pb_codec *codec;

static void build_one(int64_t timestamp)
{
    if (codec == NULL)
        CHECK_INT(pb_codec_create(&codec), 0);
    build_begin(&builder);
    builder.header.base_timestamp = timestamp;
    builder.header.producer_id = 77;
    builder.header.producer_epoch = 3;
    builder.header.base_sequence = 12;
    builder.header.base_offset = 1234567890123;
    builder.header.partition_leader_epoch = 9;
    builder.header.attributes = PB_BATCH_TRANSACTIONAL;
    build_record(&builder, timestamp, "key", "value", 5);
    build_record(&builder, timestamp + 7, NULL, "value", 5);
    build_finish(&builder, codec, PB_COMPRESSION_NONE);
}

TEST(a_written_header_parses_back)
{
    build_one(5000);
    pb_batch_header header;
    CHECK_INT(pb_batch_parse(builder.batch, builder.batch_length, &header), 0);
    CHECK_INT(header.size_bytes, builder.batch_length);
    CHECK_INT(header.base_offset, 1234567890123);
    CHECK_INT(header.partition_leader_epoch, 9);
    CHECK_INT(header.last_offset_delta, 1);
    CHECK_INT(header.record_count, 2);
    CHECK_INT(header.base_timestamp, 5000);
    CHECK_INT(header.max_timestamp, 5007);
    CHECK_INT(header.producer_id, 77);
    CHECK_INT(header.producer_epoch, 3);
    CHECK_INT(header.base_sequence, 12);
    CHECK(pb_batch_is_transactional(&header) && !pb_batch_is_control(&header));
    CHECK_INT(pb_batch_last_offset(&header), 1234567890124);
    CHECK(pb_batch_crc_matches(builder.batch, builder.batch_length));
    builder.batch[builder.batch_length - 1] ^= 1;
    CHECK(!pb_batch_crc_matches(builder.batch, builder.batch_length));
}

TEST(a_batch_that_is_not_all_there_has_no_size)
{
    build_one(5000);
    for (size_t length = 0; length < builder.batch_length; length++) {
        uint8_t *cut = malloc(length + 1);
        CHECK(cut != NULL);
        memcpy(cut, builder.batch, length);
        pb_batch_header header;
        CHECK_INT(pb_batch_parse(cut, length, &header), 0);
        CHECK_INT(header.size_bytes, 0);
        free(cut);
    }
}

TEST(lengths_and_magics_that_cannot_be)
{
    static const struct {
        uint8_t length[4];
        uint8_t magic;
        int error;
        size_t size_bytes;
    } cases[] = {
        {{0xff, 0xff, 0xff, 0xff}, 2, PB_CORRUPT_MESSAGE, 0},
        {{0, 0, 0, 13}, 2, PB_CORRUPT_MESSAGE, 0},
        {{0, 0, 0, 48}, 2, PB_CORRUPT_MESSAGE, 0},
        {{0, 0, 0, 49}, 2, 0, 61},
        {{0, 0, 0, 14}, 1, 0, 26},
        {{0, 0, 0, 14}, 3, PB_CORRUPT_MESSAGE, 0},
        {{0, 0, 0, 14}, 0xff, PB_CORRUPT_MESSAGE, 0},
        {{0x7f, 0xff, 0xff, 0xff}, 2, 0, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t data[100] = {0};
        memcpy(data + 8, cases[i].length, 4);
        data[PB_BATCH_MAGIC_POSITION] = cases[i].magic;
        pb_batch_header header;
        CHECK_INT(pb_batch_parse(data, sizeof(data), &header), cases[i].error);
        if (cases[i].error == 0)
            CHECK_INT(header.size_bytes, cases[i].size_bytes);
    }
}

TEST(walking_a_buffer_stops_before_the_torn_batch)
{
    static uint8_t buffer[3000];
    build_one(5000);
    size_t one = builder.batch_length;
    for (int i = 0; i < 3; i++)
        memcpy(buffer + (size_t)i * one, builder.batch, one);
    size_t length = 3 * one - 1;
    size_t position = 0;
    int count = 0;
    for (;;) {
        pb_batch_header header;
        CHECK_INT(pb_batch_next(buffer, length, &position, &header), 0);
        if (header.size_bytes == 0)
            break;
        count++;
    }
    CHECK_INT(count, 2);
    CHECK_INT(position, 2 * one);
}

TEST(offset_and_epoch_leave_the_crc_alone)
{
    build_one(5000);
    pb_batch_set_base_offset(builder.batch, INT64_C(0x0102030405060708));
    pb_batch_set_partition_leader_epoch(builder.batch, 0x11223344);
    static const uint8_t expected[16] = {1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0x11, 0x22, 0x33, 0x44};
    CHECK_MEM(builder.batch, expected, 8);
    CHECK_MEM(builder.batch + 12, expected + 12, 4);
    CHECK(pb_batch_crc_matches(builder.batch, builder.batch_length));
}

TEST(max_timestamp_patches_the_crc_for_every_size)
{
    static char value[70000];
    memset(value, 'x', sizeof(value));
    for (int32_t length = 0; length < (int32_t)sizeof(value); length = length * 3 + 1) {
        build_begin(&builder);
        builder.header.attributes = 0x4000;
        build_record(&builder, 5000, "key", value, length);
        if (codec == NULL)
            CHECK_INT(pb_codec_create(&codec), 0);
        build_finish(&builder, codec, PB_COMPRESSION_NONE);
        pb_batch_set_max_timestamp(builder.batch, PB_LOG_APPEND_TIME, INT64_C(1700000000000) + length);
        CHECK(pb_batch_crc_matches(builder.batch, builder.batch_length));
        pb_batch_header header;
        CHECK_INT(pb_batch_parse(builder.batch, builder.batch_length, &header), 0);
        CHECK_INT(header.max_timestamp, INT64_C(1700000000000) + length);
        CHECK_INT(header.attributes, PB_BATCH_LOG_APPEND_TIME);
    }
}

TEST(a_wrong_crc_stays_wrong)
{
    build_one(5000);
    builder.batch[builder.batch_length - 1] ^= 1;
    pb_batch_set_max_timestamp(builder.batch, PB_LOG_APPEND_TIME, 99);
    CHECK(!pb_batch_crc_matches(builder.batch, builder.batch_length));
    builder.batch[builder.batch_length - 1] ^= 1;
    CHECK(pb_batch_crc_matches(builder.batch, builder.batch_length));
}

TEST(setting_what_is_there_changes_nothing)
{
    build_one(5000);
    static uint8_t before[1000];
    builder.batch[21] |= 0x40;
    memcpy(before, builder.batch, builder.batch_length);
    pb_batch_set_max_timestamp(builder.batch, PB_CREATE_TIME, 5007);
    CHECK_MEM(builder.batch, before, builder.batch_length);
}

CHECK_MAIN()
