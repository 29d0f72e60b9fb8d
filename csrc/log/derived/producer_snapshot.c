/*
 * Producer snapshot files. A file that does not hold together is reported as damaged and never half loaded.
 */
#include "log/derived/producer_snapshot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "cpu/crc32c.h"
#include "log/segment/segment.h"
#include "record/bytes.h"

enum {
    SNAPSHOT_VERSION = 1,
    SNAPSHOT_CRC_POSITION = 2,
    SNAPSHOT_COUNT_POSITION = 6, /* the CRC covers from here on */
    SNAPSHOT_HEADER_BYTES = 10,
    SNAPSHOT_ENTRY_BYTES = 46,
    SNAPSHOT_MAX_BYTES = 1 << 30,
};

static void entry_encode(uint8_t *at, const pb_producer *producer)
{
    pb_producer_batch none = {.last_offset = -1, .timestamp_ms = -1, .last_sequence = -1, .offset_delta = 0};
    const pb_producer_batch *last = producer->batch_count > 0 ? &producer->batches[producer->batch_newest] : &none;
    pb_be64_store(at, (uint64_t)producer->producer_id);
    pb_be16_store(at + 8, (uint16_t)producer->epoch);
    pb_be32_store(at + 10, (uint32_t)last->last_sequence);
    pb_be64_store(at + 14, (uint64_t)last->last_offset);
    pb_be32_store(at + 22, (uint32_t)last->offset_delta);
    pb_be64_store(at + 26, (uint64_t)producer->last_timestamp_ms);
    pb_be32_store(at + 34, (uint32_t)producer->coordinator_epoch);
    pb_be64_store(at + 38, (uint64_t)producer->transaction_start_offset);
}

/* false when the fields contradict each other. */
static bool entry_decode(const uint8_t *at, pb_producer *producer)
{
    memset(producer, 0, sizeof(*producer));
    producer->producer_id = (int64_t)pb_be64_load(at);
    producer->epoch = (int16_t)pb_be16_load(at + 8);
    producer->last_timestamp_ms = (int64_t)pb_be64_load(at + 26);
    producer->coordinator_epoch = (int32_t)pb_be32_load(at + 34);
    producer->transaction_start_offset = (int64_t)pb_be64_load(at + 38);
    pb_producer_batch *last = &producer->batches[0];
    last->last_sequence = (int32_t)pb_be32_load(at + 10);
    last->last_offset = (int64_t)pb_be64_load(at + 14);
    last->offset_delta = (int32_t)pb_be32_load(at + 22);
    last->timestamp_ms = producer->last_timestamp_ms;
    producer->batch_count = last->last_offset >= 0 ? 1 : 0;
    if (producer->producer_id < 0 || producer->transaction_start_offset < -1)
        return false;
    return producer->batch_count == 0 ||
           (last->last_sequence >= 0 && last->offset_delta >= 0 && last->offset_delta <= last->last_offset);
}

uint8_t *pb_producer_snapshot_format(const pb_producers *producers, size_t *length)
{
    *length = SNAPSHOT_HEADER_BYTES + (size_t)producers->count * SNAPSHOT_ENTRY_BYTES;
    uint8_t *bytes = malloc(*length);
    if (bytes == NULL)
        return NULL;
    uint8_t *at = bytes + SNAPSHOT_HEADER_BYTES;
    uint32_t bucket = 0;
    const pb_producer *producer = NULL;
    while ((producer = pb_producers_next(producers, &bucket, producer)) != NULL) {
        entry_encode(at, producer);
        at += SNAPSHOT_ENTRY_BYTES;
    }
    PB_ASSERT((size_t)(at - bytes) == *length);
    pb_be16_store(bytes, SNAPSHOT_VERSION);
    pb_be32_store(bytes + SNAPSHOT_COUNT_POSITION, producers->count);
    pb_be32_store(bytes + SNAPSHOT_CRC_POSITION,
                  pb_crc32c(0, bytes + SNAPSHOT_COUNT_POSITION, *length - SNAPSHOT_COUNT_POSITION));
    return bytes;
}

