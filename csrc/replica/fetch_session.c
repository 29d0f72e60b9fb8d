/* Fetch sessions. See the header for who may touch what. */
#include "replica/fetch_session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire/generated/kafka_errors.h"

#define FIRST_SLOTS 16
#define EVICT_AFTER_MS 120000 /* Kafka's min.fetch.session eviction age */

int pb_fetch_sessions_init(pb_fetch_sessions *sessions, int32_t limit, uint64_t seed)
{
    memset(sessions, 0, sizeof *sessions);
    pthread_mutex_init(&sessions->lock, NULL);
    pb_list_init(&sessions->lru);
    sessions->limit = limit;
    sessions->seed = seed;
    atomic_init(&sessions->held_bytes, 0);
    return 0;
}

/* How a request names a partition. */
typedef struct partition_name {
    pb_slice topic; /* null: by id */
    const pb_uuid *id;
    int32_t index;
} partition_name;

static uint64_t mix(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)(a ^ 0x9e3779b97f4a7c15u) * (b ^ 0xe7037ed1a0b428dbu);
    return (uint64_t)(product >> 64) ^ (uint64_t)product;
}

static uint32_t name_hash(uint64_t seed, const partition_name *name)
{
    const uint8_t *bytes = pb_slice_is_null(name->topic) ? name->id->bytes : name->topic.data;
    size_t length = pb_slice_is_null(name->topic) ? sizeof name->id->bytes : (size_t)name->topic.length;
    uint64_t hash = mix(seed, ((uint64_t)length << 32) | (uint32_t)name->index);
    for (size_t at = 0; at < length; at += sizeof(uint64_t)) {
        uint64_t word = 0;
        memcpy(&word, bytes + at, length - at < sizeof word ? length - at : sizeof word);
        hash = mix(hash ^ word, seed);
    }
    return (uint32_t)(hash ^ (hash >> 32));
}

static partition_name name_of(const pb_session_partition *partition)
{
    pb_slice topic = partition->topic_length < 0 ? PB_NULL_SLICE : pb_session_partition_topic(partition);
    return (partition_name){topic, &partition->topic_id, partition->index};
}

static partition_name asked_name(const pb_fetch_session *session, pb_slice topic, const pb_uuid *id, int32_t index)
{
    return (partition_name){session->by_id ? PB_NULL_SLICE : topic, id, index};
}

static bool is_named(const pb_session_partition *partition, const partition_name *name)
{
    partition_name own = name_of(partition);
    if (own.index != name->index || own.topic.length != name->topic.length)
        return false;
    if (pb_slice_is_null(own.topic))
        return memcmp(own.id->bytes, name->id->bytes, sizeof name->id->bytes) == 0;
    return pb_slice_equal(own.topic, name->topic);
}

static pb_session_partition **find_slot(pb_fetch_session *session, const partition_name *name)
{
    pb_session_partition **slot = &session->slots[name_hash(session->seed, name) & (session->slot_count - 1)];
    while (*slot != NULL && !is_named(*slot, name))
        slot = &(*slot)->next;
    return slot;
}

static int grow(pb_fetch_session *session)
{
    uint32_t slot_count = session->slot_count != 0 ? session->slot_count * 2 : FIRST_SLOTS;
    pb_session_partition **slots = calloc(slot_count, sizeof *slots);
    if (slots == NULL)
        return -ENOMEM;
    for (pb_link *link = session->partitions.next; link != &session->partitions; link = link->next) {
        pb_session_partition *partition = PB_CONTAINER(link, pb_session_partition, link);
        partition_name name = name_of(partition);
        pb_session_partition **slot = &slots[name_hash(session->seed, &name) & (slot_count - 1)];
        partition->next = *slot;
        *slot = partition;
    }
    free(session->slots);
    session->slots = slots;
    session->slot_count = slot_count;
    return 0;
}

