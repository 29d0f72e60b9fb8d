/* Quotas of clients. See the header for who may call. */
#include "server/quota/client_quotas.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

void pb_client_quotas_init(pb_client_quotas *quotas, uint64_t seed)
{
    memset(quotas, 0, sizeof *quotas);
    pthread_mutex_init(&quotas->lock, NULL);
    pb_list_init(&quotas->lru);
    quotas->seed = seed;
    quotas->window = (pb_rate_window){.count = 1, .sample_ms = 1000};
}

static pb_slice text_of(pb_slice client_id)
{
    return client_id.length > 0 ? client_id : (pb_slice){"", 0};
}

static int order_of(pb_slice a, pb_slice b)
{
    int32_t common = a.length < b.length ? a.length : b.length;
    int order = common > 0 ? memcmp(a.data, b.data, (size_t)common) : 0;
    return order != 0 ? order : (a.length > b.length) - (a.length < b.length);
}

static int compare_limits(const void *a, const void *b)
{
    return order_of(((const pb_client_limits *)a)->client_id, ((const pb_client_limits *)b)->client_id);
}

static bool has_limit(const pb_client_limits *limits)
{
    return limits->of[PB_QUOTA_PRODUCE].bytes_per_second > 0 || limits->of[PB_QUOTA_FETCH].bytes_per_second > 0;
}

/* ---- rates; the lock is held ---- */

static void forget_client(pb_client_quotas *quotas, pb_quota_client *client)
{
    pb_quota_client **slot = &quotas->buckets[client->hash % PB_QUOTA_BUCKETS];
    while (*slot != client)
        slot = &(*slot)->next;
    *slot = client->next;
    pb_list_remove(&client->lru);
    quotas->client_count--;
    for (int kind = 0; kind < PB_QUOTA_KINDS; kind++)
        free(client->rates[kind]);
    free(client);
}

static pb_quota_client *longest_unheard(pb_client_quotas *quotas)
{
    PB_ASSERT(!pb_list_empty(&quotas->lru));
    return PB_CONTAINER(quotas->lru.next, pb_quota_client, lru);
}

static void forget_all(pb_client_quotas *quotas)
{
    while (quotas->client_count > 0)
        forget_client(quotas, longest_unheard(quotas));
    PB_ASSERT(pb_list_empty(&quotas->lru));
    for (int kind = 0; kind < PB_QUOTA_KINDS; kind++) {
        free(quotas->shared[kind]);
        quotas->shared[kind] = NULL;
    }
}

