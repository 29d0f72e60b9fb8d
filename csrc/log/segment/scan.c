/*
 * Walking over batches in a file; see scan.h.
 */
#include "log/segment/scan.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/kafka_error.h"
#include "cpu/crc32c.h"
#include "log/segment/segment.h"

void pb_scan_init_segment(pb_scan *scan, pb_segment *segment, int file, int64_t limit, uint8_t *buffer, size_t capacity)
{
    pb_scan_init(scan, segment->io, file, limit, buffer, capacity);
    scan->segment = segment;
}

void pb_scan_past_cache(pb_scan *scan, int direct)
{
    PB_ASSERT(direct >= 0 && scan->direct < 0 && scan->segment == NULL);
    PB_ASSERT((uintptr_t)scan->buffer % PB_DIRECT_BLOCK_BYTES == 0);
    PB_ASSERT(scan->capacity % PB_DIRECT_BLOCK_BYTES == 0 && scan->capacity >= (size_t)2 * PB_DIRECT_BLOCK_BYTES);
    scan->direct = direct;
    scan->capacity -= PB_DIRECT_BLOCK_BYTES;
}

/* Fill the buffer from the block on that `position` lies in. */
static int fill_past_cache(pb_scan *scan, size_t length, int64_t position)
{
    int64_t begin = position - position % PB_DIRECT_BLOCK_BYTES;
    size_t wanted = (size_t)(position - begin) + length;
    PB_ASSERT(wanted <= scan->capacity + PB_DIRECT_BLOCK_BYTES);
    int rc = pb_io_read_blocks(scan->io, scan->direct, scan->buffer, wanted, begin);
    if (rc != 0)
        return rc;
    scan->position = begin;
    scan->length = wanted;
    return 0;
}

/* Fill the buffer with `length` bytes, of which `wanted` do. */
static int fill_buffer(pb_scan *scan, size_t wanted, size_t length, int64_t position)
{
    bool is_cold =
        scan->direct >= 0 && scan->io->ops->file_resident(scan->io, scan->file, position, (int64_t)length) == 0;
    /* Where that cannot be done, the usual way can, or says what is wrong. */
    if (is_cold && fill_past_cache(scan, length, position) == 0)
        return 0;
    size_t held = 0;
    if (scan->segment != NULL && pb_history_may_hold(scan->segment) &&
        pb_tail_file_bytes(scan->segment, position, 1) > 0)
        held = pb_history_copy(scan->segment, scan->buffer, length, position);
    int rc = 0;
    if (held < wanted) { /* else the disk is not asked for the rest */
        held = length;
        rc = scan->segment != NULL ? pb_tail_read(scan->segment, scan->file, scan->buffer, length, position)
                                   : pb_io_read_all(scan->io, scan->file, scan->buffer, length, position);
    }
    if (rc != 0)
        return rc;
    scan->position = position;
    scan->length = held;
    return 0;
}

int pb_scan_bytes(pb_scan *scan, int64_t position, size_t wanted, const uint8_t **bytes, size_t *length)
{
    PB_ASSERT(position >= 0 && position <= scan->limit);
    int64_t left = scan->limit - position;
    if (wanted > scan->capacity)
        wanted = scan->capacity;
    if ((int64_t)wanted > left)
        wanted = (size_t)left;
    if (position < scan->position || position + (int64_t)wanted > scan->position + (int64_t)scan->length) {
        size_t fill = left < (int64_t)scan->capacity ? (size_t)left : scan->capacity;
        scan->length = 0;
        int rc = fill_buffer(scan, wanted, fill, position);
        if (rc != 0)
            return rc;
    }
    *bytes = scan->buffer + (position - scan->position);
    *length = wanted;
    return 0;
}

int pb_scan_header(pb_scan *scan, int64_t position, pb_batch_header *header)
{
    const uint8_t *bytes;
    size_t length;
    memset(header, 0, sizeof(*header));
    int rc = pb_scan_bytes(scan, position, PB_BATCH_HEADER_BYTES, &bytes, &length);
    if (rc != 0 || length <= PB_BATCH_MAGIC_POSITION)
        return rc;
    /* Only the header is read, so the parser may be told that the rest of the file is there as well. A batch that is
     * cut off inside its header cannot be whole and does not get past the parser's own check of the claimed length. */
    rc = pb_batch_parse(bytes, (size_t)(scan->limit - position), header);
    if (rc != 0 || header->size_bytes == 0)
        return rc;
    if (header->base_offset < 0 || header->last_offset_delta < 0 || header->base_offset > INT64_MAX - INT32_MAX)
        return PB_CORRUPT_MESSAGE;
    if (header->magic != PB_BATCH_MAGIC) {
        header->max_timestamp = PB_NO_TIMESTAMP;
        header->producer_id = PB_NO_PRODUCER_ID;
        header->partition_leader_epoch = -1;
    }
    return 0;
}

