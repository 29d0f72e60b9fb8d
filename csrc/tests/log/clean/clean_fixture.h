/*
 * What the cleaner's tests share: batches with keys, values and any codec; a log taken apart into its batches; and a
 * model of cleaning that knows of each batch which transaction it belongs to and compares every record with every
 * other. Header only. The owner of a model sets `f` up.
 */
#ifndef PB_TESTS_LOG_CLEAN_CLEAN_FIXTURE_H
#define PB_TESTS_LOG_CLEAN_CLEAN_FIXTURE_H

#include "base/varint.h"
#include "log/clean/clean.h"
#include "record/codec.h"
#include "record/record.h"
#include "tests/log/log_fixture.h"

enum { CLEAN_RECORDS = 12, CLEAN_BATCHES = 4000, CLEAN_NO_KEY = -1, CLEAN_TOMBSTONE = -1 };

typedef struct clean_item {
    int64_t offset;
    int64_t timestamp;
    int key;   /* CLEAN_NO_KEY */
    int value; /* CLEAN_TOMBSTONE */
} clean_item;

/* A batch as the model has it, and as a log is read back. */
typedef struct clean_batch {
    int64_t base_offset;
    int64_t last_offset;
    int64_t producer_id; /* -1: none */
    int64_t max_timestamp;
    int64_t horizon; /* -1: none */
    int32_t base_sequence;
    int16_t epoch;
    bool transactional;
    bool control;
    bool log_append_time;
    int codec;
    int transaction; /* the model's number of it; -1: none */
    int count;
    clean_item items[CLEAN_RECORDS];
} clean_batch;

static UNUSED uint8_t *put_bytes(uint8_t *at, const void *bytes, int length)
{
    at = pb_varint_write(at, length);
    if (length > 0)
        memcpy(at, bytes, (size_t)length);
    return at + (length > 0 ? length : 0);
}

static UNUSED int value_length(int value)
{
    return value < 0 ? -1 : 1 + value % 90;
}

static UNUSED uint8_t *put_item(uint8_t *at, const clean_batch *batch, const clean_item *item)
{
    uint8_t body[256];
    uint8_t value[128];
    char key[16];
    snprintf(key, sizeof(key), "key-%d", item->key);
    memset(value, 'a' + (item->value & 15), sizeof(value));
    if (item->value >= 0)
        snprintf((char *)value, sizeof(value), "%d", item->value);
    uint8_t *end = body;
    *end++ = 0;
    end = pb_varlong_write(end, item->timestamp - batch->items[0].timestamp);
    end = pb_varint_write(end, (int32_t)(item->offset - batch->base_offset));
    end = put_bytes(end, key, item->key < 0 ? -1 : (int)strlen(key));
    end = put_bytes(end, value, item->value < 0 ? -1 : value_length(item->value) + 12);
    if (item->offset % 3 == 0) { /* a header now and then */
        *end++ = 2;
        end = put_bytes(end, "h", 1);
        end = put_bytes(end, "x", 1);
    } else {
        *end++ = 0;
    }
    return put_bytes(at, body, (int)(end - body));
}

