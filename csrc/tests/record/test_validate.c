/* Produce validation beyond the vectors: what it reports, its limits, and batches that try to cost much. */
#include "record/validate.h"

#include <errno.h>

#include "base/kafka_error.h"
#include "tests/record/build_batch.h"

static batch_builder builder;
static pb_validation validation;
static const pb_validation_rules RULES = {
    .max_message_bytes = 8 * 1024 * 1024,
    .timestamp_type = PB_CREATE_TIME,
    .timestamp_before_max_ms = INT64_MAX,
    .timestamp_after_max_ms = 3600000,
    .target_compression = PB_TARGET_COMPRESSION_PRODUCER,
};

static pb_codec *make_codec(void)
{
    pb_codec *codec = NULL;
    CHECK_INT(pb_codec_create(&codec), 0);
    return codec;
}

static int validate(const pb_validation_rules *rules, pb_codec *codec)
{
    return pb_validate_produce(rules, 13, 2000000, codec, builder.batch, builder.batch_length, &validation, NULL);
}

TEST(what_an_idempotent_transactional_batch_tells)
{
    pb_codec *codec = make_codec();
    build_begin(&builder);
    builder.header.producer_id = 4000;
    builder.header.producer_epoch = 6;
    builder.header.base_sequence = INT32_MAX - 1;
    builder.header.attributes = PB_BATCH_TRANSACTIONAL;
    for (int i = 0; i < 5; i++)
        build_record(&builder, i == 2 || i == 3 ? 1500 : 1100 + i, "key", "value", 5);
    build_finish(&builder, codec, PB_COMPRESSION_SNAPPY);
    CHECK_INT(validate(&RULES, codec), 0);
    CHECK_INT(validation.size_bytes, builder.batch_length);
    CHECK_INT(validation.record_count, 5);
    CHECK_INT(validation.max_timestamp, 1500);
    CHECK_INT(validation.max_timestamp_offset_delta, 2);
    CHECK_INT(validation.producer_id, 4000);
    CHECK_INT(validation.producer_epoch, 6);
    CHECK_INT(validation.base_sequence, INT32_MAX - 1);
    CHECK_INT(validation.last_sequence, 2);
    CHECK(validation.is_transactional);
    CHECK_INT(validation.compression, PB_COMPRESSION_SNAPPY);
    CHECK(!validation.needs_recompression);
    pb_validation_rules rules = RULES;
    rules.target_compression = PB_COMPRESSION_ZSTD;
    CHECK_INT(validate(&rules, codec), 0);
    CHECK(validation.needs_recompression);
    rules.timestamp_type = PB_LOG_APPEND_TIME;
    CHECK_INT(validate(&rules, codec), 0);
    CHECK_INT(validation.max_timestamp, 2000000);
    CHECK_INT(validation.max_timestamp_offset_delta, 4);
    pb_codec_destroy(codec);
}

TEST(record_errors_are_all_counted_and_the_first_are_listed)
{
    enum { RECORDS = 1000 };
    pb_codec *codec = make_codec();
    build_begin(&builder);
    for (int i = 0; i < RECORDS; i++)
        build_record(&builder, 1000, i == 0 ? "key" : NULL, "value", 5);
    build_finish(&builder, codec, PB_COMPRESSION_LZ4);
    pb_validation_rules rules = RULES;
    rules.compacted = true;
    CHECK_INT(validate(&rules, codec), PB_INVALID_RECORD);
    CHECK_INT(validation.record_error_count, RECORDS - 1);
    for (int i = 0; i < PB_RECORD_ERROR_LIMIT; i++) {
        CHECK_INT(validation.record_errors[i].record_index, i + 1);
        CHECK_INT(validation.record_errors[i].fault, PB_RECORD_FAULT_NO_KEY);
    }
    pb_codec_destroy(codec);
}

TEST(a_batch_that_breaks_off_names_no_records)
{
    pb_codec *codec = make_codec();
    for (int compression = 0; compression < PB_COMPRESSION_COUNT; compression++) {
        build_begin(&builder);
        for (int i = 0; i < 3; i++)
            build_record(&builder, 1000, NULL, "value", 5);
        builder.records_length--;
        build_finish(&builder, codec, compression);
        pb_validation_rules rules = RULES;
        rules.compacted = true;
        CHECK_INT(validate(&rules, codec), PB_INVALID_RECORD);
        CHECK_INT(validation.record_error_count, 0);
    }
    pb_codec_destroy(codec);
}

