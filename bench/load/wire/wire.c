/* See wire.h. */
#include "wire/wire.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pbl_buffer_reserve(struct pbl_buffer *buffer, size_t more)
{
    if (buffer->capacity - buffer->size >= more)
        return;
    size_t capacity = buffer->capacity ? buffer->capacity : 256;
    while (capacity - buffer->size < more)
        capacity *= 2;
    uint8_t *data = realloc(buffer->data, capacity);
    if (!data) {
        fprintf(stderr, "pbload: out of memory for a buffer of %zu bytes\n", capacity);
        abort();
    }
    buffer->data = data;
    buffer->capacity = capacity;
}

void pbl_buffer_free(struct pbl_buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct pbl_buffer){0};
}

void pbl_put_bytes(struct pbl_buffer *buffer, const void *data, size_t size)
{
    if (size == 0)
        return;
    pbl_buffer_reserve(buffer, size);
    memcpy(buffer->data + buffer->size, data, size);
    buffer->size += size;
}

void pbl_put_i8(struct pbl_buffer *buffer, int8_t value)
{
    pbl_put_bytes(buffer, &value, 1);
}

void pbl_put_i16(struct pbl_buffer *buffer, int16_t value)
{
    uint16_t wire = htobe16((uint16_t)value);
    pbl_put_bytes(buffer, &wire, sizeof wire);
}

void pbl_put_i32(struct pbl_buffer *buffer, int32_t value)
{
    uint32_t wire = htobe32((uint32_t)value);
    pbl_put_bytes(buffer, &wire, sizeof wire);
}

void pbl_put_i64(struct pbl_buffer *buffer, int64_t value)
{
    uint64_t wire = htobe64((uint64_t)value);
    pbl_put_bytes(buffer, &wire, sizeof wire);
}

void pbl_put_uvarint(struct pbl_buffer *buffer, uint64_t value)
{
    while (value >= 0x80) {
        pbl_put_i8(buffer, (int8_t)(value | 0x80));
        value >>= 7;
    }
    pbl_put_i8(buffer, (int8_t)value);
}

void pbl_put_varint(struct pbl_buffer *buffer, int64_t value)
{
    pbl_put_uvarint(buffer, ((uint64_t)value << 1) ^ (uint64_t)(value >> 63));
}

void pbl_put_string(struct pbl_buffer *buffer, const char *text)
{
    pbl_put_i16(buffer, text ? (int16_t)strlen(text) : -1);
    if (text)
        pbl_put_bytes(buffer, text, strlen(text));
}

void pbl_put_compact_string(struct pbl_buffer *buffer, const char *text)
{
    pbl_put_uvarint(buffer, text ? strlen(text) + 1 : 0);
    if (text)
        pbl_put_bytes(buffer, text, strlen(text));
}

void pbl_put_i32_bytes(struct pbl_buffer *buffer, const void *data, size_t size)
{
    pbl_put_i32(buffer, (int32_t)size);
    pbl_put_bytes(buffer, data, size);
}

void pbl_set_i32(uint8_t *at, int32_t value)
{
    uint32_t wire = htobe32((uint32_t)value);
    memcpy(at, &wire, sizeof wire);
}

void pbl_set_i64(uint8_t *at, int64_t value)
{
    uint64_t wire = htobe64((uint64_t)value);
    memcpy(at, &wire, sizeof wire);
}

int16_t pbl_load_i16(const uint8_t *at)
{
    uint16_t wire;
    memcpy(&wire, at, sizeof wire);
    return (int16_t)be16toh(wire);
}

int32_t pbl_load_i32(const uint8_t *at)
{
    uint32_t wire;
    memcpy(&wire, at, sizeof wire);
    return (int32_t)be32toh(wire);
}

int64_t pbl_load_i64(const uint8_t *at)
{
    uint64_t wire;
    memcpy(&wire, at, sizeof wire);
    return (int64_t)be64toh(wire);
}

struct pbl_slice pbl_get_bytes(struct pbl_reader *reader, size_t size)
{
    if (reader->failed || (size_t)(reader->end - reader->at) < size) {
        reader->failed = true;
        return (struct pbl_slice){0};
    }
    struct pbl_slice slice = {.data = reader->at, .size = size};
    reader->at += size;
    return slice;
}

int8_t pbl_get_i8(struct pbl_reader *reader)
{
    struct pbl_slice slice = pbl_get_bytes(reader, 1);
    return slice.data ? (int8_t)slice.data[0] : 0;
}

int16_t pbl_get_i16(struct pbl_reader *reader)
{
    struct pbl_slice slice = pbl_get_bytes(reader, 2);
    return slice.data ? pbl_load_i16(slice.data) : 0;
}

int32_t pbl_get_i32(struct pbl_reader *reader)
{
    struct pbl_slice slice = pbl_get_bytes(reader, 4);
    return slice.data ? pbl_load_i32(slice.data) : 0;
}

int64_t pbl_get_i64(struct pbl_reader *reader)
{
    struct pbl_slice slice = pbl_get_bytes(reader, 8);
    return slice.data ? pbl_load_i64(slice.data) : 0;
}

uint64_t pbl_get_uvarint(struct pbl_reader *reader)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte = (uint8_t)pbl_get_i8(reader);
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
    reader->failed = true;
    return 0;
}

struct pbl_slice pbl_get_string(struct pbl_reader *reader)
{
    int16_t size = pbl_get_i16(reader);
    return size < 0 ? (struct pbl_slice){0} : pbl_get_bytes(reader, (size_t)size);
}

struct pbl_slice pbl_get_i32_bytes(struct pbl_reader *reader)
{
    int32_t size = pbl_get_i32(reader);
    return size < 0 ? (struct pbl_slice){0} : pbl_get_bytes(reader, (size_t)size);
}

struct pbl_slice pbl_get_compact_bytes(struct pbl_reader *reader)
{
    uint64_t size = pbl_get_uvarint(reader);
    return size == 0 ? (struct pbl_slice){0} : pbl_get_bytes(reader, (size_t)(size - 1));
}

/* No element of any array is empty, so a count above the bytes left is a malformed frame. */
static int32_t checked_count(struct pbl_reader *reader, int64_t count)
{
    if (count > reader->end - reader->at) {
        reader->failed = true;
        return 0;
    }
    return count < 0 ? 0 : (int32_t)count;
}

int32_t pbl_get_array_count(struct pbl_reader *reader)
{
    return checked_count(reader, pbl_get_i32(reader));
}

int32_t pbl_get_compact_array_count(struct pbl_reader *reader)
{
    uint64_t count = pbl_get_uvarint(reader);
    return checked_count(reader, count > INT32_MAX ? INT32_MAX : (int64_t)count - 1);
}

void pbl_skip_tags(struct pbl_reader *reader)
{
    uint64_t count = pbl_get_uvarint(reader);
    for (uint64_t i = 0; i < count && !reader->failed; i++) {
        pbl_get_uvarint(reader);
        pbl_get_bytes(reader, (size_t)pbl_get_uvarint(reader));
    }
}
