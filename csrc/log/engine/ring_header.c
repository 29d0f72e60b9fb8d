/* Making and reading the headers of tail rings. The bytes read may be anything: nothing in them is believed unchecked.
 * */
#include "log/engine/ring_header.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "cpu/crc32c.h"

static const uint8_t MAGIC[8] = "pb-ring";

#define FIRST_CHECKED offsetof(pb_ring_header, ring_bytes)
#define LAST_CHECKED (offsetof(pb_ring_header, identity) + sizeof(pb_ring_identity))

uint32_t pb_ring_header_checksum(const pb_ring_header *header)
{
    return pb_crc32c(0, (const uint8_t *)header + FIRST_CHECKED, LAST_CHECKED - FIRST_CHECKED);
}

void pb_ring_header_make(pb_ring_header *header, int64_t ring_bytes, const uint8_t *boot_id, const uint8_t *session_id)
{
    PB_ASSERT(header->magic[0] == 0);
    header->version = PB_RING_VERSION;
    header->ring_bytes = ring_bytes;
    memcpy(header->boot_id, boot_id, sizeof(header->boot_id));
    memcpy(header->session_id, session_id, sizeof(header->session_id));
    atomic_signal_fence(memory_order_seq_cst);
    memcpy(header->magic, MAGIC, sizeof(MAGIC));
}

/* The topic's name becomes part of a path. */
static bool identity_sane(const pb_ring_identity *identity)
{
    return identity->partition >= 0 && memchr(identity->topic, 0, sizeof(identity->topic)) != NULL &&
           identity->topic[0] != 0 && strchr(identity->topic, '/') == NULL;
}

static bool positions_sane(const pb_ring_header *header, const pb_ring_content *content)
{
    return header->begin_position >= 0 && content->segment_base >= 0 &&
           content->start_position >= header->begin_position && content->end_position >= content->start_position &&
           content->end_position - content->start_position <= content->ring_bytes;
}

int pb_ring_header_parse(const uint8_t *head, int64_t file_bytes, pb_ring_content *out)
{
    pb_ring_header header;
    if (file_bytes < PB_STORE_HEAD_BYTES)
        return -ENODATA;
    memcpy(&header, head, sizeof(header));
    if (memcmp(header.magic, (uint8_t[sizeof(MAGIC)]){0}, sizeof(MAGIC)) == 0)
        return -ENODATA;
    *out = (pb_ring_content){
        .ring_bytes = file_bytes - PB_STORE_HEAD_BYTES,
        .segment_base = header.segment_base,
        .start_position = atomic_load_explicit(&header.start_position, memory_order_relaxed),
        .end_position = atomic_load_explicit(&header.end_position, memory_order_relaxed),
        .sealed = atomic_load_explicit(&header.sealed, memory_order_relaxed) == 1,
        .identity = header.identity,
    };
    memcpy(out->boot_id, header.boot_id, sizeof(out->boot_id));
    memcpy(out->session_id, header.session_id, sizeof(out->session_id));
    if (memcmp(header.magic, MAGIC, sizeof(MAGIC)) != 0)
        return -EBADMSG;
    if (header.version != PB_RING_VERSION)
        return -EPROTONOSUPPORT;
    if (header.ring_bytes <= 0 || header.ring_bytes % PB_DIRECT_BLOCK_BYTES != 0 ||
        header.ring_bytes != file_bytes - PB_STORE_HEAD_BYTES)
        return -EBADMSG;
    if (!out->sealed)
        return 0;
    if (header.checksum != pb_ring_header_checksum(&header) || !positions_sane(&header, out) ||
        !identity_sane(&out->identity))
        return -EBADMSG;
    return 0;
}
