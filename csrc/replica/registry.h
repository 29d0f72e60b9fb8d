/*
 * Which partitions this broker serves, by topic name and by topic id. Read by every reactor for every partition of
 * every request, changed by Python when the metadata image changes.
 */
#ifndef PB_REPLICA_REGISTRY_H
#define PB_REPLICA_REGISTRY_H

#include <pthread.h>

#include "replica/partition.h"

/* One topic's partitions. Under the registry's lock. */
typedef struct pb_topic {
    char name[PB_TOPIC_NAME_BYTES];
    uint8_t id[16];
    pb_partition **partitions; /* by index; NULL: not here */
    int32_t partition_count;
    int32_t held; /* how many are not NULL */
} pb_topic;

/* Open addressing, linear probing, power-of-two sizes; both tables hold the same topics. */
typedef struct pb_registry {
    pthread_rwlock_t lock;
    pb_topic **by_name;
    pb_topic **by_id;
    uint32_t slot_count;
    uint32_t topic_count;
} pb_registry;

int pb_registry_init(pb_registry *registry);
void pb_registry_destroy(pb_registry *registry);

/* Add a partition (retained); replaces one of the same topic and index. 0 or -ENOMEM. */
int pb_registry_add(pb_registry *registry, pb_partition *partition);
/* Take it out if it is in; its reference is released. */
void pb_registry_remove(pb_registry *registry, pb_partition *partition);

/* A retained partition, or NULL. */
pb_partition *pb_registry_by_name(pb_registry *registry, const char *name, size_t length, int32_t index);
/* NULL with *topic_known telling whether it was the topic or the partition that is unknown. `name_out` (may be NULL)
 * gets the topic's name. */
pb_partition *pb_registry_by_id(pb_registry *registry, const uint8_t id[16], int32_t index, bool *topic_known);

#endif
