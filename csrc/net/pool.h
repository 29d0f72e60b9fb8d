/*
 * Receive buffers: reference-counted chunks from a pool with a budget, shared by all reactors.
 *
 * A chunk holds whole request frames. A produce request keeps its chunk until its bytes are written, so a batch goes
 * from the socket to the page cache with no copy between. Freed chunks are kept for reuse, because fresh memory costs
 * ten times what recycled memory does.
 *
 * The last quarter of the budget is for frames of up to one unit: however many large frames are unfinished, small
 * requests find memory. When memory runs out nevertheless, the reactors compare their slowest connections in rounds,
 * and the slowest of all is closed (net/pressure.h).
 */
#ifndef PB_NET_POOL_H
#define PB_NET_POOL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define PB_CHUNK_UNIT_BYTES (64 * 1024)
#define PB_POOL_CLASSES 64 /* chunks of 1..64 units are recycled; larger ones go back to the system */

#define PB_POOL_ROUND_NS 100000000LL

typedef struct pb_pool pb_pool;

/* Owner: whoever holds a reference; the last release gives it back to the pool. Any thread. */
typedef struct pb_chunk {
    atomic_int references;
    uint32_t capacity;
    pb_pool *pool;
    struct pb_chunk *next; /* the pool's free list */
    bool overdraft;        /* granted above the budget so that somebody gets on */
    bool fitted;           /* no larger than the bytes it was made for: nothing more is received into it */
    uint8_t *data;
} pb_chunk;

/* Slow connections of all reactors, as they were told of in one round. */
typedef struct pb_pool_round {
    int64_t number;
    int64_t slow_bytes;       /* that they hold together */
    int64_t bytes_per_second; /* of the slowest */
    bool has_overdraft;       /* one of them holds it */
} pb_pool_round;

struct pb_pool {
    pthread_mutex_t mutex;
    pb_chunk *free[PB_POOL_CLASSES];
    int64_t budget_bytes;
    int64_t retained_bytes;  /* on the free lists */
    int64_t overdraft_bytes; /* of the one overdraft chunk that is out; not counted against the budget */
    _Atomic int64_t used_bytes;
    bool overdrawn;          /* one overdraft chunk is out */
    pb_pool_round rounds[2]; /* this one and the last, by the parity of their numbers */
    _Atomic int32_t starved; /* connections of all reactors that wait for memory */
    _Atomic int64_t fed_ns;  /* when one that waited with a part of a frame got room for more, but for overdrafts */
};

void pb_pool_init(pb_pool *pool, int64_t budget_bytes);
void pb_pool_destroy(pb_pool *pool);

/* A chunk of at least `bytes` (up to the largest frame, size field included) with one reference; NULL when the budget
 * is used up (or memory is). With `overdraft` one chunk at a time is granted beside the budget. So connections that
 * wait for each other's memory still get on, and one frame larger than the whole budget holds nobody else up. */
pb_chunk *pb_pool_take(pb_pool *pool, uint32_t bytes, bool overdraft);
/* The same for what is to be sent: NULL also when less than half of the budget would be left to those who receive. */
pb_chunk *pb_pool_take_spare(pb_pool *pool, uint32_t bytes);
/* The same for what is received, by a caller that will release `smaller` (may be NULL) once it has copied from it: an
 * overdraft goes over to the larger chunk. Memory for a `large` frame, of more than one unit, leaves the last quarter
 * of the budget alone. */
pb_chunk *pb_pool_exchange(pb_pool *pool, uint32_t bytes, bool large, bool overdraft, pb_chunk *smaller);
/* A chunk no larger than `bytes`, in whole units if it is more than one, also above the budget. For a caller that
 * releases a larger one as soon as it has copied from it. NULL when memory is short. */
pb_chunk *pb_pool_take_fitting(pb_pool *pool, uint32_t bytes);
/* Count `bytes` of other memory against half of the budget: false when that is used up. Any thread; for copies that are
 * only an optimisation. */
bool pb_pool_reserve(pb_pool *pool, int64_t bytes);
void pb_pool_unreserve(pb_pool *pool, int64_t bytes);
/* A reactor's slow connections hold `bytes` together, and the slowest progresses at `bytes_per_second`; `overdraft`:
 * one of them has it. Once in each round. Any thread. */
void pb_pool_tell_slow(pb_pool *pool, int64_t now_ns, int64_t bytes, int64_t bytes_per_second, bool overdraft);
/* The pace of the slowest connection of the last round, when somebody waits for memory, not much is free, and slow
 * connections hold enough of it to matter; else -1. Any thread. */
int64_t pb_pool_slowest(pb_pool *pool, int64_t now_ns);
void pb_chunk_retain(pb_chunk *chunk);
void pb_chunk_release(pb_chunk *chunk);

static inline int64_t pb_pool_used_bytes(pb_pool *pool)
{
    return atomic_load_explicit(&pool->used_bytes, memory_order_relaxed);
}

static inline bool pb_pool_has_starved(pb_pool *pool)
{
    return atomic_load_explicit(&pool->starved, memory_order_relaxed) > 0;
}

/* So much may be used when a large frame takes more. */
static inline int64_t pb_pool_large_bytes(const pb_pool *pool)
{
    return pool->budget_bytes / 4 * 3;
}

/* Memory is short: hold no buffer that is not needed at once. */
static inline bool pb_pool_is_tight(pb_pool *pool)
{
    return pb_pool_used_bytes(pool) > pb_pool_large_bytes(pool) || pb_pool_has_starved(pool);
}

#endif
