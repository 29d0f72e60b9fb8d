/*
 * Measures this CPU on bytes in memory: CRC32C by a named implementation, copying, and both in one pass.
 *
 * For tools: while it runs, the implementation that all of the process uses is another one (cpu/crc32c.h), so nobody
 * else may compute. The same block is worked on again and again; a small one stays in the CPU's caches.
 */
#ifndef PB_MEASURE_CPU_WORK_H
#define PB_MEASURE_CPU_WORK_H

#include "measure/meter.h"

enum pb_cpu_work_kind { PB_CPU_WORK_CRC32C = 1, PB_CPU_WORK_COPY = 2, PB_CPU_WORK_COPY_CRC32C = 3 };

typedef struct pb_cpu_work {
    enum pb_cpu_work_kind kind;
    const char *crc32c; /* name of the implementation; NULL: the one in use */
    int64_t block_bytes;
    pb_meter_limits limits;
} pb_cpu_work;

/* 0, -ENOTSUP when this CPU has no such implementation, -EINVAL, or -ENOMEM. */
int pb_cpu_work_run(pb_io *io, const pb_cpu_work *work, pb_meter_result *out, pb_failure *failure);

#endif
