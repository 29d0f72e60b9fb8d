/*
 * CRC32C without special instructions: eight table look-ups for eight bytes ("slicing by 8", Kounavis and Berry 2005).
 * About 2 GB/s where the SSE4.2 way gives 26. The tables are filled before the first use; then any thread reads them.
 */
#include "cpu/crc32c_impl.h"

#include <string.h>

/* tables[k][b]: what byte b does to the register when k more bytes follow it. */
static uint32_t tables[8][256];

static void prepare(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t state = byte;
        for (int bit = 0; bit < 8; bit++)
            state = (state >> 1) ^ (PB_CRC32C_POLYNOMIAL & (0U - (state & 1)));
        tables[0][byte] = state;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int k = 1; k < 8; k++)
            tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xff];
}

static bool supported(const pb_cpu_features *features)
{
    (void)features;
    return true;
}

PB_CRC32C_INLINE uint32_t run(uint32_t state, uint8_t *destination, const uint8_t *source, size_t length)
{
    size_t position = 0;
    for (; length - position >= 8; position += 8) {
        uint64_t word;
        memcpy(&word, source + position, 8);
        if (destination != NULL)
            memcpy(destination + position, &word, 8);
        word ^= state;
        state = tables[7][word & 0xff] ^ tables[6][(word >> 8) & 0xff] ^ tables[5][(word >> 16) & 0xff] ^
                tables[4][(word >> 24) & 0xff] ^ tables[3][(word >> 32) & 0xff] ^ tables[2][(word >> 40) & 0xff] ^
                tables[1][(word >> 48) & 0xff] ^ tables[0][word >> 56];
    }
    for (; position < length; position++) {
        if (destination != NULL)
            destination[position] = source[position];
        state = (state >> 8) ^ tables[0][(state ^ source[position]) & 0xff];
    }
    return state;
}

PB_CRC32C_IMPLEMENTATION(pb_crc32c_portable, "portable", prepare);
