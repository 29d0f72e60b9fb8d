/* The treatment of a batch; see filter.h for the rules, threads and failures. */
#include "log/clean/filter.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/kafka_error.h"
#include "base/varint.h"

/* How a batch that is left without records ends. */
typedef enum when_empty { WHEN_EMPTY_DROP, WHEN_EMPTY_KEEP } when_empty;

/* The findings of a walk over the records of a batch. */
typedef struct selection {
    size_t kept_bytes;
    int32_t kept_count;
    int32_t count;
    int64_t max_timestamp_ms;
    bool has_tombstone;
} selection;

void pb_clean_filter_clear(pb_clean_filter *filter)
{
    free(filter->records.data);
    free(filter->kept.data);
    filter->records = filter->kept = (pb_clean_bytes){0};
}

int pb_clean_reserve(pb_clean_bytes *bytes, size_t wanted)
{
    if (wanted <= bytes->capacity)
        return 0;
    size_t capacity = bytes->capacity * 2 > wanted ? bytes->capacity * 2 : wanted;
    uint8_t *data = realloc(bytes->data, capacity);
    if (data == NULL)
        return -ENOMEM;
    bytes->data = data;
    bytes->capacity = capacity;
    return 0;
}

const uint8_t *pb_clean_record_parse(const uint8_t *at, const uint8_t *end, pb_clean_record *record)
{
    int32_t length;
    record->bytes = at;
    at = pb_varint_read(at, end, &length);
    if (at == NULL || length < 1 || length > end - at)
        return NULL;
    const uint8_t *behind = at + length;
    record->size_bytes = (size_t)(behind - record->bytes);
    at = pb_varlong_read(at + 1, behind, &record->timestamp_delta);
    record->behind_timestamp = at;
    if (at != NULL)
        at = pb_varint_read(at, behind, &record->offset_delta);
    if (at != NULL)
        at = pb_varint_read(at, behind, &record->key_length);
    if (at == NULL)
        return NULL;
    record->key = at;
    if (record->key_length < 0)
        record->key_length = -1;
    else if (record->key_length > behind - at)
        return NULL;
    else
        at += record->key_length;
    int32_t value_length;
    at = pb_varint_read(at, behind, &value_length);
    if (at == NULL || value_length > behind - at)
        return NULL;
    record->has_value = value_length >= 0;
    return behind;
}

/* Records of a compressed batch are no longer than max.decompressed.message.bytes allows. Damaged
 * records are found by the callers. */
static int check_lengths(const uint8_t *at, const uint8_t *end, int32_t max_record_bytes, pb_failure *failure)
{
    while (at < end) {
        int32_t length;
        at = pb_varint_read(at, end, &length);
        if (at != NULL && length > max_record_bytes)
            return pb_fail(failure, PB_INVALID_RECORD,
                           "a record has %d bytes after decompression; max.decompressed.message.bytes allows %d",
                           length, max_record_bytes);
        if (at == NULL || length < 1 || length > end - at)
            return 0;
        at += length;
    }
    return 0;
}

int pb_clean_records(pb_clean_filter *filter, const uint8_t *batch, const pb_batch_header *header,
                     const uint8_t **records, size_t *length, pb_failure *failure)
{
    *records = batch + PB_BATCH_HEADER_BYTES;
    *length = header->size_bytes - PB_BATCH_HEADER_BYTES;
    if (header->record_count < 0)
        return pb_fail(failure, PB_INVALID_RECORD, "the batch claims %d records", header->record_count);
    if (pb_batch_compression(header) == PB_COMPRESSION_NONE || header->record_count == 0)
        return 0;
    int rc =
        pb_decompress_all(filter->codec, pb_batch_compression(header), *records, *length, PB_CLEAN_RECORDS_MAX_BYTES,
                          &filter->records.data, &filter->records.capacity, length, failure);
    *records = filter->records.data;
    if (rc == 0 && filter->max_record_bytes > 0 && filter->max_record_bytes < PB_CLEAN_RECORDS_MAX_BYTES)
        rc = check_lengths(*records, *records + *length, filter->max_record_bytes, failure);
    if (rc == -ENOSPC)
        rc = pb_fail(failure, -EFBIG, "the batch has more than %d bytes of records", PB_CLEAN_RECORDS_MAX_BYTES);
    return rc;
}

/* Has the batch's delete horizon passed? */
static bool horizon_passed(const pb_clean_filter *filter, const pb_batch_header *header)
{
    return (header->attributes & PB_BATCH_DELETE_HORIZON) != 0 && filter->now_ms >= header->base_timestamp;
}

/* Does the log need the batch's producer fields? Its last batch tells the sequence that comes next, or else the epoch.
 */
