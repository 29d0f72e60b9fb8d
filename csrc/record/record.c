/*
 * Records inside a batch. Runs on the thread that owns the codec; allocates nothing itself. Fails on records that are
 * not what their lengths say.
 *
 * There are two ways through a record. One that lies whole in memory is parsed with two pointers. A record that does
 * not fit the codec's window is read field by field. Its keys and values are dropped as they come out of the codec, so
 * a record of a gigabyte of zeros needs no gigabyte.
 */
#include "record/record.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/kafka_error.h"
#include "base/varint.h"

enum {
    /* Compressed records up to this size are made to lie whole in the window. */
    WHOLE_RECORD_BYTES = 64 * 1024,
    LEAST_RECORD_BYTES = 6, /* attributes, two deltas, two null lengths, no headers */
};

static int malformed(pb_failure *failure)
{
    return pb_fail(failure, PB_INVALID_RECORD, "a record's fields do not fit its length");
}

/* A length and that many bytes. `*bytes` is NULL and `*length` -1 for null. NULL when they run over `end`. */
static inline const uint8_t *parse_bytes(const uint8_t *p, const uint8_t *end, const uint8_t **bytes, int32_t *length)
{
    int32_t claimed;
    p = pb_varint_read(p, end, &claimed);
    if (p == NULL)
        return NULL;
    if (claimed < 0) {
        *bytes = NULL;
        *length = -1;
        return p;
    }
    if (claimed > end - p)
        return NULL;
    *bytes = p;
    *length = claimed;
    return p + claimed;
}

static const uint8_t *parse_header(const uint8_t *p, const uint8_t *end, pb_record_header *header)
{
    p = parse_bytes(p, end, &header->key, &header->key_length);
    if (p == NULL || header->key_length < 0)
        return NULL;
    return parse_bytes(p, end, &header->value, &header->value_length);
}

void pb_record_header_next(const uint8_t **headers, const uint8_t *end, pb_record_header *header)
{
    *headers = parse_header(*headers, end, header);
    PB_ASSERT(*headers != NULL);
}

/* The fields of a record whose body is all of p..end. */
static inline int parse_body(const uint8_t *p, const uint8_t *end, pb_record *record, pb_failure *failure)
{
    if (p == end)
        return malformed(failure);
    p = pb_varlong_read(p + 1, end, &record->timestamp_delta);
    if (p != NULL)
        p = pb_varint_read(p, end, &record->offset_delta);
    if (p != NULL)
        p = parse_bytes(p, end, &record->key, &record->key_length);
    if (p != NULL)
        p = parse_bytes(p, end, &record->value, &record->value_length);
    if (p != NULL)
        p = pb_varint_read(p, end, &record->header_count);
    if (p == NULL)
        return malformed(failure);
    if (record->header_count < 0 || record->header_count > end - p)
        return pb_fail(failure, PB_INVALID_RECORD, "a record claims %d headers", record->header_count);
    record->headers = p;
    record->headers_length = (size_t)(end - p);
    for (int32_t i = 0; i < record->header_count; i++) {
        pb_record_header header;
        p = parse_header(p, end, &header);
        if (p == NULL)
            return malformed(failure);
    }
    if (p != end)
        return pb_fail(failure, PB_INVALID_RECORD, "%zd bytes of a record are left over behind its fields", end - p);
    return 0;
}

int pb_record_parse(const uint8_t *data, size_t length, pb_record *record, pb_failure *failure)
{
    int32_t body_length;
    const uint8_t *body = pb_varint_read(data, data + length, &body_length);
    if (body == NULL)
        return malformed(failure);
    size_t available = length - (size_t)(body - data);
    if (body_length < 0 || (size_t)body_length > available)
        return pb_fail(failure, PB_INVALID_RECORD, "a record claims %d bytes, %zu are there", body_length, available);
    record->size_bytes = (size_t)(body - data) + (size_t)body_length;
    return parse_body(body, body + body_length, record, failure);
}

int pb_record_reader_open(pb_record_reader *reader, pb_codec *codec, const uint8_t *batch,
                          const pb_batch_header *header, pb_failure *failure)
{
    PB_ASSERT(header->magic == PB_BATCH_MAGIC && header->size_bytes >= PB_BATCH_HEADER_BYTES);
    if (header->record_count < 0)
        return pb_fail(failure, PB_INVALID_RECORD, "the batch claims %d records", header->record_count);
    const uint8_t *records = batch + PB_BATCH_HEADER_BYTES;
    size_t length = header->size_bytes - PB_BATCH_HEADER_BYTES;
    reader->remaining_count = header->record_count;
    reader->next = records;
    reader->budget_bytes = INT64_MAX;
    reader->whole_bytes = WHOLE_RECORD_BYTES;
    reader->max_record_bytes = INT32_MAX;
    reader->pass.field = PB_FIELD_NONE;
    int compression = pb_batch_compression(header);
    if (compression == PB_COMPRESSION_NONE) {
        reader->codec = NULL;
        reader->end = records + length;
        reader->exhausted = true;
        return 0;
    }
    PB_ASSERT(codec != NULL);
    reader->codec = codec;
    reader->end = records;
    reader->exhausted = false;
    return pb_decompress_begin(codec, compression, records, length, failure);
}

