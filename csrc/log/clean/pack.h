/*
 * Batches on their way into the cleaned segment, in the order in which they come. Batches that keep only some of their
 * records are compressed anew, which is most of the cleaner's work. This goes by the chunk, each on a thread of its
 * own, while the owner, one thread, looks at the next batches. Memory: two chunks, each of PB_CLEAN_CHUNK_BYTES or one
 * larger batch, and what is made of it.
 */
#ifndef PB_LOG_CLEAN_PACK_H
#define PB_LOG_CLEAN_PACK_H

#include "log/clean/filter.h"
#include "log/clean/output.h"

enum { PB_CLEAN_CHUNKS = 2, PB_CLEAN_CHUNK_BATCHES = 128, PB_CLEAN_CHUNK_BYTES = 512 << 10 };

/* The codec for a batch that is made anew. */
typedef struct pb_clean_codec {
    int compression; /* -1: as the batch has it */
    int level;
} pb_clean_codec;

typedef struct pb_clean_chunk {
    const pb_clean_codec *how;
    pb_codec *codec;
    pb_clean_outcome batches[PB_CLEAN_CHUNK_BATCHES];
    uint32_t count;
    pb_clean_bytes taken; /* their bytes as they came, one behind the other */
    size_t taken_bytes;
    pb_clean_bytes made; /* whole batches, one behind the other */
    size_t made_bytes;
    pb_thread *thread; /* NULL: none is at it */
    bool is_made;
    int result;
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
/* Take what the filter made of a batch; it goes to the output now or later. -errno of this one's or an earlier one's.
 */
int pb_clean_packer_add(pb_clean_packer *packer, pb_clean_output *output, const pb_clean_outcome *outcome);
/* All that was taken goes to the output. */
int pb_clean_packer_drain(pb_clean_packer *packer, pb_clean_output *output);
/* Forget what has not gone to the output. */
void pb_clean_packer_abandon(pb_clean_packer *packer);

/* Make the batch that `outcome` wants of its records, at `position` in `to`. *length: of the batch. 0 or -ENOMEM. */
int pb_clean_pack(pb_codec *codec, const pb_clean_codec *how, const pb_clean_outcome *outcome, pb_clean_bytes *to,
                  size_t position, size_t *length);

#endif
