/*
 * A meter measures a run of operations: how many operations and bytes, the elapsed time, the CPU time, and the
 * latencies of single operations.
 *
 * A meter belongs to the thread that runs the operations. Its CPU time is of that thread alone, without kernel workers
 * and interrupts on other CPUs. Latencies are counted in PB_METER_STEPS buckets per power of two, so a percentile is
 * right to 3 %. No function fails or allocates memory.
 */
#ifndef PB_MEASURE_METER_H
#define PB_MEASURE_METER_H

#include <stdbool.h>
#include <stdint.h>

#include "io/io.h"

#define PB_METER_STEPS 32
#define PB_METER_BUCKETS (PB_METER_STEPS * 38) /* up to 2^42 ns, more than an hour */

/* When a run ends: after `budget_ns` and at least one operation, or after `max_bytes` (0: no bound), or when another
 * thread sets *stop. */
typedef struct pb_meter_limits {
    int64_t budget_ns;
    int64_t max_bytes;
    const int32_t *stop; /* may be NULL */
} pb_meter_limits;

/* The result of a run. Latencies are of single operations; all 0 when there was none. */
typedef struct pb_meter_result {
    int64_t operations;
    int64_t bytes;
    int64_t elapsed_ns;
    int64_t cpu_ns;
    int64_t min_ns;
    int64_t p50_ns;
    int64_t p90_ns;
    int64_t p99_ns;
    int64_t p999_ns;
    int64_t max_ns;
} pb_meter_result;

/* Owner: the caller's stack. */
typedef struct pb_meter {
    pb_io *io;
    pb_meter_limits limits;
    int64_t started_ns;
    int64_t started_cpu_ns;
    int64_t operations;
    int64_t bytes;
    int64_t min_ns;
    int64_t max_ns;
    uint32_t buckets[PB_METER_BUCKETS];
} pb_meter;

/* CPU time of the calling thread. */
int64_t pb_meter_cpu_ns(void);

void pb_meter_start(pb_meter *meter, pb_io *io, const pb_meter_limits *limits);
/* Count `count` operations, which had `bytes` together and took `ns` each. */
void pb_meter_add(pb_meter *meter, int64_t count, int64_t bytes, int64_t ns);
/* Whether a limit is reached at the time `now_ns`. */
bool pb_meter_is_over(const pb_meter *meter, int64_t now_ns);
void pb_meter_finish(const pb_meter *meter, pb_meter_result *out);

#endif
