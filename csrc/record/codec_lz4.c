/*
 * LZ4 frames by liblz4, within what Kafka's reader takes: frame version 1, independent blocks, reserved bits 0 (so no
 * dictionary). Blocks are written as Kafka does: 64 KiB, independent, no checksums. Bytes behind the end mark are
 * ignored, as Kafka does. Runs on the codec's thread.
 */
#include "record/codec_impl.h"

#include <errno.h>
#include <string.h>

#include "base/kafka_error.h"

enum {
    KAFKA_DEFAULT_LEVEL = 9, /* means the fast compressor; every other level is LZ4 HC's */
    HC_LEAST_LEVEL = 3,
    FRAME_HEADER_LEAST_BYTES = 7,
};

static const uint8_t FRAME_MAGIC[4] = {0x04, 0x22, 0x4d, 0x18};

/* The FLG and BD bytes of the frame descriptor (LZ4 frame format 1.6). */
static int check_descriptor(const pb_codec *codec, pb_failure *failure)
{
    if (codec->input_length < FRAME_HEADER_LEAST_BYTES || memcmp(codec->input, FRAME_MAGIC, sizeof(FRAME_MAGIC)) != 0)
        return pb_fail(failure, PB_INVALID_RECORD, "the lz4 data of the record batch does not begin with a frame");
    uint8_t flags = codec->input[4];
    if (flags >> 6 != 1)
        return pb_fail(failure, PB_INVALID_RECORD, "the lz4 frame has version %d, only 1 is known", flags >> 6);
    if ((flags & 0x03) != 0)
        return pb_fail(failure, PB_INVALID_RECORD, "the lz4 frame sets reserved bits or names a dictionary");
    if ((flags & 0x20) == 0)
        return pb_fail(failure, PB_INVALID_RECORD, "the lz4 frame has dependent blocks; Kafka takes independent ones");
    return 0;
}

static int begin(pb_codec *codec, pb_failure *failure)
{
    int error = check_descriptor(codec, failure);
    if (error != 0)
        return error;
    if (codec->lz4_reader != NULL)
        LZ4F_resetDecompressionContext(codec->lz4_reader);
    else if (LZ4F_isError(LZ4F_createDecompressionContext(&codec->lz4_reader, LZ4F_VERSION)))
        return pb_fail(failure, -ENOMEM, "cannot start lz4");
    return 0;
}

static int room(pb_codec *codec, size_t *bytes, pb_failure *failure)
{
    (void)codec;
    (void)failure;
    /* A whole block, so that liblz4 needs no buffer of its own; it has one for frames with larger blocks. */
    *bytes = 64 * 1024;
    return 0;
}

static int step(pb_codec *codec, uint8_t *destination, size_t capacity, size_t *produced, pb_failure *failure)
{
    size_t consumed = codec->input_length;
    *produced = capacity;
    size_t status = LZ4F_decompress(codec->lz4_reader, destination, produced, codec->input, &consumed, NULL);
    if (LZ4F_isError(status))
        return pb_fail(failure, PB_INVALID_RECORD, "the lz4 data of the record batch is damaged: %s",
                       LZ4F_getErrorName(status));
    codec->input += consumed;
    codec->input_length -= consumed;
    codec->finished = status == 0;
    if (!codec->finished && *produced == 0 && consumed == 0)
        return pb_fail(failure, PB_INVALID_RECORD, "the lz4 data of the record batch ends early");
    return 0;
}

static int compress_begin(pb_codec *codec, int level, pb_failure *failure)
{
    if (codec->lz4_writer == NULL && LZ4F_isError(LZ4F_createCompressionContext(&codec->lz4_writer, LZ4F_VERSION)))
        return pb_fail(failure, -ENOMEM, "cannot start lz4");
    LZ4F_preferences_t *preferences = &codec->lz4_preferences;
    memset(preferences, 0, sizeof(*preferences));
    preferences->frameInfo.blockSizeID = LZ4F_max64KB;
    preferences->frameInfo.blockMode = LZ4F_blockIndependent;
    preferences->autoFlush = 0;
    if (level != KAFKA_DEFAULT_LEVEL)
        preferences->compressionLevel = level < HC_LEAST_LEVEL ? HC_LEAST_LEVEL : level;
    size_t used = LZ4F_compressBegin(codec->lz4_writer, codec->output, codec->output_capacity, preferences);
    if (LZ4F_isError(used))
        return pb_fail(failure, -ENOSPC, "no room for the lz4 data");
    codec->output_length = used;
    return 0;
}

/* In pieces: what liblz4 wants to have free is in proportion to what it is given. */
static int compress_add(pb_codec *codec, const uint8_t *data, size_t length, pb_failure *failure)
{
    enum { PIECE_BYTES = 64 * 1024 };
    while (length > 0) {
        size_t piece = length < PIECE_BYTES ? length : PIECE_BYTES;
        size_t used = LZ4F_compressUpdate(codec->lz4_writer, codec->output + codec->output_length,
                                          codec->output_capacity - codec->output_length, data, piece, NULL);
        if (LZ4F_isError(used))
            return pb_fail(failure, -ENOSPC, "no room for the lz4 data");
        codec->output_length += used;
        data += piece;
        length -= piece;
    }
    return 0;
}

static int compress_finish(pb_codec *codec, pb_failure *failure)
{
    size_t used = LZ4F_compressEnd(codec->lz4_writer, codec->output + codec->output_length,
                                   codec->output_capacity - codec->output_length, NULL);
    if (LZ4F_isError(used))
        return pb_fail(failure, -ENOSPC, "no room for the lz4 data");
    codec->output_length += used;
    return 0;
}

void pb_codec_lz4_free(pb_codec *codec)
{
    LZ4F_freeDecompressionContext(codec->lz4_reader);
    LZ4F_freeCompressionContext(codec->lz4_writer);
    codec->lz4_reader = NULL;
    codec->lz4_writer = NULL;
}

const pb_codec_ops pb_codec_lz4 = {
    .name = "lz4",
    .default_level = KAFKA_DEFAULT_LEVEL,
    .decompress_begin = begin,
    .decompress_room = room,
    .decompress_step = step,
    .compress_begin = compress_begin,
    .compress_add = compress_add,
    .compress_finish = compress_finish,
};
