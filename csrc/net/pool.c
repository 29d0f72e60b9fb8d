/* Receive buffers. Any thread; the free lists are under the pool's mutex, which is never held across a system call. */
#include "net/pool.h"

#include <stdlib.h>

#include "base/assert.h"

#define ALIGNMENT 64
#define SLOW_SHARE 8 /* slow connections matter when they hold such a part of the budget */

void pb_pool_init(pb_pool *pool, int64_t budget_bytes)
{
    PB_ASSERT(budget_bytes >= PB_CHUNK_UNIT_BYTES);
    pthread_mutex_init(&pool->mutex, NULL);
    for (int i = 0; i < PB_POOL_CLASSES; i++)
        pool->free[i] = NULL;
    pool->budget_bytes = budget_bytes;
    pool->retained_bytes = 0;
    pool->overdraft_bytes = 0;
    pool->overdrawn = false;
    pool->rounds[0] = (pb_pool_round){0};
    pool->rounds[1] = (pb_pool_round){0};
    atomic_init(&pool->used_bytes, 0);
    atomic_init(&pool->starved, 0);
    atomic_init(&pool->fed_ns, 0);
}

static void destroy_chunk(pb_chunk *chunk)
{
    free(chunk->data);
    free(chunk);
}

void pb_pool_destroy(pb_pool *pool)
{
    PB_ASSERT(pb_pool_used_bytes(pool) == 0);
    for (int i = 0; i < PB_POOL_CLASSES; i++)
        while (pool->free[i] != NULL) {
            pb_chunk *chunk = pool->free[i];
            pool->free[i] = chunk->next;
            destroy_chunk(chunk);
        }
    pthread_mutex_destroy(&pool->mutex);
}

/* Recycled chunk of a class, or NULL. The lock is held. */
static pb_chunk *pop_free(pb_pool *pool, uint32_t units)
{
    if (units > PB_POOL_CLASSES || pool->free[units - 1] == NULL)
        return NULL;
    pb_chunk *chunk = pool->free[units - 1];
    pool->free[units - 1] = chunk->next;
    pool->retained_bytes -= chunk->capacity;
    return chunk;
}

static pb_chunk *make_chunk(pb_pool *pool, uint32_t capacity)
{
    pb_chunk *chunk = malloc(sizeof *chunk);
    if (chunk == NULL)
        return NULL;
    chunk->data = aligned_alloc(ALIGNMENT, capacity);
    if (chunk->data == NULL) {
        free(chunk);
        return NULL;
    }
    chunk->pool = pool;
    chunk->capacity = capacity;
    return chunk;
}

/* A chunk within `limit_bytes`; `smaller` as for pb_pool_exchange. */
static pb_chunk *take_within(pb_pool *pool, uint32_t bytes, int64_t limit_bytes, bool overdraft, pb_chunk *smaller)
{
    PB_ASSERT(bytes > 0 && bytes <= (uint32_t)INT32_MAX + PB_CHUNK_UNIT_BYTES);
    uint32_t units = (bytes + PB_CHUNK_UNIT_BYTES - 1) / PB_CHUNK_UNIT_BYTES;
    int64_t capacity = (int64_t)units * PB_CHUNK_UNIT_BYTES;
    pthread_mutex_lock(&pool->mutex);
    bool over = pb_pool_used_bytes(pool) - pool->overdraft_bytes + capacity > limit_bytes;
    bool has_overdraft = smaller != NULL && smaller->overdraft;
    if (over && !has_overdraft && (!overdraft || pool->overdrawn)) {
        pthread_mutex_unlock(&pool->mutex);
        return NULL;
    }
    atomic_fetch_add_explicit(&pool->used_bytes, capacity, memory_order_relaxed);
    if (over) {
        if (has_overdraft)
            smaller->overdraft = false;
        pool->overdrawn = true;
        pool->overdraft_bytes = capacity;
    }
    pb_chunk *chunk = pop_free(pool, units);
    pthread_mutex_unlock(&pool->mutex);
    if (chunk == NULL)
        chunk = make_chunk(pool, (uint32_t)capacity);
    if (chunk == NULL) {
        pthread_mutex_lock(&pool->mutex);
        atomic_fetch_sub_explicit(&pool->used_bytes, capacity, memory_order_relaxed);
        if (over) {
            pool->overdrawn = false;
            pool->overdraft_bytes = 0;
        }
        pthread_mutex_unlock(&pool->mutex);
        return NULL;
    }
    atomic_init(&chunk->references, 1);
    chunk->overdraft = over;
    chunk->fitted = false;
    return chunk;
}

pb_chunk *pb_pool_take(pb_pool *pool, uint32_t bytes, bool overdraft)
{
    return take_within(pool, bytes, pool->budget_bytes, overdraft, NULL);
}

