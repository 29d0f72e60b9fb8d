/* CRC32C: what is chosen, known vectors, and every implementation this CPU runs against the definition. */
#include "cpu/cpu_features.h"
#include "cpu/crc32c.h"

#include "tests/check.h"

/* Two of the longest blocks of any implementation, and not a multiple of anything. */
enum { LONGEST = 11003, ALIGNMENTS = 64 };

static uint8_t source[LONGEST + ALIGNMENTS + 1];
static uint8_t copy[LONGEST + ALIGNMENTS + 1];
static uint32_t expected[LONGEST + 1];

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

/* The first case: nothing has selected yet. */
TEST(the_fastest_is_in_use_until_another_is_asked_for)
{
    pb_cpu_features features = pb_cpu_features_detect();
    const char *fastest = "portable";
#if defined(__x86_64__)
    if (features.sse42)
        fastest = "sse42";
    if (features.sse42 && features.pclmul)
        fastest = "pclmul";
    if (features.sse42 && features.pclmul && features.avx512f && features.vpclmul)
        fastest = "avx512";
#elif defined(__aarch64__)
    if (features.arm_crc && features.arm_pmull)
        fastest = "arm";
#endif
    CHECK_STR(pb_crc32c_selected(), fastest);
    CHECK_STR(pb_crc32c_names()[0], fastest);
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

/* expected[n]: the CRC of the first n bytes of `source`, after a CRC of 7. Byte by byte, so that it leans on nothing.
 */
static void fill_expected(void)
{
    fill_source();
    CHECK(pb_crc32c_select("portable"));
    expected[0] = 7;
    for (size_t length = 0; length < LONGEST; length++)
        expected[length + 1] = pb_crc32c(expected[length], source + length, 1);
}

/* Whether to try an alignment. Words have eight, which is all there is to the slow portable one; and ThreadSanitizer,
 * which takes 20 times as long, has nothing to find in one thread. */
static bool tells_something(const char *name, size_t alignment)
{
#if defined(__SANITIZE_THREAD__)
    return strcmp(name, "portable") != 0 && alignment % 31 == 0;
#else
    return strcmp(name, "portable") != 0 || alignment % 9 == 0;
#endif
}

TEST(every_length_at_every_alignment)
{
    fill_expected();
    for (size_t alignment = 0; alignment < ALIGNMENTS; alignment++) {
        memcpy(copy + alignment, source, LONGEST);
        for (const char *const *name = pb_crc32c_names(); *name != NULL; name++) {
            CHECK(pb_crc32c_select(*name));
            for (size_t length = 0; tells_something(*name, alignment) && length <= LONGEST; length++)
                CHECK_INT(pb_crc32c(7, copy + alignment, length), expected[length]);
        }
    }
}

/* What is in cache, what leaves it and what is far longer may each go another way. */
TEST(long_buffers_have_the_same_crc_whichever_way_they_go)
{
    static const size_t lengths[] = {100003, 512 << 10, (512 << 10) + 1, 1 << 20, (1 << 20) + 1, 3000017};
    enum { COUNT = sizeof(lengths) / sizeof(lengths[0]) };
    const size_t longest = lengths[COUNT - 1];
    uint8_t *data = malloc(longest);
    uint8_t *copied = malloc(longest);
    CHECK(data != NULL && copied != NULL);
    for (size_t i = 0; i < longest; i++)
        data[i] = (uint8_t)(i * 31 + (i >> 8) + (i >> 16) * 7);
    for (size_t i = 0; i < COUNT; i++) {
        CHECK(pb_crc32c_select("portable"));
        uint32_t whole = pb_crc32c(0, data, lengths[i]);
        if (i == 0) /* it is slow */
            CHECK_INT(whole, bit_by_bit(data, lengths[i]));
        for (const char *const *name = pb_crc32c_names(); *name != NULL; name++) {
            CHECK(pb_crc32c_select(*name));
            CHECK_INT(pb_crc32c(0, data, lengths[i]), whole);
            memset(copied, 0, lengths[i]);
            CHECK_INT(pb_crc32c_copy(0, copied, data, lengths[i]), whole);
            CHECK_MEM(copied, data, lengths[i]);
        }
    }
    free(data);
    free(copied);
}

/* Copies to where each length meets each alignment, and looks at what is on both sides of the copy. */
TEST(copy_copies_exactly_and_gives_the_same_crc)
{
    enum { GUARD = 0xa5 };
    fill_expected();
    for (const char *const *name = pb_crc32c_names(); *name != NULL; name++) {
        CHECK(pb_crc32c_select(*name));
        for (size_t alignment = 0; alignment < ALIGNMENTS; alignment++) {
            memset(copy, GUARD, sizeof(copy));
            /* Ascending, so that the guard behind each copy is still as it was laid. */
            for (size_t length = 0; tells_something(*name, alignment) && length <= LONGEST;
                 length += 1 + alignment % 7) {
                CHECK_INT(pb_crc32c_copy(7, copy + alignment, source, length), expected[length]);
                CHECK(memcmp(copy + alignment, source, length) == 0);
                CHECK_INT(copy[alignment + length], GUARD);
                CHECK(alignment == 0 || copy[alignment - 1] == GUARD);
                memset(copy + alignment, 0, length);
            }
        }
    }
}

TEST(copy_from_every_alignment)
{
    static const size_t lengths[] = {1,   7,   8,    63,   255,  256,  257,  415,    416,
                                     767, 768, 1000, 3328, 4096, 8191, 8192, LONGEST};
    fill_source();
    for (const char *const *name = pb_crc32c_names(); *name != NULL; name++) {
        CHECK(pb_crc32c_select(*name));
        for (size_t alignment = 0; alignment < ALIGNMENTS; alignment++) {
            for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
                uint32_t crc = pb_crc32c(0, source + alignment, lengths[i]);
                CHECK_INT(pb_crc32c_copy(0, copy + 5, source + alignment, lengths[i]), crc);
                CHECK_MEM(copy + 5, source + alignment, lengths[i]);
            }
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
