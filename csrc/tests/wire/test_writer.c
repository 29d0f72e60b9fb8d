/* The wire writer: growing and lent buffers, limits, gaps, sizes written behind their value. */
#include "wire/writer.h"

#include "tests/check.h"

TEST(a_growing_writer_stops_at_its_limit)
{
    pb_writer writer;
    pb_writer_init(&writer, 1000);
    for (int i = 0; i < 250; i++)
        pb_write_int32(&writer, i);
    CHECK_INT(writer.error, 0);
    CHECK_INT(writer.length, 1000);
    pb_write_int8(&writer, 1);
    CHECK_INT(writer.error, -ENOSPC);
    CHECK_INT(writer.length, 1000);
    pb_writer_reset(&writer);
    pb_write_int8(&writer, 1);
    CHECK_INT(writer.error, 0);
    CHECK_INT(writer.length, 1);
    pb_writer_free(&writer);
}

TEST(a_fixed_writer_stays_within_its_memory)
{
    uint8_t memory[8] = {0};
    pb_writer writer;
    pb_writer_init_fixed(&writer, memory, 6, NULL, 0);
    pb_write_int32(&writer, 0x01020304);
    pb_write_int16(&writer, -2);
    pb_write_int8(&writer, 9);
    CHECK_INT(writer.error, -ENOSPC);
    CHECK_MEM(memory, ((const uint8_t[]){1, 2, 3, 4, 0xff, 0xfe, 0, 0}), 8);
    pb_writer_free(&writer);
}

TEST(lengths_and_nulls)
{
    uint8_t memory[64];
    pb_writer writer;
    pb_writer_init_fixed(&writer, memory, sizeof(memory), NULL, 0);
    pb_write_string(&writer, pb_slice_of_text("ab"), false, false);
    pb_write_string(&writer, pb_slice_of_text("ab"), true, false);
    pb_write_string(&writer, PB_NULL_SLICE, false, true);
    pb_write_string(&writer, PB_NULL_SLICE, true, true);
    pb_write_bytes(&writer, PB_NULL_SLICE, false, true);
    pb_write_bytes(&writer, pb_slice_of_text("c"), true, true);
    static const uint8_t expected[] = {0, 2, 'a', 'b', 3, 'a', 'b', 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0xff, 2, 'c'};
    CHECK_INT(writer.error, 0);
    CHECK_INT(writer.length, sizeof(expected));
    CHECK_MEM(memory, expected, sizeof(expected));

    pb_write_string(&writer, PB_NULL_SLICE, true, false);
    CHECK_INT(writer.error, -EINVAL);
    pb_writer_reset(&writer);
    pb_write_string(&writer, (pb_slice){memory, PB_MAX_STRING_BYTES + 1}, true, false);
    CHECK_INT(writer.error, -EMSGSIZE);
}

TEST(records_without_memory_leave_a_gap)
{
    pb_writer writer;
    pb_writer_init(&writer, 1 << 16);
    for (int i = 0; i < 40; i++) {
        pb_write_records(&writer, (pb_slice){NULL, 1000 + i}, false, false);
        pb_write_int8(&writer, 7);
    }
    pb_write_records(&writer, PB_EMPTY_SLICE, true, true);
    pb_write_records(&writer, PB_NULL_SLICE, true, true);
    pb_write_records(&writer, pb_slice_of_text("xy"), true, true);
    CHECK_INT(writer.error, 0);
    CHECK_INT(writer.gap_count, 40);
    CHECK_INT(writer.length, 40 * 5 + 1 + 1 + 3);
    CHECK_INT(writer.gap_bytes, 40 * 1000 + 40 * 39 / 2);
    for (size_t i = 0; i < writer.gap_count; i++) {
        CHECK_INT(writer.gaps[i].position, i * 5 + 4);
        CHECK_INT(writer.gaps[i].length, 1000 + (int)i);
    }
    pb_writer_free(&writer);

    uint8_t memory[16];
    pb_gap gap;
    pb_writer_init_fixed(&writer, memory, sizeof(memory), &gap, 1);
    pb_write_records(&writer, (pb_slice){NULL, 5}, true, true);
    CHECK_INT(writer.error, 0);
    CHECK_INT(gap.position, 1);
    pb_write_records(&writer, (pb_slice){NULL, 5}, true, true);
    CHECK_INT(writer.error, -ENOSPC);
}

TEST(a_size_is_written_before_its_value)
{
    static const int sizes[] = {0, 1, 127, 128, 16383, 16384, 70000};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        pb_writer writer;
        pb_writer_init(&writer, 1 << 20);
        pb_write_int8(&writer, 5);
        const size_t mark = pb_writer_begin_sized(&writer);
        for (int n = 0; n < sizes[i]; n++)
            pb_write_int8(&writer, (int8_t)n);
        pb_writer_end_sized(&writer, mark);
        CHECK_INT(writer.error, 0);
        pb_reader reader = pb_reader_of(writer.data, writer.length);
        CHECK_INT(pb_read_int8(&reader), 5);
        CHECK_INT(pb_read_uvarint(&reader), sizes[i]);
        CHECK_INT(pb_reader_left(&reader), sizes[i]);
        for (int n = 0; n < sizes[i]; n++)
            CHECK_INT(pb_read_int8(&reader), (int8_t)n);
        pb_writer_free(&writer);
    }
}

TEST(patching_a_frame_length)
{
    uint8_t memory[8];
    pb_writer writer;
    pb_writer_init_fixed(&writer, memory, sizeof(memory), NULL, 0);
    pb_write_int32(&writer, 0);
    pb_write_int32(&writer, 7);
    pb_writer_patch_int32(&writer, 0, 4);
    CHECK_MEM(memory, ((const uint8_t[]){0, 0, 0, 4, 0, 0, 0, 7}), 8);
}

CHECK_MAIN()
