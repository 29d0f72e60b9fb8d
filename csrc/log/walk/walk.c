/*
 * The walk over a file: from batch to batch, past what is none, with the entries of the indexes beside it. See walk.h.
 */
#include "log/walk/walk.h"

#include <errno.h>
#include <stdlib.h>
#include <zlib.h>

#include "base/assert.h"
#include "log/walk/state.h"
#include "record/bytes.h"

enum { INDEX_ENTRY_BYTES = 8, TIME_ENTRY_BYTES = 12, MESSAGE_BYTES = 26 };

int pb_log_walk_create(pb_io *io, pb_log_walk **out)
{
    pb_log_walk *walk = calloc(1, sizeof(*walk));
    uint8_t *buffer = malloc(PB_SCAN_LARGE_BYTES);
    if (walk == NULL || buffer == NULL) {
        free(walk);
        free(buffer);
        return -ENOMEM;
    }
    walk->io = io;
    walk->buffer = buffer;
    walk->file = -1;
    walk->at_end = true;
    walk->expected_offset = -1;
    walk->lost_from = -1;
    walk->totals.min_timestamp = walk->totals.max_timestamp = PB_NO_TIMESTAMP;
    walk->totals.end_offset = walk->totals.file_max_timestamp = walk->totals.file_first_offset = -1;
    *out = walk;
    return 0;
}

static void leave_file(pb_log_walk *walk)
{
    if (walk->file >= 0)
        walk->io->ops->file_close(walk->io, walk->file);
    walk->file = -1;
    walk->at_end = true;
    walk->has_row = false;
}

void pb_log_walk_destroy(pb_log_walk *walk)
{
    leave_file(walk);
    if (walk->codec != NULL)
        pb_codec_destroy(walk->codec);
    free(walk->batch);
    free(walk->buffer);
    free(walk);
}

int pb_log_walk_begin(pb_log_walk *walk, const pb_log_walk_file *file)
{
    PB_ASSERT(file->index_length % INDEX_ENTRY_BYTES == 0 && file->time_index_length % TIME_ENTRY_BYTES == 0);
    leave_file(walk);
    walk->file = walk->io->ops->file_open(walk->io, file->path, PB_OPEN_READ);
    if (walk->file < 0)
        return walk->file;
    int64_t size = walk->io->ops->file_size(walk->io, walk->file);
    if (size < 0) {
        leave_file(walk);
        return (int)size;
    }
    walk->options = *file;
    pb_scan_init(&walk->scan, walk->io, walk->file, size, walk->buffer, PB_SCAN_LARGE_BYTES);
    walk->position = 0;
    walk->batch_number = 0;
    walk->index_cursor = walk->time_cursor = 0;
    walk->lost_from = -1;
    walk->at_end = false;
    walk->totals.bytes += size;
    walk->totals.file_max_timestamp = PB_NO_TIMESTAMP;
    walk->max_timestamp_offset = -1;
    walk->totals.file_first_offset = -1;
    return 0;
}

/* The CRC32 (of zlib, not CRC32C) of a message of magic 0 or 1 covers everything from its magic on. */
static int message_crc_matches(pb_log_walk *walk, const pb_batch_header *header, bool *matches)
{
    const uint8_t *bytes;
    size_t length;
    *matches = false;
    if (header->size_bytes < MESSAGE_BYTES)
        return 0;
    int rc =
        pb_scan_bytes(&walk->scan, walk->position + PB_BATCH_LOG_OVERHEAD_BYTES, sizeof(uint32_t), &bytes, &length);
    if (rc != 0)
        return rc;
    uint32_t stored = pb_be32_load(bytes);
    uLong crc = crc32(0, NULL, 0);
    int64_t end = walk->position + header->size_bytes;
    for (int64_t at = walk->position + PB_BATCH_MAGIC_POSITION; at < end; at += (int64_t)length) {
        rc = pb_scan_bytes(&walk->scan, at, end - at < INT32_MAX ? (size_t)(end - at) : INT32_MAX, &bytes, &length);
        if (rc != 0)
            return rc;
        crc = crc32(crc, bytes, (uInt)length);
    }
    *matches = (uint32_t)crc == stored;
    return 0;
}

