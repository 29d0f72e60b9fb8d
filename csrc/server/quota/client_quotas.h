/*
 * How much clients may produce and fetch per second (KIP-13, KIP-55), by their client id: whose quota holds for which
 * was decided in Python, which knows the user. Each client id has its rates; those that have the user's quota share
 * one. Any thread; while no quota is set nobody comes here for more than `is_on`.
 */
#ifndef PB_SERVER_QUOTA_CLIENT_QUOTAS_H
#define PB_SERVER_QUOTA_CLIENT_QUOTAS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/list.h"
#include "server/quota/rate.h"
#include "wire/reader.h"

#define PB_QUOTA_CLIENTS_MAX \
    4096 /* whose rates are remembered; more make those forgotten that were not heard longest */
#define PB_QUOTA_BUCKETS 1024
#define PB_QUOTA_ID_BYTES 200     /* of a client id; of longer ones this and the length tell them apart */
#define PB_QUOTA_SAMPLES_MAX 1000 /* pybroker.h's PB_QUOTA_SAMPLES */

enum pb_quota_kind { PB_QUOTA_PRODUCE, PB_QUOTA_FETCH, PB_QUOTA_KINDS };

typedef struct pb_client_limit {
    double bytes_per_second; /* 0: no bound */
    bool is_shared;          /* with all whose limit is the user's */
} pb_client_limit;

typedef struct pb_client_limits {
    pb_slice client_id;
    pb_client_limit of[PB_QUOTA_KINDS];
} pb_client_limits;

/* One client id that has been heard. */
typedef struct pb_quota_client {
    struct pb_quota_client *next; /* hash chain */
    pb_link lru;
    uint64_t hash;
    int32_t id_length;              /* whole; null is as empty */
    pb_rate *rates[PB_QUOTA_KINDS]; /* NULL: nothing was taken */
    char id[PB_QUOTA_ID_BYTES];
} pb_quota_client;

typedef struct pb_client_quotas {
    atomic_bool is_on;
    pthread_mutex_t lock;    /* of all that follows */
    pb_client_limits *named; /* by client id; one block of memory with the ids */
    int32_t named_count;
    pb_client_limits others;
    pb_rate_window window;
    pb_rate *shared[PB_QUOTA_KINDS];
    pb_quota_client *buckets[PB_QUOTA_BUCKETS];
    pb_link lru; /* not heard longest first */
    int32_t client_count;
    uint64_t seed;
} pb_client_quotas;

/* `seed` is random: a client must not choose what collides. */
void pb_client_quotas_init(pb_client_quotas *quotas, uint64_t seed);
void pb_client_quotas_destroy(pb_client_quotas *quotas);
/* Replace all limits. Counted bytes are kept, unless the window changes or no limit is left. 0, -EINVAL for a window
 * that does not exist, or -ENOMEM, and nothing is changed. */
int pb_client_quotas_set(pb_client_quotas *quotas, const pb_client_limits *named, int32_t named_count,
                         const pb_client_limits *others, const pb_rate_window *window);

static inline bool pb_client_quotas_is_on(const pb_client_quotas *quotas)
{
    return atomic_load_explicit(&quotas->is_on, memory_order_relaxed);
}

/* So many bytes are produced, or are about to be fetched: so many ms the client has to wait after that; 0: none. A
 * client that has to wait is not sent the fetched bytes, which then do not count. */
int32_t pb_client_quotas_take(pb_client_quotas *quotas, enum pb_quota_kind kind, pb_slice client_id, int64_t bytes,
                              int64_t now_ms);
/* The bytes that the client can fetch at once and surely without a wait. */
int64_t pb_client_quotas_fetch_bytes(pb_client_quotas *quotas, pb_slice client_id);

#endif