static bool is_last_of_producer(const pb_clean_filter *filter, const pb_batch_header *header)
{
    if (header->producer_id < 0)
        return false;
    size_t low = 0;
    size_t high = filter->producer_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (filter->producers[middle].producer_id < header->producer_id)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == filter->producer_count || filter->producers[low].producer_id != header->producer_id)
        return false;
    const pb_clean_producer *producer = &filter->producers[low];
    if (producer->last_data_offset >= 0)
        return producer->last_data_offset == pb_batch_last_offset(header);
    return pb_batch_is_control(header) && header->producer_epoch == producer->epoch;
}

/* Is the record the last one of its key, and not a tombstone whose time is over? */
static bool stays(pb_clean_filter *filter, const pb_batch_header *header, const pb_clean_record *record)
{
    int64_t offset = header->base_offset + record->offset_delta;
    if (offset >= filter->end_offset)
        return true;
    if (record->key_length < 0) {
        /* Those of the dirty part were counted when the map was made. */
        filter->invalid_records += offset < filter->first_dirty_offset;
        return false;
    }
    bool is_last;
    if (pb_live_offsets_covers(filter->live, offset, offset))
        is_last = pb_live_offsets_has(filter->live, offset);
    else
        is_last = offset >= pb_clean_map_get(filter->map, record->key, (size_t)record->key_length);
    return is_last && (record->has_value || !horizon_passed(filter, header));
}

/* Walk over the records and copy those that stay. Control records always do. */
static int select_records(pb_clean_filter *filter, const pb_batch_header *header, const uint8_t *at, size_t length,
                          selection *out, pb_failure *failure)
{
    *out = (selection){.max_timestamp_ms = INT64_MIN};
    bool is_control = pb_batch_is_control(header);
    const uint8_t *end = at + length;
    int rc = pb_clean_reserve(&filter->kept, length);
    if (rc != 0)
        return pb_fail(failure, rc, "cannot get %zu bytes to filter a batch", length);
    for (; at < end; out->count++) {
        pb_clean_record record;
        at = pb_clean_record_parse(at, end, &record);
        if (at == NULL || record.offset_delta < 0 || record.offset_delta > header->last_offset_delta)
            return pb_fail(failure, PB_INVALID_RECORD, "a record's fields do not fit its batch");
        if (!is_control && !stays(filter, header, &record))
            continue;
        memcpy(filter->kept.data + out->kept_bytes, record.bytes, record.size_bytes);
        out->kept_bytes += record.size_bytes;
        out->kept_count++;
        out->has_tombstone = out->has_tombstone || !record.has_value;
        int64_t timestamp_ms = (int64_t)((uint64_t)header->base_timestamp + (uint64_t)record.timestamp_delta);
        if (timestamp_ms > out->max_timestamp_ms)
            out->max_timestamp_ms = timestamp_ms;
    }
    if (out->count != header->record_count)
        return pb_fail(failure, PB_INVALID_RECORD, "the batch claims %d records and has %d", header->record_count,
                       out->count);
    if (pb_batch_timestamp_type(header) == PB_LOG_APPEND_TIME)
        out->max_timestamp_ms = header->max_timestamp;
    return 0;
}

/* Write the records in `kept` anew with timestamps relative to another base; they take more or less room then. */
static int rebase_records(pb_clean_filter *filter, selection *selected, uint64_t base_difference, pb_failure *failure)
{
    size_t room = selected->kept_bytes + (size_t)selected->kept_count * (PB_VARLONG_MAX_BYTES + PB_VARINT_MAX_BYTES);
    /* The decompressed records are not needed any more. */
    int rc = pb_clean_reserve(&filter->records, room);
    if (rc != 0)
        return pb_fail(failure, rc, "cannot get %zu bytes to rewrite a batch", room);
    const uint8_t *at = filter->kept.data;
    const uint8_t *end = at + selected->kept_bytes;
    uint8_t *to = filter->records.data;
    while (at < end) {
        pb_clean_record record;
        at = pb_clean_record_parse(at, end, &record);
        PB_ASSERT(at != NULL);
        uint8_t delta[PB_VARLONG_MAX_BYTES];
        const uint8_t *delta_end =
            pb_varlong_write(delta, (int64_t)((uint64_t)record.timestamp_delta + base_difference));
        size_t delta_bytes = (size_t)(delta_end - delta);
        size_t rest_bytes = (size_t)(at - record.behind_timestamp);
        to = pb_varint_write(to, (int32_t)(1 + delta_bytes + rest_bytes));
        *to++ = 0; /* attributes: none are defined */
        memcpy(to, delta, delta_bytes);
        memcpy(to + delta_bytes, record.behind_timestamp, rest_bytes);
        to += delta_bytes + rest_bytes;
    }
    selected->kept_bytes = (size_t)(to - filter->records.data);
    PB_ASSERT(selected->kept_bytes <= room);
    pb_clean_bytes other = filter->kept;
    filter->kept = filter->records;
    filter->records = other;
    return 0;
}

