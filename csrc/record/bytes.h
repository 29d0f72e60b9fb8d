/* Big-endian numbers in memory, without alignment. Inline, stateless. */
#ifndef PB_RECORD_BYTES_H
#define PB_RECORD_BYTES_H

#include <stdint.h>
#include <string.h>

static inline uint16_t pb_be16_load(const uint8_t *p)
{
    uint16_t value;
    memcpy(&value, p, sizeof(value));
    return __builtin_bswap16(value);
}

static inline uint32_t pb_be32_load(const uint8_t *p)
{
    uint32_t value;
    memcpy(&value, p, sizeof(value));
    return __builtin_bswap32(value);
}

static inline uint64_t pb_be64_load(const uint8_t *p)
{
    uint64_t value;
    memcpy(&value, p, sizeof(value));
    return __builtin_bswap64(value);
}

static inline void pb_be16_store(uint8_t *p, uint16_t value)
{
    value = __builtin_bswap16(value);
    memcpy(p, &value, sizeof(value));
}

static inline void pb_be32_store(uint8_t *p, uint32_t value)
{
    value = __builtin_bswap32(value);
    memcpy(p, &value, sizeof(value));
}

static inline void pb_be64_store(uint8_t *p, uint64_t value)
{
    value = __builtin_bswap64(value);
    memcpy(p, &value, sizeof(value));
}

#endif
