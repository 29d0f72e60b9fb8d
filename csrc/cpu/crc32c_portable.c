/*
 * CRC32C without special instructions: eight table look-ups for eight bytes ("slicing by 8", Kounavis and Berry 2005).
 * About 2 GB/s where the SSE4.2 way gives 26. The tables are filled once, before main(); then any thread reads them.
 */
#include "cpu/crc32c_impl.h"

#include <string.h>

/* tables[k][b]: what byte b does to the register when k more bytes follow it. */
static uint32_t tables[8][256];

void pb_crc32c_portable_init(void)
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

static uint32_t update(uint32_t state, const uint8_t *data, size_t length)
{
    for (; length >= 8; data += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        word ^= state;
        state = tables[7][word & 0xff] ^ tables[6][(word >> 8) & 0xff] ^ tables[5][(word >> 16) & 0xff] ^
                tables[4][(word >> 24) & 0xff] ^ tables[3][(word >> 32) & 0xff] ^ tables[2][(word >> 40) & 0xff] ^
                tables[1][(word >> 48) & 0xff] ^ tables[0][word >> 56];
    }
    for (; length > 0; data++, length--)
        state = (state >> 8) ^ tables[0][(state ^ *data) & 0xff];
    return state;
}

static uint32_t update_copy(uint32_t state, uint8_t *destination, const uint8_t *source, size_t length)
{
    /* In pieces that stay in the first-level cache between the two passes. */
    enum { PIECE_BYTES = 8192 };
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

const pb_crc32c_impl pb_crc32c_portable = {"portable", supported, update, update_copy};
