/*
 * A bounds-checked cursor over a frame that has been received whole, for Kafka's primitive types.
 *
 * Errors stick. The first malformed value sets `error`, moves the cursor to the end, and makes this and every later
 * read return zero or empty. So a caller may read a group of fields and look at `error` once. Nothing is copied: slices
 * point into the frame and live as long as it does. Runs on the thread that owns the frame; no allocation.
 */
#ifndef PB_WIRE_READER_H
#define PB_WIRE_READER_H

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/arena.h"
#include "base/assert.h"

#define PB_UUID_BYTES 16
#define PB_MAX_STRING_BYTES 0x7fff

/* A string, bytes or records field: borrowed memory. Null is length -1; empty is length 0. */
typedef struct pb_slice {
    const void *data;
    int32_t length;
} pb_slice;

typedef struct pb_uuid {
    uint8_t bytes[PB_UUID_BYTES];
} pb_uuid;

#define PB_NULL_SLICE ((pb_slice){NULL, -1})
#define PB_EMPTY_SLICE ((pb_slice){NULL, 0})

static inline bool pb_slice_is_null(pb_slice slice)
{
    return slice.length < 0;
}

static inline pb_slice pb_slice_of_text(const char *text)
{
    const size_t length = strlen(text);
    PB_ASSERT(length <= INT32_MAX);
    return (pb_slice){text, (int32_t)length};
}

static inline bool pb_slice_equal(pb_slice a, pb_slice b)
{
    return a.length == b.length && (a.length <= 0 || memcmp(a.data, b.data, (size_t)a.length) == 0);
}

static inline bool pb_uuid_is_zero(const pb_uuid *uuid)
{
    static const pb_uuid zero;
    return memcmp(uuid->bytes, zero.bytes, PB_UUID_BYTES) == 0;
}

/* The frame is borrowed. 0 <= position <= length always; error is 0, -EBADMSG (malformed) or -ENOMEM (arena limit). */
typedef struct pb_reader {
    const uint8_t *data;
    size_t length;
    size_t position;
    int error;
} pb_reader;

static inline pb_reader pb_reader_of(const void *data, size_t length)
{
    return (pb_reader){.data = data, .length = length};
}

static inline size_t pb_reader_left(const pb_reader *reader)
{
    return reader->length - reader->position;
}

/* Stick the first error and stop the cursor. */
static inline void pb_reader_fail(pb_reader *reader, int error)
{
    PB_ASSERT(error < 0);
    if (reader->error == 0)
        reader->error = error;
    reader->position = reader->length;
}

/* The next `count` bytes, or NULL and an error. */
static inline const uint8_t *pb_reader_take(pb_reader *reader, size_t count)
{
    PB_ASSERT(reader->position <= reader->length);
    if (__builtin_expect(count > pb_reader_left(reader) || reader->error != 0, 0)) {
        pb_reader_fail(reader, -EBADMSG);
        return NULL;
    }
    const uint8_t *at = reader->data + reader->position;
    reader->position += count;
    return at;
}

static inline int8_t pb_read_int8(pb_reader *reader)
{
    const uint8_t *at = pb_reader_take(reader, 1);
    return at == NULL ? 0 : (int8_t)*at;
}

static inline bool pb_read_bool(pb_reader *reader)
{
    return pb_read_int8(reader) != 0;
}

static inline uint16_t pb_read_uint16(pb_reader *reader)
{
    uint16_t value = 0;
    const uint8_t *at = pb_reader_take(reader, sizeof(value));
    if (at != NULL)
        memcpy(&value, at, sizeof(value));
    return be16toh(value);
}

static inline int16_t pb_read_int16(pb_reader *reader)
{
    return (int16_t)pb_read_uint16(reader);
}

static inline uint32_t pb_read_uint32(pb_reader *reader)
{
    uint32_t value = 0;
    const uint8_t *at = pb_reader_take(reader, sizeof(value));
    if (at != NULL)
        memcpy(&value, at, sizeof(value));
    return be32toh(value);
}

static inline int32_t pb_read_int32(pb_reader *reader)
{
    return (int32_t)pb_read_uint32(reader);
}

static inline int64_t pb_read_int64(pb_reader *reader)
{
    uint64_t value = 0;
    const uint8_t *at = pb_reader_take(reader, sizeof(value));
    if (at != NULL)
        memcpy(&value, at, sizeof(value));
    return (int64_t)be64toh(value);
}