pb_chunk *pb_pool_exchange(pb_pool *pool, uint32_t bytes, bool large, bool overdraft, pb_chunk *smaller)
{
    PB_ASSERT(large || bytes <= PB_CHUNK_UNIT_BYTES);
    int64_t limit_bytes = large ? pb_pool_large_bytes(pool) : pool->budget_bytes;
    return take_within(pool, bytes, limit_bytes, overdraft, smaller);
}

pb_chunk *pb_pool_take_fitting(pb_pool *pool, uint32_t bytes)
{
    PB_ASSERT(bytes > 0 && bytes <= (uint32_t)INT32_MAX);
    uint32_t grain = bytes > PB_CHUNK_UNIT_BYTES ? PB_CHUNK_UNIT_BYTES : ALIGNMENT;
    uint32_t capacity = (bytes + grain - 1) / grain * grain;
    pb_chunk *chunk = make_chunk(pool, capacity);
    if (chunk == NULL)
        return NULL;
    atomic_init(&chunk->references, 1);
    chunk->overdraft = false;
    chunk->fitted = true;
    atomic_fetch_add_explicit(&pool->used_bytes, capacity, memory_order_relaxed);
    return chunk;
}

pb_chunk *pb_pool_take_spare(pb_pool *pool, uint32_t bytes)
{
    if (pb_pool_used_bytes(pool) + bytes > pool->budget_bytes / 2)
        return NULL;
    return pb_pool_take(pool, bytes, false);
}

bool pb_pool_reserve(pb_pool *pool, int64_t bytes)
{
    PB_ASSERT(bytes >= 0);
    int64_t used = pb_pool_used_bytes(pool);
    do
        if (used + bytes > pool->budget_bytes / 2)
            return false;
    while (!atomic_compare_exchange_weak_explicit(&pool->used_bytes, &used, used + bytes, memory_order_relaxed,
                                                  memory_order_relaxed));
    return true;
}

void pb_pool_unreserve(pb_pool *pool, int64_t bytes)
{
    int64_t before = atomic_fetch_sub_explicit(&pool->used_bytes, bytes, memory_order_relaxed);
    PB_ASSERT(before >= bytes);
}

void pb_pool_tell_slow(pb_pool *pool, int64_t now_ns, int64_t bytes, int64_t bytes_per_second, bool overdraft)
{
    PB_ASSERT(bytes > 0 && bytes_per_second >= 0);
    int64_t number = now_ns / PB_POOL_ROUND_NS;
    pthread_mutex_lock(&pool->mutex);
    pb_pool_round *round = &pool->rounds[number & 1];
    if (round->number != number)
        *round = (pb_pool_round){.number = number, .bytes_per_second = INT64_MAX};
    round->slow_bytes += bytes;
    round->has_overdraft = round->has_overdraft || overdraft;
    if (bytes_per_second < round->bytes_per_second)
        round->bytes_per_second = bytes_per_second;
    pthread_mutex_unlock(&pool->mutex);
}

int64_t pb_pool_slowest(pb_pool *pool, int64_t now_ns)
{
    if (!pb_pool_has_starved(pool) || pb_pool_used_bytes(pool) <= pb_pool_large_bytes(pool) / 2)
        return -1; /* those that starve are fed soon */
    int64_t number = now_ns / PB_POOL_ROUND_NS - 1;
    pthread_mutex_lock(&pool->mutex);
    const pb_pool_round *round = &pool->rounds[number & 1];
    bool matters =
        round->number == number && (round->has_overdraft || round->slow_bytes >= pool->budget_bytes / SLOW_SHARE);
    int64_t slowest = matters ? round->bytes_per_second : -1;
    pthread_mutex_unlock(&pool->mutex);
    return slowest;
}

void pb_chunk_retain(pb_chunk *chunk)
{
    int before = atomic_fetch_add_explicit(&chunk->references, 1, memory_order_relaxed);
    PB_ASSERT(before > 0);
}

void pb_chunk_release(pb_chunk *chunk)
{
    int before = atomic_fetch_sub_explicit(&chunk->references, 1, memory_order_acq_rel);
    PB_ASSERT(before > 0);
    if (before > 1)
        return;
    pb_pool *pool = chunk->pool;
    uint32_t units = chunk->capacity / PB_CHUNK_UNIT_BYTES;
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_sub_explicit(&pool->used_bytes, chunk->capacity, memory_order_relaxed);
    if (chunk->overdraft) {
        pool->overdrawn = false;
        pool->overdraft_bytes = 0;
    }
    bool is_recycled = chunk->capacity % PB_CHUNK_UNIT_BYTES == 0 && units <= PB_POOL_CLASSES;
    bool keep = is_recycled && pool->retained_bytes + chunk->capacity <= pool->budget_bytes / 2;
    if (keep) {
        chunk->next = pool->free[units - 1];
        pool->free[units - 1] = chunk;
        pool->retained_bytes += chunk->capacity;
    }
    pthread_mutex_unlock(&pool->mutex);
    if (!keep)
        destroy_chunk(chunk);
}
