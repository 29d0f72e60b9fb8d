/* The wire reader: values, and everything malformed that must stop it. */
#include "wire/reader.h"

#include <stdlib.h>

#include "tests/check.h"
#include "wire/writer.h"

#define READER(...) pb_reader_of((const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}))

TEST(integers_are_big_endian)
{
    pb_reader reader = READER(0xfe, 0xff, 0xfe, 0x01, 0x02, 0x03, 0x04, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfd);
    CHECK_INT(pb_read_int8(&reader), -2);
    CHECK_INT(pb_read_int16(&reader), -2);
    CHECK_INT(pb_read_int32(&reader), 0x01020304);
    CHECK_INT(pb_read_int64(&reader), -3);
    CHECK_INT(reader.error, 0);
    CHECK_INT(pb_reader_left(&reader), 0);
}

TEST(an_error_sticks_and_reads_nothing_more)
{
    pb_reader reader = READER(0, 1, 2);
    CHECK_INT(pb_read_int32(&reader), 0);
    CHECK_INT(reader.error, -EBADMSG);
    CHECK_INT(pb_read_int8(&reader), 0);
    CHECK_INT(pb_read_string(&reader, false, true).length, 0);
    CHECK_INT(pb_reader_left(&reader), 0);
    pb_reader_fail(&reader, -ENOMEM);
    CHECK_INT(reader.error, -EBADMSG);
}

TEST(varints_have_32_bits)
{
    pb_reader reader = READER(0x7f, 0x80, 0x01, 0xff, 0xff, 0xff, 0xff, 0x0f);
    CHECK_INT(pb_read_uvarint(&reader), 127);
    CHECK_INT(pb_read_uvarint(&reader), 128);
    CHECK_INT(pb_read_uvarint(&reader), UINT32_MAX);
    CHECK_INT(reader.error, 0);

    reader = READER(0xff, 0xff, 0xff, 0xff, 0x1f);
    CHECK_INT(pb_read_uvarint(&reader), 0);
    CHECK_INT(reader.error, -EBADMSG);
    reader = READER(0x80, 0x80, 0x80, 0x80, 0x80, 0x00);
    CHECK_INT(pb_read_uvarint(&reader), 0);
    CHECK_INT(reader.error, -EBADMSG);
    reader = READER(0x80);
    CHECK_INT(pb_read_uvarint(&reader), 0);
    CHECK_INT(reader.error, -EBADMSG);
}

TEST(strings_plain_and_compact)
{
    pb_reader reader = READER(0, 2, 'a', 'b', 3, 'c', 'd', 0xff, 0xff, 0, 1);
    CHECK(pb_slice_equal(pb_read_string(&reader, false, false), pb_slice_of_text("ab")));
    CHECK(pb_slice_equal(pb_read_string(&reader, true, false), pb_slice_of_text("cd")));
    CHECK(pb_slice_is_null(pb_read_string(&reader, false, true)));
    CHECK(pb_slice_is_null(pb_read_string(&reader, true, true)));
    CHECK_INT(pb_read_string(&reader, true, false).length, 0);
    CHECK_INT(reader.error, 0);
}

static void check_bad_string(pb_reader reader, bool compact, bool nullable)
{
    CHECK_INT(pb_read_string(&reader, compact, nullable).length, 0);
    CHECK_INT(reader.error, -EBADMSG);
}

TEST(bad_strings)
{
    check_bad_string(READER(0xff, 0xff), false, false);    /* null where it may not be */
    check_bad_string(READER(0xff, 0xfe), false, true);     /* -2 */
    check_bad_string(READER(0, 3, 'a', 'b'), false, true); /* longer than the frame */
    check_bad_string(READER(0), true, false);              /* compact null */
    check_bad_string(READER(4, 'a', 'b'), true, true);     /* compact, longer than the frame */
    check_bad_string(READER(0xff, 0xff, 0xff, 0xff, 0x0f), true, true);

    static uint8_t long_string[PB_MAX_STRING_BYTES + 8] = {0x81, 0x80, 0x02}; /* 32768 bytes, one too many */
    check_bad_string(pb_reader_of(long_string, sizeof(long_string)), true, true);
}

TEST(bytes_of_any_length_within_the_frame)
{
    pb_reader reader = READER(0, 0, 0, 1, 7, 0xff, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff);
    const pb_slice bytes = pb_read_bytes(&reader, false, false);
    CHECK_INT(bytes.length, 1);
    CHECK_INT(*(const uint8_t *)bytes.data, 7);
    CHECK(pb_slice_is_null(pb_read_bytes(&reader, false, true)));
    CHECK_INT(pb_read_bytes(&reader, false, true).length, 0);
    CHECK_INT(reader.error, -EBADMSG);
}

TEST(an_absurd_count_asks_nothing_of_the_arena)
{
    pb_arena arena;
    pb_arena_init(&arena, 1 << 30);
    void *elements;
    pb_reader reader = READER(0x7f, 0xff, 0xff, 0xff, 1, 2, 3, 4);
    CHECK_INT(pb_read_array(&reader, false, false, 1, &arena, 64, &elements), 0);
    CHECK_INT(reader.error, -EBADMSG);
    CHECK_INT(arena.held_bytes, 0);

    reader = READER(0, 0, 0, 3, 1, 2, 3, 4, 5); /* five bytes cannot hold three elements of two */
    CHECK_INT(pb_read_array(&reader, false, false, 2, &arena, 64, &elements), 0);
    CHECK_INT(reader.error, -EBADMSG);
    CHECK_INT(arena.held_bytes, 0);
    pb_arena_free(&arena);
}

