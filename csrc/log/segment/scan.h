/*
 * Walking over the batches of a .log file: headers by buffered reads, CRCs in bounded memory whatever a batch's size.
 * One scan belongs to one thread; the file is not written below `limit` meanwhile.
 */
#ifndef PB_LOG_SEGMENT_SCAN_H
#define PB_LOG_SEGMENT_SCAN_H

#include "io/io.h"
#include "record/batch.h"

enum { PB_SCAN_SMALL_BYTES = 4096, PB_SCAN_LARGE_BYTES = 1 << 20 };

typedef struct pb_segment pb_segment;

typedef struct pb_scan {
    pb_io *io;
    int file;
    int direct;          /* the same one past the page cache; -1: there is none */
    pb_segment *segment; /* whose file it is, when some of it may lie in a ring; else NULL */
    int64_t limit;       /* where the file's batches end at the latest */
    uint8_t *buffer;     /* the caller's */
    size_t capacity;     /* at least PB_BATCH_HEADER_BYTES */
    int64_t position;    /* of the buffer's first byte */
    size_t length;       /* bytes in the buffer */
} pb_scan;

static inline void pb_scan_init(pb_scan *scan, pb_io *io, int file, int64_t limit, uint8_t *buffer, size_t capacity)
{
    *scan = (pb_scan){.io = io, .file = file, .direct = -1, .limit = limit, .buffer = buffer, .capacity = capacity};
}

/* From now on what is not in memory is read past the page cache: to fill pages that nobody will ask for costs more than
 * the reading. `direct` is the file, opened with PB_OPEN_DIRECT; buffer and capacity are of whole blocks, of which one
 * is for where reads begin. */
void pb_scan_past_cache(pb_scan *scan, int direct);

/* The bytes of a segment, wherever they are; `file` is its. The caller holds a reference. */
void pb_scan_init_segment(pb_scan *scan, pb_segment *segment, int file, int64_t limit, uint8_t *buffer,
                          size_t capacity);

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

/*
 * An index gave *position as a place to begin at for `offset`: does a batch of [least_offset, offset] begin there? Else
 * the index lies, and *position becomes 0. 0 or -errno.
 */
int pb_scan_trust(pb_scan *scan, int64_t least_offset, int64_t offset, int64_t *position);

/* Which batches a search takes for what followed the damage. */
typedef struct pb_scan_range {
    int64_t least_offset; /* of their first record */
    int64_t most_offset;  /* of their last record */
    int64_t most_bytes;   /* how far to look */
} pb_scan_range;
/*
 * The first intact batch of magic 2 behind the bad one at `bad`: where the bad one's length leads to, or else at any
 * byte. 0 with *position and *header, header->size_bytes = 0 when there is none; -errno. Bytes that only look like
 * headers may cost CRCs over a few times the searched length before the search gives up.
 */
int pb_scan_skip(pb_scan *scan, int64_t bad, const pb_scan_range *range, int64_t *position, pb_batch_header *header);

#endif
