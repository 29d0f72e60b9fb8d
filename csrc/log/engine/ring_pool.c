/* The rings of a broker: made when they are first wanted, kept until the pool closes. See tail_ring.h. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "log/engine/ring_replay.h"

/* A log dir whose logs may have rings. */
typedef struct known_log_dir {
    pb_link link;
    char *path;
    uint8_t id[PB_RING_UUID_BYTES];
} known_log_dir;

struct pb_ring_pool {
    pb_io *io;
    char *directory;
    int64_t budget_bytes;
    int64_t ring_bytes;
    uint8_t session_id[PB_RING_UUID_BYTES];
    uint8_t boot_id[PB_BOOT_ID_BYTES];
    _Atomic uint32_t next_number;
    _Atomic int32_t lost_count;
    pthread_mutex_t lock; /* of what follows */
    pb_link free;
    pb_link left;       /* with bytes that are nowhere else */
    pb_link lost;       /* their files are gone: of no use, but a reader may be copying from them */
    pb_link log_dirs;   /* known_log_dir */
    int32_t ring_count; /* with those that are being made, and lost ones */
    int32_t taken_count;
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
    pb_list_init(&pool->left);
    pb_list_init(&pool->lost);
    pb_list_init(&pool->log_dirs);
    *out = pool;
    return 0;
}

bool pb_ring_pool_has(const pb_ring_pool *pool, const pb_tail_ring *ring)
{
    return pool->io->ops->store_stands(pool->io, ring->path, &ring->store);
}

/* The file goes only when it is still ours. If that fails it is empty, and the next start removes it. */
static void destroy_ring(pb_ring_pool *pool, pb_tail_ring *ring, bool unlink)
{
    if (unlink && pb_ring_pool_has(pool, ring))
        (void)pool->io->ops->unlink(pool->io, ring->path);
    pool->io->ops->store_close(pool->io, &ring->store);
    free(ring->path);
    free(ring);
}