/* An append of the batch; offsets of its items are relative to base_offset, which the log gives. */
static UNUSED pb_append *clean_append_make(const clean_batch *batch, pb_codec *codec)
{
    size_t capacity = PB_BATCH_HEADER_BYTES + (size_t)batch->count * 256 + PB_COMPRESS_SLACK_BYTES;
    pb_append *append = calloc(1, sizeof(*append));
    uint8_t *plain = malloc(capacity);
    append->bytes = malloc(capacity);
    uint8_t *end = plain;
    int64_t most = batch->items[0].timestamp;
    for (int i = 0; i < batch->count; i++) {
        end = put_item(end, batch, &batch->items[i]);
        most = batch->items[i].timestamp > most ? batch->items[i].timestamp : most;
    }
    size_t length;
    CHECK_INT(pb_compress(codec, batch->codec, pb_compression_default_level(batch->codec), plain, (size_t)(end - plain),
                          append->bytes + PB_BATCH_HEADER_BYTES, capacity - PB_BATCH_HEADER_BYTES, &length, NULL),
              0);
    free(plain);
    pb_batch_header header = {
        .size_bytes = (uint32_t)(PB_BATCH_HEADER_BYTES + length),
        .attributes = (uint16_t)(batch->codec | (batch->transactional ? PB_BATCH_TRANSACTIONAL : 0) |
                                 (batch->log_append_time ? PB_BATCH_LOG_APPEND_TIME : 0)),
        .last_offset_delta = batch->count - 1,
        .base_timestamp = batch->items[0].timestamp,
        .max_timestamp = most,
        .producer_id = batch->producer_id,
        .producer_epoch = batch->epoch,
        .base_sequence = batch->base_sequence,
        .record_count = batch->count,
        .magic = PB_BATCH_MAGIC,
    };
    pb_batch_write(append->bytes, &header);
    append->length = header.size_bytes;
    append->record_count = batch->count;
    append->max_timestamp_ms = most;
    append->max_timestamp_offset_delta = -1;
    append->producer_id = batch->producer_id;
    append->producer_epoch = batch->epoch;
    append->base_sequence = batch->base_sequence;
    append->is_transactional = batch->transactional;
    append->now_ms = most;
    pb_list_init(&append->link);
    return append;
}

static UNUSED int number_behind(const uint8_t *bytes, int32_t length, int32_t skip)
{
    char text[32] = {0};
    if (bytes == NULL)
        return -1;
    CHECK(length > skip);
    memcpy(text, bytes + skip, (size_t)(length - skip < 20 ? length - skip : 20));
    return atoi(text);
}

/* Take one batch of a log apart. */
static UNUSED void clean_batch_parse(const uint8_t *bytes, const pb_batch_header *header, pb_codec *codec,
                                     clean_batch *out)
{
    static uint8_t plain[1 << 16];
    CHECK(pb_batch_crc_matches(bytes, header->size_bytes));
    *out = (clean_batch){
        .base_offset = header->base_offset,
        .last_offset = pb_batch_last_offset(header),
        .producer_id = header->producer_id,
        .max_timestamp = header->max_timestamp,
        .horizon = (header->attributes & PB_BATCH_DELETE_HORIZON) != 0 ? header->base_timestamp : -1,
        .base_sequence = header->base_sequence,
        .epoch = header->producer_epoch,
        .transactional = pb_batch_is_transactional(header),
        .control = pb_batch_is_control(header),
        .log_append_time = pb_batch_timestamp_type(header) == PB_LOG_APPEND_TIME,
        .codec = pb_batch_compression(header),
        .transaction = -1,
        .count = header->record_count,
    };
    CHECK(out->count <= CLEAN_RECORDS);
    size_t length = 0;
    if (out->count > 0)
        CHECK_INT(pb_decompress(codec, out->codec, bytes + PB_BATCH_HEADER_BYTES,
                                header->size_bytes - PB_BATCH_HEADER_BYTES, plain, sizeof(plain), &length, NULL),
                  0);
    size_t position = 0;
    for (int i = 0; i < out->count; i++) {
        pb_record record;
        CHECK_INT(pb_record_parse(plain + position, length - position, &record, NULL), 0);
        position += record.size_bytes;
        out->items[i] = (clean_item){
            .offset = header->base_offset + record.offset_delta,
            .timestamp = pb_record_timestamp(header, record.timestamp_delta),
            .key = out->control ? 0 : number_behind(record.key, record.key_length, 4),
            .value = out->control ? 0 : number_behind(record.value, record.value_length, 0),
        };
    }
    CHECK_INT(position, length);
}

