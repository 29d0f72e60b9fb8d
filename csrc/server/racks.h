/*
 * The racks of the brokers, for consumers that read from a replica in their own rack (KIP-392). Python replaces the
 * whole table when the cluster changes. Reactors look up the brokers of a rack. Any thread.
 */
#ifndef PB_SERVER_RACKS_H
#define PB_SERVER_RACKS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "wire/reader.h"

/* The rack of a broker. `name` ends with a zero byte. */
typedef struct pb_rack {
    int32_t node_id;
    const char *name;
} pb_rack;

typedef struct pb_racks {
    pthread_rwlock_t lock;
    pb_rack *brokers; /* one block of memory, the names included */
    atomic_int count; /* changed under the lock; 0: no consumer is sent to another replica */
} pb_racks;

void pb_racks_init(pb_racks *racks);
void pb_racks_destroy(pb_racks *racks);
/* Replace the table by a copy of `brokers`. 0 or -ENOMEM. */
int pb_racks_set(pb_racks *racks, const pb_rack *brokers, int count);
/* Write the node ids of a rack's brokers to `out`. Returns how many, at most `capacity`. */
int pb_racks_find(pb_racks *racks, pb_slice name, int32_t *out, int capacity);

#endif
