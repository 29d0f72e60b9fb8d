/*
 * A histogram with relative error of at most 1/8: powers of two, eight steps each. Holds times in microseconds, or
 * sizes. One writer; readers may copy it at any time and see counts that are each true.
 */
#ifndef PB_BASE_HISTOGRAM_H
#define PB_BASE_HISTOGRAM_H

#include "base/counter.h"

#define PB_HISTOGRAM_STEPS 8
#define PB_HISTOGRAM_BUCKETS (PB_HISTOGRAM_STEPS * 28) /* up to 2^30, in us 18 minutes; more falls into the last */

typedef struct pb_histogram {
    _Atomic int64_t counts[PB_HISTOGRAM_BUCKETS];
    _Atomic int64_t sum;
} pb_histogram;

/* Values below 8 have a bucket each; from there the three bits below the leading one choose the step. */
static inline int pb_histogram_bucket(int64_t value)
{
    if (value < PB_HISTOGRAM_STEPS)
        return value < 0 ? 0 : (int)value;
    int log2 = 63 - __builtin_clzll((unsigned long long)value);
    int bucket = (log2 - 2) * PB_HISTOGRAM_STEPS + (int)((value >> (log2 - 3)) & (PB_HISTOGRAM_STEPS - 1));
    return bucket < PB_HISTOGRAM_BUCKETS ? bucket : PB_HISTOGRAM_BUCKETS - 1;
}

static inline void pb_histogram_add(pb_histogram *histogram, int64_t value)
{
    pb_counter_add(&histogram->counts[pb_histogram_bucket(value)], 1);
    pb_counter_add(&histogram->sum, value > 0 ? value : 0);
}

#endif
