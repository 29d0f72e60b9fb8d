/*
 * Looking records up by time, and aborted transactions by offset. Blocking reads on any thread; the lock only through
 * the guard, for choosing segments.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/kafka_error.h"
#include "log/segment/offset_index.h"
#include "log/segment/scan.h"
#include "log/segment/time_index.h"
#include "log/segment/transaction_index.h"
#include "log/state.h"
#include "record/lookup.h"

enum { ABORTED_FIRST_CAPACITY = 16, LOOKUP_RETRIES = 3, LOOKUP_SEARCH_BYTES = 16 << 20 };

/* A batch read whole, with what it takes to look into it. */
typedef struct batch_probe {
    uint8_t *bytes;
    size_t capacity;
    pb_codec *codec;
} batch_probe;

/* A look-up's knowledge of one segment; copied under the lock, holds a reference. */
typedef struct segment_view {
    pb_segment *segment;
    int64_t size_bytes;
    int64_t end_offset;
    int64_t start_offset; /* the log's */
    int64_t largest_timestamp_ms;
    int64_t largest_timestamp_offset;
    uint32_t time_flushed;
    uint32_t offset_flushed;
    int32_t max_record_bytes;
    bool last;
    bool time_pending_found;
    pb_time_entry time_entry;
} segment_view;

static void probe_free(batch_probe *probe)
{
    free(probe->bytes);
    if (probe->codec != NULL)
        pb_codec_destroy(probe->codec);
}

/* Read the batch at `position` whole and make a codec when it needs one. */
static int probe_load(batch_probe *probe, pb_segment *segment, int file, int64_t position,
                      const pb_batch_header *header)
{
    if (header->size_bytes > probe->capacity) {
        uint8_t *grown = realloc(probe->bytes, header->size_bytes);
        if (grown == NULL)
            return -ENOMEM;
        probe->bytes = grown;
        probe->capacity = header->size_bytes;
    }
    if (pb_batch_compression(header) != PB_COMPRESSION_NONE && probe->codec == NULL) {
        int rc = pb_codec_create(&probe->codec);
        if (rc != 0)
            return rc;
    }
    return pb_tail_read(segment, file, probe->bytes, header->size_bytes, position);
}

/* [lock] */
static segment_view view_of(pb_log *log, uint32_t index)
{
    pb_segment *segment = log->segments[index];
    pb_segment_retain(segment);
    segment->used = ++log->use_count;
    return (segment_view){
        .segment = segment,
        .size_bytes = segment->size_bytes,
        .end_offset = pb_log_segment_end(log, index),
        .start_offset = log->start_offset,
        .last = index + 1 == log->segment_count,
        .largest_timestamp_ms = segment->largest_timestamp_ms,
        .largest_timestamp_offset = segment->largest_timestamp_offset,
        .time_flushed = segment->time_index.flushed_count,
        .offset_flushed = segment->offset_index.flushed_count,
        .max_record_bytes = log->config.max_record_bytes,
    };
}

/* The first segment from `from_offset` on that reaches the timestamp. [lock] inside. false: none. */
static bool find_by_timestamp(pb_log *log, const pb_log_guard *guard, int64_t from_offset, int64_t timestamp_ms,
                              segment_view *view)
{
    bool found = false;
    pb_log_lock(guard);
    int first = pb_log_segment_floor(log, from_offset);
    for (uint32_t i = first < 0 ? 0 : (uint32_t)first; !found && i < log->segment_count; i++) {
        if (log->segments[i]->largest_timestamp_ms < timestamp_ms)
            continue;
        *view = view_of(log, i);
        view->time_pending_found = pb_time_index_find_pending(log->segments[i], timestamp_ms, &view->time_entry);
        found = true;
    }
    pb_log_unlock(guard);
    return found;
}

/* Where in the segment to begin to look for `offset`. */
static int position_of(pb_log *log, const pb_log_guard *guard, const segment_view *view, int64_t offset,
                       int64_t *position)
{
    (void)log;
    pb_log_lock(guard);
    bool found = pb_offset_index_find_pending(view->segment, offset, position);
    pb_log_unlock(guard);
    return found ? 0 : pb_offset_index_find_flushed(view->segment, view->offset_flushed, offset, position);
}

/* The header at *position, or of the first intact batch behind it when that is damaged. */
static int next_header(pb_scan *scan, const pb_segment *segment, int64_t *position, pb_batch_header *header)
{
    int rc = pb_scan_header(scan, *position, header);
    if (rc < 0 || (rc == 0 && header->size_bytes > 0))
        return rc;
    const pb_scan_range range = {
        .least_offset = segment->base_offset,
        .most_offset = segment->base_offset + INT32_MAX,
        .most_bytes = LOOKUP_SEARCH_BYTES,
    };
    rc = pb_scan_skip(scan, *position, &range, position, header);
    return rc == 0 && header->size_bytes == 0 ? PB_CORRUPT_MESSAGE : rc;
}

