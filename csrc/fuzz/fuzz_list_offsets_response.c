/* Reads a ListOffsetsResponse of the version in the first byte; what can be read must be writable, and read back the
 * same. */
#include "wire/generated/list_offsets_response.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    const int range = PB_LIST_OFFSETS_RESPONSE_MAX_VERSION - PB_LIST_OFFSETS_RESPONSE_MIN_VERSION + 1;
    const int16_t version = (int16_t)(PB_LIST_OFFSETS_RESPONSE_MIN_VERSION + data[0] % range);
    pb_arena arena;
    pb_arena_init(&arena, 1 << 20);
    pb_writer writer;
    pb_writer_init(&writer, 1 << 20);
    pb_reader reader = pb_reader_of(data + 1, size - 1);
    pb_list_offsets_response response, again;
    if (pb_list_offsets_response_read(&reader, version, &arena, &response) == 0 &&
        pb_list_offsets_response_write(&writer, version, &response) == 0) {
        pb_reader copy = pb_reader_of(writer.data, writer.length);
        PB_ASSERT(pb_list_offsets_response_read(&copy, version, &arena, &again) != -EBADMSG);
        PB_ASSERT(copy.error != 0 || pb_reader_left(&copy) == 0);
        PB_ASSERT(copy.error != 0 || again.topics_count == response.topics_count);
    }
    pb_writer_free(&writer);
    pb_arena_free(&arena);
    return 0;
}
