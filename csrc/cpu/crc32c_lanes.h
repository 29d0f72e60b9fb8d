/*
 * CRC32C by three lanes of a crc32 instruction and nothing else: the whole of `run`, for a file that defines `join`.
 * Any thread; stateless.
 */
#ifndef PB_CPU_CRC32C_LANES_H
#define PB_CPU_CRC32C_LANES_H

#include "cpu/crc32c_word.h"

enum { LONG_LANE = 2048, SHORT_LANE = 256 };

/* The register after the bytes of all three lanes; `lane` is one of the two lengths. */
static inline uint64_t join(crc_lanes lanes, size_t lane);

PB_CRC32C_INLINE uint32_t run(uint32_t start, uint8_t *destination, const uint8_t *source, size_t length)
{
    uint64_t state = start;
    size_t done = 0;
    for (size_t lane = LONG_LANE;; lane = SHORT_LANE) {
        for (; length - done >= 3 * lane; done += 3 * lane) {
            crc_lanes lanes = {.first = state};
            for (size_t i = 0; i < lane; i += 8)
                step(&lanes, destination, source, lane, done + i);
            state = join(lanes, lane);
        }
        if (lane == SHORT_LANE)
            break;
    }
    return finish(state, destination == NULL ? NULL : destination + done, source + done, length - done);
}

#endif