/* The first record at or above a timestamp in one segment. out->offset stays -1 when none is. */
static int search_segment(pb_log *log, const pb_log_guard *guard, segment_view *view, int64_t timestamp_ms,
                          pb_log_position *out)
{
    int rc = 0;
    if (!view->time_pending_found)
        rc = pb_time_index_find_flushed(view->segment, view->time_flushed, timestamp_ms, &view->time_entry);
    int64_t from = view->time_entry.offset > view->start_offset ? view->time_entry.offset : view->start_offset;
    int64_t position = 0;
    int file = -1;
    if (rc == 0)
        rc = position_of(log, guard, view, from, &position);
    if (rc == 0)
        rc = pb_log_open_segment(log, guard, view->segment, &file);
    uint8_t buffer[PB_SCAN_SMALL_BYTES];
    pb_scan scan;
    pb_scan_init_segment(&scan, view->segment, file, view->size_bytes, buffer, sizeof(buffer));
    if (rc == 0)
        rc = pb_scan_trust(&scan, view->segment->base_offset, from, &position);
    batch_probe probe = {0};
    while (rc == 0 && out->offset < 0 && position < view->size_bytes) {
        pb_batch_header header;
        rc = next_header(&scan, view->segment, &position, &header);
        if (rc == 0 && header.magic == PB_BATCH_MAGIC && header.max_timestamp >= timestamp_ms &&
            pb_batch_last_offset(&header) >= view->start_offset) {
            pb_record_position record;
            rc = probe_load(&probe, view->segment, file, position, &header);
            if (rc == 0)
                rc = pb_batch_find_timestamp(probe.codec, probe.bytes, &header, view->max_record_bytes, timestamp_ms,
                                             view->start_offset, &record, NULL);
            if (rc == 0 && record.found)
                *out = (pb_log_position){record.offset, record.timestamp, header.partition_leader_epoch};
        }
        position += header.size_bytes;
    }
    probe_free(&probe);
    return rc;
}

int pb_log_offset_for_timestamp(pb_log *log, const pb_log_guard *guard, int64_t timestamp_ms, int64_t upper_offset,
                                pb_log_position *out)
{
    *out = (pb_log_position){-1, -1, -1};
    int64_t from_offset = 0;
    segment_view view;
    int retries = 0;
    while (find_by_timestamp(log, guard, from_offset, timestamp_ms, &view)) {
        int rc = search_segment(log, guard, &view, timestamp_ms, out);
        rc = pb_log_judge_read(log, guard, view.segment, view.size_bytes, rc);
        pb_segment_release(view.segment);
        /* Retention may have renamed the files meanwhile, or the log was cut; then the segment is off the list. */
        if (rc == -ENOENT && retries++ < LOOKUP_RETRIES)
            continue;
        if (rc != 0)
            return rc;
        from_offset = view.end_offset;
        if (out->offset >= upper_offset)
            *out = (pb_log_position){-1, -1, -1};
        if (out->offset >= 0 || view.last || from_offset >= upper_offset)
            return 0;
    }
    return 0;
}

/* The segment with the largest timestamp, the first of several. [lock] inside. false: no record has one. */
static bool find_largest(pb_log *log, const pb_log_guard *guard, segment_view *view)
{
    pb_log_lock(guard);
    uint32_t best = 0;
    for (uint32_t i = 1; i < log->segment_count; i++) {
        if (log->segments[i]->largest_timestamp_ms > log->segments[best]->largest_timestamp_ms)
            best = i;
    }
    bool found = log->segments[best]->largest_timestamp_ms >= 0;
    if (found)
        *view = view_of(log, best);
    pb_log_unlock(guard);
    return found;
}

/* The record with the segment's largest timestamp: in the batch that the segment names. */
static int search_largest(pb_log *log, const pb_log_guard *guard, const segment_view *view, pb_log_position *out)
{
    int64_t position = 0;
    int file = -1;
    int rc = position_of(log, guard, view, view->largest_timestamp_offset, &position);
    if (rc == 0)
        rc = pb_log_open_segment(log, guard, view->segment, &file);
    uint8_t buffer[PB_SCAN_SMALL_BYTES];
    pb_scan scan;
    pb_scan_init_segment(&scan, view->segment, file, view->size_bytes, buffer, sizeof(buffer));
    if (rc == 0)
        rc = pb_scan_trust(&scan, view->segment->base_offset, view->largest_timestamp_offset, &position);
    batch_probe probe = {0};
    while (rc == 0 && position < view->size_bytes) {
        pb_batch_header header;
        rc = next_header(&scan, view->segment, &position, &header);
        if (rc != 0 || pb_batch_last_offset(&header) < view->largest_timestamp_offset) {
            position += header.size_bytes;
            continue;
        }
        pb_record_position record = {0};
        rc = header.magic == PB_BATCH_MAGIC ? probe_load(&probe, view->segment, file, position, &header) : 0;
        if (rc == 0 && header.magic == PB_BATCH_MAGIC)
            rc = pb_batch_find_max_timestamp(probe.codec, probe.bytes, &header, view->max_record_bytes, &record, NULL);
        if (rc == 0 && record.found)
            *out = (pb_log_position){record.offset, record.timestamp, header.partition_leader_epoch};
        break;
    }
    probe_free(&probe);
    return rc;
}