/* The memory of a partition, its share of the hash table included. */
static int64_t size_of(const pb_session_partition *partition)
{
    return (int64_t)sizeof *partition + 4 * (int64_t)sizeof(void *) +
           (partition->topic_length > 0 ? partition->topic_length : 0);
}

/* NULL: no memory, or more than all sessions may hold. */
static pb_session_partition *make_partition(pb_fetch_sessions *sessions, const partition_name *name)
{
    size_t length = pb_slice_is_null(name->topic) ? 0 : (size_t)name->topic.length;
    pb_session_partition *partition = calloc(1, sizeof *partition + length);
    if (partition == NULL)
        return NULL;
    partition->topic_length = name->topic.length;
    if (length > 0)
        memcpy(partition->topic, name->topic.data, length);
    partition->topic_id = *name->id;
    partition->index = name->index;
    partition->sent_high_watermark = -1;
    partition->sent_log_start_offset = -1;
    int64_t size = size_of(partition);
    if (atomic_fetch_add(&sessions->held_bytes, size) + size > PB_SESSION_MEMORY_BYTES) {
        atomic_fetch_sub(&sessions->held_bytes, size);
        free(partition);
        return NULL;
    }
    return partition;
}

static void free_partition(pb_fetch_sessions *sessions, pb_session_partition *partition)
{
    atomic_fetch_sub(&sessions->held_bytes, size_of(partition));
    free(partition);
}

static int put_partition(pb_fetch_sessions *sessions, pb_fetch_session *session, const partition_name *name,
                         const pb_fetch_request_fetch_partition *asked)
{
    if ((uint32_t)session->partition_count >= session->slot_count && grow(session) < 0)
        return -ENOMEM;
    pb_session_partition **slot = find_slot(session, name);
    if (*slot == NULL) {
        if ((*slot = make_partition(sessions, name)) == NULL)
            return -ENOMEM;
        pb_list_push_back(&session->partitions, &(*slot)->link);
        session->partition_count++;
    }
    (*slot)->fetch_offset = asked->fetch_offset;
    (*slot)->max_bytes = asked->partition_max_bytes;
    (*slot)->current_leader_epoch = asked->current_leader_epoch;
    (*slot)->last_fetched_epoch = asked->last_fetched_epoch;
    (*slot)->log_start_offset = asked->log_start_offset;
    (*slot)->known_high_watermark = asked->high_watermark;
    return 0;
}

static void forget_partition(pb_fetch_sessions *sessions, pb_fetch_session *session, const partition_name *name)
{
    pb_session_partition **slot = find_slot(session, name);
    pb_session_partition *partition = *slot;
    if (partition == NULL)
        return;
    *slot = partition->next;
    pb_list_remove(&partition->link);
    session->partition_count--;
    free_partition(sessions, partition);
}

static void free_session(pb_fetch_sessions *sessions, pb_fetch_session *session)
{
    pb_link *link;
    while ((link = pb_list_pop_front(&session->partitions)) != NULL)
        free_partition(sessions, PB_CONTAINER(link, pb_session_partition, link));
    free(session->slots);
    free(session);
}

/* ---- the table; its lock is held ---- */

static pb_fetch_session **find_session(pb_fetch_sessions *sessions, int32_t id)
{
    pb_fetch_session **slot = &sessions->buckets[(uint32_t)id % PB_SESSION_BUCKETS];
    while (*slot != NULL && (*slot)->id != id)
        slot = &(*slot)->next;
    return slot;
}

static void remove_session(pb_fetch_sessions *sessions, pb_fetch_session **slot)
{
    pb_fetch_session *session = *slot;
    PB_ASSERT(session != NULL);
    *slot = session->next;
    pb_list_remove(&session->lru);
    sessions->count--;
    session->removed = true;
    if (!session->busy)
        free_session(sessions, session);
}

/* The session that a new one of `size` partitions may take the place of when none is stale: the smallest that is not
 * new itself, if it is smaller. NULL: none. */