static void tell_garbage(pb_log_walk *walk, int64_t end, uint32_t flags)
{
    walk->row = (pb_log_walk_row){
        .position = walk->position,
        .size_bytes = end - walk->position,
        .expected_offset = walk->expected_offset,
        .flags = PB_LOG_WALK_GARBAGE | flags,
    };
    walk->row_counts = false;
    walk->after_damage = true;
    walk->totals.damaged_bytes += end - walk->position;
}

/* Bytes from walk->position that are no batch, up to one that is. */
static int take_garbage(pb_log_walk *walk)
{
    int64_t found;
    bool zeros;
    int rc = pb_walk_find(walk, walk->position, walk->position + 1, &found, &zeros);
    if (rc == 0)
        tell_garbage(walk, found, zeros ? PB_LOG_WALK_ZEROS : 0);
    return rc;
}

/* The same where the disk fails: try block after block. */
static int take_unreadable(pb_log_walk *walk)
{
    int64_t from = walk->position;
    int64_t found = walk->scan.limit;
    bool zeros;
    int rc = -EIO;
    while (rc == -EIO && from < walk->scan.limit) {
        from = from / PB_SCAN_SMALL_BYTES * PB_SCAN_SMALL_BYTES + PB_SCAN_SMALL_BYTES;
        if (from < walk->scan.limit)
            rc = pb_walk_find(walk, from, from, &found, &zeros);
    }
    if (rc != 0 && rc != -EIO)
        return rc;
    tell_garbage(walk, found, PB_LOG_WALK_UNREADABLE);
    return 0;
}

/* The batch, or what is none, at walk->position. */
static int take_readable(pb_log_walk *walk)
{
    pb_batch_header header;
    int rc = pb_scan_header(&walk->scan, walk->position, &header);
    if (rc < 0)
        return rc;
    if (rc > 0 || header.size_bytes == 0)
        return take_garbage(walk);
    bool matches;
    rc = header.magic == PB_BATCH_MAGIC ? pb_scan_crc(&walk->scan, walk->position, &header, &matches)
                                        : message_crc_matches(walk, &header, &matches);
    if (rc == 0 && !matches) {
        /* Its length may be what is wrong: it counts as a batch only if another one, or the end, follows it. */
        int64_t behind = walk->position + header.size_bytes;
        int follows = behind == walk->scan.limit ? 1 : pb_walk_is_batch(walk, behind);
        if (follows <= 0 || header.magic != PB_BATCH_MAGIC)
            return follows < 0 ? follows : take_garbage(walk);
    }
    return rc != 0 ? rc : pb_walk_batch(walk, &header, matches);
}

static int take(pb_log_walk *walk)
{
    int rc = take_readable(walk);
    if (rc == -EIO && walk->scan.capacity > PB_SCAN_SMALL_BYTES) {
        /* One bad block must not cost what lies around it: from here on little is read at a time. */
        walk->scan.capacity = PB_SCAN_SMALL_BYTES;
        walk->scan.length = 0;
        rc = take_readable(walk);
    }
    return rc == -EIO ? take_unreadable(walk) : rc;
}

/* An entry whose successor is not above it, though above its predecessor, is itself the one that is out of order. */
static bool leaps(int64_t before, int64_t entry, int64_t after)
{
    return after <= entry && after > before;
}

static int64_t index_position(const pb_log_walk *walk, size_t entry)
{
    return pb_be32_load(walk->options.index + entry * INDEX_ENTRY_BYTES + 4);
}

static int64_t time_offset(const pb_log_walk *walk, size_t entry)
{
    return walk->options.base_offset + pb_be32_load(walk->options.time_index + entry * TIME_ENTRY_BYTES + 8);
}

