/*
 * Produce validation. Runs on the caller's thread, before the partition's lock is taken; owns nothing.
 * Fails on what clients send wrong, and on memory for a codec.
 */
#include "record/validate.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/kafka_error.h"
#include "record/record.h"

enum { ZSTD_LEAST_PRODUCE_VERSION = 7 };

/* The request carries one whole magic-2 batch. */
static int check_single_batch(int produce_version, const uint8_t *data, size_t length, pb_batch_header *header,
                              pb_failure *failure)
{
    size_t size_bytes = 0;
    int8_t magic = 0;
    if (pb_batch_frame(data, length, &size_bytes, &magic) != 0)
        return pb_fail(failure, PB_CORRUPT_MESSAGE, "the record batch has an impossible length or magic");
    if (size_bytes == 0)
        return pb_fail(failure, PB_INVALID_RECORD, "a Produce request needs one whole record batch per partition");
    if (magic != PB_BATCH_MAGIC)
        return pb_fail(failure, PB_INVALID_RECORD, "the record batch has magic %d; Produce version %d takes only 2",
                       magic, produce_version);
    if (pb_batch_parse(data, length, header) != 0)
        return pb_fail(failure, PB_CORRUPT_MESSAGE, "the record batch is shorter than its header");
    if (produce_version < ZSTD_LEAST_PRODUCE_VERSION && pb_batch_compression(header) == PB_COMPRESSION_ZSTD)
        return pb_fail(failure, PB_UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later, this is %d",
                       produce_version);
    size_t second_bytes = 0;
    if (pb_batch_frame(data + size_bytes, length - size_bytes, &second_bytes, &magic) != 0)
        return pb_fail(failure, PB_CORRUPT_MESSAGE, "a second record batch has an impossible length or magic");
    if (second_bytes != 0)
        return pb_fail(failure, PB_INVALID_RECORD, "a Produce request takes one record batch per partition, not more");
    return 0;
}

static int check_batch_bytes(const pb_validation_rules *rules, const uint8_t *batch, const pb_batch_header *header,
                             pb_failure *failure)
{
    if (header->base_offset != 0)
        return pb_fail(failure, PB_INVALID_RECORD, "the base offset of a produced batch is 0, not %lld",
                       (long long)header->base_offset);
    if (header->size_bytes > (uint32_t)rules->max_message_bytes)
        return pb_fail(failure, PB_MESSAGE_TOO_LARGE, "the record batch has %u bytes; max.message.bytes allows %d",
                       header->size_bytes, rules->max_message_bytes);
    if (!pb_batch_crc_matches(batch, header->size_bytes))
        return pb_fail(failure, PB_CORRUPT_MESSAGE, "the record batch's CRC is not that of its bytes (stored: 0x%08x)",
                       header->crc);
    if (pb_batch_compression(header) >= PB_COMPRESSION_COUNT)
        return pb_fail(failure, PB_UNSUPPORTED_COMPRESSION_TYPE, "compression type %d is not one of Kafka's (0 to 4)",
                       pb_batch_compression(header));
    return 0;
}

static int check_header(const pb_batch_header *header, pb_failure *failure)
{
    if (header->last_offset_delta < 0)
        return pb_fail(failure, PB_INVALID_RECORD, "the batch's last offset delta is %d", header->last_offset_delta);
    if (header->record_count <= 0)
        return pb_fail(failure, PB_INVALID_RECORD, "the batch's record count is %d", header->record_count);
    if ((int64_t)header->last_offset_delta + 1 != header->record_count)
        return pb_fail(failure, PB_INVALID_RECORD, "the batch's last offset delta %d does not fit its record count %d",
                       header->last_offset_delta, header->record_count);
    if (pb_batch_is_control(header))
        return pb_fail(failure, PB_INVALID_RECORD, "clients may not write control records");
    if (header->producer_id > PB_NO_PRODUCER_ID && header->base_sequence < 0)
        return pb_fail(failure, PB_INVALID_RECORD, "the batch of producer %lld has base sequence %d",
                       (long long)header->producer_id, header->base_sequence);
    return 0;
}

/* The difference wraps as Java's does: a timestamp near INT64_MIN counts as far in the future, not as fine. */
static bool timestamp_in_range(const pb_validation_rules *rules, int64_t now_ms, int64_t timestamp)
{
    int64_t age_ms = (int64_t)((uint64_t)now_ms - (uint64_t)timestamp);
    int64_t lead_ms = (int64_t)((uint64_t)timestamp - (uint64_t)now_ms);
    return age_ms <= rules->timestamp_before_max_ms && lead_ms <= rules->timestamp_after_max_ms;
}

/* One walk's constants. */
typedef struct walk {
    const pb_validation_rules *rules;
    const pb_batch_header *header;
    int64_t now_ms;
    pb_validation *validation;
} walk;

