/*
 * Going on from a mark; see mark.h. One thread that has the log to itself. Whatever does not fit makes a mark worthless
 * and nothing else: then segments are read whole, and what is wrong with them is found.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "log/derived/producer_snapshot.h"
#include "log/recover/mark.h"
#include "log/segment/offset_index.h"
#include "log/segment/scan.h"
#include "log/segment/time_index.h"
#include "log/segment/transaction_index.h"
#include "log/state.h"
#include "record/bytes.h"

/* 0; -ENOENT: there is none; -EBADMSG or -errno. */
static int read_mark(pb_log *log, pb_mark *mark)
{
    char *bytes;
    size_t length;
    int rc = pb_log_read_file(log, PB_MARK_FILE, &bytes, &length);
    if (rc != 0)
        return rc;
    rc = pb_mark_parse((const uint8_t *)bytes, length, mark) ? 0 : -EBADMSG;
    free(bytes);
    return rc;
}

static int open_file(const pb_segment *segment, pb_file_kind kind)
{
    char path[PB_LOG_PATH_BYTES];
    int rc = pb_segment_path(path, segment->directory, segment->base_offset, kind, "");
    return rc != 0 ? rc : segment->io->ops->file_open(segment->io, path, PB_OPEN_READ);
}

/* The first entries of an index, as they lie in its file; NULL: not so many. */
static uint8_t *read_entries(const pb_segment *segment, pb_file_kind kind, size_t length)
{
    int file = open_file(segment, kind);
    if (file < 0)
        return NULL;
    bool there = segment->io->ops->file_size(segment->io, file) >= (int64_t)length;
    uint8_t *bytes = there ? malloc(length) : NULL;
    if (bytes != NULL && pb_io_read_all(segment->io, file, bytes, length, 0) != 0) {
        free(bytes);
        bytes = NULL;
    }
    segment->io->ops->file_close(segment->io, file);
    return bytes;
}

/* Does entry `at`, which follows `before` (NULL: it is the first), belong to what lies below the mark? */
static bool fits(const pb_segment *segment, pb_file_kind kind, const uint8_t *before, const uint8_t *at,
                 const pb_mark *mark)
{
    pb_transaction_entry transaction;
    int64_t offset = pb_segment_entry_offset(segment, kind, at);
    if (offset >= mark->offset || (before != NULL && offset < pb_segment_entry_offset(segment, kind, before)))
        return false;
    switch (kind) {
    case PB_FILE_OFFSET_INDEX:
        return pb_be32_load(at + 4) < mark->position &&
               (before == NULL || pb_be32_load(at + 4) > pb_be32_load(before + 4));
    case PB_FILE_TIME_INDEX:
        return (int64_t)pb_be64_load(at) >= 0 && (before == NULL || pb_be64_load(at) > pb_be64_load(before));
    default:
        return pb_transaction_entry_decode(at, &transaction);
    }
}

/* Entries from below the mark wait in memory again, and their files are written anew. */
static bool load_index(pb_segment *segment, pb_file_kind kind, const pb_mark *mark)
{
    uint32_t entry_bytes;
    uint32_t count = mark->entry_counts[kind - PB_FILE_OFFSET_INDEX];
    pb_index_buffer *index = pb_segment_index(segment, kind, &entry_bytes);
    PB_ASSERT(pb_index_count(index) == 0);
    /* There is no batch without a header. */
    if (count > (uint64_t)mark->position / PB_BATCH_HEADER_BYTES)
        return false;
    if (count == 0)
        return true;
    uint8_t *bytes = read_entries(segment, kind, (size_t)count * entry_bytes);
    if (bytes == NULL)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *at = bytes + (size_t)i * entry_bytes;
        if (!fits(segment, kind, i > 0 ? at - entry_bytes : NULL, at, mark)) {
            free(bytes);
            return false;
        }
    }
    *index = (pb_index_buffer){.pending = bytes, .pending_count = count, .capacity = count};
    return true;
}

static const uint8_t *last_entry(pb_segment *segment, pb_file_kind kind)
{
    uint32_t entry_bytes;
    const pb_index_buffer *index = pb_segment_index(segment, kind, &entry_bytes);
    return index->pending_count > 0 ? index->pending + (size_t)(index->pending_count - 1) * entry_bytes : NULL;
}

