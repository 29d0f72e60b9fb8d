/*
 * A hot log: the append engine `direct`. Appended batches go into a tail ring, a ring buffer in a file on tmpfs. It
 * survives the process, but not a power cut. From there a thread writes them into the segment's file, past the page
 * cache and in large writes ("flushes" them).
 *
 *     COLD -> HOT   pb_log_heat: the ring begins at the last whole block of the active segment
 *     HOT -> HOT    at a roll: pb_log_write_unblock empties the ring into the old segment, and begins the new one. The
 *                   writer waits meanwhile. To shorten the wait, less is taken into the ring before a roll, and the
 *                   new file is made ahead
 *     HOT -> COLD   pb_log_cool, or a function that has both tokens of the log: empties the ring, and truncates the
 *                   file to the segment's size
 *
 * A cold log is written through the page cache. To heat or cool a log, a thread must hold the write token, or act for
 * the writer that holds the token and waits. One thread at a time flushes, under `flush_lock`, in whole blocks. If the
 * last block is not full, it is written with zeros behind its end, and again later. So writes in flight never share a
 * block. The file may be longer than the segment meanwhile. Disk blocks are allocated before bytes are taken into the
 * ring, so that there is room on the disk for acknowledged batches.
 *
 * A durable write into disk blocks that were never written has to wait for the file system's journal. For most writes
 * that takes longer than the write itself. So logs with durable acks get zeros written ahead (hot_zeros.c). A durable
 * write into these blocks waits for the disk alone, and a reactor may start it itself (hot_round.c). Logs with huge
 * flushes get no zeros: to write all bytes twice would cost more.
 *
 * When a flush fails, the log has failed. Bytes that are in the ring but not in the file survive until the machine
 * stops. They are written to the file when the log is opened again.
 */
#ifndef PB_LOG_ENGINE_HOT_H
#define PB_LOG_ENGINE_HOT_H

#include "log/engine/tail_ring.h"
#include "log/log.h"

#define PB_LARGE_ROUND_BYTES (128 << 10) /* durable flushes with this average size or more are large */
#define PB_HUGE_ROUND_BYTES (384 << 10)  /* durable flushes with this average size or more are faster without zeros */

/* The additional state of a hot log. Owner: the log. */
typedef struct pb_hot {
    pb_tail_ring *ring;
    pb_segment *segment;     /* retained; the active one, or the one that is about to be */
    int file;                /* of the segment, past the page cache */
    _Atomic uint64_t device; /* its file_flush_device */
    /* Under flush_lock. */
    int64_t flushed_end;           /* all bytes below are in the file */
    bool unsynced;                 /* some bytes below flushed_end are not durable */
    int64_t zeroing_position;      /* where a write of zeros under way begins; -1: there is none */
    int64_t zeroing_bytes;         /* the length of that write */
    atomic_bool zeros_awaited;     /* a thread cannot go on before these zeros are written; read anywhere */
    int64_t zeroed_position;       /* the blocks from here up to zeroed_end were written, with zeros or data */
    _Atomic int64_t reserve_bytes; /* allocation ahead of need leaves this much of the disk free */
    _Atomic int64_t bound;         /* the segment ends at or before it, rounded up to a block */
    _Atomic int64_t allocated_end; /* the file has disk blocks up to here */
    _Atomic int64_t zeroed_end;
    _Atomic int64_t round_bytes; /* of a durable flush, on average */
    /* The last block of a sync under way that is a write. */
    _Alignas(PB_DIRECT_BLOCK_BYTES) uint8_t last_block[PB_DIRECT_BLOCK_BYTES];
} pb_hot;

/* Cool the log: empty the ring, truncate the file to the segment's size, give the ring back. The caller holds the write
 * token. After a failure the log has failed, and keeps the ring until it is closed. Does nothing for a cold log. */
int pb_log_cool_held(pb_log *log, const pb_log_guard *guard, pb_failure *failure);
/* Make this segment's bytes in the ring durable. *done: the segment was hot, and nothing else of it needs a sync. */
int pb_log_flush_durable(pb_log *log, const pb_log_guard *guard, const pb_segment *segment, bool *done);
/* Prepare a write of the ring's bytes from `start`, which is the beginning of a block, up to `end`. Points `iov`, of
 * two entries, to whole blocks; a last block that is not full is copied to `last_block`. Returns how many entries are
 * used, and their bytes in *length. */
int pb_hot_gather(const pb_hot *hot, int64_t start, int64_t end, uint8_t *last_block, struct iovec *iov,
                  int64_t *length);
/* Note that all bytes below `end` are in the file. Called by the thread that flushes. */
void pb_hot_flushed(pb_hot *hot, int64_t end, bool durable);
/* Count a durable flush up to `end`, which begins, in `round_bytes`. */
void pb_hot_count_round(pb_hot *hot, int64_t end);
/* Has the ring room for this write? [writer] */
bool pb_hot_has_room(const pb_hot *hot, const pb_log_write *write);
/* Take flush_lock. Returns the state of the hot log, and in *end the ring's end, below which nobody writes zeros then.
 * If the log is cold, returns NULL without the lock. While the call waits, the log may be cooled, or begin its next
 * segment. */
pb_hot *pb_hot_begin_flush(pb_log *log, const pb_log_guard *guard, int64_t *end);
/* Release flush_lock. If `rc` is an error, the log has failed. Returns `rc`. */
int pb_hot_end_flush(pb_log *log, const pb_log_guard *guard, int rc);
/* Allocate disk blocks for the segment's file up to `end`, unless it has them. Under flush_lock. 0 or -errno. */
int pb_hot_allocate_to(const pb_log *log, pb_hot *hot, int64_t end);
/* Release the ring when the log is closed. The ring's file keeps bytes that are not in the segment's file. [quiet] */
void pb_log_abandon_ring(pb_log *log);

#endif