/* Compare the entries of the offset index up to the batch at hand; true when one is wrong and told in `out`. */
static bool compare_index(pb_log_walk *walk, pb_log_walk_row *out)
{
    size_t count = walk->options.index_length / INDEX_ENTRY_BYTES;
    const pb_log_walk_row *batch = &walk->row;
    while (walk->index_cursor < count) {
        size_t i = walk->index_cursor;
        int64_t position = index_position(walk, i);
        int64_t offset = walk->options.base_offset + pb_be32_load(walk->options.index + i * INDEX_ENTRY_BYTES);
        int64_t from_here = walk->row_counts ? batch->position : batch->position + batch->size_bytes - 1;
        bool ahead = position > from_here && !walk->at_end;
        if (ahead &&
            !(i + 1 < count && leaps(i == 0 ? -1 : index_position(walk, i - 1), position, index_position(walk, i + 1))))
            return false;
        walk->index_cursor++;
        /* The entry names damage, and is told as that. */
        if (!walk->at_end && !walk->row_counts && position >= batch->position &&
            position < batch->position + batch->size_bytes)
            continue;
        bool here = !walk->at_end && position == batch->position && walk->row_counts;
        int64_t last_offset = here ? batch->base_offset + batch->last_offset_delta : -1;
        if (here && offset == last_offset)
            continue;
        *out = (pb_log_walk_row){.position = position,
                                 .base_offset = offset,
                                 .expected_offset = last_offset,
                                 .number = (int32_t)i,
                                 .flags = PB_LOG_WALK_INDEX};
        return true;
    }
    return false;
}

/* The same for the time index: an entry names the first batch with the largest timestamp so far, by its last offset.
 * Kafka before 3.8 named the record with that timestamp; a look-up begins at the same batch. */
static bool compare_time(pb_log_walk *walk, pb_log_walk_row *out)
{
    size_t count = walk->options.time_index_length / TIME_ENTRY_BYTES;
    const pb_log_walk_row *batch = &walk->row;
    if (!walk->at_end && !walk->row_counts)
        return false;
    while (walk->time_cursor < count) {
        size_t i = walk->time_cursor;
        int64_t offset = time_offset(walk, i);
        int64_t timestamp = (int64_t)pb_be64_load(walk->options.time_index + i * TIME_ENTRY_BYTES);
        int64_t last_offset = batch->base_offset + batch->last_offset_delta;
        bool ahead = offset > last_offset && !walk->at_end;
        if (ahead &&
            !(i + 1 < count && leaps(i == 0 ? -1 : time_offset(walk, i - 1), offset, time_offset(walk, i + 1))))
            return false;
        walk->time_cursor++;
        if (walk->lost_from >= 0 && offset >= walk->lost_from && (walk->at_end || offset < batch->base_offset))
            continue;
        bool here = !walk->at_end && offset >= batch->base_offset && offset <= last_offset;
        bool right_batch =
            here && last_offset == walk->max_timestamp_offset && timestamp == walk->totals.file_max_timestamp;
        if (right_batch && offset == last_offset)
            continue;
        *out = (pb_log_walk_row){.base_offset = offset,
                                 .expected_offset = here ? last_offset : -1,
                                 .max_timestamp = timestamp,
                                 .base_timestamp = here ? batch->max_timestamp : -1,
                                 .number = (int32_t)i,
                                 .flags = PB_LOG_WALK_TIME | (right_batch ? PB_LOG_WALK_INNER : 0U)};
        return true;
    }
    return false;
}

int pb_log_walk_next(pb_log_walk *walk, pb_log_walk_row *rows, int32_t capacity)
{
    PB_ASSERT(capacity > 0);
    int32_t count = 0;
    const uint32_t always = PB_LOG_WALK_GARBAGE | PB_LOG_WALK_CRC;
    while (count < capacity) {
        if (!walk->has_row && walk->file >= 0 && !walk->at_end) {
            if (walk->position == walk->scan.limit) {
                walk->at_end = true;
            } else {
                int rc = take(walk);
                if (rc != 0)
                    return rc;
                walk->has_row = true;
            }
        }
        if (compare_index(walk, &rows[count]) || compare_time(walk, &rows[count])) {
            count++;
            continue;
        }
        if (!walk->has_row)
            break;
        if ((walk->options.wanted & PB_LOG_WALK_EVERY) != 0 || (walk->row.flags & (walk->options.wanted | always)) != 0)
            rows[count++] = walk->row;
        walk->position += walk->row.size_bytes;
        walk->has_row = false;
        if (walk->row_counts)
            walk->lost_from = -1;
        else if (walk->lost_from < 0)
            walk->lost_from = walk->expected_offset >= 0 ? walk->expected_offset : walk->options.base_offset;
    }
    return count;
}

void pb_log_walk_sum(const pb_log_walk *walk, pb_log_walk_totals *out)
{
    *out = walk->totals;
}
