/*
 * Reads a block of a segment's file while its owner, one thread, works on those before. It does so on a thread of its
 * own, which also bears the cost of the copy out of the page cache. Blocks that are not in memory are read past the
 * page cache, where they would push out what consumers read. The file is sealed.
 */
#ifndef PB_LOG_CLEAN_AHEAD_H
#define PB_LOG_CLEAN_AHEAD_H

#include "io/io.h"

typedef struct pb_clean_file {
    pb_io *io;
    int file;
    int direct; /* the same file, past the page cache; -1: the file system cannot */
    bool drops; /* forget pages that have been read */
} pb_clean_file;

typedef struct pb_clean_ahead {
    const pb_clean_file *file;
    uint8_t *buffer; /* where the block goes, a whole number of PB_DIRECT_BLOCK_BYTES, and so is its address */
    int64_t position;
    size_t length;
    pb_thread *thread; /* NULL: no read is under way */
    int result;
} pb_clean_ahead;

/* Begin to read `length` bytes at `position`, a multiple of PB_DIRECT_BLOCK_BYTES; the file has them. No other read of
 * this block is under way. */
void pb_clean_ahead_start(pb_clean_ahead *ahead, int64_t position, size_t length);
/* Wait for the read that was begun last: 0, -ENODATA or -errno. */
int pb_clean_ahead_finish(pb_clean_ahead *ahead);

#endif
