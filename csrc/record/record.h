/*
 * Records inside a magic-2 batch: parse one in memory, or walk all of a batch, compressed or not, in bounded memory.
 *
 *   length varint, of what follows it | attributes int8 | timestamp delta varlong | offset delta varint
 *   key length varint (negative: null), key | value length varint (negative: null), value
 *   header count varint, then for each: key length varint, key | value length varint (negative: null), value
 *
 * Every length is checked before it is used, and what a record does not use up is an error. Errors are INVALID_RECORD
 * with a text in `failure` (may be NULL), or what the codec gives. One reader belongs to one thread.
 */
#ifndef PB_RECORD_RECORD_H
#define PB_RECORD_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "record/batch.h"
#include "record/codec.h"

/* A record in memory. Pointers are into the bytes parsed; a length of -1 means null, and its pointer is NULL. */
typedef struct pb_record {
    size_t size_bytes; /* with the length in front */
    int64_t timestamp_delta;
    int32_t offset_delta;
    int32_t key_length;
    const uint8_t *key;
    int32_t value_length;
    const uint8_t *value;
    int32_t header_count;
    const uint8_t *headers; /* the first header; walk with pb_record_header_next */
    size_t headers_length;
} pb_record;

typedef struct pb_record_header {
    const uint8_t *key;
    int32_t key_length;
    const uint8_t *value;
    int32_t value_length; /* -1: null */
} pb_record_header;

/* Parse the record at the front of `length` bytes, headers checked as well. */
int pb_record_parse(const uint8_t *data, size_t length, pb_record *record, pb_failure *failure);

/* The header at `*headers`, moving it on; call `header_count` times on a parsed record. */
void pb_record_header_next(const uint8_t **headers, const uint8_t *end, pb_record_header *header);

/*
 * A walk over a batch. Uncompressed: straight over the batch's bytes. Compressed: through the codec's window, which it
 * holds until the walk ends. A record that does not fit the window is checked and passed over piece by piece.
 */
typedef struct pb_record_reader {
    pb_codec *codec; /* NULL: not compressed */
    const uint8_t *next;
    const uint8_t *end;
    bool exhausted; /* nothing comes after `end` */
    int32_t remaining_count;
    int64_t budget_bytes; /* as many more may come out of the codec; INT64_MAX after open */
} pb_record_reader;

/* What the walk tells of each record. `bytes` is the whole record, valid until the next call; NULL when it was passed
 * over. */
typedef struct pb_record_view {
    int64_t timestamp_delta;
    int32_t offset_delta;
    bool has_key;
    const uint8_t *bytes;
    size_t size_bytes;
} pb_record_view;

/*
 * Start at the first record of a whole, parsed magic-2 batch, which stays valid and unchanged during the walk. `codec`
 * may be NULL for an uncompressed batch.
 */
int pb_record_reader_open(pb_record_reader *reader, pb_codec *codec, const uint8_t *batch,
                          const pb_batch_header *header, pb_failure *failure);

/* True while the header's record count says that there are more. */
static inline bool pb_record_reader_has_next(const pb_record_reader *reader)
{
    return reader->remaining_count > 0;
}

/* The next record. */
int pb_record_reader_next(pb_record_reader *reader, pb_record_view *view, pb_failure *failure);

/* After the last record that is counted: INVALID_RECORD when anything is left over, damaged compressed data included.
 */
int pb_record_reader_finish(pb_record_reader *reader, pb_failure *failure);

/* A record's timestamp and offset, as the batch's header gives them a meaning. */
static inline int64_t pb_record_timestamp(const pb_batch_header *header, int64_t timestamp_delta)
{
    if (pb_batch_timestamp_type(header) == PB_LOG_APPEND_TIME)
        return header->max_timestamp;
    return (int64_t)((uint64_t)header->base_timestamp + (uint64_t)timestamp_delta);
}

static inline int64_t pb_record_offset(const pb_batch_header *header, int32_t offset_delta)
{
    return (int64_t)((uint64_t)header->base_offset + (uint64_t)(int64_t)offset_delta);
}

#endif
