/* The parts of the wire writer that allocate or are too large to inline; see wire/writer.h. */
#include "wire/writer.h"

#include <stdlib.h>

#define FIRST_CAPACITY_BYTES 512u
#define FIRST_GAP_CAPACITY 16u

void pb_writer_init(pb_writer *writer, size_t limit_bytes)
{
    PB_ASSERT(limit_bytes > 0);
    *writer = (pb_writer){.limit_bytes = limit_bytes};
}

void pb_writer_init_fixed(pb_writer *writer, void *data, size_t capacity, pb_gap *gaps, size_t gap_capacity)
{
    *writer = (pb_writer){.data = data, .capacity = capacity, .gaps = gaps, .gap_capacity = gap_capacity};
}

void pb_writer_reset(pb_writer *writer)
{
    writer->length = 0;
    writer->gap_count = 0;
    writer->gap_bytes = 0;
    writer->error = 0;
}

void pb_writer_free(pb_writer *writer)
{
    pb_writer_reset(writer);
    if (writer->limit_bytes == 0)
        return;
    free(writer->data);
    free(writer->gaps);
    pb_writer_init(writer, writer->limit_bytes);
}

int pb_writer_grow(pb_writer *writer, size_t count)
{
    if (writer->limit_bytes == 0 || count > writer->limit_bytes - writer->length) {
        pb_writer_fail(writer, -ENOSPC);
        return writer->error;
    }
    size_t capacity = writer->capacity < FIRST_CAPACITY_BYTES ? FIRST_CAPACITY_BYTES : writer->capacity * 2;
    if (capacity < writer->length + count)
        capacity = writer->length + count;
    if (capacity > writer->limit_bytes)
        capacity = writer->limit_bytes;
    uint8_t *data = realloc(writer->data, capacity);
    if (data == NULL) {
        pb_writer_fail(writer, -ENOMEM);
        return writer->error;
    }
    writer->data = data;
    writer->capacity = capacity;
    PB_ASSERT(writer->capacity - writer->length >= count);
    return 0;
}

void pb_write_string(pb_writer *writer, pb_slice value, bool compact, bool nullable)
{
    if (value.length > PB_MAX_STRING_BYTES)
        pb_writer_fail(writer, -EMSGSIZE);
    else if (value.length < -1 || (value.length == -1 && !nullable))
        pb_writer_fail(writer, -EINVAL);
    else if (compact)
        pb_write_uvarint(writer, (uint32_t)value.length + 1);
    else
        pb_write_int16(writer, (int16_t)value.length);
    if (value.length > 0 && writer->error == 0)
        pb_write_raw(writer, value.data, (size_t)value.length);
}

void pb_write_bytes(pb_writer *writer, pb_slice value, bool compact, bool nullable)
{
    pb_write_length(writer, value.length, compact, nullable);
    if (value.length > 0)
        pb_write_raw(writer, value.data, (size_t)value.length);
}

static inline void note_gap(pb_writer *writer, int32_t length)
{
    if (writer->gap_count == writer->gap_capacity) {
        if (writer->limit_bytes == 0) {
            pb_writer_fail(writer, -ENOSPC);
            return;
        }
        const size_t capacity = writer->gap_capacity == 0 ? FIRST_GAP_CAPACITY : writer->gap_capacity * 2;
        pb_gap *gaps = realloc(writer->gaps, capacity * sizeof(*gaps));
        if (gaps == NULL) {
            pb_writer_fail(writer, -ENOMEM);
            return;
        }
        writer->gaps = gaps;
        writer->gap_capacity = capacity;
    }
    writer->gaps[writer->gap_count++] = (pb_gap){writer->length, length};
    writer->gap_bytes += (size_t)length;
}

void pb_writer_leave_gap(pb_writer *writer, int32_t length)
{
    PB_ASSERT(length > 0);
    if (writer->error == 0)
        note_gap(writer, length);
}

void pb_write_records(pb_writer *writer, pb_slice value, bool compact, bool nullable)
{
    if (value.data != NULL || value.length <= 0) {
        pb_write_bytes(writer, value, compact, nullable);
        return;
    }
    pb_write_length(writer, value.length, compact, nullable);
    if (writer->error == 0)
        note_gap(writer, value.length);
}

size_t pb_writer_begin_sized(pb_writer *writer)
{
    /* One byte for the size; a value of 128 bytes or more is moved when its size is known. */
    pb_write_int8(writer, 0);
    return writer->length;
}

void pb_writer_end_sized(pb_writer *writer, size_t mark)
{
    if (writer->error != 0)
        return;
    PB_ASSERT(mark > 0 && mark <= writer->length);
    PB_ASSERT(writer->gap_count == 0 || writer->gaps[writer->gap_count - 1].position < mark);
    const size_t size_bytes = writer->length - mark;
    PB_ASSERT(size_bytes <= INT32_MAX);
    uint8_t bytes[5];
    const size_t prefix_bytes = pb_put_uvarint(bytes, (uint32_t)size_bytes);
    if (prefix_bytes > 1 && pb_writer_claim(writer, prefix_bytes - 1) == NULL)
        return;
    memmove(writer->data + mark - 1 + prefix_bytes, writer->data + mark, size_bytes);
    memcpy(writer->data + mark - 1, bytes, prefix_bytes);
}

void pb_writer_patch_int32(pb_writer *writer, size_t position, int32_t value)
{
    if (writer->error != 0)
        return;
    PB_ASSERT(writer->length >= sizeof(value) && position <= writer->length - sizeof(value));
    const uint32_t bits = htobe32((uint32_t)value);
    memcpy(writer->data + position, &bits, sizeof(bits));
}
