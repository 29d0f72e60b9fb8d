/* Cases of cpu/ and record/: checksums, batches, records, codecs. Owns static memory; see cases.h. */
#include <string.h>

#include "cpu/crc32c.h"
#include "perf/cases.h"
#include "perf/perf_fixture.h"
#include "record/lookup.h"
#include "record/record.h"
#include "record/validate.h"

enum { SMALL_RECORDS = 100, SMALL_VALUE_BYTES = 100, LARGE_RECORDS = 16, LARGE_VALUE_BYTES = 1000 };

static uint8_t *batch;
static uint32_t batch_length;
static pb_codec *codec;
static _Alignas(64) uint8_t text[PERF_TEXT_BYTES];
static _Alignas(64) uint8_t copy[PERF_TEXT_BYTES * 2 + PB_COMPRESS_SLACK_BYTES];
static size_t copy_length;

void perf_text(uint8_t *out, size_t length)
{
    static const char *const WORDS[] = {"order", "payment", "accepted", "customer", "2026-11-21", "EUR",  "region",
                                        "north", "status",  "pending",  "item",     "quantity",   "note", "urgent"};
    uint32_t random = 1;
    for (size_t at = 0; at < length;) {
        char word[32];
        random = random * 1664525U + 1013904223U;
        int size = (random >> 28) < 4
                       ? snprintf(word, sizeof(word), "%u,", random >> 12)
                       : snprintf(word, sizeof(word), "%s ", WORDS[(random >> 16) % (sizeof(WORDS) / sizeof(*WORDS))]);
        for (int i = 0; i < size && at < length; i++)
            out[at++] = (uint8_t)word[i];
    }
}

uint8_t *perf_batch(int record_count, size_t value_bytes, int compression, uint32_t *length)
{
    size_t room = (size_t)record_count * (value_bytes + 40) + PB_COMPRESS_SLACK_BYTES;
    size_t capacity = (room + PB_BATCH_HEADER_BYTES + 63) / 64 * 64;
    uint8_t *records = malloc(room);
    uint8_t *words = malloc((size_t)record_count * value_bytes);
    uint8_t *made = aligned_alloc(64, capacity);
    pb_codec *own;
    PERF_MUST(records != NULL && words != NULL && made != NULL && pb_codec_create(&own) == 0);
    perf_text(words, (size_t)record_count * value_bytes);
    uint8_t *end = records;
    for (int i = 0; i < record_count; i++) {
        char key[16];
        snprintf(key, sizeof(key), "key-%04d", i);
        end = put_record(end, i, key, words + (size_t)i * value_bytes, value_bytes);
    }
    *length = put_batch(own, compression, record_count, 1000, records, (size_t)(end - records), made, capacity);
    pb_codec_destroy(own);
    free(records);
    free(words);
    return made;
}

/* ---- CRC32C ---- */

static void open_text(void)
{
    perf_text(text, sizeof(text));
}

static void run_crc32c_64(uint64_t calls)
{
    for (uint64_t i = 0; i < calls; i++)
        PERF_KEEP(pb_crc32c(0, text, 64));
}

static void run_crc32c_16k(uint64_t calls)
{
    for (uint64_t i = 0; i < calls; i++)
        PERF_KEEP(pb_crc32c(0, text, 16384));
}

static void run_crc32c_copy_16k(uint64_t calls)
{
    for (uint64_t i = 0; i < calls; i++)
        PERF_KEEP(pb_crc32c_copy(0, copy, text, 16384));
}

static void run_crc32c_patch(uint64_t calls)
{
    for (uint64_t i = 0; i < calls; i++)
        PERF_KEEP(pb_crc32c_patch(text, 24, 16384));
}

/* ---- batches ---- */

static void open_batch(int record_count, size_t value_bytes, int compression)
{
    batch = perf_batch(record_count, value_bytes, compression, &batch_length);
    PERF_MUST(pb_codec_create(&codec) == 0);
}

static void close_batch(void)
{
    pb_codec_destroy(codec);
    free(batch);
}

static void open_small(void)
{
    open_batch(SMALL_RECORDS, SMALL_VALUE_BYTES, PB_COMPRESSION_NONE);
}

static void open_large(void)
{
    open_batch(LARGE_RECORDS, LARGE_VALUE_BYTES, PB_COMPRESSION_NONE);
}

static void open_gzip(void)
{
    open_batch(SMALL_RECORDS, SMALL_VALUE_BYTES, PB_COMPRESSION_GZIP);
}

static void open_snappy(void)
{
    open_batch(SMALL_RECORDS, SMALL_VALUE_BYTES, PB_COMPRESSION_SNAPPY);
}

static void open_lz4(void)
{
    open_batch(SMALL_RECORDS, SMALL_VALUE_BYTES, PB_COMPRESSION_LZ4);
}

static void open_zstd(void)
{
    open_batch(SMALL_RECORDS, SMALL_VALUE_BYTES, PB_COMPRESSION_ZSTD);
}

static void run_batch_parse(uint64_t calls)
{
    pb_batch_header header;
    for (uint64_t i = 0; i < calls; i++) {
        PERF_MUST(pb_batch_parse(batch, batch_length, &header) == 0);
        PERF_KEEP(&header);
    }
}

