/* A ring's header as bytes: made by the pool, checked by the replay. Plain functions, any thread. */
#ifndef PB_LOG_ENGINE_RING_HEADER_H
#define PB_LOG_ENGINE_RING_HEADER_H

#include "log/engine/tail_ring.h"

/* Replay's knowledge of a ring whose header is good. */
typedef struct pb_ring_content {
    pb_ring_identity identity;
    uint8_t boot_id[PB_BOOT_ID_BYTES];
    uint8_t session_id[PB_RING_UUID_BYTES];
    int64_t ring_bytes;
    int64_t segment_base;
    int64_t start_position;
    int64_t end_position;
    bool sealed; /* false: nothing is in it, and of the rest only ring_bytes, boot and session are true */
} pb_ring_content;

/* The header of a new store, whose bytes are all 0: not sealed. The magic comes last. */
void pb_ring_header_make(pb_ring_header *header, int64_t ring_bytes, const uint8_t *boot_id, const uint8_t *session_id);
/* Break the seal: nothing in the ring is wanted any more. */
void pb_ring_header_break(pb_ring_header *header);
uint32_t pb_ring_header_checksum(const pb_ring_header *header);

/* Take the last PB_STORE_HEAD_BYTES of a file of `file_bytes` apart. 0: the ring is whole. -ENODATA: the ring was never
 * finished. -EBADMSG: this is no ring, or not a whole one, and *out has the values found where its header should be.
 * -EPROTONOSUPPORT: of another version. */
int pb_ring_header_parse(const uint8_t *head, int64_t file_bytes, pb_ring_content *out);

#endif