static inline double pb_read_float64(pb_reader *reader)
{
    const int64_t bits = pb_read_int64(reader);
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline pb_uuid pb_read_uuid(pb_reader *reader)
{
    pb_uuid uuid = {{0}};
    const uint8_t *at = pb_reader_take(reader, PB_UUID_BYTES);
    if (at != NULL)
        memcpy(uuid.bytes, at, PB_UUID_BYTES);
    return uuid;
}

/* pb_read_uvarint for a varint of more than one byte, or none at all. */
uint32_t pb_read_long_uvarint(pb_reader *reader);

/* An unsigned 32-bit varint (KIP-482); a longer one is malformed. */
static inline uint32_t pb_read_uvarint(pb_reader *reader)
{
    PB_ASSERT(reader->position <= reader->length);
    /* After an error nothing is left. */
    if (__builtin_expect(pb_reader_left(reader) > 0 && reader->data[reader->position] < 0x80, 1))
        return reader->data[reader->position++];
    return pb_read_long_uvarint(reader);
}

/* A length or count as the field's encoding has it: -1 is null. Any other negative one is malformed. */
static inline int64_t pb_read_length(pb_reader *reader, bool compact, bool is_int16)
{
    int64_t length;
    if (compact)
        length = (int64_t)pb_read_uvarint(reader) - 1;
    else
        length = is_int16 ? pb_read_int16(reader) : pb_read_int32(reader);
    if (reader->error != 0)
        return 0;
    if (length < -1 || length > INT32_MAX) {
        pb_reader_fail(reader, -EBADMSG);
        return 0;
    }
    return length;
}

static inline pb_slice pb_reader_slice(pb_reader *reader, int64_t length, bool nullable)
{
    if (length < 0) {
        if (nullable)
            return PB_NULL_SLICE;
        pb_reader_fail(reader, -EBADMSG);
        return PB_EMPTY_SLICE;
    }
    const uint8_t *at = pb_reader_take(reader, (size_t)length);
    return at == NULL ? PB_EMPTY_SLICE : (pb_slice){at, (int32_t)length};
}

/* A string; its bytes are not checked to be UTF-8. A null one where `nullable` is false is malformed. */
static inline pb_slice pb_read_string(pb_reader *reader, bool compact, bool nullable)
{
    const int64_t length = pb_read_length(reader, compact, true);
    if (length > PB_MAX_STRING_BYTES) {
        pb_reader_fail(reader, -EBADMSG);
        return PB_EMPTY_SLICE;
    }
    return pb_reader_slice(reader, length, nullable);
}

/* Bytes or records. */
static inline pb_slice pb_read_bytes(pb_reader *reader, bool compact, bool nullable)
{
    return pb_reader_slice(reader, pb_read_length(reader, compact, false), nullable);
}

/* The limits of Apache Kafka 4.4: more than that is malformed, however large the frame is. */
#define PB_ARRAY_MAX_COUNT 1000000
#define PB_TAGGED_MAX_COUNT 10000
/* So many elements are allocated before any is parsed; from there on memory doubles as they are. */
#define PB_ARRAY_AHEAD_COUNT 1000

/*
 * An array's count and the memory of its first elements. The count is checked against the limit, and against the rest
 * of the frame at `least_bytes` per element, before the arena is asked. Returns -1 and *elements NULL for null, 0 after
 * an error. When as many are parsed as there is memory for, pb_array_grow makes more.
 */
int32_t pb_read_array(pb_reader *reader, bool compact, bool nullable, size_t least_bytes, pb_arena *arena,
                      size_t element_bytes, void **elements);
/* Memory for `count` elements of which the first `have` are parsed: they move. NULL at the arena's limit, and the error
 * sticks. */
void *pb_array_grow(pb_reader *reader, pb_arena *arena, const void *elements, int32_t have, int32_t count,
                    size_t element_bytes);

/* How many elements memory was taken for when an array of `count` begins. */
static inline int32_t pb_array_first_room(int32_t count)
{
    return count < PB_ARRAY_AHEAD_COUNT ? count : PB_ARRAY_AHEAD_COUNT;
}

/* How many elements there is to be memory for once the first `have` are parsed. */
static inline int32_t pb_array_next_room(int32_t have, int32_t count)
{
    PB_ASSERT(have > 0 && have < count);
    return count - have < have ? count : 2 * have;
}

/* The number of tagged fields that follow. */
static inline uint32_t pb_read_tag_count(pb_reader *reader)
{
    const uint32_t count = pb_read_uvarint(reader);
    if (count <= PB_TAGGED_MAX_COUNT)
        return count;
    pb_reader_fail(reader, -EBADMSG);
    return 0;
}

/* Head of one tagged field: returns the position where its value ends, which lies within the frame. */
static inline size_t pb_read_tag(pb_reader *reader, uint32_t *tag)
{
    *tag = pb_read_uvarint(reader);
    const uint32_t size_bytes = pb_read_uvarint(reader);
    if (size_bytes > pb_reader_left(reader))
        pb_reader_fail(reader, -EBADMSG);
    return reader->error != 0 ? reader->length : reader->position + size_bytes;
}

/* A tagged field's value must end where its size said. */
static inline void pb_reader_expect(pb_reader *reader, size_t end_position)
{
    if (reader->position != end_position)
        pb_reader_fail(reader, -EBADMSG);
}

/* Pass over what is left of a tagged field's value. */
static inline void pb_reader_skip_to(pb_reader *reader, size_t end_position)
{
    PB_ASSERT(end_position <= reader->length);
    if (reader->error == 0)
        reader->position = end_position;
}

/* pb_read_skip_tags for a section that has any. */
void pb_read_skip_some_tags(pb_reader *reader, uint32_t count);

/* Pass over a whole section of tagged fields, none of which this side knows. Nearly all sections are empty. */
static inline void pb_read_skip_tags(pb_reader *reader)
{
    const uint32_t count = pb_read_tag_count(reader);
    if (__builtin_expect(count > 0, 0))
        pb_read_skip_some_tags(reader, count);
}

#endif
