/* The parts of the wire reader that are too large to inline; see wire/reader.h. */
#include "wire/reader.h"

#include <string.h>

uint32_t pb_read_long_uvarint(pb_reader *reader)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 35; shift += 7) {
        const uint8_t *at = pb_reader_take(reader, 1);
        if (at == NULL)
            return 0;
        value |= (uint64_t)(*at & 0x7f) << shift;
        if (*at < 0x80) {
            if (value > UINT32_MAX)
                break;
            return (uint32_t)value;
        }
    }
    pb_reader_fail(reader, -EBADMSG);
    return 0;
}

int32_t pb_read_array(pb_reader *reader, bool compact, bool nullable, size_t least_bytes, pb_arena *arena,
                      size_t element_bytes, void **elements)
{
    PB_ASSERT(least_bytes > 0 && element_bytes > 0);
    *elements = NULL;
    const int64_t count = pb_read_length(reader, compact, false);
    if (reader->error != 0)
        return 0;
    if (count < 0) {
        if (nullable)
            return -1;
        pb_reader_fail(reader, -EBADMSG);
        return 0;
    }
    if (count > PB_ARRAY_MAX_COUNT || (uint64_t)count > pb_reader_left(reader) / least_bytes) {
        pb_reader_fail(reader, -EBADMSG);
        return 0;
    }
    *elements = pb_arena_alloc_array(arena, (size_t)pb_array_first_room((int32_t)count), element_bytes);
    if (*elements == NULL) {
        pb_reader_fail(reader, -ENOMEM);
        return 0;
    }
    return (int32_t)count;
}

void *pb_array_grow(pb_reader *reader, pb_arena *arena, const void *elements, int32_t have, int32_t count,
                    size_t element_bytes)
{
    PB_ASSERT(have > 0 && have < count);
    PB_ASSERT(element_bytes > 0 && elements != NULL);
    void *larger = pb_arena_alloc_array(arena, (size_t)count, element_bytes);
    if (larger == NULL) {
        pb_reader_fail(reader, -ENOMEM);
        return NULL;
    }
    memcpy(larger, elements, (size_t)have * element_bytes);
    return larger;
}

void pb_read_skip_some_tags(pb_reader *reader, uint32_t count)
{
    PB_ASSERT(count <= PB_TAGGED_MAX_COUNT);
    for (uint32_t left = count; left > 0 && reader->error == 0; left--) {
        uint32_t tag;
        const size_t end = pb_read_tag(reader, &tag);
        pb_reader_skip_to(reader, end);
    }
}
