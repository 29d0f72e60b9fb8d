/*
 * Walking over batches in a file; see scan.h.
 */
#include "log/scan.h"

#include <errno.h>

#include "base/assert.h"
#include "base/kafka_error.h"
#include "cpu/crc32c.h"

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
        int rc = pb_io_read_all(scan->io, scan->file, scan->buffer, fill, position);
        if (rc != 0)
            return rc;
        scan->position = position;
        scan->length = fill;
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
        /* What is in the buffer first, then whole buffers. */
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
