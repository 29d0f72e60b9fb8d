/*
 * Any bytes as a producer snapshot: refused whole, or loaded. The CRC is set right in every second input, so that what
 * lies behind it is reached.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "cpu/crc32c.h"
#include "log/derived/producer_snapshot.h"
#include "record/bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    bool mend = (data[0] & 1) != 0;
    size_t length = size - 1;
    uint8_t *bytes = malloc(length + 1);
    if (bytes == NULL)
        return 0;
    memcpy(bytes, data + 1, length);
    if (mend && length >= 10) {
        pb_be16_store(bytes, 1);
        pb_be32_store(bytes + 2, pb_crc32c(0, bytes + 6, length - 6));
    }
    pb_producers producers = {0};
    if (pb_producer_snapshot_parse(&producers, bytes, length, 1000, 500) != 0)
        PB_ASSERT(producers.count == 0);
    size_t formatted_length;
    uint8_t *formatted = pb_producer_snapshot_format(&producers, &formatted_length);
    pb_producers again = {0};
    int rc = pb_producer_snapshot_parse(&again, formatted, formatted_length, 0, INT64_MAX);
    PB_ASSERT(rc == 0 && again.count == producers.count);
    free(formatted);
    free(bytes);
    pb_producers_clear(&again);
    pb_producers_clear(&producers);
    return 0;
}