/* A frame that announces `count` elements of one byte each, and has them all. */
static pb_reader array_frame(uint8_t *frame, size_t capacity, uint32_t count)
{
    memset(frame, 0, capacity);
    const uint32_t bits = htobe32(count);
    memcpy(frame, &bits, sizeof bits);
    return pb_reader_of(frame, capacity);
}

TEST(no_array_has_more_than_a_million_elements)
{
    const size_t capacity = sizeof(uint32_t) + PB_ARRAY_MAX_COUNT + 1;
    uint8_t *frame = malloc(capacity);
    CHECK(frame != NULL);
    pb_arena arena;
    pb_arena_init(&arena, 1 << 30);
    void *elements;
    pb_reader reader = array_frame(frame, capacity, PB_ARRAY_MAX_COUNT + 1);
    CHECK_INT(pb_read_array(&reader, false, false, 1, &arena, 64, &elements), 0);
    CHECK_INT(reader.error, -EBADMSG);
    CHECK_INT(arena.held_bytes, 0);

    reader = array_frame(frame, capacity, PB_ARRAY_MAX_COUNT);
    CHECK_INT(pb_read_array(&reader, false, false, 1, &arena, 64, &elements), PB_ARRAY_MAX_COUNT);
    CHECK_INT(reader.error, 0);
    CHECK(arena.held_bytes < 2 * PB_ARRAY_AHEAD_COUNT * 64); /* the rest comes as it is parsed */
    pb_arena_free(&arena);
    free(frame);
}

TEST(memory_of_an_array_doubles_up_to_its_count)
{
    CHECK_INT(pb_array_first_room(0), 0);
    CHECK_INT(pb_array_first_room(999), 999);
    CHECK_INT(pb_array_first_room(1001), 1000);
    CHECK_INT(pb_array_next_room(1000, 1001), 1001);
    CHECK_INT(pb_array_next_room(1000, 2000), 2000);
    CHECK_INT(pb_array_next_room(1000, 2001), 2000);

    pb_arena arena;
    pb_arena_init(&arena, 64 * 1024);
    pb_reader reader = READER(0);
    int64_t few[2] = {7, 8};
    const int64_t *more = pb_array_grow(&reader, &arena, few, 2, 4, sizeof few[0]);
    CHECK(more != NULL && more[0] == 7 && more[1] == 8);
    CHECK(pb_array_grow(&reader, &arena, few, 2, 100000, sizeof few[0]) == NULL);
    CHECK_INT(reader.error, -ENOMEM);
    pb_arena_free(&arena);
}

TEST(no_section_has_more_than_ten_thousand_tagged_fields)
{
    uint8_t frame[3 + 2 * (PB_TAGGED_MAX_COUNT + 1)] = {0};
    pb_put_uvarint(frame, PB_TAGGED_MAX_COUNT);
    pb_reader reader = pb_reader_of(frame, sizeof frame);
    pb_read_skip_tags(&reader);
    CHECK_INT(reader.error, 0);
    pb_put_uvarint(frame, PB_TAGGED_MAX_COUNT + 1);
    reader = pb_reader_of(frame, sizeof frame);
    pb_read_skip_tags(&reader);
    CHECK_INT(reader.error, -EBADMSG);
}

TEST(arrays_null_empty_and_over_the_limit)
{
    pb_arena arena;
    pb_arena_init(&arena, 8192);
    void *elements;
    pb_reader reader = READER(0, 1, 3, 9, 9);
    CHECK_INT(pb_read_array(&reader, true, true, 1, &arena, 8, &elements), -1);
    CHECK(elements == NULL);
    CHECK_INT(pb_read_array(&reader, true, false, 1, &arena, 8, &elements), 0);
    CHECK_INT(pb_read_array(&reader, true, false, 1, &arena, 8, &elements), 2);
    CHECK(elements != NULL);
    CHECK_INT(reader.error, 0);

    reader = READER(0);
    CHECK_INT(pb_read_array(&reader, true, false, 1, &arena, 8, &elements), 0);
    CHECK_INT(reader.error, -EBADMSG);
    reader = READER(3, 9, 9);
    CHECK_INT(pb_read_array(&reader, true, false, 1, &arena, 8192, &elements), 0);
    CHECK_INT(reader.error, -ENOMEM);
    pb_arena_free(&arena);
}

TEST(unknown_tags_are_skipped)
{
    pb_reader reader = READER(2, 99, 3, 1, 2, 3, 0x80, 0x01, 0, 42);
    pb_read_skip_tags(&reader);
    CHECK_INT(reader.error, 0);
    CHECK_INT(pb_read_int8(&reader), 42);

    reader = READER(1, 99, 4, 1, 2, 3); /* the value goes beyond the frame */
    pb_read_skip_tags(&reader);
    CHECK_INT(reader.error, -EBADMSG);
    reader = READER(0xff, 0xff, 0xff, 0xff, 0x0f, 1); /* four billion tags */
    pb_read_skip_tags(&reader);
    CHECK_INT(reader.error, -EBADMSG);
}

CHECK_MAIN()
