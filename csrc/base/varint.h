/*
 * Variable-length integers: seven bits per byte, the lowest group first; signed ones in zig-zag form (Protocol Buffers'
 * encoding, as in Kafka's records and flexible messages, KIP-98 and KIP-482). Inline, stateless, any thread.
 *
 * A read returns the place after the number, or NULL when the bytes end first or the number has more than 5 (32-bit) or
 * 10 (64-bit) bytes. Bits beyond the type's width are dropped, as Kafka does. A write needs room for the longest form.
 */
#ifndef PB_BASE_VARINT_H
#define PB_BASE_VARINT_H

#include <stddef.h>
#include <stdint.h>

enum { PB_VARINT_MAX_BYTES = 5, PB_VARLONG_MAX_BYTES = 10 };

static inline const uint8_t *pb_unsigned_varlong_read(const uint8_t *p, const uint8_t *end, int max_bytes,
                                                      uint64_t *value)
{
    uint64_t result = 0;
    for (int i = 0; i < max_bytes && p < end; i++) {
        uint8_t byte = *p++;
        result |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            *value = result;
            return p;
        }
    }
    return NULL;
}

static inline const uint8_t *pb_unsigned_varint_read(const uint8_t *p, const uint8_t *end, uint32_t *value)
{
    if (p < end && *p < 0x80) {
        *value = *p;
        return p + 1;
    }
    uint64_t wide;
    p = pb_unsigned_varlong_read(p, end, PB_VARINT_MAX_BYTES, &wide);
    if (p != NULL)
        *value = (uint32_t)wide;
    return p;
}

static inline const uint8_t *pb_varint_read(const uint8_t *p, const uint8_t *end, int32_t *value)
{
    uint32_t raw;
    p = pb_unsigned_varint_read(p, end, &raw);
    if (p != NULL)
        *value = (int32_t)((raw >> 1) ^ (0U - (raw & 1)));
    return p;
}

static inline const uint8_t *pb_varlong_read(const uint8_t *p, const uint8_t *end, int64_t *value)
{
    uint64_t raw;
    p = pb_unsigned_varlong_read(p, end, PB_VARLONG_MAX_BYTES, &raw);
    if (p != NULL)
        *value = (int64_t)((raw >> 1) ^ (0U - (raw & 1)));
    return p;
}

static inline uint8_t *pb_unsigned_varlong_write(uint8_t *p, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *p++ = (uint8_t)(value | 0x80);
    *p++ = (uint8_t)value;
    return p;
}

static inline uint8_t *pb_varint_write(uint8_t *p, int32_t value)
{
    return pb_unsigned_varlong_write(p, ((uint32_t)value << 1) ^ (uint32_t)(value >> 31));
}

static inline uint8_t *pb_varlong_write(uint8_t *p, int64_t value)
{
    return pb_unsigned_varlong_write(p, ((uint64_t)value << 1) ^ (uint64_t)(value >> 63));
}

#endif
