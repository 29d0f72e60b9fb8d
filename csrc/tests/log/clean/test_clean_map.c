/* The cleaner's map: its hash against published vectors, what it remembers, when it is full, and its bits. */
#include "log/clean/map.h"

#include "tests/check.h"

static pb_io *io;

static bool put(pb_clean_map *to, const uint8_t *key, size_t length, int64_t offset)
{
    return pb_clean_map_put(to, pb_clean_map_expect(to, key, length), offset);
}

TEST(the_hash_is_siphash_with_128_bits)
{
    /* Key 00 01 .. 0f, messages of 0, 1 and 8 bytes 00 01 ..: the vectors of SipHash's authors. */
    const uint64_t seed[2] = {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)};
    static const uint8_t message[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const uint8_t expected[][16] = {
        {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93},
        {0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45},
    };
    for (size_t i = 0; i < 2; i++) {
        pb_clean_hash hash = pb_clean_hash_bytes(seed, message, i);
        CHECK_MEM(&hash, expected[i], 16);
    }
    pb_clean_hash seven = pb_clean_hash_bytes(seed, message, 7);
    pb_clean_hash eight = pb_clean_hash_bytes(seed, message, 8);
    CHECK(seven.low != eight.low && seven.high != eight.high);
}

TEST(a_map_remembers_the_last_offset_of_each_key)
{
    enum { KEYS = 1000 };
    pb_clean_map map;
    CHECK_INT(pb_io_open("epoll", &io, NULL), 0);
    CHECK_INT(pb_clean_map_init(&map, io, 1 << 20, 90, 3 * KEYS), 0);
    for (int64_t offset = 0; offset < 3 * KEYS; offset++) {
        char key[16];
        int length = snprintf(key, sizeof(key), "%d", (int)(offset * 7 % KEYS));
        CHECK(put(&map, (const uint8_t *)key, (size_t)length, offset));
    }
    CHECK_INT(map.count, KEYS);
    pb_live_offsets live;
    CHECK_INT(pb_live_offsets_init(&live, &map, 0, 3 * KEYS), 0);
    for (int64_t offset = 0; offset < 3 * KEYS; offset++) {
        char key[16];
        int length = snprintf(key, sizeof(key), "%d", (int)(offset * 7 % KEYS));
        bool last = offset >= 2 * KEYS; /* 7 and KEYS have no common divisor: each key comes once in KEYS */
        CHECK_INT(pb_clean_map_get(&map, (const uint8_t *)key, (size_t)length) == offset, last);
        CHECK_INT(pb_live_offsets_has(&live, offset), last);
    }
    CHECK_INT(pb_clean_map_get(&map, (const uint8_t *)"never", 5), -1);
    CHECK(!pb_live_offsets_any(&live, 0, 2 * KEYS - 1));
    CHECK(pb_live_offsets_any(&live, 0, 2 * KEYS));
    CHECK(pb_live_offsets_any(&live, 2 * KEYS, 2 * KEYS));
    CHECK(!pb_live_offsets_any(&live, 2 * KEYS - 1, 2 * KEYS - 1));
    CHECK(!pb_live_offsets_covers(&live, 3 * KEYS - 1, 3 * KEYS));
    pb_live_offsets_clear(&live);
    pb_clean_map_clear(&map);
    io->ops->close(io);
}

TEST(a_map_is_full_at_its_load_factor)
{
    pb_clean_map map;
    CHECK_INT(pb_io_open("epoll", &io, NULL), 0);
    CHECK_INT(pb_clean_map_init(&map, io, 100 * PB_CLEAN_MAP_ENTRY_BYTES, 50, 1000), 0);
    int64_t offset = 0;
    while (put(&map, (const uint8_t *)&offset, sizeof(offset), offset))
        offset++;
    CHECK_INT(offset, 50);
    pb_clean_map_clear(&map);
    /* However little memory there is, a pass comes on. */
    CHECK_INT(pb_clean_map_init(&map, io, 0, 1, 1000), 0);
    CHECK(put(&map, (const uint8_t *)"k", 1, 5));
    CHECK(!put(&map, (const uint8_t *)"l", 1, 6));
    CHECK_INT(pb_clean_map_get(&map, (const uint8_t *)"k", 1), 5);
    CHECK_INT(pb_clean_map_get(&map, (const uint8_t *)"l", 1), -1);
    pb_clean_map_clear(&map);
    io->ops->close(io);
}

CHECK_MAIN()
