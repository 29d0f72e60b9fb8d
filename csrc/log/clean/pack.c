/* Packing batches; see pack.h. A chunk is the owner's, or its thread's from start to finish. */
#include "log/clean/pack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* ---- a batch ---- */

/* Compress the records behind a header to be. -ENOSPC: it takes more than `limit` bytes. */
static int compress(pb_codec *codec, const pb_clean_codec *how, const pb_clean_outcome *outcome, size_t limit,
                    pb_clean_bytes *to, size_t position, size_t *length)
{
    size_t room = PB_BATCH_HEADER_BYTES + limit + PB_COMPRESS_SLACK_BYTES;
    int rc = pb_clean_reserve(to, position + room);
    if (rc == 0)
        rc = pb_compress(codec, how->compression, how->level, outcome->bytes, outcome->length,
                         to->data + position + PB_BATCH_HEADER_BYTES, room - PB_BATCH_HEADER_BYTES, length, NULL);
    return rc == 0 && *length > limit ? -ENOSPC : rc;
}

int pb_clean_pack(pb_codec *codec, const pb_clean_codec *how, const pb_clean_outcome *outcome, pb_clean_bytes *to,
                  size_t position, size_t *length)
{
    PB_ASSERT(outcome->packs && position <= to->capacity);
    pb_batch_header made = outcome->header;
    int own = pb_batch_compression(&made);
    const pb_clean_codec as_before = {own, pb_compression_default_level(own)};
    size_t enough = outcome->length * 2 + PB_COMPRESS_SLACK_BYTES;
    /* Markers are not compressed. */
    bool other = how->compression >= 0 && how->compression != own && !pb_batch_is_control(&made);
    const pb_clean_codec *chosen = other || how->compression == own ? how : &as_before;
    size_t packed;
    /* A codec that would make the batch larger than it was is no reason to let the log grow. */
    int rc = compress(codec, chosen, outcome, other ? made.size_bytes : enough, to, position, &packed);
    if (rc == -ENOSPC && other) {
        chosen = &as_before;
        rc = compress(codec, chosen, outcome, enough, to, position, &packed);
    }
    if (rc != 0)
        return rc;
    made.size_bytes = (uint32_t)(PB_BATCH_HEADER_BYTES + packed);
    made.attributes = (uint16_t)((made.attributes & PB_BATCH_KNOWN_ATTRIBUTES & ~PB_BATCH_COMPRESSION_MASK) |
                                 (unsigned)chosen->compression);
    pb_batch_write(to->data + position, &made);
    *length = made.size_bytes;
    return 0;
}

/* ---- a chunk ---- */

static int make_batch(pb_clean_chunk *chunk, pb_clean_outcome *batch)
{
    size_t length = batch->length;
    int rc;
    if (batch->packs) {
        rc = pb_clean_pack(chunk->codec, chunk->how, batch, &chunk->made, chunk->made_bytes, &length);
    } else {
        rc = pb_clean_reserve(&chunk->made, chunk->made_bytes + length);
        if (rc == 0)
            memcpy(chunk->made.data + chunk->made_bytes, batch->bytes, length);
    }
    batch->length = length;
    chunk->made_bytes += rc == 0 ? length : 0;
    return rc;
}

static enum pb_step make_batches(void *context)
{
    pb_clean_chunk *chunk = context;
    const uint8_t *at = chunk->taken.data;
    chunk->result = 0;
    for (uint32_t i = 0; i < chunk->count && chunk->result == 0; i++) {
        pb_clean_outcome *batch = &chunk->batches[i];
        batch->bytes = at; /* where it lies is known now that nothing more comes */
        at += batch->length;
        chunk->result = make_batch(chunk, batch);
    }
    return PB_STEP_END;
}

static void start(pb_clean_chunk *chunk, pb_io *io)
{
    PB_ASSERT(chunk->thread == NULL && !chunk->is_made);
    chunk->is_made = true;
    /* It is as nice to others as the caller. */
    if (io->ops->thread_start(io, "clean-pack", PB_RANK_USUAL, make_batches, chunk, &chunk->thread) != 0) {
        chunk->thread = NULL;
        (void)make_batches(chunk);
    }
}

