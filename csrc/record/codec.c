/*
 * Compression codecs: the parts that do not depend on the codec. One pb_codec belongs to one thread; it owns its window
 * and library contexts. Fails on memory, and on input that is not what it says.
 */
#include "record/codec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/kafka_error.h"
#include "record/codec_impl.h"

enum {
    WINDOW_KEPT_BYTES = 2 * 1024 * 1024, /* a larger window is given back when the next decompression begins */
};

static int none_decompress_begin(pb_codec *codec, pb_failure *failure)
{
    (void)codec;
    (void)failure;
    return 0;
}

static int none_decompress_room(pb_codec *codec, size_t *room, pb_failure *failure)
{
    (void)codec;
    (void)failure;
    *room = PB_CODEC_WINDOW_BYTES / 2;
    return 0;
}

static int none_decompress_step(pb_codec *codec, uint8_t *destination, size_t capacity, size_t *produced,
                                pb_failure *failure)
{
    (void)failure;
    *produced = codec->input_length < capacity ? codec->input_length : capacity;
    memcpy(destination, codec->input, *produced);
    codec->input += *produced;
    codec->input_length -= *produced;
    codec->finished = codec->input_length == 0;
    return 0;
}

static int none_compress_begin(pb_codec *codec, int level, pb_failure *failure)
{
    (void)codec;
    (void)level;
    (void)failure;
    return 0;
}

static int none_compress_add(pb_codec *codec, const uint8_t *data, size_t length, pb_failure *failure)
{
    if (codec->output_capacity - codec->output_length < length)
        return pb_fail(failure, -ENOSPC, "no room for the decompressed batch");
    memcpy(codec->output + codec->output_length, data, length);
    codec->output_length += length;
    return 0;
}

static int none_compress_finish(pb_codec *codec, pb_failure *failure)
{
    (void)codec;
    (void)failure;
    return 0;
}

static const pb_codec_ops codec_none = {
    .name = "none",
    .decompress_begin = none_decompress_begin,
    .decompress_room = none_decompress_room,
    .decompress_step = none_decompress_step,
    .compress_begin = none_compress_begin,
    .compress_add = none_compress_add,
    .compress_finish = none_compress_finish,
};

static const pb_codec_ops *const codecs[PB_COMPRESSION_COUNT] = {
    [PB_COMPRESSION_NONE] = &codec_none,        [PB_COMPRESSION_GZIP] = &pb_codec_gzip,
    [PB_COMPRESSION_SNAPPY] = &pb_codec_snappy, [PB_COMPRESSION_LZ4] = &pb_codec_lz4,
    [PB_COMPRESSION_ZSTD] = &pb_codec_zstd,
};

static const pb_codec_ops *find_codec(int compression)
{
    return compression >= 0 && compression < PB_COMPRESSION_COUNT ? codecs[compression] : NULL;
}

int pb_compression_default_level(int compression)
{
    const pb_codec_ops *ops = find_codec(compression);
    return ops == NULL ? 0 : ops->default_level;
}

const char *pb_compression_name(int compression)
{
    const pb_codec_ops *ops = find_codec(compression);
    return ops == NULL ? NULL : ops->name;
}

int pb_codec_create(pb_codec **out)
{
    *out = calloc(1, sizeof(**out));
    return *out == NULL ? -ENOMEM : 0;
}

void pb_codec_destroy(pb_codec *codec)
{
    if (codec == NULL)
        return;
    pb_codec_gzip_free(codec);
    pb_codec_lz4_free(codec);
    pb_codec_zstd_free(codec);
    free(codec->window);
    free(codec);
}

size_t pb_codec_memory_bytes(const pb_codec *codec)
{
    return sizeof(*codec) + codec->window_capacity + ZSTD_sizeof_DCtx(codec->zstd_reader) +
           ZSTD_sizeof_CCtx(codec->zstd_writer);
}

int pb_decompress_begin(pb_codec *codec, int compression, const void *data, size_t length, pb_failure *failure)
{
    const pb_codec_ops *ops = find_codec(compression);
    if (ops == NULL)
        return pb_fail(failure, PB_UNSUPPORTED_COMPRESSION_TYPE, "compression type %d is not one of Kafka's (0 to 4)",
                       compression);
    if (codec->window_capacity > WINDOW_KEPT_BYTES) {
        free(codec->window);
        codec->window = NULL;
        codec->window_capacity = 0;
    }
    pb_codec_zstd_shrink(codec);
    codec->reading = ops;
    codec->input = data;
    codec->input_length = length;
    codec->finished = false;
    codec->window_length = 0;
    codec->piece_most_bytes = SIZE_MAX;
    return ops->decompress_begin(codec, failure);
}

void pb_decompress_limit_piece(pb_codec *codec, size_t bytes)
{
    PB_ASSERT(codec->reading != NULL && bytes >= PB_CODEC_WINDOW_BYTES);
    codec->piece_most_bytes = bytes;
}

/* Make room behind the first `keep` bytes of the window. */
static int reserve_window(pb_codec *codec, size_t keep, size_t room, pb_failure *failure)
{
    if (codec->window_capacity >= keep && codec->window_capacity - keep >= room)
        return 0;
    size_t capacity = keep + room;
    if (capacity < PB_CODEC_WINDOW_BYTES)
        capacity = PB_CODEC_WINDOW_BYTES;
    uint8_t *window = realloc(codec->window, capacity);
    if (window == NULL)
        return pb_fail(failure, -ENOMEM, "cannot get %zu bytes to decompress a batch", capacity);
    codec->window = window;
    codec->window_capacity = capacity;
    return 0;
}

