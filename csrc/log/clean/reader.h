/*
 * Batches of one segment's file in large reads, each handed out whole and checked. One thread; the file is sealed.
 *
 * While the batches of one block are worked on, the next blocks are being read: two, so that the disk has the next
 * request when it has done one.
 */
#ifndef PB_LOG_CLEAN_READER_H
#define PB_LOG_CLEAN_READER_H

#include "base/error.h"
#include "io/io.h"
#include "log/clean/ahead.h"
#include "record/batch.h"

#define PB_CLEAN_BLOCKS 3

typedef struct pb_clean_reader {
    pb_clean_file file;
    int64_t limit;          /* the segment's size */
    int64_t position;       /* in the file, of what comes next */
    int64_t asked_position; /* behind the last block that was asked for */
    size_t block_bytes;
    pb_clean_ahead blocks[PB_CLEAN_BLOCKS]; /* kept from segment to segment */
    uint32_t current;                       /* whose bytes come next; those behind it in the ring come then */
    uint8_t *gathered;                      /* memory for a batch that lies in several blocks */
    size_t gathered_room;
    size_t gathered_bytes; /* of what comes next; they have been taken from the blocks */
    int64_t read_bytes;    /* in all */
} pb_clean_reader;

/* Blocks of `block_bytes`, rounded up to PB_DIRECT_BLOCK_BYTES. 0 or -ENOMEM. */
int pb_clean_reader_init(pb_clean_reader *reader, pb_io *io, size_t block_bytes);
void pb_clean_reader_clear(pb_clean_reader *reader);
/* Go on in another file, at a batch; `direct` is the same file past the page cache, or < 0, and is the reader's now.
 * With `drops` pages that were in memory are forgotten. */
void pb_clean_reader_begin(pb_clean_reader *reader, int file, int direct, int64_t position, int64_t limit, bool drops);
/* The next batch, valid until the next call; *batch is NULL at the end. CORRUPT_MESSAGE when there is no whole batch,
 * UNSUPPORTED_FOR_MESSAGE_FORMAT for one older than magic 2, -errno. */
int pb_clean_reader_next(pb_clean_reader *reader, const uint8_t **batch, pb_batch_header *header, pb_failure *failure);

#endif