int pb_producer_snapshot_parse(pb_producers *producers, const uint8_t *bytes, size_t length, int64_t now_ms,
                               int64_t expiration_ms)
{
    PB_ASSERT(producers->count == 0);
    if (length < SNAPSHOT_HEADER_BYTES || pb_be16_load(bytes) != SNAPSHOT_VERSION ||
        pb_be32_load(bytes + SNAPSHOT_CRC_POSITION) !=
            pb_crc32c(0, bytes + SNAPSHOT_COUNT_POSITION, length - SNAPSHOT_COUNT_POSITION))
        return -EBADMSG;
    uint32_t count = pb_be32_load(bytes + SNAPSHOT_COUNT_POSITION);
    if ((length - SNAPSHOT_HEADER_BYTES) / SNAPSHOT_ENTRY_BYTES != count ||
        (length - SNAPSHOT_HEADER_BYTES) % SNAPSHOT_ENTRY_BYTES != 0)
        return -EBADMSG;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        pb_producer producer;
        if (!entry_decode(bytes + SNAPSHOT_HEADER_BYTES + (size_t)i * SNAPSHOT_ENTRY_BYTES, &producer) ||
            pb_producers_find(producers, producer.producer_id) != NULL)
            rc = -EBADMSG;
        else
            rc = pb_producers_restore(producers, &producer);
    }
    if (rc != 0) {
        pb_producers_clear(producers);
        return rc;
    }
    pb_producers_expire(producers, now_ms, expiration_ms);
    return 0;
}

int pb_producer_snapshot_write(pb_io *io, const char *directory, int64_t offset, const uint8_t *bytes, size_t length,
                               bool sync)
{
    char path[PB_LOG_PATH_BYTES];
    int rc = pb_segment_path(path, directory, offset, PB_FILE_SNAPSHOT, "");
    if (rc != 0)
        return rc;
    /* A file that is emptied and written again goes to the disk when it is closed, on ext4; a new one does not. */
    if (!sync)
        (void)io->ops->unlink(io, path);
    int file = io->ops->file_open(io, path, PB_OPEN_WRITE | PB_OPEN_CREATE | PB_OPEN_TRUNCATE);
    if (file < 0)
        return file;
    struct iovec iov = {(void *)(uintptr_t)bytes, length};
    rc = pb_io_write_all(io, file, &iov, 1, 0);
    if (rc == 0 && sync)
        rc = io->ops->file_sync(io, file);
    int close_rc = io->ops->file_close(io, file);
    return rc != 0 ? rc : close_rc;
}

int pb_producer_snapshot_load(pb_io *io, const char *directory, int64_t offset, pb_producers *producers, int64_t now_ms,
                              int64_t expiration_ms)
{
    char path[PB_LOG_PATH_BYTES];
    int rc = pb_segment_path(path, directory, offset, PB_FILE_SNAPSHOT, "");
    if (rc != 0)
        return rc;
    int file = io->ops->file_open(io, path, PB_OPEN_READ);
    if (file < 0)
        return file;
    int64_t length = io->ops->file_size(io, file);
    uint8_t *bytes = NULL;
    if (length < 0) {
        rc = (int)length;
    } else if (length < SNAPSHOT_HEADER_BYTES || length > SNAPSHOT_MAX_BYTES) {
        rc = -EBADMSG;
    } else {
        bytes = malloc((size_t)length);
        rc = bytes == NULL ? -ENOMEM : pb_io_read_all(io, file, bytes, (size_t)length, 0);
    }
    if (rc == 0)
        rc = pb_producer_snapshot_parse(producers, bytes, (size_t)length, now_ms, expiration_ms);
    free(bytes);
    io->ops->file_close(io, file);
    return rc;
}