static uint64_t hash_of(const pb_client_quotas *quotas, pb_slice id)
{
    const uint8_t *bytes = (const uint8_t *)id.data;
    uint64_t hash = quotas->seed ^ (uint64_t)id.length;
    for (int32_t i = 0; i < id.length && i < PB_QUOTA_ID_BYTES; i++) {
        hash = (hash ^ bytes[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return hash;
}

/* The client of that id, made if it is new; NULL when memory is short. */
static pb_quota_client *find_client(pb_client_quotas *quotas, pb_slice id)
{
    uint64_t hash = hash_of(quotas, id);
    size_t kept = id.length < PB_QUOTA_ID_BYTES ? (size_t)id.length : PB_QUOTA_ID_BYTES;
    pb_quota_client **bucket = &quotas->buckets[hash % PB_QUOTA_BUCKETS];
    pb_quota_client *client = *bucket;
    while (client != NULL &&
           (client->hash != hash || client->id_length != id.length || memcmp(client->id, id.data, kept) != 0))
        client = client->next;
    if (client != NULL) {
        pb_list_remove(&client->lru);
    } else {
        client = calloc(1, sizeof *client);
        if (client == NULL)
            return NULL;
        if (quotas->client_count == PB_QUOTA_CLIENTS_MAX)
            forget_client(quotas, longest_unheard(quotas));
        client->hash = hash;
        client->id_length = id.length;
        memcpy(client->id, id.data, kept);
        client->next = *bucket;
        *bucket = client;
        quotas->client_count++;
    }
    pb_list_push_back(&quotas->lru, &client->lru);
    return client;
}

static pb_rate *find_rate(pb_client_quotas *quotas, enum pb_quota_kind kind, pb_slice id, bool is_shared)
{
    pb_quota_client *client = is_shared ? NULL : find_client(quotas, id);
    if (client == NULL && !is_shared)
        return NULL;
    pb_rate **rate = is_shared ? &quotas->shared[kind] : &client->rates[kind];
    if (*rate == NULL)
        *rate = calloc(1, pb_rate_size(&quotas->window));
    return *rate;
}

/* ---- limits ---- */

/* The limits with their ids in one block; NULL for none, or when memory is short. */
static pb_client_limits *copy_limits(const pb_client_limits *named, int32_t count)
{
    size_t size = (size_t)count * sizeof *named;
    for (int32_t i = 0; i < count; i++)
        size += (size_t)text_of(named[i].client_id).length;
    pb_client_limits *copies = count > 0 ? malloc(size) : NULL;
    if (copies == NULL)
        return NULL;
    char *ids = (char *)(copies + count);
    for (int32_t i = 0; i < count; i++) {
        pb_slice id = text_of(named[i].client_id);
        copies[i] = named[i];
        copies[i].client_id = (pb_slice){ids, id.length};
        memcpy(ids, id.data, (size_t)id.length);
        ids += id.length;
    }
    qsort(copies, (size_t)count, sizeof *copies, compare_limits);
    return copies;
}

int pb_client_quotas_set(pb_client_quotas *quotas, const pb_client_limits *named, int32_t named_count,
                         const pb_client_limits *others, const pb_rate_window *window)
{
    if (named_count < 0 || window->count < 1 || window->count > PB_QUOTA_SAMPLES_MAX || window->sample_ms < 1)
        return -EINVAL;
    pb_client_limits *copies = copy_limits(named, named_count);
    if (named_count > 0 && copies == NULL)
        return -ENOMEM;
    bool is_on = has_limit(others);
    for (int32_t i = 0; i < named_count; i++)
        is_on = is_on || has_limit(&copies[i]);
    pthread_mutex_lock(&quotas->lock);
    if (!is_on || window->count != quotas->window.count || window->sample_ms != quotas->window.sample_ms)
        forget_all(quotas);
    pb_client_limits *old = quotas->named;
    quotas->named = copies;
    quotas->named_count = named_count;
    quotas->others = *others;
    quotas->window = *window;
    atomic_store_explicit(&quotas->is_on, is_on, memory_order_relaxed);
    pthread_mutex_unlock(&quotas->lock);
    free(old);
    return 0;
}

void pb_client_quotas_destroy(pb_client_quotas *quotas)
{
    forget_all(quotas);
    free(quotas->named);
    pthread_mutex_destroy(&quotas->lock);
}

/* With the lock held. */
static pb_client_limit limit_of(const pb_client_quotas *quotas, enum pb_quota_kind kind, pb_slice id)
{
    pb_client_limits wanted = {.client_id = id};
    const pb_client_limits *found =
        quotas->named_count > 0
            ? bsearch(&wanted, quotas->named, (size_t)quotas->named_count, sizeof wanted, compare_limits)
            : NULL;
    return found != NULL ? found->of[kind] : quotas->others.of[kind];
}

int32_t pb_client_quotas_take(pb_client_quotas *quotas, enum pb_quota_kind kind, pb_slice client_id, int64_t bytes,
                              int64_t now_ms)
{
    PB_ASSERT(bytes >= 0);
    pb_slice id = text_of(client_id);
    int32_t wait_ms = 0;
    pthread_mutex_lock(&quotas->lock);
    pb_client_limit limit = limit_of(quotas, kind, id);
    pb_rate *rate = limit.bytes_per_second > 0 ? find_rate(quotas, kind, id, limit.is_shared) : NULL;
    if (rate != NULL) {
        pb_rate_add(rate, &quotas->window, bytes, now_ms);
        wait_ms = pb_rate_wait_ms(rate, &quotas->window, limit.bytes_per_second, now_ms);
        if (wait_ms > 0 && kind == PB_QUOTA_FETCH)
            pb_rate_add(rate, &quotas->window, -bytes, now_ms);
    }
    pthread_mutex_unlock(&quotas->lock);
    return wait_ms;
}

int64_t pb_client_quotas_fetch_bytes(pb_client_quotas *quotas, pb_slice client_id)
{
    pthread_mutex_lock(&quotas->lock);
    pb_client_limit limit = limit_of(quotas, PB_QUOTA_FETCH, text_of(client_id));
    double window_s = (double)(quotas->window.count - 1) * (double)quotas->window.sample_ms / 1000.0;
    pthread_mutex_unlock(&quotas->lock);
    double bytes = limit.bytes_per_second * window_s;
    return limit.bytes_per_second > 0 && bytes < (double)INT32_MAX ? (int64_t)bytes : INT64_MAX;
}
