/* Shared by codec.c and the files for one codec each, and by nobody else. */
#ifndef PB_RECORD_CODEC_IMPL_H
#define PB_RECORD_CODEC_IMPL_H

#include <lz4frame.h>
#include <zlib.h>
#include <zstd.h>

#include "record/codec.h"

typedef struct pb_codec_ops {
    const char *name;
    int default_level;
    /* Decompression. `room`: bytes of destination that the next step needs, or makes good use of; > 0. */
    int (*decompress_begin)(pb_codec *codec, pb_failure *failure);
    int (*decompress_room)(pb_codec *codec, size_t *room, pb_failure *failure);
    /* Produces up to `capacity` bytes; none only when it sets `finished`. */
    int (*decompress_step)(pb_codec *codec, uint8_t *destination, size_t capacity, size_t *produced,
                           pb_failure *failure);
    /* Compression, into codec->output. */
    int (*compress_begin)(pb_codec *codec, int level, pb_failure *failure);
    int (*compress_add)(pb_codec *codec, const uint8_t *data, size_t length, pb_failure *failure);
    int (*compress_finish)(pb_codec *codec, pb_failure *failure);
    /* All data in one piece, for libraries that do better then; may be NULL. Decompression gives -ENOSPC when
     * `capacity` does not suffice, and nothing is lost. */
    int (*decompress_whole)(pb_codec *codec, uint8_t *destination, size_t capacity, size_t *produced,
                            pb_failure *failure);
    int (*compress_whole)(pb_codec *codec, const uint8_t *data, size_t length, pb_failure *failure);
} pb_codec_ops;

struct pb_codec {
    /* The decompression under way: what is left of its input. */
    const pb_codec_ops *reading;
    const uint8_t *input;
    size_t input_length;
    bool finished;
    bool snappy_framed;
    size_t piece_most_bytes; /* a piece that has to be unpacked at once may not be larger */
    uint8_t *window;
    size_t window_capacity;
    size_t window_length;
    z_stream inflate;
    bool inflate_made;
    LZ4F_dctx *lz4_reader;
    ZSTD_DCtx *zstd_reader;
    /* The compression under way: where it writes. */
    const pb_codec_ops *writing;
    uint8_t *output;
    size_t output_capacity;
    size_t output_length;
    z_stream deflate;
    bool deflate_made;
    int deflate_level;
    LZ4F_cctx *lz4_writer;
    LZ4F_preferences_t lz4_preferences;
    ZSTD_CCtx *zstd_writer;
};

extern const pb_codec_ops pb_codec_gzip;
extern const pb_codec_ops pb_codec_snappy;
extern const pb_codec_ops pb_codec_lz4;
extern const pb_codec_ops pb_codec_zstd;

/* Free what each codec made. */
void pb_codec_gzip_free(pb_codec *codec);
void pb_codec_lz4_free(pb_codec *codec);
void pb_codec_zstd_free(pb_codec *codec);
/* Give back what an unusually large zstd frame made its context grow to. */
void pb_codec_zstd_shrink(pb_codec *codec);

#endif
