/*
 * libFuzzer target for the codecs. The first byte chooses one; the rest is decompressed in pieces with kept bytes, and
 * at once. Both must agree, memory must stay bounded, and the result must survive compression.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "record/codec.h"

enum { PLAIN_BYTES = 4 * 1024 * 1024, KEEP_BYTES = 77 };

/* Codec windows, and zstd's own of up to 128 MiB. */
static const size_t MEMORY_LIMIT_BYTES = (size_t)160 * 1024 * 1024;

static uint8_t pieces[PLAIN_BYTES];
static uint8_t whole[PLAIN_BYTES];
static uint8_t packed[PLAIN_BYTES + PB_COMPRESS_SLACK_BYTES];

/* In pieces; `*complete` is false where the output outgrew the buffer or the input turned out damaged. */
static size_t decompress_pieces(pb_codec *codec, int compression, const uint8_t *data, size_t length, bool *complete)
{
    *complete = false;
    if (pb_decompress_begin(codec, compression, data, length, NULL) != 0)
        return 0;
    size_t used = 0;
    size_t window_length = 0;
    for (;;) {
        const uint8_t *window = NULL;
        size_t keep = window_length < KEEP_BYTES ? window_length : KEEP_BYTES;
        if (pb_decompress_next(codec, keep, &window, &window_length, NULL) != 0)
            return used;
        PB_ASSERT(window_length >= keep && keep <= used);
        PB_ASSERT(pb_codec_memory_bytes(codec) < MEMORY_LIMIT_BYTES);
        PB_ASSERT(memcmp(window, pieces + used - keep, keep) == 0);
        size_t fresh = window_length - keep;
        if (fresh == 0) {
            *complete = true;
            return used;
        }
        if (fresh > PLAIN_BYTES - used)
            return used;
        memcpy(pieces + used, window + keep, fresh);
        used += fresh;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    static pb_codec *codec;
    if (codec == NULL)
        PB_ASSERT(pb_codec_create(&codec) == 0);
    if (size < 1)
        return 0;
    int compression = input[0] % PB_COMPRESSION_COUNT;
    bool complete = false;
    size_t length = decompress_pieces(codec, compression, input + 1, size - 1, &complete);
    size_t whole_length = 0;
    int error = pb_decompress(codec, compression, input + 1, size - 1, whole, PLAIN_BYTES, &whole_length, NULL);
    PB_ASSERT((error == 0) == complete);
    if (!complete)
        return 0;
    PB_ASSERT(whole_length == length && memcmp(whole, pieces, length) == 0);
    size_t packed_length = 0;
    PB_ASSERT(pb_compress(codec, compression, pb_compression_default_level(compression), whole, whole_length, packed,
                          sizeof(packed), &packed_length, NULL) == 0);
    PB_ASSERT(whole_length == 0 ||
              pb_decompress(codec, compression, packed, packed_length, pieces, PLAIN_BYTES, &length, NULL) == 0);
    PB_ASSERT(length == whole_length && memcmp(whole, pieces, length) == 0);
    return 0;
}
