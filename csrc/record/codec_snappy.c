/*
 * snappy, in the framing of snappy-java ("xerial"), which Kafka's Java clients write, or as one bare block, which
 * librdkafka writes. The framing is an 8-byte magic, two big-endian int32 versions, then blocks, each with a big-endian
 * int32 compressed length before it. The header may come again in place of a block's length. Runs on the codec's
 * thread.
 */
#include "record/codec_impl.h"

#include <errno.h>
#include <snappy-c.h>
#include <string.h>

#include "base/assert.h"
#include "base/kafka_error.h"

enum {
    FRAME_HEADER_BYTES = 16,
    LENGTH_BYTES = 4,
    WRITE_BLOCK_BYTES = 32 * 1024, /* snappy-java's default block */
    /* A copy of 64 bytes takes three: a block that claims a larger ratio lies. */
    MOST_BYTES_PER_BYTE = 22,
};

/* The magic, version 1, readable since version 1. */
static const uint8_t FRAME_HEADER[FRAME_HEADER_BYTES] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1};
enum { FRAME_MAGIC_BYTES = 8 };

static uint32_t load_be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static bool at_frame_header(const pb_codec *codec)
{
    return codec->input_length >= FRAME_HEADER_BYTES && memcmp(codec->input, FRAME_HEADER, FRAME_MAGIC_BYTES) == 0;
}

static int begin(pb_codec *codec, pb_failure *failure)
{
    /* Readers, Kafka's among them, look at the magic and not at the versions. */
    codec->snappy_framed = at_frame_header(codec);
    if (codec->input_length == 0)
        return pb_fail(failure, PB_INVALID_RECORD, "the snappy data of the record batch is empty");
    return 0;
}

static void advance(pb_codec *codec, size_t length)
{
    PB_ASSERT(length <= codec->input_length);
    codec->input += length;
    codec->input_length -= length;
}

/* The next block's compressed bytes; a length of 0 at the end. Moves over frame headers only. */
static int next_block(pb_codec *codec, const uint8_t **block, size_t *length, pb_failure *failure)
{
    *length = 0;
    if (!codec->snappy_framed) {
        *block = codec->input;
        *length = codec->input_length;
        return 0;
    }
    while (at_frame_header(codec))
        advance(codec, FRAME_HEADER_BYTES);
    if (codec->input_length == 0)
        return 0;
    if (codec->input_length < LENGTH_BYTES)
        return pb_fail(failure, PB_INVALID_RECORD, "the snappy data of the record batch ends inside a block length");
    uint32_t claimed = load_be32(codec->input);
    if (claimed == 0 || claimed > codec->input_length - LENGTH_BYTES)
        return pb_fail(failure, PB_INVALID_RECORD, "a snappy block claims %u bytes, %zu are there", claimed,
                       codec->input_length - LENGTH_BYTES);
    *block = codec->input + LENGTH_BYTES;
    *length = claimed;
    return 0;
}

static int room(pb_codec *codec, size_t *bytes, pb_failure *failure)
{
    const uint8_t *block = NULL;
    size_t length = 0;
    *bytes = 1;
    int error = next_block(codec, &block, &length, failure);
    if (error != 0 || length == 0)
        return error;
    size_t claimed = 0;
    if (snappy_uncompressed_length((const char *)block, length, &claimed) != SNAPPY_OK ||
        claimed / MOST_BYTES_PER_BYTE > length)
        return pb_fail(failure, PB_INVALID_RECORD, "a snappy block of %zu bytes claims a length that it cannot have",
                       length);
    if (claimed > 1)
        *bytes = claimed;
    return 0;
}

static int step(pb_codec *codec, uint8_t *destination, size_t capacity, size_t *produced, pb_failure *failure)
{
    const uint8_t *block = NULL;
    size_t length = 0;
    int error = next_block(codec, &block, &length, failure);
    if (error != 0)
        return error;
    *produced = 0;
    if (length > 0) {
        *produced = capacity;
        if (snappy_uncompress((const char *)block, length, (char *)destination, produced) != SNAPPY_OK)
            return pb_fail(failure, PB_INVALID_RECORD, "the snappy data of the record batch is damaged");
        advance(codec, (size_t)(block - codec->input) + length);
    }
    codec->finished = codec->input_length == 0;
    return 0;
}

static int compress_begin(pb_codec *codec, int level, pb_failure *failure)
{
    (void)level;
    if (codec->output_capacity < FRAME_HEADER_BYTES)
        return pb_fail(failure, -ENOSPC, "no room for the snappy data");
    memcpy(codec->output, FRAME_HEADER, FRAME_HEADER_BYTES);
    codec->output_length = FRAME_HEADER_BYTES;
    return 0;
}

static int compress_add(pb_codec *codec, const uint8_t *data, size_t length, pb_failure *failure)
{
    while (length > 0) {
        size_t piece = length < WRITE_BLOCK_BYTES ? length : WRITE_BLOCK_BYTES;
        size_t space = codec->output_capacity - codec->output_length;
        if (space < LENGTH_BYTES + snappy_max_compressed_length(piece))
            return pb_fail(failure, -ENOSPC, "no room for the snappy data");
        uint8_t *block = codec->output + codec->output_length;
        size_t compressed = space - LENGTH_BYTES;
        snappy_status status = snappy_compress((const char *)data, piece, (char *)block + LENGTH_BYTES, &compressed);
        PB_ASSERT(status == SNAPPY_OK && compressed <= space - LENGTH_BYTES);
        block[0] = (uint8_t)(compressed >> 24);
        block[1] = (uint8_t)(compressed >> 16);
        block[2] = (uint8_t)(compressed >> 8);
        block[3] = (uint8_t)compressed;
        codec->output_length += LENGTH_BYTES + compressed;
        data += piece;
        length -= piece;
    }
    return 0;
}

static int compress_finish(pb_codec *codec, pb_failure *failure)
{
    (void)codec;
    (void)failure;
    return 0;
}

const pb_codec_ops pb_codec_snappy = {
    .name = "snappy",
    .decompress_begin = begin,
    .decompress_room = room,
    .decompress_step = step,
    .compress_begin = compress_begin,
    .compress_add = compress_add,
    .compress_finish = compress_finish,
};
