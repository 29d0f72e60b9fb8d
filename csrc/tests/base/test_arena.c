/* The arena: alignment, the hard limit, reuse after a reset. */
#include "base/arena.h"

#include <stdalign.h>
#include <stdint.h>

#include "tests/check.h"

TEST(allocations_are_aligned_and_apart)
{
    pb_arena arena;
    pb_arena_init(&arena, 1 << 20);
    unsigned char *previous = NULL;
    size_t previous_bytes = 0;
    for (size_t size = 1; size < 3000; size += 37) {
        unsigned char *memory = pb_arena_alloc(&arena, size);
        CHECK(memory != NULL);
        CHECK_INT((uintptr_t)memory % alignof(max_align_t), 0);
        memset(memory, (int)(size & 0xff), size);
        if (previous != NULL) {
            CHECK_INT(previous[0], previous_bytes & 0xff);
            CHECK_INT(previous[previous_bytes - 1], previous_bytes & 0xff);
        }
        previous = memory;
        previous_bytes = size;
    }
    pb_arena_free(&arena);
    CHECK_INT(arena.held_bytes, 0);
}

TEST(the_limit_holds)
{
    pb_arena arena;
    pb_arena_init(&arena, 64 << 10);
    CHECK(pb_arena_alloc(&arena, 64 << 10) == NULL); /* a chunk's head needs room too */
    CHECK(pb_arena_alloc(&arena, 60 << 10) != NULL);
    CHECK(pb_arena_alloc(&arena, 8 << 10) == NULL);
    CHECK(pb_arena_alloc(&arena, 100) != NULL); /* a failed request leaves the rest usable */
    CHECK(arena.held_bytes <= arena.limit_bytes);
    pb_arena_free(&arena);

    pb_arena_init(&arena, 0);
    CHECK(pb_arena_alloc(&arena, 1) == NULL);
    pb_arena_free(&arena);
}

TEST(absurd_sizes_are_refused)
{
    pb_arena arena;
    pb_arena_init(&arena, SIZE_MAX);
    CHECK(pb_arena_alloc(&arena, SIZE_MAX) == NULL);
    CHECK(pb_arena_alloc_array(&arena, SIZE_MAX / 4, 16) == NULL);
    CHECK(pb_arena_alloc_array(&arena, 0, 16) != NULL);
    pb_arena_free(&arena);
}

TEST(a_reset_arena_reuses_its_chunks)
{
    pb_arena arena;
    pb_arena_init(&arena, 1 << 20);
    size_t held = 0;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 100; i++)
            CHECK(pb_arena_alloc(&arena, 1000) != NULL);
        CHECK(round == 0 || arena.held_bytes == held);
        held = arena.held_bytes;
        pb_arena_reset(&arena);
    }
    pb_arena_trim(&arena, 10000);
    CHECK(arena.held_bytes <= 10000);
    CHECK(pb_arena_alloc(&arena, 20000) != NULL);
    pb_arena_free(&arena);
}

CHECK_MAIN()
