/*
 * Helpers for the CRC32C implementations that use the CPU's crc32 instruction. Only files compiled for SSE4.2 or for
 * ARMv8's CRC32 may include this header. Any thread; stateless.
 *
 * The crc32 instruction has a latency of about three cycles, but the CPU can start one each cycle. So the data is cut
 * into three parts of equal length, called lanes, whose CRCs are computed at the same time and joined at the end.
 */
#ifndef PB_CPU_CRC32C_WORD_H
#define PB_CPU_CRC32C_WORD_H

#include <string.h>

#include "cpu/crc32c_impl.h"

#if defined(__SSE4_2__)
#include <nmmintrin.h>
#if defined(__PCLMUL__)
#include <wmmintrin.h>
#endif
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#else
#error "compile the files that include this for a CPU with a crc32 instruction"
#endif

/* The CRC register after eight more bytes. */
static inline uint64_t crc_word(uint64_t state, uint64_t word)
{
#if defined(__SSE4_2__)
    return _mm_crc32_u64(state, word);
#else
    return __crc32cd((uint32_t)state, word);
#endif
}

/* The CRC register after one more byte. */
static inline uint64_t crc_byte(uint64_t state, uint8_t byte)
{
#if defined(__SSE4_2__)
    return _mm_crc32_u8((uint32_t)state, byte);
#else
    return __crc32cb((uint32_t)state, byte);
#endif
}

#if defined(__PCLMUL__)
/* The carry-less product of a CRC register and a key, see crc32c_pclmul.c. */
static inline uint64_t product(uint64_t state, uint64_t key)
{
    return (uint64_t)_mm_cvtsi128_si64(
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)state), _mm_cvtsi64_si128((long long)key), 0));
}
#endif

/* The CRC registers of three lanes. The lanes have equal lengths and lie one behind the other. */
typedef struct crc_lanes {
    uint64_t first, second, third;
} crc_lanes;

/* Load the word at `position` of `source`. If `destination` is not NULL, store the word at `position` there too. */
PB_CRC32C_INLINE uint64_t take_word(uint8_t *destination, const uint8_t *source, size_t position)
{
    uint64_t word;
    memcpy(&word, source + position, sizeof(word));
    if (destination != NULL)
        memcpy(destination + position, &word, sizeof(word));
    return word;
}

/* Take eight bytes of each lane into the registers. The first lane's are at `position`, the second lane's `lane` bytes
 * behind them, and the third lane's 2 * `lane` bytes. */
PB_CRC32C_INLINE void step(crc_lanes *lanes, uint8_t *destination, const uint8_t *source, size_t lane, size_t position)
{
    lanes->first = crc_word(lanes->first, take_word(destination, source, position));
    lanes->second = crc_word(lanes->second, take_word(destination, source, position + lane));
    lanes->third = crc_word(lanes->third, take_word(destination, source, position + 2 * lane));
}

/* Take the last bytes of the data, which are too few for lanes. Returns the final register. */
PB_CRC32C_INLINE uint32_t finish(uint64_t state, uint8_t *destination, const uint8_t *source, size_t length)
{
    size_t position = 0;
    for (; length - position >= 8; position += 8)
        state = crc_word(state, take_word(destination, source, position));
    for (; position < length; position++) {
        if (destination != NULL)
            destination[position] = source[position];
        state = crc_byte(state, source[position]);
    }
    return (uint32_t)state;
}

#endif