/* From the last index entry on: do the batches lead to the mark? They may have the largest timestamp. */
static bool walk_to_mark(pb_segment *segment, pb_scan *scan, int64_t position, const pb_mark *mark)
{
    int64_t next_offset = segment->base_offset;
    pb_batch_header header;
    while (position < mark->position) {
        bool good;
        if (pb_scan_header(scan, position, &header) != 0 || header.size_bytes == 0 || header.magic != PB_BATCH_MAGIC ||
            header.base_offset < next_offset || pb_scan_crc(scan, position, &header, &good) != 0 || !good)
            return false;
        if (header.max_timestamp > segment->largest_timestamp_ms) {
            segment->largest_timestamp_ms = header.max_timestamp;
            segment->largest_timestamp_offset = pb_batch_last_offset(&header);
        }
        next_offset = pb_batch_last_offset(&header) + 1;
        position += header.size_bytes;
    }
    return position == mark->position && next_offset == mark->offset;
}

/* Reads facts from the batches that no index holds. */
static bool look_at_batches(pb_segment *segment, uint8_t *buffer, size_t buffer_bytes, pb_resume *out)
{
    int file = open_file(segment, PB_FILE_LOG);
    if (file < 0)
        return false;
    pb_scan scan;
    pb_batch_header first;
    pb_scan_init(&scan, segment->io, file, out->mark.position, buffer, buffer_bytes);
    bool good = pb_scan_header(&scan, 0, &first) == 0 && first.size_bytes > 0 &&
                walk_to_mark(segment, &scan, out->indexed_position, &out->mark);
    out->first_timestamp_ms = first.max_timestamp;
    segment->io->ops->file_close(segment->io, file);
    return good;
}

static bool load_segment(pb_segment *segment, uint8_t *buffer, size_t buffer_bytes, pb_resume *out)
{
    for (int kind = PB_FILE_OFFSET_INDEX; kind <= PB_FILE_TRANSACTION_INDEX; kind++)
        if (!load_index(segment, (pb_file_kind)kind, &out->mark))
            return false;
    const uint8_t *entry = last_entry(segment, PB_FILE_OFFSET_INDEX);
    out->indexed_position = entry != NULL ? pb_be32_load(entry + 4) : 0;
    entry = last_entry(segment, PB_FILE_TIME_INDEX);
    if (entry != NULL) {
        segment->last_time_entry_ms = segment->largest_timestamp_ms = (int64_t)pb_be64_load(entry);
        segment->largest_timestamp_offset = pb_segment_entry_offset(segment, PB_FILE_TIME_INDEX, entry);
    }
    return look_at_batches(segment, buffer, buffer_bytes, out);
}

/* As a segment is that nobody has looked at. */
static void forget(pb_segment *segment)
{
    pb_index_clear(&segment->offset_index);
    pb_index_clear(&segment->time_index);
    pb_index_clear(&segment->transaction_index);
    segment->largest_timestamp_ms = segment->last_time_entry_ms = -1;
    segment->largest_timestamp_offset = segment->base_offset;
}

static bool holds(pb_log *log, uint32_t first, uint8_t *buffer, size_t buffer_bytes, pb_resume *out)
{
    int index = pb_log_segment_floor(log, out->mark.base_offset);
    if (index < (int)first || log->segments[index]->base_offset != out->mark.base_offset)
        return false;
    pb_segment *segment = log->segments[index];
    out->segment = (uint32_t)index;
    if (segment->old_magic || segment->size_bytes < out->mark.position)
        return false;
    bool good = load_segment(segment, buffer, buffer_bytes, out) &&
                pb_producer_snapshot_load(log->io, log->directory, out->mark.offset, &out->producers,
                                          log->io->ops->wall_ms(log->io), log->config.producer_expiration_ms) == 0;
    if (!good)
        forget(segment);
    return good;
}

int pb_log_resume(pb_log *log, uint32_t first, uint8_t *buffer, size_t buffer_bytes, pb_resume *out)
{
    *out = (pb_resume){0};
    int rc = read_mark(log, &out->mark);
    if (rc == -ENOENT)
        return 0;
    if (rc == 0 && holds(log, first, buffer, buffer_bytes, out)) {
        log->marked_offset = out->mark.offset;
        log->marked_base = out->mark.base_offset;
        return 1;
    }
    /* One that is passed over must not be found by the next start, when the log may have become another one. */
    return pb_log_drop_mark(log);
}
