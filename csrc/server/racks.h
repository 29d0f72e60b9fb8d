/*
 * Where the brokers stand, for consumers that read from the nearest replica (KIP-392). Python replaces all of it when
 * the cluster changes; reactors look for the brokers of a rack. Any thread.
 */
#ifndef PB_SERVER_RACKS_H
#define PB_SERVER_RACKS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "wire/reader.h"

/* A broker's place. The text is ended by a zero byte. */
typedef struct pb_rack {
    int32_t node_id;
    const char *name;
} pb_rack;

typedef struct pb_racks {
    pthread_rwlock_t lock;
    pb_rack *brokers; /* one block of memory with their names */
    atomic_int count; /* changed under the lock; 0: nobody is sent anywhere */
} pb_racks;

void pb_racks_init(pb_racks *racks);
void pb_racks_destroy(pb_racks *racks);
/* `brokers` are copied. 0 or -ENOMEM. */
int pb_racks_set(pb_racks *racks, const pb_rack *brokers, int count);
/* The brokers of a rack into `out`; how many, at most `capacity`. */
int pb_racks_find(pb_racks *racks, pb_slice name, int32_t *out, int capacity);

#endif
