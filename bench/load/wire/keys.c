/* See keys.h. */
#include "wire/keys.h"

#include "client/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* MurmurHash2, 32 bits, with the seed that Kafka's clients take; words are little-endian. */
static uint32_t murmur2(const uint8_t *data, size_t size)
{
    const uint32_t factor = 0x5bd1e995u;
    uint32_t hash = 0x9747b28cu ^ (uint32_t)size;
    for (; size >= 4; size -= 4, data += 4) {
        uint32_t word = data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
        word *= factor;
        word ^= word >> 24;
        hash = hash * factor ^ word * factor;
    }
    for (size_t i = size; i > 0; i--)
        hash ^= (uint32_t)data[i - 1] << (8 * (i - 1));
    if (size > 0)
        hash *= factor;
    hash ^= hash >> 13;
    hash *= factor;
    return hash ^ hash >> 15;
}

static size_t format(uint32_t number, char out[PBL_KEY_BYTES])
{
    return (size_t)snprintf(out, PBL_KEY_BYTES, "key-%u", number);
}

static void add(struct pbl_keys *keys, uint32_t partition, uint32_t number)
{
    uint32_t count = keys->counts[partition];
    if ((count & (count - 1)) == 0) { /* full: room is a power of two */
        size_t room = count ? 2 * (size_t)count : 1;
        keys->numbers[partition] = realloc(keys->numbers[partition], room * sizeof **keys->numbers);
        if (!keys->numbers[partition])
            pbl_fail("out of memory");
    }
    keys->numbers[partition][count] = number;
    keys->counts[partition]++;
}

void pbl_keys_open(struct pbl_keys *keys, uint32_t key_count, uint32_t partition_count)
{
    *keys = (struct pbl_keys){.partition_count = partition_count};
    keys->numbers = calloc(partition_count, sizeof *keys->numbers);
    keys->counts = calloc(partition_count, sizeof *keys->counts);
    if (!keys->numbers || !keys->counts)
        pbl_fail("out of memory");
    for (uint32_t number = 0; number < key_count; number++) {
        char key[PBL_KEY_BYTES];
        size_t size = format(number, key);
        add(keys, (murmur2((const uint8_t *)key, size) & 0x7fffffffu) % partition_count, number);
    }
}

void pbl_keys_close(struct pbl_keys *keys)
{
    for (uint32_t i = 0; i < keys->partition_count; i++)
        free(keys->numbers[i]);
    free(keys->numbers);
    free(keys->counts);
}

size_t pbl_keys_format(const struct pbl_keys *keys, uint32_t partition, uint32_t index, char out[PBL_KEY_BYTES])
{
    return format(keys->numbers[partition][index % keys->counts[partition]], out);
}
