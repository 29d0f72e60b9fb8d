/*
 * Walking over the batches of a .log file: headers by buffered reads, CRCs in bounded memory whatever a batch's size.
 * One scan belongs to one thread; the file is not written below `limit` meanwhile.
 */
#ifndef PB_LOG_SCAN_H
#define PB_LOG_SCAN_H

#include "io/io.h"
#include "record/batch.h"

enum { PB_SCAN_SMALL_BYTES = 4096, PB_SCAN_LARGE_BYTES = 1 << 20 };

typedef struct pb_scan {
    pb_io *io;
    int file;
    int64_t limit;    /* where the file's batches end at the latest */
    uint8_t *buffer;  /* the caller's */
    size_t capacity;  /* at least PB_BATCH_HEADER_BYTES */
    int64_t position; /* of the buffer's first byte */
    size_t length;    /* bytes in the buffer */
} pb_scan;

static inline void pb_scan_init(pb_scan *scan, pb_io *io, int file, int64_t limit, uint8_t *buffer, size_t capacity)
{
    *scan = (pb_scan){.io = io, .file = file, .limit = limit, .buffer = buffer, .capacity = capacity};
}

/* `*bytes` points at min(wanted, capacity, limit - position) bytes at `position`; *length says how many. 0 or -errno.
 */
int pb_scan_bytes(pb_scan *scan, int64_t position, size_t wanted, const uint8_t **bytes, size_t *length);
/*
 * The header of the batch at `position`. 0 with header->size_bytes = 0 when no whole batch lies there below `limit`;
 * CORRUPT_MESSAGE when what lies there is none, or has a negative offset or offset delta; -errno. For magic 0 and 1 the
 * last offset delta is 0 and timestamps are -1.
 */
int pb_scan_header(pb_scan *scan, int64_t position, pb_batch_header *header);
/* Is the magic-2 batch's CRC that of its bytes? 0 or -errno. */
int pb_scan_crc(pb_scan *scan, int64_t position, const pb_batch_header *header, bool *matches);

#endif
