/* Racks of brokers. See the header for who may call. */
#include "server/racks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void pb_racks_init(pb_racks *racks)
{
    memset(racks, 0, sizeof *racks);
    pthread_rwlock_init(&racks->lock, NULL);
    atomic_init(&racks->count, 0);
}

void pb_racks_destroy(pb_racks *racks)
{
    pthread_rwlock_destroy(&racks->lock);
    free(racks->brokers);
}

int pb_racks_set(pb_racks *racks, const pb_rack *brokers, int count)
{
    size_t size = (size_t)count * sizeof *brokers;
    for (int i = 0; i < count; i++)
        size += strlen(brokers[i].name) + 1;
    pb_rack *copies = count > 0 ? malloc(size) : NULL;
    if (count > 0 && copies == NULL)
        return -ENOMEM;
    char *names = copies != NULL ? (char *)(copies + count) : NULL;
    for (int i = 0; i < count; i++) {
        size_t length = strlen(brokers[i].name) + 1;
        memcpy(names, brokers[i].name, length);
        copies[i] = (pb_rack){.node_id = brokers[i].node_id, .name = names};
        names += length;
    }
    pthread_rwlock_wrlock(&racks->lock);
    pb_rack *old = racks->brokers;
    racks->brokers = copies;
    atomic_store_explicit(&racks->count, count, memory_order_relaxed);
    pthread_rwlock_unlock(&racks->lock);
    free(old);
    return 0;
}

int pb_racks_find(pb_racks *racks, pb_slice name, int32_t *out, int capacity)
{
    int found = 0;
    if (name.length <= 0 || atomic_load_explicit(&racks->count, memory_order_relaxed) == 0)
        return 0;
    pthread_rwlock_rdlock(&racks->lock);
    int count = atomic_load_explicit(&racks->count, memory_order_relaxed);
    for (int i = 0; i < count && found < capacity; i++)
        if (strlen(racks->brokers[i].name) == (size_t)name.length &&
            memcmp(racks->brokers[i].name, name.data, (size_t)name.length) == 0)
            out[found++] = racks->brokers[i].node_id;
    pthread_rwlock_unlock(&racks->lock);
    return found;
}
