/* Look-ups by timestamp inside a batch, for every codec, against a walk over the list that the batch was built from. */
#include "record/lookup.h"

#include "tests/record/build_batch.h"

enum { RECORDS = 40, BASE_OFFSET = 500 };

static batch_builder builder;
static int64_t timestamps[RECORDS];

static pb_codec *build(int compression)
{
    pb_codec *codec = NULL;
    CHECK_INT(pb_codec_create(&codec), 0);
    build_begin(&builder);
    builder.header.base_offset = BASE_OFFSET;
    for (int i = 0; i < RECORDS; i++) {
        timestamps[i] = 1000 + (i * 37) % 50;
        build_record(&builder, timestamps[i], "key", "value", 5);
    }
    build_finish(&builder, codec, compression);
    return codec;
}

TEST(find_timestamp_equals_a_linear_search)
{
    for (int compression = 0; compression < PB_COMPRESSION_COUNT; compression++) {
        pb_codec *codec = build(compression);
        for (int64_t timestamp = 990; timestamp < 1060; timestamp++) {
            for (int64_t start_offset = BASE_OFFSET - 1; start_offset <= BASE_OFFSET + RECORDS; start_offset += 13) {
                pb_record_position position;
                CHECK_INT(pb_batch_find_timestamp(codec, builder.batch, &builder.header, 0, timestamp, start_offset,
                                                  &position, NULL),
                          0);
                int i = 0;
                while (i < RECORDS && (timestamps[i] < timestamp || BASE_OFFSET + i < start_offset))
                    i++;
                CHECK_INT(position.found, i < RECORDS);
                CHECK_INT(position.offset, i < RECORDS ? BASE_OFFSET + i : -1);
                CHECK_INT(position.timestamp, i < RECORDS ? timestamps[i] : -1);
            }
        }
        pb_codec_destroy(codec);
    }
}

TEST(the_largest_timestamp_is_the_first_record_that_has_it)
{
    for (int compression = 0; compression < PB_COMPRESSION_COUNT; compression++) {
        pb_codec *codec = build(compression);
        int largest = 0;
        for (int i = 1; i < RECORDS; i++)
            if (timestamps[i] > timestamps[largest])
                largest = i;
        pb_record_position position;
        CHECK_INT(pb_batch_find_max_timestamp(codec, builder.batch, &builder.header, 0, &position, NULL), 0);
        CHECK(position.found);
        CHECK_INT(position.offset, BASE_OFFSET + largest);
        CHECK_INT(position.timestamp, timestamps[largest]);
        pb_codec_destroy(codec);
    }
}

TEST(with_log_append_time_all_records_carry_the_header_s)
{
    pb_codec *codec = build(PB_COMPRESSION_LZ4);
    pb_batch_set_max_timestamp(builder.batch, PB_LOG_APPEND_TIME, 9000);
    CHECK_INT(pb_batch_parse(builder.batch, builder.batch_length, &builder.header), 0);
    pb_record_position position;
    CHECK_INT(pb_batch_find_timestamp(codec, builder.batch, &builder.header, 0, 9000, BASE_OFFSET + 3, &position, NULL),
              0);
    CHECK_INT(position.offset, BASE_OFFSET + 3);
    CHECK_INT(position.timestamp, 9000);
    CHECK_INT(pb_batch_find_timestamp(codec, builder.batch, &builder.header, 0, 9001, 0, &position, NULL), 0);
    CHECK(!position.found);
    CHECK_INT(pb_batch_find_max_timestamp(codec, builder.batch, &builder.header, 0, &position, NULL), 0);
    CHECK_INT(position.offset, BASE_OFFSET + RECORDS - 1);
    pb_codec_destroy(codec);
}

TEST(a_batch_without_timestamps_has_no_largest)
{
    pb_codec *codec = NULL;
    CHECK_INT(pb_codec_create(&codec), 0);
    build_begin(&builder);
    builder.header.base_timestamp = PB_NO_TIMESTAMP;
    build_record(&builder, PB_NO_TIMESTAMP, "key", "value", 5);
    build_finish(&builder, codec, PB_COMPRESSION_NONE);
    pb_record_position position;
    CHECK_INT(pb_batch_find_max_timestamp(codec, builder.batch, &builder.header, 0, &position, NULL), 0);
    CHECK(!position.found);
    pb_codec_destroy(codec);
}

CHECK_MAIN()
