/* CRC32C: known vectors, and every implementation this CPU runs against the portable one and a bit-by-bit reference. */
#include "cpu/crc32c.h"

#include "tests/check.h"

enum { LONGEST = 5000, ALIGNMENTS = 64 };

static uint8_t source[LONGEST + ALIGNMENTS + 1];
static uint8_t copy[LONGEST + ALIGNMENTS + 1];

static void fill_source(void)
{
    uint64_t x = 0x9e3779b97f4a7c15U;
    for (size_t i = 0; i < sizeof(source); i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        source[i] = (uint8_t)x;
    }
}

static uint32_t bit_by_bit(const uint8_t *data, size_t length)
{
    uint32_t state = ~0U;
    for (size_t i = 0; i < length; i++) {
        state ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            state = (state & 1) != 0 ? (state >> 1) ^ 0x82f63b78U : state >> 1;
    }
    return ~state;
}

TEST(known_vectors_of_rfc_3720)
{
    uint8_t zeros[32] = {0};
    uint8_t ones[32];
    uint8_t up[32];
    uint8_t down[32];
    memset(ones, 0xff, sizeof(ones));
    for (uint8_t i = 0; i < 32; i++) {
        up[i] = i;
        down[i] = (uint8_t)(31 - i);
    }
    for (const char *const *name = pb_crc32c_names(); *name != NULL; name++) {
        CHECK(pb_crc32c_select(*name));
        CHECK_STR(pb_crc32c_selected(), *name);
        CHECK_INT(pb_crc32c(0, "123456789", 9), 0xe3069283);
        CHECK_INT(pb_crc32c(0, zeros, 32), 0x8a9136aa);
        CHECK_INT(pb_crc32c(0, ones, 32), 0x62a8ab43);
        CHECK_INT(pb_crc32c(0, up, 32), 0x46dd794e);
        CHECK_INT(pb_crc32c(0, down, 32), 0x113fdb5c);
        CHECK_INT(pb_crc32c(0, "", 0), 0);
    }
}

TEST(portable_equals_the_definition)
{
    fill_source();
    CHECK(pb_crc32c_select("portable"));
    for (size_t length = 0; length < 300; length++)
        CHECK_INT(pb_crc32c(0, source + length % 8, length), bit_by_bit(source + length % 8, length));
}

TEST(every_implementation_equals_portable_for_all_lengths)
{
    fill_source();
    for (size_t length = 0; length <= LONGEST; length++) {
        size_t alignment = (length * 7) % ALIGNMENTS;
        CHECK(pb_crc32c_select("portable"));
        uint32_t expected = pb_crc32c((uint32_t)length, source + alignment, length);
        for (const char *const *name = pb_crc32c_names(); *name != NULL; name++) {
            CHECK(pb_crc32c_select(*name));
            CHECK_INT(pb_crc32c((uint32_t)length, source + alignment, length), expected);
        }
    }
}

TEST(every_implementation_at_every_alignment)
{
    static const size_t lengths[] = {1, 7, 8, 63, 255, 256, 257, 767, 768, 1000, 3071, 4096, LONGEST};
    fill_source();
    for (size_t alignment = 0; alignment < ALIGNMENTS; alignment++) {
        for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
            CHECK(pb_crc32c_select("portable"));
            uint32_t expected = pb_crc32c(0, source + alignment, lengths[i]);
            for (const char *const *name = pb_crc32c_names(); *name != NULL; name++) {
                CHECK(pb_crc32c_select(*name));
                CHECK_INT(pb_crc32c(0, source + alignment, lengths[i]), expected);
            }
        }
    }
}

TEST(long_buffers_use_the_long_lanes)
{
    enum { LENGTH = 100003 };
    uint8_t *data = malloc(LENGTH);
    CHECK(data != NULL);
    for (size_t i = 0; i < LENGTH; i++)
        data[i] = (uint8_t)(i * 31 + (i >> 8));
    CHECK(pb_crc32c_select("portable"));
    uint32_t expected = pb_crc32c(0, data, LENGTH);
    CHECK_INT(expected, bit_by_bit(data, LENGTH));
    for (const char *const *name = pb_crc32c_names(); *name != NULL; name++) {
        CHECK(pb_crc32c_select(*name));
        CHECK_INT(pb_crc32c(0, data, LENGTH), expected);
    }
    free(data);
}

TEST(copy_copies_exactly_and_gives_the_same_crc)
{
    fill_source();
    for (size_t length = 0; length <= LONGEST; length += length < 900 ? 1 : 41) {
        for (const char *const *name = pb_crc32c_names(); *name != NULL; name++) {
            CHECK(pb_crc32c_select(*name));
            size_t alignment = length % ALIGNMENTS;
            memset(copy, 0xa5, sizeof(copy));
            CHECK_INT(pb_crc32c_copy(7, copy + alignment, source + 3, length), pb_crc32c(7, source + 3, length));
            CHECK_MEM(copy + alignment, source + 3, length);
            CHECK_INT(copy[alignment + length], 0xa5);
            if (alignment > 0)
                CHECK_INT(copy[alignment - 1], 0xa5);
        }
    }
}

TEST(calls_chain)
{
    fill_source();
    for (const char *const *name = pb_crc32c_names(); *name != NULL; name++) {
        CHECK(pb_crc32c_select(*name));
        uint32_t whole = pb_crc32c(0, source, LONGEST);
        for (size_t cut = 0; cut <= LONGEST; cut += 331)
            CHECK_INT(pb_crc32c(pb_crc32c(0, source, cut), source + cut, LONGEST - cut), whole);
    }
}

TEST(patch_is_the_crc_of_the_changed_message)
{
    fill_source();
    for (const char *const *name = pb_crc32c_names(); *name != NULL; name++) {
        CHECK(pb_crc32c_select(*name));
        for (size_t length = 40; length <= LONGEST; length += 97) {
            uint8_t difference[40] = {0};
            memcpy(copy, source, length);
            copy[1] ^= 0x08;
            copy[17] ^= 0x5a;
            for (size_t i = 0; i < sizeof(difference); i++)
                difference[i] = copy[i] ^ source[i];
            uint32_t patched = pb_crc32c(0, source, length) ^ pb_crc32c_patch(difference, 40, length - 40);
            CHECK_INT(patched, pb_crc32c(0, copy, length));
        }
        uint8_t nothing[8] = {0};
        CHECK_INT(pb_crc32c_patch(nothing, sizeof(nothing), 1U << 30), 0);
    }
}

TEST(an_unknown_name_changes_nothing)
{
    CHECK(pb_crc32c_select(pb_crc32c_names()[0]));
    CHECK(!pb_crc32c_select("abacus"));
    CHECK_STR(pb_crc32c_selected(), pb_crc32c_names()[0]);
}

TEST(portable_is_always_there_and_last)
{
    const char *last = NULL;
    for (const char *const *name = pb_crc32c_names(); *name != NULL; name++)
        last = *name;
    CHECK_STR(last, "portable");
}

CHECK_MAIN()
