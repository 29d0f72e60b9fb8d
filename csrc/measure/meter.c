/* Timed runs; see meter.h. */
#include "measure/meter.h"

#include <string.h>
#include <time.h>

#define STEP_BITS 5

_Static_assert(1 << STEP_BITS == PB_METER_STEPS, "a bucket is found by shifting");

int64_t pb_meter_cpu_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

static int bucket_of(int64_t ns)
{
    if (ns < PB_METER_STEPS)
        return ns < 0 ? 0 : (int)ns;
    int log2 = 63 - __builtin_clzll((unsigned long long)ns);
    int bucket = (log2 - STEP_BITS + 1) * PB_METER_STEPS + (int)((ns >> (log2 - STEP_BITS)) & (PB_METER_STEPS - 1));
    return bucket < PB_METER_BUCKETS ? bucket : PB_METER_BUCKETS - 1;
}

/* The smallest value of a bucket. */
static int64_t value_of(int bucket)
{
    if (bucket < PB_METER_STEPS)
        return bucket;
    int power = bucket / PB_METER_STEPS, step = bucket % PB_METER_STEPS;
    return (int64_t)(PB_METER_STEPS + step) << (power - 1);
}

void pb_meter_start(pb_meter *meter, pb_io *io, const pb_meter_limits *limits)
{
    memset(meter, 0, sizeof *meter);
    meter->io = io;
    meter->limits = *limits;
    meter->min_ns = INT64_MAX;
    meter->started_cpu_ns = pb_meter_cpu_ns();
    meter->started_ns = io->ops->monotonic_ns(io);
}

void pb_meter_add(pb_meter *meter, int64_t count, int64_t bytes, int64_t ns)
{
    meter->operations += count;
    meter->bytes += bytes;
    meter->min_ns = ns < meter->min_ns ? ns : meter->min_ns;
    meter->max_ns = ns > meter->max_ns ? ns : meter->max_ns;
    meter->buckets[bucket_of(ns)] += (uint32_t)count;
}

bool pb_meter_is_over(const pb_meter *meter, int64_t now_ns)
{
    const pb_meter_limits *limits = &meter->limits;
    return (meter->operations > 0 && now_ns - meter->started_ns >= limits->budget_ns) ||
           (limits->max_bytes > 0 && meter->bytes >= limits->max_bytes) ||
           (limits->stop != NULL && __atomic_load_n(limits->stop, __ATOMIC_RELAXED) != 0);
}

/* The value that `per_mille` of all operations did not exceed, but never outside what was seen. */
static int64_t percentile(const pb_meter *meter, int64_t per_mille)
{
    int64_t wanted = (meter->operations * per_mille + 999) / 1000, seen = 0;
    for (int i = 0; i < PB_METER_BUCKETS; i++) {
        seen += meter->buckets[i];
        if (seen >= wanted) {
            int64_t middle = (value_of(i) + value_of(i + 1)) / 2;
            return middle < meter->min_ns ? meter->min_ns : middle > meter->max_ns ? meter->max_ns : middle;
        }
    }
    return meter->max_ns;
}

void pb_meter_finish(const pb_meter *meter, pb_meter_result *out)
{
    *out = (pb_meter_result){
        .operations = meter->operations,
        .bytes = meter->bytes,
        .elapsed_ns = meter->io->ops->monotonic_ns(meter->io) - meter->started_ns,
        .cpu_ns = pb_meter_cpu_ns() - meter->started_cpu_ns,
    };
    if (meter->operations == 0)
        return;
    out->min_ns = meter->min_ns;
    out->p50_ns = percentile(meter, 500);
    out->p90_ns = percentile(meter, 900);
    out->p99_ns = percentile(meter, 990);
    out->p999_ns = percentile(meter, 999);
    out->max_ns = meter->max_ns;
}
