/* Topic look-up. Readers share the lock; a change is rare and rebuilds nothing but its own entries. */
#include "replica/registry.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_SLOTS 64

/* FNV-1a: names are short and chosen by the operator's users, and a poor spread only lengthens a probe. */
static uint32_t hash_bytes(const void *data, size_t length)
{
    const uint8_t *bytes = data;
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ bytes[i]) * 16777619u;
    return hash;
}

int pb_registry_init(pb_registry *registry)
{
    memset(registry, 0, sizeof *registry);
    registry->by_name = calloc(FIRST_SLOTS, sizeof *registry->by_name);
    registry->by_id = calloc(FIRST_SLOTS, sizeof *registry->by_id);
    if (registry->by_name == NULL || registry->by_id == NULL) {
        free(registry->by_name);
        free(registry->by_id);
        return -ENOMEM;
    }
    registry->slot_count = FIRST_SLOTS;
    pthread_rwlock_init(&registry->lock, NULL);
    return 0;
}

void pb_registry_destroy(pb_registry *registry)
{
    PB_ASSERT(registry->topic_count == 0);
    free(registry->by_name);
    free(registry->by_id);
    pthread_rwlock_destroy(&registry->lock);
}

static uint32_t name_slot(const pb_registry *registry, const char *name, size_t length)
{
    uint32_t mask = registry->slot_count - 1, slot = hash_bytes(name, length) & mask;
    while (registry->by_name[slot] != NULL) {
        const pb_topic *topic = registry->by_name[slot];
        if (strlen(topic->name) == length && memcmp(topic->name, name, length) == 0)
            break; /* a name from a client may hold NUL bytes, ours do not */
        slot = (slot + 1) & mask;
    }
    return slot;
}

static uint32_t id_slot(const pb_registry *registry, const uint8_t id[16])
{
    uint32_t mask = registry->slot_count - 1, slot = hash_bytes(id, 16) & mask;
    while (registry->by_id[slot] != NULL && memcmp(registry->by_id[slot]->id, id, 16) != 0)
        slot = (slot + 1) & mask;
    return slot;
}

static int grow(pb_registry *registry)
{
    uint32_t old_count = registry->slot_count;
    pb_topic **old_names = registry->by_name, **old_ids = registry->by_id;
    registry->by_name = calloc(2 * (size_t)old_count, sizeof *registry->by_name);
    registry->by_id = calloc(2 * (size_t)old_count, sizeof *registry->by_id);
    if (registry->by_name == NULL || registry->by_id == NULL) {
        free(registry->by_name);
        free(registry->by_id);
        registry->by_name = old_names;
        registry->by_id = old_ids;
        return -ENOMEM;
    }
    registry->slot_count = 2 * old_count;
    for (uint32_t i = 0; i < old_count; i++)
        if (old_names[i] != NULL) {
            pb_topic *topic = old_names[i];
            registry->by_name[name_slot(registry, topic->name, strlen(topic->name))] = topic;
            registry->by_id[id_slot(registry, topic->id)] = topic;
        }
    free(old_names);
    free(old_ids);
    return 0;
}

/* Close the hole at `slot` so that probes still find what lies behind it. */
static void close_hole(pb_registry *registry, pb_topic **table, uint32_t slot, bool names)
{
    uint32_t mask = registry->slot_count - 1, hole = slot;
    table[hole] = NULL;
    for (uint32_t i = (hole + 1) & mask; table[i] != NULL; i = (i + 1) & mask) {
        const pb_topic *topic = table[i];
        uint32_t home = (names ? hash_bytes(topic->name, strlen(topic->name)) : hash_bytes(topic->id, 16)) & mask;
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            table[hole] = table[i];
            table[i] = NULL;
            hole = i;
        }
    }
}

