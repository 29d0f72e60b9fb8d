/* Varints: known encodings, round trips at every length, and bytes that end early or go on too long. */
#include "base/varint.h"

#include "tests/check.h"

TEST(known_encodings)
{
    static const struct {
        int32_t value;
        uint8_t length;
        uint8_t bytes[5];
    } cases[] = {
        {0, 1, {0}},
        {-1, 1, {1}},
        {1, 1, {2}},
        {63, 1, {126}},
        {-64, 1, {127}},
        {64, 2, {0x80, 1}},
        {INT32_MAX, 5, {0xfe, 0xff, 0xff, 0xff, 0x0f}},
        {INT32_MIN, 5, {0xff, 0xff, 0xff, 0xff, 0x0f}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t bytes[PB_VARINT_MAX_BYTES];
        CHECK_INT(pb_varint_write(bytes, cases[i].value) - bytes, cases[i].length);
        CHECK_MEM(bytes, cases[i].bytes, cases[i].length);
        int32_t value = 77;
        CHECK(pb_varint_read(bytes, bytes + cases[i].length, &value) == bytes + cases[i].length);
        CHECK_INT(value, cases[i].value);
    }
}

TEST(every_bit_of_64_goes_round)
{
    for (int bit = 0; bit < 64; bit++) {
        for (int sign = -1; sign <= 1; sign++) {
            int64_t value = (int64_t)((UINT64_C(1) << bit) + (uint64_t)(int64_t)sign);
            uint8_t bytes[PB_VARLONG_MAX_BYTES];
            const uint8_t *end = pb_varlong_write(bytes, value);
            CHECK(end - bytes <= PB_VARLONG_MAX_BYTES);
            int64_t back = 0;
            CHECK(pb_varlong_read(bytes, end, &back) == end);
            CHECK_INT(back, value);
            for (const uint8_t *cut = bytes; cut < end; cut++)
                CHECK(pb_varlong_read(bytes, cut, &back) == NULL);
        }
    }
}

TEST(too_many_bytes_are_refused_and_extra_bits_dropped)
{
    static const uint8_t six[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0};
    static const uint8_t five[] = {0xff, 0xff, 0xff, 0xff, 0x7f};
    uint8_t eleven[11];
    memset(eleven, 0x80, sizeof(eleven));
    eleven[10] = 0;
    uint32_t narrow = 0;
    int64_t wide = 0;
    CHECK(pb_unsigned_varint_read(six, six + 6, &narrow) == NULL);
    CHECK(pb_unsigned_varint_read(five, five + 5, &narrow) == five + 5);
    CHECK_INT(narrow, UINT32_MAX);
    CHECK(pb_varlong_read(eleven, eleven + 11, &wide) == NULL);
}

CHECK_MAIN()
