/*
 * A walk's report of one batch: its place among the others, its header, its producer, its records. See walk.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/histogram.h"
#include "log/derived/producer_state.h"
#include "log/walk/state.h"
#include "record/bytes.h"
#include "record/record.h"

/* True for a header that no broker takes from a client. Any negative producer id is none, and unknown attributes are
 * kept, as in Kafka.
 */
static bool header_is_odd(const pb_batch_header *header)
{
    return header->record_count < 0 || header->record_count > (int64_t)header->last_offset_delta + 1 ||
           pb_batch_compression(header) >= PB_COMPRESSION_COUNT || header->max_timestamp < PB_NO_TIMESTAMP;
}

/* Where the batch stands among the offsets and epochs of the log. */
static void place(pb_log_walk *walk, const pb_batch_header *header)
{
    pb_log_walk_row *row = &walk->row;
    row->expected_offset = walk->expected_offset;
    bool is_message = header->magic != PB_BATCH_MAGIC;
    if (walk->expected_offset >= 0 && header->base_offset < walk->expected_offset)
        row->flags |= PB_LOG_WALK_BACK;
    /* A compressed message of an old magic bears the offset of the last one in it. */
    if (walk->expected_offset >= 0 && header->base_offset > walk->expected_offset && !walk->after_damage && !is_message)
        row->flags |= PB_LOG_WALK_GAP;
    if (!is_message && (!walk->epoch_known || header->partition_leader_epoch != walk->leader_epoch))
        row->flags |= PB_LOG_WALK_EPOCH;
    walk->after_damage = false;
    walk->expected_offset = pb_batch_last_offset(header) + 1;
    if (!is_message) {
        walk->leader_epoch = header->partition_leader_epoch;
        walk->epoch_known = true;
    }
}

static pb_walk_producer *producer_slot(pb_log_walk *walk, int64_t id)
{
    uint64_t mixed = (uint64_t)id * UINT64_C(0x9e3779b97f4a7c15);
    pb_walk_producer *slot = &walk->producers[mixed >> 52];
    _Static_assert(PB_WALK_PRODUCERS == 1 << 12, "twelve bits choose the slot");
    if (!slot->used || slot->id != id)
        *slot = (pb_walk_producer){.id = id, .epoch = -1, .last_sequence = -1};
    return slot;
}

static int32_t sequence_after(int32_t sequence, int32_t count)
{
    int64_t next = (int64_t)sequence + count;
    return (int32_t)(next > INT32_MAX ? next - INT32_MAX - 1 : next);
}

static void follow_producer(pb_log_walk *walk, const pb_batch_header *header)
{
    pb_log_walk_row *row = &walk->row;
    pb_walk_producer *slot = producer_slot(walk, header->producer_id);
    if (pb_batch_is_control(header)) {
        slot->in_transaction = false;
        return;
    }
    if (pb_batch_is_transactional(header) && !slot->in_transaction)
        row->flags |= PB_LOG_WALK_TRANSACTIONAL;
    slot->in_transaction = pb_batch_is_transactional(header);
    if (header->base_sequence < 0)
        return;
    row->expected_sequence = slot->epoch == header->producer_epoch ? sequence_after(slot->last_sequence, 1) : 0;
    if (slot->used && row->expected_sequence != header->base_sequence)
        row->flags |= PB_LOG_WALK_SEQUENCE;
    slot->used = true;
    slot->epoch = header->producer_epoch;
    slot->last_sequence = sequence_after(header->base_sequence, header->last_offset_delta);
}

/* The type in a control batch's first record: its key is version int16, type int16. */
static int read_control(pb_log_walk *walk, const pb_batch_header *header)
{
    enum { MARKER_BYTES = 256, KEY_BYTES = 4 };
    const uint8_t *bytes;
    size_t length;
    size_t wanted = header->size_bytes < MARKER_BYTES ? header->size_bytes : MARKER_BYTES;
    int rc = pb_scan_bytes(&walk->scan, walk->position, wanted, &bytes, &length);
    if (rc != 0)
        return rc;
    pb_log_walk_row *row = &walk->row;
    row->flags |= PB_LOG_WALK_CONTROL;
    row->control_type = -1;
    bool aborts;
    pb_record record;
    const uint8_t *records = bytes + PB_BATCH_HEADER_BYTES;
    length -= PB_BATCH_HEADER_BYTES;
    if (pb_batch_compression(header) != PB_COMPRESSION_NONE)
        return 0;
    if (pb_marker_parse(records, length, &aborts, &row->coordinator_epoch))
        row->control_type = aborts ? 0 : 1;
    else if (pb_record_parse(records, length, &record, NULL) == 0 && record.key_length >= KEY_BYTES)
        row->control_type = (int16_t)pb_be16_load(record.key + 2);
    return 0;
}

static int load_batch(pb_log_walk *walk, size_t size_bytes)
{
    if (walk->codec == NULL) {
        int rc = pb_codec_create(&walk->codec);
        if (rc != 0)
            return rc;
    }
    if (walk->batch_capacity < size_bytes) {
        uint8_t *grown = realloc(walk->batch, size_bytes);
        if (grown == NULL)
            return -ENOMEM;
        walk->batch = grown;
        walk->batch_capacity = size_bytes;
    }
    return pb_io_read_all(walk->io, walk->file, walk->batch, size_bytes, walk->position);
}

