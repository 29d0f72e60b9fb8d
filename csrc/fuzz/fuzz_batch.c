/*
 * libFuzzer target for all that reads a record batch: framing, produce validation, record walks, look-ups and
 * recompression. The first two bytes choose the topic's settings; the CRC is made right, or nothing would get past it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "cpu/crc32c.h"
#include "record/bytes.h"
#include "record/lookup.h"
#include "record/recompress.h"
#include "record/record.h"
#include "record/validate.h"

enum { NOW_MS = 2000000, LIMIT_BYTES = 1 << 20 };

static void walk_batches(pb_codec *codec, const uint8_t *data, size_t length)
{
    size_t position = 0;
    pb_batch_header header;
    for (;;) {
        const uint8_t *batch = data + position;
        if (pb_batch_next(data, length, &position, &header) != 0 || header.size_bytes == 0)
            return;
        PB_ASSERT(position <= length);
        if (header.magic != PB_BATCH_MAGIC)
            continue;
        pb_record_position found;
        pb_batch_find_timestamp(codec, batch, &header, 0, header.max_timestamp, header.base_offset, &found, NULL);
        pb_batch_find_max_timestamp(codec, batch, &header, 0, &found, NULL);
        pb_record_reader reader;
        int error = pb_record_reader_open(&reader, codec, batch, &header, NULL);
        for (int i = 0; error == 0 && i < 10000 && pb_record_reader_has_next(&reader); i++) {
            pb_record_view view;
            pb_record record;
            error = pb_record_reader_next(&reader, &view, NULL);
            if (error == 0 && view.bytes != NULL) {
                PB_ASSERT(pb_record_parse(view.bytes, view.size_bytes, &record, NULL) == 0);
                PB_ASSERT(record.offset_delta == view.offset_delta && record.size_bytes == view.size_bytes);
            }
        }
    }
}

/* An accepted batch must survive being written with another codec, and being validated again. */
static void check_accepted(pb_codec *codec, const uint8_t *batch, const pb_validation *validation,
                           const pb_validation_rules *rules, int target)
{
    static pb_recompressed out;
    PB_ASSERT(pb_batch_crc_matches(batch, validation->size_bytes));
    if (pb_recompress(codec, batch, validation->size_bytes, target, pb_compression_default_level(target), LIMIT_BYTES,
                      &out, NULL) != 0)
        return;
    pb_validation again;
    PB_ASSERT(pb_validate_produce(rules, 13, NOW_MS, codec, out.data, out.size_bytes, &again, NULL) == 0);
    PB_ASSERT(again.max_timestamp == validation->max_timestamp);
    PB_ASSERT(again.record_count == validation->record_count);
}

/* Validation in small steps comes to the same result as all at once. `data` may be changed. */
static int validate_in_steps(pb_codec *codec, const pb_validation_rules *rules, uint8_t *data, size_t length,
                             pb_validation *validation)
{
    enum { STEP_BYTES = 1000 };
    pb_validator validator;
    int result = pb_validate_begin(&validator, rules, 13, NOW_MS, codec, data, length, SIZE_MAX, validation, NULL);
    if (result != 0)
        return result;
    while ((result = pb_validate_step(&validator, STEP_BYTES, NULL)) == -EAGAIN)
        ;
    return result;
}

static void compare(const pb_validation *one, const pb_validation *other, int result)
{
    PB_ASSERT(one->record_error_count == other->record_error_count);
    PB_ASSERT(result != 0 || (one->max_timestamp == other->max_timestamp &&
                              one->max_timestamp_offset_delta == other->max_timestamp_offset_delta &&
                              one->unpacked_bytes == other->unpacked_bytes));
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    static pb_codec *codec;
    if (codec == NULL)
        PB_ASSERT(pb_codec_create(&codec) == 0);
    if (size < 2)
        return 0;
    pb_validation_rules rules = {
        .max_message_bytes = LIMIT_BYTES,
        .timestamp_type = (input[0] & 1) != 0 ? PB_LOG_APPEND_TIME : PB_CREATE_TIME,
        .timestamp_before_max_ms = (input[0] & 2) != 0 ? 1000 : INT64_MAX,
        .timestamp_after_max_ms = (input[0] & 4) != 0 ? 1000 : INT64_MAX,
        .compacted = (input[0] & 8) != 0,
        .target_compression = PB_TARGET_COMPRESSION_PRODUCER,
    };
    int target = input[1] % PB_COMPRESSION_COUNT;
    size_t length = size - 2;
    /* The copy has the exact size, so that the sanitizer sees a read behind it. */
    uint8_t *data = malloc(length > 0 ? length : 1);
    PB_ASSERT(data != NULL);
    memcpy(data, input + 2, length);
    size_t size_bytes = 0;
    int8_t magic = 0;
    if ((input[0] & 16) == 0 && pb_batch_frame(data, length, &size_bytes, &magic) == 0 &&
        size_bytes >= PB_BATCH_HEADER_BYTES)
        pb_be32_store(data + PB_BATCH_CRC_POSITION,
                      pb_crc32c(0, data + PB_BATCH_ATTRIBUTES_POSITION, size_bytes - PB_BATCH_ATTRIBUTES_POSITION));
    walk_batches(codec, data, length);
    /* Kafka's rules let a client's LogAppendTime bit hide timestamps that count again once the bit is cleared. */
    bool hidden_timestamps =
        length >= PB_BATCH_HEADER_BYTES && (data[PB_BATCH_ATTRIBUTES_POSITION + 1] & PB_BATCH_LOG_APPEND_TIME) != 0;
    pb_validation validation, in_steps;
    pb_failure failure;
    uint8_t *copy = malloc(length > 0 ? length : 1);
    PB_ASSERT(copy != NULL);
    memcpy(copy, data, length);
    int result = pb_validate_produce(&rules, 13, NOW_MS, codec, data, length, &validation, &failure);
    PB_ASSERT(validate_in_steps(codec, &rules, copy, length, &in_steps) == result);
    compare(&validation, &in_steps, result);
    free(copy);
    if (result == 0 && !hidden_timestamps)
        check_accepted(codec, data, &validation, &rules, target);
    free(data);
    return 0;
}
