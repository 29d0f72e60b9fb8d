/*
 * A copy of what nobody on this CPU reads again soon: past its caches, which keep what they had, and do not read what
 * is about to be written over. Any thread; stateless; cannot fail.
 */
#ifndef PB_CPU_COPY_H
#define PB_CPU_COPY_H

#include <stddef.h>

/* As memcpy, for other threads too: what the caller stores before and after it is seen before and after the copy. */
void pb_copy_past_caches(void *destination, const void *source, size_t length);

#endif
