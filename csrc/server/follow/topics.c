/* A fetcher's partitions by topic id and index: chains of topics, each with an array. Its home reactor only. */
#include <stdlib.h>
#include <string.h>

#include "server/follow/fetcher.h"

enum { FIRST_BUCKETS = 16 };

/* Topic ids are random, so any part of one spreads well. */
static uint32_t bucket_of(const pb_followed_topics *topics, const uint8_t id[PB_UUID_BYTES])
{
    uint32_t part;
    memcpy(&part, id + PB_UUID_BYTES - sizeof part, sizeof part);
    return part & (topics->bucket_count - 1);
}

static pb_followed_topic *find_topic(const pb_followed_topics *topics, const uint8_t id[PB_UUID_BYTES])
{
    if (topics->bucket_count == 0)
        return NULL;
    pb_followed_topic *topic = topics->buckets[bucket_of(topics, id)];
    while (topic != NULL && memcmp(topic->id, id, PB_UUID_BYTES) != 0)
        topic = topic->next;
    return topic;
}

pb_followed *pb_followed_find(const pb_followed_topics *topics, const uint8_t id[PB_UUID_BYTES], int32_t index)
{
    const pb_followed_topic *topic = find_topic(topics, id);
    return topic != NULL && index >= 0 && index < topic->capacity ? topic->followers[index] : NULL;
}

static bool grow(pb_followed_topics *topics)
{
    pb_followed_topics larger = {.bucket_count = topics->bucket_count > 0 ? 2 * topics->bucket_count : FIRST_BUCKETS,
                                 .count = topics->count};
    larger.buckets = calloc(larger.bucket_count, sizeof *larger.buckets);
    if (larger.buckets == NULL)
        return false;
    for (uint32_t i = 0; i < topics->bucket_count; i++)
        for (pb_followed_topic *topic = topics->buckets[i], *next; topic != NULL; topic = next) {
            next = topic->next;
            pb_followed_topic **bucket = &larger.buckets[bucket_of(&larger, topic->id)];
            topic->next = *bucket;
            *bucket = topic;
        }
    free(topics->buckets);
    *topics = larger;
    return true;
}

static pb_followed_topic *make_topic(pb_fetcher *fetcher, const pb_partition *partition)
{
    pb_followed_topics *topics = &fetcher->topics;
    if (topics->count == topics->bucket_count && !grow(topics))
        return NULL;
    pb_followed_topic *topic = calloc(1, sizeof *topic);
    if (topic == NULL)
        return NULL;
    topic->fetcher = fetcher;
    memcpy(topic->id, partition->topic_id, PB_UUID_BYTES);
    memcpy(topic->name, partition->topic, sizeof topic->name);
    pb_list_init(&topic->link);
    pb_followed_topic **bucket = &topics->buckets[bucket_of(topics, topic->id)];
    topic->next = *bucket;
    *bucket = topic;
    topics->count++;
    return topic;
}

static void free_topic(pb_followed_topic *topic)
{
    pb_followed_topics *topics = &topic->fetcher->topics;
    pb_followed_topic **place = &topics->buckets[bucket_of(topics, topic->id)];
    while (*place != topic)
        place = &(*place)->next;
    *place = topic->next;
    topics->count--;
    free(topic->followers);
    free(topic);
}

/* Room for that index. */
static bool widen(pb_followed_topic *topic, int32_t index)
{
    if (index < topic->capacity)
        return true;
    int32_t capacity = index < 2 * topic->capacity ? 2 * topic->capacity : index + 1;
    pb_followed **followers = realloc(topic->followers, (size_t)capacity * sizeof *followers);
    if (followers == NULL)
        return false;
    memset(followers + topic->capacity, 0, (size_t)(capacity - topic->capacity) * sizeof *followers);
    topic->followers = followers;
    topic->capacity = capacity;
    return true;
}

pb_followed *pb_followed_make(pb_fetcher *fetcher, const pb_partition *partition)
{
    PB_ASSERT(partition->index >= 0);
    pb_followed_topic *topic = find_topic(&fetcher->topics, partition->topic_id);
    if (topic == NULL)
        topic = make_topic(fetcher, partition);
    pb_followed *follower = topic != NULL && widen(topic, partition->index) ? topic->followers[partition->index] : NULL;
    if (follower != NULL)
        return follower;
    if (topic != NULL && topic->capacity > partition->index)
        follower = calloc(1, sizeof *follower);
    if (follower == NULL) {
        if (topic != NULL && topic->held == 0)
            free_topic(topic);
        return NULL;
    }
    follower->topic = topic;
    follower->index = partition->index;
    follower->step = PB_FOLLOW_GONE;
    pb_list_init(&follower->link);
    pb_list_init(&follower->asking_link);
    pb_list_init(&follower->told_link);
    topic->followers[partition->index] = follower;
    topic->held++;
    return follower;
}

void pb_followed_free(pb_followed *follower)
{
    pb_followed_topic *topic = follower->topic;
    PB_ASSERT(follower->partition == NULL && follower->references == 0 && !pb_timer_is_set(&follower->timer));
    PB_ASSERT(topic->followers[follower->index] == follower && topic->held > 0);
    pb_list_remove(&follower->link);
    pb_list_remove(&follower->asking_link);
    pb_list_remove(&follower->told_link);
    topic->followers[follower->index] = NULL;
    free(follower);
    if (--topic->held == 0)
        free_topic(topic);
}

void pb_followed_each(pb_followed_topics *topics, void (*visit)(pb_followed *follower))
{
    for (uint32_t bucket = 0; bucket < topics->bucket_count; bucket++)
        for (pb_followed_topic *topic = topics->buckets[bucket], *next; topic != NULL; topic = next) {
            next = topic->next;
            pb_followed **followers = topic->followers;
            /* The topic may go with the last one. */
            for (int32_t i = 0, left = topic->held; left > 0; i++)
                if (followers[i] != NULL) {
                    left--;
                    visit(followers[i]);
                }
        }
}

void pb_followed_clear(pb_followed_topics *topics)
{
    PB_ASSERT(topics->count == 0);
    free(topics->buckets);
    *topics = (pb_followed_topics){0};
}