/* A batch with one record, whose value are zeros. */
static void build_zeros(pb_codec *codec, int compression, int32_t value_bytes)
{
    uint8_t *plain = calloc(1, (size_t)value_bytes + 64);
    CHECK(plain != NULL);
    uint8_t *p = pb_varint_write(plain, value_bytes + 9);
    *p++ = 0;
    *p++ = 0;
    *p++ = 0;
    *p++ = 1;
    p = pb_varint_write(p, value_bytes);
    size_t length = (size_t)(p - plain) + (size_t)value_bytes + 1;
    build_begin(&builder);
    size_t packed = 0;
    int level = compression == PB_COMPRESSION_GZIP ? 1 : pb_compression_default_level(compression);
    CHECK_INT(pb_compress(codec, compression, level, plain, length, builder.batch + PB_BATCH_HEADER_BYTES,
                          BUILD_CAPACITY, &packed, NULL),
              0);
    builder.header.attributes = (uint16_t)compression;
    builder.header.record_count = 1;
    builder.header.max_timestamp = 1000;
    builder.header.size_bytes = (uint32_t)(PB_BATCH_HEADER_BYTES + packed);
    builder.batch_length = builder.header.size_bytes;
    pb_batch_write(builder.batch, &builder.header);
    free(plain);
}

TEST(a_record_of_64_mib_of_zeros_needs_no_64_mib)
{
    pb_codec *codec = make_codec();
    static const int bombs[] = {PB_COMPRESSION_GZIP, PB_COMPRESSION_LZ4, PB_COMPRESSION_ZSTD};
    for (size_t i = 0; i < sizeof(bombs) / sizeof(bombs[0]); i++) {
        build_zeros(codec, bombs[i], 64 << 20);
        pb_codec *fresh = make_codec();
        CHECK_INT(validate(&RULES, fresh), 0);
        CHECK(pb_codec_memory_bytes(fresh) < 4 * 1024 * 1024);
        pb_codec_destroy(fresh);
    }
    pb_codec_destroy(codec);
}

TEST(what_would_keep_the_thread_busy_for_its_size_is_refused)
{
    pb_codec *codec = make_codec();
    build_zeros(codec, PB_COMPRESSION_ZSTD, 256 << 20);
    CHECK(builder.batch_length < 64 * 1024);
    CHECK_INT(validate(&RULES, codec), PB_INVALID_RECORD);
    build_zeros(codec, PB_COMPRESSION_ZSTD, 120 << 20);
    CHECK_INT(validate(&RULES, codec), 0);
    pb_codec_destroy(codec);
}

/* Small records and ones that are passed over in pieces, with keys but for every third. */
static void build_mixed(pb_codec *codec, int compression)
{
    static const int32_t sizes[] = {10, 300000, 64 * 1024, 0, 900000, 70000, 1, 131072, 20};
    static uint8_t value[1000000];
    uint32_t state = 1;
    for (size_t i = 0; i < sizeof(value); i++) {
        state = state * 1103515245 + 12345;
        value[i] = (uint8_t)(state >> 28);
    }
    build_begin(&builder);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        build_record(&builder, 1000 + (int64_t)(i * 7 % 5), i % 3 == 2 ? NULL : "key", value + i, sizes[i]);
    build_finish(&builder, codec, compression);
}