void pb_record_reader_limit(pb_record_reader *reader, int32_t max_bytes)
{
    PB_ASSERT(max_bytes >= 0);
    if (reader->codec == NULL || max_bytes == 0)
        return;
    reader->max_record_bytes = max_bytes;
    /* So that a record that may be refused is not among those whose length is not looked at again. */
    if (reader->whole_bytes > (size_t)max_bytes)
        reader->whole_bytes = (size_t)max_bytes;
}

/* Get more bytes behind those that are left. Sets `exhausted` when there are none. */
static int refill(pb_record_reader *reader, pb_failure *failure)
{
    PB_ASSERT(reader->codec != NULL && !reader->exhausted);
    if (reader->budget_bytes < 0)
        return -EAGAIN;
    size_t keep = (size_t)(reader->end - reader->next);
    const uint8_t *data = NULL;
    size_t length = 0;
    int error = pb_decompress_next(reader->codec, keep, &data, &length, failure);
    if (error != 0)
        return error;
    reader->exhausted = length == keep;
    reader->budget_bytes -= (int64_t)(length - keep);
    reader->next = data;
    reader->end = data + length;
    return 0;
}

/* Have `wanted` bytes in memory if that many come. */
static inline int want(pb_record_reader *reader, size_t wanted, pb_failure *failure)
{
    while (!reader->exhausted && (size_t)(reader->end - reader->next) < wanted) {
        int error = refill(reader, failure);
        if (error != 0)
            return error;
    }
    return 0;
}

/* ---- records that are read field by field ---- */

static int take_varlong(pb_record_reader *reader, int max_bytes, int64_t *value, pb_failure *failure)
{
    int error = want(reader, PB_VARLONG_MAX_BYTES, failure);
    if (error != 0)
        return error;
    int64_t left = reader->pass.left_bytes;
    const uint8_t *limit = reader->end - reader->next > left ? reader->next + left : reader->end;
    uint64_t raw;
    const uint8_t *after = pb_unsigned_varlong_read(reader->next, limit, max_bytes, &raw);
    if (after == NULL)
        return malformed(failure);
    reader->pass.left_bytes -= after - reader->next;
    reader->next = after;
    if (max_bytes == PB_VARINT_MAX_BYTES)
        raw = (uint32_t)raw;
    *value = (int64_t)((raw >> 1) ^ (0U - (raw & 1)));
    return 0;
}

/* Drop what is left of the field that was begun. */
static int drop_field(pb_record_reader *reader, pb_failure *failure)
{
    pb_record_pass *pass = &reader->pass;
    while (pass->drop_bytes > 0) {
        int64_t here = reader->end - reader->next;
        if (here == 0) {
            int error = reader->exhausted ? malformed(failure) : refill(reader, failure);
            if (error != 0)
                return error;
            continue;
        }
        int64_t step = pass->drop_bytes < here ? pass->drop_bytes : here;
        reader->next += step;
        pass->drop_bytes -= step;
    }
    return 0;
}

/* So many bytes are to be dropped. */
static int begin_field(pb_record_pass *pass, int64_t length, pb_failure *failure)
{
    if (length > pass->left_bytes)
        return malformed(failure);
    pass->left_bytes -= length;
    pass->drop_bytes = length;
    return 0;
}

/* A length and that many bytes. `*length` is negative for null. */
static int take_length(pb_record_reader *reader, int64_t *length, pb_failure *failure)
{
    int error = take_varlong(reader, PB_VARINT_MAX_BYTES, length, failure);
    return error != 0 || *length < 0 ? error : begin_field(&reader->pass, *length, failure);
}

static int take_header_count(pb_record_reader *reader, pb_failure *failure)
{
    pb_record_pass *pass = &reader->pass;
    int error = take_varlong(reader, PB_VARINT_MAX_BYTES, &pass->header_count, failure);
    if (error == 0 && (pass->header_count < 0 || pass->header_count > pass->left_bytes))
        error = pb_fail(failure, PB_INVALID_RECORD, "a record claims %d headers", (int)pass->header_count);
    return error;
}

static int end_record(const pb_record_pass *pass, pb_failure *failure)
{
    if (pass->left_bytes != 0)
        return pb_fail(failure, PB_INVALID_RECORD, "%lld bytes of a record are left over behind its fields",
                       (long long)pass->left_bytes);
    return 0;
}

