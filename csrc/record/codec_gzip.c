/*
 * gzip (RFC 1952) by zlib. Several members in a row are one stream; what follows the last member and is no gzip header
 * is ignored, as Java's reader, which Kafka uses, does. Runs on the thread that owns the pb_codec.
 */
#include "record/codec_impl.h"

#include <errno.h>
#include <string.h>

#include "base/kafka_error.h"

enum { GZIP_WINDOW_BITS = 15 + 16 }; /* 16: a gzip wrapper instead of zlib's own */

static int begin(pb_codec *codec, pb_failure *failure)
{
    if (codec->inflate_made) {
        inflateReset(&codec->inflate);
        return 0;
    }
    memset(&codec->inflate, 0, sizeof(codec->inflate));
    if (inflateInit2(&codec->inflate, GZIP_WINDOW_BITS) != Z_OK)
        return pb_fail(failure, -ENOMEM, "cannot start zlib");
    codec->inflate_made = true;
    return 0;
}

static int room(pb_codec *codec, size_t *bytes, pb_failure *failure)
{
    (void)codec;
    (void)failure;
    *bytes = PB_CODEC_WINDOW_BYTES / 2;
    return 0;
}

static bool another_member_follows(const pb_codec *codec)
{
    return codec->input_length >= 3 && codec->input[0] == 0x1f && codec->input[1] == 0x8b && codec->input[2] == 8;
}

static int step(pb_codec *codec, uint8_t *destination, size_t capacity, size_t *produced, pb_failure *failure)
{
    z_stream *stream = &codec->inflate;
    uInt offered = codec->input_length > UINT32_MAX ? UINT32_MAX : (uInt)codec->input_length;
    uInt space = capacity > UINT32_MAX ? UINT32_MAX : (uInt)capacity;
    stream->next_in = (Bytef *)(uintptr_t)codec->input;
    stream->avail_in = offered;
    stream->next_out = destination;
    stream->avail_out = space;
    int status = inflate(stream, Z_NO_FLUSH);
    codec->input += offered - stream->avail_in;
    codec->input_length -= offered - stream->avail_in;
    *produced = space - stream->avail_out;
    if (status == Z_STREAM_END) {
        if (another_member_follows(codec))
            inflateReset(stream);
        else
            codec->finished = true;
        return 0;
    }
    if (status == Z_OK && (*produced > 0 || codec->input_length > 0))
        return 0;
    if (status == Z_MEM_ERROR)
        return pb_fail(failure, -ENOMEM, "zlib has no memory");
    if (status == Z_OK || status == Z_BUF_ERROR)
        return pb_fail(failure, PB_INVALID_RECORD, "the gzip data of the record batch ends early");
    return pb_fail(failure, PB_INVALID_RECORD, "the gzip data of the record batch is damaged: %s",
                   stream->msg != NULL ? stream->msg : "preset dictionary");
}

static int compress_begin(pb_codec *codec, int level, pb_failure *failure)
{
    if (codec->deflate_made && codec->deflate_level == level) {
        deflateReset(&codec->deflate);
        return 0;
    }
    if (codec->deflate_made)
        deflateEnd(&codec->deflate);
    codec->deflate_made = false;
    memset(&codec->deflate, 0, sizeof(codec->deflate));
    int status = deflateInit2(&codec->deflate, level, Z_DEFLATED, GZIP_WINDOW_BITS, 8, Z_DEFAULT_STRATEGY);
    if (status != Z_OK)
        return pb_fail(failure, status == Z_MEM_ERROR ? -ENOMEM : -EINVAL, "cannot start gzip at level %d", level);
    codec->deflate_made = true;
    codec->deflate_level = level;
    return 0;
}

static int deflate_with(pb_codec *codec, const uint8_t *data, size_t length, int flush, pb_failure *failure)
{
    z_stream *stream = &codec->deflate;
    size_t space = codec->output_capacity - codec->output_length;
    if (length > UINT32_MAX || space > UINT32_MAX)
        return pb_fail(failure, -EINVAL, "more than 4 GiB at once for gzip");
    stream->next_in = (Bytef *)(uintptr_t)data;
    stream->avail_in = (uInt)length;
    stream->next_out = codec->output + codec->output_length;
    stream->avail_out = (uInt)space;
    int status = deflate(stream, flush);
    codec->output_length += space - stream->avail_out;
    bool done = flush == Z_FINISH ? status == Z_STREAM_END : stream->avail_in == 0;
    return done ? 0 : pb_fail(failure, -ENOSPC, "no room for the gzip data");
}

static int compress_add(pb_codec *codec, const uint8_t *data, size_t length, pb_failure *failure)
{
    return deflate_with(codec, data, length, Z_NO_FLUSH, failure);
}

static int compress_finish(pb_codec *codec, pb_failure *failure)
{
    return deflate_with(codec, NULL, 0, Z_FINISH, failure);
}

void pb_codec_gzip_free(pb_codec *codec)
{
    if (codec->inflate_made)
        inflateEnd(&codec->inflate);
    if (codec->deflate_made)
        deflateEnd(&codec->deflate);
    codec->inflate_made = false;
    codec->deflate_made = false;
}

const pb_codec_ops pb_codec_gzip = {
    .name = "gzip",
    .default_level = Z_DEFAULT_COMPRESSION,
    .decompress_begin = begin,
    .decompress_room = room,
    .decompress_step = step,
    .compress_begin = compress_begin,
    .compress_add = compress_add,
    .compress_finish = compress_finish,
};