/* Go through the records. 0 and *odd, or -errno. */
static int look_into(pb_log_walk *walk, const pb_batch_header *header, bool *odd)
{
    *odd = true;
    int rc = load_batch(walk, header->size_bytes);
    if (rc != 0)
        return rc;
    pb_record_reader reader;
    rc = pb_record_reader_open(&reader, walk->codec, walk->batch, header, NULL);
    int64_t max_timestamp = PB_NO_TIMESTAMP;
    int64_t last_delta = -1;
    bool in_order = true;
    while (rc == 0 && pb_record_reader_has_next(&reader)) {
        pb_record_view view;
        rc = pb_record_reader_next(&reader, &view, NULL);
        if (rc != 0)
            break;
        int64_t timestamp = pb_record_timestamp(header, view.timestamp_delta);
        max_timestamp = timestamp > max_timestamp ? timestamp : max_timestamp;
        in_order = in_order && view.offset_delta > last_delta;
        last_delta = view.offset_delta;
        walk->totals.null_keys += !view.has_key;
        walk->totals.deep_records++;
        walk->totals.plain_bytes += (int64_t)view.size_bytes;
    }
    if (rc == 0)
        rc = pb_record_reader_finish(&reader, NULL);
    if (rc < 0)
        return rc;
    walk->totals.deep_batches++;
    walk->totals.stored_bytes += header->size_bytes - PB_BATCH_HEADER_BYTES;
    /* The cleaner may leave a batch without records, which keeps the timestamp. */
    *odd = rc > 0 || !in_order || last_delta > header->last_offset_delta ||
           (header->record_count > 0 && max_timestamp != header->max_timestamp);
    return 0;
}

static void add_up(pb_log_walk *walk, const pb_batch_header *header)
{
    pb_log_walk_totals *totals = &walk->totals;
    totals->batches++;
    totals->records += header->record_count;
    totals->control_batches += pb_batch_is_control(header);
    totals->transactional_batches += pb_batch_is_transactional(header);
    totals->end_offset = pb_batch_last_offset(header) + 1;
    totals->codec_batches[pb_batch_compression(header)]++;
    totals->codec_bytes[pb_batch_compression(header)] += header->size_bytes;
    _Static_assert(PB_LOG_WALK_SIZE_BUCKETS == PB_HISTOGRAM_BUCKETS, "a place for every bucket");
    totals->sizes[pb_histogram_bucket(header->size_bytes)]++;
    if (header->max_timestamp > totals->file_max_timestamp) {
        totals->file_max_timestamp = header->max_timestamp;
        walk->max_timestamp_offset = pb_batch_last_offset(header);
    }
    if (header->max_timestamp > totals->max_timestamp)
        totals->max_timestamp = header->max_timestamp;
    if (header->max_timestamp >= 0 && (totals->min_timestamp < 0 || header->max_timestamp < totals->min_timestamp))
        totals->min_timestamp = header->max_timestamp;
    if (header->base_timestamp >= 0 && header->base_timestamp < totals->min_timestamp &&
        (header->attributes & PB_BATCH_DELETE_HORIZON) == 0)
        totals->min_timestamp = header->base_timestamp;
}

static void copy_header(pb_log_walk_row *row, const pb_batch_header *header)
{
    row->size_bytes = header->size_bytes;
    row->base_offset = header->base_offset;
    row->base_timestamp = header->base_timestamp;
    row->max_timestamp = header->max_timestamp;
    row->producer_id = header->producer_id;
    row->leader_epoch = header->partition_leader_epoch;
    row->last_offset_delta = header->last_offset_delta;
    row->base_sequence = header->base_sequence;
    row->record_count = header->record_count;
    row->crc = header->crc;
    row->producer_epoch = header->producer_epoch;
    row->attributes = header->attributes;
    row->magic = (int16_t)(uint8_t)header->magic; /* one of 0, 1 and 2 */
}

int pb_walk_batch(pb_log_walk *walk, const pb_batch_header *header, bool crc_matches)
{
    PB_ASSERT(header->size_bytes > 0);
    pb_log_walk_row *row = &walk->row;
    *row = (pb_log_walk_row){.position = walk->position};
    copy_header(row, header);
    walk->row_counts = crc_matches;
    if (!crc_matches) {
        row->flags = PB_LOG_WALK_CRC;
        row->expected_offset = walk->expected_offset;
        walk->after_damage = true;
        walk->totals.damaged_bytes += header->size_bytes;
        return 0;
    }
    place(walk, header);
    if (walk->totals.file_first_offset < 0)
        walk->totals.file_first_offset = header->base_offset;
    if (header->magic != PB_BATCH_MAGIC) {
        row->flags |= PB_LOG_WALK_OLD_MAGIC;
        walk->totals.old_magic_messages++;
        walk->totals.end_offset = header->base_offset + 1;
        return 0;
    }
    if (header_is_odd(header)) {
        row->flags |= PB_LOG_WALK_HEADER;
        return 0;
    }
    if (header->producer_id >= 0)
        follow_producer(walk, header);
    add_up(walk, header);
    int rc = pb_batch_is_control(header) ? read_control(walk, header) : 0;
    if (rc == 0 && walk->options.deep_every > 0 && walk->batch_number % walk->options.deep_every == 0) {
        bool odd;
        rc = look_into(walk, header, &odd);
        if (rc == 0 && odd)
            row->flags |= PB_LOG_WALK_RECORDS;
    }
    walk->batch_number++;
    return rc;
}
