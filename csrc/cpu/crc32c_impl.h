/*
 * The interface between crc32c.c, which chooses an implementation of CRC32C for this CPU, and the implementations.
 * `state` is the CRC's register: the complement of the CRC value of crc32c.h.
 *
 * Each implementation is a function `run(state, destination, source, length)`. It computes the CRC, and copies the data
 * if `destination` is not NULL. PB_CRC32C_IMPLEMENTATION makes two functions from it, `update` without and
 * `update_copy` with a copy. `run` is inlined into both, so the compiler removes the test of `destination`.
 */
#ifndef PB_CPU_CRC32C_IMPL_H
#define PB_CPU_CRC32C_IMPL_H

#include <stddef.h>
#include <stdint.h>

#include "cpu/cpu_features.h"

/* The polynomial 0x1EDC6F41 with its bits reversed. */
#define PB_CRC32C_POLYNOMIAL 0x82f63b78U

typedef struct pb_crc32c_impl {
    const char *name;
    bool (*supported)(const pb_cpu_features *features);
    /* Fills the tables of the implementation before its first use; NULL: it has no tables. May be called again. */
    void (*prepare)(void);
    uint32_t (*update)(uint32_t state, const uint8_t *data, size_t length);
    uint32_t (*update_copy)(uint32_t state, uint8_t *destination, const uint8_t *source, size_t length);
} pb_crc32c_impl;

extern const pb_crc32c_impl pb_crc32c_portable;
#if defined(__x86_64__)
extern const pb_crc32c_impl pb_crc32c_sse42;
extern const pb_crc32c_impl pb_crc32c_pclmul;
extern const pb_crc32c_impl pb_crc32c_avx512;
#elif defined(__aarch64__)
extern const pb_crc32c_impl pb_crc32c_arm;
#endif

/* Returns `state` after `bytes` zero bytes, which is state * x^(8 * bytes) modulo the polynomial. Slow, O(log bytes).
 */
uint32_t pb_crc32c_after_zeros(uint32_t state, uint64_t bytes);

#define PB_CRC32C_INLINE static inline __attribute__((always_inline))

/* Define the pb_crc32c_impl `symbol` from the functions `supported` and `run` of the including file. */
#define PB_CRC32C_IMPLEMENTATION(symbol, label, prepare)                                                    \
    static uint32_t update(uint32_t state, const uint8_t *data, size_t length)                              \
    {                                                                                                       \
        return run(state, NULL, data, length);                                                              \
    }                                                                                                       \
    static uint32_t update_copy(uint32_t state, uint8_t *destination, const uint8_t *source, size_t length) \
    {                                                                                                       \
        return run(state, destination, source, length);                                                     \
    }                                                                                                       \
    const pb_crc32c_impl symbol = {label, supported, prepare, update, update_copy}

#endif