int pb_scan_crc(pb_scan *scan, int64_t position, const pb_batch_header *header, bool *matches)
{
    PB_ASSERT(header->magic == PB_BATCH_MAGIC && header->size_bytes >= PB_BATCH_HEADER_BYTES);
    int64_t at = position + PB_BATCH_ATTRIBUTES_POSITION;
    int64_t end = position + header->size_bytes;
    PB_ASSERT(end <= scan->limit);
    uint32_t crc = 0;
    while (at < end) {
        /* Bytes in the buffer come first, then whole buffers. */
        size_t wanted = (size_t)(end - at);
        int64_t buffered = scan->position + (int64_t)scan->length - at;
        if (at >= scan->position && buffered > 0 && (int64_t)wanted > buffered)
            wanted = (size_t)buffered;
        const uint8_t *bytes;
        size_t length;
        int rc = pb_scan_bytes(scan, at, wanted, &bytes, &length);
        if (rc != 0)
            return rc;
        PB_ASSERT(length > 0);
        crc = pb_crc32c(crc, bytes, length);
        at += (int64_t)length;
    }
    *matches = crc == header->crc;
    return 0;
}

int pb_scan_trust(pb_scan *scan, int64_t least_offset, int64_t offset, int64_t *position)
{
    if (*position == 0)
        return 0;
    pb_batch_header header = {0};
    int rc = *position < scan->limit ? pb_scan_header(scan, *position, &header) : 0;
    if (rc < 0)
        return rc;
    if (rc > 0 || header.size_bytes == 0 || header.base_offset < least_offset || header.base_offset > offset)
        *position = 0;
    return 0;
}

/* Does an intact batch of the range lie at `position`? header->size_bytes = 0: no. */
static int intact_at(pb_scan *scan, int64_t position, const pb_scan_range *range, pb_batch_header *header)
{
    int rc = pb_scan_header(scan, position, header);
    bool good = rc == 0 && header->size_bytes > 0 && header->magic == PB_BATCH_MAGIC &&
                header->base_offset >= range->least_offset && pb_batch_last_offset(header) <= range->most_offset;
    if (good)
        rc = pb_scan_crc(scan, position, header, &good);
    if (rc < 0)
        return rc;
    if (!good)
        header->size_bytes = 0;
    return 0;
}

/* The next place at or behind `from` whose byte for the magic is that of magic 2; `end` or more: none; -errno. */
static int64_t find_magic(pb_scan *scan, int64_t from, int64_t end)
{
    while (from < end) {
        const uint8_t *bytes;
        size_t length;
        int rc = pb_scan_bytes(scan, from, scan->capacity, &bytes, &length);
        if (rc != 0)
            return rc;
        if (length <= PB_BATCH_MAGIC_POSITION)
            return end;
        const uint8_t *found =
            memchr(bytes + PB_BATCH_MAGIC_POSITION, PB_BATCH_MAGIC, length - PB_BATCH_MAGIC_POSITION);
        if (found != NULL)
            return from + (found - bytes) - PB_BATCH_MAGIC_POSITION;
        from += (int64_t)length - PB_BATCH_MAGIC_POSITION;
    }
    return end;
}

int pb_scan_skip(pb_scan *scan, int64_t bad, const pb_scan_range *range, int64_t *position, pb_batch_header *header)
{
    enum { WASTE_FACTOR = 4, WASTE_BYTES = 64 << 20 };
    int rc = pb_scan_header(scan, bad, header);
    if (rc == 0 && header->size_bytes > 0) {
        *position = bad + header->size_bytes;
        rc = *position < scan->limit ? intact_at(scan, *position, range, header) : 1;
        if (rc < 0 || (rc == 0 && header->size_bytes > 0))
            return rc;
    }
    int64_t end = scan->limit - bad <= range->most_bytes ? scan->limit : bad + range->most_bytes;
    int64_t waste = (end - bad) * WASTE_FACTOR + WASTE_BYTES;
    for (int64_t at = bad + 1; rc >= 0 && waste > 0; at++) {
        at = find_magic(scan, at, end);
        if (at < 0 || at >= end) {
            rc = at < 0 ? (int)at : 0;
            break;
        }
        pb_batch_header claimed;
        rc = pb_scan_header(scan, at, &claimed);
        if (rc != 0 || claimed.size_bytes == 0 || claimed.base_offset < range->least_offset)
            continue;
        rc = intact_at(scan, at, range, header);
        if (rc == 0 && header->size_bytes > 0) {
            *position = at;
            return 0;
        }
        waste -= claimed.size_bytes;
    }
    header->size_bytes = 0;
    return rc < 0 ? rc : 0;
}
