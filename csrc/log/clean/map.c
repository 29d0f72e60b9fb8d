/* The cleaner's map of keys. One thread; fails on memory only. */
#include "log/clean/map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"

enum { HUGE_PAGE_BYTES = 2 << 20 };

/* 64 MiB of bits: half a billion offsets in one pass. */
static const int64_t LIVE_OFFSETS_MAX = INT64_C(512) << 20;

static inline uint64_t rotate_left(uint64_t value, int bits)
{
    return value << bits | value >> (64 - bits);
}

static inline uint64_t load_le(const uint8_t *bytes, size_t length)
{
    uint64_t value = 0;
    memcpy(&value, bytes, length);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    return value;
}

static inline void sip_rounds(uint64_t v[4], int count)
{
    for (int i = 0; i < count; i++) {
        v[0] += v[1];
        v[1] = rotate_left(v[1], 13) ^ v[0];
        v[0] = rotate_left(v[0], 32);
        v[2] += v[3];
        v[3] = rotate_left(v[3], 16) ^ v[2];
        v[0] += v[3];
        v[3] = rotate_left(v[3], 21) ^ v[0];
        v[2] += v[1];
        v[1] = rotate_left(v[1], 17) ^ v[2];
        v[2] = rotate_left(v[2], 32);
    }
}

pb_clean_hash pb_clean_hash_bytes(const uint64_t seed[2], const uint8_t *bytes, size_t length)
{
    uint64_t v[4] = {
        seed[0] ^ UINT64_C(0x736f6d6570736575),
        seed[1] ^ UINT64_C(0x646f72616e646f6d) ^ 0xee,
        seed[0] ^ UINT64_C(0x6c7967656e657261),
        seed[1] ^ UINT64_C(0x7465646279746573),
    };
    uint64_t last = (uint64_t)length << 56;
    for (; length >= 8; length -= 8, bytes += 8) {
        uint64_t word = load_le(bytes, 8);
        v[3] ^= word;
        sip_rounds(v, 2);
        v[0] ^= word;
    }
    last |= load_le(bytes, length);
    v[3] ^= last;
    sip_rounds(v, 2);
    v[0] ^= last;
    v[2] ^= 0xee;
    sip_rounds(v, 4);
    pb_clean_hash hash = {.low = v[0] ^ v[1] ^ v[2] ^ v[3]};
    v[1] ^= 0xdd;
    sip_rounds(v, 4);
    hash.high = v[0] ^ v[1] ^ v[2] ^ v[3];
    return hash;
}

