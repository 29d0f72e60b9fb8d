/*
 * CRC32C with ARMv8's crc32c instruction in three lanes, joined by PMULL: the same scheme as crc32c_sse42.c, and the
 * same keys, because both instruction sets work on bit-reversed words. Any thread; stateless.
 */
#include "cpu/crc32c_impl.h"

#include <arm_acle.h>
#include <arm_neon.h>
#include <string.h>

/* Lane lengths in bytes, and x^(16 * lane - 33), x^(8 * lane - 33) mod P. */
enum { LONG_LANE = 2048, SHORT_LANE = 256 };
static const uint32_t LONG_KEYS[2] = {0x82f89c77U, 0xa51b6135U};
static const uint32_t SHORT_KEYS[2] = {0xdd7e3b0cU, 0xb9e02b86U};

static bool supported(const pb_cpu_features *features)
{
    return features->arm_crc && features->arm_pmull;
}

static inline uint64_t load(const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof(word));
    return word;
}

static inline uint64_t product(uint32_t state, uint32_t key)
{
    return vgetq_lane_u64(vreinterpretq_u64_p128(vmull_p64((poly64_t)state, (poly64_t)key)), 0);
}

static inline uint32_t three_lanes(uint32_t state, const uint8_t *data, size_t lane, const uint32_t *keys)
{
    uint32_t a = state;
    uint32_t b = 0;
    uint32_t c = 0;
    for (size_t i = 0; i < lane; i += 8) {
        a = __crc32cd(a, load(data + i));
        b = __crc32cd(b, load(data + lane + i));
        c = __crc32cd(c, load(data + 2 * lane + i));
    }
    return __crc32cd(0, product(a, keys[0]) ^ product(b, keys[1])) ^ c;
}

static uint32_t update(uint32_t state, const uint8_t *data, size_t length)
{
    for (; length >= 3 * LONG_LANE; data += 3 * LONG_LANE, length -= 3 * LONG_LANE)
        state = three_lanes(state, data, LONG_LANE, LONG_KEYS);
    for (; length >= 3 * SHORT_LANE; data += 3 * SHORT_LANE, length -= 3 * SHORT_LANE)
        state = three_lanes(state, data, SHORT_LANE, SHORT_KEYS);
    for (; length >= 8; data += 8, length -= 8)
        state = __crc32cd(state, load(data));
    for (; length > 0; data++, length--)
        state = __crc32cb(state, *data);
    return state;
}

static uint32_t update_copy(uint32_t state, uint8_t *destination, const uint8_t *source, size_t length)
{
    /* In pieces that stay in the first-level cache between the two passes. */
    enum { PIECE_BYTES = 3 * LONG_LANE };
    while (length > 0) {
        size_t piece = length < PIECE_BYTES ? length : PIECE_BYTES;
        memcpy(destination, source, piece);
        state = update(state, destination, piece);
        destination += piece;
        source += piece;
        length -= piece;
    }
    return state;
}

const pb_crc32c_impl pb_crc32c_arm = {"arm", supported, update, update_copy};
