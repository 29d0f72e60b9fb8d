/*
 * Copies memory past the CPU's caches (with non-temporal stores), for bytes that this CPU does not read again soon. The
 * caches keep their contents, and the CPU does not load the destination's lines before it overwrites them. Any thread;
 * stateless; cannot fail.
 */
#ifndef PB_CPU_COPY_H
#define PB_CPU_COPY_H

#include <stddef.h>
#include <string.h>

/* Fewer bytes than this are copied by memcpy, through the caches. */
#define PB_COPY_PAST_CACHES_LEAST_BYTES ((size_t)4 << 10)

/* pb_copy_past_caches for at least PB_COPY_PAST_CACHES_LEAST_BYTES. */
void pb_copy_much_past_caches(void *destination, const void *source, size_t length);

/* Copy like memcpy. For other threads the stores are ordered as memcpy's: stores that the caller makes before the copy
 * become visible before it, and stores after the copy become visible after it. */
static inline void pb_copy_past_caches(void *destination, const void *source, size_t length)
{
    if (length < PB_COPY_PAST_CACHES_LEAST_BYTES)
        memcpy(destination, source, length);
    else
        pb_copy_much_past_caches(destination, source, length);
}

#endif
