/* One tail ring: its header's protocol. See tail_ring.h for the threads and for what a kill may find. */
#include <string.h>

#include "base/assert.h"
#include "log/engine/ring_header.h"
#include "log/engine/tail_ring.h"

/* A kill is as a signal: it finds all stores that come before some place in the program, and none behind it. Only the
 * compiler could change their order. */
static void set_seal(pb_ring_header *header, uint32_t sealed)
{
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(&header->sealed, sealed, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
}

void pb_ring_header_break(pb_ring_header *header)
{
    set_seal(header, 0);
}

void pb_tail_ring_begin(pb_tail_ring *ring, const pb_ring_identity *identity, int64_t segment_base, int64_t position)
{
    pb_ring_header *header = ring->header;
    PB_ASSERT(segment_base >= 0 && position >= 0 && identity->partition >= 0);
    PB_ASSERT(memchr(identity->topic, 0, sizeof(identity->topic)) != NULL);
    set_seal(header, 0);
    header->segment_base = segment_base;
    header->begin_position = position;
    header->identity = *identity;
    atomic_store_explicit(&header->start_position, position, memory_order_relaxed);
    atomic_store_explicit(&header->end_position, position, memory_order_relaxed);
    header->checksum = pb_ring_header_checksum(header);
    set_seal(header, 1);
}

void pb_tail_ring_publish(pb_tail_ring *ring, int64_t end)
{
    PB_ASSERT(end >= pb_tail_ring_end(ring) && end - pb_tail_ring_start(ring) <= pb_tail_ring_bytes(ring));
    atomic_store_explicit(&ring->header->end_position, end, memory_order_release);
}

void pb_tail_ring_advance(pb_tail_ring *ring, int64_t start)
{
    PB_ASSERT(start >= pb_tail_ring_start(ring) && start <= pb_tail_ring_end(ring));
    atomic_store_explicit(&ring->header->start_position, start, memory_order_release);
}
