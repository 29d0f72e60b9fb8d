/*
 * Rewrites a batch with another codec, for topics whose compression.type is not `producer`. Runs on the caller's thread
 * with that thread's codec; the records' bytes stay as they are, so offsets, timestamps and headers do. Memory grows
 * with what comes out, up to max.message.bytes, whatever the batch claims to hold.
 */
#ifndef PB_RECORD_RECOMPRESS_H
#define PB_RECORD_RECOMPRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "record/batch.h"
#include "record/codec.h"

/* Where the rewritten batch is put; all zero: nothing yet. One belongs to one thread. */
typedef struct pb_recompressed {
    uint8_t *data; /* malloc'd */
    size_t capacity;
    size_t size_bytes; /* of the batch */
} pb_recompressed;

/* A recompression under way. Owner: the caller; it has no memory of its own, and may be forgotten at any time. */
typedef struct pb_recompression {
    pb_codec *codec;
    const uint8_t *batch;
    pb_batch_header header;
    int target;
    int level;
    int32_t max_message_bytes;
    pb_recompressed *out;
    size_t capacity;      /* of `out`, for the next try */
    size_t taken_bytes;   /* of an uncompressed batch's records */
    int64_t budget_bytes; /* as many more may be compressed in this step */
    bool open;            /* a try is under way */
} pb_recompression;

/* Begin to do what pb_recompress does, in steps. All that is passed in stays valid to the end, and the codec is used
 * for nothing else. */
void pb_recompress_begin(pb_recompression *recompression, pb_codec *codec, const uint8_t *batch, size_t length,
                         int target, int level, int32_t max_message_bytes, pb_recompressed *out);
/* Compress up to some more than `bytes`. -EAGAIN: there is more to do, in another step. Otherwise it is over, as
 * pb_recompress says. */
int pb_recompress_step(pb_recompression *recompression, int64_t bytes, pb_failure *failure);

/*
 * Write the whole, validated magic-2 batch with codec `target` at `level` to `out`, which grows as it has to. Length,
 * attributes and CRC are new, the rest of the header is kept. 0; MESSAGE_TOO_LARGE when the result is larger than
 * max_message_bytes (as Kafka, which checks before and after); -ENOMEM; what the codecs give.
 */
int pb_recompress(pb_codec *codec, const uint8_t *batch, size_t length, int target, int level,
                  int32_t max_message_bytes, pb_recompressed *out, pb_failure *failure);
/* Give its memory back if there is more than `keep_bytes` of it. */
void pb_recompressed_trim(pb_recompressed *out, size_t keep_bytes);

#endif
