/*
 * What the implementations of CRC32C share with their dispatcher, and with nobody else. `state` is the CRC's register:
 * the complement of the value that users see.
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
    uint32_t (*update)(uint32_t state, const uint8_t *data, size_t length);
    uint32_t (*update_copy)(uint32_t state, uint8_t *destination, const uint8_t *source, size_t length);
} pb_crc32c_impl;

extern const pb_crc32c_impl pb_crc32c_portable;
#if defined(__x86_64__)
extern const pb_crc32c_impl pb_crc32c_sse42;
extern const pb_crc32c_impl pb_crc32c_avx512;
#elif defined(__aarch64__)
extern const pb_crc32c_impl pb_crc32c_arm;
#endif

/* Fills the portable tables; called once, before any implementation runs. */
void pb_crc32c_portable_init(void);

#endif