static pb_fetch_session *find_smaller(pb_fetch_sessions *sessions, int32_t size, int64_t now_ms)
{
    pb_fetch_session *smallest = NULL;
    for (pb_link *link = sessions->lru.next; link != &sessions->lru; link = link->next) {
        pb_fetch_session *session = PB_CONTAINER(link, pb_fetch_session, lru);
        if (!session->busy && now_ms - session->made_ms > EVICT_AFTER_MS && session->partition_count < size &&
            (smallest == NULL || session->partition_count < smallest->partition_count))
            smallest = session;
    }
    return smallest;
}

/* Room for one more of `size` partitions: there is, or one that is stale or smaller goes. */
static bool make_room(pb_fetch_sessions *sessions, int32_t size, int64_t now_ms)
{
    if (sessions->count < sessions->limit)
        return true;
    if (pb_list_empty(&sessions->lru))
        return false;
    pb_fetch_session *victim = PB_CONTAINER(sessions->lru.next, pb_fetch_session, lru);
    if (victim->busy || now_ms - victim->used_ms <= EVICT_AFTER_MS)
        victim = find_smaller(sessions, size, now_ms);
    if (victim == NULL)
        return false;
    remove_session(sessions, find_session(sessions, victim->id));
    return true;
}

static int32_t new_id(pb_fetch_sessions *sessions)
{
    int32_t id;
    do {
        sessions->seed += 0x9e3779b97f4a7c15u;
        id = (int32_t)(mix(sessions->seed, sessions->seed) & INT32_MAX);
    } while (id == 0 || *find_session(sessions, id) != NULL);
    return id;
}

static pb_fetch_session *open_session(pb_fetch_sessions *sessions, bool by_id, int32_t size, int64_t now_ms)
{
    if (!make_room(sessions, size, now_ms))
        return NULL;
    pb_fetch_session *session = calloc(1, sizeof *session);
    if (session == NULL)
        return NULL;
    pb_list_init(&session->partitions);
    session->id = new_id(sessions);
    session->epoch = 1;
    session->by_id = by_id;
    session->busy = true;
    session->seed = mix(sessions->seed, (uint64_t)session->id);
    session->made_ms = now_ms;
    session->used_ms = now_ms;
    pb_fetch_session **bucket = &sessions->buckets[(uint32_t)session->id % PB_SESSION_BUCKETS];
    session->next = *bucket;
    *bucket = session;
    pb_list_push_back(&sessions->lru, &session->lru);
    sessions->count++;
    return session;
}

static int resume_session(pb_fetch_sessions *sessions, const pb_fetch_request *request, bool by_id, int64_t now_ms,
                          pb_fetch_session **out)
{
    pb_fetch_session *session = *find_session(sessions, request->session_id);
    if (session == NULL)
        return PB_KAFKA_FETCH_SESSION_ID_NOT_FOUND;
    if (session->busy || session->epoch != request->session_epoch)
        return PB_KAFKA_INVALID_FETCH_SESSION_EPOCH;
    if (session->by_id != by_id)
        return PB_KAFKA_FETCH_SESSION_TOPIC_ID_ERROR;
    session->busy = true;
    session->used_ms = now_ms;
    session->epoch = session->epoch == INT32_MAX ? 1 : session->epoch + 1;
    pb_list_remove(&session->lru);
    pb_list_push_back(&sessions->lru, &session->lru);
    *out = session;
    return 0;
}

/* ---- requests ---- */

static int update_session(pb_fetch_sessions *sessions, pb_fetch_session *session, const pb_fetch_request *request)
{
    for (int32_t i = 0; i < request->topics_count; i++) {
        const pb_fetch_request_fetch_topic *topic = &request->topics[i];
        for (int32_t k = 0; k < topic->partitions_count; k++) {
            partition_name name = asked_name(session, topic->topic, &topic->topic_id, topic->partitions[k].partition);
            if (put_partition(sessions, session, &name, &topic->partitions[k]) < 0)
                return -ENOMEM;
        }
    }
    for (int32_t i = 0; i < request->forgotten_topics_data_count && session->slot_count > 0; i++) {
        const pb_fetch_request_forgotten_topic *topic = &request->forgotten_topics_data[i];
        for (int32_t k = 0; k < topic->partitions_count; k++) {
            partition_name name = asked_name(session, topic->topic, &topic->topic_id, topic->partitions[k]);
            forget_partition(sessions, session, &name);
        }
    }
    return 0;
}

