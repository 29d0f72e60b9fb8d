/*
 * The cases: hot functions of the data plane, each set up once and called any number of times.
 *
 * Two users: `perf_cases` counts the instructions of a call under callgrind (`make instructions`), `libperf_cases.so`
 * times them for `python -m pytest bench/micro`. One thread, one case at a time. A case that cannot be set up, or that
 * does not do what it should, ends the process with its reason: a figure of something else would be worse.
 */
#ifndef PB_PERF_CASES_H
#define PB_PERF_CASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* One case. open and close may be NULL; what they share with run is static in their file. */
typedef struct perf_case {
    const char *name;
    void (*open)(void);
    void (*run)(uint64_t calls);
    void (*close)(void);
    uint32_t bytes; /* of payload that one call goes through; 0: none */
    bool foreign; /* most of its work is a library's of the system: timed, but its instructions are not ours to count */
} perf_case;

/* Tables that end with a name of NULL. */
extern const perf_case PERF_RECORD_CASES[];
extern const perf_case PERF_LOG_CASES[];
extern const perf_case PERF_SERVER_CASES[];

#define PERF_MUST(condition)                                                              \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

/* Keep a result, and all memory, as far as the compiler knows: nothing is left out or moved out of a loop. */
#define PERF_KEEP(value) __asm__ volatile("" ::"g"(value) : "memory")

enum { PERF_TEXT_BYTES = 64 * 1024 };

/* Text that compresses as records of people do: words of a small vocabulary and numbers, always the same. */
void perf_text(uint8_t *out, size_t length);

/* An uncompressed batch of `record_count` records with keys of 8 bytes and values of `value_bytes`; the records are
 * compressed with `compression` (a pb_compression). Aligned; free() it. */
uint8_t *perf_batch(int record_count, size_t value_bytes, int compression, uint32_t *length);

#endif
