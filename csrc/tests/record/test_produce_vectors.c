/*
 * Produce validation against Apache Kafka's own answers: the same error code, the same refused records, and on
 * success the same bytes in the log. produce_vectors.h is written by ProduceVectors.java, next to this file.
 */
#include "base/kafka_error.h"
#include "record/recompress.h"
#include "record/validate.h"
#include "tests/check.h"

typedef struct produce_vector {
    const char *name;
    int produce_version;
    int32_t max_message_bytes;
    bool log_append_time;
    int64_t before_max_ms;
    int64_t after_max_ms;
    bool compacted;
    int target_compression;
    int error_code;
    int record_error_count;
    int record_errors[4];
    const char *input;
    const char *stored;
} produce_vector;

#include "tests/record/produce_vectors.h"

enum { NOW_MS_SECONDS = 1700000000, LEADER_EPOCH = 7, VECTOR_BYTES = 65536 };
static const int64_t NOW_MS = NOW_MS_SECONDS * INT64_C(1000);

/*
 * Where this broker answers something else, on purpose: Kafka has an exception it does not expect
 * (UNKNOWN_SERVER_ERROR), or stores a batch whose offsets or record lengths do not hold together. Prefixes of names.
 */
static const struct {
    const char *prefix;
    int kafka_error_code;
    int error_code;
} DIFFERENCES[] = {
    {"codec ", -1, PB_UNSUPPORTED_COMPRESSION_TYPE},
    {"length 2147483647", -1, PB_INVALID_RECORD},
    {"offset delta", -1, PB_INVALID_RECORD},
    {"offset delta", 0, PB_INVALID_RECORD},
    {"cut ", -1, PB_INVALID_RECORD},
    {"empty ", -1, PB_INVALID_RECORD},
    {"zeros ", -1, PB_INVALID_RECORD},
    {"garbage behind ", -1, PB_INVALID_RECORD},
    {"record length too large gzip", 0, PB_INVALID_RECORD},
    {"record length huge gzip", 0, PB_INVALID_RECORD},
    {"record length too small gzip", 0, PB_INVALID_RECORD},
    {"damaged middle gzip", -1, PB_INVALID_RECORD},
};

static int expected_error(const produce_vector *vector)
{
    for (size_t i = 0; i < sizeof(DIFFERENCES) / sizeof(DIFFERENCES[0]); i++)
        if (vector->error_code == DIFFERENCES[i].kafka_error_code &&
            strncmp(vector->name, DIFFERENCES[i].prefix, strlen(DIFFERENCES[i].prefix)) == 0)
            return DIFFERENCES[i].error_code;
    return vector->error_code;
}

static size_t decode_hex(const char *hex, uint8_t *bytes)
{
    size_t length = strlen(hex) / 2;
    CHECK(length <= VECTOR_BYTES);
    for (size_t i = 0; i < length; i++) {
        unsigned byte = 0;
        CHECK_INT(sscanf(hex + 2 * i, "%2x", &byte), 1);
        bytes[i] = (uint8_t)byte;
    }
    return length;
}

static void check_record_errors(const produce_vector *vector, const pb_validation *validation)
{
    if (vector->record_error_count != validation->record_error_count)
        check_fail(__FILE__, __LINE__, "%s: %d record errors, Kafka has %d", vector->name,
                   validation->record_error_count, vector->record_error_count);
    for (int i = 0; i < vector->record_error_count; i++)
        CHECK_INT(validation->record_errors[i].record_index, vector->record_errors[i]);
}

/* What the log would hold: the caller's part of an append, done as a log does it. */
static void check_stored(const produce_vector *vector, uint8_t *batch, const pb_validation *validation)
{
    static uint8_t stored[VECTOR_BYTES];
    size_t stored_length = decode_hex(vector->stored, stored);
    if (stored_length == 0)
        return;
    CHECK_INT(validation->size_bytes, stored_length);
    pb_batch_set_base_offset(batch, 0);
    pb_batch_set_partition_leader_epoch(batch, LEADER_EPOCH);
    if (vector->log_append_time)
        pb_batch_set_max_timestamp(batch, PB_LOG_APPEND_TIME, NOW_MS);
    CHECK(pb_batch_crc_matches(batch, stored_length));
    if (memcmp(batch, stored, stored_length) != 0)
        fprintf(stderr, "%s:\n", vector->name);
    CHECK_MEM(batch, stored, stored_length);
}