/* True when the record is fine; otherwise `*fault` says what is wrong first. */
static inline bool check_record(const walk *w, const pb_record_view *record, int32_t index, int64_t timestamp,
                                pb_record_fault *fault)
{
    if (record->offset_delta != index) {
        *fault = PB_RECORD_FAULT_OFFSET_DELTA;
        return false;
    }
    if (w->rules->compacted && !record->has_key) {
        *fault = PB_RECORD_FAULT_NO_KEY;
        return false;
    }
    if (w->rules->timestamp_type == PB_CREATE_TIME && timestamp != PB_NO_TIMESTAMP) {
        *fault = PB_RECORD_FAULT_TIMESTAMP_RANGE;
        return timestamp_in_range(w->rules, w->now_ms, timestamp);
    }
    *fault = PB_RECORD_FAULT_TIMESTAMP_TYPE;
    return pb_batch_timestamp_type(w->header) == PB_CREATE_TIME;
}

static void note_record_error(pb_validator *v, int32_t index, pb_record_fault fault, const pb_record_view *record,
                              int64_t timestamp)
{
    pb_validation *validation = v->validation;
    if (fault == PB_RECORD_FAULT_TIMESTAMP_RANGE || fault == PB_RECORD_FAULT_TIMESTAMP_TYPE)
        v->timestamp_fault = true;
    if (validation->record_error_count < PB_RECORD_ERROR_LIMIT)
        validation->record_errors[validation->record_error_count] =
            (pb_record_error){index, fault, record->offset_delta, timestamp};
    validation->record_error_count++;
}

/* A megabyte may hold a terabyte of zeros. Honest batches come nowhere near this ratio. */
static int64_t inflation_budget(const pb_batch_header *header)
{
    enum { FLAT_BYTES = 128 << 20, RATIO = 64 };
    return FLAT_BYTES + (int64_t)header->size_bytes * RATIO;
}

/* Look at a record that has been read. */
static inline void take_record(pb_validator *v, const walk *w, const pb_record_view *record, int32_t index)
{
    int64_t timestamp = pb_record_timestamp(w->header, record->timestamp_delta);
    pb_record_fault fault;
    if (!check_record(w, record, index, timestamp, &fault)) {
        note_record_error(v, index, fault, record, timestamp);
    } else if (timestamp > w->validation->max_timestamp) {
        w->validation->max_timestamp = timestamp;
        w->validation->max_timestamp_offset_delta = index;
    }
}

/* Walk on over the records, to their end unless the reader pauses. */
static int walk_records(pb_validator *v, pb_failure *failure)
{
    const walk w = {v->rules, &v->header, v->now_ms, v->validation};
    pb_record_reader *reader = &v->reader;
    pb_record_view record;
    int32_t index = v->header.record_count - reader->remaining_count;
    int error = 0;
    if (pb_record_reader_is_inside(reader)) {
        error = pb_record_reader_go_on(reader, &record, failure);
        if (error == 0)
            take_record(v, &w, &record, index++);
    }
    while (error == 0 && pb_record_reader_has_next(reader)) {
        error = pb_record_reader_next(reader, &record, failure);
        if (error != 0)
            break;
        take_record(v, &w, &record, index++);
    }
    return error != 0 ? error : pb_record_reader_finish(reader, failure);
}

static void describe(const pb_validation_rules *rules, const pb_batch_header *header, pb_validation *validation)
{
    validation->record_count = header->record_count;
    validation->producer_id = header->producer_id;
    validation->producer_epoch = header->producer_epoch;
    validation->base_sequence = header->base_sequence;
    validation->last_sequence = header->base_sequence;
    if (header->base_sequence >= 0)
        validation->last_sequence =
            (int32_t)(((uint32_t)header->base_sequence + (uint32_t)header->last_offset_delta) & INT32_MAX);
    validation->is_transactional = pb_batch_is_transactional(header);
    validation->compression = pb_batch_compression(header);
    validation->needs_recompression = rules->target_compression != PB_TARGET_COMPRESSION_PRODUCER &&
                                      rules->target_compression != validation->compression;
}

/* All records could be read: what comes of the batch? */
static int conclude(pb_validator *v, pb_failure *failure)
{
    pb_validation *validation = v->validation;
    if (validation->record_error_count > 0)
        return pb_fail(failure, v->timestamp_fault ? PB_INVALID_TIMESTAMP : PB_INVALID_RECORD,
                       "%d of the batch's %d records were refused%s", validation->record_error_count,
                       v->header.record_count, v->timestamp_fault ? ", at least one for its timestamp" : "");
    if (v->reader.codec != NULL)
        validation->unpacked_bytes = inflation_budget(&v->header) - v->left_bytes - v->reader.budget_bytes;
    if (v->rules->timestamp_type == PB_LOG_APPEND_TIME) {
        validation->max_timestamp = v->now_ms;
        validation->max_timestamp_offset_delta = v->header.last_offset_delta;
    } else {
        pb_batch_set_max_timestamp(v->data, PB_CREATE_TIME, validation->max_timestamp);
    }
    return 0;
}