static void run_validate(uint64_t calls)
{
    static const pb_validation_rules RULES = {
        .max_message_bytes = 1 << 20,
        .timestamp_before_max_ms = INT64_MAX,
        .timestamp_after_max_ms = INT64_MAX,
        .target_compression = PB_TARGET_COMPRESSION_PRODUCER,
    };
    static pb_validation validation;
    for (uint64_t i = 0; i < calls; i++)
        PERF_MUST(pb_validate_produce(&RULES, 9, 2000, codec, batch, batch_length, &validation, NULL) == 0);
}

static void run_records_walk(uint64_t calls)
{
    pb_batch_header header;
    pb_record_reader reader;
    pb_record_view view;
    PERF_MUST(pb_batch_parse(batch, batch_length, &header) == 0);
    for (uint64_t i = 0; i < calls; i++) {
        PERF_MUST(pb_record_reader_open(&reader, codec, batch, &header, NULL) == 0);
        while (pb_record_reader_has_next(&reader))
            PERF_MUST(pb_record_reader_next(&reader, &view, NULL) == 0);
        PERF_MUST(pb_record_reader_finish(&reader, NULL) == 0);
    }
}

static void run_batch_find_timestamp(uint64_t calls)
{
    pb_batch_header header;
    pb_record_position position;
    PERF_MUST(pb_batch_parse(batch, batch_length, &header) == 0);
    for (uint64_t i = 0; i < calls; i++) {
        PERF_MUST(pb_batch_find_timestamp(codec, batch, &header, 0, 1000 + SMALL_RECORDS / 2, 0, &position, NULL) == 0);
        PERF_MUST(position.found);
    }
}

static void run_batch_set_max_timestamp(uint64_t calls)
{
    for (uint64_t i = 0; i < calls; i++)
        pb_batch_set_max_timestamp(batch, PB_LOG_APPEND_TIME, 5000 + (int64_t)(i & 0xff));
}

/* ---- codecs ---- */

static void open_codec(void)
{
    open_text();
    PERF_MUST(pb_codec_create(&codec) == 0);
}

static void close_codec(void)
{
    pb_codec_destroy(codec);
}

static void encode(int compression, uint64_t calls)
{
    for (uint64_t i = 0; i < calls; i++)
        PERF_MUST(pb_compress(codec, compression, pb_compression_default_level(compression), text, sizeof(text), copy,
                              sizeof(copy), &copy_length, NULL) == 0);
}

static void decode(uint64_t calls, int compression)
{
    size_t length = 0;
    for (uint64_t i = 0; i < calls; i++)
        PERF_MUST(pb_decompress(codec, compression, copy, copy_length, text, sizeof(text), &length, NULL) == 0);
}

#define CODEC_CASES(name, NUMBER)                 \
    static void open_decode_##name(void)          \
    {                                             \
        open_codec();                             \
        encode(NUMBER, 1);                        \
    }                                             \
    static void run_encode_##name(uint64_t calls) \
    {                                             \
        encode(NUMBER, calls);                    \
    }                                             \
    static void run_decode_##name(uint64_t calls) \
    {                                             \
        decode(calls, NUMBER);                    \
    }
CODEC_CASES(gzip, PB_COMPRESSION_GZIP)
CODEC_CASES(snappy, PB_COMPRESSION_SNAPPY)
CODEC_CASES(lz4, PB_COMPRESSION_LZ4)
CODEC_CASES(zstd, PB_COMPRESSION_ZSTD)

#define CODEC_ROWS(name)                                                                           \
    {"encode_" #name, open_codec, run_encode_##name, close_codec, PERF_TEXT_BYTES, true},          \
    {                                                                                              \
        "decode_" #name, open_decode_##name, run_decode_##name, close_codec, PERF_TEXT_BYTES, true \
    }

enum { SMALL_BYTES = SMALL_RECORDS * SMALL_VALUE_BYTES, LARGE_BYTES = LARGE_RECORDS * LARGE_VALUE_BYTES };

const perf_case PERF_RECORD_CASES[] = {
    {"crc32c_64", open_text, run_crc32c_64, NULL, 64, false},
    {"crc32c_16k", open_text, run_crc32c_16k, NULL, 16384, false},
    {"crc32c_copy_16k", open_text, run_crc32c_copy_16k, NULL, 16384, false},
    {"crc32c_patch", open_text, run_crc32c_patch, NULL, 0, false},
    {"batch_parse", open_small, run_batch_parse, close_batch, 0, false},
    {"batch_set_max_timestamp", open_small, run_batch_set_max_timestamp, close_batch, 0, false},
    {"batch_find_timestamp", open_small, run_batch_find_timestamp, close_batch, 0, false},
    {"records_walk", open_small, run_records_walk, close_batch, SMALL_BYTES, false},
    {"validate_100x100", open_small, run_validate, close_batch, SMALL_BYTES, false},
    {"validate_16x1000", open_large, run_validate, close_batch, LARGE_BYTES, false},
    {"validate_gzip", open_gzip, run_validate, close_batch, SMALL_BYTES, true},
    {"validate_snappy", open_snappy, run_validate, close_batch, SMALL_BYTES, true},
    {"validate_lz4", open_lz4, run_validate, close_batch, SMALL_BYTES, true},
    {"validate_zstd", open_zstd, run_validate, close_batch, SMALL_BYTES, true},
    CODEC_ROWS(gzip),
    CODEC_ROWS(snappy),
    CODEC_ROWS(lz4),
    CODEC_ROWS(zstd),
    {0},
};