/* Zeros, in huge pages where there are some: every look into a large table is at another place. */
static void *allocate(size_t bytes)
{
    if (bytes < HUGE_PAGE_BYTES)
        return calloc(1, bytes);
    bytes = (bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    void *memory = aligned_alloc(HUGE_PAGE_BYTES, bytes);
    if (memory == NULL)
        return NULL;
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return memset(memory, 0, bytes);
}

int pb_clean_map_init(pb_clean_map *map, pb_io *io, int64_t bytes, int load_factor_percent, int64_t record_count)
{
    _Static_assert(sizeof(pb_clean_entry) == PB_CLEAN_MAP_ENTRY_BYTES, "entries are not padded");
    PB_ASSERT(load_factor_percent > 0 && load_factor_percent <= 100 && record_count >= 0);
    memset(map, 0, sizeof(*map));
    uint64_t most = bytes < 2 * PB_CLEAN_MAP_ENTRY_BYTES ? 2 : (uint64_t)bytes / PB_CLEAN_MAP_ENTRY_BYTES;
    map->limit = most * (uint64_t)load_factor_percent / 100;
    /* One entry stays free, so that every search ends; and without a single one there would be no progress. */
    if (map->limit >= most)
        map->limit = most - 1;
    if (map->limit == 0)
        map->limit = 1;
    /* Memory that would stay empty is not asked for; two thirds full, a search is short. */
    uint64_t useful = (uint64_t)record_count + (uint64_t)record_count / 2 + 2;
    map->capacity = useful < most ? useful : most;
    map->entries = allocate(map->capacity * sizeof(*map->entries));
    if (map->entries == NULL)
        return -ENOMEM;
    int rc = io->ops->random(io, map->seed, sizeof(map->seed));
    if (rc < 0)
        pb_clean_map_clear(map);
    return rc < 0 ? rc : 0;
}

void pb_clean_map_clear(pb_clean_map *map)
{
    free(map->entries);
    memset(map, 0, sizeof(*map));
}

/* Where the search for a key begins. */
static inline uint64_t place_of(const pb_clean_map *map, pb_clean_hash hash)
{
    return (uint64_t)((unsigned __int128)hash.low * map->capacity >> 64);
}

/* The key's entry, or the free one where it belongs. */
static inline pb_clean_entry *find(const pb_clean_map *map, pb_clean_hash hash)
{
    uint64_t at = place_of(map, hash);
    for (;;) {
        pb_clean_entry *entry = &map->entries[at];
        if (entry->next_offset == 0 || (entry->hash.low == hash.low && entry->hash.high == hash.high))
            return entry;
        if (++at == map->capacity)
            at = 0;
    }
}

pb_clean_hash pb_clean_map_expect(const pb_clean_map *map, const uint8_t *key, size_t length)
{
    pb_clean_hash hash = pb_clean_hash_bytes(map->seed, key, length);
    __builtin_prefetch(&map->entries[place_of(map, hash)], 1);
    return hash;
}

bool pb_clean_map_put(pb_clean_map *map, pb_clean_hash hash, int64_t offset)
{
    PB_ASSERT(offset >= 0);
    if (map->count >= map->limit || map->count + 1 >= map->capacity)
        return false;
    pb_clean_entry *entry = find(map, hash);
    map->count += entry->next_offset == 0;
    entry->hash = hash;
    entry->next_offset = (uint64_t)offset + 1;
    return true;
}

int64_t pb_clean_map_get(const pb_clean_map *map, const uint8_t *key, size_t length)
{
    if (map->count == 0)
        return -1;
    return (int64_t)find(map, pb_clean_hash_bytes(map->seed, key, length))->next_offset - 1;
}

int pb_live_offsets_init(pb_live_offsets *live, const pb_clean_map *map, int64_t first_offset, int64_t end_offset)
{
    PB_ASSERT(first_offset <= end_offset);
    *live = (pb_live_offsets){first_offset, end_offset, NULL};
    if (end_offset - first_offset > LIVE_OFFSETS_MAX)
        return 0;
    live->bits = calloc((size_t)(end_offset - first_offset) / 64 + 1, sizeof(*live->bits));
    if (live->bits == NULL)
        return -ENOMEM;
    for (uint64_t i = 0; i < map->capacity; i++) {
        if (map->entries[i].next_offset == 0)
            continue;
        int64_t offset = (int64_t)map->entries[i].next_offset - 1;
        PB_ASSERT(offset >= first_offset && offset < end_offset);
        uint64_t bit = (uint64_t)(offset - first_offset);
        live->bits[bit / 64] |= UINT64_C(1) << (bit % 64);
    }
    return 0;
}

void pb_live_offsets_clear(pb_live_offsets *live)
{
    free(live->bits);
    memset(live, 0, sizeof(*live));
}

bool pb_live_offsets_any(const pb_live_offsets *live, int64_t first_offset, int64_t last_offset)
{
    PB_ASSERT(pb_live_offsets_covers(live, first_offset, last_offset) && first_offset <= last_offset);
    uint64_t from = (uint64_t)(first_offset - live->first_offset);
    uint64_t to = (uint64_t)(last_offset - live->first_offset);
    for (uint64_t word = from / 64; word <= to / 64; word++) {
        uint64_t bits = live->bits[word];
        if (word == from / 64)
            bits &= ~UINT64_C(0) << (from % 64);
        if (word == to / 64)
            bits &= ~UINT64_C(0) >> (63 - to % 64);
        if (bits != 0)
            return true;
    }
    return false;
}
