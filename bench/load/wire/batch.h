/* A record batch (magic 2) made once, before the clock starts.
 *
 * Plain memory. Can fail only by a codec's refusal, which ends the program.
 */
#ifndef PBL_BATCH_H
#define PBL_BATCH_H

#include "wire/keys.h"
#include "wire/text.h"

enum pbl_codec { PBL_CODEC_NONE, PBL_CODEC_GZIP, PBL_CODEC_SNAPPY, PBL_CODEC_LZ4, PBL_CODEC_ZSTD };

/* The codec's number in the batch attributes, or -1 for an unknown name. */
int pbl_codec_by_name(const char *name);
const char *pbl_codec_name(enum pbl_codec codec);

struct pbl_batch_shape {
    uint32_t batch_bytes;  /* of records before compression, header included: never exceeded unless one record does */
    uint32_t record_bytes; /* value size of each record; 0: as the source's text has it */
    enum pbl_codec codec;
};

/* The contents of records; `text` and `keys` may be NULL. */
struct pbl_batch_source {
    struct pbl_text *text;       /* values; NULL: words of a small vocabulary, of which lz4 makes about half */
    const struct pbl_keys *keys; /* NULL: null keys */
    uint32_t partition;          /* has keys where there are any */
    uint32_t key_index;          /* of the next key */
    uint64_t seed;               /* of values that are made up */
};

/* Append a batch with base offset 0, no producer id, base sequence -1, a valid CRC-32C, and the present as its
 * timestamps. Gives the number of records; `*uncompressed_bytes` is the size the batch would have without its codec. */
uint32_t pbl_batch_append(struct pbl_buffer *out, const struct pbl_batch_shape *shape, struct pbl_batch_source *source,
                          size_t *uncompressed_bytes);

#endif
