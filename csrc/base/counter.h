/* Counters that anyone reads at any time. The adder is the counter's one writer, or holds the one lock of all writers.
 * */
#ifndef PB_BASE_COUNTER_H
#define PB_BASE_COUNTER_H

#include <stdatomic.h>
#include <stdint.h>

static inline int64_t pb_counter_read(const _Atomic int64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static inline void pb_counter_add(_Atomic int64_t *counter, int64_t amount)
{
    atomic_store_explicit(counter, pb_counter_read(counter) + amount, memory_order_relaxed);
}

#endif
