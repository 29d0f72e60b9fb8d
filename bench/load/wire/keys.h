/* The keys of records: `key-<number>`, and which partition each belongs to by Kafka's default partitioner.
 *
 * Made before the clock starts. One thread.
 */
#ifndef PBL_KEYS_H
#define PBL_KEYS_H

#include <stddef.h>
#include <stdint.h>

enum { PBL_KEY_BYTES = 16 };

/* The keys of each partition. */
struct pbl_keys {
    uint32_t partition_count;
    uint32_t **numbers; /* by partition */
    uint32_t *counts;   /* by partition; 0 where no key belongs */
};

void pbl_keys_open(struct pbl_keys *keys, uint32_t key_count, uint32_t partition_count);
void pbl_keys_close(struct pbl_keys *keys);

/* Write the partition's key number `index`, taken modulo how many it has; gives its length. */
size_t pbl_keys_format(const struct pbl_keys *keys, uint32_t partition, uint32_t index, char out[PBL_KEY_BYTES]);

#endif
