/*
 * Times CRC32C, ours and others', from inside C: a shared object for `python -m bench.micro.crc32c`, which finds the
 * others' functions and passes them by address.
 *
 * One thread; `perf_crc32c_select` changes what later calls measure. Owns nothing; cannot fail, except that an unknown
 * kind is a mistake of the caller and ends the process.
 */
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "cpu/crc32c.h"

#define EXPORT __attribute__((visibility("default")))

/* The functions to measure. The last three call a job's `function`. */
enum {
    PERF_CRC,           /* pb_crc32c */
    PERF_CRC_COPY,      /* pb_crc32c_copy */
    PERF_COPY,          /* memcpy */
    PERF_COPY_THEN_CRC, /* memcpy, then pb_crc32c of the copy */
    PERF_EXTEND,        /* uint32_t f(uint32_t crc, const void *data, size_t length): google-crc32c's library */
    PERF_UPDATE,        /* the same with the register, which is the CRC's complement: the crc32c wheel */
    PERF_ISCSI,         /* uint32_t f(uint8_t *data, int length, uint32_t register): ISA-L */
};

typedef struct perf_job {
    void *function;
    uint8_t *destination;
    uint8_t *source;
    uint64_t length; /* bytes, at most INT_MAX */
    uint64_t calls;
    int kind;
    uint32_t crc; /* of the last call */
} perf_job;

/* Nanoseconds that `calls` calls took; `crc` is set. Each costs a switch more than the call itself, the same for all.
 */
EXPORT uint64_t perf_crc32c_run(perf_job *job);
/* As pb_crc32c_select: 1 when the implementation of that name is in use now. */
EXPORT int perf_crc32c_select(const char *name);
/* As pb_crc32c_names. */
EXPORT const char *const *perf_crc32c_names(void);

typedef uint32_t extend_function(uint32_t crc, const void *data, size_t length);
typedef uint32_t iscsi_function(uint8_t *data, int length, uint32_t state);

static uint32_t call_once(const perf_job *job)
{
    switch (job->kind) {
    case PERF_CRC:
        return pb_crc32c(0, job->source, job->length);
    case PERF_CRC_COPY:
        return pb_crc32c_copy(0, job->destination, job->source, job->length);
    case PERF_COPY:
        memcpy(job->destination, job->source, job->length);
        return 0;
    case PERF_COPY_THEN_CRC:
        memcpy(job->destination, job->source, job->length);
        return pb_crc32c(0, job->destination, job->length);
    case PERF_EXTEND:
        return ((extend_function *)job->function)(0, job->source, job->length);
    case PERF_UPDATE:
        return ~((extend_function *)job->function)(~0U, job->source, job->length);
    case PERF_ISCSI:
        return ~((iscsi_function *)job->function)(job->source, (int)job->length, ~0U);
    default:
        PB_ASSERT(!"a kind of job that is not known");
    }
}

/* Nanoseconds that `calls` calls took; `crc` is set. Each costs a switch more than the call itself, the same for all.
 */
uint64_t perf_crc32c_run(perf_job *job)
{
    struct timespec begin;
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (uint64_t i = 0; i < job->calls; i++) {
        job->crc = call_once(job);
        /* Memory may have changed, for all the compiler knows: no copy is left out because the next one repeats it. */
        __asm__ volatile("" ::: "memory");
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (uint64_t)(end.tv_sec - begin.tv_sec) * 1000000000U + (uint64_t)end.tv_nsec - (uint64_t)begin.tv_nsec;
}

int perf_crc32c_select(const char *name)
{
    return pb_crc32c_select(name);
}

const char *const *perf_crc32c_names(void)
{
    return pb_crc32c_names();
}
