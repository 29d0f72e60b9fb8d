/*
 * zstd (RFC 8878) by libzstd. Frames in a row are one stream. A frame may ask for a window of up to 128 MiB, libzstd's
 * and Kafka's limit; such a context is not kept. Runs on the codec's thread.
 */
#include "record/codec_impl.h"

#include <errno.h>
#include <string.h>
#include <zstd_errors.h>

#include "base/kafka_error.h"

enum {
    KAFKA_DEFAULT_LEVEL = 3,
    CONTEXT_KEPT_BYTES = 8 * 1024 * 1024,
    /* A frame that tells its size and fits is decompressed at once, without libzstd's own window. */
    WHOLE_FRAME_MOST_BYTES = 1024 * 1024,
};

static int begin(pb_codec *codec, pb_failure *failure)
{
    if (codec->zstd_reader == NULL)
        codec->zstd_reader = ZSTD_createDCtx();
    if (codec->zstd_reader == NULL)
        return pb_fail(failure, -ENOMEM, "cannot start zstd");
    ZSTD_DCtx_reset(codec->zstd_reader, ZSTD_reset_session_only);
    if (codec->input_length == 0)
        return pb_fail(failure, PB_INVALID_RECORD, "the zstd data of the record batch is empty");
    return 0;
}

static int room(pb_codec *codec, size_t *bytes, pb_failure *failure)
{
    (void)failure;
    unsigned long long told = ZSTD_getFrameContentSize(codec->input, codec->input_length);
    *bytes = PB_CODEC_WINDOW_BYTES / 2;
    if (told <= WHOLE_FRAME_MOST_BYTES && told > *bytes)
        *bytes = (size_t)told;
    return 0;
}

static int step(pb_codec *codec, uint8_t *destination, size_t capacity, size_t *produced, pb_failure *failure)
{
    ZSTD_inBuffer input = {codec->input, codec->input_length, 0};
    ZSTD_outBuffer output = {destination, capacity, 0};
    size_t status = ZSTD_decompressStream(codec->zstd_reader, &output, &input);
    if (ZSTD_isError(status)) {
        bool memory = ZSTD_getErrorCode(status) == ZSTD_error_memory_allocation;
        return pb_fail(failure, memory ? -ENOMEM : PB_INVALID_RECORD,
                       "the zstd data of the record batch is damaged: %s", ZSTD_getErrorName(status));
    }
    codec->input += input.pos;
    codec->input_length -= input.pos;
    *produced = output.pos;
    codec->finished = status == 0 && codec->input_length == 0;
    if (!codec->finished && output.pos == 0 && input.pos == 0)
        return pb_fail(failure, PB_INVALID_RECORD, "the zstd data of the record batch ends early");
    return 0;
}

static int compress_begin(pb_codec *codec, int level, pb_failure *failure)
{
    if (codec->zstd_writer == NULL)
        codec->zstd_writer = ZSTD_createCCtx();
    if (codec->zstd_writer == NULL)
        return pb_fail(failure, -ENOMEM, "cannot start zstd");
    ZSTD_CCtx_reset(codec->zstd_writer, ZSTD_reset_session_and_parameters);
    size_t status = ZSTD_CCtx_setParameter(codec->zstd_writer, ZSTD_c_compressionLevel, level);
    if (ZSTD_isError(status))
        return pb_fail(failure, -EINVAL, "zstd has no level %d", level);
    return 0;
}

static int compress_with(pb_codec *codec, const uint8_t *data, size_t length, ZSTD_EndDirective directive,
                         pb_failure *failure)
{
    ZSTD_inBuffer input = {data, length, 0};
    ZSTD_outBuffer output = {codec->output, codec->output_capacity, codec->output_length};
    for (;;) {
        size_t status = ZSTD_compressStream2(codec->zstd_writer, &output, &input, directive);
        codec->output_length = output.pos;
        if (ZSTD_isError(status))
            return pb_fail(failure, -ENOMEM, "zstd failed: %s", ZSTD_getErrorName(status));
        if (directive == ZSTD_e_end ? status == 0 : input.pos == input.size)
            return 0;
        if (output.pos == output.size)
            return pb_fail(failure, -ENOSPC, "no room for the zstd data");
    }
}

static int compress_add(pb_codec *codec, const uint8_t *data, size_t length, pb_failure *failure)
{
    return compress_with(codec, data, length, ZSTD_e_continue, failure);
}

static int compress_finish(pb_codec *codec, pb_failure *failure)
{
    return compress_with(codec, NULL, 0, ZSTD_e_end, failure);
}

/* Neither needs a window of libzstd's own, and the size of what is compressed tells it how large its tables need be. */
static int decompress_whole(pb_codec *codec, uint8_t *destination, size_t capacity, size_t *produced,
                            pb_failure *failure)
{
    size_t status = ZSTD_decompressDCtx(codec->zstd_reader, destination, capacity, codec->input, codec->input_length);
    if (!ZSTD_isError(status)) {
        *produced = status;
        codec->finished = true;
        return 0;
    }
    if (ZSTD_getErrorCode(status) == ZSTD_error_dstSize_tooSmall)
        return -ENOSPC;
    return pb_fail(failure, PB_INVALID_RECORD, "the zstd data of the record batch is damaged: %s",
                   ZSTD_getErrorName(status));
}

static int compress_whole(pb_codec *codec, const uint8_t *data, size_t length, pb_failure *failure)
{
    size_t status = ZSTD_compress2(codec->zstd_writer, codec->output, codec->output_capacity, data, length);
    if (!ZSTD_isError(status)) {
        codec->output_length = status;
        return 0;
    }
    if (ZSTD_getErrorCode(status) == ZSTD_error_dstSize_tooSmall)
        return pb_fail(failure, -ENOSPC, "no room for the zstd data");
    return pb_fail(failure, -ENOMEM, "zstd failed: %s", ZSTD_getErrorName(status));
}

void pb_codec_zstd_shrink(pb_codec *codec)
{
    if (codec->zstd_reader == NULL || ZSTD_sizeof_DCtx(codec->zstd_reader) <= CONTEXT_KEPT_BYTES)
        return;
    ZSTD_freeDCtx(codec->zstd_reader);
    codec->zstd_reader = NULL;
}

void pb_codec_zstd_free(pb_codec *codec)
{
    ZSTD_freeDCtx(codec->zstd_reader);
    ZSTD_freeCCtx(codec->zstd_writer);
    codec->zstd_reader = NULL;
    codec->zstd_writer = NULL;
}

const pb_codec_ops pb_codec_zstd = {
    .name = "zstd",
    .default_level = KAFKA_DEFAULT_LEVEL,
    .decompress_begin = begin,
    .decompress_room = room,
    .decompress_step = step,
    .compress_begin = compress_begin,
    .compress_add = compress_add,
    .compress_finish = compress_finish,
    .decompress_whole = decompress_whole,
    .compress_whole = compress_whole,
};
