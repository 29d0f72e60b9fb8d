/*
 * The registry finds the partitions that this broker serves, by topic name and by topic id. Every reactor reads it for
 * every partition of a request. Python changes it when the metadata image changes. Any thread.
 */
#ifndef PB_REPLICA_REGISTRY_H
#define PB_REPLICA_REGISTRY_H

#include <pthread.h>

#include "replica/partition.h"

/* One topic's partitions. Under the registry's lock. */
typedef struct pb_topic {
    char name[PB_TOPIC_NAME_BYTES];
    uint8_t id[16];
    pb_partition **partitions; /* by index; NULL: this broker does not serve it */
    int32_t partition_count;
    int32_t held; /* how many are not NULL */
} pb_topic;

/* Two hash tables of the same topics, with open addressing, linear probing and a power of two as their size. */
typedef struct pb_registry {
    pthread_rwlock_t lock;
    pb_topic **by_name;
    pb_topic **by_id;
    uint32_t slot_count;
    uint32_t topic_count;
} pb_registry;

int pb_registry_init(pb_registry *registry);
void pb_registry_destroy(pb_registry *registry);

/* Add a partition and retain it. It replaces the partition of the same topic and index, if there is one. 0 or -ENOMEM,
 * or -EEXIST: another topic id has this name. */
int pb_registry_add(pb_registry *registry, pb_partition *partition);
/* Remove the partition if it is in the registry, and release it. */
void pb_registry_remove(pb_registry *registry, pb_partition *partition);

/* Find a partition. Returns it retained, or NULL. */
pb_partition *pb_registry_by_name(pb_registry *registry, const char *name, size_t length, int32_t index);
/* Find a partition. Returns it retained, or NULL. *topic_known says whether the registry has the topic id. */
pb_partition *pb_registry_by_id(pb_registry *registry, const uint8_t id[16], int32_t index, bool *topic_known);

#endif
