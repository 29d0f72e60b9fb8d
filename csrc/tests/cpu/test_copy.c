/* The copy past the caches: that it is one, at every alignment, and that it touches nothing beside. */
#include "cpu/copy.h"

#include "tests/check.h"

enum { LONGEST = 70001, ALIGNMENTS = 64, MARGIN = 64, GUARD = 0xa5 };

static uint8_t source[LONGEST + ALIGNMENTS];
static uint8_t destination[MARGIN + ALIGNMENTS + LONGEST + MARGIN];

static void check_copy(size_t to_alignment, size_t from_alignment, size_t length)
{
    uint8_t *to = destination + MARGIN + to_alignment;
    memset(to - MARGIN, GUARD, length + 2 * MARGIN);
    pb_copy_past_caches(to, source + from_alignment, length);
    CHECK_MEM(to, source + from_alignment, length);
    for (size_t i = 1; i <= MARGIN; i++) {
        CHECK_INT(to[-(ptrdiff_t)i], GUARD);
        CHECK_INT(to[length + i - 1], GUARD);
    }
}

TEST(every_alignment_of_both_sides)
{
    /* On both sides of what goes past the caches, and of a line. */
    static const size_t lengths[] = {0, 1, 63, 64, 4095, 4096, 4097, 4159, 4160, 4161, 16384};
    for (size_t i = 0; i < sizeof(source); i++)
        source[i] = (uint8_t)(i * 31 + (i >> 8) * 7);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        for (size_t alignment = 0; alignment < ALIGNMENTS; alignment++) {
            check_copy(alignment, 0, lengths[i]);
            check_copy(0, alignment, lengths[i]);
            check_copy(alignment, alignment * 7 % ALIGNMENTS, lengths[i]);
        }
    }
}

TEST(long_ones)
{
    for (size_t length = LONGEST - 130; length <= LONGEST; length++)
        check_copy(length % ALIGNMENTS, length * 3 % ALIGNMENTS, length);
}

CHECK_MAIN()