/* Every batch of the log from its first segment on, as files have it; free() it. */
static UNUSED clean_batch *clean_log_read(fixture *f, int *count)
{
    pb_codec *codec;
    CHECK_INT(pb_codec_create(&codec), 0);
    clean_batch *batches = malloc(CLEAN_BATCHES * sizeof(*batches));
    *count = 0;
    for (uint32_t i = 0; i < f->log->segment_count; i++) {
        pb_segment *segment = f->log->segments[i];
        int file;
        CHECK_INT(pb_log_open_segment(f->log, &f->guard, segment, &file), 0);
        uint8_t *bytes = malloc((size_t)segment->size_bytes + 1);
        CHECK_INT(pb_io_read_all(f->io, file, bytes, (size_t)segment->size_bytes, 0), 0);
        size_t position = 0;
        for (;;) {
            pb_batch_header header;
            size_t at = position;
            CHECK_INT(pb_batch_next(bytes, (size_t)segment->size_bytes, &position, &header), 0);
            if (header.size_bytes == 0)
                break;
            CHECK(*count < CLEAN_BATCHES);
            CHECK(header.base_offset >= segment->base_offset);
            CHECK(header.max_timestamp <= segment->largest_timestamp_ms);
            clean_batch_parse(bytes + at, &header, codec, &batches[(*count)++]);
        }
        CHECK_INT(position, segment->size_bytes);
        free(bytes);
    }
    pb_codec_destroy(codec);
    return batches;
}

static UNUSED pb_clean_settings clean_settings(int64_t first_dirty_offset, int64_t now_ms)
{
    return (pb_clean_settings){
        .first_dirty_offset = first_dirty_offset,
        .upper_offset = INT64_MAX,
        .syncs = true,
        .now_ms = now_ms,
        .delete_retention_ms = 1000,
        .map_bytes = 1 << 20,
        .io_buffer_bytes = 1 << 16,
        .load_factor_percent = 90,
        .compression = -1,
    };
}

/* ---- the model ---- */

enum { MODEL_OPEN, MODEL_COMMITTED, MODEL_ABORTED, MODEL_TRANSACTIONS = 2000, MODEL_PRODUCERS = 6 };

typedef struct model_producer {
    int32_t next_sequence;
    int transaction; /* under way; -1: none */
    int64_t last_data_offset;
    bool known;
} model_producer;

typedef struct clean_model {
    fixture f;
    pb_codec *codec;
    uint64_t random;
    clean_batch *batches;
    int count;
    int transactions[MODEL_TRANSACTIONS]; /* MODEL_… */
    int transaction_count;
    model_producer producers[MODEL_PRODUCERS]; /* id = index + 1; the upper half is transactional */
    int64_t end;
    int64_t clock;
    int64_t first_dirty;
    int next_value;
    int key_count;
} clean_model;

static UNUSED uint32_t chance(clean_model *m, uint32_t below)
{
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return (uint32_t)(m->random >> 32) % below;
}

static UNUSED void model_write(clean_model *m, pb_append *append, clean_batch *batch)
{
    int rc = pb_log_append(m->f.log, append);
    if (rc != 0)
        check_fail(__FILE__, __LINE__, "append: %d", rc);
    CHECK_INT(append->base_offset, m->end);
    log_write(&m->f);
    CHECK(m->count < CLEAN_BATCHES);
    m->batches[m->count++] = *batch;
    m->end = batch->last_offset + 1;
}

