/* Fetch sessions. See the header for who may touch what. */
#include "replica/fetch_session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire/generated/kafka_errors.h"

#define FIRST_SLOTS 16
#define EVICT_AFTER_MS 120000 /* Kafka's min.fetch.session eviction age */

int pb_fetch_sessions_init(pb_fetch_sessions *sessions, int32_t limit)
{
    memset(sessions, 0, sizeof *sessions);
    pthread_mutex_init(&sessions->lock, NULL);
    pb_list_init(&sessions->lru);
    sessions->limit = limit;
    sessions->seed = (uint64_t)(uintptr_t)sessions ^ 0x9e3779b97f4a7c15u;
    return 0;
}

static uint32_t partition_hash(const char *topic, size_t length, const pb_uuid *id, int32_t index)
{
    const uint8_t *bytes = topic != NULL ? (const uint8_t *)topic : id->bytes;
    size_t count = topic != NULL ? length : sizeof id->bytes;
    uint32_t hash = 2166136261u ^ (uint32_t)index;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ bytes[i]) * 16777619u;
    return hash ^ (hash >> 15);
}

static bool same_partition(const pb_session_partition *partition, const char *topic, size_t length, const pb_uuid *id,
                           int32_t index)
{
    if (partition->index != index)
        return false;
    if (partition->topic == NULL)
        return memcmp(partition->topic_id.bytes, id->bytes, sizeof id->bytes) == 0;
    return strncmp(partition->topic, topic, length) == 0 && partition->topic[length] == '\0';
}

static pb_session_partition **find_slot(pb_fetch_session *session, pb_slice topic, const pb_uuid *id, int32_t index)
{
    const char *name = session->by_id ? NULL : topic.data;
    size_t length = session->by_id || topic.length < 0 ? 0 : (size_t)topic.length;
    uint32_t hash = partition_hash(name, length, id, index);
    pb_session_partition **slot = &session->slots[hash & (session->slot_count - 1)];
    while (*slot != NULL && !same_partition(*slot, name, length, id, index))
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
        size_t length = partition->topic != NULL ? strlen(partition->topic) : 0;
        uint32_t hash = partition_hash(partition->topic, length, &partition->topic_id, partition->index);
        partition->next = slots[hash & (slot_count - 1)];
        slots[hash & (slot_count - 1)] = partition;
    }
    free(session->slots);
    session->slots = slots;
    session->slot_count = slot_count;
    return 0;
}

static int put_partition(pb_fetch_session *session, pb_slice topic, const pb_uuid *id,
                         const pb_fetch_request_fetch_partition *asked)
{
    if ((uint32_t)session->partition_count >= session->slot_count && grow(session) < 0)
        return -ENOMEM;
    pb_session_partition **slot = find_slot(session, topic, id, asked->partition);
    pb_session_partition *partition = *slot;
    if (partition == NULL) {
        partition = calloc(1, sizeof *partition);
        if (partition == NULL)
            return -ENOMEM;
        if (!session->by_id && (partition->topic = strndup(topic.data, (size_t)topic.length)) == NULL) {
            free(partition);
            return -ENOMEM;
        }
        partition->topic_id = *id;
        partition->index = asked->partition;
        partition->sent_high_watermark = -1;
        partition->sent_log_start_offset = -1;
        *slot = partition;
        pb_list_push_back(&session->partitions, &partition->link);
        session->partition_count++;
    }
    partition->fetch_offset = asked->fetch_offset;
    partition->max_bytes = asked->partition_max_bytes;
    partition->current_leader_epoch = asked->current_leader_epoch;
    return 0;
}

static void free_partition(pb_session_partition *partition)
{
    free(partition->topic);
    free(partition);
}

static void forget_partition(pb_fetch_session *session, pb_slice topic, const pb_uuid *id, int32_t index)
{
    pb_session_partition **slot = find_slot(session, topic, id, index);
    pb_session_partition *partition = *slot;
    if (partition == NULL)
        return;
    *slot = partition->next;
    pb_list_remove(&partition->link);
    session->partition_count--;
    free_partition(partition);
}

static void free_session(pb_fetch_session *session)
{
    pb_link *link;
    while ((link = pb_list_pop_front(&session->partitions)) != NULL)
        free_partition(PB_CONTAINER(link, pb_session_partition, link));
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
    *slot = session->next;
    pb_list_remove(&session->lru);
    sessions->count--;
    session->removed = true;
    if (!session->busy)
        free_session(session);
}

/* Room for one more: there is, or the least recently used one is old enough to go. */
static bool make_room(pb_fetch_sessions *sessions, int64_t now_ms)
{
    if (sessions->count < sessions->limit)
        return true;
    if (pb_list_empty(&sessions->lru))
        return false;
    pb_fetch_session *oldest = PB_CONTAINER(sessions->lru.next, pb_fetch_session, lru);
    if (oldest->busy || now_ms - oldest->used_ms < EVICT_AFTER_MS)
        return false;
    remove_session(sessions, find_session(sessions, oldest->id));
    return true;
}

static int32_t new_id(pb_fetch_sessions *sessions)
{
    int32_t id;
    do {
        sessions->seed = sessions->seed * 6364136223846793005u + 1442695040888963407u;
        id = (int32_t)((sessions->seed >> 33) & INT32_MAX);
    } while (id == 0 || *find_session(sessions, id) != NULL);
    return id;
}

static pb_fetch_session *open_session(pb_fetch_sessions *sessions, bool by_id, int64_t now_ms)
{
    if (!make_room(sessions, now_ms))
        return NULL;
    pb_fetch_session *session = calloc(1, sizeof *session);
    if (session == NULL)
        return NULL;
    pb_list_init(&session->partitions);
    session->id = new_id(sessions);
    session->epoch = 1;
    session->by_id = by_id;
    session->busy = true;
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

static int update_session(pb_fetch_session *session, const pb_fetch_request *request)
{
    for (int32_t i = 0; i < request->topics_count; i++) {
        const pb_fetch_request_fetch_topic *topic = &request->topics[i];
        for (int32_t k = 0; k < topic->partitions_count; k++)
            if (put_partition(session, topic->topic, &topic->topic_id, &topic->partitions[k]) < 0)
                return -ENOMEM;
    }
    for (int32_t i = 0; i < request->forgotten_topics_data_count && session->slot_count > 0; i++) {
        const pb_fetch_request_forgotten_topic *topic = &request->forgotten_topics_data[i];
        for (int32_t k = 0; k < topic->partitions_count; k++)
            forget_partition(session, topic->topic, &topic->topic_id, topic->partitions[k]);
    }
    return 0;
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
        if (request->session_epoch == PB_FETCH_INITIAL_EPOCH && version >= 7 && request->topics_count > 0)
            *out = open_session(sessions, by_id, now_ms);
    }
    pthread_mutex_unlock(&sessions->lock);
    if (result == 0 && *out != NULL && (result = update_session(*out, request)) != 0) {
        pthread_mutex_lock(&sessions->lock);
        if (!(*out)->removed)
            remove_session(sessions, find_session(sessions, (*out)->id));
        pthread_mutex_unlock(&sessions->lock);
        pb_fetch_session_end(sessions, *out);
        *out = NULL;
    }
    return result;
}

void pb_fetch_session_end(pb_fetch_sessions *sessions, pb_fetch_session *session)
{
    pthread_mutex_lock(&sessions->lock);
    PB_ASSERT(session->busy);
    session->busy = false;
    bool removed = session->removed;
    pthread_mutex_unlock(&sessions->lock);
    if (removed)
        free_session(session);
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
