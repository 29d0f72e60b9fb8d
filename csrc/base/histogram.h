/*
 * A histogram with relative error of at most 1/8: powers of two, eight steps each. Of times in microseconds, or of
 * sizes. One writer; readers may copy it at any time and see counts that are each true.
 */
#ifndef PB_BASE_HISTOGRAM_H
#define PB_BASE_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

#define PB_HISTOGRAM_STEPS 8
#define PB_HISTOGRAM_BUCKETS (PB_HISTOGRAM_STEPS * 28) /* up to 2^30 us, 18 minutes; longer falls into the last */

typedef struct pb_histogram {
    _Atomic int64_t counts[PB_HISTOGRAM_BUCKETS];
    _Atomic int64_t sum;
} pb_histogram;

/* Values below 8 us have a bucket each; from there the three bits below the leading one choose the step. */
static inline int pb_histogram_bucket(int64_t us)
{
    if (us < PB_HISTOGRAM_STEPS)
        return us < 0 ? 0 : (int)us;
    int log2 = 63 - __builtin_clzll((unsigned long long)us);
    int bucket = (log2 - 2) * PB_HISTOGRAM_STEPS + (int)((us >> (log2 - 3)) & (PB_HISTOGRAM_STEPS - 1));
    return bucket < PB_HISTOGRAM_BUCKETS ? bucket : PB_HISTOGRAM_BUCKETS - 1;
}

static inline void pb_histogram_add(pb_histogram *histogram, int64_t us)
{
    _Atomic int64_t *count = &histogram->counts[pb_histogram_bucket(us)];
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1, memory_order_relaxed);
    int64_t sum = atomic_load_explicit(&histogram->sum, memory_order_relaxed);
    atomic_store_explicit(&histogram->sum, sum + (us > 0 ? us : 0), memory_order_relaxed);
}

#endif