/* Take the next field, and find the one behind it. After -EAGAIN the field is still to be taken. */
static int take_field(pb_record_reader *reader, pb_failure *failure)
{
    pb_record_pass *pass = &reader->pass;
    pb_record_field next = pass->field + 1;
    int64_t value = 0;
    int error = 0;
    switch (pass->field) {
    case PB_FIELD_NONE:
        PB_ASSERT(false);
        break;
    case PB_FIELD_ATTRIBUTES:
        error = begin_field(pass, 1, failure);
        break;
    case PB_FIELD_TIMESTAMP:
        error = take_varlong(reader, PB_VARLONG_MAX_BYTES, &pass->timestamp_delta, failure);
        break;
    case PB_FIELD_OFFSET:
        error = take_varlong(reader, PB_VARINT_MAX_BYTES, &value, failure);
        pass->offset_delta = (int32_t)value;
        break;
    case PB_FIELD_KEY:
        error = take_length(reader, &value, failure);
        pass->has_key = value >= 0;
        break;
    case PB_FIELD_VALUE:
        error = take_length(reader, &value, failure);
        break;
    case PB_FIELD_HEADER_COUNT:
        error = take_header_count(reader, failure);
        next = pass->header_count > 0 ? PB_FIELD_HEADER_KEY : PB_FIELD_END;
        break;
    case PB_FIELD_HEADER_KEY:
        error = take_length(reader, &value, failure);
        if (error == 0 && value < 0)
            error = malformed(failure);
        break;
    case PB_FIELD_HEADER_VALUE:
        error = take_length(reader, &value, failure);
        pass->header_count -= error == 0;
        next = pass->header_count > 0 ? PB_FIELD_HEADER_KEY : PB_FIELD_END;
        break;
    case PB_FIELD_END:
        error = end_record(pass, failure);
        next = PB_FIELD_NONE;
        break;
    }
    if (error == 0)
        pass->field = next;
    return error;
}

/* Pass over the record, which was begun, to its end. */
static int pass_record(pb_record_reader *reader, pb_record_view *view, pb_failure *failure)
{
    const pb_record_pass *pass = &reader->pass;
    int error = 0;
    while (error == 0 && pass->field != PB_FIELD_NONE) {
        error = drop_field(reader, failure);
        if (error == 0)
            error = take_field(reader, failure);
    }
    view->timestamp_delta = pass->timestamp_delta;
    view->offset_delta = pass->offset_delta;
    view->has_key = pass->has_key;
    view->bytes = NULL;
    view->size_bytes = pass->size_bytes;
    return error;
}

int pb_record_reader_go_on(pb_record_reader *reader, pb_record_view *view, pb_failure *failure)
{
    PB_ASSERT(pb_record_reader_is_inside(reader) && reader->remaining_count > 0);
    int error = pass_record(reader, view, failure);
    if (error == 0)
        reader->remaining_count--;
    return error;
}

/* ---- the walk ---- */

static int read_whole(pb_record_reader *reader, const uint8_t *body, int32_t body_length, pb_record_view *view,
                      pb_failure *failure)
{
    pb_record record;
    int error = parse_body(body, body + body_length, &record, failure);
    if (error != 0)
        return error;
    view->timestamp_delta = record.timestamp_delta;
    view->offset_delta = record.offset_delta;
    view->has_key = record.key_length >= 0;
    view->bytes = reader->next;
    view->size_bytes = (size_t)(body - reader->next) + (size_t)body_length;
    reader->next = body + body_length;
    return 0;
}

int pb_record_reader_next(pb_record_reader *reader, pb_record_view *view, pb_failure *failure)
{
    PB_ASSERT(reader->remaining_count > 0);
    int error = want(reader, PB_VARINT_MAX_BYTES, failure);
    if (error != 0)
        return error;
    if (reader->next == reader->end)
        return pb_fail(failure, PB_INVALID_RECORD, "the records end before the batch's record count is reached");
    int32_t body_length;
    const uint8_t *body = pb_varint_read(reader->next, reader->end, &body_length);
    if (body == NULL)
        return malformed(failure);
    if (body_length < LEAST_RECORD_BYTES)
        return pb_fail(failure, PB_INVALID_RECORD, "a record claims %d bytes", body_length);
    size_t size_bytes = (size_t)(body - reader->next) + (size_t)body_length;
    if (size_bytes <= reader->whole_bytes) {
        size_t length_bytes = (size_t)(body - reader->next);
        error = want(reader, size_bytes, failure);
        if (error != 0)
            return error;
        body = reader->next + length_bytes;
    } else if (body_length > reader->max_record_bytes) {
        return pb_fail(failure, PB_INVALID_RECORD,
                       "a record has %d bytes after decompression; max.decompressed.message.bytes allows %d",
                       body_length, reader->max_record_bytes);
    }
    if ((size_t)(reader->end - reader->next) >= size_bytes) {
        error = read_whole(reader, body, body_length, view, failure);
    } else if (reader->exhausted) {
        error = pb_fail(failure, PB_INVALID_RECORD, "a record claims %d bytes, %zd are there", body_length,
                        reader->end - body);
    } else {
        reader->next = body;
        reader->pass =
            (pb_record_pass){.field = PB_FIELD_ATTRIBUTES, .left_bytes = body_length, .size_bytes = size_bytes};
        error = pass_record(reader, view, failure);
    }
    if (error == 0)
        reader->remaining_count--;
    return error;
}

int pb_record_reader_finish(pb_record_reader *reader, pb_failure *failure)
{
    PB_ASSERT(reader->remaining_count == 0);
    int error = want(reader, 1, failure);
    if (error == 0 && reader->next != reader->end)
        error = pb_fail(failure, PB_INVALID_RECORD, "more records follow than the batch's record count says");
    return error;
}
