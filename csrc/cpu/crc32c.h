/*
 * CRC32C (Castagnoli, RFC 3720 appendix B.4): the checksum of Kafka's record batches.
 *
 * One function for the whole program, behind a pointer that is set before main() to the fastest implementation this CPU
 * runs; pb_crc32c_select forces another one (tests, profiles). Any thread may compute; select belongs to start-up,
 * while no other thread computes. Nothing is allocated and nothing can fail. The CRC of no bytes is 0, and calls chain:
 * pb_crc32c(pb_crc32c(0, a), b) is the CRC of a followed by b.
 */
#ifndef PB_CPU_CRC32C_H
#define PB_CPU_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* CRC of what `crc` covers followed by `length` bytes. */
uint32_t pb_crc32c(uint32_t crc, const void *data, size_t length);

/* Copy `length` bytes and return their CRC as pb_crc32c would, in one pass over memory. The ranges must not overlap. */
uint32_t pb_crc32c_copy(uint32_t crc, void *destination, const void *source, size_t length);

/*
 * The change of a message's CRC when `difference` (old XOR new) is laid over `length` bytes that are followed by
 * `trailing` unchanged bytes: XOR the result into the message's CRC. Costs O(length + log trailing).
 */
uint32_t pb_crc32c_patch(const void *difference, size_t length, uint64_t trailing);

/* Use the implementation of that name; false, and no change, when this build or CPU does not have it. */
bool pb_crc32c_select(const char *name);

/* Names this CPU can run, fastest first, ended by NULL; "portable" is always among them. */
const char *const *pb_crc32c_names(void);

/* The name of the implementation in use. */
const char *pb_crc32c_selected(void);

#endif
