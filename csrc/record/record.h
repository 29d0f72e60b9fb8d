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

/* The field of a record at which a piecewise walk over it stands. */
typedef enum pb_record_field {
    PB_FIELD_NONE, /* the walk is between two records */
    PB_FIELD_ATTRIBUTES,
    PB_FIELD_TIMESTAMP,
    PB_FIELD_OFFSET,
    PB_FIELD_KEY,
    PB_FIELD_VALUE,
    PB_FIELD_HEADER_COUNT,
    PB_FIELD_HEADER_KEY,
    PB_FIELD_HEADER_VALUE,
    PB_FIELD_END,
} pb_record_field;

/* A record that is passed over piece by piece; what is known of it so far. */
typedef struct pb_record_pass {
    pb_record_field field; /* the next one */
    int64_t left_bytes;    /* of the record, behind the field that was begun last */
    int64_t drop_bytes;    /* of that field, not yet passed over */
    int64_t header_count;  /* headers that are still to come */
    int64_t timestamp_delta;
    int32_t offset_delta;
    bool has_key;
    size_t size_bytes;
} pb_record_pass;

/*
 * A walk over a batch. Uncompressed: straight over the batch's bytes. Compressed: through the codec's window, which it
 * holds until the walk ends. A record that does not fit the window is checked and passed over piece by piece.
 *
 * A walk can be paused: once more than `budget_bytes` have come out of the codec, the next call that needs more gives
 * -EAGAIN. After the budget was raised the walk goes on where it was.
 */
typedef struct pb_record_reader {
    pb_codec *codec; /* NULL: not compressed */
    const uint8_t *next;
    const uint8_t *end;
    bool exhausted; /* nothing comes after `end` */
    int32_t remaining_count;
    int64_t budget_bytes;     /* below 0: it pauses; INT64_MAX after open */
    size_t whole_bytes;       /* records up to this size are made to lie whole in the window */
    int32_t max_record_bytes; /* a longer record is INVALID_RECORD, see pb_record_reader_limit */
    pb_record_pass pass;
} pb_record_reader;

/* One record, as the walk reports it. `bytes` is the whole record, valid until the next call; NULL when it was passed
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

/* Refuse records of a compressed batch whose body, what follows the length, has more than `max_bytes`: Kafka's
 * max.decompressed.message.bytes. 0: no limit. Records of an uncompressed batch are not limited. Right after open. */
void pb_record_reader_limit(pb_record_reader *reader, int32_t max_bytes);

/* The next record. -EAGAIN: the walk has paused; unless it did so inside the record, call again. */
int pb_record_reader_next(pb_record_reader *reader, pb_record_view *view, pb_failure *failure);

/* Has the walk paused inside a record? Then pb_record_reader_go_on ends that record, as pb_record_reader_next would. */
static inline bool pb_record_reader_is_inside(const pb_record_reader *reader)
{
    return reader->pass.field != PB_FIELD_NONE;
}
int pb_record_reader_go_on(pb_record_reader *reader, pb_record_view *view, pb_failure *failure);

/* After the last record that is counted: INVALID_RECORD when anything is left over, damaged compressed data included;
 * -EAGAIN as above. */
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