static UNUSED void model_append(clean_model *m)
{
    clean_batch batch = {
        .base_offset = m->end,
        .producer_id = -1,
        .epoch = -1,
        .base_sequence = -1,
        .horizon = -1,
        .transaction = -1,
        .codec = (int)chance(m, PB_COMPRESSION_COUNT),
        .count = 1 + (int)chance(m, CLEAN_RECORDS),
        .log_append_time = chance(m, 8) == 0,
    };
    uint32_t who = chance(m, MODEL_PRODUCERS * 2);
    if (who < MODEL_PRODUCERS) {
        model_producer *producer = &m->producers[who];
        batch.producer_id = who + 1;
        batch.epoch = 0;
        batch.base_sequence = producer->next_sequence;
        batch.transactional = who >= MODEL_PRODUCERS / 2;
        if (batch.transactional && producer->transaction < 0) {
            CHECK(m->transaction_count < MODEL_TRANSACTIONS);
            producer->transaction = m->transaction_count++;
            m->transactions[producer->transaction] = MODEL_OPEN;
        }
        batch.transaction = batch.transactional ? producer->transaction : -1;
        producer->next_sequence += batch.count;
        producer->last_data_offset = m->end + batch.count - 1;
        producer->known = true;
    }
    batch.max_timestamp = -1;
    for (int i = 0; i < batch.count; i++) {
        m->clock += chance(m, 4);
        int key = chance(m, 25) == 0 ? CLEAN_NO_KEY : (int)chance(m, (uint32_t)m->key_count);
        int value = chance(m, 6) == 0 ? CLEAN_TOMBSTONE : m->next_value++;
        batch.items[i] = (clean_item){m->end + i, m->clock - (int64_t)chance(m, 3), key, value};
        if (batch.items[i].timestamp > batch.max_timestamp)
            batch.max_timestamp = batch.items[i].timestamp;
    }
    batch.last_offset = m->end + batch.count - 1;
    pb_append *append = clean_append_make(&batch, m->codec);
    for (int i = 0; batch.log_append_time && i < batch.count; i++)
        batch.items[i].timestamp = batch.max_timestamp;
    model_write(m, append, &batch);
}

static UNUSED void model_end_transaction(clean_model *m, uint32_t who, bool aborts)
{
    model_producer *producer = &m->producers[who];
    if (producer->transaction < 0)
        return;
    m->transactions[producer->transaction] = aborts ? MODEL_ABORTED : MODEL_COMMITTED;
    m->clock++;
    clean_batch batch = {
        .base_offset = m->end,
        .last_offset = m->end,
        .producer_id = who + 1,
        .max_timestamp = m->clock,
        .horizon = -1,
        .base_sequence = -1,
        .transactional = true,
        .control = true,
        .transaction = producer->transaction,
        .count = 1,
        .items = {{m->end, m->clock, 0, 0}},
    };
    batch_spec spec = {.timestamp = m->clock, .producer_id = who + 1, .marker = aborts ? 1 : 2};
    model_write(m, append_make(spec), &batch);
    producer->transaction = -1;
}

static UNUSED int64_t model_stable(const clean_model *m)
{
    for (int i = 0; i < m->count; i++) {
        const clean_batch *batch = &m->batches[i];
        if (batch->transaction >= 0 && m->transactions[batch->transaction] == MODEL_OPEN)
            return batch->base_offset;
    }
    return m->end;
}

/* Does any batch of that transaction but its marker lie in front of batch `before` as the log is before this pass? */
static bool model_has_data(const clean_model *m, int transaction, int before)
{
    for (int i = 0; i < before; i++) {
        if (!m->batches[i].control && m->batches[i].transaction == transaction)
            return true;
    }
    return false;
}

/* Is there a later record of the key in [first_dirty, end) that counts? */
static bool model_overtaken(const clean_model *m, const clean_item *item, int64_t end)
{
    for (int i = 0; i < m->count; i++) {
        const clean_batch *batch = &m->batches[i];
        if (batch->control || (batch->transaction >= 0 && m->transactions[batch->transaction] == MODEL_ABORTED))
            continue;
        for (int k = 0; k < batch->count; k++) {
            const clean_item *other = &batch->items[k];
            if (other->key == item->key && other->offset > item->offset && other->offset >= m->first_dirty &&
                other->offset < end)
                return true;
        }
    }
    return false;
}

static bool model_keeps_place(const clean_model *m, const clean_batch *batch, int64_t upper)
{
    if (batch->last_offset + 1 == upper)
        return true;
    if (batch->producer_id < 0 || !m->producers[batch->producer_id - 1].known)
        return false;
    return m->producers[batch->producer_id - 1].last_data_offset == batch->last_offset;
}

