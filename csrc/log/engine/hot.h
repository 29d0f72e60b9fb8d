/*
 * A hot log: the append engine `direct`. Appended batches go into a ring of memory on tmpfs, which survives the
 * process, and from there into the segment's file past the page cache, in large writes.
 *
 *     COLD -> HOT   pb_log_heat: the ring begins at the last whole block of the active segment
 *     HOT -> HOT    at a roll: pb_log_write_unblock empties the ring into the old segment, and begins the new one. The
 *                   writer waits meanwhile, so less is taken into the ring before, and the new file is made ahead
 *     HOT -> COLD   pb_log_cool, or whoever has the log to himself: empties the ring, cuts the file to its length
 *
 * A cold log is written through the page cache. A change needs the write token, or is made for the writer that holds it
 * and waits. The ring is emptied ("flushed") by one thread at a time, `flush_lock`, in blocks. A last block that is not
 * full is written with zeros behind its end and once more later. So writes in flight never share a block. The file may
 * be longer than the segment meanwhile. It has its blocks before bytes are taken into the ring, so that acknowledged
 * batches find room on the disk.
 *
 * A durable write into blocks that were never written has to wait for the journal, which costs most writes more than
 * they do themselves. So logs with durable acks get zeros written ahead (hot_zeros.c). A durable write into them waits
 * for nothing but the disk, and may be a reactor's own (hot_round.c). Where what is flushed at once is huge, writing
 * all of it twice would cost more.
 *
 * A flush that fails leaves the log failed. The bytes that the ring has and the file has not are safe until the machine
 * stops, and are written when the log is opened again.
 */
#ifndef PB_LOG_ENGINE_HOT_H
#define PB_LOG_ENGINE_HOT_H

#include "log/engine/tail_ring.h"
#include "log/log.h"

#define PB_LARGE_ROUND_BYTES (128 << 10) /* durable flushes of so many bytes, on average, are large, */
#define PB_HUGE_ROUND_BYTES (384 << 10)  /* and of so many go faster without zeros */

/* The additional state of a hot log. Owner: the log. */
typedef struct pb_hot {
    pb_tail_ring *ring;
    pb_segment *segment;     /* retained; the active one, or the one that is about to be */
    int file;                /* of the segment, past the page cache */
    _Atomic uint64_t device; /* its file_flush_device */
    /* Under flush_lock. */
    int64_t flushed_end;           /* the file has all below */
    bool unsynced;                 /* and some of it is not durable */
    int64_t zeroing_position;      /* from here on zeros are being written, and nothing else; -1: they are not */
    int64_t zeroing_bytes;         /* so many */
    atomic_bool zeros_awaited;     /* by somebody who cannot go on before they are written; read anywhere */
    int64_t zeroed_position;       /* the blocks from here up to zeroed_end are written, if only with zeros */
    _Atomic int64_t reserve_bytes; /* so much of the disk stays free of blocks ahead of need */
    _Atomic int64_t bound;         /* the segment ends at or before it, rounded up to a block */
    _Atomic int64_t allocated_end; /* the file has blocks up to here, */
    _Atomic int64_t zeroed_end;
    _Atomic int64_t round_bytes; /* of a durable flush, on average */
    /* The last block of a sync under way that is a write. */
    _Alignas(PB_DIRECT_BLOCK_BYTES) uint8_t last_block[PB_DIRECT_BLOCK_BYTES];
} pb_hot;

/* Empty the ring, cut the file, give the ring back. The caller holds the write token. After a failure the log has
 * failed, and keeps the ring until it is closed. Nothing to do for a cold log. */
int pb_log_cool_held(pb_log *log, const pb_log_guard *guard, pb_failure *failure);
/* Make what the ring has of this segment durable. *done: it was hot, and nothing else of it needs a sync. */
int pb_log_flush_durable(pb_log *log, const pb_log_guard *guard, const pb_segment *segment, bool *done);
/* Points `iov`, of two entries, to the bytes of a write of the ring from `start`, where a block begins, up to `end`.
 * These are whole blocks; the last of them is in `last_block` when it is not full. Gives how many are used, and their
 * bytes in *length. */
int pb_hot_gather(const pb_hot *hot, int64_t start, int64_t end, uint8_t *last_block, struct iovec *iov,
                  int64_t *length);
/* The file has all below `end`. For the thread that flushes. */
void pb_hot_flushed(pb_hot *hot, int64_t end, bool durable);
/* A durable flush up to `end` begins. */
void pb_hot_count_round(pb_hot *hot, int64_t end);
/* Is there room for the write of a hot log's writer? [writer] */
bool pb_hot_has_room(const pb_hot *hot, const pb_log_write *write);
/* The hot log's state with flush_lock held, and the ring's end, below which nobody writes zeros; NULL, and not held: it
 * is cold. While this waits, others may cool the log, or go over to the next segment. */
pb_hot *pb_hot_begin_flush(pb_log *log, const pb_log_guard *guard, int64_t *end);
/* Let go of flush_lock; after an error the log has failed. Gives `rc`. */
int pb_hot_end_flush(pb_log *log, const pb_log_guard *guard, int rc);
/* Blocks up to `end`, at least. Under flush_lock. */
int pb_hot_allocate_to(const pb_log *log, pb_hot *hot, int64_t end);
/* Let go of the ring at the end of the log: what is in it and not in the file stays in its store. [quiet] */
void pb_log_abandon_ring(pb_log *log);

#endif
