/* CRC32C and copies, timed; see cpu_work.h. */
#include "measure/cpu_work.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/crc32c.h"

#define BLOCK_MAX_BYTES (64LL << 20)
#define SAMPLE_BYTES (1LL << 20) /* one look at the clock for at least this much work */

static uint32_t work_once(enum pb_cpu_work_kind kind, uint32_t crc, uint8_t *to, const uint8_t *from, size_t length)
{
    switch (kind) {
    case PB_CPU_WORK_CRC32C:
        return pb_crc32c(crc, from, length);
    case PB_CPU_WORK_COPY:
        memcpy(to, from, length);
        __asm__ volatile("" ::"r"(to) : "memory"); /* somebody reads it */
        return crc;
    case PB_CPU_WORK_COPY_CRC32C:
        return pb_crc32c_copy(crc, to, from, length);
    }
    return crc;
}

static void work_until_over(const pb_cpu_work *work, uint8_t *to, const uint8_t *from, pb_meter *meter)
{
    const int64_t count = work->block_bytes >= SAMPLE_BYTES ? 1 : SAMPLE_BYTES / work->block_bytes;
    pb_io *io = meter->io;
    uint32_t crc = work_once(work->kind, 0, to, from, (size_t)work->block_bytes); /* the caches are warm */
    int64_t before_ns = io->ops->monotonic_ns(io);
    do {
        for (int64_t i = 0; i < count; i++)
            crc = work_once(work->kind, crc, to, from, (size_t)work->block_bytes);
        int64_t now_ns = io->ops->monotonic_ns(io);
        pb_meter_add(meter, count, count * work->block_bytes, (now_ns - before_ns) / count);
        before_ns = now_ns;
    } while (!pb_meter_is_over(meter, before_ns));
    __asm__ volatile("" ::"r"(crc)); /* nothing of it may be left out */
}

int pb_cpu_work_run(pb_io *io, const pb_cpu_work *work, pb_meter_result *out, pb_failure *failure)
{
    if (work->block_bytes < 1 || work->block_bytes > BLOCK_MAX_BYTES)
        return pb_fail(failure, -EINVAL, "blocks of %lld bytes cannot be measured", (long long)work->block_bytes);
    const char *before = pb_crc32c_selected();
    if (work->crc32c != NULL && !pb_crc32c_select(work->crc32c))
        return pb_fail(failure, -ENOTSUP, "this CPU or build has no CRC32C named '%s'", work->crc32c);
    uint8_t *from = malloc((size_t)work->block_bytes), *to = malloc((size_t)work->block_bytes);
    int result = 0;
    if (from == NULL || to == NULL) {
        result = pb_fail(failure, -ENOMEM, "measuring the CPU");
    } else {
        memset(from, 0x5a, (size_t)work->block_bytes);
        memset(to, 0, (size_t)work->block_bytes);
        pb_meter meter;
        pb_meter_start(&meter, io, &work->limits);
        work_until_over(work, to, from, &meter);
        pb_meter_finish(&meter, out);
    }
    free(from);
    free(to);
    bool is_restored = pb_crc32c_select(before);
    PB_ASSERT(is_restored);
    return result;
}