/* What cleaning makes of batch `index`: into *out; false when nothing is left of it. */
static bool model_clean_batch(const clean_model *m, int index, int64_t end, int64_t upper, int64_t now,
                              int64_t retention, clean_batch *out)
{
    const clean_batch *batch = &m->batches[index];
    bool aborted = batch->transaction >= 0 && m->transactions[batch->transaction] == MODEL_ABORTED;
    bool passed = batch->horizon >= 0 && now >= batch->horizon;
    bool marker_done = batch->control && (batch->count == 0 || !model_has_data(m, batch->transaction, index));
    bool has_tombstone = false;
    *out = *batch;
    if (batch->base_offset >= end)
        return true;
    out->count = 0;
    int64_t most = INT64_MIN;
    for (int i = 0; i < batch->count; i++) {
        const clean_item *item = &batch->items[i];
        bool stays;
        if (batch->control)
            stays = !(marker_done && passed);
        else if (aborted)
            stays = false;
        else if (item->offset >= end)
            stays = true;
        else
            stays = item->key != CLEAN_NO_KEY && !model_overtaken(m, item, end) &&
                    !(item->value == CLEAN_TOMBSTONE && passed);
        if (!stays)
            continue;
        has_tombstone = has_tombstone || item->value == CLEAN_TOMBSTONE;
        most = item->timestamp > most ? item->timestamp : most;
        out->items[out->count++] = *item;
    }
    if (out->count == 0) {
        out->horizon = -1;
        out->codec = 0;
        return model_keeps_place(m, batch, upper);
    }
    out->max_timestamp = most;
    if (out->horizon < 0 && (has_tombstone || marker_done))
        out->horizon = now + retention;
    return true;
}

/* The model's pass, up to what the log's pass says it has reached. */
static UNUSED void model_clean(clean_model *m, int64_t end, int64_t upper, int64_t now, int64_t retention)
{
    clean_batch *kept = malloc(CLEAN_BATCHES * sizeof(*kept));
    int kept_count = 0;
    for (int i = 0; i < m->count; i++) {
        if (model_clean_batch(m, i, end, upper, now, retention, &kept[kept_count]))
            kept_count++;
    }
    free(m->batches);
    m->batches = kept;
    m->count = kept_count;
    m->first_dirty = end;
}

/* Every batch of the log is the model's. */
static UNUSED void model_compare(clean_model *m, fixture *f)
{
    int count;
    clean_batch *found = clean_log_read(f, &count);
    for (int i = 0; i < count && i < m->count; i++) {
        const clean_batch *is = &found[i];
        const clean_batch *want = &m->batches[i];
        if (is->base_offset != want->base_offset || is->count != want->count)
            check_fail(__FILE__, __LINE__, "batch %d: base %" PRId64 " with %d records, expected %" PRId64 " with %d",
                       i, is->base_offset, is->count, want->base_offset, want->count);
        CHECK_INT(is->last_offset, want->last_offset);
        CHECK_INT(is->producer_id, want->producer_id);
        CHECK_INT(is->epoch, want->producer_id < 0 ? -1 : want->epoch);
        CHECK_INT(is->base_sequence, want->base_sequence);
        CHECK_INT(is->transactional, want->transactional);
        CHECK_INT(is->control, want->control);
        CHECK_INT(is->horizon, want->horizon);
        CHECK_INT(is->max_timestamp, want->max_timestamp);
        CHECK_INT(is->codec, want->codec);
        CHECK_MEM(is->items, want->items, (size_t)is->count * sizeof(clean_item));
    }
    CHECK_INT(count, m->count);
    free(found);
}

static UNUSED void model_start(clean_model *m, uint64_t seed)
{
    memset(m, 0, sizeof(*m));
    m->random = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    m->batches = malloc(CLEAN_BATCHES * sizeof(*m->batches));
    CHECK_INT(pb_codec_create(&m->codec), 0);
    for (int i = 0; i < MODEL_PRODUCERS; i++)
        m->producers[i].transaction = -1;
    m->clock = 1000;
    m->key_count = 3 + (int)chance(m, 60);
}

static UNUSED void model_stop(clean_model *m)
{
    free(m->batches);
    pb_codec_destroy(m->codec);
}

#endif