int pb_validate_begin(pb_validator *validator, const pb_validation_rules *rules, int produce_version, int64_t now_ms,
                      pb_codec *codec, uint8_t *data, size_t length, size_t piece_bytes, pb_validation *validation,
                      pb_failure *failure)
{
    PB_ASSERT(rules->max_message_bytes >= 0 && rules->max_record_bytes >= 0);
    validation->size_bytes = 0;
    validation->record_error_count = 0;
    validation->max_timestamp = PB_NO_TIMESTAMP;
    validation->max_timestamp_offset_delta = -1;
    validator->rules = rules;
    validator->data = data;
    validator->validation = validation;
    validator->now_ms = now_ms;
    validator->timestamp_fault = false;
    pb_batch_header *header = &validator->header;
    int error = check_single_batch(produce_version, data, length, header, failure);
    if (error == 0)
        error = check_batch_bytes(rules, data, header, failure);
    if (error == 0)
        error = check_header(header, failure);
    if (error != 0)
        return error;
    validation->size_bytes = header->size_bytes;
    validation->unpacked_bytes = header->size_bytes - PB_BATCH_HEADER_BYTES;
    describe(rules, header, validation);
    error = pb_record_reader_open(&validator->reader, codec, data, header, failure);
    if (error != 0 || validator->reader.codec == NULL)
        return error;
    int64_t budget_bytes = inflation_budget(header);
    validator->left_bytes = budget_bytes;
    validator->reader.budget_bytes = 0;
    pb_record_reader_limit(&validator->reader, rules->max_record_bytes);
    validator->stops_at_piece = piece_bytes < (uint64_t)budget_bytes;
    pb_decompress_limit_piece(codec, validator->stops_at_piece ? piece_bytes : (size_t)budget_bytes);
    return 0;
}

/* A step of a compressed batch, within what it may unpack to. */
static int unpack_step(pb_validator *v, int64_t bytes, pb_failure *failure)
{
    int64_t granted_bytes = bytes < v->left_bytes ? bytes : v->left_bytes;
    v->left_bytes -= granted_bytes;
    v->reader.budget_bytes += granted_bytes;
    int error = walk_records(v, failure);
    bool is_spent = v->left_bytes + v->reader.budget_bytes < 0 || (error == -EFBIG && !v->stops_at_piece);
    if (is_spent && (error == 0 || error == -EAGAIN || error == -EFBIG))
        return pb_fail(failure, PB_INVALID_RECORD, "the batch holds too much for its compressed size");
    return error == -EFBIG ? -EAGAIN : error;
}

int pb_validate_step(pb_validator *validator, int64_t bytes, pb_failure *failure)
{
    PB_ASSERT(bytes > 0);
    int error =
        validator->reader.codec == NULL ? walk_records(validator, failure) : unpack_step(validator, bytes, failure);
    if (error == 0)
        return conclude(validator, failure);
    if (error != -EAGAIN) /* of a batch that cannot be read to its end Kafka names no records */
        validator->validation->record_error_count = 0;
    return error;
}

int pb_validate_produce(const pb_validation_rules *rules, int produce_version, int64_t now_ms, pb_codec *codec,
                        uint8_t *data, size_t length, pb_validation *validation, pb_failure *failure)
{
    pb_validator validator;
    int error = pb_validate_begin(&validator, rules, produce_version, now_ms, codec, data, length, SIZE_MAX, validation,
                                  failure);
    return error != 0 ? error : pb_validate_step(&validator, INT64_MAX, failure);
}

void pb_record_error_text(const pb_record_error *error, const pb_validation_rules *rules, int64_t now_ms,
                          const char *topic, int32_t partition, char *text)
{
    switch (error->fault) {
    case PB_RECORD_FAULT_NO_KEY:
        snprintf(text, PB_RECORD_ERROR_TEXT_BYTES, "Topic %s is compacted: records need a key (partition %d).", topic,
                 partition);
        return;
    case PB_RECORD_FAULT_OFFSET_DELTA:
        snprintf(text, PB_RECORD_ERROR_TEXT_BYTES, "The record has offset delta %d, expected %d.", error->offset_delta,
                 error->record_index);
        return;
    case PB_RECORD_FAULT_TIMESTAMP_RANGE:
        snprintf(text, PB_RECORD_ERROR_TEXT_BYTES,
                 "Timestamp %lld of the record is out of range: message.timestamp.before.max.ms and "
                 "message.timestamp.after.max.ms allow [%lld, %lld].",
                 (long long)error->timestamp, (long long)((uint64_t)now_ms - (uint64_t)rules->timestamp_before_max_ms),
                 (long long)((uint64_t)now_ms + (uint64_t)rules->timestamp_after_max_ms));
        return;
    case PB_RECORD_FAULT_TIMESTAMP_TYPE:
        snprintf(text, PB_RECORD_ERROR_TEXT_BYTES, "Producers may not send batches with timestamp type LogAppendTime.");
        return;
    }
    PB_ASSERT(!"a record fault without a text");
}