void pb_ring_pool_close(pb_ring_pool *pool)
{
    pb_link *link;
    PB_ASSERT(pool->taken_count == 0);
    while ((link = pb_list_pop_front(&pool->free)) != NULL)
        destroy_ring(pool, PB_CONTAINER(link, pb_tail_ring, link), true);
    while ((link = pb_list_pop_front(&pool->left)) != NULL)
        destroy_ring(pool, PB_CONTAINER(link, pb_tail_ring, link), false);
    while ((link = pb_list_pop_front(&pool->lost)) != NULL)
        destroy_ring(pool, PB_CONTAINER(link, pb_tail_ring, link), false);
    while ((link = pb_list_pop_front(&pool->log_dirs)) != NULL) {
        known_log_dir *known = PB_CONTAINER(link, known_log_dir, link);
        free(known->path);
        free(known);
    }
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

/* The one that `path` is, or that lies directly above it. [lock] */
static const known_log_dir *find_log_dir(const pb_ring_pool *pool, const char *path, size_t length)
{
    for (const pb_link *link = pool->log_dirs.next; link != &pool->log_dirs; link = link->next) {
        const known_log_dir *known = PB_CONTAINER(link, known_log_dir, link);
        if (strlen(known->path) == length && memcmp(known->path, path, length) == 0)
            return known;
    }
    return NULL;
}

int pb_ring_pool_add_log_dir(pb_ring_pool *pool, const char *path, const uint8_t *directory_id)
{
    known_log_dir *made = calloc(1, sizeof(*made));
    char *copy = strdup(path);
    int rc = made == NULL || copy == NULL ? -ENOMEM : 0;
    pthread_mutex_lock(&pool->lock);
    const known_log_dir *known = find_log_dir(pool, path, strlen(path));
    if (rc == 0 && known == NULL) {
        made->path = copy;
        memcpy(made->id, directory_id, sizeof(made->id));
        pb_list_push_back(&pool->log_dirs, &made->link);
        made = NULL;
        copy = NULL;
    } else if (rc == 0 && memcmp(known->id, directory_id, sizeof(known->id)) != 0) {
        rc = -EEXIST;
    }
    pthread_mutex_unlock(&pool->lock);
    free(copy);
    free(made);
    return rc;
}

/* It is empty, and its file is gone. Its memory stays, and with it its part of the budget: readers copy without a lock
 * and look afterwards whether the ring was still their log's. [lock] */
static void lose_ring(pb_ring_pool *pool, pb_tail_ring *ring)
{
    pb_list_push_back(&pool->lost, &ring->link);
    atomic_fetch_add(&pool->lost_count, 1);
}

int32_t pb_ring_pool_lost_count(const pb_ring_pool *pool)
{
    return atomic_load(&pool->lost_count);
}

const char *pb_ring_pool_directory(const pb_ring_pool *pool)
{
    return pool->directory;
}

/* A ring that was given back, with its file in its place; NULL: there is none. [lock] */
static pb_tail_ring *pop_free(pb_ring_pool *pool)
{
    pb_link *link;
    while ((link = pb_list_pop_front(&pool->free)) != NULL) {
        pb_tail_ring *ring = PB_CONTAINER(link, pb_tail_ring, link);
        if (pb_ring_pool_has(pool, ring))
            return ring;
        lose_ring(pool, ring);
    }
    return NULL;
}

/* Make room for one more in use: *out is one that was given back, or NULL when a new one has to be made. */
static int reserve_ring(pb_ring_pool *pool, const char *log_directory, pb_ring_identity *identity, pb_tail_ring **out)
{
    const char *slash = strrchr(log_directory, '/');
    int rc = 0;
    *out = NULL;
    pthread_mutex_lock(&pool->lock);
    const known_log_dir *known =
        slash != NULL ? find_log_dir(pool, log_directory, (size_t)(slash - log_directory)) : NULL;
    if (known == NULL)
        rc = -EXDEV;
    else if ((*out = pop_free(pool)) != NULL)
        rc = 0;
    else if ((pool->ring_count + 1) * pool->ring_bytes > pool->budget_bytes)
        rc = -EAGAIN;
    else
        pool->ring_count++;
    if (rc == 0) {
        pool->taken_count++;
        memcpy(identity->directory_id, known->id, sizeof(known->id));
    }
    pthread_mutex_unlock(&pool->lock);
    return rc;
}

int pb_ring_pool_take(pb_ring_pool *pool, const char *log_directory, pb_ring_identity *identity, pb_tail_ring **out)
{
    int rc = reserve_ring(pool, log_directory, identity, out);
    if (rc != 0 || *out != NULL)
        return rc;
    rc = make_ring(pool, atomic_fetch_add(&pool->next_number, 1), out);
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
    /* So that whatever is found behind a log's end is of that log, even without a header that says so. */
    memset(ring->store.ring, 0, ring->store.ring_bytes);
    bool lost = !pb_ring_pool_has(pool, ring);
    pthread_mutex_lock(&pool->lock);
    PB_ASSERT(pool->taken_count > 0);
    pool->taken_count--;
    if (lost)
        lose_ring(pool, ring);
    else
        pb_list_push_back(&pool->free, &ring->link);
    pthread_mutex_unlock(&pool->lock);
}

void pb_ring_pool_leave(pb_ring_pool *pool, pb_tail_ring *ring)
{
    pthread_mutex_lock(&pool->lock);
    PB_ASSERT(pool->taken_count > 0);
    pool->taken_count--;
    pb_list_push_back(&pool->left, &ring->link);
    pthread_mutex_unlock(&pool->lock);
}

/* Taken off the list; NULL: none was left by that log. */
static pb_tail_ring *take_left(pb_ring_pool *pool, const uint8_t *topic_id, int32_t partition)
{
    pb_tail_ring *found = NULL;
    pthread_mutex_lock(&pool->lock);
    for (pb_link *link = pool->left.next; link != &pool->left && found == NULL; link = link->next) {
        pb_tail_ring *ring = PB_CONTAINER(link, pb_tail_ring, link);
        const pb_ring_identity *identity = &ring->header->identity;
        if (identity->partition == partition && memcmp(identity->topic_id, topic_id, PB_RING_UUID_BYTES) == 0)
            found = ring;
    }
    if (found != NULL) {
        pb_list_remove(&found->link);
        pool->taken_count++;
    }
    pthread_mutex_unlock(&pool->lock);
    return found;
}

int pb_ring_pool_replay(pb_ring_pool *pool, const char *log_directory, const uint8_t *topic_id, int32_t partition,
                        pb_failure *failure)
{
    pb_tail_ring *ring;
    while ((ring = take_left(pool, topic_id, partition)) != NULL) {
        pb_ring_content content;
        int64_t moved_bytes;
        int rc = pb_ring_inspect(pool->io, ring->path, &content, failure);
        if (rc == 0)
            rc = pb_ring_replay(pool->io, ring->path, &content, log_directory, false, &moved_bytes, failure);
        if (rc != 0) {
            pb_ring_pool_leave(pool, ring);
            return rc;
        }
        pb_ring_pool_give(pool, ring);
    }
    return 0;
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
