/*
 * Rewrites a batch with another codec, for topics whose compression.type is not `producer`. Runs on the caller's thread
 * with that thread's codec; the records' bytes stay as they are, so offsets, timestamps and headers do. Memory is
 * bounded by the destination, whatever the batch claims to hold.
 */
#ifndef PB_RECORD_RECOMPRESS_H
#define PB_RECORD_RECOMPRESS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "record/batch.h"
#include "record/codec.h"

/* How large a destination pb_recompress wants. */
size_t pb_recompress_capacity(int32_t max_message_bytes);

/*
 * Write the whole, validated magic-2 batch with codec `target` at `level` to `destination`, which holds
 * pb_recompress_capacity(max_message_bytes) and does not overlap it. Length, attributes and CRC are new, the rest of
 * the header is kept. 0 with `*size_bytes`; MESSAGE_TOO_LARGE when the result is larger than max_message_bytes (as
 * Kafka, which checks before and after); what the codecs give.
 */
int pb_recompress(pb_codec *codec, const uint8_t *batch, size_t length, int target, int level,
                  int32_t max_message_bytes, uint8_t *destination, size_t *size_bytes, pb_failure *failure);

#endif
