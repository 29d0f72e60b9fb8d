/* Recompression: a pipe from one codec to another through the codec's window. See recompress.h for threads and
 * failures. */
#include "record/recompress.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/kafka_error.h"

static int grow(pb_recompressed *out, size_t capacity, pb_failure *failure)
{
    uint8_t *data = out->capacity < capacity ? realloc(out->data, capacity) : out->data;
    if (data == NULL)
        return pb_fail(failure, -ENOMEM, "no memory to change the compression");
    out->data = data;
    out->capacity = out->capacity < capacity ? capacity : out->capacity;
    return 0;
}

/* Begin a try with as much room as the last one has not shown to be too little. */
static int open_try(pb_recompression *r, pb_failure *failure)
{
    size_t most = PB_BATCH_HEADER_BYTES + (size_t)r->max_message_bytes + PB_COMPRESS_SLACK_BYTES;
    int error = grow(r->out, r->capacity < most ? r->capacity : most, failure);
    if (error == 0)
        error = pb_compress_begin(r->codec, r->target, r->level, r->out->data + PB_BATCH_HEADER_BYTES,
                                  r->out->capacity - PB_BATCH_HEADER_BYTES, failure);
    int source = pb_batch_compression(&r->header);
    if (error == 0 && source != PB_COMPRESSION_NONE)
        error = pb_decompress_begin(r->codec, source, r->batch + PB_BATCH_HEADER_BYTES,
                                    r->header.size_bytes - PB_BATCH_HEADER_BYTES, failure);
    r->taken_bytes = 0;
    r->open = error == 0;
    return error;
}

/* The next piece of the records; a length of 0 behind the last. */
static int next_piece(pb_recompression *r, const uint8_t **piece, size_t *length, pb_failure *failure)
{
    if (pb_batch_compression(&r->header) != PB_COMPRESSION_NONE)
        return pb_decompress_next(r->codec, 0, piece, length, failure);
    size_t left = r->header.size_bytes - PB_BATCH_HEADER_BYTES - r->taken_bytes;
    *piece = r->batch + PB_BATCH_HEADER_BYTES + r->taken_bytes;
    *length = left < PB_CODEC_WINDOW_BYTES ? left : PB_CODEC_WINDOW_BYTES;
    r->taken_bytes += *length;
    return 0;
}

/* The records into the compression that has begun, as far as this step goes. */
static int pipe_records(pb_recompression *r, pb_failure *failure)
{
    while (r->budget_bytes >= 0) {
        const uint8_t *piece = NULL;
        size_t length = 0;
        int error = next_piece(r, &piece, &length, failure);
        if (error != 0 || length == 0)
            return error;
        r->budget_bytes -= (int64_t)length;
        error = pb_compress_add(r->codec, piece, length, failure);
        if (error != 0)
            return error;
    }
    return -EAGAIN;
}

static int too_large(const pb_recompression *r, pb_failure *failure)
{
    return pb_fail(failure, PB_MESSAGE_TOO_LARGE,
                   "the record batch, rewritten with compression.type %s, has more than the %d bytes that "
                   "max.message.bytes allows",
                   pb_compression_name(r->target), r->max_message_bytes);
}

/* The records are in place: the header before them. */
static int write_header(pb_recompression *r, size_t records_length, pb_failure *failure)
{
    pb_batch_header *header = &r->header;
    if (PB_BATCH_HEADER_BYTES + records_length > (size_t)r->max_message_bytes)
        return too_large(r, failure);
    header->size_bytes = (uint32_t)(PB_BATCH_HEADER_BYTES + records_length);
    header->attributes =
        (uint16_t)((header->attributes & PB_BATCH_KNOWN_ATTRIBUTES & ~PB_BATCH_COMPRESSION_MASK) | (unsigned)r->target);
    pb_batch_write(r->out->data, header);
    r->out->size_bytes = header->size_bytes;
    return 0;
}

void pb_recompress_begin(pb_recompression *recompression, pb_codec *codec, const uint8_t *batch, size_t length,
                         int target, int level, int32_t max_message_bytes, pb_recompressed *out)
{
    *recompression = (pb_recompression){
        .codec = codec,
        .batch = batch,
        .target = target,
        .level = level,
        .max_message_bytes = max_message_bytes,
        .out = out,
    };
    pb_batch_header *header = &recompression->header;
    int error = pb_batch_parse(batch, length, header);
    PB_ASSERT(error == 0 && header->size_bytes >= PB_BATCH_HEADER_BYTES && header->magic == PB_BATCH_MAGIC);
    recompression->capacity = 2 * (size_t)header->size_bytes + PB_COMPRESS_SLACK_BYTES;
}

int pb_recompress_step(pb_recompression *recompression, int64_t bytes, pb_failure *failure)
{
    enum { GROWTH = 4 };
    pb_recompression *r = recompression;
    PB_ASSERT(bytes > 0);
    r->budget_bytes = bytes;
    size_t most = PB_BATCH_HEADER_BYTES + (size_t)r->max_message_bytes + PB_COMPRESS_SLACK_BYTES;
    for (;;) {
        size_t records_length = 0;
        int error = r->open ? 0 : open_try(r, failure);
        if (error == 0)
            error = pipe_records(r, failure);
        if (error == 0)
            error = pb_compress_finish(r->codec, &records_length, failure);
        if (error == 0)
            return write_header(r, records_length, failure);
        if (error != -ENOSPC)
            return error;
        if (r->out->capacity >= most)
            return too_large(r, failure);
        r->capacity = r->out->capacity * GROWTH;
        r->open = false;
    }
}

int pb_recompress(pb_codec *codec, const uint8_t *batch, size_t length, int target, int level,
                  int32_t max_message_bytes, pb_recompressed *out, pb_failure *failure)
{
    pb_recompression recompression;
    pb_recompress_begin(&recompression, codec, batch, length, target, level, max_message_bytes, out);
    return pb_recompress_step(&recompression, INT64_MAX, failure);
}

void pb_recompressed_trim(pb_recompressed *out, size_t keep_bytes)
{
    if (out->capacity <= keep_bytes)
        return;
    free(out->data);
    *out = (pb_recompressed){0};
}
