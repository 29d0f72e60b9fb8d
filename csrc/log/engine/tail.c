/*
 * Reading the tail of a segment. The copy may race with its own overwriting, on purpose: it counts only when the ring
 * says afterwards that it has kept those bytes all the time. See tail.h.
 */
#include "log/engine/tail.h"

#include <string.h>

#include "base/assert.h"
#include "log/segment/segment.h"

#if defined(__SANITIZE_THREAD__)
#define WITH_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WITH_TSAN 1
#endif
#endif

/* The race is looked for afterwards, so the sanitizer shall not report it. */
#ifdef WITH_TSAN
__attribute__((no_sanitize("thread"))) static void copy_racing(uint8_t *to, const volatile uint8_t *from, size_t length)
{
    for (size_t i = 0; i < length; i++)
        to[i] = from[i];
}
#else
static void copy_racing(uint8_t *to, const uint8_t *from, size_t length)
{
    memcpy(to, from, length);
}
#endif

void pb_tail_attach(pb_segment *segment, const uint8_t *memory, size_t ring_bytes, int64_t position)
{
    pb_tail_view *tail = &segment->tail;
    PB_ASSERT(memory != NULL && atomic_load(&tail->memory) == NULL && position >= 0);
    tail->ring_bytes = ring_bytes;
    atomic_fetch_add(&tail->generation, 1);
    atomic_store(&tail->kept_position, position);
    atomic_store(&tail->sealed_position, position);
    atomic_store(&tail->memory, memory);
}

void pb_tail_detach(pb_segment *segment)
{
    /* A full barrier: what others write into the ring later comes after it for every reader. */
    (void)atomic_exchange(&segment->tail.memory, NULL);
}

void pb_tail_forget(pb_segment *segment, int64_t position)
{
    pb_tail_view *tail = &segment->tail;
    if (position <= atomic_load_explicit(&tail->kept_position, memory_order_relaxed))
        return;
    PB_ASSERT(position <= atomic_load(&tail->sealed_position));
    (void)atomic_exchange(&tail->kept_position, position);
}

void pb_tail_seal(pb_segment *segment, int64_t position)
{
    PB_ASSERT(position >= atomic_load(&segment->tail.sealed_position));
    atomic_store(&segment->tail.sealed_position, position);
}

bool pb_tail_is_attached(const pb_segment *segment)
{
    return atomic_load(&segment->tail.memory) != NULL;
}

bool pb_tail_holds(const pb_segment *segment, int64_t end)
{
    return pb_tail_settled_bytes(segment, end) < end;
}

int64_t pb_tail_settled_bytes(const pb_segment *segment, int64_t size_bytes)
{
    const pb_tail_view *tail = &segment->tail;
    return atomic_load(&tail->memory) != NULL ? atomic_load(&tail->sealed_position) : size_bytes;
}

int64_t pb_tail_file_bytes(const pb_segment *segment, int64_t position, int64_t length)
{
    const pb_tail_view *tail = &segment->tail;
    if (atomic_load(&tail->memory) == NULL)
        return length;
    int64_t left = atomic_load(&tail->kept_position) - position;
    return left < 0 ? 0 : left < length ? left : length;
}

bool pb_tail_copy(const pb_segment *segment, void *buffer, size_t length, int64_t position)
{
    pb_tail_view *tail = (pb_tail_view *)(uintptr_t)&segment->tail;
    uint64_t generation = atomic_load(&tail->generation);
    const uint8_t *memory = atomic_load(&tail->memory);
    if (memory == NULL || position < atomic_load(&tail->kept_position) || length > tail->ring_bytes)
        return false;
    copy_racing(buffer, memory + (size_t)position % tail->ring_bytes, length);
    /* Writing what is there keeps the copy before the look. */
    int64_t kept_position = atomic_fetch_add(&tail->kept_position, 0);
    return atomic_load(&tail->memory) == memory && atomic_load(&tail->generation) == generation &&
           kept_position <= position;
}

/* Read up to `length` bytes that have left the ring, and say how many. History comes in pieces, any of which may be
 * here while its neighbours are in the page cache: each is looked for by itself. */
static int read_settled(pb_segment *segment, int file, uint8_t *buffer, size_t length, int64_t position, size_t *count)
{
    *count = length;
    if (pb_history_may_hold(segment)) {
        *count = pb_history_copy(segment, buffer, length, position);
        if (*count > 0)
            return 0;
        *count = (size_t)pb_piece_part(position, (int64_t)length);
    }
    return pb_io_read_all(segment->io, file, buffer, *count, position);
}

int pb_tail_read(pb_segment *segment, int file, void *buffer, size_t length, int64_t position)
{
    uint8_t *at = buffer;
    while (length > 0) {
        size_t count = (size_t)pb_tail_file_bytes(segment, position, (int64_t)length);
        if (count > 0) {
            int rc = read_settled(segment, file, at, count, position, &count);
            if (rc != 0)
                return rc;
        } else if (pb_tail_copy(segment, at, length, position)) {
            count = length;
        }
        at += count;
        position += (int64_t)count;
        length -= count;
    }
    return 0;
}
