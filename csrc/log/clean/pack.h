/*
 * The packer moves kept batches to the cleaned segment, in order. A batch that keeps only some of its records is
 * compressed again, which is most of the cleaner's work. So the packer gathers batches in chunks, and a thread for each
 * full chunk compresses them. Meanwhile the cleaner's thread, the owner, filters the next batches.
 *
 * Memory: two chunks, each with its batches before and after packing. A chunk takes PB_CLEAN_CHUNK_BYTES, or one larger
 * batch.
 */
#ifndef PB_LOG_CLEAN_PACK_H
#define PB_LOG_CLEAN_PACK_H

#include "log/clean/filter.h"
#include "log/clean/output.h"

enum { PB_CLEAN_CHUNKS = 2, PB_CLEAN_CHUNK_BATCHES = 128, PB_CLEAN_CHUNK_BYTES = 512 << 10 };

/* The codec for batches that are compressed again. */
typedef struct pb_clean_codec {
    int compression; /* -1: the codec that the batch has */
    int level;
} pb_clean_codec;

typedef struct pb_clean_chunk {
    const pb_clean_codec *how;
    pb_codec *codec;
    pb_clean_outcome batches[PB_CLEAN_CHUNK_BATCHES];
    uint32_t count;
    pb_clean_bytes taken; /* the bytes of `batches` from the filter, one behind the other */
    size_t taken_bytes;
    pb_clean_bytes made; /* the packed batches, one behind the other */
    size_t made_bytes;
    pb_thread *thread; /* packs this chunk; NULL: none */
    bool is_made;      /* packing has begun */
    int result;        /* of packing: 0 or -errno */
} pb_clean_chunk;

typedef struct pb_clean_packer {
    pb_io *io;
    pb_clean_codec how; /* set by the owner */
    pb_clean_chunk chunks[PB_CLEAN_CHUNKS];
    uint32_t filling;
} pb_clean_packer;

/* 0 or -ENOMEM. */
int pb_clean_packer_init(pb_clean_packer *packer, pb_io *io);
void pb_clean_packer_clear(pb_clean_packer *packer);
/* Take a batch from the filter. It goes to the output now or later. 0, or -errno of this batch or an earlier one. */
int pb_clean_packer_add(pb_clean_packer *packer, pb_clean_output *output, const pb_clean_outcome *outcome);
/* Write all batches that were taken to the output. 0 or -errno. */
int pb_clean_packer_drain(pb_clean_packer *packer, pb_clean_output *output);
/* Forget the batches that are not in the output yet. */
void pb_clean_packer_abandon(pb_clean_packer *packer);

/* Compress the kept records of `outcome` into a batch at `position` in `to`. *length is the length of that batch. 0 or
 * -errno. */
int pb_clean_pack(pb_codec *codec, const pb_clean_codec *how, const pb_clean_outcome *outcome, pb_clean_bytes *to,
                  size_t position, size_t *length);

#endif