int pb_decompress_next(pb_codec *codec, size_t keep, const uint8_t **data, size_t *length, pb_failure *failure)
{
    PB_ASSERT(codec->reading != NULL);
    PB_ASSERT(keep <= codec->window_length);
    if (keep > 0 && keep < codec->window_length)
        memmove(codec->window, codec->window + codec->window_length - keep, keep);
    codec->window_length = keep;
    size_t produced = 0;
    while (produced == 0 && !codec->finished) {
        size_t room = 0;
        int error = codec->reading->decompress_room(codec, &room, failure);
        if (error == 0 && room > codec->piece_most_bytes)
            error = pb_fail(failure, -EFBIG, "%zu bytes come out of the batch at once", room);
        if (error == 0)
            error = reserve_window(codec, keep, room, failure);
        if (error == 0)
            error = codec->reading->decompress_step(codec, codec->window + keep, codec->window_capacity - keep,
                                                    &produced, failure);
        if (error != 0)
            return error;
        PB_ASSERT(produced <= codec->window_capacity - keep);
    }
    codec->window_length = keep + produced;
    *data = codec->window;
    *length = codec->window_length;
    return 0;
}

int pb_decompress(pb_codec *codec, int compression, const void *data, size_t length, void *destination, size_t capacity,
                  size_t *out_length, pb_failure *failure)
{
    int error = pb_decompress_begin(codec, compression, data, length, failure);
    size_t used = 0;
    while (error == 0) {
        const uint8_t *piece = NULL;
        size_t piece_length = 0;
        error = pb_decompress_next(codec, 0, &piece, &piece_length, failure);
        if (error != 0 || piece_length == 0)
            break;
        if (piece_length > capacity - used)
            return pb_fail(failure, -ENOSPC, "more than %zu bytes after decompression", capacity);
        memcpy((uint8_t *)destination + used, piece, piece_length);
        used += piece_length;
    }
    *out_length = used;
    return error;
}

int pb_decompress_all(pb_codec *codec, int compression, const void *data, size_t length, size_t limit, uint8_t **memory,
                      size_t *capacity, size_t *out_length, pb_failure *failure)
{
    int error = pb_decompress_begin(codec, compression, data, length, failure);
    size_t used = 0;
    if (error == 0 && codec->reading->decompress_whole != NULL && *capacity > 0) {
        error = codec->reading->decompress_whole(codec, *memory, *capacity < limit ? *capacity : limit, &used, failure);
        if (error == -ENOSPC) /* once more in pieces, with more memory */
            error = pb_decompress_begin(codec, compression, data, length, failure);
    }
    while (error == 0 && !codec->finished) {
        size_t room = 0;
        error = codec->reading->decompress_room(codec, &room, failure);
        if (error == 0 && used + room > *capacity) {
            size_t wanted = used + room > *capacity * 2 ? used + room : *capacity * 2;
            uint8_t *grown = realloc(*memory, wanted);
            if (grown == NULL)
                return pb_fail(failure, -ENOMEM, "cannot get %zu bytes to decompress a batch", wanted);
            *memory = grown;
            *capacity = wanted;
        }
        size_t produced = 0;
        if (error == 0)
            error = codec->reading->decompress_step(codec, *memory + used, *capacity - used, &produced, failure);
        used += produced;
        if (error == 0 && used > limit)
            return pb_fail(failure, -ENOSPC, "more than %zu bytes after decompression", limit);
    }
    *out_length = used;
    return error;
}

int pb_compress_begin(pb_codec *codec, int compression, int level, void *destination, size_t capacity,
                      pb_failure *failure)
{
    const pb_codec_ops *ops = find_codec(compression);
    if (ops == NULL)
        return pb_fail(failure, PB_UNSUPPORTED_COMPRESSION_TYPE, "compression type %d is not one of Kafka's (0 to 4)",
                       compression);
    codec->writing = ops;
    codec->output = destination;
    codec->output_capacity = capacity;
    codec->output_length = 0;
    return ops->compress_begin(codec, level, failure);
}

int pb_compress_add(pb_codec *codec, const void *data, size_t length, pb_failure *failure)
{
    PB_ASSERT(codec->writing != NULL);
    return length == 0 ? 0 : codec->writing->compress_add(codec, data, length, failure);
}

int pb_compress_finish(pb_codec *codec, size_t *out_length, pb_failure *failure)
{
    PB_ASSERT(codec->writing != NULL);
    int error = codec->writing->compress_finish(codec, failure);
    codec->writing = NULL;
    PB_ASSERT(codec->output_length <= codec->output_capacity);
    *out_length = codec->output_length;
    return error;
}

int pb_compress(pb_codec *codec, int compression, int level, const void *data, size_t length, void *destination,
                size_t capacity, size_t *out_length, pb_failure *failure)
{
    int error = pb_compress_begin(codec, compression, level, destination, capacity, failure);
    if (error == 0 && codec->writing->compress_whole != NULL) {
        error = codec->writing->compress_whole(codec, data, length, failure);
        codec->writing = NULL;
        *out_length = codec->output_length;
        return error;
    }
    if (error == 0)
        error = pb_compress_add(codec, data, length, failure);
    if (error == 0)
        error = pb_compress_finish(codec, out_length, failure);
    return error;
}
