/*
 * Reads a FetchResponse of the version in the first byte, as a follower does that has sent a request of that version.
 * A readable response must be writable, and read back the same.
 */
#include "wire/generated/fetch_response.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Slices lie in the frame. */
static void check_slices(const pb_fetch_response *response, const uint8_t *data, size_t size)
{
    for (int32_t i = 0; i < response->responses_count; i++)
        for (int32_t j = 0; j < response->responses[i].partitions_count; j++) {
            const pb_slice *records = &response->responses[i].partitions[j].records;
            const uint8_t *bytes = records->data;
            PB_ASSERT(records->length <= 0 || (bytes >= data && bytes + records->length <= data + size));
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    const int range = PB_FETCH_RESPONSE_MAX_VERSION - PB_FETCH_RESPONSE_MIN_VERSION + 1;
    const int16_t version = (int16_t)(PB_FETCH_RESPONSE_MIN_VERSION + data[0] % range);
    pb_arena arena;
    pb_arena_init(&arena, 1 << 20);
    pb_writer writer;
    pb_writer_init(&writer, 1 << 20);
    pb_reader reader = pb_reader_of(data + 1, size - 1);
    pb_fetch_response response, again;
    if (pb_fetch_response_read(&reader, version, &arena, &response) == 0) {
        check_slices(&response, data, size);
        if (pb_fetch_response_write(&writer, version, &response) == 0) {
            pb_reader copy = pb_reader_of(writer.data, writer.length);
            PB_ASSERT(pb_fetch_response_read(&copy, version, &arena, &again) != -EBADMSG);
            PB_ASSERT(copy.error != 0 || pb_reader_left(&copy) == 0);
            PB_ASSERT(copy.error != 0 || again.responses_count == response.responses_count);
        }
    }
    pb_writer_free(&writer);
    pb_arena_free(&arena);
    return 0;
}
