/*
 * Any bytes as a mark: refused, or what it says is sane and written as the same bytes again. The version and the CRC
 * are made right in every second input, so that what lies behind them is reached.
 */
#include <string.h>

#include "base/assert.h"
#include "cpu/crc32c.h"
#include "log/recover/mark.h"
#include "record/bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t bytes[PB_MARK_BYTES + 8];
    if (size < 1 || size - 1 > sizeof(bytes))
        return 0;
    size_t length = size - 1;
    memcpy(bytes, data + 1, length);
    if ((data[0] & 1) != 0 && length == PB_MARK_BYTES) {
        pb_be16_store(bytes, 0);
        pb_be32_store(bytes + 2, pb_crc32c(0, bytes + 6, length - 6));
    }
    pb_mark mark;
    if (!pb_mark_parse(bytes, length, &mark))
        return 0;
    PB_ASSERT(mark.base_offset >= 0 && mark.offset > mark.base_offset && mark.position > 0);
    uint8_t again[PB_MARK_BYTES];
    pb_mark_format(&mark, again);
    PB_ASSERT(length == sizeof(again) && memcmp(again, bytes, sizeof(again)) == 0);
    return 0;
}
