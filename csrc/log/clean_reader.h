/*
 * Batches of one segment's file in large reads, each handed out whole and checked. One thread; the file is sealed.
 */
#ifndef PB_LOG_CLEAN_READER_H
#define PB_LOG_CLEAN_READER_H

#include "base/error.h"
#include "io/io.h"
#include "record/batch.h"

typedef struct pb_clean_reader {
    pb_io *io;
    int file;
    int64_t limit;    /* the segment's size */
    int64_t position; /* in the file, of what comes next */
    bool drops;       /* forget pages that have been read */
    uint8_t *buffer;  /* kept from segment to segment */
    size_t capacity;
    size_t block_bytes; /* a usual read */
    size_t start;       /* what comes next begins here in the buffer */
    size_t length;      /* bytes in the buffer */
    int64_t read_bytes; /* in all */
} pb_clean_reader;

/* 0 or -ENOMEM. */
int pb_clean_reader_init(pb_clean_reader *reader, pb_io *io, size_t block_bytes);
void pb_clean_reader_clear(pb_clean_reader *reader);
/* Go on in another file, at a batch. */
void pb_clean_reader_begin(pb_clean_reader *reader, int file, int64_t position, int64_t limit, bool drops);
/* The next batch, valid until the next call; *batch is NULL at the end. CORRUPT_MESSAGE when there is no whole batch,
 * UNSUPPORTED_FOR_MESSAGE_FORMAT for one older than magic 2, -errno. */
int pb_clean_reader_next(pb_clean_reader *reader, const uint8_t **batch, pb_batch_header *header, pb_failure *failure);

#endif
