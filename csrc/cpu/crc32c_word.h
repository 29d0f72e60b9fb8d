/*
 * Shared by the implementations with a crc32 instruction, in words of their instruction set: the three lanes and the
 * end of the data. The instruction takes about three cycles, but one can start in each: so three lanes run side by
 * side. For files compiled for SSE4.2 or for ARMv8's CRC32; any thread; stateless.
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

/* The register after eight more bytes. */
static inline uint64_t crc_word(uint64_t state, uint64_t word)
{
#if defined(__SSE4_2__)
    return _mm_crc32_u64(state, word);
#else
    return __crc32cd((uint32_t)state, word);
#endif
}

/* The register after one more byte. */
static inline uint64_t crc_byte(uint64_t state, uint8_t byte)
{
#if defined(__SSE4_2__)
    return _mm_crc32_u8((uint32_t)state, byte);
#else
    return __crc32cb((uint32_t)state, byte);
#endif
}

#if defined(__PCLMUL__)
/* Carry-less, of a register and a key: see crc32c_pclmul.c. */
static inline uint64_t product(uint64_t state, uint64_t key)
{
    return (uint64_t)_mm_cvtsi128_si64(
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)state), _mm_cvtsi64_si128((long long)key), 0));
}
#endif

/* Registers of three lanes of equal length that lie one behind the other. */
typedef struct crc_lanes {
    uint64_t first, second, third;
} crc_lanes;

/* Loads a word and, when there is a destination, stores it there too. */
PB_CRC32C_INLINE uint64_t take_word(uint8_t *destination, const uint8_t *source, size_t position)
{
    uint64_t word;
    memcpy(&word, source + position, sizeof(word));
    if (destination != NULL)
        memcpy(destination + position, &word, sizeof(word));
    return word;
}

/* Eight bytes of each lane: the first one's are at `position`, the others' one and two lengths of a lane behind it. */
PB_CRC32C_INLINE void step(crc_lanes *lanes, uint8_t *destination, const uint8_t *source, size_t lane, size_t position)
{
    lanes->first = crc_word(lanes->first, take_word(destination, source, position));
    lanes->second = crc_word(lanes->second, take_word(destination, source, position + lane));
    lanes->third = crc_word(lanes->third, take_word(destination, source, position + 2 * lane));
}

/* The last bytes, too few to be worth lanes. */
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
