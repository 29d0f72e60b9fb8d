/*
 * Makes this broker lead a partition with followers. The knowledge of them goes on, as far as it still holds. A replica
 * joins the ISR under the check of the lock that the high watermark moves under.
 */
#include <errno.h>
#include <stdlib.h>

#include "replica/durable.h"
#include "replica/followers.h"
#include "wire/generated/kafka_errors.h"

#define REPLICAS_MAX 1024

static bool contains(const int32_t *ids, int32_t count, int32_t id)
{
    for (int32_t i = 0; i < count; i++)
        if (ids[i] == id)
            return true;
    return false;
}

/* Are all of these replicas, each named once? */
static bool are_replicas(const pb_leadership *leadership, const int32_t *ids, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        if (contains(ids, i, ids[i]) || !contains(leadership->replicas, leadership->replica_count, ids[i]))
            return false;
    return true;
}

static bool is_sound(const pb_leadership *leadership, int32_t node_id)
{
    if (leadership->replica_count < 1 || leadership->replica_count > REPLICAS_MAX || leadership->isr_count < 1 ||
        leadership->joining_count < 0)
        return false;
    return contains(leadership->isr, leadership->isr_count, node_id) &&
           are_replicas(leadership, leadership->replicas, leadership->replica_count) &&
           are_replicas(leadership, leadership->isr, leadership->isr_count) &&
           are_replicas(leadership, leadership->joining, leadership->joining_count);
}

static pb_followers *make_followers(const pb_leadership *leadership, int32_t node_id)
{
    int32_t count = leadership->replica_count - 1;
    pb_followers *followers = calloc(1, sizeof *followers + (size_t)count * sizeof followers->each[0]);
    if (followers == NULL)
        return NULL;
    followers->partition_epoch = leadership->partition_epoch;
    followers->isr_count = leadership->isr_count;
    for (int32_t i = 0; i < leadership->replica_count; i++) {
        int32_t id = leadership->replicas[i];
        if (id == node_id)
            continue;
        followers->each[followers->count++] = (pb_follower){
            .replica_id = id,
            .in_isr = contains(leadership->isr, leadership->isr_count, id),
            .joins = contains(leadership->joining, leadership->joining_count, id),
            .log_end_offset = -1,
            .log_start_offset = -1,
            .broker_epoch = -1,
            .leader_end_offset = INT64_MAX,
            .caught_up_ns = -1,
            .told_ns = -1,
        };
    }
    PB_ASSERT(followers->count == count);
    return followers;
}

/* 0, or why the leadership cannot be taken over as it is told. The lock is held. */
static int check_leadership(pb_partition *partition, const pb_leadership *leadership, const pb_followers *followers)
{
    pb_followers *old = partition->followers;
    if (leadership->leader_epoch < partition->leader_epoch)
        return PB_KAFKA_FENCED_LEADER_EPOCH;
    bool goes_on = old != NULL && leadership->leader_epoch == partition->leader_epoch;
    if (goes_on && leadership->partition_epoch < old->partition_epoch)
        return PB_KAFKA_INVALID_UPDATE_VERSION;
    int result = 0;
    for (int32_t i = 0; i < followers->count; i++) {
        const pb_follower *each = &followers->each[i];
        pb_follower *known = pb_followers_find(old, each->replica_id);
        if (!each->joins || each->in_isr || (goes_on && known != NULL && (known->in_isr || known->joins)))
            continue;
        if (known != NULL && known->log_end_offset >= partition->high_watermark && goes_on &&
            known->log_end_offset >= old->epoch_start_offset)
            continue;
        if (known != NULL)
            known->told_ns = -1;
        result = PB_KAFKA_INELIGIBLE_REPLICA;
    }
    return result;
}

/* A follower's progress is known as long as we lead; a new epoch judges anew which ones lag. Between epochs that do not
 * follow each other somebody else has led, as happens when metadata comes late, and may have had it cut. The lock is
 * held. */
static void take_over(const pb_partition *partition, pb_followers *followers, int32_t leader_epoch)
{
    bool is_new_epoch = leader_epoch > partition->leader_epoch;
    bool is_next = (int64_t)leader_epoch - partition->leader_epoch <= 1;
    pb_followers *before = is_next ? partition->followers : NULL;
    int64_t now_ns = partition->io->ops->monotonic_ns(partition->io);
    int64_t end = pb_log_written_end(partition->log);
    for (int32_t i = 0; i < followers->count; i++) {
        pb_follower *each = &followers->each[i];
        const pb_follower *known = pb_followers_find(before, each->replica_id);
        if (known != NULL) {
            bool in_isr = each->in_isr, joins = each->joins;
            *each = *known;
            each->in_isr = in_isr;
            each->joins = joins;
            each->is_waited_for = false;
            if (in_isr)
                each->told_ns = -1;
        }
        if (known == NULL || is_new_epoch) {
            each->caught_up_ns = each->in_isr ? now_ns : -1;
            each->fetched_ns = each->in_isr ? now_ns : -1;
            each->leader_end_offset = known != NULL ? end : INT64_MAX;
        }
    }
    followers->epoch_start_offset = partition->followers != NULL && !is_new_epoch
                                        ? partition->followers->epoch_start_offset
                                        : pb_log_appended_end(partition->log);
}

int pb_partition_start_leading_replicas(pb_partition *partition, int32_t node_id, const pb_leadership *leadership)
{
    if (!is_sound(leadership, node_id))
        return -EINVAL;
    pb_followers *followers = make_followers(leadership, node_id);
    if (followers == NULL)
        return -ENOMEM;
    pb_link finished;
    pb_list_init(&finished);
    pthread_mutex_lock(&partition->lock);
    PB_ASSERT(partition->log != NULL && partition->caught_up != NULL);
    int result = check_leadership(partition, leadership, followers);
    if (result == 0) {
        take_over(partition, followers, leadership->leader_epoch);
        pb_partition_begin_epoch(partition, leadership->leader_epoch);
        followers = pb_followers_replace(partition, followers);
        pb_durable_advance(partition, INT64_MAX, &finished);
    }
    pthread_mutex_unlock(&partition->lock);
    free(followers);
    pb_durable_settle(&finished, NULL);
    return result;
}

int32_t pb_partition_read_followers(pb_partition *partition, pb_follower_view *out, int32_t capacity)
{
    int64_t now_ns = partition->io->ops->monotonic_ns(partition->io);
    pthread_mutex_lock(&partition->lock);
    const pb_followers *followers = partition->followers;
    int32_t count = followers != NULL ? followers->count : 0;
    int64_t end = count > 0 ? pb_log_written_end(partition->log) : 0;
    for (int32_t i = 0; i < count && i < capacity; i++) {
        const pb_follower *each = &followers->each[i];
        int64_t age_ms = each->caught_up_ns < now_ns ? (now_ns - each->caught_up_ns) / 1000000 : 0;
        if (each->log_end_offset == end)
            age_ms = 0;
        else if (each->caught_up_ns < 0)
            age_ms = INT64_MAX;
        out[i] = (pb_follower_view){
            .replica_id = each->replica_id,
            .in_isr = each->in_isr,
            .log_end_offset = each->log_end_offset,
            .log_start_offset = each->log_start_offset,
            .caught_up_ms = age_ms,
            .broker_epoch = each->broker_epoch,
        };
    }
    pthread_mutex_unlock(&partition->lock);
    return count;
}