TEST(in_steps_it_finds_what_it_finds_at_once)
{
    pb_codec *codec = make_codec();
    for (int compression = 0; compression < PB_COMPRESSION_COUNT; compression++)
        for (int compacted = 0; compacted < 2; compacted++) {
            static pb_validation at_once;
            pb_validation_rules rules = RULES;
            rules.compacted = compacted == 1;
            build_mixed(codec, compression);
            int expected = validate(&rules, codec);
            CHECK_INT(expected, compacted == 1 ? PB_INVALID_RECORD : 0);
            at_once = validation;
            static const int64_t steps[] = {1, 100000, 1 << 20};
            for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
                pb_validator validator;
                int count = 1;
                CHECK_INT(pb_validate_begin(&validator, &rules, 13, 2000000, codec, builder.batch, builder.batch_length,
                                            SIZE_MAX, &validation, NULL),
                          0);
                int result;
                while ((result = pb_validate_step(&validator, steps[i], NULL)) == -EAGAIN)
                    count++;
                CHECK_INT(result, expected);
                CHECK(compression == PB_COMPRESSION_NONE ? count == 1 : count > 1);
                CHECK_INT(validation.max_timestamp, at_once.max_timestamp);
                CHECK_INT(validation.max_timestamp_offset_delta, at_once.max_timestamp_offset_delta);
                CHECK_INT(validation.record_error_count, at_once.record_error_count);
                CHECK_INT(validation.unpacked_bytes, at_once.unpacked_bytes);
                for (int e = 0; e < at_once.record_error_count; e++)
                    CHECK_INT(validation.record_errors[e].record_index, at_once.record_errors[e].record_index);
            }
            if (expected == 0)
                CHECK_INT(validation.unpacked_bytes, builder.records_length);
        }
    pb_codec_destroy(codec);
}

TEST(a_step_ends_inside_a_record_and_after_no_more_than_it_was_given)
{
    pb_codec *codec = make_codec();
    pb_validator validator;
    build_zeros(codec, PB_COMPRESSION_GZIP, 64 << 20);
    CHECK_INT(pb_validate_begin(&validator, &RULES, 13, 2000000, codec, builder.batch, builder.batch_length, SIZE_MAX,
                                &validation, NULL),
              0);
    int count = 1;
    for (; pb_validate_step(&validator, 1 << 20, NULL) == -EAGAIN; count++) {
        CHECK(pb_record_reader_is_inside(&validator.reader));
        CHECK(validator.reader.budget_bytes > -(1 << 20));
    }
    CHECK(count >= 60 && count <= 65);
    pb_codec_destroy(codec);
}

TEST(a_compressed_record_is_limited_by_its_body)
{
    enum { VALUE_BYTES = 100000, BODY_BYTES = VALUE_BYTES + 11 };
    pb_codec *codec = make_codec();
    static uint8_t value[VALUE_BYTES];
    for (int compression = 0; compression < PB_COMPRESSION_COUNT; compression++) {
        build_begin(&builder);
        build_record(&builder, 1000, "key", "value", 5);
        build_record(&builder, 1000, "key", value, VALUE_BYTES);
        build_finish(&builder, codec, compression);
        static const int32_t limits[] = {0, INT32_MAX, BODY_BYTES, BODY_BYTES - 1, 200, 13, 12, 1};
        static const bool fits[] = {true, true, true, false, false, false, false, false};
        for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
            pb_validation_rules rules = RULES;
            rules.max_record_bytes = limits[i];
            int expected = fits[i] || compression == PB_COMPRESSION_NONE ? 0 : PB_INVALID_RECORD;
            CHECK_INT(validate(&rules, codec), expected);
        }
    }
    pb_codec_destroy(codec);
}

TEST(no_single_flipped_bit_passes)
{
    pb_codec *codec = make_codec();
    for (int compression = 0; compression < PB_COMPRESSION_COUNT; compression++) {
        build_begin(&builder);
        for (int i = 0; i < 4; i++)
            build_record(&builder, 1000 + i, "key", "value", 5);
        build_finish(&builder, codec, compression);
        for (size_t bit = 0; bit < builder.batch_length * 8; bit++) {
            /* The leader epoch is the broker's to set and not looked at. */
            if (bit / 8 >= 12 && bit / 8 < 16)
                continue;
            builder.batch[bit / 8] ^= (uint8_t)(1U << bit % 8);
            CHECK(validate(&RULES, codec) > 0);
            builder.batch[bit / 8] ^= (uint8_t)(1U << bit % 8);
        }
        CHECK_INT(validate(&RULES, codec), 0);
    }
    pb_codec_destroy(codec);
}

CHECK_MAIN()
