/*
 * A copy of what nobody on this CPU reads again soon: past its caches, which keep what they had, and do not read what
 * is about to be written over. Any thread; stateless; cannot fail.
 */
#ifndef PB_CPU_COPY_H
#define PB_CPU_COPY_H

#include <stddef.h>
#include <string.h>

/* Less than this is copied as any memory: the caches take it. */
#define PB_COPY_PAST_CACHES_LEAST_BYTES ((size_t)4 << 10)

/* pb_copy_past_caches for at least so much. */
void pb_copy_much_past_caches(void *destination, const void *source, size_t length);

/* As memcpy, for other threads too: what the caller stores before and after it is seen before and after the copy. */
static inline void pb_copy_past_caches(void *destination, const void *source, size_t length)
{
    if (length < PB_COPY_PAST_CACHES_LEAST_BYTES)
        memcpy(destination, source, length);
    else
        pb_copy_much_past_caches(destination, source, length);
}

#endif