static pb_topic *find_or_make_topic(pb_registry *registry, const pb_partition *partition)
{
    size_t length = strlen(partition->topic);
    PB_ASSERT(length > 0 && length < PB_TOPIC_NAME_BYTES);
    pb_topic *topic = registry->by_name[name_slot(registry, partition->topic, length)];
    if (topic != NULL)
        return topic;
    if (registry->topic_count * 2 >= registry->slot_count && grow(registry) < 0)
        return NULL;
    topic = calloc(1, sizeof *topic);
    if (topic == NULL)
        return NULL;
    memcpy(topic->name, partition->topic, length + 1);
    memcpy(topic->id, partition->topic_id, sizeof topic->id);
    registry->by_name[name_slot(registry, topic->name, length)] = topic;
    registry->by_id[id_slot(registry, topic->id)] = topic;
    registry->topic_count++;
    return topic;
}

static int make_room(pb_topic *topic, int32_t index)
{
    if (index < topic->partition_count)
        return 0;
    pb_partition **partitions = realloc(topic->partitions, ((size_t)index + 1) * sizeof *partitions);
    if (partitions == NULL)
        return -ENOMEM;
    for (int32_t i = topic->partition_count; i <= index; i++)
        partitions[i] = NULL;
    topic->partitions = partitions;
    topic->partition_count = index + 1;
    return 0;
}

static void drop_if_empty(pb_registry *registry, pb_topic *topic)
{
    if (topic->held > 0)
        return;
    close_hole(registry, registry->by_name, name_slot(registry, topic->name, strlen(topic->name)), true);
    close_hole(registry, registry->by_id, id_slot(registry, topic->id), false);
    registry->topic_count--;
    free(topic->partitions);
    free(topic);
}

int pb_registry_add(pb_registry *registry, pb_partition *partition)
{
    PB_ASSERT(partition->index >= 0);
    pthread_rwlock_wrlock(&registry->lock);
    pb_topic *topic = find_or_make_topic(registry, partition);
    int result = topic == NULL ? -ENOMEM : memcmp(topic->id, partition->topic_id, 16) != 0 ? -EEXIST : 0;
    if (result == 0)
        result = make_room(topic, partition->index);
    pb_partition *replaced = NULL;
    if (result == 0) {
        replaced = topic->partitions[partition->index];
        topic->held += replaced == NULL;
        pb_partition_retain(partition);
        topic->partitions[partition->index] = partition;
    } else if (topic != NULL) {
        drop_if_empty(registry, topic);
    }
    pthread_rwlock_unlock(&registry->lock);
    if (replaced != NULL)
        pb_partition_release(replaced);
    return result;
}

void pb_registry_remove(pb_registry *registry, pb_partition *partition)
{
    pthread_rwlock_wrlock(&registry->lock);
    pb_topic *topic = registry->by_name[name_slot(registry, partition->topic, strlen(partition->topic))];
    bool found =
        topic != NULL && partition->index < topic->partition_count && topic->partitions[partition->index] == partition;
    if (found) {
        topic->partitions[partition->index] = NULL;
        topic->held--;
        drop_if_empty(registry, topic);
    }
    pthread_rwlock_unlock(&registry->lock);
    if (found)
        pb_partition_release(partition);
}

static pb_partition *take(const pb_topic *topic, int32_t index)
{
    if (topic == NULL || index < 0 || index >= topic->partition_count || topic->partitions[index] == NULL)
        return NULL;
    pb_partition_retain(topic->partitions[index]);
    return topic->partitions[index];
}

pb_partition *pb_registry_by_name(pb_registry *registry, const char *name, size_t length, int32_t index)
{
    if (length == 0 || length >= PB_TOPIC_NAME_BYTES)
        return NULL;
    pthread_rwlock_rdlock(&registry->lock);
    pb_partition *partition = take(registry->by_name[name_slot(registry, name, length)], index);
    pthread_rwlock_unlock(&registry->lock);
    return partition;
}

pb_partition *pb_registry_by_id(pb_registry *registry, const uint8_t id[16], int32_t index, bool *topic_known)
{
    pthread_rwlock_rdlock(&registry->lock);
    const pb_topic *topic = registry->by_id[id_slot(registry, id)];
    *topic_known = topic != NULL;
    pb_partition *partition = take(topic, index);
    pthread_rwlock_unlock(&registry->lock);
    return partition;
}
