/*
 * CPU feature detection: CPUID through the compiler's builtins (which also check XCR0, so that AVX-512 on a kernel
 * that does not save its state reads as absent), HWCAP on ARM. Stateless; any thread; cannot fail.
 */
#include "cpu/cpu_features.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
/* Bits of AT_HWCAP as the arm64 kernel ABI gives them (Documentation/arch/arm64/elf_hwcaps.rst). */
#define ARM_HWCAP_PMULL (1UL << 4)
#define ARM_HWCAP_CRC32 (1UL << 7)
#endif

pb_cpu_features pb_cpu_features_detect(void)
{
    pb_cpu_features features = {0};
#if defined(__x86_64__)
    __builtin_cpu_init();
    features.sse42 = __builtin_cpu_supports("sse4.2") != 0;
    features.pclmul = __builtin_cpu_supports("pclmul") != 0;
    features.avx512f = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0;
    features.vpclmul = __builtin_cpu_supports("vpclmulqdq") != 0;
#elif defined(__aarch64__)
    unsigned long hwcap = getauxval(AT_HWCAP);
    features.arm_crc = (hwcap & ARM_HWCAP_CRC32) != 0;
    features.arm_pmull = (hwcap & ARM_HWCAP_PMULL) != 0;
#endif
    return features;
}
