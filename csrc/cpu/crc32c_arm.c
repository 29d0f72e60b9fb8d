/*
 * CRC32C with ARMv8's crc32c instruction in three lanes, joined by PMULL. Any thread; stateless.
 *
 * Joining: a lane that is followed by n bytes counts x^(8n) times. Let r be a register and k = x^(8n - 33) mod P. Their
 * 64-bit carry-less product, taken as eight message bytes, gives r * x^(8n). The reason: crc32c over eight bytes
 * multiplies by x^32, and the product of two bit-reversed words lies one bit low.
 */
#include "cpu/crc32c_lanes.h"

#include <arm_neon.h>

/* x^(16 * lane - 33), x^(8 * lane - 33) mod P. */
static const uint64_t LONG_KEYS[2] = {0x82f89c77U, 0xa51b6135U};
static const uint64_t SHORT_KEYS[2] = {0xdd7e3b0cU, 0xb9e02b86U};

static bool supported(const pb_cpu_features *features)
{
    return features->arm_crc && features->arm_pmull;
}

static inline uint64_t product(uint64_t state, uint64_t key)
{
    return vgetq_lane_u64(vreinterpretq_u64_p128(vmull_p64((poly64_t)state, (poly64_t)key)), 0);
}

static inline uint64_t join(crc_lanes lanes, size_t lane)
{
    const uint64_t *keys = lane == LONG_LANE ? LONG_KEYS : SHORT_KEYS;
    return crc_word(0, product(lanes.first, keys[0]) ^ product(lanes.second, keys[1])) ^ lanes.third;
}

PB_CRC32C_IMPLEMENTATION(pb_crc32c_arm, "arm", NULL);