static void wait_for(pb_clean_chunk *chunk, pb_io *io)
{
    if (chunk->thread != NULL)
        io->ops->thread_join(chunk->thread);
    chunk->thread = NULL;
}

static void empty(pb_clean_chunk *chunk)
{
    chunk->count = 0;
    chunk->taken_bytes = chunk->made_bytes = 0;
    chunk->is_made = false;
}

/* Its batches go to the output; it is empty then. */
static int hand_over(pb_clean_chunk *chunk, pb_io *io, pb_clean_output *output)
{
    wait_for(chunk, io);
    PB_ASSERT(chunk->count == 0 || chunk->is_made);
    int rc = chunk->count > 0 ? chunk->result : 0;
    const uint8_t *at = chunk->made.data;
    for (uint32_t i = 0; i < chunk->count && rc == 0; i++) {
        const pb_clean_outcome *batch = &chunk->batches[i];
        if (batch->length > 0)
            rc = pb_clean_output_add(output, at, batch->length, &batch->header, batch->header.max_timestamp);
        if (rc == 0 && batch->aborted.last_offset >= 0)
            rc = pb_transaction_index_push(output->segment, &batch->aborted);
        at += batch->length;
    }
    empty(chunk);
    return rc;
}

static bool is_full(const pb_clean_chunk *chunk)
{
    return chunk->count == PB_CLEAN_CHUNK_BATCHES || chunk->taken_bytes >= PB_CLEAN_CHUNK_BYTES;
}

static int take(pb_clean_chunk *chunk, const pb_clean_outcome *outcome)
{
    int rc = pb_clean_reserve(&chunk->taken, chunk->taken_bytes + outcome->length);
    if (rc != 0)
        return rc;
    if (outcome->length > 0)
        memcpy(chunk->taken.data + chunk->taken_bytes, outcome->bytes, outcome->length);
    chunk->batches[chunk->count++] = *outcome;
    chunk->taken_bytes += outcome->length;
    return 0;
}

/* ---- the packer ---- */

int pb_clean_packer_init(pb_clean_packer *packer, pb_io *io)
{
    *packer = (pb_clean_packer){.io = io, .how = {.compression = -1}};
    int rc = 0;
    for (uint32_t i = 0; i < PB_CLEAN_CHUNKS && rc == 0; i++) {
        packer->chunks[i].how = &packer->how;
        rc = pb_codec_create(&packer->chunks[i].codec);
    }
    return rc;
}

void pb_clean_packer_clear(pb_clean_packer *packer)
{
    pb_clean_packer_abandon(packer);
    for (uint32_t i = 0; i < PB_CLEAN_CHUNKS; i++) {
        free(packer->chunks[i].taken.data);
        free(packer->chunks[i].made.data);
        pb_codec_destroy(packer->chunks[i].codec);
    }
    *packer = (pb_clean_packer){.filling = 0};
}

int pb_clean_packer_add(pb_clean_packer *packer, pb_clean_output *output, const pb_clean_outcome *outcome)
{
    if (outcome->length == 0 && outcome->aborted.last_offset < 0)
        return 0;
    pb_clean_chunk *chunk = &packer->chunks[packer->filling];
    int rc = take(chunk, outcome);
    if (rc != 0 || !is_full(chunk))
        return rc;
    start(chunk, packer->io);
    packer->filling = (packer->filling + 1) % PB_CLEAN_CHUNKS;
    return hand_over(&packer->chunks[packer->filling], packer->io, output);
}

int pb_clean_packer_drain(pb_clean_packer *packer, pb_clean_output *output)
{
    pb_clean_chunk *last = &packer->chunks[packer->filling];
    if (last->count > 0)
        start(last, packer->io);
    int rc = 0;
    for (uint32_t i = 1; i <= PB_CLEAN_CHUNKS && rc == 0; i++)
        rc = hand_over(&packer->chunks[(packer->filling + i) % PB_CLEAN_CHUNKS], packer->io, output);
    return rc;
}

void pb_clean_packer_abandon(pb_clean_packer *packer)
{
    for (uint32_t i = 0; i < PB_CLEAN_CHUNKS; i++) {
        if (packer->io != NULL)
            wait_for(&packer->chunks[i], packer->io);
        empty(&packer->chunks[i]);
    }
}
