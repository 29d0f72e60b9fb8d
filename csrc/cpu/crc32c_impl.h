/*
 * Shared by the implementations of CRC32C and their dispatcher, and by nobody else. `state` is the CRC's register: the
 * complement of the value that users see.
 *
 * An implementation is one function, `run`, which copies too when it has a destination. PB_CRC32C_IMPLEMENTATION makes
 * both of its forms, with and without the copy, from that one source: `run` is always inlined, so neither form asks.
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
    /* Fills tables, before the first use; NULL when there are none. May be called again. */
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

/* `state` after `bytes` zero bytes: it times x^(8 * bytes) modulo the polynomial. Slow, O(log bytes). */
uint32_t pb_crc32c_after_zeros(uint32_t state, uint64_t bytes);

#define PB_CRC32C_INLINE static inline __attribute__((always_inline))

/* `symbol` from the including file's `supported` and `run(state, destination or NULL, source, length)`. */
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
