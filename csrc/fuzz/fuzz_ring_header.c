/*
 * Any bytes as the head of a tail ring's file: refused, or what it says is sane and nothing behind the file's end is
 * spoken of. The first two bytes choose the file's length, the third whether the checksum is made right, since chance
 * would never find it.
 */
#include <string.h>

#include "base/assert.h"
#include "log/engine/ring_header.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static _Alignas(512) uint8_t head[PB_STORE_HEAD_BYTES];
    if (size < 3)
        return 0;
    int64_t file_bytes = (data[0] | data[1] << 8) * INT64_C(512);
    size_t length = size - 3 < sizeof(head) ? size - 3 : sizeof(head);
    memset(head, 0, sizeof(head));
    memcpy(head, data + 3, length);
    pb_ring_header *header = (pb_ring_header *)(void *)head;
    if (data[2] % 2 == 1) {
        memcpy(header->magic, "pb-ring", sizeof(header->magic));
        header->version = PB_RING_VERSION;
        header->checksum = pb_ring_header_checksum(header);
    }
    pb_ring_content content;
    if (pb_ring_header_parse(head, file_bytes, &content) != 0)
        return 0;
    PB_ASSERT(content.ring_bytes > 0 && content.ring_bytes + PB_STORE_HEAD_BYTES == file_bytes);
    if (!content.sealed)
        return 0;
    PB_ASSERT(content.start_position >= 0 && content.start_position <= content.end_position);
    PB_ASSERT(content.end_position - content.start_position <= content.ring_bytes);
    PB_ASSERT(content.segment_base >= 0 && content.identity.partition >= 0);
    PB_ASSERT(strlen(content.identity.topic) < sizeof(content.identity.topic));
    PB_ASSERT(strchr(content.identity.topic, '/') == NULL);
    return 0;
}
