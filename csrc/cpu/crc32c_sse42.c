/*
 * CRC32C with SSE4.2's crc32 instruction. It has a latency of three cycles and a throughput of one, so three lanes run
 * side by side and are joined by carry-less multiplication: about 26 GB/s against 9 for one lane. Any thread;
 * stateless.
 *
 * Joining: a lane that is followed by n bytes counts x^(8n) times. For a register r and k = x^(8n - 33) mod P, the
 * 64-bit carry-less product of r and k, taken as eight message bytes, gives r * x^(8n): crc32 over eight bytes
 * multiplies by x^32 and the product of two bit-reversed words lies one bit low.
 */
#include "cpu/crc32c_impl.h"

#include <immintrin.h>
#include <string.h>

/* Lane lengths in bytes, and x^(16 * lane - 33), x^(8 * lane - 33) mod P. */
enum { LONG_LANE = 2048, SHORT_LANE = 256 };
static const uint32_t LONG_KEYS[2] = {0x82f89c77U, 0xa51b6135U};
static const uint32_t SHORT_KEYS[2] = {0xdd7e3b0cU, 0xb9e02b86U};

static bool supported(const pb_cpu_features *features)
{
    return features->sse42 && features->pclmul;
}

static inline uint64_t load(const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof(word));
    return word;
}

static inline uint64_t product(uint64_t state, uint32_t key)
{
    __m128i a = _mm_cvtsi64_si128((long long)state);
    __m128i b = _mm_cvtsi32_si128((int)key);
    return (uint64_t)_mm_cvtsi128_si64(_mm_clmulepi64_si128(a, b, 0));
}

/* One round of three lanes, copying when there is a destination. */
static inline __attribute__((always_inline)) uint64_t three_lanes(uint64_t state, uint8_t *destination,
                                                                  const uint8_t *source, size_t lane,
                                                                  const uint32_t *keys)
{
    uint64_t a = state;
    uint64_t b = 0;
    uint64_t c = 0;
    for (size_t i = 0; i < lane; i += 8) {
        uint64_t words[3] = {load(source + i), load(source + lane + i), load(source + 2 * lane + i)};
        if (destination != NULL) {
            memcpy(destination + i, &words[0], 8);
            memcpy(destination + lane + i, &words[1], 8);
            memcpy(destination + 2 * lane + i, &words[2], 8);
        }
        a = _mm_crc32_u64(a, words[0]);
        b = _mm_crc32_u64(b, words[1]);
        c = _mm_crc32_u64(c, words[2]);
    }
    return _mm_crc32_u64(0, product(a, keys[0]) ^ product(b, keys[1])) ^ c;
}

static inline __attribute__((always_inline)) uint32_t run(uint32_t start, uint8_t *destination, const uint8_t *source,
                                                          size_t length)
{
    uint64_t state = start;
    for (size_t lane = LONG_LANE;; lane = SHORT_LANE) {
        const uint32_t *keys = lane == LONG_LANE ? LONG_KEYS : SHORT_KEYS;
        for (; length >= 3 * lane; source += 3 * lane, length -= 3 * lane) {
            state = three_lanes(state, destination, source, lane, keys);
            if (destination != NULL)
                destination += 3 * lane;
        }
        if (lane == SHORT_LANE)
            break;
    }
    if (destination != NULL && length > 0)
        memcpy(destination, source, length);
    for (; length >= 8; source += 8, length -= 8)
        state = _mm_crc32_u64(state, load(source));
    for (; length > 0; source++, length--)
        state = _mm_crc32_u8((uint32_t)state, *source);
    return (uint32_t)state;
}

static uint32_t update(uint32_t state, const uint8_t *data, size_t length)
{
    return run(state, NULL, data, length);
}

static uint32_t update_copy(uint32_t state, uint8_t *destination, const uint8_t *source, size_t length)
{
    return run(state, destination, source, length);
}

const pb_crc32c_impl pb_crc32c_sse42 = {"sse42", supported, update, update_copy};