/* A batch is to be made of the records that stay. */
static int rewrite(pb_clean_filter *filter, const pb_batch_header *header, selection *selected, bool set_horizon,
                   pb_clean_outcome *outcome, pb_failure *failure)
{
    outcome->header = *header;
    int rc = 0;
    if (set_horizon) {
        int64_t horizon_ms;
        if (__builtin_add_overflow(filter->now_ms, filter->delete_retention_ms, &horizon_ms))
            horizon_ms = INT64_MAX; /* for ever */
        outcome->header.base_timestamp = horizon_ms;
        outcome->header.attributes |= PB_BATCH_DELETE_HORIZON;
        rc = rebase_records(filter, selected, (uint64_t)header->base_timestamp - (uint64_t)horizon_ms, failure);
    }
    outcome->header.max_timestamp = selected->max_timestamp_ms;
    outcome->header.record_count = selected->kept_count;
    outcome->bytes = filter->kept.data;
    outcome->length = selected->kept_bytes;
    outcome->packs = true;
    return rc;
}

/* Keep the batch's header alone, for its producer fields and its last offset. */
static void keep_empty(pb_clean_filter *filter, const pb_batch_header *header, pb_clean_outcome *outcome)
{
    outcome->header = *header;
    outcome->header.size_bytes = PB_BATCH_HEADER_BYTES;
    outcome->header.attributes =
        header->attributes & (PB_BATCH_LOG_APPEND_TIME | PB_BATCH_TRANSACTIONAL | PB_BATCH_CONTROL);
    outcome->header.base_timestamp = PB_NO_TIMESTAMP;
    outcome->header.record_count = 0;
    pb_batch_write(filter->empty, &outcome->header);
    outcome->bytes = filter->empty;
    outcome->length = PB_BATCH_HEADER_BYTES;
    outcome->changed = header->record_count != 0;
}

static void keep(const uint8_t *batch, const pb_batch_header *header, pb_clean_outcome *outcome)
{
    outcome->header = *header;
    outcome->bytes = batch;
    outcome->length = header->size_bytes;
    outcome->changed = false;
}

/* A batch below end_offset whose records are not all to go anyway. */
static int filter_records(pb_clean_filter *filter, const uint8_t *batch, const pb_batch_header *header,
                          bool marker_is_done, when_empty empty, pb_clean_outcome *outcome, pb_failure *failure)
{
    const uint8_t *records;
    size_t length;
    selection selected;
    int rc = pb_clean_records(filter, batch, header, &records, &length, failure);
    if (rc == 0)
        rc = select_records(filter, header, records, length, &selected, failure);
    if (rc != 0)
        return rc;
    filter->kept_records += selected.kept_count;
    if (selected.kept_count == 0) {
        if (empty == WHEN_EMPTY_KEEP)
            keep_empty(filter, header, outcome);
        return 0;
    }
    bool set_horizon =
        (selected.has_tombstone || marker_is_done) && (header->attributes & PB_BATCH_DELETE_HORIZON) == 0;
    if (selected.kept_count < selected.count || set_horizon)
        return rewrite(filter, header, &selected, set_horizon, outcome, failure);
    keep(batch, header, outcome);
    return 0;
}

int pb_clean_filter_batch(pb_clean_filter *filter, const uint8_t *batch, const pb_batch_header *header,
                          pb_clean_outcome *outcome, pb_failure *failure)
{
    PB_ASSERT(header->magic == PB_BATCH_MAGIC);
    *outcome = (pb_clean_outcome){.changed = true, .aborted = {.last_offset = -1}};
    bool is_control = pb_batch_is_control(header);
    bool discardable; /* nothing that is left in the log needs it */
    int rc = is_control
                 ? pb_clean_transactions_control(filter->transactions, batch, header, &discardable, &outcome->aborted)
                 : pb_clean_transactions_data(filter->transactions, header, &discardable);
    if (rc != 0)
        return pb_fail(failure, rc, "cannot keep track of transactions");
    filter->read_records += header->record_count;
    if (header->base_offset >= filter->end_offset) {
        filter->kept_records += header->record_count;
        keep(batch, header, outcome);
        return 0;
    }
    int64_t last_offset = pb_batch_last_offset(header);
    bool keeps_place = is_last_of_producer(filter, header) || last_offset + 1 == filter->upper_offset;
    when_empty empty = keeps_place ? WHEN_EMPTY_KEEP : WHEN_EMPTY_DROP;
    bool all_go = discardable && (!is_control || horizon_passed(filter, header));
    /* The map's verdict on the whole batch saves a look into it. */
    if (!all_go && !is_control && pb_live_offsets_covers(filter->live, header->base_offset, last_offset))
        all_go = !pb_live_offsets_any(filter->live, header->base_offset, last_offset);
    if (all_go || header->record_count == 0) {
        if (empty == WHEN_EMPTY_KEEP)
            keep_empty(filter, header, outcome);
        return 0;
    }
    return filter_records(filter, batch, header, is_control && discardable, empty, outcome, failure);
}
