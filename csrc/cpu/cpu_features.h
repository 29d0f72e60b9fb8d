/*
 * The features of this CPU, asked once.
 *
 * Runs on any thread. Owns nothing, allocates nothing, cannot fail: an architecture that is not known here simply has
 * no features, and every user of this header has a portable path.
 */
#ifndef PB_CPU_CPU_FEATURES_H
#define PB_CPU_CPU_FEATURES_H

#include <stdbool.h>

/* Each field is true when both the CPU and the kernel (saved vector state) support the instructions. */
typedef struct pb_cpu_features {
    bool sse42;     /* SSE4.2 crc32 */
    bool pclmul;    /* PCLMULQDQ */
    bool avx512f;   /* AVX-512 F and VL */
    bool vpclmul;   /* VPCLMULQDQ */
    bool arm_crc;   /* ARMv8 CRC32 */
    bool arm_pmull; /* ARMv8 PMULL */
} pb_cpu_features;

/* Asks the CPU. Costs a few CPUID instructions or one getauxval: keep the answer where it matters. */
pb_cpu_features pb_cpu_features_detect(void);

#endif
