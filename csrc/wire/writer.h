/*
 * Writes Kafka's primitive types into a buffer that grows, or into one that the caller lends.
 *
 * Errors stick: the first one (-ENOMEM, -ENOSPC, -EMSGSIZE, -EINVAL, or a positive Kafka error code) is kept in
 * `error`, later writes do nothing. A records field whose data is NULL but whose length is not 0 leaves a gap. Only the
 * length prefix is written, because those bytes leave by sendfile, and the gap's place and length are noted. Runs on
 * the owner's thread.
 */
#ifndef PB_WIRE_WRITER_H
#define PB_WIRE_WRITER_H

#include "wire/reader.h"

/* Record bytes that belong at `position` of the output but are not in it. Gaps lie in ascending order of position. */
typedef struct pb_gap {
    size_t position;
    int32_t length;
} pb_gap;

/*
 * `data` holds `length` written bytes. A growing writer owns `data` and `gaps`; a fixed one borrows both. The frame on
 * the wire is length + gap_bytes long.
 */
typedef struct pb_writer {
    uint8_t *data;
    size_t length;
    size_t capacity;
    size_t limit_bytes; /* growing: the most that `data` may hold; fixed: 0 */
    pb_gap *gaps;
    size_t gap_count;
    size_t gap_capacity;
    size_t gap_bytes; /* sum of the gaps' lengths */
    int error;
} pb_writer;

/* A writer whose memory comes from malloc, up to `limit_bytes` > 0. Release it with pb_writer_free. */
void pb_writer_init(pb_writer *writer, size_t limit_bytes);

/* A writer into borrowed memory. With `gap_capacity` 0 a gap is an error (-ENOSPC). */
void pb_writer_init_fixed(pb_writer *writer, void *data, size_t capacity, pb_gap *gaps, size_t gap_capacity);

/* Forget what was written and the error; keep the memory. */
void pb_writer_reset(pb_writer *writer);

/* Release what a growing writer owns; a fixed one is only reset. */
void pb_writer_free(pb_writer *writer);

/* Make room for `count` more bytes; 0, or the error that now sticks. */
int pb_writer_grow(pb_writer *writer, size_t count);

static inline void pb_writer_fail(pb_writer *writer, int error)
{
    PB_ASSERT(error != 0);
    if (writer->error == 0)
        writer->error = error;
}

/* `count` bytes to be filled by the caller at once, or NULL after an error. */
static inline uint8_t *pb_writer_claim(pb_writer *writer, size_t count)
{
    PB_ASSERT(writer->length <= writer->capacity);
    if (__builtin_expect(writer->error != 0, 0))
        return NULL;
    if (__builtin_expect(count > writer->capacity - writer->length, 0) && pb_writer_grow(writer, count) != 0)
        return NULL;
    uint8_t *at = writer->data + writer->length;
    writer->length += count;
    return at;
}

static inline void pb_write_raw(pb_writer *writer, const void *data, size_t count)
{
    uint8_t *at = pb_writer_claim(writer, count);
    if (at != NULL && count > 0)
        memcpy(at, data, count);
}

/* Leave a gap of `length` > 0 bytes here, with no prefix. */
void pb_writer_leave_gap(pb_writer *writer, int32_t length);

static inline void pb_write_int8(pb_writer *writer, int8_t value)
{
    pb_write_raw(writer, &value, sizeof(value));
}

static inline void pb_write_bool(pb_writer *writer, bool value)
{
    pb_write_int8(writer, value ? 1 : 0);
}

static inline void pb_write_uint16(pb_writer *writer, uint16_t value)
{
    value = htobe16(value);
    pb_write_raw(writer, &value, sizeof(value));
}

static inline void pb_write_int16(pb_writer *writer, int16_t value)
{
    pb_write_uint16(writer, (uint16_t)value);
}

static inline void pb_write_uint32(pb_writer *writer, uint32_t value)
{
    value = htobe32(value);
    pb_write_raw(writer, &value, sizeof(value));
}

static inline void pb_write_int32(pb_writer *writer, int32_t value)
{
    pb_write_uint32(writer, (uint32_t)value);
}

static inline void pb_write_int64(pb_writer *writer, int64_t value)
{
    const uint64_t bits = htobe64((uint64_t)value);
    pb_write_raw(writer, &bits, sizeof(bits));
}

static inline void pb_write_float64(pb_writer *writer, double value)
{
    int64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    pb_write_int64(writer, bits);
}

static inline void pb_write_uuid(pb_writer *writer, const pb_uuid *uuid)
{
    pb_write_raw(writer, uuid->bytes, PB_UUID_BYTES);
}

/* Bytes of an unsigned varint at `out`, which has room for 5; returns how many. */
static inline size_t pb_put_uvarint(uint8_t *out, uint32_t value)
{
    size_t count = 0;
    while (value >= 0x80) {
        out[count++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    out[count++] = (uint8_t)value;
    PB_ASSERT(count <= 5);
    return count;
}

static inline void pb_write_uvarint(pb_writer *writer, uint32_t value)
{
    uint8_t bytes[5];
    pb_write_raw(writer, bytes, pb_put_uvarint(bytes, value));
}

/* A count or a length of bytes; -1 writes null, which -EINVAL refuses where `nullable` is false. */
static inline void pb_write_length(pb_writer *writer, int32_t length, bool compact, bool nullable)
{
    if (length < -1 || (length == -1 && !nullable))
        pb_writer_fail(writer, -EINVAL);
    else if (compact)
        pb_write_uvarint(writer, (uint32_t)length + 1);
    else
        pb_write_int32(writer, length);
}

/* A string; -EMSGSIZE when it is too long for any version. */
void pb_write_string(pb_writer *writer, pb_slice value, bool compact, bool nullable);

void pb_write_bytes(pb_writer *writer, pb_slice value, bool compact, bool nullable);

/* A records field: like bytes, or a gap. */
void pb_write_records(pb_writer *writer, pb_slice value, bool compact, bool nullable);

/*
 * A tagged field's value, whose size stands before it: begin, write the value, end with what begin returned. There must
 * be no gap within.
 */
size_t pb_writer_begin_sized(pb_writer *writer);
void pb_writer_end_sized(pb_writer *writer, size_t mark);

/* Overwrite an int32 written before, such as a frame's length. */
void pb_writer_patch_int32(pb_writer *writer, size_t position, int32_t value);

#endif