static int32_t asked_count(const pb_fetch_request *request)
{
    int64_t count = 0;
    for (int32_t i = 0; i < request->topics_count; i++)
        count += request->topics[i].partitions_count;
    return count < INT32_MAX ? (int32_t)count : INT32_MAX;
}

void pb_fetch_session_abandon(pb_fetch_sessions *sessions, pb_fetch_session *session)
{
    pthread_mutex_lock(&sessions->lock);
    if (!session->removed)
        remove_session(sessions, find_session(sessions, session->id));
    pthread_mutex_unlock(&sessions->lock);
    pb_fetch_session_end(sessions, session);
}

int pb_fetch_session_begin(pb_fetch_sessions *sessions, const pb_fetch_request *request, int16_t version,
                           int64_t now_ms, pb_fetch_session **out, bool *full)
{
    *out = NULL;
    *full = request->session_epoch == PB_FETCH_INITIAL_EPOCH || request->session_epoch == PB_FETCH_FINAL_EPOCH;
    bool by_id = version >= 13;
    int result = 0;
    pthread_mutex_lock(&sessions->lock);
    if (!*full) {
        result = resume_session(sessions, request, by_id, now_ms, out);
    } else {
        pb_fetch_session **old = find_session(sessions, request->session_id);
        if (*old != NULL)
            remove_session(sessions, old);
        if (request->session_epoch == PB_FETCH_INITIAL_EPOCH && version >= 7)
            *out = open_session(sessions, by_id, asked_count(request), now_ms);
    }
    pthread_mutex_unlock(&sessions->lock);
    if (*out == NULL)
        return result;
    result = update_session(sessions, *out, request);
    if (result == 0 && (*full || (*out)->partition_count > 0))
        return 0;
    pb_fetch_session_abandon(sessions, *out);
    *out = NULL;
    /* Too much to remember: a new fetcher does without a session, an old one is told to begin again. */
    return result == 0 || *full ? 0 : PB_KAFKA_FETCH_SESSION_ID_NOT_FOUND;
}

void pb_fetch_session_end(pb_fetch_sessions *sessions, pb_fetch_session *session)
{
    pthread_mutex_lock(&sessions->lock);
    PB_ASSERT(session->busy);
    session->busy = false;
    bool removed = session->removed;
    pthread_mutex_unlock(&sessions->lock);
    if (removed)
        free_session(sessions, session);
}

bool pb_session_partition_changed(pb_fetch_session *session, pb_session_partition *partition, bool has_records,
                                  int error, int64_t high_watermark, int64_t log_start_offset)
{
    bool changed = has_records || error != 0 || partition->sent_high_watermark != high_watermark ||
                   partition->sent_log_start_offset != log_start_offset;
    partition->sent_high_watermark = error != 0 ? -1 : high_watermark;
    partition->sent_log_start_offset = log_start_offset;
    if (has_records) { /* others come first next time */
        pb_list_remove(&partition->link);
        pb_list_push_back(&session->partitions, &partition->link);
    }
    return changed;
}

int32_t pb_fetch_sessions_count(pb_fetch_sessions *sessions)
{
    pthread_mutex_lock(&sessions->lock);
    int32_t count = sessions->count;
    pthread_mutex_unlock(&sessions->lock);
    return count;
}

void pb_fetch_sessions_destroy(pb_fetch_sessions *sessions)
{
    for (int i = 0; i < PB_SESSION_BUCKETS; i++)
        while (sessions->buckets[i] != NULL) {
            PB_ASSERT(!sessions->buckets[i]->busy);
            remove_session(sessions, &sessions->buckets[i]);
        }
    pthread_mutex_destroy(&sessions->lock);
}
