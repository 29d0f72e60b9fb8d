/*
 * Kafka's compression codecs: gzip, snappy, lz4, zstd.
 *
 * A pb_codec is one thread's working memory for all of them: library contexts, made when first needed and reused, and a
 * window that decompressed bytes pass through. Data from outside is decompressed piece by piece. A few kilobytes that
 * claim to be gigabytes cost time in proportion to what their receiver walks through, and memory in proportion to what
 * was received. The window stays near PB_CODEC_WINDOW_BYTES, with two exceptions. One snappy block has to be whole (at
 * most 22 times its compressed size). zstd keeps its frame's own window (at most 128 MiB, given back afterwards).
 *
 * Errors: INVALID_RECORD for bytes that are not what they say, UNSUPPORTED_COMPRESSION_TYPE for a codec number that
 * Kafka does not have, -ENOMEM, and -ENOSPC where the destination is too small. `failure` may be NULL everywhere.
 */
#ifndef PB_RECORD_CODEC_H
#define PB_RECORD_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* The numbers in the low three bits of a batch's attributes. */
typedef enum pb_compression {
    PB_COMPRESSION_NONE = 0,
    PB_COMPRESSION_GZIP = 1,
    PB_COMPRESSION_SNAPPY = 2,
    PB_COMPRESSION_LZ4 = 3,
    PB_COMPRESSION_ZSTD = 4,
} pb_compression;

enum {
    PB_COMPRESSION_COUNT = 5,
    PB_CODEC_WINDOW_BYTES = 256 * 1024,
    /* Output beyond what the data fills that compressing may ask for on its way. */
    PB_COMPRESS_SLACK_BYTES = 512 * 1024,
};

/* Owner: one thread. At most one decompression and one compression are under way in it at a time; both may be. */
typedef struct pb_codec pb_codec;

int pb_codec_create(pb_codec **out);
void pb_codec_destroy(pb_codec *codec);

/* Bytes of memory that it holds, library contexts included as far as the libraries tell. */
size_t pb_codec_memory_bytes(const pb_codec *codec);

/* Start to decompress `length` bytes, which stay valid and unchanged until the last pb_decompress_next. */
int pb_decompress_begin(pb_codec *codec, int compression, const void *data, size_t length, pb_failure *failure);

/* From now on a piece that has to be unpacked whole, such as a block of snappy, may take no more than `bytes`. Beyond
 * that pb_decompress_next gives -EFBIG and takes no memory for it. */
void pb_decompress_limit_piece(pb_codec *codec, size_t bytes);

/*
 * Decompress some more. The window keeps its last `keep` bytes, which the caller has not used up. They move to its
 * front, and new bytes follow. `*data`, `*length` is the whole, valid until the next call. `*length == keep` means the
 * end.
 */
int pb_decompress_next(pb_codec *codec, size_t keep, const uint8_t **data, size_t *length, pb_failure *failure);

/* Decompress everything into `destination`. -ENOSPC when it does not fit. */
int pb_decompress(pb_codec *codec, int compression, const void *data, size_t length, void *destination, size_t capacity,
                  size_t *out_length, pb_failure *failure);

/*
 * Decompress everything into `*memory` (malloc; NULL at first), which grows when it has to, up to `limit` bytes of
 * data: -ENOSPC above. For a caller that has one batch after another to look at and keeps the memory between them.
 */
int pb_decompress_all(pb_codec *codec, int compression, const void *data, size_t length, size_t limit, uint8_t **memory,
                      size_t *capacity, size_t *out_length, pb_failure *failure);

/*
 * Compress in pieces: begin, add any number of times, finish. `level` is Kafka's compression.<codec>.level; none and
 * snappy have none. -ENOSPC when the destination may not hold more: give it the size that is acceptable plus
 * PB_COMPRESS_SLACK_BYTES, and compare afterwards.
 */
int pb_compress_begin(pb_codec *codec, int compression, int level, void *destination, size_t capacity,
                      pb_failure *failure);
int pb_compress_add(pb_codec *codec, const void *data, size_t length, pb_failure *failure);
int pb_compress_finish(pb_codec *codec, size_t *out_length, pb_failure *failure);

/* The three calls above in one. */
int pb_compress(pb_codec *codec, int compression, int level, const void *data, size_t length, void *destination,
                size_t capacity, size_t *out_length, pb_failure *failure);

/* Kafka's default level of a codec (gzip -1, lz4 9, zstd 3; 0 where there is none). */
int pb_compression_default_level(int compression);

/* Kafka's name of a codec ("none", "gzip", ...), or NULL. */
const char *pb_compression_name(int compression);

#endif