int pb_log_offset_of_max_timestamp(pb_log *log, const pb_log_guard *guard, int64_t upper_offset, pb_log_position *out)
{
    *out = (pb_log_position){-1, -1, -1};
    segment_view view;
    int rc = -ENOENT;
    for (int retries = 0; rc == -ENOENT && retries <= LOOKUP_RETRIES; retries++) {
        if (!find_largest(log, guard, &view))
            return 0;
        rc = search_largest(log, guard, &view, out);
        rc = pb_log_judge_read(log, guard, view.segment, view.size_bytes, rc);
        pb_segment_release(view.segment);
    }
    if (out->offset >= upper_offset)
        *out = (pb_log_position){-1, -1, -1};
    return rc;
}

typedef struct aborted_list {
    pb_transaction_entry *entries;
    int count;
    int capacity;
} aborted_list;

/* Take what touches [offset, upper_offset). *complete: transactions further on begin above it. */
static int aborted_collect(aborted_list *list, const pb_transaction_entry *entry, int64_t offset, int64_t upper_offset,
                           bool *complete)
{
    if (entry->last_offset >= offset && entry->first_offset < upper_offset) {
        if (list->count == list->capacity) {
            int capacity = list->capacity == 0 ? ABORTED_FIRST_CAPACITY : list->capacity * 2;
            pb_transaction_entry *grown = realloc(list->entries, (size_t)capacity * sizeof(*grown));
            if (grown == NULL)
                return -ENOMEM;
            list->entries = grown;
            list->capacity = capacity;
        }
        list->entries[list->count++] = *entry;
    }
    *complete = entry->last_stable_offset >= upper_offset;
    return 0;
}

/* One segment's entries: those in the file, then copies of the pending ones. */
static int aborted_in_segment(const segment_view *view, uint32_t flushed_count, const uint8_t *pending,
                              uint32_t pending_count, aborted_list *list, int64_t offset, int64_t upper_offset,
                              bool *complete)
{
    pb_transaction_entry *entries = NULL;
    int rc = pb_transaction_index_load(view->segment, flushed_count, &entries);
    for (uint32_t i = 0; rc == 0 && !*complete && i < flushed_count; i++)
        rc = aborted_collect(list, &entries[i], offset, upper_offset, complete);
    free(entries);
    for (uint32_t i = 0; rc == 0 && !*complete && i < pending_count; i++) {
        pb_transaction_entry entry;
        bool good = pb_transaction_entry_decode(pending + (size_t)i * PB_TRANSACTION_INDEX_ENTRY_BYTES, &entry);
        PB_ASSERT(good);
        rc = aborted_collect(list, &entry, offset, upper_offset, complete);
    }
    return rc;
}

int pb_log_aborted_entries(pb_log *log, const pb_log_guard *guard, int64_t offset, int64_t upper_offset,
                           pb_transaction_entry **out, int *count)
{
    aborted_list list = {0};
    bool complete = false;
    int rc = 0;
    int64_t from = offset;
    int retries = 0;
    while (rc == 0 && !complete) {
        pb_log_lock(guard);
        int index = pb_log_segment_floor(log, from);
        if (index < 0)
            index = 0;
        segment_view view = view_of(log, (uint32_t)index);
        const pb_index_buffer *buffer = &view.segment->transaction_index;
        uint32_t flushed_count = buffer->flushed_count;
        uint32_t pending_count = buffer->pending_count;
        size_t length = (size_t)pending_count * PB_TRANSACTION_INDEX_ENTRY_BYTES;
        uint8_t *pending = malloc(length + 1);
        if (pending != NULL && length > 0)
            memcpy(pending, buffer->pending, length);
        pb_log_unlock(guard);
        rc = pending == NULL ? -ENOMEM
                             : aborted_in_segment(&view, flushed_count, pending, pending_count, &list, offset,
                                                  upper_offset, &complete);
        free(pending);
        rc = pb_log_judge_read(log, guard, view.segment, view.size_bytes, rc);
        pb_segment_release(view.segment);
        if (rc == -ENOENT && retries++ < LOOKUP_RETRIES) {
            rc = 0;
            continue;
        }
        from = view.end_offset;
        if (view.last)
            break;
    }
    if (rc != 0) {
        free(list.entries);
        list = (aborted_list){0};
    }
    *out = list.entries;
    *count = list.count;
    return rc;
}

int pb_log_aborted_transactions(pb_log *log, const pb_log_guard *guard, int64_t offset, int64_t upper_offset,
                                pb_aborted_transaction **out, int *count)
{
    pb_transaction_entry *entries;
    *out = NULL;
    *count = 0;
    int found = 0;
    int rc = pb_log_aborted_entries(log, guard, offset, upper_offset, &entries, &found);
    if (rc != 0 || found == 0)
        return rc;
    *out = malloc((size_t)found * sizeof(**out));
    if (*out != NULL)
        *count = found;
    for (int i = 0; i < *count; i++)
        (*out)[i] = (pb_aborted_transaction){entries[i].producer_id, entries[i].first_offset};
    free(entries);
    return *out == NULL ? -ENOMEM : 0;
}
