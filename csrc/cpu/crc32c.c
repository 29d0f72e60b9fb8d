/*
 * CRC32C: choice of the implementation, and arithmetic on finished CRCs.
 *
 * The choice is made by a constructor, before any thread exists, so that the pointer needs no synchronisation. Any
 * thread computes; nothing is allocated; nothing can fail.
 */
#include "cpu/crc32c.h"

#include <string.h>

#include "base/assert.h"
#include "cpu/crc32c_impl.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "CRC32C is written for little-endian machines"
#endif

/* Fastest first. */
static const pb_crc32c_impl *const implementations[] = {
#if defined(__x86_64__)
    &pb_crc32c_avx512,
    &pb_crc32c_pclmul,
    &pb_crc32c_sse42,
#elif defined(__aarch64__)
    &pb_crc32c_arm,
#endif
    &pb_crc32c_portable,
};

enum { IMPLEMENTATION_COUNT = sizeof(implementations) / sizeof(implementations[0]) };

static const pb_crc32c_impl *selected;
static const char *supported_names[IMPLEMENTATION_COUNT + 1];

static void use(const pb_crc32c_impl *implementation)
{
    if (implementation->prepare != NULL)
        implementation->prepare();
    selected = implementation;
}

__attribute__((constructor)) static void choose_implementation(void)
{
    pb_cpu_features features = pb_cpu_features_detect();
    size_t name_count = 0;
    for (size_t i = 0; i < IMPLEMENTATION_COUNT; i++) {
        if (!implementations[i]->supported(&features))
            continue;
        if (selected == NULL)
            use(implementations[i]);
        supported_names[name_count++] = implementations[i]->name;
    }
    PB_ASSERT(selected != NULL);
}

uint32_t pb_crc32c(uint32_t crc, const void *data, size_t length)
{
    return ~selected->update(~crc, data, length);
}

uint32_t pb_crc32c_copy(uint32_t crc, void *destination, const void *source, size_t length)
{
    return ~selected->update_copy(~crc, destination, source, length);
}

bool pb_crc32c_select(const char *name)
{
    for (size_t i = 0; supported_names[i] != NULL; i++) {
        if (strcmp(supported_names[i], name) != 0)
            continue;
        for (size_t j = 0; j < IMPLEMENTATION_COUNT; j++)
            if (implementations[j]->name == supported_names[i])
                use(implementations[j]);
        return true;
    }
    return false;
}

const char *const *pb_crc32c_names(void)
{
    return supported_names;
}

const char *pb_crc32c_selected(void)
{
    return selected->name;
}

/* a times b modulo the polynomial; the bits of both are reversed: bit 31 is the constant term. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (; a != 0; a <<= 1) {
        product ^= b & (0U - (a >> 31));
        b = (b >> 1) ^ (PB_CRC32C_POLYNOMIAL & (0U - (b & 1)));
    }
    return product;
}

/* x to the power of 8 * bytes, by squaring: x^8 is bit 23. */
static uint32_t power_of_bytes(uint64_t bytes)
{
    uint32_t square = 0x00800000U;
    uint32_t power = 0x80000000U;
    for (; bytes != 0; bytes >>= 1) {
        if (bytes & 1)
            power = multiply(square, power);
        square = multiply(square, square);
    }
    return power;
}

uint32_t pb_crc32c_after_zeros(uint32_t state, uint64_t bytes)
{
    return state == 0 ? 0 : multiply(state, power_of_bytes(bytes));
}

uint32_t pb_crc32c_patch(const void *difference, size_t length, uint64_t trailing)
{
    /* The register starts at 0, not at ~0: the CRC is linear in the difference, its start value cancels out. */
    uint32_t state = selected->update(0, difference, length);
    return pb_crc32c_after_zeros(state, trailing);
}
