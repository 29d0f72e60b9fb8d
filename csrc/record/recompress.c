/* Recompression: a pipe from one codec to another through the codec's window. See recompress.h for threads and
 * failures. */
#include "record/recompress.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/kafka_error.h"

/* The records of `batch`, decompressed, into the compression that has begun. */
static int pipe_records(pb_codec *codec, const uint8_t *batch, const pb_batch_header *header, pb_failure *failure)
{
    const uint8_t *records = batch + PB_BATCH_HEADER_BYTES;
    size_t length = header->size_bytes - PB_BATCH_HEADER_BYTES;
    int source = pb_batch_compression(header);
    if (source == PB_COMPRESSION_NONE)
        return pb_compress_add(codec, records, length, failure);
    int error = pb_decompress_begin(codec, source, records, length, failure);
    while (error == 0) {
        const uint8_t *piece = NULL;
        size_t piece_length = 0;
        error = pb_decompress_next(codec, 0, &piece, &piece_length, failure);
        if (error != 0 || piece_length == 0)
            break;
        error = pb_compress_add(codec, piece, piece_length, failure);
    }
    return error;
}

static int grow(pb_recompressed *out, size_t capacity, pb_failure *failure)
{
    uint8_t *data = out->capacity < capacity ? realloc(out->data, capacity) : out->data;
    if (data == NULL)
        return pb_fail(failure, -ENOMEM, "no memory to change the compression");
    out->data = data;
    out->capacity = out->capacity < capacity ? capacity : out->capacity;
    return 0;
}

/* One try with the room there is: -ENOSPC when it does not do. */
static int rewrite(pb_codec *codec, const uint8_t *batch, const pb_batch_header *header, int target, int level,
                   pb_recompressed *out, size_t *records_length, pb_failure *failure)
{
    int error = pb_compress_begin(codec, target, level, out->data + PB_BATCH_HEADER_BYTES,
                                  out->capacity - PB_BATCH_HEADER_BYTES, failure);
    if (error == 0)
        error = pipe_records(codec, batch, header, failure);
    return error == 0 ? pb_compress_finish(codec, records_length, failure) : error;
}

int pb_recompress(pb_codec *codec, const uint8_t *batch, size_t length, int target, int level,
                  int32_t max_message_bytes, pb_recompressed *out, pb_failure *failure)
{
    enum { GROWTH = 4 };
    pb_batch_header header;
    int error = pb_batch_parse(batch, length, &header);
    PB_ASSERT(error == 0 && header.size_bytes >= PB_BATCH_HEADER_BYTES && header.magic == PB_BATCH_MAGIC);
    size_t most = PB_BATCH_HEADER_BYTES + (size_t)max_message_bytes + PB_COMPRESS_SLACK_BYTES;
    size_t capacity = 2 * (size_t)header.size_bytes + PB_COMPRESS_SLACK_BYTES;
    size_t records_length = 0;
    do {
        capacity = capacity < most ? capacity : most;
        error = grow(out, capacity, failure);
        if (error == 0)
            error = rewrite(codec, batch, &header, target, level, out, &records_length, failure);
        capacity = out->capacity * GROWTH;
    } while (error == -ENOSPC && out->capacity < most);
    if (error != 0 && error != -ENOSPC)
        return error;
    if (error == -ENOSPC || PB_BATCH_HEADER_BYTES + records_length > (size_t)max_message_bytes)
        return pb_fail(failure, PB_MESSAGE_TOO_LARGE,
                       "the record batch, rewritten with compression.type %s, has more than the %d bytes that "
                       "max.message.bytes allows",
                       pb_compression_name(target), max_message_bytes);
    header.size_bytes = (uint32_t)(PB_BATCH_HEADER_BYTES + records_length);
    header.attributes =
        (uint16_t)((header.attributes & PB_BATCH_KNOWN_ATTRIBUTES & ~PB_BATCH_COMPRESSION_MASK) | (unsigned)target);
    pb_batch_write(out->data, &header);
    out->size_bytes = header.size_bytes;
    return 0;
}

void pb_recompressed_trim(pb_recompressed *out, size_t keep_bytes)
{
    if (out->capacity <= keep_bytes)
        return;
    free(out->data);
    *out = (pb_recompressed){0};
}