static int recompress(pb_codec *codec, const produce_vector *vector, const uint8_t *batch,
                      const pb_validation *validation)
{
    int target = vector->target_compression;
    pb_recompressed out = {0};
    int error = pb_recompress(codec, batch, validation->size_bytes, target, pb_compression_default_level(target),
                              vector->max_message_bytes, &out, NULL);
    if (error == 0) {
        CHECK(pb_batch_crc_matches(out.data, out.size_bytes));
        pb_validation again;
        pb_validation_rules rules = {vector->max_message_bytes, PB_CREATE_TIME, INT64_MAX, INT64_MAX, false, target, 0};
        CHECK_INT(pb_validate_produce(&rules, 13, NOW_MS, codec, out.data, out.size_bytes, &again, NULL), 0);
        CHECK_INT(again.record_count, validation->record_count);
        CHECK_INT(again.compression, target);
        CHECK(!again.needs_recompression);
    }
    pb_recompressed_trim(&out, 0);
    return error;
}

static void run_vector(pb_codec *codec, const produce_vector *vector)
{
    pb_validation_rules rules = {
        .max_message_bytes = vector->max_message_bytes,
        .timestamp_type = vector->log_append_time ? PB_LOG_APPEND_TIME : PB_CREATE_TIME,
        .timestamp_before_max_ms = vector->before_max_ms,
        .timestamp_after_max_ms = vector->after_max_ms,
        .compacted = vector->compacted,
        .target_compression = vector->target_compression,
    };
    /* An allocation of the exact size, so that the sanitizer sees a read behind it. */
    static uint8_t decoded[VECTOR_BYTES];
    size_t length = decode_hex(vector->input, decoded);
    uint8_t *input = malloc(length > 0 ? length : 1);
    CHECK(input != NULL);
    memcpy(input, decoded, length);
    pb_validation validation;
    pb_failure failure = {0, ""};
    int error =
        pb_validate_produce(&rules, vector->produce_version, NOW_MS, codec, input, length, &validation, &failure);
    if (error != 0)
        CHECK(failure.code == error && failure.text[0] != '\0');
    if (error == 0 && validation.needs_recompression)
        error = recompress(codec, vector, input, &validation);
    if (error != expected_error(vector))
        check_fail(__FILE__, __LINE__, "%s: error %d (%s), expected %d", vector->name, error, failure.text,
                   expected_error(vector));
    if (expected_error(vector) == vector->error_code)
        check_record_errors(vector, &validation);
    if (error == 0)
        check_stored(vector, input, &validation);
    free(input);
}

TEST(every_vector_ends_as_in_kafka)
{
    pb_codec *codec = NULL;
    CHECK_INT(pb_codec_create(&codec), 0);
    for (size_t i = 0; i < sizeof(PRODUCE_VECTORS) / sizeof(PRODUCE_VECTORS[0]); i++)
        run_vector(codec, &PRODUCE_VECTORS[i]);
    pb_codec_destroy(codec);
}

TEST(record_errors_have_a_text)
{
    pb_validation_rules rules = {100, PB_CREATE_TIME, 1000, 2000, true, PB_TARGET_COMPRESSION_PRODUCER, 0};
    char text[PB_RECORD_ERROR_TEXT_BYTES];
    pb_record_error error = {3, PB_RECORD_FAULT_NO_KEY, 3, 0};
    pb_record_error_text(&error, &rules, NOW_MS, "orders", 4, text);
    CHECK_STR(text, "Topic orders is compacted: records need a key (partition 4).");
    error.fault = PB_RECORD_FAULT_TIMESTAMP_RANGE;
    error.timestamp = 77;
    pb_record_error_text(&error, &rules, 5000, "orders", 4, text);
    CHECK(strstr(text, "Timestamp 77 ") != NULL && strstr(text, "[4000, 7000]") != NULL);
    error.fault = PB_RECORD_FAULT_OFFSET_DELTA;
    error.offset_delta = 9;
    pb_record_error_text(&error, &rules, 5000, "orders", 4, text);
    CHECK_STR(text, "The record has offset delta 9, expected 3.");
    error.fault = PB_RECORD_FAULT_TIMESTAMP_TYPE;
    pb_record_error_text(&error, &rules, 5000, "orders", 4, text);
    CHECK(strstr(text, "LogAppendTime") != NULL);
}

CHECK_MAIN()
