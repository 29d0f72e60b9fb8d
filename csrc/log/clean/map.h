/*
 * The cleaner's memory of keys: for each key of the dirty part, the offset of its last record.
 *
 * Keys are kept as 128-bit hashes: SipHash-2-4, seeded anew for each pass, so that nobody can make two keys of one
 * hash. An entry takes 24 bytes in an open table that never grows. One thread. pb_live_offsets is the same knowledge
 * turned round, one bit for each offset of the dirty part: set when that record is the last of its key.
 */
#ifndef PB_LOG_CLEAN_MAP_H
#define PB_LOG_CLEAN_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/io.h"

enum { PB_CLEAN_MAP_ENTRY_BYTES = 24 };

typedef struct pb_clean_hash {
    uint64_t low;
    uint64_t high;
} pb_clean_hash;

/* 0 in `next_offset` marks a free entry: it is the offset + 1. */
typedef struct pb_clean_entry {
    pb_clean_hash hash;
    uint64_t next_offset;
} pb_clean_entry;

typedef struct pb_clean_map {
    pb_clean_entry *entries;
    uint64_t capacity;
    uint64_t limit; /* no more entries than this */
    uint64_t count;
    uint64_t seed[2];
} pb_clean_map;

/* A map for at most `record_count` keys in at most `bytes` of memory, filled to `load_factor_percent`. 0 or -errno. */
int pb_clean_map_init(pb_clean_map *map, pb_io *io, int64_t bytes, int load_factor_percent, int64_t record_count);
void pb_clean_map_clear(pb_clean_map *map);
/* A key's hash, to be put soon: its place in the map is sent for. Memory answers many at once faster than one after the
 * other, so let some keys lie between expecting one and putting it. */
pb_clean_hash pb_clean_map_expect(const pb_clean_map *map, const uint8_t *key, size_t length);
/* Remember `offset` for the key; offsets come in ascending order. false: the map is full. */
bool pb_clean_map_put(pb_clean_map *map, pb_clean_hash hash, int64_t offset);
/* The offset of the key's last record, -1 when it is not known. */
int64_t pb_clean_map_get(const pb_clean_map *map, const uint8_t *key, size_t length);

/* SipHash-2-4 with 128 bits of output. */
pb_clean_hash pb_clean_hash_bytes(const uint64_t seed[2], const uint8_t *bytes, size_t length);

/* Offsets [first_offset, end_offset) as bits; without bits where they would take too much memory. */
typedef struct pb_live_offsets {
    int64_t first_offset;
    int64_t end_offset;
    uint64_t *bits; /* NULL: not known */
} pb_live_offsets;

/* Turn the map round for that range. -ENOMEM, or 0; without bits when the range is too wide. */
int pb_live_offsets_init(pb_live_offsets *live, const pb_clean_map *map, int64_t first_offset, int64_t end_offset);
void pb_live_offsets_clear(pb_live_offsets *live);

static inline bool pb_live_offsets_covers(const pb_live_offsets *live, int64_t first_offset, int64_t last_offset)
{
    return live->bits != NULL && first_offset >= live->first_offset && last_offset < live->end_offset;
}

/* Is the record at a covered offset the last of its key? */
static inline bool pb_live_offsets_has(const pb_live_offsets *live, int64_t offset)
{
    uint64_t bit = (uint64_t)(offset - live->first_offset);
    return (live->bits[bit / 64] >> (bit % 64) & 1) != 0;
}

/* Is any record of the covered range? */
bool pb_live_offsets_any(const pb_live_offsets *live, int64_t first_offset, int64_t last_offset);

#endif
