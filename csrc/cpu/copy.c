/* See copy.h. SSE2, which every x86-64 has: the memory is the limit, not the width of a store. */
#include "cpu/copy.h"

#include <stdint.h>
#include <string.h>

#include "base/assert.h"

/* GCC's ThreadSanitizer does not see such stores, and shall see who writes into the ring. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#include <emmintrin.h>

/* A store past the caches goes to memory a line at a time. */
enum { LINE_BYTES = 64 };

static void stream_line(uint8_t *destination, const uint8_t *source)
{
    const __m128i *from = (const __m128i *)source;
    __m128i *to = (__m128i *)destination;
    __m128i a = _mm_loadu_si128(from);
    __m128i b = _mm_loadu_si128(from + 1);
    __m128i c = _mm_loadu_si128(from + 2);
    __m128i d = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, a);
    _mm_stream_si128(to + 1, b);
    _mm_stream_si128(to + 2, c);
    _mm_stream_si128(to + 3, d);
}

void pb_copy_much_past_caches(void *destination, const void *source, size_t length)
{
    PB_ASSERT(length >= PB_COPY_PAST_CACHES_LEAST_BYTES);
    uint8_t *to = destination;
    const uint8_t *from = source;
    _mm_sfence(); /* acquire and release order ordinary stores only */
    size_t position = -(uintptr_t)to % LINE_BYTES;
    memcpy(to, from, position);
    for (; length - position >= LINE_BYTES; position += LINE_BYTES)
        stream_line(to + position, from + position);
    _mm_sfence();
    memcpy(to + position, from + position, length - position);
}

#else

void pb_copy_much_past_caches(void *destination, const void *source, size_t length)
{
    PB_ASSERT(length >= PB_COPY_PAST_CACHES_LEAST_BYTES);
    memcpy(destination, source, length);
}

#endif
