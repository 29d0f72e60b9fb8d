/* The rings of a broker: made when they are first wanted, kept until the pool closes. See tail_ring.h. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "log/ring_header.h"

struct pb_ring_pool {
    pb_io *io;
    char *directory;
    int64_t budget_bytes;
    int64_t ring_bytes;
    uint8_t session_id[PB_RING_UUID_BYTES];
    uint8_t boot_id[PB_BOOT_ID_BYTES];
    pthread_mutex_t lock; /* of what follows */
    pb_link free;
    int32_t ring_count; /* with those that are being made */
    int32_t taken_count;
    uint32_t next_number;
};

static int64_t file_bytes(const pb_ring_pool *pool)
{
    return PB_STORE_HEAD_BYTES + pool->ring_bytes;
}

int pb_ring_pool_open(const pb_ring_pool_options *options, pb_ring_pool **out, pb_failure *failure)
{
    if (options->ring_bytes <= 0 || options->ring_bytes % PB_DIRECT_BLOCK_BYTES != 0)
        return pb_fail(failure, -EINVAL, "a tail ring cannot have %lld bytes", (long long)options->ring_bytes);
    int rc = options->io->ops->store_directory(options->io, options->directory, failure);
    if (rc != 0)
        return rc;
    pb_ring_pool *pool = calloc(1, sizeof(*pool));
    char *directory = strdup(options->directory);
    rc = pool == NULL || directory == NULL ? -ENOMEM : options->io->ops->boot_id(options->io, pool->boot_id);
    if (rc != 0) {
        free(pool);
        free(directory);
        return pb_fail(failure, rc, "cannot use tail rings in %s", options->directory);
    }
    pool->io = options->io;
    pool->directory = directory;
    pool->budget_bytes = options->budget_bytes;
    pool->ring_bytes = options->ring_bytes;
    memcpy(pool->session_id, options->session_id, sizeof(pool->session_id));
    pthread_mutex_init(&pool->lock, NULL);
    pb_list_init(&pool->free);
    *out = pool;
    return 0;
}

static void destroy_ring(pb_ring_pool *pool, pb_tail_ring *ring)
{
    pool->io->ops->store_close(pool->io, &ring->store);
    /* One that stays is empty, and the next start removes it. */
    (void)pool->io->ops->unlink(pool->io, ring->path);
    free(ring->path);
    free(ring);
}

void pb_ring_pool_close(pb_ring_pool *pool)
{
    pb_link *link;
    PB_ASSERT(pool->taken_count == 0);
    while ((link = pb_list_pop_front(&pool->free)) != NULL)
        destroy_ring(pool, PB_CONTAINER(link, pb_tail_ring, link));
    /* Not when rings of others lie there. */
    (void)pool->io->ops->directory_remove(pool->io, pool->directory);
    pthread_mutex_destroy(&pool->lock);
    free(pool->directory);
    free(pool);
}

/* "<directory>/<session's first bytes>-<number>.ring": no other run's. */
static int make_ring(pb_ring_pool *pool, uint32_t number, pb_tail_ring **out)
{
    const uint8_t *id = pool->session_id;
    pb_tail_ring *ring = calloc(1, sizeof(*ring));
    if (ring == NULL)
        return -ENOMEM;
    if (asprintf(&ring->path, "%s/%02x%02x%02x%02x%02x%02x-%u.ring", pool->directory, id[0], id[1], id[2], id[3], id[4],
                 id[5], number) < 0) {
        free(ring);
        return -ENOMEM;
    }
    int rc = pool->io->ops->store_create(pool->io, ring->path, (size_t)pool->ring_bytes, &ring->store);
    if (rc != 0) {
        free(ring->path);
        free(ring);
        return rc;
    }
    ring->header = (pb_ring_header *)(void *)ring->store.head;
    pb_ring_header_make(ring->header, pool->ring_bytes, pool->boot_id, pool->session_id);
    pb_list_init(&ring->link);
    *out = ring;
    return 0;
}

int pb_ring_pool_take(pb_ring_pool *pool, pb_tail_ring **out)
{
    pthread_mutex_lock(&pool->lock);
    pb_link *link = pb_list_pop_front(&pool->free);
    bool make = link == NULL && (pool->ring_count + 1) * file_bytes(pool) <= pool->budget_bytes;
    uint32_t number = pool->next_number;
    if (make) {
        pool->ring_count++;
        pool->next_number++;
    }
    if (link != NULL || make)
        pool->taken_count++;
    pthread_mutex_unlock(&pool->lock);
    if (link != NULL) {
        *out = PB_CONTAINER(link, pb_tail_ring, link);
        return 0;
    }
    if (!make)
        return -EAGAIN;
    int rc = make_ring(pool, number, out);
    if (rc != 0) {
        pthread_mutex_lock(&pool->lock);
        pool->ring_count--;
        pool->taken_count--;
        pthread_mutex_unlock(&pool->lock);
    }
    return rc;
}

void pb_ring_pool_give(pb_ring_pool *pool, pb_tail_ring *ring)
{
    pb_ring_header_break(ring->header);
    pthread_mutex_lock(&pool->lock);
    PB_ASSERT(pool->taken_count > 0);
    pool->taken_count--;
    pb_list_push_back(&pool->free, &ring->link);
    pthread_mutex_unlock(&pool->lock);
}

void pb_ring_pool_leave(pb_ring_pool *pool, pb_tail_ring *ring)
{
    pool->io->ops->store_close(pool->io, &ring->store);
    free(ring->path);
    free(ring);
    pthread_mutex_lock(&pool->lock);
    PB_ASSERT(pool->taken_count > 0);
    pool->taken_count--; /* its file still counts against the budget */
    pthread_mutex_unlock(&pool->lock);
}

void pb_ring_pool_stats_read(pb_ring_pool *pool, pb_ring_pool_stats *out)
{
    pthread_mutex_lock(&pool->lock);
    *out = (pb_ring_pool_stats){
        .budget_bytes = pool->budget_bytes,
        .used_bytes = pool->ring_count * file_bytes(pool),
        .ring_count = pool->ring_count,
        .taken_count = pool->taken_count,
    };
    pthread_mutex_unlock(&pool->lock);
}

int64_t pb_ring_pool_ring_bytes(const pb_ring_pool *pool)
{
    return pool->ring_bytes;
}
